/* Planted click logs: samples are the same whatever part is drawn, ids have Zipf's frequencies, the area under the ROC
 * curve is as promised, and a log that is written and read is the same again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainers/clicks/auc.h"
#include "trainers/clicks/clicks.h"
#include "trainers/clicks/generate.h"
#include "trainers/clicks/ids.h"
#include "trainers/clicks/write.h"
#include "tests/seed.h"
#include "tests/support.h"

static program_error error;

static clicks *open_log(clicks_settings settings) {
    clicks *log;
    if (clicks_open(&log, &settings, &error)) fail_msg("%s", error.text);
    return log;
}

static clicks_batch read_part(const clicks *log, const char *path, uint64_t first, uint64_t end) {
    clicks_reader *reader;
    clicks_batch batch;
    assert_int_equal(clicks_batch_open(&batch, log, (uint32_t)(end - first) + 1, &error), 0);
    assert_int_equal(clicks_reader_open(&reader, log, path, first, end, &error), 0);
    if (clicks_reader_read(reader, batch.room, &batch, &error)) fail_msg("%s", error.text);
    clicks_reader_close(reader);
    return batch;
}

static int bits_differ(const void *a, const void *b, size_t n) {
    return memcmp(a, b, n) != 0;
}

/* Samples [from, from + n) of one batch and the first n of another, bit for bit. */
static void expect_same(const clicks *log, const clicks_batch *a, uint32_t from, const clicks_batch *b,
                        uint32_t features_before) {
    size_t n = b->n, numbers = clicks_numbers(log);
    assert_false(bits_differ(a->labels + from, b->labels, n * sizeof(float)));
    assert_false(bits_differ(a->numbers + from * numbers, b->numbers, n * numbers * sizeof(float)));
    for (size_t k = 0; k < clicks_features(log); k++)
        assert_false(
            bits_differ(a->ids + k * a->room + from, b->ids + (k + features_before) * b->room, n * sizeof(uint64_t)));
}

/* ---- Draws ---------------------------------------------------------------------------------------------- */

static void test_any_part_is_the_same(void **state) {
    clicks_settings settings = {
        .format = CLICKS_GENERATED, .ids = CLICKS_GIVEN, .generator = clicks_generator_default()};
    settings.generator.samples = 500;
    clicks *log = open_log(settings);
    clicks_batch all = read_part(log, NULL, 0, 500);
    uint64_t samples = 0;
    (void)state;
    assert_int_equal(all.n, 500);
    assert_int_equal(clicks_count(log, NULL, &samples, NULL, &error), 0);
    assert_int_equal(samples, 500);
    for (uint32_t first = 0; first < 500; first += 83) {
        clicks_batch part = read_part(log, NULL, first, first + 100);
        assert_int_equal(part.n, first + 100 <= 500 ? 100 : 500 - first);
        expect_same(log, &all, first, &part, 0);
        assert_false(bits_differ(all.truth + first, part.truth, part.n * sizeof(float)));
        clicks_batch_close(&part);
    }
    settings.generator.seed++;
    clicks *other = open_log(settings);
    clicks_batch others = read_part(other, NULL, 0, 500);
    assert_true(bits_differ(all.truth, others.truth, 500 * sizeof(float)));
    assert_true(bits_differ(all.ids, others.ids, 500 * sizeof(uint64_t)));
    clicks_batch_close(&others);
    clicks_batch_close(&all);
    clicks_close(other);
    clicks_close(log);
}

/* Frequencies of ranks, in 40 cells, by chi-square: with 40 degrees of freedom it is beyond 95 twice in a million. */
static void check_zipf(uint64_t n, double skew, uint64_t draws, uint64_t seed) {
    enum { CELLS = 40 };
    double total = 0, expected[CELLS + 1] = {0}, seen[CELLS + 1] = {0}, chi = 0;
    clicks_zipf zipf;
    clicks_zipf_open(&zipf, n, skew);
    for (uint64_t k = n; k >= 1; k--) total += pow((double)k, -skew);
    for (uint64_t k = 1; k <= n; k++) /* cells grow with the rank, so that none is empty */
        expected[(int)(CELLS * log((double)k) / log((double)n + 1))] += (double)draws * pow((double)k, -skew) / total;
    for (uint64_t i = 0; i < draws; i++) {
        uint64_t k = clicks_zipf_draw(&zipf, test_mix2(seed, i));
        assert_true(k >= 1 && k <= n);
        seen[(int)(CELLS * log((double)k) / log((double)n + 1))]++;
    }
    double rest_expected = 0, rest_seen = 0; /* cells of less than 10 are one */
    for (int cell = 0; cell < CELLS; cell++)
        if (expected[cell] >= 10)
            chi += (seen[cell] - expected[cell]) * (seen[cell] - expected[cell]) / expected[cell];
        else
            rest_expected += expected[cell], rest_seen += seen[cell];
    if (rest_expected > 0) chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / fmax(rest_expected, 1);
    if (chi > 95) fail_msg("n %llu, skew %g: chi-square %g", (unsigned long long)n, skew, chi);
}

