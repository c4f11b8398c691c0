/* test_processors.c - the row functions compute the reference's bits whichever instruction set they were compiled for.
 *
 * So do rows and arrays of 16 bits, which are also the same in every mode of the processor.
 *
 * The library is compiled into this program, which can let it find that the processor lacks instructions. Do not link
 * frugal_flush.o. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/reference.h"
#include "tests/support.h"

#if defined(__x86_64__) && defined(__GNUC__)
static const char *lacking = ""; /* instructions that the processor is said not to have */

static int machine_has(const char *feature) {
    return (!strcmp(feature, "avx2") && __builtin_cpu_supports("avx2")) ||
           (!strcmp(feature, "fma") && __builtin_cpu_supports("fma")) ||
           (!strcmp(feature, "avx512f") && __builtin_cpu_supports("avx512f")) ||
           (!strcmp(feature, "avx512vl") && __builtin_cpu_supports("avx512vl")) ||
           (!strcmp(feature, "avx512dq") && __builtin_cpu_supports("avx512dq"));
}
static int test_supports(const char *feature) {
    return machine_has(feature) && !strstr(lacking, feature);
}
#define __builtin_cpu_supports(feature) test_supports(feature)
#endif

#include "frugal_flush.c"

enum { ROWS = 24, DEVICES = 3, POSITIONS = 200, BAGS = 6, WIDEST = 520 };

typedef struct brought { /* what a device brings to the step */
    uint32_t rows[POSITIONS], unique[ROWS], order[POSITIONS], record_of[POSITIONS], start[ROWS + 1];
    float grads[POSITIONS * WIDEST], block[ROWS * WIDEST];
    frugal_records records;
} brought;

/* Rows of device `d`, one of them at most positions: its gradients are summed in several blocks of 32. */
static void draw(brought *b, uint32_t d, uint32_t dim) {
    uint32_t n = 0, unique = 0;
    for (uint32_t i = 0; i < POSITIONS; i++) {
        uint64_t bits = test_mix3(d, dim, i);
        b->rows[i] = bits % 2 ? 7 : (uint32_t)(bits >> 8) % (ROWS - 2); /* nobody touches the last rows */
    }
    for (uint32_t i = 0; i < POSITIONS * dim; i++)
        b->grads[i] = ldexpf((float)test_unit(test_mix3(dim, d, i)) - 0.5f, (int)(i % 7) - 3);
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t first = n;
        for (uint32_t i = 0; i < POSITIONS; i++)
            if (b->rows[i] == row) b->order[n++] = i, b->record_of[i] = unique;
        if (n > first) b->unique[unique] = row, b->start[unique++] = first;
    }
    b->start[unique] = n;
    b->records = (frugal_records){b->block, dim, POSITIONS, unique, b->record_of, b->order, b->start, b->unique};
}

/* The library's part of the step: sums of each device, then one optimizer step a touched row. */
static void step_of_rows(const frugal_store *store, const frugal_hyper *hyper, brought *all) {
    const float *lists[ROWS][DEVICES];
    row_update applies[ROWS];
    uint32_t n = 0;
    for (uint32_t d = 0; d < store->devices; d++)
        frugal_sum_gradients(&all[d].records, all[d].grads, store->dim, store->dim);
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t brings = 0;
        for (uint32_t d = 0; d < store->devices; d++)
            for (uint32_t u = 0; u < all[d].records.n_unique; u++)
                if (all[d].unique[u] == row) lists[row][brings++] = all[d].block + (size_t)u * store->dim;
        if (brings)
            applies[n++] = (row_update){(float *)frugal_row_at(store, row),
                                        store->state ? store->state + row * store->state_stride : NULL,
                                        lists[row],
                                        brings,
                                        (uint32_t)row,
                                        hyper};
    }
    apply_rows(store, &store->groups[0].optimizer, applies, n);
}

/* The same for one device that updates half of its rows in place, and writes the records of the others. */
static void step_in_place(const frugal_store *store, const frugal_hyper *hyper, const brought *b) {
    const uint64_t alone = UINT64_C(0x5555555555555555);
    frugal_step step = {.records = b->records, .hyper = hyper, .stride = store->dim, .brings = 1, .alone = &alone};
    frugal_update_rows(store, &step, NULL, b->grads, 0, b->records.n_unique);
    for (uint32_t u = 1; u < b->records.n_unique; u += 2) {
        float *state = store->state ? store->state + b->unique[u] * store->state_stride : NULL;
        frugal_apply(store, hyper, b->unique[u], (float *)frugal_row_at(store, b->unique[u]), state,
                     b->block + (size_t)u * store->dim);
    }
}

