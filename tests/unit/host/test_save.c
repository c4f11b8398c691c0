/* test_save.c - an instance that is opened from a save trains the bits of the one that went on, whatever else differs;
 * several are saved as one; what frugal_save refuses, and what it leaves as it was. Chains are in test_increments.c,
 * damaged files in test_restore.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/unit/host/saved.h"
#include "src/format.h"

/* >>same bits: resumed and unbroken */

/* Trains, saves, trains on; another instance as `again` says is opened from the save and trains as far. */
static void check_resumed(const frugal_desc *first, const frugal_desc *again, frugal_cpu_desc cache) {
    rig a = {0}, b;
    const char *path = saved_path("save");
    rig_open(&a, first);
    rig_train(&a, 7);
    rig_save(&a, path, 0);
    frugal_desc d = *again;
    d.saved = &path, d.n_saved = 1;
    memset(&b, 0, sizeof b);
    b.cache = cache;
    rig_open(&b, &d);
    assert_int_equal(7, frugal_settings(b.f)->first_step);
    assert_int_equal(0, frugal_settings(b.f)->n_saved);
    assert_null(frugal_settings(b.f)->saved);
    rig_same(&a, &b);
    rig_train(&a, 9);
    rig_train(&b, 9);
    rig_same(&a, &b);
    rig_finish(&a, 0);
    rig_finish(&b, 0);
    assert_int_equal(0, remove(path));
}

static void test_optimizers(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++)
        for (uint32_t dim = 1; dim <= 40; dim += dim < 9 ? 1 : 7) {
            frugal_desc d = rig_desc();
            d.optimizer.kind = rig_optimizers[i], d.dim = dim;
            check_resumed(&d, &d, (frugal_cpu_desc){0});
        }
}

/* Nothing that does not change bits needs to be as it was. */
static void test_otherwise(void **state) {
    (void)state;
    frugal_desc d = rig_desc(), e = rig_desc();
    d.optimizer.kind = e.optimizer.kind = FRUGAL_ADAM;
    e.workers = 2, e.lookahead = 0, e.staging = 1, e.init_threads = 3;
    check_resumed(&d, &e, (frugal_cpu_desc){.cache_rows = 16});
    check_resumed(&e, &d, (frugal_cpu_desc){.cache_rows = 8, .policy = FRUGAL_CACHE_COUNTED});
    e.mode = FRUGAL_SYNC, e.lookahead = 7, e.seed = 99;
    check_resumed(&d, &e, (frugal_cpu_desc){0});
}

/* Several tables, each with settings of its own, one of them frozen. */
static void test_tables(void **state) {
    (void)state;
    frugal_optimizer frozen = {.kind = FRUGAL_ADAGRAD, .frozen = 1};
    frugal_optimizer slow = {.kind = FRUGAL_ADAGRAD, .lr_scale = 0.5f, .weight_decay = 0.01f, .eps = 1e-6f};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    frugal_desc d = rig_desc();
    d.tables = tables;
    tables[0].optimizer = &slow;
    check_resumed(&d, &d, (frugal_cpu_desc){0});
    tables[1].optimizer = &frozen;
    check_resumed(&d, &d, (frugal_cpu_desc){.cache_rows = 8});
}

static void test_devices_reduced_by_mean(void **state) {
    (void)state;
    frugal_desc d = rig_desc();
    d.devices = 3, d.reduce = FRUGAL_MEAN;
    check_resumed(&d, &d, (frugal_cpu_desc){0});
}

/* Weights of 16 bits, of rows with an odd number of bytes behind them, too: kept in a cache, and in a file that is made
 * and then there. */
