/* Reading NumPy's .npy files: arrays of one or two dimensions, row by row in memory order. save.h writes them. */
#ifndef NPY_H
#define NPY_H

#include <stdio.h>

#include "trainers/common/program.h"

typedef struct npy_array {
    FILE *stream;    /* at the first number */
    char type[8];    /* NumPy's, as "<f4", "<i8", "|u1" */
    uint32_t bytes;  /* of a number */
    int dimensions;  /* 1 or 2 */
    uint64_t n, dim; /* [n][dim]; of one dimension: [n], and dim is 1 */
} npy_array;

/* 0, or -1 with *error filled: no such file, no .npy file, more dimensions, columns one after the other, or a file that
 * is shorter or longer than its header says. array->stream is to be closed. */
int npy_open(npy_array *array, const char *path, program_error *error);

#endif
