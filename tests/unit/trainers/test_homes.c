/* test_homes.c - homes of rows on several machines, beside a count of real steps; their limits, and what
 * tools/place/away.h predicts of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/common/homes.h"
#include "tests/seed.h"
#include "tests/support.h"
#include "tools/place/away.h"

enum { ROWS = 900, SAMPLES = 4000, WIDTH = 5, DEVICES = 8, BATCH = 20 };

static program_error error;
static uint64_t seed, keys[SAMPLES][WIDTH];
static uint8_t parts[SAMPLES];

/* Of a sample's keys one is of ten rows that all have, the others of the rows of its device; the last tenth of the rows
 * is touched by nobody. */
static frugal_place *place_samples(void) {
    test_random r = {.seed = seed};
    frugal_place_desc desc = {.rows = ROWS, .parts = DEVICES};
    frugal_place *place = frugal_place_init(malloc(frugal_place_footprint(&desc)), &desc);
    for (uint64_t s = 0; s < SAMPLES; s++) {
        parts[s] = (uint8_t)test_below(&r, DEVICES);
        keys[s][0] = test_below(&r, 10);
        for (int i = 1; i < WIDTH; i++) {
            uint64_t device = test_chance(&r, 80) ? parts[s] : test_below(&r, DEVICES);
            keys[s][i] = 10 + device * 100 + test_below(&r, 100);
        }
    }
    frugal_place_samples all = {.keys = keys[0], .n = SAMPLES, .width = WIDTH};
    assert_int_equal(frugal_place_load(place, &all, parts), FRUGAL_PLACE_OK);
    return place;
}

static homes_desc desc_of(const frugal_place *place, uint32_t machines) {
    return (homes_desc){.place = place, .rows = ROWS, .batch = BATCH, .devices = DEVICES, .machines = machines};
}

/* An epoch of steps, each device's samples in order: reads[row][machine] by devices of that machine, each row once a
 * device and step. */
static void count_reads(uint32_t machines, uint64_t reads[ROWS][DEVICES]) {
    static uint64_t seen[DEVICES][ROWS]; /* 1 + the step of the last read */
    uint64_t taken[DEVICES] = {0};
    memset(seen, 0, sizeof seen), memset(reads, 0, ROWS * sizeof *reads);
    for (uint64_t s = 0; s < SAMPLES; s++) {
        uint64_t device = parts[s], step = taken[device]++ / BATCH;
        for (int i = 0; i < WIDTH; i++) {
            uint64_t *last = &seen[device][keys[s][i]];
            if (*last != step + 1) reads[keys[s][i]][device * machines / DEVICES]++;
            *last = step + 1;
        }
    }
}

/* A row is where it is read most, or nearly so; a row that is read by all nearly alike may be anywhere. */
static void rows_are_where_they_are_read(void **state) {
    (void)state;
    static uint64_t reads[ROWS][DEVICES];
    frugal_place *place = place_samples();
    for (uint32_t machines = 1; machines <= DEVICES; machines *= 2) {
        homes_desc desc = desc_of(place, machines);
        homes h;
        uint64_t rows[DEVICES] = {0}, best = 0, chosen = 0;
        assert_int_equal(homes_make(&h, &desc, &error), 0);
        count_reads(machines, reads);
        for (uint64_t x = 0; x < ROWS; x++) {
            uint64_t most = 0;
            for (uint32_t m = 0; m < machines; m++)
                if (reads[x][m] > most) most = reads[x][m];
            assert_true(h.of[x] < machines);
            rows[h.of[x]]++, best += most, chosen += reads[x][h.of[x]];
        }
        assert_true((double)chosen > .97 * (double)best);
        for (uint32_t m = 0; m < machines; m++) {
            assert_int_equal(rows[m], h.rows[m]);
            assert_true((double)rows[m] <= ceil(HOMES_MOST * ROWS / machines));
        }
        assert_true(homes_balance(h.rows, machines) <= HOMES_MOST + .01 * machines);
        homes_free(&h);
    }
    free(place);
}

/* The prediction beside a count, for homes in turn and for these. */
static void shares_are_those_of_real_steps(void **state) {
    (void)state;
    static uint64_t reads[ROWS][DEVICES];
    frugal_place *place = place_samples();
    for (uint32_t machines = 2; machines <= DEVICES; machines *= 2) {
        homes_desc desc = desc_of(place, machines);
        homes h;
        place_away away;
        uint64_t all = 0, in_turn = 0, placed = 0, link[DEVICES] = {0}, popular[DEVICES] = {0};
        assert_int_equal(homes_make(&h, &desc, &error), 0);
        assert_int_equal(place_away_take(&away, &desc, h.of, &error), 0);
        count_reads(machines, reads);
        for (uint64_t x = 0; x < ROWS; x++)
            for (uint32_t m = 0; m < machines; m++) {
                all += reads[x][m];
                if (m != x % machines) in_turn += reads[x][m];
                if (m == h.of[x]) continue;
                placed += reads[x][m];
                link[m] += reads[x][m], link[h.of[x]] += reads[x][m];
            }
        assert_true(fabs(away.in_turn - (double)in_turn / (double)all) < .01);
        assert_true(fabs(away.placed - (double)placed / (double)all) < .01);
        assert_true(away.placed < .5 * away.in_turn); /* 80% of the keys but the first are a device's own */
        assert_true(fabs(homes_balance(link, machines) - homes_balance(h.link, machines)) < .05);
        for (uint64_t x = 0; x < 10; x++) popular[h.of[x]]++;
        for (uint32_t m = 0; m < machines; m++) assert_true(popular[m] <= 10 / machines + 2);
        homes_free(&h);
    }
    free(place);
}

/* All samples on one device: its machine takes no more than the limit, and the others get the rest. */
static void no_machine_is_overfilled(void **state) {
    (void)state;
    enum { FEW = 7 };
    frugal_place_desc of = {.rows = FEW, .parts = 4};
    frugal_place *place = frugal_place_init(malloc(frugal_place_footprint(&of)), &of);
    const uint64_t touched[] = {0, 1, 2, 3, 4, 5, 5};
    const uint8_t first[FEW] = {0};
    frugal_place_samples all = {.keys = touched, .n = FEW, .width = 1};
    assert_int_equal(frugal_place_load(place, &all, first), FRUGAL_PLACE_OK);
    homes_desc desc = {.place = place, .rows = FEW, .batch = 1, .devices = 4, .machines = 2};
    homes h;
    assert_int_equal(homes_make(&h, &desc, &error), 0);
    const uint8_t wanted[FEW] = {0, 0, 0, 0, 1, 1, 1}; /* 1.1 x 7 / 2, rounded up, are 4 */
    assert_memory_equal(h.of, wanted, FEW);
    assert_int_equal(h.rows[0], 4);
    assert_int_equal(h.link[0], 3); /* reads of rows 4 and 5 */
    assert_int_equal(h.link[1], 3);
    homes_free(&h), homes_free(&h);
    assert_true(homes_balance(h.rows, 2) == 1);
    free(place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_where_they_are_read),
        cmocka_unit_test(shares_are_those_of_real_steps),
        cmocka_unit_test(no_machine_is_overfilled),
    };
    seed = test_seed("test_homes", 7);
    return cmocka_run_group_tests_name("test_homes", tests, NULL, NULL);
}
