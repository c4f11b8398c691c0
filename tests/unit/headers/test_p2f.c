/* test_p2f.c - the state machine of frugal_p2f.h without the runtime, one claim a test: announce, gates, due, take.
 *
 * test_p2f_init.c, test_p2f_plan.c, test_p2f_alone.c, test_p2f_holders.c and test_p2f_bounds.c have the rest. Random
 * protocols against an oracle are in test_p2f_oracle.c, threads and processes in tests/stress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/unit/headers/p2f_by_hand.h"

/* >>announce */

static void announcing_out_of_order_is_an_error_and_too_early_is_again(void **state) {
    (void)state;
    frugal_p2f *p =
        open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 2, .first_step = 5});
    assert_int_equal(try_announce(p, 2, 5, NO_ROWS), FRUGAL_ERR_DEVICE);
    assert_int_equal(try_announce(p, 0, 4, NO_ROWS), FRUGAL_ERR_ORDER);
    assert_int_equal(try_announce(p, 0, 6, NO_ROWS), FRUGAL_ERR_ORDER);
    for (uint64_t t = 5; t <= 7; t++) { /* without device 1: no device waits for another */
        announce(p, 0, t, ROWS(1));
        assert_int_equal(try_announce(p, 0, t, NO_ROWS), FRUGAL_ERR_ORDER); /* announced already */
    }
    assert_int_equal(try_announce(p, 0, 8, NO_ROWS), FRUGAL_AGAIN); /* closed + L = 7 */
    assert_int_equal(frugal_p2f_get_progress(p).sealed, 5);
    assert_int_equal(frugal_p2f_get_progress(p).announced, 8);
    for (uint64_t t = 5; t <= 7; t++) {
        announce(p, 1, t, ROWS(2));
        assert_int_equal(frugal_p2f_get_progress(p).sealed, t + 1);
    }
    assert_int_equal(frugal_p2f_announced(p, 0), 8);
    finish_step(p, 2, 5);
    announce(p, 0, 8, NO_ROWS);
    assert_int_equal(frugal_p2f_get_progress(p).sealed, 8);
    free(p);
}

