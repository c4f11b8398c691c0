/* The recommendation models on a GPU: losses and gradients of random models are the host's, to rounding, and the same
 * bits every time; nothing waits for the GPU; whatever fails is told, and all is given back. On the host in place of a
 * GPU where FRUGAL_CUDA_ON_HOST says so, which knows more of what is asked here than a GPU would tell. */
#ifdef FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUDA_ON_HOST
#else
#include <cuda_runtime.h>
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAINING_CUDA
#include "trainers/dlrm/dlrm_cuda.h"

/* Sanitizers make a thread of a kernel dear. */
#ifdef FRUGAL_SANITIZED
enum { LESS = 3 };
#else
enum { LESS = 1 };
#endif
enum { SLOTS = 2 };

/* Sums of n numbers in another order differ by some roundings. Compared with the largest gradient: a number that is
 * small because large ones cancel has their error. */
static const double most = 32 * FLT_EPSILON;

static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* From -largest to largest, times `grain`: few bits, so that the sums that go into relus are exact, in whatever order,
 * and host and GPU cut off the same. */
static void fill(float *x, size_t n, uint64_t seed, int largest, float grain) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((int)(mix(mix(seed) ^ i) % (2 * (uint64_t)largest + 1)) - largest) * grain;
}

static dlrm_model a_model(dlrm_kind kind, uint32_t numbers, uint32_t features, uint32_t dim, uint32_t layers) {
    static const uint32_t width[] = {9, 34, 5};
    dlrm_model model;
    memset(&model, 0, sizeof model);
    model.kind = kind;
    model.numbers = numbers;
    model.features = features;
    model.dim = dim;
    model.n_bottom = layers ? layers - 1 : 0;
    model.n_top = layers;
    model.n_cross = 1 + layers;
    memcpy(model.bottom, width, sizeof width);
    memcpy(model.top, width, sizeof width);
    return model;
}

/* A batch, and what comes of it. */
typedef struct batch {
    uint32_t n, of; /* samples of the device, of the step */
    size_t n_parameters, n_rows, n_linear;
    float *parameters, *numbers, *labels, *rows, *linear;
} batch;
typedef struct results {
    double loss;
    float *parameters, *rows, *linear;
} results;

static float *floats(size_t n) {
    float *x = (float *)malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    return x;
}

static void open_batch(batch *b, const dlrm_model *model, uint32_t n, uint64_t seed) {
    dlrm_layers layers;
    program_error error = {};
    if (dlrm_layout(model, &layers, &error)) fail_msg("%s", error.text);
    b->n = n;
    b->of = n + 3;
    b->n_parameters = layers.parameters;
    b->n_linear = dlrm_has_linear(model) ? (size_t)n * model->features : 0;
    b->n_rows = (size_t)n * model->features * model->dim;
    b->parameters = floats(b->n_parameters);
    b->numbers = floats((size_t)n * model->numbers);
    b->labels = floats(n);
    b->rows = floats(b->n_rows);
    b->linear = floats(b->n_linear);
    fill(b->parameters, b->n_parameters, 5 * seed, 2, 0.125f);
    fill(b->numbers, (size_t)n * model->numbers, 5 * seed + 1, 2, 0.5f);
    fill(b->rows, b->n_rows, 5 * seed + 2, 2, 0.25f);
    fill(b->linear, b->n_linear, 5 * seed + 3, 8, 0.125f);
    fill(b->labels, n, 5 * seed + 4, 1, 1);
    for (uint32_t i = 0; i < n; i++) b->labels[i] = b->labels[i] > 0;
}

static void close_batch(batch *b) {
    free(b->parameters);
    free(b->numbers);
    free(b->labels);
    free(b->rows);
    free(b->linear);
}

static dlrm_input input_of(const batch *b) {
    dlrm_input input;
    input.n = b->n;
    input.numbers = b->numbers;
    input.labels = b->labels;
    input.rows = b->rows;
    input.linear = b->n_linear ? b->linear : NULL;
    return input;
}

static void open_results(results *r, const batch *b) {
    r->parameters = floats(b->n_parameters);
    r->rows = floats(b->n_rows);
    r->linear = floats(b->n_linear);
}

