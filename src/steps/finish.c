/* finish.c - devices whose data has ended (frugal_finish): their later steps are empty, and nobody calls for them.
 *
 * Such a device follows the others, and is never ahead of them. When the batch of another device is given to the state
 * machine, the empty batch of this one is given by the same thread; when all devices that train the step have committed
 * it, the last of them commits for this one, too. So nothing waits for a thread that comes by, a step that may still be
 * cancelled is not committed, and a drain between steps finds the last step whole. The operations of the device are not
 * called for these steps, because it has nothing to do in them; other devices may recall rows from it as ever.
 */
#include "steps.h"

/* Has the device's data ended before the step? Relaxed: whoever finds an empty batch announced, its gate open, or
 * `updated` raised for it, finds this as well; nothing else is read for it. */
FRUGAL_INTERNAL int has_finished(const frugal *f, uint32_t d, uint64_t step) {
    uint64_t end = frugal_load_relaxed(&f->devices[d].end);
    return end != UINT64_MAX && step >= end; /* a caller may name any step */
}

/* The steps that the device itself has updated. */
FRUGAL_INTERNAL uint64_t updated_itself(const host_device *device) {
    uint64_t updated = frugal_load_acquire(&device->updated); /* [F6] pairs with [F5] */
    return LEAST(updated, frugal_load_relaxed(&device->end)); /* relaxed: as in has_finished */
}

FRUGAL_INTERNAL frugal_status fail_finished(const frugal *f, const char *call, uint32_t d, uint64_t step,
                                            frugal_status status) {
    return frugal_fail(status, "%s of device %u at step %llu: its data has ended before step %llu (frugal_finish)",
                       call, d, (unsigned long long)step, (unsigned long long)frugal_load_relaxed(&f->devices[d].end));
}

/* Announces an empty batch. The step is legal, because another device has announced it. */
static void announce_empty(frugal *f, uint32_t d, uint64_t step) {
    host_device *device = &f->devices[d];
    host_batch *b = batch_at(f, d, step); /* free: step - (L + 1) is closed */
    pthread_mutex_lock(&device->giving);  /* the thread that has given the last one of its own has ended that */
    b->n = b->n_unique = b->n_own = b->start[0] = 0;
    b->read_only = 1, b->step = step;
    b->counted = 0, b->here = ALL_HERE;
    device->reads_only[step % FRUGAL_P2F_SLOTS] = 0; /* nor does it take rows */
    frugal_store_relaxed(&b->stage, BATCH_SORTED);   /* relaxed, both: nobody sorts it */
    give_batch(f, d, step);
    frugal_store_relaxed(&device->handed, step + 1);
    pthread_mutex_unlock(&device->giving);
}

/* Announces the steps that other devices have announced for those that have finished. The caller holds
 * finishing.lock. */
static void follow_announced(frugal *f) {
    uint64_t most = f->desc.first_step;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint64_t announced = frugal_p2f_announced(f->p2f, d);
        if (announced > most && !has_finished(f, d, announced - 1)) most = announced;
    }
    for (uint32_t d = 0; d < f->desc.devices; d++)
        for (uint64_t t = frugal_p2f_announced(f->p2f, d); t < most && has_finished(f, d, t); t++)
            announce_empty(f, d, t);
}

/* After an announcement. The lock is taken even if no device has finished, because one may be about to, and then either
 * finds what the other has done. */
FRUGAL_INTERNAL void announce_finished(frugal *f) {
    if (f->desc.devices == 1) return;
    pthread_mutex_lock(&f->finishing.lock);
    if (frugal_load_relaxed(&f->finishing.devices)) follow_announced(f); /* relaxed: under the lock */
    pthread_mutex_unlock(&f->finishing.lock);
}

/* Have all devices that train the step committed it? */
static int is_trained(const frugal *f, uint64_t step) {
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (!has_finished(f, d, step) && frugal_p2f_committed(f->p2f, d) <= step) return 0;
    return 1;
}

/* After a commit: commits the step for devices that have finished. Returns 1 if all devices have now committed a step.
 * Relaxed: a step in which a device has no part was announced for it after it had finished, and its gate has acquired
 * that. */
FRUGAL_INTERNAL int commit_finished(frugal *f) {
    int all = 0;
    if (!frugal_load_relaxed(&f->finishing.devices)) return 0;
    pthread_mutex_lock(&f->finishing.lock);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        for (uint64_t t = frugal_p2f_committed(f->p2f, d);
             has_finished(f, d, t) && t < frugal_p2f_announced(f->p2f, d) && is_trained(f, t); t++) {
            int last_one = 0;
            device->brings[t % FRUGAL_P2F_SLOTS] = 0;
            frugal_status status = frugal_p2f_commit(f->p2f, d, t, 0, &last_one);
            FRUGAL_ASSERT(status == FRUGAL_OK), (void)status;
            frugal_store_release(&device->updated, t + 1); /* [F5] pairs with [F6] */
            all |= last_one;
        }
    }
    pthread_mutex_unlock(&f->finishing.lock);
    return all;
}

FRUGAL_INTERNAL void finish_device(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    pthread_mutex_lock(&f->finishing.lock);
    if (frugal_load_relaxed(&device->end) == UINT64_MAX) { /* relaxed, all: under the lock; has_finished */
        frugal_store_relaxed(&device->end, frugal_load_relaxed(&device->handed));
        frugal_add_relaxed(&f->finishing.devices, 1);
        follow_announced(f);
    }
    pthread_mutex_unlock(&f->finishing.lock);
    event_notify(f->event); /* a step may be sealed now; the device's trainer may wait for one that does not come */
}

frugal_status frugal_finish(frugal *f, uint32_t d) {
    frugal_status status = check_own(f, d, "finish");
    if (status == FRUGAL_OK) f->ops->finish(f, d);
    return status;
}

/* Steps from `step` on are cancelled: a device that has lost steps of its own may announce them again. The caller holds
 * finishing.lock. */
FRUGAL_INTERNAL void cancel_finished(frugal *f, uint64_t step) {
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* relaxed, all: under the lock */
        uint64_t end = frugal_load_relaxed(&f->devices[d].end);
        if (end == UINT64_MAX || end <= step) continue;
        frugal_store_relaxed(&f->devices[d].end, UINT64_MAX);
        frugal_add_relaxed(&f->finishing.devices, (uint32_t)-1);
    }
}
