/* step.c - a step of a device: announce, lookup, update. */
#include "host.h"

static int announce_ready(frugal *f, const condition *what) {
    return frugal_p2f_legal(f->p2f, what->step);
}

/* Why the step may not be announced yet: a device that has not announced the step before, or the lookahead. */
static gate_cause announce_cause(frugal *f, uint64_t step) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t announced = frugal_p2f_announced(f->p2f, d);
        if (announced < step) return (gate_cause){CAUSE_ANNOUNCE, d, step - 1, announced};
    }
    return (gate_cause){CAUSE_AHEAD, NO_DEVICE, step, frugal_p2f_closed(f->p2f)};
}

static void announce_explain(frugal *f, const condition *what, char *text, size_t size) {
    gate_cause cause = announce_cause(f, what->step);
    uint32_t late = 0;
    if (cause.kind == CAUSE_ANNOUNCE) {
        explain_announce(f, what->d, cause.d, cause.count, text, size);
        return;
    }
    while (late < f->desc.devices &&
           (has_finished(f, late, cause.count) || frugal_p2f_committed(f->p2f, late) > cause.count))
        late++;
    explain_ahead(f, late < f->desc.devices ? late : NO_DEVICE, cause.count, text, size);
}

static frugal_status wait_to_announce(frugal *f, const condition *legal) {
    gate_cause cause = announce_cause(f, legal->step);
    double since = clock_now();
    frugal_status status = wait_until(f, legal);
    trace_wait(f, TRACE_WAIT, legal->d, &cause, since, clock_now());
    return status;
}

/* What a device sees of its batch. */
static frugal_step step_view(frugal *f, uint32_t d, uint64_t step) {
    const host_batch *b = batch_at(f, d, step);
    const uint32_t *record_of = b->has_record_of ? b->record_of : NULL;
    frugal_records records = {
        block_at(f, d, step), f->record_stride, b->n, b->n_unique, record_of, b->order, b->start, b->rows};
    const uint64_t *alone = f->devices[d].in_place ? frugal_p2f_alone(f->p2f, d, step) : NULL;
    frugal_step view = {.step = step,
                        .records = records,
                        .stride = f->store.dim,
                        .valid = b->valid,
                        .worth = b->counted ? b->worth : NULL,
                        .lost = b->lost,
                        .n_lost = b->n_lost,
                        .alone = alone,
                        .read_only = b->read_only};
    view.secondaries = secondaries_of(f, d, step, &view.n_secondaries);
    return view;
}

/* Announces a legal step, whose keys are sorted: sorted[n], row << 32 | position. */
static frugal_status announce_sorted(frugal *f, uint32_t d, uint64_t step, const uint64_t *sorted, uint32_t n,
                                     int read_only) {
    host_device *device = &f->devices[d];
    host_batch *b = batch_at(f, d, step); /* free: step - (L + 1) is closed */
    begin_ahead(f, d, step);
    deduplicate(b, sorted, n);
    b->read_only = read_only, b->step = step;
    begin_count(f, d, b);
    announce_clocks(f, d, step, b);
    const frugal_p2f_batch rows = {.rows = b->rows,
                                   .n = b->n_unique,
                                   .read_only = b->read_only,
                                   .in_place = device->in_place,
                                   .lost = b->counted ? b->lost_by : NULL};
    frugal_status status = frugal_p2f_announce(f->p2f, d, step, &rows, b->valid);
    FRUGAL_ASSERT(status == FRUGAL_OK);
    if (b->counted) count_batch(f, b);
    if (device->ops.announced) {
        frugal_step view = step_view(f, d, step);
        device->ops.announced(device->state, &view);
    }
    hand_ahead(f, d, step);                        /* before its lookup may come, which asks for what is left */
    frugal_store_release(&device->told, step + 1); /* [F11] pairs with [F12] */
    announce_finished(f);
    event_notify(f->event); /* the step may be sealed now, and rows urgent */
    return status;
}

