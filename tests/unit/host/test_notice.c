/* test_notice.c - what the caller is told although no call has failed yet: each first mistake is named, with what to do
 * about it, long before FRUGAL_ERR_STUCK, once, and in the same words. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "frugal_save.h"
#include "frugal_seeing.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) return fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, frugal_message());         \
    } while (0)

enum { DIM = 4 };
static const double stuck = 0.04; /* so a wait is told after 0.02 s */

typedef struct told {
    pthread_mutex_t lock;
    int n;
    char text[512];
    frugal *f;
    int stops; /* 1: it stops the instance */
} told;

static void note(const char *text, void *user) {
    told *t = user;
    frugal_stats stats;
    pthread_mutex_lock(&t->lock);
    t->n++;
    snprintf(t->text, sizeof t->text, "%s", text);
    pthread_mutex_unlock(&t->lock);
    frugal_get_stats(t->f, &stats); /* what a notice may call */
    assert_true(!t->f || frugal_settings(t->f));
    if (t->stops) frugal_stop(t->f);
}

static frugal *open_told(told *t, uint32_t devices, uint32_t attached, uint32_t lookahead, double seconds) {
    frugal_table table = {.rows = 10};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = DIM, .devices = devices, .max_keys = 4};
    desc.lookahead = lookahead, desc.stuck_seconds = seconds, desc.notice = note, desc.user = t;
    frugal *f;
    *t = (told){.n = 0};
    pthread_mutex_init(&t->lock, NULL);
    if (frugal_open(&desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    t->f = f;
    for (uint32_t d = 0; d < attached; d++) assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, d, NULL));
    return f;
}

static frugal_status announce(frugal *f, uint32_t d, uint64_t step) {
    const uint64_t keys[2] = {3, 7};
    const frugal_keys segment = {.table = 0, .keys = keys, .n = 2};
    return frugal_announce(f, d, step, &(frugal_batch){.segments = &segment, .n_segments = 1});
}

static frugal_status look_up(frugal *f, uint32_t d, uint64_t step) {
    float rows[2 * DIM];
    return frugal_lookup(f, d, step, rows);
}

static frugal_status train(frugal *f, uint32_t d, uint64_t step) {
    frugal_status status = announce(f, d, step);
    if (status == FRUGAL_OK) status = look_up(f, d, step);
    return status == FRUGAL_OK ? frugal_update(f, d, step, NULL) : status;
}

/* >>mistakes - each function makes one, and returns the status of the call that hangs */

static frugal_status no_announcement(frugal *f) {
    return look_up(f, 0, 0);
}

static frugal_status too_far_ahead(frugal *f) { /* lookahead 2: steps 0 to 2, and no more before step 0 is trained */
    frugal_status status = FRUGAL_OK;
    for (uint64_t t = 0; t <= 3 && status == FRUGAL_OK; t++) status = announce(f, 0, t);
    return status;
}

static frugal_status nested_announcements(frugal *f) { /* devices outside, steps inside */
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = 0; d < 2; d++)
        for (uint64_t t = 0; t < 4 && status == FRUGAL_OK; t++) status = announce(f, d, t);
    return status;
}

static frugal_status nested_steps(frugal *f) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = 0; d < 2 && status == FRUGAL_OK; d++) status = train(f, d, 0);
    return status;
}

static frugal_status nested_updates(frugal *f) { /* device 1 is forgotten between two steps of device 0 */
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, announce(f, d, t));
    assert_int_equal(FRUGAL_OK, look_up(f, 0, 0));
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, NULL));
    return look_up(f, 0, 1);
}

static frugal_status uneven_data(frugal *f) { /* device 1 has one step, device 0 has two */
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, announce(f, d, 0));
    for (uint32_t d = 0; d < 2; d++) {
        assert_int_equal(FRUGAL_OK, look_up(f, d, 0));
        assert_int_equal(FRUGAL_OK, frugal_update(f, d, 0, NULL));
    }
    return train(f, 0, 1);
}

typedef struct mistake {
    const char *name;
    frugal_status (*make)(frugal *f);
    uint32_t devices, attached, lookahead;
    const char *says[4];
} mistake;

