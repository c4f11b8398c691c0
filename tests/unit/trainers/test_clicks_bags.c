/* Logs whose features have several ids a sample: libsvm, libffm, and schemas; what is no sample, and why; and bags by
 * feature. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainers/clicks/bags.h"
#include "trainers/clicks/ids.h"
#include "trainers/clicks/shuffle.h"
#include "trainers/clicks/source.h"
#include "tests/support.h"
#include "tests/unit/trainers/folder.h"

static program_error error;

#define assert_works(call) check_works(call, #call, __LINE__)
static void check_works(int status, const char *call, int line) {
    if (status) fail_msg("line %d: %s: %s", line, call, error.text);
}

static int make_folder(void **state) {
    (void)state;
    return folder_make("test_clicks_bags");
}

/* A log of this text, measured and prepared; `schema` NULL: none. */
static clicks *open_log(clicks_settings settings, const char *schema, const char *text) {
    clicks *log;
    if (!settings.rows) settings.rows = 1000;
    if (schema) {
        put_text(in_folder("schema"), schema);
        settings.format = CLICKS_SCHEMA, settings.schema = in_folder("schema");
    }
    put_text(in_folder("log"), text);
    assert_works(clicks_open(&log, &settings, &error));
    assert_works(clicks_measure(log, in_folder("log"), &error));
    assert_works(clicks_prepare(log, in_folder("log"), UINT64_MAX, &error));
    return log;
}

static clicks_batch read_all(const clicks *log) {
    clicks_reader *reader;
    clicks_batch batch;
    assert_works(clicks_batch_open(&batch, log, 100, &error));
    assert_works(clicks_reader_open(&reader, log, in_folder("log"), 0, UINT64_MAX, &error));
    assert_works(clicks_reader_read(reader, 100, &batch, &error));
    clicks_reader_close(reader);
    return batch;
}

/* The bags as text: of each sample, "feature:row*weight" of each id. */
static void assert_ids(const clicks_batch *batch, const char *wanted) {
    char text[4096];
    size_t n = 0;
    for (uint32_t i = 0; i < batch->n; i++) {
        n += (size_t)sprintf(text + n, "%g", (double)batch->labels[i]);
        for (size_t at = (size_t)i * batch->most; at < (size_t)i * batch->most + batch->counts[i]; at++)
            n += (size_t)sprintf(text + n, " %" PRIu32 ":%" PRIu64 "*%g", batch->features[at], batch->ids[at],
                                 (double)batch->weights[at]);
        n += (size_t)sprintf(text + n, "\n");
    }
    assert_string_equal(text, wanted);
}

static void assert_log(clicks_settings settings, const char *schema, const char *text, const char *wanted) {
    clicks *log = open_log(settings, schema, text);
    clicks_batch batch = read_all(log);
    assert_ids(&batch, wanted);
    clicks_batch_close(&batch);
    clicks_close(log);
}

static const clicks_settings libsvm = {.format = CLICKS_LIBSVM, .ids = CLICKS_GIVEN},
                             libffm = {.format = CLICKS_LIBFFM, .ids = CLICKS_GIVEN}, given = {.ids = CLICKS_GIVEN};

/* ---- What lines mean --------------------------------------------------------------------------------------- */

static void test_libsvm(void **state) {
    (void)state;
    assert_log(libsvm, NULL, "1 3:1 17:0.5 3:-2e1\n\n0\t5:1 # a comment: 7:x\n+1\n-1 0:0 \n",
               "1 0:3*1 0:17*0.5 0:3*-20\n0 0:5*1\n1\n0 0:0*0\n");
}

/* As Spark, scikit-learn and LightGBM write them. */
static void test_labels_and_comments(void **state) {
    (void)state;
    assert_log(libsvm, NULL,
               "# made by hand\n1.0 3:1\n0.0 4:1\r\n  # more\n-1.0 5:1\n+1.000000e+00 6:1 # end\n-1 7:1\n",
               "1 0:3*1\n0 0:4*1\n0 0:5*1\n1 0:6*1\n0 0:7*1\n");
    assert_log(libffm, NULL, "# made by hand\n1.0 0:3:1\n-1.0 1:4:1\n", "1 0:3*1\n0 1:4*1\n");
}