static void test_zipf(void **state) {
    static const double skews[] = {0, 0.3, 0.99, 1, 1 + 1e-12, 1.05, 2, 5};
    uint64_t seed = test_seed("test_clicks_generate", 11);
    (void)state;
    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        check_zipf(2, skews[i], 20000 / SHORTER, seed);
        check_zipf(37, skews[i], 100000 / SHORTER, seed + 1);
        check_zipf(100000, skews[i], 200000 / SHORTER, seed + 2);
    }
    clicks_zipf one;
    clicks_zipf_open(&one, 1, 1.1);
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(clicks_zipf_draw(&one, i), 1);
    clicks_zipf_open(&one, UINT64_C(1) << 32, 10);
    for (uint64_t i = 0; i < 100; i++) assert_true(clicks_zipf_draw(&one, i) <= 10);
}

static void test_ranks_are_scattered(void **state) {
    static const uint64_t rows[] = {1, 2, 12, 97, 1000};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) { /* uniform ids: all come, in every feature */
        clicks_planted planted;
        clicks_generator size = {.samples = 1, .features = 3, .rows = rows[i], .spread = 1, .seed = 5};
        uint64_t ids[3];
        uint32_t *came = calloc(3 * rows[i], sizeof *came);
        clicks_drawn drawn = {.ids = ids};
        assert_int_equal(clicks_planted_open(&planted, &size, &error), 0);
        for (uint64_t sample = 0; sample < 20 * rows[i] + 20; sample++) {
            clicks_planted_draw(&planted, sample, &drawn);
            for (int k = 0; k < 3; k++) {
                assert_true(ids[k] < rows[i]);
                came[(uint64_t)k * rows[i] + ids[k]]++;
            }
        }
        for (uint64_t k = 0; k < 3 * rows[i]; k++) assert_true(came[k] > 0);
        free(came);
        clicks_planted_close(&planted);
    }
}

/* ---- What is planted ------------------------------------------------------------------------------------ */

static void check_area(clicks_generator size, double low, double high) {
    clicks *log = open_log((clicks_settings){.format = CLICKS_GENERATED, .ids = CLICKS_GIVEN, .generator = size});
    clicks_batch batch = read_part(log, NULL, 0, size.samples);
    auc *a;
    double area, loss, chance = 0, ones = (double)size.samples;
    assert_int_equal(auc_open(&a, &error), 0);
    assert_int_equal(auc_add(a, batch.truth, batch.labels, batch.n, &error), 0);
    assert_int_equal(auc_area(a, &area, &error), 0);
    assert_int_equal(auc_log_loss(a, &loss, &error), 0);
    double positives = (double)auc_positives(a) / ones;
    if (area < low || area > high) fail_msg("seed %d: the area is %g", (int)size.seed, area);
    if (fabs(positives - 0.25) > 0.01 + 4 * sqrt(0.25 * 0.75 / ones))
        fail_msg("seed %d: %g positives", (int)size.seed, positives);
    for (uint32_t i = 0; i < batch.n; i++) chance += 1 / (1 + exp(-(double)batch.truth[i])) / ones;
    assert_true(fabs(chance - positives) < 3 * sqrt(0.25 * 0.75 / ones)); /* labels come as the logit promises */
    auc_close(a);
    clicks_batch_close(&batch);
    clicks_close(log);
}

static void test_area(void **state) {
    clicks_generator size = clicks_generator_default();
    size.samples = 40000 / SHORTER;
    (void)state;
    for (size.seed = 1; size.seed <= 6; size.seed++) check_area(size, 0.77, 0.83);
    size.zipf = 0;
    check_area(size, 0.77, 0.83);
    size.zipf = 2;
    size.numbers = 0;
    check_area(size, 0.77, 0.83);
    size.spread = 3;
    check_area(size, 0.9, 0.95);
    size.features = 600;
    size.samples = 3000;
    check_area(size, 0.88, 0.96);
    size.features = 1;
    size.rows = 1;
    size.samples = 40000 / SHORTER;
    check_area(size, 0.5, 0.5); /* nothing to tell samples by */
}

