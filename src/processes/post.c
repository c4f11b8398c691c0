/* post.c - a device in a process that has joined: what its calls post in the mailbox, and what they wait for there.
 *
 * The process that opened the instance has the state machine, and decides as for its own devices. Here a call does only
 * the device's own work: it sorts keys, reads rows, sums gradients, updates rows in place, with the code that all
 * devices use. What concerns others is posted: a batch, the wish to look up a step, a step that is updated. Threads
 * that help in the process that opened serve the posts (remote.c). So a process that is killed, at whatever point,
 * leaves nothing half done except rows and records of a step that is not committed.
 *
 * One word, mailbox.state, tells a device that it must not write any more: a device begins to write by a
 * compare-and-swap from a number without that bit, which the end of training sets. So either the device finds the bit,
 * or the other side finds the device writing, and waits.
 *
 * A device that goes on working after a call has returned, as a GPU does, posts an update when it was given it. A
 * thread of this process, the poster, polls such devices, and posts what they have done. The process that opened polls
 * these posts, as it polls devices of its own, and commits. So this device runs ahead as those do. If its stream waits
 * for gates, it waits for a word of this process, which the process that opened writes.
 *
 * Contents: >>batches >>gates >>writing >>updates >>polling >>poster
 */
#include "processes.h"

#if HAS_PROCESSES

/* Ends training here. `lost`: as loss.device; 0: training was stopped. Of several ends the first counts. */
FRUGAL_INTERNAL void end_joined(frugal *f, uint32_t lost, const char *text) {
    lock_polling(f);
    if (!frugal_load_relaxed(&f->loss.device) && !frugal_load_relaxed(&f->stopped)) { /* relaxed: under the lock */
        copy_text(f->loss.message, sizeof f->loss.message, text);
        if (lost)
            frugal_store_release(&f->loss.device, lost); /* [F9] pairs with [F10] */
        else
            frugal_add_release(&f->stopped, 1); /* [F4] pairs with [F3] */
        force_gates(f);
    }
    pthread_mutex_unlock(&f->polling.lock);
    /* Also wakes threads of other processes, which only look again. No devices: joining has failed. */
    for (uint32_t d = 0; f->devices && d < f->desc.devices; d++)
        if (frugal_load_acquire(&f->devices[d].linked)) event_rouse(&f->devices[d].mail->bell); /* [F41] with [F42] */
}

FRUGAL_INTERNAL void stop_joined(frugal *f) {
    end_joined(f, 0, "");
}

/* Has training ended elsewhere? Then it has ended here. */
FRUGAL_INTERNAL void learn_end(frugal *f) {
    uint32_t ended = frugal_load_acquire(&f->shared.region->ended); /* [F38] pairs with [F37] */
    if (ended != END_NONE) end_joined(f, ended == END_LOST ? f->shared.region->lost : 0, f->shared.region->ended_text);
}

/* May the device go on? A post that was refused is reported here, by a later call; with its own status, though training
 * has ended because of it. */
static frugal_status check_posts(frugal *f, uint32_t d, const char *call) {
    const mailbox *mail = f->devices[d].mail;
    learn_end(f);
    if (frugal_load_acquire(&f->stopped)) return fail_stopped(call);              /* [F3] pairs with [F4] */
    uint32_t failed = frugal_load_acquire(&((mailbox *)(uintptr_t)mail)->failed); /* [F35] pairs with [F34] */
    if (failed) return frugal_fail((frugal_status)(int32_t)failed, "%s: %s", call, mail->failed_text);
    if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, call); /* [F10] pairs with [F9] */
    return FRUGAL_OK;
}

/* What the instance has done so far: it is not stuck while this number rises. */
static uint64_t progress_of(frugal *f) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    uint64_t sum = now.closed + now.committed + now.sealed;
    for (uint32_t d = 0; d < f->desc.devices; d++)
        sum += frugal_p2f_announced(f->p2f, d) + frugal_p2f_committed(f->p2f, d);
    return sum;
}

/* Says what the wait is waiting for: the first device that is behind. */
static void explain_post(frugal *f, const post_wait *what, char *text, size_t size) {
    uint64_t step = what->step;
    snprintf(text, size, "updates are not flushed, or not taken, by the process that opened the instance");
    for (uint32_t d = f->desc.devices; d-- > 0;) {
        if (frugal_p2f_announced(f->p2f, d) <= step) explain_announce(f, what->d, d, step, text, size);
        if (frugal_p2f_committed(f->p2f, d) < step) explain_update(f, d, step - 1, text, size);
    }
}

