/* What the ranks (ranks.h) tell each other in each step: a training_word, and of each device its loss and the gradients
 * of the dense layers. All of them go to all, so that each rank sums them in the order of the devices.
 *
 *     dlrm_words_open(&words, parameters, devices, &error)       where there is one rank: nothing
 *     dlrm_words_gradient(&words, device)                        where a device of this rank puts its gradients
 *     dlrm_words_exchange(&words, f, &word, losses)              by one thread, when all are there
 *     dlrm_words_heard(&words, device, &loss)                    those of any device
 *     dlrm_words_close(&words)
 */
#ifndef DLRM_WORDS_H
#define DLRM_WORDS_H

#include "trainers/common/training.h"

typedef struct dlrm_words {
    uint32_t devices;
    uint64_t parameters;
    unsigned char *mine, *all; /* all[ranks][bytes] */
    size_t bytes, device;      /* device: bytes of one */
    training_sums others;      /* statistics of the other ranks */
} dlrm_words;

/* 0, or -1 with *error filled. On failure it can be closed. */
int dlrm_words_open(dlrm_words *words, uint64_t parameters, uint32_t devices, program_error *error);
/* Zeros are accepted. */
void dlrm_words_close(dlrm_words *words);

float *dlrm_words_gradient(const dlrm_words *words, uint32_t device);
/* *word: this rank's, then what all have said (training_hear). losses[devices of this rank]; NULL: nothing of devices
 * is told. */
frugal_status dlrm_words_exchange(dlrm_words *words, frugal *f, training_word *word, const double *losses);
const float *dlrm_words_heard(const dlrm_words *words, uint32_t device, double *loss);

#endif
