/* program.h - what all benchmark programs share: options, errors, ending on Ctrl-C.
 *
 * Results go to standard output, everything else to standard error. Exit status 1 on failure, 2 on wrong usage, 130
 * where Ctrl-C ended it (after the results so far), 143 where SIGTERM did.
 */
#ifndef FRUGAL_BENCH_PROGRAM_H
#define FRUGAL_BENCH_PROGRAM_H

#include "trainers/common/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the command line into the places of the entries (trainers/common/options.h). --help prints `about` and the
 * options, and ends the program; a wrong option is reported with its value and limit, and ends it with 2. Also makes
 * Ctrl-C and SIGTERM set bench_interrupted. */
void bench_parse(const char *program, const char *about, const options_entry *entries, int argc, char **argv);

int bench_interrupted(void); /* a signal asks for the end: print what there is, and end */
/* 0, or 128 + the signal where interrupted; exits with 1 where the results cannot be written. */
int bench_exit_status(void);

/* Shows how far the program is, in place of what it showed before; shows nothing if standard error is not a terminal.
 */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void bench_progress(const char *format, ...);

/* Prints one line that says what failed, and exits with 1. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), noreturn))
#endif
void bench_fail(const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
