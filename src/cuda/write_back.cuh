/* write_back.cuh - the kernel that writes back what the device keeps in its cache, when the rows are recalled, or when
 * the host reads the table.
 *
 * It runs while no lookup and no update of the device does: the step before is done, and the gate of the next one waits
 * for it, or the host has waited for the caller's stream. If a stop forces that gate open, they do run, but change and
 * report nothing of what is kept. All these kernels are on one stream. */
#ifndef FRUGAL_CUDA_WRITE_BACK_CUH
#define FRUGAL_CUDA_WRITE_BACK_CUH

#include "lookup.cuh"

namespace frugal_cuda {

/* The last block to end says so. It has acquired what the others wrote, and releases that. */
__device__ static inline void complete_write_back(const gpu_view &g) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    gpu_atomic<uint32_t> blocks(g.counters->cleaning_blocks);
    if (blocks.fetch_add(1, cuda::memory_order_acq_rel) + 1 != gridDim.x) return; /* [C7] itself */
    blocks.store(0, cuda::memory_order_relaxed);
    report_kept(g);
    __threadfence_system();
    system_atomic<uint64_t>(g.control->cleanings)
        .store(++g.counters->cleanings, cuda::memory_order_release); /* [C6] pairs with [C8] */
}

/* Writes back rows[n], where they have dirty copies; if `rows` is NULL, the copies at the n ways. A row that is named
 * twice may be written twice, with the same bits, and is counted once. */
template <int V, element_types T>
__device__ static inline void write_back_rows(const gpu_view &g, const uint32_t *rows, uint64_t n) {
    lane_group<V> group;
    for (uint64_t at = group.first; at < n; at += group.stride) {
        uint64_t item = at + group.of_warp;
        int active = item < n, has_way = active && group.lane < (rows ? WAYS : 1);
        uint32_t row = active && rows ? rows[item] : NO_ROW;
        uint64_t base = rows ? set_of(g.sets, row) * WAYS : item;
        gpu_atomic<uint64_t> word_at(g.words[has_way ? base + group.lane : 0]);
        uint64_t word = has_way ? word_at.load(cuda::memory_order_relaxed) : FREE_WORD;
        int has_row = is_dirty(word) && (!rows || (uint32_t)(word >> 32) == row);
        uint32_t found = group.bits(__ballot_sync(FULL_WARP, has_row));
        uint32_t way = found ? (uint32_t)__ffs((int)found) - 1 : 0;
        row = __shfl_sync(FULL_WARP, (uint32_t)(word >> 32), (int)(group.leader + way));
        if (found == 0) continue;
        write_back_copy<V, T>(g, group, (uint32_t)(base + way), row);
        if (has_row && word_at.compare_exchange_strong(word, word & ~(uint64_t)DIRTY, cuda::memory_order_relaxed,
                                                       cuda::memory_order_relaxed))
            gpu_atomic<unsigned long long>(g.counters->cleaned).fetch_add(1, cuda::memory_order_relaxed);
    }
    complete_write_back(g);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_write_back_kernel(gpu_view g, const uint32_t *rows, uint64_t n) {
    write_back_rows<V, FLOATS>(g, rows, n);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_write_back_typed_kernel(gpu_view g, const uint32_t *rows, uint64_t n) {
    write_back_rows<V, ANY_TYPES>(g, rows, n);
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_WRITE_BACK_CUH */
