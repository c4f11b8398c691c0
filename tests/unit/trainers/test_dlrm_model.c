/* The recommendation models: logits, losses and gradients of random models are compared with tests/reference_dlrm.h,
 * and its gradients with finite differences; training; first values; and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cblas.h>
#include <float.h>
#include <stdio.h>

#include "trainers/dlrm/model.h"
#include "tests/reference_dlrm.h"
#include "tests/seed.h"
#include "tests/support.h"

static test_random rng;

/* From -1 to 1, in few bits: sums of them round little. */
static float a_number(void) {
    return (float)((double)test_below(&rng, 2049) / 1024 - 1);
}

static void *copy_to(size_t alignment, size_t shift, const void *from, size_t bytes) {
    char *memory = aligned_alloc(alignment, (bytes + shift + alignment) / alignment * alignment);
    assert_non_null(memory);
    if (bytes) memcpy(memory + shift, from, bytes);
    return memory;
}

/* ---- A model and a batch ---------------------------------------------------------------------------------- */

typedef struct scene {
    dlrm_model model;
    dlrm_layers layers;
    reference_dlrm reference;
    uint32_t n, batch;
    float *parameters, *numbers, *labels, *rows, *linear;
} scene;

static void draw_model(dlrm_model *m, uint32_t features, uint32_t dim) {
    *m = (dlrm_model){.kind = (dlrm_kind)test_below(&rng, DLRM_KINDS), .features = features, .dim = dim};
    m->numbers = test_chance(&rng, 25) ? 0 : (uint32_t)test_between(&rng, 1, 13);
    if (m->kind == DLRM_DLRM && !m->numbers && features == 1) m->numbers = 1;
    m->n_bottom = (uint32_t)test_below(&rng, 4);
    m->n_top = (uint32_t)test_below(&rng, 4);
    for (uint32_t i = 0; i < m->n_bottom; i++) m->bottom[i] = (uint32_t)test_between(&rng, 1, 40);
    for (uint32_t i = 0; i < m->n_top; i++) m->top[i] = (uint32_t)test_between(&rng, 1, 40);
    m->n_cross = (uint32_t)test_between(&rng, 1, 4);
}

static void open_reference(reference_dlrm *r, const dlrm_model *m) {
    static const int kind[] = {REFERENCE_DLRM, REFERENCE_WIDE_DEEP, REFERENCE_DEEPFM, REFERENCE_DCN};
    reference_dlrm_open(r, kind[m->kind], m->numbers, m->features, m->dim, m->n_bottom, m->bottom, m->n_top, m->top);
    if (m->kind == DLRM_DCN) reference_cross_open(r, m->n_cross);
}

/* Sample i of the scene in doubles: numbers, rows, linear rows behind each other. */
static reference_sample sample_of(const scene *s, uint32_t i, double *to) {
    const dlrm_model *m = &s->model;
    double *numbers = to, *rows = numbers + m->numbers, *linear = rows + m->features * m->dim;
    for (uint32_t k = 0; k < m->numbers; k++) numbers[k] = (double)s->numbers[i * m->numbers + k];
    for (uint32_t f = 0; f < m->features; f++) {
        for (uint32_t k = 0; k < m->dim; k++)
            rows[f * m->dim + k] = (double)s->rows[((size_t)f * s->n + i) * m->dim + k];
        linear[f] = (double)s->linear[(size_t)f * s->n + i];
    }
    return (reference_sample){numbers, rows, linear, (double)s->labels[i]};
}

static size_t sample_floats(const dlrm_model *m) {
    return m->numbers + m->features * (size_t)(m->dim + 1);
}

static double *doubles(size_t n, const float *from) {
    double *to = malloc((n + 1) * sizeof *to);
    assert_non_null(to);
    for (size_t i = 0; from && i < n; i++) to[i] = (double)from[i];
    return to;
}

static float *floats(size_t n) {
    float *to = malloc((n + 1) * sizeof *to);
    assert_non_null(to);
    memset(to, 0xff, (n + 1) * sizeof *to); /* not a number, wherever nothing is written */
    return to;
}

static void draw_sample(scene *s, uint32_t i) {
    const dlrm_model *m = &s->model;
    s->labels[i] = test_chance(&rng, 40);
    for (uint32_t k = 0; k < m->numbers; k++) s->numbers[i * m->numbers + k] = a_number();
    for (uint32_t f = 0; f < m->features; f++) {
        for (uint32_t k = 0; k < m->dim; k++) s->rows[((size_t)f * s->n + i) * m->dim + k] = a_number() / 4;
        s->linear[(size_t)f * s->n + i] = a_number();
    }
}

