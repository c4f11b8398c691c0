/* memory.h - memory of devices and of the host, and copies between them. */
#ifndef ON_HOST_MEMORY_H
#define ON_HOST_MEMORY_H

#include "devices.h"

namespace cuda_runtime_on_host {

template <typename Map> typename Map::iterator containing(Map &map, const void *p, size_t bytes) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    auto i = map.upper_bound(a);
    if (i == map.begin()) return map.end();
    --i;
    return a - i->first < i->second.bytes && bytes <= i->second.bytes - (a - i->first) ? i : map.end();
}

/* The address of pinned memory of the host on devices. The lock is held. */
bool is_seen(const void *p, size_t bytes) {
    world_type &w = world();
    auto found = containing(w.host, p, bytes);
    return containing(w.seen, p, bytes) != w.seen.end() || (found != w.host.end() && !found->second.seen);
}

enum { IS_HOST, IS_DEVICE, IS_ASTRAY };

int where_is(const void *p, size_t bytes) {
    world_type &w = world();
    if (containing(w.allocations, p, bytes) != w.allocations.end()) return IS_DEVICE;
    return containing(w.allocations, p, 0) != w.allocations.end() ? IS_ASTRAY : IS_HOST;
}

/* CUDA would take a copy from a GPU to another through the host, slowly; nothing of ours means that. */
void check_reach(const device *d, const void *p) {
    auto found = containing(world().allocations, p, 0);
    if (found != world().allocations.end() && !found->second.managed && !reaches(d, found->second.on))
        fail(here(), "a copy on GPU %d touches memory of GPU %d at %p", d->number, found->second.on, p);
}

/* Whether a copy is within its blocks and of the direction it says. */
cudaError_t check_copy(const device *d, const void *to, size_t to_bytes, const void *from, size_t from_bytes,
                       cudaMemcpyKind kind) {
    guard hold(world().lock);
    check_reach(d, to), check_reach(d, from);
    int target = where_is(to, to_bytes), source = where_is(from, from_bytes);
    if (target == IS_ASTRAY || source == IS_ASTRAY) return cudaErrorInvalidValue;
    if (kind == cudaMemcpyDefault) return cudaSuccess;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return (target == IS_DEVICE) == to_device && (source == IS_DEVICE) == from_device ? cudaSuccess
                                                                                      : cudaErrorInvalidValue;
}

bool maps_a_file(const void *p, size_t bytes) {
    uintptr_t begin_at = reinterpret_cast<uintptr_t>(p), from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], path[4096];
    bool found = false;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long inode = 0;
        path[0] = '\0';
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu %4095s", &from, &to, &inode, path) < 3) continue;
        found |= inode != 0 && from < begin_at + bytes && begin_at < to;
    }
    if (maps) fclose(maps);
    return found;
}

bool overlaps_registered(const void *p, size_t bytes) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    for (auto &r : world().host)
        if (r.first < a + bytes && a < r.first + r.second.bytes) return true;
    return false;
}

} // namespace cuda_runtime_on_host

static void *new_memory(size_t alignment, size_t bytes) {
    void *p = nullptr;
    if (KNOWS_PAGES) alignment = PAGE; /* and no other block is on its pages */
    if (posix_memalign(&p, alignment, KNOWS_PAGES ? (bytes + PAGE - 1) / PAGE * PAGE : bytes) != 0) return nullptr;
    return memset(p, 0xff, bytes); /* floats that are NaN, ids that are none */
}

/* The lock is held. */
static void free_block(uintptr_t start, size_t bytes) {
    mark_pages(reinterpret_cast<void *>(start), bytes, ANYBODYS);
    free(reinterpret_cast<void *>(start));
}

