/* treeheap.h - a binary heap with one lock per node, which many threads enter at once (Hunt, Michael, Parthasarathy,
 * Scott: An efficient algorithm for concurrent priority queue heaps, IPL 60, 1996): the paper's baseline TreeHeap.
 *
 * Insertions climb from their leaf and lock a node and its parent at a time. They start at leaves whose numbers are
 * bit-reversed, so that consecutive insertions have different paths to the root. Deletions go down from the root, hand
 * over hand. An entry on its way up carries its thread's tag; if the thread does not find the entry where it left it, a
 * deletion has moved the entry up. A lock is a byte of the node; a thread that waits spins, and yields after a while.
 *
 * Other threads move entries between nodes, so a map from ids to nodes would cost each exchange two more writes under
 * lock. Instead, an id whose priority changes is inserted once more, and the caller must be able to tell which entry is
 * stale.
 */
#ifndef FRUGAL_BENCH_QUEUES_TREEHEAP_H
#define FRUGAL_BENCH_QUEUES_TREEHEAP_H

#include "bench/barrier.h"
#include "bench/queues/queues.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { TREE_SOON = 4, TREE_SPINS = 200 };
enum { TREE_EMPTY, TREE_SETTLED, TREE_CLIMBING }; /* tags; TREE_CLIMBING + thread */

typedef struct tree_node { /* four in a cache line: siblings are locked together anyway */
    uint32_t priority, id;
    uint32_t tag;
    uint32_t locked;
} tree_node;

typedef struct tree {
    tree_node *nodes; /* [1 + capacity]; 1 is the root */
    uint64_t capacity;
    uint8_t pad[64];
    uint32_t locked; /* guards `n` */
    uint64_t n;
} tree;

/* Levels that are whole, for `entries`; bytes are tree_bytes(). */
static inline uint64_t tree_capacity(uint64_t entries) {
    uint64_t nodes = 1;
    while (nodes <= entries) nodes *= 2;
    return nodes - 1;
}

static inline size_t tree_bytes(uint64_t entries) {
    return (tree_capacity(entries) + 1) * sizeof(tree_node);
}

/* `memory` has tree_bytes(entries), aligned to a cache line. */
static inline void tree_init(tree *t, void *memory, uint64_t entries) {
    memset(t, 0, sizeof *t);
    memset(memory, 0, tree_bytes(entries));
    t->nodes = memory;
    t->capacity = tree_capacity(entries);
}

static inline void tree_lock(uint32_t *locked) {
    for (int spins = 0; __atomic_exchange_n(locked, 1, __ATOMIC_ACQUIRE);)
        while (__atomic_load_n(locked, __ATOMIC_RELAXED))
            if (++spins % TREE_SPINS == 0)
                sched_yield();
            else
                bench_pause();
}

static inline void tree_unlock(uint32_t *locked) {
    __atomic_store_n(locked, 0, __ATOMIC_RELEASE);
}

/* The nth leaf to be filled: the bits below the highest one reversed. */
static inline uint64_t tree_place(uint64_t n) {
    uint32_t top = 31 - (uint32_t)__builtin_clz((uint32_t)n), bits = (uint32_t)n;
    bits = (bits >> 1 & 0x55555555) | (bits & 0x55555555) << 1;
    bits = (bits >> 2 & 0x33333333) | (bits & 0x33333333) << 2;
    bits = (bits >> 4 & 0x0f0f0f0f) | (bits & 0x0f0f0f0f) << 4;
    bits = __builtin_bswap32(bits);
    return UINT64_C(1) << top | bits >> 1 >> (31 - top);
}

/* Exchanges what two nodes hold. */
static inline void tree_exchange(tree_node *a, tree_node *b) {
    uint32_t priority = a->priority, id = a->id, tag = a->tag;
    a->priority = b->priority, a->id = b->id, a->tag = b->tag;
    b->priority = priority, b->id = id, b->tag = tag;
}

/* One step up from `at`; returns where to go on, 0: nowhere. */
static inline uint64_t tree_climb(tree *t, uint64_t at, uint32_t mine) {
    tree_node *parent = &t->nodes[at / 2], *child = &t->nodes[at];
    uint64_t next = at;
    tree_lock(&parent->locked);
    tree_lock(&child->locked);
    if (parent->tag == TREE_SETTLED && child->tag == mine) {
        if (child->priority < parent->priority) {
            tree_exchange(child, parent);
            next = at / 2;
        } else {
            child->tag = TREE_SETTLED;
            next = 0;
        }
    } else if (parent->tag == TREE_EMPTY)
        next = 0;
    else if (child->tag != mine)
        next = at / 2;
    tree_unlock(&child->locked);
    tree_unlock(&parent->locked);
    return next;
}

