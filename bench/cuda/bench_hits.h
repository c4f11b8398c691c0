/* bench_hits.h - lookup and update by the cache's hit rate.
 *
 * A static cache holds the first rows of the table, so the hit rate is exactly the one asked for, and no row is
 * inserted. It is as large as memory allows, up to half of the table, because copies of more than 1 GB exceed both L2
 * and what the GPU's page tables reach at once. One instance serves all numbers of keys and all hit rates.
 */
#ifndef FRUGAL_BENCH_CUDA_HITS_H
#define FRUGAL_BENCH_CUDA_HITS_H

#include "bench/cuda/bench_check.h"

typedef struct hitting { /* one table with a cache, being measured */
    const table *t;
    frugal *f;
    uint64_t step, cached;
    float *out; /* also the gradients */
} hitting;

typedef struct hits_result {
    bench_samples lookup, update; /* seconds of the GPU */
    double hits, unique;          /* hits: of the unique rows; unique: of the keys */
    waits waited;
    checked right;
    uint64_t batches;
    uint32_t dropped;
} hits_result;

/* Draws keys[n]; `share` of them are below `cached`. */
static void draw_hits(uint64_t *drawn, uint64_t n, uint64_t cached, uint64_t all, double share, uint64_t seed) {
    std::vector<uint64_t> in(n), out(n);
    bench_draw_keys(in.data(), n, cached, 0, seed);
    bench_draw_keys(out.data(), n, all - cached, 0, seed + 1);
    for (uint64_t i = 0; i < n; i++)
        drawn[i] = (double)((i * 7919) % n) < share * (double)n ? in[i] : cached + out[i]; /* mixed; 7919 is prime */
}

/* Half of the table, or, if that is less, as many rows as the GPU has memory for beside the keys. The cache gets room
 * for twice as many, so that no set of it is too small. */
static uint64_t hits_rows_to_cache(const table *t, const setup *s) {
    uint64_t most = t->rows / 2, beside = table_device_bytes(t, s, 0, 0), left = limits_gpu_bytes_free();
    uint64_t copy = (table_device_bytes(t, s, 8000, 0) - beside) / 8000;
    return left > beside ? std::min(most, (left - beside) / copy / 2) : 0;
}

/* An instance for s->keys keys, with its cache filled. */
static hitting open_hitting(const table *t, const setup *s, uint64_t cached) {
    hitting h = {t, table_open_instance(t, s), 0, cached, NULL};
    std::vector<uint64_t> preload(cached);
    for (uint64_t i = 0; i < cached; i++) preload[i] = i;
    frugal_keys segment = {0, preload.data(), (uint32_t)cached, NULL};
    table_attach(h.f, 0, t->machine->stream, 2 * cached, FRUGAL_CACHE_STATIC, 0);
    table_expect(frugal_preload(h.f, 0, &segment));
    LADDER_CHECK(cudaProfilerStart()); /* `ncu --profile-from-start off` begins here */
    h.out = ladder_device<float>((uint64_t)s->keys * t->dim);
    return h;
}

typedef struct hit_seconds { /* below 0: dropped */
    double lookup, update;
} hit_seconds;

/* Lookup and update of a batch, timed one by one. */
static hit_seconds hit(hitting *h, const uint64_t *drawn, uint64_t n, int cold, waits *w) {
    hit_seconds took;
    table_announce(h->t, h->f, 0, h->step, drawn, n);
    table_make_quiet(h->f);
    table_count_waits(h->f, w, [&] {
        took.lookup = held_seconds(h->t->hold, cold, [&] { table_expect(frugal_lookup(h->f, 0, h->step, h->out)); });
        took.update = held_seconds(h->t->hold, cold, [&] { table_update(h->f, 0, h->step, h->out); });
    });
    h->step++;
    return took;
}

/* Runs a step whose bits are compared, and one more. */
static void warm_up_hits(hitting *h, const std::vector<uint64_t> &drawn, uint64_t n, hits_result *r) {
    waits uncounted = {};
    table_announce(h->t, h->f, 0, h->step, drawn.data(), n);
    table_make_quiet(h->f);
    whole_step step = {h->t, h->f, h->step, {h->out}, 1.0f};
    check_step(
        &step, [&](uint32_t) { table_expect(frugal_lookup(h->f, 0, h->step, h->out)); },
        [&](uint32_t) { table_update(h->f, 0, h->step, h->out); }, &r->right);
    h->step++;
    hit(h, drawn.data() + n, n, 0, &uncounted);
    ladder_dropped(h->t->machine);
}

static hits_result measure_hits(hitting *h, uint64_t n, double share, uint64_t l2_state) {
    hits_result r = {};
    frugal_stats before, after;
    uint64_t batches = r.batches = table_batches_of(n, repeats + 2);
    std::vector<uint64_t> drawn(n * batches);
    by_all_processors(batches, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; i++) draw_hits(&drawn[i * n], n, h->cached, h->t->rows, share, 100 + 2 * i);
    });
    warm_up_hits(h, drawn, n, &r);
    table_make_quiet(h->f);
    frugal_get_stats(h->f, &before);
    double since = bench_now();
    for (uint32_t turn = 0; table_goes_on(turn, since); turn++) {
        hit_seconds took = hit(h, &drawn[(turn + 2) % batches * n], n, l2_state == L2_COLD, &r.waited);
        if (took.lookup >= 0) bench_add(&r.lookup, took.lookup);
        if (took.update >= 0) bench_add(&r.update, took.update);
    }
    table_make_quiet(h->f);
    frugal_get_stats(h->f, &after);
    uint64_t rows_seen = after.unique_rows - before.unique_rows, keys_seen = after.keys - before.keys;
    r.hits = (double)(after.hits - before.hits) / (double)(rows_seen ? rows_seen : 1);
    r.unique = (double)rows_seen / (double)(keys_seen ? keys_seen : 1);
    r.dropped = ladder_dropped(h->t->machine);
    return r;
}

