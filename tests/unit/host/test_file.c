/* test_file.c - files that frugal_open cannot use: it says why, and leaves what was there. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/scratch.h"
#include "tests/unit/host/refused.h"
#if defined(__linux__)
#include <sched.h>
#endif

/* >>names */

static void test_names(void **state) {
    (void)state;
    frugal_desc d = rig_desc();
    d.file = "/nowhere/at/all";
    assert_open_fails(FRUGAL_ERR_FILE, &d, "/nowhere/at/all", strerror(ENOENT));
    d.file = "";
    assert_open_fails(FRUGAL_ERR_FILE, &d, "name", "empty");
    d.file = "/tmp";
    assert_open_fails(FRUGAL_ERR_FILE, &d, "/tmp", "a folder");
    d.file = scratch_path("five");
    scratch_write(d.file, "12345", 5);
    assert_open_fails(FRUGAL_ERR_FILE, &d, d.file, "5 bytes");
    size_t n;
    unsigned char *bytes = scratch_read(d.file, &n);
    assert_true(n == 5 && !memcmp(bytes, "12345", 5)); /* somebody else's file is left alone */
    free(bytes);
    assert_int_equal(1, scratch_end());
}

static void test_name_too_long(void **state) {
    (void)state;
    char name[5000];
    frugal_desc d = rig_desc();
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    d.file = name;
    assert_open_fails(FRUGAL_ERR_FILE, &d, strerror(ENAMETOOLONG), "xxx");
    name[256] = 0; /* a folder's entry has 255 bytes at most */
    assert_open_fails(FRUGAL_ERR_FILE, &d, strerror(ENAMETOOLONG), "xxx");
    name[255] = 0; /* as long as may be: the other name that a new file has first is not longer */
    char whole[512];
    snprintf(whole, sizeof whole, "%s%.255s", scratch_path(""), name);
    d.file = whole;
    frugal_close(open_or_fail(&d));
    frugal_close(open_or_fail(&d));
    assert_int_equal(0, unlink(whole));
    assert_int_equal(0, scratch_end());
}

/* What is no regular file is refused, and stays what it is; looking at it does not wait for anybody. */
static void test_what_is_no_file(void **state) {
    (void)state;
    frugal_desc d = rig_desc();
    struct stat before, after;
    d.file = scratch_path("fifo");
    assert_int_equal(0, mkfifo(d.file, 0600));
    assert_open_fails(FRUGAL_ERR_FILE, &d, d.file, "a FIFO");
    assert_true(stat(d.file, &after) == 0 && S_ISFIFO(after.st_mode));
    d.file = scratch_path("socket");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", d.file);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(server >= 0 && bind(server, (struct sockaddr *)&address, sizeof address) == 0);
    assert_open_fails(FRUGAL_ERR_FILE, &d, d.file, "a socket");
    close(server);
    /* A device node of the test's own: a library that replaces it must not find /dev/null. */
    d.file = scratch_path("null");
    if (mknod(d.file, S_IFCHR | 0600, makedev(1, 3)))
        print_message("# SKIPPED a device: mknod: %s\n", strerror(errno));
    else {
        assert_int_equal(0, stat(d.file, &before));
        assert_open_fails(FRUGAL_ERR_FILE, &d, d.file, "a device");
        assert_true(stat(d.file, &after) == 0 && S_ISCHR(after.st_mode) && after.st_ino == before.st_ino);
    }
    scratch_end();
}

