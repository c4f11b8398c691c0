/* Queries: what a model makes of a given end and a relation, to be scored against candidates (model.h). */
#ifndef KGE_QUERY_H
#define KGE_QUERY_H

#include "trainers/kge/model.h"

/* What n queries were made of: anchor[n][dim], relation[n][dim]. */
typedef struct kge_asked {
    uint32_t n, dim;
    const float *anchor, *relation;
} kge_asked;

/* Where gradients go. The first side that writes a position sets it, the second adds to it, so nothing is cleared
 * before. */
typedef struct kge_sink {
    float *anchor, *target, *relation;
    int add, add_relation;
} kge_sink;

/* Writes or adds value, as a sink wants it. */
#define KGE_PUT(where, add, value) ((where) = (add) ? (where) + (value) : (value))

/* Carries the gradients of queries, gradient[n][dim], on to the given ends and the relations. What makes queries is
 * kge_queries (model.h). */
void kge_queries_back(const kge_model *model, kge_side side, const kge_asked *asked, const float *gradient,
                      const kge_sink *sink);

#endif
