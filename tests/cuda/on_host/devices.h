/* devices.h - devices: how many, which is the thread's, what they can do. */
#ifndef ON_HOST_DEVICES_H
#define ON_HOST_DEVICES_H

#include "streams.h"

cudaError_t cudaGetDeviceCount(int *n) {
    static counter calls(__func__);
    if (cudaError_t e = requested_failure(calls)) return end(e);
    *n = static_cast<int>(world().devices.size());
    return end(*n ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *number) {
    static counter calls(__func__);
    if (cudaError_t e = requested_failure(calls)) return end(e);
    *number = this_number();
    return end(world().devices.empty() ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int number) {
    static counter calls(__func__);
    if (cudaError_t e = requested_failure(calls)) return end(e);
    if (world().devices.empty()) return end(cudaErrorNoDevice);
    if (number < 0 || static_cast<size_t>(number) >= world().devices.size()) return end(cudaErrorInvalidDevice);
    if (pushed_devices.empty())
        current_device = number, has_set_device = true;
    else
        pushed_devices.back() = number;
    world().devices[static_cast<size_t>(number)]->context.exists = true; /* since CUDA 12 */
    return end(cudaSuccess);
}

static int attribute_value(cudaDeviceAttr attribute) { /* -1: not emulated */
    auto set = world().attributes.find(attribute);
    if (set != world().attributes.end()) return set->second;
    switch (attribute) {
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
        return !KNOWS_PAGES;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
        return 1024;
    case cudaDevAttrMaxGridDimX:
        return INT32_MAX;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 48 << 10;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMultiProcessorCount:
        return world().multiprocessors;
    case cudaDevAttrL2CacheSize:
        return 1 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return 2048;
    case cudaDevAttrAsyncEngineCount:
        return 2;
    case cudaDevAttrComputeCapabilityMajor:
        return 9;
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrIntegrated:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrPageableMemoryAccess:
        return 0;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrHostRegisterReadOnlySupported:
        return 1;
    }
    return -1;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int number) {
    static counter calls(__func__);
    if (cudaError_t e = requested_failure(calls)) return end(e);
    guard hold(world().lock);
    if (world().devices.empty()) return end(cudaErrorNoDevice);
    if (number < 0 || static_cast<size_t>(number) >= world().devices.size()) return end(cudaErrorInvalidDevice);
    int found = attribute_value(attribute);
    if (found < 0) return end(cudaErrorInvalidValue);
    *value = found;
    return end(lost(world().devices[static_cast<size_t>(number)].get()));
}

/* With capital letters, as CUDA's; a bus for each. */
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int number) {
    static counter calls(__func__);
    if (cudaError_t e = requested_failure(calls)) return end(e);
    if (number < 0 || static_cast<size_t>(number) >= world().devices.size()) return end(cudaErrorInvalidDevice);
    snprintf(id, static_cast<size_t>(bytes), "0000:%02X:00.0", 0xaa + number);
    return end(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int number) {
    static counter calls(__func__);
    if (cudaError_t e = requested_failure(calls)) return end(e);
    guard hold(world().lock);
    if (world().devices.empty()) return end(cudaErrorNoDevice);
    if (number < 0 || static_cast<size_t>(number) >= world().devices.size()) return end(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof p->name, "CUDA on host");
    p->totalGlobalMem = world().memory;
    p->sharedMemPerBlock = static_cast<size_t>(attribute_value(cudaDevAttrMaxSharedMemoryPerBlock));
    p->major = attribute_value(cudaDevAttrComputeCapabilityMajor);
    p->minor = attribute_value(cudaDevAttrComputeCapabilityMinor);
    p->multiProcessorCount = attribute_value(cudaDevAttrMultiProcessorCount);
    p->warpSize = 32;
    p->maxThreadsPerBlock = attribute_value(cudaDevAttrMaxThreadsPerBlock);
    p->canMapHostMemory = attribute_value(cudaDevAttrCanMapHostMemory);
    p->l2CacheSize = attribute_value(cudaDevAttrL2CacheSize);
    return end(lost(world().devices[static_cast<size_t>(number)].get()));
}

cudaError_t occupancy_on_host(int *blocks) {
    static counter calls("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    *blocks = 2;
    return end(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return end(e);
    guard hold(world().lock);
    *total = world().memory;
    *free_bytes = world().memory > d->used ? world().memory - d->used : 0;
    return end(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int number, int peer) {
    static counter calls(__func__);
    if (cudaError_t e = requested_failure(calls)) return end(e);
    guard hold(world().lock);
    int n = static_cast<int>(world().devices.size());
    if (number < 0 || number >= n || peer < 0 || peer >= n) return end(cudaErrorInvalidDevice);
    *can = number != peer && world().peers != CUDA_ON_HOST_PEERS_NONE;
    return end(cudaSuccess);
}

static cudaError_t give_peer_access(device *d, int peer, unsigned flags) {
    guard hold(world().lock);
    if (flags) return cudaErrorInvalidValue;
    if (peer < 0 || static_cast<size_t>(peer) >= world().devices.size()) return cudaErrorInvalidDevice;
    if (peer == d->number || world().peers == CUDA_ON_HOST_PEERS_NONE) return cudaErrorPeerAccessUnsupported;
    uint32_t bit = 1u << peer;
    return d->peers.fetch_or(bit) & bit ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return end(e);
    return end(give_peer_access(d, peer, flags));
}

/* A capture of the device is spoilt by waiting for all of it, whatever the modes are. */
static cudaError_t refuse_any_capture(const device *d) {
    cudaError_t e = cudaSuccess;
    guard hold(world().lock);
    for (cudaStream_t s : world().streams) {
        if (s->on != d || !s->capturing) continue;
        s->capturing = cudaStreamCaptureStatusInvalidated;
        e = cudaErrorStreamCaptureUnsupported;
    }
    return e;
}

cudaError_t cudaDeviceSynchronize() {
    static counter calls(__func__, true);
    device *d = this_device();
    if (cudaError_t e = begin_uncaptured(calls, d)) return end(settled(d, e));
    if (cudaError_t e = refuse_any_capture(d)) return end(e);
    return end(synchronize_alone(d));
}

#endif /* ON_HOST_DEVICES_H */
