/* serve.c - rows in and out between steps and beside them: reading, writing, a view, preloading, verifying. */
#include "host.h"

/* The row number of keys->keys[i]; checked by frugal_priv_check_keys. */
static uint64_t frugal_priv_row(const frugal *f, const frugal_keys *keys, uint32_t i) {
    return f->first_row[keys->table] + keys->keys[i];
}

static frugal_status frugal_priv_check_keys(const frugal *f, const frugal_keys *keys, const char *call) {
    frugal_status status = frugal_priv_check_open(f, call);
    if (status != FRUGAL_OK) return status;
    if (!keys || (keys->n && !keys->keys)) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no keys", call);
    if (keys->table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "%s: table %u; there are %u", call, keys->table, f->desc.n_tables);
    for (uint32_t i = 0; i < keys->n; i++)
        if (keys->keys[i] >= f->desc.tables[keys->table].rows)
            return frugal_fail(FRUGAL_ERR_KEY, "%s: key %lld at %u: table %u has %llu rows", call,
                               (long long)keys->keys[i], i, keys->table,
                               (unsigned long long)f->desc.tables[keys->table].rows);
    return FRUGAL_OK;
}

typedef struct frugal_priv_row_wait { /* a row that another thread is applying */
    frugal_priv_wait wait;
    uint32_t row;
} frugal_priv_row_wait;

static int frugal_priv_row_ready(frugal *f, const frugal_priv_wait *wait) {
    return frugal_p2f_is_dirty(f->p2f, ((const frugal_priv_row_wait *)wait)->row) != 2;
}

static void frugal_priv_row_explain(frugal *f, const frugal_priv_wait *wait, char *text, size_t size) {
    (void)f;
    snprintf(text, size, "row %u is being applied by a thread that does not return",
             ((const frugal_priv_row_wait *)wait)->row);
}

/* Makes the host row current, whenever its update is due. */
static frugal_status frugal_priv_flush_row(frugal *f, uint32_t row) {
    frugal_p2f_work work;
    for (;;) {
        int taken = frugal_p2f_take_row(f->p2f, row, &work);
        if (taken == 0) return FRUGAL_OK;
        if (taken > 0) {
            frugal_priv_flush(f, &work, 1);
            frugal_priv_tally(&f->flushed, 1);
            frugal_priv_tally(&f->flushed_by_urgency[0], 1);
            if (frugal_p2f_done(f->p2f, &work, 1)) frugal_priv_event_notify(f->event);
            return FRUGAL_OK;
        }
        frugal_priv_row_wait busy = {
            {frugal_priv_row_ready, frugal_priv_row_explain, 0, frugal_p2f_closed(f->p2f), "read_rows", 0}, row};
        frugal_status status = frugal_priv_wait_for(f, &busy.wait);
        if (status != FRUGAL_OK) return status;
    }
}

static int frugal_priv_closed_ready(frugal *f, const frugal_priv_wait *wait) {
    (void)wait;
    if (frugal_priv_is_owing(f)) return 0;
    uint64_t closed = frugal_p2f_closed(f->p2f); /* before what is committed, which may grow by a step that is closed then */
    return closed >= frugal_p2f_all_committed(f->p2f);
}

frugal_status frugal_read_rows(frugal *f, const frugal_keys *keys, float *weights, float *state) {
    frugal_status status = frugal_priv_check_keys(f, keys, "read_rows");
    if (status != FRUGAL_OK) return status;
    frugal_priv_wait closed = {frugal_priv_closed_ready, frugal_priv_drain_explain, 0, frugal_p2f_all_committed(f->p2f),
                               "read_rows", 0};
    if ((status = frugal_priv_wait_for(f, &closed)) != FRUGAL_OK) return status;
    for (uint32_t i = 0; i < keys->n; i++) {
        uint64_t row = frugal_priv_row(f, keys, i);
        if ((status = frugal_priv_flush_row(f, (uint32_t)row)) != FRUGAL_OK) return status;
        if (weights)
            memcpy(weights + (uint64_t)i * f->store.dim, frugal_priv_weights(f, row), f->store.dim * sizeof(float));
        if (state && f->store.state)
            memcpy(state + (uint64_t)i * f->store.state_floats, frugal_priv_state(f, row),
                   f->store.state_floats * sizeof(float));
    }
    return FRUGAL_OK;
}

frugal_status frugal_write_rows(frugal *f, const frugal_keys *keys, const float *weights, const float *state) {
    frugal_status status = frugal_priv_check_keys(f, keys, "write_rows");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_idle(f)) return frugal_priv_busy("write_rows");
    for (uint32_t i = 0; i < keys->n; i++) {
        uint64_t row = frugal_priv_row(f, keys, i);
        frugal_p2f_disown(f->p2f, (uint32_t)row);
        if (weights)
            memcpy(frugal_priv_weights(f, row), weights + (uint64_t)i * f->store.dim, f->store.dim * sizeof(float));
        if (state && f->store.state)
            memcpy(frugal_priv_state(f, row), state + (uint64_t)i * f->store.state_floats,
                   f->store.state_floats * sizeof(float));
    }
    return FRUGAL_OK;
}

frugal_status frugal_view(frugal *f, uint32_t table, const float **weights, uint64_t *stride) {
    frugal_status status = frugal_priv_check_open(f, "view");
    if (status != FRUGAL_OK) return status;
    if (!weights || !stride) return frugal_fail(FRUGAL_ERR_ARGUMENT, "view: `weights` or `stride` is NULL");
    if (table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "view: table %u; there are %u", table, f->desc.n_tables);
    if (!frugal_priv_is_drained(f)) return frugal_priv_busy("view");
    *weights = frugal_priv_weights(f, f->first_row[table]);
    *stride = f->store.weights_stride;
    return FRUGAL_OK;
}

frugal_status frugal_release_holders(frugal *f) {
    frugal_status status = frugal_priv_check_open(f, "release_holders");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_idle(f)) return frugal_priv_busy("release_holders");
    for (uint32_t d = 0; d < f->desc.devices; d++)
        if (f->devices[d].attached) f->devices[d].ops.empty(f->devices[d].state);
    frugal_p2f_release_holders(f->p2f);
    return FRUGAL_OK;
}

frugal_status frugal_preload(frugal *f, uint32_t device, const frugal_keys *keys) {
    frugal_status status = frugal_priv_check_device(f, device, "preload");
    if (status == FRUGAL_OK) status = frugal_priv_check_keys(f, keys, "preload");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_idle(f)) return frugal_priv_busy("preload");
    uint32_t rows[1024];
    for (uint32_t at = 0, n; at < keys->n; at += n) {
        n = FRUGAL_PRIV_MIN(keys->n - at, 1024);
        for (uint32_t i = 0; i < n; i++) rows[i] = (uint32_t)frugal_priv_row(f, keys, at + i);
        status = f->devices[device].ops.preload(f->devices[device].state, rows, n);
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

frugal_status frugal_verify(frugal *f) {
    frugal_status status = frugal_priv_check_open(f, "verify");
    if (status != FRUGAL_OK) return status;
    if (!frugal_priv_is_drained(f)) return frugal_priv_busy("verify");
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        if (!f->devices[d].attached || f->devices[d].ops.verify(f->devices[d].state)) continue;
        status = frugal_priv_refused(f, d, FRUGAL_ERR_CUDA, "verify"); /* is it lost, and so could not be asked? */
        if (status == FRUGAL_ERR_LOST) return status;
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "verify: a copy that device %u may read differs from its host row, or could not be read", d);
    }
    return FRUGAL_OK;
}
