/* test_finish.c - devices whose data has ended: the others train on, and the bits are those of empty batches. More is
 * in the property test (devices with data of different length) and in test_polled.c (devices that work on). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/host/refused.h"

enum { STEPS = 12 };
static const uint64_t ends[RIG_DEVICES] = {STEPS, 4, 7}; /* of devices 0, 1, 2; the others train to the end */

static uint64_t end_of(uint32_t device) {
    return ends[device] ? ends[device] : STEPS;
}

static void end_data(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    if (step >= end_of(device)) b->n = b->split = 0;
}

/* Announces what the device still has. */
static void announce_or_finish(rig *r, uint32_t d) {
    if (r->announced[d] < end_of(d))
        rig_announce(r, d);
    else
        assert_int_equal(FRUGAL_OK, frugal_finish(r->f, d)), r->announced[d]++;
}

static void train_to(rig *r, uint64_t to, uint32_t ahead) {
    for (; r->step < to; rig_judge(r, 0)) {
        for (uint64_t t = r->step; t < STEPS && t <= r->step + ahead; t++)
            for (uint32_t d = 0; d < r->desc.devices; d++)
                if (r->announced[d] == t) announce_or_finish(r, d);
        for (uint32_t d = 0; d < r->desc.devices; d++) {
            r->n[d] = 0;
            if (r->step < end_of(d)) rig_lookup(r, d);
        }
        for (uint32_t d = 0; d < r->desc.devices; d++)
            if (r->step < end_of(d)) rig_update(r, d);
    }
}

static void open_three(rig *r, uint32_t workers, frugal_alone alone, uint64_t cache_rows) {
    *r = (rig){.change = end_data, .cache = {.cache_rows = cache_rows}};
    frugal_desc d = rig_desc();
    d.devices = 3, d.workers = workers, d.alone = alone;
    rig_open(r, &d);
}

static void test_others_train_on(void **state) {
    (void)state;
    static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};
    for (uint32_t i = 0; i < 12; i++) {
        rig r;
        open_three(&r, i % 2, ways[i / 2 % 3], i < 6 ? 0 : 24);
        train_to(&r, 6, i % 4);
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f)); /* the last step is whole, though nobody called for device 1 */
        frugal_stats s;
        frugal_get_stats(r.f, &s);
        assert_int_equal(6, s.steps);
        rig_compare(&r);
        train_to(&r, STEPS, i % 4);
        rig_finish(&r, 0);
    }
}

/* All have finished: nothing more is announced for anybody, and a drain has all that there was. */
static void test_all_finish(void **state) {
    (void)state;
    rig r;
    open_three(&r, 1, FRUGAL_ALONE_PLACE, 0);
    train_to(&r, STEPS, 2);
    assert_int_equal(FRUGAL_OK, frugal_finish(r.f, 0));
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    frugal_stats s;
    frugal_get_stats(r.f, &s);
    assert_int_equal(STEPS, s.steps);
    for (uint32_t d = 0; d < 3; d++)
        assert_fails(FRUGAL_FINISHED, frugal_lookup(r.f, d, STEPS, r.looked_up[d]), "has ended before step",
                     "frugal_finish");
    rig_finish(&r, 0);
}

static void test_refusals(void **state) {
    (void)state;
    rig r;
    open_three(&r, 0, FRUGAL_ALONE_STAGED, 0);
    frugal_batch empty = {0};
    float rows[RIG_KEYS * 5];
    assert_fails(FRUGAL_ERR_DEVICE, frugal_finish(r.f, 3), "device 3", "3");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_finish(NULL, 0), "finish", "no open instance");
    train_to(&r, 6, 0); /* device 1 has finished */
    assert_fails(FRUGAL_ERR_ORDER, frugal_announce(r.f, 1, 6, &empty), "step 6", "ended before step 4");
    assert_fails(FRUGAL_ERR_ORDER, frugal_try_announce(r.f, 1, 4, &empty), "step 4", "ended before step 4");
    assert_fails(FRUGAL_FINISHED, frugal_lookup(r.f, 1, 6, rows), "step 6", "ended before step 4");
    assert_fails(FRUGAL_FINISHED, frugal_try_lookup(r.f, 1, 4, rows), "step 4", "ended before step 4");
    assert_fails(FRUGAL_ERR_ORDER, frugal_update(r.f, 1, 6, NULL), "step 6", "look up");
    assert_int_equal(FRUGAL_OK, frugal_finish(r.f, 1)); /* once more */
    train_to(&r, STEPS, 0);
    rig_finish(&r, 0);
}

/* A cancelled step is announced anew, also by a device that had finished behind it; who finished before stays so. */
static void test_cancel(void **state) {
    (void)state;
    rig r;
    open_three(&r, 1, FRUGAL_ALONE_PLACE, 24);
    train_to(&r, 5, 3); /* announced: steps 0 to 7; device 1 has finished before step 4, device 2 before step 7 */
    assert_fails(FRUGAL_ERR_ORDER, frugal_announce(r.f, 2, 7, &(frugal_batch){0}), "step 7", "ended before step 7");
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, 5));
    r.announced[0] = r.announced[2] = 5;
    assert_fails(FRUGAL_ERR_ORDER, frugal_announce(r.f, 1, 5, &(frugal_batch){0}), "step 5", "ended before step 4");
    rig_announce(&r, 2);
    train_to(&r, 7, 0);
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, 7)); /* its end is no step of its own */
    announce_or_finish(&r, 2);
    train_to(&r, STEPS, 1);
    rig_finish(&r, 0);
}

typedef struct waiter {
    pthread_t thread;
    rig *r;
    frugal_status status;
} waiter;

static void *wait_for_data(void *argument) {
    waiter *w = argument;
    w->status = frugal_lookup(w->r->f, 1, 4, w->r->looked_up[1]);
    return NULL;
}

/* A trainer that waits for a batch learns from its loader that none will come, whether or not others have announced the
 * step. */
static void test_a_trainer_that_waits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rig r;
        open_three(&r, i % 2, FRUGAL_ALONE_STAGED, 0);
        waiter w = {.r = &r};
        train_to(&r, 4, 0);
        if (i / 2) rig_announce(&r, 0), rig_announce(&r, 2);
        if (pthread_create(&w.thread, NULL, wait_for_data, &w)) abort();
        usleep(2000);
        assert_int_equal(FRUGAL_OK, frugal_finish(r.f, 1)), r.announced[1]++;
        pthread_join(w.thread, NULL);
        assert_int_equal(FRUGAL_FINISHED, w.status);
        train_to(&r, STEPS, 1);
        rig_finish(&r, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_others_train_on), cmocka_unit_test(test_all_finish),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_cancel),
                                       cmocka_unit_test(test_a_trainer_that_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
