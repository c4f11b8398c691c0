/* test_polled.c - devices that go on working after a call has returned, as a GPU does: the bits are the reference's,
 * whenever a device finishes a step. The devices are those of fleet.h. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "frugal_save.h"
#include "tests/fleet.h"
#include "tests/scratch.h"
#include "tests/unit/host/puppet.h"

#if defined(FRUGAL_SANITIZED) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TRIALS = 24, LOSSES = 10 };
#else
enum { TRIALS = 120, LOSSES = 40 };
#endif

static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};

/* Types of weights and of arrays, by a number of their own, so that no other draw moves. */
static void draw_types(uint64_t seed, frugal_desc *desc) {
    static const frugal_type types[] = {FRUGAL_FP32, FRUGAL_BF16, FRUGAL_FP16};
    uint64_t bits = test_mix2(seed, 51);
    desc->rows_as = types[bits % 3];
    if (desc->rows_as != FRUGAL_FP32 && bits / 3 % 4 == 0) desc->rounding = FRUGAL_NEAREST;
    current_arrays = bits / 12 % 2 == 0;
}

/* What is done between steps: any of them must find the reference's table. */
static void between(fleet *w, uint64_t bits) {
    rig *r = &w->r;
    uint64_t announced = r->step;
    for (uint32_t d = 0; d < r->desc.devices; d++)
        announced = r->announced[d] > announced ? r->announced[d] : announced;
    if (bits % 2) rig_compare(r); /* reads rows while devices are at work */
    if (bits / 2 % 3 == 0) {
        if (frugal_drain(r->f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
        rig_compare(r);
    }
    if (bits / 6 % 2) {
        uint64_t before[RIG_DEVICES];
        for (uint32_t d = 0; d < r->desc.devices; d++) before[d] = w->s[d].cancels;
        if (frugal_cancel(r->f, r->step) != FRUGAL_OK) fail_msg("cancel: %s", frugal_message());
        current_generation = ++w->generation;
        for (uint32_t d = 0; d < r->desc.devices; d++) {
            r->announced[d] = r->step;
            w->s[d].announced = r->step;
            if (w->kinds[d] != HOST) assert_int_equal(before[d] + 1, w->s[d].cancels);
        }
    }
}

static uint64_t count(uint64_t usual) {
    const char *text = getenv("FRUGAL_TEST_COUNT");
    return text ? strtoull(text, NULL, 0) : usual;
}

static void mixed_trial(uint64_t seed) {
    test_random random = {.seed = seed};
    fleet *w = calloc(1, sizeof *w);
    frugal_desc desc = rig_desc();
    current_generation = w->generation = 0;
    desc.devices = (uint32_t)test_between(&random, 1, RIG_DEVICES);
    desc.lookahead = (uint32_t)test_below(&random, 6);
    desc.workers = (uint32_t)test_below(&random, 3);
    desc.defer = (int)test_below(&random, 2);
    desc.staging = (uint32_t)test_below(&random, 4);
    desc.first_step = test_chance(&random, 50) ? 0 : test_below(&random, 100);
    desc.optimizer.kind = test_chance(&random, 50) ? FRUGAL_ADAM : FRUGAL_ADAGRAD;
    draw_types(seed, &desc);
    desc.alone = ways[test_below(&random, 3)];
    for (uint32_t d = 0; d < desc.devices; d++) w->kinds[d] = (int)test_below(&random, 3);
    w->kinds[test_below(&random, desc.devices)] = (int)test_between(&random, POLLED, WAITING);
    w->ahead = (uint32_t)test_below(&random, desc.lookahead + 1);
    w->r.cache.cache_rows = test_chance(&random, 50) ? 24 : 0;
    for (uint32_t d = 0; d < desc.devices; d++) w->s[d].linger = test_chance(&random, 15);
    for (uint32_t d = 1; d < desc.devices && seed % 3 == 0; d++) /* some devices have less data than others */
        if (test_mix2(seed, d) % 2) current_ends[d] = desc.first_step + 1 + test_mix2(d, seed) % 20;
    fleet_open(w, &desc, test_chance(&random, 30) ? 0 : (unsigned)test_between(&random, 10, 200));
    for (int i = 0; i < 3; i++) {
        phase(w, w->r.step + test_between(&random, 1, 12), (int)test_below(&random, 4));
        between(w, test_next(&random));
    }
    if (frugal_drain(w->r.f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
    assert_int_equal(FRUGAL_OK, frugal_verify(w->r.f));
    rig_compare(&w->r);
    fleet_close(w);
    memset(current_ends, 0, sizeof current_ends);
    current_arrays = 0;
    free(w);
}

static void test_mixed(void **state) {
    (void)state;
    const char *seed = getenv("FRUGAL_POLLED_SEED"); /* of one trial, that a failure named */
    if (seed) {
        mixed_trial(strtoull(seed, NULL, 0));
        return;
    }
    for (uint64_t i = 0; i < count(TRIALS); i++) {
        if (getenv("FRUGAL_VERBOSE")) fprintf(stderr, "# FRUGAL_POLLED_SEED=%u\n", (unsigned)i);
        mixed_trial(i);
    }
}

static fleet *two_ways(int first, int second, uint32_t lookahead, uint32_t workers, unsigned delay,
                       frugal_alone alone) {
    fleet *w = calloc(1, sizeof *w);
    frugal_desc desc = rig_desc();
    current_generation = 0;
    desc.lookahead = w->ahead = lookahead, desc.workers = workers;
    desc.optimizer.kind = FRUGAL_ADAM;
    desc.alone = alone;
    w->kinds[0] = first, w->kinds[1] = second;
    fleet_open(w, &desc, delay);
    return w;
}

static fleet *two(int first, int second, uint32_t lookahead, uint32_t workers, unsigned delay) {
    return two_ways(first, second, lookahead, workers, delay, FRUGAL_ALONE_STAGED);
}

static void other_brings(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    b->brings = (device + step) % 2 == 1;
}

/* A device brings for step 1 before another does for step 0: Adam's numbers are each step's own. */
static void test_ahead_of_the_other(void **state) {
    (void)state;
    fleet *w = two(WAITING, HOST, 3, 1, 0);
    w->r.change = other_brings;
    phase(w, 12, 1);
    assert_int_equal(FRUGAL_OK, frugal_drain(w->r.f));
    rig_compare(&w->r);
    fleet_close(w);
    free(w);
}

/* The device is through with a step before its update has returned and said what it brings. */
static void test_update_returns_late(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers < 3; workers++) {
        fleet *w = two(WAITING, POLLED, 4, workers, 0);
        w->s[0].linger = w->s[1].linger = 1;
        w->r.change = other_brings;
        w->ahead = 1;
        phase(w, 150, 2); /* brings change their places in the ring of 64 */
        assert_int_equal(FRUGAL_OK, frugal_drain(w->r.f));
        rig_compare(&w->r);
        fleet_close(w);
        free(w);
    }
}

/* >>stop and close, while a device waits at a gate */

typedef struct waiter {
    pthread_t thread;
    fleet *w;
    frugal_status status;
} waiter;

static void *lookup_main(void *argument) {
    waiter *x = argument;
    x->status = frugal_lookup(x->w->r.f, 0, 2, x->w->rows[0][2]);
    return NULL;
}

static void *drain_main(void *argument) {
    waiter *x = argument;
    x->status = frugal_drain(x->w->r.f);
    return NULL;
}

/* Device 0 waits at the gate of step 1, since device 1, of the host, has not updated step 0. */
static fleet *at_a_gate(uint32_t workers, frugal_alone alone) {
    fleet *w = two_ways(WAITING, HOST, 2, workers, 50, alone);
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, announce_once(w, d, 1));
    for (uint64_t t = 0; t < 2; t++) assert_int_equal(FRUGAL_OK, step_once(w, 0, t));
    return w;
}

static void test_close_at_a_gate(void **state) {
    (void)state;
    for (uint32_t workers = 0; workers < 3; workers++)
        for (int way = 0; way < 3; way++) {
            fleet *w = at_a_gate(workers, ways[way]);
            fleet_close(w);
            free(w);
        }
}

/* A drain waits, or a lookup of the next step. */
static void stop_at_a_gate(uint32_t workers, int drains, frugal_alone alone) {
    fleet *w = at_a_gate(workers, alone);
    const stream *s = &w->s[0];
    waiter x = {.w = w};
    if (pthread_create(&x.thread, NULL, drains ? drain_main : lookup_main, &x)) abort();
    nap(300);
    frugal_stop(w->r.f);
    pthread_join(x.thread, NULL);
    /* A drain waits for the steps that both have updated, not for what device 0 was given beyond them: if that changes
     * rows where they are, the drain is refused. */
    int refused = drains && alone != FRUGAL_ALONE_STAGED && x.status == FRUGAL_ERR_BUSY;
    if (x.status != FRUGAL_STOPPED && !(drains && x.status == FRUGAL_OK) && !refused)
        fail_msg("status %d, %s", x.status, frugal_message());
    assert_int_equal(FRUGAL_STOPPED, step_once(w, 0, 2));
    for (int i = 0; i < 50000 && finished_steps(s) < 2; i++) nap(100);
    assert_int_equal(2, finished_steps(s)); /* it does not wait for ever */
    fleet_close(w);
    free(w);
}

static void test_stop_at_a_gate(void **state) {
    (void)state;
    for (uint32_t workers = 0; workers < 3; workers++)
        for (int i = 0; i < 6; i++) stop_at_a_gate(workers, i % 2, ways[i / 2]);
}

/* >>a lost device */

static void lost_trial(uint64_t seed) {
    test_random random = {.seed = test_mix2(seed, 9)};
    fleet *w = calloc(1, sizeof *w);
    frugal_desc desc = rig_desc();
    current_generation = 0;
    desc.alone = ways[test_below(&random, 3)];
    desc.devices = (uint32_t)test_between(&random, 1, 3);
    desc.lookahead = (uint32_t)test_below(&random, 6);
    desc.workers = (uint32_t)test_below(&random, 3);
    desc.defer = (int)test_below(&random, 2);
    desc.staging = (uint32_t)test_below(&random, 3);
    for (uint32_t d = 0; d < desc.devices; d++) w->kinds[d] = (int)test_below(&random, 3);
    uint32_t lost = (uint32_t)test_below(&random, desc.devices);
    draw_types(test_mix2(seed, 9), &desc);
    w->kinds[lost] = (int)test_between(&random, POLLED, WAITING);
    w->ahead = (uint32_t)test_below(&random, desc.lookahead + 1);
    w->s[lost].lost_at = test_between(&random, 1, 25);
    fleet_open(w, &desc, (unsigned)test_below(&random, 100));
    w->to = 400;
    int way = (int)test_below(&random, 3);
    if (way == 0)
        end(w, 0, train_in_one(w));
    else
        train_in_threads(w, way == 2);
    char text[96], name[32];
    snprintf(text, sizeof text, ": FRUGAL_ERR_CUDA: the test took device %u away", lost);
    snprintf(name, sizeof name, "device %u was lost", lost);
    for (uint32_t d = 0; d < (way ? desc.devices : 1); d++) {
        if (w->ended_by[d] != FRUGAL_ERR_LOST) fail_msg("device %u ended by %d: %s", d, w->ended_by[d], w->said[d]);
        if (!strstr(w->said[d], text) || !strstr(w->said[d], name))
            fail_msg("'%s', '%s' are not in '%s'", name, text, w->said[d]);
    }
    for (frugal_status status = FRUGAL_OK; status != FRUGAL_ERR_LOST;) /* it does not say AGAIN for ever */
        if ((status = announce_once(w, lost, 0)) != FRUGAL_OK && status != FRUGAL_ERR_LOST &&
            status != FRUGAL_ERR_ORDER)
            fail_msg("try_announce: %d, %s", (int)status, frugal_message());
        else if (status == FRUGAL_AGAIN)
            frugal_help(w->r.f);
    unsigned long long kept = 0;
    frugal_status drained = frugal_drain(w->r.f);
    const char *says = strstr(frugal_message(), "the last updates of ");
    if (says) sscanf(says, "the last updates of %llu rows", &kept);
    if (kept > 0 && desc.alone != FRUGAL_ALONE_KEPT) fail_msg("%llu rows were kept", kept);
    if (drained != (kept > 0 ? FRUGAL_ERR_LOST : FRUGAL_OK)) fail_msg("drain: %d, %s", drained, frugal_message());
    frugal_stats stats;
    frugal_get_stats(w->r.f, &stats);
    assert_true(stats.steps <= w->s[lost].lost_at);
    compare_lost(w, stats.steps, kept);
    fleet_close(w);
    current_arrays = 0;
    free(w);
}

static void test_lost(void **state) {
    (void)state;
    for (uint64_t i = 0; i < count(LOSSES); i++) {
        if (getenv("FRUGAL_VERBOSE")) fprintf(stderr, "# loss %u\n", (unsigned)i);
        lost_trial(i);
    }
}

/* Its recalls are refused: some, and nothing comes of it; or all: training ends, and nothing that it keeps is lost. */
static void test_refused(void **state) {
    (void)state;
    for (uint32_t workers = 0; workers < 3; workers++)
        for (int all = 0; all < 2; all++)
            for (int kind = POLLED; kind <= WAITING; kind++) {
                fleet *w = calloc(1, sizeof *w);
                frugal_desc desc = rig_desc();
                current_generation = 0;
                desc.alone = FRUGAL_ALONE_KEPT, desc.workers = workers, w->ahead = 2;
                w->kinds[0] = kind, w->kinds[1] = POLLED + WAITING - kind;
                w->s[0].refusals = all ? UINT32_MAX : 5;
                fleet_open(w, &desc, 20);
                if (all) {
                    w->to = 400;
                    train_in_threads(w, workers == 1);
                    for (uint32_t d = 0; d < 2; d++)
                        if (w->ended_by[d] != FRUGAL_ERR_LOST || !strstr(w->said[d], "device 0 was lost") ||
                            !strstr(w->said[d], "it refused 100 recalls in a row, at last with: ") ||
                            !strstr(w->said[d], "device 0 has no memory"))
                            fail_msg("device %u ended by %d: %s", d, w->ended_by[d], w->said[d]);
                    frugal_stats stats;
                    if (frugal_drain(w->r.f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
                    frugal_get_stats(w->r.f, &stats);
                    assert_int_equal(0, stats.kept_now);
                    compare_lost(w, stats.steps, 0);
                } else {
                    phase(w, 60, 2);
                    assert_int_equal(0, w->s[0].refusals);
                    assert_int_equal(FRUGAL_OK, frugal_drain(w->r.f));
                    assert_int_equal(FRUGAL_OK, frugal_verify(w->r.f));
                    rig_compare(&w->r);
                }
                fleet_close(w);
                free(w);
            }
}

/* >>a device that a test moves on (puppet.h) */

/* Both wait for the device that is not through, and name it. */
static void test_not_finished(void **state) {
    (void)state;
    puppet p = {0};
    frugal *f = open_stepped_puppet(&p, 1);
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 1);
    assert_stuck(frugal_drain(f), "drain, step 0: nothing has moved for 0.02 s: step 0 is not committed: device 1");
    assert_stuck(frugal_lookup(f, 0, 1, NULL), "step 0 is not closed: device 1 has not finished it");
    p.done = 1;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 1, NULL));
    frugal_close(f);
}

/* Of a device that waits at gates itself, too, the lookup waits for the batch, and for those of the others: of the
 * first step, of a later one. */
static void test_not_announced(void **state) {
    (void)state;
    puppet p = {.waits = 1};
    frugal *f = open_puppet(&p, 0);
    assert_stuck(frugal_lookup(f, 0, 0, NULL), "device 0 has not announced step 0");
    frugal_close(f);
    f = open_stepped_puppet(&p, 0);
    p.done = 1;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_stuck(frugal_lookup(f, 0, 1, NULL), "device 0 has not announced step 1");
    announce_none(f, 0, 1);
    assert_stuck(frugal_lookup(f, 0, 1, NULL), "device 1 has not announced step 1");
    announce_none(f, 1, 1);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 1, NULL));
    frugal_close(f);
}

