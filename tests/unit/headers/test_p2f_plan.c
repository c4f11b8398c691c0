/* test_p2f_plan.c - plans of frugal_p2f.h: the pieces that steps are planned and closed in, and what take delivers,
 * against brute force. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/seed.h"
#include "tests/support.h"
#include "tests/unit/headers/p2f_by_hand.h"

/* >>pieces of planning */

/* A step in many pieces, all of them in hand at once: together they are all records, in order; the next step is not
 * begun, and no gate opens, before the last of them has ended, in whatever order they do. */
static void pieces_of_planning_cover_the_step_and_hold_up_the_next(void **state) {
    (void)state;
    enum { DEVICES = 3, N = 20000, PIECES = DEVICES * N / FRUGAL_PRIV_PLAN_RANGE + 1 };
    test_random random = {.seed = test_seed("test_p2f_plan pieces", 5)};
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 4 * N, .devices = DEVICES, .max_rows = N, .lookahead = 1});
    uint32_t *rows = malloc(N * sizeof *rows);
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t d = 0; d < DEVICES; d++) {
            for (uint32_t i = 0; i < N; i++) rows[i] = 4 * i + (uint32_t)test_below(&random, 4);
            announce(p, d, t, rows, N);
        }
    for (uint64_t t = 0; t < 2; t++) {
        frugal_p2f_piece pieces[PIECES], none;
        uint32_t next[DEVICES] = {0}, at = 0, first, n;
        uint64_t from, end, spanned = 0;
        for (uint32_t k = 0; k < PIECES; k++) {
            assert_int_equal(frugal_p2f_plan_begin(p, &pieces[k]), 1);
            assert_true(pieces[k].step == t && pieces[k].number == k && pieces[k].first == at);
            at += pieces[k].n;
            frugal_p2f_span(p, &pieces[k], &from, &end);
            assert_true(from == spanned && pieces[k].entries[0].row >= from);
            assert_true(pieces[k].entries[pieces[k].n - 1].row < end);
            spanned = end;
            for (uint32_t i = 1; i < pieces[k].n; i++)
                assert_true(pieces[k].entries[i - 1].row <= pieces[k].entries[i].row);
            for (uint32_t d = 0; d < DEVICES; d++, pieces[k].n -= n) {
                n = frugal_p2f_range(p, &pieces[k], d, &first);
                assert_int_equal(first, next[d]);
                next[d] += n;
            }
            assert_int_equal(pieces[k].n, 0);
        }
        for (uint32_t d = 0; d < DEVICES; d++) assert_int_equal(next[d], N);
        assert_int_equal(spanned, 4 * N);
        for (uint32_t left = PIECES; left > 0; left--) {
            assert_int_equal(frugal_p2f_plan_begin(p, &none), 0);
            assert_int_equal(frugal_p2f_planned(p), t);
            assert_false(frugal_p2f_gate(p, t));
            uint32_t k = (uint32_t)test_below(&random, left);
            assert_int_equal(frugal_p2f_plan_end(p, &pieces[k]), left > 1 ? 1 : 2);
            pieces[k] = pieces[left - 1];
        }
        assert_int_equal(frugal_p2f_planned(p), t + 1);
    }
    assert_true(frugal_p2f_gate(p, 0));
    free(rows), free(p);
}

/* What a word says: of a clean row, which steps from `step` on read it; not where its origin happens to be. */
static uint64_t meaning(uint64_t word, uint64_t step) {
    if (word & FRUGAL_PRIV_DIRTY) return word;
    return frugal_priv_clean(word & FRUGAL_PRIV_HOLDER, frugal_priv_reads_from(word, step), step);
}

/* In p, devices announce step after step, and each step is planned at once; in q, each device announces by itself as
 * far ahead as it may, in any order, and a step is planned when its gate waits for it. Then all is the same. */
