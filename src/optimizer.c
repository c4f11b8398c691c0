/* optimizer.c - one optimizer step on a row: SGD, Adagrad, row-wise Adagrad, Adam.
 *
 * What happens to an element is said in the arithmetic that host and GPU share (frugal_adagrad and its like); here it
 * happens to rows, each with the gradients that the devices bring for it, summed in device order.
 */
#include "host.h"

uint32_t frugal_state_floats(frugal_optimizer_kind kind, uint32_t dim) {
    switch (kind) {
    case FRUGAL_ADAGRAD:
        return dim;
    case FRUGAL_ROWWISE_ADAGRAD:
        return 1;
    case FRUGAL_ADAM:
        return 2 * dim;
    case FRUGAL_SGD:
    default:
        return 0;
    }
}

typedef struct frugal_priv_apply { /* one row's update */
    float *weights, *state;
    const float *const *records; /* records[n]: what the devices bring, in device order */
    uint32_t n;
    const frugal_hyper *hyper;
} frugal_priv_apply;

/* A row, its state and its first record. */
FRUGAL_PRIV_ALWAYS void frugal_priv_prefetch_apply(const frugal_store *store, const frugal_priv_apply *a) {
    frugal_priv_prefetch_row(a->weights, store->dim, 1);
    if (a->state) frugal_priv_prefetch_row(a->state, store->state_floats, 1);
    frugal_priv_prefetch_row(a->records[0], FRUGAL_PRIV_MIN(store->dim, FRUGAL_PRIV_AHEAD_START), 0);
}

/* Elements [from, from + n) of the row's gradient: summed over devices, averaged if wished. Returns where they are. */
FRUGAL_PRIV_ALWAYS const float *frugal_priv_gradient(const frugal_store *store, const frugal_priv_apply *a,
                                                     uint32_t from, uint32_t n, float *restrict buffer) {
    if (a->n == 1 && store->reduce == FRUGAL_SUM) return a->records[0] + from;
    frugal_priv_copy_row(buffer, a->records[0] + from, n);
    FRUGAL_PRIV_VECTORS
    for (uint32_t r = 1; r < a->n; r++) frugal_priv_add_row(buffer, a->records[r] + from, n);
    if (store->reduce == FRUGAL_MEAN) frugal_priv_divide_row(buffer, (float)store->devices, n);
    return buffer;
}

/* lanes[n] += g * g. */
FRUGAL_PRIV_ALWAYS void frugal_priv_square(float *restrict lanes, const float *restrict g, const float *restrict w,
                                           float decay, uint32_t n) {
    FRUGAL_PRIV_VECTORS
    for (uint32_t l = 0; l < n; l++) {
        float x = frugal_decay(g[l], w[l], decay);
        lanes[l] = frugal_fma(x, x, lanes[l]);
    }
}

/* All 32 lanes, which stay in registers from one block to the next because this loop is unrolled after it has become
 * vectors. */
FRUGAL_PRIV_ALWAYS void frugal_priv_square_block(float *restrict lanes, const float *restrict g,
                                                 const float *restrict w, float decay) {
    for (uint32_t l = 0; l < 32; l++) {
        float x = frugal_decay(g[l], w[l], decay);
        lanes[l] = frugal_fma(x, x, lanes[l]);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_fold(float *restrict lanes, uint32_t half) {
    for (uint32_t l = 0; l < half; l++) lanes[l] = frugal_add(lanes[l], lanes[l + half]);
}

/* Sum of g * g over a row in 32 lanes, then a halving tree: an order that a warp can follow. */
FRUGAL_PRIV_ALWAYS float frugal_priv_squares(const frugal_store *store, const frugal_priv_apply *a, float decay) {
    float lanes[32] = {0}, buffer[FRUGAL_PRIV_STATE_CHUNK];
    for (uint32_t from = 0; from < store->dim; from += FRUGAL_PRIV_STATE_CHUNK) {
        uint32_t n = FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, store->dim - from), i = 0;
        const float *g = frugal_priv_gradient(store, a, from, n, buffer);
        const float *w = a->weights + from;
        for (; i + 32 <= n; i += 32) frugal_priv_square_block(lanes, g + i, w + i, decay);
        if (n & 16) frugal_priv_square(lanes, g + i, w + i, decay, 16), i += 16;
        if (n & 8) frugal_priv_square(lanes + i % 32, g + i, w + i, decay, 8), i += 8;
        if (n & 4) frugal_priv_square(lanes + i % 32, g + i, w + i, decay, 4), i += 4;
        FRUGAL_PRIV_VECTORS
        for (; i < n; i++) frugal_priv_square(lanes + i % 32, g + i, w + i, decay, 1);
    }
    frugal_priv_fold(lanes, 16);
    frugal_priv_fold(lanes, 8);
    frugal_priv_fold(lanes, 4);
    frugal_priv_fold(lanes, 2);
    return frugal_add(lanes[0], lanes[1]);
}

typedef struct frugal_priv_rule { /* what is the same for all elements of a row */
    frugal_optimizer_kind kind;
    float decay, factor, eps, rest1, rest2;
} frugal_priv_rule;

/* n elements of a row. */
FRUGAL_PRIV_ALWAYS void frugal_priv_apply_elements(const frugal_priv_rule *o, float *restrict w, float *restrict s,
                                                   float *restrict v, const float *restrict g, uint32_t n) {
    if (o->kind == FRUGAL_ADAGRAD) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            w[i] = frugal_adagrad(w[i], &s[i], frugal_decay(g[i], w[i], o->decay), o->factor, o->eps);
    } else if (o->kind == FRUGAL_ADAM) {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++)
            w[i] = frugal_adam(w[i], &s[i], &v[i], frugal_decay(g[i], w[i], o->decay), o->factor, o->rest1, o->rest2,
                               o->eps);
    } else {
        FRUGAL_PRIV_VECTORS
        for (uint32_t i = 0; i < n; i++) w[i] = frugal_sgd(w[i], frugal_decay(g[i], w[i], o->decay), o->factor);
    }
}

