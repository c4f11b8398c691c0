/* flags_trial.c - prints whether the row functions compute the reference's bits, and whether frugal_open accepts them.
 *
 * It is compiled as it should be, and linked with a frugal_flush.o that may have been compiled otherwise. It prints
 * "bits same|differ, open accepts|refuses". Exits 1 where open refuses with another status than ERR_ARITHMETIC, where
 * it does not answer the same for all optimizers, or where what it accepts trains another table than the reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail_trial(const char *text) {
    fprintf(stderr, "flags_trial: %s\n", text);
    exit(1);
}
#define assert_int_equal(wanted, got)                                                                                  \
    do {                                                                                                               \
        if ((wanted) != (got)) fail_trial(#got);                                                                       \
    } while (0)
#define assert_true(what)                                                                                              \
    do {                                                                                                               \
        if (!(what)) fail_trial(#what);                                                                                \
    } while (0)
#define fail_msg(...) (fprintf(stderr, __VA_ARGS__), fail_trial(""))
#include "../rig.h"

enum { POSITIONS = 100, MOST_DIM = 600, BAGS = 9 };

static float number(uint64_t a, uint64_t b) {
    uint64_t bits = test_mix2(a, b);
    if (bits % 16 == 0) return (float[]){0.0f, -0.0f, 0x1p-130f, -0x1p-127f}[bits / 16 % 4];
    return ldexpf((float)test_unit(bits) - 0.5f, (int)(bits % 9) - 4);
}

static void fill_numbers(float *to, uint64_t seed, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) to[i] = number(seed, i);
}

/* One optimizer step on a row through frugal_apply; 1 if it has the reference's bits. */
static int row_is_same(frugal_optimizer_kind kind, uint32_t dim, float decay) {
    static float w[MOST_DIM], s[2 * MOST_DIM], g[MOST_DIM];
    uint32_t row = 0, state_floats = frugal_state_floats(kind, dim);
    frugal_table_group group = {0, {.kind = kind, .eps = 1e-4f, .beta1 = 0.8f, .beta2 = 0.97f, .weight_decay = decay}};
    reference ref = {.rows = 1,
                     .dim = dim,
                     .devices = 1,
                     .optimizer = (int)kind,
                     .eps = 1e-4f,
                     .beta1 = 0.8f,
                     .beta2 = 0.97f,
                     .weight_decay = decay};
    assert_true(reference_open(&ref, 0));
    fill_numbers(w, dim, dim);
    fill_numbers(g, dim + 1000, dim);
    for (uint32_t i = 0; i < 2 * MOST_DIM; i++)
        s[i] = kind >= FRUGAL_ADAM && i < dim ? number(dim + 2000, i) : fabsf(number(dim + 2000, i));
    memcpy(ref.weights, w, 4 * dim);
    memcpy(ref.state, s, 4 * state_floats);
    reference_step(&ref, 3, 0.3f, &(reference_batch){&row, 1, g});
    frugal_hyper hyper = {ref.ranges[0].lr, ref.ranges[0].step_size, 1, 0};
    frugal_store store = {.rows = 1, .dim = dim, .state_floats = state_floats, .devices = 1, .kind = kind};
    store.n_groups = 1, store.groups = &group;
    frugal_apply(&store, &hyper, 0, w, s, g);
    int same = !memcmp(w, ref.weights, 4 * dim) && !memcmp(s, ref.state, 4 * state_floats);
    reference_close(&ref);
    return same;
}

/* A step on a row of 16 bits, and conversions of all weights and of floats between them; 1 if the bits are the
 * reference's. */
static int typed_row_is_same(int as, int nearest, uint32_t dim) {
    static float grads[MOST_DIM], wide[MOST_DIM];
    static uint16_t weights[MOST_DIM];
    uint32_t row = 0;
    int same = 1;
    frugal_table_group group = {0, {.kind = FRUGAL_SGD}};
    reference ref = {.rows = 1, .dim = dim, .devices = 1, .optimizer = REFERENCE_SGD, .rows_as = as};
    frugal_store store = {.rows = 1, .dim = dim, .devices = 1, .rows_as = (frugal_type)as};
    ref.nearest = nearest, ref.seed = 3, store.rounding = nearest ? FRUGAL_NEAREST : FRUGAL_STOCHASTIC;
    store.n_groups = 1, store.groups = &group;
    assert_true(reference_open(&ref, 0));
    fill_numbers(ref.weights, dim, dim), fill_numbers(grads, dim + 1000, dim);
    for (uint32_t i = 0; i < dim; i++)
        ref.weights[i] = ldexpf(ref.weights[i], -(int)(i % 20)); /* subnormal ones, too */
    frugal_convert(weights, store.rows_as, ref.weights, FRUGAL_FP32, dim);
    for (uint32_t i = 0; i < dim; i++) {
        ref.weights[i] = reference_round(as, ref.weights[i], -1);
        grads[i] *= 4 * ref.weights[i];
        float found = reference_load(as, weights, i);
        same &= !memcmp(&found, &ref.weights[i], 4);
    }
    frugal_convert(wide, FRUGAL_FP32, weights, store.rows_as, dim);
    same &= !memcmp(wide, ref.weights, 4 * dim);
    reference_step(&ref, 5, 0.3f, &(reference_batch){&row, 1, grads});
    const frugal_hyper hyper = {0.3f, 0.3f, 1, frugal_step_noise(3, 5)};
    frugal_apply(&store, &hyper, 0, weights, NULL, grads);
    for (uint32_t i = 0; i < dim; i++) {
        float found = reference_load(as, weights, i);
        same &= !memcmp(&found, &ref.weights[i], 4);
    }
    reference_close(&ref);
    return same;
}

