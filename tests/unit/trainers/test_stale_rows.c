/* What the trainers do with --secondaries: which rows are listed, on which device; and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "trainers/common/secondaries.h"

/* Rows 0 to 5 are of a first table, 6 and 7 of a second; 8 and 9 are the twins of 6 and 7. Samples 0 to 3 are device
 * 0's, 4 to 7 device 1's. Touches of device 0, of device 1: */
enum { FIRST = 6, SECOND = 2, ROWS = FIRST + SECOND, TWINS = 2, SAMPLES = 8, WIDTH = 3, DEVICES = 2 };
static const uint64_t keys[SAMPLES * WIDTH] = {0, 1, 6, 0, 1, 6, 0, 2, 6, 0, 4, 6,  /* 0: 4, 1; 1: 2, 1; 2: 1, 2 */
                                               2, 3, 7, 2, 3, 7, 3, 1, 6, 0, 3, 6}; /* 3: 0, 4; 4: 1, 0; 5: none; */
                                                                                    /* 6: 4, 2; 7: 0, 2 */
static const uint8_t parts[SAMPLES] = {0, 0, 0, 0, 1, 1, 1, 1};

static program_error error;
static uint64_t key_rows = ROWS;

static int rewind_keys(void *at, program_error *none) {
    (void)none;
    *(uint64_t *)at = 0;
    return 0;
}

static int read_keys(void *of, frugal_place_samples *block, program_error *none) { /* blocks of three samples */
    uint64_t *at = of, n = SAMPLES - *at < 3 ? SAMPLES - *at : 3;
    (void)none;
    *block = (frugal_place_samples){.keys = keys + *at * WIDTH, .n = n, .width = WIDTH};
    *at += n;
    return 0;
}

static int fail_keys(void *of, program_error *why) {
    (void)of;
    return program_fail(why, "no samples today");
}

static int choose(secondaries *s, const training_settings *settings, const placing *placing, uint64_t twins) {
    static uint64_t at;
    partition_source source = {&at, rewind_keys, read_keys};
    secondaries_desc desc = {
        .settings = settings, .placing = placing, .rows = key_rows, .twins_from = FIRST, .twins = twins};
    return secondaries_choose(s, &desc, &source, &error);
}

static frugal *open_tables(uint64_t twins) {
    frugal *f;
    frugal_table tables[2] = {{.rows = FIRST}, {.rows = SECOND + twins}};
    frugal_desc desc = {.tables = tables, .n_tables = 2, .dim = 2, .devices = DEVICES, .max_keys = ROWS + TWINS};
    assert_int_equal(frugal_open(&desc, &f), FRUGAL_OK);
    for (uint32_t d = 0; d < DEVICES; d++) assert_int_equal(frugal_cpu_attach(f, d, &(frugal_cpu_desc){0}), FRUGAL_OK);
    return f;
}

/* Both devices look `row` up in two steps, without gradients. In the second, those that list it have a copy that lacks
 * the other's contribution, at most. Returns them as bits. */
static uint32_t devices_with(frugal *f, uint64_t row, uint64_t first_step) {
    uint64_t key = row < FIRST ? row : row - FIRST;
    float values[2], zeros[2] = {0, 0};
    uint32_t with = 0;
    frugal_keys segment = {.table = row >= FIRST, .keys = &key, .n = 1};
    frugal_batch batch = {.segments = &segment, .n_segments = 1};
    frugal_gradients gradients = {.grads = zeros, .lr = 1};
    for (uint64_t step = first_step; step < first_step + 2; step++) {
        for (uint32_t d = 0; d < DEVICES; d++) assert_int_equal(frugal_announce(f, d, step, &batch), FRUGAL_OK);
        for (uint32_t d = 0; d < DEVICES; d++) {
            frugal_stats before, after;
            frugal_get_stats(f, &before);
            assert_int_equal(frugal_lookup(f, d, step, values), FRUGAL_OK);
            frugal_get_stats(f, &after);
            if (step > first_step) with |= (uint32_t)(after.hits - before.hits) << d;
        }
        for (uint32_t d = 0; d < DEVICES; d++) assert_int_equal(frugal_update(f, d, step, &gradients), FRUGAL_OK);
    }
    return with;
}

/* Which devices list which rows: wanted[ROWS + twins]. */
static void check_lists(const secondaries *s, uint64_t twins, const uint32_t *wanted) {
    frugal *f = open_tables(twins);
    assert_int_equal(secondaries_list(s, f, &error), 0);
    for (uint64_t row = 0; row < ROWS + twins; row++) {
        uint32_t found = devices_with(f, row, 2 * row);
        if (found != wanted[row]) fail_msg("row %d: devices %u list it, not %u", (int)row, found, wanted[row]);
    }
    assert_int_equal(frugal_close(f), FRUGAL_OK);
}

