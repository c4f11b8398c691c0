/* context.cuh - a GPU that is used: the driver's calls, its context, and a thread's visit to it. */
#ifndef FRUGAL_CUDA_CONTEXT_CUH
#define FRUGAL_CUDA_CONTEXT_CUH

#include "toolkit.cuh"
#include "../../frugal.h"
#include "../device.h"

namespace frugal_cuda {

constexpr uint32_t BLOCK_THREADS = 256;

/* Calls of the driver, which are found when a GPU is first used, so that nothing is linked against the driver. */
struct driver_calls {
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*current)(CUcontext *);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUresult (*query)(CUstream);
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned); /* NULL: a kernel waits */
};

struct gpu_context {
    int ordinal;
    driver_calls driver;
    CUcontext context; /* the GPU's primary one, which the runtime uses, too; NULL: not retained */
    /* 1: the GPU does nothing any more (watch.cuh); of all devices of an instance on that GPU. NULL: nobody asks.
     * Relaxed: a word that means itself, and stays. */
    int *hangs;
};

/* For a GPU that hangs: CUDA's error of a kernel that has run too long. No call is made, as it might not return. */
constexpr CUresult GPU_HANGS = (CUresult)702;
static int is_hanging(const gpu_context *c) {
    return c->hangs && __atomic_load_n(c->hangs, __ATOMIC_RELAXED);
}

/* Puts the calling thread on a GPU; its destructor puts the thread back, with the CUDA error that it had. It uses the
 * stack of contexts, because cudaSetDevice, called to put the thread back, would make a context on a GPU that the
 * thread has never used. Meanwhile calls of this thread do not disturb captures that any thread has begun, in whatever
 * mode. (The mode is changed only within the visit, because elsewhere the call would make a context, too.) */
struct on_gpu {
    const gpu_context *c;
    int pending, pushed, relaxed;
    cudaStreamCaptureMode mode; /* while `relaxed`: the thread's own */
    CUresult result;            /* not 0: the thread is elsewhere. Then calls that name a stream fail by themselves */
    explicit on_gpu(const gpu_context *gpu) : c(gpu), mode(cudaStreamCaptureModeRelaxed) {
        CUcontext current = NULL;
        pending = cudaPeekAtLastError() != cudaSuccess;
        result = is_hanging(c) ? GPU_HANGS : c->driver.current(&current);
        pushed = result == CUDA_SUCCESS && current != c->context;
        if (pushed) result = c->driver.push(c->context);
        pushed = pushed && result == CUDA_SUCCESS;
        relaxed = result == CUDA_SUCCESS && cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
    }
    ~on_gpu() {
        CUcontext popped;
        if (relaxed) cudaThreadExchangeStreamCaptureMode(&mode);
        if (pushed) c->driver.pop(&popped);
        if (!pending) cudaGetLastError(); /* ours is reported by a status; the caller must not find it */
    }
    on_gpu(const on_gpu &) = delete;
    on_gpu &operator=(const on_gpu &) = delete;
};

/* Is there a GPU c->ordinal, and a driver that we can use? Makes no context except that GPU's. `instead`: what works
 * without a GPU. */
static frugal_status open_context(gpu_context *c, const char *call, const char *instead) {
    driver_calls *d = &c->driver;
    int gpus = 0;
    cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error != cudaSuccess || gpus == 0)
        return frugal_fail(FRUGAL_ERR_CUDA, "%s: no GPU: %s; see that the driver is loaded, or use %s", call,
                           error != cudaSuccess ? cudaGetErrorString(error) : "the driver finds none", instead);
    if (c->ordinal < 0 || c->ordinal >= gpus)
        return frugal_fail(FRUGAL_ERR_DEVICE, "%s: GPU %d; there are %d, from 0", call, c->ordinal, gpus);
    d->retain = (CUresult(*)(CUcontext *, CUdevice))find_driver_call("cuDevicePrimaryCtxRetain");
    d->current = (CUresult(*)(CUcontext *))find_driver_call("cuCtxGetCurrent");
    d->push = (CUresult(*)(CUcontext))find_driver_call("cuCtxPushCurrent");
    d->pop = (CUresult(*)(CUcontext *))find_driver_call("cuCtxPopCurrent");
    d->query = (CUresult(*)(CUstream))find_driver_call("cuStreamQuery");
    if (!d->retain || !d->current || !d->push || !d->pop || !d->query)
        return frugal_fail(FRUGAL_ERR_CUDA, "%s: the driver lacks calls that Toolkit 12 has: update the driver", call);
    CUresult result = d->retain(&c->context, (CUdevice)c->ordinal);
    if (result == CUDA_SUCCESS) return FRUGAL_OK;
    c->context = NULL;
    return frugal_fail(FRUGAL_ERR_CUDA, "%s: GPU %d: %s", call, c->ordinal, cudaGetErrorString((cudaError_t)result));
}

/* Refuses a GPU for which the program has no code, and says how to compile; FRUGAL_OK: `error` is another one. */
static frugal_status check_code(const gpu_context *c, const char *call, cudaError_t error) {
    int major = 0, minor = 0, newer = error == cudaErrorUnsupportedPtxVersion;
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction && !newer) return FRUGAL_OK;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c->ordinal);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, c->ordinal);
    return frugal_fail(FRUGAL_ERR_CUDA,
                       "%s: GPU %d has compute capability %d.%d, for which this program has %s (%s): compile it with "
                       "nvcc -arch=sm_%d%d (CMake: CUDAARCHS=%d%d; the Python package: FRUGAL_CUDA_ARCH=sm_%d%d), or "
                       "%s",
                       call, c->ordinal, major, minor,
                       newer ? "only PTX of a Toolkit newer than the driver" : "no code", cudaGetErrorName(error),
                       major, minor, major, minor, major, minor,
                       newer ? "update the driver" : "with -arch=sm_75, whose PTX runs on every later GPU");
}

/* Loads a kernel, and asks how many of its blocks the GPU holds at a time. */
template <typename Kernel> static cudaError_t load_kernel(Kernel kernel, int processors, uint32_t *resident) {
#ifndef FRUGAL_CUDA_ON_HOST
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
#endif
    int blocks = 0;
    cudaError_t counted = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)BLOCK_THREADS, 0);
    if (resident) *resident = (uint32_t)(blocks > 0 ? blocks * processors : processors);
    return counted;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_CONTEXT_CUH */