static void test_types(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++)
        for (uint32_t dim = 1; dim <= 5; dim += 4)
            for (frugal_type type = FRUGAL_BF16; type <= FRUGAL_FP16; type++) {
                frugal_desc d = rig_desc(), e = rig_desc();
                d.optimizer.kind = e.optimizer.kind = rig_optimizers[i], d.dim = e.dim = dim;
                d.rows_as = e.rows_as = type;
                d.rounding = e.rounding = i % 2 ? FRUGAL_NEAREST : FRUGAL_STOCHASTIC;
                if (d.rounding == FRUGAL_NEAREST) e.seed++; /* draws nothing any more */
                e.alone = FRUGAL_ALONE_KEPT, e.workers = 1;
                check_resumed(&d, &e, (frugal_cpu_desc){.cache_rows = 16});
                e.file = saved_path("table"), e.alone = FRUGAL_ALONE_STAGED;
                check_resumed(&d, &e, (frugal_cpu_desc){0});
                check_resumed(&e, &d, (frugal_cpu_desc){0});
                check_resumed(&d, &e, (frugal_cpu_desc){0}); /* over rows that are there */
                assert_int_equal(0, remove(saved_path("table")));
            }
}

/* From memory to a file and back, and into the caller's matrix, whose other bytes stay. */
static void test_places(void **state) {
    (void)state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        enum { STRIDE = 7, STATE = 13 };
        float weights[60 * STRIDE], states[60 * STATE];
        frugal_desc memory = rig_desc(), file = rig_desc(), matrix = rig_desc();
        memory.optimizer.kind = file.optimizer.kind = matrix.optimizer.kind = rig_optimizers[i];
        file.file = saved_path("table");
        matrix.weights = weights, matrix.weights_stride = STRIDE;
        if (i > 1) matrix.state = states, matrix.state_stride = STATE;
        for (int k = 0; k < 60 * STRIDE; k++) weights[k] = 5;
        for (int k = 0; k < 60 * STATE; k++) states[k] = 6;
        if (i > 0) write_file(file.file, "", 0); /* as none */
        check_resumed(&memory, &file, (frugal_cpu_desc){0});
        check_resumed(&file, &memory, (frugal_cpu_desc){0});
        check_resumed(&memory, &file, (frugal_cpu_desc){0}); /* into one that is there */
        check_resumed(&file, &matrix, (frugal_cpu_desc){0});
        for (int k = 0; k < 60 * STRIDE; k++) assert_true(k % STRIDE < 5 || weights[k] == 5);
        for (int k = 0; k < 60 * STATE; k++)
            assert_true((i > 1 && k % STATE < (int)frugal_state_floats(rig_optimizers[i], 5)) || states[k] == 6);
        assert_int_equal(0, remove(saved_path("table")));
    }
    enum { HALVES = 7 };
    uint16_t halves[60 * HALVES];
    frugal_desc memory = rig_desc(), matrix = rig_desc();
    memory.rows_as = matrix.rows_as = FRUGAL_FP16;
    matrix.weights = halves, matrix.weights_stride = HALVES;
    for (int k = 0; k < 60 * HALVES; k++) halves[k] = 5;
    check_resumed(&memory, &matrix, (frugal_cpu_desc){0});
    for (int k = 0; k < 60 * HALVES; k++) assert_true(k % HALVES < 5 || halves[k] == 5);
}

/* Rows of more than a block, and so many that a base has several blocks and threads. */
static void test_large(void **state) {
    (void)state;
    frugal_table table = {.rows = 300, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1};
    frugal_desc d = rig_desc();
    d.tables = &table, d.n_tables = 1, d.dim = 30011, d.devices = 1, d.init_threads = 4;
    check_resumed(&d, &d, (frugal_cpu_desc){0});
    table.rows = 3, d.dim = 65536, d.optimizer.kind = FRUGAL_ADAM; /* 786432 bytes a row */
    check_resumed(&d, &d, (frugal_cpu_desc){0});
}

/* What is said of the tables takes more room than a block of rows. */
static void test_many_tables(void **state) {
    (void)state;
    enum { TABLES = 120000 };
    frugal_table *tables = calloc(TABLES, sizeof *tables);
    const char *path = saved_path("save");
    frugal_desc d = {.tables = tables, .n_tables = TABLES, .dim = 16, .max_keys = 1, .first_step = 9};
    uint64_t key = 0;
    float row[16] = {1, 2, 3}, found[16];
    frugal_keys k = {.table = TABLES - 1, .keys = &key, .n = 1};
    for (int t = 0; t < TABLES; t++) tables[t].rows = 1;
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &k, row, NULL));
    assert_int_equal(FRUGAL_OK, save_one(f, path, 0, 0));
    frugal_close(f);
    d.saved = &path, d.n_saved = 1; /* first_step is what the save has */
    f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, found, NULL));
    assert_memory_equal(row, found, sizeof row);
    frugal_close(f);
    free(tables);
}

