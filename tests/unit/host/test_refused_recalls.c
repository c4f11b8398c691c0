/* test_refused_recalls.c - a device that does not write back what it keeps, when a call or a recall asks for it: who is
 * told, that nothing is lost, and that training ends where the next gate would never open.
 *
 * The library is compiled into this program, which puts its own function in the place of the device's. Do not link
 * frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include "frugal_flush.c"
#include "tests/unit/host/alone.h"

static struct {
    frugal *f;
    int many;             /* the next so many times device 0 refuses; -1: each time */
    frugal_status answer; /* what it says then */
} refusals;

static frugal_status refuse_to_write(void *device, const uint32_t *rows, uint32_t n) {
    if (refusals.many == 0) return cpu_write_back(device, rows, n);
    if (refusals.many > 0) refusals.many--;
    if (refusals.answer == FRUGAL_STOPPED) frugal_stop(refusals.f);
    return frugal_fail(refusals.answer, "the test has device %u say so", ((const cpu_device *)device)->d);
}

static const small_batch none = {{0}, 0, 0}, both = {{3, 7}, 2, 0}, one = {{3}, 1, 0};

/* Two devices, of which device 0 has trained a step, and keeps rows 3 and 7. What row 3 was is in first[0]. */
static void open_keeper(rig *r, float first[4 * 5]) {
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    d.optimizer.kind = FRUGAL_SGD;
    r->cache = (frugal_cpu_desc){.cache_rows = 64, .policy = FRUGAL_CACHE_LRU};
    rig_open(r, &d);
    r->f->devices[0].ops.write_back = refuse_to_write;
    refusals.f = r->f, refusals.many = 0;
    announce_small(r, 0, 0, &both), announce_small(r, 1, 0, &none);
    assert_int_equal(FRUGAL_OK, frugal_lookup(r->f, 0, 0, first));
    assert_int_equal(FRUGAL_OK, frugal_lookup(r->f, 1, 0, NULL));
    update_small(r, 0, 0, &both), update_small(r, 1, 0, &none);
    assert_int_equal(2, stats_of(r).kept_now);
}

/* Device 1 announces row 3, which device 0 keeps. */
static void ask_for_row_3(rig *r) {
    announce_small(r, 0, 1, &none), announce_small(r, 1, 1, &one);
}

static float host_weight(const rig *r, uint64_t row) {
    return *(float *)weights_of(r->f, row);
}

/* Reading rows and draining return what the device says, read nothing, and work when they are called again. */
static void test_calls(void **state) {
    (void)state;
    enum { MANY = 1500 }; /* more than are asked for at a time */
    rig r = {0};
    static uint64_t keys[MANY];
    static float read[MANY * 5], before[MANY * 5];
    float first[4 * 5];
    open_keeper(&r, first);
    for (uint32_t n = 1; n <= MANY; n += MANY - 1) {
        const frugal_keys wanted = {.table = 0, .keys = keys, .n = n};
        for (uint32_t i = 0; i < n; i++) keys[i] = 3;
        memset(read, 0x55, sizeof read), memset(before, 0x55, sizeof before);
        refusals.many = 1, refusals.answer = FRUGAL_ERR_MEMORY;
        assert_fails(FRUGAL_ERR_MEMORY, frugal_read_rows(r.f, &wanted, read, NULL), "has device 0 say so", "");
        assert_memory_equal(before, read, sizeof read);
        assert_int_equal(2, stats_of(&r).kept_now);
    }
    refusals.many = 1;
    assert_fails(FRUGAL_ERR_MEMORY, frugal_drain(r.f), "has device 0 say so", "");
    assert_int_equal(2, stats_of(&r).kept_now);
    const frugal_keys wanted = {.table = 0, .keys = keys, .n = MANY};
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &wanted, read, NULL));
    for (uint32_t i = 0; i < MANY; i++) assert_true(read[i * 5] == first[0] - 0.5f);
    assert_int_equal(1, stats_of(&r).kept_now);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_true(host_weight(&r, 7) == first[5] - 0.5f);
    rig_free(&r);
}

/* A recall that is refused is tried again: the other device's lookup has the row. */
static void test_tried_again(void **state) {
    (void)state;
    rig r = {0};
    float first[4 * 5], row[4 * 5];
    open_keeper(&r, first);
    ask_for_row_3(&r);
    refusals.many = 3, refusals.answer = FRUGAL_ERR_MEMORY;
    assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, 1, 1, row));
    assert_int_equal(0, refusals.many);
    assert_int_equal(0, r.f->devices[0].keeping.refused);
    assert_true(row[0] == first[0] - 0.5f);
    rig_free(&r);
}

/* A recall that is not answered in time is not asked for again: training ends. What is kept is not gone. */
static void test_not_answered(void **state) {
    (void)state;
    rig r = {0};
    float first[4 * 5], row[4 * 5];
    open_keeper(&r, first);
    ask_for_row_3(&r);
    refusals.many = -1, refusals.answer = FRUGAL_ERR_STUCK;
    assert_fails(FRUGAL_ERR_LOST, frugal_lookup(r.f, 1, 1, row), "a recall was not answered", "has device 0 say so");
    refusals.many = 0;
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(0, stats_of(&r).kept_now);
    assert_true(host_weight(&r, 3) == first[0] - 0.5f && host_weight(&r, 7) == first[5] - 0.5f);
    rig_free(&r);
}

/* A recall that is given up because the instance was stopped is no loss. */
static void test_given_up(void **state) {
    (void)state;
    rig r = {0};
    float first[4 * 5], row[4 * 5];
    open_keeper(&r, first);
    ask_for_row_3(&r);
    refusals.many = -1, refusals.answer = FRUGAL_STOPPED;
    assert_fails(FRUGAL_STOPPED, frugal_lookup(r.f, 1, 1, row), "the instance was stopped", "");
    assert_false(frugal_load_acquire(&r.f->loss.device));
    refusals.many = 0;
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f)); /* nothing is to be waited for */
    assert_true(host_weight(&r, 3) == first[0] - 0.5f && host_weight(&r, 7) == first[5] - 0.5f);
    rig_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_tried_again),
        cmocka_unit_test(test_not_answered),
        cmocka_unit_test(test_given_up),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
