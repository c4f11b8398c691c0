/* frugal_pq.h - a lock-free two-level priority queue for integers in a moving window. C11, public domain or MIT.
 * Stable: CHANGELOG.md says what that promises.
 *
 * Many threads push 32-bit ids with one of 64 consecutive integer priorities, move ids to other priorities, and take
 * ids in rising order of priority, each exactly once. A batch of k operations costs k plain stores, about k/62 atomic
 * operations on shared cache lines, and k atomic operations, each on the byte of its id.
 *
 * CONTENTS
 *      1. Do this                 5. Example              9. Errors
 *      2. Options                 6. Ownership           10. Limits
 *      3. Overview                7. Threading           11. Relatives
 *      4. The algorithm           8. Synchronization     12. Licence
 *      >>public >>atomics >>implementation: >>structs >>memory >>stacks >>page_level >>validated_queue
 *
 * 1. DO THIS
 *      In ONE C file, before including it:
 *          #define FRUGAL_PQ_IMPLEMENTATION
 *          #include "frugal_pq.h"
 *      In every other file only the #include. The implementation is C11, and a C++ or CUDA file with this macro stops
 *      with an #error; the declarations are also C++17.
 *
 * 2. OPTIONS (each a macro defined before the #include)
 *      FRUGAL_API      everywhere: linkage of the public functions. Default: extern.
 *      FRUGAL_STATIC   implementation file, before the first #include: all functions are static, so they can be called
 *                      in that file alone. If your threads share static variables of that file, gcc 12 needs
 *                      -fno-ipa-reference. Without it, gcc 12 keeps these variables in registers across calls of the
 *                      functions, although these acquire what other threads have written.
 *      FRUGAL_PQ_PAGE_IDS
 *                      everywhere: ids in a page. Default: 62, which makes a page of 256 bytes. 14, 30, 126 and 254
 *                      also make pages of whole cache lines. Larger pages are a little faster (about 4% at 126) where
 *                      many ids have the same priority, and waste more memory where few do.
 *      FRUGAL_ASSERT   implementation file only: checks of our own invariants. Default: assert.
 *      FRUGAL_ATOMICS_OVERRIDE
 *                      implementation file only: the name of a header, in quotes, that defines the macros of
 *                      section >>atomics in place of those here, which use <stdatomic.h>. It lets a model checker,
 *                      a scheduler or a test with delays see every atomic operation.
 *
 * 3. OVERVIEW
 *      The queue serves a *window* of 64 priorities, [base, base + 63]. Priorities are 64-bit numbers that grow
 *      as a program goes on (steps, deadlines, distances). frugal_pq_advance moves the window up. Its 64 slots
 *      are used as a ring, so the same memory serves any number of steps. The queue can be used on two levels.
 *
 *      The validated queue (frugal_pq_push, _push_n, _adjust, _adjust_n, _pop, _min, _advance) keeps one byte per id,
 *      which names the id's current priority. An id is in the queue at most once, and exactly one pop delivers it.
 *
 *      The page level (frugal_pq_put, _take, _first, _retire) moves ids through the slots, and does not check whether
 *      an entry is still true. It is for callers that keep a word of their own per id, which says where the id belongs,
 *      as the state machine of frugal_p2f.h does. Such a caller sets ids = 0, and the queue then keeps no bytes.
 *
 * 4. THE ALGORITHM
 *
 *      slots, a ring                pages of 256 bytes
 *      +--------+                   +------+-------+---------------------+
 *      | base   |--- tag, index --->| next | count | ids[62]             |
 *      +--------+                   +--|---+-------+---------------------+
 *      | base+1 |--- empty             +-------------> next page of the slot, ...
 *      +--------+
 *      |  ...   |                   free --- tag, index ---> page ---> page ---> ...
 *      +--------+
 *
 *      Level one is an array of 64 stack heads, slot = priority mod 64. Level two is one Treiber stack of pages
 *      per slot. A producer fills private pages (frugal_pq_batch), at most one per slot, with plain stores. It
 *      publishes a page with one compare-and-swap when the page is full or when the producer commits. A consumer takes
 *      a whole page with one compare-and-swap, copies the ids out and puts the page onto the stack of free pages.
 *
 *      No entry is removed from the middle of a stack. Moving an id to another slot leaves its old entry there, as a
 *      *stale id*. The thread that takes that entry finds that the id's byte (or the caller's word) names another slot,
 *      and drops the entry. So adjusting is O(1). Each id is delivered once, by the one compare-and-swap that finds
 *      that the byte names the slot, and clears the byte. A stale id becomes true again if its id returns to that slot.
 *      Then one queued id has two entries: the one that is taken first delivers the id, and the other is stale.
 *
 *      ABA. A head is a 32-bit page index and a 32-bit tag; every change of a head, pops included, advances the
 *      tag. A pop reads `next` of a page that another thread may be popping and reusing at that moment. The
 *      read is atomic, and its value is used only if the compare-and-swap then proves that the head has not
 *      changed. The proof is wrong only if a nonzero multiple of 2^32 changes happened between the load and the
 *      compare-and-swap. Pages are never returned to the system, so the memory that is read is always a page.
 *
 *      Progress. put, push, adjust, take, pop and commit are lock-free: a thread retries only because another thread
 *      has succeeded. A thread that ends or hangs in a call keeps at most its private pages and the page that it has
 *      just taken, and hides the ids in them; no other thread is blocked. min and first are wait-free (64 loads).
 *
 * 5. EXAMPLE (compiled as examples/pq.c)
 *
 *      frugal_pq_desc desc = {.ids = 1000, .pages = 128};
 *      void *memory = aligned_alloc(FRUGAL_PQ_ALIGN, frugal_pq_footprint(&desc));
 *      frugal_pq *q = frugal_pq_init(memory, &desc);
 *      frugal_pq_batch b = {0};
 *      frugal_pq_push(q, &b, 7, 12);           // id 7 at priority 12
 *      frugal_pq_push(q, &b, 8, 3);
 *      frugal_pq_adjust(q, &b, 7, 1);          // now at priority 1
 *      frugal_pq_commit(q, &b);                // visible to all
 *      uint32_t ids[FRUGAL_PQ_PAGE_IDS];
 *      uint64_t priority;
 *      for (uint32_t n; (n = frugal_pq_pop(q, ids, &priority)) > 0;)
 *          printf("%u id(s) at priority %llu\n", n, (unsigned long long)priority);
 *      free(memory);
 *
 * 6. OWNERSHIP
 *      The caller gives one block of memory, aligned to FRUGAL_PQ_ALIGN, and keeps it until the last call. The
 *      block holds the whole queue and contains no pointers, so it may lie in memory that several processes map
 *      at different addresses. There is nothing to free. A frugal_pq_batch belongs to one thread at a time.
 *
 * 7. THREADING
 *      Any number of threads may call everything at any time, except that
 *      - a batch is used by one thread at a time, and its ids are invisible until it is committed;
 *      - frugal_pq_advance and frugal_pq_retire are called by one thread at a time, and only while no thread pushes
 *        or adjusts an id to a priority that leaves the window, or has such an id in an uncommitted batch. Meanwhile
 *        other threads may push ids at other priorities, and pop.
 *
 * 8. SYNCHRONIZATION
 *      What a thread did before it pushed or adjusted an id happens before what the thread that pops the id does next.
 *
 *      | tag   | site                            | order           | pairs with | if it were relaxed                  |
 *      |-------|---------------------------------|-----------------|------------|-------------------------------------|
 *      | [PQ1] | push of a chain onto a head     | release         | [PQ2][PQ3] | the taker sees old ids and counts   |
 *      | [PQ2] | pop of a page from a head       | acquire         | [PQ1]      | as [PQ1]; `next` of an old page     |
 *      | [PQ3] | a whole stack taken by retire   | acquire         | [PQ1]      | retire walks over old links         |
 *      | [PQ4] | id's byte: push; adjust         | acq_rel; release| [PQ5]      | the popper misses the pusher's data |
 *      | [PQ5] | id's byte: pop                  | acq_rel         | [PQ4]      | as [PQ4]; a later pusher misses     |
 *      |       |                                 |                 |            | the popper's data                   |
 *      | [PQ6] | `live` raised, moved            | release         | [PQ8]      | advance misses what adjusters did   |
 *      | [PQ7] | `live` lowered                  | release         | [PQ8]      | advance misses what poppers did     |
 *      | [PQ8] | `live` tested by advance        | acquire         | [PQ6][PQ7] | as [PQ6] and [PQ7]                  |
 *      | [PQ9] | `base` stored by advance        | release         | [PQ10]     | pushers miss what the advancer did  |
 *      | [PQ10]| `base` read                     | acquire         | [PQ9]      | as [PQ9]                            |
 *      A compare-and-swap of [PQ2] that fails acquires, too, because the loop goes on with the head that it found.
 *      All changes of a head are read-modify-writes, so each continues the release sequence of the pushes
 *      below it. Therefore acquiring the head acquires every page of the stack, not only the topmost.
 *
 *      frugal_pq_min is a lower *bound*. Consider an id whose push or adjust was committed before the call began, and
 *      that no thread took or adjusted before the call ended: if the call returns m, this id's priority is not below m.
 *      Ids that are moved during the call may be missed. A slot with only stale ids counts as occupied, so m may be too
 *      low. When no other thread is active, m is exact, except for stale ids. frugal_pq_pop looks for the first
 *      occupied slot in the same way, with the same bound, and takes from it. If the window moves during the call, that
 *      slot may stand for a later priority when the ids are taken.
 *
 * 9. ERRORS
 *      Errors are frugal_pq_status codes; frugal_pq_strerror gives their text. A call that fails has changed nothing,
 *      except push_n and adjust_n: they stop at the first id that fails. push_n says how many it has pushed, adjust_n
 *      how many of the ids before it were in the queue.
 *
 * 10. LIMITS
 *      Ids 0 .. 2^32 - 3; 2^32 - 2 pages; 64 priorities in the window, whose base is at most 2^64 - 65. An entry, stale
 *      or not, takes its place in a page until the page is taken or its slot leaves the window. With at most e entries
 *      and b uncommitted or partly filled pages at a time, and c threads in the middle of a pop, e / 62 + b + c pages
 *      are enough. FRUGAL_PQ_FULL says that there are too few.
 *
 * 11. RELATIVES
 *      A *bucket queue* keeps one list per priority; a *calendar queue* (Brown 1988) wraps a bucket queue around a
 *      ring, as a desk calendar is reused every year; both are sequential. *OBIM* (Galois; Nguyen et al. 2013) and
 *      *Julienne* (Dhulipala et al. 2017) are concurrent bucket structures for graph algorithms: OBIM gives each
 *      thread chunks of work per priority and allows some disorder, Julienne moves identifiers between buckets in
 *      bulk-synchronous rounds and also leaves stale ones to be filtered. This queue differs: the window is a ring of
 *      fixed size; one compare-and-swap moves a whole page; the id's own byte or word tells stale ids from true
 *      ones, so each id is delivered exactly once without rounds. FRUGAL's own two-level queue (Xie et al.,
 *      ASPLOS '25, section 3.4) has concurrent hash tables on level two, and max_step + 2 slots.
 *
 *      Without this header one could use a *calendar of concurrent FIFO queues* from a library, with a byte per id. If
 *      its elements are pages like these, it is about as fast (bench_pq: calendar). So speed is no reason for this
 *      queue. The reasons are: it lies in one block whose size is known before, and allocates nothing, while such
 *      queues allocate when they grow; several processes may map the block; a caller's own words can replace the bytes;
 *      a model can check each atomic operation (section 2); and it does not pay for an order within a priority.
 *      *MultiQueues* (Rihani et al. 2015) and the *k-LSM* (Wimmer et al. 2015) are relaxed: a deletion may pass over
 *      lower priorities. So the least priority, which a gate asks for, is known only after a look into every heap.
 *      bench_pq has a MultiQueue; there is no package of a k-LSM to compare with.
 *
 * 12. LICENCE
 *      MIT or public domain (Unlicense), at your choice; see LICENSE.
 */
