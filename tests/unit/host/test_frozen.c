/* test_frozen.c - tables whose rows never change, beside tables that are trained: the reference's bits, however they
 * are flushed and cached. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/rig.h"

typedef struct table_copy { /* of the first table, as it was */
    float weights[60 * 5], state[60 * 10];
} table_copy;

/* Trains `r->f`, of which table 0 is frozen and, unless `all`, table 1 is not. */
static void check_frozen(rig *r, const frugal_desc *desc, int all) {
    static table_copy before, after;
    rig_open(r, desc);
    assert_int_equal(1, frugal_settings(r->f)->tables[0].optimizer->frozen);
    assert_int_equal(all, frugal_settings(r->f)->tables[1].optimizer->frozen);
    rig_read(r, before.weights, before.state);
    rig_train(r, 12);
    assert_int_equal(FRUGAL_OK, frugal_drain(r->f));
    assert_int_equal(FRUGAL_OK, frugal_verify(r->f));
    rig_compare(r);
    rig_read(r, after.weights, after.state);
    uint64_t frozen = all ? 60 : 40, floats = r->ref.state_floats;
    assert_memory_equal(before.weights, after.weights, 4 * frozen * 5);
    assert_memory_equal(before.state, after.state, 4 * frozen * floats);
    if (!all) assert_memory_not_equal(before.weights + 40 * 5, after.weights + 40 * 5, 4 * 20 * 5);
    frugal_stats stats;
    frugal_get_stats(r->f, &stats);
    assert_int_equal(12, stats.steps);
    rig_finish(r, 2);
}

static void test_a_frozen_table_beside_a_trained_one(void **state) {
    (void)state;
    for (int i = 0; i < 48; i++) {
        rig r = {.cache = {.cache_rows = i % 3 * 16}};
        frugal_optimizer own = {.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS],
                                .weight_decay = 0.25f,
                                .initial_accumulator = 0.5f,
                                .frozen = 7};
        frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
        frugal_desc d = rig_desc();
        tables[0].optimizer = &own;
        d.tables = tables;
        d.optimizer = (frugal_optimizer){.kind = own.kind, .weight_decay = i & 4 ? 0.1f : 0};
        d.workers = (uint32_t)i / 16, d.reduce = i & 8 ? FRUGAL_MEAN : FRUGAL_SUM;
        check_frozen(&r, &d, 0);
    }
}

/* The instance's own settings are frozen: all tables that name none. */
static void test_a_frozen_instance(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        rig r = {.cache = {.cache_rows = 30}};
        frugal_desc d = rig_desc();
        d.optimizer =
            (frugal_optimizer){.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS], .weight_decay = 0.1f, .frozen = 1};
        d.workers = (uint32_t)i / 4;
        check_frozen(&r, &d, 1);
    }
}

/* A rate that would be infinite where it is frozen is nobody's: the step is trained, and the frozen rows stay. */
static void test_an_infinite_rate_of_a_frozen_table(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        rig r = {.lr = 4};
        frugal_optimizer own = {.kind = rig_optimizers[i], .lr_scale = FLT_MAX, .frozen = 1};
        frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
        frugal_desc d = rig_desc();
        tables[0].optimizer = &own;
        d.tables = tables, d.optimizer = (frugal_optimizer){.kind = rig_optimizers[i]};
        check_frozen(&r, &d, 0);
    }
}

/* Settings that differ in nothing else make two groups, and the other way round. */
static void test_groups_of_frozen_tables(void **state) {
    (void)state;
    rig r = {0};
    frugal_optimizer frozen = {.kind = FRUGAL_SGD, .frozen = 1}, trained = {.kind = FRUGAL_SGD};
    frugal_table tables[4] = {{.rows = 5, .optimizer = &frozen},
                              {.rows = 6, .optimizer = &frozen},
                              {.rows = 7, .optimizer = &trained},
                              {.rows = 8, .optimizer = &frozen}};
    frugal_desc d = rig_desc();
    d.tables = tables, d.n_tables = 4, d.optimizer = frozen;
    rig_open(&r, &d);
    const frugal_store *s = frugal_get_store(r.f);
    assert_int_equal(3, s->n_groups);
    for (uint32_t g = 0; g < 3; g++) assert_int_equal(g != 1, s->groups[g].optimizer.frozen);
    rig_free(&r);
}

/* A device of one's own calls frugal_apply on its copies: of a frozen row they stay what they are. */
static void test_apply_leaves_a_frozen_row(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        float weights[3] = {1, -0.0f, 3}, row_state[6] = {1, 2, 3, 4, 5, 6}, gradient[3] = {1, 1, 1};
        const float kept[3] = {1, -0.0f, 3}, kept_state[6] = {1, 2, 3, 4, 5, 6};
        frugal_table_group group = {0, {.kind = rig_optimizers[i], .eps = 1, .weight_decay = 1, .frozen = 1}};
        frugal_store store = {
            .rows = 1, .dim = 3, .devices = 1, .kind = rig_optimizers[i], .n_groups = 1, .groups = &group};
        store.state_floats = frugal_state_floats(rig_optimizers[i], 3);
        frugal_apply(&store, &(frugal_hyper){1, 1, 1, 0}, 0, weights, row_state, gradient);
        assert_memory_equal(kept, weights, sizeof kept);
        assert_memory_equal(kept_state, row_state, sizeof kept_state);
        group.optimizer.frozen = 0;
        frugal_apply(&store, &(frugal_hyper){1, 1, 1, 0}, 0, weights, row_state, gradient);
        assert_memory_not_equal(kept, weights, sizeof kept);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_frozen_table_beside_a_trained_one), cmocka_unit_test(test_a_frozen_instance),
        cmocka_unit_test(test_an_infinite_rate_of_a_frozen_table),  cmocka_unit_test(test_groups_of_frozen_tables),
        cmocka_unit_test(test_apply_leaves_a_frozen_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