static void check_sum_positions(const brought *b, uint32_t dim) {
    float sum[WIDEST];
    for (uint32_t u = 0; u < b->records.n_unique; u++) {
        frugal_sum_positions(sum, b->grads, dim, dim, b->order + b->start[u], b->start[u + 1] - b->start[u]);
        assert_memory_equal(sum, b->block + (size_t)u * dim, 4 * dim);
    }
}

static void check_rows(brought *all, uint32_t dim, frugal_optimizer optimizer, frugal_reduce reduce, uint32_t devices,
                       int in_place) {
    static float weights[ROWS * WIDEST], state[ROWS * 2 * WIDEST];
    frugal_optimizer o = optimizer;
    reference ref = {.rows = ROWS, .dim = dim, .devices = devices, .optimizer = (int)o.kind, .eps = o.eps};
    reference_batch batches[DEVICES];
    ref.mean = reduce == FRUGAL_MEAN, ref.weight_decay = o.weight_decay, ref.beta1 = o.beta1, ref.beta2 = o.beta2;
    assert_true(reference_open(&ref, 0.25f));
    for (uint32_t i = 0; i < ROWS * dim; i++) weights[i] = ref.weights[i] = (float)test_unit(test_mix2(dim, i)) - 0.5f;
    memcpy(state, ref.state, sizeof(float) * ROWS * ref.state_floats);
    for (uint32_t d = 0; d < devices; d++) batches[d] = (reference_batch){all[d].rows, POSITIONS, all[d].grads};
    reference_step(&ref, 4, 0.3f, batches);
    frugal_store store = {.weights = weights, .state = ref.state_floats ? state : NULL, .weights_stride = dim};
    store.state_stride = store.state_floats = ref.state_floats;
    frugal_table_group group = {0, o};
    store.rows = ROWS, store.dim = dim, store.devices = devices, store.reduce = reduce;
    store.n_groups = 1, store.groups = &group;
    frugal_hyper hyper = {ref.ranges[0].lr, ref.ranges[0].step_size, 1, 0};
    if (in_place) {
        step_in_place(&store, &hyper, &all[0]);
    } else {
        step_of_rows(&store, &hyper, all);
        check_sum_positions(&all[0], dim);
    }
    if (memcmp(weights, ref.weights, sizeof(float) * ROWS * dim) ||
        memcmp(state, ref.state, sizeof(float) * ROWS * ref.state_floats))
        fail_msg("dim %u, optimizer %d, %u devices%s: not the reference's bits", dim, (int)o.kind, devices,
                 in_place ? ", in place" : "");
    reference_close(&ref);
}

/* Rows copied by position, and by record. */
static void check_gather(const brought *b, uint32_t dim) {
    static float weights[ROWS * (WIDEST + 3)], rows[POSITIONS * WIDEST], block[ROWS * WIDEST];
    frugal_store store = {.weights = weights, .weights_stride = dim + 3, .rows = ROWS, .dim = dim};
    frugal_records records = b->records;
    records.block = block;
    for (uint32_t i = 0; i < ROWS * (dim + 3); i++) weights[i] = (float)test_unit(test_mix2(dim, i));
    frugal_gather(&store, &records, rows, store.dim, FRUGAL_FP32);
    frugal_gather(&store, &records, NULL, 0, FRUGAL_FP32);
    for (uint32_t p = 0; p < POSITIONS; p++) {
        assert_memory_equal(weights + b->rows[p] * (dim + 3), rows + p * dim, 4 * dim);
        assert_memory_equal(weights + b->rows[p] * (dim + 3), block + b->record_of[p] * dim, 4 * dim);
    }
}

/* Rows pooled, and gradients by bag summed: plain, weighted, averaged. The sums are those of the gradients by position,
 * which check_rows has compared. */
