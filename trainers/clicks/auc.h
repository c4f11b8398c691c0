/* How well scores tell ones from zeros: the area under the ROC curve, exactly, and the mean log loss.
 *
 * The area is the chance that a sample with label 1 has a higher score than one with label 0; equal scores count one
 * half. Scores are kept, 4 bytes a sample; sorting them at the end takes as much memory again.
 */
#ifndef AUC_H
#define AUC_H

#include <stdint.h>
#include "trainers/common/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct auc auc;

/* On failure *out is NULL. */
int auc_open(auc **out, program_error *error);
void auc_close(auc *a);

/* Samples with these logits[n] and labels[n] (0 or 1), in blocks of any size, 2^32 samples at most in all. A block that
 * does not fit, or in which a logit is not a number, changes nothing. */
int auc_add(auc *a, const float *logits, const float *labels, uint64_t n, program_error *error);

uint64_t auc_samples(const auc *a);
uint64_t auc_positives(const auc *a);
/* The area; more samples may follow. Fails where no label is 1, or none is 0. */
int auc_area(auc *a, double *area, program_error *error);
/* The mean of log(1 + exp(-logit)) for label 1, log(1 + exp(logit)) for 0, in nats, summed in double in the order of
 * the samples. Fails if there is no sample. */
int auc_log_loss(const auc *a, double *loss, program_error *error);

#ifdef __cplusplus
}
#endif
#endif