/* Announces a batch that a device of another process has posted: AGAIN while the step is not legal. Its process has
 * checked the keys; this is checked again, because it is what memory here depends on: in a copy, which that process
 * cannot change. */
static frugal_status announce_posted(frugal *f, uint32_t d, uint64_t step, const posted_batch *post) {
    frugal_status status = FRUGAL_OK;
    uint32_t n = post->n;
    int is_sorted = n <= f->desc.max_keys, read_only = post->read_only;
    uint64_t *sorted = f->devices[d].sorted;
    if (!frugal_p2f_legal(f->p2f, step)) return FRUGAL_AGAIN;
    if (is_sorted) memcpy(sorted, post->sorted, n * sizeof *sorted);
    for (uint32_t i = 0; is_sorted && i < n; i++)
        is_sorted = sorted[i] >> 32 < f->store.rows && (uint32_t)sorted[i] < n && (i == 0 || sorted[i] > sorted[i - 1]);
    if (!is_sorted)
        return frugal_fail(FRUGAL_ERR_PROCESS, "announce: the batch of device %u at step %llu is damaged", d,
                           (unsigned long long)step);
    if (!read_only && (status = use_table_file(f)) != FRUGAL_OK) return status;
    return announce_sorted(f, d, step, sorted, n, read_only);
}

/* Does the device sort its next batch itself? Not where the host needs the rows. */
static int sorts_itself(frugal *f, uint32_t d) {
    const host_device *device = &f->devices[d];
    int needed = f->joined || f->clocks || f->changed || f->file || (is_counting(f) && !f->counter);
    return device->ops.sort && !needed && !frugal_p2f_has_words(f->p2f);
}

int frugal_sorts(frugal *f, uint32_t d) {
    return is_usable(f) && d < f->desc.devices && is_attached(f, d) && sorts_itself(f, d);
}

/* Announces a legal step whose rows the device finds. */
static frugal_status announce_unsorted(frugal *f, uint32_t d, const frugal_unsorted *batch) {
    host_device *device = &f->devices[d];
    host_batch *b = batch_at(f, d, batch->step); /* free: step - (L + 1) is closed */
    frugal_status status = device->ops.sort(device->state, batch);
    if (status != FRUGAL_OK) return after_refusal(f, d, status, "announce");
    b->n = batch->n, b->n_unique = 0;
    b->read_only = batch->read_only, b->step = batch->step;
    b->is_unsorted = 1, b->has_record_of = b->counted = 0, b->n_lost = 0;
    const frugal_p2f_batch rows = {.n = batch->n, .read_only = b->read_only, .in_place = 1};
    status = frugal_p2f_announce(f->p2f, d, batch->step, &rows, b->valid);
    FRUGAL_ASSERT(status == FRUGAL_OK);
    frugal_store_release(&device->told, batch->step + 1); /* [F11] pairs with [F12] */
    event_notify(f->event);
    return status;
}

/* `there`: its keys lie where the device reaches them (frugal_announce_there); NULL: in host memory. */
static frugal_status announce_step(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch,
                                   const frugal_unsorted *there, int wait) {
    frugal_status status = check_own(f, d, "announce");
    if (status != FRUGAL_OK) return status;
    if (!batch || (batch->n_segments && !batch->segments))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "announce: the batch is NULL");
    host_device *device = &f->devices[d];
    uint64_t next = f->joined ? next_posted(f, d) : frugal_p2f_announced(f->p2f, d);
    if (has_finished(f, d, next)) return fail_finished(f, "announce", d, step, FRUGAL_ERR_ORDER);
    if (step != next) return fail_order("announce", d, step, "announce", next);
    uint32_t n = 0;
    if ((status = there ? check_batch(f, d, batch, &n) : read_keys(f, d, batch, &n)) != FRUGAL_OK) return status;
    if (!batch->read_only && (status = use_table_file(f)) != FRUGAL_OK) return status;
    if (f->joined) {
        const uint64_t *keys = sort_by_row(f, d, n);
        return post_batch(f, d, step, keys, n, batch->read_only != 0, wait);
    }
    condition legal = {announce_ready, announce_explain, d, step, "announce", 1};
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("announce"); /* [F3] pairs with [F4] */
    if (!wait && !announce_ready(f, &legal)) {
        if (frugal_load_acquire(&f->lost)) return fail_lost(f, "announce"); /* [F10] pairs with [F9] */
        return FRUGAL_AGAIN;
    }
    int by_device = there || sorts_itself(f, d);
    uint64_t *sorted = by_device ? device->sorted : sort_by_row(f, d, n);
    if (!announce_ready(f, &legal)) {
        double since = clock_now();
        status = wait_to_announce(f, &legal);
        tally(&device->announce_ns, (uint64_t)((clock_now() - since) * 1e9));
        if (status != FRUGAL_OK) return status;
    }
    if (!by_device) return announce_sorted(f, d, step, sorted, n, batch->read_only);
    frugal_unsorted unsorted = {step, n, batch->read_only != 0, there ? NULL : sorted, batch, NULL};
    if (there) unsorted.stream = there->stream;
    return announce_unsorted(f, d, &unsorted);
}

