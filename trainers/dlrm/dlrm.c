/* dlrm: trains the recommendation models of the paper on click logs with Frugal, end to end.
 *
 *     dlrm --data train.txt.gz --test 0.1           read a Criteo log, train, predict its last tenth
 *     dlrm --generate                               the same on a generated log, whose best AUC is known
 *     dlrm --predict new.txt --load DIR             predict other samples by a model that was saved to DIR
 *
 * Here: options (the command line), model and cross (the mathematics), dlrm_cuda (the same on a GPU, where it is built
 * with CUDA), train (the loop over Frugal), pass (the samples, step by step), pilot (how many passes over a small
 * log), tables, dense (the optimizer of dense layers), words (their gradients between machines), deal (samples to
 * devices by parts), state and describe (for checkpoints), score, eval and seen (how well samples are predicted, and
 * which of their ids were trained), save (files), load and predict (--predict), make (--make-schema). In
 * trainers/clicks: clicks (logs; schema, ids, generate, shuffle, source and others beside it), auc. In
 * trainers/common, what the programs share: stages (a program that trains, from its options to its exit status),
 * settings (options that all have), placing (--place; uses partition), secondaries (uses placing), training (threads,
 * devices), processes (--processes), ranks (several machines), report, progress, save (sets of files; uses manifest,
 * file, crc32), checkpointing (when, and what; uses checkpoint, identity), best (the best evaluation), options,
 * program, vector.h.
 */
#include "trainers/clicks/file.h"
#include "trainers/clicks/source.h"
#include "trainers/dlrm/describe.h"
#include "trainers/dlrm/eval.h"
#include "trainers/dlrm/make.h"
#include "trainers/dlrm/options.h"
#include "trainers/dlrm/pilot.h"
#include "trainers/dlrm/predict.h"
#include "trainers/dlrm/save.h"
#include "trainers/common/stages.h"
#include "trainers/common/file.h"
#include "trainers/common/manifest.h"
#include "trainers/common/ranks.h"
#include "trainers/common/training.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct dlrm_program {
    stages stages; /* first */
    dlrm_options options;
    char linear_file[MANIFEST_LONGEST_PATH]; /* beside the tables' */
    clicks *log;
    dlrm_source source;
    dlrm_samples held_out;
    uint64_t most_epochs; /* of a small log; 0: not chosen by pilots */
    dlrm_seen *seen;      /* NULL: nothing is held out, or another run has trained, too */
    placing placing;
    secondaries secondaries;
    dlrm_state resumed; /* the state of the checkpoint that the training resumes from, while it is opened */
    dlrm_trainer *trainer;
    dlrm_metrics metrics;
} dlrm_program;

static dlrm_program *dlrm_of(stages *c) {
    return (dlrm_program *)c;
}

static training_report dlrm_total(const stages *c) {
    return dlrm_trainer_total(((const dlrm_program *)c)->trainer);
}

/* Reports the lines of a log that are no samples; of many only the first. */
static void dlrm_tell_malformed(dlrm_program *program, const char *path, const clicks_malformed *malformed) {
    if (!malformed->lines) return;
    stages_begin_words(&program->stages);
    fprintf(stderr, "%s: skipped %" PRIu64 " malformed line%s%s\n", path, malformed->lines,
            malformed->lines == 1 ? "" : "s", malformed->lines > CLICKS_TOLD ? ", of which the first are" : "");
    for (uint64_t i = 0; i < malformed->lines && i < CLICKS_TOLD; i++) fprintf(stderr, "  %s\n", malformed->what[i]);
    stages_end_words(&program->stages);
}

/* For the loader, when it has met malformed lines; those of a log that was counted are reported already. */
static void dlrm_show_malformed(void *user, const clicks_malformed *malformed) {
    dlrm_program *program = user;
    dlrm_tell_malformed(program, program->options.data.name, malformed);
}

/* ---- Before the training ------------------------------------------------------------------------------- */

