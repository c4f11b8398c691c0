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
#include "frugal_bindings.h"
#include "frugal_save.h"
#include "tests/scratch.h"
#include "tests/unit/host/refused.h"

#include <sys/resource.h>
#include <sys/wait.h>

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

/* >>descriptors */

/* The first descriptor that is free; all behind it are, too. */
static int first_free(void) {
    int next = open("/dev/null", O_RDONLY);
    close(next);
    return next;
}

/* Makes the call while this process may have `more` more descriptors. Returns 1 if they are enough. If not, it must say
 * so, with the limit and the remedy. */
static int is_enough(frugal_status (*call)(void *argument), void *argument, int more) {
    struct rlimit before, limit;
    char number[32];
    assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &before));
    limit = before, limit.rlim_cur = (rlim_t)(first_free() + more);
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &limit));
    frugal_status status = call(argument);
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &before));
    if (status == FRUGAL_OK) return 1;
    snprintf(number, sizeof number, "may have %d", (int)limit.rlim_cur);
    assert_fails(status, status, number, "ulimit -n");
    assert_true(status == FRUGAL_ERR_FILE || status == FRUGAL_ERR_PROCESS);
    return 0;
}

/* Makes the call with more and more descriptors. Returns how many it needs; at least `least`. */
static void needs_descriptors(frugal_status (*call)(void *argument), void *argument, int least) {
    int more = 0;
    while (!is_enough(call, argument, more) && more < 50) more++;
    assert_in_range(more, least, 49);
}

static frugal_status open_and_close(void *desc) {
    frugal *f = NULL;
    frugal_status status = frugal_open(desc, &f);
    frugal_close(f); /* leaves the message */
    return status;
}
static frugal_status save(void *instance) {
    frugal *f = instance;
    return frugal_save(&f, 1, &(frugal_save_desc){.path = scratch_path("save"), .replace = 1});
}
static frugal_status join_and_leave(void *name) {
    frugal *f = NULL;
    frugal_status status = frugal_join(name, 5, &f);
    frugal_close(f);
    return status;
}

/* Each call that needs a descriptor says which limit is too low. */
static void test_descriptor_limit(void **state) {
    (void)state;
    frugal *f = NULL;
    frugal_desc desc = rig_desc(), named = desc, mapped = desc, restored = desc;
    const char *saves[] = {scratch_path("save")};
    char name[32];
    snprintf(name, sizeof name, "test_errors.%d", (int)getpid());
    named.name = name, named.workers = 1, mapped.file = scratch_path("table"), restored.saved = saves,
    restored.n_saved = 1;
    needs_descriptors(open_and_close, &mapped, 2);
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    needs_descriptors(save, f, 2);
    frugal_close(f);
    needs_descriptors(open_and_close, &restored, 1);
#if defined(__linux__)
    needs_descriptors(open_and_close, &named, 4);
#endif
}

/* The same of a process that joins an instance whose table is a file: its socket, and what it is sent. */
static void test_descriptor_limit_of_join(void **state) {
    (void)state;
#if defined(__linux__)
    char name[32], ready = 1;
    int told[2], ends;
    frugal *f = NULL;
    frugal_desc desc = rig_desc();
    snprintf(name, sizeof name, "test_errors.%d", (int)getpid());
    desc.name = name, desc.workers = 1, desc.file = scratch_path("joined");
    assert_int_equal(0, pipe(told));
    pid_t child = fork(); /* before there are threads */
    if (child == 0) {
        ready = read(told[0], &ready, 1) == 1;
        if (ready) needs_descriptors(join_and_leave, name, 4);
        _exit(ready ? 0 : 1); /* a failed assertion ends the test program, with another status */
    }
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    assert_int_equal(1, write(told[1], &ready, 1));
    assert_int_equal(child, waitpid(child, &ends, 0));
    assert_int_equal(0, ends);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    close(told[0]), close(told[1]);
#endif
    scratch_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_message_is_the_threads_own),
        cmocka_unit_test(test_no_instance),
        cmocka_unit_test(test_version_and_sizes),
        cmocka_unit_test(test_descriptor_limit),
        cmocka_unit_test(test_descriptor_limit_of_join),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
