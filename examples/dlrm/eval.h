/* How well held-out samples are predicted: area under the ROC curve, and log loss. */
#ifndef DLRM_EVAL_H
#define DLRM_EVAL_H

#include "examples/dlrm/train.h"

typedef struct dlrm_held_out { /* samples [first, end) of a log; end UINT64_MAX: to its end */
    const clicks *log;
    const char *path; /* NULL: generated */
    uint64_t first, end;
} dlrm_held_out;

typedef struct dlrm_metrics {
    int interrupted;               /* there is nothing else */
    double auc, logloss;           /* auc is NaN if all labels are alike: there is no area */
    double best_auc, best_logloss; /* of the planted truth, where the log is generated; else NaN */
    uint64_t samples, positives;
    clicks_malformed malformed; /* malformed lines of the file, up to the last sample */
} dlrm_metrics;

/* Scores the samples on `threads` threads, which take turns at reading them; between runs. Ends early, with
 * nothing but metrics->interrupted set, where *stop becomes nonzero. */
int dlrm_evaluate(dlrm_trainer *trainer, const dlrm_held_out *held_out, uint32_t threads, atomic_int *stop,
                  dlrm_metrics *metrics, program_error *error);

#endif
