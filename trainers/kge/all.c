/* Losses and gradients of questions that are scored against all entities. */
#include "trainers/kge/all.h"
#include "trainers/kge/loss.h"
#include "trainers/kge/n3.h"
#include "trainers/kge/query.h"

#include <cblas.h>

/* A chunk: n triples from `from` on, each with one question or one for either side; all tails' come first. */
typedef struct kge_asking {
    uint32_t from, n, sides;
    size_t relation_at[2];    /* positions */
    const uint32_t *given[2]; /* [n]: the entities that are given, by side */
    const uint32_t *right[2]; /* [n]: those that are asked for; with KvsAll the numbers of the questions */
    const float *weight[2];   /* [n]; NULL: 1 */
} kge_asking;

static kge_asking kge_asking_of(const kge_model *model, const kge_batch *batch, uint32_t from) {
    kge_asking asking = {.from = from,
                         .n = batch->triples - from < batch->chunk ? batch->triples - from : batch->chunk,
                         .sides = kge_batch_sides(batch)};
    uint32_t relations = kge_batch_relations(model, batch);
    for (uint32_t s = 0; s < asking.sides; s++) {
        asking.given[s] = (s ? batch->tail : batch->head) + from;
        asking.right[s] = (s ? batch->head : batch->tail) + from;
        asking.weight[s] = batch->weight[s] ? batch->weight[s] + from : NULL;
        asking.relation_at[s] = batch->entities + from + (relations == 2 && s ? (size_t)batch->triples : (size_t)0);
    }
    return asking;
}

/* The right answers of question i of the chunk, *answers of them. */
static const uint32_t *kge_right_answers(const kge_batch *batch, const kge_asking *asking, uint32_t i,
                                         uint64_t *answers) {
    const uint32_t *right = &asking->right[i / asking->n][i % asking->n];
    const kge_questions *questions = batch->questions;
    *answers = questions ? questions->first[*right + 1] - questions->first[*right] : 1;
    return questions ? questions->answer + questions->first[*right] : right;
}

/* ---- The loss of a chunk ---------------------------------------------------------------------------------- */

/* The sum of softplus(margin + score) over all entities; scores become slopes. */
VECTOR_INLINE float kge_all_softplus(uint32_t n, float margin, float *restrict score, float *restrict term) {
    for (uint32_t j = 0; j < n; j++) {
        float slope;
        term[j] = kge_softplus(score[j] + margin, &slope);
        score[j] = slope;
    }
    return kge_sum(n, term);
}

/* One question: scores become their gradients, not yet scaled. As if all entities were wrong; then the right ones are
 * taken back. */
VECTOR_INLINE float kge_all_question(const kge_model *model, uint32_t n, const uint32_t *right, uint64_t answers,
                                     float *restrict score, float *restrict weight) {
    float margin = model->scoring == KGE_KVSALL ? model->margin : 0.0f, own = 0, loss, unused;
    for (uint64_t a = 0; a < answers; a++) own += score[right[a]] + margin;
    if (model->scoring == KGE_KVSALL)
        loss = kge_all_softplus(n, margin, score, weight);
    else {
        loss = kge_softmax(n, 1.0f, score, NULL, weight, &unused);
        memcpy(score, weight, n * sizeof *score);
    }
    for (uint64_t a = 0; a < answers; a++) score[right[a]] -= 1.0f;
    return loss - own;
}

/* Turns products into losses and gradients by score, in place: score[questions][entities]. `even` is the scale of a
 * question with weight 1. For distances the gradients are divided by the distance at once, and summed by question, and
 * added to sum[entities]. */
VECTOR_CLONES
static double kge_all_loss(const kge_model *model, const kge_batch *batch, const kge_asking *asking, float even,
                           kge_workspace *work, float *restrict sum) {
    uint32_t n = batch->entities;
    float *weight = work->memory, *inverse = weight + n;
    double loss = 0;
    for (uint32_t i = 0; i < asking->n * asking->sides; i++) {
        float *restrict score = work->score + (size_t)i * n;
        uint64_t answers;
        const uint32_t *right = kge_right_answers(batch, asking, i, &answers);
        if (KGE_HAS_L2(model->kind)) kge_distances(n, work->query_norm[i], work->negative_norm, score, inverse);
        const float *weights = asking->weight[i / asking->n];
        float own = weights ? weights[i % asking->n] : 1.0f, scale = even * own;
        loss += (double)own * (double)kge_all_question(model, n, right, answers, score, weight);
        for (uint32_t j = 0; j < n; j++) score[j] = vector_normal(score[j] * scale);
        if (!KGE_HAS_L2(model->kind)) continue;
        for (uint32_t j = 0; j < n; j++) {
            score[j] = vector_normal(score[j] * inverse[j]);
            sum[j] += score[j];
        }
        work->weight_sum[i] = kge_sum(n, score);
    }
    return loss;
}

