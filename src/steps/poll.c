/* poll.c - devices that go on working after a call has returned, as a GPU does; and the loss of such a device.
 *
 * Polling finds out what they have done: it reads a word that the device writes. A thread that helps polls between two
 * pieces of work. As long as work of a device is outstanding, one of the idle threads polls instead of sleeping. The
 * thread that finds a step done commits it for the device.
 */
#include "steps.h"

/* Does a device of another process update, or is it in the middle of a call? A process that has ended is not. */
FRUGAL_INTERNAL int is_posting(const frugal *f, uint32_t d) {
    mailbox *mail = f->shared.door ? f->devices[d].box : NULL;
    /* [F36] acquire: what was written; pairs with itself */
    return mail && frugal_load_acquire(&mail->state) >= MAIL_WRITER;
}

/* Has a device of another process posted an update that no thread has taken yet? After a loss no thread takes it. Posts
 * are read relaxed, here and in the next function, because the caller comes after them; what was taken is acquired with
 * the progress. */
static int has_posted_update(const frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        mailbox *mail = f->devices[d].box;
        if (mail && frugal_load_relaxed(&mail->updated) > frugal_load_acquire(&mail->committed)) return 1; /* [F35] */
    }
    return 0;
}

/* The same for announcements. */
FRUGAL_INTERNAL int has_posted_batch(const frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        mailbox *mail = f->devices[d].box;
        if (mail && frugal_load_relaxed(&mail->announced) > frugal_load_acquire(&mail->taken)) return 1; /* [F35] */
    }
    return 0;
}

/* Tells processes that have joined that training has ended, and devices there that they must not begin to write. Of
 * several ends the first counts. */
FRUGAL_INTERNAL void tell_end(frugal *f, region_end end, const char *text) {
    if (!f->shared.door) return;
    pthread_mutex_lock(&f->finishing.lock);
    if (frugal_load_relaxed(&f->shared.region->ended) == END_NONE) { /* relaxed, both: under the lock */
        f->shared.region->lost = frugal_load_relaxed(&f->loss.device);
        copy_text(f->shared.region->ended_text, sizeof f->shared.region->ended_text, text);
        frugal_store_release(&f->shared.region->ended, end); /* [F37] pairs with [F38] */
        /* [F36] release: a device that finds the bit finds `ended`; acquire: one that has begun before may have a
         * stream that waits for a gate, and its word is found here; pairs with itself */
        for (uint32_t d = 0; d < f->desc.devices; d++) {
            host_device *device = &f->devices[d];
            frugal_add_acq_rel(&device->box->state, MAIL_ENDED);
            if (frugal_load_acquire(&device->linked) && device->gates) /* [F41] pairs with [F42] */
                force_word(f, device->gates);
        }
    }
    pthread_mutex_unlock(&f->finishing.lock);
    for (uint32_t d = 0; d < f->desc.devices; d++) event_notify(&f->devices[d].box->bell);
}

/* After a loss: the device whose update may still be writing rows in place; `devices`: none. The update is not
 * committed any more, but a thread that reads the table must wait until the device has done it. */
FRUGAL_INTERNAL uint32_t device_writing(const frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        const host_device *device = &f->devices[d];
        if (is_posting(f, d)) return d;
        uint64_t updated = updated_itself(device);                           /* orders ops, too */
        if (frugal_load_acquire(&device->done) >= updated) continue;         /* [F18] pairs with [F17] */
        if (device->in_place && device->ops.poll && !device->mail) return d; /* elsewhere it counts as a writer */
    }
    return f->desc.devices;
}

/* Relaxed, all: a device attaches before its first step, and who polls asks again, under the lock, whether one is
 * lost. */
static int is_polled(const frugal *f) {
    return frugal_load_relaxed(&f->polling.devices) > 0;
}
FRUGAL_INTERNAL int is_lost(const frugal *f) {
    return frugal_load_relaxed(&f->loss.device) != 0;
}
static int is_writing(const frugal *f) {
    return device_writing(f) < f->desc.devices;
}