/* A link stays a link, and the table is what it leads to; also where nothing is there yet. */
static void test_links(void **state) {
    (void)state;
    frugal_desc d = rig_desc();
    struct stat status;
    char target[128];
    snprintf(target, sizeof target, "%s", scratch_path("target"));
    assert_int_equal(0, symlink("target", scratch_path("near")));
    assert_int_equal(0, symlink(scratch_path("near"), scratch_path("far")));
    for (int there = 0; there < 3; there++) { /* nothing, a table, an empty file */
        d.file = scratch_path("far");
        frugal *f = open_or_fail(&d);
        assert_true(stat(target, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 4096);
        assert_string_equal(target, frugal_settings(f)->file); /* of the instance's own, not the caller's */
        frugal_close(f);
        assert_true(lstat(scratch_path("far"), &status) == 0 && S_ISLNK(status.st_mode));
        assert_true(lstat(scratch_path("near"), &status) == 0 && S_ISLNK(status.st_mode));
        if (there == 1) scratch_write(target, "", 0);
    }
    assert_int_equal(0, unlink(scratch_path("near")));
    assert_int_equal(0, symlink("far", scratch_path("near")));
    assert_open_fails(FRUGAL_ERR_FILE, &d, strerror(ELOOP), "far");
    scratch_end();
}

/* Files of the user's beside the table, whatever their names, are not touched. */
static void test_neighbours(void **state) {
    (void)state;
    frugal_desc d = rig_desc();
    char neighbours[4][128];
    const char *const names[] = {"X.new", "X.part", "X.tmp", ".X"};
    for (int i = 0; i < 4; i++) {
        snprintf(neighbours[i], 128, "%s", scratch_path(names[i]));
        scratch_write(neighbours[i], names[i], strlen(names[i]));
    }
    d.file = scratch_path("X");
    for (int round = 0; round < 2; round++) {
        frugal_close(open_or_fail(&d));
        assert_int_equal(5, scratch_count());
        for (int i = 0; i < 4; i++) {
            size_t n;
            unsigned char *bytes = scratch_read(neighbours[i], &n);
            assert_true(n == strlen(names[i]) && !memcmp(bytes, names[i], n));
            free(bytes);
        }
    }
    scratch_end();
}

/* A file that is there and empty is as good as none; it keeps its mode. */
static void test_empty_file_is_filled(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    struct stat status;
    d.file = scratch_path("empty");
    scratch_write(d.file, "", 0);
    assert_int_equal(0, chmod(d.file, 0640));
    rig_open(&r, &d);
    assert_true(stat(d.file, &status) == 0 && status.st_size > 60 * 16 * 4 && (status.st_mode & 0777) == 0640);
    assert_int_equal(1, scratch_count());
    assert_true(r.ref.weights[0] != 0); /* initialized */
    rig_finish(&r, 3);
    scratch_end();
}

/* >>the system */

/* A limit of a file's size is a status, not SIGXFSZ, which ends a process. No signal is left pending. */
static void test_file_that_may_not_grow(void **state) {
    (void)state;
    struct rlimit before, small;
    frugal_desc d = rig_desc();
    sigset_t pending;
    d.file = scratch_path("grows");
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &before));
    small = before;
    small.rlim_cur = 5000; /* a header's page fits, the table does not */
    for (d.sparse = 0; d.sparse < 2; d.sparse++) {
        frugal *f;
        assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &small));
        frugal_status result = frugal_open(&d, &f);
        assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &before));
        assert_fails(FRUGAL_ERR_FILE, result, "ulimit -f", strerror(EFBIG));
        frugal_close(f);
        assert_int_equal(0, sigpending(&pending));
        assert_false(sigismember(&pending, SIGXFSZ));
        assert_int_equal(0, scratch_count());
    }
    scratch_end();
}

#if defined(__linux__)
/* In a child: opens on a file system of 1 MB that nobody else sees. 77: it is not available. */
static int open_on_full_disk(frugal_desc *d, const char *folder) {
    char name[160];
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", folder, "tmpfs", 0, "size=1m"))
        return 77;
    snprintf(name, sizeof name, "%stable", folder);
    d->file = name;
    frugal *f;
    frugal_status status = frugal_open(d, &f);
    int good = status == FRUGAL_ERR_FILE && strstr(frugal_message(), strerror(ENOSPC));
    frugal_close(f);
    DIR *stream = opendir(folder);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        good &= !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    if (!good) fprintf(stderr, "# status %d: %s\n", (int)status, frugal_message());
    return good ? 0 : 1;
}
#endif

/* A table that is larger than what is free is refused when it is opened, and nothing of it stays. */
static void test_full_disk(void **state) {
    (void)state;
#if defined(__linux__)
    frugal_table table = {.rows = 100000, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 8, .max_keys = 4};
    const char *folder = scratch_path("");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(open_on_full_disk(&d, folder));
    int ended = -1;
    assert_int_equal(child, waitpid(child, &ended, 0));
    scratch_end();
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 77) {
        print_message("# SKIPPED a full disk: a file system cannot be mounted here\n");
        skip();
    }
    assert_true(WIFEXITED(ended)); /* no SIGBUS */
    assert_int_equal(0, WEXITSTATUS(ended));
#else
    print_message("# SKIPPED a full disk: mounts are Linux's here\n");
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_name_too_long),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_empty_file_is_filled),
        cmocka_unit_test(test_file_that_may_not_grow),
        cmocka_unit_test(test_full_disk),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