/* Samples whose sums all keep off the kinks of relus, where a rounding decides whether there is a gradient. */
static void open_scene(scene *s, const dlrm_model *model, uint32_t n) {
    program_error error = {.text = ""};
    s->model = *model;
    s->n = n;
    s->batch = n + (uint32_t)test_below(&rng, 20) + !n;
    if (dlrm_layout(model, &s->layers, &error)) fail_msg("%s", error.text);
    open_reference(&s->reference, model);
    assert_int_equal(s->layers.parameters, s->reference.parameters);
    s->parameters = floats(s->layers.parameters);
    dlrm_init(model, test_next(&rng), s->parameters);
    for (uint64_t i = s->layers.linear; i < s->layers.cross; i++) s->parameters[i] = a_number();
    for (uint64_t i = s->layers.cross; i < s->layers.parameters; i++) s->parameters[i] += a_number() / 8;
    s->numbers = floats((size_t)n * model->numbers);
    s->labels = floats(n);
    s->rows = floats((size_t)n * model->features * model->dim);
    s->linear = floats((size_t)n * model->features);
    double *parameters = doubles(s->layers.parameters, s->parameters), *memory = doubles(sample_floats(model), NULL);
    for (uint32_t i = 0; i < n; i++)
        for (int attempts = 0;; attempts++) {
            double logit;
            draw_sample(s, i);
            reference_sample sample = sample_of(s, i, memory);
            reference_dlrm_sample(&s->reference, parameters, &sample, 1, &logit, NULL);
            if (s->reference.nearest > 2e-5) break;
            assert_true(attempts < 100);
        }
    free(parameters);
    free(memory);
}

static void close_scene(scene *s) {
    free(s->parameters), free(s->numbers), free(s->labels), free(s->rows), free(s->linear);
}

static dlrm_input input_of(const scene *s) {
    int linear = dlrm_has_linear(&s->model);
    return (dlrm_input){s->n, s->numbers, s->labels, s->rows, linear ? s->linear : NULL};
}

/* ---- What was computed ------------------------------------------------------------------------------------ */

typedef struct results {
    double loss;
    size_t n[4]; /* of each array */
    float *parameters, *rows, *linear, *logits;
} results;

static void open_results(results *r, const scene *s) {
    size_t features = s->model.features, linear = dlrm_has_linear(&s->model) ? s->n * features : 0;
    *r = (results){0, {s->layers.parameters, s->n * features * s->model.dim, linear, s->n}, NULL, NULL, NULL, NULL};
    r->parameters = floats(r->n[0]), r->rows = floats(r->n[1]), r->linear = floats(r->n[2]),
    r->logits = floats(r->n[3]);
}

static void close_results(results *r) {
    free(r->parameters), free(r->rows), free(r->linear), free(r->logits);
}

static void by_model(const scene *s, results *r, dlrm_workspace *work) {
    dlrm_input input = input_of(s);
    dlrm_gradient out = {r->parameters, r->rows, dlrm_has_linear(&s->model) ? r->linear : NULL};
    open_results(r, s);
    out = (dlrm_gradient){r->parameters, r->rows, dlrm_has_linear(&s->model) ? r->linear : NULL};
    r->loss = dlrm_gradients(&s->model, s->parameters, &input, s->batch, &out, work);
    dlrm_logits(&s->model, s->parameters, &input, r->logits, work);
}

/* Off by some roundings of the largest number, and of `terms`, what might have cancelled within it. */
static void check_array(const scene *s, const char *what, double terms, size_t n, const float *found,
                        const double *expected) {
    double largest = 0, worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)found[i] - expected[i]);
        if (fabs(expected[i]) > largest) largest = fabs(expected[i]);
        if (!(off <= worst)) worst = off, where = i;
        if (isnan(off)) break;
    }
    if (!(worst <= FLT_EPSILON * (64 * largest + 2 * terms)))
        fail_msg(
            "%s, numbers %u, features %u, dim %u, layers %u %u, n %u: %s %zu of %zu is %g, must be %g, the largest is "
            "%g",
            dlrm_model_name(s->model.kind), s->model.numbers, s->model.features, s->model.dim, s->model.n_bottom,
            s->model.n_top, s->n, what, where, n, (double)found[where], expected[where], largest);
}

