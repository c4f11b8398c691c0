/* test_store.c - the host store: initializers, where rows lie, reading and writing them, caches, memory, statistics. */
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/rig.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

static const frugal_optimizer_kind kinds[] = {FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ROWWISE_ADAGRAD, FRUGAL_ADAM};

static frugal *open_or_fail(const frugal_desc *desc) {
    frugal *f;
    if (frugal_open(desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    return f;
}

/* Reads table `t` from its first to its last row. */
static void read_table(frugal *f, uint32_t t, float *weights, float *state) {
    uint64_t rows = frugal_settings(f)->tables[t].rows, *keys = malloc(8 * rows);
    for (uint64_t i = 0; i < rows; i++) keys[i] = i;
    frugal_keys k = {t, keys, (uint32_t)rows};
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, weights, state));
    free(keys);
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

/* >>settings */

static void test_defaults_are_resolved(void **state) {
    (void)state;
    frugal_table table = {.rows = 10};
    float matrix[100];
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 10, .max_keys = 4, .lookahead = 6, .weights = matrix};
    frugal *f = open_or_fail(&d);
    table.rows = 1; /* was copied */
    const frugal_desc *s = frugal_settings(f);
    assert_int_equal(1, s->devices);
    assert_int_equal(1, s->staging);
    assert_true(s->stuck_seconds == 300);
    assert_true(s->init_threads >= 1);
    assert_int_equal(10, s->weights_stride);
    assert_int_equal(10, s->tables[0].rows);
    assert_true(s->optimizer.eps == 1e-8f || s->optimizer.kind == FRUGAL_SGD);
    assert_true(s->optimizer.beta1 == 0.9f && s->optimizer.beta2 == 0.999f);
    frugal_close(f);
    for (int i = 1; i < 4; i++) {
        d.optimizer.kind = kinds[i], d.weights = NULL, table.rows = 10;
        f = open_or_fail(&d);
        assert_true(frugal_settings(f)->optimizer.eps == (kinds[i] == FRUGAL_ADAGRAD ? 1e-10f : 1e-8f));
        frugal_close(f);
    }
    static const uint32_t lookaheads[] = {0, 1, 2, 3, 15}, depths[] = {2, 3, 4, 4, 4};
    for (int i = 0; i < 10; i++) { /* the depth of the staging ring where updates are queued */
        d.lookahead = lookaheads[i % 5], d.defer = i < 5, d.workers = i >= 5;
        f = open_or_fail(&d);
        assert_int_equal(depths[i % 5], frugal_settings(f)->staging);
        frugal_close(f);
    }
}

/* Tables side by side with the same settings are a group; each names its group's, resolved. */
static void test_groups_of_tables(void **state) {
    (void)state;
    frugal_optimizer usual = {.kind = FRUGAL_ADAM, .beta1 = 0.9f}, own = {.kind = FRUGAL_ADAM, .lr_scale = 0.5f};
    frugal_table tables[6] = {{.rows = 3}, {.rows = 1}, {.rows = 5}, {.rows = 1}, {.rows = 2}, {.rows = 4}};
    frugal_desc d = {.tables = tables, .n_tables = 6, .dim = 2, .max_keys = 4, .optimizer = {.kind = FRUGAL_ADAM}};
    static const uint32_t group_of[] = {0, 0, 1, 2, 3, 3}, first[] = {0, 4, 9, 10};
    frugal *f = open_or_fail(&d);
    const frugal_desc *in_force = frugal_settings(f);
    assert_int_equal(1, frugal_get_store(f)->n_groups);
    assert_int_equal(FRUGAL_ADAM, frugal_get_store(f)->kind);
    assert_true(in_force->optimizer.lr_scale == 1);
    for (int t = 0; t < 6; t++) assert_memory_equal(&in_force->optimizer, in_force->tables[t].optimizer, sizeof usual);
    frugal_close(f);
    tables[1].optimizer = tables[3].optimizer = &usual; /* what the others have by default */
    tables[2].optimizer = tables[4].optimizer = tables[5].optimizer = &own;
    f = open_or_fail(&d);
    own.lr_scale = 8; /* was copied */
    const frugal_store *s = frugal_get_store(f);
    assert_int_equal(4, s->n_groups);
    for (uint32_t g = 0; g < 4; g++) assert_int_equal(first[g], s->groups[g].first_row);
    for (uint32_t t = 0, row = 0; t < 6; t++) {
        const frugal_optimizer *o = frugal_settings(f)->tables[t].optimizer;
        assert_ptr_equal(o, &s->groups[group_of[t]].optimizer);
        assert_true(o->lr_scale == (group_of[t] % 2 ? 0.5f : 1) && o->eps == 1e-8f && o->beta2 == 0.999f);
        for (uint64_t i = 0; i < tables[t].rows; i++)
            assert_int_equal(group_of[t], frugal_group_of(s->groups, s->n_groups, row++));
    }
    d = *frugal_settings(f); /* they open another like it */
    frugal *other = open_or_fail(&d);
    assert_int_equal(4, frugal_get_store(other)->n_groups);
    frugal_close(other), frugal_close(f);
}

static void test_state_floats(void **state) {
    (void)state;
    for (uint32_t dim = 1; dim < 200; dim += 11) {
        assert_int_equal(0, frugal_state_floats(FRUGAL_SGD, dim));
        assert_int_equal(dim, frugal_state_floats(FRUGAL_ADAGRAD, dim));
        assert_int_equal(1, frugal_state_floats(FRUGAL_ROWWISE_ADAGRAD, dim));
        assert_int_equal(2 * dim, frugal_state_floats(FRUGAL_ADAM, dim));
    }
}

static void test_staging_budget(void **state) {
    (void)state;
    for (uint64_t budget = 1; budget < 4000000; budget = budget * 2 + 77) {
        rig r = {0};
        frugal_desc d = rig_desc();
        frugal_stats s;
        d.lookahead = 14, d.staging = 16, d.staging_bytes = budget;
        rig_open(&r, &d);
        frugal_get_stats(r.f, &s);
        uint64_t block = 4ull * RIG_KEYS * 8 * 2; /* two devices, records of 5 floats padded to 8 */
        uint64_t wanted = budget / block < 1 ? 1 : budget / block > 16 ? 16 : budget / block;
        assert_int_equal(wanted, s.staging_depth);
        assert_int_equal(wanted, frugal_settings(r.f)->staging);
        rig_finish(&r, 20);
    }
}

/* >>initializers */

static void test_same_table_for_all_thread_counts(void **state) {
    (void)state;
    enum { ROWS = 1001, DIM = 7 };
    static float first[2 * ROWS * DIM], other[2 * ROWS * DIM];
    uint32_t counts[] = {1, 2, 3, 7, 64, 200};
    frugal_table tables[] = {{.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -2, .high = 3},
                             {.rows = ROWS, .init = FRUGAL_INIT_NORMAL, .mean = 1, .deviation = 2}};
    for (int i = 0; i < 6; i++) {
        frugal_desc d = {
            .tables = tables, .n_tables = 2, .dim = DIM, .max_keys = 1, .seed = 99, .init_threads = counts[i]};
        frugal *f = open_or_fail(&d);
        read_table(f, 0, other, NULL);
        read_table(f, 1, other + ROWS * DIM, NULL);
        if (i == 0) memcpy(first, other, sizeof(first));
        assert_memory_equal(first, other, sizeof(first));
        frugal_close(f);
    }
    frugal_desc d = {.tables = tables, .n_tables = 2, .dim = DIM, .max_keys = 1, .seed = 100};
    frugal *f = open_or_fail(&d);
    read_table(f, 0, other, NULL);
    assert_memory_not_equal(first, other, sizeof(float) * ROWS * DIM);
    frugal_close(f);
}