/* Is there work of a device that is not committed yet, or, after a loss, not done? */
FRUGAL_INTERNAL int is_uncommitted(const frugal *f) {
    if (is_lost(f)) return is_writing(f);
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* orders the read of ops: [F6] pairs with [F5] */
        const host_device *device = &f->devices[d];
        if (frugal_load_acquire(&device->away)) return 1; /* [F68] pairs with [F67] */
        if (frugal_load_acquire(&device->updated) > frugal_p2f_committed(f->p2f, d) && device->ops.poll) return 1;
        if (frugal_load_relaxed(&device->keeping.recalling)) return 1; /* relaxed: a thread that polls acquires */
    }
    return 0;
}

/* Is there such work of a device of this process? */
FRUGAL_INTERNAL int is_outstanding(const frugal *f) {
    return is_polled(f) && f->ops->is_outstanding(f);
}

/* Is there a step that all devices have updated and that is not committed yet; or, after a loss, one whose rows are
 * still being written? A device that waits for gates itself may be ahead of others; a drain does not wait for the steps
 * that the others have not been given. is_outstanding cannot answer this, because nothing is outstanding while another
 * thread is in the middle of the last commit. */
FRUGAL_INTERNAL int is_owing(const frugal *f) {
    int trains = 0;
    /* [F10] pairs with [F9]: what was committed just before the loss */
    if (frugal_load_acquire(&f->loss.device)) return (is_polled(f) || f->shared.door) && is_writing(f);
    if (!frugal_load_relaxed(&f->stopped) && has_posted_update(f)) return 1; /* relaxed: no thread takes it any more */
    if (!is_polled(f)) return 0;
    uint64_t next = frugal_p2f_all_committed(f->p2f);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        if (has_finished(f, d, next)) continue;
        if (frugal_load_relaxed(&f->devices[d].updated) <= next) return 0; /* relaxed: the commit is acquired */
        trains = 1;
    }
    return trains;
}

/* Are all committed steps closed, and all their updates applied? */
FRUGAL_INTERNAL int is_flushed(frugal *f) {
    if (is_owing(f)) return 0; /* read before the progress, which then includes that commit */
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    return now.closed == now.committed && now.pending == 0;
}

/* A device that has updated rows in place in a step that not all devices have committed; `devices`: none. While there
 * is one, the table is of two steps. Between calls of update. */
FRUGAL_INTERNAL uint32_t device_ahead(frugal *f) {
    uint64_t committed = frugal_p2f_all_committed(f->p2f);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        const host_device *device = &f->devices[d];
        uint64_t updated = frugal_load_relaxed(&device->updated); /* relaxed: the caller comes after the update */
        for (uint64_t t = committed; t < updated && device->in_place; t++)
            if (device->brings[t % FRUGAL_P2F_SLOTS]) return d;
        mailbox *mail = f->shared.door ? device->box : NULL; /* posted, and not taken */
        if (mail && frugal_load_relaxed(&mail->updated) > updated && device->in_place && mail->brings) return d;
    }
    return f->desc.devices;
}

/* For calls that read the table: refuses in the middle of a step. After a loss the step cannot be finished, and the
 * table is read as it is, once no device writes any more. A loss that happens just now may not be known yet. */
FRUGAL_INTERNAL frugal_status check_ahead(frugal *f, const char *call) {
    static const char late[] = "%s: after a loss, device %u is still writing rows: call frugal_drain first";
    uint32_t d = device_ahead(f);
    if (is_lost(f)) return is_writing(f) ? frugal_fail(FRUGAL_ERR_BUSY, late, call, device_writing(f)) : FRUGAL_OK;
    if (d == f->desc.devices) return FRUGAL_OK;
    return fail_ahead(call, d, frugal_p2f_all_committed(f->p2f));
}

/* Is the gate of a step no more than the order in which the device does its steps? Then it is given a lookup once it
 * has been given the update before. So it is with a device that goes on working after a call has returned, if nothing
 * is left to do on the host between its steps (frugal_p2f.h, section 4), and if it waits for no gate itself. */
FRUGAL_INTERNAL int is_in_order(const frugal *f, uint32_t d) {
    const frugal_device_ops *ops = &f->devices[d].ops;
    if (!ops->poll || frugal_p2f_has_words(f->p2f)) return 0;
    return !ops->waits_for_gate || !ops->waits_for_gate(f->devices[d].state);
}

static int poll_device(frugal *f, uint32_t d, int is_ending, int *last);

