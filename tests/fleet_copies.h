/* fleet_copies.h - copies of rows in which a stream of fleet.h keeps updates (FRUGAL_ALONE_KEPT), and the recalls that
 * it is asked for. The stream's thread alone touches the copies, except between steps. */
#ifndef FLEET_COPIES_H
#define FLEET_COPIES_H

#include "rig.h"

enum { COPIES = 128, RECALLS = 256, RECALL_STEPS = 16 };

typedef struct recall_job { /* rows NULL: all */
    uint64_t step;
    const uint32_t *rows;
    uint32_t n;
} recall_job;

typedef struct copies {
    const frugal_store *store;
    uint64_t seed;   /* which rows have a copy, and which of these a lookup drops */
    unsigned evicts; /* one in so many is dropped; 0: none */
    uint8_t has[COPIES], dirty[COPIES];
    float *rows; /* rows[COPIES][dim + state_floats] */
    recall_job jobs[RECALLS];
    uint64_t asked, answered;         /* under the stream's lock; atomic: written by the stream, with release */
    uint64_t asked_for[RECALL_STEPS]; /* `asked`, after the recalls of a step */
    uint64_t kept, dirtied, cleaned;  /* atomic; written by the stream before what releases them */
    uint64_t kept_seen, cleaned_seen; /* of polls */
} copies;

static inline copies *copies_open(const frugal_store *store, uint64_t seed) {
    copies *c = calloc(1, sizeof *c);
    assert_true(store->rows <= COPIES);
    c->store = store, c->seed = seed, c->evicts = (unsigned)(test_mix2(seed, 1) % 4);
    c->rows = calloc((size_t)COPIES * (store->dim + store->state_floats), 4);
    return c;
}

static inline void copies_close(copies *c) {
    if (c) free(c->rows);
    free(c);
}

static inline float *copies_at(const copies *c, uint32_t row) {
    return c->rows + (size_t)row * (c->store->dim + c->store->state_floats);
}

/* Of the host row: weights and state. */
static inline float *copies_weights(const copies *c, uint32_t row) {
    return c->store->weights + row * c->store->weights_stride;
}
static inline float *copies_state(const copies *c, uint32_t row) {
    return c->store->state + row * c->store->state_stride;
}

static inline void copies_add(uint64_t *counter) {
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

static inline void copies_clean(copies *c, uint32_t row) {
    if (!c->dirty[row]) return;
    memcpy(copies_weights(c, row), copies_at(c, row), 4 * c->store->dim);
    if (c->store->state_floats > 0)
        memcpy(copies_state(c, row), copies_at(c, row) + c->store->dim, 4 * c->store->state_floats);
    c->dirty[row] = 0;
    copies_add(&c->cleaned);
}

/* A lookup: drops some copies of rows that the batch has not, and refreshes those of its rows that are not current.
 * Returns 0 if one of these has an update. */
static inline int copies_refresh(copies *c, const frugal_step *step) {
    const frugal_records *r = &step->records;
    uint8_t batch[COPIES] = {0};
    int right = 1;
    for (uint32_t u = 0; u < r->n_unique; u++) batch[r->rows[u]] = 1;
    for (uint32_t row = 0; c->evicts && row < c->store->rows; row++) {
        if (batch[row] || test_mix3(c->seed, step->step, row) % c->evicts) continue;
        copies_clean(c, row);
        c->has[row] = 0;
    }
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u];
        if (test_mix3(c->seed, 2, row) % 4 == 0 || (c->has[row] && frugal_copy_is_current(step->valid, u))) continue;
        right &= !c->dirty[row]; /* who may read the host row finds all updates there */
        memcpy(copies_at(c, row), copies_weights(c, row), 4 * c->store->dim);
        if (c->store->state_floats > 0)
            memcpy(copies_at(c, row) + c->store->dim, copies_state(c, row), 4 * c->store->state_floats);
        c->has[row] = 1;
    }
    return right;
}

/* As update_kept of src/cpu.c. */
static inline void copies_update(copies *c, const frugal_step *step, const float *grads) {
    const frugal_records *r = &step->records;
    const frugal_store *store = c->store;
    uint64_t placed[RIG_MOST_KEYS / 64] = {0};
    frugal_step in_place = *step;
    for (uint32_t u = 0; u < r->n_unique; u++)
        if (frugal_is_alone(step->alone, u) && !c->has[r->rows[u]]) placed[u / 64] |= UINT64_C(1) << u % 64;
    in_place.alone = placed;
    frugal_update_rows(store, &in_place, NULL, grads, 0, r->n_unique);
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u];
        if (!c->has[row]) continue;
        frugal_apply(store, step->hyper, row, copies_at(c, row), copies_at(c, row) + store->dim,
                     frugal_gradient_of(&in_place, store->dim, grads, u));
        if (!frugal_is_alone(step->alone, u)) continue;
        copies_add(&c->kept);
        if (!c->dirty[row]) copies_add(&c->dirtied);
        c->dirty[row] = 1;
    }
}

/* What is to be done of recalls, if anything can be: the step before is `finished`. Under the stream's lock. */
static inline const recall_job *copies_next(const copies *c, uint64_t finished) {
    uint64_t answered = __atomic_load_n(&c->answered, __ATOMIC_RELAXED);
    const recall_job *job = &c->jobs[answered % RECALLS];
    return answered < c->asked && job->step <= finished ? job : NULL;
}

static inline void copies_answer(copies *c, const recall_job *job) {
    uint32_t n = job->rows ? job->n : (uint32_t)c->store->rows;
    for (uint32_t i = 0; i < n; i++) copies_clean(c, job->rows ? job->rows[i] : i);
    __atomic_store_n(&c->answered, c->answered + 1, __ATOMIC_RELEASE);
}

/* Under the stream's lock. */
static inline uint64_t copies_ask(copies *c, const recall_job *job) {
    if (c->asked - __atomic_load_n(&c->answered, __ATOMIC_ACQUIRE) == RECALLS) abort();
    c->jobs[c->asked++ % RECALLS] = *job;
    return c->asked;
}

/* Says what answers have released, and what the caller has acquired by the number of finished steps. */
static inline void copies_count(copies *c, frugal *f, uint32_t device) {
    (void)__atomic_load_n(&c->answered, __ATOMIC_ACQUIRE);
    uint64_t kept = __atomic_load_n(&c->kept, __ATOMIC_RELAXED),
             cleaned = __atomic_load_n(&c->cleaned, __ATOMIC_RELAXED);
    uint64_t dirtied = __atomic_load_n(&c->dirtied, __ATOMIC_RELAXED);
    frugal_count_kept(f, device, kept - c->kept_seen, cleaned - c->cleaned_seen,
                      dirtied > cleaned ? dirtied - cleaned : 0);
    c->kept_seen = kept, c->cleaned_seen = cleaned;
}

/* Between steps, drained: is each current copy its host row? */
static inline int copies_verify(const copies *c, frugal *f, uint32_t device) {
    uint64_t dim = c->store->dim;
    for (uint32_t row = 0; row < c->store->rows; row++) {
        if (!c->has[row] || !frugal_is_current(f, device, row)) continue;
        if (c->dirty[row] || memcmp(copies_at(c, row), copies_weights(c, row), 4 * dim)) return 0;
        if (c->store->state_floats > 0 &&
            memcmp(copies_at(c, row) + dim, copies_state(c, row), 4 * c->store->state_floats))
            return 0;
    }
    return 1;
}

#endif /* FLEET_COPIES_H */