/* Waits until `ready`. Errors: STOPPED, LOST, STUCK, and the status of a post that was refused. */
FRUGAL_INTERNAL frugal_status wait_posted(frugal *f, const post_wait *what) {
    mailbox *mail = f->devices[what->d].mail;
    double start = clock_now(), stuck = f->desc.stuck_seconds, tells = notice_seconds(f);
    uint64_t moved = progress_of(f);
    char text[384];
    for (;;) {
        uint32_t seen = event_prepare(&mail->bell);
        if (what->ready(f, what)) return FRUGAL_OK;
        frugal_status status = check_posts(f, what->d, what->call);
        if (status != FRUGAL_OK) return status;
        double waited = clock_now() - start, left = stuck < 0 ? FOREVER : stuck - waited;
        if ((left <= 0 || waited >= tells) && moved != progress_of(f)) {
            start = clock_now(), moved = progress_of(f);
            continue;
        }
        if (left <= 0) {
            explain_post(f, what, text, sizeof text);
            return frugal_fail(FRUGAL_ERR_STUCK, STUCK_FORMAT, what->call, (unsigned long long)what->step, stuck, text);
        }
        if (waited >= tells) {
            explain_post(f, what, text, sizeof text);
            tells = tell_wait(f, tells, STUCK_FORMAT, what->call, (unsigned long long)what->step, tells, text);
            continue;
        }
        event_sleep(&mail->bell, seen, LEAST(left, tells - waited));
    }
}

/* >>batches */

static int room_ready(const frugal *f, const post_wait *what) {
    uint64_t taken = frugal_load_acquire(&f->devices[what->d].mail->taken); /* [F35] pairs with [F34] */
    return what->step - taken <= f->desc.lookahead;
}

/* The next step that the device is to announce. */
FRUGAL_INTERNAL uint64_t next_posted(const frugal *f, uint32_t d) {
    return frugal_load_relaxed(&f->devices[d].mail->announced); /* relaxed: its own; a cancel comes between steps */
}

/* Posts a batch, sorted. */
FRUGAL_INTERNAL frugal_status post_batch(frugal *f, const announcement *a) {
    const uint32_t d = a->d, n = a->n;
    host_device *device = &f->devices[d];
    mailbox *mail = device->mail;
    const post_wait room = {room_ready, d, a->step, "announce"};
    uint32_t *rows = (uint32_t *)device->sort.other;
    frugal_status status = read_keys(f, d, a->batch, rows, n);
    if (status == FRUGAL_OK && !a->batch->read_only) status = use_table_file(f);
    if (status != FRUGAL_OK) return status;
    const uint64_t *sorted = sort_rows(f, d, rows, n, &device->sort);
    if ((status = check_posts(f, d, "announce")) != FRUGAL_OK) return status;
    if (!room_ready(f, &room)) {
        if (!a->wait) return FRUGAL_AGAIN;
        double since = clock_now();
        status = wait_posted(f, &room);
        tally(&device->announce_ns, (uint64_t)((clock_now() - since) * 1e9));
        if (status != FRUGAL_OK) return status;
    }
    posted_batch *post = posted_at(f, d, a->step);
    post->n = n, post->read_only = a->batch->read_only != 0;
    if (n) memcpy(post->sorted, sorted, n * sizeof *sorted);
    frugal_store_release(&mail->announced, a->step + 1); /* [F32] pairs with [F33] */
    event_notify(f->event);
    event_notify(&mail->bell); /* the trainer may wait for it */
    return FRUGAL_OK;
}

/* The data of the device ends with what it has announced. */
FRUGAL_INTERNAL void post_finish(frugal *f, uint32_t d) {
    mailbox *mail = f->devices[d].mail;
    /* relaxed, both: as has_finished says; the loader's own */
    frugal_store_relaxed(&f->devices[d].end, frugal_load_relaxed(&mail->announced));
    frugal_store_release(&mail->finished, 1); /* [F32] pairs with [F33] */
    event_notify(f->event);
    event_notify(&mail->bell); /* the trainer may wait for a batch that does not come */
}

/* >>gates */

static int opened_ready(const frugal *f, const post_wait *what) {
    mailbox *mail = f->devices[what->d].mail;
    if (frugal_load_acquire(&mail->opened) > what->step) return 1; /* [F35] pairs with [F34] */
    if (has_finished(f, what->d, what->step)) return 1;
    /* The loader may be late. Relaxed, both: the thread that serves the wish checks the batch itself; `wanted` is the
     * trainer's own. */
    if (frugal_load_relaxed(&mail->announced) > what->step && frugal_load_relaxed(&mail->wanted) == what->step) {
        frugal_store_release(&mail->wanted, what->step + 1); /* [F32] pairs with [F33] */
        event_notify(f->event);
    }
    return 0;
}

