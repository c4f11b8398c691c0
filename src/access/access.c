/* access.c - access to rows outside of lookup and update: reading, writing, a view, preloading, verifying. */
#include "access.h"

/* The row number of keys->keys[i]; checked by check_keys. */
FRUGAL_INTERNAL uint64_t row_of(const frugal *f, const frugal_keys *keys, uint32_t i) {
    uint64_t id = first_id_of(f, keys->table) + key_at(keys, i);
    return f->dealing ? dealt_number(f->dealing, id) : id;
}

/* Are these keys of a table, of any machine? */
static frugal_status check_any_keys(const frugal *f, const frugal_keys *keys, const char *call) {
    frugal_status status = check_open(f, call);
    if (status != FRUGAL_OK) return status;
    if (!keys) return frugal_fail(FRUGAL_ERR_ARGUMENT, "%s: no keys", call);
    if (!has_key_array(keys)) return fail_key_array(keys, call);
    if (keys->table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "%s: table %u; there are %u", call, keys->table, f->desc.n_tables);
    uint64_t rows = keys_of(f, keys->table);
    for (uint32_t i = 0; i < keys->n; i++)
        if (key_at(keys, i) >= rows)
            return frugal_fail(FRUGAL_ERR_KEY, "%s: key %lld at %u: table %u has %llu rows", call,
                               (long long)key_at(keys, i), i, keys->table, (unsigned long long)rows);
    return FRUGAL_OK;
}

/* The same, of rows of this machine. */
FRUGAL_INTERNAL frugal_status check_keys(const frugal *f, const frugal_keys *keys, const char *call) {
    frugal_status status = check_any_keys(f, keys, call);
    for (uint32_t i = 0; status == FRUGAL_OK && f->dealing && i < keys->n; i++)
        if (row_of(f, keys, i) >= f->store.rows)
            return frugal_fail(FRUGAL_ERR_KEY,
                               "%s: the home of key %lld at %u is machine %u, and this is %u: call it there, for the "
                               "keys that frugal_home says",
                               call, (long long)key_at(keys, i), i,
                               home_of_id(f->dealing, first_id_of(f, keys->table) + key_at(keys, i)), f->dealing->me);
    return status;
}

typedef struct row_condition { /* a row to which another thread applies an update */
    condition what;
    uint32_t row;
} row_condition;

static int row_ready(frugal *f, const condition *what) {
    return frugal_p2f_is_dirty(f->p2f, ((const row_condition *)what)->row) != 2;
}

static void row_explain(frugal *f, const condition *what, char *text, size_t size) {
    (void)f;
    snprintf(text, size, "an update of row %u is being applied by a thread that has not finished",
             ((const row_condition *)what)->row);
}

/* Makes the host row current, even if its update is not due yet. */
static frugal_status flush_row(frugal *f, uint32_t row) {
    frugal_p2f_work work;
    for (;;) {
        int taken = frugal_p2f_take_row(f->p2f, row, &work);
        if (taken == 0) return FRUGAL_OK;
        if (taken > 0) {
            flush_taken(f, &work, 1);
            tally(&f->work.flushed, 1);
            tally(&f->work.flushed_by_urgency[0], 1);
            if (frugal_p2f_done(f->p2f, &work, 1)) event_notify(f->event);
            return FRUGAL_OK;
        }
        row_condition busy = {{row_ready, row_explain, 0, frugal_p2f_closed(f->p2f), "read_rows", 0}, row};
        frugal_status status = wait_until(f, &busy.what);
        if (status != FRUGAL_OK) return status;
    }
}

static int closed_ready(frugal *f, const condition *what) {
    (void)what;
    if (is_owing(f)) return 0;
    uint64_t closed =
        frugal_p2f_closed(f->p2f); /* read first: a step that the second read finds committed is closed then */
    return closed >= frugal_p2f_all_committed(f->p2f);
}

/* Makes the devices write back what they keep of these rows. A row's word names its holder in the last announced step,
 * which need not be the device that keeps an update of it. So all devices are asked. */
static frugal_status write_back_rows(frugal *f, const uint32_t *rows, uint32_t n) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = 0; f->desc.alone == FRUGAL_ALONE_KEPT && d < f->desc.devices && status == FRUGAL_OK; d++)
        status = write_back(f, d, rows, n, "read_rows");
    return status;
}

