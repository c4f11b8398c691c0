/* test_increments.c - saves of the rows that changed: base and increments give the bits of the run that went on,
 * however many rows have changed and wherever they lie; a chain with a link missing, doubled or of another base is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/seed.h"
#include "tests/unit/host/saved.h"
#include "src/format.h"

static frugal_desc increments_desc(void) {
    frugal_desc d = rig_desc();
    d.increments = 1;
    return d;
}

static const char *chain_path(int i) {
    char entry[16];
    snprintf(entry, sizeof entry, "save%d", i);
    return saved_path(entry);
}

/* >>chains */

enum { OF_BF16 = 16, OF_FP16 = 32 }; /* added to a test's argument */

/* A base and three increments; each opens what was then, and the run goes on from there, saving more increments. */
static void test_chain(void **state) {
    int argument = (int)(intptr_t)*state;
    frugal_optimizer_kind kind = rig_optimizers[argument % OF_BF16];
    rig a = {0}, b;
    const char *paths[6];
    frugal_desc d = increments_desc();
    frugal_saved info, before = {0};
    d.optimizer.kind = kind, d.rows_as = (frugal_type)(argument / OF_BF16);
    rig_open(&a, &d);
    for (int i = 0; i < 4; i++) {
        paths[i] = chain_path(i);
        rig_train(&a, 3);
        rig_save(&a, paths[i], i > 0);
        rig_restore(&b, &d, paths, (uint32_t)i + 1);
        rig_same(&a, &b);
        rig_finish(&b, 2);
        assert_int_equal(FRUGAL_OK, frugal_read_saved(paths[i], 0, &info));
        assert_int_equal(i > 0, info.increment);
        assert_int_equal(i, info.sequence);
        assert_int_equal(3 * i + 3, info.step);
        if (i > 0) assert_true(info.parent == before.id && info.base == before.base);
        before = info;
    }
    rig_restore(&b, &d, paths, 4); /* the chain goes on from what was restored */
    rig_train(&b, 2);
    rig_save(&b, paths[4] = chain_path(4), 1);
    rig_train(&a, 2);
    rig_same(&a, &b);
    rig_finish(&b, 1);
    rig_restore(&b, &d, paths, 5);
    rig_same(&a, &b);
    rig_finish(&b, 3);
    rig_finish(&a, 3);
}

/* With workers, caches, a matrix, a file: rows are marked whoever changes them. */
static void test_whoever(void **state) {
    rig a = {0}, b;
    const char *paths[3] = {chain_path(0), chain_path(1), chain_path(2)};
    float weights[60 * 5];
    frugal_desc d = increments_desc(), plain = increments_desc();
    int which = (int)(intptr_t)*state % OF_BF16;
    d.rows_as = plain.rows_as = (frugal_type)((intptr_t)*state / OF_BF16);
    memset(weights, 0, sizeof weights);
    if (which == 0) d.workers = 2;
    if (which == 1) d.mode = FRUGAL_SYNC, d.workers = 1;
    if (which == 2) d.weights = weights;
    if (which == 3) d.file = saved_path("table");
    if (which == 4) d.defer = 1, d.lookahead = 0;
    a.cache.cache_rows = 16;
    rig_open(&a, &d);
    for (int i = 0; i < 3; i++) {
        rig_train(&a, 4);
        rig_save(&a, paths[i], i > 0);
    }
    rig_restore(&b, &plain, paths, 3);
    rig_same(&a, &b);
    rig_finish(&b, 3);
    rig_finish(&a, 3);
}

