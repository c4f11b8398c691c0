/* The keys of a simulated workload, and how many of them differ. */
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
           k->seed == w->seed && k->steps == steps_of(w);
}

static uint32_t count_unique(sim_keys *k, uint64_t step, uint32_t gpu) {
    const uint64_t *keys = sim_keys_of(k, step, gpu);
    uint32_t mark = (uint32_t)(step * k->gpus + gpu + 1), unique = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        unique += k->seen[keys[i]] != mark;
        k->seen[keys[i]] = mark;
    }
    return unique;
}

void sim_keys_draw(sim_keys *k, const sim_workload *w) {
    if (is_drawn(k, w)) return;
    sim_keys_free(k);
    *k = (sim_keys){
        .rows = w->rows, .gpus = w->gpus, .n = w->keys, .zipf = w->zipf, .seed = w->seed, .steps = steps_of(w)};
    uint64_t batches = k->steps * k->gpus;
    k->keys = malloc(batches * k->n * sizeof *k->keys);
    k->unique = malloc(batches * sizeof *k->unique);
    k->seen = calloc(k->rows, sizeof *k->seen);
    if (!k->keys || !k->unique || !k->seen)
        bench_fail("%.1f GB for the keys of %u steps are not available; fewer --steps, --keys, --gpus, --rows",
                   (double)(batches * k->n * 8 + k->rows * 4) * 1e-9, (unsigned)k->steps);
    for (uint64_t b = 0; b < batches; b++) {
        uint64_t state = k->seed + b;
        bench_draw_keys(k->keys + b * k->n, k->n, k->rows, k->zipf, bench_random(&state));
        k->unique[b] = count_unique(k, b / k->gpus, (uint32_t)(b % k->gpus));
    }
}

void sim_keys_free(sim_keys *k) {
    free(k->keys), free(k->unique), free(k->seen);
    memset(k, 0, sizeof *k);
}
