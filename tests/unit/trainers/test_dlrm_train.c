/* dlrm's whole training (loader, tables on Frugal, dense layers, evaluation) is compared with the sequential reference,
 * from the same weights: the loss of each of some 100 steps, except for rounding, and the AUC of held-out samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frugal_save.h"
#include "trainers/clicks/auc.h"
#include "trainers/dlrm/deal.h"
#include "trainers/dlrm/eval.h"
#include "tests/reference_dlrm.h"
#include "tests/support.h"

enum { STEPS = 100, BATCH = 24, NUMBERS = 3, FEATURES = 5, ROWS = 40, DIM = 6, HELD_OUT = 500 };
enum { MOST_STEPS = 2 * STEPS }; /* of samples with parts, whose batches are not full */

typedef struct scene {
    clicks *log;
    dlrm_settings settings;
    dlrm_trainer *trainer;
    reference_training reference;
    double losses[MOST_STEPS];
    uint64_t reports;
} scene;

/* Parts of samples, for settings.placing: at random, the first one smaller. */
static placing parted;

static void make_parts(uint32_t devices) {
    static uint8_t parts[STEPS * BATCH];
    for (uint64_t s = 0; s < STEPS * BATCH; s++)
        parts[s] = (uint8_t)(test_mix(s) % 8 ? test_mix(s) / 8 % devices : devices - 1);
    parted.partition = (partition){.samples = STEPS * BATCH, .parts = parts};
}

static atomic_int never = 0;

#define assert_works(call) check_works(call, #call, __LINE__)
static program_error error;
static void check_works(int status, const char *call, int line) {
    if (status) fail_msg("line %d: %s: %s", line, call, error.text);
}

static void note_report(void *user, const training_report *report) {
    scene *s = user;
    assert_in_range(report->step, 1, MOST_STEPS);
    assert_int_equal(++s->reports, report->step); /* every step, in turn */
    s->losses[report->step - 1] = report->loss;
}

/* ---- The reference from the same weights ------------------------------------------------------------------ */

static void copy_table(const scene *s, uint32_t instance, reference *to, uint32_t dim) {
    uint64_t keys[ROWS];
    *to = (reference){.rows = FEATURES * ROWS,
                      .dim = dim,
                      .devices = s->settings.common.devices,
                      .optimizer = (int)s->settings.common.optimizer,
                      .eps = s->settings.common.optimizer == FRUGAL_ADAGRAD ? 1e-10f : 1e-8f,
                      .beta1 = 0.9f,
                      .beta2 = 0.999f};
    assert_true(reference_open(to, 0));
    for (uint64_t i = 0; i < ROWS; i++) keys[i] = i;
    for (uint32_t f = 0; f < FEATURES; f++) {
        frugal_keys all = {.table = f, .keys = keys, .n = ROWS};
        frugal *tables = dlrm_trainer_tables(s->trainer, instance);
        assert_int_equal(frugal_read_rows(tables, &all, to->weights + (uint64_t)f * ROWS * dim, NULL), FRUGAL_OK);
    }
}

static void open_reference(scene *s) {
    const dlrm_model *m = &s->settings.model;
    reference_training *t = &s->reference;
    static const int kinds[] = {REFERENCE_DLRM, REFERENCE_WIDE_DEEP, REFERENCE_DEEPFM, REFERENCE_DCN};
    reference_dlrm_open(&t->model, kinds[m->kind], m->numbers, m->features, m->dim, m->n_bottom, m->bottom, m->n_top,
                        m->top);
    if (m->kind == DLRM_DCN) reference_cross_open(&t->model, m->n_cross);
    t->adagrad = s->settings.dense_optimizer == FRUGAL_ADAGRAD;
    t->eps = 1e-10;
    assert_true(reference_training_open(t, 0));
    copy_table(s, 0, &t->rows, DIM);
    if (dlrm_has_linear(m)) copy_table(s, 1, &t->linear, 1);
    for (uint64_t i = 0; i < t->model.parameters; i++)
        t->parameters[i] = (double)dlrm_trainer_parameters(s->trainer)[i];
}

