/* attach.cuh - attaches a device: checks what the GPU and the stream can do, and opens all parts in order. */
#ifndef FRUGAL_CUDA_ATTACH_CUH
#define FRUGAL_CUDA_ATTACH_CUH

#include "open.cuh"
#include "readback.cuh"
#include "self_test.cuh"

namespace frugal_cuda {

/* Loads all kernels now. Otherwise CUDA loads a kernel at its first launch, and may wait for all work of the GPU. That
 * work can be the wait of a stream at a gate, which opens only when another device on the GPU has updated. Code that a
 * GPU cannot run is found here, too. */
static frugal_status load_kernels(gpu_device *c, int processors) {
    uint32_t(*resident)[2][2] = c->resident;
#define FRUGAL_LOAD_WIDTHS(kernel, form)                                                                               \
    load_kernel(kernel<1>, processors, &(form)[0]), load_kernel(kernel<4>, processors, &(form)[1])
#define FRUGAL_LOAD_FORMS(name, id)                                                                                    \
    FRUGAL_LOAD_WIDTHS(name##_kernel, resident[id][0]), FRUGAL_LOAD_WIDTHS(name##_typed_kernel, resident[id][1])
    cudaError_t errors[] = {FRUGAL_LOAD_FORMS(frugal_lookup, KERNEL_LOOKUP),
                            FRUGAL_LOAD_WIDTHS(frugal_lookup_kept_kernel, resident[KERNEL_LOOKUP_KEPT][0]),
                            FRUGAL_LOAD_FORMS(frugal_write_back, KERNEL_WRITE_BACK),
                            FRUGAL_LOAD_FORMS(frugal_spread, KERNEL_SPREAD),
                            FRUGAL_LOAD_FORMS(frugal_pool, KERNEL_POOL),
                            FRUGAL_LOAD_FORMS(frugal_update, KERNEL_UPDATE),
                            FRUGAL_LOAD_WIDTHS(frugal_update_groups_kernel, resident[KERNEL_UPDATE_GROUPS][0]),
                            FRUGAL_LOAD_WIDTHS(frugal_update_place_kernel, resident[KERNEL_UPDATE_PLACE][0]),
                            FRUGAL_LOAD_FORMS(frugal_squares, KERNEL_SQUARES),
                            FRUGAL_LOAD_FORMS(frugal_refresh, KERNEL_REFRESH),
                            load_kernel(frugal_hyper_kernel, processors, NULL),
                            load_kernel(frugal_gate_kernel, processors, NULL),
                            load_kernel(frugal_forced_kernel, processors, NULL),
                            load_kernel(frugal_begin_kernel, processors, NULL),
                            load_kernel(frugal_touch_kernel, processors, NULL),
                            load_kernel(frugal_keys_kernel, processors, NULL),
                            load_kernel(frugal_bad_key_kernel, processors, NULL),
                            load_kernel(frugal_positions_kernel, processors, NULL),
                            load_kernel(frugal_heads_kernel, processors, NULL),
                            load_kernel(frugal_list_kernel, processors, NULL),
                            load_kernel(frugal_chunk_heads_kernel, processors, NULL),
                            load_kernel(frugal_chunks_kernel, processors, NULL),
                            load_kernel(frugal_found_kernel, processors, NULL),
                            load_kernel(frugal_count_kernel, processors, NULL),
                            load_kernel(frugal_read_back_kernel, processors, NULL)};
    for (cudaError_t error : errors) {
        frugal_status status = check_code(c, "cuda_attach", error);
        if (status == FRUGAL_OK) status = check_cuda(c, error, "loading kernels");
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

/* Can the GPU do what we need? */
static frugal_status open_gpu(gpu_device *c) {
    int major = 0, minor = 0, mapped = 0, processors = 0;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c->ordinal);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, c->ordinal);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&mapped, cudaDevAttrCanMapHostMemory, c->ordinal);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, c->ordinal);
    if (error != cudaSuccess) return check_cuda(c, error, "cuda_attach");
    if (major * 10 + minor < 75 || !mapped)
        return frugal_fail(FRUGAL_ERR_CUDA,
                           "cuda_attach: GPU %d has compute capability %d.%d%s; it must be 7.5 or more", c->ordinal,
                           major, minor, mapped ? "" : " and cannot map host memory");
    return load_kernels(c, processors);
}

/* A blocking stream and the default stream wait for each other. If such a stream waited for the gate, a copy on the
 * default stream, which the gate may need, would wait for the gate, too. */
static frugal_status check_gates(gpu_device *c) {
    unsigned flags = 0;
    if (!c->desc.gate_on_stream) return FRUGAL_OK;
    cudaError_t error = cudaStreamGetFlags(c->stream, &flags);
    if (error != cudaSuccess) return check_cuda(c, error, "cuda_attach: the stream");
    if (flags & cudaStreamNonBlocking) return FRUGAL_OK;
    return frugal_fail(
        FRUGAL_ERR_ARGUMENT,
        "cuda_attach: device %u: gate_on_stream, on %s, would hang with the default stream: give it a stream "
        "made with cudaStreamNonBlocking, or clear gate_on_stream",
        c->device, c->stream == cudaStreamLegacy ? "the default stream itself" : "a stream that blocks");
}

