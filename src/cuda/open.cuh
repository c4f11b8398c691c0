/* open.cuh - the memory of a device: shared pins, batches, the table as the GPU sees it, scratch, the cache. */
#ifndef FRUGAL_CUDA_OPEN_CUH
#define FRUGAL_CUDA_OPEN_CUH

#include "operations.cuh"

#include <string.h>

namespace frugal_cuda {

/* Pins the table and its state, if CUDA can. If not, that is kept and told, because it makes steps slower. */
static void pin_table(gpu_device *c) {
    shared_pins *pins = c->pins;
    struct {
        const char *name;
        frugal_memory_kind kind;
        pinned_memory *pinned;
    } parts[] = {{"the table", FRUGAL_MEMORY_TABLE, &pins->table},
                 {"the optimizer's state", FRUGAL_MEMORY_STATE, &pins->state}};
    for (auto &part : parts) {
        frugal_memory memory = frugal_get_memory(c->f, c->device, part.kind);
        cudaError_t error = pin_memory(c, part.pinned, memory);
        if (error == cudaSuccess) continue;
        for (auto &before : parts) unpin_memory(c, before.pinned);
        pins->refused = part.name, pins->refused_bytes = memory.bytes, pins->refused_error = error;
        frugal_tell(c->f,
                    "cuda_attach: device %u, GPU %d: CUDA did not pin %s, %zu bytes: %s (%s). So the host gathers "
                    "rows at every lookup, and none is updated in place. Systems limit such memory: take fewer rows, "
                    "or raise the limit (ulimit -l, WSL2's memory)",
                    c->device, c->ordinal, part.name, memory.bytes, cudaGetErrorString(error), cudaGetErrorName(error));
        return;
    }
    pins->table_is_pinned = 1;
}

/* The first device of an instance pins table and alone bits; the others use its pins. */
static frugal_status share_pins(gpu_device *c) {
    for (uint32_t d = 0; d < c->store->devices; d++) {
        gpu_device *other = gpu_device_of(c->f, d);
        if (other) c->pins = other->pins;
        if (other && other->ordinal == c->ordinal) c->hangs = other->hangs;
    }
    shared_pins *pins = c->pins;
    int is_first = !pins;
    if (is_first) pins = c->pins = (shared_pins *)frugal_allocate(c->f, sizeof *pins, 64);
    if (!pins) return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes are not available", c->device, sizeof *pins);
    pins->users++;
    if (!c->hangs) {
        c->hangs = &pins->hangs[c->device];
        __atomic_store_n(c->hangs, 0, __ATOMIC_RELAXED); /* it may be of an attempt on another GPU */
    }
    if (!is_first) return FRUGAL_OK;
    if (is_on_disk(c->f)) return FRUGAL_OK;
    frugal_memory table = frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_TABLE);
    if (!frugal_settings(c->f)->file) populate_pages(c->f, &table);
    pin_table(c);
    if (!pins->table_is_pinned || frugal_settings(c->f)->alone < FRUGAL_ALONE_PLACE) return FRUGAL_OK;
    cudaError_t error = pin_memory(c, &pins->alone, frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_ALONE));
    return check_cuda(c, error, "pinning the bits of rows that are alone");
}

/* Finds the host table where the GPU sees it, or makes a buffer that the host gathers into. In the first case the
 * device may update rows in place. */
static frugal_status open_table(gpu_device *c) {
    gpu_view *g = &c->view;
    const frugal_store *s = c->store;
    void *seen = NULL;
    cudaError_t error = cudaSuccess;
    g->weights_stride = s->weights_stride, g->state_stride = s->state_stride;
    if (c->pins->table_is_pinned) {
        error = seen_by_gpu(&c->pins->table, s->weights, &seen);
        g->weights = seen;
        const pinned_memory *state = c->pins->state.memory.bytes ? &c->pins->state : &c->pins->table;
        if (error == cudaSuccess && s->state) error = seen_by_gpu(state, s->state, &seen);
        g->state = s->state ? (float *)seen : NULL;
        const pinned_memory *alone = &c->pins->alone;
        if (error == cudaSuccess && alone->memory.bytes) error = seen_by_gpu(alone, alone->memory.start, &seen);
        c->alone_seen = alone->memory.bytes ? (const unsigned char *)seen : NULL;
        return check_cuda(c, error, "mapping the table");
    }
    if (c->desc.gate_on_stream)
        return frugal_fail(
            FRUGAL_ERR_ARGUMENT,
            "cuda_attach: the table cannot be pinned (%s), so the host gathers, and cannot leave waiting to the "
            "stream: clear gate_on_stream",
            c->pins->refused ? cudaGetErrorName(c->pins->refused_error) : "a file on a disk");
    g->gathered = 1;
    g->weights_stride = whole_packs(s->dim),
    g->state_stride = s->state_floats > 1 ? whole_packs(s->state_floats) : s->state_floats;
    uint64_t keys = frugal_settings(c->f)->max_keys;
    c->gathered_state_at = (keys * g->weights_stride * frugal_type_bytes(g->rows_as) + 15) / 16 * 16;
    uint64_t bytes = c->gathered_state_at + keys * g->state_stride * sizeof(float);
    void *host = NULL;
    error = cudaHostAlloc(&host, (size_t)bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    c->gathered = (unsigned char *)host;
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&seen, host, 0);
    g->weights = seen;
    g->state = (float *)(void *)((unsigned char *)seen + c->gathered_state_at);
    return check_cuda(c, error, "a buffer to gather into");
}

