/* kge: trains the knowledge graph models of the paper on Frugal, end to end.
 *
 *     kge --data fb15k-237                  read, train, rank the test triples
 *     kge --generate --devices 2            the same on a graph made up
 *
 * Here: options (the command line), data and generate (graphs), sample (batches), model (scores, losses, gradients),
 * kge_cuda (the same on a GPU, where it is built with CUDA), train (the loop over Frugal), eval (ranking), save
 * (names).
 * In examples/common, what programs do alike: program (errors, signals, streams), options (tables of options),
 * training (statuses in words, threads, a clock), progress (the line that tells), save (files), vector.h (loops over
 * floats).
 */
#include "examples/kge/eval.h"
#include "examples/kge/options.h"
#include "examples/kge/save.h"
#include "examples/common/progress.h"
#include "examples/common/save.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kge_program {
    kge_options options;
    kge_graph graph;
    kge_index known;
    kge_trainer *trainer;
    float *table[2]; /* copies of entities and relations, for ranking and saving */
    FILE *json;
    int interrupted; /* the signal that ended the training, or 0 */
    progress_line line;
    progress_curve curve; /* valid MRR over time */
    kge_metrics metrics;
    double started, eval_seconds;
} kge_program;

/* ---- Progress ------------------------------------------------------------------------------------------ */

static void kge_json_report(kge_program *program, const kge_report *report) {
    char loss[40] = "null"; /* JSON has no word for what is not a number */
    if (!program->json) return;
    if (isfinite(report->loss)) snprintf(loss, sizeof loss, "%.6f", report->loss);
    fprintf(program->json,
            "{\"step\": %" PRIu64 ", \"seconds\": %.3f, \"triples_per_s\": %.0f, \"loss\": %s, \"stall\": %.4f, "
            "\"hit_rate\": %.4f",
            report->step, report->seconds, report->triples_per_s, loss, report->stall, report->hit_rate);
}

static void kge_show_progress(kge_program *program, const kge_report *report) {
    uint64_t steps = program->options.train.steps;
    char of[32] = "", line[160];
    if (steps) snprintf(of, sizeof of, "/%" PRIu64, steps);
    snprintf(line, sizeof line, "step %" PRIu64 "%s  %.0f s left  %.0f triples/s  loss %.4f  stall %.1f%%  hits %.1f%%",
             report->step, of, progress_left(report->seconds, report->progress), report->triples_per_s, report->loss,
             100 * report->stall, 100 * report->hit_rate);
    progress_show(&program->line, line, report->seconds, report->progress >= 1);
}

static void kge_show_report(void *user, const kge_report *report) {
    kge_program *program = user;
    kge_show_progress(program, report);
    kge_json_report(program, report);
    if (program->json) {
        fputs("}\n", program->json);
        fflush(program->json);
    }
}

/* ---- Ranking ------------------------------------------------------------------------------------------- */

static int kge_copy_tables(kge_program *program, program_error *error) {
    for (uint32_t i = 0; i < 2; i++)
        if (kge_trainer_read(program->trainer, i, program->table[i], error)) return -1;
    return 0;
}

static int kge_rank_split(kge_program *program, int which, uint32_t sample, kge_metrics *metrics,
                          program_error *error) {
    const kge_split *split = &program->graph.split[which];
    kge_evaluation evaluation = {.model = &program->options.train.model,
                                 .graph = &program->graph,
                                 .known = &program->known,
                                 .entities = program->table[0],
                                 .relations = program->table[1],
                                 .split = split,
                                 .threads = program->options.threads,
                                 .stride = sample && split->n > sample ? (uint32_t)(split->n / sample) : 1};
    double from = program_now();
    int status = kge_copy_tables(program, error) ? -1 : kge_evaluate(&evaluation, metrics, NULL, error);
    program->eval_seconds = program_now() - from;
    return status;
}

/* Between two stretches of training: how well are valid triples ranked by now? */
static int kge_rank_on_the_way(kge_program *program, program_error *error) {
    kge_metrics metrics;
    if (kge_rank_split(program, KGE_VALID, program->options.eval_sample, &metrics, error)) return -1;
    kge_report total = kge_trainer_total(program->trainer);
    if (progress_add(&program->curve, total.step, total.seconds, metrics.mrr, error)) return -1;
    progress_end(&program->line);
    fprintf(stderr, "step %" PRIu64 "  valid MRR %.4f  hits@10 %.4f  (%" PRIu64 " triples, %.1f s)\n", total.step,
            metrics.mrr, metrics.hits10, metrics.triples, program->eval_seconds);
    if (program->json) {
        kge_json_report(program, &total);
        fprintf(program->json, ", \"valid_mrr\": %.6f, \"valid_hits10\": %.6f}\n", metrics.mrr, metrics.hits10);
        fflush(program->json);
    }
    return 0;
}