static void compare(scene *s, const results *r) {
    size_t width = (size_t)s->model.features * s->model.dim, features = s->model.features, n = s->n;
    double *parameters = doubles(s->layers.parameters, s->parameters),
           *memory = doubles(sample_floats(&s->model), NULL);
    double *all = doubles(r->n[0] + (width + features + 1) * n, NULL), *sample_slopes = doubles(width + features, NULL);
    double *rows = all + r->n[0], *linear = rows + width * n, *logits = linear + features * n, loss = 0;
    reference_slopes slopes = {all, sample_slopes, sample_slopes + width};
    for (size_t i = 0; i < r->n[0]; i++) all[i] = 0;
    for (uint32_t i = 0; i < n; i++) {
        reference_sample sample = sample_of(s, i, memory);
        loss += reference_dlrm_sample(&s->reference, parameters, &sample, 1.0 / s->batch, &logits[i], &slopes);
        for (size_t f = 0; f < features; f++) {
            memcpy(rows + (f * n + i) * s->model.dim, slopes.rows + f * s->model.dim, s->model.dim * sizeof *rows);
            linear[f * n + i] = slopes.linear[f];
        }
    }
    double slope = 1.0 / s->batch; /* at most, of a sample */
    check_array(s, "loss", n, 1, &(float){(float)r->loss}, &loss);
    check_array(s, "logit", 1, r->n[3], r->logits, logits);
    check_array(s, "parameter gradient", slope * n, r->n[0], r->parameters, all);
    check_array(s, "row gradient", slope, r->n[1], r->rows, rows);
    check_array(s, "linear gradient", slope, r->n[2], r->linear, linear);
    free(parameters), free(memory), free(all), free(sample_slopes);
}

static void check_scene(const dlrm_model *model, uint32_t n) {
    scene s;
    results r;
    dlrm_workspace *work;
    program_error error = {.text = ""};
    open_scene(&s, model, n);
    if (dlrm_workspace_open(&work, model, n, &error)) fail_msg("%s", error.text);
    by_model(&s, &r, work);
    compare(&s, &r);
    close_results(&r);
    dlrm_workspace_close(work);
    close_scene(&s);
}

static void test_random_models(void **state) {
    (void)state;
    rng = (test_random){.seed = test_seed("test_random_models", 1)};
    for (int round = 0; round < 300 / SHORTER; round++) {
        dlrm_model model;
        uint32_t most = test_chance(&rng, 30) ? 40 : 6;
        draw_model(&model, (uint32_t)test_between(&rng, 1, most), (uint32_t)test_between(&rng, 1, 40));
        check_scene(&model, (uint32_t)test_below(&rng, 71));
    }
}

/* As in the papers, in width; and the smallest of each. */
static void test_large_and_small(void **state) {
    (void)state;
    rng = (test_random){.seed = test_seed("test_large_and_small", 2)};
    for (int kind = 0; kind < DLRM_KINDS; kind++) {
        dlrm_model large = {.kind = (dlrm_kind)kind,
                            .numbers = 13,
                            .features = 26,
                            .dim = 16,
                            .n_bottom = 2,
                            .n_top = 2,
                            .n_cross = 3,
                            .bottom = {64, 32},
                            .top = {128, 64}};
        dlrm_model small = {
            .kind = (dlrm_kind)kind, .numbers = kind == DLRM_DLRM, .features = 1, .dim = 1, .n_cross = 1};
        check_scene(&large, 130 / SHORTER);
        check_scene(&small, 1);
    }
}

/* No sample: the parameters' gradient is zeros, and nothing else is touched. */
static void test_no_samples(void **state) {
    (void)state;
    rng = (test_random){.seed = 3};
    for (int kind = 0; kind < DLRM_KINDS; kind++)
        for (uint32_t room = 0; room < 2; room++) {
            dlrm_model model = {
                .kind = (dlrm_kind)kind, .numbers = 3, .features = 2, .dim = 4, .n_top = 1, .n_cross = 2, .top = {5}};
            dlrm_layers layers;
            dlrm_workspace *work;
            program_error error;
            assert_int_equal(dlrm_layout(&model, &layers, &error), 0);
            assert_int_equal(dlrm_workspace_open(&work, &model, room, &error), 0);
            float *parameters = floats(layers.parameters), *gradient = floats(layers.parameters);
            dlrm_init(&model, 1, parameters);
            dlrm_input input = {0};
            dlrm_gradient out = {gradient, NULL, NULL};
            assert_true(dlrm_gradients(&model, parameters, &input, 8, &out, work) == 0);
            for (uint64_t i = 0; i < layers.parameters; i++) assert_true(gradient[i] == 0);
            dlrm_logits(&model, parameters, &input, NULL, work);
            dlrm_workspace_close(work);
            free(parameters), free(gradient);
        }
    dlrm_workspace_close(NULL);
}

