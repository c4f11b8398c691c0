/* test_p2f.c - the state machine of frugal_p2f.h without the runtime, one claim a test. Random protocols
 * against an oracle are in test_p2f_oracle.c, threads and processes in tests/stress. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FRUGAL_P2F_IMPLEMENTATION
#include "frugal_p2f.h"
#include "tests/seed.h"
#include "tests/support.h"

/* >>helpers */

static frugal_p2f *open_p2f(frugal_p2f_desc desc) {
    size_t bytes = frugal_p2f_footprint(&desc);
    assert_true(bytes > 0);
    void *memory =
        aligned_alloc(FRUGAL_P2F_ALIGN, (bytes + FRUGAL_P2F_ALIGN - 1) / FRUGAL_P2F_ALIGN * FRUGAL_P2F_ALIGN);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes); /* init may not rely on zeros unless told so */
    frugal_p2f *p = NULL;
    assert_int_equal(frugal_p2f_init(memory, &desc, &p), FRUGAL_OK);
    assert_non_null(p);
    return p;
}

/* A list of rows as two arguments. */
#define ROWS(...)                                                                                                      \
    (const uint32_t[]){__VA_ARGS__}, (uint32_t)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define NO_ROWS NULL, 0

static frugal_status try_announce(frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t *rows, uint32_t n) {
    return frugal_p2f_announce(p, device, step, &(frugal_p2f_batch){.rows = rows, .n = n}, NULL);
}

static void announce(frugal_p2f *p, uint32_t device, uint64_t step, const uint32_t *rows, uint32_t n) {
    assert_int_equal(try_announce(p, device, step, rows, n), FRUGAL_OK);
}

/* Announces and returns the valid bits; at most 64 rows. */
static uint64_t announce_valid(frugal_p2f *p, uint32_t device, uint64_t step, int read_only, const uint32_t *rows,
                               uint32_t n) {
    uint64_t valid = UINT64_MAX;
    assert_int_equal(frugal_p2f_announce(p, device, step, &(frugal_p2f_batch){rows, n, read_only}, &valid), FRUGAL_OK);
    return valid;
}

static void plan_all(frugal_p2f *p) {
    while (frugal_p2f_plan(p)) {
    }
}

static int close_all(frugal_p2f *p) {
    int pieces = 0;
    while (frugal_p2f_close(p)) pieces++;
    return pieces;
}

/* Commits `device` at `step` with gradients. */
static void commit(frugal_p2f *p, uint32_t device, uint64_t step) {
    assert_int_equal(frugal_p2f_commit(p, device, step, 1, NULL), FRUGAL_OK);
}

/* Takes and finishes everything due at `limit` or before; returns the number of rows. */
static uint64_t flush_until(frugal_p2f *p, uint64_t limit) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t flushed = 0;
    for (uint32_t n; (n = frugal_p2f_take(p, limit, work, NULL)) > 0; flushed += n) frugal_p2f_done(p, work, n);
    return flushed;
}

/* Plans, opens the gate by flushing no more than it asks for, commits all devices with gradients, closes. What is stale in
 * the slot then stays there for the commit to retire. */
static void finish_step(frugal_p2f *p, uint32_t devices, uint64_t step) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    plan_all(p);
    while (!frugal_p2f_gate(p, step)) {
        uint32_t n = frugal_p2f_take(p, step, work, NULL);
        assert_true(n > 0);
        frugal_p2f_done(p, work, n);
    }
    for (uint32_t d = 0; d < devices; d++) commit(p, d, step);
    close_all(p);
    assert_int_equal(frugal_p2f_get_progress(p).closed, step + 1);
}

/* One device, one row, one step with that row. */
static void touch(frugal_p2f *p, uint64_t step, uint32_t row) {
    announce(p, 0, step, &row, 1);
    finish_step(p, 1, step);
}

static frugal_p2f_work take_one(frugal_p2f *p, uint64_t limit, uint32_t row, uint64_t due) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    assert_int_equal(frugal_p2f_take(p, limit, work, NULL), 1);
    assert_int_equal(work[0].row, row);
    assert_int_equal(work[0].slot, due % FRUGAL_P2F_SLOTS);
    return work[0];
}

