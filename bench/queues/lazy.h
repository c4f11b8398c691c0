/* lazy.h - a byte an id that says where it is queued, for the queues that cannot change an entry which they hold.
 *
 * Adjusting then queues the id once more, and whoever takes an entry asks here whether it is the true one. A byte is
 * all that this needs, since priorities lie within a window of 64 and no entry outlives its due step.
 */
#ifndef FRUGAL_BENCH_QUEUES_LAZY_H
#define FRUGAL_BENCH_QUEUES_LAZY_H

#include <stdint.h>

typedef uint8_t bench_lazy; /* 0: not queued; else priority mod 64, + 1 */

static inline uint8_t bench_lazy_byte(uint64_t priority) {
    return (uint8_t)(priority % 64 + 1);
}
/* An id is queued by one thread at a time, while it is not: a plain store is enough. */
static inline void bench_lazy_queue(bench_lazy *byte, uint64_t priority) {
    __atomic_store_n(byte, bench_lazy_byte(priority), __ATOMIC_RELEASE);
}
/* The byte that was there, 0 where the id is not queued. */
static inline uint8_t bench_lazy_move(bench_lazy *byte, uint64_t priority) {
    uint8_t found = __atomic_load_n(byte, __ATOMIC_RELAXED);
    while (found &&
           !__atomic_compare_exchange_n(byte, &found, bench_lazy_byte(priority), 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
    return found;
}
/* 1: the entry was the true one, and the id is queued no more. */
static inline int bench_lazy_take(bench_lazy *byte, uint64_t priority) {
    uint8_t found = bench_lazy_byte(priority);
    if (__atomic_load_n(byte, __ATOMIC_RELAXED) != found) return 0;
    return __atomic_compare_exchange_n(byte, &found, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

#endif
