/* Which rows a training sample has, a bit a row: so that it can be told which of the held-out samples' ids are new.
 *
 * Where ids are hashed, an id that shares its row with a trained one is not told apart. Row 0 of a vocabulary is of all
 * ids that are rare in training, missing or new, so none of them counts as seen.
 */
#ifndef DLRM_SEEN_H
#define DLRM_SEEN_H

#include "trainers/clicks/clicks.h"

typedef struct dlrm_seen dlrm_seen;

typedef struct dlrm_unseen {
    uint64_t samples, ids; /* with such an id at least; such ids of all of them */
    uint32_t feature;      /* that has most of them, and how many */
    uint64_t of_feature;
} dlrm_unseen;

/* `log` is prepared, and must outlive it. On failure *out is NULL. */
int dlrm_seen_open(dlrm_seen **out, const clicks *log, int vocabulary, program_error *error);
void dlrm_seen_close(dlrm_seen *seen); /* NULL is accepted */
/* Training samples. */
void dlrm_seen_mark(dlrm_seen *seen, const clicks_batch *batch);
/* Counts the held-out samples from here on; one thread at a time. */
void dlrm_seen_begin(dlrm_seen *seen);
void dlrm_seen_count(dlrm_seen *seen, const clicks_batch *batch);
dlrm_unseen dlrm_seen_unseen(const dlrm_seen *seen);

#endif