#if defined(FRUGAL_PQ_IMPLEMENTATION) && defined(__cplusplus)
#error "frugal_pq.h: the implementation is C11: define FRUGAL_PQ_IMPLEMENTATION in a .c file, not in C++ or CUDA"
#undef FRUGAL_PQ_IMPLEMENTATION /* so that this is the only error */
#endif
#ifndef FRUGAL_PQ_H
#define FRUGAL_PQ_H

/* The version of Frugal as a whole: 10000 major + 100 minor + patch. CHANGELOG.md says what a version promises.
 * frugal_version() in frugal.h returns the version of the code that a program is linked with. */
#define FRUGAL_VERSION        200
#define FRUGAL_VERSION_STRING "0.2.0"

#include <stddef.h>
#include <stdint.h>

#ifndef FRUGAL_API
#define FRUGAL_API extern
#endif
#ifdef __GNUC__
#define FRUGAL_PRIV_STATIC static __attribute__((unused)) /* a file need not call all of them */
#else
#define FRUGAL_PRIV_STATIC static
#endif
/* Static in the implementation file only, because a compiler warns of a static function that has no definition. */
#if defined(FRUGAL_STATIC) && defined(FRUGAL_PQ_IMPLEMENTATION)
#define FRUGAL_PQ_API FRUGAL_PRIV_STATIC
#else
#define FRUGAL_PQ_API FRUGAL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------
 * >>public
 * --------------------------------------------------------------------------------------------------------- */

