/* arithmetic.h - fused operations and the optimizers' formulas, written once for C and CUDA, so that host and GPU agree
 * bit by bit. It is for all code that computes with rows: the host store, devices, and a trainer that applies the same
 * optimizers to parameters of its own.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * Every product that is added here is written as a fused multiply-add; division and square root are IEEE's; nothing is
 * reassociated. Compile with -ffp-contract=off (nvcc: --fmad=false) and without -ffast-math and its parts: the gradient
 * of a weighted bag (frugal_sum_bags) is a product that is rounded before it is added, and must not be fused.
 * frugal_open fails if the code was compiled in a way that changes bits.
 *
 * Contents: operations (frugal_fma, _div, _sqrt, _add, _mul); one element of an optimizer's step; FRUGAL_OPTIMIZERS;
 * weights of 16 bits (frugal_widen_bf16, frugal_nearest_bf16, frugal_round_bf16, the same of fp16, frugal_pair_noise).
 */
#ifndef FRUGAL_ARITHMETIC_H
#define FRUGAL_ARITHMETIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "frugal: -ffast-math changes results; compile this file without it"
#endif
#ifdef __CUDACC__
#define FRUGAL_INLINE __host__ __device__ __attribute__((unused)) static inline
#else
#define FRUGAL_INLINE static inline
#endif
#ifdef __CUDA_ARCH__
#define frugal_fma(a, b, c) __fmaf_rn(a, b, c)
#define frugal_div(a, b)    __fdiv_rn(a, b)
#define frugal_sqrt(a)      __fsqrt_rn(a)
#define frugal_add(a, b)    __fadd_rn(a, b)
#define frugal_mul(a, b)    __fmul_rn(a, b)
#else
#define frugal_fma(a, b, c) fmaf(a, b, c)
#define frugal_div(a, b)    ((a) / (b))
#define frugal_sqrt(a)      sqrtf(a)
#define frugal_add(a, b)    ((a) + (b))
#define frugal_mul(a, b)    ((a) * (b))
#endif

/* PyTorch, torch.nn.utils.clip_grad_norm_, of one row: at most clip_norm / (norm + 1e-6). `squares` is the sum of g * g
 * over the row, as for frugal_rowwise_adagrad; the gradient is also to be multiplied by `scale`. Returns both factors
 * as one. */
FRUGAL_INLINE float frugal_clip(float squares, float scale, float clip_norm) {
    float norm = frugal_mul(frugal_sqrt(squares), scale);
    float factor = frugal_div(clip_norm, frugal_add(norm, 1e-6f));
    return factor < 1.0f ? frugal_mul(scale, factor) : scale;
}
/* g + weight_decay * w, coupled as in PyTorch's SGD and Adagrad. */
FRUGAL_INLINE float frugal_decay(float g, float w, float weight_decay) {
    return weight_decay != 0.0f ? frugal_fma(weight_decay, w, g) : g;
}
/* PyTorch, torch.optim.SGD without momentum: w -= lr * g. */
FRUGAL_INLINE float frugal_sgd(float w, float g, float lr) {
    return frugal_fma(-lr, g, w);
}
/* PyTorch, torch.optim.Adagrad without lr_decay: s += g * g; w -= lr * g / (sqrt(s) + eps). */
FRUGAL_INLINE float frugal_adagrad(float w, float *s, float g, float lr, float eps) {
    *s = frugal_fma(g, g, *s);
    return frugal_fma(-lr, frugal_div(g, frugal_add(frugal_sqrt(*s), eps)), w);
}
/* FBGEMM, rowwise_adagrad: s += mean of g * g over the row; w -= lr / (sqrt(s) + eps) * g. Returns the factor of g.
 * `squares` is the sum of g * g over the row: in 32 lanes (element i in lane i mod 32), which a halving tree adds. */
FRUGAL_INLINE float frugal_rowwise_adagrad(float *s, float squares, float dim, float lr, float eps) {
    *s = frugal_add(*s, frugal_div(squares, dim));
    return frugal_div(lr, frugal_add(frugal_sqrt(*s), eps));
}
/* PyTorch, torch.optim.SparseAdam: m += (g - m)(1 - b1); v += (g g - v)(1 - b2); w -= step_size m / (sqrt(v) + eps). */
FRUGAL_INLINE float frugal_adam(float w, float *m, float *v, float g, float step_size, float one_minus_beta1,
                                float one_minus_beta2, float eps) {
    *m = frugal_fma(frugal_add(g, -*m), one_minus_beta1, *m);
    *v = frugal_fma(frugal_fma(g, g, -*v), one_minus_beta2, *v);
    return frugal_fma(-step_size, frugal_div(*m, frugal_add(frugal_sqrt(*v), eps)), w);
}

