/* test_settings.c - settings: their defaults, groups of tables that have the same, and tables that have their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/rig.h"

static void test_defaults_are_resolved(void **state) {
    (void)state;
    frugal_table table = {.rows = 10};
    float matrix[100];
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 10, .max_keys = 4, .lookahead = 6, .weights = matrix};
    frugal *f = open_or_fail(&d);
    table.rows = 1; /* was copied */
    const frugal_desc *s = frugal_settings(f);
    assert_int_equal(1, s->devices);
    assert_int_equal(1, s->staging);
    assert_true(s->stuck_seconds == 300);
    assert_true(s->init_threads >= 1);
    assert_int_equal(10, s->weights_stride);
    assert_int_equal(10, s->tables[0].rows);
    assert_true(s->optimizer.eps == 1e-8f || s->optimizer.kind == FRUGAL_SGD);
    assert_true(s->optimizer.beta1 == 0.9f && s->optimizer.beta2 == 0.999f);
    frugal_close(f);
    for (int i = 1; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        d.optimizer.kind = rig_optimizers[i], d.weights = NULL, table.rows = 10;
        f = open_or_fail(&d);
        assert_true(frugal_settings(f)->optimizer.eps == (rig_optimizers[i] == FRUGAL_ADAGRAD ? 1e-10f : 1e-8f));
        frugal_close(f);
    }
    static const uint32_t lookaheads[] = {0, 1, 2, 3, 15}, depths[] = {2, 3, 4, 4, 4};
    for (int i = 0; i < 10; i++) { /* the depth of the staging ring where updates are queued */
        d.lookahead = lookaheads[i % 5], d.defer = i < 5, d.workers = i >= 5;
        f = open_or_fail(&d);
        assert_int_equal(1, frugal_settings(f)->staging); /* one device in place queues none */
        frugal_close(f);
        d.devices = 1 + i % 2, d.alone = i % 2 ? FRUGAL_ALONE_DEFAULT : FRUGAL_ALONE_STAGED;
        f = open_or_fail(&d);
        assert_int_equal(depths[i % 5], frugal_settings(f)->staging);
        frugal_close(f);
        d.devices = 1, d.alone = FRUGAL_ALONE_DEFAULT;
    }
}

/* Tables side by side with the same settings are a group; each names its group's, resolved. */
static void test_groups_of_tables(void **state) {
    (void)state;
    frugal_optimizer usual = {.kind = FRUGAL_ADAM, .beta1 = 0.9f}, own = {.kind = FRUGAL_ADAM, .lr_scale = 0.5f};
    frugal_table tables[6] = {{.rows = 3}, {.rows = 1}, {.rows = 5}, {.rows = 1}, {.rows = 2}, {.rows = 4}};
    frugal_desc d = {.tables = tables, .n_tables = 6, .dim = 2, .max_keys = 4, .optimizer = {.kind = FRUGAL_ADAM}};
    static const uint32_t group_of[] = {0, 0, 1, 2, 3, 3}, first[] = {0, 4, 9, 10};
    frugal *f = open_or_fail(&d);
    const frugal_desc *in_force = frugal_settings(f);
    assert_int_equal(1, frugal_get_store(f)->n_groups);
    assert_int_equal(FRUGAL_ADAM, frugal_get_store(f)->kind);
    assert_true(in_force->optimizer.lr_scale == 1);
    for (int t = 0; t < 6; t++) assert_memory_equal(&in_force->optimizer, in_force->tables[t].optimizer, sizeof usual);
    frugal_close(f);
    tables[1].optimizer = tables[3].optimizer = &usual; /* what the others have by default */
    tables[2].optimizer = tables[4].optimizer = tables[5].optimizer = &own;
    f = open_or_fail(&d);
    own.lr_scale = 8; /* was copied */
    const frugal_store *s = frugal_get_store(f);
    assert_int_equal(4, s->n_groups);
    for (uint32_t g = 0; g < 4; g++) assert_int_equal(first[g], s->groups[g].first_row);
    for (uint32_t t = 0, row = 0; t < 6; t++) {
        const frugal_optimizer *o = frugal_settings(f)->tables[t].optimizer;
        assert_ptr_equal(o, &s->groups[group_of[t]].optimizer);
        assert_true(o->lr_scale == (group_of[t] % 2 ? 0.5f : 1) && o->eps == 1e-8f && o->beta2 == 0.999f);
        for (uint64_t i = 0; i < tables[t].rows; i++)
            assert_int_equal(group_of[t], frugal_group_of(s->groups, s->n_groups, row++));
    }
    d = *frugal_settings(f); /* they open another like it */
    frugal *other = open_or_fail(&d);
    assert_int_equal(4, frugal_get_store(other)->n_groups);
    frugal_close(other), frugal_close(f);
}

