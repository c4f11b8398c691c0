/* test_cancel.c - steps that are cancelled, and an instance that is stopped. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/refused.h"

/* >>cancel */

/* A step that one device has looked up cannot be taken back, nor one that nobody announced. */
static void test_cancel_order(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 2);
    for (int i = 0; i < 3; i++) rig_announce(&r, 0), rig_announce(&r, 1);
    rig_announce(&r, 0); /* step 5 by one device only */
    assert_fails(FRUGAL_ERR_ORDER, frugal_cancel(r.f, 1), "cancel", "1");
    assert_fails(FRUGAL_ERR_ORDER, frugal_cancel(r.f, 7), "7", "6");
    assert_fails(FRUGAL_ERR_ORDER, frugal_cancel(r.f, UINT64_MAX), "cancel", "6");
    rig_lookup(&r, 1);
    assert_fails(FRUGAL_ERR_ORDER, frugal_cancel(r.f, 2), "device 1", "2");
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, 3));
    r.announced[0] = r.announced[1] = 3;
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, 3)); /* nothing is left: that is fine */
    rig_finish(&r, 5);
}

/* Steps are announced, planned by workers, taken back and announced anew, over and over: no piece of a plan that was
 * taken back may count for the step that comes instead. (It did, where cancel wound the claim back too early: one
 * wrong plan or one hang in some thousand cancels.) */
static void test_announced_anew_after_cancel(void **state) {
#if defined(FRUGAL_SANITIZED)
    int rounds = 1000;
#else
    int rounds = 20000;
#endif
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_batch empty = {0};
    (void)state;
    d.devices = 1, d.workers = 2, d.stuck_seconds = 30;
    rig_open(&r, &d);
    while (rounds-- > 0) {
        for (int again = 0; again < 3; again++) {
            for (uint64_t i = 0; i < 2; i++)
                if (frugal_announce(r.f, 0, r.step + i, &empty) != FRUGAL_OK)
                    fail_msg("announce: %s", frugal_message());
            if (frugal_cancel(r.f, r.step) != FRUGAL_OK) fail_msg("cancel: %s", frugal_message());
        }
        rig_train(&r, 1);
    }
    rig_finish(&r, 1);
}

/* >>stop */

typedef struct waiter {
    pthread_t thread;
    rig *r;
    int announces;
    frugal_status status;
} waiter;

static void *wait_in_a_call(void *argument) {
    waiter *w = argument;
    frugal_batch empty = {0};
    if (w->announces)
        w->status = frugal_announce(w->r->f, 1, 4, &empty);
    else
        w->status = frugal_lookup(w->r->f, 0, 1, w->r->looked_up[0]);
    return NULL;
}

static void test_stop_wakes_waiters(void **state) {
    int workers = (int)(intptr_t)*state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.workers = (uint32_t)workers, d.stuck_seconds = -1;
    rig_open(&r, &d);
    for (int i = 0; i < 4; i++) rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0);
    rig_lookup(&r, 1);
    rig_update(&r, 0); /* device 1 does not update step 0: nobody gets any further */
    waiter waiters[2] = {{.r = &r, .announces = 0, .status = FRUGAL_OK},
                         {.r = &r, .announces = 1, .status = FRUGAL_OK}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, pthread_create(&waiters[i].thread, NULL, wait_in_a_call, &waiters[i]));
    for (int i = 0; i < 100; i++) frugal_help(r.f); /* they may sleep by now or not */
    frugal_stop(r.f);
    for (int i = 0; i < 2; i++) assert_int_equal(0, pthread_join(waiters[i].thread, NULL));
    assert_int_equal(FRUGAL_STOPPED, waiters[0].status);
    assert_int_equal(FRUGAL_STOPPED, waiters[1].status);
    frugal_batch empty = {0};
    frugal_stop(r.f); /* again: no harm */
    assert_fails(FRUGAL_STOPPED, frugal_update(r.f, 1, 0, NULL), "stopped", "");
    assert_fails(FRUGAL_STOPPED, frugal_lookup(r.f, 1, 0, r.looked_up[1]), "stopped", "");
    assert_fails(FRUGAL_STOPPED, frugal_announce(r.f, 0, 4, &empty), "stopped", "");
    assert_fails(FRUGAL_STOPPED, frugal_try_announce(r.f, 0, 4, &empty), "stopped", ""); /* who polls must learn it */
    assert_fails(FRUGAL_STOPPED, frugal_try_lookup(r.f, 0, 1, r.looked_up[0]), "stopped", "");
    assert_int_equal(0, frugal_help(r.f));
    rig_free(&r);
}

static void test_stop_before_drain(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.defer = 1;
    rig_open(&r, &d);
    rig_train(&r, 1); /* committed; nobody has flushed it */
    frugal_stop(r.f);
    assert_fails(FRUGAL_STOPPED, frugal_drain(r.f), "stopped", "");
    assert_fails(FRUGAL_STOPPED, frugal_cancel(r.f, 1), "stopped", "");
    rig_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_order),
        cmocka_unit_test(test_announced_anew_after_cancel),
        CASE("test_stop_wakes_waiters without workers", test_stop_wakes_waiters, 0),
        CASE("test_stop_wakes_waiters with workers", test_stop_wakes_waiters, 2),
        cmocka_unit_test(test_stop_before_drain),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
