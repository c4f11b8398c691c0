/* test_merge.c - frugal_file merges a base and increments of several instances into a base that opens as they do, and
 * that later increments continue; it checks whole chains.
 *
 * The program is compiled into this one, with the library in it. Do not link frugal_flush.o. */
#include "inside.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/saved.h"

enum { SAVES = 4 };
static char paths[SAVES + 1][PATH_MAX]; /* a base, its increments; what is merged */

enum { TYPE = 32 };  /* times a type, of the second instance: added to a test's argument, as */
enum { LARGE = 16 }; /* rows of 480 KB: blocks of the base have 8 of them, and blocks of increments others */

/* Two instances that train three steps between saves; the references of both at the end. */
static void make_chain_as(rig *a, frugal_desc *d, uint32_t dim, frugal_type type) {
    for (int i = 0; i <= SAVES; i++) snprintf(paths[i], PATH_MAX, "%s", saved_path((char[]){(char)('a' + i), 0}));
    for (int i = 0; i < 2; i++) {
        memset(&a[i], 0, sizeof a[i]);
        d[i] = rig_desc();
        d[i].increments = 1;
        if (i == 1) d[i].dim = dim, d[i].optimizer.kind = FRUGAL_ADAM, d[i].reduce = FRUGAL_MEAN, d[i].rows_as = type;
        if (i == 1 && type == FRUGAL_FP16) d[i].rounding = FRUGAL_NEAREST;
        rig_open(&a[i], &d[i]);
        d[i].saved_part = (uint32_t)i; /* where it is restored */
    }
    for (int s = 0; s < SAVES; s++) {
        for (int i = 0; i < 2; i++) rig_train(&a[i], 3 + i), rig_drain(&a[i]);
        frugal_save_desc desc = {.path = paths[s], .increment = s > 0};
        assert_int_equal(FRUGAL_OK, frugal_save((frugal *[]){a[0].f, a[1].f}, 2, &desc));
    }
}

static void make_chain(rig *a, frugal_desc *d, uint32_t dim) {
    make_chain_as(a, d, dim, FRUGAL_FP32);
}

static void check_opens(rig *a, const frugal_desc *d, const char *const *saved, uint32_t n) {
    rig b;
    for (int i = 0; i < 2; i++) {
        rig_restore(&b, &d[i], saved, n);
        rig_same(&a[i], &b);
        rig_free(&b);
    }
}

static void test_merged(void **state) {
    rig a[2];
    frugal_desc d[2];
    frugal_saved info, last;
    int kind = (int)(intptr_t)*state, merged = kind % LARGE; /* files; the others come behind */
    frugal_type type = (frugal_type)(kind / TYPE);
    char *chain[SAVES] = {paths[0], paths[1], paths[2], paths[3]};
    make_chain_as(a, d, kind & LARGE ? 40000 : 17, type);
    assert_int_equal(0, merge_files(paths[SAVES], merged, chain));
    assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[SAVES], 1, &info));
    assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[merged - 1], 1, &last));
    assert_int_equal(0, info.increment);
    assert_int_equal(2, info.parts);
    assert_true(info.id == last.id && info.base == last.base && info.sequence == last.sequence && info.parent == 0);
    assert_int_equal(last.step, info.step);
    assert_true(info.rows_as == type && info.rounding == d[1].rounding && info.seed == last.seed);
    const char *saved[SAVES] = {paths[SAVES], NULL};
    for (int i = merged; i < SAVES; i++) saved[1 + i - merged] = paths[i];
    check_opens(a, d, saved, (uint32_t)(1 + SAVES - merged));
    assert_int_equal(0, check_files(1 + SAVES - merged, (char **)(uintptr_t)saved));
    assert_int_equal(1, merge_files(paths[SAVES], merged, chain)); /* it is there */
    assert_int_equal(SAVES + 1, saved_count());
    for (int i = 0; i < 2; i++) rig_finish(&a[i], 1);
}

static void test_chains(void **state) {
    (void)state;
    rig a[2];
    frugal_desc d[2];
    make_chain(a, d, 17);
    char *whole[] = {paths[0], paths[1], paths[2], paths[3]}, *missing[] = {paths[0], paths[2]};
    printed[0] = 0;
    assert_int_equal(0, check_files(4, whole));
    assert_non_null(strstr(printed, "d: whole\nthey are a base and its increments, in order\n"));
    assert_int_equal(0, check_files(1, whole + 2)); /* by itself */
    assert_int_equal(1, check_files(2, missing));
    assert_non_null(strstr(frugal_message(), "number 2 of its base"));
    assert_int_equal(1, merge_files(paths[SAVES], 2, missing));
    assert_int_equal(1, merge_files(paths[SAVES], 1, whole + 1));
    assert_non_null(strstr(frugal_message(), "name its base"));
    assert_int_equal(SAVES, saved_count());
    unsigned char *bytes;
    size_t n = read_file(paths[1], &bytes); /* damage in the second instance is found, too */
    bytes[n - 200] ^= 4;
    write_file(paths[1], bytes, n);
    free(bytes);
    assert_int_equal(1, check_files(4, whole));
    assert_non_null(strstr(frugal_message(), "is damaged"));
    assert_int_equal(1, merge_files(paths[SAVES], 4, whole));
    assert_int_equal(SAVES, saved_count());
    for (int i = 0; i < 2; i++) rig_finish(&a[i], 1);
}

