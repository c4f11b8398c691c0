/* test_cpu.c - the cache of a device on the host: what it serves, preloads and evicts, and what verify finds in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "src/device.h"
#include "tests/case.h"
#include "tests/rig.h"

enum { SERVED = 60 };

/* A read-only step in which every device looks keys[n] of table 0 up; returns the hits and misses that it took. */
static frugal_stats serve(rig *r, const uint64_t *keys, uint32_t n) {
    frugal_keys segment = {.table = 0, .keys = keys, .n = n};
    frugal_batch batch = {&segment, 1, 1};
    frugal_stats before, after;
    float rows[SERVED * 5];
    frugal_get_stats(r->f, &before);
    for (uint32_t i = 0; i < r->desc.devices; i++)
        assert_int_equal(FRUGAL_OK, frugal_announce(r->f, i, r->step, &batch));
    for (uint32_t i = 0; i < r->desc.devices; i++) {
        assert_int_equal(FRUGAL_OK, frugal_lookup(r->f, i, r->step, rows));
        for (uint32_t k = 0; k < n; k++) assert_memory_equal(rows + 5 * k, r->ref.weights + 5 * keys[k], 20);
    }
    for (uint32_t i = 0; i < r->desc.devices; i++) {
        assert_int_equal(FRUGAL_OK, frugal_update(r->f, i, r->step, NULL));
        r->announced[i]++;
    }
    r->step++;
    frugal_get_stats(r->f, &after);
    after.hits -= before.hits, after.misses -= before.misses;
    return after;
}

/* After training, once the holders are released, serving from a cache that has room never misses. */
static void test_serving_after_training(void **state) {
    frugal_cache_policy policy = (frugal_cache_policy)(intptr_t)*state;
    rig r = {.cache = {.cache_rows = 4000, .policy = policy}};
    frugal_desc d = rig_desc();
    uint64_t keys[40];
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    d.workers = 1, d.max_keys = SERVED;
    rig_open(&r, &d);
    rig_train(&r, 10);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_release_holders(r.f));
    frugal_stats s = serve(&r, keys, 40);
    assert_int_equal(0, s.hits); /* it was emptied */
    assert_int_equal(80, s.misses);
    for (int i = 0; i < 3; i++) {
        s = serve(&r, keys, 40);
        assert_int_equal(80, s.hits);
        assert_int_equal(0, s.misses);
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    rig_finish(&r, 10); /* and training goes on */
}

static void test_preloaded_rows_hit(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 4000, .policy = FRUGAL_CACHE_STATIC}};
    frugal_desc d = rig_desc();
    uint64_t keys[40];
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    d.max_keys = SERVED;
    rig_open(&r, &d);
    frugal_keys hot = {.table = 0, .keys = keys, .n = 15};
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &hot));
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &hot)); /* twice is no harm */
    hot.n = 5;
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 1, &hot));
    for (int i = 0; i < 3; i++) { /* static: nothing else ever gets in */
        frugal_stats s = serve(&r, keys, 40);
        assert_int_equal(15 + 5, s.hits);
        assert_int_equal(25 + 35, s.misses);
    }
    rig_train(&r, 8);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    assert_int_equal(FRUGAL_OK, frugal_release_holders(r.f));
    hot.n = 40;
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 1, &hot));
    frugal_stats s = serve(&r, keys, 40);
    assert_int_equal(40, s.hits);
    rig_finish(&r, 8);
}

/* More keys than a device is given at a time. */
static void test_preloading_many_keys(void **state) {
    (void)state;
    enum { MANY = 2500 };
    rig r = {.cache = {.cache_rows = 4000, .policy = FRUGAL_CACHE_STATIC}};
    frugal_desc d = rig_desc();
    uint64_t keys[MANY], served[40];
    for (uint64_t i = 0; i < MANY; i++) keys[i] = i % 10;
    for (uint64_t i = 0; i < 40; i++) served[i] = i;
    keys[MANY - 1] = 39;
    d.max_keys = SERVED;
    rig_open(&r, &d);
    const frugal_keys many = {.table = 0, .keys = keys, .n = MANY};
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &many));
    frugal_stats s = serve(&r, served, 40);
    assert_true(s.hits == 11 && s.misses == 29 + 40);
    rig_finish(&r, 1);
}

/* Where there is no cache, preloading is allowed, and nothing comes of it. */
static void test_preloading_without_a_cache(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    uint64_t keys[] = {1, 2, 3};
    frugal_keys hot = {.table = 0, .keys = keys, .n = 3};
    d.max_keys = SERVED;
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &hot));
    frugal_stats s = serve(&r, keys, 3);
    assert_true(s.hits == 0 && s.misses == 6);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_release_holders(r.f));
    rig_finish(&r, 3);
}

