/* frugal_ids.h - gives places to 64-bit ids that come and go: a function of the ids that steps touch, and of nothing
 * else. C11, public domain or MIT.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * Production keys are 64-bit hashes without an end. A table of embeddings has a fixed number of rows. This header maps
 * the one to the other: an id that is touched often enough gets a place, which is the number of a row; where no place
 * is free, it gets that of the id that was touched longest ago. Nothing depends on threads, time or chance: the same
 * steps give the same places, on any number of threads, so training stays reproducible.
 *
 * CONTENTS
 *      1. Do this                 5. Example              9. Costs and limits
 *      2. Options                 6. Ownership           10. Relatives
 *      3. Overview                7. Threading           11. Licence
 *      4. The argument            8. Errors
 *      >>public >>structs >>memory >>digests >>finding >>admitting >>undoing >>growing >>reading
 *
 * 1. DO THIS
 *      In ONE C file, before including it:
 *          #define FRUGAL_IDS_IMPLEMENTATION
 *          #include "frugal_ids.h"
 *      In every other file only the #include. The implementation is C11; the declarations are also C++17 and CUDA C++.
 *      It needs no library, no thread and no file, and knows nothing of frugal.h.
 *
 * 2. OPTIONS (each a macro defined before the #include)
 *      FRUGAL_API      everywhere: linkage of the public functions. Default: extern.
 *      FRUGAL_STATIC   implementation file: all functions are static.
 *      FRUGAL_ASSERT   implementation file: checks of our own invariants. Default: assert.
 *      FRUGAL_ATOMICS_OVERRIDE
 *                      implementation file: as in frugal_pq.h, whose >>atomics it shares if that is included before.
 *
 * 3. OVERVIEW
 *      Training goes in steps. In a step each device touches some ids. The ids of a step are cut into *parts*
 *      (frugal_ids_part), in an order that the data fix: those of device 0 first, as its batch has them, then those of
 *      device 1, and so on. How many parts a device's ids are cut into does not matter.
 *
 *      A step is two phases:
 *          frugal_ids_begin      the step's number; one thread
 *          frugal_ids_find       each part: looks its ids up in the map as the step before has left it. Parts may be
 *                                found at the same time by several threads. An id that is there has its place, and its
 *                                last touch becomes this step. One that is not is noted in the part
 *          frugal_ids_admit      each piece of the map, when all parts are found: ids that were noted get their places.
 *                                Pieces may be admitted at the same time by several threads
 *      Then places[] of all parts are filled. FRUGAL_IDS_NONE stands for an id without a place in this step: it was
 *      touched too seldom, or no place can be given up. How many pieces there are does not matter either.
 *
 *      A place that is new in the step (frugal_ids_is_new) has the row of another id in it, or none: the caller writes
 *      the first value there. If steps are announced ahead and may be taken back, it does so when the step is trained
 *      and not before, so that taking back finds the old row.
 *
 *      Steps are taken back in falling order, by the calls of a step in reverse: frugal_ids_undo_admit for each
 *      piece, then frugal_ids_undo_find for each part, then frugal_ids_undo_begin. For that the parts must be kept as
 *      the step has left them; parts of steps that are never taken back may be reused.
 *
 * 4. THE ARGUMENT
 *      The map is an array of buckets of 64 places. The low bits of an id's hash name its bucket, so a place is
 *      64 bucket + way, and buckets know nothing of each other:
 *
 *          bucket     digest[64]   id[64]          last[64]        touches[64]
 *          960 bytes  a byte of    8 bytes each    the last step   of ids without a place: counters
 *                     the hash;    of the one      that touched
 *                     0: free      that is there   it
 *
 *      Finding is concurrent, and exact. Within a step, before any piece is admitted, digests and ids do not change.
 *      What changes is last[], and only to the number of this step: all threads that touch an id store the same value
 *      (relaxed: the end of the phase, which the caller synchronizes, publishes it). So a part finds what it would
 *      find alone. Each part also keeps the value that it has found in last[]. If several parts have the id, at least
 *      one of them has loaded it before any of them has stored; taking back ignores those that found this step already.
 *
 *      Admitting is by buckets. A piece is a range of buckets, and has the noted ids of these in the order of the
 *      parts. First the touches of all of them are counted, then each asks, in order: has an id before it in this step
 *      brought the same id? Has it `admit_after` touches? Is a way free? If not, which way was touched longest ago, and
 *      was that `hold` steps ago or more? Each answer is a function of the bucket and of the ids before it in the
 *      bucket. So the result is the same for any pieces and any threads.
 *
 *      Who is given up. The victim is the way with the least (last step, number), among those whose last touch is at
 *      least `hold` steps ago. With hold = lookahead + staging + 1 of frugal.h or more, no step that is announced and
 *      not finished has read the victim, and no update of it is pending: its row may be overwritten at the step.
 *
 *      Expiry. With `expire_after`, an id that was not touched for so many steps counts as absent: it is not found,
 *      and has to be admitted anew. No thread sweeps the map: whether an id has expired is a comparison. Its way is the
 *      first to be given up, because its last touch is the oldest.
 *
 *      Admission. Ids without a place are counted in 64 counters for each bucket, which ids of the same bucket may
 *      share: an id then is admitted earlier than it should be, never later. A counter counts half after each
 *      `forget_after` steps, so an id must come often within a time. (It knows the time modulo 256 of these: what was
 *      counted exactly that long ago counts again.)
 *
 *      Growing. frugal_ids_grow doubles the buckets, between steps. Bucket b of B is cut by the next bit of the hash:
 *      ids stay, or move to the same way of bucket b + B, so no id changes its way, and none has to be refused.
 *
 * 5. EXAMPLE (compiled as examples/ids.c)
 *
 *      frugal_ids_desc desc = {.places = 4096, .admit_after = 2, .hold = 12};
 *      void *memory = aligned_alloc(FRUGAL_IDS_ALIGN, frugal_ids_footprint(&desc));
 *      frugal_ids *m = frugal_ids_init(memory, &desc);
 *      frugal_ids_part part = {.ids = ids, .n = N, .places = places, .before = before, .noted = noted};
 *      for (uint64_t step = 0; step < STEPS; step++) {
 *          draw_ids(step);
 *          frugal_ids_begin(m, step);
 *          frugal_ids_find(m, &part);
 *          for (uint32_t piece = 0; piece < frugal_ids_pieces(m); piece++) frugal_ids_admit(m, &part, 1, piece);
 *          train();
 *      }
 *
 * 6. OWNERSHIP
 *      The caller gives one block of memory, aligned to FRUGAL_IDS_ALIGN, and keeps it until the last call. It holds
 *      the map, without pointers: it may be copied, written to a file, or shared by processes. Parts and their arrays
 *      are the caller's. There is nothing to free.
 *
 * 7. THREADING
 *      frugal_ids_find and frugal_ids_undo_find: any number of threads at the same time, each with parts of its own,
 *      while no thread is in another call. frugal_ids_admit and frugal_ids_undo_admit: the same, each with pieces of
 *      its own; they write into the parts of all. frugal_ids_get, _at and _get_report only read: any number of threads,
 *      while no other call is made. All other calls are made by one thread. Between the phases the caller synchronizes:
 *      what was done in one happens before what is done in the next (a barrier, a join). All atomic operations are
 *      relaxed, so there is no table of pairs.
 *
 * 8. ERRORS
 *      Errors are frugal_ids_status codes; frugal_ids_strerror gives their text. A call that fails changes nothing.
 *
 * 9. COSTS AND LIMITS
 *      Memory: 15 bytes a place: 8 of the id, 4 of its last step, 1 of its digest, 2 of a counter; a part needs 8 bytes
 *      for each id, and 40 for each that is noted. Finding an id costs three cache lines; a digest is compared with 64
 *      by vectors. Places are rounded up to a power of two, from 64 to 2^31. Steps: 2^32 - 2 from the first one. Ids:
 *      any 64 bits. An id may be in a part, and in a step, several times.
 *      Hashes do not fill all buckets alike: some give up ids while others have free places. With twice as many places
 *      as ids hardly a bucket is full.
 *
 * 10. RELATIVES
 *      HierarchicalKV (NVIDIA) has buckets of 128 with digests, on a GPU, and evicts by scores, concurrently: which id
 *      leaves depends on timing. dynamicemb (NVIDIA recsys-examples) says of itself that it is not deterministic,
 *      because insertion, eviction and initialization are concurrent. Swiss tables (Google's Abseil) compare digests by
 *      vectors. Counters that ids share are a count-min sketch (Cormode and Muthukrishnan 2005) of one row.
 *
 * 11. LICENCE
 *      MIT or public domain (Unlicense), at your choice; see LICENSE.
 */