/* ---- Bits ------------------------------------------------------------------------------------------------- */

/* A workspace that is larger and was used for something else, and other alignments, give the same bits. */
static void test_bits(void **state) {
    (void)state;
    rng = (test_random){.seed = test_seed("test_bits", 4)};
    for (int round = 0; round < 30 / SHORTER; round++) {
        dlrm_model model;
        scene s, other, shifted;
        results r, again;
        dlrm_workspace *small, *large;
        program_error error;
        draw_model(&model, (uint32_t)test_between(&rng, 1, 12), (uint32_t)test_between(&rng, 1, 40));
        open_scene(&s, &model, (uint32_t)test_between(&rng, 1, 70));
        open_scene(&other, &model, (uint32_t)test_between(&rng, 1, 90));
        assert_int_equal(dlrm_workspace_open(&small, &model, s.n, &error), 0);
        assert_int_equal(dlrm_workspace_open(&large, &model, s.n + 90, &error), 0);
        by_model(&s, &r, small);
        by_model(&other, &again, large);
        close_results(&again);
        shifted = s;
        char *memory[] = {copy_to(64, 4, s.parameters, r.n[0] * sizeof(float)),
                          copy_to(64, 8, s.rows, r.n[1] * sizeof(float)),
                          copy_to(64, 12, s.numbers, (size_t)s.n * model.numbers * sizeof(float))};
        shifted.parameters = (float *)(memory[0] + 4);
        shifted.rows = (float *)(memory[1] + 8);
        shifted.numbers = (float *)(memory[2] + 12);
        by_model(&shifted, &again, large);
        assert_true(r.loss == again.loss);
        assert_memory_equal(r.parameters, again.parameters, r.n[0] * sizeof(float));
        assert_memory_equal(r.rows, again.rows, r.n[1] * sizeof(float));
        assert_memory_equal(r.linear, again.linear, r.n[2] * sizeof(float));
        assert_memory_equal(r.logits, again.logits, r.n[3] * sizeof(float));
        for (int i = 0; i < 3; i++) free(memory[i]);
        close_results(&r), close_results(&again);
        close_scene(&s), close_scene(&other);
        dlrm_workspace_close(small), dlrm_workspace_close(large);
    }
}

/* Logits far out: the loss grows as they do, and nothing overflows; what is not a number stays that. */
static void test_extremes(void **state) {
    (void)state;
    dlrm_model model = {.kind = DLRM_WIDE_DEEP, .features = 1, .dim = 1};
    dlrm_workspace *work;
    program_error error;
    enum { N = 6 };
    float rows[N] = {0}, linear[N] = {1e4f, 1e4f, -1e4f, -1e4f, -20, NAN}, labels[N] = {1, 0, 1, 0, 0, 1}, logits[N];
    float parameters[2] = {0, 0}, gradient[2], row_grads[N], linear_grads[N];
    dlrm_gradient out = {gradient, row_grads, linear_grads};
    assert_int_equal(dlrm_workspace_open(&work, &model, N, &error), 0);
    dlrm_input input = {N - 1, NULL, labels, rows, linear};
    double loss = dlrm_gradients(&model, parameters, &input, 1, &out, work);
    assert_true(fabs(loss - 2e4) < 1e-2);
    const float expected[] = {0, 1, -1, 0, 2.0611537e-9f};
    for (int i = 0; i < N - 1; i++)
        assert_true(fabsf(linear_grads[i] - expected[i]) <= 1e-6f * fabsf(expected[i]) + 1e-30f);
    input.n = N;
    assert_true(isnan(dlrm_gradients(&model, parameters, &input, 1, &out, work)));
    assert_true(isnan(linear_grads[N - 1]) && isnan(gradient[1]));
    dlrm_logits(&model, parameters, &input, logits, work);
    assert_true(logits[0] == 1e4f && isnan(logits[N - 1]));
    dlrm_workspace_close(work);
}

