/* alone.c - a device's update of its batch: rows that it alone touches are updated in the host table, in place; of the
 * others the gradients are summed into records.
 *
 * A row that is alone has one contributor, so its update is what apply.c would do with its record: the same sum, the
 * same optimizer step. Where one position brings the row's gradient, no record is written at all. That no other thread
 * reads or writes the row meanwhile is shown in frugal_p2f.h, section 5 (f).
 *
 * Sum and step are one pass over the rows, in rising order. To find all gradients first, a few rows at a time, is
 * slower, because then rows are asked for in bursts that memory cannot answer at once.
 */
#ifndef FRUGAL_ALONE_C
#define FRUGAL_ALONE_C
#include "optimizer.c"
#include "gather.c"

typedef struct alone_batch { /* what is the same for all rows of an update */
    const frugal_store *store;
    const row_conversions *types;
    unsigned char *weights; /* of the store, as are the next two: bytes from row to row, and of a row */
    uint64_t pitch, row_bytes;
    const frugal_records *r;
    const uint64_t *alone;
    const frugal_hyper *hyper; /* [n_groups] */
    strided_rows grads;        /* by position; NULL: by bag, or the records are written */
    sum_function *sum;         /* of one row: called, not inlined, because it would be inlined for each rule */
    const bag_gradients *bags; /* NULL: not by bag */
    sum_bags_function *sum_bags;
} alone_batch;

/* Prefetches the row of record u, if it is alone, and the record if it is written already. */
INLINED void prefetch_alone(const alone_batch *b, uint32_t u) {
    const frugal_store *s = b->store;
    const frugal_records *r = b->r;
    if (!b->grads.at && !b->bags) prefetch_row(r->block + u * r->stride, LEAST(s->dim, AHEAD_START), 0);
    if (!frugal_is_alone(b->alone, u)) return;
    prefetch_bytes(b->weights + r->rows[u] * b->pitch, b->row_bytes, 1);
    if (s->state) prefetch_row(s->state + r->rows[u] * s->state_stride, s->state_floats, 1);
}

/* The gradient of record u: that of its one position if the row is alone and these are floats, else its record, which
 * is written now. */
INLINED const float *alone_gradient(const alone_batch *b, uint32_t u, int alone) {
    const frugal_records *r = b->r;
    uint32_t first = r->start[u], n = r->start[u + 1] - first, dim = b->store->dim;
    if (b->grads.at && n == 1 && alone && b->grads.as == FRUGAL_FP32) {
        prefetch_gradient(b->grads, dim, r->order + first, r->n - first);
        return row_at(b->grads, r->order[first]);
    }
    if (b->bags && n == 1 && alone && b->bags->grads.as == FRUGAL_FP32 && scaling_of(b->bags->bags) == UNSCALED) {
        const uint32_t *bag_of = b->bags->bag_of, *order = r->order + first;
        if (r->n - first > AHEAD_POSITIONS) prefetch_elements(b->bags->grads, bag_of[order[AHEAD_POSITIONS]], dim);
        return row_at(b->bags->grads, bag_of[order[0]]);
    }
    float *record = r->block + u * r->stride;
    if (b->bags) b->sum_bags(r, b->bags, dim, u, u + 1);
    const strided_rows grads = b->grads; /* a copy, so that the address of `b` is not given away */
    if (grads.at) b->sum(record, &grads, dim, r->order + first, n, r->n - first);
    return record;
}

/* Records from `from` to `end`, all of one group. */
INLINED void alone_each(const alone_batch *b, uint32_t group, uint32_t from, uint32_t end, frugal_optimizer_kind kind,
                        float decay) {
    const frugal_store *s = b->store;
    const frugal_optimizer *optimizer = &s->groups[group].optimizer;
    const row_place place = {s, b->types};
    for (uint32_t u = from; u < end; u++) {
        if (u + AHEAD_UPDATES < b->r->n_unique) prefetch_alone(b, u + AHEAD_UPDATES);
        int alone = frugal_is_alone(b->alone, u);
        const float *gradient = alone_gradient(b, u, alone);
        if (!alone) continue;
        uint64_t row = b->r->rows[u];
        float *state = s->state ? s->state + row * s->state_stride : NULL;
        row_update update = {b->weights + row * b->pitch, state, &gradient, 1, (uint32_t)row, &b->hyper[group]};
        apply_row(&place, optimizer, &update, kind, decay);
    }
}

/* Records of a frozen group: rows stay, and records are written as ever. */
INLINED void alone_frozen(const alone_batch *b, uint32_t from, uint32_t end) {
    for (uint32_t u = from; u < end; u++) alone_gradient(b, u, 0);
}

INLINED void alone_group(const alone_batch *b, uint32_t group, uint32_t from, uint32_t end) {
    const frugal_optimizer *optimizer = &b->store->groups[group].optimizer;
    if (optimizer->frozen) {
        alone_frozen(b, from, end);
        return;
    }
    WITH_RULE(optimizer, alone_each, b, group, from, end);
}

/* Cuts the records into those of each group; rows rise. */
INLINED void alone_groups(const alone_batch *b, uint32_t from, uint32_t end) {
    const frugal_store *s = b->store;
    for (uint32_t at = from, next = end; at < end; at = next, next = end) {
        uint32_t group = frugal_group_of(s->groups, s->n_groups, b->r->rows[at]);
        if (group + 1 < s->n_groups)
            for (next = at + 1; next < end && b->r->rows[next] < s->groups[group + 1].first_row;) next++;
        alone_group(b, group, at, next);
    }
}

/* `b` has what depends on the instruction set. */
INLINED void update_rows(alone_batch *b, const frugal_step *step, const uint32_t *bag_of, const void *grads,
                         uint32_t from, uint32_t end) {
    const strided_rows all = {grads, step->stride, step->as, b->types}, none = {.at = NULL};
    const bag_gradients by_bag = {all, step->bags, bag_of};
    const frugal_store *s = b->store;
    b->weights = s->weights, b->pitch = frugal_row_pitch(s);
    b->row_bytes = frugal_row_bytes(s);
    b->r = &step->records, b->alone = step->alone, b->hyper = step->hyper;
    b->grads = step->bags ? none : all;
    b->bags = grads && step->bags ? &by_bag : NULL;
    alone_groups(b, from, end);
}

#endif