/* Commits what devices have done, even if no poll has found it yet. The caller holds polling.lock. */
static void commit_done(frugal *f) {
    int last = 0;                                                      /* not used: the loss wakes all threads */
    if (frugal_load_relaxed(&f->loss.device) || !f->ops->owns) return; /* relaxed: under the lock */
    for (uint32_t d = 0; d < f->desc.devices; d++) poll_device(f, d, 1, &last);
}

/* Ends training, because of the device; `text` says why. Of several losses, calls report the first. The caller holds
 * polling.lock. */
FRUGAL_INTERNAL void end_training(frugal *f, uint32_t d, const char *text) {
    if (frugal_load_relaxed(&f->loss.device)) return; /* relaxed: under the lock */
    commit_done(f);                                   /* after a loss nothing is committed */
    copy_text(f->loss.message, sizeof f->loss.message, text);
    frugal_store_release(&f->loss.device, d + 1); /* [F9] pairs with [F10] */
    force_gates(f);
    tell_end(f, END_LOST, text);
    if (f->ops->note_loss) f->ops->note_loss(f, d, text);
}

/* The device's poll has failed, and the message says why. The device does nothing any more, and what it keeps is gone.
 * The caller holds polling.lock. */
FRUGAL_INTERNAL void lose_device(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    char text[sizeof last_message];
    memcpy(text, last_message, sizeof text);
    commit_done(f); /* before kept rows are counted, because a step that is committed now may have kept some */
    /* relaxed, both: published by loss.device, or by `done`, which is read if another device was lost first */
    frugal_add_relaxed(&f->loss.kept, frugal_load_relaxed(&device->keeping.now));
    end_training(f, d, text);
    frugal_store_release(&device->keeping.now, 0);   /* [F23] pairs with [F22]: that it is lost */
    frugal_store_release(&device->done, UINT64_MAX); /* [F17] pairs with [F18]: that it is lost, and what it kept */
    event_notify(f->event);
}

FRUGAL_INTERNAL frugal_status fail_lost(const frugal *f, const char *call) {
    char text[sizeof f->loss.message], kept[96] = "";
    unsigned long long rows = frugal_load_relaxed(&f->loss.kept); /* relaxed: that of a later loss may come late */
    memcpy(text, f->loss.message, sizeof text);
    if (frugal_load_relaxed(&f->loss.device) == NOT_A_DEVICE) return frugal_fail(FRUGAL_ERR_LOST, "%s: %s", call, text);
    if (rows > 0)
        snprintf(kept, sizeof kept, ", and with the caches of lost devices the last updates of %llu rows", rows);
    return frugal_fail(FRUGAL_ERR_LOST, "%s: device %u was lost%s: %s", call, frugal_load_relaxed(&f->loss.device) - 1,
                       kept, text);
}

/* What threads that poll sleep on: in a process that has joined, one of its own. */
FRUGAL_INTERNAL host_event *polling_event(frugal *f) {
    return f->ops->owns ? f->event : &f->own_event;
}

/* Takes polling.lock, which a polling thread holds while it rests. */
FRUGAL_INTERNAL void lock_polling(frugal *f) {
    frugal_add_relaxed(&f->polling.wanted, 1); /* relaxed, both: the event tells of it */
    event_notify(polling_event(f));            /* the polling thread releases the lock while others want it */
    pthread_mutex_lock(&f->polling.lock);
    frugal_add_relaxed(&f->polling.wanted, (uint32_t)-1);
}

/* Polls a device, unless it is known to be lost: then the number of rows that it kept is known, too. */
FRUGAL_INTERNAL void check_device_lost(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    uint64_t done;
    lock_polling(f);
    int known = frugal_load_relaxed(&device->done) == UINT64_MAX; /* relaxed: under the lock */
    if (!known && device->ops.poll(device->state, &done) != FRUGAL_OK) lose_device(f, d);
    pthread_mutex_unlock(&f->polling.lock);
}

/* A device has refused a call: is the device lost? This is asked at once, because its trainer may not call again, and
 * the other devices would wait for it. */
FRUGAL_INTERNAL frugal_status after_refusal(frugal *f, uint32_t d, frugal_status status, const char *call) {
    char text[sizeof last_message];
    if (!f->devices[d].ops.poll || status == FRUGAL_ERR_ARGUMENT) return status;
    memcpy(text, last_message, sizeof text);
    check_device_lost(f, d);
    if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, call); /* [F10] pairs with [F9] */
    memcpy(last_message, text, sizeof text);
    return status;
}