#if defined(FRUGAL_IDS_IMPLEMENTATION) && defined(__cplusplus)
#error "frugal_ids.h: the implementation is C11: define FRUGAL_IDS_IMPLEMENTATION in a .c file, not in C++ or CUDA"
#undef FRUGAL_IDS_IMPLEMENTATION /* so that this is the only error */
#endif

#ifndef FRUGAL_IDS_H
#define FRUGAL_IDS_H

#include <stddef.h>
#include <stdint.h>

#ifndef FRUGAL_API
#define FRUGAL_API extern
#endif
#ifdef __GNUC__
#define FRUGAL_PRIV_IDS_STATIC static __attribute__((unused)) /* a file need not call all of them */
#else
#define FRUGAL_PRIV_IDS_STATIC static
#endif
#if defined(FRUGAL_STATIC) && defined(FRUGAL_IDS_IMPLEMENTATION)
#define FRUGAL_IDS_API FRUGAL_PRIV_IDS_STATIC
#else
#define FRUGAL_IDS_API FRUGAL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------
 * >>public
 * --------------------------------------------------------------------------------------------------------- */

#define FRUGAL_IDS_ALIGN      64
#define FRUGAL_IDS_WAYS       64         /* places of a bucket */
#define FRUGAL_IDS_MAX_PIECES 64         /* of the map */
#define FRUGAL_IDS_NONE       UINT32_MAX /* no place */

typedef enum frugal_ids_status {
    FRUGAL_IDS_OK = 0,
    FRUGAL_IDS_STEP = -1, /* a step is not after the one before it, or is 2^32 - 2 or more after the first one */
    FRUGAL_IDS_FULL = -2, /* max_places are reached */
    FRUGAL_IDS_PLACE = -3 /* there is no such place, another id is there, or the id does not belong into its bucket */
} frugal_ids_status;

