/* secondaries.cuh - room for secondaries (src/steps/clocks.c) in the GPU's memory: operation `list_secondaries`. */
#ifndef FRUGAL_CUDA_SECONDARIES_CUH
#define FRUGAL_CUDA_SECONDARIES_CUH

#include "cache.cuh"

#include <stdlib.h>
#include <string.h>

namespace frugal_cuda {

/* Allocates memory of the GPU. If there is not enough, the message says what it is for. */
static frugal_status allocate_on_gpu(gpu_device *c, uint64_t bytes, const char *what, void **out) {
    size_t left = 0, all = 0;
    cudaError_t error = cudaMalloc(out, (size_t)bytes);
    if (error == cudaSuccess) c->bytes += bytes;
    if (error != cudaErrorMemoryAllocation) return check_cuda(c, error, what);
    cudaGetLastError();
    *out = NULL;
    cudaMemGetInfo(&left, &all);
    return frugal_fail(FRUGAL_ERR_MEMORY, "device %u, GPU %d: %llu bytes for %s are not available: %zu of %zu are free",
                       c->device, c->ordinal, (unsigned long long)bytes, what, left, all);
}

/* The numbers of the secondaries of each announced batch; allocated for the first list, and kept. */
static frugal_status open_kept(gpu_device *c) {
    uint64_t keys = frugal_settings(c->f)->max_keys;
    uint32_t n = frugal_settings(c->f)->lookahead + 1;
    void *memory = NULL, *sent = NULL;
    if (c->secondaries_memory) return FRUGAL_OK;
    frugal_status status = allocate_on_gpu(c, n * keys * sizeof(uint32_t), "numbers of secondaries", &memory);
    if (status != FRUGAL_OK) return status;
    cudaError_t error = cudaHostAlloc(&sent, (size_t)(n * keys * sizeof(uint32_t)), cudaHostAllocPortable);
    if (error != cudaSuccess) {
        cudaFree(memory);
        c->bytes -= n * keys * sizeof(uint32_t);
        return check_cuda(c, error, "memory from which ways are sent");
    }
    c->secondaries_memory = (uint32_t *)memory, c->secondaries_sent_memory = (uint32_t *)sent;
    for (uint32_t i = 0; i < n; i++)
        c->aheads[i].secondaries = c->secondaries_memory + i * keys,
        c->aheads[i].secondaries_sent = c->secondaries_sent_memory + i * keys;
    return FRUGAL_OK;
}

static frugal_status device_list_secondaries(void *device, const uint32_t *rows, uint32_t n) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    uint64_t copy = c->view.copy_stride * sizeof(float);
    void *copies = NULL;
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    uint32_t *own_rows = n ? (uint32_t *)frugal_allocate(c->f, n * sizeof *rows, 64) : NULL;
    if (status == FRUGAL_OK && n && !own_rows)
        status = frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes for %u rows are not available", c->device,
                             n * sizeof *rows, n);
    if (status == FRUGAL_OK && n) status = open_kept(c);
    if (status == FRUGAL_OK && n) status = allocate_on_gpu(c, n * copy, "secondaries", &copies);
    if (status != FRUGAL_OK) {
        frugal_free(c->f, own_rows, n * sizeof *rows);
        return status;
    }
    if (n) memcpy(own_rows, rows, n * sizeof *rows);
    if (c->secondary_copies) cudaFree(c->secondary_copies);
    frugal_free(c->f, c->secondary_rows, c->n_secondaries * sizeof *c->secondary_rows);
    c->bytes -= c->n_secondaries * copy;
    c->secondary_copies = (float *)copies, c->secondary_rows = own_rows, c->n_secondaries = n;
    c->full = 1;
    empty_cache(c); /* if this fails, the next operation that uses the cache empties it */
    return FRUGAL_OK;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_SECONDARIES_CUH */
