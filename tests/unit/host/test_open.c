/* test_open.c - what open refuses: arguments, limits, threads that cannot start; and what works at the limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/host/failing.h"
#include "frugal_save.h"
#include "tests/scratch.h"
#include "tests/unit/host/refused.h"

/* >>arguments and limits */

static void test_open_arguments(void **state) {
    (void)state;
    frugal *f;
    float matrix[60 * 5];
    frugal_desc good = rig_desc(), d;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_open(NULL, &f), "desc", "NULL");
    assert_null(f);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_open(&good, NULL), "out", "NULL");
    d = good, d.n_tables = 0, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table", "one");
    d = good, d.tables = NULL, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table", "one");
    d = good, d.dim = 0, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "0", "65536");
    d = good, d.dim = 65537, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "65537", "65536");
    d = good, d.max_keys = 0, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "max_keys", "0");
    d = good, d.mode = (frugal_mode)2, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "mode", "2");
    d = good, d.reduce = (frugal_reduce)3, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "reduce", "3");
    d = good, d.workers = 1025, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "workers 1025", "1024");
    d = good, d.weights = matrix, d.file = "/tmp/x", assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "weights", "file");
    d = good, d.state = matrix, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "state", "weights");
    d = good, d.weights = matrix, d.weights_stride = 4,
    assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "weights_stride", "4");
    d = good, d.weights = d.state = matrix, d.state_stride = 3,
    assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "state_stride", "3");
}

static void test_open_optimizer_and_tables(void **state) {
    (void)state;
    frugal_desc good = rig_desc(), d;
    frugal_table tables[2] = {{.rows = 3}, {.rows = 0}};
    d = good, d.optimizer.kind = (frugal_optimizer_kind)7, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "optimizer", "7");
    d = good, d.optimizer.eps = -1, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "eps", "-1");
    d = good, d.optimizer.eps = NAN, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "eps", "nan");
    d = good, d.optimizer.weight_decay = -0.5f, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "weight_decay", "-0.5");
    d = good, d.optimizer.beta1 = 1, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "beta1", "1");
    d = good, d.optimizer.beta1 = -0.5f, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "beta1", "-0.5");
    d = good, d.optimizer.beta2 = -0.25f, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "beta2", "-0.25");
    d = good, d.optimizer.beta2 = 1.5f, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "beta2", "1.5");
    d = good, d.optimizer.initial_accumulator = -2,
    assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "initial_accumulator", "-2");
    d = good, d.optimizer.lr_scale = -3, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "lr_scale", "-3");
    d = good, d.optimizer.lr_scale = INFINITY, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "lr_scale", "inf");
    d = good, d.optimizer.lr_scale = NAN, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "lr_scale", "nan");
    good.tables = tables;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1", "no rows");
    tables[1] = (frugal_table){.rows = 3, .init = FRUGAL_INIT_COPY};
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1", "source");
    tables[1] = (frugal_table){.rows = 3, .init = (frugal_init_kind)9};
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1", "9");
}

/* Settings of a table's own: the message names it. */
static void test_open_optimizer_of_a_table(void **state) {
    (void)state;
    const frugal_optimizer adagrad = {.kind = FRUGAL_ADAGRAD};
    frugal_optimizer own = adagrad;
    frugal_table tables[2] = {{.rows = 3}, {.rows = 4, .optimizer = &own}};
    frugal_desc good = rig_desc(), d;
    good.tables = tables;
    own.kind = (frugal_optimizer_kind)7;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: optimizer 7", "0 (SGD) to ");
    own = adagrad, own.eps = -1;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: optimizer: eps", "is -1;");
    own = adagrad, own.weight_decay = NAN;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: optimizer: weight_decay", "is nan;");
    own = adagrad, own.beta2 = 1;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: optimizer: beta2", "is 1;");
    own = adagrad, own.initial_accumulator = -2;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: optimizer: initial_accumulator", "is -2;");
    own = adagrad, own.lr_scale = -0.5f;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: optimizer: lr_scale", "is -0.5;");
    own.kind = FRUGAL_ADAM, own.lr_scale = 0;
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: optimizer 3 (Adam)", "1 (Adagrad)");
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "one layout", "open another instance");
    own = adagrad; /* nothing was wrong with the rest */
    frugal *f;
    assert_int_equal(FRUGAL_OK, frugal_open(&good, &f));
    frugal_close(f);
}

