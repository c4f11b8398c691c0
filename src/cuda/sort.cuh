/* sort.cuh - a batch whose unique rows the GPU finds: it sorts the keys, lists rows and positions, cuts rows with many
 * positions into chunks, and, for the one device of an instance, may count touches. On the stream of copies ahead,
 * which has a low priority.
 *
 * The sort is stable, so positions of a row rise, and sums have the bits of the host's (batch.c). A kernel writes
 * the number of rows into host memory, and the rows, if the host needs them, as it does where several devices share
 * rows. The thread that polls finds them by reading a word (poll.c). The batch was announced L steps ahead, so the
 * lookup of the step hardly waits for it, and no step is enqueued behind a sort that is not done: streams may share a
 * queue of the GPU, launches have the right size, and a bad key is an error of the lookup, which has changed nothing.
 *
 * Contents: >>kernels >>sorting >>operations
 */
#ifndef FRUGAL_CUDA_SORT_CUH
#define FRUGAL_CUDA_SORT_CUH

#include "cub.cuh"
#include "watch.cuh"
#include "rows.cuh"
#include "device.cuh"
#include "../counting.h"

#include <signal.h>

namespace frugal_cuda {

/* >>kernels - a thread for each position, or row */

/* The segment that position i is in: the last one that begins there or before. */
__device__ static inline uint32_t segment_at(const key_segment *segments, uint32_t n, uint32_t i) {
    uint32_t low = 0;
    for (; n > 1;) { /* it is one of the n from `low` on */
        uint32_t half = n / 2;
        if (segments[low + half].begin <= i) {
            low += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return low;
}

/* The rows of the caller's keys. Of keys that are too large the first is noted. */
__global__ void frugal_keys_kernel(const key_segment *segments, uint32_t n_segments, uint32_t n, uint32_t *rows,
                                   found_batch *found) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const key_segment &s = segments[segment_at(segments, n_segments, i)];
        uint32_t k = i - s.begin;
        uint64_t key = s.keys32 ? (uint64_t)(int64_t)s.keys32[k] : s.keys[k];
        rows[i] = (uint32_t)(s.first_row + (key < s.rows ? key : 0));
        if (key < s.rows) continue;
        gpu_atomic<uint64_t> bad(found->bad); /* relaxed, all: read when the kernel has ended */
        uint64_t first = bad.load(cuda::memory_order_relaxed);
        while (i < first &&
               !bad.compare_exchange_strong(first, i, cuda::memory_order_relaxed, cuda::memory_order_relaxed))
            continue;
    }
}

/* The key itself, while the caller's keys are still there. One warp. */
__global__ void frugal_bad_key_kernel(const key_segment *segments, uint32_t n_segments, found_batch *found) {
    if (threadIdx.x != 0 || found->bad == NO_POSITION) return;
    const key_segment &s = segments[segment_at(segments, n_segments, (uint32_t)found->bad)];
    uint32_t k = (uint32_t)found->bad - s.begin;
    found->key = s.keys32 ? (uint64_t)(int64_t)s.keys32[k] : s.keys[k];
}

/* positions[i] = i, once for all batches. */
__global__ void frugal_positions_kernel(uint32_t *positions, uint32_t n) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) positions[i] = i;
}

/* first[i]: 1 if a row begins at place i of the sorted ones. */
__global__ void frugal_heads_kernel(const uint32_t *sorted, uint32_t n, uint32_t *first) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        first[i] = i == 0 || sorted[i] != sorted[i - 1];
}

/* Lists the unique rows. index[i]: the number of rows that begin at place i or before. */
__global__ void frugal_list_kernel(const uint32_t *sorted, const uint32_t *index, uint32_t n, batch_arrays to,
                                   found_batch *found) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t u = index[i] - 1;
        to.record_of[to.order[i]] = u;
        if (i == 0 || index[i - 1] == u) to.rows[u] = sorted[i], to.start[u] = i;
        if (i + 1 == n) to.start[u + 1] = n, found->n_unique = u + 1;
    }
}

/* first[i]: 1 if a chunk begins at place i. */
__global__ void frugal_chunk_heads_kernel(const uint32_t *index, const uint32_t *start, uint32_t n, uint32_t *first) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t u = index[i] - 1, begin = start[u];
        first[i] = start[u + 1] - begin > CHUNK && (i - begin) % CHUNK == 0;
    }
}