typedef struct moments {
    double mean, variance, skew, kurtosis, low, high, neighbours; /* correlation of one value with the next */
} moments;

static moments moments_of(const float *x, size_t n) {
    moments m = {.low = (double)x[0], .high = (double)x[0]};
    for (size_t i = 0; i < n; i++) m.mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - m.mean;
        m.variance += d * d / (double)n;
        m.skew += d * d * d / (double)n;
        m.kurtosis += d * d * d * d / (double)n;
        if (i > 0) m.neighbours += d * ((double)x[i - 1] - m.mean) / (double)n;
        if ((double)x[i] < m.low) m.low = (double)x[i];
        if ((double)x[i] > m.high) m.high = (double)x[i];
    }
    m.skew /= pow(m.variance, 1.5);
    m.kurtosis /= m.variance * m.variance;
    m.neighbours /= m.variance;
    return m;
}

/* The seed is fixed, so the test is not random; the bounds are five standard errors. */
static void test_distributions(void **state) {
    (void)state;
    enum { ROWS = 20000, DIM = 9, N = ROWS * DIM };
    static float x[N];
    frugal_table tables[] = {{.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -0.5f, .high = 1.5f},
                             {.rows = ROWS, .init = FRUGAL_INIT_NORMAL, .mean = 3, .deviation = 0.25f}};
    frugal_desc d = {.tables = tables, .n_tables = 2, .dim = DIM, .max_keys = 1, .seed = 5};
    frugal *f = open_or_fail(&d);
    double root = sqrt((double)N);
    read_table(f, 0, x, NULL);
    moments u = moments_of(x, N);
    assert_true(fabs(u.mean - 0.5) < 5 * sqrt(1.0 / 3) / root);
    assert_true(fabs(u.variance - 1.0 / 3) < 5 * sqrt(4.0 / 45) / root);
    assert_true(fabs(u.kurtosis - 1.8) < 0.03 && fabs(u.skew) < 0.03);
    assert_true(u.low >= -0.5 && u.low < -0.499 && u.high < 1.5 && u.high > 1.499);
    assert_true(fabs(u.neighbours) < 5 / root);
    read_table(f, 1, x, NULL);
    moments n = moments_of(x, N);
    assert_true(fabs(n.mean - 3) < 5 * 0.25 / root);
    assert_true(fabs(n.variance - 0.0625) < 5 * 0.0625 * sqrt(2.0) / root);
    assert_true(fabs(n.skew) < 5 * sqrt(6.0) / root && fabs(n.kurtosis - 3) < 5 * sqrt(24.0) / root);
    assert_true(fabs(n.neighbours) < 5 / root);
    assert_true(n.low < 3 - 3.5 * 0.25 && n.high > 3 + 3.5 * 0.25 && n.low > 3 - 8 * 0.25 && n.high < 3 + 8 * 0.25);
    frugal_close(f);
}

static void test_each_table_has_its_initializer(void **state) {
    (void)state;
    enum { DIM = 3 };
    float *source = malloc(sizeof(float) * 11 * DIM), rows[20 * DIM];
    for (int i = 0; i < 11 * DIM; i++) source[i] = (float)i + 0.5f;
    frugal_table tables[] = {{.rows = 4},
                             {.rows = 11, .init = FRUGAL_INIT_COPY, .source = source},
                             {.rows = 5, .init = FRUGAL_INIT_UNIFORM, .low = 7, .high = 8},
                             {.rows = 2, .init = FRUGAL_INIT_ZERO}};
    test_counter counter = {0}; /* whose memory is not zero */
    frugal_desc d = {.tables = tables,
                     .n_tables = 4,
                     .dim = DIM,
                     .max_keys = 1,
                     .allocate = test_allocate,
                     .release = test_release,
                     .user = &counter,
                     .init_threads = 3};
    frugal *f = open_or_fail(&d);
    for (int i = 0; i < 11 * DIM; i++) source[i] = -1; /* read during open only */
    free(source);
    read_table(f, 0, rows, NULL);
    for (int i = 0; i < 4 * DIM; i++) assert_true(rows[i] == 0);
    read_table(f, 1, rows, NULL);
    for (int i = 0; i < 11 * DIM; i++) assert_true(rows[i] == (float)i + 0.5f);
    read_table(f, 2, rows, NULL);
    for (int i = 0; i < 5 * DIM; i++) assert_true(rows[i] >= 7 && rows[i] < 8);
    read_table(f, 3, rows, NULL);
    for (int i = 0; i < 2 * DIM; i++) assert_true(rows[i] == 0);
    frugal_close(f);
}

static void test_first_value_of_the_state(void **state) {
    (void)state;
    enum { ROWS = 50, DIM = 5 };
    for (int i = 0; i < 4; i++) {
        frugal_table table = {.rows = ROWS};
        float s[ROWS * 2 * DIM];
        frugal_desc d = {.tables = &table,
                         .n_tables = 1,
                         .dim = DIM,
                         .max_keys = 1,
                         .optimizer = {.kind = kinds[i], .initial_accumulator = 0.75f}};
        frugal *f = open_or_fail(&d);
        read_table(f, 0, NULL, s);
        float expected = kinds[i] == FRUGAL_ADAM ? 0 : 0.75f; /* of Adagrad, row-wise Adagrad */
        for (uint32_t k = 0; k < ROWS * frugal_state_floats(kinds[i], DIM); k++)
            if (s[k] != expected)
                fail_msg("optimizer %d: state starts with %g, not %g", i, (double)s[k], (double)expected);
        frugal_close(f);
    }
}

/* Each table's own, whatever the threads that make it. */
static void test_first_value_of_each_tables_state(void **state) {
    (void)state;
    enum { DIM = 3, ROWS = 20 + 7 + 13 };
    for (int i = 0; i < 8; i++) {
        frugal_optimizer own = {.kind = kinds[i % 4], .initial_accumulator = 0.25f}, none = {.kind = kinds[i % 4]};
        frugal_table tables[] = {{.rows = 20, .optimizer = &own}, {.rows = 7}, {.rows = 13, .optimizer = &none}};
        uint32_t floats = frugal_state_floats(own.kind, DIM);
        float s[ROWS * 2 * DIM];
        frugal_desc d = {.tables = tables, .n_tables = 3, .dim = DIM, .max_keys = 1, .init_threads = i < 4 ? 1 : 7};
        d.optimizer = (frugal_optimizer){.kind = own.kind, .initial_accumulator = 0.75f};
        frugal *f = open_or_fail(&d);
        for (uint32_t t = 0, at = 0; t < 3; at += (uint32_t)tables[t++].rows) read_table(f, t, NULL, s + at * floats);
        for (uint32_t k = 0; k < ROWS * floats; k++) {
            float expected = own.kind == FRUGAL_ADAM ? 0 : k < 20 * floats ? 0.25f : k < 27 * floats ? 0.75f : 0;
            if (s[k] != expected)
                fail_msg("optimizer %d, float %u: %g, not %g", (int)own.kind, k, (double)s[k], (double)expected);
        }
        frugal_close(f);
    }
}

/* >>settings of tables: each takes its steps by its own, at the host and in caches */

