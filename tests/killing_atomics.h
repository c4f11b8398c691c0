/* killing_atomics.h - given as FRUGAL_ATOMICS_OVERRIDE: the process kills itself (SIGKILL) before its n-th atomic
 * operation, where `kill_countdown` is n; 0: it lives. Between two atomic operations a process changes nothing that
 * others rely on, so these are all the moments that differ; those in the middle of a row are met by kills at random. */
#ifndef KILLING_ATOMICS_H
#define KILLING_ATOMICS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

extern _Atomic(int64_t) kill_countdown, kill_operations; /* operations: counted while it lives */

static inline int kill_tick(void) {
    atomic_fetch_add_explicit(&kill_operations, 1, memory_order_relaxed);
    if (atomic_load_explicit(&kill_countdown, memory_order_relaxed) > 0 &&
        atomic_fetch_sub_explicit(&kill_countdown, 1, memory_order_relaxed) == 1)
        kill(getpid(), SIGKILL);
    return 0;
}

#define KILL_CAS(p, expected, v, success, failure)                                                                     \
    (kill_tick(), atomic_compare_exchange_weak_explicit(p, expected, v, success, failure))

#define FRUGAL_ATOMIC(type)                _Atomic(type)
#define frugal_load_relaxed(p)             (kill_tick(), atomic_load_explicit(p, memory_order_relaxed))
#define frugal_load_acquire(p)             (kill_tick(), atomic_load_explicit(p, memory_order_acquire))
#define frugal_store_relaxed(p, v)         (kill_tick(), atomic_store_explicit(p, v, memory_order_relaxed))
#define frugal_store_release(p, v)         (kill_tick(), atomic_store_explicit(p, v, memory_order_release))
#define frugal_add_relaxed(p, v)           (kill_tick(), atomic_fetch_add_explicit(p, v, memory_order_relaxed))
#define frugal_add_acquire(p, v)           (kill_tick(), atomic_fetch_add_explicit(p, v, memory_order_acquire))
#define frugal_add_release(p, v)           (kill_tick(), atomic_fetch_add_explicit(p, v, memory_order_release))
#define frugal_add_acq_rel(p, v)           (kill_tick(), atomic_fetch_add_explicit(p, v, memory_order_acq_rel))
#define frugal_or_acquire(p, v)            (kill_tick(), atomic_fetch_or_explicit(p, v, memory_order_acquire))
#define frugal_cas_relaxed(p, expected, v) KILL_CAS(p, expected, v, memory_order_relaxed, memory_order_relaxed)
#define frugal_cas_acquire(p, expected, v) KILL_CAS(p, expected, v, memory_order_acquire, memory_order_acquire)
#define frugal_cas_release(p, expected, v) KILL_CAS(p, expected, v, memory_order_release, memory_order_relaxed)
#define frugal_cas_acq_rel(p, expected, v) KILL_CAS(p, expected, v, memory_order_acq_rel, memory_order_acquire)

#endif /* KILLING_ATOMICS_H */
