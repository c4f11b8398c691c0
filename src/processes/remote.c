/* remote.c - a device of another process, in the process that opened the instance: its posts are served, and operations
 * that reach into its cache are sent there.
 *
 * To the rest of the host such a device is like any other. Threads that help serve its posts (help.c): they announce
 * its batches, open its gates, commit its updates, with the calls that a trainer here would make. So whatever holds for
 * those calls holds for the device, too, and a wait costs no thread. One thread at a time serves a device. If the
 * process of a device ends, door.c ends training, as after the loss of a GPU, unless the others can do without the
 * device.
 *
 * Contents: >>calls >>operations >>posts >>holding
 */
#include "processes.h"

#if HAS_PROCESSES

/* The device if it is one of another process; else NULL. */
FRUGAL_INTERNAL remote *remote_of(const frugal *f, uint32_t d) {
    return frugal_load_acquire(&f->devices[d].linked) ? f->devices[d].remote : NULL; /* [F41] pairs with [F42] */
}

static int is_gone(const remote *r) {
    return frugal_load_acquire(&r->member->gone) != 0; /* [F39] pairs with [F40]: what it has left in the mailbox */
}

/* Counts what the device has kept and written back since the last count: under the device's lock, or polling.lock if it
 * has `poll`. */
FRUGAL_INTERNAL void count_remote_kept(remote *r) {
    uint64_t kept = frugal_load_relaxed(&r->mail->kept); /* relaxed, all: a post, a reply or an end was acquired */
    uint64_t written = frugal_load_relaxed(&r->mail->written_back);
    frugal_count_kept(r->f, r->d, kept - r->kept, written - r->written_back, frugal_load_relaxed(&r->mail->kept_now));
    r->kept = kept, r->written_back = written;
}

/* >>calls - to the device's process, which answers in the mailbox */

#define SILENT_FORMAT "process %u, which has device %u, has not answered for %.3g s; is it stopped?"

/* Waits until the call of that number is answered. Returns 0 if it is not: the process is gone, or *status says why. A
 * recall is given up when training ends: no gate waits for it then. */
static int await_answer(remote *r, uint64_t number, int is_recall, frugal_status *status) {
    frugal *f = r->f;
    double start = clock_now(), tells = notice_seconds(f);
    for (;;) {
        uint32_t seen = event_prepare(f->event);
        double waited = clock_now() - start;
        double limit = f->desc.stuck_seconds, left = limit < 0 ? FOREVER : limit - waited;
        if (frugal_load_acquire(&r->mail->replies) == number) return 1; /* [F35] pairs with [F34] */
        if (is_gone(r)) return 0;
        if (is_recall &&
            frugal_load_relaxed(&f->shared.region->ended) != END_NONE) { /* relaxed: the reason is not read */
            *status = frugal_fail(FRUGAL_STOPPED, "a recall of device %u was given up: training has ended", r->d);
            return 0;
        }
        if (left <= 0) {
            *status = frugal_fail(FRUGAL_ERR_STUCK, SILENT_FORMAT, r->member->process, r->d, limit);
            return 0;
        }
        if (waited >= tells) {
            tells = tell_wait(f, tells, SILENT_FORMAT, r->member->process, r->d, tells);
            continue;
        }
        event_sleep(f->event, seen, LEAST(left, tells - waited));
    }
}

/* Sends a call and waits for the answer. A process that has left, or has ended, answers nothing more: then OK is
 * returned, and its loss is reported elsewhere. A call that was given up earlier is waited for first, because both use
 * the same places in the mailbox. */
static frugal_status make_call(remote *r, message *m, const uint32_t *rows) {
    call_kind call = (call_kind)m->call;
    mailbox *mail = r->mail;
    frugal_status status = FRUGAL_OK;
    /* callers of write_back and recall hold keeping.lock */
    int is_recall = (call == CALL_WRITE_BACK || call == CALL_RECALL) && r->f->devices[r->d].keeping.is_recalled;
    pthread_mutex_lock(&r->calling);
    if (await_answer(r, r->calls, is_recall, &status)) {
        if (rows) memcpy(mail->call_rows, rows, m->n * sizeof *rows);
        m->number = ++r->calls;
        pthread_mutex_lock(&r->member->sending);
        /* If this fails, the process ends, which is noticed, or it reads nothing, and the answer is missed below. */
        if (!is_gone(r)) send_message(r->member->socket, m, NULL);
        pthread_mutex_unlock(&r->member->sending);
        if (await_answer(r, m->number, is_recall, &status) && mail->reply != FRUGAL_OK)
            status = frugal_fail((frugal_status)mail->reply, "%.*s", (int)sizeof mail->reply_text, mail->reply_text);
    }
    pthread_mutex_unlock(&r->calling);
    return status;
}

