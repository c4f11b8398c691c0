/* A saved set: files that belong together, NumPy's .npy among them, and a manifest that says so (manifest.h).
 *
 *     static const char *const files[] = {"rows.npy", "names.txt"};
 *     save_begin(&set, folder, "kge", files, 2, &error)             before training: will saving be possible?
 *     save_rows(set, files[0], n, dim, rows, &error)                each is written under a temporary name
 *     stream = save_open(set, files[1], &error), fprintf(stream, ...), save_close(set, files[1], &error)
 *     save_finish(set, &origin, failed, &error), save_tell(set)     all of them become the set, or none is left
 *     save_end(set)
 *
 * The old set is the set until all files of the new one, and its manifest, are on disk. A process that is killed, at
 * any moment, leaves the old or the new set; the next save_begin removes anything else that it leaves. From save_begin
 * to save_end the folder is locked: another process is told which one holds it. Files of other names stay as they are;
 * files of these names in a folder without a manifest stay too, unless they are empty: they belong to somebody else,
 * and the set is refused.
 *
 * Where a name is a link, its file is made beside the link's target. That folder is not locked, and nothing is removed
 * from it: what a killed process has left there (.NAME.saving-a1b2c3) stays, to be removed by hand.
 *
 * Functions return 0, or -1 with *error filled.
 */
#ifndef SAVE_H
#define SAVE_H

#include "trainers/common/program.h"

typedef struct save_set save_set;

/* What made a set, for its manifest. */
typedef struct save_origin {
    const char *model;
    uint64_t step;
} save_origin;

/* Makes the folder where there is none, locks it, finishes what a killed process has left, and makes sure that files of
 * these names can be written. names[n], of fewer than 64 bytes, must outlive the set. On failure *out is NULL. */
int save_begin(save_set **out, const char *folder, const char *program, const char *const *names, int n,
               program_error *error);
/* Removes what was not published. NULL is accepted. */
void save_end(save_set *set);

/* Opens a file of any kind. Write to its stream without checking for errors, because closing reports them. NULL: error.
 */
FILE *save_open(save_set *set, const char *name, program_error *error);
/* Syncs the file under its temporary name; if this fails, the file is removed. */
int save_close(save_set *set, const char *name, program_error *error);

/* rows[n][dim] as a .npy file of two dimensions. */
int save_rows(save_set *set, const char *name, uint64_t n, uint64_t dim, const float *rows, program_error *error);
/* Begins a .npy file; the caller then writes its rows[n][dim], floats, in pieces. */
void save_begin_rows(FILE *stream, uint64_t n, uint64_t dim);
/* The same for an array of this NumPy type, as "u8": [n][dim], or [n] if dim is SAVE_VECTOR. */
#define SAVE_VECTOR UINT64_MAX
void save_begin_array(FILE *stream, const char *type, uint64_t n, uint64_t dim);

/* Call it when all files are written, or writing has `failed`: then they become the set, or are removed. */
int save_finish(save_set *set, const save_origin *origin, int failed, program_error *error);
/* Tells stderr what was saved where. */
void save_tell(const save_set *set);

#endif
