/* Link prediction: at which rank among the entities is the true answer, if other known answers are left out?
 *
 * Ties are counted fairly: the rank is the mean of the best and the worst that the tie allows, so a model
 * that gives every entity the same score gets the rank of guessing.
 *
 * Rows are read a set of candidates at a time, so what a ranking needs does not grow with the table. Against some
 * entities instead of all, the triples of a batch share candidates that are drawn for them.
 */
#ifndef KGE_EVAL_H
#define KGE_EVAL_H

#include "trainers/kge/candidates.h"

typedef struct kge_metrics {
    uint64_t triples;
    uint32_t candidates;                  /* that each answer was ranked among, except itself; 0: all entities */
    double mrr, mr, hits1, hits3, hits10; /* of both sides together, filtered */
    /* The standard error of mrr as an estimate of that of all triples; 0: all are ranked; NaN: nothing is known of it,
     * because one triple alone is ranked, or one batch. Among some candidates: as if the triples, too, were a sample of
     * more. */
    double mrr_error;
} kge_metrics;

/* What the model is: `reader` has its rows. `split` is ranked by `threads` threads; the result does not depend on their
 * number. Every `stride`th triple is taken (1: all). If `rank` is not NULL, it receives ranks[2 * triples]: tail, head
 * of each triple. `known` has the answers of these triples' questions. */
typedef struct kge_evaluation {
    const kge_model *model;
    const kge_graph *graph;
    const kge_index *known;
    kge_reader reader;
    const kge_split *split;
    uint32_t threads, stride;
    uint32_t candidates; /* rank against so many entities, drawn at random for each batch; 0: against all */
    uint64_t seed;       /* of these */
    int gives;           /* another machine ranks: this one only reads what that one does (ranks.h) */
} kge_evaluation;

enum { KGE_EVAL_BATCH = 64 }; /* triples that share candidates */

/* The stride that takes a sample of about so many triples; of all of them if they are no more, or if it is 0. */
uint32_t kge_evaluation_stride(const kge_split *split, uint64_t sample);
int kge_evaluate(const kge_evaluation *evaluation, kge_metrics *metrics, double *ranks, program_error *error);

/* query[n][dim] of the questions for one side of triples[n]; if `answer` is not NULL, answer[n][dim] becomes the rows
 * of their answers. room[2][n][dim]. */
typedef struct kge_asking_for {
    kge_side side;
    uint32_t n;
    const kge_triple *triples;
    float *room, *query, *answer;
} kge_asking_for;
int kge_ask(const kge_model *model, uint32_t relations, const kge_reader *reader, const kge_asking_for *asking,
            program_error *error);

#endif