static void bad_keys_are_refused_and_change_nothing(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4});
    assert_int_equal(try_announce(p, 0, 0, ROWS(1, 2, 10)), FRUGAL_ERR_KEY);
    assert_int_equal(try_announce(p, 0, 0, ROWS(1, 2, UINT32_MAX)), FRUGAL_ERR_KEY);
    assert_int_equal(try_announce(p, 0, 0, ROWS(1, 2, 2)), FRUGAL_ERR_ROWS);
    assert_int_equal(try_announce(p, 0, 0, ROWS(1, 3, 2)), FRUGAL_ERR_ROWS);
    assert_int_equal(try_announce(p, 0, 0, ROWS(1, 2, 3, 4, 5)), FRUGAL_ERR_KEYS);
    assert_int_equal(frugal_p2f_announce(p, 0, 0, NULL), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(try_announce(p, 0, 0, NULL, 1), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(frugal_p2f_announced(p, 0), 0);
    for (uint32_t row = 0; row < 10; row++) assert_true(*(uint64_t *)(void *)&frugal_priv_words(p)[row] == 0);
    announce(p, 0, 0, ROWS(1, 2, 3, 9));
    finish_step(p, 1, 0);
    assert_int_equal(flush_until(p, UINT64_MAX), 4);
    free(p);
}

static uint32_t holder_of(frugal_p2f *p, uint32_t row) {
    return frugal_priv_holder(frugal_load_relaxed(&frugal_priv_words(p)[row]));
}

/* Line by line. */
static void the_example_of_section_4_is_true(void **state) {
    (void)state;
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    frugal_p2f *p =
        open_p2f((frugal_p2f_desc){.rows = 8, .devices = 2, .max_rows = 2, .lookahead = 3, .staging = 5, .taken = 1});
    for (uint64_t t = 0; t < 3; t++) {
        if (t == 0)
            announce(p, 0, t, ROWS(7));
        else
            announce(p, 0, t, NO_ROWS);
        announce(p, 1, t, NO_ROWS);
    }
    plan_all(p);
    assert_int_equal(0, holder_of(p, 7));
    assert_false(frugal_p2f_is_dirty(p, 7));
    for (uint32_t d = 0; d < 2; d++) commit(p, d, 0);
    close_all(p);
    assert_true(frugal_p2f_is_dirty(p, 7));
    assert_int_equal(1, frugal_p2f_pending(p, 5));
    announce(p, 0, 3, NO_ROWS);
    announce(p, 1, 3, ROWS(7));
    plan_all(p);
    assert_true(frugal_p2f_pending(p, 5) == 0 && frugal_p2f_pending(p, 3) == 1);
    assert_int_equal(1, holder_of(p, 7));
    for (uint64_t t = 1; t < 3; t++) {
        assert_true(frugal_p2f_gate(p, t));
        for (uint32_t d = 0; d < 2; d++) commit(p, d, t);
        close_all(p);
    }
    assert_int_equal(1, frugal_p2f_take(p, 3, work, NULL));
    assert_int_equal(7, work[0].row);
    assert_int_equal(1, frugal_p2f_pending(p, 3));
    assert_false(frugal_p2f_gate(p, 3));
    assert_int_equal(1, frugal_p2f_done(p, work, 1));
    assert_int_equal(0, frugal_p2f_pending(p, 3));
    assert_false(frugal_p2f_is_dirty(p, 7));
    assert_true(frugal_p2f_gate(p, 3));
    free(p);
}

static void legal_says_what_announce_would_answer(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 2});
    for (uint32_t d = 0; d < 2; d++)
        for (uint64_t t = 0; t < 3; t++) {
            assert_true(frugal_p2f_legal(p, t));
            announce(p, d, t, ROWS(1));
        }
    assert_false(frugal_p2f_legal(p, 3)); /* closed + L = 2 */
    finish_step(p, 2, 0);
    assert_true(frugal_p2f_legal(p, 3));
    assert_false(frugal_p2f_legal(p, 4));
    free(p);
}

static void empty_batches_pass_through_every_stage(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 3, .max_rows = 4, .lookahead = 2});
    for (uint64_t s = 0; s < 300; s++) {
        for (uint32_t d = 0; d < 3; d++) announce(p, d, s, NO_ROWS);
        assert_int_equal(frugal_p2f_plan(p), 2);
        assert_int_equal(frugal_p2f_plan(p), 0);
        assert_true(frugal_p2f_gate(p, s));
        for (uint32_t d = 0; d < 3; d++) assert_int_equal(frugal_p2f_commit(p, d, s, d == 1, NULL), FRUGAL_OK);
        assert_int_equal(frugal_p2f_close(p), 2);
        assert_int_equal(frugal_p2f_close(p), 0);
    }
    assert_int_equal(frugal_p2f_get_progress(p).pending, 0);
    free(p);
}

/* >>gates */

static void a_gate_opens_when_closed_planned_and_flushed(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 2});
    announce(p, 0, 0, ROWS(1, 2));
    assert_false(frugal_p2f_gate(p, 0)); /* not sealed by device 1 */
    announce(p, 1, 0, ROWS(2, 3));
    assert_false(frugal_p2f_gate(p, 0)); /* not planned */
    assert_true(frugal_p2f_awaits_plan(p));
    assert_int_equal(frugal_p2f_planned(p), 0);
    plan_all(p);
    assert_int_equal(frugal_p2f_planned(p), 1);
    assert_true(frugal_p2f_gate(p, 0));
    assert_false(frugal_p2f_awaits_plan(p));
    for (uint32_t d = 0; d < 2; d++) announce(p, d, 1, ROWS(2));
    assert_false(frugal_p2f_gate(p, 1)); /* step 0 is not closed */
    assert_false(frugal_p2f_awaits_plan(p));
    commit(p, 0, 0);
    assert_false(frugal_p2f_gate(p, 1));
    commit(p, 1, 0);
    assert_int_equal(close_all(p), 1);
    assert_int_equal(frugal_p2f_pending(p, 1), 0);
    assert_false(frugal_p2f_gate(p, 1)); /* nothing is due there yet, but step 1 is not planned */
    assert_true(frugal_p2f_awaits_plan(p));
    plan_all(p);
    assert_false(frugal_p2f_gate(p, 1)); /* row 2 is not flushed */
    frugal_p2f_work work = take_one(p, 1, 2, 1);
    assert_false(frugal_p2f_gate(p, 1)); /* taken, but not written */
    assert_int_equal(frugal_p2f_pending(p, 1), 1);
    assert_int_equal(frugal_p2f_done(p, &work, 1), 1);
    assert_true(frugal_p2f_gate(p, 1));
    assert_int_equal(frugal_p2f_get_progress(p).pending, 2); /* rows 1 and 3, due later */
    assert_false(frugal_p2f_gate(p, 2));
    free(p);
}

