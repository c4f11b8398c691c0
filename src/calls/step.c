/* step.c - a step of a device: announce, lookup, update. */
#include "calls.h"

static int announce_ready(frugal *f, const condition *what) {
    return frugal_p2f_legal(f->p2f, what->step);
}

/* The step may not be announced yet, because it is as far ahead as it may be. Of the devices that have not announced or
 * not updated the step that is in the way, one is named. */
static void announce_explain(frugal *f, const condition *what, char *text, size_t size) {
    uint64_t closed = frugal_p2f_closed(f->p2f);
    uint32_t late = 0;
    while (late < f->desc.devices && (has_finished(f, late, closed) || /* relaxed: it is only text */
                                      frugal_load_relaxed(&f->devices[late].handed) > closed))
        late++;
    if (late < f->desc.devices) {
        explain_announce(f, what->d, late, closed, text, size);
        return;
    }
    late = 0;
    while (late < f->desc.devices && (has_finished(f, late, closed) || frugal_p2f_committed(f->p2f, late) > closed))
        late++;
    explain_ahead(f, late < f->desc.devices ? late : NO_DEVICE, closed, text, size);
}

static frugal_status wait_to_announce(frugal *f, const condition *legal) {
    gate_cause cause = {CAUSE_AHEAD, NO_DEVICE, legal->step, frugal_p2f_closed(f->p2f)};
    double since = clock_now();
    frugal_status status = wait_until(f, legal);
    trace_wait(f, TRACE_WAIT, legal->d, &cause, since, clock_now());
    tally(&f->devices[legal->d].announce_ns, (uint64_t)((clock_now() - since) * 1e9));
    return status;
}

/* The device's batch of a legal step is about to be written. */
static host_batch *begin_batch(frugal *f, uint32_t d, uint64_t step, uint32_t n, int read_only) {
    host_batch *b = batch_at(f, d, step); /* free: step - (L + 1) is closed */
    begin_ahead(f, d, step);
    frugal_store_relaxed(&b->stage, BATCH_SORTING); /* not to be claimed, nor given; relaxed: published by `handed` */
    b->step = step, b->n = n, b->read_only = read_only;
    b->counted = is_counting(f) && !f->touches.counter;
    f->devices[d].reads_only[step % FRUGAL_P2F_SLOTS] = (uint8_t)read_only;
    return b;
}

/* It is written: its rows by position; or, at a later stage, what that has. `handed` comes first: the thread that finds
 * the stage gives the batch, or leaves it to one that gives those before it; both must know that it is there. */
static void hand_in(frugal *f, uint32_t d, host_batch *b, uint32_t stage) {
    if (stage == BATCH_AWAY) frugal_add_release(&f->devices[d].away, 1); /* [F67] pairs with [F68] */
    frugal_store_release(&f->devices[d].handed, b->step + 1);            /* [F60] pairs with [F59], as the next */
    frugal_store_release(&b->stage, stage);
    if (stage == BATCH_HANDED) frugal_add_relaxed(&f->sorting.unsorted, 1); /* relaxed: a hint; the event tells of it */
    event_notify(f->event);
}

/* Announces a batch that comes sorted from elsewhere: AGAIN while the step is not legal. Whoever sent it has checked
 * the keys; this is checked again, because it is what memory here depends on: in a copy, which nobody else can change.
 * */
