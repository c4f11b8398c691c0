/* test_order.c - calls out of turn: ORDER, AGAIN, BUSY, and STUCK where a turn never comes. They change nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/refused.h"

/* >>order: what each call says in each state of a device. `s` is the device's step, announced up to a. */

enum { ANNOUNCED_NOT, ANNOUNCED, LOOKED_UP, STATES };

static frugal_status call_of(rig *r, int call, uint64_t s) {
    frugal_batch empty = {0};
    frugal_records records;
    frugal_gradients g = rig_gradients(r, 0);
    switch (call) {
    case 0:
        return frugal_announce(r->f, 0, s, &empty);
    case 1:
        return frugal_try_announce(r->f, 0, s, &empty);
    case 2:
        return frugal_lookup(r->f, 0, s, r->looked_up[0]);
    case 3:
        return frugal_try_lookup(r->f, 0, s, r->looked_up[0]);
    case 4:
        return frugal_get_records(r->f, 0, s, &records);
    case 5:
        return frugal_update(r->f, 0, s, &g);
    case 6:
        return frugal_update(r->f, 0, s, NULL);
    default:
        return frugal_cancel(r->f, s);
    }
}

/* Every call that is wrong in `which` is ERR_ORDER, for steps before, at, and after. */
static void check_order(rig *r, int which, uint64_t s) {
    static const char *const names[] = {
        "announce", "try_announce", "lookup", "try_lookup", "get_records", "update", "update without gradients",
        "cancel"};
    for (int call = 0; call < 8; call++)
        for (uint64_t step = s - 2; step <= s + 3; step++) {
            uint64_t next = which == ANNOUNCED_NOT ? s : s + 1; /* to announce */
            int legal = call < 2   ? step == next
                        : call < 4 ? step == s && which != ANNOUNCED_NOT
                        : call < 7 ? step == s && which == LOOKED_UP
                                   : step >= (which == LOOKED_UP ? s + 1 : s) && step <= next;
            int early = (call == 2 || call == 3) && step == s && which == ANNOUNCED_NOT; /* the loader may be late */
            if (legal || (early && call == 2)) continue;
            frugal_status status = call_of(r, call, step);
            if (early && status == FRUGAL_AGAIN) continue;
            if (status != FRUGAL_ERR_ORDER || early)
                fail_msg("%s(%u) in state %d of step %u: %d", names[call], (unsigned)step, which, (unsigned)s,
                         (int)status);
            char text[32];
            snprintf(text, sizeof(text), "step %u", (unsigned)step);
            if (!strstr(frugal_message(), text)) fail_msg("the message lacks \"%s\": %s", text, frugal_message());
        }
}

static void test_order(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.first_step = 2;
    rig_open(&r, &d);
    for (uint64_t s = 2; s < 8; s++) {
        check_order(&r, ANNOUNCED_NOT, s);
        rig_announce(&r, 0);
        check_order(&r, ANNOUNCED, s);
        rig_announce(&r, 1);
        check_order(&r, ANNOUNCED, s);
        rig_lookup(&r, 0);
        check_order(&r, LOOKED_UP, s);
        rig_lookup(&r, 1);
        rig_lookup(&r, 0);
        rig_update(&r, 1);
        check_order(&r, LOOKED_UP, s);
        rig_update(&r, 0);
        rig_judge(&r, 0);
    }
    rig_finish(&r, 2);
}

/* >>too early */

static void test_again(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    frugal_batch empty = {0};
    rig_announce(&r, 0);
    assert_int_equal(FRUGAL_AGAIN, frugal_try_lookup(r.f, 0, 0, r.looked_up[0])); /* device 1 has not announced 0 */
    for (int i = 1; i <= 3; i++) rig_announce(&r, 0); /* which does not keep this one from running ahead */
    assert_int_equal(FRUGAL_AGAIN, frugal_try_announce(r.f, 0, 4, &empty)); /* lookahead is 3, 0 is not closed */
    for (int i = 0; i <= 3; i++) rig_announce(&r, 1);
    assert_int_equal(FRUGAL_AGAIN, frugal_try_announce(r.f, 0, 4, &empty));
    rig_lookup(&r, 0);
    rig_lookup(&r, 1);
    rig_update(&r, 0);
    assert_int_equal(FRUGAL_AGAIN, frugal_try_lookup(r.f, 0, 1, r.looked_up[0])); /* device 1 has not updated 0 */
    const uint32_t offsets[] = {0, RIG_KEYS};
    frugal_bags bags = {.n_bags = 1, .offsets = offsets};
    frugal_row_array pooled = {.rows = r.looked_up[0], .bags = &bags, .no_wait = 1},
                     wide = {.rows = r.looked_up[0], .stride = 5, .no_wait = 1};
    assert_int_equal(FRUGAL_AGAIN, frugal_lookup_into(r.f, 0, 1, &pooled));
    assert_int_equal(FRUGAL_AGAIN, frugal_lookup_into(r.f, 0, 1, &wide));
    assert_int_equal(FRUGAL_AGAIN, frugal_try_announce(r.f, 0, 4, &empty));
    rig_update(&r, 1);
    rig_judge(&r, 0);
    frugal_status status; /* no workers: somebody has to help until it may */
    while ((status = frugal_try_lookup(r.f, 0, 1, r.looked_up[0])) == FRUGAL_AGAIN)
        assert_int_equal(1, frugal_help(r.f));
    assert_int_equal(FRUGAL_OK, status);
    rig_finish(&r, 6);
}

