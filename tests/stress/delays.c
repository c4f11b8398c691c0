/* delays.c - when and how long delays.h delays. */
#include <sched.h>
#include <time.h>

#include "tests/stress/delays.h"
#include "tests/support.h"

/* Of the run at hand. Relaxed, all of them: a run's threads are started after they are set. */
static _Atomic(uint64_t) run_seed;
static _Atomic(uint32_t) run_threads;          /* that have come so far */
static _Atomic(uint32_t) delay_gap, fails_gap; /* operations between two, on average; 0: none */
static _Atomic(uint32_t) spins_percent, sleeps_percent;

static _Thread_local struct {
    test_random random;
    uint64_t run; /* the seed of the run that this thread belongs to, plus one */
    uint64_t until_delay, until_failure;
} own;

#define SET(variable, value) atomic_store_explicit(&(variable), value, memory_order_relaxed)
#define GET(variable)        atomic_load_explicit(&(variable), memory_order_relaxed)

void stress_delays_begin(uint64_t seed) {
    static const uint32_t delay_gaps[] = {10, 40, 200, 1000, 5000, 0}, fails_gaps[] = {3, 20, 300, 0};
    test_random r = {.seed = test_mix(seed)};
    SET(run_seed, seed);
    SET(run_threads, 0);
    SET(delay_gap, delay_gaps[test_below(&r, 6)]);
    SET(fails_gap, fails_gaps[test_below(&r, 4)]);
    SET(spins_percent, (uint32_t)test_below(&r, 60));
    SET(sleeps_percent, test_chance(&r, 50) ? (uint32_t)test_below(&r, 20) : 0);
}

/* From 1 to twice the gap. */
static uint64_t next_gap(uint32_t gap) {
    return gap ? 1 + test_below(&own.random, 2 * gap) : UINT64_MAX;
}

static void join_run(uint64_t seed) {
    uint32_t index = atomic_fetch_add_explicit(&run_threads, 1, memory_order_relaxed);
    own.run = seed + 1;
    own.random = (test_random){.seed = test_mix2(seed, index)};
    own.until_delay = next_gap(GET(delay_gap));
    own.until_failure = next_gap(GET(fails_gap));
}

static void delay(void) {
    uint64_t kind = test_below(&own.random, 100);
    if (kind < GET(sleeps_percent)) { /* some microseconds; now and then as long as a thread that is not scheduled */
        long most = test_chance(&own.random, 2) ? 3000000 : 30000;
        nanosleep(&(struct timespec){0, (long)test_between(&own.random, 1000, (uint64_t)most)}, NULL);
    } else if (kind < GET(sleeps_percent) + GET(spins_percent)) {
        for (uint64_t n = test_below(&own.random, UINT64_C(1) << test_below(&own.random, 14)); n > 0; n--)
            atomic_signal_fence(memory_order_seq_cst); /* so that the loop stays */
    } else {
        sched_yield();
    }
}

void stress_delay(void) {
    uint64_t seed = GET(run_seed);
    if (own.run != seed + 1) join_run(seed);
    if (--own.until_delay > 0) return;
    delay();
    own.until_delay = next_gap(GET(delay_gap));
}

int stress_fails(void) {
    if (--own.until_failure > 0) return 0;
    own.until_failure = next_gap(GET(fails_gap));
    return 1;
}
