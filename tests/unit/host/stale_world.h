/* stale_world.h - a trainer on one thread whose devices have secondaries, beside the reference that counts
 * what each copy lacks. What is looked up and the drained table must be the reference's. Include after cmocka.h. */
#ifndef STALE_WORLD_H
#define STALE_WORLD_H

#include "tests/reference_stale.h"
#include "tests/rig.h"

enum { STALE_ROWS = 42, STALE_KEYS = 14, STALE_DIM = 5 };

typedef struct stale_desc {
    frugal_desc desc;
    frugal_cpu_desc cache;
    uint64_t seed;
    uint32_t bound;
    unsigned share, read_only, none,
        cancels; /* percent: rows listed; batches; steps before which steps are cancelled */
} stale_desc;

typedef struct stale_batch {
    uint64_t keys[STALE_KEYS];
    uint32_t rows[STALE_KEYS], n, split; /* keys[split] of table 0, the others of table 1 */
    int read_only, brings;
} stale_batch;

typedef struct stale_world {
    stale_desc s;
    frugal *f;
    test_counter counter;
    reference ref;
    reference_stale stale;
    uint64_t step, announced[RIG_DEVICES], generation;
    stale_batch batches[RIG_DEVICES];
    float looked_up[RIG_DEVICES][STALE_KEYS * STALE_DIM], grads[RIG_DEVICES][STALE_KEYS * STALE_DIM];
    /* Called for each device once its rows of a step are read. NULL: none. */
    void (*watch)(const struct stale_world *w, uint32_t device);
} stale_world;

static frugal_table stale_tables[2] = {{.rows = 30, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1},
                                       {.rows = 12, .init = FRUGAL_INIT_NORMAL, .deviation = 0.5f}};

static inline stale_desc stale_desc_of(uint32_t devices, uint32_t bound, uint64_t seed) {
    return (stale_desc){.desc = {.tables = stale_tables,
                                 .n_tables = 2,
                                 .dim = STALE_DIM,
                                 .devices = devices,
                                 .max_keys = STALE_KEYS,
                                 .lookahead = 3,
                                 .alone = FRUGAL_ALONE_STAGED,
                                 .optimizer = {.kind = FRUGAL_ADAGRAD},
                                 .seed = 11,
                                 .stuck_seconds = 120},
                        .seed = seed,
                        .bound = bound,
                        .share = 50,
                        .read_only = 15,
                        .none = 10};
}

static inline uint64_t stale_first_row(uint32_t table) {
    return table ? stale_tables[0].rows : 0;
}

static inline int stale_listed(const stale_world *w, uint32_t d, uint64_t row) {
    return test_mix3(w->s.seed, 100 + d, row) % 100 < w->s.share;
}

/* The batch of a device at a step. Most keys are of a hot set, so that devices meet. */
static inline stale_batch stale_batch_of(const stale_world *w, uint32_t d, uint64_t step) {
    test_random r = {.seed = test_mix3(w->s.seed, d, step)};
    stale_batch b = {.n = (uint32_t)test_between(&r, 0, STALE_KEYS)};
    b.split = (uint32_t)test_below(&r, b.n + 1);
    b.read_only = test_chance(&r, w->s.read_only);
    b.brings = !b.read_only && !test_chance(&r, w->s.none);
    for (uint32_t i = 0; i < b.n; i++) {
        uint32_t table = i >= b.split;
        b.keys[i] = test_below(&r, test_chance(&r, 70) ? 5 : stale_tables[table].rows);
        b.rows[i] = (uint32_t)(stale_first_row(table) + b.keys[i]);
    }
    return b;
}