/* Waits, if `wait`, until the batch is known, and the gate is open, or the step is sealed if the device waits for the
 * gate itself. */
FRUGAL_INTERNAL frugal_status pass_posted_gate(frugal *f, uint32_t d, uint64_t step, int wait) {
    host_device *device = &f->devices[d];
    const post_wait opened = {opened_ready, d, step, "lookup"};
    if (!opened_ready(f, &opened)) {
        frugal_status status = check_posts(f, d, "lookup");
        if (status != FRUGAL_OK) return status;
        if (!wait) return FRUGAL_AGAIN;
        double since = clock_now();
        tally(&device->gate_waits, 1);
        status = wait_posted(f, &opened);
        tally(&device->stall_ns, (uint64_t)((clock_now() - since) * 1e9));
        if (status != FRUGAL_OK) return status;
    }
    if (has_finished(f, d, step)) return fail_finished(f, "lookup", d, step, FRUGAL_FINISHED);
    const opened_batch *known = &device->mail->batch;
    host_batch *b = batch_at(f, d, step);
    b->step = step, b->n = known->n, b->n_unique = b->n_own = known->n_unique, b->n_outdated = known->n_outdated;
    b->read_only = known->read_only, b->counted = known->counted;
    b->has_record_of = 1; /* by the process that opened: this one only reads batches */
    return FRUGAL_OK;
}

/* >>writing */

/* Before the device writes rows or records. */
FRUGAL_INTERNAL frugal_status begin_posted_writing(frugal *f, uint32_t d, const char *call) {
    uint32_t found = 0;
    /* [F36] acquire: the end; release: its attaching, and this process's gates; with itself */
    while (!frugal_cas_acq_rel(&f->devices[d].mail->state, &found, found + MAIL_WRITER)) {
        if (!(found & MAIL_ENDED)) continue;
        frugal_status status = check_posts(f, d, call);
        return status == FRUGAL_OK ? fail_stopped(call) : status;
    }
    return FRUGAL_OK;
}

/* So many writers of a device have ended. */
FRUGAL_INTERNAL void end_posted_writing(frugal *f, uint32_t d, uint64_t writers) {
    if (writers == 0) return;
    /* [F36] release: what was written; pairs with itself */
    uint32_t found = frugal_add_release(&f->devices[d].mail->state, 0u - (uint32_t)writers * MAIL_WRITER);
    if (found & MAIL_ENDED) event_notify(f->event); /* the process that opened may wait */
}

/* >>updates */

/* Posts a step that the device has updated, or was given if it has `poll`; `gradients` NULL: without any. */
FRUGAL_INTERNAL void post_update(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    host_device *device = &f->devices[d];
    mailbox *mail = device->mail;
    mail->brings = gradients != NULL;
    mail->lr = gradients ? gradients->lr : 0, mail->scale = gradients ? gradients->scale : 0;
    frugal_store_release(&mail->updated, step + 1);   /* [F32] pairs with [F33] */
    frugal_store_release(&device->updated, step + 1); /* [F5] pairs with [F6]: after the post, so `done` is, too */
    event_notify(f->event);
    if (device->ops.poll) event_notify(polling_event(f));
}

/* Is all taken that was posted, and done? */
FRUGAL_INTERNAL int committed_posts(const frugal *f, const post_wait *what) {
    const host_device *device = &f->devices[what->d];
    uint64_t updated = frugal_load_relaxed(&device->updated); /* relaxed, all: its own; nothing is read after them */
    if (device->ops.poll && frugal_load_relaxed(&device->mail->done) < updated) return 0;
    return frugal_load_relaxed(&device->mail->committed) >= updated;
}

static int done_ready(const frugal *f, const post_wait *what) {
    return frugal_load_acquire(&f->devices[what->d].done) >= what->step; /* [F18] pairs with [F17] */
}

/* Waits until a device with `poll` has done the steps before: then the block of this one is free. */
FRUGAL_INTERNAL frugal_status await_posted_block(frugal *f, uint32_t d, uint64_t step, const char *call) {
    return wait_posted(f, &(post_wait){done_ready, d, step, call});
}

/* >>polling */

/* What a device keeps, counted where statistics are made. */
FRUGAL_INTERNAL void post_kept(frugal *f, uint32_t d, uint64_t kept, uint64_t written_back, uint64_t now) {
    mailbox *mail = f->devices[d].mail;
    tally(&mail->kept, kept);
    tally(&mail->written_back, written_back);
    frugal_store_relaxed(&mail->kept_now, now); /* relaxed: published by the post or the reply that follows */
}

