/* The area under the ROC curve against counting all pairs, and the log loss against its definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "trainers/clicks/auc.h"
#include "tests/seed.h"
#include "tests/support.h"

enum { MOST = 400 };

static double count_pairs(const float *scores, const float *labels, uint64_t n) {
    double won = 0, pairs = 0;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < n; k++) {
            if (labels[i] != 1 || labels[k] != 0) continue;
            won += scores[i] > scores[k] ? 1 : scores[i] == scores[k] ? 0.5 : 0;
            pairs++;
        }
    return won / pairs;
}

static auc *filled(const float *scores, const float *labels, uint64_t n, uint64_t block) {
    program_error error;
    auc *a;
    assert_int_equal(auc_open(&a, &error), 0);
    for (uint64_t at = 0; at < n; at += block)
        assert_int_equal(auc_add(a, scores + at, labels + at, n - at < block ? n - at : block, &error), 0);
    assert_int_equal(auc_samples(a), n);
    return a;
}

static void test_area_is_the_share_of_pairs(void **state) {
    uint64_t seed = test_seed("test_auc", 7);
    test_random r = {.seed = seed};
    (void)state;
    for (int round = 0; round < 300 / SHORTER; round++) {
        float scores[MOST], labels[MOST];
        uint64_t n = test_between(&r, 2, MOST), values = test_between(&r, 1, 60), ones = 0;
        for (uint64_t i = 0; i < n; i++) {
            scores[i] = (float)test_below(&r, values) - (float)(values / 2);
            scores[i] *= test_chance(&r, 50) ? 1.0f : 0.25f;
            if (test_chance(&r, 2)) scores[i] = test_chance(&r, 50) ? INFINITY : -INFINITY;
            if (test_chance(&r, 5)) scores[i] = -0.0f; /* as large as 0 */
            labels[i] = (float)test_chance(&r, 30);
            ones += labels[i] == 1;
        }
        if (!ones || ones == n) continue;
        program_error error;
        auc *a = filled(scores, labels, n, test_between(&r, 1, n));
        double area = -1;
        assert_int_equal(auc_area(a, &area, &error), 0);
        assert_true(fabs(area - count_pairs(scores, labels, n)) < 1e-12);
        assert_int_equal(auc_area(a, &area, &error), 0); /* again, sorted already */
        assert_true(fabs(area - count_pairs(scores, labels, n)) < 1e-12);
        assert_int_equal(auc_positives(a), ones);
        auc_close(a);
    }
}

static void test_samples_may_follow_an_area(void **state) {
    const float scores[] = {1, -1, 2, 0}, labels[] = {1, 0, 0, 1};
    program_error error;
    double area;
    auc *a = filled(scores, labels, 2, 2);
    (void)state;
    assert_int_equal(auc_area(a, &area, &error), 0);
    assert_true(area == 1);
    assert_int_equal(auc_add(a, scores + 2, labels + 2, 2, &error), 0);
    assert_int_equal(auc_area(a, &area, &error), 0);
    assert_true(area == 0.5);
    auc_close(a);
}

static void test_log_loss(void **state) {
    const float logits[] = {0, 2, -3, 1000, -1000, 1000}, labels[] = {1, 0, 1, 1, 0, 0};
    double wanted = (log(2) + log(1 + exp(2)) + log(1 + exp(3)) + 1000) / 6, loss;
    program_error error;
    auc *a = filled(logits, labels, 6, 1);
    (void)state;
    assert_int_equal(auc_log_loss(a, &loss, &error), 0);
    assert_true(fabs(loss - wanted) < 1e-12 * wanted);
    auc_close(a);
}

static void test_refused(void **state) {
    const float scores[] = {1, NAN}, ones[] = {1, 1}, zeros[] = {0, 0};
    program_error error;
    double value = 7;
    auc *a = filled(scores, ones, 0, 1);
    (void)state;
    assert_int_equal(auc_log_loss(a, &value, &error), -1);
    assert_int_equal(auc_area(a, &value, &error), -1);
    assert_non_null(strstr(error.text, "no label is 1"));
    assert_int_equal(auc_add(a, scores, ones, 2, &error), -1);
    assert_non_null(strstr(error.text, "not a number"));
    assert_int_equal(auc_samples(a), 0);
    assert_int_equal(auc_add(a, scores, ones, 1, &error), 0);
    assert_int_equal(auc_area(a, &value, &error), -1);
    assert_non_null(strstr(error.text, "no label is 0"));
    assert_int_equal(auc_add(a, scores, zeros, UINT64_C(1) << 32, &error), -1);
    assert_non_null(strstr(error.text, "2^32"));
    assert_true(value == 7);
    auc_close(a);
    auc_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_area_is_the_share_of_pairs),
        cmocka_unit_test(test_samples_may_follow_an_area),
        cmocka_unit_test(test_log_loss),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
