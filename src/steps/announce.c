/* announce.c - from the batches that loaders hand in to planned steps: by any thread that helps.
 *
 *      handed in -----> sorted -----> given -----> planned -----> told
 *      by the loader    batch.c       in order     in pieces      GPUs only
 *
 * A loader checks keys and copies their rows into the ring of the device's batches (step.c). Any thread may then sort
 * any batch: the batch of t + 3 need not wait for that of t. A GPU sorts its own: the thread that polls finds them done
 * (poll.c). The thread that has sorted one gives the state machine what follows of the device, in order; the last
 * device to come seals the step. Steps are planned one after the other, each in pieces of rows, of all devices. So no
 * part of a step hangs on one thread, and everything that announcing decides is a function of the batches.
 *
 * A device with the operation `announced` is then told. That may call a driver, which may let no other call through
 * while something waits for the GPU, and it may wait for a gate. So no thread that helps does it, but the device's
 * loader when it comes by, and otherwise a thread of ours, the teller.
 *
 * Contents: >>begin >>sort >>give >>plan >>tell >>hold
 */
#include "steps.h"

/* >>begin - while steps are cancelled, or counts are changed or saved, no thread may be at it */

/* `announcing` counts threads that sort, give or plan; above them those that wait until there is none; above these
 * those that hold it: then no thread may begin. */
#define ANNOUNCING_WAIT (UINT64_C(1) << 20)
#define ANNOUNCING_HOLD (UINT64_C(1) << 40)

FRUGAL_INTERNAL void end_announcing(frugal *f) {
    uint64_t before = frugal_add_release(&f->sorting.threads, (uint64_t)-1); /* [F55] pairs with [F56] */
    if (before > ANNOUNCING_WAIT && before % ANNOUNCING_WAIT == 1) event_notify(f->event);
}

/* Returns 0 if nothing may be done now. */
FRUGAL_INTERNAL int begin_announcing(frugal *f) {
    if (frugal_load_relaxed(&f->sorting.threads) >= ANNOUNCING_HOLD)
        return 0; /* relaxed: a hint; the event tells its end */
    /* [F53] acquire: what was changed meanwhile; pairs with [F54] */
    if (frugal_add_acquire(&f->sorting.threads, 1) < ANNOUNCING_HOLD) return 1;
    end_announcing(f);
    return 0;
}

/* Does no thread sort, give or plan? To be waited for only between wait_announcing and its end. */
FRUGAL_INTERNAL int announcing_is_over(frugal *f) {
    return frugal_load_acquire(&f->sorting.threads) % ANNOUNCING_WAIT == 0; /* [F56] pairs with [F55] */
}
FRUGAL_INTERNAL void wait_announcing(frugal *f) {
    frugal_add_relaxed(&f->sorting.threads, ANNOUNCING_WAIT); /* relaxed, both: announcing_is_over acquires */
}
FRUGAL_INTERNAL void end_wait_announcing(frugal *f) {
    frugal_add_relaxed(&f->sorting.threads, 0 - ANNOUNCING_WAIT);
}

/* >>sort */

/* Memory for sorting, that of any device; NULL: other threads have it all, and one that gives some back notifies, since
 * it finds that there was another taker. First a piece that is free is looked for, so that fewer are told in vain. */
FRUGAL_INTERNAL sort_memory *take_sort_memory(frugal *f) {
    for (uint32_t i = 0; i < 2 * f->desc.devices; i++) {
        sort_memory *m = &f->devices[i % f->desc.devices].sort;
        uint64_t takers = 0;
        if (i < f->desc.devices ? frugal_cas_acquire(&m->takers, &takers, 1) /* [F57] pairs with [F58], both */
                                : frugal_add_acquire(&m->takers, 1) == 0)
            return m;
    }
    return NULL;
}
FRUGAL_INTERNAL void give_back_sort_memory(frugal *f, sort_memory *m) {
    uint64_t takers = 1;
    while (!frugal_cas_release(&m->takers, &takers, 0)) continue; /* [F58] pairs with [F57] */
    if (takers > 1) event_notify(f->event);
}