/* The logit is the sum that is promised: two samples that differ in one feature differ by that feature's weights. */
static void test_weights_are_of_feature_and_id(void **state) {
    clicks_generator size = {.samples = 4000, .features = 2, .rows = 3, .spread = 1, .seed = 3};
    clicks *log = open_log((clicks_settings){.format = CLICKS_GENERATED, .ids = CLICKS_GIVEN, .generator = size});
    clicks_batch batch = read_part(log, NULL, 0, size.samples);
    float logit[3][3];
    (void)state;
    memset(logit, 0xff, sizeof logit);
    for (uint32_t i = 0; i < batch.n; i++) {
        float *at = &logit[batch.ids[i]][batch.ids[batch.room + i]];
        assert_true(isnan(*at) || *at == batch.truth[i]);
        *at = batch.truth[i];
    }
    for (int a = 1; a < 3; a++)
        for (int b = 1; b < 3; b++) assert_true(fabsf(logit[a][b] - logit[0][b] - (logit[a][0] - logit[0][0])) < 1e-5f);
    clicks_batch_close(&batch);
    clicks_close(log);
}

/* Of 3 communities of 33 ids each; the last of 100 ids belongs to none. */
static void check_communities(double within, double low, double high) {
    clicks_generator size = {.samples = 6000, .features = 5, .rows = 100, .zipf = .5, .seed = 4};
    size.communities = 3, size.within = within;
    clicks *log = open_log((clicks_settings){.format = CLICKS_GENERATED, .ids = CLICKS_GIVEN, .generator = size});
    clicks_batch batch = read_part(log, NULL, 0, size.samples), again = read_part(log, NULL, 3000, 3100);
    uint64_t at_home = 0, of[4] = {0}, different = 0;
    for (uint32_t i = 0; i < batch.n; i++) {
        uint64_t met[4] = {0}, most = 0;
        for (uint32_t k = 0; k < 5; k++) met[batch.ids[k * batch.room + i] / 33]++;
        for (int c = 1; c < 3; c++) most = met[c] > met[most] ? (uint64_t)c : most;
        at_home += met[most], of[most]++;
        for (uint32_t k = 1; k < 5; k++)
            different += batch.ids[k * batch.room + i] != batch.ids[(k - 1) * batch.room + i];
    }
    double share = (double)at_home / (5 * (double)batch.n);
    if (share < low || share > high) fail_msg("%g of the ids are of one community", share);
    for (int c = 0; c < 3 && within > 0; c++) assert_in_range(of[c], 1800, 2200);
    assert_true(different > 4 * 6000 * .8); /* each feature has its own order of ids */
    expect_same(log, &batch, 3000, &again, 0);
    clicks_batch_close(&batch);
    clicks_batch_close(&again);
    clicks_close(log);
}

static void test_communities(void **state) {
    (void)state;
    check_communities(1, 1, 1);
    check_communities(.8, .8, .9);
    check_communities(0, .4, .65); /* the largest of three, by chance */
}

/* All ids in communities, more of them than some features have ids: each of these has one for a community, and the
 * communities are of different sizes. */
static void test_like_published(void **state) {
    static const uint32_t features[] = {0, 26, 21};
    static const uint64_t all_rows[] = {0, 33762577, 9449205}, largest[] = {0, 10131227, 6729486};
    (void)state;
    for (int like = CLICKS_LIKE_CRITEO; like <= CLICKS_LIKE_AVAZU; like++) {
        clicks_generator size = clicks_generator_default();
        size.like = (clicks_like)like, size.samples = 3000, size.communities = 50, size.within = 1;
        assert_int_equal(clicks_generator_resolve(&size, &(clicks_generator_given){.numbers = 1}, &error), 0);
        assert_true(size.features == features[like] && size.numbers == 13 && size.rows == largest[like]);
        clicks *log = open_log((clicks_settings){.format = CLICKS_GENERATED, .ids = CLICKS_GIVEN, .generator = size});
        clicks_batch batch = read_part(log, NULL, 0, size.samples);
        uint64_t seen[50] = {0}, times[50] = {0}, n = 0, rows = 0, most = 0;
        for (uint32_t i = 0; i < batch.n; i++) {
            uint64_t few = 1, at = 0; /* its ids of features with fewer than 50, in one number */
            for (uint32_t k = 0; k < size.features; k++) {
                uint64_t id = batch.ids[k * batch.room + i], room = clicks_rows(log, k);
                assert_true(id < room && room == clicks_generator_rows(&size, k));
                if (room < 50) few = test_mix2(few, id);
            }
            while (at < n && seen[at] != few) at++;
            assert_true(at < 50);
            if (at == n) seen[n++] = few;
            if (++times[at] > most) most = times[at];
        }
        for (uint32_t k = 0; k < size.features; k++) rows += clicks_rows(log, k);
        assert_true(rows == all_rows[like] && n > 10 && most > 500 && most < 1500);
        clicks_batch_close(&batch);
        clicks_close(log);
    }
    clicks_generator size = {.like = CLICKS_LIKE_AVAZU};
    assert_int_equal(clicks_generator_resolve(&size, &(clicks_generator_given){.rows = 1}, &error), -1);
    assert_non_null(strstr(error.text, "like avazu has its own 21 features and their rows; leave out rows"));
    assert_int_equal(clicks_generator_resolve(&size, &(clicks_generator_given){.features = 1}, &error), -1);
    assert_non_null(strstr(error.text, "leave out features"));
}

