/* ahead.h - caches whose eviction knows the announced steps, simulated.
 *
 * They are those of the library's host devices (cpu.c): sets of 8 places, the same hash, the rows of a step in
 * rising order. A copy is current by the holder rule (future.h), and the place of one that is outdated is given away
 * first. What a row is worth to a device is its gain (frugal_place_rank), which knows the whole trace; the caches begin
 * with the rows of most gain. The rules differ in which copy a row replaces if all copies of its set are current.
 *
 * A device has always announced exactly L steps beyond the one that it looks up. In the library, loaders announce at
 * their own speed, up to L steps; so this is the most that a rule can know there.
 */
#ifndef FRUGAL_BENCH_PLACE_AHEAD_H
#define FRUGAL_BENCH_PLACE_AHEAD_H

#include "bench/place/future.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum place_rule {
    PLACE_WORTH,   /* a row replaces the copy worth least, if it is worth more */
    PLACE_PROTECT, /* ... of those copies whose rows the device has not announced for a later step */
    PLACE_ADMIT,   /* and a row that it has announced for a later step need not be worth more */
    PLACE_CURRENT, /* as ADMIT, if the copy will be current when its row is touched next: all announcements tell */
    PLACE_BELADY,  /* knows all steps: the most hits that any rule can have in the counted ones */
    PLACE_RULES
} place_rule;
extern const char *const place_rules[PLACE_RULES + 1]; /* their names, up to a NULL */

typedef struct place_ahead {
    place_reads reads; /* means of the counted steps, of all devices together */
    double window;     /* rows that a device touches in a step and the L after it */
} place_ahead;

/* What caches of `cache_rows` rows read. `lookahead`: L, at most that of the future; the reads of WORTH and BELADY do
 * not depend on it. Ends the program if there is no memory; after Ctrl-C the means are of fewer steps. */
place_ahead place_simulate(const place_future *future, uint64_t cache_rows, place_rule rule, uint32_t lookahead);

#ifdef __cplusplus
}
#endif
#endif
