/* test_server_failing.c - opening a server, and refreshing, while each allocation and each call on files fails in turn:
 * a status says so, what was served is served on, and no descriptor stays open. A system without files in memory. Files
 * whose header is no table's, and whose checksum is right.
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

/* >>a system that lacks something */

static void expect_own_memory(frugal_server *s, uint32_t dim) {
    frugal_serve_info info;
    frugal_served_memory memory;
    assert_int_equal(FRUGAL_OK, frugal_serve_get_info(s, &info));
    assert_true(info.own_bytes >= (uint64_t)ROWS * dim * sizeof(float));
    assert_int_equal(FRUGAL_OK, frugal_serve_hold(s, &memory));
    assert_true(memory.file == -1 && !memory.changed && memory.file_number == info.versions);
    frugal_serve_release(s, &memory);
}

/* Without files in memory each version has memory of its own, and is read from all its saves. */
static void test_no_files_in_memory(void **state) {
    (void)state;
    static const uint32_t order[] = {0, 2, 3, 1, 4, 4, 0};
    world w;
    open_world(&w, 5, FRUGAL_SGD);
    int before = open_files();
    frugal_served from = saves_of(&w, order[0]);
    atomic_store(&system_lacks, MEMORY_FILES);
    frugal_server *s = open_server(&from);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        from = saves_of(&w, order[i]);
        if (i > 0) refresh(s, &from);
        expect_version(&w, s, order[i]);
        expect_own_memory(s, w.dim);
    }
    atomic_store(&system_lacks, 0);
    frugal_serve_close(s);
    assert_int_equal(before, open_files());
    close_world(&w);
}

/* Where the system does not say how many processors it has, one thread reads. */
static void test_unknown_number_of_processors(void **state) {
    (void)state;
    world w;
    open_world(&w, 5, FRUGAL_SGD);
    const frugal_served from = saves_of(&w, 3);
    atomic_store(&system_lacks, COUNT_OF_PROCESSORS);
    frugal_server *s = open_server(&from);
    atomic_store(&system_lacks, 0);
    assert_int_equal(1, s->threads);
    expect_version(&w, s, 3);
    frugal_serve_close(s);
    close_world(&w);
}

/* >>headers that are no table's, though their checksums are right */

/* Writes the header, and the list of tables, with checksums. */
static void forge(const char *path, table_header h, const saved_table list[2]) {
    unsigned char page[TABLE_PAGE];
    int file = (open)(path, O_WRONLY | O_CLOEXEC);
    h.list_checksum = crc32c(0, list, 2 * sizeof *list);
    make_page(&h, page);
    assert_int_equal(sizeof page, (pwrite)(file, page, sizeof page, 0));
    assert_int_equal(2 * sizeof *list, (pwrite)(file, list, 2 * sizeof *list, TABLE_PAGE));
    close(file);
}

static void test_forged_headers(void **state) {
    (void)state;
    world w;
    char *path = strdup(saved_path("table"));
    table_header right;
    saved_table list[2], other[2];
    frugal_server *s = NULL;
    const frugal_serve_desc desc = {.from = {.file = path}};
    open_world(&w, 5, FRUGAL_SGD);
    make_table_file(&w, path);
    int file = (open)(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(sizeof right, (pread)(file, &right, sizeof right, 0));
    assert_int_equal(sizeof list, (pread)(file, list, sizeof list, TABLE_PAGE));
    close(file);
    for (int i = 0; i < 12; i++) {
        table_header h = right;
        if (i == 0) h.file_bytes += TABLE_PAGE;
        if (i == 1) h.n_tables = 0;
        if (i == 2) h.n_tables = SAVED_MOST_TABLES + 1;
        if (i == 3) h.dim = 0;
        if (i == 4) h.weights_stride = h.dim - 1;
        if (i == 5) h.rows = 0;
        if (i == 6) h.rows = UINT64_C(1) << 40, h.weights_stride = h.dim;
        if (i == 7) h.weights_at += 4;
        if (i == 8) h.weights_at = TABLE_PAGE;
        if (i == 9) h.weights_at = (h.file_bytes / TABLE_PAGE + 1) * TABLE_PAGE;
        if (i == 10) h.weights_stride = UINT64_MAX / sizeof(float);
        if (i == 11) h.rows = h.file_bytes;
        forge(path, h, list);
        assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "its header says", path);
        assert_null(s);
    }
    for (int i = 0; i < 2; i++) { /* the tables have other rows than the header says */
        memcpy(other, list, sizeof list);
        other[1].rows = i ? UINT64_MAX : other[1].rows - 1;
        forge(path, right, other);
        assert_fails(FRUGAL_ERR_FILE, frugal_serve_open(&desc, &s), "the list of tables", path);
        assert_null(s);
    }
    forge(path, right, list);
    s = open_server(&desc.from);
    expect_version(&w, s, 2);
    frugal_serve_close(s);
    free(path);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_TEST(test_failing),
        SAVED_TEST(test_failing_bags),
        SAVED_TEST(test_no_files_in_memory),
        SAVED_TEST(test_unknown_number_of_processors),
        SAVED_TEST(test_forged_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
