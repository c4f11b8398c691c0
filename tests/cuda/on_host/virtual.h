/* virtual.h - memory of the host's node that is made, and mapped to reserved addresses, by calls of the driver. */
#ifndef ON_HOST_VIRTUAL_H
#define ON_HOST_VIRTUAL_H

#include "memory.h"

#include <sys/mman.h>

enum : size_t { VIRTUAL_GRANULARITY = 2 << 20 };

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice number) {
    static counter calls("cuDeviceGetAttribute");
    if (cudaError_t e = requested_failure(calls)) return static_cast<CUresult>(e);
    if (number < 0 || static_cast<size_t>(number) >= world().devices.size()) return CUDA_ERROR_INVALID_DEVICE;
    guard hold(world().lock);
    auto set = world().attributes.find(attribute);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = set != world().attributes.end() ? set->second : 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = set != world().attributes.end() ? set->second : 1;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static bool is_of_node(const CUmemAllocationProp *p) {
    return p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE &&
           p->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && p->location.id == 0;
}

static CUresult get_granularity(size_t *bytes, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags) {
    static counter calls("cuMemGetAllocationGranularity");
    if (cudaError_t e = requested_failure(calls)) return static_cast<CUresult>(e);
    if (!is_of_node(p)) return CUDA_ERROR_INVALID_VALUE;
    *bytes = VIRTUAL_GRANULARITY;
    return CUDA_SUCCESS;
}

static CUresult create_memory(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *p,
                              unsigned long long flags) {
    static counter calls("cuMemCreate");
    static unsigned long long made;
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return static_cast<CUresult>(e);
    if (!bytes || bytes % VIRTUAL_GRANULARITY || flags || !is_of_node(p)) return CUDA_ERROR_INVALID_VALUE;
    int file = memfd_create("cuMemCreate", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
        if (file >= 0) close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    guard hold(world().lock);
    *handle = ++made;
    world().physicals[*handle] = {bytes, file};
    return CUDA_SUCCESS;
}

/* What is mapped stays, until it is unmapped. */
static CUresult release_memory(CUmemGenericAllocationHandle handle) {
    static counter calls("cuMemRelease");
    if (cudaError_t e = requested_failure(calls)) return static_cast<CUresult>(e);
    guard hold(world().lock);
    auto found = world().physicals.find(handle);
    if (found == world().physicals.end()) return CUDA_ERROR_INVALID_VALUE;
    close(found->second.file);
    world().physicals.erase(found);
    return CUDA_SUCCESS;
}

static CUresult reserve_addresses(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                  unsigned long long flags) {
    static counter calls("cuMemAddressReserve");
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return static_cast<CUresult>(e);
    if (!bytes || bytes % VIRTUAL_GRANULARITY || alignment & (alignment - 1) || wanted || flags)
        return CUDA_ERROR_INVALID_VALUE;
    size_t aligned = alignment > VIRTUAL_GRANULARITY ? alignment : VIRTUAL_GRANULARITY;
    void *all = mmap(nullptr, bytes + aligned, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    uintptr_t from = reinterpret_cast<uintptr_t>(all), start = (from + aligned - 1) / aligned * aligned;
    if (start > from) munmap(all, start - from);
    munmap(reinterpret_cast<void *>(start + bytes), from + aligned - start);
    guard hold(world().lock);
    world().reservations[start] = {bytes, false, false, false};
    *address = start;
    return CUDA_SUCCESS;
}

/* A reservation of just these addresses; NULL: there is none. The lock is held. */
static reservation *reserved(CUdeviceptr address, size_t bytes) {
    auto found = world().reservations.find(static_cast<uintptr_t>(address));
    return found != world().reservations.end() && found->second.bytes == bytes ? &found->second : nullptr;
}

static CUresult free_addresses(CUdeviceptr address, size_t bytes) {
    static counter calls("cuMemAddressFree");
    if (cudaError_t e = requested_failure(calls)) return static_cast<CUresult>(e);
    guard hold(world().lock);
    reservation *r = reserved(address, bytes);
    if (!r || r->mapped) return CUDA_ERROR_INVALID_VALUE;
    munmap(reinterpret_cast<void *>(static_cast<uintptr_t>(address)), bytes);
    world().reservations.erase(static_cast<uintptr_t>(address));
    return CUDA_SUCCESS;
}

static CUresult map_memory(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                           unsigned long long flags) {
    static counter calls("cuMemMap");
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return static_cast<CUresult>(e);
    guard hold(world().lock);
    reservation *r = reserved(address, bytes);
    auto found = world().physicals.find(handle);
    if (!r || r->mapped || offset || flags || found == world().physicals.end() || found->second.bytes != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (mmap(reinterpret_cast<void *>(static_cast<uintptr_t>(address)), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             found->second.file, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r->mapped = true;
    return CUDA_SUCCESS;
}

static CUresult unmap_memory(CUdeviceptr address, size_t bytes) {
    static counter calls("cuMemUnmap", true);
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return static_cast<CUresult>(e);
    synchronize_all();
    guard hold(world().lock);
    reservation *r = reserved(address, bytes);
    if (!r || !r->mapped) return CUDA_ERROR_INVALID_VALUE;
    if (mmap(reinterpret_cast<void *>(static_cast<uintptr_t>(address)), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *r = {bytes, false, false, false};
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t n) {
    static counter calls("cuMemSetAccess");
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return static_cast<CUresult>(e);
    guard hold(world().lock);
    reservation *r = reserved(address, bytes);
    if (!r || !r->mapped || !n) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        const CUmemLocation &whose = access[i].location;
        if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_NOT_SUPPORTED;
        if (whose.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            (whose.id < 0 || static_cast<size_t>(whose.id) >= world().devices.size()))
            return CUDA_ERROR_INVALID_DEVICE;
        r->by_device |= whose.type == CU_MEM_LOCATION_TYPE_DEVICE;
        r->by_host |= whose.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    }
    if (r->by_device && r->by_host)
        mprotect(reinterpret_cast<void *>(static_cast<uintptr_t>(address)), bytes, PROT_READ | PROT_WRITE);
    return CUDA_SUCCESS;
}

/* The lock is held. */
static void unmap_everything() {
    for (auto &r : world().reservations) munmap(reinterpret_cast<void *>(r.first), r.second.bytes);
    for (auto &p : world().physicals) close(p.second.file);
    world().reservations.clear(), world().physicals.clear();
}

#endif /* ON_HOST_VIRTUAL_H */
