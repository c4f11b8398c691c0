/* rig.h - a small trainer on one thread beside the sequential reference, for tests whose subject is something else.
 *
 * Whatever a test provokes in between, the looked-up rows and the drained table must be the reference's. Include
 * after cmocka.h. */
#ifndef RIG_H
#define RIG_H

#include "../frugal_counts.h"
#include "../frugal_secondaries.h"
#include "../frugal_seeing.h"
#include "reference_of.h"
#include "support.h"

enum { RIG_DEVICES = 4, RIG_KEYS = 24, RIG_MOST_KEYS = 128 };

typedef struct rig_batch { /* what a device brings to a step */
    uint32_t n, split;     /* keys[split] of table 0, the others of table 1 */
    uint64_t keys[RIG_MOST_KEYS];
    int brings; /* gradients at all */
} rig_batch;

typedef struct rig {
    frugal *f;
    frugal_desc desc;
    reference ref;
    test_counter counter;
    uint64_t step;                   /* the next to train */
    uint64_t announced[RIG_DEVICES]; /* the next to announce */
    uint32_t n[RIG_DEVICES], rows[RIG_DEVICES][RIG_MOST_KEYS];
    int brings[RIG_DEVICES];
    float *looked_up[RIG_DEVICES], *grads[RIG_DEVICES];
    int repeat; /* every step has the keys of step 0 */
    /* Changes the usual batch, which is filled in already, into another; NULL: no change. A function of its arguments
     * alone. */
    void (*change)(const struct rig *r, uint32_t device, uint64_t step, rig_batch *b);
    float lr;
    frugal_cpu_desc cache;
} rig;

static const frugal_optimizer_kind rig_optimizers[] = {FRUGAL_OPTIMIZERS(FRUGAL_OPTIMIZER_KIND)};

/* 60 rows of 5 floats in two tables; 2 devices, L = 3, no workers, Adagrad; all updates take the way through staging.
 * Tests change the settings that they are about. */
static frugal_table rig_tables[2] = {{.rows = 40, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1},
                                     {.rows = 20, .init = FRUGAL_INIT_NORMAL, .mean = 0, .deviation = 0.5f}};

static inline frugal_desc rig_desc(void) {
    return (frugal_desc){.tables = rig_tables,
                         .n_tables = 2,
                         .dim = 5,
                         .devices = 2,
                         .max_keys = RIG_KEYS,
                         .lookahead = 3,
                         .alone = FRUGAL_ALONE_STAGED,
                         .optimizer = {.kind = FRUGAL_ADAGRAD},
                         .seed = 7,
                         .stuck_seconds = 120};
}

static inline uint64_t rig_key(const rig *r, uint32_t device, uint64_t step, uint32_t i, uint64_t rows) {
    uint64_t bits = test_mix3(r->repeat ? 0 : step, device, i);
    return bits % 3 ? bits / 3 % (rows < 6 ? rows : 6) : bits / 3 % rows; /* a hot set, so that devices meet */
}

/* The batch of `device` at `step`: RIG_KEYS keys, half of them in each table, unless the test changes it. */
static inline rig_batch rig_batch_of(const rig *r, uint32_t device, uint64_t step) {
    rig_batch b = {.n = RIG_KEYS, .split = r->desc.n_tables == 1 ? RIG_KEYS : RIG_KEYS / 2, .brings = 1};
    for (uint32_t i = 0; i < b.n; i++) b.keys[i] = rig_key(r, device, step, i, r->desc.tables[i / b.split].rows);
    if (r->change) r->change(r, device, step, &b);
    return b;
}

/* Announces the next batch of `device`. */
static inline frugal_status rig_try_announce(rig *r, uint32_t device) {
    rig_batch b = rig_batch_of(r, device, r->announced[device]);
    frugal_keys segments[2] = {{.table = 0, .keys = b.keys, .n = b.split},
                               {.table = 1, .keys = b.keys + b.split, .n = b.n - b.split}};
    frugal_batch batch = {segments, b.n == b.split ? 1 : 2, 0};
    frugal_status status = frugal_announce(r->f, device, r->announced[device], &batch);
    if (status == FRUGAL_OK) r->announced[device]++;
    return status;
}

static inline void rig_announce(rig *r, uint32_t device) {
    frugal_status status = rig_try_announce(r, device);
    if (status != FRUGAL_OK) fail_msg("announce(device %u): %s", device, frugal_message());
}

/* Looks the rows of `device` up at the rig's step, and compares them. */
static inline void rig_lookup(rig *r, uint32_t device) {
    rig_batch b = rig_batch_of(r, device, r->step);
    uint32_t dim = r->desc.dim;
    frugal_status status = frugal_lookup(r->f, device, r->step, r->looked_up[device]);
    if (status != FRUGAL_OK) fail_msg("lookup(device %u, step %u): %s", device, (unsigned)r->step, frugal_message());
    r->n[device] = b.n, r->brings[device] = b.brings;
    for (uint32_t i = 0; i < b.n; i++) {
        r->rows[device][i] = (uint32_t)((i < b.split ? 0 : r->desc.tables[0].rows) + b.keys[i]);
        if (memcmp(r->looked_up[device] + i * dim, r->ref.weights + (uint64_t)r->rows[device][i] * dim, 4 * dim))
            fail_msg("lookup(device %u, step %u): row %u is not the reference's", device, (unsigned)r->step,
                     r->rows[device][i]);
    }
    for (uint32_t i = 0; i < b.n * dim; i++)
        r->grads[device][i] = 0.01f * r->looked_up[device][i] + (float)test_unit(test_mix3(r->step, device, i)) - 0.5f;
}

