/* test_traffic.c - what devices on host cores count of the rows that cross between them and host memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/rig.h"
#include "tests/seed.h"

enum { STEPS = 9, DIM = 5, ROW = DIM * 4 };

static frugal_traffic last_of(const rig *r, uint32_t device) {
    frugal_traffic traffic;
    if (frugal_cpu_get_traffic(r->f, device, &traffic, NULL) != FRUGAL_OK) fail_msg("%s", frugal_message());
    return traffic;
}

static frugal_traffic total_of(const rig *r, uint32_t device) {
    frugal_traffic traffic;
    if (frugal_cpu_get_traffic(r->f, device, NULL, &traffic) != FRUGAL_OK) fail_msg("%s", frugal_message());
    return traffic;
}

/* Without a cache every unique row is a miss; each has its record. */
static void test_what_crosses_without_a_cache(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    frugal_traffic sum = {0}, last = last_of(&r, 0), total = total_of(&r, 0);
    assert_memory_equal(&sum, &last, sizeof sum); /* nothing so far */
    assert_memory_equal(&sum, &total, sizeof sum);
    for (uint64_t s = 0; s < STEPS; s++) {
        frugal_stats before, after;
        frugal_get_stats(r.f, &before);
        rig_train(&r, 1);
        frugal_get_stats(r.f, &after);
        uint64_t misses = after.misses - before.misses;
        last = last_of(&r, 0), total = total_of(&r, 0);
        assert_true(misses > 0 && misses == after.unique_rows - before.unique_rows);
        for (int way = 0; way < 2; way++) {
            assert_true(last.rows[way] == misses && last.bytes[way] == misses * ROW);
            sum.rows[way] += last.rows[way], sum.bytes[way] += last.bytes[way];
        }
        assert_memory_equal(&sum, &total, sizeof sum);
    }
    rig_finish(&r, 3);
}

/* With a cache the misses cross, and the optimizer state of those that get a copy: all under LRU, none under static.
 * Rows of 16 bits have half the bytes; state and records are floats. */
static void check_what_crosses(frugal_cache_policy policy, frugal_type rows_as) {
    rig r = {.cache = {.cache_rows = 16, .policy = policy}};
    frugal_desc d = rig_desc();
    uint64_t row = rows_as == FRUGAL_FP32 ? ROW : ROW / 2;
    d.devices = 1, d.rows_as = rows_as;
    rig_open(&r, &d);
    uint64_t hits = 0;
    for (uint64_t s = 0; s < STEPS; s++) {
        frugal_stats before, after;
        frugal_get_stats(r.f, &before);
        rig_train(&r, 1);
        frugal_get_stats(r.f, &after);
        uint64_t misses = after.misses - before.misses, state_rows = policy == FRUGAL_CACHE_STATIC ? 0 : misses;
        frugal_traffic last = last_of(&r, 0);
        hits += after.hits - before.hits;
        assert_true(last.rows[0] == misses &&
                    last.bytes[0] == misses * row + state_rows * ROW); /* Adagrad: a float for each weight */
        assert_true(last.rows[1] == after.unique_rows - before.unique_rows && last.bytes[1] == last.rows[1] * ROW);
    }
    assert_true((hits > 0) == (policy != FRUGAL_CACHE_STATIC));
    rig_finish(&r, 3);
}

static void test_what_crosses_with_a_cache(void **state) {
    for (int as = FRUGAL_FP32; as <= FRUGAL_FP16; as++)
        check_what_crosses((frugal_cache_policy)(intptr_t)*state, (frugal_type)as);
}

/* One device that updates in place: with each row its state is written. The number of rows is no multiple of 64. */
static void test_what_crosses_in_place(void **state) {
    uint64_t row = *state ? ROW / 2 : ROW; /* of 16 bits, or of floats */
    rig r = {0};
    frugal_desc d = rig_desc();
    d.devices = 1, d.alone = FRUGAL_ALONE_PLACE, d.rows_as = *state ? FRUGAL_FP16 : FRUGAL_FP32;
    rig_open(&r, &d);
    for (uint64_t s = 0; s < STEPS; s++) {
        rig_train(&r, 1);
        frugal_traffic last = last_of(&r, 0);
        assert_in_range(last.rows[1], 1, 63);
        assert_int_equal(last.rows[0], last.rows[1]);
        assert_int_equal(last.rows[0] * row, last.bytes[0]);
        assert_int_equal(last.rows[1] * (row + ROW), last.bytes[1]); /* Adagrad: a float for each weight */
    }
    rig_finish(&r, 3);
}

/* An optimizer without state has none that crosses, although rows are copied into the cache. */
static void test_no_state_crosses_with_sgd(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 16}};
    frugal_desc d = rig_desc();
    d.optimizer.kind = FRUGAL_SGD;
    rig_open(&r, &d);
    rig_train(&r, STEPS);
    for (uint32_t k = 0; k < 2; k++) {
        frugal_traffic total = total_of(&r, k);
        assert_true(total.rows[0] > 0 && total.bytes[0] == total.rows[0] * ROW);
    }
    rig_finish(&r, 0);
}

