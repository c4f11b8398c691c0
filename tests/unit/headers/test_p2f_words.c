/* test_p2f_words.c - frugal_p2f.h without words: one device whose batches are all in place. What each call answers,
 * that no byte of the words is touched, and that after frugal_p2f_use_words rows have words as ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/seed.h"
#include "tests/support.h"
#include "tests/unit/headers/p2f_by_hand.h"

enum { ROWS_N = 300, MOST = 200, LOOKAHEAD = 3, WORD_BYTES = ROWS_N * 8 };

static frugal_p2f_desc wordless(uint64_t first_step) {
    return (frugal_p2f_desc){.rows = ROWS_N,
                             .devices = 1,
                             .max_rows = MOST,
                             .lookahead = LOOKAHEAD,
                             .taken = 1,
                             .first_step = first_step,
                             .zeroed = 1,
                             .without_words = 1};
}

/* The words' memory, which nobody may touch, is filled with a pattern. */
typedef struct machine {
    frugal_p2f *p;
    unsigned char *words;
    uint64_t first, step, announced, rows, brought; /* the next to commit; the next to announce; rows so far */
    uint32_t n[FRUGAL_P2F_SLOTS];                   /* of the batches, by step */
} machine;

static machine open_wordless(uint64_t first_step) {
    frugal_p2f_desc desc = wordless(first_step);
    size_t bytes = frugal_p2f_footprint(&desc), room = (bytes / FRUGAL_P2F_ALIGN + 1) * FRUGAL_P2F_ALIGN;
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, room);
    machine m = {.first = first_step, .step = first_step, .announced = first_step};
    memset(memory, 0, room);
    assert_int_equal(frugal_p2f_init(memory, &desc, &m.p), FRUGAL_OK);
    m.words = (unsigned char *)frugal_priv_words(m.p);
    memset(m.words, 0x5a, WORD_BYTES);
    return m;
}

static void close_wordless(machine *m) {
    for (size_t i = 0; i < WORD_BYTES; i++) assert_int_equal(m->words[i], 0x5a);
    free(m->p);
}

static void announce_whole(machine *m, uint32_t n, int read_only) {
    uint32_t rows[MOST];
    for (uint32_t i = 0; i < n; i++) rows[i] = i + (uint32_t)(m->announced % (ROWS_N - MOST));
    const frugal_p2f_batch batch = {rows, n, read_only, .in_place = 1};
    assert_int_equal(frugal_p2f_announce(m->p, 0, m->announced, &batch), FRUGAL_OK);
    m->n[m->announced++ % FRUGAL_P2F_SLOTS] = n;
}

