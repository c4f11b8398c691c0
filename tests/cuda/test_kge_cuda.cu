/* The knowledge graph example on a GPU: losses and gradients of random batches are the host's, to rounding, and the
 * same bits every time; nothing waits for the GPU; whatever fails is told, and all is given back. On the host in place
 * of a GPU where FRUGAL_CUDA_ON_HOST says so, which knows more of what is asked here than a GPU would tell. */
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
extern "C" {
#include "trainers/kge/kge_cuda.h"
#include "trainers/kge/sample.h"
}

/* Sanitizers make a thread of a kernel dear. */
#ifdef FRUGAL_SANITIZED
enum { STEPS = 1, LESS = 3 };
#else
enum { STEPS = 3, LESS = 1 };
#endif
enum { ENTITIES = 23, RELATIONS = 3, SLOTS = 2 };

/* Sums of n numbers in another order differ by some roundings. Compared with the largest gradient: a number that is
 * small because large ones cancel has their error. */
static const double most = 32 * FLT_EPSILON;

static float noise(uint64_t i) {
    return (float)(random_at(12345, i) >> 40) / 16777216.0f - 0.5f;
}

static kge_model a_model(kge_model_kind kind, kge_loss_kind loss, uint32_t dim, int reciprocal) {
    kge_model model;
    memset(&model, 0, sizeof model);
    model.kind = kind;
    model.loss = loss;
    model.dim = dim;
    model.margin = 1.5f;
    model.temperature = 0.7f;
    model.reciprocal = reciprocal;
    return model;
}

static kge_batch a_shape(uint32_t triples, uint32_t chunk, uint32_t negatives) {
    kge_batch shape;
    memset(&shape, 0, sizeof shape);
    shape.triples = triples;
    shape.chunk = chunk;
    shape.negatives = negatives;
    return shape;
}

/* A batch over few entities, so that negatives meet answers. */
static void fill_batch(kge_batch *batch, const kge_batch *shape, uint64_t seed) {
    program_error error;
    assert_int_equal(kge_batch_open(batch, shape, &error), 0);
    for (uint32_t i = 0; i < batch->triples; i++) {
        batch->head[i] = random_below(random_at(seed, 4 * i), ENTITIES);
        batch->tail[i] = random_below(random_at(seed, 4 * i + 1), ENTITIES);
        batch->relation[i] = random_below(random_at(seed, 4 * i + 2), RELATIONS);
        batch->inverse[i] = batch->relation[i] + RELATIONS;
        for (int s = 0; s < 2 && batch->weighted; s++) batch->weight[s][i] = 1 + noise(seed + 4 * i + s);
        if (!batch->questions) continue;
        const kge_triple *asked = &batch->questions->asked.triples[random_at(seed, i) % batch->questions->asked.n];
        batch->head[i] = asked->head, batch->relation[i] = asked->relation, batch->tail[i] = asked->tail;
    }
    for (uint32_t i = 0; i < kge_batch_negatives(batch); i++)
        batch->negative[i] = random_below(random_at(~seed, i), ENTITIES);
}

/* From -1 to 1; for L1 in quarters, so that numbers of query and candidate are often equal, where |x| has its kink. */
static float a_number(const kge_model *model, uint64_t i) {
    return model->kind == KGE_TRANSE_L1 ? floorf(8 * noise(i)) / 4 : 2 * noise(i);
}

/* The rows of a batch: of equal ids the same, so that a query can meet a candidate. */
static void fill_rows(const kge_model *model, const kge_batch *batch, uint64_t seed, float *rows) {
    uint32_t positions = kge_batch_positions(model, batch), entities, relations;
    uint64_t *keys = (uint64_t *)malloc(positions * sizeof *keys);
    kge_batch_keys(model, batch, keys, &entities, &relations);
    assert_int_equal(entities + relations, positions);
    for (uint32_t i = 0; i < positions; i++)
        for (uint32_t k = 0; k < model->dim; k++)
            rows[(size_t)i * model->dim + k] = a_number(model, seed + ((keys[i] * 2 + (i >= entities)) << 20 | k));
    free(keys);
}

