/* Click logs from files: what each format means, what is refused and why, ids as rows, and any part of a log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "trainers/clicks/clicks.h"
#include "trainers/clicks/file.h"
#include "trainers/clicks/ids.h"
#include "trainers/clicks/number.h"
#include "trainers/clicks/schema.h"
#include "tests/seed.h"
#include "tests/support.h"

/* ---- Files ---------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/frugal-clicks-XXXXXX", path[64], schema_path[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(schema_path, sizeof schema_path, "%s/schema", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    unlink(schema_path);
    return rmdir(folder);
}

static void write_bytes(const char *file, const void *bytes, size_t n) {
    FILE *stream = fopen(file, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
}

static void write_text(const char *text) {
    write_bytes(path, text, strlen(text));
}

static void write_gz(const void *bytes, size_t n) {
    gzFile stream = gzopen(path, "wb1");
    assert_non_null(stream);
    assert_int_equal(gzwrite(stream, bytes, (unsigned)n), n);
    assert_int_equal(gzclose(stream), Z_OK);
}

/* ---- Logs ----------------------------------------------------------------------------------------------- */

static program_error error;

static clicks *open_log(const clicks_settings *settings) {
    clicks *log;
    if (clicks_open(&log, settings, &error)) fail_msg("%s", error.text);
    return log;
}

static clicks *open_schema(const char *schema, clicks_settings settings) {
    write_bytes(schema_path, schema, strlen(schema));
    settings.format = CLICKS_SCHEMA;
    settings.schema = schema_path;
    return open_log(&settings);
}

/* Samples [first, end) of the file. */
static clicks_batch read_part(const clicks *log, uint64_t first, uint64_t end, uint32_t most) {
    clicks_reader *reader;
    clicks_batch all, part;
    uint32_t room = 40000, features = clicks_features(log), numbers = clicks_numbers(log);
    assert_int_equal(clicks_batch_open(&all, log, room, &error), 0);
    assert_int_equal(clicks_batch_open(&part, log, most, &error), 0);
    if (clicks_reader_open(&reader, log, path, first, end, &error)) fail_msg("%s", error.text);
    do {
        if (clicks_reader_read(reader, most, &part, &error)) fail_msg("%s", error.text);
        assert_true(all.n + part.n <= room);
        memcpy(all.labels + all.n, part.labels, part.n * sizeof(float));
        memcpy(all.numbers + all.n * numbers, part.numbers, part.n * numbers * sizeof(float));
        for (uint32_t k = 0; k < features; k++)
            memcpy(all.ids + k * room + all.n, part.ids + k * most, part.n * sizeof(uint64_t));
        all.n += part.n;
    } while (part.n);
    assert_int_equal(clicks_reader_read(reader, most, &part, &error), 0); /* the end stays the end */
    assert_int_equal(part.n, 0);
    clicks_reader_close(reader);
    clicks_batch_close(&part);
    return all;
}

static clicks_batch read_all(const clicks *log) {
    return read_part(log, 0, UINT64_MAX, 7);
}

static uint64_t id(const clicks_batch *batch, uint32_t feature, uint32_t i) {
    return batch->ids[(size_t)feature * batch->room + i];
}

/* Reading fails, and the message has both texts in it. */
static void expect_unreadable(const clicks *log, const char *file, const char *text1, const char *text2) {
    clicks_reader *reader;
    clicks_batch batch;
    uint64_t samples = 77;
    *error.text = 0;
    assert_int_equal(clicks_batch_open(&batch, log, 8, &error), 0);
    int status = clicks_reader_open(&reader, log, file, 0, UINT64_MAX, &error);
    while (!status && !(status = clicks_reader_read(reader, 8, &batch, &error)))
        if (!batch.n) break;
    if (!status || !strstr(error.text, text1) || !strstr(error.text, text2))
        fail_msg("the message lacks '%s' or '%s': %s", text1, text2, status ? error.text : "(none: it was read)");
    if (reader) {
        *error.text = 0;
        assert_int_equal(clicks_reader_read(reader, 8, &batch, &error), -1); /* and goes on failing */
        assert_non_null(strstr(error.text, text1));
        assert_int_equal(batch.n, 0);
    }
    clicks_reader_close(reader);
    clicks_batch_close(&batch);
    assert_int_equal(clicks_count(log, file, &samples, NULL, &error), -1);
    assert_non_null(strstr(error.text, text1));
    assert_int_equal(samples, 77);
}

static const clicks_settings criteo = {.format = CLICKS_CRITEO, .rows = 1000};

#define TABS13 "\t\t\t\t\t\t\t\t\t\t\t\t\t"
#define TABS26 TABS13 TABS13

/* ---- Known formats -------------------------------------------------------------------------------------- */

