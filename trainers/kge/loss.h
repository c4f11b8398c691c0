/* What losses are made of: part of each function that calls them. */
#ifndef KGE_LOSS_H
#define KGE_LOSS_H

#include "trainers/kge/row.h"

/* Softmax of sharpness * score[n] into weight[n], and of one more score where `positive` is given; returns
 * the log of the sum of exponentials, and the positive's share in *share. */
VECTOR_INLINE float kge_softmax(uint32_t n, float sharpness, const float *score, const float *positive, float *weight,
                                float *share) {
    float top = kge_top(n, score, positive ? *positive : score[0]);
    for (uint32_t j = 0; j < n; j++) weight[j] = vector_exp(sharpness * (score[j] - top));
    float own = positive ? vector_exp(sharpness * (*positive - top)) : 0.0f;
    float sum = kge_sum(n, weight) + own, inverse = 1.0f / sum;
    for (uint32_t j = 0; j < n; j++) weight[j] *= inverse;
    *share = own * inverse;
    return sharpness * top + logf(sum);
}

/* Makes distances, negated, of products with a query whose square is given, and has what divides their gradients. */
VECTOR_INLINE void kge_distances(uint32_t n, float square, const float *restrict norm, float *restrict score,
                                 float *restrict inverse) {
    for (uint32_t j = 0; j < n; j++) {
        float d = square + norm[j] - 2.0f * score[j];
        d = sqrtf(d < KGE_SMALLEST_SQUARE ? KGE_SMALLEST_SQUARE : d);
        inverse[j] = 1.0f / d;
        score[j] = -d;
    }
}

/* softplus(x) and its derivative, the logistic function. */
VECTOR_INLINE float kge_softplus(float x, float *slope) {
    float small = vector_exp(x < 0.0f ? x : -x), inverse = 1.0f / (1.0f + small);
    *slope = x < 0.0f ? small * inverse : inverse;
    return (x < 0.0f ? 0.0f : x) + vector_log1p(small);
}

#endif
