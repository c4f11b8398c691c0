/* What a log may lie in besides plain text: arrays of NumPy, folders, and files that another program makes text of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainers/clicks/clicks.h"
#include "trainers/clicks/folder.h"
#include "trainers/clicks/ids.h"
#include "tests/unit/trainers/folder.h"

static program_error error;

static int make_folder(void **state) {
    (void)state;
    return folder_make("test_clicks_kinds");
}

static clicks *open_log(const clicks_settings *settings) {
    clicks *log;
    if (clicks_open(&log, settings, &error)) fail_msg("%s", error.text);
    return log;
}

static void says(const char *wanted) {
    if (!strstr(error.text, wanted)) fail_msg("the message lacks '%s': %s", wanted, error.text);
}

/* The samples of the path; NULL: of the log's files. */
static clicks_batch read_log(const clicks *log, const char *path) {
    clicks_reader *reader;
    clicks_batch batch;
    assert_int_equal(clicks_batch_open(&batch, log, 200, &error), 0);
    if (clicks_reader_open(&reader, log, path, 0, UINT64_MAX, &error)) fail_msg("%s", error.text);
    if (clicks_reader_read(reader, batch.room, &batch, &error)) fail_msg("%s", error.text);
    clicks_reader_close(reader);
    return batch;
}

/* ---- Arrays ---------------------------------------------------------------------------------------------- */

/* As numpy.save writes it, with this text in its header; `n` bytes of values. */
static void put_array(const char *name, const char *header, const void *values, size_t n) {
    FILE *file = fopen(in_folder(name), "wb");
    size_t length = strlen(header);
    assert_non_null(file);
    fwrite("\x93NUMPY\x01", 1, 7, file);
    fputc(0, file);
    fputc((int)(length % 256), file);
    fputc((int)(length / 256), file);
    fputs(header, file);
    fwrite(values, 1, n, file);
    assert_int_equal(fclose(file), 0);
}

#define ARRAY(type, shape) "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }\n"

/* 70 samples, more than are read at a time. */
static void put_log(const char *stem, float first) {
    static float dense[70][2];
    static int32_t sparse[70][3];
    static int8_t labels[70];
    char name[40];
    for (int i = 0; i < 70; i++) {
        labels[i] = (int8_t)(i % 2);
        dense[i][0] = first + (float)i / 3, dense[i][1] = -1e-30f;
        for (int k = 0; k < 3; k++) sparse[i][k] = i * (k + 1) - 1;
    }
    snprintf(name, sizeof name, "%s_dense.npy", stem);
    put_array(name, ARRAY("<f4", "(70, 2)"), dense, sizeof dense);
    snprintf(name, sizeof name, "%s_sparse.npy", stem);
    put_array(name, ARRAY("<i4", "(70, 3)"), sparse, sizeof sparse);
    snprintf(name, sizeof name, "%s_labels.npy", stem);
    put_array(name, ARRAY("|i1", "(70, 1)"), labels, sizeof labels);
}

static void test_arrays(void **state) {
    (void)state;
    clicks_format format;
    char dense[100];
    const char *files[] = {dense, NULL};
    snprintf(dense, sizeof dense, "%s/day_0_dense.npy", folder);
    put_log("day_0", 5);
    assert_int_equal(clicks_guess(files[0], &format, &error), 0);
    assert_int_equal(format, CLICKS_ARRAYS);
    clicks *log = open_log(&(clicks_settings){.format = format, .files = files, .rows = 1000});
    assert_int_equal(clicks_numbers(log), 2);
    assert_int_equal(clicks_features(log), 3);
    assert_string_equal(clicks_feature_name(log, 2), "cat_2");
    clicks_batch batch = read_log(log, NULL);
    assert_int_equal(batch.n, 70);
    for (uint32_t i = 0; i < 70; i++) { /* numbers as they are, to the bit */
        assert_true(batch.labels[i] == (float)(i % 2));
        assert_true(batch.numbers[2 * i] == 5 + (float)i / 3 && batch.numbers[2 * i + 1] == -1e-30f);
        for (uint32_t k = 0; k < 3; k++)
            assert_int_equal(batch.ids[k * batch.room + i], clicks_hash_number((int64_t)i * (k + 1) - 1) % 1000);
    }
    clicks_batch_close(&batch);
    clicks_close(log);
}

