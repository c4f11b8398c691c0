/* test_place.c - rows that one device alone touches are updated by it, in place: the bits of the reference, what is
 * counted, and what the calls that read the table say in the middle of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/alone.h"

/* >>bits */

/* All optimizers, both reductions, one to four devices, caches smaller and larger than a batch, no lookahead and some,
 * with workers, with lent threads and without any. */
static void test_bits(void **state) {
    frugal_optimizer_kind kind = (frugal_optimizer_kind)(intptr_t)*state;
    for (unsigned i = 0; i < 48; i++) {
        rig r = {0};
        frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
        d.optimizer.kind = kind;
        d.optimizer.weight_decay = i % 5 == 0 ? 0.01f : 0;
        d.reduce = i % 2 ? FRUGAL_MEAN : FRUGAL_SUM;
        d.devices = 1 + i / 2 % RIG_DEVICES;
        d.lookahead = i % 3 ? 3 : 0;
        d.workers = i / 8 % 3 == 1 ? 2 : 0, d.defer = i / 8 % 3 == 2;
        r.cache.cache_rows = (uint64_t[]){0, 8, 24, 64}[i / 24 + (i % 2) * 2];
        r.cache.policy = (frugal_cache_policy)(i % 2);
        rig_open(&r, &d);
        rig_train(&r, 6);
        frugal_stats s = stats_of(&r);
        assert_true(s.in_place > 0 && s.in_place <= s.alone);
        assert_true(d.devices == 1 ? s.shared == 0 : s.shared > 0);
        rig_finish(&r, 2);
    }
}

/* Some batches of device 1 bring nothing, some are empty. */
static void vary(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    if (device == 1 && step % 3 == 1) b->brings = 0;
    if (device == 1 && step % 3 == 2) b->n = b->split = 0;
}

static void test_without_gradients(void **state) {
    (void)state;
    rig r = {.change = vary};
    frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
    rig_open(&r, &d);
    rig_train(&r, 3); /* both bring; device 1 brings nothing; device 1 has no keys */
    frugal_stats s = stats_of(&r);
    assert_true(s.in_place < s.alone);
    rig_finish(&r, 6);
}

/* A frozen table does not change, and its neighbour, with settings of its own, does. */
static void test_frozen_and_own_settings(void **state) {
    (void)state;
    frugal_optimizer frozen = {.kind = FRUGAL_ADAM, .frozen = 1}, own = {.kind = FRUGAL_ADAM, .lr_scale = 0.5f};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    for (int which = 0; which < 2; which++) {
        rig r = {0};
        frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
        tables[which].optimizer = &frozen, tables[1 - which].optimizer = &own;
        d.tables = tables, d.optimizer.kind = FRUGAL_ADAM;
        rig_open(&r, &d);
        rig_finish(&r, 6);
    }
}

/* >>who is alone */

/* A row that another device reads, even read-only, is not alone: the reader sees it as of the step before, although the
 * device that brings gradients updates first. A row that it alone has is updated when frugal_update returns. */
static void test_readers_count(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
    small_batch b[2] = {{{3, 5, 7}, 3, 0}, {{5, 9}, 2, 1}};
    float rows[4 * 5], before[40 * 5];
    d.optimizer.kind = FRUGAL_SGD;
    rig_open(&r, &d);
    memcpy(before, r.ref.weights, sizeof before);
    for (uint32_t i = 0; i < 2; i++) announce_small(&r, i, 0, &b[i]);
    assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, 0, 0, rows));
    update_small(&r, 0, 0, &b[0]);
    const float *host = frugal_get_store(r.f)->weights;
    uint64_t stride = frugal_get_store(r.f)->weights_stride;
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(host[3 * stride + i] == before[3 * 5 + i] - 0.5f);
        assert_true(host[5 * stride + i] == before[5 * 5 + i]);
        assert_true(host[7 * stride + i] == before[7 * 5 + i] - 0.5f);
    }
    assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, 1, 0, rows));
    assert_memory_equal(rows, before + 5 * 5, 4 * 5);
    assert_memory_equal(rows + 5, before + 9 * 5, 4 * 5);
    update_small(&r, 1, 0, &b[1]);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    for (uint32_t i = 0; i < 5; i++) assert_true(host[5 * stride + i] == before[5 * 5 + i] - 0.5f);
    frugal_stats s = stats_of(&r);
    assert_int_equal(3, s.alone); /* 3 and 7; 9, which brings nothing */
    assert_int_equal(1, s.shared);
    assert_int_equal(2, s.in_place);
    assert_int_equal(1, s.flushed);
    rig_free(&r);
}

/* >>the middle of a step */