/* Rows that were written, read while dirty, and frozen ones, which never change. */
static void test_written_and_frozen(void **state) {
    (void)state;
    rig a = {0}, b;
    const char *paths[3] = {chain_path(0), chain_path(1), chain_path(2)};
    frugal_optimizer frozen = {.kind = FRUGAL_ADAGRAD, .frozen = 1};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    frugal_desc d = increments_desc();
    float row[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    uint64_t keys[2] = {39, 3};
    tables[0].optimizer = &frozen;
    d.tables = tables, d.defer = 1;
    rig_open(&a, &d);
    rig_train(&a, 2);
    rig_save(&a, paths[0], 0);
    rig_train(&a, 2);
    float all[60 * 5], all_state[60 * 5];
    rig_read(&a, all, all_state); /* flushes */
    rig_save(&a, paths[1], 1);
    unsigned char *bytes;
    size_t n = read_file(paths[1], &bytes);
    free(bytes);
    assert_true(n < 200 + 88 + 20 * (40 + 2) + 64); /* table 1 at most */
    frugal_keys k = {.table = 0, .keys = keys, .n = 2};
    assert_int_equal(FRUGAL_OK, frugal_write_rows(a.f, &k, row, row));
    rig_read(&a, a.ref.weights, a.ref.state);
    rig_save(&a, paths[2], 1);
    n = read_file(paths[2], &bytes);
    free(bytes);
    assert_int_equal(8 + 80 + 32 + 120 + 32 + 32 + 8 + 80 + 56, n);
    rig_restore(&b, &d, paths, 3);
    rig_same(&a, &b);
    rig_finish(&b, 2);
    rig_finish(&a, 2);
}

/* Nothing has changed: an increment without rows. */
static void test_empty(void **state) {
    (void)state;
    rig a = {0}, b;
    const char *paths[3] = {chain_path(0), chain_path(1), chain_path(2)};
    frugal_desc d = increments_desc();
    rig_open(&a, &d);
    rig_train(&a, 2);
    rig_save(&a, paths[0], 0);
    rig_save(&a, paths[1], 1);
    rig_save(&a, paths[2], 1);
    rig_restore(&b, &d, paths, 3);
    rig_same(&a, &b);
    rig_finish(&b, 2);
    rig_finish(&a, 2);
}

/* >>one device in place: the commit of a step closes it */

/* Every third step brings no gradients. */
static void change_to_none(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r, (void)device;
    b->brings = step % 3 != 1;
}

/* Trains a device, and saves a base and two increments, the files from `number` on. */
static void save_alone(rig *r, const frugal_desc *d, uint64_t cache_rows, int number) {
    *r = (rig){.cache.cache_rows = cache_rows, .change = change_to_none};
    rig_open(r, d);
    for (int i = 0; i < 3; i++) {
        rig_train(r, 2); /* of steps 2 and 3 both bring gradients, of 4 and 5 one */
        rig_save(r, chain_path(number + i), i > 0);
    }
}

/* Its increments have exactly the rows that have changed: the same as if steps were planned and closed, where closing
 * finds them. The files differ only in the first block, which has ids, and in the last one, which has a sum of it. */
static void test_one_in_place(void **state) {
    (void)state;
    static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};
    const size_t first = SAVED_MAGIC_BYTES + sizeof(saved_header) + sizeof(saved_file);
    const size_t last = sizeof(saved_header) + sizeof(saved_end);
    const frugal_optimizer frozen = {.kind = FRUGAL_ADAGRAD, .frozen = 1};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    frugal_desc d = increments_desc();
    tables[0].optimizer = &frozen;
    d.tables = tables, d.devices = 1;
    for (int i = 0; i < 6; i++) {
        const char *paths[3];
        rig a, b;
        d.alone = ways[i / 2];
        save_alone(&a, &d, i % 2 ? 16 : 0, 3 * i);
        for (int k = 0; k < 3; k++) {
            unsigned char *expected, *found;
            size_t n = read_file(chain_path(i % 2 * 3 + k), &expected); /* a cache counts touches, which are saved */
            assert_int_equal(n, read_file(paths[k] = chain_path(3 * i + k), &found));
            assert_memory_equal(expected + first, found + first, n - first - last);
            free(expected), free(found);
        }
        rig_restore(&b, &d, paths, 3);
        b.change = change_to_none;
        rig_same(&a, &b);
        rig_finish(&b, 2), rig_finish(&a, 2);
    }
}

/* >>which rows: every way of saying it, and how many bytes it takes */

enum { MANY = 400000 };

/* Writes rows of a table of MANY, saves them, and reads them from the files. */
static size_t check_rows_as(frugal_type type, const uint64_t *keys, uint32_t n, uint32_t dim,
                            frugal_optimizer_kind kind) {
    frugal_table table = {.rows = MANY};
    frugal_desc d = {.tables = &table,
                     .n_tables = 1,
                     .dim = dim,
                     .rows_as = type,
                     .max_keys = 1,
                     .optimizer = {.kind = kind},
                     .increments = 1,
                     .init_threads = 2};
    const char *paths[2] = {chain_path(0), chain_path(1)};
    uint32_t floats = frugal_state_floats(kind, dim);
    float *w = malloc(((size_t)n * dim + 1) * 4), *s = malloc(((size_t)n * floats + 1) * 4);
    float *all = malloc((size_t)MANY * dim * 4), *expected = calloc((size_t)MANY * dim, 4);
    for (size_t i = 0; i < (size_t)n * dim; i++) w[i] = (float)(type == FRUGAL_FP32 ? i + 1 : 1 + i % 255);
    for (size_t i = 0; i < (size_t)n * floats; i++) s[i] = -(float)(i + 1);
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, save_one(f, paths[0], 0, 1));
    frugal_keys k = {.table = 0, .keys = keys, .n = n};
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &k, w, s));
    if (save_one(f, paths[1], 1, 1) != FRUGAL_OK) fail_msg("%s", frugal_message());
    frugal_close(f);
    d.saved = paths, d.n_saved = 2;
    f = open_or_fail(&d);
    read_table(f, 0, all, NULL);
    for (uint32_t i = 0; i < n; i++) memcpy(expected + keys[i] * dim, w + (size_t)i * dim, dim * 4);
    assert_memory_equal(expected, all, (size_t)MANY * dim * 4);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, w, all));
    assert_memory_equal(s, all, (size_t)n * floats * 4);
    frugal_close(f);
    struct stat status;
    assert_int_equal(0, stat(paths[1], &status));
    free(w), free(s), free(all), free(expected);
    return (size_t)status.st_size;
}

