/* clip.h - gradients that are scaled and clipped, and the sum of their squares: the bits of the host */
#ifndef CASES_CLIP_H
#define CASES_CLIP_H

#include "world.h"

/* A GPU's sum of squares is what the host computes from the same gradients. */
static void check_squares(world *w, uint32_t d, const frugal_gradients *g) {
    const frugal_store *store = frugal_get_store(w->f);
    frugal_step step = {.stride = w->desc.dim, .as = w->grads_as};
    double found = -1;
    assert_works(frugal_sum_squares(w->f, d, w->step, g, &found));
    assert_works(frugal_get_records(w->f, d, w->step, &step.records));
    size_t floats = (size_t)step.records.n * w->desc.dim;
    void *grads = malloc(4 * floats + 4);
    if (w->gpus[d])
        gpu_get(w->gpus[d], grads, gpu_grads(w->gpus[d]), frugal_type_bytes(w->grads_as) * floats);
    else
        memcpy(grads, w->host_grads[d], frugal_type_bytes(w->grads_as) * floats);
    double expected = frugal_sum_row_squares(store, &step, NULL, grads);
    if (memcmp(&found, &expected, sizeof found))
        fail_msg("device %u, step %u: squares %.17g, not %.17g", d, (unsigned)w->step, found, expected);
    free(grads);
}

static void clip_step(world *w) {
    announce(w, w->step + 1 + w->desc.lookahead);
    for (uint32_t d = 0; d < w->desc.devices; d++) {
        lookup(w, d);
        train(w, d);
        frugal_gradients g = gradients_of(w, d);
        g.scale = w->ref.scale;
        if (g.grads) check_squares(w, d, &g);
        assert_works(frugal_update(w->f, d, w->step, &g));
    }
    w->step++;
}

/* Optimizers, wide and narrow rows, rows of many positions, tables with settings of their own and a frozen one, staged
 * and in place; most rows are clipped, or few. */
static void test_clip(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        world w = with_arrays(world_of(2));
        w.desc.optimizer = (frugal_optimizer){.kind = (frugal_optimizer_kind)(i % 4), .clip_norm = i & 4 ? 0.5f : 3};
        w.desc.optimizer.weight_decay = i & 8 ? 0.1f : 0;
        w.desc.reduce = i % 3 ? FRUGAL_SUM : FRUGAL_MEAN;
        w.desc.alone = i & 8 ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED;
        w.desc.dim = i & 1 ? 7 : 132, w.desc.max_keys = 80, w.n_tables = i & 16 ? MOST_TABLES : 0;
        w.make = i % 5 == 2 ? all_equal : NULL;
        if (i % 6 == 5) w.places[1] = (place){.ordinal = NOBODY, .cache_rows = 16};
        open_world(&w);
        w.ref.scale = i % 3 == 1 ? 0.25f : 0;
        for (int k = 0; k < 6; k++) {
            if (w.step - w.judged == w.kept) judge(&w);
            clip_step(&w);
        }
        judge(&w);
        w.ref.scale = 0;
        finish(&w, 3);
    }
}

#endif /* CASES_CLIP_H */
