/* keeping.cuh - operations of a device that keeps updates in its cache (FRUGAL_ALONE_KEPT): rows are written back when
 * they are recalled, and when the host asks for them. */
#ifndef FRUGAL_CUDA_KEEPING_CUH
#define FRUGAL_CUDA_KEEPING_CUH

#include "enqueue.cuh"

#include <string.h>

namespace frugal_cuda {

constexpr uint32_t ASKED = 1024; /* rows that the host asks for at a time */

/* Opens what keeping needs, if the instance asks for it and the device can: a cache, and a table that it reaches. */
static frugal_status open_keeping(gpu_device *c) {
    void *asked = NULL, *seen = NULL;
    if (frugal_settings(c->f)->alone != FRUGAL_ALONE_KEPT || !c->alone_seen || c->view.sets == 0) return FRUGAL_OK;
    cudaError_t error = cudaHostAlloc(&asked, ASKED * sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped);
    c->asked = (uint32_t *)asked;
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&seen, asked, 0);
    c->asked_seen = (const uint32_t *)seen;
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&c->back_stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&c->given_event, cudaEventDisableTiming);
    c->view.keeps = error == cudaSuccess;
    return check_cuda(c, error, "memory and a stream to write rows back");
}

/* Is the last gate that the stream was given to wait for open, or forced open? */
static int is_gate_open(const gpu_device *c) {
    uint64_t open = __atomic_load_n(frugal_gates(c->f), __ATOMIC_ACQUIRE); /* [C3] pairs with [F8] */
    return (int64_t)(open - c->gates_enqueued) >= 0;
}

/* Waits until the device has done what it was given. That may be a lookup whose update is still to come. */
static frugal_status settle(gpu_device *c) {
    if (!is_gate_open(c))
        return frugal_fail(FRUGAL_ERR_BUSY,
                           "device %u: its stream waits for the gate of step %llu, so what it keeps cannot be read: "
                           "update that step on every device first",
                           c->device, (unsigned long long)(c->gates_enqueued - 1));
    frugal_status status = check_stream(c, "reading what a device keeps");
    return status == FRUGAL_OK ? check_cuda(c, cudaStreamSynchronize(c->stream), "waiting for the stream") : status;
}

static frugal_status device_write_back(void *device, const uint32_t *rows, uint32_t n) {
    gpu_device *c = (gpu_device *)device;
    if (!c->view.keeps) return FRUGAL_OK;
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = settle(c);
    for (uint32_t at = 0, some; status == FRUGAL_OK && (at < n || (!rows && at == 0)); at += some) {
        some = rows && n - at < ASKED ? n - at : ASKED;
        if (rows) memcpy(c->asked, rows + at, some * sizeof *rows);
        status = enqueue_write_back(c, rows ? c->asked_seen : NULL, some);
        cudaError_t error = cudaStreamSynchronize(c->back_stream); /* also after a failure: `asked` is written anew */
        if (status == FRUGAL_OK) status = check_cuda(c, error, "writing rows back");
    }
    return status;
}

/* May kernels that write back for `step` wait for the last update that the stream was given? It must be that of the
 * step before, and must wait for no gate any more, so that `cancelled` can wait for these kernels. The caller enqueues
 * an update in a graph at a time that is not known. */
static int may_recall_behind(const gpu_device *c, uint64_t step) {
    return c->given == step && is_gate_open(c);
}

static frugal_status device_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    gpu_device *c = (gpu_device *)device;
    if (!c->view.keeps) return FRUGAL_OK;
    if (!done && !may_recall_behind(c, step)) return FRUGAL_AGAIN; /* before the driver is called: see watch.cuh */
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK && !done)
        status = check_cuda(c, cudaStreamWaitEvent(c->back_stream, c->given_event, 0), "recall");
    if (status != FRUGAL_OK) return status;
    const unsigned char *start = (const unsigned char *)c->pins->alone.memory.start;
    if (rows) rows = (const uint32_t *)(const void *)(c->alone_seen + ((const unsigned char *)rows - start));
    status = enqueue_write_back(c, rows, n);
    c->recall_ends[step % FRUGAL_P2F_SLOTS] = c->cleanings;
    begin_work(c, c->back_stream);
    return status;
}

static int device_recalled(void *device, uint64_t step) {
    gpu_device *c = (gpu_device *)device;
    if (!c->view.keeps) return 1;
    uint64_t ended = __atomic_load_n(&c->control->cleanings, __ATOMIC_ACQUIRE); /* [C8] pairs with [C6] */
    return ended >= c->recall_ends[step % FRUGAL_P2F_SLOTS];
}

/* An update was enqueued, and recalls may be enqueued after it. If the event cannot be recorded, they come when the
 * update is done. */
static void note_given(gpu_device *c, uint64_t step) {
    if (!c->view.keeps) return;
    cudaError_t error = cudaEventRecord(c->given_event, c->stream);
    c->given = error == cudaSuccess ? step + 1 : 0;
    if (error != cudaSuccess) note_failure(c);
}

/* Counts what kernels have kept and written back. Called by the polling thread. */
static void count_kept(gpu_device *c) {
    const control_words *said = c->control;
    (void)__atomic_load_n(&said->cleanings, __ATOMIC_ACQUIRE); /* [C8] pairs with [C6]; updates acquired `done` */
    uint64_t kept = __atomic_load_n(&said->kept, __ATOMIC_RELAXED);
    uint64_t dirtied = __atomic_load_n(&said->dirtied, __ATOMIC_RELAXED);
    uint64_t cleaned = __atomic_load_n(&said->cleaned, __ATOMIC_RELAXED);
    if (!c->view.keeps || (kept == c->kept_seen && dirtied == c->dirtied_seen && cleaned == c->cleaned_seen)) return;
    uint64_t now = dirtied > cleaned ? dirtied - cleaned : 0; /* a kernel that is ending may be writing them */
    frugal_count_kept(c->f, c->device, kept - c->kept_seen, cleaned - c->cleaned_seen, now);
    c->kept_seen = kept, c->dirtied_seen = dirtied, c->cleaned_seen = cleaned;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_KEEPING_CUH */