#define FRUGAL_PQ_SLOTS 64 /* priorities in the window */
#ifndef FRUGAL_PQ_PAGE_IDS
#define FRUGAL_PQ_PAGE_IDS 62 /* ids in a page; one pop returns at most this many */
#endif
#define FRUGAL_PQ_ALIGN   256        /* alignment of the caller's memory, in bytes */
#define FRUGAL_PQ_MAX_IDS 4294967294 /* 2^32 - 2 */
#define FRUGAL_PQ_EMPTY   UINT64_MAX /* frugal_pq_min: no slot is occupied */

typedef enum frugal_pq_status {
    FRUGAL_PQ_OK = 0,
    FRUGAL_PQ_FULL = -1,    /* no free page */
    FRUGAL_PQ_WINDOW = -2,  /* the priority is outside [base, base + 63] */
    FRUGAL_PQ_ID = -3,      /* the id is not below `ids` */
    FRUGAL_PQ_PRESENT = -4, /* push: the id is in the queue already */
    FRUGAL_PQ_ABSENT = -5,  /* adjust: the id is not in the queue */
    FRUGAL_PQ_LIVE = -6     /* advance: ids below the new base are still queued */
} frugal_pq_status;

typedef struct frugal_pq_desc {
    uint64_t ids;   /* ids are 0 .. ids - 1; 0: page level only */
    uint64_t pages; /* see LIMITS */
    uint64_t base;  /* first priority of the window */
} frugal_pq_desc;

typedef struct frugal_pq frugal_pq; /* lies in the caller's memory */

/* A producer's private pages. Zero it before first use; contents are private. */
typedef struct frugal_pq_batch {
    uint64_t open;                  /* one bit per slot: the batch has a private page for it */
    uint64_t counted;               /* one bit per slot: delta is to be added; where the bit is clear, delta is zero */
    uint32_t page[FRUGAL_PQ_SLOTS]; /* index of the private page */
    int32_t delta[FRUGAL_PQ_SLOTS]; /* ids to be added to the slot's count at the next commit */
} frugal_pq_batch;

/* Bytes of memory for a queue: a multiple of FRUGAL_PQ_ALIGN, as aligned_alloc wants it. 0 if `pages` is 0, or if
 * `ids`, `pages` or `base` is over its limit. */
FRUGAL_PQ_API size_t frugal_pq_footprint(const frugal_pq_desc *desc);
/* Makes an empty queue in memory[footprint], aligned to FRUGAL_PQ_ALIGN. Call it before any other thread uses the
 * memory. NULL if the footprint is 0, or the memory is NULL or badly aligned. Costs O(pages + ids). */
FRUGAL_PQ_API frugal_pq *frugal_pq_init(void *memory, const frugal_pq_desc *desc);
/* A sentence for a status; never NULL. */
FRUGAL_PQ_API const char *frugal_pq_strerror(frugal_pq_status status);

/* Queues `id` at `priority`. Visible after commit. Errors: ID, WINDOW, PRESENT, FULL. */
FRUGAL_PQ_API frugal_pq_status frugal_pq_push(frugal_pq *q, frugal_pq_batch *b, uint32_t id, uint64_t priority);
/* Queues ids[n] at priorities[n]; *pushed (may be NULL) says how many were pushed before the first error. Errors: as
 * push. */
FRUGAL_PQ_API frugal_pq_status frugal_pq_push_n(frugal_pq *q, frugal_pq_batch *b, const uint32_t *ids,
                                                const uint64_t *priorities, size_t n, size_t *pushed);
/* Moves a queued id to `priority`, up or down. The old place stops counting at once; the new one is visible
 * after commit. Errors: ID, WINDOW, FULL, ABSENT (also when a pop took the id first). */
FRUGAL_PQ_API frugal_pq_status frugal_pq_adjust(frugal_pq *q, frugal_pq_batch *b, uint32_t id, uint64_t priority);
/* Moves those of ids[n] that are queued to `priority`, as adjust does, and passes over the others; *queued (may be
 * NULL) says how many of them were queued. Errors: ID, WINDOW, FULL; it stops at the first id that fails. */
