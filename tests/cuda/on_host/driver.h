/* driver.h - calls of the driver: waits for values in memory, contexts, and how all of them are found. */
#ifndef ON_HOST_DRIVER_H
#define ON_HOST_DRIVER_H

#include "virtual.h"

static CUresult value_operation(counter &calls, CUstream stream, CUdeviceptr address,
                                task (*make)(device *, uint64_t *, uint64_t, unsigned), cuuint64_t value,
                                unsigned flags) {
    if (cudaError_t e = begin_on(calls, stream)) return static_cast<CUresult>(e);
    uint64_t *p = reinterpret_cast<uint64_t *>(static_cast<uintptr_t>(address));
    guard hold(world().lock);
    bool known = where_is(p, 8) == IS_DEVICE || is_seen(p, 8);
    hold.unlock();
    if (!known || address % 8) return CUDA_ERROR_INVALID_VALUE;
    return static_cast<CUresult>(submit(stream, make(stream->on, p, value, flags)));
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    static counter calls("cuStreamWaitValue64");
    if (flags != CU_STREAM_WAIT_VALUE_GEQ && flags != CU_STREAM_WAIT_VALUE_EQ)
        fail(here(), "cuStreamWaitValue64: flags %u", flags);
    auto make = [](device *d, uint64_t *p, uint64_t wanted, unsigned how) -> task {
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
    auto make = [](device *, uint64_t *p, uint64_t written, unsigned) -> task {
        return [=] { __atomic_store_n(p, written, __ATOMIC_RELEASE); };
    };
    return value_operation(calls, stream, address, make, value, flags);
}

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
    *context = d && d->context.exists && (has_set_device || !pushed_devices.empty()) ? &d->context : nullptr;
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
    if (cudaError_t e = begin_on(calls, stream))
        return static_cast<CUresult>(settled(stream ? stream->on : nullptr, e));
    if (cudaError_t e = refuse_capturing(stream)) return static_cast<CUresult>(e);
    send(stream);
    if (!stream->done.reached(stream->pushed.load(std::memory_order_relaxed))) return CUDA_ERROR_NOT_READY;
    return static_cast<CUresult>(settled(stream->on, lost(stream->on)));
}

/* As cudaEventQuery, and the same. */
static CUresult query_event(CUevent event) {
    static counter calls("cuEventQuery");
    bool known = exists(event);
    if (cudaError_t e = begin_uncaptured(calls, known ? event->on : this_device())) return static_cast<CUresult>(e);
    if (!known) return CUDA_ERROR_INVALID_HANDLE;
    send_all(event->on);
    auto r = last_record(event);
    return !r || r->done.reached(1) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* As cudaDeviceEnablePeerAccess, and the same. */
static CUresult enable_peer(CUcontext peer, unsigned flags) {
    static counter calls("cuCtxEnablePeerAccess");
    device *d = this_device();
    if (cudaError_t e = begin(calls, d)) return static_cast<CUresult>(e);
    return static_cast<CUresult>(give_peer_access(d, peer->on->number, flags));
}

static cudaError_t entry_point(const char *symbol, void **function, cudaDriverEntryPointQueryResult *result) {
    static const std::map<std::string, void *> driver = {
        {"cuStreamWaitValue64", reinterpret_cast<void *>(wait_value)},
        {"cuStreamWriteValue64", reinterpret_cast<void *>(write_value)},
        {"cuStreamQuery", reinterpret_cast<void *>(query_stream)},
        {"cuEventQuery", reinterpret_cast<void *>(query_event)},
        {"cuCtxEnablePeerAccess", reinterpret_cast<void *>(enable_peer)},
        {"cuDevicePrimaryCtxRetain", reinterpret_cast<void *>(retain_context)},
        {"cuCtxGetCurrent", reinterpret_cast<void *>(get_context)},
        {"cuCtxPushCurrent", reinterpret_cast<void *>(push_context)},
        {"cuCtxPopCurrent", reinterpret_cast<void *>(pop_context)},
        {"cuDeviceGetAttribute", reinterpret_cast<void *>(get_attribute)},
        {"cuMemGetAllocationGranularity", reinterpret_cast<void *>(get_granularity)},
        {"cuMemCreate", reinterpret_cast<void *>(create_memory)},
        {"cuMemRelease", reinterpret_cast<void *>(release_memory)},
        {"cuMemAddressReserve", reinterpret_cast<void *>(reserve_addresses)},
        {"cuMemAddressFree", reinterpret_cast<void *>(free_addresses)},
        {"cuMemMap", reinterpret_cast<void *>(map_memory)},
        {"cuMemUnmap", reinterpret_cast<void *>(unmap_memory)},
        {"cuMemSetAccess", reinterpret_cast<void *>(set_access)}};
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

#endif /* ON_HOST_DRIVER_H */
