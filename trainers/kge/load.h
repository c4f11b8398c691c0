/* Sets that `kge --save` has made, to predict from, to rank, or to go on from with a graph that has more names.
 *
 *     kge_saved_look(&saved, folder, &error)            what it is: model, dim, rows
 *     kge_saved_open(&saved, reciprocal, &error)        its names; are its files whole?
 *     kge_saved_read(&saved, &graph, &to, &error)       its rows, by name, into a trainer's tables
 *     kge_saved_close(&saved)
 *
 * A set has rows, and no optimizer state: what is trained on from them begins with that of new rows.
 */
#ifndef KGE_LOAD_H
#define KGE_LOAD_H

#include "trainers/kge/model.h"
#include "trainers/common/manifest.h"

typedef struct kge_saved {
    const char *folder; /* the caller's */
    kge_model_kind kind;
    uint64_t step, rows[2]; /* of entities and of relations, inverse ones among them */
    uint32_t dim, checksum; /* checksum: of its files */
    int reciprocal;         /* by kge_saved_open */
    kge_names entities, relations;
    char path[2][MANIFEST_LONGEST_PATH]; /* of the rows */
} kge_saved;

/* All return 0, or -1 with *error filled; what failed can be closed. */
int kge_saved_look(kge_saved *saved, const char *folder, program_error *error);
/* Has it inverse relations? `reciprocal`: 0, 1, as was asked for, or -1: its names say so. */
int kge_saved_open(kge_saved *saved, int reciprocal, program_error *error);
void kge_saved_close(kge_saved *saved);

/* The graph becomes one without triples that has the set's names. */
int kge_saved_graph(const kge_saved *saved, kge_graph *graph, program_error *error);
/* rows[n][dim] for keys[n] of table 0 (entities) or 1 (relations), and what takes them. */
typedef struct kge_written {
    uint32_t table, n;
    const uint64_t *keys;
    const float *rows;
} kge_written;
typedef struct kge_writer {
    int (*write)(void *of, const kge_written *written, program_error *error);
    void *of;
} kge_writer;

/* Rows of names that the graph has, too, become the set's. Tells on stderr how many these are. */
int kge_saved_read(const kge_saved *saved, const kge_graph *graph, const kge_writer *to, program_error *error);

#endif