/* What every query says now. */
static void check(machine *m) {
    frugal_p2f_progress now = frugal_p2f_get_progress(m->p);
    frugal_p2f_piece piece;
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t stale = 0, step;
    assert_true(now.sealed == m->announced && now.announced == m->announced);
    assert_true(now.committed == m->step && now.closed == m->step && now.pending == 0);
    assert_true(now.alone == m->rows && now.shared == 0 && now.in_place == m->brought);
    assert_true(frugal_p2f_announced(m->p, 0) == m->announced && frugal_p2f_committed(m->p, 0) == m->step);
    assert_true(frugal_p2f_closed(m->p) == m->step && frugal_p2f_all_committed(m->p) == m->step);
    for (uint64_t s = m->step; s < m->step + FRUGAL_P2F_SLOTS; s++) {
        assert_int_equal(frugal_p2f_gate(m->p, s), s == m->step && s < m->announced);
        assert_int_equal(frugal_p2f_legal(m->p, s), s <= m->step + LOOKAHEAD);
        assert_int_equal(frugal_p2f_pending(m->p, s), 0);
        assert_int_equal(frugal_p2f_unflushed(m->p, s), 0);
        assert_false(frugal_p2f_is_recalled(m->p, 0, s));
    }
    for (uint64_t s = m->step; s < m->announced; s++) {
        const uint64_t *alone = frugal_p2f_alone(m->p, 0, s), *valid = frugal_p2f_valid(m->p, 0, s);
        const uint32_t *rows;
        uint32_t n = m->n[s % FRUGAL_P2F_SLOTS];
        assert_non_null(alone);
        assert_true(frugal_p2f_is_in_place(m->p, 0, s));
        for (uint32_t i = 0; i < n; i++) assert_true((alone[i / 64] & valid[i / 64]) >> i % 64 & 1);
        if (n % 64) assert_true((alone[n / 64] | valid[n / 64]) >> n % 64 == 0); /* no others: callers may count */
        assert_int_equal(frugal_p2f_taken(m->p, 0, s, &rows), 0);
    }
    assert_int_equal(frugal_p2f_plan(m->p), 0);
    assert_int_equal(frugal_p2f_plan_begin(m->p, &piece), 0);
    assert_true(frugal_p2f_is_planned(m->p) && frugal_p2f_planned(m->p) == m->announced);
    assert_false(frugal_p2f_awaits_plan(m->p));
    assert_int_equal(frugal_p2f_close_begin(m->p, &piece), 0);
    assert_int_equal(frugal_p2f_close(m->p), 0);
    assert_int_equal(frugal_p2f_take(m->p, UINT64_MAX, work, &stale), 0);
    assert_int_equal(stale, 0);
    assert_false(frugal_p2f_has_recall(m->p, 0, &step));
    for (uint32_t row = 0; row < ROWS_N; row += 50) {
        assert_int_equal(frugal_p2f_take_row(m->p, row, work), 0);
        assert_int_equal(frugal_p2f_is_dirty(m->p, row), 0);
        assert_true(frugal_p2f_is_current(m->p, 0, row));
    }
    assert_false(frugal_p2f_has_words(m->p));
}

static void commit_whole(machine *m, int gradients) {
    int last = 7;
    uint32_t n = m->n[m->step % FRUGAL_P2F_SLOTS];
    assert_int_equal(frugal_p2f_commit(m->p, 0, m->step, gradients, &last), FRUGAL_OK);
    assert_int_equal(last, 2);
    assert_int_equal(frugal_p2f_brings(m->p, 0, m->step), gradients);
    m->rows += n, m->brought += gradients ? n : 0, m->step++;
}

/* >>what is refused */

static void only_one_device_has_no_words(void **state) {
    (void)state;
    frugal_p2f_desc desc = wordless(0);
    frugal_p2f *p = NULL;
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, FRUGAL_P2F_ALIGN);
    desc.devices = 2;
    assert_int_equal(frugal_p2f_footprint(&desc), 0);
    assert_int_equal(frugal_p2f_init(memory, &desc, &p), FRUGAL_ERR_ARGUMENT);
    assert_null(p);
    free(memory);
}

static void refuse(machine *m, frugal_status status, uint32_t device, uint64_t step, frugal_p2f_batch batch) {
    assert_int_equal(frugal_p2f_announce(m->p, device, step, &batch), status);
    check(m);
}

