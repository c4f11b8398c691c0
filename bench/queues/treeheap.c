/* TreeHeap as one of the queues that are compared; lazy.h tells which entry of an id is the true one. */
#include "bench/queues/lazy.h"
#include "bench/queues/treeheap.h"

enum { AHEAD = 8 };

typedef struct queue {
    tree entries;
    tree_node *nodes;
    bench_lazy *bytes;
} queue;

static void close_queue(void *opened) {
    queue *q = opened;
    free(q->nodes);
    free(q->bytes);
    free(q);
}

static void *open_queue(const bench_queue_shape *shape) {
    queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->nodes = aligned_alloc(64, tree_bytes(shape->entries));
    q->bytes = calloc(shape->ids, sizeof *q->bytes);
    if (!q->nodes || !q->bytes) {
        close_queue(q);
        return NULL;
    }
    tree_init(&q->entries, q->nodes, shape->entries);
    return q;
}

static void enqueue(void *opened, uint32_t thread, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    queue *q = opened;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&q->bytes[ids[i + AHEAD]]);
        bench_lazy_queue(&q->bytes[ids[i]], priorities[i]);
        tree_insert(&q->entries, thread, ids[i], priorities[i]);
    }
}

static size_t adjust(void *opened, uint32_t thread, const uint32_t *ids, size_t n, uint64_t priority) {
    queue *q = opened;
    size_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&q->bytes[ids[i + AHEAD]]);
        uint8_t before = bench_lazy_move(&q->bytes[ids[i]], priority);
        if (before && before != bench_lazy_byte(priority)) tree_insert(&q->entries, thread, ids[i], priority);
        moved += before != 0;
    }
    return moved;
}

static size_t take(void *opened, uint32_t thread, uint64_t limit, uint32_t *ids, int *due) {
    enum { MOST = 64 };
    queue *q = opened;
    tree_node entry;
    size_t n = 0;
    (void)thread;
    *due = 1;
    while (n < MOST &&
           (*due = (limit == UINT64_MAX || tree_is_due(&q->entries, limit)) && tree_remove_lowest(&q->entries, &entry)))
        if (bench_lazy_take(&q->bytes[entry.id], entry.priority)) ids[n++] = entry.id;
    return n;
}

static void advance(void *opened, uint64_t base) { /* nothing to do: the tree has no window */
    (void)opened;
    (void)base;
}

const bench_queue bench_queue_treeheap = {"treeheap", open_queue, enqueue, adjust, take, advance, close_queue};
