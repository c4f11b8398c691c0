/* world.h - what exists: devices, streams, memory, events, graphs; and what tests have asked for. One lock guards
 * it. */
#ifndef ON_HOST_WORLD_H
#define ON_HOST_WORLD_H

#include "../cuda_on_host_grid.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <mutex>
#include <new>
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

namespace cuda_runtime_on_host {

using task = std::function<void()>;
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
            if (static_cast<int32_t>(seen - n) < 0)
                syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        }
    }
};

} // namespace cuda_runtime_on_host
using namespace cuda_runtime_on_host; /* CUDA declares some of its types outside of namespaces */

struct device {
    int number;
    CUctx_st context{this};
    std::atomic<bool> lost{false};
    std::atomic<bool> silent{false};       /* its queues stand still, and calls do not say so */
    std::atomic<int64_t> launches_left{0}; /* to the one that loses it; 0 or less: none */
    std::atomic<int> held{0};              /* threads that wait for all of it, and let no other call through */
    size_t used = 0;
    cudaStream_t null_stream = nullptr;
    std::set<cudaStream_t> streams; /* that have a thread, destroyed or not */
    std::atomic<uint32_t> peers{0}; /* bit d: it was enabled to read the memory of device d */
};

namespace cuda_runtime_on_host {

struct entry { /* of a stream's queue */
    std::atomic<entry *> next{nullptr};
    task todo; /* none: the stream ends */
};

struct allocation {
    size_t bytes;
    int on;
    bool managed;
};
struct physical { /* memory of cuMemCreate: a file without a name, which lives as long as it is mapped somewhere */
    size_t bytes;
    int file;
};
struct reservation { /* of addresses; one piece of memory fills it, or none does */
    size_t bytes;
    bool mapped, by_device, by_host; /* who was given access */
};
struct range { /* of host memory that devices know */
    size_t bytes;
    unsigned flags;
    bool allocated;           /* by cudaHostAlloc */
    uintptr_t seen = 0;       /* where devices see it, elsewhere than the host (pages.h); 0: at the same address */
    bool was_private = false; /* it was mapped anew for that */
};
struct seen_range { /* the same, by the address on devices */
    size_t bytes;
    uintptr_t host;
};
struct record { /* of an event; those who wait for it hold it */
    progress done;
    std::chrono::steady_clock::time_point when;
};

} // namespace cuda_runtime_on_host

struct CUstream_st {
    device *on;
    std::mutex pushing;
    entry *first = new entry, *last = first; /* the first has been done: the stream's thread, the last: who pushes */
    std::atomic<uint32_t> pushed{0};         /* relaxed: wakes the thread; the entry itself carries the order */
    progress done;
    std::atomic<uint32_t> sent{0}; /* entries that it may work off, where launches are held back */
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
    std::vector<task> nodes;
};
struct CUgraphExec_st {
    std::shared_ptr<const std::vector<task>> nodes;
};

namespace cuda_runtime_on_host {

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
    std::map<uintptr_t, seen_range> seen;
    std::map<unsigned long long, physical> physicals;
    std::map<uintptr_t, reservation> reservations;
    std::map<int, int> attributes; /* that a test has set */
    int peers;                     /* CUDA_ON_HOST_PEERS_... */
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::set<cudaGraph_t> graphs;
    std::set<cudaGraphExec_t> execs;
    unsigned char *stale_start = nullptr;
    std::vector<unsigned char> stale; /* the pages that devices reach at `stale_start` */
    cudaError_t refusal;
    bool refuse_files_only;
    counter *counters = nullptr;
    std::map<std::string, std::pair<uint64_t, cudaError_t>> named; /* failures: the call's number, and its error */

    std::atomic<uint64_t> seed, launches;
    std::atomic<unsigned> every, delay;
    std::atomic<bool> holds_back;
    std::atomic<int> multiprocessors;
    std::atomic<uint64_t> calls_left; /* to the one that fails; 0: none */
    std::atomic<int> call_error;
    std::atomic<bool> failed;
    std::atomic<bool> used{false};
    bool forked = false; /* the process that has used it is the parent of this one, which has none of its threads */

    world_type();
    std::atomic<uint64_t> default_streams{0}; /* calls that were given no stream, or NULL */
    void defaults();
    void attributes_from_environment();
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

/* FRUGAL_CUDA_ATTRIBUTES=number=value,... */
void world_type::attributes_from_environment() {
    const char *text = getenv("FRUGAL_CUDA_ATTRIBUTES");
    int number, value, length;
    attributes.clear();
    while (text && sscanf(text, "%d=%d%n", &number, &value, &length) == 2) {
        attributes[number] = value;
        text += length;
        if (*text == ',') text++;
    }
}

void world_type::defaults() {
    make_devices(static_cast<int>(from_environment("FRUGAL_CUDA_DEVICES", 2)));
    if (!devices.empty())
        devices[0]->launches_left = static_cast<int64_t>(from_environment("FRUGAL_CUDA_LOSE_AT_LAUNCH", 0));
    memory = size_t(4) << 30;
    refusal = cudaSuccess;
    refuse_files_only = false;
    attributes_from_environment();
    peers = static_cast<int>(from_environment("FRUGAL_CUDA_PEERS", CUDA_ON_HOST_PEERS_NONE));
    named.clear();
    stale.clear();
    seed = from_environment("FRUGAL_CUDA_SEED", 1);
    launches = 0;
    default_streams = 0;
    every = 16;
    delay = 0;
    holds_back = false;
    multiprocessors = 2;
    calls_left = 0;
    failed = false;
}

/* Never destroyed: threads of streams may outlive main. */
world_type &world() {
    static world_type &w = *new world_type;
    return w;
}

/* In a child: what held the lock is not there. */
void see_fork() {
    world_type &w = world();
    w.forked = w.used;
    new (&w.lock) std::mutex;
}

world_type::world_type() {
    defaults();
    pthread_atfork(nullptr, nullptr, see_fork);
}

thread_local int current_device;
thread_local bool has_set_device;
thread_local std::vector<int> pushed_devices; /* contexts, by the driver's calls; the last is where the thread is */
thread_local cudaError_t last_error;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
thread_local bool in_host_function;

counter::counter(const char *function, bool waits) : name(function), synchronizes(waits) {
    guard hold(world().lock);
    next = world().counters;
    world().counters = this;
}

} // namespace cuda_runtime_on_host

#endif /* ON_HOST_WORLD_H */
