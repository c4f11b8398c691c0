/* cuda_on_host.h - CUDA on the host: a C++17 compiler builds frugal_cuda.cu against this header, and runs its kernels
 * without a GPU. Not a simulator of a GPU: a subset of the language and of the runtime, with checks that hardware
 * lacks.
 *
 * HOW TO USE IT
 *   g++ -std=c++17 -x c++ -ffp-contract=off -fno-math-errno '-DFRUGAL_CUDA_ON_HOST="tests/cuda/cuda_on_host.h"' -c
 *   frugal_cuda.cu and link cuda_on_host.o (devices, streams), cuda_on_host_grid.o (kernels) and coroutine.o. With
 *   ThreadSanitizer, cuda_on_host_grid.cc is compiled without it: it says for itself who has seen what.
 *   FRUGAL_CUDA_SEED=n another schedule, FRUGAL_CUDA_DEVICES=n; tests have cuda_on_host_hooks.h.
 *   gdb: break cuda_on_host::fail; print *cuda_on_host::current is the CUDA thread that runs; a kernel's stack is an
 *   ordinary one, that ends at coroutine_enter.
 *
 * THE SUBSET. What is not here does not compile, or ends the process with a message.
 *   Kernels: FRUGAL_LAUNCH((kernel<4, 8>), grid, block, stream, ...) where CUDA has <<<>>>, a cudaError_t as
 *   cudaLaunchKernel's; FRUGAL_SHARED(type, name, n) where it has __shared__; one dimension; blocks of whole warps; the
 *   mask of warp operations is 0xffffffff. Helpers that are given a shared array take it as a template parameter
 *   (`template <typename A> __device__ int f(A &array)`); `auto x = array[i]` does not compile, name the type.
 *   Runtime: the declarations below. Captures into graphs are of one stream, without events.
 *
 * HOW IT RUNS. Each stream has a thread of the system, and works off its queue, later: what is copied or launched may
 * not change meanwhile. Each CUDA thread is a coroutine. Blocks begin in a random order, 2 a multiprocessor at a time;
 * threads run in a random order until they wait at a barrier or a warp operation, sleep, or meet an atomic, at some of
 * which they let others run. A thread that meets none runs straight through. The random numbers come from the seed and
 * the number of the launch, so that a failure can be replayed as far as one stream's kernels go. A process that is
 * forked after its parent has used a device can use none, as with CUDA: cudaErrorInitializationError.
 *
 * WHAT IT CHECKS; each ends the process with a message that names kernel, block, thread and line:
 *   - threads of a block at different barriers, or some at one and others finished; likewise lanes and warp operations;
 *   - shared memory: read before it is written, outside of the array, written by one thread and read or written by
 *     another without a barrier between (or, within a warp, __syncwarp: shuffles and votes order no memory);
 *   - with AddressSanitizer, accesses outside of cudaMalloc's blocks, or after cudaFree;
 *   - with ThreadSanitizer, races of global memory: threads of a block are threads to it, ordered by barriers,
 *     __syncwarp, atomics, and the beginning and end of kernels. A change of a copy's source before it was
 *     synchronized, too. Above TSAN_FIBERS threads (cuda_on_host_grid.cc), several share one of the sanitizer's, and
 *     races among them are missed;
 *   - memory of cudaMalloc and cudaHostAlloc begins as NaN; copies are checked against the blocks and the direction;
 *   - copies that touch memory of another device; and where accesses are checked (gcc without sanitizers, and PTX),
 *     kernels that do, without access to that peer; or that touch registered memory (whole pages) by its address on the
 *     host: devices see it at another one (cudaHostGetDevicePointer). Memory of cudaHostAlloc has one address, as CUDA
 *     promises with unified addressing;
 *   - compare_exchange_weak fails without reason, now and then.
 *
 * WHAT IT CANNOT SHOW. Weak memory and stale L1 lines (atomics are the host's; ThreadSanitizer sees too little order,
 * but no reordering; it does not see fences either, so order by the atomic itself). Speed. Partial masks. Threads of a
 * warp that run apart without a switch point; a loop that waits without an atomic or __nanosleep never ends. Host
 * accesses to device memory, or a kernel's to host memory that is not registered. The NULL stream's implicit
 * synchronization with others (cudaMemcpy waits for the NULL stream alone, and for nothing else), except that it spoils
 * captures of blocking streams. Accesses to shared
 * memory that only atomics order (a flag in shared memory) are reported though they may be right; and an atomic load
 * and a plain read of the same element likewise. Calls of the runtime order host threads among themselves, as locks do:
 * races between these are missed.
 *
 * WHAT IT COSTS (about, one core, -O3): a launch 3 us, and 3 to 12 more to wait for it; an empty block of 256
 * threads 12 us; a __syncthreads or a shuffle 55 ns a thread, an access to shared memory 6 ns. With AddressSanitizer
 * four times that. With ThreadSanitizer a block is 80 us and a __syncthreads 260 ns a thread, and each stream whose
 * kernels run beside others' takes 100 MB (gcc's). */
