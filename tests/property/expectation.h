/* expectation.h - what the reference says of a trial: hashes of what is looked up and read, and what is counted. */
#ifndef EXPECTATION_H
#define EXPECTATION_H

#include "tests/reference_stale.h"
#include "trial.h"

enum { BOUNDARY_ROWS = 40 }; /* rows read or written at a boundary, at most */

typedef struct expectation {
    reference ref;
    reference_stale stale;                 /* what devices read; of `ref` */
    uint64_t *lookups;                     /* [steps][devices] hash of the looked-up rows */
    uint64_t whole[TRIAL_BOUNDARIES];      /* hash of all weights at the boundary */
    uint64_t *by_row;                      /* [boundaries][rows]: of each row, where machines have some of them */
    uint64_t read[TRIAL_BOUNDARIES];       /* hash of the rows read there */
    uint64_t keys, unique_rows, flushed;   /* of one lookup a batch */
    uint64_t alone, shared, alone_brought; /* rows of a step: of one device's batch, of several; with gradients */
    uint32_t brought_device, brought_step; /* some batch that brings gradients; for the mutations */
    int brought;
} expectation;

/* Distinct keys of one table to read or write at boundary `b`: keys[BOUNDARY_ROWS]. */
static inline frugal_keys boundary_keys(const trial *t, uint32_t b, uint64_t *keys) {
    test_random r = {.seed = trial_bits(t, 5, 0, b)};
    frugal_keys k = {.table = (uint32_t)test_below(&r, t->n_tables), .keys = keys};
    uint64_t rows = t->table_rows[k.table], stride = 1 + rows / BOUNDARY_ROWS;
    for (uint64_t key = test_below(&r, stride); key < rows && k.n < BOUNDARY_ROWS; key += stride) keys[k.n++] = key;
    return k;
}

/* What boundary `b` writes: weights[n][dim], state[n][state_floats]. */
static inline void boundary_values(const trial *t, uint32_t b, const reference *ref, uint32_t n, float *weights,
                                   float *state) {
    test_random r = {.seed = trial_bits(t, 6, 0, b)};
    for (uint64_t i = 0; i < (uint64_t)n * ref->dim; i++) weights[i] = (float)test_unit(test_next(&r)) - 0.5f;
    for (uint64_t i = 0; i < (uint64_t)n * ref->state_floats; i++) state[i] = (float)test_unit(test_next(&r));
}

static inline void expect_write(const trial *t, uint32_t b, reference_stale *stale) {
    reference *ref = stale->host;
    uint64_t keys[BOUNDARY_ROWS];
    frugal_keys k = boundary_keys(t, b, keys);
    float *weights = malloc(4 * (size_t)k.n * ref->dim), *state = malloc(4 * ((size_t)k.n * ref->state_floats + 1));
    boundary_values(t, b, ref, k.n, weights, state);
    for (uint32_t i = 0; i < k.n; i++) {
        uint64_t row = t->first_row[k.table] + keys[i];
        memcpy(ref->weights + row * ref->dim, weights + (size_t)i * ref->dim, 4 * (size_t)ref->dim);
        trial_round(t->rows_as, ref->weights + row * ref->dim, ref->dim);
        memcpy(ref->state + row * ref->state_floats, state + (size_t)i * ref->state_floats,
               4 * (size_t)ref->state_floats);
        for (uint32_t d = 0; d < t->devices; d++) stale->rows[d][row].fetched = 0;
    }
    free(weights), free(state);
}

/* Lists rows as from boundary `b` on; all copies are dropped. */
static inline void expect_lists(const trial *t, uint32_t b, reference_stale *stale) {
    for (uint32_t d = 0; d < t->devices; d++)
        for (uint32_t table = 0; table < t->n_tables; table++)
            for (uint64_t key = 0; key < t->table_rows[table]; key++) {
                int64_t bound = trial_bound(t, b, d, table, key);
                reference_stale_list(stale, d, t->first_row[table] + key, bound >= 0, (uint32_t)bound);
            }
}

