/* test_arithmetic.c - frugal_open and frugal_join refuse to run where arithmetic differs from the one that the results
 * depend on.
 *
 * The library is compiled into this program, with an fmaf and a sqrtf that can be broken at run time. Do not link
 * frugal_flush.o. */
#include <fenv.h>
#include <math.h>

static int defect;
enum { RIGHT, NOT_FUSED, FLUSHES_TO_ZERO, TRUNCATED_ROOT, ROUNDS_DOWN };

static float test_fma(float a, float b, float c) {
    volatile float product = a * b;
    if (defect == NOT_FUSED) return product + c;
    if (defect == ROUNDS_DOWN) fesetround(FE_DOWNWARD);
    volatile float result = (fmaf)(a, b, c);
    if (defect == ROUNDS_DOWN) fesetround(FE_TONEAREST);
    if (defect == FLUSHES_TO_ZERO && fpclassify(result) == FP_SUBNORMAL) return 0.0f;
    return result;
}

static float test_sqrt(float x) {
    float root = (sqrtf)(x);
    return defect == TRUNCATED_ROOT ? nextafterf(root, 0.0f) : root;
}

#define fmaf(a, b, c) test_fma(a, b, c)
#define sqrtf(x)      test_sqrt(x)
#include "frugal_flush.c"

#include <setjmp.h>
#include <cmocka.h>

static frugal_status open_with(int kind) {
    frugal_table table = {.rows = 4};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 3, .max_keys = 2};
    frugal *f;
    frugal_store_relaxed(&arithmetic_is_right, 0); /* as if no instance had been opened yet */
    defect = kind;
    frugal_status status = frugal_open(&desc, &f);
    frugal_close(f);
    defect = RIGHT;
    return status;
}

/* Nobody has the name: right arithmetic comes that far. */
static frugal_status join_with(int kind) {
    frugal *f;
    frugal_store_relaxed(&arithmetic_is_right, 0);
    defect = kind;
    frugal_status status = frugal_join("test_arithmetic", 0, &f);
    frugal_close(f);
    defect = RIGHT;
    return status;
}

static void test_right_arithmetic_is_accepted(void **state) {
    (void)state;
    assert_int_equal(FRUGAL_OK, open_with(RIGHT));
    assert_int_equal(FRUGAL_ERR_PROCESS, join_with(RIGHT));
}

/* A process has one arithmetic: that which was found right is not computed again. */
static void test_right_arithmetic_is_kept(void **state) {
    (void)state;
    frugal_table table = {.rows = 4};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 3, .max_keys = 2};
    frugal *f;
    assert_int_equal(FRUGAL_OK, open_with(RIGHT));
    defect = TRUNCATED_ROOT;
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    defect = RIGHT;
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

static void test_wrong_arithmetic_is_refused(void **state) {
    int kind = (int)(intptr_t)*state;
    assert_int_equal(FRUGAL_ERR_ARITHMETIC, open_with(kind));
    assert_non_null(strstr(frugal_message(), "arithmetic"));
    assert_int_equal(FRUGAL_ERR_ARITHMETIC, join_with(kind));
    assert_non_null(strstr(frugal_message(), "arithmetic"));
    frugal_server *server = NULL; /* which pools, and so is refused before it looks at what to serve */
    defect = kind;
    frugal_status status = frugal_serve_open(&(frugal_serve_desc){.threads = 1}, &server);
    defect = RIGHT;
    assert_int_equal(FRUGAL_ERR_ARITHMETIC, status);
    assert_null(server);
    assert_int_equal(FRUGAL_OK, open_with(RIGHT));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_arithmetic_is_accepted),
        cmocka_unit_test(test_right_arithmetic_is_kept),
        {"test_wrong_arithmetic_is_refused: multiply-add not fused", test_wrong_arithmetic_is_refused, NULL, NULL,
         (void *)NOT_FUSED},
        {"test_wrong_arithmetic_is_refused: subnormals flushed", test_wrong_arithmetic_is_refused, NULL, NULL,
         (void *)FLUSHES_TO_ZERO},
        {"test_wrong_arithmetic_is_refused: root one bit low", test_wrong_arithmetic_is_refused, NULL, NULL,
         (void *)TRUNCATED_ROOT},
        {"test_wrong_arithmetic_is_refused: rounds downward", test_wrong_arithmetic_is_refused, NULL, NULL,
         (void *)ROUNDS_DOWN},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
