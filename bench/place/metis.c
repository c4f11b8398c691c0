/* METIS as an oracle: the bigraph is written to a file, and gpmetis divides it.
 *
 * Vertices are the rows, then the samples. A sample weighs 1 and a row 0, so that parts are even in samples. The weight
 * of an edge says how often the sample has the row.
 */
#include "bench/place/partition.h"

#include "bench/measure.h"
#include "bench/program.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

typedef struct bigraph { /* the edges of each row; those of a sample are its keys */
    const place_trace *trace;
    uint64_t edges;    /* different ones */
    uint64_t *first;   /* first[rows + 1] */
    uint32_t *samples; /* samples[]: of row x those from first[x] on, rising */
    uint32_t *times;   /* times[]: that the sample has the row */
} bigraph;

/* How often the sample has its key number `i`; 0: an earlier one is the same. */
static uint32_t times_of(const place_trace *t, uint64_t s, uint32_t i) {
    const uint64_t *keys = t->keys + s * t->width;
    uint32_t times = 0;
    for (uint32_t j = 0; j < t->width; j++) {
        if (keys[j] != keys[i]) continue;
        if (j < i) return 0;
        times++;
    }
    return times;
}

static void free_bigraph(bigraph *g) {
    free(g->first), free(g->samples), free(g->times);
}

static int open_bigraph(bigraph *g, const place_trace *t, program_error *error) {
    uint64_t touches = t->n * t->width;
    *g = (bigraph){.trace = t,
                   .first = calloc((size_t)t->rows + 2, sizeof *g->first),
                   .samples = malloc((size_t)(touches + 1) * sizeof *g->samples),
                   .times = malloc((size_t)(touches + 1) * sizeof *g->times)};
    if (!g->first || !g->samples || !g->times) {
        free_bigraph(g);
        return program_fail(error, "no memory for a graph of %" PRIu64 " edges", touches);
    }
    uint64_t *at = g->first + 1; /* first[x + 1] counts up to where row x + 1 begins */
    for (uint64_t s = 0; s < t->n; s++)
        for (uint32_t i = 0; i < t->width; i++)
            if (times_of(t, s, i)) at[t->keys[s * t->width + i] + 1]++, g->edges++;
    for (uint64_t x = 1; x <= t->rows; x++) at[x] += at[x - 1];
    for (uint64_t s = 0; s < t->n; s++)
        for (uint32_t i = 0; i < t->width; i++) {
            uint32_t times = times_of(t, s, i);
            uint64_t row = t->keys[s * t->width + i];
            if (times) g->samples[at[row]] = (uint32_t)s, g->times[at[row]++] = times;
        }
    return 0;
}

/* Format 011: weights of vertices and of edges. Vertices are counted from 1. */
static int write_bigraph(const bigraph *g, const char *path, program_error *error) {
    const place_trace *t = g->trace;
    FILE *file = fopen(path, "w");
    if (!file)
        return program_fail(error, "cannot write %s: %s; set TMPDIR to a folder with room", path, strerror(errno));
    fprintf(file, "%" PRIu64 " %" PRIu64 " 011\n", t->rows + t->n, g->edges);
    for (uint64_t x = 0; x < t->rows && !bench_interrupted(); x++) {
        fputc('0', file);
        for (uint64_t e = g->first[x]; e < g->first[x + 1]; e++)
            fprintf(file, " %" PRIu64 " %u", t->rows + g->samples[e] + 1, g->times[e]);
        fputc('\n', file);
    }
    for (uint64_t s = 0; s < t->n && !bench_interrupted(); s++) {
        fputc('1', file);
        for (uint32_t i = 0, times; i < t->width; i++)
            if ((times = times_of(t, s, i)) > 0) fprintf(file, " %" PRIu64 " %u", t->keys[s * t->width + i] + 1, times);
        fputc('\n', file);
    }
    int status = program_flush(file, path, error);
    if (fclose(file) && !status)
        status = program_fail(error, "cannot write %s: %s; set TMPDIR to a folder with room", path, strerror(errno));
    if (!status && bench_interrupted()) status = program_fail(error, "ended while a graph was written for gpmetis");
    return status;
}

/* Waits until the process has ended; ends it if a signal has come, because then its result is not wanted. */
static int wait_for(pid_t pid) {
    const struct timespec pause = {.tv_nsec = 5000000};
    int ended = -1;
    for (pid_t got; (got = waitpid(pid, &ended, WNOHANG)) == 0 || (got < 0 && errno == EINTR);) {
        if (bench_interrupted()) kill(pid, SIGKILL);
        nanosleep(&pause, NULL);
    }
    return ended;
}

/* Runs gpmetis; *seconds is the processor time that it took. */
static int run_metis(const char *path, const char *devices, double *seconds, program_error *error) {
    const char *const arguments[] = {"gpmetis", "-ptype=kway", "-ufactor=50", "-seed=1", path, devices, NULL};
    posix_spawn_file_actions_t actions;
    struct rusage before, after;
    pid_t pid;
    getrusage(RUSAGE_CHILDREN, &before);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 2 /* for writing */, 0);
    int failed = posix_spawnp(&pid, arguments[0], &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed == ENOENT) return program_fail(error, "gpmetis is not installed (Debian's package metis)");
    if (failed) return program_fail(error, "cannot run gpmetis: %s; is the one in PATH a program?", strerror(failed));
    int ended = wait_for(pid);
    getrusage(RUSAGE_CHILDREN, &after);
    *seconds =
        (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) +
        (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec) *
            1e-6;
    if (ended) return program_fail(error, "gpmetis failed on %s (wait status %d)", path, ended);
    return 0;
}

/* A part for each vertex, a line each; those of rows are not needed. */
static int read_parts(const place_trace *t, const char *path, uint32_t devices, uint8_t *parts, program_error *error) {
    FILE *file = fopen(path, "r");
    int status = 0;
    if (!file) return program_fail(error, "cannot read %s: %s", path, strerror(errno));
    for (uint64_t v = 0; v < t->rows + t->n && !status; v++) {
        unsigned part;
        if (fscanf(file, "%u", &part) != 1 || part >= devices)
            status = program_fail(error, "%s: line %" PRIu64 " is no part below %u", path, v + 1, devices);
        else if (v >= t->rows)
            parts[v - t->rows] = (uint8_t)part;
    }
    fclose(file);
    return status;
}

int place_metis(const place_trace *trace, uint32_t devices, uint8_t *parts, double *seconds, program_error *error) {
    char folder[3072], path[3100], result[3200], number[16];
    const char *in = getenv("TMPDIR");
    bigraph graph;
    if ((size_t)snprintf(folder, sizeof folder, "%s/bench_place.XXXXXX", in && *in ? in : "/tmp") >= sizeof folder)
        return program_fail(error, "TMPDIR is longer than %zu bytes", sizeof folder);
    if (!mkdtemp(folder)) return program_fail(error, "cannot make a folder %s: %s", folder, strerror(errno));
    snprintf(number, sizeof number, "%u", devices);
    snprintf(path, sizeof path, "%s/graph", folder);
    snprintf(result, sizeof result, "%s.part.%s", path, number);
    int status = open_bigraph(&graph, trace, error);
    if (!status) {
        status = write_bigraph(&graph, path, error);
        free_bigraph(&graph);
    }
    if (!status) status = run_metis(path, number, seconds, error);
    if (!status) status = read_parts(trace, result, devices, parts, error);
    unlink(path), unlink(result), rmdir(folder);
    return status;
}