/* A relu does not hide what is not a number. */
static void test_nan_through_layers(void **state) {
    (void)state;
    dlrm_model model = {.kind = DLRM_DLRM, .numbers = 1, .features = 1, .dim = 1, .n_top = 1, .top = {1}};
    dlrm_workspace *work;
    program_error error;
    float parameters[] = {1, 0, 1, 1, 0, 1, 0}, number = NAN, row = 1, logit;
    assert_int_equal(dlrm_workspace_open(&work, &model, 1, &error), 0);
    dlrm_input input = {1, &number, NULL, &row, NULL};
    dlrm_logits(&model, parameters, &input, &logit, work);
    assert_true(isnan(logit));
    number = 2;
    dlrm_logits(&model, parameters, &input, &logit, work);
    assert_true(logit == 4); /* 2 and 2 * 1 */
    dlrm_workspace_close(work);
}

/* ---- The reference itself: finite differences -------------------------------------------------------------- */

/* Moves each of x[n] a little both ways: the loss must follow its slope. */
static void check_slopes(reference_dlrm *m, const double *parameters, const reference_sample *sample, size_t n,
                         double *x, const double *slope) {
    for (size_t i = 0; i < n; i++) {
        const double step = 1e-6, was = x[i];
        double logit;
        x[i] = was + step;
        double up = reference_dlrm_sample(m, parameters, sample, 1, &logit, NULL);
        x[i] = was - step;
        double down = reference_dlrm_sample(m, parameters, sample, 1, &logit, NULL);
        x[i] = was;
        assert_true(fabs((up - down) / (2 * step) - slope[i]) < 1e-7);
    }
}

static void test_finite_differences(void **state) {
    (void)state;
    rng = (test_random){.seed = 5};
    for (int round = 0; round < 24; round++) {
        dlrm_model model;
        scene s;
        draw_model(&model, 1 + (uint32_t)round % 3, 1 + (uint32_t)round % 4);
        model.kind = (dlrm_kind)(round % DLRM_KINDS);
        if (!model.numbers && model.features == 1) model.numbers = 2;
        open_scene(&s, &model, 1);
        size_t n = s.layers.parameters, width = (size_t)model.features * model.dim;
        double *parameters = doubles(n, s.parameters), *memory = doubles(sample_floats(&model), NULL), logit;
        double *slopes = doubles(n + width + model.features, NULL);
        memset(slopes, 0, (n + width + model.features) * sizeof *slopes);
        reference_slopes out = {slopes, slopes + n, slopes + n + width};
        reference_sample sample = sample_of(&s, 0, memory);
        reference_dlrm_sample(&s.reference, parameters, &sample, 1, &logit, &out);
        check_slopes(&s.reference, parameters, &sample, n, parameters, out.parameters);
        check_slopes(&s.reference, parameters, &sample, width, memory + model.numbers, out.rows);
        if (dlrm_has_linear(&model))
            check_slopes(&s.reference, parameters, &sample, model.features, memory + model.numbers + width, out.linear);
        free(parameters), free(memory), free(slopes);
        close_scene(&s);
    }
}

/* ---- Training --------------------------------------------------------------------------------------------- */

enum { IDS = 50, DEVICES = 2, ROOM = 24, MOST_FEATURES = 4, MOST_NUMBERS = 3 };

typedef struct training { /* by dlrm_gradients; the reference's beside it */
    const dlrm_model *model;
    dlrm_layers layers;
    dlrm_workspace *work;
    reference rows, linear;
    float *parameters, *state, *gradient, *sum;
} training;

typedef struct device_batch {
    uint32_t n, ids[MOST_FEATURES * ROOM];
    float numbers[ROOM * MOST_NUMBERS], labels[ROOM];
} device_batch;

static void open_table(reference *t, uint32_t dim, int optimizer) {
    memset(t, 0, sizeof *t);
    t->rows = (uint64_t)IDS * MOST_FEATURES, t->dim = dim, t->devices = DEVICES, t->optimizer = optimizer,
    t->eps = 1e-8f;
    assert_true(reference_open(t, 0));
    for (uint64_t i = 0; i < t->rows * dim; i++)
        t->weights[i] = (float)(test_unit(test_mix2(7, i)) - 0.5) * (dim == 1 ? 0.0f : 1.0f);
}