FRUGAL_INTERNAL frugal_status announce_sorted(frugal *f, uint32_t d, uint64_t step, const sorted_batch *batch) {
    frugal_status status = FRUGAL_OK;
    uint32_t n = batch->n;
    if (!frugal_p2f_legal(f->p2f, step)) return FRUGAL_AGAIN;
    sort_memory *m = take_sort_memory(f);
    if (!m) return FRUGAL_AGAIN;
    int is_sorted = n <= f->desc.max_keys && batch->fill(f, batch->from, m->pairs, n);
    for (uint32_t i = 0; is_sorted && i < n; i++)
        is_sorted =
            m->pairs[i] >> 32 < f->store.rows && (uint32_t)m->pairs[i] < n && (i == 0 || m->pairs[i] > m->pairs[i - 1]);
    if (!is_sorted)
        status = frugal_fail(FRUGAL_ERR_PROCESS, "announce: the batch of device %u at step %llu is damaged", d,
                             (unsigned long long)step);
    if (status == FRUGAL_OK && !batch->read_only) status = use_table_file(f);
    if (status == FRUGAL_OK) {
        host_batch *b = begin_batch(f, d, step, n, batch->read_only);
        list_batch(f, d, b, m->pairs);
        if (f->devices[d].mail) frugal_record_of(f, d, step); /* its process cannot write there, and may want it */
        hand_in(f, d, b, BATCH_SORTED);
    }
    give_back_sort_memory(f, m);
    if (status != FRUGAL_OK) return status;
    give_batches(f, d);
    announce_finished(f);
    event_notify(f->event); /* the step may be sealed now */
    return FRUGAL_OK;
}

/* Not where other processes take part: they would wait for a step with a bad key, and are told of no such thing. */
int frugal_sorts(frugal *f, uint32_t d) {
    return is_usable(f) && d < f->desc.devices && is_attached(f, d) && f->devices[d].sorts && !f->shared.door;
}

/* Does the host need the rows of batches? */
static int needs_rows(frugal *f) {
    return frugal_p2f_has_words(f->p2f) || f->clocks || f->saving.changed || f->file ||
           (is_counting(f) && !f->touches.counter);
}

/* Announces a legal step whose rows the device finds. */
static frugal_status announce_unsorted(frugal *f, uint32_t d, frugal_unsorted *batch) {
    host_device *device = &f->devices[d];
    host_batch *b = begin_batch(f, d, batch->step, batch->n, batch->read_only);
    b->n_unique = b->n_own = 0, b->has_record_of = 0, b->here = needs_rows(f) ? ROWS_HERE : NONE_HERE;
    batch->found = b->here == ROWS_HERE ? b->rows : NULL;
    frugal_status status = device->ops.sort(device->state, batch);
    if (status != FRUGAL_OK) return after_refusal(f, d, status, "announce");
    hand_in(f, d, b, BATCH_AWAY);
    return FRUGAL_OK;
}

/* Copies, sorts and plans until other threads do all that is left. */
static void help_announcing(frugal *f) {
    trace_ring *claimed = trace_claim(f);
    double since = clock_now();
    while (help_job(f) || help_sort(f, &since) || help_plan(f, &since)) continue;
    trace_release(claimed);
}

/* The next step that the device is to announce. */
FRUGAL_INTERNAL uint64_t next_handed(const frugal *f, uint32_t d) {
    return frugal_load_relaxed(&f->devices[d].handed); /* relaxed: the loader's own */
}

FRUGAL_INTERNAL frugal_status announce_here(frugal *f, const announcement *a) {
    const uint32_t d = a->d, n = a->n, read_only = a->batch->read_only != 0;
    const uint64_t step = a->step;
    const frugal_unsorted *there = a->there;
    host_device *device = &f->devices[d];
    frugal_status status;
    condition legal = {announce_ready, announce_explain, d, step, "announce", 2};
    int is_ready = announce_ready(f, &legal);
    /* where there is no room yet, keys are checked all the same */
    if (!there && !is_ready && (status = read_piece_of_keys(f, a->batch, NULL, 0, n)) != FRUGAL_OK) return status;
    uint32_t *rows = batch_at(f, d, step)->record_of;
    if (!there && is_ready && (status = read_keys(f, d, a->batch, rows, n)) != FRUGAL_OK) return status;
    if (!read_only && (status = use_table_file(f)) != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("announce"); /* [F3] pairs with [F4] */
    if (!a->wait && !is_ready) {
        if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, "announce"); /* [F10] pairs with [F9] */
        if (is_refused(f, step)) return fail_refused(f);
        return FRUGAL_AGAIN;
    }
    if (!is_ready) {
        if ((status = wait_to_announce(f, &legal)) != FRUGAL_OK) return status;
        if (!there && (status = read_keys(f, d, a->batch, rows, n)) != FRUGAL_OK) return status; /* changed meanwhile */
    }
    if (device->sorts) {
        frugal_unsorted unsorted = {
            step, n, (int)read_only, there ? NULL : rows, a->batch, there ? there->stream : NULL, NULL};
        status = announce_unsorted(f, d, &unsorted);
    } else {
        hand_in(f, d, begin_batch(f, d, step, n, (int)read_only), BATCH_HANDED);
        if (a->wait) help_announcing(f);
        status = FRUGAL_OK;
    }
    tell_device(f, d);
    return status;
}

