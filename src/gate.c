/* gate.c - the gate of a step: a lookup waits here until no update of a row that it reads is pending.
 *
 * The state machine decides when the gate opens (frugal_p2f_gate); section 5 of frugal_p2f.h says why that is enough.
 * Here a thread waits for the gate, helps meanwhile (wait.c), and says what is missing if nothing moves. If the stream
 * of a device waits for the gate, the thread does not; such gates are published in stream_gates.c.
 */
#include "host.h"

static int committed_ready(frugal *f, const condition *what) {
    return frugal_p2f_all_committed(f->p2f) >= what->step || has_finished(f, what->d, what->step);
}

static int gate_ready(frugal *f, const condition *what) {
    return frugal_p2f_gate(f->p2f, what->step) || has_finished(f, what->d, what->step);
}

/* Names the rows that the gate waits for: those of the batch that are dirty, five at most. */
static void explain_rows(frugal *f, const condition *what, char *text, size_t size) {
    int used = snprintf(text, size,
                        "slot %llu: %lld rows are not flushed:", (unsigned long long)(what->step % FRUGAL_P2F_SLOTS),
                        (long long)frugal_p2f_pending(f->p2f, what->step));
    const host_batch *b = batch_at(f, what->d, what->step);
    int shown = 0;
    for (uint32_t i = 0; i < b->n_unique && shown < 5 && used > 0 && (size_t)used < size; i++) {
        int dirty = frugal_p2f_is_dirty(f->p2f, b->rows[i]);
        if (!dirty) continue;
        used += snprintf(text + used, size - (size_t)used, " %u (%s)", b->rows[i],
                         dirty == 2 ? "a thread is applying it" : "queued");
        shown++;
    }
    if (shown == 0 && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, " none is of this batch; their staging blocks are needed again");
}

/* The device whose recalls for the step are not done; `devices`: none is known. */
static uint32_t device_recalled(frugal *f, uint64_t step) {
    uint32_t d = 0;
    while (d < f->desc.devices && !frugal_p2f_is_recalled(f->p2f, d, step)) d++;
    return d;
}

static void gate_explain(frugal *f, const condition *what, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    uint32_t recalled = device_recalled(f, what->step);
    for (uint32_t d = 0; now.committed < what->step && d < f->desc.devices; d++)
        if (frugal_p2f_committed(f->p2f, d) <= now.committed) {
            snprintf(text, size, "step %llu is not closed: device %u has not %s it", (unsigned long long)now.committed,
                     d, frugal_load_relaxed(&f->devices[d].updated) > now.committed ? "finished" : "updated");
            return;
        }
    for (uint32_t d = 0; now.sealed <= what->step && d < f->desc.devices; d++)
        if (frugal_p2f_announced(f->p2f, d) <= what->step) {
            snprintf(text, size, "step %llu is not sealed: device %u has announced %llu steps",
                     (unsigned long long)what->step, d, (unsigned long long)frugal_p2f_announced(f->p2f, d));
            return;
        }
    if (now.closed < what->step)
        snprintf(text, size, "step %llu is being closed by a thread that has not finished",
                 (unsigned long long)now.closed);
    else if (recalled < f->desc.devices)
        snprintf(text, size, "device %u keeps rows that are recalled for step %llu, and has not written them back",
                 recalled, (unsigned long long)what->step);
    else if (frugal_p2f_awaits_plan(f->p2f))
        snprintf(text, size, "step %llu is being planned by a thread that has not finished",
                 (unsigned long long)now.closed);
    else
        explain_rows(f, what, text, size);
}

/* Waits first until all devices have committed, then until the gate is open. Each wait has a clock of its own in the
 * statistics. */
static frugal_status wait_at_gate(frugal *f, uint32_t d, uint64_t step) {
    host_device *device = &f->devices[d];
    condition committed = {committed_ready, gate_explain, d, step, "lookup", 1};
    condition gate = {gate_ready, gate_explain, d, step, "lookup", 1};
    tally(&device->gate_waits, 1);
    double since = clock_now();
    frugal_status status = wait_until(f, &committed);
    double met = clock_now();
    tally(&device->barrier_ns, (uint64_t)((met - since) * 1e9));
    if (status != FRUGAL_OK) return status;
    status = wait_until(f, &gate);
    tally(&device->stall_ns, (uint64_t)((clock_now() - met) * 1e9));
    return status;
}

/* Has the batch been announced, and the device been told? Or will none come? */
static int batch_ready(frugal *f, const condition *what) {
    if (has_finished(f, what->d, what->step)) return 1;
    return frugal_load_acquire(&f->devices[what->d].told) > what->step; /* [F12] pairs with [F11] */
}

