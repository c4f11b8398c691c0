/* The training triples as samples for common/placing.h and common/secondaries.h: which rows each of them touches. */
#ifndef KGE_PLACE_H
#define KGE_PLACE_H

#include "trainers/kge/train.h"

typedef struct kge_placed { /* to be filled; both of zeros */
    placing *placing;
    secondaries *secondaries;
} kge_placed;

/* With --place, finds or reads the device of each training triple; without, *placing stays without parts. With
 * --secondaries, chooses the rows. 0, or -1 with *error filled; placing_close and secondaries_close in both cases. */
int kge_place(const kge_placed *placed, const kge_settings *settings, const kge_graph *graph, uint32_t threads,
              program_error *error);

#endif