static frugal_status announce_traced(frugal *f, uint32_t d, uint64_t step, const frugal_batch *batch,
                                     const frugal_unsorted *there, int wait) {
    trace_span span = trace_enter(f, TRACE_ANNOUNCE, d, step);
    frugal_status status = announce_step(f, d, step, batch, there, wait);
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

/* Floats from row to row of an array of the caller: 0 stands for dim. */
static uint64_t stride_of(const frugal *f, uint64_t stride) {
    return stride ? stride : f->store.dim;
}

static frugal_status check_stride(const frugal *f, uint64_t stride, const char *call) {
    if (stride_of(f, stride) >= f->store.dim) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: a stride of %llu floats; rows have %u, so give that or more", call,
                       (unsigned long long)stride, f->store.dim);
}

typedef struct row_array {   /* where a lookup writes */
    float *rows;             /* NULL: into the staging block */
    uint64_t stride;         /* 0: dim */
    const frugal_bags *bags; /* NULL: by position */
} row_array;

/* Waits until the device has found the rows of the batch; only now their number is known. */
static frugal_status find_unsorted(frugal *f, uint32_t d, host_batch *b) {
    host_device *device = &f->devices[d];
    frugal_status status = device->ops.sorted(device->state, b->step, &b->n_unique);
    if (status == FRUGAL_ERR_KEY) return status;
    if (status != FRUGAL_OK) return after_refusal(f, d, status, "lookup");
    frugal_p2f_count_rows(f->p2f, b->step, b->n_unique);
    return status;
}

