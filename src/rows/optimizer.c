/* optimizer.c - one optimizer step on a row: SGD, Adagrad, row-wise Adagrad, Adam, AdamW.
 *
 * The formula of an element is in arithmetic.h, which host and GPU share (frugal_adagrad and others). Here it is
 * applied to rows, each with the gradients that the devices bring for it, summed in device order. The calls, from the
 * update of a row to an element: flush_taken or close_piece (apply.c), apply_rows (processors.c), in the processor's
 * instructions (rows.c) apply_group, apply_row, apply_elements, frugal_adagrad.
 */
#ifndef FRUGAL_OPTIMIZER_C
#define FRUGAL_OPTIMIZER_C
#include "types.c"

/* Elements [from, from + n) of the row's gradient: summed over devices, averaged if asked for, scaled. Returns a
 * pointer to them. */
INLINED const float *gradient_of(const frugal_store *store, const row_update *update, uint32_t from, uint32_t n,
                                 float scale, float *restrict buffer) {
    if (update->n == 1 && store->reduce == FRUGAL_SUM && scale == 1.0f) return update->records[0] + from;
    copy_row(buffer, update->records[0] + from, n);
    VECTORS
    for (uint32_t r = 1; r < update->n; r++) add_row(buffer, update->records[r] + from, n);
    if (store->reduce == FRUGAL_MEAN) divide_row(buffer, (float)store->devices, n);
    if (scale != 1.0f) multiply_row(buffer, scale, n);
    return buffer;
}

/* lanes[n] += g * g. */
INLINED void square_lanes(float *restrict lanes, const float *restrict g, const float *restrict w, float decay,
                          uint32_t n) {
    VECTORS
    for (uint32_t l = 0; l < n; l++) {
        float x = frugal_decay(g[l], w[l], decay);
        lanes[l] = frugal_fma(x, x, lanes[l]);
    }
}

/* As square_lanes for all 32 lanes. They stay in registers from one block to the next, because the compiler unrolls
 * this loop after it has vectorized it. */
INLINED void square_block(float *restrict lanes, const float *restrict g, const float *restrict w, float decay) {
    for (uint32_t l = 0; l < 32; l++) {
        float x = frugal_decay(g[l], w[l], decay);
        lanes[l] = frugal_fma(x, x, lanes[l]);
    }
}

INLINED void fold_lanes(float *restrict lanes, uint32_t half) {
    for (uint32_t l = 0; l < half; l++) lanes[l] = frugal_add(lanes[l], lanes[l + half]);
}

/* lanes[32] += g * g of n elements, of which the first is one for lane 0. */
INLINED void square_chunk(float *restrict lanes, const float *restrict g, const float *restrict w, float decay,
                          uint32_t n) {
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32) square_block(lanes, g + i, w + i, decay);
    if (n & 16) square_lanes(lanes, g + i, w + i, decay, 16), i += 16;
    if (n & 8) square_lanes(lanes + i % 32, g + i, w + i, decay, 8), i += 8;
    if (n & 4) square_lanes(lanes + i % 32, g + i, w + i, decay, 4), i += 4;
    VECTORS
    for (; i < n; i++) square_lanes(lanes + i % 32, g + i, w + i, decay, 1);
}

INLINED float fold_all(float *restrict lanes) {
    fold_lanes(lanes, 16);
    fold_lanes(lanes, 8);
    fold_lanes(lanes, 4);
    fold_lanes(lanes, 2);
    return frugal_add(lanes[0], lanes[1]);
}

/* Elements [from, from + n) of a row's weights, as floats: where they are, or in the buffer. */
INLINED float *weights_from(const row_place *p, const row_update *update, uint32_t from, uint32_t n, float *buffer) {
    if (p->store->rows_as == FRUGAL_FP32) return (float *)update->weights + from;
    p->types->widen(buffer, (uint16_t *)update->weights + from, p->store->rows_as, n);
    return buffer;
}

/* The sum of g * g over a row: in 32 lanes, which a halving tree adds. A warp can follow this order. */
INLINED float sum_of_squares(const row_place *p, const row_update *update, float decay, float scale) {
    float lanes[32] = {0}, buffer[CHUNK_FLOATS], wide[CHUNK_FLOATS];
    for (uint32_t from = 0; from < p->store->dim; from += CHUNK_FLOATS) {
        uint32_t n = LEAST(CHUNK_FLOATS, p->store->dim - from);
        const float *g = gradient_of(p->store, update, from, n, scale, buffer);
        const float *w = decay != 0.0f ? weights_from(p, update, from, n, wide) : g; /* else they are not used */
        square_chunk(lanes, g, w, decay, n);
    }
    return fold_all(lanes);
}

