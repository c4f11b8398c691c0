/* test_types.c - weights of 16 bits in an instance: what is refused; how weights get their first values, are written,
 * read and viewed; which random bits round updates; what verify says of copies. More configurations are in
 * tests/property; the arithmetic of rows is in test_processors.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/rig.h"

/* >>refused */

static void assert_says(frugal_status status, const char *text) {
    assert_int_equal(FRUGAL_ERR_ARGUMENT, status);
    if (!strstr(frugal_message(), text)) fail_msg("'%s' is not in '%s'", text, frugal_message());
}

static frugal_status try_open(frugal_type rows_as, frugal_rounding rounding) {
    frugal *f;
    frugal_desc d = rig_desc();
    d.rows_as = rows_as, d.rounding = rounding;
    frugal_status status = frugal_open(&d, &f);
    assert_true(status == FRUGAL_OK || !f);
    frugal_close(f);
    return status;
}

static void test_refused_settings(void **state) {
    (void)state;
    assert_says(try_open((frugal_type)3, FRUGAL_STOCHASTIC), "rows_as 3, rounding 0; there are 0 (fp32), 1 (bf16)");
    assert_says(try_open((frugal_type)-1, FRUGAL_STOCHASTIC), "rows_as -1");
    assert_says(try_open(FRUGAL_FP16, (frugal_rounding)2), "rows_as 2, rounding 2; there are");
    assert_says(try_open(FRUGAL_FP32, FRUGAL_NEAREST), "`rounding` is set, and `rows_as` is 0 (fp32)");
    for (size_t beside = 1; beside < 4; beside++) {
        static float matrix[2];
        const frugal_table table = {.rows = 1};
        frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 1, .max_keys = 1};
        frugal *f;
        d.weights = (unsigned char *)matrix + beside;
        assert_says(frugal_open(&d, &f), "of 4 bytes each, ");
        d.rows_as = FRUGAL_BF16;
        if (beside == 2) assert_int_equal(FRUGAL_OK, frugal_open(&d, &f)), frugal_close(f);
        if (beside != 2) assert_says(frugal_open(&d, &f), "of 2 bytes each, ");
    }
    assert_int_equal(FRUGAL_OK, try_open(FRUGAL_BF16, FRUGAL_NEAREST));
    assert_int_equal(FRUGAL_OK, try_open(FRUGAL_FP16, FRUGAL_STOCHASTIC));
}

/* Nothing changes: the step goes on as if it had not been asked. */
static void test_refused_arrays(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    double squares;
    d.devices = 1, d.rows_as = FRUGAL_BF16;
    rig_open(&r, &d);
    rig_announce(&r, 0);
    assert_says(frugal_lookup_into(r.f, 0, 0, &(frugal_row_array){.rows = r.looked_up[0], .as = (frugal_type)7}),
                "lookup: elements of type 7; there are 0 (fp32), 1 (bf16), 2 (fp16)");
    assert_says(frugal_lookup_into(r.f, 0, 0, &(frugal_row_array){.rows = NULL, .as = FRUGAL_BF16}),
                "lookup: `as` is 1, and `rows` is NULL; the staging block has floats: let it be 0");
    void *odd = (unsigned char *)r.looked_up[0] + 1, *half = (unsigned char *)r.looked_up[0] + 2;
    assert_says(frugal_lookup_into(r.f, 0, 0, &(frugal_row_array){.rows = odd, .as = FRUGAL_FP16}),
                "whose elements have 2 bytes; begin at a multiple");
    assert_says(frugal_lookup_into(r.f, 0, 0, &(frugal_row_array){.rows = half}), "whose elements have 4 bytes");
    rig_lookup(&r, 0);
    assert_says(frugal_update(r.f, 0, 0, &(frugal_gradients){.grads = odd, .as = FRUGAL_BF16}), "update: an array at");
    const frugal_gradients g = {.grads = r.grads[0], .lr = r.lr, .as = (frugal_type)5};
    assert_says(frugal_update(r.f, 0, 0, &g), "update: elements of type 5; there are 0 (fp32), 1 (bf16), 2 (fp16)");
    assert_says(frugal_sum_squares(r.f, 0, 0, &g, &squares), "elements of type 5");
    rig_update(&r, 0);
    rig_judge(&r, 0);
    rig_finish(&r, 3);
}

