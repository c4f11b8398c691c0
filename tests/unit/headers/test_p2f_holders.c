/* test_p2f_holders.c - holders of rows in frugal_p2f.h: which device has the only copy, also after a cancel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/unit/headers/p2f_by_hand.h"

static void announce_as(frugal_p2f *p, uint32_t device, uint64_t step, int read_only, const uint32_t *rows,
                        uint32_t n) {
    const frugal_p2f_batch batch = {.rows = rows, .n = n, .read_only = read_only};
    assert_int_equal(frugal_p2f_announce(p, device, step, &batch), FRUGAL_OK);
}

static void a_lone_toucher_holds_the_row_and_sharing_takes_it_from_all(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 5});
    announce(p, 0, 0, ROWS(1, 2));
    announce(p, 1, 0, ROWS(2, 3));
    for (uint32_t d = 0; d < 2; d++) assert_true(frugal_p2f_is_current(p, d, 1)); /* announced alone: as before */
    assert_int_equal(valid_of(p, 0, 0), 3); /* nobody has touched them: everyone's, */
    assert_int_equal(valid_of(p, 1, 0), 3); /* row 2, too, which both touch */
    for (uint32_t d = 0; d < 2; d++) assert_true(frugal_p2f_is_current(p, d, 5) && !frugal_p2f_is_current(p, d, 1));
    announce(p, 0, 1, ROWS(1, 2, 3));
    announce(p, 1, 1, NO_ROWS);
    assert_int_equal(valid_of(p, 0, 1), 1); /* 1: own; 2: shared; 3: the other's */
    announce(p, 0, 2, ROWS(1, 3));
    announce(p, 1, 2, ROWS(3));
    assert_int_equal(valid_of(p, 0, 2), 3); /* its own, although the other touches row 3 at the same step */
    assert_int_equal(valid_of(p, 1, 2), 0);
    for (uint64_t t = 0; t < 3; t++) finish_step(p, 2, t);
    assert_true(frugal_p2f_is_current(p, 0, 1) && !frugal_p2f_is_current(p, 1, 1));
    assert_true(frugal_p2f_is_current(p, 0, 2) && !frugal_p2f_is_current(p, 1, 2));
    assert_true(!frugal_p2f_is_current(p, 0, 3) && !frugal_p2f_is_current(p, 1, 3));
    free(p);
}

static void read_only_steps_leave_the_holder_alone(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 9});
    const struct { /* of device 0 and 1 */
        int read_only[2];
        uint64_t valid[2];
    } steps[] = {
        {{1, 1}, {3, 3}}, {{1, 1}, {3, 3}}, /* everyone's */
        {{0, 1}, {3, 3}},                   /* the one that does not read only holds the rows from now on */
        {{1, 1}, {3, 0}}, {{1, 0}, {3, 0}}, /* now the other */
        {{1, 1}, {0, 3}}, {{0, 0}, {0, 3}}, /* now nobody */
        {{1, 1}, {0, 0}}, {{1, 1}, {0, 0}},
    };
    for (uint64_t t = 0; t < sizeof steps / sizeof *steps; t++) {
        for (uint32_t d = 0; d < 2; d++) announce_as(p, d, t, steps[t].read_only[d], ROWS(1, 2));
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(valid_of(p, d, t), steps[t].valid[d]);
    }
    free(p);
}

/* >>taken */

/* From whom others take a row: its holder, if it is a device; a reader takes it, too, and leaves the holder. */
static void planning_says_from_whom_rows_are_taken(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 3, .max_rows = 4, .lookahead = 9, .taken = 1});
    enum { NOTHING, READS, WRITES, NOBODY = 3 };
    const struct {
        uint8_t does[3];
        uint32_t holder; /* before the step, if others touch the rows */
    } steps[] = {
        {{WRITES, NOTHING, NOTHING}, NOBODY},                                       /* everyone's */
        {{NOTHING, WRITES, NOTHING}, 0},      {{NOTHING, WRITES, NOTHING}, NOBODY}, /* its own */
        {{NOTHING, WRITES, WRITES}, 1},       {{WRITES, NOTHING, NOTHING}, NOBODY}, /* nobody's */
        {{WRITES, READS, NOTHING}, 0},        {{NOTHING, NOTHING, READS}, 0},       {{READS, NOTHING, NOTHING}, NOBODY},
        {{READS, READS, WRITES}, 0},          {{WRITES, WRITES, WRITES}, 2},
    };
    for (uint64_t t = 0; t < sizeof steps / sizeof *steps; t++) {
        for (uint32_t d = 0; d < 3; d++)
            announce_as(p, d, t, steps[t].does[d] == READS, (const uint32_t[]){1, 2, 7},
                        steps[t].does[d] == NOTHING ? 0 : 3);
        plan_all(p);
        for (uint32_t d = 0; d < 3; d++) {
            const uint32_t *rows = NULL;
            assert_int_equal(frugal_p2f_taken(p, d, t, &rows), steps[t].holder == d ? 3 : 0);
            if (steps[t].holder == d) assert_memory_equal(rows, ((const uint32_t[]){1, 2, 7}), 12);
        }
    }
    free(p);
}

