/* TBB's concurrent_priority_queue. It cannot change a priority: an id that is adjusted is pushed once more, and one
 * byte per id tells which entry is the current one (lazy.h). It cannot look at the front, either: taking at the gate
 * ends with the first entry that is due later. Entries compare by priority alone, which moves fewer of them. */
#include "bench/queues/lazy.h"
#include "bench/queues/queues.h"

#include <tbb/concurrent_priority_queue.h>

#include <memory>
#include <new>

namespace {

enum { AHEAD = 8 };

struct later {
    bool operator()(uint64_t a, uint64_t b) const {
        return a >> 32 > b >> 32;
    }
};

struct tbb_queue {
    tbb::concurrent_priority_queue<uint64_t, later> entries; /* priority in the high half, id in the low */
    std::unique_ptr<bench_lazy[]> bytes;

    explicit tbb_queue(const bench_queue_shape &shape) : entries(shape.entries), bytes(new bench_lazy[shape.ids]()) {}
};

void *open_queue(const bench_queue_shape *shape) {
    try {
        return new tbb_queue(*shape);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void enqueue(void *queue, uint32_t, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    tbb_queue &q = *static_cast<tbb_queue *>(queue);
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&q.bytes[ids[i + AHEAD]]);
        bench_lazy_queue(&q.bytes[ids[i]], priorities[i]);
        q.entries.push(priorities[i] << 32 | ids[i]);
    }
}

size_t adjust(void *queue, uint32_t, const uint32_t *ids, size_t n, uint64_t priority) {
    tbb_queue &q = *static_cast<tbb_queue *>(queue);
    size_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&q.bytes[ids[i + AHEAD]]);
        uint8_t before = bench_lazy_move(&q.bytes[ids[i]], priority);
        if (before && before != bench_lazy_byte(priority)) q.entries.push(priority << 32 | ids[i]);
        moved += before != 0;
    }
    return moved;
}

size_t take(void *queue, uint32_t, uint64_t limit, uint32_t *ids, int *due) {
    tbb_queue &q = *static_cast<tbb_queue *>(queue);
    uint64_t entry, last = 0;
    size_t n = 0;
    *due = 1;
    while (n < 64 && last <= limit && (*due = q.entries.try_pop(entry))) {
        last = entry >> 32;
        if (bench_lazy_take(&q.bytes[static_cast<uint32_t>(entry)], last)) ids[n++] = static_cast<uint32_t>(entry);
    }
    *due = *due && last <= limit;
    return n;
}

void advance(void *, uint64_t) {} /* nothing to do: the queue has no window */

void close_queue(void *queue) {
    delete static_cast<tbb_queue *>(queue);
}

} // namespace

extern const bench_queue bench_queue_tbb = {"tbb", open_queue, enqueue, adjust, take, advance, close_queue};