static int dlrm_parse(stages *c, int argc, char **argv, program_error *error) {
    dlrm_program *program = dlrm_of(c);
    const dlrm_options *options = &program->options;
    if (dlrm_options_parse(&program->options, argc, argv, error)) return -1;
    const char *table = options->train.table_file;
    if (table) snprintf(program->linear_file, sizeof program->linear_file, "%s.linear", table);
    const char *const kept[] = {options->data.test, options->data.clicks.schema, table,
                                table ? program->linear_file : NULL, placing_file(options->train.common.place)};
    memcpy(c->kept, kept, sizeof kept);
    c->files = options->data.clicks.files;
    c->saved = dlrm_save_names(options, &c->n_saved);
    c->outputs = options->outputs;
    c->settings = &options->train.common;
    return 0;
}

/* The first file of --data that can be read only once; NULL: none. */
static const char *dlrm_has_pipe(const dlrm_options *options) {
    for (const char *const *file = options->data.clicks.files; file && *file; file++)
        if (clicks_file_is_pipe(*file)) return *file;
    return NULL;
}

enum { DLRM_SMALL = 128 }; /* steps a pass, below which a log is small */

/* A pass of a small log has too few steps to learn what is there: it gets up to as many as make 128, and 8. So few,
 * because a model of many rows soon knows a small log by heart; pilots say how many are good. */
static void dlrm_limit_epochs(dlrm_program *program, uint64_t samples) {
    enum { MOST_EPOCHS = 8 };
    const dlrm_options *options = &program->options;
    const dlrm_settings *train = &options->train;
    uint64_t step = (uint64_t)train->common.batch * train->common.devices, steps = (samples + step - 1) / step;
    int evaluates = options->data.test || options->data.test_share > 0 || options->decay_wanted;
    if (options->epochs_given || options->data.generate || train->common.steps || train->common.seconds > 0) return;
    uint64_t epochs = (DLRM_SMALL + steps - 1) / steps;
    if (epochs < 2) return;
    if (epochs > MOST_EPOCHS) epochs = MOST_EPOCHS;
    fprintf(stderr, "a small log, of %" PRIu64 " step%s a pass: ", steps, steps == 1 ? "" : "s");
    if (!evaluates)
        fprintf(stderr, "one pass, as nothing is held out; with --test it would have up to %" PRIu64 "\n", epochs);
    else if (train->table_file)
        fputs("one pass, as pilots have no place for a --table-file; --epochs says otherwise\n", stderr);
    else
        fprintf(stderr, "up to %" PRIu64 " passes, as no --epochs are given\n", program->most_epochs = epochs);
}

/* Counts the samples where that is needed; and where they are few, because that costs nothing, but no log from a pipe,
 * and so none without --test: what it is read from must not change its bits. *known: it did. */
static int dlrm_count(dlrm_program *program, uint64_t *samples, int *known, program_error *error) {
    const dlrm_options *options = &program->options;
    uint64_t most = (uint64_t)options->train.common.batch * options->train.common.devices * (DLRM_SMALL - 1) + 1;
    clicks_malformed malformed = {0};
    *known = options->data.test_share > 0 || options->decay_wanted || options->data.generate;
    if (*known) most = UINT64_MAX;
    if (!*known && dlrm_has_pipe(options)) return 0;
    if (clicks_count_to(program->log, NULL, most, samples, &malformed, error)) return -1;
    if (!*known && !options->data.test && *samples && *samples < most) dlrm_limit_epochs(program, *samples);
    *known |= options->data.test && *samples < most;
    if (!*known) return 0;
    dlrm_tell_malformed(program, options->data.name, &malformed);
    return *samples ? 0 : program_fail(error, "%.200s has no samples; give another file", options->data.name);
}