/* Lists the chunks. chunk_index[i]: the number of chunks that begin at place i or before. */
__global__ void frugal_chunks_kernel(const uint32_t *index, const uint32_t *start, const uint32_t *chunk_index,
                                     uint32_t n, row_chunk *chunks, found_batch *found) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t u = index[i] - 1, before = i > 0 ? chunk_index[i - 1] : 0;
        if (chunk_index[i] > before) {
            chunks[before].unique = u;
            chunks[before].first = chunk_index[start[u]] - 1;
        }
        if (i + 1 == n) found->n_chunks = chunk_index[i];
    }
}

/* Tells the host what was found; the rows, too, if `rows_to` is not NULL. */
__global__ void frugal_found_kernel(const uint32_t *rows, found_batch *found, uint32_t *rows_to, found_batch *to,
                                    uint64_t step) {
    uint32_t n = rows_to && found->bad == NO_POSITION ? found->n_unique : 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) rows_to[i] = rows[i];
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    gpu_atomic<uint32_t> blocks(found->blocks);
    if (blocks.fetch_add(1, cuda::memory_order_acq_rel) + 2 != gridDim.x) return; /* [C11] itself */
    to->bad = found->bad, to->key = found->key;
    to->n_unique = found->n_unique, to->n_chunks = found->n_chunks;
    __threadfence_system();
    system_atomic<uint64_t>(to->sorted).store(step + 1, cuda::memory_order_release); /* [C9] pairs with [C10] */
}

/* Counts a touch of a row by the one device, all of whose copies are current (worth.c). Returns what a copy is
 * worth then. The bytes of four rows are a word; relaxed, because nothing is read through it. */
__device__ static inline uint32_t count_touch(const touch_counts &c, uint32_t row, uint64_t step, int read_only) {
    gpu_atomic<uint32_t> word(c.words[row / 4]);
    uint32_t at = row % 4 * 8, byte = word.load(cuda::memory_order_relaxed) >> at & 255;
    uint32_t raised = frugal_raised(byte, 1, frugal_hash_touch(row, step), c.chances[byte >> LEVEL_AT]);
    if (!read_only) raised |= STAYED;
    if (raised != byte) word.fetch_add((raised - byte) << at, cuda::memory_order_relaxed);
    return frugal_worth_of(raised, 1);
}

/* Counts the touches of a batch, and says what its rows are worth. Of a batch that was sorted here `found` knows the
 * number of rows; if a key is bad, nothing is counted. counts_them 0: it only says. A thread for four rows. */
__global__ void frugal_count_kernel(const uint32_t *rows, uint32_t n, const found_batch *found, uint64_t step,
                                    int counts_them, int read_only, touch_counts c, uint32_t *worth) {
    if (found) n = found->bad == NO_POSITION ? found->n_unique : 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; 4 * i < n; i += gridDim.x * blockDim.x) {
        uint32_t four = 0;
        for (uint32_t u = 4 * i; u < 4 * i + 4 && u < n; u++) {
            uint32_t row = rows[u], byte = c.words[row / 4] >> row % 4 * 8 & 255;
            uint32_t is_worth = counts_them ? count_touch(c, row, step, read_only) : frugal_worth_of(byte, 1);
            four |= is_worth << u % 4 * 8;
        }
        worth[i] = four;
    }
}

/* Halves the counts of the rows first .. end - 1, unless a key of the batch is bad; found NULL: it has no keys. A
 * thread for each word, which no other one changes. */
__global__ void frugal_age_kernel(touch_counts c, uint64_t first, uint64_t end, const found_batch *found) {
    if (found && found->bad != NO_POSITION) return;
    uint64_t i = first / 4 + blockIdx.x * blockDim.x + threadIdx.x;
    for (; 4 * i < end; i += gridDim.x * blockDim.x) {
        uint32_t word = c.words[i], halved = 0;
        for (uint32_t at = 0; at < 4; at++) {
            uint32_t byte = word >> at * 8 & 255;
            halved |= (4 * i + at >= first && 4 * i + at < end ? frugal_halved(byte) : byte) << at * 8;
        }
        c.words[i] = halved;
    }
}

/* >>sorting */

static uint32_t sort_grid(const gpu_device *c, uint32_t n) {
    uint32_t blocks = (n + BLOCK_THREADS - 1) / BLOCK_THREADS, most = c->resident[KERNEL_LOOKUP][0][0];
    return blocks < most ? blocks : most;
}

#define FRUGAL_LAUNCH_SORT(c, n, kernel, ...)                                                                          \
    FRUGAL_LAUNCH(kernel, sort_grid(c, n), BLOCK_THREADS, (c)->ahead_stream, __VA_ARGS__)

