/* test_init.c - first values of rows: the same for any number of threads, as random as asked, or the caller's. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/rig.h"

static void test_same_table_for_all_thread_counts(void **state) {
    (void)state;
    enum { ROWS = 1001, DIM = 7 };
    static float first[2 * ROWS * DIM], other[2 * ROWS * DIM];
    uint32_t counts[] = {1, 2, 3, 7, 64, 200};
    frugal_table tables[] = {{.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -2, .high = 3},
                             {.rows = ROWS, .init = FRUGAL_INIT_NORMAL, .mean = 1, .deviation = 2}};
    for (int i = 0; i < 6; i++) {
        frugal_desc d = {
            .tables = tables, .n_tables = 2, .dim = DIM, .max_keys = 1, .seed = 99, .init_threads = counts[i]};
        frugal *f = open_or_fail(&d);
        read_table(f, 0, other, NULL);
        read_table(f, 1, other + ROWS * DIM, NULL);
        if (i == 0) memcpy(first, other, sizeof(first));
        assert_memory_equal(first, other, sizeof(first));
        frugal_close(f);
    }
    frugal_desc d = {.tables = tables, .n_tables = 2, .dim = DIM, .max_keys = 1, .seed = 100};
    frugal *f = open_or_fail(&d);
    read_table(f, 0, other, NULL);
    assert_memory_not_equal(first, other, sizeof(float) * ROWS * DIM);
    frugal_close(f);
}

typedef struct moments {
    double mean, variance, skew, kurtosis, low, high, neighbours; /* correlation of one value with the next */
} moments;

static moments moments_of(const float *x, size_t n) {
    moments m = {.low = (double)x[0], .high = (double)x[0]};
    for (size_t i = 0; i < n; i++) m.mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - m.mean;
        m.variance += d * d / (double)n;
        m.skew += d * d * d / (double)n;
        m.kurtosis += d * d * d * d / (double)n;
        if (i > 0) m.neighbours += d * ((double)x[i - 1] - m.mean) / (double)n;
        if ((double)x[i] < m.low) m.low = (double)x[i];
        if ((double)x[i] > m.high) m.high = (double)x[i];
    }
    m.skew /= pow(m.variance, 1.5);
    m.kurtosis /= m.variance * m.variance;
    m.neighbours /= m.variance;
    return m;
}

/* The seed is fixed, so the test is not random; the bounds are five standard errors. */
static void test_distributions(void **state) {
    (void)state;
    enum { ROWS = 20000, DIM = 9, N = ROWS * DIM };
    static float x[N];
    frugal_table tables[] = {{.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -0.5f, .high = 1.5f},
                             {.rows = ROWS, .init = FRUGAL_INIT_NORMAL, .mean = 3, .deviation = 0.25f}};
    frugal_desc d = {.tables = tables, .n_tables = 2, .dim = DIM, .max_keys = 1, .seed = 5};
    frugal *f = open_or_fail(&d);
    double root = sqrt((double)N);
    read_table(f, 0, x, NULL);
    moments u = moments_of(x, N);
    assert_true(fabs(u.mean - 0.5) < 5 * sqrt(1.0 / 3) / root);
    assert_true(fabs(u.variance - 1.0 / 3) < 5 * sqrt(4.0 / 45) / root);
    assert_true(fabs(u.kurtosis - 1.8) < 0.03 && fabs(u.skew) < 0.03);
    assert_true(u.low >= -0.5 && u.low < -0.499 && u.high < 1.5 && u.high > 1.499);
    assert_true(fabs(u.neighbours) < 5 / root);
    read_table(f, 1, x, NULL);
    moments n = moments_of(x, N);
    assert_true(fabs(n.mean - 3) < 5 * 0.25 / root);
    assert_true(fabs(n.variance - 0.0625) < 5 * 0.0625 * sqrt(2.0) / root);
    assert_true(fabs(n.skew) < 5 * sqrt(6.0) / root && fabs(n.kurtosis - 3) < 5 * sqrt(24.0) / root);
    assert_true(fabs(n.neighbours) < 5 / root);
    assert_true(n.low < 3 - 3.5 * 0.25 && n.high > 3 + 3.5 * 0.25 && n.low > 3 - 8 * 0.25 && n.high < 3 + 8 * 0.25);
    frugal_close(f);
}

static void test_each_table_has_its_initializer(void **state) {
    (void)state;
    enum { DIM = 3 };
    float *source = malloc(sizeof(float) * 11 * DIM), rows[20 * DIM];
    for (int i = 0; i < 11 * DIM; i++) source[i] = (float)i + 0.5f;
    frugal_table tables[] = {{.rows = 4},
                             {.rows = 11, .init = FRUGAL_INIT_COPY, .source = source},
                             {.rows = 5, .init = FRUGAL_INIT_UNIFORM, .low = 7, .high = 8},
                             {.rows = 2, .init = FRUGAL_INIT_ZERO}};
    test_counter counter = {0}; /* whose memory is not zero */
    frugal_desc d = {.tables = tables,
                     .n_tables = 4,
                     .dim = DIM,
                     .max_keys = 1,
                     .allocate = test_allocate,
                     .release = test_release,
                     .user = &counter,
                     .init_threads = 3};
    frugal *f = open_or_fail(&d);
    for (int i = 0; i < 11 * DIM; i++) source[i] = -1; /* read during open only */
    free(source);
    read_table(f, 0, rows, NULL);
    for (int i = 0; i < 4 * DIM; i++) assert_true(rows[i] == 0);
    read_table(f, 1, rows, NULL);
    for (int i = 0; i < 11 * DIM; i++) assert_true(rows[i] == (float)i + 0.5f);
    read_table(f, 2, rows, NULL);
    for (int i = 0; i < 5 * DIM; i++) assert_true(rows[i] >= 7 && rows[i] < 8);
    read_table(f, 3, rows, NULL);
    for (int i = 0; i < 2 * DIM; i++) assert_true(rows[i] == 0);
    frugal_close(f);
}

