/* keeping.h - streams that keep updates in copies (tests/copies.h), and do recalls once they have done the step before,
 * also while they wait at a gate. Part of runtime_world.h. */
#ifndef EXPLORE_KEEPING_H
#define EXPLORE_KEEPING_H

#include "tests/copies.h"

typedef struct keeping {
    copies c;
    int refused; /* under the device's lock */
} keeping;

static keeping *make_keeping(const frugal_store *store, uint64_t seed, uint32_t d) {
    uint64_t bits = test_mix3(seed, d, 23);
    keeping *k = explore_alloc(sizeof *k, 64);
    if (store->rows > COPIES) explore_fail("%d copies are too few", COPIES);
    k->c.store = store, k->c.seed = bits;
    k->c.room = bits % 3 ? 4 : 2;
    k->c.evicts = bits / 1024 % 4 == 0;
    k->c.rows = explore_alloc(store->rows * copies_floats(store) * sizeof(float), 64);
    return k;
}

/* NULL: there is none. After copies_refresh each that a batch has is current. */
static const float *copy_of(const stream *s, uint32_t row) {
    return s->keeping && s->keeping->c.has[row] ? copies_at(&s->keeping->c, row) : NULL;
}

/* Does what it is asked for, as far as the step before is done. Returns 0 if there was nothing. */
static int do_recalls(const stream *s) {
    if (!s->keeping || frugal_load_relaxed(&s->broken)) return 0;
    return copies_answer(&s->keeping->c, frugal_load_relaxed(&s->finished));
}

/* >>operations, by other threads */

static uint64_t ask(keeping *k, uint64_t step, const uint32_t *rows, uint32_t n) {
    uint64_t number = copies_ask(&k->c, step, rows, n);
    EXPLORE_EXPECT(number > 0);
    return number;
}

static void finish_recalls(const stream *s) {
    keeping *k = s->keeping;
    while (k && !copies_are_answered(&k->c, frugal_load_acquire(&k->c.asked)) && !frugal_load_relaxed(&s->broken))
        explore_wait();
}

static frugal_status stream_write_back(void *device, const uint32_t *rows, uint32_t n) {
    stream *s = device;
    ask(s->keeping, 0, rows, n);
    finish_recalls(s);
    return frugal_load_relaxed(&s->broken) ? frugal_fail(FRUGAL_ERR_CUDA, "broken") : FRUGAL_OK;
}

static frugal_status stream_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    stream *s = device;
    keeping *k = s->keeping;
    EXPLORE_EXPECT(!done || frugal_load_relaxed(&s->finished) >= LEAST(step, (uint64_t)w.ends[s->device]));
    if (frugal_load_relaxed(&s->broken)) return frugal_fail(FRUGAL_ERR_CUDA, "broken");
    if (s->grumbles && !k->refused && explore_choose(2)) {
        k->refused = 1;
        return frugal_fail(FRUGAL_ERR_CUDA, "refused");
    }
    if (!done && explore_choose(2)) return FRUGAL_AGAIN;
    k->c.asked_for[step % FRUGAL_P2F_SLOTS] = ask(k, done ? 0 : step, rows, n);
    return FRUGAL_OK;
}

static int stream_recalled(void *device, uint64_t step) {
    copies *c = &((stream *)device)->keeping->c;
    return copies_are_answered(c, c->asked_for[step % FRUGAL_P2F_SLOTS]);
}

#endif /* EXPLORE_KEEPING_H */
