/* What a program tells of its training: one line on stderr while it runs, and at its end what the flushing did.
 *
 *     progress_line line = progress_begin(report_seconds);      the seconds that the user asked for; < 0: none
 *     ...                                                       at every report:
 *     snprintf(text, sizeof text, "step %d  %.0f s left  ...", step, progress_left(seconds, share), ...);
 *     progress_show(&line, text, seconds, share >= 1);
 *     progress_end(&line);                                      before anything else is written to stderr
 *
 * On a terminal the line is rewritten at every report, cut to its width. Where stderr is a file, reports are lines: one
 * every five seconds of training, or one at every report if the user gave the seconds; and the last one.
 */
#ifndef PROGRESS_H
#define PROGRESS_H

#include "frugal_seeing.h"
#include "trainers/common/program.h"

typedef struct progress_line {
    int terminal; /* stderr is one */
    int open;     /* its last line awaits rewriting */
    double every; /* not on a terminal: seconds between lines, */
    double due;   /* and when the next one comes */
} progress_line;

progress_line progress_begin(double report_seconds);
/* `text`: the line, without its end; `seconds` of training so far; `last`: shown in any case. */
void progress_show(progress_line *line, const char *text, double seconds, int last);
/* Ends a line that awaits rewriting. */
void progress_end(progress_line *line);
/* Seconds left, if `share` of all (0 to 1) took `seconds`; 0 where nothing is known. */
double progress_left(double seconds, double share);

/* What evaluations on the way have found; of zeros: nothing yet. */
typedef struct progress_moment {
    uint64_t step;
    double seconds, value; /* of training; not a number: there was none */
} progress_moment;

typedef struct progress_curve {
    progress_moment *moments;
    size_t n;
} progress_curve;

int progress_add(progress_curve *curve, uint64_t step, double seconds, double value, program_error *error);
/* Writes the curve as text, a line per evaluation, from which the same bits can be read again. The caller checks for
 * errors of writing. */
void progress_write_curve(const progress_curve *curve, FILE *stream);
/* Appends what was written. */
int progress_read_curve(progress_curve *curve, FILE *stream, program_error *error);
/* To stdout, the first line empty: at most a screen of evaluations as bars from `base` up, always with the last one.
 * `name` heads the values. */
void progress_show_curve(const progress_curve *curve, const char *name, double base);
void progress_free(progress_curve *curve);

/* What an instance was set up with, for the heading, and how long it trained. */
typedef struct progress_setup {
    frugal_mode mode;
    uint32_t devices, workers, lookahead;
    double seconds;
} progress_setup;

/* Some lines to stdout, the first one empty: cache hits, gates, rows in place, urgency of the flushes, queue,
 * staging. */
void progress_show_flushing(const frugal_stats *stats, const progress_setup *setup);

#endif
