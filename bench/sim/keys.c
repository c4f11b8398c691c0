/* The keys of a simulated workload; how many of them differ, how many rows only one GPU touches in a step, and which
 * are those of other machines. */
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
    return k->keys && k->rows == w->rows && k->gpus == sim_devices(w) && k->n == w->keys && k->zipf == w->zipf &&
           k->seed == w->seed && k->steps == steps_of(w) && k->dealing == w->dealing &&
           k->trace == (w->deal ? w->deal->trace : NULL);
}

/* Counts the rows of a batch, whose number is step * gpus + gpu. A row's mark is twice the number, plus 1, of the batch
 * that touched it last; and 1 more if several batches of that step did. */
static void count_rows(sim_keys *k, uint64_t batch) {
    const uint64_t *keys = k->keys + k->first[batch], first = batch / k->gpus * k->gpus; /* of the step */
    uint32_t mark = (uint32_t)(batch + 1) * 2;
    k->unique[batch] = k->alone[batch] = 0;
    for (uint64_t i = 0; i < k->first[batch + 1] - k->first[batch]; i++) {
        uint32_t before = k->seen[keys[i]];
        if (before / 2 == mark / 2) continue;
        int shared = before / 2 > first;
        k->unique[batch]++;
        k->seen[keys[i]] = mark | (uint32_t)shared;
        if (!shared) k->alone[batch]++;
        if (shared && !(before & 1)) k->alone[before / 2 - 1]--;
    }
}

static void open_keys(sim_keys *k) {
    uint64_t batches = k->steps * k->gpus;
    k->keys = malloc(batches * k->n * sizeof *k->keys);
    k->first = calloc(batches + 1, sizeof *k->first);
    k->unique = malloc(batches * sizeof *k->unique);
    k->alone = malloc(batches * sizeof *k->alone);
    k->seen = calloc(k->rows, sizeof *k->seen);
    if (!k->keys || !k->first || !k->unique || !k->alone || !k->seen)
        bench_fail("%.1f GB for the keys of %u steps are not available; fewer --steps, --keys, --gpus, --rows",
                   (double)(batches * k->n * 8 + k->rows * 4) * 1e-9, (unsigned)k->steps);
}

void sim_keys_draw(sim_keys *k, const sim_workload *w) {
    if (is_drawn(k, w)) return;
    sim_keys_free(k);
    *k = (sim_keys){.rows = w->rows,
                    .gpus = sim_devices(w),
                    .n = w->keys,
                    .zipf = w->zipf,
                    .seed = w->seed,
                    .steps = steps_of(w),
                    .dealing = w->dealing,
                    .trace = w->deal ? w->deal->trace : NULL};
    open_keys(k);
    for (uint64_t b = 0; b < k->steps * k->gpus; b++) {
        uint64_t state = k->seed + b;
        uint64_t *keys = k->keys + k->first[b];
        k->first[b + 1] = k->first[b] + k->n;
        if (w->deal)
            place_batch(w->deal, (uint32_t)(b % k->gpus), b / k->gpus, w->batch, keys);
        else
            bench_draw_keys(keys, k->n, k->rows, k->zipf, bench_random(&state));
        count_rows(k, b);
    }
}

void sim_keys_at_home(sim_keys *home, const sim_keys *k, const sim_workload *w, uint32_t machine) {
    sim_keys_free(home);
    *home = (sim_keys){.rows = k->rows, .gpus = k->gpus, .n = k->n, .steps = k->steps};
    open_keys(home);
    for (uint64_t b = 0; b < k->steps * k->gpus; b++) {
        uint64_t n = home->first[b];
        for (uint64_t i = k->first[b]; i < k->first[b + 1]; i++)
            if (sim_home_of(w, k->keys[i]) == machine) home->keys[n++] = k->keys[i];
        home->first[b + 1] = n;
        count_rows(home, b);
    }
}

void sim_keys_free(sim_keys *k) {
    free(k->keys), free(k->first), free(k->unique), free(k->alone), free(k->seen);
    memset(k, 0, sizeof *k);
}

/* >>network */

/* The guests of a batch. seen[rows]: 1 + the batch that has met the row last; read[rows]: 1 + the step before this one
 * in which a device has read it last. */
static void count_guests(sim_network *net, const sim_keys *k, const sim_workload *w, uint64_t batch, uint32_t *seen,
                         const uint32_t *read) {
    uint64_t step = batch / k->gpus;
    uint32_t machine = (uint32_t)(batch % k->gpus) / w->gpus;
    for (uint64_t i = k->first[batch]; i < k->first[batch + 1]; i++) {
        uint64_t row = k->keys[i];
        uint32_t home = sim_home_of(w, row);
        if (seen[row] == batch + 1 || home == machine) continue;
        seen[row] = (uint32_t)batch + 1;
        net->guests[batch * net->machines + home]++;
        if (!net->early || (step > 0 && read[row] == step)) net->late[batch * net->machines + home]++;
    }
}

void sim_network_count(sim_network *net, const sim_keys *k, const sim_workload *w) {
    sim_network_free(net);
    *net = (sim_network){.machines = w->machines, .gpus = w->gpus, .steps = k->steps, .dim = w->dim};
    net->early = w->lookahead > 0;
    uint64_t batches = k->steps * k->gpus;
    uint32_t *seen = calloc(k->rows, sizeof *seen), *read = calloc(k->rows, sizeof *read);
    net->guests = calloc(batches * net->machines, sizeof *net->guests);
    net->late = calloc(batches * net->machines, sizeof *net->late);
    if (!seen || !read || !net->guests || !net->late)
        bench_fail("no memory for the rows that cross the network; fewer --steps, --rows");
    for (uint64_t s = 0; s < k->steps; s++) {
        for (uint64_t b = s * k->gpus; b < (s + 1) * k->gpus; b++) count_guests(net, k, w, b, seen, read);
        for (uint64_t i = k->first[s * k->gpus]; i < k->first[(s + 1) * k->gpus]; i++)
            read[k->keys[i]] = (uint32_t)s + 1;
    }
    free(seen), free(read);
}

void sim_network_free(sim_network *net) {
    free(net->guests), free(net->late);
    memset(net, 0, sizeof *net);
}