static void assert_in_the_middle(rig *r) {
    uint64_t key = 1;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    float row[5];
    const void *view;
    uint64_t stride;
    assert_fails(FRUGAL_ERR_BUSY, frugal_drain(r->f), "drain: in the middle of step 2, in which device 1", "every");
    assert_fails(FRUGAL_ERR_BUSY, frugal_read_rows(r->f, &keys, row, NULL), "read_rows", "FRUGAL_ALONE_STAGED");
    assert_fails(FRUGAL_ERR_BUSY, frugal_view(r->f, 0, &view, &stride), "view", "step 2");
    assert_fails(FRUGAL_ERR_BUSY, frugal_verify(r->f), "verify", "device 1");
    assert_fails(FRUGAL_ERR_BUSY, save_one(r->f, saved_path("save"), 0, 0), "save: in the middle", "step 2");
    assert_int_equal(0, saved_count());
}

/* One device has updated and another has not: what reads the table says so, and later steps can be cancelled. */
static void test_middle_of_a_step(void **state) {
    int which = (int)(intptr_t)*state;
    rig r = {0};
    frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
    d.workers = which % 2, d.defer = which / 2;
    rig_open(&r, &d);
    rig_train(&r, 2);
    for (int i = 0; i < 3; i++) rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    rig_update(&r, 1);
    assert_in_the_middle(&r);
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, 3));
    r.announced[0] = r.announced[1] = 3;
    assert_in_the_middle(&r);
    rig_update(&r, 0);
    rig_judge(&r, 0);
    rig_drain(&r);
    rig_compare(&r);
    assert_int_equal(FRUGAL_OK, save_one(r.f, saved_path("save"), 0, 0));
    rig_finish(&r, 5);
}

/* Staged, or without gradients, the table is that of the last whole step, also in the middle of one. */
static void test_middle_that_changed_nothing(void **state) {
    int staged = (int)(intptr_t)*state;
    rig r = {.change = vary};
    frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
    if (staged) d.alone = FRUGAL_ALONE_STAGED;
    rig_open(&r, &d);
    rig_train(&r, staged ? 3 : 1); /* device 1 brings nothing to step 1 */
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    rig_update(&r, 1);
    rig_drain(&r);
    rig_compare(&r);
    rig_update(&r, 0);
    rig_judge(&r, 0);
    rig_finish(&r, 4);
}

/* >>settings */

static void test_setting(void **state) {
    (void)state;
    frugal *f;
    frugal_desc d = rig_desc();
    d.alone = (frugal_alone)4;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_open(&d, &f), "alone is 4", "kept");
    d.alone = (frugal_alone)-1;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_open(&d, &f), "alone is -1", "staged");
    rig r = {0};
    d.alone = FRUGAL_ALONE_DEFAULT;
    rig_open(&r, &d); /* on host cores: in place */
    rig_train(&r, 3);
    assert_true(stats_of(&r).in_place > 0);
    rig_finish(&r, 1);
}

/* A table in a file is staged unless it is asked for: so a run that stops in the middle of a step leaves a clean file.
 * In place such a file is torn, and after a drained close it is clean. */
static void test_file(void **state) {
    (void)state;
    frugal_desc d = rig_desc();
    d.file = saved_path("table");
    for (int place = 0; place < 2; place++)
        for (int middle = 0; middle < 2; middle++) {
            rig r = {0};
            frugal *f;
            d.alone = place ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_DEFAULT;
            rig_open(&r, &d);
            assert_int_equal(place ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED, frugal_settings(r.f)->alone);
            rig_train(&r, 2);
            if (middle) {
                rig_announce(&r, 0), rig_announce(&r, 1);
                rig_lookup(&r, 0);
                rig_update(&r, 0);
            }
            assert_int_equal(place && middle ? FRUGAL_ERR_BUSY : FRUGAL_OK, frugal_drain(r.f));
            rig_free(&r);
            frugal_desc again = d;
            again.first_step = 2;
            int torn = place && middle;
            assert_int_equal(torn ? FRUGAL_ERR_FILE : FRUGAL_OK, frugal_open(&again, &f));
            if (torn) assert_non_null(strstr(frugal_message(), "torn"));
            frugal_close(f);
            remove(d.file);
        }
}

