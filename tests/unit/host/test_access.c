/* test_access.c - rows in and out between steps: reading, writing, a view. What caches serve is in test_cpu.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "src/device.h"
#include "tests/case.h"
#include "tests/rig.h"

static void test_read_and_write_rows(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 200}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 6);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    int64_t signed_keys[] = {19, 0, 3}; /* as other libraries have them */
    frugal_keys k = {.table = 1, .keys = (const uint64_t *)(const void *)signed_keys, .n = 3};
    float weights[15], states[15], read[15];
    for (int i = 0; i < 15; i++) weights[i] = 100 + (float)i, states[i] = 200 + (float)i;
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &k, weights, NULL));
    for (int i = 0; i < 3; i++) memcpy(r.ref.weights + (40 + signed_keys[i]) * 5, weights + 5 * i, 20);
    rig_compare(&r); /* the state is as it was */
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &k, NULL, states));
    for (int i = 0; i < 3; i++) memcpy(r.ref.state + (40 + signed_keys[i]) * 5, states + 5 * i, 20);
    rig_compare(&r);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &k, read, NULL));
    assert_memory_equal(weights, read, sizeof(read));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &k, NULL, read));
    assert_memory_equal(states, read, sizeof(read));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &k, NULL, NULL));
    frugal_keys none = {.table = 0, .keys = NULL, .n = 0};
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &none, NULL, NULL));
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &none, NULL, NULL));
    rig_finish(&r, 6); /* whatever a cache holds of those rows is not used */
}

/* State is passed over where the optimizer has none. */
static void test_state_of_an_optimizer_without(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    uint64_t key = 7;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    float given[5] = {1, 2, 3, 4, 5}, read[5] = {-1, -2, -3, -4, -5}, before[5];
    memcpy(before, read, sizeof(read));
    d.optimizer.kind = FRUGAL_SGD;
    rig_open(&r, &d);
    rig_train(&r, 3);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &keys, NULL, given));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &keys, NULL, read));
    assert_memory_equal(before, read, sizeof(read));
    rig_finish(&r, 3);
}

/* Rows that every device holds a copy of are written: no lookup sees the old values. */
static void test_written_rows_are_not_served_from_caches(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 1000}, .repeat = 1};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    rig_train(&r, 3);
    frugal_stats before, after;
    frugal_get_stats(r.f, &before);
    assert_true(before.hits > 0);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    uint64_t keys[40];
    float weights[40 * 5];
    frugal_keys k = {.table = 0, .keys = keys, .n = 40};
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    for (int i = 0; i < 200; i++) weights[i] = -3 + (float)i;
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &k, weights, NULL));
    memcpy(r.ref.weights, weights, sizeof(weights));
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    rig_train(&r, 1);
    frugal_get_stats(r.f, &after);
    assert_true(after.misses > before.misses);
    rig_finish(&r, 3);
}

/* >>rows written beside the copies of one device that updates in place: no word says that those are outdated */

/* Writes two rows that every step reads, the first and the last of more keys than a device is told of at a time; all
 * between are one row that nobody reads. */
static void write_many(rig *r) {
    enum { MANY = 3000 };
    static uint64_t keys[MANY];
    static float weights[MANY * 5], states[MANY * 5];
    int is_read[40] = {0};
    uint64_t last = r->rows[0][0], other = 0;
    for (uint32_t i = 0; i < r->n[0]; i++)
        if (r->rows[0][i] < 40) is_read[last = r->rows[0][i]] = 1;
    while (is_read[other]) other++;
    for (uint32_t i = 0; i < MANY; i++) keys[i] = i == 0 ? r->rows[0][0] : i == MANY - 1 ? last : other;
    assert_true(keys[0] < 40 && keys[0] != last && other < 40);
    for (uint64_t i = 0; i < MANY * 5; i++) weights[i] = -7 + (float)keys[i / 5], states[i] = 1 + (float)keys[i / 5];
    frugal_keys k = {.table = 0, .keys = keys, .n = MANY};
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r->f, &k, weights, states));
    for (uint32_t i = 0; i < MANY; i++) {
        memcpy(r->ref.weights + keys[i] * 5, weights + i * 5, 20);
        memcpy(r->ref.state + keys[i] * 5, states + i * 5, 20);
    }
}