static size_t check_rows(const uint64_t *keys, uint32_t n, uint32_t dim, frugal_optimizer_kind kind) {
    return check_rows_as(FRUGAL_FP32, keys, n, dim, kind);
}

static void test_which_rows(void **state) {
    (void)state;
    uint64_t *keys = malloc(MANY * sizeof *keys);
    uint32_t strides[] = {1, 2, 3, 17, 65, 1000, 65536, 65537, 399999};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        for (uint64_t from = 0; from < MANY; from += 1 + from * 300 + (strides[i] < 60 || SHORTER > 1 ? MANY : 0)) {
            uint32_t n = 0;
            for (uint64_t row = from; row < MANY; row += strides[i]) keys[n++] = row;
            size_t bytes = check_rows(keys, n, 4, FRUGAL_SGD);
            assert_in_range(bytes, 16 * n, 16 * n + 4 * n + 64 * (n / 64 + MANY / 65536 + 2) + 1000);
        }
    keys[0] = MANY - 1;
    check_rows(keys, 1, 1, FRUGAL_ADAM);
    check_rows(keys, 1, SHORTER > 1 ? 30 : 300, FRUGAL_ROWWISE_ADAGRAD);
    check_rows(keys, 0, 2, FRUGAL_ADAGRAD);
    for (frugal_type type = FRUGAL_BF16; type <= FRUGAL_FP16; type++) { /* weights of 3 rows, then state: unaligned */
        uint64_t three[] = {5, 8, 70000};
        size_t floats = check_rows(three, 3, 5, FRUGAL_ROWWISE_ADAGRAD);
        size_t halves = check_rows_as(type, three, 3, 5, FRUGAL_ROWWISE_ADAGRAD);
        assert_int_equal(saved_filled(3 * 24) - saved_filled(3 * 14), floats - (halves - 16)); /* 16: type and seed */
        check_rows_as(type, three, 3, 1, FRUGAL_ADAM);
    }
    free(keys);
}

/* Clusters and lone rows, at random. */
static void test_clusters(void **state) {
    (void)state;
    uint64_t *keys = malloc(MANY * sizeof *keys);
    for (uint64_t seed = 0; seed < 6; seed++) {
        uint32_t n = 0;
        test_random random = {.seed = seed};
        for (uint64_t row = test_below(&random, 70); row < MANY;) {
            uint64_t run = test_below(&random, seed % 2 ? 5 : 5000);
            for (uint64_t i = 0; i <= run && row < MANY; i++, row += 1 + test_below(&random, 3)) keys[n++] = row;
            row += test_below(&random, seed < 3 ? 100000 : 3000);
        }
        check_rows(keys, n, 3, FRUGAL_ROWWISE_ADAGRAD);
    }
    free(keys);
}

/* At most 1.1 times the bytes of the rows, and a MB: rows of 64 bytes and more, few, many and all. */
static void test_overhead(void **state) {
    (void)state;
    uint64_t *keys = malloc(MANY * sizeof *keys);
    for (uint32_t part = 1; part <= 1000; part *= 10) {
        uint32_t n = 0;
        for (uint64_t row = 0; row < MANY; row++)
            if (test_mix(row) % part == 0) keys[n++] = row;
        size_t bytes = check_rows(keys, n, 16, FRUGAL_SGD);
        assert_in_range(bytes, 64 * n, 64 * n + 64 * n / 10);
    }
    free(keys);
}

/* >>refused */