static void nothing_depends_on_the_order_of_announcing_and_planning(void **state) {
    (void)state;
    enum { DEVICES = 4, N = 30, AHEAD = 5 };
    test_random random = {.seed = test_seed("test_p2f_plan order", 6)};
    const frugal_p2f_desc desc = {
        .rows = N, .devices = DEVICES, .max_rows = N, .lookahead = AHEAD, .staging = 3, .taken = 1};
    frugal_p2f *p = open_p2f(desc), *q = open_p2f(desc);
    uint32_t rows[DEVICES][FRUGAL_P2F_SLOTS][N], from;
    frugal_p2f_batch batches[DEVICES][FRUGAL_P2F_SLOTS];
    uint64_t announced = 0, valid = 0, taken = 0;
    for (uint64_t s = 0; s < 1000; s++) {
        for (; announced <= s + AHEAD; announced++)
            for (uint32_t d = 0; d < DEVICES; d++) {
                uint32_t *list = rows[d][announced % FRUGAL_P2F_SLOTS], n = 0;
                uint64_t percent = test_below(&random, 60);
                for (uint32_t row = 0; row < N; row++)
                    if (test_chance(&random, (unsigned)percent)) list[n++] = row;
                frugal_p2f_batch *b = &batches[d][announced % FRUGAL_P2F_SLOTS];
                *b = (frugal_p2f_batch){.rows = list, .n = n};
                b->read_only = test_chance(&random, 30), b->in_place = test_chance(&random, 30);
                assert_int_equal(frugal_p2f_announce(p, d, announced, b), FRUGAL_OK);
                plan_all(p);
            }
        for (uint32_t i = 0, d = (uint32_t)test_below(&random, DEVICES); i < DEVICES; i++, d = (d + 1) % DEVICES)
            for (uint64_t t; (t = frugal_p2f_announced(q, d)) < announced;)
                assert_int_equal(frugal_p2f_announce(q, d, t, &batches[d][t % FRUGAL_P2F_SLOTS]), FRUGAL_OK);
        while (frugal_p2f_planned(q) <= s) assert_int_equal(frugal_p2f_plan(q), 2);
        for (uint32_t d = 0; d < DEVICES; d++) {
            uint32_t n = batches[d][s % FRUGAL_P2F_SLOTS].n;
            const uint32_t *of_p, *of_q;
            if (n) assert_true(*frugal_p2f_valid(p, d, s) == *frugal_p2f_valid(q, d, s));
            if (n) valid += *frugal_p2f_valid(p, d, s) != 0;
            from = frugal_p2f_taken(p, d, s, &of_p);
            assert_int_equal(frugal_p2f_taken(q, d, s, &of_q), from);
            if (from) assert_memory_equal(of_p, of_q, from * sizeof *of_p);
            taken += from;
        }
        for (int i = 0; i < 2; i++) {
            frugal_p2f *x = i ? q : p;
            flush_until(x, s);
            for (uint32_t d = 0; d < DEVICES; d++)
                assert_int_equal(frugal_p2f_commit(x, d, s, !batches[d][s % FRUGAL_P2F_SLOTS].read_only, NULL), 0);
            close_all(x);
        }
        if (s % 3) continue;
        plan_all(q);
        for (uint32_t row = 0; row < N; row++)
            assert_true(meaning(frugal_priv_words(p)[row], s + 1) == meaning(frugal_priv_words(q)[row], s + 1));
        for (uint64_t t = s; t < s + FRUGAL_P2F_SLOTS; t++)
            assert_true(frugal_p2f_pending(p, t) == frugal_p2f_pending(q, t));
    }
    assert_true(valid && taken);
    free(p), free(q);
}

/* >>pieces of closing */

