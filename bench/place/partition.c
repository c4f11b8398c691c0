/* Dividing the samples of a trace, by each method. */
#define FRUGAL_PLACE_IMPLEMENTATION
#include "bench/place/partition.h"

#include "bench/measure.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Samples of a block, against whose counts moves are proposed; passes of refining after packing. */
enum { BLOCK = 65536, PASSES = 3, MOST_THREADS = 64, SEED = 42 };

const char *const place_methods[PLACE_METHODS + 1] = {
    "random", "bicut", "het-gmp-1", "het-gmp-3", "het-gmp", "het-gmp-halves", "two-level", "metis", NULL};
/* Rounds of Algorithm 1; 0: another method. */
static const int het_gmp_rounds[PLACE_METHODS] = {
    [PLACE_HET_GMP_1] = 1, [PLACE_HET_GMP_3] = 3, [PLACE_HET_GMP] = 5, [PLACE_HET_GMP_HALVES] = 5};

static int check(frugal_place_status status, program_error *error) {
    return status == FRUGAL_PLACE_OK ? 0 : program_fail(error, "placing: %s", frugal_place_strerror(status));
}

/* >>two levels */

typedef struct piece { /* of a block: what one thread proposes */
    const frugal_place *place;
    frugal_place_samples samples;
    const uint8_t *parts;
    uint8_t *to;
    frugal_place_status status;
    double seconds; /* processor time */
} piece;

static void *propose(void *argument) {
    piece *p = argument;
    double since = bench_thread_seconds();
    p->status = frugal_place_propose(p->place, &p->samples, p->parts, p->to);
    p->seconds = bench_thread_seconds() - since;
    return NULL;
}

/* Proposes for the samples of a block, in one piece a thread. */
static frugal_place_status propose_block(place_partition *p, uint64_t from, uint64_t n, uint32_t threads, uint8_t *to) {
    piece pieces[MOST_THREADS];
    pthread_t others[MOST_THREADS];
    int started[MOST_THREADS] = {0};
    for (uint32_t i = threads; i-- > 0;) { /* the first piece is this thread's own, when all others have begun */
        uint64_t begin = n * i / threads, end = n * (i + 1) / threads;
        pieces[i] = (piece){.place = p->place,
                            .samples = place_samples(p->trace, from + begin, end - begin),
                            .parts = p->parts + from + begin,
                            .to = to + begin};
        started[i] = i > 0 && !pthread_create(&others[i], NULL, propose, &pieces[i]);
        if (!started[i]) propose(&pieces[i]);
    }
    frugal_place_status status = FRUGAL_PLACE_OK;
    double longest = 0;
    for (uint32_t i = 0; i < threads; i++) {
        if (started[i]) pthread_join(others[i], NULL);
        if (pieces[i].status != FRUGAL_PLACE_OK) status = pieces[i].status;
        if (pieces[i].seconds > longest) longest = pieces[i].seconds;
    }
    p->path_seconds += longest;
    return status;
}

static frugal_place_status refine(place_partition *p, uint32_t threads, uint8_t *to) {
    frugal_place_status status = FRUGAL_PLACE_OK;
    double since = bench_now();
    for (uint64_t from = 0, n; from < p->trace->n && status == FRUGAL_PLACE_OK; from += n) {
        n = p->trace->n - from < BLOCK ? p->trace->n - from : BLOCK;
        frugal_place_samples samples = place_samples(p->trace, from, n);
        status = propose_block(p, from, n, threads, to);
        double moving = bench_thread_seconds();
        if (status == FRUGAL_PLACE_OK) status = frugal_place_move(p->place, &samples, to, p->parts + from, NULL);
        p->path_seconds += bench_thread_seconds() - moving;
    }
    p->refining_seconds += bench_now() - since;
    return status;
}

static int divide_in_two_levels(place_partition *p, uint32_t threads, program_error *error) {
    frugal_place_samples all = place_samples(p->trace, 0, p->trace->n);
    uint8_t to[BLOCK];
    frugal_place_status status = frugal_place_count(p->place, &all);
    if (status == FRUGAL_PLACE_OK) status = frugal_place_stream(p->place, &all, p->parts);
    if (status == FRUGAL_PLACE_OK) status = refine(p, threads, to);
    if (status == FRUGAL_PLACE_OK) status = frugal_place_pack(p->place, p->parts, p->trace->n);
    for (int pass = 0; pass < PASSES && status == FRUGAL_PLACE_OK; pass++) status = refine(p, threads, to);
    return check(status, error);
}

/* >>HET-GMP */

/* The prices of balance: a part with 5% too many samples costs as much as all keys of a sample do elsewhere; a part
 * with twice the mean of rows costs as much as the touches of a mean row. */
