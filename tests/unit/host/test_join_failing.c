/* test_join_failing.c - opening an instance that others can join, joining it, and attaching a device there, while each
 * call of the system fails in turn: a status says so, no descriptor stays open, and the next attempt works.
 *
 * The library is compiled into this program, with calls of the system that fail. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/unit/host/failing_system.h"

#include "frugal_flush.c"

#undef malloc
#undef calloc
#undef mmap
#undef pthread_create
#include <stdio.h>
#include <cmocka.h>
#include "tests/crew.h"

static int is_expected(frugal_status status) {
    return status == FRUGAL_ERR_MEMORY || status == FRUGAL_ERR_PROCESS || status == FRUGAL_ERR_WORKER ||
           status == FRUGAL_ERR_FILE;
}

/* Joins, and attaches device 1, while the nth call fails. After a failure both work at the next attempt. */
static int join_failing(const crew *c, int at) {
    int before = open_files(), failed;
    frugal *f;
    let_files_fail(CALL_SYSTEM, at, ENOMEM, 0);
    frugal_status status = frugal_join(c->name, 5, &f);
    if (status == FRUGAL_OK) status = frugal_cpu_attach(f, 1, &c->cache);
    failed = atomic_load(&failing_files.failures);
    let_files_fail(0, 0, 0, 0);
    if (status != FRUGAL_OK && (!failed || !is_expected(status))) {
        fprintf(stderr, "# call %d: %d: %s\n", at, (int)status, frugal_message());
        return CREW_WRONG;
    }
    int again = status != FRUGAL_OK;
    frugal_close(f);
    if (again) {
        status = frugal_join(c->name, 5, &f);
        if (status == FRUGAL_OK) status = frugal_cpu_attach(f, 1, &c->cache);
        frugal_close(f);
    }
    if (status != FRUGAL_OK || open_files() != before) {
        fprintf(stderr, "# call %d: once more: %d: %s, or descriptors stay open\n", at, (int)status, frugal_message());
        return CREW_WRONG;
    }
    return failed ? CREW_ENDED : CREW_FINE;
}

static void test_failing_joins(void **state) {
    (void)state;
    int how = CREW_ENDED, at = 0;
    while (how == CREW_ENDED) {
        crew c;
        frugal *f;
        crew_init(&c, 1000 + (uint32_t)++at);
        int pipes[2];
        char byte = 0;
        c.desc.devices = 2;
        assert_int_equal(0, pipe(pipes));
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) _exit(read(pipes[0], &byte, 1) == 1 ? join_failing(&c, at) : CREW_WRONG);
        assert_int_equal(FRUGAL_OK, frugal_open(&c.desc, &f));
        assert_int_equal(1, write(pipes[1], &byte, 1)); /* so that it need not try several times */
        how = crew_wait(child);
        close(pipes[0]), close(pipes[1]);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
    }
    assert_int_equal(CREW_FINE, how);
    assert_true(at > 30);
}

/* Opens while the nth call fails; with large tables, which get huge pages, or none if the system does not give them.
 * Returns the status; *failed: a call did. Nothing is left. */
static frugal_status open_failing(int call, int at, int error, int large, int *failed) {
    static unsigned seed = 2;
    crew c;
    frugal *f;
    frugal_table table = {.rows = 100000};
    int before = open_files();
    crew_init(&c, seed++);
    c.desc.devices = 2;
    if (large) c.desc.tables = &table, c.desc.n_tables = 1;
    let_files_fail(call, at, error, 0);
    frugal_status status = frugal_open(&c.desc, &f);
    *failed = atomic_load(&failing_files.failures);
    let_files_fail(0, 0, 0, 0);
    if (status != FRUGAL_OK && (!*failed || !is_expected(status)))
        fail_msg("call %d, %d: %d: %s", call, at, (int)status, frugal_message());
    if (status == FRUGAL_OK) { /* whatever it did without */
        static float row[CREW_DIM];
        uint64_t key = 7;
        const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
        assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &keys, row, NULL));
    }
    frugal_close(f);
    assert_int_equal(before, open_files());
    return status;
}

static void test_failing_opens(void **state) {
    (void)state;
    static const struct {
        int call, error, repeats; /* repeats: an interrupted call is made again */
    } all[] = {{CALL_SYSTEM, ENOMEM, 0}, {CALL_SYSTEM, ENOSYS, 0}, {CALL_GROW, ENOSPC, 0}, {CALL_GROW, EINTR, 1}};
    int unsupported = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int large = 0; large < 2; large++) {
            int failures = 0, worked = 0, failed;
            for (int at = 1;; at++) {
                frugal_status status = open_failing(all[i].call, at, all[i].error, large, &failed);
                if (!failed) break;
                failures++, worked += status == FRUGAL_OK;
                if (status != FRUGAL_OK)
                    unsupported += strstr(frugal_message(), "several processes need Linux") != NULL;
            }
            assert_true(failures > 20);
            assert_true(all[i].repeats ? worked == failures : worked < failures);
        }
    assert_int_equal(2, unsupported); /* a system that has no files in memory; two tables */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_opens),
        cmocka_unit_test(test_failing_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
