/* test_split.c - frugal_file splits saves into the shares of several machines, and merges these again: the same bytes.
 * Shares open as saves of the rows whose home a machine is. Manifests and shares that are damaged, or belong to
 * others, are refused by name.
 *
 * The program is compiled into this one, with the library in it. Do not link frugal_flush.o. */
#include "inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/saved.h"

enum { MANY = 39, FEW = 2, LARGE = 16, TYPE = 32 };
static frugal_table few_tables[2] = {{.rows = MANY - FEW, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1},
                                     {.rows = FEW, .init = FRUGAL_INIT_NORMAL, .deviation = 0.5f}};
static char base[PATH_MAX], increment[PATH_MAX], merged[PATH_MAX], manifest_path[PATH_MAX], again[PATH_MAX];
static char homes_path[2][PATH_MAX];

static void name_files(void) {
    snprintf(base, PATH_MAX, "%s", saved_path("base")), snprintf(increment, PATH_MAX, "%s", saved_path("increment"));
    snprintf(merged, PATH_MAX, "%s", saved_path("merged")), snprintf(again, PATH_MAX, "%s", saved_path("again"));
    snprintf(manifest_path, PATH_MAX, "%s", saved_path("manifest"));
    for (int i = 0; i < 2; i++) snprintf(homes_path[i], PATH_MAX, "%s", saved_path(i ? "homes1" : "homes0"));
    memset(&options, 0, sizeof options);
}

static uint8_t home_of(uint32_t instance, uint64_t row, uint32_t machines) {
    return (uint8_t)(test_mix3(instance, row, 5) % machines);
}

/* homes[n] as NumPy writes them. */
static void write_home_file(const char *path, uint32_t instance, uint64_t n, uint32_t machines) {
    char bytes[128 + MANY];
    memcpy(bytes, "\x93NUMPY\1\0\x76\0", 10);
    int used = snprintf(bytes + 10, 118, "{'descr': '|u1', 'fortran_order': False, 'shape': (%u,), }", (unsigned)n);
    memset(bytes + 10 + used, ' ', 118 - (size_t)used);
    bytes[127] = '\n';
    for (uint64_t i = 0; i < n; i++) bytes[128 + i] = (char)home_of(instance, i, machines);
    write_file(path, bytes, 128 + n);
}

/* Two instances; the base and an increment have their rows, and so has `merged`. */
static void make_saves(rig *a, frugal_desc *d, int optimizer, uint32_t dim, frugal_type type) {
    name_files();
    for (int i = 0; i < 2; i++) {
        memset(&a[i], 0, sizeof a[i]);
        d[i] = rig_desc();
        d[i].tables = few_tables, d[i].increments = 1;
        if (i == 1) d[i].optimizer.kind = rig_optimizers[optimizer], d[i].dim = dim, d[i].rows_as = type;
        rig_open(&a[i], &d[i]);
        rig_train(&a[i], 3), rig_drain(&a[i]);
    }
    frugal *both[] = {a[0].f, a[1].f};
    assert_int_equal(FRUGAL_OK, frugal_save(both, 2, &(frugal_save_desc){.path = base}));
    for (int i = 0; i < 2; i++) rig_train(&a[i], 2), rig_drain(&a[i]);
    assert_int_equal(FRUGAL_OK, frugal_save(both, 2, &(frugal_save_desc){.path = increment, .increment = 1}));
    assert_int_equal(0, merge_files(merged, 2, (char *[]){base, increment}));
}

static void same_files(const char *a, const char *b) {
    unsigned char *bytes[2];
    size_t n = read_file(a, &bytes[0]);
    assert_int_equal(n, read_file(b, &bytes[1]));
    assert_memory_equal(bytes[0], bytes[1], n);
    free(bytes[0]), free(bytes[1]);
}

/* Splits, and weaves again. */
static void check_round(uint32_t machines, int blocks, int listed) {
    int files = saved_count();
    options.machines = machines, options.blocks = blocks, options.n_homes = listed ? 2 : 0;
    for (uint32_t i = 0; i < 2 && listed; i++)
        write_home_file(homes_path[i], i, MANY, machines), options.homes[i] = homes_path[i], files += i == 0 ? 2 : 0;
    assert_int_equal(0, split_files(manifest_path, 2, (char *[]){base, increment}));
    assert_int_equal(files + 1 + (int)machines, saved_count());
    assert_int_equal(0, check_files(1, (char *[]){manifest_path}));
    assert_int_equal(0, merge_files(again, 1, (char *[]){manifest_path}));
    same_files(merged, again);
    assert_int_equal(1, split_files(manifest_path, 1, (char *[]){merged})); /* it is there */
    assert_non_null(strstr(frugal_message(), "File exists"));
    assert_int_equal(files + 2 + (int)machines, saved_count());
}

