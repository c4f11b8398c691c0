/* test_property.c - random configurations, trained by frugal and by the sequential reference, compared bit by bit.
 *
 *      test_property                all cases, as cmocka tests
 *      test_property -v             the same, a line a configuration
 *      test_property SEED [COUNT]   replays the configuration that a failure named, and COUNT - 1 more of its focus
 *
 * Compiled with TEST_CUDA it is tests/cuda's: devices are GPUs, or some of them, which one the seed decides.
 *
 * FRUGAL_TEST_COUNT sets the configurations a case, FRUGAL_SEED where they begin; FRUGAL_STRESS_SECONDS goes on so long
 * instead, from the clock's seed on (stress.h). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/stress/stress.h"
#include "boundary.h"
#include "phase.h"

enum { CASE_COUNT = 80 };
enum { FIRST_SEED = 20261120 };
#ifdef TEST_CUDA
enum { FOCUS_COUNT = 4 }; /* for one of the host's */
#else
enum { FOCUS_COUNT = 1 };
#endif

static int verbose;
static uint64_t base_seed;
static const char *program;

static void describe(const trial *t) {
    printf("# seed %llu: rows %llu in %u, dim %u, devices %u, keys %u, L %u, S %u, %sworkers %u, steps %u from %llu, "
           "%s, optimizer %d (tables' own: %d%d%d), storage %d, trainers %u, loaders %u, boundaries %u, "
           "type %d%s, arrays %u%%%s\n",
           (unsigned long long)t->seed, (unsigned long long)t->rows, t->n_tables, t->dim, t->devices, t->max_keys,
           t->lookahead, t->staging, t->shares ? "shared " : "", t->workers, t->steps,
           (unsigned long long)t->first_step, t->mode == FRUGAL_SYNC ? "sync" : "p2f", (int)t->optimizer.kind,
           t->has_own[0], t->has_own[1], t->has_own[2], t->storage, t->trainers, t->loaders, t->n_boundaries,
           (int)t->rows_as, t->rounding == FRUGAL_NEAREST ? " (nearest)" : "", t->arrays,
           t->stale ? ", secondaries" : "");
    fflush(stdout);
}

static void run_phases(run *r) {
    const trial *t = r->t;
    for (r->phase = 0; r->phase < t->n_boundaries && !atomic_load(&r->p->failed); r->phase++) {
        const trial_boundary *b = &t->boundaries[r->phase];
        r->to = b->at;
        for (uint32_t d = 0; d < t->devices; d++) {
            int fewer = b->ragged && trial_bits(t, 17, d, r->phase) % 2 && b->announce_to > b->at;
            r->announce_to[d] = b->announce_to - (uint32_t)fewer;
        }
        run_phase(r);
        if (!atomic_load(&r->p->failed)) run_boundary(r, r->phase);
        r->from = r->to;
    }
}

/* Runs one configuration, on `workers` if they are shared. As run_trial. */
static int run_beside(const trial *t, frugal_workers *workers, int mutation, char *message) {
    expectation e;
    run r = {.t = t, .e = &e, .workers = workers, .mutation = mutation, .listed = TRIAL_BOUNDARIES, .end = t->devices};
    progress p;
    progress_begin(&p, &r, 1);
    memset(&e, 0, sizeof(e));
    if (verbose) describe(t);
    run_open(&r);
    if (!atomic_load(&p.failed)) simulate(t, &e);
    int pointless = mutation != NO_MUTATION && !e.brought;
    if (mutation == MUTATE_SEED) pointless = t->rows_as == FRUGAL_FP32 || e.flushed * t->dim < 200; /* may be equal */
    if (!atomic_load(&p.failed) && !pointless) run_phases(&r);
    if (!atomic_load(&p.failed) && !pointless) check_tables(&r, "drained"), check_stats(&r);
    if (!atomic_load(&p.failed) && !pointless) check_matrix(&r, 0), check_matrix(&r, 1);
    run_close(&r);
    if (!pointless) check_reopened(&r);
    if (r.file[0]) unlink(r.file);
    reference_stale_close(&e.stale);
    reference_close(&e.ref);
    free(e.lookups), free(e.by_row), free(r.matrix), free(r.matrix_state);
    progress_end(&p);
    strcpy(message, p.message);
    return pointless ? 2 : !p.failed;
}

typedef struct side { /* a trial that shares its workers with another */
    pthread_t thread;
    trial t;
    frugal_workers *workers;
    int result;
    char message[512];
} side;

static void *side_main(void *argument) {
    side *s = argument;
    s->result = run_beside(&s->t, s->workers, NO_MUTATION, s->message);
    return NULL;
}

/* Runs one configuration, or two that share workers. 1 if frugal and the reference agree; else message[512] says where
 * not. 2 if the mutation asked for has nothing to change. */
