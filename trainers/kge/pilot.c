/* Pilots, from an open table to an MRR; and what is tried next. */
#include "trainers/kge/pilot.h"
#include "trainers/kge/eval.h"
#include "trainers/common/program.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { KGE_DAMPINGS = 2, KGE_SEARCHERS = 3 };
static const float kge_dampings[KGE_DAMPINGS] = {0.5f, -0.2f};

typedef struct kge_pilots {
    kge_options *options;
    const kge_graph *graph;
    const kge_index *known;
    uint32_t ran;
} kge_pilots;

const char *kge_pilots_lack(const kge_options *options, const kge_graph *graph) {
    const training_settings *common = &options->train.common;
    if (!options->pilots) return "none is asked for";
    if (options->saved.folder) return "the rows are those of --load";
    if (!options->fits_n3) return "--regularization is given";
    if (options->train.model.regularization <= 0) return "this model has no N3 by default";
    if (!graph->split[KGE_VALID].n) return "there are no validation triples";
    if (common->seconds > 0) return "--seconds may end the training";
    if (common->processes > 1 && training_has_gpu(common))
        return "a process that has used a GPU for them cannot start others that use one (--processes)";
    return common->steps < KGE_PILOT_LEAST ? "the training has fewer than 16 steps" : NULL;
}
_Static_assert(KGE_PILOT_LEAST == 16, "the words above");

uint64_t kge_pilot_sample(const kge_options *options) {
    return (uint64_t)KGE_PILOT_SAMPLES * options->eval_sample;
}

/* As the training, but shorter, with shorter rows.
 *
 * The square of a distance, near that of the margin, is a sum over dim, so each number of a row is as the root of 1 /
 * dim. So are the gradients of the distance, but those of N3 are as 1 / dim: as strong against them, shorter rows need
 * less N3. Where scores are products of three numbers, one weight suits any dim. */
static kge_settings kge_pilot_settings(const kge_options *options) {
    kge_settings pilot = options->train;
    uint32_t dim = pilot.model.dim;
    if (dim > KGE_PILOT_DIM) pilot.model.dim = KGE_PILOT_DIM;
    if (KGE_HAS_L2(pilot.model.kind)) pilot.model.regularization *= sqrtf((float)pilot.model.dim / (float)dim);
    training_set_pilot(&pilot.common);
    pilot.common.steps /= KGE_PILOT_PART;
    pilot.table_file = NULL;
    pilot.placing = NULL, pilot.secondaries = NULL;
    return pilot;
}

/* Ranks the sample with the rows of a trained pilot. */
static int kge_pilot_rank(const kge_pilots *pilots, const kge_settings *settings, kge_trainer *trainer,
                          kge_metrics *metrics, program_error *error) {
    const kge_options *options = pilots->options;
    const kge_split *split = &pilots->graph->split[KGE_VALID];
    kge_evaluation evaluation = {.model = &settings->model,
                                 .graph = pilots->graph,
                                 .known = pilots->known,
                                 .reader = kge_trainer_reader(trainer),
                                 .split = split,
                                 .threads = options->outputs.threads,
                                 .candidates = options->eval_candidates,
                                 .seed = settings->common.seed,
                                 .stride = kge_evaluation_stride(split, kge_pilot_sample(options))};
    return kge_evaluate(&evaluation, metrics, NULL, error);
}

/* The loss of the second half of the steps: the first steps may have a very large one. */
static int kge_pilot_train(kge_trainer *trainer, uint64_t steps, double *loss, program_error *error) {
    atomic_int never = 0; /* so far Ctrl-C simply ends the program */
    if (kge_trainer_run(trainer, steps / 2, &never, error)) return -1;
    double first = kge_trainer_total(trainer).loss * (double)(steps / 2);
    if (kge_trainer_run(trainer, steps, &never, error)) return -1;
    *loss = (kge_trainer_total(trainer).loss * (double)steps - first) / (double)(steps - steps / 2);
    return 0;
}

/* By its loss, which N3 is a part of, first steps can spoil and weights of questions change; or else by an MRR that
 * rows of zeros and random rows, which have about ln(n) / n of n entities, stay far below. */
static int kge_pilot_learns(const kge_model *model, double loss, double guess, double mrr, double entities) {
    return (model->damping == 0 && loss < KGE_LEARNED * guess) || mrr > 0.01 + 10 * log(entities) / entities;
}

static void kge_pilots_tell(const kge_model *model) {
    fprintf(stderr, "--regularization %g", (double)model->regularization);
    if (model->damping != 0) fprintf(stderr, " --damping %g", (double)model->damping);
    fputs(", ", stderr);
}

