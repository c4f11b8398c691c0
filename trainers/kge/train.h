/* Training on Frugal: sampling batches, the three calls a step, agreeing on where to stop.
 *
 * One thread a logical device does everything for it: sample and announce step t + lookahead, look step t up,
 * compute, update. What it samples depends on (seed, device, step) alone, so a command gives the same bits
 * whatever the workers, the lookahead, the cache, the mode and the timing.
 *
 * The devices may be divided among processes (common/processes.h), which kge_trainer_open forks; the functions below
 * are called in the first of them.
 *
 * A device on a GPU has such a thread too. It enqueues its steps, up to two of them at a time, and never waits for a
 * result: the stream waits at the gates, and losses are read when they have come.
 */
#ifndef KGE_TRAIN_H
#define KGE_TRAIN_H

#include <stdatomic.h>

#include "trainers/common/report.h"
#include "trainers/common/secondaries.h"
#include "trainers/common/settings.h"
#include "trainers/common/training.h"
#include "trainers/kge/candidates.h"
#include "trainers/kge/load.h"
#include "trainers/kge/state.h"

typedef struct kge_settings {
    kge_model model;
    training_settings common;  /* batch is a multiple of chunk. Without steps and seconds nothing is trained */
    uint32_t chunk, negatives; /* of a device and step */
    int corrected;             /* softmax: negatives stand for all other entities (model.stands_for, set by open) */
    const placing *placing;    /* how triples are dealt; must outlive the trainer. NULL, without parts: at random */
    const secondaries *secondaries; /* rows with secondaries; read during open. NULL: none */
    /* Where to resume: a state, and the save of the tables of the same step. Read during open. NULL: from the
     * beginning. */
    const kge_state *resumed;
    const char *saved;
    const char *table_file; /* frugal_desc.file; NULL: in memory */
} kge_settings;

typedef struct kge_trainer kge_trainer;

#define KGE_LEARNED 0.98 /* a loss below this fraction of that of guessing shows that something is learned */

/* `graph` must outlive the trainer. With several processes there must be no other thread. On failure *out is NULL. */
int kge_trainer_open(kge_trainer **out, const kge_settings *settings, const kge_graph *graph, program_error *error);
void kge_trainer_close(kge_trainer *trainer);
/* To call before that: an error says that --table-file did not get to the disk. NULL is accepted. */
int kge_trainer_close_table(kge_trainer *trainer, program_error *error);
/* `function` is called on one of the training threads every `report_seconds`. */
void kge_trainer_report_to(kge_trainer *trainer, training_report_function *function, void *user, double report_seconds);

/* Runs pause soon after program_now() is `seconds`; the next run continues; 0: never. */
void kge_trainer_pause_at(kge_trainer *trainer, double seconds);
/* Trains up to step `until`, or to the end; or until *stop becomes nonzero; all devices stop after the same step.
 * Returns with all updates flushed. May be called again to go on. */
int kge_trainer_run(kge_trainer *trainer, uint64_t until, atomic_int *stop, program_error *error);
/* Whether steps, seconds or a stop have ended the training: kge_trainer_run would do nothing. */
int kge_trainer_done(const kge_trainer *trainer);
/* Reports what came after the last report, if anything did. Between runs. */
void kge_trainer_report(kge_trainer *trainer);
/* The whole run so far. */
training_report kge_trainer_total(const kge_trainer *trainer);
/* Tells on stderr how many rows have NaN or infinity. Between runs. */
void kge_trainer_tell_rows(kge_trainer *trainer);
void kge_trainer_stats(const kge_trainer *trainer, frugal_stats *stats);

/* Writes the tables, by frugal_save, to a file that is not there. Between runs. */
int kge_trainer_save(kge_trainer *trainer, const char *path, program_error *error);
/* Writes what the training would resume from, together with those tables. Between runs. */
int kge_trainer_write_state(const kge_trainer *trainer, const char *path, program_error *error);

/* The tables become those of the save `tables`, and the training is done. Between runs. */
int kge_trainer_go_back(kge_trainer *trainer, const char *tables, program_error *error);

/* Rows of table 0 (entities) or 1 (relations), rows[span->n][dim]. Between runs; all ranks. */
int kge_trainer_read(kge_trainer *trainer, const training_span *span, float *rows, program_error *error);
/* The same, row by row, for rankings. */
kge_reader kge_trainer_reader(kge_trainer *trainer);
/* Writes rows, which keep the optimizer's state of new ones. Before the first run. */
kge_writer kge_trainer_writer(kge_trainer *trainer);
uint64_t kge_trainer_rows(const kge_trainer *trainer, uint32_t table);
/* What guessing gets on the training triples (kge_guess_loss). */
double kge_trainer_guess_loss(const kge_trainer *trainer);

#endif
