/* test_p2f_init.c - init of frugal_p2f.h: its limits, its footprint, and a state that can be moved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/seed.h"
#include "tests/support.h"
#include "tests/unit/headers/p2f_by_hand.h"

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
    uint64_t seed = test_seed("test_p2f_init footprint", 1);
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
    frugal_p2f_desc desc = {.rows = 13, .devices = 3, .max_rows = 5, .lookahead = 1, .taken = 1};
    size_t bytes = frugal_p2f_footprint(&desc);
    size_t room = (bytes / FRUGAL_P2F_ALIGN + 2) * FRUGAL_P2F_ALIGN;
    unsigned char *memory = aligned_alloc(FRUGAL_P2F_ALIGN, room);
    memset(memory, 0x5a, room);
    frugal_p2f *p;
    assert_int_equal(frugal_p2f_init(memory, &desc, &p), FRUGAL_OK);
    for (uint64_t s = 0; s < 200; s++) {
        for (uint32_t d = 0; d < 3; d++) {
            const frugal_p2f_batch batch = {ROWS(0, 3, 7, 9 + d, 12), .in_place = s % 2};
            assert_int_equal(frugal_p2f_announce(p, d, s, &batch), FRUGAL_OK);
        }
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
    announce(p, 0, 0, ROWS(0, 1, 2, 3));
    assert_int_equal(valid_of(p, 0, 0), 0xf);
    finish_step(p, 1, 0);
    assert_int_equal(flush_until(p, UINT64_MAX), 4);
    free(memory);
}

static void the_state_holds_no_pointers(void **state) {
    (void)state;
    frugal_p2f_desc desc = {.rows = 20, .devices = 2, .max_rows = 4, .lookahead = 2, .taken = 1};
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
        cmocka_unit_test(the_state_holds_no_pointers),
    };
    return cmocka_run_group_tests_name("test_p2f_init", tests, NULL, NULL);
}
