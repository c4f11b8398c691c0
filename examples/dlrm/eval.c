/* Evaluation: a reader, threads that score, and scores added in the order of the samples. */
#include "examples/dlrm/eval.h"
#include "examples/clicks/auc.h"
#include "examples/clicks/bags.h"
#include "examples/common/training.h"
#include "examples/common/vector.h"
#include "src/arithmetic.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DLRM_BLOCK 1024 /* samples a turn */
#define DLRM_PIECE 1024 /* rows of bags that are read at a time */

typedef struct dlrm_scoring {
    dlrm_trainer *trainer;
    const dlrm_held_out *held_out;
    atomic_int *stop;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t turn;
    clicks_reader *reader;
    uint64_t read, added; /* blocks */
    int ended, failed;
    auc *scores, *truths; /* truths NULL: there are none */
    program_error error;
} dlrm_scoring;

typedef struct dlrm_scorer { /* one thread's */
    dlrm_scoring *scoring;
    clicks_batch batch;
    clicks_bags bags; /* where the log has any */
    dlrm_workspace *work;
    float *rows[2], *logits, *piece; /* piece[DLRM_PIECE][dim], with bags */
    program_error error;
} dlrm_scorer;

static int dlrm_scorer_open(dlrm_scorer *scorer, dlrm_scoring *scoring, program_error *error) {
    const dlrm_model *model = dlrm_trainer_model(scoring->trainer);
    uint64_t positions = (uint64_t)DLRM_BLOCK * model->features;
    scorer->scoring = scoring;
    if (clicks_batch_open(&scorer->batch, scoring->held_out->log, DLRM_BLOCK, error)) return -1;
    scorer->rows[0] = malloc((positions * model->dim + 1) * sizeof(float));
    scorer->rows[1] = malloc((positions + 1) * sizeof(float));
    scorer->logits = malloc(DLRM_BLOCK * sizeof(float));
    scorer->piece = malloc((uint64_t)DLRM_PIECE * model->dim * sizeof(float));
    if (!scorer->rows[0] || !scorer->rows[1] || !scorer->logits || !scorer->piece)
        return program_fail(error, "out of memory for the evaluation");
    const clicks *log = scoring->held_out->log;
    if (clicks_has_bags(log) && clicks_bags_open(&scorer->bags, log, DLRM_BLOCK, error)) return -1;
    return dlrm_workspace_open(&scorer->work, model, DLRM_BLOCK, error);
}

static void dlrm_scorer_close(dlrm_scorer *scorer) {
    clicks_batch_close(&scorer->batch);
    dlrm_workspace_close(scorer->work);
    free(scorer->rows[0]);
    free(scorer->rows[1]);
    free(scorer->logits);
    free(scorer->piece);
    clicks_bags_close(&scorer->bags);
}

/* The next block of samples, if there is one, and its number. */
static int dlrm_take_block(dlrm_scorer *scorer, uint64_t *number) {
    dlrm_scoring *scoring = scorer->scoring;
    pthread_mutex_lock(&scoring->lock);
    if (atomic_load_explicit(scoring->stop, memory_order_relaxed))
        scoring->ended = 1; /* relaxed: nothing comes with it */
    if (!scoring->ended && !scoring->failed) {
        scoring->failed = clicks_reader_read(scoring->reader, DLRM_BLOCK, &scorer->batch, &scoring->error) != 0;
        scoring->ended = scorer->batch.n == 0;
    }
    int taken = !scoring->ended && !scoring->failed;
    *number = scoring->read;
    scoring->read += (uint64_t)taken;
    pthread_cond_broadcast(&scoring->turn); /* of a failure */
    pthread_mutex_unlock(&scoring->lock);
    return taken;
}

/* to[dim] = row * weight if `first`, else to += row * weight: as Frugal pools. */
VECTOR_CLONES static void dlrm_weigh(float *restrict to, const float *restrict row, float weight, int first,
                                     uint32_t dim) {
    if (first)
        for (uint32_t i = 0; i < dim; i++) to[i] = frugal_mul(row[i], weight);
    else
        for (uint32_t i = 0; i < dim; i++) to[i] = frugal_fma(weight, row[i], to[i]);
}

/* Pools the bags of one feature, of n samples: to[n][dim]. */
static int dlrm_pool(dlrm_scorer *scorer, frugal *tables, uint32_t feature, float *to) {
    const clicks_bags *bags = &scorer->bags;
    uint32_t n = scorer->batch.n, dim = frugal_settings(tables)->dim, bag = 0;
    const uint32_t *offsets = bags->offsets + (uint64_t)feature * n;
    memset(to, 0, (uint64_t)n * dim * sizeof *to);
    for (uint32_t from = offsets[0], end; from < offsets[n]; from = end) {
        end = offsets[n] - from < DLRM_PIECE ? offsets[n] : from + DLRM_PIECE;
        frugal_keys keys = {.table = feature, .keys = bags->keys + from, .n = end - from};
        if (frugal_read_rows(tables, &keys, scorer->piece, NULL))
            return training_fail("cannot read the embeddings", &scorer->error);
        for (uint32_t at = from; at < end; at++) {
            while (at >= offsets[bag + 1]) bag++;
            dlrm_weigh(to + (uint64_t)bag * dim, scorer->piece + (uint64_t)(at - from) * dim, bags->weights[at],
                       at == offsets[bag], dim);
        }
    }
    return 0;
}