static void test_criteo(void **state) {
    clicks *log = open_log(&criteo);
    (void)state;
    write_text("0\t1\t-3\t\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2\t68fd1e64" TABS13 TABS13 "\n"
               "1" TABS13 "\ta" TABS13 "\t\t\t\t\t\t\t\t\t\t\t\tff");
    expect_unreadable(log, path, "line 1: 41 columns, must be 40", "1 line is no sample so far, and 0 may be");
    write_text("0\t1\t-3\t\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2\t68fd1e64" TABS13 "\t\t\t\t\t\t\t\t\t\t\t\t\r\n"
               "1" TABS13 "\ta" TABS13 "\t\t\t\t\t\t\t\t\t\t\t\xc3\xa4\tff");
    clicks_batch batch = read_all(log);
    assert_int_equal(clicks_numbers(log), 13);
    assert_int_equal(clicks_features(log), 26);
    assert_int_equal(batch.n, 2);
    assert_true(batch.labels[0] == 0 && batch.labels[1] == 1);
    const double numbers[13] = {1, -3, 0, 0, 1382, 4, 15, 2, 181, 1, 2, 0, 2};
    for (int k = 0; k < 13; k++) {
        float wanted = (float)copysign(log1p(fabs(numbers[k])), numbers[k]);
        assert_true(batch.numbers[k] == wanted && batch.numbers[13 + k] == 0);
    }
    /* as a script computes them */
    assert_int_equal(id(&batch, 0, 0), UINT64_C(0x9465c23110261b59) % 1000);
    assert_int_equal(id(&batch, 1, 0), UINT64_C(0xf52a15e9a9b5e89b) % 1000);
    assert_int_equal(id(&batch, 0, 1), clicks_hash("a", 1) % 1000);
    assert_int_equal(id(&batch, 24, 1), clicks_hash("\xc3\xa4", 2) % 1000);
    assert_int_equal(id(&batch, 25, 1), clicks_hash("ff", 2) % 1000);
    assert_true(clicks_hash("\xff\0\x80", 3) == UINT64_C(0x386053f1efb4a7f5));
    assert_true(clicks_hash_number(-3) == UINT64_C(0x152320cc209e9bd6));
    assert_true(clicks_hash_number(INT64_MIN) == clicks_hash("-9223372036854775808", 20));
    assert_string_equal(clicks_feature_name(log, 25), "C26");
    clicks_batch_close(&batch);
    clicks_close(log);
}

#define I13 "I1,I2,I3,I4,I5,I6,I7,I8,I9,I10,I11,I12,I13"
#define C26 "C1,C2,C3,C4,C5,C6,C7,C8,C9,C10,C11,C12,C13,C14,C15,C16,C17,C18,C19,C20,C21,C22,C23,C24,C25,C26"

static void test_criteo_csv(void **state) {
    static const char sample[] = "10000,1,1,2,,,,,,,,,,3.5,-2e1,\"a,b\",,,,,,,,,,,,,,,,,,,,,,,,,x\"y\n";
    char text[1000];
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_CRITEO_CSV, .rows = 1000});
    (void)state;
    snprintf(text, sizeof text, "\xef\xbb\xbfId,Label," I13 "," C26 "\r\n%s\r\n \n%s", sample, sample);
    write_text(text);
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 2);
    assert_true(batch.labels[1] == 1 && batch.numbers[13 + 1] == (float)log1p(2));
    assert_true(batch.numbers[13 + 11] == (float)log1p(3.5) && batch.numbers[13 + 12] == -(float)log1p(20));
    assert_int_equal(id(&batch, 0, 1), clicks_hash("a,b", 3) % 1000);
    assert_int_equal(id(&batch, 25, 1), clicks_hash("x\"y", 3) % 1000);
    clicks_batch_close(&batch);
    snprintf(text, sizeof text, "Id,click," I13 "," C26 "\n%s", sample);
    write_text(text);
    expect_unreadable(log, path, "first line must name the columns",
                      "column 2 is 'click', which is none of the format's");
    write_text(sample);
    expect_unreadable(log, path, "first line must name the columns", "column 1 is '10000'");
    snprintf(text, sizeof text, "Id,Label," I13 ",I13," C26 "\n%s", sample);
    write_text(text);
    expect_unreadable(log, path, "first line must name the columns", "columns 15 and 16 are both 'I13'");
    write_text("Id,Label," I13 ",C1,C2\n");
    expect_unreadable(log, path, "first line must name the columns", "no column is named 'C3'");
    write_text("");
    expect_unreadable(log, path, "is empty", "must name the columns");
    clicks_close(log);
}

