/* Counting the host rows that devices read and write. */
#include "bench/place/reads.h"

#include "bench/program.h"
#include "frugal_counts.h"
#include "frugal_seeing.h"

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
                              .lookahead = LOOKAHEAD,
                              .alone = run->alone};
    frugal *f;
    check(frugal_open(&desc, &f));
    return f;
}

/* The hits that these rows would have had on a device in a pass over the samples. */
static void set_counts(frugal *f, const place_partition *p, const frugal_keys *keys, const double *gain) {
    double steps = (double)p->trace->n / ((double)p->ranked_batch * p->devices);
    uint64_t *counts = malloc((size_t)(keys->n + 1) * sizeof *counts);
    if (!counts) bench_fail("no memory for the counts of %u rows", keys->n);
    check(frugal_get_counts(f, keys, counts));
    for (uint32_t i = 0; i < keys->n; i++) /* one count serves all devices: that of most hits */
        if (gain[i] * steps > (double)counts[i]) counts[i] = (uint64_t)(gain[i] * steps + .5);
    check(frugal_set_counts(f, keys, counts));
    free(counts);
}

/* A row whose set is full is not preloaded, so more rows than the cache has places for are tried, the best first. */
void place_preload(frugal *f, const place_partition *p, uint32_t device, uint64_t cache_rows,
                   frugal_cache_policy policy) {
    uint64_t rows = p->trace->rows, most = 4 * cache_rows;
    uint64_t n = p->n_ranked[device] < most ? p->n_ranked[device] : most;
    if (n == 0) return;
    const frugal_keys keys = {.keys = p->ranked + device * rows, .n = (uint32_t)n};
    if (policy == FRUGAL_CACHE_COUNTED) set_counts(f, p, &keys, p->gains + device * rows);
    check(frugal_preload(f, device, &keys));
}

static void attach(frugal *f, const place_run *run) {
    const frugal_cpu_desc cpu = {.cache_rows = run->cache_rows, .policy = run->policy};
    for (uint32_t d = 0; d < run->partition->devices; d++) {
        check(frugal_cpu_attach(f, d, &cpu));
        place_preload(f, run->partition, d, run->cache_rows, run->policy);
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

/* Rows touched, read and written so far. */
static place_reads count(frugal *f, const place_run *run) {
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    place_reads sum = {.rows = (double)stats.unique_rows};
    for (uint32_t d = 0; d < run->partition->devices; d++) {
        frugal_traffic total;
        check(frugal_cpu_get_traffic(f, d, NULL, &total));
        sum.read += (double)total.rows[0], sum.written += (double)(total.rows[1] + total.rows[2]);
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
    return (place_reads){.rows = (after.rows - before.rows) / steps,
                         .read = (after.read - before.read) / steps,
                         .written = (after.written - before.written) / steps};
}
