/* lazy.h - one byte per id that says where the id is queued, for queues that cannot change an entry.
 *
 * Adjusting then queues the id once more, and a thread that takes an entry asks here whether it is the current one. A
 * byte is enough, because priorities lie within a window of 64 and no entry outlives its due step.
 */
#ifndef FRUGAL_BENCH_QUEUES_LAZY_H
#define FRUGAL_BENCH_QUEUES_LAZY_H

#include <stdint.h>

typedef uint8_t bench_lazy; /* 0: not queued; else priority mod 64, + 1 */

static inline uint8_t bench_lazy_byte(uint64_t priority) {
    return (uint8_t)(priority % 64 + 1);
}
/* A plain store is enough, because only one thread at a time queues an id, and only while it is not queued. */
static inline void bench_lazy_queue(bench_lazy *byte, uint64_t priority) {
    __atomic_store_n(byte, bench_lazy_byte(priority), __ATOMIC_RELEASE);
}
/* Returns the old byte, 0 if the id is not queued. */
static inline uint8_t bench_lazy_move(bench_lazy *byte, uint64_t priority) {
    uint8_t found = __atomic_load_n(byte, __ATOMIC_RELAXED);
    while (found &&
           !__atomic_compare_exchange_n(byte, &found, bench_lazy_byte(priority), 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
    return found;
}
/* 1: the entry was the current one, and the id is not queued any more. */
static inline int bench_lazy_take(bench_lazy *byte, uint64_t priority) {
    uint8_t found = bench_lazy_byte(priority);
    if (__atomic_load_n(byte, __ATOMIC_RELAXED) != found) return 0;
    return __atomic_compare_exchange_n(byte, &found, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

#endif
