/* dlrm's training on features with several ids is compared with a sequential trainer, by memcmp: rows, dense layers,
 * and the scores of held-out samples. That trainer has plain tables (tests/reference.h), which pool and sum by the
 * reference's loops, and the models' own functions for what lies between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/clicks/auc.h"
#include "trainers/dlrm/eval.h"
#include "tests/reference.h"
#include "tests/support.h"
#include "tests/unit/trainers/folder.h"

enum { SAMPLES = 640, HELD_OUT = 100, BATCH = 24, FEATURES = 4, ROWS = 30, DIM = 5, MOST = 40 };

static program_error error;
static atomic_int never = 0;

#define assert_works(call) check_works(call, #call, __LINE__)
static void check_works(int status, const char *call, int line) {
    if (status) fail_msg("line %d: %s: %s", line, call, error.text);
}

/* ---- A log --------------------------------------------------------------------------------------------------- */

/* Samples with one number, and 4 features: the first has one id, the second and the third have bags of up to 20 ids
 * with weights, the last a mean of up to 3. The test keeps them as it has drawn them. */
typedef struct sample {
    float label, number;
    uint32_t n;
    uint32_t feature[MOST + 4], row[MOST + 4];
    float weight[MOST + 4];
} sample;
static sample samples[SAMPLES + HELD_OUT];

static uint32_t drawn(uint32_t below) {
    static uint64_t counter;
    return (uint32_t)(test_mix(++counter) % below);
}

static void draw_bag(sample *s, FILE *file, uint32_t feature, uint32_t n, int weighted) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = drawn(ROWS), weight = weighted ? drawn(8) : 4;
        s->feature[s->n] = feature, s->row[s->n] = row, s->weight[s->n++] = (float)weight / 4;
        fprintf(file, "%s%" PRIu32, i ? "|" : "", row);
        if (weighted) fprintf(file, ":%g", (double)weight / 4);
    }
}

static int make_log(void **state) {
    (void)state;
    if (folder_make("test_dlrm_bags")) return -1;
    put_text(in_folder("schema"), "label l one 1 zero 0\nnumber x\nid one\nid two bag bar weighted\n"
                                  "id three bag bar weighted\nid four bag bar mean\n");
    FILE *file = fopen(in_folder("log"), "w");
    for (sample *s = samples; file && s < samples + SAMPLES + HELD_OUT; s++) {
        uint32_t x = drawn(5);
        s->number = (float)x;
        fprintf(file, "%d,%" PRIu32 ",", (int)(s->label = (float)drawn(2)), x);
        for (uint32_t f = 0; f < FEATURES; f++) {
            if (f) fputc(',', file);
            draw_bag(s, file, f, f == 0 ? 1 : drawn(f == 3 ? 4 : 21), f == 1 || f == 2);
        }
        fputc('\n', file);
    }
    return !file || fclose(file);
}

/* ---- The sequential trainer ------------------------------------------------------------------------------------ */

typedef struct sequence {
    dlrm_settings settings;
    dlrm_layers layers;
    reference tables[2]; /* the rows, and those of one float */
    uint32_t instances;
    float *parameters, *state;
} sequence;

/* The samples of a device as bags; rows over all tables. */
typedef struct bagged {
    uint32_t n, offsets[FEATURES * BATCH + 1], rows[BATCH * (MOST + 4)];
    float weights[BATCH * (MOST + 4)], numbers[BATCH], labels[BATCH];
} bagged;

static void make_bags(bagged *b, const sample *s, uint32_t n) {
    uint32_t at = 0;
    b->n = n;
    for (uint32_t f = 0; f < FEATURES; f++)
        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = at;
            b->offsets[f * n + i] = first;
            for (uint32_t k = 0; k < s[i].n; k++)
                if (s[i].feature[k] == f) b->rows[at] = f * ROWS + s[i].row[k], b->weights[at++] = s[i].weight[k];
            for (uint32_t k = first; k < at && f == 3; k++) b->weights[k] /= (float)(at - first);
        }
    b->offsets[FEATURES * n] = at;
    for (uint32_t i = 0; i < n; i++) b->numbers[i] = s[i].number, b->labels[i] = s[i].label;
}

/* pooled[FEATURES][n][dim] */
static void pool(const reference *table, const bagged *b, float *pooled) {
    reference_bags bags = {FEATURES * b->n, b->offsets, b->weights, 0};
    uint32_t n = b->offsets[FEATURES * b->n], dim = table->dim;
    float *rows = malloc(((size_t)n * dim + 1) * sizeof *rows);
    for (uint32_t p = 0; p < n; p++)
        memcpy(rows + (size_t)p * dim, table->weights + (size_t)b->rows[p] * dim, dim * sizeof *rows);
    reference_pool(&bags, rows, dim, pooled);
    free(rows);
}

