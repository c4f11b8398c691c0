/* processors.c - the row functions on this processor: instruction sets, and rounding.
 *
 * On x86-64 the row functions are compiled three times, for AVX-512, AVX2 with FMA, and the baseline, where fmaf is a
 * library call; elsewhere once. They are right everywhere, fast on new processors, and give the same bits on all,
 * because every operation is IEEE's.
 */
#include "host.h"

/* Each clone is the same source under another target attribute; a call picks one by the processor it runs on. */
#define CLONES(suffix, attribute)                                                                                      \
    attribute static void apply_rows_##suffix(const frugal_store *store, const frugal_optimizer *optimizer,            \
                                              const row_update *rows, uint32_t n) {                                    \
        apply_group(store, optimizer, rows, n);                                                                        \
    }                                                                                                                  \
    attribute static void sum_records_##suffix(const frugal_records *r, strided_rows grads, uint32_t dim) {            \
        sum_records(r, grads, dim);                                                                                    \
    }                                                                                                                  \
    attribute static void gather_##suffix(const frugal_store *store, const frugal_records *r, float *rows,             \
                                          uint64_t stride) {                                                           \
        gather_all(store, r, rows, stride);                                                                            \
    }                                                                                                                  \
    attribute static void sum_positions_##suffix(float *sum, strided_rows grads, uint32_t dim, const uint32_t *order,  \
                                                 uint32_t n, uint32_t left) {                                          \
        sum_row(sum, grads, dim, order, n, left);                                                                      \
    }                                                                                                                  \
    attribute static void update_rows_##suffix(const frugal_store *store, const frugal_step *step,                     \
                                               const uint32_t *bag_of, const float *grads, uint32_t from,              \
                                               uint32_t end) {                                                         \
        update_rows(store, step, bag_of, grads, from, end, sum_positions_##suffix);                                    \
    }                                                                                                                  \
    attribute static void pool_##suffix(const frugal_records *r, const frugal_bags *bags, uint32_t dim, float *pooled, \
                                        uint64_t stride) {                                                             \
        pool_all(r, bags, dim, pooled, stride);                                                                        \
    }                                                                                                                  \
    attribute static void sum_bags_##suffix(const frugal_records *r, const bag_gradients *all, uint32_t dim) {         \
        sum_bags_range(r, all, dim, 0, r->n_unique);                                                                   \
    }                                                                                                                  \
    attribute static void squares_##suffix(const frugal_store *store, const frugal_records *r, const bag_gradients *g, \
                                           double *sum) {                                                              \
        *sum = square_records(store, r, g);                                                                            \
    }
CLONES(baseline, )
#if defined(__x86_64__) && defined(__GNUC__)
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__) && __GNUC__ < 14
#define AVX512_TARGET "avx2,fma" /* gcc bug 110027: its sanitizer's stack frames are not aligned for more */
#else
#define AVX512_TARGET "avx512f,avx512vl,avx512dq,avx2,fma"
#endif
CLONES(avx2, __attribute__((target("avx2,fma"))))
CLONES(avx512, __attribute__((target(AVX512_TARGET))))
#define DISPATCH(name, ...)                                                                                            \
    do {                                                                                                               \
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&                                 \
            __builtin_cpu_supports("avx512dq"))                                                                        \
            name##_avx512(__VA_ARGS__);                                                                                \
        else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))                                      \
            name##_avx2(__VA_ARGS__);                                                                                  \
        else                                                                                                           \
            name##_baseline(__VA_ARGS__);                                                                              \
    } while (0)
#else
#define DISPATCH(name, ...) name##_baseline(__VA_ARGS__)
#endif

/* Applies updates to rows of one group, with its settings. */
static void apply_rows(const frugal_store *store, const frugal_optimizer *optimizer, const row_update *rows,
                       uint32_t n) {
    DISPATCH(apply_rows, store, optimizer, rows, n);
}

void frugal_apply(const frugal_store *store, const frugal_hyper *hyper, uint32_t row, float *weights, float *state,
                  const float *gradient) {
    uint32_t group = frugal_group_of(store->groups, store->n_groups, row);
    row_update update = {weights, state, &gradient, 1, &hyper[group]};
    apply_rows(store, &store->groups[group].optimizer, &update, 1);
}

void frugal_sum_gradients(const frugal_records *records, const float *grads, uint64_t stride, uint32_t dim) {
    const strided_rows all = {grads, stride};
    DISPATCH(sum_records, records, all, dim);
}

void frugal_sum_positions(float *sum, const float *grads, uint64_t stride, uint32_t dim, const uint32_t *order,
                          uint32_t n) {
    const strided_rows all = {grads, stride};
    DISPATCH(sum_positions, sum, all, dim, order, n, n);
}

void frugal_pool(const frugal_records *records, const frugal_bags *bags, uint32_t dim, float *pooled, uint64_t stride) {
    DISPATCH(pool, records, bags, dim, pooled, stride);
}

void frugal_sum_bags(const frugal_records *records, const frugal_bags *bags, const uint32_t *bag_of, const float *grads,
                     uint64_t stride, uint32_t dim) {
    const bag_gradients all = {{grads, stride}, bags, bag_of};
    DISPATCH(sum_bags, records, &all, dim);
}

void frugal_gather(const frugal_store *store, const frugal_records *records, float *rows, uint64_t stride) {
    DISPATCH(gather, store, records, rows, stride);
}

double frugal_sum_row_squares(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of,
                              const float *grads) {
    const bag_gradients g = {{grads, step->stride}, grads ? step->bags : NULL, bag_of};
    double sum;
    DISPATCH(squares, store, &step->records, &g, &sum);
    return sum;
}

void frugal_update_rows(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of, const float *grads,
                        uint32_t from, uint32_t end) {
    DISPATCH(update_rows, store, step, bag_of, grads, from, end);
}

/* The caller's thread may flush small numbers to zero or round in another mode. It must not while it helps, and our
 * threads must not. */
#if defined(__SSE__)
typedef unsigned int float_mode;
static float_mode float_mode_enter(void) {
    unsigned int saved = __builtin_ia32_stmxcsr();
    if ((saved & 0xffc0u) != 0x1f80u) __builtin_ia32_ldmxcsr(0x1f80u);
    return saved;
}
static void float_mode_leave(float_mode saved) {
    if ((saved & 0xffc0u) != 0x1f80u) __builtin_ia32_ldmxcsr(saved);
}
#else
typedef fenv_t float_mode;
static float_mode float_mode_enter(void) {
    fenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}
static void float_mode_leave(float_mode saved) {
    fesetenv(&saved);
}
#endif
