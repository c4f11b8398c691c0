/* self_test.cuh - a step through the kernel itself, when a device is attached: its bits must be the host's. */
#ifndef FRUGAL_CUDA_SELF_TEST_CUH
#define FRUGAL_CUDA_SELF_TEST_CUH

#include "enqueue.cuh"

#include <stdlib.h>
#include <string.h>

namespace frugal_cuda {

/* Values where another arithmetic shows: subnormals, sums that round, products that only a fused operation keeps. */
static float test_value(uint32_t i, uint32_t what) {
    static const float values[] = {1.0f + 0x1p-12f, -1.0f / 3, 0x1p-130f, 0x1.fffffep0f, 3e-7f, -0x1p-126f, 0.7f, 1e6f};
    return values[(i * 5 + what * 3) % 8];
}

/* A step of a group's first row with three positions through the kernel itself: the record, and the copy if there is a
 * cache, must be what the host computes. Memory of batch 0 and block 0 is free; nothing else runs. */
static frugal_status self_test(gpu_device *c, uint32_t group, frugal_hyper *hyper) {
    constexpr uint32_t POSITIONS = TEST_POSITIONS;
    const frugal_store *s = c->store;
    gpu_view *g = &c->view;
    uint32_t dim = s->dim,
             n = frugal_settings(c->f)->max_keys < POSITIONS ? frugal_settings(c->f)->max_keys : POSITIONS;
    uint32_t row = (uint32_t)s->groups[group].first_row, place = 0;
    uint32_t arrays[3][POSITIONS + 1] = {{row}, {0, n}, {0, 1, 2}};
    uint64_t floats = (uint64_t)POSITIONS * dim + 2 * g->copy_stride + dim;
    float *host = (float *)calloc(floats, sizeof(float)), *expected = host + POSITIONS * dim,
          *copy = expected + g->copy_stride;
    float *sum = copy + g->copy_stride, *block = (float *)c->blocks.memory.start;
    float *grads = g->partials; /* of no use to a row without chunks; a cache may have left no memory */
    if (!host)
        return frugal_fail(FRUGAL_ERR_MEMORY, "self-test: %zu bytes are not to be had", (size_t)floats * sizeof(float));
    for (uint32_t i = 0; i < POSITIONS * dim; i++) host[i] = test_value(i, i / dim);
    for (uint32_t i = 0; i < dim; i++) expected[i] = test_value(i, 7);
    for (uint32_t i = 0; i < s->state_floats; i++) expected[g->state_at + i] = 1.0f + (float)(i % 5) * 0x1p-11f;
    cudaError_t error = cudaMemcpy(grads, host, POSITIONS * dim * sizeof(float), cudaMemcpyHostToDevice);
    for (int a = 0; a < 3 && error == cudaSuccess; a++)
        error = cudaMemcpy(c->aheads[0].arrays + a * c->pitch, arrays[a], sizeof arrays[a], cudaMemcpyHostToDevice);
    if (error == cudaSuccess) error = cudaMemcpy(g->places, &place, sizeof place, cudaMemcpyHostToDevice);
    if (error == cudaSuccess && g->sets > 0)
        error = cudaMemcpy(g->copies, expected, g->copy_stride * sizeof(float), cudaMemcpyHostToDevice);
    frugal_step step = {};
    step.step = c->counted, step.brings = 1, step.records.block = block;
    gpu_step given = gpu_step_of(c, &step);
    given.rows = c->aheads[0].arrays, given.start = given.rows + c->pitch, given.order = given.start + c->pitch;
    given.n = n, given.n_unique = 1, given.n_chunks = 0, given.brings = 1;
    send_hypers(c, &given, hyper);
    if (error == cudaSuccess) error = cudaDeviceSynchronize(); /* copies were on another stream */
    frugal_status status = check_cuda(c, error, "self-test");
    if (status == FRUGAL_OK) status = enqueue_update(c, given, gradient_source_of(c, grads, NULL));
    if (status == FRUGAL_OK) error = cudaStreamSynchronize(c->stream);
    if (status == FRUGAL_OK && error == cudaSuccess && g->sets > 0)
        error = cudaMemcpy(copy, g->copies, g->copy_stride * sizeof(float), cudaMemcpyDeviceToHost);
    if (status == FRUGAL_OK) status = check_cuda(c, error, "self-test");
    if (status == FRUGAL_OK) {
        frugal_sum_positions(sum, host, dim, arrays[2], n);
        int right = memcmp(sum, block, dim * sizeof(float)) == 0;
        for (uint32_t i = 0; i < dim && s->reduce == FRUGAL_MEAN; i++) sum[i] = frugal_div(sum[i], (float)s->devices);
        right &= __atomic_load_n(&c->control->done, __ATOMIC_ACQUIRE) == step.step + 1;
        frugal_store one = *s;
        one.reduce = FRUGAL_SUM;
        frugal_apply(&one, hyper, row, expected, expected + g->state_at, sum);
        if (g->sets > 0) right &= memcmp(expected, copy, (g->state_at + s->state_floats) * sizeof(float)) == 0;
        if (!right)
            status = frugal_fail(FRUGAL_ERR_ARITHMETIC, "device %u, GPU %d: %s", c->device, c->ordinal,
                                 frugal_strerror(FRUGAL_ERR_ARITHMETIC));
    }
    __atomic_store_n(&c->control->done, c->counted, __ATOMIC_RELAXED);
    free(host);
    return status;
}

/* By the settings of each group of tables; where there are several, each has its numbers, and another's would show. */
static frugal_status self_tests(gpu_device *c) {
    uint32_t n = c->store->n_groups;
    frugal_hyper *hyper = (frugal_hyper *)malloc(n * sizeof *hyper);
    frugal_status status = FRUGAL_OK;
    if (!hyper) return frugal_fail(FRUGAL_ERR_MEMORY, "self-test: %zu bytes are not to be had", n * sizeof *hyper);
    for (uint32_t i = 0; i < n; i++) hyper[i].lr = 0.1f + (float)i, hyper[i].step_size = 0.07f + (float)i;
    for (uint32_t i = 0; i < n && status == FRUGAL_OK; i++) status = self_test(c, i, hyper);
    free(hyper);
    return status;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_SELF_TEST_CUH */
