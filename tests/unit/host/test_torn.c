/* test_torn.c - a mapped table is clean when its rows are those of one step, and says of which; else it is torn, and is
 * refused unless the caller takes it. After a close in any state of the instance, and after kill -9 at any moment. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/fleet.h"
#include "tests/scratch.h"
#include "tests/unit/host/refused.h"
#include "frugal_save.h"

#if defined(FRUGAL_SANITIZED)
enum { KILLS = 4, LOSSES = 8 };
#else
enum { KILLS = 30, LOSSES = 30 };
#endif
enum { STEPS = 400 };

static frugal_type type; /* of weights, except in what is restored */

static frugal_desc file_desc(void) {
    frugal_desc d = rig_desc();
    d.rows_as = type;
    d.file = scratch_path("table");
    return d;
}

/* The file is torn: it says so, and who had it; taken as it is it opens, and closed after a drain it is clean. */
static void check_torn(int process) {
    char who[64];
    frugal_desc d = file_desc();
    snprintf(who, sizeof who, "process %d on ", process);
    assert_open_fails(FRUGAL_ERR_FILE, &d, "torn", who);
    assert_open_fails(FRUGAL_ERR_FILE, &d, "torn", "take_torn"); /* refusing it has not changed it */
    rig r = {0};
    d = file_desc(), d.take_torn = 1, d.first_step = 1000;
    rig_open(&r, &d);
    rig_finish(&r, 3);
    d = file_desc(), d.first_step = 1003;
    frugal_close(open_or_fail(&d));
}

/* The file is clean, of step `step`, with these rows. */
static void check_clean(const reference *ref, uint64_t step) {
    rig r = {0};
    frugal_desc d = file_desc();
    d.first_step = step;
    rig_open(&r, &d);
    assert_memory_equal(ref->weights, r.ref.weights, 4 * ref->rows * ref->dim);
    assert_memory_equal(ref->state, r.ref.state, 4 * ref->rows * ref->state_floats);
    rig_free(&r);
}

/* >>closing */

/* An instance on the file after `steps` steps, drained or not. */
static void train(rig *r, int steps, uint32_t workers, int drain) {
    frugal_desc d = file_desc();
    memset(r, 0, sizeof *r);
    d.workers = workers;
    rig_open(r, &d);
    rig_train(r, steps);
    if (drain) assert_int_equal(FRUGAL_OK, frugal_drain(r->f));
}

/* Closes it, keeping what the reference has. */
static void close_keeping(rig *r) {
    frugal_close(r->f);
    r->f = NULL;
}

static void test_drained(void **state) {
    (void)state;
    for (uint32_t workers = 0; workers < 5; workers++) {
        rig r;
        type = (frugal_type)(workers / 3 * (workers - 2)); /* the last two: bf16, fp16 */
        train(&r, 5, workers, 1);
        close_keeping(&r);
        check_clean(&r.ref, 5);
        rig_free(&r);
        assert_int_equal(1, scratch_end());
    }
    type = FRUGAL_FP32;
}

/* Without a drain, and without workers, the last step is not closed. */
static void test_not_drained(void **state) {
    (void)state;
    rig r;
    train(&r, 5, 0, 0);
    close_keeping(&r);
    rig_free(&r);
    check_torn((int)getpid());
    scratch_end();
}

static void test_stopped(void **state) {
    (void)state;
    rig r;
    train(&r, 5, 1, 1);
    frugal_stop(r.f);
    close_keeping(&r);
    check_clean(&r.ref, 5);
    rig_free(&r);
    scratch_end();
    train(&r, 5, 0, 0); /* stopped before the last step is closed: it cannot be drained any more */
    frugal_stop(r.f);
    assert_int_equal(FRUGAL_STOPPED, frugal_drain(r.f));
    close_keeping(&r);
    rig_free(&r);
    check_torn((int)getpid());
    scratch_end();
}

/* One device has updated the step, the other has not: no row has anything of it. */
static void test_half_a_step(void **state) {
    (void)state;
    rig r;
    train(&r, 5, 1, 1);
    for (uint32_t d = 0; d < 2; d++) rig_announce(&r, d);
    for (uint32_t d = 0; d < 2; d++) rig_lookup(&r, d);
    rig_update(&r, 0);
    close_keeping(&r);
    check_clean(&r.ref, 5);
    rig_free(&r);
    scratch_end();
}

/* Written rows, and no step. */
static void test_only_written(void **state) {
    (void)state;
    rig r;
    train(&r, 0, 0, 0);
    uint64_t key = 7;
    frugal_keys keys = {.table = 1, .keys = &key, .n = 1};
    float row[5] = {1, 2, 3, 4, 5};
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &keys, row, NULL));
    memcpy(r.ref.weights + (40 + 7) * 5, row, sizeof row);
    close_keeping(&r);
    check_clean(&r.ref, 0);
    rig_free(&r);
    scratch_end();
}

