/* bench_gather.h - rows of the host table into the GPU's memory: read in place by a kernel (UVA), or gathered by the
 * processor and copied. The paper's experiment #3, in which the kernel is 3.1 to 3.4 times as fast.
 *
 * Both are timed as the host sees them, from the call until the rows are there. For UVA, the GPU's time alone is
 * measured too, in separate steps. Nothing is cached. With --rows-as the kernel
 * also reads rows of 16 bits, which it writes as floats; the processor gathers none of these.
 */
#ifndef FRUGAL_BENCH_CUDA_GATHER_H
#define FRUGAL_BENCH_CUDA_GATHER_H

#include "bench/cuda/bench_check.h"

typedef struct way {  /* to bring rows to the GPU */
    uint32_t threads; /* of the processor's gather; 0: UVA */
    host_gather *pool;
    bench_samples seconds, gpu_seconds;
} way;

typedef struct gathering { /* one batch size, being measured */
    const table *t;
    uint64_t n, l2_state, step, batches, used; /* used: batches so far, by any way */
    frugal *f;
    float *out;
    std::vector<uint64_t> drawn; /* [batches][n] */
    std::vector<way> ways;
    waits waited;
    checked right;
} gathering;

static const uint64_t *gather_next_batch(gathering *g) {
    return g->drawn.data() + g->used++ % g->batches * g->n;
}

static void print_gather(const gathering *g, uint32_t dropped) {
    double bytes = (double)(g->n * table_row_bytes(g->t)), uva = bench_median(&g->ways[0].seconds);
    for (const way &w : g->ways) {
        double median = bench_median(&w.seconds), gpu = bench_median(&w.gpu_seconds);
        record r;
        record_add_text(&r, "experiment", "gather"), record_add_text(&r, "how", w.threads ? "cpu" : "uva");
        record_add_count(&r, "threads", w.threads), record_add_count(&r, "rows", g->t->rows),
            record_add_count(&r, "dim", g->t->dim), record_add_text(&r, "rows_as", types[g->t->rows_as]);
        record_add_count(&r, "batch", g->n), record_add_count(&r, "batches", g->batches),
            record_add_times(&r, &w.seconds);
        if (w.threads)
            record_add_none(&r, "gpu_us");
        else
            record_add_real(&r, "gpu_us", gpu * 1e6, 2);
        record_add_real(&r, "bytes_per_s", bytes / median, 0);
        record_add_real(&r, "link_share", bytes / (w.threads ? median : gpu) / g->t->speeds.to_device, 4);
        record_add_real(&r, "ratio", median / uva, 3);
        table_add_proof(&r, &g->waited, dropped, g->l2_state), add_checked(&r, &g->right);
        print_record(&r);
    }
}

/* Goes to the next step, with its batch announced and no work left. */
static void prepare_gather(gathering *g, const uint64_t *drawn) {
    table_announce(g->t, g->f, 0, g->step, drawn, g->n);
    table_make_quiet(g->f);
}

static void finish_gather(gathering *g) {
    table_update(g->f, 0, g->step++, NULL);
    LADDER_CHECK(cudaStreamSynchronize(g->t->machine->stream));
}

/* Seconds until the rows of one batch are in the GPU's memory, as the host measures it. */
static double gather_seen(gathering *g, const uint64_t *drawn) {
    double since = 0, seen = 0;
    prepare_gather(g, drawn);
    if (g->l2_state == L2_COLD) held_empty_l2(g->t->hold), LADDER_CHECK(cudaDeviceSynchronize());
    table_count_waits(g->f, &g->waited, [&] {
        since = bench_now();
        table_expect(frugal_lookup(g->f, 0, g->step, g->out));
        LADDER_CHECK(cudaStreamSynchronize(g->t->machine->stream));
        seen = bench_now() - since;
    });
    finish_gather(g);
    return seen;
}

