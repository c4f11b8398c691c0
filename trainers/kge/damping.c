/* Weights from the number of answers, which an index of the training triples has. */
#include "trainers/kge/damping.h"

#include <math.h>
#include <stdlib.h>

/* Returns the sum. */
static double kge_weigh_side(const kge_index *index, const kge_split *train, kge_side side, float damping, float *of) {
    const kge_triple *unused;
    double sum = 0;
    for (uint64_t i = 0; i < train->n; i++) {
        kge_triple t = train->triples[i];
        uint64_t answers = kge_index_answers(index, side, side == KGE_TAILS ? t.head : t.tail, t.relation, &unused);
        of[i] = (float)pow((double)answers, -(double)damping);
        sum += (double)of[i];
    }
    return sum;
}

int kge_weights_build(kge_weights *weights, const kge_graph *graph, float damping, program_error *error) {
    kge_graph trained = *graph; /* and no other triples */
    kge_index index;
    double sum = 0;
    *weights = (kge_weights){{NULL, NULL}};
    trained.split[KGE_VALID].n = trained.split[KGE_TEST].n = 0;
    const kge_split *train = &graph->split[KGE_TRAIN];
    int status = kge_index_build(&index, &trained, NULL, error);
    if (status)
        return program_fail(error, "out of memory to count the answers of %llu triples; use --damping 0",
                            (unsigned long long)train->n);
    for (int s = 0; s < 2 && !status; s++) {
        weights->of[s] = malloc((train->n + 1) * sizeof *weights->of[s]);
        if (!weights->of[s])
            status = program_fail(error, "out of memory for the weights of %llu triples; use --damping 0",
                                  (unsigned long long)train->n);
        else
            sum += kge_weigh_side(&index, train, (kge_side)s, damping, weights->of[s]);
    }
    kge_index_free(&index);
    float even = (float)(2 * (double)train->n / sum);
    for (int s = 0; s < 2 && !status; s++)
        for (uint64_t i = 0; i < train->n; i++) weights->of[s][i] *= even;
    return status;
}

void kge_weights_free(kge_weights *weights) {
    free(weights->of[0]);
    free(weights->of[1]);
    *weights = (kge_weights){{NULL, NULL}};
}