/* A setting that would silently do nothing is refused, and the message names what is missing. */
static void test_settings_without_effect(void **state) {
    (void)state;
    static const float source[5 * 3];
    static const char *const saved[] = {"nothing"};
    frugal_table tables[2] = {{.rows = 3}, {.rows = 4}};
    frugal_desc good = rig_desc(), d;
    good.tables = tables;
#define TABLE(text, ...)                                                                                               \
    tables[1] = (frugal_table){.rows = 4, __VA_ARGS__};                                                                \
    d = good, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "table 1: ", text)
    TABLE("low and high are -0.5 and 0.5, and its initializer is 0", .low = -0.5f, .high = 0.5f);
    TABLE("FRUGAL_INIT_UNIFORM", .low = -0.5f);
    TABLE("FRUGAL_INIT_UNIFORM", .init = FRUGAL_INIT_ZERO, .high = 0.5f);
    TABLE("FRUGAL_INIT_UNIFORM", .init = FRUGAL_INIT_COPY, .source = source, .high = 0.5f);
    TABLE("FRUGAL_INIT_UNIFORM", .init = FRUGAL_INIT_NORMAL, .deviation = 1, .high = 0.5f);
    TABLE("mean and deviation are 0 and 0.1, and its initializer is 0", .deviation = 0.1f);
    TABLE("FRUGAL_INIT_NORMAL", .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1, .mean = 2);
    TABLE("FRUGAL_INIT_COPY", .source = source);
    TABLE("FRUGAL_INIT_COPY", .init = FRUGAL_INIT_ZERO, .source = source);
#undef TABLE
    tables[1] = (frugal_table){.rows = 4};
    d = good, d.weights_stride = 8, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "`weights_stride`", "`weights`");
    d = good, d.state_stride = 8, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "`state_stride`", "`state`");
    d = good, d.take_torn = 1, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "`take_torn`", "`file`");
    d = good, d.saved_part = 1, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "`saved_part`", "`n_saved`");
    d = good, d.saved = saved, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "`saved`", "`n_saved`");
    d = good, d.saved_settings_may_differ = 1;
    assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "`saved_settings_may_differ`", "`n_saved`");
}

static char told[512];

static void note(const char *text, void *user) {
    (void)user;
    snprintf(told, sizeof told, "%s", text);
}

/* Settings that SGD, kind 0, does not use: they are legal, and told, because the kind may have been forgotten. */
static void test_a_forgotten_kind(void **state) {
    (void)state;
    static const struct {
        const char *name;
        frugal_optimizer optimizer;
    } sets[] = {{"eps", {.eps = 1e-3f}},
                {"beta1", {.beta1 = 0.5f}},
                {"beta2", {.beta2 = 0.5f}},
                {"initial_accumulator", {.initial_accumulator = 0.1f}}};
    frugal_table tables[2] = {{.rows = 3}, {.rows = 4}};
    frugal_desc d = rig_desc();
    frugal *f, *again;
    d.tables = tables, d.notice = note;
    for (int i = 0; i < 8; i++) { /* of the instance, and of a table */
        char text[64];
        snprintf(text, sizeof text, "optimizer: %s is set, and the kind is 0 (SGD)", sets[i / 2].name);
        d.optimizer = i % 2 ? (frugal_optimizer){.kind = FRUGAL_SGD} : sets[i / 2].optimizer;
        tables[1].optimizer = i % 2 ? &sets[i / 2].optimizer : NULL;
        told[0] = 0;
        assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
        assert_non_null(strstr(told, text));
        frugal_close(f);
    }
    tables[1].optimizer = NULL, d.optimizer = (frugal_optimizer){.kind = FRUGAL_SGD};
    told[0] = 0;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
    d.optimizer = frugal_settings(f)->optimizer; /* resolved */
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &again));
    assert_int_equal(0, told[0]);
    frugal_close(again), frugal_close(f);
}

