/* The training triples of a folder as what partition.h reads: the rows that each touches, in one key space.
 *
 * Entity e is key e, and relation r is key r + the number of entities: the trainer's two tables, one after the other,
 * as in Frugal. A reciprocal model has a second row for each relation, which is touched together with the first, so
 * that it tells nothing more about where a triple belongs; it is no key here. Negative samples are drawn from all
 * entities, and are no keys either.
 */
#ifndef KGE_SOURCE_H
#define KGE_SOURCE_H

#include "trainers/common/partition.h"
#include "trainers/kge/folder.h"

typedef struct kge_source {
    kge_folder folder;
    uint64_t triples[KGE_SPLITS]; /* how many each split has */
    uint64_t rows;                /* entities and relations */
    uint64_t *keys;               /* keys[PARTITION_BLOCK][3]: head, relation, tail */
} kge_source;

/* Reads the folder once, because the names of all splits are the trainer's rows; only names stay in memory. `path` must
 * outlive the source. On failure there is nothing to close. */
int kge_source_open(kge_source *source, const char *path, program_error *error);
void kge_source_close(kge_source *source);
/* It must not move while this is in use. */
partition_source kge_source_of(kge_source *source);

/* The keys of a triple. */
static inline void kge_source_keys(const kge_triple *triple, uint32_t entities, uint64_t keys[3]) {
    keys[0] = triple->head, keys[1] = (uint64_t)entities + triple->relation, keys[2] = triple->tail;
}

#endif
