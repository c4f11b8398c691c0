/* stream_gates.c - gates for devices that wait at them themselves, as a GPU's stream does.
 *
 * Such devices read a word with the number of open gates. It only grows, unless frugal_cancel lowers it. For other
 * devices frugal_lookup waits on the host (gate.c).
 */
#include "host.h"

/* Publishes every gate whose conditions hold. The thread that makes the last condition of a gate hold notifies the
 * event. If that thread does not come here itself, a worker that it wakes does. */
static void open_gates(frugal *f) {
    if (frugal_load_relaxed(&f->waiting_devices) == 0) return; /* relaxed: devices attach before their steps */
    if (!frugal_p2f_gate(f->p2f, frugal_load_relaxed(f->gates))) return; /* relaxed: asked again under the lock */
    pthread_mutex_lock(&f->gates_lock);
    uint64_t open = frugal_load_relaxed(f->gates); /* relaxed: proved by the compare-and-swap */
    while (frugal_p2f_gate(f->p2f, open))
        if (frugal_cas_release(f->gates, &open, open + 1)) open++; /* [F8] read by the device, by atomics of its own */
    pthread_mutex_unlock(&f->gates_lock);
}

/* Forces all gates open, so that no device waits for ever. What a device reads behind such a gate is never committed.
 * The number is far ahead of any step, but not so far that a comparison by distance, which a GPU's stream makes, finds
 * it behind. */
static void force_gates(frugal *f) {
    if (f->gates) /* [F8] as above; open makes p2f before the gates */
        frugal_store_release(f->gates, frugal_p2f_closed(f->p2f) + 2 * FRUGAL_GATES_FORCED);
}
