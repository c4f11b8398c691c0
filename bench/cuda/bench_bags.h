/* bench_bags.h - pooled lookups, forward and backward, beside plain lookups of the same keys: sums, means and weighted
 * sums of bags of equal size.
 *
 * Keys are skewed as in click logs. The cache evicts the least recently used rows, and is filled by steps that are not
 * timed. A gradient is the pooled row of its bag * 0.001.
 */
#ifndef FRUGAL_BENCH_CUDA_BAGS_H
#define FRUGAL_BENCH_CUDA_BAGS_H

#include "bench/cuda/bench_check.h"

typedef struct bagging { /* one number of keys, being measured */
    const table *t;
    frugal *f;
    uint64_t n, n_bags, step, batches;
    double zipf;
    std::vector<uint64_t> drawn;   /* [batches][n] */
    std::vector<uint32_t> offsets; /* [n_bags + 1] */
    std::vector<float> weights;    /* [n] */
    uint32_t *offsets_on_gpu;
    float *weights_on_gpu, *rows, *grads; /* rows, grads: [n][dim] each, by position, or, at their beginning, by bag */
} bagging;

static const uint64_t *batch_of_bagging(const bagging *b) {
    return b->drawn.data() + b->step % b->batches * b->n;
}

static frugal_bags bags_of(const bagging *b, uint32_t how, int on_gpu) {
    frugal_bags bags = {};
    bags.n_bags = (uint32_t)b->n_bags, bags.offsets = on_gpu ? b->offsets_on_gpu : b->offsets.data();
    bags.pooling = how == BAG_MEAN ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM;
    if (how == BAG_WEIGHTED) bags.weights = on_gpu ? b->weights_on_gpu : b->weights.data();
    return bags;
}

static void look_up_bags(bagging *b, uint32_t how) {
    frugal_bags bags = bags_of(b, how, 1);
    table_expect(how == PLAIN ? frugal_lookup(b->f, 0, b->step, b->rows)
                              : frugal_lookup_bags(b->f, 0, b->step, &bags, b->rows));
}

static uint64_t rows_of_bagging(const bagging *b, uint32_t how) {
    return how == PLAIN ? b->n : b->n_bags;
}

static bagging open_bagging(const table *t, const setup *s, double skew, uint64_t batches) {
    uint64_t n = s->keys, size = bag, n_bags = (n + size - 1) / size, seed = 5;
    bagging b = {};
    b.t = t, b.f = table_open_instance(t, s), b.n = n, b.n_bags = n_bags, b.batches = batches, b.zipf = skew;
    b.offsets.resize(n_bags + 1), b.weights.resize(n);
    table_attach(b.f, 0, t->machine->stream, (uint64_t)(cache * (double)t->rows), FRUGAL_CACHE_LRU, 0);
    b.drawn = table_draw_batches(n, b.batches, t->rows, skew, 42);
    for (uint64_t i = 0; i <= n_bags; i++) b.offsets[i] = (uint32_t)std::min(n, i * size);
    for (float &weight : b.weights) weight = ladder_value(&seed);
    b.offsets_on_gpu = ladder_copy_of(b.offsets), b.weights_on_gpu = ladder_copy_of(b.weights);
    b.rows = ladder_device<float>(n * t->dim), b.grads = ladder_device<float>(n * t->dim);
    return b;
}

static void close_bagging(bagging *b) {
    frugal_close(b->f);
    ladder_free(b->offsets_on_gpu), ladder_free(b->weights_on_gpu), ladder_free(b->rows), ladder_free(b->grads);
}

/* >>checks */

