/* kge's training against the sequential reference: the tables after some steps of 1 to 3 devices have the bits of
 * plain loops over the same batches, for each way of scoring. The gradients are kge_gradients', which test_kge_model
 * checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/kge/sample.h"
#include "trainers/kge/train.h"
#include "tests/reference.h"

enum { ENTITIES = 60, RELATIONS = 4, DIM = 10, BATCH = 12, CHUNK = 5, STEPS = 25, MOST_DEVICES = 3 };

static atomic_int never = 0;
static program_error error;

#define assert_works(call) check_works(call, #call, __LINE__)
static void check_works(int status, const char *call, int line) {
    if (status) fail_msg("line %d: %s: %s", line, call, error.text);
}

/* What a device trains beside Frugal. */
typedef struct plain_device {
    kge_batch batch;
    kge_workspace work;
    uint64_t *keys;
    uint32_t *rows_of; /* by position, entities first */
    float *rows, *grads;
} plain_device;

typedef struct plain {
    const kge_settings *settings;
    kge_model model;
    kge_questions questions;
    kge_weights weights;
    kge_sampler sampler;
    plain_device device[MOST_DEVICES];
    reference tables; /* entities, then relations */
} plain;

static void open_device(plain_device *device, const kge_model *model, const kge_batch *shape) {
    size_t positions = kge_batch_positions(model, shape);
    assert_works(kge_batch_open(&device->batch, shape, &error));
    assert_works(kge_workspace_open(&device->work, model, shape, &error));
    device->keys = malloc(positions * sizeof *device->keys);
    device->rows_of = malloc(positions * sizeof *device->rows_of);
    device->rows = malloc(positions * DIM * sizeof *device->rows);
    device->grads = malloc(positions * DIM * sizeof *device->grads);
}

static void close_device(plain_device *device) {
    kge_batch_close(&device->batch);
    kge_workspace_close(&device->work);
    free(device->keys), free(device->rows_of), free(device->rows), free(device->grads);
}

/* rows[entities + relations][DIM] */
static void read_tables(kge_trainer *trainer, float *rows) {
    training_span entities = {.table = 0, .n = kge_trainer_rows(trainer, 0)};
    training_span relations = {.table = 1, .n = kge_trainer_rows(trainer, 1)};
    assert_works(kge_trainer_read(trainer, &entities, rows, &error));
    assert_works(kge_trainer_read(trainer, &relations, rows + entities.n * DIM, &error));
}

/* The same tables as the trainer's, before the first step. */
static void open_plain(plain *p, const kge_settings *settings, const kge_graph *graph, kge_trainer *trainer) {
    *p = (plain){.settings = settings, .model = settings->model};
    uint32_t devices = settings->common.devices;
    kge_batch shape = {
        .triples = BATCH, .chunk = CHUNK, .negatives = settings->negatives, .weighted = settings->model.damping != 0};
    p->model.stands_for = settings->corrected ? graph->entities.n : 0;
    p->sampler = (kge_sampler){.train = &graph->split[KGE_TRAIN],
                               .seed = settings->common.seed,
                               .entities = graph->entities.n,
                               .relations = graph->relations.n,
                               .devices = devices,
                               .batch = BATCH};
    if (p->model.scoring != KGE_SAMPLED) shape.negatives = 0, shape.entities = graph->entities.n;
    if (p->model.scoring == KGE_KVSALL) {
        assert_works(kge_questions_build(&p->questions, graph, &error));
        p->sampler.train = &p->questions.asked;
        shape.questions = &p->questions;
    }
    if (shape.weighted) {
        assert_works(kge_weights_build(&p->weights, graph, settings->model.damping, &error));
        p->sampler.weights = &p->weights;
    }
    for (uint32_t d = 0; d < devices; d++) open_device(&p->device[d], &p->model, &shape);
    p->tables = (reference){.rows = graph->entities.n + 2 * (uint64_t)graph->relations.n,
                            .dim = DIM,
                            .devices = devices,
                            .optimizer = REFERENCE_ADAGRAD,
                            .mean = 1,
                            .eps = 1e-10f};
    assert_true(reference_open(&p->tables, 0));
    read_tables(trainer, p->tables.weights);
}

static void close_plain(plain *p) {
    for (uint32_t d = 0; d < p->settings->common.devices; d++) close_device(&p->device[d]);
    reference_close(&p->tables);
    kge_questions_free(&p->questions);
    kge_weights_free(&p->weights);
}

