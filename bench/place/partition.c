/* Dividing the samples of a trace, by each method. */
#include "bench/place/partition.h"

#include "bench/measure.h"
#include "trainers/common/partition.h"

#include <stdlib.h>
#include <string.h>

#define SLACK .05 /* that of frugal_place.h */
enum { SEED = 42 };

const char *const place_methods[PLACE_METHODS + 1] = {
    "random", "bicut", "het-gmp-1", "het-gmp-3", "het-gmp", "het-gmp-halves", "two-level", "metis", NULL};
/* Rounds of Algorithm 1; 0: another method. */
static const int het_gmp_rounds[PLACE_METHODS] = {
    [PLACE_HET_GMP_1] = 1, [PLACE_HET_GMP_3] = 3, [PLACE_HET_GMP] = 5, [PLACE_HET_GMP_HALVES] = 5};

static int check(frugal_place_status status, program_error *error) {
    return status == FRUGAL_PLACE_OK ? 0 : program_fail(error, "placing: %s", frugal_place_strerror(status));
}

/* >>two levels, HET-GMP, and parts of a file: as build/place and the trainers make and read them */

typedef struct trace_source {
    const place_trace *trace;
    uint64_t at; /* the next sample */
} trace_source;

static int rewind_trace(void *of, program_error *error) {
    (void)error;
    ((trace_source *)of)->at = 0;
    return 0;
}

static int read_trace(void *of, frugal_place_samples *block, program_error *error) {
    trace_source *source = of;
    uint64_t left = source->trace->n - source->at;
    (void)error;
    *block = place_samples(source->trace, source->at, left < PARTITION_BLOCK ? left : PARTITION_BLOCK);
    source->at += block->n;
    return 0;
}

/* A touch costs ten times as much if sample and row are in different halves of the devices. */
static void weigh_halves(double *weights, uint32_t n) {
    for (uint32_t i = 0; i < n * n; i++) weights[i] = (i / n < n / 2) == (i % n < n / 2) ? 1 : 10;
}

/* `path` NULL: two levels, or rounds of Algorithm 1; else the parts of that file. */
static int drive(place_partition *p, const place_division *division, const char *path, program_error *error) {
    static double weights[FRUGAL_PLACE_MAX_PARTS * FRUGAL_PLACE_MAX_PARTS];
    trace_source of = {.trace = p->trace};
    partition_source source = {&of, rewind_trace, read_trace};
    partition_desc desc = {.rows = p->trace->rows,
                           .devices = p->devices,
                           .machines = division->machines,
                           .slack = SLACK,
                           .method = het_gmp_rounds[division->method] ? PARTITION_HET_GMP : PARTITION_TWO_LEVEL,
                           .passes = (uint32_t)het_gmp_rounds[division->method],
                           .threads = division->threads,
                           .seed = SEED};
    if (division->method == PLACE_HET_GMP_HALVES) weigh_halves(weights, p->devices), desc.weights = weights;
    partition made;
    int status =
        path ? partition_load(&made, &desc, &source, path, error) : partition_make(&made, &desc, &source, error);
    if (status) return -1;
    p->parts = made.parts, p->place = made.place;
    p->refining_seconds = made.refining_seconds, p->path_seconds = made.path_seconds;
    return 0;
}

/* >>all methods */

static int open_partition(place_partition *p, program_error *error) {
    const frugal_place_desc desc = {.rows = p->trace->rows, .parts = p->devices};
    size_t bytes = frugal_place_footprint(&desc);
    p->parts = malloc((size_t)p->trace->n + 1);
    p->place = frugal_place_init(bytes ? malloc(bytes) : NULL, &desc);
    if (p->parts && p->place) return 0;
    return program_fail(error, "no memory for counts of %llu rows in %u parts; take fewer rows or devices",
                        (unsigned long long)p->trace->rows, p->devices);
}

/* From random parts. The time of METIS is its own. */
static int divide(place_partition *p, place_method method, program_error *error) {
    frugal_place_samples all = place_samples(p->trace, 0, p->trace->n);
    frugal_place_random(SEED, p->devices, p->trace->n, 0, p->trace->n, p->parts);
    if (method == PLACE_BICUT) return check(frugal_place_bicut(SEED, p->devices, &all, p->parts), error);
    if (method == PLACE_METIS) return place_metis(p->trace, p->devices, p->parts, &p->cpu_seconds, error);
    return 0;
}

int place_divide(place_partition *p, const place_trace *trace, const place_division *division, program_error *error) {
    place_method method = division->method;
    int is_driven = het_gmp_rounds[method] > 0 || method == PLACE_TWO_LEVEL;
    *p = (place_partition){.trace = trace, .devices = division->devices};
    int status = is_driven ? 0 : open_partition(p, error);
    double since = bench_now(), cpu = bench_process_seconds();
    if (!status) status = is_driven ? drive(p, division, NULL, error) : divide(p, method, error);
    p->seconds = method == PLACE_METIS ? p->cpu_seconds : bench_now() - since;
    if (method != PLACE_METIS) p->cpu_seconds = bench_process_seconds() - cpu;
    frugal_place_samples all = place_samples(trace, 0, trace->n);
    if (!status && !is_driven) status = check(frugal_place_load(p->place, &all, p->parts), error);
    if (status) place_free_partition(p);
    return status;
}

int place_read_parts(place_partition *p, const place_trace *trace, const char *path, uint32_t devices,
                     program_error *error) {
    *p = (place_partition){.trace = trace, .devices = devices};
    return drive(p, &(place_division){.method = PLACE_TWO_LEVEL, .threads = 1}, path, error);
}

void place_free_partition(place_partition *p) {
    free(p->parts), free(p->place), free(p->ranked), free(p->gains);
    memset(p, 0, sizeof *p);
}

void place_count_pairs(const place_partition *p, uint64_t *pairs) {
    const place_trace *t = p->trace;
    memset(pairs, 0, (size_t)p->devices * p->devices * sizeof *pairs);
    for (uint64_t s = 0; s < t->n; s++)
        for (uint32_t i = 0; i < t->width; i++) /* each row has a home, because a sample touches it */
            pairs[p->parts[s] * p->devices + frugal_place_home(p->place, t->keys[s * t->width + i])]++;
}

int place_rank(place_partition *p, uint64_t batch, program_error *error) {
    uint64_t rows = p->trace->rows, all = rows * p->devices;
    if (p->ranked && p->ranked_batch == batch) return 0;
    if (!p->ranked) p->ranked = malloc((size_t)all * sizeof *p->ranked);
    if (!p->gains) p->gains = malloc((size_t)all * sizeof *p->gains);
    if (!p->ranked || !p->gains)
        return program_fail(error, "no memory to rank %llu rows for %u devices", (unsigned long long)rows, p->devices);
    for (uint32_t d = 0; d < p->devices; d++)
        p->n_ranked[d] = frugal_place_rank(p->place, d, FRUGAL_PLACE_BY_GAIN, batch, p->ranked + d * rows,
                                           p->gains + d * rows, rows);
    p->ranked_batch = batch;
    return 0;
}

double place_predict(const place_partition *p, uint64_t cache_rows) {
    double reads = frugal_place_get_report(p->place, p->ranked_batch).reads;
    for (uint32_t d = 0; d < p->devices; d++)
        for (uint64_t i = 0; i < cache_rows && i < p->n_ranked[d]; i++) reads -= p->gains[d * p->trace->rows + i];
    return reads;
}
