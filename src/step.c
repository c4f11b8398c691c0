/* step.c - a step of a device: announce, lookup, update. */
#include "host.h"

static int announce_ready(frugal *f, const condition *what) {
    return frugal_p2f_legal(f->p2f, what->step);
}

static void announce_explain(frugal *f, const condition *what, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (frugal_p2f_announced(f->p2f, d) < what->step) {
            snprintf(text, size, "device %u has announced %llu steps, all must announce the step before", d,
                     (unsigned long long)frugal_p2f_announced(f->p2f, d));
            return;
        }
    snprintf(text, size, "lookahead is %u and step %llu is not closed: update it on every device first",
             f->desc.lookahead, (unsigned long long)now.closed);
}

/* What a device sees of its batch. */
static frugal_step step_view(frugal *f, uint32_t d, uint64_t step) {
    const host_batch *b = batch_at(f, d, step);
    frugal_records records = {block_at(f, d, step), f->record_stride, b->n,     b->n_unique,
                              b->record_of,         b->order,         b->start, b->rows};
    return (frugal_step){.step = step, .records = records, .valid = b->valid};
}

static frugal_status announce_step(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch, int wait) {
    frugal_status status = check_device(f, d, "announce");
    if (status != FRUGAL_OK) return status;
    if (!batch || (batch->n_segments && !batch->segments))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "announce: the batch is NULL");
    host_device *device = &f->devices[d];
    uint64_t next = frugal_p2f_announced(f->p2f, d);
    if (step != next) return fail_order("announce", d, step, "announce", next);
    uint32_t n = 0;
    if ((status = read_keys(f, d, batch, &n)) != FRUGAL_OK) return status;
    condition legal = {announce_ready, announce_explain, d, step, "announce", 1};
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("announce"); /* [F3] pairs with [F4] */
    if (!wait && !announce_ready(f, &legal)) {
        if (frugal_load_acquire(&f->lost)) return fail_lost(f, "announce"); /* [F10] pairs with [F9] */
        return FRUGAL_AGAIN;
    }
    uint64_t *sorted = sort_by_row(device->sorted, device->scratch, n, f->sort_bits);
    if (!announce_ready(f, &legal)) {
        double since = clock_now();
        status = wait_until(f, &legal);
        tally(&device->announce_ns, (uint64_t)((clock_now() - since) * 1e9));
        if (status != FRUGAL_OK) return status;
    }
    host_batch *b = batch_at(f, d, step); /* free: step - (L + 1) is closed */
    deduplicate(b, sorted, n);
    b->read_only = batch->read_only;
    const frugal_p2f_batch rows = {.rows = b->rows, .n = b->n_unique, .read_only = b->read_only};
    status = frugal_p2f_announce(f->p2f, d, step, &rows, b->valid);
    FRUGAL_ASSERT(status == FRUGAL_OK);
    if (device->ops.announced) {
        frugal_step view = step_view(f, d, step);
        device->ops.announced(device->state, &view);
    }
    frugal_store_release(&device->told, step + 1); /* [F11] pairs with [F12] */
    event_notify(f->event);                        /* it may have sealed the step, and made rows urgent */
    return status;
}

frugal_status frugal_announce(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch) {
    return announce_step(f, d, step, batch, 1);
}
frugal_status frugal_try_announce(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch) {
    return announce_step(f, d, step, batch, 0);
}

static int committed_ready(frugal *f, const condition *what) {
    return frugal_p2f_all_committed(f->p2f) >= what->step;
}

static int gate_ready(frugal *f, const condition *what) {
    return frugal_p2f_gate(f->p2f, what->step);
}

/* Names the rows that the gate waits for, found in the plans that may hold them. */
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
        snprintf(text + used, size - (size_t)used, " none of this batch: they hold staging blocks to be reused");
}

static void gate_explain(frugal *f, const condition *what, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
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
        snprintf(text, size, "step %llu is being closed by a thread that does not return",
                 (unsigned long long)now.closed);
    else
        explain_rows(f, what, text, size);
}

/* First for the other devices, then for what the flushing leaves to wait for: two clocks, for who looks at them. */
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

