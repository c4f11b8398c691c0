/* cub.cuh - the two calls of CUB, a part of CUDA's Toolkit, that sorting makes. */
#ifndef FRUGAL_CUDA_CUB_CUH
#define FRUGAL_CUDA_CUB_CUH

#include "toolkit.cuh"

#if defined(FRUGAL_KERNELS_ALONE) /* for tools that look at our own kernels: CUB's are not compiled */
namespace cub {
struct DeviceRadixSort {
    static cudaError_t SortPairs(void *, size_t &, const uint32_t *, uint32_t *, const uint32_t *, uint32_t *, int, int,
                                 int, cudaStream_t);
};
struct DeviceScan {
    static cudaError_t InclusiveSum(void *, size_t &, const uint32_t *, uint32_t *, int, cudaStream_t);
};
} /* namespace cub */
#elif !defined(FRUGAL_CUDA_ON_HOST)
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#endif

#endif /* FRUGAL_CUDA_CUB_CUH */
