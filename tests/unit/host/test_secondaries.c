/* test_secondaries.c - secondaries: which are read, that bits depend on nothing else, and what is refused.
 *
 * More configurations, with threads, bags and files, are in tests/property. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/seed.h"
#include "tests/unit/host/refused.h"
#include "tests/unit/host/stale_world.h"

enum { STEPS = 40 };

static uint64_t base_seed;
static const uint32_t bounds[] = {0, 1, 5, 100, UINT32_MAX};

/* >>what is read */

/* One row of one float, SGD at a rate of 1, so that the row counts gradients. Device 0 lists it with bound 2. */
static void test_by_hand(void **state) {
    (void)state;
    float weights[2] = {0, 0}, read[2], one = 1;
    frugal_table table = {.rows = 1};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 1, .devices = 2, .max_keys = 1, .weights = weights};
    frugal *f = open_or_fail(&desc);
    uint64_t key = 0;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    /* A digit a device: 0 no key; 1 reads; 2 reads and contributes. */
    static const char *const steps[] = {"22", "20", "02", "10", "21", "01", "20", "22", "10"};
    /* Step 0 fetches (0), and lacks 1 then. Step 2 brings this to 2. Steps 3, 4, 6 and 7 read the copy, which has the
     * steps of its device. Step 7 brings it to 3, so step 8 fetches. Device 1 always reads the host row. */
    static const int lookups[9][2] = {{0, 0},   {-1, -9}, {-9, -3}, {-2, -9}, {-2, -4},
                                      {-9, -5}, {-3, -9}, {-4, -6}, {-8, -9}};
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, d, NULL));
    assert_int_equal(FRUGAL_OK, frugal_secondaries(f, 0, &keys, 2));
    for (uint64_t s = 0; s < 9; s++) {
        for (uint32_t d = 0; d < 2; d++) {
            frugal_batch batch = {&keys, steps[s][d] > '0', steps[s][d] == '1'};
            assert_int_equal(FRUGAL_OK, frugal_announce(f, d, s, &batch));
        }
        for (uint32_t d = 0; d < 2; d++) {
            read[d] = -9;
            assert_int_equal(FRUGAL_OK, frugal_lookup(f, d, s, &read[d]));
            if (read[d] != (float)lookups[s][d])
                fail_msg("step %d, device %u: %g, not %d", (int)s, d, (double)read[d], lookups[s][d]);
        }
        for (uint32_t d = 0; d < 2; d++) {
            frugal_gradients g = {.grads = steps[s][d] == '2' ? &one : NULL, .lr = 1};
            assert_int_equal(FRUGAL_OK, frugal_update(f, d, s, &g));
        }
    }
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    assert_int_equal(5, (int)stats.secondary_hits); /* steps 1, 3, 4, 6, 7 */
    assert_int_equal(5, (int)stats.hits);
    frugal_close(f);
}

static stale_desc random_trial(uint64_t seed, uint32_t bound) {
    test_random r = {.seed = seed};
    stale_desc s = stale_desc_of((uint32_t)test_between(&r, 1, 4), bound, seed);
    s.desc.optimizer.kind = rig_optimizers[test_below(&r, FRUGAL_OPTIMIZER_KINDS)];
    s.desc.optimizer.weight_decay = test_chance(&r, 30) ? 0.01f : 0;
    s.desc.reduce = test_chance(&r, 50) ? FRUGAL_MEAN : FRUGAL_SUM;
    s.desc.alone = test_chance(&r, 50) ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED;
    s.desc.workers = (uint32_t)test_below(&r, 3);
    s.desc.lookahead = (uint32_t)test_below(&r, 6);
    s.desc.mode = test_chance(&r, 20) ? FRUGAL_SYNC : FRUGAL_P2F;
    s.desc.first_step = test_chance(&r, 30) ? 1000 : 0;
    s.cache = (frugal_cpu_desc){.cache_rows = test_below(&r, 3) * 16},
    s.cache.policy = (frugal_cache_policy)test_below(&r, 3);
    s.share = (unsigned[]){20, 60, 100}[test_below(&r, 3)];
    s.read_only = (unsigned[]){0, 20, 50}[test_below(&r, 3)];
    s.cancels = (unsigned[]){0, 20, 60}[test_below(&r, 3)];
    uint64_t types = test_mix2(seed, 51); /* not drawn, so that no other draw moves */
    s.desc.rows_as = (frugal_type[]){FRUGAL_FP32, FRUGAL_BF16, FRUGAL_FP16}[types % 3];
    if (s.desc.rows_as != FRUGAL_FP32 && types / 3 % 4 == 0) s.desc.rounding = FRUGAL_NEAREST;
    return s;
}

