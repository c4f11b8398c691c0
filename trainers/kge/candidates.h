/* Candidates: entities whose rows lie side by side, so that many questions are scored against them by one product.
 *
 * Rows come from a reader, a set at a time, so a table is never copied whole. A set has a width, the same for all sets
 * of a ranking, and a multiple of KGE_CANDIDATES_STEP or the number of all entities; rows behind its candidates are
 * zeros. So a row has the same score in any set, to the last bit, because the products have the same shape.
 */
#ifndef KGE_CANDIDATES_H
#define KGE_CANDIDATES_H

#include "trainers/kge/model.h"

/* Reads rows[n][dim] of entities (table 0) or relations (1: those of inverse relations behind the others). */
typedef struct kge_reader {
    int (*read)(void *of, uint32_t table, const uint32_t *ids, uint32_t n, float *rows, program_error *error);
    void *of;
} kge_reader;

/* A reader of tables in memory, table[2][rows][dim]. */
typedef struct kge_memory {
    const float *table[2];
    uint32_t dim;
} kge_memory;
kge_reader kge_memory_reader(kge_memory *memory);

enum { KGE_CANDIDATES_STEP = 64 };

typedef struct kge_candidates {
    const kge_model *model;
    const kge_reader *reader;
    uint32_t n, width;
    uint32_t *ids;       /* [n], rising */
    float *rows, *norms; /* [width][dim], [width] */
} kge_candidates;

/* The width for all entities in one set, or in as many as keep a set small. */
uint32_t kge_candidates_width(uint32_t entities, uint32_t dim);

/* All return 0, or -1 with *error filled; what failed can be closed. */
int kge_candidates_open(kge_candidates *c, const kge_model *model, const kge_reader *reader, uint32_t width,
                        program_error *error);
void kge_candidates_close(kge_candidates *c);
/* Entities `first` to first + n - 1. */
int kge_candidates_span(kge_candidates *c, uint32_t first, uint32_t n, program_error *error);
/* n of the entities, drawn at random without replacement: a function of `key`. */
int kge_candidates_draw(kge_candidates *c, uint32_t n, uint32_t entities, uint64_t key, program_error *error);
/* The first candidate that is not below `id`; n if all are. */
uint32_t kge_candidates_from(const kge_candidates *c, uint32_t id);

#endif
