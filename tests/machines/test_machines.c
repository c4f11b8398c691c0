/* test_machines.c - tables dealt over machines, compared with the sequential reference bit by bit: the machines are of
 * this process, and so are the wires between them (wires.h), which delay and reorder messages by the seed.
 *
 *      test_machines                all cases, as cmocka tests
 *      test_machines SEED [COUNT]   replays the configuration that a failure named, and COUNT - 1 after it
 *
 * Random configurations are those of the property test (tests/property/trial.h), with machines as one more choice. A
 * trainer's calls are those of that test, too, made by threads of each machine. FRUGAL_TEST_COUNT sets how many. With
 * TEST_CUDA devices are on GPUs or on host cores, by the seed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/stress/stress.h"
#include "trials.h"
#include "wires.h"

#ifdef TEST_CUDA
enum { RANDOM_COUNT = 200, SHORT_COUNT = 5, ON_GPUS = 1 };
#define NAME "test_cuda_machines"
#else
enum { RANDOM_COUNT = 1000, SHORT_COUNT = 25, ON_GPUS = 0 };
#define NAME "test_machines"
#endif
enum { FIRST_SEED = 59000 };

static const char *program;

/* >>trial */

static void pass_barrier(machine *m) {
    pthread_barrier_wait(m->barrier);
}
static wires_options options_of(const trial *t) {
    wires_options o = {.seed = t->seed, .machines = t->machines};
    o.delay = (uint32_t)(trial_bits(t, 94, 0, 0) % 3 ? trial_bits(t, 95, 0, 0) % 20 : 0);
    o.buffered = (unsigned)(trial_bits(t, 96, 0, 0) % 101), o.late = (unsigned)(trial_bits(t, 97, 0, 0) % 101);
    return o;
}
/* What machines have counted, together. */
static void check_counts(const trial *t, const expectation *e, const machine *all, progress *p) {
    uint64_t flushed = 0, alone = 0, shared = 0;
    for (uint32_t i = 0; i < t->machines; i++) {
        const frugal_stats *s = &all[i].stats;
        flushed += s->flushed + s->in_place, alone += s->alone, shared += s->shared;
        if (s->steps != t->steps) run_fail(p->runs, "machine %u: %llu steps", i, (unsigned long long)s->steps);
    }
    if (flushed != e->flushed || alone != e->alone || shared != e->shared)
        run_fail(p->runs, "counted: flushed %llu/%llu, alone %llu/%llu, shared %llu/%llu", (unsigned long long)flushed,
                 (unsigned long long)e->flushed, (unsigned long long)alone, (unsigned long long)e->alone,
                 (unsigned long long)shared, (unsigned long long)e->shared);
}
static void run_machines(const trial *t, expectation *e, progress *p) {
    static run runs[MOST_MACHINES];
    machine all[MOST_MACHINES] = {0};
    wires_options options = options_of(t);
    pthread_barrier_t barrier;
    wires w;
    uint8_t *homes = homes_of(t);
    uint32_t here = t->devices / t->machines;
    int waits = trial_bits(t, 98, 0, 0) % 2;
    wires_init(&w, &options);
    memset(runs, 0, sizeof runs);
    pthread_barrier_init(&barrier, NULL, t->machines);
    for (uint32_t i = 0; i < t->machines; i++) {
        machine *m = &all[i];
        *m = (machine){
            .r = &runs[i], .wire = wires_of(&w, i), .pass = pass_barrier, .barrier = &barrier, .waits = waits};
        m->dealt = (frugal_machines){&m->wire, t->deal, t->deal == FRUGAL_DEAL_LISTED ? homes : NULL};
        runs[i].t = t, runs[i].e = e, runs[i].listed = TRIAL_BOUNDARIES, runs[i].machines = &m->dealt;
        runs[i].first = i * here, runs[i].end = (i + 1) * here;
    }
    progress_begin(p, runs, t->machines);
    for (uint32_t i = 0; i < t->machines; i++)
        if (pthread_create(&all[i].thread, NULL, machine_main, &all[i])) abort();
    for (uint32_t i = 0; i < t->machines; i++) pthread_join(all[i].thread, NULL);
    if (!p->failed) check_counts(t, e, all, p);
    progress_end(p);
    pthread_barrier_destroy(&barrier);
    wires_destroy(&w);
    free(homes);
}