/* Which samples train, which are held out. */
static int dlrm_split(dlrm_program *program, program_error *error) {
    dlrm_options *options = &program->options;
    uint64_t samples = 0, held_out = 0;
    int count;
    if (dlrm_count(program, &samples, &count, error)) return -1;
    if (!count) samples = 0;
    if (count && clicks_options_hold_out(&options->data, samples, &held_out, error)) return -1;
    if (count) dlrm_limit_epochs(program, samples - held_out);
    program->source = (dlrm_source){.log = program->log,
                                    .name = options->data.generate ? NULL : options->data.name,
                                    .end = count ? samples - held_out : UINT64_MAX,
                                    .malformed = count ? NULL : dlrm_show_malformed,
                                    .user = program};
    program->held_out = (dlrm_samples){.log = program->log, .first = samples - held_out, .end = samples};
    if (options->data.test) program->held_out = (dlrm_samples){program->log, options->data.test, 0, UINT64_MAX};
    program->stages.evaluates = options->data.test || held_out;
    return 0;
}

/* A generated log is for demonstration, so it gets six evaluations. */
static void dlrm_set_evaluations(dlrm_program *program) {
    const dlrm_options *options = &program->options;
    training_outputs *outputs = &program->stages.outputs;
    const dlrm_settings *train = &options->train;
    if (outputs->eval_every != DLRM_EVAL_UNSET) return;
    uint64_t batch = (uint64_t)train->common.batch * train->common.devices;
    uint64_t pass = (program->source.end + batch - 1) / batch, most = UINT64_MAX / 2;
    uint64_t steps = pass && train->epochs > most / pass ? most : pass * train->epochs;
    if (train->common.steps && train->common.steps < steps) steps = train->common.steps;
    outputs->eval_every = program->stages.evaluates ? (steps + 5) / 6 : 0;
}

/* A pipe can be read once: by the loader, in one pass. */
static int dlrm_check_pipe(const dlrm_options *options, program_error *error) {
    const char *pipe = dlrm_has_pipe(options);
    if (!pipe) return 0;
    const char *twice = options->data.guess                             ? "--format auto"
                        : options->data.test_share > 0                  ? "a share as --test"
                        : options->data.clicks.ids == CLICKS_VOCABULARY ? "--ids vocabulary"
                        : options->decay_wanted                         ? "--lr-decay linear"
                        : options->train.common.place                   ? "--place"
                        : options->train.common.secondaries > 0         ? "--secondaries"
                        : options->train.epochs > 1                     ? "--epochs of more than 1"
                        : ranks_all() > 1                               ? "a training on several machines"
                                                                        : NULL;
    if (!twice) return 0;
    return program_fail(error, "--data %.200s is no file that can be read twice, as %s needs it; write it to one", pipe,
                        twice);
}

/* How many ids a sample has at most, of bags, in all files. */
static int dlrm_measure(dlrm_program *program, program_error *error) {
    const char *test = program->options.data.test, *pipe = dlrm_has_pipe(&program->options);
    if (clicks_is_measured(program->log)) return 0;
    if (!pipe && test && clicks_file_is_pipe(test)) pipe = test;
    if (pipe)
        return program_fail(error,
                            "%.200s is no file that can be read twice, and how many ids a sample has is not known "
                            "before; give --most-ids (libffm: --fields, too), or write it to one",
                            pipe);
    if (clicks_measure(program->log, NULL, error)) return -1;
    return test ? clicks_measure(program->log, test, error) : 0;
}

/* Where samples may have many ids, fewer samples change places by default: their ids take as much memory. */
static void dlrm_limit_shuffle(dlrm_program *program) {
    dlrm_options *options = &program->options;
    uint32_t most = clicks_most_ids(program->log), ids = options->train.shuffle * 64;
    if (!options->shuffle_given && most > 64) options->train.shuffle = most < ids ? ids / most : 1;
}

