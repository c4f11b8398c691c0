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
 *   rotate      -|q - e|        q = head * r, or tail * conj(r), complex numbers as in complex; r is the relation, each
 *                               of its complex numbers divided by its modulus, so that it turns and does not scale
 *
 * A batch is cut into chunks; the positives of a chunk share one set of negatives (DGL-KE's scheme), so a
 * chunk is three products: scores = Q E', dQ = G E, dE = G' Q. In place of negatives, a batch can have all entities
 * (all.h).
 */
#ifndef KGE_MODEL_H
#define KGE_MODEL_H

#include "trainers/kge/question.h"

typedef enum {
    KGE_TRANSE,
    KGE_TRANSE_L1,
    KGE_DISTMULT,
    KGE_COMPLEX,
    KGE_SIMPLE,
    KGE_ROTATE,
    KGE_MODELS
} kge_model_kind;

/* Models whose scores are L2 distances; whose rows are complex numbers; whose rows have two halves. */
#define KGE_HAS_L2(kind)     ((kind) == KGE_TRANSE || (kind) == KGE_ROTATE)
#define KGE_IS_COMPLEX(kind) ((kind) == KGE_COMPLEX || (kind) == KGE_ROTATE)
#define KGE_HAS_HALVES(kind) (KGE_IS_COMPLEX(kind) || (kind) == KGE_SIMPLE)
/* Keeps a distance, and the modulus of a relation of rotate, above 0, where their gradients are not finite. */
#define KGE_SMALLEST_SQUARE 1e-10f

/* KGE_LOGISTIC: softplus(-(margin + s)) of the positive and softplus(margin + s) of each negative, the mean.
 * KGE_SELF_ADVERSARIAL: the same, negatives weighted by softmax(temperature * s) (RotatE, Sun et al. 2019).
 * KGE_SOFTMAX: cross entropy of the positive among itself and its negatives; with stands_for the
 * sum over the negatives' exponentials is multiplied, so that it estimates that over all other entities. */
typedef enum { KGE_LOGISTIC, KGE_SELF_ADVERSARIAL, KGE_SOFTMAX, KGE_LOSSES } kge_loss_kind;

/* KGE_SAMPLED: against negatives. KGE_1VSALL, with KGE_SOFTMAX: cross entropy of the answer among all entities.
 * KGE_KVSALL, with KGE_LOGISTIC: a question has all its answers at once, softplus(-(margin + s)) of each of them and
 * softplus(margin + s) of each other entity, the sum. */
typedef enum { KGE_SAMPLED, KGE_1VSALL, KGE_KVSALL, KGE_SCORINGS } kge_scoring;

typedef struct kge_model {
    kge_model_kind kind;
    kge_loss_kind loss;
    uint32_t dim;         /* even where rows have two halves */
    float margin;         /* logistic losses */
    float temperature;    /* of the self-adversarial weights */
    float regularization; /* weight of the sum of |x|^3 over a triple's rows (N3): see kge_relation_n3 */
    int reciprocal;       /* heads are predicted with a relation of their own: relation + relations */
    float damping;        /* a question with n answers weighs n^-damping (damping.h); 0: all alike */
    /* softmax: the negatives are drawn from this many entities, and stand for them; 0: each counts once. One that is
     * the answer counts nothing, so the sum of exponentials is right on average for all entities but the answer. */
    uint32_t stands_for;
    kge_scoring scoring;
} kge_model;

/* A batch's shape and ids. Positions of its rows, in this order: heads[triples], tails[triples],
 * negatives[chunks][negatives], relations[triples], and inverse relations[triples] of a reciprocal model.
 * Scored against all entities, it has no negatives, and its rows are: all entities[entities] by id, then relations as
 * above. With KvsAll its triples are questions of kge_questions.asked, for tails alone; so it has no inverse relations.
 */
typedef struct kge_batch {
    uint32_t triples, chunk;        /* at least one triple; the last chunk may have fewer than `chunk` */
    uint32_t negatives;             /* of each chunk */
    float divisor;                  /* of the loss: see kge_gradients; 0: triples */
    int weighted;                   /* have questions weights of their own? Not with KvsAll */
    uint32_t entities;              /* of the graph, where all are scored; 0: negatives are */
    const kge_questions *questions; /* KvsAll's; NULL */
    uint32_t *head, *tail, *relation, *inverse, *negative;
    float *weight[2]; /* [triples]: where `weighted`, of the question for the tail, for the head; NULL */
} kge_batch;

/* Scratch memory of one thread, for batches of one shape, or with fewer triples. */
typedef struct kge_workspace {
    float *query, *query_gradient, *score, *memory;
    float *query_norm, *negative_norm, *positive, *weight_sum;
    float *anchor; /* of batches that are scored against all entities */
} kge_workspace;

const char *kge_model_name(kge_model_kind kind);
const char *kge_loss_name(kge_loss_kind kind);
const char *kge_scoring_name(kge_scoring scoring);

/* The weight of N3 over relations: those of rotate have modulus 1. */
float kge_relation_n3(const kge_model *model);
/* What is added to the scores of `negatives` negatives of a query, because they stand for others. */
float kge_correction(const kge_model *model, uint32_t negatives);
/* Of all chunks. */
uint32_t kge_batch_negatives(const kge_batch *batch);
float kge_batch_divisor(const kge_batch *batch);
/* How many questions a triple is: 2, for its tail and its head; with KvsAll 1. */
uint32_t kge_batch_sides(const kge_batch *batch);
/* Of each triple: 1, or 2 where both sides have their own. */
uint32_t kge_batch_relations(const kge_model *model, const kge_batch *batch);
/* How many rows a batch reads; the most that its shape can need. */
uint32_t kge_batch_positions(const kge_model *model, const kge_batch *batch);
int kge_workspace_open(kge_workspace *work, const kge_model *model, const kge_batch *shape, program_error *error);
void kge_workspace_close(kge_workspace *work);

/* The loss of a batch and its gradient. The loss is the sum over the queries, each times its weight, divided by the
 * divisor and by the number of sides: the mean over the queries if the divisor is the number of triples.
 * rows[positions][dim] in, grads[positions][dim] out, every position written. Threads may run at once, each with a
 * workspace of its own. */
double kge_gradients(const kge_model *model, const kge_batch *batch, const float *rows, float *grads,
                     kge_workspace *work);

/* What guessing gets: the loss, without regularization, of a model that gives all entities the same score; of the
 * logistic losses, the score at which it is least. An answer is scored against so many others; KvsAll's questions have
 * so many answers on average. */
double kge_guess_loss(const kge_model *model, uint32_t others, double answers);

/* query[n][dim] from anchor[n][dim] (the given ends) and relation[n][dim]. */
void kge_queries(const kge_model *model, kge_side side, uint32_t n, const float *anchor, const float *relation,
                 float *query);

/* norm[i] = squared length of rows[i][dim]: what kge_scores needs of queries and candidates (L2 distances only). */
void kge_norms(const kge_model *model, uint32_t n, const float *rows, float *norm);

typedef struct kge_rows { /* at[n][dim] */
    uint32_t n;
    const float *at;
} kge_rows;

/* score[queries][candidates] in any monotone scale in which more is better: for ranking. */
void kge_ranking_scores(const kge_model *model, kge_rows queries, kge_rows candidates, const float *candidate_norm,
                        float *score);

#endif
