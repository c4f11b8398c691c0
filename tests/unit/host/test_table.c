/* test_table.c - where the table lies, and how rows lie in it: our memory, the caller's matrix, a file that is opened
 * again, as many rows as there can be. What open says of files that it cannot use is in test_file.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/rig.h"

/* >>memory */

/* table.c: rows start on 128 bytes where the weights fill a multiple of 128, else on 32; rows under 32 bytes are
 * packed to a power of two. Element-wise state lies behind the weights, equally aligned; row-wise state by itself. */
static void check_layout(uint32_t dim, frugal_optimizer_kind kind) {
    frugal_table table = {.rows = 9};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = dim, .max_keys = 1, .optimizer = {.kind = kind}};
    frugal *f = open_or_fail(&d);
    const frugal_store *s = frugal_get_store(f);
    uint32_t packed = 1;
    while (packed < dim) packed *= 2;
    uintptr_t unit = dim % 32 == 0 ? 128 : dim >= 8 ? 32 : 4 * (uintptr_t)packed;
    assert_int_equal(frugal_state_floats(kind, dim), s->state_floats);
    assert_int_equal(9, s->rows);
    assert_true(s->weights_stride >= dim);
    for (uint64_t row = 0; row < 9; row++) {
        assert_int_equal(0, (uintptr_t)(frugal_row_at(s, row)) % unit);
        if (s->state_floats > 1 || kind == FRUGAL_ADAGRAD) {
            assert_int_equal(0, (uintptr_t)(s->state + row * s->state_stride) % unit);
            assert_int_equal(s->weights_stride, s->state_stride);
            assert_in_range(s->state - (float *)s->weights, dim, s->weights_stride - s->state_floats);
        }
    }
    if (kind == FRUGAL_SGD) {
        assert_null(s->state);
        assert_int_equal(dim >= 8 ? (dim + 7) / 8 * 8 : packed, s->weights_stride); /* nothing wasted */
    }
    if (kind == FRUGAL_ROWWISE_ADAGRAD) assert_int_equal(1, s->state_stride);
    frugal_close(f);
}

/* The same of weights of 16 bits, whose rows have half the bytes. State behind them is aligned to 16 bytes, or to its
 * own size if that is less, because GPUs move four floats together. */
static void check_typed_layout(uint32_t dim, frugal_optimizer_kind kind, frugal_type as) {
    const frugal_table table = {.rows = 9};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = dim, .rows_as = as, .max_keys = 1, .optimizer.kind = kind};
    frugal *f = open_or_fail(&d);
    const frugal_store *s = frugal_get_store(f);
    uintptr_t bytes = 2 * (uintptr_t)dim, packed = 2, pitch = 2 * s->weights_stride, state = 4 * s->state_floats;
    while (packed < bytes) packed *= 2;
    uintptr_t unit = bytes % 128 == 0 ? 128 : bytes >= 32 ? 32 : packed;
    assert_true(s->rows_as == as && pitch >= bytes);
    for (uint64_t row = 0; row < 9; row++) {
        uintptr_t at = (uintptr_t)frugal_row_at(s, row), behind = (uintptr_t)(s->state + row * s->state_stride);
        assert_int_equal((uintptr_t)s->weights + row * pitch, at);
        assert_int_equal(0, at % unit);
        if (kind == FRUGAL_SGD || kind == FRUGAL_ROWWISE_ADAGRAD) continue;
        assert_int_equal(0, behind % (state <= 4 ? 4 : state <= 8 ? 8 : 16));
        assert_in_range(behind, at + bytes, at + pitch - state);
    }
    if (kind == FRUGAL_SGD) assert_int_equal(bytes >= 32 ? (bytes + 31) / 32 * 32 : packed, pitch); /* nothing wasted */
    if (kind == FRUGAL_ROWWISE_ADAGRAD) assert_int_equal(1, s->state_stride);
    frugal_close(f);
}

