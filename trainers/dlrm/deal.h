/* Samples of a log to devices by parts, as the log is read.
 *
 * In a step each device takes the next `batch` samples of its part, in the order of the pass, from a window: the
 * samples that follow the first one that nobody has taken yet, DLRM_WINDOW batches of all devices long. So the whole
 * log is never in memory, and each sample is taken once a pass. Where the window has too few samples of a part, the
 * device's batch is smaller: if the log is sorted by what the parts are made of, and at the end of a pass, because
 * parts are of different size. Which samples are in a step follows from the parts, the batch and the number of devices
 * alone.
 *
 *     dlrm_dealer_open(&dealer, &desc, &error)
 *     dlrm_dealer_begin(dealer)                          a pass; or
 *     dlrm_dealer_go_on(dealer, taken, &error)           one that was interrupted behind so many samples
 *     clicks_shuffle_begin(reader, pass, dlrm_dealer_from(dealer), &error)
 *     dlrm_dealer_read(dealer, reader, &batch, first, &error)        until batch.n is 0
 *     dlrm_dealer_close(dealer)
 *
 * Functions that can fail return 0, or -1 with *error filled.
 */
#ifndef DLRM_DEAL_H
#define DLRM_DEAL_H

#include "trainers/clicks/shuffle.h"

enum { DLRM_WINDOW = 8 };

typedef struct dlrm_deal_desc {
    const clicks *log;       /* prepared; must outlive the dealer */
    const uint8_t *parts;    /* parts[samples], each below devices; must outlive the dealer */
    uint64_t samples;        /* of a pass */
    uint32_t devices, batch; /* samples a step and device, at most */
} dlrm_deal_desc;

typedef struct dlrm_dealer dlrm_dealer;

/* On failure *out is NULL. */
int dlrm_dealer_open(dlrm_dealer **out, const dlrm_deal_desc *desc, program_error *error);
/* NULL is accepted. */
void dlrm_dealer_close(dlrm_dealer *dealer);

/* The next step is the first of a pass. */
void dlrm_dealer_begin(dlrm_dealer *dealer);
/* The next step is that of a pass behind steps that took `taken` samples. Costs a walk over that many parts. */
int dlrm_dealer_go_on(dlrm_dealer *dealer, uint64_t taken, program_error *error);
/* The sample that a reader for the next step begins with. */
uint64_t dlrm_dealer_from(const dlrm_dealer *dealer);

/* Reads the samples of the next step, device after device: device d has first[d] to first[d + 1] - 1 of the batch,
 * which has room for devices * batch; its truth is left alone. n = 0: the pass is over. It is an error if the log ends
 * too soon. */
int dlrm_dealer_read(dlrm_dealer *dealer, clicks_shuffle *reader, clicks_batch *batch, uint32_t *first,
                     program_error *error);

#endif