FRUGAL_PQ_API frugal_pq_status frugal_pq_adjust_n(frugal_pq *q, frugal_pq_batch *b, const uint32_t *ids, size_t n,
                                                  uint64_t priority, size_t *queued);
/* Publishes the batch's page of each slot that it has touched, full or not. The batch may then be used again. Each
 * commit leaves at most one part-filled page per touched slot, and the rest of that page stays unused until the page
 * is taken. So commit seldom: if push, adjust or put find no free page, the reason may be part-filled
 * pages. */
FRUGAL_PQ_API void frugal_pq_commit(frugal_pq *q, frugal_pq_batch *b);
/* Takes up to FRUGAL_PQ_PAGE_IDS ids of the lowest priority that has any; returns 0 if it found the queue empty. */
FRUGAL_PQ_API uint32_t frugal_pq_pop(frugal_pq *q, uint32_t ids[FRUGAL_PQ_PAGE_IDS], uint64_t *priority);
/* A lower bound of the priorities queued (SYNCHRONIZATION says exactly what it promises), or FRUGAL_PQ_EMPTY. */
FRUGAL_PQ_API uint64_t frugal_pq_min(const frugal_pq *q);
/* Moves the window to [base, base + 63], where base is not below the present one, and frees the pages of stale ids in
 * the slots that leave the window. Errors: LIVE (ids below base are still queued), WINDOW (base is below the present
 * one, or beyond its limit). */
FRUGAL_PQ_API frugal_pq_status frugal_pq_advance(frugal_pq *q, uint64_t base);
/* The first priority of the window. */
FRUGAL_PQ_API uint64_t frugal_pq_base(const frugal_pq *q);
/* Ids queued; exact when no other thread is active. */
FRUGAL_PQ_API uint64_t frugal_pq_size(const frugal_pq *q);

/* The page level: ids are moved, nothing is validated or counted. slot < FRUGAL_PQ_SLOTS. */

/* Adds `id` to the batch's page for `slot`. Returns 1, or 0 if a page was needed and none was free. */
FRUGAL_PQ_API int frugal_pq_put(frugal_pq *q, frugal_pq_batch *b, uint32_t slot, uint32_t id);
/* Takes one page of `slot`: copies its ids to ids[] and returns their number; 0: the slot was empty. */
FRUGAL_PQ_API uint32_t frugal_pq_take(frugal_pq *q, uint32_t slot, uint32_t ids[FRUGAL_PQ_PAGE_IDS]);
/* Looks at `n` slots, from `slot` on around the ring: returns the first that holds a page, FRUGAL_PQ_SLOTS if none. */
FRUGAL_PQ_API uint32_t frugal_pq_first(const frugal_pq *q, uint32_t slot, uint32_t n);
/* Frees all pages of `slot`, whatever is in them; returns the number of ids dropped. */
FRUGAL_PQ_API uint64_t frugal_pq_retire(frugal_pq *q, uint32_t slot);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_PQ_H */

/* ---------------------------------------------------------------------------------------------------------
 * >>atomics - every atomic operation of Frugal goes through these macros; the name of each says its order
 *
 * They come with the implementation, and in files that define FRUGAL_ATOMICS, as other parts of Frugal do.
 * Replace them with FRUGAL_ATOMICS_OVERRIDE. `expected` of a compare-and-swap is a pointer and receives what
 * was found. The compare-and-swap is the weak one, which may fail without reason; all callers loop.
 * --------------------------------------------------------------------------------------------------------- */
#if (defined(FRUGAL_PQ_IMPLEMENTATION) || defined(FRUGAL_ATOMICS)) && !defined(FRUGAL_ATOMICS_INCLUDED)
#define FRUGAL_ATOMICS_INCLUDED
#ifdef FRUGAL_ATOMICS_OVERRIDE
#include FRUGAL_ATOMICS_OVERRIDE
#else
#include <stdatomic.h>
#define FRUGAL_ATOMIC(type)        _Atomic(type)
#define frugal_load_relaxed(p)     atomic_load_explicit(p, memory_order_relaxed)
#define frugal_load_acquire(p)     atomic_load_explicit(p, memory_order_acquire)
#define frugal_store_relaxed(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#define frugal_store_release(p, v) atomic_store_explicit(p, v, memory_order_release)
#define frugal_add_relaxed(p, v)   atomic_fetch_add_explicit(p, v, memory_order_relaxed)
#define frugal_add_acquire(p, v)   atomic_fetch_add_explicit(p, v, memory_order_acquire)
#define frugal_add_release(p, v)   atomic_fetch_add_explicit(p, v, memory_order_release)
#define frugal_add_acq_rel(p, v)   atomic_fetch_add_explicit(p, v, memory_order_acq_rel)
#define frugal_or_acquire(p, v)    atomic_fetch_or_explicit(p, v, memory_order_acquire)
#define frugal_cas_relaxed(p, expected, v)                                                                             \
    atomic_compare_exchange_weak_explicit(p, expected, v, memory_order_relaxed, memory_order_relaxed)
#define frugal_cas_acquire(p, expected, v)                                                                             \
    atomic_compare_exchange_weak_explicit(p, expected, v, memory_order_acquire, memory_order_acquire)
#define frugal_cas_release(p, expected, v)                                                                             \
    atomic_compare_exchange_weak_explicit(p, expected, v, memory_order_release, memory_order_relaxed)
#define frugal_cas_acq_rel(p, expected, v)                                                                             \
    atomic_compare_exchange_weak_explicit(p, expected, v, memory_order_acq_rel, memory_order_acquire)
#endif
#ifndef FRUGAL_ASSERT
#include <assert.h>
#define FRUGAL_ASSERT(condition) assert(condition)
#endif