static void a_piece_closed_as_applied_stays_clean_and_opens_the_next_gate(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 1});
    frugal_p2f_piece piece;
    assert_int_equal(frugal_p2f_close_begin(p, &piece), 0);
    for (uint64_t t = 0; t < 2; t++) {
        announce(p, 0, t, ROWS(1, 2));
        announce(p, 1, t, ROWS(2, 3));
    }
    plan_all(p);
    commit(p, 0, 0);
    assert_int_equal(frugal_p2f_close_begin(p, &piece), 0); /* not committed by all */
    commit(p, 1, 0);
    assert_int_equal(frugal_p2f_all_bring(p, 0), 1);
    assert_int_equal(frugal_p2f_close_begin(p, &piece), 1);
    assert_int_equal(piece.step, 0);
    assert_int_equal(piece.n, 4);
    const uint32_t rows[] = {1, 2, 2, 3};
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(piece.entries[i].row, rows[i]);
    assert_int_equal(frugal_p2f_contributors(piece.entries + 1), 2);
    assert_int_equal(frugal_p2f_contributors(piece.entries + 3), 1); /* the last of a plan */
    frugal_p2f_piece none;
    assert_int_equal(frugal_p2f_close_begin(p, &none), 0); /* each piece once */
    assert_false(frugal_p2f_gate(p, 1));
    assert_int_equal(frugal_p2f_closed(p), 0);
    assert_int_equal(frugal_p2f_close_end(p, &piece, 1), 2);
    assert_int_equal(frugal_p2f_closed(p), 1);
    assert_true(frugal_p2f_gate(p, 1)); /* nothing is left to flush */
    assert_int_equal(frugal_p2f_get_progress(p).pending, 0);
    assert_int_equal(flush_until(p, UINT64_MAX), 0);
    assert_int_equal(frugal_p2f_commit(p, 0, 1, 0, NULL), FRUGAL_OK);
    commit(p, 1, 1);
    assert_int_equal(frugal_p2f_all_bring(p, 1), 0);
    close_all(p);
    assert_int_equal(flush_until(p, UINT64_MAX), 2); /* rows 2 and 3 */
    free(p);
}

/* Pieces of a large step, with rows of hundreds of entries across their borders: whole rows, each entry once. */
static void pieces_are_whole_rows_and_cover_the_plan(void **state) {
    (void)state;
    enum { DEVICES = 254, N = 70 };
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = N, .devices = DEVICES, .max_rows = N});
    uint32_t rows[N];
    for (uint32_t i = 0; i < N; i++) rows[i] = i;
    for (uint32_t d = 0; d < DEVICES; d++) announce(p, d, 0, rows, N - d % 3);
    plan_all(p);
    for (uint32_t d = 0; d < DEVICES; d++) commit(p, d, 0);
    uint32_t at = 0, entries = 0, pieces = 0;
    frugal_p2f_piece piece;
    for (; frugal_p2f_close_begin(p, &piece); pieces++) {
        assert_true(piece.first >= at);
        at = piece.first + piece.n;
        for (uint32_t i = 0; i < piece.n; i += frugal_p2f_contributors(piece.entries + i)) {
            assert_true(i == 0 || piece.entries[i].row > piece.entries[i - 1].row);
            entries += frugal_p2f_contributors(piece.entries + i);
            assert_true(i + frugal_p2f_contributors(piece.entries + i) <= piece.n); /* the row is whole */
        }
        frugal_p2f_close_end(p, &piece, 0);
    }
    uint32_t total = 0;
    for (uint32_t d = 0; d < DEVICES; d++) total += N - d % 3;
    assert_int_equal(entries, total);
    assert_true(pieces > 1);
    assert_int_equal(flush_until(p, UINT64_MAX), N);
    free(p);
}

/* Pieces are no more than threads may need, and neither tiny nor so large that a gate waits long for one. */
static void pieces_of_small_middling_and_large_steps(void **state) {
    (void)state;
    static const uint32_t totals[] = {100, 40000, 200000}, ranges[] = {1024, 1250, 4096};
    for (int i = 0; i < 3; i++) {
        uint32_t n = totals[i], pieces = 0, *rows = malloc(n * sizeof *rows);
        frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = n, .devices = 1, .max_rows = n});
        for (uint32_t row = 0; row < n; row++) rows[row] = row;
        announce(p, 0, 0, rows, n);
        plan_all(p);
        commit(p, 0, 0);
        frugal_p2f_piece piece;
        for (; frugal_p2f_close_begin(p, &piece); pieces++) {
            assert_int_equal(piece.first, pieces * ranges[i]);
            frugal_p2f_close_end(p, &piece, 0);
        }
        assert_int_equal(pieces, n / ranges[i] + 1);
        assert_int_equal(flush_until(p, UINT64_MAX), n);
        free(rows);
        free(p);
    }
}