static frugal_status announce_step(frugal *f, announcement *a) {
    frugal_status status = check_own(f, a->d, "announce");
    if (status != FRUGAL_OK) return status;
    if (!a->batch || (a->batch->n_segments && !a->batch->segments))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "announce: the batch is NULL");
    uint64_t next = f->ops->next(f, a->d);
    if (has_finished(f, a->d, next)) return fail_finished(f, "announce", a->d, a->step, FRUGAL_ERR_ORDER);
    if (a->step != next) return fail_order("announce", a->d, a->step, "announce", next);
    status = check_batch(f, a->d, a->batch, &a->n);
    return status == FRUGAL_OK ? f->ops->announce(f, a) : status;
}

static frugal_status announce_traced(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch,
                                     const frugal_unsorted *there, int wait) {
    trace_span span = trace_enter(f, TRACE_ANNOUNCE, d, step);
    frugal_status status =
        announce_step(f, &(announcement){.d = d, .step = step, .batch = batch, .there = there, .wait = wait});
    if (span.ring && status == FRUGAL_OK) span.event.a = count_keys(batch->segments, batch->n_segments);
    trace_leave(f, &span, status);
    return status;
}

frugal_status frugal_announce(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch) {
    return announce_traced(f, d, step, batch, NULL, 1);
}
frugal_status frugal_try_announce(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch) {
    return announce_traced(f, d, step, batch, NULL, 0);
}
frugal_status frugal_announce_there(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch, void *stream) {
    const frugal_unsorted there = {.stream = stream};
    if (!frugal_sorts(f, d))
        return frugal_fail(FRUGAL_ERR_DEVICE, "announce: device %u does not sort its batches itself", d);
    return announce_traced(f, d, step, batch, &there, 1);
}

/* Elements from row to row of an array of the caller: 0 stands for dim. */
static uint64_t stride_of(const frugal *f, uint64_t stride) {
    return stride ? stride : f->store.dim;
}

static frugal_status check_stride(const frugal *f, uint64_t stride, const char *call) {
    if (stride_of(f, stride) >= f->store.dim) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: a stride of %llu elements; rows have %u, so give that or more", call,
                       (unsigned long long)stride, f->store.dim);
}

static frugal_status begin_writing(frugal *f, uint32_t d, const char *call) {
    return f->ops->begin_writing ? f->ops->begin_writing(f, d, call) : FRUGAL_OK;
}
static void end_writing(frugal *f, uint32_t d) {
    if (f->ops->end_writing) f->ops->end_writing(f, d, 1);
}