typedef struct frugal_ids_desc {
    uint64_t places;       /* 1 to 2^31; rounded up to a power of two, 64 at least */
    uint64_t max_places;   /* that frugal_ids_grow may reach; rounded up as `places`; 0: places */
    uint64_t first_step;   /* no step is before it */
    uint32_t admit_after;  /* touches that an id needs for a place: 0 and 1: all are admitted; 255 at most */
    uint32_t forget_after; /* steps after which touches count half; 0: 2^16 */
    uint32_t hold;         /* steps for which the place of an id is its own after its last touch, 1 at least; 0: 64 */
    uint32_t expire_after; /* steps after which an id that is not touched counts as absent; `hold` at least; 0: never */
    uint32_t pieces;       /* 1 to 64; 0: 32; at most as many as there are buckets are used */
} frugal_ids_desc;

/* An id that was not found. Only this header reads it. */
typedef struct frugal_ids_noted {
    uint64_t id, old_id; /* old: what was in the place before */
    uint32_t touches, position, place, old_last;
    uint16_t old_counter;
    uint8_t old_digest, outcome;
} frugal_ids_noted;

/* Ids of a step. The caller fills the first six fields; the arrays may be longer. */
typedef struct frugal_ids_part {
    const uint64_t *ids;     /* [n] */
    const uint32_t *touches; /* [n]: how often the batch has each; NULL: once */
    uint32_t n;
    uint32_t *places;                          /* [n]: written by find and admit */
    uint32_t *before;                          /* [n]: written by find; for frugal_ids_undo_find */
    frugal_ids_noted *noted;                   /* [n]: written by find, by piece, and by admit */
    uint32_t start[FRUGAL_IDS_MAX_PIECES + 1]; /* piece p has noted[start[p]] to noted[start[p + 1] - 1] */
} frugal_ids_part;

typedef struct frugal_ids_report {
    uint64_t places;   /* that there are now */
    uint64_t ids;      /* that have one, expired ones included */
    uint64_t admitted; /* ids that got a place, since the beginning, as all below */
    uint64_t evicted;  /* of their places, those that an id had which had not expired */
    uint64_t expired;  /* of their places, those that an id had which had expired, the same or another */
    uint64_t refused;  /* noted ids with fewer touches than admit_after */
    uint64_t full;     /* noted ids for which no place could be given up */
} frugal_ids_report;

typedef struct frugal_ids frugal_ids; /* lies in the caller's memory */

/* Bytes of memory, a multiple of FRUGAL_IDS_ALIGN; 0 if the descriptor is out of its limits. */
FRUGAL_IDS_API size_t frugal_ids_footprint(const frugal_ids_desc *desc);
/* Starts in memory[footprint], aligned to FRUGAL_IDS_ALIGN, with no ids. NULL if the footprint is 0, or the memory is
 * NULL or badly aligned. Costs O(max_places). */
FRUGAL_IDS_API frugal_ids *frugal_ids_init(void *memory, const frugal_ids_desc *desc);
/* A sentence for a status; never NULL. */
FRUGAL_IDS_API const char *frugal_ids_strerror(frugal_ids_status status);
/* The pieces of the map, which frugal_ids_admit takes one by one. They stay the same when it grows. */
FRUGAL_IDS_API uint32_t frugal_ids_pieces(const frugal_ids *m);

/* Begins a step; its number is above that of the step before. Errors: STEP. */
FRUGAL_IDS_API frugal_ids_status frugal_ids_begin(frugal_ids *m, uint64_t step);
/* Looks up the ids of a part: places[] of those that are there, before[], noted[] and start[] are written. Threads:
 * see THREADING. */
FRUGAL_IDS_API void frugal_ids_find(frugal_ids *m, frugal_ids_part *part);
/* Gives places to the ids of all parts that were noted for a piece; places[] of these are written. parts[n] are those
 * of the step, in its order. */
FRUGAL_IDS_API void frugal_ids_admit(frugal_ids *m, frugal_ids_part *parts, uint32_t n, uint32_t piece);
/* Did this noted id get a place in this step that it had not before? Of an id that several parts have, the first one
 * says so. */
static inline int frugal_ids_is_new(const frugal_ids_noted *noted) {
    return noted->outcome == 1;
}

/* Takes frugal_ids_admit back, of the last step that was begun. */
FRUGAL_IDS_API void frugal_ids_undo_admit(frugal_ids *m, frugal_ids_part *parts, uint32_t n, uint32_t piece);
/* Takes frugal_ids_find back, of a part of that step, after all of its pieces were. */
FRUGAL_IDS_API void frugal_ids_undo_find(frugal_ids *m, const frugal_ids_part *part);
/* Takes frugal_ids_begin back, after all parts were: the last step is `step` again, or, if UINT64_MAX, there is none.
 * Errors: STEP (it is not before the one that is taken back). */
FRUGAL_IDS_API frugal_ids_status frugal_ids_undo_begin(frugal_ids *m, uint64_t step);

/* Doubles the places, between steps of which none is taken back any more. The row of each id in the upper half of the
 * places is then that of the place half of all places below it: the caller moves it. Costs O(places). Errors: FULL. */
FRUGAL_IDS_API frugal_ids_status frugal_ids_grow(frugal_ids *m);

