/* Scores, losses and gradients of the knowledge graph models. See model.h for the scheme, query.c for queries. */
#include "trainers/kge/model.h"
#include "trainers/kge/all.h"
#include "trainers/kge/loss.h"
#include "trainers/kge/n3.h"
#include "trainers/kge/query.h"
#include "trainers/kge/row.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

/* The score of a negative that is the positive's own answer: no weight, no gradient. */
#define KGE_MASKED (-1e30f)

const char *kge_model_name(kge_model_kind kind) {
    static const char *const name[KGE_MODELS] = {"transe", "transe-l1", "distmult", "complex", "simple", "rotate"};
    return name[kind];
}

const char *kge_loss_name(kge_loss_kind kind) {
    static const char *const name[KGE_LOSSES] = {"logistic", "self-adversarial", "softmax"};
    return name[kind];
}

const char *kge_scoring_name(kge_scoring scoring) {
    static const char *const name[KGE_SCORINGS] = {"sampled", "1vsall", "kvsall"};
    return name[scoring];
}

/* ---- Scores -------------------------------------------------------------------------------------------- */

VECTOR_CLONES
void kge_norms(const kge_model *model, uint32_t n, const float *rows, float *norm) {
    if (!KGE_HAS_L2(model->kind)) return;
    for (uint32_t i = 0; i < n; i++, rows += model->dim) norm[i] = vector_dot(model->dim, rows, rows);
}

/* score[i][j] = scale * query i . candidate j */
static void kge_products(uint32_t dim, float scale, kge_rows queries, kge_rows candidates, float *score) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)queries.n, (blasint)candidates.n, (blasint)dim, scale,
                queries.at, (blasint)dim, candidates.at, (blasint)dim, 0.0f, score, (blasint)candidates.n);
}

/* score[i][j] = -|query i - candidate j|_1; candidates in blocks that stay in the first-level cache. */
VECTOR_CLONES
static void kge_l1_scores(uint32_t dim, kge_rows queries, kge_rows candidates, float *score) {
    uint32_t n_queries = queries.n, n_candidates = candidates.n;
    uint32_t block = 4096 / (dim < 1024 ? dim : 1024) & ~3u;
    if (block < 4) block = 4;
    for (uint32_t from = 0; from < n_candidates; from += block) {
        uint32_t to = n_candidates - from < block ? n_candidates : from + block;
        for (uint32_t i = 0; i < n_queries; i++) {
            const float *q = queries.at + (size_t)i * dim;
            float *out = score + (size_t)i * n_candidates, sum[4];
            uint32_t j = from;
            for (; j + 4 <= to; j += 4) {
                kge_l1_four(dim, q, candidates.at + (size_t)j * dim, dim, sum);
                for (int k = 0; k < 4; k++) out[j + (uint32_t)k] = -sum[k];
            }
            for (; j < to; j++) out[j] = -kge_l1(dim, q, candidates.at + (size_t)j * dim);
        }
    }
}

VECTOR_CLONES
static void kge_subtract_norms(uint32_t n_queries, uint32_t n_candidates, const float *restrict norm,
                               float *restrict score) {
    for (uint32_t i = 0; i < n_queries; i++, score += n_candidates)
        for (uint32_t j = 0; j < n_candidates; j++) score[j] -= norm[j];
}

void kge_ranking_scores(const kge_model *model, kge_rows queries, kge_rows candidates, const float *candidate_norm,
                        float *score) {
    if (model->kind == KGE_TRANSE_L1) {
        kge_l1_scores(model->dim, queries, candidates, score);
        return;
    }
    /* |q|^2 is the same for all candidates of a query: 2 q.e - |e|^2 ranks as -|q - e| does. */
    float scale = KGE_HAS_L2(model->kind) ? 2.0f : 1.0f;
    kge_products(model->dim, scale, queries, candidates, score);
    if (KGE_HAS_L2(model->kind)) kge_subtract_norms(queries.n, candidates.n, candidate_norm, score);
}

/* positive[i] = score of query i and its own answer. */
VECTOR_CLONES
static void kge_pair_scores(const kge_model *model, uint32_t n, const float *query, const float *target,
                            float *positive) {
    uint32_t dim = model->dim;
    for (uint32_t i = 0; i < n; i++, query += dim, target += dim) {
        if (KGE_HAS_L2(model->kind)) {
            float square = kge_squared_distance(dim, query, target);
            positive[i] = -sqrtf(square < KGE_SMALLEST_SQUARE ? KGE_SMALLEST_SQUARE : square);
        } else if (model->kind == KGE_TRANSE_L1)
            positive[i] = -kge_l1(dim, query, target);
        else
            positive[i] = vector_dot(dim, query, target);
    }
}