static frugal_optimizer own_settings(frugal_optimizer_kind kind, int which) {
    frugal_optimizer o = {.kind = kind};
    if (which == 0 || which == 5) o.weight_decay = 0.25f;
    if (which == 1 || which == 5) o.lr_scale = 0.3f;
    if (which == 2 || which == 5) o.beta1 = 0.5f, o.beta2 = 0.75f;
    if (which == 3) o.eps = 0.125f;
    if (which == 4) o.initial_accumulator = 0.5f;
    return o;
}

static void test_tables_have_their_own_settings(void **state) {
    (void)state;
    for (int i = 0; i < 4 * 6 * 6; i++) {
        frugal_optimizer_kind kind = kinds[i % 4];
        int how = i / 24;
        frugal_optimizer own = own_settings(kind, i / 4 % 6), other = own_settings(kind, 0);
        frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
        tables[i % 3 == 1 ? 0 : 1].optimizer = &own;
        if (i % 3 == 2) tables[0].optimizer = &other;
        rig r = {.cache = {.cache_rows = how % 2 ? 40 : 0}};
        frugal_desc d = rig_desc();
        d.tables = tables, d.optimizer = (frugal_optimizer){.kind = kind, .lr_scale = i % 2 ? 0 : 1.5f};
        d.mode = how == 2 ? FRUGAL_SYNC : FRUGAL_P2F;
        d.workers = how == 2 || how == 3 ? 2 : 0, d.defer = how >= 4;
        d.reduce = i % 5 ? FRUGAL_SUM : FRUGAL_MEAN;
        d.first_step = i % 7 ? 0 : 5;
        rig_open(&r, &d);
        rig_finish(&r, 12);
    }
}

/* All that devices must agree on is the rate of the step; what becomes of it is the tables'. */
static void test_scaled_rates_are_one_rate(void **state) {
    (void)state;
    rig r = {0};
    frugal_optimizer own = {.kind = FRUGAL_ADAGRAD, .lr_scale = 0.5f};
    frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
    tables[0].optimizer = &own;
    frugal_desc d = rig_desc();
    d.tables = tables;
    rig_open(&r, &d);
    for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
    for (uint32_t i = 0; i < 2; i++) rig_lookup(&r, i);
    rig_update(&r, 0);
    frugal_gradients halved = rig_gradients(&r, 1);
    halved.lr = r.lr * 0.5f; /* as the first table takes it */
    assert_int_equal(FRUGAL_ERR_SETTINGS, frugal_update(r.f, 1, 0, &halved));
    assert_non_null(strstr(frugal_message(), "0.125"));
    rig_update(&r, 1);
    rig_judge(&r, 0);
    rig_finish(&r, 3);
}

/* >>layout */

/* DESIGN section 5: rows start on 128 bytes where the weights fill a multiple of 128, else on 32; rows under 32 bytes are
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
        assert_int_equal(0, (uintptr_t)(s->weights + row * s->weights_stride) % unit);
        if (s->state_floats > 1 || kind == FRUGAL_ADAGRAD) {
            assert_int_equal(0, (uintptr_t)(s->state + row * s->state_stride) % unit);
            assert_int_equal(s->weights_stride, s->state_stride);
            assert_in_range(s->state - s->weights, dim, s->weights_stride - s->state_floats);
        }
    }
    if (kind == FRUGAL_SGD) {
        assert_null(s->state);
        assert_int_equal(dim >= 8 ? (dim + 7) / 8 * 8 : packed, s->weights_stride); /* nothing wasted */
    }
    if (kind == FRUGAL_ROWWISE_ADAGRAD) assert_int_equal(1, s->state_stride);
    frugal_close(f);
}

static void test_row_alignment(void **state) {
    (void)state;
    for (uint32_t dim = 1; dim <= 130; dim++)
        for (int i = 0; i < 4; i++) check_layout(dim, kinds[i]);
}

/* The caller's matrix, rows at odd addresses: the rows are where the caller has them, and nothing else is written. */
static void test_callers_matrix(void **state) {
    int with_state = (int)(intptr_t)*state;
    for (int i = 0; i < 4; i++) {
        rig r = {0};
        frugal_desc d = rig_desc();
        enum { STRIDE = 7, STATE = 13, N = 3 + 60 * 13 };
        float weights[N], states[N], before[N];
        for (int k = 0; k < N; k++) weights[k] = states[k] = before[k] = (float)k * 0.01f;
        d.weights = weights + 3, d.weights_stride = STRIDE;
        if (with_state) d.state = states + 1, d.state_stride = STATE;
        d.tables = (frugal_table[]){{.rows = 40}, {.rows = 20}};
        d.optimizer.kind = kinds[i];
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

/* >>files: what was drained into one is there when it is opened again, and training goes on bit for bit */

static void test_file_is_resumed(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) { /* from the fifth on with settings of a table's own */
        char name[64];
        frugal_optimizer own = {.kind = kinds[i % 4], .weight_decay = 0.1f, .initial_accumulator = 0.5f, .beta1 = 0.6f};
        frugal_table tables[2] = {rig_tables[0], rig_tables[1]};
        if (i >= 4) tables[1].optimizer = &own;
        snprintf(name, sizeof(name), "/tmp/frugal_store_%d_%d", (int)getpid(), i);
        unlink(name);
        rig whole = {0}, part = {0};
        frugal_desc d = rig_desc();
        d.tables = tables, d.optimizer.kind = kinds[i % 4];
        rig_open(&whole, &d);
        rig_train(&whole, 12);
        d.file = name;
        rig_open(&part, &d);
        rig_finish(&part, 7); /* drains and closes */
        memset(&part, 0, sizeof(part));
        tables[0].init = tables[1].init = FRUGAL_INIT_DEFAULT; /* the file as it is */
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
        assert_true((uint64_t)status.st_size >= 4 * 60 * 5);
        unlink(name);
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
    frugal_keys keys = {0, &key, 1};
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

static void test_callers_matrix_is_zeroed_if_asked(void **state) {
    (void)state;
    float m[2 * 3] = {1, 2, 3, 4, 5, 6}, zeros[3] = {0, 0, 0};
    frugal_table tables[2] = {{.rows = 1, .init = FRUGAL_INIT_ZERO}, {.rows = 1}};
    frugal_desc d = {.tables = tables, .n_tables = 2, .dim = 3, .max_keys = 2, .weights = m};
    frugal_close(open_or_fail(&d));
    assert_memory_equal(zeros, m, sizeof(zeros));
    assert_true(m[3] == 4 && m[4] == 5 && m[5] == 6);
}

/* Initializers are for the weights: optimizer state that the caller brings along stays what it is. */
static void test_callers_state_is_kept(void **state) {
    (void)state;
    float m[2 * 3] = {0}, s[2 * 3] = {1, 2, 3, 4, 5, 6}, kept[2 * 3];
    frugal_table table = {.rows = 2, .init = FRUGAL_INIT_UNIFORM, .low = 7, .high = 8};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 3, .max_keys = 2, .weights = m, .state = s};
    d.optimizer = (frugal_optimizer){.kind = FRUGAL_ADAGRAD, .initial_accumulator = 0.5f};
    memcpy(kept, s, sizeof(s));
    frugal_close(open_or_fail(&d));
    assert_memory_equal(kept, s, sizeof(s));
    for (int i = 0; i < 6; i++) assert_true(m[i] >= 7 && m[i] <= 8);
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

/* Blocks of the ring are counted by the steps whose records are not flushed, not by when they are due. */
static void test_staging_in_use(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.defer = 1, d.lookahead = 0, d.staging = 5;
    rig_open(&r, &d);
    frugal_stats s;
    rig_train(&r, 1);
    frugal_get_stats(r.f, &s);
    while (s.steps == 0) frugal_help(r.f), frugal_get_stats(r.f, &s); /* close it */
    assert_in_range(s.staging_in_use, s.flushed == 0, 1);
    assert_int_equal(5, s.staging_depth);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    frugal_get_stats(r.f, &s);
    assert_int_equal(0, s.staging_in_use);
    rig_finish(&r, 0);
}

/* >>large rows: more than the arithmetic takes at a time */

static void test_large_rows(void **state) {
    (void)state;
    static const uint32_t dims[] = {131, 255, 256, 257, 288, 300, 511, 513, 1030, 4096};
    for (unsigned i = 0; i < sizeof(dims) / sizeof(*dims); i++)
        for (int k = 0; k < 4; k++) {
            rig r = {.cache = {.cache_rows = 20}};
            frugal_desc d = rig_desc();
            d.dim = dims[i], d.optimizer.kind = kinds[k];
            if (i % 2) d.optimizer.weight_decay = 0.01f, d.reduce = FRUGAL_MEAN, d.devices = 3;
            rig_open(&r, &d);
            rig_finish(&r, 3);
        }
}

static void test_largest_row(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.dim = 65536, d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
    d.tables = (frugal_table[]){{.rows = 3, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}};
    d.n_tables = 1;
    rig_open(&r, &d);
    rig_finish(&r, 2);
}

static void every_row(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)device, (void)step;
    b->n = b->split = (uint32_t)r->desc.tables[0].rows;
    for (uint32_t i = 0; i < b->n; i++) b->keys[i] = i;
}

/* Enough rows that some are asked for ahead: whole rows and the start of longer ones, with a cache and without. */
static void test_many_wide_rows(void **state) {
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        rig r = {.change = every_row, .cache = {.cache_rows = way / 2 ? 20 : 0}};
        frugal_desc d = rig_desc();
        d.dim = way % 2 ? 512 : 513, d.max_keys = 40;
        rig_open(&r, &d);
        rig_finish(&r, 3);
    }
}

/* >>reading and writing rows */

static void test_read_and_write_rows(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 200}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 6);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    int64_t signed_keys[] = {19, 0, 3}; /* as other libraries have them */
    frugal_keys k = {1, (const uint64_t *)(const void *)signed_keys, 3};
    float weights[15], states[15], read[15];
    for (int i = 0; i < 15; i++) weights[i] = 100 + (float)i, states[i] = 200 + (float)i;
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &k, weights, NULL));
    for (int i = 0; i < 3; i++) memcpy(r.ref.weights + (40 + signed_keys[i]) * 5, weights + 5 * i, 20);
    rig_compare(&r); /* the state is as it was */
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &k, NULL, states));
    for (int i = 0; i < 3; i++) memcpy(r.ref.state + (40 + signed_keys[i]) * 5, states + 5 * i, 20);
    rig_compare(&r);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &k, read, NULL));
    assert_memory_equal(weights, read, sizeof(read));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &k, NULL, read));
    assert_memory_equal(states, read, sizeof(read));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &k, NULL, NULL));
    frugal_keys none = {0, NULL, 0};
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &none, NULL, NULL));
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &none, NULL, NULL));
    rig_finish(&r, 6); /* whatever a cache holds of those rows is not used */
}

