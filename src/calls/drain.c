/* drain.c - stop, drain, cancel. */
#include "calls.h"

/* Steps that any device has announced, as far as this process knows. */
static uint64_t most_handed(frugal *f) {
    uint64_t most = frugal_p2f_get_progress(f->p2f).announced;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t handed = frugal_load_relaxed(&f->devices[d].handed); /* relaxed: the caller comes after the loaders */
        if (handed > most) most = handed;
    }
    return most;
}

FRUGAL_INTERNAL int is_idle(frugal *f) { /* drained, and nothing announced */
    return is_complete(f) && !has_posted_batch(f) && most_handed(f) <= frugal_p2f_closed(f->p2f);
}

FRUGAL_INTERNAL void stop_here(frugal *f) {
    frugal_add_release(&f->stopped, 1); /* [F4] with [F3]: why it was stopped; with [F7]: before gates are forced */
    force_gates(f);
    tell_end(f, END_STOPPED, "");
    event_notify(f->event);
}

void frugal_stop(frugal *f) {
    if (!f || !is_this_process(f->process)) return; /* a signal may come to a forked child, too */
    f->ops->stop(f);
}

static int drain_ready(frugal *f, const condition *what) {
    (void)what;
    return is_flushed(f);
}

FRUGAL_INTERNAL void drain_explain(frugal *f, const condition *what, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    (void)what;
    uint32_t writing = device_writing(f);
    if (is_lost(f) && writing < f->desc.devices) {
        snprintf(text, size, "device %u has not finished step %llu, which it updates in place", writing,
                 (unsigned long long)now.committed);
        return;
    }
    for (uint32_t d = 0; is_owing(f) && d < f->desc.devices; d++) /* only a step that all have updated is owed */
        if (!has_finished(f, d, now.committed) && frugal_p2f_committed(f->p2f, d) <= now.committed) {
            snprintf(text, size, "step %llu is not committed: device %u has not finished it",
                     (unsigned long long)now.committed, d);
            return;
        }
    snprintf(text, size, "%llu of %llu committed steps are closed, %lld rows are not flushed",
             (unsigned long long)now.closed, (unsigned long long)now.committed, (long long)now.pending);
}

/* Refuses a call that needs a drained instance, or, if `idle`, one in which nothing is announced, either. Nothing that
 * is announced needs to be cancelled for the others. */
FRUGAL_INTERNAL frugal_status fail_busy(frugal *f, const char *call, int idle) {
    const char *wanted = idle ? "a drained instance with nothing announced" : "a drained instance";
    char found[160] = "a device keeps updates in its cache";
    if (!is_flushed(f)) drain_explain(f, NULL, found, sizeof found);
    if (!is_complete(f) || !idle)
        return frugal_fail(FRUGAL_ERR_BUSY, "%s: wanted %s; %s: call frugal_drain first", call, wanted, found);
    return frugal_fail(FRUGAL_ERR_BUSY,
                       "%s: wanted %s; steps from %llu on are announced: train them, or drop them by frugal_cancel",
                       call, wanted, (unsigned long long)frugal_p2f_closed(f->p2f));
}

/* Waits until all committed steps are closed and flushed. */
static frugal_status flush_all(frugal *f, const char *call) {
    poll_devices(f); /* after a stop nobody else may */
    condition flushed = {drain_ready, drain_explain, 0, frugal_p2f_all_committed(f->p2f), call, 0};
    return wait_until(f, &flushed);
}

/* Waits until devices with `poll` have done what they were given, so that they can be asked for what they keep: while a
 * stream waits for a gate, nothing may be waited for that could be behind it. Refused if a device was given what waits
 * for others' updates. After a stop or a loss nobody waits at gates. */
static frugal_status settle_devices(frugal *f, const char *call) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = 0; d < f->desc.devices && status == FRUGAL_OK; d++) {
        const host_device *device = &f->devices[d];
        /* relaxed, both: the caller comes after lookup and update */
        uint64_t updated = frugal_load_relaxed(&device->updated), looked_up = frugal_load_relaxed(&device->looked_up);
        if (!is_attached(f, d) || !device->ops.poll) continue;
        uint64_t last = updated > looked_up ? updated : looked_up, all = frugal_p2f_all_committed(f->p2f);
        condition own = {own_ready, drain_explain, d, updated, call, 1};
        condition gate = {gate_ready, gate_explain, d, updated, call, 1};
        /* Relaxed, both: no gate is waited for then, and what the device did is asked of the device. */
        if (is_lost(f) || frugal_load_relaxed(&f->stopped)) break;
        if (last > all + 1) return fail_given(call, d, last - 1);
        status = wait_until(f, &own);
        if (status == FRUGAL_OK && looked_up > updated) status = wait_until(f, &gate);
    }
    open_gates(f);
    return status == FRUGAL_ERR_LOST || status == FRUGAL_STOPPED ? FRUGAL_OK : status;
}