/* Claims the batch, if it is handed in and no thread sorts it. It may be that of a later step by now. */
static int claim_one(frugal *f, uint32_t d, host_batch *b, claimed_batch *out) {
    uint32_t stage = frugal_load_relaxed(&b->stage); /* relaxed: proved by the compare-and-swap */
    while (stage == BATCH_HANDED) {
        if (!frugal_cas_acquire(&b->stage, &stage, BATCH_SORTING)) continue; /* [F59] pairs with [F60] */
        frugal_add_relaxed(&f->sorting.unsorted, (uint32_t)-1);              /* relaxed: a hint */
        *out = (claimed_batch){d, b};
        return 1;
    }
    return 0;
}

/* Claims the batch of the earliest step that no thread sorts; returns 0 if there is none. */
FRUGAL_INTERNAL int claim_batch(frugal *f, claimed_batch *out) {
    uint64_t closed = frugal_p2f_closed(f->p2f);
    for (uint64_t t = closed; t <= closed + f->desc.lookahead; t++)
        for (uint32_t d = 0; d < f->desc.devices; d++) /* relaxed: proved by the claim */
            if (frugal_load_relaxed(&f->devices[d].handed) > t && claim_one(f, d, batch_at(f, d, t), out)) return 1;
    return 0;
}

/* >>give */

/* Gives the state machine a batch. The caller holds `giving` of the device. */
FRUGAL_INTERNAL void give_batch(frugal *f, uint32_t d, uint64_t step) {
    host_device *device = &f->devices[d];
    host_batch *b = batch_at(f, d, step);
    const frugal_p2f_batch rows = {.rows = b->here == NONE_HERE ? NULL : b->rows,
                                   .n = b->n_own,
                                   .read_only = b->read_only,
                                   .in_place = device->in_place,
                                   .behind = b->n_unique - b->n_own};
    announce_clocks(f, step);
    hand_ahead(f, d, step); /* before its lookup may come, which asks for what is left */
    if (b->counted && !frugal_p2f_has_words(f->p2f)) count_whole(f, d, b);
    frugal_status status = frugal_p2f_announce(f->p2f, d, step, &rows);
    FRUGAL_ASSERT(status == FRUGAL_OK), (void)status;
}

/* Gives what is sorted of the device's next batches. The thread that has sorted the next one comes here, and gives
 * those after it, too, if others have sorted them meanwhile. */
FRUGAL_INTERNAL void give_batches(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    pthread_mutex_lock(&device->giving);
    for (uint64_t t = frugal_p2f_announced(f->p2f, d);
         t < frugal_load_acquire(&device->handed) &&                     /* [F59] pairs with [F60] */
         frugal_load_acquire(&batch_at(f, d, t)->stage) == BATCH_SORTED; /* [F61] pairs with [F62] */
         t++)
        give_batch(f, d, t);
    pthread_mutex_unlock(&device->giving);
}

/* The batch has its arrays. */
FRUGAL_INTERNAL void end_batch(host_batch *b) {
    frugal_store_release(&b->stage, BATCH_SORTED); /* [F62] pairs with [F61] */
}

/* >>plan */

/* Counts the touches of a piece's rows, device by device; first old counts are halved. */
static void count_planned(frugal *f, const frugal_p2f_piece *piece) {
    uint64_t from, end;
    int any = 0;
    for (uint32_t d = 0; d < f->desc.devices; d++) any |= batch_at(f, d, piece->step)->counted;
    if (!any) return;
    frugal_p2f_span(f->p2f, piece, &from, &end);
    age_rows(f, piece->step, from, end);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_batch *b = batch_at(f, d, piece->step);
        uint32_t first, n = b->counted ? frugal_p2f_range(f->p2f, piece, d, &first) : 0;
        if (n > 0) count_rows(f, d, b, first, first + n);
    }
}

/* Returns what frugal_p2f_plan does. */
FRUGAL_INTERNAL int plan_piece(frugal *f) {
    frugal_p2f_piece piece;
    if (!frugal_p2f_plan_begin(f->p2f, &piece)) return 0;
    count_planned(f, &piece);
    return frugal_p2f_plan_end(f->p2f, &piece);
}

/* >>tell */