/* State is passed over where the optimizer has none. */
static void test_state_of_an_optimizer_without(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    uint64_t key = 7;
    frugal_keys keys = {0, &key, 1};
    float given[5] = {1, 2, 3, 4, 5}, read[5] = {-1, -2, -3, -4, -5}, before[5];
    memcpy(before, read, sizeof(read));
    d.optimizer.kind = FRUGAL_SGD;
    rig_open(&r, &d);
    rig_train(&r, 3);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &keys, NULL, given));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &keys, NULL, read));
    assert_memory_equal(before, read, sizeof(read));
    rig_finish(&r, 3);
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
    uint64_t keys[] = {FRUGAL_MAX_ROWS - 1, 0, UINT64_C(1) << 31, FRUGAL_MAX_ROWS - 1, (UINT64_C(1) << 31) - 1};
    float grads[] = {1, 2, 3, 4, 5}, rows[5], expected[] = {-5, -2, -3, -5, -5};
    uint64_t beyond = FRUGAL_MAX_ROWS;
    frugal_keys segment = {0, keys, 5}, out = {0, &beyond, 1};
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

/* Rows that every device holds a copy of are written: no lookup sees the old values. */
static void test_written_rows_are_not_served_from_caches(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 1000}, .repeat = 1};
    frugal_desc d = rig_desc();
    d.devices = 1;
    rig_open(&r, &d);
    rig_train(&r, 3);
    frugal_stats before, after;
    frugal_get_stats(r.f, &before);
    assert_true(before.hits > 0);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    uint64_t keys[40];
    float weights[40 * 5];
    frugal_keys k = {0, keys, 40};
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    for (int i = 0; i < 200; i++) weights[i] = -3 + (float)i;
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &k, weights, NULL));
    memcpy(r.ref.weights, weights, sizeof(weights));
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    rig_train(&r, 1);
    frugal_get_stats(r.f, &after);
    assert_true(after.misses > before.misses);
    rig_finish(&r, 3);
}

/* Reading touches no cache, between steps and with steps announced and updates not flushed. */
static void test_reading_between_steps(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 1000}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    for (int i = 0; i < 8; i++) {
        rig_train(&r, 1);
        rig_announce(&r, 0), rig_announce(&r, 1);
        rig_announce(&r, 0);
        frugal_stats before, after;
        frugal_get_stats(r.f, &before);
        rig_compare(&r);
        frugal_get_stats(r.f, &after);
        assert_true(before.hits == after.hits && before.misses == after.misses && before.keys == after.keys);
        rig_announce(&r, 1);
        rig_train(&r, 1);
    }
    rig_finish(&r, 1);
}

/* A step that not all devices have committed is not read yet. */
static void test_reading_as_of_the_last_committed_step(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 3);
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    rig_update(&r, 1);
    rig_compare(&r);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    rig_compare(&r);
    rig_update(&r, 0);
    rig_judge(&r, 0);
    rig_finish(&r, 2);
}

static void test_view(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    rig_train(&r, 5);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    for (uint32_t t = 0; t < 2; t++) {
        const float *weights;
        uint64_t stride;
        assert_int_equal(FRUGAL_OK, frugal_view(r.f, t, &weights, &stride));
        for (uint64_t i = 0; i < d.tables[t].rows; i++)
            assert_memory_equal(weights + i * stride, r.ref.weights + (40 * t + i) * 5, 20);
    }
    rig_finish(&r, 2);
}

/* Reading flushes the rows that it reads, and no other. */
static void test_reading_flushes_what_it_reads(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_stats before, after;
    uint64_t key, stride;
    const float *view;
    float row[5] = {0};
    frugal_keys keys = {0, &key, 1};
    d.defer = 1;
    rig_open(&r, &d);
    rig_train(&r, 3);
    frugal_get_stats(r.f, &before);
    key = r.rows[0][0];
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &keys, row, NULL));
    assert_memory_equal(r.ref.weights + key * 5, row, sizeof(row));
    frugal_get_stats(r.f, &after);
    assert_int_equal(before.flushed + 1, after.flushed);
    assert_int_equal(FRUGAL_ERR_BUSY, frugal_view(r.f, 0, &view, &stride)); /* all is closed, not all is flushed */
    assert_int_equal(FRUGAL_ERR_BUSY, frugal_write_rows(r.f, &keys, row, NULL));
    assert_int_equal(FRUGAL_ERR_BUSY, frugal_verify(r.f));
    rig_compare(&r);
    assert_int_equal(FRUGAL_OK, frugal_view(r.f, 0, &view, &stride)); /* every row was read */
    rig_finish(&r, 3);
}