static void close_results(results *r) {
    free(r->parameters);
    free(r->rows);
    free(r->linear);
}

static void bring(float *to, const float *from, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
    if (n) assert_int_equal(cudaMemcpyAsync(to, from, n * sizeof(float), kind, stream), 0);
}

static void on_gpu(dlrm_cuda *cuda, const batch *b, uint64_t step, results *out) {
    program_error error = {};
    cudaStream_t stream = (cudaStream_t)dlrm_cuda_stream(cuda);
    dlrm_input input = input_of(b);
    const float *gradient;
    open_results(out, b);
    if (dlrm_cuda_copy(cuda, step, &input, &error)) fail_msg("%s", error.text);
    if (dlrm_cuda_set_parameters(cuda, b->parameters, &error)) fail_msg("%s", error.text);
    bring(dlrm_cuda_rows(cuda), b->rows, b->n_rows, cudaMemcpyHostToDevice, stream);
    bring(dlrm_cuda_linear(cuda), b->linear, b->n_linear, cudaMemcpyHostToDevice, stream);
    /* not a number, wherever nothing is written */
    if (b->n_rows) cudaMemsetAsync(dlrm_cuda_row_gradients(cuda), 0xff, b->n_rows * sizeof(float), stream);
    if (b->n_linear) cudaMemsetAsync(dlrm_cuda_linear_gradients(cuda), 0xff, b->n_linear * sizeof(float), stream);
    if (dlrm_cuda_gradients(cuda, step, b->of, &error)) fail_msg("%s", error.text);
    if (dlrm_cuda_wait_gradients(cuda, &gradient, &out->loss, &error)) fail_msg("%s", error.text);
    memcpy(out->parameters, gradient, b->n_parameters * sizeof(float));
    bring(out->rows, dlrm_cuda_row_gradients(cuda), b->n_rows, cudaMemcpyDeviceToHost, stream);
    bring(out->linear, dlrm_cuda_linear_gradients(cuda), b->n_linear, cudaMemcpyDeviceToHost, stream);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
}

static void on_host(const dlrm_model *model, const batch *b, results *out) {
    dlrm_workspace *work;
    program_error error;
    dlrm_input input = input_of(b);
    open_results(out, b);
    dlrm_gradient gradient = {out->parameters, out->rows, b->n_linear ? out->linear : NULL};
    assert_int_equal(dlrm_workspace_open(&work, model, b->n, &error), 0);
    out->loss = dlrm_gradients(model, b->parameters, &input, b->of, &gradient, work);
    dlrm_workspace_close(work);
}

/* `terms`: what might have cancelled within a number. */
static void compare(const dlrm_model *model, const batch *b, const char *what, double terms, size_t n, const float *gpu,
                    const float *host) {
    double largest = terms / 16, worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)gpu[i] - (double)host[i]);
        if (!(off <= worst)) worst = off, where = i;
        if (!(fabs((double)host[i]) <= largest)) largest = fabs((double)host[i]);
        if (isnan(off)) break;
    }
    if (!(worst <= most * largest))
        fail_msg(
            "%s, numbers %u, features %u, dim %u, layers %u, n %u: gradient of %s %zu of %zu is %g, the host's %g; the "
            "largest is %g",
            dlrm_model_name(model->kind), model->numbers, model->features, model->dim, model->n_top, b->n, what, where,
            n, (double)gpu[where], (double)host[where], largest);
}