/* >>values */

enum { WIDE = 1027, MOST_ROWS = 4 };

static float first[2][4 * MOST_ROWS * WIDE]; /* of an instance of floats, and of another one */

static void read_first(float *to, frugal_type rows_as, uint32_t dim) {
    static float source[MOST_ROWS * WIDE];
    for (uint32_t i = 0; i < MOST_ROWS * dim; i++) source[i] = ldexpf((float)i / 7, (int)(i % 40) - 30);
    const frugal_table tables[4] = {{.rows = MOST_ROWS, .init = FRUGAL_INIT_UNIFORM, .low = -1e-3f, .high = 2e-3f},
                                    {.rows = MOST_ROWS, .init = FRUGAL_INIT_NORMAL, .deviation = 1e-4f},
                                    {.rows = MOST_ROWS, .init = FRUGAL_INIT_COPY, .source = source},
                                    {.rows = MOST_ROWS, .init = FRUGAL_INIT_ZERO}};
    const frugal_desc d = {.tables = tables, .n_tables = 4, .dim = dim, .rows_as = rows_as, .max_keys = 1, .seed = 5};
    frugal *f = open_or_fail(&d);
    for (uint32_t t = 0; t < 4; t++) read_table(f, t, to + t * MOST_ROWS * dim, NULL);
    frugal_close(f);
}

/* Of each initializer: those of floats, rounded to the nearest; also behind the first chunk of a row. */
static void test_first_values(void **state) {
    frugal_type as = (frugal_type)(intptr_t)*state;
    for (uint32_t dim = 5; dim <= WIDE; dim += WIDE - 5) {
        uint32_t differ = 0;
        read_first(first[0], FRUGAL_FP32, dim), read_first(first[1], as, dim);
        for (uint32_t i = 0; i < 4 * MOST_ROWS * dim; i++) {
            float expected = reference_round((int)as, first[0][i], -1);
            assert_memory_equal(&expected, &first[1][i], 4);
            differ += expected != first[0][i];
        }
        assert_true(differ > 2 * MOST_ROWS * dim);
    }
}

/* Written rows are rounded to the nearest, and read and viewed as written; what lies between them, and beside them in
 * the caller's matrix, stays. */