/* From a manifest to another, which takes its place: nothing is left of the one before. */
static void check_replaced_by(uint32_t machines) {
    int files = saved_count();
    char other[PATH_MAX];
    snprintf(other, PATH_MAX, "%s", saved_path("other"));
    options.machines = MANY - 1, options.blocks = 0, options.n_homes = 0; /* tables have no rows on most of them */
    assert_int_equal(0, split_files(other, 1, (char *[]){manifest_path}));
    options.machines = 2, options.replace = 1;
    assert_int_equal(0, split_files(manifest_path, 1, (char *[]){other}));
    assert_int_equal(files + MANY + 2 - (int)machines, saved_count());
    assert_int_equal(0, merge_files(again, 1, (char *[]){manifest_path}));
    same_files(merged, again);
}

static void test_rounds(void **state) {
    int kind = (int)(intptr_t)*state;
    static const struct {
        uint32_t machines;
        int blocks, listed;
    } deals[] = {{3, 0, 0}, {4, 1, 0}, {3, 0, 1}, {1, 0, 0}};
    size_t n = kind == FRUGAL_SGD ? 4 : 3;
    for (size_t i = 0; i < n; i++) {
        rig a[2];
        frugal_desc d[2];
        make_saves(a, d, kind % LARGE, kind & LARGE ? 40000 : 17, (frugal_type)(kind / TYPE));
        check_round(deals[i].machines, deals[i].blocks, deals[i].listed);
        if (kind == FRUGAL_SGD && i == 2) check_replaced_by(3);
        for (int k = 0; k < 2; k++) rig_finish(&a[k], 1);
        saved_teardown(NULL), saved_setup(NULL);
    }
}

/* A share opens as a save of the machine's own rows. */
static void test_opened(void **state) {
    (void)state;
    rig a[2];
    frugal_desc d[2];
    make_saves(a, d, FRUGAL_ADAM, 17, FRUGAL_FP32);
    options.machines = 2;
    assert_int_equal(0, split_files(manifest_path, 1, (char *[]){merged}));
    manifest m;
    assert_int_equal(FRUGAL_OK, open_manifest(&m, manifest_path, &own_memory));
    for (uint32_t machine = 0; machine < 2; machine++) {
        char path[LONGEST_PATH];
        float weights[MANY * 17], old[MANY * 34];
        assert_int_equal(0, name_share(&m, machine, path));
        const char *saved[] = {path};
        frugal_table own[2] = {{.rows = (MANY - FEW + 1 - machine) / 2}, {.rows = 1}};
        frugal_desc desc = d[1];
        frugal *f;
        desc.tables = own, desc.saved = saved, desc.n_saved = 1, desc.saved_part = 1;
        if (frugal_open(&desc, &f) != FRUGAL_OK) fail_msg("%s", frugal_message());
        assert_int_equal(5, frugal_settings(f)->first_step);
        read_table(f, 0, weights, old), read_table(f, 1, weights + own[0].rows * 17, old + own[0].rows * 34);
        for (uint64_t i = 0; i < own[0].rows + 1; i++) {
            uint64_t id = 2 * i + machine;
            assert_memory_equal(a[1].ref.weights + id * 17, weights + i * 17, 17 * sizeof(float));
            assert_memory_equal(a[1].ref.state + id * 34, old + i * 34, 34 * sizeof(float));
        }
        frugal_close(f);
    }
    close_manifest(&m);
    const char *saved[] = {manifest_path}; /* an instance without machines does not take a manifest */
    frugal_desc desc = d[0];
    frugal *f;
    desc.saved = saved, desc.n_saved = 1;
    assert_fails(FRUGAL_ERR_FILE, frugal_open(&desc, &f), "manifest of 2 machines", "frugal_file merge");
    frugal_close(f);
    for (int k = 0; k < 2; k++) rig_finish(&a[k], 1);
}

