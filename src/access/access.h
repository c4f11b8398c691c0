/* access.h - what callers do with rows between steps: read, write, count, list, save.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_ACCESS_H
#define FRUGAL_ACCESS_H

#include "../opening/opening.h"

/* access.c */

FRUGAL_INTERNAL uint64_t row_of(const frugal *f, const frugal_keys *keys, uint32_t i);
FRUGAL_INTERNAL frugal_status check_keys(const frugal *f, const frugal_keys *keys, const char *call);

/* counts.c */

FRUGAL_INTERNAL void keep_counts(frugal *f);
FRUGAL_INTERNAL frugal_status give_back_counts(frugal *f, int changed);

#endif
