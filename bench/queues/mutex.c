/* A binary heap that knows where each id is, under one mutex: what a trainer would write first.
 *
 * It is compiled twice: holding the mutex for 64 operations, and for a whole batch, which is the fastest for two
 * threads (with a lock per operation: half the speed). The mutex spins before it sleeps. The heap compares priorities
 * only (ids that are equally urgent need no order), moves holes instead of swapping, and prefetches what it needs of
 * the map and of the levels below.
 */
#ifndef BENCH_MUTEX
#define BENCH_MUTEX       bench_queue_mutex
#define BENCH_MUTEX_NAME  "mutex"
#define BENCH_MUTEX_CHUNK 64 /* operations while the mutex is held */
#endif

#include "bench/queues/queues.h"

#include <pthread.h>
#include <stdlib.h>

enum { AHEAD = 8, SOON = 4 };

typedef struct heap {
    pthread_mutex_t lock;
    uint64_t n;
    uint64_t *entries; /* [1 + n], on whole lines: priority in the high half, id in the low; 1 is the root */
    uint32_t *at;      /* [ids]: where the id is; 0: nowhere */
} heap;

static inline uint32_t priority_of(uint64_t entry) {
    return (uint32_t)(entry >> 32);
}

static inline void set(heap *h, uint64_t at, uint64_t entry) {
    h->entries[at] = entry;
    h->at[(uint32_t)entry] = (uint32_t)at;
}

static void sift_up(heap *h, uint64_t at, uint64_t entry) {
    for (; at > 1 && priority_of(h->entries[at / 2]) > priority_of(entry); at /= 2) set(h, at, h->entries[at / 2]);
    set(h, at, entry);
}

static void sift_down(heap *h, uint64_t at, uint64_t entry) {
    uint64_t n = h->n; /* a copy, because the compiler cannot know that no store to an entry changes it */
    for (uint64_t child; (child = 2 * at) <= n; at = child) {
        if (16 * at <= n) { /* prefetches the sixteen entries four levels below: a third more operations */
            __builtin_prefetch(&h->entries[16 * at]);
            __builtin_prefetch(&h->entries[16 * at + 8]);
        }
        if (child < n) child += priority_of(h->entries[child + 1]) < priority_of(h->entries[child]);
        if (priority_of(h->entries[child]) >= priority_of(entry)) break;
        set(h, at, h->entries[child]);
    }
    set(h, at, entry);
}

/* Prefetches the entry of an id that will be adjusted, and the entries above it. */
static inline void expect(const heap *h, uint32_t id) {
    for (uint32_t at = h->at[id], levels = 4; levels-- > 0; at /= 2) BENCH_EXPECT(&h->entries[at]);
}

static void close_queue(void *queue) {
    heap *h = queue;
    pthread_mutex_destroy(&h->lock);
    free(h->entries);
    free(h->at);
    free(h);
}

static void *open_queue(const bench_queue_shape *shape) {
    heap *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&h->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    h->entries = aligned_alloc(64, (shape->ids + 8) / 8 * 64); /* ids + 1, in lines of 8 */
    h->at = calloc(shape->ids, sizeof *h->at);
    if (h->entries && h->at) return h;
    close_queue(h);
    return NULL;
}

static size_t chunk_end(size_t i, size_t n) {
    return n - i > BENCH_MUTEX_CHUNK ? i + BENCH_MUTEX_CHUNK : n;
}

static void enqueue(void *queue, uint32_t thread, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    heap *h = queue;
    (void)thread;
    for (size_t i = 0; i < n;) {
        size_t end = chunk_end(i, n);
        pthread_mutex_lock(&h->lock);
        for (; i < end; i++) {
            if (i + AHEAD < n) BENCH_EXPECT(&h->at[ids[i + AHEAD]]);
            h->n++;
            sift_up(h, h->n, priorities[i] << 32 | ids[i]);
        }
        pthread_mutex_unlock(&h->lock);
    }
}

static size_t adjust(void *queue, uint32_t thread, const uint32_t *ids, size_t n, uint64_t priority) {
    heap *h = queue;
    (void)thread;
    size_t moved = 0;
    for (size_t i = 0; i < n;) {
        size_t end = chunk_end(i, n);
        pthread_mutex_lock(&h->lock);
        for (; i < end; i++) {
            if (i + AHEAD < n) BENCH_EXPECT(&h->at[ids[i + AHEAD]]);
            if (i + SOON < end) expect(h, ids[i + SOON]); /* what it reads changes while others have the mutex */
            uint32_t at = h->at[ids[i]];
            if (at == 0) continue;
            uint64_t entry = priority << 32 | ids[i];
            moved++;
            if (priority_of(h->entries[at]) > priority)
                sift_up(h, at, entry);
            else
                sift_down(h, at, entry);
        }
        pthread_mutex_unlock(&h->lock);
    }
    return moved;
}

static size_t take(void *queue, uint32_t thread, uint64_t limit, uint32_t *ids, int *due) {
    heap *h = queue;
    (void)thread;
    size_t n = 0;
    pthread_mutex_lock(&h->lock);
    size_t most = BENCH_MUTEX_CHUNK < BENCH_TAKE ? BENCH_MUTEX_CHUNK : BENCH_TAKE;
    for (; n < most && h->n > 0 && priority_of(h->entries[1]) <= limit; n++) {
        ids[n] = (uint32_t)h->entries[1];
        h->at[ids[n]] = 0;
        uint64_t last = h->entries[h->n--];
        if (h->n > 0) sift_down(h, 1, last);
    }
    *due = n == most;
    pthread_mutex_unlock(&h->lock);
    return n;
}

static void advance(void *queue, uint64_t base) { /* nothing to do: the heap has no window */
    (void)queue;
    (void)base;
}

const bench_queue BENCH_MUTEX = {BENCH_MUTEX_NAME, open_queue, enqueue, adjust, take, advance, close_queue};
