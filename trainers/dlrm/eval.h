/* How well held-out samples are predicted: area under the ROC curve, and log loss. */
#ifndef DLRM_EVAL_H
#define DLRM_EVAL_H

#include "trainers/dlrm/score.h"
#include "trainers/dlrm/train.h"

typedef struct dlrm_metrics {
    int interrupted;               /* there is nothing else */
    double auc, logloss;           /* auc is NaN if all labels are alike: there is no area */
    double constant;               /* the log loss of the best constant: of the share of ones */
    double best_auc, best_logloss; /* of the planted truth, where the log is generated; else NaN */
    uint64_t samples, positives;
    dlrm_unseen unseen;         /* zeros if it is not known which ids were seen */
    clicks_malformed malformed; /* malformed lines of the file, up to the last sample */
} dlrm_metrics;

/* Model, parameters and tables of a score, between runs; the other fields are 0. */
dlrm_score_desc dlrm_trainer_scores(dlrm_trainer *trainer);
/* Scores the samples on `threads` threads, which take turns at reading them; between runs. Ends early, with
 * nothing but metrics->interrupted set, where *stop becomes nonzero. */
int dlrm_evaluate(dlrm_trainer *trainer, const dlrm_samples *held_out, uint32_t threads, atomic_int *stop,
                  dlrm_metrics *metrics, program_error *error);

#endif
