/* Weights of questions: those with many answers count less, or more.
 *
 * A question is a given end and a relation. In a sum over triples, a question with n answers counts n times, and some
 * have thousands: then they have most of the gradient. Damped, each of these n has weight n^-damping. At 1/2 that is
 * how word2vec thins out frequent words (Mikolov et al. 2013), and at 1 all questions count alike. Below 0, those with
 * many answers count even more. The mean weight over the training triples and their ends is 1, so that the
 * learning rate need not change. */
#ifndef KGE_DAMPING_H
#define KGE_DAMPING_H

#include "trainers/kge/data.h"

typedef struct kge_weights {
    float *of[2]; /* [training triples]: of the question for the tail, for the head */
} kge_weights;

/* Of the training triples. Answers that come twice count once. An index of these triples is built for it, and freed. 0,
 * or -1 with *error filled; what failed can be freed. */
int kge_weights_build(kge_weights *weights, const kge_graph *graph, float damping, program_error *error);
void kge_weights_free(kge_weights *weights);

#endif