/* Parts, and rows with secondaries. With parts the number of samples is known, too. */
static int dlrm_place_log(dlrm_program *program, program_error *error) {
    dlrm_settings *train = &program->options.train;
    dlrm_source *source = &program->source;
    clicks_source samples;
    train->placing = &program->placing, train->secondaries = &program->secondaries;
    if (!train->common.place && train->common.secondaries <= 0) return 0;
    if (clicks_source_open(&samples, source->log, source->path, source->first, source->end, error)) return -1;
    placing_desc desc = {.settings = &train->common,
                         .threads = program->stages.outputs.threads,
                         .rows = samples.rows,
                         .machines = ranks_all()};
    secondaries_desc listed = {.settings = &train->common, .placing = &program->placing, .rows = samples.rows};
    partition_source of = clicks_source_of(&samples);
    int status = placing_make(&program->placing, &desc, &of, error);
    if (!status) status = secondaries_choose(&program->secondaries, &listed, &of, error);
    clicks_source_close(&samples);
    if (!status && train->common.place) source->end = source->first + program->placing.partition.samples;
    return status;
}

/* With so few products, and no numbers, nothing says what a single id is worth. */
static void dlrm_tell_products(const dlrm_model *model) {
    uint32_t n = model->features, products = n * (n - 1) / 2;
    if (model->kind != DLRM_DLRM || model->numbers || n > 3) return;
    fprintf(stderr,
            "dlrm sees %u product%s a sample here, of %u features, and no numbers; it has no part for single ids, and "
            "may learn nothing: use --model deepfm or wide-deep\n",
            products, products == 1 ? "" : "s", n);
}

/* Can each file be read? The last of many is opened only after the others have been trained on. */
static int dlrm_check_files(const dlrm_options *options, program_error *error) {
    struct stat is;
    for (const char *const *file = options->data.clicks.files; file && *file; file++) {
        int fails = stat(*file, &is) || access(*file, R_OK);
        if (fails) return program_fail(error, "cannot read %.200s: %s", *file, strerror(errno));
        if (options->data.test && file_is_same(*file, options->data.test))
            fprintf(stderr, "--test %s is also --data: the held-out samples are trained on\n", *file);
    }
    return 0;
}

static int dlrm_read_log(dlrm_program *program, program_error *error) {
    dlrm_options *options = &program->options;
    dlrm_model *model = &options->train.model;
    if (dlrm_check_pipe(options, error) || dlrm_check_files(options, error)) return -1;
    if (options->data.guess && clicks_guess(options->data.path, &options->data.clicks.format, error)) return -1;
    if (clicks_open(&program->log, &options->data.clicks, error) || dlrm_measure(program, error)) return -1;
    dlrm_limit_shuffle(program);
    if (dlrm_split(program, error)) return -1;
    if (options->data.clicks.ids == CLICKS_VOCABULARY) fprintf(stderr, "making vocabularies\n");
    if (clicks_prepare(program->log, NULL, program->source.end, error)) return -1;
    if (dlrm_place_log(program, error)) return -1;
    model->numbers = clicks_numbers(program->log);
    model->features = clicks_features(program->log);
    double rows = 0;
    for (uint32_t i = 0; i < model->features; i++) rows += (double)clicks_rows(program->log, i);
    fprintf(stderr, "%u numbers, %u features of %.0f rows in all", model->numbers, model->features, rows);
    if (clicks_has_bags(program->log)) fprintf(stderr, ", up to %u ids a sample", clicks_most_ids(program->log));
    if (program->source.end != UINT64_MAX) fprintf(stderr, ", %" PRIu64 " samples to train on", program->source.end);
    if (program->stages.evaluates && program->held_out.end != UINT64_MAX)
        fprintf(stderr, ", %" PRIu64 " held out", program->held_out.end - program->held_out.first);
    fputc('\n', stderr);
    if (program->source.end == UINT64_MAX && !options->train.common.steps)
        options->train.common.decay = 0; /* no end to fall to */
    dlrm_tell_products(model);
    return 0;
}

/* Checked now, because a missing or empty --test should not be found after hours of training. Only regular files are
 * checked: others may be readable only once. */
