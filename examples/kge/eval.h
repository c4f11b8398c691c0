/* Link prediction: at which rank among all entities is the true answer, if other known answers are left out?
 *
 * Ties are counted fairly: the rank is the mean of the best and the worst that the tie allows, so a model
 * that gives every entity the same score gets the rank of guessing.
 */
#ifndef KGE_EVAL_H
#define KGE_EVAL_H

#include "examples/kge/model.h"

typedef struct kge_metrics {
    uint64_t triples;
    double mrr, mr, hits1, hits3, hits10; /* of both sides together, filtered */
    /* The standard error of mrr as an estimate of that of all triples; 0: all are ranked; NaN: one alone is, so nothing
     * is known of it. */
    double mrr_error;
} kge_metrics;

/* entities[][dim] and relations[][dim] hold the model (reciprocal models: inverse relations behind the
 * others). `split` is ranked by `threads` threads; the result does not depend on their number. Every
 * `stride`th triple is taken (1: all). If `rank` is not NULL, it receives ranks[2 * triples]: tail, head of each
 * triple. */
typedef struct kge_evaluation {
    const kge_model *model;
    const kge_graph *graph;
    const kge_index *known;
    const float *entities, *relations;
    const kge_split *split;
    uint32_t threads, stride;
} kge_evaluation;

/* The stride that takes a sample of about so many triples; of all of them if they are no more, or if it is 0. */
uint32_t kge_evaluation_stride(const kge_split *split, uint64_t sample);
int kge_evaluate(const kge_evaluation *evaluation, kge_metrics *metrics, double *ranks, program_error *error);

#endif