static uint64_t hash_of_log(clicks_generator size) {
    clicks *log = open_log((clicks_settings){.format = CLICKS_GENERATED, .ids = CLICKS_GIVEN, .generator = size});
    clicks_batch batch = read_part(log, NULL, 0, 400);
    uint64_t hash = test_hash(1, batch.labels, 400);
    for (uint32_t k = 0; k < size.features; k++) hash = test_hash(hash, batch.ids + k * batch.room, 800);
    clicks_batch_close(&batch);
    clicks_close(log);
    return hash;
}

/* As they were before there were any: the hash was noted then. */
static void test_bits_without_communities(void **state) {
    (void)state;
    clicks_generator size = clicks_generator_default();
    assert_true(hash_of_log(size) == UINT64_C(0x6b4f8924334fbeec));
    size.communities = 1, size.within = .3;
    assert_true(hash_of_log(size) == UINT64_C(0x6b4f8924334fbeec));
    size.communities = 2;
    assert_true(hash_of_log(size) != UINT64_C(0x6b4f8924334fbeec));
}

static void test_refused(void **state) {
    static const struct {
        clicks_generator size;
        const char *text;
    } cases[] = {
        {{.features = 1, .rows = 1}, "0 samples"},
        {{.samples = 1, .rows = 1}, "no features"},
        {{.samples = 1, .features = 1}, "0 ids a generated feature; must be 1 to 2^32"},
        {{.samples = 1, .features = 1, .rows = (UINT64_C(1) << 32) + 1}, "must be 1 to 2^32"},
        {{.samples = 1, .features = 1, .rows = 1, .zipf = -0.5}, "skew of -0.5"},
        {{.samples = 1, .features = 1, .rows = 1, .zipf = NAN}, "must be 0 (uniform) to 10"},
        {{.samples = 1, .features = 1, .rows = 1, .spread = 101}, "standard deviation of 101"},
        {{.samples = 1, .features = 4000, .numbers = 96, .rows = 1}, "more than 4096 columns"},
        {{.samples = 1, .features = 1, .rows = 5, .communities = 6}, "6 communities of 5 ids a feature"},
        {{.samples = 1, .features = 1, .rows = 5, .within = 1.5}, "1.5 of the ids within communities; must be 0 to 1"},
        {{.samples = 1, .features = 1, .rows = 5, .within = NAN}, "must be 0 to 1"},
        {{.samples = 1, .features = 8, .rows = 5, .like = CLICKS_LIKE_AVAZU}, "8 features of a log like avazu"},
        {{.samples = 1, .features = UINT32_MAX, .numbers = UINT32_MAX, .rows = 1}, "more than 4096 columns"},
    };
    clicks *log;
    clicks_reader *reader;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clicks_settings settings = {.format = CLICKS_GENERATED, .generator = cases[i].size};
        assert_int_equal(clicks_open(&log, &settings, &error), -1);
        assert_null(log);
        if (!strstr(error.text, cases[i].text)) fail_msg("the message lacks '%s': %s", cases[i].text, error.text);
    }
    log = open_log((clicks_settings){.format = CLICKS_GENERATED, .generator = clicks_generator_default()});
    assert_int_equal(clicks_reader_open(&reader, log, "a file", 0, 1, &error), -1);
    assert_non_null(strstr(error.text, "a file given to read"));
    clicks_close(log);
}

/* ---- Written and read ----------------------------------------------------------------------------------- */

static char folder[] = "/tmp/frugal-clicks-XXXXXX", path[64], schema_path[64];

