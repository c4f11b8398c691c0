/* frugal_counts.h - counts of touches: how often a cached copy of each row would have served a hit. A trainer includes
 * it beside frugal.h to read or set the counts by which counted caches choose their rows.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 *      frugal_set_counts(f, &keys, degrees);           known before training: from the data, a graph, an earlier run
 *      frugal_rank_keys(f, 0, 50000, hot, NULL);
 *      frugal_preload(f, 0, &(frugal_keys){.table = 0, .keys = hot, .n = 50000});
 *
 * A sample of the data is enough: with counts from 25 sampled keys per cached row, a static cache has at least 80% of
 * the hits that counts from all of the data give it (measured by bench_cache).
 *
 * An instance begins to count when a device with a cache and FRUGAL_CACHE_COUNTED is attached, when a save with counts
 * is restored, or when frugal_set_counts is called (with no keys, to begin to count without setting any). From then on,
 * when all devices have announced a step, each of their rows counts once, if a copy of the row in that device's cache
 * would be current. So a row that several devices change in turn counts little, however often it is touched. One count
 * per row serves all devices. It takes one byte and is an estimate: a count of n touches has a standard deviation of
 * about n / 4. If you set a count from 0 to 3, it is kept exactly; a larger one is kept to within 8%, or 1; one above
 * 298 million becomes 298 million.
 *
 * Counts become smaller with time, also those that are set: each step halves the counts of some rows, the next ones in
 * order, so that each count is halved once in 2 * rows / max_keys steps, but at most once in 64 steps. So a cache
 * learns which rows become hot, and evicts those that were.
 *
 * When all ways of a set of a counted cache are full, the rows with the highest counts stay. A row enters only if its
 * count is more than a third higher than that of a row that is there; the count of a row that another device touches
 * again and again weighs only a sixteenth. Copies that other devices have made outdated are evicted first.
 *
 * Counts decide which rows caches keep, and nothing else: the table has the same bits whatever they are. The same steps
 * give the same counts. The calls below, frugal_save and frugal_cancel first wait, and help, until all steps that all
 * devices have announced are counted. Steps that are then cancelled stay counted.
 */
#ifndef FRUGAL_COUNTS_H
#define FRUGAL_COUNTS_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* counts[n]: touches that keys->keys[i] has counted, those of long ago for less. Any thread. Zeros if nothing is
 * counted. Errors: ARGUMENT, KEY, TABLE; of a device that counts (frugal_cuda.h), its own, and LOST. */
FRUGAL_API frugal_status frugal_get_counts(frugal *f, const frugal_keys *keys, uint64_t *counts);
/* Sets them. A key that occurs several times gets its last count. Needs a drained instance between steps; no other call
 * may be under way. Steps that are announced keep what they have found.
 * Errors: ARGUMENT, KEY, TABLE, MEMORY, BUSY; a device's own, and LOST: all counts are set then, but a cache may still
 * go by the old ones; of a device that counts, they may be as they were. */
FRUGAL_API frugal_status frugal_set_counts(frugal *f, const frugal_keys *keys, const uint64_t *counts);
/* keys[n]: the keys of `table` that have counted most, in falling order; those with equal counts in rising order.
 * counts[n] (may be NULL) receives their counts, by which several tables can be merged. No announcement may be under
 * way. The cost grows with rows. Errors: ARGUMENT (more keys than rows), TABLE; as frugal_get_counts. */
FRUGAL_API frugal_status frugal_rank_keys(frugal *f, uint32_t table, uint32_t n, uint64_t *keys, uint64_t *counts);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_COUNTS_H */
