/* quickstart.c - the smallest trainer: read this first.
 *
 * Matrix factorization: a rating is the dot product of a user's row and an item's row. Two logical devices train on
 * halves of every step's ratings; nobody copies rows between them, and the result is that of sequential training.
 *
 *     build/quickstart   (or: cc -O3 -DNDEBUG -ffp-contract=off examples/quickstart.c frugal_flush.c -I. -lpthread -lm)
 */
#include <stdio.h>
#include <stdlib.h>
#include "frugal.h"
#include "frugal_seeing.h"

enum { USERS = 2000, ITEMS = 1000, DIM = 16, DEVICES = 2, BATCH = 512, STEPS = 600, LOOKAHEAD = 10 };

static void check(frugal_status status) { /* a status in words, with the value and the limit */
    if (status == FRUGAL_OK) return;
    fprintf(stderr, "quickstart: %s\n", frugal_message());
    exit(1);
}

static void print_notice(const char *text, void *user) { /* such as: why a call waits for so long */
    (void)user;
    fprintf(stderr, "quickstart: %s\n", text);
}

/* Rating k of the data: user, item and value (a hidden taste of eight kinds of users for eight kinds of items). */
static float rating(uint64_t k, uint64_t *user, uint64_t *item) {
    uint64_t hash = k * UINT64_C(0x9E3779B97F4A7C15);
    *user = (hash >> 33) % (USERS / DEVICES) * DEVICES + k / BATCH % DEVICES; /* each device has users of its own */
    *item = (hash >> 13) % ITEMS;
    return (*user % 8) == (*item % 8) ? 1.0f : -0.2f;
}

/* The keys of a device's batch: BATCH users of table 0, then BATCH items of table 1. */
static void announce(frugal *f, uint32_t device, uint64_t step) {
    uint64_t users[BATCH], items[BATCH];
    for (uint64_t i = 0; i < BATCH; i++) rating((step * DEVICES + device) * BATCH + i, &users[i], &items[i]);
    frugal_keys segments[] = {{.table = 0, .keys = users, .n = BATCH}, {.table = 1, .keys = items, .n = BATCH}};
    check(frugal_announce(f, device, step, &(frugal_batch){.segments = segments, .n_segments = 2}));
}

/* Forward and backward of one device at one step; returns the sum of squared errors. */
static double train(frugal *f, uint32_t device, uint64_t step) {
    static float rows[2 * BATCH][DIM], grads[2 * BATCH][DIM];
    check(frugal_lookup(f, device, step, &rows[0][0])); /* waits at the gate until these rows are fresh */
    double loss = 0;
    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t user, item;
        float error = -rating((step * DEVICES + device) * BATCH + i, &user, &item);
        for (int j = 0; j < DIM; j++) error += rows[i][j] * rows[BATCH + i][j];
        for (int j = 0; j < DIM; j++) {
            grads[i][j] = error * rows[BATCH + i][j];
            grads[BATCH + i][j] = error * rows[i][j];
        }
        loss += (double)error * (double)error;
    }
    check(frugal_update(f, device, step, &(frugal_gradients){.grads = &grads[0][0], .lr = 0.2f}));
    return loss;
}

int main(void) {
    frugal_table tables[] = {{.rows = USERS, .init = FRUGAL_INIT_UNIFORM, .low = -0.3f, .high = 0.3f},
                             {.rows = ITEMS, .init = FRUGAL_INIT_UNIFORM, .low = -0.3f, .high = 0.3f}};
    frugal_desc desc = {.tables = tables,
                        .n_tables = 2,
                        .dim = DIM,
                        .devices = DEVICES,
                        .max_keys = 2 * BATCH,
                        .lookahead = LOOKAHEAD,
                        .workers = 1,
                        .optimizer = {.kind = FRUGAL_ADAGRAD},
                        .notice = print_notice};
    frugal *f;
    check(frugal_open(&desc, &f));
    for (uint32_t d = 0; d < DEVICES; d++) check(frugal_cpu_attach(f, d, &(frugal_cpu_desc){.cache_rows = 1500}));

    uint64_t announced = 0;
    double first = 0, last = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        for (; announced < STEPS && announced <= step + LOOKAHEAD; announced++) /* run ahead of training */
            for (uint32_t d = 0; d < DEVICES; d++) announce(f, d, announced);
        double loss = 0;
        for (uint32_t d = 0; d < DEVICES; d++) loss += train(f, d, step);
        last = loss / (DEVICES * BATCH);
        if (step == 0) first = last;
        if (step % 100 == 0) fprintf(stderr, "step %4llu  mean squared error %.4f\n", (unsigned long long)step, last);
    }
    check(frugal_drain(f)); /* every update is in the host table now */

    frugal_stats stats;
    frugal_get_stats(f, &stats);
    printf("%d steps: error %.4f -> %.4f; %llu rows looked up, %.0f%% from cache, %llu row updates flushed\n", STEPS,
           first, last, (unsigned long long)stats.unique_rows, 100.0 * (double)stats.hits / (double)stats.unique_rows,
           (unsigned long long)stats.flushed);
    frugal_close(f);
    return last < first / 4 ? 0 : 1;
}
