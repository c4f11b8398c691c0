/* test_step.c - steps of any shape: gradients in place, batches of any size, no learning rate, a late first step. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/rig.h"

/* Every position has its record. */
static void assert_record_of(const frugal_records *r) {
    for (uint32_t u = 0, p = 0; u < r->n_unique; u++)
        for (; p < r->start[u + 1]; p++) assert_int_equal(u, r->record_of[r->order[p]]);
}

/* Rows are looked up into the records of the staging block, and the sums of their gradients written there. */
static void test_gradients_in_place(void **state) {
    rig r = {.cache = {.cache_rows = (uint64_t)(intptr_t)*state}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    for (int s = 0; s < 8; s++) {
        frugal_records records;
        for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, i, r.step, NULL));
            assert_int_equal(FRUGAL_OK, frugal_get_records(r.f, i, r.step, &records));
            assert_int_equal(RIG_KEYS, records.n);
            assert_record_of(&records);
            for (uint32_t u = 0; u < records.n_unique; u++)
                assert_memory_equal(records.block + u * records.stride, r.ref.weights + records.rows[u] * 5, 20);
            rig_lookup(&r, i); /* again, by position: the gradients depend on it */
            for (uint32_t u = 0; u < records.n_unique; u++)
                frugal_sum_positions(records.block + u * records.stride, r.grads[i], 5, 5,
                                     records.order + records.start[u], records.start[u + 1] - records.start[u]);
            frugal_gradients in_place = {.records = 1, .lr = r.lr};
            assert_int_equal(FRUGAL_OK, frugal_update(r.f, i, r.step, &in_place));
        }
        rig_judge(&r, 0);
    }
    rig_finish(&r, 3);
}

/* A few steps in which each device brings n keys of one table, an empty segment first. */
static void check_shape(uint64_t rows, uint32_t devices, uint32_t n, int defer) {
    frugal_table table = {.rows = rows};
    frugal_optimizer adam = {.kind = FRUGAL_ADAM, .eps = 1e-6f, .beta1 = 0.8f, .beta2 = 0.95f};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 1, .devices = devices, .max_keys = n, .defer = defer};
    d.optimizer = adam;
    reference ref = {.rows = rows, .dim = 1, .devices = devices, .optimizer = REFERENCE_ADAM};
    ref.eps = adam.eps, ref.beta1 = adam.beta1, ref.beta2 = adam.beta2;
    reference_batch *batches = calloc(devices, sizeof *batches);
    uint32_t *numbers = calloc((size_t)devices * n, sizeof *numbers);
    float *grads = calloc((size_t)devices * n, sizeof *grads), *found = calloc(n, sizeof *found);
    uint64_t *keys = calloc(n, sizeof *keys);
    frugal_keys segments[2] = {{.table = 0, .keys = NULL, .n = 0}, {.table = 0, .keys = keys, .n = n}};
    frugal_batch batch = {segments, 2, 0};
    frugal *f = open_or_fail(&d);
    assert_true(reference_open(&ref, 0));
    for (uint32_t i = 0; i < devices; i++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, i, NULL));
    for (uint64_t s = 0; s < 4; s++) {
        for (uint32_t i = 0; i < devices; i++) {
            batches[i] = (reference_batch){numbers + (size_t)i * n, n, grads + (size_t)i * n};
            for (uint32_t k = 0; k < n; k++) {
                keys[k] = numbers[(size_t)i * n + k] = (uint32_t)(test_mix3(s, i, k) % rows);
                grads[(size_t)i * n + k] = (float)test_unit(test_mix3(i, s, k)) - 0.5f;
            }
            frugal_status status;
            while ((status = frugal_try_announce(f, i, s, &batch)) == FRUGAL_AGAIN)
                if (!frugal_help(f)) fail_msg("step %u is not legal, and there is nothing to do", (unsigned)s);
            assert_int_equal(FRUGAL_OK, status);
        }
        for (uint32_t i = 0; i < devices; i++) {
            frugal_gradients g = {.grads = grads + (size_t)i * n, .lr = 0.125f};
            assert_int_equal(FRUGAL_OK, frugal_lookup(f, i, s, NULL)); /* into the block; then by position: */
            assert_int_equal(FRUGAL_OK, frugal_lookup(f, i, s, found));
            for (uint32_t k = 0; k < n; k++)
                if (memcmp(&found[k], &ref.weights[numbers[(size_t)i * n + k]], 4)) fail_msg("row of position %u", k);
            assert_int_equal(FRUGAL_OK, frugal_update(f, i, s, &g));
        }
        reference_step(&ref, s, 0.125f, batches);
    }
    const void *view;
    uint64_t stride;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_view(f, 0, &view, &stride));
    for (uint64_t row = 0; row < rows; row++)
        assert_memory_equal((const float *)view + row * stride, &ref.weights[row], 4);
    frugal_close(f);
    reference_close(&ref);
    free(batches), free(numbers), free(grads), free(found), free(keys);
}

static void test_shapes(void **state) {
    (void)state;
    for (int defer = 0; defer < 2; defer++) {
        check_shape(1, 1, 1, defer);          /* one row needs no sorting */
        check_shape(1, 3, 5, defer);          /* of which there are many */
        check_shape(100000, 2, 20000, defer); /* wide digits, many pieces */
        check_shape(6, 254, 6, defer);        /* every row is in nearly every batch */
    }
}

static void test_learning_rate_zero(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    float before[60 * 5];
    memcpy(before, r.ref.weights, sizeof(before));
    frugal_gradients g = {0};
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    for (uint32_t i = 0; i < 2; i++) {
        g.grads = r.grads[i];
        assert_int_equal(FRUGAL_OK, frugal_update(r.f, i, 0, &g));
    }
    r.lr = 0;
    rig_judge(&r, 0);
    assert_memory_equal(before, r.ref.weights, sizeof(before));
    rig_compare(&r); /* Adagrad's state has moved all the same */
    r.lr = 0.1f;
    rig_finish(&r, 3);
}

static void test_late_first_steps(void **state) {
    (void)state;
    static const uint64_t steps[] = {1, 63, 64, 65535, UINT64_C(1) << 32, (UINT64_C(1) << 40) + 5};
    for (unsigned k = 0; k < sizeof(steps) / sizeof(*steps); k++)
        for (int i = 0; i < 4; i += 3) {
            rig r = {.cache = {.cache_rows = 30}};
            frugal_desc d = rig_desc();
            d.first_step = steps[k], d.optimizer.kind = rig_optimizers[i];
            rig_open(&r, &d);
            rig_finish(&r, 10);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("test_gradients_in_place", test_gradients_in_place, 0),
        CASE("test_gradients_in_place, with caches", test_gradients_in_place, 40),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_learning_rate_zero),
        cmocka_unit_test(test_late_first_steps),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