/* Every type of number; one dimension of labels. */
static void test_array_types(void **state) {
    (void)state;
    static const double dense[2] = {0.1, -1e300 / 1e270};
    static const uint64_t sparse[2] = {UINT64_MAX, 7};
    static const uint8_t labels[2] = {1, 0};
    char path[100];
    const char *files[] = {path, NULL};
    snprintf(path, sizeof path, "%s/a_dense.npy", folder);
    put_array("a_dense.npy", ARRAY("<f8", "(2, 1)"), dense, sizeof dense);
    put_array("a_sparse.npy", ARRAY("<u8", "(2, 1)"), sparse, sizeof sparse);
    put_array("a_labels.npy", ARRAY("|b1", "(2,)"), labels, sizeof labels);
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_ARRAYS, .files = files, .rows = 1000});
    clicks_batch batch = read_log(log, NULL);
    assert_int_equal(batch.n, 2);
    assert_true(batch.labels[0] == 1 && batch.labels[1] == 0);
    assert_true(batch.numbers[0] == 0.1f && batch.numbers[1] == (float)dense[1]);
    assert_int_equal(batch.ids[0], clicks_hash("18446744073709551615", 20) % 1000);
    clicks_batch_close(&batch);
    clicks_close(log);
}

static void refuse_arrays(const char *header, size_t bytes, const char *wanted) {
    static const char zeros[1120];
    char dense[100];
    const char *files[] = {dense, NULL};
    clicks *log;
    snprintf(dense, sizeof dense, "%s/bad_dense.npy", folder);
    put_log("bad", 0);
    put_array("bad_dense.npy", header, zeros, bytes);
    assert_int_equal(clicks_open(&log, &(clicks_settings){.format = CLICKS_ARRAYS, .files = files, .rows = 9}, &error),
                     -1);
    says(wanted);
    says("bad_dense.npy");
}

static void test_arrays_refused(void **state) {
    (void)state;
    clicks *log;
    refuse_arrays(ARRAY("<f4", "(70, 2)"), 559, "its header says 631: is it cut off?");
    refuse_arrays(ARRAY("<f4", "(60, 2)"), 480, "has 60 rows, and");
    refuse_arrays(ARRAY(">f4", "(70, 2)"), 560, "is of type >f4, must be of float32");
    refuse_arrays(ARRAY("<c8", "(70, 2)"), 1120, "must be of float32");
    refuse_arrays(ARRAY("<f2", "(70, 2)"), 280, "must be of float32");
    refuse_arrays(ARRAY("<f4", "(7, 5, 2)"), 560,
                  "one or two dimensions of numbers: {'descr': '<f4', 'fortran_order': False, 'shape': (7, 5, 2)");
    refuse_arrays("{'descr': '<f4', 'fortran_order': True, 'shape': (70, 2), }\n", 560, "in the order of Fortran");
    refuse_arrays("{}\n", 0, "is no .npy file of one or two dimensions");
    put_text(in_folder("bad_dense.npy"), "no array");
    char dense[100], sparse[100];
    snprintf(dense, sizeof dense, "%s/bad_dense.npy", folder);
    snprintf(sparse, sizeof sparse, "%s/bad_sparse.npy", folder);
    const char *files[] = {dense, NULL};
    clicks_settings settings = {.format = CLICKS_ARRAYS, .files = files, .rows = 9};
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    says("is no .npy file; write it by numpy.save");
    char longest[5000];
    memset(longest, 'a', sizeof longest);
    strcpy(longest + sizeof longest - 11, "_dense.npy");
    files[0] = longest;
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    says("the name of an array is longer than 4095 bytes: aaa");
    files[0] = dense;
    put_log("bad", 0);
    put_array("bad_sparse.npy", ARRAY("<f4", "(70, 2)"), (float[140]){0}, 560);
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    says("has floats as ids");
    put_log("bad", 0);
    put_array("bad_labels.npy", ARRAY("<f4", "(70, 2)"), (float[140]){0}, 560);
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    says("has 2 columns of labels");
    unlink(in_folder("bad_labels.npy"));
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    says("bad_labels.npy: No such file or directory");
    says("x_dense.npy, x_sparse.npy and x_labels.npy belong together");
    files[0] = sparse;
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    says("is not named as arrays of a log are; give x_dense.npy");
    settings.files = NULL;
    assert_int_equal(clicks_open(&log, &settings, &error), -1);
    says("no arrays of samples");
}