/* All have announced, so the gate is open; but the device is still being told of its batch. */
static void test_being_told(void **state) {
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        puppet p = {.waits = waits};
        frugal *f = p.f = open_puppet(&p, 0);
        announce_none(f, 1, 0);
        announce_none(f, 0, 0);
        assert_int_equal(FRUGAL_AGAIN, p.early[0]);
        assert_int_equal(FRUGAL_ERR_STUCK, p.early[1]);
        assert_non_null(
            strstr(p.said, "lookup, step 0: nothing has moved for 0.02 s: device 0 is being told of step 0"));
        assert_int_equal(FRUGAL_OK, frugal_try_lookup(f, 0, 0, NULL));
        frugal_close(f);
    }
}

/* What is told is what the lookup waits for first, whatever else is missing: that step 0 is finished, an update. */
static void test_first_missing(void **state) {
    (void)state;
    puppet p = {.waits = 1};
    frugal *f = open_stepped_puppet(&p, 1);
    assert_stuck(frugal_lookup(f, 1, 1, NULL), "device 0 has not announced step 1");
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 1);
    step_of_none(f, 1, 1);
    assert_stuck(frugal_lookup(f, 1, 2, NULL), "device 0 has not announced step 2");
    frugal_close(f);
}

/* It says that it is through with a step whose gate is not open: the step is committed when the gate is open, and not
 * before. */
