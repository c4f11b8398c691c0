/* What crosses the network if the devices are on several machines: of the rows that a device reads in a step, each
 * once, the share whose home is another machine.
 *
 * Predicted by the closed form of frugal_place.h: device i reads a row in 1 - exp(-lambda_i) of the steps. Each such
 * row costs its key, its weights and its record of gradients (docs/machines.md).
 */
#ifndef PLACE_AWAY_H
#define PLACE_AWAY_H

#include "trainers/common/homes.h"

typedef struct place_away {
    double in_turn; /* share, if row x is at home on machine x mod machines */
    double placed;  /* share, if it is where `homes` says */
} place_away;

/* 0, or -1 with *error filled: a signal. */
int place_away_take(place_away *away, const homes_desc *desc, const uint8_t *homes, program_error *error);

#endif
