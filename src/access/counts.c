/* counts.c - the counts of touches (worth.c), as callers read, set and rank them. */
#include "access.h"

/* The device that counts, if one does. The caller holds touches.lock. */
static host_device *counting_device(frugal *f) {
    return f->touches.counter ? &f->devices[f->touches.counter - 1] : NULL;
}

/* Before counts are read one by one: what is announced is counted, and counts are copied from the device that counts.
 * Until touches.lock is released no other thread does so, nor reads them; also if the host counts, because a device may
 * begin to count meanwhile. */
static frugal_status begin_counts(frugal *f) {
    settle_counts(f);
    pthread_mutex_lock(&f->touches.lock);
    host_device *device = counting_device(f);
    if (!device) return FRUGAL_OK;
    frugal_status status = device->ops.move_counts(device->state, (uint8_t *)(uintptr_t)f->touches.worth, 0);
    if (status == FRUGAL_OK) return status;
    pthread_mutex_unlock(&f->touches.lock);
    return after_refusal(f, (uint32_t)(device - f->devices), status, "counts");
}

/* Before all counts are looked at, or any is changed: the same, and until give_back_counts nothing is counted. */
static frugal_status take_counts(frugal *f) {
    frugal_status status = begin_counts(f);
    if (status == FRUGAL_OK) hold_announcing_now(f);
    return status;
}

/* For a save: the same, but of a device that is lost, the counts that were copied last. */
FRUGAL_INTERNAL void keep_counts(frugal *f) {
    if (take_counts(f) == FRUGAL_OK) return;
    pthread_mutex_lock(&f->touches.lock);
    hold_announcing_now(f);
}

/* `changed`: they were, and are copied back. */
FRUGAL_INTERNAL frugal_status give_back_counts(frugal *f, int changed) {
    host_device *device = changed ? counting_device(f) : NULL;
    frugal_status status = FRUGAL_OK;
    if (device) status = device->ops.move_counts(device->state, (uint8_t *)(uintptr_t)f->touches.worth, 1);
    release_announcing(f);
    pthread_mutex_unlock(&f->touches.lock);
    return status == FRUGAL_OK ? status : after_refusal(f, (uint32_t)(device - f->devices), status, "counts");
}

/* Counts were changed: caches learn what their copies are worth now. */
static frugal_status tell_counts(frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        if (!is_attached(f, d) || !device->ops.recount) continue;
        hold_copies(device); /* steps may be announced, and rows recalled */
        frugal_status status = device->ops.recount(device->state);
        release_copies(device);
        if (status != FRUGAL_OK) return after_refusal(f, d, status, "set_counts");
    }
    return FRUGAL_OK;
}

/* Caches can be told: all is flushed, and no device has looked up a step that it has not committed. The stream of a GPU
 * may wait at the gate of such a step, and then its cache cannot be reached. */
static frugal_status check_between_steps(frugal *f) {
    for (uint32_t d = 0; d < f->desc.devices; d++) { /* relaxed: no call of the device is under way */
        uint64_t looked_up = frugal_load_relaxed(&f->devices[d].looked_up);
        if (looked_up > frugal_p2f_committed(f->p2f, d))
            return frugal_fail(
                FRUGAL_ERR_BUSY,
                "set_counts: wanted a drained instance between steps; device %u has looked up step %llu, which "
                "is not committed: update it on every device first",
                d, (unsigned long long)(looked_up - 1));
    }
    return is_flushed(f) ? FRUGAL_OK : fail_busy(f, "set_counts", 0);
}

frugal_status frugal_get_counts(frugal *f, const frugal_keys *keys, uint64_t *counts) {
    uint64_t all[WORTH_MOST + 1];
    frugal_status status = check_keys(f, keys, "get_counts");
    if (status != FRUGAL_OK) return status;
    if (keys->n && !counts) return frugal_fail(FRUGAL_ERR_ARGUMENT, "get_counts: `counts` is NULL");
    if ((status = begin_counts(f)) != FRUGAL_OK) return status;
    list_counts(all);
    for (uint32_t i = 0; i < keys->n; i++) counts[i] = all[frugal_worth(f, (uint32_t)row_of(f, keys, i))];
    pthread_mutex_unlock(&f->touches.lock);
    return FRUGAL_OK;
}

frugal_status frugal_set_counts(frugal *f, const frugal_keys *keys, const uint64_t *counts) {
    uint64_t all[WORTH_MOST + 1];
    frugal_status status = check_owner(f, "set_counts");
    if (status == FRUGAL_OK) status = check_keys(f, keys, "set_counts");
    if (status != FRUGAL_OK) return status;
    if (keys->n && !counts) return frugal_fail(FRUGAL_ERR_ARGUMENT, "set_counts: `counts` is NULL");
    if ((status = check_between_steps(f)) != FRUGAL_OK) return status;
    if ((status = frugal_begin_counting(f)) != FRUGAL_OK) return status;
    if ((status = take_counts(f)) != FRUGAL_OK) return status;
    list_counts(all);
    for (uint32_t i = 0; i < keys->n; i++) /* relaxed: nothing is counted meanwhile */
        frugal_store_relaxed(&f->touches.worth[row_of(f, keys, i)], byte_of_level(level_of_count(all, counts[i])));
    status = give_back_counts(f, 1);
    return status == FRUGAL_OK ? tell_counts(f) : status;
}

frugal_status frugal_rank_keys(frugal *f, uint32_t table, uint32_t n, uint64_t *keys, uint64_t *counts) {
    uint64_t all[WORTH_MOST + 1], at[WORTH_MOST + 1] = {0}; /* where the next key goes, by its byte */
    frugal_status status = check_open(f, "rank_keys");
    if (status != FRUGAL_OK) return status;
    if (table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "rank_keys: table %u; there are %u", table, f->desc.n_tables);
    uint64_t rows = f->desc.tables[table].rows;
    uint32_t first = (uint32_t)f->first_row[table];
    if (n > rows || (n && !keys))
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "rank_keys: %u keys%s; table %u has %llu", n,
                           keys ? "" : " and no array", table, (unsigned long long)rows);
    if ((status = take_counts(f)) != FRUGAL_OK) return status;
    list_counts(all);
    for (uint64_t key = 0; key < rows; key++) at[frugal_worth(f, first + (uint32_t)key)]++;
    for (uint64_t worth = WORTH_MOST + 1, before = 0; worth-- > 0;) {
        uint64_t here = at[worth];
        at[worth] = before;
        before += here;
    }
    for (uint64_t key = 0; key < rows; key++) {
        uint8_t worth = frugal_worth(f, first + (uint32_t)key);
        uint64_t place = at[worth]++;
        if (place >= n) continue;
        keys[place] = f->dealing ? id_of_dealt(f->dealing, 0, first + (uint32_t)key) - first_id_of(f, table) : key;
        if (counts) counts[place] = all[worth];
    }
    return give_back_counts(f, 0);
}