/* The caller has checked that the device is attached. */
FRUGAL_INTERNAL frugal_status lookup_step(frugal *f, uint32_t d, uint64_t step, const frugal_row_array *to) {
    frugal_status status;
    host_device *device = &f->devices[d];
    uint64_t stride = to->bags ? to->bags->stride : to->stride;
    uint64_t next =
        frugal_load_acquire(&device->updated); /* [F6] pairs with [F5]: others commit once it has finished */
    if (has_finished(f, d, step)) return fail_finished(f, "lookup", d, step, FRUGAL_FINISHED);
    if (step != next) return fail_order("lookup", d, step, "look up", next);
    if ((status = check_stride(f, stride, "lookup")) != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("lookup");     /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, "lookup"); /* [F10] pairs with [F9] */
    if (is_refused(f, step)) return fail_refused(f);
    if ((status = f->ops->pass_gate(f, d, step, !to->no_wait)) != FRUGAL_OK) return status;
    if (f->file) ask_for_batch(f, d, step);
    if ((status = begin_writing(f, d, "lookup")) != FRUGAL_OK) return status;
    host_batch *b = batch_at(f, d, step);
    if (to->bags && b->here == ALL_HERE) frugal_record_of(f, d, step);
    frugal_step view = step_view(f, d, step);
    view.repeated = frugal_load_relaxed(&device->looked_up) > step;
    if (view.guests && !view.repeated) place_guests(f, d, step);
    view.bags = to->bags;
    view.stride = stride_of(f, stride), view.as = to->as;
    if (!f->ops->owns && !view.repeated && device->ops.announced) /* posted: its own thread does not know it before */
        device->ops.announced(device->state, &view);
    float_mode saved = float_mode_enter(); /* pooling is arithmetic */
    hold_copies(device);
    status = device->ops.lookup(device->state, &view, to->rows);
    release_copies(device);
    end_writing(f, d);
    float_mode_leave(saved);
    if (status != FRUGAL_OK) return after_refusal(f, d, status, "lookup");
    device->bags = to->bags ? *to->bags : (frugal_bags){0};
    if (!view.repeated && (!f->dealing || device->guests)) { /* devices that are away count on their machine */
        tally(&device->keys, view.records.n);
        tally(&device->unique_rows, view.records.n_unique);
        tally(&device->secondary_hits, count_stale(f, d, step));
    }
    if (!view.repeated) frugal_store_relaxed(&device->looked_up, step + 1);
    return FRUGAL_OK;
}

/* All of bags but their offsets. */
FRUGAL_INTERNAL frugal_status check_pooling(const char *call, const frugal_bags *bags, const void *pooled) {
    if (!bags || !bags->offsets || (bags->n_bags && !pooled))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no bags, no offsets, or no array for the result", call);
    if (bags->pooling > FRUGAL_POOL_MEAN || (bags->pooling == FRUGAL_POOL_MEAN && bags->weights))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: pooling %d%s; there are 0 (sum) and 1 (mean, without weights)",
                           call, (int)bags->pooling, bags->weights ? " with weights" : "");
    return FRUGAL_OK;
}

/* The elements of an array of the caller. On a GPU one that is not aligned would end all work there. */
static frugal_status check_elements(const char *call, frugal_type as, const void *array) {
    if (as > FRUGAL_FP16)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: elements of type %d; there are 0 (fp32), 1 (bf16), 2 (fp16)", call,
                           (int)as);
    if ((uintptr_t)array % frugal_type_bytes(as) == 0) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: an array at %p, whose elements have %u bytes; begin at a multiple",
                       call, array, frugal_type_bytes(as));
}

/* `to` is NULL where an inline form of the lookup lacks what makes it that form. */
static frugal_status check_row_array(const frugal_row_array *to) {
    if (!to)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "lookup: `to` is NULL; or lookup_strided: the stride is 0, and is dim at "
                           "least; or lookup_bags: there are no bags");
    if (to->stride && (to->bags || !to->rows))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "lookup: a stride of %llu, and %s", (unsigned long long)to->stride,
                           to->bags ? "bags, which have their own; let it be 0" : "`rows` is NULL");
    if (to->as != FRUGAL_FP32 && !to->rows)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "lookup: `as` is %d, and `rows` is NULL; the staging block has floats: let it be 0",
                           (int)to->as);
    frugal_status status = check_elements("lookup", to->as, to->rows);
    return status == FRUGAL_OK && to->bags ? check_pooling("lookup_bags", to->bags, to->rows) : status;
}

