/* events.h - events, which streams and hosts wait for. */
#ifndef ON_HOST_EVENTS_H
#define ON_HOST_EVENTS_H

#include "streams.h"

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
    if (r)
        push(stream, [=] {
            while (!r->done.reached(1) && !from->lost && !d->lost)
                std::this_thread::sleep_for(std::chrono::microseconds(20));
        });
    return end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    static counter calls(__func__);
    bool known = exists(event);
    if (cudaError_t e = begin_uncaptured(calls, known ? event->on : this_device())) return end(e);
    if (!known) return end(cudaErrorInvalidResourceHandle);
    send_all(event->on);
    auto r = last_record(event);
    return end(!r || r->done.reached(1) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    static counter calls(__func__, true);
    bool known = exists(event);
    if (cudaError_t e = begin_uncaptured(calls, known ? event->on : this_device())) return end(e);
    if (!known) return end(cudaErrorInvalidResourceHandle);
    send_all(event->on);
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

#endif /* ON_HOST_EVENTS_H */
