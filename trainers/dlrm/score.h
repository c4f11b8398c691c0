/* Scores of samples: their logits, by a model whose tables may lie anywhere.
 *
 * Samples are scored in blocks of 1024 from the first one on, so two calls for the same samples give the same bits, and
 * so do any numbers of threads.
 */
#ifndef DLRM_SCORE_H
#define DLRM_SCORE_H

#include <stdatomic.h>

#include "trainers/clicks/clicks.h"
#include "trainers/dlrm/model.h"
#include "frugal.h"

typedef struct dlrm_samples { /* samples [first, end) of a log; end UINT64_MAX: to its end */
    const clicks *log;
    const char *path; /* NULL: the log's own */
    uint64_t first, end;
} dlrm_samples;

typedef struct dlrm_score_desc {
    const dlrm_model *model;
    const float *parameters; /* of the dense layers */
    /* Reads keys of one feature's table into rows[keys->n][dim]: those of the features (instance 0), or of the linear
     * part (1), whose dim is 1. Any thread. 0, or -1 with *error filled. */
    int (*read_rows)(void *tables, uint32_t instance, const frugal_keys *keys, float *rows, program_error *error);
    void *tables;
    dlrm_samples samples;
    uint32_t threads; /* which take turns at reading */
    atomic_int *stop; /* nonzero: it ends early */
    /* Takes logits[batch->n] of the next samples, in the order of the log; by one thread at a time. 0, or -1 with
     * *error filled. */
    int (*take)(void *taker, const clicks_batch *batch, const float *logits, program_error *error);
    void *taker;
} dlrm_score_desc;

/* 0, or -1 with *error filled. *malformed: the malformed lines up to the last sample. */
int dlrm_score(const dlrm_score_desc *desc, clicks_malformed *malformed, program_error *error);

#endif