/* Announces the next batch of a device; `wrong`: another one, which is to be cancelled. */
static inline void stale_announce(stale_world *w, uint32_t d, int wrong) {
    stale_batch b = stale_batch_of(w, d, wrong ? ~w->announced[d] - w->generation * 64 : w->announced[d]);
    frugal_keys segments[2] = {{.table = 0, .keys = b.keys, .n = b.split},
                               {.table = 1, .keys = b.keys + b.split, .n = b.n - b.split}};
    frugal_batch batch = {segments, 2, b.read_only};
    if (frugal_announce(w->f, d, w->announced[d], &batch) != FRUGAL_OK) fail_msg("announce: %s", frugal_message());
    w->announced[d]++;
}

/* Announces, in changing order, as far ahead as the lookahead allows, and no further than `to`. */
static inline void stale_announce_ahead(stale_world *w, uint64_t to, int wrong) {
    uint32_t n = w->s.desc.devices;
    uint64_t end = w->step + w->s.desc.lookahead + 1 < to ? w->step + w->s.desc.lookahead + 1 : to;
    for (uint64_t t = w->step; t < end; t++)
        for (uint32_t i = 0; i < n; i++) {
            uint32_t d = (uint32_t)((i + test_mix2(w->s.seed, t)) % n);
            if (w->announced[d] == t) stale_announce(w, d, wrong);
        }
}

/* Announces wrong batches for steps to come, the last step by some devices only, and cancels them. */
static inline void stale_cancel(stale_world *w, uint64_t to) {
    test_random r = {.seed = test_mix3(w->s.seed, 77, w->generation++)};
    uint64_t from = w->step + test_below(&r, w->s.desc.lookahead + 1);
    if (from > to) from = to;
    for (uint32_t d = 0; d < w->s.desc.devices; d++) from = w->announced[d] > from ? w->announced[d] : from;
    stale_announce_ahead(w, from, 0);
    for (uint32_t d = 0; d < w->s.desc.devices; d++)
        if (w->announced[d] < from) return; /* the lookahead ends before */
    stale_announce_ahead(w, from + test_below(&r, 4), 1);
    uint64_t last = w->announced[0]; /* that of all devices, now */
    for (uint32_t d = 0; d < w->s.desc.devices; d++)
        if (test_chance(&r, 50) && last <= w->step + w->s.desc.lookahead) stale_announce(w, d, 1);
    if (frugal_cancel(w->f, from) != FRUGAL_OK) fail_msg("cancel: %s", frugal_message());
    for (uint32_t d = 0; d < w->s.desc.devices; d++) w->announced[d] = w->announced[d] < from ? w->announced[d] : from;
}

static inline void stale_lookup(stale_world *w, uint32_t d) {
    stale_batch *b = &w->batches[d];
    const float *read[STALE_ROWS] = {0};
    *b = stale_batch_of(w, d, w->step);
    if (frugal_lookup(w->f, d, w->step, w->looked_up[d]) != FRUGAL_OK) fail_msg("lookup: %s", frugal_message());
    for (uint32_t i = 0; i < b->n; i++) {
        const float **from = &read[b->rows[i]];
        if (!*from) *from = reference_stale_read(&w->stale, d, b->rows[i]);
        if (memcmp(w->looked_up[d] + i * STALE_DIM, *from, 4 * STALE_DIM))
            fail_msg("seed %llu: lookup(device %u, step %llu): row %u is not the reference's",
                     (unsigned long long)w->s.seed, d, (unsigned long long)w->step, b->rows[i]);
    }
    for (uint32_t i = 0; i < b->n * STALE_DIM; i++)
        w->grads[d][i] = 0.5f * w->looked_up[d][i] + (float)test_unit(test_mix3(w->step, d, i)) - 0.5f;
    if (w->watch) w->watch(w, d);
}