static inline frugal_gradients rig_gradients(const rig *r, uint32_t device) {
    return (frugal_gradients){.grads = r->brings[device] ? r->grads[device] : NULL, .lr = r->lr};
}

static inline void rig_update(rig *r, uint32_t device) {
    frugal_gradients g = rig_gradients(r, device);
    if (frugal_update(r->f, device, r->step, &g) != FRUGAL_OK)
        fail_msg("update(device %u): %s", device, frugal_message());
}

/* The reference's part of the step, after all devices have updated; bit d of `without`: device d brought nothing. */
static inline void rig_judge(rig *r, unsigned without) {
    reference_batch batches[RIG_DEVICES];
    for (uint32_t d = 0; d < r->desc.devices; d++)
        batches[d] = (reference_batch){r->rows[d], r->n[d], without >> d & 1 || !r->brings[d] ? NULL : r->grads[d]};
    reference_step(&r->ref, r->step, r->lr, batches);
    r->step++;
}

/* Trains `steps` whole steps, and announces those that are not announced yet. */
static inline void rig_train(rig *r, int steps) {
    while (steps-- > 0) {
        for (uint32_t d = 0; d < r->desc.devices; d++)
            if (r->announced[d] == r->step) rig_announce(r, d);
        for (uint32_t d = 0; d < r->desc.devices; d++) rig_lookup(r, d);
        for (uint32_t d = 0; d < r->desc.devices; d++) rig_update(r, d);
        rig_judge(r, 0);
    }
}

/* Reads table `t` from its first to its last row. */
static inline void read_table(frugal *f, uint32_t t, float *weights, float *state) {
    uint64_t rows = frugal_settings(f)->tables[t].rows, *keys = malloc(8 * rows);
    for (uint64_t i = 0; i < rows; i++) keys[i] = i;
    frugal_keys k = {.table = t, .keys = keys, .n = (uint32_t)rows};
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, weights, state));
    free(keys);
}

/* Reads every row: weights[rows][dim], state[rows][state_floats]. */
static inline void rig_read(rig *r, float *weights, float *state) {
    uint64_t first = 0;
    for (uint32_t t = 0; t < r->desc.n_tables; first += r->desc.tables[t++].rows)
        read_table(r->f, t, weights + first * r->desc.dim, state + first * r->ref.state_floats);
}

/* Weights and state are the reference's, now. */
static inline void rig_compare(rig *r) {
    uint64_t floats = r->ref.rows * r->ref.dim, state_floats = r->ref.rows * r->ref.state_floats;
    float *weights = malloc(4 * floats), *state = malloc(4 * (state_floats + 1));
    rig_read(r, weights, state);
    if (memcmp(weights, r->ref.weights, 4 * floats)) fail_msg("weights differ from the reference");
    if (memcmp(state, r->ref.state, 4 * state_floats)) fail_msg("state differs from the reference");
    free(weights), free(state);
}

static inline frugal *open_or_fail(const frugal_desc *desc) {
    frugal *f;
    if (frugal_open(desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    return f;
}

static inline void rig_attach(rig *r) {
    r->desc = *frugal_settings(r->f);
    for (uint32_t d = 0; d < r->desc.devices; d++)
        if (frugal_cpu_attach(r->f, d, &r->cache) != FRUGAL_OK) fail_msg("attach: %s", frugal_message());
}

/* The reference's table, and the buffers; `r->f` is open. The initial weights are what frugal says. */
static inline void rig_start(rig *r) {
    assert_true(reference_of(&r->ref, r->f));
    r->step = r->desc.first_step;
    for (uint32_t d = 0; d < r->desc.devices; d++) {
        r->announced[d] = r->step;
        r->looked_up[d] = malloc(4 * (size_t)r->desc.max_keys * r->desc.dim);
        r->grads[d] = malloc(4 * (size_t)r->desc.max_keys * r->desc.dim);
    }
    rig_read(r, r->ref.weights, r->ref.state);
}

/* Opens `desc` (with a counting allocator where it names none), attaches the devices, and makes the reference. */
static inline void rig_open(rig *r, const frugal_desc *desc) {
    frugal_desc d = *desc;
    if (!d.allocate) d.allocate = test_allocate, d.release = test_release, d.user = &r->counter;
    if (r->lr == 0) r->lr = 0.125f;
    r->f = open_or_fail(&d);
    rig_attach(r);
    rig_start(r);
}

static inline void rig_free(rig *r) {
    for (uint32_t d = 0; d < RIG_DEVICES; d++) free(r->looked_up[d]), free(r->grads[d]);
    reference_close(&r->ref);
    frugal_close(r->f);
    assert_int_equal(0, (int)r->counter.bytes_out);
    assert_int_equal(0, (int)r->counter.blocks_out);
}

/* Trains on to `steps` more steps, drains, compares and closes: what a test ends with. */
static inline void rig_finish(rig *r, int steps) {
    rig_train(r, steps);
    if (frugal_drain(r->f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
    if (frugal_verify(r->f) != FRUGAL_OK) fail_msg("verify: %s", frugal_message());
    rig_compare(r);
    rig_free(r);
}

#endif /* RIG_H */