/* ---- Folders --------------------------------------------------------------------------------------------- */

static const char *in_log(const char *name) {
    char path[100];
    snprintf(path, sizeof path, "log/%s", name);
    return in_folder(path);
}

/* Numbers in names count as numbers; what is no sample is left out. As one log, whether by its path or its files. */
static void test_folder(void **state) {
    (void)state;
    clicks_folder listed;
    assert_int_equal(mkdir(in_folder("log"), 0700), 0);
    assert_int_equal(clicks_folder_read(&listed, in_folder("log"), &error), -1);
    says("has no files of samples");
    put_text(in_log("part-10.csv"), "1,c\n");
    put_text(in_log("part-2.csv"), "1,a\n0,b\n");
    put_text(in_log("_SUCCESS"), "");
    put_text(in_log(".part-2.csv.crc"), "x");
    assert_int_equal(mkdir(in_log("more"), 0700), 0);
    put_text(in_folder("schema"), "label l one 1 zero 0\nid i\n");
    clicks *log = open_log(
        &(clicks_settings){.format = CLICKS_SCHEMA, .schema = in_folder("schema"), .rows = 1000, .malformed = 0});
    for (int slash = 0; slash < 2; slash++) {
        clicks_batch batch = read_log(log, slash ? in_folder("log/") : in_folder("log"));
        assert_int_equal(batch.n, 3);
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(batch.ids[i], clicks_hash(&"abc"[i], 1) % 1000);
        clicks_batch_close(&batch);
    }
    clicks_close(log);
    assert_int_equal(clicks_folder_read(&listed, in_folder("none"), &error), -1);
    says("none: No such file or directory");
}

/* Of arrays that belong together, one stands for all. */
static void test_folder_of_arrays(void **state) {
    (void)state;
    clicks_folder listed;
    assert_int_equal(mkdir(in_folder("log"), 0700), 0);
    put_log("log/day_10", 100);
    put_log("log/day_9", 0);
    put_text(in_log("other_sparse.npy"), "");
    assert_int_equal(clicks_folder_read(&listed, in_folder("log"), &error), 0);
    assert_int_equal(listed.n, 3);
    assert_string_equal(listed.files[0], in_log("day_9_dense.npy"));
    assert_string_equal(listed.files[1], in_log("day_10_dense.npy"));
    assert_string_equal(listed.files[2], in_log("other_sparse.npy")); /* which is then refused */
    const char *files[] = {listed.files[0], listed.files[1], NULL};
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_ARRAYS, .files = files, .rows = 1000});
    clicks_batch batch = read_log(log, NULL);
    assert_int_equal(batch.n, 140);
    assert_true(batch.numbers[0] == 0 && batch.numbers[2 * 70] == 100);
    clicks_batch_close(&batch);
    clicks_close(log);
    clicks_folder_free(&listed);
}

/* ---- Other kinds ----------------------------------------------------------------------------------------- */

static void test_kinds_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"PK\x03\x04\x14", "is a file of zip; unpack it (unzip)"},
        {"\x93NUMPY\x01", "is a file of NumPy; give x_dense.npy, with x_sparse.npy and x_labels.npy beside it"},
        {"\xff\xfel", "is a file of text of UTF-16; make UTF-8 of it, by iconv -f UTF-16 -t UTF-8"},
        {"\x80\x04\x95", "is a file of pickled objects of Python; make text or Parquet"},
        {"\x80\x05\x95", "is a file of pickled objects of Python; make text or Parquet"},
        {"Obj\x01\x04", "is a file of Avro; make text or Parquet of it"},
        {"ORC\x0a\x0b\x01", "is a file of ORC; make text or Parquet of it"},
        {"ARROW1\x01", "is a file of Arrow; make text or Parquet of it"},
        {"\x89HDF", "is a file of HDF5; make text or Parquet of it"},
        {"SQLite format 3\x01", "is a file of SQLite; make text of it"},
    };
    char path[100];
    snprintf(path, sizeof path, "%s/log", folder);
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_CRITEO, .rows = 9});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) { /* whatever the format */
        clicks_format format;
        uint64_t samples;
        put_text(path, cases[i].text);
        assert_int_equal(clicks_guess(path, &format, &error), -1);
        says(cases[i].wanted);
        assert_int_equal(clicks_count(log, path, &samples, NULL, &error), -1);
        says(cases[i].wanted);
        says(path);
    }
    clicks_close(log);
}

