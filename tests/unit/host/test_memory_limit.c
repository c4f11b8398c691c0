/* test_memory_limit.c - a table that cannot fit into memory is refused by frugal_open, with both numbers, and before
 * anything is made; one that does not fit now is told.
 *
 * The library is compiled into this program, so that files of /proc and /sys can be samples. Do not link
 * frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define FRUGAL_P2F_IMPLEMENTATION
#define FRUGAL_ATOMICS
#include "frugal_flush.c"
#include "tests/expect.h"
#include "tests/sanitizers.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* >>files - of systems, below a folder of the test's own */

static char samples[64];

/* Writes a file of the sample system, and its folders. An entry that ends in '/' is only a folder. */
static void write_sample(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", samples, name);
    for (char *at = path + strlen(samples) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0700); /* or it is there */
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void remove_samples(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", samples);
    assert_int_equal(0, system(command));
}

static void begin_samples(const char *meminfo, const char *groups, const char *mounts) {
    snprintf(samples, sizeof samples, "/tmp/frugal_memory_XXXXXX");
    assert_non_null(mkdtemp(samples));
    if (meminfo) write_sample("/proc/meminfo", meminfo);
    if (groups) write_sample("/proc/self/cgroup", groups);
    if (mounts) write_sample("/proc/self/mountinfo", mounts);
}

static void check_room_of(uint64_t limit, uint64_t available, const char *of, int line) {
    memory_room room;
    find_room(samples, &room);
    if (room.limit != limit || room.available != available || strcmp(room.of, of) != 0)
        fail_msg("line %d: the limit is %llu (%s), and %llu are available; not %llu (%s), and %llu", line,
                 (unsigned long long)room.limit, room.of, (unsigned long long)room.available, (unsigned long long)limit,
                 of, (unsigned long long)available);
}
#define assert_room(limit, available, of) check_room_of(limit, available, of, __LINE__)

static const char *const meminfo = "MemTotal:        8388608 kB\nMemFree:          100000 kB\n"
                                   "MemAvailable:    4194304 kB\nBuffers:               0 kB\n"
                                   "SwapCached:            0 kB\nSwapTotal:       2097152 kB\n"
                                   "SwapFree:        1048576 kB\n"; /* 8 and 2 GiB; 4 and 1 are there */
static const char *const mount_2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
static const char *const mount_1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
                                   "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,memory_of_another\n"
                                   "35 31 0:32 / /sys/fs/cgroup/memory rw shared:7 - cgroup cgroup rw,memory\n"
                                   "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

static void test_system_alone(void **state) {
    (void)state;
    begin_samples(NULL, NULL, NULL); /* a system without these files: nothing is known */
    assert_room(UNLIMITED, UNLIMITED, "RAM and swap");
    remove_samples();
    begin_samples(meminfo, NULL, NULL);
    assert_room(10 * GIB, 5 * GIB, "RAM and swap");
    remove_samples();
    begin_samples("MemTotal: 1024 kB\n", "0::/\n", mount_2); /* no swap, an old kernel; a root has no limit */
    assert_room(MIB, MIB, "RAM and swap");
    remove_samples();
}

static void test_groups_of_version_2(void **state) {
    (void)state;
    begin_samples(meminfo, "0::/a.slice/b\n", mount_2);
    write_sample("/sys/fs/cgroup/a.slice/b/memory.max", "max\n");
    write_sample("/sys/fs/cgroup/a.slice/b/memory.current", "5368709120\n");
    assert_room(10 * GIB, 5 * GIB, "RAM and swap");
    write_sample("/sys/fs/cgroup/a.slice/memory.max", "1073741824\n"); /* above: counts, too */
    write_sample("/sys/fs/cgroup/a.slice/memory.current", "805306368\n");
    write_sample("/sys/fs/cgroup/a.slice/memory.stat",
                 "anon 1\nfile 9\ninactive_file 67108864\nactive_file 67108864\n");
    assert_room(3 * GIB, 384 * MIB + GIB, "of the group /sys/fs/cgroup/a.slice"); /* swap without a limit */
    write_sample("/sys/fs/cgroup/a.slice/memory.swap.max", "268435456\n");
    write_sample("/sys/fs/cgroup/a.slice/memory.swap.current", "134217728\n");
    assert_room(GIB + 256 * MIB, 384 * MIB + 128 * MIB, "of the group /sys/fs/cgroup/a.slice");
    write_sample("/sys/fs/cgroup/a.slice/b/memory.max", "209715200\n"); /* less than above */
    write_sample("/sys/fs/cgroup/a.slice/b/memory.swap.max", "0\n");
    write_sample("/sys/fs/cgroup/a.slice/b/memory.current", "104857600\n");
    assert_room(200 * MIB, 100 * MIB, "of the group /sys/fs/cgroup/a.slice/b");
    write_sample("/sys/fs/cgroup/a.slice/b/memory.current", "304857600\n"); /* above its limit, for now */
    assert_room(200 * MIB, 0, "of the group /sys/fs/cgroup/a.slice/b");
    remove_samples();
}

static void test_groups_of_version_1(void **state) {
    (void)state;
    begin_samples(meminfo, "9:name=systemd:/x\n4:cpu,memory:/box/one\n0::/\n", mount_1);
    write_sample("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_sample("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "9223372036854771712\n");
    assert_room(10 * GIB, 5 * GIB, "RAM and swap");
    write_sample("/sys/fs/cgroup/memory/box/one/memory.limit_in_bytes", "536870912\n");
    write_sample("/sys/fs/cgroup/memory/box/one/memory.usage_in_bytes", "402653184\n");
    write_sample("/sys/fs/cgroup/memory/box/one/memory.stat",
                 "inactive_file 5\ntotal_inactive_file 134217728\ntotal_active_file 0\n");
    assert_room(2 * GIB + 512 * MIB, 256 * MIB + GIB, "of the group /sys/fs/cgroup/memory/box/one");
    write_sample("/sys/fs/cgroup/memory/box/one/memory.memsw.limit_in_bytes", "536870912\n"); /* no swap */
    write_sample("/sys/fs/cgroup/memory/box/one/memory.memsw.usage_in_bytes", "402653184\n");
    assert_room(512 * MIB, 256 * MIB, "of the group /sys/fs/cgroup/memory/box/one");
    remove_samples();
}

/* In a container the mount shows the container's group, by a name outside; or the name is not to be seen at all. */
static void test_groups_in_a_container(void **state) {
    static const char *const lists[][2] = {
        {"0::/docker/1234/inner\n", "29 23 0:26 /docker/1234 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"0::/inner\n", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"0::/docker/12345\n", "29 23 0:26 /docker/1234 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"0::/../other\n", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"}};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        begin_samples(meminfo, lists[i][0], lists[i][1]);
        write_sample("/sys/fs/cgroup/memory.max", "1073741824\n");
        write_sample("/sys/fs/cgroup/memory.swap.max", "0\n");
        write_sample("/sys/fs/cgroup/memory.current", "0\n");
        assert_room(GIB, GIB, "of the group /sys/fs/cgroup");
        remove_samples();
    }
    assert_true(is_listed("memory", "memory") && is_listed("memory", "rw,memory,cpu") &&
                is_listed("memory", "a,memory"));
    assert_false(is_listed("memory", "amemory,memory2") || is_listed("memory", "") || is_listed("memory", "mem,ory"));
}

/* >>instances */

typedef struct told {
    int n;
    char text[512];
} told;

static void note(const char *text, void *user) {
    told *t = user;
    t->n++;
    snprintf(t->text, sizeof t->text, "%s", text);
}

static void test_what_is_told(void **state) {
    (void)state;
    told t = {0};
    frugal f = {.opened = 1};
    open_notices(&f, note, &t);
    begin_samples(meminfo, NULL, NULL);
    assert_int_equal(FRUGAL_OK, check_memory(&f, samples, 5 * GIB, "the instance", "so"));
    assert_int_equal(FRUGAL_OK, check_memory(&f, "/nowhere", UINT64_MAX - 1, "the instance", "so"));
    assert_int_equal(0, t.n);
    assert_int_equal(FRUGAL_OK, check_memory(&f, samples, 5 * GIB + 1, "the instance", "so"));
    assert_int_equal(1, t.n);
    assert_non_null(
        strstr(t.text, "the instance takes 5368709121 bytes of memory, and 5368709120 bytes are available"));
    assert_non_null(strstr(t.text, "of 10737418240 (RAM and swap)"));
    assert_int_equal(FRUGAL_OK, check_memory(&f, samples, 10 * GIB, "the instance", "so"));
    assert_int_equal(2, t.n);
    expect_failure(FRUGAL_ERR_MEMORY, check_memory(&f, samples, 10 * GIB + 1, "the instance", "do this"),
                   "takes 10737418241 bytes of memory, and the limit is 10737418240 bytes (RAM and swap)", ": do this",
                   "check_memory", __LINE__);
    assert_int_equal(2, t.n);
    remove_samples();
    pthread_mutex_destroy(&f.notices.lock);
}

/* 16 TiB of rows of 4 KiB, without state. */
static frugal_table too_many = {.rows = FRUGAL_MAX_ROWS};
static frugal_desc too_large(void) {
    return (frugal_desc){
        .tables = &too_many, .n_tables = 1, .dim = 1024, .max_keys = 4, .workers = 1, .alone = FRUGAL_ALONE_STAGED};
}

static void test_too_large(void **state) {
    (void)state;
    memory_room room;
    char limit[64], path[64], name[64];
    frugal *f;
    find_room("", &room);
    if (room.limit > (UINT64_C(15) << 40)) {
        print_message("# SKIPPED a table of 16 TiB: there may be as much memory\n");
        skip();
    }
    snprintf(limit, sizeof limit, "and the limit is %llu bytes (", (unsigned long long)room.limit);
    snprintf(path, sizeof path, "/tmp/frugal_memory_%d", (int)getpid());
    snprintf(name, sizeof name, "test_memory_limit %d", (int)getpid());
    frugal_desc d = too_large();
    d.name = name;
    expect_failure(FRUGAL_ERR_MEMORY, frugal_open(&d, &f), "the instance takes 176308", limit, "open", __LINE__);
    assert_non_null(strstr(frugal_message(), "frugal_desc.sparse"));
    frugal_table small = {.rows = 10};
    frugal *other;
    d.tables = &small;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &other)); /* the name is free, although f is not closed yet */
    frugal_close(other);
    frugal_close(f);
    d = too_large(), d.alone = FRUGAL_ALONE_DEFAULT; /* one device in place: no words */
    expect_failure(FRUGAL_ERR_MEMORY, frugal_open(&d, &f), "the instance takes 175964", limit, "open", __LINE__);
    frugal_close(f);
    d = too_large(), d.file = path; /* 4 bytes less than 2^35 of words stay in memory: the file does not count */
    if (room.limit < 40 * GIB) {
        expect_failure(FRUGAL_ERR_MEMORY, frugal_open(&d, &f), "the instance takes 386", limit, "open", __LINE__);
        frugal_close(f);
        assert_int_equal(-1, access(path, F_OK));
    }
}