static void test_busy(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 16}};
    frugal_desc d = rig_desc();
    const void *view;
    uint64_t stride, key = 0;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    float row[5] = {0};
    rig_open(&r, &d);
    rig_train(&r, 2); /* committed, and by nobody flushed */
    assert_fails(FRUGAL_ERR_BUSY, frugal_view(r.f, 0, &view, &stride), "view: wanted a drained instance; ",
                 "of 2 committed steps are closed, ");
    assert_fails(FRUGAL_ERR_BUSY, frugal_view(r.f, 0, &view, &stride), "not flushed", "call frugal_drain first");
    assert_null(strstr(frugal_message(), "cancel")); /* would drop batches that need not be dropped */
    assert_fails(FRUGAL_ERR_BUSY, frugal_verify(r.f), "verify", "call frugal_drain first");
    assert_null(strstr(frugal_message(), "cancel"));
    assert_fails(FRUGAL_ERR_BUSY, frugal_write_rows(r.f, &keys, row, NULL), "with nothing announced", "frugal_drain");
    assert_fails(FRUGAL_ERR_BUSY, frugal_release_holders(r.f), "release_holders", "frugal_drain");
    assert_fails(FRUGAL_ERR_BUSY, frugal_preload(r.f, 0, &keys), "preload", "frugal_drain");
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    rig_announce(&r, 0); /* drained, and one device has announced */
    assert_int_equal(FRUGAL_OK, frugal_view(r.f, 0, &view, &stride));
    assert_fails(FRUGAL_ERR_BUSY, frugal_write_rows(r.f, &keys, row, NULL), "write_rows: wanted",
                 "steps from 2 on are announced: train them, or drop them by frugal_cancel");
    assert_fails(FRUGAL_ERR_BUSY, frugal_release_holders(r.f), "release_holders", "frugal_cancel");
    assert_fails(FRUGAL_ERR_BUSY, frugal_preload(r.f, 0, &keys), "preload", "frugal_cancel");
    rig_announce(&r, 1);
    assert_fails(FRUGAL_ERR_BUSY, frugal_write_rows(r.f, &keys, row, NULL), "write_rows", "frugal_cancel");
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    rig_update(&r, 0);
    assert_fails(FRUGAL_ERR_BUSY, frugal_write_rows(r.f, &keys, row, NULL), "write_rows", "frugal_cancel");
    rig_update(&r, 1);
    rig_judge(&r, 0);
    rig_finish(&r, 3);
}

static void test_stuck_gate_is_reported(void **state) {
    int workers = (int)(intptr_t)*state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.workers = (uint32_t)workers, d.stuck_seconds = 0.02;
    rig_open(&r, &d);
    rig_announce(&r, 0);
    assert_fails(FRUGAL_ERR_STUCK, frugal_lookup(r.f, 0, 0, r.looked_up[0]), "step 0", "device 1"); /* not sealed */
    frugal_batch empty = {0};
    for (int i = 1; i <= 3; i++) rig_announce(&r, 0);
    assert_fails(FRUGAL_ERR_STUCK, frugal_announce(r.f, 0, 4, &empty), "device 1", "announced");
    for (int i = 0; i <= 3; i++) rig_announce(&r, 1);
    assert_fails(FRUGAL_ERR_STUCK, frugal_announce(r.f, 1, 4, &empty), "lookahead is 3", "step 0");
    rig_lookup(&r, 0);
    rig_lookup(&r, 1);
    rig_update(&r, 0);
    assert_fails(FRUGAL_ERR_STUCK, frugal_lookup(r.f, 0, 1, r.looked_up[0]), "step 0", "device 1"); /* not committed */
    rig_update(&r, 1);
    rig_judge(&r, 0);
    rig_finish(&r, 6); /* nothing was changed by all that */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_again),
        CASE("test_stuck_gate_is_reported without workers", test_stuck_gate_is_reported, 0),
        CASE("test_stuck_gate_is_reported with workers", test_stuck_gate_is_reported, 2),
        cmocka_unit_test(test_busy),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