static void test_libffm(void **state) {
    (void)state;
    assert_log(libffm, NULL, "0 1:3:1 0:3:2 1:4:1\n1 3:999:.25\n", "0 1:3*1 0:3*2 1:4*1\n1 3:999*0.25\n");
    clicks *log = open_log(libffm, NULL, "0 1:3:1\n1 3:1:1\n");
    assert_int_equal(clicks_features(log), 4);
    assert_int_equal(clicks_most_ids(log), 1);
    assert_string_equal(clicks_feature_name(log, 3), "field3");
    put_text(in_folder("other"), "0 6:1:1 5:1:1 6:2:1\n");
    assert_works(clicks_measure(log, in_folder("other"), &error)); /* what several files have */
    assert_int_equal(clicks_features(log), 7);
    assert_int_equal(clicks_most_ids(log), 3);
    assert_int_equal(clicks_rows(log, 6), 1000);
    clicks_close(log);
}

static void test_schema(void **state) {
    (void)state;
    assert_log(given, "header no\nid a bag bar rows 9\nlabel l one y zero n\nid b\nid c bag ; weighted mean hex\n",
               "3| 4||5,y,7,a:2;B:.5\n,n,8,\n", "1 0:3*1 0:4*1 0:5*1 1:7*1 2:10*2 2:11*0.5\n0 1:8*1\n");
    assert_log(given,
               "separator tab\nmissing ?\nlabel l one 1 zero 0\nid a mean rows 5\nid b with a\nid c with a last 1\n",
               "1\t1\t2\t13\n0\t?\t\t44\n", "1 0:1*1 0:2*1 0:3*1\n0 0:4*1\n");
    assert_log(given, "label l one 1 zero 0\nnumber n bucket 10\nid a bag bar\n", "1,25,3|2\n",
               "1 0:2*1 1:3*1 1:2*1\n");
}

static void test_hashed(void **state) {
    (void)state;
    char wanted[200];
    snprintf(wanted, sizeof wanted, "1 0:%" PRIu64 "*1 0:%" PRIu64 "*2\n", clicks_hash("abc", 3) % 1000,
             clicks_hash("17", 2) % 1000);
    assert_log((clicks_settings){.format = CLICKS_LIBSVM}, NULL, "1 abc:1 17:2\n", wanted);
}

/* Numbered by feature as they come, if they come twice. */
static void test_vocabulary(void **state) {
    (void)state;
    clicks_settings settings = {.format = CLICKS_LIBFFM, .ids = CLICKS_VOCABULARY, .threshold = 2};
    assert_log(settings, NULL, "1 0:x:1 1:x:1 0:y:1\n0 0:y:1 0:z:1 1:z:1\n1 1:z:1 1:z:1 0:x:1\n",
               "1 0:1*1 1:0*1 0:2*1\n0 0:2*1 0:0*1 1:1*1\n1 1:1*1 1:1*1 0:1*1\n");
}

static void test_guessed(void **state) {
    (void)state;
    static const struct {
        const char *line;
        int status;
        clicks_format format;
    } cases[] = {{"1 3:1 17:0.5\n", 0, CLICKS_LIBSVM},
                 {"-1\t1:3:1 2:4:1\n", 0, CLICKS_LIBFFM},
                 {"1.0 3:1\n", 0, CLICKS_LIBSVM},
                 {"-1.0 0:3:1\n", 0, CLICKS_LIBFFM},
                 {"# from svmlight\n\n+1 3:1\n", 0, CLICKS_LIBSVM},
                 {"3 qid:1 3:1\n", 0, CLICKS_LIBSVM},
                 {"1 2 3\n", -1, CLICKS_LIBSVM},
                 {"abc 3:1\n", -1, CLICKS_LIBSVM}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clicks_format format = CLICKS_CRITEO;
        put_text(in_folder("log"), cases[i].line);
        assert_int_equal(clicks_guess(in_folder("log"), &format, &error), cases[i].status);
        if (!cases[i].status) assert_int_equal(format, cases[i].format);
    }
}

/* ---- What is refused ---------------------------------------------------------------------------------------- */