static void what_is_refused_changes_nothing(void **state) {
    (void)state;
    machine m = open_wordless(5);
    static const uint32_t rows[] = {3, 9}, falling[] = {9, 3}, beyond[] = {3, ROWS_N}, many[MOST + 1] = {0};
    for (int ahead = 0; ahead < 2; ahead++) {
        uint64_t next = m.announced;
        refuse(&m, FRUGAL_ERR_ARGUMENT, 0, next, (frugal_p2f_batch){.rows = rows, .n = 2}); /* not in place */
        refuse(&m, FRUGAL_ERR_ARGUMENT, 0, next, (frugal_p2f_batch){.rows = rows, .n = 2, .read_only = 1});
        refuse(&m, FRUGAL_ERR_ARGUMENT, 0, next, (frugal_p2f_batch){.in_place = 0});
        refuse(&m, FRUGAL_ERR_DEVICE, 1, next, (frugal_p2f_batch){.rows = rows, .n = 2, .in_place = 1});
        refuse(&m, FRUGAL_ERR_KEYS, 0, next, (frugal_p2f_batch){.rows = many, .n = MOST + 1, .in_place = 1});
        refuse(&m, FRUGAL_ERR_KEY, 0, next, (frugal_p2f_batch){.rows = beyond, .n = 2, .in_place = 1});
        refuse(&m, FRUGAL_ERR_ROWS, 0, next, (frugal_p2f_batch){.rows = falling, .n = 2, .in_place = 1});
        refuse(&m, FRUGAL_ERR_ORDER, 0, next + 1, (frugal_p2f_batch){.rows = rows, .n = 2, .in_place = 1});
        refuse(&m, FRUGAL_ERR_ORDER, 0, next - 1, (frugal_p2f_batch){.rows = rows, .n = 2, .in_place = 1});
        while (m.announced <= 5 + LOOKAHEAD) announce_whole(&m, 100, 0);
    }
    refuse(&m, FRUGAL_AGAIN, 0, m.announced, (frugal_p2f_batch){.rows = rows, .n = 2, .in_place = 1});
    assert_int_equal(frugal_p2f_commit(m.p, 1, 5, 1, NULL), FRUGAL_ERR_DEVICE);
    assert_int_equal(frugal_p2f_commit(m.p, 0, 6, 1, NULL), FRUGAL_ERR_ORDER);
    assert_int_equal(frugal_p2f_commit(m.p, 0, 4, 1, NULL), FRUGAL_ERR_ORDER);
    check(&m);
    while (m.step < m.announced) commit_whole(&m, 1);
    assert_int_equal(frugal_p2f_commit(m.p, 0, m.step, 1, NULL), FRUGAL_ERR_ORDER); /* not announced */
    check(&m);
    close_wordless(&m);
}

/* >>steps: of every number of rows, announced up to L ahead, round the rings and on */

static void steps_are_whole(void **state) {
    (void)state;
    test_random random = {.seed = test_seed("test_p2f_words steps", 1)};
    for (int round = 0; round < 20; round++) {
        machine m = open_wordless(round % 2 ? test_next(&random) >> 8 : 0);
        for (int i = 0; i < 400; i++) {
            uint32_t n = test_chance(&random, 30) ? (uint32_t)test_below(&random, MOST / 64 + 1) * 64
                                                  : (uint32_t)test_below(&random, MOST + 1);
            int ahead = m.announced <= m.step + LOOKAHEAD;
            if (ahead && (m.step == m.announced || test_chance(&random, 60)))
                announce_whole(&m, n, test_chance(&random, 20));
            else
                commit_whole(&m, test_chance(&random, 80));
            if (i % 3 == 0) check(&m);
        }
        close_wordless(&m);
    }
}

/* >>cancel: of all that is announced, of some, of nothing; announced anew, with other rows */

static void steps_are_taken_back(void **state) {
    (void)state;
    for (uint64_t first = 0; first < 200; first += 37)
        for (uint64_t ahead = 0; ahead <= LOOKAHEAD + 1; ahead++)
            for (uint64_t kept = 0; kept <= ahead; kept++) {
                machine m = open_wordless(first);
                for (int i = 0; i < 70; i++) { /* more than slots */
                    announce_whole(&m, 10, 0);
                    commit_whole(&m, 1);
                }
                for (uint64_t t = 0; t < ahead; t++) announce_whole(&m, 100 + (uint32_t)t, 0);
                assert_int_equal(frugal_p2f_cancel(m.p, m.announced + 1), FRUGAL_ERR_ORDER);
                assert_int_equal(frugal_p2f_cancel(m.p, m.step - 1), FRUGAL_ERR_ORDER);
                check(&m);
                m.announced = m.step + kept;
                assert_int_equal(frugal_p2f_cancel(m.p, m.announced), FRUGAL_OK);
                check(&m);
                assert_int_equal(frugal_p2f_cancel(m.p, m.announced), FRUGAL_OK); /* nothing is left */
                check(&m);
                while (m.announced <= m.step + LOOKAHEAD) announce_whole(&m, 60 + (uint32_t)m.announced % 9, 0);
                while (m.step < m.announced) {
                    check(&m);
                    commit_whole(&m, m.step % 2);
                }
                check(&m);
                close_wordless(&m);
            }
}

