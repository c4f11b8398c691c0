/* Pilots: short trainings that say how many passes a small log gets.
 *
 * A model of many rows learns a small log by heart, and how soon depends on the log: with ids that come once or twice,
 * the second pass can be one too many. So the last fifth of the training samples is held out from trainings with 1, 2,
 * 4, ... passes, up to `most`, and the number whose log loss there is smallest is that of the training. The samples
 * that are tested on have no part in this.
 */
#ifndef DLRM_PILOT_H
#define DLRM_PILOT_H

#include "trainers/dlrm/train.h"

/* Sets settings->epochs, with `threads` that evaluate. The samples' number is known; there are no tables in files. All
 * machines call it alike. The result does not depend on how many processes, machines or GPUs there are. */
int dlrm_pilots_run(dlrm_settings *settings, const dlrm_source *source, uint64_t most, uint32_t threads,
                    program_error *error);

#endif