/* The process that opened learns that the device is lost. */
FRUGAL_INTERNAL void post_loss(frugal *f, uint32_t d, const char *text) {
    mailbox *mail = f->devices[d].mail;
    if (!mail) return;
    copy_text(mail->broken_text, sizeof mail->broken_text, text);
    frugal_store_release(&mail->broken, 1); /* [F32] pairs with [F33] */
    event_notify(f->event);
}

/* Has the device an update, or a recall, that it has not done? Relaxed, all: a thread
 * that polls asks again. */
static int is_unposted(const frugal *f, uint32_t d) {
    const host_device *device = &f->devices[d];
    return frugal_load_relaxed(&device->done) < frugal_load_relaxed(&device->updated) ||
           frugal_load_relaxed(&device->posting.recall_number) != 0;
}

FRUGAL_INTERNAL int has_unposted(const frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (is_unposted(f, d) && f->devices[d].ops.poll) return 1;
    return 0;
}

/* Updates below `step` are done, or never will be: they write no more. The caller holds
 * polling.lock. */
static void settle_writers(frugal *f, uint32_t d, uint64_t step) {
    host_device *device = &f->devices[d];
    uint64_t ended = step - device->posting.settled;
    device->posting.settled = step;
    end_posted_writing(f, d, ended);
}

/* Posts what a device has done. Returns 1 if there was anything. The caller holds
 * polling.lock. */
static int post_done(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    uint64_t before = frugal_load_relaxed(&device->done), done = 0; /* relaxed: under the lock, as the third */
    uint64_t updated = frugal_load_acquire(&device->updated);       /* [F6] pairs with [F5] */
    uint64_t number = frugal_load_relaxed(&device->posting.recall_number);
    if (before == UINT64_MAX) settle_writers(f, d, updated); /* it is lost, and does nothing any more */
    if (before == UINT64_MAX || !is_unposted(f, d) || !device->ops.poll) return 0;
    int is_gone = device->ops.poll(device->state, &done) != FRUGAL_OK;
    int recalled = number != 0 && !is_gone && device->ops.recalled(device->state, device->posting.recall_step);
    if (recalled || is_gone) frugal_store_relaxed(&device->posting.recall_number, 0); /* relaxed: under the lock */
    if (recalled) frugal_store_release(&device->mail->recalled, number);              /* [F32] pairs with [F33] */
    /* Read after the device's word, as in poll_device: work behind a gate that was forced open is not posted. */
    int ends = frugal_load_acquire(&f->stopped) != 0;  /* [F7] pairs with [F4] */
    ends |= frugal_load_acquire(&f->loss.device) != 0; /* [F10] pairs with [F9] */
    done = LEAST(done, updated);
    if (done > before && !ends) frugal_store_release(&device->mail->done, done); /* [F32] pairs with [F33] */
    if (done > before) frugal_store_release(&device->done, done);                /* [F17] pairs with [F18] */
    if (is_gone) lose_device(f, d);
    if (!is_gone && !recalled && done <= before) return 0;
    settle_writers(f, d, is_gone ? updated : done > before ? done : before);
    event_notify(f->event);
    event_notify(&device->mail->bell); /* its trainer may wait for it, or its process, which leaves */
    return 1;
}

FRUGAL_INTERNAL int poll_posts(frugal *f) {
    int any = 0;
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (is_attached(f, d)) any |= post_done(f, d);
    return any;
}

/* >>poster - a thread that polls devices of this process */

static void *poster_main(void *argument) {
    frugal *f = argument;
    for (;;) {
        uint32_t seen = event_prepare(polling_event(f));
        if (!is_outstanding(f) && frugal_load_relaxed(&f->shared.joined->settles))
            return NULL; /* relaxed: see the field */
        rest(f, seen, FOREVER);
    }
}

/* Called before the first device with `poll` is attached. */
FRUGAL_INTERNAL frugal_status open_poster(frugal *f) {
    controller *c = f->shared.joined;
    pthread_mutex_lock(&c->lock); /* several threads may attach devices */
    int error = c->posts ? 0 : start_quiet_thread(&c->poster, poster_main, f);
    c->posts |= error == 0;
    pthread_mutex_unlock(&c->lock);
    if (error)
        return frugal_fail(FRUGAL_ERR_WORKER, "attach: the thread that polls devices cannot be started: %s",
                           strerror(error));
    return FRUGAL_OK;
}

/* Waits until all is done that devices were given. */
FRUGAL_INTERNAL void close_poster(frugal *f) {
    controller *c = f->shared.joined;
    if (!c->posts) return;
    frugal_store_relaxed(&c->settles, 1); /* relaxed: see the field */
    event_notify(polling_event(f));
    pthread_join(c->poster, NULL);
    c->posts = 0;
}

#endif