static frugal_status call_remote(remote *r, call_kind call, const uint32_t *rows, uint32_t n) {
    message m = {.kind = MESSAGE_CALL, .d = r->d, .call = call, .n = n};
    return make_call(r, &m, rows);
}

/* >>operations */

/* It may be looked up: the device's process is told the counts of the batch. The arrays and the state machine's bits
 * are in shared memory. */
static frugal_status remote_lookup(void *device, const frugal_step *step, void *rows) {
    remote *r = device;
    const host_batch *b = batch_at(r->f, r->d, step->step);
    (void)rows;
    r->mail->batch = (opened_batch){b->n, b->n_unique, step->n_outdated, b->read_only, b->counted};
    return FRUGAL_OK;
}

/* The device does the update itself; only what it keeps is counted. */
static frugal_status remote_update(void *device, const frugal_step *step, const void *grads) {
    remote *r = device;
    (void)step, (void)grads;
    if (!(r->flags & ATTACH_POLLS)) count_remote_kept(r);
    return FRUGAL_OK;
}

/* The end of its process, and its loss there, are noticed elsewhere. */
static frugal_status remote_poll(void *device, uint64_t *steps) {
    remote *r = device;
    *steps = frugal_load_acquire(&r->mail->done); /* [F33] pairs with [F32]: rows and records */
    count_remote_kept(r);
    return FRUGAL_OK;
}

static int remote_waits(void *device) {
    (void)device;
    return 1;
}

/* Calls for rows[n], at most CALL_ROWS of them per call. */
static frugal_status call_for_rows(remote *r, call_kind call, const uint32_t *rows, uint32_t n) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t at = 0; at < n && status == FRUGAL_OK; at += CALL_ROWS)
        status = call_remote(r, call, rows + at, LEAST(n - at, CALL_ROWS));
    return status;
}

static frugal_status remote_preload(void *device, const uint32_t *rows, uint32_t n) {
    return call_for_rows(device, CALL_PRELOAD, rows, n);
}

static frugal_status remote_refresh(void *device, const uint32_t *rows, uint32_t n) {
    return call_for_rows(device, CALL_REFRESH, rows, n);
}

static int remote_verify(void *device) {
    return call_remote(device, CALL_VERIFY, NULL, 0) == FRUGAL_OK;
}

static void remote_empty(void *device) {
    call_remote(device, CALL_EMPTY, NULL, 0); /* emptying cannot fail in the device's process */
}

static frugal_status remote_recount(void *device) {
    return call_remote(device, CALL_RECOUNT, NULL, 0);
}

/* Has its process ended although it kept rows? That is noticed elsewhere, soon. */
static int has_lost_kept(const remote *r) {
    return is_gone(r) && frugal_load_relaxed(&r->mail->kept_now) > 0; /* relaxed: its end was acquired */
}

static frugal_status fail_kept(const remote *r) {
    return frugal_fail(FRUGAL_ERR_BUSY, "process %u, which keeps rows, has ended just now", r->member->process);
}

static frugal_status remote_write_back(void *device, const uint32_t *rows, uint32_t n) {
    remote *r = device;
    frugal_status status =
        rows ? call_for_rows(r, CALL_WRITE_BACK, rows, n) : call_remote(r, CALL_WRITE_BACK, NULL, CALL_ALL);
    if (status != FRUGAL_OK) return status;
    if (has_lost_kept(r)) return fail_kept(r);
    if (!(r->flags & ATTACH_POLLS)) count_remote_kept(r);
    return FRUGAL_OK;
}

/* One call is enough for all rows of the step, because the device's process finds them in the state machine. Before the
 * step before is done, a device can begin only if it waits for no gate; if it refuses even so, it is not asked again
 * until then, because a question costs messages. */
