/* gate.c - the gate of a step: a lookup waits here until no update of a row that it reads is pending; in a
 * process that has joined, in post.c.
 *
 * The state machine decides when the gate opens (frugal_p2f_gate); section 5 of frugal_p2f.h says why that is enough.
 * Here a thread waits for the gate, helps meanwhile (wait.c), and says what is missing if nothing moves. If the stream
 * of a device waits for the gate, the thread does not; such gates are published in stream_gates.c.
 */
#include "waits.h"

FRUGAL_INTERNAL int committed_ready(frugal *f, const condition *what) {
    return frugal_p2f_all_committed(f->p2f) >= what->step || has_finished(f, what->d, what->step);
}

/* Has the device itself committed the steps before? */
FRUGAL_INTERNAL int own_ready(frugal *f, const condition *what) {
    return frugal_p2f_committed(f->p2f, what->d) >= what->step;
}

FRUGAL_INTERNAL int gate_ready(frugal *f, const condition *what) {
    return frugal_p2f_gate(f->p2f, what->step) || has_finished(f, what->d, what->step);
}

/* Names the rows that the gate waits for: those of the batch that are dirty, five at most. */
static void explain_rows(frugal *f, const condition *what, char *text, size_t size) {
    int used = snprintf(text, size,
                        "slot %llu: %lld rows are not flushed:", (unsigned long long)(what->step % FRUGAL_P2F_SLOTS),
                        (long long)frugal_p2f_pending(f->p2f, what->step));
    const host_batch *b = batch_at(f, what->d, what->step);
    int shown = 0;
    for (uint32_t i = 0; i < b->n_own && shown < 5 && used > 0 && (size_t)used < size; i++) {
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

/* What keeps the gate of the step closed: the first of its conditions that does not hold. A hint, because a moment
 * later another one may be the first. */
static gate_cause find_cause(frugal *f, uint64_t step) {
    uint64_t committed = frugal_p2f_all_committed(f->p2f);
    for (uint32_t d = 0; committed < step && d < f->desc.devices; d++) /* a finished device waits for the others */
        if (!has_finished(f, d, committed) && frugal_p2f_committed(f->p2f, d) <= committed) {
            int given = frugal_load_relaxed(&f->devices[d].updated) > committed; /* relaxed: it is only text */
            return (gate_cause){given ? CAUSE_WORK : CAUSE_COMMIT, d, committed + 1, 0};
        }
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t handed = frugal_load_relaxed(&f->devices[d].handed); /* relaxed: it is only text */
        if (handed <= step && !has_finished(f, d, step)) return (gate_cause){CAUSE_ANNOUNCE, d, step, handed};
    }
    uint64_t closed = frugal_p2f_closed(f->p2f);
    if (closed < step) return (gate_cause){CAUSE_CLOSE, NO_DEVICE, closed + 1, 0};
    if (frugal_p2f_planned(f->p2f) <= step) return (gate_cause){CAUSE_PLAN, NO_DEVICE, step, 0};
    uint32_t recalled = f->desc.alone == FRUGAL_ALONE_KEPT ? device_recalled(f, step) : f->desc.devices;
    if (recalled < f->desc.devices) return (gate_cause){CAUSE_RECALL, recalled, step, 0};
    int64_t rows = frugal_p2f_pending(f->p2f, step);
    return (gate_cause){CAUSE_FLUSH, NO_DEVICE, step, rows > 0 ? (uint64_t)rows : 0};
}

/* All have announced the step; what keeps it from being planned, or told? Relaxed, here and below: it is only text. */
static void explain_plan(frugal *f, uint64_t step, char *text, size_t size) {
    for (uint32_t d = 0; frugal_p2f_planned(f->p2f) > step && d < f->desc.devices; d++) {
        if (told_of(f, d) > step) continue;
        snprintf(text, size, "device %u is being told of step %llu", d, (unsigned long long)step);
        return;
    }
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t next = frugal_p2f_announced(f->p2f, d);
        if (next > step || frugal_load_relaxed(&batch_at(f, d, next)->stage) != BATCH_AWAY) continue;
        snprintf(text, size, "device %u has not sorted its batch of step %llu", d, (unsigned long long)next);
        return;
    }
    snprintf(text, size, "step %llu is being planned by a thread that has not finished", (unsigned long long)step);
}