/* For lookup or update: the bytes that must cross the link, and the bytes that the GPU's memory must move. */
static void print_hits(const hitting *h, uint64_t n, double share, uint64_t l2_state, const hits_result *r,
                       int is_update) {
    const table *t = h->t;
    const bench_samples *s = is_update ? &r->update : &r->lookup;
    double median = bench_median(s), row = t->dim * sizeof(float), unique = r->unique * (double)n;
    double link = (is_update ? unique : unique * (1 - r->hits)) * row;
    double memory = (double)n * row + unique * r->hits * row *
                                          (is_update ? 2 : 1); /* rows out, copies in; gradients in, copies both ways */
    record out;
    record_add_text(&out, "experiment", "hits"), record_add_text(&out, "what", is_update ? "update" : "lookup"),
        record_add_text(&out, "alone", "staged");
    record_add_count(&out, "rows", t->rows), record_add_count(&out, "dim", t->dim), record_add_count(&out, "keys", n);
    record_add_count(&out, "batches", r->batches);
    record_add_plain(&out, "wanted", share), record_add_real(&out, "hits", r->hits, 4),
        record_add_real(&out, "unique", r->unique, 4);
    record_add_count(&out, "cached_rows", h->cached);
    record_add_count(&out, "cached_bytes", h->cached * t->dim * sizeof(float)), record_add_times(&out, s);
    record_add_real(&out, "keys_per_s", (double)n / median, 0),
        record_add_real(&out, "bytes_per_s", (double)n * row / median, 0);
    record_add_real(&out, "link_bytes_per_s", link / median, 0);
    record_add_real(&out, "link_share", link / median / (is_update ? t->speeds.to_host : t->speeds.to_device), 4);
    record_add_real(&out, "memory_share", memory / median / t->speeds.device, 4);
    table_add_proof(&out, &r->waited, r->dropped, l2_state), add_checked(&out, &r->right);
    print_record(&out);
}

static void hits_of(hitting *h, uint64_t n, double share, uint64_t l2_state) {
    if (!has_time("hits, %llu keys of %llu x %u, %g cached", (unsigned long long)n, (unsigned long long)h->t->rows,
                  h->t->dim, share))
        return;
    hits_result r = measure_hits(h, n, share, l2_state);
    if (bench_interrupted()) return;
    if (r.lookup.n == 0 || r.update.n == 0) {
        skip("hits, %llu keys, %g cached: %u samples dropped: the stream went on before all was enqueued; raise --hold",
             (unsigned long long)n, share, r.dropped);
        return;
    }
    print_hits(h, n, share, l2_state, &r, 0);
    print_hits(h, n, share, l2_state, &r, 1);
}

/* The largest number of keys that fits into memory beside a cache of useful size, or 0. */
static uint64_t hits_most_keys(const table *t, const options_list *wanted, setup *s) {
    std::vector<uint64_t> falling(wanted->values, wanted->values + wanted->n);
    std::sort(falling.rbegin(), falling.rend());
    for (uint64_t n : falling) {
        char what[128];
        snprintf(what, sizeof what, "hits, %llu keys of %llu x %u", (unsigned long long)n, (unsigned long long)t->rows,
                 t->dim);
        s->keys = (uint32_t)n;
        if (limits_fits(table_instance_bytes(t, s) + 3 * table_batches_of(n, repeats + 2) * n * 8 + t->rows / 2 * 12,
                        table_device_bytes(t, s, std::min<uint64_t>(t->rows / 2, n), 0), what))
            return n;
    }
    return 0;
}

static void run_hits(const table *t) {
    const options_list *wanted = options_given_or(&keys, &defaults[HITS].keys);
    setup s = {
        1, 0, 0, 1, options_workers_of(workers.values[0]), FRUGAL_P2F, options_optimizer_of(HITS), FRUGAL_ALONE_STAGED};
    if (!has_time("hits, %llu x %u", (unsigned long long)t->rows, t->dim)) return;
    uint64_t most = hits_most_keys(t, wanted, &s);
    if (most == 0) return;
    uint64_t cached = hits_rows_to_cache(t, &s);
    if (cached == 0) {
        skip("hits, %llu x %u: beside %llu keys the GPU has no memory for a cache", (unsigned long long)t->rows, t->dim,
             (unsigned long long)most);
        return;
    }
    hitting h = open_hitting(t, &s, cached);
    for (uint32_t k = 0; k < wanted->n; k++)
        for (uint32_t i = 0; i < hits.n; i++)
            for (uint32_t l = 0; l < l2.n && !bench_interrupted(); l++)
                if (wanted->values[k] <= (double)most)
                    hits_of(&h, (uint64_t)wanted->values[k], hits.values[i], (uint64_t)l2.values[l]);
    frugal_close(h.f);
    ladder_free(h.out);
}

#endif