static void test_avazu(void **state) {
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_AVAZU, .rows = 1 << 20});
    (void)state;
    write_text("id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
               "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n"
               "1000009418151094273,0,14102107,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,a99f214a,"
               "ddd2926e,44956a24,1,2,15706,320,50,1722,0,35,-1,79\n"
               "x,1,14102123,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,a99f214a,"
               "ddd2926e,44956a24,1,2,15706,320,50,1722,0,35,,80\n");
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 2);
    assert_int_equal(clicks_numbers(log), 0);
    assert_int_equal(clicks_features(log), 22);
    assert_string_equal(clicks_feature_name(log, 0), "hour");
    assert_string_equal(clicks_feature_name(log, 13), "device_conn_type");
    assert_int_equal(id(&batch, 0, 0), clicks_hash("07", 2) % (1 << 20));
    assert_int_equal(id(&batch, 0, 1), clicks_hash("23", 2) % (1 << 20));
    assert_int_equal(id(&batch, 20, 0), clicks_hash("-1", 2) % (1 << 20));
    assert_int_equal(id(&batch, 20, 1), clicks_hash("", 0) % (1 << 20));
    assert_int_equal(id(&batch, 21, 1), clicks_hash("80", 2) % (1 << 20));
    assert_true(batch.labels[0] == 0 && batch.labels[1] == 1);
    clicks_batch_close(&batch);
    clicks_close(log);
}

/* ---- Schemas -------------------------------------------------------------------------------------------- */

static void test_adult(void **state) {
    clicks_settings settings = {.format = CLICKS_SCHEMA, .schema = "trainers/clicks/adult.schema", .rows = 1 << 20};
    clicks *log = open_log(&settings);
    (void)state;
    write_text(
        "39, State-gov, 77516, Bache#lors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, "
        "40, ?, <=50K\n"
        "52, ?, 287927, HS-grad, 9, Married-civ-spouse, Exec-managerial, Wife, White, Female, ?, 0, 40, "
        "United-States, >50K.\n\n");
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 2);
    assert_int_equal(clicks_numbers(log), 6);
    assert_int_equal(clicks_features(log), 13);
    assert_true(batch.labels[0] == 0 && batch.labels[1] == 1);
    assert_true(batch.numbers[0] == (float)((39 - 38.6) / 13.6));
    assert_true(batch.numbers[1] == (float)log1p(77516));
    assert_true(batch.numbers[3] == (float)log1p(2174) && batch.numbers[6 + 3] == 0);
    assert_int_equal(id(&batch, 0, 0), clicks_hash("9", 1) % (1 << 20)); /* 39 / 4 */
    assert_int_equal(id(&batch, 1, 1), clicks_hash("", 0) % (1 << 20));
    assert_int_equal(id(&batch, 2, 0), clicks_hash("Bache#lors", 10) % (1 << 20));
    assert_int_equal(id(&batch, 9, 0), clicks_hash_number((int64_t)floor(log1p(2174) / 0.25)) % (1 << 20));
    assert_int_equal(id(&batch, 9, 1), clicks_hash("", 0) % (1 << 20)); /* no number, no bucket */
    assert_int_equal(id(&batch, 12, 0), clicks_hash("", 0) % (1 << 20));
    clicks_batch_close(&batch);
    clicks_close(log);
}

static void test_buckets_and_ends(void **state) {
    clicks *log = open_schema("separator tab\n"
                              "quotes yes # tabs, and quotes all the same\n"
                              "missing NA \"not there\"\n"
                              "number \"the age\" bucket 0.5 rows 10\n"
                              "id site rows 7 last 3\n"
                              "label l one y \"one\" zero n \"#\"\n"
                              "skip rest",
                              (clicks_settings){.rows = 1000});
    (void)state;
    write_text("-1.25\tabcdef\t one \t\"x\ty\"\nnot there\tNA\t\"#\"\tz\n 7\t\"d\"\"ef\" \ty\t\n");
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 3);
    assert_true(batch.labels[0] == 1 && batch.labels[1] == 0 && batch.labels[2] == 1);
    assert_true(batch.numbers[0] == -1.25f && batch.numbers[1] == 0 && batch.numbers[2] == 7);
    assert_int_equal(id(&batch, 0, 0), clicks_hash("-3", 2) % 10);
    assert_int_equal(id(&batch, 0, 1), clicks_hash("", 0) % 10);
    assert_int_equal(id(&batch, 0, 2), clicks_hash("14", 2) % 10);
    assert_int_equal(id(&batch, 1, 0), clicks_hash("def", 3) % 7);
    assert_int_equal(id(&batch, 1, 2), clicks_hash("\"ef", 3) % 7);
    assert_int_equal(clicks_rows(log, 0), 10);
    assert_int_equal(clicks_rows(log, 1), 7);
    clicks_batch_close(&batch);
    clicks_close(log);
}