/* By touches 6 (6), 0 (5), 3 (4), then 1 and 2 (3). */
static void test_by_touches(void **state) {
    (void)state;
    training_settings settings = {.devices = DEVICES, .batch = 1, .secondaries = 50, .stale = UINT32_MAX};
    placing none = {.settings = &settings};
    secondaries s;
    assert_int_equal(choose(&s, &settings, &none, 0), 0);
    check_lists(&s, 0, (const uint32_t[]){3, 3, 0, 3, 0, 0, 3, 0});
    secondaries_close(&s);
    settings.secondaries = 100;
    assert_int_equal(choose(&s, &settings, &none, TWINS), 0);
    check_lists(&s, TWINS, (const uint32_t[]){3, 3, 3, 3, 3, 3, 3, 3, 3, 3});
    secondaries_close(&s);
    settings.secondaries = 30; /* 3 of 10 rows: 6, its twin, 0 */
    assert_int_equal(choose(&s, &settings, &none, TWINS), 0);
    check_lists(&s, TWINS, (const uint32_t[]){3, 0, 0, 0, 0, 0, 3, 0, 3, 0});
    secondaries_close(&s);
}

/* With parts: rows whose home is the other device. */
static void test_by_parts(void **state) {
    (void)state;
    training_settings settings = {.devices = DEVICES, .batch = 1, .secondaries = 100, .stale = UINT32_MAX};
    placing placed = {.settings = &settings};
    frugal_place_desc desc = {.rows = ROWS, .parts = DEVICES};
    secondaries s;
    placed.partition.parts = malloc(SAMPLES);
    placed.partition.place = malloc(frugal_place_footprint(&desc));
    assert_true(placed.partition.parts && placed.partition.place);
    memcpy(placed.partition.parts, parts, SAMPLES);
    frugal_place_init(placed.partition.place, &desc);
    frugal_place_samples samples = {.keys = keys, .n = SAMPLES, .width = WIDTH};
    assert_int_equal(frugal_place_load(placed.partition.place, &samples, parts), FRUGAL_PLACE_OK);

    assert_int_equal(choose(&s, &settings, &placed, TWINS), 0);
    check_lists(&s, TWINS, (const uint32_t[]){2, 2, 1, 0, 0, 0, 2, 0, 2, 0});
    secondaries_close(&s);
    settings.secondaries = 20; /* 2 of 10 rows: of device 1 row 6, which it touches most, with its twin */
    assert_int_equal(choose(&s, &settings, &placed, TWINS), 0);
    check_lists(&s, TWINS, (const uint32_t[]){0, 0, 1, 0, 0, 0, 2, 0, 2, 0});
    secondaries_close(&s);
    placing_close(&placed);
}

static void test_none_and_refused(void **state) {
    (void)state;
    training_settings settings = {.devices = DEVICES, .batch = 1};
    placing none = {.settings = &settings};
    secondaries s;
    assert_int_equal(choose(&s, &settings, &none, 0), 0);
    check_lists(&s, 0, (const uint32_t[ROWS]){0});
    secondaries_close(&s);

    settings.secondaries = 5;
    assert_int_equal(choose(&s, &settings, &none, 0), -1);
    assert_string_equal(error.text, "--secondaries 5 of 8 rows is none; use a larger share, or leave it out");
    secondaries_close(&s);

    settings.secondaries = 100, key_rows = ROWS - 1;
    assert_int_equal(choose(&s, &settings, &none, 0), -1);
    assert_string_equal(error.text, "a sample has row 7, and there are 7 rows");
    secondaries_close(&s);
    key_rows = ROWS;

    partition_source source = {NULL, fail_keys, read_keys};
    secondaries_desc desc = {.settings = &settings, .placing = &none, .rows = ROWS};
    assert_int_equal(secondaries_choose(&s, &desc, &source, &error), -1);
    assert_string_equal(error.text, "no samples today");
    secondaries_close(&s);

    frugal *f = open_tables(0);
    assert_int_equal(choose(&s, &settings, &none, 0), 0);
    devices_with(f, 0, 0);
    assert_int_equal(frugal_announce(f, 0, 2, &(frugal_batch){0}), FRUGAL_OK);
    assert_int_equal(secondaries_list(&s, f, &error), -1);
    assert_non_null(strstr(error.text, "cannot list secondaries: "));
    assert_int_equal(frugal_close(f), FRUGAL_OK);
    secondaries_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_touches),
        cmocka_unit_test(test_by_parts),
        cmocka_unit_test(test_none_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
