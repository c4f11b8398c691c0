/* Saving the names of a graph beside its embeddings: id maps in OpenKE's format. common/save.h saves the rows and
 * publishes all. */
#ifndef KGE_SAVE_H
#define KGE_SAVE_H

#include "trainers/kge/data.h"
#include "trainers/common/save.h"

/* The files of a set: the rows of entities and of relations, and the names of both. */
enum { KGE_SAVED_FILES = 4 };
extern const char *const kge_saved_files[KGE_SAVED_FILES];

/* The count, then `name<TAB>id` a line: as kge_graph_read reads them. `twice`: then every name once more, numbered on,
 * with " (inverse)" appended as often as it takes to make a new name. */
int kge_save_names(save_set *set, const char *file, const kge_names *names, int twice, program_error *error);

/* Are the last half of these names those of the first half, as kge_save_names makes them `twice`? */
int kge_names_have_inverses(const kge_names *names);

#endif