static void open_scene(scene *s, dlrm_kind kind, uint32_t devices) {
    clicks_settings log = {.format = CLICKS_GENERATED, .generator = clicks_generator_default(), .ids = CLICKS_GIVEN};
    log.generator.samples = STEPS * BATCH + HELD_OUT, log.generator.rows = ROWS;
    log.generator.numbers = NUMBERS, log.generator.features = FEATURES;
    *s = (scene){.settings = {.model = {kind, NUMBERS, FEATURES, DIM, 1, {8}, 2, {12, 7}, 2},
                              .common = {.devices = devices,
                                         .workers = 1,
                                         .lookahead = 3,
                                         .cache = 0.2,
                                         .batch = BATCH / devices,
                                         .optimizer = FRUGAL_ADAGRAD,
                                         .lr = 0.05f,
                                         .init = 0.1f,
                                         .seed = 5},
                              .dense_optimizer = FRUGAL_ADAGRAD,
                              .dense_lr = 0.02f,
                              .epochs = 1}};
    assert_works(clicks_open(&s->log, &log, &error));
}

static void open_trainer(scene *s) {
    dlrm_source source = {.log = s->log, .end = STEPS * BATCH};
    assert_works(dlrm_trainer_open(&s->trainer, &s->settings, &source, &error));
    dlrm_trainer_report_to(s->trainer, note_report, s, 0);
}

static void close_scene(scene *s) {
    dlrm_trainer_close(s->trainer);
    reference_training_close(&s->reference);
    clicks_close(s->log);
}

/* ---- Beside it --------------------------------------------------------------------------------------------- */

/* A device's samples of a batch, [from, end) of it. */
static reference_samples cut(const clicks_batch *b, uint32_t from, uint32_t end, uint32_t *ids) {
    for (uint32_t f = 0; f < FEATURES; f++)
        for (uint32_t i = from; i < end; i++)
            ids[f * (end - from) + i - from] = (uint32_t)(f * ROWS + b->ids[(uint64_t)f * b->room + i]);
    return (reference_samples){end - from, b->numbers + (uint64_t)from * NUMBERS, b->labels + from, ids};
}

/* Returns the number of steps. */
static uint64_t train_reference(scene *s, double *losses) {
    clicks_shuffle *reader;
    clicks_batch batch;
    dlrm_dealer *dealer = NULL;
    uint32_t ids[4][FEATURES * BATCH], first[5], devices = s->settings.common.devices;
    clicks_shuffle_desc pass = {
        .log = s->log, .end = STEPS * BATCH, .block = s->settings.shuffle, .seed = s->settings.common.seed};
    dlrm_deal_desc deal = {s->log, parted.partition.parts, STEPS * BATCH, devices, BATCH / devices};
    if (s->settings.placing) assert_works(dlrm_dealer_open(&dealer, &deal, &error));
    assert_works(clicks_batch_open(&batch, s->log, BATCH, &error));
    assert_works(clicks_shuffle_open(&reader, &pass, &error));
    assert_works(clicks_shuffle_begin(reader, 1, 0, &error));
    for (uint64_t step = 0;; step++) {
        reference_samples samples[4];
        for (uint32_t d = 0; d <= devices; d++) first[d] = BATCH * d / devices;
        assert_works(dealer ? dlrm_dealer_read(dealer, reader, &batch, first, &error)
                            : clicks_shuffle_read(reader, BATCH, &batch, &error));
        if (!batch.n) {
            clicks_shuffle_close(reader);
            clicks_batch_close(&batch);
            dlrm_dealer_close(dealer);
            return step;
        }
        assert_int_equal(batch.n, first[devices]);
        for (uint32_t d = 0; d < devices; d++) samples[d] = cut(&batch, first[d], first[d + 1], ids[d]);
        losses[step] =
            reference_training_step(&s->reference, step, s->settings.common.lr, (double)s->settings.dense_lr, samples);
    }
}