/* Rows updated in place are marked for increments; devices that bring nothing mark none. */
static void test_increments(void **state) {
    int which = (int)(intptr_t)*state;
    rig a = {.change = vary}, b;
    const char *paths[3] = {saved_path("save0"), saved_path("save1"), saved_path("save2")};
    frugal_optimizer frozen = {.kind = FRUGAL_ADAGRAD, .frozen = 1};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    frugal_desc d = alone_desc(which == 6 ? FRUGAL_ALONE_KEPT : FRUGAL_ALONE_PLACE);
    tables[0].optimizer = &frozen;
    d.tables = which % 4 < 3 ? rig_tables : tables;
    d.devices = which < 4 ? 2 : 1;
    d.increments = 1, d.workers = which == 1, d.defer = which == 2;
    if (which > 4) a.cache.cache_rows = 8;
    rig_open(&a, &d);
    for (int i = 0; i < 3; i++) {
        rig_train(&a, 2);
        rig_save(&a, paths[i], i > 0);
    }
    assert_true(stats_of(&a).in_place > 0);
    rig_restore(&b, &d, paths, 3);
    rig_same(&a, &b);
    rig_finish(&b, 2);
    rig_finish(&a, 2);
}

static void skip_some(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r, (void)device;
    b->brings = step % 3 != 1;
}

/* One device alone has nothing to close. What a step leaves when it is closed, is left nevertheless: its rows are
 * counted, and the learning rate that it fixed for all processes is forgotten, before step s + 64 fixes its own. */
static void test_one_device(void **state) {
    (void)state;
    rig r = {.change = skip_some};
    char name[48];
    frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
    snprintf(name, sizeof name, "test_place.%ld", (long)getpid());
    d.devices = 1, d.workers = 1, d.name = name;
    rig_open(&r, &d);
    for (int i = 0; i < 150; i++) {
        r.lr = 0.125f / (float)(1 + i);
        rig_train(&r, 1);
    }
    frugal_stats s = stats_of(&r);
    assert_true(s.unique_rows > 0 && s.unique_rows == s.alone);
    assert_true(s.in_place > 0 && s.in_place < s.alone && s.flushed == 0);
    rig_finish(&r, 3);
}

/* Rows that a caller writes keep their places in the cache of one device, with what is written; also in a static cache,
 * which has no other rows than those that were preloaded. */
static void test_written_rows(void **state) {
    rig r = {.cache = {.cache_rows = 512, .policy = (frugal_cache_policy)(intptr_t)*state}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_PLACE);
    uint64_t keys[40];
    float *weights = calloc(40 * 5, sizeof *weights), *accumulated = calloc(40 * 5, sizeof *accumulated);
    d.devices = 1;
    rig_open(&r, &d);
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    for (uint32_t t = 0; t < 2; t++) {
        const frugal_keys all = {.table = t, .keys = keys, .n = t ? 20 : 40};
        assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &all));
    }
    rig_train(&r, 3);
    const frugal_keys written = {.table = 0, .keys = keys, .n = 40};
    for (int i = 0; i < 40 * 5; i++) weights[i] = (float)i, accumulated[i] = 1 + (float)i;
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &written, weights, accumulated));
    rig_read(&r, r.ref.weights, r.ref.state);
    assert_memory_equal(r.ref.weights, weights, 40 * 5 * sizeof *weights);
    uint64_t misses = stats_of(&r).misses;
    rig_train(&r, 3);
    assert_int_equal(misses, stats_of(&r).misses);
    free(weights), free(accumulated);
    rig_finish(&r, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("rows that are written (LRU)", test_written_rows, FRUGAL_CACHE_LRU),
        CASE("rows that are written (counted)", test_written_rows, FRUGAL_CACHE_COUNTED),
        CASE("rows that are written (static)", test_written_rows, FRUGAL_CACHE_STATIC),
#define BITS(kind, word, name, ...) CASE("bits (" name ")", test_bits, FRUGAL_##kind),
        FRUGAL_OPTIMIZERS(BITS) cmocka_unit_test(test_without_gradients),
        cmocka_unit_test(test_frozen_and_own_settings),
        cmocka_unit_test(test_readers_count),
        SAVED_CASE("the middle of a step", test_middle_of_a_step, 0),
        SAVED_CASE("the middle of a step (a worker)", test_middle_of_a_step, 1),
        SAVED_CASE("the middle of a step (lent threads)", test_middle_of_a_step, 2),
        CASE("a step in which nothing changed yet", test_middle_that_changed_nothing, 0),
        CASE("the middle of a step (staged)", test_middle_that_changed_nothing, 1),
        cmocka_unit_test(test_setting),
        SAVED_TEST(test_file),
        SAVED_CASE("increments", test_increments, 0),
        SAVED_CASE("increments (a worker)", test_increments, 1),
        SAVED_CASE("increments (lent threads)", test_increments, 2),
        SAVED_CASE("increments (a frozen table)", test_increments, 3),
        SAVED_CASE("increments (one device)", test_increments, 4),
        SAVED_CASE("increments (one device, a frozen table)", test_increments, 7),
        SAVED_CASE("increments (one device, with a cache)", test_increments, 5),
        SAVED_CASE("increments (one device that keeps updates)", test_increments, 6),
        cmocka_unit_test(test_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