/* >>batches */

/* Rows are looked up into the records of the staging block, and the sums of their gradients written there. */
static void test_gradients_in_place(void **state) {
    rig r = {.cache = {.cache_rows = (uint64_t)(intptr_t)*state}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    for (int s = 0; s < 8; s++) {
        frugal_records records;
        for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, i, r.step, NULL));
            assert_int_equal(FRUGAL_OK, frugal_get_records(r.f, i, r.step, &records));
            assert_int_equal(RIG_KEYS, records.n);
            for (uint32_t u = 0; u < records.n_unique; u++)
                assert_memory_equal(records.block + u * records.stride, r.ref.weights + records.rows[u] * 5, 20);
            rig_lookup(&r, i); /* again, by position: the gradients depend on it */
            for (uint32_t u = 0; u < records.n_unique; u++)
                frugal_sum_positions(records.block + u * records.stride, r.grads[i], 5,
                                     records.order + records.start[u], records.start[u + 1] - records.start[u]);
            frugal_gradients in_place = {.records = 1, .lr = r.lr};
            assert_int_equal(FRUGAL_OK, frugal_update(r.f, i, r.step, &in_place));
        }
        rig_judge(&r, 0);
    }
    rig_finish(&r, 3);
}

/* A few steps in which each device brings n keys of one table, an empty segment first. */
static void check_shape(uint64_t rows, uint32_t devices, uint32_t n, int defer) {
    frugal_table table = {.rows = rows};
    frugal_optimizer adam = {.kind = FRUGAL_ADAM, .eps = 1e-6f, .beta1 = 0.8f, .beta2 = 0.95f};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 1, .devices = devices, .max_keys = n, .defer = defer};
    d.optimizer = adam;
    reference ref = {.rows = rows, .dim = 1, .devices = devices, .optimizer = REFERENCE_ADAM};
    ref.eps = adam.eps, ref.beta1 = adam.beta1, ref.beta2 = adam.beta2;
    reference_batch *batches = calloc(devices, sizeof *batches);
    uint32_t *numbers = calloc((size_t)devices * n, sizeof *numbers);
    float *grads = calloc((size_t)devices * n, sizeof *grads), *found = calloc(n, sizeof *found);
    uint64_t *keys = calloc(n, sizeof *keys);
    frugal_keys segments[2] = {{0, NULL, 0}, {0, keys, n}};
    frugal_batch batch = {segments, 2, 0};
    frugal *f = open_or_fail(&d);
    assert_true(reference_open(&ref, 0));
    for (uint32_t i = 0; i < devices; i++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, i, NULL));
    for (uint64_t s = 0; s < 4; s++) {
        for (uint32_t i = 0; i < devices; i++) {
            batches[i] = (reference_batch){numbers + (size_t)i * n, n, grads + (size_t)i * n};
            for (uint32_t k = 0; k < n; k++) {
                keys[k] = numbers[(size_t)i * n + k] = (uint32_t)(test_mix3(s, i, k) % rows);
                grads[(size_t)i * n + k] = (float)test_unit(test_mix3(i, s, k)) - 0.5f;
            }
            frugal_status status;
            while ((status = frugal_try_announce(f, i, s, &batch)) == FRUGAL_AGAIN)
                if (!frugal_help(f)) fail_msg("step %u is not legal, and there is nothing to do", (unsigned)s);
            assert_int_equal(FRUGAL_OK, status);
        }
        for (uint32_t i = 0; i < devices; i++) {
            frugal_gradients g = {.grads = grads + (size_t)i * n, .lr = 0.125f};
            assert_int_equal(FRUGAL_OK, frugal_lookup(f, i, s, NULL)); /* into the block; then by position: */
            assert_int_equal(FRUGAL_OK, frugal_lookup(f, i, s, found));
            for (uint32_t k = 0; k < n; k++)
                if (memcmp(&found[k], &ref.weights[numbers[(size_t)i * n + k]], 4)) fail_msg("row of position %u", k);
            assert_int_equal(FRUGAL_OK, frugal_update(f, i, s, &g));
        }
        reference_step(&ref, s, 0.125f, batches);
    }
    const float *view;
    uint64_t stride;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_view(f, 0, &view, &stride));
    for (uint64_t row = 0; row < rows; row++) assert_memory_equal(&view[row * stride], &ref.weights[row], 4);
    frugal_close(f);
    reference_close(&ref);
    free(batches), free(numbers), free(grads), free(found), free(keys);
}

static void test_shapes(void **state) {
    (void)state;
    for (int defer = 0; defer < 2; defer++) {
        check_shape(1, 1, 1, defer);          /* one row needs no sorting */
        check_shape(1, 3, 5, defer);          /* of which there are many */
        check_shape(100000, 2, 20000, defer); /* wide digits, many pieces */
        check_shape(6, 254, 6, defer);        /* every row is in nearly every batch */
    }
}

/* >>caches */

enum { SERVED = 60 };

/* A read-only step in which every device looks keys[n] of table 0 up; returns the hits and misses that it took. */
static frugal_stats serve(rig *r, const uint64_t *keys, uint32_t n) {
    frugal_keys segment = {0, keys, n};
    frugal_batch batch = {&segment, 1, 1};
    frugal_stats before, after;
    float rows[SERVED * 5];
    frugal_get_stats(r->f, &before);
    for (uint32_t i = 0; i < r->desc.devices; i++)
        assert_int_equal(FRUGAL_OK, frugal_announce(r->f, i, r->step, &batch));
    for (uint32_t i = 0; i < r->desc.devices; i++) {
        assert_int_equal(FRUGAL_OK, frugal_lookup(r->f, i, r->step, rows));
        for (uint32_t k = 0; k < n; k++) assert_memory_equal(rows + 5 * k, r->ref.weights + 5 * keys[k], 20);
    }
    for (uint32_t i = 0; i < r->desc.devices; i++) {
        assert_int_equal(FRUGAL_OK, frugal_update(r->f, i, r->step, NULL));
        r->announced[i]++;
    }
    r->step++;
    frugal_get_stats(r->f, &after);
    after.hits -= before.hits, after.misses -= before.misses;
    return after;
}

/* After training, once the holders are released, serving from a cache that has room never misses. */
static void test_serving_after_training(void **state) {
    frugal_cache_policy policy = (frugal_cache_policy)(intptr_t)*state;
    rig r = {.cache = {.cache_rows = 4000, .policy = policy}};
    frugal_desc d = rig_desc();
    uint64_t keys[40];
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    d.workers = 1, d.max_keys = SERVED;
    rig_open(&r, &d);
    rig_train(&r, 10);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_release_holders(r.f));
    frugal_stats s = serve(&r, keys, 40);
    assert_int_equal(0, s.hits); /* it was emptied */
    assert_int_equal(80, s.misses);
    for (int i = 0; i < 3; i++) {
        s = serve(&r, keys, 40);
        assert_int_equal(80, s.hits);
        assert_int_equal(0, s.misses);
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    rig_finish(&r, 10); /* and training goes on */
}

