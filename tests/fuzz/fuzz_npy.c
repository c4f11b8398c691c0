/* fuzz_npy.c - rows of any bits saved as .npy: a strict reading of the format finds the shape and the bits again,
 * nobody sees half a file, and what was there before stays until all is published; the manifest finds every bit.
 *
 * Four bytes of shape, the file's name is chosen by the next; the rest are the floats. */
#include "trainers/common/manifest.h"
#include "trainers/common/save.h"
#include "fuzz.h"

/* Takes `wanted` off *text. */
static void expect(const char **text, const char *wanted) {
    if (strncmp(*text, wanted, strlen(wanted))) fail_msg("header has '%.20s', not '%s'", *text, wanted);
    *text += strlen(wanted);
}

static uint64_t expect_number(const char **text) {
    char *end;
    assert_true(**text >= '0' && **text <= '9');
    uint64_t value = strtoull(*text, &end, 10);
    *text = end;
    return value;
}

/* NumPy's format, version 1.0: magic, version, length of the header (little-endian), the header: a Python dictionary
 * padded by blanks and ended by a newline, so that the data begin at a multiple of 64; then the data. */
static void check_npy(const char *file, uint64_t n, uint32_t dim, const float *rows) {
    size_t size = 0;
    int endian = 1;
    char *bytes = fuzz_read(file, &size);
    assert_true(bytes && size >= 10);
    assert_true(!memcmp(bytes, "\x93NUMPY\x01\x00", 8));
    size_t header = (size_t)(unsigned char)bytes[8] + 256 * (size_t)(unsigned char)bytes[9];
    assert_true((10 + header) % 64 == 0 && 10 + header <= size && bytes[9 + header] == '\n');
    assert_true(size - 10 - header == n * dim * sizeof(float));
    const char *text = bytes + 10, *end = bytes + 9 + header;
    expect(&text, "{'descr': '");
    expect(&text, *(char *)&endian ? "<f4" : ">f4");
    expect(&text, "', 'fortran_order': False, 'shape': (");
    assert_true(expect_number(&text) == n);
    expect(&text, ", ");
    assert_true(expect_number(&text) == dim);
    expect(&text, "), }");
    for (; text < end; text++) assert_true(*text == ' ');
    assert_true(!memcmp(bytes + 10 + header, rows, n * dim * sizeof(float)));
    free(bytes);
}

static void check_holds(const char *file, const char *wanted) {
    size_t size = 0;
    char *bytes = fuzz_read(file, &size);
    assert_true((bytes != NULL) == (wanted != NULL));
    if (wanted) assert_true(!strcmp(bytes, wanted));
    free(bytes);
}

/* An older set; without one, the file would be somebody's. */
static void save_before(const char *folder, const char *const file) {
    save_set *set;
    program_error error;
    if (save_begin(&set, folder, "fuzz_npy", &file, 1, &error)) fail_msg("not saved: %s", error.text);
    fputs("what was there", save_open(set, file, &error));
    if (save_close(set, file, &error) || save_finish(set, &(save_origin){"none", 0}, 0, &error))
        fail_msg("not saved: %s", error.text);
    save_end(set);
}

const unsigned fuzz_inputs = 3000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"entities.npy", "relations.npy"};
    test_random r = fuzz_bytes(data, size);
    program_error error;
    const char *folder = fuzz_folder(), *file = names[test_below(&r, 2)];
    int before = test_chance(&r, 50), publish = test_chance(&r, 70);
    uint64_t n = test_below(&r, 300), most = 0;
    uint32_t dim = (uint32_t)test_below(&r, 70000);
    if (size < r.at) return 0;
    most = (size - r.at) / sizeof(float);
    if (n * dim > most) n = dim ? most / dim : n; /* as many rows as there are bytes for */
    float *rows = malloc(n * dim * sizeof(float) + 1);
    memcpy(rows, data + r.at, n * dim * sizeof(float));
    if (before) save_before(folder, file);
    save_set *set;
    if (save_begin(&set, folder, "fuzz_npy", &file, 1, &error) || save_rows(set, file, n, dim, rows, &error))
        fail_msg("not saved: %s", error.text);
    assert_int_equal(2 + 2 * before, fuzz_count_files()); /* with the lock */
    check_holds(file, before ? "what was there" : NULL);  /* not before all files are whole */
    int status = save_finish(set, &(save_origin){"none", 1}, !publish, &error);
    save_end(set);
    if (!publish) {
        assert_int_equal(status, -1);
        check_holds(file, before ? "what was there" : NULL);
    } else if (status || manifest_check(folder, &error))
        fail_msg("not published: %s", error.text);
    else
        check_npy(file, n, dim, rows);
    assert_int_equal(publish ? 2 : 2 * before, fuzz_count_files());
    free(rows);
    return 0;
}