FRUGAL_INTERNAL void gate_explain(frugal *f, const condition *what, char *text, size_t size) {
    gate_cause cause = find_cause(f, what->step);
    if (cause.kind == CAUSE_COMMIT) explain_update(f, cause.d, cause.step - 1, text, size);
    if (cause.kind == CAUSE_ANNOUNCE) explain_announce(f, what->d, cause.d, cause.step, text, size);
    if (cause.kind == CAUSE_COMMIT || cause.kind == CAUSE_ANNOUNCE) return;
    explain_cause(&cause, text, size);
    size_t used = strlen(text);
    if (cause.kind == CAUSE_PLAN) explain_plan(f, cause.step, text, size);
    if (cause.kind == CAUSE_CLOSE) snprintf(text + used, size - used, " by a thread that has not finished");
    if (cause.kind == CAUSE_FLUSH) explain_rows(f, what, text, size);
}

/* From now on the cause is another one, or the same one with another device. */
FRUGAL_INTERNAL void turn_cause(frugal *f, gate_watch *w, const gate_cause *next) {
    double now = clock_now();
    if (w->now.kind != CAUSE_NONE) {
        uint64_t ns = (uint64_t)((now - w->since) * 1e9);
        w->cause_ns[w->now.kind] += ns;
        tally(&f->devices[w->what.d].waits.cause_ns[w->now.kind], ns);
        trace_wait(f, TRACE_GATE, w->what.d, &w->now, w->since, now);
    }
    w->now = *next, w->since = now;
}

FRUGAL_INTERNAL int watched_ready(frugal *f, const condition *what) {
    gate_watch *w = (gate_watch *)(uintptr_t)what;
    if (w->ready(f, what)) return 1;
    gate_cause next = find_cause(f, what->step);
    if (next.kind != w->now.kind || next.d != w->now.d) turn_cause(f, w, &next);
    return 0;
}

/* Counts a wait at the gate in the histogram, and notes it if it is the longest since metrics were written. */
FRUGAL_INTERNAL void count_wait(host_device *device, uint64_t step, uint64_t ns, const gate_watch *w) {
    gate_waits *waits = &device->waits;
    uint32_t bucket = 0, most = CAUSE_NONE;
    while (bucket + 1 < WAIT_BUCKETS && ns > UINT64_C(1000) << 2 * bucket) bucket++;
    tally(&waits->buckets[bucket], 1);
    tally(&waits->ns, ns);
    for (uint32_t i = 0; i < CAUSES; i++)
        if (w->cause_ns[i] > w->cause_ns[most]) most = i;
    if (ns <= frugal_load_relaxed(&waits->worst.ns)) return; /* relaxed: only this thread raises it */
    pthread_mutex_lock(&waits->worst.lock);
    frugal_store_relaxed(&waits->worst.ns, ns); /* relaxed: under the lock */
    waits->worst.step = step, waits->worst.cause = (cause_kind)most;
    pthread_mutex_unlock(&waits->worst.lock);
}

/* Waits first until all devices have committed, then until the gate is open. Each wait has a clock of its own in the
 * statistics. */
static frugal_status wait_at_gate(frugal *f, uint32_t d, uint64_t step) {
    host_device *device = &f->devices[d];
    gate_watch watch = {.what = {watched_ready, gate_explain, d, step, "lookup", 2}, .ready = committed_ready};
    const gate_cause open = {CAUSE_NONE, NO_DEVICE, step, 0};
    tally(&device->gate_waits, 1);
    double since = clock_now(), met, end;
    frugal_status status = wait_until(f, &watch.what);
    met = end = clock_now();
    tally(&device->barrier_ns, (uint64_t)((met - since) * 1e9));
    if (status == FRUGAL_OK) {
        watch.ready = gate_ready;
        status = wait_until(f, &watch.what);
        end = clock_now();
        tally(&device->stall_ns, (uint64_t)((end - met) * 1e9));
    }
    turn_cause(f, &watch, &open);
    count_wait(device, step, (uint64_t)((end - since) * 1e9), &watch);
    return status;
}