static void test_preloaded_rows_hit(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 4000, .policy = FRUGAL_CACHE_STATIC}};
    frugal_desc d = rig_desc();
    uint64_t keys[40];
    for (uint64_t i = 0; i < 40; i++) keys[i] = i;
    d.max_keys = SERVED;
    rig_open(&r, &d);
    frugal_keys hot = {0, keys, 15};
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &hot));
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &hot)); /* twice is no harm */
    hot.n = 5;
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 1, &hot));
    for (int i = 0; i < 3; i++) { /* static: nothing else ever gets in */
        frugal_stats s = serve(&r, keys, 40);
        assert_int_equal(15 + 5, s.hits);
        assert_int_equal(25 + 35, s.misses);
    }
    rig_train(&r, 8);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    assert_int_equal(FRUGAL_OK, frugal_release_holders(r.f));
    hot.n = 40;
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 1, &hot));
    frugal_stats s = serve(&r, keys, 40);
    assert_int_equal(40, s.hits);
    rig_finish(&r, 8);
}

/* Where there is no cache, preloading is allowed, and nothing comes of it. */
static void test_preloading_without_a_cache(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    uint64_t keys[] = {1, 2, 3};
    frugal_keys hot = {0, keys, 3};
    d.max_keys = SERVED;
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &hot));
    frugal_stats s = serve(&r, keys, 3);
    assert_true(s.hits == 0 && s.misses == 6);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_release_holders(r.f));
    rig_finish(&r, 3);
}

/* A set that is full takes no more: what was preloaded first stays. */
static void test_preloading_more_than_there_is_room_for(void **state) {
    (void)state;
    for (int policy = FRUGAL_CACHE_LRU; policy <= FRUGAL_CACHE_STATIC; policy++) {
        rig r = {.cache = {.cache_rows = 8, .policy = (frugal_cache_policy)policy}};
        frugal_desc d = rig_desc();
        uint64_t keys[20];
        frugal_keys all = {0, keys, 20};
        for (uint64_t i = 0; i < 20; i++) keys[i] = i;
        d.max_keys = SERVED;
        rig_open(&r, &d);
        assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &all));
        frugal_stats s = serve(&r, keys, 8);
        assert_int_equal(8, s.hits);   /* of device 0 */
        assert_int_equal(8, s.misses); /* of device 1 */
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
        rig_finish(&r, 3);
    }
}

/* verify compares weights and state of every current copy: one wrong bit at the host is found. */
static void test_verify_finds_what_differs(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        rig r = {.cache = {.cache_rows = 1000}, .repeat = 1};
        frugal_desc d = rig_desc();
        d.devices = 1, d.optimizer.kind = kinds[i];
        rig_open(&r, &d);
        rig_train(&r, 3);
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        const frugal_store *s = frugal_get_store(r.f);
        uint64_t row = r.rows[0][RIG_KEYS - 1];
        float *places[] = {s->weights + row * s->weights_stride + 4,
                           s->state ? s->state + row * s->state_stride + s->state_floats - 1 : NULL};
        for (int k = 0; k < (s->state ? 2 : 1); k++) {
            float right = *places[k];
            *places[k] = nextafterf(right, 1e9f);
            assert_int_equal(FRUGAL_ERR_COPY, frugal_verify(r.f));
            assert_non_null(strstr(frugal_message(), "device 0"));
            *places[k] = right;
            assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
        }
        rig_finish(&r, 3);
    }
}

/* One set of eight places. Least recently used: the ninth row takes the place of the one not touched for longest. Least
 * frequently used: of one that was touched least. */
static void test_which_row_leaves(void **state) {
    (void)state;
    for (int policy = FRUGAL_CACHE_LRU; policy <= FRUGAL_CACHE_LFU; policy++) {
        rig r = {.cache = {.cache_rows = 8, .policy = (frugal_cache_policy)policy}};
        frugal_desc d = rig_desc();
        d.devices = 1;
        rig_open(&r, &d);
        uint64_t eight[] = {0, 1, 2, 3, 4, 5, 6, 7}, often[] = {0}, others[] = {1, 2, 3, 4, 5, 6, 7}, ninth[] = {8};
        assert_int_equal(0, serve(&r, eight, 8).hits);
        for (int i = 0; i < 20; i++) assert_int_equal(1, serve(&r, often, 1).hits);
        assert_int_equal(7, serve(&r, others, 7).hits); /* 0 is now the oldest, and the most used */
        assert_int_equal(0, serve(&r, ninth, 1).hits);
        assert_int_equal(policy == FRUGAL_CACHE_LRU ? 0 : 1, serve(&r, often, 1).hits);
        rig_finish(&r, 10);
    }
}

/* With one device a copy stays current through training: its own updates reach it. */
static void test_one_device_hits_while_training(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        rig r = {.cache = {.cache_rows = 4000}, .repeat = 1};
        frugal_desc d = rig_desc();
        d.devices = 1, d.optimizer.kind = kinds[i];
        rig_open(&r, &d);
        rig_train(&r, 1);
        frugal_stats first, s;
        frugal_get_stats(r.f, &first);
        assert_int_equal(0, first.hits);
        rig_train(&r, 9);
        frugal_get_stats(r.f, &s);
        assert_int_equal(first.misses, s.misses);
        assert_int_equal(9 * first.misses, s.hits);
        rig_finish(&r, 0);
    }
}

/* >>statistics and memory */

static void check_drained_stats(rig *r, int defer) {
    frugal_stats s;
    uint64_t urgencies = 0;
    assert_int_equal(FRUGAL_OK, frugal_drain(r->f));
    frugal_get_stats(r->f, &s);
    assert_int_equal(4, s.steps);
    assert_true(s.flushed > 0 && s.flushed <= s.unique_rows);
    for (int i = 0; i < 64; i++) {
        urgencies += s.flushed_by_urgency[i];
        assert_int_equal(0, s.queue_depth[i]);
        if (i > 5) assert_int_equal(0, s.flushed_by_urgency[i]); /* due within S at the latest */
    }
    assert_int_equal(s.unique_rows, s.closed_entries);
    assert_int_equal(s.flushed, urgencies + s.flushed_at_close);
    assert_int_equal(0, defer ? s.flushed_at_close : urgencies);
    assert_int_equal(0, s.staging_in_use);
}

static void test_stats_count(void **state) {
    int defer = (int)(intptr_t)*state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_stats s;
    d.defer = defer;
    rig_open(&r, &d);
    frugal_get_stats(r.f, &s);
    assert_true(s.steps == 0 && s.keys == 0 && s.flushed == 0 && s.hits == 0 && s.misses == 0 && s.gate_waits == 0);
    assert_int_equal(defer ? 4 : 1, s.staging_depth);
    rig_train(&r, 4);
    frugal_get_stats(r.f, &s);
    int64_t queued = 0;
    for (int i = 0; i < 64; i++) queued += s.queue_depth[i];
    assert_int_equal(4 * 2 * RIG_KEYS, s.keys);
    assert_int_equal(s.unique_rows, s.hits + s.misses);
    assert_true(s.steps <= 4 && s.steps >= 3);
    assert_true(s.staging_in_use <= s.staging_depth);
    uint64_t flushed = s.flushed;
    check_drained_stats(&r, defer);
    frugal_get_stats(r.f, &s);
    assert_true(s.flushed >= flushed + (uint64_t)queued); /* and what was not closed yet */
    rig_finish(&r, 1);
}

