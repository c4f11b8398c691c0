/* apply.c - takes updates from the queue, or from a step that is being closed, and applies them to rows of the host
 * table.
 *
 * The thread that has taken an update applies it, between take and done. No other thread touches the row meanwhile. The
 * arithmetic begins at apply_rows (processors.c) and is written in optimizer.c.
 */
#include "steps.h"

/* Rows of one group that are applied together, so that one row is prefetched while another is computed. */
typedef struct update_list {
    uint32_t n, used;
    uint32_t group;
    uint64_t first_row, n_rows; /* of the group; 0 rows before the first row is added */
    row_update rows[128];
    const float *records[128 + FRUGAL_MAX_DEVICES];
} update_list;

static void update_list_begin(update_list *list) {
    list->n = list->used = list->group = 0;
    list->first_row = list->n_rows = 0;
}

static void update_list_run(frugal *f, update_list *list) {
    for (uint32_t i = 0; i < LEAST(list->n, AHEAD_UPDATES); i++) prefetch_update(&f->store, &list->rows[i]);
    if (list->n > 0) apply_rows(&f->store, &f->store.groups[list->group].optimizer, list->rows, list->n);
    list->n = list->used = 0;
}

/* Applies the list, and begins a new one for the group of `row`. This is rare, because rows mostly come in rising
 * order. */
static void update_list_turn(frugal *f, update_list *list, uint32_t row) {
    const frugal_store *s = &f->store;
    update_list_run(f, list);
    list->group = frugal_group_of(s->groups, s->n_groups, row);
    list->first_row = s->groups[list->group].first_row;
    list->n_rows = (list->group + 1 < s->n_groups ? s->groups[list->group + 1].first_row : s->rows) - list->first_row;
}

/* Adds the update of one row at `step`; entries[n] are those of the row in the plan. Returns 0 if no device brings
 * gradients for it. */
static inline int update_list_add(frugal *f, update_list *list, uint64_t step, int all_bring,
                                  const frugal_p2f_entry *entries, uint32_t n) {
    if (list->n == 128 || list->used + n > 128 + FRUGAL_MAX_DEVICES) update_list_run(f, list);
    /* The difference wraps around for a row below the group's first one. */
    if (entries->row - list->first_row >= list->n_rows) update_list_turn(f, list, entries->row);
    row_update *a = &list->rows[list->n];
    const float **records = list->records + list->used;
    uint32_t brought = 0;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t d, record;
        frugal_p2f_source(f->p2f, entries[c].source, &d, &record);
        if (!all_bring && !frugal_p2f_brings(f->p2f, d, step)) continue;
        records[brought++] = block_at(f, d, step) + (uint64_t)record * f->record_stride;
    }
    if (brought == 0) return 0;
    *a = (row_update){weights_of(f, entries->row),    state_of(f, entries->row), records, brought, entries->row,
                      hyper_at(f, step) + list->group};
    list->used += brought;
    list->n++;
    if (!f->store.groups[list->group].optimizer.frozen) mark_changed(f, entries->row);
    return 1;
}

/* Applies updates taken from the queue. */
FRUGAL_INTERNAL void flush_taken(frugal *f, const frugal_p2f_work *work, uint32_t n) {
    update_list list;
    float_mode saved = float_mode_enter();
    update_list_begin(&list);
    for (uint32_t i = 0; i < n; i++) __builtin_prefetch(work[i].entries, 0, 3);
    for (uint32_t i = 0; i < n; i++)
        update_list_add(f, &list, work[i].step, frugal_p2f_all_bring(f->p2f, work[i].step), work[i].entries,
                        frugal_p2f_contributors(work[i].entries));
    update_list_run(f, &list);
    float_mode_leave(saved);
}

/* Marks a row that its device has updated in place, so that the next increment has it. */
static void mark_row(frugal *f, uint32_t row) {
    uint32_t group = frugal_group_of(f->store.groups, f->store.n_groups, row);
    if (!f->store.groups[group].optimizer.frozen) mark_changed(f, row);
}

