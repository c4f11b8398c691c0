/* Evaluation: scores, and what they are worth. */
#include "examples/dlrm/eval.h"
#include "examples/clicks/auc.h"
#include "examples/common/training.h"

#include <math.h>

typedef struct dlrm_evaluation {
    auc *scores, *truths; /* truths NULL: there are none */
    dlrm_seen *seen;      /* NULL: it is not known */
    clicks_malformed malformed;
} dlrm_evaluation;

static int dlrm_read_trained(void *trainer, uint32_t instance, const frugal_keys *keys, float *rows,
                             program_error *error) {
    if (!frugal_read_rows(dlrm_trainer_tables(trainer, instance), keys, rows, NULL)) return 0;
    return training_fail("cannot read the embeddings", error);
}

static int dlrm_take_scores(void *taker, const clicks_batch *batch, const float *logits, program_error *error) {
    dlrm_evaluation *e = taker;
    if (auc_add(e->scores, logits, batch->labels, batch->n, error)) return -1;
    if (e->seen) dlrm_seen_count(e->seen, batch);
    return e->truths ? auc_add(e->truths, batch->truth, batch->labels, batch->n, error) : 0;
}

/* Of the share p of ones, as a prediction for all. */
static double dlrm_constant_loss(double p) {
    return p > 0 && p < 1 ? -p * log(p) - (1 - p) * log1p(-p) : 0;
}

static int dlrm_measure(dlrm_evaluation *e, dlrm_metrics *metrics, program_error *error) {
    dlrm_metrics m = {.auc = NAN, .best_auc = NAN, .best_logloss = NAN};
    m.samples = auc_samples(e->scores), m.positives = auc_positives(e->scores);
    m.malformed = e->malformed;
    m.constant = m.samples ? dlrm_constant_loss((double)m.positives / (double)m.samples) : 0;
    if (e->seen) m.unseen = dlrm_seen_unseen(e->seen);
    int alike = m.positives == 0 || m.positives == m.samples; /* as in the first samples of a sorted log */
    if (auc_log_loss(e->scores, &m.logloss, error)) return -1;
    if (!alike && auc_area(e->scores, &m.auc, error)) return -1;
    if (e->truths && auc_log_loss(e->truths, &m.best_logloss, error)) return -1;
    if (e->truths && !alike && auc_area(e->truths, &m.best_auc, error)) return -1;
    *metrics = m;
    return 0;
}

dlrm_score_desc dlrm_trainer_scores(dlrm_trainer *trainer) {
    return (dlrm_score_desc){.model = dlrm_trainer_model(trainer),
                             .parameters = dlrm_trainer_parameters(trainer),
                             .read_rows = dlrm_read_trained,
                             .tables = trainer};
}

int dlrm_evaluate(dlrm_trainer *trainer, const dlrm_samples *held_out, uint32_t threads, atomic_int *stop,
                  dlrm_metrics *metrics, program_error *error) {
    dlrm_evaluation e = {.seen = dlrm_trainer_settings(trainer)->seen};
    dlrm_score_desc desc = dlrm_trainer_scores(trainer);
    desc.samples = *held_out, desc.threads = threads, desc.stop = stop, desc.take = dlrm_take_scores, desc.taker = &e;
    int status =
        auc_open(&e.scores, error) || (clicks_is_generated(held_out->log) && auc_open(&e.truths, error)) ? -1 : 0;
    if (e.seen) dlrm_seen_begin(e.seen);
    if (!status) status = dlrm_score(&desc, &e.malformed, error);
    *metrics = (dlrm_metrics){.interrupted = atomic_load(stop) != 0};
    if (!status && !metrics->interrupted) status = dlrm_measure(&e, metrics, error);
    auc_close(e.scores);
    auc_close(e.truths);
    return status;
}