typedef struct results {
    double loss;
    size_t n;
    float *grads; /* [n] */
} results;

static void on_gpu(kge_cuda *cuda, const kge_model *model, const kge_batch *batch, uint64_t step, const float *rows,
                   results *out) {
    program_error error = {};
    cudaStream_t stream = (cudaStream_t)kge_cuda_stream(cuda);
    uint64_t losses = 0;
    out->loss = 0;
    out->n = (size_t)kge_batch_positions(model, batch) * model->dim;
    out->grads = (float *)malloc(out->n * sizeof(float));
    assert_int_equal(cudaMemcpyAsync(kge_cuda_rows(cuda), rows, out->n * sizeof(float), cudaMemcpyHostToDevice, stream),
                     0);
    /* not a number, wherever nothing is written */
    assert_int_equal(cudaMemsetAsync(kge_cuda_grads(cuda), 0xff, out->n * sizeof(float), stream), 0);
    if (kge_cuda_copy(cuda, step, batch, &error)) fail_msg("%s", error.text);
    if (kge_cuda_gradients(cuda, step, &error)) fail_msg("%s", error.text);
    if (kge_cuda_losses(cuda, 1, &out->loss, &losses, &error)) fail_msg("%s", error.text);
    assert_int_equal(losses, 1);
    assert_int_equal(
        cudaMemcpyAsync(out->grads, kge_cuda_grads(cuda), out->n * sizeof(float), cudaMemcpyDeviceToHost, stream), 0);
    assert_int_equal(cudaStreamSynchronize(stream), 0);
}

static void on_host(const kge_model *model, const kge_batch *batch, const float *rows, results *out) {
    kge_workspace work;
    program_error error;
    assert_int_equal(kge_workspace_open(&work, model, batch, &error), 0);
    out->n = (size_t)kge_batch_positions(model, batch) * model->dim;
    out->grads = (float *)malloc(out->n * sizeof(float));
    out->loss = kge_gradients(model, batch, rows, out->grads, &work);
    kge_workspace_close(&work);
}

static void compare(const kge_model *model, const results *gpu, const results *host) {
    double largest = 0, worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < host->n; i++) {
        double off = fabs((double)gpu->grads[i] - (double)host->grads[i]);
        if (!(off <= worst)) worst = off, where = i;
        if (!(fabs((double)host->grads[i]) <= largest)) largest = fabs((double)host->grads[i]);
        if (isnan(off)) break;
    }
    if (!(worst <= most * largest) || !(fabs(gpu->loss - host->loss) <= most * fabs(host->loss)))
        fail_msg("%s, %s, dim %u, reciprocal %d: loss %.9g, the host's %.9g; gradient %zu of %zu is off by %g, "
                 "the largest is %g",
                 kge_model_name(model->kind), kge_loss_name(model->loss), model->dim, model->reciprocal, gpu->loss,
                 host->loss, where, host->n, worst, largest);
}

/* Some batches of a shape, one after the other: the host's to rounding, and the second time the same bits. */
static void check(const kge_model *model, const kge_batch *shape) {
    program_error error = {};
    kge_cuda *cuda = kge_cuda_new(0);
    assert_non_null(cuda);
    if (kge_cuda_open(cuda, model, shape, SLOTS, &error)) fail_msg("%s", error.text);
    for (uint64_t step = 0; step < STEPS; step++) {
        kge_batch batch;
        results gpu, again, host;
        fill_batch(&batch, shape, step);
        float *rows = (float *)malloc((size_t)kge_batch_positions(model, shape) * model->dim * sizeof(float));
        fill_rows(model, &batch, step, rows);
        on_gpu(cuda, model, &batch, 2 * step, rows, &gpu);
        on_gpu(cuda, model, &batch, 2 * step + 1, rows, &again);
        on_host(model, &batch, rows, &host);
        compare(model, &gpu, &host);
        assert_memory_equal(gpu.grads, again.grads, gpu.n * sizeof(float));
        assert_true(gpu.loss == again.loss);
        free(gpu.grads);
        free(again.grads);
        free(host.grads);
        free(rows);
        kge_batch_close(&batch);
    }
    kge_cuda_close(cuda);
}