/* The held-out samples' AUC as the reference has it. */
static double reference_auc(scene *s) {
    clicks_reader *reader;
    clicks_batch batch;
    auc *scores;
    double area, numbers[NUMBERS], rows[FEATURES * DIM], linear[FEATURES] = {0};
    reference_training *t = &s->reference;
    assert_works(auc_open(&scores, &error));
    assert_works(clicks_batch_open(&batch, s->log, HELD_OUT, &error));
    assert_works(clicks_reader_open(&reader, s->log, NULL, STEPS * BATCH, UINT64_MAX, &error));
    assert_works(clicks_reader_read(reader, HELD_OUT, &batch, &error));
    assert_int_equal(batch.n, HELD_OUT);
    for (uint32_t i = 0; i < HELD_OUT; i++) {
        for (uint32_t k = 0; k < NUMBERS; k++) numbers[k] = (double)batch.numbers[i * NUMBERS + k];
        for (uint32_t f = 0; f < FEATURES; f++) {
            uint64_t id = f * ROWS + batch.ids[(uint64_t)f * batch.room + i];
            for (uint32_t k = 0; k < DIM; k++) rows[f * DIM + k] = (double)t->rows.weights[id * DIM + k];
            if (t->linear.weights) linear[f] = (double)t->linear.weights[id];
        }
        double logit = 0;
        reference_sample sample = {numbers, rows, linear, 0};
        assert_true(reference_dlrm_sample(&t->model, t->parameters, &sample, 1, &logit, NULL) >= 0);
        float score = (float)logit;
        assert_works(auc_add(scores, &score, &batch.labels[i], 1, &error));
    }
    assert_works(auc_area(scores, &area, &error));
    clicks_reader_close(reader);
    clicks_batch_close(&batch);
    auc_close(scores);
    return area;
}

static void compare(scene *s) {
    double losses[MOST_STEPS];
    dlrm_metrics metrics;
    open_trainer(s);
    open_reference(s);
    assert_works(dlrm_trainer_run(s->trainer, UINT64_MAX, &never, &error));
    dlrm_trainer_report(s->trainer);
    assert_true(dlrm_trainer_done(s->trainer));
    uint64_t steps = train_reference(s, losses);
    assert_int_equal(s->reports, steps);
    assert_true(s->settings.placing ? steps > STEPS : steps == STEPS);
    assert_int_equal(dlrm_trainer_total(s->trainer).samples, STEPS * BATCH);
    for (uint64_t i = 0; i < steps; i++)
        if (!(fabs(s->losses[i] - losses[i]) <= 1e-4 * losses[i]))
            fail_msg("step %d: the loss is %.9g, the reference's %.9g", (int)i, s->losses[i], losses[i]);
    assert_true(losses[STEPS - 1] < losses[0]);
    dlrm_samples held_out = {.log = s->log, .first = STEPS * BATCH, .end = UINT64_MAX};
    assert_works(dlrm_evaluate(s->trainer, &held_out, 2, &never, &metrics, &error));
    assert_int_equal(metrics.samples, HELD_OUT);
    double expected = reference_auc(s);
    if (!(fabs(metrics.auc - expected) <= 0.001)) fail_msg("AUC %.6f, the reference's %.6f", metrics.auc, expected);
    close_scene(s);
}

static void test_model(void **state) {
    static const uint32_t devices[] = {1, 2, 3};
    for (int i = 0; i < 3; i++) {
        scene s;
        open_scene(&s, (dlrm_kind)(intptr_t)*state, devices[i]);
        compare(&s);
    }
}

static void test_sgd(void **state) {
    (void)state;
    scene s;
    open_scene(&s, DLRM_DLRM, 2);
    s.settings.common.optimizer = s.settings.dense_optimizer = FRUGAL_SGD;
    s.settings.common.lr = s.settings.dense_lr = 0.1f;
    compare(&s);
}

static void test_parts(void **state) {
    (void)state;
    for (uint32_t devices = 2; devices <= 3; devices++) {
        scene s;
        open_scene(&s, devices == 2 ? DLRM_DEEPFM : DLRM_DLRM, devices);
        make_parts(devices);
        s.settings.placing = &parted;
        compare(&s);
    }
}

static void test_shuffled(void **state) {
    (void)state;
    scene s;
    open_scene(&s, DLRM_DEEPFM, 2);
    s.settings.shuffle = 7 * BATCH + 3;
    compare(&s);
}

static void test_rowwise(void **state) {
    (void)state;
    scene s;
    open_scene(&s, DLRM_DEEPFM, 1);
    s.settings.common.optimizer = FRUGAL_ROWWISE_ADAGRAD;
    s.settings.common.workers = 0;
    compare(&s);
}

/* ---- Runs --------------------------------------------------------------------------------------------------- */