/* >>init and limits */

static void init_names_each_limit_that_is_broken(void **state) {
    (void)state;
    const struct {
        frugal_p2f_desc desc;
        frugal_status status;
    } bad[] = {{{.rows = 0, .devices = 1, .max_rows = 1}, FRUGAL_ERR_ARGUMENT},
               {{.rows = 1, .devices = 0, .max_rows = 1}, FRUGAL_ERR_ARGUMENT},
               {{.rows = 1, .devices = 1, .max_rows = 0}, FRUGAL_ERR_ARGUMENT},
               {{.rows = 1, .devices = 1, .max_rows = 1, .lookahead = 16}, FRUGAL_ERR_LOOKAHEAD},
               {{.rows = 1, .devices = 1, .max_rows = 1, .lookahead = 15, .staging = 49}, FRUGAL_ERR_LOOKAHEAD},
               {{.rows = 1, .devices = 1, .max_rows = 1, .staging = UINT32_MAX}, FRUGAL_ERR_LOOKAHEAD},
               {{.rows = UINT64_C(1) << 32, .devices = 1, .max_rows = 1}, FRUGAL_ERR_LIMIT},
               {{.rows = (UINT64_C(1) << 32) - 1, .devices = 1, .max_rows = 1}, FRUGAL_ERR_LIMIT},
               {{.rows = 1, .devices = 255, .max_rows = 1}, FRUGAL_ERR_LIMIT},
               {{.rows = 1, .devices = 1, .max_rows = (1u << 26) + 1}, FRUGAL_ERR_LIMIT},
               {{.rows = 1, .devices = 128, .max_rows = (1u << 19) + 1}, FRUGAL_ERR_LIMIT},
               {{.rows = 1, .devices = 1, .max_rows = 1, .threads = UINT32_MAX}, FRUGAL_ERR_LIMIT}, /* a page each */
               {{.rows = 1, .devices = 1, .max_rows = 1, .first_step = FRUGAL_MAX_FIRST_STEP + 1}, FRUGAL_ERR_LIMIT}};
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, FRUGAL_P2F_ALIGN);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        frugal_p2f *p;
        assert_int_equal(frugal_p2f_footprint(&bad[i].desc), 0);
        assert_int_equal(frugal_p2f_init(memory, &bad[i].desc, &p), bad[i].status);
    }
    free(memory);
}

