/* help.c - one piece of the most urgent work: what workers and waiting threads do again and again. */
#include "waits.h"

/* A piece of work of a kind is done: adds the time since *since to its clock of the statistics, and sets *since to now.
 */
static void tick(frugal *f, trace_kind kind, atomic_word *clock, double *since) {
    double now = clock_now();
    trace_piece(f, kind, *since, now);
    tally(clock, (uint64_t)((now - *since) * 1e9));
    *since = now;
}

/* Sorts a batch that a loader has handed in, and gives the state machine what follows of its device. */
FRUGAL_INTERNAL int help_sort(frugal *f, double *since) {
    claimed_batch claimed = {0};
    if (!frugal_load_relaxed(&f->sorting.unsorted) || !begin_announcing(f))
        return 0; /* relaxed: a hint; the event tells */
    sort_memory *m = take_sort_memory(f);
    int any = m && claim_batch(f, &claimed);
    if (any) list_batch(f, claimed.d, claimed.b, sort_rows(f, claimed.d, claimed.b->record_of, claimed.b->n, m));
    if (any && f->dealing) list_guests(f, claimed.d, claimed.b);
    if (m) give_back_sort_memory(f, m);
    if (any) {
        end_batch(claimed.b);
        give_batches(f, claimed.d);
        announce_finished(f);
        wake_machines(f);
    }
    end_announcing(f);
    if (!any) return 0;
    event_notify(f->event); /* the step may be sealed now */
    wake_teller(f);         /* ... or planned, without words */
    tick(f, TRACE_PLAN, &f->work.sort_ns, since);
    return 1;
}

/* One piece of the most urgent work, in three functions, so that workers of several instances first do what is urgent
 * in all of them. The time of a piece counts from *since, the end of the piece before; so a piece reads the clock once.
 * Plans, and reading ahead, come after what a gate waits for. */
FRUGAL_INTERNAL int help_plan(frugal *f, double *since) {
    if (!frugal_p2f_has_plans(f->p2f) || !begin_announcing(f)) return 0;
    int planned = plan_piece(f);
    end_announcing(f);
    if (planned == 2) event_notify(f->event); /* a gate may have waited for the plan */
    if (planned == 2) wake_teller(f);
    if (planned) tick(f, TRACE_PLAN, &f->work.plan_ns, since);
    return planned > 0;
}

/* Does what a gate waits for: it closes the step before; it has devices write back rows that are recalled; it sorts and
 * plans, if the gate's own step is not planned; then it flushes rows. */
FRUGAL_INTERNAL int help_gate(frugal *f, double *since) {
    if (f->shared.posts && f->shared.posts->serve(f)) return 1;
    if (f->talks && f->talks->serve(f)) return 1;
    poll_devices(f);
    open_gates(f);
    if (close_piece(f)) {
        tick(f, TRACE_CLOSE, &f->work.close_ns, since);
        event_notify(f->event); /* the step is closed, or at least: there are rows to flush */
        return 1;
    }
    if (recall_piece(f)) {
        tick(f, TRACE_RECALL, &f->work.flush_ns, since);
        return 1;
    }
    uint64_t now = frugal_p2f_closed(f->p2f);
    if (frugal_p2f_planned(f->p2f) <= now && (help_sort(f, since) || help_plan(f, since))) return 1;
    if (!flush_page(f, now, now)) return 0;
    tick(f, TRACE_FLUSH, &f->work.flush_ns, since);
    return 1;
}

/* Takes part in what other calls do in pieces; sorts and plans; then asks for pages of announced rows, if the table is
 * in a file. */
FRUGAL_INTERNAL int help_ahead(frugal *f, double *since) {
    if (help_job(f)) {
        *since = clock_now();
        return 1;
    }
    if (help_sort(f, since) || help_plan(f, since)) return 1;
    if (!f->file || !ask_ahead(f)) return 0;
    *since = clock_now();
    return 1;
}

/* Flushes the rest of the queue, in the order in which it is due. */
FRUGAL_INTERNAL int help_queue(frugal *f, double *since) {
    if (!flush_page(f, UINT64_MAX, frugal_p2f_closed(f->p2f))) return 0;
    tick(f, TRACE_FLUSH, &f->work.flush_ns, since);
    return 1;
}

FRUGAL_INTERNAL int help_once(frugal *f, double *since) {
    return help_gate(f, since) || help_ahead(f, since) || help_queue(f, since);
}

int frugal_help(frugal *f) {
    /* relaxed: nothing done before stop is read */
    if (!is_usable(f) || !f->ops->owns || frugal_load_relaxed(&f->stopped)) return 0;
    trace_ring *claimed = trace_claim(f);
    double since = clock_now();
    int any = help_once(f, &since);
    trace_release(claimed);
    return any;
}
