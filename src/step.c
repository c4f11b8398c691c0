/* step.c - a step of a device: announce, lookup, update. */
#include "host.h"

static int frugal_priv_announce_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_legal(f->p2f, wait->step);
}

static void frugal_priv_announce_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (frugal_p2f_announced(f->p2f, d) < wait->step) {
            snprintf(text, size, "device %u has announced %llu steps, all must announce the step before", d,
                     (unsigned long long)frugal_p2f_announced(f->p2f, d));
            return;
        }
    snprintf(text, size, "lookahead is %u and step %llu is not closed: update it on every device first",
             f->desc.lookahead, (unsigned long long)now.closed);
}

/* What a device sees of its batch. */
static frugal_step frugal_priv_step_view(frugal *f, uint32_t device, uint64_t step) {
    const frugal_priv_batch *b = frugal_priv_batch_of(f, device, step);
    frugal_records records = {frugal_priv_block(f, device, step),
                              f->record_stride,
                              b->n,
                              b->n_unique,
                              b->record_of,
                              b->order,
                              b->start,
                              b->rows};
    return (frugal_step){.step = step, .records = records, .valid = b->valid};
}

static frugal_status frugal_priv_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch,
                                          int wait) {
    frugal_status status = frugal_priv_check_device(f, device, "announce");
    if (status != FRUGAL_OK) return status;
    if (!batch || (batch->n_segments && !batch->segments))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "announce: the batch is NULL");
    frugal_priv_dev *dev = &f->devices[device];
    uint64_t next = frugal_p2f_announced(f->p2f, device);
    if (step != next) return frugal_priv_order("announce", device, step, "announce", next);
    uint32_t n = 0;
    if ((status = frugal_priv_read_keys(f, device, batch, &n)) != FRUGAL_OK) return status;
    frugal_priv_wait legal = {frugal_priv_announce_ready, frugal_priv_announce_explain, device, step, "announce", 1};
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("announce"); /* [F3] pairs with [F4] */
    if (!wait && !frugal_priv_announce_ready(f, &legal)) {
        if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "announce"); /* [F10] pairs with [F9] */
        return FRUGAL_AGAIN;
    }
    uint64_t *sorted = frugal_priv_sort(dev->sorted, dev->scratch, n, f->sort_bits);
    if (!frugal_priv_announce_ready(f, &legal)) {
        double since = frugal_priv_now();
        status = frugal_priv_wait_for(f, &legal);
        frugal_priv_tally(&dev->announce_ns, (uint64_t)((frugal_priv_now() - since) * 1e9));
        if (status != FRUGAL_OK) return status;
    }
    frugal_priv_batch *b = frugal_priv_batch_of(f, device, step); /* free: step - (L + 1) is closed */
    frugal_priv_deduplicate(b, sorted, n);
    b->read_only = batch->read_only;
    status = frugal_p2f_announce(f->p2f, device, step, b->rows, b->n_unique, b->read_only, b->valid);
    FRUGAL_ASSERT(status == FRUGAL_OK);
    if (dev->ops.announced) {
        frugal_step view = frugal_priv_step_view(f, device, step);
        dev->ops.announced(dev->state, &view);
    }
    frugal_store_release(&dev->told, step + 1); /* [F11] pairs with [F12] */
    frugal_priv_event_notify(f->event);         /* it may have sealed the step, and made rows urgent */
    return status;
}

frugal_status frugal_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch) {
    return frugal_priv_announce(f, device, step, batch, 1);
}
frugal_status frugal_try_announce(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch) {
    return frugal_priv_announce(f, device, step, batch, 0);
}

static int frugal_priv_committed_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_all_committed(f->p2f) >= wait->step;
}

static int frugal_priv_gate_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_gate(f->p2f, wait->step);
}