/* Steps of different sizes, one after the other: the host's to rounding, and the second time the same bits. */
static void check(const dlrm_model *model, uint32_t samples) {
    program_error error = {};
    dlrm_cuda *cuda = dlrm_cuda_new(0);
    const uint32_t sizes[] = {samples, samples / 2, 0, samples - 1};
    assert_non_null(cuda);
    if (dlrm_cuda_open(cuda, model, samples, SLOTS, &error)) fail_msg("%s", error.text);
    for (uint64_t i = 0; i < 4; i++) {
        batch b;
        results gpu, again, host;
        open_batch(&b, model, sizes[i], i);
        on_gpu(cuda, &b, 2 * i, &gpu);
        on_gpu(cuda, &b, 2 * i + 1, &again);
        on_host(model, &b, &host);
        double slope = 1.0 / b.of; /* at most, of a sample */
        compare(model, &b, "parameters", slope * b.n, b.n_parameters, gpu.parameters, host.parameters);
        compare(model, &b, "rows", slope, b.n_rows, gpu.rows, host.rows);
        compare(model, &b, "linear rows", slope, b.n_linear, gpu.linear, host.linear);
        if (!(fabs(gpu.loss - host.loss) <= most * fabs(host.loss)))
            fail_msg("%s: loss %.9g, the host's %.9g", dlrm_model_name(model->kind), gpu.loss, host.loss);
        assert_memory_equal(gpu.parameters, again.parameters, b.n_parameters * sizeof(float));
        assert_memory_equal(gpu.rows, again.rows, b.n_rows * sizeof(float));
        assert_memory_equal(gpu.linear, again.linear, b.n_linear * sizeof(float));
        assert_true(gpu.loss == again.loss);
        close_results(&gpu);
        close_results(&again);
        close_results(&host);
        close_batch(&b);
    }
    dlrm_cuda_close(cuda);
}

/* >>losses and gradients */

static void test_model(void **state) {
    dlrm_kind kind = (dlrm_kind)(intptr_t)*state;
    for (uint32_t layers = 0; layers <= 3; layers++)
        for (uint32_t numbers = 0; numbers <= 13; numbers += 13) {
            dlrm_model model = a_model(kind, numbers, 4, 6, layers);
            if (layers % LESS == 0) check(&model, 11);
        }
}

/* More vectors, longer rows and more samples than a tile, a warp and a block hold, and no multiple of them. */
static void test_larger(void **state) {
    (void)state;
    for (int kind = 0; kind < DLRM_KINDS; kind++) {
        dlrm_model model = a_model((dlrm_kind)kind, 40, 37, 35, 2);
        check(&model, 40 / LESS);
        model = a_model((dlrm_kind)kind, 3, 3, 2, 1);
        check(&model, 300 / LESS);
    }
}

static void test_smallest(void **state) {
    (void)state;
    for (int kind = 0; kind < DLRM_KINDS; kind++) {
        dlrm_model model = a_model((dlrm_kind)kind, kind == DLRM_DLRM, 1, 1, 0);
        check(&model, 1);
    }
}

/* >>how it runs */

static void test_no_such_gpu(void **state) {
    (void)state;
    dlrm_cuda *cuda = dlrm_cuda_new(200);
    program_error error = {};
    dlrm_model model = a_model(DLRM_DLRM, 2, 2, 4, 1);
    assert_null(dlrm_cuda_stream(cuda));
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(dlrm_cuda_open(cuda, &model, 4, 3, &error), -1);
    assert_non_null(strstr(error.text, "cuda:200: "));
    dlrm_cuda_close(cuda);
    dlrm_cuda_close(NULL);
}