static void test_malformed(void **state) {
    (void)state;
    static const struct {
        clicks_settings settings;
        const char *schema, *line, *reason;
    } cases[] = {
        {{.format = CLICKS_LIBSVM}, NULL, "2 1:1", "column 1 (label) is '2', must be '1' or '0'"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 7", "column 2 (ids) is '7', must be index:value"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 7:1:1", "must be index:value"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 :1", "must be index:value"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 7:x", "must be an id, a colon and a number"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 7:1e39", "must be an id, a colon and a number"},
        {{.format = CLICKS_LIBSVM},
         NULL,
         "1 qid:3 7:1",
         "column 2 (ids) is 'qid:3', which is about the sample, and no id"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 cost:.5 7:1", "is 'cost:.5', which is about the sample"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 NA:1", "is 'NA', which means missing; leave it out"},
        {{.format = CLICKS_LIBSVM}, NULL, "0.5 1:1", "column 1 (label) is '0.5', must be '1' or '0'"},
        {{.format = CLICKS_LIBSVM}, NULL, "1,3 1:1", "column 1 (label) is '1,3', must be '1' or '0'"},
        {{.format = CLICKS_LIBSVM}, NULL, "1 7:nan", "must be an id, a colon and a number"},
        {{.format = CLICKS_LIBFFM, .fields = 3, .most_ids = 9},
         NULL,
         "-2 1:1:1",
         "column 1 (label) is '-2', must be '1'"},
        {{.rows = 1000}, "label l one 1 zero 0\nid a bag bar\n", "1,3|NULL", "column 2 (a) is 'NULL', missing?"},
        {{.format = CLICKS_LIBSVM, .ids = CLICKS_GIVEN}, NULL, "1 1000:1", "must be a row below 1000"},
        {{.format = CLICKS_LIBSVM, .most_ids = 2}, NULL, "1 1:1 2:1 3:1", "more than 2 ids"},
        {{.format = CLICKS_LIBFFM, .fields = 3, .most_ids = 9}, NULL, "1 3:1:1", "a field from 3 on, must be below it"},
        {{.format = CLICKS_LIBFFM, .fields = 3, .most_ids = 9}, NULL, "1 2:1", "must be field:index:value"},
        {{.format = CLICKS_LIBFFM, .fields = 3}, NULL, "1 x:2:1", "must be field:index:value"},
        {{.format = CLICKS_LIBFFM, .fields = 3}, NULL, "1 1:2:3:4", "must be index:value"},
        {{.rows = 1000},
         "label l one 1 zero 0\nid a bag bar weighted\n",
         "1,3:1|4",
         "column 2 (a) is '4', must be an id"},
        {{.rows = 1000}, "label l one 1 zero 0\nid a bag bar last 2\n", "1,33|4", "too short to take its end"},
        {{.most_ids = 2}, "label l one 1 zero 0\nid a\nid b bag bar\n", "1,1,2|3", "more than 2 ids"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clicks_settings settings = cases[i].settings;
        char text[200];
        clicks_malformed malformed;
        uint64_t n;
        settings.malformed = 1;
        snprintf(text, sizeof text, "%s\n", cases[i].line);
        clicks *log = open_log(settings, cases[i].schema, text);
        assert_works(clicks_count(log, in_folder("log"), &n, &malformed, &error));
        assert_int_equal(n, 0);
        assert_int_equal(malformed.lines, 1);
        if (!strstr(malformed.what[0], cases[i].reason)) fail_msg("%s: %s", cases[i].line, malformed.what[0]);
        clicks_close(log);
    }
}

static void test_schemas_refused(void **state) {
    (void)state;
    static const struct {
        const char *id, *reason;
    } cases[] = {{"id a bag", "`bag` is followed by what stands between ids"},
                 {"id a bag x", "which is no letter, digit, sign, point or quote"},
                 {"id a bag tab bag bar", "'bag' does not fit there"},
                 {"id a bag : weighted", "a colon stands between id and weight"},
                 {"id a with b", "`with` is followed by the name of an `id` column above"},
                 {"id a with a", "`with` is followed by"},
                 {"id a with", "`with` is followed by"},
                 {"id a\nid b with a\nid c with b", "which is not `with` another"},
                 {"id a\nid b with a rows 3", "said of the column that it is `with`"},
                 {"id a\nid b mean with a", "said of the column that it is `with`"},
                 {"id a\nnumber n\nid b with n", "`with` is followed by"},
                 {"quotes no\nid a bag comma", "the ids of 'a' cannot have the separator between them"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        clicks *log;
        snprintf(text, sizeof text, "label l one 1 zero 0\n%s\n", cases[i].id);
        put_text(in_folder("schema"), text);
        clicks_settings settings = {.format = CLICKS_SCHEMA, .schema = in_folder("schema"), .rows = 10};
        assert_int_equal(clicks_open(&log, &settings, &error), -1);
        if (!strstr(error.text, cases[i].reason)) fail_msg("%s: %s", cases[i].id, error.text);
    }
}

static void test_refused(void **state) {
    (void)state;
    clicks *log;
    clicks_batch batch;
    clicks_source source;
    clicks_settings settings = {.format = CLICKS_LIBFFM, .rows = 10, .fields = 4096};
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    assert_non_null(strstr(error.text, "4096 fields; must be below 4096"));
    settings.fields = 3;
    assert_works(clicks_open(&log, &settings, &error));
    assert_false(clicks_is_measured(log));
    assert_int_equal(clicks_batch_open(&batch, log, 3, &error), -1);
    assert_non_null(strstr(error.text, "how many ids a sample has"));
    assert_int_equal(clicks_source_open(&source, log, "none", 0, 1, &error), -1);
    assert_non_null(strstr(error.text, "cannot be dealt"));
    assert_int_equal(clicks_measure(log, in_folder("missing"), &error), -1);
    clicks_close(log);
    settings.most_ids = 7;
    assert_works(clicks_open(&log, &settings, &error));
    assert_true(clicks_is_measured(log) && clicks_most_ids(log) == 7 && clicks_features(log) == 3);
    clicks_close(log);
}

static void test_too_many_fields(void **state) {
    (void)state;
    static const char *const lines[] = {"1 4095:1:1\n", "1 99999999999999999999:1:1\n"};
    clicks_settings settings = {.format = CLICKS_LIBFFM, .rows = 10};
    clicks *log;
    assert_works(clicks_open(&log, &settings, &error));
    for (int i = 0; i < 2; i++) {
        put_text(in_folder("log"), lines[i]);
        assert_int_equal(clicks_measure(log, in_folder("log"), &error), -1);
        assert_non_null(strstr(error.text, "line 1: a field from 4095 on, must be below it"));
    }
    settings.malformed = 1;
    clicks_close(log);
    assert_works(clicks_open(&log, &settings, &error));
    put_text(in_folder("log"), "1 1:1:1\n1 7:1:1 x\n");
    assert_works(clicks_measure(log, in_folder("log"), &error));
    assert_int_equal(clicks_features(log), 2); /* a line that is no sample has no fields */
    put_text(in_folder("log"), "1 4094:1:1\n");
    assert_works(clicks_measure(log, in_folder("log"), &error));
    assert_int_equal(clicks_features(log), 4095);
    clicks_close(log);
}

/* ---- Checksums ------------------------------------------------------------------------------------------------ */

static uint32_t checksum(const char *schema, clicks_settings settings) {
    clicks *log = open_log(settings, schema, "1,2\n");
    uint32_t sum = clicks_checksum(log);
    clicks_close(log);
    return sum;
}

/* Another one for all that makes other batches. */
static void test_checksum(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "label l one 1 zero 0\nid a\n", "label l one 1 zero 0\nid a bag bar\n", "label l one 1 zero 0\nid a bag ;\n",
        "label l one 1 zero 0\nid a bag bar weighted\n", "label l one 1 zero 0\nid a bag bar mean\n"};
    uint32_t sums[6];
    for (int i = 0; i < 5; i++) sums[i] = checksum(schemas[i], (clicks_settings){.malformed = 9});
    sums[5] = checksum(schemas[1], (clicks_settings){.malformed = 9, .most_ids = 9});
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < i; k++) assert_true(sums[i] != sums[k]);
}

/* ---- By feature ------------------------------------------------------------------------------------------------- */

static void test_bags(void **state) {
    (void)state;
    clicks *log = open_log(given, "label l one 1 zero 0\nid a bag bar rows 90\nid b bag bar weighted mean rows 90\n",
                           "1,1,2:1\n1,3|4,5:1|6:3|7:1|8:5\n0,,\n1,9,10:7|11:1\n");
    clicks_batch batch = read_all(log);
    clicks_bags bags;
    assert_works(clicks_bags_open(&bags, log, 4, &error));
    clicks_bags_fill(&bags, log, &batch, 1, 4);
    static const uint32_t offsets[] = {0, 2, 2, 3, 7, 7, 9, 9, 9};
    static const uint64_t keys[] = {3, 4, 9, 5, 6, 7, 8, 10, 11};
    static const float weights[] = {1, 1, 1, .25f, .75f, .25f, 1.25f, 3.5f, .5f};
    assert_memory_equal(bags.offsets, offsets, sizeof offsets);
    assert_memory_equal(bags.keys, keys, sizeof keys);
    assert_memory_equal(bags.weights, weights, sizeof weights);
    clicks_bags_fill(&bags, log, &batch, 0, 1); /* nothing stays of what was there */
    static const uint32_t of_one[] = {0, 1, 2, 2, 2, 2, 2, 2, 2};
    assert_memory_equal(bags.offsets, of_one, sizeof of_one);
    assert_true(bags.keys[0] == 1 && bags.keys[1] == 2);
    clicks_bags_fill(&bags, log, &batch, 2, 2);
    for (int i = 0; i < 9; i++) assert_int_equal(bags.offsets[i], 0);
    clicks_bags_close(&bags);
    clicks_batch_close(&batch);
    clicks_close(log);
}

/* In another order, each sample has the ids and weights that it had. Sample s has the row s in feature 0, and s mod 4
 * ids, from s on, in feature 1. */
static void test_shuffled(void **state) {
    (void)state;
    enum { SAMPLES = 90 };
    char text[SAMPLES * 60];
    size_t n = 0, moved = 0;
    for (int s = 0; s < SAMPLES; s++) {
        n += (size_t)sprintf(text + n, "%d 0:%d:1", s % 2, s);
        for (int k = 0; k < s % 4; k++) n += (size_t)sprintf(text + n, " 1:%d:%d.5", s + k, k);
        n += (size_t)sprintf(text + n, "\n");
    }
    clicks *log = open_log(libffm, NULL, text);
    clicks_shuffle *shuffle;
    clicks_batch batch;
    int seen[SAMPLES] = {0};
    clicks_shuffle_desc desc = {.log = log, .path = in_folder("log"), .end = UINT64_MAX, .block = 40, .seed = 3};
    assert_works(clicks_shuffle_open(&shuffle, &desc, &error));
    assert_works(clicks_batch_open(&batch, log, 7, &error));
    assert_works(clicks_shuffle_begin(shuffle, 0, 0, &error));
    for (uint64_t at = 0;; at += batch.n) {
        assert_works(clicks_shuffle_read(shuffle, 7, &batch, &error));
        if (!batch.n) break;
        for (uint32_t i = 0; i < batch.n; i++) {
            const uint64_t *ids = batch.ids + (size_t)i * batch.most;
            uint64_t s = ids[0];
            assert_true(s < SAMPLES && !seen[s]++);
            moved += s != at + i;
            assert_int_equal(batch.counts[i], 1 + s % 4);
            assert_true(batch.labels[i] == (float)(s % 2));
            for (uint32_t k = 0; k < s % 4; k++) {
                size_t from = (size_t)i * batch.most + 1 + k;
                assert_true(batch.ids[from] == s + k && batch.features[from] == 1);
                assert_true(batch.weights[from] == (float)k + 0.5f);
            }
        }
    }
    for (int s = 0; s < SAMPLES; s++) assert_int_equal(seen[s], 1);
    assert_true(moved > SAMPLES / 2);
    clicks_batch_close(&batch);
    clicks_shuffle_close(shuffle);
    clicks_close(log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libsvm),
        cmocka_unit_test(test_labels_and_comments),
        cmocka_unit_test(test_libffm),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_hashed),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_guessed),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_schemas_refused),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many_fields),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_bags),
        cmocka_unit_test(test_shuffled),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
