/* deal.c - how the rows of all tables are dealt over machines (frugal_machines.h).
 *
 * An *id* is a row's number in all tables as if one machine had them. Its *home* is a machine, where it is one of the
 * table's rows, by rising id. The *dealt number* of an id, as a machine sees it, is a number of all rows in another
 * order: first its own rows, so that these have the numbers of its table; then those of the next machine, and so on in
 * turn, those of each by rising id. Batches are sorted by dealt number: own rows come first, and the rows of each other
 * home lie together, in the order in which that home has them.
 */
#include "table.h"

/* How many of the ids below `id` have the home. */
static uint64_t ids_below(const dealing *g, uint32_t home, uint64_t id) {
    if (g->deal == FRUGAL_DEAL_CYCLIC) return (id + g->machines - 1 - home) / g->machines;
    uint64_t first = home * g->block;
    return id <= first ? 0 : LEAST(id - first, g->block);
}

/* How many of rising[n] are below `value`. */
FRUGAL_INTERNAL uint64_t count_below(const uint32_t *rising, uint64_t n, uint64_t value) {
    uint64_t low = 0;
    while (n > 0) {
        uint64_t half = n / 2;
        if (rising[low + half] < value)
            low += half + 1, n -= half + 1;
        else
            n = half;
    }
    return low;
}

FRUGAL_INTERNAL uint64_t own_ids_below(const dealing *g, uint64_t id) {
    return g->deal == FRUGAL_DEAL_LISTED ? count_below(g->ids_of, g->start[1], id) : ids_below(g, g->me, id);
}

/* Which part of the dealt numbers a number lies in: k of machine (me + k) % machines. */
static uint32_t part_of_number(const dealing *g, uint32_t number) {
    uint32_t k = 0;
    while (number >= g->start[k + 1]) k++;
    return k;
}

/* id / by. Exact, because both have 32 bits (Lemire, Kaser, Kurz 2019); division takes several times as long. */
static inline uint32_t divided(const dealing *g, uint32_t id) {
    uint64_t upper = (g->reciprocal >> 32) * id, lower = (g->reciprocal & UINT32_MAX) * id >> 32;
    return g->by == 1 ? id : (uint32_t)((upper + lower) >> 32);
}

FRUGAL_INTERNAL uint32_t dealt_number(const dealing *g, uint64_t id) {
    if (g->dealt) return g->dealt[id];
    uint32_t i = (uint32_t)id, whole = divided(g, i), rest = i - whole * g->by;
    uint32_t home = g->deal == FRUGAL_DEAL_CYCLIC ? rest : whole, place = g->deal == FRUGAL_DEAL_CYCLIC ? whole : rest;
    return (uint32_t)g->start[home >= g->me ? home - g->me : home + g->machines - g->me] + place;
}

FRUGAL_INTERNAL uint32_t home_of_id(const dealing *g, uint64_t id) {
    uint32_t i = (uint32_t)id, whole = divided(g, i);
    if (g->deal != FRUGAL_DEAL_LISTED) return g->deal == FRUGAL_DEAL_BLOCKS ? whole : i - whole * g->by;
    return home_at(g, part_of_number(g, g->dealt[id]));
}

/* The id of a dealt number, which lies in part k. */
FRUGAL_INTERNAL uint64_t id_of_dealt(const dealing *g, uint32_t k, uint32_t number) {
    if (g->ids_of) return g->ids_of[number];
    uint64_t home = home_at(g, k), place = number - g->start[k];
    return g->deal == FRUGAL_DEAL_CYCLIC ? place * g->machines + home : home * g->block + place;
}

/* Which rows these are, for a file that outlives the instance. 0: all. */
FRUGAL_INTERNAL uint32_t sum_of_dealing(const frugal *f) {
    const dealing *g = f->dealing;
    if (!g || g->machines == 1) return 0;
    const uint32_t what[] = {g->me, g->machines, (uint32_t)g->deal, g->homes_sum};
    uint32_t sum = crc32c(0, what, sizeof what);
    return sum ? sum : 1;
}

/* Something has changed that the communication thread acts on. */
FRUGAL_INTERNAL void wake_machines(frugal *f) {
    if (f->dealing) event_notify(&f->dealing->event);
}