frugal_status frugal_lookup_into(frugal *f, uint32_t d, uint64_t step, const frugal_row_array *to) {
    frugal_status status = check_row_array(to);
    if (status != FRUGAL_OK) return status;
    trace_span span = trace_enter(f, TRACE_LOOKUP, d, step);
    status = check_own(f, d, "lookup");
    if (status == FRUGAL_OK) status = lookup_step(f, d, step, to);
    trace_leave(f, &span, status);
    return status;
}

/* Has `step` been looked up, and not been updated yet? As lookup_step, for an attached device. */
static frugal_status check_looked_up(frugal *f, uint32_t d, uint64_t step, const char *call) {
    uint64_t updated = frugal_load_relaxed(&f->devices[d].updated); /* relaxed, both: this thread's own */
    if (step != updated) return fail_order(call, d, step, "update", updated);
    uint64_t looked_up = frugal_load_relaxed(&f->devices[d].looked_up);
    if (looked_up != step + 1) return fail_order(call, d, step, "look up", looked_up);
    return FRUGAL_OK;
}

/* Waits until no record of an older step is in the block of this one. */
FRUGAL_INTERNAL frugal_status await_block(frugal *f, uint32_t d, uint64_t step, const char *call) {
    condition free_block = {own_ready, gate_explain, d, step, call, 1};
    return wait_until(f, &free_block);
}

frugal_status frugal_get_records(frugal *f, uint32_t d, uint64_t step, frugal_records *out) {
    frugal_status status = check_own(f, d, "get_records");
    if (status == FRUGAL_OK) status = check_looked_up(f, d, step, "get_records");
    if (status != FRUGAL_OK) return status;
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "get_records: `out` is NULL");
    /* If the gate was forced open, the block may hold records that are still to be flushed. */
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("get_records");     /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, "get_records"); /* [F10] pairs with [F9] */
    if (is_in_order(f, d)) status = f->ops->await_block(f, d, step, "get_records");
    if (status != FRUGAL_OK) return status;
    host_batch *b = batch_at(f, d, step);
    if (b->here != ALL_HERE) {
        frugal_step view = step_view(f, d, step);
        if (b->here == ROWS_HERE) view.records.rows = NULL; /* others are reading them */
        status = f->devices[d].ops.fetch(f->devices[d].state, &view, &view.records);
        if (status != FRUGAL_OK) return after_refusal(f, d, status, "get_records");
    }
    frugal_record_of(f, d, step);
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
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: by_bag is set, but there %s of step %llu",
                           gradients->grads ? "was no frugal_lookup_bags" : "are no `grads`", (unsigned long long)step);
    uint32_t n = gradients->by_bag ? f->devices[d].bags.n_bags : batch_at(f, d, step)->n;
    if (gradients->grads && gradients->n && gradients->n != n)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "update: %llu gradients; step %llu of device %u has %u %s",
                           (unsigned long long)gradients->n, (unsigned long long)step, d, n,
                           gradients->by_bag ? "bags" : "positions");
    frugal_status status = check_stride(f, gradients->stride, "update");
    if (status == FRUGAL_OK) status = check_elements("update", gradients->as, gradients->grads);
    if (status == FRUGAL_OK) status = check_scale(gradients->scale);
    return status == FRUGAL_OK ? check_lr(f, gradients->lr) : status;
}

/* Records are floats. */
static frugal_type type_of_grads(const frugal_gradients *gradients) {
    return gradients->grads ? gradients->as : FRUGAL_FP32;
}