static void test_written_rows(void **state) {
    static const float hard[] = {NAN,   INFINITY, -INFINITY, -0.0f,   0x1p-24f, 0x1.8p-25f,  0x1p-25f,    0x1p-130f,
                                 65504, 65519.9f, 65520,     3.4e38f, -3.4e38f, 1.00390625f, 1.01171875f, -1e-6f};
    enum { DIM = 7, STRIDE = 11, ROWS = 5, N = 1 + ROWS * STRIDE };
    frugal_type as = (frugal_type)(intptr_t)*state;
    for (int of_caller = 0; of_caller < 2; of_caller++) {
        uint16_t matrix[N];
        float written[2 * DIM], read[2 * DIM], state_written[2], state_read[2];
        const uint64_t keys[2] = {3, 1};
        const frugal_keys k = {.table = 0, .keys = keys, .n = 2};
        const frugal_table table = {.rows = ROWS};
        frugal_desc d = {.tables = &table, .n_tables = 1, .dim = DIM, .rows_as = as, .max_keys = 2};
        d.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
        memset(matrix, 0x11, sizeof matrix);
        if (of_caller) d.weights = matrix + 1, d.weights_stride = STRIDE;
        for (uint32_t i = 0; i < 2 * DIM; i++) written[i] = hard[i % 16];
        state_written[0] = 1.2345678f, state_written[1] = 1e-30f; /* floats, not rounded */
        frugal *f = open_or_fail(&d);
        frugal_cpu_desc cache = {.cache_rows = 16};
        assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &cache));
        assert_int_equal(FRUGAL_OK, frugal_preload(f, 0, &k));
        assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &k, written, state_written));
        assert_int_equal(FRUGAL_OK, frugal_verify(f)); /* copies were refreshed */
        assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, read, state_read));
        assert_memory_equal(state_written, state_read, sizeof state_read);
        const void *view;
        uint64_t stride;
        assert_int_equal(FRUGAL_OK, frugal_view(f, 0, &view, &stride));
        assert_true(stride == (of_caller ? STRIDE : 8) && (!of_caller || view == matrix + 1));
        for (uint32_t i = 0; i < 2 * DIM; i++) {
            float expected = reference_round((int)as, written[i], -1);
            float viewed = reference_load((int)as, view, keys[i / DIM] * stride + i % DIM);
            assert_true(isnan(expected) ? isnan(read[i]) : !memcmp(&expected, &read[i], 4));
            assert_true(isnan(expected) ? isnan(viewed) : !memcmp(&expected, &viewed, 4));
        }
        for (uint32_t i = 0; i < N && of_caller; i++) {
            uint32_t row = (i - 1) / STRIDE, column = (i - 1) % STRIDE;
            if (i == 0 || (row != 3 && row != 1) || column >= DIM) assert_int_equal(0x1111, matrix[i]);
        }
        frugal_close(f);
    }
}

/* >>memory */

typedef struct taken { /* bytes */
    uint64_t table, cache;
} taken;

static taken bytes_taken(frugal_type rows_as, frugal_optimizer_kind kind) {
    test_counter counter = {.calls = 0};
    const frugal_table table = {.rows = 1 << 16};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 64, .rows_as = rows_as, .max_keys = 1};
    d.optimizer.kind = kind, d.allocate = test_allocate, d.release = test_release, d.user = &counter;
    frugal *f = open_or_fail(&d);
    taken t = {.table = counter.bytes_out};
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.cache_rows = 1024}));
    t.cache = counter.bytes_out - t.table;
    frugal_close(f);
    return t;
}

/* The weights of the table and of a cache take half as much; state and all else as before. */
static void test_half_the_memory(void **state) {
    frugal_type as = (frugal_type)(intptr_t)*state;
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        taken floats = bytes_taken(FRUGAL_FP32, rig_optimizers[i]), halves = bytes_taken(as, rig_optimizers[i]);
        assert_int_equal((1 << 16) * 64 * 2, floats.table - halves.table);
        assert_int_equal(1024 * 64 * 2, floats.cache - halves.cache);
    }
}

/* >>random bits */

enum { COINS = 1025, COIN_ROWS = 4, COIN_STEPS = 24, COIN_FIRST = 7 };

/* [step][row][element]: was it rounded away from 0? */
typedef uint8_t coins[COIN_STEPS][COIN_ROWS][COINS];