/* >>refused */

static unsigned char whole[4096]; /* [n_whole]: a manifest that is sound */
static size_t n_whole;

/* A manifest of three machines, with homes; one instance. */
static void make_manifest(void) {
    frugal_table tables[2] = {{.rows = 20}, {.rows = 9}};
    frugal_desc d = {.tables = tables, .n_tables = 2, .dim = 3, .max_keys = 8, .init_threads = 1};
    unsigned char *bytes;
    name_files();
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, save_one(f, base, 0, 0));
    frugal_close(f);
    write_home_file(homes_path[0], 0, 29, 3);
    options.machines = 3, options.n_homes = 1, options.homes[0] = homes_path[0];
    assert_int_equal(0, split_files(manifest_path, 1, (char *[]){base}));
    n_whole = read_file(manifest_path, &bytes);
    assert_true(n_whole <= sizeof whole);
    memcpy(whole, bytes, n_whole);
    free(bytes);
}

/* Manifest and shares that do not belong together: all are sound by themselves. */
static void test_shares(void **state) {
    manifest m;
    char path[3][LONGEST_PATH];
    unsigned char bytes[sizeof whole], *share[3];
    size_t n[3];
    (void)state;
    make_manifest();
    assert_int_equal(FRUGAL_OK, open_manifest(&m, manifest_path, &own_memory));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(0, name_share(&m, i, path[i]));
        n[i] = read_file(path[i], &share[i]);
    }
    close_manifest(&m);
    char *const only[] = {manifest_path};
    write_file(path[1], share[2], n[2]); /* another machine's */
    assert_int_equal(1, merge_files(again, 1, (char **)(uintptr_t)only));
    assert_non_null(strstr(frugal_message(), "share of machine 1 is another file"));
    assert_non_null(strstr(frugal_message(), path[1]));
    assert_int_equal(1, check_files(1, (char **)(uintptr_t)only));
    share[1][n[1] - 80] ^= 1; /* a row that is damaged */
    write_file(path[1], share[1], n[1]);
    assert_int_equal(1, check_files(1, (char **)(uintptr_t)only));
    assert_non_null(strstr(frugal_message(), "is damaged"));
    assert_int_equal(1, merge_files(again, 1, (char **)(uintptr_t)only));
    assert_non_null(strstr(frugal_message(), path[1]));
    share[1][n[1] - 80] ^= 1;
    assert_int_equal(0, remove(path[1])); /* none */
    assert_int_equal(1, merge_files(again, 1, (char **)(uintptr_t)only));
    assert_non_null(strstr(frugal_message(), path[1]));
    write_file(path[1], share[1], n[1]);
    assert_int_equal(0, check_files(1, (char **)(uintptr_t)only));
    manifest_header h; /* a row has another home than its share */
    memcpy(bytes, whole, n_whole);
    memcpy(&h, bytes, sizeof h);
    size_t homes = sizeof h + h.list_bytes;
    bytes[homes] = (unsigned char)((bytes[homes] + 1) % 3);
    h.homes_checksum = saved_sum(0, bytes + homes, n_whole - homes);
    memcpy(bytes, &h, sizeof h);
    saved_seal(bytes, n_whole);
    write_file(manifest_path, bytes, n_whole);
    assert_int_equal(1, merge_files(again, 1, (char **)(uintptr_t)only));
    assert_non_null(strstr(frugal_message(), "the home of"));
    assert_int_equal(1, check_files(1, (char **)(uintptr_t)only));
    bytes[homes] = 3; /* ... or of no machine */
    h.homes_checksum = saved_sum(0, bytes + homes, n_whole - homes);
    memcpy(bytes, &h, sizeof h);
    saved_seal(bytes, n_whole);
    write_file(manifest_path, bytes, n_whole);
    assert_int_equal(1, merge_files(again, 1, (char **)(uintptr_t)only));
    assert_non_null(strstr(frugal_message(), "row 0 has the home 3, and there are 3 machines"));
    for (int i = 0; i < 3; i++) free(share[i]);
}

static int refused_split(char *from, const char *why) {
    int files = saved_count(), status = split_files(again, 1, (char *[]){from});
    assert_int_equal(files, saved_count());
    if (status == 1 && !strstr(frugal_message(), why)) fail_msg("wanted '%s': %s", why, frugal_message());
    return status;
}

