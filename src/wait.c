/* wait.c - every wait of a call for what other threads do in a step: it helps, sleeps, and says what is missing when
 * nothing moves. Opening and closing wait for threads by themselves (workers.c). */
#include "host.h"

typedef struct condition {
    int (*ready)(frugal *f, const struct condition *what);
    void (*explain)(frugal *f, const struct condition *what, char *text, size_t size);
    uint32_t d; /* where the call has one */
    uint64_t step;
    const char *call; /* what waits */
    int devices;      /* for devices to go on with their steps: the loss of one ends it */
} condition;

/* Whether to look again rather than sleep. Relaxed, both: the next look acquires. */
static int is_over(frugal *f, const condition *what) {
    return what->ready(f, what) || frugal_load_relaxed(&f->stopped) || (what->devices && frugal_load_relaxed(&f->lost));
}

/* Waits until `ready`, helping. Errors: STOPPED, STUCK, and LOST where it waits for devices. */
static frugal_status wait_until(frugal *f, const condition *what) {
    double start = 0, since = 0;
    for (;;) {
        if (what->ready(f, what)) return FRUGAL_OK;
        if (frugal_load_acquire(&f->stopped)) return fail_stopped(what->call);               /* [F3] pairs with [F4] */
        if (what->devices && frugal_load_acquire(&f->lost)) return fail_lost(f, what->call); /* [F10] pairs with [F9] */
        if (since == 0) since = clock_now();
        if (help_once(f, &since)) {
            start = 0; /* something moves */
            continue;
        }
        double now = clock_now();
        if (start == 0) start = now;
        double left = f->desc.stuck_seconds - (now - start);
        if (f->desc.stuck_seconds >= 0 && left <= 0) {
            char text[384] = "";
            what->explain(f, what, text, sizeof text);
            return frugal_fail(FRUGAL_ERR_STUCK, "%s, step %llu: nothing for %.3g s: %s", what->call,
                               (unsigned long long)what->step, f->desc.stuck_seconds, text);
        }
        uint32_t seen = event_prepare(f->event);
        if (is_over(f, what)) continue;
        if (help_once(f, &since)) continue;
        rest(f, seen, f->desc.stuck_seconds >= 0 ? left : FOREVER);
        since = 0;
    }
}
