/* announce.cuh - batches whose keys lie in the GPU's memory: sorted there, or copied to the host. */
#ifndef FRUGAL_CUDA_ANNOUNCE_CUH
#define FRUGAL_CUDA_ANNOUNCE_CUH

#include "operations.cuh"

#include <stdlib.h>

namespace frugal_cuda {

/* Can the GPU read the segments' keys? A kernel that cannot would end the context. */
static frugal_status check_keys(gpu_device *c, const frugal_batch *batch) {
    for (uint32_t i = 0; i < batch->n_segments; i++) {
        const frugal_keys *s = &batch->segments[i];
        const void *keys = s->keys ? (const void *)s->keys : (const void *)s->keys32;
        cudaPointerAttributes known;
        if (!keys || s->n == 0) continue; /* announcing finds what is missing */
        cudaError_t error = cudaPointerGetAttributes(&known, keys);
        if (error != cudaSuccess) return check_cuda(c, error, "cuda_announce");
        if (known.type == cudaMemoryTypeUnregistered || known.type == cudaMemoryTypeHost)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "cuda_announce: device %u: the keys of segment %u are not in a GPU's memory: announce "
                               "them by frugal_announce",
                               c->device, i);
        if (known.type == cudaMemoryTypeDevice && known.device != c->ordinal)
            return frugal_fail(
                FRUGAL_ERR_ARGUMENT,
                "cuda_announce: device %u: the keys of segment %u are in the memory of GPU %d: copy them "
                "to GPU %d",
                c->device, i, known.device, c->ordinal);
        if ((uintptr_t)keys % (s->keys ? sizeof *s->keys : sizeof *s->keys32))
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "cuda_announce: device %u: the keys of segment %u begin at %p, which is not aligned for "
                               "keys of %zu bytes",
                               c->device, i, keys, s->keys ? sizeof *s->keys : sizeof *s->keys32);
    }
    return FRUGAL_OK;
}

/* Copies the keys of all segments to `to`, each behind the one before, and waits for the stream. Keys of one segment
 * are of one size, so each begins at a multiple of 8 bytes. */
static frugal_status copy_keys(gpu_device *c, const frugal_batch *batch, frugal_keys *segments, unsigned char *to,
                               cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; i < batch->n_segments && error == cudaSuccess; i++) {
        frugal_keys *s = &segments[i];
        *s = batch->segments[i];
        const void *from = s->keys ? (const void *)s->keys : (const void *)s->keys32;
        size_t bytes = s->n * (s->keys ? sizeof *s->keys : sizeof *s->keys32);
        if (bytes > 0 && from) error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);
        if (s->keys) s->keys = (const uint64_t *)(const void *)to;
        if (s->keys32) s->keys32 = (const int32_t *)(const void *)to;
        to += whole_words(bytes);
    }
    cudaError_t waited = cudaStreamSynchronize(stream); /* also after a failure: the caller frees memory */
    return check_cuda(c, error == cudaSuccess ? waited : error, "copying keys");
}

/* For a device that does not sort: the host does. */
static frugal_status announce_copied(gpu_device *c, uint64_t step, const frugal_batch *batch, cudaStream_t stream) {
    uint64_t n = 0, most = frugal_settings(c->f)->max_keys;
    for (uint32_t i = 0; i < batch->n_segments; i++) n += batch->segments[i].n;
    if (n > most) n = 0; /* announcing refuses that, before it reads a key */
    size_t segments_bytes = (batch->n_segments + 1) * sizeof(frugal_keys);
    size_t bytes = segments_bytes + (n + batch->n_segments) * sizeof(uint64_t);
    unsigned char *memory = (unsigned char *)malloc(bytes);
    if (!memory) return frugal_fail(FRUGAL_ERR_MEMORY, "cuda_announce: %zu bytes are not available", bytes);
    frugal_keys *segments = (frugal_keys *)(void *)memory;
    frugal_batch copied = {n > 0 ? segments : batch->segments, batch->n_segments, batch->read_only};
    frugal_status status = n > 0 ? copy_keys(c, batch, segments, memory + segments_bytes, stream) : FRUGAL_OK;
    if (status == FRUGAL_OK) status = frugal_announce(c->f, c->device, step, &copied);
    free(memory);
    return status;
}

} /* namespace frugal_cuda */

using namespace frugal_cuda; /* frugal_cuda.h declares this with C linkage, so it is outside of the namespace */

frugal_status frugal_cuda_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch, void *stream) {
    gpu_device *c = f ? gpu_device_of(f, device) : NULL;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStream_t caller = stream ? (cudaStream_t)stream : cudaStreamLegacy;
    if (!c)
        return frugal_fail(FRUGAL_ERR_DEVICE, "cuda_announce: device %u is not attached by frugal_cuda_attach", device);
    if (!batch || (batch->n_segments && !batch->segments))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_announce: the batch is NULL");
    {
        on_gpu on(c);
        frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
        cudaError_t error = status == FRUGAL_OK ? cudaStreamIsCapturing(caller, &capture) : cudaSuccess;
        if (error == cudaErrorStreamCaptureImplicit)
            return frugal_fail(FRUGAL_ERR_ORDER,
                               "cuda_announce: device %u: the default stream cannot be used while a stream that blocks "
                               "is being captured: end the capture first, or write the keys on another stream",
                               device);
        if (status == FRUGAL_OK) status = check_cuda(c, error, "cuda_announce");
        if (status == FRUGAL_OK && capture != cudaStreamCaptureStatusNone)
            status = frugal_fail(FRUGAL_ERR_ORDER, "cuda_announce: device %u: the stream is being captured", device);
        if (status == FRUGAL_OK) status = check_keys(c, batch);
        if (status != FRUGAL_OK) return status;
        if (!frugal_sorts(f, device) || batch->n_segments > MOST_SEGMENTS)
            return announce_copied(c, step, batch, caller);
    }
    return frugal_announce_there(f, device, step, batch, caller);
}

#endif /* FRUGAL_CUDA_ANNOUNCE_CUH */