static inline void expect_boundary(const trial *t, uint32_t b, expectation *e) {
    uint64_t keys[BOUNDARY_ROWS], hash = 0;
    const reference *ref = &e->ref;
    int actions = t->boundaries[b].actions;
    if (actions & TRIAL_WRITE) expect_write(t, b, &e->stale);
    if (actions & TRIAL_LIST) expect_lists(t, b, &e->stale);
    if (actions & (TRIAL_RELEASE | TRIAL_REOPEN)) reference_stale_drop_all(&e->stale);
    e->whole[b] = test_hash(0, ref->weights, ref->rows * ref->dim);
    for (uint64_t row = 0; t->machines && row < ref->rows; row++)
        e->by_row[b * ref->rows + row] = test_hash(0, ref->weights + row * ref->dim, ref->dim);
    frugal_keys k = boundary_keys(t, b, keys);
    for (uint32_t i = 0; i < k.n; i++) {
        uint64_t row = t->first_row[k.table] + keys[i];
        hash = test_hash(hash, ref->weights + row * ref->dim, ref->dim);
        hash = test_hash(hash, ref->state + row * ref->state_floats, ref->state_floats);
    }
    e->read[b] = hash;
}

/* Counts the rows of a step by the devices whose batches have them: touched[rows] is zero before and after. */
static inline void count_touched(const trial *t, const trial_batch *batches, uint8_t *touched, expectation *e) {
    for (uint32_t d = 0; d < t->devices; d++)
        for (uint32_t i = 0; i < batches[d].n; i++) touched[batches[d].rows[i]] |= (uint8_t)(1u << d);
    for (uint32_t d = 0; d < t->devices; d++)
        for (uint32_t i = 0; i < batches[d].n; i++) {
            uint8_t *row = &touched[batches[d].rows[i]];
            int alone = (*row & (*row - 1)) == 0;
            if (*row) e->alone += (uint64_t)alone, e->shared += (uint64_t)!alone;
            if (*row) e->alone_brought += (uint64_t)(alone && batches[d].brings);
            *row = 0;
        }
}

/* Counts distinct rows of a batch with the help of a stamp a row. */
static inline uint64_t count_new(const uint32_t *rows, uint32_t n, uint64_t *stamps, uint64_t stamp) {
    uint64_t fresh = 0;
    for (uint32_t i = 0; i < n; i++) {
        fresh += stamps[rows[i]] != stamp;
        stamps[rows[i]] = stamp;
    }
    return fresh;
}

typedef struct simulation {
    trial_batch batches[TRIAL_DEVICES];
    float *rows, *pooled, *bag_grads, *grads[TRIAL_DEVICES];
    const float **read; /* [rows]: where a device reads a row */
    uint64_t *unique_stamps, *flushed_stamps;
    uint8_t *touched; /* [rows] */
} simulation;

_Static_assert(TRIAL_DEVICES <= 8, "a bit a device");