/* Text that begins as such a file does is text. */
static void test_kinds_in_text(void **state) {
    (void)state;
    put_text(in_folder("schema"), "header yes\nid ORCHID\nlabel l one 1 zero 0\n");
    put_text(in_folder("log"), "ORCHID,l\r\nPAR1,1\n");
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_SCHEMA, .schema = in_folder("schema"), .rows = 1000});
    clicks_batch batch = read_log(log, in_folder("log"));
    assert_int_equal(batch.n, 1);
    assert_int_equal(batch.ids[0], clicks_hash("PAR1", 4) % 1000);
    clicks_batch_close(&batch);
    clicks_close(log);
}

static int has(const char *program) {
    char command[100];
    snprintf(command, sizeof command, "command -v %s >/dev/null", program);
    return !system(command);
}

/* Compressed logs read as what they hold; one that is cut off says so; one that is not read to its end closes. */
static void test_compressed(void **state) {
    (void)state;
    static const char *const programs[] = {"bzip2", "xz", "zstd", "lz4"};
    char command[300];
    int tried = 0;
    put_text(in_folder("schema"), "label l one 1 zero 0\nid i\n");
    FILE *text = fopen(in_folder("text"), "w");
    assert_non_null(text);
    for (int i = 0; i < 150000; i++) fprintf(text, "%d,%d\n", i % 2, i * 7919 % 100003);
    assert_int_equal(fclose(text), 0);
    clicks *log = open_log(&(clicks_settings){.format = CLICKS_SCHEMA, .schema = in_folder("schema"), .rows = 1000});
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        uint64_t samples = 0;
        if (!has(programs[i])) {
            print_message("SKIPPED: %s is not installed\n", programs[i]);
            continue;
        }
        snprintf(command, sizeof command, "cd %s && %s -c <text >log.z && head -c 20000 log.z >cut.z", folder,
                 programs[i]);
        assert_int_equal(system(command), 0);
        if (clicks_count(log, in_folder("log.z"), &samples, NULL, &error)) fail_msg("%s", error.text);
        assert_int_equal(samples, 150000);
        if (clicks_count_to(log, in_folder("log.z"), 5, &samples, NULL, &error)) fail_msg("%s", error.text);
        assert_int_equal(samples, 5);
        snprintf(command, sizeof command, "exec 2>/dev/null; %s -dc <%s/cut.z >%s/some", programs[i], folder, folder);
        assert_int_not_equal(system(command), 0);
        assert_int_equal(clicks_count(log, in_folder("cut.z"), &samples, NULL, &error), -1);
        says("and not read all of ");
        tried++;
    }
    clicks_close(log);
    if (!tried) skip();
}

/* What should read it is not there. */
static void test_not_started(void **state) {
    (void)state;
    clicks_format format;
    char *before = getenv("FRUGAL_PYTHON");
    put_text(in_folder("log"), "PAR1\x15");
    if (before) before = strdup(before);
    setenv("FRUGAL_PYTHON", "/no/python3", 1);
    int status = clicks_guess(in_folder("log"), &format, &error);
    if (before)
        setenv("FRUGAL_PYTHON", before, 1);
    else
        unsetenv("FRUGAL_PYTHON");
    free(before);
    assert_int_equal(status, -1);
    says("is a file of Parquet, which /no/python3 reads, and that cannot be started: No such file");
}

static int remove_log(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_arrays, remove_log),
        cmocka_unit_test_teardown(test_array_types, remove_log),
        cmocka_unit_test(test_arrays_refused),
        cmocka_unit_test_teardown(test_folder, remove_log),
        cmocka_unit_test_teardown(test_folder_of_arrays, remove_log),
        cmocka_unit_test_teardown(test_kinds_refused, remove_log),
        cmocka_unit_test(test_kinds_in_text),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_not_started),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