/* Between steps a caller may disown rows and release holders: nothing happens. */
static void holders_are_nobodys_business(void **state) {
    (void)state;
    machine m = open_wordless(0);
    announce_whole(&m, 100, 0);
    commit_whole(&m, 1);
    for (uint32_t row = 0; row < ROWS_N; row++) frugal_p2f_disown(m.p, row);
    frugal_p2f_release_holders(m.p);
    check(&m);
    announce_whole(&m, 100, 0); /* still current: the caller has dropped the copies, or they would be read */
    commit_whole(&m, 1);
    close_wordless(&m);
}

/* >>use_words */

/* What is announced in place or not, then, is planned, closed, queued and flushed; copies are current until the device
 * loses the row by a cancel. */
static void train_with_words(machine *m, int steps) {
    static const uint32_t rows[] = {1, 5, 70};
    for (int i = 0; i < steps; i++) {
        uint64_t s = m->step;
        int in_place = i % 3 == 2;
        const frugal_p2f_batch batch = {.rows = rows, .n = 3, .in_place = in_place};
        assert_int_equal(frugal_p2f_announce(m->p, 0, s, &batch), FRUGAL_OK);
        assert_int_equal(frugal_p2f_is_current(m->p, 0, 1), 1);
        assert_true(frugal_p2f_awaits_plan(m->p));
        assert_int_equal(frugal_p2f_plan(m->p), 2);
        assert_int_equal(frugal_p2f_plan(m->p), 0);
        assert_int_equal(*frugal_p2f_valid(m->p, 0, s), 7);
        assert_int_equal(frugal_p2f_is_current(m->p, 0, 1), 0); /* planned */
        assert_int_equal(frugal_p2f_is_current(m->p, 0, 2), 1);
        assert_int_equal(frugal_p2f_close(m->p), 0);
        flush_until(m->p, s);
        assert_true(frugal_p2f_gate(m->p, s));
        const uint64_t *alone = frugal_p2f_alone(m->p, 0, s);
        if (in_place)
            assert_int_equal(*alone, 7);
        else
            assert_null(alone);
        commit(m->p, 0, s);
        assert_int_equal(frugal_p2f_close(m->p), 2);
        assert_int_equal(frugal_p2f_close(m->p), 0);
        assert_int_equal(frugal_p2f_get_progress(m->p).pending, in_place ? 0 : 3);
        assert_int_equal(frugal_p2f_is_dirty(m->p, 5), !in_place);
        m->step = ++m->announced, m->rows += 3, m->brought += in_place ? 3 : 0;
        frugal_p2f_progress now = frugal_p2f_get_progress(m->p);
        assert_true(now.closed == m->step && now.alone == m->rows && now.in_place == m->brought);
    }
}