/* ---- What is left to tell ------------------------------------------------------------------------------ */

static void kge_show_flushing(const kge_program *program) {
    frugal_stats stats;
    const kge_settings *train = &program->options.train;
    kge_trainer_stats(program->trainer, &stats);
    progress_show_flushing(&stats, &(progress_setup){.mode = train->mode,
                                                     .devices = train->devices,
                                                     .workers = train->workers,
                                                     .lookahead = train->lookahead,
                                                     .seconds = kge_trainer_total(program->trainer).seconds});
}

static void kge_show_result(kge_program *program, int ranked) {
    const kge_options *options = &program->options;
    kge_report total = kge_trainer_total(program->trainer);
    const kge_metrics *metrics = &program->metrics;
    if (program->curve.n || options->generate) {
        progress_show_curve(&program->curve, "valid MRR", 0);
        kge_show_flushing(program);
        putchar('\n');
    }
    printf("%s: %" PRIu64 " steps in %.1f s, %.0f triples/s, loss %.4f, stall %.1f%%, hits %.1f%%",
           kge_model_name(options->train.model.kind), total.step, total.seconds, total.triples_per_s, total.loss,
           100 * total.stall, 100 * total.hit_rate);
    if (ranked)
        printf("; %s MRR %.4f  MR %.1f  hits@1 %.4f  hits@3 %.4f  hits@10 %.4f (%.1f s)",
               options->evaluate == KGE_VALID ? "valid" : "test", metrics->mrr, metrics->mr, metrics->hits1,
               metrics->hits3, metrics->hits10, program->eval_seconds);
    printf("; %.1f s in all\n", program_now() - program->started);
    kge_json_report(program, &total);
    if (!program->json) return;
    if (ranked)
        fprintf(program->json,
                ", \"split\": \"%s\", \"mrr\": %.6f, \"mr\": %.3f, \"hits1\": %.6f, \"hits3\": %.6f, "
                "\"hits10\": %.6f, "
                "\"eval_seconds\": %.3f",
                options->evaluate == KGE_VALID ? "valid" : "test", metrics->mrr, metrics->mr, metrics->hits1,
                metrics->hits3, metrics->hits10, program->eval_seconds);
    fprintf(program->json, ", \"interrupted\": %s, \"total_seconds\": %.3f}\n", program_signalled ? "true" : "false",
            program_now() - program->started);
}

static int kge_save_files(kge_program *program, const char *const *file, program_error *error) {
    const char *folder = program->options.save;
    const kge_model *model = &program->options.train.model;
    for (uint32_t i = 0; i < 2; i++)
        if (save_rows(folder, file[i], kge_trainer_rows(program->trainer, i), model->dim, program->table[i], error))
            return -1;
    if (kge_save_names(folder, file[2], &program->graph.entities, 0, error) ||
        kge_save_names(folder, file[3], &program->graph.relations, model->reciprocal, error))
        return -1;
    return save_publish(folder, file, 4, error);
}

static int kge_save(kge_program *program, program_error *error) {
    static const char *const file[] = {"entities.npy", "relations.npy", "entity2id.txt", "relation2id.txt"};
    const char *folder = program->options.save;
    if (!folder) return 0;
    if (kge_copy_tables(program, error)) return -1;
    int status = kge_save_files(program, file, error);
    if (status)
        save_discard(folder, file, 4);
    else
        fprintf(stderr, "saved to %s: %s, %s, %s, %s\n", folder, file[0], file[1], file[2], file[3]);
    return status;
}

/* ---- The program --------------------------------------------------------------------------------------- */

/* Before training, so that a wrong name costs nothing; after reading, so that wrong data costs no earlier result. */
static int kge_open_outputs(kge_program *program, program_error *error) {
    const kge_options *options = &program->options;
    if (options->save && save_prepare(options->save, "entities.npy", error)) return -1;
    if (options->json && !(program->json = fopen(options->json, "w")))
        return program_fail(error, "cannot write '%s': %s", options->json, strerror(errno));
    return 0;
}

