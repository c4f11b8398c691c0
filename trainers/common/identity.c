/* Comparing two trainings' settings and data. */
#include "trainers/common/identity.h"

#include <string.h>

const char *identity_value(const char *text, const char *name, size_t n, size_t *length) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, name, n) || line[n] != ' ') continue;
        *length = strcspn(line + n + 1, "\n");
        return line + n + 1;
    }
    return NULL;
}

/* The name of the first line of `a` that `b` lacks or has with another value; NULL: `b` has them all. */
static const char *identity_differs(const char *a, const char *b, size_t *length) {
    for (const char *line = a; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n = strcspn(line, " \n"), mine = 0, other = 0;
        const char *value = identity_value(line, line, n, &mine), *found = identity_value(b, line, n, &other);
        *length = n;
        if (!found || !value || mine != other || strncmp(value, found, mine)) return line;
    }
    return NULL;
}

/* The name of the first line that differs, *length of it, and both values. NULL: none does. */
static const char *identity_compare(const char *a, const char *b, int *length, char shown[2][PROGRAM_SHOWN]) {
    size_t n = 0, in_a = 4, in_b = 4;
    const char *differs = identity_differs(a, b, &n);
    if (!differs) differs = identity_differs(b, a, &n);
    if (!differs) return NULL;
    const char *first = identity_value(a, differs, n, &in_a), *second = identity_value(b, differs, n, &in_b);
    program_show_both(first ? first : "none", in_a, second ? second : "none", in_b, shown);
    *length = n < 30 ? (int)n : 30;
    return differs;
}

int identity_check(const char *name, const char *made, const char *now, program_error *error) {
    char shown[2][PROGRAM_SHOWN];
    int length;
    const char *differs = identity_compare(made, now, &length, shown);
    if (!differs) return 0;
    return program_fail(error,
                        "%.120s is of a training with %.*s %s, and this one has %.*s %s, which would give other "
                        "bits; resume with the same settings and data, or begin another training without --resume",
                        name, length, differs, shown[0], length, differs, shown[1]);
}

int identity_check_machine(const char *first, const char *mine, program_error *error) {
    char shown[2][PROGRAM_SHOWN];
    int length;
    const char *differs = identity_compare(first, mine, &length, shown);
    if (!differs) return 0;
    return program_fail(error,
                        "machine 0 trains with %.*s %s, and this one would with %.*s %s; give all machines the same "
                        "options and data",
                        length, differs, shown[0], length, differs, shown[1]);
}
