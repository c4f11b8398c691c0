/* Rows in order of frequency: the map from new rows to old ones, and back. */
#ifndef REORDER_ORDER_H
#define REORDER_ORDER_H

#include <stdint.h>

#include "trainers/common/program.h"

typedef struct reorder_order {
    uint32_t n;
    uint32_t *old_row; /* old_row[n], of each new row */
    uint32_t *new_row; /* new_row[n], of each old row */
} reorder_order;

/* Most touches first; rows of the same number in their old order. Takes 16 bytes a row while it sorts, and 8 from then
 * on. On failure there is nothing to free. */
int reorder_order_make(reorder_order *order, const uint32_t *counts, uint32_t n, program_error *error);
void reorder_order_free(reorder_order *order);

/* One more touch; it stays at 2^32 - 1. */
static inline void reorder_count(uint32_t *count) {
    *count += *count < UINT32_MAX;
}

#endif
