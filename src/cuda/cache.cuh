/* cache.cuh - operations of the cache: it is emptied, preloaded, and compared with the host's rows. */
#ifndef FRUGAL_CUDA_CACHE_CUH
#define FRUGAL_CUDA_CACHE_CUH

#include "enqueue.cuh"

#include <stdlib.h>
#include <string.h>

namespace frugal_cuda {

/* Empties the cache if that was asked for and is not done yet. Otherwise copies that are left there might be taken for
 * current ones. */
static frugal_status empty_cache(gpu_device *c) {
    if (!c->full || c->view.sets == 0) return FRUGAL_OK;
    frugal_status status = check_stream(c, "emptying the cache");
    if (status != FRUGAL_OK) return status;
    cudaError_t error = cudaMemsetAsync(c->view.words, 0xff, c->view.sets * WAYS * sizeof(uint64_t), c->stream);
    c->full = error != cudaSuccess;
    return check_cuda(c, error, "emptying the cache");
}

static int compare_rows(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* Preloads distinct rows. It uses the memory of an announced batch, which is free because nothing is announced. */
static frugal_status preload_rows(gpu_device *c, const uint32_t *rows, uint32_t n) {
    gpu_step given = {};
    given.rows = c->aheads[0].arrays, given.n_unique = n,
    given.step = c->counted - 1; /* so that it does not count as touched in the next step */
    cudaError_t error = cudaMemcpyAsync(c->aheads[0].arrays, rows, n * sizeof *rows, cudaMemcpyHostToDevice, c->stream);
    if (error == cudaSuccess && c->counts.words) {
        error = enqueue_count(c, given.rows, n, NULL, 0, 0, 0, c->aheads[0].tail, c->stream);
        given.worth = c->aheads[0].tail;
    } else if (error == cudaSuccess && is_counted(c)) {
        for (uint32_t i = 0; i < n; i++) c->aheads[0].tail_sent[i] = frugal_worth(c->f, rows[i]);
        error = cudaMemcpyAsync(c->aheads[0].tail, c->aheads[0].tail_sent, n, cudaMemcpyHostToDevice, c->stream);
        given.worth = c->aheads[0].tail;
    }
    const launch_form form = rows_form(&c->view);
    if (error == cudaSuccess)
        error = FRUGAL_LAUNCH_FORM(form, frugal_lookup, grid_for(c, KERNEL_LOOKUP, n, form), c->stream, c->view, given,
                                   row_output(), 1);
    frugal_status status = check_cuda(c, error, "preload");
    error = cudaStreamSynchronize(c->stream); /* also after a failure, because the caller frees `rows` */
    if (error != cudaSuccess) cudaStreamSynchronize(c->stream); /* try again: it frees them in any case */
    return status == FRUGAL_OK ? check_cuda(c, error, "preload") : status;
}

static frugal_status device_preload(void *device, const uint32_t *rows, uint32_t n) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    uint32_t most = frugal_settings(c->f)->max_keys, distinct = 0;
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = check_stream(c, "preload");
    if (status == FRUGAL_OK) status = empty_cache(c);
    if (status != FRUGAL_OK || c->view.sets == 0) return status;
    uint32_t *sorted = (uint32_t *)malloc(n * sizeof *sorted);
    if (!sorted) return frugal_fail(FRUGAL_ERR_MEMORY, "preload: %zu bytes are not available", n * sizeof *sorted);
    memcpy(sorted, rows, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_rows);
    for (uint32_t i = 0; i < n; i++) /* two groups with the same row would each make a copy */
        if (i == 0 || sorted[i] != sorted[i - 1]) sorted[distinct++] = sorted[i];
    for (uint32_t at = 0; at < distinct && status == FRUGAL_OK; at += most) {
        frugal_step batch = {};
        batch.records.rows = sorted + at;
        batch.records.n_unique = batch.n_own = distinct - at < most ? distinct - at : most;
        if (c->gathered) gather_on_host(c, &batch);
        status = preload_rows(c, batch.records.rows, batch.records.n_unique);
    }
    free(sorted);
    return status;
}

/* As in preload_rows, an announced batch lends its memory. */
static frugal_status device_refresh(void *device, const uint32_t *rows, uint32_t n) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    uint32_t most = frugal_settings(c->f)->max_keys, *sent = c->aheads[0].arrays;
    const launch_form form = rows_form(&c->view);
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = check_stream(c, "refreshing copies");
    if (status == FRUGAL_OK) status = empty_cache(c);
    for (uint32_t at = 0; at < n && c->view.sets > 0 && status == FRUGAL_OK; at += most) {
        uint32_t some = n - at < most ? n - at : most, grid = grid_for(c, KERNEL_REFRESH, some, form);
        cudaError_t error = cudaMemcpyAsync(sent, rows + at, some * sizeof *rows, cudaMemcpyHostToDevice, c->stream);
        if (error == cudaSuccess)
            error = FRUGAL_LAUNCH_FORM(form, frugal_refresh, grid, c->stream, c->view, (const uint32_t *)sent, some);
        status = check_cuda(c, error, "refreshing copies");
        error = cudaStreamSynchronize(c->stream); /* also after a failure, because the caller reuses `rows` */
        if (status == FRUGAL_OK) status = check_cuda(c, error, "refreshing copies");
    }
    return status;
}