static const struct {
    const char *schema, *text1, *text2;
} refused_schemas[] = {
    {"", "no label", "label NAME one"},
    {"label l one 1 zero 0", "no ids", "id NAME"},
    {"id a\nlabel l one 1 zero 0\nlabel m one 1 zero 0", ":3: a second label", ""},
    {"label l one 1", ":1: write `label NAME one", ""},
    {"label l 1 zero 0", "write `label NAME", ""},
    {"label l one 1 zero 0 1", "'1' means both", ""},
    {"label", "followed by the column's name", ""},
    {"label \"l", "quote is opened", ""},
    {"id \"a\"b", "behind a closing quote", ""},
    {"id \"\"", "name is empty", ""},
    {"id a\nid b\n# c\nid a", ":4: a second column 'a'", ""},
    {"id a rows 0", "rows must be followed by a whole number from 1", "not '0'"},
    {"id a rows 9223372036854775808", "rows", "9223372036854775807"},
    {"id a rows 40000000000000000000", "rows", "9223372036854775807"},
    {"id a rows 1/", "rows must be", "1/"},
    {"id a rows", "rows must be", ""},
    {"id a rows 2 rows 3", "'rows' does not fit there", "id NAME"},
    {"id a dim 8", "all features have the same dim, that of --dim", "leave `dim` out"},
    {"id a hexx", "'hexx' does not fit", ""},
    {"id a last 2000", "last", "1000"},
    {"number a scale 1 0", "divides by 0", ""},
    {"number a scale 1", "scale must be followed by numbers", ""},
    {"number a scale 1 1e60", "scale must be followed by numbers", "1e60"},
    {"number a bucket -1", "bucket must be followed by a number above 0", "-1"},
    {"number a raw log", "'log' does not fit", "number NAME"},
    {"number a rows 5", "'rows' does not fit", ""},
    {"skip a b", "'b' is one word too much", "skip NAME"},
    {"separator a", "separator comma", "letter"},
    {"separator", "separator comma", ""},
    {"separator , ;", "one word too much", ""},
    {"separator tab\nseparator tab", ":2: `separator` a second time", ""},
    {"header maybe", "`header yes` or `header no`", ""},
    {"quotes no\nmissing a,b\nid a\nlabel l one 1 zero 0", "'a,b', which holds the separator", ""},
    {"column a", "'column' begins no statement", "label, number, id or skip"},
    {"missing 1 2 3 4 5 6 7 8 9 a b c d e f g h", "more than 16 texts", ""},
    {"id aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "has 70 bytes, may have 63", ""},
};

static void test_schema_refused(void **state) {
    clicks_settings settings = {.format = CLICKS_SCHEMA, .schema = schema_path, .rows = 10};
    (void)state;
    for (size_t i = 0; i < sizeof refused_schemas / sizeof *refused_schemas; i++) {
        clicks *log = (clicks *)folder;
        write_bytes(schema_path, refused_schemas[i].schema, strlen(refused_schemas[i].schema));
        assert_int_equal(clicks_open(&log, &settings, &error), -1);
        assert_null(log);
        if (!strstr(error.text, refused_schemas[i].text1) || !strstr(error.text, refused_schemas[i].text2))
            fail_msg("'%s': the message lacks '%s' or '%s': %s", refused_schemas[i].schema, refused_schemas[i].text1,
                     refused_schemas[i].text2, error.text);
    }
    settings.schema = folder;
    clicks *log;
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    assert_non_null(strstr(error.text, "cannot read the schema"));
    char *large = malloc(CLICKS_LARGEST_SCHEMA + 1);
    memset(large, '\n', CLICKS_LARGEST_SCHEMA + 1);
    write_bytes(schema_path, large, CLICKS_LARGEST_SCHEMA + 1);
    settings.schema = schema_path;
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    assert_non_null(strstr(error.text, "more than 1048576 bytes"));
    free(large);
}

static void test_settings_refused(void **state) {
    static const struct {
        clicks_settings settings;
        const char *text;
    } cases[] = {
        {{.format = CLICKS_SCHEMA, .rows = 10}, "needs a schema"},
        {{.format = CLICKS_CRITEO, .schema = "x", .rows = 10}, "a format that has its own"},
        {{.format = CLICKS_CRITEO}, "no rows for the ids of 'C1'"},
        {{.format = CLICKS_CRITEO, .ids = CLICKS_GIVEN}, "no rows for the ids of 'C1'"},
        {{.format = CLICKS_CRITEO, .rows = UINT64_MAX}, "must be below 2^63"},
        {{.format = CLICKS_CRITEO, .ids = CLICKS_VOCABULARY, .threshold = UINT64_C(1) << 32}, "below 2^32"},
        {{.format = CLICKS_GENERATED, .ids = CLICKS_GIVEN}, "0 samples"},
        {{.format = CLICKS_SCHEMA, .schema = "/nowhere/schema", .rows = 10}, "cannot read the schema /nowhere/schema"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clicks *log = (clicks *)folder;
        assert_int_equal(clicks_open(&log, &cases[i].settings, &error), -1);
        assert_null(log);
        if (!strstr(error.text, cases[i].text)) fail_msg("the message lacks '%s': %s", cases[i].text, error.text);
    }
    clicks_close(NULL);
}

/* ---- Lines that are no samples -------------------------------------------------------------------------- */

static void test_malformed(void **state) {
    static const struct {
        const char *line, *reason;
    } cases[] = {
        {"1,5", "line 2: 2 columns, must be 3"},
        {"1", "line 2: 1 column, must be 3"},
        {"1,5,a,b", "line 2: 4 columns, must be 3"},
        {"2,x,a,b", "line 2: 4 columns, must be 3"}, /* which says more than what stands in them */
        {"2,5,a", "line 2: column 1 (l) is '2', must be '1' or '0'"},
        {",5,a", "line 2: column 1 (l) is '', must be '1' or '0'"},
        {"-1,5,a", "column 1 (l) is '-1'"},
        {"1,5x,a", "line 2: column 2 (n) is '5x', must be a number"},
        {"1,nan,a", "is 'nan', missing? Add `missing TEXT` to the schema, or `missing` alone if not"},
        {"1,5,NULL", "column 3 (i) is 'NULL', missing? Add `missing TEXT` to the schema"},
        {"1,5,\\N", "column 3 (i) is '\\N', missing?"},
        {"1.5,5,a", "line 2: column 1 (l) is '1.5', must be '1' or '0'"},
        {"1,inf,a", "must be a number"},
        {"1,0x10,a", "must be a number"},
        {"1,1e39,a", "more than a float can hold"},
        {"1,1e999999999999,a", "more than a float can hold"},
        {"1,1 2,a", "is '1 2', must be a number"},
        {"1,1\x01\xff,a", "is '1?\?', must be a number"},
        {"1,a very long text that is no number at all,a", "is 'a very long text that is...', must"},
        {"1,1e30,a", "too far for a bucket"},
        {"1,5,\"a", "column 3 (i) begins with a quote that does not end the field"},
        {"1,5,\"a\"b", "column 3 (i) begins with a quote that does not end the field"},
        {"1,5,a,\"", "begins with a quote that does not end"},
    };
    clicks_settings settings = {.rows = 10};
    char text[400];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        settings.malformed = 0;
        clicks *log = open_schema("label l one 1 zero 0\nnumber n bucket 1e-3\nid i\n", settings);
        snprintf(text, sizeof text, "1,5,a\n%s\n0,6,b\n", cases[i].line);
        write_text(text);
        expect_unreadable(log, path, cases[i].reason, "tolerate more");
        clicks_close(log);
        settings.malformed = 1;
        log = open_schema("label l one 1 zero 0\nnumber n bucket 1e-3\nid i\n", settings);
        clicks_batch batch = read_all(log);
        assert_int_equal(batch.n, 2);
        assert_true(batch.numbers[1] == 6 && id(&batch, 1, 1) == clicks_hash("b", 1) % 10);
        clicks_batch_close(&batch);
        clicks_close(log);
    }
}

static void test_malformed_are_counted(void **state) {
    clicks *log = open_schema("label l one 1 zero 0\nid i\n", (clicks_settings){.rows = 10, .malformed = 3});
    clicks_reader *reader;
    clicks_batch batch;
    clicks_malformed malformed;
    uint64_t samples;
    (void)state;
    write_text("x\n1,a\n\n1\n1,b\n2,c\n1,d\n");
    assert_int_equal(clicks_count(log, path, &samples, &malformed, &error), 0);
    assert_int_equal(samples, 3);
    assert_int_equal(malformed.lines, 3);
    assert_string_equal(malformed.what[1], "line 4: 1 column, must be 2");
    assert_int_equal(clicks_batch_open(&batch, log, 1, &error), 0);
    assert_int_equal(clicks_reader_open(&reader, log, path, 1, 3, &error), 0);
    assert_int_equal(clicks_reader_malformed(reader)->lines, 0);
    assert_int_equal(clicks_reader_read(reader, 8, &batch, &error), 0); /* no more than there is room for */
    assert_int_equal(batch.n, 1);
    assert_int_equal(clicks_reader_malformed(reader)->lines, 2);
    assert_int_equal(clicks_reader_read(reader, 8, &batch, &error), 0);
    assert_int_equal(id(&batch, 0, 0), clicks_hash("d", 1) % 10);
    assert_int_equal(clicks_reader_malformed(reader)->lines, 3);
    assert_string_equal(clicks_reader_malformed(reader)->what[0], "line 1: 1 column, must be 2");
    clicks_reader_close(reader);
    write_text("x\n1,a\n\n1\n1,b\n2,c\n1,d\nz");
    expect_unreadable(log, path, "line 1: 1 column, must be 2; 4 lines are no sample so far, and 3 may be", path);
    clicks_batch_close(&batch);
    clicks_close(log);
}

static void test_zero_bytes_and_long_lines(void **state) {
    clicks *log = open_schema("label l one 1 zero 0\nid i\n", (clicks_settings){.rows = 1000});
    size_t room = 3 * CLICKS_BLOCK;
    char *text = malloc(room);
    (void)state;
    write_bytes(path, "1,a\n0,\0b\n", 9);
    expect_unreadable(log, path, "line 2: a zero byte", "");
    for (int excess = 0; excess < 4; excess++) { /* the line is too long by so much, and ends in several ways */
        static const char *const ends[] = {"", "\n", "\r\n", "\n1,b\n"};
        for (int end = 0; end < 4; end++) {
            size_t n = CLICKS_LONGEST_LINE + (excess < 3 ? (size_t)excess : (size_t)CLICKS_BLOCK);
            memset(text, 'x', n);
            memcpy(text, "1,", 2);
            memcpy(text + n, ends[end], strlen(ends[end]));
            write_bytes(path, text, n + strlen(ends[end]));
            if (excess) {
                expect_unreadable(log, path, "line 1: longer than 65536 bytes", "");
                continue;
            }
            clicks_batch batch = read_all(log);
            assert_int_equal(batch.n, end == 3 ? 2 : 1);
            assert_int_equal(id(&batch, 0, 0), clicks_hash(text + 2, n - 2) % 1000);
            clicks_batch_close(&batch);
        }
    }
    free(text);
    clicks_close(log);
}

static void test_unreadable_files(void **state) {
    clicks *log = open_log(&criteo);
    (void)state;
    expect_unreadable(log, "/nowhere/log", "cannot read /nowhere/log", "No such file");
    expect_unreadable(log, "/proc/self/task", "the folder /proc/self/task has no files of samples", "folders");
    expect_unreadable(log, NULL, "no file", "");
    write_text("");
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 0);
    clicks_batch_close(&batch);
    clicks_close(log);
}