/* Asks for the cache line at p, which will be written or read soon. For baseline x86-64, gcc and clang would prefetch
 * for reading only, and a line of another processor would then be fetched twice. All x86-64 processors except the very
 * first have prefetchw. */
#ifndef FRUGAL_PRIV_PREFETCH_WRITE
#if defined(__GNUC__) && defined(__x86_64__)
#define FRUGAL_PRIV_PREFETCH_WRITE(p) __asm__ volatile("prefetchw %0" : : "m"(*(const unsigned char *)(uintptr_t)(p)))
#elif defined(__GNUC__)
#define FRUGAL_PRIV_PREFETCH_WRITE(p) __builtin_prefetch((const void *)(uintptr_t)(p), 1, 3)
#else
#define FRUGAL_PRIV_PREFETCH_WRITE(p) ((void)(p))
#endif
#endif
#if defined(__GNUC__)
#define FRUGAL_PRIV_PREFETCH_READ(p) __builtin_prefetch((const void *)(uintptr_t)(p), 0, 3)
#else
#define FRUGAL_PRIV_PREFETCH_READ(p) ((void)(p))
#endif

static inline uint32_t frugal_priv_lowest(uint64_t bits) { /* index of the lowest set bit; bits != 0 */
#if defined(__GNUC__)
    return (uint32_t)__builtin_ctzll(bits);
#else
    uint32_t i = 0;
    while (!(bits >> i & 1)) i++;
    return i;
#endif
}
#endif

/* ---------------------------------------------------------------------------------------------------------
 * >>implementation
 * --------------------------------------------------------------------------------------------------------- */
#if defined(FRUGAL_PQ_IMPLEMENTATION) && !defined(FRUGAL_PQ_IMPLEMENTED)
#define FRUGAL_PQ_IMPLEMENTED

/* >>structs */

#define FRUGAL_PRIV_PQ_AHEAD 16u /* how many ids ahead bytes are prefetched; 8 to 32 serve as well */
#define FRUGAL_PRIV_PQ_LINE  64u /* bytes; a hint */

/* A head: page index + 1 in the low half (0: empty), tag in the high half. Changed by read-modify-write only. */
typedef FRUGAL_ATOMIC(uint64_t) frugal_priv_pq_head;

typedef struct frugal_priv_pq_page {
    FRUGAL_ATOMIC(uint32_t) next; /* index + 1 of the page below; atomic because pops read it speculatively */
    uint32_t count;               /* ids in use; plain: only the page's one owner touches it */
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
} frugal_priv_pq_page;

/* One cache line per slot, so that producers and consumers of different priorities share none. */
typedef struct frugal_priv_pq_slot {
    frugal_priv_pq_head head;
    FRUGAL_ATOMIC(int64_t) live; /* ids queued here; may lag, and be below zero for a moment, until batches commit */
    uint8_t pad[48];
} frugal_priv_pq_slot;

struct frugal_pq {
    frugal_priv_pq_slot slots[FRUGAL_PQ_SLOTS];
    frugal_priv_pq_head free; /* stack of free pages */
    uint8_t pad0[56];
    FRUGAL_ATOMIC(uint64_t) base; /* first priority of the window; written by advance only */
    uint8_t pad1[56];
    uint64_t ids, pages;         /* constant after init, like the next two */
    uint64_t pages_at, bytes_at; /* offsets from the struct's start: pages; bytes, one per id */
};

/* The byte of an id: 0 if the id is not queued, else slot + 1. Changed by compare-and-swap only. */
typedef FRUGAL_ATOMIC(uint8_t) frugal_priv_pq_byte;

_Static_assert(sizeof(frugal_priv_pq_page) % 64 == 0, "a page is whole cache lines");
_Static_assert(sizeof(frugal_priv_pq_slot) == 64, "a slot is one cache line");

/* >>memory */

static inline frugal_priv_pq_page *frugal_priv_pq_page_at(const frugal_pq *q, uint32_t index) {
    return (frugal_priv_pq_page *)(void *)((unsigned char *)(uintptr_t)q + q->pages_at) + index;
}

static inline frugal_priv_pq_byte *frugal_priv_pq_byte_at(const frugal_pq *q, uint32_t id) {
    return (frugal_priv_pq_byte *)((unsigned char *)(uintptr_t)q + q->bytes_at) + id;
}

/* Prefetches the byte of an id. An id out of range is skipped here, and is refused in its turn. */
static inline void frugal_priv_pq_expect(const frugal_pq *q, uint32_t id) {
    if (id < q->ids) FRUGAL_PRIV_PREFETCH_WRITE(frugal_priv_pq_byte_at(q, id));
}

static uint64_t frugal_priv_pq_round(uint64_t bytes) {
    return (bytes + FRUGAL_PQ_ALIGN - 1) / FRUGAL_PQ_ALIGN * FRUGAL_PQ_ALIGN;
}

FRUGAL_PQ_API size_t frugal_pq_footprint(const frugal_pq_desc *desc) {
    if (!desc || desc->ids > FRUGAL_PQ_MAX_IDS || desc->pages == 0 || desc->pages > UINT32_MAX - 1 ||
        desc->base > UINT64_MAX - FRUGAL_PQ_SLOTS)
        return 0;
    uint64_t bytes = frugal_priv_pq_round(sizeof(frugal_pq)) +
                     frugal_priv_pq_round(desc->pages * sizeof(frugal_priv_pq_page) + desc->ids);
    return bytes > SIZE_MAX ? 0 : (size_t)bytes;
}

