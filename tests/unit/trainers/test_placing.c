/* What the trainers do with --place: parts that are found or read, what is said of them, and rows in the caches before
 * the first step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainers/common/crc32.h"
#include "trainers/common/placing.h"
#include "frugal_seeing.h"
#include "tests/support.h"

/* Two communities. Sample s of community c = s / HALF mod 2 touches two of its own FIRST rows in the first table, and a
 * row of the second table that all samples touch. */
enum { SAMPLES = 4000, HALF = 5, FIRST = 300, SECOND = 2, ROWS = 2 * FIRST + SECOND, WIDTH = 3, BATCH = 20 };

static program_error error;
static uint64_t keys[SAMPLES * WIDTH];

static void make_keys(void) {
    for (uint64_t s = 0; s < SAMPLES; s++) {
        uint64_t community = s / HALF % 2, *key = keys + s * WIDTH;
        key[0] = community * FIRST + test_mix(s) % FIRST, key[1] = community * FIRST + test_mix(~s) % FIRST;
        key[2] = 2 * FIRST + test_mix(s) / FIRST % SECOND;
    }
}

static int rewind_keys(void *at, program_error *none) {
    (void)none;
    *(uint64_t *)at = 0;
    return 0;
}

static int read_keys(void *of, frugal_place_samples *block, program_error *none) {
    uint64_t *at = of, n = SAMPLES - *at < 1000 ? SAMPLES - *at : 1000;
    (void)none;
    *block = (frugal_place_samples){.keys = keys + *at * WIDTH, .n = n, .width = WIDTH};
    *at += n;
    return 0;
}

static int make(placing *p, training_settings *settings, const char *place, uint32_t threads) {
    uint64_t at = 0;
    partition_source source = {&at, rewind_keys, read_keys};
    *settings = (training_settings){.devices = 2, .batch = BATCH, .place = place};
    placing_desc desc = {.settings = settings, .threads = threads, .rows = ROWS};
    make_keys();
    return placing_make(p, &desc, &source, &error);
}

static char *described(const placing *p) {
    char *text = NULL;
    size_t n = 0;
    FILE *lines = open_memstream(&text, &n);
    assert_non_null(lines);
    placing_describe(p, lines);
    placing_json(p, lines);
    fclose(lines);
    return text;
}

static void test_none(void **state) {
    (void)state;
    placing p;
    training_settings settings;
    assert_int_equal(make(&p, &settings, NULL, 1), 0);
    assert_null(p.partition.parts);
    char *text = described(&p);
    assert_string_equal(text, "");
    free(text);
    placing_show(&p);
    placing_json(&p, NULL);
    assert_int_equal(placing_preload(&p, NULL, 0, 10, &error), 0);
    placing_forget(&p);
    placing_close(&p);
}

/* The communities are found, whatever the threads; a file of these parts says the same. */
static void test_parts(void **state) {
    (void)state;
    placing one, three, file;
    training_settings settings[3];
    char path[] = "/tmp/test_placing.XXXXXX", wanted[200];
    assert_int_equal(make(&one, &settings[0], "auto", 1), 0);
    assert_int_equal(make(&three, &settings[1], "auto", 3), 0);
    assert_int_equal(one.partition.samples, SAMPLES);
    assert_memory_equal(one.partition.parts, three.partition.parts, SAMPLES);
    /* at most 5 of 6; at random somewhat more than half */
    assert_true(one.report.local_share > .75 && one.report.balance < 1.06 && one.report.touches == SAMPLES * WIDTH);

    int stream = mkstemp(path);
    assert_int_equal(write(stream, one.partition.parts, SAMPLES), SAMPLES);
    close(stream);
    assert_int_equal(make(&file, &settings[2], path, 1), 0);
    assert_int_equal(file.checksum, one.checksum);
    assert_int_equal(file.checksum, crc32_of(0, one.partition.parts, SAMPLES));
    assert_true(file.report.local_share == one.report.local_share);
    char *text = described(&file);
    snprintf(wanted, sizeof wanted, "--place 4000 samples, checksum of their parts %08x\n, \"local_share\": %.6f",
             (unsigned)one.checksum, one.report.local_share);
    assert_int_equal(strncmp(text, wanted, strlen(wanted)), 0);
    assert_non_null(strstr(text, ", \"balance\": 1."));
    assert_non_null(strstr(text, ", \"place_seconds\": "));
    free(text);
    placing_close(&file);

    assert_int_equal(truncate(path, SAMPLES - 1), 0);
    assert_int_equal(make(&file, &settings[2], path, 1), -1);
    assert_non_null(strstr(error.text, "has 3999 bytes, and the data 4000 samples"));
    placing_close(&file);
    unlink(path);
    placing_close(&one), placing_close(&three);
}

/* Four devices on two machines. All machines, and any number of threads, deal alike, and what is dealt does not depend
 * on how many machines there are. */