static void test_row_alignment(void **state) {
    (void)state;
    for (uint32_t dim = 1; dim <= 130; dim++)
        for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
            check_layout(dim, rig_optimizers[i]);
            check_typed_layout(dim, rig_optimizers[i], dim % 2 ? FRUGAL_BF16 : FRUGAL_FP16);
        }
}

/* The caller's matrix, rows at odd addresses: the rows are where the caller has them, and nothing else is written. */
static void test_callers_matrix(void **state) {
    int with_state = (int)(intptr_t)*state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        rig r = {0};
        frugal_desc d = rig_desc();
        enum { STRIDE = 7, STATE = 13, N = 3 + 60 * 13 };
        float weights[N], states[N], before[N];
        for (int k = 0; k < N; k++) weights[k] = states[k] = before[k] = (float)k * 0.01f;
        d.weights = weights + 3, d.weights_stride = STRIDE;
        if (with_state) d.state = states + 1, d.state_stride = STATE;
        d.tables = (frugal_table[]){{.rows = 40}, {.rows = 20}};
        d.optimizer.kind = rig_optimizers[i];
        rig_open(&r, &d);
        for (int k = 0; k < 5; k++) assert_true(r.ref.weights[59 * 5 + k] == before[3 + 59 * STRIDE + k]);
        rig_train(&r, 9);
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        rig_compare(&r);
        uint32_t floats = r.ref.state_floats;
        for (int k = 0; k < N; k++) {
            int row = (k - 3) / STRIDE, column = (k - 3) % STRIDE;
            int is_weight = k >= 3 && row < 60 && column < 5;
            float expected = is_weight ? r.ref.weights[row * 5 + column] : before[k];
            assert_memory_equal(&expected, &weights[k], 4);
            row = (k - 1) / STATE, column = (k - 1) % STATE;
            int is_state = with_state && k >= 1 && row < 60 && column < (int)floats;
            expected = is_state ? r.ref.state[(uint32_t)row * floats + (uint32_t)column] : before[k];
            assert_memory_equal(&expected, &states[k], 4);
        }
        rig_finish(&r, 2);
    }
}

enum { TEST_ARENA_BLOCKS = 64 };
typedef struct test_arena {
    void *blocks[TEST_ARENA_BLOCKS];
    int n;
} test_arena;

static void *test_arena_allocate(size_t bytes, size_t alignment, void *user) {
    test_arena *arena = user;
    assert_in_range(arena->n, 0, TEST_ARENA_BLOCKS - 1);
    if (posix_memalign(&arena->blocks[arena->n], alignment, bytes)) return NULL;
    return arena->blocks[arena->n++];
}

/* An allocator may free all at once, when everything is over: then there is nothing to call. */
static void test_allocator_without_release(void **state) {
    (void)state;
    rig r = {0};
    test_arena arena = {0};
    frugal_desc d = rig_desc();
    d.allocate = test_arena_allocate, d.user = &arena;
    rig_open(&r, &d);
    rig_finish(&r, 5);
    assert_in_range(arena.n, 8, TEST_ARENA_BLOCKS);
    for (int i = 0; i < arena.n; i++) free(arena.blocks[i]);
}

