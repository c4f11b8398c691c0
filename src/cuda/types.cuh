/* types.cuh - elements of rows and of arrays, of any type: moved as they lie in memory, widened to floats, rounded; and
 * the forms of kernels that move them.
 *
 * Kernels that move rows exist twice: for FLOATS, where table and array have floats alone, and for ANY_TYPES (their
 * names end in _typed_kernel), which are told at run time what type the rows have, and what type the array. All threads
 * take the same branch there. Elements of 16 bits are moved V at a time, too: 8 bytes in kernels <4>, 2 in kernels <1>.
 * They are kept as they were loaded until all loads are under way, because to widen one waits for it. */
#ifndef FRUGAL_CUDA_TYPES_CUH
#define FRUGAL_CUDA_TYPES_CUH

#include "rows.cuh"

namespace frugal_cuda {

enum element_types { FLOATS, ANY_TYPES };

/* V elements as they lie in memory: the bits of floats, a word each; or 16 bits each, two in a word, the first in the
 * lower half. */
template <int V> struct word_pack { uint32_t x[(size_t)V]; };

template <int V, element_types T> struct raw_pack_of { using type = pack<V>; };
template <int V> struct raw_pack_of<V, ANY_TYPES> { using type = word_pack<V>; };
template <int V, element_types T> using raw_pack = typename raw_pack_of<V, T>::type;

template <int V> __device__ static inline word_pack<V> load_words(const void *from) {
    if constexpr (V == 4) {
        uint4 all = *(const uint4 *)from;
        return {{all.x, all.y, all.z, all.w}};
    } else {
        return {{*(const uint32_t *)from}};
    }
}

template <int V> __device__ static inline word_pack<V> load_halves(const void *from) {
    if constexpr (V == 4) {
        uint2 all = *(const uint2 *)from;
        return {{all.x, all.y, 0, 0}};
    } else {
        return {{*(const uint16_t *)from}};
    }
}

/* By intrinsics, as store_pack. */
template <int V> __device__ static inline void store_words(void *to, const word_pack<V> &from) {
    if constexpr (V == 4)
        __stwb((uint4 *)to, make_uint4(from.x[0], from.x[1], from.x[2], from.x[3]));
    else
        __stwb((uint32_t *)to, from.x[0]);
}

template <int V> __device__ static inline void store_halves(void *to, const word_pack<V> &from) {
    if constexpr (V == 4)
        __stwb((uint2 *)to, make_uint2(from.x[0], from.x[1]));
    else
        __stwb((unsigned short *)to, (unsigned short)from.x[0]);
}

/* Element i of an array, or of a row. In what follows kernels for FLOATS do not look at the type. */
template <element_types T> __device__ static inline void *element_at(void *array, frugal_type as, uint64_t i) {
    if constexpr (T == FLOATS)
        return (float *)array + i;
    else
        return (unsigned char *)array + i * frugal_type_bytes(as);
}
template <element_types T>
__device__ static inline const void *element_at(const void *array, frugal_type as, uint64_t i) {
    return element_at<T>(const_cast<void *>(array), as, i);
}

/* A host row; `row`: its number, or, of gathered ones, that of its record. */
template <element_types T> __device__ static inline void *host_row(const gpu_view &g, uint64_t row) {
    return element_at<T>(g.weights, g.rows_as, row * g.weights_stride);
}

/* A row of another machine: they lie as they have arrived, one behind the other, so they are aligned as host rows are
 * that are moved four elements at a time. */
template <element_types T>
__device__ static inline const void *guest_row(const gpu_view &g, const step_fields &step, uint64_t guest) {
    return element_at<T>((const void *)step.guests(), g.rows_as, (uint64_t)step.guest_at()[guest] * g.dim);
}

/* What random bits of a row depend on: frugal_id_of. */
__device__ static inline uint32_t id_of(const gpu_view &g, const step_fields &step, uint32_t unique) {
    const uint32_t *ids = step.ids();
    if (ids) return ids[unique];
    uint32_t row = step.rows()[unique];
    return g.id_times ? row * g.id_times + g.id_plus : row;
}

/* Elements of a row, from `e` on. */
template <int V, element_types T>
__device__ static inline raw_pack<V, T> load_raw(const void *row, frugal_type as, uint32_t e) {
    const void *from = element_at<T>(row, as, e);
    if constexpr (T == FLOATS)
        return load_pack<V>((const float *)from);
    else
        return as == FRUGAL_FP32 ? load_words<V>(from) : load_halves<V>(from);
}

template <int V, element_types T>
__device__ static inline void store_raw(void *row, frugal_type as, uint32_t e, const raw_pack<V, T> &x) {
    void *to = element_at<T>(row, as, e);
    if constexpr (T == FLOATS)
        store_pack<V>((float *)to, x);
    else if (as == FRUGAL_FP32)
        store_words<V>(to, x);
    else
        store_halves<V>(to, x);
}

/* Makes halves of V elements: half(v) of each. */
template <int V, typename Half> __device__ static inline word_pack<V> pack_halves(Half half) {
    word_pack<V> all = {};
    for (int v = 0; v < V; v++) all.x[v / 2] |= (uint32_t)half(v) << v % 2 * 16;
    return all;
}

/* As floats. */
template <int V, element_types T> __device__ static inline pack<V> widened(const raw_pack<V, T> &x, frugal_type as) {
    if constexpr (T == FLOATS) {
        return x;
    } else {
        pack<V> wide = {};
        for (int v = 0; v < V; v++) {
            uint16_t half = (uint16_t)(x.x[v / 2] >> v % 2 * 16);
            wide.x[v] = as == FRUGAL_FP32   ? frugal_float_of(x.x[v])
                        : as == FRUGAL_BF16 ? frugal_widen_bf16(half)
                                            : frugal_widen_fp16(half);
        }
        return wide;
    }
}

/* Floats as another type, rounded to the nearest. */
template <int V, element_types T> __device__ static inline raw_pack<V, T> nearest(const pack<V> &x, frugal_type as) {
    if constexpr (T == FLOATS) {
        return x;
    } else {
        if (as == FRUGAL_BF16) return pack_halves<V>([&](int v) { return frugal_nearest_bf16(x.x[v]); });
        if (as == FRUGAL_FP16) return pack_halves<V>([&](int v) { return frugal_nearest_fp16(x.x[v]); });
        word_pack<V> bits = {};
        for (int v = 0; v < V; v++) bits.x[v] = frugal_bits_of(x.x[v]);
        return bits;
    }
}

/* Elements of one type as those of another. */
template <int V, element_types T>
__device__ static inline raw_pack<V, T> converted(const raw_pack<V, T> &x, frugal_type from, frugal_type to) {
    if constexpr (T == FLOATS)
        return x;
    else
        return from == to ? x : nearest<V, T>(widened<V, T>(x, from), to);
}

/* Weights of a row after a step, from element `e` on; `noise`: the row's random bits (frugal_row_noise). */
template <int V, element_types T>
__device__ static inline raw_pack<V, T> rounded(const gpu_view &g, const pack<V> &x, uint32_t noise, uint32_t e) {
    if constexpr (T == FLOATS) {
        return x;
    } else {
        if (g.rows_as == FRUGAL_FP32 || g.rounding == FRUGAL_NEAREST) return nearest<V, T>(x, g.rows_as);
        uint32_t pairs[((size_t)V + 1) / 2];
        for (int i = 0; i < (V + 1) / 2; i++) pairs[i] = frugal_pair_noise(noise, e / 2 + (uint32_t)i);
        auto bits = [&](int v) { return (V == 1 ? e : (uint32_t)v) % 2 ? pairs[v / 2] >> 16 : pairs[v / 2] & 0xffff; };
        if (g.rows_as == FRUGAL_BF16) return pack_halves<V>([&](int v) { return frugal_round_bf16(x.x[v], bits(v)); });
        return pack_halves<V>([&](int v) { return frugal_round_fp16(x.x[v], bits(v)); });
    }
}

struct launch_form { /* of a kernel that moves rows */
    int typed;       /* for any types, not for floats alone */
    int wide;        /* four elements at a time, not one */
};

/* Launches name_kernel, or name_typed_kernel, in one of its forms; a cudaError_t. */
#define FRUGAL_LAUNCH_FORM(form, name, grid, stream, ...)                                                              \
    ((form).typed ? FRUGAL_LAUNCH_WIDE((form).wide, name##_typed_kernel, grid, stream, __VA_ARGS__)                    \
                  : FRUGAL_LAUNCH_WIDE((form).wide, name##_kernel, grid, stream, __VA_ARGS__))
#define FRUGAL_LAUNCH_WIDE(wide, kernel, grid, stream, ...)                                                            \
    ((wide) ? FRUGAL_LAUNCH(kernel<4>, grid, BLOCK_THREADS, stream, __VA_ARGS__)                                       \
            : FRUGAL_LAUNCH(kernel<1>, grid, BLOCK_THREADS, stream, __VA_ARGS__))

/* Can elements of an array be moved four at a time? Its rows are `stride` elements apart. */
static int moves_fours(const void *array, uint64_t stride, frugal_type as) {
    return (uintptr_t)array % (4 * frugal_type_bytes(as)) == 0 && stride % 4 == 0;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_TYPES_CUH */