/* The worth of rows has changed: the words of the directory are read, changed and written. */
static frugal_status device_recount(void *device) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    uint64_t words[1024], ways = c->view.sets * WAYS;
    uint32_t now = (uint32_t)(c->counted - 1) & STEP_BITS; /* as in preload_rows */
    if (!is_counted(c) || ways == 0) return FRUGAL_OK;
    frugal_status status = check_cuda(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = check_stream(c, "counting anew");
    if (status == FRUGAL_OK) status = empty_cache(c);
    if (status != FRUGAL_OK) return status;
    cudaError_t error = cudaStreamSynchronize(c->stream);
    if (error == cudaSuccess && c->view.keeps) error = cudaStreamSynchronize(c->back_stream);
    for (uint64_t at = 0; at < ways && error == cudaSuccess; at += 1024) {
        uint64_t n = ways - at < 1024 ? ways - at : 1024;
        error = copy_to_host(c, words, c->view.words + at, n * sizeof *words);
        for (uint64_t i = 0; i < n; i++) {
            uint32_t row = (uint32_t)(words[i] >> 32), use = ((uint32_t)words[i] & DIRTY) | now;
            if (words[i] != FREE_WORD)
                words[i] = (uint64_t)row << 32 | (uint32_t)frugal_worth(c->f, row) << WORTH_AT | use;
        }
        if (error == cudaSuccess) error = copy_to_gpu(c, c->view.words + at, words, n * sizeof *words);
    }
    return check_cuda(c, error, "counting anew");
}

/* Does the copy at a way equal the host row? `copy` is in host memory by now. */
static int is_same_row(const gpu_device *c, uint32_t row, const float *copy) {
    const frugal_store *s = c->store;
    if (!frugal_have_same_weights(s, copy, frugal_row_at(s, row))) return 0;
    return s->state_floats == 0 ||
           frugal_are_same(copy + c->view.state_at, s->state + (uint64_t)row * s->state_stride, s->state_floats);
}

/* Copies ways of the cache to the host, or, if `secondaries`, secondaries, piece by piece, and compares them.
 * `memory` has room for `most` ways at a time: their copies, then their words. */
static int verify_ways(gpu_device *c, uint64_t ways, int secondaries, float *memory, uint64_t most) {
    uint64_t stride = c->view.copy_stride, *words = (uint64_t *)(void *)(memory + most * stride);
    const float *copies = secondaries ? c->secondary_copies : c->view.copies;
    int same = 1;
    for (uint64_t at = 0; at < ways && same; at += most) {
        uint64_t n = ways - at < most ? ways - at : most;
        same = copy_to_host(c, memory, copies + at * stride, n * stride * sizeof(float)) == cudaSuccess;
        if (!secondaries && same) same = copy_to_host(c, words, c->view.words + at, n * sizeof *words) == cudaSuccess;
        for (uint64_t i = 0; i < n && same; i++) {
            uint32_t row = secondaries ? c->secondary_rows[at + i] : (uint32_t)(words[i] >> 32);
            if (row == NO_ROW || !frugal_is_current(c->f, c->device, row)) continue;
            frugal_verified(c->f, row);
            same = is_same_row(c, row, memory + i * stride);
        }
    }
    return same;
}

/* Also returns 0 if the GPU does not answer; the caller then asks whether it is lost. */
static int device_verify(void *device) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    uint64_t ways = c->view.sets * WAYS, stride = c->view.copy_stride;
    const uint64_t AT_A_TIME = 1024;
    float *memory = (float *)malloc(AT_A_TIME * (stride * sizeof(float) + sizeof(uint64_t)));
    int same = memory != NULL && on.result == CUDA_SUCCESS && check_stream(c, "verify") == FRUGAL_OK &&
               empty_cache(c) == FRUGAL_OK && cudaStreamSynchronize(c->stream) == cudaSuccess;
    same = same && verify_ways(c, ways, 0, memory, AT_A_TIME) && verify_ways(c, c->n_secondaries, 1, memory, AT_A_TIME);
    free(memory);
    if (!same) note_failure(c);
    return same;
}

static void device_empty(void *device) {
    gpu_device *c = (gpu_device *)device;
    on_gpu on(c);
    c->full = 1;
    if (on.result == CUDA_SUCCESS)
        empty_cache(c); /* if this fails, the next operation that uses the cache empties it */
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_CACHE_CUH */
