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
            world w = with_arrays(world_of(2));
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
        world w = with_arrays(world_of(i % 2 + 1));
        w.make = many_of_one;
        w.desc.dim = some[i / 2], w.desc.max_keys = MOST_KEYS;
        w.desc.optimizer.kind = (frugal_optimizer_kind)((i + i / 4) % 4);
        w.places[0].cache_rows = i % 3 ? 40 : 0;
        open_world(&w);
        finish(&w, test_is_short() ? 3 : 10);
    }
    for (int i = 0; i < 32; i++) { /* one device: the copies that it has updated are what it looks up next */
        world w = with_arrays(world_of(1));
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
        world w = with_arrays(world_of(1));
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

/* Floats at the edges of types of 16 bits: overflow, infinity, NaN whose upper bits are those of infinity, subnormal
 * weights and floats, the middle between two weights. */
static const uint32_t edges[] = {
    0x477fe000, 0x477fefff, 0x477ff000, 0x477fffff, 0x47800000, 0x7f7f0000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,
    0x7f800000, 0xff800000, 0x7f800001, 0xff80abcd, 0x7fc00001, 0x33800000, 0x33000000, 0x33000001, 0x33c00000,
    0x38800000, 0x387fffff, 0x387fe000, 0x387fd000, 0x00000001, 0x007fffff, 0x807f8000, 0x80000000, 0x3f808000,
    0x3f818000, 0x3f801000, 0x3f803000, 0xb3ffffff, 0x3f80ffff, 0xc77ff001, 0x38007fff, 0x00008000, 0x00018000};
enum { EDGES = sizeof edges / sizeof *edges };

static float edge(uint32_t i) {
    float x;
    return memcpy(&x, &edges[i % EDGES], sizeof x), x;
}

/* A step from 0 with lr 1 rounds the gradient itself, the next ones what has come of it. */
static void round_edges(world *w) {
    open_world(w);
    for (; w->step < 3; w->step++) {
        uint32_t n = (uint32_t)w->table.rows / 2;
        for (uint32_t i = 0; i < n * w->desc.dim; i++) w->grads[0][i] = -edge(i + 7 * (uint32_t)w->step);
        announce(w, w->step + 1);
        lookup(w, 0);
        gpu_put(w->gpus[0], gpu_grads(w->gpus[0]), w->grads[0], n * w->desc.dim * sizeof(float));
        const frugal_gradients g = {.grads = gpu_grads(w->gpus[0]), .lr = 1};
        assert_works(frugal_update(w->f, 0, w->step, &g));
        reference_batch brought = {batch_of(w, 0, w->step)->rows, n, w->grads[0]};
        reference_step(&w->ref, w->step, 1, &brought);
        assert_works(frugal_drain(w->f));
        assert_works(frugal_verify(w->f));
        compare(w);
    }
    close_world(w);
}

static void test_rounding(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 16; i++) { /* both types and roundings; wide and narrow; staged, in place, kept */
        world w = world_of(1);
        w.desc.rows_as = i & 1 ? FRUGAL_BF16 : FRUGAL_FP16, w.desc.rounding = i & 2 ? FRUGAL_NEAREST : 0;
        w.desc.dim = i & 4 ? 8 : 5, w.desc.optimizer.kind = FRUGAL_SGD, w.desc.seed = i;
        w.desc.alone = i & 8 ? FRUGAL_ALONE_STAGED : i & 4 ? FRUGAL_ALONE_KEPT : FRUGAL_ALONE_PLACE;
        w.make = rows_of_half, w.table = (frugal_table){.rows = 48}; /* zeros */
        round_edges(&w);
    }
}

/* Floats in arrays of 16 bits, by position and pooled: to the nearest. */
static void test_edges_in_arrays(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        enum { ROWS = 24, DIM = 8 };
        float *matrix = NULL;
        uint32_t offsets[ROWS + 1], dim = i & 2 ? DIM : 5;
        assert_int_equal(0, posix_memalign((void **)&matrix, 4096, 4096));
        for (uint32_t e = 0; e < ROWS * DIM; e++) matrix[e] = edge(e);
        world w = world_of(1);
        w.desc.rows_as = FRUGAL_FP32, w.desc.rounding = 0, w.desc.dim = dim;
        w.as = i & 1 ? FRUGAL_BF16 : FRUGAL_FP16, w.make = rows_of_half;
        w.desc.weights = matrix, w.table = (frugal_table){.rows = ROWS};
        open_world(&w);
        announce(&w, 1);
        frugal_bags bags = {.n_bags = ROWS / 2, .offsets = gpu_words(w.gpus[0])};
        for (uint32_t bag = 0; bag <= ROWS; bag++) offsets[bag] = bag;
        gpu_put(w.gpus[0], gpu_words(w.gpus[0]), offsets, sizeof offsets);
        const frugal_row_array to = {.rows = gpu_rows(w.gpus[0]), .as = w.as, .bags = i & 4 ? &bags : NULL};
        assert_works(frugal_lookup_into(w.f, 0, 0, &to));
        gpu_get(w.gpus[0], w.looked_up, gpu_rows(w.gpus[0]), 2 * ROWS / 2 * dim);
        for (uint32_t e = 0; e < ROWS / 2 * dim; e++) {
            uint16_t wanted, found;
            reference_store((int)w.as, &wanted, 0, reference_round((int)w.as, edge(e), -1));
            memcpy(&found, (const char *)w.looked_up + 2 * e, sizeof found);
            if (wanted != found)
                fail_msg("type %d, float %08x: wanted %04x, found %04x", (int)w.as, edges[e % EDGES], wanted, found);
        }
        close_world(&w);
        free(matrix);
    }
}

#endif /* CASES_ARITHMETIC_H */