static void test_random_trials(void **state) {
    uint32_t bound = bounds[(intptr_t)*state];
    uint64_t stale = 0;
    for (uint64_t i = 0; i < 300 / SHORTER; i++) {
        static stale_world w;
        stale_desc s = random_trial(base_seed + i, bound);
        stale_open(&w, &s);
        stale_train(&w, w.step + STEPS);
        stale_compare(&w);
        assert_int_equal(w.stale.stale_reads, secondary_hits(&w));
        stale += secondary_hits(&w);
        stale_close(&w);
    }
    if ((bound > 0) != (stale > 0)) fail_msg("bound %u: %llu secondaries read", bound, (unsigned long long)stale);
}

/* >>what bits depend on */

typedef struct trained {
    float weights[STALE_ROWS * STALE_DIM];
    uint64_t hits;
} trained;

static trained train(const stale_desc *s) {
    static stale_world w;
    trained t;
    stale_open(&w, s);
    stale_train(&w, STEPS);
    stale_compare(&w);
    memcpy(t.weights, w.ref.weights, sizeof t.weights);
    t.hits = secondary_hits(&w);
    stale_close(&w);
    return t;
}

/* Workers, lookahead, caches, the way of rows that are alone, write-through and cancelled steps change no bit, and not
 * which copies are read. */
static void test_bits_depend_on_nothing_else(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 10; i++) {
        stale_desc s = stale_desc_of(3, (uint32_t)(1 + i), base_seed + i);
        if (i % 2) s.desc.rows_as = i % 4 == 1 ? FRUGAL_BF16 : FRUGAL_FP16; /* copies take the same random bits */
        trained first = train(&s);
        assert_true(first.hits > 0);
        for (int other = 0; other < 6; other++) {
            stale_desc o = s;
            if (other == 0) o.desc.alone = FRUGAL_ALONE_PLACE;
            if (other == 1) o.desc.workers = 2, o.desc.lookahead = 5;
            if (other == 2) o.desc.lookahead = 0;
            if (other == 3) o.cache = (frugal_cpu_desc){.cache_rows = 16};
            if (other == 4) o.cancels = 70;
            if (other == 5) o.desc.mode = FRUGAL_SYNC, o.desc.workers = 1;
            trained t = train(&o);
            assert_memory_equal(first.weights, t.weights, sizeof t.weights);
            assert_int_equal(first.hits, t.hits);
        }
    }
}

/* They do depend on bound and lists; and bound 0 has the bits of training without lists. */
static void test_bound_0_is_exact(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 10; i++) {
        stale_desc s = stale_desc_of(3, 0, base_seed + i);
        s.share = 0;
        trained exact = train(&s);
        s.share = 100;
        trained zero = train(&s);
        assert_memory_equal(exact.weights, zero.weights, sizeof zero.weights);
        assert_int_equal(0, (int)zero.hits);
        s.bound = 5;
        trained five = train(&s);
        assert_memory_not_equal(exact.weights, five.weights, sizeof five.weights);
        s.share = 50;
        trained fewer = train(&s);
        assert_memory_not_equal(five.weights, fewer.weights, sizeof five.weights);
    }
}

/* The rig compares all that is looked up with the exact reference. */
static void test_bound_0_beside_the_exact_reference(void **state) {
    (void)state;
    uint64_t keys[] = {3, 1, 0, 5, 2, 1};
    frugal_keys k = {.table = 0, .keys = keys, .n = 6};
    rig r = {.cache = {.cache_rows = 16}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_secondaries(r.f, i, &k, 0));
    rig_finish(&r, 20);
}

/* A run that goes on has the bits of one that is resumed, if both list rows at the step of the save. */
static void test_resumed(void **state) {
    int lists = (int)(intptr_t)*state;
    static stale_world on, resumed;
    stale_desc s = stale_desc_of(3, 20, base_seed);
    s.share = 100;
    stale_open(&on, &s);
    stale_train(&on, 20);
    stale_compare(&on);
    if (lists) stale_list(&on);
    float weights[STALE_ROWS * STALE_DIM], optimizer[STALE_ROWS * STALE_DIM];
    memcpy(weights, on.ref.weights, sizeof weights), memcpy(optimizer, on.ref.state, sizeof optimizer);
    s.desc.first_step = 20, s.desc.weights = weights, s.desc.state = optimizer;
    frugal_table tables[2] = {{.rows = 30}, {.rows = 12}};
    s.desc.tables = tables;
    stale_open(&resumed, &s);
    stale_train(&on, STEPS), stale_train(&resumed, STEPS);
    stale_compare(&on), stale_compare(&resumed);
    int same = !memcmp(on.ref.weights, resumed.ref.weights, sizeof weights);
    assert_int_equal(lists, same);
    stale_close(&on), stale_close(&resumed);
}

