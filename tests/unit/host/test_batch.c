/* test_batch.c - what a step may not bring: keys, buffers, gradients, settings. A refused call changes nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/host/refused.h"

static void test_keys(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 2);
    uint64_t keys[RIG_KEYS + 1] = {0}, bad[2] = {3, 20}, negative = (uint64_t)INT64_C(-1);
    float rows[10];
    frugal_keys too_large = {.table = 1, .keys = bad, .n = 2}, many = {.table = 0, .keys = keys, .n = RIG_KEYS + 1},
                no_table = {.table = 2, .keys = keys, .n = 1}, minus = {.table = 0, .keys = &negative, .n = 1};
    frugal_keys halves[2] = {{.table = 0, .keys = keys, .n = RIG_KEYS}, {.table = 1, .keys = keys, .n = 1}},
                nothing = {.table = 0, .keys = NULL, .n = 3};
    assert_fails(FRUGAL_ERR_KEY, frugal_announce(r.f, 0, 2, &(frugal_batch){&too_large, 1, 0}), "key 20",
                 "table 1 has 20");
    assert_fails(FRUGAL_ERR_KEY, frugal_announce(r.f, 0, 2, &(frugal_batch){&minus, 1, 0}), "-1", "40 rows");
    assert_fails(FRUGAL_ERR_KEYS, frugal_announce(r.f, 0, 2, &(frugal_batch){&many, 1, 0}), "25", "24");
    assert_fails(FRUGAL_ERR_KEYS, frugal_try_announce(r.f, 1, 2, &(frugal_batch){halves, 2, 0}), "25", "24");
    assert_fails(FRUGAL_ERR_TABLE, frugal_announce(r.f, 0, 2, &(frugal_batch){&no_table, 1, 0}), "table 2", "2");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_announce(r.f, 0, 2, &(frugal_batch){&nothing, 1, 0}), "3 keys",
                 "no array");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_announce(r.f, 0, 2, &(frugal_batch){NULL, 1, 0}), "announce", "NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_announce(r.f, 0, 2, NULL), "announce", "NULL");
    assert_fails(FRUGAL_ERR_KEY, frugal_read_rows(r.f, &too_large, rows, NULL), "key 20", "20 rows");
    assert_fails(FRUGAL_ERR_TABLE, frugal_read_rows(r.f, &no_table, rows, NULL), "table 2", "2");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_read_rows(r.f, NULL, rows, NULL), "read_rows", "keys");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_read_rows(r.f, &nothing, rows, NULL), "read_rows", "keys");
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_fails(FRUGAL_ERR_KEY, frugal_write_rows(r.f, &too_large, rows, NULL), "key 20",
                 "20 rows"); /* nor the good key */
    assert_fails(FRUGAL_ERR_TABLE, frugal_write_rows(r.f, &no_table, rows, NULL), "table 2", "2");
    assert_fails(FRUGAL_ERR_KEY, frugal_preload(r.f, 0, &too_large), "key 20", "20 rows");
    const void *view;
    uint64_t stride;
    assert_fails(FRUGAL_ERR_TABLE, frugal_view(r.f, 2, &view, &stride), "table 2", "2");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_view(r.f, 0, NULL, &stride), "view", "NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_view(r.f, 0, &view, NULL), "view", "NULL");
    rig_finish(&r, 4);
}

/* Keys of 32 bits name the same rows in every call that takes keys; what is wrong with them is said as for others. */
static void test_keys_of_32_bits(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    int32_t small[] = {3, 19, 0}, bad[] = {3, -1}, large[] = {19, 20};
    uint64_t same[] = {3, 19, 0};
    float rows[2][3 * 5], state_of[2][3 * 5];
    frugal_keys narrow = {.table = 1, .keys32 = small, .n = 3}, wide = {.table = 1, .keys = same, .n = 3};
    frugal_keys negative = {.table = 1, .keys32 = bad, .n = 2}, above = {.table = 1, .keys32 = large, .n = 2};
    frugal_keys both = {.table = 1, .keys32 = small, .keys = same, .n = 3};
    rig_open(&r, &d);
    rig_train(&r, 2);
    assert_fails(FRUGAL_ERR_KEY, frugal_announce(r.f, 0, 2, &(frugal_batch){&negative, 1, 0}), "key -1 at 1",
                 "20 rows");
    assert_fails(FRUGAL_ERR_KEY, frugal_announce(r.f, 0, 2, &(frugal_batch){&above, 1, 0}), "key 20 at 1", "20 rows");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_announce(r.f, 0, 2, &(frugal_batch){&both, 1, 0}), "segment 0", "keys32");
    assert_fails(FRUGAL_ERR_KEY, frugal_read_rows(r.f, &negative, rows[0], NULL), "key -1", "20 rows");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_read_rows(r.f, &both, rows[0], NULL), "read_rows", "keys32");
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &narrow, rows[0], state_of[0]));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &wide, rows[1], state_of[1]));
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    assert_memory_equal(state_of[0], state_of[1], sizeof state_of[0]);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    uint64_t given[] = {1, 2, 3}, counts[3];
    assert_int_equal(FRUGAL_OK, frugal_set_counts(r.f, &narrow, given));
    assert_int_equal(FRUGAL_OK, frugal_get_counts(r.f, &wide, counts));
    assert_memory_equal(given, counts, sizeof given);
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &narrow, rows[1], state_of[1])); /* as they are */
    rig_finish(&r, 4);
}

