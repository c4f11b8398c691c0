/* secondaries.c - rows are listed for a device whose copies may be stale: frugal_secondaries.
 *
 * What such a copy is, when it may be read, and why the bits do not depend on timing: clocks.c. Here the clocks are
 * laid out anew, in one block of memory, and the device makes room for the copies. Nothing is changed before both have
 * their memory.
 */
#include "access.h"

typedef struct listed_row {
    uint32_t row, bound;
} listed_row;

static int compare_listed(const void *a, const void *b) {
    uint32_t left = ((const listed_row *)a)->row, right = ((const listed_row *)b)->row;
    return left < right ? -1 : left > right;
}

/* The new list of a device, list[n]: rows of other tables that it lists already, and those of `keys`, rising and each
 * once. Returns n; the list has room for all. */
static uint64_t make_list(const frugal *f, uint32_t d, const frugal_keys *keys, uint32_t bound, listed_row *list) {
    const device_clocks *old = f->clocks ? &f->clocks->devices[d] : NULL;
    uint64_t from = f->first_row[keys->table], to = f->first_row[keys->table + 1], n = 0, distinct = 0;
    for (uint32_t i = 0; old && i < old->n; i++)
        if (old->rows[i] < from || old->rows[i] >= to) list[n++] = (listed_row){old->rows[i], old->bounds[i]};
    for (uint32_t i = 0; i < keys->n; i++) list[n++] = (listed_row){(uint32_t)row_of(f, keys, i), bound};
    qsort(list, n, sizeof *list, compare_listed);
    for (uint64_t i = 0; i < n; i++)
        if (i == 0 || list[i].row != list[distinct - 1].row) list[distinct++] = list[i];
    return distinct;
}

typedef struct row_lists { /* what all devices list, after the call: `d` the new list, the others what they have */
    const frugal *f;
    uint32_t d, n;
    const listed_row *list; /* list[n] */
} row_lists;

static uint32_t listed_count(const row_lists *lists, uint32_t d) {
    if (d == lists->d) return lists->n;
    return lists->f->clocks ? lists->f->clocks->devices[d].n : 0;
}

static listed_row listed_at(const row_lists *lists, uint32_t d, uint32_t i) {
    if (d == lists->d) return lists->list[i];
    const device_clocks *old = &lists->f->clocks->devices[d];
    return (listed_row){old->rows[i], old->bounds[i]};
}

/* Lays the clocks out from `memory` on, and returns their size. `total`: rows of all lists. With `memory` NULL it only
 * computes the size. */
static size_t lay_clocks(const row_lists *lists, uint64_t total, unsigned char *memory) {
    const frugal *f = lists->f;
    uint64_t at = 0, ring = f->desc.lookahead + 1, slots = 2;
    while (slots < 2 * total) slots *= 2;
    uint64_t head = take_bytes(&at, sizeof(clocks)), devices = take_bytes(&at, f->desc.devices * sizeof(device_clocks));
    uint64_t of_row = take_bytes(&at, total * 8), hash = take_bytes(&at, slots * 8), left = take_bytes(&at, ring * 4);
    clocks *c = memory ? (clocks *)(void *)(memory + head) : NULL;
    if (c) {
        c->of_row = (uint64_t *)(void *)(memory + of_row), c->slots = (uint64_t *)(void *)(memory + hash);
        c->left = (void *)(memory + left);
        c->mask = slots - 1, c->devices = (device_clocks *)(void *)(memory + devices);
    }
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        uint32_t n = listed_count(lists, d), most = LEAST(n, f->desc.max_keys);
        uint64_t rows = take_bytes(&at, n * UINT64_C(4)), bounds = take_bytes(&at, n * UINT64_C(4));
        uint64_t indices = take_bytes(&at, n * UINT64_C(4)), of_copy = take_bytes(&at, n * UINT64_C(8));
        uint64_t touched = take_bytes(&at, ring * most * sizeof(frugal_secondary));
        uint64_t before = take_bytes(&at, ring * most * 8), counts = take_bytes(&at, ring * 8);
        uint64_t pending = take_bytes(&at, LEAST(total, f->desc.max_keys) * 4);
        if (!c) continue;
        device_clocks *own = &c->devices[d];
        own->n = n, own->most = most;
        own->rows = (uint32_t *)(void *)(memory + rows), own->bounds = (uint32_t *)(void *)(memory + bounds);
        own->indices = (uint32_t *)(void *)(memory + indices), own->of_copy = (uint64_t *)(void *)(memory + of_copy);
        own->touched = (frugal_secondary *)(void *)(memory + touched);
        own->before = (uint64_t *)(void *)(memory + before), own->pending = (uint32_t *)(void *)(memory + pending);
        own->n_touched = (uint32_t *)(void *)(memory + counts), own->n_stale = own->n_touched + ring;
    }
    return (size_t)at;
}

