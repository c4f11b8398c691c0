/* drain.c - stop, drain, cancel. */
#include "host.h"

static int frugal_priv_is_drained(frugal *f) {
    if (frugal_priv_is_owing(f)) return 0; /* before the progress, which then holds its commit */
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    return now.closed == now.committed && now.pending == 0;
}

static int frugal_priv_is_idle(frugal *f) { /* drained, and nothing announced */
    return frugal_priv_is_drained(f) && frugal_p2f_get_progress(f->p2f).announced <= frugal_p2f_closed(f->p2f);
}

void frugal_stop(frugal *f) {
    if (!f) return;
    frugal_add_release(&f->stopped, 1); /* [F4] pairs with [F3]: why it was stopped; with [F7]: before gates are forced */
    frugal_priv_force_gates(f);
    frugal_priv_event_notify(f->event);
}

static int frugal_priv_drain_ready(frugal *f, const frugal_priv_wait *wait) {
    (void)wait;
    return frugal_priv_is_drained(f);
}

static void frugal_priv_drain_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    (void)wait;
    for (uint32_t d = 0; frugal_priv_is_owing(f) && d < f->desc.devices; d++)
        if (frugal_p2f_committed(f->p2f, d) <= now.committed &&
            frugal_load_relaxed(&f->devices[d].updated) > now.committed) { /* relaxed: a message */
            snprintf(text, size, "step %llu is not committed: device %u has not finished it",
                     (unsigned long long)now.committed, d);
            return;
        }
    snprintf(text, size, "%llu of %llu committed steps are closed, %lld rows are not flushed",
             (unsigned long long)now.closed, (unsigned long long)now.committed, (long long)now.pending);
}

frugal_status frugal_drain(frugal *f) {
    frugal_status status = frugal_priv_check_open(f, "drain");
    if (status != FRUGAL_OK) return status;
    frugal_priv_wait drained = {frugal_priv_drain_ready, frugal_priv_drain_explain, 0, frugal_p2f_all_committed(f->p2f),
                                "drain", 0};
    return frugal_priv_wait_for(f, &drained);
}

/* No piece of a plan is in other hands: with no announcement under way it stays so. */
static int frugal_priv_cancel_ready(frugal *f, const frugal_priv_wait *wait) {
    (void)wait;
    return frugal_p2f_is_planned(f->p2f);
}

static void frugal_priv_cancel_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    (void)f, (void)wait;
    snprintf(text, size, "a thread that is planning does not return");
}

frugal_status frugal_cancel(frugal *f, uint64_t step) {
    frugal_status status = frugal_priv_check_open(f, "cancel");
    if (status != FRUGAL_OK) return status;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t looked_up = frugal_load_relaxed(&f->devices[d].looked_up); /* relaxed: no lookup is under way */
        if (looked_up > step) return frugal_priv_order("cancel", d, step, "be looked up", looked_up);
    }
    /* Emptying the queue first keeps its number of pages within bounds however often steps are taken back. */
    if ((status = frugal_drain(f)) != FRUGAL_OK) return status;
    while (frugal_priv_flush_page(f, UINT64_MAX, 0)) {
    }
    frugal_priv_wait cancelled = {frugal_priv_cancel_ready, frugal_priv_cancel_explain, 0, step, "cancel", 0};
    if ((status = frugal_priv_wait_for(f, &cancelled)) != FRUGAL_OK) return status;
    status = frugal_p2f_cancel(f->p2f, step);
    if (status != FRUGAL_OK)
        return frugal_fail(status, "cancel from step %llu: steps %llu to %llu are announced", (unsigned long long)step,
                           (unsigned long long)frugal_p2f_get_progress(f->p2f).closed,
                           (unsigned long long)frugal_p2f_get_progress(f->p2f).announced);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        frugal_priv_dev *dev = &f->devices[d];
        if (frugal_load_relaxed(&dev->told) > step) frugal_store_relaxed(&dev->told, step); /* relaxed, both: likewise */
        if (dev->attached && dev->ops.cancelled) dev->ops.cancelled(dev->state);
    }
    if (!frugal_load_relaxed(&f->stopped) && !frugal_load_relaxed(&f->lost) && frugal_load_relaxed(f->gates) > step)
        frugal_store_relaxed(f->gates, step); /* relaxed, all: between steps, nobody waits for a gate */
    return FRUGAL_OK;
}
