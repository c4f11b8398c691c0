/* What the example programs do alike: errors in words, the command line, ending on Ctrl-C, the progress line.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong, in one line: the value, the limit, the remedy. */
typedef struct program_error {
    char text[512];
} program_error;

/* Fills *error; -1. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int program_fail(program_error *error, const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