/* Each step sets all weights back, and moves them by `part` of the distance to the next weight of 16 bits. */
static void toss(coins *out, frugal_type as, uint64_t seed, const float *from, const float *distance,
                 const float *part) {
    static float rows[COIN_ROWS * COINS], grads[COIN_ROWS * COINS];
    const uint64_t keys[COIN_ROWS] = {0, 1, 2, 3};
    const frugal_table table = {.rows = COIN_ROWS};
    const frugal_keys k = {.table = 0, .keys = keys, .n = COIN_ROWS};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = COINS, .rows_as = as, .max_keys = COIN_ROWS, .seed = seed};
    d.first_step = COIN_FIRST;
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    for (uint32_t i = 0; i < COIN_ROWS * COINS; i++) grads[i] = -part[i / COINS] * distance[i / COINS];
    for (uint64_t step = 0; step < COIN_STEPS; step++) {
        for (uint32_t i = 0; i < COIN_ROWS * COINS; i++) rows[i] = from[i / COINS];
        assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &k, rows, NULL));
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, COIN_FIRST + step, &(frugal_batch){&k, 1, 0}));
        assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, COIN_FIRST + step, rows));
        const frugal_gradients g = {.grads = grads, .lr = 1};
        assert_int_equal(FRUGAL_OK, frugal_update(f, 0, COIN_FIRST + step, &g));
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, rows, NULL));
        for (uint32_t i = 0; i < COIN_ROWS * COINS; i++) {
            float moved = rows[i] - from[i / COINS];
            assert_true(moved == 0 || moved == distance[i / COINS]);
            (*out)[step][i / COINS][i % COINS] = moved != 0;
        }
    }
    frugal_close(f);
}

static coins tossed[2];

/* The mean of many roundings is the float: as many go up as the probability says, within five standard deviations. The
 * seed is fixed, so the number is always the same. */
static void test_rounding_is_unbiased(void **state) {
    static const float parts[COIN_ROWS] = {0.125f, 0.5f, 0.75f, 1.0f / 64};
    frugal_type as = (frugal_type)(intptr_t)*state;
    int bits = as == FRUGAL_BF16 ? 7 : 10;
    const float from[COIN_ROWS] = {1, -0.3125f, 0x1p-20f, 0}; /* of fp16, the last two are subnormal */
    float distance[COIN_ROWS] = {ldexpf(1, -bits), -ldexpf(1, -2 - bits)};
    distance[2] = as == FRUGAL_BF16 ? ldexpf(1, -20 - bits) : 0x1p-24f;
    distance[3] = as == FRUGAL_BF16 ? 0x1p-133f : 0x1p-24f;
    toss(&tossed[0], as, 3, from, distance, parts);
    for (uint32_t row = 0; row < COIN_ROWS; row++) {
        double n = COIN_STEPS * COINS, p = (double)parts[row], up = 0;
        for (uint32_t i = 0; i < COIN_STEPS * COINS; i++) up += tossed[0][i / COINS][row][i % COINS];
        if (fabs(up - n * p) > 5 * sqrt(n * p * (1 - p))) fail_msg("row %u: %g of %g, and p is %g", row, up, n, p);
    }
}

/* Do two halves of the coins agree as often as independent ones do: in half of the cases? */
static void assert_independent(const char *of, uint64_t n, uint64_t agree) {
    double middle = (double)n / 2;
    if (fabs((double)agree - middle) > 5 * sqrt((double)n) / 2)
        fail_msg("%s: %u of %u agree", of, (unsigned)agree, (unsigned)n);
}

/* Elements of a pair, pairs, elements of two chunks (512), rows, steps, and seeds have random bits of their own. */
static void test_random_bits_differ(void **state) {
    static const float parts[COIN_ROWS] = {0.5f, 0.5f, 0.5f, 0.5f}, from[COIN_ROWS] = {1, 1, 1, 1};
    frugal_type as = (frugal_type)(intptr_t)*state;
    static const uint32_t apart[] = {1, 2, 3, 16, 32, 256, 512, 1024};
    float step = as == FRUGAL_BF16 ? 0x1p-7f : 0x1p-10f, distance[COIN_ROWS] = {step, step, step, step};
    uint64_t rows = 0, steps = 0, seeds = 0, n = COIN_STEPS * COIN_ROWS * COINS;
    toss(&tossed[0], as, 3, from, distance, parts), toss(&tossed[1], as, 4, from, distance, parts);
    for (uint32_t a = 0; a < sizeof apart / sizeof *apart; a++) {
        uint64_t agree = 0, of = 0;
        for (uint32_t i = 0; i < COIN_STEPS * COIN_ROWS; i++)
            for (uint32_t j = 0; j + apart[a] < COINS; j++, of++)
                agree += tossed[0][i / 4][i % 4][j] == tossed[0][i / 4][i % 4][j + apart[a]];
        assert_independent("elements", of, agree);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = i / COINS / COIN_ROWS, row = i / COINS % COIN_ROWS, j = i % COINS;
        rows += tossed[0][s][row][j] == tossed[0][s][(row + 1) % COIN_ROWS][j];
        steps += tossed[0][s][row][j] == tossed[0][(s + 1) % COIN_STEPS][row][j];
        seeds += tossed[0][s][row][j] == tossed[1][s][row][j];
    }
    assert_independent("rows", n, rows), assert_independent("steps", n, steps), assert_independent("seeds", n, seeds);
    for (uint32_t i = 0; i < n; i++) { /* and they are the rule's: (seed, row, step, element) */
        uint32_t s = i / COINS / COIN_ROWS, row = i / COINS % COIN_ROWS, j = i % COINS;
        reference rule = {.rows_as = (int)as, .seed = 3, .step = COIN_FIRST + s};
        float stored = reference_stored(&rule, row, j, 1 + 0.5f * step);
        assert_int_equal(stored != 1, tossed[0][s][row][j]);
    }
}

