/* What an example program does as a process, whatever it trains: errors in words, ending on Ctrl-C, streams.
 *
 *     int main(int argc, char **argv) {
 *         program_error error;
 *         program_open_streams();                    first, before any file is opened
 *         ...                                        options: options.h
 *         program_catch_signals();                   from here on Ctrl-C only sets program_signalled,
 *         train(&program_signalled);                 which the training polls; then it saves
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
    int damaged; /* what was read is damaged: another copy of it may be used instead */
} program_error;

/* Fills *error; -1. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int program_fail(program_error *error, const char *format, ...);
/* Was program_fail called, by any thread? Then what it says is the last word: notices of what closing loses are not. */
int program_has_failed(void);

/* As much of two different texts as a message has room for, in shown[0] and shown[1]: from a little before the first
 * byte that differs, so that the two are never shown alike. What is left out is told by "...". */
enum { PROGRAM_SHOWN = 72 };
void program_show_both(const char *a, size_t length_a, const char *b, size_t length_b, char shown[2][PROGRAM_SHOWN]);

/* If a standard stream is closed, /dev/null takes its place, so that no file of ours does. A file that grows beyond a
 * limit (ulimit -f) becomes an error of the write, EFBIG, and does not end the program. */
void program_open_streams(void);
/* Was everything that was written to the stream handed to the system? `name` is what the message calls it: a path, or
 * "the result". A stream of NULL gives 0. */
int program_flush(FILE *stream, const char *name, program_error *error);

/* SIGINT, SIGTERM and SIGHUP set program_signalled instead of ending the program; a second one ends it at once. An
 * ignored SIGHUP stays ignored, as nohup wants it. An ignored SIGINT does not, because shell scripts ignore it for
 * programs in the background. */
void program_catch_signals(void);
/* From here on these signals end the program again. */
void program_release_signals(void);
/* "Ctrl-C", or "a signal". Once program_signalled is set. */
const char *program_signal(void);

/* OpenBLAS takes one buffer per thread when its first product runs, and retries for ever if it gets none. So this asks
 * beforehand: is there memory for the buffers of so many threads? `remedy` ends the message, like "use fewer --devices
 * or --threads". */
int program_reserve_products(size_t threads, const char *remedy, program_error *error);

/* What main returns where OpenBLAS is linked: `status`, unless this ends the program itself. OpenBLAS starts `threads`
 * idle threads, and waits for them when the program ends. If memory is short, they retry for their buffers for ever,
 * and the program would not end. */
int program_end(int status, size_t threads);

/* Seconds, of a clock that only goes forward. */
double program_now(void);

#ifdef __cplusplus
}
#else
#include <stdatomic.h>
/* The signal that came, or 0. */
extern atomic_int program_signalled;
/* From here on a signal is noted there instead, where several processes must act on it together (ranks.h). */
void program_signals_to(atomic_int *to);
#endif

#endif