FRUGAL_PQ_API frugal_pq *frugal_pq_init(void *memory, const frugal_pq_desc *desc) {
    if (!memory || (uintptr_t)memory % FRUGAL_PQ_ALIGN || !frugal_pq_footprint(desc)) return NULL;
    frugal_pq *q = memory;
    q->ids = desc->ids;
    q->pages = desc->pages;
    q->pages_at = frugal_priv_pq_round(sizeof(frugal_pq));
    q->bytes_at = q->pages_at + desc->pages * sizeof(frugal_priv_pq_page);
    for (uint32_t s = 0; s < FRUGAL_PQ_SLOTS; s++) {
        frugal_store_relaxed(&q->slots[s].head, 0);
        frugal_store_relaxed(&q->slots[s].live, 0);
    }
    for (uint32_t i = 0; i < desc->pages; i++)
        frugal_store_relaxed(&frugal_priv_pq_page_at(q, i)->next, i + 1 < desc->pages ? i + 2 : 0);
    for (uint64_t i = 0; i < desc->ids; i++) frugal_store_relaxed(frugal_priv_pq_byte_at(q, (uint32_t)i), 0);
    frugal_store_relaxed(&q->free, 1);
    frugal_store_relaxed(&q->base, desc->base); /* relaxed: the caller publishes the queue to other threads */
    return q;
}

FRUGAL_PQ_API const char *frugal_pq_strerror(frugal_pq_status status) {
    switch (status) {
    case FRUGAL_PQ_OK:
        return "success";
    case FRUGAL_PQ_FULL:
        return "no free page: pop, advance the window, or give the queue more pages";
    case FRUGAL_PQ_WINDOW:
        return "the priority is outside the window of 64; advance the window first";
    case FRUGAL_PQ_ID:
        return "the id is not below the number of ids given at init";
    case FRUGAL_PQ_PRESENT:
        return "the id is in the queue already; use adjust to move it";
    case FRUGAL_PQ_ABSENT:
        return "the id is not in the queue; use push to add it";
    case FRUGAL_PQ_LIVE:
        return "ids below the new base are still queued; pop or adjust them first";
    default:
        return "unknown status";
    }
}

/* >>stacks */

/* Pushes the chain of pages first..last, already linked, onto a head. */
static void frugal_priv_pq_push_chain(frugal_pq *q, frugal_priv_pq_head *head, uint32_t first, uint32_t last) {
    FRUGAL_ATOMIC(uint32_t) *next = &frugal_priv_pq_page_at(q, last)->next;
    uint64_t found = frugal_load_relaxed(head); /* relaxed: proved by the compare-and-swap */
    uint64_t wanted;
    do {
        frugal_store_relaxed(next, (uint32_t)found); /* relaxed: published by the compare-and-swap below */
        wanted = ((found >> 32) + 1) << 32 | (first + 1);
    } while (!frugal_cas_release(head, &found, wanted)); /* [PQ1] publishes the pages; pairs with [PQ2][PQ3] */
}

/* Pops one page into *index; returns 0 if the stack is empty. */
static int frugal_priv_pq_pop_page(frugal_pq *q, frugal_priv_pq_head *head, uint32_t *index) {
    uint64_t found = frugal_load_acquire(head); /* [PQ2] pairs with [PQ1]: the page's `next` */
    for (;;) {
        if ((uint32_t)found == 0) return 0;
        *index = (uint32_t)found - 1;
        /* Speculative: another thread may have the page; then the tag differs, so the compare-and-swap fails. */
        uint32_t below = frugal_load_relaxed(&frugal_priv_pq_page_at(q, *index)->next);
        if (frugal_cas_acquire(head, &found, ((found >> 32) + 1) << 32 | below)) /* [PQ2] pairs with [PQ1] */
            return 1;
    }
}

/* The batch's private page for a slot. If it has none, takes one from the free stack; NULL if none is free. */
static frugal_priv_pq_page *frugal_priv_pq_open_page(frugal_pq *q, frugal_pq_batch *b, uint32_t slot) {
    if (!(b->open >> slot & 1)) {
        if (!frugal_priv_pq_pop_page(q, &q->free, &b->page[slot])) return NULL;
        frugal_priv_pq_page *page = frugal_priv_pq_page_at(q, b->page[slot]);
        for (size_t at = FRUGAL_PRIV_PQ_LINE; at < sizeof *page; at += FRUGAL_PRIV_PQ_LINE)
            FRUGAL_PRIV_PREFETCH_WRITE((unsigned char *)page + at); /* another processor may have used it last */
        page->count = 0;
        b->open |= UINT64_C(1) << slot;
    }
    return frugal_priv_pq_page_at(q, b->page[slot]);
}

static void frugal_priv_pq_publish(frugal_pq *q, frugal_pq_batch *b, uint32_t slot) {
    int empty = frugal_priv_pq_page_at(q, b->page[slot])->count == 0; /* opened for an operation that failed */
    frugal_priv_pq_push_chain(q, empty ? &q->free : &q->slots[slot].head, b->page[slot], b->page[slot]);
    b->open &= ~(UINT64_C(1) << slot);
}

static inline void frugal_priv_pq_append(frugal_pq *q, frugal_pq_batch *b, uint32_t slot, uint32_t id) {
    frugal_priv_pq_page *page = frugal_priv_pq_page_at(q, b->page[slot]);
    page->ids[page->count++] = id;
    if (page->count == FRUGAL_PQ_PAGE_IDS) frugal_priv_pq_publish(q, b, slot);
}

/* >>page_level */

FRUGAL_PQ_API int frugal_pq_put(frugal_pq *q, frugal_pq_batch *b, uint32_t slot, uint32_t id) {
    if (!frugal_priv_pq_open_page(q, b, slot)) return 0;
    frugal_priv_pq_append(q, b, slot, id);
    return 1;
}

FRUGAL_PQ_API void frugal_pq_commit(frugal_pq *q, frugal_pq_batch *b) {
    for (uint64_t open = b->open; open; open &= open - 1) frugal_priv_pq_publish(q, b, frugal_priv_lowest(open));
    for (; b->counted; b->counted &= b->counted - 1) {
        uint32_t slot = frugal_priv_lowest(b->counted);
        frugal_add_release(&q->slots[slot].live, b->delta[slot]); /* [PQ6] pairs with [PQ8] */
        b->delta[slot] = 0;
    }
}