static cudaError_t allocate(device *d, void **p, size_t bytes, size_t alignment, bool managed) {
    guard hold(world().lock);
    if (bytes > world().memory || d->used > world().memory - bytes) return cudaErrorMemoryAllocation;
    if (!(*p = new_memory(alignment, bytes))) return cudaErrorMemoryAllocation;
    d->used += bytes;
    world().allocations[reinterpret_cast<uintptr_t>(*p)] = {bytes, d->number, managed};
    if (!managed) mark_pages(*p, bytes, static_cast<uint8_t>(d->number + 1));
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin_uncaptured(calls, d)) return end(e);
    *p = nullptr;
    return end(bytes ? allocate(d, p, bytes, 256, false) : cudaSuccess);
}

/* Counted as the device's, which real ones do only for pages that have moved to it. */
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin_uncaptured(calls, d)) return end(e);
    if (!bytes || flags != cudaMemAttachGlobal) return end(cudaErrorInvalidValue);
    return end(allocate(d, p, bytes, 4096, true));
}

/* Changes nothing: host and devices have one memory here. */
cudaError_t cudaMemAdvise(const void *p, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    auto found = containing(world().allocations, p, bytes);
    bool on_device = location.type == cudaMemLocationTypeDevice;
    if (found == world().allocations.end() || !found->second.managed) return end(cudaErrorInvalidValue);
    if (advice != cudaMemAdviseSetPreferredLocation && advice != cudaMemAdviseSetAccessedBy)
        return end(cudaErrorInvalidValue);
    if (on_device && (location.id < 0 || static_cast<size_t>(location.id) >= world().devices.size()))
        return end(cudaErrorInvalidDevice);
    return end(on_device && attribute_value(cudaDevAttrConcurrentManagedAccess) <= 0 ? cudaErrorInvalidDevice
                                                                                     : cudaSuccess);
}

