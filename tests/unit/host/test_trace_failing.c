/* test_trace_failing.c - traces whose file cannot be written, or whose name another file takes meanwhile; what is
 * recorded while recording ends and begins; threads for which no ring is left.
 *
 * The library is compiled into this program, with calls of the system that fail. Do not link frugal_flush.o. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "tests/unit/host/failing_files.h"

#include "frugal_flush.c"

#include <stdio.h>
#include <cmocka.h>
#include "tests/rig.h"
#include "tests/scratch.h"

/* The number behind a name in the trace that is written now; -1: the trace has no such name. *events: those in it. */
static long number_of(frugal *f, const char *name, int *events) {
    char *path = scratch_path("numbers.json"), *text, *at;
    long number = -1;
    size_t n;
    if (frugal_trace_write(f, path) != FRUGAL_OK) fail_msg("%s", frugal_message());
    text = (char *)scratch_read(path, &n);
    text = realloc(text, n + 1), text[n] = 0;
    if ((at = strstr(text, name))) number = atol(at + strlen(name));
    *events = 0;
    for (at = text; (at = strstr(at, "\"ph\":\"X\"")); at++) ++*events;
    free(text);
    return number;
}

static long lost_events(frugal *f, int *events) {
    return number_of(f, "\"lost_events\":", events);
}

/* >>the file */

/* While each call on files fails, once or from then on: no file, or the one that was there before, and the next attempt
 * works. */
static void test_failing_files(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_trace_start(r.f, 256));
    rig_train(&r, 40); /* more than one block of text */
    char *path = scratch_path("failing.json");
    int failures = 0;
    for (int replaces = 0; replaces < 2; replaces++)
        for (int for_ever = 0; for_ever < 2; for_ever++)
            for (int call = CALL_OPEN; call < FILE_CALLS; call++)
                for (int at = 1, failed = 1; failed; at++) {
                    size_t before = 0, after = 0;
                    unsigned char *text = NULL;
                    if (!replaces) unlink(path);
                    if (replaces) assert_int_equal(FRUGAL_OK, frugal_trace_write(r.f, path));
                    if (replaces) text = scratch_read(path, &before);
                    let_files_fail(call, at, EIO, for_ever);
                    frugal_status status = frugal_trace_write(r.f, path);
                    failed = atomic_load(&failing_files.failures);
                    let_files_fail(0, 0, 0, 0);
                    if (status != FRUGAL_OK) {
                        if (!failed || status != FRUGAL_ERR_FILE || !strstr(frugal_message(), "frugal_scratch_"))
                            fail_msg("call %d, %d: %d: %s", call, at, (int)status, frugal_message());
                        failures++;
                        assert_int_equal(replaces ? 0 : -1, access(path, F_OK));
                        if (replaces) {
                            unsigned char *now = scratch_read(path, &after);
                            assert_int_equal(before, after);
                            assert_memory_equal(text, now, before);
                            free(now);
                        }
                    }
                    free(text);
                }
    assert_true(failures > 20);
    unlink(path);
    rig_finish(&r, 1);
}

/* Another file has taken the name while the trace was written: it stays. */
static char *taken;
static void take_the_name(void) {
    scratch_write(taken, "not a trace", 11);
}

static void test_name_taken_meanwhile(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_trace_start(r.f, 16));
    taken = scratch_path("taken.json");
    failing_files.before_lock = take_the_name; /* a new file is locked when it is made */
    frugal_status status = frugal_trace_write(r.f, taken);
    failing_files.before_lock = NULL;
    if (status != FRUGAL_ERR_FILE || !strstr(frugal_message(), "not a trace; choose another name"))
        fail_msg("%d: %s", (int)status, frugal_message());
    size_t n;
    unsigned char *text = scratch_read(taken, &n);
    assert_true(n == 11 && !memcmp(text, "not a trace", 11));
    free(text);
    unlink(taken);
    rig_finish(&r, 1);
}

/* >>recording */

