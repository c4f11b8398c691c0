/* Options, failing and Ctrl-C of the benchmark programs. */
#include "bench/program.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *program_name = "bench";
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    if (interrupted) _exit(130); /* asked twice */
    interrupted = 1;
}

int bench_interrupted(void) {
    return interrupted;
}

int bench_exit_status(void) {
    return interrupted ? 130 : 0;
}

void bench_fail(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s: ", program_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void bench_progress(const char *format, ...) {
    va_list arguments;
    if (!isatty(STDERR_FILENO)) return;
    fputs("\r\033[K", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

static int is_choice(const bench_option *option) {
    return option->kind == BENCH_CHOICE || option->kind == BENCH_ONE_CHOICE;
}

static int is_count(const bench_option *option) {
    return option->kind == BENCH_COUNT || option->kind == BENCH_ONE_COUNT;
}

static int takes_a_list(const bench_option *option) {
    return option->kind == BENCH_COUNT || option->kind == BENCH_REAL || option->kind == BENCH_CHOICE;
}

static void print_value(const bench_option *option, double value) {
    if (is_choice(option))
        printf("%s", option->choices[(uint32_t)value]);
    else
        printf("%.15g", value);
}

static void print_help(const char *about, const bench_option *options, uint32_t n) {
    printf("usage: %s [OPTION VALUE]...\n\n%s\n", program_name, about);
    for (uint32_t i = 0; i < n; i++) {
        const bench_option *option = &options[i];
        printf("  %-14s %s", option->name, option->help);
        for (uint32_t c = 0; is_choice(option) && option->choices[c]; c++)
            printf("%s%s", c ? ", " : ": ", option->choices[c]);
        uint32_t defaults = option->kind == BENCH_FLAG || option->kind == BENCH_TEXT ? 0 : option->value->n;
        for (uint32_t v = 0; v < defaults; v++) {
            printf(v ? "," : "  [");
            print_value(option, option->value->values[v]);
        }
        puts(defaults ? "]" : "");
    }
}

static void wrong(const bench_option *option, const char *value) {
    fprintf(stderr, "%s: %s has '%s', must be ", program_name, option->name, value);
    if (is_choice(option)) {
        fprintf(stderr, "of:");
        for (uint32_t c = 0; option->choices[c]; c++) fprintf(stderr, " %s", option->choices[c]);
    } else
        fprintf(stderr, "%s from %.15g to %.15g", is_count(option) ? "a whole number" : "a number", option->least,
                option->most);
    if (takes_a_list(option))
        fprintf(stderr, ", or a list of up to %d such with commas\n", BENCH_LIST);
    else
        fputs("; one, no list\n", stderr);
    exit(2);
}

/* One value of a list; 0 if it makes no sense. */
static int read_one(const bench_option *option, const char *text, double *value) {
    if (is_choice(option)) {
        for (uint32_t c = 0; option->choices[c]; c++)
            if (!strcmp(text, option->choices[c])) {
                *value = c;
                return 1;
            }
        return 0;
    }
    char *end;
    *value = strtod(text, &end);
    if (!*text || *end || !(*value >= option->least && *value <= option->most)) return 0;
    return !is_count(option) || *value == floor(*value);
}

static void read_list(const bench_option *option, const char *text) {
    char copy[1024];
    if (strlen(text) >= sizeof copy) wrong(option, text);
    strcpy(copy, text);
    uint32_t most = takes_a_list(option) ? BENCH_LIST : 1;
    option->value->n = 0;
    for (char *at = copy, *next; at; at = next) {
        next = strchr(at, ',');
        if (next) *next++ = 0;
        if (option->value->n == most || !read_one(option, at, &option->value->values[option->value->n]))
            wrong(option, text);
        option->value->n++;
    }
}

void bench_parse(const char *program, const char *about, const bench_option *options, uint32_t n, int argc,
                 char **argv) {
    program_name = program;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            print_help(about, options, n);
            exit(0);
        }
        uint32_t at = 0;
        while (at < n && strcmp(argv[i], options[at].name) != 0) at++;
        if (at == n) {
            fprintf(stderr, "%s: %s is no option; --help shows them\n", program, argv[i]);
            exit(2);
        }
        if (options[at].kind == BENCH_FLAG)
            *options[at].value = (bench_list){{1}, 1};
        else if (options[at].kind == BENCH_TEXT && i + 1 < argc)
            *options[at].value = (bench_list){{++i}, 1};
        else if (options[at].kind == BENCH_TEXT) {
            fprintf(stderr, "%s: %s wants a value\n", program, argv[i]);
            exit(2);
        } else
            read_list(&options[at], i + 1 < argc ? argv[++i] : "");
    }
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
}