/* ---- Any part of a log ---------------------------------------------------------------------------------- */

enum { SAMPLES = 9000 };

/* Samples with a number that tells which they are, among lines that are none. */
static size_t make_log(char *text, size_t room) {
    size_t n = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        if (test_mix(i) % 7 == 0) n += (size_t)snprintf(text + n, room - n, "no sample\n");
        if (test_mix(i) % 11 == 0) n += (size_t)snprintf(text + n, room - n, "1,1,\r\n\n");
        n += (size_t)snprintf(text + n, room - n, "%u,%u,%.*s%u%s", i % 2, i, (int)(test_mix(i) % 120),
                              "################################################################################"
                              "########################################",
                              i, i % 3 ? "\n" : "\r\n");
    }
    assert_true(n < room);
    return n;
}

static void check_part(const clicks *log, uint64_t first, uint64_t end, uint32_t most) {
    clicks_batch batch = read_part(log, first, end, most);
    uint64_t stop = end < SAMPLES ? end : SAMPLES, n = first < stop ? stop - first : 0;
    assert_int_equal(batch.n, n);
    for (uint32_t i = 0; i < batch.n; i++) {
        assert_true(batch.numbers[i] == (float)(first + i));
        assert_true(batch.labels[i] == (float)((first + i) % 2));
    }
    clicks_batch_close(&batch);
}