static void test_state_floats(void **state) {
    (void)state;
    for (uint32_t dim = 1; dim < 200; dim += 11) {
        assert_int_equal(0, frugal_state_floats(FRUGAL_SGD, dim));
        assert_int_equal(dim, frugal_state_floats(FRUGAL_ADAGRAD, dim));
        assert_int_equal(1, frugal_state_floats(FRUGAL_ROWWISE_ADAGRAD, dim));
        assert_int_equal(2 * dim, frugal_state_floats(FRUGAL_ADAM, dim));
    }
    assert_int_equal(0, frugal_state_floats((frugal_optimizer_kind)FRUGAL_OPTIMIZER_KINDS, 5));
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) assert_int_equal(i, rig_optimizers[i]); /* listed in their order */
}

static void test_staging_budget(void **state) {
    (void)state;
    for (uint64_t budget = 1; budget < 4000000; budget = budget * 2 + 77) {
        rig r = {0};
        frugal_desc d = rig_desc();
        frugal_stats s;
        d.lookahead = 14, d.staging = 16, d.staging_bytes = budget;
        rig_open(&r, &d);
        frugal_get_stats(r.f, &s);
        uint64_t block = 4ull * RIG_KEYS * 8 * 2; /* two devices, records of 5 floats padded to 8 */
        uint64_t wanted = budget / block < 1 ? 1 : budget / block > 16 ? 16 : budget / block;
        assert_int_equal(wanted, s.staging_depth);
        assert_int_equal(wanted, frugal_settings(r.f)->staging);
        rig_finish(&r, 20);
    }
}

/* AdamW without a weight decay has PyTorch's; with SGD and the others it is none. */
static void test_default_decay(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        frugal_table table = {.rows = 3};
        frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 2, .max_keys = 4, .optimizer.kind = rig_optimizers[i]};
        frugal *f = open_or_fail(&d);
        assert_true(frugal_settings(f)->optimizer.weight_decay == (rig_optimizers[i] == FRUGAL_ADAMW ? 0.01f : 0));
        frugal_close(f);
    }
}

/* >>own: each table takes its steps by its own settings, at the host and in caches */

static frugal_optimizer own_settings(frugal_optimizer_kind kind, int which) {
    frugal_optimizer o = {.kind = kind};
    if (which == 0 || which == 5) o.weight_decay = 0.25f;
    if (which == 1 || which == 5) o.lr_scale = 0.3f;
    if (which == 2 || which == 5) o.beta1 = 0.5f, o.beta2 = 0.75f;
    if (which == 3) o.eps = 0.125f;
    if (which == 4) o.initial_accumulator = 0.5f;
    return o;
}

static void test_tables_have_their_own_settings(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS * 6 * 6; i++) {
        frugal_optimizer_kind kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS];
        int how = i / (6 * FRUGAL_OPTIMIZER_KINDS);
        frugal_optimizer own = own_settings(kind, i / FRUGAL_OPTIMIZER_KINDS % 6), other = own_settings(kind, 0);
        frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
        tables[i % 3 == 1 ? 0 : 1].optimizer = &own;
        if (i % 3 == 2) tables[0].optimizer = &other;
        rig r = {.cache = {.cache_rows = how % 2 ? 40 : 0}};
        frugal_desc d = rig_desc();
        d.tables = tables, d.optimizer = (frugal_optimizer){.kind = kind, .lr_scale = i % 2 ? 0 : 1.5f};
        d.mode = how == 2 ? FRUGAL_SYNC : FRUGAL_P2F;
        d.workers = how == 2 || how == 3 ? 2 : 0, d.defer = how >= 4;
        d.reduce = i % 5 ? FRUGAL_SUM : FRUGAL_MEAN;
        d.first_step = i % 7 ? 0 : 5;
        rig_open(&r, &d);
        rig_finish(&r, 12);
    }
}

/* All that devices must agree on is the rate of the step; what becomes of it is the tables'. */
static void test_scaled_rates_are_one_rate(void **state) {
    (void)state;
    rig r = {0};
    frugal_optimizer own = {.kind = FRUGAL_ADAGRAD, .lr_scale = 0.5f};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    tables[0].optimizer = &own;
    frugal_desc d = rig_desc();
    d.tables = tables;
    rig_open(&r, &d);
    for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
    for (uint32_t i = 0; i < 2; i++) rig_lookup(&r, i);
    rig_update(&r, 0);
    frugal_gradients halved = rig_gradients(&r, 1);
    halved.lr = r.lr * 0.5f; /* as the first table takes it */
    assert_int_equal(FRUGAL_ERR_SETTINGS, frugal_update(r.f, 1, 0, &halved));
    assert_non_null(strstr(frugal_message(), "0.125"));
    rig_update(&r, 1);
    rig_judge(&r, 0);
    rig_finish(&r, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_resolved),
        cmocka_unit_test(test_groups_of_tables),
        cmocka_unit_test(test_default_decay),
        cmocka_unit_test(test_state_floats),
        cmocka_unit_test(test_staging_budget),
        cmocka_unit_test(test_tables_have_their_own_settings),
        cmocka_unit_test(test_scaled_rates_are_one_rate),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