/* Are the keys known, and the device told? */
static int batch_ready(frugal *f, const condition *what) {
    return frugal_load_acquire(&f->devices[what->d].told) > what->step; /* [F12] pairs with [F11] */
}

/* And have all devices that work on been given the step before? Only then may one of them be made to wait for what the
 * others do in that step: they may share a queue of a GPU, in which nothing overtakes the one that waits. */
static int given_ready(frugal *f, const condition *what) {
    for (uint32_t d = 0; d < f->desc.devices && what->step > f->desc.first_step; d++) {
        const host_device *device = &f->devices[d];
        if (frugal_load_acquire(&device->told) < what->step) return 0; /* attached by now; [F12] pairs with [F11] */
        if (device->ops.poll && frugal_load_relaxed(&device->updated) < what->step)
            return 0; /* relaxed: it has been enqueued */
    }
    return batch_ready(f, what);
}

static void given_explain(frugal *f, const condition *what, char *text, size_t size) {
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (f->devices[d].ops.poll && frugal_load_relaxed(&f->devices[d].updated) < what->step) { /* relaxed: words */
            snprintf(text, size, "device %u has not updated step %llu: go step by step, and device by device", d,
                     (unsigned long long)(what->step - 1));
            return;
        }
    gate_explain(f, what, text, size);
}

/* Until the device may be given the lookup of `step`. */
static frugal_status pass_gate(frugal *f, uint32_t d, uint64_t step, int wait) {
    const host_device *device = &f->devices[d];
    frugal_status status = FRUGAL_OK;
    int waits_itself = device->ops.waits_for_gate && device->ops.waits_for_gate(device->state);
    condition batch = {
        waits_itself ? given_ready : batch_ready, waits_itself ? given_explain : gate_explain, d, step, "lookup", 1};
    if ((waits_itself || device->ops.announced) && !batch.ready(f, &batch)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = wait_until(f, &batch)) != FRUGAL_OK) return status;
    }
    if (waits_itself) return FRUGAL_OK;
    if (!frugal_p2f_gate(f->p2f, step)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = wait_at_gate(f, d, step)) != FRUGAL_OK) return status;
    }
#ifndef NDEBUG
    const host_batch *b = batch_at(f, d, step);
    /* Invariant (2) of the paper. Not looked at where the device waits at the gate itself: it is not open yet. */
    for (uint32_t i = 0; i < b->n_unique; i++)
        FRUGAL_ASSERT(!frugal_p2f_is_dirty(f->p2f, b->rows[i]) && "a row read at s has no pending update");
#endif
    return status;
}

static frugal_status lookup_step(frugal *f, uint32_t d, uint64_t step, const frugal_bags *bags, float *rows, int wait) {
    frugal_status status = check_device(f, d, "lookup");
    if (status != FRUGAL_OK) return status;
    host_device *device = &f->devices[d];
    uint64_t next = frugal_load_relaxed(&device->updated); /* relaxed, as below: this thread's own */
    if (step != next) return fail_order("lookup", d, step, "look up", next);
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("lookup"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return fail_lost(f, "lookup");    /* [F10] pairs with [F9] */
    if ((status = pass_gate(f, d, step, wait)) != FRUGAL_OK) return status;
    frugal_step view = step_view(f, d, step);
    view.repeated = frugal_load_relaxed(&device->looked_up) > step;
    view.bags = bags;
    float_mode saved = float_mode_enter(); /* pooling is arithmetic */
    status = device->ops.lookup(device->state, &view, rows);
    float_mode_leave(saved);
    if (status != FRUGAL_OK) return after_refusal(f, d, status, "lookup");
    device->bags = bags ? *bags : (frugal_bags){0};
    if (!view.repeated) {
        tally(&device->keys, view.records.n);
        tally(&device->unique_rows, view.records.n_unique);
        frugal_store_relaxed(&device->looked_up, step + 1);
    }
    return FRUGAL_OK;
}

frugal_status frugal_lookup(frugal *f, uint32_t d, uint64_t step, float *rows) {
    return lookup_step(f, d, step, NULL, rows, 1);
}
frugal_status frugal_try_lookup(frugal *f, uint32_t d, uint64_t step, float *rows) {
    return lookup_step(f, d, step, NULL, rows, 0);
}
frugal_status frugal_lookup_bags(frugal *f, uint32_t d, uint64_t step, const frugal_bags *bags, float *pooled) {
    if (!bags || !bags->offsets || (bags->n_bags && !pooled))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "lookup_bags: no bags, no offsets, or nowhere to put them");
    if (bags->pooling > FRUGAL_POOL_MEAN || (bags->pooling == FRUGAL_POOL_MEAN && bags->weights))
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "lookup_bags: pooling %d%s; there are 0 (sum) and 1 (mean, without weights)",
                           (int)bags->pooling, bags->weights ? " with weights" : "");
    return lookup_step(f, d, step, bags, pooled, 1);
}