/* Has the batch been announced, and the device been told? Or will none come? */
static int batch_ready(frugal *f, const condition *what) {
    if (has_finished(f, what->d, what->step)) return 1;
    return told_of(f, what->d) > what->step;
}

/* A device with `poll`, of the same process, that keeps updates, and that has not begun with its recalls for the step;
 * `devices`: none. */
static uint32_t device_to_recall(frugal *f, uint32_t process, uint64_t step) {
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* attached by now, as in given_ready */
        const host_device *device = &f->devices[d];
        if (device->process != process || !device->keeps || !device->ops.poll) continue;
        if (awaits_recall(f, d, step)) return d; /* being enqueued is enough */
    }
    return f->desc.devices;
}

/* Have all devices announced the step, and been told of it; have those with `poll` been given the update of the step
 * before; and have they begun with what is recalled for the step, if updates are kept? Only then may one of them wait
 * for what the others do: they may share a queue of a GPU, in which nothing overtakes the one that waits; and a call of
 * any thread that waits for the whole GPU may let no other call through. So nothing that the gate waits for may need a
 * call of the device, or be enqueued, when the wait is. Who tells a device calls it first, and then wakes who opens
 * gates. Devices of other processes share neither queues nor calls, so of these it is enough that they have announced.
 */
static int given_ready(frugal *f, const condition *what) {
    uint32_t process = f->devices[what->d].process;
    if (has_finished(f, what->d, what->step)) return 1;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        const host_device *device = &f->devices[d];
        if (!is_attached(f, d) || told_of(f, d) <= what->step) return 0;
        if (device->process != process) continue;
        if (what->step == f->desc.first_step || has_finished(f, d, what->step - 1)) continue; /* none is enqueued */
        if (device->ops.poll && frugal_load_relaxed(&device->updated) < what->step)
            return 0; /* relaxed: being enqueued is enough */
    }
    return f->desc.alone != FRUGAL_ALONE_KEPT || device_to_recall(f, process, what->step) == f->desc.devices;
}

/* Says what batch_ready waits for. */
static void batch_explain(frugal *f, const condition *what, char *text, size_t size) {
    if (frugal_load_relaxed(&f->devices[what->d].handed) <= what->step)
        explain_announce(f, what->d, what->d, what->step, text, size);
    else
        explain_plan(f, what->step, text, size);
}

/* What given_ready waits for: announcements first. */
static gate_cause given_cause(frugal *f, const condition *what) {
    uint64_t step = what->step, first = f->desc.first_step;
    uint32_t process = f->devices[what->d].process;
    int keeps = f->desc.alone == FRUGAL_ALONE_KEPT;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t handed = is_attached(f, d) ? frugal_load_relaxed(&f->devices[d].handed) : first;
        if (handed <= step && !has_finished(f, d, step)) return (gate_cause){CAUSE_ANNOUNCE, d, step, handed};
    }
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (told_of(f, d) <= step) return (gate_cause){CAUSE_PLAN, d, step, 0};
    for (uint32_t d = 0; d < f->desc.devices && step > first; d++) {
        const host_device *device = &f->devices[d];
        if (device->process != process) continue;
        if (device->ops.poll && !has_finished(f, d, step - 1) && frugal_load_relaxed(&device->updated) < step)
            return (gate_cause){CAUSE_COMMIT, d, step, 0};
    }
    uint32_t keeping = keeps ? device_to_recall(f, process, step) : f->desc.devices;
    if (keeping < f->desc.devices) return (gate_cause){CAUSE_RECALL, keeping, step, 0};
    return (gate_cause){CAUSE_PLAN, NO_DEVICE, step, 0}; /* it was just now */
}

