/* operations.cuh - what the host store calls in a step (lookup, update, poll) and to close; and the table of all
 * operations, by which the host recognizes a device of this kind. */
#ifndef FRUGAL_CUDA_OPERATIONS_CUH
#define FRUGAL_CUDA_OPERATIONS_CUH

#include "pinning.cuh"
#include "batches.cuh"
#include "keeping.cuh"
#include "secondaries.cuh"
#include "squares.cuh"
#include "watch.cuh"

namespace frugal_cuda {

/* Reports the invalid bags that kernels have found since the last call. */
static frugal_status check_bags(gpu_device *c) {
    uint64_t bad = __atomic_exchange_n(&c->control->bad_bags, 0, __ATOMIC_RELAXED);
    if (bad == 0) return FRUGAL_OK;
    return frugal_fail(
        FRUGAL_ERR_ARGUMENT,
        "device %u: the bags of step %llu had offsets that decrease, or do not go from 0 to the number of keys; "
        "their rows are cut short",
        c->device, (unsigned long long)(bad - 1));
}

/* Allocates memory for rows by record, from which bags are pooled. Called by the first lookup of bags, which waits for
 * it. */
static frugal_status open_pool(gpu_device *c) {
    uint64_t keys = frugal_settings(c->f)->max_keys;
    uint32_t stride = whole_packs(c->store->dim);
    void *memory = NULL;
    if (c->view.unique) return FRUGAL_OK;
    cudaError_t error = cudaMalloc(&memory, keys * (stride + 1) * sizeof(float));
    if (error != cudaSuccess) return check_cuda(c, error, "memory for bags");
    c->bytes += keys * (stride + 1) * sizeof(float);
    c->view.unique = (float *)memory;
    c->view.unique_stride = stride;
    c->view.bag_of = (uint32_t *)memory + keys * stride;
    __atomic_store_n(&c->pools, 1, __ATOMIC_RELAXED);
    return FRUGAL_OK;
}

static frugal_status device_lookup(void *device, const frugal_step *step, void *rows) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = check_stream(c, "lookup");
    if (status == FRUGAL_OK) status = check_bags(c);
    if (status != FRUGAL_OK) return status;
    if (step->bags && step->bags->n_bags == 0 && step->records.n > 0)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "device %u: no bags for the %u keys of step %llu", c->device,
                           step->records.n, (unsigned long long)step->step);
    if (step->bags && (status = open_pool(c)) != FRUGAL_OK) return status;
    if ((status = empty_cache(c)) != FRUGAL_OK) return status;
    if ((status = await_batch(c, step)) != FRUGAL_OK) return status;
    gpu_step given = gpu_step_of(c, step);
    if (c->gathered && !step->repeated && !given.repeated) gather_on_host(c, step);
    /* Also for a graph, before it and not in it, because a display's watchdog would end a kernel that waits there. */
    if ((status = enqueue_gate(c, step->step)) != FRUGAL_OK) return status;
    if (c->replaying)
        c->control->replays[c->replays % REPLAYS] = given;
    else
        status = enqueue_lookup(c, given, step->bags, {rows, step->stride, step->as, 0});
    if (status == FRUGAL_OK) c->unique_rows[step->step % FRUGAL_P2F_SLOTS] = step->n_own;
    return status;
}

static frugal_status device_update(void *device, const frugal_step *step, const void *grads) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = check_stream(c, "update");
    if (status == FRUGAL_OK) status = check_bags(c);
    if (status != FRUGAL_OK) return status;
    gpu_step given = gpu_step_of(c, step);
    given.brings = (uint32_t)step->brings;
    send_hypers(c, &given, step->hyper);
    if (!c->replaying) {
        status = enqueue_update(c, given, gradient_source_of(c, grads, step->stride, step->as, step->bags));
        if (status == FRUGAL_OK) note_given(c, step->step);
        begin_work(c, c->stream);
        return status;
    }
    gpu_step *replay = &c->control->replays[c->replays % REPLAYS];
    replay->brings = given.brings, replay->hyper = given.hyper;
    return FRUGAL_OK;
}

/* Has `done` not moved for long? */
static int is_silent(gpu_device *c) {
    double now = watch_now();
    if (c->silent_since != 0 && now - c->silent_since < SILENCE_SECONDS) return 0;
    int silent = c->silent_since != 0;
    c->silent_since = now;
    return silent;
}

/* Counts what the GPU has done. If `done` has not moved for a while, has the driver asked whether the GPU lives
 * (watch.cuh). */
static frugal_status device_poll(void *device, uint64_t *steps) {
    gpu_device *c = (gpu_device *)device;
    *steps = __atomic_load_n(&c->control->done, __ATOMIC_ACQUIRE); /* [C2] pairs with [C1] */
    for (; c->counted < *steps; c->counted++, c->silent_since = 0) {
        uint64_t hits = c->control->hits[c->counted % FRUGAL_P2F_SLOTS];
        uint64_t unique = c->unique_rows[c->counted % FRUGAL_P2F_SLOTS];
        if (hits > unique) hits = unique; /* of a lookup that failed half way and was cancelled */
        frugal_count_hits(c->f, c->device, hits, unique - hits);
    }
    count_kept(c);
    CUresult result = last_answer(c);
    if (result != CUDA_SUCCESS) return fail_cuda(c, (cudaError_t)result, "the work of the stream");
    if (is_silent(c)) ask_watch(c);
    return FRUGAL_OK;
}

