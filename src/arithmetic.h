/* arithmetic.h - fused operations and the optimizers' formulas, written once for C and CUDA, so that host and GPU agree
 * bit by bit. It is for all code that computes with rows: the host store, devices, and a trainer that applies the same
 * optimizers to parameters of its own.
 *
 * Every product that is added here is written as a fused multiply-add; division and square root are IEEE's; nothing is
 * reassociated. Compile with -ffp-contract=off (nvcc: --fmad=false) and without -ffast-math and its parts: the gradient
 * of a weighted bag (frugal_sum_bags) is a product that is rounded before it is added, and must not be fused.
 * frugal_open fails if the code was compiled in a way that changes bits.
 *
 * Contents: operations (frugal_fma, _div, _sqrt, _add, _mul); one element of an optimizer's step; FRUGAL_OPTIMIZERS.
 */
#ifndef FRUGAL_ARITHMETIC_H
#define FRUGAL_ARITHMETIC_H

#include <math.h>

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

/* What is known of each optimizer, in the order of frugal_optimizer_kind: its word in options, its name in messages;
 * floats of state that each element has, and that the row has besides; the eps that 0 stands for; 1 if it has betas; 1
 * if its state begins with initial_accumulator. */
#define FRUGAL_OPTIMIZERS(X)                                                                                           \
    X(SGD, "sgd", "SGD", 0, 0, 1e-8f, 0, 0)                                                                            \
    X(ADAGRAD, "adagrad", "Adagrad", 1, 0, 1e-10f, 0, 1)                                                               \
    X(ROWWISE_ADAGRAD, "rowwise-adagrad", "row-wise Adagrad", 0, 1, 1e-8f, 0, 1)                                       \
    X(ADAM, "adam", "Adam", 2, 0, 1e-8f, 1, 0)

/* Their words, or kinds, as elements of an array; their number. */
#define FRUGAL_OPTIMIZER_WORD(kind, word, ...) word,
#define FRUGAL_OPTIMIZER_KIND(kind, ...)       FRUGAL_##kind,
#define FRUGAL_OPTIMIZER_ONE(...)              +1
enum { FRUGAL_OPTIMIZER_KINDS = FRUGAL_OPTIMIZERS(FRUGAL_OPTIMIZER_ONE) };

#endif /* FRUGAL_ARITHMETIC_H */
