/* What a program that trains on Frugal does, whatever it trains: statuses in words, threads, a clock, devices on host
 * cores, rows read. Its settings are in settings.h, its reports in report.h; stages.h is the program around it.
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
 *     if (status || training_failed(trainer->end, devices, devices, &error)) ...
 *
 * Functions that can fail return 0, or -1 with *error filled.
 */
#ifndef TRAINING_H
#define TRAINING_H

#include "trainers/common/processes.h"
#include "trainers/common/report.h"
#include "trainers/common/settings.h"

/* After a call of Frugal's that failed, on its thread: fills *error with what failed, and why in Frugal's words; -1. A
 * save that cannot be used, or read, is damaged. */
int training_fail(const char *what, program_error *error);

/* A frugal_desc.notice: prints what Frugal says to stderr. */
void training_notice(const char *text, void *user);

/* The id of the save `path`; every save has a different one. */
int training_saved_id(const char *path, uint64_t *id, program_error *error);
/* The file of a checkpoint with tables for as many machines as there are: `name`, or if that is of others, NAME.for-N
 * beside it, which frugal_file has made of it. path[MANIFEST_LONGEST_PATH]. */
int training_find_tables(const char *folder, const char *name, char *path, program_error *error);
/* Has the save `path` this id? Else it is damaged. */
int training_check_saved(const char *path, uint64_t id, program_error *error);

/* How a thread of the training ended. */
typedef struct training_end {
    frugal_status status;
    program_error error; /* the status in words; of zeros: none so far */
} training_end;

/* On that thread: notes its last status, in Frugal's words unless the thread has filled end->error itself. */
void training_note_end(training_end *end, frugal_status status);
/* The one of end[n] to report: the first that failed. If all that ended badly were stopped (FRUGAL_STOPPED, which
 * follows from the failure of another), the first of these. NULL: none failed. */
const training_end *training_failure(const training_end *end, uint32_t n);
/* -1 with *error filled if one of end[n] failed, else 0. The first `devices` of end[n] are devices. */
int training_failed(const training_end *end, uint32_t n, uint32_t devices, program_error *error);

/* Calls run(trainer, part) for each part below `parts`, on a thread each, and waits until all have returned. If a
 * thread cannot be started, give_up(trainer) must make the others return. */
int training_run(uint32_t parts, void run(void *trainer, uint32_t part), void give_up(void *trainer), void *trainer,
                 program_error *error);

/* When a part of a trainer gives up in a process that was forked, ends this process with the failure of end[n]; else
 * has no wait of processes.h last. */
void training_give_up(processes *p, const training_end *end, uint32_t n, uint32_t devices);
/* Waits until the other processes have done what they were begun with, unless the run failed here: `status`. Fills
 * *error with what failed first, in any process. */
int training_join_run(processes *p, int status, const training_end *end, uint32_t n, uint32_t devices,
                      program_error *error);

/* Seconds of training, over several runs. */
typedef struct training_clock {
    double before;  /* in the runs that are over */
    double started; /* when the current run started */
} training_clock;

void training_start(training_clock *clock);
void training_pause(training_clock *clock);
/* Seconds of training, including the current run. */
double training_elapsed(const training_clock *clock);

/* Progress so far, 0 to 1, towards the steps or seconds of the settings; 0 where neither is set. */
double training_progress(const training_settings *settings, uint64_t step, double seconds);

/* Writes the settings that bits depend on, a line each, for identity.h. */
void training_describe(const training_settings *settings, FILE *lines);

/* Device `device` computes on host cores. */
int training_attach_cpu(frugal *f, uint32_t device, const frugal_cpu_desc *desc, program_error *error);

/* What a rank (ranks.h) tells the others of its training, in a run and at its end. */
typedef struct training_word {
    double seconds, stall; /* of this rank; the seconds of rank 0 count */
    uint64_t hits, misses;
    int signal, pauses; /* the signal that it has got; rank 0: the run is to pause */
} training_word;

/* With all statistics of its instances. */
training_word training_word_of(frugal *const *instances, uint32_t n, double seconds);
/* What all have said, `all` with `stride` bytes each: rank 0's seconds and pauses, and the signal of any. *others
 * becomes the statistics of the other ranks. */
training_word training_hear(const void *all, size_t stride, training_sums *others);

/* Memory for so many floats, aligned to a cache line; NULL: there is none. */
float *training_floats(uint64_t n);

/* Drains. It is an error, too, if the rows are not those before Frugal's step `step`: a drain succeeds even if a device
 * was lost before it had finished the previous step. */
int training_drain(frugal *f, uint64_t step, program_error *error);

/* Tells on stderr how many rows of a drained table have NaN or infinity, if any has. All ranks call it. */
void training_tell_rows(frugal *f);

/* Where the settings ask for a trace: records what threads of the instances do, and makes the files now, so that one
 * that cannot be written is known before the training. That of instance i > 0 is FILE.i. */
int training_trace_start(const training_settings *settings, frugal *const *instances, uint32_t n, program_error *error);
int training_trace_write(const training_settings *settings, frugal *const *instances, uint32_t n, program_error *error);

/* Is each of values[n] a number, and finite? */
int training_is_finite(const float *values, uint64_t n);

/* The first of keys[n], and those behind it that lie in the same table; n is not 0. Keys number the rows of all tables,
 * one table after the other, of rows[table] rows each; in the stretch they are changed into that table's own. */
frugal_keys training_stretch(const uint64_t *rows, uint64_t *keys, uint64_t n);
/* The rows of each table, of all machines together; to be freed. NULL with *error filled. All ranks call it. */
uint64_t *training_table_rows(frugal *f, program_error *error);

/* rows[n][dim] = rows first to first + n - 1 of a table. Between runs. */
typedef struct training_span {
    uint32_t table;
    uint64_t first, n;
} training_span;

/* All ranks call it, for the same rows, which rank 0 alone gets. */
int training_read_rows(frugal *f, const training_span *span, float *rows, program_error *error);

#endif