/* The caller has checked that the device is attached. */
static frugal_status lookup_step(frugal *f, uint32_t d, uint64_t step, row_array to, int wait) {
    frugal_status status;
    host_device *device = &f->devices[d];
    uint64_t next =
        frugal_load_acquire(&device->updated); /* [F6] pairs with [F5]: others commit once it has finished */
    if (has_finished(f, d, step)) return fail_finished(f, "lookup", d, step, FRUGAL_FINISHED);
    if (step != next) return fail_order("lookup", d, step, "look up", next);
    if ((status = check_stride(f, to.stride, "lookup")) != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("lookup"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return fail_lost(f, "lookup");    /* [F10] pairs with [F9] */
    if ((status = pass_gate(f, d, step, wait)) != FRUGAL_OK) return status;
    if (f->file) ask_for_batch(f, d, step);
    if ((status = begin_writing(f, d, "lookup")) != FRUGAL_OK) return status;
    host_batch *b = batch_at(f, d, step);
    if (b->is_unsorted && (status = find_unsorted(f, d, b)) != FRUGAL_OK) return status;
    if (to.bags && !b->is_unsorted) frugal_record_of(f, d, step);
    frugal_step view = step_view(f, d, step);
    view.repeated = frugal_load_relaxed(&device->looked_up) > step;
    view.bags = to.bags;
    view.stride = stride_of(f, to.stride);
    /* where batches are posted, the batch is not known before */
    if (f->joined && !view.repeated && device->ops.announced) device->ops.announced(device->state, &view);
    float_mode saved = float_mode_enter(); /* pooling is arithmetic */
    hold_copies(device);
    status = device->ops.lookup(device->state, &view, to.rows);
    release_copies(device);
    end_writing(f, d);
    float_mode_leave(saved);
    if (status != FRUGAL_OK) return after_refusal(f, d, status, "lookup");
    device->bags = to.bags ? *to.bags : (frugal_bags){0};
    if (!view.repeated) {
        tally(&device->keys, view.records.n);
        tally(&device->unique_rows, view.records.n_unique);
        tally(&device->stale_hits, count_stale(f, d, step));
        frugal_store_relaxed(&device->looked_up, step + 1);
    }
    return FRUGAL_OK;
}

static frugal_status lookup_traced(frugal *f, uint32_t d, uint64_t step, row_array to, int wait) {
    trace_span span = trace_enter(f, TRACE_LOOKUP, d, step);
    frugal_status status = check_own(f, d, "lookup");
    if (status == FRUGAL_OK) status = lookup_step(f, d, step, to, wait);
    trace_leave(f, &span, status);
    return status;
}

frugal_status frugal_lookup(frugal *f, uint32_t d, uint64_t step, float *rows) {
    return lookup_traced(f, d, step, (row_array){.rows = rows}, 1);
}
frugal_status frugal_try_lookup(frugal *f, uint32_t d, uint64_t step, float *rows) {
    return lookup_traced(f, d, step, (row_array){.rows = rows}, 0);
}
frugal_status frugal_lookup_strided(frugal *f, uint32_t d, uint64_t step, float *rows, uint64_t stride) {
    if (!rows || stride == 0)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "lookup_strided: %s",
                           rows ? "the stride is 0; it is dim at least" : "`rows` is NULL");
    return lookup_traced(f, d, step, (row_array){.rows = rows, .stride = stride}, 1);
}

/* All of bags but their offsets. */
static frugal_status check_pooling(const char *call, const frugal_bags *bags, const float *pooled) {
    if (!bags || !bags->offsets || (bags->n_bags && !pooled))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no bags, no offsets, or no array for the result", call);
    if (bags->pooling > FRUGAL_POOL_MEAN || (bags->pooling == FRUGAL_POOL_MEAN && bags->weights))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: pooling %d%s; there are 0 (sum) and 1 (mean, without weights)",
                           call, (int)bags->pooling, bags->weights ? " with weights" : "");
    return FRUGAL_OK;
}

frugal_status frugal_lookup_bags(frugal *f, uint32_t d, uint64_t step, const frugal_bags *bags, float *pooled) {
    frugal_status status = check_pooling("lookup_bags", bags, pooled);
    if (status != FRUGAL_OK) return status;
    return lookup_traced(f, d, step, (row_array){.rows = pooled, .stride = bags->stride, .bags = bags}, 1);
}

/* Has `step` been looked up, and not been updated yet? As lookup_step, for an attached device. */
static frugal_status check_looked_up(frugal *f, uint32_t d, uint64_t step, const char *call) {
    uint64_t updated = frugal_load_relaxed(&f->devices[d].updated); /* relaxed, both: this thread's own */
    if (step != updated) return fail_order(call, d, step, "update", updated);
    uint64_t looked_up = frugal_load_relaxed(&f->devices[d].looked_up);
    if (looked_up != step + 1) return fail_order(call, d, step, "look up", looked_up);
    return FRUGAL_OK;
}