static void test_refused(void **state) {
    (void)state;
    make_manifest();
    memset(&options, 0, sizeof options);
    assert_int_equal(2, refused_split(base, ""));
    options.machines = 30; /* and 29 rows */
    assert_int_equal(1, refused_split(base, "machine 29 would have none of the 29 rows"));
    options.machines = 8, options.blocks = 1; /* in blocks of 4, the last has 1; of 9 machines the last has none */
    assert_int_equal(0, split_files(again, 1, (char *[]){base}));
    options.machines = 9, options.replace = 1;
    assert_int_equal(1, refused_split(base, "machine 8 would have none"));
    options.n_homes = 1, options.homes[0] = homes_path[0];
    assert_int_equal(2, refused_split(base, "")); /* two ways to deal */
    options.blocks = 0, options.machines = 2;
    assert_int_equal(1, refused_split(base, "has the home 2, and there are 2 machines"));
    options.machines = 3;
    write_home_file(homes_path[0], 0, 28, 3);
    assert_int_equal(1, refused_split(base, "29 homes are wanted"));
    write_file(homes_path[0], "homes", 5);
    assert_int_equal(1, refused_split(base, "none"));
    options.n_homes = 2;
    assert_int_equal(1, refused_split(base, "--homes is given 2 times"));
    options.n_homes = 0;
    assert_int_equal(1, split_files(manifest_path, 1, (char *[]){manifest_path}));
    assert_non_null(strstr(frugal_message(), "one of those that are read"));
    assert_int_equal(0, check_files(1, (char *[]){manifest_path}));
    char longest[PATH_MAX], name[MANIFEST_STEM + 1];
    memset(name, 'n', MANIFEST_STEM), name[MANIFEST_STEM] = 0;
    snprintf(longest, PATH_MAX, "%s", saved_path(name));
    assert_int_equal(1, split_files(longest, 1, (char *[]){base}));
    assert_non_null(strstr(frugal_message(), "has 200 bytes, and may have 199"));
    longest[strlen(longest) - 1] = 0;
    assert_int_equal(0, split_files(longest, 1, (char *[]){base}));
    assert_int_equal(0, check_files(1, (char *[]){longest}));
}

/* The shares of a manifest that has another name now stay; so do files that are no shares. */
static void test_renamed(void **state) {
    char other[PATH_MAX], mine[PATH_MAX];
    (void)state;
    make_manifest();
    snprintf(other, PATH_MAX, "%s", saved_path("other"));
    snprintf(mine, PATH_MAX, "%s", saved_path("manifest.1-of-3-notes"));
    assert_int_equal(0, rename(manifest_path, other));
    write_file(mine, "mine", 4);
    snprintf(mine, PATH_MAX, "%s", saved_path("manifest.1-of-3-0123456789abcdef"));
    write_file(mine, "mine", 4);
    options.machines = 2, options.n_homes = 0;
    int files = saved_count();
    assert_int_equal(0, split_files(manifest_path, 1, (char *[]){base}));
    assert_int_equal(files + 3, saved_count());
    assert_int_equal(0, check_files(1, (char *[]){other}));
    assert_int_equal(0, remove(other));
    options.replace = 1;
    assert_int_equal(0, split_files(manifest_path, 1, (char *[]){base}));
    assert_int_equal(files + 3 - 4, saved_count());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("rounds: SGD", test_rounds, FRUGAL_SGD),
        SAVED_CASE("rounds: Adagrad", test_rounds, FRUGAL_ADAGRAD),
        SAVED_CASE("rounds: row-wise Adagrad", test_rounds, FRUGAL_ROWWISE_ADAGRAD),
        SAVED_CASE("rounds: Adam, several blocks", test_rounds, LARGE + FRUGAL_ADAM),
        SAVED_CASE("rounds: Adam, bf16", test_rounds, TYPE * FRUGAL_BF16 + FRUGAL_ADAM),
        SAVED_CASE("rounds: row-wise Adagrad, fp16", test_rounds, TYPE * FRUGAL_FP16 + FRUGAL_ROWWISE_ADAGRAD),
        SAVED_TEST(test_opened),
        SAVED_TEST(test_shares),
        SAVED_TEST(test_refused),
        SAVED_TEST(test_renamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