/* PyTorch, torch.optim.AdamW, before Adam's step: w -= lr * weight_decay * w. `decay`: lr * weight_decay. */
FRUGAL_INLINE float frugal_shrink(float w, float decay) {
    return decay != 0.0f ? frugal_fma(-decay, w, w) : w;
}

/* What is known of each optimizer, in the order of frugal_optimizer_kind: its word in options, its name in messages;
 * floats of state that each element has, and that the row has besides; the eps that 0 stands for; 1 if it has betas; 1
 * if its state begins with initial_accumulator. */
#define FRUGAL_OPTIMIZERS(X)                                                                                           \
    X(SGD, "sgd", "SGD", 0, 0, 1e-8f, 0, 0)                                                                            \
    X(ADAGRAD, "adagrad", "Adagrad", 1, 0, 1e-10f, 0, 1)                                                               \
    X(ROWWISE_ADAGRAD, "rowwise-adagrad", "row-wise Adagrad", 0, 1, 1e-8f, 0, 1)                                       \
    X(ADAM, "adam", "Adam", 2, 0, 1e-8f, 1, 0)                                                                         \
    X(ADAMW, "adamw", "AdamW", 2, 0, 1e-8f, 1, 0)

/* Their words, or kinds, as elements of an array; their number. */
#define FRUGAL_OPTIMIZER_WORD(kind, word, ...) word,
#define FRUGAL_OPTIMIZER_KIND(kind, ...)       FRUGAL_##kind,
#define FRUGAL_OPTIMIZER_ONE(...)              +1
enum { FRUGAL_OPTIMIZER_KINDS = FRUGAL_OPTIMIZERS(FRUGAL_OPTIMIZER_ONE) };

/* WEIGHTS OF 16 BITS (frugal_desc.rows_as). bf16 is the upper half of an IEEE float; fp16 is IEEE's binary16. Every
 * weight of 16 bits is a float, so widening is exact. All below is integer arithmetic on the bits of floats, except for
 * two exact operations, so no mode of the processor changes it (rounding, or flushing of subnormal numbers).
 *
 * A float that is not a weight of 16 bits lies between two neighbours. Nearest takes the nearer one, and in the middle
 * the even one, as IEEE does. Stochastic takes the one further from 0 with a probability that is the distance from the
 * other one, in units of 2^-16 of the distance between both, so that small steps are lost one by one and add up on the
 * average. The 16 random bits are a function of (seed, row, step, element), and of nothing that may vary: so the host
 * row and copies of it round alike, on every processor and GPU.
 *
 * Of both ways: what is a weight of 16 bits stays what it is, with its sign, also 0 and infinity. NaN becomes one NaN
 * (0x7fc0, 0x7e00), also if its upper bits are those of infinity. A float beyond the largest weight (fp16: 65504) is
 * rounded between that and the next power of two, which is infinity; saves and frugal_verify tell of it. */

FRUGAL_INLINE uint32_t frugal_bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
FRUGAL_INLINE float frugal_float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* splitmix64's finalizer (Steele, Lea, Flood: OOPSLA 2014). */
FRUGAL_INLINE uint64_t frugal_mix(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}
/* Random bits, in three stages: of a step (frugal_hyper.noise), of a row in it, of elements 2 * pair (the lower half)
 * and 2 * pair + 1 of that row (the upper half). The last one is a 32-bit hash (lowbias32 of hash-prospector), because
 * each element pays for it. */
FRUGAL_INLINE uint64_t frugal_step_noise(uint64_t seed, uint64_t step) {
    return frugal_mix(seed ^ frugal_mix(step));
}
FRUGAL_INLINE uint32_t frugal_row_noise(uint64_t step_noise, uint32_t row) {
    return (uint32_t)(frugal_mix(step_noise ^ row) >> 32);
}
FRUGAL_INLINE uint32_t frugal_pair_noise(uint32_t row_noise, uint32_t pair) {
    uint32_t x = row_noise + pair * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15) * 0x735a2d97u;
    return x ^ x >> 15;
}

