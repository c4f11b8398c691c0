/* test_save_failing.c - saves and restores whose allocations and calls of the system fail, each in turn: a status says
 * so, the file that was there is whole, nothing else is left behind, and the rows are still marked for the next one.
 *
 * The library is compiled into this program, with calls of the system that fail. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include "tests/unit/host/failing_files.h"

static int threads_left = 1000; /* that can be started */
static inline int failing_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                                         void *argument) {
    return threads_left-- > 0 ? pthread_create(thread, attributes, start, argument) : EAGAIN;
}
#define pthread_create failing_pthread_create

#include "frugal_flush.c"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/saved.h"

/* A base, and an increment that is to come; three threads, several blocks. */
static frugal_table failing_table = {.rows = 40, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
static frugal_desc failing_desc(void) {
    frugal_desc d = rig_desc();
    d.tables = &failing_table, d.n_tables = 1, d.dim = 40000, d.devices = 1, d.increments = 1, d.init_threads = 3;
    d.max_keys = RIG_KEYS;
    return d;
}

/* A rig that counts touches: its saves have blocks of counts. */
static void open_counting(rig *r, const frugal_desc *desc) {
    uint64_t key = 39, count = 1000;
    rig_open(r, desc);
    assert_int_equal(FRUGAL_OK, frugal_set_counts(r->f, &(frugal_keys){.table = 0, .keys = &key, .n = 1}, &count));
}

static void check_restored(const frugal_desc *desc, rig *a, const char *const *saved, uint32_t n) {
    rig b;
    uint64_t keys[40], counts[2][40];
    rig_restore(&b, desc, saved, n);
    rig_same(a, &b);
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            FRUGAL_OK, frugal_get_counts(i ? b.f : a->f, &(frugal_keys){.table = 0, .keys = keys, .n = 40}, counts[i]));
    assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
    rig_free(&b);
}

/* >>saving */

/* After each failure the old file is there; in the end the save succeeds, and has all rows. */
static void test_saving(void **state) {
    int increment = (int)(intptr_t)*state, failed = 0, last = 0;
    static const int errors[] = {ENOSPC, EIO, EDQUOT, EFBIG, EACCES};
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *paths[2] = {saved_path("base"), saved_path("increment")}, *path = paths[increment];
    frugal_saved before, after;
    open_counting(&a, &d);
    rig_train(&a, 1);
    rig_save(&a, paths[0], 0);
    if (increment) rig_save(&a, paths[1], 0); /* another base, which may be replaced */
    if (increment) assert_int_equal(FRUGAL_OK, save_one(a.f, paths[0], 0, 1));
    rig_train(&a, 2);
    rig_drain(&a);
    assert_int_equal(FRUGAL_OK, frugal_read_saved(path, 0, &before));
    for (int at = 1; !last; at++) {
        let_files_fail(0, at, errors[at % 5], 0);
        frugal_status status = save_one(a.f, path, increment, 1);
        last = failing_files.failures == 0;
        let_files_fail(0, 0, 0, 0);
        assert_int_equal(increment ? 2 : 1, saved_count());
        assert_int_equal(FRUGAL_OK, frugal_read_saved(path, 0, &after));
        if (last) break;
        failed++;
        if (status != FRUGAL_OK && strstr(frugal_message(), "has its name already")) {
            assert_int_equal(increment, after.increment); /* the folder could not be synced: it is the new one */
            continue;
        }
        if (status == FRUGAL_OK) fail_msg("call %d failed, and the save did not", at);
        assert_int_equal(FRUGAL_ERR_FILE, status);
        assert_true(after.id == before.id);
    }
    assert_in_range(failed, 8, 40);
    check_restored(&d, &a, paths, increment ? 2 : 1);
    rig_finish(&a, 1);
}

/* A rig that was saved to the path after a step, and has trained `steps` more. */
static void open_beyond_save(rig *r, const frugal_desc *desc, const char *path, int steps) {
    open_counting(r, desc);
    rig_train(r, 1);
    rig_save(r, path, 0);
    rig_train(r, steps);
    rig_drain(r);
}

/* A failed increment has taken no row away from the next one. */
static void test_still_marked(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *paths[2] = {saved_path("base"), saved_path("increment")};
    open_beyond_save(&a, &d, paths[0], 2);
    for (int at = 1;; at++) {
        let_files_fail(0, at, EIO, 0);
        frugal_status status = save_one(a.f, paths[1], 1, 0);
        int failures = failing_files.failures;
        let_files_fail(0, 0, 0, 0);
        if (failures == 0) break;
        assert_int_equal(1, saved_count()); /* also where only the folder could not be synced */
        if (status == FRUGAL_OK) fail_msg("call %d failed, and the save did not", at);
    }
    check_restored(&d, &a, paths, 2);
    rig_finish(&a, 1);
}

