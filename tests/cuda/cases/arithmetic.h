/* arithmetic.h - every width of a row, with all that is done to one */
#ifndef CASES_ARITHMETIC_H
#define CASES_ARITHMETIC_H

#include "world.h"

static const uint32_t dims[] = {1,  2,  3,  4,   5,   7,   8,   12,  16,  17,  31,  32,   33,
                                36, 63, 64, 100, 128, 129, 132, 256, 300, 512, 516, 1000, 1024};

static void some_duplicates(const world *w, uint32_t device, uint64_t step, batch *b) {
    b->n = 3 + (uint32_t)((step * 5 + device) % 38), b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < b->n; i++)
        b->rows[i] = (uint32_t)(test_mix3(step, device, i) % 4 ? test_mix3(step, i, 3) % 3
                                                               : test_mix3(step, i, device + 4) % w->table.rows);
}

static void check_dims(frugal_optimizer_kind kind) {
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (uint32_t unaligned = 0; unaligned < (dims[i] % 4 ? 1u : 2u); unaligned++) {
            world w = world_of(2);
            w.make = some_duplicates;
            w.table.rows = 12;
            w.desc.dim = dims[i], w.desc.max_keys = 40, w.desc.lookahead = 1;
            w.desc.optimizer.kind = kind;
            w.desc.reduce = (i + unaligned) % 2 ? FRUGAL_MEAN : FRUGAL_SUM;
            w.desc.optimizer.weight_decay = (i / 2 + unaligned) % 2 ? 0.02f : 0;
            w.places[0].cache_rows = 16, w.places[1].cache_rows = i % 3 ? 8 : 0;
            w.places[0].unaligned = unaligned, w.places[1].unaligned = i % 4 == 1 ? 1 : 0;
            open_world(&w);
            finish(&w, test_is_short() ? 2 : 4);
        }
}
#define TEST_DIMS(kind, ...)                                                                                           \
    static void test_dims_##kind(void **state) {                                                                       \
        (void)state;                                                                                                   \
        check_dims(FRUGAL_##kind);                                                                                     \
    }
FRUGAL_OPTIMIZERS(TEST_DIMS)

/* Row 5 so many times as the step says, among others. */
static void many_of_one(const world *w, uint32_t device, uint64_t step, batch *b) {
    static const uint32_t times[] = {1000, 31, 32, 33, 64, 65, 1000, 96, 97, 1};
    uint32_t n = times[(step + device) % 10];
    b->n = n, b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < n; i++) b->rows[i] = 5;
    for (; (step + device) % 3 && b->n < n + 80; b->n++) /* others, and one more row with more than 32 */
        b->rows[b->n] = (uint32_t)(b->n % 2 ? 7 : test_mix3(step, device, b->n) % w->table.rows);
    for (uint32_t i = 0; i < b->n; i++) { /* shuffled */
        uint32_t k = (uint32_t)(test_mix3(i, step, device) % b->n), row = b->rows[i];
        b->rows[i] = b->rows[k], b->rows[k] = row;
    }
}

static void test_duplicates(void **state) {
    (void)state;
    static const uint32_t some[] = {1, 4, 101, 132};
    for (int i = 0; i < 8; i++) { /* two devices: the copies are outdated by the other one */
        world w = world_of(i % 2 + 1);
        w.make = many_of_one;
        w.desc.dim = some[i / 2], w.desc.max_keys = MOST_KEYS;
        w.desc.optimizer.kind = (frugal_optimizer_kind)((i + i / 4) % 4);
        w.places[0].cache_rows = i % 3 ? 40 : 0;
        open_world(&w);
        finish(&w, test_is_short() ? 3 : 10);
    }
    for (int i = 0; i < 32; i++) { /* one device: the copies that it has updated are what it looks up next */
        world w = world_of(1);
        w.make = many_of_one, w.n_tables = i < 16 ? 0 : MOST_TABLES;
        w.desc.dim = some[i / 4 % 4], w.desc.max_keys = MOST_KEYS;
        w.desc.optimizer.kind = (frugal_optimizer_kind)(i % 4);
        w.places[0].cache_rows = 80;
        open_world(&w);
        finish(&w, test_is_short() ? 3 : 5);
    }
}

/* The last step to be rounded: max_keys of 1 to 70, all keys equal. */
static void test_sizes(void **state) {
    (void)state;
    for (uint32_t keys = 1; keys <= 70; keys += keys < 4 || (keys >= 31 && keys < 34) || keys >= 63 ? 1 : 7) {
        world w = world_of(1);
        w.make = all_equal;
        w.desc.max_keys = keys, w.desc.dim = 4 + keys % 2;
        open_world(&w);
        finish(&w, 3);
    }
}

/* The first half of the table, in turn. */
static void rows_of_half(const world *w, uint32_t device, uint64_t step, batch *b) {
    (void)device, (void)step;
    b->n = (uint32_t)w->table.rows / 2, b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < b->n; i++) b->rows[i] = i;
}

/* Gradients that are no numbers, or make such of rows and states. A GPU computes another NaN than the host, so after
 * the update a row's copy has other bits than the host row: NaN payloads are not promised. To verify, both are NaN. */
static void test_not_numbers(void **state) {
    (void)state;
    static const uint32_t bits[] = {0x7fc00001, 0xffc00abc, 0x7f800000, 0xff800000}; /* two NaN, both infinities */
    for (int kind = 0; kind < 4; kind++) {
        world w = world_of(1);
        w.desc.optimizer.kind = (frugal_optimizer_kind)kind, w.desc.alone = (frugal_alone)kind;
        w.make = rows_of_half, w.table.rows = 48;
        open_world(&w);
        for (; w.step < 3; w.step++) {
            size_t floats = (size_t)w.table.rows / 2 * w.desc.dim;
            for (size_t i = 0; i < floats; i++) memcpy(&w.grads[0][i], &bits[i % 4], sizeof *bits);
            announce(&w, w.step + 1);
            lookup(&w, 0);
            gpu_put(w.gpus[0], gpu_grads(w.gpus[0]), w.grads[0], floats * sizeof(float));
            update(&w, 0);
        }
        assert_works(frugal_drain(w.f));
        assert_works(frugal_verify(w.f));
        float *weights = malloc(w.table.rows * w.desc.dim * sizeof(float));
        float *states = malloc(w.table.rows * frugal_get_store(w.f)->state_floats * sizeof(float) + 4);
        read_all(&w, weights, states);
        size_t half = w.table.rows / 2 * w.desc.dim;
        for (size_t i = 0; i < half; i++) assert_false(isfinite(weights[i]));
        assert_memory_equal(weights + half, w.ref.weights + half, half * sizeof(float));
        free(weights), free(states);
        close_world(&w);
    }
}

#endif /* CASES_ARITHMETIC_H */