/* Steps announced are not part of a save, and stay announced. */
static void test_announced(void **state) {
    (void)state;
    rig a = {0}, b;
    const char *path = saved_path("save");
    frugal_desc d = rig_desc();
    rig_open(&a, &d);
    rig_train(&a, 3);
    for (int i = 0; i < 2; i++)
        for (uint32_t dev = 0; dev < 2; dev++) rig_announce(&a, dev);
    rig_save(&a, path, 0);
    rig_restore(&b, &d, &path, 1);
    rig_train(&a, 6);
    rig_train(&b, 6);
    rig_same(&a, &b);
    rig_finish(&a, 0);
    rig_finish(&b, 0);
}

/* The same rows give the same file, but for the ids. */
static void test_bytes(void **state) {
    (void)state;
    rig a = {0};
    frugal_desc d = rig_desc();
    unsigned char *one, *two;
    rig_open(&a, &d);
    rig_train(&a, 3);
    rig_save(&a, saved_path("one"), 0);
    rig_save(&a, saved_path("two"), 0);
    size_t n = read_file(saved_path("one"), &one), m = read_file(saved_path("two"), &two);
    assert_int_equal(n, m);
    assert_int_equal(8 + 32 + 48 + 32 + 40 + 2 * 40 + 32 + 32 + 60 * 40 + 32 + 24, n);
    assert_memory_equal("\x89"
                        "FRUGAL\nFRGB",
                        one, 12);
    assert_memory_equal(one + 88, two + 88, n - 88 - 56); /* behind the first block, before the end */
    assert_true(memcmp(one + 48, two + 48, 8) != 0);      /* the id */
    free(one), free(two);
    rig_finish(&a, 1);
}

/* Rows of 5 weights of 16 bits and 5 floats of state, as they lie in memory, one after the other; their type, rounding
 * and seed stand before the tables. */
static void test_bytes_of_16_bits(void **state) {
    (void)state;
    enum { PART = 8 + 32 + 48 + 32, ROWS_AT = PART + 56 + 2 * 40 + 32 + 32, N = 60 };
    for (int nearest = 0; nearest < 2; nearest++) {
        rig a = {0};
        frugal_desc d = rig_desc();
        d.rows_as = FRUGAL_FP16, d.rounding = nearest ? FRUGAL_NEAREST : FRUGAL_STOCHASTIC;
        d.seed = 0x1234567812345678;
        unsigned char *bytes;
        const char *path = saved_path(nearest ? "nearest" : "stochastic");
        rig_open(&a, &d);
        rig_train(&a, 3);
        rig_save(&a, path, 0);
        size_t n = read_file(path, &bytes);
        assert_int_equal(ROWS_AT + N * (10 + 20) + 32 + 24, n);
        assert_true(bytes[40] == 2 && bytes[PART + 40] == FRUGAL_FP16 && bytes[PART + 44] == nearest);
        uint64_t seed = nearest ? 0 : d.seed;
        assert_memory_equal(&seed, bytes + PART + 48, 8);
        const frugal_store *s = frugal_get_store(a.f);
        for (uint32_t row = 0; row < N; row++) {
            assert_memory_equal(frugal_row_at(s, row), bytes + ROWS_AT + 10 * row, 10);
            assert_memory_equal(s->state + row * s->state_stride, bytes + ROWS_AT + N * 10 + 20 * row, 20);
        }
        free(bytes);
        rig_finish(&a, 1);
    }
}

/* >>other types: the rows are converted, and the caller is told */

static char told[512];