static void open_sequence(sequence *q, const dlrm_settings *settings, dlrm_trainer *trainer) {
    *q = (sequence){.settings = *settings, .instances = dlrm_has_linear(&settings->model) ? 2 : 1};
    assert_works(dlrm_layout(&settings->model, &q->layers, &error));
    for (uint32_t i = 0; i < q->instances; i++) {
        uint64_t keys[ROWS];
        q->tables[i] = (reference){.rows = FEATURES * ROWS,
                                   .dim = i ? 1 : DIM,
                                   .devices = settings->common.devices,
                                   .optimizer = REFERENCE_ADAGRAD,
                                   .eps = 1e-10f};
        assert_true(reference_open(&q->tables[i], 0));
        for (uint64_t k = 0; k < ROWS; k++) keys[k] = k;
        for (uint32_t f = 0; f < FEATURES; f++) {
            frugal_keys all = {.table = f, .keys = keys, .n = ROWS};
            float *to = q->tables[i].weights + (uint64_t)f * ROWS * q->tables[i].dim;
            assert_int_equal(frugal_read_rows(dlrm_trainer_tables(trainer, i), &all, to, NULL), FRUGAL_OK);
        }
    }
    q->parameters = calloc(q->layers.parameters, sizeof(float));
    q->state = calloc(q->layers.parameters, sizeof(float));
    memcpy(q->parameters, dlrm_trainer_parameters(trainer), q->layers.parameters * sizeof(float));
}

static void close_sequence(sequence *q) {
    for (uint32_t i = 0; i < q->instances; i++) reference_close(&q->tables[i]);
    free(q->parameters), free(q->state);
}

/* One step of all devices. */
static void sequence_step(sequence *q, uint64_t step, const sample *s, uint32_t n, dlrm_workspace *work) {
    static float pooled[2][FEATURES * BATCH * DIM], by_bag[2][FEATURES * BATCH * DIM];
    static float grads[2][2][BATCH * (MOST + 4) * DIM];
    static bagged bags[2];
    reference_batch batches[2][2];
    uint32_t devices = q->settings.common.devices;
    uint64_t parameters = q->layers.parameters;
    float *sum = calloc(parameters, sizeof *sum), *gradient = calloc(parameters, sizeof *gradient);
    for (uint32_t d = 0; d < devices; d++) {
        uint32_t first = n * d / devices, end = n * (d + 1) / devices;
        make_bags(&bags[d], s + first, end - first);
        for (uint32_t i = 0; i < q->instances; i++) pool(&q->tables[i], &bags[d], pooled[i]);
        dlrm_input input = {end - first, bags[d].numbers, bags[d].labels, pooled[0], pooled[1]};
        dlrm_gradient out = {gradient, by_bag[0], by_bag[1]};
        dlrm_gradients(&q->settings.model, q->parameters, &input, n, &out, work);
        for (uint64_t i = 0; i < parameters; i++) sum[i] = d ? sum[i] + gradient[i] : gradient[i];
        for (uint32_t i = 0; i < q->instances; i++) {
            reference_bags shape = {FEATURES * bags[d].n, bags[d].offsets, bags[d].weights, 0};
            reference_spread(&shape, by_bag[i], q->tables[i].dim, grads[i][d]);
            batches[i][d] = (reference_batch){bags[d].rows, bags[d].offsets[FEATURES * bags[d].n], grads[i][d]};
        }
    }
    for (uint32_t i = 0; i < q->instances; i++) reference_step(&q->tables[i], step, q->settings.common.lr, batches[i]);
    for (uint64_t i = 0; i < parameters; i++) { /* Adagrad */
        q->state[i] = fmaf(sum[i], sum[i], q->state[i]);
        q->parameters[i] = fmaf(-q->settings.dense_lr, sum[i] / (sqrtf(q->state[i]) + 1e-10f), q->parameters[i]);
    }
    free(sum), free(gradient);
}

static void train_sequence(sequence *q) {
    dlrm_workspace *work;
    assert_works(dlrm_workspace_open(&work, &q->settings.model, BATCH, &error));
    uint64_t step = 0;
    for (uint64_t pass = 0; pass < q->settings.epochs; pass++)
        for (uint32_t at = 0; at < SAMPLES; at += BATCH, step++)
            sequence_step(q, step, samples + at, SAMPLES - at < BATCH ? SAMPLES - at : BATCH, work);
    dlrm_workspace_close(work);
}

/* ---- Compared ---------------------------------------------------------------------------------------------------- */

static void assert_same_rows(const sequence *q, dlrm_trainer *trainer) {
    uint64_t keys[ROWS];
    float rows[ROWS * DIM];
    for (uint64_t k = 0; k < ROWS; k++) keys[k] = k;
    for (uint32_t i = 0; i < q->instances; i++)
        for (uint32_t f = 0; f < FEATURES; f++) {
            frugal_keys all = {.table = f, .keys = keys, .n = ROWS};
            uint32_t dim = q->tables[i].dim;
            assert_int_equal(frugal_read_rows(dlrm_trainer_tables(trainer, i), &all, rows, NULL), FRUGAL_OK);
            assert_memory_equal(rows, q->tables[i].weights + (uint64_t)f * ROWS * dim, ROWS * dim * sizeof *rows);
        }
}

