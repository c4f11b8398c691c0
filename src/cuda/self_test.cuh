/* self_test.cuh - when a device is attached, the kernel itself computes a step; its bits must be the host's. */
#ifndef FRUGAL_CUDA_SELF_TEST_CUH
#define FRUGAL_CUDA_SELF_TEST_CUH

#include "enqueue.cuh"

#include <stdlib.h>
#include <string.h>

namespace frugal_cuda {

/* Values for which another arithmetic gives other bits: subnormals, sums that round, products that only a fused
 * operation keeps. */
static float test_value(uint32_t i, uint32_t what) {
    static const float values[] = {1.0f + 0x1p-12f, -1.0f / 3, 0x1p-130f, 0x1.fffffep0f, 3e-7f, -0x1p-126f, 0.7f, 1e6f};
    return values[(i * 5 + what * 3) % 8];
}

struct test_rows {   /* of the self-test, in host memory: one allocation, at `grads` */
    float *grads;    /* [positions][dim] */
    float *expected; /* weights, as the table has them, and at state_at the state, before the step and after it */
    float *copy;     /* the cached copy after the step, laid out as `expected` */
    float *sum;      /* [dim] */
    int in_place;    /* the row is updated in place, too: the device's test_row, laid out as `expected` */
};

static frugal_status open_test_rows(const gpu_view *g, test_rows *out) {
    test_rows t = {};
    uint64_t floats = (uint64_t)TEST_POSITIONS * g->dim + 2 * g->copy_stride + g->dim;
    t.grads = (float *)calloc(floats, sizeof(float));
    if (!t.grads)
        return frugal_fail(FRUGAL_ERR_MEMORY, "self-test: %zu bytes are not available", (size_t)floats * sizeof(float));
    t.expected = t.grads + TEST_POSITIONS * g->dim;
    t.copy = t.expected + g->copy_stride;
    t.sum = t.copy + g->copy_stride;
    for (uint32_t i = 0; i < TEST_POSITIONS * g->dim; i++) t.grads[i] = test_value(i, i / g->dim);
    for (uint32_t i = 0; i < g->dim; i++) t.sum[i] = test_value(i, 7);
    for (uint32_t i = 0; i < g->dim && g->rows_as == FRUGAL_FP16; i++) /* 1e6 would be infinite before the step */
        if (t.sum[i] > 1e3f) t.sum[i] = 1e3f;
    frugal_convert(t.expected, g->rows_as, t.sum, FRUGAL_FP32, g->dim);
    for (uint32_t i = 0; i < g->state_floats; i++) t.expected[g->state_at + i] = 1.0f + (float)(i % 5) * 0x1p-11f;
    *out = t;
    return FRUGAL_OK;
}

/* Sends what the step needs to the GPU: batch 0 with n positions of the row; its gradients, to the memory of partial
 * sums, which a row without chunks does not need (the cache may have left no other memory); and its copy, at the first
 * way. */
static cudaError_t send_test(const gpu_device *c, const test_rows &t, uint32_t row, uint32_t n) {
    const gpu_view *g = &c->view;
    const uint32_t id = frugal_id_of(c->store, row), way = 0;
    const uint32_t arrays[4][TEST_POSITIONS + 1] = {{row}, {0, n}, {0, 1, 2}, {id}}; /* rows, start, order; ids */
    size_t grads = TEST_POSITIONS * g->dim * sizeof(float);
    cudaError_t error = copy_to_gpu(c, g->partials, t.grads, grads);
    for (uint32_t a = 0; a < 4 && error == cudaSuccess; a++)
        error = copy_to_gpu(c, c->aheads[0].arrays + a * c->pitch, arrays[a], sizeof arrays[a]);
    if (error == cudaSuccess) error = copy_to_gpu(c, g->ways, &way, sizeof way);
    const uint64_t alone = 1;
    if (t.in_place) memcpy(c->test_row, t.expected, g->copy_stride * sizeof(float));
    if (error == cudaSuccess && t.in_place) error = copy_to_gpu(c, g->alone, &alone, sizeof alone);
    if (error == cudaSuccess && g->sets > 0)
        error = copy_to_gpu(c, g->copies, t.expected, g->copy_stride * sizeof(float));
    return error;
}

/* Runs the step by the kernel, and reads the copy back. */
static frugal_status run_test(gpu_device *c, const test_rows &t, const frugal_hyper *hyper, uint32_t n) {
    const gpu_view view = c->view, *g = &view;
    frugal_step step = {};
    step.step = c->counted, step.brings = 1, step.records.block = (float *)c->blocks.memory.start;
    gpu_step given = gpu_step_of(c, &step);
    given.rows = c->aheads[0].arrays, given.start = given.rows + c->pitch, given.order = given.start + c->pitch;
    if (given.ids) given.ids = given.order + c->pitch;
    given.n = n, given.n_unique = 1, given.n_chunks = 0, given.brings = 1;
    send_hypers(c, &given, hyper);
    if (t.in_place) { /* every row of the table is the test's */
        ptrdiff_t at = (unsigned char *)c->test_row - (unsigned char *)c->control;
        given.alone = g->alone;
        float *row = (float *)(void *)((unsigned char *)g->control + at);
        c->view.weights = row, c->view.state = row + g->state_at;
        c->view.weights_stride = c->view.state_stride = 0;
    }
    frugal_status status = enqueue_update(c, given, gradient_source_of(c, g->partials, g->dim, FRUGAL_FP32, NULL));
    c->view = view;
    if (status != FRUGAL_OK) return status;
    cudaError_t error = cudaStreamSynchronize(c->stream);
    if (error == cudaSuccess && g->sets > 0) error = copy_to_host(c, t.copy, g->copies, g->copy_stride * sizeof(float));
    return check_cuda(c, error, "self-test");
}

/* Computes the step on the host, and compares. */
static int is_right(const gpu_device *c, const test_rows &t, const frugal_hyper *hyper, uint32_t row, uint32_t n) {
    static const uint32_t order[TEST_POSITIONS] = {0, 1, 2};
    const frugal_store *s = c->store;
    const gpu_view *g = &c->view;
    frugal_sum_positions(t.sum, t.grads, s->dim, s->dim, order, n);
    if (!t.in_place && memcmp(t.sum, c->blocks.memory.start, s->dim * sizeof(float))) return 0;
    if (__atomic_load_n(&c->control->done, __ATOMIC_ACQUIRE) != c->counted + 1) return 0;
    for (uint32_t i = 0; i < s->dim && s->reduce == FRUGAL_MEAN; i++)
        t.sum[i] = frugal_div(t.sum[i], (float)s->devices);
    frugal_store one = *s;
    one.reduce = FRUGAL_SUM;
    frugal_apply(&one, hyper, row, t.expected, t.expected + g->state_at, t.sum);
    size_t bytes = (g->state_at + s->state_floats) * sizeof(float);
    if (t.in_place && memcmp(t.expected, c->test_row, bytes)) return 0;
    return g->sets == 0 || !memcmp(t.expected, t.copy, bytes);
}

/* Runs a step of a table group's first row, at three positions at most, by the kernel itself. The record, or the row
 * that is updated in place, and the copy if there is a cache, must be what the host computes. The memory of batch 0 and
 * block 0 is free, because nothing else runs. */
static frugal_status self_test(gpu_device *c, uint32_t group, int in_place, const frugal_hyper *hyper) {
    uint32_t keys = frugal_settings(c->f)->max_keys, n = keys < TEST_POSITIONS ? keys : TEST_POSITIONS;
    uint32_t row = (uint32_t)c->store->groups[group].first_row;
    test_rows t = {};
    frugal_status status = open_test_rows(&c->view, &t);
    if (status != FRUGAL_OK) return status;
    t.in_place = in_place;
    status = check_cuda(c, send_test(c, t, row, n), "self-test");
    if (status == FRUGAL_OK) status = run_test(c, t, hyper, n);
    if (status == FRUGAL_OK && !is_right(c, t, hyper, row, n))
        status = frugal_fail(FRUGAL_ERR_ARITHMETIC, "device %u, GPU %d: %s", c->device, c->ordinal,
                             frugal_strerror(FRUGAL_ERR_ARITHMETIC));
    __atomic_store_n(&c->control->done, c->counted, __ATOMIC_RELAXED);
    free(t.grads);
    return status;
}

/* Tests the settings of each group of tables. If there are several, each has numbers of its own, so that those of
 * another group would be noticed. */
static frugal_status self_tests(gpu_device *c) {
    uint32_t n = c->store->n_groups;
    frugal_hyper *hyper = (frugal_hyper *)malloc(n * sizeof *hyper);
    frugal_status status = FRUGAL_OK;
    if (!hyper) return frugal_fail(FRUGAL_ERR_MEMORY, "self-test: %zu bytes are not available", n * sizeof *hyper);
    for (uint32_t i = 0; i < n; i++) {
        float more = (float)i;
        hyper[i] = {0.1f + more, 0.07f + more, 0.5f + more, frugal_step_noise(i, 0)};
    }
    for (uint32_t i = 0; i < n && status == FRUGAL_OK; i++) {
        status = self_test(c, i, 0, hyper);
        if (status == FRUGAL_OK && c->test_row) status = self_test(c, i, 1, hyper);
    }
    free(hyper);
    return status;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_SELF_TEST_CUH */