static void tell(const char *text, void *user) {
    size_t used = strlen(told);
    (void)user;
    snprintf(told + used, sizeof told - used, "%s\n", text);
}

/* Rows of `then`, as an instance of `now` has them: the nearest of each weight, and the state as it was. */
static void check_converted(frugal_type then, frugal_type now) {
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    rig a = {0}, b = {0};
    const char *path = saved_path("save");
    frugal_desc d = rig_desc(), e = rig_desc();
    char text[128];
    d.rows_as = then, e.rows_as = now, e.seed++; /* of a save of another type the seed does not matter */
    if (now != FRUGAL_FP32) e.rounding = FRUGAL_NEAREST;
    rig_open(&a, &d);
    rig_train(&a, 5);
    rig_save(&a, path, 0);
    e.increments = 1, e.saved = &path, e.n_saved = 1, e.notice = tell, told[0] = 0;
    rig_open(&b, &e);
    snprintf(text, sizeof text, "open: weights are %s in the save and %s in this instance: %s\n", words[then],
             words[now], now == FRUGAL_FP32 ? "they were widened, which is exact" : "each was rounded to the nearest");
    assert_string_equal(text, told);
    for (uint32_t i = 0; i < 60 * 5; i++) {
        float wanted = reference_round((int)now, a.ref.weights[i], -1);
        assert_memory_equal(&wanted, &b.ref.weights[i], sizeof wanted);
    }
    assert_memory_equal(a.ref.state, b.ref.state, 60 * 5 * sizeof(float));
    assert_fails(FRUGAL_ERR_ARGUMENT, save_one(b.f, saved_path("increment"), 1, 0), words[now], words[then]);
    assert_non_null(strstr(frugal_message(), "of the same type"));
    rig_train(&b, 3);
    rig_save(&b, saved_path("base"), 0);
    rig_train(&b, 3);
    rig_save(&b, saved_path("increment"), 1);
    rig_finish(&a, 0), rig_finish(&b, 0);
    assert_int_equal(0, remove(path) | remove(saved_path("base")) | remove(saved_path("increment")));
}

static void test_converted(void **state) {
    (void)state;
    for (frugal_type then = FRUGAL_FP32; then <= FRUGAL_FP16; then++)
        for (frugal_type now = FRUGAL_FP32; now <= FRUGAL_FP16; now++)
            if (then != now) check_converted(then, now);
}

/* Weights that the type does not have: the caller is told which rows are not finite then; of a chain, those of its
 * end. */
static void test_converted_to_infinity(void **state) {
    (void)state;
    const char *const path[2] = {saved_path("save"), saved_path("increment")};
    frugal_desc d = rig_desc();
    const uint64_t keys[3] = {2, 5, 19};
    const frugal_keys k = {.table = 1, .keys = keys, .n = 3};
    const float rows[15] = {[1] = 65520, [5] = INFINITY, [14] = -1e6f};
    float found[15];
    d.increments = 1;
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &k, rows, NULL));
    assert_int_equal(FRUGAL_OK, save_one(f, path[0], 0, 0));
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &k, (const float[15]){1, 2, 3}, NULL));
    assert_int_equal(FRUGAL_OK, save_one(f, path[1], 1, 0));
    frugal_close(f);
    d.saved = path, d.n_saved = 1, d.notice = tell, told[0] = 0;
    d.rows_as = FRUGAL_BF16; /* has them */
    frugal_close(open_or_fail(&d));
    assert_null(strstr(told, "infinite"));
    d.rows_as = FRUGAL_FP16;
    f = open_or_fail(&d);
    assert_non_null(strstr(told,
                           "open: weights of the save beyond the largest fp16 have become infinite: 3 rows are not "
                           "finite, with those that were not before; the first is row 42, counted through all tables"));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, found, NULL));
    assert_true(found[1] == INFINITY && found[5] == INFINITY && found[14] == -INFINITY && found[0] == 0);
    frugal_close(f);
    d.n_saved = 2, told[0] = 0;
    frugal_close(open_or_fail(&d));
    assert_non_null(strstr(told, "weights are fp32 in the save and fp16"));
    assert_null(strstr(told, "infinite"));
    assert_int_equal(0, remove(path[0]) | remove(path[1]));
}