/* As many rows as there can be: memory that nobody touches costs nothing. */
static void test_as_many_rows_as_there_can_be(void **state) {
    (void)state;
#if defined(FRUGAL_SANITIZED)
    print_message("# SKIPPED 2^32 - 2 rows: the sanitizers keep a shadow of all memory\n");
    skip();
#else
    frugal_table table = {.rows = FRUGAL_MAX_ROWS};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 1, .max_keys = 5, .lookahead = 1, .workers = 1};
    d.sparse = 1;
    uint64_t keys[] = {FRUGAL_MAX_ROWS - 1, 0, UINT64_C(1) << 31, FRUGAL_MAX_ROWS - 1, (UINT64_C(1) << 31) - 1};
    float grads[] = {1, 2, 3, 4, 5}, rows[5], expected[] = {-5, -2, -3, -5, -5};
    uint64_t beyond = FRUGAL_MAX_ROWS;
    frugal_keys segment = {.table = 0, .keys = keys, .n = 5}, out = {.table = 0, .keys = &beyond, .n = 1};
    frugal_batch batch = {&segment, 1, 0};
    frugal_gradients g = {.grads = grads, .lr = 1};
    frugal_cpu_desc cache = {.cache_rows = 16};
    frugal *f;
    frugal_status status = frugal_open(&d, &f);
    if (status == FRUGAL_ERR_MEMORY) {
        frugal_close(f);
        print_message("# SKIPPED 2^32 - 2 rows: the system does not give memory that is not touched (%s)\n",
                      frugal_message());
        skip();
    }
    assert_int_equal(FRUGAL_OK, status);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &cache));
    for (uint64_t s = 0; s < 3; s++) {
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, s, &batch));
        assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, s, rows));
        for (int i = 0; i < 5; i++) assert_true(rows[i] == (float)s * expected[i]);
        assert_int_equal(FRUGAL_OK, frugal_update(f, 0, s, &g));
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &segment, rows, NULL));
    for (int i = 0; i < 5; i++) assert_true(rows[i] == 3 * expected[i]);
    assert_int_equal(FRUGAL_ERR_KEY, frugal_read_rows(f, &out, rows, NULL));
    frugal_close(f);
#endif
}

/* >>files: what was drained into one is there when it is opened again, and training goes on bit for bit */

static void test_file_is_resumed(void **state) {
    (void)state;
    for (int i = 0; i < 3 * FRUGAL_OPTIMIZER_KINDS; i++) { /* after the first round with settings of a table's own */
        char name[64];
        frugal_optimizer own = {.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS],
                                .weight_decay = 0.1f,
                                .initial_accumulator = 0.5f,
                                .beta1 = 0.6f};
        frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
        if (i >= FRUGAL_OPTIMIZER_KINDS) tables[1].optimizer = &own;
        snprintf(name, sizeof(name), "/tmp/frugal_store_%d_%d", (int)getpid(), i);
        unlink(name);
        rig whole = {0}, part = {0};
        frugal_desc d = rig_desc();
        d.tables = tables, d.optimizer.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS];
        if (i >= 2 * FRUGAL_OPTIMIZER_KINDS) d.rows_as = i % 2 ? FRUGAL_BF16 : FRUGAL_FP16;
        rig_open(&whole, &d);
        rig_train(&whole, 12);
        d.file = name;
        rig_open(&part, &d);
        rig_finish(&part, 7); /* drains and closes */
        memset(&part, 0, sizeof(part));
        for (int t = 0; t < 2; t++) /* the file as it is */
            tables[t] = (frugal_table){.rows = tables[t].rows, .optimizer = tables[t].optimizer};
        d.first_step = 7;
        rig_open(&part, &d);
        rig_train(&part, 5);
        assert_int_equal(FRUGAL_OK, frugal_drain(part.f));
        assert_memory_equal(whole.ref.weights, part.ref.weights, 4 * 60 * 5);
        assert_memory_equal(whole.ref.state, part.ref.state, 4 * 60 * (size_t)part.ref.state_floats);
        rig_finish(&part, 0);
        rig_finish(&whole, 0);
        struct stat status;
        assert_int_equal(0, stat(name, &status));
        assert_true((uint64_t)status.st_size >= (d.rows_as == FRUGAL_FP32 ? 4 : 2) * 60 * 5);
        unlink(name);
    }
}

/* Rows lie in files where older versions of Frugal look for them, if they are floats. Those of 16 bits take less, and
 * their state begins where floats may begin, also behind an odd number of rows of 2 bytes. */
