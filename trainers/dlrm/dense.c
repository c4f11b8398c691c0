/* Sums of dense gradients, and steps of dense layers. */
#include "trainers/dlrm/dense.h"
#include "trainers/common/vector.h"
#include "src/arithmetic.h"

#include <math.h>

VECTOR_CLONES void dlrm_dense_add(float *sum, const float *a, const float *restrict b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

VECTOR_CLONES static void dlrm_sgd(float *restrict w, const float *restrict g, uint64_t n, float lr) {
    for (uint64_t i = 0; i < n; i++) w[i] = frugal_sgd(w[i], g[i], lr);
}
VECTOR_CLONES static void dlrm_adagrad(float *restrict w, float *restrict s, const float *restrict g, uint64_t n,
                                       float lr) {
    for (uint64_t i = 0; i < n; i++) w[i] = frugal_adagrad(w[i], &s[i], g[i], lr, 1e-10f);
}
VECTOR_CLONES static void dlrm_adam(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
                                    uint64_t n, float step_size) {
    for (uint64_t i = 0; i < n; i++)
        w[i] = frugal_adam(w[i], &m[i], &v[i], g[i], step_size, 1.0f - 0.9f, 1.0f - 0.999f, 1e-8f);
}

void dlrm_dense_step(dlrm_dense *dense, float *w, float *s, uint64_t parameters, const float *g, uint64_t n, float lr) {
    if (dense->kind == FRUGAL_ADAM) {
        dense->power1 *= 0.9, dense->power2 *= 0.999;
        float step_size = (float)((double)lr * sqrt(1 - dense->power2) / (1 - dense->power1));
        dlrm_adam(w, s, s + parameters, g, n, step_size);
    } else if (dense->kind == FRUGAL_ADAGRAD)
        dlrm_adagrad(w, s, g, n, lr);
    else
        dlrm_sgd(w, g, n, lr);
}
