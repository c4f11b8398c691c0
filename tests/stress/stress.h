/* stress.h - cases that run for a moment in `ninja test` and for as long as they are given in `ninja stress`.
 *
 *      for (stress s = stress_begin(__func__, 4); stress_next(&s);) train(s.seed);
 *
 * Four runs; where FRUGAL_STRESS_SECONDS is set, as many as fit into it, shared among the cases of the program; 0: one.
 * Each run has a seed of its own: FRUGAL_SEED or the clock for the first, then one more. Whatever ends a run before its
 * time, an assertion, a sanitizer, a hang, is followed by the command that runs it again. The same seed gives the same
 * configuration and the same delays to a thread; what the scheduler does with the threads is its own.
 *
 * Include after cmocka.h. PROGRAM CASE runs one case. */
#ifndef STRESS_H
#define STRESS_H

#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/seed.h"
#ifdef FRUGAL_ATOMICS_OVERRIDE
#include "tests/stress/delays.h"
#else
static inline void stress_delays_begin(uint64_t seed) {
    (void)seed;
}
#endif

enum { STRESS_TELL_SECONDS = 10, STRESS_HUNG_SECONDS = 300 };

typedef struct stress {
    const char *name;
    uint64_t seed, steps; /* of the run at hand; steps: the case's own count, for who looks on */
    unsigned runs, rounds;
    double since, told;
} stress;

static struct {
    const char *program;
    double seconds;            /* a case; below 0: rounds instead */
    volatile sig_atomic_t run; /* one is under way */
    char replay[512];          /* how it can be run again */
} stress_now = {.program = "", .seconds = -1};

static inline double stress_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A run begins, which `format` would run again. */
__attribute__((format(printf, 2, 3))) static inline void stress_enter(uint64_t seed, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(stress_now.replay, sizeof stress_now.replay, format, arguments);
    va_end(arguments);
    stress_delays_begin(seed);
    stress_now.run = 1;
    alarm(STRESS_HUNG_SECONDS);
}

static inline void stress_leave(void) {
    stress_now.run = 0;
    alarm(0);
}

/* Says how to repeat a run that has not come to its end. */
static inline void stress_blame(void) {
    static const char before[] = "# FAILED in this run: ";
    if (!stress_now.run) return;
    stress_now.run = 0;
    if (write(2, before, sizeof before - 1) < 0 || write(2, stress_now.replay, strlen(stress_now.replay)) < 0 ||
        write(2, "\n", 1) < 0)
        return;
}

static inline void stress_signalled(int number) {
    if (number == SIGALRM && write(2, "# HUNG\n", 7) < 0) _exit(2);
    stress_blame();
    _exit(128 + number);
}

/* The sanitizers end the program on their own way. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static inline void stress_open(int argc, char **argv, size_t cases) {
    const char *seconds = getenv("FRUGAL_STRESS_SECONDS");
    stress_now.program = argv[0];
    if (argc > 1) cmocka_set_test_filter(argv[1]), cases = 1;
    if (seconds && *seconds) stress_now.seconds = strtod(seconds, NULL) / (double)cases;
    signal(SIGABRT, stress_signalled);
    signal(SIGALRM, stress_signalled);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(stress_blame);
}

static inline int stress_close(int failed) {
    stress_blame();
    return failed;
}

#define stress_run_group(argc, argv, name, tests)                                                                      \
    (stress_open(argc, argv, sizeof(tests) / sizeof *(tests)),                                                         \
     stress_close(cmocka_run_group_tests_name(name, tests, NULL, NULL)))

/* The first seed is `seed`, or the clock's where it is 0, unless FRUGAL_SEED says another. */
static inline stress stress_begin_at(const char *name, unsigned rounds, uint64_t seed) {
    stress_blame(); /* the case before */
    stress s = {.name = name, .rounds = rounds};
    s.seed = (seed && stress_now.seconds < 0 ? test_seed(name, seed) : test_seed_from_clock(name)) - 1;
    s.since = s.told = stress_clock();
    return s;
}
static inline stress stress_begin(const char *name, unsigned rounds) {
    return stress_begin_at(name, rounds, 0);
}

static inline void stress_tell(const stress *s, double now) {
    fprintf(stderr, "# %s: %u runs, %llu steps in %.0f s; at seed %llu\n", s->name, s->runs,
            (unsigned long long)s->steps, now - s->since, (unsigned long long)s->seed);
}

/* 1: another run, with s->seed. */
static inline int stress_next(stress *s) {
    double now = stress_clock();
    int more = s->runs == 0 || (stress_now.seconds < 0 ? s->runs < s->rounds : now - s->since < stress_now.seconds);
    if (stress_now.seconds > 0 && s->runs > 0 && (!more || now - s->told > STRESS_TELL_SECONDS)) {
        stress_tell(s, now);
        s->told = now;
    }
    stress_leave();
    if (!more) return 0;
    s->runs++, s->seed++;
    stress_enter(s->seed, "FRUGAL_SEED=%llu FRUGAL_STRESS_SECONDS=0 %s '%s'", (unsigned long long)s->seed,
                 stress_now.program, s->name);
    return 1;
}

#endif /* STRESS_H */
