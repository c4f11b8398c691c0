/* gate.cuh - kernels that run before a step's work: they wait for its gate, fetch its numbers, and find which step a
 * replayed graph is in. */
#ifndef FRUGAL_CUDA_GATE_CUH
#define FRUGAL_CUDA_GATE_CUH

#include "rows.cuh"

namespace frugal_cuda {

/* Was the gate forced open? Acquires the reason, so that the thread that polls `done` knows it, too, and does not
 * commit. [C3] pairs with [F8] */
__device__ static inline uint32_t is_forced(const uint64_t *gates, uint64_t step) {
    system_atomic<uint64_t> open(*const_cast<uint64_t *>(gates));
    return (int64_t)(open.load(cuda::memory_order_acquire) - step) > (int64_t)FRUGAL_GATES_FORCED;
}

/* All threads of a block call it. Only one asks, because the answer crosses the link to the host. */
__device__ static inline int block_is_forced(const uint64_t *gates, uint64_t step) {
    return __syncthreads_or(threadIdx.x == 0 && is_forced(gates, step));
}

/* For streams that cannot wait for a word themselves. One warp. */
__global__ void frugal_gate_kernel(const uint64_t *gates, uint64_t step) {
    system_atomic<uint64_t> open(*const_cast<uint64_t *>(gates));
    if (threadIdx.x != 0) return;
    while ((int64_t)(open.load(cuda::memory_order_acquire) - step) <= 0) __nanosleep(200); /* [C3] pairs with [F8] */
}

/* Fetches the groups' numbers in a step. All threads of a block call it. */
__device__ static inline void fetch_hypers(const gpu_view &g, uint64_t step) {
    for (uint32_t i = threadIdx.x; i < g.n_groups && g.hypers; i += blockDim.x)
        g.hypers[i] = g.hypers_sent[step % FRUGAL_P2F_SLOTS * g.n_groups + i];
}

/* Before the update of a step. One block. */
__global__ void frugal_hyper_kernel(gpu_view g, uint64_t step) {
    fetch_hypers(g, step);
}

/* The beginning of a replayed step, after its gate: finds which step it is, and fetches the groups' numbers in it. One
 * warp. */
__global__ void frugal_begin_kernel(gpu_view g) {
    uint64_t replay = g.counters->replays;
    fetch_hypers(g, g.control->replays[replay % REPLAYS].step);
    __syncwarp();
    if (threadIdx.x != 0) return;
    g.counters->replays = replay + 1;
    *g.current = g.control->replays[replay % REPLAYS];
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_GATE_CUH */
