/* readback.cuh - does the GPU see what the host has written? Asked of all pinned memory when a device is attached.
 *
 * It would not where the driver still has a registration of memory that lay at the same addresses before: then the GPU
 * reaches the pages of before, and training would be wrong without an error. */
#ifndef FRUGAL_CUDA_READBACK_CUH
#define FRUGAL_CUDA_READBACK_CUH

#include "pinning.cuh"
#include "rows.cuh"

namespace frugal_cuda {

constexpr uint32_t READ_BACK = BLOCK_THREADS; /* words of a region, at most, spread over it */

/* Reads n words, `stride` words apart; one block. Atomic, because other processes may write what they share. */
__global__ void frugal_read_back_kernel(uint32_t *words, uint64_t stride, uint32_t n, uint32_t *read) {
    uint32_t i = threadIdx.x;
    if (i < n) read[i] = system_atomic<uint32_t>(words[i * stride]).load(cuda::memory_order_relaxed);
}

/* Compares words of the region, its last one among them; those that have changed meanwhile are read again. It uses the
 * memory of a batch. */
static frugal_status read_back(gpu_device *c, const pinned_memory *pinned, const char *name) {
    uint32_t read[READ_BACK] = {}, i = 0;
    const uint64_t before =
        -(uintptr_t)pinned->memory.start % sizeof *read; /* bytes; rows of 16 bits may begin there */
    uint64_t n_words = pinned->memory.bytes < before ? 0 : (pinned->memory.bytes - before) / sizeof *read;
    uint64_t room = 4 * c->pitch, n = n_words < room ? n_words : room;
    if (n > READ_BACK) n = READ_BACK;
    if (n == 0) return FRUGAL_OK;
    uint64_t stride = n > 1 ? (n_words - 1) / (n - 1) : 1, first = n_words - 1 - (n - 1) * stride;
    uint32_t *words = (uint32_t *)(void *)((unsigned char *)pinned->memory.start + before) + first;
    void *seen = NULL;
    cudaError_t error = seen_by_gpu(pinned, words, &seen);
    for (int tries = 0; tries < 3 && i < n && error == cudaSuccess; tries++) {
        error = FRUGAL_LAUNCH(frugal_read_back_kernel, 1, READ_BACK, c->ahead_stream, (uint32_t *)seen, stride,
                              (uint32_t)n, c->arrays_memory);
        if (error == cudaSuccess) error = copy_to_host(c, read, c->arrays_memory, n * sizeof *read);
        for (i = 0; i < n && read[i] == __atomic_load_n(&words[i * stride], __ATOMIC_RELAXED);) i++;
    }
    if (error != cudaSuccess) return check_cuda(c, error, "reading pinned memory back");
    if (i == n) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_CUDA,
                       "cuda_attach: device %u, GPU %d does not see %s, %zu bytes: at %p it reads %08x, where the host "
                       "has %08x. CUDA has other memory registered there, as after the loss of a GPU: start the "
                       "process anew",
                       c->device, c->ordinal, name, pinned->memory.bytes, (void *)(words + i * stride), read[i],
                       words[i * stride]);
}

/* All that the device has pinned. */
static frugal_status read_back_all(gpu_device *c) {
    const struct {
        const char *name;
        const pinned_memory *pinned;
    } all[] = {{"the table", &c->pins->table},
               {"the optimizer's state", &c->pins->state},
               {"the gates' word", &c->pins->gates},
               {"the bits of rows that are alone", &c->pins->alone},
               {"the staging ring", &c->blocks},
               {"the announced batches", &c->batches},
               {"the memory where rows of other machines arrive", &c->guests},
               {"the words that GPU and host exchange", &c->control_memory},
               {"the memory from which segments of keys are sent", &c->sort_sent_memory}};
    frugal_status status = FRUGAL_OK;
    for (auto &one : all)
        if (status == FRUGAL_OK && one.pinned->pinned) status = read_back(c, one.pinned, one.name);
    return status;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_READBACK_CUH */
