/* barrier.h - where the threads of a benchmark meet: by spinning while each may have a core, then by sleeping. */
#ifndef FRUGAL_BENCH_BARRIER_H
#define FRUGAL_BENCH_BARRIER_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct bench_barrier {
    uint32_t threads, spins; /* spins: before a thread goes to sleep */
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint passed; /* number of times that all have met */
    atomic_uint asleep;
} bench_barrier;

static inline void bench_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static inline void bench_barrier_init(bench_barrier *b, uint32_t threads) {
    enum { SPINS = 2000 }; /* some tens of microseconds, which is longer than a running thread is late */
    b->threads = threads;
    b->spins = threads <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
    atomic_init(&b->arrived, 0);
    atomic_init(&b->passed, 0);
    atomic_init(&b->asleep, 0);
}

static inline void bench_meet(bench_barrier *b) {
    unsigned times = atomic_load_explicit(&b->passed, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) + 1 == b->threads) {
        atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
        atomic_store(&b->passed, times + 1); /* then looks for sleepers, who register and then look at `passed` */
        if (atomic_load(&b->asleep)) syscall(SYS_futex, &b->passed, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    for (uint32_t i = 0; i < b->spins; i++) {
        if (atomic_load_explicit(&b->passed, memory_order_acquire) != times) return;
        bench_pause();
    }
    atomic_fetch_add(&b->asleep, 1);
    while (atomic_load(&b->passed) == times) syscall(SYS_futex, &b->passed, FUTEX_WAIT_PRIVATE, times, NULL, NULL, 0);
    atomic_fetch_sub(&b->asleep, 1);
}

#endif