static void commits_before_the_gate_or_twice_or_of_nobody_are_refused(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 1});
    int last = 7;
    assert_int_equal(frugal_p2f_commit(p, 2, 0, 1, &last), FRUGAL_ERR_DEVICE);
    assert_int_equal(last, 0);
    announce(p, 0, 0, ROWS(1));
    assert_int_equal(frugal_p2f_commit(p, 0, 0, 1, NULL), FRUGAL_ERR_ORDER); /* not sealed */
    announce(p, 1, 0, ROWS(1));
    assert_int_equal(frugal_p2f_commit(p, 0, 0, 1, NULL), FRUGAL_ERR_ORDER); /* not planned */
    plan_all(p);
    assert_int_equal(frugal_p2f_commit(p, 0, 1, 1, NULL), FRUGAL_ERR_ORDER);
    assert_int_equal(frugal_p2f_commit(p, 0, 0, 1, &last), FRUGAL_OK);
    assert_int_equal(last, 0);
    assert_int_equal(frugal_p2f_commit(p, 0, 0, 1, NULL), FRUGAL_ERR_ORDER);
    assert_int_equal(frugal_p2f_committed(p, 0), 1);
    assert_int_equal(frugal_p2f_committed(p, 1), 0);
    assert_int_equal(frugal_p2f_commit(p, 1, 0, 1, &last), FRUGAL_OK);
    assert_int_equal(last, 2);
    assert_int_equal(frugal_p2f_get_progress(p).committed, 1);
    free(p);
}

/* >>due steps */

static void an_update_is_due_at_its_next_read_or_when_its_block_is_reused(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 3, .staging = 6});
    announce(p, 0, 0, ROWS(1, 2, 3));
    announce(p, 0, 1, ROWS(4));
    announce(p, 0, 2, ROWS(2));
    announce(p, 0, 3, ROWS(2, 3));
    finish_step(p, 1, 0);
    assert_int_equal(frugal_p2f_pending(p, 2), 1);
    assert_int_equal(frugal_p2f_pending(p, 3), 1);
    assert_int_equal(frugal_p2f_pending(p, 6), 1); /* row 1: 0 + S */
    take_one(p, 63, 2, 2);
    take_one(p, 63, 3, 3);
    take_one(p, 63, 1, 6);
    free(p);
}

/* Reads at all distances, with any number of steps without reads between: those ahead count, those behind do not. */
static void only_reads_ahead_make_an_update_urgent(void **state) {
    (void)state;
    const frugal_p2f_desc desc = {.rows = 2, .devices = 1, .max_rows = 1, .lookahead = 15, .staging = 20};
    for (uint64_t before = 0; before <= 40; before++) /* 16 reads in turn, then so many steps without */
        for (uint64_t ahead = 0; ahead <= 15; ahead++) {
            frugal_p2f *p = open_p2f(desc);
            uint64_t s = 16 + before, t = 0;
            for (; t < s; t++) {
                announce(p, 0, t, ROWS(t < 16 ? 0 : 1));
                finish_step(p, 1, t);
            }
            for (; t <= s + 15; t++) announce(p, 0, t, ROWS(t == s || t == s + ahead ? 0 : 1));
            finish_step(p, 1, s);
            frugal_p2f_work work;
            assert_int_equal(frugal_p2f_take_row(p, 0, &work), 1);
            assert_int_equal(work.step, s);
            assert_int_equal(work.slot, (ahead ? s + ahead : s + 20) % FRUGAL_P2F_SLOTS);
            free(p);
        }
}