/* Names the rows that the gate waits for, found in the plans that may hold them. */
static void frugal_priv_explain_rows(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    int used = snprintf(text, size,
                        "slot %llu: %lld rows are not flushed:", (unsigned long long)(wait->step % FRUGAL_P2F_SLOTS),
                        (long long)frugal_p2f_pending(f->p2f, wait->step));
    const frugal_priv_batch *b = frugal_priv_batch_of(f, wait->device, wait->step);
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

static void frugal_priv_gate_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    frugal_p2f_progress now = frugal_p2f_get_progress(f->p2f);
    for (uint32_t d = 0; now.committed < wait->step && d < f->desc.devices; d++)
        if (frugal_p2f_committed(f->p2f, d) <= now.committed) {
            snprintf(text, size, "step %llu is not closed: device %u has not %s it", (unsigned long long)now.committed, d,
                     frugal_load_relaxed(&f->devices[d].updated) > now.committed ? "finished" : "updated");
            return;
        }
    for (uint32_t d = 0; now.sealed <= wait->step && d < f->desc.devices; d++)
        if (frugal_p2f_announced(f->p2f, d) <= wait->step) {
            snprintf(text, size, "step %llu is not sealed: device %u has announced %llu steps",
                     (unsigned long long)wait->step, d, (unsigned long long)frugal_p2f_announced(f->p2f, d));
            return;
        }
    if (now.closed < wait->step)
        snprintf(text, size, "step %llu is being closed by a thread that does not return",
                 (unsigned long long)now.closed);
    else
        frugal_priv_explain_rows(f, wait, text, size);
}

/* First for the other devices, then for what the flushing leaves to wait for: two clocks, for who looks at them. */
static frugal_status frugal_priv_wait_at_gate(frugal *f, uint32_t device, uint64_t step) {
    frugal_priv_dev *dev = &f->devices[device];
    frugal_priv_wait committed = {frugal_priv_committed_ready, frugal_priv_gate_explain, device, step, "lookup", 1};
    frugal_priv_wait gate = {frugal_priv_gate_ready, frugal_priv_gate_explain, device, step, "lookup", 1};
    frugal_priv_tally(&dev->gate_waits, 1);
    double since = frugal_priv_now();
    frugal_status status = frugal_priv_wait_for(f, &committed);
    double met = frugal_priv_now();
    frugal_priv_tally(&dev->barrier_ns, (uint64_t)((met - since) * 1e9));
    if (status != FRUGAL_OK) return status;
    status = frugal_priv_wait_for(f, &gate);
    frugal_priv_tally(&dev->stall_ns, (uint64_t)((frugal_priv_now() - met) * 1e9));
    return status;
}

/* Are the keys known, and the device told? */
static int frugal_priv_batch_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_load_acquire(&f->devices[wait->device].told) > wait->step; /* [F12] pairs with [F11] */
}

/* And have all devices that work on been given the step before? Only then may one of them be made to wait for what the others
 * do in that step: they may share a queue of a GPU, in which nothing overtakes the one that waits. */
static int frugal_priv_given_ready(frugal *f, const frugal_priv_wait *wait) {
    for (uint32_t d = 0; d < f->desc.devices && wait->step > f->desc.first_step; d++) {
        const frugal_priv_dev *dev = &f->devices[d];
        if (frugal_load_acquire(&dev->told) < wait->step) return 0; /* attached by now; [F12] pairs with [F11] */
        if (dev->ops.poll && frugal_load_relaxed(&dev->updated) < wait->step) return 0; /* relaxed: it has been enqueued */
    }
    return frugal_priv_batch_ready(f, wait);
}

static void frugal_priv_given_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (f->devices[d].ops.poll && frugal_load_relaxed(&f->devices[d].updated) < wait->step) { /* relaxed: words */
            snprintf(text, size, "device %u has not updated step %llu: go step by step, and device by device", d,
                     (unsigned long long)(wait->step - 1));
            return;
        }
    frugal_priv_gate_explain(f, wait, text, size);
}