static void check_bags(const brought *b, uint32_t dim) {
    static const uint32_t offsets[BAGS + 1] = {0, 0, 1, 40, 41, 199, POSITIONS};
    static float rows[POSITIONS * WIDEST], spread[POSITIONS * WIDEST], pooled[BAGS * WIDEST], known[BAGS * WIDEST];
    static float block[ROWS * WIDEST], known_block[ROWS * WIDEST];
    float weights[POSITIONS];
    uint32_t bag_of[POSITIONS];
    for (uint32_t bag = 0; bag < BAGS; bag++)
        for (uint32_t p = offsets[bag]; p < offsets[bag + 1]; p++)
            bag_of[p] = bag, weights[p] = (float)test_unit(test_mix2(bag, p)) - 0.5f;
    for (uint32_t p = 0; p < POSITIONS; p++) memcpy(rows + p * dim, b->block + (size_t)b->record_of[p] * dim, 4 * dim);
    frugal_records records = b->records, known_records = b->records;
    known_records.block = known_block;
    for (int way = 0; way < 3; way++) {
        frugal_bags bags = {.n_bags = BAGS,
                            .offsets = offsets,
                            .weights = way == 1 ? weights : NULL,
                            .pooling = way == 2 ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM};
        reference_bags ref = {BAGS, offsets, bags.weights, way == 2};
        records.block = (float *)(uintptr_t)b->block;
        reference_pool(&ref, rows, dim, known);
        frugal_pool(&records, &bags, dim, pooled, dim, FRUGAL_FP32);
        assert_memory_equal(known, pooled, 4 * BAGS * dim);
        records.block = block;
        reference_spread(&ref, b->grads, dim, spread);
        frugal_sum_gradients(&known_records, spread, dim, dim);
        frugal_sum_bags(&records, &bags, bag_of, b->grads, dim, dim);
        assert_memory_equal(known_block, block, 4 * (size_t)records.n_unique * dim);
    }
}

/* Squares of the gradients, of records that are written, of positions, and of bags that bring what positions do. */
static void check_squares(const brought *b, uint32_t dim) {
    static const uint32_t offsets[BAGS + 1] = {0, 0, 1, 40, 41, 199, POSITIONS};
    static float spread[POSITIONS * WIDEST];
    float known_block[ROWS * WIDEST];
    uint32_t bag_of[POSITIONS];
    const frugal_bags bags = {.n_bags = BAGS, .offsets = offsets};
    const reference_bags ref = {BAGS, offsets, NULL, 0};
    frugal_table_group group = {0, {.kind = FRUGAL_SGD}};
    frugal_store store = {.rows = ROWS, .dim = dim, .n_groups = 1, .groups = &group};
    frugal_step step = {.records = b->records, .stride = dim};
    double known = 0, known_by_bag = 0;
    for (uint32_t bag = 0; bag < BAGS; bag++)
        for (uint32_t p = offsets[bag]; p < offsets[bag + 1]; p++) bag_of[p] = bag;
    reference_spread(&ref, b->grads, dim, spread);
    frugal_sum_gradients(&b->records, b->grads, dim, dim);
    for (uint32_t u = 0; u < b->records.n_unique; u++)
        known += (double)reference_squares(b->block + (size_t)u * dim, dim);
    assert_true(frugal_sum_row_squares(&store, &step, NULL, NULL) == known);
    assert_true(frugal_sum_row_squares(&store, &step, NULL, b->grads) == known);
    frugal_records records = b->records;
    records.block = known_block;
    frugal_sum_gradients(&records, spread, dim, dim);
    for (uint32_t u = 0; u < records.n_unique; u++)
        known_by_bag += (double)reference_squares(known_block + (size_t)u * dim, dim);
    step.bags = &bags;
    assert_true(frugal_sum_row_squares(&store, &step, bag_of, b->grads) == known_by_bag);
    group.optimizer.frozen = 1;
    assert_true(frugal_sum_row_squares(&store, &step, bag_of, b->grads) == 0);
}

/* >>types: rows and arrays of 16 bits */

enum { FLOATS = 256 * 2 * 40, LONGEST = 1030 };

static const frugal_type halves[] = {FRUGAL_BF16, FRUGAL_FP16};

static uint16_t scalar_round(frugal_type as, float x, uint32_t noise) {
    return as == FRUGAL_BF16 ? frugal_round_bf16(x, noise) : frugal_round_fp16(x, noise);
}
static uint16_t scalar_nearest(frugal_type as, float x) {
    return as == FRUGAL_BF16 ? frugal_nearest_bf16(x) : frugal_nearest_fp16(x);
}
static float scalar_widen(frugal_type as, uint16_t weight) {
    return as == FRUGAL_BF16 ? frugal_widen_bf16(weight) : frugal_widen_fp16(weight);
}