FRUGAL_PQ_API uint32_t frugal_pq_take(frugal_pq *q, uint32_t slot, uint32_t ids[FRUGAL_PQ_PAGE_IDS]) {
    uint32_t index;
    if (!frugal_priv_pq_pop_page(q, &q->slots[slot].head, &index)) return 0;
    const frugal_priv_pq_page *page = frugal_priv_pq_page_at(q, index);
    for (size_t at = FRUGAL_PRIV_PQ_LINE; at < sizeof *page; at += FRUGAL_PRIV_PQ_LINE)
        FRUGAL_PRIV_PREFETCH_READ((const unsigned char *)page + at);
    uint32_t count = page->count;
    FRUGAL_ASSERT(count > 0 && count <= FRUGAL_PQ_PAGE_IDS);
    for (uint32_t i = 0; i < count; i++) ids[i] = page->ids[i];
    frugal_priv_pq_push_chain(q, &q->free, index, index);
    return count;
}

FRUGAL_PQ_API uint32_t frugal_pq_first(const frugal_pq *q, uint32_t slot, uint32_t n) {
    frugal_pq *writable = (frugal_pq *)(uintptr_t)q; /* an atomic load of a const object is not portable C11 */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (slot + i) % FRUGAL_PQ_SLOTS;
        /* Relaxed: only a hint where to take from. A page whose publication happens before this call is seen,
         * because the load can find no older head than that. */
        if ((uint32_t)frugal_load_relaxed(&writable->slots[at].head)) return at;
    }
    return FRUGAL_PQ_SLOTS;
}

FRUGAL_PQ_API uint64_t frugal_pq_retire(frugal_pq *q, uint32_t slot) {
    frugal_priv_pq_head *head = &q->slots[slot].head;
    uint64_t found = frugal_load_relaxed(head); /* relaxed: proved by the compare-and-swap */
    do {
        if ((uint32_t)found == 0) return 0;
    } while (!frugal_cas_acquire(head, &found, ((found >> 32) + 1) << 32)); /* [PQ3] pairs with [PQ1] */
    uint32_t first = (uint32_t)found - 1;
    uint32_t last = first;
    uint64_t dropped = 0;
    for (;;) {
        const frugal_priv_pq_page *page = frugal_priv_pq_page_at(q, last);
        dropped += page->count;
        uint32_t below = frugal_load_relaxed(&((frugal_priv_pq_page *)(uintptr_t)page)->next); /* ours by [PQ3] */
        if (below == 0) break;
        last = below - 1;
    }
    frugal_priv_pq_push_chain(q, &q->free, first, last);
    return dropped;
}

/* >>validated_queue - a call for one id is a call for n = 1 ids */

static void frugal_priv_pq_count(frugal_pq_batch *b, uint32_t slot, int32_t n) {
    b->delta[slot] += n;
    b->counted |= UINT64_C(1) << slot;
}

/* Checks id and priority, and opens a page for the slot in the batch. `base` is read once for many ids: the window may
 * have moved since, but not past a priority that a thread is pushing or adjusting to (THREADING). */
static inline frugal_pq_status frugal_priv_pq_prepare(frugal_pq *q, frugal_pq_batch *b, uint32_t id, uint64_t priority,
                                                      uint64_t base) {
    if (id >= q->ids) return FRUGAL_PQ_ID;
    if (priority - base >= FRUGAL_PQ_SLOTS) return FRUGAL_PQ_WINDOW;
    return frugal_priv_pq_open_page(q, b, (uint32_t)(priority % FRUGAL_PQ_SLOTS)) ? FRUGAL_PQ_OK : FRUGAL_PQ_FULL;
}

FRUGAL_PQ_API frugal_pq_status frugal_pq_push_n(frugal_pq *q, frugal_pq_batch *b, const uint32_t *ids,
                                                const uint64_t *priorities, size_t n, size_t *pushed) {
    uint64_t base = frugal_pq_base(q);
    frugal_pq_status status = FRUGAL_PQ_OK;
    size_t i = 0;
    for (; i < n; i++) {
        if (n - i > FRUGAL_PRIV_PQ_AHEAD) frugal_priv_pq_expect(q, ids[i + FRUGAL_PRIV_PQ_AHEAD]);
        status = frugal_priv_pq_prepare(q, b, ids[i], priorities[i], base);
        if (status != FRUGAL_PQ_OK) break;
        uint32_t slot = (uint32_t)(priorities[i] % FRUGAL_PQ_SLOTS);
        frugal_priv_pq_byte *byte = frugal_priv_pq_byte_at(q, ids[i]);
        uint8_t found = 0;
        int ours = 0;
        do ours = frugal_cas_acq_rel(byte, &found, (uint8_t)(slot + 1)); /* [PQ4] pairs with [PQ5] */
        while (!ours && found == 0);
        if (!ours) {
            status = FRUGAL_PQ_PRESENT;
            break;
        }
        frugal_priv_pq_count(b, slot, 1);
        frugal_priv_pq_append(q, b, slot, ids[i]);
    }
    if (pushed) *pushed = i;
    return status;
}

FRUGAL_PQ_API frugal_pq_status frugal_pq_push(frugal_pq *q, frugal_pq_batch *b, uint32_t id, uint64_t priority) {
    return frugal_pq_push_n(q, b, &id, &priority, 1, NULL);
}