/* Until the device may be given the lookup of `step`. */
static frugal_status frugal_priv_pass(frugal *f, uint32_t device, uint64_t step, int wait) {
    const frugal_priv_dev *dev = &f->devices[device];
    frugal_status status = FRUGAL_OK;
    int waits_itself = dev->ops.waits_for_gate && dev->ops.waits_for_gate(dev->state);
    frugal_priv_wait batch = {waits_itself ? frugal_priv_given_ready : frugal_priv_batch_ready,
                              waits_itself ? frugal_priv_given_explain : frugal_priv_gate_explain, device, step, "lookup", 1};
    if ((waits_itself || dev->ops.announced) && !batch.ready(f, &batch)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = frugal_priv_wait_for(f, &batch)) != FRUGAL_OK) return status;
    }
    if (waits_itself) return FRUGAL_OK;
    if (!frugal_p2f_gate(f->p2f, step)) {
        if (!wait) return FRUGAL_AGAIN;
        if ((status = frugal_priv_wait_at_gate(f, device, step)) != FRUGAL_OK) return status;
    }
#ifndef NDEBUG
    const frugal_priv_batch *b = frugal_priv_batch_of(f, device, step);
    for (uint32_t i = 0; i < b->n_unique; i++) /* invariant (2) of the paper */
        FRUGAL_ASSERT(!frugal_p2f_is_dirty(f->p2f, b->rows[i]) && "a row read at s has no pending update");
#endif
    return status;
}

static frugal_status frugal_priv_lookup(frugal *f, uint32_t device, uint64_t step, const frugal_bags *bags, float *rows,
                                        int wait) {
    frugal_status status = frugal_priv_check_device(f, device, "lookup");
    if (status != FRUGAL_OK) return status;
    frugal_priv_dev *dev = &f->devices[device];
    uint64_t next = frugal_load_relaxed(&dev->updated); /* relaxed, as below: this thread's own */
    if (step != next) return frugal_priv_order("lookup", device, step, "look up", next);
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("lookup"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "lookup");    /* [F10] pairs with [F9] */
    if ((status = frugal_priv_pass(f, device, step, wait)) != FRUGAL_OK) return status;
    frugal_step view = frugal_priv_step_view(f, device, step);
    view.repeated = frugal_load_relaxed(&dev->looked_up) > step;
    view.bags = bags;
    frugal_priv_fenv saved = frugal_priv_fenv_enter(); /* pooling is arithmetic */
    status = dev->ops.lookup(dev->state, &view, rows);
    frugal_priv_fenv_leave(saved);
    if (status != FRUGAL_OK) return frugal_priv_refused(f, device, status, "lookup");
    dev->bags = bags ? *bags : (frugal_bags){0};
    if (!view.repeated) {
        frugal_priv_tally(&dev->keys, view.records.n);
        frugal_priv_tally(&dev->unique_rows, view.records.n_unique);
        frugal_store_relaxed(&dev->looked_up, step + 1);
    }
    return FRUGAL_OK;
}

frugal_status frugal_lookup(frugal *f, uint32_t device, uint64_t step, float *rows) {
    return frugal_priv_lookup(f, device, step, NULL, rows, 1);
}
frugal_status frugal_try_lookup(frugal *f, uint32_t device, uint64_t step, float *rows) {
    return frugal_priv_lookup(f, device, step, NULL, rows, 0);
}
frugal_status frugal_lookup_bags(frugal *f, uint32_t device, uint64_t step, const frugal_bags *bags, float *pooled) {
    if (!bags || !bags->offsets || (bags->n_bags && !pooled))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "lookup_bags: no bags, no offsets, or nowhere to put them");
    if (bags->pooling > FRUGAL_POOL_MEAN || (bags->pooling == FRUGAL_POOL_MEAN && bags->weights))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "lookup_bags: pooling %d%s; there are 0 (sum) and 1 (mean, without weights)",
                           (int)bags->pooling, bags->weights ? " with weights" : "");
    return frugal_priv_lookup(f, device, step, bags, pooled, 1);
}