static frugal_status remote_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    remote *r = device;
    frugal *f = r->f;
    (void)rows, (void)n;
    int passed = (int64_t)(frugal_load_relaxed(f->gates) - step) >= 0; /* relaxed: a hint; the device asks itself */
    if (!done && (!passed || r->asked_early == step + 1)) return FRUGAL_AGAIN;
    message m = {.kind = MESSAGE_CALL, .d = r->d, .call = CALL_RECALL, .step = step};
    frugal_status status = make_call(r, &m, NULL);
    if (status == FRUGAL_AGAIN && !done) r->asked_early = step + 1;
    if (status == FRUGAL_OK && has_lost_kept(r)) status = fail_kept(r);
    r->recalls[step % FRUGAL_P2F_SLOTS] = m.number; /* under the device's lock; published by its bit [F24] */
    return status;
}

/* A process that has left has written all that it kept. */
static int remote_recalled(void *device, uint64_t step) {
    remote *r = device;
    /* [F33] pairs with [F32]: the rows */
    if (frugal_load_acquire(&r->mail->recalled) >= r->recalls[step % FRUGAL_P2F_SLOTS]) return 1;
    return is_gone(r) && !has_lost_kept(r);
}

static void remote_cancelled(void *device) {
    call_remote(device, CALL_CANCELLED, NULL, 0);
}

static int remote_updates_in_place(void *device) {
    return (((const remote *)device)->flags & ATTACH_IN_PLACE) != 0;
}

FRUGAL_INTERNAL void remote_close(void *device) {
    remote *r = device;
    pthread_mutex_destroy(&r->serving);
    pthread_mutex_destroy(&r->calling);
    free(r);
}

static const frugal_device_ops remote_operations = {.lookup = remote_lookup,
                                                    .update = remote_update,
                                                    .preload = remote_preload,
                                                    .verify = remote_verify,
                                                    .empty = remote_empty,
                                                    .refresh = remote_refresh,
                                                    .close = remote_close,
                                                    .updates_in_place = remote_updates_in_place,
                                                    .cancelled = remote_cancelled,
                                                    .recount = remote_recount,
                                                    .write_back = remote_write_back};

/* Those of a device with these flags. */
FRUGAL_INTERNAL frugal_device_ops remote_operations_of(uint32_t flags) {
    frugal_device_ops ops = remote_operations;
    if (!(flags & ATTACH_KEEPS)) ops.write_back = NULL;
    if (flags & ATTACH_POLLS) ops.poll = remote_poll, ops.recall = remote_recall, ops.recalled = remote_recalled;
    if (flags & ATTACH_WAITS) ops.waits_for_gate = remote_waits;
    return ops;
}

/* >>posts */

/* A post was refused. Training ends, because the call that posted it has returned already; the device's next call
 * returns the status. After a stop or a loss training has ended before. */
static void refuse_post(remote *r, frugal_status status) {
    char text[sizeof last_message];
    if (status == FRUGAL_STOPPED || status == FRUGAL_ERR_LOST) return;
    memcpy(text, last_message, sizeof text);
    copy_text(r->mail->failed_text, sizeof r->mail->failed_text, text);
    frugal_store_release(&r->mail->failed, (uint32_t)status); /* [F34] pairs with [F35] */
    lock_polling(r->f);
    end_training(r->f, r->d, text);
    pthread_mutex_unlock(&r->f->polling.lock);
    event_notify(r->f->event);
}

static int fill_posted(const frugal *f, const void *from, uint64_t *pairs, uint32_t n) {
    (void)f;
    memcpy(pairs, from, n * sizeof *pairs);
    return 1;
}

/* Announces batches from the inbox, as far as they are legal, and the end of the data behind them. Whether there is an
 * end is read first, because it is posted last. */
