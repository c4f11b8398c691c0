/* dlrm: trains the recommendation models of the paper on click logs with Frugal, end to end.
 *
 *     dlrm --data train.txt.gz --test 0.1           read a Criteo log, train, predict its last tenth
 *     dlrm --generate                               the same on a log made up, whose best AUC is known
 *
 * Here: options (the command line), model (the mathematics), dlrm_cuda (the same on a GPU, where it is built with
 * CUDA), train (the loop over Frugal), eval (prediction), save (files). In examples/clicks: clicks (logs; schema, ids,
 * generate and others beside it), auc. In examples/common, what programs do alike: program, options, training,
 * progress, save.
 */
#include "examples/dlrm/eval.h"
#include "examples/dlrm/options.h"
#include "examples/dlrm/save.h"
#include "examples/common/progress.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

typedef struct dlrm_program {
    dlrm_options options;
    clicks *log;
    dlrm_source source;
    dlrm_held_out held_out;
    int holds_out; /* there are held-out samples */
    dlrm_trainer *trainer;
    FILE *json;
    pthread_mutex_t stderr_lock; /* of the line, and what is written around it: by a training thread and the loader */
    progress_line line;
    progress_curve curve; /* AUC over time */
    dlrm_metrics metrics;
    double started, eval_seconds;
} dlrm_program;

/* ---- Progress ------------------------------------------------------------------------------------------ */

static void dlrm_json_report(dlrm_program *program, const dlrm_report *report) {
    char loss[40] = "null"; /* JSON has no word for what is not a number */
    if (!program->json) return;
    if (isfinite(report->loss)) snprintf(loss, sizeof loss, "%.9g", report->loss);
    fprintf(
        program->json,
        "{\"step\": %" PRIu64 ", \"samples\": %" PRIu64 ", \"seconds\": %.3f, \"samples_per_s\": %.0f, \"loss\": %s, "
        "\"stall\": %.4f, \"hit_rate\": %.4f",
        report->step, report->samples, report->seconds, report->samples_per_s, loss, report->stall, report->hit_rate);
}

static void dlrm_json_end(dlrm_program *program) {
    if (!program->json) return;
    fputs("}\n", program->json);
    fflush(program->json);
}

static void dlrm_show_report(void *user, const dlrm_report *report) {
    dlrm_program *program = user;
    uint64_t steps = program->options.train.steps;
    char of[32] = "", left[32] = "", text[192];
    if (steps) snprintf(of, sizeof of, "/%" PRIu64, steps);
    if (report->progress > 0)
        snprintf(left, sizeof left, "  %.0f s left", progress_left(report->seconds, report->progress));
    snprintf(text, sizeof text, "step %" PRIu64 "%s%s  %.0f samples/s  loss %.4f  stall %.1f%%  hits %.1f%%",
             report->step, of, left, report->samples_per_s, report->loss, 100 * report->stall, 100 * report->hit_rate);
    pthread_mutex_lock(&program->stderr_lock);
    progress_show(&program->line, text, report->seconds, report->progress >= 1);
    pthread_mutex_unlock(&program->stderr_lock);
    dlrm_json_report(program, report);
    dlrm_json_end(program);
}

/* Lines of a log that are no samples; of many the first. */
static void dlrm_tell_malformed(dlrm_program *program, const char *path, const clicks_malformed *malformed) {
    if (!malformed->lines) return;
    pthread_mutex_lock(&program->stderr_lock);
    progress_end(&program->line);
    fprintf(stderr, "%s: skipped %" PRIu64 " malformed line%s%s\n", path, malformed->lines,
            malformed->lines == 1 ? "" : "s", malformed->lines > CLICKS_TOLD ? ", of which the first are" : "");
    for (uint64_t i = 0; i < malformed->lines && i < CLICKS_TOLD; i++) fprintf(stderr, "  %s\n", malformed->what[i]);
    pthread_mutex_unlock(&program->stderr_lock);
}