/* After a loss: finds out whether the other devices have done their updates in place. Nothing is committed. Returns 1
 * if any has. The caller holds polling.lock. */
static int poll_writing(frugal *f) {
    int any = 0;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        uint64_t updated = updated_itself(device), done = 0;
        if (frugal_load_relaxed(&device->done) >= updated) continue; /* relaxed: written under the lock */
        if (!device->ops.poll || device->mail) continue;
        if (device->ops.poll(device->state, &done) != FRUGAL_OK)
            lose_device(f, d); /* it is lost, too */
        else if (done < updated)
            continue;
        else
            frugal_store_release(&device->done, done); /* [F17] pairs with [F18] */
        any = 1;
    }
    if (any) event_notify(f->event); /* the table may be read */
    return any;
}

/* Has the device done the recalls that it has begun? Then the state machine is told; *last becomes 1 if a gate may open
 * now. The caller holds polling.lock. */
static int poll_recall(frugal *f, uint32_t d, int *last) {
    host_device *device = &f->devices[d];
    uint64_t recalling = frugal_load_acquire(&device->keeping.recalling); /* [F25] pairs with [F24]: what was begun */
    int any = 0;
    for (uint64_t t = frugal_p2f_committed(f->p2f, d); recalling; t++) { /* no recall is of an earlier step */
        uint64_t bit = UINT64_C(1) << t % FRUGAL_P2F_SLOTS;
        if (!(recalling & bit)) continue;
        if (!device->ops.recalled(device->state, t)) break;
        recalling &= ~bit, any = 1;
        *last |= frugal_p2f_recall_done(f->p2f, d, t);
        frugal_add_release(&device->keeping.recalling, -bit); /* [F24] pairs with [F25]: the state machine knows */
    }
    return any;
}

/* A batch has a key that is too large. The step cannot begin: calls that would wait for it fail. */
static void refuse_step(frugal *f, host_batch *b) {
    frugal_store_relaxed(&b->stage, BATCH_BAD); /* relaxed, both: published by `bad`, which is under polling.lock */
    if (b->step < frugal_load_relaxed(&f->sorting.bad))
        frugal_store_release(&f->sorting.bad, b->step); /* [F65] pairs with [F66] */
}

/* Has the device sorted more of its batches? Then the state machine is given them. Returns 1 if there was any. The
 * caller holds polling.lock. */
static int find_batches(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    int any = 0;
    if (!begin_announcing(f)) return 0;
    uint64_t handed = frugal_load_acquire(&device->handed); /* [F59] pairs with [F60] */
    for (uint64_t t = frugal_p2f_announced(f->p2f, d); t < handed; t++) {
        host_batch *b = batch_at(f, d, t);
        if (frugal_load_acquire(&b->stage) != BATCH_AWAY) continue; /* [F59] as above */
        frugal_status status = device->ops.sorted(device->state, t, &b->n_unique);
        if (status == FRUGAL_AGAIN) break; /* it sorts them one after the other */
        any = 1, b->n_own = b->n_unique;
        frugal_add_relaxed(&device->away, (uint32_t)-1); /* relaxed: a hint */
        if (status == FRUGAL_OK)
            end_batch(b);
        else
            refuse_step(f, b);
    }
    if (any) give_batches(f, d);
    if (any) announce_finished(f);
    end_announcing(f);
    if (!any) return 0;
    event_notify(f->event); /* the step may be sealed now, or is refused */
    wake_teller(f);
    return 1;
}

/* Must the step wait for a cancel, because of a key? */
FRUGAL_INTERNAL int is_refused(frugal *f, uint64_t step) {
    return step >= frugal_load_acquire(&f->sorting.bad); /* [F66] pairs with [F65] */
}

/* Says which key. */
FRUGAL_INTERNAL frugal_status fail_refused(frugal *f) {
    uint64_t step = frugal_load_acquire(&f->sorting.bad); /* [F66] pairs with [F65] */
    uint32_t d = 0, n;
    while (d + 1 < f->desc.devices && frugal_load_relaxed(&batch_at(f, d, step)->stage) != BATCH_BAD) d++;
    return f->devices[d].ops.sorted(f->devices[d].state, step, &n);
}