static int take_batches(remote *r) {
    int ends = frugal_load_acquire(&r->mail->finished) != 0;    /* [F33] pairs with [F32], as below */
    uint64_t posted = frugal_load_acquire(&r->mail->announced); /* a batch */
    uint64_t taken = frugal_load_relaxed(&r->mail->taken);      /* relaxed: under the lock */
    int any = 0;
    for (; taken < posted; taken++, any = 1) {
        const posted_batch *post = posted_at(r->f, r->d, taken);
        const sorted_batch batch = {post->n, post->read_only, fill_posted, post->sorted};
        frugal_status status = announce_sorted(r->f, r->d, taken, &batch);
        if (status == FRUGAL_AGAIN) return any;
        if (status != FRUGAL_OK) return refuse_post(r, status), any;
        frugal_store_release(&r->mail->taken, taken + 1); /* [F34] pairs with [F35] */
    }
    if (ends && !has_finished(r->f, r->d, taken)) {
        finish_device(r->f, r->d);
        any = 1;
    }
    return any;
}

FRUGAL_INTERNAL int take_update(remote *r) {
    uint64_t taken = frugal_load_relaxed(&r->mail->committed);     /* relaxed: under the lock */
    if (frugal_load_acquire(&r->mail->updated) == taken) return 0; /* [F33] pairs with [F32] */
    const frugal_gradients gradients = {.records = 1, .lr = r->mail->lr, .scale = r->mail->scale};
    frugal_status status = update_step(r->f, r->d, taken, r->mail->brings ? &gradients : NULL);
    if (status != FRUGAL_OK) return refuse_post(r, status), 0;
    frugal_store_release(&r->mail->committed, taken + 1); /* [F34] pairs with [F35] */
    return 1;
}

/* Takes an update of a device that posts no more, unless training has ended. The caller holds the lock. */
FRUGAL_INTERNAL void take_last(remote *r) {
    if (!is_lost(r->f) && !frugal_load_relaxed(&r->f->stopped)) take_update(r); /* relaxed: take_update asks again */
}

/* The device was lost in its own process. */
static void lose_broken(remote *r) {
    take_last(r);
    lock_polling(r->f);
    if (!is_lost(r->f)) {
        char text[sizeof r->mail->broken_text];
        memcpy(text, r->mail->broken_text, sizeof text);
        frugal_fail(FRUGAL_ERR_LOST, "in process %u: %.*s", r->member->process, (int)sizeof text, text);
        lose_device(r->f, r->d);
    }
    pthread_mutex_unlock(&r->f->polling.lock);
}

/* The lookup of `step` waits at its gate. */
static void watch_gate(remote *r, uint64_t step) {
    host_device *device = &r->f->devices[r->d];
    const condition what = {watched_ready, gate_explain, r->d, step, "lookup", 1};
    if (!r->waits) {
        r->waits = 1, r->since = clock_now(), r->met = 0;
        r->watch = (gate_watch){.what = what, .ready = gate_ready};
        tally(&device->gate_waits, 1);
    }
    if (r->met == 0 && committed_ready(r->f, &what)) r->met = clock_now();
    watched_ready(r->f, &r->watch.what);
}

/* The gate is open: the wait is counted like that of a trainer in this process. */
static void end_watch(remote *r, uint64_t step) {
    host_device *device = &r->f->devices[r->d];
    double end = clock_now(), met = r->met == 0 ? end : r->met;
    if (!r->waits) return;
    r->waits = 0;
    turn_cause(r->f, &r->watch, &(gate_cause){CAUSE_NONE, NO_DEVICE, step, 0});
    tally(&device->barrier_ns, (uint64_t)((met - r->since) * 1e9));
    tally(&device->stall_ns, (uint64_t)((end - met) * 1e9));
    count_wait(device, step, (uint64_t)((end - r->since) * 1e9), &r->watch);
}

/* Lets the device look up its next step, if it has asked for it: once the gate is open, or, if its stream waits for the
 * gate, once the step is sealed. */
static int open_gate_of(remote *r, uint64_t wanted) {
    uint64_t opened = frugal_load_relaxed(&r->mail->opened); /* relaxed: under the lock */
    if (wanted == opened) return 0;
    frugal_status status = lookup_step(r->f, r->d, opened, &(frugal_row_array){.no_wait = 1});
    if (status == FRUGAL_AGAIN) {
        if (!(r->flags & ATTACH_WAITS)) watch_gate(r, opened);
        return 0;
    }
    end_watch(r, opened);
    if (status != FRUGAL_OK) return refuse_post(r, status), 0;
    frugal_store_release(&r->mail->opened, opened + 1); /* [F34] pairs with [F35] */
    return 1;
}

