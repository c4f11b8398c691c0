/* A MultiQueue (Rihani, Sanders, Dementiev: MultiQueues: simpler, faster, and better relaxed concurrent priority
 * queues, SPAA 2015; Debian has no library of it): two sequential heaps for each thread, each with a lock. An
 * insertion goes to a random heap; a deletion looks at two random ones, and takes from that with the lower front. A
 * thread that finds a heap locked draws anew. So threads seldom meet, and what is taken is near the lowest, but need
 * not be the lowest. One thread alone has one heap, which is exact.
 *
 * As in later versions (Williams, Sanders, Dementiev: Engineering MultiQueues, ESA 2021) a lock is held for several
 * operations. A heap cannot change a priority: an id that is adjusted is pushed once more, and one byte per id tells
 * which entry is the current one (lazy.h). A gate needs all that is due, so take looks at all fronts before it says
 * that nothing is. */
#include "bench/queues/lazy.h"
#include "bench/queues/queues.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace {

constexpr size_t AHEAD = 8, CHUNK = 64; /* operations while a lock is held */
constexpr int SPINS = 200;
constexpr uint32_t NOTHING = UINT32_MAX; /* the front of an empty heap */

struct heap {
    std::atomic<uint32_t> locked{0}, front{NOTHING}; /* the lowest priority, as a hint */
    std::vector<uint64_t> entries;                   /* priority in the high half, id in the low; the lowest first */
    char pad[128];

    bool try_lock() {
        return !locked.load(std::memory_order_relaxed) && !locked.exchange(1, std::memory_order_acquire);
    }
    void lock() {
        for (int spins = 0; !try_lock(); spins++)
            if (spins >= SPINS) std::this_thread::yield();
    }
    void unlock() {
        front.store(entries.empty() ? NOTHING : uint32_t(entries.front() >> 32), std::memory_order_relaxed);
        locked.store(0, std::memory_order_release);
    }
    void push(uint64_t entry) {
        entries.push_back(entry);
        std::push_heap(entries.begin(), entries.end(), std::greater<uint64_t>());
    }
    uint64_t pop() {
        std::pop_heap(entries.begin(), entries.end(), std::greater<uint64_t>());
        uint64_t entry = entries.back();
        entries.pop_back();
        return entry;
    }
};

struct drawer {
    uint64_t state;
    char pad[120];
};

struct multiqueue {
    size_t n;
    std::unique_ptr<heap[]> heaps;
    std::unique_ptr<bench_lazy[]> bytes;
    std::unique_ptr<drawer[]> drawers; /* a thread's */

    explicit multiqueue(const bench_queue_shape &shape)
        : n(shape.threads > 1 ? 2 * shape.threads : 1), heaps(new heap[n]), bytes(new bench_lazy[shape.ids]()),
          drawers(new drawer[shape.threads]()) {
        for (uint32_t t = 0; t < shape.threads; t++) drawers[t].state = t + 1;
    }

    heap &draw(uint32_t thread) {
        uint64_t &state = drawers[thread].state;
        state = state * 6364136223846793005u + 1442695040888963407u;
        return heaps[(state >> 33) % n];
    }

    heap &lock_any(uint32_t thread) {
        for (int spins = 0;; spins++) {
            heap &h = draw(thread);
            if (h.try_lock()) return h;
            if (spins >= SPINS) std::this_thread::yield();
        }
    }

    /* Takes the entries of the heap's lowest priority, at most CHUNK; gives the lock back. Those that are not current
     * are dropped. */
    size_t take_from(heap &h, uint64_t limit, uint32_t *ids) {
        size_t taken = 0;
        uint64_t lowest = h.entries.empty() ? NOTHING : h.entries.front() >> 32;
        for (size_t i = 0; i < CHUNK && !h.entries.empty() && lowest <= limit; i++) {
            if (h.entries.front() >> 32 != lowest) break;
            uint32_t id = uint32_t(h.pop());
            if (bench_lazy_take(&bytes[id], lowest)) ids[taken++] = id;
        }
        h.unlock();
        return taken;
    }
};

void *open_queue(const bench_queue_shape *shape) {
    try {
        return new multiqueue(*shape);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void enqueue(void *queue, uint32_t thread, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    multiqueue &q = *static_cast<multiqueue *>(queue);
    for (size_t at = 0; at < n; at += CHUNK) {
        heap &h = q.lock_any(thread);
        for (size_t i = at; i < n && i < at + CHUNK; i++) {
            if (i + AHEAD < n) BENCH_EXPECT(&q.bytes[ids[i + AHEAD]]);
            bench_lazy_queue(&q.bytes[ids[i]], priorities[i]);
            h.push(priorities[i] << 32 | ids[i]);
        }
        h.unlock();
    }
}

size_t adjust(void *queue, uint32_t thread, const uint32_t *ids, size_t n, uint64_t priority) {
    multiqueue &q = *static_cast<multiqueue *>(queue);
    size_t moved = 0;
    for (size_t at = 0; at < n; at += CHUNK) {
        heap &h = q.lock_any(thread);
        for (size_t i = at; i < n && i < at + CHUNK; i++) {
            if (i + AHEAD < n) BENCH_EXPECT(&q.bytes[ids[i + AHEAD]]);
            uint8_t before = bench_lazy_move(&q.bytes[ids[i]], priority);
            if (before && before != bench_lazy_byte(priority)) h.push(priority << 32 | ids[i]);
            moved += before != 0;
        }
        h.unlock();
    }
    return moved;
}

size_t take(void *queue, uint32_t thread, uint64_t limit, uint32_t *ids, int *due) {
    multiqueue &q = *static_cast<multiqueue *>(queue);
    *due = 1;
    for (int tries = 0; tries < 8; tries++) { /* of two heaps that with the lower front */
        heap &one = q.draw(thread), &other = q.draw(thread);
        uint32_t a = one.front.load(std::memory_order_relaxed), b = other.front.load(std::memory_order_relaxed);
        if (std::min(a, b) == NOTHING || std::min(a, b) > limit) break;
        heap &h = b < a ? other : one;
        if (!h.try_lock()) continue;
        if (size_t n = q.take_from(h, limit, ids)) return n;
    }
    for (size_t i = 0; i < q.n; i++) /* all of them, until nothing in them is due */
        for (int more = 1; more;) {
            q.heaps[i].lock();
            more = !q.heaps[i].entries.empty() && q.heaps[i].entries.front() >> 32 <= limit;
            if (size_t n = q.take_from(q.heaps[i], limit, ids)) return n;
        }
    *due = 0;
    return 0;
}

void advance(void *, uint64_t) {} /* nothing to do: the queue has no window */

void close_queue(void *queue) {
    delete static_cast<multiqueue *>(queue);
}

} // namespace

extern const bench_queue bench_queue_multiqueue = {"multiqueue", open_queue, enqueue,    adjust,
                                                   take,         advance,    close_queue};
