/* program.h - what every benchmark program does alike: options, failing, ending on Ctrl-C.
 *
 * Results go to standard output, everything else to standard error. Exit status 1 on failure, 2 on wrong usage, 130 where
 * Ctrl-C ended it (after the results so far).
 */
#ifndef FRUGAL_BENCH_PROGRAM_H
#define FRUGAL_BENCH_PROGRAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_LIST = 32 };

/* What an option was given: most take a list, so that one run can sweep them: --lookahead 0,1,2,5. */
typedef struct bench_list {
    double values[BENCH_LIST];
    uint32_t n;
} bench_list;

/* Whole numbers, numbers, some of `choices` (their indices): a list, or one value. An option without a value (1 where
 * given). A text (its index in argv). */
typedef enum bench_option_kind {
    BENCH_COUNT,
    BENCH_REAL,
    BENCH_CHOICE,
    BENCH_ONE_COUNT,
    BENCH_ONE_REAL,
    BENCH_ONE_CHOICE,
    BENCH_FLAG,
    BENCH_TEXT
} bench_option_kind;

typedef struct bench_option {
    const char *name; /* with its dashes */
    bench_option_kind kind;
    bench_list *value; /* holds the default; n = 0 where there is none */
    double least, most;
    const char *const *choices; /* up to a NULL */
    const char *help;
} bench_option;

/* Reads the command line into the options' values. --help prints `about` and the options, and ends the program; what is
 * wrong is said with value and limit, and ends it with 2. Also makes Ctrl-C set bench_interrupted. */
void bench_parse(const char *program, const char *about, const bench_option *options, uint32_t n, int argc,
                 char **argv);

int bench_interrupted(void); /* Ctrl-C has been pressed: print what there is, and end */
int bench_exit_status(void); /* 0, or 130 where interrupted */

/* Shows how far the program is, over what it showed before; nothing where standard error is no terminal. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void bench_progress(const char *format, ...);

/* Says what failed, a line, and exits with 1. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), noreturn))
#endif
void bench_fail(const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