static void test_machines(void **state) {
    (void)state;
    enum { TWINS = SECOND };
    training_settings settings = {.devices = 4, .batch = BATCH, .place = "auto:2"};
    placing one, two;
    uint64_t at = 0, away = 0, rows[2] = {0};
    partition_source source = {&at, rewind_keys, read_keys};
    placing_desc desc = {.settings = &settings, .threads = 1, .rows = ROWS, .twins_from = 2 * FIRST, .twins = TWINS};
    make_keys();
    assert_int_equal(placing_make(&one, &desc, &source, &error), 0);
    desc.machines = 2, desc.threads = 3;
    assert_int_equal(placing_make(&two, &desc, &source, &error), 0);
    assert_memory_equal(one.partition.parts, two.partition.parts, SAMPLES);
    assert_int_equal(one.checksum, two.checksum);
    assert_null(one.homes.of);
    for (uint64_t s = 0; s < SAMPLES; s++)
        for (int i = 0; i < 2; i++) away += two.homes.of[keys[s * WIDTH + i]] != two.partition.parts[s] / 2;
    assert_true(away < SAMPLES * 6 / 10); /* of 2 SAMPLES; in turn it would be half of these */
    for (uint64_t x = 0; x < ROWS + TWINS; x++) rows[two.homes.of[x]]++;
    for (uint64_t x = 2 * FIRST; x < ROWS; x++) assert_int_equal(two.homes.of[x], two.homes.of[x + TWINS]);
    for (int m = 0; m < 2; m++) assert_int_equal(rows[m], two.homes.rows[m]);
    placing_close(&one), placing_close(&two);
}

static frugal *open_tables(uint64_t cache_rows) {
    frugal *f;
    frugal_table tables[2] = {{.rows = 2 * FIRST}, {.rows = SECOND}};
    frugal_desc desc = {.tables = tables, .n_tables = 2, .dim = 2, .devices = 2, .max_keys = ROWS};
    frugal_cpu_desc cpu = {.cache_rows = cache_rows, .policy = FRUGAL_CACHE_STATIC};
    assert_int_equal(frugal_open(&desc, &f), FRUGAL_OK);
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(frugal_cpu_attach(f, d, &cpu), FRUGAL_OK);
    return f;
}

/* Step 0: the device looks all rows up; its hits. */
static uint64_t hits_of(frugal *f, uint32_t device) {
    uint64_t all[2 * FIRST];
    float rows[ROWS * 2];
    frugal_stats stats;
    for (uint64_t i = 0; i < 2 * FIRST; i++) all[i] = i;
    frugal_keys segments[2] = {{.table = 0, .keys = all, .n = 2 * FIRST}, {.table = 1, .keys = all, .n = SECOND}};
    for (uint32_t d = 0; d < 2; d++) {
        frugal_batch batch = {.segments = segments, .n_segments = d == device ? 2 : 0};
        assert_int_equal(frugal_announce(f, d, 0, &batch), FRUGAL_OK);
    }
    assert_int_equal(frugal_lookup(f, device, 0, rows), FRUGAL_OK);
    frugal_get_stats(f, &stats);
    return stats.hits;
}

/* Each device has the rows that are worth most to it, as many as its cache takes; nothing without a cache, or when the
 * counts are forgotten. */
static void test_preload(void **state) {
    (void)state;
    placing p;
    training_settings settings;
    uint64_t best[ROWS];
    double values[ROWS];
    assert_int_equal(make(&p, &settings, "auto", 1), 0);
    static const uint64_t caches[] = {0, 80, 1000};
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t cache = caches[i / 2];
        frugal *f = open_tables(cache);
        assert_int_equal(placing_preload(&p, f, i % 2, cache, &error), 0);
        uint64_t hits = hits_of(f, i % 2);
        uint64_t worth = frugal_place_rank(p.partition.place, i % 2, FRUGAL_PLACE_BY_GAIN, BATCH, best, values, ROWS);
        uint64_t wanted = worth < cache ? worth : cache;
        assert_true(hits <= wanted && hits >= wanted * 3 / 4); /* a set of the cache may have no room for a row */
        if (cache) {
            assert_int_equal(placing_preload(&p, f, i % 2, cache, &error), -1);
            assert_non_null(strstr(error.text, "cannot preload the caches: "));
        }
        assert_int_equal(frugal_close(f), FRUGAL_OK);
    }
    frugal *f = open_tables(80);
    placing_forget(&p);
    assert_int_equal(placing_preload(&p, f, 0, 80, &error), 0);
    assert_int_equal(hits_of(f, 0), 0);
    assert_int_equal(frugal_close(f), FRUGAL_OK);
    placing_close(&p);
}

/* Of several machines, only rows of the device's own: here one device each, in one instance that has all rows. */
static void test_preload_own(void **state) {
    (void)state;
    enum { CACHE = 80 };
    uint64_t at = 0, best[ROWS], own = 0;
    double values[ROWS];
    placing p;
    training_settings settings = {.devices = 2, .batch = BATCH, .place = "auto:2"};
    partition_source source = {&at, rewind_keys, read_keys};
    placing_desc desc = {.settings = &settings, .threads = 1, .rows = ROWS, .machines = 2};
    make_keys();
    assert_int_equal(placing_make(&p, &desc, &source, &error), 0);
    for (uint32_t d = 0; d < 2; d++) {
        frugal *f = open_tables(ROWS);
        assert_int_equal(placing_preload(&p, f, d, CACHE, &error), 0);
        assert_int_equal(hits_of(f, d), CACHE);
        assert_int_equal(frugal_close(f), FRUGAL_OK);
        f = open_tables(2 * ROWS);
        assert_int_equal(placing_preload(&p, f, d, ROWS, &error), 0);
        uint64_t n = frugal_place_rank(p.partition.place, d, FRUGAL_PLACE_BY_GAIN, BATCH, best, values, ROWS);
        for (uint64_t i = own = 0; i < n; i++) own += p.homes.of[best[i]] == d;
        assert_int_equal(hits_of(f, d), own);
        assert_true(own < n);
        assert_int_equal(frugal_close(f), FRUGAL_OK);
    }
    placing_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),    cmocka_unit_test(test_parts),       cmocka_unit_test(test_machines),
        cmocka_unit_test(test_preload), cmocka_unit_test(test_preload_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