static void the_limits_themselves_are_allowed(void **state) {
    (void)state;
    const frugal_p2f_desc good[] = {{.rows = 1, .devices = 1, .max_rows = 1, .lookahead = 15, .staging = 48},
                                    {.rows = 1, .devices = 1, .max_rows = 1, .lookahead = 0, .staging = 63},
                                    {.rows = (UINT64_C(1) << 32) - 2, .devices = 1, .max_rows = 1},
                                    {.rows = 1, .devices = 254, .max_rows = 1},
                                    {.rows = 1, .devices = 1, .max_rows = 1u << 26},
                                    {.rows = 1, .devices = 1, .max_rows = 1, .first_step = FRUGAL_MAX_FIRST_STEP}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(frugal_p2f_footprint(&good[i]) > 0);
}

static void init_refuses_missing_and_unaligned_memory(void **state) {
    (void)state;
    frugal_p2f_desc desc = {.rows = 8, .devices = 1, .max_rows = 2};
    size_t bytes = (frugal_p2f_footprint(&desc) / FRUGAL_P2F_ALIGN + 2) * FRUGAL_P2F_ALIGN;
    char *memory = aligned_alloc(FRUGAL_P2F_ALIGN, bytes);
    frugal_p2f *p = NULL;
    assert_int_equal(frugal_p2f_footprint(NULL), 0);
    assert_int_equal(frugal_p2f_init(NULL, &desc, &p), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(frugal_p2f_init(memory, NULL, &p), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(frugal_p2f_init(memory, &desc, NULL), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(frugal_p2f_init(memory + 64, &desc, &p), FRUGAL_ERR_ARGUMENT);
    assert_null(p);
    assert_int_equal(frugal_p2f_init(memory, &desc, &p), FRUGAL_OK);
    free(memory);
}

static void the_footprint_is_8_bytes_a_row_and_a_constant(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_p2f footprint", 1);
    test_random random = {.seed = seed};
    for (int i = 0; i < 100; i++) {
        uint64_t n = 8 * test_between(&random, 1, 100000000);
        frugal_p2f_desc desc = {.rows = n,
                                .devices = (uint32_t)test_between(&random, 1, 254),
                                .max_rows = (uint32_t)test_between(&random, 1, 5000),
                                .lookahead = (uint32_t)test_between(&random, 0, 15)};
        size_t once = frugal_p2f_footprint(&desc);
        desc.rows = 2 * n;
        assert_int_equal(frugal_p2f_footprint(&desc) - once, 8 * n);
    }
}

static void the_state_stays_within_its_footprint(void **state) {
    (void)state;
    frugal_p2f_desc desc = {.rows = 13, .devices = 3, .max_rows = 5, .lookahead = 1};
    size_t bytes = frugal_p2f_footprint(&desc);
    size_t room = (bytes / FRUGAL_P2F_ALIGN + 2) * FRUGAL_P2F_ALIGN;
    unsigned char *memory = aligned_alloc(FRUGAL_P2F_ALIGN, room);
    memset(memory, 0x5a, room);
    frugal_p2f *p;
    assert_int_equal(frugal_p2f_init(memory, &desc, &p), FRUGAL_OK);
    for (uint64_t s = 0; s < 200; s++) {
        for (uint32_t d = 0; d < 3; d++) announce(p, d, s, ROWS(0, 3, 7, 11, 12));
        finish_step(p, 3, s);
    }
    for (size_t i = bytes; i < room; i++) assert_int_equal(memory[i], 0x5a);
    free(memory);
}

static void zeroed_memory_need_not_be_cleared_again(void **state) {
    (void)state;
    frugal_p2f_desc desc = {.rows = 4, .devices = 1, .max_rows = 4, .zeroed = 1};
    size_t room = (frugal_p2f_footprint(&desc) / FRUGAL_P2F_ALIGN + 1) * FRUGAL_P2F_ALIGN;
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, room);
    memset(memory, 0, room);
    frugal_p2f *p;
    assert_int_equal(frugal_p2f_init(memory, &desc, &p), FRUGAL_OK);
    assert_int_equal(announce_valid(p, 0, 0, 0, ROWS(0, 1, 2, 3)), 0xf);
    finish_step(p, 1, 0);
    assert_int_equal(flush_until(p, UINT64_MAX), 4);
    free(memory);
}

/* >>announce */

static void announcing_out_of_order_is_an_error_and_too_early_is_again(void **state) {
    (void)state;
    frugal_p2f *p =
        open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 2, .first_step = 5});
    assert_int_equal(try_announce(p, 2, 5, NO_ROWS), FRUGAL_ERR_DEVICE);
    assert_int_equal(try_announce(p, 0, 4, NO_ROWS), FRUGAL_ERR_ORDER);
    assert_int_equal(try_announce(p, 0, 6, NO_ROWS), FRUGAL_ERR_ORDER);
    announce(p, 0, 5, ROWS(1));
    assert_int_equal(try_announce(p, 0, 5, NO_ROWS), FRUGAL_ERR_ORDER); /* sealed already */
    assert_int_equal(try_announce(p, 0, 6, NO_ROWS), FRUGAL_AGAIN);     /* device 1 has not */
    assert_int_equal(frugal_p2f_get_progress(p).sealed, 5);
    assert_int_equal(frugal_p2f_get_progress(p).announced, 6);
    announce(p, 1, 5, ROWS(2));
    for (uint64_t t = 6; t <= 7; t++)
        for (uint32_t d = 0; d < 2; d++) announce(p, d, t, NO_ROWS);
    assert_int_equal(try_announce(p, 0, 8, NO_ROWS), FRUGAL_AGAIN); /* closed + L = 7 */
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
    assert_int_equal(frugal_p2f_announce(p, 0, 0, NULL, NULL), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(try_announce(p, 0, 0, NULL, 1), FRUGAL_ERR_ARGUMENT);
    assert_int_equal(frugal_p2f_announced(p, 0), 0);
    for (uint32_t row = 0; row < 10; row++) assert_true(*(uint64_t *)(void *)&frugal_priv_words(p)[row] == 0);
    announce(p, 0, 0, ROWS(1, 2, 3, 9));
    finish_step(p, 1, 0);
    assert_int_equal(flush_until(p, UINT64_MAX), 4);
    free(p);
}

static void a_gate_opens_when_closed_sealed_and_flushed(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 2});
    announce(p, 0, 0, ROWS(1, 2));
    assert_false(frugal_p2f_gate(p, 0)); /* not sealed by device 1 */
    announce(p, 1, 0, ROWS(2, 3));
    assert_true(frugal_p2f_gate(p, 0)); /* planned or not */
    for (uint32_t d = 0; d < 2; d++) announce(p, d, 1, ROWS(2));
    assert_false(frugal_p2f_gate(p, 1)); /* step 0 is not closed */
    commit(p, 0, 0);
    assert_false(frugal_p2f_gate(p, 1));
    commit(p, 1, 0);
    assert_int_equal(close_all(p), 0); /* not planned yet, so not closed */
    plan_all(p);
    assert_int_equal(close_all(p), 1);
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

static void a_dirty_row_moves_when_it_is_announced_and_only_earlier(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 1, .max_rows = 4, .lookahead = 3, .staging = 9});
    touch(p, 0, 7);
    assert_int_equal(frugal_p2f_pending(p, 9), 1);
    for (uint64_t t = 1; t <= 2; t++) announce(p, 0, t, NO_ROWS);
    announce(p, 0, 3, ROWS(7));
    assert_int_equal(frugal_p2f_pending(p, 9), 0);
    assert_int_equal(frugal_p2f_pending(p, 3), 1);
    finish_step(p, 1, 1);
    announce(p, 0, 4, ROWS(7));
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