static void test_through_before_the_gate(void **state) {
    (void)state;
    puppet p = {.waits = 1};
    frugal_stats stats;
    frugal *f = open_puppet(&p, 0);
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, t);
    for (uint64_t t = 0; t < 2; t++) step_of_none(f, 0, t);
    p.done = 2;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    while (frugal_help(f)) {
    }
    frugal_get_stats(f, &stats);
    assert_int_equal(0, stats.steps);
    for (uint64_t t = 0; t < 2; t++) step_of_none(f, 1, t);
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    frugal_get_stats(f, &stats);
    assert_int_equal(2, stats.steps);
    frugal_close(f);
}

/* Between its lookup and its update a device is told of another's loss; and steps that are taken back then do not
 * close gates that were forced open. */
static void test_loss_of_the_other(void **state) {
    (void)state;
    puppet p = {.waits = 1};
    frugal_records records;
    frugal *f = open_puppet(&p, 1);
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, t);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, NULL));
    step_of_none(f, 1, 0);
    assert_int_equal(FRUGAL_OK, frugal_get_records(f, 0, 0, &records));
    p.is_lost = 1;
    while (frugal_help(f)) {
    }
    assert_int_equal(FRUGAL_ERR_LOST, frugal_get_records(f, 0, 0, &records));
    assert_non_null(strstr(frugal_message(), "get_records: device 1 was lost: FRUGAL_ERR_CUDA: the test took"));
    assert_int_equal(FRUGAL_ERR_LOST, frugal_update(f, 0, 0, NULL));
    uint64_t forced = *frugal_gates(f);
    assert_true(forced > FRUGAL_GATES_FORCED);
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 1));
    assert_true(*frugal_gates(f) == forced);
    frugal_close(f);
}

