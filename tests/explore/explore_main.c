/* explore_main.c - the command line of an exploration program.
 *
 *   explore_X                                     each scenario is a test case: FRUGAL_EXPLORE_SCHEDULES random ones
 *                                                 (500; 2000 in the long tests), then those with few preemptions,
 *                                                 at most the same number
 *   explore_X SCENARIO                            this one only
 *   explore_X SCENARIO SEED                       one random schedule again, each operation printed
 *   explore_X SCENARIO WORLD PREEMPTIONS NUMBER   one schedule of an enumeration again
 *
 * FRUGAL_SEED is the first seed; FRUGAL_EXPLORE_FIRST ends at the first failure. Exit status: 0, 1 where a schedule
 * failed, 2 for usage. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/explore/explore.h"
#include "tests/seed.h"

enum { MOST_PREEMPTIONS = 3, MOST_STALE = 1, WORLDS = 12 };

/* 1 and a number, if the text is one. */
static int read_number(const char *text, uint64_t *number) {
    char *end;
    *number = strtoull(text, &end, 0);
    return *text >= '0' && *text <= '9' && !*end;
}

static void add(explore_totals *sum, const explore_totals *t) {
    sum->schedules += t->schedules, sum->operations += t->operations, sum->seconds += t->seconds;
}

static int explore_randomly(const char *program, const explore_scenario *s, uint64_t seed, uint64_t n,
                            explore_totals *sum) {
    explore_totals t;
    explore_random(s, seed, n, &t);
    add(sum, &t);
    fprintf(stderr, "# %s: %" PRIu64 " random schedules of %" PRIu64 " operations, %.0f/s\n", s->name, t.schedules,
            t.operations / (t.schedules ? t.schedules : 1), (double)t.schedules / t.seconds);
    if (!t.failure[0]) return 0;
    printf("# FAILED: %s\n# what it refutes: %s\n# replay with: %s %s %" PRIu64 "\n", t.failure, s->claim, program,
           s->name, t.failed_seed);
    return 1;
}

/* All schedules of some worlds with this number of preemptions; *all: no schedules are left. */
static int enumerate_worlds(const char *program, const explore_scenario *s, uint32_t preemptions, uint64_t n,
                            explore_totals *sum, int *all) {
    uint64_t schedules = 0;
    explore_totals t;
    *all = 1;
    for (uint64_t world = 0; world < WORLDS; world++) {
        explore_bounded(s, world, preemptions, MOST_STALE, n / WORLDS + 1, &t);
        add(sum, &t);
        schedules += t.schedules;
        *all &= t.exhausted;
        if (!t.failure[0]) continue;
        printf("# FAILED: %s\n# what it refutes: %s\n# replay with: %s %s %" PRIu64 " %u %" PRIu64 "\n", t.failure,
               s->claim, program, s->name, world, preemptions, t.failed_seed);
        return 1;
    }
    fprintf(stderr, "# %s: %s%" PRIu64 " schedules of %d worlds with at most %u preemptions and %d old value seen\n",
            s->name, *all ? "all " : "", schedules, WORLDS, preemptions, MOST_STALE);
    return 0;
}

/* Random schedules, then all with 0, 1, ... preemptions while there are schedules left. */
static int explore(const char *program, const explore_scenario *s, uint64_t seed, uint64_t n, explore_totals *sum) {
    int all = 1;
    if (explore_randomly(program, s, seed, n, sum)) return 1;
    for (uint32_t preemptions = 0; preemptions <= MOST_PREEMPTIONS && all; preemptions++)
        if (enumerate_worlds(program, s, preemptions, n, sum, &all)) return 1;
    return 0;
}

static int replay(const explore_scenario *s, int n, const uint64_t *number) {
    explore_totals t;
    if (n == 1)
        explore_replay(s, number[0], &t);
    else
        explore_replay_bounded(s, number[0], (uint32_t)number[1], MOST_STALE, number[2], &t);
    fprintf(stderr, "%s: %s\n", s->name, t.failure[0] ? t.failure : "no failure");
    return t.failure[0] != 0;
}

static int usage(FILE *to, const char *program, const explore_scenario *scenarios, int n) {
    fprintf(to, "usage: %s [SCENARIO [SEED | WORLD PREEMPTIONS NUMBER]]\n", program);
    fprintf(to, "FRUGAL_EXPLORE_SCHEDULES: how many a scenario (500; in the long tests 2000)\n");
    fprintf(to, "FRUGAL_SEED: the first seed (1)\nscenarios:\n");
    for (int i = 0; i < n; i++) fprintf(to, "  %-24s %s\n", scenarios[i].name, scenarios[i].claim);
    return to == stdout ? 0 : 2;
}

int explore_main(int argc, char **argv, const explore_scenario *scenarios, int n) {
    const explore_scenario *only = NULL;
    const char *given = getenv("FRUGAL_EXPLORE_SCHEDULES");
    uint64_t numbers[3] = {0}, schedules = test_rounds(2000);
    if (argc == 2 && !strcmp(argv[1], "--help")) return usage(stdout, argv[0], scenarios, n);
    for (int i = 0; i < n && argc > 1; i++)
        if (!strcmp(argv[1], scenarios[i].name)) only = &scenarios[i];
    if ((argc > 1 && !only) || argc == 4 || argc > 5) return usage(stderr, argv[0], scenarios, n);
    for (int i = 2; i < argc; i++)
        if (!read_number(argv[i], &numbers[i - 2])) return usage(stderr, argv[0], scenarios, n);
    if (given && (!read_number(given, &schedules) || schedules == 0)) return usage(stderr, argv[0], scenarios, n);
    if (argc > 2) return replay(only, argc - 2, numbers);
    uint64_t seed = test_seed(argv[0], 1);
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