#ifndef CUDA_ON_HOST_H
#define CUDA_ON_HOST_H

#ifdef __CUDACC__
#error "tests/cuda/cuda_on_host.h is for host compilers: nvcc has the real thing"
#endif

#include "cuda_on_host_hooks.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <atomic>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#define CUDART_VERSION 13000

/* >>language */
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
    return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
    return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}

/* >>runtime: types, with CUDA's numbers */
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorCudartUnloading = 4,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorDeviceUninitialized = 201,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorOperatingSystem = 304,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorContextIsDestroyed = 709,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotPermitted = 800,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorStreamCaptureWrongThread = 908,
    cudaErrorUnknown = 999
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};
enum cudaMemoryAdvise { cudaMemAdviseSetPreferredLocation = 3, cudaMemAdviseSetAccessedBy = 5 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1, cudaMemLocationTypeHost = 2 };
struct cudaMemLocation {
    cudaMemLocationType type;
    int id;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxBlockDimX = 2,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrKernelExecTimeout = 17,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrCanMapHostMemory = 19,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrAsyncEngineCount = 40,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrHostNativeAtomicSupported = 86,
    cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
    cudaDevAttrHostRegisterSupported = 99,
    cudaDevAttrPageableMemoryAccessUsesHostPageTables = 100,
    cudaDevAttrHostRegisterReadOnlySupported = 113
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2 /* CUDA spells it so */
};
enum : unsigned {
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaHostAllocWriteCombined = 4,
    cudaHostRegisterDefault = 0,
    cudaHostRegisterPortable = 1,
    cudaHostRegisterMapped = 2,
    cudaHostRegisterReadOnly = 8,
    cudaMemAttachGlobal = 1,
    cudaEnableDefault = 0
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock, canMapHostMemory, l2CacheSize;
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef void (*cudaHostFn_t)(void *);
#define cudaStreamLegacy ((cudaStream_t)0x1) /* the NULL stream, by its name; */
#define cudaStreamPerThread                                                                                            \
    ((cudaStream_t)0x2) /* the other one, which --default-stream can make of NULL: no call takes it */

/* The driver's part of it, which cudaGetDriverEntryPoint finds: waits and writes of streams, a device's primary context
 * and the stack of a thread's, memory that is made and mapped apart. A context tells on which device a thread is, and
 * no more. */
#define CUDAAPI
typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;
typedef struct CUctx_st *CUcontext;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef uint64_t cuuint64_t;
enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801
};
enum : unsigned { CU_STREAM_WAIT_VALUE_GEQ = 0, CU_STREAM_WAIT_VALUE_EQ = 1, CU_STREAM_WRITE_VALUE_DEFAULT = 0 };

/* Memory of the host's node by cuMemCreate. Devices and the host have one address space here: an address can be read
 * when a device and the host were given access, and before that not even by the one that was given it. */
enum CUdevice_attribute {
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141
};
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_HOST_NUMA = 3 };
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemAllocationHandleType { CU_MEM_HANDLE_TYPE_NONE = 0 };
enum CUmemAllocationGranularity_flags {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1
};
enum CUmemAccess_flags { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
typedef unsigned long long CUmemGenericAllocationHandle;
struct CUmemLocation {
    CUmemLocationType type;
    int id;
};
struct CUmemAllocationProp {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
};
struct CUmemAccessDesc {
    CUmemLocation location;
    CUmemAccess_flags flags;
};
/* Declared for their types, and not defined: the driver is not linked. */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice number);
CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags which);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t n);