/* Compares some of the pooled rows with what the host computes from the table. */
static void check_bags(const bagging *b, uint32_t how, const frugal_records *r, checked *c) {
    const table *t = b->t;
    std::vector<float> some = check_take_samples(t->machine, b->rows, t->dim, b->n_bags), expected(t->dim), rows_of_bag;
    frugal_bags all = bags_of(b, how, 0);
    uint32_t samples = check_samples_of(b->n_bags, CHECKED_ROWS);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t which = check_sampled(i, b->n_bags, samples);
        uint32_t begin = all.offsets[which], n = all.offsets[which + 1] - begin, around[2] = {0, n};
        std::vector<uint32_t> each(n);
        rows_of_bag.resize((uint64_t)n * t->dim);
        for (uint32_t k = 0; k < n; k++) {
            each[k] = k;
            memcpy(&rows_of_bag[(uint64_t)k * t->dim], table_row(t, r->rows[r->record_of[begin + k]]),
                   t->dim * sizeof(float));
        }
        frugal_records alone = {rows_of_bag.data(), t->dim, n, n, each.data(), each.data(), NULL, NULL};
        frugal_bags one = {1, around, all.weights ? all.weights + begin : NULL, all.pooling, 0};
        frugal_pool(&alone, &one, t->dim, expected.data(), t->dim, FRUGAL_FP32);
        if (memcmp(&some[i * t->dim], expected.data(), t->dim * sizeof(float)) != 0)
            bench_fail(
                "bag %llu of %llu (%s) must be what the host pools, bit by bit, and is not: the kernel is wrong; "
                "nothing is timed",
                (unsigned long long)which, (unsigned long long)b->n_bags, poolings[how]);
    }
    c->rows += samples;
}

/* Runs a whole step, and compares the bits of bags, and of the rows that their gradients change. */
static void check_bagging(bagging *b, uint32_t how, checked *c) {
    const table *t = b->t;
    uint64_t n = rows_of_bagging(b, how), size = bag;
    frugal_records records;
    table_announce(t, b->f, 0, b->step, batch_of_bagging(b), b->n);
    table_make_quiet(b->f);
    look_up_bags(b, how);
    table_compute(t->machine, t->machine->stream, b->grads, b->rows, n * t->dim);
    LADDER_CHECK(cudaDeviceSynchronize());
    table_expect(frugal_get_records(b->f, 0, b->step, &records));
    if (how == PLAIN)
        check_rows(
            t, b->rows, n, [&](uint64_t position) { return records.rows[records.record_of[position]]; }, c);
    else
        check_bags(b, how, &records, c);
    std::vector<float> grads = ladder_get(b->grads, n * t->dim);
    std::vector<foretold> all =
        check_foretell(t, b->f, b->step, &records, 1, [&](uint32_t, uint32_t position, float *out) {
            uint64_t which = how == PLAIN ? position : position / size;
            for (uint32_t e = 0; e < t->dim; e++) {
                float g = grads[which * t->dim + e];
                out[e] = how == BAG_WEIGHTED ? frugal_mul(g, b->weights[position])
                         : how == BAG_MEAN   ? frugal_div(g, (float)(b->offsets[which + 1] - b->offsets[which]))
                                             : g;
            }
        });
    table_update(b->f, 0, b->step++, b->grads, how != PLAIN);
    table_make_quiet(b->f);
    check_foretold(t, b->f, all, c);
}

/* >>timing */

typedef struct bags_result {
    bench_samples lookup, update;
    frugal_stats before, after;
    waits waited;
    checked right;
    uint32_t dropped;
} bags_result;

static void bag_once(bagging *b, uint32_t how, int cold, bags_result *r) {
    uint64_t n = rows_of_bagging(b, how) * b->t->dim;
    double lookup_s = 0, update_s = 0;
    table_announce(b->t, b->f, 0, b->step, batch_of_bagging(b), b->n);
    table_make_quiet(b->f);
    table_count_waits(b->f, &r->waited, [&] {
        lookup_s = held_seconds(b->t->hold, cold, [&] { look_up_bags(b, how); });
        table_compute(b->t->machine, b->t->machine->stream, b->grads, b->rows, n);
        LADDER_CHECK(cudaStreamSynchronize(b->t->machine->stream));
        update_s = held_seconds(b->t->hold, cold, [&] { table_update(b->f, 0, b->step, b->grads, how != PLAIN); });
    });
    b->step++;
    if (lookup_s >= 0) bench_add(&r->lookup, lookup_s);
    if (update_s >= 0) bench_add(&r->update, update_s);
}