/* Two devices update rows in place, and one is lost: until the other has done its update, or is lost, too, the table is
 * not read. */
static void test_writing_after_a_loss(void **state) {
    (void)state;
    static const frugal_device_ops ops = {.lookup = puppet_lookup,
                                          .update = puppet_update,
                                          .poll = puppet_poll,
                                          .close = puppet_close,
                                          .updates_in_place = puppet_in_place};
    for (int both = 0; both < 2; both++) {
        puppet p[2] = {{0}, {0}};
        const void *weights;
        uint64_t stride;
        frugal_desc desc = rig_desc();
        desc.stuck_seconds = 0.02, desc.alone = FRUGAL_ALONE_PLACE, desc.workers = 0;
        frugal *f = open_or_fail(&desc);
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_attach(f, d, &ops, &p[d]));
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
        for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 0);
        p[1].is_lost = 1;
        assert_stuck(frugal_drain(f), "device 0 has not finished step 0, which it updates in place");
        assert_stuck(frugal_read_rows(f, &(frugal_keys){.table = 0, .keys = (uint64_t[]){0}, .n = 1}, NULL, NULL),
                     "device 0 has not");
        assert_int_equal(FRUGAL_ERR_BUSY, frugal_view(f, 0, &weights, &stride));
        if (both)
            p[0].is_lost = 1;
        else
            p[0].done = 1;
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_OK, frugal_view(f, 0, &weights, &stride));
        assert_int_equal(FRUGAL_ERR_LOST, frugal_lookup(f, 0, 1, NULL));
        assert_non_null(strstr(frugal_message(), "device 1 was lost")); /* the first one */
        frugal_close(f);
    }
}

