/* future.h - what devices touch, step by step, and when each copy brings its next hit.
 *
 * A copy is current by the holder rule (frugal_p2f.h, section 7).
 */
#ifndef FRUGAL_BENCH_PLACE_FUTURE_H
#define FRUGAL_BENCH_PLACE_FUTURE_H

#include "bench/place/reads.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct place_touch {
    uint32_t row, again; /* the device's next touch of the row, if a copy is current then; or PLACE_NEVER */
    uint8_t alone;       /* no other device touches the row in this step */
} place_touch;
#define PLACE_NEVER UINT32_MAX

/* What all devices touch, and what comes of it. */
typedef struct place_future {
    place_run run;
    uint64_t end;         /* steps: those of the run, and those that are announced in its last one */
    uint64_t *first;      /* first[end * devices + 1]: where the touches of each step and device begin */
    place_touch *touches; /* by step, device, row */
    uint32_t *again;      /* again[devices][rows]: of copies that are there from the beginning */
    uint64_t *worth;      /* worth[devices][rows]: their order by gain, the more the better; 0: none */
} place_future;

/* Lists the touches of a run, whose cache_rows and policy are not read, and of `lookahead` more steps. The partition's
 * rows are ranked; at most 64 devices, and 2^32 - 2 steps. Ends the program if there is no memory; after
 * Ctrl-C later steps have no touches. */
void place_open_future(place_future *future, const place_run *run, uint32_t lookahead);
void place_close_future(place_future *future);

/* Zeros, n of `size` bytes and one more; free() frees them. Ends the program if there is no memory. */
void *place_allocate(uint64_t n, size_t size);

#ifdef __cplusplus
}
#endif
#endif