/* The weight of an element after the step. AdamW's decay is of the weight, and not of the gradient. */
INLINED float apply_element(const row_rule *o, float w, float *s, float *v, float g) {
    if (o->kind == FRUGAL_ADAMW)
        w = frugal_shrink(w, o->decay);
    else
        g = frugal_decay(g, w, o->decay);
    if (o->kind == FRUGAL_ADAGRAD) return frugal_adagrad(w, s, g, o->factor, o->eps);
    if (frugal_is_adam(o->kind)) return frugal_adam(w, s, v, g, o->factor, o->rest1, o->rest2, o->eps);
    return frugal_sgd(w, g, o->factor);
}

/* Applies the step to n elements of a row. */
INLINED void apply_elements(const row_rule *o, float *restrict w, float *restrict s, float *restrict v,
                            const float *restrict g, uint32_t n) {
    VECTORS
    for (uint32_t i = 0; i < n; i++) w[i] = apply_element(o, w[i], &s[i], &v[i], g[i]);
}

/* The same for bf16, rounded stochastically. In one loop, because it is what is used most; other types and roundings
 * go through a buffer. */
INLINED void apply_bf16(const row_rule *o, uint16_t *restrict w, float *restrict s, float *restrict v,
                        const float *restrict g, const uint16_t *restrict noise, uint32_t n) {
    VECTORS
    for (uint32_t i = 0; i < n; i++)
        w[i] = frugal_round_bf16(apply_element(o, frugal_widen_bf16(w[i]), &s[i], &v[i], g[i]), noise[i]);
}

/* Applies the step to elements [from, from + floats) of a row of 16 bits, by a rule that is a constant. */
INLINED void apply_halves(const row_place *p, const row_update *update, const row_rule *o, uint32_t from,
                          uint32_t floats) {
    const frugal_store *store = p->store;
    frugal_type as = store->rows_as;
    float buffer[CHUNK_FLOATS], wide[CHUNK_FLOATS];
    uint16_t noise[CHUNK_FLOATS], *halves = (uint16_t *)update->weights + from;
    const float *g = gradient_of(store, update, from, floats, o->scale, buffer);
    float *s = o->kind == FRUGAL_ADAGRAD || frugal_is_adam(o->kind) ? update->state + from : wide;
    float *v = frugal_is_adam(o->kind) ? s + store->dim : wide;
    int draws = store->rounding == FRUGAL_STOCHASTIC;
    if (draws) draw_noise(noise, o->noise, from, floats);
    if (draws && as == FRUGAL_BF16) {
        IN_PIECES(floats, i, n, apply_bf16(o, halves + i, s + i, v + i, g + i, noise + i, n));
        return;
    }
    p->types->widen(wide, halves, as, floats);
    IN_PIECES(floats, i, n, apply_elements(o, wide + i, s + i, v + i, g + i, n));
    if (draws)
        p->types->round(halves, wide, noise, as, floats);
    else
        p->types->nearest(halves, wide, as, floats);
}

/* With the kind as a constant, and so the decay if it is 0, as WITH_RULE does for rows of floats. */
INLINED void apply_halves_by(const row_place *p, const row_update *update, const row_rule *rule, uint32_t from,
                             uint32_t floats, frugal_optimizer_kind kind) {
    row_rule o = *rule;
    o.kind = kind;
    if (rule->decay == 0.0f) {
        o.decay = 0.0f;
        apply_halves(p, update, &o, from, floats);
    } else {
        apply_halves(p, update, &o, from, floats);
    }
}

/* The same by any rule. Of each instruction set it exists once, and is called, so that rows of floats have no part in
 * it. */
INLINED void apply_typed(const row_place *p, const row_update *update, const row_rule *rule, uint32_t from,
                         uint32_t floats) {
    switch (rule->kind) {
    case FRUGAL_SGD:
    case FRUGAL_ROWWISE_ADAGRAD: /* once its factor is known, as SGD */
        apply_halves_by(p, update, rule, from, floats, FRUGAL_SGD);
        break;
    case FRUGAL_ADAGRAD:
        apply_halves_by(p, update, rule, from, floats, FRUGAL_ADAGRAD);
        break;
    case FRUGAL_ADAM:
        apply_halves_by(p, update, rule, from, floats, FRUGAL_ADAM);
        break;
    case FRUGAL_ADAMW:
        apply_halves_by(p, update, rule, from, floats, FRUGAL_ADAMW);
        break;
    default:
        break; /* none, as for WITH_RULE */
    }
}

