/* Dialects of the known formats, what is refused of them and why, formats that are guessed or nearly are, and a log of
 * several files. */
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
#include <zlib.h>

#include "trainers/clicks/clicks.h"
#include "trainers/clicks/ids.h"
#include "tests/unit/trainers/folder.h"

static program_error error;
static char path[80];

static int make_folder(void **state) {
    (void)state;
    if (folder_make("test_clicks_dialects")) return -1;
    snprintf(path, sizeof path, "%s/log", folder);
    return 0;
}

static void write_text(const char *text) {
    put_text(path, text);
}

static clicks *open_log(const clicks_settings *settings) {
    clicks *log;
    if (clicks_open(&log, settings, &error)) fail_msg("%s", error.text);
    return log;
}

static clicks *open_schema(const char *schema, clicks_settings settings) {
    put_text(in_folder("schema"), schema);
    settings.format = CLICKS_SCHEMA, settings.schema = in_folder("schema");
    return open_log(&settings);
}

/* Up to 8 samples from the first on; `file` NULL: of the log's own files. */
static clicks_batch read_from(const clicks *log, const char *file, uint64_t first) {
    clicks_reader *reader;
    clicks_batch batch;
    if (clicks_batch_open(&batch, log, 8, &error)) fail_msg("%s", error.text);
    if (clicks_reader_open(&reader, log, file, first, UINT64_MAX, &error)) fail_msg("%s", error.text);
    if (clicks_reader_read(reader, 8, &batch, &error)) fail_msg("%s", error.text);
    clicks_reader_close(reader);
    return batch;
}

static clicks_batch read_all(const clicks *log) {
    return read_from(log, path, 0);
}

static uint64_t id(const clicks_batch *batch, uint32_t feature, uint32_t i) {
    return batch->ids[(size_t)feature * batch->room + i];
}

static void expect_unreadable(const clicks *log, const char *file, const char *text1, const char *text2) {
    uint64_t samples;
    *error.text = 0;
    assert_int_equal(clicks_count(log, file, &samples, NULL, &error), -1);
    if (!strstr(error.text, text1) || !strstr(error.text, text2))
        fail_msg("the message lacks '%s' or '%s': %s", text1, text2, error.text);
}

static const clicks_settings criteo = {.format = CLICKS_CRITEO, .rows = 1000};

#define TABS13 "\t\t\t\t\t\t\t\t\t\t\t\t\t"
#define I13    "I1,I2,I3,I4,I5,I6,I7,I8,I9,I10,I11,I12,I13"
#define C26    "C1,C2,C3,C4,C5,C6,C7,C8,C9,C10,C11,C12,C13,C14,C15,C16,C17,C18,C19,C20,C21,C22,C23,C24,C25,C26"

/* ---- Dialects -------------------------------------------------------------------------------------------- */

/* What a file of another dialect reads like: as these samples of Criteo's, whose ids are these. */
static void expect_dialect(clicks_format format, const char *text) {
    clicks *log = open_log(&(clicks_settings){.format = format, .rows = 1000});
    clicks_format guessed = CLICKS_GENERATED;
    write_text(text);
    if (clicks_guess(path, &guessed, &error)) fail_msg("%s", error.text);
    assert_int_equal(guessed, format);
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 2);
    assert_true(batch.labels[0] == 1 && batch.labels[1] == 0);
    if (format == CLICKS_CRITEO || format == CLICKS_CRITEO_CSV) {
        assert_true(batch.numbers[0] == (float)log1p(7) && batch.numbers[13] == 0 && batch.numbers[12] == 0);
        assert_int_equal(id(&batch, 0, 0), clicks_hash("68fd1e64", 8) % 1000);
        assert_int_equal(id(&batch, 0, 1), clicks_hash("", 0) % 1000);
        assert_int_equal(id(&batch, 25, 0), clicks_hash("ab", 2) % 1000);
    }
    clicks_batch_close(&batch);
    clicks_close(log);
}

#define COMMAS12 ",,,,,,,,,,,,"
#define COMMAS24 COMMAS12 COMMAS12

/* Headers without Id, in another case, order or with other separators, quoted, with pandas' index; labels as numbers;
 * texts that mean missing. */
