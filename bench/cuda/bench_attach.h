/* bench_attach.h - experiment attach: how long attaching takes, by the size of the table, which the first device pins
 * for all. Each table is made anew, in memory that nobody has registered, so that pinning is part of the time; it is
 * filled before, so that its pages are there. */
#ifndef FRUGAL_BENCH_CUDA_ATTACH_H
#define FRUGAL_BENCH_CUDA_ATTACH_H

#include "bench/cuda/bench_steps.h"

static void attach_once(table *t, uint32_t n_devices) {
    uint32_t n_keys = keys.n ? (uint32_t)keys.values[0] : 26624;
    setup s = {n_devices,  n_keys,     (uint32_t)lookahead, 0, options_workers_of(workers.values[0]),
               FRUGAL_P2F, FRUGAL_SGD, training_alone_of(0)};
    double since = bench_now();
    frugal *f = table_open_instance(t, &s);
    double opened = bench_now() - since;
    std::vector<cudaStream_t> streams(n_devices);
    for (uint32_t d = 0; d < n_devices; d++) {
        ladder_on on(ladder_gpu(d));
        LADDER_CHECK(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
        since = bench_now();
        table_attach(f, d, streams[d], (uint64_t)(cache * (double)t->rows), FRUGAL_CACHE_LRU, 0);
        record r;
        record_add_text(&r, "experiment", "attach"), record_add_count(&r, "rows", t->rows),
            record_add_count(&r, "dim", t->dim);
        record_add_real(&r, "gb", (double)t->bytes * 1e-9, 3), record_add_count(&r, "device", d);
        record_add_count(&r, "gpu", (uint64_t)ladder_gpu(d)), record_add_real(&r, "open_s", opened, 4);
        record_add_real(&r, "attach_s", bench_now() - since, 4);
        print_record(&r);
    }
    since = bench_now();
    frugal_close(f);
    record r;
    record_add_text(&r, "experiment", "attach"), record_add_count(&r, "rows", t->rows),
        record_add_count(&r, "dim", t->dim);
    record_add_real(&r, "gb", (double)t->bytes * 1e-9, 3), record_add_real(&r, "close_s", bench_now() - since, 4);
    print_record(&r);
    for (cudaStream_t stream : streams) LADDER_CHECK(cudaStreamDestroy(stream));
}

static void run_attach(ladder_machine *m, held *h, const ladder_speeds *speeds) {
    const options_list *by_rows = options_given_or(&rows, &defaults[ATTACH].rows),
                       *by_dim = options_given_or(&dim, &defaults[ATTACH].dim),
                       *by_devices = options_given_or(&devices, &defaults[ATTACH].devices);
    for (uint32_t i = 0; i < by_rows->n * by_dim->n && !bench_interrupted(); i++) {
        table t = table_of(m, h, speeds, (uint64_t)by_rows->values[i / by_dim->n],
                           (uint32_t)by_dim->values[i % by_dim->n], 1);
        char what[96];
        snprintf(what, sizeof what, "attach, a table of %llu x %u", (unsigned long long)t.rows, t.dim);
        if (!has_time("%s", what) || !limits_fits(t.bytes + 9 * t.rows, (uint64_t)(cache * (double)t.bytes), what))
            continue;
        if (!(t.weights = table_memory(t.bytes))) {
            skip("%s: the system does not give it", what);
            continue;
        }
        table_fill(t.weights, t.rows_as, t.rows * t.stride);
        for (uint32_t d = 0; d < by_devices->n; d++) attach_once(&t, (uint32_t)by_devices->values[d]);
        free(t.weights);
    }
}

#endif