/* The place of an id that is there and has not expired, as of the last step; FRUGAL_IDS_NONE else. Touches nothing. */
FRUGAL_IDS_API uint32_t frugal_ids_get(const frugal_ids *m, uint64_t id);
/* 1: the place has an id: *id, and the last step that touched it, *last. 0: it has none, or there is no such place. */
FRUGAL_IDS_API int frugal_ids_at(const frugal_ids *m, uint64_t place, uint64_t *id, uint64_t *last);
/* Puts an id with its last step into a free place, as frugal_ids_at has read it from a map with as many places. Before
 * the first step, or between steps. Errors: PLACE, STEP. */
FRUGAL_IDS_API frugal_ids_status frugal_ids_put(frugal_ids *m, uint64_t place, uint64_t id, uint64_t last);
FRUGAL_IDS_API frugal_ids_report frugal_ids_get_report(const frugal_ids *m);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_IDS_H */

#if defined(FRUGAL_IDS_IMPLEMENTATION) && !defined(FRUGAL_IDS_IMPLEMENTED)
#define FRUGAL_IDS_IMPLEMENTED
#ifndef FRUGAL_ASSERT
#include <assert.h>
#define FRUGAL_ASSERT(condition) assert(condition)
#endif
#ifndef FRUGAL_ATOMICS_INCLUDED /* else those of frugal_pq.h, which are the same */
#ifdef FRUGAL_ATOMICS_OVERRIDE
#include FRUGAL_ATOMICS_OVERRIDE
#else
#include <stdatomic.h>
#define FRUGAL_ATOMIC(type)        _Atomic(type)
#define frugal_load_relaxed(p)     atomic_load_explicit(p, memory_order_relaxed)
#define frugal_store_relaxed(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#endif
#endif
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---------------------------------------------------------------------------------------------------------
 * >>structs
 * --------------------------------------------------------------------------------------------------------- */

typedef struct frugal_priv_ids_bucket {
    uint8_t digest[FRUGAL_IDS_WAYS]; /* 0: free. Changed by admit and what takes it back alone, as id[] and counter[] */
    uint64_t id[FRUGAL_IDS_WAYS];
    FRUGAL_ATOMIC(uint32_t) last[FRUGAL_IDS_WAYS]; /* the clock (below) of the last touch; 0 where free */
    uint16_t counter[FRUGAL_IDS_WAYS];             /* high byte: when (age); low byte: touches, 255 at most */
} frugal_priv_ids_bucket;

/* Of a piece, by the thread that admits it. */
typedef struct frugal_priv_ids_counts {
    uint64_t admitted, evicted, expired, refused, full;
    uint64_t ids, unused[2]; /* a cache line for each piece */
} frugal_priv_ids_counts;

struct frugal_ids {
    frugal_ids_desc desc; /* resolved */
    uint64_t buckets, max_buckets, pieces;
    uint64_t step;  /* the last that was begun; UINT64_MAX: none */
    uint32_t clock; /* step - first_step + 1; 0: none was begun */
    uint32_t age;   /* clock / forget_after, a byte */
    uint64_t put;   /* ids that frugal_ids_put has put */
    frugal_priv_ids_counts counts[FRUGAL_IDS_MAX_PIECES];
};

/* ---------------------------------------------------------------------------------------------------------
 * >>memory
 * --------------------------------------------------------------------------------------------------------- */

#define FRUGAL_PRIV_IDS_HEAD ((sizeof(struct frugal_ids) + FRUGAL_IDS_ALIGN - 1) / FRUGAL_IDS_ALIGN * FRUGAL_IDS_ALIGN)
#define FRUGAL_PRIV_IDS_MOST (UINT64_C(1) << 31) /* places */

static uint64_t frugal_priv_ids_buckets(uint64_t places) {
    uint64_t buckets = 1;
    while (buckets * FRUGAL_IDS_WAYS < places) buckets *= 2;
    return buckets;
}

/* 0 if a field is out of its limits. */
static int frugal_priv_ids_resolve(const frugal_ids_desc *desc, frugal_ids_desc *to) {
    *to = *desc;
    if (!to->max_places) to->max_places = to->places;
    if (!to->admit_after) to->admit_after = 1;
    if (!to->forget_after) to->forget_after = 1 << 16;
    if (!to->hold) to->hold = 64;
    if (!to->pieces) to->pieces = 32;
    if (to->places < 1 || to->places > to->max_places || to->max_places > FRUGAL_PRIV_IDS_MOST) return 0;
    if (to->admit_after > 255 || to->pieces > FRUGAL_IDS_MAX_PIECES) return 0;
    return !to->expire_after || to->expire_after >= to->hold;
}

FRUGAL_IDS_API size_t frugal_ids_footprint(const frugal_ids_desc *desc) {
    frugal_ids_desc d;
    if (!frugal_priv_ids_resolve(desc, &d)) return 0;
    uint64_t buckets = frugal_priv_ids_buckets(d.max_places);
    if (buckets > (SIZE_MAX - FRUGAL_PRIV_IDS_HEAD) / sizeof(frugal_priv_ids_bucket)) return 0;
    return FRUGAL_PRIV_IDS_HEAD + (size_t)buckets * sizeof(frugal_priv_ids_bucket);
}