static void given_explain(frugal *f, const condition *what, char *text, size_t size) {
    gate_cause cause = given_cause(f, what);
    if (cause.kind == CAUSE_COMMIT)
        explain_update(f, cause.d, cause.step - 1, text, size);
    else if (cause.kind == CAUSE_RECALL)
        snprintf(text, size, "device %u has not begun to write back what is recalled for step %llu", cause.d,
                 (unsigned long long)cause.step);
    else if (cause.kind == CAUSE_PLAN)
        explain_plan(f, cause.step, text, size);
    else
        explain_announce(f, what->d, cause.d, cause.step, text, size);
}

static int guests_here(frugal *f, const condition *what) {
    return guests_ready(f, what->d, what->step);
}

static void guests_explain(frugal *f, const condition *what, char *text, size_t size) {
    f->talks->explain(f, what->d, what->step, text, size);
}

/* Rows of other machines are waited for: counted like a wait at the gate, which is open. */
static frugal_status wait_for_guests(frugal *f, const condition *here) {
    gate_watch watch = {.what = *here, .now = {CAUSE_MACHINES, here->d, here->step, 0}, .since = clock_now()};
    double since = watch.since;
    frugal_status status = wait_until(f, here);
    turn_cause(f, &watch, &(gate_cause){CAUSE_NONE, NO_DEVICE, here->step, 0});
    uint64_t ns = (uint64_t)((watch.since - since) * 1e9);
    tally(&f->devices[here->d].gate_waits, 1);
    tally(&f->devices[here->d].stall_ns, ns);
    count_wait(&f->devices[here->d], here->step, ns, &watch);
    return status;
}

/* Waits until the device may be given the lookup. The wait of a stream for the gate is not seen here. */
static frugal_status wait_for_batch(frugal *f, const condition *batch) {
    gate_cause cause = given_cause(f, batch);
    double since = clock_now();
    frugal_status status = wait_until(f, batch);
    trace_wait(f, TRACE_GATE, batch->d, &cause, since, clock_now());
    return status;
}

/* Waits, if `wait`, until the device may be given the lookup of `step`. */
static frugal_status pass_conditions(frugal *f, uint32_t d, uint64_t step, int wait) {
    const host_device *device = &f->devices[d];
    frugal_status status = FRUGAL_OK;
    int in_order = is_in_order(f, d);
    int waits_itself = device->ops.waits_for_gate && device->ops.waits_for_gate(device->state);
    condition batch = {
        waits_itself ? given_ready : batch_ready, waits_itself ? given_explain : batch_explain, d, step, "lookup", 2};
    if (!waits_itself && !in_order && !frugal_p2f_gate(f->p2f, step)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = wait_at_gate(f, d, step)) != FRUGAL_OK) return status;
    }
    /* The gate may open as soon as the state machine has the batch. The rows' counts are noted, and the device is told,
     * only after that. */
    if (!batch.ready(f, &batch)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = wait_for_batch(f, &batch)) != FRUGAL_OK) return status;
    }
    if (has_finished(f, d, step)) return fail_finished(f, "lookup", d, step, FRUGAL_FINISHED);
    if (!guests_ready(f, d, step)) {
        condition here = {guests_here, guests_explain, d, step, "lookup", 2};
        if (!wait) return FRUGAL_AGAIN;
        if ((status = wait_for_guests(f, &here)) != FRUGAL_OK) return status;
    }
#ifndef NDEBUG
    const host_batch *b = batch_at(f, d, step);
    /* Invariant (2) of the paper. Not checked if the device itself waits for the gate, because that may not be open
     * yet. */
    for (uint32_t i = 0; !waits_itself && i < b->n_own; i++)
        FRUGAL_ASSERT(!frugal_p2f_is_dirty(f->p2f, b->rows[i]) && "a row read at s has no pending update");
#endif
    return status;
}

/* The same; the communication thread knows that a trainer may be waiting. */
FRUGAL_INTERNAL frugal_status pass_gate(frugal *f, uint32_t d, uint64_t step, int wait) {
    if (!f->dealing || !wait) return pass_conditions(f, d, step, wait);
    frugal_add_relaxed(&f->dealing->waiting, 1); /* relaxed, both: a hint */
    frugal_status status = pass_conditions(f, d, step, wait);
    frugal_add_relaxed(&f->dealing->waiting, (uint32_t)-1);
    return status;
}