/* Plans that end where a piece ends: the last piece is empty, and the step is closed all the same. */
static void steps_of_whole_pieces_are_closed(void **state) {
    (void)state;
    enum { N = 3 * FRUGAL_PRIV_PLAN_RANGE };
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = N, .devices = 1, .max_rows = N});
    uint32_t *rows = malloc(N * sizeof(uint32_t));
    for (uint32_t i = 0; i < N; i++) rows[i] = i;
    const uint32_t sizes[] = {FRUGAL_PRIV_CLOSE_RANGE, FRUGAL_PRIV_PLAN_RANGE, N, N - 1, FRUGAL_PRIV_CLOSE_RANGE + 1};
    for (uint64_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        announce(p, 0, s, rows, sizes[s]);
        plan_all(p);
        flush_until(p, s);
        commit(p, 0, s);
        assert_int_equal(close_all(p), sizes[s] / FRUGAL_PRIV_CLOSE_RANGE + 1);
        assert_int_equal(frugal_p2f_closed(p), s + 1);
        assert_int_equal(frugal_p2f_unflushed(p, s), sizes[s]);
    }
    assert_int_equal(flush_until(p, UINT64_MAX),
                     N - 1); /* of the last two steps: the last had some rows of the other */
    free(rows), free(p);
}

/* >>plan: what take delivers, against brute force */

typedef struct batches {
    uint32_t devices, rows, max_rows;
    uint32_t *list;  /* list[devices][max_rows] */
    uint32_t *count; /* count[devices] */
    uint8_t *brings; /* brings[devices] */
} batches;

static batches make_batches(test_random *random, uint32_t devices, uint32_t rows, uint32_t max_rows) {
    batches b = {devices, rows, max_rows, NULL, NULL, NULL};
    b.list = calloc((size_t)devices * max_rows, sizeof *b.list);
    b.count = calloc(devices, sizeof *b.count);
    b.brings = calloc(devices, 1);
    for (uint32_t d = 0; d < devices; d++) {
        /* Rows are kept with a probability of the device's own, from a range of its own: batches of all sizes,
         * skewed. */
        uint32_t from = (uint32_t)test_below(random, rows), percent = (uint32_t)test_below(random, 101);
        if (test_chance(random, 50)) from = 0;
        for (uint32_t row = from; row < rows && b.count[d] < max_rows; row++)
            if (test_chance(random, percent)) b.list[(size_t)d * max_rows + b.count[d]++] = row;
        b.brings[d] = (uint8_t)test_chance(random, 80);
    }
    return b;
}