/* The log loss is a sum of all scores in order; so it has their bits. The samples of an evaluation are one block. */
static void assert_same_scores(const sequence *q, dlrm_trainer *trainer, const clicks *log) {
    static float pooled[2][FEATURES * BATCH * DIM], logits[BATCH];
    dlrm_samples held_out = {.log = log, .path = in_folder("log"), .first = SAMPLES, .end = SAMPLES + BATCH};
    dlrm_workspace *work;
    dlrm_metrics metrics;
    auc *scores;
    bagged bags;
    double loss;
    assert_works(dlrm_evaluate(trainer, &held_out, 2, &never, &metrics, &error));
    assert_works(dlrm_workspace_open(&work, &q->settings.model, BATCH, &error));
    make_bags(&bags, samples + SAMPLES, BATCH);
    for (uint32_t i = 0; i < q->instances; i++) pool(&q->tables[i], &bags, pooled[i]);
    dlrm_input input = {BATCH, bags.numbers, NULL, pooled[0], pooled[1]};
    dlrm_logits(&q->settings.model, q->parameters, &input, logits, work);
    assert_works(auc_open(&scores, &error));
    assert_works(auc_add(scores, logits, bags.labels, BATCH, &error));
    assert_works(auc_log_loss(scores, &loss, &error));
    assert_int_equal(metrics.samples, BATCH);
    assert_memory_equal(&loss, &metrics.logloss, sizeof loss);
    auc_close(scores);
    dlrm_workspace_close(work);
}

typedef struct way { /* none of which changes a bit */
    uint32_t workers, lookahead, processes;
    double cache;
    frugal_alone alone;
} way;

static void compare(dlrm_kind kind, uint32_t devices, const way *how) {
    clicks_settings settings = {
        .format = CLICKS_SCHEMA, .schema = in_folder("schema"), .ids = CLICKS_GIVEN, .rows = ROWS};
    dlrm_settings train = {.model = {kind, 1, FEATURES, DIM, 1, {8}, 2, {12, 7}, 3},
                           .common = {.devices = devices,
                                      .processes = how->processes,
                                      .workers = how->workers,
                                      .lookahead = how->lookahead,
                                      .cache = how->cache,
                                      .alone = how->alone,
                                      .batch = BATCH / devices,
                                      .optimizer = FRUGAL_ADAGRAD,
                                      .lr = 0.05f,
                                      .init = 0.1f,
                                      .seed = 5},
                           .dense_optimizer = FRUGAL_ADAGRAD,
                           .dense_lr = 0.02f,
                           .epochs = 2};
    clicks *log;
    dlrm_trainer *trainer;
    sequence q;
    assert_works(clicks_open(&log, &settings, &error));
    assert_works(clicks_measure(log, in_folder("log"), &error));
    assert_in_range(clicks_most_ids(log), 30, MOST + 4);
    dlrm_source source = {.log = log, .path = in_folder("log"), .end = SAMPLES};
    assert_works(dlrm_trainer_open(&trainer, &train, &source, &error));
    open_sequence(&q, &train, trainer);
    float *first = malloc(q.layers.parameters * sizeof *first);
    memcpy(first, q.parameters, q.layers.parameters * sizeof *first);
    assert_works(dlrm_trainer_run(trainer, UINT64_MAX, &never, &error));
    train_sequence(&q);
    assert_true(memcmp(first, q.parameters, q.layers.parameters * sizeof *first)); /* something is learned */
    assert_memory_equal(q.parameters, dlrm_trainer_parameters(trainer), q.layers.parameters * sizeof(float));
    assert_same_rows(&q, trainer);
    assert_same_scores(&q, trainer, log);
    free(first);
    close_sequence(&q);
    dlrm_trainer_close(trainer);
    clicks_close(log);
}

static void test_model(void **state) {
    static const way ways[] = {
        {.workers = 1, .lookahead = 3, .processes = 1, .cache = 0.3},
        {.workers = 0, .lookahead = 0, .processes = 1},
        {.workers = 2, .lookahead = 5, .processes = 1, .cache = 0.5, .alone = FRUGAL_ALONE_KEPT}};
    for (uint32_t devices = 1; devices <= 2; devices++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) compare((dlrm_kind)(intptr_t)*state, devices, &ways[i]);
}

static void test_processes(void **state) {
    (void)state;
    compare(DLRM_DEEPFM, 2, &(way){.workers = 1, .lookahead = 3, .processes = 2, .cache = 0.3});
}

#define MODEL(kind)                                                                                                    \
    { "test_model " #kind, test_model, NULL, NULL, (void *)(intptr_t)(kind) }

int main(void) {
    openblas_set_num_threads(1);
    const struct CMUnitTest tests[] = {MODEL(DLRM_DLRM), MODEL(DLRM_WIDE_DEEP), MODEL(DLRM_DEEPFM), MODEL(DLRM_DCN),
                                       cmocka_unit_test(test_processes)};
    return cmocka_run_group_tests(tests, make_log, remove_folder);
}
