/* test_fork.c - processes that fork while they have an instance open, as PyTorch's DataLoader does: the child has none
 * of its memory, can do it no harm, and holds neither its name nor its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "frugal_counts.h"
#include "frugal_seeing.h"
#include "frugal_serve.h"
#include "src/device.h"
#include "frugal_save.h"
#include "tests/expect.h"
#include "tests/sanitizers.h"
#include "tests/scratch.h"

enum { ROWS = 65536, DIM = 64, KEYS = 4096 }; /* a table of 16 MiB */

static float rows[KEYS * DIM], grads[KEYS * DIM];
static char name[48];

static frugal *open_one(frugal_desc desc) {
    static frugal_table table = {.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    frugal *f;
    desc.tables = &table, desc.n_tables = 1, desc.dim = DIM, desc.max_keys = KEYS;
    if (frugal_open(&desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    return f;
}

/* Device 0 trains steps that touch every row in turn. */
static void train(frugal *f, uint64_t from, uint64_t to) {
    uint64_t keys[KEYS];
    for (uint64_t s = from; s < to; s++) {
        for (uint32_t i = 0; i < KEYS; i++) keys[i] = (s * KEYS + i) % ROWS, grads[i * DIM] = 1;
        const frugal_keys k = {.keys = keys, .n = KEYS};
        frugal_status status = frugal_announce(f, 0, s, &(frugal_batch){.segments = &k, .n_segments = 1});
        if (status == FRUGAL_OK) status = frugal_lookup(f, 0, s, rows);
        if (status == FRUGAL_OK) status = frugal_update(f, 0, s, &(frugal_gradients){.grads = grads, .lr = 1});
        if (status != FRUGAL_OK) fail_msg("step %u: %s", (unsigned)s, frugal_message());
    }
}

/* A child that does nothing until it is ended. It has begun when this returns: until then, in the moment before what
 * pthread_atfork arranged has run there, the system alone made it, and it has its parent's descriptors. */
static pid_t fork_idle(void) {
    int pipes[2];
    char begun = 0;
    assert_int_equal(0, pipe(pipes));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (write(pipes[1], &begun, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(1, read(pipes[0], &begun, 1));
    close(pipes[0]), close(pipes[1]);
    return child;
}
static void end_idle(pid_t child) {
    kill(child, SIGKILL);
    assert_int_equal(child, waitpid(child, NULL, 0));
}

/* A number of kB from a file of /proc; 0: there is none. */
static uint64_t kilobytes(pid_t process, const char *file, const char *what) {
    char path[64], line[256];
    uint64_t found = 0;
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)process, file);
    FILE *in = fopen(path, "r");
    if (!in) return 0;
    while (fgets(line, sizeof line, in))
        if (!strncmp(line, what, strlen(what))) found = strtoull(line + strlen(what), NULL, 10);
    fclose(in);
    return found;
}

/* Has the process anything mapped there? */
static int has_mapped(pid_t process, const void *at) {
    char path[64], line[512];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%ld/maps", (long)process);
    FILE *in = fopen(path, "r");
    if (!in) fail_msg("%s cannot be read", path);
    while (fgets(line, sizeof line, in)) {
        char *end;
        uintptr_t from = strtoull(line, &end, 16), to = strtoull(end + 1, NULL, 16);
        found |= from <= (uintptr_t)at && (uintptr_t)at < to;
    }
    fclose(in);
    return found;
}

/* Table, state, staging, batches, words and gates are not for children, wherever the table lies. */
static void test_memory_stays_here(void **state) {
    (void)state;
    static const frugal_memory_kind kinds[] = {FRUGAL_MEMORY_TABLE,   FRUGAL_MEMORY_STATE, FRUGAL_MEMORY_BLOCKS,
                                               FRUGAL_MEMORY_BATCHES, FRUGAL_MEMORY_ALONE, FRUGAL_MEMORY_GATES};
    for (int way = 0; way < 3; way++) {
        frugal_desc desc = {.optimizer = {.kind = FRUGAL_ROWWISE_ADAGRAD}, .workers = 1, .lookahead = 2};
        if (way == 1) desc.name = name;
        if (way == 2) desc.file = scratch_path("table");
        frugal *f = open_one(desc);
        train(f, 0, 2);
        pid_t child = fork_idle();
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            frugal_memory m = frugal_get_memory(f, 0, kinds[i]);
            if (m.bytes == 0) continue;
            const unsigned char *last = (const unsigned char *)m.start + m.bytes - 1;
            if (has_mapped(child, m.start) || has_mapped(child, last))
                fail_msg("way %d: the child has memory of kind %d", way, (int)kinds[i]);
            assert_true(has_mapped(getpid(), m.start));
        }
        train(f, 2, 20);
        end_idle(child);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
    }
    scratch_end();
}

/* Training beside an idle child costs no memory: both together have the table once. */
static void test_memory_is_not_doubled(void **state) {
    (void)state;
    frugal *f = open_one((frugal_desc){.workers = 0});
    train(f, 0, ROWS / KEYS);
    pid_t child = fork_idle();
    uint64_t before = kilobytes(getpid(), "smaps_rollup", "Pss:") + kilobytes(child, "smaps_rollup", "Pss:");
    train(f, ROWS / KEYS, 3 * ROWS / KEYS);
    uint64_t after = kilobytes(getpid(), "smaps_rollup", "Pss:") + kilobytes(child, "smaps_rollup", "Pss:");
    end_idle(child);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
#ifdef UNDER_TSAN
    before = 0; /* its own memory grows with what is written */
#endif
    if (before == 0) {
        print_message("# SKIPPED the measure: /proc has no smaps_rollup here, or ThreadSanitizer's memory counts\n");
        skip();
    }
#ifdef FRUGAL_SANITIZED
    const uint64_t most = ROWS * DIM * 4 / 1024 / 2; /* the sanitizer's own memory, some 4 MiB, is private */
#else
    const uint64_t most = ROWS * DIM * 4 / 1024 / 4;
#endif
    if (after > before + most) /* the table twice would be four times that, or twice */
        fail_msg("%u kB before, and %u kB after", (unsigned)before, (unsigned)after);
}

/* Memory of the caller is left alone: a child may read it. */
static void test_memory_of_the_caller(void **state) {
    (void)state;
    float *table = aligned_alloc(4096, ROWS * DIM * sizeof *table);
    assert_non_null(table);
    memset(table, 0, ROWS * DIM * sizeof *table);
    frugal *f = open_one((frugal_desc){.weights = table});
    train(f, 0, 1);
    float wanted = table[5 * DIM];
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(table[5 * DIM] == wanted ? 0 : 1);
    int how;
    assert_int_equal(child, waitpid(child, &how, 0));
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    free(table);
}

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "# line %d: %s: %s\n", __LINE__, #condition, frugal_message());                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define EXPECT_REFUSED(call) EXPECT((call) == FRUGAL_ERR_PROCESS && strstr(frugal_message(), "forked"))

/* Every call says that this is another process; closing does nothing. */
static void call_all(frugal *f, frugal_workers *shared) {
    uint64_t key = 0, stride, count;
    float row[DIM];
    const void *view;
    char text[256];
    frugal *second;
    frugal_stats stats;
    const frugal_keys k = {.keys = &key, .n = 1};
    alarm(20);
    signal(SIGSEGV, SIG_DFL); /* not cmocka's */
    EXPECT_REFUSED(frugal_announce(f, 0, 1, &(frugal_batch){.segments = &k, .n_segments = 1}));
    EXPECT_REFUSED(frugal_lookup(f, 0, 1, row));
    EXPECT_REFUSED(frugal_update(f, 0, 1, NULL));
    EXPECT_REFUSED(frugal_finish(f, 0));
    EXPECT_REFUSED(frugal_drain(f));
    EXPECT_REFUSED(frugal_cancel(f, 1));
    EXPECT_REFUSED(frugal_read_rows(f, &k, row, NULL));
    EXPECT_REFUSED(frugal_write_rows(f, &k, row, NULL));
    EXPECT_REFUSED(frugal_view(f, 0, &view, &stride));
    EXPECT_REFUSED(frugal_verify(f));
    EXPECT_REFUSED(frugal_preload(f, 0, &k));
    EXPECT_REFUSED(frugal_get_counts(f, &k, &count));
    EXPECT_REFUSED(frugal_begin_counting(f));
    EXPECT_REFUSED(frugal_cpu_attach(f, 1, NULL));
    EXPECT_REFUSED(frugal_trace_start(f, 64));
    EXPECT_REFUSED(frugal_save(&f, 1, &(frugal_save_desc){.path = scratch_path("save")}));
    EXPECT(frugal_write_metrics(&f, NULL, 1, text, sizeof text) == 0);
    EXPECT(frugal_help(f) == 0);
    frugal_get_stats(f, &stats);
    EXPECT(stats.steps == 0 && stats.state_bytes == 0);
    EXPECT(frugal_gates(f) == NULL && frugal_get_memory(f, 0, FRUGAL_MEMORY_TABLE).bytes == 0);
    EXPECT_REFUSED(frugal_cpu_get_traffic(f, 0, NULL, NULL));
    frugal_stop(f);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    if (shared) {
        frugal_table table = {.rows = 4};
        const frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 4, .max_keys = 4, .shared_workers = shared};
        EXPECT_REFUSED(frugal_open(&desc, &second));
        frugal_close(second);
        EXPECT(frugal_workers_close(shared) == FRUGAL_OK);
    }
    /* an instance of its own works */
    frugal_table table = {.rows = 4};
    const frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 4, .max_keys = 4, .init_threads = 1};
    EXPECT(frugal_open(&desc, &second) == FRUGAL_OK && frugal_close(second) == FRUGAL_OK);
    exit(0); /* with what the program does at its end */
}