static void test_limits(void **state) {
    (void)state;
    frugal_desc good = rig_desc(), d;
    frugal_table tables[2] = {{.rows = UINT64_C(0xffffffff)}, {.rows = 1}};
    d = good, d.lookahead = 16, assert_open_fails(FRUGAL_ERR_LOOKAHEAD, &d, "16", "15");
    d = good, d.lookahead = 15, d.staging = 49, assert_open_fails(FRUGAL_ERR_LOOKAHEAD, &d, "49", "63");
    d = good, d.lookahead = 0, d.staging = 64, assert_open_fails(FRUGAL_ERR_LOOKAHEAD, &d, "64", "63");
    d = good, d.staging = UINT32_MAX, assert_open_fails(FRUGAL_ERR_LOOKAHEAD, &d, "4294967295", "63");
    d = good, d.devices = 255, assert_open_fails(FRUGAL_ERR_LIMIT, &d, "255", "254");
    d = good, d.max_keys = (1u << 25) + 1, assert_open_fails(FRUGAL_ERR_LIMIT, &d, "33554433", "2^26");
    d = good, d.max_keys = UINT32_MAX, d.devices = 254, assert_open_fails(FRUGAL_ERR_LIMIT, &d, "254", "2^26");
    d = good, d.first_step = UINT64_MAX - 3, assert_open_fails(FRUGAL_ERR_LIMIT, &d, "first_step", "2^62");
    d = good, d.stuck_seconds = (double)NAN, assert_open_fails(FRUGAL_ERR_ARGUMENT, &d, "stuck_seconds", "");
    d = good, d.tables = tables, d.n_tables = 1, assert_open_fails(FRUGAL_ERR_LIMIT, &d, "rows", "4294967294");
    tables[0].rows = UINT64_C(0xfffffffe);
    d = good, d.tables = tables, assert_open_fails(FRUGAL_ERR_LIMIT, &d, "rows", "4294967294");
    tables[0].rows = UINT64_MAX; /* the sum must not wrap */
    d = good, d.tables = tables, assert_open_fails(FRUGAL_ERR_LIMIT, &d, "rows", "4294967294");
}

/* The largest legal settings work. */
static void test_at_the_limits(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.lookahead = 15, d.staging = 48;
    rig_open(&r, &d);
    assert_int_equal(48, frugal_settings(r.f)->staging);
    rig_finish(&r, 70);
    frugal *f;
    d = rig_desc();
    d.devices = 254, d.max_keys = 1;
    assert_int_equal(FRUGAL_OK, frugal_open(&d, &f));
    uint64_t key = 39;
    float row[5], all[5];
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    frugal_batch batch = {&keys, 1, 0};
    for (uint32_t i = 0; i < 254; i++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, i, NULL));
    for (uint32_t i = 0; i < 254; i++) assert_int_equal(FRUGAL_OK, frugal_announce(f, i, 0, &batch));
    float one[5] = {1, 1, 1, 1, 1};
    frugal_gradients g = {.grads = one, .lr = 1};
    for (uint32_t i = 0; i < 254; i++) assert_int_equal(FRUGAL_OK, frugal_lookup(f, i, 0, row));
    for (uint32_t i = 0; i < 254; i++) assert_int_equal(FRUGAL_OK, frugal_update(f, i, 0, &g));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &keys, NULL, all));
    assert_true(all[0] == 254.0f * 254.0f); /* Adagrad's state: the square of the sum of all devices */
    frugal_close(f);
}

/* >>threads */