/* May a kernel wait on the GPU? Where it drives a display, a watchdog ends kernels after some seconds, and with them
 * their context. */
static frugal_status check_watchdog(gpu_device *c) {
    int watched = 0;
    cudaError_t error = cudaDeviceGetAttribute(&watched, cudaDevAttrKernelExecTimeout, c->ordinal);
    if (error != cudaSuccess) return check_cuda(c, error, "cuda_attach");
    if (!watched) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT,
                       "cuda_attach: device %u: gate_on_stream: GPU %d's driver cannot make a stream wait for a word, "
                       "so a kernel would wait, and the watchdog of its display would end that: clear gate_on_stream, "
                       "or use a GPU without a display",
                       c->device, c->ordinal);
}

/* The one device of an instance has no gate but the order of its stream, if it updates in place. */
static int is_in_order(const gpu_device *c) {
    return c->alone_seen && frugal_settings(c->f)->devices == 1;
}

/* Pins the gates' word, if no other stream waits for it; finds how this one will. If the driver can make a stream wait
 * for a word, gates need no kernel. */
static frugal_status open_gates(gpu_device *c) {
    pinned_memory *gates = &c->pins->gates;
    void *seen = NULL;
    if (is_in_order(c)) c->desc.gate_on_stream = 0;
    if (!c->desc.gate_on_stream) return FRUGAL_OK;
    cudaError_t error = cudaSuccess;
    c->waits_for_gates = 1;
    if (c->pins->gates_users++ == 0)
        error = pin_memory(c, gates, frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_GATES));
    if (error == cudaSuccess) error = seen_by_gpu(gates, gates->memory.start, &seen);
    c->view.gates = (const uint64_t *)seen;
    if (error != cudaSuccess)
        return check_cuda(c, error, "pinning the gates' word; without gate_on_stream it is not needed");
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned) =
        (CUresult(*)(CUstream, CUdeviceptr, cuuint64_t, unsigned))find_driver_call("cuStreamWaitValue64");
    uint64_t passed = frugal_settings(c->f)->first_step;       /* gates before the first step's are open */
    int is_wanted = wait_value && c->desc.gate_on_stream == 1; /* 2: a kernel is */
    if (is_wanted && wait_value((CUstream)c->stream, (CUdeviceptr)(uintptr_t)c->view.gates, passed,
                                CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS)
        c->driver.wait_value = wait_value;
    return c->driver.wait_value ? FRUGAL_OK : check_watchdog(c);
}

static frugal_cuda_gate gate_of(const gpu_device *c) {
    if (c->desc.gate_on_stream) return c->driver.wait_value ? FRUGAL_CUDA_GATE_STREAM : FRUGAL_CUDA_GATE_KERNEL;
    return is_in_order(c) ? FRUGAL_CUDA_GATE_ORDER : FRUGAL_CUDA_GATE_HOST;
}

static void describe_tables(gpu_device *c) {
    gpu_view *g = &c->view;
    const frugal_store *s = c->store;
    const frugal_optimizer *o = &s->groups[0].optimizer;
    g->dim = s->dim, g->state_floats = s->state_floats;
    g->rows_as = s->rows_as, g->rounding = s->rounding;
    g->id_times = s->id_times, g->id_plus = s->id_plus;
    g->state_at = whole_packs(frugal_state_at(s));
    g->copy_stride = whole_packs(g->state_at + s->state_floats);
    g->partial_stride = whole_packs(s->dim);
    g->kind = s->kind, g->policy = c->desc.policy;
    g->fall = frugal_fall(s->rows, frugal_settings(c->f)->max_keys);
    g->n_groups = s->n_groups;
    g->eps = o->eps, g->decay = o->weight_decay, g->clip = o->clip_norm;
    g->rest1 = 1.0f - o->beta1, g->rest2 = 1.0f - o->beta2;
    g->divisor = s->reduce == FRUGAL_MEAN ? (float)s->devices : 0.0f;
}

/* Has the table rows on other machines? They arrive where no stream sees it, so the host waits for them, after the
 * gate. */
static int is_dealt(const gpu_device *c) {
    return c->store->ids || c->store->id_times;
}

