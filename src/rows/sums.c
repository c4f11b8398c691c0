/* sums.c - the sums of a batch: gradients of equal keys into records; with bags, rows into pooled rows, and their
 * gradients into records.
 *
 * The order of every sum is fixed. Gradients are added by rising position, in blocks of 32; rows of a bag are added by
 * position. So the result is a function of the batch alone.
 */
#ifndef FRUGAL_SUMS_C
#define FRUGAL_SUMS_C
#include "optimizer.c"

INLINED const void *row_at(strided_rows rows, uint64_t i) {
    return element_at(rows.at, rows.as, i * rows.stride);
}

/* The rows from element `from` on. */
INLINED strided_rows rows_from(strided_rows rows, uint32_t from) {
    rows.at = element_at(rows.at, rows.as, from);
    return rows;
}

/* `floats` elements of row i as floats: where they are, or in the buffer. */
INLINED const float *floats_at(strided_rows rows, uint64_t i, uint32_t floats, float *buffer) {
    if (rows.as == FRUGAL_FP32) return row_at(rows, i);
    rows.types->widen(buffer, row_at(rows, i), rows.as, floats);
    return buffer;
}

INLINED void prefetch_elements(strided_rows rows, uint64_t i, uint32_t n) {
    prefetch_bytes(row_at(rows, i), (uint64_t)n * frugal_type_bytes(rows.as), 0);
}

/* Prefetches the gradient that is summed AHEAD_POSITIONS after that at order[0]; order[left] is the batch's end.
 * Positions are nearly random, also those of one row. */
INLINED void prefetch_gradient(strided_rows grads, uint32_t floats, const uint32_t *order, uint32_t left) {
    if (left > AHEAD_POSITIONS) prefetch_elements(grads, order[AHEAD_POSITIONS], floats);
}

/* sum[width] = the sum of the rows order[k], k < n, in blocks of 32 positions; `width` is at most a chunk. order[left]
 * is the batch's end. */
INLINED void sum_chunk(float *restrict sum, strided_rows grads, uint32_t width, const uint32_t *order, uint32_t n,
                       uint32_t left) {
    float buffer[CHUNK_FLOATS], wide[CHUNK_FLOATS];
    for (uint32_t block = 0; block < n; block += 32) {
        float *to = block == 0 ? sum : buffer;
        prefetch_gradient(grads, width, order + block, left - block);
        copy_row(to, floats_at(grads, order[block], width, wide), width);
        for (uint32_t k = block + 1; k < LEAST(block + 32, n); k++) {
            prefetch_gradient(grads, width, order + k, left - k);
            add_row(to, floats_at(grads, order[k], width, wide), width);
        }
        if (block > 0) add_row(sum, buffer, width);
    }
}

INLINED void sum_typed(float *sum, strided_rows grads, uint32_t dim, const uint32_t *order, uint32_t n, uint32_t left) {
    if (n == 1) { /* most rows, even if keys are skewed */
        prefetch_gradient(grads, dim, order, left);
        if (grads.as == FRUGAL_FP32) memcpy(sum, row_at(grads, order[0]), dim * sizeof(float));
        for (uint32_t from = 0; grads.as != FRUGAL_FP32 && from < dim; from += CHUNK_FLOATS)
            floats_at(rows_from(grads, from), order[0], LEAST(CHUNK_FLOATS, dim - from), sum + from);
        return;
    }
    for (uint32_t from = 0; from < dim; from += CHUNK_FLOATS)
        sum_chunk(sum + from, rows_from(grads, from), LEAST(CHUNK_FLOATS, dim - from), order, n, left);
}

/* With the type of floats as a constant, so that loops do not ask for it. */
INLINED void sum_row(float *sum, strided_rows grads, uint32_t dim, const uint32_t *order, uint32_t n, uint32_t left) {
    const strided_rows floats = {grads.at, grads.stride, FRUGAL_FP32, NULL};
    if (grads.as == FRUGAL_FP32)
        sum_typed(sum, floats, dim, order, n, left);
    else
        sum_typed(sum, grads, dim, order, n, left);
}

INLINED void sum_records(const frugal_records *r, strided_rows grads, uint32_t dim) {
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t first = r->start[u];
        sum_row(r->block + u * r->stride, grads, dim, r->order + first, r->start[u + 1] - first, r->n - first);
    }
}

/* How the rows of a bag, or its gradient, are scaled; a constant in inlined code. */
typedef enum { UNSCALED, BY_WEIGHT, BY_MEAN } bag_scaling;

INLINED bag_scaling scaling_of(const frugal_bags *bags) {
    if (bags->pooling == FRUGAL_POOL_MEAN) return BY_MEAN;
    return bags->weights ? BY_WEIGHT : UNSCALED;
}

/* Calls the function with the bags' scaling as its last argument. It is a constant, so that loops over elements have no
 * branches. */