/* Nothing is awaited of a device that leaves its rows to workers, nor of one on host cores, whose update is done when
 * the call returns. */
static void test_others_after_a_loss(void **state) {
    (void)state;
    static const frugal_device_ops ops[] = {
        {.lookup = puppet_lookup, .update = puppet_update, .poll = puppet_poll, .close = puppet_close},
        {.lookup = puppet_lookup,
         .update = puppet_update,
         .poll = puppet_poll,
         .close = puppet_close,
         .updates_in_place = puppet_in_place}};
    for (int host = 0; host < 2; host++) {
        puppet p[2] = {{0}, {0}};
        frugal_desc desc = rig_desc();
        desc.stuck_seconds = 0.02, desc.alone = FRUGAL_ALONE_PLACE, desc.workers = 0;
        frugal *f = open_or_fail(&desc);
        if (host)
            assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
        else
            assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops[0], &p[0]));
        assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &ops[1], &p[1]));
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
        for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 0);
        p[1].is_lost = 1;
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_ERR_LOST, frugal_lookup(f, 0, 1, NULL));
        frugal_close(f);
    }
}

/* Both devices have done step 0, nobody has polled them since, and one is lost: the step is committed all the same,
 * whichever is polled first. */
static void test_done_before_a_loss(void **state) {
    (void)state;
    static const frugal_device_ops ops = {
        .lookup = puppet_lookup, .update = puppet_update, .poll = puppet_poll, .close = puppet_close};
    for (uint32_t lost = 0; lost < 2; lost++) {
        puppet p[2] = {{0}, {0}};
        frugal_stats stats;
        frugal_desc desc = rig_desc();
        desc.stuck_seconds = 0.02, desc.workers = 0;
        frugal *f = open_or_fail(&desc);
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_attach(f, d, &ops, &p[d]));
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
        for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 0);
        p[0].done = p[1].done = 1;
        p[lost].is_lost = 1;
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_ERR_LOST, frugal_lookup(f, 0, 1, NULL));
        frugal_get_stats(f, &stats);
        assert_int_equal(1, stats.steps);
        frugal_close(f);
    }
}

