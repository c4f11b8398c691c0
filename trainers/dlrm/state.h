/* What a training resumes from, beside its tables: the position in the log, the dense layers and their optimizer's
 * state, what was counted. A training that resumes from it and the tables of the same step gets the bits of a run that
 * was not interrupted.
 *
 * The file: 24 bytes "frugal dlrm state, 1\n" and zeros; the numbers of dlrm_state in their order, 8 bytes each as they
 * lie in memory; then the floats of both arrays. Its checksum is the manifest's (common/manifest.h).
 */
#ifndef DLRM_STATE_H
#define DLRM_STATE_H

#include "trainers/common/program.h"

typedef struct dlrm_state {
    uint64_t step, samples;          /* trained so far */
    uint64_t skipped;                /* Frugal's steps without samples, not in `step`: its next is step + skipped */
    uint64_t epoch;                  /* passes begun */
    uint64_t pass;                   /* samples of the current pass that were trained */
    uint64_t in_pass;                /* 0: the next sample begins a new pass */
    uint64_t samples_a_pass;         /* of each pass before */
    double loss, seconds;            /* loss: summed over all samples; seconds: of training */
    uint64_t hits, misses;           /* of caches */
    double stall, read_seconds;      /* seconds: of devices at gates; of the loader in reading */
    double power1, power2;           /* Adam's betas to the power of the steps, of the dense layers */
    uint64_t saved;                  /* the id of the save of the tables that lies beside it */
    uint64_t parameters, state;      /* lengths of the next two */
    const float *values, *optimizer; /* values[parameters], optimizer[state] */
} dlrm_state;

/* Makes the file. 0, or -1 with *error filled. */
int dlrm_state_write(const dlrm_state *state, const char *path, program_error *error);
/* dlrm_state_free frees its arrays, and is needed even if reading failed. */
int dlrm_state_read(dlrm_state *state, const char *path, program_error *error);
void dlrm_state_free(dlrm_state *state);

#endif