static int divide_as_het_gmp(place_partition *p, place_method method, program_error *error) {
    const place_trace *t = p->trace;
    frugal_place_samples all = place_samples(t, 0, t->n);
    double touches = (double)t->n * t->width, rows = (double)t->rows;
    double *weights = malloc((size_t)p->devices * p->devices * sizeof *weights);
    frugal_place_het_gmp g = {.homes = malloc((size_t)t->rows),
                              .alpha = t->width * p->devices / (.05 * (double)t->n),
                              .beta = touches / rows * p->devices / rows};
    if (!g.homes || !weights) {
        free(g.homes), free(weights);
        return program_fail(error, "no memory for the parts of %llu rows", (unsigned long long)t->rows);
    }
    for (uint32_t i = 0, n = p->devices; i < n * n; i++) weights[i] = (i / n < n / 2) == (i % n < n / 2) ? 1 : 10;
    if (method == PLACE_HET_GMP_HALVES) g.weights = weights;
    frugal_place_random(SEED + 1, p->devices, t->rows, 0, t->rows, g.homes);
    frugal_place_status status = frugal_place_load(p->place, &all, p->parts);
    for (int round = 0; round < het_gmp_rounds[method] && status == FRUGAL_PLACE_OK; round++) {
        status = frugal_place_het_gmp_rows(p->place, &g);
        if (status == FRUGAL_PLACE_OK) status = frugal_place_het_gmp_samples(p->place, &g, &all, p->parts, NULL);
    }
    free(g.homes), free(weights);
    return check(status, error);
}

/* >>all methods */

static int open_partition(place_partition *p, program_error *error) {
    const frugal_place_desc desc = {.rows = p->trace->rows, .parts = p->devices};
    size_t bytes = frugal_place_footprint(&desc);
    p->parts = malloc((size_t)p->trace->n + 1);
    p->memory = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    p->place = p->parts && p->memory ? frugal_place_init(p->memory, &desc) : NULL;
    if (p->place) return 0;
    return program_fail(error, "no memory for counts of %llu rows in %u parts", (unsigned long long)p->trace->rows,
                        p->devices);
}

/* The time of METIS is its own. */
static int divide(place_partition *p, place_method method, uint32_t threads, program_error *error) {
    frugal_place_samples all = place_samples(p->trace, 0, p->trace->n);
    frugal_place_random(SEED, p->devices, p->trace->n, 0, p->trace->n, p->parts);
    if (method == PLACE_BICUT) return check(frugal_place_bicut(SEED, p->devices, &all, p->parts), error);
    if (het_gmp_rounds[method] > 0) return divide_as_het_gmp(p, method, error);
    if (method == PLACE_TWO_LEVEL) return divide_in_two_levels(p, threads, error);
    if (method == PLACE_METIS) return place_metis(p->trace, p->devices, p->parts, &p->cpu_seconds, error);
    return 0;
}

int place_divide(place_partition *p, const place_trace *trace, place_method method, uint32_t devices, uint32_t threads,
                 program_error *error) {
    *p = (place_partition){.trace = trace, .devices = devices};
    int status = open_partition(p, error);
    double since = bench_now(), cpu = bench_process_seconds();
    if (!status) status = divide(p, method, threads, error);
    p->seconds = method == PLACE_METIS ? p->cpu_seconds : bench_now() - since;
    if (method != PLACE_METIS) p->cpu_seconds = bench_process_seconds() - cpu;
    frugal_place_samples all = place_samples(trace, 0, trace->n);
    int is_counted = het_gmp_rounds[method] > 0 || method == PLACE_TWO_LEVEL;
    if (!status && !is_counted) status = check(frugal_place_load(p->place, &all, p->parts), error);
    if (status) place_free_partition(p);
    return status;
}

static int read_bytes(const place_partition *p, const char *path, program_error *error) {
    FILE *file = fopen(path, "rb");
    if (!file) return program_fail(error, "cannot read %s: %s", path, strerror(errno));
    size_t n = fread(p->parts, 1, (size_t)p->trace->n + 1, file); /* one more than there should be */
    fclose(file);
    if (n != p->trace->n)
        return program_fail(error, "%s has %s than the %llu bytes of as many samples", path,
                            n < p->trace->n ? "fewer" : "more", (unsigned long long)p->trace->n);
    for (uint64_t s = 0; s < n; s++)
        if (p->parts[s] >= p->devices)
            return program_fail(error, "%s: sample %llu is in part %u; there are %u devices", path,
                                (unsigned long long)s, p->parts[s], p->devices);
    return 0;
}

int place_read_parts(place_partition *p, const place_trace *trace, const char *path, uint32_t devices,
                     program_error *error) {
    frugal_place_samples all = place_samples(trace, 0, trace->n);
    *p = (place_partition){.trace = trace, .devices = devices};
    int status = open_partition(p, error);
    if (!status) status = read_bytes(p, path, error);
    if (!status) status = check(frugal_place_load(p->place, &all, p->parts), error);
    if (status) place_free_partition(p);
    return status;
}

void place_free_partition(place_partition *p) {
    free(p->parts), free(p->memory), free(p->ranked), free(p->gains);
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