#define WITH_SCALING(bags, function, ...)                                                                              \
    switch (scaling_of(bags)) {                                                                                        \
    case UNSCALED:                                                                                                     \
        function(__VA_ARGS__, UNSCALED);                                                                               \
        break;                                                                                                         \
    case BY_WEIGHT:                                                                                                    \
        function(__VA_ARGS__, BY_WEIGHT);                                                                              \
        break;                                                                                                         \
    case BY_MEAN:                                                                                                      \
    default:                                                                                                           \
        function(__VA_ARGS__, BY_MEAN);                                                                                \
        break;                                                                                                         \
    }

/* n elements: to = what * by if `first`, else to += what * by in one fused multiply-add. */
INLINED void weigh_elements(float *restrict to, const float *restrict what, float by, int first, uint32_t n) {
    if (first) {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_mul(what[i], by);
    } else {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_fma(by, what[i], to[i]);
    }
}

INLINED void weigh_row(float *to, const float *what, float by, int first, uint32_t floats) {
    IN_PIECES(floats, i, n, weigh_elements(to + i, what + i, by, first, n));
}

/* Pools `width` elements of one bag: positions range[0] to range[1] - 1, in rising order. Of rows of 16 bits `width` is
 * at most a chunk. */
INLINED void pool_bag(float *to, const pooled_from *r, const float *weights, uint32_t width, const uint32_t *range,
                      bag_scaling scaling) {
    float wide[CHUNK_FLOATS];
    uint32_t from = range[0], end = range[1];
    if (from == end) memset(to, 0, width * sizeof(float));
    for (uint32_t p = from; p < end; p++) {
        if (p + AHEAD_POSITIONS < r->n) prefetch_elements(r->rows, r->row_of[p + AHEAD_POSITIONS], width);
        const float *row = floats_at(r->rows, r->row_of[p], width, wide);
        if (scaling == BY_WEIGHT && p == from)
            weigh_row(to, row, weights[p], 1, width);
        else if (scaling == BY_WEIGHT)
            weigh_row(to, row, weights[p], 0, width);
        else if (p == from)
            memcpy(to, row, width * sizeof(float));
        else
            add_row(to, row, width);
    }
    if (scaling == BY_MEAN && end - from > 1) divide_row(to, (float)(end - from), width);
}

/* Pools one bag of or to 16 bits: in chunks, because sums are floats. */
INLINED void pool_chunks(const pooled_rows *to, uint32_t b, const pooled_from *r, const frugal_bags *bags,
                         bag_scaling scaling) {
    float buffer[CHUNK_FLOATS];
    for (uint32_t from = 0; from < to->dim; from += CHUNK_FLOATS) {
        uint32_t n = LEAST(CHUNK_FLOATS, to->dim - from);
        pooled_from chunk = {rows_from(r->rows, from), r->row_of, r->n};
        float *sum = to->as == FRUGAL_FP32 ? (float *)to->at + b * to->stride + from : buffer;
        pool_bag(sum, &chunk, bags->weights, n, bags->offsets + b, scaling);
        if (to->as != FRUGAL_FP32)
            r->rows.types->nearest((uint16_t *)to->at + b * to->stride + from, buffer, to->as, n);
    }
}

INLINED void pool_each(const pooled_rows *to, const pooled_from *r, const frugal_bags *bags, bag_scaling scaling) {
    pooled_from floats = *r;
    floats.rows.as = FRUGAL_FP32; /* a constant, so that loops do not ask for it */
    for (uint32_t b = 0; b < bags->n_bags; b++) {
        if (to->as == FRUGAL_FP32 && r->rows.as == FRUGAL_FP32)
            pool_bag((float *)to->at + b * to->stride, &floats, bags->weights, to->dim, bags->offsets + b, scaling);
        else
            pool_chunks(to, b, r, bags, scaling);
    }
}

INLINED void pool_all(const pooled_rows *to, const pooled_from *r, const frugal_bags *bags) {
    WITH_SCALING(bags, pool_each, to, r, bags);
}

/* n elements: to = what scaled if `first`, else to += what scaled. Rounded twice, as if the gradients by position had
 * been written. */
INLINED void scale_elements(float *restrict to, const float *restrict what, float by, int first, bag_scaling scaling,
                            uint32_t n) {
    if (scaling == BY_WEIGHT) {
        VECTORS
        for (uint32_t i = 0; i < n; i++)
            to[i] = first ? frugal_mul(what[i], by) : frugal_add(to[i], frugal_mul(what[i], by));
    } else {
        VECTORS
        for (uint32_t i = 0; i < n; i++)
            to[i] = first ? frugal_div(what[i], by) : frugal_add(to[i], frugal_div(what[i], by));
    }
}

INLINED void scale_row(float *to, const float *what, float by, int first, bag_scaling scaling, uint32_t floats) {
    IN_PIECES(floats, i, n, scale_elements(to + i, what + i, by, first, scaling, n));
}

