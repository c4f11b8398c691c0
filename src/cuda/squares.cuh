/* squares.cuh - the sum of squares of a step's gradients (frugal_sum_squares): a kernel writes the squares of each row
 * to host memory, and the host adds them in order. */
#ifndef FRUGAL_CUDA_SQUARES_CUH
#define FRUGAL_CUDA_SQUARES_CUH

#include "enqueue.cuh"

namespace frugal_cuda {

/* squares[n_unique]: of each row's gradient, summed as in an update; 0 of own rows of frozen tables. */
template <int V, element_types T>
__device__ static inline void square_gradients(const gpu_view &g, const gpu_step &given, const gradient_source &s,
                                               float *squares) {
    lane_group<V> group;
    const step_fields step = {g, given};
    uint64_t items = s.grads ? (uint64_t)step.n_unique() + step.n_chunks() : step.n_unique();
    for (uint64_t at = group.first; at < items; at += group.stride) {
        uint64_t item = at + group.of_warp;
        gradient_item it = gradient_item_of<V, T>(g, group, step, s, item);
        pack<V> lanes = {};
        for (uint32_t tile = group.lane * V; it.active && tile < g.dim; tile += TILE) {
            tile_sum<V> sum = sum_tile<V, T>(g, s, it.terms, tile);
            FRUGAL_ALL_PASSES
            for (uint32_t p = 0; p < PASSES; p++)
                for (int v = 0; v < V && tile + 32 * p < g.dim; v++)
                    lanes.x[v] = frugal_fma(sum.pass[p].x[v], sum.pass[p].x[v], lanes.x[v]);
        }
        float all = fold_lanes<V>(lanes);
        if (!it.active || group.lane != 0) continue;
        int grouped = g.groups && it.unique < step.n_unique() - step.n_guests();
        uint32_t of = grouped ? frugal_group_of(g.groups, g.n_groups, step.rows()[it.unique]) : 0;
        squares[it.unique] = grouped && g.groups[of].optimizer.frozen ? 0 : all;
    }
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 2)
    frugal_squares_kernel(gpu_view g, gpu_step step, gradient_source s, float *squares) {
    square_gradients<V, FLOATS>(g, step, s, squares);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 2)
    frugal_squares_typed_kernel(gpu_view g, gpu_step step, gradient_source s, float *squares) {
    square_gradients<V, ANY_TYPES>(g, step, s, squares);
}

/* Allocates memory for the squares, at the first call. */
static frugal_status open_squares(gpu_device *c) {
    void *memory = NULL, *seen = NULL;
    size_t bytes = frugal_settings(c->f)->max_keys * sizeof(float);
    if (c->squares) return FRUGAL_OK;
    cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&seen, memory, 0);
    if (error != cudaSuccess && memory) cudaFreeHost(memory);
    if (error != cudaSuccess) return check_cuda(c, error, "memory for squares");
    c->squares = (float *)memory, c->squares_seen = (float *)seen;
    return FRUGAL_OK;
}

static frugal_status device_squares(void *device, const frugal_step *step, const void *grads, double *squares) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = check_stream(c, "sum_squares");
    if (status == FRUGAL_OK) status = open_squares(c);
    if (status != FRUGAL_OK) return status;
    gpu_step given = gpu_step_of(c, step);
    gradient_source s = gradient_source_of(c, grads, step->stride, step->as, step->bags);
    const launch_form form = {s.as != FRUGAL_FP32, is_wide_with(&c->view, grads, s.stride, s.as)};
    uint32_t grid = grid_for(c, KERNEL_SQUARES, (uint64_t)given.n_unique + given.n_chunks, form);
    cudaError_t error = cudaSuccess;
    if (given.n_unique > 0)
        error = FRUGAL_LAUNCH_FORM(form, frugal_squares, grid, c->stream, c->view, given, s, c->squares_seen);
    if (error == cudaSuccess) error = cudaStreamSynchronize(c->stream);
    if (error != cudaSuccess) return check_cuda(c, error, "squares of gradients");
    *squares = 0;
    uint32_t n = step->summed ? step->n_summed : given.n_unique;
    for (uint32_t i = 0; i < n; i++) *squares += (double)c->squares[step->summed ? step->summed[i] : i];
    return FRUGAL_OK;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_SQUARES_CUH */