/* Floats of all exponents and both signs, whose fractions are weights of 16 bits, in the middle between two, next to
 * these, or random. Among them are zeros, subnormals, what overflows, infinity, and NaN whose upper bits are
 * infinity's. */
static const float *all_floats(void) {
    static const uint32_t ends[] = {0,        1,        0x7fff,   0x8000,   0x8001,   0x10000,  0x17fff,
                                    0x18000,  0x18001,  0xfff,    0x1000,   0x1001,   0x2000,   0x2fff,
                                    0x3000,   0x3001,   0x3f,     0x7fffff, 0x7fefff, 0x7ff000, 0x7f7fff,
                                    0x7f8000, 0x400000, 0x3fffff, 0x400001, 0x700000};
    static float floats[FLOATS];
    for (uint32_t i = 0; i < FLOATS; i++) {
        uint32_t kind = i % 40, n = sizeof ends / sizeof *ends;
        uint32_t fraction = kind < n ? ends[kind] : (uint32_t)test_mix2(i, 1) & 0x7fffff;
        floats[i] = frugal_float_of(i / 40 << 23 | fraction);
    }
    return floats;
}

static void expect_half(frugal_type as, float x, const char *how, uint16_t expected, uint16_t found) {
    if (expected == found) return;
    fail_msg("type %d, %a (0x%08x) %s: 0x%04x, not 0x%04x", (int)as, (double)x, frugal_bits_of(x), how, found,
             expected);
}

/* The rules of an element are the reference's, which computes with doubles. */
static void test_rules_of_types(void **state) {
    static const uint32_t noises[] = {0, 1, 0x7fff, 0x8000, 0xffff};
    const float *floats = all_floats();
    (void)state;
    for (int h = 0; h < 2; h++) {
        frugal_type as = halves[h];
        for (uint32_t weight = 0; weight < 65536; weight++) {
            uint16_t half = (uint16_t)weight, room[2] = {half}; /* for compilers that think of a float there */
            float x = scalar_widen(as, half), known = reference_load((int)as, room, 0);
            assert_true(isnan(known) ? isnan(x) : !memcmp(&x, &known, 4));
            if (isnan(known)) half = as == FRUGAL_BF16 ? 0x7fc0 : 0x7e00;
            expect_half(as, x, "to the nearest, there and back", half, scalar_nearest(as, x));
            expect_half(as, x, "rounded up, there and back", half, scalar_round(as, x, 0xffff));
        }
        for (uint32_t i = 0; i < FLOATS; i++) {
            uint16_t known[2];
            reference_store((int)as, known, 0, reference_round((int)as, floats[i], -1));
            expect_half(as, floats[i], "to the nearest", known[0], scalar_nearest(as, floats[i]));
            for (uint32_t n = 0; n < 6; n++) {
                uint32_t noise = n < 5 ? noises[n] : (uint32_t)test_mix2(i, 2) & 0xffff;
                reference_store((int)as, known, 0, reference_round((int)as, floats[i], noise));
                expect_half(as, floats[i], "rounded", known[0], scalar_round(as, floats[i], noise));
            }
        }
    }
}

/* The vectors' conversions of `n` elements, at addresses of every kind, are those of single elements, and touch nothing
 * else. */
static void check_conversions(frugal_type as, const float *floats, uint32_t n, uint32_t at) {
    const row_conversions *types = rows_here()->types;
    static uint16_t to[CHUNK_FLOATS + 48], from[CHUNK_FLOATS + 48];
    static float wide[CHUNK_FLOATS + 48];
    uint32_t first = 1 + at % 31;
    memset(to, 0x55, sizeof to), memset(wide, 0x55, sizeof wide);
    types->nearest(to + first, floats, as, n);
    for (uint32_t i = 0; i < n; i++)
        expect_half(as, floats[i], "to the nearest, in vectors", scalar_nearest(as, floats[i]), to[first + i]);
    assert_true(to[first - 1] == 0x5555 && to[first + n] == 0x5555);
    for (uint32_t i = 0; i < n; i++) from[first + i] = (uint16_t)test_mix3(n, at, i);
    types->round(to + first, floats, from + first, as, n);
    for (uint32_t i = 0; i < n; i++)
        expect_half(as, floats[i], "rounded, in vectors", scalar_round(as, floats[i], from[first + i]), to[first + i]);
    assert_true(to[first - 1] == 0x5555 && to[first + n] == 0x5555);
    for (uint32_t i = 0; i < n; i++) from[first + i] = (uint16_t)(frugal_bits_of(floats[i]) >> 13);
    types->widen(wide + first, from + first, as, n);
    for (uint32_t i = 0; i < n; i++)
        if (frugal_bits_of(wide[first + i]) != frugal_bits_of(scalar_widen(as, from[first + i])))
            fail_msg("type %d, weight 0x%04x, in vectors: 0x%08x", (int)as, from[first + i],
                     frugal_bits_of(wide[first + i]));
    assert_true(frugal_bits_of(wide[first - 1]) == 0x55555555 && frugal_bits_of(wide[first + n]) == 0x55555555);
}

