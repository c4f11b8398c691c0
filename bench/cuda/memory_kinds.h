/* memory_kinds.h - memory whose rows a GPU reads where they lie, by how it was made; every word of it is a function of
 * its place.
 *
 * registered  mapped, huge pages asked for, cudaHostRegister: as the library has it
 * numa        cuMemCreate on the host's NUMA node, in pages of 2 MB or more, mapped for the GPU and the host
 * gpu         the GPU's own memory, to compare with
 * pinned      cudaHostAlloc
 * managed     cudaMallocManaged, which stays on the host and is mapped for the GPU
 */
#ifndef FRUGAL_BENCH_CUDA_MEMORY_KINDS_H
#define FRUGAL_BENCH_CUDA_MEMORY_KINDS_H

#include "src/cuda/toolkit.cuh"

#include "bench/cuda/by_processors.h"
#include "bench/cuda/ladder.h"

#include <errno.h>
#include <sys/mman.h>

enum { REGISTERED, NUMA, GPU, PINNED, MANAGED, KINDS }; /* what matters most comes first */
static const char *const kind_names[] = {"registered", "numa", "gpu", "pinned", "managed", NULL};
enum : uint64_t { HUGE_PAGE = 2 << 20, PACK = sizeof(uint4) };

/* Of the driver; headers of Toolkits before 13 may lack these. */
enum { ATTRIBUTE_HOST_NUMA_ID = 134, ATTRIBUTE_HOST_NUMA_MEMORY = 141, LOCATION_HOST_NUMA = 3 };
#if CUDART_VERSION >= 13000
static_assert(ATTRIBUTE_HOST_NUMA_ID == (int)CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, "cuda.h");
static_assert(ATTRIBUTE_HOST_NUMA_MEMORY == (int)CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
              "cuda.h");
static_assert(LOCATION_HOST_NUMA == (int)CU_MEM_LOCATION_TYPE_HOST_NUMA, "cuda.h");
#endif

static inline __host__ __device__ uint32_t kinds_word_of(uint64_t pack) { /* of all four words of a pack */
    uint32_t x = (uint32_t)pack * 0x9E3779B9u + (uint32_t)(pack >> 32);
    x = (x ^ x >> 15) * 0x85EBCA6Bu;
    return x ^ x >> 13;
}

static __global__ void kinds_write_kernel(uint4 *to, uint64_t packs) {
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < packs; i += threads) {
        uint32_t x = kinds_word_of(i);
        to[i] = make_uint4(x, x, x, x);
    }
}

/* >>making memory: each of these returns NULL, or why it could not be made */

typedef struct memory {
    uint32_t kind;
    uint64_t bytes, page_bytes; /* page_bytes: what the driver said; 0: nothing */
    void *host;                 /* where the host writes; NULL: it cannot */
    uint4 *seen;                /* where the GPU reads */
    void *mapped;               /* registered: all that was mapped */
    double huge_share, make_s;  /* of `bytes`, on huge pages of the processor; below 0: not known */
} memory;

static void kinds_write_by_host(const memory *m) {
    uint4 *to = (uint4 *)m->host;
    by_all_processors(m->bytes / PACK, [to](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; i++) {
            uint32_t x = kinds_word_of(i);
            to[i] = make_uint4(x, x, x, x);
        }
    });
}

/* The share of memory that lies on huge pages, whatever was asked for. */
static double kinds_huge_share_of(const memory *m) {
    unsigned long long begin = 0, end = 0, kib, bytes = 0, first = (uintptr_t)m->host, last = first + m->bytes;
    char line[512];
    FILE *file = fopen("/proc/self/smaps", "r");
    if (!file) return -1;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %llu", &kib) == 1)
            bytes += begin < last && first < end ? kib * 1024 : 0;
        else
            sscanf(line, "%llx-%llx ", &begin, &end);
    fclose(file);
    return std::min(1., (double)bytes / (double)m->bytes);
}

