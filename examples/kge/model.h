/* The models' mathematics: scores, losses and gradients of a batch with shared negatives.
 *
 * Every model is written as a question and an answer: a query vector made from the given end and the
 * relation, and a score between query and candidate entity. So the scores of many queries and many
 * candidates are one matrix product, whichever end is predicted:
 *
 *   transe      -|q - e|        q = head + relation, or tail - relation        (L2)
 *   transe-l1   -|q - e|_1      the same
 *   distmult    q . e           q = given end * relation
 *   complex     q . e           q = head * relation, or tail * conj(relation); [real parts | imaginary parts]
 *   simple      q . e           [as head | as tail] and [relation | inverse]; q holds the two halves crossed
 *
 * A batch is cut into chunks; the positives of a chunk share one set of negatives (DGL-KE's scheme), so a
 * chunk is three products: scores = Q E', dQ = G E, dE = G' Q.
 */
#ifndef KGE_MODEL_H
#define KGE_MODEL_H

#include "examples/kge/data.h"

typedef enum { KGE_TRANSE, KGE_TRANSE_L1, KGE_DISTMULT, KGE_COMPLEX, KGE_SIMPLE, KGE_MODELS } kge_model_kind;

/* KGE_LOGISTIC: softplus(-(margin + s)) of the positive and softplus(margin + s) of each negative, the mean.
 * KGE_SELF_ADVERSARIAL: the same, negatives weighted by softmax(temperature * s) (RotatE, Sun et al. 2019).
 * KGE_SOFTMAX: cross entropy of the positive among itself and its negatives. */
typedef enum { KGE_LOGISTIC, KGE_SELF_ADVERSARIAL, KGE_SOFTMAX, KGE_LOSSES } kge_loss_kind;

typedef struct kge_model {
    kge_model_kind kind;
    kge_loss_kind loss;
    uint32_t dim;         /* even for complex and simple */
    float margin;         /* logistic losses */
    float temperature;    /* of the self-adversarial weights */
    float regularization; /* weight of the sum of |x|^3 over head, relation, tail (N3), a triple */
    int reciprocal;       /* heads are predicted with a relation of their own: relation + relations */
} kge_model;

/* A batch's shape and ids. Positions of its rows, in this order: heads[triples], tails[triples],
 * negatives[chunks][negatives], relations[triples], and inverse relations[triples] where heads are predicted
 * beside tails by a reciprocal model. */
typedef struct kge_batch {
    uint32_t triples, chunk; /* at least one triple; the last chunk may have fewer than `chunk` */
    uint32_t negatives;      /* of each chunk */
    uint32_t sides;          /* KGE_TAILS | KGE_HEADS */
    float divisor;           /* of the loss: see kge_gradients; 0: triples */
    uint32_t *head, *tail, *relation, *inverse, *negative;
} kge_batch;

/* Scratch memory of one thread, for batches of one shape, or with fewer triples. */
typedef struct kge_workspace {
    float *query, *query_gradient, *score, *memory;
    float *query_norm, *negative_norm, *positive, *weight_sum;
} kge_workspace;

const char *kge_model_name(kge_model_kind kind);
const char *kge_loss_name(kge_loss_kind kind);

/* Of all chunks. */
uint32_t kge_batch_negatives(const kge_batch *batch);
float kge_batch_divisor(const kge_batch *batch);
/* How many rows a batch reads; the most that its shape can need. */
uint32_t kge_batch_positions(const kge_model *model, const kge_batch *batch);
int kge_workspace_open(kge_workspace *work, const kge_model *model, const kge_batch *shape, program_error *error);
void kge_workspace_close(kge_workspace *work);

/* The loss of a batch and its gradient. The loss is the sum over the queries, divided by the divisor and by the number
 * of sides: the mean over the queries if the divisor is the number of triples. rows[positions][dim] in,
 * grads[positions][dim] out, every position written. Threads may run at once, each with a workspace of its own. */
double kge_gradients(const kge_model *model, const kge_batch *batch, const float *rows, float *grads,
                     kge_workspace *work);

/* What guessing gets: the loss, without regularization, of a model that gives all entities the same score; of the
 * logistic losses, the score at which it is least. */
double kge_guess_loss(const kge_model *model, uint32_t negatives);

/* query[n][dim] from anchor[n][dim] (the given ends) and relation[n][dim]. */
void kge_queries(const kge_model *model, kge_side side, uint32_t n, const float *anchor, const float *relation,
                 float *query);

/* norm[i] = squared length of rows[i][dim]: what kge_scores needs of queries and candidates (transe only). */
void kge_norms(const kge_model *model, uint32_t n, const float *rows, float *norm);

typedef struct kge_rows { /* at[n][dim] */
    uint32_t n;
    const float *at;
} kge_rows;

/* score[queries][candidates] in any monotone scale in which more is better: for ranking. */
void kge_ranking_scores(const kge_model *model, kge_rows queries, kge_rows candidates, const float *candidate_norm,
                        float *score);

#endif