/* How good the weights of the options are: the MRR. Where nothing is learned, smaller weights are better. */
static int kge_pilot_run(kge_pilots *pilots, double *good, program_error *error) {
    kge_settings settings = kge_pilot_settings(pilots->options);
    const kge_model *model = &settings.model;
    kge_trainer *trainer;
    kge_metrics metrics = {.mrr = 0};
    double from = program_now(), loss = 0;
    if (kge_trainer_open(&trainer, &settings, pilots->graph, error)) return -1;
    int status = kge_pilot_train(trainer, settings.common.steps, &loss, error);
    if (!status && isfinite(loss)) status = kge_pilot_rank(pilots, &settings, trainer, &metrics, error);
    double guess = kge_trainer_guess_loss(trainer);
    int damps = pilots->options->fits_damping && model->damping != 0; /* an N3 that learns: judged by its MRR alone */
    int learns =
        isfinite(loss) && (damps || kge_pilot_learns(model, loss, guess, metrics.mrr, pilots->graph->entities.n));
    kge_trainer_close(trainer);
    if (status) return -1;
    *good = learns ? metrics.mrr : -(double)model->regularization;
    fprintf(stderr, "pilot %" PRIu32 ": ", ++pilots->ran);
    kge_pilots_tell(&pilots->options->train.model);
    fprintf(stderr, "%" PRIu64 " steps, dim %" PRIu32 ", ", settings.common.steps, model->dim);
    if (learns)
        fprintf(stderr, "valid MRR %.6f of %" PRIu64 " triples (%.1f s)\n", metrics.mrr, metrics.triples,
                program_now() - from);
    else
        fprintf(stderr, "loss %.4f, nothing is learned (%.1f s)\n", loss, program_now() - from);
    return 0;
}

/* Pilots of rotate lost by damping 0.5 and -0.2 on both graphs tried: WN18RR .451 without it, .434 and .445 with it;
 * FB15k-237 .311, .292 and .300. */
static int kge_pilots_try_damping(const kge_options *options) {
    return options->fits_damping && !KGE_HAS_L2(options->train.model.kind);
}

/* How many may search N3. The last ones are for damping, unless nothing is learned, or they would leave too few. */
static uint32_t kge_pilots_searching(const kge_options *options, double best) {
    uint32_t all = options->pilots;
    if (!kge_pilots_try_damping(options) || best < 0 || all <= KGE_SEARCHERS) return all;
    return all - KGE_DAMPINGS > KGE_SEARCHERS ? all - KGE_DAMPINGS : KGE_SEARCHERS;
}

/* Goes on by `way` from *factor, which has the best MRR so far, until that is no better. 1: it was better. */
static int kge_pilots_climb(kge_pilots *pilots, float way, float *factor, double *best, program_error *error) {
    double good;
    for (int moved = 0;; moved = 1) {
        if (pilots->ran >= kge_pilots_searching(pilots->options, *best)) return moved;
        kge_options_fit(pilots->options, pilots->graph, *factor * way);
        if (kge_pilot_run(pilots, &good, error)) return -1;
        if (!(good > *best)) return moved;
        *factor *= way, *best = good;
    }
}

/* By the first of kge_dampings that is better than no damping. */
static int kge_pilots_damp(kge_pilots *pilots, double best, program_error *error) {
    float *damping = &pilots->options->train.model.damping;
    double good;
    if (!kge_pilots_try_damping(pilots->options) || best < 0) return 0;
    for (int i = 0; i < KGE_DAMPINGS && pilots->ran < pilots->options->pilots; i++) {
        *damping = kge_dampings[i];
        if (kge_pilot_run(pilots, &good, error)) return -1;
        if (good > best) return 0;
    }
    *damping = 0;
    return 0;
}

int kge_pilots_run(kge_options *options, const kge_graph *graph, const kge_index *known, program_error *error) {
    kge_pilots pilots = {.options = options, .graph = graph, .known = known};
    double best;
    float factor = 1;
    if (kge_pilot_run(&pilots, &best, error)) return -1;
    int lowered = kge_pilots_climb(&pilots, 0.5f, &factor, &best, error);
    if (lowered < 0 || (!lowered && kge_pilots_climb(&pilots, 2, &factor, &best, error) < 0)) return -1;
    if (best < 0) factor = 1; /* they know nothing */
    kge_options_fit(options, graph, factor);
    if (kge_pilots_damp(&pilots, best, error)) return -1;
    kge_pilots_tell(&options->train.model);
    fprintf(stderr, "%s\n", best < 0 ? "the default: no pilot learned anything" : "which had the best pilot");
    return 0;
}
