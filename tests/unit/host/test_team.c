/* test_team.c - a device's work in pieces, by several threads: each piece once, phases in turn, the same bits and the
 * same statistics as by one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <pthread.h>
#include <cmocka.h>
#include "src/device.h"
#include "tests/rig.h"
#include "tests/unit/host/refused.h"
#include "tests/seed.h"

static frugal_table table = {.rows = 3000, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};

static frugal_desc team_desc(void) {
    return (frugal_desc){.tables = &table,
                         .n_tables = 1,
                         .dim = 9,
                         .devices = 1,
                         .max_keys = 4000,
                         .lookahead = 3,
                         .optimizer = {.kind = FRUGAL_ADAGRAD},
                         .seed = 3,
                         .stuck_seconds = 120};
}

/* >>pieces */

enum { PHASES = 40, PIECES = 12 };

typedef struct tally_sheet {
    frugal *f;
    uint32_t times[PHASES][PIECES], early[PHASES][PIECES]; /* a piece's own; the next phase reads them */
} tally_sheet;

static void note(void *argument, uint32_t phase, uint32_t piece) {
    tally_sheet *t = argument;
    for (uint32_t p = 0; p < PIECES && phase > 0; p++) t->early[phase][piece] += t->times[phase - 1][p] != 1;
    t->times[phase][piece]++;
}

static void *run_sheets(void *argument) {
    frugal *f = argument;
    for (uint32_t round = 0; round < 200 / SHORTER; round++) {
        tally_sheet sheet = {.f = f};
        frugal_run_pieces(f, 0, PHASES, PIECES, note, &sheet);
        for (uint32_t i = 0; i < PHASES * PIECES; i++)
            if (sheet.times[i / PIECES][i % PIECES] != 1 || sheet.early[i / PIECES][i % PIECES])
                return "a piece was not done once, and after the phase before";
    }
    return NULL;
}

/* By one, two and more threads than there are processors; and for two callers at once, as loader and trainer are. */
static void test_each_piece_once(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 64; threads *= threads < 8 ? 2 : 8) {
        frugal_desc d = team_desc();
        frugal *f = open_or_fail(&d);
        pthread_t loader;
        void *wrong;
        assert_int_equal(FRUGAL_OK, frugal_use_threads(f, 0, threads));
        assert_int_equal(0, pthread_create(&loader, NULL, run_sheets, f));
        const char *here = run_sheets(f);
        pthread_join(loader, &wrong);
        if (here || wrong) fail_msg("%u threads: %s", threads, here ? here : (const char *)wrong);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
    }
}

static void test_limit(void **state) {
    (void)state;
    frugal_desc d = team_desc();
    frugal *f = open_or_fail(&d);
    assert_fails(FRUGAL_ERR_LIMIT, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.threads = 65}), "65 threads", "64");
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.threads = 64}));
    /* The team of a device that is attached may be at work, and stays. */
    assert_fails(FRUGAL_ERR_DEVICE, frugal_use_threads(f, 0, 3), "device 0", "attached already");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cpu_attach(f, 0, NULL), "device 0", "attached already");
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

/* >>sorting */

enum { SORTED = 4000 };

/* Row i of n, by a kind of batch that is uneven: one row; one that most keys name; the lowest few; falling; the last
 * rows of the table; any rows. */
static uint64_t uneven_row(uint32_t kind, uint32_t i, uint32_t n, uint64_t rows) {
    uint64_t any = test_mix2(kind, i) % rows;
    const uint64_t of_kind[] = {rows / 2, i % 7 ? rows / 3 : any, any % 5, (n - i) * rows / (n + 1), rows - 1 - any % 3,
                                any};
    return of_kind[kind];
}

/* The batch of a device has each row once, rising, with its positions, rising, which are all. */
static void check_records(frugal *f, uint64_t step, const uint64_t *keys, uint32_t n) {
    static uint8_t seen[SORTED];
    frugal_records r;
    memset(seen, 0, sizeof seen);
    assert_int_equal(FRUGAL_OK, frugal_get_records(f, 0, step, &r));
    assert_int_equal(n, r.n);
    assert_int_equal(0, r.start[0]);
    assert_int_equal(n, r.start[r.n_unique]);
    for (uint32_t u = 0; u < r.n_unique; u++) {
        assert_true(u == 0 || r.rows[u] > r.rows[u - 1]);
        assert_true(r.start[u] < r.start[u + 1]);
        for (uint32_t i = r.start[u]; i < r.start[u + 1]; i++) {
            assert_true(i == r.start[u] || r.order[i] > r.order[i - 1]);
            assert_true(r.order[i] < n && !seen[r.order[i]]++);
            assert_int_equal(keys[r.order[i]], r.rows[u]);
            assert_int_equal(u, r.record_of[r.order[i]]);
        }
    }
}

/* By one thread, and in pieces; of tables whose rows are sorted in one pass to three. */
static void test_uneven_batches(void **state) {
    (void)state;
    static uint64_t keys[SORTED];
    static float rows[SORTED];
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        for (uint64_t n_rows = 1; n_rows <= 300000; n_rows = n_rows * 40 + 100) {
            frugal_table some = {.rows = n_rows};
            frugal_desc d = {.tables = &some, .n_tables = 1, .dim = 1, .devices = 1, .max_keys = SORTED};
            frugal *f = open_or_fail(&d);
            assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.threads = threads}));
            for (uint32_t s = 0; s < 18; s++) {
                uint32_t n = s % 3 == 0 ? SORTED : s % 3 == 1 ? 1000 : 63 + s;
                for (uint32_t i = 0; i < n; i++) keys[i] = uneven_row(s / 3, i, n, n_rows);
                const frugal_keys segment = {.keys = keys, .n = n};
                assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, s, &(frugal_batch){&segment, 1, 0}));
                assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, s, rows));
                check_records(f, s, keys, n);
                assert_int_equal(FRUGAL_OK, frugal_update(f, 0, s, NULL));
            }
            assert_int_equal(FRUGAL_OK, frugal_close(f));
        }
    }
}

