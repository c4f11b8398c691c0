/* Sums over a row, in the fixed lanes of common/vector.h: part of each function that calls them. */
#ifndef KGE_ROW_H
#define KGE_ROW_H

#include "examples/common/vector.h"

#include <math.h>
#include <stddef.h>

VECTOR_INLINE float kge_squared_distance(uint32_t n, const float *a, const float *b) {
    vector_lanes sum = {0}, x, y;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        x -= y;
        sum += x * x;
    }
    float total = vector_lane_sum(&sum);
    for (; i < n; i++) total += (a[i] - b[i]) * (a[i] - b[i]);
    return total;
}

/* Sum of |a - b|; four rows b at once keep the loads of a and the adders busy. */
VECTOR_INLINE void kge_l1_four(uint32_t n, const float *a, const float *b, size_t stride, float *out) {
    vector_lanes sum[4] = {{0}}, x, y;
    vector_lane_bits bits;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        memcpy(&x, a + i, sizeof x);
        for (int row = 0; row < 4; row++) {
            memcpy(&y, b + row * stride + i, sizeof y);
            y = x - y;
            memcpy(&bits, &y, sizeof bits);
            bits &= 0x7fffffff;
            memcpy(&y, &bits, sizeof y);
            sum[row] += y;
        }
    }
    for (int row = 0; row < 4; row++) {
        out[row] = vector_lane_sum(&sum[row]);
        for (uint32_t k = i; k < n; k++) out[row] += fabsf(a[k] - b[row * stride + k]);
    }
}

VECTOR_INLINE float kge_l1(uint32_t n, const float *a, const float *b) {
    float out[4];
    kge_l1_four(n, a, b, 0, out);
    return out[0];
}

VECTOR_INLINE float kge_sum(uint32_t n, const float *a) {
    vector_lanes sum = {0}, x;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        memcpy(&x, a + i, sizeof x);
        sum += x;
    }
    float total = vector_lane_sum(&sum);
    for (; i < n; i++) total += a[i];
    return total;
}

/* The greatest of top and a[n]. */
VECTOR_INLINE float kge_top(uint32_t n, const float *a, float top) {
    vector_lanes most = (vector_lanes){0} + top, x;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        memcpy(&x, a + i, sizeof x);
        vector_lane_bits greater = x > most;
        most = (vector_lanes)(((vector_lane_bits)x & greater) | ((vector_lane_bits)most & ~greater));
    }
    for (int k = 0; k < VECTOR_LANES; k++) top = most[k] > top ? most[k] : top;
    for (; i < n; i++) top = a[i] > top ? a[i] : top;
    return top;
}

#endif