/* Rows of which the device's copies became outdated in the step before, if that is known: *n of them, at most as many
 * as a batch has keys, because it is a hint. After a step in which a device only read, rows that were taken may still
 * have a current copy. */
static const uint32_t *outdated_rows(const frugal *f, uint32_t d, const host_batch *b, uint32_t *n) {
    const uint32_t *rows = NULL;
    *n = 0;
    if (!b->counted || f->desc.devices == 1 || f->desc.lookahead == 0 || b->step == f->desc.first_step) return NULL;
    for (uint32_t other = 0; f->ops->owns && other < f->desc.devices; other++)
        if (other != d && f->devices[other].reads_only[(b->step - 1) % FRUGAL_P2F_SLOTS]) return NULL;
    *n = LEAST(frugal_p2f_taken(f->p2f, d, b->step - 1, &rows), f->desc.max_keys);
    if (!f->ops->owns) *n = b->n_outdated; /* as the process that opened has found */
    return rows;
}

/* What a device sees of its batch, once the step is planned. */
FRUGAL_INTERNAL frugal_step step_view(frugal *f, uint32_t d, uint64_t step) {
    const host_batch *b = batch_at(f, d, step);
    const uint32_t *record_of = b->has_record_of ? b->record_of : NULL;
    frugal_records records = {
        block_at(f, d, step), f->record_stride, b->n, b->n_unique, record_of, b->order, b->start, b->rows};
    frugal_step view = {.step = step,
                        .records = records,
                        .stride = f->store.dim,
                        .valid = frugal_p2f_valid(f->p2f, d, step),
                        .worth = b->counted ? b->worth : NULL,
                        .alone = f->devices[d].in_place ? frugal_p2f_alone(f->p2f, d, step) : NULL,
                        .read_only = b->read_only,
                        .n_own = b->n_own};
    if (b->n_own < b->n_unique) show_guests(f, d, &view);
    view.outdated = outdated_rows(f, d, b, &view.n_outdated);
    view.secondaries = secondaries_of(f, d, step, &view.n_secondaries);
    return view;
}

/* Steps of which the device knows its batch: they are planned, and it was told. */
FRUGAL_INTERNAL uint64_t told_of(const frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    if (!device->ops.announced) return frugal_p2f_planned(f->p2f);
    return frugal_load_acquire(&device->told); /* [F12] pairs with [F11] */
}

/* Tells the device of its batches of planned steps. Returns 1 if there was any. */
FRUGAL_INTERNAL int tell_device(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    int any = 0;
    if (!is_attached(f, d) || !device->ops.announced) return 0;
    pthread_mutex_lock(&device->telling);
    uint64_t told = frugal_load_relaxed(&device->told); /* relaxed, both: under the lock; as has_finished says */
    for (; told < frugal_p2f_planned(f->p2f); told++, any = 1) {
        int knows = told >= frugal_load_relaxed(&device->end) || batch_at(f, d, told)->here == NONE_HERE;
        if (!knows) {
            frugal_step view = step_view(f, d, told);
            device->ops.announced(device->state, &view);
        }
        frugal_store_release(&device->told, told + 1); /* [F11] pairs with [F12] */
    }
    pthread_mutex_unlock(&device->telling);
    if (any) event_notify(f->event); /* a lookup may wait for it */
    return any;
}

struct teller {
    frugal *f;
    pthread_t thread;
    host_event event;
    FRUGAL_ATOMIC(uint32_t) ends; /* relaxed: the event tells of it, and the thread is joined */
};

static void *teller_main(void *argument) {
    struct teller *t = argument;
    for (;;) {
        uint32_t seen = event_prepare(&t->event);
        int any = 0;
        if (frugal_load_relaxed(&t->ends)) return NULL;
        for (uint32_t d = 0; d < t->f->desc.devices; d++) any |= tell_device(t->f, d);
        if (!any) event_sleep(&t->event, seen, FOREVER);
    }
}

/* A step is planned: devices may have to be told. */
FRUGAL_INTERNAL void wake_teller(frugal *f) {
    if (frugal_load_acquire(&f->telling.is_there)) event_notify(&f->telling.teller->event); /* [F63] pairs with [F64] */
}

