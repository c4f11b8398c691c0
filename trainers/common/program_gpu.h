/* What the GPU parts of the example programs have in common: includes, errors in words, and one list of all that is
 * opened on a GPU and closed at the end.
 *
 *     program_gpu gpu = program_gpu_open(ordinal);             with gpu.stream
 *     program_gpu_stream(&gpu, &copies, &error)
 *     program_gpu_event(&gpu, &done, cudaEventDisableTiming, &error)
 *     program_gpu_products(&gpu, &handle, &error)
 *     program_gpu_memory(&gpu, &rows, bytes, 0, "use a smaller --batch", &error)
 *     program_gpu_close(&gpu);                                 waits for the streams, and closes them all
 *
 * For .cu files, first of all includes. Compiled by nvcc, or as C++ against CUDA on the host (-DFRUGAL_CUDA_ON_HOST,
 * the header's name, and -DFRUGAL_CUBLAS_ON_HOST), as the tests do it.
 */
#ifndef PROGRAM_GPU_H
#define PROGRAM_GPU_H

#ifdef FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUBLAS_ON_HOST
#else
#include <cuda_runtime.h>
#include <cublas_v2.h>
#define FRUGAL_LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#define FRUGAL_SHARED(type, name, n)                    __shared__ type name[n]
#endif

#include "trainers/common/program.h"

#include <stdlib.h>
#include <string.h>

#define PROGRAM_ALL_LANES 0xffffffffu

/* The sum of a warp's values, in lane 0, always in the same order. */
static inline __device__ float program_warp_sum(float value) {
    for (int width = 16; width; width /= 2) value += __shfl_down_sync(PROGRAM_ALL_LANES, value, width);
    return value;
}

/* The sum of a block's N values into *total, always in the same order; part[N] is shared memory. */
template <uint32_t N, typename A>
static inline __device__ void program_block_total(A &part, double value, double *total) {
    part[threadIdx.x] = value;
    __syncthreads();
    for (uint32_t width = N / 2; width; width /= 2) {
        double other = threadIdx.x < width ? part[threadIdx.x + width] : 0.0;
        if (threadIdx.x < width) part[threadIdx.x] += other;
        __syncthreads();
    }
    if (!threadIdx.x) *total = part[0];
}

static inline int program_cuda_fail(int ordinal, const char *what, cudaError_t status, program_error *error) {
    cudaGetLastError(); /* cleared, because it is reported here: a later check must not find it */
    return program_fail(error, "cuda:%d: %s: %s", ordinal, what, cudaGetErrorString(status));
}
/* A GPU that is lost makes cuBLAS fail, too; CUDA knows the reason. */
static inline int program_cublas_fail(int ordinal, cublasStatus_t status, program_error *error) {
    cudaError_t reason = cudaGetLastError(); /* cleared, as above */
    if (reason == cudaSuccess)
        return program_fail(error, "cuda:%d: cuBLAS: %s", ordinal, cublasGetStatusString(status));
    return program_fail(error, "cuda:%d: cuBLAS: %s: %s: %s", ordinal, cublasGetStatusString(status),
                        cudaGetErrorName(reason), cudaGetErrorString(reason));
}

/* Runs a CUDA call; if it fails, the function that contains it fails. */
#define PROGRAM_TRY(ordinal, call, error)                                                                              \
    do {                                                                                                               \
        cudaError_t program_status = (call);                                                                           \
        if (program_status != cudaSuccess) return program_cuda_fail(ordinal, #call, program_status, error);            \
    } while (0)

typedef enum {
    PROGRAM_GPU_STREAM,
    PROGRAM_GPU_EVENT,
    PROGRAM_GPU_PRODUCTS,
    PROGRAM_GPU_MEMORY,
    PROGRAM_GPU_PINNED
} program_gpu_kind;

typedef struct program_gpu_thing {
    program_gpu_kind kind;
    void *at;
} program_gpu_thing;

typedef struct program_gpu {
    int ordinal;
    cudaStream_t stream; /* NULL where there is no such GPU: the next call that uses it says why */
    program_gpu_thing *things;
    uint32_t n;
} program_gpu;

/* Takes the GPU, with a stream that waits for no other. */
static inline program_gpu program_gpu_open(int ordinal) {
    program_gpu gpu = {ordinal, NULL, NULL, 0};
    if (cudaSetDevice(ordinal) == cudaSuccess &&
        cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking) == cudaSuccess)
        return gpu;
    cudaGetLastError();
    gpu.stream = NULL;
    return gpu;
}

