/* poll.c - devices that work on when a call has returned, as a GPU does; and the loss of one.
 *
 * What they have done is found by polling: a look at a word that the device writes. Whoever helps looks between two pieces
 * of work; and as long as something is outstanding, one of those that have nothing to do looks after it instead of
 * sleeping. What a device is through with is committed for it.
 */
#include "host.h"

/* Seconds: for so long a device's work is looked after without rest; the longest rest then; and that of those who could
 * look after it and find that another does. */
#ifndef FRUGAL_PRIV_POLL_RESTLESS /* tests in which no time passes rest at once */
#define FRUGAL_PRIV_POLL_RESTLESS 20e-6
#endif
#define FRUGAL_PRIV_POLL_RAREST   1e-3
#define FRUGAL_PRIV_POLL_OTHERS   200e-6

static int frugal_priv_is_outstanding(const frugal *f) {
    if (frugal_load_relaxed(&f->polled_devices) == 0 || frugal_load_relaxed(&f->lost)) return 0; /* relaxed: as at the field */
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* not attached before it has updated: [F6] pairs with [F5] */
        const frugal_priv_dev *dev = &f->devices[d];
        if (frugal_load_acquire(&dev->updated) > frugal_p2f_committed(f->p2f, d) && dev->ops.poll) return 1;
    }
    return 0;
}

/* Is a step still to be committed that all devices have updated? A device that waits for gates itself may be ahead of
 * others; what it is given beyond what they have is not awaited by who drains. Not asked of what is outstanding: nothing is,
 * while another thread is in the middle of the last commit. */
static int frugal_priv_is_owing(const frugal *f) {
    uint64_t updated = UINT64_MAX;
    if (frugal_load_relaxed(&f->polled_devices) == 0 || frugal_load_relaxed(&f->lost)) return 0; /* relaxed: as at the field */
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t own = frugal_load_relaxed(&f->devices[d].updated); /* relaxed: compared with the commit, which is acquired */
        updated = FRUGAL_PRIV_MIN(updated, own);
    }
    return frugal_p2f_all_committed(f->p2f) < updated;
}

static void frugal_priv_lose(frugal *f, uint32_t device) {
    snprintf(f->lost_message, sizeof f->lost_message, "%.250s", frugal_priv_message);
    frugal_store_release(&f->lost, device + 1); /* [F9] pairs with [F10] */
    frugal_priv_force_gates(f);
    frugal_priv_event_notify(f->event);
}

static frugal_status frugal_priv_lost(const frugal *f, const char *call) {
    char text[sizeof f->lost_message];
    memcpy(text, f->lost_message, sizeof text);
    return frugal_fail(FRUGAL_ERR_LOST, "%s: device %u was lost: %s", call, frugal_load_relaxed(&f->lost) - 1, text);
}

/* A call that a device refused: is it lost? Its trainer may not come again, and the others would wait for it. */
static frugal_status frugal_priv_refused(frugal *f, uint32_t device, frugal_status status, const char *call) {
    frugal_priv_dev *dev = &f->devices[device];
    char text[sizeof frugal_priv_message];
    uint64_t done;
    if (!dev->ops.poll || status == FRUGAL_ERR_ARGUMENT) return status;
    memcpy(text, frugal_priv_message, sizeof text);
    frugal_add_relaxed(&f->refusals, 1); /* relaxed, both: as at the field */
    frugal_priv_event_notify(f->event);  /* who polls lets go, and leaves the lock alone while it is wanted */
    pthread_mutex_lock(&f->poll_lock);
    frugal_add_relaxed(&f->refusals, (uint32_t)-1);
    if (!frugal_load_relaxed(&f->lost) && dev->ops.poll(dev->state, &done) != FRUGAL_OK) /* relaxed: under the lock */
        frugal_priv_lose(f, device);
    pthread_mutex_unlock(&f->poll_lock);
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, call); /* [F10] pairs with [F9] */
    memcpy(frugal_priv_message, text, sizeof text);
    return status;
}

/* Commits what devices are through with; 1 if there was any. The caller holds poll_lock. */
static int frugal_priv_poll_locked(frugal *f) {
    int any = 0, all = 0;
    for (uint32_t d = 0; d < f->desc.devices && !frugal_load_relaxed(&f->lost); d++) { /* relaxed: under the lock */
        frugal_priv_dev *dev = &f->devices[d];
        uint64_t committed = frugal_p2f_committed(f->p2f, d), done = 0;
        uint64_t updated = frugal_load_acquire(&dev->updated); /* [F6] pairs with [F5] */
        if (updated <= committed || !dev->ops.poll) continue;
        if (dev->ops.poll(dev->state, &done) != FRUGAL_OK) frugal_priv_lose(f, d);
        /* Looked at after the device's word: what it did beyond a gate that a stop forced open is not committed. */
        if (frugal_load_acquire(&f->stopped) || frugal_load_relaxed(&f->lost)) break; /* [F7] pairs with [F4] */
        /* It is through with one step at most: the gate of the next has waited for the commit. So its update has returned. */
        FRUGAL_ASSERT(done <= updated);
        for (; committed < done; committed++, any = 1) {
            int last_one = 0;
            frugal_status status =
                frugal_p2f_commit(f->p2f, d, committed, dev->brings[committed % FRUGAL_P2F_SLOTS], &last_one);
            /* Its gate was opened on paper by who had found it open before a cancel: the device is right about the rows, all
             * of which are flushed, and early. The commit waits. */
            if (status != FRUGAL_OK) break;
            all |= last_one;
        }
    }
    if (all) frugal_priv_event_notify(f->event); /* a step can be closed */
    return any;
}

static int frugal_priv_poll(frugal *f) {
    if (!frugal_priv_is_outstanding(f) || pthread_mutex_trylock(&f->poll_lock)) return 0;
    int any = frugal_priv_poll_locked(f);
    pthread_mutex_unlock(&f->poll_lock);
    return any;
}

/* Sleeps until told, or looks after what is outstanding: at first without rest, then the more rarely the longer it takes,
 * so that it is found late by a part of what it took. Who cannot look, since another does, sleeps not for long: the other
 * may go its way. */
static void frugal_priv_rest(frugal *f, uint32_t seen, double limit) {
    if (!frugal_priv_is_outstanding(f)) {
        frugal_priv_event_sleep(f->event, seen, limit);
        return;
    }
    if (frugal_load_relaxed(&f->refusals) || pthread_mutex_trylock(&f->poll_lock)) { /* relaxed: as at the field */
        frugal_priv_event_sleep(f->event, seen, FRUGAL_PRIV_MIN(limit, FRUGAL_PRIV_POLL_OTHERS));
        return;
    }
    double began = frugal_priv_now(), passed = 0;
    while (frugal_load_relaxed(&f->event->word) == seen && passed < limit && !frugal_priv_poll_locked(f)) {
        if (!frugal_priv_is_outstanding(f)) break; /* relaxed, above: all look again after it */
        if (passed > FRUGAL_PRIV_POLL_RESTLESS)
            frugal_priv_event_sleep(f->event, seen, FRUGAL_PRIV_MIN(passed / 4, FRUGAL_PRIV_POLL_RAREST));
        passed = frugal_priv_now() - began;
    }
    pthread_mutex_unlock(&f->poll_lock);
}