/* Labels that depend on ids and numbers, so that there is something to learn. */
static void draw_batch(const dlrm_model *m, device_batch *b) {
    b->n = (uint32_t)test_below(&rng, ROOM + 1);
    for (uint32_t i = 0; i < b->n; i++) {
        double truth = 0;
        for (uint32_t f = 0; f < m->features; f++) {
            b->ids[f * b->n + i] = f * IDS + (uint32_t)test_below(&rng, IDS);
            truth += test_unit(test_mix2(9, b->ids[f * b->n + i])) - 0.5;
        }
        for (uint32_t k = 0; k < m->numbers; k++) truth += (double)(b->numbers[i * m->numbers + k] = a_number()) / 2;
        b->labels[i] = truth > 0;
    }
}

static double train_device(training *t, const device_batch *b, uint32_t batch, float *row_grads, float *linear_grads) {
    const dlrm_model *m = t->model;
    float rows[MOST_FEATURES * ROOM * 8], linear[MOST_FEATURES * ROOM];
    for (uint32_t i = 0; i < m->features * b->n; i++) {
        memcpy(rows + i * m->dim, t->rows.weights + b->ids[i] * m->dim, m->dim * sizeof(float));
        linear[i] = t->linear.weights[b->ids[i]];
    }
    dlrm_input input = {b->n, b->numbers, b->labels, rows, dlrm_has_linear(m) ? linear : NULL};
    dlrm_gradient out = {t->gradient, row_grads, dlrm_has_linear(m) ? linear_grads : NULL};
    return dlrm_gradients(m, t->parameters, &input, batch, &out, t->work);
}

static double train_step(training *t, uint64_t step, const device_batch *batches, int adagrad) {
    float row_grads[DEVICES][MOST_FEATURES * ROOM * 8], linear_grads[DEVICES][MOST_FEATURES * ROOM];
    reference_batch rows[DEVICES], linear[DEVICES];
    double loss = 0;
    uint32_t batch = 0;
    for (int d = 0; d < DEVICES; d++) batch += batches[d].n;
    memset(t->sum, 0, t->layers.parameters * sizeof(float));
    for (int d = 0; d < DEVICES; d++) {
        const device_batch *b = &batches[d];
        loss += train_device(t, b, batch, row_grads[d], linear_grads[d]);
        for (uint64_t i = 0; i < t->layers.parameters; i++) t->sum[i] += t->gradient[i];
        rows[d] = (reference_batch){b->ids, b->n * t->model->features, row_grads[d]};
        linear[d] = (reference_batch){b->ids, b->n * t->model->features, linear_grads[d]};
    }
    reference_step(&t->rows, step, 0.1f, rows);
    if (dlrm_has_linear(t->model)) reference_step(&t->linear, step, 0.1f, linear);
    for (uint64_t i = 0; i < t->layers.parameters; i++) {
        float g = t->sum[i];
        t->state[i] += g * g;
        t->parameters[i] -= 0.05f * (adagrad ? g / (sqrtf(t->state[i]) + 1e-8f) : g);
    }
    return batch ? loss / batch : 0;
}

static void open_training(training *t, reference_training *r, const dlrm_model *model, int adagrad) {
    program_error error;
    int optimizer = adagrad ? REFERENCE_ADAGRAD : REFERENCE_SGD;
    memset(t, 0, sizeof *t);
    memset(r, 0, sizeof *r);
    t->model = model;
    assert_int_equal(dlrm_layout(model, &t->layers, &error), 0);
    assert_int_equal(dlrm_workspace_open(&t->work, model, ROOM, &error), 0);
    float **arrays[] = {&t->parameters, &t->state, &t->gradient, &t->sum};
    for (int i = 0; i < 4; i++) *arrays[i] = calloc(t->layers.parameters, sizeof(float));
    dlrm_init(model, 11, t->parameters);
    open_reference(&r->model, model);
    r->adagrad = adagrad, r->eps = 1e-8;
    assert_true(reference_training_open(r, 0));
    for (uint64_t i = 0; i < t->layers.parameters; i++) r->parameters[i] = (double)t->parameters[i];
    reference *tables[] = {&t->rows, &r->rows, &t->linear, &r->linear};
    for (int i = 0; i < 4; i++) open_table(tables[i], i < 2 ? model->dim : 1, optimizer);
}

