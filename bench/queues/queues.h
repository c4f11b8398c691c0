/* queues.h - the priority queues that bench_pq compares, each behind the same table of operations.
 *
 * All serve what P2F needs of a queue: ids below `ids`, an id queued at most once, priorities (steps) within a window
 * of 64. Operations come in batches, which each queue handles as it does best.
 */
#ifndef FRUGAL_BENCH_QUEUES_H
#define FRUGAL_BENCH_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prefetches the cache line at p, which will be written soon, as frugal_pq.h does. It is a macro because gcc 12 drops
 * calls of a function that only prefetches. */
#if defined(__x86_64__)
#define BENCH_EXPECT(p) __asm__ volatile("prefetchw %0" : : "m"(*(const unsigned char *)(p)))
#else
#define BENCH_EXPECT(p) __builtin_prefetch(p, 1)
#endif

enum { BENCH_TAKE = 256 }; /* ids that come from one take at most */

typedef struct bench_queue_shape {
    uint64_t ids;
    uint64_t entries; /* the most entries in the queue, including those that adjusting has made stale */
    uint64_t batches; /* the most batches that these come from: each may leave partly filled pages */
    uint32_t threads; /* numbered from 0 */
} bench_queue_shape;

/* A thread gives its own number. Any number of threads at a time, except that
 * - one id is enqueued and adjusted by one thread at a time, and enqueued only while it is not queued;
 * - one thread at a time advances; nothing below `base` may be queued then or later. */
typedef struct bench_queue {
    const char *name;
    void *(*open)(const bench_queue_shape *shape); /* NULL: no memory */
    /* Queues ids[n] at priorities[n]; visible to all when it returns. */
    void (*enqueue)(void *queue, uint32_t thread, const uint32_t *ids, const uint64_t *priorities, size_t n);
    /* Moves those of ids[n] that are queued to `priority`, and leaves the others alone; returns how many were
     * queued. */
    size_t (*adjust)(void *queue, uint32_t thread, const uint32_t *ids, size_t n, uint64_t priority);
    /* Takes some of the lowest into ids[BENCH_TAKE], and returns their number, which may be 0. *due becomes 0 if
     * nothing is queued at or below `limit` any more, except what other threads take at this moment. The call looks for
     * ids at or below `limit`; ids beyond it may come along. */
    size_t (*take)(void *queue, uint32_t thread, uint64_t limit, uint32_t *ids, int *due);
    void (*advance)(void *queue, uint64_t base);
    void (*close)(void *queue);
} bench_queue;

/* All of them, in the order in which bench_pq offers them. To add one: a file whose table of operations is called
 * bench_queue_NAME, its object in ninja/flavour.ninja, and a line here. Programs and tests then have it. */
#define BENCH_QUEUES(X)                                                                                                \
    X(frugal, "frugal")           /* frugal_pq.h */                                                                    \
    X(paper, "paper")             /* FRUGAL's: a priority index over concurrent hash tables */                         \
    X(treeheap, "treeheap")       /* binary heap, a lock a node */                                                     \
    X(tbb, "tbb")                 /* TBB's concurrent_priority_queue */                                                \
    X(mutex, "mutex")             /* binary heap with position map under one mutex, held for 64 operations */          \
    X(mutex_batch, "mutex-batch") /* ... held for a whole batch */                                                     \
    X(calendar, "calendar")       /* a ring of TBB's concurrent FIFO queues, of pages */                               \
    X(multiqueue, "multiqueue")   /* two heaps for each thread, of which the fronts are compared at random */          \
    X(frugal_30, "frugal-30")     /* frugal_pq.h with pages of so many ids; so the next ones */                        \
    X(frugal_126, "frugal-126")                                                                                        \
    X(frugal_254, "frugal-254")

#define BENCH_QUEUE_DECLARED(queue, name) extern const bench_queue bench_queue_##queue;
BENCH_QUEUES(BENCH_QUEUE_DECLARED)
#define BENCH_QUEUE_LISTED(queue, name) &bench_queue_##queue, /* in an array of tables */
#define BENCH_QUEUE_NAMED(queue, name)  name,                 /* in an array of names */

#ifdef __cplusplus
}
#endif
#endif