/* Space is not asked for. */
static void test_sparse(void **state) {
    (void)state;
#if defined(FRUGAL_SANITIZED)
    print_message("# SKIPPED a sparse table of 16 TiB: the sanitizers keep a shadow of all memory\n");
    skip();
#else
    frugal_desc d = too_large();
    frugal *f;
    d.sparse = 1;
    frugal_status status = frugal_open(&d, &f);
    if (status == FRUGAL_ERR_MEMORY && strstr(frugal_message(), "are not available")) {
        frugal_close(f);
        print_message("# SKIPPED a sparse table of 16 TiB: the system does not give memory that is not touched (%s)\n",
                      frugal_message());
        skip();
    }
    if (status != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    frugal_close(f);
#endif
}

/* What is the caller's does not count. */
static void test_memory_of(void **state) {
    (void)state;
    frugal f = {.desc = {.dim = 16, .devices = 2, .max_keys = 100, .lookahead = 2, .staging = 4},
                .store = {.rows = 1000000, .dim = 16, .state_floats = 16},
                .record_stride = 16};
    const uint64_t row = 64, n = 1000000;
    f.desc.optimizer.kind = FRUGAL_ADAGRAD;
    uint64_t all = memory_of(&f), other = all - 2 * row * n;
    assert_in_range(other, 9 * n, 9 * n + 4 * MIB); /* words, a byte each, and what does not grow */
    f.store.rows_as = FRUGAL_BF16;                  /* halves the weights, and nothing else */
    assert_true(memory_of(&f) == other + row / 2 * n + row * n);
    f.store.rows_as = FRUGAL_FP32;
    f.desc.file = "file";
    assert_true(memory_of(&f) == other);
    f.desc.file = NULL, f.desc.weights = (float *)(uintptr_t)64;
    assert_true(memory_of(&f) == other + row * n);
    f.desc.state = f.desc.weights;
    assert_true(memory_of(&f) == other);
    f.desc.weights = f.desc.state = NULL, f.desc.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD, f.store.state_floats = 1;
    assert_true(memory_of(&f) == other + (row + 4) * n);
    f.desc.increments = 1;
    assert_true(memory_of(&f) == other + (row + 4) * n + n / 8);
    f.desc.allocate = (void *(*)(size_t, size_t, void *))(uintptr_t)64;
    assert_true(memory_of(&f) == 0);
    f.desc.name = "name";
    assert_true(memory_of(&f) >= other + (row + 4) * n + n / 8);
}

/* >>groups - one that this test makes */

static int write_text(const char *folder, const char *name, const char *text) {
    char path[2 * MOST_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    int done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0) close(file);
    return done;
}

/* Makes a group with 200 MiB. Returns 0 if this test may not. */
static int make_group(char *folder, size_t size) {
    static const group_files *const versions[] = {&group_1, &group_2};
    char mount[MOST_PATH], top[MOST_PATH];
    for (int i = 0; i < 2; i++) {
        if (!find_mount("", versions[i], mount, top)) continue;
        snprintf(folder, size, "%s/frugal_test_%d", mount, (int)getpid());
        if (mkdir(folder, 0700)) continue;
        if (write_text(folder, versions[i]->limit, "209715200")) {
            write_text(folder, versions[i]->swap_limit, i ? "0" : "209715200");
            return 1;
        }
        rmdir(folder);
    }
    return 0;
}

/* In a process of that group: a table of 1 GiB is refused, and one that fits is not. */
static int open_in_group(const char *folder) {
    frugal_table table = {.rows = 1 << 20};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 256, .max_keys = 4};
    frugal *f;
    if (!write_text(folder, "cgroup.procs", "0")) return 77;
    if (frugal_open(&d, &f) != FRUGAL_ERR_MEMORY || !strstr(frugal_message(), "the limit is 209715200 bytes")) {
        fprintf(stderr, "# %s\n", frugal_message());
        return 1;
    }
    frugal_close(f);
    table.rows = 1 << 16;
    if (frugal_open(&d, &f) != FRUGAL_OK) return 2;
    return frugal_close(f) == FRUGAL_OK ? 0 : 3;
}

static void test_in_a_group(void **state) {
    (void)state;
    char folder[2 * MOST_PATH];
    int status;
    if (!make_group(folder, sizeof folder)) {
        print_message("# SKIPPED a group with 200 MiB: this test may not make a control group\n");
        skip();
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(open_in_group(folder));
    assert_int_equal(child, waitpid(child, &status, 0));
    for (int i = 0; i < 100 && rmdir(folder); i++) usleep(10000); /* the child's end may come late there */
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("# SKIPPED a group with 200 MiB: no process may enter it\n");
        skip();
    }
    assert_int_equal(0, WEXITSTATUS(status));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_group),
        cmocka_unit_test(test_system_alone),
        cmocka_unit_test(test_groups_of_version_2),
        cmocka_unit_test(test_groups_of_version_1),
        cmocka_unit_test(test_groups_in_a_container),
        cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_memory_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