/* frugal.h, section 9, and frugal_p2f.h, section 10, term by term; what it leaves out are headers and roundings. */
static void check_memory_formula(uint64_t K, uint64_t pieces) {
    const uint64_t n = 3, L = 4, S = 6, D = 32, threads = 2 * n + 256;
    frugal_table table = {.rows = 1000};
    frugal_desc d = {.tables = &table,
                     .n_tables = 1,
                     .dim = 20,
                     .devices = 3,
                     .max_keys = (uint32_t)K,
                     .lookahead = 4,
                     .staging = 6};
    frugal *f = open_or_fail(&d);
    frugal_stats s;
    frugal_get_stats(f, &s);
    uint64_t staging = 4 * n * S * K * D, plans = 8 * (n * K + 1) * (S + L + 1);
    uint64_t batches = n * (L + 1) * K * 161 / 8, sorting = 16 * n * K;
    uint64_t queue = 256 * (n * (L + 1) * K / 62 + S * (n * K / 62 + (L + 2) * pieces) + threads);
    uint64_t formula = staging + plans + batches + sorting + queue;
    assert_int_equal(8 * 1000, s.state_bytes);
    assert_in_range(s.other_bytes, formula, formula + 40000);
    frugal_close(f);
}

static void test_memory_formula(void **state) {
    (void)state;
    check_memory_formula(5000, 3 * 5000 / 1024 + 1);
    check_memory_formula(20000, 33);
    check_memory_formula(60000, 3 * 60000 / 4096 + 1);
}

/* The formula of the docs: 8 bytes a row beside table and optimizer state, and what does not grow with rows. */
static void test_memory_beside_the_table(void **state) {
    int with_state = (int)(intptr_t)*state;
    static const uint64_t rows[] = {1000, 2000, 50000, 123457};
    uint64_t other = 0, rest = 0;
    for (int i = 0; i < 4; i++) {
        test_counter counter = {0};
        frugal_table table = {.rows = rows[i]};
        frugal_desc d = {.tables = &table,
                         .n_tables = 1,
                         .dim = 8,
                         .devices = 3,
                         .max_keys = 500,
                         .lookahead = 4,
                         .allocate = test_allocate,
                         .release = test_release,
                         .user = &counter};
        if (with_state) d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
        frugal *f = open_or_fail(&d);
        frugal_cpu_desc cache = {.cache_rows = 100};
        for (uint32_t k = 0; k < 3; k++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, k, &cache));
        frugal_stats s;
        frugal_get_stats(f, &s);
        assert_true(s.state_bytes <= 9 * rows[i]);
        if (i == 0) other = s.other_bytes;
        /* words are laid out in whole lines */
        assert_in_range(s.other_bytes, other - 64, other + 64);
        uint64_t table_bytes = (rows[i] * 4 * 8 + 4095) / 4096 * 4096; /* whole pages, which a device may pin */
        if (with_state) table_bytes += (rows[i] * 4 + 4095) / 4096 * 4096;
        uint64_t bytes = counter.bytes_out;
        assert_true(bytes > table_bytes + s.state_bytes);
        uint64_t beside = bytes - table_bytes - s.state_bytes; /* all that was allocated */
        if (i == 0) rest = beside;
        assert_in_range(beside, rest - 64, rest + 64);
        assert_in_range(s.other_bytes, rest * 8 / 10, rest); /* which other_bytes accounts for */
        frugal_close(f);
        assert_int_equal(0, (int)counter.bytes_out);
    }
}

/* >>arithmetic of the caller's thread */

enum { NORMAL_MODE, FLUSH_TO_ZERO, ROUND_UPWARD };

static void set_mode(int mode) {
    fesetround(mode == ROUND_UPWARD ? FE_UPWARD : FE_TONEAREST);
#if defined(__SSE__)
    unsigned int flags = _mm_getcsr() & ~0x8040u;
    _mm_setcsr(mode == FLUSH_TO_ZERO ? flags | 0x8040u : flags);
#endif
}

static int mode_is(int mode) {
    int good = fegetround() == (mode == ROUND_UPWARD ? FE_UPWARD : FE_TONEAREST);
#if defined(__SSE__)
    good &= (_mm_getcsr() & 0x8040u) == (mode == FLUSH_TO_ZERO ? 0x8040u : 0);
#endif
    return good;
}

/* Trains tiny numbers, subnormals among them, with the calling thread's arithmetic in `mode`; reads the table. */
static void train_in_mode(int mode, frugal_optimizer_kind kind, float weights[60 * 5], float state[60 * 10]) {
    frugal_table tables[] = {{.rows = 30, .init = FRUGAL_INIT_NORMAL, .deviation = 1e-38f},
                             {.rows = 30, .init = FRUGAL_INIT_UNIFORM, .high = 1e-37f}};
    frugal_desc d = {.tables = tables,
                     .n_tables = 2,
                     .dim = 5,
                     .max_keys = 40,
                     .lookahead = 2,
                     .reduce = FRUGAL_MEAN,
                     .devices = 3,
                     .optimizer = {.kind = kind, .weight_decay = 0.3f, .eps = 1e-3f},
                     .init_threads = 1,
                     .defer = mode == FLUSH_TO_ZERO};
    uint64_t keys[40];
    float grads[40 * 5], rows[40 * 5];
    for (uint64_t i = 0; i < 40; i++) keys[i] = i * i % 30;
    for (int i = 0; i < 200; i++)
        grads[i] = (float)test_unit(test_mix((uint64_t)i)) * (i % 3 ? 1e-38f : i % 2 ? 1.0f : 1e-19f);
    frugal_keys segments[] = {{0, keys, 20}, {1, keys + 20, 20}};
    frugal_batch batch = {segments, 2, 0};
    frugal_gradients g = {.grads = grads};
    float rates[6]; /* computed before the mode is set */
    for (int i = 0; i < 6; i++) rates[i] = 0.0173f * (float)(i + 1);
    set_mode(mode);
    frugal *f = open_or_fail(&d);
    frugal_cpu_desc cache = {.cache_rows = 64};
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, i, &cache));
    for (uint64_t s = 0; s < 6; s++) {
        g.lr = rates[s];
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(FRUGAL_OK, frugal_announce(f, i, s, &batch));
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(FRUGAL_OK, frugal_lookup(f, i, s, rows));
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(FRUGAL_OK, frugal_update(f, i, s, &g));
        while (frugal_help(f)) {
        }
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    int unchanged = mode_is(mode);
    set_mode(NORMAL_MODE);
    assert_true(unchanged); /* the caller's mode is the caller's */
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    read_table(f, 0, weights, state);
    read_table(f, 1, weights + 30 * 5, state + 30 * frugal_state_floats(kind, 5));
    frugal_close(f);
}

static void test_callers_arithmetic_mode(void **state) {
    int mode = (int)(intptr_t)*state;
    for (int i = 0; i < 4; i++) {
        float weights[2][60 * 5] = {{0}}, states[2][60 * 10] = {{0}};
        train_in_mode(NORMAL_MODE, kinds[i], weights[0], states[0]);
        train_in_mode(mode, kinds[i], weights[1], states[1]);
        int subnormals = 0;
        for (int k = 0; k < 300; k++) subnormals += fpclassify(weights[0][k]) == FP_SUBNORMAL;
        assert_true(subnormals > 0); /* or it would prove nothing */
        if (memcmp(weights[0], weights[1], sizeof(weights[0])) || memcmp(states[0], states[1], sizeof(states[0])))
            fail_msg("optimizer %d: the caller's arithmetic mode changes results", (int)kinds[i]);
    }
}

/* >>learning rate and steps */

