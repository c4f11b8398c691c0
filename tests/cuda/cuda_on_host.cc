/* cuda_on_host.cc - the runtime of cuda_on_host.h: devices, memory, streams, events, graphs, and failures on request.
 *
 * One lock guards what is listed below in `world`. A stream's thread never takes it while it works, and takes what is
 * queued by release and acquire of the entry alone: ThreadSanitizer then sees no more order between a host and a stream
 * than CUDA gives. */
#include "cuda_on_host_grid.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

using cuda_on_host::fail;
using cuda_on_host::here;

struct device;
struct CUctx_st { /* of a device, the primary one */
    device *on;
    std::atomic<bool> exists{false}; /* never ends */
};

namespace {

using work = std::function<void()>;
using guard = std::unique_lock<std::mutex>;

/* A count that others wait for; who sees it sees what came before it. */
struct progress {
    std::atomic<uint32_t> value{0};

    void advance() {
        value.fetch_add(1, std::memory_order_release);
        syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
    }
    bool reached(uint32_t n) const {
        return static_cast<int32_t>(value.load(std::memory_order_acquire) - n) >= 0;
    }
    void wait(uint32_t n) {
        while (!reached(n)) {
            uint32_t seen = value.load(std::memory_order_relaxed);
            if (static_cast<int32_t>(seen - n) < 0) syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        }
    }
};

} // namespace

struct device {
    int number;
    CUctx_st context{this};
    std::atomic<bool> lost{false};
    std::atomic<int64_t> launches_left{0}; /* to the one that loses it; 0 or less: none */
    size_t used = 0;
    cudaStream_t null_stream = nullptr;
    std::set<cudaStream_t> streams; /* that have a thread, destroyed or not */
};

namespace {

struct entry { /* of a stream's queue */
    std::atomic<entry *> next{nullptr};
    work todo; /* none: the stream ends */
};

struct allocation {
    size_t bytes;
    int on;
};
struct range { /* of host memory that devices know */
    size_t bytes;
    unsigned flags;
    bool allocated; /* by cudaHostAlloc */
};
struct record { /* of an event; those who wait for it hold it */
    progress done;
    std::chrono::steady_clock::time_point when;
};

} // namespace

struct CUstream_st {
    device *on;
    std::mutex pushing;
    entry *first = new entry, *last = first; /* the first has been done: the stream's thread, the last: who pushes */
    std::atomic<uint32_t> pushed{0};         /* relaxed: wakes the thread; the entry itself carries the order */
    progress done;
    std::atomic<unsigned> delay{0};
    std::atomic<cudaStreamCaptureStatus> capturing{cudaStreamCaptureStatusNone};
    unsigned flags = cudaStreamDefault;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id capturer;
    cudaGraph_t capture = nullptr;
    bool live = true; /* until it is destroyed */
};
struct CUevent_st {
    device *on;
    unsigned flags;
    std::shared_ptr<record> last;
};
struct CUgraph_st {
    std::vector<work> nodes;
};
struct CUgraphExec_st {
    std::shared_ptr<const std::vector<work>> nodes;
};

namespace {

struct counter { /* of a function's calls */
    const char *name;
    std::atomic<uint64_t> calls{0}, fail_at{0};
    bool synchronizes;
    counter *next;
    explicit counter(const char *function, bool waits = false);
};

struct world_type {
    std::mutex lock;
    std::vector<std::unique_ptr<device>> devices;
    size_t memory;
    std::map<uintptr_t, allocation> allocations;
    std::map<uintptr_t, range> host;
    std::map<int, int> attributes; /* that a test has set */
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::set<cudaGraph_t> graphs;
    std::set<cudaGraphExec_t> execs;
    cudaError_t refusal;
    bool refuse_files_only;
    counter *counters = nullptr;
    std::map<std::string, std::pair<uint64_t, cudaError_t>> named; /* failures: the call's number, and its error */

    std::atomic<uint64_t> seed, launches;
    std::atomic<unsigned> every, delay;
    std::atomic<int> multiprocessors;
    std::atomic<uint64_t> calls_left; /* to the one that fails; 0: none */
    std::atomic<int> call_error;
    std::atomic<bool> failed;

