/* test_keep.c - devices that keep updates in their caches: the bits of the reference, what crosses to host memory, and
 * everybody who has rows written back: recalls, evictions, drains, reads, cancelled steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/alone.h"

/* >>bits */

/* All optimizers, both reductions, one to four devices, caches smaller and larger than a batch, all policies, no
 * lookahead and some, with workers, with lent threads and without any. */
static void test_bits(void **state) {
    uint64_t kept = 0, written = 0;
    for (unsigned i = 0; i < 72; i++) {
        rig r = {0};
        frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
        d.optimizer.kind = (frugal_optimizer_kind)(intptr_t)*state;
        d.optimizer.weight_decay = i % 5 == 0 ? 0.01f : 0;
        d.reduce = i % 2 ? FRUGAL_MEAN : FRUGAL_SUM;
        d.devices = 1 + i / 2 % RIG_DEVICES;
        d.lookahead = i % 3 ? 3 : 0;
        d.workers = i / 8 % 3 == 1 ? 2 : 0, d.defer = i / 8 % 3 == 2;
        r.cache.cache_rows = (uint64_t[]){0, 8, 24, 64}[i / 24 + i % 2];
        r.cache.policy = (frugal_cache_policy)(i % 3);
        rig_open(&r, &d);
        rig_train(&r, 8);
        frugal_stats s = stats_of(&r);
        uint64_t now = s.kept_now;
        rig_drain(&r);
        s = stats_of(&r);
        assert_true(s.kept <= s.in_place && s.kept_now == 0 && now <= s.kept &&
                    (r.cache.cache_rows > 0 || s.kept == 0));
        kept += s.kept, written += s.written_back;
        rig_finish(&r, 2);
    }
    assert_true(kept > 0 && written > 0);
}

/* A frozen table is never kept, and its neighbour is. */
static void test_frozen(void **state) {
    (void)state;
    frugal_optimizer frozen = {.kind = FRUGAL_ADAM, .frozen = 1};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    for (int which = 0; which < 2; which++) {
        rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
        frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
        d.devices = 1;
        tables[which].optimizer = &frozen, tables[1 - which].optimizer = NULL;
        d.tables = tables, d.optimizer.kind = FRUGAL_ADAM;
        rig_open(&r, &d);
        rig_train(&r, 6);
        frugal_stats s = stats_of(&r);
        assert_true(s.kept > 0 && s.kept < s.in_place && s.kept_now <= tables[1 - which].rows);
        rig_finish(&r, 2);
    }
}

/* >>what crosses */

/* A device that is alone and has all its rows in its cache reads and writes nothing any more, until it is drained. Then
 * its copies stay, and are current. */
static void test_nothing_crosses(void **state) {
    (void)state;
    rig r = {.repeat = 1, .cache = {.cache_rows = 256, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    frugal_traffic before, after;
    const void *view;
    uint64_t stride;
    d.devices = 1;
    rig_open(&r, &d);
    rig_train(&r, 1);
    uint64_t rows = stats_of(&r).kept;
    assert_true(rows > 0 && stats_of(&r).kept_now == rows);
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, 0, NULL, &before));
    assert_int_equal(rows, before.rows[0]);
    assert_int_equal(0, before.rows[1] + before.rows[2] + before.bytes[1] + before.bytes[2]);
    rig_train(&r, 5);
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, 0, NULL, &after));
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(6 * rows, stats_of(&r).kept);
    assert_int_equal(0, stats_of(&r).written_back);
    while (frugal_help(r.f)) {
    } /* all is flushed */
    assert_fails(FRUGAL_ERR_BUSY, frugal_view(r.f, 0, &view, &stride), "keeps updates in its cache", "frugal_drain");
    assert_fails(FRUGAL_ERR_BUSY, frugal_verify(r.f), "verify", "frugal_drain");
    assert_fails(FRUGAL_ERR_BUSY, save_one(r.f, saved_path("save"), 0, 0), "save", "frugal_drain");
    assert_fails(FRUGAL_ERR_BUSY, frugal_release_holders(r.f), "release_holders", "frugal_drain");
    rig_drain(&r);
    assert_int_equal(0, stats_of(&r).kept_now);
    assert_int_equal(rows, stats_of(&r).written_back);
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, 0, NULL, &after));
    assert_int_equal(rows, after.rows[2]);
    assert_int_equal(rows * (5 + r.ref.state_floats) * 4, after.bytes[2]);
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    rig_compare(&r);
    rig_train(&r, 1);
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, 0, &after, NULL));
    assert_int_equal(0, after.rows[0] + after.rows[1]);
    assert_int_equal(rows, after.rows[2]); /* of the drain before this step */
    rig_finish(&r, 1);
}