/* >>small steps */

enum { LEARNERS = 64 };

/* The mean of a row's weights that learn 1, from 0 on, by steps of `lr`. */
static double learn(frugal_type as, frugal_rounding rounding, float lr, uint32_t steps) {
    const uint64_t key = 1;
    const frugal_table table = {.rows = 2};
    const frugal_keys k = {.table = 0, .keys = &key, .n = 1};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = LEARNERS, .rows_as = as, .rounding = rounding};
    float row[LEARNERS], grads[LEARNERS];
    double sum = 0;
    d.max_keys = 1, d.seed = 9;
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.cache_rows = 8}));
    for (uint64_t step = 0; step < steps; step++) {
        const frugal_gradients g = {.grads = grads, .lr = lr};
        assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, step, &(frugal_batch){&k, 1, 0}));
        assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, step, row));
        for (uint32_t i = 0; i < LEARNERS; i++) grads[i] = row[i] < 1 ? -1 : 1;
        assert_int_equal(FRUGAL_OK, frugal_update(f, 0, step, &g));
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_verify(f));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, row, NULL));
    for (uint32_t i = 0; i < LEARNERS; i++) sum += (double)row[i];
    frugal_close(f);
    return sum / LEARNERS;
}

/* A step is less than half of what a weight above 1/2 changes by: to the nearest, weights stop there. */
static void test_small_steps(void **state) {
    frugal_type as = (frugal_type)(intptr_t)*state;
    float lr = as == FRUGAL_BF16 ? 0x1.4p-10f : 0x1.4p-13f;
    uint32_t steps = as == FRUGAL_BF16 ? 1000 : 8000;
    double floats = learn(FRUGAL_FP32, FRUGAL_STOCHASTIC, lr, steps), arrived = learn(as, FRUGAL_STOCHASTIC, lr, steps);
    double stopped = learn(as, FRUGAL_NEAREST, lr, steps);
    if (fabs(floats - 1) > 0.002 || fabs(arrived - 1) > 0.01 || stopped != 0.5)
        fail_msg("fp32 %g, stochastic %g, nearest %g", floats, arrived, stopped);
}

/* >>ways of updates */

/* Staged, in place and kept updates, with copies and without, on two devices or one, have the reference's bits. */
static void test_each_way(void **state) {
    static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};
    frugal_type as = (frugal_type)(intptr_t)*state;
    for (uint32_t i = 0; i < 24; i++) {
        rig r = {.cache = {.cache_rows = i / 3 % 2 ? 24 : 0}};
        frugal_desc d = rig_desc();
        d.alone = ways[i % 3], d.devices = 1 + i / 6 % 2, d.rows_as = as;
        d.rounding = i >= 12 ? FRUGAL_NEAREST : FRUGAL_STOCHASTIC;
        d.optimizer.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS];
        rig_open(&r, &d);
        rig_finish(&r, 8);
    }
}

