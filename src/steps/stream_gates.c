/* stream_gates.c - gates for devices that wait at them themselves, as a GPU's stream does.
 *
 * Such devices read a word with the number of open gates. It only grows, unless frugal_cancel lowers it. For other
 * devices frugal_lookup waits on the host (gate.c).
 */
#include "steps.h"

/* A process that has joined has a word of its own, because it forces gates by itself when it stops; its own word a
 * device of this process finds in `gates`. The caller holds gates_lock. */
static void publish_gates(frugal *f, uint64_t open) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        if (!frugal_load_acquire(&device->linked) || !device->gates) continue; /* [F41] pairs with [F42] */
        uint64_t found = frugal_load_relaxed(device->gates);            /* relaxed: proved by the compare-and-swap */
        while ((int64_t)(open - found) > 0)                             /* gates that were forced there stay so */
            if (frugal_cas_release(device->gates, &found, open)) break; /* [F8] as below */
    }
}

/* Publishes every gate whose conditions hold. The thread that makes the last condition of a gate hold notifies the
 * event. If that thread does not come here itself, a worker that it wakes does. */
FRUGAL_INTERNAL void open_gates(frugal *f) {
    if (frugal_load_relaxed(&f->polling.waiting) == 0) return; /* relaxed: devices attach before their steps */
    if (!frugal_p2f_gate(f->p2f, frugal_load_relaxed(f->gates))) return; /* relaxed: asked again under the lock */
    pthread_mutex_lock(&f->gates_lock);
    uint64_t open = frugal_load_relaxed(f->gates); /* relaxed: proved by the compare-and-swap */
    while (frugal_p2f_gate(f->p2f, open))
        if (frugal_cas_release(f->gates, &open, open + 1)) open++; /* [F8] read by the device, by atomics of its own */
    if (f->shared.door) publish_gates(f, open);
    pthread_mutex_unlock(&f->gates_lock);
}

/* Steps from `step` on are cancelled: takes back their gates. The caller holds gates_lock; between steps, when nobody
 * waits for a gate. */
FRUGAL_INTERNAL void take_back_gates(atomic_word *gates, uint64_t step) {
    uint64_t open = frugal_load_relaxed(gates);              /* relaxed, both: as said above */
    while (open > step && open - step < FRUGAL_GATES_FORCED) /* forced ones stay so */
        if (frugal_cas_relaxed(gates, &open, step)) break;
}

/* Forces all gates of a word open, so that no device waits for ever. What a device reads behind such a gate is never
 * committed. The number is far ahead of any step, but not so far that a comparison by distance, which a GPU's stream
 * makes, finds it behind. */
FRUGAL_INTERNAL void force_word(frugal *f, atomic_word *gates) {
    frugal_store_release(gates, frugal_p2f_closed(f->p2f) + 2 * FRUGAL_GATES_FORCED); /* [F8] as above */
}

/* Those of this process. */
FRUGAL_INTERNAL void force_gates(frugal *f) {
    if (f->gates) force_word(f, f->gates); /* open makes p2f before the gates */
}