/* Has the device write back rows[n], or all that it keeps if `rows` is NULL. */
FRUGAL_INTERNAL frugal_status write_back(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n, const char *call) {
    host_device *device = &f->devices[d];
    if (!is_attached(f, d)) return FRUGAL_OK;
    int polled = device->ops.poll != NULL; /* then how much it keeps is known from polling */
    if (!device->keeps || frugal_load_acquire(&device->done) == UINT64_MAX) return FRUGAL_OK; /* [F18] with [F17] */
    frugal_status status = polled ? settle_devices(f, call) : FRUGAL_OK;
    if (status != FRUGAL_OK) return status;
    hold_copies(device);
    if (polled || frugal_load_relaxed(&device->keeping.now) > 0) /* relaxed: under the lock */
        status = device->ops.write_back(device->state, rows, n);
    release_copies(device);
    if (status != FRUGAL_OK) return after_refusal(f, d, status, call);
    if (polled) check_device_lost(f, d);
    return status;
}

/* One that fails does not keep the others from it. */
static frugal_status write_back_all(frugal *f, const char *call) {
    frugal_status first = FRUGAL_OK;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        frugal_status status = write_back(f, d, NULL, 0, call);
        if (first == FRUGAL_OK) first = status;
    }
    return first;
}

/* The updates of a step that `d` has updated, by unique row: 0 if it brought no gradients. */
static uint64_t rows_brought(const frugal *f, uint32_t d, uint64_t step) {
    return f->devices[d].brings[step % FRUGAL_P2F_SLOTS] ? batch_at(f, d, step)->n_unique : 0;
}

/* Before an instance is closed: tells what is lost because it was not drained. After a loss, calls have said more. No
 * thread works on it any more. Relaxed, all: as above. */
FRUGAL_INTERNAL void tell_undrained(frugal *f) {
    if (!f->opened || !f->ops->owns || is_lost(f)) return;
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    uint64_t steps = 0, last = now.closed, rows = now.pending > 0 ? (uint64_t)now.pending : 0, kept = 0;
    for (uint64_t back = 1; back <= f->desc.staging && back <= now.closed - f->desc.first_step; back++)
        steps += frugal_p2f_unflushed(f->p2f, now.closed - back) > 0;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t updated = updated_itself(&f->devices[d]);
        for (uint64_t s = now.closed; s < updated; s++) rows += rows_brought(f, d, s);
        if (updated > last) last = updated;
        kept += frugal_load_relaxed(&f->devices[d].keeping.now);
    }
    steps += last - now.closed;
    if (rows > 0)
        give_notice(f,
                    "close: %llu steps were not drained: updates of up to %llu rows are lost%s; call frugal_drain "
                    "before the table is used, saved or closed",
                    (unsigned long long)steps, (unsigned long long)rows,
                    f->file ? ", and the table's file is torn" : "");
    if (kept > 0)
        give_notice(f,
                    "close: devices keep updates of %llu rows, which are lost, because the instance was not drained "
                    "(FRUGAL_ALONE_KEPT)%s; call frugal_drain before",
                    (unsigned long long)kept, f->file ? ", and the table's file is torn" : "");
}

/* Tells of steps that have trained nothing. */
FRUGAL_INTERNAL void tell_idle_steps(frugal *f) {
    unsigned long long idle = frugal_load_relaxed(&f->work.idle_steps); /* relaxed: a statistic */
    if (f->opened && idle > 0)
        give_notice(f, "close: %llu steps had gradients and a learning rate of 0, and changed no weight", idle);
}

static frugal_status drain_all(frugal *f) {
    frugal_status status = flush_all(f, "drain");
    frugal_status written = write_back_all(f, "drain"); /* also after a stop, and in the middle of a step */
    if (status == FRUGAL_OK) status = written;
    if (status == FRUGAL_OK && has_lost_rows(f)) return fail_lost(f, "drain"); /* the rest is drained */
    return status == FRUGAL_OK ? check_ahead(f, "drain") : status;
}

/* Do other machines take part in what this one calls? After a stop or a loss each is alone. */
static int talks(const frugal *f) {
    return f->talks && !is_lost(f) && !frugal_load_relaxed(&f->stopped); /* relaxed: only what is waited for */
}

frugal_status frugal_drain(frugal *f) {
    frugal_status status = check_owner(f, "drain");
    if (status != FRUGAL_OK) return status;
    trace_ring *claimed = trace_claim(f);
    double began = clock_now();
    frugal_status gathered = talks(f) ? f->talks->gather(f, 0) : FRUGAL_OK;
    status = drain_all(f);
    if (gathered == FRUGAL_OK && talks(f)) gathered = f->talks->drained(f);
    if (status == FRUGAL_OK) status = gathered;
    trace_call(f, TRACE_DRAIN, began, NO_COUNT);
    trace_release(claimed);
    return status;
}

static int settled_ready(frugal *f, const condition *what) {
    (void)what;
    return is_settled(f);
}

static void settled_explain(frugal *f, const condition *what, char *text, size_t size) {
    (void)f, (void)what;
    snprintf(text, size, "batches that are announced are not sorted, or their steps not planned");
}