static void change_to_nothing(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    if (step % 3 == 1) b->n = b->split = 0; /* no keys */
    b->brings = (step + device) % 2 == 0;   /* no gradients */
}

/* No keys: no rows. No gradients: no records. The first step has any number. */
static void test_what_does_not_cross(void **state) {
    (void)state;
    rig r = {.change = change_to_nothing};
    frugal_desc d = rig_desc();
    d.first_step = UINT64_C(12345678901);
    rig_open(&r, &d);
    for (int i = 0; i < STEPS; i++) {
        uint64_t step = r.step;
        rig_train(&r, 1);
        for (uint32_t k = 0; k < 2; k++) {
            frugal_traffic last = last_of(&r, k);
            assert_true((last.rows[0] > 0) == (step % 3 != 1) && (last.bytes[0] > 0) == (last.rows[0] > 0));
            assert_true((last.rows[1] > 0) == (step % 3 != 1 && (step + k) % 2 == 0));
            assert_true((last.bytes[1] > 0) == (last.rows[1] > 0));
        }
    }
    rig_finish(&r, 3);
}

/* A lookup that is repeated reads again. The last step is the one that was looked up last: until its update it has
 * written nothing. */
static void test_repeated_lookups(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    rig_train(&r, 1);
    frugal_traffic before = total_of(&r, 0);
    rig_announce(&r, 0);
    rig_lookup(&r, 0);
    frugal_traffic once = last_of(&r, 0);
    rig_lookup(&r, 0);
    frugal_traffic twice = last_of(&r, 0);
    assert_true(once.rows[0] > 0 && twice.rows[0] == 2 * once.rows[0] && twice.bytes[0] == 2 * once.bytes[0]);
    assert_true(twice.rows[1] == 0 && twice.bytes[1] == 0);
    rig_update(&r, 0);
    frugal_traffic updated = last_of(&r, 0), total = total_of(&r, 0);
    assert_true(updated.rows[0] == twice.rows[0] && updated.rows[1] == once.rows[0]);
    assert_true(total.rows[0] == before.rows[0] + updated.rows[0] &&
                total.bytes[1] == before.bytes[1] + updated.bytes[1]);
    rig_judge(&r, 0);
    rig_finish(&r, 2);
}

typedef struct trainer { /* of one device, on a thread of its own */
    frugal *f;
    uint32_t device;
} trainer;

static void *train_device(void *argument) {
    const trainer *t = argument;
    float rows[RIG_KEYS * DIM];
    const rig r = {.desc = {.tables = rig_tables, .n_tables = 2}};
    for (uint64_t s = 0, ahead = 0; s < STEPS; s++) {
        for (; ahead < STEPS && ahead <= s + 3; ahead++) { /* the lookahead of rig_desc */
            rig_batch b = rig_batch_of(&r, t->device, ahead);
            frugal_keys segments[2] = {{.table = 0, .keys = b.keys, .n = b.split},
                                       {.table = 1, .keys = b.keys + b.split, .n = b.n - b.split}};
            if (frugal_announce(t->f, t->device, ahead, &(frugal_batch){segments, 2, 0}) != FRUGAL_OK)
                return "announce";
        }
        if (frugal_lookup(t->f, t->device, s, rows) != FRUGAL_OK) return "lookup";
        if (frugal_update(t->f, t->device, s, &(frugal_gradients){.grads = rows, .lr = 0.125f}) != FRUGAL_OK)
            return "update";
    }
    return NULL;
}

typedef struct counts { /* of a training */
    frugal_traffic devices[4];
    uint64_t hits, misses, kept, written_back;
} counts;

static counts train_all(frugal_alone alone, int threads) {
    rig r = {.cache = {.cache_rows = 16, .policy = FRUGAL_CACHE_COUNTED}};
    frugal_desc d = rig_desc();
    frugal_stats stats;
    trainer trainers[4];
    pthread_t ids[4];
    d.devices = 4, d.workers = threads ? 2 : 0, d.alone = alone;
    rig_open(&r, &d);
    for (uint32_t k = 0; k < 4; k++) trainers[k] = (trainer){r.f, k};
    for (uint32_t k = 0; threads && k < 4; k++)
        assert_int_equal(0, pthread_create(&ids[k], NULL, train_device, &trainers[k]));
    for (uint32_t k = 0; threads && k < 4; k++) {
        void *failed;
        pthread_join(ids[k], &failed);
        if (failed) fail_msg("%s of device %u", (const char *)failed, k);
    }
    if (!threads) rig_train(&r, STEPS);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    frugal_get_stats(r.f, &stats);
    counts all = {.hits = stats.hits, stats.misses, stats.kept, stats.written_back};
    for (uint32_t k = 0; k < 4; k++) all.devices[k] = total_of(&r, k);
    rig_free(&r);
    return all;
}

/* Each device on a thread of its own that runs ahead, with workers, again and again: hits of counted caches, and what
 * crosses, are those of one thread without lookahead, because all that is decided is a function of the batches. */
