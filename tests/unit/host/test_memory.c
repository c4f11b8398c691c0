/* test_memory.c - memory that is not available: every allocation fails once, nothing leaks. Where large blocks lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif
#include <cmocka.h>
#include "tests/case.h"
#include "tests/sanitizers.h"
#include "tests/scratch.h"
#include "tests/unit/host/failing.h"
#include "tests/unit/host/refused.h"

/* Opens and attaches with the nth allocation failing; returns whether there were fewer than n. */
static int open_with_failure(frugal_desc desc, const frugal_cpu_desc *cache, uint64_t n) {
    test_counter counter = {.fail_at = n};
    frugal *f = NULL;
    desc.allocate = test_allocate, desc.release = test_release, desc.user = &counter;
    frugal_status opened = frugal_open(&desc, &f), status = opened;
    for (uint32_t d = 0; d < desc.devices && status == FRUGAL_OK; d++) status = frugal_cpu_attach(f, d, cache);
    int failed = counter.failures > 0;
    if (failed && status != FRUGAL_ERR_MEMORY) fail_msg("allocation %u failed, status %d", (unsigned)n, (int)status);
    if (failed && !strstr(frugal_message(), "bytes"))
        fail_msg("allocation %u failed: %s", (unsigned)n, frugal_message());
    if (!failed && status != FRUGAL_OK) fail_msg("no allocation failed, status %d: %s", (int)status, frugal_message());
    if (opened != FRUGAL_OK) check_refused_by_all(f);
    frugal_close(f);
    if (counter.bytes_out || counter.blocks_out)
        fail_msg("allocation %u failed: %llu bytes leaked", (unsigned)n, (unsigned long long)counter.bytes_out);
    return !failed;
}

static void test_every_allocation_failing(void **state) {
    (void)state;
    static float matrix[60 * 5];
    frugal_cpu_desc cache = {.cache_rows = 30};
    frugal_optimizer_kind kinds[] = {FRUGAL_SGD, FRUGAL_ROWWISE_ADAGRAD, FRUGAL_ADAM};
    for (int variant = 0; variant < 8; variant++) {
        frugal_desc d = rig_desc();
        d.optimizer.kind = kinds[variant % 3];
        d.workers = (uint32_t)variant % 3;
        if (variant >= 3) d.weights = matrix;
        if (variant >= 6) d.alone = FRUGAL_ALONE_KEPT, d.increments = 1;
        uint64_t n = 1;
        while (!open_with_failure(d, variant % 2 ? &cache : NULL, n)) n++;
        assert_in_range(n, 8, 40); /* it did count */
    }
}

/* The same where the memory is the system's: small blocks and mapped ones. */
static void test_every_block_of_the_system_failing(void **state) {
    (void)state;
    frugal_table table = {.rows = 300000};
    frugal_desc d = rig_desc();
    d.tables = &table, d.n_tables = 1, d.workers = 1, d.init_threads = 1;
    int n = 1;
    for (;; n++) {
        frugal *f;
        atomic_store(&blocks_until_failure, n);
        frugal_status opened = frugal_open(&d, &f), status = opened;
        if (status == FRUGAL_OK) status = frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.cache_rows = 40000});
        int failed = atomic_exchange(&blocks_until_failure, 0) == 0;
        if (status != (failed ? FRUGAL_ERR_MEMORY : FRUGAL_OK)) fail_msg("block %d: status %d", n, (int)status);
        if (failed && !strstr(frugal_message(), "bytes")) fail_msg("block %d: %s", n, frugal_message());
        if (opened != FRUGAL_OK) check_refused_by_all(f);
        frugal_close(f);
        if (!failed) break;
    }
    assert_in_range(n, 8, 40);
}

/* Sizes that no machine has, asked for by a device. */
static void test_impossible_blocks(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &r.f));
    assert_null(frugal_allocate(r.f, SIZE_MAX, 64));
    assert_null(frugal_allocate(r.f, (size_t)1 << 62, 64));
    frugal_free(r.f, NULL, 64);
    r.lr = 0.1f;
    rig_attach(&r);
    rig_start(&r);
    rig_finish(&r, 3);
}

/* Large blocks lie on huge pages, wherever the system puts them, are zero, and are gone when they are freed. */
static void test_mapped_blocks(void **state) {
    frugal *f;
    frugal_desc d = rig_desc();
    size_t bytes = HUGE_PAGE + 12345;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
    atomic_store(&system_fails, *state ? ALIGNED_MAPPING : 0);
    unsigned char *memory = frugal_allocate(f, bytes, 64);
    atomic_store(&system_fails, 0);
    assert_non_null(memory);
    assert_int_equal(0, (uintptr_t)memory % HUGE_PAGE);
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != 0) fail_msg("byte %zu is %d", i, memory[i]);
    memset(memory, 0xa5, bytes);
    assert_int_equal(0, msync(memory, bytes, MS_ASYNC));
    frugal_free(f, memory, bytes);
    assert_int_equal(-1, msync(memory, 4096, MS_ASYNC)); /* not mapped any more */
    assert_int_equal(-1, msync(memory + HUGE_PAGE, 4096, MS_ASYNC));
    frugal_close(f);
}

/* The number of mappings of this process; 0: not known, or of sanitizers, too, which map memory of their own. */
static int mappings(void) {
    FILE *in = fopen("/proc/self/maps", "r");
    int n = 0;
    if (!in) return 0;
#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
    return fclose(in);
#endif
    for (int c; (c = getc(in)) != EOF;) n += c == '\n';
    fclose(in);
    return n;
}

