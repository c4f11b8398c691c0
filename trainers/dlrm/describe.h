/* What the bits of a training depend on, a line each (common/identity.h), for its checkpoints. */
#ifndef DLRM_DESCRIBE_H
#define DLRM_DESCRIBE_H

#include "trainers/dlrm/options.h"

/* The lines of the model alone. */
void dlrm_describe_model(const dlrm_model *model, FILE *lines);
/* Once the log is prepared. `samples`: the number of training samples; UINT64_MAX: not counted. A log in a file is
 * identified by its length, its beginning and its end; one in a pipe cannot be looked at. The caller checks for errors
 * of writing. 0, or -1 with *error filled if the log cannot be read. */
int dlrm_describe(const dlrm_options *options, const clicks *log, uint64_t samples, FILE *lines, program_error *error);

/* -1: `what` ("its loss is") no finite number, which lets nothing be saved; and what becomes of a table's file. */
int dlrm_fail_diverged(const dlrm_settings *settings, const char *what, program_error *error);

#endif
