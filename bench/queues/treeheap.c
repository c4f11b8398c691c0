/* A binary heap with one lock per node, which many threads enter at once (Hunt, Michael, Parthasarathy, Scott: An
 * efficient algorithm for concurrent priority queue heaps, IPL 60, 1996): the paper's baseline TreeHeap.
 *
 * Insertions climb from their leaf and lock a node and its parent at a time; they start at leaves whose numbers are
 * bit-reversed, so that consecutive insertions have different paths to the root. Deletions go down from the root, hand
 * over hand. An entry on its way up carries its thread's tag; if the thread does not find the entry where it left it, a
 * deletion has moved the entry up. A lock is a byte of the node; a thread that waits spins, and yields after a while.
 *
 * Other threads move entries between nodes, so a map from ids to nodes would cost each exchange two more writes under
 * lock. Instead, an id that is adjusted is inserted once more (lazy.h).
 */
#include "bench/barrier.h"
#include "bench/queues/lazy.h"
#include "bench/queues/queues.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { AHEAD = 8, SOON = 4, SPINS = 200 };
enum { EMPTY, SETTLED, CLIMBING }; /* tags; CLIMBING + thread */

typedef struct node { /* four in a cache line: siblings are locked together anyway */
    uint32_t priority, id;
    uint32_t tag;
    uint32_t locked;
} node;

typedef struct tree {
    node *nodes; /* [1 + capacity]; 1 is the root */
    bench_lazy *bytes;
    uint64_t capacity;
    uint8_t pad[64];
    uint32_t locked; /* guards `n` */
    uint64_t n;
} tree;

static inline void lock(uint32_t *locked) {
    for (int spins = 0; __atomic_exchange_n(locked, 1, __ATOMIC_ACQUIRE);)
        while (__atomic_load_n(locked, __ATOMIC_RELAXED))
            if (++spins % SPINS == 0)
                sched_yield();
            else
                bench_pause();
}

static inline void unlock(uint32_t *locked) {
    __atomic_store_n(locked, 0, __ATOMIC_RELEASE);
}

/* The nth leaf to be filled: the bits below the highest one reversed. */
static inline uint64_t place(uint64_t n) {
    uint32_t top = 31 - (uint32_t)__builtin_clz((uint32_t)n), bits = (uint32_t)n;
    bits = (bits >> 1 & 0x55555555) | (bits & 0x55555555) << 1;
    bits = (bits >> 2 & 0x33333333) | (bits & 0x33333333) << 2;
    bits = (bits >> 4 & 0x0f0f0f0f) | (bits & 0x0f0f0f0f) << 4;
    bits = __builtin_bswap32(bits);
    return UINT64_C(1) << top | bits >> 1 >> (31 - top);
}

/* Exchanges what two nodes hold. */
static inline void exchange(node *a, node *b) {
    uint32_t priority = a->priority, id = a->id, tag = a->tag;
    a->priority = b->priority, a->id = b->id, a->tag = b->tag;
    b->priority = priority, b->id = id, b->tag = tag;
}

/* One step up from `at`; returns where to go on, 0: nowhere. */
static uint64_t climb(tree *t, uint64_t at, uint32_t mine) {
    node *parent = &t->nodes[at / 2], *child = &t->nodes[at];
    uint64_t next = at;
    lock(&parent->locked);
    lock(&child->locked);
    if (parent->tag == SETTLED && child->tag == mine) {
        if (child->priority < parent->priority) {
            exchange(child, parent);
            next = at / 2;
        } else {
            child->tag = SETTLED;
            next = 0;
        }
    } else if (parent->tag == EMPTY)
        next = 0;
    else if (child->tag != mine)
        next = at / 2;
    unlock(&child->locked);
    unlock(&parent->locked);
    return next;
}

/* Consecutive leaves lie far apart, so this prefetches one that will be filled or emptied soon, and its parent. */
static inline void expect(const tree *t, uint64_t n) {
    uint64_t at = place(n);
    if (at > t->capacity) return;
    BENCH_EXPECT(&t->nodes[at]);
    BENCH_EXPECT(&t->nodes[at / 2]);
}

static void insert(tree *t, uint32_t thread, uint32_t id, uint64_t priority) {
    uint32_t mine = CLIMBING + thread;
    lock(&t->locked);
    if (++t->n > t->capacity) abort();
    uint64_t n = t->n, at = place(n);
    lock(&t->nodes[at].locked);
    unlock(&t->locked);
    expect(t, n + SOON);
    t->nodes[at].priority = (uint32_t)priority, t->nodes[at].id = id, t->nodes[at].tag = mine;
    unlock(&t->nodes[at].locked);
    for (uint64_t next, waits = 0; at > 1; at = next) {
        next = climb(t, at, mine);
        if (next == at && ++waits % SPINS == 0) sched_yield(); /* the parent climbs, and its thread is not running */
    }
    if (at == 0) return;
    lock(&t->nodes[1].locked);
    if (t->nodes[1].tag == mine) t->nodes[1].tag = SETTLED;
    unlock(&t->nodes[1].locked);
}

