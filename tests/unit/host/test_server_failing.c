/* test_server_failing.c - opening a server, and refreshing, while each allocation and each call on files fails in turn:
 * a status says so, what was served is served on, and no descriptor stays open.
 *
 * The library is compiled into this program, with calls of the system that fail. Do not link frugal_flush.o. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/unit/host/failing_system.h"

#include "frugal_flush.c"

#undef malloc
#undef mmap
#undef pthread_create
#include <stdio.h>
#include <cmocka.h>
#include "tests/unit/host/served_world.h"

/* A table's file that has version 2. */
static void make_table_file(const world *w, const char *path) {
    rig r = {.lr = 0.25f};
    frugal_desc desc = world_desc(w->dim, FRUGAL_SGD);
    desc.file = path, desc.saved = w->names, desc.n_saved = 3;
    rig_open(&r, &desc);
    rig_finish(&r, 0);
}

/* What is opened, or taken over from a server with version 0, while the nth call of a kind fails. `version`: what it
 * has. Returns how many calls failed before all went well. */
static int fail_in_turn(const world *w, const frugal_served *from, uint32_t version, int refreshes, int call) {
    int failures = 0, before = open_files();
    for (int at = 1;; at++) {
        frugal_server *s = NULL;
        const frugal_served first = saves_of(w, 0);
        if (refreshes) s = open_server(&first);
        let_files_fail(call, at, call == CALL_SYSTEM ? ENOMEM : EIO, 0);
        const frugal_serve_desc desc = {.from = *from, .threads = 2};
        frugal_status status = refreshes ? frugal_serve_refresh(s, from) : frugal_serve_open(&desc, &s);
        int failed = atomic_load(&failing_files.failures);
        let_files_fail(0, 0, 0, 0);
        if (status != FRUGAL_OK && !failed) fail_msg("call %d, %d: %d: %s", call, at, status, frugal_message());
        if (status != FRUGAL_OK) assert_true(status == FRUGAL_ERR_FILE || status == FRUGAL_ERR_MEMORY);
        if (status == FRUGAL_OK || refreshes) /* one thread less reads a save as well */
            expect_version(w, s, status == FRUGAL_OK ? version : 0);
        else
            assert_null(s);
        frugal_serve_close(s);
        assert_int_equal(before, open_files());
        if (!failed) return failures;
        failures++;
    }
}

static void test_failing(void **state) {
    (void)state;
    world w;
    int failures = 0;
    char *path = strdup(saved_path("table"));
    open_world(&w, 5, FRUGAL_SGD);
    make_table_file(&w, path);
    const frugal_served saves = saves_of(&w, 2), other = saves_of(&w, 4), file = {.file = path};
    for (int call = CALL_OPEN; call < ALL_CALLS; call++)
        for (int refreshes = 0; refreshes < 2; refreshes++) {
            failures += fail_in_turn(&w, &saves, 2, refreshes, call);
            failures += fail_in_turn(&w, &other, 4, refreshes, call);
            failures += fail_in_turn(&w, &file, 2, refreshes, call);
        }
    assert_true(failures > 60);
    free(path);
    close_world(&w);
}

/* More keys than a lookup has room for at hand. */
static void test_failing_bags(void **state) {
    (void)state;
    enum { KEYS = 5000 };
    static uint64_t keys[KEYS];
    static const uint32_t offsets[] = {0, KEYS};
    world w;
    float pooled[5];
    open_world(&w, 5, FRUGAL_SGD);
    const frugal_served from = saves_of(&w, 0);
    frugal_server *s = open_server(&from);
    const frugal_keys segment = {.table = 0, .keys = keys, .n = KEYS};
    const frugal_bags bags = {.n_bags = 1, .offsets = offsets};
    let_files_fail(CALL_SYSTEM, 1, ENOMEM, 0);
    assert_fails(FRUGAL_ERR_MEMORY, frugal_serve_bags(s, &segment, 1, &bags, pooled, NULL), "the rows of a lookup",
                 "20000");
    let_files_fail(0, 0, 0, 0);
    assert_int_equal(FRUGAL_OK, frugal_serve_bags(s, &segment, 1, &bags, pooled, NULL));
    frugal_serve_close(s);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_TEST(test_failing),
        SAVED_TEST(test_failing_bags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