/* 1 if all is as the reference says; else message[512] says what is not. */
static int run_trial(const trial *t, char *message) {
    static expectation e;
    static progress p;
    memset(&e, 0, sizeof e);
    stress_enter(t->seed, "%s %llu", program, (unsigned long long)t->seed);
    expect(t, &e, &p);
    if (!p.failed) run_machines(t, &e, &p);
    reference_stale_close(&e.stale);
    reference_close(&e.ref);
    free(e.lookups), free(e.by_row);
    strcpy(message, p.message);
    stress_leave();
    return !p.failed;
}
/* >>grid: 1 x 4, 2 x 2, 4 x 1 machines and devices, by hand */

static void make_plain(trial *t, uint64_t seed, uint32_t machines) {
    static const uint32_t dims[] = {16, 5, 33};
    memset(t, 0, sizeof *t);
    t->seed = seed;
    t->n_tables = 2, t->table_rows[0] = 90, t->table_rows[1] = 31, t->dim = dims[seed % 3];
    t->devices = 4, t->max_keys = 50, t->steps = 15;
    trial_shape_dealt(t, machines);
    t->skew = TRIAL_ZIPF, t->trainers = 4, t->lookups_wait = 1, t->lr_changes = 1, t->bags = 20;
    t->has_own[1] = 1, t->own[1].lr_scale = .5f;
    for (uint32_t d = 0; d < 4; d++) t->ends[d] = UINT32_MAX, t->caches[d].cache_rows = 20;
    t->row_stride = t->dim;
    t->n_boundaries = 1;
    t->boundaries[0] = (trial_boundary){.at = t->steps, .announce_to = t->steps, .actions = TRIAL_DRAIN | TRIAL_READ};
}
static void test_grid(void **state) {
    frugal_optimizer_kind kind = (frugal_optimizer_kind)(intptr_t)*state;
    static const frugal_alone alone[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};
    uint64_t seed = (uint64_t)kind;
    for (int way = 0; way < 3; way++)
        for (uint32_t lookahead = 0; lookahead <= 10; lookahead++)
            for (uint32_t machines = 1; machines <= 4; machines *= 2, seed++) {
                trial t;
                char message[512];
                uint32_t every = test_is_short() ? 11 : ON_GPUS ? 3 : 1; /* GPUs on the host are slow */
                if ((lookahead + (uint32_t)way + (uint32_t)kind) % every) continue;
                if (test_is_short() && ON_GPUS && (machines != 2 || way != (int)kind % 3)) continue;
                make_plain(&t, seed, machines);
                t.lookahead = t.ahead = lookahead, t.alone = alone[way], t.workers = seed % 2 ? 2 : 0;
                t.optimizer.kind = t.own[1].kind = kind;
                if (run_trial(&t, message)) continue;
                describe(&t);
                fail_msg("%u machines, L %u, alone %d: %s", machines, lookahead, (int)alone[way], message);
            }
}

/* >>random */

static void test_random_configurations(void **state) {
    (void)state;
    const char *count = getenv("FRUGAL_TEST_COUNT");
    uint64_t base = test_seed(NAME, FIRST_SEED);
    uint64_t n = count ? strtoull(count, NULL, 0) : test_is_short() ? SHORT_COUNT : RANDOM_COUNT;
    for (uint64_t i = 0; i < n; i++) {
        trial t;
        char message[512];
        make_random(&t, base + i, 1 + (uint32_t)(test_mix(base + i) % MOST_MACHINES));
        if (run_trial(&t, message)) continue;
        describe(&t);
        fail_msg("%s; replay: %s %llu", message, program, (unsigned long long)t.seed);
    }
}
static int replay(uint64_t seed, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        trial t;
        char message[512];
        make_random(&t, seed + i, 1 + (uint32_t)(test_mix(seed + i) % MOST_MACHINES));
        describe(&t);
        if (run_trial(&t, message)) continue;
        printf("seed %llu FAILED: %s\n", (unsigned long long)t.seed, message);
        return 1;
    }
    printf("%llu configurations passed\n", (unsigned long long)count);
    return 0;
}

#define GRID(name, kind)                                                                                               \
    { "1 x 4, 2 x 2 and 4 x 1 have the reference's bits: " name, test_grid, NULL, NULL, (void *)(intptr_t)(kind) }

int main(int argc, char **argv) {
    program = argv[0];
    if (argc > 1) {
        stress_open(1, argv, 1);
        return replay(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
    }
    const struct CMUnitTest tests[] = {
        GRID("SGD", FRUGAL_SGD),
        GRID("Adagrad", FRUGAL_ADAGRAD),
        GRID("row-wise Adagrad", FRUGAL_ROWWISE_ADAGRAD),
        GRID("Adam", FRUGAL_ADAM),
        cmocka_unit_test(test_random_configurations),
    };
    return stress_run_group(1, argv, NAME, tests);
}