static void check_types(void) {
    const float *floats = all_floats();
    for (int h = 0; h < 2; h++) {
        for (uint32_t n = 0; n <= 70; n++) check_conversions(halves[h], floats + test_mix2(n, 3) % (FLOATS - n), n, n);
        for (uint32_t i = 0; i + CHUNK_FLOATS <= FLOATS; i += CHUNK_FLOATS)
            check_conversions(halves[h], floats + i, CHUNK_FLOATS - i / CHUNK_FLOATS % 2, i);
        for (uint32_t weight = 0; weight < 65536; weight += 256) {
            uint16_t from[256];
            float wide[256];
            for (uint32_t i = 0; i < 256; i++) from[i] = (uint16_t)(weight + i);
            frugal_convert(wide, FRUGAL_FP32, from, halves[h], 256);
            for (uint32_t i = 0; i < 256; i++)
                assert_true(frugal_bits_of(wide[i]) == frugal_bits_of(scalar_widen(halves[h], from[i])));
        }
    }
}

/* frugal_convert, from each type to each, of lengths that are few vectors, or more than a chunk. */
static void check_convert(frugal_type from_as, frugal_type to_as) {
    static unsigned char from[4 * LONGEST + 64], to[4 * LONGEST + 64];
    static float known[LONGEST];
    const float *floats = all_floats();
    for (uint32_t i = 0; i < LONGEST; i++) {
        float x = reference_round((int)from_as, floats[test_mix2(i, from_as) % FLOATS], -1);
        if (from_as == FRUGAL_FP32 && to_as == FRUGAL_FP32) x = floats[i];
        reference_store((int)from_as, from + 6 * (from_as != FRUGAL_FP32), i, x);
        known[i] = reference_round((int)to_as, x, -1);
    }
    for (uint32_t n = 0; n <= LONGEST; n += n < 70 ? 1 : n < 511 ? 147 : 13) {
        unsigned char *at = to + 4 + n % 16 * frugal_type_bytes(to_as);
        memset(to, 0x55, sizeof to);
        frugal_convert(at, to_as, from + 6 * (from_as != FRUGAL_FP32), from_as, n);
        for (uint32_t i = 0; i < n; i++) {
            float found = reference_load((int)to_as, at, i);
            if (memcmp(&found, &known[i], 4) && !(isnan(found) && isnan(known[i])))
                fail_msg("from type %d to %d, %u of %u: %a, not %a", (int)from_as, (int)to_as, i, n, (double)found,
                         (double)known[i]);
        }
        assert_true(at[-1] == 0x55 && at[n * frugal_type_bytes(to_as)] == 0x55);
    }
}

/* Rows of 16 bits, at odd strides: the step of rows that several devices bring gradients for, or that one updates in
 * place. */