/* Reads a row of this machine; devices keep no update of it. `weights`, `state` NULL: not wanted. */
static frugal_status read_flushed(frugal *f, uint32_t row, float *weights, float *state) {
    const frugal_store *s = &f->store;
    frugal_status status = flush_row(f, row);
    if (status != FRUGAL_OK) return status;
    if (weights) frugal_convert(weights, FRUGAL_FP32, weights_of(f, row), s->rows_as, s->dim);
    if (state && s->state) memcpy(state, state_of(f, row), s->state_floats * sizeof *state);
    return FRUGAL_OK;
}

/* Reads n rows of this machine: their weights and, behind those of each, its state. */
static frugal_status read_here(frugal *f, const uint32_t *rows, uint32_t n, float *out) {
    frugal_status status = write_back_rows(f, rows, n);
    for (uint32_t i = 0; i < n && status == FRUGAL_OK; i++, out += f->store.dim + f->store.state_floats)
        status = read_flushed(f, rows[i], out, out + f->store.dim);
    return status;
}

/* The same of keys, to where the caller wants them. */
static frugal_status read_keys_here(frugal *f, const frugal_keys *keys, float *weights, float *state) {
    uint32_t rows[1024];
    frugal_status status = FRUGAL_OK;
    for (uint32_t from = 0, n; from < keys->n && status == FRUGAL_OK; from += n) {
        n = LEAST(keys->n - from, 1024);
        for (uint32_t i = 0; i < n; i++) rows[i] = (uint32_t)row_of(f, keys, from + i);
        status = write_back_rows(f, rows, n);
        for (uint64_t i = 0, at = from; i < n && status == FRUGAL_OK; i++, at++)
            status = read_flushed(f, rows[i], weights ? weights + at * f->store.dim : NULL,
                                  state ? state + at * f->store.state_floats : NULL);
    }
    return status;
}

frugal_status frugal_read_rows(frugal *f, const frugal_keys *keys, float *weights, float *state) {
    frugal_status status = check_owner(f, "read_rows");
    if (status == FRUGAL_OK) status = check_any_keys(f, keys, "read_rows");
    if (status != FRUGAL_OK) return status;
    if (f->talks && (status = f->talks->gather(f, 1)) != FRUGAL_OK) return status;
    condition closed = {closed_ready, drain_explain, 0, frugal_p2f_all_committed(f->p2f), "read_rows", 0};
    if ((status = wait_until(f, &closed)) != FRUGAL_OK) return status;
    if ((status = check_ahead(f, "read_rows")) != FRUGAL_OK) return status;
    if (!f->dealing) return read_keys_here(f, keys, weights, state);
    return read_dealt(f, &(row_reader){keys, weights, state, read_here});
}

/* Makes a device read its copies of rows[n] anew, or drop all, if it cannot. */
static frugal_status refresh_copies(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n) {
    host_device *device = &f->devices[d];
    frugal_status status = FRUGAL_OK;
    int is_own = !device->mail; /* else its own process locks it */
    if (is_own) hold_copies(device);
    if (device->ops.refresh) status = device->ops.refresh(device->state, rows, n);
    if (!device->ops.refresh || status != FRUGAL_OK) device->ops.empty(device->state);
    if (is_own) release_copies(device);
    return status == FRUGAL_OK ? status : after_refusal(f, d, status, "write_rows");
}

/* The rows of `keys` have been written, so copies of them are outdated. With words it is enough to say there that
 * nobody has a current one. */
static frugal_status refresh_keys(frugal *f, const frugal_keys *keys) {
    uint32_t rows[1024], n = 0;
    frugal_status first = FRUGAL_OK;
    for (uint32_t i = 0; !frugal_p2f_has_words(f->p2f) && i < keys->n; i++) {
        rows[n++] = (uint32_t)row_of(f, keys, i);
        if (n < 1024 && i + 1 < keys->n) continue;
        for (uint32_t d = 0; d < f->desc.devices; d++) {
            frugal_status status = is_attached(f, d) ? refresh_copies(f, d, rows, n) : FRUGAL_OK;
            if (first == FRUGAL_OK) first = status;
        }
        n = 0;
    }
    return first;
}

