/* dealt.h - a small training of one table that several machines of this process have, or one instance alone: its rows
 * depend on the step alone. For tests of saves. */
#ifndef DEALT_H
#define DEALT_H

#include "../../src/device.h"
#include "wires.h"

enum { DEALT_DEVICES = 4, DEALT_KEYS = 16, DEALT_SIZE = 5, DEALT_MOST = 45 }; /* MOST: rows of all tables */

static frugal_table dealt_tables[] = {{.rows = 40, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1},
                                      {.rows = 2, .init = FRUGAL_INIT_NORMAL, .deviation = 0.5f},
                                      {.rows = 3, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}};

static inline frugal_desc dealt_desc(frugal_optimizer_kind kind) {
    return (frugal_desc){.tables = dealt_tables,
                         .n_tables = 3,
                         .dim = DEALT_SIZE,
                         .devices = DEALT_DEVICES,
                         .max_keys = DEALT_KEYS,
                         .lookahead = 2,
                         .optimizer = {.kind = kind},
                         .seed = 7,
                         .increments = 1,
                         .init_threads = 1,
                         .stuck_seconds = 60};
}

/* Half of the keys are of a few rows that devices share. */
static inline void dealt_announce(frugal *f, uint32_t device, uint64_t step) {
    static const uint32_t n[] = {8, 4, 4};
    uint64_t keys[DEALT_KEYS], *at = keys;
    frugal_keys segments[3];
    for (uint32_t t = 0; t < 3; at += n[t++]) {
        segments[t] = (frugal_keys){.table = t, .keys = at, .n = n[t]};
        for (uint32_t i = 0; i < n[t]; i++) {
            uint64_t bits = test_mix3(step, device, t * DEALT_KEYS + i);
            at[i] = bits / 2 % (bits % 2 && t == 0 ? 4 : dealt_tables[t].rows);
        }
    }
    if (frugal_announce(f, device, step, &(frugal_batch){.segments = segments, .n_segments = 3})) abort();
}

/* The machine's devices, from one step to another; all is drained then. */
static inline frugal_status dealt_train(frugal *f, uint32_t from, uint32_t n, uint64_t step, uint64_t end) {
    float rows[DEALT_KEYS * DEALT_SIZE], grads[DEALT_DEVICES][DEALT_KEYS * DEALT_SIZE];
    uint64_t announced = step;
    frugal_status status = FRUGAL_OK;
    for (; step < end && !status; step++) {
        for (; announced < end && announced <= step + frugal_settings(f)->lookahead; announced++)
            for (uint32_t d = from; d < from + n; d++) dealt_announce(f, d, announced);
        for (uint32_t d = from; d < from + n && !status; d++) {
            status = frugal_lookup(f, d, step, rows);
            for (uint32_t i = 0; i < DEALT_KEYS * DEALT_SIZE; i++)
                grads[d][i] = 0.1f * rows[i] + (float)test_unit(test_mix3(step, d, i)) - 0.5f;
        }
        for (uint32_t d = from; d < from + n && !status; d++)
            status = frugal_update(f, d, step, &(frugal_gradients){.grads = grads[d], .lr = 0.05f});
    }
    return status ? status : frugal_drain(f);
}

/* All rows of all machines. */
static inline void dealt_read(frugal *f, float *weights, float *state) {
    uint32_t state_floats = frugal_get_store(f)->state_floats;
    for (uint32_t t = 0; t < 3; t++) {
        uint64_t keys[DEALT_MOST];
        for (uint64_t i = 0; i < dealt_tables[t].rows; i++) keys[i] = i;
        frugal_keys k = {.table = t, .keys = keys, .n = (uint32_t)dealt_tables[t].rows};
        if (frugal_read_rows(f, &k, weights, state)) abort();
        weights += dealt_tables[t].rows * DEALT_SIZE, state += dealt_tables[t].rows * state_floats;
    }
}

#endif /* DEALT_H */