/* >>sets: instances that were saved as one */

/* Argument 1: each of another type. */
static void test_set(void **state) {
    enum { N = 3 };
    int typed = *state != NULL;
    rig a[N], b[N];
    frugal *instances[N];
    frugal_workers *workers;
    frugal_saved info;
    const char *path = saved_path("set");
    memset(a, 0, sizeof a);
    assert_int_equal(FRUGAL_OK, frugal_workers_open(2, &workers));
    for (int i = 0; i < N; i++) {
        frugal_desc d = rig_desc();
        d.shared_workers = workers, d.dim = 5 + 20 * (uint32_t)i, d.optimizer.kind = rig_optimizers[i + 1];
        if (typed) d.rows_as = (frugal_type)i;
        rig_open(&a[i], &d);
        rig_train(&a[i], 5 + i);
        rig_drain(&a[i]);
        instances[i] = a[i].f;
    }
    frugal_save_desc desc = {.path = path};
    assert_int_equal(FRUGAL_OK, frugal_save(instances, N, &desc));
    for (uint32_t i = 0; i < N; i++) {
        frugal_desc d = rig_desc();
        d.shared_workers = workers, d.dim = 5 + 20 * i, d.optimizer.kind = rig_optimizers[i + 1];
        if (typed) d.rows_as = (frugal_type)i;
        d.saved_part = i;
        assert_int_equal(FRUGAL_OK, frugal_read_saved(path, i, &info));
        assert_int_equal(N, info.parts);
        assert_int_equal(5 + i, info.step);
        assert_int_equal(d.dim, info.dim);
        assert_int_equal(d.optimizer.kind, info.optimizer);
        assert_true(info.rows_as == d.rows_as && info.rounding == 0 && info.seed == (typed && i > 0 ? d.seed : 0));
        rig_restore(&b[i], &d, &path, 1);
        rig_same(&a[i], &b[i]);
    }
    for (int i = 0; i < N; i++) {
        rig_train(&a[i], 4);
        rig_train(&b[i], 4);
        rig_same(&a[i], &b[i]);
    }
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_read_saved(path, N, &info), "instance 3", "has 3");
    for (int i = 0; i < N; i++) rig_finish(&a[i], 0), rig_finish(&b[i], 0);
    assert_int_equal(FRUGAL_OK, frugal_workers_close(workers));
}

/* >>refused */

static void test_arguments(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    const char *path = saved_path("save");
    rig_open(&r, &d);
    frugal *two[2] = {r.f, r.f}, *none[2] = {r.f, NULL};
    frugal_save_desc desc = {.path = path}, pathless = {0};
    frugal_saved info;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(two, 1, NULL), "desc", "NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(two, 1, &pathless), "path", "NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(NULL, 1, &desc), "1 instances", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(two, 0, &desc), "0 instances", "1 to 64");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(two, 65, &desc), "65 instances", "1 to 64");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(two, 2, &desc), "0 and 1", "same");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_save(none, 2, &desc), "no open instance", "save");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_read_saved(NULL, 0, &info), "NULL", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_read_saved(path, 0, NULL), "NULL", "");
    assert_fails(FRUGAL_ERR_FILE, frugal_read_saved(path, 0, &info), "No such file", path);
    assert_int_equal(0, saved_count());
    rig_finish(&r, 2);
}

/* More tables than could be restored. */
static void test_too_many_tables(void **state) {
    (void)state;
    const uint32_t n = SAVED_MOST_TABLES + 1;
    frugal_table *tables = calloc(n, sizeof *tables);
    frugal_desc d = {.tables = tables, .n_tables = n, .dim = 1, .max_keys = 1};
    for (uint32_t t = 0; t < n; t++) tables[t].rows = 1;
    frugal *f = open_or_fail(&d);
    assert_fails(FRUGAL_ERR_ARGUMENT, save_one(f, saved_path("save"), 0, 0), "1048577 tables", "may have 1048576");
    assert_int_equal(0, saved_count());
    frugal_close(f);
    d.n_tables = n - 1;
    f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, save_one(f, saved_path("save"), 0, 0));
    frugal_close(f);
    const char *path = saved_path("save");
    d.saved = &path, d.n_saved = 1;
    frugal_close(open_or_fail(&d));
    free(tables);
}