static void close_training(training *t, reference_training *r) {
    dlrm_workspace_close(t->work);
    reference_close(&t->rows), reference_close(&t->linear);
    free(t->parameters), free(t->state), free(t->gradient), free(t->sum);
    reference_training_close(r);
}

/* A hundred steps: the losses agree, and go down. */
static void check_training(const dlrm_model *model, int adagrad) {
    training t;
    reference_training r;
    double first = 0, last = 0;
    rng = (test_random){.seed = 12};
    open_training(&t, &r, model, adagrad);
    for (uint64_t step = 0; step < 100; step++) {
        device_batch batches[DEVICES];
        reference_samples samples[DEVICES];
        for (int d = 0; d < DEVICES; d++) {
            draw_batch(model, &batches[d]);
            samples[d] = (reference_samples){batches[d].n, batches[d].numbers, batches[d].labels, batches[d].ids};
        }
        double loss = train_step(&t, step, batches, adagrad);
        double expected = reference_training_step(&r, step, 0.1f, 0.05, samples);
        if (!(fabs(loss - expected) <= 1e-4 * (1e-2 + expected)))
            fail_msg("%s, adagrad %d: loss %.9g at step %u, must be %.9g", dlrm_model_name(model->kind), adagrad, loss,
                     (unsigned)step, expected);
        *(step < 50 ? &first : &last) += loss;
    }
    assert_true(last < first);
    close_training(&t, &r);
}

static void test_training(void **state) {
    (void)state;
    for (int kind = 0; kind < DLRM_KINDS; kind++)
        for (int adagrad = 0; adagrad < 2; adagrad++) {
            dlrm_model model = {.kind = (dlrm_kind)kind,
                                .numbers = adagrad ? MOST_NUMBERS : 0,
                                .features = MOST_FEATURES,
                                .dim = 8,
                                .n_cross = 2,
                                .n_bottom = 1,
                                .n_top = 1,
                                .bottom = {10},
                                .top = {12}};
            check_training(&model, adagrad);
        }
}

/* ---- First values, layout, errors -------------------------------------------------------------------------- */

static void check_moments(const char *what, uint64_t n, const float *x, double variance) {
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    double mean = sum / (double)n, spread = sqrt(variance / (double)n);
    if (!(fabs(mean) < 4 * spread) || !(fabs(squares / (double)n / variance - 1) < 4 * sqrt(2.0 / (double)n)))
        fail_msg("%s: mean %g, variance %g, must be 0 and %g", what, mean, squares / (double)n, variance);
}

static void test_init(void **state) {
    (void)state;
    dlrm_model model = {.kind = DLRM_DLRM,
                        .numbers = 20,
                        .features = 5,
                        .dim = 200,
                        .n_bottom = 1,
                        .n_top = 1,
                        .bottom = {300},
                        .top = {400}};
    dlrm_layers layers;
    program_error error;
    assert_int_equal(dlrm_layout(&model, &layers, &error), 0);
    float *parameters = floats(layers.parameters), *again = floats(layers.parameters);
    dlrm_init(&model, 1, parameters);
    for (uint32_t i = 0; i < layers.n_bottom + layers.n_top; i++) {
        const dlrm_layer *l = i < layers.n_bottom ? &layers.bottom[i] : &layers.top[i - layers.n_bottom];
        check_moments("weights", (uint64_t)l->in * l->out, parameters + l->weight, 2.0 / (l->in + l->out));
        if (l->out > 1) check_moments("biases", l->out, parameters + l->bias, 1.0 / l->out);
    }
    dlrm_init(&model, 1, again);
    assert_memory_equal(parameters, again, layers.parameters * sizeof(float));
    dlrm_init(&model, 2, again);
    assert_memory_not_equal(parameters, again, layers.parameters * sizeof(float));
    free(parameters), free(again);
}

