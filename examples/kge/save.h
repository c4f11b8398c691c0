/* Saving the names of a graph beside its embeddings: id maps, as OpenKE has them. Rows, and publishing:
 * common/save.h. */
#ifndef KGE_SAVE_H
#define KGE_SAVE_H

#include "examples/kge/data.h"
#include "examples/common/save.h"

/* The count, then `name<TAB>id` a line: as kge_graph_read reads them. `twice`: every name once more with
 * " (inverse)" behind it, numbered on; as often as it takes to be no name that is there. */
int kge_save_names(save_set *set, const char *file, const kge_names *names, int twice, program_error *error);

#endif