/* The loader's, which has met them; those of a log that was counted are told already. */
static void dlrm_show_malformed(void *user, const clicks_malformed *malformed) {
    dlrm_program *program = user;
    dlrm_tell_malformed(program, program->options.data, malformed);
}

/* `none` where there is no area. */
static const char *dlrm_area_text(char text[16], double area, int digits, const char *none) {
    snprintf(text, 16, "%.*f", digits, area);
    return isfinite(area) ? text : none;
}

#define DLRM_NO_AREA "none (all labels are alike)"

/* ---- Prediction ---------------------------------------------------------------------------------------- */

static int dlrm_predict(dlrm_program *program, uint64_t most, dlrm_metrics *metrics, int *interrupted,
                        program_error *error) {
    dlrm_held_out held_out = program->held_out;
    double from = program_now();
    if (most && held_out.end - held_out.first > most) held_out.end = held_out.first + most;
    int status = dlrm_evaluate(program->trainer, &held_out, program->options.threads, &program_signalled, metrics,
                               interrupted, error);
    program->eval_seconds = program_now() - from;
    return status;
}

static int dlrm_check_loss(const dlrm_program *program, program_error *error) {
    const dlrm_settings *train = &program->options.train;
    if (isfinite(dlrm_trainer_total(program->trainer).loss)) return 0;
    return program_fail(error,
                        "the training diverged: its loss is no finite number, nothing is saved; use a smaller --lr (it "
                        "is %g) or --dense-lr (%g)",
                        (double)train->lr, (double)train->dense_lr);
}

/* Between two stretches of training: how well are held-out samples predicted by now? */
static int dlrm_predict_on_the_way(dlrm_program *program, program_error *error) {
    dlrm_metrics metrics;
    char area[16];
    int interrupted;
    if (dlrm_check_loss(program, error) ||
        dlrm_predict(program, program->options.eval_samples, &metrics, &interrupted, error))
        return -1;
    if (interrupted) return 0;
    dlrm_report total = dlrm_trainer_total(program->trainer);
    if (progress_add(&program->curve, total.step, total.seconds, metrics.auc, error)) return -1;
    progress_end(&program->line);
    fprintf(stderr, "step %" PRIu64 "  held-out AUC %s  log loss %.4f  (%" PRIu64 " samples, %.1f s)\n", total.step,
            dlrm_area_text(area, metrics.auc, 4, DLRM_NO_AREA), metrics.logloss, metrics.samples,
            program->eval_seconds);
    dlrm_json_report(program, &total);
    if (program->json)
        fprintf(program->json, ", \"test_auc\": %s, \"test_logloss\": %.6f",
                dlrm_area_text(area, metrics.auc, 6, "null"), metrics.logloss);
    dlrm_json_end(program);
    return 0;
}

/* ---- What is left to tell ------------------------------------------------------------------------------ */