/* The record of `row` at `device`, or -1. */
static int64_t record_of(const batches *b, uint32_t device, uint32_t row) {
    const uint32_t *list = b->list + (size_t)device * b->max_rows;
    uint32_t low = 0, high = b->count[device];
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (list[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->count[device] && list[low] == row ? (int64_t)low : -1;
}

static void check_work(frugal_p2f *p, const batches *b, const frugal_p2f_work *work) {
    uint32_t n = frugal_p2f_contributors(work->entries), at = 0;
    for (uint32_t d = 0; d < b->devices; d++) {
        int64_t record = record_of(b, d, work->row);
        if (record < 0) continue;
        uint32_t device, found;
        assert_true(at < n);
        assert_int_equal(work->entries[at].row, work->row);
        frugal_p2f_source(p, work->entries[at].source, &device, &found);
        assert_int_equal(device, d); /* in device order */
        assert_int_equal(found, record);
        at++;
    }
    assert_int_equal(at, n);
}

static void check_plan(frugal_p2f *p, const batches *b, uint64_t step) {
    for (uint32_t d = 0; d < b->devices; d++) announce(p, d, step, b->list + (size_t)d * b->max_rows, b->count[d]);
    plan_all(p);
    assert_true(frugal_p2f_gate(p, step));
    for (uint32_t d = 0; d < b->devices; d++)
        assert_int_equal(frugal_p2f_commit(p, d, step, b->brings[d], NULL), FRUGAL_OK);
    close_all(p);
    assert_int_equal(frugal_p2f_get_progress(p).closed, step + 1);
    uint8_t *wanted = calloc(b->rows, 1);
    uint64_t left = 0;
    for (uint32_t d = 0; d < b->devices; d++)
        for (uint32_t i = 0; b->brings[d] && i < b->count[d]; i++) wanted[b->list[(size_t)d * b->max_rows + i]] = 1;
    for (uint32_t row = 0; row < b->rows; row++) left += wanted[row];
    assert_int_equal(frugal_p2f_get_progress(p).pending, left);
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    for (uint32_t n; (n = frugal_p2f_take(p, UINT64_MAX, work, NULL)) > 0; left -= n) {
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(wanted[work[i].row]--, 1);
            assert_int_equal(work[i].step, step);
            check_work(p, b, &work[i]);
        }
        frugal_p2f_done(p, work, n);
    }
    assert_int_equal(left, 0);
    assert_int_equal(frugal_p2f_get_progress(p).pending, 0);
    free(wanted);
}

static void plans_equal_brute_force(uint32_t devices, uint32_t rows, uint32_t max_rows, uint64_t steps) {
    uint64_t seed = test_seed("test_p2f_plan plans", 77);
    test_random random = {.seed = test_mix2(seed, devices)};
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = rows, .devices = devices, .max_rows = max_rows});
    for (uint64_t step = 0; step < steps; step++) {
        batches b = make_batches(&random, devices, rows, max_rows);
        check_plan(p, &b, step);
        free(b.list), free(b.count), free(b.brings);
    }
    free(p);
}

static void plans_of_1_device_equal_brute_force(void **state) {
    (void)state;
    plans_equal_brute_force(1, 100, 100, 200);
    plans_equal_brute_force(1, 60000, 50000, 10);
}
static void plans_of_2_devices_equal_brute_force(void **state) {
    (void)state;
    plans_equal_brute_force(2, 100, 60, 200);
    plans_equal_brute_force(2, 40000, 40000, 10); /* several pieces of planning and of closing */
}
static void plans_of_3_devices_equal_brute_force(void **state) {
    (void)state;
    plans_equal_brute_force(3, 5, 5, 200);
    plans_equal_brute_force(3, 30000, 20000, 10);
}
static void plans_of_254_devices_equal_brute_force(void **state) {
    (void)state;
    plans_equal_brute_force(254, 300, 200, 10);
    plans_equal_brute_force(254, 70, 70, 20); /* rows with hundreds of entries across the pieces' borders */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_planning_cover_the_step_and_hold_up_the_next),
        cmocka_unit_test(nothing_depends_on_the_order_of_announcing_and_planning),
        cmocka_unit_test(a_piece_closed_as_applied_stays_clean_and_opens_the_next_gate),
        cmocka_unit_test(pieces_are_whole_rows_and_cover_the_plan),
        cmocka_unit_test(pieces_of_small_middling_and_large_steps),
        cmocka_unit_test(steps_of_whole_pieces_are_closed),
        cmocka_unit_test(plans_of_1_device_equal_brute_force),
        cmocka_unit_test(plans_of_2_devices_equal_brute_force),
        cmocka_unit_test(plans_of_3_devices_equal_brute_force),
        cmocka_unit_test(plans_of_254_devices_equal_brute_force),
    };
    return cmocka_run_group_tests_name("test_p2f_plan", tests, NULL, NULL);
}
