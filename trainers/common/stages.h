/* The stages of a program that trains, whatever it trains: options, training with evaluations and checkpoints on the
 * way, saving, the last evaluation, the result. It also handles Ctrl-C, the line of progress, the JSON file and the
 * exit status.
 *
 *     typedef struct kge_program {
 *         stages stages;                                      first
 *         ...
 *     } kge_program;
 *     static const stages_parts kge_parts = {.name = "kge", .samples = "triples", .parse = kge_parse, ...};
 *
 *     int main(int argc, char **argv) {
 *         kge_program program = {0};
 *         return stages_run(&program.stages, &kge_parts, argc, argv);
 *     }
 *
 * Of several machines (ranks.h), all call these parts in the same order; rank 0 alone evaluates, and has the files.
 *
 * Exit status: 0: done, or ended by Ctrl-C and saved; 1: it failed, or the last checkpoint failed; 2: wrong usage.
 */
#ifndef STAGES_H
#define STAGES_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainers/common/best.h"
#include "trainers/common/checkpointing.h"
#include "trainers/common/progress.h"
#include "trainers/common/report.h"
#include "trainers/common/save.h"
#include "trainers/common/settings.h"

typedef struct stages stages;
enum { STAGES_KEPT = 9 };

/* What the program does at each stage. Functions that return an int can fail: 0, or -1 with *error
 * filled. */
typedef struct stages_parts {
    const char *name;    /* of the program */
    const char *samples; /* what its samples are called */
    const char *value;   /* what evaluations on the way find, the higher the better: "valid MRR" */
    /* Sets outputs, settings, kept and saved. */
    int (*parse)(stages *c, int argc, char **argv, program_error *error);
    void (*help)(void);
    /* Reads what is trained on, and refuses all that can be refused, before training begins; sets evaluates. */
    int (*prepare)(stages *c, program_error *error);
    /* What is found by trying: when all has been refused that can be refused, because it takes time. NULL: nothing. */
    int (*choose)(stages *c, program_error *error);
    /* Writes what the bits depend on, in the format of identity.h. */
    int (*describe)(stages *c, FILE *lines, program_error *error);
    /* Reads the state of a checkpoint, from which the next `open` goes on. *saved: the id of the save that the state
     * was written with. */
    int (*read_state)(stages *c, const char *path, uint64_t *saved, program_error *error);
    /* Makes the trainer from that state and the save `tables`; NULL: from the beginning. Reports go to stages_report.
     * If the error says that the checkpoint is damaged, read and open are called again with another checkpoint. */
    int (*open)(stages *c, const char *tables, program_error *error);
    const char *(*model)(const stages *c);
    /* The files of a checkpoint; `user` is the stages. The state is written behind the tables, with the id of their
     * save. */
    int (*write_tables)(void *user, const char *path, program_error *error);
    int (*write_state)(void *user, const char *path, program_error *error);
    /* Trains up to step `until`, the end or a signal; or up to a step soon after program_now() is `pause` (0: never),
     * so that a checkpoint can be made. */
    int (*train)(stages *c, uint64_t until, double pause, program_error *error);
    int (*is_done)(const stages *c); /* cannot fail */
    void (*report_rest)(stages *c);  /* reports what came after the last report */
    training_report (*total)(const stages *c);
    int (*check)(stages *c, program_error *error); /* is what was trained fit to be evaluated and saved? */
    /* Evaluates between two stretches of training, and prints the result; *value is for the curve. If a signal comes,
     * it may end early with *interrupted set. */
    int (*evaluate_on_the_way)(stages *c, double *value, int *interrupted, program_error *error);
    /* At the end, with --patience: what was trained becomes what it was when the save `tables` and the state that
     * read_state has read were written. */
    int (*go_back)(stages *c, const char *tables, program_error *error);
    int (*save)(stages *c, program_error *error); /* to `set`; without it gives the rank that has one what it reads */
    int (*evaluate)(stages *c, int *interrupted, program_error *error);
    void (*show_result)(stages *c, int evaluated);
    int (*close)(stages *c, program_error *error); /* whatever it returns, all is released */
} stages_parts;

struct stages {
    const stages_parts *parts;
    training_outputs outputs;
    const training_settings *settings;
    const char *kept[STAGES_KEPT]; /* files in use, which no result may overwrite; NULL: none */
    const char *const *files;      /* more of them, up to a NULL; NULL: none */
    const char *const *saved;      /* saved[n_saved], names of the files that are saved to outputs.save */
    int n_saved;
    save_set *set; /* of save_begin; NULL if nothing is saved */
    int evaluates; /* there is an evaluation at the end */
    int begins;    /* a checkpoint is made before the first step, because nothing else stores the beginning */
    checkpointing checkpoints;
    char *identity;        /* of describe, while checkpoints are made or read */
    double seconds_before; /* of training, in earlier runs */
    FILE *json;            /* NULL: none */
    char *json_made;       /* its path, if this run made the file, until the training begins */
    progress_line line;
    pthread_mutex_t stderr_lock;  /* protects the line, and what several training threads write around it */
    progress_curve curve;         /* of evaluations on the way */
    best_kept best;               /* with --patience: what the best of them evaluated, until stages_go_back */
    uint64_t back;                /* the step that stages_go_back went back to; 0: none */
    double started, eval_seconds; /* program_now() at the beginning; how long the last evaluation took */
};

/* The whole program; its exit status. *c of zeros. */
int stages_run(stages *c, const stages_parts *parts, int argc, char **argv);

/* For a trainer to report to, with the stages as `user`. */
void stages_report(void *user, const training_report *report);
/* Between reports: ends the line; no other thread writes to stderr until stages_end_words. */
void stages_begin_words(stages *c);
void stages_end_words(stages *c);
/* The step that rows and dense layers are of: the last, or with --patience that of the best evaluation. */
uint64_t stages_step(const stages *c);
/* What --patience did, for the result and its JSON; nothing without it. */
void stages_show_best(const stages *c);
void stages_json_best(const stages *c);
/* How an instance was set up, for progress_show_flushing. */
progress_setup stages_setup(const stages *c);

#endif