/* A cache too small for the rows: what is evicted is written back without anybody asking. */
static void test_evictions(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 8, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    d.devices = 1;
    rig_open(&r, &d);
    rig_train(&r, 12);
    frugal_stats s = stats_of(&r);
    assert_true(s.kept > 0 && s.written_back > 0 && s.kept_now > 0 && s.kept_now <= 8);
    rig_finish(&r, 3);
}

/* >>recalls */

static void train_small(rig *r, uint32_t device, uint64_t step, const small_batch *b, float *rows) {
    assert_int_equal(FRUGAL_OK, frugal_lookup(r->f, device, step, rows));
    update_small(r, device, step, b);
}

/* Trains a step of two devices, and says what row 3 was, as the device that has it first saw it. */
static void step_small(rig *r, uint64_t step, const small_batch b[2], float *row) {
    float rows[4 * 5];
    for (uint32_t d = 0; d < 2; d++) announce_small(r, d, step, &b[d]);
    for (uint32_t d = 2; d-- > 0;) {
        train_small(r, d, step, &b[d], rows);
        if (b[d].n > 0 && b[d].keys[0] == 3) *row = rows[0];
    }
}

/* Device 0 keeps rows 3 and 7; device 1 announces 3, and only this one is written back, in time. A read-only
 * announcement recalls as well, and leaves the copy current. Who is alone again keeps again. */
static void test_recalls(void **state) {
    int workers = (int)(intptr_t)*state;
    rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    const small_batch none = {{0}, 0, 0}, both = {{3, 7}, 2, 0}, one = {{3}, 1, 0}, read = {{3}, 1, 1};
    float first, now;
    d.optimizer.kind = FRUGAL_SGD, d.workers = (uint32_t)workers;
    rig_open(&r, &d);
    const float *host = (float *)frugal_row_at(frugal_get_store(r.f), 3);
    step_small(&r, 0, (small_batch[]){both, none}, &first);
    assert_true(host[0] == first && stats_of(&r).kept_now == 2);
    step_small(&r, 1, (small_batch[]){none, read}, &now); /* recalled, and the holder stays */
    assert_true(now == first - 0.5f && host[0] == now && stats_of(&r).kept_now == 1);
    step_small(&r, 2, (small_batch[]){one, none}, &now); /* its copy is current: nothing is read */
    frugal_traffic traffic;
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, 0, &traffic, NULL));
    assert_int_equal(0, traffic.rows[0] + traffic.rows[1]);
    assert_true(now == first - 0.5f && host[0] == now && stats_of(&r).kept_now == 2);
    step_small(&r, 3, (small_batch[]){none, one}, &now); /* recalled, and kept by the other one */
    assert_true(now == first - 1 && host[0] == now && stats_of(&r).kept_now == 2);
    step_small(&r, 4, (small_batch[]){one, one}, &now); /* recalled, and shared */
    assert_true(now == first - 1.5f && stats_of(&r).kept_now == 1);
    step_small(&r, 5, (small_batch[]){one, none}, &now);
    assert_true(now == first - 2.5f && stats_of(&r).kept_now == 2);
    frugal_stats s = stats_of(&r);
    assert_int_equal(5, s.kept); /* 3 and 7 at 0; 3 at 2, 3 and 5 */
    assert_int_equal(3, s.written_back);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_true(host[0] == first - 3);
    rig_free(&r);
}

/* A device that updates rows in place and cannot keep updates: there is nothing to write back when its rows are
 * recalled, and the others' lookups go on. */
static frugal_status plain_lookup(void *device, const frugal_step *step, void *rows) {
    frugal_gather(frugal_get_store(device), &step->records, rows, step->stride, step->as);
    return FRUGAL_OK;
}
static frugal_status plain_update(void *device, const frugal_step *step, const void *grads) {
    frugal_update_rows(frugal_get_store(device), step, NULL, grads, 0, step->records.n_unique);
    return FRUGAL_OK;
}
static int plain_updates_in_place(void *device) {
    (void)device;
    return 1;
}
static void plain_close(void *device) {
    (void)device;
}