/* Cut into runs, the same bits; a stop in between ends all devices after the same step. */
static void test_runs(void **state) {
    (void)state;
    scene whole, parts;
    atomic_int stop = 1;
    open_scene(&whole, DLRM_WIDE_DEEP, 2);
    open_scene(&parts, DLRM_WIDE_DEEP, 2);
    open_trainer(&whole);
    open_trainer(&parts);
    assert_works(dlrm_trainer_run(whole.trainer, UINT64_MAX, &never, &error));
    for (uint64_t until = 7; !dlrm_trainer_done(parts.trainer); until += 7)
        assert_works(dlrm_trainer_run(parts.trainer, until, &never, &error));
    training_report a = dlrm_trainer_total(whole.trainer), b = dlrm_trainer_total(parts.trainer);
    assert_int_equal(a.step, STEPS);
    assert_int_equal(b.step, STEPS);
    assert_int_equal(b.samples, STEPS * BATCH);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    dlrm_layers layers;
    assert_works(dlrm_layout(&whole.settings.model, &layers, &error));
    assert_memory_equal(dlrm_trainer_parameters(whole.trainer), dlrm_trainer_parameters(parts.trainer),
                        layers.parameters * sizeof(float));
    close_scene(&whole);
    close_scene(&parts);
    open_scene(&parts, DLRM_DLRM, 3);
    open_trainer(&parts);
    assert_works(dlrm_trainer_run(parts.trainer, 10, &never, &error));
    assert_works(dlrm_trainer_run(parts.trainer, UINT64_MAX, &stop, &error));
    assert_int_equal(dlrm_trainer_total(parts.trainer).step, 10);
    assert_true(dlrm_trainer_done(parts.trainer));
    close_scene(&parts);
}

/* Passes, the last of them cut short by `steps`; a batch at the end of a pass may be a smaller one, of fewer samples
 * than devices. */
static void test_passes(void **state) {
    (void)state;
    scene s;
    open_scene(&s, DLRM_DLRM, 3);
    s.settings.epochs = 3;
    s.settings.common.steps = 2 * (STEPS + 1) + 5;
    dlrm_source source = {.log = s.log, .end = STEPS * BATCH + 2};
    assert_works(dlrm_trainer_open(&s.trainer, &s.settings, &source, &error));
    assert_works(dlrm_trainer_run(s.trainer, UINT64_MAX, &never, &error));
    training_report total = dlrm_trainer_total(s.trainer);
    assert_int_equal(total.step, 2 * (STEPS + 1) + 5);
    assert_int_equal(total.samples, 2 * (STEPS * BATCH + 2) + 5 * BATCH);
    close_scene(&s);
}

/* ---- Going on ------------------------------------------------------------------------------------------------ */

enum { PASS = STEPS * BATCH / 3 + 5, PASSES = 3 }; /* a pass ends in the middle of a batch */

typedef struct going_on {
    frugal_optimizer_kind optimizer, dense;
    uint64_t end; /* of the log; UINT64_MAX: not known before it was read */
    int parted;
} going_on;

static atomic_int stop_now;
static uint64_t stop_at;
static int ends; /* trainings that went on behind the end */

static void stop_from_report(void *user, const training_report *report) {
    (void)user;
    if (report->step >= stop_at) atomic_store(&stop_now, 1);
}

static void open_pass(scene *s, const going_on *how, const char *file, const dlrm_state *state) {
    clicks_settings log = {.format = CLICKS_GENERATED, .generator = clicks_generator_default(), .ids = CLICKS_GIVEN};
    open_scene(s, DLRM_DEEPFM, 2);
    clicks_close(s->log);
    log.generator.samples = PASS, log.generator.rows = ROWS;
    log.generator.numbers = NUMBERS, log.generator.features = FEATURES;
    assert_works(clicks_open(&s->log, &log, &error));
    s->settings.common.optimizer = how->optimizer, s->settings.dense_optimizer = how->dense;
    s->settings.common.lr = s->settings.dense_lr = 0.01f;
    s->settings.common.decay = how->end != UINT64_MAX;
    s->settings.epochs = PASSES;
    make_parts(2), parted.partition.samples = PASS;
    if (how->parted) s->settings.placing = &parted;
    s->settings.table_file = file, s->settings.resumed = state;
    if (state) s->settings.common.workers = 2, s->settings.common.lookahead = 1; /* nor do these change a bit */
    dlrm_source source = {.log = s->log, .end = how->end};
    assert_works(dlrm_trainer_open(&s->trainer, &s->settings, &source, &error));
}