/* A base that has taken the place of the last one, but whose name is perhaps not on the disk: after a power loss one or
 * the other is there, so that no increment is right, and only a base is taken. */
static void test_base_not_synced(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *paths[2] = {saved_path("base"), saved_path("increment")};
    frugal_saved before, after;
    open_beyond_save(&a, &d, paths[0], 1);
    assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[0], 0, &before));
    let_files_fail(CALL_SYNC, 2, EIO, 0);
    assert_fails(FRUGAL_ERR_FILE, save_one(a.f, paths[0], 0, 1), "has its name already", paths[0]);
    let_files_fail(0, 0, 0, 0);
    assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[0], 0, &after));
    assert_true(before.id != after.id);
    check_restored(&d, &a, paths, 1);
    assert_fails(FRUGAL_ERR_ARGUMENT, save_one(a.f, paths[1], 1, 0), "may not be on the disk", "save a base first");
    assert_int_equal(FRUGAL_OK, save_one(a.f, paths[0], 0, 1));
    rig_train(&a, 1);
    rig_save(&a, paths[1], 1);
    check_restored(&d, &a, paths, 2);
    rig_finish(&a, 1);
}

/* A base of a new name is removed again, even if an existing file might be replaced: nothing has changed. */
static void test_new_base_not_synced(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *paths[2] = {saved_path("base"), saved_path("increment")}, *other = saved_path("other");
    open_beyond_save(&a, &d, paths[0], 1);
    for (int replace = 0; replace < 2; replace++) {
        let_files_fail(CALL_SYNC, 2, EIO, 0);
        assert_fails(FRUGAL_ERR_FILE, save_one(a.f, other, 0, replace), "removed again", other);
        let_files_fail(0, 0, 0, 0);
        assert_int_equal(1, saved_count());
    }
    rig_save(&a, paths[1], 1);
    check_restored(&d, &a, paths, 2);
    rig_finish(&a, 1);
}

/* An increment of which the same is true: the next one continues what it would have, whichever is there. */
static void test_increment_not_synced(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *paths[3] = {saved_path("base"), saved_path("next"), saved_path("increment")};
    rig_open(&a, &d);
    rig_save(&a, paths[2], 0); /* another base, which may be replaced */
    rig_train(&a, 1);
    rig_save(&a, paths[0], 0);
    rig_train(&a, 1);
    rig_drain(&a);
    let_files_fail(CALL_SYNC, 2, EIO, 0);
    assert_fails(FRUGAL_ERR_FILE, save_one(a.f, paths[2], 1, 1), "has its name already", paths[2]);
    let_files_fail(0, 0, 0, 0);
    check_restored(&d, &a, (const char *const[]){paths[0], paths[2]}, 2);
    rig_train(&a, 1);
    rig_save(&a, paths[1], 1); /* under another name */
    check_restored(&d, &a, paths, 2);
    rig_train(&a, 1);
    rig_drain(&a);
    assert_int_equal(FRUGAL_OK, save_one(a.f, paths[2], 1, 1)); /* and under the same */
    check_restored(&d, &a, paths, 3);
    rig_finish(&a, 1);
}

static void test_saving_without_memory(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *path = saved_path("base");
    open_counting(&a, &d);
    rig_train(&a, 1);
    rig_drain(&a);
    for (uint64_t at = 1; at < 100; at++) {
        uint64_t blocks = a.counter.blocks_out;
        a.counter.fail_at = a.counter.calls + at, a.counter.failures = 0;
        frugal_status status = save_one(a.f, path, 0, 0);
        assert_int_equal(blocks, a.counter.blocks_out);
        if (a.counter.failures == 0) {
            assert_int_equal(FRUGAL_OK, status);
            assert_int_equal(4, at);
            break;
        }
        assert_fails(FRUGAL_ERR_MEMORY, status, "bytes for", "save");
        assert_int_equal(0, saved_count());
    }
    a.counter.fail_at = 0;
    check_restored(&d, &a, &path, 1);
    rig_finish(&a, 1);
}