static void test_busy(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.defer = 1;
    rig_open(&r, &d);
    rig_train(&r, 1);
    assert_fails(FRUGAL_ERR_BUSY, save_one(r.f, saved_path("save"), 0, 0), "instance 0", "frugal_drain");
    assert_int_equal(0, saved_count());
    rig_drain(&r);
    assert_int_equal(FRUGAL_OK, save_one(r.f, saved_path("save"), 0, 0));
    rig_finish(&r, 2);
}

/* A file that is there stays; with `replace` only a save, or an empty one, gives its name up. */
static void test_replaced(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    unsigned char *bytes;
    const char *path = saved_path("save"), *mine = saved_path("mine"), *empty = saved_path("empty");
    frugal_saved one, two;
    rig_open(&r, &d);
    rig_save(&r, path, 0);
    assert_int_equal(FRUGAL_OK, frugal_read_saved(path, 0, &one));
    assert_fails(FRUGAL_ERR_FILE, save_one(r.f, path, 0, 0), "File exists", "replaced");
    assert_int_equal(FRUGAL_OK, frugal_read_saved(path, 0, &two));
    assert_true(one.id == two.id);
    assert_int_equal(FRUGAL_OK, save_one(r.f, path, 0, 1));
    assert_int_equal(FRUGAL_OK, frugal_read_saved(path, 0, &two));
    assert_true(one.id != two.id);
    write_file(mine, "my only copy of it", 18);
    assert_fails(FRUGAL_ERR_FILE, save_one(r.f, mine, 0, 1), "not a save", "mine");
    write_file(mine,
               "\x89"
               "FRUGAL\n and more",
               17); /* a table's */
    assert_fails(FRUGAL_ERR_FILE, save_one(r.f, mine, 0, 1), "not a save", "mine");
    write_file(mine, "short", 5);
    assert_fails(FRUGAL_ERR_FILE, save_one(r.f, mine, 0, 1), "not a save", "mine");
    assert_int_equal(5, read_file(mine, &bytes));
    assert_memory_equal("short", bytes, 5);
    free(bytes);
    write_file(empty, "", 0);
    assert_fails(FRUGAL_ERR_FILE, save_one(r.f, empty, 0, 0), "File exists", "replaced");
    assert_int_equal(FRUGAL_OK, save_one(r.f, empty, 0, 1));
    assert_int_equal(3, saved_count());
    rig_finish(&r, 1);
}

static void test_names(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    struct stat s;
    frugal_saved info;
    rig_open(&r, &d);
    assert_int_equal(0, mkfifo(saved_path("fifo"), 0666));
    assert_int_equal(0, symlink("save", saved_path("link")));
    for (int replace = 0; replace < 2; replace++) {
        assert_fails(FRUGAL_ERR_FILE, save_one(r.f, saved_path("fifo"), 0, replace), "FIFO", "fifo");
        assert_fails(FRUGAL_ERR_FILE, save_one(r.f, "/dev/null", 0, replace), "device", "/dev/null");
        assert_fails(FRUGAL_ERR_FILE, save_one(r.f, saved_folder, 0, replace), "folder", saved_folder);
        assert_fails(FRUGAL_ERR_FILE, save_one(r.f, saved_path("not/there"), 0, replace), "No such file", "there");
        assert_fails(FRUGAL_ERR_FILE, save_one(r.f, "", 0, replace), "empty", "");
        assert_int_equal(FRUGAL_OK, save_one(r.f, saved_path("link"), 0, replace));
        assert_int_equal(0, lstat(saved_path("link"), &s));
        assert_true(S_ISLNK(s.st_mode));
        assert_int_equal(FRUGAL_OK, frugal_read_saved(saved_path("save"), 0, &info));
    }
    assert_int_equal(3, saved_count());
    assert_fails(FRUGAL_ERR_FILE, frugal_read_saved(saved_path("fifo"), 0, &info), "FIFO", "fifo");
    assert_fails(FRUGAL_ERR_FILE, frugal_read_saved("/dev/zero", 0, &info), "device", "/dev/zero");
    rig_finish(&r, 1);
}