/* Trains a step on each device, which this process attaches; device 1 through a handle that has joined. */
static void train_on_large_pages(frugal *f, const char *name) {
    frugal *handles[2] = {f, f};
    uint64_t keys[4] = {0, 1, 59, 7};
    float rows[4 * 5], grads[4 * 5] = {1};
    const frugal_keys k = {.keys = keys, .n = 4};
    if (name && frugal_join(name, 30, &handles[1]) != FRUGAL_OK) fail_msg("join: %s", frugal_message());
    for (uint32_t d = 0; d < 2; d++)
        if (frugal_cpu_attach(handles[d], d, &(frugal_cpu_desc){.cache_rows = 8}) != FRUGAL_OK)
            fail_msg("attach: %s", frugal_message());
    for (uint32_t d = 0; d < 2; d++)
        assert_int_equal(FRUGAL_OK,
                         frugal_announce(handles[d], d, 0, &(frugal_batch){.segments = &k, .n_segments = 1}));
    for (uint32_t d = 0; d < 2; d++) {
        assert_int_equal(FRUGAL_OK, frugal_lookup(handles[d], d, 0, rows));
        assert_int_equal(FRUGAL_OK, frugal_update(handles[d], d, 0, &(frugal_gradients){.grads = grads, .lr = 0.5f}));
    }
    if (name) assert_int_equal(FRUGAL_OK, frugal_close(handles[1]));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, rows, NULL));
    assert_true(rows[0] > -1.119f && rows[0] < -1.117f); /* -0.5 * 2 / sqrt(2 * 2 / 5) */
}

/* What train_on_large_pages trains. */
static frugal_desc pages_desc(const frugal_table *tables, uint32_t n, const char *name) {
    return (frugal_desc){.tables = tables,
                         .n_tables = n,
                         .dim = 5,
                         .max_keys = 8,
                         .devices = 2,
                         .workers = 1,
                         .lookahead = 1,
                         .optimizer = {.kind = FRUGAL_ROWWISE_ADAGRAD, .eps = 1e-30f},
                         .name = name};
}

/* What a system with pages of 64 KiB refuses is never asked for, and nothing stays mapped. */
static void test_large_pages(void **state) {
    (void)state;
    char name[32];
    snprintf(name, sizeof name, "pages.%ld", (long)getpid());
    atomic_store(&system_fails, LARGE_PAGES);
    int before = mappings();
    for (int round = 0; round < 3; round++) { /* threads leave mappings of their own in the first */
        if (round == 1) before = mappings();
        for (int way = 0; way < 8; way++) {
            frugal_table tables[2] = {{.rows = 60}, {.rows = way & 4 ? 300000 : 3}}; /* of small blocks, and of large */
            frugal_desc d = pages_desc(tables, 2, way & 1 ? name : NULL);
            d.file = way & 2 ? scratch_path("table") : NULL;
            frugal *f;
            if (frugal_open(&d, &f) != FRUGAL_OK) fail_msg("way %d: %s", way, frugal_message());
            train_on_large_pages(f, d.name);
            assert_int_equal(FRUGAL_OK, frugal_close(f));
            scratch_end();
        }
    }
    /* one more in each of the ways would be 16; neighbours may be joined differently */
    if (mappings() >= before + 8) fail_msg("%d mappings, and %d before", mappings(), before);
    atomic_store(&system_fails, 0);
    assert_int_equal(0, atomic_load(&refused_pages));
}

/* The pages that the system gave are known in the first call, and again when more steps are closed. */
static void test_page_sizes(void **state) {
#if defined(__linux__)
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE, which older headers lack */
    char name[32];
    snprintf(name, sizeof name, "sizes.%ld", (long)getpid());
    const frugal_table table = {.rows = 300000, .init = FRUGAL_INIT_UNIFORM, .low = 1e-30f, .high = 2e-30f};
    const frugal_desc d = pages_desc(&table, 1, *state ? name : NULL);
    frugal *f;
    frugal_stats before, after;
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) skip();
    if (frugal_open(&d, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    assert_int_equal(0, prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
    const frugal_memory rows = frugal_get_memory(f, 0, FRUGAL_MEMORY_TABLE);
    frugal_get_stats(f, &before);
    assert_int_equal(0, before.huge_bytes);
    int is_told = before.resident_bytes > 0; /* not by emulators */
    if (is_told) assert_in_range(before.resident_bytes, rows.bytes, 3 * rows.bytes);
    int is_huge = !madvise(rows.start, rows.bytes / HUGE_PAGE * HUGE_PAGE, COLLAPSE);
    frugal_get_stats(f, &after);
    assert_true(after.huge_bytes == 0 && after.resident_bytes == before.resident_bytes);
    train_on_large_pages(f, d.name);
    frugal_get_stats(f, &after);
    assert_true(after.steps > 0 && after.huge_bytes <= after.resident_bytes);
    if (is_told && is_huge) assert_in_range(after.huge_bytes, rows.bytes / HUGE_PAGE * HUGE_PAGE, after.resident_bytes);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    if (!is_told || !is_huge) skip(); /* the system has no huge pages now, or does not say */
#else
    (void)state;
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_failing),
        cmocka_unit_test(test_every_block_of_the_system_failing),
        cmocka_unit_test(test_impossible_blocks),
        CASE("test_mapped_blocks", test_mapped_blocks, 0),
        CASE("test_mapped_blocks, on a huge page by chance", test_mapped_blocks, 1),
        cmocka_unit_test(test_large_pages),
        CASE("test_page_sizes", test_page_sizes, 0),
        CASE("test_page_sizes, of shared memory", test_page_sizes, 1),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