/* Sums of equal keys, pooled rows, and gradients of bags; 1 if they have the reference's bits. */
static int batch_is_same(uint32_t dim, int way) {
    static float rows[POSITIONS * MOST_DIM], grads[POSITIONS * MOST_DIM], spread[POSITIONS * MOST_DIM],
        weights[POSITIONS], block[2 * MOST_DIM], pooled[BAGS * MOST_DIM], known[BAGS * MOST_DIM];
    static const uint32_t offsets[BAGS + 1] = {0, 0, 1, 3, 7, 12, 13, 50, 51, POSITIONS};
    uint32_t record_of[POSITIONS], order[POSITIONS], start[3] = {0, 0, POSITIONS}, bag_of[POSITIONS], n = 0;
    frugal_bags bags = {.n_bags = BAGS,
                        .offsets = offsets,
                        .weights = way == 1 ? weights : NULL,
                        .pooling = way == 2 ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM};
    reference_bags ref_bags = {BAGS, offsets, bags.weights, way == 2};
    int same = 1;
    for (uint32_t u = 0; u < 2; u++) {
        for (uint32_t p = 0; p < POSITIONS; p++)
            if ((p % 3 == 0) == (u == 0)) record_of[p] = u, order[n++] = p;
        start[u + 1] = n;
    }
    for (uint32_t b = 0; b < BAGS; b++)
        for (uint32_t p = offsets[b]; p < offsets[b + 1]; p++) bag_of[p] = b;
    fill_numbers(weights, 5, POSITIONS), fill_numbers(block, dim, 2 * dim),
        fill_numbers(grads, dim + 7, POSITIONS * dim);
    frugal_records records = {block, dim, POSITIONS, 2, record_of, order, start, NULL};
    for (uint32_t p = 0; p < POSITIONS; p++) memcpy(rows + p * dim, block + record_of[p] * dim, 4 * dim);
    frugal_pool(&records, &bags, dim, pooled, dim, FRUGAL_FP32);
    reference_pool(&ref_bags, rows, dim, known);
    same &= !memcmp(pooled, known, 4 * BAGS * dim);
    frugal_sum_bags(&records, &bags, bag_of, grads, dim, dim);
    reference_spread(&ref_bags, grads, dim, spread);
    for (int by_bag = 1; by_bag >= 0; by_bag--) {
        reference ref = {.rows = 2, .dim = dim, .devices = 1, .optimizer = REFERENCE_SGD};
        assert_true(reference_open(&ref, 0));
        reference_step(&ref, 0, 1.0f, &(reference_batch){record_of, POSITIONS, by_bag ? spread : grads});
        same &= !memcmp(block, ref.sum, 4 * 2 * dim);
        reference_close(&ref);
        frugal_sum_gradients(&records, grads, dim, dim); /* for the second round */
    }
    return same;
}

/* -1: refused; 0: trains another table; 1: the reference's. */
static int try_open(frugal_optimizer_kind kind, frugal_type rows_as) {
    frugal_desc d = rig_desc();
    frugal *f;
    d.rows_as = rows_as;
    d.dim = 41, d.devices = 3, d.reduce = FRUGAL_MEAN,
    d.optimizer = (frugal_optimizer){.kind = kind, .weight_decay = 0.1f};
    frugal_status status = frugal_open(&d, &f);
    frugal_close(f);
    if (status == FRUGAL_ERR_ARITHMETIC) return -1;
    assert_int_equal(FRUGAL_OK, status);
    rig r = {.cache = {.cache_rows = 30}};
    rig_open(&r, &d);
    rig_finish(&r, 6);
    return 1;
}

int main(void) {
    int same = 1, opened[FRUGAL_OPTIMIZER_KINDS];
    for (uint32_t dim = 1; dim <= MOST_DIM; dim += dim < 70 ? 1 : 53) {
        for (int kind = FRUGAL_SGD; kind < FRUGAL_OPTIMIZER_KINDS; kind++)
            for (int decayed = 0; decayed < 2; decayed++)
                same &= row_is_same((frugal_optimizer_kind)kind, dim, decayed ? 0.07f : 0);
        for (int way = 0; way < 3; way++) same &= batch_is_same(dim, way);
        for (int way = 0; way < 4; way++)
            same &= typed_row_is_same(way % 2 ? REFERENCE_BF16 : REFERENCE_FP16, way / 2, dim);
    }
    for (int kind = FRUGAL_SGD; kind < FRUGAL_OPTIMIZER_KINDS; kind++) {
        opened[kind] = try_open((frugal_optimizer_kind)kind, (frugal_type)(kind % 3));
        if (opened[kind] != opened[0]) fail_trial("open answers by optimizer");
    }
    printf("bits %s, open %s\n", same ? "same" : "differ", opened[0] < 0 ? "refuses" : "accepts");
    return 0;
}