static int dlrm_check_test(dlrm_program *program, program_error *error) {
    const char *path = program->options.data.test;
    clicks_reader *reader = NULL;
    clicks_batch sample;
    if (!path || clicks_file_is_pipe(path)) return 0;
    if (clicks_batch_open(&sample, program->log, 1, error)) return -1;
    int status = clicks_reader_open(&reader, program->log, path, 0, 1, error);
    if (!status) status = clicks_reader_read(reader, 1, &sample, error);
    if (!status && !sample.n) {
        dlrm_tell_malformed(program, path, clicks_reader_malformed(reader));
        status = program_fail(error, "--test %.200s has no samples; give another file", path);
    }
    clicks_reader_close(reader);
    clicks_batch_close(&sample);
    return status;
}

static int dlrm_prepare(stages *c, program_error *error) {
    dlrm_program *program = dlrm_of(c);
    if (dlrm_read_log(program, error) || dlrm_check_test(program, error)) return -1;
    if (program->most_epochs &&
        dlrm_pilots_run(&program->options.train, &program->source, program->most_epochs, c->outputs.threads, error))
        return -1;
    dlrm_set_evaluations(program);
    c->begins = program->options.train.table_file != NULL;
    if (!c->evaluates) return 0;
    return dlrm_seen_open(&program->seen, program->log, program->options.data.clicks.ids == CLICKS_VOCABULARY, error);
}

static int dlrm_describe_lines(stages *c, FILE *lines, program_error *error) {
    const dlrm_program *program = dlrm_of(c);
    if (c->outputs.patience) /* evaluations count then, and not the number of them */
        fprintf(lines, "--eval-every %" PRIu64 " (the best is kept)\n--eval-samples %" PRIu64 "\n",
                c->outputs.eval_every, program->options.eval_samples);
    return dlrm_describe(&program->options, program->log, program->source.end, lines, error);
}

static int dlrm_read_state(stages *c, const char *path, uint64_t *saved, program_error *error) {
    dlrm_state *state = &dlrm_of(c)->resumed;
    dlrm_state_free(state);
    int status = dlrm_state_read(state, path, error);
    *saved = state->saved;
    return status;
}

static int dlrm_open_trainer(dlrm_program *program, const char *tables, program_error *error) {
    dlrm_settings *train = &program->options.train;
    train->resumed = tables ? &program->resumed : NULL, train->saved = tables;
    train->seen = tables ? NULL : program->seen; /* a checkpoint does not say what was seen before it */
    int status = dlrm_trainer_open(&program->trainer, train, &program->source, error);
    train->resumed = NULL, train->saved = NULL;
    dlrm_state_free(&program->resumed);
    return status;
}

static int dlrm_open(stages *c, const char *tables, program_error *error) {
    dlrm_program *program = dlrm_of(c);
    if (dlrm_open_trainer(program, tables, error)) return -1;
    placing_forget(&program->placing);
    dlrm_trainer_report_to(program->trainer, stages_report, c, c->outputs.report_seconds);
    return 0;
}

/* ---- The training -------------------------------------------------------------------------------------- */

static int dlrm_train(stages *c, uint64_t until, double pause, program_error *error) {
    dlrm_trainer_pause_at(dlrm_of(c)->trainer, pause);
    return dlrm_trainer_run(dlrm_of(c)->trainer, until, &program_signalled, error);
}

static int dlrm_is_done(const stages *c) {
    return dlrm_trainer_done(((const dlrm_program *)c)->trainer);
}

static void dlrm_report_rest(stages *c) {
    dlrm_trainer_report(dlrm_of(c)->trainer);
}

static int dlrm_check(stages *c, program_error *error) {
    const dlrm_options *options = &dlrm_of(c)->options;
    const dlrm_settings *train = &options->train;
    training_report total = dlrm_total(c);
    if (!total.samples && train->epochs && !train->common.seconds && !program_signalled)
        return program_fail(error, "%.200s has no samples to train on; nothing is saved", options->data.name);
    for (uint32_t i = 0; i < 2; i++)
        if (dlrm_trainer_tables(dlrm_of(c)->trainer, i))
            training_tell_rows(dlrm_trainer_tables(dlrm_of(c)->trainer, i));
    return isfinite(total.loss) ? 0 : dlrm_fail_diverged(train, "its loss is", error);
}

