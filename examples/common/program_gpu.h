/* What the example programs' parts on a GPU do alike: their includes, calls that fail in words, a stream, a cuBLAS handle.
 *
 * For .cu files, first of all includes. Compiled by nvcc, or as C++ against CUDA on the host (-DFRUGAL_CUDA_ON_HOST, the
 * header's name, and -DFRUGAL_CUBLAS_ON_HOST), as the tests do it.
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

#include "examples/common/program.h"

#define PROGRAM_ALL_LANES 0xffffffffu

/* The sum of a warp's values, in lane 0, always in the same order. */
static inline __device__ float program_warp_sum(float value) {
    for (int width = 16; width; width /= 2) value += __shfl_down_sync(PROGRAM_ALL_LANES, value, width);
    return value;
}

static inline int program_cuda_fail(int ordinal, const char *what, cudaError_t status, program_error *error) {
    cudaGetLastError(); /* it is told here: a later call of another must not find it */
    return program_fail(error, "cuda:%d: %s: %s", ordinal, what, cudaGetErrorString(status));
}
static inline int program_cublas_fail(int ordinal, cublasStatus_t status, program_error *error) {
    return program_fail(error, "cuda:%d: cuBLAS: %s", ordinal, cublasGetStatusString(status));
}

/* Runs a CUDA call; where it fails, so does the function that it stands in. */
#define PROGRAM_TRY(ordinal, call, error)                                                                              \
    do {                                                                                                               \
        cudaError_t program_status = (call);                                                                           \
        if (program_status != cudaSuccess) return program_cuda_fail(ordinal, #call, program_status, error);            \
    } while (0)

/* A stream that waits for no other. NULL where there is no such GPU: whoever uses it next will say why. */
static inline cudaStream_t program_cuda_stream(int ordinal) {
    cudaStream_t stream = NULL;
    if (cudaSetDevice(ordinal) == cudaSuccess &&
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess)
        return stream;
    cudaGetLastError();
    return NULL;
}

/* A handle for one stream, so that its results do not depend on what runs beside. */
static inline int program_cublas_open(cublasHandle_t *products, int ordinal, cudaStream_t stream,
                                      program_error *error) {
    cublasStatus_t status = cublasCreate(products);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetStream(*products, stream);
    return status == CUBLAS_STATUS_SUCCESS ? 0 : program_cublas_fail(ordinal, status, error);
}

#endif