static void test_without(void **state) {
    (void)state;
    rig r = {0}, other = {0};
    frugal_desc d = increments_desc(), plain = rig_desc();
    rig_open(&r, &plain);
    assert_fails(FRUGAL_ERR_ARGUMENT, save_one(r.f, chain_path(0), 1, 0), "without `increments`", "save a base");
    assert_int_equal(FRUGAL_OK, save_one(r.f, chain_path(0), 0, 0));
    assert_fails(FRUGAL_ERR_ARGUMENT, save_one(r.f, chain_path(1), 1, 0), "without `increments`", "save a base");
    rig_finish(&r, 1);
    rig_open(&other, &d);
    assert_fails(FRUGAL_ERR_ARGUMENT, save_one(other.f, chain_path(1), 1, 0), "save a base first", "instance 0");
    assert_int_equal(1, saved_count());
    frugal_stats stats, without;
    frugal_get_stats(other.f, &stats);
    rig_finish(&other, 1);
    memset(&other, 0, sizeof other);
    rig_open(&other, &plain);
    frugal_get_stats(other.f, &without);
    assert_int_equal(without.state_bytes + 8, stats.state_bytes); /* 60 bits in a word */
    assert_int_equal(without.other_bytes, stats.other_bytes);
    rig_finish(&other, 1);
}

static void check_open(const frugal_desc *desc, const char *const *saved, uint32_t n, frugal_status wanted,
                       const char *text1, const char *text2) {
    frugal_desc d = *desc;
    test_counter counter = {0};
    frugal *f;
    d.saved = saved, d.n_saved = n;
    d.allocate = test_allocate, d.release = test_release, d.user = &counter;
    expect_failure(wanted, frugal_open(&d, &f), text1, text2, "frugal_open", __LINE__);
    frugal_close(f);
    assert_int_equal(0, (int)counter.blocks_out);
}

static void test_chain_of_others(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = increments_desc();
    const char *p[5] = {chain_path(0), chain_path(1), chain_path(2), chain_path(3), chain_path(4)};
    rig_open(&a, &d);
    for (int i = 0; i < 5; i++) { /* 0: base, 1, 2: its increments; 3: base, 4: its increment */
        rig_train(&a, 1);
        rig_save(&a, p[i], i != 0 && i != 3);
    }
    const char *missing[] = {p[0], p[2]}, *doubled[] = {p[0], p[1], p[1]}, *turned[] = {p[0], p[2], p[1]};
    const char *baseless[] = {p[1], p[2]}, *others[] = {p[0], p[4]}, *two[] = {p[0], p[3]}, *again[] = {p[0], p[0]};
    const char *third[] = {p[3], p[1]}, *none[] = {p[0], NULL}, *lost[] = {p[0], "/not/there"};
    check_open(&d, missing, 2, FRUGAL_ERR_FILE, "number 2 of its base", "in order");
    check_open(&d, doubled, 3, FRUGAL_ERR_FILE, "number 1 of its base", "in order");
    check_open(&d, turned, 3, FRUGAL_ERR_FILE, "number 2 of its base", "in order");
    check_open(&d, baseless, 2, FRUGAL_ERR_FILE, "is increment 1", "name its base");
    check_open(&d, others, 2, FRUGAL_ERR_FILE, "another base", p[4]);
    check_open(&d, third, 2, FRUGAL_ERR_FILE, "another base", p[1]);
    check_open(&d, two, 2, FRUGAL_ERR_FILE, "a base comes after the first", p[3]);
    check_open(&d, again, 2, FRUGAL_ERR_FILE, "a base comes after the first", p[0]);
    check_open(&d, none, 2, FRUGAL_ERR_ARGUMENT, "saved[1] of 2", "NULL");
    check_open(&d, NULL, 2, FRUGAL_ERR_ARGUMENT, "n_saved is 2", "NULL");
    check_open(&d, lost, 2, FRUGAL_ERR_FILE, "No such file", "/not/there");
    /* two increments of the same number and base, by runs that parted: the second belongs to the other */
    rig b = {0};
    rig_restore(&b, &d, p, 2);
    rig_train(&b, 1);
    rig_save(&b, saved_path("parted"), 1);
    rig_train(&b, 1);
    rig_save(&b, saved_path("parted_on"), 1);
    rig_finish(&b, 0);
    const char *parted[] = {p[0], p[1], p[2], saved_path("parted_on")};
    check_open(&d, parted, 4, FRUGAL_ERR_FILE, "number 3 of its base", "parted_on");
    rig_finish(&a, 1);
}