/* ---- Gradients -------------------------------------------------------------------------------------------- */

VECTOR_CLONES
void kge_all_pull(uint32_t n, uint32_t dim, const float *restrict row, const float *restrict sum,
                  float *restrict gradient) {
    for (uint32_t i = 0; i < n; i++, row += dim, gradient += dim)
        for (uint32_t k = 0; k < dim; k++) gradient[k] -= sum[i] * row[k];
}

VECTOR_CLONES
static void kge_all_scatter(uint32_t n, uint32_t dim, const uint32_t *entity, const float *restrict gradient,
                            float *restrict grads) {
    for (uint32_t i = 0; i < n; i++, gradient += dim)
        for (uint32_t k = 0; k < dim; k++) grads[(size_t)entity[i] * dim + k] += gradient[k];
}

/* Asks, scores and goes back; `sum` as in kge_all_loss. */
static double kge_all_chunk(const kge_model *model, const kge_batch *batch, const kge_asking *asking, const float *rows,
                            float *grads, kge_workspace *work, float *sum) {
    size_t dim = model->dim;
    uint32_t questions = asking->n * asking->sides;
    blasint n = (blasint)batch->entities, width = (blasint)dim, asked = (blasint)questions;
    float scale = 1.0f / (kge_batch_divisor(batch) * (float)asking->sides);
    for (uint32_t s = 0; s < asking->sides; s++) {
        float *anchor = work->anchor + s * asking->n * dim;
        for (uint32_t i = 0; i < asking->n; i++)
            memcpy(anchor + i * dim, rows + asking->given[s][i] * dim, dim * sizeof *anchor);
        kge_queries(model, (kge_side)s, asking->n, anchor, rows + asking->relation_at[s] * dim,
                    work->query + s * asking->n * dim);
    }
    kge_norms(model, questions, work->query, work->query_norm);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, asked, n, width, 1.0f, work->query, width, rows, width, 0.0f,
                work->score, n);
    double loss = kge_all_loss(model, batch, asking, scale, work, sum) * scale;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, asked, width, n, 1.0f, work->score, n, rows, width, 0.0f,
                work->query_gradient, width);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, width, asked, 1.0f, work->score, n, work->query, width,
                1.0f, grads, width);
    if (KGE_HAS_L2(model->kind))
        kge_all_pull(questions, model->dim, work->query, work->weight_sum, work->query_gradient);
    for (uint32_t s = 0; s < asking->sides; s++) {
        size_t at = s * asking->n * dim;
        kge_asked given = {asking->n, model->dim, work->anchor + at, rows + asking->relation_at[s] * dim};
        kge_sink sink = {.anchor = work->query + at, /* queries are not needed any more */
                         .relation = grads + asking->relation_at[s] * dim,
                         .add_relation = s > 0 && asking->relation_at[0] == asking->relation_at[1]};
        kge_queries_back(model, (kge_side)s, &given, work->query_gradient + at, &sink);
        kge_all_scatter(asking->n, model->dim, asking->given[s], sink.anchor, grads);
    }
    return loss;
}

/* N3 of each triple's rows; with KvsAll, of the given end and the relation of each question. */
static double kge_all_regularize(const kge_model *model, const kge_batch *batch, const float *rows, float *grads) {
    size_t dim = model->dim;
    float divisor = kge_batch_divisor(batch), weight = model->regularization / divisor;
    uint32_t relations = batch->triples * kge_batch_relations(model, batch);
    double loss = 0;
    for (uint32_t i = 0; i < batch->triples; i++) {
        loss += kge_regularize(model, 1, rows + batch->head[i] * dim, weight, grads + batch->head[i] * dim);
        if (!batch->questions)
            loss += kge_regularize(model, 1, rows + batch->tail[i] * dim, weight, grads + batch->tail[i] * dim);
    }
    return loss + kge_regularize(model, relations, rows + batch->entities * dim, kge_relation_n3(model) / divisor,
                                 grads + batch->entities * dim);
}

double kge_all_gradients(const kge_model *model, const kge_batch *batch, const float *rows, float *grads,
                         kge_workspace *work) {
    size_t n = batch->entities;
    float *sum = work->memory + 2 * n;
    double loss = 0;
    memset(grads, 0, n * model->dim * sizeof *grads);
    memset(sum, 0, n * sizeof *sum);
    kge_norms(model, batch->entities, rows, work->negative_norm);
    for (uint32_t from = 0; from < batch->triples; from += batch->chunk) {
        kge_asking asking = kge_asking_of(model, batch, from);
        loss += kge_all_chunk(model, batch, &asking, rows, grads, work, sum);
    }
    if (KGE_HAS_L2(model->kind)) kge_all_pull(batch->entities, model->dim, rows, sum, grads);
    return loss + kge_all_regularize(model, batch, rows, grads);
}