/* Allocates the ring of batches: arrays and tails on the GPU, and the memory from which tails are sent. */
static frugal_status open_batches(gpu_device *c) {
    uint64_t keys = frugal_settings(c->f)->max_keys;
    uint32_t n = frugal_settings(c->f)->lookahead + 1;
    frugal_status status;
    void *arrays = NULL, *tail = NULL;
    c->pitch = (keys + 1 + 15) / 16 * 16;       /* as in the host's batch: whole lines */
    c->max_chunks = 2 * keys / (CHUNK + 1) + 1; /* a row with 33 positions has two */
    uint64_t counted = is_counted(c) ? whole_words(keys) + whole_words(keys * sizeof(uint32_t)) : 0;
    uint64_t ids = sends_ids(c) ? whole_words(keys * sizeof(uint32_t)) : 0;
    c->tail_bytes = ((keys + 63) / 64 * 8 + counted + ids + c->max_chunks * sizeof(row_chunk) + 15) / 16 * 16;
    if ((status = allocate_on_gpu(c, n * 4 * c->pitch * 4, "batches", &arrays)) != FRUGAL_OK) return status;
    c->arrays_memory = (uint32_t *)arrays;
    if ((status = allocate_on_gpu(c, n * c->tail_bytes, "batches", &tail)) != FRUGAL_OK) return status;
    c->tail_memory = (unsigned char *)tail;
    cudaError_t error = cudaHostAlloc((void **)&c->tail_sent_memory, n * c->tail_bytes, cudaHostAllocPortable);
    for (uint32_t i = 0; i < n && error == cudaSuccess; i++) {
        c->aheads[i].arrays = c->arrays_memory + i * 4 * c->pitch;
        c->aheads[i].tail = c->tail_memory + i * c->tail_bytes;
        c->aheads[i].tail_sent = c->tail_sent_memory + i * c->tail_bytes;
        error = cudaEventCreateWithFlags(&c->aheads[i].copied, cudaEventDisableTiming);
    }
    int least = 0, greatest = 0; /* what is done ahead gives way to the step under way */
    if (error == cudaSuccess) error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&c->ahead_stream, cudaStreamNonBlocking, least);
    return check_cuda(c, error, "a stream and events for copies ahead");
}

/* Allocates memory that GPU and host exchange words by, zeroed, in whole pages, because pages are pinned. Not memory of
 * CUDA's, because threads that poll read it even if the context has ended. device_close frees it. */
static frugal_status open_words(gpu_device *c, pinned_memory *words, uint64_t bytes, void **seen) {
    constexpr uint64_t PAGE = 65536; /* of systems with large ones, too */
    uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    frugal_memory memory = {frugal_allocate(c->f, whole, PAGE), whole, 0};
    if (!memory.start)
        return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %llu bytes are not available", c->device,
                           (unsigned long long)whole);
    words->memory = memory;
    frugal_move_memory(c->f, memory, c->node);
    cudaError_t error = pin_memory(c, words, memory);
    if (error == cudaSuccess) error = seen_by_gpu(words, memory.start, seen);
    return check_cuda(c, error, "pinning the words that GPU and host exchange");
}

