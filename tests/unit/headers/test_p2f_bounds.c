/* test_p2f_bounds.c - long runs of frugal_p2f.h: steps without end, and the queue as full as it can be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/seed.h"
#include "tests/support.h"
#include "tests/unit/headers/p2f_by_hand.h"

static uint64_t free_pages(frugal_p2f *p) {
    frugal_pq *q = frugal_priv_queue(p);
    uint64_t n = 0;
    for (uint32_t at = (uint32_t)frugal_load_acquire(&q->free); at != 0; n++)
        at = frugal_load_relaxed(&frugal_priv_pq_page_at(q, at - 1)->next);
    return n;
}

/* Random or hostile batches, flushing only what a gate demands, so that the queue is as full as it can be. An
 * assertion in the header fires where a page is missing. Returns the least number of pages that were free. */
static uint64_t run_lazily(frugal_p2f_desc desc, uint64_t seed, uint64_t steps, uint32_t overlap) {
    frugal_p2f *p = open_p2f(desc);
    test_random random = {.seed = seed};
    uint32_t *rows = malloc(desc.max_rows * sizeof *rows);
    uint64_t announced = desc.first_step, least = UINT64_MAX;
    for (uint64_t s = desc.first_step; s < desc.first_step + steps; s++) {
        for (; announced <= s + desc.lookahead; announced++)
            for (uint32_t d = 0; d < desc.devices; d++) {
                uint32_t n =
                    test_chance(&random, 80) ? desc.max_rows : (uint32_t)test_below(&random, desc.max_rows + 1);
                uint32_t span = (uint32_t)(desc.rows / desc.max_rows), row = 0;
                for (uint32_t i = 0; i < n; i++, row += span)
                    rows[i] = row + (uint32_t)(test_below(&random, span) / overlap);
                announce(p, d, announced, rows, n);
                if (test_chance(&random, 50)) plan_all(p);
            }
        uint64_t pages = free_pages(p);
        if (pages < least) least = pages;
        finish_step(p, desc.devices, s);
    }
    flush_until(p, UINT64_MAX);
    assert_int_equal(frugal_p2f_get_progress(p).pending, 0);
    free(rows);
    free(p);
    return least;
}

static void a_hundred_thousand_steps_with_the_smallest_rings(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_p2f_bounds smallest rings", 3), steps = test_rounds(100000);
    run_lazily((frugal_p2f_desc){.rows = 4, .devices = 1, .max_rows = 1, .lookahead = 0, .staging = 1, .threads = 1},
               seed, steps, 1);
    run_lazily((frugal_p2f_desc){.rows = 9, .devices = 2, .max_rows = 3, .lookahead = 0, .staging = 1, .threads = 1},
               seed, steps, 1);
    run_lazily((frugal_p2f_desc){.rows = 9, .devices = 2, .max_rows = 3, .lookahead = 1, .staging = 1, .threads = 1},
               seed, steps, 1);
    run_lazily((frugal_p2f_desc){.rows = 9, .devices = 2, .max_rows = 3, .lookahead = 15, .staging = 1, .threads = 1},
               seed, steps, 1);
    run_lazily((frugal_p2f_desc){.rows = 9, .devices = 2, .max_rows = 3, .lookahead = 0, .staging = 63, .threads = 1},
               seed, steps, 1);
}

static void the_page_bound_holds_for_full_batches(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_p2f_bounds pages", 4), steps = 600 / SHORTER;
    for (uint32_t devices = 1; devices <= 3; devices++)
        for (uint32_t lookahead = 0; lookahead <= 15; lookahead += 5)
            for (uint32_t staging = 1; staging <= 48; staging += 47) {
                frugal_p2f_desc desc = {.devices = devices,
                                        .max_rows = 62 * 3 + 1,
                                        .lookahead = lookahead,
                                        .staging = staging,
                                        .threads = 1};
                desc.rows = (uint64_t)desc.max_rows * 40;
                run_lazily(desc, seed, steps, 1);  /* rows come back rarely */
                run_lazily(desc, seed, steps, 20); /* and often: many moves, many stale ids */
            }
}

