/* Saving embeddings: NumPy's .npy files and the id maps, each written beside the old one and renamed. */
#ifndef KGE_SAVE_H
#define KGE_SAVE_H

#include "kge_data.h"

/* Makes the folder where there is none, and makes sure that a file can be written into it. */
int kge_save_prepare(const char *folder, program_error *error);
/* rows[n][dim] as a .npy file. */
int kge_save_rows(const char *folder, const char *file, uint64_t n, uint32_t dim, const float *rows,
                  program_error *error);
/* The count, then `name<TAB>id` a line: as kge_graph_read reads them. `twice`: every name once more with
 * " (inverse)" behind it, numbered on; as often as it takes to be no name that is there. */
int kge_save_names(const char *folder, const char *file, const kge_names *names, int twice, program_error *error);

/* Gives the files written above their names, once all are whole; or takes them away. */
int kge_save_publish(const char *folder, const char *const *files, int n, program_error *error);
void kge_save_discard(const char *folder, const char *const *files, int n);

#endif