static void assert_same_tables(const scene *a, const scene *b) {
    uint64_t keys[ROWS];
    float x[ROWS * DIM], y[ROWS * DIM];
    for (uint64_t i = 0; i < ROWS; i++) keys[i] = i;
    for (uint32_t f = 0; f < 2 * FEATURES; f++) {
        frugal_keys all = {.table = f % FEATURES, .keys = keys, .n = ROWS};
        size_t bytes = sizeof(float) * ROWS * (f < FEATURES ? DIM : 1);
        assert_int_equal(frugal_read_rows(dlrm_trainer_tables(a->trainer, f / FEATURES), &all, x, NULL), FRUGAL_OK);
        assert_int_equal(frugal_read_rows(dlrm_trainer_tables(b->trainer, f / FEATURES), &all, y, NULL), FRUGAL_OK);
        assert_memory_equal(x, y, bytes);
    }
}

/* Trained up to a step, or stopped about there; written, closed, read, trained to the end: the bits of `whole`. */
static void go_on(const scene *whole, const going_on *how, uint64_t step, int stopped) {
    char folder[] = "/tmp/test_dlrm_train.XXXXXX", tables[64], linear[80], state_file[64];
    scene s;
    dlrm_state state;
    assert_non_null(mkdtemp(folder));
    snprintf(tables, sizeof tables, "%s/tables", folder), snprintf(linear, sizeof linear, "%s.linear", tables);
    snprintf(state_file, sizeof state_file, "%s/state", folder);
    open_pass(&s, how, tables, NULL);
    atomic_store(&stop_now, 0), stop_at = step;
    if (stopped) dlrm_trainer_report_to(s.trainer, stop_from_report, NULL, 0);
    assert_works(dlrm_trainer_run(s.trainer, stopped ? UINT64_MAX : step, stopped ? &stop_now : &never, &error));
    state = dlrm_trainer_state(s.trainer);
    assert_int_equal(dlrm_trainer_total(s.trainer).step, state.step);
    if (!stopped) assert_int_equal(state.step, step);
    frugal_stats stats;
    frugal_get_stats(dlrm_trainer_tables(s.trainer, 0), &stats);
    assert_int_equal(stats.steps, state.step + state.skipped);
    ends += state.skipped > 0;
    assert_works(dlrm_state_write(&state, state_file, &error));
    close_scene(&s);
    assert_works(dlrm_state_read(&state, state_file, &error));
    open_pass(&s, how, tables, &state);
    dlrm_state_free(&state);
    assert_works(dlrm_trainer_run(s.trainer, UINT64_MAX, &never, &error));
    training_report a = dlrm_trainer_total(whole->trainer), b = dlrm_trainer_total(s.trainer);
    assert_true(a.step == b.step && a.samples == b.samples && a.samples == (uint64_t)PASS * PASSES);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    dlrm_layers layers;
    assert_works(dlrm_layout(&whole->settings.model, &layers, &error));
    assert_memory_equal(dlrm_trainer_parameters(whole->trainer), dlrm_trainer_parameters(s.trainer),
                        layers.parameters * sizeof(float));
    assert_same_tables(whole, &s);
    close_scene(&s);
    unlink(tables), unlink(linear), unlink(state_file);
    assert_int_equal(rmdir(folder), 0);
}

static void test_goes_on(void **state) {
    (void)state;
    static const going_on ways[] = {{FRUGAL_ADAGRAD, FRUGAL_ADAGRAD, PASS, 0},
                                    {FRUGAL_ADAM, FRUGAL_ADAM, UINT64_MAX, 0},
                                    {FRUGAL_ROWWISE_ADAGRAD, FRUGAL_SGD, PASS, 0},
                                    {FRUGAL_ADAM, FRUGAL_ADAGRAD, PASS, 1}};
    for (int i = 0; i < 4; i++) {
        scene whole;
        open_pass(&whole, &ways[i], NULL, NULL);
        assert_works(dlrm_trainer_run(whole.trainer, UINT64_MAX, &never, &error));
        uint64_t a_pass = (PASS + BATCH - 1) / BATCH;
        const uint64_t steps[] = {1, 7, a_pass - 1, a_pass, a_pass + 1, 2 * a_pass, 3 * a_pass - 1, 3 * a_pass};
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) go_on(&whole, &ways[i], steps[k], k % 2);
        close_scene(&whole);
    }
    assert_true(ends > 0);
}