/* A call that began before recording did is not recorded, nor one that ends when recording has ended. Neither counts as
 * lost. */
static void test_begun_before_and_ended_after(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    int events;
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_trace_start(r.f, 16));
    double early = clock_now();
    trace_ring *claimed = trace_claim(r.f);
    while (ns_of(clock_now()) == ns_of(early)) continue; /* a coarse clock */
    assert_int_equal(FRUGAL_OK, frugal_trace_start(r.f, 16));
    trace_call(r.f, TRACE_DRAIN, early, NO_COUNT);
    assert_true(lost_events(r.f, &events) == 0 && events == 0);
    trace_call(r.f, TRACE_DRAIN, clock_now(), NO_COUNT);
    trace_release(claimed);
    assert_true(lost_events(r.f, &events) == 0 && events == 1);
    trace_span span = trace_enter(r.f, TRACE_UPDATE, 0, 0);
    assert_int_equal(FRUGAL_OK, frugal_trace_stop(r.f));
    trace_leave(r.f, &span, FRUGAL_OK);
    assert_true(lost_events(r.f, &events) == 0 && events == 1);
    rig_finish(&r, 2);
}

/* Eight threads at a time have a ring in calls of no device. Events of a ninth are counted. */
static void test_more_callers_than_rings(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    trace_ring *claimed[TRACE_CALLERS];
    int events;
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_trace_start(r.f, 16));
    for (int i = 0; i < TRACE_CALLERS; i++) { /* as the other threads do */
        claimed[i] = trace_claim(r.f);
        assert_non_null(claimed[i]);
        trace_own = NULL;
    }
    assert_null(trace_claim(r.f));
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_true(lost_events(r.f, &events) == 1 && events == 0);
    for (int i = 0; i < TRACE_CALLERS; i++) trace_release(claimed[i]);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_true(lost_events(r.f, &events) == 1 && events == 1);
    rig_finish(&r, 2);
}

/* Events that are overwritten while the file is written are counted as lost; those before them are in the file. */
enum { RING = 64 };
static frugal *overwritten;

static void record_many(void) {
    trace_ring *claimed = trace_claim(overwritten);
    for (int i = 0; i < RING; i++) trace_call(overwritten, TRACE_DRAIN, clock_now(), NO_COUNT);
    trace_release(claimed);
}

static void test_overwritten_while_written(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    int events;
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_trace_start(r.f, RING));
    overwritten = r.f;
    record_many();
    failing_files.before_write = record_many; /* of the first block of text */
    long lost = lost_events(r.f, &events);
    assert_null(failing_files.before_write);
    assert_true(events > 0 && lost > 1);
    assert_int_equal(RING, events + lost);
    rig_finish(&r, 2);
}

/* An event that began before the last start, and was written after it, is left out: as of a thread that has looked at
 * the time of the start just before it was changed. */
static void test_written_after_a_start(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    int events;
    rig_open(&r, &d);
    assert_int_equal(FRUGAL_OK, frugal_trace_start(r.f, RING));
    trace_event e = {.kind = TRACE_DRAIN, .d = NO_DEVICE, .other = NO_DEVICE, .step = 0, .a = NO_COUNT};
    e.begin = frugal_load_relaxed(&r.f->tracing.rings->started) - 1, e.end = e.begin + 1, e.b = e.c = NO_COUNT;
    write_event(r.f->tracing.rings, &r.f->tracing.rings->rings[0], &e);
    assert_true(lost_events(r.f, &events) == 0 && events == 0);
    rig_finish(&r, 2);
}

static int end(void **state) {
    (void)state;
    scratch_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_files),
        cmocka_unit_test(test_name_taken_meanwhile),
        cmocka_unit_test(test_begun_before_and_ended_after),
        cmocka_unit_test(test_more_callers_than_rings),
        cmocka_unit_test(test_overwritten_while_written),
        cmocka_unit_test(test_written_after_a_start),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, end);
}