/* Room for one more thing. */
static inline int program_gpu_reserve(program_gpu *gpu, program_error *error) {
    void *things = realloc(gpu->things, (gpu->n + 1) * sizeof *gpu->things);
    if (!things) return program_fail(error, "out of memory");
    gpu->things = (program_gpu_thing *)things;
    return 0;
}

static inline void program_gpu_add(program_gpu *gpu, program_gpu_kind kind, void *at) {
    gpu->things[gpu->n].kind = kind;
    gpu->things[gpu->n++].at = at;
}

/* Another stream. */
static inline int program_gpu_stream(program_gpu *gpu, cudaStream_t *stream, program_error *error) {
    if (program_gpu_reserve(gpu, error)) return -1;
    PROGRAM_TRY(gpu->ordinal, cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), error);
    program_gpu_add(gpu, PROGRAM_GPU_STREAM, (void *)*stream);
    return 0;
}

static inline int program_gpu_event(program_gpu *gpu, cudaEvent_t *event, unsigned flags, program_error *error) {
    if (program_gpu_reserve(gpu, error)) return -1;
    PROGRAM_TRY(gpu->ordinal, cudaEventCreateWithFlags(event, flags), error);
    program_gpu_add(gpu, PROGRAM_GPU_EVENT, (void *)*event);
    return 0;
}

/* A cuBLAS handle for the first stream alone, so that its results do not depend on what runs at the same time. */
static inline int program_gpu_products(program_gpu *gpu, cublasHandle_t *products, program_error *error) {
    if (program_gpu_reserve(gpu, error)) return -1;
    cublasStatus_t status = cublasCreate(products);
    if (status != CUBLAS_STATUS_SUCCESS) return program_cublas_fail(gpu->ordinal, status, error);
    program_gpu_add(gpu, PROGRAM_GPU_PRODUCTS, (void *)*products);
    status = cublasSetStream(*products, gpu->stream);
    return status == CUBLAS_STATUS_SUCCESS ? 0 : program_cublas_fail(gpu->ordinal, status, error);
}

/* Memory of the GPU, or of the host where `pinned`, into the pointer at `to`; `remedy` ends the message if there is
 * none. */
static inline int program_gpu_memory(program_gpu *gpu, void *to, size_t bytes, int pinned, const char *remedy,
                                     program_error *error) {
    void *memory = NULL;
    bytes = bytes ? bytes : 1;
    if (program_gpu_reserve(gpu, error)) return -1;
    cudaError_t status = pinned ? cudaMallocHost(&memory, bytes) : cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return program_fail(error, "cuda:%d: no %zu bytes %s for a step; %s", gpu->ordinal, bytes,
                            pinned ? "of the host" : "left", remedy);
    }
    if (status != cudaSuccess) return program_cuda_fail(gpu->ordinal, "memory for a step", status, error);
    program_gpu_add(gpu, pinned ? PROGRAM_GPU_PINNED : PROGRAM_GPU_MEMORY, memory);
    memcpy(to, &memory, sizeof memory);
    return 0;
}

static inline void program_gpu_release(const program_gpu_thing *thing) {
    switch (thing->kind) {
    case PROGRAM_GPU_STREAM:
        cudaStreamDestroy((cudaStream_t)thing->at);
        break;
    case PROGRAM_GPU_EVENT:
        cudaEventDestroy((cudaEvent_t)thing->at);
        break;
    case PROGRAM_GPU_PRODUCTS:
        cublasDestroy((cublasHandle_t)thing->at);
        break;
    case PROGRAM_GPU_MEMORY:
        cudaFree(thing->at);
        break;
    case PROGRAM_GPU_PINNED:
        cudaFreeHost(thing->at);
        break;
    }
}

static inline void program_gpu_close(program_gpu *gpu) {
    cudaSetDevice(gpu->ordinal);
    if (gpu->stream) cudaStreamSynchronize(gpu->stream);
    for (uint32_t i = 0; i < gpu->n; i++)
        if (gpu->things[i].kind == PROGRAM_GPU_STREAM) cudaStreamSynchronize((cudaStream_t)gpu->things[i].at);
    while (gpu->n) program_gpu_release(&gpu->things[--gpu->n]); /* the last one first: streams were there before */
    if (gpu->stream) cudaStreamDestroy(gpu->stream);
    cudaGetLastError();
    free(gpu->things);
    gpu->things = NULL;
}

#endif
