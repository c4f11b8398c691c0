/* guests.c - rows of other machines that a batch here reads (frugal_machines.h): their list, where they arrive, and
 * whether they have.
 *
 * A batch is sorted by dealt number (deal.c), so its unique rows from b->n_own on are guests, those of each home
 * together. Their ids go to that home as soon as the batch is sorted. Its rows come in one message, or in two, those
 * that came early first, and stay where they have arrived: lookup only notes where each is. Their records are as far
 * behind each other in the staging block, and leave from there.
 *
 * Two steps of a device can be on their way at a time: one whose rows are waited for, and the next, whose rows come
 * early. The communication thread raises the counts below, and the trainer waits for them (gate.c).
 */
#include "steps.h"

static uint64_t first_ring(const frugal *f) {
    return f->desc.lookahead + f->desc.staging + 1;
}

static uint64_t first_at(const frugal *f, uint64_t step) {
    return step % first_ring(f) * (f->dealing->machines + 1);
}

/* Where the guests of each home begin among the unique rows: first[k] of machine (me + k) % machines, from k = 1 on;
 * first[machines] is where they end. */
FRUGAL_INTERNAL const uint32_t *guests_first(const frugal *f, uint32_t d, uint64_t step) {
    return f->devices[d].guests->first + first_at(f, step);
}

/* The ids of the batch's guests. */
FRUGAL_INTERNAL uint64_t *guests_ids(const frugal *f, uint32_t d, uint64_t step) {
    return f->devices[d].guests->ids + step % (f->desc.lookahead + 1) * f->desc.max_keys;
}

/* Where they arrive: room for one behind the other. */
FRUGAL_INTERNAL unsigned char *guests_rows(const frugal *f, uint32_t d, uint64_t step) {
    return f->devices[d].guests->rows + step % 2 * f->desc.max_keys * frugal_row_bytes(&f->store);
}

/* Of the guests of part k: a bit for each, 1: it has come early. */
FRUGAL_INTERNAL uint64_t *guests_early(const frugal *f, uint32_t d, uint64_t step, uint32_t k) {
    uint64_t words = early_words(f->desc.max_keys);
    return f->devices[d].guests->early + (step % 2 * f->dealing->machines + k) * words;
}

/* A batch is listed, and no other thread knows of it yet: which of its rows are guests? */
FRUGAL_INTERNAL void list_guests(frugal *f, uint32_t d, host_batch *b) {
    const dealing *g = f->dealing;
    device_guests *guests = f->devices[d].guests;
    if (!guests) return; /* the device is away, and has announced rows of this machine alone */
    uint32_t *first = guests->first + first_at(f, b->step), u = 0;
    uint64_t *ids = guests_ids(f, d, b->step);
    for (uint32_t k = 0; k < g->machines; k++) {
        first[k] = u;
        u += (uint32_t)count_below(b->rows + u, b->n_unique - u, g->start[k + 1]); /* those of this part */
        if (k == 0) b->n_own = u;
        for (uint32_t i = first[k]; k > 0 && i < u; i++) ids[i - b->n_own] = id_of_dealt(g, k, b->rows[i]);
    }
    first[g->machines] = u;
}

/* Notes where each guest is, for the first lookup of a step whose rows have all arrived: those of a home that came
 * early, one behind the other, and behind them the others. */
FRUGAL_INTERNAL void place_guests(frugal *f, uint32_t d, uint64_t step) {
    const host_batch *b = batch_at(f, d, step);
    const dealing *g = f->dealing;
    const uint32_t *first = guests_first(f, d, step);
    uint32_t *at = f->devices[d].guests->at;
    for (uint32_t k = 1; k < g->machines; k++) {
        const uint64_t *early = guests_early(f, d, step, k);
        uint32_t n = first[k + 1] - first[k], before = first[k] - b->n_own, came = 0, others = 0;
        for (uint32_t i = 0; g->early && i < (n + 63) / 64; i++) came += (uint32_t)__builtin_popcountll(early[i]);
        others = before + came, came = before;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bit = g->early ? (uint32_t)(early[i / 64] >> i % 64 & 1) : 0;
            at[before + i] = bit ? came : others;
            came += bit, others += 1 - bit;
        }
    }
}

FRUGAL_INTERNAL void show_guests(const frugal *f, uint32_t d, frugal_step *view) {
    view->guests = guests_rows(f, d, view->step);
    view->guest_at = f->devices[d].guests->at;
}

/* The id of unique row u, of part k. */
static uint64_t id_of_unique(const frugal *f, const frugal_step *view, const uint64_t *guests, uint32_t u) {
    return u < view->n_own ? frugal_id_of(&f->store, view->records.rows[u]) : guests[u - view->n_own];
}

/* Lists the unique rows by rising id, as on one machine, and leaves out those of frozen tables: each part is in order.
 */
