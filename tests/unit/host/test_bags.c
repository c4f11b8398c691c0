/* test_bags.c - pooled lookups and gradients by bag have the bits that the reference computes from rows by position. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/rig.h"

enum { MOST_BAGS = RIG_MOST_KEYS + 8 };
enum { PLAIN, WEIGHTED, MEAN, ANY };             /* how bags are pooled */
enum { MIXED, ONE_BAG, EMPTY_BAGS, A_KEY_EACH }; /* how the batch is cut */

typedef struct bagger { /* a device's bags of a step, and what it makes of them */
    uint32_t offsets[MOST_BAGS + 1];
    float weights[RIG_MOST_KEYS];
    frugal_bags bags;
    float *pooled, *grads, *rows; /* [n_bags][dim], by bag; [n][dim] */
} bagger;

typedef struct world {
    rig r;
    bagger b[RIG_DEVICES];
    int pooling, cut;
    unsigned pooled_percent; /* of the steps of a device; the others are by position */
} world;

/* Cuts the batch of `device` at the rig's step into bags. */
static void cut(world *w, uint32_t device, uint32_t n) {
    bagger *b = &w->b[device];
    test_random random = {.seed = test_mix3(99, device, w->r.step)};
    int pooling = w->pooling == ANY ? (int)test_below(&random, 3) : w->pooling;
    uint32_t at = 0, bags = 0;
    b->offsets[0] = 0;
    while (at < n || bags == 0 || (w->cut == MIXED && bags < MOST_BAGS && test_chance(&random, 40))) {
        uint32_t size = w->cut == ONE_BAG ? n : w->cut == A_KEY_EACH ? 1 : (uint32_t)test_below(&random, 6);
        if (w->cut == EMPTY_BAGS && bags < 3) size = 0;
        if (size > n - at || bags + 1 == MOST_BAGS) size = n - at;
        b->offsets[++bags] = at += size;
    }
    for (uint32_t i = 0; i < n; i++) b->weights[i] = 3 * (float)test_unit(test_next(&random)) - 1;
    b->bags = (frugal_bags){.n_bags = bags,
                            .offsets = b->offsets,
                            .weights = pooling == WEIGHTED ? b->weights : NULL,
                            .pooling = pooling == MEAN ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM};
}

static reference_bags judged(const frugal_bags *b) {
    return (reference_bags){b->n_bags, b->offsets, b->weights, b->pooling == FRUGAL_POOL_MEAN};
}

/* Looks up by bag, compares, and makes gradients of what was looked up. */
static void lookup_bags(world *w, uint32_t d) {
    rig *r = &w->r;
    bagger *b = &w->b[d];
    rig_batch batch = rig_batch_of(r, d, r->step);
    uint32_t dim = r->desc.dim;
    float *expected = malloc(4 * (size_t)MOST_BAGS * dim);
    cut(w, d, batch.n);
    r->n[d] = batch.n, r->brings[d] = batch.brings;
    for (uint32_t i = 0; i < batch.n; i++) {
        r->rows[d][i] = (uint32_t)((i < batch.split ? 0 : r->desc.tables[0].rows) + batch.keys[i]);
        memcpy(b->rows + (size_t)i * dim, r->ref.weights + (size_t)r->rows[d][i] * dim, 4 * (size_t)dim);
    }
    reference_bags bags = judged(&b->bags);
    reference_pool(&bags, b->rows, dim, expected);
    memset(b->pooled, 0xff, 4 * (size_t)MOST_BAGS * dim);
    if (frugal_lookup_bags(r->f, d, r->step, &b->bags, b->pooled) != FRUGAL_OK)
        fail_msg("lookup_bags(device %u, step %u): %s", d, (unsigned)r->step, frugal_message());
    if (memcmp(b->pooled, expected, 4 * (size_t)bags.n_bags * dim))
        fail_msg("lookup_bags(device %u, step %u): not the reference's", d, (unsigned)r->step);
    for (uint32_t i = 0; i < bags.n_bags * dim; i++)
        b->grads[i] = 0.01f * b->pooled[i] + (float)test_unit(test_mix3(r->step + 1000, d, i)) - 0.5f;
    reference_spread(&bags, b->grads, dim, r->grads[d]);
    free(expected);
}

