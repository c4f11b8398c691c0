/* test_stats.c - what an instance counts, and the memory that it takes beside the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/rig.h"

/* Blocks of the ring are counted by the steps whose records are not flushed, not by when they are due. */
static void test_staging_in_use(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.defer = 1, d.lookahead = 0, d.staging = 5;
    rig_open(&r, &d);
    frugal_stats s;
    rig_train(&r, 1);
    frugal_get_stats(r.f, &s);
    while (s.steps == 0) frugal_help(r.f), frugal_get_stats(r.f, &s); /* close it */
    assert_in_range(s.staging_in_use, s.flushed == 0, 1);
    assert_int_equal(5, s.staging_depth);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    frugal_get_stats(r.f, &s);
    assert_int_equal(0, s.staging_in_use);
    rig_finish(&r, 0);
}

static void check_drained_stats(rig *r, int defer) {
    frugal_stats s;
    uint64_t urgencies = 0;
    assert_int_equal(FRUGAL_OK, frugal_drain(r->f));
    frugal_get_stats(r->f, &s);
    assert_int_equal(4, s.steps);
    assert_true(s.flushed > 0 && s.flushed <= s.unique_rows);
    for (int i = 0; i < 64; i++) {
        urgencies += s.flushed_by_urgency[i];
        assert_int_equal(0, s.queue_depth[i]);
        if (i > 5) assert_int_equal(0, s.flushed_by_urgency[i]); /* due within S at the latest */
    }
    assert_int_equal(s.unique_rows, s.closed_entries);
    assert_int_equal(s.flushed, urgencies + s.flushed_at_close);
    assert_int_equal(0, defer ? s.flushed_at_close : urgencies);
    assert_int_equal(0, s.staging_in_use);
}

static void test_stats_count(void **state) {
    int defer = (int)(intptr_t)*state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_stats s;
    d.defer = defer;
    rig_open(&r, &d);
    frugal_get_stats(r.f, &s);
    assert_true(s.steps == 0 && s.keys == 0 && s.flushed == 0 && s.hits == 0 && s.misses == 0 && s.gate_waits == 0);
    assert_int_equal(defer ? 4 : 1, s.staging_depth);
    rig_train(&r, 4);
    frugal_get_stats(r.f, &s);
    int64_t queued = 0;
    for (int i = 0; i < 64; i++) queued += s.queue_depth[i];
    assert_int_equal(4 * 2 * RIG_KEYS, s.keys);
    assert_int_equal(s.unique_rows, s.hits + s.misses);
    assert_true(s.steps <= 4 && s.steps >= 3);
    assert_true(s.staging_in_use <= s.staging_depth);
    uint64_t flushed = s.flushed;
    check_drained_stats(&r, defer);
    frugal_get_stats(r.f, &s);
    assert_true(s.flushed >= flushed + (uint64_t)queued); /* and what was not closed yet */
    rig_finish(&r, 1);
}

/* frugal.h, section 9, and frugal_p2f.h, section 10, term by term; what it leaves out are headers and roundings. */
static void check_memory_formula(uint64_t K, uint64_t pieces) {
    const uint64_t n = 3, L = 4, S = 6, D = 32, threads = 2 * n + 256;
    frugal_table table = {.rows = 1000};
    frugal_desc d = {.tables = &table,
                     .n_tables = 1,
                     .dim = 20,
                     .devices = 3,
                     .max_keys = (uint32_t)K,
                     .lookahead = 4,
                     .staging = 6};
    frugal *f = open_or_fail(&d);
    frugal_stats s;
    frugal_get_stats(f, &s);
    uint64_t staging = 4 * n * S * K * D, plans = 8 * (n * K + 1) * (S + L + 1);
    uint64_t ranges = n * K / 50 + 1, /* 50, and large batches below: as ninja/tests.ninja compiles the library */
        batches = n * (L + 1) * K * (17 + 4) + n * (L + 1) * K / 4;
    uint64_t taken = n * K * (4 * L + 13) + 4 * n * ranges;
    uint64_t sorting = 16 * n * K + n * 262144; /* from 64 keys on batches are large */
    uint64_t queue = 256 * ((L + 1) * (n * K / 62 + ranges) + S * (n * K / 62 + (L + 2) * pieces) + threads);
    uint64_t formula = staging + plans + batches + taken + sorting + queue;
    assert_int_equal(8 * 1000, s.state_bytes);
    assert_in_range(s.other_bytes, formula, formula + 262144 + n * (131072 + 768 * (L + 1) + 64 * S));
    frugal_close(f);
}

static void test_memory_formula(void **state) {
    (void)state;
    check_memory_formula(5000, 3 * 5000 / 1024 + 1);
    check_memory_formula(20000, 33);
    check_memory_formula(60000, 3 * 60000 / 4096 + 1);
}

/* The formula of the docs: 8 bytes a row beside table and optimizer state, and what does not grow with rows. */
static void test_memory_beside_the_table(void **state) {
    int with_state = (int)(intptr_t)*state;
    static const uint64_t rows[] = {1000, 2000, 50000, 123457};
    uint64_t other = 0, rest = 0;
    for (int i = 0; i < 4; i++) {
        test_counter counter = {0};
        frugal_table table = {.rows = rows[i]};
        frugal_desc d = {.tables = &table,
                         .n_tables = 1,
                         .dim = 8,
                         .devices = 3,
                         .max_keys = 500,
                         .lookahead = 4,
                         .allocate = test_allocate,
                         .release = test_release,
                         .user = &counter};
        if (with_state) d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
        frugal *f = open_or_fail(&d);
        frugal_cpu_desc cache = {.cache_rows = 100};
        for (uint32_t k = 0; k < 3; k++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, k, &cache));
        frugal_stats s;
        frugal_get_stats(f, &s);
        assert_true(s.state_bytes <= 9 * rows[i]);
        if (i == 0) other = s.other_bytes;
        /* words are laid out in whole lines */
        assert_in_range(s.other_bytes, other - 64, other + 64);
        const uint64_t page = 65536; /* whole pages, which a device may pin */
        uint64_t table_bytes = (rows[i] * 4 * 8 + page - 1) / page * page;
        if (with_state) table_bytes += (rows[i] * 4 + page - 1) / page * page;
        uint64_t bytes = counter.bytes_out;
        assert_true(bytes > table_bytes + s.state_bytes);
        uint64_t beside = bytes - table_bytes - s.state_bytes; /* all that was allocated */
        if (i == 0) rest = beside;
        assert_in_range(beside, rest - page, rest + page);          /* the words fill whole pages, too */
        assert_in_range(s.other_bytes, rest * 8 / 10 - page, rest); /* which other_bytes accounts for */
        frugal_close(f);
        assert_int_equal(0, (int)counter.bytes_out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_staging_in_use),
        CASE("test_stats_count, flushing as steps are closed", test_stats_count, 0),
        CASE("test_stats_count, queued", test_stats_count, 1),
        cmocka_unit_test(test_memory_formula),
        CASE("test_memory_beside_the_table", test_memory_beside_the_table, 0),
        CASE("test_memory_beside_the_table and row-wise state", test_memory_beside_the_table, 1),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
