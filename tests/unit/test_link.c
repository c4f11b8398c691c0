/* test_link.c - the simulated link of src/cpu.c: what it counts, the time it makes of it, and that it changes nothing else. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "../rig.h"

static const frugal_link narrow = {.bandwidth = {1e9, 5e8}, .latency = 1e-5, .line = 16, .header = 6};

enum { STEPS = 9, DIM = 5, ROW = DIM * 4 };

static frugal_link_use last_of(const rig *r, uint32_t device) {
    frugal_link_use use;
    if (frugal_cpu_get_link(r->f, device, &use, NULL) != FRUGAL_OK) fail_msg("get_link: %s", frugal_message());
    return use;
}

static frugal_link_use total_of(const rig *r, uint32_t device) {
    frugal_link_use use;
    if (frugal_cpu_get_link(r->f, device, NULL, &use) != FRUGAL_OK) fail_msg("get_link: %s", frugal_message());
    return use;
}

static void test_formula(void **state) {
    (void)state;
    frugal_link link = narrow;
    assert_int_equal(0, (int)frugal_link_wire_bytes(&link, 0, 20));
    assert_int_equal(16 + 6, (int)frugal_link_wire_bytes(&link, 1, 16));
    assert_int_equal(3 * (17 + 2 * 6), (int)frugal_link_wire_bytes(&link, 3, 17));
    link.line = 0;
    assert_int_equal(3 * (17 + 6), (int)frugal_link_wire_bytes(&link, 3, 17)); /* whole rows */
    assert_true(frugal_link_seconds(&link, 0, 0, 1000) == 0);
    assert_true(frugal_link_seconds(&link, 0, 1000, 5000) == 1e-5 + 1000 / 1e9); /* no root: it does not matter */
    assert_true(frugal_link_seconds(&link, 1, 1000, 5000) == 1e-5 + 1000 / 5e8);
    link.root = 3, link.root_bandwidth[0] = 2e9, link.root_bandwidth[1] = 1e9;
    assert_true(frugal_link_seconds(&link, 0, 1000, 1500) == 1e-5 + 1000 / 1e9); /* its own link is slower */
    assert_true(frugal_link_seconds(&link, 0, 1000, 5000) == 1e-5 + 5000 / 2e9); /* the root is */
    assert_true(frugal_link_seconds(&link, 1, 1000, 5000) == 1e-5 + 5000 / 1e9);
}

/* Without a cache every unique row is a miss; each has its record. */
static void test_what_crosses_without_a_cache(void **state) {
    (void)state;
    rig r = {.cache = {.link = &narrow}};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    assert_int_equal(0, (int)last_of(&r, 0).rows[0]); /* nothing so far */
    assert_true(total_of(&r, 0).seconds[0] == 0);
    frugal_link_use sum = {0};
    for (uint64_t s = 0; s < STEPS; s++) {
        frugal_stats before, after;
        frugal_get_stats(r.f, &before);
        rig_train(&r, 1);
        frugal_get_stats(r.f, &after);
        uint64_t misses = after.misses - before.misses;
        frugal_link_use last = last_of(&r, 0), total = total_of(&r, 0);
        assert_true(misses > 0 && misses == after.unique_rows - before.unique_rows);
        for (int way = 0; way < 2; way++) {
            assert_true(last.rows[way] == misses && last.bytes[way] == misses * ROW);
            assert_true(last.wire_bytes[way] == misses * (ROW + 2 * 6));
            assert_true(last.seconds[way] == 1e-5 + (double)last.wire_bytes[way] / narrow.bandwidth[way]);
            sum.rows[way] += last.rows[way], sum.bytes[way] += last.bytes[way];
            sum.wire_bytes[way] += last.wire_bytes[way], sum.seconds[way] += last.seconds[way];
        }
        assert_memory_equal(&sum, &total, sizeof sum);
    }
    rig_finish(&r, 3);
}

/* With a cache the misses cross, and the optimizer state of those that get a copy: all under LRU, none under static. */
static void test_what_crosses_with_a_cache(void **state) {
    frugal_cache_policy policy = *(const frugal_cache_policy *)*state;
    rig r = {.cache = {.cache_rows = 16, .policy = policy, .link = &narrow}};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    uint64_t hits = 0;
    for (uint64_t s = 0; s < STEPS; s++) {
        frugal_stats before, after;
        frugal_get_stats(r.f, &before);
        rig_train(&r, 1);
        frugal_get_stats(r.f, &after);
        uint64_t misses = after.misses - before.misses, state_rows = policy == FRUGAL_STATIC ? 0 : misses;
        frugal_link_use last = last_of(&r, 0);
        hits += after.hits - before.hits;
        assert_true(last.rows[0] == misses &&
                    last.bytes[0] == (misses + state_rows) * ROW); /* Adagrad: as much state */
        assert_true(last.wire_bytes[0] == (misses + state_rows) * (ROW + 2 * 6));
        assert_true(last.rows[1] == after.unique_rows - before.unique_rows && last.bytes[1] == last.rows[1] * ROW);
    }
    assert_true((hits > 0) == (policy != FRUGAL_STATIC));
    rig_finish(&r, 3);
}