/* Enqueues what old counts lose in the step, as age_rows does (worth.c). */
static cudaError_t enqueue_aging(const gpu_device *c, batch_ahead *a, uint64_t step, const found_batch *found) {
    uint64_t first, end;
    frugal_halved_rows(c->store->rows, frugal_settings(c->f)->max_keys, step, &first, &end);
    if (!c->counts.words || a->aged == step + 1 || first == end) return cudaSuccess;
    uint32_t words = (uint32_t)(end / 4 - first / 4 + 1);
    cudaError_t error = FRUGAL_LAUNCH(frugal_age_kernel, sort_grid(c, words), BLOCK_THREADS, c->ahead_stream, c->counts,
                                      first, end, found);
    if (error == cudaSuccess) a->aged = step + 1;
    return error;
}

/* Enqueues the count of a batch's touches on a stream; found NULL: it has n rows. */
static cudaError_t enqueue_count(const gpu_device *c, const uint32_t *rows, uint32_t n, const found_batch *found,
                                 uint64_t step, int counts_them, int read_only, uint8_t *worth, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    return FRUGAL_LAUNCH(frugal_count_kernel, sort_grid(c, n), BLOCK_THREADS, stream, rows, n, found, step, counts_them,
                         read_only, c->counts, (uint32_t *)(void *)worth);
}

/* Does the cache choose rows by their worth? */
static int is_counted(const gpu_device *c) {
    return c->desc.policy == FRUGAL_CACHE_COUNTED && c->desc.cache_rows > 0;
}

static uint64_t whole_words(uint64_t bytes) {
    return (bytes + 7) / 8 * 8;
}

/* Are ids sent with each batch? Only random bits need them, and only those of homes that are listed are no function of
 * the row's number. A whole list of them would take 4 bytes of the GPU's memory a row. */
static int sends_ids(const gpu_device *c) {
    const frugal_store *s = c->store;
    return s->ids && s->rows_as != FRUGAL_FP32 && s->rounding != FRUGAL_NEAREST;
}

/* Where in the tail of a batch what is, if it has at most n rows and n_outdated outdated ones. */
static void place_tail(const gpu_device *c, batch_ahead *a, uint64_t n, uint64_t n_outdated) {
    int counted = is_counted(c);
    a->worth_at = (n + 63) / 64 * sizeof(uint64_t);
    a->outdated_at = a->worth_at + (counted ? whole_words(n) : 0);
    a->ids_at = a->outdated_at + (counted ? whole_words(n_outdated * sizeof(uint32_t)) : 0);
    a->chunks_at = a->ids_at + (sends_ids(c) ? whole_words(n * sizeof(uint32_t)) : 0);
}

/* Does it sort all its batches, or none? */
static int sorts(const gpu_device *c) {
    return c->sort.memory != NULL;
}

/* Describes the caller's segments to the kernel. */
static uint32_t write_segments(const gpu_device *c, batch_ahead *a, const frugal_batch *batch) {
    uint32_t begin = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) {
        const frugal_keys *s = &batch->segments[i];
        uint64_t first = c->store->first_row[s->table];
        a->segments_sent[i] = {s->keys, s->keys32, c->store->first_row[s->table + 1] - first, first, begin, s->table};
        begin += s->n;
    }
    a->segments_sent[batch->n_segments].begin = begin; /* ends the last one */
    return batch->n_segments;
}

