/* Sums over a row, in the fixed lanes of common/vector.h: part of each function that calls them. */
#ifndef KGE_ROW_H
#define KGE_ROW_H

#include "trainers/common/vector.h"

#include <math.h>
#include <stddef.h>

VECTOR_INLINE float kge_squared_distance(uint32_t n, const float *a, const float *b) {
    vector_half sum[2] = {{0}}, x, y;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int half = 0; half < 2; half++) {
            memcpy(&x, a + i + half * VECTOR_HALF, sizeof x);
            memcpy(&y, b + i + half * VECTOR_HALF, sizeof y);
            x -= y;
            sum[half] += x * x;
        }
    float total = vector_lane_sum(sum);
    for (; i < n; i++) total += (a[i] - b[i]) * (a[i] - b[i]);
    return total;
}

/* Sum of |a - b|; four rows b at once keep the loads of a and the adders busy. */
VECTOR_INLINE void kge_l1_four(uint32_t n, const float *a, const float *b, size_t stride, float *out) {
    vector_half sum[4][2] = {{{0}}}, x, y;
    vector_half_bits bits;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int half = 0; half < 2; half++) {
            memcpy(&x, a + i + half * VECTOR_HALF, sizeof x);
            for (int row = 0; row < 4; row++) {
                memcpy(&y, b + row * stride + i + half * VECTOR_HALF, sizeof y);
                y = x - y;
                memcpy(&bits, &y, sizeof bits);
                bits &= 0x7fffffff;
                memcpy(&y, &bits, sizeof y);
                sum[row][half] += y;
            }
        }
    for (int row = 0; row < 4; row++) {
        out[row] = vector_lane_sum(sum[row]);
        for (uint32_t k = i; k < n; k++) out[row] += fabsf(a[k] - b[row * stride + k]);
    }
}

VECTOR_INLINE float kge_l1(uint32_t n, const float *a, const float *b) {
    float out[4];
    kge_l1_four(n, a, b, 0, out);
    return out[0];
}

VECTOR_INLINE float kge_sum(uint32_t n, const float *a) {
    vector_half sum[2] = {{0}}, x;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int half = 0; half < 2; half++) {
            memcpy(&x, a + i + half * VECTOR_HALF, sizeof x);
            sum[half] += x;
        }
    float total = vector_lane_sum(sum);
    for (; i < n; i++) total += a[i];
    return total;
}

/* The greatest of top and a[n]. */
VECTOR_INLINE float kge_top(uint32_t n, const float *a, float top) {
    vector_half most[2] = {(vector_half){0} + top, (vector_half){0} + top}, x;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int half = 0; half < 2; half++) {
            memcpy(&x, a + i + half * VECTOR_HALF, sizeof x);
            vector_half_bits greater = x > most[half];
            most[half] = (vector_half)(((vector_half_bits)x & greater) | ((vector_half_bits)most[half] & ~greater));
        }
    for (int k = 0; k < VECTOR_LANES; k++) {
        float one = most[k / VECTOR_HALF][k % VECTOR_HALF];
        top = one > top ? one : top;
    }
    for (; i < n; i++) top = a[i] > top ? a[i] : top;
    return top;
}

#endif