static void test_dialects(void **state) {
    (void)state;
    static const char *const missing[] = {"NA",   "N/A",  "n/a",  "<NA>", "nan", "NaN", "NAN",
                                          "NULL", "Null", "null", "None", "?",   "\\N"};
    char text[2000];
    expect_dialect(CLICKS_CRITEO_CSV, "label," I13 "," C26 "\n1,7" COMMAS12 ",68fd1e64," COMMAS24 "ab\n0," COMMAS12
                                      ",NULL" COMMAS24 ",\n");
    expect_dialect(CLICKS_CRITEO_CSV, "," C26 "," I13 ",LABEL\r\n0,68fd1e64" COMMAS24 ",ab,7" COMMAS12
                                      ",1.0\r\n1,nan" COMMAS24 ",," COMMAS12 ",0.0\r\n");
    expect_dialect(CLICKS_CRITEO_CSV,
                   "\"label\",\"I1\",I2,I3,I4,I5,I6,I7,I8,I9,I10,I11,I12,I13," C26 "\n\"1\",\"7\"" COMMAS12
                   ",\"68fd1e64\"," COMMAS24 "\"ab\"\n0," COMMAS12 ",?" COMMAS24 ",\n");
    snprintf(text, sizeof text,
             "Id;label;" I13 ";" C26 "\n1;1;7" COMMAS12 ";68fd1e64;" COMMAS24 "ab\n2;0;" COMMAS12 ";" COMMAS24 ";\n");
    for (char *at = text; *at; at++)
        if (*at == ';' || *at == ',') *at = '\t';
    expect_dialect(CLICKS_CRITEO_CSV, text);
    size_t n = (size_t)sprintf(text, "label"); /* as TorchRec names them */
    for (int i = 0; i < 13; i++) n += (size_t)sprintf(text + n, ",int_%d", i);
    for (int i = 0; i < 26; i++) n += (size_t)sprintf(text + n, ",cat_%d", i);
    sprintf(text + n, "\n1,7" COMMAS12 ",68fd1e64," COMMAS24 "ab\n0.0," COMMAS12 ",NULL" COMMAS24 ",\n");
    expect_dialect(CLICKS_CRITEO_CSV, text);
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        snprintf(text, sizeof text,
                 "1.0\t7" TABS13 "68fd1e64" TABS13 "\t\t\t\t\t\t\t\t\t\t\t\tab\n0\t%s" TABS13 "%s" TABS13
                 "\t\t\t\t\t\t\t\t\t\t\t\t\n",
                 missing[i], missing[i]);
        expect_dialect(CLICKS_CRITEO, text);
    }
    clicks *log = open_log(&criteo);
    write_text("2" TABS13 TABS13 TABS13);
    expect_unreadable(log, path, "column 1 (Label) is '2', must be '1' or '0'", "line 1");
    write_text("nan" TABS13 TABS13 TABS13);
    expect_unreadable(log, path, "column 1 (Label) is 'nan', must be '1' or '0'", "line 1");
    clicks_close(log);
}

#define AVAZU                                                                                                          \
    "C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,device_model," \
    "device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"

static void test_avazu_dialects(void **state) {
    (void)state;
    expect_dialect(CLICKS_AVAZU, "hour,click," AVAZU ",id\n14102107,1,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f,g,h,i,j,k,l,m\n"
                                 "14102123,0,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f,g,h,i,j,NA,l,m\n");
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_AVAZU, .rows = 1000});
    write_text("hour,click," AVAZU "\n14102107.0,1,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f,g,h,i,j,k,l\n");
    expect_unreadable(log, path, "column 1 (hour) is '14102107.0', must be YYMMDDHH", "line 2");
    write_text("id,hour," AVAZU "\n1,14102107,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f,g,h,i,j,k,l\n");
    expect_unreadable(log, path, "no column is named 'click'", "first line must name the columns");
    clicks_close(log);
}

static void test_not_guessed(void **state) {
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", "has no lines"},
        {"\n  \n", "has no lines"},
        {"a,b,c\n", "begins 'a,b,c', 3 columns with commas. It is neither"},
        {"1\t2\n", "begins '1 2', 2 columns with tabs. It is"},
        {"1 a:b:c:d\n", "2 columns with blanks"},
        {"7" TABS13 TABS13 "\t\t\t\t\t\t\t\t\t\t\t\t\n", "39 columns with tabs: nearly Criteo's, without a label?"},
        {COMMAS24 COMMAS12 ",,,\n", "40 columns with commas: nearly Criteo's, which has tabs between them"},
        {"label,int_0,int_1,cat_0\n", "nearly Criteo's, whose columns are named I1 to I13 and C1 to C26"},
        {"id,click,C1\n", "nearly Avazu's, without hour or banner_pos"},
        {"{\"label\": 1, \"user\": 3}\n", "log has lines of JSON; write columns with commas"},
        {"[{\"label\": 1}]\n", "begins as JSON does"},
        {"<!DOCTYPE html>\n", "begins as a page of HTML or XML does: was the download refused?"},
        {"version https://git-lfs.github.com/spec/v1\n", "is only a pointer of Git LFS; fetch the file itself"},
        {"%%MatrixMarket matrix coordinate\n", "is a matrix; write libsvm's form"},
        {"@RELATION clicks\n", "is of Weka's form"},
        {"1 2.0 |user u3 |item i4\n", "looks like Vowpal Wabbit's form; write libsvm's"},
        {"1::1193::5::978300760\n", "has :: between its columns, and one character separates them: write tabs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clicks_format format;
        write_text(cases[i].text);
        assert_int_equal(clicks_guess(path, &format, &error), -1);
        if (!strstr(error.text, cases[i].wanted) || !strstr(error.text, path))
            fail_msg("the message lacks '%s': %s", cases[i].wanted, error.text);
    }
}