static const char *dlrm_model_of(const stages *c) {
    return dlrm_model_name(((const dlrm_program *)c)->options.train.model.kind);
}

static int dlrm_write_state(void *user, const char *path, program_error *error) {
    dlrm_state state = dlrm_trainer_state(((const dlrm_program *)user)->trainer);
    return dlrm_state_write(&state, path, error);
}

static int dlrm_write_tables(void *user, const char *path, program_error *error) {
    return dlrm_trainer_save(((dlrm_program *)user)->trainer, path, error);
}

static int dlrm_save_all(stages *c, program_error *error) {
    const dlrm_program *program = dlrm_of(c);
    return dlrm_save(c->set, program->trainer, program->log, &program->options, stages_step(c), error);
}

static int dlrm_go_back(stages *c, const char *tables, program_error *error) {
    dlrm_program *program = dlrm_of(c);
    int status = dlrm_trainer_go_back(program->trainer, tables, &program->resumed, error);
    dlrm_state_free(&program->resumed);
    return status;
}

/* `none` where there is no area. */
static const char *dlrm_area_text(char text[16], double area, int digits, const char *none) {
    snprintf(text, 16, "%.*f", digits, area);
    return isfinite(area) ? text : none;
}

#define DLRM_NO_AREA "none (all labels are alike)"

/* ---- Prediction ---------------------------------------------------------------------------------------- */

static int dlrm_predict(dlrm_program *program, uint64_t most, dlrm_metrics *metrics, program_error *error) {
    dlrm_samples held_out = program->held_out;
    double from = program_now();
    if (most && held_out.end - held_out.first > most) held_out.end = held_out.first + most;
    int status =
        dlrm_evaluate(program->trainer, &held_out, program->stages.outputs.threads, &program_signalled, metrics, error);
    uint64_t wanted = held_out.end - held_out.first;
    if (!status && !metrics->interrupted && !program->options.data.test && metrics->samples < wanted && !ranks_number())
        status = program_fail(error,
                              "%.200s has %" PRIu64 " held-out samples now, and had %" PRIu64
                              " when they were counted; give a file that does not change",
                              program->options.data.name, metrics->samples, wanted);
    program->stages.eval_seconds = program_now() - from;
    return status;
}

static int dlrm_predict_on_the_way(stages *c, double *value, int *interrupted, program_error *error) {
    dlrm_program *program = dlrm_of(c);
    dlrm_metrics metrics;
    char area[16];
    if (dlrm_predict(program, program->options.eval_samples, &metrics, error)) return -1;
    *interrupted = metrics.interrupted;
    if (*interrupted) return 0;
    training_report total = dlrm_total(c);
    stages_begin_words(c);
    fprintf(stderr, "step %" PRIu64 "  held-out AUC %s  log loss %.4f  (%" PRIu64 " samples, %.1f s)\n", total.step,
            dlrm_area_text(area, metrics.auc, 4, DLRM_NO_AREA), metrics.logloss, metrics.samples, c->eval_seconds);
    stages_end_words(c);
    training_report_json(&total, c->parts->samples, c->json);
    if (c->json)
        fprintf(c->json, ", \"test_auc\": %s, \"test_logloss\": %.6f", dlrm_area_text(area, metrics.auc, 6, "null"),
                metrics.logloss);
    training_json_end(c->json);
    *value = metrics.auc;
    return 0;
}

static int dlrm_is_better(const dlrm_metrics *metrics) {
    return metrics->logloss < metrics->constant;
}

