/* Scores, losses and gradients of the knowledge graph models on a GPU. See model.h for the scheme, model.c for
 * the same on host cores.
 *
 * A batch is computed in groups of chunks. A group has as many chunks as fit into a bounded scratch memory; usually
 * that is all of them:
 *
 *   forward      a warp a query: the query vector, its positive's score, its norm
 *   scores       Q E', batched over chunks (cuBLAS); L1 in tiles
 *   loss         a block a query: scores to losses and to scores' gradients, in place
 *   negatives    dQ = G E and dE = G' Q (cuBLAS; L1 in tiles), and what distances add to dE
 *   back         a warp a triple: from dQ to head, tail and relations, both sides at once, N3 with it
 *   total        one block, once a batch: the loss
 *
 * Where all entities are scored in place of negatives, all.cuh has the kernels that differ.
 */
#include "trainers/common/program_gpu.h"

#define TRAINING_CUDA
#include "trainers/kge/kge_cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KGE_MASKED (-1e30f) /* as in model.c; its exponential is 0 */

#define KGE_BLOCK 128 /* threads; KGE_TOTAL and the tiles' blocks excepted */
#define KGE_TOTAL 256
#define KGE_TILE                                                                                                       \
    32 /* rows, columns and depth of a tile; its block has KGE_TILE_BLOCK threads, a warp KGE_TILE_ROWS rows */
#define KGE_TILE_BLOCK 256
#define KGE_TILE_ROWS  (KGE_TILE / (KGE_TILE_BLOCK / 32))
/* Scratch of a group of chunks, floats: 256 MiB; one chunk always fits. */
#define KGE_GROUP_FLOATS ((size_t)1 << 26)

/* What the kernels see of a batch, and of the group of its chunks that is being done. */
typedef struct kge_view {
    kge_model model;
    uint32_t triples, chunk, negatives; /* of the batch; of each chunk of the group */
    uint32_t sides;                     /* kge_batch_sides */
    uint32_t queries;                   /* of each chunk: chunk * sides, all tails' first */
    uint32_t entities;                  /* that are scored in place of negatives; 0: none */
    uint32_t first, chunks, from;       /* of the group; its first triple */
    float scale, n3, relation_n3;       /* the weight of a query's loss, of the sums of cubes */
    float correction;                   /* of negatives' scores */
    size_t negative_at, relation_at[2]; /* positions; of the relations for tails, for heads */
    const uint32_t *head, *tail, *negative;
    const float *weight; /* [2][triples]: of the questions for tails, for heads; NULL: 1 */
    const float *rows;
    float *grads;
    /* Of the group, by query or by negative. */
    float *query, *query_gradient; /* [chunks][queries][dim] */
    float *score;                  /* [chunks][queries][negatives] */
    float *positive, *query_norm, *weight_sum, *negative_norm;
    float *given_gradient; /* [queries][dim], where all entities are scored */
    /* Of the batch. */
    float *loss, *cubes; /* by query; weighted, by triple, or by entity and then by triple */
    /* KvsAll's answers, as in kge_questions; NULL. */
    const uint64_t *first_answer;
    const uint32_t *answer;
} kge_view;

/* A query of the group: its chunk, triple and side, and where its rows begin; the target's only against negatives. */
typedef struct kge_question {
    uint32_t triple;
    int heads;
    size_t chunk; /* in the group */
    const float *anchor, *target, *relation;
} kge_question;

static __device__ kge_question kge_question_of(const kge_view *v, uint32_t triple, int heads) {
    size_t dim = v->model.dim, end[2] = {triple, (size_t)v->triples + triple};
    kge_question q;
    if (v->entities) end[heads] = end[!heads] = heads ? v->tail[triple] : v->head[triple]; /* no answer has a row */
    q.triple = triple;
    q.heads = heads;
    q.chunk = (triple - v->from) / v->chunk;
    q.anchor = v->rows + end[heads] * dim;
    q.target = v->rows + end[!heads] * dim;
    q.relation = v->rows + (v->relation_at[heads] + triple) * dim;
    return q;
}

static __device__ kge_question kge_question_at(const kge_view *v, size_t query) {
    uint32_t chunk = (uint32_t)(query / v->queries), within = (uint32_t)(query % v->queries);
    return kge_question_of(v, v->from + chunk * v->chunk + within % v->chunk, within >= v->chunk);
}

static __device__ float kge_weight_of(const kge_view *v, const kge_question *q) {
    return v->weight ? v->weight[(size_t)q->heads * v->triples + q->triple] : 1.0f;
}

/* A reciprocal model asks for heads as it asks for tails, with the inverse relation. */
static __device__ int kge_asks_tails(const kge_model *model, int heads) {
    return model->reciprocal || !heads;
}

/* Number k of a row has its other half at kge_partner: the imaginary part, or the row's other role. */
static __device__ uint32_t kge_partner(uint32_t dim, uint32_t k) {
    return k < dim / 2 ? k + dim / 2 : k - dim / 2;
}

/* ---- Sums, each in one order ----------------------------------------------------------------------------- */

static __device__ float kge_warp_max(float value) {
    for (int width = 16; width; width /= 2) value = fmaxf(value, __shfl_down_sync(PROGRAM_ALL_LANES, value, width));
    return value;
}

/* The sum, or the largest, over a block of KGE_BLOCK threads, for all of them. lanes[KGE_BLOCK / 32] is shared memory
 * (here and below as a template's parameter: on the host it is no plain array). */
template <typename A> static __device__ float kge_block_all(float value, int largest, A &lanes) {
    value = largest ? kge_warp_max(value) : program_warp_sum(value);
    if (threadIdx.x % 32 == 0) lanes[threadIdx.x / 32] = value;
    __syncthreads();
    float all = lanes[0];
    for (int i = 1; i < KGE_BLOCK / 32; i++) all = largest ? fmaxf(all, lanes[i]) : all + lanes[i];
    __syncthreads(); /* lanes may be used again */
    return all;
}

