/* delays.h - the atomics of frugal_pq.h with delays: give this file as FRUGAL_ATOMICS_OVERRIDE and link delays.c.
 *
 * Before random operations the thread yields, spins or sleeps, so that others run where they hardly ever would; and
 * compare-and-swaps fail without reason now and then, as the weak form may. Mostly there is no delay, so that a run
 * gets on. How often and how long differs from run to run; a thread's delays follow from the run's seed and from which
 * of the run's threads it is (in the order of their first operations). The orders are those of frugal_pq.h, and what is
 * added orders nothing: ThreadSanitizer sees what it sees without. */
#ifndef STRESS_DELAYS_H
#define STRESS_DELAYS_H

#include <stdatomic.h>
#include <stdint.h>

void stress_delays_begin(uint64_t seed); /* of a run; no thread of the run before is active any more */
void stress_delay(void);                 /* perhaps */
int stress_fails(void);                  /* shall this compare-and-swap fail? */

#define FRUGAL_ATOMIC(type)        _Atomic(type)
#define frugal_load_relaxed(p)     (stress_delay(), atomic_load_explicit(p, memory_order_relaxed))
#define frugal_load_acquire(p)     (stress_delay(), atomic_load_explicit(p, memory_order_acquire))
#define frugal_store_relaxed(p, v) (stress_delay(), atomic_store_explicit(p, v, memory_order_relaxed))
#define frugal_store_release(p, v) (stress_delay(), atomic_store_explicit(p, v, memory_order_release))
#define frugal_add_relaxed(p, v)   (stress_delay(), atomic_fetch_add_explicit(p, v, memory_order_relaxed))
#define frugal_add_acquire(p, v)   (stress_delay(), atomic_fetch_add_explicit(p, v, memory_order_acquire))
#define frugal_add_release(p, v)   (stress_delay(), atomic_fetch_add_explicit(p, v, memory_order_release))
#define frugal_add_acq_rel(p, v)   (stress_delay(), atomic_fetch_add_explicit(p, v, memory_order_acq_rel))
#define frugal_or_acquire(p, v)    (stress_delay(), atomic_fetch_or_explicit(p, v, memory_order_acquire))
#define STRESS_CAS(p, expected, v, success, failure)                                                                   \
    (stress_delay(), stress_fails() ? (*(expected) = atomic_load_explicit(p, failure), 0)                              \
                                    : atomic_compare_exchange_weak_explicit(p, expected, v, success, failure))
#define frugal_cas_relaxed(p, expected, v) STRESS_CAS(p, expected, v, memory_order_relaxed, memory_order_relaxed)
#define frugal_cas_acquire(p, expected, v) STRESS_CAS(p, expected, v, memory_order_acquire, memory_order_acquire)
#define frugal_cas_release(p, expected, v) STRESS_CAS(p, expected, v, memory_order_release, memory_order_relaxed)
#define frugal_cas_acq_rel(p, expected, v) STRESS_CAS(p, expected, v, memory_order_acq_rel, memory_order_acquire)

#endif /* STRESS_DELAYS_H */
