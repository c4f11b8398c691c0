/* alone.h - rigs whose rows are updated by the one device that touches them: settings, statistics, and batches of a few
 * keys. Include after cmocka.h. */
#ifndef ALONE_H
#define ALONE_H

#include "tests/unit/host/saved.h"

static inline frugal_desc alone_desc(frugal_alone alone) {
    frugal_desc d = rig_desc();
    d.alone = alone;
    return d;
}

static inline frugal_stats stats_of(const rig *r) {
    frugal_stats s;
    frugal_get_stats(r->f, &s);
    return s;
}

typedef struct small_batch { /* of one device, with keys of table 0 */
    uint64_t keys[4];
    uint32_t n;
    int read_only;
} small_batch;

static inline void announce_small(rig *r, uint32_t device, uint64_t step, const small_batch *b) {
    frugal_keys keys = {.table = 0, .keys = b->keys, .n = b->n};
    frugal_batch batch = {&keys, 1, b->read_only};
    assert_int_equal(FRUGAL_OK, frugal_announce(r->f, device, step, &batch));
}

/* All gradients are 1, and the learning rate is 1/2. */
static inline void update_small(rig *r, uint32_t device, uint64_t step, const small_batch *b) {
    float grads[4 * 5];
    for (uint32_t i = 0; i < b->n * 5; i++) grads[i] = 1;
    frugal_gradients g = {.grads = grads, .lr = 0.5f};
    assert_int_equal(FRUGAL_OK, frugal_update(r->f, device, step, b->read_only ? NULL : &g));
}

#endif /* ALONE_H */
