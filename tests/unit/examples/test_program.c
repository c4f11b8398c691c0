/* test_program.c - what the example programs do alike around their training: the line of progress in a file and on a
 * terminal, Ctrl-C, streams that fail, files that are published whole. */
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
#include "examples/common/progress.h"
#include "examples/common/program.h"
#include "examples/common/save.h"

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

static void test_streams(void **state) {
    (void)state;
    program_error error = {""};
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
    program_error error = {""};
    assert_int_equal(program_reserve_products(1, "use less", &error), 0);
#ifndef FRUGAL_SANITIZED /* they end the program instead */
    assert_int_equal(program_reserve_products((size_t)1 << 30, "use less", &error), -1);
    assert_string_equal(error.text, "144115188210073600 bytes for matrix products are not to be had; use less");
#endif
}

/* ---- Saving ------------------------------------------------------------------------------------------- */

static int holds(const char *folder, const char *name, const char *wanted) {
    char path[200], text[100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY);
    if (file < 0) return !wanted;
    read_all(file, text, sizeof text);
    close(file);
    return wanted && !strcmp(text, wanted);
}

static void save_text(const char *folder, const char *name, const char *text) {
    save_file file;
    program_error error;
    if (save_open(&file, folder, name, &error)) fail_msg("%s", error.text);
    fputs(text, file.stream);
    if (save_close(&file, &error)) fail_msg("%s", error.text);
}

static void test_saving(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b"};
    char folder[64] = "/tmp/test_program.XXXXXX", inner[80], path[200];
    program_error error;
    assert_non_null(mkdtemp(folder));
    snprintf(inner, sizeof inner, "%s/new", folder);
    for (int i = 0; i < 2; i++) assert_int_equal(save_prepare(inner, "a", &error), 0); /* made; there */
    assert_true(holds(inner, "a", NULL) && holds(inner, "a.part", NULL));
    save_text(inner, "a", "old");
    assert_true(holds(inner, "a", NULL) && holds(inner, "a.part", "old"));
    assert_int_equal(save_publish(inner, names, 1, &error), 0);
    save_text(inner, "a", "new"), save_text(inner, "b", "new");
    assert_true(holds(inner, "a", "old"));
    save_discard(inner, names, 2);
    assert_true(holds(inner, "a", "old") && holds(inner, "b", NULL) && holds(inner, "b.part", NULL));
    assert_int_equal(save_publish(inner, names, 2, &error), -1);
    assert_non_null(strstr(error.text, "/new/a: No such file"));
    snprintf(path, sizeof path, "%s/a", inner);
    assert_int_equal(save_prepare(path, "a", &error), -1); /* its folder is a file */
    snprintf(path, sizeof path, "%s/b.part", inner);
    assert_int_equal(symlink("/dev/full", path), 0);
    save_file file;
    assert_int_equal(save_open(&file, inner, "b", &error), 0);
    fputs("lost", file.stream);
    assert_int_equal(save_close(&file, &error), -1);
    assert_non_null(strstr(error.text, "/new/b: No space left on device"));
    assert_true(holds(inner, "b.part", NULL));
    unlink(strcat(strcpy(path, inner), "/a"));
    assert_true(!rmdir(inner) && !rmdir(folder));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress_in_files),
        cmocka_unit_test(test_progress_on_a_terminal),
        cmocka_unit_test(test_flushing),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_memory_for_products),
        cmocka_unit_test(test_saving),
    };
    return cmocka_run_group_tests_name("test_program", tests, NULL, NULL);
}