FRUGAL_INTERNAL void order_squares(const frugal *f, uint32_t d, frugal_step *view) {
    const dealing *g = f->dealing;
    const uint32_t *first = guests_first(f, d, view->step);
    const uint64_t *guests = guests_ids(f, d, view->step);
    uint32_t next[FRUGAL_MAX_MACHINES], *summed = f->devices[d].guests->summed, n = 0, t = 0;
    uint64_t ids[FRUGAL_MAX_MACHINES]; /* of next; UINT64_MAX: the part has ended */
    for (uint32_t k = 0; k < g->machines; k++) {
        next[k] = first[k];
        ids[k] = first[k] < first[k + 1] ? id_of_unique(f, view, guests, first[k]) : UINT64_MAX;
    }
    for (;;) {
        uint32_t k = 0;
        for (uint32_t i = 1; i < g->machines; i++)
            if (ids[i] < ids[k]) k = i;
        if (ids[k] == UINT64_MAX) break;
        while (ids[k] >= g->first_id[t + 1]) t++;
        if (!f->tables[t].optimizer->frozen) summed[n++] = next[k];
        ids[k] = ++next[k] < first[k + 1] ? id_of_unique(f, view, guests, next[k]) : UINT64_MAX;
    }
    view->summed = summed, view->n_summed = n;
}

/* Have the rows of the step arrived; and has left what lies where this step will write? */
FRUGAL_INTERNAL int guests_ready(const frugal *f, uint32_t d, uint64_t step) {
    const device_guests *guests = f->devices[d].guests;
    if (!guests) return 1;
    uint64_t depth = f->desc.staging;
    return frugal_load_acquire(&guests->arrived) > step && /* [F69] pairs with [F70], all */
           frugal_load_acquire(&guests->keys_gone) > step && frugal_load_acquire(&guests->records_gone) + depth > step;
}

/* Of `rows`, two for each key, and of `at` behind them: whole pages, which a device may pin. */
static uint64_t arrival_bytes(const frugal *f) {
    return whole_pages(f->desc.max_keys * (2 * frugal_row_bytes(&f->store) + sizeof(uint32_t)));
}

FRUGAL_INTERNAL frugal_memory guests_memory(const frugal *f, uint32_t d) {
    return (frugal_memory){f->devices[d].guests->rows, arrival_bytes(f), 0};
}

static uint64_t early_bytes(const frugal *f) {
    return 2 * f->dealing->machines * early_words(f->desc.max_keys) * sizeof(uint64_t);
}

/* Bytes of a device here. */
FRUGAL_INTERNAL uint64_t guests_bytes(const frugal *f) {
    if (!f->dealing) return 0;
    uint64_t keys = f->desc.max_keys, ids = (f->desc.lookahead + 1) * keys * sizeof(uint64_t);
    uint64_t first = first_ring(f) * (f->dealing->machines + 1) * sizeof(uint32_t);
    return ids + first + keys * sizeof(uint32_t) + early_bytes(f) + f->desc.staging * sizeof(step_settings) +
           arrival_bytes(f);
}

/* Of a device of this machine. */
FRUGAL_INTERNAL frugal_status open_guests(frugal *f, uint32_t d) {
    uint64_t keys = f->desc.max_keys, ring = f->desc.lookahead + 1;
    device_guests *guests = frugal_allocate(f, sizeof *guests, CACHE_LINE);
    if (!(f->devices[d].guests = guests)) return fail_memory("rows of other machines", sizeof *guests);
    frugal_store_relaxed(&guests->arrived, f->desc.first_step); /* relaxed, all: no other thread yet */
    frugal_store_relaxed(&guests->keys_gone, f->desc.first_step);
    frugal_store_relaxed(&guests->records_gone, f->desc.first_step);
    guests->rows = frugal_allocate(f, arrival_bytes(f), page_unit());
    if (guests->rows) guests->at = (uint32_t *)(void *)(guests->rows + 2 * keys * frugal_row_bytes(&f->store));
    guests->ids = frugal_allocate(f, ring * keys * sizeof *guests->ids, CACHE_LINE);
    guests->first = frugal_allocate(f, first_ring(f) * (f->dealing->machines + 1) * sizeof *guests->first, CACHE_LINE);
    guests->settings = frugal_allocate(f, f->desc.staging * sizeof *guests->settings, CACHE_LINE);
    guests->summed = frugal_allocate(f, keys * sizeof *guests->summed, CACHE_LINE);
    guests->early = frugal_allocate(f, early_bytes(f), CACHE_LINE);
    int all = guests->rows && guests->ids && guests->first && guests->summed && guests->early && guests->settings;
    return all ? FRUGAL_OK : fail_memory("rows of other machines", guests_bytes(f));
}

FRUGAL_INTERNAL void close_guests(frugal *f, host_device *device) {
    device_guests *guests = device->guests;
    uint64_t keys = f->desc.max_keys, ring = f->desc.lookahead + 1;
    if (!guests) return;
    frugal_free(f, guests->rows, arrival_bytes(f));
    frugal_free(f, guests->ids, ring * keys * sizeof *guests->ids);
    frugal_free(f, guests->first, first_ring(f) * (f->dealing->machines + 1) * sizeof *guests->first);
    frugal_free(f, guests->settings, f->desc.staging * sizeof *guests->settings);
    frugal_free(f, guests->summed, keys * sizeof *guests->summed);
    frugal_free(f, guests->early, early_bytes(f));
    frugal_free(f, guests, sizeof *guests);
}
