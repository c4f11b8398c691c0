/* FRUGAL's own design (Xie et al., ASPLOS '25, section 3.4): a priority index over concurrent hash tables, one per
 * priority; a table is TBB's concurrent_hash_map.
 *
 * Adjusting inserts an id into the table of its new priority and then erases it from the old one, so that it is always
 * found; one byte per id (lazy.h) tells a thread that takes the id whether the entry is current. The index is a ring of
 * 64, as in frugal_pq.h, where the paper has as many tables as the training has steps; so the scan is short even
 * without a range.
 *
 * A priority that enters the window gets a table with buckets for all ids that may be queued at one priority. A table
 * that is exchanged is replaced by one for as many ids as it held. This gives a tenth more operations than tables that
 * grow.
 *
 * concurrent_hash_map cannot be walked while others change it. So a thread that wants to take from a table exchanges it
 * for an empty one, under a lock that all others share and hold for a chunk of operations at a time. It walks over the
 * old table alone and lays its ids out; all takers of this priority share them by a counter. So an id costs a part of
 * one walk and one bulk deletion, instead of its own search and erasure.
 */
#include "bench/queues/lazy.h"
#include "bench/queues/queues.h"

#include <tbb/concurrent_hash_map.h>
#include <tbb/spin_rw_mutex.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr size_t SLOTS = 64, CHUNK = 64, AHEAD = 8;

struct nothing {}; /* in the paper this is the row's g-entry; here it is the byte */

#ifdef FRUGAL_SANITIZED /* TBB's allocator orders what ThreadSanitizer cannot see */
using table = tbb::concurrent_hash_map<uint32_t, nothing, tbb::tbb_hash_compare<uint32_t>,
                                       std::allocator<std::pair<const uint32_t, nothing>>>;
#else
using table = tbb::concurrent_hash_map<uint32_t, nothing>; /* nodes from TBB's own allocator */
#endif
using shared = tbb::spin_rw_mutex::scoped_lock;

struct slot {
    std::unique_ptr<table> ids;
    std::vector<uint32_t> laid_out; /* ids of a table that was walked */
    std::atomic<size_t> next{0};    /* of these */
    std::atomic<bool> walking{false};
    char pad[64];
};

struct paper_queue {
    tbb::spin_rw_mutex lock; /* held exclusively to exchange tables and what is laid out */
    std::atomic<uint64_t> base{0};
    slot slots[SLOTS];
    std::unique_ptr<bench_lazy[]> bytes;
    size_t buckets; /* for all ids of one priority */

    explicit paper_queue(const bench_queue_shape &shape)
        : bytes(new bench_lazy[shape.ids]()), buckets(shape.entries / SLOTS) {
        for (slot &s : slots) s.ids.reset(new table(buckets));
    }

    void enqueue(const uint32_t *ids, const uint64_t *priorities, size_t n) {
        for (size_t i = 0; i < n; i++) {
            if (i + AHEAD < n) BENCH_EXPECT(&bytes[ids[i + AHEAD]]);
            bench_lazy_queue(&bytes[ids[i]], priorities[i]);
            slots[priorities[i] % SLOTS].ids->insert(std::make_pair(ids[i], nothing()));
        }
    }

    size_t adjust(const uint32_t *ids, size_t n, uint64_t priority) {
        size_t moved = 0;
        for (size_t i = 0; i < n; i++) {
            if (i + AHEAD < n) BENCH_EXPECT(&bytes[ids[i + AHEAD]]);
            uint8_t before = bench_lazy_move(&bytes[ids[i]], priority);
            moved += before != 0;
            if (!before || before == bench_lazy_byte(priority)) continue;
            slots[priority % SLOTS].ids->insert(std::make_pair(ids[i], nothing()));
            slots[before - 1].ids->erase(ids[i]);
        }
        return moved;
    }

