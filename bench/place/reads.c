/* Counting the host rows that devices read. */
#include "bench/place/reads.h"

#include "bench/program.h"

#include <stdlib.h>

enum { LOOKAHEAD = 4 };

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

/* Rows of one float: their values do not matter. */
static frugal *open_instance(const place_run *run) {
    const place_trace *trace = run->partition->trace;
    const frugal_table table = {.rows = trace->rows};
    const frugal_desc desc = {.tables = &table,
                              .n_tables = 1,
                              .dim = 1,
                              .devices = run->partition->devices,
                              .max_keys = run->batch * trace->width,
                              .lookahead = LOOKAHEAD};
    frugal *f;
    check(frugal_open(&desc, &f));
    return f;
}

/* A cache that counts begins with the hits that these rows would have had on a device in a pass over the samples. */
static void set_counts(frugal *f, const place_run *run, const frugal_keys *keys, const double *gain) {
    const place_trace *trace = run->partition->trace;
    double steps = (double)trace->n / ((double)run->batch * run->partition->devices);
    uint64_t *counts = malloc((size_t)(keys->n + 1) * sizeof *counts);
    if (!counts) bench_fail("no memory for the counts of %u rows", keys->n);
    check(frugal_get_counts(f, keys, counts));
    for (uint32_t i = 0; i < keys->n; i++) /* one count serves all devices: that of most hits */
        if (gain[i] * steps > (double)counts[i]) counts[i] = (uint64_t)(gain[i] * steps + .5);
    check(frugal_set_counts(f, keys, counts));
    free(counts);
}

/* A row whose set is full is not preloaded, so more rows than the cache has places for are tried, the best first. */
static void attach(frugal *f, const place_run *run) {
    const frugal_cpu_desc cpu = {.cache_rows = run->cache_rows, .policy = run->policy};
    const place_partition *p = run->partition;
    uint64_t rows = p->trace->rows, most = 4 * run->cache_rows;
    for (uint32_t d = 0; d < p->devices; d++) {
        uint64_t n = p->n_ranked[d] < most ? p->n_ranked[d] : most;
        const frugal_keys keys = {.keys = p->ranked + d * rows, .n = (uint32_t)n};
        check(frugal_cpu_attach(f, d, &cpu));
        if (n == 0) continue;
        if (run->policy == FRUGAL_CACHE_COUNTED) set_counts(f, run, &keys, p->gains + d * rows);
        check(frugal_preload(f, d, &keys));
    }
}

static void announce(frugal *f, const place_run *run, uint64_t step, uint64_t *keys) {
    uint32_t width = run->partition->trace->width;
    for (uint32_t d = 0; d < run->partition->devices; d++) {
        const frugal_keys segment = {.keys = keys, .n = run->batch * width};
        place_batch(run->deal, d, step, run->batch, keys);
        check(frugal_announce(f, d, step, &(frugal_batch){.segments = &segment, .n_segments = 1}));
    }
}

static void train(frugal *f, const place_run *run, uint64_t step) {
    const frugal_gradients records = {.records = 1, .lr = 0.01f};
    for (uint32_t d = 0; d < run->partition->devices; d++) check(frugal_lookup(f, d, step, NULL));
    for (uint32_t d = 0; d < run->partition->devices; d++) check(frugal_update(f, d, step, &records));
}

/* Rows read and written so far; one is written for each unique row. */
static place_reads count(const frugal *f, const place_run *run) {
    place_reads sum = {.rows = 0};
    for (uint32_t d = 0; d < run->partition->devices; d++) {
        frugal_traffic total;
        check(frugal_cpu_get_traffic(f, d, NULL, &total));
        sum.read += (double)total.rows[0], sum.rows += (double)total.rows[1];
    }
    return sum;
}

place_reads place_count_reads(const place_run *run) {
    uint64_t announced = 0, end = run->warm_up + run->steps, step;
    uint64_t *keys = malloc((size_t)run->batch * run->partition->trace->width * sizeof *keys);
    if (!keys) bench_fail("no memory for a batch of %u samples", run->batch);
    frugal *f = open_instance(run);
    attach(f, run);
    place_reads before = {.rows = 0}, after;
    for (step = 0; step < end && !bench_interrupted(); step++) {
        for (; announced < end && announced <= step + LOOKAHEAD; announced++) announce(f, run, announced, keys);
        if (step == run->warm_up) before = count(f, run);
        train(f, run, step);
    }
    after = count(f, run);
    frugal_close(f);
    free(keys);
    double steps = step > run->warm_up ? (double)(step - run->warm_up) : 1;
    return (place_reads){.rows = (after.rows - before.rows) / steps, .read = (after.read - before.read) / steps};
}