frugal_status frugal_write_rows(frugal *f, const frugal_keys *keys, const float *weights, const float *state) {
    frugal_status status = check_owner(f, "write_rows");
    if (status == FRUGAL_OK) status = check_keys(f, keys, "write_rows");
    if (status != FRUGAL_OK) return status;
    if (!is_idle(f)) return fail_busy(f, "write_rows", 1);
    if ((status = use_table_file(f)) != FRUGAL_OK) return status;
    for (uint32_t i = 0; i < keys->n; i++) {
        uint64_t row = row_of(f, keys, i);
        frugal_p2f_disown(f->p2f, (uint32_t)row);
        drop_secondaries_of(f, (uint32_t)row);
        mark_changed(f, row);
        if (weights)
            frugal_convert(weights_of(f, row), f->store.rows_as, weights + (uint64_t)i * f->store.dim, FRUGAL_FP32,
                           f->store.dim);
        if (state && f->store.state)
            memcpy(state_of(f, row), state + (uint64_t)i * f->store.state_floats,
                   f->store.state_floats * sizeof(float));
    }
    return refresh_keys(f, keys);
}

frugal_status frugal_view(frugal *f, uint32_t table, const void **weights, uint64_t *stride) {
    frugal_status status = check_owner(f, "view");
    if (status != FRUGAL_OK) return status;
    if (!weights || !stride) return frugal_fail(FRUGAL_ERR_ARGUMENT, "view: `weights` or `stride` is NULL");
    if (table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "view: table %u; there are %u", table, f->desc.n_tables);
    if (!is_complete(f)) return fail_busy(f, "view", 0);
    if ((status = check_ahead(f, "view")) != FRUGAL_OK) return status;
    *weights = weights_of(f, f->first_row[table]);
    *stride = f->store.weights_stride;
    return FRUGAL_OK;
}

frugal_status frugal_preload(frugal *f, uint32_t d, const frugal_keys *keys) {
    frugal_status status = check_device(f, d, "preload");
    if (status == FRUGAL_OK) status = check_keys(f, keys, "preload");
    if (status != FRUGAL_OK) return status;
    if (!is_idle(f)) return fail_busy(f, "preload", 1);
    uint32_t rows[1024];
    for (uint32_t at = 0, n; at < keys->n;) {
        for (n = 0; n < 1024 && at < keys->n; at++) {
            uint64_t lacks;
            rows[n] = (uint32_t)row_of(f, keys, at);
            n += !is_secondary(f, d, rows[n], &lacks); /* a secondary has a place already, and is fetched when read */
        }
        int is_own = !f->devices[d].remote; /* else its own process locks it */
        if (is_own) hold_copies(&f->devices[d]);
        if (n > 0) status = f->devices[d].ops.preload(f->devices[d].state, rows, n);
        if (is_own) release_copies(&f->devices[d]);
        if (status != FRUGAL_OK) return status;
    }
    return FRUGAL_OK;
}

void frugal_verified(frugal *f, uint32_t row) {
    if (f->found.verified && !is_row_finite(weights_of(f, row), f->store.rows_as, f->store.dim))
        add_found(f->found.verified, row);
}

static frugal_status verify_copies(frugal *f) {
    frugal_status status;
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        if (!is_attached(f, d) || f->devices[d].ops.verify(f->devices[d].state)) continue;
        status = after_refusal(f, d, FRUGAL_ERR_CUDA, "verify"); /* is it lost, so that nothing was compared? */
        if (status == FRUGAL_ERR_LOST) return status;
        return frugal_fail(FRUGAL_ERR_COPY,
                           "verify: copies must equal their host rows, and one that device %u may read differs, or "
                           "could not be read; report it, and do not trust the table",
                           d);
    }
    return FRUGAL_OK;
}

frugal_status frugal_verify(frugal *f) {
    found_rows found = {0};
    frugal_status status = check_owner(f, "verify");
    if (status != FRUGAL_OK) return status;
    if (!is_complete(f)) return fail_busy(f, "verify", 0);
    if ((status = check_ahead(f, "verify")) != FRUGAL_OK) return status;
    f->found.verified = &found;
    status = verify_copies(f);
    f->found.verified = NULL;
    if (status == FRUGAL_OK) tell_found(f, "verify", &found);
    return status;
}
