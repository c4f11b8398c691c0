/* Files of a result, NumPy's .npy among them: nobody sees half a file, and old ones stay until all new ones are whole.
 *
 *     static const char *const files[] = {"rows.npy", "names.txt"};
 *     save_prepare(folder, files[0], &error)                        before training: will it be possible?
 *     save_rows(folder, files[0], n, dim, rows, &error)             each is written as NAME.part
 *     save_open(&file, folder, files[1], &error), fprintf(file.stream, ...), save_close(&file, &error)
 *     save_finish(folder, files, 2, failed, &error)                 whole: each gets its name; else none is left
 *
 * Functions return 0, or -1 with *error filled.
 */
#ifndef SAVE_H
#define SAVE_H

#include "examples/common/program.h"

/* Makes the folder where there is none, and makes sure that a file, of this name as any, can be written into it. */
int save_prepare(const char *folder, const char *name, program_error *error);

/* rows[n][dim] as a .npy file of two dimensions. */
int save_rows(const char *folder, const char *name, uint64_t n, uint64_t dim, const float *rows, program_error *error);

/* A file of any kind: write to its stream, without regard to errors, for closing tells of them. */
typedef struct save_file {
    char path[4096], temporary[4112];
    FILE *stream;
} save_file;

int save_open(save_file *file, const char *folder, const char *name, program_error *error);
/* Begins a .npy file whose rows[n][dim], floats, the caller writes behind it, in pieces. */
void save_begin_rows(const save_file *file, uint64_t n, uint64_t dim);
/* On disk, under its temporary name; where that fails it is taken away. */
int save_close(save_file *file, program_error *error);

/* When all are written, or have `failed`: save_publish, and says on stderr what was saved where; or save_discard. */
int save_finish(const char *folder, const char *const *names, int n, int failed, program_error *error);

/* Gives the files written above their names, once all are whole; or takes them away. */
int save_publish(const char *folder, const char *const *names, int n, program_error *error);
void save_discard(const char *folder, const char *const *names, int n);

#endif