/* ---- Forward --------------------------------------------------------------------------------------------- */

static __device__ float kge_inverse_modulus(float real, float imaginary) {
    return 1.0f / sqrtf(fmaxf(real * real + imaginary * imaginary, KGE_SMALLEST_SQUARE));
}

/* Number k of a query, as kge_queries makes it. */
static __device__ float kge_query_number(const kge_model *model, int tails, uint32_t k, const float *anchor,
                                         const float *relation) {
    uint32_t half = model->dim / 2, p = kge_partner(model->dim, k);
    float sign = tails ? 1.0f : -1.0f;
    switch (model->kind) {
    case KGE_DISTMULT:
        return anchor[k] * relation[k];
    case KGE_COMPLEX:
        return k < half ? anchor[k] * relation[k] - anchor[p] * (sign * relation[p])
                        : anchor[p] * (sign * relation[k]) + anchor[k] * relation[p];
    case KGE_SIMPLE:
        return 0.5f * relation[tails ? p : k] * anchor[p];
    case KGE_ROTATE: {
        float inverse = kge_inverse_modulus(relation[k], relation[p]);
        return k < half ? anchor[k] * (relation[k] * inverse) - anchor[p] * (sign * relation[p] * inverse)
                        : anchor[p] * (sign * relation[k] * inverse) + anchor[k] * (relation[p] * inverse);
    }
    default:
        return anchor[k] + sign * relation[k];
    }
}

static __global__ void kge_forward_kernel(kge_view v) {
    size_t query = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    uint32_t lane = threadIdx.x % 32, dim = v.model.dim;
    if (query >= (size_t)v.chunks * v.queries) return; /* a whole warp */
    kge_question q = kge_question_at(&v, query);
    int tails = kge_asks_tails(&v.model, q.heads);
    float *out = v.query + query * dim, score = 0, norm = 0;
    for (uint32_t k = lane; k < dim; k += 32) {
        float x = kge_query_number(&v.model, tails, k, q.anchor, q.relation), y = q.target[k], d = x - y;
        out[k] = x;
        norm += x * x;
        score += KGE_HAS_L2(v.model.kind) ? d * d : v.model.kind == KGE_TRANSE_L1 ? fabsf(d) : x * y;
    }
    score = program_warp_sum(score);
    norm = program_warp_sum(norm);
    if (lane) return;
    if (KGE_HAS_L2(v.model.kind)) score = -sqrtf(fmaxf(score, KGE_SMALLEST_SQUARE));
    v.positive[query] = v.model.kind == KGE_TRANSE_L1 ? -score : score;
    v.query_norm[query] = norm;
}

/* The squared lengths of the group's negatives. */
static __global__ void kge_norms_kernel(kge_view v) {
    size_t row = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    uint32_t lane = threadIdx.x % 32;
    if (row >= (size_t)v.chunks * v.negatives) return;
    const float *x = v.rows + (v.negative_at + (size_t)v.first * v.negatives + row) * v.model.dim;
    float norm = 0;
    for (uint32_t k = lane; k < v.model.dim; k += 32) norm += x[k] * x[k];
    norm = program_warp_sum(norm);
    if (!lane) v.negative_norm[row] = norm;
}

/* ---- L1 distances: tiles, as of a matrix product ---------------------------------------------------------- */

/* Two matrices over the same numbers, of every chunk of the group: its queries and its negatives, or the reverse. */
typedef struct kge_pairing {
    const float *own, *other; /* [chunks][owns][dim], [chunks][others][dim] */
    float *out;               /* scores [chunks][owns][others], or gradients [chunks][owns][dim] */
    uint32_t owns, others, dim;
    int own_is_query;
} kge_pairing;

/* The tile of a block: its chunk, and its place in a grid of rows by columns of tiles. */
typedef struct kge_tile {
    size_t chunk;
    uint32_t row, column;
} kge_tile;

static __device__ kge_tile kge_tile_of(uint32_t rows, uint32_t columns) {
    uint32_t down = (rows + KGE_TILE - 1) / KGE_TILE, across = (columns + KGE_TILE - 1) / KGE_TILE;
    uint32_t within = blockIdx.x % (down * across);
    kge_tile tile;
    tile.chunk = blockIdx.x / (down * across);
    tile.row = within / across * KGE_TILE;
    tile.column = within % across * KGE_TILE;
    return tile;
}

/* to[KGE_TILE][KGE_TILE + 1] = the corner of matrix[rows][columns] at (row, column), zeros beyond; by the whole
 * block. */
template <typename A>
static __device__ void kge_load_tile(A &to, const float *matrix, uint32_t rows, uint32_t columns, uint32_t row,
                                     uint32_t column) {
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x / 32; i < KGE_TILE; i += KGE_TILE_BLOCK / 32) {
        int there = row + i < rows && column + lane < columns;
        to[i * (KGE_TILE + 1) + lane] = there ? matrix[(size_t)(row + i) * columns + column + lane] : 0.0f;
    }
}