/* Every step reads the same rows, all of which have copies. Those of the rows that are written are read anew; or all
 * are dropped. */
static void check_written(rig *r, int drops_all) {
    frugal_stats before, after;
    rig_train(r, 3);
    assert_int_equal(FRUGAL_OK, frugal_drain(r->f));
    write_many(r);
    assert_int_equal(FRUGAL_OK, frugal_verify(r->f));
    frugal_get_stats(r->f, &before);
    rig_train(r, 1); /* compares what is looked up */
    frugal_get_stats(r->f, &after);
    uint64_t rows = after.unique_rows - before.unique_rows, hits = drops_all ? 0 : rows;
    assert_int_equal(hits, after.hits - before.hits);
    assert_int_equal(rows - hits, after.misses - before.misses);
    rig_train(r, 1); /* and all of them have copies again */
    frugal_get_stats(r->f, &before);
    assert_int_equal(rows, before.hits - after.hits);
    rig_finish(r, 2);
}

static void test_written_beside_one_in_place(void **state) {
    rig r = {.cache = {.cache_rows = 1000, .policy = FRUGAL_CACHE_LRU}, .repeat = 1};
    frugal_desc d = rig_desc();
    d.devices = 1, d.alone = (frugal_alone)(intptr_t)*state;
    rig_open(&r, &d);
    check_written(&r, 0);
}

/* A device of somebody else's, that updates in place, has copies of all that it has read, and knows only how to drop
 * them all. */
typedef struct memo {
    frugal *f;
    float copies[60 * 5];
    uint8_t has[60];
    int empties;
} memo;

static frugal_status memo_lookup(void *device, const frugal_step *step, void *rows) {
    memo *m = device;
    const frugal_store *store = frugal_get_store(m->f);
    const frugal_records *r = &step->records;
    uint64_t hits = 0;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t row = r->rows[u];
        int is_hit = m->has[row] && frugal_copy_is_current(step->valid, u);
        if (!is_hit) memcpy(m->copies + 5 * row, frugal_row_at(store, row), 20);
        m->has[row] = 1, hits += (uint64_t)is_hit;
        for (uint32_t i = r->start[u]; i < r->start[u + 1]; i++)
            memcpy((float *)rows + r->order[i] * step->stride, m->copies + 5 * row, 20);
    }
    frugal_count_hits(m->f, 0, hits, r->n_unique - hits);
    return FRUGAL_OK;
}
static frugal_status memo_update(void *device, const frugal_step *step, const void *grads) {
    memo *m = device;
    const frugal_store *store = frugal_get_store(m->f);
    const frugal_records *r = &step->records;
    frugal_update_rows(store, step, NULL, grads, 0, r->n_unique);
    for (uint32_t u = 0; u < r->n_unique; u++)
        memcpy(m->copies + 5 * r->rows[u], (float *)frugal_row_at(store, r->rows[u]), 20);
    return FRUGAL_OK;
}
static int memo_verify(void *device) {
    const memo *m = device;
    const frugal_store *store = frugal_get_store(m->f);
    for (uint32_t x = 0; x < 60; x++)
        if (m->has[x] && !frugal_are_same(m->copies + 5 * x, (float *)frugal_row_at(store, x), 5)) return 0;
    return 1;
}
static void memo_empty(void *device) {
    memo *m = device;
    memset(m->has, 0, sizeof m->has);
    m->empties++;
}
static void memo_close(void *device) {
    (void)device;
}
static int memo_in_place(void *device) {
    (void)device;
    return 1;
}

