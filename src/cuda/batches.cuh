/* batches.cuh - announced batches, which are sent to the GPU ahead of their step, on a stream of our own. */
#ifndef FRUGAL_CUDA_BATCHES_CUH
#define FRUGAL_CUDA_BATCHES_CUH

#include "sort.cuh"

#include <string.h>

namespace frugal_cuda {

/* Writes where the secondaries of the batch are, and their valid bits. */
static void write_kept(batch_ahead *a, const frugal_step *step) {
    uint64_t *valid = (uint64_t *)(void *)a->tail_sent;
    a->has_secondaries = step->n_secondaries > 0;
    if (a->has_secondaries) memset(a->secondaries_sent, 0xff, step->records.n_unique * sizeof *a->secondaries_sent);
    for (uint32_t i = 0; i < step->n_secondaries; i++) {
        const frugal_secondary *s = &step->secondaries[i];
        uint64_t bit = UINT64_C(1) << s->record % 64;
        a->secondaries_sent[s->record] = s->copy;
        valid[s->record / 64] = s->valid ? valid[s->record / 64] | bit : valid[s->record / 64] & ~bit;
    }
}

/* Lists the chunks of rows with more than 32 positions. */
static void write_chunks(batch_ahead *a, const frugal_records *r) {
    row_chunk *chunks = (row_chunk *)(void *)(a->tail_sent + a->chunks_at);
    a->n_chunks = 0;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t n = r->start[u + 1] - r->start[u], first = a->n_chunks;
        for (uint32_t k = 0; n > CHUNK && k < n; k += CHUNK) {
            chunks[a->n_chunks].unique = u;
            chunks[a->n_chunks++].first = first;
        }
    }
}

/* Writes the tail, where it is sent from. What a GPU that sorts has found, and counted, it has there already. */
static void write_tail(const gpu_device *c, batch_ahead *a, const frugal_step *step) {
    const frugal_records *r = &step->records;
    int counted = is_counted(c) && !c->counts.words;
    uint64_t valid_bytes = (r->n_unique + 63) / 64 * sizeof(uint64_t);
    a->n_outdated = counted && r->n > 0 ? step->n_outdated : 0; /* without keys nothing is sent */
    if (!sorts(c)) place_tail(c, a, r->n_unique, a->n_outdated);
    memcpy(a->tail_sent, step->valid, valid_bytes);
    write_kept(a, step);
    if (counted && step->worth) memcpy(a->tail_sent + a->worth_at, step->worth, r->n_unique);
    if (counted && !step->worth) memset(a->tail_sent + a->worth_at, 0, r->n_unique);
    if (a->n_outdated) memcpy(a->tail_sent + a->outdated_at, step->outdated, a->n_outdated * sizeof(uint32_t));
    a->tail_bytes = counted ? a->outdated_at + a->n_outdated * sizeof(uint32_t) : valid_bytes;
    if (sorts(c)) return;
    uint32_t *ids = (uint32_t *)(void *)(a->tail_sent + a->ids_at);
    for (uint32_t u = 0; u < step->n_own && sends_ids(c); u++) ids[u] = frugal_id_of(c->store, r->rows[u]);
    write_chunks(a, r);
    a->tail_bytes = a->chunks_at + a->n_chunks * sizeof(row_chunk);
}

/* Copies an announced batch to the GPU. */
static cudaError_t send_batch(gpu_device *c, batch_ahead *a, const frugal_step *step, int whole, cudaStream_t stream) {
    const frugal_records *r = &step->records;
    size_t row = (r->n + 1) * sizeof(uint32_t), pitch = c->pitch * sizeof(uint32_t);
    cudaError_t error = cudaSuccess;
    if (r->n == 0) return error;
    if (!sorts(c))
        error = cudaMemcpy2DAsync(a->arrays, pitch, r->rows, pitch, row, whole ? 4 : 3, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(a->tail, a->tail_sent, a->tail_bytes, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess && a->has_secondaries)
        error = cudaMemcpyAsync(a->secondaries, a->secondaries_sent, r->n_unique * sizeof *a->secondaries,
                                cudaMemcpyHostToDevice, stream);
    return error;
}

static int pools_bags(const gpu_device *c) {
    return __atomic_load_n(&c->pools, __ATOMIC_RELAXED); /* a hint: what is not sent ahead is sent later */
}

/* Called by the loader, or the teller. If this fails, lookup tries again, because lookup can return a status. */
static void device_announced(void *device, const frugal_step *step) {
    gpu_device *c = (gpu_device *)device;
    batch_ahead *a = ahead_of(c, step->step);
    on_gpu on(c);
    a->failed = a->is_told = 1;
    if (is_out_of_reach(on.result)) return; /* `tail_sent` may be gone; lookup says so */
    if (!sorts(c) && (a->whole = pools_bags(c))) frugal_record_of(c->f, c->device, step->step);
    write_tail(c, a, step);
    cudaError_t error = send_batch(c, a, step, a->whole, c->ahead_stream);
    if (error == cudaSuccess) error = cudaEventRecord(a->copied, c->ahead_stream);
    a->failed = error != cudaSuccess;
    begin_work(c, c->ahead_stream);
    if (error == cudaSuccess) return;
    cudaStreamSynchronize(c->ahead_stream); /* what was enqueued reads the batch, and writes where lookup will write */
}

static void device_cancelled(void *device) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    if (is_out_of_reach(on.result)) return;
    cudaStream_t streams[] = {c->ahead_stream, c->back_stream};
    for (cudaStream_t stream : streams) /* no status to return: try again; a lost device copies nothing */
        if (stream && cudaStreamSynchronize(stream) != cudaSuccess) cudaStreamSynchronize(stream);
}

/* The caller's stream waits for the batch, or copies it if that was not done ahead. */
static frugal_status await_batch(gpu_device *c, const frugal_step *step) {
    batch_ahead *a = ahead_of(c, step->step);
    int whole = a->whole || step->bags != NULL;
    cudaError_t error;
    if (a->failed) {
        error = send_batch(c, a, step, whole, c->stream);
    } else {
        error = cudaStreamWaitEvent(c->stream, a->copied, 0);
        if (error == cudaSuccess && whole && !a->whole)
            error = cudaMemcpyAsync(a->arrays + 3 * c->pitch, step->records.record_of,
                                    step->records.n * sizeof(uint32_t), cudaMemcpyHostToDevice, c->stream);
    }
    if (error == cudaSuccess) a->failed = 0, a->whole = whole;
    return check_cuda(c, error, "copying the batch");
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_BATCHES_CUH */
