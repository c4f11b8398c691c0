/* test_kge_tiny_weights.c - no factor of a matrix product is subnormal: neither a weight that is to be 0, of a negative
 * that is the answer itself, nor one that sharp losses make as small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#include "trainers/common/vector.h"
#include "trainers/kge/sample.h"
#include "tests/unit/trainers/kge_batch.h"

enum { DIM = 8, QUERIES = 2 * TRIPLES };

/* Rows of so large numbers that scores, and with them the exponents, have every size. */
static void check_factors(const kge_model *model, kge_batch batch, float size) {
    kge_workspace work;
    program_error error;
    uint32_t zeros = 0, columns = batch.entities ? batch.entities : batch.negatives;
    fill_batch(&batch);
    assert_int_equal(kge_workspace_open(&work, model, &batch, &error), 0);
    size_t n = (size_t)kge_batch_positions(model, &batch) * model->dim;
    float *rows = malloc(n * sizeof *rows), *grads = malloc(n * sizeof *grads);
    for (size_t i = 0; i < n; i++) rows[i] = size * noise(i);
    assert_true(isfinite(kge_gradients(model, &batch, rows, grads, &work)));
    for (uint32_t i = 0; i < QUERIES * columns; i++) {
        assert_true(fpclassify(work.score[i]) != FP_SUBNORMAL);
        zeros += fpclassify(work.score[i]) == FP_ZERO;
    }
    for (uint32_t i = 0; i < QUERIES && !batch.entities; i++) assert_true(fpclassify(work.positive[i]) != FP_SUBNORMAL);
    if (!batch.entities) assert_true(zeros > 0); /* some negatives are answers */
    kge_batch_close(&batch);
    kge_workspace_close(&work);
    free(rows);
    free(grads);
}

static void no_factor_is_subnormal(void **state) {
    (void)state;
    for (int kind = 0; kind < KGE_MODELS; kind++)
        for (int loss = 0; loss < KGE_LOSSES; loss++)
            for (float size = 1; size < 2000; size *= 1.2f) {
                kge_model model = {.kind = kind, .loss = loss, .dim = DIM, .margin = 3, .temperature = 3};
                kge_batch sampled = {.triples = TRIPLES, .chunk = TRIPLES, .negatives = NEGATIVES, .divisor = 1000};
                check_factors(&model, sampled, size);
                if (kind == KGE_TRANSE_L1 || loss != KGE_SOFTMAX) continue;
                kge_batch all = sampled;
                all.entities = ENTITIES, all.negatives = 0;
                model.scoring = KGE_1VSALL;
                check_factors(&model, all, size);
            }
}

static void exponentials_end_at_zero(void **state) {
    (void)state;
    for (float x = -200; x < 88; x += 0.01f) {
        float wanted = expf(x), found = vector_exp(x);
        assert_true(fpclassify(found) != FP_SUBNORMAL);
        if (x < -86)
            assert_true(found == 0);
        else
            assert_true(fabsf(found - wanted) <= 4e-7f * wanted);
    }
    assert_true(vector_exp(-1e30f) == 0 && vector_exp(-INFINITY) == 0 && isnan(vector_exp(NAN)));
    assert_true(vector_normal(1e-39f) == 0 && vector_normal(-1e-39f) == 0 && isnan(vector_normal(NAN)));
    assert_true(vector_normal(-2e-38f) == -2e-38f && vector_normal(INFINITY) == INFINITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_factor_is_subnormal),
        cmocka_unit_test(exponentials_end_at_zero),
    };
    openblas_set_num_threads(1); /* as kge does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
