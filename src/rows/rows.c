/* rows.c - the row functions, compiled once for each instruction set.
 *
 * On x86-64 these are AVX-512, AVX2 with FMA, and the baseline, where fmaf is a library call; elsewhere the baseline
 * alone. They are the same source (vectors.c, types.c, optimizer.c, sums.c, gather.c, alone.c) under other target
 * attributes, and give the same bits, because every operation is IEEE's. processors.c picks a set by the processor it
 * runs on.
 *
 * frugal_flush.c includes this file with all sets. Optimizing them takes most of the time in which it is compiled.
 * Two macros, for both files:
 *
 *   FRUGAL_ROWS_BASELINE  the baseline alone: compiles in a third of the time, for sanitizers and debuggers
 *   FRUGAL_ROWS_APART     frugal_flush.c has no set; this file is compiled, once for each set, and linked. So several
 *                         builds of the library share them: cc ... -DFRUGAL_ROWS_APART -DFRUGAL_ROWS_SET_avx2
 *                         -c src/rows/rows.c, and the same for avx512 and baseline.
 */
#if defined(FRUGAL_ROWS_APART) && !defined(FRUGAL_FLUSH_C) && !defined(FRUGAL_PARTS)
#define FRUGAL_PARTS /* the only part that is compiled apart for its own sake */
#endif
#include "alone.c"

/* The set `suffix`: the functions, and a struct that lists them. */
#define ROW_FUNCTIONS(suffix, attribute)                                                                               \
    attribute static void widen_##suffix(float *to, const uint16_t *from, frugal_type as, uint32_t n) {                \
        widen_row(to, from, as, n);                                                                                    \
    }                                                                                                                  \
    attribute static void nearest_##suffix(uint16_t *to, const float *from, frugal_type as, uint32_t n) {              \
        nearest_row(to, from, as, n);                                                                                  \
    }                                                                                                                  \
    attribute static void round_##suffix(uint16_t *to, const float *from, const uint16_t *noise, frugal_type as,       \
                                         uint32_t n) {                                                                 \
        round_row(to, from, noise, as, n);                                                                             \
    }                                                                                                                  \
    attribute static void apply_typed_##suffix(const row_place *p, const row_update *update, const row_rule *rule,     \
                                               uint32_t from, uint32_t floats) {                                       \
        apply_typed(p, update, rule, from, floats);                                                                    \
    }                                                                                                                  \
    static const row_conversions types_##suffix = {widen_##suffix, nearest_##suffix, round_##suffix,                   \
                                                   apply_typed_##suffix};                                              \
    attribute static void convert_##suffix(void *to, frugal_type to_as, const void *from, frugal_type from_as,         \
                                           uint32_t n) {                                                               \
        convert_row(&types_##suffix, to, to_as, from, from_as, n);                                                     \
    }                                                                                                                  \
    attribute static void apply_##suffix(const frugal_store *store, const frugal_optimizer *optimizer,                 \
                                         const row_update *rows, uint32_t n) {                                         \
        const row_place place = {store, &types_##suffix};                                                              \
        apply_group(&place, optimizer, rows, n);                                                                       \
    }                                                                                                                  \
    attribute static void sum_records_##suffix(const frugal_records *r, strided_rows grads, uint32_t dim) {            \
        grads.types = &types_##suffix;                                                                                 \
        sum_records(r, grads, dim);                                                                                    \
    }                                                                                                                  \
    attribute static void sum_positions_##suffix(float *sum, const strided_rows *grads, uint32_t dim,                  \
                                                 const uint32_t *order, uint32_t n, uint32_t left) {                   \
        strided_rows own = *grads;                                                                                     \
        own.types = &types_##suffix;                                                                                   \
        sum_row(sum, own, dim, order, n, left);                                                                        \
    }                                                                                                                  \
    attribute static void gather_##suffix(const frugal_store *store, const frugal_records *r, void *rows,              \
                                          uint64_t stride, frugal_type as) {                                           \
        const row_place place = {store, &types_##suffix};                                                              \
        gather_all(&place, r, rows, stride, as);                                                                       \
    }                                                                                                                  \
    attribute static void sum_bags_##suffix(const frugal_records *r, const bag_gradients *all, uint32_t dim,           \
                                            uint32_t from, uint32_t end) {                                             \
        bag_gradients own = *all;                                                                                      \
        own.grads.types = &types_##suffix;                                                                             \
        sum_bags_range(r, &own, dim, from, end);                                                                       \
    }                                                                                                                  \
    attribute static void update_##suffix(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of,  \
                                          const void *grads, uint32_t from, uint32_t end) {                            \
        alone_batch b = {.store = store, .types = &types_##suffix};                                                    \
        b.sum = sum_positions_##suffix, b.sum_bags = sum_bags_##suffix;                                                \
        update_rows(&b, step, bag_of, grads, from, end);                                                               \
    }                                                                                                                  \
    attribute static void pool_##suffix(const pooled_rows *to, const pooled_from *from, const frugal_bags *bags) {     \
        pooled_from own = *from;                                                                                       \
        own.rows.types = &types_##suffix;                                                                              \
        pool_all(to, &own, bags);                                                                                      \
    }                                                                                                                  \
    attribute static double squares_##suffix(const frugal_store *store, const frugal_step *step,                       \
                                             const bag_gradients *g) {                                                 \
        bag_gradients own = *g;                                                                                        \
        own.grads.types = &types_##suffix;                                                                             \
        return square_records(store, step, &own);                                                                      \
    }                                                                                                                  \
    ROWS_LINKAGE const row_functions frugal_rows_##suffix = {                                                          \
        apply_##suffix, sum_records_##suffix, sum_positions_##suffix, gather_##suffix,  update_##suffix,               \
        pool_##suffix,  sum_bags_##suffix,    squares_##suffix,       convert_##suffix, &types_##suffix};

#if defined(ROWS_X86)
#define AVX2_TARGET __attribute__((target("avx2,fma")))
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__) && __GNUC__ < 14
#define AVX512_TARGET AVX2_TARGET /* gcc bug 110027: its sanitizer's stack frames are not aligned for more */
#else
#define AVX512_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#endif
#endif

#if defined(FRUGAL_ROWS_APART)
#define ROWS_LINKAGE
#if defined(FRUGAL_ROWS_SET_baseline)
ROW_FUNCTIONS(baseline, )
#elif defined(FRUGAL_ROWS_SET_avx2) && defined(ROWS_X86)
ROW_FUNCTIONS(avx2, AVX2_TARGET)
#elif defined(FRUGAL_ROWS_SET_avx512) && defined(ROWS_X86)
ROW_FUNCTIONS(avx512, AVX512_TARGET)
#endif
#else
#define ROWS_LINKAGE static
ROW_FUNCTIONS(baseline, )
#if defined(ROWS_X86)
ROW_FUNCTIONS(avx2, AVX2_TARGET)
ROW_FUNCTIONS(avx512, AVX512_TARGET)
#endif
#endif