/* The event of a lookup has no hits if the device counts them later. */
static void test_traced(void **state) {
    (void)state;
    puppet p = {0};
    char *path = scratch_path("trace");
    int lookups = 0, hits = 0;
    size_t n;
    frugal *f = open_puppet(&p, 0);
    assert_int_equal(FRUGAL_OK, frugal_trace_start(f, 64));
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
    for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 0);
    assert_int_equal(FRUGAL_OK, frugal_trace_write(f, path));
    char *text = (char *)scratch_read(path, &n);
    text[n] = 0; /* there is room */
    for (const char *at = text; (at = strstr(at, "\"name\":\"lookup\"")); at++) lookups++;
    for (const char *at = text; (at = strstr(at, "\"hits\":0")); at++) hits++;
    assert_true(lookups == 2 && hits == 1);
    free(text);
    frugal_close(f);
    scratch_end();
}

/* A puppet that keeps the update of a row when it has done its step, and is lost before it has written it back: the
 * table is of no single step. So it is not saved, and a table's file is not called clean. */
typedef struct keeper {
    puppet p;
    frugal *f;
} keeper;

static frugal_status keeper_poll(void *device, uint64_t *steps) {
    keeper *k = device;
    if (k->p.done > 0) frugal_count_kept(k->f, 0, 1, 0, 1);
    return puppet_poll(&k->p, steps);
}
static frugal_status keeper_write_back(void *device, const uint32_t *rows, uint32_t n) {
    (void)device, (void)rows, (void)n;
    return frugal_fail(FRUGAL_ERR_CUDA, "the puppet writes nothing back");
}
static frugal_status keeper_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    (void)step, (void)done;
    return keeper_write_back(device, rows, n);
}
static int keeper_recalled(void *device, uint64_t step) {
    (void)device, (void)step;
    return 0;
}