/* Allocates these words, and the kernels' scratch memory. */
static frugal_status open_scratch(gpu_device *c) {
    gpu_view *g = &c->view;
    uint64_t keys = frugal_settings(c->f)->max_keys;
    uint64_t rows = c->max_chunks > TEST_POSITIONS ? c->max_chunks : TEST_POSITIONS;
    uint64_t partials = rows * g->partial_stride, counters = sizeof(gpu_counters);
    uint64_t bytes = partials * 4 + c->max_chunks * 4, groups_at = counters + sizeof(gpu_step);
    int several = g->n_groups > 1 || c->store->groups[0].optimizer.frozen; /* the usual kernel has one rule */
    uint64_t n_groups = several ? g->n_groups : 0, groups = n_groups * sizeof(frugal_table_group);
    uint64_t hypers = n_groups * sizeof(frugal_hyper);
    uint64_t row_at = (sizeof *c->control + FRUGAL_P2F_SLOTS * hypers + 15) / 16 * 16;
    uint64_t control_bytes = row_at + (c->alone_seen ? g->copy_stride * sizeof(float) : 0);
    void *ways = NULL, *scratch = NULL, *small = NULL;
    uint64_t ways_bytes = (keys + 1) / 2 * 8, alone_bytes = c->alone_seen ? (keys + 63) / 64 * 8 : 0;
    frugal_status status = allocate_on_gpu(c, ways_bytes + alone_bytes, "ways", &ways);
    g->ways = (uint32_t *)ways;
    if (alone_bytes > 0) g->alone = (uint64_t *)(void *)((unsigned char *)ways + ways_bytes);
    if (status == FRUGAL_OK) status = allocate_on_gpu(c, bytes, "sums of chunks", &scratch);
    g->partials = (float *)scratch;
    g->arrived = (uint32_t *)scratch + partials;
    if (status == FRUGAL_OK) status = allocate_on_gpu(c, groups_at + groups + hypers, "counters", &small);
    g->counters = (gpu_counters *)small;
    if (status != FRUGAL_OK) return status;
    g->current = (gpu_step *)(void *)((unsigned char *)small + counters);
    void *table_groups = (unsigned char *)small + groups_at;
    cudaError_t error = set_on_gpu(c, scratch, 0, bytes);
    if (error == cudaSuccess) error = set_on_gpu(c, small, 0, groups_at + groups + hypers);
    if (error == cudaSuccess && n_groups > 0) error = copy_to_gpu(c, table_groups, c->store->groups, groups);
    if (error != cudaSuccess) return check_cuda(c, error, "counters");
    void *control = NULL;
    status = open_words(c, &c->control_memory, control_bytes, &control);
    c->control = (control_words *)c->control_memory.memory.start, g->control = (control_words *)control;
    if (status != FRUGAL_OK) return status;
    if (c->alone_seen) c->test_row = (float *)(void *)((unsigned char *)c->control + row_at);
    if (n_groups > 0) {
        g->groups = (const frugal_table_group *)table_groups;
        g->hypers = (frugal_hyper *)(void *)((unsigned char *)table_groups + groups);
        g->hypers_sent = (const frugal_hyper *)(const void *)(g->control + 1);
        c->hypers_sent = (frugal_hyper *)(void *)(c->control + 1);
    }
    c->control->done = c->counted = frugal_settings(c->f)->first_step;
    return FRUGAL_OK;
}

/* The memory from which segments of keys are sent, and to which what was found comes. */
static frugal_status open_sort_sent(gpu_device *c) {
    uint64_t each = (MOST_SEGMENTS + 1) * sizeof(key_segment) + sizeof(found_batch);
    uint32_t n = frugal_settings(c->f)->lookahead + 1;
    void *seen = NULL;
    frugal_status status = open_words(c, &c->sort_sent_memory, n * each, &seen);
    for (uint32_t i = 0; i < n && status == FRUGAL_OK; i++) {
        unsigned char *at = (unsigned char *)c->sort_sent_memory.memory.start + i * each;
        c->aheads[i].found_seen = (found_batch *)(void *)((unsigned char *)seen + i * each);
        c->aheads[i].found = (found_batch *)(void *)at, at += sizeof(found_batch);
        c->aheads[i].segments_sent = (key_segment *)(void *)at;
    }
    return status;
}

/* Bytes of CUB's memory to sort and to sum as many keys as a batch has at most. */
static cudaError_t find_sort_bytes(const gpu_device *c, size_t *bytes) {
    size_t to_sort = 0, to_sum = 0;
    int keys = (int)frugal_settings(c->f)->max_keys;
    const uint32_t *in = NULL;
    uint32_t *out = NULL;
    cudaError_t error =
        cub::DeviceRadixSort::SortPairs(NULL, to_sort, in, out, in, out, keys, 0, c->sort.bits, c->stream);
    if (error == cudaSuccess) error = cub::DeviceScan::InclusiveSum(NULL, to_sum, in, out, keys, c->stream);
    *bytes = to_sort > to_sum ? to_sort : to_sum;
    return error;
}

/* Writes the positions; and loads CUB's kernels now, for the reason that load_kernels has: those that sort few keys,
 * and those that sort many. It uses the memory of a batch. */
