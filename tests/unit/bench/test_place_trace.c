/* test_place_trace.c - traces, how they are dealt, and partitions (bench/place): each sample once an epoch, planted
 * communities, counts by pairs of devices, predictions, caches that know the next steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/place/ahead.h"

static const place_planted small = {
    .rows = 600, .samples = 1003, .communities = 6, .seed = 7, .width = 4, .own = .9, .zipf = .9};

static place_trace plant(const place_planted *planted) {
    place_trace trace;
    program_error error;
    assert_int_equal(0, place_plant(&trace, planted, &error));
    return trace;
}

/* Samples whose keys are their own numbers; those of a part are dealt once in each pass over them, the next pass in
 * another order. */
static void each_sample_is_dealt_once_an_epoch(void **state) {
    (void)state;
    enum { N = 100, BATCH = 7 };
    uint64_t keys[N], batch[BATCH], order[2][N];
    uint8_t parts[N];
    place_trace trace = {.keys = keys, .rows = N, .n = N, .width = 1};
    place_deal deal;
    program_error error;
    for (uint64_t s = 0; s < N; s++) keys[s] = s, parts[s] = s % 10 == 0;
    assert_int_equal(0, place_open_deal(&deal, &trace, parts, 2, 3, &error));
    for (uint32_t d = 0; d < 2; d++) {
        uint64_t size = d ? 10 : 90, seen[N] = {0};
        assert_true(deal.size[d] == size);
        for (uint64_t at = 0; at < 2 * size; at++) {
            place_batch(&deal, d, at / BATCH, BATCH, batch);
            uint64_t sample = batch[at % BATCH];
            assert_int_equal(parts[sample], d);
            assert_true(seen[sample]++ == at / size);
            order[at / size][at % size] = sample;
        }
        assert_memory_not_equal(order[0], order[1], size * sizeof **order);
    }
    place_close_deal(&deal);
}

static void a_device_without_samples_is_refused(void **state) {
    (void)state;
    uint64_t keys[] = {0, 1};
    const uint8_t parts[] = {0, 2};
    place_trace trace = {.keys = keys, .rows = 2, .n = 2, .width = 1};
    place_deal deal;
    program_error error;
    assert_int_equal(-1, place_open_deal(&deal, &trace, parts, 3, 1, &error));
    assert_string_equal("device 1 of 3 gets no sample; give fewer devices or more samples", error.text);
}

static void planted_traces_are_the_same_twice(void **state) {
    (void)state;
    place_trace once = plant(&small), twice = plant(&small);
    assert_true(once.n == small.samples && once.rows == small.rows && once.width == small.width);
    assert_memory_equal(once.keys, twice.keys, once.n * once.width * sizeof *once.keys);
    for (uint64_t i = 0; i < once.n * once.width; i++) assert_true(once.keys[i] < once.rows);
    place_free_trace(&once), place_free_trace(&twice);
}

/* With own = 1 a row has samples of one community only, so rows that share a sample never meet those of another. */
static void communities_are_apart(void **state) {
    (void)state;
    place_planted planted = small;
    planted.own = 1, planted.communities = 3;
    place_trace trace = plant(&planted);
    uint64_t group[600]; /* the least row that is known to be of the same community */
    for (uint64_t x = 0; x < trace.rows; x++) group[x] = x;
    for (int pass = 0; pass < 50; pass++)
        for (uint64_t s = 0; s < trace.n; s++)
            for (uint32_t i = 1; i < trace.width; i++) {
                uint64_t a = trace.keys[s * trace.width], b = trace.keys[s * trace.width + i];
                group[a] = group[b] = group[a] < group[b] ? group[a] : group[b];
            }
    uint8_t is_met[600] = {0};
    uint32_t groups = 0;
    for (uint64_t i = 0; i < trace.n * trace.width; i++) {
        uint64_t g = group[trace.keys[i]];
        groups += !is_met[g];
        is_met[g] = 1;
    }
    assert_int_equal(groups, 3);
    place_free_trace(&trace);
}

static void few_rows_have_a_share(void **state) {
    (void)state;
    uint64_t keys[] = {3, 3, 3, 3, 3, 1, 1, 1, 0, 2}, rows;
    place_trace trace = {.keys = keys, .rows = 9, .n = 5, .width = 2};
    const struct {
        double share;
        uint64_t rows;
    } cases[] = {{0, 0}, {.5, 1}, {.51, 2}, {.8, 2}, {.9, 3}, {1, 4}};
    program_error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(0, place_rows_of_share(&trace, cases[i].share, &rows, &error));
        assert_true(rows == cases[i].rows);
    }
}

