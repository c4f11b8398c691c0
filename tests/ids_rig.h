/* ids_rig.h - steps of drawn ids for the tests of frugal_ids.h: as parts, cut anywhere; taken, taken back, and compared
 * with the oracle. Before it, cmocka.h or tests/fuzz/fuzz.h, for the checks. */
#ifndef IDS_RIG_H
#define IDS_RIG_H

#include "frugal_ids.h"
#include "tests/ids_oracle.h"
#include "tests/support.h"

enum { MOST = 700, PARTS = 6 };

/* The ids of a step, in parts, and what is kept of it. */
typedef struct step_ids {
    uint32_t n, n_parts;
    uint64_t ids[MOST];
    uint32_t touches[MOST], places[MOST], before[MOST];
    frugal_ids_noted noted[MOST];
    frugal_ids_part parts[PARTS];
} step_ids;

typedef struct drawing { /* how ids are drawn */
    uint64_t pool, drift;
    uint32_t most;
    int counts;
} drawing;

/* Ids of a pool that drifts, small ones more often; some of them several times in a step. */
static inline void draw_step(test_random *r, const drawing *d, uint64_t step, step_ids *s) {
    s->n = (uint32_t)test_below(r, d->most + 1);
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t which = test_below(r, 1 + test_below(r, d->pool)) + step * d->drift;
        s->ids[i] = which % 5 ? test_mix(which) : which; /* hashes, and plain numbers, 0 among them */
        s->touches[i] = test_chance(r, 10) ? (uint32_t)test_below(r, 200) : 1 + (uint32_t)test_below(r, 3);
    }
}

static inline void cut_step(test_random *r, const drawing *d, step_ids *s) {
    uint32_t from = 0;
    s->n_parts = 1 + (uint32_t)test_below(r, PARTS);
    for (uint32_t p = 0; p < s->n_parts; p++) {
        uint32_t end = p + 1 == s->n_parts ? s->n : from + (uint32_t)test_below(r, s->n - from + 1);
        s->parts[p] = (frugal_ids_part){.ids = s->ids + from,
                                        .touches = d->counts ? s->touches + from : NULL,
                                        .n = end - from,
                                        .places = s->places + from,
                                        .before = s->before + from,
                                        .noted = s->noted + from};
        from = end;
    }
}

/* By one thread: parts and pieces in their order. */
static inline void take_step(frugal_ids *m, uint64_t step, step_ids *s) {
    assert_int_equal(frugal_ids_begin(m, step), FRUGAL_IDS_OK);
    for (uint32_t p = 0; p < s->n_parts; p++) frugal_ids_find(m, &s->parts[p]);
    for (uint32_t p = 0; p < frugal_ids_pieces(m); p++) frugal_ids_admit(m, s->parts, s->n_parts, p);
}

static inline void undo_step(frugal_ids *m, uint64_t before, step_ids *s) {
    for (uint32_t p = frugal_ids_pieces(m); p-- > 0;) frugal_ids_undo_admit(m, s->parts, s->n_parts, p);
    for (uint32_t p = 0; p < s->n_parts; p++) frugal_ids_undo_find(m, &s->parts[p]);
    assert_int_equal(frugal_ids_undo_begin(m, before), FRUGAL_IDS_OK);
}

static inline frugal_ids *open_map(const frugal_ids_desc *desc) {
    size_t bytes = frugal_ids_footprint(desc);
    assert_true(bytes > 0 && bytes % FRUGAL_IDS_ALIGN == 0);
    void *memory = aligned_alloc(FRUGAL_IDS_ALIGN, bytes);
    memset(memory, 0xa5, bytes);
    frugal_ids *m = frugal_ids_init(memory, desc);
    assert_true(m != NULL);
    return m;
}

static inline frugal_ids_desc draw_desc(test_random *r) {
    static const uint32_t pieces[] = {0, 1, 2, 7, 32, 64};
    frugal_ids_desc desc = {.places = 1 + test_below(r, 500), .first_step = test_below(r, 3) * 1000};
    desc.admit_after = test_chance(r, 20) ? 100 + (uint32_t)test_below(r, 156) : (uint32_t)test_below(r, 5);
    desc.hold = 1 + (uint32_t)test_below(r, 8);
    desc.expire_after = test_chance(r, 50) ? desc.hold + (uint32_t)test_below(r, 20) : 0;
    desc.forget_after = 1 + (uint32_t)test_below(r, 40);
    desc.pieces = pieces[test_below(r, 6)];
    desc.max_places = desc.places << test_below(r, 3);
    return desc;
}

static inline uint64_t buckets_of(const frugal_ids_desc *desc) {
    uint64_t buckets = 1;
    for (; 64 * buckets < desc->places; buckets *= 2) {
    }
    return buckets;
}

static inline void assert_same_report(const frugal_ids *m, const ids_oracle *o) {
    frugal_ids_report said = frugal_ids_get_report(m);
    assert_true(!memcmp(&said, &o->said, sizeof said));
}

/* All ids, wherever they are, and all that were drawn. */
static inline void assert_same_map(const frugal_ids *m, const ids_oracle *o, uint64_t step) {
    for (uint64_t place = 0; place < o->said.places + 64; place++) {
        uint64_t id = 0, last = 0;
        const ids_oracle_place *p = place < o->said.places ? &o->places[place] : NULL;
        assert_int_equal(frugal_ids_at(m, place, &id, &last), p && p->taken);
        if (!p || !p->taken) continue;
        assert_true(id == p->id && last == p->last);
        uint32_t got = frugal_ids_get(m, id);
        assert_int_equal(got, ids_oracle_expired(o, last, step) ? FRUGAL_IDS_NONE : place);
    }
}

#endif /* IDS_RIG_H */