/* An optimizer without state has no requests for it, although rows are copied into the cache. */
static void test_no_state_crosses_with_sgd(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 16, .link = &narrow}};
    frugal_desc d = rig_desc();
    d.optimizer.kind = FRUGAL_SGD;
    rig_open(&r, &d);
    rig_train(&r, STEPS);
    for (uint32_t k = 0; k < 2; k++) {
        frugal_link_use total = total_of(&r, k);
        assert_true(total.bytes[0] == total.rows[0] * ROW && total.wire_bytes[0] == total.rows[0] * (ROW + 2 * 6));
    }
    rig_finish(&r, 0);
}

static void change_to_nothing(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    if (step % 3 == 1) b->n = b->split = 0; /* no keys */
    b->brings = (step + device) % 2 == 0;   /* no gradients */
}

/* No keys: no bytes, no time. No gradients: no records. The first step has any number. */
static void test_what_does_not_cross(void **state) {
    (void)state;
    rig r = {.cache = {.link = &narrow}, .change = change_to_nothing};
    frugal_desc d = rig_desc();
    d.first_step = UINT64_C(12345678901);
    rig_open(&r, &d);
    for (int i = 0; i < STEPS; i++) {
        uint64_t step = r.step;
        rig_train(&r, 1);
        for (uint32_t k = 0; k < 2; k++) {
            frugal_link_use last = last_of(&r, k);
            assert_true((last.rows[0] > 0) == (step % 3 != 1) && (last.seconds[0] > 0) == (step % 3 != 1));
            assert_true((last.rows[1] > 0) == (step % 3 != 1 && (step + k) % 2 == 0));
            assert_true((last.seconds[1] > 0) == (last.rows[1] > 0));
        }
    }
    rig_finish(&r, 3);
}

/* A lookup that is repeated reads again. */
static void test_repeated_lookups(void **state) {
    (void)state;
    rig r = {.cache = {.link = &narrow}};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    rig_announce(&r, 0);
    rig_lookup(&r, 0);
    frugal_link_use once = last_of(&r, 0);
    rig_lookup(&r, 0);
    frugal_link_use twice = last_of(&r, 0);
    assert_true(once.rows[0] > 0 && twice.rows[0] == 2 * once.rows[0] && twice.wire_bytes[0] == 2 * once.wire_bytes[0]);
    rig_update(&r, 0);
    rig_judge(&r, 0);
    rig_finish(&r, 2);
}

/* Devices 0 and 2 share root 7, device 1 has root 9 for itself, device 3 no root. */
static const uint32_t roots[] = {7, 9, 7, 0};

static frugal_link link_of(uint32_t device) {
    frugal_link link = narrow;
    link.root = roots[device];
    link.root_bandwidth[0] = 1.2e9, link.root_bandwidth[1] = 4e8;
    return link;
}

