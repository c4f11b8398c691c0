/* explore.h - a scheduler that owns every interleaving, and a memory that is as weak as C11 allows.
 *
 * The headers are compiled with FRUGAL_ATOMICS_OVERRIDE naming this file: threads become coroutines, and every atomic
 * operation goes through explore.c, which decides which thread runs next and what a load may see. A schedule is given
 * by a seed; the same seed always gives the same execution.
 *
 * What is explored
 * - The order of operations. Before every read-modify-write, store and acquiring load, and before a load that follows
 *   a store of its thread, another thread may go on.
 * - What loads see. Each atomic object keeps its last stores; a load may see any of them that C11 allows. It may not
 *   see a store older than one that happens before the load, or older than one seen by a read that happens before the
 *   load. Other relaxed loads need not be points of scheduling, because seeing an older value is the same as loading
 *   earlier. Read-modify-writes see the newest store; a compare-and-swap that fails is a load. Weak compare-and-swaps
 *   sometimes fail for no reason, but not where schedules are enumerated.
 * - Progress. A thread of low priority stands still while others go on: a call that waits for it in a loop is a
 *   livelock, so code that is not lock-free is found. Threads that have nothing to do say so (explore_wait).
 * - Release and acquire, by vector clocks: release sequences are those of C11 without the same-thread rule (as C++20).
 * - Data races: the scenarios are compiled with the compiler's ThreadSanitizer instrumentation, whose callbacks are
 *   ours. Two accesses to plain memory, one of them a write, are an error if neither happens before the other, even if
 *   they are far apart in the schedule that is run. Since a race is an error, plain accesses need not be points of
 *   scheduling.
 * Not explored: loads that see later stores (load buffering); stores that enter an object's order in another order than
 * they were executed; more than EXPLORE_HISTORY old stores of an object; seq_cst, which the headers do not use; races
 * of atomic with plain accesses to one object, of memset, and of memory outside of explore_alloc's. */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stddef.h>
#include <stdint.h>

/* >>scenarios */

enum { EXPLORE_THREADS = 8, EXPLORE_HISTORY = 8, EXPLORE_ARENA = 5 << 16 };

typedef struct explore_scenario {
    const char *name;
    const char *claim;               /* the claim that it could refute */
    int threads;                     /* at most EXPLORE_THREADS */
    void (*setup)(uint64_t variant); /* makes the world, in explore_alloc's memory; variants differ in data */
    void (*thread)(int number);      /* run by each thread */
    void (*check)(void);             /* called after all threads have ended; may be NULL */
} explore_scenario;

/* Memory that is the same at the beginning of every schedule, as setup left it, and whose accesses are checked for
 * races; zeroed. During setup only. */
void *explore_alloc(size_t bytes, size_t alignment);
/* The calling thread found nothing to do: lets others run. If all threads do so and nothing changes, that is a
 * deadlock. */
void explore_wait(void);
/* Lets others go on here. */
void explore_point(void);
/* Sleeps until another thread wakes those that sleep on the same address. It cannot miss that, because no other thread
 * runs between the caller's last point of scheduling and the sleep. */