/* out = -|own - other|_1: a thread has one other and KGE_TILE_ROWS of its own. */
static __global__ void kge_l1_scores_kernel(kge_pairing p) {
    FRUGAL_SHARED(float, a, KGE_TILE *(KGE_TILE + 1));
    FRUGAL_SHARED(float, b, KGE_TILE *(KGE_TILE + 1));
    kge_tile tile = kge_tile_of(p.owns, p.others);
    const float *own = p.own + tile.chunk * p.owns * p.dim, *other = p.other + tile.chunk * p.others * p.dim;
    uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32 * KGE_TILE_ROWS;
    float sum[KGE_TILE_ROWS] = {0};
    for (uint32_t from = 0; from < p.dim; from += KGE_TILE) {
        kge_load_tile(a, own, p.owns, p.dim, tile.row, from);
        kge_load_tile(b, other, p.others, p.dim, tile.column, from);
        __syncthreads();
        for (uint32_t k = 0; k < KGE_TILE; k++) {
            float y = b[lane * (KGE_TILE + 1) + k];
            for (uint32_t i = 0; i < KGE_TILE_ROWS; i++) sum[i] += fabsf(a[(first + i) * (KGE_TILE + 1) + k] - y);
        }
        __syncthreads();
    }
    uint32_t column = tile.column + lane;
    float *out = p.out + tile.chunk * p.owns * p.others;
    for (uint32_t i = 0; i < KGE_TILE_ROWS; i++)
        if (tile.row + first + i < p.owns && column < p.others)
            out[(size_t)(tile.row + first + i) * p.others + column] = -sum[i];
}

/* out = the gradient of its own rows, from the scores' gradients score[chunks][queries][negatives]: each pair is pulled
 * together with its weight, by the sign of query - negative. */
static __global__ void kge_l1_gradients_kernel(kge_pairing p, const float *score) {
    FRUGAL_SHARED(float, weight, KGE_TILE *(KGE_TILE + 1)); /* rows: as in score */
    FRUGAL_SHARED(float, b, KGE_TILE *(KGE_TILE + 1));
    kge_tile tile = kge_tile_of(p.owns, p.dim);
    const float *own = p.own + tile.chunk * p.owns * p.dim, *other = p.other + tile.chunk * p.others * p.dim;
    const float *weights = score + tile.chunk * p.owns * p.others;
    uint32_t lane = threadIdx.x % 32, first = threadIdx.x / 32 * KGE_TILE_ROWS, column = tile.column + lane;
    float x[KGE_TILE_ROWS], sum[KGE_TILE_ROWS] = {0};
    for (uint32_t i = 0; i < KGE_TILE_ROWS; i++) {
        int there = tile.row + first + i < p.owns && column < p.dim;
        x[i] = there ? own[(size_t)(tile.row + first + i) * p.dim + column] : 0.0f;
    }
    for (uint32_t from = 0; from < p.others; from += KGE_TILE) {
        if (p.own_is_query)
            kge_load_tile(weight, weights, p.owns, p.others, tile.row, from);
        else
            kge_load_tile(weight, weights, p.others, p.owns, from, tile.row);
        kge_load_tile(b, other, p.others, p.dim, from, tile.column);
        __syncthreads();
        for (uint32_t j = 0; j < KGE_TILE; j++) { /* beyond the others: weights of zero */
            float y = b[j * (KGE_TILE + 1) + lane];
            for (uint32_t i = 0; i < KGE_TILE_ROWS; i++) {
                float w =
                    p.own_is_query ? weight[(first + i) * (KGE_TILE + 1) + j] : weight[j * (KGE_TILE + 1) + first + i];
                int below = p.own_is_query ? x[i] < y : y < x[i];
                sum[i] += below ? -w : w;
            }
        }
        __syncthreads();
    }
    float *out = p.out + tile.chunk * p.owns * p.dim;
    for (uint32_t i = 0; i < KGE_TILE_ROWS; i++)
        if (tile.row + first + i < p.owns && column < p.dim)
            out[(size_t)(tile.row + first + i) * p.dim + column] = p.own_is_query ? -sum[i] : sum[i];
}

/* ---- Losses ---------------------------------------------------------------------------------------------- */

/* softplus(x) and its derivative, the logistic function. */
static __device__ float kge_softplus(float x, float *slope) {
    float small = expf(-fabsf(x)), inverse = 1.0f / (1.0f + small);
    *slope = x < 0.0f ? small * inverse : inverse;
    return (x < 0.0f ? 0.0f : x) + log1pf(small);
}

/* Makes scores of one query from products, in place: distances if the model has them; answers are masked. */
static __device__ void kge_finish_scores(const kge_view *v, size_t query, const kge_question *q, float *score) {
    const uint32_t *negative = v->negative + ((size_t)v->first + q->chunk) * v->negatives;
    const float *norm = v->negative_norm + q->chunk * v->negatives;
    uint32_t answer = q->heads ? v->head[q->triple] : v->tail[q->triple];
    for (uint32_t j = threadIdx.x; j < v->negatives; j += blockDim.x) {
        float s = score[j];
        if (KGE_HAS_L2(v->model.kind))
            s = -sqrtf(fmaxf(v->query_norm[query] + norm[j] - 2.0f * s, KGE_SMALLEST_SQUARE));
        score[j] = negative[j] == answer ? KGE_MASKED : s + v->correction;
    }
}

/* The largest of sharpness * (score - top) is 0: returns top, and the sum of their exponentials, including that of the
 * positive where it competes. */
template <typename A>
static __device__ float kge_soft_sum(const kge_view *v, const float *score, float sharpness, const float *positive,
                                     float *top, A &lanes) {
    float largest = positive ? *positive : KGE_MASKED, sum = 0;
    for (uint32_t j = threadIdx.x; j < v->negatives; j += blockDim.x) largest = fmaxf(largest, score[j]);
    *top = kge_block_all(largest, 1, lanes);
    for (uint32_t j = threadIdx.x; j < v->negatives; j += blockDim.x) sum += expf(sharpness * (score[j] - *top));
    sum = kge_block_all(sum, 0, lanes);
    return positive ? sum + expf(sharpness * (*positive - *top)) : sum;
}

/* A block a query: score[negatives] and positive in, their gradients out; for distances they are divided by the
 * distance at once, and summed by query. Each thread reads only the scores that it wrote itself. */
