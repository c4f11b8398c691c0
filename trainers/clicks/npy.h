/* Logs of arrays, as TorchRec and MLPerf keep Criteo's: x_dense.npy [n][numbers], x_sparse.npy [n][ids] and
 * x_labels.npy [n] or [n][1], named by the first.
 *
 * They are read as text, so that all that reads text reads them: the first line names the columns label, int_0, ...,
 * cat_0, ..., as TorchRec does; floats are written with as many digits as tell them apart. Numbers and ids are taken
 * as they are, because the tools that make such arrays have transformed them.
 */
#ifndef CLICKS_NPY_H
#define CLICKS_NPY_H

#include <stddef.h>
#include <stdint.h>
#include "trainers/common/program.h"

typedef struct clicks_npy clicks_npy;

/* Does the path end as that of numbers does; of ids or labels, with a file of numbers beside them? */
int clicks_npy_is_log(const char *path);
int clicks_npy_is_part(const char *path);
/* On failure *out is NULL. */
int clicks_npy_open(clicks_npy **out, const char *path, program_error *error);
void clicks_npy_close(clicks_npy *npy);
void clicks_npy_shape(const clicks_npy *npy, uint32_t *numbers, uint32_t *ids);
/* to[n]: the next bytes of the text, fewer only at its end. -1: error, with why. */
long clicks_npy_read(clicks_npy *npy, char *to, size_t n, const char **why);

#endif
