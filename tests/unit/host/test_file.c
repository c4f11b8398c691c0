/* test_file.c - files that open cannot have: it says why, and leaves what was there. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/host/failing.h"
#include "tests/unit/host/refused.h"

static void test_files(void **state) {
    (void)state;
    char name[64];
    frugal_desc d = rig_desc();
    d.file = "/nowhere/at/all";
    assert_open_fails(FRUGAL_ERR_FILE, &d, "/nowhere/at/all", strerror(ENOENT));
    d.file = "/tmp";
    assert_open_fails(FRUGAL_ERR_FILE, &d, "/tmp", strerror(EISDIR));
    snprintf(name, sizeof(name), "/tmp/frugal_status_%d", (int)getpid());
    d.file = name;
    int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(file >= 0 && write(file, "12345", 5) == 5 && close(file) == 0);
    assert_open_fails(FRUGAL_ERR_FILE, &d, name, "5 bytes");
    struct stat status;
    assert_true(stat(name, &status) == 0 && status.st_size == 5); /* somebody else's file is left alone */
    unlink(name);
}

/* A file of `bytes` zeros; its name. */
static const char *file_of(off_t bytes) {
    static char name[64];
    snprintf(name, sizeof(name), "/tmp/frugal_status_of_%d", (int)getpid());
    int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(file >= 0 && ftruncate(file, bytes) == 0 && close(file) == 0);
    return name;
}

static int is_there(const char *name, const char *behind) {
    char whole[128];
    snprintf(whole, sizeof(whole), "%s%s", name, behind);
    return access(whole, F_OK) == 0;
}

static void test_file_name_too_long(void **state) {
    (void)state;
    char name[4096 - 4 + 1]; /* ".new" and the final zero must fit behind it */
    frugal_desc d = rig_desc();
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    d.file = name;
    assert_open_fails(FRUGAL_ERR_FILE, &d, "has 4092 bytes", "the limit is 4091");
    name[sizeof(name) - 2] = 0;
    assert_open_fails(FRUGAL_ERR_FILE, &d, "open", strerror(ENAMETOOLONG)); /* that is the system's limit then */
}

/* The system's calls that open makes of a file fail: open says which, and leaves what was there. */
static void test_files_the_system_refuses(void **state) {
    (void)state;
    frugal_desc d = rig_desc();
    const off_t whole = 60 * 16 * 4; /* 60 rows of 5 floats and 5 of state, each padded to 8 */
    struct stat status;
    d.file = file_of(whole);
    atomic_store(&system_fails, FILE_SIZE);
    assert_open_fails(FRUGAL_ERR_FILE, &d, "read the size", strerror(EIO));
    atomic_store(&system_fails, FILE_MAPPING);
    assert_open_fails(FRUGAL_ERR_FILE, &d, "map it", strerror(EACCES));
    atomic_store(&system_fails, 0);
    assert_true(stat(d.file, &status) == 0 && status.st_size == whole);
    unlink(d.file);
    atomic_store(&system_fails, FILE_MAPPING);
    assert_open_fails(FRUGAL_ERR_FILE, &d, "map it", strerror(EACCES));
    assert_false(is_there(d.file, "") || is_there(d.file, ".new"));
    atomic_store(&system_fails, RENAMING);
    assert_open_fails(FRUGAL_ERR_FILE, &d, "give it its name", strerror(EACCES));
    assert_false(is_there(d.file, "") || is_there(d.file, ".new"));
    atomic_store(&system_fails, 0);
}

/* A file that is there and empty is as good as none. */
static void test_empty_file_is_filled(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    struct stat status;
    d.file = file_of(0);
    rig_open(&r, &d);
    assert_true(stat(d.file, &status) == 0 && status.st_size == 60 * 16 * 4);
    assert_false(is_there(d.file, ".new"));
    assert_true(r.ref.weights[0] != 0); /* initialized */
    rig_finish(&r, 3);
    unlink(d.file);
}

static void test_file_that_cannot_grow(void **state) {
    (void)state;
    char name[64];
    struct rlimit before, small;
    frugal_desc d = rig_desc();
    snprintf(name, sizeof(name), "/tmp/frugal_status_grow_%d", (int)getpid());
    d.file = name;
    unlink(name);
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &before));
    small = before;
    small.rlim_cur = 1000; /* the table needs 60 rows of 16 floats */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &small));
    frugal *f;
    frugal_status result = frugal_open(&d, &f);
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &before));
    signal(SIGXFSZ, handler);
    assert_fails(FRUGAL_ERR_FILE, result, name, strerror(EFBIG));
    frugal_close(f);
    unlink(name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_file_name_too_long),
        cmocka_unit_test(test_files_the_system_refuses),
        cmocka_unit_test(test_empty_file_is_filled),
        cmocka_unit_test(test_file_that_cannot_grow),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
