/* test_refusals.c - what a refusal says: one meaning per code, the code's name in the message. No getter crashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/rig.h"

static void test_messages_begin_with_their_status(void **state) {
    (void)state;
    static const struct {
        frugal_status status;
        const char *name;
    } all[] = {
#define ENTRY(name, value, text) {FRUGAL_##name, "FRUGAL_" #name ": 7 rows"},
        FRUGAL_STATUS_LIST(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(all[i].status, frugal_fail(all[i].status, "%d rows", 7));
        assert_string_equal(all[i].name, frugal_message());
    }
    frugal_fail((frugal_status)-999, "%s", "of a device of somebody's own");
    assert_string_equal("status -999: of a device of somebody's own", frugal_message());
    frugal *f;
    frugal_desc d = rig_desc();
    d.dim = 0;
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_open(&d, &f));
    assert_string_equal("FRUGAL_ERR_ARGUMENT: dim is 0; it must be 1 to 65536 weights", frugal_message());
}

/* Who writes a device says what failed below it. */
static void test_messages_may_contain_the_one_before(void **state) {
    (void)state;
    frugal_fail(FRUGAL_ERR_KEY, "key 7");
    frugal_fail(FRUGAL_ERR_DEVICE, "my device: %s", frugal_message());
    assert_string_equal("FRUGAL_ERR_DEVICE: my device: FRUGAL_ERR_KEY: key 7", frugal_message());
}

/* What does not fit is cut off, and no byte behind the buffer is touched: the text ends. */
static void test_long_messages_are_cut(void **state) {
    (void)state;
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    frugal_fail(FRUGAL_ERR_KEY, "%s", text);
    assert_int_equal(0, strncmp(frugal_message(), "FRUGAL_ERR_KEY: xxx", 19));
    assert_int_equal(511, strlen(frugal_message()));
}

/* The values are stable: codes are appended. */
static void test_codes_are_where_they_were(void **state) {
    (void)state;
    static const frugal_status in_order[] = {
        FRUGAL_ERR_ARGUMENT, FRUGAL_ERR_DEVICE,    FRUGAL_ERR_TABLE,  FRUGAL_ERR_KEY,      FRUGAL_ERR_KEYS,
        FRUGAL_ERR_ORDER,    FRUGAL_ERR_LOOKAHEAD, FRUGAL_ERR_LIMIT,  FRUGAL_ERR_SETTINGS, FRUGAL_ERR_BUSY,
        FRUGAL_ERR_MEMORY,   FRUGAL_ERR_FILE,      FRUGAL_ERR_WORKER, FRUGAL_ERR_STUCK,    FRUGAL_ERR_ARITHMETIC,
        FRUGAL_ERR_CUDA,     FRUGAL_ERR_LOST,      FRUGAL_ERR_ROWS,   FRUGAL_ERR_COPY,     FRUGAL_ERR_PROCESS};
    for (size_t i = 0; i < sizeof in_order / sizeof *in_order; i++) assert_int_equal(-1 - (int)i, in_order[i]);
}

static void check_getters(frugal *f) {
    frugal_stats stats, zeros = {0};
    frugal_records records;
    frugal_traffic traffic;
    static const frugal_device_ops ops = {0};
    assert_null(frugal_settings(f));
    assert_null(frugal_get_store(f));
    assert_null(frugal_gates(f));
    assert_null(frugal_get_device(f, 0, &ops));
    assert_int_equal(0, frugal_is_current(f, 0, 0));
    for (int kind = FRUGAL_MEMORY_TABLE; kind <= FRUGAL_MEMORY_GATES; kind++)
        assert_int_equal(0, frugal_get_memory(f, 0, (frugal_memory_kind)kind).bytes);
    frugal_count_hits(f, 0, 1, 1);
    frugal_count_kept(f, 0, 1, 1, 1);
    frugal_count_table_hits(f, 0, 0, 1, 1);
    frugal_count_link(f, 0, 0, 1, 1);
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_trace_start(f, 0));
    assert_int_equal(0, frugal_write_metrics(&f, NULL, 1, NULL, 0));
    memset(&stats, 1, sizeof stats);
    frugal_get_stats(f, &stats);
    assert_memory_equal(&zeros, &stats, sizeof stats);
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_get_records(f, 0, 0, &records));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_cpu_get_traffic(f, 0, &traffic, NULL));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_may_attach(f, 0));
    assert_int_equal(0, frugal_help(f));
    frugal_stop(f);
}

static void test_getters_without_an_instance(void **state) {
    (void)state;
    check_getters(NULL);
    assert_null(frugal_allocate(NULL, 64, 64));
    frugal_free(NULL, NULL, 64);
    frugal_close(NULL);
    frugal *f = NULL;
    test_counter counter = {.fail_at = 3}; /* an instance whose open failed half way */
    frugal_desc d = rig_desc();
    d.allocate = test_allocate, d.release = test_release, d.user = &counter;
    assert_int_equal(FRUGAL_ERR_MEMORY, frugal_open(&d, &f));
    assert_non_null(f);
    check_getters(f);
    frugal_close(f);
    assert_int_equal(0, (int)counter.bytes_out);
}

/* Devices and rows that there are none of are answered, too. */
static void test_getters_of_what_is_not_there(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 30}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    frugal_stats before, now;
    frugal_get_stats(r.f, &before);
    assert_int_equal(0, frugal_is_current(r.f, d.devices, 0));
    assert_int_equal(0, frugal_is_current(r.f, 0, 60));
    frugal_count_hits(r.f, d.devices, 1, 1);
    frugal_count_kept(r.f, d.devices, 1, 1, 1);
    frugal_get_stats(r.f, &now);
    assert_memory_equal(&before, &now, sizeof now);
    rig_finish(&r, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_begin_with_their_status),
        cmocka_unit_test(test_messages_may_contain_the_one_before),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_codes_are_where_they_were),
        cmocka_unit_test(test_getters_without_an_instance),
        cmocka_unit_test(test_getters_of_what_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