static void check_typed_rows(brought *all, uint32_t dim, unsigned way) {
    static uint16_t weights[ROWS * (WIDEST + 3) + 1];
    static float state[ROWS * 2 * WIDEST];
    static const uint64_t seed = 77, now = 4;
    int as = (int)halves[way % 2], kind = (int)(way / 2 % 4), in_place = (int)(way / 8 % 2);
    uint32_t devices = in_place ? 1 : DEVICES, stride = dim + 3;
    frugal_table_group group = {0, {.kind = (frugal_optimizer_kind)kind, .eps = 1e-6f, .beta1 = 0.9f, .beta2 = 0.99f}};
    reference ref = {.rows = ROWS, .dim = dim, .devices = devices, .optimizer = kind, .eps = 1e-6f, .beta1 = 0.9f};
    reference_batch batches[DEVICES];
    ref.beta2 = 0.99f, ref.rows_as = as, ref.nearest = way / 16 % 2 == 1, ref.seed = seed, ref.step = now;
    ref.weight_decay = group.optimizer.weight_decay = way / 32 % 2 ? 0.01f : 0;
    assert_true(reference_open(&ref, 0.25f));
    for (uint32_t i = 0; i < ROWS * dim; i++) {
        ref.weights[i] = reference_round(as, (float)test_unit(test_mix2(dim, i)) - 0.5f, -1);
        reference_store(as, weights + 1, i / dim * stride + i % dim, ref.weights[i]);
    }
    memcpy(state, ref.state, sizeof(float) * ROWS * ref.state_floats);
    for (uint32_t d = 0; d < devices; d++) batches[d] = (reference_batch){all[d].rows, POSITIONS, all[d].grads};
    reference_step(&ref, now, 0.3f, batches);
    frugal_store store = {.weights = weights + 1, .state = ref.state_floats ? state : NULL, .weights_stride = stride};
    store.rows_as = (frugal_type)as, store.rounding = ref.nearest ? FRUGAL_NEAREST : FRUGAL_STOCHASTIC;
    store.state_stride = store.state_floats = ref.state_floats;
    store.rows = ROWS, store.dim = dim, store.devices = devices, store.kind = group.optimizer.kind;
    store.n_groups = 1, store.groups = &group;
    frugal_hyper hyper = {ref.ranges[0].lr, ref.ranges[0].step_size, 1, frugal_step_noise(seed, now)};
    if (in_place)
        step_in_place(&store, &hyper, &all[0]);
    else
        step_of_rows(&store, &hyper, all);
    for (uint32_t i = 0; i < ROWS * dim; i++) {
        float found = reference_load(as, weights + 1, i / dim * stride + i % dim);
        if (memcmp(&found, &ref.weights[i], 4))
            fail_msg("dim %u, way %u, row %u, element %u: %a, not %a", dim, way, i / dim, i % dim, (double)found,
                     (double)ref.weights[i]);
    }
    assert_memory_equal(state, ref.state, sizeof(float) * ROWS * ref.state_floats);
    reference_close(&ref);
}

/* Gradients in an array of 16 bits are summed as floats of the same values: by position, by bag, squared, in place. */
static void check_typed_gradients(const brought *b, uint32_t dim, frugal_type as) {
    static const uint32_t offsets[BAGS + 1] = {0, 0, 1, 40, 41, 199, POSITIONS};
    static uint16_t array[POSITIONS * (WIDEST + 3) + 1];
    static float same[POSITIONS * (WIDEST + 3)], block[2][ROWS * WIDEST], weights[2][ROWS * WIDEST];
    const uint64_t none = 0, alone = UINT64_C(0x3333333333333333);
    const frugal_bags bags = {.n_bags = BAGS, .offsets = offsets, .pooling = FRUGAL_POOL_MEAN};
    uint32_t bag_of[POSITIONS], stride = dim + 3;
    frugal_table_group group = {0, {.kind = FRUGAL_SGD}};
    frugal_hyper hyper = {0.3f, 0.3f, 1, 0};
    for (uint32_t bag = 0; bag < BAGS; bag++)
        for (uint32_t p = offsets[bag]; p < offsets[bag + 1]; p++) bag_of[p] = bag;
    for (uint32_t i = 0; i < POSITIONS * stride; i++)
        array[1 + i] = scalar_nearest(as, b->grads[i % (POSITIONS * dim)]), same[i] = scalar_widen(as, array[1 + i]);
    for (int way = 0; way < 4; way++) {
        double squares[2];
        for (int typed = 0; typed < 2; typed++) {
            const void *grads = typed ? (const void *)(array + 1) : same;
            frugal_step step = {.records = b->records, .hyper = &hyper, .stride = stride, .brings = 1};
            frugal_store store = {.weights = weights[typed], .weights_stride = dim, .rows = ROWS, .dim = dim};
            store.devices = 1, store.n_groups = 1, store.groups = &group;
            memset(weights[typed], 0, sizeof weights[typed]), memset(block[typed], 0, sizeof block[typed]);
            step.alone = way % 2 ? &alone : &none, step.as = typed ? as : FRUGAL_FP32;
            step.bags = way / 2 ? &bags : NULL, step.records.block = block[typed];
            squares[typed] = frugal_sum_row_squares(&store, &step, bag_of, grads);
            frugal_update_rows(&store, &step, bag_of, grads, 0, step.records.n_unique);
            for (uint32_t u = 0; u < step.records.n_unique; u++) /* the block's row may be undefined */
                memcpy(block[typed] + u * dim, frugal_gradient_of(&step, bag_of, grads, u), 4 * dim);
        }
        assert_true(squares[0] == squares[1] && squares[0] > 0);
        assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
        assert_memory_equal(block[0], block[1], sizeof block[0]);
    }
}

