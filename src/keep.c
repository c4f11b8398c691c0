/* keep.c - updates that devices keep in their caches (FRUGAL_ALONE_KEPT): recalls, and everybody else who needs the
 * rows in the host table.
 *
 * Why keeping is exact, and what a recall is: frugal_p2f.h, section 5, (g). A device that keeps writes rows back when
 * its cache needs the places, in its own lookup; and when it is asked to: by a recall, which any thread does that helps;
 * by frugal_drain, for all rows; by frugal_read_rows, for those that it reads. The lock of the device makes these wait
 * for each other and for its trainer's calls. Nobody waits for anything else while he holds it.
 */
#include "host.h"

/* Around the operations of a device. */
static void hold_copies(host_device *device) {
    if (device->keeps) pthread_mutex_lock(&device->keep_lock);
}
static void release_copies(host_device *device) {
    if (device->keeps) pthread_mutex_unlock(&device->keep_lock);
}

/* Does any device keep an update? Between calls of update. */
static int keeps_updates(const frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) /* relaxed: the caller comes after the updates */
        if (frugal_load_relaxed(&f->devices[d].kept_now) > 0) return 1;
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
        status = device->ops.write_back(device->state, frugal_p2f_committed(f->p2f, d), rows, n);
    release_copies(device);
    event_notify(f->event); /* a thread that found the lock taken may have a recall to do */
    return status == FRUGAL_OK ? status : after_refusal(f, d, status, call);
}

static frugal_status write_back_all(frugal *f, const char *call) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = 0; d < f->desc.devices && status == FRUGAL_OK; d++) status = write_back(f, d, NULL, 0, call);
    return status;
}

/* Writes back what is recalled from `d` for `step`. The caller holds its lock. */
static frugal_status write_recalled(frugal *f, uint32_t d, uint64_t step) {
    host_device *device = &f->devices[d];
    for (uint32_t other = 0; device->keeps && other < f->desc.devices; other++) {
        const uint32_t *rows = NULL;
        uint32_t n = frugal_p2f_recalls(f->p2f, d, step, other, &rows);
        int all = n == UINT32_MAX; /* steps were cancelled */
        frugal_status status = device->ops.write_back(device->state, step, all ? NULL : rows, all ? 0 : n);
        if (status != FRUGAL_OK || all) return status;
    }
    return FRUGAL_OK;
}

/* Does the recalls of one device for its next step. Returns 0 if there is nothing to do, or another thread does it. */
static int recall_piece(frugal *f) {
    if (!frugal_p2f_awaits_recall(f->p2f)) return 0;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        uint64_t step;
        if (pthread_mutex_trylock(&device->keep_lock)) continue;
        int any = frugal_p2f_has_recall(f->p2f, d, &step), last = 0; /* acquires that the device was attached */
        frugal_status status = any ? write_recalled(f, d, step) : FRUGAL_OK;
        if (any && status == FRUGAL_OK) last = frugal_p2f_recall_done(f->p2f, d, step);
        pthread_mutex_unlock(&device->keep_lock);
        if (status != FRUGAL_OK) after_refusal(f, d, status, "recall");
        if (last) event_notify(f->event); /* a gate may open */
        if (any && status == FRUGAL_OK) return 1;
    }
    return 0;
}

/* No recall may be under way while steps are cancelled. */
static void hold_recalls(frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) pthread_mutex_lock(&f->devices[d].keep_lock);
}
static void release_recalls(frugal *f) {
    for (uint32_t d = f->desc.devices; d-- > 0;) pthread_mutex_unlock(&f->devices[d].keep_lock);
}
