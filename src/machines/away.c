/* away.c - a device of another machine, in the home of rows that it reads: its keys are announced, its rows are sent,
 * its records are taken.
 *
 * To the rest of the host it is a device like any other: the calls are those that a trainer here would make, so what
 * holds for these holds for it. Any thread that helps serves it (help.c), one at a time, and makes no call of the wire:
 * it finds what has come by the counts of the communication thread (talk.c), and raises its own. The device's work here
 * is to copy rows to where they leave from. Its records land in its staging block, as if it had written them.
 *
 * A row can leave early, a step before its gate opens, if it is final (frugal_p2f_find_final). A bit for each row says
 * which have; the others follow when the gate is open.
 *
 * Contents: >>operations >>serving
 */
#include "machines.h"

/* >>operations */

/* Copies those of rows[n] whose bit is `wanted`. */
static void copy_rows(const frugal_store *s, const uint32_t *rows, uint32_t n, const uint64_t *bits, uint32_t wanted,
                      unsigned char *to) {
    uint64_t bytes = frugal_row_bytes(s);
    for (uint32_t u = 0; u < n; u++) {
        if (u + AHEAD_GATHER < n) prefetch_bytes(frugal_row_at(s, rows[u + AHEAD_GATHER]), bytes, 0);
        if ((bits[u / 64] >> u % 64 & 1) != wanted) continue;
        memcpy(to, frugal_row_at(s, rows[u]), bytes);
        to += bytes;
    }
}

/* Copies the rows that have not left early. The gate of the step is open. */
static frugal_status away_lookup(void *device, const frugal_step *step, void *rows) {
    away *a = device;
    const frugal_store *s = &a->f->store;
    const frugal_records *r = &step->records;
    const parcel_head *head = early_head(a->f, a->early_heads, step->step);
    copy_rows(s, r->rows, r->n_unique, (const uint64_t *)(const void *)(head + 1), 0,
              rows_given(a, step->step) + head->early * frugal_row_bytes(s));
    a->rows_heads[step->step % 2] = (parcel_head){.step = step->step, .n = r->n_unique, .early = head->early};
    (void)rows;
    return FRUGAL_OK;
}

/* The records are there. Rows that it alone touches take their step now, if it updates in place. */
static frugal_status away_update(void *device, const frugal_step *step, const void *grads) {
    const away *a = device;
    (void)grads;
    if (step->alone) frugal_update_rows(&a->f->store, step, NULL, NULL, 0, step->records.n_unique);
    return FRUGAL_OK;
}

static int away_updates_in_place(void *device) {
    return ((const away *)device)->f->dealing->in_place;
}

static frugal_status away_preload(void *device, const uint32_t *rows, uint32_t n) {
    (void)device, (void)rows, (void)n;
    return FRUGAL_OK;
}

static int away_verify(void *device) {
    (void)device;
    return 1;
}

static void away_empty(void *device) {
    (void)device;
}

static void away_close(void *device) {
    pthread_mutex_destroy(&((away *)device)->serving);
}

/* It has no copies. */
static const frugal_device_ops away_operations = {.lookup = away_lookup,
                                                  .update = away_update,
                                                  .preload = away_preload,
                                                  .verify = away_verify,
                                                  .empty = away_empty,
                                                  .close = away_close,
                                                  .updates_in_place = away_updates_in_place};

FRUGAL_INTERNAL frugal_status attach_away(frugal *f) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = 0; d < f->desc.devices && status == FRUGAL_OK; d++)
        if (is_elsewhere(f, d)) status = frugal_attach(f, d, &away_operations, &f->machines->aways[d]);
    return status;
}

/* >>serving - by a thread that holds `serving` */

/* Training ends, because the machine has sent what cannot be, or a call of the device was refused. */
static void refuse(away *a, frugal_status status) {
    char text[sizeof last_message];
    if (status == FRUGAL_STOPPED || status == FRUGAL_ERR_LOST) return; /* it has ended */
    memcpy(text, last_message, sizeof text);
    lose_machine(a->f, a->machine, text);
}

/* Writes the pairs of a batch: false if an id is none of this machine. */
static int pairs_of_ids(const frugal *f, const void *from, uint64_t *pairs, uint32_t n) {
    const dealing *g = f->dealing;
    const uint64_t *ids = from;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t number = ids[i] < g->ids ? dealt_number(g, ids[i]) : UINT64_MAX;
        if (number >= g->start[1]) return 0;
        pairs[i] = number << 32 | i;
    }
    return 1;
}

/* Announces the next batch, or that the device's data has ended. */
static int take_keys(away *a) {
    frugal *f = a->f;
    uint64_t t = frugal_load_relaxed(&a->announced), ring = t % (f->desc.lookahead + 2); /* relaxed: under the lock */
    if (frugal_load_relaxed(&a->end) == t && !has_finished(f, a->d, t)) {
        finish_device(f, a->d);
        return 1;
    }
    if (frugal_load_acquire(&a->keys_here) <= t) return 0; /* [F69] pairs with [F70] */
    const parcel_head *head = &a->keys_heads[ring];
    const sorted_batch batch = {head->n, head->flags & HEAD_READ_ONLY ? 1 : 0, pairs_of_ids,
                                a->keys + ring * f->desc.max_keys};
    frugal_status status = announce_sorted(f, a->d, t, &batch);
    if (status == FRUGAL_AGAIN) return 0;
    if (status != FRUGAL_OK) return refuse(a, status), 0;
    frugal_store_release(&a->announced, t + 1); /* [F71] pairs with [F72]: its place can be used again */
    wake_machines(f);
    return 1;
}