/* What is wrong with the predictions, or with what they are made for. */
static void dlrm_tell_worth(dlrm_program *program, const dlrm_metrics *metrics) {
    const dlrm_unseen *unseen = &metrics->unseen;
    double samples = (double)metrics->samples;
    stages_begin_words(&program->stages);
    if (metrics->positives && metrics->positives < metrics->samples && !dlrm_is_better(metrics))
        fprintf(stderr,
                "the held-out log loss of %.4f is not below %.4f, that of a constant (the share of ones, %.4f): as "
                "probabilities, these predictions are worth nothing; try another --model, --lr or --epochs\n",
                metrics->logloss, metrics->constant, (double)metrics->positives / samples);
    if (unseen->samples)
        fprintf(stderr,
                "%" PRIu64 " of %" PRIu64 " held-out samples (%.1f%%) have an id that %s, %" PRIu64
                " ids in all, %" PRIu64 " of '%s'\n",
                unseen->samples, metrics->samples, 100 * (double)unseen->samples / samples,
                program->options.data.clicks.ids == CLICKS_VOCABULARY
                    ? "is not in the vocabulary (new, rarer than --threshold, or missing)"
                    : "no training sample has: its row is as initialized",
                unseen->ids, unseen->of_feature, clicks_feature_name(program->log, unseen->feature));
    stages_end_words(&program->stages);
}

static int dlrm_predict_last(stages *c, int *interrupted, program_error *error) {
    dlrm_program *program = dlrm_of(c);
    const char *test = program->options.data.test;
    if (dlrm_predict(program, 0, &program->metrics, error)) return -1;
    *interrupted = program->metrics.interrupted;
    if (test) dlrm_tell_malformed(program, test, &program->metrics.malformed);
    if (!*interrupted) dlrm_tell_worth(program, &program->metrics);
    return 0;
}

/* ---- The result ---------------------------------------------------------------------------------------- */

static void dlrm_show_flushing(stages *c) {
    const dlrm_program *program = dlrm_of(c);
    progress_setup setup = stages_setup(c);
    for (uint32_t i = 0; i < 2; i++) {
        frugal *tables = dlrm_trainer_tables(program->trainer, i);
        frugal_stats stats;
        if (!tables) continue;
        frugal_get_stats(tables, &stats);
        if (dlrm_trainer_tables(program->trainer, 1))
            printf("\nrows of %s", i == 0 ? "the features" : "one float, of the linear part");
        progress_show_flushing(&stats, &setup);
    }
}

/* What crossed for secondaries, and in spite of them. */
static void dlrm_json_secondaries(stages *c) {
    const dlrm_program *program = dlrm_of(c);
    frugal_stats stats[2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < 2; i++)
        if (dlrm_trainer_tables(program->trainer, i))
            frugal_get_stats(dlrm_trainer_tables(program->trainer, i), &stats[n++]);
    secondaries_json(c->settings, stats, n, c->json);
}

static double dlrm_peak_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void dlrm_json_result(stages *c, const training_report *total, int predicted, double peak) {
    const dlrm_program *program = dlrm_of(c);
    const dlrm_metrics *metrics = &program->metrics;
    char area[16];
    training_report_json(total, c->parts->samples, c->json);
    if (!c->json) return;
    dlrm_json_secondaries(c);
    if (predicted)
        fprintf(c->json,
                ", \"auc\": %s, \"logloss\": %.6f, \"test_samples\": %" PRIu64 ", \"test_positives\": %" PRIu64
                ", \"eval_seconds\": %.3f",
                dlrm_area_text(area, metrics->auc, 6, "null"), metrics->logloss, metrics->samples, metrics->positives,
                c->eval_seconds);
    if (predicted)
        fprintf(c->json, ", \"constant_logloss\": %.6f, \"better_than_constant\": %s", metrics->constant,
                dlrm_is_better(metrics) ? "true" : "false");
    if (predicted && program->options.train.seen)
        fprintf(c->json, ", \"unseen_samples\": %" PRIu64 ", \"unseen_ids\": %" PRIu64, metrics->unseen.samples,
                metrics->unseen.ids);
    if (predicted && isfinite(metrics->best_auc))
        fprintf(c->json, ", \"best_auc\": %.6f, \"best_logloss\": %.6f", metrics->best_auc, metrics->best_logloss);
    placing_json(&program->placing, c->json);
    stages_json_best(c);
    fprintf(c->json,
            ", \"alone\": \"%s\", \"rows_as\": \"%s\", \"read_seconds\": %.3f, \"peak_rss_mib\": %.0f, "
            "\"interrupted\": %s, "
            "\"total_seconds\": %.3f",
            training_alone_word(c->settings->alone), training_type_word(c->settings->rows_as),
            dlrm_trainer_read_seconds(program->trainer), peak, program_signalled ? "true" : "false",
            program_now() - c->started);
    training_json_end(c->json);
}