static const char *kinds_make_registered(memory *m) {
    void *seen;
    m->mapped = mmap(NULL, m->bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->mapped == MAP_FAILED) return strerror(errno);
    m->host = (void *)(((uintptr_t)m->mapped + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(m->host, m->bytes, MADV_HUGEPAGE);
    kinds_write_by_host(m); /* before one thread pins it page by page */
    cudaError_t error = cudaHostRegister(m->host, m->bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error != cudaSuccess) {
        cudaGetLastError();
        munmap(m->mapped, m->bytes + HUGE_PAGE);
        return cudaGetErrorString(error);
    }
    LADDER_CHECK(cudaHostGetDevicePointer(&seen, m->host, 0));
    m->seen = (uint4 *)seen, m->huge_share = kinds_huge_share_of(m);
    return NULL;
}

#define DRIVER(name) ((decltype(&name))kinds_driver_call(#name))
static void *kinds_driver_call(const char *name) {
    void *call = frugal_cuda::find_driver_call(name);
    if (!call) bench_fail("the driver lacks %s, which Toolkit 12 has: update the driver", name);
    return call;
}

static int kinds_driver_attribute(int attribute) { /* -1: this driver does not know it */
    int value;
    return DRIVER(cuDeviceGetAttribute)(&value, (CUdevice_attribute)attribute, ladder_gpu(0)) == CUDA_SUCCESS ? value
                                                                                                              : -1;
}

static CUmemAllocationProp kinds_on_host_node(void) {
    CUmemAllocationProp how = {};
    how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    how.location = {(CUmemLocationType)LOCATION_HOST_NUMA, std::max(kinds_driver_attribute(ATTRIBUTE_HOST_NUMA_ID), 0)};
    return how;
}

static const char *kinds_make_numa(memory *m) {
    CUmemAllocationProp how = kinds_on_host_node();
    const CUmemAccessDesc access[2] = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, ladder_gpu(0)}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    size_t granularity = 0;
    int mapped = 0;
    CUresult error = DRIVER(cuMemGetAllocationGranularity)(&granularity, &how, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (error == CUDA_SUCCESS) {
        granularity = std::max<size_t>(granularity, HUGE_PAGE);
        m->page_bytes = granularity, m->bytes = (m->bytes + granularity - 1) / granularity * granularity;
        error = DRIVER(cuMemCreate)(&handle, m->bytes, &how, 0);
    }
    if (error != CUDA_SUCCESS) return cudaGetErrorString((cudaError_t)error);
    error = DRIVER(cuMemAddressReserve)(&at, m->bytes, granularity, 0, 0);
    if (error == CUDA_SUCCESS) mapped = (error = DRIVER(cuMemMap)(at, m->bytes, 0, handle, 0)) == CUDA_SUCCESS;
    if (mapped) error = DRIVER(cuMemSetAccess)(at, m->bytes, access, 2);
    DRIVER(cuMemRelease)(handle); /* it lives as long as it is mapped */
    m->host = (void *)(uintptr_t)at, m->seen = (uint4 *)m->host;
    if (error == CUDA_SUCCESS) return NULL;
    if (mapped) DRIVER(cuMemUnmap)(at, m->bytes);
    if (at) DRIVER(cuMemAddressFree)(at, m->bytes);
    return cudaGetErrorString((cudaError_t)error);
}

static cudaError_t kinds_advise(const memory *m, cudaMemoryAdvise advice, int gpu) {
#if CUDART_VERSION >= 13000
    return cudaMemAdvise(m->host, m->bytes, advice, {gpu ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost, 0});
#else
    return cudaMemAdvise(m->host, m->bytes, advice, gpu ? 0 : cudaCpuDeviceId);
#endif
}

static const char *kinds_make_by_runtime(memory *m) {
    void *seen = NULL;
    cudaError_t error = m->kind == PINNED ? cudaHostAlloc(&m->host, m->bytes, cudaHostAllocMapped)
                        : m->kind == GPU  ? cudaMalloc(&seen, m->bytes)
                                          : cudaMallocManaged(&m->host, m->bytes, cudaMemAttachGlobal);
    if (error == cudaSuccess && m->kind == PINNED) error = cudaHostGetDevicePointer(&seen, m->host, 0);
    if (error == cudaSuccess && m->kind == MANAGED) {
        seen = m->host;
        error = kinds_advise(m, cudaMemAdviseSetPreferredLocation, 0);
        if (error == cudaSuccess) error = kinds_advise(m, cudaMemAdviseSetAccessedBy, 1);
        if (error != cudaSuccess) cudaFree(m->host);
    }
    m->seen = (uint4 *)seen;
    cudaGetLastError();
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}

static const char *kinds_make_memory(memory *m, const ladder_machine *machine) {
    double since = bench_now();
    m->huge_share = -1;
    const char *why = m->kind == REGISTERED ? kinds_make_registered(m)
                      : m->kind == NUMA     ? kinds_make_numa(m)
                                            : kinds_make_by_runtime(m);
    if (why) return why;
    if (m->kind == GPU) {
        FRUGAL_LAUNCH(kinds_write_kernel, ladder_grid<kinds_write_kernel>(machine, m->bytes / PACK, 1), LADDER_BLOCK,
                      machine->stream, m->seen, m->bytes / PACK);
        LADDER_CHECK(cudaGetLastError());
        LADDER_CHECK(cudaStreamSynchronize(machine->stream));
    } else if (m->kind != REGISTERED)
        kinds_write_by_host(m);
    m->make_s = bench_now() - since;
    return NULL;
}

static void kinds_free_memory(const memory *m) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)m->host;
    if (m->kind == REGISTERED) {
        LADDER_CHECK(cudaHostUnregister(m->host));
        munmap(m->mapped, m->bytes + HUGE_PAGE);
    } else if (m->kind == NUMA) {
        LADDER_CHECK((cudaError_t)DRIVER(cuMemUnmap)(at, m->bytes));
        LADDER_CHECK((cudaError_t)DRIVER(cuMemAddressFree)(at, m->bytes));
    } else
        LADDER_CHECK(m->kind == PINNED ? cudaFreeHost(m->host) : cudaFree(m->seen));
}

#endif
