/* What a training resumes from, beside its tables: the step, which determines its samples and its learning rate, and
 * what was counted. A training that resumes from it and the tables of the same step gets the bits of a run that was not
 * interrupted.
 *
 * The file: 24 bytes "frugal kge state, 1\n" and zeros; the numbers of kge_state in their order, 8 bytes each as they
 * lie in memory; then counted[devices]. Its checksum is the manifest's (common/manifest.h).
 */
#ifndef KGE_STATE_H
#define KGE_STATE_H

#include "trainers/common/program.h"

typedef struct kge_counted { /* of one device */
    double loss;             /* sum over steps */
    uint64_t losses;         /* the number of losses in the sum */
} kge_counted;

typedef struct kge_state {
    uint64_t step;         /* steps trained so far, which is also the next step */
    uint64_t hits, misses; /* of caches */
    double seconds, stall; /* seconds: of training; of devices at gates */
    uint64_t saved;        /* the id of the save of the tables that lies beside it */
    uint64_t devices;
    const kge_counted *counted;
} kge_state;

/* Makes the file. 0, or -1 with *error filled. */
int kge_state_write(const kge_state *state, const char *path, program_error *error);
/* kge_state_free frees its array, and is needed even if reading failed. */
int kge_state_read(kge_state *state, const char *path, program_error *error);
void kge_state_free(kge_state *state);

#endif