typedef CUresult (*PFN_cuStreamWaitValue64)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
typedef CUresult (*PFN_cuStreamWriteValue64)(CUstream, CUdeviceptr, cuuint64_t, unsigned);

/* >>runtime: calls */
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset(); /* frees what it takes away: a handle that is used later is an error, memory a crash */
inline cudaError_t cudaProfilerStart() {
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMemAdvise(const void *p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags = 0);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p);

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument);

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t event);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphNode_t *node, char *log,
                                 size_t bytes);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult *result = nullptr);
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *result = nullptr);

template <typename T> cudaError_t cudaMalloc(T **p, size_t bytes) {
    return cudaMalloc(reinterpret_cast<void **>(p), bytes);
}
template <typename T> cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags) {
    return cudaHostAlloc(reinterpret_cast<void **>(p), bytes, flags);
}
template <typename T> cudaError_t cudaMallocHost(T **p, size_t bytes) {
    return cudaMallocHost(reinterpret_cast<void **>(p), bytes);
}
template <typename T> cudaError_t cudaHostGetDevicePointer(T **device, void *host, unsigned flags) {
    return cudaHostGetDevicePointer(reinterpret_cast<void **>(device), host, flags);
}
cudaError_t occupancy_on_host(int *blocks); /* counted as the next */
template <typename F> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F, int, size_t) {
    return occupancy_on_host(blocks);
}

namespace cuda_on_host {

struct place { /* in the source */
    const char *file;
    int line;
};
inline place here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
}

/* >>threads. What a kernel asks of the thread that runs it; the rest of it is in cuda_on_host_grid.cc. */
struct lane {
    uint3 thread_id, block_id;
    dim3 threads, blocks;
};
extern __thread lane *current; /* NULL on the host */

