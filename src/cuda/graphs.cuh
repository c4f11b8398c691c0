/* graphs.cuh - a step in a CUDA graph: its kernels find what changes from step to step in `current`, which the first
 * of them fills from a descriptor that frugal_cuda_replay has written to host memory. */
#ifndef FRUGAL_CUDA_GRAPHS_CUH
#define FRUGAL_CUDA_GRAPHS_CUH

#include "operations.cuh"

namespace frugal_cuda {

static frugal_status check_capture(const frugal *f, uint32_t device, const char *call, gpu_device **out) {
    gpu_device *c = gpu_device_of(f, device);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!c) return frugal_fail(FRUGAL_ERR_DEVICE, "%s: device %u is not attached by frugal_cuda_attach", call, device);
    on_gpu on(c);
    cudaError_t error = cudaStreamIsCapturing(c->stream, &capture);
    if (error != cudaSuccess) return check_cuda(c, error, call);
    if (capture != cudaStreamCaptureStatusActive)
        return frugal_fail(FRUGAL_ERR_ORDER, "%s: the stream of device %u is not being captured", call, device);
    *out = c;
    return FRUGAL_OK;
}

/* The largest step that there can be. The graph's kernels are launched for it, and find the actual sizes in
 * `current`. */
static gpu_step largest_step(const gpu_device *c) {
    gpu_step given = {};
    given.n = given.n_unique = frugal_settings(c->f)->max_keys;
    given.n_chunks = (uint32_t)c->max_chunks;
    given.brings = given.replayed = 1;
    return given;
}

} /* namespace frugal_cuda */

using namespace frugal_cuda; /* frugal_cuda.h declares these with C linkage, so they are outside of the namespace */

frugal_status frugal_cuda_capture_lookup(frugal *f, uint32_t device, float *rows, const uint32_t **n) {
    gpu_device *c = NULL;
    frugal_status status = check_capture(f, device, "cuda_capture_lookup", &c);
    if (status != FRUGAL_OK) return status;
    if (!rows) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_capture_lookup: `rows` is NULL");
    on_gpu on(c);
    cudaError_t error = FRUGAL_LAUNCH(frugal_begin_kernel, 1, WARP, c->stream, c->view);
    if ((status = check_cuda(c, error, "cuda_capture_lookup")) != FRUGAL_OK) return status;
    if (n) *n = &c->view.current->n;
    return enqueue_lookup(c, largest_step(c), NULL, {rows, c->store->dim, FRUGAL_FP32, 0});
}

frugal_status frugal_cuda_capture_update(frugal *f, uint32_t device, const float *grads) {
    gpu_device *c = NULL;
    frugal_status status = check_capture(f, device, "cuda_capture_update", &c);
    if (status != FRUGAL_OK) return status;
    if (!grads) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_capture_update: `grads` is NULL");
    on_gpu on(c);
    return enqueue_update(c, largest_step(c), gradient_source_of(c, grads, c->store->dim, FRUGAL_FP32, NULL));
}

frugal_status frugal_cuda_replay(frugal *f, uint32_t device, uint64_t step, const frugal_gradients *gradients) {
    gpu_device *c = f ? gpu_device_of(f, device) : NULL;
    if (!c)
        return frugal_fail(FRUGAL_ERR_DEVICE, "cuda_replay: device %u is not attached by frugal_cuda_attach", device);
    if (gradients && gradients->grads)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "cuda_replay: the graph has its own `grads`; set `records` if there are gradients");
    c->replaying = 1;
    frugal_status status = frugal_lookup(f, device, step, NULL);
    if (status == FRUGAL_OK) status = frugal_update(f, device, step, gradients);
    c->replaying = 0;
    if (status == FRUGAL_OK) c->replays++;
    return status;
}

#endif /* FRUGAL_CUDA_GRAPHS_CUH */