/* to = the gradient of position p if `first`, else to += that gradient; `floats` elements. */
INLINED void spread_gradient(float *to, const bag_gradients *g, uint32_t p, uint32_t floats, int first,
                             bag_scaling scaling) {
    uint32_t bag = g->bag_of[p];
    float wide[CHUNK_FLOATS];
    const float *gradient = floats_at(g->grads, bag, floats, wide);
    float by = scaling == BY_WEIGHT ? g->bags->weights[p]
               : scaling == BY_MEAN ? (float)(g->bags->offsets[bag + 1] - g->bags->offsets[bag])
                                    : 1.0f;
    if (scaling != UNSCALED && first)
        scale_row(to, gradient, by, 1, scaling, floats);
    else if (scaling != UNSCALED)
        scale_row(to, gradient, by, 0, scaling, floats);
    else if (first)
        copy_row(to, gradient, floats);
    else
        add_row(to, gradient, floats);
}

/* As sum_chunk, from gradients by bag. */
INLINED void sum_bags_chunk(float *restrict sum, const bag_gradients *g, uint32_t width, const uint32_t *order,
                            uint32_t n, bag_scaling scaling) {
    float buffer[CHUNK_FLOATS];
    for (uint32_t block = 0; block < n; block += 32) {
        float *to = block == 0 ? sum : buffer;
        spread_gradient(to, g, order[block], width, 1, scaling);
        for (uint32_t k = block + 1; k < LEAST(block + 32, n); k++) spread_gradient(to, g, order[k], width, 0, scaling);
        if (block > 0) add_row(sum, buffer, width);
    }
}

INLINED void sum_bags_each(const frugal_records *r, const bag_gradients *all, uint32_t dim, uint32_t from, uint32_t end,
                           bag_scaling scaling) {
    for (uint32_t u = from; u < end; u++) {
        uint32_t first = r->start[u], n = r->start[u + 1] - first;
        if (first + AHEAD_POSITIONS < r->n)
            prefetch_elements(all->grads, all->bag_of[r->order[first + AHEAD_POSITIONS]], dim);
        for (uint32_t at = 0; at < dim; at += CHUNK_FLOATS) {
            bag_gradients g = {rows_from(all->grads, at), all->bags, all->bag_of};
            sum_bags_chunk(r->block + u * r->stride + at, &g, LEAST(CHUNK_FLOATS, dim - at), r->order + first, n,
                           scaling);
        }
    }
}

INLINED void sum_bags_range(const frugal_records *r, const bag_gradients *all, uint32_t dim, uint32_t from,
                            uint32_t end) {
    WITH_SCALING(all->bags, sum_bags_each, r, all, dim, from, end);
}

typedef struct square_batch { /* whose squares are summed */
    const frugal_store *store;
    const frugal_step *step;
    const bag_gradients *g; /* g->grads.at NULL: the records are written; g->bags NULL: gradients are by position */
} square_batch;

/* `width` floats of the gradient of record u, from `at` on; in the buffer, unless they are somewhere already. */
INLINED const float *record_chunk(const square_batch *b, uint32_t u, uint32_t at, uint32_t width,
                                  float *restrict buffer, bag_scaling scaling) {
    const frugal_records *r = &b->step->records;
    uint32_t first = r->start[u], n = r->start[u + 1] - first;
    if (!b->g->grads.at) return r->block + u * r->stride + at;
    strided_rows chunk = rows_from(b->g->grads, at);
    bag_gradients by_bag = {chunk, b->g->bags, b->g->bag_of};
    if (!b->g->bags && n == 1) return floats_at(chunk, r->order[first], width, buffer);
    if (b->g->bags)
        sum_bags_chunk(buffer, &by_bag, width, r->order + first, n, scaling);
    else
        sum_chunk(buffer, chunk, width, r->order + first, n, r->n - first);
    return buffer;
}

INLINED void square_each(const square_batch *b, double *sum, bag_scaling scaling) {
    const frugal_store *s = b->store;
    const frugal_records *r = &b->step->records;
    const uint32_t *summed = b->step->summed;
    float buffer[CHUNK_FLOATS];
    for (uint32_t i = 0, n = summed ? b->step->n_summed : r->n_unique; i < n; i++) {
        float lanes[32] = {0};
        uint32_t u = summed ? summed[i] : i;
        if (!summed && s->groups[frugal_group_of(s->groups, s->n_groups, r->rows[u])].optimizer.frozen) continue;
        for (uint32_t at = 0; at < s->dim; at += CHUNK_FLOATS) {
            uint32_t width = LEAST(CHUNK_FLOATS, s->dim - at);
            const float *g = record_chunk(b, u, at, width, buffer, scaling);
            square_chunk(lanes, g, g, 0, width);
        }
        *sum += (double)fold_all(lanes);
    }
}

INLINED double square_records(const frugal_store *store, const frugal_step *step, const bag_gradients *g) {
    const square_batch b = {store, step, g};
    double sum = 0;
    if (g->bags)
        WITH_SCALING(g->bags, square_each, &b, &sum)
    else
        square_each(&b, &sum, UNSCALED);
    return sum;
}

#endif
