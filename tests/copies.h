/* copies.h - copies of rows in which a device of a test keeps updates (FRUGAL_ALONE_KEPT), as a GPU does, and the
 * recalls that it is asked for. The thread that works for the device, its stream, alone touches the copies, except
 * between steps. For the streams of fleet.h, and for explored ones (explore/keeping.h). Include after what includes
 * frugal.h and support.h. */
#ifndef COPIES_H
#define COPIES_H

#ifndef FRUGAL_ATOMICS
#define FRUGAL_ATOMICS
#endif
#include "../frugal_pq.h" /* the atomic operations */

enum { COPIES = 128, MOST_RECALLS = 64 }; /* most rows of a table; recalls that are not answered */

typedef struct recall_job { /* rows NULL: all */
    uint64_t step;
    const uint32_t *rows;
    uint32_t n;
} recall_job;

typedef struct copies { /* without a word: constant, or the stream's */
    const frugal_store *store;
    uint64_t seed;
    unsigned room;   /* rows in four that may have a copy; seed says which */
    unsigned evicts; /* a lookup drops one in so many of those that its batch has not; 0: none */
    uint8_t has[COPIES], dirty[COPIES];
    float *rows;                   /* rows[store->rows][copies_floats]: weights of the store's type, and state */
    recall_job jobs[MOST_RECALLS]; /* handed over by `asked` */
    /* `asked` is raised under the device's lock, `answered` by the stream, both with release. */
    FRUGAL_ATOMIC(uint64_t) asked;
    FRUGAL_ATOMIC(uint64_t) answered;
    uint64_t asked_for[FRUGAL_P2F_SLOTS]; /* `asked`, after the recalls of step t mod 64; under the device's lock */
    /* Raised by the stream before the end of a step, or an answer, which releases them. */
    FRUGAL_ATOMIC(uint64_t) kept;
    FRUGAL_ATOMIC(uint64_t) dirtied;
    FRUGAL_ATOMIC(uint64_t) cleaned;
    uint64_t kept_seen, cleaned_seen; /* of polls */
} copies;

static inline uint64_t copies_floats(const frugal_store *store) {
    return frugal_state_at(store) + store->state_floats;
}

static inline float *copies_at(const copies *c, uint32_t row) {
    return c->rows + row * copies_floats(c->store);
}

static inline float *copies_state_at(const copies *c, uint32_t row) {
    return copies_at(c, row) + frugal_state_at(c->store);
}

/* The host row's weights and state. */
static inline void *copies_weights(const copies *c, uint32_t row) {
    return frugal_row_at(c->store, row);
}
static inline float *copies_state(const copies *c, uint32_t row) {
    return c->store->state + row * c->store->state_stride;
}

/* >>the stream's thread */

static inline void copies_clean(copies *c, uint32_t row) {
    const frugal_store *store = c->store;
    if (!c->dirty[row]) return;
    memcpy(copies_weights(c, row), copies_at(c, row), frugal_row_bytes(store));
    if (store->state_floats > 0)
        memcpy(copies_state(c, row), copies_state_at(c, row), store->state_floats * sizeof(float));
    c->dirty[row] = 0;
    frugal_add_relaxed(&c->cleaned, 1); /* relaxed: the end of the step, or the answer, releases it */
}

/* A lookup: drops some copies of rows that the batch has not, and refreshes those of its rows that are not current.
 * Returns 0 if one of these has an update: who may read the host row finds all updates there. */
static inline int copies_refresh(copies *c, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_store *store = c->store;
    uint8_t batch[COPIES] = {0};
    int right = 1;
    for (uint32_t u = 0; u < r->n_unique; u++) batch[r->rows[u]] = 1;
    for (uint32_t row = 0; c->evicts && row < store->rows; row++) {
        if (batch[row] || test_mix3(c->seed, step->step, row) % c->evicts) continue;
        copies_clean(c, row);
        c->has[row] = 0;
    }
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u];
        if (test_mix3(c->seed, 2, row) % 4 >= c->room) continue;
        if (c->has[row] && frugal_copy_is_current(step->valid, u)) continue;
        right &= !c->dirty[row];
        memcpy(copies_at(c, row), copies_weights(c, row), frugal_row_bytes(store));
        if (store->state_floats > 0)
            memcpy(copies_state_at(c, row), copies_state(c, row), store->state_floats * sizeof(float));
        c->has[row] = 1;
    }
    return right;
}