/* Waits until what is announced is counted, as far as it can be: not what a lost device was sorting, nor steps behind a
 * key that is too large, or that not all devices have announced. */
FRUGAL_INTERNAL void settle_counts(frugal *f) {
    condition settled = {settled_ready, settled_explain, 0, frugal_p2f_closed(f->p2f), "counts", 1};
    if (!is_counting(f) || !f->ops->owns) return;
    wait_announcing(f);
    wait_until(f, &settled);
    end_wait_announcing(f);
}

/* Until release_announcing nothing is sorted, planned and counted; waits for those at it, but not in a process that has
 * joined, where nobody is. */
FRUGAL_INTERNAL void hold_announcing_now(frugal *f) {
    hold_announcing(f);
    while (f->ops->owns) {
        uint32_t seen = event_prepare(f->event);
        if (announcing_is_over(f)) return;
        event_sleep(f->event, seen, FOREVER);
    }
}

/* No other thread sorts, gives batches, or works on a piece of a plan. This stays so, because none may begin. So this
 * one plans, and counts, what is sealed. */
static int cancel_ready(frugal *f, const condition *what) {
    (void)what;
    if (!announcing_is_over(f)) return 0;
    while (plan_piece(f)) continue;
    return !frugal_p2f_has_plans(f->p2f);
}

static void cancel_explain(frugal *f, const condition *what, char *text, size_t size) {
    (void)f, (void)what;
    snprintf(text, size, "a thread that is sorting or planning has not finished");
}

/* Cancels in the state machine, from `announced` on, because it may not have all batches yet; and takes back gates that
 * were published. The lock keeps a thread that has tested a gate before from publishing it after: a device would pass
 * it before the steps that are announced anew are planned. */
static frugal_status cancel_steps(frugal *f, uint64_t step, uint64_t announced) {
    pthread_mutex_lock(&f->gates_lock);
    hold_recalls(f, step);
    pthread_mutex_lock(
        &f->finishing.lock); /* nobody acts for who has finished; after polling.lock, as where a poll commits */
    frugal_status status = frugal_p2f_cancel(f->p2f, announced);
    if (status == FRUGAL_OK) cancel_finished(f, step);
    pthread_mutex_unlock(&f->finishing.lock);
    if (status == FRUGAL_OK) take_back_gates(f->gates, step);
    for (uint32_t d = 0; status == FRUGAL_OK && f->shared.door && d < f->desc.devices; d++)
        if (is_attached(f, d) && f->devices[d].gates) take_back_gates(f->devices[d].gates, step);
    release_recalls(f);
    pthread_mutex_unlock(&f->gates_lock);
    return status;
}

/* While no other thread serves posts of other processes. */
static frugal_status cancel_held(frugal *f, uint64_t step) {
    /* The queue is emptied first, so that its number of pages stays within bounds however often steps are cancelled. */
    frugal_status status = flush_all(f, "cancel");
    if (status != FRUGAL_OK) return status;
    while (flush_page(f, UINT64_MAX, 0)) {
    }
    condition held = {cancel_ready, cancel_explain, 0, step, "cancel", 0};
    if ((status = wait_until(f, &held)) != FRUGAL_OK) return status;
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    uint64_t most = most_handed(f);
    status = step > most ? FRUGAL_ERR_ORDER : cancel_steps(f, step, LEAST(step, now.announced));
    if (status != FRUGAL_OK)
        return frugal_fail(status, "cancel from step %llu; it must be a step from %llu to %llu",
                           (unsigned long long)step, (unsigned long long)now.closed, (unsigned long long)most);
    cancel_clocks(f, step, now.sealed);
    cancel_ahead(f, step);
    drop_batches(f, step);
    if (f->shared.posts) f->shared.posts->drop(f, step);
    return FRUGAL_OK;
}

frugal_status frugal_cancel(frugal *f, uint64_t step) {
    frugal_status status = check_owner(f, "cancel");
    if (status != FRUGAL_OK) return status;
    if (f->talks)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "cancel: not where a table is dealt over machines: train what is announced");
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t looked_up = frugal_load_relaxed(&f->devices[d].looked_up); /* relaxed: no lookup is under way */
        if (looked_up > step) return fail_order("cancel", d, step, "be looked up", looked_up);
    }
    if (f->shared.posts) f->shared.posts->hold(f);
    settle_counts(f); /* whatever the time, the same touches are counted */
    hold_announcing(f);
    for (uint32_t d = 0; d < f->desc.devices; d++) pthread_mutex_lock(&f->devices[d].telling);
    status = cancel_held(f, step);
    for (uint32_t d = f->desc.devices; d-- > 0;) pthread_mutex_unlock(&f->devices[d].telling);
    release_announcing(f);
    if (f->shared.posts) f->shared.posts->release(f);
    if (status != FRUGAL_OK) return status;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        if (is_attached(f, d) && device->ops.cancelled) device->ops.cancelled(device->state);
    }
    return FRUGAL_OK;
}