/* >>losses and gradients */

static void check_model(kge_model_kind kind) {
    for (int loss = 0; loss < KGE_LOSSES; loss++)
        for (int reciprocal = 0; reciprocal < 2; reciprocal++) {
            kge_model model = a_model(kind, (kge_loss_kind)loss, 10, reciprocal);
            kge_batch shape = a_shape(6, 3, 5);
            shape.weighted = loss != KGE_LOGISTIC && reciprocal;
            if (loss == KGE_SOFTMAX) {
                model.regularization = 0.3f;
                model.stands_for = reciprocal ? 100 : 0;
            }
            check(&model, &shape);
        }
}

static void test_model(void **state) {
    check_model((kge_model_kind)(intptr_t)*state);
}

/* Scored against all entities, in chunks of which the last one may be shorter; fewer entities than a tile or more. */
static void test_1vsall(void **state) {
    (void)state;
    for (int kind = 0; kind < KGE_MODELS; kind++)
        for (uint32_t way = 0; way < 6 && kind != KGE_TRANSE_L1; way++) {
            if ((way + (uint32_t)kind) % LESS) continue;
            kge_model model = a_model((kge_model_kind)kind, KGE_SOFTMAX, way % 2 ? 34 : 10, way % 2);
            kge_batch shape = a_shape(10, way < 3 ? 5 : 4, 0);
            model.scoring = KGE_1VSALL;
            shape.entities = way == 4 ? 140 : ENTITIES;
            shape.weighted = way % 2;
            if (way > 1) model.regularization = 0.3f;
            check(&model, &shape);
        }
}

static void test_kvsall(void **state) {
    (void)state;
    kge_triple triples[60];
    kge_graph graph;
    kge_questions questions;
    program_error error;
    memset(&graph, 0, sizeof graph);
    graph.relations.n = RELATIONS, graph.split[KGE_TRAIN].triples = triples, graph.split[KGE_TRAIN].n = 60;
    for (uint32_t i = 0; i < 60; i++) { /* some questions have many answers */
        triples[i].head = i % 7, triples[i].relation = i % RELATIONS;
        triples[i].tail = random_below(random_at(9, i), ENTITIES);
    }
    assert_int_equal(kge_questions_build(&questions, &graph, &error), 0);
    for (int kind = KGE_DISTMULT; kind <= KGE_SIMPLE; kind++) {
        kge_model model = a_model((kge_model_kind)kind, KGE_LOGISTIC, 10, 1);
        kge_batch shape = a_shape(10, kind == KGE_COMPLEX ? 4 : 5, 0);
        model.scoring = KGE_KVSALL;
        shape.entities = ENTITIES, shape.questions = &questions;
        if (kind != KGE_SIMPLE) model.regularization = 0.3f;
        check(&model, &shape);
    }
    kge_questions_free(&questions);
}

/* Rows longer and chunks larger than a tile, a warp and a block, and no multiple of them. */
static void test_larger(void **state) {
    (void)state;
    for (int kind = 0; kind < KGE_MODELS; kind++) {
        kge_model model = a_model((kge_model_kind)kind, KGE_SELF_ADVERSARIAL, 70, 1);
        kge_batch shape = LESS > 1 ? a_shape(20, 20, 35) : a_shape(40, 20, 133);
        check(&model, &shape);
    }
}

/* One number, one triple, one negative. */
static void test_smallest(void **state) {
    (void)state;
    kge_model model = a_model(KGE_TRANSE, KGE_LOGISTIC, 1, 0);
    kge_batch shape = a_shape(1, 1, 1);
    check(&model, &shape);
    model.kind = KGE_TRANSE_L1;
    check(&model, &shape);
    model.kind = KGE_DISTMULT;
    check(&model, &shape);
}

/* >>how it runs */

/* Batches that change in size and divisor from step to step, as those of parts do: the last chunk is a short one, the
 * only one, or whole. */