/* Has the device posted anything? A hint. Posts are read relaxed: the thread that serves them acquires. */
static int has_post(const remote *r) {
    mailbox *mail = r->mail;
    if (frugal_load_relaxed(&mail->failed) || frugal_load_relaxed(&r->member->gone)) return 0;
    if (frugal_load_acquire(&r->f->shared.holds)) return 0; /* [F43] pairs with [F44] */
    return frugal_load_relaxed(&mail->broken) ||
           frugal_load_relaxed(&mail->announced) != frugal_load_relaxed(&mail->taken) ||
           frugal_load_relaxed(&mail->updated) != frugal_load_relaxed(&mail->committed) ||
           frugal_load_relaxed(&mail->wanted) != frugal_load_relaxed(&mail->opened) ||
           (frugal_load_relaxed(&mail->finished) && frugal_load_relaxed(&r->f->devices[r->d].end) == UINT64_MAX);
}

/* Serves a device. The caller holds `serving`, which is released here. A device that wants to look up a step has posted
 * its update of the step before; so the wish is read first, and the update is taken before the gate is opened. */
static int serve_device(remote *r) {
    int any = 0;
    if (frugal_load_acquire(&r->mail->broken)) /* [F33] pairs with [F32] */
        lose_broken(r);
    else if (has_post(r)) {
        uint64_t wanted = frugal_load_acquire(&r->mail->wanted); /* [F33] pairs with [F32] */
        any |= take_update(r);
        any |= take_batches(r);
        any |= open_gate_of(r, wanted);
    }
    pthread_mutex_unlock(&r->serving);
    if (any) event_notify(&r->mail->bell);
    return any;
}

/* Serves one device. A device that another thread is serving comes last: this thread waits, and serves it, too, because
 * the other thread may have looked before the post was there. */
static int serve_posts(frugal *f) {
    remote *held = NULL;
    if (is_lost(f) || frugal_load_relaxed(&f->stopped)) return 0; /* relaxed: the calls below ask again */
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        remote *r = remote_of(f, d);
        if (!r || !has_post(r)) continue;
        if (pthread_mutex_trylock(&r->serving))
            held = r;
        else if (serve_device(r))
            return 1;
    }
    if (!held) return 0;
    pthread_mutex_lock(&held->serving);
    return serve_device(held);
}

/* >>holding - while steps are cancelled, posts are served by the thread that cancels, or not at all */

/* From here on no other thread serves posts. This one serves those that can be served now. */
static void hold_posts(frugal *f) {
    frugal_add_relaxed(&f->shared.holds, 1); /* relaxed: serve_device asks again under the lock */
    for (int again = 1; again;) {
        again = 0;
        for (uint32_t d = 0; d < f->desc.devices; d++) {
            remote *r = remote_of(f, d);
            if (!r || is_gone(r)) continue;
            pthread_mutex_lock(&r->serving);
            again |= take_update(r);
            again |= take_batches(r);
            pthread_mutex_unlock(&r->serving);
        }
    }
}

/* Steps from `step` on were cancelled: posts of these are dropped. Relaxed, all: between steps. */
static void drop_posts(frugal *f, uint64_t step) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        remote *r = remote_of(f, d);
        if (!r) continue;
        mailbox *mail = r->mail;
        if (frugal_load_relaxed(&mail->announced) > step) frugal_store_relaxed(&mail->announced, step);
        if (frugal_load_relaxed(&mail->taken) > step) frugal_store_relaxed(&mail->taken, step);
        frugal_store_relaxed(&mail->wanted, frugal_load_relaxed(&mail->opened)); /* of a lookup that did not wait */
        if (frugal_load_relaxed(&f->devices[d].end) == UINT64_MAX) frugal_store_relaxed(&mail->finished, 0);
    }
}

static void release_posts(frugal *f) {
    frugal_add_release(&f->shared.holds, (uint32_t)-1); /* [F44] pairs with [F43]: the cancelled steps */
}

FRUGAL_INTERNAL const post_ops served_posts = {serve_posts, hold_posts, drop_posts, release_posts};

#endif
