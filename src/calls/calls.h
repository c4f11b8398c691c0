/* calls.h - a step: announce, lookup, update; stop, drain, cancel.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_CALLS_H
#define FRUGAL_CALLS_H

#include "../waits/waits.h"

/* step.c */

/* `fill` writes pairs[n], row << 32 | position, sorted; 0: it cannot. */
typedef struct sorted_batch {
    uint32_t n;
    int read_only;
    int (*fill)(const frugal *f, const void *from, uint64_t *pairs, uint32_t n);
    const void *from;
} sorted_batch;

FRUGAL_INTERNAL frugal_status announce_sorted(frugal *f, uint32_t d, uint64_t step, const sorted_batch *batch);
FRUGAL_INTERNAL frugal_status lookup_step(frugal *f, uint32_t d, uint64_t step, const frugal_row_array *to);
FRUGAL_INTERNAL frugal_status check_pooling(const char *call, const frugal_bags *bags, const void *pooled);
FRUGAL_INTERNAL frugal_status update_step(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients);

FRUGAL_INTERNAL uint64_t next_handed(const frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status announce_here(frugal *f, const announcement *a);
FRUGAL_INTERNAL frugal_status await_block(frugal *f, uint32_t d, uint64_t step, const char *call);
FRUGAL_INTERNAL void commit_here(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *brought);

/* drain.c */

FRUGAL_INTERNAL void stop_here(frugal *f);
FRUGAL_INTERNAL int is_idle(frugal *f);
FRUGAL_INTERNAL void drain_explain(frugal *f, const condition *what, char *text, size_t size);
FRUGAL_INTERNAL frugal_status fail_busy(frugal *f, const char *call, int idle);
FRUGAL_INTERNAL frugal_status write_back(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n, const char *call);
FRUGAL_INTERNAL void tell_undrained(frugal *f);
FRUGAL_INTERNAL void tell_idle_steps(frugal *f);
FRUGAL_INTERNAL void settle_counts(frugal *f);
FRUGAL_INTERNAL void hold_announcing_now(frugal *f);

#endif