static void rows_have_words_when_they_are_needed(void **state) {
    (void)state;
    for (uint64_t first = 0; first < 200; first += 37)
        for (int before = 0; before < 140; before += before < 3 ? 1 : 41) {
            machine m = open_wordless(first);
            for (int i = 0; i < before; i++) {
                announce_whole(&m, 100, 0);
                assert_int_equal(frugal_p2f_use_words(m.p), FRUGAL_ERR_ORDER); /* announced, and not committed */
                if (i % 5 == 1) {
                    assert_int_equal(frugal_p2f_cancel(m.p, m.step), FRUGAL_OK);
                    m.announced--;
                    announce_whole(&m, 20, 0);
                }
                check(&m);
                commit_whole(&m, 1);
            }
            announce_whole(&m, 100, 0);
            assert_int_equal(frugal_p2f_cancel(m.p, m.step), FRUGAL_OK);
            m.announced--;
            check(&m);
            memset(m.words, 0, WORD_BYTES); /* nobody has touched them: as they were given */
            assert_int_equal(frugal_p2f_use_words(m.p), FRUGAL_OK);
            assert_true(frugal_p2f_has_words(m.p));
            assert_int_equal(frugal_p2f_use_words(m.p), FRUGAL_OK); /* they have them already */
            assert_int_equal(frugal_p2f_plan(m.p), 0);
            assert_int_equal(frugal_p2f_close(m.p), 0);
            for (uint32_t row = 0; row < ROWS_N; row++) assert_true(frugal_p2f_is_current(m.p, 0, row));
            train_with_words(&m, 70);
            const frugal_p2f_batch batch = {ROWS(5), .in_place = 0};
            assert_int_equal(frugal_p2f_announce(m.p, 0, m.step, &batch), FRUGAL_OK);
            flush_until(m.p, UINT64_MAX);
            assert_int_equal(frugal_p2f_use_words(m.p), FRUGAL_OK); /* also in the middle of a step */
            assert_int_equal(frugal_p2f_cancel(m.p, m.step), FRUGAL_OK);
            assert_int_equal(frugal_p2f_is_current(m.p, 0, 5), 0);
            assert_int_equal(frugal_p2f_is_current(m.p, 0, 1), 1);
            frugal_p2f_disown(m.p, 2);
            assert_int_equal(frugal_p2f_is_current(m.p, 0, 2), 0);
            frugal_p2f_release_holders(m.p);
            for (uint32_t row = 0; row < ROWS_N; row++) assert_true(frugal_p2f_is_current(m.p, 0, row));
            train_with_words(&m, 3);
            free(m.p);
        }
}

/* Recalls, too, if the device keeps updates: a cancel recalls all. */
static void recalls_begin_with_words(void **state) {
    (void)state;
    frugal_p2f_desc desc = wordless(9);
    uint64_t step;
    desc.recalls = 1, desc.zeroed = 0;
    frugal_p2f *p = open_p2f(desc);
    const frugal_p2f_batch batch = {ROWS(1, 5), .in_place = 1};
    for (uint64_t s = 9; s < 80; s++) {
        for (int anew = 0; anew < 2; anew++) {
            assert_int_equal(frugal_p2f_announce(p, 0, s, &batch), FRUGAL_OK);
            assert_false(frugal_p2f_has_recall(p, 0, &step));
            if (!anew) assert_int_equal(frugal_p2f_cancel(p, s), FRUGAL_OK);
        }
        commit(p, 0, s);
    }
    assert_int_equal(frugal_p2f_use_words(p), FRUGAL_OK);
    for (uint64_t s = 80; s < 150; s++) {
        const uint32_t *rows;
        assert_int_equal(frugal_p2f_announce(p, 0, s, &batch), FRUGAL_OK);
        plan_all(p);
        assert_false(frugal_p2f_has_recall(p, 0, &step));
        assert_int_equal(frugal_p2f_cancel(p, s), FRUGAL_OK);
        assert_int_equal(frugal_p2f_announce(p, 0, s, &batch), FRUGAL_OK);
        assert_false(frugal_p2f_has_recall(p, 0, &step));
        plan_all(p);
        assert_true(frugal_p2f_has_recall(p, 0, &step) && step == s);
        assert_int_equal(frugal_p2f_recalls(p, 0, s, &rows), UINT32_MAX);
        assert_int_equal(frugal_p2f_recall_done(p, 0, s), 1);
        finish_step(p, 1, s);
    }
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_one_device_has_no_words),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(steps_are_whole),
        cmocka_unit_test(steps_are_taken_back),
        cmocka_unit_test(holders_are_nobodys_business),
        cmocka_unit_test(rows_have_words_when_they_are_needed),
        cmocka_unit_test(recalls_begin_with_words),
    };
    return cmocka_run_group_tests_name("test_p2f_words", tests, NULL, NULL);
}