/* Every parameter has one place, and linear weights begin as zeros. */
static void test_layout(void **state) {
    (void)state;
    rng = (test_random){.seed = 6};
    for (int round = 0; round < 50; round++) {
        dlrm_model m;
        dlrm_layers layers;
        program_error error;
        draw_model(&m, (uint32_t)test_between(&rng, 1, 9), (uint32_t)test_between(&rng, 1, 9));
        assert_int_equal(dlrm_layout(&m, &layers, &error), 0);
        uint64_t at = 0;
        for (uint32_t i = 0; i < layers.n_bottom + layers.n_top; i++) {
            const dlrm_layer *l = i < layers.n_bottom ? &layers.bottom[i] : &layers.top[i - layers.n_bottom];
            assert_int_equal(l->weight, at);
            assert_int_equal(l->bias, at + (uint64_t)l->in * l->out);
            at = l->bias + l->out;
        }
        assert_int_equal(layers.linear, at);
        uint64_t width = layers.top[0].in, cross = m.kind == DLRM_DCN ? (2 * m.n_cross + 1) * width : 0;
        assert_int_equal(layers.cross, at + (dlrm_has_linear(&m) ? m.numbers : 0));
        assert_int_equal(layers.parameters, layers.cross + cross);
        assert_int_equal(layers.n_bottom, m.kind == DLRM_DLRM && m.numbers ? m.n_bottom + 1 : 0);
        assert_int_equal(dlrm_vectors(&m), m.features + (layers.n_bottom > 0));
        float *parameters = floats(layers.parameters);
        dlrm_init(&m, 1, parameters);
        for (uint64_t i = 0; i < at; i++) assert_false(isnan(parameters[i]));
        for (uint64_t i = at; i < layers.cross; i++) assert_true(parameters[i] == 0);
        for (uint64_t i = layers.cross, k = 0; i < layers.parameters; i++, k++) { /* only biases are zeros */
            int bias = k >= m.n_cross * width && k < 2 * m.n_cross * width;
            assert_true(bias ? parameters[i] == 0 : parameters[i] < 0 || parameters[i] > 0);
        }
        free(parameters);
    }
}

static void test_refused(void **state) {
    (void)state;
    dlrm_model good = {
        .kind = DLRM_DLRM, .numbers = 3, .features = 2, .dim = 4, .n_bottom = 1, .n_top = 1, .bottom = {5}, .top = {5}};
    struct {
        const char *text;
        dlrm_model model;
    } bad[11];
    for (int i = 0; i < 11; i++) bad[i].model = good;
    bad[0].text = "no features", bad[0].model.features = 0;
    bad[1].text = "dim 0", bad[1].model.dim = 0;
    bad[2].text = "has 17 hidden layers, can have 16", bad[2].model.n_top = 17;
    bad[3].text = "layer 1 of the bottom MLP is 0 wide", bad[3].model.bottom[0] = 0;
    bad[4].text = "layer 1 of the top MLP is 3000000000 wide", bad[4].model.top[0] = 3000000000u;
    bad[5].text = "no pairs", bad[5].model.numbers = 0, bad[5].model.features = 1;
    bad[6].text = "input has 2147516420 numbers, can have 2147483647", bad[6].model.features = 65536;
    bad[7].text = "more than 2^40", bad[7].model.top[0] = 1u << 30, bad[7].model.features = 100;
    bad[8].text = "has 17 hidden layers, can have 16", bad[8].model.n_bottom = 17;
    bad[9].text = "dcn has 0 cross layers, must have 1 to 16", bad[9].model.kind = DLRM_DCN;
    bad[10].text = "dcn has 17 cross layers", bad[10].model.kind = DLRM_DCN, bad[10].model.n_cross = 17;
    for (int i = 0; i < 11; i++) {
        dlrm_layers layers;
        dlrm_workspace *work;
        program_error error = {.text = ""};
        assert_int_equal(dlrm_layout(&bad[i].model, &layers, &error), -1);
        if (!strstr(error.text, bad[i].text)) fail_msg("%s; must have: %s", error.text, bad[i].text);
        assert_int_equal(dlrm_workspace_open(&work, &bad[i].model, 10, &error), -1);
        assert_null(work);
    }
    dlrm_workspace *work;
    program_error error = {.text = ""};
    assert_int_equal(dlrm_workspace_open(&work, &good, UINT32_MAX, &error), -1);
    assert_non_null(strstr(error.text, "4294967295 samples, can have 2147483647"));
#ifndef FRUGAL_SANITIZED    /* which end the process over it */
    good.top[0] = 1u << 30; /* 64 bits of bytes and more */
    assert_int_equal(dlrm_workspace_open(&work, &good, INT32_MAX, &error), -1);
    assert_non_null(strstr(error.text, "out of memory"));
#endif
    assert_string_equal(dlrm_model_name(DLRM_WIDE_DEEP), "wide-deep");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_random_models),
        cmocka_unit_test(test_large_and_small),
        cmocka_unit_test(test_no_samples),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_nan_through_layers),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_init),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_refused),
    };
    openblas_set_num_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
