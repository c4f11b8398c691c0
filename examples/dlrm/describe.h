/* What the bits of a training depend on, a line each (common/identity.h), for its checkpoints. */
#ifndef DLRM_DESCRIBE_H
#define DLRM_DESCRIBE_H

#include "examples/dlrm/options.h"

/* Once the log is prepared. `samples` train; UINT64_MAX: they are not counted. A log in a file is known by its length,
 * its begin and its end; one in a pipe cannot be looked at. Errors of writing are the caller's to look for; 0, or -1
 * with *error filled where the log cannot be read. */
int dlrm_describe(const dlrm_options *options, const clicks *log, uint64_t samples, FILE *lines, program_error *error);

#endif