/* The settings of a step that is about to be closed are forgotten, where processes share them. Relaxed: published by
 * `closed`, so nobody fixes those of step s + 64 yet. */
static void forget_fixed(frugal *f, uint64_t step) {
    if (f->shared.fixed) frugal_store_relaxed(&(*f->shared.fixed)[step % FRUGAL_P2F_SLOTS], 0);
}

/* Marks the piece's rows that devices have updated in place. */
static void mark_in_place(frugal *f, const frugal_p2f_piece *piece) {
    for (uint32_t at = 0, n; f->saving.changed && at < piece->n; at += n) {
        const frugal_p2f_entry *entry = piece->entries + at;
        n = frugal_p2f_contributors(entry);
        uint32_t d, record;
        frugal_p2f_source(f->p2f, entry->source, &d, &record);
        if (n == 1 && frugal_p2f_is_in_place(f->p2f, d, piece->step) && frugal_p2f_brings(f->p2f, d, piece->step))
            mark_row(f, entry->row);
    }
}

/* Of a step without words, before its commit closes it: what close_piece does for others. */
static void close_whole(frugal *f, uint32_t d, uint64_t step, int brings) {
    const host_batch *b = batch_at(f, d, step);
    forget_fixed(f, step);
    for (uint32_t u = 0; f->saving.changed && brings && u < b->n_unique; u++) mark_row(f, b->rows[u]);
}

/* Commits a step for the device. */
FRUGAL_INTERNAL frugal_status commit_device(frugal *f, uint32_t d, uint64_t step, int brings, int *last_one) {
    if (!frugal_p2f_has_words(f->p2f)) close_whole(f, d, step, brings);
    return frugal_p2f_commit(f->p2f, d, step, brings, last_one);
}

/* Closes one piece of a step. Without workers and `defer`, its updates are applied at once, while the records are in
 * the cache. They are never queued, and the rows stay clean. */
FRUGAL_INTERNAL int close_piece(frugal *f) {
    frugal_p2f_piece piece;
    if (!frugal_p2f_close_begin(f->p2f, &piece)) return 0;
    tally(&f->work.closed_entries, piece.n);
    forget_fixed(f, piece.step); /* every piece does so */
    trace_count(f, NO_DEVICE, piece.step, piece.n);
    mark_in_place(f, &piece);
    if (f->desc.workers > 0 || f->desc.defer) return frugal_p2f_close_end(f->p2f, &piece, 0);
    update_list list;
    float_mode saved = float_mode_enter();
    int all_bring = frugal_p2f_all_bring(f->p2f, piece.step);
    uint64_t flushed = 0;
    update_list_begin(&list);
    for (uint32_t at = 0, n; (at = frugal_p2f_next_closed(f->p2f, &piece, at)) < piece.n; at += n) {
        n = frugal_p2f_contributors(piece.entries + at);
        flushed += (uint64_t)update_list_add(f, &list, piece.step, all_bring, piece.entries + at, n);
    }
    update_list_run(f, &list);
    float_mode_leave(saved);
    tally(&f->work.flushed, flushed);
    tally(&f->work.flushed_at_close, flushed);
    return frugal_p2f_close_end(f->p2f, &piece, 1);
}

/* Takes one page of the queue that is due at `limit` or before, and flushes it. Returns 0 if there is none. */
FRUGAL_INTERNAL int flush_page(frugal *f, uint64_t limit, uint64_t closed) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t stale = 0;
    uint32_t n = frugal_p2f_take(f->p2f, limit, work, &stale);
    if (stale) tally(&f->work.stale_ids, stale);
    if (n == 0) return 0;
    flush_taken(f, work, n);
    /* Counted before done, which releases the counts, too: so the statistics of a drained instance are exact. */
    tally(&f->work.flushed_by_urgency[(work[0].slot - closed) % FRUGAL_P2F_SLOTS], n);
    tally(&f->work.flushed, n);
    trace_count(f, NO_DEVICE, closed + (work[0].slot - closed) % FRUGAL_P2F_SLOTS, n);
    int emptied = frugal_p2f_done(f->p2f, work, n);
    if (emptied) event_notify(f->event);
    return 1;
}