/* Counts the ids of each part, and of LISTED makes the lists. */
static frugal_status count_parts(frugal *f, const uint8_t *homes) {
    dealing *g = f->dealing;
    uint64_t counts[FRUGAL_MAX_MACHINES] = {0}, next[FRUGAL_MAX_MACHINES];
    for (uint64_t id = 0; homes && id < g->ids; id++) {
        if (homes[id] >= g->machines)
            return frugal_fail(FRUGAL_ERR_ARGUMENT, "machines: homes[%llu] is %u; there are %u machines, from 0",
                               (unsigned long long)id, homes[id], g->machines);
        counts[homes[id]]++;
    }
    for (uint32_t k = 0; k < g->machines; k++) {
        uint32_t home = home_at(g, k);
        if (!homes) counts[home] = ids_below(g, home, g->ids);
        if (counts[home] == 0)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "machines: machine %u would have none of the %llu rows: take fewer machines, or deal "
                               "otherwise",
                               home, (unsigned long long)g->ids);
        next[home] = g->start[k];
        g->start[k + 1] = g->start[k] + counts[home];
    }
    if (!homes) return FRUGAL_OK;
    g->homes_sum = crc32c(0, homes, g->ids);
    size_t bytes = g->ids * sizeof *g->dealt;
    if (!(g->dealt = frugal_allocate(f, bytes, CACHE_LINE)) || !(g->ids_of = frugal_allocate(f, bytes, CACHE_LINE)))
        return fail_memory("where rows have their homes", 2 * bytes);
    for (uint64_t id = 0; id < g->ids; id++) {
        uint32_t number = (uint32_t)next[homes[id]]++;
        g->dealt[id] = number, g->ids_of[number] = (uint32_t)id;
    }
    return FRUGAL_OK;
}

/* Before the tables are copied, which are then those of this machine. */
FRUGAL_INTERNAL frugal_status open_dealing(frugal *f, const frugal_desc *desc) {
    const frugal_machines *m = desc->machines;
    if (!m) return FRUGAL_OK;
    dealing *g = f->dealing = frugal_allocate(f, sizeof *g, CACHE_LINE);
    if (!g) return fail_memory("how rows are dealt", sizeof *g);
    size_t bytes = (desc->n_tables + 1) * sizeof *g->first_id;
    if (!(g->first_id = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("how rows are dealt", bytes);
    for (uint32_t t = 0; t < desc->n_tables; t++) g->first_id[t + 1] = g->first_id[t] + desc->tables[t].rows;
    g->wire = *m->wire;
    g->me = m->wire->machine, g->machines = m->wire->machines, g->deal = m->deal;
    g->here = f->desc.devices / g->machines;
    g->ids = g->first_id[desc->n_tables];
    g->block = (g->ids + g->machines - 1) / g->machines;
    g->by = g->deal == FRUGAL_DEAL_BLOCKS ? (uint32_t)g->block : g->machines;
    g->reciprocal = UINT64_MAX / g->by + 1;
    g->early = desc->lookahead > 0 && f->desc.alone != FRUGAL_ALONE_KEPT;
    g->in_place = desc->alone == FRUGAL_ALONE_PLACE || desc->alone == FRUGAL_ALONE_KEPT;
    return count_parts(f, m->deal == FRUGAL_DEAL_LISTED ? m->homes : NULL);
}

/* What the rows of this machine are, for initializers and random bits. */
FRUGAL_INTERNAL void number_rows(frugal *f) {
    const dealing *g = f->dealing;
    if (!g) return;
    f->store.ids = g->ids_of;
    f->store.id_times = g->deal == FRUGAL_DEAL_CYCLIC ? g->machines : 1;
    f->store.id_plus = g->deal == FRUGAL_DEAL_CYCLIC ? g->me : (uint32_t)(g->me * g->block);
}

FRUGAL_INTERNAL void close_dealing(frugal *f) {
    dealing *g = f->dealing;
    if (!g) return;
    frugal_free(f, g->first_id, (f->desc.n_tables + 1) * sizeof *g->first_id);
    frugal_free(f, g->dealt, g->ids * sizeof *g->dealt);
    frugal_free(f, g->ids_of, g->ids * sizeof *g->ids_of);
    frugal_free(f, g, sizeof *g);
}

frugal_status frugal_home(const frugal *f, uint32_t table, uint64_t key, uint32_t *machine) {
    frugal_status status = check_open(f, "home");
    if (status != FRUGAL_OK) return status;
    if (!machine) return frugal_fail(FRUGAL_ERR_ARGUMENT, "home: `machine` is NULL");
    if (table >= f->desc.n_tables)
        return frugal_fail(FRUGAL_ERR_TABLE, "home: table %u; there are %u", table, f->desc.n_tables);
    if (key >= keys_of(f, table))
        return frugal_fail(FRUGAL_ERR_KEY, "home: key %llu: table %u has %llu rows", (unsigned long long)key, table,
                           (unsigned long long)keys_of(f, table));
    *machine = f->dealing ? home_of_id(f->dealing, f->dealing->first_id[table] + key) : 0;
    return FRUGAL_OK;
}
