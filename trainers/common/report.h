/* What a trainer reports: sums since it began, the difference of two of them, and this difference in words.
 *
 *     typedef struct trainer {
 *         training_reporter reporter;
 *         ...
 *     } trainer;
 *     if (training_report_is_due(&trainer->reporter, step, seconds)) {        one thread, before a step
 *         training_sums now = {.step = step, .samples = ..., .seconds = seconds, ...};
 *         training_add_stats(&now, trainer->frugal);
 *         training_tell(&trainer->reporter, &now, devices, progress);
 *     }
 */
#ifndef REPORT_H
#define REPORT_H

#include <stdio.h>

#include "frugal.h"

/* Sums from the beginning on, of all devices. */
typedef struct training_sums {
    uint64_t step, samples;
    uint64_t losses; /* how many are in `loss` */
    double seconds, loss;
    double stall; /* seconds; this and the next two come from Frugal: training_add_stats */
    uint64_t hits, misses;
} training_sums;

typedef struct training_report {
    uint64_t step, samples;
    double seconds;       /* of training, so far */
    double samples_per_s; /* since the previous report, like the next three */
    double loss;          /* a mean */
    double stall;         /* share of the devices' time that they spent waiting at gates */
    double hit_rate;      /* share of the rows looked up that were in a cache */
    double progress;      /* 0 to 1, towards the known end of the training; 0 where none is known */
} training_report;

typedef void training_report_function(void *user, const training_report *report);

typedef struct training_reporter {
    training_report_function *function; /* NULL: nobody is told */
    void *user;
    double seconds;         /* from one report to the next */
    training_sums reported; /* of the report before */
} training_reporter;

void training_add_stats(training_sums *sums, frugal *f);
/* What came between two sums; zero where there is nothing to divide by. The caller sets its progress. */
training_report training_report_between(const training_sums *from, const training_sums *to, uint32_t devices);

int training_report_is_due(const training_reporter *reporter, uint64_t step, double seconds);
/* Calls the function with what came since the report before. */
void training_tell(training_reporter *reporter, const training_sums *now, uint32_t devices, double progress);

/* "step 5/100  3 s left  ..." into text[size]. `samples` is what the program calls them; `steps`: the last; 0:
 * unknown. */
void training_report_line(const training_report *report, const char *samples, uint64_t steps, char *text, size_t size);
/* A JSON object without its closing brace, so that more can follow; NULL is no file. */
void training_report_json(const training_report *report, const char *samples, FILE *json);
/* The closing brace, and the end of the line. */
void training_json_end(FILE *json);

#endif