static void test_kept_rows_are_lost(void **state) {
    (void)state;
    static const frugal_device_ops ops = {.lookup = puppet_lookup,
                                          .update = puppet_update,
                                          .poll = keeper_poll,
                                          .close = puppet_close,
                                          .updates_in_place = puppet_in_place,
                                          .write_back = keeper_write_back,
                                          .recall = keeper_recall,
                                          .recalled = keeper_recalled};
    char *table = scratch_path("table"), *save = scratch_path("save");
    keeper k = {.p = {0}};
    frugal *f;
    frugal_desc desc = rig_desc();
    desc.stuck_seconds = 0.02, desc.alone = FRUGAL_ALONE_KEPT, desc.workers = 0, desc.file = table;
    k.f = f = open_or_fail(&desc);
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, &k));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 1, NULL));
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
    for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 0);
    k.p.done = 1, k.p.is_lost = 1;
    assert_int_equal(FRUGAL_ERR_LOST, frugal_drain(f));
    assert_non_null(strstr(frugal_message(), "the last updates of 1 rows"));
    assert_int_equal(FRUGAL_ERR_LOST, frugal_save(&f, 1, &(frugal_save_desc){.path = save}));
    assert_non_null(strstr(frugal_message(), "save: device 0 was lost"));
    assert_int_equal(-1, access(save, F_OK));
    frugal_close(f);
    assert_int_equal(FRUGAL_ERR_FILE, frugal_open(&desc, &f));
    assert_non_null(strstr(frugal_message(), "the table is torn"));
    frugal_close(f);
    scratch_end();
}

/* A comparison of copies finds out that a device is lost, or that it is not, and a copy differs. */
static int puppet_verify(void *device) {
    (void)device;
    return 0;
}

static void test_loss_found_by_verify(void **state) {
    (void)state;
    static const frugal_device_ops ops = {.lookup = puppet_lookup,
                                          .update = puppet_update,
                                          .poll = puppet_poll,
                                          .close = puppet_close,
                                          .verify = puppet_verify};
    puppet p = {0};
    frugal_desc desc = rig_desc();
    desc.stuck_seconds = 0.02;
    frugal *f = open_or_fail(&desc);
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, &p));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 1, NULL));
    assert_int_equal(FRUGAL_ERR_COPY, frugal_verify(f));
    assert_non_null(strstr(frugal_message(), "one that device 0 may read differs"));
    p.is_lost = 1;
    assert_int_equal(FRUGAL_ERR_LOST, frugal_verify(f));
    assert_non_null(strstr(frugal_message(), "verify: device 0 was lost"));
    frugal_close(f);
}