/* The word of a row whose last announcements lie about 2^32 steps back, all of them still in it. */
static void reads_of_two_to_the_32_steps_ago_do_no_harm(void **state) {
    (void)state;
    const uint64_t first = UINT64_C(5) << 32, s = first + 40;
    for (uint64_t back = 0; back < 80; back++) {
        frugal_p2f *p = open_p2f((frugal_p2f_desc){
            .rows = 3, .devices = 1, .max_rows = 2, .lookahead = 3, .staging = 6, .first_step = first});
        uint64_t t = first;
        for (; t < s; t++) {
            announce(p, 0, t, ROWS(2));
            finish_step(p, 1, t);
        }
        frugal_priv_words(p)[1] =
            frugal_priv_clean((uint64_t)FRUGAL_PRIV_NOBODY << FRUGAL_PRIV_HOLDER_AT, 0xffff, s + 40 - back);
        announce(p, 0, t++, ROWS(0, 1));
        for (; t < s + 3; t++) announce(p, 0, t, NO_ROWS);
        announce(p, 0, t, ROWS(1));
        finish_step(p, 1, s);
        uint64_t due = s + 1;
        while (due <= s + 3 && frugal_p2f_pending(p, due) == 0) due++;
        assert_true(due <= s + 3); /* at the next true read, or too early */
        frugal_p2f_work work;
        assert_int_equal(frugal_p2f_take_row(p, 1, &work), 1);
        assert_int_equal(work.slot, due % FRUGAL_P2F_SLOTS);
        frugal_p2f_done(p, &work, 1);
        for (uint64_t step = s + 1; step <= s + 3; step++) finish_step(p, 1, step);
        announce(p, 0, s + 4, ROWS(1)); /* what is true now is told */
        plan_all(p);
        assert_int_equal(frugal_p2f_pending(p, s + 4), 1);
        free(p);
    }
}

static void closing_changes_words_of_rows_that_become_dirty_alone(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 1});
    uint64_t words[2];
    for (uint64_t s = 0; s < 40; s++) {
        announce(p, 0, s, ROWS(1, 7));
        plan_all(p);
        for (int i = 0; i < 2; i++) words[i] = frugal_priv_words(p)[i ? 7 : 1];
        assert_int_equal(frugal_p2f_commit(p, 0, s, s % 2, NULL), FRUGAL_OK);
        frugal_p2f_piece piece;
        assert_int_equal(frugal_p2f_close_begin(p, &piece), 1);
        assert_int_equal(frugal_p2f_close_end(p, &piece, s % 2), 2); /* applied, or without gradients */
        for (int i = 0; i < 2; i++) assert_true(frugal_priv_words(p)[i ? 7 : 1] == words[i]);
    }
    free(p);
}

static void in_sync_mode_every_update_is_due_at_the_next_step(void **state) {
    (void)state;
    frugal_p2f *p =
        open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 3, .mode = FRUGAL_SYNC});
    announce(p, 0, 0, ROWS(1, 2, 3));
    for (uint64_t t = 1; t < 4; t++) announce(p, 0, t, ROWS(2));
    finish_step(p, 1, 0);
    assert_int_equal(frugal_p2f_pending(p, 1), 3);
    assert_false(frugal_p2f_gate(p, 1));
    assert_int_equal(flush_until(p, 1), 3);
    assert_true(frugal_p2f_gate(p, 1));
    free(p);
}