/* Everything that can be refused is refused before training begins. */
static int kge_prepare(kge_program *program, program_error *error) {
    kge_options *options = &program->options;
    int status = options->data ? kge_graph_read(&program->graph, options->data, error)
                               : kge_graph_generate(&program->graph, &options->generator, error);
    if (status) return -1;
    const kge_split *split = program->graph.split;
    fprintf(stderr, "%" PRIu32 " entities, %" PRIu32 " relations, %" PRIu64 " / %" PRIu64 " / %" PRIu64 " triples\n",
            program->graph.entities.n, program->graph.relations.n, split[KGE_TRAIN].n, split[KGE_VALID].n,
            split[KGE_TEST].n);
    for (int i = KGE_VALID; i < KGE_SPLITS; i++)
        if (!split[i].n)
            fprintf(stderr, "no %s triples: rankings are not filtered by them\n", i == KGE_VALID ? "valid" : "test");
    int wanted[] = {options->evaluate, options->eval_every ? KGE_VALID : -1};
    for (int i = 0; i < 2; i++)
        if (wanted[i] >= 0 && !split[wanted[i]].n)
            return program_fail(error, "%s has no %s triples to rank; use --eval none%s",
                                options->data ? options->data : "the graph", wanted[i] == KGE_VALID ? "valid" : "test",
                                i ? " and no --eval-every" : "");
    if ((wanted[0] >= 0 || wanted[1] >= 0) && kge_index_build(&program->known, &program->graph, error)) return -1;
    if (kge_trainer_open(&program->trainer, &options->train, &program->graph, error)) return -1;
    for (uint32_t i = 0; i < 2; i++) {
        size_t bytes = kge_trainer_rows(program->trainer, i) * options->train.model.dim * sizeof(float);
        program->table[i] = malloc(bytes);
        if (!program->table[i])
            return program_fail(error, "out of memory for a copy of the embeddings (%zu bytes)", bytes);
    }
    uint32_t threads = options->train.devices > options->threads ? options->train.devices : options->threads;
    if (program_reserve_products(threads, "use fewer --devices or --threads", error)) return -1;
    return kge_open_outputs(program, error);
}

static int kge_train(kge_program *program, program_error *error) {
    kge_options *options = &program->options;
    double report_seconds = options->report_seconds >= 0 ? options->report_seconds : 1;
    kge_trainer_report_to(program->trainer, kge_show_report, program, report_seconds);
    uint64_t until = 0;
    while (!kge_trainer_done(program->trainer)) {
        until = options->eval_every ? until + options->eval_every : UINT64_MAX;
        if (kge_trainer_run(program->trainer, until, &program_signalled, error)) return -1;
        if (options->eval_every && !program_signalled && kge_rank_on_the_way(program, error)) return -1;
    }
    kge_trainer_report(program->trainer);
    progress_end(&program->line);
    return 0;
}

static int kge_run(kge_program *program, program_error *error) {
    const kge_options *options = &program->options;
    if (kge_prepare(program, error) || kge_train(program, error)) return -1;
    if (program_signalled)
        fprintf(stderr, "stopped by %s after step %" PRIu64 "; %s\n", program_signal(),
                kge_trainer_total(program->trainer).step,
                options->evaluate >= 0 ? "the evaluation is left out" : "nothing else is left out");
    if (!isfinite(kge_trainer_total(program->trainer).loss))
        return program_fail(
            error,
            "the training diverged: its loss is no finite number, nothing is saved; use a smaller --lr (it is %g)",
            (double)options->train.lr);
    if (kge_save(program, error)) return -1;
    program->interrupted = program_signalled;
    program_release_signals(); /* all is saved: from here on Ctrl-C simply ends */
    int ranked = options->evaluate >= 0 && !program->interrupted;
    if (ranked && kge_rank_split(program, options->evaluate, 0, &program->metrics, error)) return -1;
    kge_show_result(program, ranked);
    return program_flush(program->json, options->json, error) || program_flush(stdout, "the result", error) ? -1 : 0;
}

static int kge_close(kge_program *program, program_error *error) {
    int status = 0;
    kge_trainer_close(program->trainer);
    kge_index_free(&program->known);
    kge_graph_free(&program->graph);
    free(program->table[0]);
    free(program->table[1]);
    progress_free(&program->curve);
    if (program->json && fclose(program->json))
        status = program_fail(error, "cannot write %s: %s", program->options.json, strerror(errno));
    return status;
}

int main(int argc, char **argv) {
    program_open_streams();
    kge_program program = {.started = program_now()};
    program_error error;
    openblas_set_num_threads(1); /* a product is one thread's: results do not depend on how many there are */
    if (kge_options_parse(&program.options, argc, argv, &error)) {
        fprintf(stderr, "kge: %s\n", error.text);
        return 2;
    }
    if (program.options.help) {
        kge_options_help();
        return 0;
    }
    program.line = progress_begin(program.options.report_seconds);
    program_catch_signals();
    int status = kge_run(&program, &error);
    if (status) {
        progress_end(&program.line);
        fprintf(stderr, "kge: %s\n", error.text);
    }
    program_error closing;
    if (kge_close(&program, &closing) && !status) {
        fprintf(stderr, "kge: %s\n", closing.text);
        status = -1;
    }
    return status ? 1 : 0;
}
