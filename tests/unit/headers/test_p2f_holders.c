/* test_p2f_holders.c - holders of rows in frugal_p2f.h: which device has the only copy, also after a cancel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/unit/headers/p2f_by_hand.h"

static void a_lone_toucher_holds_the_row_and_sharing_takes_it_from_all(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 5});
    assert_int_equal(announce_valid(p, 0, 0, 0, ROWS(1, 2)), 3); /* nobody has touched them: everyone's */
    assert_int_equal(announce_valid(p, 1, 0, 0, ROWS(2, 3)), 2); /* row 2 is shared now */
    for (uint32_t d = 0; d < 2; d++) assert_true(frugal_p2f_is_current(p, d, 5) && !frugal_p2f_is_current(p, d, 1));
    assert_int_equal(announce_valid(p, 0, 1, 0, ROWS(1, 2, 3)), 1);    /* 1: own; 2: shared; 3: the other's */
    assert_int_equal(announce_valid(p, 1, 1, 0, NO_ROWS), UINT64_MAX); /* no word of the answer is touched */
    assert_int_equal(announce_valid(p, 0, 2, 0, ROWS(1, 3)), 3);
    assert_int_equal(announce_valid(p, 1, 2, 0, ROWS(3)), 0);
    for (uint64_t t = 0; t < 3; t++) finish_step(p, 2, t);
    assert_true(frugal_p2f_is_current(p, 0, 1) && !frugal_p2f_is_current(p, 1, 1));
    assert_true(frugal_p2f_is_current(p, 0, 2) && !frugal_p2f_is_current(p, 1, 2));
    assert_true(!frugal_p2f_is_current(p, 0, 3) && !frugal_p2f_is_current(p, 1, 3));
    free(p);
}

static void read_only_steps_leave_the_holder_alone(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 9});
    for (uint64_t t = 0; t < 3; t++)
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(announce_valid(p, d, t, 1, ROWS(1, 2)), 3);
    announce_valid(p, 0, 3, 0, ROWS(1));
    announce_valid(p, 1, 3, 0, ROWS(2));
    for (uint64_t t = 4; t < 7; t++) {
        assert_int_equal(announce_valid(p, 0, t, 1, ROWS(1, 2)), 1);
        assert_int_equal(announce_valid(p, 1, t, 1, ROWS(1, 2)), 2);
    }
    assert_int_equal(announce_valid(p, 0, 7, 1, ROWS(2)), 0); /* a reader first, then the writer: nobody holds it */
    assert_int_equal(announce_valid(p, 1, 7, 0, ROWS(2)), 0);
    assert_int_equal(announce_valid(p, 0, 8, 1, ROWS(2)), 0);
    assert_int_equal(announce_valid(p, 1, 8, 1, ROWS(2)), 0);
    free(p);
}

/* Who announces a row is told whose copy, the only current one, it makes outdated. */
static void announcing_says_whose_copy_is_lost(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 3, .max_rows = 4, .lookahead = 5});
    const uint32_t rows[] = {1, 2, 3};
    uint8_t lost[3];
    const struct {
        uint32_t device, step;
        int read_only;
        uint8_t lost[3];
    } cases[] = {
        {0, 0, 0, {255, 255, 255}}, /* everyone's */
        {1, 0, 0, {0, 0, 0}},       /* 0 has announced them first; from now on nobody holds them */
        {2, 0, 0, {255, 255, 255}}, {0, 1, 1, {255, 255, 255}}, /* a reader takes nothing */
        {1, 1, 0, {255, 255, 255}},                             /* nobody held them, */
        {2, 1, 0, {255, 255, 255}}, {2, 2, 0, {255, 255, 255}}, {0, 2, 1, {255, 255, 255}},
        {1, 2, 1, {255, 255, 255}}, {2, 3, 0, {255, 255, 255}}, /* its own */
        {0, 3, 0, {2, 2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const frugal_p2f_batch batch = {.rows = rows, .n = 3, .read_only = cases[i].read_only, .lost = lost};
        memset(lost, 77, sizeof lost);
        assert_int_equal(FRUGAL_OK, frugal_p2f_announce(p, cases[i].device, cases[i].step, &batch, NULL));
        assert_memory_equal(lost, cases[i].lost, 3);
    }
    free(p);
}

static void cancelled_rows_belong_to_nobody(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 3});
    for (uint64_t t = 0; t < 3; t++)
        for (uint32_t d = 0; d < 2; d++) announce(p, d, t, ROWS((uint32_t)(t * 2 + d)));
    announce(p, 0, 3, ROWS(8)); /* by one device only */
    finish_step(p, 2, 0);
    flush_until(p, UINT64_MAX);
    assert_int_equal(frugal_p2f_cancel(p, 0), FRUGAL_ERR_ORDER); /* closed */
    assert_int_equal(frugal_p2f_cancel(p, 5), FRUGAL_ERR_ORDER); /* never announced */
    assert_int_equal(frugal_p2f_cancel(p, 2), FRUGAL_OK);
    assert_int_equal(frugal_p2f_get_progress(p).announced, 2);
    assert_int_equal(frugal_p2f_get_progress(p).sealed, 2);
    for (uint32_t d = 0; d < 2; d++) {
        assert_int_equal(frugal_p2f_announced(p, d), 2);
        for (uint32_t row = 4; row < 9; row++) assert_int_equal(frugal_p2f_is_current(p, d, row), row == 6 || row == 7);
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
    uint64_t t;
    uint32_t piece;
    announce(p, 0, 0, ROWS(1, 2));
    announce(p, 0, 1, ROWS(2, 3));
    assert_int_equal(frugal_priv_claim(p, &p->plan_claim, &p->sealed, 0, &t, &piece), 1);
    assert_int_equal(t, 0);
    assert_int_equal(frugal_p2f_is_planned(p), 0);
    assert_int_equal(frugal_p2f_cancel(p, 1), FRUGAL_AGAIN);
    assert_int_equal(frugal_p2f_get_progress(p).announced, 2);
    frugal_priv_plan_piece(p, t, piece);
    frugal_add_acq_rel(&frugal_priv_step_of(p, t)->plan_left, (uint32_t)-1);
    assert_int_equal(frugal_p2f_is_planned(p), 1);
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
    assert_int_equal(announce_valid(p, 1, 1, 0, ROWS(1, 2, 3)), 3);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_toucher_holds_the_row_and_sharing_takes_it_from_all),
        cmocka_unit_test(read_only_steps_leave_the_holder_alone),
        cmocka_unit_test(announcing_says_whose_copy_is_lost),
        cmocka_unit_test(cancelled_rows_belong_to_nobody),
        cmocka_unit_test(cancel_is_refused_once_a_device_has_committed_the_step),
        cmocka_unit_test(cancel_waits_for_pieces_of_plans_in_other_hands),
        cmocka_unit_test(release_gives_rows_to_everyone_and_disown_to_nobody),
    };
    return cmocka_run_group_tests_name("test_p2f_holders", tests, NULL, NULL);
}
