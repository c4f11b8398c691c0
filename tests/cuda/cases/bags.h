/* bags.h - bags of rows: pooled, and their gradients taken apart */
#ifndef CASES_BAGS_H
#define CASES_BAGS_H

#include "world.h"

/* As frugal.h says: rows in the order of positions, from the first one on. */
static void pool(const world *w, const batch *b, const frugal_bags *bags, float *pooled) {
    uint32_t dim = w->desc.dim;
    for (uint32_t bag = 0; bag < bags->n_bags; bag++)
        for (uint32_t e = 0; e < dim; e++) {
            float sum = 0;
            uint32_t begin = bags->offsets[bag], end = bags->offsets[bag + 1];
            for (uint32_t i = begin; i < end; i++) {
                float x = w->ref.weights[(uint64_t)b->rows[i] * dim + e];
                if (bags->weights)
                    sum = i == begin ? bags->weights[i] * x : fmaf(bags->weights[i], x, sum);
                else
                    sum = i == begin ? x : sum + x;
            }
            if (bags->pooling == FRUGAL_POOL_MEAN && end > begin) sum = sum / (float)(end - begin);
            pooled[bag * dim + e] = sum;
        }
}

/* The gradients of positions, of those of bags. */
static void unpool(const world *w, const frugal_bags *bags, const float *by_bag, float *grads) {
    uint32_t dim = w->desc.dim;
    for (uint32_t bag = 0; bag < bags->n_bags; bag++)
        for (uint32_t i = bags->offsets[bag]; i < bags->offsets[bag + 1]; i++)
            for (uint32_t e = 0; e < dim; e++) {
                float g = by_bag[bag * dim + e];
                if (bags->weights) g = bags->weights[i] * g;
                if (bags->pooling == FRUGAL_POOL_MEAN) g = g / (float)(bags->offsets[bag + 1] - bags->offsets[bag]);
                grads[i * dim + e] = g;
            }
}

/* Bags of a step on the host, and the same with arrays on the GPU. */
static frugal_bags make_bags(const world *w, uint64_t step, uint32_t n, uint32_t *offsets, float *weights) {
    frugal_bags bags = {.offsets = offsets, .pooling = step % 3 == 0 ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM};
    uint32_t at = 0;
    offsets[0] = 0;
    while (at < n || bags.n_bags == 0 || test_mix2(step, bags.n_bags) % 7 == 0) { /* empty ones, also at the end */
        uint64_t bits = test_mix3(step, bags.n_bags, w->salt);
        uint32_t size = bits % 3 == 0 ? 0 : (uint32_t)(bits / 3 % (bits % 5 ? 4 : 50));
        at = at + size < n ? at + size : n;
        offsets[++bags.n_bags] = at;
        if (bags.n_bags + 1 >= w->desc.max_keys) offsets[bags.n_bags] = at = n;
        if (bags.n_bags >= w->desc.max_keys) break;
    }
    for (uint32_t i = 0; i < n; i++) weights[i] = 0.25f + (float)(test_mix2(step, i) % 16) * 0.0625f;
    if (step % 3 == 1) bags.weights = weights;
    return bags;
}

static frugal_bags send_bags(world *w, uint32_t d, const frugal_bags *bags, uint32_t n) {
    frugal_bags sent = *bags;
    uint32_t *words = gpu_words(w->gpus[d]);
    gpu_put(w->gpus[d], words, bags->offsets, 4 * (bags->n_bags + 1));
    sent.offsets = words;
    words += 2 * w->desc.max_keys + 4;
    if (bags->weights) gpu_put(w->gpus[d], words, bags->weights, 4 * n), sent.weights = (const float *)(void *)words;
    return sent;
}

static void bag_step(world *w, int by_position) {
    uint32_t dim = w->desc.dim, most = w->desc.max_keys, *offsets = malloc(4 * (2 * most + 2));
    float *weights = malloc(4 * most), *pooled = malloc(4 * most * dim), *by_bag = malloc(4 * most * dim);
    size_t width = frugal_type_bytes(w->as), grads_width = frugal_type_bytes(w->grads_as);
    reference_batch brought[DEVICES];
    announce(w, w->step + 1 + w->desc.lookahead);
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        const batch *b = batch_of(w, d, w->step);
        gpu *g = w->gpus[d];
        frugal_bags bags = make_bags(w, w->step + d, b->n, offsets, weights), sent = send_bags(w, d, &bags, b->n);
        size_t n = (size_t)bags.n_bags * dim;
        const frugal_row_array to = {.rows = gpu_rows(g), .bags = &sent, .as = w->as};
        assert_works(frugal_lookup_into(w->f, d, w->step, &to));
        gpu_get(g, w->looked_up, gpu_rows(g), width * n);
        pool(w, b, &bags, pooled);
        for (uint32_t i = 0; i < n; i++) {
            float found = reference_load((int)w->as, w->looked_up, i);
            pooled[i] = reference_round((int)w->as, pooled[i], -1);
            if (memcmp(&pooled[i], &found, sizeof found))
                fail_msg("device %u, step %u: pooled rows differ at element %u", d, (unsigned)w->step, i);
            by_bag[i] = gradient_of(w, pooled[i], i);
        }
        unpool(w, &bags, by_bag, w->grads[d]);
        if (by_position) n = (size_t)b->n * dim;
        for (size_t i = 0; i < n; i++) { /* by position they are rounded once more, for the reference, too */
            if (by_position) w->grads[d][i] = reference_round((int)w->grads_as, w->grads[d][i], -1);
            reference_store((int)w->grads_as, w->looked_up, i, by_position ? w->grads[d][i] : by_bag[i]);
        }
        gpu_put(g, gpu_grads(g), w->looked_up, grads_width * n);
        frugal_gradients grads = {.grads = b->brings ? gpu_grads(g) : NULL,
                                  .lr = lr_of(w, w->step),
                                  .by_bag = !by_position,
                                  .as = w->grads_as};
        assert_works(frugal_update(w->f, d, w->step, &grads));
        brought[d] = (reference_batch){b->rows, b->n, b->brings ? w->grads[d] : NULL};
    }
    reference_step(&w->ref, w->step, lr_of(w, w->step), brought);
    w->in_place += count_in_place(w, w->step);
    w->judged = ++w->step;
    free(offsets), free(weights), free(pooled), free(by_bag);
}