/* Criteo's own download is one, zipped. */
static void test_archive_not_guessed(void **state) {
    (void)state;
    char header[600] = "readme.txt";
    clicks_format format;
    memcpy(header + 257, "ustar", 5);
    strcpy(header + 512, "The log\n");
    gzFile zipped = gzopen(path, "wb1");
    assert_int_equal(gzwrite(zipped, header, sizeof header), sizeof header);
    gzclose(zipped);
    assert_int_equal(clicks_guess(path, &format, &error), -1);
    assert_non_null(strstr(error.text, "log is an archive of tar; unpack it, and give the log that is in it"));
}

/* ---- Several files --------------------------------------------------------------------------------------- */

/* A log of several files, plain or gz, with a first line each that may name the columns in another order: as one. */
static void test_several_files(void **state) {
    (void)state;
    char other[100], last[100];
    const char *files[] = {path, other, last, NULL};
    clicks_malformed malformed;
    uint64_t samples;
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(last, sizeof last, "%s/last", folder);
    gzFile zipped = gzopen(path, "wb1");
    assert_int_equal(gzputs(zipped, "l,n,i\r\n1,1,a\r\n0,2,b"), 19);
    gzclose(zipped);
    put_text(other, "i,l,n\nx\nc,1,3\n");
    put_text(last, "l,n,i\n"); /* no sample */
    clicks *log = open_schema("header yes\nlabel l one 1 zero 0\nnumber n\nid i\n",
                              (clicks_settings){.rows = 1000, .malformed = 1, .files = files});
    files[0] = files[1] = NULL; /* the log has copied them */
    assert_int_equal(clicks_count(log, NULL, &samples, &malformed, &error), 0);
    assert_int_equal(samples, 3);
    assert_int_equal(malformed.lines, 1);
    assert_non_null(strstr(malformed.what[0], "/other, line 2: 1 column, must be 3"));
    assert_int_equal(clicks_count_to(log, NULL, 2, &samples, NULL, &error), 0);
    assert_int_equal(samples, 2);
    for (uint64_t first = 0; first < 3; first++) {
        clicks_batch batch = read_from(log, NULL, first);
        assert_int_equal(batch.n, 3 - first);
        for (uint32_t i = 0; i < batch.n; i++) assert_true(batch.numbers[i] == (float)(first + i + 1));
        assert_true(id(&batch, 0, batch.n - 1) == clicks_hash("c", 1) % 1000 && batch.labels[batch.n - 1] == 1);
        clicks_batch_close(&batch);
    }
    unlink(last);
    assert_int_equal(clicks_count(log, NULL, &samples, NULL, &error), -1);
    assert_non_null(strstr(error.text, last));
    clicks_close(log);
    log = open_schema("header yes\nlabel l one 1 zero 0\nnumber n\nid i\n",
                      (clicks_settings){.rows = 1000, .files = (const char *const[]){path, other, NULL}});
    assert_int_equal(clicks_count(log, NULL, &samples, NULL, &error), -1);
    assert_non_null(strstr(error.text, "/other, line 2: 1 column, must be 3; 1 line is no sample so far"));
    clicks_close(log);
}

/* A schema says what is missing, or that nothing is; then these texts are ids. */
static void test_missing_said(void **state) {
    (void)state;
    clicks *log = open_schema("missing\nlabel l one 1 zero 0\nid i\n", (clicks_settings){.rows = 1000});
    write_text("1,NA\n0,\n");
    clicks_batch batch = read_all(log);
    assert_int_equal(id(&batch, 0, 0), clicks_hash("NA", 2) % 1000);
    assert_int_equal(id(&batch, 0, 1), clicks_hash("", 0) % 1000);
    clicks_batch_close(&batch);
    clicks_close(log);
}

/* The texts of a schema's label are numbers, too, where they are; others are texts alone. */
static void test_labels_as_numbers(void **state) {
    (void)state;
    clicks *log = open_schema("label l one 4 5 zero 1 2.0 no\nid i\n", (clicks_settings){.rows = 1000});
    write_text("4.0,a\n+5,a\n1e0,a\n2,a\nno,a\n");
    clicks_batch batch = read_all(log);
    assert_int_equal(batch.n, 5);
    assert_true(batch.labels[0] == 1 && batch.labels[1] == 1);
    assert_true(batch.labels[2] == 0 && batch.labels[3] == 0 && batch.labels[4] == 0);
    clicks_batch_close(&batch);
    write_text("4.5,a\n");
    expect_unreadable(log, path, "column 1 (l) is '4.5', must be '4' or '1'", "line 1");
    clicks_close(log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dialects),
        cmocka_unit_test(test_avazu_dialects),
        cmocka_unit_test(test_not_guessed),
        cmocka_unit_test(test_several_files),
        cmocka_unit_test(test_missing_said),
        cmocka_unit_test(test_labels_as_numbers),
        cmocka_unit_test(test_archive_not_guessed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
