/* ids_oracle.h - what frugal_ids.h should do, written again: one id after another, in lists, without digests, pieces,
 * counters with ages, or anything else that makes it fast. It shares the hash, which says which ids meet. */
#ifndef IDS_ORACLE_H
#define IDS_ORACLE_H

#include "frugal_ids.h"

#include <stdlib.h>

typedef struct ids_oracle_place {
    int taken;
    uint64_t id, last;
} ids_oracle_place;

typedef struct ids_oracle_touches {
    uint64_t window; /* in which the number was true */
    uint32_t n;
} ids_oracle_touches;

typedef struct ids_oracle {
    frugal_ids_desc desc;
    uint64_t buckets;
    ids_oracle_place *places;    /* [buckets][64] */
    ids_oracle_touches *touches; /* [buckets][64] */
    frugal_ids_report said;
} ids_oracle;

/* Zeros of the descriptor stand for what frugal_ids.h says; `buckets` is a power of two. */
static inline void ids_oracle_open(ids_oracle *o, const frugal_ids_desc *desc, uint64_t buckets) {
    *o = (ids_oracle){.desc = *desc, .buckets = buckets, .places = calloc(64 * buckets, sizeof *o->places)};
    o->touches = calloc(64 * buckets, sizeof *o->touches);
    if (!o->desc.hold) o->desc.hold = 64;
    if (!o->desc.forget_after) o->desc.forget_after = 65536;
    o->said.places = 64 * buckets;
}

static inline void ids_oracle_close(ids_oracle *o) {
    free(o->places), free(o->touches);
}

static inline uint64_t ids_oracle_hash(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline int ids_oracle_expired(const ids_oracle *o, uint64_t last, uint64_t step) {
    return o->desc.expire_after && step - last >= o->desc.expire_after;
}

/* The place that has the id, expired or not; NULL: none. */
static inline ids_oracle_place *ids_oracle_find(const ids_oracle *o, uint64_t id) {
    ids_oracle_place *bucket = o->places + ids_oracle_hash(id) % o->buckets * 64;
    for (int way = 0; way < 64; way++)
        if (bucket[way].taken && bucket[way].id == id) return &bucket[way];
    return NULL;
}

static inline ids_oracle_touches *ids_oracle_touches_of(const ids_oracle *o, uint64_t id, uint64_t step) {
    uint64_t hash = ids_oracle_hash(id), window = (step - o->desc.first_step + 1) / o->desc.forget_after;
    ids_oracle_touches *t = o->touches + hash % o->buckets * 64 + (hash >> 50) % 64;
    for (; t->window < window && t->n; t->window++) t->n /= 2;
    t->window = window;
    return t;
}

/* A way for a new id, by what section 4 of frugal_ids.h says. */
static inline ids_oracle_place *ids_oracle_room(const ids_oracle *o, uint64_t id, uint64_t step) {
    ids_oracle_place *bucket = o->places + ids_oracle_hash(id) % o->buckets * 64, *oldest = bucket;
    for (int way = 0; way < 64; way++)
        if (!bucket[way].taken) return &bucket[way];
    for (int way = 1; way < 64; way++)
        if (bucket[way].last < oldest->last) oldest = &bucket[way];
    return step - oldest->last >= o->desc.hold ? oldest : NULL;
}

/* A step of ids[n] in their order: places[n]. */
static inline void ids_oracle_step(ids_oracle *o, uint64_t step, const uint64_t *ids, const uint32_t *touches,
                                   uint32_t n, uint32_t *places) {
    char *is_there = calloc(n + 1, 1);
    for (uint32_t i = 0; i < n; i++) { /* as the step before has left the map */
        const ids_oracle_place *p = ids_oracle_find(o, ids[i]);
        is_there[i] = p && !ids_oracle_expired(o, p->last, step);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (is_there[i]) {
            ids_oracle_find(o, ids[i])->last = step;
        } else if (o->desc.admit_after > 1) {
            ids_oracle_touches *t = ids_oracle_touches_of(o, ids[i], step);
            uint64_t sum = (uint64_t)t->n + (touches ? touches[i] : 1);
            t->n = sum < 255 ? (uint32_t)sum : 255;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        ids_oracle_place *p = ids_oracle_find(o, ids[i]);
        if (!p || p->last != step) {
            if (o->desc.admit_after > 1 && ids_oracle_touches_of(o, ids[i], step)->n < o->desc.admit_after) {
                o->said.refused++, places[i] = FRUGAL_IDS_NONE;
                continue;
            }
            if (!p) p = ids_oracle_room(o, ids[i], step);
            if (!p) {
                o->said.full++, places[i] = FRUGAL_IDS_NONE;
                continue;
            }
            o->said.admitted++;
            if (!p->taken) o->said.ids++;
            if (p->taken) ids_oracle_expired(o, p->last, step) ? o->said.expired++ : o->said.evicted++;
            *p = (ids_oracle_place){1, ids[i], step};
        }
        places[i] = (uint32_t)(p - o->places);
    }
    free(is_there);
}

/* Twice as many buckets: ids keep their ways. */
static inline void ids_oracle_grow(ids_oracle *o) {
    ids_oracle old = *o;
    ids_oracle_open(o, &old.desc, 2 * old.buckets);
    o->said = old.said, o->said.places = 128 * old.buckets;
    for (uint64_t i = 0; i < 64 * old.buckets; i++) {
        o->touches[i] = o->touches[i + 64 * old.buckets] = old.touches[i];
        if (!old.places[i].taken) continue;
        o->places[ids_oracle_hash(old.places[i].id) % o->buckets * 64 + i % 64] = old.places[i];
    }
    ids_oracle_close(&old);
}

#endif /* IDS_ORACLE_H */
