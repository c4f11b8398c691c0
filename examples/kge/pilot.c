/* Pilots, from an open table to an MRR; and which weight is tried next. */
#include "examples/kge/pilot.h"
#include "examples/kge/eval.h"
#include "examples/common/program.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kge_pilots {
    kge_options *options;
    const kge_graph *graph;
    const kge_index *known;
    uint32_t ran;
} kge_pilots;

int kge_pilots_wanted(const kge_options *options, const kge_graph *graph) {
    int chooses = options->fits_entities && options->train.model.regularization > 0;
    return chooses && options->pilots && graph->split[KGE_VALID].n && options->train.common.steps >= KGE_PILOT_PART;
}

/* What changes no bits of the training is left at its default, except the number of workers. */
static kge_settings kge_pilot_settings(const kge_options *options) {
    kge_settings pilot = options->train;
    if (pilot.model.dim > KGE_PILOT_DIM) pilot.model.dim = KGE_PILOT_DIM;
    training_settings *common = &pilot.common;
    common->steps /= KGE_PILOT_PART;
    common->seconds = common->cache = common->secondaries = 0;
    common->processes = 1;
    memset(common->gpu, 0, sizeof common->gpu);
    common->mode = FRUGAL_P2F, common->alone = FRUGAL_ALONE_DEFAULT;
    common->place = common->trace = NULL;
    pilot.placing = NULL, pilot.secondaries = NULL;
    return pilot;
}

/* Ranks the sample with the rows of a trained pilot. */
static int kge_pilot_rank(const kge_pilots *pilots, const kge_settings *settings, kge_trainer *trainer,
                          kge_metrics *metrics, program_error *error) {
    const kge_options *options = pilots->options;
    const kge_split *split = &pilots->graph->split[KGE_VALID];
    size_t floats[2];
    for (uint32_t i = 0; i < 2; i++) floats[i] = (size_t)kge_trainer_rows(trainer, i) * settings->model.dim;
    float *rows = malloc((floats[0] + floats[1]) * sizeof *rows);
    if (!rows)
        return program_fail(error, "out of memory for the embeddings of a pilot (%zu bytes); use --pilots 0",
                            (floats[0] + floats[1]) * sizeof *rows);
    kge_evaluation evaluation = {.model = &settings->model,
                                 .graph = pilots->graph,
                                 .known = pilots->known,
                                 .entities = rows,
                                 .relations = rows + floats[0],
                                 .split = split,
                                 .threads = options->outputs.threads,
                                 .stride =
                                     split->n > options->eval_sample ? (uint32_t)(split->n / options->eval_sample) : 1};
    int status = kge_trainer_read(trainer, 0, rows, error) || kge_trainer_read(trainer, 1, rows + floats[0], error) ||
                 kge_evaluate(&evaluation, metrics, NULL, error);
    free(rows);
    return status ? -1 : 0;
}

/* How good the weights of the options are: the MRR. Where nothing is learned, and the loss is that of guessing, less
 * weight is better. */
static int kge_pilot_run(kge_pilots *pilots, double *good, program_error *error) {
    kge_settings settings = kge_pilot_settings(pilots->options);
    const kge_model *model = &settings.model;
    kge_trainer *trainer;
    kge_metrics metrics = {.mrr = 0};
    double from = program_now();
    if (kge_trainer_open(&trainer, &settings, pilots->graph, error)) return -1;
    int status = kge_trainer_run(trainer, settings.common.steps, &program_signalled, error);
    double loss = kge_trainer_total(trainer).loss;
    int learns = !status && loss < KGE_LEARNED * kge_trainer_guess_loss(trainer);
    if (learns) status = kge_pilot_rank(pilots, &settings, trainer, &metrics, error);
    kge_trainer_close(trainer);
    if (status) return -1;
    *good = learns ? metrics.mrr : -(double)model->regularization;
    fprintf(stderr, "pilot %" PRIu32 ": --regularization %g, %" PRIu64 " steps, dim %" PRIu32 ", ", ++pilots->ran,
            (double)model->regularization, settings.common.steps, model->dim);
    if (learns)
        fprintf(stderr, "valid MRR %.4f (%.1f s)\n", metrics.mrr, program_now() - from);
    else
        fprintf(stderr, "loss %.4f, nothing is learned (%.1f s)\n", loss, program_now() - from);
    return 0;
}

int kge_pilots_run(kge_options *options, const kge_graph *graph, const kge_index *known, program_error *error) {
    static const float ways[] = {0.5f, 2};
    kge_pilots pilots = {.options = options, .graph = graph, .known = known};
    double best, good;
    float factor = 1;
    if (kge_pilot_run(&pilots, &best, error)) return -1;
    for (int i = 0; i < 2 && (i == 0 || factor == 1); i++)
        for (float next = factor * ways[i]; pilots.ran < options->pilots; next *= ways[i]) {
            kge_options_fit(options, graph, next);
            if (kge_pilot_run(&pilots, &good, error)) return -1;
            if (!(good > best)) break;
            factor = next, best = good;
        }
    if (best < 0) factor = 1; /* they know nothing */
    kge_options_fit(options, graph, factor);
    fprintf(stderr, "--regularization %g, %s %" PRIu32 " pilots\n", (double)options->train.model.regularization,
            best < 0 ? "the default, as nothing was learned by any of" : "the best of", pilots.ran);
    return 0;
}
