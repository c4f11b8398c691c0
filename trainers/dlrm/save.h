/* Saving a model: rows.npy, the tables of all features in turn; linear.npy, the same for the linear part, if the model
 * has one; dense.npy, the parameters of the dense layers; and model.json, which says what lies where. And what reads a
 * log (load.h): options.txt, the options that the model and its rows depend on; schema.txt; vocabulary.npy, with --ids
 * vocabulary (clicks/keep.h). */
#ifndef DLRM_SAVE_H
#define DLRM_SAVE_H

#include "trainers/dlrm/options.h"
#include "trainers/common/save.h"

/* The names of a model's files, for save_begin: names[*n]. */
const char *const *dlrm_save_names(const dlrm_options *options, int *n);
/* Saves the model, as it was after step `step`, to a set with these names. Between runs. */
int dlrm_save(save_set *set, dlrm_trainer *trainer, const clicks *log, const dlrm_options *options, uint64_t step,
              program_error *error);

#endif
