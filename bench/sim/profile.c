/* Reading a report of build/place: flat objects, a line each, whose fields are found by their names. */
#include "bench/sim/profile.h"

#include "tools/place/figures.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_LINE = 16384 };

typedef struct line { /* of a report */
    const char *path, *text;
    unsigned number;
} line;

static int fail(const line *l, const char *field, const char *what, program_error *error) {
    return program_fail(error,
                        "%.200s, line %u: \"%s\" %s; give a report.json or a --json file of build/place, made anew if "
                        "it is of an older version",
                        l->path, l->number, field, what);
}

/* What follows `"field": `; NULL: it is not there. */
static const char *find(const line *l, const char *field) {
    char name[64];
    int n = snprintf(name, sizeof name, "\"%s\": ", field);
    const char *at = strstr(l->text, name);
    return at ? at + n : NULL;
}

static int read_number(const line *l, const char *field, double least, double most, double *to, program_error *error) {
    const char *at = find(l, field);
    char *end;
    if (!at) return fail(l, field, "is missing", error);
    *to = strtod(at, &end);
    if (end == at || !(*to >= least && *to <= most)) return fail(l, field, "is out of its limits", error);
    return 0;
}

static int read_whole(const line *l, const char *field, double least, double most, uint64_t *to, program_error *error) {
    double number;
    if (read_number(l, field, least, most, &number, error)) return -1;
    *to = (uint64_t)number;
    return 0;
}

/* "[1, 2, 3]": *n of them; or as many as *n, if that is not 0. */
static int read_list(const line *l, const char *field, double most, double *to, uint32_t *n, program_error *error) {
    const char *at = find(l, field);
    uint32_t found = 0;
    if (!at || *at != '[') return fail(l, field, "is missing", error);
    do {
        char *end;
        double number = strtod(++at, &end);
        if (end == at || !(number >= 0 && number <= most)) return fail(l, field, "is out of its limits", error);
        if (found == SIM_MOST_CACHES) return fail(l, field, "has too many numbers", error);
        to[found++] = number, at = end;
    } while (*at == ',');
    if (*at != ']' || (*n && *n != found)) return fail(l, field, "has another number of numbers", error);
    *n = found;
    return 0;
}

static int read_method(const line *l, char *method, size_t size, program_error *error) {
    const char *name = l->text + strlen(PLACE_FIGURES_BEGIN);
    size_t n = strcspn(name, "\"");
    if (n == 0 || n >= size || strspn(name, "abcdefghijklmnopqrstuvwxyz-") < n)
        return fail(l, "method", "is no method", error);
    memcpy(method, name, n);
    method[n] = 0;
    return 0;
}

static int read_profile(const line *l, sim_profile *p, program_error *error) {
    static const double many = 0x1p50;
    uint64_t devices;
    *p = (sim_profile){.devices = 0};
    if (read_method(l, p->method, sizeof p->method, error)) return -1;
    if (read_whole(l, "devices", 1, 256, &devices, error) || read_whole(l, "rows", 1, many, &p->rows, error) ||
        read_whole(l, "samples", 1, many, &p->samples, error) ||
        read_whole(l, "touches", 1, many, &p->touches, error) || read_whole(l, "batch", 1, many, &p->batch, error))
        return -1;
    p->devices = (uint32_t)devices;
    double most = (double)p->rows * (double)devices;
    if (read_number(l, "reads", 0, most, &p->reads, error) ||
        read_number(l, "rows_in_step", 0, most, &p->rows_in_step, error) ||
        read_number(l, "rows_alone", 0, most, &p->rows_alone, error) ||
        read_number(l, "rows_again", 0, most, &p->rows_again, error) ||
        read_list(l, "caches", 1, p->caches, &p->n_caches, error) ||
        read_list(l, "reads_counted", most, p->reads_counted, &p->n_caches, error) ||
        read_list(l, "reads_lru", most, p->reads_lru, &p->n_caches, error))
        return -1;
    for (uint32_t i = 0; i < p->n_caches; i++)
        if (!(p->caches[i] > (i ? p->caches[i - 1] : 0))) return fail(l, "caches", "does not rise from 0", error);
    return 0;
}

static int read_lines(FILE *file, sim_profile *profiles, uint32_t *n, const char *path, program_error *error) {
    static char text[LONGEST_LINE];
    line l = {.path = path, .text = text, .number = 1};
    for (*n = 0; fgets(text, sizeof text, file); l.number++) {
        size_t length = strlen(text);
        if (strncmp(text, PLACE_FIGURES_BEGIN, strlen(PLACE_FIGURES_BEGIN)) || length < 3 ||
            strcmp(text + length - 2, "}\n"))
            return program_fail(error,
                                "%.200s, line %u is no report of build/place; give its report.json, or its "
                                "--json file",
                                path, l.number);
        if (*n == SIM_MOST_PROFILES)
            return program_fail(error, "%.200s has more than %d lines; give the report of one placement", path,
                                SIM_MOST_PROFILES);
        if (read_profile(&l, &profiles[*n], error)) return -1;
        const sim_profile *first = &profiles[0], *p = &profiles[*n];
        if (p->devices != first->devices || p->rows != first->rows || p->batch != first->batch ||
            p->touches != first->touches || p->samples != first->samples)
            return program_fail(error, "%.200s: its lines are of different data; give the report of one placement",
                                path);
        ++*n;
    }
    if (ferror(file)) return program_fail(error, "cannot read %.200s: %s", path, strerror(errno));
    return *n ? 0 : program_fail(error, "%.200s is empty; give a report.json or a --json file of build/place", path);
}

int sim_read_profiles(sim_profile *profiles, uint32_t *n, const char *path, program_error *error) {
    FILE *file = fopen(path, "r");
    if (!file)
        return program_fail(error, "cannot read %.200s: %s; build/place writes it (--out, --json)", path,
                            strerror(errno));
    int status = read_lines(file, profiles, n, path, error);
    fclose(file);
    return status;
}

double sim_profile_reads(const sim_profile *p, frugal_cache_policy policy, double cache) {
    const double *reads = policy == FRUGAL_CACHE_LRU ? p->reads_lru : p->reads_counted;
    double size = 0, read = p->reads;
    for (uint32_t i = 0; i < p->n_caches; i++) {
        if (cache <= p->caches[i]) return read + (reads[i] - read) * (cache - size) / (p->caches[i] - size);
        size = p->caches[i], read = reads[i];
    }
    return read;
}
