/* Checkpoints of a run: a folder of them, DIR/step-00001000 and so on, each of which is whole or is not there.
 *
 *     checkpoint_newest(dir, "kge", &found, &error)              to resume: 1, and files are in found.path
 *     checkpoint_open(&folder, dir, "kge", resumes, &error)      before training: locks DIR, and tidies up
 *     checkpoint_write(folder, &origin, parts, n, 3, &error)     on the way; the three newest are kept
 *     checkpoint_close(folder)
 *
 * A checkpoint is made under a temporary name: its files are written by their parts and synced; then its manifest
 * (manifest.h), the folder is synced, renamed, and DIR synced. Then older ones are removed. A process that is killed,
 * at any moment, leaves the checkpoints that it had finished; anything else that it leaves is removed by the next
 * checkpoint_open or, if there is no checkpoint yet, by the next checkpoint_write. Damaged checkpoints are refused with
 * the reason. Only real folders of this program's checkpoints that hold a checkpoint's files alone are removed. So
 * these stay: a checkpoint whose manifest is damaged, or in which other files lie; another program's; what a link leads
 * to; a saved set.
 *
 * Functions return 0, or -1 with *error filled: what was wanted, what was found, what to do.
 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "trainers/common/manifest.h"
#include "trainers/common/save.h"

/* One file of a checkpoint. `write` makes it: `path` is not there yet. The file is synced and measured after `write`
 * has returned. */
typedef struct checkpoint_part {
    const char *name; /* fewer than 64 bytes; no slash */
    int self_checked; /* the file has checksums that its reader verifies: it is not read again for the manifest */
    int (*write)(void *user, const char *path, program_error *error);
    void *user;
} checkpoint_part;

/* A checkpoint that was found to be whole. */
typedef struct checkpoint_found {
    char path[MANIFEST_LONGEST_PATH]; /* its folder */
    manifest made;                    /* program, model, step, files; checkpoint_forget frees it */
    uint32_t refused;                 /* the number of newer ones that are damaged, or of another program */
    program_error why;                /* why the newest of them is refused */
} checkpoint_found;

/* The newest one of `program` that is whole; all its files are read, except those that check themselves. 1: found; 0:
 * there is no checkpoint, or no folder; -1: error, also if there are checkpoints and none is whole. */
int checkpoint_newest(const char *folder, const char *program, checkpoint_found *found, program_error *error);
/* The same among those before `step`. */
int checkpoint_before(const char *folder, const char *program, uint64_t step, checkpoint_found *found,
                      program_error *error);
void checkpoint_forget(checkpoint_found *found);

typedef struct checkpoint_folder checkpoint_folder;

/* Makes the folder where there is none, and locks it: a second process is told which process holds the lock. A run that
 * does not resume is refused where there are checkpoints. On failure *out is NULL. */
int checkpoint_open(checkpoint_folder **out, const char *folder, const char *program, int resumes,
                    program_error *error);
/* A folder that checkpoint_open made is removed again if it is empty. NULL is accepted. */
void checkpoint_close(checkpoint_folder *folder);

/* Renames the checkpoint of this step, which is damaged in a way that only its reader can see. (checkpoint_write
 * renames those that it finds damaged itself.) */
int checkpoint_set_aside(const checkpoint_folder *folder, uint64_t step, program_error *error);

/* Writes the checkpoint of origin->step, of parts[n]. Of the checkpoints of smaller steps, the newest keep - 1 whole
 * ones stay, and all that are newer than these; keep 0: all stay. To find out which are whole, their files are read,
 * except those that check themselves. It is an error if this step already has a whole checkpoint, one of another
 * program, or a saved set; a damaged one is renamed. 1: the checkpoint is written, but an older one cannot be removed;
 * *error says which, and why. If the new name cannot be synced, that is -1, and the next call for this step tries to
 * sync it again. */
int checkpoint_write(checkpoint_folder *folder, const save_origin *origin, const checkpoint_part *parts, int n,
                     uint32_t keep, program_error *error);

#endif