static void open_with_roots(rig *r, uint32_t cache_rows) {
    frugal_desc d = rig_desc();
    d.devices = 4;
    d.allocate = test_allocate, d.release = test_release, d.user = &r->counter;
    r->lr = 0.125f;
    if (frugal_open(&d, &r->f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    r->desc = *frugal_settings(r->f);
    for (uint32_t k = 0; k < 4; k++) {
        frugal_link link = link_of(k);
        frugal_cpu_desc cpu = {.cache_rows = cache_rows * k, .link = &link};
        assert_int_equal(FRUGAL_OK, frugal_cpu_attach(r->f, k, &cpu));
    }
    rig_start(r);
}

static void test_shared_root(void **state) {
    (void)state;
    rig r = {0};
    frugal_link_use sums[4] = {0};
    int root_is_slower = 0, root_is_not = 0;
    open_with_roots(&r, 8);
    for (int s = 0; s < STEPS; s++) {
        rig_train(&r, 1);
        frugal_link_use last[4];
        for (uint32_t k = 0; k < 4; k++) last[k] = last_of(&r, k);
        for (uint32_t k = 0; k < 4; k++) {
            frugal_link_use total = total_of(&r, k);
            frugal_link link = link_of(k);
            for (int way = 0; way < 2; way++) {
                uint64_t root = 0;
                for (uint32_t o = 0; o < 4; o++) root += roots[o] == roots[k] ? last[o].wire_bytes[way] : 0;
                double own = (double)last[k].wire_bytes[way] / link.bandwidth[way];
                double shared = link.root ? (double)root / link.root_bandwidth[way] : 0;
                assert_true(last[k].seconds[way] == 1e-5 + (own > shared ? own : shared));
                *(shared > own ? &root_is_slower : &root_is_not) = 1;
                sums[k].seconds[way] += last[k].seconds[way];
                assert_true(total.seconds[way] == sums[k].seconds[way]);
            }
        }
    }
    assert_true(root_is_slower && root_is_not);
    rig_finish(&r, 3);
}

/* Asked in the middle of a step: those that have not looked up move nothing yet. */
static void test_shared_root_in_the_middle(void **state) {
    (void)state;
    rig r = {0};
    open_with_roots(&r, 0);
    rig_train(&r, 2);
    for (uint32_t k = 0; k < 4; k++) rig_announce(&r, k);
    rig_lookup(&r, 0);
    frugal_link_use first = last_of(&r, 0);
    assert_true(first.seconds[0] ==
                1e-5 + (double)first.wire_bytes[0] / 1e9); /* alone its link is slower than the root */
    for (uint32_t k = 1; k < 4; k++) rig_lookup(&r, k);
    assert_true(last_of(&r, 0).seconds[0] > first.seconds[0]);
    for (uint32_t k = 0; k < 4; k++) rig_update(&r, k);
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
    for (uint64_t s = 0; s < STEPS; s++) {
        rig_batch b = rig_batch_of(&r, t->device, s);
        frugal_keys segments[2] = {{0, b.keys, b.split}, {1, b.keys + b.split, b.n - b.split}};
        if (frugal_announce(t->f, t->device, s, &(frugal_batch){segments, 2, 0}) != FRUGAL_OK) return "announce";
        if (frugal_lookup(t->f, t->device, s, rows) != FRUGAL_OK) return "lookup";
        if (frugal_update(t->f, t->device, s, &(frugal_gradients){.grads = rows, .lr = 0.125f}) != FRUGAL_OK)
            return "update";
    }
    return NULL;
}

/* Each device on a thread of its own, with workers: the same figures as on one thread without. */
static void test_threads_do_not_change_the_figures(void **state) {
    (void)state;
    frugal_link_use totals[2][4];
    for (int threads = 0; threads < 2; threads++) {
        rig r = {0};
        open_with_roots(&r, 0); /* what is current in a cache depends on who announces first */
        trainer trainers[4];
        pthread_t ids[4];
        for (uint32_t k = 0; k < 4; k++) trainers[k] = (trainer){r.f, k};
        for (uint32_t k = 0; threads && k < 4; k++)
            assert_int_equal(0, pthread_create(&ids[k], NULL, train_device, &trainers[k]));
        for (uint32_t k = 0; threads && k < 4; k++) {
            void *failed;
            pthread_join(ids[k], &failed);
            if (failed) fail_msg("%s of device %u", (const char *)failed, k);
        }
        if (!threads) rig_train(&r, STEPS);
        for (uint32_t k = 0; k < 4; k++) totals[threads][k] = total_of(&r, k);
        rig_free(&r);
    }
    assert_memory_equal(totals[0], totals[1], sizeof totals[0]);
    assert_true(totals[0][0].seconds[0] > 0);
}

/* The table, and what hit, with a link and without; rig_finish compares with the reference, too. */
static void test_nothing_else_changes(void **state) {
    (void)state;
    float weights[2][60 * DIM];
    frugal_stats stats[2];
    for (int linked = 0; linked < 2; linked++) {
        rig r = {.cache = {.cache_rows = 16, .link = linked ? &narrow : NULL}};
        frugal_desc d = rig_desc();
        float state_of_rows[60 * DIM];
        rig_open(&r, &d);
        rig_train(&r, STEPS);
        rig_read(&r, weights[linked], state_of_rows);
        frugal_get_stats(r.f, &stats[linked]);
        rig_finish(&r, 3);
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    assert_true(stats[0].hits == stats[1].hits && stats[0].misses == stats[1].misses && stats[0].hits > 0);
}

static void assert_says(frugal_status status, frugal_status wanted, const char *text) {
    assert_int_equal(wanted, status);
    if (!strstr(frugal_message(), text)) fail_msg("'%s' does not say '%s'", frugal_message(), text);
}

static void test_links_that_make_no_sense(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_link_use use;
    d.allocate = test_allocate, d.release = test_release, d.user = &r.counter;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &r.f));
    const double bad[] = {0, -1, NAN, INFINITY, 1e19};
    for (int i = 0; i < 5; i++)
        for (int way = 0; way < 2; way++) {
            frugal_link link = narrow, rooted = narrow;
            link.bandwidth[way] = bad[i];
            frugal_status status = frugal_cpu_attach(r.f, 0, &(frugal_cpu_desc){.link = &link});
            assert_says(status, FRUGAL_ERR_ARGUMENT, way ? "write bandwidth" : "read bandwidth");
            rooted.root = 5, rooted.root_bandwidth[0] = rooted.root_bandwidth[1] = 1e9;
            rooted.root_bandwidth[way] = bad[i];
            status = frugal_cpu_attach(r.f, 0, &(frugal_cpu_desc){.link = &rooted});
            assert_says(status, FRUGAL_ERR_ARGUMENT, way ? "root 5: a write bandwidth" : "root 5: a read bandwidth");
        }
    for (int i = 1; i < 5; i++) {
        frugal_link link = narrow;
        link.latency = bad[i];
        assert_says(frugal_cpu_attach(r.f, 0, &(frugal_cpu_desc){.link = &link}), FRUGAL_ERR_ARGUMENT, "latency");
    }
    frugal_link heavy = narrow;
    heavy.header = 65536;
    assert_says(frugal_cpu_attach(r.f, 0, &(frugal_cpu_desc){.link = &heavy}), FRUGAL_ERR_LIMIT, "65535");
    assert_says(frugal_cpu_get_link(NULL, 0, &use, NULL), FRUGAL_ERR_ARGUMENT, "open");
    assert_says(frugal_cpu_get_link(r.f, 0, &use, NULL), FRUGAL_ERR_DEVICE, "device 0"); /* not attached */
    assert_says(frugal_cpu_get_link(r.f, 2, &use, NULL), FRUGAL_ERR_DEVICE, "device 2"); /* there is none */
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(r.f, 1, NULL));
    assert_says(frugal_cpu_get_link(r.f, 1, &use, NULL), FRUGAL_ERR_ARGUMENT, "no link");
    frugal_close(r.f);
    assert_int_equal(0, (int)r.counter.blocks_out);
}