static void test_first_value_of_the_state(void **state) {
    (void)state;
    enum { ROWS = 50, DIM = 5 };
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        frugal_table table = {.rows = ROWS};
        float s[ROWS * 2 * DIM];
        frugal_desc d = {.tables = &table,
                         .n_tables = 1,
                         .dim = DIM,
                         .max_keys = 1,
                         .optimizer = {.kind = rig_optimizers[i], .initial_accumulator = 0.75f}};
        frugal *f = open_or_fail(&d);
        read_table(f, 0, NULL, s);
        frugal_optimizer_kind kind = rig_optimizers[i];
        float expected = kind == FRUGAL_ADAGRAD || kind == FRUGAL_ROWWISE_ADAGRAD ? 0.75f : 0;
        for (uint32_t k = 0; k < ROWS * frugal_state_floats(kind, DIM); k++)
            if (s[k] != expected)
                fail_msg("optimizer %d: state starts with %g, not %g", i, (double)s[k], (double)expected);
        frugal_close(f);
    }
}

/* Each table's own, whatever the threads that make it. */
static void test_first_value_of_each_tables_state(void **state) {
    (void)state;
    enum { DIM = 3, ROWS = 20 + 7 + 13 };
    for (int i = 0; i < 2 * FRUGAL_OPTIMIZER_KINDS; i++) {
        frugal_optimizer own = {.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS], .initial_accumulator = 0.25f},
                         none = {.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS]};
        frugal_table tables[] = {{.rows = 20, .optimizer = &own}, {.rows = 7}, {.rows = 13, .optimizer = &none}};
        uint32_t floats = frugal_state_floats(own.kind, DIM);
        float s[ROWS * 2 * DIM];
        frugal_desc d = {.tables = tables,
                         .n_tables = 3,
                         .dim = DIM,
                         .max_keys = 1,
                         .init_threads = i < FRUGAL_OPTIMIZER_KINDS ? 1 : 7};
        d.optimizer = (frugal_optimizer){.kind = own.kind, .initial_accumulator = 0.75f};
        frugal *f = open_or_fail(&d);
        for (uint32_t t = 0, at = 0; t < 3; at += (uint32_t)tables[t++].rows) read_table(f, t, NULL, s + at * floats);
        for (uint32_t k = 0; k < ROWS * floats; k++) {
            int starts = own.kind == FRUGAL_ADAGRAD || own.kind == FRUGAL_ROWWISE_ADAGRAD;
            float expected = !starts ? 0 : k < 20 * floats ? 0.25f : k < 27 * floats ? 0.75f : 0;
            if (s[k] != expected)
                fail_msg("optimizer %d, float %u: %g, not %g", (int)own.kind, k, (double)s[k], (double)expected);
        }
        frugal_close(f);
    }
}

static void test_callers_matrix_is_zeroed_if_asked(void **state) {
    (void)state;
    float m[2 * 3] = {1, 2, 3, 4, 5, 6}, zeros[3] = {0, 0, 0};
    frugal_table tables[2] = {{.rows = 1, .init = FRUGAL_INIT_ZERO}, {.rows = 1}};
    frugal_desc d = {.tables = tables, .n_tables = 2, .dim = 3, .max_keys = 2, .weights = m};
    frugal_close(open_or_fail(&d));
    assert_memory_equal(zeros, m, sizeof(zeros));
    assert_true(m[3] == 4 && m[4] == 5 && m[5] == 6);
}

/* Initializers are for the weights: optimizer state that the caller brings along stays what it is. */
static void test_callers_state_is_kept(void **state) {
    (void)state;
    float m[2 * 3] = {0}, s[2 * 3] = {1, 2, 3, 4, 5, 6}, kept[2 * 3];
    frugal_table table = {.rows = 2, .init = FRUGAL_INIT_UNIFORM, .low = 7, .high = 8};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 3, .max_keys = 2, .weights = m, .state = s};
    d.optimizer = (frugal_optimizer){.kind = FRUGAL_ADAGRAD, .initial_accumulator = 0.5f};
    memcpy(kept, s, sizeof(s));
    frugal_close(open_or_fail(&d));
    assert_memory_equal(kept, s, sizeof(s));
    for (int i = 0; i < 6; i++) assert_true(m[i] >= 7 && m[i] <= 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_table_for_all_thread_counts),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_each_table_has_its_initializer),
        cmocka_unit_test(test_first_value_of_the_state),
        cmocka_unit_test(test_first_value_of_each_tables_state),
        cmocka_unit_test(test_callers_matrix_is_zeroed_if_asked),
        cmocka_unit_test(test_callers_state_is_kept),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