/* Every method deals each sample, the counts are those of its parts, and pairs add up to them. */
static void methods_agree_with_their_counts(void **state) {
    (void)state;
    enum { DEVICES = 3 };
    place_trace trace = plant(&small);
    for (int method = PLACE_RANDOM; method < PLACE_METIS; method++) {
        place_partition p;
        program_error error;
        uint64_t pairs[DEVICES * DEVICES], sum = 0, local = 0, size[DEVICES] = {0};
        assert_int_equal(
            0, place_divide(&p, &trace, &(place_division){.method = (place_method)method, .devices = DEVICES}, &error));
        frugal_place_report report = frugal_place_get_report(p.place, 0);
        for (uint64_t s = 0; s < trace.n; s++) size[p.parts[s]]++;
        for (uint32_t d = 0; d < DEVICES; d++) assert_true(frugal_place_size(p.place, d) == size[d]);
        place_count_pairs(&p, pairs);
        for (int i = 0; i < DEVICES * DEVICES; i++) sum += pairs[i], local += i % (DEVICES + 1) ? 0 : pairs[i];
        assert_true(sum == trace.n * trace.width && sum == report.touches && local == report.local);
        place_free_partition(&p);
    }
    place_free_trace(&trace);
}

/* More samples than a block has; few enough for the sanitizers. */
static void threads_find_the_same_parts(void **state) {
    (void)state;
    place_planted planted = small;
    planted.samples = 70000, planted.width = 2;
    place_trace trace = plant(&planted);
    place_partition one, several;
    program_error error;
    assert_int_equal(0, place_divide(&one, &trace, &(place_division){.method = PLACE_TWO_LEVEL, .devices = 2}, &error));
    for (uint32_t threads = 2; threads <= 5; threads += 3) {
        assert_int_equal(0, place_divide(&several, &trace,
                                         &(place_division){.method = PLACE_TWO_LEVEL, .devices = 2, .threads = threads},
                                         &error));
        assert_memory_equal(one.parts, several.parts, trace.n);
        assert_true(several.path_seconds > 0);
        place_free_partition(&several);
    }
    place_free_partition(&one), place_free_trace(&trace);
}

/* Without a cache it is the report's; a larger cache saves more, until all rows of value are kept. */
static void predictions_fall_with_the_cache(void **state) {
    (void)state;
    place_trace trace = plant(&small);
    place_partition p;
    program_error error;
    double reads, before;
    assert_int_equal(0, place_divide(&p, &trace, &(place_division){.method = PLACE_TWO_LEVEL, .devices = 2}, &error));
    frugal_place_report report = frugal_place_get_report(p.place, 20);
    assert_int_equal(0, place_rank(&p, 20, &error));
    before = place_predict(&p, 0);
    assert_true(before == report.reads);
    for (uint64_t rows = 1; rows <= trace.rows; rows *= 2, before = reads) {
        reads = place_predict(&p, rows);
        assert_true(reads < before);
    }
    double left = place_predict(&p, trace.rows) - (report.reads - report.hits);
    assert_true(left < 1e-6 && left > -1e-6);
    place_free_partition(&p), place_free_trace(&trace);
}

static double read_of(const place_future *future, uint64_t cache_rows, place_rule rule, uint32_t lookahead) {
    place_ahead ahead = place_simulate(future, cache_rows, rule, lookahead);
    assert_true(ahead.reads.read <= ahead.reads.rows);
    return ahead.reads.read;
}

/* One cache size: rules that know nothing are the one that asks nothing, and Belady's rule reads least. */
static void check_rules(const place_future *future, uint64_t cache_rows, uint32_t lookahead) {
    double least = read_of(future, cache_rows, PLACE_BELADY, 0), worth = read_of(future, cache_rows, PLACE_WORTH, 0);
    assert_true(least <= worth);
    for (int rule = PLACE_PROTECT; rule < PLACE_BELADY; rule++) {
        assert_true(read_of(future, cache_rows, (place_rule)rule, 0) == worth);
        for (uint32_t l = 1; l <= lookahead; l++)
            assert_true(read_of(future, cache_rows, (place_rule)rule, l) >= least);
    }
    if (future->run.partition->devices == 1) /* whose copies all stay current */
        assert_true(read_of(future, cache_rows, PLACE_ADMIT, lookahead) ==
                    read_of(future, cache_rows, PLACE_CURRENT, lookahead));
}