/* Without threads this one does all; a write that fails on one of several ends them all. */
static void test_threads(void **state) {
    (void)state;
    rig a = {0}, b;
    frugal_desc d = failing_desc();
    const char *path = saved_path("base");
    rig_open(&a, &d);
    rig_train(&a, 2);
    rig_drain(&a);
    for (int left = 0; left < 4; left++) {
        threads_left = left;
        assert_int_equal(FRUGAL_OK, save_one(a.f, path, 0, 1));
        threads_left = left;
        rig_restore(&b, &d, &path, 1);
        rig_same(&a, &b);
        rig_free(&b);
    }
    threads_left = 1000;
    let_files_fail(CALL_WRITE, 4, ENOSPC, 1);
    assert_fails(FRUGAL_ERR_FILE, save_one(a.f, path, 0, 1), "No space left", "free space");
    let_files_fail(0, 0, 0, 0);
    check_restored(&d, &a, &path, 1);
    rig_finish(&a, 1);
}

/* Writes and reads that move a few bytes at a time, and are interrupted. */
static void test_short(void **state) {
    (void)state;
    rig a = {0}, b;
    frugal_desc d = failing_desc();
    const char *path = saved_path("base");
    d.dim = 5;
    rig_open(&a, &d);
    rig_train(&a, 2);
    rig_drain(&a);
    for (int at = 1; at < 60; at += 7) {
        let_files_fail(CALL_WRITE, at, EINTR, 0);
        failing_files.shorter = at;
        assert_int_equal(FRUGAL_OK, save_one(a.f, path, 0, 1));
        let_files_fail(CALL_READ, at, EINTR, 0);
        failing_files.shorter = at;
        rig_restore(&b, &d, &path, 1);
        rig_same(&a, &b);
        rig_free(&b);
    }
    let_files_fail(0, 0, 0, 0);
    rig_finish(&a, 1);
}

/* >>restoring */

/* Each call fails in turn: refused, and the caller's matrix is as it was unless rows were being read into it. */
static void test_restoring(void **state) {
    int in_matrix = (int)(intptr_t)*state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *paths[2] = {saved_path("base"), saved_path("increment")};
    size_t floats = (size_t)failing_table.rows * d.dim;
    float *weights = malloc(floats * 4);
    open_counting(&a, &d);
    for (int i = 0; i < 2; i++) rig_train(&a, 2), rig_save(&a, paths[i], i > 0);
    for (int at = 1;; at++) {
        test_counter counter = {0};
        frugal_desc e = failing_desc();
        frugal *f;
        e.allocate = test_allocate, e.release = test_release, e.user = &counter;
        e.saved = paths, e.n_saved = 2;
        if (in_matrix) e.weights = weights;
        memset(weights, 0x55, floats * 4);
        let_files_fail(0, at, EIO, 0);
        frugal_status status = frugal_open(&e, &f);
        int failures = failing_files.failures;
        let_files_fail(0, 0, 0, 0);
        if (failures == 0) assert_int_equal(FRUGAL_OK, status);
        frugal_close(f);
        assert_int_equal(0, (int)counter.blocks_out);
        if (failures == 0) {
            assert_in_range(at, 20, 200);
            if (in_matrix) assert_memory_equal(a.ref.weights, weights, floats * 4);
            break;
        }
        if (status != FRUGAL_ERR_FILE) fail_msg("call %d failed: status %d, %s", at, (int)status, frugal_message());
        assert_non_null(strstr(frugal_message(), "Input/output error"));
        assert_non_null(strstr(frugal_message(), saved_folder));
    }
    free(weights);
    rig_finish(&a, 1);
}

static void test_restoring_without_memory(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *paths[2] = {saved_path("base"), saved_path("increment")};
    d.dim = 5;
    open_counting(&a, &d);
    for (int i = 0; i < 2; i++) rig_train(&a, 2), rig_save(&a, paths[i], i > 0);
    for (uint64_t at = 1;; at++) {
        test_counter counter = {.fail_at = at};
        frugal_desc e = d;
        frugal *f;
        e.allocate = test_allocate, e.release = test_release, e.user = &counter;
        e.saved = paths, e.n_saved = 2;
        frugal_status status = frugal_open(&e, &f);
        frugal_close(f);
        assert_int_equal(0, (int)counter.blocks_out);
        if (counter.failures == 0) {
            assert_int_equal(FRUGAL_OK, status);
            break;
        }
        assert_fails(FRUGAL_ERR_MEMORY, status, "bytes for", "");
    }
    rig_finish(&a, 1);
}

