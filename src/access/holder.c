/* holder.c - between steps: which cached copies are current, by the holder rule.
 *
 * The rule is in section 7 of frugal_p2f.h. That header applies it, once, when a step is planned
 * (frugal_priv_plan_row, frugal_priv_copy_is_current). The answer is a bit for each unique row, frugal_step.valid;
 * devices read it by frugal_copy_is_current (cpu.c, cuda/lookup.cuh). Between steps, a device that verifies its cache
 * asks here. For rows that frugal_secondaries lists for a device the clocks decide instead (clocks.c).
 */
#include "access.h"

int frugal_is_current(frugal *f, uint32_t d, uint32_t row) {
    uint64_t lacks = NO_CLOCK;
    if (!f || !f->opened || d >= f->desc.devices || row >= f->store.rows) return 0;
    int idle = is_idle(f); /* else a thread may be changing the clocks */
    if (is_secondary(f, d, row, idle ? &lacks : NULL)) return lacks == 0;
    return frugal_p2f_is_current(f->p2f, d, row);
}

frugal_status frugal_release_holders(frugal *f) {
    frugal_status status = check_owner(f, "release_holders");
    if (status != FRUGAL_OK) return status;
    if (!is_idle(f)) return fail_busy(f, "release_holders", 1);
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (is_attached(f, d)) f->devices[d].ops.empty(f->devices[d].state);
    frugal_p2f_release_holders(f->p2f);
    drop_secondaries(f);
    return FRUGAL_OK;
}