static __global__ void kge_loss_kernel(kge_view v) {
    FRUGAL_SHARED(float, lanes, KGE_BLOCK / 32);
    size_t query = blockIdx.x;
    kge_question q = kge_question_at(&v, query);
    float *score = v.score + query * v.negatives, positive = v.positive[query], top = 0, sum = 1, own, sharpness = 1;
    float even = 1.0f / (float)v.negatives, loss = 0, weights = 0, slope, own_weight = kge_weight_of(&v, &q);
    float scale = v.scale * own_weight;
    int distances = KGE_HAS_L2(v.model.kind), softmax = v.model.loss == KGE_SOFTMAX;
    kge_finish_scores(&v, query, &q, score);
    if (v.model.loss == KGE_SELF_ADVERSARIAL) sharpness = v.model.temperature;
    if (v.model.loss != KGE_LOGISTIC) sum = kge_soft_sum(&v, score, sharpness, softmax ? &positive : NULL, &top, lanes);
    for (uint32_t j = threadIdx.x; j < v.negatives; j += blockDim.x) {
        float s = score[j], weight = v.model.loss == KGE_LOGISTIC ? even : expf(sharpness * (s - top)) / sum;
        if (!softmax) {
            loss += weight * kge_softplus(s + v.model.margin, &slope);
            weight *= 0.5f * slope;
        }
        weight *= scale;
        if (distances) weight /= v.correction - s; /* the distance */
        weights += weight;
        score[j] = weight;
    }
    loss = kge_block_all(loss, 0, lanes);
    weights = kge_block_all(weights, 0, lanes);
    if (threadIdx.x) return;
    if (softmax) {
        loss = top + logf(sum) - positive;
        own = expf(positive - top) / sum - 1.0f;
    } else {
        loss = 0.5f * (loss + kge_softplus(-(positive + v.model.margin), &slope));
        own = -0.5f * slope;
    }
    v.positive[query] = distances ? own * scale / -positive : own * scale;
    v.weight_sum[query] = weights;
    v.loss[(size_t)v.from * v.sides + query] = own_weight * loss;
}

/* ---- Gradients ------------------------------------------------------------------------------------------- */

/* |q - e| pulls along q - e: so the part of dE that the product left out is the row itself times a sum over queries. A
 * block has 32 rows of one chunk. */
static __global__ void kge_distances_back_kernel(kge_view v) {
    FRUGAL_SHARED(float, part, KGE_TILE_BLOCK);
    uint32_t across = (v.negatives + 31) / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    size_t chunk = blockIdx.x / across, dim = v.model.dim;
    uint32_t from = blockIdx.x % across * 32, n = v.negatives - from < 32 ? v.negatives - from : 32;
    const float *score = v.score + chunk * v.queries * v.negatives + from;
    float sum = 0;
    for (uint32_t i = warp; i < v.queries; i += KGE_TILE_BLOCK / 32)
        sum += lane < n ? score[(size_t)i * v.negatives + lane] : 0.0f;
    part[threadIdx.x] = sum;
    __syncthreads();
    size_t row = v.negative_at + (v.first + chunk) * v.negatives + from;
    for (uint32_t j = warp; j < n; j += KGE_TILE_BLOCK / 32) {
        float all = 0;
        for (uint32_t i = 0; i < KGE_TILE_BLOCK / 32; i++) all += part[i * 32 + j];
        for (uint32_t k = lane; k < dim; k += 32) v.grads[(row + j) * dim + k] -= all * v.rows[(row + j) * dim + k];
    }
}

/* Number k of a query's whole gradient: the part from the negatives plus the part from its positive, whose target gets
 * *target. */
static __device__ float kge_query_slope(const kge_view *v, size_t query, const float *target_row, uint32_t k,
                                        float *target) {
    size_t at = query * v->model.dim + k;
    float weight = v->positive[query], x = v->query[at], y = target_row[k], slope = v->query_gradient[at];
    if (v->entities) { /* the answer is one of them */
        *target = 0;
        return KGE_HAS_L2(v->model.kind) ? slope - v->weight_sum[query] * x : slope;
    }
    if (KGE_HAS_L2(v->model.kind)) {
        *target = weight * (x - y);
        return slope - (v->weight_sum[query] * x + *target);
    }
    if (v->model.kind == KGE_TRANSE_L1) {
        *target = x < y ? -weight : weight;
        return slope - *target;
    }
    *target = weight * x;
    return slope + weight * y;
}

typedef struct kge_slopes {
    float anchor, target, relation;
} kge_slopes;

/* Of rotate, into *out: g and g_partner are the gradients of numbers k and p of the query. */
static __device__ void kge_turn_back(const kge_model *model, float sign, uint32_t k, float g, float g_partner,
                                     const float *anchor, const float *relation, kge_slopes *out) {
    uint32_t p = kge_partner(model->dim, k), re = k < p ? k : p, im = k < p ? p : k;
    float g_re = k < p ? g : g_partner, g_im = k < p ? g_partner : g;
    float inverse = kge_inverse_modulus(relation[re], relation[im]);
    float real = relation[re] * inverse, imaginary = sign * relation[im] * inverse;
    float to_real = g_re * anchor[re] + g_im * anchor[im], to_imaginary = g_im * anchor[re] - g_re * anchor[im];
    float along = to_real * real + to_imaginary * imaginary;
    out->anchor = k < p ? g_re * real + g_im * imaginary : g_im * real - g_re * imaginary;
    out->relation = k < p ? (to_real - along * real) * inverse : sign * (to_imaginary - along * imaginary) * inverse;
}

