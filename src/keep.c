/* keep.c - updates that devices keep in their caches (FRUGAL_ALONE_KEPT): recalls, and everybody else who needs the
 * rows in the host table.
 *
 * Why keeping is exact, and what a recall is: frugal_p2f.h, section 5, (g). A device that keeps writes rows back when
 * its cache needs the places, in its own lookup; and when it is asked to: by a recall, which any thread does that
 * helps; by frugal_drain, for all rows; by frugal_read_rows, for those that it reads. The lock of the device makes
 * these wait for each other and for its trainer's calls. Nobody waits for anything else while he holds it.
 */
#include "host.h"

/* Around lookup, update and recount. */
static void hold_copies(host_device *device) {
    if (device->keeps) pthread_mutex_lock(&device->keep_lock);
}
static void release_copies(host_device *device) {
    if (device->keeps) pthread_mutex_unlock(&device->keep_lock);
}

/* Does any device keep an update? Between calls of update. */
static int keeps_updates(const frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) /* [F22] pairs with [F23] */
        if (frugal_load_acquire(&f->devices[d].kept_now) > 0) return 1;
    return 0;
}

/* Has the host table all updates of the committed steps? */
static int is_complete(frugal *f) {
    return is_flushed(f) && !keeps_updates(f);
}

/* Is the table that of the last committed step? */
static int is_drained(frugal *f) {
    return is_complete(f) && device_ahead(f) == f->desc.devices;
}

/* Has the device write back rows[n], or all that it keeps if `rows` is NULL. */
static frugal_status write_back(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n, const char *call) {
    host_device *device = &f->devices[d];
    frugal_status status = FRUGAL_OK;
    if (!device->keeps) return status;
    hold_copies(device);
    if (frugal_load_relaxed(&device->kept_now) > 0) /* relaxed: under the lock */
        status = device->ops.write_back(device->state, rows, n);
    release_copies(device);
    return status == FRUGAL_OK ? status : after_refusal(f, d, status, call);
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

/* Writes back what is recalled from `d` for `step`. The caller holds its lock. */
static frugal_status write_recalled(frugal *f, uint32_t d, uint64_t step) {
    host_device *device = &f->devices[d];
    if (frugal_load_relaxed(&device->kept_now) == 0) return FRUGAL_OK; /* relaxed: under the lock */
    for (uint32_t other = 0; other < f->desc.devices; other++) {
        const uint32_t *rows = NULL;
        uint32_t n = frugal_p2f_recalls(f->p2f, d, step, other, &rows);
        int all = n == UINT32_MAX; /* steps were cancelled */
        frugal_status status = device->ops.write_back(device->state, all ? NULL : rows, all ? 0 : n);
        if (status != FRUGAL_OK || all) return status;
    }
    return FRUGAL_OK;
}

/* Does the recalls of a device for its next step, if there are any. The caller holds its lock, which is given back. */
static int recall_from(frugal *f, uint32_t d) {
    host_device *device = &f->devices[d];
    frugal_status status = FRUGAL_OK;
    uint64_t step;
    int last = 0, any = frugal_p2f_has_recall(f->p2f, d, &step); /* acquires that the device was attached */
    if (any) status = write_recalled(f, d, step);
    if (any && status == FRUGAL_OK) last = frugal_p2f_recall_done(f->p2f, d, step);
    pthread_mutex_unlock(&device->keep_lock);
    if (status != FRUGAL_OK) after_refusal(f, d, status, "recall");
    if (last) event_notify(f->event); /* a gate may open */
    return any && status == FRUGAL_OK;
}

/* Does the recalls of one device. Returns 0 if none is to be done. A device that another thread holds comes last; then
 * this thread waits for it, because nobody else would be told. The other one is about to do the same recalls, or is
 * draining or reading, since the device is between two steps. */
static int recall_piece(frugal *f) {
    uint32_t held = f->desc.devices;
    if (f->desc.alone != FRUGAL_ALONE_KEPT) return 0;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        if (!frugal_p2f_awaits_recall(f->p2f, d)) continue;
        if (pthread_mutex_trylock(&f->devices[d].keep_lock))
            held = d;
        else if (recall_from(f, d))
            return 1;
    }
    if (held == f->desc.devices) return 0;
    pthread_mutex_lock(&f->devices[held].keep_lock);
    return recall_from(f, held);
}

/* No recall may be under way while steps are cancelled. */
static void hold_recalls(frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) pthread_mutex_lock(&f->devices[d].keep_lock);
}
static void release_recalls(frugal *f) {
    for (uint32_t d = f->desc.devices; d-- > 0;) pthread_mutex_unlock(&f->devices[d].keep_lock);
}