/* ---- Losses -------------------------------------------------------------------------------------------- */

float kge_relation_n3(const kge_model *model) {
    return model->kind == KGE_ROTATE ? 0.0f : model->regularization;
}

float kge_correction(const kge_model *model, uint32_t negatives) {
    int corrected = model->loss == KGE_SOFTMAX && model->stands_for > 0;
    return corrected ? logf((float)model->stands_for / (float)negatives) : 0.0f;
}

/* The loss of one query. score[n]: on entry the scores of the negatives, on return their gradients; the same for
 * *positive. */
VECTOR_INLINE float kge_query_loss(const kge_model *model, uint32_t n, float *restrict score, float *positive,
                                   float *restrict weight, float *restrict term) {
    float share, slope;
    if (model->loss == KGE_SOFTMAX) {
        float loss = kge_softmax(n, 1.0f, score, positive, weight, &share) - *positive;
        for (uint32_t j = 0; j < n; j++) score[j] = weight[j];
        *positive = share - 1.0f;
        return loss;
    }
    if (model->loss == KGE_SELF_ADVERSARIAL)
        kge_softmax(n, model->temperature, score, NULL, weight, &share);
    else
        for (uint32_t j = 0; j < n; j++) weight[j] = 1.0f / (float)n;
    for (uint32_t j = 0; j < n; j++) {
        float loss = kge_softplus(score[j] + model->margin, &slope);
        term[j] = weight[j] * loss;
        score[j] = 0.5f * weight[j] * slope;
    }
    float loss = 0.5f * (kge_sum(n, term) + kge_softplus(-(*positive + model->margin), &slope));
    *positive = -0.5f * slope;
    return loss;
}

double kge_guess_loss(const kge_model *model, uint32_t others, double answers) {
    double n = (double)others + 1, right = answers / n;
    if (model->scoring == KGE_KVSALL) return right < 1 ? -answers * log(right) - (n - answers) * log1p(-right) : 0;
    return model->loss == KGE_SOFTMAX ? log(n) : log(2);
}

/* One chunk's view of the batch: its queries, of both sides, and their negatives. */
typedef struct kge_chunk {
    uint32_t n; /* positives; 2 n queries, all tails' first */
    const uint32_t *target[2], *negative;
    const float *weight[2]; /* of queries; NULL: 1 */
} kge_chunk;

/* Turns products into losses and gradients by score, in place: score[queries][negatives], positive[queries]. `even` is
 * the scale of a query with weight 1. For distances the gradients are divided by the distance at once, and summed by
 * query. */
VECTOR_CLONES
static double kge_chunk_loss(const kge_model *model, const kge_chunk *chunk, uint32_t negatives, float even,
                             kge_workspace *work) {
    float *weight = work->memory, *term = weight + negatives, *inverse = term + negatives;
    float correction = kge_correction(model, negatives);
    double loss = 0;
    for (uint32_t i = 0; i < 2 * chunk->n; i++) {
        float *restrict score = work->score + (size_t)i * negatives, *positive = &work->positive[i];
        float distance = -*positive;
        uint32_t target = chunk->target[i / chunk->n][i % chunk->n];
        if (KGE_HAS_L2(model->kind)) kge_distances(negatives, work->query_norm[i], work->negative_norm, score, inverse);
        for (uint32_t j = 0; j < negatives; j++)
            score[j] = chunk->negative[j] == target ? KGE_MASKED : score[j] + correction;
        const float *weights = chunk->weight[i / chunk->n];
        float own = weights ? weights[i % chunk->n] : 1.0f, scale = even * own;
        loss += (double)own * (double)kge_query_loss(model, negatives, score, positive, weight, term);
        for (uint32_t j = 0; j < negatives; j++) score[j] = vector_normal(score[j] * scale);
        *positive = vector_normal(*positive * scale);
        if (KGE_HAS_L2(model->kind)) {
            for (uint32_t j = 0; j < negatives; j++) score[j] = vector_normal(score[j] * inverse[j]);
            *positive = vector_normal(*positive / distance);
            work->weight_sum[i] = kge_sum(negatives, score);
        }
    }
    return loss;
}

/* ---- Gradients of a chunk ------------------------------------------------------------------------------ */