/* One step of all devices; returns the sum of their losses. */
static double train_plain(plain *p, uint64_t step, uint32_t entities) {
    reference_batch brought[MOST_DEVICES];
    double loss = 0;
    for (uint32_t d = 0; d < p->settings->common.devices; d++) {
        plain_device *device = &p->device[d];
        uint32_t n_entities, n_relations;
        kge_sample(&p->sampler, d, step, &device->batch);
        kge_batch_keys(&p->model, &device->batch, device->keys, &n_entities, &n_relations);
        for (uint32_t i = 0; i < n_entities + n_relations; i++) {
            device->rows_of[i] = (uint32_t)device->keys[i] + (i < n_entities ? 0 : entities);
            memcpy(device->rows + (size_t)i * DIM, p->tables.weights + (size_t)device->rows_of[i] * DIM,
                   DIM * sizeof(float));
        }
        loss += kge_gradients(&p->model, &device->batch, device->rows, device->grads, &device->work);
        brought[d] = (reference_batch){device->rows_of, n_entities + n_relations, device->grads};
    }
    reference_step(&p->tables, step, p->settings->common.lr, brought);
    return loss;
}

static void check(const kge_model *model, uint32_t devices) {
    kge_graph graph;
    kge_generator size = {.entities = ENTITIES, .relations = RELATIONS, .triples = 400};
    kge_settings settings = {.model = *model,
                             .chunk = CHUNK,
                             .negatives = model->scoring == KGE_SAMPLED ? 7 : 0,
                             .corrected = model->loss == KGE_SOFTMAX && model->scoring == KGE_SAMPLED,
                             .common = {.devices = devices,
                                        .workers = 1,
                                        .lookahead = 3,
                                        .cache = 0.3,
                                        .batch = BATCH,
                                        .optimizer = FRUGAL_ADAGRAD,
                                        .lr = 0.1f,
                                        .init = 0.2f,
                                        .steps = STEPS,
                                        .seed = 5}};
    kge_trainer *trainer;
    plain p;
    double loss = 0;
    assert_works(kge_graph_generate(&graph, &size, &error));
    assert_works(kge_trainer_open(&trainer, &settings, &graph, &error));
    open_plain(&p, &settings, &graph, trainer);
    size_t n_entities = (size_t)graph.entities.n * DIM, n_relations = (size_t)2 * graph.relations.n * DIM;
    float *trained = malloc((n_entities + n_relations) * sizeof *trained);
    for (uint64_t step = 0; step < STEPS; step++) loss += train_plain(&p, step, graph.entities.n);
    assert_works(kge_trainer_run(trainer, STEPS, &never, &error));
    read_tables(trainer, trained);
    for (size_t i = 0; i < n_entities + n_relations; i++)
        if (memcmp(&trained[i], &p.tables.weights[i], sizeof *trained))
            fail_msg("%s, %s, %u devices: number %zu of row %zu is %.9g, must be %.9g", kge_model_name(model->kind),
                     kge_scoring_name(model->scoring), devices, i % DIM, i / DIM, (double)trained[i],
                     (double)p.tables.weights[i]);
    loss /= STEPS * devices;
    assert_true(fabs(kge_trainer_total(trainer).loss - loss) < 1e-9 * loss);
    free(trained);
    close_plain(&p);
    kge_trainer_close(trainer);
    kge_graph_free(&graph);
}

static void test_scoring(void **state) {
    static const float damping[KGE_MODELS] = {[KGE_TRANSE_L1] = 0.5f, [KGE_COMPLEX] = 0.5f, [KGE_ROTATE] = -0.3f};
    kge_scoring scoring = (kge_scoring)(intptr_t)*state;
    for (int kind = 0; kind < KGE_MODELS; kind++) {
        if (scoring == KGE_1VSALL && kind == KGE_TRANSE_L1) continue;
        if (scoring == KGE_KVSALL && (kind == KGE_TRANSE_L1 || KGE_HAS_L2(kind))) continue;
        for (uint32_t devices = 1; devices <= MOST_DEVICES; devices++) {
            kge_model model = {.kind = (kge_model_kind)kind,
                               .loss = scoring == KGE_KVSALL ? KGE_LOGISTIC : KGE_SOFTMAX,
                               .dim = DIM,
                               .reciprocal = 1,
                               .regularization = 0.05f,
                               .damping = scoring != KGE_KVSALL ? damping[kind] : 0,
                               .scoring = scoring};
            check(&model, devices);
        }
    }
}

#define SCORING(scoring)                                                                                               \
    { #scoring, test_scoring, NULL, NULL, (void *)(intptr_t)(scoring) }

int main(void) {
    const struct CMUnitTest tests[] = {SCORING(KGE_SAMPLED), SCORING(KGE_1VSALL), SCORING(KGE_KVSALL)};
    openblas_set_num_threads(1); /* as kge does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
