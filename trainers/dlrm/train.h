/* Training on Frugal: a loader that reads ahead, a thread a device, dense layers in step.
 *
 * The features' rows of `dim` floats are one instance of Frugal, a table a feature; where the model has a linear part,
 * its rows of one float are another. Both are flushed by the same workers. The loader is a thread of its own: it reads
 * the log, cuts each step's samples into a slice a device, and announces them up to `lookahead` steps ahead, so that
 * devices need not wait for reading, sorting and planning. Dense layers are the same for all devices: their gradients
 * are summed in the order of the devices, a range of them by each device, which also updates it.
 *
 * The devices may be divided among processes (common/processes.h), which dlrm_trainer_open forks; the functions below
 * are called in the first of them.
 *
 * A step's samples follow from the log and the seed alone, so a command gives the same bits whatever the workers, the
 * lookahead, the caches, the mode and the timing.
 */
#ifndef DLRM_TRAIN_H
#define DLRM_TRAIN_H

#include <stdatomic.h>

#include "trainers/common/report.h"
#include "trainers/common/secondaries.h"
#include "trainers/common/settings.h"
#include "trainers/dlrm/model.h"
#include "trainers/dlrm/pass.h"
#include "trainers/dlrm/seen.h"
#include "trainers/dlrm/state.h"

typedef struct dlrm_settings {
    dlrm_model model;         /* numbers and features are the log's */
    training_settings common; /* with decay, the number of samples or steps must be known */
    frugal_optimizer_kind dense_optimizer;
    float dense_lr;
    float accumulator; /* first value of Adagrad's sums of squares, of rows and dense layers */
    uint64_t epochs;   /* passes over the samples */
    uint32_t shuffle;  /* samples that change places at a time (clicks/shuffle.h); 0: the order of the log */
    /* How samples are dealt to devices (deal.h); must outlive the trainer. NULL, without parts: a step's samples follow
     * each other in the log, and each device gets a slice of them. */
    const placing *placing;
    const secondaries *secondaries; /* rows with secondaries, in both instances; read during open. NULL: none */
    dlrm_seen *seen;                /* training samples are marked there; must outlive the trainer; NULL: nowhere */
    const char *table_file; /* the tables' file; the linear part's tables lie in one beside it; NULL: in memory */
    int table_file_sparse;  /* frugal_desc.sparse */
    int table_file_torn;    /* frugal_desc.take_torn */
    /* Where to resume: a state, and the save of the tables of the same step (NULL: `table_file` has them). Read during
     * open. NULL: from the beginning. */
    const dlrm_state *resumed;
    const char *saved;
} dlrm_settings;

typedef struct dlrm_trainer dlrm_trainer;

/* With several processes there must be no other thread. On failure *out is NULL. */
int dlrm_trainer_open(dlrm_trainer **out, const dlrm_settings *settings, const dlrm_source *source,
                      program_error *error);
void dlrm_trainer_close(dlrm_trainer *trainer);
/* To call before that if the tables lie in files: an error says that a file did not get to the disk. NULL is accepted.
 */
int dlrm_trainer_close_tables(dlrm_trainer *trainer, program_error *error);
/* `function` is called on a training thread every `report_seconds`. */
void dlrm_trainer_report_to(dlrm_trainer *trainer, training_report_function *function, void *user,
                            double report_seconds);

/* Runs pause soon after program_now() is `seconds`; the next run continues; 0: never. */
void dlrm_trainer_pause_at(dlrm_trainer *trainer, double seconds);
/* Trains up to step `until`, or to the end; or until *stop becomes nonzero; all devices stop after the same step.
 * Returns with all updates flushed. May be called again to go on. */
int dlrm_trainer_run(dlrm_trainer *trainer, uint64_t until, atomic_int *stop, program_error *error);
/* Whether the samples' end, steps, seconds or a stop have ended the training: dlrm_trainer_run would do nothing. */
int dlrm_trainer_done(const dlrm_trainer *trainer);
/* Reports what came after the last report, if anything did. Between runs. */
void dlrm_trainer_report(dlrm_trainer *trainer);
/* The whole run so far. */
training_report dlrm_trainer_total(const dlrm_trainer *trainer);
/* Seconds that the loader has spent in reading samples. */
double dlrm_trainer_read_seconds(const dlrm_trainer *trainer);

/* The instances: 0 the rows, 1 those of the linear part or NULL. Between runs, drained. */
frugal *dlrm_trainer_tables(dlrm_trainer *trainer, uint32_t instance);
/* The parameters of the dense layers, laid out as dlrm_layout says. Between runs. */
const float *dlrm_trainer_parameters(const dlrm_trainer *trainer);
/* Writes all tables, by frugal_save, to a file that is not there. Between runs. */
int dlrm_trainer_save(dlrm_trainer *trainer, const char *path, program_error *error);
/* Rows and dense layers become those of the save `tables` and of the state that was written with it, and the training
 * is done. Between runs. */
int dlrm_trainer_go_back(dlrm_trainer *trainer, const char *tables, const dlrm_state *state, program_error *error);
/* What the training would resume from. Between runs. Its arrays belong to the trainer. */
dlrm_state dlrm_trainer_state(const dlrm_trainer *trainer);
const dlrm_settings *dlrm_trainer_settings(const dlrm_trainer *trainer);
const dlrm_model *dlrm_trainer_model(const dlrm_trainer *trainer);

#endif