/* >>verify */

typedef struct told {
    int n;
    char text[512];
} told;

static void note(const char *text, void *user) {
    told *t = user;
    t->n++;
    snprintf(t->text, sizeof t->text, "%s", text);
}

/* A bit of a host row that the copy has not, and one of its state. */
static void test_verify_finds_a_bit(void **state) {
    frugal_type as = (frugal_type)(intptr_t)*state;
    rig r = {.cache = {.cache_rows = 1000}, .repeat = 1};
    frugal_desc d = rig_desc();
    d.devices = 1, d.rows_as = as;
    rig_open(&r, &d);
    rig_train(&r, 3);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    const frugal_store *s = frugal_get_store(r.f);
    uint64_t row = r.rows[0][RIG_KEYS - 1];
    uint16_t *weight = (uint16_t *)frugal_row_at(s, row) + 4;
    for (int bit = 0; bit < 16; bit++) {
        *weight ^= (uint16_t)(1u << bit);
        assert_int_equal(FRUGAL_ERR_COPY, frugal_verify(r.f));
        *weight ^= (uint16_t)(1u << bit);
    }
    weight[1] ^= 0xffff; /* behind the row's last element, which is no part of it */
    assert_int_equal(FRUGAL_OK, frugal_verify(r.f));
    weight[1] ^= 0xffff;
    float *last = &s->state[row * s->state_stride + s->state_floats - 1], right = *last;
    *last = nextafterf(right, 1e9f);
    assert_int_equal(FRUGAL_ERR_COPY, frugal_verify(r.f));
    *last = right;
    rig_finish(&r, 3);
}

/* Weights that overflow are infinite, and verify tells of them, as of NaN; the largest weight is finite. */
static void test_overflow_is_told(void **state) {
    frugal_type as = (frugal_type)(intptr_t)*state;
    const float most = as == FRUGAL_BF16 ? 0x1.fep127f : 65504, beyond = as == FRUGAL_BF16 ? 0x1.ffp127f : 65520;
    const uint64_t keys[] = {1, 3, 4};
    const float grads[] = {-most, -beyond, NAN};
    const frugal_table table = {.rows = 6};
    const frugal_keys k = {.table = 0, .keys = keys, .n = 3};
    frugal_desc d = {.tables = &table, .n_tables = 1, .dim = 1, .rows_as = as, .rounding = FRUGAL_NEAREST};
    told t = {0};
    float rows[3];
    d.max_keys = 3, d.notice = note, d.user = &t;
    frugal *f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.cache_rows = 8}));
    assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, 0, &(frugal_batch){&k, 1, 0}));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, rows));
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, &(frugal_gradients){.grads = grads, .lr = 1}));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &k, rows, NULL));
    assert_true(rows[0] == most && isinf(rows[1]) && rows[1] > 0 && isnan(rows[2]));
    assert_int_equal(FRUGAL_OK, frugal_verify(f)); /* NaN in a copy and in the host row is the same */
    if (t.n != 1 || !strstr(t.text, "verify: 2 rows have NaN or infinity; the first is row 3 of table 0"))
        fail_msg("told %d: '%s'", t.n, t.text);
    frugal_close(f);
}

#define BOTH(test) CASE(#test ", bf16", test, FRUGAL_BF16), CASE(#test ", fp16", test, FRUGAL_FP16)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_settings),
        cmocka_unit_test(test_refused_arrays),
        BOTH(test_first_values),
        BOTH(test_written_rows),
        BOTH(test_half_the_memory),
        BOTH(test_rounding_is_unbiased),
        BOTH(test_random_bits_differ),
        BOTH(test_small_steps),
        BOTH(test_each_way),
        BOTH(test_verify_finds_a_bit),
        BOTH(test_overflow_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