/* >>bits */

enum { STEPS = 12, MOST = 3000 };

typedef struct outcome {
    float *rows, *table; /* what was looked up, all steps; the table in the end */
    frugal_stats stats;
    frugal_traffic traffic;
} outcome;

/* Few rows often, others once, so that pieces of rows are not pieces of positions; sets of the cache overflow. */
static uint32_t draw_keys(uint64_t step, uint64_t *keys) {
    uint32_t n = step % 4 == 3 ? 5 : MOST - (uint32_t)step;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bits = test_mix2(step, i);
        keys[i] = bits % 3 ? bits / 3 % 20 : bits / 3 % table.rows;
    }
    return n;
}

static outcome train(const frugal_desc *d, const frugal_cpu_desc *cpu, int bags) {
    outcome o = {.rows = calloc((size_t)STEPS * MOST * 9, 4), .table = calloc(table.rows * 9, 4)};
    static uint64_t keys[MOST];
    static uint32_t offsets[MOST / 3 + 1];
    static float grads[MOST * 9];
    frugal *f = open_or_fail(d);
    if (frugal_cpu_attach(f, 0, cpu) != FRUGAL_OK) fail_msg("%s", frugal_message());
    for (uint64_t s = 0; s < STEPS; s++) {
        frugal_keys all = {.keys = keys, .n = draw_keys(s, keys)};
        float *rows = o.rows + s * MOST * 9;
        frugal_bags by = {.n_bags = all.n / 3, .offsets = offsets};
        for (uint32_t b = 0; b <= by.n_bags; b++) offsets[b] = b == by.n_bags ? all.n : 3 * b;
        for (uint32_t i = 0; i < all.n * 9; i++) grads[i] = (float)(test_mix2(s, i) % 1000) * 1e-3f;
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, s, &(frugal_batch){.segments = &all, .n_segments = 1}));
        assert_int_equal(FRUGAL_OK, bags ? frugal_lookup_bags(f, 0, s, &by, rows) : frugal_lookup(f, 0, s, rows));
        frugal_gradients g = {.grads = grads, .lr = .1f, .by_bag = bags};
        assert_int_equal(FRUGAL_OK, frugal_update(f, 0, s, &g));
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    frugal_get_stats(f, &o.stats);
    assert_int_equal(FRUGAL_OK, frugal_cpu_get_traffic(f, 0, NULL, &o.traffic));
    const frugal_store *store = frugal_get_store(f);
    for (uint64_t row = 0; row < table.rows; row++) memcpy(o.table + row * 9, (float *)frugal_row_at(store, row), 36);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    return o;
}

static void compare(const frugal_desc *d, frugal_cpu_desc cpu, int bags) {
    cpu.threads = 1;
    outcome one = train(d, &cpu, bags);
    for (cpu.threads = 2; cpu.threads <= 5; cpu.threads += 3) {
        outcome o = train(d, &cpu, bags);
        assert_memory_equal(one.rows, o.rows, (size_t)STEPS * MOST * 36);
        assert_memory_equal(one.table, o.table, table.rows * 36);
        assert_memory_equal(&one.traffic, &o.traffic, sizeof o.traffic);
        assert_true(one.stats.hits == o.stats.hits && one.stats.misses == o.stats.misses);
        assert_true(one.stats.kept == o.stats.kept && one.stats.written_back == o.stats.written_back);
        free(o.rows), free(o.table);
    }
    free(one.rows), free(one.table);
}

static void test_same_bits(void **state) {
    (void)state;
    for (int alone = FRUGAL_ALONE_STAGED; alone <= FRUGAL_ALONE_KEPT; alone++)
        for (int policy = FRUGAL_CACHE_COUNTED; policy <= FRUGAL_CACHE_STATIC + 1; policy++)
            for (int bags = 0; bags < 2; bags++) {
                frugal_desc d = team_desc();
                d.alone = (frugal_alone)alone;
                int has_cache = policy <= FRUGAL_CACHE_STATIC;
                compare(&d,
                        (frugal_cpu_desc){.cache_rows = has_cache ? 160 : 0,
                                          .policy = (frugal_cache_policy)(has_cache ? policy : 0)},
                        bags);
            }
}

/* The first of several bad keys is told of, whichever piece finds one first. */
static void test_bad_key(void **state) {
    (void)state;
    static uint64_t keys[MOST];
    frugal_desc d = team_desc();
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.threads = 4}));
    for (uint32_t i = 0; i < MOST; i++) keys[i] = i >= 1234 ? table.rows + i : i;
    frugal_keys first = {.keys = keys, .n = 500}, rest = {.keys = keys + 500, .n = MOST - 500};
    frugal_keys segments[] = {first, rest};
    assert_fails(FRUGAL_ERR_KEY, frugal_announce(f, 0, 0, &(frugal_batch){.segments = segments, .n_segments = 2}),
                 "key 4234 at 734 of segment 1", "3000 rows");
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_piece_once), cmocka_unit_test(test_limit),   cmocka_unit_test(test_uneven_batches),
        cmocka_unit_test(test_same_bits),       cmocka_unit_test(test_bad_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