static void dlrm_show_result(stages *c, int predicted) {
    const dlrm_program *program = dlrm_of(c);
    const dlrm_metrics *metrics = &program->metrics;
    training_report total = dlrm_total(c);
    char area[16];
    double peak = dlrm_peak_mib(), read = dlrm_trainer_read_seconds(program->trainer);
    if (c->curve.n || program->options.data.generate) {
        progress_show_curve(&c->curve, c->parts->value, 0.5);
        dlrm_show_flushing(c);
        putchar('\n');
    }
    printf("%s: %" PRIu64 " steps, %" PRIu64
           " samples in %.1f s, %.0f samples/s, loss %.4f, stall %.1f%%, hits %.1f%%, "
           "reading busy %.1f%%",
           dlrm_model_name(program->options.train.model.kind), total.step, total.samples, total.seconds,
           total.samples_per_s, total.loss, 100 * total.stall, 100 * total.hit_rate,
           total.seconds > 0 ? 100 * read / total.seconds : 0);
    placing_show(&program->placing);
    stages_show_best(c);
    if (predicted)
        printf("; test AUC %s  log loss %.4f", dlrm_area_text(area, metrics->auc, 4, DLRM_NO_AREA), metrics->logloss);
    if (predicted && isfinite(metrics->best_auc))
        printf(" (best possible: %.4f, %.4f)", metrics->best_auc, metrics->best_logloss);
    if (predicted) printf(" (%.1f s)", c->eval_seconds);
    printf("; peak RSS %.0f MiB; %.1f s in all\n", peak, program_now() - c->started);
    dlrm_json_result(c, &total, predicted, peak);
}

/* ---- The program --------------------------------------------------------------------------------------- */

static int dlrm_close(stages *c, program_error *error) {
    dlrm_program *program = dlrm_of(c);
    int status = dlrm_trainer_close_tables(program->trainer, error);
    dlrm_trainer_close(program->trainer);
    placing_close(&program->placing);
    secondaries_close(&program->secondaries);
    dlrm_state_free(&program->resumed);
    dlrm_seen_close(program->seen);
    clicks_close(program->log);
    return status;
}

static const stages_parts dlrm_parts = {.name = "dlrm",
                                        .samples = "samples",
                                        .value = "held-out AUC",
                                        .parse = dlrm_parse,
                                        .help = dlrm_options_help,
                                        .prepare = dlrm_prepare,
                                        .describe = dlrm_describe_lines,
                                        .read_state = dlrm_read_state,
                                        .open = dlrm_open,
                                        .model = dlrm_model_of,
                                        .write_tables = dlrm_write_tables,
                                        .write_state = dlrm_write_state,
                                        .train = dlrm_train,
                                        .is_done = dlrm_is_done,
                                        .report_rest = dlrm_report_rest,
                                        .total = dlrm_total,
                                        .check = dlrm_check,
                                        .evaluate_on_the_way = dlrm_predict_on_the_way,
                                        .go_back = dlrm_go_back,
                                        .save = dlrm_save_all,
                                        .evaluate = dlrm_predict_last,
                                        .show_result = dlrm_show_result,
                                        .close = dlrm_close};

int main(int argc, char **argv) {
    dlrm_program program = {.trainer = NULL};
    if (options_has(argc, argv, "predict")) return dlrm_predict_run(argc, argv);
    if (options_has(argc, argv, "make-schema")) return dlrm_make_run(argc, argv);
    return stages_run(&program.stages, &dlrm_parts, argc, argv);
}
