/* The training triples as samples for common/placing.h: which rows each of them touches. */
#ifndef KGE_PLACE_H
#define KGE_PLACE_H

#include "examples/kge/train.h"

/* With --place, finds or reads the device of each training triple. Without, *placing stays without parts. 0, or -1 with
 * *error filled; placing_close in both cases. */
int kge_place(placing *placing, const kge_settings *settings, const kge_graph *graph, uint32_t threads,
              program_error *error);

#endif