/* Commits the steps that the device has done, and takes the batches that it has sorted. Returns 1 if there was any;
 * *last becomes 1 if a step can be closed now, or a gate may open. `is_ending`: training ends anyway, because of this
 * device or of another one; if this one is lost, too, that is found out later. The caller holds polling.lock. */
static int poll_device(frugal *f, uint32_t d, int is_ending, int *last) {
    host_device *device = &f->devices[d];
    uint64_t committed = frugal_p2f_committed(f->p2f, d), done = 0;
    uint64_t updated = frugal_load_acquire(&device->updated);           /* [F6] pairs with [F5] */
    int recalls = frugal_load_relaxed(&device->keeping.recalling) != 0; /* relaxed: poll_recall acquires */
    int any = 0, away = frugal_load_acquire(&device->away) != 0;        /* [F68] pairs with [F67] */
    if ((updated <= committed && !recalls && !away) || !device->ops.poll) return 0;
    if (device->ops.poll(device->state, &done) != FRUGAL_OK && !is_ending) lose_device(f, d);
    if (frugal_load_relaxed(&f->loss.device)) return 0;
    if (away && !is_ending) any |= find_batches(f, d);
    /* `stopped` is read after the device's word, so that work behind a gate that a stop forced open is not committed.
     * A device that does its steps in order passes no such gates, and what it was given is committed. */
    if (frugal_load_acquire(&f->stopped) && !is_in_order(f, d)) return any; /* [F7] pairs with [F4] */
    /* Its update may not have returned yet, if only recalls were outstanding: then the step is committed later. */
    done = LEAST(done, updated);
    if (recalls) any |= poll_recall(f, d, last);
    for (; committed < done; committed++, any = 1) {
        int last_one = 0;
        frugal_status status = commit_device(f, d, committed, device->brings[committed % FRUGAL_P2F_SLOTS], &last_one);
        if (status != FRUGAL_OK) break; /* the device was done before the gate opened: committed later */
        /* At once, because the next device may be found lost: then the step that this one ends is whole already. */
        *last |= last_one | commit_finished(f);
    }
    if (device->guests && any) wake_machines(f); /* records can leave */
    return any;
}

/* Commits the steps that devices have done. Returns 1 if there was any. The caller holds polling.lock. */
FRUGAL_INTERNAL int commit_polled(frugal *f) {
    if (is_lost(f)) return poll_writing(f);
    int any = 0, last = 0;
    for (uint32_t d = 0; d < f->desc.devices && !is_lost(f); d++) any |= poll_device(f, d, 0, &last);
    if (last) event_notify(f->event); /* a step can be closed, or a gate may open */
    return any;
}

FRUGAL_INTERNAL int poll_devices(frugal *f) {
    if (!is_outstanding(f) || pthread_mutex_trylock(&f->polling.lock)) return 0;
    int any = f->ops->poll(f);
    pthread_mutex_unlock(&f->polling.lock);
    return any;
}

/* Sleeps until notified, or polls while work is outstanding: at first without rests, then with rests of a quarter of
 * the time that has passed, so that the delay is only a part of that time. A thread that cannot poll because another
 * one does sleeps only for a short time, because the other may stop polling. */
FRUGAL_INTERNAL void rest(frugal *f, uint32_t seen, double limit) {
    host_event *event = polling_event(f);
    if (!is_outstanding(f)) {
        event_sleep(event, seen, limit);
        return;
    }
    if (frugal_load_relaxed(&f->polling.wanted) || pthread_mutex_trylock(&f->polling.lock)) { /* relaxed: a hint */
        event_sleep(event, seen, LEAST(limit, POLL_OTHERS));
        return;
    }
    double began = clock_now(), passed = 0;
    while (frugal_load_relaxed(&event->word) == seen && passed < limit && !f->ops->poll(f)) {
        if (!is_outstanding(f)) break; /* relaxed, above: callers check again */
        if (passed > POLL_RESTLESS) event_sleep(event, seen, LEAST(passed / 4, POLL_RAREST));
        passed = clock_now() - began;
    }
    pthread_mutex_unlock(&f->polling.lock);
}