/* An open that fails changes nothing in a file that is there. */
static void test_failed_open(void **state) {
    (void)state;
    rig r;
    train(&r, 5, 0, 1);
    close_keeping(&r);
    for (uint64_t at = 1;; at++) {
        test_counter counter = {.fail_at = at};
        frugal_desc d = file_desc();
        d.workers = 1, d.allocate = test_allocate, d.release = test_release, d.user = &counter;
        frugal *f;
        frugal_status status = frugal_open(&d, &f);
        frugal_close(f);
        check_clean(&r.ref, 5);
        if (status == FRUGAL_OK) break;
        assert_int_equal(FRUGAL_ERR_MEMORY, status);
    }
    rig_free(&r);
    scratch_end();
}

/* A device that takes a step and is never through with it: the drain fails, and whether it will change rows is open. */
static frugal_status never_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static frugal_status never_update(void *device, const frugal_step *step, const void *grads) {
    (void)device, (void)step, (void)grads;
    return FRUGAL_OK;
}
static void never_close(void *device) {
    (void)device;
}
static frugal_status never_poll(void *device, uint64_t *steps) {
    (void)device;
    *steps = 0;
    return FRUGAL_OK;
}

static void test_failed_drain(void **state) {
    (void)state;
    frugal_desc d = file_desc();
    d.devices = 1, d.stuck_seconds = 0.02;
    frugal *f = open_or_fail(&d);
    const frugal_device_ops ops = {
        .lookup = never_lookup, .update = never_update, .close = never_close, .poll = never_poll};
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, NULL));
    frugal_batch none = {NULL, 0, 0};
    assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, 0, &none));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, NULL));
    assert_int_equal(FRUGAL_ERR_STUCK, frugal_drain(f));
    frugal_close(f);
    check_torn((int)getpid());
    scratch_end();
}

/* A lost device: what is drained is the table of the last step that all devices finished, and the file is clean. */
static void lost_trial(uint64_t seed) {
    test_random random = {.seed = test_mix2(seed, 16)};
    fleet *w = calloc(1, sizeof *w);
    frugal_desc desc = file_desc();
    current_generation = 0;
    desc.workers = (uint32_t)test_below(&random, 3);
    w->kinds[0] = (int)test_between(&random, POLLED, WAITING);
    w->ahead = (uint32_t)test_below(&random, desc.lookahead + 1);
    w->s[0].lost_at = test_between(&random, 1, 25);
    fleet_open(w, &desc, (unsigned)test_below(&random, 100));
    w->to = 400;
    train_in_threads(w, 0);
    assert_int_equal(FRUGAL_ERR_LOST, w->ended_by[0]);
    int drained = test_chance(&random, 70);
    if (drained) assert_int_equal(FRUGAL_OK, frugal_drain(w->r.f));
    frugal_stats stats;
    frugal_get_stats(w->r.f, &stats);
    judge(w, stats.steps);
    frugal_close(w->r.f);
    w->r.f = NULL;
    frugal *f;
    frugal_desc d = file_desc();
    frugal_status status = frugal_open(&d, &f);
    frugal_close(f);
    if (status == FRUGAL_OK && drained)
        check_clean(&w->r.ref, stats.steps);
    else if (drained)
        fail_msg("open: %s", frugal_message());
    fleet_close(w);
    free(w);
    scratch_end();
}

static void test_lost(void **state) {
    (void)state;
    for (uint64_t i = 0; i < LOSSES; i++) lost_trial(i);
}

/* Saves are read into a torn file, whatever it was: it is clean again, of their step. */
static void test_restored(void **state) {
    (void)state;
    rig r = {0}, torn;
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 4);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    const char *const base = scratch_path("base");
    assert_int_equal(FRUGAL_OK, frugal_save(&r.f, 1, &(frugal_save_desc){.path = base}));
    for (int kind = 0; kind < 3; kind++) { /* a torn table; one of another step; none */
        if (kind < 2) {
            train(&torn, 7, 0, kind == 1);
            close_keeping(&torn);
            rig_free(&torn);
        }
        d = file_desc(), d.saved = &base, d.n_saved = 1;
        frugal *f = open_or_fail(&d);
        assert_int_equal(4, frugal_settings(f)->first_step);
        frugal_close(f);
        check_clean(&r.ref, 4);
        assert_int_equal(0, unlink(file_desc().file));
    }
    rig_finish(&r, 1);
    scratch_end();
}

/* A restore that does not come to its end leaves a torn file where rows have been overwritten, else what was there. */
static void test_failed_restore(void **state) {
    (void)state;
    rig r = {0}, whole;
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    const char *const base = scratch_path("base");
    assert_int_equal(FRUGAL_OK, frugal_save(&r.f, 1, &(frugal_save_desc){.path = base}));
    train(&whole, 5, 0, 1);
    close_keeping(&whole);
    int refused = 0;
    for (uint64_t at = 1;; at++) {
        test_counter counter = {.fail_at = at};
        d = file_desc(), d.saved = &base, d.n_saved = 1;
        d.allocate = test_allocate, d.release = test_release, d.user = &counter;
        frugal *f;
        frugal_status status = frugal_open(&d, &f);
        frugal_close(f);
        if (status == FRUGAL_OK) break;
        assert_int_equal(FRUGAL_ERR_MEMORY, status);
        d = file_desc();
        status = frugal_open(&d, &f);
        frugal_close(f);
        if (status == FRUGAL_OK) check_clean(&whole.ref, 5);
        if (status != FRUGAL_OK) assert_non_null(strstr(frugal_message(), "torn")), refused++;
    }
    assert_true(refused < 3); /* memory is asked for before a row is overwritten, except what reading them takes */
    check_clean(&r.ref, 0);
    rig_free(&whole);
    rig_finish(&r, 1);
    scratch_end();
}

