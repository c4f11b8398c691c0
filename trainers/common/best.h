/* The best evaluation of a training, kept while the training goes on: which one it is, and its tables and state in a
 * folder, from which they are read back at the end.
 *
 *     best_open(&kept, checkpoints, &error)               `.best` there; NULL: a folder of its own below TMPDIR
 *     best_take(&kept, checkpoint, &error)                a run that resumes: what the checkpoint kept
 *     moment = best_of(&curve, &since)                    after an evaluation; since == 0: it is the best so far
 *     best_keep(&kept, parts, &error)                     its tables and state replace those of the one before
 *     n = best_parts(&kept, parts)                        what a checkpoint holds, so that a run that resumes has it
 *     best_read(instances, n, kept.tables, &error)        at the end
 *     best_close(&kept)                                   removes the folder
 *
 * A checkpoint gets hard links, or copies where the file system has no such links. So checkpoints cost no second
 * writing of the best, and may be removed in any order.
 *
 * The folder is made when something is kept. A process that is killed leaves it. `.best` is removed by the next
 * best_open, because the checkpoints say what is to be in it; one below TMPDIR is to be removed by hand.
 *
 * Functions return 0, or -1 with *error filled: what was wanted, what was found, what to do.
 */
#ifndef BEST_H
#define BEST_H

#include "trainers/common/checkpoint.h"
#include "trainers/common/progress.h"

enum { BEST_FILES = 2 }; /* tables and state, in this order */

/* Of zeros: nothing is kept, and best_close does nothing. */
typedef struct best_kept {
    const char *beside;                 /* the checkpoints' folder; NULL: there is none */
    char folder[MANIFEST_LONGEST_PATH]; /* empty: not made yet */
    int any;                            /* the next two are there */
    char tables[MANIFEST_LONGEST_PATH], state[MANIFEST_LONGEST_PATH];
} best_kept;

/* The first moment of the highest value; NULL: no moment has a value. *since: the number of moments behind it, or of
 * all moments. */
const progress_moment *best_of(const progress_curve *curve, uint64_t *since);

/* `beside` must outlive *kept. Removes what a killed process has left there. */
int best_open(best_kept *kept, const char *beside, program_error *error);
/* Keeps what parts[BEST_FILES] write, in the place of what was kept before, which stays after a failure. */
int best_keep(best_kept *kept, const checkpoint_part *parts, program_error *error);
/* Fills parts[BEST_FILES] for a checkpoint, and returns their number; 0: nothing is kept. *kept must not move. */
int best_parts(best_kept *kept, checkpoint_part *parts);
/* Keeps what the checkpoint in this folder has kept. Its tables are read, because their manifest has no checksum. */
int best_take(best_kept *kept, const char *checkpoint, program_error *error);
/* The rows of instances[n], drained and with nothing announced, become those of the save `tables`. The state of their
 * optimizer stays. */
int best_read(frugal *const *instances, uint32_t n, const char *tables, program_error *error);
/* Of another rank than 0 (ranks.h): rank 0 has kept it in this folder. */
int best_follow(best_kept *kept, const char *folder, program_error *error);
/* Removes the folder. */
void best_close(best_kept *kept);

#endif