/* >>what drops copies */

/* Writing a row, and releasing the holders, are seen by the next lookup, however large the bound. */
static void test_dropped(void **state) {
    int release = (int)(intptr_t)*state;
    static stale_world w;
    stale_desc s = stale_desc_of(2, UINT32_MAX, base_seed);
    s.share = 100, s.desc.lookahead = 0;
    stale_open(&w, &s);
    stale_train(&w, 10);
    stale_compare(&w);
    float row[STALE_DIM] = {1, 2, 3, 4, 5}, zero[STALE_DIM] = {0};
    uint64_t key = 2;
    frugal_keys k = {.table = 1, .keys = &key, .n = 1};
    if (release) {
        assert_int_equal(FRUGAL_OK, frugal_release_holders(w.f));
        reference_stale_drop_all(&w.stale);
    } else {
        assert_int_equal(FRUGAL_OK, frugal_write_rows(w.f, &k, row, zero));
        memcpy(w.ref.weights + 32 * STALE_DIM, row, sizeof row), memcpy(w.ref.state + 32 * STALE_DIM, zero, sizeof row);
        for (uint32_t d = 0; d < 2; d++) w.stale.rows[d][32].fetched = 0;
    }
    stale_train(&w, STEPS);
    stale_compare(&w);
    stale_close(&w);
}

/* A list replaces that of the same table, and leaves that of the other; without keys it is removed. */
static void test_lists_of_two_tables(void **state) {
    (void)state;
    static stale_world w;
    stale_desc s = stale_desc_of(2, 3, base_seed);
    s.share = 0;
    stale_open(&w, &s);
    uint64_t keys[] = {4, 0, 4, 1}; /* one twice */
    for (int round = 0; round < 4; round++) {
        frugal_keys k = {.table = (uint32_t)round % 2, .keys = keys, .n = round == 2 ? 0 : 4};
        for (uint32_t d = 0; d < 2; d++) {
            assert_int_equal(FRUGAL_OK, frugal_secondaries(w.f, d, &k, 3 + (uint32_t)round));
            uint64_t first = stale_first_row(k.table);
            for (uint64_t row = 0; row < stale_tables[k.table].rows; row++)
                reference_stale_list(&w.stale, d, first + row, 0, 0);
            for (uint32_t i = 0; i < k.n; i++)
                reference_stale_list(&w.stale, d, first + keys[i], 1, 3 + (uint32_t)round);
        }
        reference_stale_drop_all(&w.stale);
        stale_train(&w, w.step + 15);
        stale_compare(&w);
        assert_int_equal(w.stale.stale_reads, secondary_hits(&w));
    }
    assert_true(secondary_hits(&w) > 0);
    stale_close(&w);
}

/* >>copies and host rows */

/* Verifying compares a secondary that lacks nothing, and no other. Preloading passes secondaries over. */
static void test_verified(void **state) {
    (void)state;
    static stale_world w;
    stale_desc s = stale_desc_of(2, 10, base_seed);
    s.share = 100, s.cache.cache_rows = 64;
    stale_open(&w, &s);
    uint64_t keys[] = {0, 1, 2, 3, 4}, stride;
    frugal_keys k = {.table = 0, .keys = keys, .n = 5};
    assert_int_equal(FRUGAL_OK, frugal_preload(w.f, 0, &k));
    stale_train(&w, 30);
    stale_compare(&w);
    const void *rows;
    int caught = 0, passed = 0;
    assert_int_equal(FRUGAL_OK, frugal_view(w.f, 0, &rows, &stride));
    for (uint32_t row = 0; row < 30; row++) {
        uint64_t current = 0, at = row * stride;
        for (uint32_t d = 0; d < 2; d++) {
            const reference_stale_row *r = &w.stale.rows[d][row];
            assert_int_equal(r->fetched && r->lacks == 0, frugal_is_current(w.f, d, row));
            current |= r->fetched && r->lacks == 0;
        }
        float *broken = (float *)(uintptr_t)rows + at, was = *broken;
        *broken += 1;
        assert_int_equal(current ? FRUGAL_ERR_COPY : FRUGAL_OK, frugal_verify(w.f));
        *broken = was;
        caught += current != 0, passed += !current;
    }
    assert_true(caught > 0 && passed > 0);
    stale_close(&w);
}