static void test_written_beside_one_without_drop(void **state) {
    (void)state;
    static const frugal_device_ops ops = {.lookup = memo_lookup,
                                          .update = memo_update,
                                          .verify = memo_verify,
                                          .empty = memo_empty,
                                          .close = memo_close,
                                          .updates_in_place = memo_in_place};
    rig r = {.lr = 0.125f, .repeat = 1};
    memo m = {0};
    frugal_desc d = rig_desc();
    d.devices = 1, d.alone = FRUGAL_ALONE_PLACE;
    d.allocate = test_allocate, d.release = test_release, d.user = &r.counter;
    r.f = m.f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_attach(r.f, 0, &ops, &m));
    r.desc = *frugal_settings(r.f);
    rig_start(&r);
    check_written(&r, 1);
    assert_true(m.empties > 0);
}

/* Reading touches no cache, between steps and with steps announced and updates not flushed. */
static void test_reading_between_steps(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 1000}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    for (int i = 0; i < 8; i++) {
        rig_train(&r, 1);
        rig_announce(&r, 0), rig_announce(&r, 1);
        rig_announce(&r, 0);
        frugal_stats before, after;
        frugal_get_stats(r.f, &before);
        rig_compare(&r);
        frugal_get_stats(r.f, &after);
        assert_true(before.hits == after.hits && before.misses == after.misses && before.keys == after.keys);
        rig_announce(&r, 1);
        rig_train(&r, 1);
    }
    rig_finish(&r, 1);
}

/* A step that not all devices have committed is not read yet. */
static void test_reading_as_of_the_last_committed_step(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 3);
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    rig_update(&r, 1);
    rig_compare(&r);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    rig_compare(&r);
    rig_update(&r, 0);
    rig_judge(&r, 0);
    rig_finish(&r, 2);
}

static void test_view(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 5);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    for (uint32_t t = 0; t < 2; t++) {
        const void *weights;
        uint64_t stride;
        assert_int_equal(FRUGAL_OK, frugal_view(r.f, t, &weights, &stride));
        for (uint64_t i = 0; i < d.tables[t].rows; i++)
            assert_memory_equal((const float *)weights + i * stride, r.ref.weights + (40 * t + i) * 5, 20);
    }
    rig_finish(&r, 2);
}

/* Reading flushes the rows that it reads, and no other. */
static void test_reading_flushes_what_it_reads(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_stats before, after;
    uint64_t key, stride;
    const void *view;
    float row[5] = {0};
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    d.defer = 1;
    rig_open(&r, &d);
    rig_train(&r, 3);
    frugal_get_stats(r.f, &before);
    key = r.rows[0][0];
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &keys, row, NULL));
    assert_memory_equal(r.ref.weights + key * 5, row, sizeof(row));
    frugal_get_stats(r.f, &after);
    assert_int_equal(before.flushed + 1, after.flushed);
    assert_int_equal(FRUGAL_ERR_BUSY, frugal_view(r.f, 0, &view, &stride)); /* all is closed, not all is flushed */
    assert_int_equal(FRUGAL_ERR_BUSY, frugal_write_rows(r.f, &keys, row, NULL));
    assert_int_equal(FRUGAL_ERR_BUSY, frugal_verify(r.f));
    rig_compare(&r);
    assert_int_equal(FRUGAL_OK, frugal_view(r.f, 0, &view, &stride)); /* every row was read */
    rig_finish(&r, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_and_write_rows),
        cmocka_unit_test(test_state_of_an_optimizer_without),
        cmocka_unit_test(test_written_rows_are_not_served_from_caches),
        CASE("written beside one in place", test_written_beside_one_in_place, FRUGAL_ALONE_PLACE),
        CASE("written beside one that keeps", test_written_beside_one_in_place, FRUGAL_ALONE_KEPT),
        cmocka_unit_test(test_written_beside_one_without_drop),
        cmocka_unit_test(test_reading_between_steps),
        cmocka_unit_test(test_reading_as_of_the_last_committed_step),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_reading_flushes_what_it_reads),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
