/* keep.c - updates that devices keep in their caches (FRUGAL_ALONE_KEPT): recalls, and other calls that need the rows
 * in the host table.
 *
 * Why keeping is exact, and what a recall is: frugal_p2f.h, section 5, (g). A device that keeps updates writes rows
 * back in its own lookup, when its cache needs the places; and when it is asked to: by a recall, done by any thread
 * that helps; by frugal_drain, for all rows; by frugal_read_rows, for those that are read. The lock of the device makes
 * these wait for each other and for its trainer's calls. Only the last two wait for a GPU's work under the lock, when
 * no stream waits for a gate (settle_devices).
 */
#include "steps.h"

/* Held around lookup, update and recount. In a process that has joined, the attendant may work on any device. */
FRUGAL_INTERNAL void hold_copies(host_device *device) {
    if (device->keeps || device->mail) pthread_mutex_lock(&device->keeping.lock);
}
FRUGAL_INTERNAL void release_copies(host_device *device) {
    if (device->keeps || device->mail) pthread_mutex_unlock(&device->keeping.lock);
}

/* Does any device keep an update? Between calls of update. */
static int keeps_updates(const frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) /* [F22] pairs with [F23] */
        if (frugal_load_acquire(&f->devices[d].keeping.now) > 0) return 1;
    return 0;
}

/* Were updates of committed steps lost with a device that kept them? Then the table is that of no single step. */
FRUGAL_INTERNAL int has_lost_rows(const frugal *f) {
    /* [F10] pairs with [F9]: acquires the message, and the number of the first loss, which is therefore read relaxed */
    return frugal_load_acquire(&f->loss.device) && frugal_load_relaxed(&f->loss.kept) > 0;
}

/* Has the host table all updates of the committed steps? */
FRUGAL_INTERNAL int is_complete(frugal *f) {
    return is_flushed(f) && !keeps_updates(f);
}

/* Is the table that of the last committed step? */
FRUGAL_INTERNAL int is_drained(frugal *f) {
    return is_complete(f) && device_ahead(f) == f->desc.devices && !has_lost_rows(f);
}

void frugal_count_kept(frugal *f, uint32_t d, uint64_t kept, uint64_t written_back, uint64_t now) {
    if (!f || !f->opened || d >= f->desc.devices) return;
    host_device *device = &f->devices[d];
    tally(&device->keeping.kept, kept);
    tally(&device->keeping.written_back, written_back);
    frugal_store_release(&device->keeping.now, now); /* [F23] pairs with [F22]: the rows are written */
    if (f->ops->note_kept) f->ops->note_kept(f, d, kept, written_back, now);
}

/* Are there recalls for the step that are not done, and with which the device has not begun? Exact if the caller holds
 * the device's lock, because then no other thread begins; a hint otherwise. `recalling` is read before the state
 * machine: a thread that finds the bit cleared then finds the recall done there. */
FRUGAL_INTERNAL int awaits_recall(frugal *f, uint32_t d, uint64_t step) {
    /* [F25] pairs with [F24]: what the state machine knows */
    uint64_t begun = frugal_load_acquire(&f->devices[d].keeping.recalling) >> step % FRUGAL_P2F_SLOTS & 1;
    return frugal_p2f_is_recalled(f->p2f, d, step) && !begun; /* acquires that the device was attached */
}

/* Has the device recalls for its next step with which no thread has begun? For a device with `poll` the next step is
 * the one after the last that it was given. The caller holds its lock. */
static int find_recall(frugal *f, uint32_t d, recall *out) {
    const host_device *device = &f->devices[d];
    out->done = 1;
    /* [F6] pairs with [F5]: that the step before is committed, if it was for a device that has finished. For an older
     * step nothing is found. */
    out->step = frugal_load_acquire(&device->updated);
    if (!awaits_recall(f, d, out->step)) return 0;
    if (!device->ops.poll) return frugal_p2f_has_recall(f->p2f, d, &out->step);
    out->done = frugal_p2f_committed(f->p2f, d) >= out->step;
    return 1;
}

/* Writes back what is recalled from `d`, or begins to. The caller holds its lock. */
FRUGAL_INTERNAL frugal_status write_recalled(frugal *f, uint32_t d, const recall *r) {
    host_device *device = &f->devices[d];
    const uint32_t *rows = NULL;
    uint32_t n = frugal_p2f_recalls(f->p2f, d, r->step, &rows);
    if (n == 0) return FRUGAL_OK;
    if (n == UINT32_MAX) rows = NULL, n = 0; /* all rows, because steps were cancelled */
    return device->ops.poll ? device->ops.recall(device->state, r->step, r->done, rows, n)
                            : device->ops.write_back(device->state, rows, n);
}

/* A device has refused a recall. No call of its trainer can report that. So it is asked again, after a rest under its
 * lock, which slows down all threads that ask. If it refuses RECALL_ATTEMPTS times in a row, training ends as after a
 * loss, because its next gate would never open. But the device may be at work, and what it keeps is not gone: a drain
 * waits for it, and asks it to write back. The caller holds its lock. */