static void test_learning_rate_zero(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    float before[60 * 5];
    memcpy(before, r.ref.weights, sizeof(before));
    frugal_gradients g = {0};
    rig_announce(&r, 0), rig_announce(&r, 1);
    rig_lookup(&r, 0), rig_lookup(&r, 1);
    for (uint32_t i = 0; i < 2; i++) {
        g.grads = r.grads[i];
        assert_int_equal(FRUGAL_OK, frugal_update(r.f, i, 0, &g));
    }
    r.lr = 0;
    rig_judge(&r, 0);
    assert_memory_equal(before, r.ref.weights, sizeof(before));
    rig_compare(&r); /* Adagrad's state has moved all the same */
    r.lr = 0.1f;
    rig_finish(&r, 3);
}

static void test_late_first_steps(void **state) {
    (void)state;
    static const uint64_t steps[] = {1, 63, 64, 65535, UINT64_C(1) << 32, (UINT64_C(1) << 40) + 5};
    for (unsigned k = 0; k < sizeof(steps) / sizeof(*steps); k++)
        for (int i = 0; i < 4; i += 3) {
            rig r = {.cache = {.cache_rows = 30}};
            frugal_desc d = rig_desc();
            d.first_step = steps[k], d.optimizer.kind = kinds[i];
            rig_open(&r, &d);
            rig_finish(&r, 10);
        }
}

/* >>threads of the user's, several instances */

typedef struct helper {
    pthread_t thread;
    frugal *f;
    atomic_int *over;
    uint64_t pieces;
} helper;

static void *help_until_over(void *argument) {
    helper *h = argument;
    while (!atomic_load(h->over))
        if (frugal_help(h->f))
            h->pieces++;
        else
            sched_yield();
    return NULL;
}

/* No workers, and a trainer that never waits: all the work is done by two threads that call frugal_help. */
static void test_help_on_users_threads(void **state) {
    rig r = {0};
    frugal_desc d = rig_desc();
    atomic_int over = 0;
    d.defer = (int)(intptr_t)*state; /* the helpers flush what the closers queue; or closers flush */
    rig_open(&r, &d);
    helper helpers[2] = {{.f = r.f, .over = &over}, {.f = r.f, .over = &over}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, pthread_create(&helpers[i].thread, NULL, help_until_over, &helpers[i]));
    for (int s = 0; s < 50; s++) {
        for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i); /* legal at once: its step is the next */
        for (uint32_t i = 0; i < 2; i++) {
            while (frugal_try_lookup(r.f, i, r.step, r.looked_up[i]) == FRUGAL_AGAIN) sched_yield();
            rig_lookup(&r, i); /* again, now that the gate is open */
        }
        rig_update(&r, 0), rig_update(&r, 1);
        rig_judge(&r, 0);
    }
    frugal_stats s;
    do frugal_get_stats(r.f, &s);
    while (s.steps < 50);
    atomic_store(&over, 1);
    for (int i = 0; i < 2; i++) assert_int_equal(0, pthread_join(helpers[i].thread, NULL));
    assert_true(helpers[0].pieces + helpers[1].pieces >= 100); /* 50 plans, 50 closings */
    rig_finish(&r, 1);
}

static void test_several_instances(void **state) {
    (void)state;
    enum { N = 5 };
    rig rigs[N] = {{0}};
    for (int i = 0; i < N; i++) {
        frugal_desc d = rig_desc();
        d.optimizer.kind = kinds[i % 4];
        d.workers = (uint32_t)i % 3, d.seed = (uint64_t)i, d.devices = 1 + (uint32_t)i % 3, d.lookahead = (uint32_t)i;
        d.mode = i == 4 ? FRUGAL_SYNC : FRUGAL_P2F;
        rigs[i].cache.cache_rows = 20 * (uint64_t)i;
        rig_open(&rigs[i], &d);
    }
    for (int s = 0; s < 20; s++)
        for (int i = 0; i < N; i++) rig_train(&rigs[i], 1 + (s + i) % 3);
    for (int i = N; i-- > 0;) rig_finish(&rigs[i], 1);
}

#define CASE(name, test, argument)                                                                                     \
    { name, test, NULL, NULL, (void *)(intptr_t)(argument) }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_resolved),
        cmocka_unit_test(test_groups_of_tables),
        cmocka_unit_test(test_state_floats),
        cmocka_unit_test(test_staging_budget),
        cmocka_unit_test(test_same_table_for_all_thread_counts),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_each_table_has_its_initializer),
        cmocka_unit_test(test_first_value_of_the_state),
        cmocka_unit_test(test_first_value_of_each_tables_state),
        cmocka_unit_test(test_tables_have_their_own_settings),
        cmocka_unit_test(test_scaled_rates_are_one_rate),
        cmocka_unit_test(test_row_alignment),
        CASE("test_callers_matrix, state in memory of ours", test_callers_matrix, 0),
        CASE("test_callers_matrix, the caller's state", test_callers_matrix, 1),
        cmocka_unit_test(test_file_is_resumed),
        cmocka_unit_test(test_file_that_is_there_is_kept),
        cmocka_unit_test(test_callers_matrix_is_zeroed_if_asked),
        cmocka_unit_test(test_callers_state_is_kept),
        cmocka_unit_test(test_allocator_without_release),
        cmocka_unit_test(test_staging_in_use),
        cmocka_unit_test(test_large_rows),
        cmocka_unit_test(test_largest_row),
        cmocka_unit_test(test_many_wide_rows),
        cmocka_unit_test(test_read_and_write_rows),
        cmocka_unit_test(test_state_of_an_optimizer_without),
        cmocka_unit_test(test_as_many_rows_as_there_can_be),
        cmocka_unit_test(test_written_rows_are_not_served_from_caches),
        cmocka_unit_test(test_reading_between_steps),
        cmocka_unit_test(test_reading_as_of_the_last_committed_step),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_reading_flushes_what_it_reads),
        CASE("test_gradients_in_place", test_gradients_in_place, 0),
        CASE("test_gradients_in_place, with caches", test_gradients_in_place, 40),
        cmocka_unit_test(test_shapes),
        CASE("test_serving_after_training, LRU", test_serving_after_training, FRUGAL_CACHE_LRU),
        CASE("test_serving_after_training, LFU", test_serving_after_training, FRUGAL_CACHE_LFU),
        cmocka_unit_test(test_preloaded_rows_hit),
        cmocka_unit_test(test_preloading_without_a_cache),
        cmocka_unit_test(test_preloading_more_than_there_is_room_for),
        cmocka_unit_test(test_verify_finds_what_differs),
        cmocka_unit_test(test_which_row_leaves),
        cmocka_unit_test(test_one_device_hits_while_training),
        CASE("test_stats_count, flushing as steps are closed", test_stats_count, 0),
        CASE("test_stats_count, queued", test_stats_count, 1),
        cmocka_unit_test(test_memory_formula),
        CASE("test_memory_beside_the_table", test_memory_beside_the_table, 0),
        CASE("test_memory_beside_the_table and row-wise state", test_memory_beside_the_table, 1),
        CASE("test_callers_arithmetic_mode, the same mode", test_callers_arithmetic_mode, NORMAL_MODE),
        CASE("test_callers_arithmetic_mode, flush to zero", test_callers_arithmetic_mode, FLUSH_TO_ZERO),
        CASE("test_callers_arithmetic_mode, rounding upward", test_callers_arithmetic_mode, ROUND_UPWARD),
        cmocka_unit_test(test_learning_rate_zero),
        cmocka_unit_test(test_late_first_steps),
        CASE("test_help_on_users_threads, flushing as steps are closed", test_help_on_users_threads, 0),
        CASE("test_help_on_users_threads, queued", test_help_on_users_threads, 1),
        cmocka_unit_test(test_several_instances),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
