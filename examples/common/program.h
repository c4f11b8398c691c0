/* What an example program does as a process, whatever it trains: errors in words, ending on Ctrl-C, streams.
 *
 *     int main(int argc, char **argv) {
 *         program_error error;
 *         program_open_streams();                    first, before any file is opened
 *         ...                                        options: options.h
 *         program_catch_signals();                   from here on Ctrl-C only sets program_signalled,
 *         train(&program_signalled);                 which the training asks for; then it is saved
 *         program_release_signals();                 from here on Ctrl-C simply ends the program
 *         ...                                        the result, to stdout
 *         if (program_flush(stdout, "the result", &error)) fprintf(stderr, "dlrm: %s\n", error.text);
 *     }
 *
 * Functions that can fail return 0, or -1 with *error filled.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong, in one line: the value, the limit, the remedy. */
typedef struct program_error {
    char text[512];
    int damaged; /* it is what was read that is at fault: another copy of it may be used instead */
} program_error;

/* Fills *error; -1. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int program_fail(program_error *error, const char *format, ...);

/* Where a standard stream is closed, no file of ours must take its place: /dev/null does. And a file that grows beyond
 * a limit (ulimit -f) is an error of the write, EFBIG, not the end of the program. */
void program_open_streams(void);
/* Is all on its way that was written to the stream, from its beginning? `name` is what the message calls it: a path,
 * or "the result". NULL is no stream, and 0. */
int program_flush(FILE *stream, const char *name, program_error *error);

/* SIGINT, SIGTERM and SIGHUP set program_signalled instead of ending the program; a second one ends it at once. An
 * ignored SIGHUP stays ignored, as nohup wants it; not SIGINT, which a shell's script ignores in the background. */
void program_catch_signals(void);
/* They end it again. */
void program_release_signals(void);
/* "Ctrl-C", or "a signal". Once program_signalled is set. */
const char *program_signal(void);

/* OpenBLAS takes a buffer a thread when its first product runs, and tries for ever where it gets none: so, before, are
 * there buffers for so many threads? `remedy` ends the message, as "use fewer --devices or --threads". */
int program_reserve_products(size_t threads, const char *remedy, program_error *error);

/* What main returns where OpenBLAS is linked: `status`, unless this ends the program itself. OpenBLAS starts `threads`
 * idle threads, and waits for them when the program ends; where memory is short they try for their buffers for ever,
 * and so would the program. */
int program_end(int status, size_t threads);

/* Seconds, of a clock that only goes forward. */
double program_now(void);

#ifdef __cplusplus
}
#else
#include <stdatomic.h>
/* The signal that came, or 0. */
extern atomic_int program_signalled;
#endif

#endif