/* A file that was changed between the two looks at it: what was read is not used, and the status says so. */
static void test_changed_meanwhile(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *path = saved_path("base");
    rig_open(&a, &d);
    rig_train(&a, 2);
    rig_save(&a, path, 0);
    for (int cut = 0; cut < 2; cut++) {
        saved_reader r;
        frugal_status status = open_saved(&r, path, 0, &(frugal_desc){0}, NULL, NULL);
        assert_int_equal(FRUGAL_OK, status);
        assert_int_equal(0, truncate(path, cut ? 200 : (off_t)r.bytes - 1));
        rows_block *block = malloc((size_t)saved_most_bytes(5000000));
        uint64_t at = 0;
        while (status == FRUGAL_OK && !r.ended) status = walk_rows(&r, block, &at, SAVED_COUNTS);
        assert_fails(FRUGAL_ERR_FILE, status, "ends too early", path);
        close_saved(&r);
        free(block);
        assert_int_equal(0, remove(path));
        assert_int_equal(FRUGAL_OK, save_one(a.f, path, 0, 0));
    }
    rig_finish(&a, 1);
}

/* >>space */

static void test_size_limit(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = failing_desc();
    const char *path = saved_path("base");
    struct rlimit limit, small;
    rig_open(&a, &d);
    rig_train(&a, 1);
    rig_drain(&a);
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &limit));
    for (rlim_t bytes = 0; bytes < 14 << 20; bytes += bytes < 300 ? 60 : 3 << 20) {
        small = limit, small.rlim_cur = bytes;
        assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &small));
        frugal_status status = save_one(a.f, path, 0, 0);
        assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &limit));
        if (bytes < 12 << 20) {
            assert_fails(FRUGAL_ERR_FILE, status, "File too large", "ulimit -f");
            assert_int_equal(0, saved_count());
        }
    }
    remove(path);
    rig_finish(&a, 1);
}

/* A file system of 4 MiB, which is full. In a process of its own, because it has a mount of its own. */
static int save_on_full_disk(const char *place) {
    rig a = {0};
    frugal_desc d = failing_desc();
    frugal_save_desc desc = {.path = place};
    int answer = 0;
    rig_open(&a, &d);
    rig_drain(&a);
    frugal_status status = frugal_save(&a.f, 1, &desc);
    if (status != FRUGAL_ERR_FILE || !strstr(frugal_message(), "No space left") || !strstr(frugal_message(), place))
        answer = 1, print_message("# %s\n", frugal_message());
    if (access(place, F_OK) == 0) answer = 2;
    rig_free(&a);
    return answer;
}

/* Mounts of its own: as root, or as the only user of a namespace. */
static int mount_small(const char *place) {
    char map[32];
    snprintf(map, sizeof map, "0 %u 1", (unsigned)getuid());
    if (unshare(CLONE_NEWNS)) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return -1;
        int file = open("/proc/self/uid_map", O_WRONLY);
        if (write(file, map, strlen(map)) < 0) return -1;
        close(file);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return -1;
    return mount("tmpfs", place, "tmpfs", 0, "size=4m");
}

static void test_full_disk(void **state) {
    (void)state;
    int status = 0;
    enum { NO_MOUNT = 77 };
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char place[128];
        if (mount_small(saved_folder)) _exit(NO_MOUNT);
        snprintf(place, sizeof place, "%s/save", saved_folder);
        int answer = save_on_full_disk(place);
        if (answer == 0 && saved_count() != 0) answer = 3;
        _exit(answer);
    }
    assert_true(child > 0);
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_MOUNT) {
        print_message("# SKIPPED a full disk: a file system of its own cannot be mounted here\n");
        skip();
    }
    assert_int_equal(0, WEXITSTATUS(status));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("a base, each call fails", test_saving, 0),
        SAVED_CASE("an increment, each call fails", test_saving, 1),
        SAVED_TEST(test_still_marked),
        SAVED_TEST(test_base_not_synced),
        SAVED_TEST(test_new_base_not_synced),
        SAVED_TEST(test_increment_not_synced),
        SAVED_TEST(test_saving_without_memory),
        SAVED_TEST(test_threads),
        SAVED_TEST(test_short),
        SAVED_CASE("restoring into memory, each call fails", test_restoring, 0),
        SAVED_CASE("restoring into a matrix, each call fails", test_restoring, 1),
        SAVED_TEST(test_restoring_without_memory),
        SAVED_TEST(test_changed_meanwhile),
        SAVED_TEST(test_size_limit),
        SAVED_TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
