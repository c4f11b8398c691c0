/* The keys of a simulated workload; how many of them differ, and how many rows only one GPU touches in a step. */
#include "bench/keys.h"
#include "bench/program.h"
#include "bench/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* Announcements go on while the last steps are counted. */
static uint64_t steps_of(const sim_workload *w) {
    return (uint64_t)w->warm_up + w->steps + 16;
}

static int is_drawn(const sim_keys *k, const sim_workload *w) {
    return k->keys && k->rows == w->rows && k->gpus == w->gpus && k->n == w->keys && k->zipf == w->zipf &&
           k->seed == w->seed && k->steps == steps_of(w) && k->dealing == w->dealing &&
           k->trace == (w->deal ? w->deal->trace : NULL);
}

/* Counts the rows of a batch, whose number is step * gpus + gpu. A row's mark is twice the number, plus 1, of the batch
 * that touched it last; and 1 more if several batches of that step did. */
static void count_rows(sim_keys *k, uint64_t batch) {
    const uint64_t *keys = k->keys + batch * k->n, first = batch / k->gpus * k->gpus; /* of the step */
    uint32_t mark = (uint32_t)(batch + 1) * 2;
    k->unique[batch] = k->alone[batch] = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        uint32_t before = k->seen[keys[i]];
        if (before / 2 == mark / 2) continue;
        int shared = before / 2 > first;
        k->unique[batch]++;
        k->seen[keys[i]] = mark | (uint32_t)shared;
        if (!shared) k->alone[batch]++;
        if (shared && !(before & 1)) k->alone[before / 2 - 1]--;
    }
}

void sim_keys_draw(sim_keys *k, const sim_workload *w) {
    if (is_drawn(k, w)) return;
    sim_keys_free(k);
    *k = (sim_keys){.rows = w->rows,
                    .gpus = w->gpus,
                    .n = w->keys,
                    .zipf = w->zipf,
                    .seed = w->seed,
                    .steps = steps_of(w),
                    .dealing = w->dealing,
                    .trace = w->deal ? w->deal->trace : NULL};
    uint64_t batches = k->steps * k->gpus;
    k->keys = malloc(batches * k->n * sizeof *k->keys);
    k->unique = malloc(batches * sizeof *k->unique);
    k->alone = malloc(batches * sizeof *k->alone);
    k->seen = calloc(k->rows, sizeof *k->seen);
    if (!k->keys || !k->unique || !k->alone || !k->seen)
        bench_fail("%.1f GB for the keys of %u steps are not available; fewer --steps, --keys, --gpus, --rows",
                   (double)(batches * k->n * 8 + k->rows * 4) * 1e-9, (unsigned)k->steps);
    for (uint64_t b = 0; b < batches; b++) {
        uint64_t state = k->seed + b;
        uint64_t *keys = k->keys + b * k->n;
        if (w->deal)
            place_batch(w->deal, (uint32_t)(b % k->gpus), b / k->gpus, w->batch, keys);
        else
            bench_draw_keys(keys, k->n, k->rows, k->zipf, bench_random(&state));
        count_rows(k, b);
    }
}

void sim_keys_free(sim_keys *k) {
    free(k->keys), free(k->unique), free(k->alone), free(k->seen);
    memset(k, 0, sizeof *k);
}