static void test_worker_cannot_be_started(void **state) {
    (void)state;
    for (int nth = 1; nth <= 3; nth++) {
        frugal_desc d = rig_desc();
        d.workers = 3, d.init_threads = 1;
        atomic_store(&threads_until_failure, nth);
        assert_open_fails(FRUGAL_ERR_WORKER, &d, "worker", "3");
        assert_int_equal(0, atomic_load(&threads_until_failure));
    }
}

/* All the threads or none, and nothing is kept. */
static void test_shared_workers_cannot_be_had(void **state) {
    (void)state;
    char text[32];
    frugal_workers *w;
    for (int nth = 1; nth <= 3; nth++) {
        w = (frugal_workers *)(uintptr_t)text;
        snprintf(text, sizeof text, "worker %d of 3", nth - 1);
        atomic_store(&threads_until_failure, nth);
        assert_fails(FRUGAL_ERR_WORKER, frugal_workers_open(3, &w), text, "fewer");
        assert_int_equal(0, atomic_load(&threads_until_failure));
        assert_null(w);
    }
    for (int nth = 1; nth <= 2; nth++) {
        atomic_store(&blocks_until_failure, nth);
        assert_fails(FRUGAL_ERR_MEMORY, frugal_workers_open(3, &w), "bytes", "worker threads");
        assert_int_equal(0, atomic_load(&blocks_until_failure));
        assert_null(w);
    }
    assert_int_equal(FRUGAL_OK, frugal_workers_open(3, &w));
    assert_int_equal(FRUGAL_OK, frugal_workers_close(w));
}

/* An initializer's thread that cannot be started is done without: the table is the same. */
static void test_initializer_threads_failing(void **state) {
    (void)state;
    float rows[4][60][5], dummy[60 * 5];
    for (int nth = 0; nth < 4; nth++) {
        rig r = {0};
        frugal_desc d = rig_desc();
        d.init_threads = 4;
        atomic_store(&threads_until_failure, nth);
        rig_open(&r, &d);
        assert_int_equal(0, atomic_load(&threads_until_failure));
        rig_read(&r, &rows[nth][0][0], dummy);
        assert_memory_equal(rows[0], rows[nth], sizeof(rows[0]));
        rig_finish(&r, 1);
    }
}

/* Where the system does not say how many processors there are, one thread initializes. */
static void test_unknown_number_of_processors(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    atomic_store(&system_fails, PROCESSORS);
    rig_open(&r, &d);
    atomic_store(&system_fails, 0);
    assert_int_equal(1, frugal_settings(r.f)->init_threads);
    rig_finish(&r, 2);
}

/* >>what a refused open leaves */

enum { KEPT_ROWS = 40, KEPT_DIM = 5 };

typedef struct kept_world { /* rows that exist before an instance is opened on them */
    frugal_table table;
    frugal_desc desc;
    const char *saved[1];
    char name[32];
    float matrix[KEPT_ROWS * KEPT_DIM];
} kept_world;

