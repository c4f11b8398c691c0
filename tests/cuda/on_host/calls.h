/* calls.h - every call: counted, failed on request, and told that its device is lost; and what errors are called. */
#ifndef ON_HOST_CALLS_H
#define ON_HOST_CALLS_H

#include "pages.h"

namespace cuda_runtime_on_host {

int this_number() {
    return pushed_devices.empty() ? current_device : pushed_devices.back();
}

device *this_device() {
    world_type &w = world();
    size_t i = static_cast<size_t>(this_number());
    return i < w.devices.size() ? w.devices[i].get() : nullptr;
}

cudaError_t requested_failure(counter &c) {
    world_type &w = world();
    w.used.store(true, std::memory_order_relaxed);
    if (w.forked) return cudaErrorInitializationError; /* as CUDA's own */
    uint64_t n = c.calls.fetch_add(1, std::memory_order_relaxed) + 1;
    if (w.calls_left.load(std::memory_order_relaxed) && w.calls_left.fetch_sub(1, std::memory_order_relaxed) == 1) {
        w.failed = true;
        return static_cast<cudaError_t>(w.call_error.load());
    }
    if (c.fail_at.load(std::memory_order_relaxed) != n) return cudaSuccess;
    w.failed = true;
    guard hold(w.lock);
    return w.named[c.name].second;
}

/* A driver may let no call through while another one waits for all of a device, as cudaFree does. Relaxed, all: a
 * driver's lock promises programs no order. */
void pass(const device *d) {
    while (d && d->held.load(std::memory_order_relaxed)) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

cudaError_t begin_without_context(counter &c, const device *d) {
    if (c.calls.load(std::memory_order_relaxed) == 0) { /* a failure may have been asked for before the first call */
        guard hold(world().lock);
        auto found = world().named.find(c.name);
        if (found != world().named.end()) c.fail_at = found->second.first;
    }
    if (cuda_on_host::current) fail(here(), "%s in a kernel", c.name);
    if (cudaError_t e = requested_failure(c)) return e;
    if (in_host_function) return cudaErrorNotPermitted;
    pass(d);
    if (!d) return cudaErrorNoDevice;
    return d->lost.load(std::memory_order_acquire) ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t begin(counter &c, device *d) {
    cudaError_t e = begin_without_context(c, d);
    if (!e) d->context.exists = true;
    return e;
}

cudaError_t end(cudaError_t e) {
    if (e != cudaSuccess) last_error = e;
    return e;
}

cudaError_t lost(const device *d) {
    return d->lost.load(std::memory_order_acquire) ? cudaErrorLaunchFailure : cudaSuccess;
}

} // namespace cuda_runtime_on_host

const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define NAME(e)                                                                                                        \
    case e:                                                                                                            \
        return #e;
        NAME(cudaSuccess)
        NAME(cudaErrorInvalidValue)
        NAME(cudaErrorMemoryAllocation)
        NAME(cudaErrorInitializationError)
        NAME(cudaErrorCudartUnloading)
        NAME(cudaErrorDeviceUninitialized)
        NAME(cudaErrorContextIsDestroyed)
        NAME(cudaErrorPeerAccessUnsupported)
        NAME(cudaErrorPeerAccessAlreadyEnabled)
        NAME(cudaErrorInvalidConfiguration)
        NAME(cudaErrorInvalidMemcpyDirection)
        NAME(cudaErrorInsufficientDriver)
        NAME(cudaErrorInvalidDeviceFunction)
        NAME(cudaErrorNoDevice)
        NAME(cudaErrorInvalidDevice)
        NAME(cudaErrorNoKernelImageForDevice)
        NAME(cudaErrorUnsupportedPtxVersion)
        NAME(cudaErrorOperatingSystem)
        NAME(cudaErrorInvalidResourceHandle)
        NAME(cudaErrorIllegalState)
        NAME(cudaErrorSymbolNotFound)
        NAME(cudaErrorNotReady)
        NAME(cudaErrorIllegalAddress)
        NAME(cudaErrorHostMemoryAlreadyRegistered)
        NAME(cudaErrorHostMemoryNotRegistered)
        NAME(cudaErrorLaunchFailure)
        NAME(cudaErrorNotPermitted)
        NAME(cudaErrorNotSupported)
        NAME(cudaErrorStreamCaptureUnsupported)
        NAME(cudaErrorStreamCaptureInvalidated)
        NAME(cudaErrorStreamCaptureUnmatched)
        NAME(cudaErrorStreamCaptureImplicit)
        NAME(cudaErrorStreamCaptureWrongThread)
        NAME(cudaErrorUnknown)
#undef NAME
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    return error ? cudaGetErrorName(error) : "no error";
}

cudaError_t cudaPeekAtLastError() {
    guard hold(world().lock);
    device *d = this_device();
    return d && !last_error ? lost(d) : last_error;
}

cudaError_t cudaGetLastError() {
    cudaError_t e = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return e;
}

#endif /* ON_HOST_CALLS_H */