cudaError_t cudaFree(void *p) {
    static counter calls(__func__, true);
    guard hold(world().lock);
    auto found = world().allocations.find(reinterpret_cast<uintptr_t>(p));
    device *d = found != world().allocations.end() ? world().devices[static_cast<size_t>(found->second.on)].get()
                                                   : this_device();
    hold.unlock();
    if (cudaError_t e = begin_uncaptured(calls, d)) return end(settled(d, e));
    if (!p) return end(cudaSuccess);
    if (found == world().allocations.end()) return end(cudaErrorInvalidValue);
    if (cudaError_t e = synchronize_alone(d)) return end(e);
    hold.lock();
    d->used -= found->second.bytes;
    free_block(found->first, found->second.bytes);
    world().allocations.erase(found);
    return end(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return end(e);
    *p = nullptr;
    if (!bytes) return end(cudaSuccess);
    if (!(*p = new_memory(4096, bytes))) return end(cudaErrorMemoryAllocation);
    guard hold(world().lock);
    world().host[reinterpret_cast<uintptr_t>(*p)] = {bytes, flags, true};
    return end(cudaSuccess);
}

cudaError_t cudaMallocHost(void **p, size_t bytes) {
    return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

/* Waits for all devices, as CUDA's does. */
cudaError_t cudaFreeHost(void *p) {
    static counter calls(__func__, true);
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return end(e);
    if (!p) return end(cudaSuccess);
    synchronize_all();
    guard hold(world().lock);
    auto found = world().host.find(reinterpret_cast<uintptr_t>(p));
    if (found == world().host.end() || !found->second.allocated) return end(cudaErrorInvalidValue);
    world().host.erase(found);
    free(p);
    return end(cudaSuccess);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return end(e);
    if (!p || !bytes || flags & ~15u) return end(cudaErrorInvalidValue);
    guard hold(world().lock);
    if (world().refusal && (!world().refuse_files_only || maps_a_file(p, bytes))) return end(world().refusal);
    if (overlaps_registered(p, bytes)) return end(cudaErrorHostMemoryAlreadyRegistered);
    range r = {bytes, flags, false};
    set_apart(reinterpret_cast<uintptr_t>(p), &r);
    world().host[reinterpret_cast<uintptr_t>(p)] = r;
    return end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *p) {
    static counter calls(__func__, true);
    if (cudaError_t e = begin_uncaptured(calls, this_device())) {
        guard hold(world().lock); /* it stays pinned, but its owner is done with it */
        auto left = world().host.find(reinterpret_cast<uintptr_t>(p));
        if (left != world().host.end() && left->second.seen) mark_pages(p, left->second.bytes, ANYBODYS);
        return end(e);
    }
    synchronize_all();
    guard hold(world().lock);
    auto found = world().host.find(reinterpret_cast<uintptr_t>(p));
    if (found == world().host.end()) return end(cudaErrorHostMemoryNotRegistered);
    if (found->second.allocated) return end(cudaErrorInvalidValue);
    join_again(found->first, found->second, true);
    world().host.erase(found);
    return end(cudaSuccess);
}

static void *where_seen(std::map<uintptr_t, range>::iterator r, const void *host) {
    uintptr_t p = reinterpret_cast<uintptr_t>(host);
    return reinterpret_cast<void *>(r->second.seen ? r->second.seen + (p - r->first) : p);
}

cudaError_t cudaHostGetDevicePointer(void **on_device, void *host, unsigned flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    auto found = containing(world().host, host, 1);
    if (flags || found == world().host.end()) return end(cudaErrorInvalidValue);
    std::vector<unsigned char> &stale = world().stale;
    size_t from_stale = static_cast<size_t>(static_cast<unsigned char *>(host) - world().stale_start);
    *on_device = from_stale < stale.size() ? stale.data() + from_stale : where_seen(found, host);
    return end(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    void *same = const_cast<void *>(p);
    auto found = containing(world().allocations, p, 1);
    auto host = containing(world().host, p, 1);
    auto seen = containing(world().seen, p, 1);
    if (found != world().allocations.end())
        *attributes = {found->second.managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice, found->second.on, same,
                       found->second.managed ? same : nullptr};
    else if (host != world().host.end())
        *attributes = {cudaMemoryTypeHost, this_number(), where_seen(host, p), same};
    else if (seen != world().seen.end())
        *attributes = {cudaMemoryTypeHost, this_number(), same,
                       reinterpret_cast<void *>(seen->second.host + (reinterpret_cast<uintptr_t>(p) - seen->first))};
    else
        *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, same};
    return end(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (!bytes) return end(cudaSuccess);
    if (cudaError_t e = check_copy(stream->on, to, bytes, from, bytes, kind)) return end(e);
    return end(submit(stream, [=] { memcpy(to, from, bytes); }));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (width > to_pitch || width > from_pitch) return end(cudaErrorInvalidValue);
    if (!width || !height) return end(cudaSuccess);
    if (cudaError_t e =
            check_copy(stream->on, to, to_pitch * (height - 1) + width, from, from_pitch * (height - 1) + width, kind))
        return end(e);
    return end(submit(stream, [=] {
        for (size_t y = 0; y < height; y++)
            memcpy(static_cast<char *>(to) + y * to_pitch, static_cast<const char *>(from) + y * from_pitch, width);
    }));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    static counter calls(__func__, true);
    cudaStream_t stream = nullptr;
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (cudaError_t e = forbidden_in_capture()) return end(e);
    if (!bytes) return end(cudaSuccess);
    if (cudaError_t e = check_copy(stream->on, to, bytes, from, bytes, kind)) return end(e);
    push(stream, [=] { memcpy(to, from, bytes); });
    return end(synchronize(stream));
}

static cudaError_t set(cudaStream_t stream, void *p, int value, size_t bytes) {
    if (!bytes) return cudaSuccess;
    guard hold(world().lock);
    check_reach(stream->on, p);
    bool known = where_is(p, bytes) == IS_DEVICE || is_seen(p, bytes);
    hold.unlock();
    if (!known) return cudaErrorInvalidValue;
    return submit(stream, [=] { memset(p, value, bytes); });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    return end(set(stream, p, value, bytes));
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    static counter calls(__func__);
    cudaStream_t stream = nullptr;
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (cudaError_t e = forbidden_in_capture()) return end(e);
    return end(set(stream, p, value, bytes));
}

#endif /* ON_HOST_MEMORY_H */
