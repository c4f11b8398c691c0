/* cmocka.h - stands in for cmocka where it is not installed: as much of it as the tests of tests/cuda, tests/property,
 * tests/stress and of the library's units use.
 *
 * A machine with a GPU may have nvcc, gcc and nothing else, and no network: there the tests find this header behind all
 * others (gcc -idirafter), so a cmocka that is installed comes first. The tests for aarch64 find it before all others,
 * because the cmocka of the host is of another architecture. What cases print is TAP, as cmocka's with
 * CMOCKA_MESSAGE_OUTPUT=TAP; the exit status is the number of cases that failed. It differs from cmocka in two ways: a
 * crash ends the program, where cmocka goes on with the next case, and there are no mocks.
 *
 * Include <setjmp.h>, <stdarg.h>, <stddef.h> and <stdint.h> before it, as cmocka asks. One file of a program has it.
 */
#ifndef FRUGAL_BARE_CMOCKA_H
#define FRUGAL_BARE_CMOCKA_H

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(f)                                                                                            \
    { #f, f, NULL, NULL, NULL }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                                                            \
    { #f, f, setup, teardown, NULL }
#define cmocka_unit_test_prestate(f, state)                                                                            \
    { #f, f, NULL, NULL, state }

/* What the case at hand does: the program has one thread that runs cases, as with cmocka. */
enum { BARE_PASSED, BARE_FAILED, BARE_SKIPPED };
static struct {
    jmp_buf out; /* of the case, with one of the above */
    const char *filter;
} bare_at;

static inline void cmocka_set_test_filter(const char *pattern) {
    bare_at.filter = pattern;
}

/* Every line of a text as a comment of TAP. */
__attribute__((format(printf, 1, 0))) static inline void bare_comment(const char *format, va_list arguments) {
    char text[4096];
    int length = vsnprintf(text, sizeof text, format, arguments);
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        printf("# %.*s\n", (int)(end - line), line);
        if (*end) end++;
    }
    if (length >= (int)sizeof text) printf("# ... cut: the message has %d characters\n", length);
}

/* The two write as they are told: a text that is no comment would be seen by whoever reads the TAP. */
__attribute__((format(printf, 1, 2))) static inline void print_message(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
}
__attribute__((format(printf, 1, 2))) static inline void print_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

__attribute__((noreturn, format(printf, 3, 4))) static inline void bare_fail(const char *file, int line,
                                                                             const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    bare_comment(format, arguments);
    va_end(arguments);
    printf("# %s:%d: error: Failure!\n", file, line);
    longjmp(bare_at.out, BARE_FAILED);
}

static inline void bare_skip(void) {
    longjmp(bare_at.out, BARE_SKIPPED);
}

static inline void bare_equal(const char *file, int line, uintmax_t a, uintmax_t b, int wanted) {
    if ((a == b) != wanted) bare_fail(file, line, "%#jx %s %#jx", a, wanted ? "!=" : "==", b);
}

static inline void bare_true(const char *file, int line, int is, const char *text) {
    if (!is) bare_fail(file, line, "%s", text);
}

static inline void bare_range(const char *file, int line, uintmax_t value, uintmax_t low, uintmax_t high) {
    if (value < low || value > high) bare_fail(file, line, "%ju is not within the range %ju-%ju", value, low, high);
}

static inline void bare_strings(const char *file, int line, const char *a, const char *b, int wanted) {
    if ((strcmp(a, b) == 0) != wanted) bare_fail(file, line, "\"%s\" %s \"%s\"", a, wanted ? "!=" : "==", b);
}

static inline void bare_other_memory(const char *file, int line, const void *a, const void *b, size_t bytes) {
    if (memcmp(a, b, bytes) == 0) bare_fail(file, line, "%zu bytes of %p and %p are the same", bytes, a, b);
}

static inline void bare_memory(const char *file, int line, const void *a, const void *b, size_t bytes) {
    const unsigned char *x = a, *y = b;
    size_t differ = 0, first = bytes;
    for (size_t i = 0; i < bytes; i++)
        if (x[i] != y[i]) {
            if (differ++ == 0) first = i;
        }
    if (differ)
        bare_fail(file, line, "difference at offset %zu %#04x %#04x\n%zu bytes of %p and %p differ", first, x[first],
                  y[first], differ, a, b);
}

#define skip()                     bare_skip()
#define fail()                     bare_fail(__FILE__, __LINE__, "fail()")
#define fail_msg(...)              bare_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(c)             bare_true(__FILE__, __LINE__, (c) ? 1 : 0, #c)
#define assert_false(c)            bare_true(__FILE__, __LINE__, (c) ? 0 : 1, "!(" #c ")")
#define assert_non_null(p)         bare_true(__FILE__, __LINE__, (p) != NULL, #p " != NULL")
#define assert_null(p)             bare_true(__FILE__, __LINE__, (p) == NULL, #p " == NULL")
#define assert_int_equal(a, b)     bare_equal(__FILE__, __LINE__, (uintmax_t)(a), (uintmax_t)(b), 1)
#define assert_int_not_equal(a, b) bare_equal(__FILE__, __LINE__, (uintmax_t)(a), (uintmax_t)(b), 0)
#define assert_in_range(value, low, high)                                                                              \
    bare_range(__FILE__, __LINE__, (uintmax_t)(value), (uintmax_t)(low), (uintmax_t)(high))
#define assert_ptr_equal(a, b)           bare_equal(__FILE__, __LINE__, (uintptr_t)(a), (uintptr_t)(b), 1)
#define assert_ptr_not_equal(a, b)       bare_equal(__FILE__, __LINE__, (uintptr_t)(a), (uintptr_t)(b), 0)
#define assert_string_equal(a, b)        bare_strings(__FILE__, __LINE__, a, b, 1)
#define assert_string_not_equal(a, b)    bare_strings(__FILE__, __LINE__, a, b, 0)
#define assert_memory_equal(a, b, n)     bare_memory(__FILE__, __LINE__, a, b, n)
#define assert_memory_not_equal(a, b, n) bare_other_memory(__FILE__, __LINE__, a, b, n)

/* Runs one case: what came of it, and what its line says of that. */
static inline int bare_run(const struct CMUnitTest *test, const char **reason) {
    static void *state; /* static: it keeps its value over longjmp */
    state = test->initial_state;
    *reason = "";
    if (test->setup_func && test->setup_func(&state) != 0) {
        *reason = " Could not run test: Test setup failed";
        return BARE_FAILED;
    }
    int result = BARE_SKIPPED;
    switch (setjmp(bare_at.out)) {
    case BARE_PASSED: /* the first return: nothing has jumped yet */
        test->test_func(&state);
        result = BARE_PASSED;
        break;
    case BARE_FAILED:
        result = BARE_FAILED;
        break;
    default:
        break;
    }
    if (test->teardown_func && test->teardown_func(&state) != 0) {
        *reason = " Could not run test: Test teardown failed";
        return BARE_FAILED;
    }
    return result;
}

static inline int bare_run_group(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                                 CMFixtureFunction teardown) {
    const char *filter = bare_at.filter ? bare_at.filter : getenv("CMOCKA_TEST_FILTER"), *reason;
    int wanted = 0, failed = 0, number = 0;
    void *state = NULL;
    for (size_t i = 0; i < n; i++) wanted += !filter || fnmatch(filter, tests[i].name, 0) == 0;
    printf("# tests/bare/cmocka.h stands in for cmocka, which is not installed\n1..%d\n", wanted);
    if (setup && setup(&state) != 0) {
        printf("# %s: group setup failed\n", group);
        return wanted;
    }
    for (size_t i = 0; i < n; i++) {
        if (filter && fnmatch(filter, tests[i].name, 0) != 0) continue;
        int result = bare_run(&tests[i], &reason);
        failed += result == BARE_FAILED;
        if (result == BARE_SKIPPED)
            printf("ok %d - %s # SKIP\n", ++number, tests[i].name);
        else
            printf("%sok %d - %s%s\n", result == BARE_FAILED ? "not " : "", ++number, tests[i].name, reason);
        fflush(stdout);
    }
    if (teardown && teardown(&state) != 0) printf("# %s: group teardown failed\n", group), failed++;
    printf("# %sok - %s\n", failed ? "not " : "", group);
    return failed;
}

#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                                      \
    bare_run_group(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_group_tests_name(#tests, tests, setup, teardown)

#endif /* FRUGAL_BARE_CMOCKA_H */
