/* extract.cuh - kernels that copy or pool rows of a served version, each from where this GPU reads it. */
#ifndef FRUGAL_CUDA_EXTRACT_CUH
#define FRUGAL_CUDA_EXTRACT_CUH

#include "types.cuh"

namespace frugal_cuda {

constexpr uint32_t LAUNCH_SEGMENTS = 64; /* of one launch */
constexpr uint32_t IN_TABLE = UINT32_MAX;
constexpr uint32_t COUNTED = 16;

/* A version, as kernels of one GPU see it. */
struct served_view {
    const uint32_t *where;      /* where[rows]: source << slot_bits | slot, or IN_TABLE */
    const void *const *sources; /* caches of the GPUs, and last, in host memory, rows in which the version differs from
                                 * its base; each [slots][stride] */
    const void *table;          /* the base, in host memory; rows table_stride weights apart */
    uint64_t table_stride, stride;
    frugal_type rows_as; /* of all three */
    uint32_t dim, slot_bits;
    uint64_t *bad;     /* in host memory: the last served_mistake; 0: none */
    uint32_t *touches; /* touches[rows], by every COUNTED-th key; `turn` keys came before; NULL: not counted */
    uint32_t turn;
};

enum served_mistake { BAD_KEY = 1, BAD_BAGS };

struct served_segment {
    const void *keys;
    uint64_t first_row, rows; /* of its table */
    uint32_t begin, is32;     /* the position of its first key */
};

struct served_request {
    served_segment segments[LAUNCH_SEGMENTS];
    uint32_t n_segments, n; /* n: keys */
};

/* The row that a key names. */
struct found_row {
    const void *at; /* NULL: the key is out of range */
    uint64_t row;
};

template <element_types T>
__device__ static inline found_row find_row(const served_view &v, const served_request &r, uint32_t position) {
    uint32_t low = 0, high = r.n_segments;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (r.segments[middle].begin <= position)
            low = middle;
        else
            high = middle;
    }
    const served_segment &s = r.segments[low];
    uint32_t i = position - s.begin;
    uint64_t key = s.is32 ? (uint64_t)(int64_t)((const int32_t *)s.keys)[i] : ((const uint64_t *)s.keys)[i];
    if (key >= s.rows) return {NULL, 0};
    uint64_t row = s.first_row + key;
    uint32_t word = v.where[row], source = word >> v.slot_bits, slot = word & ((1u << v.slot_bits) - 1);
    if (word == IN_TABLE) return {element_at<T>(v.table, v.rows_as, row * v.table_stride), row};
    return {element_at<T>(v.sources[source], v.rows_as, (uint64_t)slot * v.stride), row};
}

/* Counts every COUNTED-th key of a lookup. One lane of those that copy its row calls it. */
__device__ static inline void count_touch(const served_view &v, const found_row &found, uint64_t position) {
    if (found.at && v.touches && (position + v.turn) % COUNTED == 0) /* relaxed: a hint */
        gpu_atomic<uint32_t>(v.touches[found.row]).fetch_add(1, cuda::memory_order_relaxed);
}

__device__ static inline void report_mistake(const served_view &v, enum served_mistake mistake) {
    system_atomic<uint64_t>(*v.bad).store(mistake, cuda::memory_order_relaxed); /* relaxed: a message */
}

/* Copies a row, as floats, by a group of lanes. All elements that a lane copies are under way before the first is
 * stored. A key that is out of range gives zeros. */
template <int V, element_types T>
__device__ static inline void copy_found(const served_view &v, const lane_group<V> &group, const found_row &found,
                                         uint64_t position, float *to) {
    if (group.lane == 0) count_touch(v, found, position);
    if (!found.at && group.lane == 0) report_mistake(v, BAD_KEY);
    for (uint32_t tile = group.lane * V; tile < v.dim; tile += TILE) {
        raw_pack<V, T> x[PASSES] = {};
        const void *from = element_at<T>(found.at, v.rows_as, tile);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++)
            if (found.at && tile + 32 * p < v.dim) x[p] = load_raw<V, T>(from, v.rows_as, 32 * p);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++)
            if (tile + 32 * p < v.dim) store_pack<V>(to + tile + 32 * p, widened<V, T>(x[p], v.rows_as));
    }
}

/* Copies the rows of all positions to out[n][stride]. */
template <int V, element_types T>
__device__ static inline void extract_rows(const served_view &v, const served_request &r, float *out, uint64_t stride) {
    lane_group<V> group;
    for (uint64_t item = group.first + group.of_warp; item < r.n; item += group.stride)
        copy_found<V, T>(v, group, find_row<T>(v, r, (uint32_t)item), item, out + item * stride);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_extract_kernel(served_view v, served_request r, float *out, uint64_t stride) {
    extract_rows<V, FLOATS>(v, r, out, stride);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_extract_typed_kernel(served_view v, served_request r, float *out, uint64_t stride) {
    extract_rows<V, ANY_TYPES>(v, r, out, stride);
}

/* Pools rows into pooled[n_bags][dim], bags.stride floats apart, in the order of frugal_pool_kernel; each group pools
 * one bag at a time. */
template <int V, element_types T>
__device__ static inline void extract_bags(const served_view &v, const served_request &r, const frugal_bags &bags,
                                           float *pooled) {
    lane_group<V> group;
    for (uint64_t bag = group.first + group.of_warp; bag < bags.n_bags; bag += group.stride) {
        uint32_t begin = bags.offsets[bag], end = bags.offsets[bag + 1];
        int bad = begin > end || end > r.n || (bag == 0 && begin != 0) || (bag + 1 == bags.n_bags && end != r.n);
        if (bad && group.lane == 0) report_mistake(v, BAD_BAGS);
        end = end < r.n ? end : r.n;
        for (uint32_t e = group.lane * V; e < v.dim; e += 32) {
            pack<V> sum = {};
            FRUGAL_SOME_ROWS
            for (uint32_t i = begin; i < end; i++) {
                const found_row found = find_row<T>(v, r, i);
                pack<V> x = {};
                if (found.at)
                    x = widened<V, T>(load_raw<V, T>(found.at, v.rows_as, e), v.rows_as);
                else if (e == 0)
                    report_mistake(v, BAD_KEY);
                if (e == 0) count_touch(v, found, i);
                pool_row<V>(bags, i, i == begin, x, &sum);
            }
            end_pool<V>(bags, begin < end ? end - begin : 0, &sum);
            store_pack<V>(pooled + bag * bags.stride + e, sum);
        }
    }
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    frugal_extract_bags_kernel(served_view v, served_request r, frugal_bags bags, float *pooled) {
    extract_bags<V, FLOATS>(v, r, bags, pooled);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    frugal_extract_bags_typed_kernel(served_view v, served_request r, frugal_bags bags, float *pooled) {
    extract_bags<V, ANY_TYPES>(v, r, bags, pooled);
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_EXTRACT_CUH */
