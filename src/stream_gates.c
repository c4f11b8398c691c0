/* stream_gates.c - gates for devices that wait at them themselves, as a GPU's stream does.
 *
 * The number of gates that are open is a word that such devices read. It only grows, unless frugal_cancel takes steps
 * back. For other devices frugal_lookup waits, on the host
 * (gate.c).
 */
#include "host.h"

/* Publishes every gate whose conditions hold. Whoever makes the last condition of a gate hold tells the event of it; a
 * worker that is told comes by here, if the thread that told has not. */
static void open_gates(frugal *f) {
    if (frugal_load_relaxed(&f->waiting_devices) == 0) return; /* relaxed: devices attach before their steps */
    uint64_t open = frugal_load_relaxed(f->gates);             /* relaxed: proved by the compare-and-swap */
    while (frugal_p2f_gate(f->p2f, open))
        if (frugal_cas_release(f->gates, &open, open + 1)) open++; /* [F8] read by the device, in its own words */
}

/* No device shall wait for ever. What it reads through a gate that is forced open is never committed. The number is far
 * ahead of any step, and not so far that who compares by distance, as a GPU's stream does, finds it behind. */
static void force_gates(frugal *f) {
    if (f->gates) /* [F8] as above; open makes p2f before them */
        frugal_store_release(f->gates, frugal_p2f_closed(f->p2f) + 2 * FRUGAL_GATES_FORCED);
}
