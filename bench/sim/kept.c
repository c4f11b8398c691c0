/* What GPUs do with the rows that they touch alone, where they keep updates: counted before the clock runs.
 *
 * The clock tells how long an update takes before the library has done it, and which pieces of the library's work are
 * recalls. So both are counted ahead: the updates by running the library on the same keys, the recalls from the keys.
 * Neither depends on time, and frugal.c checks that it finds the same.
 */
#include "bench/program.h"
#include "bench/sim/sim.h"

#include <stdlib.h>

enum { EVERYONE = 255, NOBODY = 254 }; /* holders that are no GPU */

static uint32_t *new_counts(const sim_keys *k) {
    uint32_t *counts = calloc(k->steps * k->gpus, sizeof *counts);
    if (!counts) bench_fail("no memory for the counts of %llu steps", (unsigned long long)k->steps);
    return counts;
}

typedef struct holding { /* of a row: who holds it before the step that touched it last, and after it */
    uint32_t touched;    /* 1 + that step */
    uint8_t before, after, taken;
} holding;

/* The holder rule of frugal_p2f.h, section 7: what the batch of `gpu` takes from others, which is recalled from them. A
 * key that is repeated in the batch changes nothing. */
static void recall(const sim_keys *k, uint64_t step, uint32_t gpu, holding *rows, uint32_t *recalls) {
    const uint64_t *keys = sim_keys_of(k, step, gpu);
    for (uint32_t i = 0; i < k->n; i++) {
        holding *row = &rows[keys[i]];
        if (row->touched != step + 1)
            *row = (holding){(uint32_t)step + 1, row->after, (uint8_t)gpu, 0};
        else if (row->after != gpu)
            row->after = NOBODY;
        if (row->taken || row->before >= k->gpus || row->before == gpu) continue;
        row->taken = 1;
        recalls[row->before]++;
    }
}

static void count_recalls(sim_kept *kept, const sim_keys *k) {
    holding *rows = malloc(k->rows * sizeof *rows);
    if (!rows) bench_fail("no memory for the holders of %llu rows", (unsigned long long)k->rows);
    for (uint64_t row = 0; row < k->rows; row++) rows[row] = (holding){.after = EVERYONE};
    for (uint64_t s = 0; s < k->steps; s++)
        for (uint32_t gpu = 0; gpu < k->gpus; gpu++) recall(k, s, gpu, rows, kept->recalls + s * k->gpus);
    free(rows);
}

static void announce(frugal *f, const sim_workload *w, const sim_keys *k, uint64_t step) {
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        frugal_keys segment = {.table = 0, .keys = sim_keys_of(k, step, gpu), .n = w->keys};
        sim_check(frugal_announce(f, gpu, step, &(frugal_batch){.segments = &segment, .n_segments = 1}));
    }
}

static void run_step(frugal *f, const sim_workload *w, const sim_keys *k, uint64_t step, uint32_t *in_place) {
    const frugal_gradients records = {.records = 1, .lr = 0.01f};
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) sim_check(frugal_lookup(f, gpu, step, NULL));
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) sim_check(frugal_update(f, gpu, step, &records));
    for (uint32_t gpu = 0; gpu < w->gpus; gpu++) {
        uint64_t updates_kept = sim_unique_of(k, step, gpu) - sim_count(f, w, gpu).rows[1];
        in_place[gpu] = (uint32_t)(sim_alone_of(k, step, gpu) - updates_kept);
    }
}

void sim_count_kept(sim_kept *kept, const sim_workload *w, const sim_keys *k) {
    *kept = (sim_kept){.in_place = new_counts(k), .recalls = new_counts(k), .gpus = k->gpus};
    count_recalls(kept, k);
    frugal *f = sim_open(w, FRUGAL_P2F, FRUGAL_ALONE_KEPT, w->keys, 1);
    sim_attach(f, w, sim_cached_rows(w), 1);
    uint64_t end = (uint64_t)w->warm_up + w->steps, announced = 0;
    for (uint64_t s = 0; s < end && !bench_interrupted(); s++) {
        for (; announced < end && announced <= s + w->lookahead; announced++) announce(f, w, k, announced);
        run_step(f, w, k, s, kept->in_place + s * w->gpus);
    }
    frugal_close(f);
}

void sim_free_kept(sim_kept *kept) {
    free(kept->in_place), free(kept->recalls);
    *kept = (sim_kept){.gpus = 0};
}