static void test_places_in_files(void **state) {
    (void)state;
    static const struct {
        frugal_optimizer_kind kind;
        uint32_t dim, floats[3], halves[3]; /* strides of weights and state; bytes from the weights to the state */
    } layouts[] = {{FRUGAL_SGD, 1, {1, 0, 0}, {1, 0, 0}},
                   {FRUGAL_SGD, 5, {8, 0, 0}, {8, 0, 0}},
                   {FRUGAL_SGD, 64, {64, 0, 0}, {64, 0, 0}},
                   {FRUGAL_ROWWISE_ADAGRAD, 1, {1, 1, 12}, {1, 1, 8}},
                   {FRUGAL_ADAGRAD, 1, {2, 2, 4}, {4, 2, 4}},
                   {FRUGAL_ADAGRAD, 3, {8, 8, 16}, {16, 8, 16}},
                   {FRUGAL_ADAGRAD, 64, {128, 128, 256}, {192, 96, 128}},
                   {FRUGAL_ADAM, 1, {3, 3, 4}, {8, 4, 8}},
                   {FRUGAL_ADAM, 2, {6, 6, 8}, {16, 8, 16}}};
    char name[64];
    snprintf(name, sizeof name, "/tmp/frugal_store_%d", (int)getpid());
    frugal_table table = {.rows = 3};
    frugal_desc d = {.tables = &table, .n_tables = 1, .max_keys = 1, .file = name};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (frugal_type type = FRUGAL_FP32; type <= FRUGAL_FP16; type++) {
            const uint32_t *wanted = type == FRUGAL_FP32 ? layouts[i].floats : layouts[i].halves;
            d.dim = layouts[i].dim, d.optimizer.kind = layouts[i].kind, d.rows_as = type;
            frugal *f = open_or_fail(&d);
            const frugal_store *s = frugal_get_store(f);
            assert_int_equal(wanted[0], s->weights_stride);
            assert_int_equal(wanted[1], s->state_stride);
            assert_int_equal(wanted[2], s->state ? (const char *)s->state - (const char *)s->weights : 0);
            frugal_close(f);
            assert_int_equal(0, unlink(name));
        }
}

/* The same settings open the same file again: initializers are for new files. An open that fails leaves none. */
static void test_file_that_is_there_is_kept(void **state) {
    (void)state;
    char name[64], made[80];
    snprintf(name, sizeof(name), "/tmp/frugal_store_%d", (int)getpid());
    snprintf(made, sizeof(made), "%s.new", name);
    unlink(name);
    frugal_table table = {.rows = 3, .init = FRUGAL_INIT_UNIFORM, .low = 1, .high = 2};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 4, .max_keys = 2, .file = name};
    d.optimizer = (frugal_optimizer){.kind = FRUGAL_ADAGRAD, .initial_accumulator = 0.5f};
    test_counter counter = {.fail_at = 1 + 6}; /* while the devices are opened, or later */
    frugal_desc failing = d;
    failing.allocate = test_allocate, failing.release = test_release, failing.user = &counter;
    frugal *f = NULL;
    assert_int_equal(FRUGAL_ERR_MEMORY, frugal_open(&failing, &f));
    frugal_close(f);
    assert_int_equal(-1, access(name, F_OK));
    assert_int_equal(-1, access(made, F_OK));
    uint64_t key = 1;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    float w[4], s[4], trained[4] = {7, 8, 9, 10}, accumulated[4] = {1, 2, 3, 4};
    f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &keys, w, s));
    assert_true(w[0] >= 1 && w[0] <= 2 && s[0] == 0.5f);
    assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &keys, trained, accumulated));
    frugal_close(f);
    f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &keys, w, s));
    assert_memory_equal(trained, w, sizeof(w));
    assert_memory_equal(accumulated, s, sizeof(s));
    frugal_close(f);
    assert_int_equal(0, unlink(name));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_alignment),
        CASE("test_callers_matrix, state in memory of ours", test_callers_matrix, 0),
        CASE("test_callers_matrix, the caller's state", test_callers_matrix, 1),
        cmocka_unit_test(test_file_is_resumed),
        cmocka_unit_test(test_places_in_files),
        cmocka_unit_test(test_file_that_is_there_is_kept),
        cmocka_unit_test(test_allocator_without_release),
        cmocka_unit_test(test_as_many_rows_as_there_can_be),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
