/* test_self_test.c - the self-test of frugal_open finds an addition, a product, a quotient, a root or a fused operation
 * that is wrong in one optimizer, in the sums or in bags alone, and a conversion of 16 bits; and its own operations are
 * right.
 *
 * The library is compiled into this program, with operations that can be broken at run time. Do not link
 * frugal_flush.o. */
#include <math.h>
#include "src/arithmetic.h"

static float test_operation(int what, float right, float other);
enum { ADD, MUL, DIV, SQRT, FMA, WIDEN, ROUND, NEAREST, OPERATIONS };

/* The formulas of arithmetic.h are compiled above, and are these: whatever is defined from here on takes others. */
#undef frugal_add
#undef frugal_mul
#undef frugal_div
#define frugal_add(a, b)      test_operation(ADD, (a) + (b), nextafterf((a) + (b), INFINITY))
#define frugal_mul(a, b)      test_operation(MUL, (a) * (b), nextafterf((a) * (b), INFINITY))
#define frugal_div(a, b)      test_operation(DIV, (a) / (b), (a) * (1 / (b)))
#define frugal_adagrad(...)   test_operation(SQRT, (frugal_adagrad)(__VA_ARGS__), 0.5f)
#define frugal_adam(...)      test_operation(SQRT, (frugal_adam)(__VA_ARGS__), 0.5f)
#define frugal_sgd(w, g, lr)  test_operation(FMA, (frugal_sgd)(w, g, lr), (w) - (lr) * (g))
#define frugal_decay(g, w, d) test_operation(FMA, (frugal_decay)(g, w, d), (d) != 0 ? (d) * (w) + (g) : (g))

/* Subnormal weights are zeros, in vectors and in single elements; a float that is rounded away, or loses a bit. */
#define frugal_widen_fp16(w) test_operation(WIDEN, (frugal_widen_fp16)(w), (w)&0x7c00 ? (frugal_widen_fp16)(w) : 0.0f)
#define frugal_round_fp16(x, noise)                                                                                    \
    ((uint16_t)test_operation(ROUND, (frugal_round_fp16)(x, noise), (frugal_round_fp16)(x, 0)))
#define frugal_nearest_fp16(x)                                                                                         \
    ((uint16_t)test_operation(NEAREST, (frugal_nearest_fp16)(x), (frugal_round_fp16)(x, 0x8000)))

#include "frugal_flush.c"

#include <setjmp.h>
#include <cmocka.h>
#include "tests/support.h"

static int broken = OPERATIONS;  /* the operation */
static uint64_t calls, break_at; /* from this call on; 0: never */

static float test_operation(int what, float right, float other) {
    if (what != broken) return right;
    return ++calls >= break_at && break_at ? other : right;
}

/* Broken from the first operation of its kind on, or from a later one: found each time. */
static void test_a_broken_operation_is_found(void **state) {
    broken = (int)(intptr_t)*state;
    calls = break_at = 0;
    assert_true(self_test());
    uint64_t all = calls;
    assert_true(all >= 100);
    uint64_t last = broken == NEAREST ? all / 3 : all / 2; /* later there are no floats in the middle of two weights */
    for (uint64_t at = 1; at <= last; at += all / 40 + 1) {
        calls = 0, break_at = at;
        if (self_test()) fail_msg("operation %d, broken from call %d on, was not found", broken, (int)at);
    }
    broken = OPERATIONS;
    assert_true(self_test());
}

/* What the self-test takes as known is what IEEE's operations give, subnormal results and zeros included. */
static void test_known_operations(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 300000; i++) {
        float a = probe(1, i), b = probe(2, i), c = probe(3, i);
        int scale = (int)(test_mix2(9, i) % 240) - 120;
        if (i % 3 == 0) a = ldexpf(a, scale);
        if (i % 5 == 0) c = ldexpf(c, -scale);
        if (i % 7 == 0) c = -(a * b); /* what the product's rounding left */
        float pairs[5][2] = {{known_add(a, c), a + c},
                             {known_mul(a, b), a * b},
                             {known_div(a, b == 0 ? 1 : b), a / (b == 0 ? 1 : b)},
                             {known_sqrt(fabsf(a)), sqrtf(fabsf(a))},
                             {known_fma(a, b, c), fmaf(a, b, c)}};
        for (int k = 0; k < 5; k++)
            if (memcmp(&pairs[k][0], &pairs[k][1], sizeof(float)))
                fail_msg("operation %d on %a, %a, %a: %a, not %a", k, (double)a, (double)b, (double)c,
                         (double)pairs[k][0], (double)pairs[k][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_operations),
#define BROKEN(name)                                                                                                   \
    {"test_a_broken_operation_is_found: " #name, test_a_broken_operation_is_found, NULL, NULL, (void *)name}
        BROKEN(ADD),
        BROKEN(MUL),
        BROKEN(DIV),
        BROKEN(SQRT),
        BROKEN(FMA),
        BROKEN(WIDEN),
        BROKEN(ROUND),
        BROKEN(NEAREST),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
