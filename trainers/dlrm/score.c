/* Scoring: a reader, threads that score, and scores handed on in the order of the samples. */
#include "trainers/dlrm/score.h"
#include "trainers/clicks/bags.h"
#include "trainers/common/vector.h"
#include "src/arithmetic.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DLRM_BLOCK 1024 /* samples a turn */
#define DLRM_PIECE 1024 /* rows of bags that are read at a time */

typedef struct dlrm_scoring {
    const dlrm_score_desc *desc;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t turn;
    clicks_reader *reader;
    uint64_t read, added; /* blocks */
    int ended, failed;
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
    const dlrm_model *model = scoring->desc->model;
    uint64_t positions = (uint64_t)DLRM_BLOCK * model->features;
    scorer->scoring = scoring;
    if (clicks_batch_open(&scorer->batch, scoring->desc->samples.log, DLRM_BLOCK, error)) return -1;
    scorer->rows[0] = malloc((positions * model->dim + 1) * sizeof(float));
    scorer->rows[1] = malloc((positions + 1) * sizeof(float));
    scorer->logits = malloc(DLRM_BLOCK * sizeof(float));
    scorer->piece = malloc((uint64_t)DLRM_PIECE * model->dim * sizeof(float));
    if (!scorer->rows[0] || !scorer->rows[1] || !scorer->logits || !scorer->piece)
        return program_fail(error, "out of memory for scores");
    const clicks *log = scoring->desc->samples.log;
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
    if (atomic_load_explicit(scoring->desc->stop, memory_order_relaxed))
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
static int dlrm_pool(dlrm_scorer *scorer, uint32_t instance, uint32_t feature, float *to) {
    const dlrm_score_desc *desc = scorer->scoring->desc;
    const clicks_bags *bags = &scorer->bags;
    uint32_t n = scorer->batch.n, dim = instance == 0 ? desc->model->dim : 1, bag = 0;
    const uint32_t *offsets = bags->offsets + (uint64_t)feature * n;
    memset(to, 0, (uint64_t)n * dim * sizeof *to);
    for (uint32_t from = offsets[0], end; from < offsets[n]; from = end) {
        end = offsets[n] - from < DLRM_PIECE ? offsets[n] : from + DLRM_PIECE;
        frugal_keys keys = {.table = feature, .keys = bags->keys + from, .n = end - from};
        if (desc->read_rows(desc->tables, instance, &keys, scorer->piece, &scorer->error)) return -1;
        for (uint32_t at = from; at < end; at++) {
            while (at >= offsets[bag + 1]) bag++;
            dlrm_weigh(to + (uint64_t)bag * dim, scorer->piece + (uint64_t)(at - from) * dim, bags->weights[at],
                       at == offsets[bag], dim);
        }
    }
    return 0;
}

static int dlrm_score_block(dlrm_scorer *scorer) {
    const dlrm_score_desc *desc = scorer->scoring->desc;
    const dlrm_model *model = desc->model;
    const clicks_batch *batch = &scorer->batch;
    if (batch->most) clicks_bags_fill(&scorer->bags, desc->samples.log, batch, 0, batch->n);
    for (uint32_t i = 0; i < (dlrm_has_linear(model) ? 2 : 1); i++) {
        uint64_t floats = (uint64_t)batch->n * (i == 0 ? model->dim : 1);
        for (uint32_t k = 0; k < model->features; k++) {
            float *to = scorer->rows[i] + k * floats;
            frugal_keys keys = {.table = k, .keys = batch->ids + (uint64_t)k * batch->room, .n = batch->n};
            if (batch->most ? dlrm_pool(scorer, i, k, to) : desc->read_rows(desc->tables, i, &keys, to, &scorer->error))
                return -1;
        }
    }
    dlrm_input input = {.n = batch->n, .numbers = batch->numbers, .rows = scorer->rows[0], .linear = scorer->rows[1]};
    dlrm_logits(model, desc->parameters, &input, scorer->logits, scorer->work);
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
        scoring->failed = scoring->desc->take(scoring->desc->taker, batch, scorer->logits, &scoring->error) != 0;
    scoring->added++;
    pthread_cond_broadcast(&scoring->turn);
    pthread_mutex_unlock(&scoring->lock);
}

static void *dlrm_scorer_run(void *argument) {
    dlrm_scorer *scorer = argument;
    for (uint64_t number; dlrm_take_block(scorer, &number);) dlrm_add_block(scorer, number, dlrm_score_block(scorer));
    return NULL;
}

static int dlrm_score_all(dlrm_scoring *scoring, uint32_t threads, program_error *error) {
    dlrm_scorer *scorers = calloc(threads, sizeof *scorers);
    pthread_t *thread = malloc(threads * sizeof *thread);
    uint32_t opened = 0, started = 0;
    int status = scorers && thread ? 0 : program_fail(error, "out of memory for scores");
    while (!status && opened < threads) status = dlrm_scorer_open(&scorers[opened++], scoring, error);
    while (!status && started < threads && !pthread_create(&thread[started], NULL, dlrm_scorer_run, &scorers[started]))
        started++;
    if (!status && started == 0) status = program_fail(error, "cannot start a thread for scores");
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < opened; i++) dlrm_scorer_close(&scorers[i]);
    free(scorers);
    free(thread);
    if (!status && scoring->failed) status = program_fail(error, "%s", scoring->error.text);
    return status;
}

int dlrm_score(const dlrm_score_desc *desc, clicks_malformed *malformed, program_error *error) {
    const dlrm_samples *samples = &desc->samples;
    dlrm_scoring scoring = {.desc = desc};
    if (clicks_reader_open(&scoring.reader, samples->log, samples->path, samples->first, samples->end, error))
        return -1;
    pthread_mutex_init(&scoring.lock, NULL);
    pthread_cond_init(&scoring.turn, NULL);
    int status = dlrm_score_all(&scoring, desc->threads, error);
    *malformed = *clicks_reader_malformed(scoring.reader);
    clicks_reader_close(scoring.reader);
    pthread_mutex_destroy(&scoring.lock);
    pthread_cond_destroy(&scoring.turn);
    return status;
}
