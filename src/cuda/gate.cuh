/* gate.cuh - kernels that run before a step's work: they wait for its gate, note whether it was forced open, fetch the
 * step's numbers, and find which step a replayed graph is in. */
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

/* Notes a gate that was forced open, for this step's kernels and all later ones. One thread asks, not one of each
 * block, because the answer crosses the link to the host (docs/cuda.md, "On a GPU"). */
__device__ static inline void note_forced(const gpu_view &g, uint64_t step) {
    if (is_forced(g.gates, step)) /* relaxed: kernels read it later, or do not need it */
        gpu_atomic<uint32_t>(g.counters->forced).store(1, cuda::memory_order_relaxed);
}

/* Before the lookup of a step whose every block must know whether the gate was forced open. One warp. */
__global__ void frugal_forced_kernel(gpu_view g, uint64_t step) {
    if (threadIdx.x == 0) note_forced(g, step);
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

/* The beginning of a replayed step, after its gate: finds which step it is, fetches the groups' numbers in it, and
 * notes whether the gate was forced open. One warp. */
__global__ void frugal_begin_kernel(gpu_view g) {
    uint64_t replay = g.counters->replays;
    fetch_hypers(g, g.control->replays[replay % REPLAYS].step);
    __syncwarp();
    if (threadIdx.x != 0) return;
    g.counters->replays = replay + 1;
    *g.current = g.control->replays[replay % REPLAYS];
    if (g.current->waits) note_forced(g, g.current->step);
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_GATE_CUH */