#define RECALL_ATTEMPTS 100
static void refuse_recall(frugal *f, uint32_t d, frugal_status status) {
    after_refusal(f, d, status, "recall");
    if (is_lost(f)) return;
    if (status == FRUGAL_STOPPED) return; /* the recall was given up */
    if (status != FRUGAL_ERR_STUCK && ++f->devices[d].keeping.refused < RECALL_ATTEMPTS) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return;
    }
    char text[sizeof last_message];
    if (status == FRUGAL_ERR_STUCK)
        snprintf(text, sizeof text, "a recall was not answered: %.200s", last_message);
    else
        snprintf(text, sizeof text, "it refused %d recalls in a row, at last with: %.200s", RECALL_ATTEMPTS,
                 last_message);
    lock_polling(f);
    end_training(f, d, text);
    pthread_mutex_unlock(&f->polling.lock);
}

/* Does the recalls of a device for its next step, if there are any; or makes a device with `poll` begin with them, and
 * polling finds out when they are done. The caller holds its lock, which is released here. */
static int recall_from(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    frugal_status status = FRUGAL_OK;
    recall r;
    uint64_t before = frugal_load_relaxed(&device->keeping.written_back); /* relaxed: under the lock */
    int news, any = find_recall(f, d, &r);
    /* [F22] pairs with [F23]: if keeping.now is 0 because the device is lost, the loss is known here */
    int keeps = any && device->keeps && (!r.done || frugal_load_acquire(&device->keeping.now) > 0);
    if (is_lost(f)) any = keeps = 0;
    device->keeping.is_recalled = 1;
    if (keeps) status = write_recalled(f, d, &r);
    device->keeping.is_recalled = 0;
    news = status != FRUGAL_OK && status != FRUGAL_AGAIN; /* it is tried again, or training ends */
    if (news)
        refuse_recall(f, d, status);
    else
        device->keeping.refused = 0;
    if (any && status == FRUGAL_OK) {
        if (keeps && device->ops.poll) {
            /* [F24] pairs with [F25]: begun */
            frugal_add_release(&device->keeping.recalling, UINT64_C(1) << r.step % FRUGAL_P2F_SLOTS);
            news = 1; /* it is to be polled, and a lookup may have waited for this (given_ready) */
        } else {
            /* A gate may open, or the lookup may be given that has waited for this. */
            news = frugal_p2f_recall_done(f->p2f, d, r.step) || device->ops.poll;
        }
    }
    if (any) /* relaxed: under the lock. A device with `poll` counts later. */
        trace_count(f, d, r.step,
                    device->ops.poll ? NO_COUNT : frugal_load_relaxed(&device->keeping.written_back) - before);
    pthread_mutex_unlock(&device->keeping.lock);
    if (news) event_notify(f->event);
    return any && status == FRUGAL_OK;
}

/* May find_recall find something? A hint, without the lock. */
static int may_recall(frugal *f, uint32_t d) {
    return awaits_recall(f, d, frugal_load_relaxed(&f->devices[d].updated)); /* relaxed: it is only a hint */
}

/* Does the recalls of one device. Returns 0 if none is to be done. A device whose lock another thread holds comes last;
 * then this thread waits for the lock, because no event would tell it to come back. The other thread is about to do the
 * same recalls, or is draining or reading, because the device is between two steps. */
FRUGAL_INTERNAL int recall_piece(frugal *f) {
    uint32_t held = f->desc.devices;
    if (f->desc.alone != FRUGAL_ALONE_KEPT || is_lost(f)) return 0;   /* after a loss no gate opens */
    if (f->shared.door && frugal_load_relaxed(&f->stopped)) return 0; /* nor after a stop; relaxed: a hint */
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        if (!may_recall(f, d)) continue;
        if (pthread_mutex_trylock(&f->devices[d].keeping.lock))
            held = d;
        else if (recall_from(f, d))
            return 1;
    }
    if (held == f->desc.devices) return 0;
    pthread_mutex_lock(&f->devices[held].keeping.lock);
    return recall_from(f, held);
}

/* No thread may be at a recall while steps are cancelled. Recalls that a device has begun go on, but are no longer
 * waited for: all that it keeps is recalled anew after the cancel. */
FRUGAL_INTERNAL void hold_recalls(frugal *f, uint64_t step) {
    for (uint32_t d = 0; d < f->desc.devices; d++) pthread_mutex_lock(&f->devices[d].keeping.lock);
    lock_polling(f);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t begun = frugal_load_relaxed(&f->devices[d].keeping.recalling); /* relaxed, both: under the two locks */
        if (frugal_load_relaxed(&f->devices[d].updated) == step) begun &= ~(UINT64_C(1) << step % FRUGAL_P2F_SLOTS);
        frugal_store_relaxed(&f->devices[d].keeping.recalling, begun);
    }
}
FRUGAL_INTERNAL void release_recalls(frugal *f) {
    pthread_mutex_unlock(&f->polling.lock);
    for (uint32_t d = f->desc.devices; d-- > 0;) pthread_mutex_unlock(&f->devices[d].keeping.lock);
}
