/* test_processors.c - the row functions compute the reference's bits whichever instruction set they were compiled for.
 *
 * The library is compiled into this program, which can let it find that the processor lacks instructions. Do not link
 * frugal_flush.o. */
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

static void test_row_functions_on_a_processor_without(void **state) {
    static const uint32_t dims[] = {1, 3, 16, 31, 32, 33, 64, 100, 256, 257, WIDEST};
#if defined(__x86_64__) && defined(__GNUC__)
    lacking = *state;
    if (!*lacking && !(machine_has("avx512f") && machine_has("avx512vl") && machine_has("avx512dq"))) {
        print_message("# SKIPPED the row functions for AVX-512: this processor has none\n");
        skip();
    }
#else
    (void)state;
#endif
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
#if defined(__x86_64__) && defined(__GNUC__)
    lacking = "";
#endif
}

#define WITHOUT(features)                                                                                              \
    {                                                                                                                  \
        "test_row_functions_on_a_processor_without " features, test_row_functions_on_a_processor_without, NULL, NULL,  \
            (char[]) {                                                                                                 \
            features                                                                                                   \
        }                                                                                                              \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        WITHOUT(""),         WITHOUT("avx512f"),      WITHOUT("avx512vl"),
        WITHOUT("avx512dq"), WITHOUT("avx512f avx2"), WITHOUT("avx512f fma"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
