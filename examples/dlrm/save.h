/* Saving a model: rows.npy, the tables of all features in turn; linear.npy, likewise, where the model has a linear
 * part; dense.npy, the parameters of the dense layers; and model.json, which says what lies where. */
#ifndef DLRM_SAVE_H
#define DLRM_SAVE_H

#include "examples/dlrm/train.h"

/* Makes the folder where there is none, and makes sure that files can be written into it. */
int dlrm_save_prepare(const char *folder, program_error *error);
/* Between runs. Old files stay until all new ones are whole. */
int dlrm_save(const char *folder, dlrm_trainer *trainer, const clicks *log, program_error *error);

#endif