enum { KGE_L1_ROWS = 4 };

/* Queries and rows that pull each other: weight[i * n + j] pulls query i and row j together, by the sign of their
 * difference. All are [..][dim], from some column on. */
typedef struct kge_l1_pull {
    uint32_t dim, n; /* n rows */
    const float *weight, *query, *rows;
    float *query_gradient, *gradient;
} kge_l1_pull;

/* The same, from query i and column k on. */
VECTOR_INLINE kge_l1_pull kge_l1_from(kge_l1_pull p, uint32_t i, uint32_t k) {
    size_t at = (size_t)i * p.dim + k;
    return (kge_l1_pull){
        p.dim, p.n, p.weight + (size_t)i * p.n, p.query + at, p.rows + k, p.query_gradient + at, p.gradient + k};
}

/* VECTOR_HALF numbers of KGE_L1_ROWS queries against all n rows: the queries and their gradients stay in registers. */
VECTOR_INLINE void kge_l1_tile(kge_l1_pull p) {
    vector_half q[KGE_L1_ROWS], dq[KGE_L1_ROWS] = {{0}}, e, de, part;
    vector_half_bits sign, bits;
    for (int i = 0; i < KGE_L1_ROWS; i++) memcpy(&q[i], p.query + (size_t)i * p.dim, sizeof e);
    for (uint32_t j = 0; j < p.n; j++) {
        memcpy(&e, p.rows + (size_t)j * p.dim, sizeof e);
        memcpy(&de, p.gradient + (size_t)j * p.dim, sizeof de);
        for (uint32_t i = 0; i < KGE_L1_ROWS; i++) {
            part = q[i] - e;
            memcpy(&sign, &part, sizeof sign);
            part = (vector_half){0} + p.weight[(size_t)i * p.n + j];
            memcpy(&bits, &part, sizeof bits);
            bits ^= sign & INT32_MIN;
            memcpy(&part, &bits, sizeof part);
            dq[i] -= part;
            de += part;
        }
        memcpy(p.gradient + (size_t)j * p.dim, &de, sizeof de);
    }
    for (int i = 0; i < KGE_L1_ROWS; i++) memcpy(p.query_gradient + (size_t)i * p.dim, &dq[i], sizeof e);
}

/* The same for any number of queries and of columns, plainly. */
VECTOR_INLINE void kge_l1_rest(kge_l1_pull p, uint32_t n_queries, uint32_t width) {
    for (uint32_t i = 0; i < n_queries; i++) {
        const float *q = p.query + (size_t)i * p.dim;
        float *dq = p.query_gradient + (size_t)i * p.dim;
        for (uint32_t k = 0; k < width; k++) dq[k] = 0.0f;
        for (uint32_t j = 0; j < p.n; j++)
            for (uint32_t k = 0; k < width; k++) {
                float part = p.weight[(size_t)i * p.n + j] * (q[k] < p.rows[(size_t)j * p.dim + k] ? -1.0f : 1.0f);
                dq[k] -= part;
                p.gradient[(size_t)j * p.dim + k] += part;
            }
    }
}

/* The gradients of -|q - e|_1 of all queries and rows, weighted. */
VECTOR_CLONES
static void kge_l1_gradients(const kge_l1_pull *pull, uint32_t n_queries) {
    kge_l1_pull p = *pull;
    uint32_t tiled = n_queries - n_queries % KGE_L1_ROWS, wide = p.dim - p.dim % VECTOR_HALF;
    memset(p.gradient, 0, (size_t)p.n * p.dim * sizeof *p.gradient);
    for (uint32_t i = 0; i < tiled; i += KGE_L1_ROWS) {
        for (uint32_t k = 0; k < wide; k += VECTOR_HALF) kge_l1_tile(kge_l1_from(p, i, k));
        kge_l1_rest(kge_l1_from(p, i, wide), KGE_L1_ROWS, p.dim - wide);
    }
    kge_l1_rest(kge_l1_from(p, tiled, 0), n_queries - tiled, p.dim);
}

VECTOR_CLONES
static void kge_l2_negatives(uint32_t dim, uint32_t n_queries, kge_rows negatives, const float *score, float *gradient,
                             float *restrict sum) {
    uint32_t n = negatives.n;
    for (uint32_t j = 0; j < n; j++) sum[j] = 0.0f;
    for (uint32_t i = 0; i < n_queries; i++, score += n)
        for (uint32_t j = 0; j < n; j++) sum[j] += score[j];
    kge_all_pull(n, dim, negatives.at, sum, gradient);
}