void explore_sleep(const void *on);
void explore_wake(const void *on, uint32_t most); /* which ones is a part of the schedule */
/* memcpy and memcmp, checked: scenarios are compiled with -Dmemcpy=explore_copy -Dmemcmp=explore_compare. */
void *explore_copy(void *to, const void *from, size_t size);
int explore_compare(const void *a, const void *b, size_t size);
/* A number below n that is part of the schedule. */
uint32_t explore_choose(uint32_t n);
/* True once in n times, by chance; never where schedules are enumerated. */
int explore_chance(uint32_t n);
/* Ends the schedule as failed. */
void explore_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define EXPLORE_EXPECT(condition) ((condition) ? (void)0 : explore_fail("%s:%d: %s", __FILE__, __LINE__, #condition))

/* >>running */

typedef enum { EXPLORE_UNIFORM, EXPLORE_PCT, EXPLORE_BOUNDED } explore_strategy;

typedef struct explore_totals {
    uint64_t schedules, operations;
    double seconds;
    int exhausted;        /* explore_bounded has run all schedules */
    uint64_t failed_seed; /* of a failure */
    char failure[512];    /* empty: none */
} explore_totals;

/* Runs `n` schedules from `seed` on, half of them uniform, half PCT, until one fails. */
void explore_random(const explore_scenario *scenario, uint64_t seed, uint64_t n, explore_totals *totals);
/* Runs all schedules of variant `variant` with at most `preemptions` preemptions and `stale` loads that see an old
 * store; at most `most` schedules. */
void explore_bounded(const explore_scenario *scenario, uint64_t variant, uint32_t preemptions, uint32_t stale,
                     uint64_t most, explore_totals *totals);
/* Runs one schedule again and prints each operation to stderr: the schedule of a seed, or number `number` of an
 * enumeration. */
void explore_replay_bounded(const explore_scenario *scenario, uint64_t variant, uint32_t preemptions, uint32_t stale,
                            uint64_t number, explore_totals *totals);
void explore_replay(const explore_scenario *scenario, uint64_t seed, explore_totals *totals);
/* The main function of an exploration program; explore_main.c. */
int explore_main(int argc, char **argv, const explore_scenario *scenarios, int n);

/* >>the atomics of the headers. More orders than the headers use: mutants weaken them. */

enum { EXPLORE_RELAXED = 0, EXPLORE_ACQUIRE = 1, EXPLORE_RELEASE = 2, EXPLORE_ACQ_REL = 3 };

typedef struct explore_site { /* for the trace */
    const char *operation, *object, *file;
    int line;
} explore_site;

uint64_t explore_load(const void *p, size_t bytes, int order, const explore_site *site);
void explore_store(void *p, size_t bytes, uint64_t value, int order, const explore_site *site);
uint64_t explore_add(void *p, size_t bytes, uint64_t value, int order, const explore_site *site);
uint64_t explore_or(void *p, size_t bytes, uint64_t value, int order, const explore_site *site);
int explore_cas(void *p, size_t bytes, void *expected, uint64_t value, int order, int failure,
                const explore_site *site);

#define EXPLORE_SITE(name, p)            (&(const explore_site){name, #p, __FILE__, __LINE__})
#define EXPLORE_LOAD(p, order, name)     ((__typeof__(*(p)))explore_load(p, sizeof *(p), order, EXPLORE_SITE(name, p)))
#define EXPLORE_STORE(p, v, order, name) explore_store(p, sizeof *(p), (uint64_t)(v), order, EXPLORE_SITE(name, p))
#define EXPLORE_ADD(p, v, order, name)                                                                                 \
    ((__typeof__(*(p)))explore_add(p, sizeof *(p), (uint64_t)(v), order, EXPLORE_SITE(name, p)))
#define EXPLORE_OR(p, v, order, name)                                                                                  \
    ((__typeof__(*(p)))explore_or(p, sizeof *(p), (uint64_t)(v), order, EXPLORE_SITE(name, p)))
/* `order` if it succeeds, `failure` if not: the last part of an order's name. */
#define EXPLORE_CAS(p, expected, v, order, failure, name)                                                              \
    explore_cas(p, sizeof *(p), expected, (uint64_t)(v), EXPLORE_##order, EXPLORE_##failure, EXPLORE_SITE(name, p))

#define FRUGAL_ATOMIC(type)                           type
#define frugal_load_relaxed(p)                        EXPLORE_LOAD(p, EXPLORE_RELAXED, "load_relaxed")
#define frugal_load_acquire(p)                        EXPLORE_LOAD(p, EXPLORE_ACQUIRE, "load_acquire")
#define frugal_store_relaxed(p, v)                    EXPLORE_STORE(p, v, EXPLORE_RELAXED, "store_relaxed")
#define frugal_store_release(p, v)                    EXPLORE_STORE(p, v, EXPLORE_RELEASE, "store_release")
#define frugal_add_relaxed(p, v)                      EXPLORE_ADD(p, v, EXPLORE_RELAXED, "add_relaxed")
#define frugal_add_acquire(p, v)                      EXPLORE_ADD(p, v, EXPLORE_ACQUIRE, "add_acquire")
#define frugal_add_release(p, v)                      EXPLORE_ADD(p, v, EXPLORE_RELEASE, "add_release")
#define frugal_add_acq_rel(p, v)                      EXPLORE_ADD(p, v, EXPLORE_ACQ_REL, "add_acq_rel")
#define frugal_or_acquire(p, v)                       EXPLORE_OR(p, v, EXPLORE_ACQUIRE, "or_acquire")
#define frugal_or_relaxed(p, v)                       EXPLORE_OR(p, v, EXPLORE_RELAXED, "or_relaxed")
#define frugal_cas_relaxed(p, expected, v)            EXPLORE_CAS(p, expected, v, RELAXED, RELAXED, "cas_relaxed")
#define frugal_cas_acquire(p, expected, v)            EXPLORE_CAS(p, expected, v, ACQUIRE, ACQUIRE, "cas_acquire")
#define frugal_cas_release(p, expected, v)            EXPLORE_CAS(p, expected, v, RELEASE, RELAXED, "cas_release")
#define frugal_cas_acq_rel(p, expected, v)            EXPLORE_CAS(p, expected, v, ACQ_REL, ACQUIRE, "cas_acq_rel")
#define frugal_cas_acquire_or_relaxed(p, expected, v) /* relaxed where it fails */                                     \
    EXPLORE_CAS(p, expected, v, ACQUIRE, RELAXED, "cas_acquire_or_relaxed")
#define frugal_cas_acq_rel_or_relaxed(p, expected, v)                                                                  \
    EXPLORE_CAS(p, expected, v, ACQ_REL, RELAXED, "cas_acq_rel_or_relaxed")

#define FRUGAL_ASSERT(condition) EXPLORE_EXPECT(condition)

#endif /* EXPLORE_H */