/* Files that are none, and a model of another shape: refused. */
/* A save whose parts are of two steps, as after a lost GPU, is refused before a table's file is touched. */
static void test_parts_of_two_steps(void **state) {
    (void)state;
    char folder[] = "/tmp/test_dlrm_train.XXXXXX", path[64], file[64];
    frugal *f[2];
    frugal_table table = {.rows = ROWS};
    scene s;
    going_on how = {FRUGAL_SGD, FRUGAL_SGD, PASS, 0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/saved", folder), snprintf(file, sizeof file, "%s/tables", folder);
    for (uint64_t i = 0; i < 2; i++) {
        frugal_desc desc = {
            .tables = &table, .n_tables = 1, .dim = 1, .devices = 1, .max_keys = 1, .first_step = 3 * i};
        assert_int_equal(frugal_open(&desc, &f[i]), FRUGAL_OK);
    }
    assert_int_equal(frugal_save(f, 2, &(frugal_save_desc){.path = path}), FRUGAL_OK);
    frugal_close(f[0]), frugal_close(f[1]);
    open_pass(&s, &how, NULL, NULL);
    dlrm_trainer *first = s.trainer;
    dlrm_state begun = dlrm_trainer_state(first);
    dlrm_source source = {.log = s.log, .end = PASS};
    s.settings.resumed = &begun, s.settings.saved = path, s.settings.table_file = file;
    assert_int_equal(dlrm_trainer_open(&s.trainer, &s.settings, &source, &error), -1);
    assert_non_null(
        strstr(error.text, "the save cannot be used: part 1 is of step 3, and the state beside it of step 0"));
    assert_int_not_equal(access(file, F_OK), 0);
    s.trainer = first;
    close_scene(&s);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void test_states_refused(void **state) {
    (void)state;
    char folder[] = "/tmp/test_dlrm_train.XXXXXX", path[64];
    float values[3] = {1, 2, 3}, optimizer[2] = {4, 5};
    dlrm_state wanted = {
        .step = 8, .power2 = .5, .parameters = 3, .state = 2, .values = values, .optimizer = optimizer};
    dlrm_state read;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    assert_int_equal(dlrm_state_read(&read, path, &error), -1);
    assert_non_null(strstr(error.text, "No such file"));
    assert_works(dlrm_state_write(&wanted, path, &error));
    assert_works(dlrm_state_read(&read, path, &error));
    assert_true(read.step == 8 && read.parameters == 3 && read.state == 2);
    assert_memory_equal(read.values, values, sizeof values);
    assert_memory_equal(read.optimizer, optimizer, sizeof optimizer);
    scene s;
    going_on how = {FRUGAL_SGD, FRUGAL_SGD, PASS, 0};
    open_pass(&s, &how, NULL, NULL);
    dlrm_trainer_close(s.trainer);
    s.settings.resumed = &read;
    dlrm_source source = {.log = s.log, .end = PASS};
    assert_int_equal(dlrm_trainer_open(&s.trainer, &s.settings, &source, &error), -1);
    assert_non_null(strstr(error.text, "has 3 parameters in dense layers and 2 floats of their optimizer"));
    close_scene(&s);
    dlrm_state_free(&read);
    for (off_t length = 24 + 13 * 8 + 5 * 4 - 1; length >= 0; length--) {
        assert_int_equal(truncate(path, length), 0);
        assert_int_equal(dlrm_state_read(&read, path, &error), -1);
        assert_non_null(strstr(error.text, "is no state of a dlrm training"));
        dlrm_state_free(&read);
    }
    unlink(path), rmdir(folder);
}

#define MODEL(kind)                                                                                                    \
    { "test_model " #kind, test_model, NULL, NULL, (void *)(intptr_t)(kind) }

int main(void) {
    openblas_set_num_threads(1);
    const struct CMUnitTest tests[] = {
        MODEL(DLRM_DLRM),
        MODEL(DLRM_WIDE_DEEP),
        MODEL(DLRM_DEEPFM),
        MODEL(DLRM_DCN),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_shuffled),
        cmocka_unit_test(test_rowwise),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_states_refused),
        cmocka_unit_test(test_parts_of_two_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