static void call_all_in_child(frugal *f, frugal_workers *shared) {
    int how;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) call_all(f, shared);
    assert_int_equal(child, waitpid(child, &how, 0));
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* What a child calls changes nothing here: not the training, not the file, not what joined processes see. */
static void test_calls_in_a_child(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        frugal_workers *shared = NULL;
        frugal_desc desc = {.workers = way == 0 ? 0 : 1, .lookahead = 1};
        if (way == 1) desc.file = scratch_path("table");
        if (way == 2) desc.name = name;
        if (way == 3) {
            assert_int_equal(FRUGAL_OK, frugal_workers_open(1, &shared));
            desc.shared_workers = shared, desc.workers = 0;
        }
        frugal *f = open_one(desc);
        if (way != 1) assert_int_equal(FRUGAL_OK, frugal_trace_start(f, 0)); /* its rings are not the child's, either */
        train(f, 0, 1);
        call_all_in_child(f, shared);
        if (way == 1) { /* in use, whatever the child has closed */
            frugal *second;
            desc.name = NULL;
            frugal_table table = {.rows = ROWS};
            desc.tables = &table, desc.n_tables = 1, desc.dim = DIM, desc.max_keys = KEYS;
            expect_failure(FRUGAL_ERR_FILE, frugal_open(&desc, &second), "in use by process", desc.file, "open",
                           __LINE__);
            frugal_close(second);
        }
        train(f, 1, 20);
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        frugal_stats stats;
        frugal_get_stats(f, &stats);
        assert_int_equal(20, stats.steps);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        assert_int_equal(FRUGAL_OK, frugal_workers_close(shared));
    }
    scratch_end();
}