/* Consecutive leaves lie far apart, so this prefetches one that will be filled or emptied soon, and its parent. */
static inline void tree_expect(const tree *t, uint64_t n) {
    uint64_t at = tree_place(n);
    if (at > t->capacity) return;
    BENCH_EXPECT(&t->nodes[at]);
    BENCH_EXPECT(&t->nodes[at / 2]);
}

/* `thread` is a number that no other thread has which inserts at the same time. */
static inline void tree_insert(tree *t, uint32_t thread, uint32_t id, uint64_t priority) {
    uint32_t mine = TREE_CLIMBING + thread;
    tree_lock(&t->locked);
    if (++t->n > t->capacity) abort();
    uint64_t n = t->n, at = tree_place(n);
    tree_lock(&t->nodes[at].locked);
    tree_unlock(&t->locked);
    tree_expect(t, n + TREE_SOON);
    t->nodes[at].priority = (uint32_t)priority, t->nodes[at].id = id, t->nodes[at].tag = mine;
    tree_unlock(&t->nodes[at].locked);
    for (uint64_t next, waits = 0; at > 1; at = next) {
        next = tree_climb(t, at, mine);
        if (next == at && ++waits % TREE_SPINS == 0)
            sched_yield(); /* the parent climbs, and its thread is not running */
    }
    if (at == 0) return;
    tree_lock(&t->nodes[1].locked);
    if (t->nodes[1].tag == mine) t->nodes[1].tag = TREE_SETTLED;
    tree_unlock(&t->nodes[1].locked);
}

/* Lets the root's entry sink; the root is locked, and its lock goes down with the entry. */
static inline void tree_sink(tree *t) {
    uint64_t at = 1;
    while (2 * at < t->capacity) {
        tree_node *here = &t->nodes[at], *left = &t->nodes[2 * at], *right = left + 1;
        if (4 * at < t->capacity) BENCH_EXPECT(&t->nodes[4 * at]);
        tree_lock(&left->locked);
        tree_lock(&right->locked);
        if (left->tag == TREE_EMPTY) {
            tree_unlock(&right->locked);
            tree_unlock(&left->locked);
            break;
        }
        int go_left = right->tag == TREE_EMPTY || left->priority < right->priority;
        tree_node *child = go_left ? left : right;
        tree_unlock(go_left ? &right->locked : &left->locked);
        if (child->priority >= here->priority) {
            tree_unlock(&child->locked);
            break;
        }
        tree_exchange(child, here);
        tree_unlock(&here->locked);
        at = 2 * at + !go_left;
    }
    tree_unlock(&t->nodes[at].locked);
}

/* Takes the lowest entry; 0: there is none. While others insert, a lower one may be on its way up. */
static inline int tree_remove_lowest(tree *t, tree_node *lowest) {
    tree_lock(&t->locked);
    if (t->n == 0) {
        tree_unlock(&t->locked);
        return 0;
    }
    uint64_t n = t->n--;
    tree_node *bottom = &t->nodes[tree_place(n)], *root = &t->nodes[1];
    tree_lock(&bottom->locked);
    tree_unlock(&t->locked);
    if (n > TREE_SOON) tree_expect(t, n - TREE_SOON);
    lowest->priority = bottom->priority, lowest->id = bottom->id;
    bottom->tag = TREE_EMPTY;
    tree_unlock(&bottom->locked);
    tree_lock(&root->locked);
    if (root->tag == TREE_EMPTY) { /* it was the bottom */
        tree_unlock(&root->locked);
        return 1;
    }
    tree_node last = {.priority = lowest->priority, .id = lowest->id};
    lowest->priority = root->priority, lowest->id = root->id;
    root->priority = last.priority, root->id = last.id, root->tag = TREE_SETTLED;
    tree_sink(t);
    return 1;
}

/* Is the root's priority at most `limit`? */
static inline int tree_is_due(tree *t, uint64_t limit) {
    tree_node *root = &t->nodes[1];
    tree_lock(&root->locked);
    int due = root->tag != TREE_EMPTY && root->priority <= limit;
    tree_unlock(&root->locked);
    return due;
}

#endif
