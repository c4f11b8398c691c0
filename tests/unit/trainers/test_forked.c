/* test_forked.c - processes that train together (common/processes.h): their memory, their work, and how they end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainers/common/processes.h"

enum { PROCESSES = 3, DEVICES = 6, MEETINGS = 500 };
enum { COUNT, MEET, FAIL, EXIT, DIE, WAIT, END }; /* work */

typedef struct scene {
    processes *p;
    atomic_int *count; /* shared */
    int *own;          /* shared: own[DEVICES], each written by its process */
} scene;

/* Each process has one device. */
static void meet_often(scene *s) {
    uint32_t first = processes_first(s->p);
    for (int round = 1; round <= MEETINGS; round++) {
        s->own[first] = round;
        if (processes_meet(s->p)) _exit(9);
        for (uint32_t d = 0; d < PROCESSES; d++)
            if (s->own[d] != round) atomic_store(s->count, -1000);
        if (processes_meet(s->p)) _exit(9);
    }
}

static int work(void *argument, uint32_t what, program_error *error) {
    scene *s = argument;
    program_error why;
    if (!processes_is_other(s->p)) _exit(9);
    if (what == COUNT) atomic_fetch_add(s->count, (int)processes_first(s->p));
    if (what == MEET) meet_often(s);
    if (processes_first(s->p) != processes_devices(s->p)) return 0; /* the second process alone goes on */
    if (what == FAIL) return program_fail(error, "no wine left");
    if (what == EXIT) _exit(7);
    if (what == DIE) raise(SIGKILL);
    if (what == WAIT && processes_meet(s->p)) atomic_fetch_add(s->count, 1);
    if (what == END) {
        program_fail(&why, "ended itself");
        processes_end(s->p, FRUGAL_OK, &why);
    }
    return 0;
}

static void leave(void *argument) {
    scene *s = argument;
    atomic_fetch_add(s->count, 100);
}

static void begin(scene *s, uint32_t n, uint32_t devices) {
    static const processes_work all = {work, leave};
    program_error error;
    assert_int_equal(0, processes_open(&s->p, n, devices, &error));
    s->count = processes_memory(s->p, sizeof *s->count);
    s->own = processes_memory(s->p, DEVICES * sizeof *s->own);
    assert_non_null(s->count);
    assert_non_null(s->own);
    assert_int_equal(0, atomic_load(s->count));
    assert_int_equal(0, processes_start(s->p, &all, s, &error));
}

/* Ends the others; none is left. */
static void end(scene *s) {
    processes_leave(s->p);
    assert_int_equal(-1, waitpid(-1, NULL, WNOHANG)); /* no child, not even a zombie */
}

static void test_work(void **state) {
    (void)state;
    scene s;
    program_error error;
    begin(&s, PROCESSES, DEVICES);
    assert_int_equal(0, processes_first(s.p));
    assert_int_equal(2, processes_devices(s.p));
    assert_false(processes_is_other(s.p));
    assert_string_not_equal(processes_name(s.p, 0), processes_name(s.p, 1));
    for (int i = 1; i <= 20; i++) {
        processes_begin(s.p, COUNT);
        assert_int_equal(0, processes_await(s.p, &error));
        assert_int_equal(i * (2 + 4), atomic_load(s.count));
    }
    end(&s);
    assert_int_equal(20 * 6 + 2 * 100, atomic_load(s.count));
    processes_close(s.p);
}

static void test_meetings(void **state) {
    (void)state;
    scene s;
    program_error error;
    begin(&s, PROCESSES, PROCESSES);
    processes_begin(s.p, MEET);
    meet_often(&s);
    assert_int_equal(0, processes_await(s.p, &error));
    assert_int_equal(0, atomic_load(s.count));
    processes_close(s.p);
}

static void test_alone(void **state) {
    (void)state;
    scene s;
    program_error error;
    begin(&s, 0, 1);
    assert_null(processes_name(s.p, 0));
    assert_int_equal(1, processes_devices(s.p));
    processes_begin(s.p, COUNT);
    assert_int_equal(0, processes_await(s.p, &error));
    assert_int_equal(FRUGAL_OK, processes_meet(s.p));
    program_fail(&error, "as before");
    processes_explain(s.p, FRUGAL_ERR_LOST, &error);
    assert_string_equal("as before", error.text);
    processes_close(s.p);
    processes_close(NULL);
}

static void fails(uint32_t what, const char *text) {
    scene s;
    program_error error;
    begin(&s, PROCESSES, DEVICES);
    processes_begin(s.p, what);
    assert_int_equal(-1, processes_await(s.p, &error));
    if (!strstr(error.text, text) || strncmp(error.text, "process 1 (pid ", 15)) fail_msg("it says: %s", error.text);
    assert_int_equal(FRUGAL_STOPPED, processes_meet(s.p)); /* waits stay broken */
    end(&s);
    processes_close(s.p);
}

static void test_ends(void **state) {
    (void)state;
    fails(FAIL, ") has ended: no wine left");
    fails(END, ") has ended: ended itself");
    fails(EXIT, ") has ended with exit status 7");
    fails(DIE, ") was ended by signal 9 (Killed)");
}

/* A process that waits for the others is told when this one gives up. */
static void test_break(void **state) {
    (void)state;
    scene s;
    begin(&s, PROCESSES, DEVICES);
    processes_begin(s.p, WAIT);
    processes_break(s.p);
    while (!atomic_load(s.count)) usleep(1000);
    end(&s);
    processes_close(s.p);
}

/* Signals of the terminal are for the first process. */
static void test_signals(void **state) {
    (void)state;
    scene s;
    program_error error;
    begin(&s, PROCESSES, DEVICES);
    processes_begin(s.p, COUNT);
    assert_int_equal(0, processes_await(s.p, &error));
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) signal(signals[i], SIG_IGN);
    for (int i = 0; i < 3; i++) kill(0, signals[i]);
    for (int i = 0; i < 3; i++) signal(signals[i], SIG_DFL);
    processes_begin(s.p, COUNT);
    assert_int_equal(0, processes_await(s.p, &error));
    processes_close(s.p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work), cmocka_unit_test(test_meetings), cmocka_unit_test(test_alone),
        cmocka_unit_test(test_ends), cmocka_unit_test(test_break),    cmocka_unit_test(test_signals),
    };
    setpgid(0, 0); /* test_signals sends to the group */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