static void test_sizes(void **state) {
    (void)state;
    for (int kind = 0; kind < KGE_MODELS; kind++) {
        program_error error = {};
        kge_model model = a_model((kge_model_kind)kind, KGE_SELF_ADVERSARIAL, 8, 1);
        kge_batch shape = a_shape(9, 3, 4);
        shape.weighted = kind % 2;
        kge_cuda *cuda = kge_cuda_new(0);
        float rows[(4 * 9 + 3 * 4) * 8];
        model.regularization = 0.3f;
        assert_int_equal(kge_cuda_open(cuda, &model, &shape, 2, &error), 0);
        for (uint64_t step = 0; step < 5; step++) {
            static const uint32_t sizes[] = {8, 9, 2, 4, 3};
            results gpu, host;
            kge_batch batch, smaller = shape;
            smaller.triples = sizes[step], smaller.divisor = step % 2 ? 0 : 7.5f;
            fill_batch(&batch, &smaller, step);
            fill_rows(&model, &batch, step, rows);
            on_gpu(cuda, &model, &batch, step, rows, &gpu);
            on_host(&model, &batch, rows, &host);
            compare(&model, &gpu, &host);
            free(gpu.grads);
            free(host.grads);
            kge_batch_close(&batch);
        }
        kge_cuda_close(cuda);
    }
}

/* Losses come in order, each once, whether asked for often or late; a step too many is refused. */
static void test_losses(void **state) {
    (void)state;
    program_error error = {};
    kge_model model = a_model(KGE_DISTMULT, KGE_LOGISTIC, 4, 0);
    kge_batch shape = a_shape(2, 2, 2), batch;
    kge_cuda *cuda = kge_cuda_new(0);
    float rows[2 * 4 * 4];
    double loss = 0;
    uint64_t losses = 0;
    assert_int_equal(kge_cuda_open(cuda, &model, &shape, 3, &error), 0);
    fill_batch(&batch, &shape, 1);
    fill_rows(&model, &batch, 1, rows);
    assert_int_equal(cudaMemcpy(kge_cuda_rows(cuda), rows, sizeof rows, cudaMemcpyHostToDevice), 0);
    for (uint64_t step = 0; step < 10; step++) {
        assert_int_equal(kge_cuda_copy(cuda, step, &batch, &error), 0);
        assert_int_equal(kge_cuda_losses(cuda, 0, &loss, &losses, &error), 0);
        assert_int_equal(kge_cuda_gradients(cuda, step, &error), 0);
        assert_true(losses <= step && losses + 3 > step);
    }
    assert_int_equal(kge_cuda_gradients(cuda, 20, &error), -1);
    assert_non_null(strstr(error.text, "out of turn"));
    assert_int_equal(kge_cuda_losses(cuda, 1, &loss, &losses, &error), 0);
    assert_int_equal(losses, 10);
    results host;
    on_host(&model, &batch, rows, &host);
    assert_true(fabs(loss - 10 * host.loss) <= 10 * most * host.loss);
    free(host.grads);
    kge_batch_close(&batch);
    kge_cuda_close(cuda);
}

static void test_no_such_gpu(void **state) {
    (void)state;
    kge_cuda *cuda = kge_cuda_new(200);
    program_error error = {};
    kge_model model = a_model(KGE_DISTMULT, KGE_LOGISTIC, 4, 0);
    kge_batch shape = a_shape(2, 2, 2);
    assert_null(kge_cuda_stream(cuda));
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(kge_cuda_open(cuda, &model, &shape, 3, &error), -1);
    assert_non_null(strstr(error.text, "cuda:200: "));
    kge_cuda_close(cuda);
    kge_cuda_close(NULL);
}