static const mistake mistakes[] = {
    {"no announcement", no_announcement, 1, 1, 2, {"device 0 has not announced step 0", "call frugal_announce"}},
    {"too far ahead",
     too_far_ahead,
     1,
     1,
     2,
     {"announce, step 3", "lookahead is 2", "device 0 has not updated it", "announces up to step 2 now"}},
    {"devices outside, announcing",
     nested_announcements,
     2,
     2,
     2,
     {"announce, step 3", "device 1 has not announced step 0", "loop over steps, and within a step over devices"}},
    {"devices outside",
     nested_steps,
     2,
     2,
     2,
     {"lookup, step 0", "device 1 has not announced step 0", "loop over steps, and within a step over devices"}},
    {"a device forgotten",
     nested_updates,
     2,
     2,
     2,
     {"lookup, step 1", "device 1 has not updated step 0", "loop over steps, and within a step over devices"}},
    {"uneven data",
     uneven_data,
     2,
     2,
     2,
     {"lookup, step 1", "device 1 has not announced step 1", "whose data has ended calls frugal_finish"}},
    {"a device not attached",
     nested_steps,
     2,
     1,
     2,
     {"device 1 has not announced step 0, because it is not attached", "with fewer devices than 2"}},
};

/* Both texts have the same reason; only the seconds before it differ. */
static void check_told(const told *t, const mistake *m) {
    const char *message = frugal_message(), *reason = strstr(message, " s: "), *said = strstr(t->text, " s: ");
    if (t->n != 1) fail_msg("%s: told %d times, not once; the message is: %s", m->name, t->n, message);
    if (!reason || !said || strcmp(reason, said) != 0)
        fail_msg("%s: the notice is \"%s\", and the message \"%s\"", m->name, t->text, message);
    assert_non_null(strstr(t->text, "nothing has moved for 0.02 s: "));
    for (size_t i = 0; i < 4 && m->says[i]; i++)
        if (!strstr(t->text, m->says[i])) fail_msg("%s: \"%s\" is not in: %s", m->name, m->says[i], t->text);
}

static void test_first_mistakes_are_told(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake *m = &mistakes[i];
        told t;
        frugal *f = open_told(&t, m->devices, m->attached, m->lookahead, stuck);
        frugal_status status = m->make(f);
        if (status != FRUGAL_ERR_STUCK) fail_msg("%s: status %d: %s", m->name, (int)status, frugal_message());
        check_told(&t, m);
        assert_int_equal(FRUGAL_OK, frugal_on_notice(f, NULL, NULL));
        frugal_close(f);
    }
}

/* >>which waits, which threads */

typedef struct waiter {
    frugal *f;
    uint32_t d;
    pthread_t thread;
} waiter;

static void *wait_for_device_2(void *argument) {
    const waiter *w = argument;
    return (void *)(intptr_t)look_up(w->f, w->d, 0);
}

/* Two threads wait for the same: one of them tells it. */
static void test_threads_tell_once(void **state) {
    (void)state;
    told t;
    frugal *f = open_told(&t, 3, 3, 2, 0.2);
    waiter waiters[2] = {{f, 0, 0}, {f, 1, 0}};
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, announce(f, d, 0));
    for (uint32_t d = 0; d < 2; d++)
        assert_int_equal(0, pthread_create(&waiters[d].thread, NULL, wait_for_device_2, &waiters[d]));
    for (uint32_t d = 0; d < 2; d++) {
        void *status;
        pthread_join(waiters[d].thread, &status);
        assert_int_equal(FRUGAL_ERR_STUCK, (int)(intptr_t)status);
    }
    assert_int_equal(1, t.n);
    assert_non_null(strstr(t.text, "device 2 has not announced step 0"));
    frugal_close(f);
}

static void test_a_notice_may_stop(void **state) {
    (void)state;
    told t;
    frugal *f = open_told(&t, 1, 1, 0, 0.4);
    t.stops = 1;
    assert_int_equal(FRUGAL_STOPPED, look_up(f, 0, 0));
    assert_int_equal(1, t.n);
    frugal_close(f);
}