FRUGAL_IDS_API frugal_ids *frugal_ids_init(void *memory, const frugal_ids_desc *desc) {
    size_t bytes = frugal_ids_footprint(desc);
    if (!bytes || !memory || (uintptr_t)memory % FRUGAL_IDS_ALIGN) return NULL;
    memset(memory, 0, bytes);
    frugal_ids *m = (frugal_ids *)memory;
    frugal_priv_ids_resolve(desc, &m->desc);
    m->buckets = frugal_priv_ids_buckets(m->desc.places);
    m->max_buckets = frugal_priv_ids_buckets(m->desc.max_places);
    m->pieces = m->desc.pieces < m->buckets ? m->desc.pieces : m->buckets;
    m->step = UINT64_MAX;
    return m;
}

FRUGAL_IDS_API const char *frugal_ids_strerror(frugal_ids_status status) {
    switch (status) {
    case FRUGAL_IDS_OK:
        return "no error";
    case FRUGAL_IDS_STEP:
        return "a step is not after the one before it, or is 2^32 - 2 or more after the first one";
    case FRUGAL_IDS_FULL:
        return "the places cannot be doubled: max_places are reached";
    case FRUGAL_IDS_PLACE:
        return "there is no such place, it has an id, or the id belongs into another bucket";
    }
    return "an unknown status";
}

FRUGAL_IDS_API uint32_t frugal_ids_pieces(const frugal_ids *m) {
    return (uint32_t)m->pieces;
}