static void lists_of_taken_rows_last_until_the_next_step_is_closed(void **state) {
    (void)state;
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t lookahead = 0; lookahead <= 15; lookahead += 5) {
        frugal_p2f *p = open_p2f((frugal_p2f_desc){
            .rows = 8, .devices = 2, .max_rows = 8, .lookahead = lookahead, .taken = 1, .staging = 1});
        uint64_t t = 0;
        for (uint64_t s = 0; s < 100; s++) {
            for (; t <= s + lookahead; t++) { /* in turn, one row more each time, and after 8 rows one again */
                announce(p, t % 2, t, all, t % 8 + 1);
                announce(p, 1 - t % 2, t, NO_ROWS);
            }
            plan_all(p);
            for (uint64_t u = s < 9 ? 8 : s - 1; u < t; u++) { /* the last row may be its own of 8 steps ago */
                const uint32_t *rows = NULL;
                assert_int_equal(frugal_p2f_taken(p, u % 2, u, &rows), 0);
                assert_int_equal(frugal_p2f_taken(p, 1 - u % 2, u, &rows), (u % 8) | 1);
                assert_memory_equal(rows, all, ((u % 8) | 1) * sizeof *rows);
            }
            finish_step(p, 2, s);
        }
        free(p);
    }
}

/* >>cancel */

static void cancelled_rows_belong_to_nobody(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 3});
    for (uint64_t t = 0; t < 3; t++)
        for (uint32_t d = 0; d < 2; d++) announce(p, d, t, ROWS((uint32_t)(t * 2 + d)));
    announce(p, 0, 3, ROWS(8)); /* not by the other, so its word is as it was */
    finish_step(p, 2, 0);
    flush_until(p, UINT64_MAX);
    assert_int_equal(frugal_p2f_cancel(p, 0), FRUGAL_ERR_ORDER); /* closed */
    assert_int_equal(frugal_p2f_cancel(p, 5), FRUGAL_ERR_ORDER); /* never announced */
    assert_int_equal(frugal_p2f_cancel(p, 2), FRUGAL_OK);
    assert_int_equal(frugal_p2f_get_progress(p).announced, 2);
    assert_int_equal(frugal_p2f_get_progress(p).sealed, 2);
    for (uint32_t d = 0; d < 2; d++) {
        assert_int_equal(frugal_p2f_announced(p, d), 2);
        for (uint32_t row = 4; row < 9; row++) assert_int_equal(frugal_p2f_is_current(p, d, row), row >= 6);
    }
    for (uint64_t t = 2; t < 4; t++)
        for (uint32_t d = 0; d < 2; d++) announce(p, d, t, ROWS(9));
    finish_step(p, 2, 1); /* which was still announced */
    assert_true(frugal_p2f_is_current(p, 0, 2) && frugal_p2f_is_current(p, 1, 3));
    finish_step(p, 2, 2);
    assert_int_equal(flush_until(p, UINT64_MAX), 3); /* rows 2, 3 and 9: once each, and none of the cancelled */
    free(p);
}

static void cancel_is_refused_once_a_device_has_committed_the_step(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 3});
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t d = 0; d < 2; d++) announce(p, d, t, ROWS(1));
    plan_all(p);
    commit(p, 0, 0);
    assert_int_equal(frugal_p2f_cancel(p, 0), FRUGAL_ERR_ORDER);
    assert_int_equal(frugal_p2f_cancel(p, 1), FRUGAL_OK);
    assert_int_equal(frugal_p2f_cancel(p, 1), FRUGAL_OK); /* nothing left to take back */
    commit(p, 1, 0);
    assert_int_equal(close_all(p), 1);
    assert_int_equal(flush_until(p, UINT64_MAX), 1);
    free(p);
}

/* A piece of a plan in other hands: cancel cannot tell when that thread writes it, changes nothing, and says so. */
static void cancel_waits_for_pieces_of_plans_in_other_hands(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 3});
    frugal_p2f_piece piece;
    announce(p, 0, 0, ROWS(1, 2));
    announce(p, 0, 1, ROWS(2, 3));
    assert_int_equal(frugal_p2f_plan_begin(p, &piece), 1);
    assert_int_equal(piece.step, 0);
    assert_int_equal(frugal_p2f_is_planned(p), 0);
    assert_int_equal(frugal_p2f_cancel(p, 1), FRUGAL_AGAIN);
    assert_int_equal(frugal_p2f_get_progress(p).announced, 2);
    assert_int_equal(frugal_p2f_plan_end(p, &piece), 2);
    assert_int_equal(frugal_p2f_is_planned(p), 1); /* it plans step 1 */
    assert_int_equal(frugal_p2f_cancel(p, 1), FRUGAL_OK);
    assert_int_equal(frugal_p2f_get_progress(p).announced, 1);
    finish_step(p, 1, 0);
    touch(p, 1, 5);
    free(p);
}

static void release_gives_rows_to_everyone_and_disown_to_nobody(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4});
    announce(p, 0, 0, ROWS(1, 2));
    announce(p, 1, 0, ROWS(2, 3));
    finish_step(p, 2, 0);
    flush_until(p, UINT64_MAX);
    frugal_p2f_release_holders(p);
    frugal_p2f_disown(p, 3);
    for (uint32_t row = 0; row < 10; row++)
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(frugal_p2f_is_current(p, d, row), row != 3);
    announce(p, 0, 1, NO_ROWS);
    announce(p, 1, 1, ROWS(1, 2, 3));
    assert_int_equal(valid_of(p, 1, 1), 3);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_toucher_holds_the_row_and_sharing_takes_it_from_all),
        cmocka_unit_test(read_only_steps_leave_the_holder_alone),
        cmocka_unit_test(planning_says_from_whom_rows_are_taken),
        cmocka_unit_test(lists_of_taken_rows_last_until_the_next_step_is_closed),
        cmocka_unit_test(cancelled_rows_belong_to_nobody),
        cmocka_unit_test(cancel_is_refused_once_a_device_has_committed_the_step),
        cmocka_unit_test(cancel_waits_for_pieces_of_plans_in_other_hands),
        cmocka_unit_test(release_gives_rows_to_everyone_and_disown_to_nobody),
    };
    return cmocka_run_group_tests_name("test_p2f_holders", tests, NULL, NULL);
}
