/* A model that was saved (save.h), to predict with: its tables stay in their files, which are mapped. */
#ifndef DLRM_LOAD_H
#define DLRM_LOAD_H

#include "trainers/clicks/clicks.h"
#include "trainers/dlrm/model.h"
#include "trainers/dlrm/score.h"

typedef struct dlrm_loaded dlrm_loaded;

/* Reads the set in the folder, and all its checksums; `path` is the log that will be predicted, whose samples are read
 * as those of the training were, but need no labels. It is read to find out whether it has some. On failure *out is
 * NULL. */
int dlrm_load(dlrm_loaded **out, const char *folder, const char *path, program_error *error);
void dlrm_loaded_close(dlrm_loaded *loaded);
/* Model, parameters, tables and log of a score; the other fields are 0. */
dlrm_score_desc dlrm_loaded_scores(dlrm_loaded *loaded);

#endif