/* Where nothing is cached all is read; where no set is ever full all rules are the same, Belady's too. */
static void check_extremes(const place_future *future, uint32_t lookahead) {
    uint64_t all = 64 * future->run.partition->trace->rows;
    double worth = read_of(future, all, PLACE_WORTH, 0);
    for (int rule = 0; rule < PLACE_RULES; rule++) {
        place_ahead none = place_simulate(future, 0, (place_rule)rule, lookahead);
        assert_true(none.reads.read == none.reads.rows &&
                    none.window >= none.reads.rows / future->run.partition->devices);
        assert_true(read_of(future, all, (place_rule)rule, lookahead) == worth && worth < none.reads.rows);
    }
}

static void rules_agree_where_they_must(void **state) {
    (void)state;
    enum { LOOKAHEAD = 5 };
    program_error error;
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (uint32_t devices = 1; devices <= 3; devices++) {
            place_planted planted = small;
            planted.seed = seed;
            place_trace trace = plant(&planted);
            place_partition p;
            place_deal deal;
            place_future future;
            place_run run = {.partition = &p, .deal = &deal, .batch = 16, .warm_up = 20, .steps = 30};
            assert_int_equal(
                0, place_divide(&p, &trace, &(place_division){.method = PLACE_TWO_LEVEL, .devices = devices}, &error));
            assert_int_equal(0, place_open_deal(&deal, &trace, p.parts, devices, seed, &error));
            assert_int_equal(0, place_rank(&p, run.batch, &error));
            place_open_future(&future, &run, LOOKAHEAD);
            for (uint64_t rows = 8; rows < 600; rows *= 3) check_rules(&future, rows, LOOKAHEAD);
            check_extremes(&future, LOOKAHEAD);
            place_close_future(&future), place_close_deal(&deal);
            place_free_partition(&p), place_free_trace(&trace);
        }
}

/* One device, one set, a row a step. Row r is worth more than row r + 1; rows 0 to 7 are there at the beginning. */
static void hits_by_hand(void **state) {
    (void)state;
    enum { ROWS = 10, STEPS = 6, LOOKAHEAD = 4, END = STEPS + LOOKAHEAD };
    uint64_t ranked[ROWS], worth[ROWS], first[END + 1];
    uint32_t again[ROWS];
    place_touch touches[STEPS] = {{8, 1, 1},           {8, 4, 1},           {7, 5, 1},
                                  {9, PLACE_NEVER, 1}, {8, PLACE_NEVER, 1}, {7, PLACE_NEVER, 1}};
    for (uint32_t r = 0; r < ROWS; r++) ranked[r] = r, worth[r] = ROWS - r, again[r] = PLACE_NEVER;
    for (uint32_t step = 0; step <= END; step++) first[step] = step < STEPS ? step : STEPS;
    again[7] = 2, again[8] = 0, again[9] = 3;
    place_trace trace = {.rows = ROWS};
    place_partition p = {.trace = &trace, .devices = 1, .ranked = ranked, .n_ranked = {ROWS}};
    place_future future = {.run = {.partition = &p, .steps = STEPS},
                           .end = END,
                           .first = first,
                           .touches = touches,
                           .again = again,
                           .worth = worth};
    const struct {
        place_rule rule;
        uint32_t lookahead, read;
    } cases[] = {
        {PLACE_WORTH, 0, 4},   /* row 8 never enters: hits of row 7 alone */
        {PLACE_PROTECT, 4, 4}, /* nor here */
        {PLACE_ADMIT, 1, 4},   /* it enters in place of row 7, and hits once; then row 7 takes the place back */
        {PLACE_ADMIT, 4, 2},   /* in place of row 6, because row 7 is announced, too */
        {PLACE_CURRENT, 4, 2}, {PLACE_BELADY, 0, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        place_ahead ahead = place_simulate(&future, 8, cases[i].rule, cases[i].lookahead);
        assert_true(ahead.reads.rows == 1 && lround(ahead.reads.read * STEPS) == cases[i].read);
    }
    assert_int_equal(10, lround(place_simulate(&future, 8, PLACE_ADMIT, 1).window * STEPS)); /* 1 2 2 2 2 1 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_is_dealt_once_an_epoch),
        cmocka_unit_test(a_device_without_samples_is_refused),
        cmocka_unit_test(planted_traces_are_the_same_twice),
        cmocka_unit_test(communities_are_apart),
        cmocka_unit_test(few_rows_have_a_share),
        cmocka_unit_test(methods_agree_with_their_counts),
        cmocka_unit_test(threads_find_the_same_parts),
        cmocka_unit_test(predictions_fall_with_the_cache),
        cmocka_unit_test(rules_agree_where_they_must),
        cmocka_unit_test(hits_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
