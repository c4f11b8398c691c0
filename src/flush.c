/* flush.c - taking updates, from the queue or a step that closes, and applying them to the rows of the host table.
 *
 * An update is applied by the thread that has taken it, between take and done; nobody else touches the row meanwhile.
 */
#include "host.h"

/* Rows of one group to be applied together, so that the memory of one is on its way while another is worked on. */
typedef struct frugal_priv_applies {
    uint32_t n, used;
    uint32_t group;
    uint64_t first_row, n_rows; /* the group's; none before the first row is added */
    frugal_priv_apply rows[128];
    const float *records[128 + FRUGAL_MAX_DEVICES];
} frugal_priv_applies;

static void frugal_priv_applies_begin(frugal_priv_applies *list) {
    list->n = list->used = list->group = 0;
    list->first_row = list->n_rows = 0;
}

static void frugal_priv_applies_run(frugal *f, frugal_priv_applies *list) {
    for (uint32_t i = 0; i < FRUGAL_PRIV_MIN(list->n, FRUGAL_PRIV_AHEAD_APPLY); i++)
        frugal_priv_prefetch_apply(&f->store, &list->rows[i]);
    if (list->n > 0) frugal_priv_apply_rows(&f->store, &f->store.groups[list->group].optimizer, list->rows, list->n);
    list->n = list->used = 0;
}

/* Runs what is in the list, which goes on with the group of `row`. Rows mostly come in rising order: this is rare. */
static void frugal_priv_applies_turn(frugal *f, frugal_priv_applies *list, uint32_t row) {
    const frugal_store *s = &f->store;
    frugal_priv_applies_run(f, list);
    list->group = frugal_group_of(s->groups, s->n_groups, row);
    list->first_row = s->groups[list->group].first_row;
    list->n_rows = (list->group + 1 < s->n_groups ? s->groups[list->group + 1].first_row : s->rows) - list->first_row;
}

/* Adds the update of one row at `step`: entries[n] of its plan. 0 if no device brings gradients for it. */
static inline int frugal_priv_applies_add(frugal *f, frugal_priv_applies *list, uint64_t step, int all_bring,
                                          const frugal_p2f_entry *entries, uint32_t n) {
    if (list->n == 128 || list->used + n > 128 + FRUGAL_MAX_DEVICES) frugal_priv_applies_run(f, list);
    /* A row below the group's first one wraps around. */
    if (entries->row - list->first_row >= list->n_rows) frugal_priv_applies_turn(f, list, entries->row);
    frugal_priv_apply *a = &list->rows[list->n];
    const float **records = list->records + list->used;
    uint32_t brought = 0;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t device, record;
        frugal_p2f_source(f->p2f, entries[c].source, &device, &record);
        if (!all_bring && !frugal_p2f_brings(f->p2f, device, step)) continue;
        records[brought++] = frugal_priv_block(f, device, step) + (uint64_t)record * f->record_stride;
    }
    if (brought == 0) return 0;
    *a = (frugal_priv_apply){frugal_priv_weights(f, entries->row), frugal_priv_state(f, entries->row), records, brought,
                             frugal_priv_hyper(f, step) + list->group};
    list->used += brought;
    list->n++;
    return 1;
}

/* Applies updates taken from the queue. */
static void frugal_priv_flush(frugal *f, const frugal_p2f_work *work, uint32_t n) {
    frugal_priv_applies list;
    frugal_priv_fenv saved = frugal_priv_fenv_enter();
    frugal_priv_applies_begin(&list);
    for (uint32_t i = 0; i < n; i++) __builtin_prefetch(work[i].entries, 0, 3);
    for (uint32_t i = 0; i < n; i++)
        frugal_priv_applies_add(f, &list, work[i].step, frugal_p2f_all_bring(f->p2f, work[i].step), work[i].entries,
                                frugal_p2f_contributors(work[i].entries));
    frugal_priv_applies_run(f, &list);
    frugal_priv_fenv_leave(saved);
}

/* Closes one piece of a step. Where nobody else flushes, its updates are applied on the spot, while the records are
 * in the cache: they are never queued, and their words change once instead of three times. */
static int frugal_priv_close(frugal *f) {
    frugal_p2f_piece piece;
    if (!frugal_p2f_close_begin(f->p2f, &piece)) return 0;
    frugal_priv_tally(&f->closed_entries, piece.n);
    if (f->desc.workers > 0 || f->desc.defer) return frugal_p2f_close_end(f->p2f, &piece, 0);
    frugal_priv_applies list;
    frugal_priv_fenv saved = frugal_priv_fenv_enter();
    int all_bring = frugal_p2f_all_bring(f->p2f, piece.step);
    uint64_t flushed = 0;
    frugal_priv_applies_begin(&list);
    for (uint32_t at = 0, n; at < piece.n; at += n) {
        n = frugal_p2f_contributors(piece.entries + at);
        flushed += (uint64_t)frugal_priv_applies_add(f, &list, piece.step, all_bring, piece.entries + at, n);
    }
    frugal_priv_applies_run(f, &list);
    frugal_priv_fenv_leave(saved);
    frugal_priv_tally(&f->flushed, flushed);
    frugal_priv_tally(&f->flushed_at_close, flushed);
    return frugal_p2f_close_end(f->p2f, &piece, 1);
}

/* Takes one page of the queue, due at `limit` or before, and flushes it; 0 if there was none. */
static int frugal_priv_flush_page(frugal *f, uint64_t limit, uint64_t closed) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t stale = 0;
    uint32_t n = frugal_p2f_take(f->p2f, limit, work, &stale);
    if (stale) frugal_priv_tally(&f->stale, stale);
    if (n == 0) return 0;
    frugal_priv_flush(f, work, n);
    /* Before done, which releases them too: the statistics of a drained instance are exact. */
    frugal_priv_tally(&f->flushed_by_urgency[(work[0].slot - closed) % FRUGAL_P2F_SLOTS], n);
    frugal_priv_tally(&f->flushed, n);
    int emptied = frugal_p2f_done(f->p2f, work, n);
    if (emptied) frugal_priv_event_notify(f->event);
    return 1;
}
