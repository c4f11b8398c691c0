/* test_bad_numbers.c - numbers that are NaN, infinite or out of range: refused by name, and nothing changes. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/rig.h"

static const float no_numbers[] = {NAN, -NAN, INFINITY, -INFINITY};
enum { NO_NUMBERS = sizeof no_numbers / sizeof *no_numbers };

/* The message has the status, the name of what was wrong, its value, and `text`. */
static void assert_refused(frugal_status status, const char *name, float value, const char *text) {
    char found[64];
    assert_int_equal(FRUGAL_ERR_ARGUMENT, status);
    snprintf(found, sizeof found, "%g", (double)value);
    const char *message = frugal_message();
    if (strncmp(message, "FRUGAL_ERR_ARGUMENT: ", 21) || !strstr(message, name) || !strstr(message, found) ||
        !strstr(message, text))
        fail_msg("%s = %s, and the message is '%s'", name, found, message);
}

static frugal_status try_open(const frugal_desc *desc) {
    frugal *f;
    frugal_status status = frugal_open(desc, &f);
    if (status != FRUGAL_OK) assert_null(f);
    frugal_close(f);
    return status;
}

typedef struct bounds { /* a float of a struct, and what it may be */
    const char *name;
    size_t at;
    float least, most;
} bounds;

static void check_float(const frugal_desc *desc, void *of, const bounds *b, const char *text) {
    float *number = (float *)(void *)((char *)of + b->at), usual = *number;
    for (int i = 0; i < NO_NUMBERS; i++)
        *number = no_numbers[i], assert_refused(try_open(desc), b->name, no_numbers[i], text);
    *number = b->least, assert_int_equal(FRUGAL_OK, try_open(desc));
    *number = b->most, assert_int_equal(FRUGAL_OK, try_open(desc));
    if (b->least > -FLT_MAX)
        *number = nextafterf(b->least, -INFINITY), assert_refused(try_open(desc), b->name, *number, text);
    if (b->most < FLT_MAX) *number = nextafterf(b->most, INFINITY), assert_refused(try_open(desc), b->name, 1.0f, text);
    *number = usual;
}

static void test_optimizer_settings(void **state) {
    (void)state;
    const float below_one = nextafterf(1, 0);
#define FIELD(name, most)                                                                                              \
    { #name, offsetof(frugal_optimizer, name), 0, most }
    const bounds all[] = {FIELD(eps, FLT_MAX),          FIELD(beta1, below_one),  FIELD(beta2, below_one),
                          FIELD(weight_decay, FLT_MAX), FIELD(lr_scale, FLT_MAX), FIELD(initial_accumulator, FLT_MAX)};
#undef FIELD
    for (int kind = FRUGAL_SGD; kind < FRUGAL_OPTIMIZER_KINDS; kind++) {
        frugal_optimizer own = {.kind = (frugal_optimizer_kind)kind};
        frugal_table tables[2] = {{.rows = 3}, {.rows = 4, .optimizer = &own}};
        frugal_desc d = rig_desc();
        d.tables = tables, d.optimizer.kind = own.kind;
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            check_float(&d, &d.optimizer, &all[i], "0 means");
            check_float(&d, &own, &all[i], "table 1: ");
        }
    }
}

static void test_initializers(void **state) {
    (void)state;
    frugal_table tables[2] = {{.rows = 3}, {.rows = 4, .init = FRUGAL_INIT_UNIFORM}};
    frugal_desc d = rig_desc();
    d.tables = tables;
    const bounds low = {"low", offsetof(frugal_table, low), -FLT_MAX, 0},
                 high = {"high", offsetof(frugal_table, high), 0, FLT_MAX},
                 mean = {"mean", offsetof(frugal_table, mean), -FLT_MAX, FLT_MAX},
                 deviation = {"deviation", offsetof(frugal_table, deviation), 0, FLT_MAX / 6.7f};
    for (int i = 0; i < NO_NUMBERS; i++) {
        tables[1].low = no_numbers[i], assert_refused(try_open(&d), "low", no_numbers[i], "table 1: "),
        tables[1].low = 0;
        tables[1].high = no_numbers[i], assert_refused(try_open(&d), "high", no_numbers[i], "table 1: ");
        tables[1].high = 0;
    }
    tables[1].low = low.least, assert_int_equal(FRUGAL_OK, try_open(&d));
    tables[1].high = FLT_MAX, assert_refused(try_open(&d), "difference", FLT_MAX, "table 1: ");
    tables[1].low = 1, tables[1].high = nextafterf(1, 0), assert_refused(try_open(&d), "low", 1, "above");
    tables[1].high = 1, assert_int_equal(FRUGAL_OK, try_open(&d));
    tables[1].low = 0, tables[1].high = high.most, assert_int_equal(FRUGAL_OK, try_open(&d));
    tables[1] = (frugal_table){.rows = 4, .init = FRUGAL_INIT_NORMAL};
    check_float(&d, &tables[1], &mean, "table 1: ");
    for (int i = 0; i < NO_NUMBERS; i++)
        tables[1].deviation = no_numbers[i], assert_refused(try_open(&d), "deviation", no_numbers[i], "table 1: ");
    tables[1].deviation = nextafterf(0, -1), assert_refused(try_open(&d), "deviation", tables[1].deviation, "negative");
    tables[1].deviation = deviation.most, assert_int_equal(FRUGAL_OK, try_open(&d));
    tables[1].deviation = FLT_MAX / 6.6f, assert_refused(try_open(&d), "deviation", FLT_MAX / 6.6f, "6.67 deviations");
    tables[1].deviation = 5e36f, tables[1].mean = -3e38f, assert_int_equal(FRUGAL_OK, try_open(&d));
    tables[1].deviation = 1e37f, assert_refused(try_open(&d), "mean", -3e38f, "6.67 deviations");
    tables[1] = (frugal_table){4, FRUGAL_INIT_NORMAL, 0, 0.1f, .mean = 0}; /* as version 0.1 had it, by position */
    assert_refused(try_open(&d), "low and high", 0.1f, "mean and deviation");
    tables[1] = (frugal_table){.rows = 4, .init = FRUGAL_INIT_NORMAL, .low = -0.1f};
    assert_refused(try_open(&d), "low and high", -0.1f, "mean and deviation");
    tables[1] = (frugal_table){.rows = 4, .high = NAN}; /* of no initializer */
    assert_refused(try_open(&d), "low and high", 0, "FRUGAL_INIT_UNIFORM");
    tables[1] = (frugal_table){.rows = 4, .mean = NAN};
    assert_refused(try_open(&d), "mean and deviation", NAN, "FRUGAL_INIT_NORMAL");
}