/* Number k of the gradients that one query gives to its rows, as kge_queries_back carries them on. */
static __device__ kge_slopes kge_slopes_of(const kge_view *v, const kge_question *q, size_t query, uint32_t k) {
    const float *anchor = q->anchor, *relation = q->relation;
    uint32_t half = v->model.dim / 2, p = kge_partner(v->model.dim, k);
    int tails = kge_asks_tails(&v->model, q->heads);
    float sign = tails ? 1.0f : -1.0f, unused, g_partner = 0;
    kge_slopes out;
    float g = kge_query_slope(v, query, q->target, k, &out.target);
    if (KGE_HAS_HALVES(v->model.kind)) g_partner = kge_query_slope(v, query, q->target, p, &unused);
    switch (v->model.kind) {
    case KGE_DISTMULT:
        out.anchor = g * relation[k];
        out.relation = g * anchor[k];
        break;
    case KGE_COMPLEX:
        if (k < half) {
            out.anchor = g * relation[k] + g_partner * (sign * relation[p]);
            out.relation = g * anchor[k] + g_partner * anchor[p];
        } else {
            out.anchor = g * relation[p] - g_partner * (sign * relation[k]);
            out.relation = sign * (g * anchor[p] - g_partner * anchor[k]);
        }
        break;
    case KGE_SIMPLE:
        out.anchor = 0.5f * g_partner * relation[tails ? k : p];
        out.relation = tails ? 0.5f * g_partner * anchor[k] : 0.5f * g * anchor[p];
        break;
    case KGE_ROTATE:
        kge_turn_back(&v->model, sign, k, g, g_partner, anchor, relation, &out);
        break;
    default:
        out.anchor = g;
        out.relation = sign * g;
        break;
    }
    return out;
}

/* Number k of the gradient of weight * sum |x|^3, complex numbers by their modulus; adds what it weighs to *cubes. */
static __device__ float kge_cube_slope(const kge_view *v, const float *row, uint32_t k, float weight, float *cubes) {
    int complex = KGE_IS_COMPLEX(v->model.kind);
    float x = row[k], y = complex ? row[kge_partner(v->model.dim, k)] : 0.0f;
    float modulus = complex ? sqrtf(x * x + y * y) : fabsf(x);
    if (!complex || k < v->model.dim / 2) *cubes += weight * modulus * modulus * modulus;
    return 3.0f * weight * modulus * x;
}

/* A warp a triple of the group: the gradients of its head, its tail and its relations, from both sides. */
static __global__ void kge_back_kernel(kge_view v) {
    size_t of_group = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32, dim = v.model.dim;
    uint32_t lane = threadIdx.x % 32, triple = v.from + (uint32_t)of_group;
    if (of_group >= (size_t)v.chunks * v.chunk) return; /* a whole warp */
    int two_relations = v.relation_at[0] != v.relation_at[1];
    float cubes = 0;
    for (uint32_t k = lane; k < dim; k += 32) {
        float end[2] = {0, 0}, relation[2] = {0, 0};
        for (int heads = 0; heads < 2; heads++) {
            kge_question q = kge_question_of(&v, triple, heads);
            kge_slopes slopes =
                kge_slopes_of(&v, &q, q.chunk * v.queries + (size_t)heads * v.chunk + of_group % v.chunk, k);
            end[heads] += slopes.anchor;
            end[!heads] += slopes.target;
            relation[two_relations && heads] += slopes.relation;
        }
        size_t row[4] = {triple, (size_t)v.triples + triple, v.relation_at[0] + triple, v.relation_at[1] + triple};
        float value[4] = {end[0], end[1], relation[0], relation[1]};
        for (int i = 0; i < (two_relations ? 4 : 3); i++) {
            float weight = i < 2 ? v.n3 : v.relation_n3;
            if (weight > 0) value[i] += kge_cube_slope(&v, v.rows + row[i] * dim, k, weight, &cubes);
            v.grads[row[i] * dim + k] = value[i];
        }
    }
    cubes = program_warp_sum(cubes);
    if (!lane) v.cubes[triple] = cubes;
}

#include "trainers/kge/all.cuh"

/* One block: the loss of a batch. */
static __global__ void kge_total_kernel(kge_view v, double *total) {
    FRUGAL_SHARED(double, part, KGE_TOTAL);
    double losses = 0, cubes = 0;
    for (size_t i = threadIdx.x; i < (size_t)v.sides * v.triples; i += KGE_TOTAL) losses += v.loss[i];
    for (size_t i = threadIdx.x; i < (size_t)v.entities + v.triples; i += KGE_TOTAL) cubes += v.cubes[i];
    program_block_total<KGE_TOTAL>(part, losses * v.scale + cubes, total);
}

/* ---- The host's side: memory ----------------------------------------------------------------------------- */

/* What is kept of a step, beside ids and loss, from the copy until its loss is reported. */
typedef struct kge_slot {
    kge_batch batch; /* without its ids */
    cudaEvent_t copied, computed;
} kge_slot;

struct kge_cuda {
    program_gpu gpu; /* computes on its stream */
    kge_model model;
    kge_batch shape;
    cudaStream_t copies;
    cublasHandle_t products;
    cudaEvent_t begun; /* the last step enqueued */
    kge_slot *slot;    /* [slots]: step s is at s mod slots; the same for the next four */
    uint32_t slots;
    size_t ids;                      /* of a batch, at most: heads, tails, negatives; then weights */
    uint32_t *host_ids, *device_ids; /* [slots][ids] */
    double *host_loss, *device_loss;
    uint64_t computed, reported; /* next step to compute; next step whose loss is to be reported */
    size_t group;                /* chunks */
    kge_view view;               /* what is the same for all batches */
    float *rows, *grads;
};

kge_cuda *kge_cuda_new(int ordinal) {
    kge_cuda *cuda = (kge_cuda *)calloc(1, sizeof *cuda);
    if (!cuda) return NULL;
    cuda->gpu = program_gpu_open(ordinal);
    return cuda;
}

void *kge_cuda_stream(const kge_cuda *cuda) {
    return cuda->gpu.stream;
}