static void test_recalled_from_one_that_keeps_none(void **state) {
    (void)state;
    static const frugal_device_ops ops = {.lookup = plain_lookup,
                                          .update = plain_update,
                                          .updates_in_place = plain_updates_in_place,
                                          .close = plain_close};
    const small_batch none = {{0}, 0, 0}, both = {{3, 7}, 2, 0}, one = {{3}, 1, 0};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    rig r = {0};
    float first, now;
    d.optimizer.kind = FRUGAL_SGD;
    r.f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_attach(r.f, 0, &ops, r.f));
    assert_int_equal(FRUGAL_OK,
                     frugal_cpu_attach(r.f, 1, &(frugal_cpu_desc){.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}));
    step_small(&r, 0, (small_batch[]){both, none}, &first);
    assert_int_equal(0, stats_of(&r).kept);
    step_small(&r, 1, (small_batch[]){none, one}, &now);
    assert_true(now == first - 0.5f && stats_of(&r).kept_now == 1);
    step_small(&r, 2, (small_batch[]){one, none}, &now);
    assert_true(now == first - 1 && stats_of(&r).kept_now == 0);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    frugal_stats s = stats_of(&r);
    assert_true(s.in_place == 4 && s.kept == 1 && s.written_back == 1);
    assert_int_equal(FRUGAL_OK, frugal_close(r.f));
}

/* Reading has the rows written back that are read, and no others. */
static void test_reading(void **state) {
    (void)state;
    rig r = {.repeat = 1, .cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    d.devices = 1;
    rig_open(&r, &d);
    rig_train(&r, 3);
    rig_batch b = rig_batch_of(&r, 0, 0);
    uint64_t kept = stats_of(&r).kept_now;
    frugal_keys keys = {.table = 0, .keys = b.keys, .n = 1};
    float row[5];
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &keys, row, NULL));
    assert_memory_equal(row, r.ref.weights + b.keys[0] * 5, sizeof row);
    assert_int_equal(kept - 1, stats_of(&r).kept_now);
    rig_compare(&r);
    assert_int_equal(0, stats_of(&r).kept_now);
    rig_finish(&r, 2);
}

/* >>stopping */

/* After a stop nothing more is trained, and draining says so; but what devices keep is written back. */
static void test_stop(void **state) {
    int middle = (int)(intptr_t)*state;
    rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    const small_batch batches[2] = {{{3, 7}, 2, 0}, {{9}, 1, 0}};
    float before[40 * 5], rows[4 * 5];
    d.optimizer.kind = FRUGAL_SGD;
    rig_open(&r, &d);
    memcpy(before, r.ref.weights, sizeof before);
    const frugal_store *store = frugal_get_store(r.f);
    for (uint32_t i = 0; i < 2; i++) announce_small(&r, i, 0, &batches[i]);
    train_small(&r, 0, 0, &batches[0], rows);
    if (!middle) train_small(&r, 1, 0, &batches[1], rows);
    frugal_stop(r.f);
    assert_int_equal(middle ? 2 : 3, stats_of(&r).kept_now);
    assert_int_equal(middle ? FRUGAL_ERR_BUSY : FRUGAL_STOPPED, frugal_drain(r.f));
    assert_int_equal(0, stats_of(&r).kept_now);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t row = (uint32_t[]){3, 7, 9}[i];
        float lacks = row == 9 && middle ? 0 : 0.5f;
        assert_true(*(float *)frugal_row_at(store, row) == before[row * 5] - lacks);
    }
    rig_free(&r);
}

/* >>traffic */

/* What a step read and wrote is asked for behind its update, while workers do recalls of the next one. */
static void test_traffic_beside_recalls(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    d.workers = 2;
    rig_open(&r, &d);
    for (int step = 0; step < 200; step++) {
        while (r.announced[1] < r.step + 3)
            for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
        for (uint32_t i = 0; i < 2; i++) rig_lookup(&r, i);
        for (uint32_t i = 0; i < 2; i++) {
            frugal_traffic last, total;
            frugal_stats s = stats_of(&r);
            rig_update(&r, i);
            assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, i, &last, &total));
            assert_true(last.rows[0] + last.rows[1] > 0 || stats_of(&r).kept > s.kept);
            assert_true(total.rows[2] >= last.rows[2]);
        }
        rig_judge(&r, 0);
    }
    rig_drain(&r);
    uint64_t back = 0;
    for (uint32_t i = 0; i < 2; i++) {
        frugal_traffic total;
        assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, i, NULL, &total));
        back += total.rows[2];
    }
    assert_int_equal(stats_of(&r).written_back, back);
    rig_finish(&r, 2);
}