/* Trains up to step `to`. */
static inline void stale_train(stale_world *w, uint64_t to) {
    uint32_t n = w->s.desc.devices;
    for (; w->step < to; w->step++) {
        reference_batch brought[RIG_DEVICES];
        int contributes[RIG_DEVICES];
        if (test_mix3(w->s.seed, 78, w->step) % 100 < w->s.cancels) stale_cancel(w, to);
        stale_announce_ahead(w, to, 0);
        for (uint32_t d = 0; d < n; d++) stale_lookup(w, d);
        for (uint32_t d = 0; d < n; d++) {
            stale_batch *b = &w->batches[d];
            frugal_gradients g = {.grads = b->brings ? w->grads[d] : NULL, .lr = 0.1f};
            if (frugal_update(w->f, d, w->step, &g) != FRUGAL_OK) fail_msg("update: %s", frugal_message());
            brought[d] = (reference_batch){b->rows, b->n, b->brings ? w->grads[d] : NULL};
            contributes[d] = !b->read_only;
        }
        reference_stale_step(&w->stale, w->step, 0.1f, brought, contributes);
    }
}

/* Lists what the description says, for all devices; in the reference, too. */
static inline void stale_list(stale_world *w) {
    uint64_t keys[STALE_ROWS];
    for (uint32_t d = 0; d < w->s.desc.devices; d++)
        for (uint32_t table = 0; table < 2; table++) {
            frugal_keys k = {.table = table, .keys = keys};
            for (uint64_t key = 0; key < stale_tables[table].rows; key++) {
                int listed = stale_listed(w, d, stale_first_row(table) + key);
                if (listed) keys[k.n++] = key;
                reference_stale_list(&w->stale, d, stale_first_row(table) + key, listed, w->s.bound);
            }
            if (frugal_secondaries(w->f, d, &k, w->s.bound) != FRUGAL_OK) fail_msg("secondaries: %s", frugal_message());
        }
}

/* Opens the instance and the reference, and lists rows. */
static inline void stale_open(stale_world *w, const stale_desc *s) {
    memset(w, 0, sizeof *w);
    w->s = *s;
    w->s.desc.allocate = test_allocate, w->s.desc.release = test_release, w->s.desc.user = &w->counter;
    w->f = open_or_fail(&w->s.desc);
    for (uint32_t d = 0; d < s->desc.devices; d++)
        if (frugal_cpu_attach(w->f, d, &s->cache) != FRUGAL_OK) fail_msg("attach: %s", frugal_message());
    w->step = s->desc.first_step;
    for (uint32_t d = 0; d < s->desc.devices; d++) w->announced[d] = w->step;
    assert_true(reference_of(&w->ref, w->f));
    for (uint32_t t = 0; t < 2; t++)
        read_table(w->f, t, w->ref.weights + stale_first_row(t) * STALE_DIM,
                   w->ref.state + stale_first_row(t) * w->ref.state_floats);
    assert_true(reference_stale_open(&w->stale, &w->ref));
    stale_list(w);
}

/* Drains, verifies, and compares the table. */
static inline void stale_compare(stale_world *w) {
    float weights[STALE_ROWS * STALE_DIM], state[STALE_ROWS * STALE_DIM * 2];
    if (frugal_drain(w->f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
    if (frugal_verify(w->f) != FRUGAL_OK) fail_msg("verify: %s", frugal_message());
    for (uint32_t t = 0; t < 2; t++)
        read_table(w->f, t, weights + stale_first_row(t) * STALE_DIM, state + stale_first_row(t) * w->ref.state_floats);
    if (memcmp(weights, w->ref.weights, 4 * STALE_ROWS * STALE_DIM) ||
        memcmp(state, w->ref.state, 4 * STALE_ROWS * w->ref.state_floats))
        fail_msg("seed %llu: the table is not the reference's", (unsigned long long)w->s.seed);
}

static inline uint64_t secondary_hits(stale_world *w) {
    frugal_stats stats;
    frugal_get_stats(w->f, &stats);
    return stats.secondary_hits;
}

static inline void stale_close(stale_world *w) {
    reference_stale_close(&w->stale);
    reference_close(&w->ref);
    frugal_close(w->f);
    assert_int_equal(0, (int)w->counter.bytes_out);
}

#endif /* STALE_WORLD_H */
