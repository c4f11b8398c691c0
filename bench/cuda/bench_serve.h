/* bench_serve.h - experiment serve: lookups of a table that is only read (frugal_cuda_serve.h), by the share of keys
 * whose rows are cached: the first ones of the table.
 */
#ifndef FRUGAL_BENCH_CUDA_SERVE_H
#define FRUGAL_BENCH_CUDA_SERVE_H

#include "bench/cuda/bench_hits.h"
#include "frugal_cuda_serve.h"
#include "frugal_save.h"

#include <unistd.h>

typedef struct serving { /* a table, being served */
    const table *t;
    frugal_server *server;
    frugal_cuda_server *gpu;
    uint64_t cached;
    uint64_t *keys; /* on the GPU, as `out` is */
    float *out;
} serving;

/* The table is saved where there is memory, and served from there. */
static frugal_server *serve_table(const table *t) {
    setup s = {1, 1, 0, 1, options_workers_of(workers.values[0]), FRUGAL_P2F, FRUGAL_SGD, FRUGAL_ALONE_STAGED};
    std::string path = (access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm") + std::string("/frugal_bench.") +
                       std::to_string((unsigned long)getpid());
    const char *name = path.c_str();
    frugal *f = table_open_instance(t, &s);
    frugal_server *server = NULL;
    frugal_save_desc save = {};
    frugal_serve_desc desc = {};
    save.path = name, desc.from.saved = &name, desc.from.n_saved = 1;
    table_expect(frugal_save(&f, 1, &save));
    frugal_close(f);
    frugal_status status = frugal_serve_open(&desc, &server);
    unlink(name);
    table_expect(status);
    return server;
}

/* The bits of the first rows that are looked up. */
static void serve_check(const serving *s, const uint64_t *drawn, uint64_t n) {
    std::vector<float> rows(n * s->t->dim);
    frugal_keys segment = {0, s->keys, (uint32_t)n, NULL};
    ladder_put(s->keys, drawn, n);
    table_expect(frugal_cuda_serve_lookup(s->gpu, 0, s->t->machine->stream, &segment, 1, s->out, 0, NULL));
    LADDER_CHECK(cudaStreamSynchronize(s->t->machine->stream));
    LADDER_CHECK(cudaMemcpy(rows.data(), s->out, rows.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&rows[i * s->t->dim], table_row(s->t, drawn[i]), s->t->dim * sizeof(float)))
            bench_fail("serve: row %llu differs from the table's", (unsigned long long)drawn[i]);
}

static void serve_print(const serving *s, uint64_t n, double share, uint64_t l2_state, const bench_samples *took) {
    const table *t = s->t;
    double median = bench_median(took), row = t->dim * sizeof(float);
    record out;
    record_add_text(&out, "experiment", "serve"), record_add_count(&out, "rows", t->rows),
        record_add_count(&out, "dim", t->dim);
    record_add_count(&out, "keys", n), record_add_plain(&out, "hits", share);
    record_add_count(&out, "cached_rows", s->cached);
    record_add_times(&out, took);
    record_add_real(&out, "keys_per_s", (double)n / median, 0);
    record_add_real(&out, "link_share", (1 - share) * (double)n * row / median / t->speeds.to_device, 4);
    record_add_text(&out, "l2", l2_states[l2_state]), record_add_count(&out, "checked_rows", n);
    print_record(&out);
}

static void serve_keys(const serving *s, uint64_t n, double share, uint64_t l2_state) {
    uint64_t batches = table_batches_of(n, repeats);
    if (!has_time("serve, %llu keys of %llu x %u, %g cached", (unsigned long long)n, (unsigned long long)s->t->rows,
                  s->t->dim, share))
        return;
    std::vector<uint64_t> drawn(n * batches);
    by_all_processors(batches, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; i++) draw_hits(&drawn[i * n], n, s->cached, s->t->rows, share, 100 + 2 * i);
    });
    serve_check(s, drawn.data(), n);
    bench_samples took = {};
    frugal_keys segment = {0, s->keys, (uint32_t)n, NULL};
    double since = bench_now();
    for (uint32_t turn = 0; table_goes_on(turn, since); turn++) {
        ladder_put(s->keys, &drawn[turn % batches * n], n);
        double one = held_seconds(s->t->hold, l2_state == L2_COLD, [&] {
            table_expect(frugal_cuda_serve_lookup(s->gpu, 0, s->t->machine->stream, &segment, 1, s->out, 0, NULL));
        });
        if (one >= 0) bench_add(&took, one);
    }
    uint32_t dropped = ladder_dropped(s->t->machine);
    if (took.n == 0)
        skip("serve, %llu keys: %u samples dropped; raise --hold", (unsigned long long)n, dropped);
    else
        serve_print(s, n, share, l2_state, &took);
}

static void run_serve(const table *t) {
    const options_list *wanted = options_given_or(&keys, &defaults[SERVE].keys);
    uint64_t most = (uint64_t)*std::max_element(wanted->values, wanted->values + wanted->n);
    uint64_t row = (t->dim + 3) / 4 * 16, beside = most * (8 + t->dim * sizeof(float)), left = limits_gpu_bytes_free();
    uint64_t words = 4 * t->rows;
    if (!has_time("serve, %llu x %u", (unsigned long long)t->rows, t->dim)) return;
    if (!limits_fits(3 * t->bytes, beside + words + 8 * row, "serve")) return;
    serving s = {t, serve_table(t), NULL, 0, ladder_device<uint64_t>(most), ladder_device<float>(most * t->dim)};
    s.cached = std::min(t->rows / 2, (left - beside - words) / row / 2);
    std::vector<uint32_t> first(s.cached);
    for (uint32_t i = 0; i < s.cached; i++) first[i] = i;
    const int gpu = ladder_gpu(0);
    frugal_cuda_serve_desc desc = {};
    desc.server = s.server, desc.ordinals = &gpu, desc.gpus = 1;
    desc.placement.rows = first.data(), desc.placement.n_rows = desc.placement.cache_rows = s.cached;
    table_expect(frugal_cuda_serve_open(&desc, &s.gpu));
    const options_list by_default = {{.8, .9, .95, .98}, 4}, *shares = hits_given ? &hits : &by_default;
    for (uint32_t k = 0; k < wanted->n; k++)
        for (uint32_t i = 0; i < shares->n; i++)
            for (uint32_t l = 0; l < l2.n && !bench_interrupted(); l++)
                serve_keys(&s, (uint64_t)wanted->values[k], shares->values[i], (uint64_t)l2.values[l]);
    frugal_cuda_serve_close(s.gpu);
    frugal_serve_close(s.server);
    ladder_free(s.keys), ladder_free(s.out);
}

#endif
