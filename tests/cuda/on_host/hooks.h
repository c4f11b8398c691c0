/* hooks.h - what tests ask for (cuda_on_host_hooks.h). */
#ifndef ON_HOST_HOOKS_H
#define ON_HOST_HOOKS_H

#include "virtual.h"

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

/* Of one device: its queues run empty. */
static void end_streams_of(device *d) {
    guard hold(world().lock);
    d->lost = true;
    for (cudaStream_t s : d->streams) {
        if (s->live) push(s, nullptr);
        s->live = false;
        world().streams.erase(s);
    }
    d->null_stream = nullptr;
    while (!d->streams.empty()) {
        hold.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        hold.lock();
    }
    d->lost = false;
}

/* The lock is held. What was registered may have been given back since. */
static void forget_host_memory() {
    for (auto &r : world().host) {
        join_again(r.first, r.second, is_still_there(r.first, r.second));
        if (r.second.allocated) free(reinterpret_cast<void *>(r.first));
    }
    world().host.clear();
}

cudaError_t cudaDeviceReset() {
    static counter calls(__func__);
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return end(e);
    end_streams_of(d);
    world_type &w = world();
    guard hold(w.lock);
    for (auto a = w.allocations.begin(); a != w.allocations.end();)
        if (a->second.on == d->number)
            free_block(a->first, a->second.bytes), a = w.allocations.erase(a);
        else
            ++a;
    forget_host_memory();
    for (auto e = w.events.begin(); e != w.events.end();)
        if ((*e)->on == d)
            delete *e, e = w.events.erase(e);
        else
            ++e;
    d->used = 0;
    d->context.exists = false;
    return end(cudaSuccess);
}

extern "C" {

void cuda_on_host_reset(void) {
    end_streams();
    world_type &w = world();
    guard hold(w.lock);
    for (auto &a : w.allocations) free_block(a.first, a.second.bytes);
    forget_host_memory();
    for (cudaEvent_t e : w.events) delete e;
    for (cudaGraph_t g : w.graphs) delete g;
    for (cudaGraphExec_t e : w.execs) delete e;
    unmap_everything();
    w.allocations.clear(), w.events.clear(), w.graphs.clear(), w.execs.clear();
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

void cuda_on_host_set_peers(int how) {
    guard hold(world().lock);
    world().peers = how;
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
    if (stream)
        static_cast<cudaStream_t>(stream)->delay = microseconds;
    else
        world().delay = microseconds;
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

void cuda_on_host_silence_device(int number) {
    world().devices.at(static_cast<size_t>(number))->silent = true;
}

void cuda_on_host_hold_launches(int holds) {
    world().holds_back = holds != 0;
}

void cuda_on_host_see_done(void) {
    guard hold(world().lock);
    for (auto &d : world().devices)
        for (cudaStream_t s : d->streams) s->done.reached(0); /* acquires */
}

void cuda_on_host_lose_at_launch(int number, uint64_t n) {
    world().devices.at(static_cast<size_t>(number))->launches_left = static_cast<int64_t>(n);
}

void cuda_on_host_refuse_register(int error, int only_files) {
    guard hold(world().lock);
    world().refusal = static_cast<cudaError_t>(error);
    world().refuse_files_only = only_files != 0;
}

void cuda_on_host_leave_stale(void *memory, size_t bytes) {
    guard hold(world().lock);
    world().stale_start = static_cast<unsigned char *>(memory);
    world().stale.assign(bytes, 0x5a);
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

uint64_t cuda_on_host_default_streams(void) {
    return world().default_streams;
}

uint64_t cuda_on_host_alive(void) {
    world_type &w = world();
    guard hold(w.lock);
    return w.allocations.size() + w.host.size() + w.physicals.size() + w.reservations.size() + w.streams.size() +
           w.events.size() + w.graphs.size() + w.execs.size();
}

int cuda_on_host_has_context(int number) {
    return world().devices.at(static_cast<size_t>(number))->context.exists;
}

void cuda_on_host_on_failure(void (*report)(const char *message)) {
    cuda_on_host::on_failure = report;
}

} /* extern "C" */

#endif /* ON_HOST_HOOKS_H */