/* A save of rows from 1 to 2; then a clean file whose rows are 0 at step 0, or the caller's matrix with rows of 7. */
static void make_kept(kept_world *w, int in_file) {
    frugal *f;
    *w = (kept_world){.table = {.rows = KEPT_ROWS, .init = FRUGAL_INIT_UNIFORM, .low = 1, .high = 2}};
    snprintf(w->name, sizeof w->name, "kept.%ld", (long)getpid());
    w->saved[0] = scratch_path("save");
    unlink(w->saved[0]), unlink(scratch_path("table"));
    w->desc = (frugal_desc){.tables = &w->table, .n_tables = 1, .dim = KEPT_DIM, .max_keys = 4, .init_threads = 1};
    assert_int_equal(FRUGAL_OK, frugal_open(&w->desc, &f));
    assert_int_equal(FRUGAL_OK, frugal_begin_counting(f)); /* the save has counts, too */
    assert_int_equal(FRUGAL_OK, frugal_save(&f, 1, &(frugal_save_desc){.path = w->saved[0]}));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    w->table = (frugal_table){.rows = KEPT_ROWS};
    for (int i = 0; i < KEPT_ROWS * KEPT_DIM; i++) w->matrix[i] = 7;
    if (!in_file) {
        w->desc.weights = w->matrix;
        return;
    }
    w->desc.file = scratch_path("table");
    assert_int_equal(FRUGAL_OK, frugal_open(&w->desc, &f));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

static void check_kept(const kept_world *w) {
    frugal *f;
    const void *view = w->matrix;
    uint64_t stride = KEPT_DIM;
    float wanted = w->desc.file ? 0 : 7;
    frugal_desc d = w->desc;
    d.saved = NULL, d.n_saved = 0, d.name = NULL, d.workers = 0;
    if (d.file) {
        if (frugal_open(&d, &f) != FRUGAL_OK) fail_msg("the file is not as it was: %s", frugal_message());
        assert_int_equal(FRUGAL_OK, frugal_view(f, 0, &view, &stride));
    }
    for (uint64_t r = 0; r < KEPT_ROWS; r++)
        for (uint64_t k = 0; k < KEPT_DIM; k++)
            if (((const float *)view)[r * stride + k] != wanted) fail_msg("row %u has changed", (unsigned)r);
    if (d.file) assert_int_equal(FRUGAL_OK, frugal_close(f));
}

/* Opens with the nth thread, or the nth block of memory, failing. Returns whether there were fewer. */
static int open_kept(const kept_world *w, const frugal_desc *d, atomic_int *what, int nth) {
    frugal *f;
    atomic_store(what, nth);
    frugal_status status = frugal_open(d, &f);
    int failed = atomic_exchange(what, 0) == 0;
    assert_int_equal(failed, status != FRUGAL_OK);
    frugal_close(f);
    if (failed) check_kept(w);
    return !failed;
}

/* Whatever fails in an open that would change rows that exist, a save into them or their initializer, and in one that
 * wants a name: rows, file and the caller's matrix are as they were. */
static void test_refused_changes_nothing(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        kept_world w;
        frugal *other;
        make_kept(&w, way < 2);
        frugal_desc d = w.desc;
        if (way < 3)
            d.saved = w.saved, d.n_saved = 1;
        else
            w.table.init = FRUGAL_INIT_UNIFORM, w.table.low = 3, w.table.high = 4;
        d.workers = 1;
        if (way < 2) d.name = w.name;
        int threads = 1, blocks = 1;
        while (!open_kept(&w, &d, &threads_until_failure, threads)) threads++;
        assert_int_equal(d.name ? 3 : 2, threads); /* the worker, the doorman */
        make_kept(&w, way < 2);                    /* opening has succeeded */
        if (way == 3) w.table.init = FRUGAL_INIT_UNIFORM, w.table.low = 3, w.table.high = 4;
        while (!open_kept(&w, &d, &blocks_until_failure, blocks)) blocks++;
        assert_in_range(blocks, 8, 60); /* it did count */
        if (!d.name) continue;
        make_kept(&w, 1);
        frugal_desc taken = w.desc;
        taken.file = NULL, taken.name = w.name, taken.workers = 1;
        assert_int_equal(FRUGAL_OK, frugal_open(&taken, &other));
        frugal *f;
        assert_fails(FRUGAL_ERR_PROCESS, frugal_open(&d, &f), w.name, "choose another name");
        frugal_close(f);
        check_kept(&w);
        assert_int_equal(FRUGAL_OK, frugal_close(other));
    }
    scratch_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_arguments),
        cmocka_unit_test(test_open_optimizer_and_tables),
        cmocka_unit_test(test_open_optimizer_of_a_table),
        cmocka_unit_test(test_settings_without_effect),
        cmocka_unit_test(test_a_forgotten_kind),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_at_the_limits),
        cmocka_unit_test(test_worker_cannot_be_started),
        cmocka_unit_test(test_shared_workers_cannot_be_had),
        cmocka_unit_test(test_initializer_threads_failing),
        cmocka_unit_test(test_unknown_number_of_processors),
        cmocka_unit_test(test_refused_changes_nothing),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
