/* explore_main.c - the command line of an exploration program.
 *
 *   explore_X                     each scenario is a test case: FRUGAL_EXPLORE_SCHEDULES random schedules (default 2000), then
 *                                 all schedules with few preemptions, as many at most
 *   explore_X SCENARIO            this one only
 *   explore_X SCENARIO SEED       one schedule again, each operation printed
 *
 * FRUGAL_SEED is the first seed; FRUGAL_EXPLORE_FIRST ends at the first failure. Exit status: 0, 1 where a schedule failed, 2 for usage. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/explore/explore.h"
#include "tests/seed.h"

enum { MOST_PREEMPTIONS = 3, MOST_STALE = 1 };

static uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static int failed(const char *program, const explore_scenario *s, const explore_totals *t, int bounded) {
    if (!t->failure[0]) return 0;
    printf("# FAILED: %s\n# what it refutes: %s\n", t->failure, s->claim);
    if (bounded)
        printf("# in schedule %" PRIu64 " of the enumeration\n", t->failed_seed);
    else
        printf("# replay with: %s %s %" PRIu64 "\n", program, s->name, t->failed_seed);
    return 1;
}

/* Random schedules, then all with 0, 1, ... preemptions while there are schedules left. */
static int explore(const char *program, const explore_scenario *s, uint64_t seed, uint64_t n, explore_totals *sum) {
    explore_totals t;
    explore_random(s, seed, n, &t);
    sum->schedules += t.schedules, sum->operations += t.operations, sum->seconds += t.seconds;
    fprintf(stderr, "# %s: %" PRIu64 " random schedules of %" PRIu64 " operations, %.0f/s\n", s->name, t.schedules,
            t.operations / (t.schedules ? t.schedules : 1), (double)t.schedules / t.seconds);
    if (failed(program, s, &t, 0)) return 1;
    for (uint32_t preemptions = 0; preemptions <= MOST_PREEMPTIONS; preemptions++) {
        explore_bounded(s, seed, preemptions, MOST_STALE, n, &t);
        sum->schedules += t.schedules, sum->operations += t.operations, sum->seconds += t.seconds;
        fprintf(stderr, "# %s: %s %" PRIu64 " schedules with at most %u preemptions and %u old value seen\n", s->name,
                t.exhausted ? "all" : "the first", t.schedules, preemptions, MOST_STALE);
        if (failed(program, s, &t, 1)) return 1;
        if (!t.exhausted) break;
    }
    return 0;
}

static int replay(const explore_scenario *s, uint64_t seed) {
    explore_totals t;
    explore_replay(s, seed, &t);
    fprintf(stderr, "%s: %s\n", s->name, t.failure[0] ? t.failure : "no failure");
    return t.failure[0] != 0;
}

int explore_main(int argc, char **argv, const explore_scenario *scenarios, int n) {
    const explore_scenario *only = NULL;
    for (int i = 0; i < n && argc > 1; i++)
        if (!strcmp(argv[1], scenarios[i].name)) only = &scenarios[i];
    if (argc > 3 || (argc > 1 && !only)) {
        fprintf(stderr, "usage: %s [SCENARIO [SEED]]\nscenarios:\n", argv[0]);
        for (int i = 0; i < n; i++) fprintf(stderr, "  %-24s %s\n", scenarios[i].name, scenarios[i].claim);
        return 2;
    }
    if (argc == 3) return replay(only, strtoull(argv[2], NULL, 0));
    uint64_t seed = test_seed(argv[0], 1), schedules = from_environment("FRUGAL_EXPLORE_SCHEDULES", 2000);
    explore_totals sum = {0};
    int failures = 0;
    printf("1..%d\n", only ? 1 : n);
    for (int i = 0, number = 1; i < n && !(failures && getenv("FRUGAL_EXPLORE_FIRST")); i++) {
        if (only && only != &scenarios[i]) continue;
        int bad = explore(argv[0], &scenarios[i], seed, schedules, &sum);
        printf("%sok %d - %s\n", bad ? "not " : "", number++, scenarios[i].name);
        fflush(stdout);
        failures += bad;
    }
    fprintf(stderr, "# %s: %" PRIu64 " schedules, %" PRIu64 " operations, %.0f schedules/s\n", argv[0], sum.schedules,
            sum.operations, (double)sum.schedules / sum.seconds);
    return failures > 0;
}