frugal_status frugal_sum_squares(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients,
                                 double *squares) {
    frugal_status status = check_own(f, d, "sum_squares");
    if (status == FRUGAL_OK) status = check_looked_up(f, d, step, "sum_squares");
    if (status != FRUGAL_OK) return status;
    if (!squares || !gradients || (!gradients->grads && !gradients->records))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "sum_squares: no %s", squares ? "gradients" : "`squares`");
    if ((status = check_gradients(f, d, step, gradients)) != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("sum_squares");     /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, "sum_squares"); /* [F10] pairs with [F9] */
    host_device *device = &f->devices[d];
    if (!device->ops.squares)
        return frugal_fail(FRUGAL_ERR_DEVICE, "sum_squares: device %u is of a kind that has no such sum", d);
    frugal_step view = step_view(f, d, step);
    view.brings = 1, view.stride = stride_of(f, gradients->stride), view.as = type_of_grads(gradients);
    if (gradients->by_bag) view.bags = &device->bags;
    if (device->guests) order_squares(f, d, &view);
    float_mode saved = float_mode_enter();
    status = device->ops.squares(device->state, &view, gradients->grads, squares);
    float_mode_leave(saved);
    return status == FRUGAL_OK ? status : after_refusal(f, d, status, "sum_squares");
}

/* Commits at once, or leaves this to the thread that polls the device. */
FRUGAL_INTERNAL void commit_here(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *brought) {
    host_device *device = &f->devices[d];
    int last_one = 0, brings = brought != NULL;
    device->brings[step % FRUGAL_P2F_SLOTS] = (uint8_t)brings;
    if (device->guests)
        device->guests->settings[step % f->desc.staging] =
            (step_settings){step, brings, brings ? brought->lr : 0, brings ? brought->scale : 0};
    frugal_store_release(&device->updated, step + 1); /* [F5] pairs with [F6] */
    if (device->ops.poll) {
        event_notify(f->event); /* there is something to look after */
        return;
    }
    frugal_status status = commit_device(f, d, step, brings, &last_one);
    FRUGAL_ASSERT(status == FRUGAL_OK), (void)status;
    if (device->guests) wake_machines(f);                       /* records can leave */
    if (commit_finished(f) || last_one) event_notify(f->event); /* the step can be closed */
}

FRUGAL_INTERNAL frugal_status update_step(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    frugal_status status = check_looked_up(f, d, step, "update");
    if (status != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("update");     /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->loss.device)) return fail_lost(f, "update"); /* [F10] pairs with [F9] */
    host_device *device = &f->devices[d];
    int brings = gradients && (gradients->grads || gradients->records);
    if (brings) status = check_gradients(f, d, step, gradients);
    if (status != FRUGAL_OK) return status;
    if (brings || device->ops.poll) {
        frugal_step view = step_view(f, d, step);
        view.brings = brings;
        if (brings && gradients->by_bag) view.bags = &device->bags;
        if (brings) view.stride = stride_of(f, gradients->stride), view.as = type_of_grads(gradients);
        float_mode saved = float_mode_enter();
        frugal_status settled = brings ? fix_settings(f, step, gradients, &view.hyper) : FRUGAL_OK;
        if (settled == FRUGAL_OK) settled = begin_writing(f, d, "update");
        hold_copies(device);
        if (settled == FRUGAL_OK) status = device->ops.update(device->state, &view, brings ? gradients->grads : NULL);
        release_copies(device);
        int goes_on = device->ops.poll && status == FRUGAL_OK; /* it is a writer until it has done the update */
        if (settled == FRUGAL_OK && !goes_on) end_writing(f, d);
        float_mode_leave(saved);
        if (settled != FRUGAL_OK) return settled;
        if (status != FRUGAL_OK) return after_refusal(f, d, status, "update");
    }
    f->ops->commit(f, d, step, brings ? gradients : NULL);
    return FRUGAL_OK;
}

frugal_status frugal_update(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    trace_span span = trace_enter(f, TRACE_UPDATE, d, step);
    frugal_status status = check_own(f, d, "update");
    if (status == FRUGAL_OK) status = update_step(f, d, step, gradients);
    trace_leave(f, &span, status);
    return status;
}