/* It does if it reaches the table, unless the instance is staged. */
static int device_updates_in_place(void *device) {
    return ((gpu_device *)device)->alone_seen != NULL;
}

static int device_waits(void *device) {
    return ((gpu_device *)device)->desc.gate_on_stream;
}

/* Frees what CUDA has allocated and made, and unpins what is pinned. If a GPU of the instance `hangs`, host memory is
 * kept, because freeing and unpinning it waits for all GPUs. The calling thread is on the GPU. */
static void close_on_gpu(gpu_device *c, int hangs) {
    /* The first cudaFree waits for all work of the GPU, also for that of the caller's stream, which may not exist any
     * more. cudaDeviceSynchronize would spoil captures of others. */
    void *memory[] = {c->arrays_memory, c->tail_memory, c->view.ways,    c->view.partials,      c->view.counters,
                      c->view.words,    c->view.copies, c->view.unique,  c->secondaries_memory, c->secondary_copies,
                      c->sort_memory,   c->ones,        c->counts.words, c->watch.word};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) cudaFree(memory[i]);
    for (uint32_t i = 0; i < FRUGAL_P2F_SLOTS; i++)
        if (c->aheads[i].copied) cudaEventDestroy(c->aheads[i].copied);
    if (c->sort.ready) cudaEventDestroy(c->sort.ready);
    if (c->sort.read) cudaEventDestroy(c->sort.read);
    if (c->ahead_stream) cudaStreamDestroy(c->ahead_stream);
    if (c->back_stream) cudaStreamDestroy(c->back_stream);
    if (c->watch.stream) cudaStreamDestroy(c->watch.stream);
    if (c->given_event) cudaEventDestroy(c->given_event);
    if (hangs) return;
    if (c->tail_sent_memory) cudaFreeHost(c->tail_sent_memory);
    if (c->gathered) cudaFreeHost(c->gathered);
    if (c->secondaries_sent_memory) cudaFreeHost(c->secondaries_sent_memory);
    if (c->asked) cudaFreeHost(c->asked);
    if (c->squares) cudaFreeHost(c->squares);
    if (c->watch.copied) cudaFreeHost(c->watch.copied);
    unpin_memory(c, &c->control_memory);
    unpin_memory(c, &c->sort_sent_memory);
    unpin_memory(c, &c->blocks);
    unpin_memory(c, &c->batches);
    unpin_memory(c, &c->guests);
}

/* The last device of an instance unpins what all have shared. */
static void leave_pins(gpu_device *c, int unreached) {
    shared_pins *pins = c->pins;
    if (!pins) return;
    if (c->waits_for_gates && --pins->gates_users == 0 && !unreached) unpin_memory(c, &pins->gates);
    if (--pins->users > 0) return;
    pinned_memory *all[] = {&pins->table, &pins->state, &pins->alone};
    for (pinned_memory *pinned : all)
        if (!unreached) unpin_memory(c, pinned);
    frugal_free(c->f, pins, sizeof *pins);
}

static gpu_device *gpu_device_of(const frugal *f, uint32_t device);

/* Does a GPU of the instance hang? What follows would wait for it. So the watches of all are asked; by the first device
 * that is closed, because memory of the others is freed after that, or by one that could not be attached. */
static int some_gpu_hangs(gpu_device *c) {
    shared_pins *pins = c->pins;
    int hangs = 0;
    close_watch(c);
    if (!pins) return 0;
    if (c->watch.copied) ask_gpu(c);
    for (uint32_t d = 0; !pins->closes && d < c->store->devices; d++) {
        gpu_device *other = gpu_device_of(c->f, d);
        if (other && other != c) await_watch(other);
    }
    pins->closes |= gpu_device_of(c->f, c->device) == c;
    for (int &word : pins->hangs) hangs |= __atomic_load_n(&word, __ATOMIC_RELAXED);
    return hangs;
}

/* The context stays retained, because the runtime's kernels are loaded into it. The runtime keeps its own reference for
 * good, too. */
static void device_close(void *device) {
    gpu_device *c = (gpu_device *)device;
    if (c->context) {
        int hangs = some_gpu_hangs(c);
        on_gpu on(c);
        int unreached = is_out_of_reach(on.result);
        if (!unreached) close_on_gpu(c, hangs);
        leave_pins(c, unreached || hangs);
        if (hangs) frugal_leave_pages(c->f); /* they are still registered */
    }
    frugal_free(c->f, c->control, c->control_memory.memory.bytes);
    frugal_free(c->f, c->sort_sent_memory.memory.start, c->sort_sent_memory.memory.bytes);
    frugal_free(c->f, c->secondary_rows, c->n_secondaries * sizeof *c->secondary_rows);
    frugal_free(c->f, c, sizeof *c);
}

static const frugal_device_ops *device_operations(void) {
    static const frugal_device_ops ops = {device_lookup,
                                          device_update,
                                          device_preload,
                                          device_verify,
                                          device_empty,
                                          device_refresh,
                                          device_close,
                                          device_updates_in_place,
                                          device_list_secondaries,
                                          device_poll,
                                          device_announced,
                                          device_cancelled,
                                          device_waits,
                                          device_recount,
                                          device_write_back,
                                          device_recall,
                                          device_recalled,
                                          device_squares,
                                          device_sorts,
                                          device_sort,
                                          device_sorted,
                                          device_fetch,
                                          device_move_counts};
    return &ops;
}

static gpu_device *gpu_device_of(const frugal *f, uint32_t device) {
    return (gpu_device *)frugal_get_device(f, device, device_operations());
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_OPERATIONS_CUH */
