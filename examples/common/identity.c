/* Comparing two trainings' settings and data. */
#include "examples/common/identity.h"

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

int identity_check(const char *name, const char *made, const char *now, program_error *error) {
    size_t n = 0, was = 4, is = 4;
    const char *differs = identity_differs(made, now, &n);
    if (!differs) differs = identity_differs(now, made, &n);
    if (!differs) return 0;
    const char *before = identity_value(made, differs, n, &was), *given = identity_value(now, differs, n, &is);
    if (!before) before = "none";
    if (!given) given = "none";
    char shown[2][PROGRAM_SHOWN];
    int length = n < 30 ? (int)n : 30;
    program_show_both(before, was, given, is, shown);
    return program_fail(error,
                        "%.120s is of a training with %.*s %s, and this one has %.*s %s, which would give other "
                        "bits; resume with the same settings and data, or begin another training without --resume",
                        name, length, differs, shown[0], length, differs, shown[1]);
}
