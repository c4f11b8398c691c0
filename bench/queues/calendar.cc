/* A calendar: a ring of 64 of TBB's concurrent FIFO queues, one for each priority of the window, and one byte per id
 * that says where the id is queued (lazy.h): what one builds of parts that are there.
 *
 * With an element for each id it is several times slower. So elements are pages of as many ids as in frugal_pq.h, which
 * each thread fills for itself. What is left of the difference is TBB's queue in place of a stack of pages: it is in
 * order, which P2F does not ask for, and it allocates memory while it grows. */
#include "bench/queues/lazy.h"
#include "bench/queues/queues.h"

#include <tbb/concurrent_queue.h>

#include <atomic>
#include <memory>
#include <new>

namespace {

constexpr size_t SLOTS = 64, AHEAD = 8, PAGE_IDS = 62;

struct page {
    uint32_t n, ids[PAGE_IDS];
};

#ifdef FRUGAL_SANITIZED /* TBB's allocator orders what ThreadSanitizer cannot see */
using fifo = tbb::concurrent_queue<page, std::allocator<page>>;
#else
using fifo = tbb::concurrent_queue<page>;
#endif

struct producer {
    page open[SLOTS];
    uint64_t used; /* a bit for each page that is not empty */
    char pad[128];
};

struct calendar {
    std::atomic<uint64_t> base{0};
    char pad[120];
    fifo slots[SLOTS];
    std::unique_ptr<bench_lazy[]> bytes;
    std::unique_ptr<producer[]> producers;

    explicit calendar(const bench_queue_shape &shape)
        : bytes(new bench_lazy[shape.ids]()), producers(new producer[shape.threads]()) {}

    void put(producer &p, uint32_t id, uint64_t slot) {
        page &open = p.open[slot];
        open.ids[open.n++] = id;
        p.used |= uint64_t(1) << slot;
        if (open.n == PAGE_IDS) publish(p, slot);
    }

    void publish(producer &p, uint64_t slot) {
        slots[slot].push(p.open[slot]);
        p.open[slot].n = 0;
        p.used &= ~(uint64_t(1) << slot);
    }

    void publish_all(producer &p) {
        while (p.used) publish(p, static_cast<uint64_t>(__builtin_ctzll(p.used)));
    }

    /* The ids of a page that are queued at this priority; the others are stale. */
    size_t take_queued(const page &taken, uint64_t priority, uint32_t *ids) {
        size_t n = 0;
        for (uint32_t i = 0; i < taken.n; i++) BENCH_EXPECT(&bytes[taken.ids[i]]);
        for (uint32_t i = 0; i < taken.n; i++)
            if (bench_lazy_take(&bytes[taken.ids[i]], priority)) ids[n++] = taken.ids[i];
        return n;
    }
};

void *open_queue(const bench_queue_shape *shape) {
    try {
        return new calendar(*shape);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void enqueue(void *queue, uint32_t thread, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    calendar &q = *static_cast<calendar *>(queue);
    producer &p = q.producers[thread];
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&q.bytes[ids[i + AHEAD]]);
        bench_lazy_queue(&q.bytes[ids[i]], priorities[i]);
        q.put(p, ids[i], priorities[i] % SLOTS);
    }
    q.publish_all(p);
}

size_t adjust(void *queue, uint32_t thread, const uint32_t *ids, size_t n, uint64_t priority) {
    calendar &q = *static_cast<calendar *>(queue);
    producer &p = q.producers[thread];
    size_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) BENCH_EXPECT(&q.bytes[ids[i + AHEAD]]);
        uint8_t before = bench_lazy_move(&q.bytes[ids[i]], priority);
        if (before && before != bench_lazy_byte(priority)) q.put(p, ids[i], priority % SLOTS);
        moved += before != 0;
    }
    q.publish_all(p);
    return moved;
}

size_t take(void *queue, uint32_t, uint64_t limit, uint32_t *ids, int *due) {
    calendar &q = *static_cast<calendar *>(queue);
    const uint64_t base = q.base.load(std::memory_order_acquire);
    page taken;
    taken.n = 0;
    *due = 1;
    for (uint64_t priority = base; priority < base + SLOTS && priority <= limit; priority++)
        while (q.slots[priority % SLOTS].try_pop(taken))
            if (size_t n = q.take_queued(taken, priority, ids)) return n;
    *due = 0;
    return 0;
}

/* What is left in the slots below `base` is stale, and would be taken for ids of the priorities that come there. */
void advance(void *queue, uint64_t base) {
    calendar &q = *static_cast<calendar *>(queue);
    page stale;
    for (uint64_t before = q.base.load(std::memory_order_relaxed); before < base; before++)
        while (q.slots[before % SLOTS].try_pop(stale)) continue;
    q.base.store(base, std::memory_order_release);
}

void close_queue(void *queue) {
    delete static_cast<calendar *>(queue);
}

} // namespace

extern const bench_queue bench_queue_calendar = {"calendar", open_queue, enqueue, adjust, take, advance, close_queue};