static int run_trial(const trial *t, int mutation, char *message) {
    side other = {.result = 1};
    int two = t->seed % 16 == TRIAL_SHARING, result = 0;
    stress_enter(t->seed, "%s %llu", program, (unsigned long long)t->seed);
    if (t->shares && frugal_workers_open(t->workers, &other.workers) != FRUGAL_OK) {
        snprintf(message, 512, "%.500s", frugal_message());
    } else {
        if (two) trial_make_other(&other.t, t);
        if (two && pthread_create(&other.thread, NULL, side_main, &other)) abort();
        result = run_beside(t, other.workers, mutation, message);
        if (two) pthread_join(other.thread, NULL);
    }
    if (frugal_workers_close(other.workers) != FRUGAL_OK && result)
        result = 0, snprintf(message, 512, "%.500s", frugal_message());
    if (!other.result && result) result = 0, snprintf(message, 512, "the other trial: %.480s", other.message);
    stress_leave();
    return result;
}

static unsigned case_count(void) {
    const char *text = getenv("FRUGAL_TEST_COUNT");
    return text ? (unsigned)strtoul(text, NULL, 0) : (unsigned)test_rounds(CASE_COUNT) / FOCUS_COUNT;
}

/* A cmocka case: configurations of one focus. */
static void test_focus(void **state) {
    uint64_t focus = (uint64_t)(uintptr_t)*state;
    char name[32];
    snprintf(name, sizeof name, "focus %u", (unsigned)focus);
    for (stress s = stress_begin_at(name, case_count(), FIRST_SEED); stress_next(&s);) {
        trial t;
        char message[512];
        trial_make(&t, s.seed * 16 + focus);
        s.steps += t.steps;
        if (run_trial(&t, NO_MUTATION, message)) continue;
        describe(&t);
        fail_msg("%s; replay: %s %llu", message, program, (unsigned long long)t.seed);
    }
}

/* The judge can say no: a gradient changed, an update left out, or other random bits are noticed every time. */
static void test_judge(void **state) {
    int mutation = (int)(intptr_t)*state, done = 0;
    for (uint64_t i = 0; done < 8; i++) {
        trial t;
        char message[512];
        trial_make(&t, (base_seed + 1000 + i) * 16 + i % TRIAL_FOCI);
        for (uint32_t b = 0; b < t.n_boundaries; b++) t.boundaries[b].actions &= ~TRIAL_WRITE; /* it might hide it */
        for (uint32_t k = 0; k < TRIAL_TABLES; k++) t.own[k].frozen = 0;                       /* so might this */
        t.optimizer.frozen = 0;
        t.rounding = FRUGAL_STOCHASTIC; /* 16 bits hide a small change, and nearest has no random bits */
        t.rows_as = mutation == MUTATE_SEED ? FRUGAL_BF16 : FRUGAL_FP32;
        int result = run_trial(&t, mutation, message);
        if (result == 1) fail_msg("mutation %d went unnoticed; seed %llu", mutation, (unsigned long long)t.seed);
        done += result == 0;
        if (result == 0 && !strstr(message, "differ"))
            fail_msg("not a difference: %s; seed %llu", message, (unsigned long long)t.seed);
    }
}

static int replay(uint64_t seed, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        trial t;
        char message[512];
        trial_make(&t, seed + 16 * i);
        if (!run_trial(&t, NO_MUTATION, message)) {
            printf("seed %llu FAILED: %s\n", (unsigned long long)t.seed, message);
            return 1;
        }
    }
    printf("%llu configurations passed\n", (unsigned long long)count);
    return 0;
}

#define FOCUS(name, focus)                                                                                             \
    { "bitwise equal to the reference: " name, test_focus, NULL, NULL, (void *)(intptr_t)(focus) }
#define JUDGE(name, kind)                                                                                              \
    { "the judge notices: " name, test_judge, NULL, NULL, (void *)(intptr_t)(kind) }

int main(int argc, char **argv) {
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "-v") == 0) verbose = 1, argc--, argv++;
    if (argc > 1) {
        verbose = 1;
        stress_open(1, argv, 1);
        return replay(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
    }
    base_seed = test_seed("test_property", FIRST_SEED);
    const struct CMUnitTest tests[] = {
        JUDGE("a gradient changed", MUTATE_GRADIENT),
        JUDGE("an update left out", MUTATE_SKIP),
        JUDGE("random bits of another seed", MUTATE_SEED),
        FOCUS("anything", TRIAL_ANY),
        FOCUS("one thread drives all devices", TRIAL_ONE_THREAD),
        FOCUS("a thread a device", TRIAL_THREAD_A_DEVICE),
        FOCUS("loader and trainer threads", TRIAL_LOADERS),
        FOCUS("no workers", TRIAL_NO_WORKERS),
        FOCUS("write-through", TRIAL_SYNC),
        FOCUS("SGD", TRIAL_SGD),
        FOCUS("Adagrad", TRIAL_ADAGRAD),
        FOCUS("row-wise Adagrad", TRIAL_ROWWISE),
        FOCUS("Adam", TRIAL_ADAM),
        FOCUS("AdamW", TRIAL_ADAMW),
        FOCUS("the caller's matrix, or a file", TRIAL_FOREIGN_MEMORY),
        FOCUS("steps of several pieces", TRIAL_WIDE),
        FOCUS("caches and locality", TRIAL_CACHES),
        FOCUS("two instances that share workers", TRIAL_SHARING),
        FOCUS("secondaries", TRIAL_STALE),
        FOCUS("weights of 16 bits", TRIAL_HALVES),
    };
    return stress_run_group(1, argv, "test_property", tests);
}
