/* What a training goes on from, beside its tables: the step, from which follow its samples and its learning rate, and
 * what was counted. With the tables of the same step, trained further it gives the bits of a run that was not
 * interrupted.
 *
 * The file: 24 bytes "frugal kge state, 1\n" and zeros; the numbers of kge_state in their order, 8 bytes each as they
 * lie in memory; then counted[devices]. Its checksum is the manifest's (common/manifest.h).
 */
#ifndef KGE_STATE_H
#define KGE_STATE_H

#include "examples/common/program.h"

typedef struct kge_counted { /* of one device */
    double loss;             /* sum over steps */
    uint64_t losses;         /* how many they are */
} kge_counted;

typedef struct kge_state {
    uint64_t step;         /* trained so far, and the next one */
    uint64_t hits, misses; /* of caches */
    double seconds, stall; /* of training; of devices, at gates */
    uint64_t saved;        /* the id of the save of the tables that lies beside it */
    uint64_t devices;
    const kge_counted *counted;
} kge_state;

/* Makes the file. 0, or -1 with *error filled. */
int kge_state_write(const kge_state *state, const char *path, program_error *error);
/* Its array is freed by kge_state_free, also where reading failed. */
int kge_state_read(kge_state *state, const char *path, program_error *error);
void kge_state_free(kge_state *state);

#endif
