/* wait.c - every wait of the library: it helps, sleeps, and says what is missing when nothing moves. */
#include "host.h"

typedef struct frugal_priv_wait {
    int (*ready)(frugal *f, const struct frugal_priv_wait *wait);
    void (*explain)(frugal *f, const struct frugal_priv_wait *wait, char *text, size_t size);
    uint32_t device; /* where the call has one */
    uint64_t step;
    const char *call; /* what waits */
    int devices;      /* for devices to go on with their steps: the loss of one ends it */
} frugal_priv_wait;

/* Waits until `ready`, helping. Every wait of the library is this one. */
static frugal_status frugal_priv_wait_for(frugal *f, const frugal_priv_wait *wait) {
    double start = 0, since = 0;
    for (;;) {
        if (wait->ready(f, wait)) return FRUGAL_OK;
        if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped(wait->call); /* [F3] pairs with [F4] */
        if (wait->devices && frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, wait->call); /* [F10] pairs with [F9] */
        if (since == 0) since = frugal_priv_now();
        if (frugal_priv_help(f, &since)) {
            start = 0; /* something moves */
            continue;
        }
        double now = frugal_priv_now();
        if (start == 0) start = now;
        double left = f->desc.stuck_seconds - (now - start);
        if (f->desc.stuck_seconds >= 0 && left <= 0) {
            char text[384] = "";
            wait->explain(f, wait, text, sizeof text);
            return frugal_fail(FRUGAL_ERR_STUCK, "%s, step %llu: nothing for %.3g s: %s", wait->call,
                               (unsigned long long)wait->step, f->desc.stuck_seconds, text);
        }
        uint32_t seen = frugal_priv_event_prepare(f->event);
        /* Relaxed: only whether to look again. */
        if (wait->ready(f, wait) || frugal_load_relaxed(&f->stopped) || (wait->devices && frugal_load_relaxed(&f->lost)))
            continue;
        if (frugal_priv_help(f, &since)) continue;
        frugal_priv_rest(f, seen, f->desc.stuck_seconds >= 0 ? left : FRUGAL_PRIV_FOREVER);
        since = 0;
    }
}