static void a_dirty_row_moves_when_it_is_planned_and_only_earlier(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 3, .staging = 9});
    touch(p, 0, 7);
    assert_int_equal(frugal_p2f_pending(p, 9), 1);
    for (uint64_t t = 1; t <= 2; t++) announce(p, 0, t, NO_ROWS);
    announce(p, 0, 3, ROWS(7));
    assert_int_equal(frugal_p2f_pending(p, 9), 1); /* announcing changes no word */
    plan_all(p);
    assert_int_equal(frugal_p2f_pending(p, 9), 0);
    assert_int_equal(frugal_p2f_pending(p, 3), 1);
    finish_step(p, 1, 1);
    announce(p, 0, 4, ROWS(7));
    plan_all(p);
    assert_int_equal(frugal_p2f_pending(p, 3), 1);
    assert_int_equal(frugal_p2f_pending(p, 4), 0);
    frugal_p2f_work work = take_one(p, 63, 7, 3);
    frugal_p2f_done(p, &work, 1);
    uint64_t stale = 0;
    frugal_p2f_work none[FRUGAL_P2F_WORKS];
    assert_int_equal(frugal_p2f_take(p, 63, none, &stale), 0);
    assert_int_equal(stale, 1); /* what was left in slot 9 */
    free(p);
}

static void a_busy_row_that_moves_keeps_the_new_gate_shut_until_it_is_done(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 1, .staging = 9});
    touch(p, 0, 7);
    frugal_p2f_work work = take_one(p, 63, 7, 9);
    assert_int_equal(frugal_p2f_is_dirty(p, 7), 2);
    announce(p, 0, 1, ROWS(7));
    plan_all(p);
    assert_false(frugal_p2f_gate(p, 1));
    assert_int_equal(frugal_p2f_pending(p, 1), 1);
    assert_int_equal(frugal_p2f_pending(p, 9), 0);
    frugal_p2f_work none[FRUGAL_P2F_WORKS];
    assert_int_equal(frugal_p2f_take(p, 63, none, NULL), 0); /* it is delivered already */
    assert_int_equal(frugal_p2f_done(p, &work, 1), 1);       /* and lowers slot 1, not the slot of its taking */
    assert_int_equal(frugal_p2f_pending(p, 1), 0);
    assert_int_equal(frugal_p2f_pending(p, 9), 0);
    assert_true(frugal_p2f_gate(p, 1));
    free(p);
}

/* >>take */

static void an_update_is_taken_exactly_once(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 300, .devices = 1, .max_rows = 300, .lookahead = 1});
    uint32_t rows[300];
    for (uint32_t i = 0; i < 300; i++) rows[i] = i;
    announce(p, 0, 0, rows, 300);
    finish_step(p, 1, 0);
    uint8_t seen[300] = {0};
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    assert_int_equal(frugal_p2f_take_row(p, 5, work), 1);
    seen[5] = 1;
    assert_int_equal(frugal_p2f_take_row(p, 5, work), -1);
    uint32_t total = 1, n;
    while ((n = frugal_p2f_take(p, 63, work, NULL)) > 0) {
        for (uint32_t i = 0; i < n; i++) assert_int_equal(seen[work[i].row]++, 0);
        total += n;
    }
    assert_int_equal(total, 300);
    for (uint32_t i = 0; i < 300; i++) assert_int_equal(frugal_p2f_take_row(p, i, work), -1);
    free(p);
}

static void take_respects_the_limit_and_starts_with_the_most_urgent(void **state) {
    (void)state;
    frugal_p2f *p =
        open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 3, .first_step = 100});
    announce(p, 0, 100, ROWS(1, 2, 3));
    announce(p, 0, 101, ROWS(9));
    announce(p, 0, 102, ROWS(3));
    announce(p, 0, 103, ROWS(2));
    finish_step(p, 1, 100);
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    assert_int_equal(frugal_p2f_take(p, 101, work, NULL), 0);
    assert_int_equal(frugal_p2f_take(p, 0, work, NULL), 0);
    take_one(p, 102, 3, 102);
    assert_int_equal(frugal_p2f_take(p, 102, work, NULL), 0);
    take_one(p, UINT64_MAX, 2, 103);
    take_one(p, UINT64_MAX, 1, 105);
    free(p);
}

