/* streams.h - queues of work, each with a thread of its own; launches. */
#ifndef ON_HOST_STREAMS_H
#define ON_HOST_STREAMS_H

#include "calls.h"

namespace cuda_runtime_on_host {

entry *next_entry(cudaStream_t s) {
    entry *next;
    for (;;) {
        uint32_t pushed = s->pushed.load(std::memory_order_relaxed);
        if ((next = s->first->next.load(std::memory_order_acquire))) return next;
        syscall(SYS_futex, &s->pushed, FUTEX_WAIT_PRIVATE, pushed, nullptr, nullptr, 0);
    }
}

/* Does the next entry wait, for a device that is silent, or because nobody has asked for the stream since? */
bool is_held(cudaStream_t s) {
    if (s->on->lost) return false;
    uint32_t done = s->done.value.load(std::memory_order_relaxed);
    bool sent = static_cast<int32_t>(s->sent.load(std::memory_order_relaxed) - done) > 0;
    return s->on->silent.load(std::memory_order_relaxed) ||
           (world().holds_back.load(std::memory_order_relaxed) && !sent);
}

/* Somebody asks how far the stream is, or waits for it. Relaxed, all: this promises no order. */
void send(cudaStream_t s) {
    s->sent.store(s->pushed.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

/* ... or an event of the device. */
void send_all(const device *d) {
    guard hold(world().lock);
    for (cudaStream_t s : d->streams) send(s);
}

void run_stream(cudaStream_t s) {
    for (;;) {
        entry *e = next_entry(s);
        delete s->first;
        s->first = e;
        if (!e->todo) break;
        unsigned delay = s->delay.load(std::memory_order_relaxed) + world().delay.load(std::memory_order_relaxed);
        if (delay) std::this_thread::sleep_for(std::chrono::microseconds(delay));
        while (is_held(s)) std::this_thread::sleep_for(std::chrono::microseconds(20));
        if (!s->on->lost.load(std::memory_order_acquire)) e->todo();
        task().swap(e->todo);
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
uint32_t push(cudaStream_t s, task todo) {
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
    if (!s) world().default_streams++;
    if (s && s != cudaStreamLegacy) return world().streams.count(s) ? s : nullptr;
    device *d = this_device();
    if (d && !d->null_stream) d->null_stream = new_stream(d);
    return d ? d->null_stream : nullptr;
}

/* Queued, or one more node of the graph that the stream captures. */
cudaError_t submit(cudaStream_t s, task todo) {
    if (s->capturing == cudaStreamCaptureStatusInvalidated) return cudaErrorStreamCaptureInvalidated;
    if (s->capturing)
        s->capture->nodes.push_back(std::move(todo));
    else
        push(s, std::move(todo));
    return cudaSuccess;
}

bool is_null_stream(cudaStream_t s) {
    return s == s->on->null_stream;
}

/* Blocking streams that are being captured, of a device whose NULL stream is used, which would wait for them. */
bool captures_that_block(const device *d, bool spoil) {
    bool any = false;
    guard hold(world().lock);
    for (cudaStream_t s : world().streams) {
        if (s->on != d || !s->capturing || s->flags != cudaStreamDefault) continue;
        if (spoil) s->capturing = cudaStreamCaptureStatusInvalidated;
        any = true;
    }
    return any;
}

cudaError_t begin_on(counter &c, cudaStream_t &s, bool only_asks = false) {
    cudaStream_t found = find(s);
    cudaError_t e = begin(c, found ? found->on : this_device());
    if (!e && !found) e = cudaErrorInvalidResourceHandle;
    if (!e && is_null_stream(found) && captures_that_block(found->on, !only_asks)) e = cudaErrorStreamCaptureImplicit;
    s = found;
    return e;
}

cudaError_t synchronize(cudaStream_t s) {
    send(s);
    s->done.wait(s->pushed.load(std::memory_order_relaxed));
    return lost(s->on);
}

/* All of a device, destroyed streams too. */
cudaError_t synchronize(device *d) {
    std::vector<std::pair<cudaStream_t, uint32_t>> marks;
    send_all(d);
    for (unsigned looks = 0;; looks++) { /* a destroyed stream may go away: it is looked at with the lock held */
        guard hold(world().lock);
        if (marks.empty())
            for (cudaStream_t s : d->streams)
                marks.emplace_back(s, s->pushed.load(std::memory_order_relaxed) - !s->live);
        bool waits = false;
        for (auto &m : marks) waits |= d->streams.count(m.first) && !m.first->done.reached(m.second);
        if (!waits) return lost(d);
        hold.unlock();
        if (looks < 100)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
}

/* The error of a call that waits, or asks the driver: what ran on a device when it was lost is over then. */
cudaError_t settled(device *d, cudaError_t e) {
    if (e == cudaErrorLaunchFailure && d) synchronize(d);
    return e;
}

/* Synchronizes, and no other call gets through meanwhile. */
cudaError_t synchronize_alone(device *d) {
    d->held.fetch_add(1, std::memory_order_relaxed);
    cudaError_t e = synchronize(d);
    d->held.fetch_sub(1, std::memory_order_relaxed);
    return e;
}

/* Of all devices, because all know the memory. */
void synchronize_all() {
    for (auto &d : world().devices) synchronize_alone(d.get());
}

/* Calls that may wait for a device make a capture fail that forbids them to this thread. */
cudaError_t forbidden_in_capture() {
    cudaError_t e = cudaSuccess;
    if (thread_mode == cudaStreamCaptureModeRelaxed) return e;
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

} // namespace cuda_runtime_on_host

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

/* As of a GPU that has six; streams run as their threads do, whatever theirs is. */
constexpr int LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5;

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return end(e);
    *least = LEAST_PRIORITY, *greatest = GREATEST_PRIORITY;
    return end(cudaSuccess);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    if (priority > LEAST_PRIORITY || priority < GREATEST_PRIORITY)
        fail(here(), "cudaStreamCreateWithPriority: a priority that there is not");
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

/* Returns at once; what is queued is done first. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    static counter calls(__func__);
    if (!stream || stream == cudaStreamLegacy) return end(cudaErrorInvalidResourceHandle);
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
    if (cudaError_t e = begin_on(calls, stream)) return end(settled(stream ? stream->on : nullptr, e));
    if (cudaError_t e = refuse_capturing(stream)) return end(e);
    return end(synchronize(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    static counter calls(__func__);
    if (cudaError_t e = begin_on(calls, stream)) return end(e);
    if (cudaError_t e = refuse_capturing(stream)) return end(e);
    send(stream);
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

/* Memory of other devices that the kernels of one may not read, with zeros in its place while a kernel runs. */
struct hidden_memory {
    std::vector<std::pair<uintptr_t, std::vector<unsigned char>>> blocks;
    explicit hidden_memory(const device *reader) {
        world_type &w = world();
        guard hold(w.lock);
        if (w.peers == CUDA_ON_HOST_PEERS_NONE) return;
        for (const auto &a : w.allocations) {
            if (a.second.on == reader->number) continue;
            if (w.peers == CUDA_ON_HOST_PEERS_REAL && reaches(reader, a.second.on)) continue;
            unsigned char *memory = reinterpret_cast<unsigned char *>(a.first);
            blocks.emplace_back(a.first, std::vector<unsigned char>(memory, memory + a.second.bytes));
            memset(memory, 0, a.second.bytes);
        }
    }
    ~hidden_memory() {
        for (const auto &b : blocks) memcpy(reinterpret_cast<void *>(b.first), b.second.data(), b.second.size());
    }
    hidden_memory(const hidden_memory &) = delete;
    hidden_memory &operator=(const hidden_memory &) = delete;
};

cudaError_t cuda_on_host::launch_kernel(kernel &&k, cudaStream_t stream) {
    static counter calls("cudaLaunchKernel");
    cudaError_t e = begin_on(calls, stream);
    if (!e && (stream->on != this_device())) e = cudaErrorInvalidResourceHandle;
    if (!e && (!k.grid.x || !k.block.x || k.block.x > 1024 || k.grid.x > INT32_MAX)) e = cudaErrorInvalidConfiguration;
    if (e) return end(e);
    if (k.grid.y != 1 || k.grid.z != 1 || k.block.y != 1 || k.block.z != 1)
        fail(k.at, "launch of %s: only x is emulated", k.name);
    if (k.block.x % 32)
        fail(k.at, "launch of %s with blocks of %u threads: only whole warps are emulated", k.name, k.block.x);
    auto shared = std::make_shared<const kernel>(std::move(k));
    auto seed = std::make_shared<std::atomic<uint64_t>>(world().seed + 0x632be59bd9b4e019u * ++world().launches);
    device *d = stream->on;
    return end(submit(stream, [shared, seed, d] {
        if (d->launches_left.load() > 0 && d->launches_left.fetch_sub(1) == 1) d->lost = true;
        if (d->lost) return;
        world_type &w = world();
        /* A graph's kernels run more than once, each time in another order. */
        schedule s = {seed->fetch_add(0x9e6c63d0876a9a47u), resident_blocks(), w.every, &d->lost};
        hidden_memory hidden(d);
        running_gpu = d, own_pages = static_cast<uint8_t>(d->number + 1);
        if (shared->run)
            shared->run(*shared, s);
        else
            run_grid(*shared, s);
        running_gpu = nullptr;
    }));
}

#endif /* ON_HOST_STREAMS_H */