/* Ends the process, with the kernel, block and thread if there is one. */
[[noreturn]] void fail(place at, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Why the GPU whose kernel the thread runs must not touch an address; NULL: it may, or nothing is known of it. */
const char *refusal_of(uintptr_t address);

inline const lane &running() {
    if (!current) fail(here(), "threadIdx, blockIdx, blockDim or gridDim on the host");
    return *current;
}

/* >>launches */
struct schedule; /* cuda_on_host_grid.h */
struct kernel {
    const char *name;
    place at;
    dim3 grid, block;
    std::function<void()> thread;                                   /* the kernel, with its arguments */
    std::function<void(const kernel &, const schedule &)> run = {}; /* or what runs all of the grid */
};
cudaError_t launch_kernel(kernel &&k, cudaStream_t stream);

template <typename... P, typename... A>
cudaError_t launch(const char *name, place at, void (*function)(P...), dim3 grid, dim3 block, cudaStream_t stream,
                   A &&...arguments) {
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has");
    std::tuple<P...> frozen(std::forward<A>(arguments)...);
    return launch_kernel({name, at, grid, block, [function, frozen] { std::apply(function, frozen); }}, stream);
}

/* >>waiting */
enum warp_operation { WARP_SYNC, WARP_BALLOT, WARP_SHUFFLE, WARP_MATCH };
void barrier(place at);
bool barrier_or(place at, bool predicate);
/* Waits for all lanes of the warp at the same operation; what each brought, until the caller's next operation. */
const uint64_t *warp_exchange(warp_operation operation, unsigned mask, uint64_t value, place at);
void switch_at_atomic(); /* perhaps */
void switch_now();
bool fails_weakly();
void fence();

template <typename T> uint64_t to_bits(T value) {
    static_assert(std::is_arithmetic_v<T> && (sizeof value == 4 || sizeof value == 8), "32 or 64 bits");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <typename T> T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* >>shared memory. Each element knows who touched it last, and in which stretch between barriers. */
struct shared_state {
    uint32_t block; /* the run of a block that wrote it; another's: not written */
    uint32_t epoch; /* barriers passed when it was last touched; the rest is of that stretch */
    uint32_t write_warp_epoch, read_warp_epoch; /* __syncwarps that the warp of writer or reader had passed */
    uint16_t writer, reader;
    uint8_t written, read; /* by nobody, by one thread, by several of a warp, by several */
    bool atomic;           /* the write */
};
enum shared_access { SHARED_READ, SHARED_WRITE, SHARED_ATOMIC_READ, SHARED_ATOMIC_WRITE, SHARED_ATOMIC };
void touch(shared_state *state, shared_access access);
void subscripted(place at); /* an element is named there: the line for messages of touch */
/* The block's zeroed memory for an array declared at a place of a kernel. */
void *shared_memory(const void *site, const char *name, size_t n, size_t element_bytes);

template <typename T> class element {
  public:
    T value;
    mutable shared_state state;

    element(const element &) = delete;
    void note(shared_access access) const {
        touch(&state, access);
    }
    operator T() const {
        note(SHARED_READ);
        return value;
    }
    const element &operator=(T v) {
        note(SHARED_WRITE);
        value = v;
        return *this;
    }
    const element &operator=(const element &other) {
        return *this = static_cast<T>(other);
    }
    template <typename U> const element &operator+=(U v) {
        return *this = static_cast<T>(static_cast<T>(*this) + v);
    }
    template <typename U> const element &operator-=(U v) {
        return *this = static_cast<T>(static_cast<T>(*this) - v);
    }
    template <typename U> const element &operator*=(U v) {
        return *this = static_cast<T>(static_cast<T>(*this) * v);
    }
    template <typename U> const element &operator|=(U v) {
        return *this = static_cast<T>(static_cast<T>(*this) | v);
    }
    template <typename U> const element &operator&=(U v) {
        return *this = static_cast<T>(static_cast<T>(*this) & v);
    }
    template <typename U> const element &operator^=(U v) {
        return *this = static_cast<T>(static_cast<T>(*this) ^ v);
    }
    const element &operator++() {
        return *this += T(1);
    }
    const element &operator--() {
        return *this -= T(1);
    }
    T operator++(int) {
        T before = *this;
        *this = static_cast<T>(before + 1);
        return before;
    }
    T operator--(int) {
        T before = *this;
        *this = static_cast<T>(before - 1);
        return before;
    }
};

struct subscript {
    size_t i;
    place at;
    template <typename I>
    subscript(I index, const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : i(static_cast<size_t>(index)), at{file, line} {}
};

template <typename T, size_t N> class shared {
    element<T> *elements;
    const char *name;

  public:
    shared(const void *site, const char *array) : name(array) {
        static_assert(std::is_trivially_copyable_v<T>, "shared memory holds plain values");
        elements = static_cast<element<T> *>(shared_memory(site, array, N, sizeof(element<T>)));
    }
    element<T> &operator[](subscript s) const {
        subscripted(s.at);
        if (s.i >= N)
            fail(s.at, "shared %s[%lld] is outside of its %zu elements", name, static_cast<long long>(s.i), N);
        return elements[s.i];
    }
};

/* >>atomics: of memory, and of elements of shared memory */
template <typename T> T *plain(T *p, shared_access = SHARED_ATOMIC) {
    switch_at_atomic();
    return p;
}
template <typename T> T *plain(element<T> *e, shared_access access = SHARED_ATOMIC) {
    switch_at_atomic();
    e->note(access);
    return &e->value;
}
template <typename T> T add(T *p, T v) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
inline float add(float *p, float v) {
    uint32_t *bits = reinterpret_cast<uint32_t *>(p);
    uint32_t before = __atomic_load_n(bits, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(bits, &before, static_cast<uint32_t>(to_bits(from_bits<float>(before) + v)),
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return from_bits<float>(before);
}
template <typename T> T exchange_if(T *p, T expected, T desired) {
    __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

} // namespace cuda_on_host

/* >>kernels: the language's names */
#define FRUGAL_LAUNCH(kernel, ...) ::cuda_on_host::launch(#kernel, ::cuda_on_host::here(), kernel, __VA_ARGS__)
#define FRUGAL_SHARED(type, name, n)                                                                                   \
    static const char name##_site = 0;                                                                                 \
    const ::cuda_on_host::shared<type, (n)> name(&name##_site, #name)
#define threadIdx (::cuda_on_host::running().thread_id)
#define blockIdx  (::cuda_on_host::running().block_id)
#define blockDim  (::cuda_on_host::running().threads)
#define gridDim   (::cuda_on_host::running().blocks)
constexpr int warpSize = 32;

inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    cuda_on_host::barrier({file, line});
}
inline int __syncthreads_or(int predicate, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return cuda_on_host::barrier_or({file, line}, predicate != 0);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    cuda_on_host::warp_exchange(cuda_on_host::WARP_SYNC, mask, 0, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    const uint64_t *all = cuda_on_host::warp_exchange(cuda_on_host::WARP_BALLOT, mask, predicate != 0, {file, line});
    unsigned ballot = 0;
    for (int i = 0; i < 32; i++) ballot |= static_cast<unsigned>(all[i]) << i;
    return ballot;
}
inline int __any_sync(unsigned mask, int predicate, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, file, line) == 0xffffffffu;
}
/* Only of the whole warp: there is no width. */
template <typename T> T __shfl_sync(unsigned mask, T value, int from, cuda_on_host::place at = cuda_on_host::here()) {
    const uint64_t *all =
        cuda_on_host::warp_exchange(cuda_on_host::WARP_SHUFFLE, mask, cuda_on_host::to_bits(value), at);
    return cuda_on_host::from_bits<T>(all[from & 31]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, cuda_on_host::place at = cuda_on_host::here()) {
    const uint64_t *all =
        cuda_on_host::warp_exchange(cuda_on_host::WARP_SHUFFLE, mask, cuda_on_host::to_bits(value), at);
    return cuda_on_host::from_bits<T>(all[(threadIdx.x ^ static_cast<unsigned>(lanes)) & 31]);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, cuda_on_host::place at = cuda_on_host::here()) {
    const uint64_t *all =
        cuda_on_host::warp_exchange(cuda_on_host::WARP_SHUFFLE, mask, cuda_on_host::to_bits(value), at);
    unsigned from = (threadIdx.x & 31) + lanes;
    return from < 32 ? cuda_on_host::from_bits<T>(all[from]) : value;
}
template <typename T> unsigned __match_any_sync(unsigned mask, T value, cuda_on_host::place at = cuda_on_host::here()) {
    uint64_t mine = cuda_on_host::to_bits(value);
    const uint64_t *all = cuda_on_host::warp_exchange(cuda_on_host::WARP_MATCH, mask, mine, at);
    unsigned match = 0;
    for (int i = 0; i < 32; i++) match |= static_cast<unsigned>(all[i] == mine) << i;
    return match;
}

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
inline float __uint_as_float(unsigned x) {
    return cuda_on_host::from_bits<float>(x);
}
inline unsigned __float_as_uint(float x) {
    return static_cast<unsigned>(cuda_on_host::to_bits(x));
}

inline void __threadfence() {
    cuda_on_host::fence();
}
inline void __threadfence_block() {
    cuda_on_host::fence();
}
inline void __threadfence_system() {
    cuda_on_host::fence();
}
inline void __nanosleep(unsigned) {
    cuda_on_host::switch_now();
}

/* Loads and stores with hints for caches, which the host has not. */
template <typename T> T __ldg(const T *p) {
    return *p;
}
template <typename T> T __ldca(const T *p) {
    return *p;
}
template <typename T> T __ldcg(const T *p) {
    return *p;
}
template <typename T> T __ldcs(const T *p) {
    return *p;
}
template <typename T> T __ldcv(const T *p) {
    return *p;
}
template <typename T> void __stwb(T *p, T value) {
    *p = value;
}
template <typename T> void __stcg(T *p, T value) {
    *p = value;
}
template <typename T> void __stcs(T *p, T value) {
    *p = value;
}
template <typename T> void __stwt(T *p, T value) {
    *p = value;
}

template <typename P> auto atomicAdd(P *p, std::remove_pointer_t<decltype(cuda_on_host::plain(p))> v) {
    using T = decltype(v);
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long> ||
                      std::is_same_v<T, float>,
                  "CUDA has no such atomicAdd");
    return cuda_on_host::add(cuda_on_host::plain(p), v);
}
template <typename P>
auto atomicCAS(P *p, std::remove_pointer_t<decltype(cuda_on_host::plain(p))> expected, decltype(expected) desired) {
    using T = decltype(expected);
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>,
                  "CUDA has no such atomicCAS");
    return cuda_on_host::exchange_if(cuda_on_host::plain(p), expected, desired);
}

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

inline void atomic_thread_fence(memory_order, thread_scope = thread_scope_system) {
    cuda_on_host::fence();
}

template <typename T, thread_scope Scope = thread_scope_system> class atomic_ref {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "32 or 64 bits");
    T *p = nullptr;
    cuda_on_host::element<T> *shared = nullptr;

    T *reach(cuda_on_host::shared_access access) const {
        return shared ? cuda_on_host::plain(shared, access) : cuda_on_host::plain(p);
    }
    static int load_order(memory_order order) { /* of a compare-and-swap that fails */
        return order == memory_order_acq_rel   ? __ATOMIC_ACQUIRE
               : order == memory_order_release ? __ATOMIC_RELAXED
                                               : static_cast<int>(order);
    }

  public:
    explicit atomic_ref(T &value) : p(&value) {
        if (reinterpret_cast<uintptr_t>(p) % sizeof(T))
            cuda_on_host::fail(cuda_on_host::here(), "atomic_ref of %p: not aligned", static_cast<void *>(p));
    }
    explicit atomic_ref(cuda_on_host::element<T> &value) : shared(&value) {}
    T load(memory_order order = memory_order_seq_cst) const {
        T value;
        __atomic_load(reach(cuda_on_host::SHARED_ATOMIC_READ), &value, static_cast<int>(order));
        return value;
    }
    void store(T value, memory_order order = memory_order_seq_cst) const {
        __atomic_store(reach(cuda_on_host::SHARED_ATOMIC_WRITE), &value, static_cast<int>(order));
    }
    T exchange(T value, memory_order order = memory_order_seq_cst) const {
        T before;
        __atomic_exchange(reach(cuda_on_host::SHARED_ATOMIC), &value, &before, static_cast<int>(order));
        return before;
    }
    T fetch_add(T value, memory_order order = memory_order_seq_cst) const {
        return __atomic_fetch_add(reach(cuda_on_host::SHARED_ATOMIC), value, static_cast<int>(order));
    }
    T fetch_sub(T value, memory_order order = memory_order_seq_cst) const {
        return __atomic_fetch_sub(reach(cuda_on_host::SHARED_ATOMIC), value, static_cast<int>(order));
    }
    T fetch_or(T value, memory_order order = memory_order_seq_cst) const {
        return __atomic_fetch_or(reach(cuda_on_host::SHARED_ATOMIC), value, static_cast<int>(order));
    }
    T fetch_and(T value, memory_order order = memory_order_seq_cst) const {
        return __atomic_fetch_and(reach(cuda_on_host::SHARED_ATOMIC), value, static_cast<int>(order));
    }
    bool compare_exchange_strong(T &expected, T desired, memory_order success, memory_order failure) const {
        return __atomic_compare_exchange(reach(cuda_on_host::SHARED_ATOMIC), &expected, &desired, false,
                                         static_cast<int>(success), static_cast<int>(failure));
    }
    bool compare_exchange_strong(T &expected, T desired, memory_order order = memory_order_seq_cst) const {
        return compare_exchange_strong(expected, desired, order, static_cast<memory_order>(load_order(order)));
    }
    bool compare_exchange_weak(T &expected, T desired, memory_order success, memory_order failure) const {
        if (cuda_on_host::fails_weakly()) return expected = load(failure), false;
        return compare_exchange_strong(expected, desired, success, failure);
    }
    bool compare_exchange_weak(T &expected, T desired, memory_order order = memory_order_seq_cst) const {
        return compare_exchange_weak(expected, desired, order, static_cast<memory_order>(load_order(order)));
    }
};

} // namespace cuda

#include "cub_on_host.h"

#endif /* CUDA_ON_HOST_H */