/* Before a device with `announced` is attached. Any thread. */
FRUGAL_INTERNAL frugal_status open_teller(frugal *f) {
    frugal_status status = FRUGAL_OK;
    pthread_mutex_lock(&f->settings.lock);
    if (!f->telling.teller) {
        struct teller *t = frugal_allocate(f, sizeof *t, CACHE_LINE);
        if (t) t->f = f;
        int error = t ? start_quiet_thread(&t->thread, teller_main, t) : 0;
        if (!t) status = fail_memory("a thread", sizeof *t);
        if (error) status = frugal_fail(FRUGAL_ERR_WORKER, "attach: a thread cannot be started: %s", strerror(error));
        if (error) frugal_free(f, t, sizeof *t);
        if (status == FRUGAL_OK) f->telling.teller = t;
        if (status == FRUGAL_OK) frugal_store_release(&f->telling.is_there, 1); /* [F64] pairs with [F63] */
    }
    pthread_mutex_unlock(&f->settings.lock);
    return status;
}

FRUGAL_INTERNAL void close_teller(frugal *f) {
    struct teller *t = f->telling.teller;
    if (!t) return;
    frugal_store_relaxed(&t->ends, 1);
    event_notify(&t->event);
    pthread_join(t->thread, NULL);
    frugal_free(f, t, sizeof *t);
}

/* >>hold */

/* From here on no thread begins; those that have begun are waited for by announcing_is_over. */
FRUGAL_INTERNAL void hold_announcing(frugal *f) {
    frugal_add_relaxed(&f->sorting.threads, ANNOUNCING_HOLD); /* relaxed: as in wait_announcing */
}

FRUGAL_INTERNAL void release_announcing(frugal *f) {
    frugal_add_release(&f->sorting.threads, 0 - ANNOUNCING_HOLD); /* [F54] pairs with [F53] */
    event_notify(f->event); /* batches may wait to be sorted, steps to be planned */
    wake_teller(f);         /* and some were planned by a cancel */
}

/* Is all done that can be done with what is handed in: are batches sorted, the steps that all devices have announced
 * planned, and their touches counted? */
FRUGAL_INTERNAL int is_settled(frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t handed = frugal_load_acquire(&f->devices[d].handed); /* [F59] pairs with [F60] */
        for (uint64_t t = frugal_p2f_announced(f->p2f, d); t < handed; t++) {
            uint32_t stage = frugal_load_acquire(&batch_at(f, d, t)->stage); /* [F61] pairs with [F62] */
            if (stage != BATCH_SORTED && stage != BATCH_BAD) return 0;
        }
    }
    /* Who has sorted one had begun before: if that thread has not ended, it is seen here. */
    return announcing_is_over(f) && !frugal_p2f_has_plans(f->p2f);
}

/* Steps from `step` on were cancelled: batches of these are dropped. */
FRUGAL_INTERNAL void drop_batches(frugal *f, uint64_t step) {
    uint32_t unsorted = 0;
    if (frugal_load_relaxed(&f->sorting.bad) >= step) frugal_store_relaxed(&f->sorting.bad, UINT64_MAX);
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* relaxed, all but one: no announcement is under way */
        host_device *device = &f->devices[d];
        uint32_t away = 0;
        for (uint64_t t = frugal_p2f_announced(f->p2f, d); t < frugal_load_relaxed(&device->handed); t++) {
            uint32_t stage = frugal_load_relaxed(&batch_at(f, d, t)->stage);
            unsorted += t < step && stage == BATCH_HANDED;
            away += t < step && stage == BATCH_AWAY;
            if (t >= step) frugal_store_relaxed(&batch_at(f, d, t)->stage, BATCH_SORTED);
        }
        frugal_store_release(&device->away, away); /* [F67] pairs with [F68] */
        if (frugal_load_relaxed(&device->handed) > step) frugal_store_relaxed(&device->handed, step);
        if (frugal_load_relaxed(&device->told) > step) frugal_store_relaxed(&device->told, step);
    }
    frugal_store_relaxed(&f->sorting.unsorted, unsorted);
}