/* Rows of each type into arrays of each type, by position, by record and pooled. */
static void check_typed_lookups(const brought *b, uint32_t dim, frugal_type rows_as, frugal_type as) {
    static const uint32_t offsets[BAGS + 1] = {0, 0, 1, 40, 41, 199, POSITIONS};
    static unsigned char table[4 * (ROWS * (WIDEST + 3) + 1)], rows[4 * (POSITIONS * (WIDEST + 3) + 1)];
    static float block[ROWS * WIDEST], wide[POSITIONS * WIDEST], pooled[BAGS * WIDEST];
    const frugal_bags bags = {.n_bags = BAGS, .offsets = offsets, .pooling = FRUGAL_POOL_MEAN};
    const reference_bags ref = {BAGS, offsets, NULL, 1};
    uint32_t stride = dim + 3;
    unsigned char *first = table + frugal_type_bytes(rows_as), *to = rows + frugal_type_bytes(as);
    frugal_store store = {.weights = first, .weights_stride = stride, .rows_as = rows_as, .rows = ROWS, .dim = dim};
    frugal_records records = b->records;
    records.block = block;
    for (uint32_t i = 0; i < ROWS * stride; i++)
        reference_store((int)rows_as, first, i, reference_round((int)rows_as, (float)test_unit(test_mix2(dim, i)), -1));
    frugal_gather(&store, &records, NULL, 0, FRUGAL_FP32);
    memset(rows, 0x55, sizeof rows);
    frugal_gather(&store, &records, to, stride, as);
    for (uint32_t i = 0; i < POSITIONS * dim; i++) {
        uint32_t p = i / dim;
        wide[i] = reference_load((int)rows_as, first, b->rows[p] * stride + i % dim);
        float expected = reference_round((int)as, wide[i], -1),
              found = reference_load((int)as, to, p * stride + i % dim);
        assert_memory_equal(&wide[i], &block[b->record_of[p] * dim + i % dim], 4);
        assert_memory_equal(&expected, &found, 4);
    }
    assert_true(to[-1] == 0x55 && to[dim * frugal_type_bytes(as)] == 0x55);
    reference_pool(&ref, wide, dim, pooled);
    memset(rows, 0x55, sizeof rows);
    frugal_pool(&records, &bags, dim, to, stride, as);
    for (uint32_t i = 0; i < BAGS * dim; i++) {
        float expected = reference_round((int)as, pooled[i], -1),
              found = reference_load((int)as, to, i / dim * stride + i % dim);
        assert_memory_equal(&expected, &found, 4);
    }
    assert_true(to[-1] == 0x55 && to[dim * frugal_type_bytes(as)] == 0x55);
}

/* 1: the program runs on a processor without `features`, from now on; 0, and it says so: it would have to have more. */
static int is_processor_without(const char *features) {
#if defined(__x86_64__) && defined(__GNUC__)
    lacking = features;
    if (!*lacking && !(machine_has("avx512f") && machine_has("avx512vl") && machine_has("avx512dq"))) {
        print_message("# SKIPPED the row functions for AVX-512: this processor has none\n");
        return 0;
    }
#endif
    (void)features;
    return 1;
}

static void has_all_again(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    lacking = "";
#endif
}

static void test_types_on_a_processor_without(void **state) {
    static const uint32_t dims[] = {1, 2, 3, 16, 33, 100, 513, 519};
    if (!is_processor_without(*state)) skip();
    check_types();
    for (int from = FRUGAL_FP32; from <= FRUGAL_FP16; from++)
        for (int to = FRUGAL_FP32; to <= FRUGAL_FP16; to++) check_convert((frugal_type)from, (frugal_type)to);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        static brought all[DEVICES];
        for (uint32_t d = 0; d < DEVICES; d++) draw(&all[d], d, dims[i]);
        for (unsigned way = 0; way<64; way += dims[i]> 100 ? 3 : 1) check_typed_rows(all, dims[i], way);
        check_typed_gradients(&all[0], dims[i], halves[i % 2]);
        for (unsigned way = 0; way<9; way += dims[i]> 100 ? 4 : 1)
            check_typed_lookups(&all[0], dims[i], (frugal_type)(way / 3), (frugal_type)(way % 3));
    }
    has_all_again();
}