/* Between lookup and update of `step`? */
static frugal_status check_looked_up(frugal *f, uint32_t d, uint64_t step, const char *call) {
    frugal_status status = check_device(f, d, call);
    if (status != FRUGAL_OK) return status;
    uint64_t updated = frugal_load_relaxed(&f->devices[d].updated); /* relaxed, both: this thread's own */
    if (step != updated) return fail_order(call, d, step, "update", updated);
    uint64_t looked_up = frugal_load_relaxed(&f->devices[d].looked_up);
    if (looked_up != step + 1) return fail_order(call, d, step, "look up", looked_up);
    return FRUGAL_OK;
}

frugal_status frugal_get_records(frugal *f, uint32_t d, uint64_t step, frugal_records *out) {
    frugal_status status = check_looked_up(f, d, step, "get_records");
    if (status != FRUGAL_OK) return status;
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "get_records: `out` is NULL");
    /* Behind a gate that was forced open the block may hold records that are still to be flushed. */
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("get_records"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return fail_lost(f, "get_records");    /* [F10] pairs with [F9] */
    *out = step_view(f, d, step).records;
    return FRUGAL_OK;
}

/* What an update brings must fit its batch and its lookup. */
static frugal_status check_gradients(const frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    if (gradients->grads && gradients->records)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: both `grads` and `records`; give one");
    if (batch_at(f, d, step)->read_only)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "update: step %llu of device %u was announced read-only and has gradients",
                           (unsigned long long)step, d);
    if (gradients->by_bag && (!gradients->grads || !f->devices[d].bags.offsets))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: gradients by bag, and %s of step %llu",
                           gradients->grads ? "no frugal_lookup_bags" : "no `grads`", (unsigned long long)step);
    return check_lr(f, gradients->lr);
}

/* Commits at once, or leaves it to who polls the device. */
static void commit_step(frugal *f, uint32_t d, uint64_t step, int brings) {
    host_device *device = &f->devices[d];
    int last_one = 0;
    device->brings[step % FRUGAL_P2F_SLOTS] = (uint8_t)brings;
    frugal_store_release(&device->updated, step + 1); /* [F5] pairs with [F6] */
    if (device->ops.poll) {
        event_notify(f->event); /* there is something to look after */
        return;
    }
    frugal_status status = frugal_p2f_commit(f->p2f, d, step, brings, &last_one);
    FRUGAL_ASSERT(status == FRUGAL_OK), (void)status;
    if (last_one) event_notify(f->event); /* the step can be closed */
}

frugal_status frugal_update(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    frugal_status status = check_looked_up(f, d, step, "update");
    if (status != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("update"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return fail_lost(f, "update");    /* [F10] pairs with [F9] */
    host_device *device = &f->devices[d];
    int brings = gradients && (gradients->grads || gradients->records);
    if (brings) status = check_gradients(f, d, step, gradients);
    if (status != FRUGAL_OK) return status;
    if (brings || device->ops.poll) {
        frugal_step view = step_view(f, d, step);
        view.brings = brings;
        if (brings && gradients->by_bag) view.bags = &device->bags;
        float_mode saved = float_mode_enter();
        if (brings) status = fix_settings(f, step, gradients->lr, &view.hyper);
        if (status == FRUGAL_OK) status = device->ops.update(device->state, &view, brings ? gradients->grads : NULL);
        float_mode_leave(saved);
        if (status == FRUGAL_ERR_SETTINGS) return status;
        if (status != FRUGAL_OK) return after_refusal(f, d, status, "update");
    }
    commit_step(f, d, step, brings);
    return FRUGAL_OK;
}