    /* Takes some of the ids that are laid out for this priority; 0: there are none. The lock is held shared. */
    size_t take_laid_out(slot &s, uint64_t priority, uint32_t *ids) {
        size_t n = 0;
        while (n == 0 && s.next.load(std::memory_order_relaxed) < s.laid_out.size()) {
            size_t from = s.next.fetch_add(CHUNK, std::memory_order_relaxed);
            size_t to = from + CHUNK < s.laid_out.size() ? from + CHUNK : s.laid_out.size();
            for (size_t i = from; i < to; i++) BENCH_EXPECT(&bytes[s.laid_out[i]]);
            for (size_t i = from; i < to; i++)
                if (bench_lazy_take(&bytes[s.laid_out[i]], priority)) ids[n++] = s.laid_out[i];
        }
        return n;
    }

    /* Lays out the table of `s`, about `size` ids, by this thread alone. The lock is not held. */
    void lay_out(slot &s, size_t size) {
        std::unique_ptr<table> full(new table(size));
        std::vector<uint32_t> ids;
        {
            shared exclusive(lock, true);
            s.ids.swap(full);
        }
        ids.reserve(full->size());
        for (const auto &entry : *full) ids.push_back(entry.first);
        shared exclusive(lock, true);
        s.laid_out.swap(ids);
        s.next.store(0, std::memory_order_relaxed);
        s.walking.store(false, std::memory_order_release);
    }

    size_t take(uint64_t limit, uint32_t *ids, int *due) {
        uint64_t from = base.load(std::memory_order_relaxed);
        for (uint64_t priority = from; priority < from + SLOTS && priority <= limit;) {
            slot &s = slots[priority % SLOTS];
            shared held(lock, false);
            size_t n = take_laid_out(s, priority, ids);
            *due = 1;
            if (n > 0) return n;
            bool walking = s.walking.load(std::memory_order_acquire);
            if (walking && limit != UINT64_MAX) { /* the gate waits for what another thread lays out */
                held.release();
                std::this_thread::yield();
                return 0;
            }
            if (walking || s.ids->empty()) {
                priority++;
                continue;
            }
            bool mine = !s.walking.exchange(true, std::memory_order_acquire);
            size_t size = s.ids->size();
            held.release();
            if (mine) lay_out(s, size);
        }
        *due = 0;
        return 0;
    }

    void advance(uint64_t to) {
        for (uint64_t priority = base.load(std::memory_order_relaxed); priority < to; priority++) {
            std::unique_ptr<table> ids(new table(buckets)); /* the old one is freed without the lock */
            shared exclusive(lock, true);
            slots[priority % SLOTS].ids.swap(ids);
        }
        base.store(to, std::memory_order_relaxed);
    }
};

void *open_queue(const bench_queue_shape *shape) {
    try {
        return new paper_queue(*shape);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void enqueue(void *queue, uint32_t, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    paper_queue &q = *static_cast<paper_queue *>(queue);
    for (size_t i = 0; i < n; i += CHUNK) {
        shared held(q.lock, false);
        q.enqueue(ids + i, priorities + i, n - i < CHUNK ? n - i : CHUNK);
    }
}

size_t adjust(void *queue, uint32_t, const uint32_t *ids, size_t n, uint64_t priority) {
    paper_queue &q = *static_cast<paper_queue *>(queue);
    size_t moved = 0;
    for (size_t i = 0; i < n; i += CHUNK) {
        shared held(q.lock, false);
        moved += q.adjust(ids + i, n - i < CHUNK ? n - i : CHUNK, priority);
    }
    return moved;
}

size_t take(void *queue, uint32_t, uint64_t limit, uint32_t *ids, int *due) {
    return static_cast<paper_queue *>(queue)->take(limit, ids, due);
}

void advance(void *queue, uint64_t base) {
    static_cast<paper_queue *>(queue)->advance(base);
}

void close_queue(void *queue) {
    delete static_cast<paper_queue *>(queue);
}

} // namespace

extern const bench_queue bench_queue_paper = {"paper", open_queue, enqueue, adjust, take, advance, close_queue};