static int dlrm_score(dlrm_scorer *scorer) {
    dlrm_trainer *trainer = scorer->scoring->trainer;
    const dlrm_model *model = dlrm_trainer_model(trainer);
    const clicks_batch *batch = &scorer->batch;
    const clicks *log = scorer->scoring->held_out->log;
    if (batch->most) clicks_bags_fill(&scorer->bags, log, batch, 0, batch->n);
    for (uint32_t i = 0; i < 2; i++) {
        frugal *tables = dlrm_trainer_tables(trainer, i);
        uint64_t floats = (uint64_t)batch->n * (i == 0 ? model->dim : 1);
        for (uint32_t k = 0; tables && k < model->features; k++) {
            if (batch->most && dlrm_pool(scorer, tables, k, scorer->rows[i] + k * floats)) return -1;
            if (batch->most) continue;
            frugal_keys keys = {.table = k, .keys = batch->ids + (uint64_t)k * batch->room, .n = batch->n};
            if (frugal_read_rows(tables, &keys, scorer->rows[i] + k * floats, NULL))
                return training_fail("cannot read the embeddings", &scorer->error);
        }
    }
    dlrm_input input = {.n = batch->n, .numbers = batch->numbers, .rows = scorer->rows[0], .linear = scorer->rows[1]};
    dlrm_logits(model, dlrm_trainer_parameters(trainer), &input, scorer->logits, scorer->work);
    return 0;
}

/* In the order of the samples, so that sums do not depend on which thread is faster. */
static void dlrm_add_block(dlrm_scorer *scorer, uint64_t number, int failed) {
    dlrm_scoring *scoring = scorer->scoring;
    const clicks_batch *batch = &scorer->batch;
    pthread_mutex_lock(&scoring->lock);
    while (scoring->added != number && !scoring->failed) pthread_cond_wait(&scoring->turn, &scoring->lock);
    if (failed && !scoring->failed) scoring->failed = 1, scoring->error = scorer->error;
    if (!scoring->failed)
        scoring->failed =
            auc_add(scoring->scores, scorer->logits, batch->labels, batch->n, &scoring->error) ||
            (scoring->truths && auc_add(scoring->truths, batch->truth, batch->labels, batch->n, &scoring->error));
    scoring->added++;
    pthread_cond_broadcast(&scoring->turn);
    pthread_mutex_unlock(&scoring->lock);
}

static void *dlrm_scorer_run(void *argument) {
    dlrm_scorer *scorer = argument;
    for (uint64_t number; dlrm_take_block(scorer, &number);) dlrm_add_block(scorer, number, dlrm_score(scorer));
    return NULL;
}

static int dlrm_score_all(dlrm_scoring *scoring, uint32_t threads, program_error *error) {
    dlrm_scorer *scorers = calloc(threads, sizeof *scorers);
    pthread_t *thread = malloc(threads * sizeof *thread);
    uint32_t opened = 0, started = 0;
    int status = scorers && thread ? 0 : program_fail(error, "out of memory for the evaluation");
    while (!status && opened < threads) status = dlrm_scorer_open(&scorers[opened++], scoring, error);
    while (!status && started < threads && !pthread_create(&thread[started], NULL, dlrm_scorer_run, &scorers[started]))
        started++;
    if (!status && started == 0) status = program_fail(error, "cannot start a thread for the evaluation");
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < opened; i++) dlrm_scorer_close(&scorers[i]);
    free(scorers);
    free(thread);
    if (!status && scoring->failed) status = program_fail(error, "%s", scoring->error.text);
    return status;
}

static int dlrm_measure(dlrm_scoring *scoring, dlrm_metrics *metrics, program_error *error) {
    dlrm_metrics m = {.auc = NAN, .best_auc = NAN, .best_logloss = NAN};
    m.samples = auc_samples(scoring->scores), m.positives = auc_positives(scoring->scores);
    m.malformed = *clicks_reader_malformed(scoring->reader);
    int alike = m.positives == 0 || m.positives == m.samples; /* as in the first samples of a sorted log */
    if (auc_log_loss(scoring->scores, &m.logloss, error)) return -1;
    if (!alike && auc_area(scoring->scores, &m.auc, error)) return -1;
    if (scoring->truths && auc_log_loss(scoring->truths, &m.best_logloss, error)) return -1;
    if (scoring->truths && !alike && auc_area(scoring->truths, &m.best_auc, error)) return -1;
    *metrics = m;
    return 0;
}

int dlrm_evaluate(dlrm_trainer *trainer, const dlrm_held_out *held_out, uint32_t threads, atomic_int *stop,
                  dlrm_metrics *metrics, program_error *error) {
    dlrm_scoring scoring = {.trainer = trainer, .held_out = held_out, .stop = stop};
    pthread_mutex_init(&scoring.lock, NULL);
    pthread_cond_init(&scoring.turn, NULL);
    int status = auc_open(&scoring.scores, error) || (!held_out->path && auc_open(&scoring.truths, error)) ? -1 : 0;
    if (!status)
        status =
            clicks_reader_open(&scoring.reader, held_out->log, held_out->path, held_out->first, held_out->end, error);
    if (!status) status = dlrm_score_all(&scoring, threads, error);
    *metrics = (dlrm_metrics){.interrupted = atomic_load(stop) != 0};
    if (!status && !metrics->interrupted) status = dlrm_measure(&scoring, metrics, error);
    clicks_reader_close(scoring.reader);
    auc_close(scoring.scores);
    auc_close(scoring.truths);
    pthread_mutex_destroy(&scoring.lock);
    pthread_cond_destroy(&scoring.turn);
    return status;
}
