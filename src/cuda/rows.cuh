/* rows.cuh - how kernels reach memory: atomics by scope, floats of a row moved V at a time, and the group of lanes
 * that works on a row. */
#ifndef FRUGAL_CUDA_ROWS_CUH
#define FRUGAL_CUDA_ROWS_CUH

#include "toolkit.cuh"
#include "view.cuh"

namespace frugal_cuda {

constexpr uint32_t FULL_WARP = 0xffffffff;
constexpr uint32_t TILE = 128; /* floats of a row in registers at a time: 4 passes of 32 */
constexpr uint32_t PASSES = TILE / 32;

template <typename T> using gpu_atomic = cuda::atomic_ref<T, cuda::thread_scope_device>;
template <typename T> using system_atomic = cuda::atomic_ref<T, cuda::thread_scope_system>;

/* V floats, moved together. */
template <int V> struct alignas(V * sizeof(float)) pack { float x[(size_t)V]; };

template <int V> __device__ static inline pack<V> load_pack(const float *from) {
    return *(const pack<V> *)(const void *)from;
}

/* Loads past the cache of this multiprocessor. */
template <int V> __device__ static inline pack<V> load_pack_fresh(const float *from) {
    if constexpr (V == 4) {
        float4 all = __ldcg((const float4 *)(const void *)from);
        return {{all.x, all.y, all.z, all.w}};
    } else {
        return {{__ldcg(from)}};
    }
}

/* Stores to memory of the GPU or of the host, not to shared or local memory. By an intrinsic, because from a pack that
 * it knows element by element nvcc would make four stores of 4 bytes. */
template <int V> __device__ static inline void store_pack(float *to, const pack<V> &from) {
    if constexpr (V == 4)
        __stwb((float4 *)(void *)to, make_float4(from.x[0], from.x[1], from.x[2], from.x[3]));
    else
        __stwb(to, from.x[0]);
}

/* Adds the row at position i of a bag to its sum, by the fused multiply-add of frugal_pool. */
template <int V>
__device__ static inline void pool_row(const frugal_bags &bags, uint32_t i, int is_first, const pack<V> &x,
                                       pack<V> *sum) {
    float weight = bags.weights ? bags.weights[i] : 1;
    for (int v = 0; v < V; v++) {
        float product = bags.weights ? frugal_mul(weight, x.x[v]) : x.x[v];
        float more = bags.weights ? frugal_fma(weight, x.x[v], sum->x[v]) : frugal_add(sum->x[v], x.x[v]);
        sum->x[v] = is_first ? product : more;
    }
}

/* Ends the sum of a bag of n rows. */
template <int V> __device__ static inline void end_pool(const frugal_bags &bags, uint32_t n, pack<V> *sum) {
    for (int v = 0; v < V && bags.pooling == FRUGAL_POOL_MEAN && n > 0; v++)
        sum->x[v] = frugal_div(sum->x[v], (float)n);
}

/* A thread's place among the groups of its kernel: a warp works on V items at a time. */
template <int V> struct lane_group {
    static constexpr uint32_t LANES = WARP / V;
    uint32_t lane;          /* in the group */
    uint32_t leader;        /* lane of the warp that is the group's first */
    uint64_t first, stride; /* the warp's first item, and the distance to its next */
    uint32_t of_warp;       /* the group's number in its warp: its item is first + of_warp */
    __device__ lane_group() {
        lane = threadIdx.x % LANES;
        of_warp = threadIdx.x % WARP / LANES;
        leader = of_warp * LANES;
        uint64_t warps = blockDim.x / WARP;
        first = (blockIdx.x * warps + threadIdx.x / WARP) * V;
        stride = gridDim.x * warps * V;
    }
    /* The bits of the group's first 8 lanes in a ballot. */
    __device__ uint32_t bits(uint32_t ballot) const {
        return ballot >> leader & 0xff;
    }
};

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_ROWS_CUH */