/* Enqueues the rows of the batch's keys, from where the keys are. */
static cudaError_t enqueue_keys(gpu_device *c, batch_ahead *a, const frugal_unsorted *batch, cudaStream_t caller) {
    const sort_scratch *s = &c->sort;
    uint32_t n = batch->n;
    if (batch->rows)
        return cudaMemcpyAsync(s->keys, batch->rows, n * sizeof *s->keys, cudaMemcpyHostToDevice, c->ahead_stream);
    uint32_t n_segments = write_segments(c, a, batch->batch);
    cudaError_t error = cudaEventRecord(s->ready, caller);
    begin_work(c, caller);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(c->ahead_stream, s->ready, 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(s->segments, a->segments_sent, n_segments * sizeof *s->segments, cudaMemcpyHostToDevice,
                                c->ahead_stream);
    if (error == cudaSuccess)
        error = FRUGAL_LAUNCH_SORT(c, n, frugal_keys_kernel, s->segments, n_segments, n, s->keys, s->found);
    if (error == cudaSuccess)
        error = FRUGAL_LAUNCH(frugal_bad_key_kernel, 1, WARP, c->ahead_stream, s->segments, n_segments, s->found);
    if (error == cudaSuccess) error = cudaEventRecord(s->read, c->ahead_stream);
    return error == cudaSuccess ? cudaStreamWaitEvent(caller, s->read, 0) : error;
}

/* Sorts, and lists rows and chunks. Memory is used again: that of the keys for places where rows and chunks begin, that
 * of the sorted keys for the numbers of chunks. */
static cudaError_t enqueue_sort(gpu_device *c, batch_ahead *a, uint32_t n) {
    const sort_scratch *s = &c->sort;
    batch_arrays to = {a->arrays, a->arrays + c->pitch, a->arrays + 2 * c->pitch, a->arrays + 3 * c->pitch};
    row_chunk *chunks = (row_chunk *)(void *)(a->tail + a->chunks_at);
    size_t bytes = s->bytes;
    cudaError_t error =
        cub::DeviceRadixSort::SortPairs(s->memory, bytes, (const uint32_t *)s->keys, s->sorted,
                                        (const uint32_t *)s->positions, to.order, (int)n, 0, s->bits, c->ahead_stream);
    if (error == cudaSuccess)
        error = FRUGAL_LAUNCH_SORT(c, n, frugal_heads_kernel, (const uint32_t *)s->sorted, n, s->keys);
    if (error == cudaSuccess)
        error = cub::DeviceScan::InclusiveSum(s->memory, bytes, (const uint32_t *)s->keys, s->index, (int)n,
                                              c->ahead_stream);
    const uint32_t *index = s->index;
    if (error == cudaSuccess)
        error = FRUGAL_LAUNCH_SORT(c, n, frugal_list_kernel, (const uint32_t *)s->sorted, index, n, to, s->found);
    if (error == cudaSuccess)
        error = FRUGAL_LAUNCH_SORT(c, n, frugal_chunk_heads_kernel, index, (const uint32_t *)to.start, n, s->keys);
    if (error == cudaSuccess)
        error = cub::DeviceScan::InclusiveSum(s->memory, bytes, (const uint32_t *)s->keys, s->sorted, (int)n,
                                              c->ahead_stream);
    if (error != cudaSuccess) return error;
    return FRUGAL_LAUNCH_SORT(c, n, frugal_chunks_kernel, index, (const uint32_t *)to.start,
                              (const uint32_t *)s->sorted, n, chunks, s->found);
}

struct sort_call {
    gpu_device *c;
    batch_ahead *a;
    uint32_t n;
    cudaError_t error;
};

static void *sort_apart(void *argument) {
    sort_call *call = (sort_call *)argument;
    on_gpu on(call->c);
    call->error = (cudaError_t)on.result;
    if (call->error == cudaSuccess) call->error = enqueue_sort(call->c, call->a, call->n);
    return NULL;
}

/* CUB takes the thread's last error for its own. So if the caller's thread has one, another thread calls CUB. */
static cudaError_t enqueue_sort_apart(gpu_device *c, batch_ahead *a, uint32_t n) {
    if (cudaPeekAtLastError() == cudaSuccess) return enqueue_sort(c, a, n);
    sort_call call = {c, a, n, cudaSuccess};
    pthread_t thread;
    sigset_t all, before; /* signals are for the caller's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, sort_apart, &call);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return cudaErrorMemoryAllocation;
    pthread_join(thread, NULL);
    return call.error;
}

static cudaError_t enqueue_batch(gpu_device *c, batch_ahead *a, const frugal_unsorted *batch, cudaStream_t caller) {
    const sort_scratch *s = &c->sort;
    uint32_t n = batch->n;
    cudaError_t error = cudaMemsetAsync(s->found, 0xff, sizeof *s->found, c->ahead_stream); /* `blocks`: -1 */
    if (error == cudaSuccess) error = enqueue_keys(c, a, batch, caller);
    if (error == cudaSuccess) error = enqueue_sort_apart(c, a, n);
    if (error == cudaSuccess) error = enqueue_aging(c, a, batch->step, s->found);
    if (error == cudaSuccess && c->counts.words) {
        error = enqueue_count(c, a->arrays, n, s->found, batch->step, a->counted != batch->step + 1, batch->read_only,
                              a->tail + a->worth_at, c->ahead_stream);
        if (error == cudaSuccess) a->counted = batch->step + 1;
    }
    if (error != cudaSuccess) return error;
    uint32_t *rows = NULL;
    if (batch->found) rows = c->batches_seen + (batch->found - (const uint32_t *)c->batches.memory.start);
    return FRUGAL_LAUNCH_SORT(c, n, frugal_found_kernel, (const uint32_t *)a->arrays, s->found, rows, a->found_seen,
                              batch->step);
}

/* >>operations */

static frugal_status device_sort(void *device, const frugal_unsorted *batch) {
    gpu_device *c = (gpu_device *)device;
    batch_ahead *a = ahead_of(c, batch->step);
    cudaStream_t caller = batch->stream ? (cudaStream_t)batch->stream : cudaStreamLegacy;
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status != FRUGAL_OK) return status;
    *a->found = {NO_POSITION, 0, 0, 0, 0, batch->n > 0 ? 0 : batch->step + 1};
    place_tail(c, a, batch->n, frugal_settings(c->f)->max_keys);
    a->n_outdated = 0, a->has_secondaries = a->is_told = 0, a->whole = 1;
    cudaError_t error = batch->n > 0 ? enqueue_batch(c, a, batch, caller) : enqueue_aging(c, a, batch->step, NULL);
    if (error == cudaSuccess) error = cudaEventRecord(a->copied, c->ahead_stream);
    a->failed = 0;
    if (error == cudaSuccess) a->counted = a->aged = 0;
    begin_work(c, c->ahead_stream);
    if (error == cudaSuccess) return FRUGAL_OK;
    cudaStreamSynchronize(c->ahead_stream); /* what was enqueued reads the caller's keys */
    return check_cuda(c, error, "sorting a batch");
}

