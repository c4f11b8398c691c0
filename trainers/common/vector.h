/* Loops over floats that compilers turn into vector code, with bits that do not depend on the vector width:
 * sums run in sixteen lanes that are added in one order, and there are no library calls inside loops. */
#ifndef VECTOR_H
#define VECTOR_H

#include <float.h>
#include <stdint.h>
#include <string.h>

/* Code for newer processors, chosen at run time: by levels of the instruction set, because gcc takes the clone for a
 * named processor on that processor alone. The choice would run before the sanitizers are ready, so sanitized
 * builds do not have it. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
#define VECTOR_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define VECTOR_CLONES
#endif

/* Helpers become part of each clone that calls them, and so use its instructions. */
#define VECTOR_INLINE static inline __attribute__((always_inline))

#define VECTOR_LANES 16

/* They are two vectors of eight: with AVX2, gcc keeps these in registers, but it stores vectors of sixteen in every
 * round of a loop, which took twenty times as long in a sum of 400 floats. */
#define VECTOR_HALF (VECTOR_LANES / 2)
typedef float vector_half __attribute__((vector_size(4 * VECTOR_HALF)));
typedef int32_t vector_half_bits __attribute__((vector_size(4 * VECTOR_HALF)));

/* The sum of the lanes, always in the same order. */
VECTOR_INLINE float vector_lane_sum(const vector_half lanes[2]) {
    float value[VECTOR_LANES];
    memcpy(value, lanes, sizeof value);
    for (int width = VECTOR_HALF; width; width /= 2)
        for (int i = 0; i < width; i++) value[i] += value[i + width];
    return value[0];
}

/* The sum of a[i] * b[i]. */
VECTOR_INLINE float vector_dot(uint32_t n, const float *a, const float *b) {
    vector_half sum[2] = {{0}}, x, y;
    uint32_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES)
        for (int half = 0; half < 2; half++) {
            memcpy(&x, a + i + half * VECTOR_HALF, sizeof x);
            memcpy(&y, b + i + half * VECTOR_HALF, sizeof y);
            sum[half] += x * y;
        }
    float total = vector_lane_sum(sum);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

/* x, but 0 where it is subnormal: too little to change a row, and processors take many times as long for its products.
 * For factors of matrix products. */
VECTOR_INLINE float vector_normal(float x) {
    return __builtin_fabsf(x) < FLT_MIN ? 0.0f : x;
}

/* Below this, exp(x) is 0 here, so that what is to have no weight has none. */
#define VECTOR_LEAST_EXPONENT (-86.0f)

/* exp(x) to about 2 ulp, 0 below -86, and x at most 88: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. */
VECTOR_INLINE float vector_exp(float x) {
    int is_zero = x < VECTOR_LEAST_EXPONENT;
    x = is_zero ? VECTOR_LEAST_EXPONENT : x;
    x = x > 88.0f ? 88.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer in the low bits */
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)bits << 23) + 0x3f800000;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return is_zero ? 0.0f : p * scale;
}

/* log(1 + u) for u in [0, 1], to about 1e-7: the series of 2 atanh(u / (2 + u)). */
VECTOR_INLINE float vector_log1p(float u) {
    float z = u / (2.0f + u), zz = z * z;
    float p = 1.0f / 13.0f;
    p = p * zz + 1.0f / 11.0f;
    p = p * zz + 1.0f / 9.0f;
    p = p * zz + 1.0f / 7.0f;
    p = p * zz + 1.0f / 5.0f;
    p = p * zz + 1.0f / 3.0f;
    return 2.0f * (z + z * zz * p);
}

#endif