/* Hits and misses, and what crosses: a host row for each miss, with its state, because every miss fetches. */
static void test_traffic(void **state) {
    (void)state;
    static stale_world w;
    stale_desc s = stale_desc_of(2, 4, base_seed);
    s.share = 100;
    stale_open(&w, &s);
    stale_train(&w, 30);
    frugal_stats stats;
    frugal_get_stats(w.f, &stats);
    assert_int_equal(stats.unique_rows, stats.hits + stats.misses);
    assert_true(stats.secondary_hits > 0 && stats.secondary_hits < stats.hits);
    uint64_t rows = 0, bytes = 0;
    for (uint32_t d = 0; d < 2; d++) {
        frugal_traffic total;
        assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(w.f, d, NULL, &total));
        rows += total.rows[0], bytes += total.bytes[0];
    }
    assert_int_equal(stats.misses, rows);
    assert_int_equal(stats.misses * STALE_DIM * 2 * 4, bytes);
    stale_compare(&w);
    stale_close(&w);
}

/* >>the bound between rows */

static const double *shares; /* of each row, in the data; NULL: the rows' own clocks are the frequencies */
static uint64_t pairs, failing;

/* For each two listed rows of the batch: do their clocks, scaled by frequency, differ by more than the bound? */
static void watch_pairs(const stale_world *w, uint32_t d) {
    const stale_batch *b = &w->batches[d];
    for (uint32_t i = 0; i < b->n; i++)
        for (uint32_t j = 0; j < b->n; j++) {
            uint32_t x = b->rows[i], y = b->rows[j];
            double ci = (double)w->stale.contributions[x], cj = (double)w->stale.contributions[y];
            double gi = ci - (double)w->stale.rows[d][x].lacks, gj = cj - (double)w->stale.rows[d][y].lacks;
            double pi = shares ? shares[x] : ci, pj = shares ? shares[y] : cj;
            if (pi < pj || pi == 0) continue;
            pairs++;
            failing += fabs(gi * pj - gj * pi) > (double)w->s.bound * pi;
        }
}

/* With the rows' clocks as frequencies, HET-GMP's bound between rows follows from that within a row (clocks.c): clocks
 * are below 2^20 here, so the products are exact. With frequencies of the data, copies that lack nothing fail it. */
static void test_bound_between_rows(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        static stale_world w;
        stale_desc s = stale_desc_of(4, (uint32_t)(i % 7), base_seed + i);
        s.share = 100;
        pairs = failing = 0, shares = NULL;
        stale_open(&w, &s);
        w.watch = watch_pairs;
        stale_train(&w, STEPS);
        stale_close(&w);
        assert_true(pairs > 1000);
        assert_int_equal(0, (int)failing);
    }
    static double of_rows[STALE_ROWS]; /* what the data has, in all its steps */
    static stale_world w;
    stale_desc s = stale_desc_of(4, 0, base_seed);
    s.share = 100;
    for (int pass = 0; pass < 2; pass++) {
        pairs = failing = 0, shares = pass ? of_rows : NULL;
        stale_open(&w, &s);
        w.watch = watch_pairs;
        stale_train(&w, STEPS);
        for (uint32_t row = 0; row < STALE_ROWS; row++) of_rows[row] = (double)w.stale.contributions[row];
        stale_close(&w);
    }
    assert_true(failing > pairs / 4); /* although with bound 0 no copy that is read lacks anything */
}

/* >>what is refused */