/* Copies the rows of the next step that are final, when the gate of the step before is open: all others have had their
 * chance to become it. */
static int give_early(away *a) {
    frugal *f = a->f;
    uint64_t t = frugal_load_relaxed(&a->early_ready); /* relaxed: under the lock */
    if (!f->dealing->early || t >= frugal_load_relaxed(&a->announced)) return 0;
    if (frugal_p2f_closed(f->p2f) + 1 < t || frugal_p2f_planned(f->p2f) <= t) return 0;
    if (frugal_load_acquire(&a->rows_gone) + 1 < t) return 0; /* [F69] pairs with [F70]: those of t - 2 */
    const host_batch *b = batch_at(f, a->d, t);
    parcel_head *head = early_head(f, a->early_heads, t);
    uint64_t *bits = (uint64_t *)(void *)(head + 1);
    uint32_t early = frugal_p2f_find_final(f->p2f, b->rows, b->n_unique, t, bits);
    copy_rows(&f->store, b->rows, b->n_unique, bits, 1, rows_given(a, t));
    *head = (parcel_head){.step = t, .n = b->n_unique, .early = early};
    frugal_store_release(&a->early_ready, t + 1); /* [F71] pairs with [F72] */
    wake_machines(f);
    return 1;
}

static int give_rows(away *a) {
    frugal *f = a->f;
    uint64_t t = frugal_load_relaxed(&a->rows_ready); /* relaxed, all: under the lock */
    uint64_t may = f->dealing->early ? frugal_load_relaxed(&a->early_ready) : frugal_load_relaxed(&a->announced);
    if (t >= may || frugal_load_relaxed(&a->committed) < t || !frugal_p2f_gate(f->p2f, t)) return 0;
    if (frugal_load_acquire(&a->rows_gone) + 1 < t) return 0; /* [F69] pairs with [F70]: those of t - 2 */
    frugal_status status = lookup_step(f, a->d, t, &(frugal_row_array){.no_wait = 1});
    if (status == FRUGAL_AGAIN) return 0;
    if (status != FRUGAL_OK) return refuse(a, status), 0;
    frugal_store_release(&a->rows_ready, t + 1); /* [F71] pairs with [F72] */
    wake_machines(f);
    return 1;
}

static int take_records(away *a) {
    frugal *f = a->f;
    uint64_t t = frugal_load_relaxed(&a->committed);          /* relaxed: under the lock */
    if (frugal_load_acquire(&a->records_here) <= t) return 0; /* [F69] pairs with [F70] */
    const parcel_head *head = &a->records_head;
    const frugal_gradients gradients = {.records = 1, .lr = head->lr, .scale = head->scale};
    frugal_status status = update_step(f, a->d, t, head->flags & HEAD_BRINGS ? &gradients : NULL);
    if (status != FRUGAL_OK) return refuse(a, status), 0;
    frugal_store_release(&a->committed, t + 1); /* [F71] pairs with [F72] */
    return 1;
}

/* May there be work? Hints, all relaxed: who serves acquires. What other threads are to do first is asked cheaply. */
static int may_serve(const away *a) {
    frugal *f = a->f;
    uint64_t announced = frugal_load_relaxed(&a->announced), ready = frugal_load_relaxed(&a->rows_ready);
    uint64_t early = frugal_load_relaxed(&a->early_ready);
    if (frugal_load_relaxed(&a->records_here) > frugal_load_relaxed(&a->committed)) return 1;
    if (frugal_load_relaxed(&a->keys_here) > announced && frugal_p2f_legal(f->p2f, announced)) return 1;
    if (frugal_load_relaxed(&a->end) == announced && !has_finished(f, a->d, announced)) return 1;
    if (ready < announced && frugal_load_relaxed(&a->committed) >= ready && frugal_p2f_gate(f->p2f, ready)) return 1;
    return f->dealing->early && early < announced && frugal_p2f_closed(f->p2f) + 1 >= early &&
           frugal_p2f_planned(f->p2f) > early;
}

/* Serves one device. Records come first, because all others wait for the last of them. */
FRUGAL_INTERNAL int serve_away(frugal *f) {
    const dealing *g = f->dealing;
    if (is_lost(f) || frugal_load_relaxed(&f->stopped)) return 0; /* relaxed: the calls ask again */
    for (uint32_t i = 0; i < f->desc.devices - g->here; i++) {
        uint32_t d = ((g->me + 1) * g->here + i) % f->desc.devices;
        away *a = &f->machines->aways[d];
        if (!may_serve(a) || pthread_mutex_trylock(&a->serving)) continue;
        int any = take_records(a) || give_rows(a) || take_keys(a) || give_early(a);
        pthread_mutex_unlock(&a->serving);
        if (any) return 1;
    }
    return 0;
}
