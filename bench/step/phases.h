/* phases.h - announcing and planning by their phases: the library, with two functions more. */
#ifndef FRUGAL_BENCH_STEP_PHASES_H
#define FRUGAL_BENCH_STEP_PHASES_H

#include "frugal.h"

typedef enum announce_phase {
    PHASE_READ,  /* keys are checked, and become rows */
    PHASE_SORT,  /* by row */
    PHASE_LIST,  /* distinct rows, and which positions are theirs */
    PHASE_GIVE,  /* the rows are copied to the state machine */
    PHASE_PLAN,  /* the rows of all devices are merged, and their words changed */
    PHASE_WORTH, /* touches are counted */
    PHASES
} announce_phase;

/* As frugal_try_announce of keys[n] of table 0, at a step that is legal, by a device that the host does not tell of
 * batches. Adds the processor time of each phase. */
frugal_status phases_announce(frugal *f, uint32_t d, uint64_t step, const uint64_t *keys, uint32_t n,
                              double seconds[PHASES]);
/* Plans what all devices have announced. */
void phases_plan(frugal *f, double seconds[PHASES]);
/* All steps below it are planned. */
uint64_t phases_planned(frugal *f);

#endif