/* A set that is full takes no more: what was preloaded first stays. */
static void test_preloading_more_than_there_is_room_for(void **state) {
    (void)state;
    for (int policy = FRUGAL_CACHE_COUNTED; policy <= FRUGAL_CACHE_STATIC; policy++) {
        rig r = {.cache = {.cache_rows = 8, .policy = (frugal_cache_policy)policy}};
        frugal_desc d = rig_desc();
        uint64_t keys[20];
        frugal_keys all = {.table = 0, .keys = keys, .n = 20};
        for (uint64_t i = 0; i < 20; i++) keys[i] = i;
        d.max_keys = SERVED;
        rig_open(&r, &d);
        assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &all));
        frugal_stats s = serve(&r, keys, 8);
        assert_int_equal(8, s.hits);   /* of device 0 */
        assert_int_equal(8, s.misses); /* of device 1 */
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
        rig_finish(&r, 3);
    }
}

/* verify compares weights and state of every current copy: one wrong bit at the host is found. */
static void test_verify_finds_what_differs(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        rig r = {.cache = {.cache_rows = 1000}, .repeat = 1};
        frugal_desc d = rig_desc();
        d.devices = 1, d.optimizer.kind = rig_optimizers[i];
        rig_open(&r, &d);
        rig_train(&r, 3);
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        const frugal_store *s = frugal_get_store(r.f);
        uint64_t row = r.rows[0][RIG_KEYS - 1];
        float *places[] = {(float *)frugal_row_at(s, row) + 4,
                           s->state ? s->state + row * s->state_stride + s->state_floats - 1 : NULL};
        for (int k = 0; k < (s->state ? 2 : 1); k++) {
            float right = *places[k];
            *places[k] = nextafterf(right, 1e9f);
            assert_int_equal(FRUGAL_ERR_COPY, frugal_verify(r.f));
            assert_non_null(strstr(frugal_message(), "device 0"));
            *places[k] = right;
            assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
        }
        rig_finish(&r, 3);
    }
}

/* One set of eight places. Least recently used: the ninth row takes the place of the one not touched for longest. */
static void test_which_row_leaves(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 8, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    uint64_t eight[] = {0, 1, 2, 3, 4, 5, 6, 7}, often[] = {0}, others[] = {1, 2, 3, 4, 5, 6, 7}, ninth[] = {8};
    assert_int_equal(0, serve(&r, eight, 8).hits);
    for (int i = 0; i < 20; i++) assert_int_equal(1, serve(&r, often, 1).hits);
    assert_int_equal(7, serve(&r, others, 7).hits); /* 0 is now the oldest, and the most used */
    assert_int_equal(0, serve(&r, ninth, 1).hits);
    assert_int_equal(0, serve(&r, often, 1).hits);
    rig_finish(&r, 10);
}

/* With one device a copy stays current through training: its own updates reach it. */
static void test_one_device_hits_while_training(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        rig r = {.cache = {.cache_rows = 4000}, .repeat = 1};
        frugal_desc d = rig_desc();
        d.devices = 1, d.optimizer.kind = rig_optimizers[i];
        rig_open(&r, &d);
        rig_train(&r, 1);
        frugal_stats first, s;
        frugal_get_stats(r.f, &first);
        assert_int_equal(0, first.hits);
        rig_train(&r, 9);
        frugal_get_stats(r.f, &s);
        assert_int_equal(first.misses, s.misses);
        assert_int_equal(9 * first.misses, s.hits);
        rig_finish(&r, 0);
    }
}

/* Numbers differ by any bit, also zeros by their sign; infinities are numbers; any two NaN are the same. */
static void test_which_numbers_are_the_same(void **state) {
    static const uint32_t all[] = {0,           0x80000000u, 1,           0x3f800000u, 0x7f800000u,
                                   0xff800000u, 0x7f800001u, 0x7fffffffu, 0xffc00000u};
    enum { ALL = sizeof all / sizeof *all, NUMBERS = 6 };
    (void)state;
    for (int i = 0; i < ALL; i++)
        for (int k = 0; k < ALL; k++) {
            float copy[2] = {1, 0}, host[2] = {1, 0};
            memcpy(&copy[1], &all[i], sizeof *copy), memcpy(&host[1], &all[k], sizeof *host);
            assert_int_equal(i == k || (i >= NUMBERS && k >= NUMBERS), frugal_are_same(copy, host, 2));
            assert_true(frugal_are_same(copy, host, 1));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("test_serving_after_training, LRU", test_serving_after_training, FRUGAL_CACHE_LRU),
        CASE("test_serving_after_training, counted", test_serving_after_training, FRUGAL_CACHE_COUNTED),
        cmocka_unit_test(test_preloaded_rows_hit),
        cmocka_unit_test(test_preloading_many_keys),
        cmocka_unit_test(test_preloading_without_a_cache),
        cmocka_unit_test(test_preloading_more_than_there_is_room_for),
        cmocka_unit_test(test_verify_finds_what_differs),
        cmocka_unit_test(test_which_row_leaves),
        cmocka_unit_test(test_one_device_hits_while_training),
        cmocka_unit_test(test_which_numbers_are_the_same),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
