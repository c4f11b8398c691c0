/* Checkpoints of a run: a folder of them, DIR/step-00001000 and so on, each of which is whole or is not there.
 *
 *     checkpoint_newest(dir, "kge", &found, &error)              to resume: 1, and files are in found.path
 *     checkpoint_open(&folder, dir, "kge", resumes, &error)      before training: locks DIR, and tidies up
 *     checkpoint_write(folder, &origin, parts, n, 3, &error)     on the way; the three newest are kept
 *     checkpoint_close(folder)
 *
 * A checkpoint is made under a temporary name: its files are written by their parts and synced; then its manifest
 * (manifest.h), the folder is synced, renamed, and DIR synced. Then older ones are removed. A process that is killed,
 * at any moment, leaves the checkpoints that it had finished; what else it leaves the next checkpoint_open takes away,
 * or, where there is no checkpoint yet, the next checkpoint_write. Damaged checkpoints are refused with the reason.
 * Nothing is removed but real folders, of the program's checkpoints, that hold a checkpoint's files alone: not one
 * whose manifest is damaged, or in which other files lie, not another program's, nor what a link leads to, nor a saved
 * set.
 *
 * Functions return 0, or -1 with *error filled: what was wanted, what was found, what to do.
 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "examples/common/manifest.h"
#include "examples/common/save.h"

/* One file of a checkpoint. `write` makes it: `path` is not there yet. It is synced, and measured, when it returns. */
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
    uint32_t refused;                 /* newer ones that are damaged, or another program's */
    program_error why;                /* the newest of them is refused */
} checkpoint_found;

/* The newest one of `program` that is whole; all its files are read, but those that check themselves. 1; 0: there is
 * none at all, nor the folder; -1: error, as where there are some, and none is whole. */
int checkpoint_newest(const char *folder, const char *program, checkpoint_found *found, program_error *error);
/* The newest one of those before `step`. */
int checkpoint_before(const char *folder, const char *program, uint64_t step, checkpoint_found *found,
                      program_error *error);
void checkpoint_forget(checkpoint_found *found);

typedef struct checkpoint_folder checkpoint_folder;

/* Makes the folder where there is none, and locks it: a second process is told who has it. A run that does not resume
 * is refused where there are checkpoints. On failure *out is NULL. */
int checkpoint_open(checkpoint_folder **out, const char *folder, const char *program, int resumes,
                    program_error *error);
/* A folder that was made, and in which there is nothing, is taken away again. NULL is none. */
void checkpoint_close(checkpoint_folder *folder);

/* That of this step is damaged where only its reader can tell: it gets another name, as one that checkpoint_write finds
 * to be damaged does. */
int checkpoint_set_aside(const checkpoint_folder *folder, uint64_t step, program_error *error);

/* Writes the checkpoint of origin->step, of parts[n]. Of those of smaller steps, the newest keep - 1 that are whole
 * stay, with what is newer than those; keep 0: all. To know them their files are read, but those that check themselves.
 * One of this step that is there and whole is an error, as is one of another program, or a saved set; one that is
 * damaged gets another name. 1: it is written, but an older one cannot be removed: *error says which, and why. If its
 * name cannot be synced, that is -1, and the next call for this step tries to sync it again. */
int checkpoint_write(checkpoint_folder *folder, const save_origin *origin, const checkpoint_part *parts, int n,
                     uint32_t keep, program_error *error);

#endif