/* Adds the positives to the gradients of n queries, from `first` of the chunk's on, and writes (or adds) those of the
 * answers, target[n][dim]. */
VECTOR_CLONES
static void kge_positives_back(const kge_model *model, size_t first, uint32_t n, const float *target,
                               const kge_sink *sink, kge_workspace *work) {
    uint32_t dim = model->dim;
    const float *query = work->query + first * dim, *positive = work->positive + first;
    const float *weight_sum = work->weight_sum + first;
    float *query_gradient = work->query_gradient + first * dim, *target_gradient = sink->target;
    int add = sink->add;
    for (uint32_t i = 0; i < n; i++) {
        const float *restrict q = query + (size_t)i * dim, *restrict t = target + (size_t)i * dim;
        float *restrict dq = query_gradient + (size_t)i * dim, *restrict dt = target_gradient + (size_t)i * dim;
        float weight = positive[i], sum = weight_sum[i];
        if (KGE_HAS_L2(model->kind))
            for (uint32_t k = 0; k < dim; k++) {
                float part = weight * (q[k] - t[k]);
                dq[k] -= sum * q[k] + part;
                KGE_PUT(dt[k], add, part);
            }
        else if (model->kind == KGE_TRANSE_L1)
            for (uint32_t k = 0; k < dim; k++) {
                float part = q[k] < t[k] ? -weight : weight;
                dq[k] -= part;
                KGE_PUT(dt[k], add, part);
            }
        else
            for (uint32_t k = 0; k < dim; k++) {
                dq[k] += weight * t[k];
                KGE_PUT(dt[k], add, weight * q[k]);
            }
    }
}

/* From scores' gradients to those of queries and negatives. */
static void kge_negatives_back(const kge_model *model, uint32_t n_queries, uint32_t n, const float *rows,
                               float *gradient, kge_workspace *work) {
    blasint queries = (blasint)n_queries, negatives = (blasint)n, dim = (blasint)model->dim;
    if (model->kind == KGE_TRANSE_L1) {
        kge_l1_pull pull = {model->dim, n, work->score, work->query, rows, work->query_gradient, gradient};
        kge_l1_gradients(&pull, n_queries);
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, queries, dim, negatives, 1.0f, work->score, negatives, rows,
                dim, 0.0f, work->query_gradient, dim);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, negatives, dim, queries, 1.0f, work->score, negatives,
                work->query, dim, 0.0f, gradient, dim);
    if (KGE_HAS_L2(model->kind))
        kge_l2_negatives(model->dim, n_queries, (kge_rows){n, rows}, work->score, gradient, work->memory);
}

/* ---- A batch ------------------------------------------------------------------------------------------- */

uint32_t kge_batch_sides(const kge_batch *batch) {
    return batch->questions ? 1 : 2;
}

uint32_t kge_batch_relations(const kge_model *model, const kge_batch *batch) {
    return model->reciprocal ? kge_batch_sides(batch) : 1;
}

uint32_t kge_batch_negatives(const kge_batch *batch) {
    return (batch->triples / batch->chunk + (batch->triples % batch->chunk > 0)) * batch->negatives;
}

float kge_batch_divisor(const kge_batch *batch) {
    return batch->divisor > 0 ? batch->divisor : (float)batch->triples;
}

uint32_t kge_batch_positions(const kge_model *model, const kge_batch *batch) {
    uint32_t relations = batch->triples * kge_batch_relations(model, batch);
    if (batch->entities) return batch->entities + relations;
    return 2 * batch->triples + kge_batch_negatives(batch) + relations;
}

int kge_workspace_open(kge_workspace *work, const kge_model *model, const kge_batch *shape, program_error *error) {
    size_t queries = 2 * (size_t)shape->chunk, negatives = shape->entities ? shape->entities : shape->negatives;
    *work = (kge_workspace){0};
    size_t sizes[] = {queries * model->dim,
                      queries * model->dim,
                      queries * negatives,
                      4 * negatives,
                      queries,
                      negatives,
                      queries,
                      queries,
                      shape->entities ? queries * model->dim : 0};
    float **parts[] = {&work->query,         &work->query_gradient, &work->score,      &work->memory, &work->query_norm,
                       &work->negative_norm, &work->positive,       &work->weight_sum, &work->anchor};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = (sizes[i] * sizeof(float) + 63) / 64 * 64 + 64;
        *parts[i] = aligned_alloc(64, bytes);
        if (!*parts[i]) {
            kge_workspace_close(work);
            return program_fail(error, "out of memory for the scores of a batch; use a smaller %s",
                                shape->entities ? "--chunk" : "--batch or --negatives");
        }
        memset(*parts[i], 0, bytes);
    }
    return 0;
}

