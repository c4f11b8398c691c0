/* phases.h - announcing by its phases: the library, with a function more. */
#ifndef FRUGAL_BENCH_STEP_PHASES_H
#define FRUGAL_BENCH_STEP_PHASES_H

#include "frugal.h"

typedef enum announce_phase {
    PHASE_READ,  /* keys are checked, and become rows */
    PHASE_SORT,  /* by row */
    PHASE_DEDUP, /* distinct rows, and which positions are theirs */
    PHASE_LOST,  /* whose copies became outdated; only with several devices that count touches */
    PHASE_WORDS, /* the words of the rows are changed, and the rows are copied for the plan */
    PHASE_WORTH, /* touches are counted */
    PHASES
} announce_phase;

/* As frugal_try_announce of keys[n] of table 0, at a step that is legal, by a device that the host does not tell of
 * batches. Adds the processor time of each phase. */
frugal_status phases_announce(frugal *f, uint32_t d, uint64_t step, const uint64_t *keys, uint32_t n,
                              double seconds[PHASES]);

#endif