static void update_bags(world *w, uint32_t d) {
    frugal_gradients g = {.grads = w->b[d].grads, .lr = w->r.lr, .by_bag = 1};
    if (!w->r.brings[d]) g.grads = NULL, g.by_bag = 0;
    if (frugal_update(w->r.f, d, w->r.step, &g) != FRUGAL_OK) fail_msg("update(device %u): %s", d, frugal_message());
}

static int pools(const world *w, uint32_t d) {
    return test_mix3(5, d, w->r.step) % 100 < w->pooled_percent;
}

static void train(world *w, int steps) {
    rig *r = &w->r;
    while (steps-- > 0) {
        for (uint64_t step = r->step; step <= r->step + r->desc.lookahead; step++)
            for (uint32_t d = 0; d < r->desc.devices; d++)
                if (r->announced[d] == step) rig_announce(r, d);
        for (uint32_t d = 0; d < r->desc.devices; d++)
            if (pools(w, d))
                lookup_bags(w, d);
            else
                rig_lookup(r, d);
        for (uint32_t d = 0; d < r->desc.devices; d++)
            if (pools(w, d))
                update_bags(w, d);
            else
                rig_update(r, d);
        rig_judge(r, 0);
    }
}

static void start(world *w, const frugal_desc *desc) {
    rig_open(&w->r, desc);
    if (w->pooled_percent == 0) w->pooled_percent = 70;
    for (uint32_t d = 0; d < w->r.desc.devices; d++) {
        size_t floats = (size_t)MOST_BAGS * w->r.desc.dim;
        w->b[d].pooled = malloc(4 * floats), w->b[d].grads = malloc(4 * floats), w->b[d].rows = malloc(4 * floats);
    }
}

static void finish(world *w) {
    for (uint32_t d = 0; d < w->r.desc.devices; d++) free(w->b[d].pooled), free(w->b[d].grads), free(w->b[d].rows);
    rig_finish(&w->r, 0);
}

static void train_all(world *w, const frugal_desc *desc, int steps) {
    start(w, desc);
    train(w, steps);
    finish(w);
}

static void test_optimizers(void **state) {
    (void)state;
    for (int pooling = PLAIN; pooling <= MEAN; pooling++)
        for (int kind = FRUGAL_SGD; kind < FRUGAL_OPTIMIZER_KINDS; kind++)
            for (int cached = 0; cached < 2; cached++) {
                world w = {.pooling = pooling, .r.cache.cache_rows = cached ? 24 : 0};
                frugal_desc desc = rig_desc();
                desc.optimizer = (frugal_optimizer){.kind = (frugal_optimizer_kind)kind};
                desc.workers = (uint32_t)(kind + cached) % 3;
                train_all(&w, &desc, 12);
            }
}

static void many_of_a_row(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    b->n = RIG_MOST_KEYS - (uint32_t)step % 2, b->split = b->n / 3;
    for (uint32_t i = 0; i < b->n; i++)
        b->keys[i] = test_mix3(step, device, i) % 4 ? 7 : test_mix3(step, device, i) % 20;
}

/* More than a block of 32 positions of a row, in one bag and in many. */
static void test_duplicates(void **state) {
    (void)state;
    for (int how = MIXED; how <= A_KEY_EACH; how++)
        for (int pooling = PLAIN; pooling <= MEAN; pooling++) {
            world w = {.pooling = pooling, .cut = how, .r.change = many_of_a_row, .r.cache.cache_rows = 16};
            frugal_desc desc = rig_desc();
            desc.max_keys = RIG_MOST_KEYS;
            train_all(&w, &desc, 6);
        }
}