/* try forms do not wait, and a training that goes on is told nothing. */
static void test_nothing_to_tell(void **state) {
    (void)state;
    told t;
    float rows[2 * DIM];
    frugal *f = open_told(&t, 1, 1, 0, stuck);
    for (uint64_t s = 0; s < 20; s++) {
        assert_int_equal(FRUGAL_AGAIN, frugal_try_lookup(f, 0, s, rows));
        assert_int_equal(FRUGAL_OK, train(f, 0, s));
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    assert_int_equal(0, t.n);
}

static void test_set_later(void **state) {
    (void)state;
    told t, other = {.n = 0};
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_on_notice(NULL, note, NULL));
    assert_non_null(strstr(frugal_message(), "on_notice"));
    frugal *f = open_told(&t, 1, 1, 0, stuck);
    pthread_mutex_init(&other.lock, NULL);
    other.f = f;
    assert_int_equal(FRUGAL_OK, frugal_on_notice(f, note, &other));
    assert_int_equal(FRUGAL_ERR_STUCK, look_up(f, 0, 0));
    assert_true(t.n == 0 && other.n == 1);
    assert_int_equal(FRUGAL_OK, frugal_on_notice(f, NULL, &other));
    assert_int_equal(FRUGAL_OK, announce(f, 0, 0));
    assert_int_equal(FRUGAL_ERR_STUCK, announce(f, 0, 1));
    assert_true(t.n == 0 && other.n == 1);
    frugal_close(f);
}

/* >>processes */

/* In the process that joins: what is late is a device of the other one, and this one's own batch. */
static int join_and_wait(const char *name) {
    told t = {.n = 0};
    frugal *f;
    EXPECT(frugal_join(name, 30, &f) == FRUGAL_OK);
    pthread_mutex_init(&t.lock, NULL);
    t.f = f;
    EXPECT(frugal_settings(f)->notice == NULL);
    EXPECT(frugal_on_notice(f, note, &t) == FRUGAL_OK);
    EXPECT(frugal_cpu_attach(f, 1, NULL) == FRUGAL_OK);
    EXPECT(look_up(f, 1, 0) == FRUGAL_ERR_STUCK);
    EXPECT(t.n == 1 && strstr(t.text, "lookup, step 0: nothing has moved for 0.02 s: device 0 has not announced"));
    EXPECT(strstr(t.text, "calls frugal_finish") != NULL);
    EXPECT(strcmp(strstr(t.text, " s: "), strstr(frugal_message(), " s: ")) == 0);
    for (uint64_t s = 0; s < 6; s++) EXPECT(announce(f, 1, s) == FRUGAL_OK); /* three are taken, three on their way */
    EXPECT(announce(f, 1, 6) == FRUGAL_ERR_STUCK);
    EXPECT(t.n == 2 && strstr(t.text, "announce, step 6: ") != NULL);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return 0;
}

static void test_in_a_process_that_joined(void **state) {
    (void)state;
    char name[64];
    int status;
    snprintf(name, sizeof name, "test_notice %d", (int)getpid());
    fflush(NULL);
    pid_t child = fork(); /* before this process has a thread */
    assert_true(child >= 0);
    if (child == 0) _exit(join_and_wait(name));
    frugal_table table = {.rows = 10};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = DIM, .devices = 2, .max_keys = 4, .lookahead = 2};
    desc.workers = 1, desc.stuck_seconds = stuck, desc.name = name;
    frugal *f;
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    frugal_close(f);
}

/* >>what is lost, or was for nothing */

static frugal_status step_with(frugal *f, uint64_t step, float gradient, float lr) {
    float grads[2 * DIM];
    for (int i = 0; i < 2 * DIM; i++) grads[i] = gradient;
    assert_int_equal(FRUGAL_OK, announce(f, 0, step));
    assert_int_equal(FRUGAL_OK, look_up(f, 0, step));
    return frugal_update(f, 0, step, &(frugal_gradients){.grads = grads, .lr = lr});
}

static frugal *open_trained(told *t, frugal_alone alone, uint64_t steps, float gradient, float lr) {
    static frugal_table tables[2] = {{.rows = 10, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}, {.rows = 3}};
    frugal_desc desc = {.tables = tables, .n_tables = 2, .dim = DIM, .max_keys = 4, .alone = alone, .notice = note};
    desc.user = t;
    frugal *f;
    *t = (told){.n = 0};
    pthread_mutex_init(&t->lock, NULL);
    assert_int_equal(FRUGAL_OK, frugal_open(&desc, &f));
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.cache_rows = 8}));
    for (uint64_t s = 0; s < steps; s++) assert_int_equal(FRUGAL_OK, step_with(f, s, gradient, lr));
    t->f = f;
    return f;
}

