/* test_program.c - what all example programs do around their training: the line of progress in a file and on a
 * terminal, Ctrl-C, streams that fail, memory that is short. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "trainers/common/progress.h"
#include "trainers/common/program.h"

/* ---- Streams in the place of others ------------------------------------------------------------------- */

/* Lets descriptor `number` be `other`, which is closed; returns what it was. */
static int replace(int number, int other) {
    int before = dup(number);
    assert_true(before >= 0 && dup2(other, number) == number);
    close(other);
    return before;
}

static void put_back(int number, int before) {
    fflush(NULL);
    assert_true(dup2(before, number) == number);
    close(before);
}

/* What there is to read, up to `size` - 1 bytes. */
static const char *read_all(int from, char *text, size_t size) {
    ssize_t n = read(from, text, size - 1);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* What a terminal shows, which comes piece by piece and later than it was written: up to the last character of `last`,
 * or until nothing has come for ten seconds. */
static const char *read_terminal(int from, char *text, size_t size, const char *last) {
    size_t n = 0, end = strlen(last);
    struct pollfd waiting = {.fd = from, .events = POLLIN};
    text[0] = 0;
    while ((n < end || strcmp(text + n - end, last)) && n < size - 1 && poll(&waiting, 1, 10000) == 1) {
        ssize_t more = read(from, text + n, size - 1 - n);
        if (more <= 0) break;
        text[n += (size_t)more] = 0;
    }
    return text;
}

/* ---- Progress ----------------------------------------------------------------------------------------- */

static void show_some(progress_line *line) {
    progress_show(line, "one", 1, 0);
    progress_show(line, "two", 5.5, 0);
    progress_show(line, "three", 6, 0);
    progress_show(line, "four", 6.5, 1);
    progress_end(line);
}

static void test_progress_in_files(void **state) {
    (void)state;
    char text[200];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int before = replace(STDERR_FILENO, ends[1]);
    progress_line now_and_then = progress_begin(-1), always = progress_begin(0);
    show_some(&now_and_then);
    show_some(&always);
    put_back(STDERR_FILENO, before);
    assert_string_equal(read_all(ends[0], text, sizeof text), "one\nthree\nfour\none\ntwo\nthree\nfour\n");
    close(ends[0]);
    assert_true(progress_left(3, 0) == 0 && progress_left(3, 0.25) == 9 && progress_left(3, 1) == 0);
}

static void test_progress_on_a_terminal(void **state) {
    (void)state;
    char text[400];
    int keyboard = posix_openpt(O_RDWR | O_NOCTTY);
    if (keyboard < 0 || grantpt(keyboard) || unlockpt(keyboard)) {
        print_message("no terminal to be had\n");
        skip();
    }
    int screen = open(ptsname(keyboard), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 5, .ws_col = 5};
    assert_true(screen >= 0);
    assert_int_equal(ioctl(screen, TIOCSWINSZ, &size), 0);
    int before = replace(STDERR_FILENO, screen);
    progress_line line = progress_begin(-1);
    show_some(&line);
    progress_end(&line); /* nothing is open: nothing more is written */
    put_back(STDERR_FILENO, before);
    assert_string_equal(read_terminal(keyboard, text, sizeof text, "\r\n"),
                        "\rone\033[K\rtwo\033[K\rthre\033[K\rfour\033[K\r\n"); /* one column is left free */
    close(keyboard);
}

static void test_flushing(void **state) {
    (void)state;
    char text[2000];
    int ends[2];
    frugal_stats stats = {.hits = 30, .misses = 10, .steps = 10, .gate_waits = 2, .flushed = 4, .staging_depth = 12};
    stats.alone = 15, stats.shared = 5, stats.in_place = 11;
    progress_setup setup = {.mode = FRUGAL_SYNC, .devices = 2, .workers = 1, .lookahead = 3, .seconds = 4};
    stats.flushed_by_urgency[7] = 3, stats.flushed_at_close = 1, stats.stall_seconds = 2;
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    int before = replace(STDOUT_FILENO, ends[1]);
    progress_show_flushing(&stats, &setup);
    progress_show_flushing(&(frugal_stats){0}, &(progress_setup){0});
    put_back(STDOUT_FILENO, before);
    read_all(ends[0], text, sizeof text);
    close(ends[0]);
    assert_non_null(strstr(text, "(sync, 2 devices, 1 workers, lookahead 3)\n"));
    assert_non_null(strstr(text, " 40 in 10 steps; 30 from a device's cache (75.0%)\n"));
    assert_non_null(strstr(text, " 2 of 20 lookups waited; stall 2.000 s of 8.000 device seconds (25.0%)\n"));
    assert_non_null(strstr(text, " touched by one device: 75.0%; rows updated in place by that device: 11\n"));
    assert_non_null(strstr(text, " 4, by steps left until due:  7: 75.0%  at closing: 25.0%\n"));
    assert_null(strstr(text, "nan")); /* where nothing happened, either */
    assert_null(strstr(text, "inf"));
}

/* ---- The process -------------------------------------------------------------------------------------- */

static void test_signals(void **state) {
    (void)state;
    struct sigaction now;
    program_catch_signals();
    assert_int_equal(program_signalled, 0);
    raise(SIGTERM);
    assert_int_equal(program_signalled, SIGTERM);
    assert_string_equal(program_signal(), "a signal");
    sigaction(SIGTERM, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL); /* a second one ends the program */
    raise(SIGINT);
    assert_string_equal(program_signal(), "Ctrl-C");
    program_catch_signals();
    program_release_signals();
    sigaction(SIGINT, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL);
    program_signalled = 0;
}

/* `nohup` has SIGHUP ignored, and it stays so; SIGINT, which scripts ignore for what is in the background, does not. */
static void test_signals_that_are_ignored(void **state) {
    (void)state;
    struct sigaction now;
    program_catch_signals();
    raise(SIGHUP);
    assert_int_equal(program_signalled, SIGHUP);
    program_signalled = 0;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        signal(numbers[i], SIG_IGN);
        program_catch_signals();
        raise(numbers[i]);
        assert_int_equal(program_signalled, numbers[i] == SIGHUP ? 0 : numbers[i]);
        program_signalled = 0;
        program_release_signals();
        sigaction(numbers[i], NULL, &now);
        assert_true(now.sa_handler == (numbers[i] == SIGHUP ? SIG_IGN : SIG_DFL));
        signal(numbers[i], SIG_DFL);
    }
    program_release_signals();
}

