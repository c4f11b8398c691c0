/* The files of a folder that is given as a log.
 */
#ifndef CLICKS_FOLDER_H
#define CLICKS_FOLDER_H

#include <stdint.h>
#include "trainers/common/program.h"

typedef struct clicks_folder {
    char **files; /* their paths; NULL follows the last */
    uint32_t n;
} clicks_folder;

int clicks_is_folder(const char *path);
/* The files in it, in the order of their names, where a number in a name counts as one: day_2 is before day_10. Names
 * that begin with a dot or an underscore are left out (Spark's _SUCCESS); so are folders, and of the arrays that
 * belong together (npy.h) all but x_dense.npy. On failure there is nothing to free. */
int clicks_folder_read(clicks_folder *folder, const char *path, program_error *error);
void clicks_folder_free(clicks_folder *folder);

#endif