static cudaError_t begin_sort(gpu_device *c) {
    uint32_t most = frugal_settings(c->f)->max_keys;
    cudaError_t error = set_on_gpu(c, c->sort.keys, 0, most * sizeof *c->sort.keys);
    if (error == cudaSuccess) error = FRUGAL_LAUNCH_SORT(c, most, frugal_positions_kernel, c->sort.positions, most);
    if (error == cudaSuccess) error = enqueue_sort_apart(c, &c->aheads[0], 1);
    if (error == cudaSuccess) error = enqueue_sort_apart(c, &c->aheads[0], most);
    return finish_copy(c, error);
}

/* Allocates what sorting on the GPU needs, where it does that, and the counts of rows. If the GPU has no memory for
 * these, the host counts, and sorts. */
static frugal_status open_sort(gpu_device *c) {
    sort_scratch *s = &c->sort;
    uint64_t keys = frugal_settings(c->f)->max_keys, rows = c->store->rows, array = (keys + 3) / 4 * 16;
    uint64_t segments = (MOST_SEGMENTS + 1) * sizeof(key_segment), counts_bytes = (rows + 3) / 4 * 4;
    uint64_t before = 4 * array + segments + 256 + sizeof frugal_chances; /* before CUB's; 256: of what is found */
    void *memory = NULL, *ones = NULL, *counts = NULL;
    int may = c->batches_seen ? frugal_may_sort(c->f) : 0;
    if (!may) return FRUGAL_OK;
    for (s->bits = 1; s->bits < 32 && (rows - 1) >> s->bits; s->bits++) continue;
    frugal_status status = check_cuda(c, find_sort_bytes(c, &s->bytes), "asking what sorting takes");
    if (status == FRUGAL_OK) status = allocate_on_gpu(c, before + s->bytes, "sorting", &memory);
    c->sort_memory = (unsigned char *)memory;
    if (status == FRUGAL_OK) status = allocate_on_gpu(c, (keys + 63) / 64 * 8, "sorting", &ones);
    c->ones = (uint64_t *)ones;
    if (status != FRUGAL_OK) return status;
    s->keys = (uint32_t *)memory, s->sorted = s->keys + array / 4;
    s->index = s->sorted + array / 4, s->positions = s->index + array / 4;
    s->segments = (key_segment *)(void *)(c->sort_memory + 4 * array);
    s->found = (found_batch *)(void *)(c->sort_memory + 4 * array + segments);
    s->memory = c->sort_memory + before;
    c->counts.chances = (uint32_t *)(void *)(c->sort_memory + before - sizeof frugal_chances);
    if (may == 2 && c->alone_seen && is_counted(c) && allocate_on_gpu(c, counts_bytes, "counts", &counts) == FRUGAL_OK)
        c->counts.words = (uint32_t *)counts;
    if ((status = open_sort_sent(c)) != FRUGAL_OK) return status;
    cudaError_t error = set_on_gpu(c, ones, 0xff, (keys + 63) / 64 * 8);
    if (error == cudaSuccess)
        error = copy_to_gpu(c, (void *)(uintptr_t)c->counts.chances, frugal_chances, sizeof frugal_chances);
    if (error == cudaSuccess && counts) error = set_on_gpu(c, counts, 0, counts_bytes);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&s->ready, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&s->read, cudaEventDisableTiming);
    if (error == cudaSuccess) error = begin_sort(c);
    return check_cuda(c, error, "memory for sorting");
}

static frugal_status open_cache(gpu_device *c) {
    gpu_view *g = &c->view;
    uint64_t sets = (c->desc.cache_rows + WAYS - 1) / WAYS;
    void *words = NULL, *copies = NULL;
    frugal_status status = FRUGAL_OK;
    for (; sets > 0; sets /= 2) {
        uint64_t ways = sets * WAYS, bytes = c->bytes;
        status = allocate_on_gpu(c, ways * sizeof(uint64_t), "the cache", &words);
        if (status == FRUGAL_OK)
            status = allocate_on_gpu(c, ways * g->copy_stride * sizeof(float), "the cache", &copies);
        if (status == FRUGAL_OK) break;
        if (words) cudaFree(words);
        words = NULL, c->bytes = bytes;
        if (status != FRUGAL_ERR_MEMORY || !c->desc.shrink_cache) return status;
    }
    g->words = (uint64_t *)words, g->copies = (float *)copies, g->sets = sets;
    return sets ? check_cuda(c, set_on_gpu(c, words, 0xff, sets * WAYS * sizeof(uint64_t)), "the cache") : FRUGAL_OK;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_OPEN_CUH */