static void write_log(clicks_writer writer) {
    clicks_planted planted;
    int64_t numbers[64];
    uint64_t ids[64];
    clicks_drawn drawn = {.numbers = numbers, .ids = ids};
    char *text = malloc(clicks_writer_room(&writer));
    FILE *log = fopen(path, "wb"), *schema = fopen(schema_path, "wb");
    if (clicks_writer_check(&writer, &error)) fail_msg("%s", error.text);
    assert_int_equal(clicks_planted_open(&planted, &writer.size, &error), 0);
    fwrite(text, 1, clicks_write_header(&writer, text), log);
    for (uint64_t i = 0; i < writer.size.samples; i++) {
        clicks_planted_draw(&planted, i, &drawn);
        fwrite(text, 1, clicks_write_sample(&writer, i, &drawn, text), log);
    }
    fwrite(text, 1, clicks_write_schema(&writer, text), schema);
    assert_int_equal(fclose(log) | fclose(schema), 0);
    clicks_planted_close(&planted);
    free(text);
}

static void check_written(clicks_format format, clicks_generator size, clicks_ids ids, uint64_t rows) {
    uint32_t before = format == CLICKS_AVAZU; /* the hour is not drawn */
    write_log((clicks_writer){format, size});
    clicks_settings drawn = {.format = CLICKS_GENERATED, .ids = ids, .generator = size, .rows = rows};
    clicks_settings written = {.format = format, .ids = ids, .rows = rows};
    if (format == CLICKS_SCHEMA) written.schema = schema_path;
    clicks *direct = open_log(drawn), *log = open_log(written);
    assert_int_equal(clicks_prepare(direct, NULL, size.samples, &error), 0);
    assert_int_equal(clicks_prepare(log, path, size.samples, &error), 0);
    clicks_batch a = read_part(direct, NULL, 0, size.samples), b = read_part(log, path, 0, size.samples);
    assert_int_equal(a.n, size.samples);
    assert_int_equal(b.n, size.samples);
    assert_int_equal(clicks_features(log), clicks_features(direct) + before);
    for (uint32_t k = 0; k < clicks_features(direct); k++)
        assert_int_equal(clicks_rows(direct, k), clicks_rows(log, k + before));
    expect_same(direct, &a, 0, &b, before);
    clicks_batch_close(&a);
    clicks_batch_close(&b);
    clicks_close(direct);
    clicks_close(log);
}

static void test_written_logs_are_the_same(void **state) {
    clicks_generator size = clicks_generator_default();
    size.samples = 3000 / SHORTER;
    (void)state;
    if (!mkdtemp(folder)) fail_msg("no folder");
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(schema_path, sizeof schema_path, "%s/schema", folder);
    check_written(CLICKS_CRITEO, size, CLICKS_GIVEN, size.rows);
    check_written(CLICKS_CRITEO_CSV, size, CLICKS_GIVEN, size.rows);
    check_written(CLICKS_SCHEMA, size, CLICKS_GIVEN, 0);
    check_written(CLICKS_SCHEMA, size, CLICKS_VOCABULARY, 0);
    check_written(CLICKS_SCHEMA, size, CLICKS_HASH, 0);
    size.rows = UINT64_C(1) << 32;
    size.zipf = 0;
    check_written(CLICKS_CRITEO, size, CLICKS_GIVEN, size.rows);
    size.rows = 24;
    size.numbers = 0;
    size.features = 21;
    check_written(CLICKS_AVAZU, size, CLICKS_GIVEN, 24);
    check_written(CLICKS_AVAZU, size, CLICKS_VOCABULARY, 0);
    check_written(CLICKS_AVAZU, size, CLICKS_HASH, 77);
    unlink(path);
    unlink(schema_path);
    rmdir(folder);
    assert_int_equal(clicks_writer_check(&(clicks_writer){CLICKS_CRITEO, size}, &error), -1);
    assert_non_null(strstr(error.text, "13 numbers and 26 ids a sample, not 0 and 21"));
    size.features = 22;
    assert_int_equal(clicks_writer_check(&(clicks_writer){CLICKS_AVAZU, size}, &error), -1);
    assert_int_equal(clicks_writer_check(&(clicks_writer){CLICKS_GENERATED, size}, &error), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_part_is_the_same),
        cmocka_unit_test(test_zipf),
        cmocka_unit_test(test_ranks_are_scattered),
        cmocka_unit_test(test_area),
        cmocka_unit_test(test_weights_are_of_feature_and_id),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_written_logs_are_the_same),
        cmocka_unit_test(test_communities),
        cmocka_unit_test(test_like_published),
        cmocka_unit_test(test_bits_without_communities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
