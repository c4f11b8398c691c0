/* test_arithmetic_mode.c - the arithmetic mode of the caller's thread changes no result, and stays as it was. */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#include "tests/case.h"
#include "tests/rig.h"

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
    frugal_keys segments[] = {{.table = 0, .keys = keys, .n = 20}, {.table = 1, .keys = keys + 20, .n = 20}};
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
    for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
        float weights[2][60 * 5] = {{0}}, states[2][60 * 10] = {{0}};
        train_in_mode(NORMAL_MODE, rig_optimizers[i], weights[0], states[0]);
        train_in_mode(mode, rig_optimizers[i], weights[1], states[1]);
        int subnormals = 0;
        for (int k = 0; k < 300; k++) subnormals += fpclassify(weights[0][k]) == FP_SUBNORMAL;
        assert_true(subnormals > 0); /* or it would prove nothing */
        if (memcmp(weights[0], weights[1], sizeof(weights[0])) || memcmp(states[0], states[1], sizeof(states[0])))
            fail_msg("optimizer %d: the caller's arithmetic mode changes results", (int)rig_optimizers[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("test_callers_arithmetic_mode, the same mode", test_callers_arithmetic_mode, NORMAL_MODE),
        CASE("test_callers_arithmetic_mode, flush to zero", test_callers_arithmetic_mode, FLUSH_TO_ZERO),
        CASE("test_callers_arithmetic_mode, rounding upward", test_callers_arithmetic_mode, ROUND_UPWARD),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
