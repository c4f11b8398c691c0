/* The checkpoints of a run, as its user asked for them: which one the run resumes from, when the next one is due, and
 * what a checkpoint holds beside the program's own files: `settings` (identity.h) and `curve`, the evaluations on the
 * way.
 *
 *     checkpointing_open(&k, "kge", &outputs, &error)        before data are read: what is refused costs no time
 *     k.resumes, k.found.path                                the run goes on from there, or from its beginning
 *     checkpointing_read(&k, now, &curve, &error)            is it this training's? and its curve
 *     checkpointing_older(&k)                                it is damaged after all: the one before it
 *     if (checkpointing_is_due(&k, step)) checkpointing_write(&k, &origin, &what, &error)
 *     checkpointing_close(&k)
 *
 * Functions return 0, or -1 with *error filled.
 */
#ifndef CHECKPOINTING_H
#define CHECKPOINTING_H

#include "trainers/common/checkpoint.h"
#include "trainers/common/progress.h"
#include "trainers/common/settings.h"

typedef struct checkpointing {
    const training_outputs *outputs;
    const char *program, *path; /* the folder that checkpoints are made in; NULL: none are made */
    checkpoint_folder *folder;
    int reads, lock;        /* if --resume names another folder, `lock` holds it while it is read */
    int resumes;            /* from `found` */
    checkpoint_found found; /* checkpointing_close frees it */
    int any;                /* there is a checkpoint that this run made or resumed from: */
    uint64_t step;          /* the newest one's */
    double due;             /* if checkpoints are due by seconds: program_now() of the next one; 0: never */
    double spent;           /* seconds that the last one took */
} checkpointing;

/* What a checkpoint is made of. */
typedef struct checkpointing_content {
    const char *identity; /* the text of identity.h */
    const progress_curve *curve;
    const checkpoint_part *parts; /* parts[n], the program's */
    int n;
} checkpointing_content;

enum { CHECKPOINTING_PARTS = 8 }; /* of a program, at most */

/* Is this path the folder, or a place in it? Links are followed; neither has to exist yet. NULL lies nowhere. */
int checkpointing_lies_in(const char *path, const char *folder);

/* Locks the folders, and finds the newest whole checkpoint. Reports newer ones that are damaged to stderr, or that
 * there is none yet. *k must be zeros. */
int checkpointing_open(checkpointing *k, const char *program, const training_outputs *outputs, program_error *error);
void checkpointing_close(checkpointing *k);
/* Of another rank than 0 (ranks.h), in place of opening: it only knows what rank 0 has found, and has written. */
void checkpointing_follow(checkpointing *k, const char *program, const training_outputs *outputs);

/* Reads k->found: refuses the checkpoint of another training (identity NULL: does not), and appends to `curve`, which
 * is empty. */
int checkpointing_read(const checkpointing *k, const char *identity, progress_curve *curve, program_error *error);
/* The number behind `name` in the settings of k->found. If they have none, *number stays as it is, and
 * checkpointing_read says why they are not this training's. */
int checkpointing_setting(const checkpointing *k, const char *name, float *number, program_error *error);
/* k->found cannot be used, because of `why`. Reports that to stderr; the checkpoint before it takes its place. If
 * checkpoints are made in this folder, the unusable one is renamed. 0: there is none before it. */
int checkpointing_older(checkpointing *k, const program_error *why);

/* k->found has been read. Unlocks its folder, unless checkpoints are made in it. */
void checkpointing_end_reading(checkpointing *k);

/* The training begins now. */
void checkpointing_start(checkpointing *k);
int checkpointing_is_due(const checkpointing *k, uint64_t step);
/* The next step that a checkpoint is due at; UINT64_MAX: there is no such step. */
uint64_t checkpointing_until(const checkpointing *k, uint64_t step);
/* Whether it fails or not, the next one is due a full interval later. 1: it is written, but *error is to be reported
 * (see checkpoint_write). */
int checkpointing_write(checkpointing *k, const save_origin *origin, const checkpointing_content *content,
                        program_error *error);

#endif