/* Calls out of turn, and sizes that cannot be, change nothing. */
static void test_refused(void **state) {
    (void)state;
    program_error error = {};
    dlrm_model model = a_model(DLRM_DLRM, 2, 2, 4, 1), none = a_model(DLRM_DLRM, 2, 0, 4, 1);
    dlrm_model wide = a_model(DLRM_DLRM, 0, 2000, 1, 0);
    const struct {
        const dlrm_model *model;
        uint32_t samples;
        const char *text;
    } bad[] = {
        {&none, 4, "no features"}, {&model, UINT32_MAX, "can have 2147483647"}, {&wide, 1 << 20, "too many pairs"}};
    for (int i = 0; i < 3; i++) {
        dlrm_cuda *cuda = dlrm_cuda_new(0);
        assert_int_equal(dlrm_cuda_open(cuda, bad[i].model, bad[i].samples, 1, &error), -1);
        if (!strstr(error.text, bad[i].text)) fail_msg("%s", error.text);
        dlrm_cuda_close(cuda);
    }
    dlrm_cuda *cuda = dlrm_cuda_new(0);
    batch b;
    results r;
    const float *gradient;
    double loss;
    open_batch(&b, &model, 4, 1);
    dlrm_input input = input_of(&b);
    assert_int_equal(dlrm_cuda_open(cuda, &model, 4, 1, &error), 0);
    assert_int_equal(dlrm_cuda_wait_gradients(cuda, &gradient, &loss, &error), -1);
    assert_int_equal(dlrm_cuda_gradients(cuda, 1, 4, &error), -1);
    assert_non_null(strstr(error.text, "out of turn"));
    input.n = 5;
    assert_int_equal(dlrm_cuda_copy(cuda, 0, &input, &error), -1);
    assert_non_null(strstr(error.text, "5 samples, opened for 4"));
    on_gpu(cuda, &b, 0, &r);
    close_results(&r);
    input.n = 4;
    assert_int_equal(dlrm_cuda_copy(cuda, 1, &input, &error), 0);
    assert_int_equal(dlrm_cuda_gradients(cuda, 1, 4, &error), 0);
    assert_int_equal(dlrm_cuda_gradients(cuda, 2, 4, &error), -1);
    assert_non_null(strstr(error.text, "not waited for"));
    close_batch(&b);
    dlrm_cuda_close(cuda);
}

#ifdef FRUGAL_CUDA_ON_HOST
/* Everything once, until a call fails; 1 if none did. */
static int runs_to_the_end(const dlrm_model *model) {
    program_error error = {};
    batch b;
    open_batch(&b, model, 3, 1);
    dlrm_input input = input_of(&b);
    dlrm_cuda *cuda = dlrm_cuda_new(0);
    const float *gradient;
    double loss;
    int failed = !dlrm_cuda_stream(cuda) || dlrm_cuda_open(cuda, model, 3, 2, &error);
    cudaStream_t stream = (cudaStream_t)dlrm_cuda_stream(cuda);
    if (!failed) cudaMemsetAsync(dlrm_cuda_rows(cuda), 0, b.n_rows * sizeof(float), stream);
    if (!failed && b.n_linear) cudaMemsetAsync(dlrm_cuda_linear(cuda), 0, b.n_linear * sizeof(float), stream);
    for (uint64_t step = 0; step < 3 && !failed; step++) {
        input.n = step == 1 ? 0 : b.n;
        failed = dlrm_cuda_copy(cuda, step, &input, &error) || dlrm_cuda_set_parameters(cuda, b.parameters, &error) ||
                 dlrm_cuda_gradients(cuda, step, 3, &error) || dlrm_cuda_wait_gradients(cuda, &gradient, &loss, &error);
    }
    dlrm_cuda_close(cuda);
    close_batch(&b);
    if (failed) assert_true(cuda_on_host_has_failed());
    return !failed;
}

/* The nth call of CUDA fails, for every n: it is told, and all memory, streams and events are given back (which
 * AddressSanitizer counts). Calls that only give back, and the memsets above, may fail unnoticed. */
static void test_every_call_fails(void **state) {
    (void)state;
    for (int kind = 0; kind < DLRM_KINDS; kind++) {
        dlrm_model model = a_model((dlrm_kind)kind, 2, 2, 3, 2);
        unsigned noticed = 0;
        cuda_on_host_reset();
        for (uint64_t n = 1;; n++) {
            cuda_on_host_fail_call(n, cudaErrorMemoryAllocation);
            noticed += !runs_to_the_end(&model);
            int reached = cuda_on_host_has_failed();
            cuda_on_host_fail_call(0, 0);
            if (!reached) break;
        }
        assert_true(noticed > 80);
    }
}

