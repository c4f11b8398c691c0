/* test_kge_state.c - what a kge training goes on from, as a file: read as it was written, and refused when it is
 * truncated, longer, or another kind of file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "trainers/kge/state.h"
#include "folder.h"

static char path[80];
static program_error error;

static int make_folder(void **state) {
    (void)state;
    if (folder_make("test_kge_state")) return -1;
    snprintf(path, sizeof path, "%s/state", folder);
    return 0;
}

static const kge_counted counted[3] = {{.5, 7}, {-0.0, 0}, {1e300, UINT64_MAX}};
static const kge_state wanted = {
    .step = 1234567890123, .hits = 5, .misses = 6, .seconds = .1, .stall = .2, .devices = 3, .counted = counted};

static void test_round_trip(void **state) {
    (void)state;
    kge_state read;
    assert_int_equal(kge_state_write(&wanted, path, &error), 0);
    assert_int_equal(kge_state_read(&read, path, &error), 0);
    assert_memory_equal(&read, &wanted, offsetof(kge_state, counted));
    assert_memory_equal(read.counted, counted, sizeof counted);
    kge_state_free(&read);
    assert_null(read.counted);
}

static void refuse(const char *message) {
    kge_state read;
    assert_int_equal(kge_state_read(&read, path, &error), -1);
    assert_non_null(strstr(error.text, message));
    kge_state_free(&read);
}

static void put(const char *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fwrite(bytes, 1, n, file) == n);
    assert_int_equal(fclose(file), 0);
}

static void test_refused(void **state) {
    (void)state;
    char bytes[200];
    refuse("No such file");
    assert_int_equal(kge_state_write(&wanted, path, &error), 0);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(n == 24 + 7 * 8 + sizeof counted);
    for (size_t cut = 0; cut < n; cut++) {
        put(bytes, cut);
        refuse("is no state of a kge training, or damaged");
    }
    bytes[n] = 0;
    put(bytes, n + 1);
    refuse("is no state of a kge training, or damaged");
    for (size_t at = 0; at < 24; at++) { /* other bytes are the manifest's to check */
        bytes[at] ^= 1;
        put(bytes, n);
        refuse("is no state of a kge training, or damaged");
        bytes[at] ^= 1;
    }
    for (int bit = 0; bit < 64; bit++) { /* of the number of devices */
        bytes[72 + bit / 8] = (char)(bytes[72 + bit / 8] ^ 1 << bit % 8);
        put(bytes, n);
        refuse("is no state of a kge training, or damaged");
        bytes[72 + bit / 8] = (char)(bytes[72 + bit / 8] ^ 1 << bit % 8);
    }
}

static void test_not_written(void **state) {
    (void)state;
    assert_int_equal(kge_state_write(&wanted, "/tmp/test_kge_state.none/state", &error), -1);
    assert_non_null(strstr(error.text, "test_kge_state.none"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refused, make_folder, remove_folder),
        cmocka_unit_test(test_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
