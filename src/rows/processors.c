/* processors.c - the row functions on this processor: which instruction set, and rounding. */
#include "rows.h"

/* The row functions (rows.c) of the largest instruction set that this processor has. */
static const row_functions *rows_here(void) {
#if defined(ROWS_X86)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &frugal_rows_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &frugal_rows_avx2;
#endif
    return &frugal_rows_baseline;
}

/* Applies updates to rows of one group, with its settings. */
FRUGAL_INTERNAL void apply_rows(const frugal_store *store, const frugal_optimizer *optimizer, const row_update *rows,
                                uint32_t n) {
    rows_here()->apply(store, optimizer, rows, n);
}

void frugal_apply(const frugal_store *store, const frugal_hyper *hyper, uint32_t row, void *weights, float *state,
                  const float *gradient) {
    uint32_t group = frugal_group_of(store->groups, store->n_groups, row);
    row_update update = {weights, state, &gradient, 1, row, &hyper[group]};
    apply_rows(store, &store->groups[group].optimizer, &update, 1);
}

void frugal_sum_gradients(const frugal_records *records, const float *grads, uint64_t stride, uint32_t dim) {
    rows_here()->sum_records(records, (strided_rows){.at = grads, .stride = stride}, dim);
}

void frugal_sum_positions(float *sum, const float *grads, uint64_t stride, uint32_t dim, const uint32_t *order,
                          uint32_t n) {
    const strided_rows all = {.at = grads, .stride = stride};
    rows_here()->sum_positions(sum, &all, dim, order, n, n);
}

void frugal_pool(const frugal_records *records, const frugal_bags *bags, uint32_t dim, void *pooled, uint64_t stride,
                 frugal_type as) {
    const pooled_from from = {{.at = records->block, .stride = records->stride}, records->record_of, records->n};
    rows_here()->pool(&(pooled_rows){pooled, stride, as, dim}, &from, bags);
}

/* The same of rows of any type, which lie anywhere. */
FRUGAL_INTERNAL void pool_rows(const pooled_rows *to, const pooled_from *from, const frugal_bags *bags) {
    rows_here()->pool(to, from, bags);
}

void frugal_sum_bags(const frugal_records *records, const frugal_bags *bags, const uint32_t *bag_of, const float *grads,
                     uint64_t stride, uint32_t dim) {
    const bag_gradients all = {{.at = grads, .stride = stride}, bags, bag_of};
    rows_here()->sum_bags(records, &all, dim, 0, records->n_unique);
}

void frugal_gather(const frugal_store *store, const frugal_records *records, void *rows, uint64_t stride,
                   frugal_type as) {
    rows_here()->gather(store, records, rows, stride, as);
}

void frugal_convert(void *to, frugal_type to_as, const void *from, frugal_type from_as, uint64_t n) {
    for (uint64_t i = 0; i < n; i += CHUNK_FLOATS) {
        void *part = (unsigned char *)to + i * frugal_type_bytes(to_as);
        rows_here()->convert(part, to_as, (const unsigned char *)from + i * frugal_type_bytes(from_as), from_as,
                             (uint32_t)LEAST(CHUNK_FLOATS, n - i));
    }
}

double frugal_sum_row_squares(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of,
                              const void *grads) {
    const bag_gradients g = {{grads, step->stride, step->as, NULL}, grads ? step->bags : NULL, bag_of};
    return rows_here()->squares(store, step, &g);
}

void frugal_update_rows(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of, const void *grads,
                        uint32_t from, uint32_t end) {
    rows_here()->update(store, step, bag_of, grads, from, end);
}

/* The caller's thread may flush small numbers to zero or round in another mode. It must not while it helps, and our
 * threads must not. */
#if defined(__SSE__)
FRUGAL_INTERNAL float_mode float_mode_enter(void) {
    unsigned int saved = __builtin_ia32_stmxcsr();
    if ((saved & 0xffc0u) != 0x1f80u) __builtin_ia32_ldmxcsr(0x1f80u);
    return saved;
}
FRUGAL_INTERNAL void float_mode_leave(float_mode saved) {
    if ((saved & 0xffc0u) != 0x1f80u) __builtin_ia32_ldmxcsr(saved);
}
#else
FRUGAL_INTERNAL float_mode float_mode_enter(void) {
    fenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}
FRUGAL_INTERNAL void float_mode_leave(float_mode saved) {
    fesetenv(&saved);
}
#endif