static void test_closed_without_a_drain(void **state) {
    (void)state;
    told t;
    frugal *f = open_trained(&t, FRUGAL_ALONE_STAGED, 3, 1, 0.5f);
    frugal_close(f); /* without workers, the last step is not closed */
    assert_int_equal(1, t.n);
    assert_non_null(
        strstr(t.text, "close: 1 steps were not drained: updates of up to 2 rows are lost; call frugal_drain"));
    f = open_trained(&t, FRUGAL_ALONE_KEPT, 3, 1, 0.5f);
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    assert_int_equal(2, stats.kept_now);
    frugal_close(f);
    assert_non_null(strstr(t.text, "close: devices keep updates of 2 rows, which are lost"));
    f = open_trained(&t, FRUGAL_ALONE_KEPT, 3, 1, 0.5f);
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    frugal_close(f);
    assert_int_equal(0, t.n);
    f = open_trained(&t, FRUGAL_ALONE_STAGED, 0, 1, 0.5f);
    assert_int_equal(FRUGAL_OK, train(f, 0, 0)); /* a step without gradients loses nothing */
    frugal_close(f);
    assert_int_equal(0, t.n);
}

static void test_a_learning_rate_of_0(void **state) {
    (void)state;
    told t;
    frugal_stats stats;
    char text[16384];
    frugal *f = open_trained(&t, FRUGAL_ALONE_STAGED, 3, 1, 0);
    assert_int_equal(FRUGAL_OK, step_with(f, 3, 1, 0.5f));
    assert_int_equal(FRUGAL_OK, train(f, 0, 4)); /* without gradients: no rate was given */
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    frugal_get_stats(f, &stats);
    assert_true(stats.steps == 5 && stats.idle_steps == 3);
    assert_in_range(frugal_write_metrics(&f, NULL, 1, text, sizeof text), 1, sizeof text - 1);
    assert_non_null(strstr(text, "\nfrugal_idle_steps_total 3\n"));
    assert_int_equal(0, t.n);
    frugal_close(f);
    assert_int_equal(1, t.n);
    assert_non_null(strstr(t.text, "close: 3 steps had gradients and a learning rate of 0"));
}

/* A row that is not finite is found by a save and by verify. */
static void test_rows_that_are_not_finite(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    char path[64];
    snprintf(path, sizeof path, "/tmp/frugal_notice_%d", (int)getpid());
    for (int i = 0; i < 3; i++) {
        told t;
        frugal_stats stats;
        frugal *f = open_trained(&t, FRUGAL_ALONE_STAGED, 2, 1, 0.5f);
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_OK, frugal_save(&f, 1, &(frugal_save_desc){.path = path}));
        assert_int_equal(FRUGAL_OK, frugal_verify(f));
        frugal_get_stats(f, &stats);
        assert_true(t.n == 0 && stats.nonfinite_rows == 0);
        assert_int_equal(FRUGAL_OK, step_with(f, 2, bad[i], 0.5f)); /* rows 3 and 7 */
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_int_equal(FRUGAL_OK, frugal_save(&f, 1, &(frugal_save_desc){.path = path, .replace = 1}));
        assert_true(t.n == 1 && strstr(t.text, "save: 2 rows have NaN or infinity; the first is row 3 of table 0"));
        frugal_get_stats(f, &stats);
        assert_true(stats.nonfinite_rows == 2 && stats.first_nonfinite == 3);
        assert_int_equal(FRUGAL_OK, frugal_verify(f));
        assert_true(t.n == 2 && strstr(t.text, "verify: 2 rows have NaN or infinity; the first is row 3 of table 0"));
        float row[DIM] = {0};
        const uint64_t keys[2] = {3, 7}, last = 2;
        for (int k = 0; k < 2; k++)
            assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &(frugal_keys){.keys = &keys[k], .n = 1}, row, NULL));
        row[DIM - 1] = bad[i]; /* one element, of another table */
        const frugal_keys other = {.table = 1, .keys = &last, .n = 1};
        assert_int_equal(FRUGAL_OK, frugal_write_rows(f, &other, row, NULL));
        assert_int_equal(FRUGAL_OK, frugal_save(&f, 1, &(frugal_save_desc){.path = path, .replace = 1}));
        assert_true(t.n == 3 && strstr(t.text, "save: 1 rows have NaN or infinity; the first is row 2 of table 1"));
        assert_int_equal(0, unlink(path));
        frugal_close(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_process_that_joined), cmocka_unit_test(test_first_mistakes_are_told),
        cmocka_unit_test(test_threads_tell_once),        cmocka_unit_test(test_a_notice_may_stop),
        cmocka_unit_test(test_nothing_to_tell),          cmocka_unit_test(test_set_later),
        cmocka_unit_test(test_closed_without_a_drain),   cmocka_unit_test(test_a_learning_rate_of_0),
        cmocka_unit_test(test_rows_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