/* A view that is asked for until it is given, while a worker does recalls, shows whole rows. */
static void test_view_beside_recalls(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++) {
        rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
        frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
        const small_batch all = {{3, 5, 7, 9}, 4, 0}, none = {{0}, 0, 0}, *first[2] = {&all, &none};
        const void *view;
        float before[40 * 5], rows[4 * 5];
        uint64_t stride;
        d.optimizer.kind = FRUGAL_SGD, d.workers = 1;
        rig_open(&r, &d);
        memcpy(before, r.ref.weights, sizeof before);
        for (uint32_t i = 0; i < 2; i++) announce_small(&r, i, 0, first[i]);
        for (uint32_t i = 0; i < 2; i++) announce_small(&r, i, 1, first[1 - i]);
        for (uint32_t i = 0; i < 2; i++) train_small(&r, i, 0, first[i], rows);
        while (frugal_view(r.f, 0, &view, &stride) != FRUGAL_OK) frugal_help(r.f);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(((const float *)view)[all.keys[i] * stride] == before[all.keys[i] * 5] - 0.5f);
        rig_free(&r);
    }
}

/* >>cancelling */

static void cancel_at(rig *r, uint64_t step) {
    assert_int_equal(FRUGAL_OK, frugal_cancel(r->f, step));
    for (uint32_t d = 0; d < r->desc.devices; d++)
        if (r->announced[d] > step) r->announced[d] = step;
}

/* A cancelled step has taken holders away while their devices keep updates, of this step or of one before that is
 * yet to be trained. All is written back before its gate opens. */
static void test_cancel(void **state) {
    int ahead = (int)(intptr_t)*state;
    for (uint32_t devices = 1; devices <= RIG_DEVICES; devices++) {
        rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
        frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
        d.devices = devices, d.workers = devices % 2;
        rig_open(&r, &d);
        for (int round = 0; round < 8; round++) {
            rig_train(&r, 2);
            while (r.announced[devices - 1] < r.step + 3)
                for (uint32_t i = 0; i < devices; i++) rig_announce(&r, i);
            cancel_at(&r, r.step + (uint64_t)ahead);
            if (round % 2 == 0 || ahead == 2) continue;
            for (int again = 0; again < 2; again++) /* and once more, further on */
                for (uint32_t i = 0; i < devices; i++) rig_announce(&r, i);
            cancel_at(&r, r.step + (uint64_t)ahead + 1);
        }
        rig_finish(&r, 3);
    }
}

/* >>what is saved */

/* An increment has the rows that were kept when they changed. */
static void test_increments(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 64, .policy = FRUGAL_CACHE_LRU}};
    frugal_desc d = alone_desc(FRUGAL_ALONE_KEPT);
    d.increments = 1;
    rig_open(&r, &d);
    rig_train(&r, 3);
    rig_drain(&r);
    assert_int_equal(FRUGAL_OK, save_one(r.f, saved_path("base"), 0, 0));
    rig_train(&r, 3);
    assert_true(stats_of(&r).kept_now > 0);
    rig_drain(&r);
    assert_int_equal(FRUGAL_OK, save_one(r.f, saved_path("next"), 1, 0));
    const char *paths[] = {saved_path("base"), saved_path("next")};
    rig restored;
    rig_restore(&restored, &d, paths, 2);
    rig_same(&r, &restored);
    rig_finish(&restored, 2);
    rig_finish(&r, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define BITS(kind, word, name, ...) CASE("bits (" name ")", test_bits, FRUGAL_##kind),
        FRUGAL_OPTIMIZERS(BITS) cmocka_unit_test(test_frozen),
        SAVED_TEST(test_nothing_crosses),
        cmocka_unit_test(test_evictions),
        CASE("recalls", test_recalls, 0),
        CASE("recalls (workers)", test_recalls, 2),
        cmocka_unit_test(test_recalled_from_one_that_keeps_none),
        cmocka_unit_test(test_reading),
        CASE("a stop between steps", test_stop, 0),
        CASE("a stop in the middle of a step", test_stop, 1),
        cmocka_unit_test(test_traffic_beside_recalls),
        cmocka_unit_test(test_view_beside_recalls),
        CASE("a cancelled step", test_cancel, 0),
        CASE("a cancelled step, one behind the next", test_cancel, 1),
        CASE("a cancelled step, two behind the next", test_cancel, 2),
        SAVED_TEST(test_increments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