/* Lets the root's entry sink; the root is locked, and its lock goes down with the entry. */
static void sink(tree *t) {
    uint64_t at = 1;
    while (2 * at < t->capacity) {
        node *here = &t->nodes[at], *left = &t->nodes[2 * at], *right = left + 1;
        if (4 * at < t->capacity) BENCH_EXPECT(&t->nodes[4 * at]);
        lock(&left->locked);
        lock(&right->locked);
        if (left->tag == EMPTY) {
            unlock(&right->locked);
            unlock(&left->locked);
            break;
        }
        int go_left = right->tag == EMPTY || left->priority < right->priority;
        node *child = go_left ? left : right;
        unlock(go_left ? &right->locked : &left->locked);
        if (child->priority >= here->priority) {
            unlock(&child->locked);
            break;
        }
        exchange(child, here);
        unlock(&here->locked);
        at = 2 * at + !go_left;
    }
    unlock(&t->nodes[at].locked);
}

/* Takes the lowest entry; 0: there is none. */
static int remove_lowest(tree *t, node *lowest) {
    lock(&t->locked);
    if (t->n == 0) {
        unlock(&t->locked);
        return 0;
    }
    uint64_t n = t->n--;
    node *bottom = &t->nodes[place(n)], *root = &t->nodes[1];
    lock(&bottom->locked);
    unlock(&t->locked);
    if (n > SOON) expect(t, n - SOON);
    lowest->priority = bottom->priority, lowest->id = bottom->id;
    bottom->tag = EMPTY;
    unlock(&bottom->locked);
    lock(&root->locked);
    if (root->tag == EMPTY) { /* it was the bottom */
        unlock(&root->locked);
        return 1;
    }
    node last = {.priority = lowest->priority, .id = lowest->id};
    lowest->priority = root->priority, lowest->id = root->id;
    root->priority = last.priority, root->id = last.id, root->tag = SETTLED;
    sink(t);
    return 1;
}

static int is_due(tree *t, uint64_t limit) {
    node *root = &t->nodes[1];
    lock(&root->locked);
    int due = root->tag != EMPTY && root->priority <= limit;
    unlock(&root->locked);
    return due;
}

/* >>operations */

static void close_queue(void *queue) {
    tree *t = queue;
    free(t->nodes);
    free(t->bytes);
    free(t);
}

static void *open_queue(const bench_queue_shape *shape) {
    tree *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    for (t->capacity = 1; t->capacity <= shape->entries; t->capacity *= 2) continue; /* all of a level */
    t->nodes = aligned_alloc(64, t->capacity * sizeof *t->nodes);
    if (t->nodes) memset(t->nodes, 0, t->capacity * sizeof *t->nodes);
    t->bytes = calloc(shape->ids, sizeof *t->bytes);
    t->capacity--;
    if (t->nodes && t->bytes) return t;
    close_queue(t);
    return NULL;
}

static void enqueue(void *queue, uint32_t thread, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    tree *t = queue;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&t->bytes[ids[i + AHEAD]]);
        bench_lazy_queue(&t->bytes[ids[i]], priorities[i]);
        insert(t, thread, ids[i], priorities[i]);
    }
}

static size_t adjust(void *queue, uint32_t thread, const uint32_t *ids, size_t n, uint64_t priority) {
    tree *t = queue;
    size_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&t->bytes[ids[i + AHEAD]]);
        uint8_t before = bench_lazy_move(&t->bytes[ids[i]], priority);
        if (before && before != bench_lazy_byte(priority)) insert(t, thread, ids[i], priority);
        moved += before != 0;
    }
    return moved;
}

static size_t take(void *queue, uint32_t thread, uint64_t limit, uint32_t *ids, int *due) {
    enum { MOST = 64 };
    tree *t = queue;
    node entry;
    size_t n = 0;
    (void)thread;
    *due = 1;
    while (n < MOST && (*due = (limit == UINT64_MAX || is_due(t, limit)) && remove_lowest(t, &entry)))
        if (bench_lazy_take(&t->bytes[entry.id], entry.priority)) ids[n++] = entry.id;
    return n;
}

static void advance(void *queue, uint64_t base) { /* nothing to do: the tree has no window */
    (void)queue;
    (void)base;
}

const bench_queue bench_queue_treeheap = {"treeheap", open_queue, enqueue, adjust, take, advance, close_queue};