#ifdef FRUGAL_CUDA_ON_HOST
/* Everything once, until a call fails; 1 if none did. */
static int runs_to_the_end(void) {
    program_error error = {};
    kge_model model = a_model(KGE_TRANSE, KGE_SOFTMAX, 4, 0);
    kge_batch shape = a_shape(4, 2, 2), batch;
    kge_cuda *cuda = kge_cuda_new(0);
    double loss = 0;
    uint64_t losses = 0;
    fill_batch(&batch, &shape, 1);
    int failed = !kge_cuda_stream(cuda) || kge_cuda_open(cuda, &model, &shape, 2, &error);
    size_t bytes = (size_t)kge_batch_positions(&model, &shape) * 4 * sizeof(float);
    if (!failed) cudaMemsetAsync(kge_cuda_rows(cuda), 0, bytes, (cudaStream_t)kge_cuda_stream(cuda));
    for (uint64_t step = 0; step < 3 && !failed; step++)
        failed = kge_cuda_copy(cuda, step, &batch, &error) || kge_cuda_losses(cuda, 0, &loss, &losses, &error) ||
                 kge_cuda_gradients(cuda, step, &error) || kge_cuda_wait(cuda, &error);
    failed = failed || kge_cuda_losses(cuda, 1, &loss, &losses, &error);
    kge_cuda_close(cuda);
    kge_batch_close(&batch);
    if (failed) assert_true(cuda_on_host_has_failed());
    return !failed;
}

/* The nth call of CUDA fails, for every n: it is told, and all memory, streams and events are given back (which
 * AddressSanitizer counts). Calls that only give back, and the memset above, may fail unnoticed. */
static void test_every_call_fails(void **state) {
    (void)state;
    cuda_on_host_reset();
    unsigned noticed = 0;
    for (uint64_t n = 1;; n++) {
        cuda_on_host_fail_call(n, cudaErrorMemoryAllocation);
        noticed += !runs_to_the_end();
        int reached = cuda_on_host_has_failed();
        cuda_on_host_fail_call(0, 0);
        if (!reached) break;
    }
    assert_true(noticed > 50);
}

/* A step of three costs no synchronization: its slot is free and its losses are not waited for. */
static void test_nothing_waits(void **state) {
    (void)state;
    program_error error = {};
    kge_model model = a_model(KGE_TRANSE, KGE_SOFTMAX, 4, 0);
    kge_batch shape = a_shape(4, 2, 2), batch;
    kge_cuda *cuda = kge_cuda_new(0);
    double loss = 0;
    uint64_t losses = 0;
    fill_batch(&batch, &shape, 1);
    assert_int_equal(kge_cuda_open(cuda, &model, &shape, 3, &error), 0);
    cudaStream_t stream = (cudaStream_t)kge_cuda_stream(cuda);
    size_t bytes = (size_t)kge_batch_positions(&model, &shape) * 4 * sizeof(float);
    assert_int_equal(cudaMemsetAsync(kge_cuda_rows(cuda), 0, bytes, stream), 0);
    cuda_on_host_delay(stream, 20000);
    for (uint64_t step = 0; step < 3; step++) {
        assert_int_equal(kge_cuda_copy(cuda, step, &batch, &error), 0);
        assert_int_equal(kge_cuda_losses(cuda, 0, &loss, &losses, &error), 0);
        assert_int_equal(kge_cuda_gradients(cuda, step, &error), 0);
    }
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_int_equal(losses, 0);
    cuda_on_host_delay(stream, 0);
    assert_int_equal(kge_cuda_losses(cuda, 1, &loss, &losses, &error), 0);
    assert_int_equal(losses, 3);
    kge_cuda_close(cuda);
    kge_batch_close(&batch);
}
#endif

#define MODEL(kind)                                                                                                    \
    { "test_model " #kind, test_model, NULL, NULL, (void *)(intptr_t)(kind) }

int main(void) {
    const struct CMUnitTest tests[] = {
        MODEL(KGE_TRANSE),
        MODEL(KGE_TRANSE_L1),
        MODEL(KGE_DISTMULT),
        MODEL(KGE_COMPLEX),
        MODEL(KGE_SIMPLE),
        MODEL(KGE_ROTATE),
        cmocka_unit_test(test_1vsall),
        cmocka_unit_test(test_kvsall),
        cmocka_unit_test(test_larger),
        cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_no_such_gpu),
#ifdef FRUGAL_CUDA_ON_HOST
        cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_nothing_waits),
#endif
    };
    openblas_set_num_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
