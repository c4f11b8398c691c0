/* frugal_secondaries.h - secondaries: copies that a device may read although they lack updates of other devices. A
 * trainer that wants them includes it beside frugal.h. Without secondaries, training is exact.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * A device lists rows of a table. It keeps a copy of each of them beside its cache, never evicts the copy, and may read
 * it although the copy lacks up to `bound` contributions of other devices. A contribution is a batch of a device, at
 * one step, that has the row and is not read-only. Bound 0: only copies that lack nothing are read, so all bits are
 * exact. UINT32_MAX: no bound. Every other read is exact, and every gradient is applied to the host row, in order. With
 * a bound above 0 training is not exact any more, because gradients are computed from such copies; but the bits depend
 * only on data, settings, lists and bounds (clocks.c). Source: HET-GMP's secondaries and its bound within an embedding
 * (Miao et al., SIGMOD '22, section 5.3). What it costs in quality: docs/papers/het-gmp.md.
 */
#ifndef FRUGAL_SECONDARIES_H
#define FRUGAL_SECONDARIES_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces the list of `device` for the table of `keys`; n = 0 removes it. Keys may come in any order, and repeatedly.
 * A copy is made when its row is first looked up. Each call drops all such copies of all devices, and empties the cache
 * of this device: preload afterwards. A run that is resumed begins without copies; to have its bits, the run that goes
 * on calls this at the step of the save. Writing a row, and frugal_release_holders, drop copies; frugal_preload passes
 * listed rows over. Memory: clocks.c, and a row with its state for each copy. Each call goes through all lists of all
 * devices, so its time grows with them. Drained, nothing announced (BUSY); no other call may be under way. An error
 * changes nothing. Errors: DEVICE (none, not attached, or of a kind that keeps no such copies), ARGUMENT, KEY, TABLE,
 * BUSY, MEMORY; a device's own. */
FRUGAL_API frugal_status frugal_secondaries(frugal *f, uint32_t device, const frugal_keys *keys, uint32_t bound);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_SECONDARIES_H */
