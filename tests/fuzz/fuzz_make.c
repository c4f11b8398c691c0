/* fuzz_make.c - logs of which a schema is made, and arrays of NumPy. A schema that is made is one that reads again, and
 * no line of the log ends the program by it; arrays that open have as many samples as they say.
 *
 * An input that begins as NumPy's files do is the array of numbers, beside ids and labels of three samples. */
#include "trainers/clicks/clicks.h"
#include "trainers/clicks/make.h"
#include "fuzz.h"

#define ARRAY(type, shape) "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }\n"

static void check_message(const char *message) {
    assert_true(*message && !strchr(message, '\n'));
}

/* The samples of the log, or -1 if it cannot be read. */
static int64_t count(const clicks_settings *settings) {
    program_error error = {.text = ""};
    clicks *log;
    uint64_t samples = 0;
    if (clicks_open(&log, settings, &error)) {
        check_message(error.text);
        return -1;
    }
    int status = clicks_measure(log, NULL, &error) || clicks_count(log, NULL, &samples, NULL, &error);
    if (status) check_message(error.text);
    clicks_close(log);
    return status ? -1 : (int64_t)samples;
}

static void put_array(const char *name, const char *header, const void *values, size_t n) {
    char bytes[400] = "\x93NUMPY\x01";
    size_t length = strlen(header);
    bytes[8] = (char)length;
    memcpy(bytes + 10, header, length);
    memcpy(bytes + 10 + length, values, n);
    fuzz_write(name, bytes, 10 + length + n);
}

static void read_arrays(const char *bytes, size_t n) {
    static const int32_t ids[6] = {1, -2, 3, 4, 5, 6};
    static const uint8_t labels[3] = {1, 0, 1};
    fuzz_write("x_dense.npy", bytes, n);
    put_array("x_sparse.npy", ARRAY("<i4", "(3, 2)"), ids, sizeof ids);
    put_array("x_labels.npy", ARRAY("|u1", "(3,)"), labels, sizeof labels);
    const char *files[] = {fuzz_path("x_dense.npy"), NULL};
    int64_t samples =
        count(&(clicks_settings){.format = CLICKS_ARRAYS, .files = files, .rows = 100, .malformed = UINT64_MAX});
    assert_true(samples <= 3); /* a number may be none, such as an infinite one */
}

static void make_schema(const char *bytes, size_t n) {
    program_error error = {.text = ""};
    clicks_schema schema, again;
    clicks_made_schema made;
    char *text;
    size_t written;
    fuzz_write("log", bytes, n);
    if (clicks_make_schema(&schema, fuzz_path("log"), &made, &error)) {
        assert_true(!schema.columns);
        check_message(error.text);
        return;
    }
    assert_true(made.lines > 0 && made.label < schema.n_columns && schema.n_features > 0);
    assert_int_equal(schema.columns[made.label].kind, CLICKS_LABEL);
    FILE *out = open_memstream(&text, &written);
    clicks_schema_write(&schema, out);
    fclose(out);
    if (clicks_schema_parse(&again, "made", text, written, &error)) fail_msg("%s in:\n%s", error.text, text);
    assert_true(again.n_numbers == schema.n_numbers && again.n_features == schema.n_features);
    fuzz_write("schema", text, written);
    const char *files[] = {fuzz_path("log"), NULL};
    count(&(clicks_settings){
        .format = CLICKS_SCHEMA, .schema = fuzz_path("schema"), .files = files, .rows = 100, .malformed = UINT64_MAX});
    free(text);
    clicks_schema_free(&schema);
    clicks_schema_free(&again);
}

const unsigned fuzz_inputs = 1000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    fuzz_folder();
    if (size > 6 && !memcmp(bytes, "\x93NUMPY", 6))
        read_arrays(bytes, size);
    else
        make_schema(bytes, size);
    return 0;
}