static frugal_status no_lookup(void *device, const frugal_step *step, float *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static void no_close(void *device) {
    (void)device;
}

/* Devices of other kinds are beside the point: they are not found, and share no root. */
static void test_devices_of_other_kinds(void **state) {
    (void)state;
    frugal_device_ops ops = {.lookup = no_lookup, .close = no_close};
    frugal_desc d = rig_desc();
    frugal_link link = link_of(0);
    frugal_link_use use;
    frugal *f;
    int other;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.link = &link}));
    assert_null(frugal_get_device(f, 1, &ops));
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &ops, &other));
    assert_ptr_equal(&other, frugal_get_device(f, 1, &ops));
    assert_null(frugal_get_device(f, 0, &ops));
    assert_null(frugal_get_device(f, 2, &ops));
    assert_null(frugal_get_device(f, 1, NULL));
    assert_null(frugal_get_device(NULL, 1, &ops));
    assert_says(frugal_cpu_get_link(f, 1, &use, NULL), FRUGAL_ERR_DEVICE, "device 1");
    uint64_t key = 3;
    frugal_keys keys = {0, &key, 1};
    float rows[DIM];
    for (uint32_t k = 0; k < 2; k++)
        assert_int_equal(FRUGAL_OK, frugal_announce(f, k, 0, &(frugal_batch){&keys, 1, 0}));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, rows));
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_link(f, 0, &use, NULL));
    assert_true(use.seconds[0] == 1e-5 + (ROW + 2 * 6) / 1e9);
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

#define CASE(name, function, value)                                                                                    \
    {                                                                                                                  \
        name, function, NULL, NULL, &(frugal_cache_policy) {                                                           \
            value                                                                                                      \
        }                                                                                                              \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),
        cmocka_unit_test(test_what_crosses_without_a_cache),
        CASE("test_what_crosses_with_a_cache, LRU", test_what_crosses_with_a_cache, FRUGAL_LRU),
        CASE("test_what_crosses_with_a_cache, static", test_what_crosses_with_a_cache, FRUGAL_STATIC),
        cmocka_unit_test(test_no_state_crosses_with_sgd),
        cmocka_unit_test(test_what_does_not_cross),
        cmocka_unit_test(test_repeated_lookups),
        cmocka_unit_test(test_shared_root),
        cmocka_unit_test(test_shared_root_in_the_middle),
        cmocka_unit_test(test_threads_do_not_change_the_figures),
        cmocka_unit_test(test_nothing_else_changes),
        cmocka_unit_test(test_links_that_make_no_sense),
        cmocka_unit_test(test_devices_of_other_kinds),
        cmocka_unit_test(test_no_devices_without_open),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