/* Between lookup and update of `step`? */
static frugal_status frugal_priv_check_looked_up(frugal *f, uint32_t device, uint64_t step, const char *call) {
    frugal_status status = frugal_priv_check_device(f, device, call);
    if (status != FRUGAL_OK) return status;
    uint64_t updated = frugal_load_relaxed(&f->devices[device].updated); /* relaxed, both: this thread's own */
    if (step != updated) return frugal_priv_order(call, device, step, "update", updated);
    uint64_t looked_up = frugal_load_relaxed(&f->devices[device].looked_up);
    if (looked_up != step + 1) return frugal_priv_order(call, device, step, "look up", looked_up);
    return FRUGAL_OK;
}

frugal_status frugal_get_records(frugal *f, uint32_t device, uint64_t step, frugal_records *out) {
    frugal_status status = frugal_priv_check_looked_up(f, device, step, "get_records");
    if (status != FRUGAL_OK) return status;
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "get_records: `out` is NULL");
    /* Behind a gate that was forced open the block may hold records that are still to be flushed. */
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("get_records"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "get_records");    /* [F10] pairs with [F9] */
    *out = frugal_priv_step_view(f, device, step).records;
    return FRUGAL_OK;
}

/* What an update brings must fit its batch and its lookup. */
static frugal_status frugal_priv_check_gradients(const frugal *f, uint32_t device, uint64_t step,
                                                 const frugal_gradients *gradients) {
    if (gradients->grads && gradients->records)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: both `grads` and `records`; give one");
    if (frugal_priv_batch_of(f, device, step)->read_only)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "update: step %llu of device %u was announced read-only and has gradients",
                           (unsigned long long)step, device);
    if (gradients->by_bag && (!gradients->grads || !f->devices[device].bags.offsets))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: gradients by bag, and %s of step %llu",
                           gradients->grads ? "no frugal_lookup_bags" : "no `grads`", (unsigned long long)step);
    return FRUGAL_OK;
}

/* Commits at once, or leaves it to who polls the device. */
static void frugal_priv_commit(frugal *f, uint32_t device, uint64_t step, int brings) {
    frugal_priv_dev *dev = &f->devices[device];
    int last_one = 0;
    dev->brings[step % FRUGAL_P2F_SLOTS] = (uint8_t)brings;
    frugal_store_release(&dev->updated, step + 1); /* [F5] pairs with [F6] */
    if (dev->ops.poll) {
        frugal_priv_event_notify(f->event); /* there is something to look after */
        return;
    }
    frugal_status status = frugal_p2f_commit(f->p2f, device, step, brings, &last_one);
    FRUGAL_ASSERT(status == FRUGAL_OK), (void)status;
    if (last_one) frugal_priv_event_notify(f->event); /* the step can be closed */
}

frugal_status frugal_update(frugal *f, uint32_t device, uint64_t step, const frugal_gradients *gradients) {
    frugal_status status = frugal_priv_check_looked_up(f, device, step, "update");
    if (status != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return frugal_priv_stopped("update"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return frugal_priv_lost(f, "update");    /* [F10] pairs with [F9] */
    frugal_priv_dev *dev = &f->devices[device];
    int brings = gradients && (gradients->grads || gradients->records);
    if (brings) status = frugal_priv_check_gradients(f, device, step, gradients);
    if (status != FRUGAL_OK) return status;
    if (brings || dev->ops.poll) {
        frugal_step view = frugal_priv_step_view(f, device, step);
        view.brings = brings;
        if (brings && gradients->by_bag) view.bags = &dev->bags;
        frugal_priv_fenv saved = frugal_priv_fenv_enter();
        if (brings) status = frugal_priv_fix_settings(f, step, gradients->lr, &view.hyper);
        if (status == FRUGAL_OK) status = dev->ops.update(dev->state, &view, brings ? gradients->grads : NULL);
        frugal_priv_fenv_leave(saved);
        if (status == FRUGAL_ERR_SETTINGS) return status;
        if (status != FRUGAL_OK) return frugal_priv_refused(f, device, status, "update");
    }
    frugal_priv_commit(f, device, step, brings);
    return FRUGAL_OK;
}