static inline void simulate_step(const trial *t, uint32_t step, expectation *e, simulation *s) {
    reference_batch brought[TRIAL_DEVICES];
    int contributes[TRIAL_DEVICES];
    for (uint32_t d = 0; d < t->devices; d++) {
        trial_batch *b = &s->batches[d];
        trial_make_batch(t, d, step, t->n_boundaries, b);
        contributes[d] = !b->batch.read_only;
        for (uint32_t i = 0; i < b->n; i++) s->read[b->rows[i]] = NULL;
        for (uint32_t i = 0; i < b->n; i++)
            if (!s->read[b->rows[i]]) s->read[b->rows[i]] = reference_stale_read(&e->stale, d, b->rows[i]);
        for (uint32_t i = 0; i < b->n; i++)
            memcpy(s->rows + (size_t)i * t->dim, s->read[b->rows[i]], 4 * (size_t)t->dim);
        if (b->pools) {
            reference_bags bags = {b->bags.n_bags, b->offsets, b->bags.weights, b->bags.pooling == FRUGAL_POOL_MEAN};
            reference_pool(&bags, s->rows, t->dim, s->pooled);
            trial_round(b->as, s->pooled, (size_t)bags.n_bags * t->dim);
            e->lookups[step * t->devices + d] = test_hash(0, s->pooled, (size_t)bags.n_bags * t->dim);
            trial_gradients(t, d, step, b, s->pooled, s->bag_grads);
            reference_spread(&bags, s->bag_grads, t->dim, s->grads[d]);
        } else {
            trial_round(b->as, s->rows, (size_t)b->n * t->dim);
            e->lookups[step * t->devices + d] = test_hash(0, s->rows, (size_t)b->n * t->dim);
            trial_gradients(t, d, step, b, s->rows, s->grads[d]);
        }
        brought[d] = (reference_batch){b->rows, b->n, b->brings ? s->grads[d] : NULL};
        e->keys += b->n;
        e->unique_rows += count_new(b->rows, b->n, s->unique_stamps, (uint64_t)step * t->devices + d + 1);
        if (b->brings) e->flushed += count_new(b->rows, b->n, s->flushed_stamps, step + 1);
        if (b->brings && b->n) e->brought = 1, e->brought_device = d, e->brought_step = step;
    }
    count_touched(t, s->batches, s->touched, e);
    e->ref.scale = trial_scale(t, step);
    reference_stale_step(&e->stale, t->first_step + step, trial_lr(t, step), brought, contributes);
}

static inline void open_batch(const trial *t, trial_batch *b) {
    b->keys = malloc(8 * (size_t)t->max_keys), b->rows = malloc(4 * (size_t)t->max_keys);
    b->keys32 = malloc(4 * (size_t)t->max_keys);
    b->offsets = malloc(4 * ((size_t)t->max_keys + 1)), b->weights = malloc(4 * (size_t)t->max_keys);
}

static inline void close_batch(trial_batch *b) {
    free(b->keys), free(b->keys32), free(b->rows), free(b->offsets), free(b->weights);
}

/* Trains the reference, whose table holds the initial values. */
static inline void simulate(const trial *t, expectation *e) {
    simulation s = {0};
    size_t floats = (size_t)t->max_keys * t->dim;
    e->lookups = calloc((size_t)t->steps * t->devices, sizeof(uint64_t));
    e->by_row = calloc(t->machines ? t->n_boundaries * t->rows : 1, sizeof(uint64_t));
    s.rows = malloc(4 * floats), s.pooled = malloc(4 * floats), s.bag_grads = malloc(4 * floats);
    s.unique_stamps = calloc(t->rows, sizeof(uint64_t)), s.flushed_stamps = calloc(t->rows, sizeof(uint64_t));
    s.touched = calloc(t->rows, 1), s.read = calloc(t->rows, sizeof *s.read);
    if (!reference_stale_open(&e->stale, &e->ref)) abort();
    expect_lists(t, TRIAL_BOUNDARIES, &e->stale);
    for (uint32_t d = 0; d < t->devices; d++) {
        open_batch(t, &s.batches[d]);
        s.grads[d] = malloc(4 * floats);
    }
    uint32_t b = 0;
    for (uint32_t step = 0; step <= t->steps; step++) {
        while (b < t->n_boundaries && t->boundaries[b].at == step) expect_boundary(t, b++, e);
        if (step < t->steps) simulate_step(t, step, e, &s);
    }
    for (uint32_t d = 0; d < t->devices; d++) close_batch(&s.batches[d]), free(s.grads[d]);
    free(s.rows), free(s.pooled), free(s.bag_grads), free(s.unique_stamps), free(s.flushed_stamps), free(s.touched);
    free(s.read);
}

#endif /* EXPECTATION_H */
