/* test_best.c - the best evaluation of a training: which one it is, its files while the training goes on, in
 * checkpoints and out of them, and rows read back from them. (Whole programs: test_resume.) */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "trainers/common/best.h"
#include "frugal_save.h"
#include "folder.h"

static program_error error;
static best_kept kept;

/* In the place of the C library's: a file system without hard links, if it is to be one. */
static int no_links;
int link(const char *from, const char *to) {
    if (!no_links) return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    errno = EPERM;
    return -1;
}

static int make_folder(void **state) {
    (void)state;
    no_links = 0;
    return folder_make("test_best");
}

/* ---- Which one ------------------------------------------------------------------------------------------ */

/* The best of values[n] is the one of this number, with so many behind it; -1: there is none. */
static void best_is(const double *values, size_t n, int number, uint64_t behind) {
    progress_curve curve = {0};
    uint64_t since = 77;
    for (size_t i = 0; i < n; i++) assert_int_equal(progress_add(&curve, 10 * i, 0, values[i], &error), 0);
    const progress_moment *best = best_of(&curve, &since);
    assert_true(number < 0 ? !best : best == &curve.moments[number]);
    assert_int_equal(since, behind);
    progress_free(&curve);
}

static void test_which(void **state) {
    (void)state;
    best_is(NULL, 0, -1, 0);
    best_is((double[]){0.1}, 1, 0, 0);
    best_is((double[]){0.1, 0.3, 0.2}, 3, 1, 1);
    best_is((double[]){0.1, 0.3, 0.3}, 3, 1, 1); /* as good is not better */
    best_is((double[]){NAN, NAN}, 2, -1, 2);
    best_is((double[]){NAN, -1, NAN, NAN}, 4, 1, 2);
    best_is((double[]){0, -0.0, 1e-300}, 3, 2, 0);
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

static int write_text(void *user, const char *path, program_error *why) {
    assert_int_equal(access(path, F_OK), -1);
    if (!user) return program_fail(why, "no room");
    put_text(path, user);
    return 0;
}

static void keep(const char *tables, const char *state, int status) {
    const checkpoint_part parts[BEST_FILES] = {{.name = "t", .write = write_text, .user = (void *)(uintptr_t)tables},
                                               {.name = "s", .write = write_text, .user = (void *)(uintptr_t)state}};
    assert_int_equal(best_keep(&kept, parts, &error), status);
}

static void has_text(const char *path, const char *text) {
    char found[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = 0;
    fclose(file);
    assert_string_equal(found, text);
}

static int is_there(const char *path) {
    return access(path, F_OK) == 0;
}

static void test_files(void **state) {
    (void)state;
    checkpoint_part parts[BEST_FILES];
    static char below[MANIFEST_LONGEST_PATH];
    assert_int_equal(best_open(&kept, folder, &error), 0);
    assert_int_equal(best_parts(&kept, parts), 0);
    assert_false(is_there(in_folder(".best"))); /* not before there is something to keep */
    keep("t1", "s1", 0);
    has_text(kept.tables, "t1");
    has_text(kept.state, "s1");
    for (no_links = 0; no_links < 2; no_links++) {
        assert_int_equal(best_parts(&kept, parts), BEST_FILES);
        assert_string_equal(parts[0].name, "best-tables");
        assert_true(parts[0].self_checked && !parts[1].self_checked);
        const char *tables = in_folder(no_links ? "t-copied" : "t-linked"), *its = in_folder(no_links ? "s1" : "s0");
        assert_int_equal(parts[0].write(parts[0].user, tables, &error), 0);
        assert_int_equal(parts[1].write(parts[1].user, its, &error), 0);
        has_text(tables, "t1");
        has_text(its, "s1");
    }
    keep("t2", "s2", 0);
    has_text(in_folder("t-linked"), "t1"); /* what a checkpoint has stays as it is */
    keep("t3", NULL, -1);
    assert_string_equal(error.text, "no room");
    has_text(kept.tables, "t2"); /* both are the old ones */
    has_text(kept.state, "s2");
    keep("t4", "s4", 0); /* what failed is not in its way */
    has_text(kept.tables, "t4");
    assert_int_equal(parts[1].write(parts[1].user, in_folder("none/s"), &error), -1);
    assert_non_null(strstr(error.text, "cannot copy "));
    assert_non_null(strstr(error.text, "No such file"));
    snprintf(below, sizeof below, "%s", kept.folder);
    best_close(&kept);
    assert_false(is_there(below));
    assert_int_equal(best_parts(&kept, parts), 0);
    best_close(&kept);
}

/* What a killed process has left goes, and what is not ours stays. */
static void test_leftovers(void **state) {
    (void)state;
    mkdir(in_folder(".best"), 0777);
    static const char *const left[] = {".best/tables", ".best/state.new", ".best/.tables.new.frugal-1a2b3c"};
    for (int i = 0; i < 3; i++) put_text(in_folder(left[i]), "left");
    assert_int_equal(best_open(&kept, folder, &error), 0);
    assert_false(is_there(in_folder(".best")));
    mkdir(in_folder(".best"), 0777);
    put_text(in_folder(".best/tables"), "left");
    put_text(in_folder(".best/mine"), "mine");
    assert_int_equal(best_open(&kept, folder, &error), 0);
    assert_false(is_there(in_folder(".best/tables")));
    has_text(in_folder(".best/mine"), "mine");
    keep("t", "s", -1);
    assert_non_null(strstr(error.text, "cannot make the folder "));
    assert_non_null(strstr(error.text, "File exists"));
    best_close(&kept);
    has_text(in_folder(".best/mine"), "mine");
}

static void test_temporary(void **state) {
    (void)state;
    static char was[MANIFEST_LONGEST_PATH];
    setenv("TMPDIR", folder, 1);
    assert_int_equal(best_open(&kept, NULL, &error), 0);
    keep("t", "s", 0);
    assert_int_equal(strncmp(kept.folder, folder, strlen(folder)), 0);
    assert_non_null(strstr(kept.folder, "/frugal-best-"));
    snprintf(was, sizeof was, "%s", kept.folder);
    best_close(&kept);
    assert_false(is_there(was));
    setenv("TMPDIR", in_folder("none"), 1);
    assert_int_equal(best_open(&kept, NULL, &error), 0);
    keep("t", "s", -1);
    assert_non_null(strstr(error.text, "set TMPDIR to a folder with room"));
    best_close(&kept);
    unsetenv("TMPDIR");
}

static void test_long_names(void **state) {
    (void)state;
    static char path[MANIFEST_LONGEST_PATH];
    memset(path, 'x', sizeof path - 3);
    assert_int_equal(best_open(&kept, path, &error), -1);
    assert_non_null(strstr(error.text, "is longer than 4096 bytes"));
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

enum { INSTANCES = 2, ROWS = 5000, DIM = 3 }; /* more than a block */

static void open_tables(frugal *f[INSTANCES]) {
    frugal_table tables[2] = {{.rows = ROWS}, {.rows = 7}};
    for (int i = 0; i < INSTANCES; i++) {
        frugal_desc desc = {.tables = tables, .n_tables = 2, .dim = DIM + i, .devices = 1, .max_keys = 4};
        assert_int_equal(frugal_open(&desc, &f[i]), FRUGAL_OK);
        assert_int_equal(frugal_cpu_attach(f[i], 0, &(frugal_cpu_desc){0}), FRUGAL_OK);
    }
}

/* Row k of table t of instance i has these floats; `salt` makes others. */
static float value_of(int i, uint32_t t, uint64_t k, int salt) {
    return (float)(k * 8 + t * 4 + (uint64_t)i * 2 + (uint64_t)salt);
}

static void fill(frugal *f[INSTANCES], int salt) {
    float row[DIM + 1];
    for (int i = 0; i < INSTANCES; i++)
        for (uint32_t t = 0; t < 2; t++)
            for (uint64_t k = 0; k < (t ? 7 : ROWS); k++) {
                frugal_keys key = {.table = t, .keys = &k, .n = 1};
                for (int j = 0; j < DIM + i; j++) row[j] = value_of(i, t, k, salt);
                assert_int_equal(frugal_write_rows(f[i], &key, row, NULL), FRUGAL_OK);
            }
}

static void is_filled(frugal *f[INSTANCES], int salt) {
    float row[DIM + 1];
    for (int i = 0; i < INSTANCES; i++)
        for (uint32_t t = 0; t < 2; t++)
            for (uint64_t k = 0; k < (t ? 7 : ROWS); k++) {
                frugal_keys key = {.table = t, .keys = &k, .n = 1};
                assert_int_equal(frugal_read_rows(f[i], &key, row, NULL), FRUGAL_OK);
                for (int j = 0; j < DIM + i; j++) assert_true(row[j] == value_of(i, t, k, salt));
            }
}

static frugal *saved[INSTANCES];

static int save_tables(void *user, const char *path, program_error *why) {
    (void)user;
    assert_int_equal(frugal_save(saved, INSTANCES, &(frugal_save_desc){.path = path}), FRUGAL_OK);
    return *why->text = 0;
}

/* Kept, into a checkpoint, taken out of it, and read back. */
static void test_rows(void **state) {
    (void)state;
    checkpoint_part parts[BEST_FILES] = {{.name = "tables", .write = save_tables},
                                         {.name = "state", .write = write_text, .user = "s"}};
    char bytes[64], tables[200];
    open_tables(saved);
    fill(saved, 0);
    assert_int_equal(best_open(&kept, folder, &error), 0);
    assert_int_equal(best_keep(&kept, parts, &error), 0);
    mkdir(in_folder("ck"), 0777);
    assert_int_equal(best_parts(&kept, parts), BEST_FILES);
    snprintf(tables, sizeof tables, "%s/ck/best-tables", folder);
    assert_int_equal(parts[0].write(parts[0].user, tables, &error), 0);
    assert_int_equal(parts[1].write(parts[1].user, in_folder("ck/best-state"), &error), 0);
    best_close(&kept);
    for (no_links = 0; no_links < 2; no_links++) {
        fill(saved, 1);
        assert_int_equal(best_open(&kept, folder, &error), 0);
        assert_int_equal(best_take(&kept, in_folder("ck"), &error), 0);
        assert_int_equal(best_take(&kept, in_folder("ck"), &error),
                         0); /* that of an older checkpoint takes its place */
        has_text(kept.state, "s");
        assert_int_equal(best_read(saved, INSTANCES, kept.tables, &error), 0);
        is_filled(saved, 0);
        best_close(&kept);
    }
    assert_true(is_there(tables));
    FILE *file = fopen(tables, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 9000, SEEK_SET), 0);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof bytes);
    assert_int_equal(fseek(file, 9000, SEEK_SET), 0);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)~bytes[i];
    fwrite(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(best_open(&kept, folder, &error), 0);
    error.damaged = 0;
    assert_int_equal(best_take(&kept, in_folder("ck"), &error), -1);
    assert_true(error.damaged); /* so that an older checkpoint is taken */
    assert_int_equal(best_parts(&kept, parts), 0);
    best_close(&kept);
    for (int i = 0; i < INSTANCES; i++) assert_int_equal(frugal_close(saved[i]), FRUGAL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which),
        cmocka_unit_test_setup_teardown(test_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_leftovers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_temporary, make_folder, remove_folder),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test_setup_teardown(test_rows, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