float *kge_cuda_rows(const kge_cuda *cuda) {
    return cuda->rows;
}

float *kge_cuda_grads(const kge_cuda *cuda) {
    return cuda->grads;
}

/* Memory of the GPU, or of the host where `pinned`. */
typedef struct kge_part {
    void *to; /* of the pointer */
    size_t bytes;
    int pinned;
} kge_part;

/* Copies KvsAll's answers. */
static int kge_cuda_questions(kge_cuda *cuda, const kge_questions *questions, program_error *error) {
    uint64_t n = questions->asked.n, answers = questions->first[n];
    uint64_t *first = NULL;
    uint32_t *answer = NULL;
    const char *remedy = "use --scoring 1vsall, which needs no answers there";
    if (program_gpu_memory(&cuda->gpu, &first, (n + 1) * sizeof *first, 0, remedy, error) ||
        program_gpu_memory(&cuda->gpu, &answer, answers * sizeof *answer, 0, remedy, error))
        return -1;
    PROGRAM_TRY(cuda->gpu.ordinal, cudaMemcpy(first, questions->first, (n + 1) * sizeof *first, cudaMemcpyHostToDevice),
                error);
    PROGRAM_TRY(cuda->gpu.ordinal,
                cudaMemcpy(answer, questions->answer, answers * sizeof *answer, cudaMemcpyHostToDevice), error);
    cuda->view.first_answer = first;
    cuda->view.answer = answer;
    return 0;
}

static int kge_cuda_memory(kge_cuda *cuda, program_error *error) {
    const kge_batch *shape = &cuda->shape;
    kge_view *v = &cuda->view;
    size_t dim = cuda->model.dim, chunks = (shape->triples + shape->chunk - 1) / shape->chunk, floats = sizeof(float);
    size_t queries = 2 * (size_t)shape->chunk, negatives = shape->entities ? shape->entities : shape->negatives;
    size_t batch = kge_batch_positions(&cuda->model, shape) * dim * floats;
    size_t chunk = queries * (2 * dim + negatives), group = KGE_GROUP_FLOATS / chunk;
    group = group < 1 || shape->entities ? 1 : group > chunks ? chunks : group;
    cuda->group = group;
    cuda->ids = (shape->weighted ? 4 : 2) * (size_t)shape->triples + kge_batch_negatives(shape);
    const kge_part part[] = {{&cuda->rows, batch, 0},
                             {&cuda->grads, batch, 0},
                             {&v->query, group * queries * dim * floats, 0},
                             {&v->query_gradient, group * queries * dim * floats, 0},
                             {&v->score, group * queries * negatives * floats, 0},
                             {&v->positive, group * queries * floats, 0},
                             {&v->query_norm, group * queries * floats, 0},
                             {&v->weight_sum, group * queries * floats, 0},
                             {&v->negative_norm, group * negatives * floats, 0},
                             {&v->loss, 2 * shape->triples * floats, 0},
                             {&v->cubes, (shape->entities + (size_t)shape->triples) * floats, 0},
                             {&v->given_gradient, shape->entities ? queries * dim * floats : 0, 0},
                             {&cuda->device_ids, cuda->slots * cuda->ids * sizeof(uint32_t), 0},
                             {&cuda->device_loss, cuda->slots * sizeof(double), 0},
                             {&cuda->host_ids, cuda->slots * cuda->ids * sizeof(uint32_t), 1},
                             {&cuda->host_loss, cuda->slots * sizeof(double), 1}};
    const char *remedy = "use a smaller --batch, --chunk, --negatives or --dim";
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (program_gpu_memory(&cuda->gpu, part[i].to, part[i].bytes, part[i].pinned, remedy, error)) return -1;
    return shape->questions ? kge_cuda_questions(cuda, shape->questions, error) : 0;
}

int kge_cuda_open(kge_cuda *cuda, const kge_model *model, const kge_batch *shape, uint32_t slots,
                  program_error *error) {
    cuda->model = *model;
    cuda->shape = *shape;
    cuda->slots = slots;
    cuda->slot = (kge_slot *)calloc(slots, sizeof *cuda->slot);
    if (!cuda->slot) return program_fail(error, "out of memory");
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    const unsigned plain = cudaEventDisableTiming, blocking = cudaEventDisableTiming | cudaEventBlockingSync;
    if (program_gpu_stream(&cuda->gpu, &cuda->copies, error)) return -1;
    if (program_gpu_event(&cuda->gpu, &cuda->begun, blocking, error)) return -1;
    for (uint32_t i = 0; i < slots; i++)
        if (program_gpu_event(&cuda->gpu, &cuda->slot[i].copied, plain, error) ||
            program_gpu_event(&cuda->gpu, &cuda->slot[i].computed, plain, error))
            return -1;
    if (program_gpu_products(&cuda->gpu, &cuda->products, error)) return -1;
    return kge_cuda_memory(cuda, error);
}

void kge_cuda_close(kge_cuda *cuda) {
    if (!cuda) return;
    program_gpu_close(&cuda->gpu);
    free(cuda->slot);
    free(cuda);
}

/* ---- The host's side: a batch ---------------------------------------------------------------------------- */

void kge_cuda_begin(kge_cuda *cuda, uint64_t step) {
    cuda->computed = cuda->reported = step;
}

