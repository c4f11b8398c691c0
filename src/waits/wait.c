/* wait.c - every wait of a call for what other threads do in a step: the waiting thread helps, sleeps (`rest` in
 * poll.c), and says what is missing if nothing moves: first by a notice, then by its status. Opening and closing have
 * waits of their own, for workers (workers.c), and so has a process that has joined (post.c). */
#include "waits.h"

/* Is there a reason to check again instead of sleeping? Relaxed, both: the next check acquires. */
static int is_over(frugal *f, const condition *what) {
    if (what->ready(f, what) || frugal_load_relaxed(&f->stopped)) return 1;
    return (what->devices && frugal_load_relaxed(&f->loss.device)) || (what->devices == 2 && is_refused(f, what->step));
}

/* Waits until `ready`, and helps meanwhile. Errors: STOPPED, STUCK, LOST if it waits for devices, and KEY if it waits
 * for batches. */
static frugal_status wait_for(frugal *f, const condition *what) {
    double start = 0, since = 0, tells = notice_seconds(f); /* tells: after so many seconds the caller is told */
    char text[384];
    for (;;) {
        if (what->ready(f, what)) return FRUGAL_OK;
        if (frugal_load_acquire(&f->stopped)) return fail_stopped(what->call); /* [F3] pairs with [F4] */
        if (what->devices && frugal_load_acquire(&f->loss.device))
            return fail_lost(f, what->call); /* [F10] pairs with [F9] */
        if (what->devices == 2 && is_refused(f, what->step)) return fail_refused(f);
        if (since == 0) since = clock_now();
        if (help_once(f, &since)) {
            start = 0; /* something moves */
            continue;
        }
        double now = clock_now();
        if (start == 0) start = now;
        double waited = now - start, left = f->desc.stuck_seconds < 0 ? FOREVER : f->desc.stuck_seconds - waited;
        if (left <= 0) {
            what->explain(f, what, text, sizeof text);
            return frugal_fail(FRUGAL_ERR_STUCK, STUCK_FORMAT, what->call, (unsigned long long)what->step,
                               f->desc.stuck_seconds, text);
        }
        if (waited >= tells) {
            what->explain(f, what, text, sizeof text);
            tells = tell_wait(f, tells, STUCK_FORMAT, what->call, (unsigned long long)what->step, tells, text);
            since = 0;
            continue; /* telling takes time */
        }
        uint32_t seen = event_prepare(f->event);
        if (is_over(f, what)) continue;
        if (help_once(f, &since)) continue;
        rest(f, seen, LEAST(left, tells - waited));
        since = 0;
    }
}

/* The same. A thread in a call that has no ring of a trace gets one, for what it does while it helps. */
FRUGAL_INTERNAL frugal_status wait_until(frugal *f, const condition *what) {
    trace_ring *claimed = trace_claim(f);
    frugal_status status = wait_for(f, what);
    trace_release(claimed);
    return status;
}