static void test_refused(void **state) {
    (void)state;
    uint64_t good[] = {1, 2}, bad[] = {1, 30};
    frugal_keys k = {.table = 0, .keys = good, .n = 2};
    static stale_world w;
    stale_desc s = stale_desc_of(2, 2, base_seed);
    stale_open(&w, &s);
    stale_train(&w, 10);
    assert_fails(FRUGAL_ERR_BUSY, frugal_secondaries(w.f, 0, &k, 1), "secondaries", "drain");
    assert_int_equal(FRUGAL_OK, frugal_drain(w.f));
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_secondaries(NULL, 0, &k, 1), "secondaries", "no open instance");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_secondaries(w.f, 2, &k, 1), "device 2", "there are 2");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_secondaries(w.f, 0, NULL, 1), "secondaries", "no keys");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_secondaries(w.f, 0, &(frugal_keys){.table = 0, .keys = NULL, .n = 1}, 1),
                 "secondaries", "no keys");
    assert_fails(FRUGAL_ERR_TABLE, frugal_secondaries(w.f, 0, &(frugal_keys){.table = 2, .keys = good, .n = 2}, 1),
                 "table 2", "there are 2");
    assert_fails(FRUGAL_ERR_KEY, frugal_secondaries(w.f, 0, &(frugal_keys){.table = 0, .keys = bad, .n = 2}, 1),
                 "key 30", "30 rows");
    stale_announce(&w, 0, 0);
    assert_fails(FRUGAL_ERR_BUSY, frugal_secondaries(w.f, 1, &k, 1), "secondaries", "cancel");
    stale_train(&w, STEPS); /* all lists are as they were */
    stale_compare(&w);
    stale_close(&w);
}

static frugal_status no_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static void no_close(void *device) {
    (void)device;
}
static frugal_status no_room(void *device, const uint32_t *rows, uint32_t n) {
    (void)device, (void)rows;
    return frugal_fail(FRUGAL_ERR_CUDA, "no room for %u", n);
}

/* A device that is not there, of a kind that keeps no such copies, or that refuses. */
static void test_refused_by_the_device(void **state) {
    (void)state;
    uint64_t key = 1;
    frugal_keys k = {.table = 0, .keys = &key, .n = 1};
    frugal_desc d = rig_desc();
    frugal *f = open_or_fail(&d);
    frugal_device_ops ops = {.lookup = no_lookup, .close = no_close};
    assert_fails(FRUGAL_ERR_DEVICE, frugal_secondaries(f, 0, &k, 1), "device 0", "not attached");
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, NULL));
    assert_fails(FRUGAL_ERR_DEVICE, frugal_secondaries(f, 0, &k, 1), "device 0", "frugal_cpu_attach");
    ops.list_secondaries = no_room;
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &ops, NULL));
    assert_fails(FRUGAL_ERR_CUDA, frugal_secondaries(f, 1, &k, 1), "no room", "1");
    assert_fails(FRUGAL_ERR_CUDA, frugal_secondaries(f, 1, &(frugal_keys){.table = 0, .keys = NULL, .n = 0}, 1),
                 "no room", "0");
    frugal_close(f);
}

/* Whichever allocation fails, lists and copies stay as they were. */
static void test_memory_is_missing(void **state) {
    (void)state;
    uint64_t good[] = {1, 2}, failures = 0;
    frugal_keys k = {.table = 0, .keys = good, .n = 2};
    static stale_world w;
    stale_desc s = stale_desc_of(2, 4, base_seed);
    stale_open(&w, &s);
    for (uint64_t nth = 1; failures + 1 == nth; nth++) {
        stale_train(&w, w.step + 6);
        stale_compare(&w);
        w.counter.fail_at = w.counter.calls + nth;
        frugal_status status = frugal_secondaries(w.f, 1, &k, 9);
        w.counter.fail_at = 0;
        if (status == FRUGAL_OK) break;
        assert_int_equal(FRUGAL_ERR_MEMORY, status);
        failures++;
    }
    assert_int_equal(3, (int)failures); /* the list, the clocks, the copies */
    stale_close(&w);
}

int main(void) {
    base_seed = test_seed("test_secondaries", 20261124);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        CASE("random trials, bound 0", test_random_trials, 0),
        CASE("random trials, bound 1", test_random_trials, 1),
        CASE("random trials, bound 5", test_random_trials, 2),
        CASE("random trials, bound 100", test_random_trials, 3),
        CASE("random trials, no bound", test_random_trials, 4),
        cmocka_unit_test(test_bits_depend_on_nothing_else),
        cmocka_unit_test(test_bound_0_is_exact),
        cmocka_unit_test(test_bound_0_beside_the_exact_reference),
        CASE("resumed, listed at the save by both", test_resumed, 1),
        CASE("resumed, but the other run kept its copies", test_resumed, 0),
        CASE("rows written", test_dropped, 0),
        CASE("holders released", test_dropped, 1),
        cmocka_unit_test(test_lists_of_two_tables),
        cmocka_unit_test(test_verified),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_bound_between_rows),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_by_the_device),
        cmocka_unit_test(test_memory_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