/* The number of gradients, and strides: refused where they do not fit; then the step goes on. */
static void test_gradients_that_do_not_fit(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    float wide[RIG_KEYS * 7];
    frugal_gradients good = rig_gradients(&r, 0), bad = good;
    bad.n = RIG_KEYS - 1;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 0, &bad), "23 gradients", "24 positions");
    bad = good, bad.stride = 4;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 0, &bad), "4 elements", "have 5");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_strided(r.f, 0, 0, wide, 4), "4 elements", "have 5");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_strided(r.f, 0, 0, wide, 0), "lookup_strided", "stride is 0");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_strided(r.f, 0, 0, NULL, 7), "stride of 7", "NULL");
    uint32_t offsets[] = {0, 10, RIG_KEYS};
    frugal_bags bags = {.n_bags = 2, .offsets = offsets, .stride = 3};
    frugal_row_array both = {.rows = wide, .stride = 7, .bags = &bags};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_into(r.f, 0, 0, &both), "stride of 7", "bags");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_into(r.f, 0, 0, NULL), "lookup", "`to` is NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_bags(r.f, 0, 0, &bags, wide), "3 elements", "have 5");
    bags.stride = 6;
    assert_int_equal(FRUGAL_OK, frugal_lookup_bags(r.f, 0, 0, &bags, wide));
    bad = good, bad.by_bag = 1, bad.n = RIG_KEYS;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 0, &bad), "24 gradients", "2 bags");
    assert_int_equal(FRUGAL_OK, frugal_lookup_strided(r.f, 0, 0, wide, 7));
    for (uint32_t i = 0; i < RIG_KEYS; i++) assert_memory_equal(wide + 7 * i, r.looked_up[0] + 5 * i, 20);
    good.n = RIG_KEYS;
    for (uint32_t i = 0; i < RIG_KEYS; i++) memcpy(wide + 7 * i, r.grads[0] + 5 * i, 20);
    good.grads = wide, good.stride = 7;
    assert_int_equal(FRUGAL_OK, frugal_update(r.f, 0, 0, &good));
    rig_update(&r, 1);
    rig_judge(&r, 0);
    rig_finish(&r, 3);
}

/* A scale, and the sum of squares that it may be computed from. */
static void test_scale(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_announce(&r, 0), rig_announce(&r, 1);
    double squares = -1, same = -1;
    frugal_gradients good = rig_gradients(&r, 0), bad = good;
    assert_fails(FRUGAL_ERR_ORDER, frugal_sum_squares(r.f, 0, 0, &good, &squares), "sum_squares", "look up");
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    good = bad = rig_gradients(&r, 0);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_sum_squares(r.f, 0, 0, &good, NULL), "sum_squares", "`squares`");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_sum_squares(r.f, 0, 0, NULL, &squares), "sum_squares", "no gradients");
    bad.grads = NULL;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_sum_squares(r.f, 0, 0, &bad, &squares), "sum_squares", "no gradients");
    bad = good, bad.n = 7;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_sum_squares(r.f, 0, 0, &bad, &squares), "7 gradients", "24 positions");
    bad = good, bad.scale = -1;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 0, &bad), "scale", "-1");
    bad.scale = NAN;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 0, &bad), "scale", "nan");
    assert_true(squares == -1);
    assert_int_equal(FRUGAL_OK, frugal_sum_squares(r.f, 0, 0, &good, &squares));
    assert_int_equal(FRUGAL_OK, frugal_sum_squares(r.f, 0, 0, &good, &same)); /* nothing has changed */
    assert_true(squares > 0 && squares == same);
    good.scale = r.ref.scale = (float)(1 / sqrt(squares));
    assert_int_equal(FRUGAL_OK, frugal_update(r.f, 0, 0, &good));
    bad = rig_gradients(&r, 1), bad.scale = 0.25f;
    assert_fails(FRUGAL_ERR_SETTINGS, frugal_update(r.f, 1, 0, &bad), "scale 0.25 at step 0", "another device fixed");
    bad.scale = good.scale;
    assert_int_equal(FRUGAL_OK, frugal_update(r.f, 1, 0, &bad));
    rig_judge(&r, 0);
    r.ref.scale = 0;
    rig_finish(&r, 3);
}