static void take_row_tells_clean_from_taken(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4});
    frugal_p2f_work work = {0};
    assert_int_equal(frugal_p2f_take_row(p, 7, &work), 0);
    assert_int_equal(frugal_p2f_is_dirty(p, 7), 0);
    touch(p, 0, 7);
    assert_int_equal(frugal_p2f_is_dirty(p, 7), 1);
    assert_int_equal(frugal_p2f_take_row(p, 7, &work), 1);
    assert_int_equal(work.row, 7);
    assert_int_equal(work.step, 0);
    assert_int_equal(frugal_p2f_is_dirty(p, 7), 2);
    assert_int_equal(frugal_p2f_take_row(p, 7, &work), -1);
    frugal_p2f_done(p, &work, 1);
    assert_int_equal(frugal_p2f_is_dirty(p, 7), 0);
    assert_int_equal(frugal_p2f_take_row(p, 7, &work), 0);
    free(p);
}

static void done_says_whether_a_slot_became_empty(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4});
    announce(p, 0, 0, ROWS(1, 2, 3));
    finish_step(p, 1, 0);
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    assert_int_equal(frugal_p2f_take(p, 63, work, NULL), 3);
    assert_int_equal(frugal_p2f_done(p, work, 2), 0);
    assert_int_equal(frugal_p2f_done(p, work + 2, 1), 1);
    assert_int_equal(frugal_p2f_done(p, work, 0), 0);
    free(p);
}

static void commits_without_gradients_leave_rows_clean(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4});
    announce(p, 0, 0, ROWS(1, 2));
    announce(p, 1, 0, ROWS(2, 3));
    plan_all(p);
    assert_int_equal(frugal_p2f_commit(p, 0, 0, 0, NULL), FRUGAL_OK);
    assert_int_equal(frugal_p2f_commit(p, 1, 0, 1, NULL), FRUGAL_OK);
    close_all(p);
    assert_int_equal(frugal_p2f_brings(p, 0, 0), 0);
    assert_int_equal(frugal_p2f_brings(p, 1, 0), 1);
    assert_int_equal(frugal_p2f_is_dirty(p, 1), 0);
    frugal_p2f_work work = {0};
    assert_int_equal(frugal_p2f_take_row(p, 2, &work), 1);
    assert_int_equal(frugal_p2f_contributors(work.entries), 2); /* both are in the plan; brings says whom to skip */
    assert_int_equal(frugal_p2f_take_row(p, 3, &work), 1);
    assert_int_equal(frugal_p2f_contributors(work.entries), 1);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(announcing_out_of_order_is_an_error_and_too_early_is_again),
        cmocka_unit_test(bad_keys_are_refused_and_change_nothing),
        cmocka_unit_test(a_gate_opens_when_closed_planned_and_flushed),
        cmocka_unit_test(commits_before_the_gate_or_twice_or_of_nobody_are_refused),
        cmocka_unit_test(an_update_is_due_at_its_next_read_or_when_its_block_is_reused),
        cmocka_unit_test(only_reads_ahead_make_an_update_urgent),
        cmocka_unit_test(reads_of_two_to_the_32_steps_ago_do_no_harm),
        cmocka_unit_test(closing_changes_words_of_rows_that_become_dirty_alone),
        cmocka_unit_test(in_sync_mode_every_update_is_due_at_the_next_step),
        cmocka_unit_test(a_dirty_row_moves_when_it_is_planned_and_only_earlier),
        cmocka_unit_test(a_busy_row_that_moves_keeps_the_new_gate_shut_until_it_is_done),
        cmocka_unit_test(an_update_is_taken_exactly_once),
        cmocka_unit_test(take_respects_the_limit_and_starts_with_the_most_urgent),
        cmocka_unit_test(take_row_tells_clean_from_taken),
        cmocka_unit_test(done_says_whether_a_slot_became_empty),
        cmocka_unit_test(commits_without_gradients_leave_rows_clean),
        cmocka_unit_test(the_example_of_section_4_is_true),
        cmocka_unit_test(legal_says_what_announce_would_answer),
        cmocka_unit_test(empty_batches_pass_through_every_stage),
    };
    return cmocka_run_group_tests_name("test_p2f", tests, NULL, NULL);
}