/* A child of the process that joined, and one of the process that opened, close what they have: both go on. */
static void test_children_of_two_processes(void **state) {
    (void)state;
    enum { STEPS = 60 };
    fflush(NULL);
    pid_t member = fork();
    if (member == 0) {
        frugal *f;
        EXPECT(frugal_join(name, 30, &f) == FRUGAL_OK && frugal_cpu_attach(f, 1, NULL) == FRUGAL_OK);
        for (uint64_t s = 0; s < STEPS; s++) {
            EXPECT(frugal_announce(f, 1, s, &(frugal_batch){.n_segments = 0}) == FRUGAL_OK);
            EXPECT(frugal_lookup(f, 1, s, NULL) == FRUGAL_OK && frugal_update(f, 1, s, NULL) == FRUGAL_OK);
            if (s == STEPS / 2) {
                int how;
                pid_t child = fork();
                if (child == 0) _exit(frugal_close(f) == FRUGAL_OK ? 0 : 1);
                EXPECT(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
            }
        }
        EXPECT(frugal_close(f) == FRUGAL_OK);
        _exit(0);
    }
    int how;
    frugal *f = open_one((frugal_desc){.workers = 1, .devices = 2, .name = name, .stuck_seconds = 30});
    train(f, 0, STEPS / 3);
    call_all_in_child(f, NULL);
    train(f, STEPS / 3, STEPS);
    assert_int_equal(member, waitpid(member, &how, 0));
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

/* An allocator whose memory children lack, except the instance itself. */
static void *allocate_hidden(size_t bytes, size_t alignment, void *user) {
    void *memory = NULL;
    size_t whole = (bytes + 4095) / 4096 * 4096;
    if (posix_memalign(&memory, alignment > 4096 ? alignment : 4096, whole)) return NULL;
    if ((*(int *)user)++ > 0) madvise(memory, whole, MADV_DONTFORK);
    return memory;
}
static void release_hidden(void *memory, size_t bytes, void *user) {
    (void)user;
    madvise(memory, (bytes + 4095) / 4096 * 4096, MADV_DOFORK);
    free(memory);
}

/* A child can be forked and can end, whatever it lacks. */
static void test_memory_that_children_lack(void **state) {
    (void)state;
    int blocks = 0, how;
    frugal *f = open_one((frugal_desc){
        .file = scratch_path("table"), .allocate = allocate_hidden, .release = release_hidden, .user = &blocks});
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(0);
    assert_int_equal(child, waitpid(child, &how, 0));
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    train(f, 0, 2);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    scratch_end();
}

/* A process that has joined leaves at once, although the one that opened is closed and has a child that lives. */
static void test_leaving_beside_a_child(void **state) {
    (void)state;
    int to_member[2], from_member[2], how;
    char byte = 0;
    assert_true(pipe(to_member) == 0 && pipe(from_member) == 0);
    fflush(NULL);
    pid_t member = fork();
    if (member == 0) {
        frugal *f;
        alarm(20); /* stuck_seconds is 300 */
        EXPECT(frugal_join(name, 30, &f) == FRUGAL_OK && frugal_cpu_attach(f, 1, NULL) == FRUGAL_OK);
        EXPECT(write(from_member[1], &byte, 1) == 1 && read(to_member[0], &byte, 1) == 1);
        EXPECT(frugal_close(f) == FRUGAL_OK);
        _exit(0);
    }
    frugal *f = open_one((frugal_desc){.workers = 1, .devices = 2, .name = name});
    assert_int_equal(1, read(from_member[0], &byte, 1));
    pid_t child = fork_idle();
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    assert_int_equal(1, write(to_member[1], &byte, 1));
    assert_int_equal(member, waitpid(member, &how, 0));
    end_idle(child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    for (int i = 0; i < 2; i++) close(to_member[i]), close(from_member[i]);
}

/* While a child lives, the name and the file can be had again, also after the process has been killed, and after an
 * open that was refused. */
static void test_name_and_file_are_free(void **state) {
    (void)state;
    const frugal_desc desc = {.workers = 1, .name = name, .file = scratch_path("table"), .take_torn = 1};
    frugal *f = open_one(desc);
    pid_t child = fork_idle();
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    f = open_one(desc);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    end_idle(child);

    frugal *refused;
    frugal_table table = {.rows = ROWS};
    const frugal_desc other = {.tables = &table, .n_tables = 1, .dim = DIM / 2, .max_keys = 1, .file = desc.file};
    assert_int_equal(FRUGAL_ERR_FILE, frugal_open(&other, &refused));
    child = fork_idle();
    frugal_close(refused);
    f = open_one(desc);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    end_idle(child);

    frugal_server *s;
    assert_int_equal(FRUGAL_OK, frugal_serve_open(&(frugal_serve_desc){.from = {.file = desc.file}}, &s));
    child = fork_idle();
    frugal_serve_close(s);
    f = open_one(desc);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    end_idle(child);

    int pipes[2];
    assert_int_equal(0, pipe(pipes));
    fflush(NULL);
    pid_t opener = fork();
    if (opener == 0) {
        f = open_one(desc);
        train(f, 0, 1);
        child = fork_idle();
        if (write(pipes[1], &child, sizeof child) != sizeof child) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(sizeof child, read(pipes[0], &child, sizeof child));
    end_idle(opener);
    f = open_one(desc);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    kill(child, SIGKILL);
    close(pipes[0]), close(pipes[1]);
    scratch_end();
}

/* A version that is served is only read, so a child may read it. */
static void test_served_version(void **state) {
    (void)state;
    frugal *f = open_one((frugal_desc){.workers = 0});
    const char *path = scratch_path("save");
    train(f, 0, 1);
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_save(&f, 1, &(frugal_save_desc){.path = path}));
    frugal_server *s;
    assert_int_equal(FRUGAL_OK, frugal_serve_open(&(frugal_serve_desc){.from = {.saved = &path, .n_saved = 1}}, &s));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        uint64_t key = 7, step = 0;
        float row[DIM];
        const frugal_keys k = {.keys = &key, .n = 1};
        EXPECT(frugal_serve_lookup(s, &k, 1, row, &step) == FRUGAL_OK && step == 1);
        EXPECT_REFUSED(frugal_serve_refresh(s, &(frugal_served){.saved = &path, .n_saved = 1}));
        frugal_serve_close(s);
        _exit(0);
    }
    int how;
    assert_int_equal(child, waitpid(child, &how, 0));
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    uint64_t key = 7;
    const frugal_keys k = {.keys = &key, .n = 1};
    assert_int_equal(FRUGAL_OK, frugal_serve_lookup(s, &k, 1, rows, NULL));
    frugal_serve_close(s);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    scratch_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_stays_here),
        cmocka_unit_test(test_memory_is_not_doubled),
        cmocka_unit_test(test_memory_of_the_caller),
        cmocka_unit_test(test_calls_in_a_child),
        cmocka_unit_test(test_children_of_two_processes),
        cmocka_unit_test(test_name_and_file_are_free),
        cmocka_unit_test(test_served_version),
        cmocka_unit_test(test_memory_that_children_lack),
        cmocka_unit_test(test_leaving_beside_a_child),
    };
    snprintf(name, sizeof name, "fork.%ld", (long)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