static void test_streams(void **state) {
    (void)state;
    program_error error = {.text = ""};
    assert_int_equal(program_flush(NULL, "nothing", &error), 0);
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(program_flush(full, "the result", &error), 0); /* nothing was written */
    fputs("some", full);
    assert_int_equal(program_flush(full, "the result", &error), -1);
    assert_string_equal(error.text, "cannot write the result: No space left on device");
    fclose(full);
    int before = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    program_open_streams();
    assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    int next = open("/dev/null", O_RDONLY);
    assert_true(next > STDERR_FILENO);
    close(next);
    put_back(STDIN_FILENO, before);
}

static void test_memory_for_products(void **state) {
    (void)state;
    program_error error = {.text = ""};
    assert_int_equal(program_reserve_products(1, "use less", &error), 0);
#ifndef FRUGAL_SANITIZED /* they end the program instead */
    assert_int_equal(program_reserve_products((size_t)1 << 30, "use less", &error), -1);
    assert_string_equal(error.text, "144115188210073600 bytes for matrix products are not available; use less");
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress_in_files),
        cmocka_unit_test(test_progress_on_a_terminal),
        cmocka_unit_test(test_flushing),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_signals_that_are_ignored),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_memory_for_products),
    };
    return cmocka_run_group_tests_name("test_program", tests, NULL, NULL);
}