/* Applies the step to elements [from, from + floats) of a row. */
INLINED void apply_chunk(const row_place *p, const row_update *update, const row_rule *o, uint32_t from,
                         uint32_t floats) {
    const frugal_store *store = p->store;
    float buffer[CHUNK_FLOATS];
    const float *g = gradient_of(store, update, from, floats, o->scale, buffer);
    float *w = (float *)update->weights + from;
    float *s = o->kind == FRUGAL_ADAGRAD || frugal_is_adam(o->kind) ? update->state + from : w;
    float *v = frugal_is_adam(o->kind) ? s + store->dim : w;
    IN_PIECES(floats, i, n, apply_elements(o, w + i, s + i, v + i, g + i, n));
}

INLINED void apply_row(const row_place *p, const frugal_optimizer *optimizer, const row_update *update,
                       frugal_optimizer_kind kind, float decay) {
    uint32_t dim = p->store->dim;
    row_rule o = {kind,
                  kind == FRUGAL_ADAMW ? frugal_mul(update->hyper->lr, decay) : decay,
                  update->hyper->scale,
                  frugal_is_adam(kind) ? update->hyper->step_size : update->hyper->lr,
                  optimizer->eps,
                  1.0f - optimizer->beta1,
                  1.0f - optimizer->beta2,
                  0};
    if (p->store->rows_as != FRUGAL_FP32)
        o.noise = frugal_row_noise(update->hyper->noise, frugal_id_of(p->store, update->row));
    if (optimizer->clip_norm > 0)
        o.scale = frugal_clip(sum_of_squares(p, update, 0, 1.0f), o.scale, optimizer->clip_norm);
    if (kind == FRUGAL_ROWWISE_ADAGRAD)
        o.factor = frugal_rowwise_adagrad(update->state, sum_of_squares(p, update, decay, o.scale), (float)dim,
                                          o.factor, o.eps);
    if (p->store->rows_as != FRUGAL_FP32) {
        /* Copies, because what has its address given away is kept in memory, also for rows of floats. */
        const row_rule rule = o;
        const row_place place = *p;
        const row_update row = *update;
        for (uint32_t from = 0; from < dim; from += CHUNK_FLOATS)
            p->types->apply(&place, &row, &rule, from, LEAST(CHUNK_FLOATS, dim - from));
        return;
    }
    for (uint32_t from = 0; from < dim; from += CHUNK_FLOATS)
        apply_chunk(p, update, &o, from, LEAST(CHUNK_FLOATS, dim - from));
}

/* Calls the function with the optimizer's kind and decay as its last arguments. The kind is a constant, and so is the
 * decay if it is 0. So the loops over elements have no branches. */
#define WITH_RULE(optimizer, function, ...)                                                                            \
    switch ((optimizer)->kind) {                                                                                       \
    case FRUGAL_SGD:                                                                                                   \
        WITH_DECAY(optimizer, function, __VA_ARGS__, FRUGAL_SGD);                                                      \
        break;                                                                                                         \
    case FRUGAL_ADAGRAD:                                                                                               \
        WITH_DECAY(optimizer, function, __VA_ARGS__, FRUGAL_ADAGRAD);                                                  \
        break;                                                                                                         \
    case FRUGAL_ROWWISE_ADAGRAD:                                                                                       \
        WITH_DECAY(optimizer, function, __VA_ARGS__, FRUGAL_ROWWISE_ADAGRAD);                                          \
        break;                                                                                                         \
    case FRUGAL_ADAM:                                                                                                  \
        WITH_DECAY(optimizer, function, __VA_ARGS__, FRUGAL_ADAM);                                                     \
        break;                                                                                                         \
    case FRUGAL_ADAMW:                                                                                                 \
        WITH_DECAY(optimizer, function, __VA_ARGS__, FRUGAL_ADAMW);                                                    \
        break;                                                                                                         \
    default:                                                                                                           \
        break; /* none: -Wswitch-enum, in tests/compile/library, finds one that is missing here */                     \
    }
#define WITH_DECAY(optimizer, function, ...)                                                                           \
    if ((optimizer)->weight_decay != 0.0f)                                                                             \
        function(__VA_ARGS__, (optimizer)->weight_decay);                                                              \
    else                                                                                                               \
        function(__VA_ARGS__, 0.0f)

INLINED void apply_each(const row_place *p, const frugal_optimizer *optimizer, const row_update *update, uint32_t n,
                        frugal_optimizer_kind kind, float decay) {
    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD_UPDATES < n) prefetch_update(p->store, &update[i + AHEAD_UPDATES]);
        apply_row(p, optimizer, &update[i], kind, decay);
    }
}

INLINED void apply_group(const row_place *p, const frugal_optimizer *optimizer, const row_update *update, uint32_t n) {
    if (optimizer->frozen) return;
    WITH_RULE(optimizer, apply_each, p, optimizer, update, n);
}

#endif