/* Elements [from, from + n) of a row. */
FRUGAL_PRIV_ALWAYS void frugal_priv_apply_chunk(const frugal_store *store, const frugal_priv_apply *a,
                                                const frugal_priv_rule *o, uint32_t from, uint32_t n) {
    float buffer[FRUGAL_PRIV_STATE_CHUNK];
    const float *g = frugal_priv_gradient(store, a, from, n, buffer);
    float *w = a->weights + from;
    float *s = o->kind == FRUGAL_ADAGRAD || o->kind == FRUGAL_ADAM ? a->state + from : w;
    float *v = o->kind == FRUGAL_ADAM ? s + store->dim : w;
    uint32_t i = n & ~15u;
    frugal_priv_apply_elements(o, w, s, v, g, i);
    if (n & 8) frugal_priv_apply_elements(o, w + i, s + i, v + i, g + i, 8), i += 8;
    if (n & 4) frugal_priv_apply_elements(o, w + i, s + i, v + i, g + i, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_apply_elements(o, w + i, s + i, v + i, g + i, 1);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_apply_row(const frugal_store *store, const frugal_optimizer *optimizer,
                                              const frugal_priv_apply *a, frugal_optimizer_kind kind, float decay) {
    frugal_priv_rule o = {kind,
                          decay,
                          kind == FRUGAL_ADAM ? a->hyper->step_size : a->hyper->lr,
                          optimizer->eps,
                          1.0f - optimizer->beta1,
                          1.0f - optimizer->beta2};
    if (kind == FRUGAL_ROWWISE_ADAGRAD)
        o.factor =
            frugal_rowwise_adagrad(a->state, frugal_priv_squares(store, a, decay), (float)store->dim, o.factor, o.eps);
    for (uint32_t from = 0; from < store->dim; from += FRUGAL_PRIV_STATE_CHUNK)
        frugal_priv_apply_chunk(store, a, &o, from, FRUGAL_PRIV_MIN(FRUGAL_PRIV_STATE_CHUNK, store->dim - from));
}

/* `kind` is a constant where this is inlined, and so is the decay where there is none: loops over elements ask nothing. */
FRUGAL_PRIV_ALWAYS void frugal_priv_apply_each(const frugal_store *store, const frugal_optimizer *optimizer,
                                               const frugal_priv_apply *a, uint32_t n, frugal_optimizer_kind kind,
                                               float decay) {
    for (uint32_t i = 0; i < n; i++) {
        if (i + FRUGAL_PRIV_AHEAD_APPLY < n) frugal_priv_prefetch_apply(store, &a[i + FRUGAL_PRIV_AHEAD_APPLY]);
        frugal_priv_apply_row(store, optimizer, &a[i], kind, decay);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_apply_decayed(const frugal_store *store, const frugal_optimizer *optimizer,
                                                  const frugal_priv_apply *a, uint32_t n, frugal_optimizer_kind kind) {
    float decay = optimizer->weight_decay;
    if (decay != 0.0f)
        frugal_priv_apply_each(store, optimizer, a, n, kind, decay);
    else
        frugal_priv_apply_each(store, optimizer, a, n, kind, 0.0f);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_apply_all(const frugal_store *store, const frugal_optimizer *optimizer,
                                              const frugal_priv_apply *a, uint32_t n) {
    switch (optimizer->kind) {
    case FRUGAL_SGD:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_SGD);
        break;
    case FRUGAL_ADAGRAD:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_ADAGRAD);
        break;
    case FRUGAL_ROWWISE_ADAGRAD:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_ROWWISE_ADAGRAD);
        break;
    case FRUGAL_ADAM:
    default:
        frugal_priv_apply_decayed(store, optimizer, a, n, FRUGAL_ADAM);
        break;
    }
}