/* What is still to be read of a step is not overwritten by the next: of the same slot, and with other parameters. */
static void test_overwriting_waits(void **state) {
    (void)state;
    program_error error = {};
    dlrm_model model = a_model(DLRM_WIDE_DEEP, 2, 2, 3, 1);
    batch b[2];
    dlrm_input input[2];
    const float *gradient;
    double loss;
    dlrm_cuda *cuda = dlrm_cuda_new(0);
    assert_int_equal(dlrm_cuda_open(cuda, &model, 4, 1, &error), 0);
    cudaStream_t stream = (cudaStream_t)dlrm_cuda_stream(cuda);
    for (int i = 0; i < 2; i++) {
        open_batch(&b[i], &model, 4, 1 + (uint64_t)i);
        input[i] = input_of(&b[i]);
    }
    cuda_on_host_delay(stream, 2000);
    for (uint64_t step = 0; step < 2; step++) {
        results host;
        const batch *now = &b[step], *next = &b[!step];
        if (!step) assert_int_equal(dlrm_cuda_copy(cuda, 0, &input[0], &error), 0);
        bring(dlrm_cuda_rows(cuda), now->rows, now->n_rows, cudaMemcpyHostToDevice, stream);
        bring(dlrm_cuda_linear(cuda), now->linear, now->n_linear, cudaMemcpyHostToDevice, stream);
        assert_int_equal(dlrm_cuda_set_parameters(cuda, next->parameters, &error), 0);
        assert_int_equal(dlrm_cuda_set_parameters(cuda, now->parameters, &error), 0);
        assert_int_equal(dlrm_cuda_gradients(cuda, step, now->of, &error), 0);
        assert_int_equal(dlrm_cuda_set_parameters(cuda, next->parameters, &error), 0);
        assert_int_equal(dlrm_cuda_copy(cuda, step + 1, &input[!step], &error), 0);
        assert_int_equal(dlrm_cuda_wait_gradients(cuda, &gradient, &loss, &error), 0);
        on_host(&model, now, &host);
        compare(&model, now, "parameters", 1, now->n_parameters, gradient, host.parameters);
        close_results(&host);
    }
    for (int i = 0; i < 2; i++) close_batch(&b[i]);
    dlrm_cuda_close(cuda);
}

/* Steps are copied ahead, and one is enqueued, while the stream has not come to it. */
static void test_nothing_waits(void **state) {
    (void)state;
    program_error error = {};
    dlrm_model model = a_model(DLRM_DEEPFM, 2, 2, 3, 1);
    batch b;
    results host;
    const float *gradient;
    double loss;
    dlrm_cuda *cuda = dlrm_cuda_new(0);
    open_batch(&b, &model, 4, 1);
    dlrm_input input = input_of(&b);
    assert_int_equal(dlrm_cuda_open(cuda, &model, 4, 3, &error), 0);
    cudaStream_t stream = (cudaStream_t)dlrm_cuda_stream(cuda);
    cuda_on_host_delay(stream, 20000);
    bring(dlrm_cuda_rows(cuda), b.rows, b.n_rows, cudaMemcpyHostToDevice, stream);
    bring(dlrm_cuda_linear(cuda), b.linear, b.n_linear, cudaMemcpyHostToDevice, stream);
    assert_int_equal(dlrm_cuda_set_parameters(cuda, b.parameters, &error), 0);
    for (uint64_t step = 0; step < 3; step++) assert_int_equal(dlrm_cuda_copy(cuda, step, &input, &error), 0);
    assert_int_equal(dlrm_cuda_gradients(cuda, 0, b.of, &error), 0);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    cuda_on_host_delay(stream, 0);
    assert_int_equal(dlrm_cuda_wait_gradients(cuda, &gradient, &loss, &error), 0);
    on_host(&model, &b, &host);
    compare(&model, &b, "parameters", 1, b.n_parameters, gradient, host.parameters);
    close_results(&host);
    close_batch(&b);
    dlrm_cuda_close(cuda);
}
#endif

#define MODEL(kind)                                                                                                    \
    { "test_model " #kind, test_model, NULL, NULL, (void *)(intptr_t)(kind) }

int main(void) {
    const struct CMUnitTest tests[] = {
        MODEL(DLRM_DLRM),
        MODEL(DLRM_WIDE_DEEP),
        MODEL(DLRM_DEEPFM),
        MODEL(DLRM_DCN),
        cmocka_unit_test(test_larger),
        cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_no_such_gpu),
        cmocka_unit_test(test_refused),
#ifdef FRUGAL_CUDA_ON_HOST
        cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_nothing_waits),
        cmocka_unit_test(test_overwriting_waits),
#endif
    };
    openblas_set_num_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
