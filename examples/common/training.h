/* What a program that trains on Frugal does, whatever it trains: statuses in words, threads, a clock and the
 * numbers of a report.
 *
 *     typedef struct trainer {
 *         training_clock clock;
 *         training_end *end;                                   [devices]: how each device's thread ended
 *         ...
 *     } trainer;
 *     static void train(void *trainer, uint32_t device) {      on a thread of its own
 *         ...
 *         training_note_end(&trainer->end[device], status);
 *         if (status) give_up(trainer);                        the others would wait for this device for ever
 *     }
 *     training_start(&trainer->clock);
 *     int status = training_run(devices, train, give_up, trainer, &error);
 *     training_pause(&trainer->clock);
 *     const training_end *failed = training_failure(trainer->end, devices);
 *
 * Functions that can fail return 0, or -1 with *error filled.
 */
#ifndef TRAINING_H
#define TRAINING_H

#include "frugal.h"
#include "examples/common/program.h"

/* After a call of Frugal's that failed, on its thread: fills *error with what failed, and why in Frugal's words; -1. */
int training_fail(const char *what, program_error *error);

/* How a thread of the training ended. */
typedef struct training_end {
    frugal_status status;
    program_error error; /* the status in words; of zeros: none so far */
} training_end;

/* On that thread: notes its last status, in Frugal's words unless the thread has filled end->error itself. */
void training_note_end(training_end *end, frugal_status status);
/* Which of end[n] to tell of: the first that failed. If there are only threads that were stopped (FRUGAL_STOPPED,
 * which follows from another's failure), the first of them. NULL: none failed. */
const training_end *training_failure(const training_end *end, uint32_t n);

/* Calls run(trainer, part) for each part below `parts`, on a thread each, and waits until all have returned. If a
 * thread cannot be started, give_up(trainer) must make the others return. */
int training_run(uint32_t parts, void run(void *trainer, uint32_t part), void give_up(void *trainer), void *trainer,
                 program_error *error);

/* Seconds of training, over several runs. */
typedef struct training_clock {
    double before;  /* in the runs that are over */
    double started; /* when the current run started */
} training_clock;

void training_start(training_clock *clock);
void training_pause(training_clock *clock);
/* With those of the current run. */
double training_elapsed(const training_clock *clock);

/* Sums from the beginning on, of all devices. A report tells the difference of two. */
typedef struct training_sums {
    uint64_t step, samples;
    uint64_t losses; /* how many are in `loss` */
    double seconds, loss;
    double stall; /* seconds, and as the next two Frugal's: training_add_stats */
    uint64_t hits, misses;
} training_sums;

typedef struct training_rates {
    double samples_per_s;
    double loss;     /* a mean */
    double stall;    /* share of the devices' time that they spent waiting at gates */
    double hit_rate; /* share of the rows looked up that were in a cache */
} training_rates;

void training_add_stats(training_sums *sums, frugal *f);
/* Zero where there is nothing to divide by. */
training_rates training_between(const training_sums *from, const training_sums *to, uint32_t devices);

#endif