static void print_bags(const bagging *b, uint32_t how, uint64_t l2_state, const bags_result *r) {
    uint64_t unique = r->after.unique_rows - r->before.unique_rows;
    for (int is_update = 0; is_update < 2; is_update++) {
        const bench_samples *s = is_update ? &r->update : &r->lookup;
        record out;
        record_add_text(&out, "experiment", "bags"), record_add_text(&out, "what", is_update ? "update" : "lookup"),
            record_add_text(&out, "alone", "staged");
        record_add_text(&out, "pooling", poolings[how]), record_add_count(&out, "rows", b->t->rows),
            record_add_count(&out, "dim", b->t->dim);
        record_add_count(&out, "keys", b->n), record_add_count(&out, "batches", b->batches),
            record_add_count(&out, "bag", how == PLAIN ? 1 : bag);
        record_add_plain(&out, "zipf", b->zipf);
        record_add_real(&out, "hits", (double)(r->after.hits - r->before.hits) / (double)(unique ? unique : 1), 4);
        record_add_real(&out, "unique", (double)unique / (double)(r->after.keys - r->before.keys), 4),
            record_add_times(&out, s);
        record_add_real(&out, "keys_per_s", (double)b->n / bench_median(s), 0);
        table_add_proof(&out, &r->waited, r->dropped, l2_state), add_checked(&out, &r->right);
        print_record(&out);
    }
}

static void bags_one(bagging *b, uint32_t how, uint64_t l2_state) {
    bags_result r = {};
    if (!has_time("bags, %s, %llu keys", poolings[how], (unsigned long long)b->n)) return;
    check_bagging(b, how, &r.right);
    table_make_quiet(b->f);
    frugal_get_stats(b->f, &r.before);
    double since = bench_now();
    for (uint32_t turn = 0; table_goes_on(turn, since); turn++) bag_once(b, how, l2_state == L2_COLD, &r);
    table_make_quiet(b->f);
    frugal_get_stats(b->f, &r.after);
    r.dropped = ladder_dropped(b->t->machine);
    if (r.lookup.n && r.update.n)
        print_bags(b, how, l2_state, &r);
    else if (!bench_interrupted())
        skip("bags, %s, %llu keys: %u samples dropped: the stream went on before all was enqueued; raise --hold",
             poolings[how], (unsigned long long)b->n, r.dropped);
}

static void bags_by(const table *t, uint64_t n, double skew) {
    setup s = {1,
               (uint32_t)n,
               0,
               1,
               options_workers_of(workers.values[0]),
               FRUGAL_P2F,
               options_optimizer_of(BAGS),
               FRUGAL_ALONE_STAGED};
    char what[128];
    snprintf(what, sizeof what, "bags, %llu keys of %llu x %u", (unsigned long long)n, (unsigned long long)t->rows,
             t->dim);
    uint64_t cached = (uint64_t)(cache * (double)t->rows), filling = 2 * cached / n + 1; /* steps */
    uint64_t batches = table_batches_of(n, filling + (repeats + 1) * pooling.n * l2.n);
    if (!has_time("%s", what) || !limits_fits(table_instance_bytes(t, &s) + batches * n * 8 + 4 * n * t->dim,
                                              table_device_bytes(t, &s, cached, 1) + 8 * n, what))
        return;
    bagging b = open_bagging(t, &s, skew, batches);
    bags_result unmeasured = {};
    for (uint64_t i = 0; i < filling; i++) bag_once(&b, PLAIN, 0, &unmeasured);
    ladder_dropped(t->machine);
    for (uint32_t l = 0; l < l2.n; l++)
        for (uint32_t p = 0; p < pooling.n && !bench_interrupted(); p++)
            bags_one(&b, (uint32_t)pooling.values[p], (uint64_t)l2.values[l]);
    close_bagging(&b);
}

static void run_bags(const table *t) {
    const options_list *wanted = options_given_or(&keys, &defaults[BAGS].keys);
    for (uint32_t k = 0; k < wanted->n; k++)
        for (uint32_t z = 0; z < zipf.n && !bench_interrupted(); z++)
            bags_by(t, (uint64_t)wanted->values[k], zipf.values[z]);
}

#endif