static void test_dims(void **state) {
    static const uint32_t dims[] = {1, 3, 8, 12, 16, 31, 33, 64, 100, 512, 513, 1100};
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        world w = {.pooling = ANY, .r.cache.cache_rows = 8 * (i % 2)};
        frugal_desc desc = rig_desc();
        desc.dim = dims[i];
        train_all(&w, &desc, 5);
    }
}

static void sometimes_nothing(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    if (test_mix3(1, device, step) % 3 == 0) b->n = b->split = 0;
    if (test_mix3(2, device, step) % 3 == 0) b->brings = 0;
}

static void test_empty_batches(void **state) {
    (void)state;
    world w = {.pooling = ANY, .r.change = sometimes_nothing, .pooled_percent = 100};
    frugal_desc desc = rig_desc();
    train_all(&w, &desc, 20);
}

/* A step's last lookup says what its gradients are by. */
static void test_repeated(void **state) {
    (void)state;
    world w = {.pooling = ANY, .r.cache.cache_rows = 32};
    frugal_desc desc = rig_desc();
    start(&w, &desc);
    rig *r = &w.r;
    for (int i = 0; i < 12; i++) {
        for (uint32_t d = 0; d < 2; d++) rig_announce(r, d);
        for (uint32_t d = 0; d < 2; d++) {
            rig_lookup(r, d);
            assert_int_equal(FRUGAL_OK, frugal_lookup(r->f, d, r->step, NULL));
            w.pooling = (i + 1) % 3;
            lookup_bags(&w, d);
            w.pooling = i % 3;
            lookup_bags(&w, d);
            if (i % 2) rig_lookup(r, d);
            frugal_gradients g = {.grads = w.b[d].grads, .lr = r->lr, .by_bag = 1};
            if (i % 2) assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_update(r->f, d, r->step, &g));
        }
        for (uint32_t d = 0; d < 2; d++)
            if (i % 2)
                rig_update(r, d);
            else
                update_bags(&w, d);
        rig_judge(r, 0);
    }
    frugal_stats stats;
    frugal_get_stats(r->f, &stats);
    assert_int_equal(12 * 2 * RIG_KEYS, stats.keys);
    assert_int_equal(stats.unique_rows, stats.hits + stats.misses);
    finish(&w);
}

static void wrong(world *w, const frugal_bags *bags, float *pooled, const char *text) {
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_lookup_bags(w->r.f, 0, w->r.step, bags, pooled));
    if (!strstr(frugal_message(), text)) fail_msg("'%s' is not in '%s'", text, frugal_message());
}

static void test_errors(void **state) {
    (void)state;
    world w = {.pooling = PLAIN, .pooled_percent = 100};
    frugal_desc desc = rig_desc();
    start(&w, &desc);
    train(&w, 2);
    for (uint32_t d = 0; d < 2; d++)
        if (w.r.announced[d] == w.r.step) rig_announce(&w.r, d);
    float pooled[8 * 5], ones[RIG_KEYS] = {0};
    uint32_t offsets[] = {0, 5, 5, RIG_KEYS};
    frugal_bags good = {.n_bags = 3, .offsets = offsets, .pooling = FRUGAL_POOL_SUM}, bad = good;
    wrong(&w, NULL, pooled, "no bags");
    wrong(&w, &good, NULL, "no array");
    bad.offsets = NULL;
    wrong(&w, &bad, pooled, "no offsets");
    bad = good, bad.pooling = (frugal_pooling)2;
    wrong(&w, &bad, pooled, "pooling 2");
    bad = good, bad.pooling = FRUGAL_POOL_MEAN, bad.weights = ones;
    wrong(&w, &bad, pooled, "with weights");
    lookup_bags(&w, 0); /* and none of these changes what it says */
    bad = good, offsets[0] = 1;
    wrong(&w, &bad, pooled, "offsets[0] of 4 is 1");
    offsets[0] = 0, offsets[2] = 4;
    wrong(&w, &bad, pooled, "offsets[2] of 4 is 4 after 5");
    offsets[2] = RIG_KEYS + 1;
    wrong(&w, &bad, pooled, "offsets[2] of 4 is 25");
    offsets[2] = 5, offsets[3] = RIG_KEYS - 1;
    wrong(&w, &bad, pooled, "offsets[3] of 4 is 23");
    bad.n_bags = 0;
    wrong(&w, &bad, NULL, "offsets[0] of 1 is 0 after 0; they rise from 0 to the batch's 24 keys");
    assert_int_equal(FRUGAL_ERR_ORDER, frugal_lookup_bags(w.r.f, 0, w.r.step + 1, &good, pooled));
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_lookup_bags(w.r.f, 2, w.r.step, &good, pooled));
    frugal_gradients none = {.by_bag = 1, .records = 1, .lr = w.r.lr};
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_update(w.r.f, 0, w.r.step, &none));
    rig_lookup(&w.r, 1);
    update_bags(&w, 0);
    frugal_gradients by_bag = {.grads = w.b[1].grads, .lr = w.r.lr, .by_bag = 1};
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_update(w.r.f, 1, w.r.step, &by_bag)); /* looked up by position */
    rig_update(&w.r, 1);
    rig_judge(&w.r, 0);
    train(&w, 5);
    finish(&w);
}