frugal_status frugal_get_records(frugal *f, uint32_t d, uint64_t step, frugal_records *out) {
    frugal_status status = check_own(f, d, "get_records");
    if (status == FRUGAL_OK) status = check_looked_up(f, d, step, "get_records");
    if (status != FRUGAL_OK) return status;
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "get_records: `out` is NULL");
    /* If the gate was forced open, the block may hold records that are still to be flushed. */
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("get_records"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return fail_lost(f, "get_records");    /* [F10] pairs with [F9] */
    condition free_block = {own_ready, gate_explain, d, step, "get_records", 1};
    if (is_in_order(f, d) && (status = wait_until(f, &free_block)) != FRUGAL_OK) return status;
    host_batch *b = batch_at(f, d, step);
    if (b->is_unsorted) {
        frugal_step view = step_view(f, d, step);
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
    if (status == FRUGAL_OK) status = check_scale(gradients->scale);
    return status == FRUGAL_OK ? check_lr(f, gradients->lr) : status;
}

frugal_status frugal_sum_squares(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients,
                                 double *squares) {
    frugal_status status = check_own(f, d, "sum_squares");
    if (status == FRUGAL_OK) status = check_looked_up(f, d, step, "sum_squares");
    if (status != FRUGAL_OK) return status;
    if (!squares || !gradients || (!gradients->grads && !gradients->records))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "sum_squares: no %s", squares ? "gradients" : "`squares`");
    if ((status = check_gradients(f, d, step, gradients)) != FRUGAL_OK) return status;
    if (frugal_load_acquire(&f->stopped)) return fail_stopped("sum_squares"); /* [F3] pairs with [F4] */
    if (frugal_load_acquire(&f->lost)) return fail_lost(f, "sum_squares");    /* [F10] pairs with [F9] */
    host_device *device = &f->devices[d];
    if (!device->ops.squares)
        return frugal_fail(FRUGAL_ERR_DEVICE, "sum_squares: device %u is of a kind that has no such sum", d);
    frugal_step view = step_view(f, d, step);
    view.brings = 1, view.stride = stride_of(f, gradients->stride);
    if (gradients->by_bag) view.bags = &device->bags;
    float_mode saved = float_mode_enter();
    status = device->ops.squares(device->state, &view, gradients->grads, squares);
    float_mode_leave(saved);
    return status == FRUGAL_OK ? status : after_refusal(f, d, status, "sum_squares");
}

/* Commits at once, or leaves this to the thread that polls the device, or to the process that opened the instance. */
static void commit_step(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *brought) {
    host_device *device = &f->devices[d];
    int last_one = 0, brings = brought != NULL;
    if (f->joined) {
        post_update(f, d, step, brought);
        return;
    }
    device->brings[step % FRUGAL_P2F_SLOTS] = (uint8_t)brings;
    frugal_store_release(&device->updated, step + 1); /* [F5] pairs with [F6] */
    if (device->ops.poll) {
        event_notify(f->event); /* there is something to look after */
        return;
    }
    frugal_status status = commit_device(f, d, step, brings, &last_one);
    FRUGAL_ASSERT(status == FRUGAL_OK), (void)status;
    if (commit_finished(f) || last_one) event_notify(f->event); /* the step can be closed */
}

static frugal_status update_step(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
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
        if (brings) view.stride = stride_of(f, gradients->stride);
        float_mode saved = float_mode_enter();
        frugal_status settled = brings ? fix_settings(f, step, gradients, &view.hyper) : FRUGAL_OK;
        if (settled == FRUGAL_OK) settled = begin_writing(f, d, "update");
        hold_copies(device);
        if (settled == FRUGAL_OK) status = device->ops.update(device->state, &view, brings ? gradients->grads : NULL);
        if (settled == FRUGAL_OK && status == FRUGAL_OK && f->joined) status = finish_work(f, d, step);
        release_copies(device);
        if (settled == FRUGAL_OK) end_writing(f, d);
        float_mode_leave(saved);
        if (settled != FRUGAL_OK) return settled;
        if (status != FRUGAL_OK) return after_refusal(f, d, status, "update");
    }
    commit_step(f, d, step, brings ? gradients : NULL);
    return FRUGAL_OK;
}

frugal_status frugal_update(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    trace_span span = trace_enter(f, TRACE_UPDATE, d, step);
    frugal_status status = check_own(f, d, "update");
    if (status == FRUGAL_OK) status = update_step(f, d, step, gradients);
    trace_leave(f, &span, status);
    return status;
}