int kge_cuda_copy(kge_cuda *cuda, uint64_t step, const kge_batch *batch, program_error *error) {
    kge_slot *slot = &cuda->slot[step % cuda->slots];
    size_t n = batch->triples, at = step % cuda->slots * cuda->ids, negatives = kge_batch_negatives(batch);
    uint32_t *ids = cuda->host_ids + at;
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventSynchronize(slot->computed),
                error); /* does not wait in fact: the slot's previous step is closed */
    slot->batch = *batch;
    memcpy(ids, batch->head, n * sizeof *ids);
    memcpy(ids + n, batch->tail, n * sizeof *ids);
    memcpy(ids + 2 * n, batch->negative, negatives * sizeof *ids);
    if (batch->weighted)
        for (int s = 0; s < 2; s++)
            memcpy(ids + 2 * n + negatives + s * n, batch->weight[s], n * sizeof *batch->weight[s]);
    PROGRAM_TRY(cuda->gpu.ordinal,
                cudaMemcpyAsync(cuda->device_ids + at, ids, ((batch->weighted ? 4 : 2) * n + negatives) * sizeof *ids,
                                cudaMemcpyHostToDevice, cuda->copies),
                error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventRecord(slot->copied, cuda->copies), error);
    return 0;
}

/* What the kernels see of the batch of `step`; a group is set later. */
static kge_view kge_cuda_view(const kge_cuda *cuda, uint64_t step) {
    kge_view v = cuda->view;
    const kge_batch *batch = &cuda->slot[step % cuda->slots].batch;
    size_t n = batch->triples;
    v.model = cuda->model;
    v.triples = batch->triples;
    v.entities = batch->entities;
    v.negatives = v.entities ? v.entities : batch->negatives;
    v.sides = kge_batch_sides(batch);
    v.scale = 1.0f / (kge_batch_divisor(batch) * (float)v.sides);
    v.n3 = v.model.regularization / kge_batch_divisor(batch);
    v.relation_n3 = kge_relation_n3(&v.model) / kge_batch_divisor(batch);
    v.correction = kge_correction(&v.model, batch->negatives);
    v.negative_at = v.entities ? 0 : 2 * n;
    v.relation_at[0] = v.entities ? v.entities : 2 * n + kge_batch_negatives(batch);
    v.relation_at[1] = v.relation_at[0] + (kge_batch_relations(&v.model, batch) == 2 ? n : 0);
    v.head = cuda->device_ids + step % cuda->slots * cuda->ids;
    v.tail = v.head + n;
    v.negative = v.tail + n;
    v.weight = batch->weighted ? (const float *)(v.negative + kge_batch_negatives(batch)) : NULL;
    v.rows = cuda->rows;
    v.grads = cuda->grads;
    return v;
}

/* out[m][n] = a[m][k] b[k][n], plus `add` times what out holds, for every chunk, row-major, each operand transposed
 * where _t. The operands are swapped, because cuBLAS stores matrices by columns. */
typedef struct kge_product {
    const float *a, *b;
    float *out;
    int a_t, b_t;
    uint32_t m, n, k;
    float add;
} kge_product;

static int kge_cuda_product(const kge_cuda *cuda, const kge_view *v, const kge_product *p, program_error *error) {
    const float one = 1.0f;
    long long m = p->m, n = p->n, k = p->k;
    cublasStatus_t status = cublasSgemmStridedBatched(cuda->products, p->b_t ? CUBLAS_OP_T : CUBLAS_OP_N,
                                                      p->a_t ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, &one,
                                                      p->b, (int)(p->b_t ? k : n), n * k, p->a, (int)(p->a_t ? m : k),
                                                      m * k, &p->add, p->out, (int)n, m * n, (int)v->chunks);
    return status == CUBLAS_STATUS_SUCCESS ? 0 : program_cublas_fail(cuda->gpu.ordinal, status, error);
}

static uint32_t kge_tiles(uint32_t n) {
    return (n + KGE_TILE - 1) / KGE_TILE;
}

static unsigned kge_warps(size_t n) { /* blocks of KGE_BLOCK threads with a warp for each */
    return (unsigned)((n + KGE_BLOCK / 32 - 1) / (KGE_BLOCK / 32));
}

static int kge_cuda_scores(const kge_cuda *cuda, const kge_view *v, program_error *error) {
    uint32_t dim = v->model.dim;
    const float *negatives = v->rows + (v->negative_at + (size_t)v->first * v->negatives) * dim;
    if (v->model.kind == KGE_TRANSE_L1) {
        kge_pairing pairing = {v->query, negatives, v->score, v->queries, v->negatives, dim, 1};
        FRUGAL_LAUNCH(kge_l1_scores_kernel, v->chunks * kge_tiles(v->queries) * kge_tiles(v->negatives), KGE_TILE_BLOCK,
                      cuda->gpu.stream, pairing);
        return 0;
    }
    kge_product product = {v->query, negatives, v->score, 0, 1, v->queries, v->negatives, dim, 0};
    return kge_cuda_product(cuda, v, &product, error);
}

/* From scores' gradients to those of queries and negatives. */
static int kge_cuda_negatives_back(const kge_cuda *cuda, const kge_view *v, program_error *error) {
    uint32_t dim = v->model.dim;
    size_t at = (v->negative_at + (size_t)v->first * v->negatives) * dim;
    const float *negatives = v->rows + at;
    if (v->model.kind == KGE_TRANSE_L1) {
        kge_pairing of_query = {v->query, negatives, v->query_gradient, v->queries, v->negatives, dim, 1};
        kge_pairing of_negative = {negatives, v->query, v->grads + at, v->negatives, v->queries, dim, 0};
        uint32_t across = v->chunks * kge_tiles(dim);
        FRUGAL_LAUNCH(kge_l1_gradients_kernel, across * kge_tiles(v->queries), KGE_TILE_BLOCK, cuda->gpu.stream,
                      of_query, v->score);
        FRUGAL_LAUNCH(kge_l1_gradients_kernel, across * kge_tiles(v->negatives), KGE_TILE_BLOCK, cuda->gpu.stream,
                      of_negative, v->score);
        return 0;
    }
    kge_product of_query = {v->score, negatives, v->query_gradient, 0, 0, v->queries, dim, v->negatives, 0};
    kge_product of_negative = {v->score, v->query, v->grads + at, 1, 0, v->negatives, dim, v->queries, 0};
    if (v->entities) of_negative.add = 1; /* of chunk after chunk */
    if (kge_cuda_product(cuda, v, &of_query, error) || kge_cuda_product(cuda, v, &of_negative, error)) return -1;
    if (KGE_HAS_L2(v->model.kind))
        FRUGAL_LAUNCH(kge_distances_back_kernel, v->chunks * kge_tiles(v->negatives), KGE_TILE_BLOCK, cuda->gpu.stream,
                      *v);
    return 0;
}