static void test_threads_do_not_change_the_counts(void **state) {
    frugal_alone alone = (frugal_alone)(intptr_t)*state;
    counts one = train_all(alone, 0);
    for (int runs = test_is_short() ? 10 : 100; runs > 0; runs--) {
        counts threads = train_all(alone, 1);
        assert_memory_equal(&one, &threads, sizeof one);
    }
    assert_true(one.hits > 0 && one.misses > 0 && (one.written_back > 0) == (alone == FRUGAL_ALONE_KEPT));
    for (uint32_t k = 0; k < 4; k++) assert_true(one.devices[k].rows[0] > 0 && one.devices[k].rows[1] > 0);
}

static void assert_says(frugal_status status, frugal_status wanted, const char *text) {
    assert_int_equal(wanted, status);
    if (!strstr(frugal_message(), text)) fail_msg("'%s' does not say '%s'", frugal_message(), text);
}

static void test_devices_that_are_not_there(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_traffic traffic;
    d.allocate = test_allocate, d.release = test_release, d.user = &r.counter;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &r.f));
    assert_says(frugal_cpu_get_traffic(NULL, 0, &traffic, NULL), FRUGAL_ERR_ARGUMENT, "open");
    assert_says(frugal_cpu_get_traffic(r.f, 0, &traffic, NULL), FRUGAL_ERR_DEVICE, "device 0"); /* not attached */
    assert_says(frugal_cpu_get_traffic(r.f, 2, &traffic, NULL), FRUGAL_ERR_DEVICE, "device 2"); /* there is none */
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(r.f, 1, NULL));
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(r.f, 1, NULL, NULL)); /* either may be NULL, and both */
    frugal_close(r.f);
    assert_int_equal(0, (int)r.counter.blocks_out);
}

static frugal_status no_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static void no_close(void *device) {
    (void)device;
}

/* A device of another kind is not found, and does not disturb the counts of those beside it. */
static void test_devices_of_other_kinds(void **state) {
    (void)state;
    frugal_device_ops ops = {.lookup = no_lookup, .close = no_close};
    frugal_desc d = rig_desc();
    frugal_traffic traffic;
    frugal *f;
    int other;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    assert_null(frugal_get_device(f, 1, &ops));
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &ops, &other));
    assert_ptr_equal(&other, frugal_get_device(f, 1, &ops));
    assert_null(frugal_get_device(f, 0, &ops));
    assert_null(frugal_get_device(f, 2, &ops));
    assert_null(frugal_get_device(f, 1, NULL));
    assert_null(frugal_get_device(NULL, 1, &ops));
    assert_says(frugal_cpu_get_traffic(f, 1, &traffic, NULL), FRUGAL_ERR_DEVICE, "device 1");
    uint64_t key = 3;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    float rows[DIM];
    for (uint32_t k = 0; k < 2; k++)
        assert_int_equal(FRUGAL_OK, frugal_announce(f, k, 0, &(frugal_batch){&keys, 1, 0}));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, rows));
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(f, 0, &traffic, NULL));
    assert_true(traffic.rows[0] == 1 && traffic.bytes[0] == ROW && traffic.rows[1] == 0);
    frugal_close(f);
}

/* A failed open leaves an object that has no devices. */
static void test_no_devices_without_open(void **state) {
    (void)state;
    frugal_device_ops ops = {.close = no_close};
    frugal_desc d = rig_desc();
    test_counter counter = {.fail_at = 3};
    frugal *f;
    d.allocate = test_allocate, d.release = test_release, d.user = &counter;
    assert_int_equal(FRUGAL_ERR_MEMORY, frugal_open(&d, &f));
    assert_non_null(f);
    assert_null(frugal_get_device(f, 0, &ops));
    frugal_close(f);
    assert_int_equal(0, (int)counter.blocks_out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_crosses_without_a_cache),
        CASE("test_what_crosses_with_a_cache, LRU", test_what_crosses_with_a_cache, FRUGAL_CACHE_LRU),
        CASE("test_what_crosses_with_a_cache, static", test_what_crosses_with_a_cache, FRUGAL_CACHE_STATIC),
        CASE("test_what_crosses_in_place", test_what_crosses_in_place, 0),
        CASE("test_what_crosses_in_place, 16 bits", test_what_crosses_in_place, 1),
        cmocka_unit_test(test_no_state_crosses_with_sgd),
        cmocka_unit_test(test_what_does_not_cross),
        cmocka_unit_test(test_repeated_lookups),
        CASE("test_threads_do_not_change_the_counts, staged", test_threads_do_not_change_the_counts,
             FRUGAL_ALONE_STAGED),
        CASE("test_threads_do_not_change_the_counts, in place", test_threads_do_not_change_the_counts,
             FRUGAL_ALONE_PLACE),
        CASE("test_threads_do_not_change_the_counts, kept", test_threads_do_not_change_the_counts, FRUGAL_ALONE_KEPT),
        cmocka_unit_test(test_devices_that_are_not_there),
        cmocka_unit_test(test_devices_of_other_kinds),
        cmocka_unit_test(test_no_devices_without_open),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