static void test_parts(void **state) {
    static const char schema[] = "label l one 1 zero 0\nnumber n\nid i last 1\n";
    clicks *log = open_schema(schema, (clicks_settings){.ids = CLICKS_GIVEN, .rows = 10, .malformed = 10000});
    size_t room = (size_t)SAMPLES * 200, n;
    char *text = malloc(room);
    uint64_t samples;
    (void)state;
    n = make_log(text, room);
    assert_true(n > 2 * CLICKS_BLOCK);
    for (int gz = 0; gz < 2; gz++) {
        if (gz)
            write_gz(text, n);
        else
            write_bytes(path, text, n);
        assert_int_equal(clicks_count(log, path, &samples, NULL, &error), 0);
        assert_int_equal(samples, SAMPLES);
        check_part(log, 0, UINT64_MAX, 100);
        check_part(log, 0, SAMPLES, 1000);
        check_part(log, 0, 0, 10);
        check_part(log, 4000, 4321, 64);
        check_part(log, SAMPLES - 1, SAMPLES + 5, 3);
        check_part(log, SAMPLES + 1, SAMPLES + 5, 3);
    }
    clicks_reader *reader;
    assert_int_equal(clicks_reader_open(&reader, log, path, 3, 2, &error), -1);
    assert_null(reader);
    assert_non_null(strstr(error.text, "3 to 2"));
    free(text);
    clicks_close(log);
}

static void test_damaged_gz(void **state) {
    clicks *log =
        open_schema("label l one 1 zero 0\nnumber n\nid i\n", (clicks_settings){.rows = 9, .malformed = 10000});
    size_t room = (size_t)SAMPLES * 200, n;
    char *text = malloc(room);
    (void)state;
    n = make_log(text, room);
    write_gz(text, n);
    FILE *stream = fopen(path, "rb");
    size_t size = fread(text, 1, room, stream);
    fclose(stream);
    for (size_t cut = 1; cut < size - 12; cut = cut * 3 + 1) { /* 1: within the check at its end */
        write_bytes(path, text, size - cut);
        expect_unreadable(log, path, "cut off?", path);
    }
    text[size / 2] ^= 0x55;
    write_bytes(path, text, size);
    expect_unreadable(log, path, "cannot read", path);
    text[size / 2] ^= 0x55;
    text[size - 6] ^= 0x55; /* the check sum */
    write_bytes(path, text, size);
    expect_unreadable(log, path, "cannot read", "check");
    free(text);
    clicks_close(log);
}

/* ---- Ids ------------------------------------------------------------------------------------------------ */