FRUGAL_INLINE float frugal_widen_bf16(uint16_t weight) {
    return frugal_float_of((uint32_t)weight << 16);
}
/* `noise`: 16 bits; here and below of the element, or what rounds to the nearest. */
FRUGAL_INLINE uint16_t frugal_round_bf16(float x, uint32_t noise) {
    uint32_t bits = frugal_bits_of(x);
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (bits + noise) >> 16);
}
FRUGAL_INLINE uint16_t frugal_nearest_bf16(float x) {
    return frugal_round_bf16(x, 0x7fffu + (frugal_bits_of(x) >> 16 & 1));
}

/* All bits if the condition holds, else none. Choosing by masks keeps float operations out of branches, which compilers
 * would not vectorize. */
FRUGAL_INLINE uint32_t frugal_mask(int condition) {
    return 0u - (uint32_t)condition;
}
/* Exponents of fp16 become those of floats by adding 112, those of infinity and NaN 224. Its subnormal numbers are
 * multiples of 2^-24: the fraction is put behind the exponent of 2^-14, and 2^-14 is taken away, which is exact. What
 * is left of 0 has a sign where the processor rounds downward. */
FRUGAL_INLINE float frugal_widen_fp16(uint16_t weight) {
    uint32_t sign = (uint32_t)(weight & 0x8000u) << 16, u = (uint32_t)(weight & 0x7fffu) << 13;
    uint32_t is_small = frugal_mask(u < 0x00800000u), more = frugal_mask(u >= 0x0f800000u) & 112u << 23;
    uint32_t small = frugal_bits_of(frugal_add(frugal_float_of(u + (113u << 23)), -0x1p-14f));
    return frugal_float_of(sign | (is_small & small & 0x7fffffffu) | (~is_small & (u + (112u << 23) + more)));
}
/* The magnitude below 2^-14 in units of 2^-40, of which 2^16 are a unit of a subnormal weight. *rest: 1 if it has more
 * bits than that. Of subnormal floats there are no units, however the processor multiplies them. */
FRUGAL_INLINE uint32_t frugal_small_fp16(uint32_t magnitude, uint32_t *rest) {
    float scaled = frugal_mul(frugal_float_of(magnitude & frugal_mask(magnitude < 0x38800000u)), 0x1p40f);
    int32_t units = (int32_t)scaled;
    *rest = frugal_bits_of(scaled) != frugal_bits_of((float)units);
    return (uint32_t)units;
}
/* Of what was rounded as a normal number, and as a subnormal one: below 2^-14; infinity from 2^16 on. */
FRUGAL_INLINE uint16_t frugal_pick_fp16(uint32_t bits, uint32_t normal, uint32_t small) {
    uint32_t u = bits & 0x7fffffffu, is_small = frugal_mask(u < 0x38800000u), is_nan = frugal_mask(u > 0x7f800000u);
    uint32_t infinite = frugal_mask(u >= 0x47800000u);
    uint32_t rounded = (is_small & small) | (~is_small & ~infinite & normal) | (infinite & 0x7c00u);
    return (uint16_t)((is_nan & 0x7e00u) | (~is_nan & (rounded | (bits >> 16 & 0x8000u))));
}
FRUGAL_INLINE uint16_t frugal_round_fp16(float x, uint32_t noise) {
    uint32_t bits = frugal_bits_of(x), u = bits & 0x7fffffffu, rest;
    uint32_t small = (frugal_small_fp16(u, &rest) + noise) >> 16;
    return frugal_pick_fp16(bits, (u - (112u << 23) + (noise >> 3)) >> 13, small);
}
FRUGAL_INLINE uint16_t frugal_nearest_fp16(float x) {
    uint32_t bits = frugal_bits_of(x), u = bits & 0x7fffffffu, rest;
    uint32_t units = frugal_small_fp16(u, &rest);
    uint32_t small = ((units | rest) + 0x7fffu + (units >> 16 & 1)) >> 16;
    return frugal_pick_fp16(bits, (u - (112u << 23) + 0xfffu + (u >> 13 & 1)) >> 13, small);
}

#endif /* FRUGAL_ARITHMETIC_H */