/* The array that says which bag a position is in is made at the first pooled lookup, and may not be to be had. */
static void test_memory(void **state) {
    (void)state;
    world w = {.pooling = WEIGHTED, .pooled_percent = 100};
    frugal_desc desc = rig_desc();
    start(&w, &desc);
    for (uint32_t d = 0; d < 2; d++) rig_announce(&w.r, d);
    uint32_t offsets[] = {0, RIG_KEYS};
    frugal_bags bags = {.n_bags = 1, .offsets = offsets, .pooling = FRUGAL_POOL_SUM};
    float pooled[5] = {7, 7, 7, 7, 7};
    w.r.counter.fail_at = w.r.counter.calls + 1;
    assert_int_equal(FRUGAL_ERR_MEMORY, frugal_lookup_bags(w.r.f, 0, 0, &bags, pooled));
    assert_true(pooled[0] == 7);
    assert_int_equal(FRUGAL_ERR_ORDER, frugal_update(w.r.f, 0, 0, NULL)); /* nothing was looked up */
    train(&w, 4);
    finish(&w);
}

/* The bits are the same whatever the caller's thread does with its own floats. */
static void test_environment(void **state) {
    (void)state;
    world w = {.pooling = ANY, .pooled_percent = 100};
    frugal_desc desc = rig_desc();
    start(&w, &desc);
    train(&w, 3);
    for (uint32_t d = 0; d < 2; d++)
        if (w.r.announced[d] == w.r.step) rig_announce(&w.r, d);
    for (int pooling = PLAIN; pooling <= MEAN; pooling++) {
        w.pooling = pooling;
        lookup_bags(&w, 0);
        bagger *b = &w.b[0];
        float again[MOST_BAGS * 5];
        fesetround(FE_UPWARD);
        frugal_status status = frugal_lookup_bags(w.r.f, 0, w.r.step, &b->bags, again);
        int kept = fegetround() == FE_UPWARD;
        fesetround(FE_TONEAREST);
        assert_int_equal(FRUGAL_OK, status);
        assert_true(kept);
        assert_memory_equal(b->pooled, again, 4 * (size_t)b->bags.n_bags * 5);
    }
    lookup_bags(&w, 1);
    update_bags(&w, 0), update_bags(&w, 1);
    rig_judge(&w.r, 0);
    finish(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers),    cmocka_unit_test(test_duplicates),  cmocka_unit_test(test_dims),
        cmocka_unit_test(test_empty_batches), cmocka_unit_test(test_repeated),    cmocka_unit_test(test_errors),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests_name("test_bags", tests, NULL, NULL);
}