static void test_given(void **state) {
    static const struct {
        const char *line, *reason;
    } cases[] = {
        {"1,10,a,1", "column 2 (d) is '10', must be a row below 10"},
        {"1,-1,a,1", "column 2 (d) is '-1', must be a row below 10"},
        {"1,,a,1", "column 2 (d) is '', must be a row below 10"},
        {"1,NA,a,1", "column 2 (d) is '', must be a row below 10"},
        {"1,99999999999999999999999999,a,1", "must be a row below 10"},
        {"1,1,11,1", "column 3 (h) is '11', must be a hexadecimal row below 17"},
        {"1,1,g,1", "column 3 (h) is 'g', must be a hexadecimal row below 17"},
        {"1,1,a,-0.5", "column 4 (b) is '-0.5', must be a number of a bucket below 3"},
        {"1,1,a,3", "column 4 (b) is '3', must be a number of a bucket below 3"},
        {"1,1,a,", "column 4 (b) is '', must be a number of a bucket below 3"},
    };
    clicks *log = open_schema("label l one 1 zero 0\nmissing NA\nid d\nid h hex rows 17\nnumber b bucket 1 rows 3\n",
                              (clicks_settings){.ids = CLICKS_GIVEN, .rows = 10});
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(cases[i].line);
        expect_unreadable(log, path, cases[i].reason, "line 1: ");
    }
    write_text("1,9,10,0\n0,0000000000000000000000007,0F,2.9\n");
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 2);
    assert_int_equal(id(&batch, 0, 0), 9);
    assert_int_equal(id(&batch, 1, 0), 16);
    assert_int_equal(id(&batch, 2, 0), 0);
    assert_int_equal(id(&batch, 0, 1), 7);
    assert_int_equal(id(&batch, 1, 1), 15);
    assert_int_equal(id(&batch, 2, 1), 2);
    clicks_batch_close(&batch);
    clicks_close(log);
    log = open_schema("label l one 1 zero 0\nid d\n", (clicks_settings){.ids = CLICKS_GIVEN, .rows = INT64_MAX});
    write_text("1,9223372036854775806");
    batch = read_all(log);
    assert_true(id(&batch, 0, 0) == INT64_MAX - 1);
    clicks_batch_close(&batch);
    write_text("1,9223372036854775807");
    expect_unreadable(log, path, "must be a row below 9223372036854775807", "");
    clicks_close(log);
}

static void test_vocabulary(void **state) {
    clicks *log = open_schema("label l one 1 zero 0\nmissing ?\nid a\nid b\n",
                              (clicks_settings){.ids = CLICKS_VOCABULARY, .threshold = 2, .malformed = 1});
    clicks_reader *reader;
    (void)state;
    write_text("1,x,p\n1,y,?\n1,z,?\n1,z,\nbad\n1,y,p\n0,x,q\n0,w,q\n1,w,r\n");
    assert_int_equal(clicks_reader_open(&reader, log, path, 0, 9, &error), -1);
    assert_non_null(strstr(error.text, "make the vocabularies"));
    assert_int_equal(clicks_prepare(log, "/nowhere/log", 7, &error), -1);
    assert_non_null(strstr(error.text, "cannot read"));
    assert_int_equal(clicks_prepare(log, path, 7, &error), 0); /* without the last one: w comes but once */
    assert_int_equal(clicks_rows(log, 0), 4);                  /* x, y, z, as they came first */
    assert_int_equal(clicks_rows(log, 1), 3);                  /* p, q; what is missing is no id */
    clicks_batch batch = read_all(log);
    static const uint64_t rows[2][8] = {{1, 2, 3, 3, 2, 1, 0, 0}, {1, 0, 0, 0, 1, 2, 2, 0}};
    assert_int_equal(batch.n, 8);
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < 8; i++) assert_int_equal(id(&batch, k, i), rows[k][i]);
    clicks_batch_close(&batch);
    assert_int_equal(clicks_prepare(log, path, 7, &error), -1);
    assert_non_null(strstr(error.text, "made already"));
    clicks_close(log);
}

/* Of the log that a schema and settings make, prepared with the text. */
static uint32_t checksum_of(const char *schema, clicks_settings settings, const char *text) {
    clicks *log = open_schema(schema, settings);
    write_text(text);
    assert_int_equal(clicks_prepare(log, path, UINT64_MAX, &error), 0);
    uint32_t sum = clicks_checksum(log);
    clicks_close(log);
    return sum;
}

