/* help.c - one piece of the most urgent work: what workers and waiting threads do again and again. */
#include "host.h"

/* A piece of work of a kind is done: adds the time since *since to its clock of the statistics, and sets *since to now.
 */
static void tick(frugal *f, trace_kind kind, FRUGAL_ATOMIC(uint64_t) * clock, double *since) {
    double now = clock_now();
    trace_piece(f, kind, *since, now);
    tally(clock, (uint64_t)((now - *since) * 1e9));
    *since = now;
}

/* One piece of the most urgent work, in three functions, so that workers of several instances first do what is urgent
 * in all of them. The time of a piece counts from *since, the end of the piece before; so a piece reads the clock once.
 * Plans, and reading ahead, come after what a gate waits for. */
static int help_plan(frugal *f, double *since) {
    int planned = frugal_p2f_plan(f->p2f);
    if (planned == 2) event_notify(f->event); /* closing, or a gate, may have waited for the plan */
    if (planned) tick(f, TRACE_PLAN, &f->plan_ns, since);
    return planned > 0;
}

/* Does what a gate waits for: it closes the step before, which may wait for its plan; it has devices write back rows
 * that are recalled; it plans the gate's own step, if rows are updated in place; then it flushes rows. */
static int help_gate(frugal *f, double *since) {
    if (f->serve && f->serve(f)) return 1;
    poll_devices(f);
    open_gates(f);
    if (close_piece(f)) {
        tick(f, TRACE_CLOSE, &f->close_ns, since);
        event_notify(f->event); /* the step is closed, or at least: there are rows to flush */
        return 1;
    }
    if (recall_piece(f)) {
        tick(f, TRACE_RECALL, &f->flush_ns, since);
        return 1;
    }
    uint64_t now = frugal_p2f_closed(f->p2f);
    /* A step is committed and not closed: its plan may be missing, and no row is urgent before the step is closed. */
    int plan = frugal_p2f_all_committed(f->p2f) > now || frugal_p2f_awaits_plan(f->p2f);
    if (plan && help_plan(f, since)) return 1;
    if (!flush_page(f, now, now)) return 0;
    tick(f, TRACE_FLUSH, &f->flush_ns, since);
    return 1;
}

/* Plans; then asks for pages of announced rows, if the table is in a file. */
static int help_ahead(frugal *f, double *since) {
    if (help_plan(f, since)) return 1;
    if (!f->file || !ask_ahead(f)) return 0;
    *since = clock_now();
    return 1;
}

/* Flushes the rest of the queue, in the order in which it is due. */
static int help_queue(frugal *f, double *since) {
    if (!flush_page(f, UINT64_MAX, frugal_p2f_closed(f->p2f))) return 0;
    tick(f, TRACE_FLUSH, &f->flush_ns, since);
    return 1;
}

static int help_once(frugal *f, double *since) {
    return help_gate(f, since) || help_ahead(f, since) || help_queue(f, since);
}

int frugal_help(frugal *f) {
    /* relaxed: nothing done before stop is read */
    if (!is_usable(f) || f->joined || frugal_load_relaxed(&f->stopped)) return 0;
    trace_ring *claimed = trace_claim(f);
    double since = clock_now();
    int any = help_once(f, &since);
    trace_release(claimed);
    return any;
}