/* No mode of the processor changes a bit: it rounds in another direction, or takes subnormal numbers for zeros. */
static void test_types_in_any_mode(void **state) {
    static const int directions[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST};
    const float *floats = all_floats();
    static uint16_t known[2][FLOATS], found[2][FLOATS], weights[65536];
    static float known_wide[65536], wide[65536];
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) weights[i] = (uint16_t)i;
    for (int h = 0; h < 2; h++) {
        frugal_type as = halves[h];
        for (uint32_t i = 0; i < FLOATS; i++) known[0][i] = scalar_nearest(as, floats[i]);
        for (uint32_t i = 0; i < FLOATS; i++) known[1][i] = scalar_round(as, floats[i], i * 40503 & 0xffff);
        for (uint32_t i = 0; i < 65536; i++) known_wide[i] = scalar_widen(as, weights[i]);
        for (int mode = 0; mode < 4; mode++) {
            fesetround(directions[mode]);
#if defined(__SSE__)
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u);
#endif
            frugal_convert(found[0], as, floats, FRUGAL_FP32, FLOATS);
            for (uint32_t i = 0; i < FLOATS; i++) found[1][i] = scalar_round(as, floats[i], i * 40503 & 0xffff);
            frugal_convert(wide, FRUGAL_FP32, weights, as, 65536);
#if defined(__SSE__)
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x8040u);
#endif
            fesetround(FE_TONEAREST);
            for (uint32_t i = 0; i < FLOATS; i++) expect_half(as, floats[i], "in a mode", known[0][i], found[0][i]);
            for (uint32_t i = 0; i < FLOATS; i++) expect_half(as, floats[i], "in a mode", known[1][i], found[1][i]);
            for (uint32_t i = 0; i < 65536; i++)
                if (frugal_bits_of(known_wide[i]) != frugal_bits_of(wide[i]))
                    fail_msg("type %d, weight 0x%04x: 0x%08x in mode %d", (int)as, i, frugal_bits_of(wide[i]), mode);
        }
    }
}

/* >>floats */

static void test_row_functions_on_a_processor_without(void **state) {
    static const uint32_t dims[] = {1, 3, 16, 31, 32, 33, 64, 100, 256, 257, WIDEST};
    if (!is_processor_without(*state)) skip();
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        static brought all[DEVICES];
        for (uint32_t d = 0; d < DEVICES; d++) draw(&all[d], d, dims[i]);
        for (unsigned way = 0; way < 4 * 2 * 2 * DEVICES; way++) {
            frugal_optimizer o = {
                .kind = (frugal_optimizer_kind)(way % 4), .eps = 1e-6f, .beta1 = 0.9f, .beta2 = 0.99f};
            o.weight_decay = way / 4 % 2 ? 0.01f : 0;
            frugal_reduce reduce = way / 8 % 2 ? FRUGAL_MEAN : FRUGAL_SUM;
            check_rows(all, dims[i], o, reduce, 1 + way / 16, 0);
            if (way < 16) check_rows(all, dims[i], o, reduce, 1, 1);
        }
        check_gather(&all[0], dims[i]);
        check_bags(&all[0], dims[i]);
        check_squares(&all[0], dims[i]);
    }
    has_all_again();
}

#define WITHOUT(test, features)                                                                                        \
    {                                                                                                                  \
#test " " features, test, NULL, NULL, (char[]) {                                                               \
            features                                                                                                   \
        }                                                                                                              \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        WITHOUT(test_row_functions_on_a_processor_without, ""),
        WITHOUT(test_row_functions_on_a_processor_without, "avx512f"),
        WITHOUT(test_row_functions_on_a_processor_without, "avx512vl"),
        WITHOUT(test_row_functions_on_a_processor_without, "avx512dq"),
        WITHOUT(test_row_functions_on_a_processor_without, "avx512f avx2"),
        WITHOUT(test_row_functions_on_a_processor_without, "avx512f fma"),
        cmocka_unit_test(test_rules_of_types),
        WITHOUT(test_types_on_a_processor_without, ""),
        WITHOUT(test_types_on_a_processor_without, "avx512f"),
        WITHOUT(test_types_on_a_processor_without, "avx512f avx2"),
        cmocka_unit_test(test_types_in_any_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
