/* weak_atomics.h - given as FRUGAL_ATOMICS_OVERRIDE: every compare-and-swap fails twice without reason before it does
 * its work, as the weak form may on any machine and does on those with load-linked and store-conditional. All claims
 * must hold nevertheless, so the same tests are compiled with it. */
#ifndef WEAK_ATOMICS_H
#define WEAK_ATOMICS_H

#include <stdatomic.h>
#include <stdint.h>

enum { WEAK_FAILURES = 2 };

static _Thread_local unsigned weak_tries;

#define WEAK_CAS_OF(order, bits, success, failure)                                                                     \
    __attribute__((unused)) static int weak_cas_##order##_##bits(_Atomic(uint##bits##_t) *p, uint##bits##_t *expected, \
                                                                 uint##bits##_t desired) {                             \
        if (weak_tries++ % (WEAK_FAILURES + 1) == WEAK_FAILURES)                                                       \
            return atomic_compare_exchange_strong_explicit(p, expected, desired, success, failure);                    \
        *expected = atomic_load_explicit(p, failure);                                                                  \
        return 0;                                                                                                      \
    }
#define WEAK_CAS_DEFINE(order, success, failure)                                                                       \
    WEAK_CAS_OF(order, 8, success, failure)                                                                            \
    WEAK_CAS_OF(order, 32, success, failure)                                                                           \
    WEAK_CAS_OF(order, 64, success, failure)
WEAK_CAS_DEFINE(relaxed, memory_order_relaxed, memory_order_relaxed)
WEAK_CAS_DEFINE(acquire, memory_order_acquire, memory_order_acquire)
WEAK_CAS_DEFINE(release, memory_order_release, memory_order_relaxed)
WEAK_CAS_DEFINE(acq_rel, memory_order_acq_rel, memory_order_acquire)

#define WEAK_CAS(order, p, expected, v)                                                                                \
    _Generic((p), _Atomic(uint8_t) *                                                                                   \
             : weak_cas_##order##_8, _Atomic(uint32_t) *                                                               \
             : weak_cas_##order##_32, _Atomic(uint64_t) *                                                              \
             : weak_cas_##order##_64)(p, expected, v)

#define FRUGAL_ATOMIC(type)                _Atomic(type)
#define frugal_load_relaxed(p)             atomic_load_explicit(p, memory_order_relaxed)
#define frugal_load_acquire(p)             atomic_load_explicit(p, memory_order_acquire)
#define frugal_store_relaxed(p, v)         atomic_store_explicit(p, v, memory_order_relaxed)
#define frugal_store_release(p, v)         atomic_store_explicit(p, v, memory_order_release)
#define frugal_add_relaxed(p, v)           atomic_fetch_add_explicit(p, v, memory_order_relaxed)
#define frugal_add_acquire(p, v)           atomic_fetch_add_explicit(p, v, memory_order_acquire)
#define frugal_add_release(p, v)           atomic_fetch_add_explicit(p, v, memory_order_release)
#define frugal_add_acq_rel(p, v)           atomic_fetch_add_explicit(p, v, memory_order_acq_rel)
#define frugal_or_acquire(p, v)            atomic_fetch_or_explicit(p, v, memory_order_acquire)
#define frugal_cas_relaxed(p, expected, v) WEAK_CAS(relaxed, p, expected, v)
#define frugal_cas_acquire(p, expected, v) WEAK_CAS(acquire, p, expected, v)
#define frugal_cas_release(p, expected, v) WEAK_CAS(release, p, expected, v)
#define frugal_cas_acq_rel(p, expected, v) WEAK_CAS(acq_rel, p, expected, v)

#endif /* WEAK_ATOMICS_H */
