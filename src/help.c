/* help.c - one piece of whatever is most urgent: what a worker does again and again, and whoever waits. */
#include "host.h"

/* Adds the time since *since to a clock of the statistics, and starts anew. */
static void frugal_priv_tick(FRUGAL_ATOMIC(uint64_t) * clock, double *since) {
    double now = frugal_priv_now();
    frugal_priv_tally(clock, (uint64_t)((now - *since) * 1e9));
    *since = now;
}

/* One piece of whatever is most urgent, in three parts, so that workers of several instances do what is urgent in all
 * of them first. Its time counts from *since: the end of the piece before, so that a piece costs one look at the clock.
 * Plans come after what a gate waits for. */
static int frugal_priv_help_plan(frugal *f, double *since) {
    int planned = frugal_p2f_plan(f->p2f);
    if (planned == 2) frugal_priv_event_notify(f->event); /* closing may have waited for the plan */
    if (planned) frugal_priv_tick(&f->plan_ns, since);
    return planned > 0;
}

/* What a gate waits for: closing the step before, which may wait for its plan; then rows. */
static int frugal_priv_help_gate(frugal *f, double *since) {
    frugal_priv_poll(f);
    frugal_priv_open_gates(f);
    if (frugal_priv_close(f)) {
        frugal_priv_tick(&f->close_ns, since);
        frugal_priv_event_notify(f->event); /* the step is closed, or at least: there are rows to flush */
        return 1;
    }
    uint64_t now = frugal_p2f_closed(f->p2f);
    /* Committed and not closed: the plan may be what is missing, and no row is urgent before the step is closed. */
    if (frugal_p2f_all_committed(f->p2f) > now && frugal_priv_help_plan(f, since)) return 1;
    if (!frugal_priv_flush_page(f, now, now)) return 0;
    frugal_priv_tick(&f->flush_ns, since);
    return 1;
}

/* Then the rest of the queue, in the order in which it is due. */
static int frugal_priv_help_queue(frugal *f, double *since) {
    if (!frugal_priv_flush_page(f, UINT64_MAX, frugal_p2f_closed(f->p2f))) return 0;
    frugal_priv_tick(&f->flush_ns, since);
    return 1;
}

static int frugal_priv_help(frugal *f, double *since) {
    return frugal_priv_help_gate(f, since) || frugal_priv_help_plan(f, since) || frugal_priv_help_queue(f, since);
}

int frugal_help(frugal *f) {
    if (!f || !f->opened || frugal_load_relaxed(&f->stopped)) return 0; /* relaxed: says nothing */
    double since = frugal_priv_now();
    return frugal_priv_help(f, &since);
}
