/* sums.c - the sums of a batch: gradients of equal keys into records; with bags, rows into pooled rows and back.
 *
 * The order of every sum is fixed: positions in rising order, in blocks of 32. The result is a function of the batch alone.
 */
#include "host.h"

/* sum[width] = the rows at grads + order[k] * dim, in blocks of 32 positions; `width` at most a chunk. */
FRUGAL_PRIV_ALWAYS void frugal_priv_sum_chunk(float *restrict sum, const float *restrict grads, uint32_t dim,
                                              uint32_t width, const uint32_t *order, uint32_t n) {
    float buffer[FRUGAL_PRIV_STATE_CHUNK];
    for (uint32_t block = 0; block < n; block += 32) {
        float *to = block == 0 ? sum : buffer;
        frugal_priv_copy_row(to, grads + (uint64_t)order[block] * dim, width);
        for (uint32_t k = block + 1; k < FRUGAL_PRIV_MIN(block + 32, n); k++)
            frugal_priv_add_row(to, grads + (uint64_t)order[k] * dim, width);
        if (block > 0) frugal_priv_add_row(sum, buffer, width);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_row(float *sum, const float *grads, uint32_t dim, const uint32_t *order,
                                            uint32_t n) {
    if (n == 1) { /* the most of them, even where keys are skewed */
        memcpy(sum, grads + (uint64_t)order[0] * dim, dim * sizeof(float));
        return;
    }
    for (uint32_t from = 0; from < dim; from += FRUGAL_PRIV_STATE_CHUNK)
        frugal_priv_sum_chunk(sum + from, grads + from, dim, FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, dim - from),
                              order, n);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_records(const frugal_records *r, const float *grads, uint32_t dim) {
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t first = r->start[u], n = r->start[u + 1] - first;
        if (first + FRUGAL_PRIV_AHEAD_SUM < r->n) /* positions are as good as random */
            frugal_priv_prefetch_row(grads + (uint64_t)r->order[first + FRUGAL_PRIV_AHEAD_SUM] * dim, dim, 0);
        frugal_priv_sum_row(r->block + u * r->stride, grads, dim, r->order + first, n);
    }
}

/* What a bag's rows, or its gradient, are scaled by; a constant where it is inlined. */
typedef enum { FRUGAL_PRIV_PLAIN, FRUGAL_PRIV_WEIGHTED, FRUGAL_PRIV_MEAN } frugal_priv_scaling;

static frugal_priv_scaling frugal_priv_scaling_of(const frugal_bags *bags) {
    if (bags->pooling == FRUGAL_POOL_MEAN) return FRUGAL_PRIV_MEAN;
    return bags->weights ? FRUGAL_PRIV_WEIGHTED : FRUGAL_PRIV_PLAIN;
}

/* n elements: to = what * by, or += in one fused multiply-add. */
FRUGAL_PRIV_ALWAYS void frugal_priv_weigh_elements(float *restrict to, const float *restrict what, float by, int first,
                                                   uint32_t n) {
    if (first) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_mul(what[i], by);
    } else {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_fma(by, what[i], to[i]);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_weigh_row(float *to, const float *what, float by, int first, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_weigh_elements(to, what, by, first, i);
    if (n & 8) frugal_priv_weigh_elements(to + i, what + i, by, first, 8), i += 8;
    if (n & 4) frugal_priv_weigh_elements(to + i, what + i, by, first, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_weigh_elements(to + i, what + i, by, first, 1);
}

/* One bag: positions [from, end), from the first one on. */
FRUGAL_PRIV_ALWAYS void frugal_priv_pool_bag(float *to, const frugal_records *r, const float *weights, uint32_t dim,
                                             uint32_t from, uint32_t end, frugal_priv_scaling scaling) {
    if (from == end) memset(to, 0, dim * sizeof(float));
    for (uint32_t p = from; p < end; p++) {
        if (p + FRUGAL_PRIV_AHEAD_SUM < r->n)
            frugal_priv_prefetch_row(r->block + r->record_of[p + FRUGAL_PRIV_AHEAD_SUM] * r->stride, dim, 0);
        const float *row = r->block + r->record_of[p] * r->stride;
        if (scaling == FRUGAL_PRIV_WEIGHTED && p == from)
            frugal_priv_weigh_row(to, row, weights[p], 1, dim);
        else if (scaling == FRUGAL_PRIV_WEIGHTED)
            frugal_priv_weigh_row(to, row, weights[p], 0, dim);
        else if (p == from)
            memcpy(to, row, dim * sizeof(float));
        else
            frugal_priv_add_row(to, row, dim);
    }
    if (scaling == FRUGAL_PRIV_MEAN && end - from > 1) frugal_priv_divide_row(to, (float)(end - from), dim);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_pool_bags(const frugal_records *r, const frugal_bags *bags, uint32_t dim,
                                              float *pooled, frugal_priv_scaling scaling) {
    for (uint32_t b = 0; b < bags->n_bags; b++)
        frugal_priv_pool_bag(pooled + (uint64_t)b * dim, r, bags->weights, dim, bags->offsets[b], bags->offsets[b + 1],
                             scaling);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_pool_all(const frugal_records *r, const frugal_bags *bags, uint32_t dim,
                                             float *pooled) {
    switch (frugal_priv_scaling_of(bags)) {
    case FRUGAL_PRIV_PLAIN:
        frugal_priv_pool_bags(r, bags, dim, pooled, FRUGAL_PRIV_PLAIN);
        break;
    case FRUGAL_PRIV_WEIGHTED:
        frugal_priv_pool_bags(r, bags, dim, pooled, FRUGAL_PRIV_WEIGHTED);
        break;
    case FRUGAL_PRIV_MEAN:
    default:
        frugal_priv_pool_bags(r, bags, dim, pooled, FRUGAL_PRIV_MEAN);
        break;
    }
}

/* n elements: to = what scaled, or += that; two roundings, as if the gradients by position had been written. */
FRUGAL_PRIV_ALWAYS void frugal_priv_scale_elements(float *restrict to, const float *restrict what, float by, int first,
                                                   frugal_priv_scaling scaling, uint32_t n) {
    if (scaling == FRUGAL_PRIV_WEIGHTED) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            to[i] = first ? frugal_mul(what[i], by) : frugal_add(to[i], frugal_mul(what[i], by));
    } else {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            to[i] = first ? frugal_div(what[i], by) : frugal_add(to[i], frugal_div(what[i], by));
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_scale_row(float *to, const float *what, float by, int first,
                                              frugal_priv_scaling scaling, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_scale_elements(to, what, by, first, scaling, i);
    if (n & 8) frugal_priv_scale_elements(to + i, what + i, by, first, scaling, 8), i += 8;
    if (n & 4) frugal_priv_scale_elements(to + i, what + i, by, first, scaling, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_scale_elements(to + i, what + i, by, first, scaling, 1);
}

/* The gradient of position p, or to += that; `width` elements of it. */
FRUGAL_PRIV_ALWAYS void frugal_priv_spread(float *to, const float *grads, const frugal_bags *bags,
                                           const uint32_t *bag_of, uint32_t dim, uint32_t width, uint32_t p, int first,
                                           frugal_priv_scaling scaling) {
    uint32_t bag = bag_of[p];
    const float *gradient = grads + (uint64_t)bag * dim;
    float by = scaling == FRUGAL_PRIV_WEIGHTED ? bags->weights[p]
               : scaling == FRUGAL_PRIV_MEAN   ? (float)(bags->offsets[bag + 1] - bags->offsets[bag])
                                               : 1.0f;
    if (scaling != FRUGAL_PRIV_PLAIN && first)
        frugal_priv_scale_row(to, gradient, by, 1, scaling, width);
    else if (scaling != FRUGAL_PRIV_PLAIN)
        frugal_priv_scale_row(to, gradient, by, 0, scaling, width);
    else if (first)
        frugal_priv_copy_row(to, gradient, width);
    else
        frugal_priv_add_row(to, gradient, width);
}

/* As frugal_priv_sum_chunk. */
FRUGAL_PRIV_ALWAYS void frugal_priv_sum_bags_chunk(float *restrict sum, const float *restrict grads,
                                                   const frugal_bags *bags, const uint32_t *bag_of, uint32_t dim,
                                                   uint32_t width, const uint32_t *order, uint32_t n,
                                                   frugal_priv_scaling scaling) {
    float buffer[FRUGAL_PRIV_STATE_CHUNK];
    for (uint32_t block = 0; block < n; block += 32) {
        float *to = block == 0 ? sum : buffer;
        frugal_priv_spread(to, grads, bags, bag_of, dim, width, order[block], 1, scaling);
        for (uint32_t k = block + 1; k < FRUGAL_PRIV_MIN(block + 32, n); k++)
            frugal_priv_spread(to, grads, bags, bag_of, dim, width, order[k], 0, scaling);
        if (block > 0) frugal_priv_add_row(sum, buffer, width);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_bags_each(const frugal_records *r, const frugal_bags *bags,
                                                  const uint32_t *bag_of, const float *grads, uint32_t dim,
                                                  frugal_priv_scaling scaling) {
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t first = r->start[u], n = r->start[u + 1] - first;
        if (first + FRUGAL_PRIV_AHEAD_SUM < r->n)
            frugal_priv_prefetch_row(grads + (uint64_t)bag_of[r->order[first + FRUGAL_PRIV_AHEAD_SUM]] * dim, dim, 0);
        for (uint32_t from = 0; from < dim; from += FRUGAL_PRIV_STATE_CHUNK)
            frugal_priv_sum_bags_chunk(r->block + u * r->stride + from, grads + from, bags, bag_of, dim,
                                       FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, dim - from), r->order + first, n,
                                       scaling);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_sum_bags_all(const frugal_records *r, const frugal_bags *bags,
                                                 const uint32_t *bag_of, const float *grads, uint32_t dim) {
    switch (frugal_priv_scaling_of(bags)) {
    case FRUGAL_PRIV_PLAIN:
        frugal_priv_sum_bags_each(r, bags, bag_of, grads, dim, FRUGAL_PRIV_PLAIN);
        break;
    case FRUGAL_PRIV_WEIGHTED:
        frugal_priv_sum_bags_each(r, bags, bag_of, grads, dim, FRUGAL_PRIV_WEIGHTED);
        break;
    case FRUGAL_PRIV_MEAN:
    default:
        frugal_priv_sum_bags_each(r, bags, bag_of, grads, dim, FRUGAL_PRIV_MEAN);
        break;
    }
}