/* The same, as the GPU measures it; below 0: dropped. */
static double gather_gpu(gathering *g, const uint64_t *drawn) {
    double gpu = 0;
    prepare_gather(g, drawn);
    table_count_waits(g->f, &g->waited, [&] {
        gpu = held_seconds(g->t->hold, g->l2_state == L2_COLD,
                           [&] { table_expect(frugal_lookup(g->f, 0, g->step, g->out)); });
    });
    finish_gather(g);
    return gpu;
}

/* Tries each way once, not measured, and checks that it brings the table's rows. */
static void check_gather(gathering *g) {
    const uint64_t *drawn = gather_next_batch(g);
    auto row_of = [drawn](uint64_t position) { return drawn[position]; };
    gather_seen(g, drawn);
    check_rows(g->t, g->out, g->n, row_of, &g->right);
    for (way &w : g->ways) {
        if (!w.pool) continue;
        host_gather_seconds(w.pool, drawn, g->n);
        check_rows(g->t, w.pool->device, g->n, row_of, &g->right);
    }
    gather_gpu(g, gather_next_batch(g));
    ladder_dropped(g->t->machine);
    g->waited = {};
}

/* All ways take turns, a batch each. */
static void gather_one(const table *t, uint64_t n, uint64_t l2_state) {
    uint32_t half = options_workers_of(0);
    setup s = {1, (uint32_t)n, 0, 1, 0, FRUGAL_P2F, FRUGAL_SGD, FRUGAL_ALONE_STAGED};
    uint64_t buffers = threads.n * 4 * n * t->dim;
    uint64_t batches = table_batches_of(n, (repeats + 1) * (threads.n + 2));
    char what[128];
    snprintf(what, sizeof what, "gather, %llu of %llu x %u", (unsigned long long)n, (unsigned long long)t->rows,
             t->dim);
    if (!has_time("%s", what) || !limits_fits(table_instance_bytes(t, &s) + buffers + batches * n * 8,
                                              table_device_bytes(t, &s, 0, 0) + buffers, what))
        return;
    gathering g = {};
    g.t = t, g.n = n, g.l2_state = l2_state, g.batches = batches, g.f = table_open_instance(t, &s);
    g.out = ladder_device<float>(n * t->dim), g.drawn = table_draw_batches(n, batches, t->rows, 0, 17);
    table_attach(g.f, 0, t->machine->stream, 0, FRUGAL_CACHE_LRU, 0);
    g.ways.push_back({0, NULL, {}, {}});
    for (uint32_t i = 0; i < threads.n && t->rows_as == FRUGAL_FP32; i++) {
        uint32_t own = threads.values[i] > 0 ? (uint32_t)threads.values[i] : std::min(half, 8u);
        g.ways.push_back({own, host_gather_open((const float *)t->weights, t->stride, t->dim, n, own), {}, {}});
    }
    check_gather(&g);
    double since = bench_now();
    for (uint32_t turn = 0; table_goes_on(turn, since); turn++) {
        bench_add(&g.ways[0].seconds, gather_seen(&g, gather_next_batch(&g)));
        double gpu = gather_gpu(&g, gather_next_batch(&g));
        if (gpu >= 0) bench_add(&g.ways[0].gpu_seconds, gpu);
        for (uint32_t i = 1; i < g.ways.size(); i++)
            bench_add(&g.ways[i].seconds, host_gather_seconds(g.ways[i].pool, gather_next_batch(&g), n));
    }
    for (way &w : g.ways)
        if (w.pool) host_gather_close(w.pool);
    frugal_close(g.f);
    ladder_free(g.out);
    uint32_t dropped = ladder_dropped(t->machine);
    if (g.ways[0].gpu_seconds.n)
        print_gather(&g, dropped);
    else if (!bench_interrupted())
        skip("%s: %u samples, all dropped: the stream went on before all was enqueued; raise --hold", what, dropped);
}

static void run_gather(const table *t) {
    for (uint32_t i = 0; i < batch.n; i++)
        for (uint32_t l = 0; l < l2.n && !bench_interrupted(); l++)
            gather_one(t, (uint64_t)batch.values[i], (uint64_t)l2.values[l]);
}

#endif