typedef struct asker { /* a device that notes what it is shown of record_of */
    frugal *f;
    const uint32_t *shown, *asked; /* in the last lookup; the answer to `announced`, if it asks */
    int asks;
} asker;

static void asker_announced(void *device, const frugal_step *step) {
    asker *a = device;
    assert_null(step->records.record_of);
    a->asked = a->asks ? frugal_record_of(a->f, 0, step->step) : NULL;
}
static frugal_status asker_lookup(void *device, const frugal_step *step, void *rows) {
    (void)rows;
    ((asker *)device)->shown = step->records.record_of;
    return FRUGAL_OK;
}
static frugal_status asker_update(void *device, const frugal_step *step, const void *grads) {
    (void)device, (void)step, (void)grads;
    return FRUGAL_OK;
}
static void asker_close(void *device) {
    (void)device;
}

/* record_of is written for the first that asks for it, of each batch anew. */
static void test_record_of(void **state) {
    (void)state;
    asker a = {0};
    frugal_desc d = rig_desc();
    const frugal_device_ops ops = {
        .lookup = asker_lookup, .update = asker_update, .announced = asker_announced, .close = asker_close};
    float rows[4 * 5];
    uint32_t offsets[] = {0, 4};
    const frugal_bags bags = {.n_bags = 1, .offsets = offsets};
    frugal_records r;
    d.devices = 1;
    frugal *f = a.f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, &a));
    for (uint64_t s = 0; s < 12; s++) {
        uint64_t keys[] = {7 + s, 3, 7 + s, 1};
        frugal_keys segment = {.table = 0, .keys = keys, .n = 4};
        a.asks = s % 2 == 1;
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, s, &(frugal_batch){&segment, 1, 0}));
        assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, s, rows));
        assert_ptr_equal(a.asked, a.shown);
        if (s % 3 == 0) {
            assert_int_equal(FRUGAL_OK, frugal_lookup_bags(f, 0, s, &bags, rows));
            assert_non_null(a.shown);
        }
        assert_int_equal(FRUGAL_OK, frugal_get_records(f, 0, s, &r));
        assert_ptr_equal(r.record_of, frugal_record_of(f, 0, s));
        for (uint32_t i = 0; i < 4; i++) assert_int_equal(keys[i], r.rows[r.record_of[i]]);
        assert_int_equal(FRUGAL_OK, frugal_update(f, 0, s, NULL));
    }
    assert_null(frugal_record_of(f, 1, 0));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

static void test_null_buffers(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_get_records(r.f, 0, 0, NULL), "get_records", "NULL");
    frugal_gradients both = {.grads = r.grads[0], .records = 1, .lr = r.lr};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 0, &both), "grads", "records");
    rig_update(&r, 0), rig_update(&r, 1);
    rig_judge(&r, 0);
    frugal_batch empty = {0};
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_announce(r.f, i, 1, &empty)), r.announced[i]++;
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, i, 1, NULL)); /* nothing to write */
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_update(r.f, i, 1, NULL));
    r.step++;
    frugal_get_stats(r.f, NULL);
    rig_finish(&r, 3);
}

static void test_settings(void **state) {
    (void)state;
    rig r = {.lr = 0.25f};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 1);
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    r.lr = 0.5f; /* another step may have another */
    rig_update(&r, 1);
    frugal_gradients other = rig_gradients(&r, 0);
    other.lr = 0.75f;
    assert_fails(FRUGAL_ERR_SETTINGS, frugal_update(r.f, 0, 1, &other), "0.75", "0.5");
    assert_fails(FRUGAL_ERR_SETTINGS, frugal_update(r.f, 0, 1, &other), "0.75", "0.5");
    rig_update(&r, 0);
    rig_judge(&r, 0);
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    frugal_gradients none = {.lr = 99}; /* who brings none has no say */
    assert_int_equal(FRUGAL_OK, frugal_update(r.f, 0, 2, &none));
    rig_update(&r, 1);
    rig_judge(&r, 1);
    rig_finish(&r, 3);
}

static void test_gradients_on_a_read_only_batch(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 1);
    uint64_t keys[2] = {0, 1};
    frugal_keys segment = {.table = 0, .keys = keys, .n = 2};
    frugal_batch batch = {&segment, 1, 1};
    float rows[10];
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_announce(r.f, i, 1, &batch)), r.announced[i]++;
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, i, 1, rows));
    frugal_gradients g = rig_gradients(&r, 0), in_place = {.records = 1, .lr = r.lr};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 1, &g), "read-only", "device 0");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(r.f, 0, 1, &in_place), "read-only", "step 1");
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_update(r.f, i, 1, NULL));
    r.step++;
    rig_finish(&r, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_keys_of_32_bits),
        cmocka_unit_test(test_gradients_that_do_not_fit),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_record_of),
        cmocka_unit_test(test_null_buffers),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_gradients_on_a_read_only_batch),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
