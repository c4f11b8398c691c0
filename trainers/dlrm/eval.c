/* Evaluation: scores, and what they are worth. */
#include "trainers/dlrm/eval.h"
#include "trainers/clicks/auc.h"
#include "trainers/common/ranks.h"
#include "trainers/common/training.h"
#include "trainers/dlrm/tables.h"

#include <math.h>
#include <pthread.h>

typedef struct dlrm_evaluation {
    auc *scores, *truths; /* truths NULL: there are none */
    dlrm_seen *seen;      /* NULL: it is not known */
    clicks_malformed malformed;
} dlrm_evaluation;

/* Of several machines rank 0 evaluates, and the others give it their rows. Before each reading it says of which
 * instance, so that all call frugal_read_rows alike. Its threads read one after the other. */
enum { DLRM_ENOUGH = DLRM_INSTANCES }; /* in place of an instance: nothing more is read */
static pthread_mutex_t dlrm_asking = PTHREAD_MUTEX_INITIALIZER;

static frugal_status dlrm_ask(dlrm_trainer *trainer, uint32_t what, uint32_t *asked) {
    uint32_t all[FRUGAL_MAX_MACHINES];
    frugal_status status = frugal_exchange(dlrm_trainer_tables(trainer, 0), &what, sizeof what, all);
    *asked = all[0];
    return status;
}

static int dlrm_give_rows(dlrm_trainer *trainer, program_error *error) {
    const uint64_t none = 0;
    for (;;) {
        uint32_t asked = DLRM_ENOUGH;
        frugal_status status = dlrm_ask(trainer, 0, &asked);
        if (!status && asked == DLRM_ENOUGH) return 0;
        if (!status)
            status = frugal_read_rows(dlrm_trainer_tables(trainer, asked), &(frugal_keys){.keys = &none}, NULL, NULL);
        if (status) return training_fail("cannot give another machine its embeddings", error);
    }
}

static frugal_status dlrm_read_dealt(dlrm_trainer *trainer, uint32_t instance, const frugal_keys *keys, float *rows) {
    uint32_t asked;
    pthread_mutex_lock(&dlrm_asking);
    frugal_status status = dlrm_ask(trainer, instance, &asked);
    if (!status) status = frugal_read_rows(dlrm_trainer_tables(trainer, instance), keys, rows, NULL);
    pthread_mutex_unlock(&dlrm_asking);
    return status;
}

static int dlrm_read_trained(void *trainer, uint32_t instance, const frugal_keys *keys, float *rows,
                             program_error *error) {
    frugal_status status = ranks_all() > 1 ? dlrm_read_dealt(trainer, instance, keys, rows)
                                           : frugal_read_rows(dlrm_trainer_tables(trainer, instance), keys, rows, NULL);
    return status ? training_fail("cannot read the embeddings", error) : 0;
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

static int dlrm_evaluate_here(dlrm_trainer *trainer, const dlrm_samples *held_out, uint32_t threads, atomic_int *stop,
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

int dlrm_evaluate(dlrm_trainer *trainer, const dlrm_samples *held_out, uint32_t threads, atomic_int *stop,
                  dlrm_metrics *metrics, program_error *error) {
    uint32_t asked;
    *metrics = (dlrm_metrics){.auc = NAN, .best_auc = NAN, .best_logloss = NAN};
    if (ranks_number()) return dlrm_give_rows(trainer, error);
    int status = dlrm_evaluate_here(trainer, held_out, threads, stop, metrics, error);
    if (ranks_all() > 1 && dlrm_ask(trainer, DLRM_ENOUGH, &asked) && !status)
        status = training_fail("cannot tell the other machines that the evaluation is over", error);
    return status;
}