/* The same where batches would be the same; another one wherever anything differs that they are made by. */
static void test_checksum(void **state) {
    (void)state;
    static const char schema[] = "label l one 1 zero 0\nmissing ?\nnumber n scale 1 2\nid a\n";
    static const char *const others[] = {
        "label l one 1 zero 2\nmissing ?\nnumber n scale 1 2\nid a\n",
        "label l one 1 y zero 0\nmissing ?\nnumber n scale 1 2\nid a\n",
        "label l one 1 zero 0\nmissing -\nnumber n scale 1 2\nid a\n",
        "label l one 1 zero 0\nmissing ?\nnumber n scale 1 3\nid a\n",
        "label l one 1 zero 0\nmissing ?\nnumber n log\nid a\n",
        "label l one 1 zero 0\nmissing ?\nnumber n scale 1 2\nid a last 3\n",
        "label l one 1 zero 0\nmissing ?\nnumber n scale 1 2\nid b\n",
        "label l one 1 zero 0\nmissing ?\nid a\nnumber n scale 1 2\n",
        "separator tab\nlabel l one 1 zero 0\nmissing ?\nnumber n scale 1 2\nid a\n",
    };
    clicks_settings hashed = {.ids = CLICKS_HASH, .rows = 9, .malformed = 9}, numbered = hashed;
    uint32_t sum = checksum_of(schema, hashed, "");
    assert_int_equal(
        checksum_of("# the same\nlabel l  one 1 zero 0\nmissing ?\nnumber n scale 1 2\nid a\n", hashed, "1"), sum);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (checksum_of(others[i], hashed, "") == sum) fail_msg("%s", others[i]);
    hashed.rows = 10;
    assert_int_not_equal(checksum_of(schema, hashed, ""), sum);
    numbered.ids = CLICKS_VOCABULARY;
    uint32_t all = checksum_of(schema, numbered, "1,0,x\n1,0,y\n");
    assert_int_not_equal(all, sum);
    assert_int_equal(checksum_of(schema, numbered, "1,0,x\n1,0,y\n0,5,x\n"), all);
    assert_int_not_equal(checksum_of(schema, numbered, "1,0,y\n1,0,x\n"), all);
    assert_int_not_equal(checksum_of(schema, numbered, "1,0,x\n1,0,z\n"), all);
    assert_int_not_equal(checksum_of(schema, numbered, "1,0,x\n"), all);
}

/* Many ids, against arrays. */
static void test_large_vocabulary(void **state) {
    enum { IDS = 20000, DRAWS = 60000 };
    clicks_vocabulary v = {0};
    uint32_t *count = calloc(IDS, sizeof *count), *row = calloc(IDS, sizeof *row), next = 1;
    (void)state;
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t number = test_mix(i) % IDS;
        count[number]++;
        assert_int_equal(clicks_vocabulary_count(&v, clicks_hash_number((int64_t)number), &error), 0);
    }
    assert_int_equal(clicks_vocabulary_row(&(clicks_vocabulary){0}, 5), 0);
    assert_int_equal(clicks_vocabulary_number(&v, 3, &error), 0);
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t number = test_mix(i) % IDS;
        if (count[number] >= 3 && !row[number]) row[number] = next++;
    }
    assert_int_equal(v.n, next - 1);
    for (uint64_t i = 0; i < IDS; i++)
        assert_int_equal(clicks_vocabulary_row(&v, clicks_hash_number((int64_t)i)), row[i]);
    clicks_vocabulary_free(&v);
    free(count);
    free(row);
}

/* ---- Numbers -------------------------------------------------------------------------------------------- */

static void test_numbers(void **state) {
    static const char *const good[] = {
        "0",     "-0",    "+7",     "007",      "12345678901234567890123", ".5",   "5.",
        "1e5",   "1E-5",  "-.5e+3", "0.000001", "9007199254740993",        "1e22", "0e9999",
        "1e-30", "3.4e38"};
    static const char *const bad[] = {"-", "+", ".", "e5", "1e", "1e+", "1.2.3", "--1", "1a", "0x1", "inf", " 1", "1 "};
    test_random r = {.seed = test_seed("test_clicks", 3)};
    char text[64];
    double number;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(clicks_parse_number(good[i], strlen(good[i]), &number), 1);
        assert_true(fabs(number - strtod(good[i], NULL)) <= 1e-15 * fabs(number));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(clicks_parse_number(bad[i], strlen(bad[i]), &number), 0);
    assert_int_equal(clicks_parse_number("", 0, &number), 0);
    for (int i = 0; i < 20000; i++) { /* 15 digits, exponents within 22: exact */
        uint64_t digits = test_next(&r) % UINT64_C(1000000000000000) >> test_below(&r, 50);
        int point = (int)test_below(&r, 4), size;
        size = point ? snprintf(text, sizeof text, "%" PRIu64 ".%0*" PRIu64, digits / 1000, point, digits % 10)
                     : snprintf(text, sizeof text, "%" PRIu64 "e%d", digits, (int)test_below(&r, 45) - 22);
        assert_int_equal(clicks_parse_number(text, (size_t)size, &number), 1);
        if (number != strtod(text, NULL)) fail_msg("%s is read as %.17g", text, number);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_criteo),
        cmocka_unit_test(test_criteo_csv),
        cmocka_unit_test(test_avazu),
        cmocka_unit_test(test_adult),
        cmocka_unit_test(test_buckets_and_ends),
        cmocka_unit_test(test_schema_refused),
        cmocka_unit_test(test_settings_refused),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_are_counted),
        cmocka_unit_test(test_zero_bytes_and_long_lines),
        cmocka_unit_test(test_unreadable_files),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_damaged_gz),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