/* The table's own file has not become a save. */
static void test_own_table(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.file = saved_path("table");
    rig_open(&r, &d);
    rig_train(&r, 3);
    rig_drain(&r);
    assert_fails(FRUGAL_ERR_FILE, save_one(r.f, d.file, 0, 1), "not a save", "table");
    rig_finish(&r, 3);
}

/* >>what is there: frugal_read_saved */

static void test_read_saved(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_saved info;
    unsigned char *bytes;
    d.reduce = FRUGAL_MEAN, d.first_step = 12345678901;
    rig_open(&r, &d);
    rig_train(&r, 4);
    rig_save(&r, saved_path("save"), 0);
    assert_int_equal(FRUGAL_OK, frugal_read_saved(saved_path("save"), 0, &info));
    assert_int_equal(0, info.increment);
    assert_true(info.id != 0 && info.base == info.id && info.parent == 0 && info.sequence == 0);
    assert_int_equal(1, info.parts);
    assert_int_equal(2, info.n_tables);
    assert_int_equal(60, info.rows);
    assert_true(info.step == 12345678905);
    assert_int_equal(5, info.dim);
    assert_int_equal(2, info.devices);
    assert_int_equal(FRUGAL_ADAGRAD, info.optimizer);
    assert_int_equal(FRUGAL_MEAN, info.reduce);
    assert_int_equal(read_file(saved_path("save"), &bytes), info.bytes);
    free(bytes);
    rig_finish(&r, 1);
}

/* While a save is written somebody gives the name to a file of his own: that stays. The first memory that a save asks
 * for comes when the name has been checked. */
static const char *taken;

static void *allocate_and_take(size_t bytes, size_t alignment, void *user) {
    if (taken) assert_int_equal(0, remove(taken)), write_file(taken, "thesis", 6);
    taken = NULL;
    return test_allocate(bytes, alignment, user);
}

static void test_replaced_by_another(void **state) {
    (void)state;
    test_counter counter = {0};
    unsigned char *bytes;
    frugal_desc d = rig_desc();
    d.allocate = allocate_and_take, d.release = test_release, d.user = &counter;
    const char *path = saved_path("save");
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, save_one(f, path, 0, 0));
    assert_int_equal(FRUGAL_OK, save_one(f, path, 0, 1));
    taken = path;
    assert_fails(FRUGAL_ERR_FILE, save_one(f, path, 0, 1), "is not a save", path);
    assert_int_equal(6, read_file(path, &bytes));
    assert_memory_equal("thesis", bytes, 6);
    free(bytes);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    assert_int_equal(1, saved_count());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SAVED_TEST(test_optimizers),
        SAVED_TEST(test_otherwise),
        SAVED_TEST(test_tables),
        SAVED_TEST(test_devices_reduced_by_mean),
        SAVED_TEST(test_places),
        SAVED_TEST(test_large),
        SAVED_TEST(test_many_tables),
        SAVED_TEST(test_announced),
        SAVED_TEST(test_bytes),
        SAVED_CASE("a set", test_set, 0),
        SAVED_CASE("a set of several types", test_set, 1),
        SAVED_TEST(test_types),
        SAVED_TEST(test_bytes_of_16_bits),
        SAVED_TEST(test_converted),
        SAVED_TEST(test_converted_to_infinity),
        SAVED_TEST(test_arguments),
        SAVED_TEST(test_too_many_tables),
        SAVED_TEST(test_busy),
        SAVED_TEST(test_replaced),
        SAVED_TEST(test_names),
        SAVED_TEST(test_own_table),
        SAVED_TEST(test_read_saved),
        SAVED_TEST(test_replaced_by_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