/* As update_kept of src/devices/cpu.c. */
static inline void copies_update(copies *c, const frugal_step *step, const void *grads) {
    const frugal_records *r = &step->records;
    const frugal_store *store = c->store;
    uint64_t placed[COPIES / 64] = {0};
    frugal_step in_place = *step;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u], group = frugal_group_of(store->groups, store->n_groups, row);
        if (frugal_is_alone(step->alone, u) && (!c->has[row] || store->groups[group].optimizer.frozen))
            placed[u / 64] |= UINT64_C(1) << u % 64;
    }
    in_place.alone = placed;
    frugal_update_rows(store, &in_place, NULL, grads, 0, r->n_unique);
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u];
        if (!c->has[row]) continue;
        frugal_apply(store, step->hyper, row, copies_at(c, row), copies_state_at(c, row),
                     frugal_gradient_of(&in_place, NULL, grads, u));
        if (!frugal_is_alone(step->alone, u) || frugal_is_alone(placed, u)) continue;
        frugal_add_relaxed(&c->kept, 1); /* relaxed, both: the end of the step releases it */
        if (!c->dirty[row]) frugal_add_relaxed(&c->dirtied, 1);
        c->dirty[row] = 1;
    }
}

/* Is there a recall that can be done now? So many steps are `finished`. */
static inline int copies_asked(copies *c, uint64_t finished) {
    uint64_t answered = frugal_load_relaxed(&c->answered); /* relaxed: the stream's own */
    return answered < frugal_load_acquire(&c->asked) && c->jobs[answered % MOST_RECALLS].step <= finished;
}

/* Does all such recalls. Returns 0 if there was none. */
static inline int copies_answer(copies *c, uint64_t finished) {
    int any = 0;
    for (; copies_asked(c, finished); any = 1) {
        uint64_t answered = frugal_load_relaxed(&c->answered);
        const recall_job *job = &c->jobs[answered % MOST_RECALLS];
        uint32_t n = job->rows ? job->n : (uint32_t)c->store->rows;
        for (uint32_t i = 0; i < n; i++) copies_clean(c, job->rows ? job->rows[i] : i);
        frugal_store_release(&c->answered, answered + 1);
    }
    return any;
}

/* >>operations, by other threads */

/* Asks for rows, once the step before is finished. Returns the number of the recall, or 0 if there are too many. Under
 * the device's lock. */
static inline uint64_t copies_ask(copies *c, uint64_t step, const uint32_t *rows, uint32_t n) {
    uint64_t asked = frugal_load_relaxed(&c->asked);
    if (asked - frugal_load_relaxed(&c->answered) == MOST_RECALLS) return 0;
    c->jobs[asked % MOST_RECALLS] = (recall_job){step, rows, n};
    frugal_store_release(&c->asked, asked + 1);
    return asked + 1;
}

/* Is that recall, and are all before it, done? */
static inline int copies_are_answered(copies *c, uint64_t number) {
    return frugal_load_acquire(&c->answered) >= number;
}

/* Says what answers have released, and what the caller has acquired by the number of finished steps. By polls. */
static inline void copies_count(copies *c, frugal *f, uint32_t device) {
    (void)frugal_load_acquire(&c->answered);
    uint64_t kept = frugal_load_relaxed(&c->kept), cleaned = frugal_load_relaxed(&c->cleaned);
    uint64_t dirtied = frugal_load_relaxed(&c->dirtied);
    frugal_count_kept(f, device, kept - c->kept_seen, cleaned - c->cleaned_seen,
                      dirtied > cleaned ? dirtied - cleaned : 0);
    c->kept_seen = kept, c->cleaned_seen = cleaned;
}

/* Between steps, drained: is each current copy its host row? */
static inline int copies_verify(const copies *c, frugal *f, uint32_t device) {
    const frugal_store *store = c->store;
    for (uint32_t row = 0; row < store->rows; row++) {
        if (!c->has[row] || !frugal_is_current(f, device, row)) continue;
        if (c->dirty[row] || memcmp(copies_at(c, row), copies_weights(c, row), frugal_row_bytes(store))) return 0;
        if (store->state_floats > 0 &&
            memcmp(copies_state_at(c, row), copies_state(c, row), store->state_floats * sizeof(float)))
            return 0;
    }
    return 1;
}

#endif /* COPIES_H */