/* What the pages are bounded by: no step is closed in more pieces than the largest, and that has as many as its header
 * says in section 10. Through all totals there are. */
static void no_step_has_more_pieces_than_the_largest(void **state) {
    (void)state;
    uint32_t most = 0;
    for (uint32_t total = 0; total <= FRUGAL_MAX_KEYS; total++) {
        uint32_t pieces = frugal_priv_close_pieces(total), small = total / 1024 + 1, large = total / 4096 + 1;
        uint32_t formula = large > 33 ? large : small < 33 ? small : 33;
        if (pieces < most || pieces != formula)
            fail_msg("%u pieces of %u entries; %u of fewer, %u by the formula", pieces, total, most, formula);
        most = pieces;
    }
    assert_in_range(most, 1, (1u << FRUGAL_PRIV_CLAIM_EPOCH_AT) - 1); /* a claim counts them */
}

/* Every row comes back, none of them on two devices. Nearly all do so lookahead + 1 steps on: too late to be known of
 * at closing, so that they are queued for the deadline and, when they are planned, once more. And each piece of
 * closing has a few that come back sooner, which leave a page in part in the slot of each step announced. */
static void run_hostile_batches(uint32_t max_rows, uint64_t steps) {
    const uint32_t lookahead = 7, devices = 2, staging = 9;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = (uint64_t)max_rows * (lookahead + 1) * devices,
                                               .devices = devices,
                                               .max_rows = max_rows,
                                               .lookahead = lookahead,
                                               .staging = staging,
                                               .threads = 1});
    uint32_t *rows = malloc(max_rows * sizeof *rows);
    uint64_t announced = 0, all = free_pages(p), least = all;
    for (uint64_t s = 0; s < steps; s++) {
        for (; announced <= s + lookahead; announced++)
            for (uint32_t d = 0; d < devices; d++) {
                for (uint32_t i = 0; i < max_rows; i++) {
                    uint32_t period = i % 512 < lookahead ? i % 512 + 1 : lookahead + 1;
                    rows[i] = (i * (lookahead + 1) + (uint32_t)(announced % period)) * devices + d;
                }
                announce(p, d, announced, rows, max_rows);
            }
        plan_all(p);
        uint64_t pages = free_pages(p);
        if (pages < least) least = pages;
        finish_step(p, devices, s);
    }
    assert_true(least < all / 6); /* so that the bound is tried, and does not ask for much more than is needed */
    flush_until(p, UINT64_MAX);
    assert_int_equal(frugal_p2f_get_progress(p).pending, 0);
    free(rows);
    free(p);
}

static void the_page_bound_holds_for_hostile_batches(void **state) {
    (void)state;
    run_hostile_batches(2000, 400 / SHORTER);
    run_hostile_batches(20000, 24);  /* 33 pieces of 1250 entries */
    run_hostile_batches(100000, 24); /* 49 of 4096 */
}

static void steps_may_start_near_two_to_the_forty(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_p2f_bounds first step", 5), first = (UINT64_C(1) << 40) - 100;
    run_lazily((frugal_p2f_desc){.rows = 50, .devices = 2, .max_rows = 5, .lookahead = 4, .first_step = first}, seed,
               1000, 1);
    run_lazily(
        (frugal_p2f_desc){
            .rows = 50, .devices = 2, .max_rows = 5, .lookahead = 15, .staging = 48, .first_step = first + 37},
        seed, 1000, 2);
    run_lazily(
        (frugal_p2f_desc){
            .rows = 50, .devices = 1, .max_rows = 5, .lookahead = 3, .first_step = first, .mode = FRUGAL_SYNC},
        seed, 1000, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_thousand_steps_with_the_smallest_rings),
        cmocka_unit_test(the_page_bound_holds_for_full_batches),
        cmocka_unit_test(no_step_has_more_pieces_than_the_largest),
        cmocka_unit_test(the_page_bound_holds_for_hostile_batches),
        cmocka_unit_test(steps_may_start_near_two_to_the_forty),
    };
    return cmocka_run_group_tests_name("test_p2f_bounds", tests, NULL, NULL);
}
