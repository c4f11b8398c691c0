/* seed.h - the seed of a randomized test: FRUGAL_SEED, or the test's own. It is always printed. */
#ifndef SEED_H
#define SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t test_seed(const char *name, uint64_t otherwise) {
    const char *given = getenv("FRUGAL_SEED");
    uint64_t seed = given && *given ? strtoull(given, NULL, 0) : otherwise;
    fprintf(stderr, "# %s: replay with FRUGAL_SEED=%llu\n", name, (unsigned long long)seed);
    return seed;
}

/* For stress tests: a seed that differs from run to run. */
static inline uint64_t test_seed_from_clock(const char *name) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return test_seed(name, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

/* Divides the rounds of a test: the sanitizers are some ten times slower. */
#ifdef FRUGAL_SANITIZED
#define SHORTER 10
#else
#define SHORTER 1
#endif

/* Is this the short tier of the tests (FRUGAL_TIER, tests/tap.sh), or slow because of a sanitizer? */
static inline int test_is_short(void) {
    const char *tier = getenv("FRUGAL_TIER");
    return SHORTER > 1 || !tier || !strcmp(tier, "short");
}

/* The rounds of a test that is in both tiers: all of them in the long one, a quarter in the short one, a tenth under
 * sanitizers. */
static inline uint64_t test_rounds(uint64_t all) {
    return all / (SHORTER > 1 ? SHORTER : test_is_short() ? 4 : 1);
}

#endif /* SEED_H */
