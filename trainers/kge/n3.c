/* The sum of cubes, by row. */
#include "trainers/kge/n3.h"
#include "trainers/kge/row.h"

/* Adds the gradient of weight * sum |x|^3 of one row, complex numbers (half < dim) by their modulus; returns
 * the sum. */
VECTOR_INLINE float kge_regularize_row(uint32_t dim, uint32_t half, const float *restrict row, float weight,
                                       float *restrict to) {
    enum { BLOCK = 256 };
    float term[BLOCK], total = 0;
    for (uint32_t from = 0; from < half; from += BLOCK) {
        uint32_t n = half - from < BLOCK ? half - from : BLOCK;
        const float *x = row + from, *y = row + half + from;
        float *to_x = to + from, *to_y = to + half + from;
        if (half < dim)
            for (uint32_t k = 0; k < n; k++) {
                float modulus = sqrtf(x[k] * x[k] + y[k] * y[k]);
                to_x[k] += 3.0f * weight * modulus * x[k];
                to_y[k] += 3.0f * weight * modulus * y[k];
                term[k] = modulus * modulus * modulus;
            }
        else
            for (uint32_t k = 0; k < n; k++) {
                float modulus = fabsf(x[k]);
                to_x[k] += 3.0f * weight * modulus * x[k];
                term[k] = modulus * modulus * modulus;
            }
        total += kge_sum(n, term);
    }
    return total;
}

VECTOR_CLONES
double kge_regularize(const kge_model *model, uint32_t n, const float *rows, float weight, float *gradient) {
    size_t dim = model->dim;
    uint32_t half = KGE_IS_COMPLEX(model->kind) ? model->dim / 2 : model->dim;
    double total = 0;
    if (weight <= 0) return 0;
    for (uint32_t i = 0; i < n; i++)
        total += kge_regularize_row(model->dim, half, rows + i * dim, weight, gradient + i * dim);
    return total * weight;
}