static void legal_says_what_announce_would_answer(void **state) {
    (void)state;
    frugal_p2f *p = open_p2f((frugal_p2f_desc){.rows = 10, .devices = 2, .max_rows = 4, .lookahead = 2});
    assert_true(frugal_p2f_legal(p, 0));
    assert_false(frugal_p2f_legal(p, 1)); /* step 0 is not sealed */
    for (uint64_t t = 0; t < 3; t++)
        for (uint32_t d = 0; d < 2; d++) {
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
        /* Rows are kept with a probability of the device's own, from a range of its own: batches of all sizes, skewed. */
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
    uint64_t seed = test_seed("test_p2f plans", 77);
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

/* >>holders */

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

/* >>long runs and bounds */

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
    uint64_t seed = test_seed("test_p2f smallest rings", 3), steps = 100000 / SHORTER;
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
    uint64_t seed = test_seed("test_p2f pages", 4), steps = 600 / SHORTER;
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

/* What the pages are bounded by: no step is closed in more pieces than the largest, and that has as many as its header says
 * in section 13. Through all totals there are. */
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

/* Every row comes back, none of them on two devices. Nearly all do so lookahead + 1 steps on: too late to be known of at
 * closing, so that they are queued for the deadline and, when they are announced, once more. And each piece of closing has
 * a few that come back sooner, which leave a page in part in the slot of each step announced. */
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
    uint64_t seed = test_seed("test_p2f first step", 5), first = (UINT64_C(1) << 40) - 100;
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

static void the_state_holds_no_pointers(void **state) {
    (void)state;
    frugal_p2f_desc desc = {.rows = 20, .devices = 2, .max_rows = 4, .lookahead = 2};
    size_t room = (frugal_p2f_footprint(&desc) / FRUGAL_P2F_ALIGN + 1) * FRUGAL_P2F_ALIGN;
    frugal_p2f *p = open_p2f(desc);
    for (uint64_t s = 0; s < 300; s++) {
        for (uint32_t d = 0; d < 2; d++) announce(p, d, s, ROWS((uint32_t)(s % 9), 10 + d, 12 + (uint32_t)(s % 7)));
        frugal_p2f *moved = aligned_alloc(FRUGAL_P2F_ALIGN, room); /* to another address in the middle of each step */
        memcpy(moved, p, frugal_p2f_footprint(&desc));
        memset(p, 0xff, frugal_p2f_footprint(&desc));
        free(p);
        p = moved;
        finish_step(p, 2, s);
    }
    assert_true(flush_until(p, UINT64_MAX) > 0);
    assert_int_equal(frugal_p2f_get_progress(p).pending, 0);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_names_each_limit_that_is_broken),
        cmocka_unit_test(the_limits_themselves_are_allowed),
        cmocka_unit_test(init_refuses_missing_and_unaligned_memory),
        cmocka_unit_test(the_footprint_is_8_bytes_a_row_and_a_constant),
        cmocka_unit_test(the_state_stays_within_its_footprint),
        cmocka_unit_test(zeroed_memory_need_not_be_cleared_again),
        cmocka_unit_test(announcing_out_of_order_is_an_error_and_too_early_is_again),
        cmocka_unit_test(bad_keys_are_refused_and_change_nothing),
        cmocka_unit_test(a_gate_opens_when_closed_sealed_and_flushed),
        cmocka_unit_test(commits_before_the_gate_or_twice_or_of_nobody_are_refused),
        cmocka_unit_test(an_update_is_due_at_its_next_read_or_when_its_block_is_reused),
        cmocka_unit_test(in_sync_mode_every_update_is_due_at_the_next_step),
        cmocka_unit_test(a_dirty_row_moves_when_it_is_announced_and_only_earlier),
        cmocka_unit_test(a_busy_row_that_moves_keeps_the_new_gate_shut_until_it_is_done),
        cmocka_unit_test(an_update_is_taken_exactly_once),
        cmocka_unit_test(take_respects_the_limit_and_starts_with_the_most_urgent),
        cmocka_unit_test(take_row_tells_clean_from_taken),
        cmocka_unit_test(done_says_whether_a_slot_became_empty),
        cmocka_unit_test(commits_without_gradients_leave_rows_clean),
        cmocka_unit_test(a_piece_closed_as_applied_stays_clean_and_opens_the_next_gate),
        cmocka_unit_test(pieces_are_whole_rows_and_cover_the_plan),
        cmocka_unit_test(pieces_of_small_middling_and_large_steps),
        cmocka_unit_test(steps_of_whole_pieces_are_closed),
        cmocka_unit_test(legal_says_what_announce_would_answer),
        cmocka_unit_test(empty_batches_pass_through_every_stage),
        cmocka_unit_test(plans_of_1_device_equal_brute_force),
        cmocka_unit_test(plans_of_2_devices_equal_brute_force),
        cmocka_unit_test(plans_of_3_devices_equal_brute_force),
        cmocka_unit_test(plans_of_254_devices_equal_brute_force),
        cmocka_unit_test(a_lone_toucher_holds_the_row_and_sharing_takes_it_from_all),
        cmocka_unit_test(read_only_steps_leave_the_holder_alone),
        cmocka_unit_test(cancelled_rows_belong_to_nobody),
        cmocka_unit_test(cancel_is_refused_once_a_device_has_committed_the_step),
        cmocka_unit_test(cancel_waits_for_pieces_of_plans_in_other_hands),
        cmocka_unit_test(release_gives_rows_to_everyone_and_disown_to_nobody),
        cmocka_unit_test(a_hundred_thousand_steps_with_the_smallest_rings),
        cmocka_unit_test(the_page_bound_holds_for_full_batches),
        cmocka_unit_test(no_step_has_more_pieces_than_the_largest),
        cmocka_unit_test(the_page_bound_holds_for_hostile_batches),
        cmocka_unit_test(steps_may_start_near_two_to_the_forty),
        cmocka_unit_test(the_state_holds_no_pointers),
    };
    return cmocka_run_group_tests_name("test_p2f", tests, NULL, NULL);
}