    world_type() {
        defaults();
    }
    void defaults();
    void make_devices(int n) {
        devices.clear();
        for (int i = 0; i < n; i++) {
            devices.emplace_back(new device);
            devices.back()->number = i;
        }
    }
};

uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

void world_type::defaults() {
    make_devices(static_cast<int>(from_environment("FRUGAL_CUDA_DEVICES", 2)));
    memory = size_t(4) << 30;
    refusal = cudaSuccess;
    refuse_files_only = false;
    attributes.clear();
    named.clear();
    seed = from_environment("FRUGAL_CUDA_SEED", 1);
    launches = 0;
    every = 16;
    delay = 0;
    multiprocessors = 2;
    calls_left = 0;
    failed = false;
}

/* Never destroyed: threads of streams may outlive main. */
world_type &world() {
    static world_type &w = *new world_type;
    return w;
}

thread_local int current_device;
thread_local bool has_set_device;
thread_local std::vector<int> pushed_devices; /* contexts, by the driver's calls; the last is where the thread is */
thread_local cudaError_t last_error;
thread_local bool in_host_function;

counter::counter(const char *function, bool waits) : name(function), synchronizes(waits) {
    guard hold(world().lock);
    next = world().counters;
    world().counters = this;
}

/* >>every call: counted, failed on request, and told that its device is lost */
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

cudaError_t begin_without_context(counter &c, const device *d) {
    if (c.calls.load(std::memory_order_relaxed) == 0) { /* a failure may have been asked for before the first call */
        guard hold(world().lock);
        auto found = world().named.find(c.name);
        if (found != world().named.end()) c.fail_at = found->second.first;
    }
    if (cuda_on_host::current) fail(here(), "%s in a kernel", c.name);
    if (cudaError_t e = requested_failure(c)) return e;
    if (in_host_function) return cudaErrorNotPermitted;
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

/* >>streams */
entry *next_entry(cudaStream_t s) {
    entry *next;
    for (;;) {
        uint32_t pushed = s->pushed.load(std::memory_order_relaxed);
        if ((next = s->first->next.load(std::memory_order_acquire))) return next;
        syscall(SYS_futex, &s->pushed, FUTEX_WAIT_PRIVATE, pushed, nullptr, nullptr, 0);
    }
}

void run_stream(cudaStream_t s) {
    for (;;) {
        entry *e = next_entry(s);
        delete s->first;
        s->first = e;
        if (!e->todo) break;
        unsigned delay = s->delay.load(std::memory_order_relaxed) + world().delay.load(std::memory_order_relaxed);
        if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
        if (!s->on->lost.load(std::memory_order_acquire)) e->todo();
        work().swap(e->todo);
        s->done.advance();
    }
    guard hold(world().lock);
    s->on->streams.erase(s);
    delete s->first;
    hold.unlock();
    { guard pushed(s->pushing); } /* who pushed the last entry has let go of it */
    delete s;
}

/* Returns the count of `done` when it will have been done. */
uint32_t push(cudaStream_t s, work todo) {
    entry *e = new entry;
    e->todo = std::move(todo);
    guard hold(s->pushing);
    s->last->next.store(e, std::memory_order_release);
    s->last = e;
    uint32_t n = s->pushed.load(std::memory_order_relaxed) + 1;
    s->pushed.store(n, std::memory_order_relaxed);
    syscall(SYS_futex, &s->pushed, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    return n;
}

/* With the lock held. */
cudaStream_t new_stream(device *d) {
    cudaStream_t s = new CUstream_st;
    s->on = d;
    d->streams.insert(s);
    std::thread(run_stream, s).detach();
    return s;
}

/* NULL: there is no such stream. */
cudaStream_t find(cudaStream_t s) {
    guard hold(world().lock);
    if (s) return world().streams.count(s) ? s : nullptr;
    device *d = this_device();
    if (d && !d->null_stream) d->null_stream = new_stream(d);
    return d ? d->null_stream : nullptr;
}

/* Queued, or one more node of the graph that the stream captures. */
cudaError_t submit(cudaStream_t s, work todo) {
    if (s->capturing == cudaStreamCaptureStatusInvalidated) return cudaErrorStreamCaptureInvalidated;
    if (s->capturing) s->capture->nodes.push_back(std::move(todo));
    else push(s, std::move(todo));
    return cudaSuccess;
}

cudaError_t begin_on(counter &c, cudaStream_t &s) {
    cudaStream_t found = find(s);
    cudaError_t e = begin(c, found ? found->on : this_device());
    if (!e && !found) e = cudaErrorInvalidResourceHandle;
    s = found;
    return e;
}

cudaError_t synchronize(cudaStream_t s) {
    s->done.wait(s->pushed.load(std::memory_order_relaxed));
    return lost(s->on);
}

/* All of a device, destroyed streams too. */
cudaError_t synchronize(device *d) {
    std::vector<std::pair<cudaStream_t, uint32_t>> marks;
    for (unsigned looks = 0;; looks++) { /* a destroyed stream may go away: it is looked at with the lock held */
        guard hold(world().lock);
        if (marks.empty())
            for (cudaStream_t s : d->streams) marks.emplace_back(s, s->pushed.load(std::memory_order_relaxed) - !s->live);
        bool waits = false;
        for (auto &m : marks) waits |= d->streams.count(m.first) && !m.first->done.reached(m.second);
        if (!waits) return lost(d);
        hold.unlock();
        if (looks < 100) std::this_thread::yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
}

/* Calls that may wait for a device make a capture fail that forbids them to this thread. */
cudaError_t forbidden_in_capture() {
    cudaError_t e = cudaSuccess;
    guard hold(world().lock);
    for (cudaStream_t s : world().streams) {
        if (!s->capturing || s->mode == cudaStreamCaptureModeRelaxed) continue;
        if (s->mode == cudaStreamCaptureModeThreadLocal && s->capturer != std::this_thread::get_id()) continue;
        s->capturing = cudaStreamCaptureStatusInvalidated;
        e = cudaErrorStreamCaptureUnsupported;
    }
    return e;
}

cudaError_t begin_uncaptured(counter &c, device *d) {
    cudaError_t e = begin(c, d);
    return e ? e : forbidden_in_capture();
}

/* >>memory; with the lock held */
template <typename Map> typename Map::iterator containing(Map &map, const void *p, size_t bytes) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    auto i = map.upper_bound(a);
    if (i == map.begin()) return map.end();
    --i;
    return a - i->first < i->second.bytes && bytes <= i->second.bytes - (a - i->first) ? i : map.end();
}

enum { IS_HOST, IS_DEVICE, IS_ASTRAY };

int where_is(const void *p, size_t bytes) {
    world_type &w = world();
    if (containing(w.allocations, p, bytes) != w.allocations.end()) return IS_DEVICE;
    return containing(w.allocations, p, 0) != w.allocations.end() ? IS_ASTRAY : IS_HOST;
}

/* Whether a copy is within its blocks and of the direction it says. */
cudaError_t check_copy(const void *to, size_t to_bytes, const void *from, size_t from_bytes, cudaMemcpyKind kind) {
    guard hold(world().lock);
    int target = where_is(to, to_bytes), source = where_is(from, from_bytes);
    if (target == IS_ASTRAY || source == IS_ASTRAY) return cudaErrorInvalidValue;
    if (kind == cudaMemcpyDefault) return cudaSuccess;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return (target == IS_DEVICE) == to_device && (source == IS_DEVICE) == from_device ? cudaSuccess : cudaErrorInvalidValue;
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

} // namespace

/* >>errors */
const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define NAME(e)                                                                                                        \
    case e: return #e;
        NAME(cudaSuccess)
        NAME(cudaErrorInvalidValue)
        NAME(cudaErrorMemoryAllocation)
        NAME(cudaErrorInitializationError)
        NAME(cudaErrorInvalidConfiguration)
        NAME(cudaErrorInvalidMemcpyDirection)
        NAME(cudaErrorInsufficientDriver)
        NAME(cudaErrorNoDevice)
        NAME(cudaErrorInvalidDevice)
        NAME(cudaErrorNoKernelImageForDevice)
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

/* >>devices */
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
    if (pushed_devices.empty()) current_device = number, has_set_device = true;
    else pushed_devices.back() = number;
    world().devices[static_cast<size_t>(number)]->context.exists = true; /* since CUDA 12 */
    return end(cudaSuccess);
}

static int attribute_value(cudaDeviceAttr attribute) { /* -1: not emulated */
    auto set = world().attributes.find(attribute);
    if (set != world().attributes.end()) return set->second;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX: return 1024;
    case cudaDevAttrMaxGridDimX: return INT32_MAX;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMultiProcessorCount: return world().multiprocessors;
    case cudaDevAttrL2CacheSize: return 1 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrAsyncEngineCount: return 2;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrIntegrated:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
    case cudaDevAttrPageableMemoryAccess: return 0;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrHostRegisterReadOnlySupported: return 1;
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

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return end(e);
    guard hold(world().lock);
    *total = world().memory;
    *free_bytes = world().memory > d->used ? world().memory - d->used : 0;
    return end(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
    static counter calls(__func__, true);
    device *d = this_device();
    if (cudaError_t e = begin_uncaptured(calls, d)) {
        if (e == cudaErrorLaunchFailure && d) synchronize(d); /* what ran when the device was lost is over then */
        return end(e);
    }
    return end(synchronize(d));
}

/* >>memory */
static void *new_memory(size_t alignment, size_t bytes) {
    void *p = nullptr;
    if (posix_memalign(&p, alignment, bytes) != 0) return nullptr;
    return memset(p, 0xff, bytes); /* floats that are NaN, ids that are none */
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin_uncaptured(calls, d)) return end(e);
    *p = nullptr;
    if (!bytes) return end(cudaSuccess);
    guard hold(world().lock);
    if (bytes > world().memory || d->used > world().memory - bytes) return end(cudaErrorMemoryAllocation);
    if (!(*p = new_memory(256, bytes))) return end(cudaErrorMemoryAllocation);
    d->used += bytes;
    world().allocations[reinterpret_cast<uintptr_t>(*p)] = {bytes, d->number};
    return end(cudaSuccess);
}

cudaError_t cudaFree(void *p) {
    static counter calls(__func__, true);
    guard hold(world().lock);
    auto found = world().allocations.find(reinterpret_cast<uintptr_t>(p));
    device *d = found != world().allocations.end() ? world().devices[static_cast<size_t>(found->second.on)].get() : this_device();
    hold.unlock();
    if (cudaError_t e = begin_uncaptured(calls, d)) return end(e);
    if (!p) return end(cudaSuccess);
    if (found == world().allocations.end()) return end(cudaErrorInvalidValue);
    if (cudaError_t e = synchronize(d)) return end(e);
    hold.lock();
    d->used -= found->second.bytes;
    world().allocations.erase(found);
    free(p);
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
    for (auto &d : world().devices) synchronize(d.get());
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
    world().host[reinterpret_cast<uintptr_t>(p)] = {bytes, flags, false};
    return end(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *p) {
    static counter calls(__func__);
    if (cudaError_t e = begin_uncaptured(calls, this_device())) return end(e);
    guard hold(world().lock);
    auto found = world().host.find(reinterpret_cast<uintptr_t>(p));
    if (found == world().host.end()) return end(cudaErrorHostMemoryNotRegistered);
    if (found->second.allocated) return end(cudaErrorInvalidValue);
    world().host.erase(found);
    return end(cudaSuccess);
}

cudaError_t cudaHostGetDevicePointer(void **on_device, void *host, unsigned flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    if (flags || containing(world().host, host, 1) == world().host.end()) return end(cudaErrorInvalidValue);
    *on_device = host;
    return end(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    void *same = const_cast<void *>(p);
    auto found = containing(world().allocations, p, 1);
    if (found != world().allocations.end()) *attributes = {cudaMemoryTypeDevice, found->second.on, same, nullptr};
    else if (containing(world().host, p, 1) != world().host.end())
        *attributes = {cudaMemoryTypeHost, this_number(), same, same};
    else *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, same};
    return end(cudaSuccess);
}

/* >>copies */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (!bytes) return end(cudaSuccess);
    if (cudaError_t e = check_copy(to, bytes, from, bytes, kind)) return end(e);
    return end(submit(stream, [=] { memcpy(to, from, bytes); }));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (width > to_pitch || width > from_pitch) return end(cudaErrorInvalidValue);
    if (!width || !height) return end(cudaSuccess);
    if (cudaError_t e = check_copy(to, to_pitch * (height - 1) + width, from, from_pitch * (height - 1) + width, kind))
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
    if (cudaError_t e = check_copy(to, bytes, from, bytes, kind)) return end(e);
    push(stream, [=] { memcpy(to, from, bytes); });
    return end(synchronize(stream));
}

static cudaError_t set(cudaStream_t stream, void *p, int value, size_t bytes) {
    if (!bytes) return cudaSuccess;
    guard hold(world().lock);
    bool known = where_is(p, bytes) == IS_DEVICE || containing(world().host, p, bytes) != world().host.end();
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

/* >>streams */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return end(e);
    if (flags & ~1u) return end(cudaErrorInvalidValue);
    guard hold(world().lock);
    *stream = new_stream(d);
    (*stream)->flags = flags;
    world().streams.insert(*stream);
    return end(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

/* Returns at once; what is queued is done first. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    static counter calls(__func__);
    if (!stream) return end(cudaErrorInvalidResourceHandle);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (stream->capturing) fail(here(), "cudaStreamDestroy of a stream that captures");
    guard hold(world().lock);
    world().streams.erase(stream);
    stream->live = false;
    push(stream, nullptr);
    return end(cudaSuccess);
}

static cudaError_t refuse_capturing(cudaStream_t stream) {
    if (!stream->capturing) return cudaSuccess;
    stream->capturing = cudaStreamCaptureStatusInvalidated;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    static counter calls(__func__, true);
    if (cudaError_t e = begin_on(calls, stream)) {
        if (e == cudaErrorLaunchFailure && stream) synchronize(stream); /* what ran when the device was lost is over then */
        return end(e);
    }
    if (cudaError_t e = refuse_capturing(stream)) return end(e);
    return end(synchronize(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (cudaError_t e = refuse_capturing(stream)) return end(e);
    if (!stream->done.reached(stream->pushed.load(std::memory_order_relaxed))) return end(cudaErrorNotReady);
    return end(lost(stream->on));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    *flags = stream->flags;
    return end(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (!function) return end(cudaErrorInvalidValue);
    return end(submit(stream, [=] {
        in_host_function = true;
        function(argument);
        in_host_function = false;
    }));
}

static unsigned resident_blocks() {
    return 2 * static_cast<unsigned>(world().multiprocessors.load(std::memory_order_relaxed));
}

cudaError_t cuda_on_host::launch_kernel(kernel &&k, cudaStream_t stream) {
    static counter calls("cudaLaunchKernel");
    cudaError_t e = begin_on(calls, stream);
    if (!e && (stream->on != this_device())) e = cudaErrorInvalidResourceHandle;
    if (!e && (!k.grid.x || !k.block.x || k.block.x > 1024 || k.grid.x > INT32_MAX)) e = cudaErrorInvalidConfiguration;
    if (e) return end(e);
    if (k.grid.y != 1 || k.grid.z != 1 || k.block.y != 1 || k.block.z != 1)
        fail(k.at, "launch of %s: only x is emulated", k.name);
    if (k.block.x % 32) fail(k.at, "launch of %s with blocks of %u threads: only whole warps are emulated", k.name, k.block.x);
    auto shared = std::make_shared<const kernel>(std::move(k));
    auto seed = std::make_shared<std::atomic<uint64_t>>(world().seed + 0x632be59bd9b4e019u * ++world().launches);
    device *d = stream->on;
    return end(submit(stream, [shared, seed, d] {
        if (d->launches_left.load() > 0 && d->launches_left.fetch_sub(1) == 1) d->lost = true;
        if (d->lost) return;
        world_type &w = world();
        /* A graph's kernels run more than once, each time in another order. */
        schedule s = {seed->fetch_add(0x9e6c63d0876a9a47u), resident_blocks(), w.every, &d->lost};
        if (shared->run) shared->run(*shared, s);
        else run_grid(*shared, s);
    }));
}

/* >>events */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return end(e);
    guard hold(world().lock);
    *event = new CUevent_st{d, flags, nullptr};
    world().events.insert(*event);
    return end(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

static bool exists(cudaEvent_t event) {
    guard hold(world().lock);
    return world().events.count(event) != 0;
}

static std::shared_ptr<record> last_record(cudaEvent_t event) {
    guard hold(world().lock);
    return event->last;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (!exists(event) || event->on != stream->on) return end(cudaErrorInvalidResourceHandle);
    if (stream->capturing) fail(here(), "cudaEventRecord in a capture is not emulated");
    auto r = std::make_shared<record>();
    guard hold(world().lock);
    event->last = r;
    hold.unlock();
    push(stream, [r] {
        r->when = std::chrono::steady_clock::now();
        r->done.advance();
    });
    return end(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (!exists(event)) return end(cudaErrorInvalidResourceHandle);
    if (flags) return end(cudaErrorInvalidValue);
    if (stream->capturing) fail(here(), "cudaStreamWaitEvent in a capture is not emulated");
    auto r = last_record(event);
    device *from = event->on, *d = stream->on;
    if (r) push(stream, [=] {
            while (!r->done.reached(1) && !from->lost && !d->lost) std::this_thread::sleep_for(std::chrono::microseconds(20));
        });
    return end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    static counter calls(__func__);
    bool known = exists(event);
    if (cudaError_t e = begin(calls, known ? event->on : this_device())) return end(e);
    if (!known) return end(cudaErrorInvalidResourceHandle);
    auto r = last_record(event);
    return end(!r || r->done.reached(1) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    static counter calls(__func__, true);
    bool known = exists(event);
    if (cudaError_t e = begin(calls, known ? event->on : this_device())) return end(e);
    if (!known) return end(cudaErrorInvalidResourceHandle);
    auto r = last_record(event);
    while (r && !r->done.reached(1)) {
        if (event->on->lost) return end(cudaErrorLaunchFailure);
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return end(lost(event->on));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    if (!exists(from) || !exists(to) || (from->flags | to->flags) & cudaEventDisableTiming)
        return end(cudaErrorInvalidResourceHandle);
    auto a = last_record(from), b = last_record(to);
    if (!a || !b) return end(cudaErrorInvalidResourceHandle);
    if (!a->done.reached(1) || !b->done.reached(1)) return end(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(b->when - a->when).count();
    return end(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    static counter calls(__func__);
    bool known = exists(event);
    if (cudaError_t e = begin(calls, known ? event->on : this_device())) return end(e);
    if (!known) return end(cudaErrorInvalidResourceHandle);
    guard hold(world().lock);
    world().events.erase(event);
    delete event;
    return end(cudaSuccess);
}

/* >>graphs */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    static counter calls(__func__);
    if (!stream) return end(cudaErrorStreamCaptureUnsupported);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    guard hold(world().lock);
    if (stream->capturing) return end(cudaErrorIllegalState);
    stream->capture = new CUgraph_st;
    stream->mode = mode;
    stream->capturer = std::this_thread::get_id();
    stream->capturing = cudaStreamCaptureStatusActive;
    return end(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    static counter calls(__func__);
    *graph = nullptr;
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    guard hold(world().lock);
    if (!stream->capturing) return end(cudaErrorIllegalState);
    if (stream->mode != cudaStreamCaptureModeRelaxed && stream->capturer != std::this_thread::get_id())
        return end(cudaErrorStreamCaptureWrongThread);
    bool good = stream->capturing == cudaStreamCaptureStatusActive;
    stream->capturing = cudaStreamCaptureStatusNone;
    if (good) world().graphs.insert(*graph = stream->capture);
    else delete stream->capture;
    stream->capture = nullptr;
    return end(good ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    *status = stream->capturing;
    return end(cudaSuccess);
}

/* Other threads' captures forbid nothing here: kept for who asks for its own mode back. */
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    static counter calls(__func__);
    static thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
    if (cudaError_t e = begin_without_context(calls, this_device())) return end(e);
    std::swap(own, *mode);
    return end(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    if (flags || !world().graphs.count(graph)) return end(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{std::make_shared<const std::vector<work>>(graph->nodes)};
    world().execs.insert(*exec);
    return end(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, cudaGraphNode_t *node, char *log, size_t bytes) {
    if (node) *node = nullptr;
    if (log && bytes) *log = '\0';
    return cudaGraphInstantiate(exec, graph, 0ull);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    guard hold(world().lock);
    if (!world().execs.count(exec)) return end(cudaErrorInvalidValue);
    auto nodes = exec->nodes;
    hold.unlock();
    if (stream->capturing) fail(here(), "cudaGraphLaunch in a capture is not emulated");
    device *d = stream->on;
    push(stream, [nodes, d] {
        for (const work &node : *nodes)
            if (!d->lost) node();
    });
    return end(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    if (!world().execs.erase(exec)) return end(cudaErrorInvalidValue);
    delete exec;
    return end(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    static counter calls(__func__);
    if (cudaError_t e = begin(calls, this_device())) return end(e);
    guard hold(world().lock);
    if (!world().graphs.erase(graph)) return end(cudaErrorInvalidValue);
    delete graph;
    return end(cudaSuccess);
}

/* >>the driver's waits for values in memory */
static CUresult value_operation(counter &calls, CUstream stream, CUdeviceptr address,
                                work (*make)(device *, uint64_t *, uint64_t, unsigned), cuuint64_t value, unsigned flags) {
    if (cudaError_t e = begin_on(calls, stream)) return static_cast<CUresult>(e);
    uint64_t *p = reinterpret_cast<uint64_t *>(static_cast<uintptr_t>(address));
    guard hold(world().lock);
    bool known = where_is(p, 8) == IS_DEVICE || containing(world().host, p, 8) != world().host.end();
    hold.unlock();
    if (!known || address % 8) return CUDA_ERROR_INVALID_VALUE;
    return static_cast<CUresult>(submit(stream, make(stream->on, p, value, flags)));
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    static counter calls("cuStreamWaitValue64");
    if (flags != CU_STREAM_WAIT_VALUE_GEQ && flags != CU_STREAM_WAIT_VALUE_EQ)
        fail(here(), "cuStreamWaitValue64: flags %u", flags);
    auto make = [](device *d, uint64_t *p, uint64_t wanted, unsigned how) -> work {
        return [=] {
            for (;;) {
                uint64_t seen = __atomic_load_n(p, __ATOMIC_ACQUIRE);
                if (how == CU_STREAM_WAIT_VALUE_EQ ? seen == wanted : static_cast<int64_t>(seen - wanted) >= 0) return;
                if (d->lost) return;
                std::this_thread::sleep_for(std::chrono::microseconds(10));
            }
        };
    };
    return value_operation(calls, stream, address, make, value, flags);
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    static counter calls("cuStreamWriteValue64");
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) fail(here(), "cuStreamWriteValue64: flags %u", flags);
    auto make = [](device *, uint64_t *p, uint64_t written, unsigned) -> work {
        return [=] { __atomic_store_n(p, written, __ATOMIC_RELEASE); };
    };
    return value_operation(calls, stream, address, make, value, flags);
}

/* >>the driver's contexts */
static CUresult retain_context(CUcontext *context, CUdevice number) {
    static counter calls("cuDevicePrimaryCtxRetain");
    if (cudaError_t e = requested_failure(calls)) return static_cast<CUresult>(e);
    if (number < 0 || static_cast<size_t>(number) >= world().devices.size()) return CUDA_ERROR_INVALID_VALUE;
    *context = &world().devices[static_cast<size_t>(number)]->context;
    (*context)->exists = true;
    return static_cast<CUresult>(lost((*context)->on));
}

static CUresult get_context(CUcontext *context) {
    static counter calls("cuCtxGetCurrent");
    if (cudaError_t e = requested_failure(calls)) return static_cast<CUresult>(e);
    device *d = this_device();
    *context = d && (has_set_device || !pushed_devices.empty()) ? &d->context : nullptr;
    return CUDA_SUCCESS;
}

static CUresult push_context(CUcontext context) {
    static counter calls("cuCtxPushCurrent");
    if (cudaError_t e = requested_failure(calls)) return static_cast<CUresult>(e);
    if (!context->exists) return CUDA_ERROR_INVALID_CONTEXT;
    pushed_devices.push_back(context->on->number);
    return CUDA_SUCCESS;
}

static CUresult pop_context(CUcontext *context) {
    static counter calls("cuCtxPopCurrent");
    requested_failure(calls); /* counted */
    if (pushed_devices.empty()) fail(here(), "cuCtxPopCurrent, and nothing was pushed");
    *context = &this_device()->context;
    pushed_devices.pop_back();
    return CUDA_SUCCESS;
}

/* As cudaStreamQuery, and the thread's last error stays what it was. */
static CUresult query_stream(CUstream stream) {
    static counter calls("cuStreamQuery");
    if (cudaError_t e = begin_on(calls, stream)) return static_cast<CUresult>(e);
    if (cudaError_t e = refuse_capturing(stream)) return static_cast<CUresult>(e);
    if (!stream->done.reached(stream->pushed.load(std::memory_order_relaxed))) return CUDA_ERROR_NOT_READY;
    return static_cast<CUresult>(lost(stream->on));
}

static cudaError_t entry_point(const char *symbol, void **function, cudaDriverEntryPointQueryResult *result) {
    static const std::map<std::string, void *> driver = {
        {"cuStreamWaitValue64", reinterpret_cast<void *>(wait_value)},
        {"cuStreamWriteValue64", reinterpret_cast<void *>(write_value)},
        {"cuStreamQuery", reinterpret_cast<void *>(query_stream)},
        {"cuDevicePrimaryCtxRetain", reinterpret_cast<void *>(retain_context)},
        {"cuCtxGetCurrent", reinterpret_cast<void *>(get_context)},
        {"cuCtxPushCurrent", reinterpret_cast<void *>(push_context)},
        {"cuCtxPopCurrent", reinterpret_cast<void *>(pop_context)}};
    auto found = driver.find(symbol);
    *function = found != driver.end() ? found->second : nullptr;
    if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *function || result ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *result) {
    static counter calls(__func__);
    if (cudaError_t e = begin_without_context(calls, this_device())) return end(e);
    return end(entry_point(symbol, function, result));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
    static counter calls(__func__);
    if (cudaError_t e = begin_without_context(calls, this_device())) return end(e);
    return end(entry_point(symbol, function, result));
}

/* >>hooks */
static void lose(device *d) {
    d->lost = true;
}

/* With every device lost, queues run empty. */
static void end_streams() {
    world_type &w = world();
    for (auto &d : w.devices) lose(d.get());
    guard hold(w.lock);
    for (auto &d : w.devices) {
        for (cudaStream_t s : d->streams) {
            if (s->live) push(s, nullptr);
            s->live = false;
            delete s->capture;
            s->capture = nullptr;
        }
        d->null_stream = nullptr;
    }
    w.streams.clear();
    for (auto &d : w.devices) {
        while (!d->streams.empty()) {
            hold.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(20));
            hold.lock();
        }
    }
}

extern "C" {

void cuda_on_host_reset(void) {
    end_streams();
    world_type &w = world();
    guard hold(w.lock);
    for (auto &a : w.allocations) free(reinterpret_cast<void *>(a.first));
    for (auto &r : w.host)
        if (r.second.allocated) free(reinterpret_cast<void *>(r.first));
    for (cudaEvent_t e : w.events) delete e;
    for (cudaGraph_t g : w.graphs) delete g;
    for (cudaGraphExec_t e : w.execs) delete e;
    w.allocations.clear(), w.host.clear(), w.events.clear(), w.graphs.clear(), w.execs.clear();
    for (counter *c = w.counters; c; c = c->next) c->calls = c->fail_at = 0;
    w.defaults();
    current_device = 0;
    has_set_device = false;
    pushed_devices.clear();
    last_error = cudaSuccess;
}

void cuda_on_host_set_devices(int n) {
    cuda_on_host_reset();
    guard hold(world().lock);
    world().make_devices(n);
}

void cuda_on_host_set_memory(size_t bytes) {
    guard hold(world().lock);
    world().memory = bytes;
}

void cuda_on_host_set_multiprocessors(int n) {
    world().multiprocessors = n;
}

void cuda_on_host_set_attribute(int attribute, int value) {
    guard hold(world().lock);
    world().attributes[attribute] = value;
}

void cuda_on_host_set_seed(uint64_t seed) {
    world().seed = seed;
    world().launches = 0;
}

uint64_t cuda_on_host_seed(void) {
    return world().seed;
}

void cuda_on_host_set_switches(unsigned every) {
    world().every = every;
}

void cuda_on_host_delay(void *stream, unsigned microseconds) {
    if (stream) static_cast<cudaStream_t>(stream)->delay = microseconds;
    else world().delay = microseconds;
}

void cuda_on_host_fail_call(uint64_t n, int error) {
    world().failed = false;
    world().call_error = error;
    world().calls_left = n;
}

void cuda_on_host_fail_named(const char *name, uint64_t n, int error) {
    world_type &w = world();
    guard hold(w.lock);
    w.failed = false;
    w.named[name] = {n, static_cast<cudaError_t>(error)};
    for (counter *c = w.counters; c; c = c->next)
        if (!strcmp(c->name, name)) c->fail_at = n ? c->calls + n : 0;
}

int cuda_on_host_has_failed(void) {
    return world().failed;
}

void cuda_on_host_lose_device(int number) {
    lose(world().devices.at(static_cast<size_t>(number)).get());
}

void cuda_on_host_lose_at_launch(int number, uint64_t n) {
    world().devices.at(static_cast<size_t>(number))->launches_left = static_cast<int64_t>(n);
}

void cuda_on_host_refuse_register(int error, int only_files) {
    guard hold(world().lock);
    world().refusal = static_cast<cudaError_t>(error);
    world().refuse_files_only = only_files != 0;
}

uint64_t cuda_on_host_count(const char *name) {
    uint64_t n = 0;
    guard hold(world().lock);
    for (counter *c = world().counters; c; c = c->next)
        if (!name || !strcmp(c->name, name)) n += c->calls;
    return n;
}

uint64_t cuda_on_host_synchronizations(void) {
    uint64_t n = 0;
    guard hold(world().lock);
    for (counter *c = world().counters; c; c = c->next)
        if (c->synchronizes) n += c->calls;
    return n;
}

uint64_t cuda_on_host_alive(void) {
    world_type &w = world();
    guard hold(w.lock);
    return w.allocations.size() + w.host.size() + w.streams.size() + w.events.size() + w.graphs.size() + w.execs.size();
}

int cuda_on_host_has_context(int number) {
    return world().devices.at(static_cast<size_t>(number))->context.exists;
}

void cuda_on_host_on_failure(void (*report)(const char *message)) {
    cuda_on_host::on_failure = report;
}

} /* extern "C" */