/* The index of a row in the clocks; it gets one if it has none. */
static uint32_t add_listed(clocks *c, uint32_t row) {
    uint64_t at = clock_slot(c, row);
    for (; c->slots[at] != NO_CLOCK; at = (at + 1) & c->mask)
        if (c->slots[at] >> 32 == row) return (uint32_t)c->slots[at];
    c->slots[at] = (uint64_t)row << 32 | c->n;
    return c->n++;
}

static void fill_clocks(const row_lists *lists, clocks *c) {
    const frugal *f = lists->f;
    memset(c->slots, 0xff, (c->mask + 1) * sizeof *c->slots);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        device_clocks *own = &c->devices[d];
        for (uint32_t i = 0; i < own->n; i++) {
            listed_row listed = listed_at(lists, d, i);
            own->rows[i] = listed.row, own->bounds[i] = listed.bound;
            own->indices[i] = add_listed(c, listed.row);
            own->of_copy[i] = NO_CLOCK;
        }
    }
    for (uint32_t i = 0; i <= f->desc.lookahead; i++) /* relaxed: nothing is announced */
        frugal_store_relaxed(&c->left[i], f->desc.devices);
}

/* Makes the clocks of all lists, or NULL if all are empty. */
static frugal_status make_clocks(const row_lists *lists, clocks **out) {
    uint64_t total = 0;
    *out = NULL;
    for (uint32_t d = 0; d < lists->f->desc.devices; d++) total += listed_count(lists, d);
    if (total == 0) return FRUGAL_OK;
    size_t bytes = lay_clocks(lists, total, NULL);
    unsigned char *memory = allocate_memory(&lists->f->desc, bytes, CACHE_LINE);
    if (!memory) return fail_memory("the clocks of secondaries", bytes);
    lay_clocks(lists, total, memory);
    *out = (clocks *)(void *)memory;
    (*out)->bytes = bytes;
    fill_clocks(lists, *out);
    return FRUGAL_OK;
}

static frugal_status keep_rows(frugal *f, uint32_t d, clocks *made) {
    const device_clocks *own = made ? &made->devices[d] : NULL;
    host_device *device = &f->devices[d];
    frugal_status status = device->ops.list_secondaries(device->state, own ? own->rows : NULL, own ? own->n : 0);
    if (status != FRUGAL_OK) {
        if (made) release_memory(&f->desc, made, made->bytes);
        return after_refusal(f, d, status, "secondaries");
    }
    close_clocks(f);
    f->clocks = made;
    drop_secondaries(f);
    return FRUGAL_OK;
}

frugal_status frugal_secondaries(frugal *f, uint32_t d, const frugal_keys *keys, uint32_t bound) {
    frugal_status status = check_owner(f, "secondaries");
    if (status == FRUGAL_OK) status = check_device(f, d, "secondaries");
    if (status == FRUGAL_OK) status = check_keys(f, keys, "secondaries");
    if (status != FRUGAL_OK) return status;
    if (!f->devices[d].ops.list_secondaries)
        return frugal_fail(FRUGAL_ERR_DEVICE,
                           "secondaries: device %u keeps no secondaries; list rows for devices that do, as "
                           "those of frugal_cpu_attach",
                           d);
    if (!is_idle(f)) return fail_busy(f, "secondaries", 1);
    uint64_t most = (uint64_t)keys->n + (f->clocks ? f->clocks->devices[d].n : 0);
    size_t bytes = (size_t)(most + 1) * sizeof(listed_row);
    listed_row *list = allocate_memory(&f->desc, bytes, CACHE_LINE);
    if (!list) return fail_memory("a list of rows", bytes);
    uint64_t n = make_list(f, d, keys, bound, list);
    clocks *made;
    row_lists lists = {f, d, (uint32_t)n, list};
    status = make_clocks(&lists, &made);
    if (status == FRUGAL_OK) status = keep_rows(f, d, made);
    release_memory(&f->desc, list, bytes);
    return status;
}