/* >>killing */

/* In a child: trains two steps at a time, each time in the file opened again, until it is killed. */
static void train_until_killed(frugal_desc d, uint64_t from, uint32_t workers, int said) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever ends the test ends its child */
    for (uint64_t step = from; step < STEPS; step += 2) {
        rig r = {0};
        d.first_step = step, d.workers = workers;
        rig_open(&r, &d);
        if (step == from && write(said, "o", 1) != 1) _exit(3);
        rig_finish(&r, 2);
    }
    _exit(0);
}

/* Kills the child a while after it has begun, or opened; its number. */
static int kill_once(const frugal_desc *d, uint64_t from, uint64_t seed) {
    int said[2], status = -1;
    char byte;
    assert_int_equal(0, pipe(said));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) train_until_killed(*d, from, (uint32_t)(seed % 3), said[1]);
    close(said[1]);
    if (seed % 4 && read(said[0], &byte, 1) != 1) fail_msg("the child did not open the file");
    nap((unsigned)(test_mix(seed) % (seed % 2 ? 20000 : 1000)));
    assert_int_equal(0, kill(child, SIGKILL));
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    close(said[0]);
    return (int)child;
}

/* What the child left: nothing with that name, a clean table that is the reference's at its step, or a torn one. 0: it
 * is torn; else 1 and the step to go on from. */
static uint64_t check_left(const reference *at, int child, int *torn) {
    char who[64];
    frugal_desc d = file_desc();
    frugal *f;
    snprintf(who, sizeof who, "process %d on", child);
    if (access(d.file, F_OK)) return 1;
    for (uint64_t step = 2; step <= STEPS; step += 2) { /* a step that is not its own is refused */
        d.first_step = step;
        frugal_status status = frugal_open(&d, &f);
        int other = strstr(frugal_message(), "next step is") != NULL;
        frugal_close(f);
        if (status == FRUGAL_OK) {
            check_clean(&at[step / 2], step);
            return step + 1;
        }
        assert_int_equal(FRUGAL_ERR_FILE, status);
        if (other) continue;
        if (!strstr(frugal_message(), "torn") || !strstr(frugal_message(), who)) fail_msg("%s", frugal_message());
        (*torn)++;
        check_torn(child);
        return 0;
    }
    d.first_step = 0; /* made, closed and not trained on: that does not occur here */
    frugal_close(open_or_fail(&d));
    return 1;
}

/* The reference after 0, 2, 4 ... steps. */
static reference *train_reference(void) {
    reference *at = calloc(STEPS / 2 + 1, sizeof *at);
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    for (int i = 0; i <= STEPS / 2; i++) {
        at[i] = r.ref;
        at[i].weights = malloc(4 * r.ref.rows * r.ref.dim);
        at[i].state = malloc(4 * r.ref.rows * r.ref.state_floats);
        memcpy(at[i].weights, r.ref.weights, 4 * r.ref.rows * r.ref.dim);
        memcpy(at[i].state, r.ref.state, 4 * r.ref.rows * r.ref.state_floats);
        if (i < STEPS / 2) rig_train(&r, 2);
    }
    rig_finish(&r, 0);
    return at;
}

static void test_killed(void **state) {
    (void)state;
    reference *at = train_reference();
    uint64_t from = 0;
    int torn = 0, clean = 0, none = 0;
    for (uint64_t i = 0; i < KILLS; i++) {
        frugal_desc d = file_desc();
        int child = kill_once(&d, from, i);
        uint64_t next = check_left(at, child, &torn);
        none += next == 1, clean += next > 1;
        if (next <= 1 || next > STEPS - 50) { /* from the start */
            next = 1;
            scratch_end();
        }
        from = next - 1;
    }
    print_message("# %d kills: %d torn, %d clean, %d without a file\n", (int)KILLS, torn, clean, none);
    assert_true(torn > 0);
    for (int i = 0; i <= STEPS / 2; i++) free(at[i].weights), free(at[i].state);
    free(at);
    scratch_path("");
    scratch_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drained),     cmocka_unit_test(test_not_drained),    cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_half_a_step), cmocka_unit_test(test_only_written),   cmocka_unit_test(test_failed_open),
        cmocka_unit_test(test_restored),    cmocka_unit_test(test_failed_restore), cmocka_unit_test(test_failed_drain),
        cmocka_unit_test(test_lost),        cmocka_unit_test(test_killed),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
