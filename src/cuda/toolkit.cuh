/* toolkit.cuh - CUDA, or the header that replaces it (FRUGAL_CUDA_ON_HOST); how kernels are launched and calls of the
 * driver are found with either. */
#ifndef FRUGAL_CUDA_TOOLKIT_CUH
#define FRUGAL_CUDA_TOOLKIT_CUH

#ifdef FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUDA_ON_HOST
#define FRUGAL_ALL_PASSES
#define FRUGAL_SOME_ROWS
#else
#include <cuda.h>
#include <cuda/atomic>
#include <cuda_runtime.h>
#define FRUGAL_LAUNCH     frugal_cuda::launch
#define FRUGAL_ALL_PASSES _Pragma("unroll")   /* so that their values stay in registers */
#define FRUGAL_SOME_ROWS  _Pragma("unroll 2") /* two rows are loaded together; more would be more code */

namespace frugal_cuda {

template <typename T> struct same_type { using type = T; }; /* arguments are converted, not deduced */

/* Launches a kernel. Not by <<<>>>, whose error is found only as the thread's last error, which may be an older one. */
template <typename... P>
static cudaError_t launch(void (*kernel)(P...), unsigned grid, unsigned block, cudaStream_t stream,
                          typename same_type<P>::type... arguments) {
    void *all[] = {(void *)&arguments...};
    return cudaLaunchKernel((const void *)kernel, dim3(grid), dim3(block), all, 0, stream);
}

} /* namespace frugal_cuda */
#endif

namespace frugal_cuda {

/* Finds a call of the driver without linking against it; NULL: the driver has none of that name. */
static inline void *find_driver_call(const char *name) {
    void *call = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? call : NULL;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_TOOLKIT_CUH */