static frugal_status open_device(gpu_device *c) {
    void *seen = NULL;
    frugal_status status = open_gpu(c);
    if (status != FRUGAL_OK) return status;
    if ((status = check_stream(c, "cuda_attach")) != FRUGAL_OK) return status;
    if (is_dealt(c)) c->desc.gate_on_stream = 0;
    if ((status = check_gates(c)) != FRUGAL_OK) return status;
    describe_tables(c);
    if ((status = share_pins(c)) != FRUGAL_OK) return status;
    c->node = node_of_gpu(c);
    cudaError_t error = pin_ring(c, &c->blocks, FRUGAL_MEMORY_BLOCKS);
    if (error == cudaSuccess) error = seen_by_gpu(&c->blocks, c->blocks.memory.start, &seen);
    c->blocks_seen = (unsigned char *)seen;
    if (error != cudaSuccess) return check_cuda(c, error, "pinning the staging ring");
    error = pin_ring(c, &c->guests, FRUGAL_MEMORY_GUESTS);
    if (error == cudaSuccess && c->guests.pinned) error = seen_by_gpu(&c->guests, c->guests.memory.start, &seen);
    if (c->guests.pinned) c->guests_seen = (unsigned char *)seen;
    if (error != cudaSuccess) return check_cuda(c, error, "pinning where rows of other machines arrive");
    /* Batches that cannot be pinned are copied, too, but not in the background. */
    if (pin_ring(c, &c->batches, FRUGAL_MEMORY_BATCHES) == cudaSuccess) {
        error = seen_by_gpu(&c->batches, c->batches.memory.start, &seen);
        c->batches_seen = (uint32_t *)seen;
        if (error != cudaSuccess) return check_cuda(c, error, "pinning the batches");
    }
    if ((status = open_table(c)) != FRUGAL_OK) return status;
    if ((status = open_gates(c)) != FRUGAL_OK) return status;
    if ((status = open_batches(c)) != FRUGAL_OK) return status;
    if ((status = open_scratch(c)) != FRUGAL_OK) return status;
    if ((status = open_sort(c)) != FRUGAL_OK) return status;
    if ((status = open_cache(c)) != FRUGAL_OK) return status;
    if ((status = read_back_all(c)) != FRUGAL_OK) return status;
    if ((status = self_tests(c)) != FRUGAL_OK) return status;
    if ((status = open_keeping(c)) != FRUGAL_OK) return status;
    return open_watch(c);
}

} /* namespace frugal_cuda */

using namespace frugal_cuda; /* frugal_cuda.h declares these with C linkage, so they are outside of the namespace */

frugal_status frugal_cuda_attach(frugal *f, uint32_t device, int ordinal, const frugal_cuda_desc *desc) {
    if (!f) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_attach: no open instance");
    frugal_cuda_desc none = {};
    if (!desc) desc = &none;
    if (desc->policy > FRUGAL_CACHE_STATIC)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "cuda_attach: cache policy %d; there are 0 (counted), 1 (LRU), 2 (static)",
                           (int)desc->policy);
    if (desc->cache_rows > UINT32_MAX - WAYS)
        return frugal_fail(FRUGAL_ERR_LIMIT, "cuda_attach: a cache of %llu rows; the limit is 2^32 - 9",
                           (unsigned long long)desc->cache_rows);
    if (desc->stream == (void *)cudaStreamPerThread)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "cuda_attach: device %u: cudaStreamPerThread is another stream in each thread, and several "
                           "threads work for a device: give NULL, which is the legacy default stream, or a stream made "
                           "with cudaStreamCreate",
                           device);
    const frugal_store *store = frugal_get_store(f);
    frugal_status status = frugal_may_attach(f, device); /* before the self-test writes into the device's blocks */
    if (status != FRUGAL_OK) return status;
    gpu_device *c = (gpu_device *)frugal_allocate(f, sizeof *c, 64);
    if (!c) return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes are not available", device, sizeof *c);
    c->f = f, c->store = store, c->device = device, c->ordinal = ordinal, c->desc = *desc;
    c->stream = desc->stream ? (cudaStream_t)desc->stream : cudaStreamLegacy; /* with any --default-stream */
    int pending = cudaPeekAtLastError() != cudaSuccess; /* the caller's last error stays, ours does not */
    if (status == FRUGAL_OK) status = open_context(c, "cuda_attach", "frugal_cpu_attach");
    if (status == FRUGAL_OK) {
        on_gpu on(c);
        status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
        if (status == FRUGAL_OK) status = open_device(c);
        if (status == FRUGAL_OK && is_counted(c) && !c->counts.words && frugal_begin_counting(f) != FRUGAL_OK)
            status =
                frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %llu bytes are not available for the rows' counts, one each",
                            device, (unsigned long long)store->rows);
        if (status == FRUGAL_OK) status = frugal_attach(f, device, device_operations(), c);
    }
    if (status != FRUGAL_OK) device_close(c);
    if (!pending) cudaGetLastError();
    return status;
}

frugal_status frugal_cuda_get_info(const frugal *f, uint32_t device, frugal_cuda_info *out) {
    const gpu_device *c = f ? gpu_device_of(f, device) : NULL;
    if (!c)
        return frugal_fail(FRUGAL_ERR_DEVICE, "cuda_get_info: device %u is not attached by frugal_cuda_attach", device);
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_get_info: `out` is NULL");
    out->ordinal = c->ordinal;
    out->cache_rows = c->view.sets * WAYS;
    out->table_is_pinned = !c->view.gathered;
    out->bytes = c->bytes;
    out->gate = gate_of(c), out->node = c->node;
    out->refused = c->pins->refused, out->refused_bytes = c->pins->refused_bytes;
    out->refused_error = (int)c->pins->refused_error;
    return FRUGAL_OK;
}

#endif /* FRUGAL_CUDA_ATTACH_CUH */