FRUGAL_PQ_API frugal_pq_status frugal_pq_adjust_n(frugal_pq *q, frugal_pq_batch *b, const uint32_t *ids, size_t n,
                                                  uint64_t priority, size_t *queued) {
    uint32_t slot = (uint32_t)(priority % FRUGAL_PQ_SLOTS);
    uint64_t base = frugal_pq_base(q);
    frugal_pq_status status = FRUGAL_PQ_OK;
    size_t count = 0;
    int32_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        if (n - i > FRUGAL_PRIV_PQ_AHEAD) frugal_priv_pq_expect(q, ids[i + FRUGAL_PRIV_PQ_AHEAD]);
        status = frugal_priv_pq_prepare(q, b, ids[i], priority, base);
        if (status != FRUGAL_PQ_OK) break;
        frugal_priv_pq_byte *byte = frugal_priv_pq_byte_at(q, ids[i]);
        uint8_t found = frugal_load_relaxed(byte); /* relaxed: proved by the compare-and-swap */
        /* [PQ4] pairs with [PQ5], also if the slot stays the same */
        while (found != 0 && !frugal_cas_release(byte, &found, (uint8_t)(slot + 1))) continue;
        if (found == 0) continue;
        count++;
        if (found == slot + 1) continue;
        frugal_priv_pq_count(b, found - 1u, -1);
        moved++;
        frugal_priv_pq_append(q, b, slot, ids[i]);
    }
    if (moved) frugal_priv_pq_count(b, slot, moved);
    if (queued) *queued = count;
    return status;
}

FRUGAL_PQ_API frugal_pq_status frugal_pq_adjust(frugal_pq *q, frugal_pq_batch *b, uint32_t id, uint64_t priority) {
    size_t queued;
    frugal_pq_status status = frugal_pq_adjust_n(q, b, &id, 1, priority, &queued);
    return status == FRUGAL_PQ_OK && queued == 0 ? FRUGAL_PQ_ABSENT : status;
}

FRUGAL_PQ_API uint32_t frugal_pq_pop(frugal_pq *q, uint32_t ids[FRUGAL_PQ_PAGE_IDS], uint64_t *priority) {
    for (;;) {
        uint64_t base = frugal_load_relaxed(&q->base); /* relaxed: only where to begin looking */
        uint32_t slot = frugal_pq_first(q, (uint32_t)(base % FRUGAL_PQ_SLOTS), FRUGAL_PQ_SLOTS);
        if (slot == FRUGAL_PQ_SLOTS) return 0;
        uint32_t n = frugal_pq_take(q, slot, ids);
        uint32_t kept = 0, taken = 0;
        for (uint32_t i = 0; i < n; i++) FRUGAL_PRIV_PREFETCH_WRITE(frugal_priv_pq_byte_at(q, ids[i]));
        for (uint32_t i = 0; i < n; i++) { /* drops most stale ids, without a branch that is hard to predict */
            uint32_t id = ids[i];
            ids[kept] = id;
            /* Relaxed: finds the byte as it was when the id was put, or as it became later. */
            kept += frugal_load_relaxed(frugal_priv_pq_byte_at(q, id)) == slot + 1;
        }
        for (uint32_t i = 0; i < kept; i++) {
            uint8_t found = (uint8_t)(slot + 1);
            int ours = 0;
            do ours = frugal_cas_acq_rel(frugal_priv_pq_byte_at(q, ids[i]), &found, 0); /* [PQ5] with [PQ4] */
            while (!ours && found == slot + 1);
            if (ours) ids[taken++] = ids[i]; /* otherwise stale: dropped */
        }
        if (taken == 0) continue;
        /* Read again: the window may have moved since, and the slot may stand for a later priority by now. The window
         * cannot move past the ids taken until `live` is lowered. Relaxed: the pusher's read of `base` happens before
         * the pop, by the id's byte, so no older base is found here. */
        base = frugal_load_relaxed(&q->base);
        *priority = base + (slot - base) % FRUGAL_PQ_SLOTS;
        frugal_add_release(&q->slots[slot].live, -(int64_t)taken); /* [PQ7] pairs with [PQ8] */
        return taken;
    }
}

FRUGAL_PQ_API uint64_t frugal_pq_min(const frugal_pq *q) {
    uint64_t base = frugal_pq_base(q);
    uint32_t slot = frugal_pq_first(q, (uint32_t)(base % FRUGAL_PQ_SLOTS), FRUGAL_PQ_SLOTS);
    return slot == FRUGAL_PQ_SLOTS ? FRUGAL_PQ_EMPTY : base + (slot - base) % FRUGAL_PQ_SLOTS;
}

FRUGAL_PQ_API frugal_pq_status frugal_pq_advance(frugal_pq *q, uint64_t base) {
    uint64_t old = frugal_load_relaxed(&q->base); /* relaxed: only this thread writes it */
    if (base < old || base > UINT64_MAX - FRUGAL_PQ_SLOTS) return FRUGAL_PQ_WINDOW;
    uint64_t leaving = base - old < FRUGAL_PQ_SLOTS ? base - old : FRUGAL_PQ_SLOTS;
    for (uint64_t i = 0; i < leaving; i++)
        if (frugal_load_acquire(&q->slots[(old + i) % FRUGAL_PQ_SLOTS].live) != 0) /* [PQ8] with [PQ6][PQ7] */
            return FRUGAL_PQ_LIVE;
    for (uint64_t i = 0; i < leaving; i++) frugal_pq_retire(q, (uint32_t)((old + i) % FRUGAL_PQ_SLOTS));
    frugal_store_release(&q->base, base); /* [PQ9] pairs with [PQ10] */
    return FRUGAL_PQ_OK;
}

FRUGAL_PQ_API uint64_t frugal_pq_base(const frugal_pq *q) {
    return frugal_load_acquire(&((frugal_pq *)(uintptr_t)q)->base); /* [PQ10] pairs with [PQ9] */
}

FRUGAL_PQ_API uint64_t frugal_pq_size(const frugal_pq *q) {
    int64_t size = 0; /* relaxed: counts that change while they are summed give a hint under any order */
    for (uint32_t s = 0; s < FRUGAL_PQ_SLOTS; s++)
        size += frugal_load_relaxed(&((frugal_pq *)(uintptr_t)q)->slots[s].live);
    return size > 0 ? (uint64_t)size : 0;
}

#endif /* FRUGAL_PQ_IMPLEMENTATION */