void kge_workspace_close(kge_workspace *work) {
    free(work->query);
    free(work->query_gradient);
    free(work->score);
    free(work->memory);
    free(work->query_norm);
    free(work->negative_norm);
    free(work->positive);
    free(work->weight_sum);
    free(work->anchor);
    *work = (kge_workspace){0};
}

/* Everything of one chunk; `from` is its first triple. */
static double kge_chunk_gradients(const kge_model *model, const kge_batch *batch, uint32_t from, const float *rows,
                                  float *grads, kge_workspace *work) {
    size_t dim = model->dim, n = batch->triples;
    uint32_t chunk = batch->triples - from < batch->chunk ? batch->triples - from : batch->chunk;
    size_t negative_at = 2 * n + from / batch->chunk * (size_t)batch->negatives;
    size_t relation_at[2] = {2 * n + kge_batch_negatives(batch) + from, 0}, end_at[2] = {from, n + from};
    relation_at[1] = relation_at[0] + (kge_batch_relations(model, batch) == 2 ? n : 0);
    kge_chunk view = {.n = chunk, .negative = batch->negative + (negative_at - 2 * n)};
    for (int s = 0; s < 2; s++) {
        size_t offset = s ? chunk : 0;
        const float *target = rows + end_at[!s] * dim;
        kge_queries(model, (kge_side)s, chunk, rows + end_at[s] * dim, rows + relation_at[s] * dim,
                    work->query + offset * dim);
        kge_pair_scores(model, chunk, work->query + offset * dim, target, work->positive + offset);
        view.target[s] = (s ? batch->head : batch->tail) + from;
        view.weight[s] = batch->weight[s] ? batch->weight[s] + from : NULL;
    }
    uint32_t queries = 2 * chunk;
    const float *negative_rows = rows + negative_at * dim;
    kge_rows asking = {queries, work->query}, negatives = {batch->negatives, negative_rows};
    kge_norms(model, queries, work->query, work->query_norm);
    kge_norms(model, batch->negatives, negative_rows, work->negative_norm);
    if (model->kind == KGE_TRANSE_L1)
        kge_l1_scores(model->dim, asking, negatives, work->score);
    else
        kge_products(model->dim, 1.0f, asking, negatives, work->score);
    float scale = 1.0f / (kge_batch_divisor(batch) * 2.0f);
    double loss = kge_chunk_loss(model, &view, batch->negatives, scale, work) * scale;
    kge_negatives_back(model, queries, batch->negatives, negative_rows, grads + negative_at * dim, work);
    for (int s = 0; s < 2; s++) {
        size_t offset = s ? chunk : 0;
        kge_asked asked = {chunk, model->dim, rows + end_at[s] * dim, rows + relation_at[s] * dim};
        kge_sink sink = {.anchor = grads + end_at[s] * dim,
                         .target = grads + end_at[!s] * dim,
                         .relation = grads + relation_at[s] * dim,
                         .add = s,
                         .add_relation = s && relation_at[0] == relation_at[1]};
        kge_positives_back(model, offset, chunk, rows + end_at[!s] * dim, &sink, work);
        kge_queries_back(model, (kge_side)s, &asked, work->query_gradient + offset * dim, &sink);
    }
    return loss;
}

double kge_gradients(const kge_model *model, const kge_batch *batch, const float *rows, float *grads,
                     kge_workspace *work) {
    if (batch->entities) return kge_all_gradients(model, batch, rows, grads, work);
    double loss = 0;
    for (uint32_t from = 0; from < batch->triples; from += batch->chunk)
        loss += kge_chunk_gradients(model, batch, from, rows, grads, work);
    float divisor = kge_batch_divisor(batch);
    size_t relation_at = ((size_t)2 * batch->triples + kge_batch_negatives(batch)) * model->dim;
    uint32_t relations = batch->triples * kge_batch_relations(model, batch);
    loss += kge_regularize(model, 2 * batch->triples, rows, model->regularization / divisor, grads);
    return loss +
           kge_regularize(model, relations, rows + relation_at, kge_relation_n3(model) / divisor, grads + relation_at);
}