/* A device with `poll` that keeps updates, and that has not begun with its recalls for the step; `devices`: none. */
static uint32_t device_to_recall(frugal *f, uint64_t step) {
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* attached by now, as in given_ready */
        const host_device *device = &f->devices[d];
        if (device->keeps && device->ops.poll && awaits_recall(f, d, step)) return d; /* being enqueued is enough */
    }
    return f->desc.devices;
}

/* As batch_ready; also, have all devices announced the step before, and have those with `poll` been given its update?
 * Only then may one of them wait for what the others do in that step, because they may share a queue of a GPU, in which
 * nothing overtakes the one that waits. For the same reason all must have announced the step itself, and have begun
 * with what is recalled for it, if updates are kept. */
static int given_ready(frugal *f, const condition *what) {
    if (has_finished(f, what->d, what->step)) return 1;
    for (uint32_t d = 0; d < f->desc.devices && what->step > f->desc.first_step; d++) {
        const host_device *device = &f->devices[d];
        if (frugal_load_acquire(&device->told) < what->step) return 0; /* attached by now; [F12] pairs with [F11] */
        if (has_finished(f, d, what->step - 1)) continue;              /* nothing will be enqueued */
        if (device->ops.poll && frugal_load_relaxed(&device->updated) < what->step)
            return 0; /* relaxed: being enqueued is enough */
    }
    if (f->desc.alone == FRUGAL_ALONE_KEPT) {
        if (frugal_p2f_get_progress(f->p2f).sealed <= what->step) return 0;
        if (device_to_recall(f, what->step) < f->desc.devices) return 0;
    }
    return batch_ready(f, what);
}

/* Says what batch_ready waits for. Relaxed, here and below: it is only text. */
static void batch_explain(frugal *f, const condition *what, char *text, size_t size) {
    (void)f;
    snprintf(text, size, "device %u has not announced step %llu", what->d, (unsigned long long)what->step);
}

/* Says what given_ready waits for, in the order of its checks. */
static void given_explain(frugal *f, const condition *what, char *text, size_t size) {
    unsigned long long before = what->step - 1; /* used only after the first step */
    for (uint32_t d = 0; d < f->desc.devices && what->step > f->desc.first_step; d++) {
        const host_device *device = &f->devices[d];
        if (frugal_load_relaxed(&device->told) < what->step) {
            snprintf(text, size, "device %u has not announced step %llu", d, before);
            return;
        }
        if (device->ops.poll && !has_finished(f, d, before) && frugal_load_relaxed(&device->updated) < what->step) {
            snprintf(text, size, "device %u has not updated step %llu; update it on every device first", d, before);
            return;
        }
    }
    for (uint32_t d = 0; f->desc.alone == FRUGAL_ALONE_KEPT && d < f->desc.devices; d++)
        if (frugal_p2f_announced(f->p2f, d) <= what->step) {
            snprintf(text, size, "device %u has not announced step %llu", d, (unsigned long long)what->step);
            return;
        }
    uint32_t keeping = device_to_recall(f, what->step);
    if (keeping < f->desc.devices)
        snprintf(text, size, "device %u has not begun to write back what is recalled for step %llu", keeping,
                 (unsigned long long)what->step);
    else
        batch_explain(f, what, text, size);
}

/* Waits, if `wait`, until the device may be given the lookup of `step`. */
static frugal_status pass_gate(frugal *f, uint32_t d, uint64_t step, int wait) {
    const host_device *device = &f->devices[d];
    frugal_status status = FRUGAL_OK;
    int waits_itself = device->ops.waits_for_gate && device->ops.waits_for_gate(device->state);
    condition batch = {
        waits_itself ? given_ready : batch_ready, waits_itself ? given_explain : batch_explain, d, step, "lookup", 1};
    if (!waits_itself && !frugal_p2f_gate(f->p2f, step)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = wait_at_gate(f, d, step)) != FRUGAL_OK) return status;
    }
    /* The gate may open as soon as the state machine has the batch. Only then are the rows' counts noted, and is the
     * device told. */
    if (!batch.ready(f, &batch)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = wait_until(f, &batch)) != FRUGAL_OK) return status;
    }
    if (has_finished(f, d, step)) return fail_finished(f, "lookup", d, step, FRUGAL_FINISHED);
#ifndef NDEBUG
    const host_batch *b = batch_at(f, d, step);
    /* Invariant (2) of the paper. Not checked if the device itself waits for the gate, because that may not be open
     * yet. */
    for (uint32_t i = 0; !waits_itself && i < b->n_unique; i++)
        FRUGAL_ASSERT(!frugal_p2f_is_dirty(f->p2f, b->rows[i]) && "a row read at s has no pending update");
#endif
    return status;
}