/* Everything of one group of chunks. */
static int kge_cuda_group(const kge_cuda *cuda, const kge_view *v, program_error *error) {
    size_t queries = (size_t)v->chunks * v->queries;
    FRUGAL_LAUNCH(kge_forward_kernel, kge_warps(queries), KGE_BLOCK, cuda->gpu.stream, *v);
    if (KGE_HAS_L2(v->model.kind))
        FRUGAL_LAUNCH(kge_norms_kernel, kge_warps((size_t)v->chunks * v->negatives), KGE_BLOCK, cuda->gpu.stream, *v);
    if (kge_cuda_scores(cuda, v, error)) return -1;
    if (v->entities)
        FRUGAL_LAUNCH(kge_all_loss_kernel, (unsigned)queries, KGE_BLOCK, cuda->gpu.stream, *v);
    else
        FRUGAL_LAUNCH(kge_loss_kernel, (unsigned)queries, KGE_BLOCK, cuda->gpu.stream, *v);
    if (kge_cuda_negatives_back(cuda, v, error)) return -1;
    if (v->entities) {
        FRUGAL_LAUNCH(kge_all_back_kernel, kge_warps(v->chunk), KGE_BLOCK, cuda->gpu.stream, *v);
        FRUGAL_LAUNCH(kge_all_ends_kernel, kge_warps(v->entities), KGE_BLOCK, cuda->gpu.stream, *v);
    } else
        FRUGAL_LAUNCH(kge_back_kernel, kge_warps((size_t)v->chunks * v->chunk), KGE_BLOCK, cuda->gpu.stream, *v);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaGetLastError(), error); /* of all launches above */
    return 0;
}

/* All chunks. The last one is a group of its own if it is shorter than the others, because those of a group are of one
 * length. */
static int kge_cuda_groups(const kge_cuda *cuda, kge_view *v, program_error *error) {
    if (v->entities)
        PROGRAM_TRY(cuda->gpu.ordinal,
                    cudaMemsetAsync(v->grads, 0, (size_t)v->entities * v->model.dim * sizeof(float), cuda->gpu.stream),
                    error);
    for (v->first = v->from = 0; v->from < v->triples; v->from += v->chunks * v->chunk) {
        uint32_t left = v->triples - v->from, whole = left / cuda->shape.chunk;
        v->chunk = whole ? cuda->shape.chunk : left;
        v->chunks = !whole ? 1 : whole < cuda->group ? whole : (uint32_t)cuda->group;
        v->queries = v->chunk * v->sides;
        if (kge_cuda_group(cuda, v, error)) return -1;
        if (!v->entities) v->first += v->chunks; /* all chunks have the same entities */
    }
    return 0;
}

int kge_cuda_gradients(kge_cuda *cuda, uint64_t step, program_error *error) {
    uint32_t at = (uint32_t)(step % cuda->slots);
    kge_slot *slot = &cuda->slot[at];
    kge_view v = kge_cuda_view(cuda, step);
    if (step != cuda->computed) return program_fail(error, "cuda:%d: a step out of turn", cuda->gpu.ordinal);
    if (step - cuda->reported >= cuda->slots)
        return program_fail(error, "cuda:%d: losses not asked for", cuda->gpu.ordinal);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventRecord(cuda->begun, cuda->gpu.stream), error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaStreamWaitEvent(cuda->gpu.stream, slot->copied, 0), error);
    if (kge_cuda_groups(cuda, &v, error)) return -1;
    FRUGAL_LAUNCH(kge_total_kernel, 1, KGE_TOTAL, cuda->gpu.stream, v, cuda->device_loss + at);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaGetLastError(), error);
    PROGRAM_TRY(cuda->gpu.ordinal,
                cudaMemcpyAsync(cuda->host_loss + at, cuda->device_loss + at, sizeof(double), cudaMemcpyDeviceToHost,
                                cuda->gpu.stream),
                error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventRecord(slot->computed, cuda->gpu.stream), error);
    cuda->computed = step + 1;
    return 0;
}

int kge_cuda_wait(kge_cuda *cuda, program_error *error) {
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    PROGRAM_TRY(cuda->gpu.ordinal, cudaEventSynchronize(cuda->begun), error);
    return 0;
}

int kge_cuda_losses(kge_cuda *cuda, int wait, double *loss, uint64_t *steps, program_error *error) {
    PROGRAM_TRY(cuda->gpu.ordinal, cudaSetDevice(cuda->gpu.ordinal), error);
    for (; cuda->reported < cuda->computed; cuda->reported++) {
        uint32_t at = (uint32_t)(cuda->reported % cuda->slots);
        /* The next step needs this slot: its batch was announced, so this step is closed and nothing waits. */
        int needed = cuda->computed - cuda->reported == cuda->slots;
        cudaError_t status =
            wait || needed ? cudaEventSynchronize(cuda->slot[at].computed) : cudaEventQuery(cuda->slot[at].computed);
        if (status == cudaErrorNotReady) {
            cudaGetLastError(); /* or the next check of launches may find it */
            break;
        }
        if (status != cudaSuccess) return program_cuda_fail(cuda->gpu.ordinal, "computing a batch", status, error);
        *loss += cuda->host_loss[at];
        (*steps)++;
    }
    return 0;
}