/* An increment may not take the place of what it builds upon. */
static void test_replacing_its_own(void **state) {
    (void)state;
    rig a = {0}, b;
    frugal_desc d = increments_desc();
    const char *p[3] = {chain_path(0), chain_path(1), chain_path(2)};
    rig_open(&a, &d);
    rig_save(&a, chain_path(9), 0);
    for (int i = 0; i < 2; i++) rig_train(&a, 2), rig_save(&a, p[i], i > 0);
    rig_train(&a, 2);
    rig_drain(&a);
    assert_fails(FRUGAL_ERR_FILE, save_one(a.f, p[0], 1, 1), "number 0 of its own base", "another name");
    assert_fails(FRUGAL_ERR_FILE, save_one(a.f, p[1], 1, 1), "number 1 of its own base", "another name");
    assert_fails(FRUGAL_ERR_FILE, save_one(a.f, p[1], 1, 0), "File exists", "another name");
    assert_int_equal(FRUGAL_OK, save_one(a.f, chain_path(9), 1, 1)); /* an older base may go */
    p[2] = chain_path(9);
    rig_restore(&b, &d, p, 3);
    rig_same(&a, &b);
    rig_finish(&b, 1);
    rig_finish(&a, 1);
}

/* >>sets */

static void test_sets(void **state) {
    (void)state;
    rig a[2] = {{0}, {0}}, b[2];
    frugal_desc d[2] = {increments_desc(), increments_desc()};
    const char *p[2] = {chain_path(0), chain_path(1)};
    d[1].dim = 9, d[1].optimizer.kind = FRUGAL_ADAM;
    for (int i = 0; i < 2; i++) rig_open(&a[i], &d[i]), rig_train(&a[i], 3), rig_drain(&a[i]);
    frugal *f[2] = {a[0].f, a[1].f}, *turned[2] = {a[1].f, a[0].f};
    frugal_save_desc base = {.path = p[0]}, increment = {.path = p[1], .increment = 1};
    frugal_save_desc lone = {.path = saved_path("lone")};
    assert_int_equal(FRUGAL_OK, frugal_save(f, 2, &base));
    for (int i = 0; i < 2; i++) rig_train(&a[i], 3), rig_drain(&a[i]);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(turned, 2, &increment), "in this order", "was 1 of 2");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(f, 1, &increment), "1 instances", "was 0 of 2");
    assert_int_equal(FRUGAL_OK, frugal_save(f, 2, &increment));
    for (uint32_t i = 0; i < 2; i++) {
        d[i].saved_part = i;
        rig_restore(&b[i], &d[i], p, 2);
        rig_same(&a[i], &b[i]);
        rig_finish(&b[i], 2);
    }
    assert_int_equal(FRUGAL_OK, frugal_save(f, 1, &lone));
    increment.path = saved_path("later");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(f, 2, &increment), "by one call", "save those, or a base");
    rig c = {0}; /* of two sets */
    rig_open(&c, &d[0]);
    rig_drain(&c);
    base.path = saved_path("first"), lone.path = saved_path("second");
    assert_int_equal(FRUGAL_OK, frugal_save(f, 2, &base));
    assert_int_equal(FRUGAL_OK, frugal_save((frugal *[]){c.f, a[1].f}, 2, &lone));
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(f, 2, &increment), "by one call", "instance 1 was 1 of 2");
    rig_finish(&c, 1);
    for (int i = 0; i < 2; i++) rig_finish(&a[i], 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define CHAIN(kind, word, name, ...) SAVED_CASE("chain, " name, test_chain, FRUGAL_##kind),
        FRUGAL_OPTIMIZERS(CHAIN) SAVED_CASE("workers", test_whoever, 0),
        SAVED_CASE("write-through", test_whoever, 1),
        SAVED_CASE("the caller's matrix", test_whoever, 2),
        SAVED_CASE("a file", test_whoever, 3),
        SAVED_CASE("flushed as steps are closed", test_whoever, 4),
        SAVED_CASE("chain, bf16, SGD", test_chain, OF_BF16 + FRUGAL_SGD),
        SAVED_CASE("chain, fp16, Adam", test_chain, OF_FP16 + FRUGAL_ADAM),
        SAVED_CASE("workers, fp16", test_whoever, OF_FP16 + 0),
        SAVED_CASE("the caller's matrix, bf16", test_whoever, OF_BF16 + 2),
        SAVED_CASE("a file, bf16", test_whoever, OF_BF16 + 3),
        SAVED_TEST(test_written_and_frozen),
        SAVED_TEST(test_empty),
        SAVED_TEST(test_one_in_place),
        SAVED_TEST(test_which_rows),
        SAVED_TEST(test_clusters),
        SAVED_TEST(test_overhead),
        SAVED_TEST(test_without),
        SAVED_TEST(test_chain_of_others),
        SAVED_TEST(test_replacing_its_own),
        SAVED_TEST(test_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
