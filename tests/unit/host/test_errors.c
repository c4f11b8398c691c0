/* test_errors.c - texts of statuses and messages, the refusals that all calls share, and what a binding asks first.
 *
 * Each status is provoked in the program of this folder that tests its subject. FRUGAL_ERR_ARITHMETIC is in
 * test_arithmetic.c, which builds the library with a wrong fmaf; FRUGAL_ERR_STUCK is in test_wait.c, where threads do
 * not finish. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/host/refused.h"

static void test_texts(void **state) {
    (void)state;
    static const struct {
        frugal_status status;
        const char *name;
    } all[] = {
#define ENTRY(name, value, text) {FRUGAL_##name, #name},
        FRUGAL_STATUS_LIST(ENTRY)
#undef ENTRY
    };
    size_t n = sizeof(all) / sizeof(*all);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(frugal_strerror(all[i].status));
        assert_true(strlen(frugal_strerror(all[i].status)) > 3);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(frugal_strerror(all[i].status), frugal_strerror(all[k].status));
        assert_true((all[i].status < 0) == (strncmp(all[i].name, "ERR_", 4) == 0));
    }
    assert_non_null(frugal_strerror((frugal_status)-999));
    assert_non_null(frugal_strerror((frugal_status)999));
    assert_non_null(frugal_message());
}

static void *fail_elsewhere(void *argument) {
    assert_non_null(frugal_message());
    frugal_open(NULL, (frugal **)argument);
    return strstr(frugal_message(), "desc") ? argument : NULL;
}

static void test_message_is_the_threads_own(void **state) {
    (void)state;
    frugal *f = NULL;
    frugal_desc desc = rig_desc();
    desc.lookahead = 99;
    assert_fails(FRUGAL_ERR_LOOKAHEAD, frugal_open(&desc, &f), "99", "15");
    char before[512];
    snprintf(before, sizeof(before), "%s", frugal_message());
    pthread_t thread;
    void *told;
    assert_int_equal(0, pthread_create(&thread, NULL, fail_elsewhere, &f));
    assert_int_equal(0, pthread_join(thread, &told));
    assert_non_null(told);
    assert_string_equal(before, frugal_message());
}

static void test_no_instance(void **state) {
    (void)state;
    check_refused_by_all(NULL);
    frugal_stop(NULL);
    frugal_close(NULL);
}

/* What a binding asks before its first call. tests/compile/library asks for every public struct. */
static void test_version_and_sizes(void **state) {
    (void)state;
    assert_int_equal(FRUGAL_VERSION, frugal_version());
    assert_int_equal(sizeof(frugal_desc), frugal_sizeof("frugal_desc"));
    assert_int_equal(sizeof(frugal_pq_batch), frugal_sizeof("frugal_pq_batch"));
    assert_int_equal(0, frugal_sizeof("frugal_des"));
    assert_int_equal(0, frugal_sizeof(""));
    assert_int_equal(0, frugal_sizeof(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_message_is_the_threads_own),
        cmocka_unit_test(test_no_instance),
        cmocka_unit_test(test_version_and_sizes),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