/* The step stays open: the right rate may still come, and the table is the reference's. */
static void test_learning_rates(void **state) {
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, -1, -1e-30f};
    for (int kind = FRUGAL_SGD; kind < FRUGAL_OPTIMIZER_KINDS; kind++) {
        rig r = {.cache = {.cache_rows = 30}};
        frugal_desc d = rig_desc();
        d.optimizer.kind = (frugal_optimizer_kind)kind;
        rig_open(&r, &d);
        rig_train(&r, 2);
        for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
        for (uint32_t i = 0; i < 2; i++) rig_lookup(&r, i);
        frugal_stats before, now;
        frugal_get_stats(r.f, &before);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            frugal_gradients g = rig_gradients(&r, 0);
            g.lr = bad[i];
            assert_refused(frugal_update(r.f, 0, r.step, &g), "lr", bad[i], "0 leaves");
        }
        frugal_get_stats(r.f, &now);
        assert_memory_equal(&before, &now, sizeof now);
        for (uint32_t i = 0; i < 2; i++) rig_update(&r, i);
        rig_judge(&r, 0);
        rig_finish(&r, 3);
    }
}

/* A rate that is finite, and a table's is not. */
static void test_a_scaled_rate_that_overflows(void **state) {
    (void)state;
    rig r = {0};
    frugal_optimizer own = {.kind = FRUGAL_ADAGRAD, .lr_scale = 4};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    tables[1].optimizer = &own;
    frugal_desc d = rig_desc();
    d.tables = tables;
    rig_open(&r, &d);
    for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
    for (uint32_t i = 0; i < 2; i++) rig_lookup(&r, i);
    frugal_gradients g = rig_gradients(&r, 0);
    g.lr = FLT_MAX / 2;
    assert_refused(frugal_update(r.f, 0, 0, &g), "lr_scale", FLT_MAX / 2, "times 4");
    for (uint32_t i = 0; i < 2; i++) rig_update(&r, i);
    rig_judge(&r, 0);
    rig_finish(&r, 3);
}

/* A rate that is finite, and Adam's step size is not: its first one is 30,000 times the rate here. */
static void test_a_step_size_that_overflows(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.optimizer = (frugal_optimizer){.kind = FRUGAL_ADAM, .beta1 = nextafterf(1, 0), .beta2 = 0.5f};
    rig_open(&r, &d);
    for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
    for (uint32_t i = 0; i < 2; i++) rig_lookup(&r, i);
    frugal_gradients g = rig_gradients(&r, 0);
    g.lr = FLT_MAX / 1000;
    assert_refused(frugal_update(r.f, 0, 0, &g), "lr", g.lr, "reduce it");
    for (uint32_t i = 0; i < 2; i++) rig_update(&r, i);
    rig_judge(&r, 0);
    rig_finish(&r, 3);
}

/* Rows that take no step have none that could overflow. */
static void test_a_frozen_table_has_no_rate(void **state) {
    (void)state;
    rig r = {0};
    frugal_optimizer own = {.kind = FRUGAL_ADAM, .lr_scale = FLT_MAX, .frozen = 1};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    tables[1].optimizer = &own;
    frugal_desc d = rig_desc();
    d.tables = tables, d.optimizer.kind = FRUGAL_ADAM;
    rig_open(&r, &d);
    rig_train(&r, 5);
    rig_finish(&r, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer_settings),
        cmocka_unit_test(test_initializers),
        cmocka_unit_test(test_learning_rates),
        cmocka_unit_test(test_a_scaled_rate_that_overflows),
        cmocka_unit_test(test_a_step_size_that_overflows),
        cmocka_unit_test(test_a_frozen_table_has_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