static void test_shown(void **state) {
    (void)state;
    rig a[2];
    frugal_desc d[2];
    make_chain(a, d, 17);
    char command[] = "frugal_file", show[] = "show", *argv[] = {command, show, paths[0], paths[1], NULL};
    printed[0] = 0;
    assert_int_equal(0, frugal_file_main(4, argv));
    assert_non_null(strstr(printed, "  instance 0 of 2: next step 3, 60 rows of 5 floats and 5 of state, Adagrad, 2 "));
    assert_non_null(strstr(printed, "    table 1: 20 rows, eps 1e-08, betas 0.9 0.999\n"));
    assert_non_null(strstr(printed, "b: increment 1 of base "));
    assert_int_equal(2, frugal_file_main(2, argv));
    for (int i = 0; i < 2; i++) rig_finish(&a[i], 1);
}

/* to-npy has them as floats: those of table 1 of instance 1. */
static void check_array(const rig *a) {
    enum { HEADER = 128, FIRST = 40, N = 20, DIM = 17 };
    const char *folder = saved_path("arrays");
    static const char *const names[] = {"weights-0-0", "weights-0-1", "weights-1-0", "weights-1-1",
                                        "state-0-0",   "state-0-1",   "state-1-0",   "state-1-1"};
    unsigned char *bytes;
    char path[PATH_MAX];
    assert_int_equal(0, mkdir(folder, 0777));
    assert_int_equal(0, make_arrays(folder, SAVES, (char *[]){paths[0], paths[1], paths[2], paths[3]}));
    snprintf(path, sizeof path, "%s/weights-1-1.npy", folder);
    assert_int_equal(HEADER + N * DIM * sizeof(float), read_file(path, &bytes));
    assert_non_null(strstr((char *)bytes + 10, "'<f4'"));
    assert_memory_equal(a[1].ref.weights + FIRST * DIM, bytes + HEADER, N * DIM * sizeof(float));
    free(bytes);
    snprintf(path, sizeof path, "%s/state-1-1.npy", folder);
    assert_int_equal(HEADER + N * 2 * DIM * sizeof(float), read_file(path, &bytes));
    assert_memory_equal(a[1].ref.state + FIRST * 2 * DIM, bytes + HEADER, N * 2 * DIM * sizeof(float));
    free(bytes);
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "%s/%s.npy", folder, names[i]);
        assert_int_equal(0, remove(path));
    }
    assert_int_equal(0, rmdir(folder));
}

/* What is told of types, and rows that are not finite, of each by its own bits. A bf16 weight of 0x7c00 is finite. */
static void test_halves(void **state) {
    (void)state;
    rig a[2];
    frugal_desc d[2];
    char command[] = "frugal_file", show[] = "show", *argv[] = {command, show, paths[0], NULL};
    for (frugal_type type = FRUGAL_BF16; type <= FRUGAL_FP16; type++) {
        const char *words[] = {"", "bf16", "fp16"};
        float row[17] = {[3] = type == FRUGAL_BF16 ? 0x1p121f : INFINITY};
        uint64_t key = 7;
        char text[128];
        make_chain_as(a, d, 17, type);
        printed[0] = 0;
        assert_int_equal(0, frugal_file_main(3, argv));
        snprintf(text, sizeof text, "60 rows of 17 %s and 34 floats of state, Adam, 2 devices by mean, rounded %s\n",
                 words[type], type == FRUGAL_BF16 ? "stochastically by seed 7" : "to the nearest");
        assert_non_null(strstr(printed, text));
        assert_non_null(strstr(printed, "60 rows of 5 floats and 5 of state, Adagrad, 2 devices by sum\n"));
        check_array(a);
        frugal_keys k = {.table = 0, .keys = &key, .n = 1};
        assert_int_equal(FRUGAL_OK, frugal_write_rows(a[1].f, &k, row, NULL));
        frugal_save_desc desc = {.path = paths[SAVES]};
        assert_int_equal(FRUGAL_OK, frugal_save((frugal *[]){a[0].f, a[1].f}, 2, &desc));
        printed[0] = 0;
        assert_int_equal(0, check_files(1, (char *[]){paths[SAVES]}));
        int is_told = strstr(printed, "e: 1 rows have NaN or infinity; the first is row 7,") != NULL;
        assert_int_equal(type == FRUGAL_FP16, is_told);
        for (int i = 0; i < 2; i++) rig_free(&a[i]);
        for (int i = 0; i <= SAVES; i++) assert_int_equal(0, remove(paths[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_CASE("a base and two increments, one comes later", test_merged, 3),
        SAVED_CASE("a base and an increment, two come later", test_merged, 2),
        SAVED_CASE("all of a chain", test_merged, 4),
        SAVED_CASE("several blocks", test_merged, LARGE + 4),
        SAVED_CASE("fp32 and bf16", test_merged, TYPE * FRUGAL_BF16 + 3),
        SAVED_CASE("fp32 and fp16, several blocks", test_merged, TYPE * FRUGAL_FP16 + LARGE + 4),
        SAVED_TEST(test_chains),
        SAVED_TEST(test_shown),
        SAVED_TEST(test_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