/* Names a key that is too large, as announcing does. */
static frugal_status fail_key(const gpu_device *c, uint64_t step, const found_batch *found, const batch_ahead *a) {
    uint32_t position = (uint32_t)found->bad, i = 0;
    while (a->segments_sent[i + 1].begin <= position) i++;
    const key_segment *s = &a->segments_sent[i];
    return frugal_fail(FRUGAL_ERR_KEY,
                       "device %u at step %llu: key %lld at %u of segment %u: table %u has %llu rows, keys start at 0; "
                       "frugal_cancel takes the step back, to be announced anew",
                       c->device, (unsigned long long)step, (long long)found->key, position - s->begin, i, s->table,
                       (unsigned long long)s->rows);
}

static frugal_status device_sorted(void *device, uint64_t step, uint32_t *n_unique) {
    gpu_device *c = (gpu_device *)device;
    batch_ahead *a = ahead_of(c, step);
    if (__atomic_load_n(&a->found->sorted, __ATOMIC_ACQUIRE) != step + 1) return FRUGAL_AGAIN; /* [C10] with [C9] */
    if (a->found->bad != NO_POSITION) return fail_key(c, step, a->found, a);
    *n_unique = a->found->n_unique;
    return FRUGAL_OK;
}

/* On a stream on which nothing waits: later batches may be waiting for their keys on that of the sorts. */
static frugal_status device_fetch(void *device, const frugal_step *step, const frugal_records *to) {
    gpu_device *c = (gpu_device *)device;
    const batch_ahead *a = ahead_of(c, step->step);
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status != FRUGAL_OK || to->n == 0) return status;
    const struct {
        const uint32_t *to, *from;
        uint32_t n;
    } arrays[] = {{to->rows, a->arrays, to->n_unique},
                  {to->start, a->arrays + c->pitch, to->n_unique + 1},
                  {to->order, a->arrays + 2 * c->pitch, to->n}};
    cudaError_t error = cudaSuccess;
    for (const auto &array : arrays)
        if (array.to && error == cudaSuccess)
            error = cudaMemcpyAsync((void *)(uintptr_t)array.to, array.from, array.n * sizeof(uint32_t),
                                    cudaMemcpyDeviceToHost, c->watch.stream);
    cudaError_t waited = cudaStreamSynchronize(c->watch.stream); /* also after a failure: it writes the batch */
    return check_cuda(c, error == cudaSuccess ? waited : error, "fetching a batch");
}

static int device_sorts(void *device) {
    const gpu_device *c = (gpu_device *)device;
    return c->counts.words ? 2 : sorts(c);
}

static frugal_status device_move_counts(void *device, uint8_t *counts, int store) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status != FRUGAL_OK) return status;
    cudaError_t error = store ? copy_to_gpu(c, c->counts.words, counts, c->store->rows)
                              : copy_to_host(c, counts, c->counts.words, c->store->rows);
    return check_cuda(c, error, "copying counts");
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_SORT_CUH */