/* >>what a device may pin */

static void test_memory(void **state) {
    (void)state;
    fleet *w = two(WAITING, POLLED, 1, 0, 0);
    rig *r = &w->r;
    const frugal_store *store = frugal_get_store(r->f);
    frugal_memory table = frugal_get_memory(r->f, 0, FRUGAL_MEMORY_TABLE);
    frugal_memory gates = frugal_get_memory(r->f, 0, FRUGAL_MEMORY_GATES);
    assert_ptr_equal(store->weights, table.start);
    assert_true(table.bytes >= 4 * store->rows * store->weights_stride);
    assert_int_equal(0, frugal_get_memory(r->f, 0, FRUGAL_MEMORY_STATE).bytes); /* behind the weights */
    assert_ptr_equal(frugal_gates(r->f), gates.start);
    assert_null(frugal_gates(NULL));
    assert_null(frugal_get_memory(NULL, 0, FRUGAL_MEMORY_TABLE).start);
    assert_null(frugal_get_memory(r->f, 2, FRUGAL_MEMORY_BLOCKS).start);
    assert_null(frugal_get_memory(r->f, UINT32_MAX, FRUGAL_MEMORY_BATCHES).start);
    for (uint32_t d = 0; d < 2; d++) {
        assert_int_equal(FRUGAL_OK, announce_once(w, d, 1));
        frugal_memory all[] = {table, gates, frugal_get_memory(r->f, d, FRUGAL_MEMORY_BLOCKS),
                               frugal_get_memory(r->f, d, FRUGAL_MEMORY_BATCHES)};
        for (int i = 0; i < 4; i++) {
            assert_int_equal(0, (uintptr_t)all[i].start % 4096);
            assert_int_equal(0, all[i].bytes % 4096);
            assert_true(all[i].bytes > 0);
        }
    }
    for (uint32_t d = 0; d < 2; d++) {
        frugal_records k;
        assert_int_equal(FRUGAL_OK, frugal_lookup(r->f, d, 0, w->rows[d][0]));
        assert_int_equal(FRUGAL_OK, frugal_get_records(r->f, d, 0, &k));
        frugal_memory blocks = frugal_get_memory(r->f, d, FRUGAL_MEMORY_BLOCKS);
        frugal_memory batches = frugal_get_memory(r->f, d, FRUGAL_MEMORY_BATCHES);
        char *block = blocks.start, *batch = batches.start;
        assert_in_range((uintptr_t)k.block, (uintptr_t)block, (uintptr_t)block + blocks.bytes - 1);
        assert_in_range((uintptr_t)k.order, (uintptr_t)batch, (uintptr_t)batch + batches.bytes - 1);
        assert_in_range((uintptr_t)k.rows, (uintptr_t)batch, (uintptr_t)batch + batches.bytes - 1);
        assert_int_equal(FRUGAL_OK, frugal_update(r->f, d, 0, NULL));
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(r->f));
    fleet_close(w);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_ahead_of_the_other),
        cmocka_unit_test(test_update_returns_late),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_finished),
        cmocka_unit_test(test_not_announced),
        cmocka_unit_test(test_being_told),
        cmocka_unit_test(test_first_missing),
        cmocka_unit_test(test_through_before_the_gate),
        cmocka_unit_test(test_loss_of_the_other),
        cmocka_unit_test(test_writing_after_a_loss),
        cmocka_unit_test(test_others_after_a_loss),
        cmocka_unit_test(test_done_before_a_loss),
        cmocka_unit_test(test_traced),
        cmocka_unit_test(test_kept_rows_are_lost),
        cmocka_unit_test(test_loss_found_by_verify),
        cmocka_unit_test(test_close_at_a_gate),
        cmocka_unit_test(test_stop_at_a_gate),
    };
    return cmocka_run_group_tests_name("test_polled", tests, NULL, NULL);
}
