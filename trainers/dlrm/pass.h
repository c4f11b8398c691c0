/* The training samples, step by step: one pass over the log after the other, shuffled (clicks/shuffle.h), dealt to
 * devices in turn or by parts (deal.h), and the position from which a training resumes.
 *
 *     dlrm_passes_open(&passes, &desc, &error)
 *     dlrm_passes_go_on(passes, &position, &error)            where another training had got to
 *     dlrm_passes_read(passes, &batch, first, &error)         a step; batch.n is 0 when all passes are over
 *     dlrm_passes_end(passes), dlrm_passes_close(passes)
 *
 * Functions that can fail return 0, or -1 with *error filled.
 */
#ifndef DLRM_PASS_H
#define DLRM_PASS_H

#include "trainers/clicks/clicks.h"

typedef struct dlrm_source { /* where the training samples are */
    const clicks *log;       /* prepared; must outlive the trainer */
    const char *path;        /* NULL: the log's own */
    const char *name;        /* for messages; NULL: the path */
    uint64_t first, end;     /* samples [first, end); end UINT64_MAX: to the end of the log, if they have no parts */
    /* Called if malformed lines were met, at the end of the first pass, or of the training if that comes earlier; on
     * the loader's thread. NULL: they are known. */
    void (*malformed)(void *user, const clicks_malformed *malformed);
    void *user;
} dlrm_source;

typedef struct dlrm_passes_desc {
    const dlrm_source *source; /* must outlive the passes, as the next one */
    const uint8_t *parts;      /* parts[samples], each below devices; NULL: samples are dealt in turn */
    uint64_t samples;          /* of a pass, where they have parts */
    uint64_t epochs;           /* the number of passes */
    uint32_t devices, batch;   /* samples a step and device, at most */
    uint32_t shuffle;          /* samples that change places at a time; 0: none */
    uint64_t seed;
} dlrm_passes_desc;

typedef struct dlrm_position {
    uint64_t epoch;          /* passes begun */
    uint64_t pass;           /* samples of the current pass that were read */
    uint64_t samples_a_pass; /* of each pass before */
    int in_pass;             /* 0: the next sample begins a new pass */
} dlrm_position;

typedef struct dlrm_passes dlrm_passes;

/* On failure *out is NULL. */
int dlrm_passes_open(dlrm_passes **out, const dlrm_passes_desc *desc, program_error *error);
/* NULL is accepted. */
void dlrm_passes_close(dlrm_passes *passes);

int dlrm_passes_go_on(dlrm_passes *passes, const dlrm_position *position, program_error *error);
dlrm_position dlrm_passes_position(const dlrm_passes *passes);

/* The samples of the next step: device d has first[d] to first[d + 1] - 1 of the batch, whose truth is left alone. A
 * pass without samples ends them, too. It is an error if a pass has other than the samples of the pass before. */
int dlrm_passes_read(dlrm_passes *passes, clicks_batch *batch, uint32_t *first, program_error *error);
/* Nothing more will be read: malformed lines of a pass that was cut short are reported. */
void dlrm_passes_end(dlrm_passes *passes);

#endif