static void test_bags(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        world w = with_arrays(world_of((uint32_t)(1 + i % 2)));
        w.desc.dim = i % 4 == 1 ? 5 : i % 4 == 2 ? 132 : 8, w.desc.max_keys = 70;
        w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 2);
        w.places[0].unaligned = (uint32_t)(i / 4);
        open_world(&w);
        run(&w, 2);
        judge(&w);
        for (int k = 0; k < 9; k++) bag_step(&w, k % 4 == 3);
        run(&w, 2);
        judge(&w);
        for (int k = 0; k < 3; k++) bag_step(&w, 0);
        finish(&w, 2);
    }
}

static void sometimes_equal(const world *w, uint32_t device, uint64_t step, batch *b) {
    (step % 2 ? all_equal : usual_batch)(w, device, step, b);
}

/* Rows with more and with fewer than 32 positions, in a cache that stays current: every optimizer's step on a copy,
 * of long rows, from bags. */
static void test_bags_of_one_device(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        world w = with_arrays(world_of(1));
        w.make = sometimes_equal, w.n_tables = i < 8 ? 0 : MOST_TABLES;
        w.desc.dim = i % 2 ? 132 : 101, w.desc.max_keys = 70;
        w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 2 % 4);
        w.places[0].cache_rows = 80;
        open_world(&w);
        for (int k = 0; k < (test_is_short() ? 6 : 12); k++) bag_step(&w, k % 4 == 3);
        finish(&w, 2);
    }
}

static void full_batches(const world *w, uint32_t device, uint64_t step, batch *b) {
    usual_batch(w, device, step, b);
    b->n = w->desc.max_keys, b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < b->n; i++) b->rows[i] = (uint32_t)(test_mix3(step, device, i) % w->table.rows);
}

/* Offsets that are none: said late, and nothing is read or written that is not there. */
static void test_bad_bags(void **state) {
    (void)state;
    static const uint32_t bad[][4] = {{1, 5, 9, 20},
                                      {0, 9, 5, 20},
                                      {0, 5, 9, 21},
                                      {0, 5, 9, 19},
                                      {0, 4000000000u, 9, 20},
                                      {0, 5, 4000000000u, 20},
                                      {20, 20, 20, 4294967295u},
                                      {4294967295u, 0, 0, 20}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int mean = 0; mean < 2; mean++) {
            world w = world_of(1);
            w.make = full_batches, w.desc.max_keys = 20;
            open_world(&w);
            float *rows = rows_at(&w, 0);
            frugal_bags bags = {.n_bags = 3, .offsets = bad[i], .pooling = mean ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM},
                        none = {.n_bags = 0, .offsets = bad[i], .pooling = FRUGAL_POOL_SUM};
            frugal_bags sent = send_bags(&w, 0, &bags, 20);
            frugal_gradients g = {.grads = gpu_grads(w.gpus[0]), .lr = 0.1f, .by_bag = 1};
            announce(&w, w.step + 1);
            assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_bags(w.f, 0, 0, NULL, rows), "lookup_bags", "no bags");
            assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup_bags(w.f, 0, 0, &none, rows), "no bags", "20 keys");
            assert_works(frugal_lookup_bags(w.f, 0, 0, &sent, rows));
            gpu_train(w.gpus[0], NULL, w.desc.dim);
            gpu_wait(w.gpus[0]);
            assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(w.f, 0, 0, &g), "bags of step 0", "offsets");
            assert_works(frugal_update(w.f, 0, 0, &g)); /* who insists: bits that mean nothing, and no more */
            assert_works(frugal_drain(w.f));
            assert_works(frugal_verify(w.f));
            close_world(&w);
        }
}

#endif /* CASES_BAGS_H */