static void dlrm_show_flushing(const dlrm_program *program, double seconds) {
    const dlrm_settings *train = &program->options.train;
    progress_setup setup = {train->mode, train->devices, train->workers, train->lookahead, seconds};
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

static double dlrm_peak_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void dlrm_json_result(dlrm_program *program, const dlrm_report *total, int predicted, double peak) {
    const dlrm_metrics *metrics = &program->metrics;
    char area[16];
    dlrm_json_report(program, total);
    if (!program->json) return;
    if (predicted)
        fprintf(program->json,
                ", \"auc\": %s, \"logloss\": %.6f, \"test_samples\": %" PRIu64 ", \"test_positives\": %" PRIu64
                ", \"eval_seconds\": %.3f",
                dlrm_area_text(area, metrics->auc, 6, "null"), metrics->logloss, metrics->samples, metrics->positives,
                program->eval_seconds);
    if (predicted && isfinite(metrics->best_auc))
        fprintf(program->json, ", \"best_auc\": %.6f, \"best_logloss\": %.6f", metrics->best_auc,
                metrics->best_logloss);
    fprintf(program->json,
            ", \"read_seconds\": %.3f, \"peak_rss_mib\": %.0f, \"interrupted\": %s, \"total_seconds\": %.3f",
            dlrm_trainer_read_seconds(program->trainer), peak, program_signalled ? "true" : "false",
            program_now() - program->started);
    dlrm_json_end(program);
}

static void dlrm_show_result(dlrm_program *program, int predicted) {
    dlrm_report total = dlrm_trainer_total(program->trainer);
    const dlrm_metrics *metrics = &program->metrics;
    char area[16];
    double peak = dlrm_peak_mib(), read = dlrm_trainer_read_seconds(program->trainer);
    if (program->curve.n || program->options.generate) {
        progress_show_curve(&program->curve, "held-out AUC", 0.5);
        dlrm_show_flushing(program, total.seconds);
        putchar('\n');
    }
    printf("%s: %" PRIu64 " steps, %" PRIu64
           " samples in %.1f s, %.0f samples/s, loss %.4f, stall %.1f%%, hits %.1f%%, "
           "reading busy %.1f%%",
           dlrm_model_name(program->options.train.model.kind), total.step, total.samples, total.seconds,
           total.samples_per_s, total.loss, 100 * total.stall, 100 * total.hit_rate,
           total.seconds > 0 ? 100 * read / total.seconds : 0);
    if (predicted)
        printf("; test AUC %s  log loss %.4f", dlrm_area_text(area, metrics->auc, 4, DLRM_NO_AREA), metrics->logloss);
    if (predicted && isfinite(metrics->best_auc))
        printf(" (best possible: %.4f, %.4f)", metrics->best_auc, metrics->best_logloss);
    if (predicted) printf(" (%.1f s)", program->eval_seconds);
    printf("; peak RSS %.0f MiB; %.1f s in all\n", peak, program_now() - program->started);
    dlrm_json_result(program, &total, predicted, peak);
}

/* ---- The program --------------------------------------------------------------------------------------- */

/* Which samples train, which are held out; counts them where that is needed. */
static int dlrm_split(dlrm_program *program, program_error *error) {
    const dlrm_options *options = &program->options;
    uint64_t samples = 0, held_out = 0;
    int count = options->test_share > 0 || options->decay_wanted || options->generate;
    clicks_malformed malformed = {0};
    if (count && clicks_count(program->log, options->data, &samples, &malformed, error)) return -1;
    dlrm_tell_malformed(program, options->data, &malformed);
    if (count) held_out = (uint64_t)(options->test_share * (double)samples + 0.5);
    if (count && !samples) return program_fail(error, "%.200s has no samples; give another file", options->data);
    if (options->test_share > 0 && (held_out == 0 || held_out == samples))
        return program_fail(error, "--test %g of %" PRIu64 " samples leaves %s; use another share", options->test_share,
                            samples, held_out ? "none to train on" : "none held out");
    program->source = (dlrm_source){.log = program->log,
                                    .path = options->data,
                                    .end = count ? samples - held_out : UINT64_MAX,
                                    .malformed = count ? NULL : dlrm_show_malformed,
                                    .user = program};
    program->held_out =
        (dlrm_held_out){.log = program->log, .path = options->data, .first = samples - held_out, .end = samples};
    if (options->test) program->held_out = (dlrm_held_out){program->log, options->test, 0, UINT64_MAX};
    program->holds_out = options->test || held_out;
    return 0;
}

/* A log made up is for watching: six evaluations. */
static void dlrm_set_evaluations(dlrm_program *program) {
    dlrm_options *options = &program->options;
    const dlrm_settings *train = &options->train;
    if (options->eval_every != DLRM_EVAL_UNSET) return;
    uint64_t batch = (uint64_t)train->batch * train->devices;
    uint64_t pass = (program->source.end + batch - 1) / batch, most = UINT64_MAX / 2;
    uint64_t steps = pass && train->epochs > most / pass ? most : pass * train->epochs;
    if (train->steps && train->steps < steps) steps = train->steps;
    options->eval_every = program->holds_out ? (steps + 5) / 6 : 0;
}

/* A pipe can be read once: by the loader, in one pass. */
static int dlrm_check_pipe(const dlrm_options *options, program_error *error) {
    struct stat is;
    if (!options->data || stat(options->data, &is) || S_ISREG(is.st_mode) || S_ISDIR(is.st_mode)) return 0;
    const char *twice = options->guess                             ? "--format auto"
                        : options->test_share > 0                  ? "a share as --test"
                        : options->clicks.ids == CLICKS_VOCABULARY ? "--ids vocabulary"
                        : options->decay_wanted                    ? "--lr-decay linear"
                        : options->train.epochs > 1                ? "--epochs of more than 1"
                                                                   : NULL;
    if (!twice) return 0;
    return program_fail(error, "--data %.200s is no file that can be read twice, as %s needs it; write it to one",
                        options->data, twice);
}

static int dlrm_read_log(dlrm_program *program, program_error *error) {
    dlrm_options *options = &program->options;
    dlrm_model *model = &options->train.model;
    if (dlrm_check_pipe(options, error)) return -1;
    if (options->guess && clicks_guess(options->data, &options->clicks.format, error)) return -1;
    if (clicks_open(&program->log, &options->clicks, error) || dlrm_split(program, error)) return -1;
    if (options->clicks.ids == CLICKS_VOCABULARY) fprintf(stderr, "making vocabularies\n");
    if (clicks_prepare(program->log, options->data, program->source.end, error)) return -1;
    model->numbers = clicks_numbers(program->log);
    model->features = clicks_features(program->log);
    double rows = 0;
    for (uint32_t i = 0; i < model->features; i++) rows += (double)clicks_rows(program->log, i);
    fprintf(stderr, "%u numbers, %u features of %.0f rows in all", model->numbers, model->features, rows);
    if (program->source.end != UINT64_MAX) fprintf(stderr, ", %" PRIu64 " samples to train on", program->source.end);
    if (program->holds_out && program->held_out.end != UINT64_MAX)
        fprintf(stderr, ", %" PRIu64 " held out", program->held_out.end - program->held_out.first);
    fputc('\n', stderr);
    if (program->source.end == UINT64_MAX && !options->train.steps) options->train.decay = 0; /* no end to fall to */
    return 0;
}

/* A missing or empty --test shall not be found after hours of training. What is no file may be readable once only. */
static int dlrm_check_test(dlrm_program *program, program_error *error) {
    const char *path = program->options.test;
    struct stat is;
    clicks_reader *reader = NULL;
    clicks_batch sample;
    if (!path || (!stat(path, &is) && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode))) return 0;
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

static int dlrm_is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return b && !stat(a, &x) && S_ISREG(x.st_mode) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int dlrm_json_open(dlrm_program *program, program_error *error) {
    const dlrm_options *options = &program->options;
    const char *const kept[] = {options->data, options->test, options->clicks.schema, options->train.table_file};
    if (!options->json) return 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (dlrm_is_same_file(options->json, kept[i]))
            return program_fail(error, "--json would overwrite %.200s, which is in use; give another file", kept[i]);
    program->json = fopen(options->json, "w");
    return program->json ? 0 : program_fail(error, "cannot write '%.200s': %s", options->json, strerror(errno));
}

/* Everything that can be refused is refused before training begins. */
static int dlrm_prepare(dlrm_program *program, program_error *error) {
    const dlrm_options *options = &program->options;
    size_t threads = options->train.devices > options->threads ? options->train.devices : options->threads;
    if (dlrm_read_log(program, error) || dlrm_check_test(program, error)) return -1;
    dlrm_set_evaluations(program);
    if (dlrm_trainer_open(&program->trainer, &options->train, &program->source, error)) return -1;
    if (program_reserve_products(threads, "use fewer --devices or --threads", error)) return -1;
    if (options->save && dlrm_save_prepare(options->save, error)) return -1;
    return dlrm_json_open(program, error);
}

static int dlrm_train(dlrm_program *program, program_error *error) {
    const dlrm_options *options = &program->options;
    double report_seconds = options->report_seconds >= 0 ? options->report_seconds : 1;
    dlrm_trainer_report_to(program->trainer, dlrm_show_report, program, report_seconds);
    for (uint64_t until = 0; !dlrm_trainer_done(program->trainer) && !program_signalled;) {
        until = options->eval_every ? until + options->eval_every : UINT64_MAX;
        if (dlrm_trainer_run(program->trainer, until, &program_signalled, error)) return -1;
        uint64_t step = dlrm_trainer_total(program->trainer).step; /* as before, where the samples ended with the run */
        int moved = !program->curve.n || step > program->curve.moments[program->curve.n - 1].step;
        if (options->eval_every && moved && !program_signalled && dlrm_predict_on_the_way(program, error)) return -1;
    }
    dlrm_trainer_report(program->trainer);
    progress_end(&program->line);
    return 0;
}

static int dlrm_run(dlrm_program *program, program_error *error) {
    const dlrm_options *options = &program->options;
    int interrupted = 0;
    if (dlrm_prepare(program, error)) return -1;
    program_catch_signals(); /* not before: what is cut short there has nothing to save */
    if (dlrm_train(program, error)) return -1;
    dlrm_report total = dlrm_trainer_total(program->trainer);
    if (program_signalled)
        fprintf(stderr, "stopped by %s after step %" PRIu64 "; %s\n", program_signal(), total.step,
                program->holds_out ? "the evaluation is left out" : "nothing else is left out");
    if (!total.samples && options->train.epochs && !options->train.seconds && !program_signalled)
        return program_fail(error, "%.200s has no samples to train on; nothing is saved", options->data);
    if (dlrm_check_loss(program, error)) return -1;
    if (options->save && dlrm_save(options->save, program->trainer, program->log, error)) return -1;
    int was_signalled = program_signalled;
    program_release_signals(); /* all is saved: from here on Ctrl-C simply ends */
    int predicted = program->holds_out && !was_signalled;
    if (predicted && dlrm_predict(program, 0, &program->metrics, &interrupted, error)) return -1;
    if (predicted && options->test) dlrm_tell_malformed(program, options->test, &program->metrics.malformed);
    dlrm_show_result(program, predicted && !interrupted);
    return program_flush(program->json, options->json, error) || program_flush(stdout, "the result", error) ? -1 : 0;
}

static int dlrm_close(dlrm_program *program, program_error *error) {
    dlrm_trainer_close(program->trainer);
    clicks_close(program->log);
    progress_free(&program->curve);
    if (program->json && fclose(program->json))
        return program_fail(error, "cannot write %s: %s", program->options.json, strerror(errno));
    return 0;
}

int main(int argc, char **argv) {
    program_open_streams();
    dlrm_program program = {.started = program_now(), .stderr_lock = PTHREAD_MUTEX_INITIALIZER};
    program_error error, closing;
    openblas_set_num_threads(1); /* a product is one thread's: results do not depend on how many there are */
    if (dlrm_options_parse(&program.options, argc, argv, &error)) {
        fprintf(stderr, "dlrm: %s\n", error.text);
        return 2;
    }
    if (program.options.help) {
        dlrm_options_help();
        if (!program_flush(stdout, "the help", &error)) return 0;
        fprintf(stderr, "dlrm: %s\n", error.text);
        return 1;
    }
    program.line = progress_begin(program.options.report_seconds);
    int status = dlrm_run(&program, &error);
    progress_end(&program.line);
    if (status) fprintf(stderr, "dlrm: %s\n", error.text);
    if (dlrm_close(&program, &closing) && !status) {
        fprintf(stderr, "dlrm: %s\n", closing.text);
        status = -1;
    }
    return status ? 1 : 0;
}
