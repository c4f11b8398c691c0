/* Options, failing and Ctrl-C of the benchmark programs. */
#include "bench/program.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *program_name = "bench";
static volatile sig_atomic_t interrupted; /* the signal; 0: none */

static void on_interrupt(int number) {
    if (interrupted) _exit(128 + number); /* asked twice */
    interrupted = number;
}

int bench_interrupted(void) {
    return interrupted != 0;
}

/* As main returns, and exit does: bench_rows has OpenBLAS. */
static int bench_end(int status) {
    return program_end(status, (size_t)sysconf(_SC_NPROCESSORS_ONLN));
}

int bench_exit_status(void) {
    program_error error;
    if (program_flush(stdout, "the result", &error)) bench_fail("%s", error.text);
    return bench_end(interrupted ? 128 + interrupted : 0);
}

void bench_fail(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s: ", program_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(bench_end(1));
}

void bench_progress(const char *format, ...) {
    va_list arguments;
    if (!isatty(STDERR_FILENO)) return;
    fputs("\r\033[K", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

void bench_parse(const char *program, const char *about, const options_entry *entries, int argc, char **argv) {
    static int help;
    static const options_entry last[] = {{"help", OPTIONS_FLAG, &help, .help = "this"}, {0}};
    char usage[4096];
    program_error error;
    program_open_streams();
    options_table table = {.program = program, .about = usage};
    program_name = program;
    snprintf(usage, sizeof usage, "usage: %s [options]\n\n%s\n", program, about);
    options_add(&table, NULL, entries);
    options_add(&table, NULL, last);
    if (options_read(&table, OPTIONS_ALL, argc, argv, &error)) {
        fprintf(stderr, "%s: %s\n", program, error.text);
        exit(bench_end(2));
    }
    if (help) {
        options_help(&table);
        if (program_flush(stdout, "the help", &error)) bench_fail("%s", error.text);
        exit(bench_end(0));
    }
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}