static frugal_priv_ids_bucket *frugal_priv_ids_map(const frugal_ids *m) {
    return (frugal_priv_ids_bucket *)((uintptr_t)m + FRUGAL_PRIV_IDS_HEAD);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>digests
 * --------------------------------------------------------------------------------------------------------- */

/* The finalizer of splitmix64 (Steele, Lea and Flood 2014): a permutation of all 64-bit numbers. */
static uint64_t frugal_priv_ids_hash(uint64_t id) {
    id += UINT64_C(0x9E3779B97F4A7C15);
    id = (id ^ id >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    id = (id ^ id >> 27) * UINT64_C(0x94D049BB133111EB);
    return id ^ id >> 31;
}

/* The bucket is in the low bits, 25 at most; the digest in the highest 8; the counter in the 6 below. */
static uint8_t frugal_priv_ids_digest(uint64_t hash) {
    uint8_t digest = (uint8_t)(hash >> 56);
    return digest ? digest : 1;
}

static uint32_t frugal_priv_ids_counter(uint64_t hash) {
    return (uint32_t)(hash >> 50) % FRUGAL_IDS_WAYS;
}

static frugal_priv_ids_bucket *frugal_priv_ids_bucket_of(const frugal_ids *m, uint64_t hash) {
    return &frugal_priv_ids_map(m)[hash & (m->buckets - 1)];
}

static uint32_t frugal_priv_ids_place(const frugal_ids *m, uint64_t hash, int way) {
    return (uint32_t)((hash & (m->buckets - 1)) * FRUGAL_IDS_WAYS + (uint32_t)way);
}

/* Bit w: way w has this digest. */
static uint64_t frugal_priv_ids_match(const frugal_priv_ids_bucket *b, uint8_t digest) {
    uint64_t match = 0;
#ifdef __SSE2__
    for (int i = 0; i < 4; i++) {
        __m128i ways = _mm_load_si128((const __m128i *)(b->digest + 16 * i));
        uint32_t equal = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(ways, _mm_set1_epi8((char)digest)));
        match |= (uint64_t)equal << (16 * i);
    }
#else
    for (int w = 0; w < FRUGAL_IDS_WAYS; w++) match |= (uint64_t)(b->digest[w] == digest) << w;
#endif
    return match;
}

static int frugal_priv_ids_lowest(uint64_t bits) { /* not 0 */
#ifdef __GNUC__
    return __builtin_ctzll(bits);
#else
    int lowest = 0;
    while (!(bits >> lowest & 1)) lowest++;
    return lowest;
#endif
}

/* The way that has the id; -1: none. */
static int frugal_priv_ids_way(const frugal_priv_ids_bucket *b, uint64_t hash, uint64_t id) {
    for (uint64_t match = frugal_priv_ids_match(b, frugal_priv_ids_digest(hash)); match; match &= match - 1) {
        int way = frugal_priv_ids_lowest(match);
        if (b->id[way] == id) return way;
    }
    return -1;
}

static int frugal_priv_ids_expired(const frugal_ids *m, uint32_t last) {
    return m->desc.expire_after && (uint64_t)last + m->desc.expire_after <= m->clock;
}

#ifdef __GNUC__
#define FRUGAL_PRIV_IDS_PREFETCH(p) __builtin_prefetch(p, 1)
#else
#define FRUGAL_PRIV_IDS_PREFETCH(p) (void)(p)
#endif

/* ---------------------------------------------------------------------------------------------------------
 * >>finding
 * --------------------------------------------------------------------------------------------------------- */

static void frugal_priv_ids_set_step(frugal_ids *m, uint64_t step) {
    m->step = step;
    m->clock = step == UINT64_MAX ? 0 : (uint32_t)(step - m->desc.first_step + 1);
    m->age = m->clock / m->desc.forget_after & 255;
}

FRUGAL_IDS_API frugal_ids_status frugal_ids_begin(frugal_ids *m, uint64_t step) {
    if (step < m->desc.first_step || step - m->desc.first_step >= UINT32_MAX - 1) return FRUGAL_IDS_STEP;
    if (m->step != UINT64_MAX && step <= m->step) return FRUGAL_IDS_STEP;
    frugal_priv_ids_set_step(m, step);
    return FRUGAL_IDS_OK;
}

#define FRUGAL_PRIV_IDS_ABSENT UINT32_MAX /* in before[]; no clock is as late */

static uint32_t frugal_priv_ids_piece(const frugal_ids *m, uint64_t hash) {
    return (uint32_t)((hash & (m->buckets - 1)) * m->pieces / m->buckets);
}

/* Notes the ids of a part that were not found, by piece, those of a piece in their order. count[]: of each piece. */
static void frugal_priv_ids_note(const frugal_ids *m, frugal_ids_part *part, const uint32_t *count) {
    uint32_t at[FRUGAL_IDS_MAX_PIECES];
    part->start[0] = 0;
    for (uint32_t p = 0; p < m->pieces; p++) at[p] = part->start[p], part->start[p + 1] = part->start[p] + count[p];
    for (uint32_t k = 0; part->start[m->pieces] > 0 && k < part->n; k++) {
        if (part->before[k] != FRUGAL_PRIV_IDS_ABSENT) continue;
        part->noted[at[frugal_priv_ids_piece(m, frugal_priv_ids_hash(part->ids[k]))]++] =
            (frugal_ids_noted){.id = part->ids[k], .touches = part->touches ? part->touches[k] : 1, .position = k};
    }
}

/* Touches an id of a part, if it is there: 1. */
static int frugal_priv_ids_touch(frugal_ids *m, frugal_ids_part *part, uint32_t k, uint64_t hash) {
    frugal_priv_ids_bucket *b = frugal_priv_ids_bucket_of(m, hash);
    int way = frugal_priv_ids_way(b, hash, part->ids[k]);
    uint32_t last = way < 0 ? 0 : frugal_load_relaxed(&b->last[way]); /* relaxed: section 4 */
    part->before[k] = FRUGAL_PRIV_IDS_ABSENT;
    if (way < 0 || frugal_priv_ids_expired(m, last)) return 0;
    if (last != m->clock) frugal_store_relaxed(&b->last[way], m->clock); /* relaxed: section 4 */
    part->places[k] = frugal_priv_ids_place(m, hash, way);
    part->before[k] = last;
    return 1;
}

FRUGAL_IDS_API void frugal_ids_find(frugal_ids *m, frugal_ids_part *part) {
    enum { AHEAD = 16 };
    uint64_t hashes[AHEAD];
    uint32_t count[FRUGAL_IDS_MAX_PIECES] = {0};
    for (uint64_t i = 0; i < (uint64_t)part->n + AHEAD; i++) {
        uint64_t *hash = &hashes[i % AHEAD];
        if (i >= AHEAD && !frugal_priv_ids_touch(m, part, (uint32_t)(i - AHEAD), *hash))
            count[frugal_priv_ids_piece(m, *hash)]++;
        if (i >= part->n) continue;
        *hash = frugal_priv_ids_hash(part->ids[i]);
        FRUGAL_PRIV_IDS_PREFETCH(frugal_priv_ids_bucket_of(m, *hash)->digest);
        FRUGAL_PRIV_IDS_PREFETCH(&frugal_priv_ids_bucket_of(m, *hash)->last[32]);
    }
    frugal_priv_ids_note(m, part, count);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>admitting
 * --------------------------------------------------------------------------------------------------------- */

/* frugal_ids_noted.outcome */
enum {
    FRUGAL_PRIV_IDS_SHARED,  /* one before it in the step has brought the id */
    FRUGAL_PRIV_IDS_NEW,     /* frugal_ids_is_new knows this number */
    FRUGAL_PRIV_IDS_REFUSED, /* too few touches */
    FRUGAL_PRIV_IDS_FULL     /* no place can be given up */
};

/* Adds the touches of all ids that were noted for a piece, before any of them is admitted: so an id that several parts
 * have is admitted with the touches of all. */
static void frugal_priv_ids_count(frugal_ids *m, frugal_ids_part *part, uint32_t piece) {
    for (uint32_t i = part->start[piece]; i < part->start[piece + 1]; i++) {
        frugal_ids_noted *x = &part->noted[i];
        uint64_t hash = frugal_priv_ids_hash(x->id);
        uint16_t *counter = &frugal_priv_ids_bucket_of(m, hash)->counter[frugal_priv_ids_counter(hash)];
        x->old_counter = *counter;
        uint32_t passed = (m->age - (*counter >> 8)) & 255, touches = passed < 8 ? (*counter & 255u) >> passed : 0;
        touches = x->touches < 255 - touches ? touches + x->touches : 255;
        *counter = (uint16_t)(m->age << 8 | touches);
    }
}

/* The way that is given up for a new id: a free one, or that of the least (last, number), if nobody needs it; -1:
 * none. */
static int frugal_priv_ids_victim(const frugal_ids *m, frugal_priv_ids_bucket *b) {
    uint64_t spare = frugal_priv_ids_match(b, 0);
    if (spare) return frugal_priv_ids_lowest(spare);
    uint32_t least = UINT32_MAX;
    int victim = -1;
    for (int way = 0; way < FRUGAL_IDS_WAYS; way++) {
        uint32_t last = frugal_load_relaxed(&b->last[way]); /* relaxed: the phase is over in which others store */
        if (last < least) least = last, victim = way;
    }
    return (uint64_t)least + m->desc.hold <= m->clock ? victim : -1;
}

/* Changes the counts for an id that got a place (by 1), or lost it again (by -1). */
static void frugal_priv_ids_tell(const frugal_ids *m, frugal_priv_ids_counts *counts, const frugal_ids_noted *x,
                                 uint64_t by) {
    counts->admitted += by;
    if (!x->old_digest)
        counts->ids += by;
    else if (frugal_priv_ids_expired(m, x->old_last))
        counts->expired += by;
    else
        counts->evicted += by;
}

/* The way that a noted id has from now on; -1: none. */
static int frugal_priv_ids_give(frugal_ids *m, frugal_priv_ids_bucket *b, uint64_t hash, frugal_ids_noted *x) {
    int way = frugal_priv_ids_way(b, hash, x->id); /* it may be there, expired or brought in this step */
    if (way >= 0 && frugal_load_relaxed(&b->last[way]) == m->clock) { /* relaxed: as above */
        x->outcome = FRUGAL_PRIV_IDS_SHARED;
        return way;
    }
    if (m->desc.admit_after > 1 && (b->counter[frugal_priv_ids_counter(hash)] & 255u) < m->desc.admit_after) {
        x->outcome = FRUGAL_PRIV_IDS_REFUSED;
        return -1;
    }
    if (way < 0) way = frugal_priv_ids_victim(m, b);
    if (way < 0) {
        x->outcome = FRUGAL_PRIV_IDS_FULL;
        return -1;
    }
    x->outcome = FRUGAL_PRIV_IDS_NEW;
    x->old_digest = b->digest[way], x->old_id = b->id[way], x->old_last = frugal_load_relaxed(&b->last[way]);
    b->digest[way] = frugal_priv_ids_digest(hash), b->id[way] = x->id;
    frugal_store_relaxed(&b->last[way], m->clock); /* relaxed: the end of the phase publishes it */
    return way;
}

FRUGAL_IDS_API void frugal_ids_admit(frugal_ids *m, frugal_ids_part *parts, uint32_t n, uint32_t piece) {
    enum { AHEAD = 8 };
    FRUGAL_ASSERT(piece < m->pieces);
    frugal_priv_ids_counts *counts = &m->counts[piece];
    if (m->desc.admit_after > 1)
        for (uint32_t p = 0; p < n; p++) frugal_priv_ids_count(m, &parts[p], piece);
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t i = parts[p].start[piece], end = parts[p].start[piece + 1]; i < end; i++) {
            frugal_ids_noted *x = &parts[p].noted[i];
            uint64_t hash = frugal_priv_ids_hash(x->id);
            frugal_priv_ids_bucket *b = frugal_priv_ids_bucket_of(m, hash);
            if (i + AHEAD < end) {
                uint64_t next = frugal_priv_ids_hash(x[AHEAD].id);
                FRUGAL_PRIV_IDS_PREFETCH(frugal_priv_ids_bucket_of(m, next)->digest);
            }
            int way = frugal_priv_ids_give(m, b, hash, x);
            x->place = way < 0 ? FRUGAL_IDS_NONE : frugal_priv_ids_place(m, hash, way);
            parts[p].places[x->position] = x->place;
            counts->refused += x->outcome == FRUGAL_PRIV_IDS_REFUSED;
            counts->full += x->outcome == FRUGAL_PRIV_IDS_FULL;
            if (x->outcome == FRUGAL_PRIV_IDS_NEW) frugal_priv_ids_tell(m, counts, x, 1);
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * >>undoing
 * --------------------------------------------------------------------------------------------------------- */

FRUGAL_IDS_API void frugal_ids_undo_admit(frugal_ids *m, frugal_ids_part *parts, uint32_t n, uint32_t piece) {
    FRUGAL_ASSERT(piece < m->pieces);
    frugal_priv_ids_counts *counts = &m->counts[piece];
    for (uint32_t p = n; p-- > 0;) {
        for (uint32_t i = parts[p].start[piece + 1]; i-- > parts[p].start[piece];) {
            const frugal_ids_noted *x = &parts[p].noted[i];
            uint64_t hash = frugal_priv_ids_hash(x->id);
            frugal_priv_ids_bucket *b = frugal_priv_ids_bucket_of(m, hash);
            if (m->desc.admit_after > 1) b->counter[frugal_priv_ids_counter(hash)] = x->old_counter;
            counts->refused -= x->outcome == FRUGAL_PRIV_IDS_REFUSED;
            counts->full -= x->outcome == FRUGAL_PRIV_IDS_FULL;
            if (x->outcome != FRUGAL_PRIV_IDS_NEW) continue;
            uint32_t way = x->place % FRUGAL_IDS_WAYS;
            b->digest[way] = x->old_digest, b->id[way] = x->old_id;
            frugal_store_relaxed(&b->last[way], x->old_last); /* relaxed: the end of the phase publishes it */
            frugal_priv_ids_tell(m, counts, x, UINT64_MAX);
        }
    }
}

FRUGAL_IDS_API void frugal_ids_undo_find(frugal_ids *m, const frugal_ids_part *part) {
    frugal_priv_ids_bucket *map = frugal_priv_ids_map(m);
    for (uint32_t k = 0; k < part->n; k++) {
        if (part->before[k] == FRUGAL_PRIV_IDS_ABSENT || part->before[k] == m->clock) continue;
        uint32_t place = part->places[k];
        frugal_store_relaxed(&map[place / FRUGAL_IDS_WAYS].last[place % FRUGAL_IDS_WAYS], part->before[k]);
        /* relaxed: all parts that have the id, and loaded it before others stored, store the same */
    }
}

FRUGAL_IDS_API frugal_ids_status frugal_ids_undo_begin(frugal_ids *m, uint64_t step) {
    if (step != UINT64_MAX && (m->step == UINT64_MAX || step >= m->step || step < m->desc.first_step))
        return FRUGAL_IDS_STEP;
    frugal_priv_ids_set_step(m, step);
    return FRUGAL_IDS_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>growing
 * --------------------------------------------------------------------------------------------------------- */

FRUGAL_IDS_API frugal_ids_status frugal_ids_grow(frugal_ids *m) {
    frugal_priv_ids_bucket *map = frugal_priv_ids_map(m);
    if (m->buckets == m->max_buckets) return FRUGAL_IDS_FULL;
    for (uint64_t i = 0; i < m->buckets; i++) {
        frugal_priv_ids_bucket *from = &map[i], *to = &map[i + m->buckets];
        memcpy(to->counter, from->counter, sizeof to->counter); /* of either half: they shared them */
        for (int way = 0; way < FRUGAL_IDS_WAYS; way++) {
            if (!from->digest[way] || !(frugal_priv_ids_hash(from->id[way]) & m->buckets)) continue;
            to->digest[way] = from->digest[way], to->id[way] = from->id[way];
            frugal_store_relaxed(&to->last[way], frugal_load_relaxed(&from->last[way])); /* relaxed: one thread */
            from->digest[way] = 0, from->id[way] = 0;
            frugal_store_relaxed(&from->last[way], 0); /* relaxed: one thread */
        }
    }
    m->buckets *= 2;
    return FRUGAL_IDS_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>reading
 * --------------------------------------------------------------------------------------------------------- */

FRUGAL_IDS_API uint32_t frugal_ids_get(const frugal_ids *m, uint64_t id) {
    uint64_t hash = frugal_priv_ids_hash(id);
    frugal_priv_ids_bucket *b = frugal_priv_ids_bucket_of(m, hash);
    int way = frugal_priv_ids_way(b, hash, id);
    if (way < 0 || frugal_priv_ids_expired(m, frugal_load_relaxed(&b->last[way]))) return FRUGAL_IDS_NONE;
    return frugal_priv_ids_place(m, hash, way); /* relaxed, above: nobody stores now */
}

FRUGAL_IDS_API int frugal_ids_at(const frugal_ids *m, uint64_t place, uint64_t *id, uint64_t *last) {
    if (place / FRUGAL_IDS_WAYS >= m->buckets) return 0;
    frugal_priv_ids_bucket *b = &frugal_priv_ids_map(m)[place / FRUGAL_IDS_WAYS];
    uint32_t way = (uint32_t)(place % FRUGAL_IDS_WAYS);
    if (!b->digest[way]) return 0;
    *id = b->id[way];
    *last = m->desc.first_step + frugal_load_relaxed(&b->last[way]) - 1; /* relaxed: nobody stores now */
    return 1;
}

FRUGAL_IDS_API frugal_ids_status frugal_ids_put(frugal_ids *m, uint64_t place, uint64_t id, uint64_t last) {
    uint64_t hash = frugal_priv_ids_hash(id), bucket = place / FRUGAL_IDS_WAYS;
    uint32_t way = (uint32_t)(place % FRUGAL_IDS_WAYS);
    frugal_priv_ids_bucket *b = frugal_priv_ids_bucket_of(m, hash);
    if (bucket != (hash & (m->buckets - 1)) || b->digest[way] || frugal_priv_ids_way(b, hash, id) >= 0)
        return FRUGAL_IDS_PLACE;
    if (last < m->desc.first_step || last - m->desc.first_step >= UINT32_MAX - 1) return FRUGAL_IDS_STEP;
    if (m->step != UINT64_MAX && last > m->step) return FRUGAL_IDS_STEP;
    b->digest[way] = frugal_priv_ids_digest(hash), b->id[way] = id;
    frugal_store_relaxed(&b->last[way], (uint32_t)(last - m->desc.first_step + 1)); /* relaxed: one thread */
    m->put++;
    return FRUGAL_IDS_OK;
}

FRUGAL_IDS_API frugal_ids_report frugal_ids_get_report(const frugal_ids *m) {
    frugal_ids_report r = {.places = m->buckets * FRUGAL_IDS_WAYS, .ids = m->put};
    for (uint32_t p = 0; p < m->pieces; p++) {
        const frugal_priv_ids_counts *c = &m->counts[p];
        r.ids += c->ids, r.admitted += c->admitted, r.evicted += c->evicted, r.expired += c->expired;
        r.refused += c->refused, r.full += c->full;
    }
    return r;
}
#endif /* FRUGAL_IDS_IMPLEMENTATION */
