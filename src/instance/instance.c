/* instance.c - what opening an instance, joining one and serving a version make alike: the locks, the copy of the
 * tables' settings, the list of devices, the memory of their batches.
 */
#include "instance.h"

FRUGAL_INTERNAL void open_locks(frugal *f) {
    open_jobs(f);
    pthread_mutex_init(&f->settings.lock, NULL);
    pthread_mutex_init(&f->finishing.lock, NULL);
    pthread_mutex_init(&f->polling.lock, NULL);
    pthread_mutex_init(&f->gates_lock, NULL);
    pthread_mutex_init(&f->tracing.lock, NULL);
    pthread_mutex_init(&f->ahead.lock, NULL);
    pthread_mutex_init(&f->touches.lock, NULL);
}

/* Bits of the largest row number. */
FRUGAL_INTERNAL uint32_t bits_of_rows(uint64_t rows) {
    uint32_t bits = 0;
    while (bits < 32 && rows - 1 >= UINT64_C(1) << bits) bits++;
    return bits;
}

FRUGAL_INTERNAL uint32_t record_stride_of(uint32_t dim) {
    return dim >= 16 ? (dim + 15) / 16 * 16 : (uint32_t)aligned_floats(dim);
}

FRUGAL_INTERNAL frugal_status open_copies(frugal *f, const frugal_desc *desc) {
    size_t bytes = desc->n_tables * sizeof(frugal_table);
    if (!(f->tables = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("table settings", bytes);
    memcpy(f->tables, desc->tables, bytes);
    for (uint32_t t = 0; f->dealing && t < desc->n_tables; t++)
        f->tables[t].rows =
            own_ids_below(f->dealing, f->dealing->first_id[t + 1]) - own_ids_below(f->dealing, f->dealing->first_id[t]);
    f->desc.tables = f->tables;
    bytes = (desc->n_tables + 1) * sizeof(uint64_t);
    if (!(f->first_row = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("table settings", bytes);
    for (uint32_t t = 0; t < desc->n_tables; t++) f->first_row[t + 1] = f->first_row[t] + f->tables[t].rows;
    return FRUGAL_OK;
}

FRUGAL_INTERNAL uint64_t take_bytes(uint64_t *at, uint64_t bytes) {
    uint64_t here = *at;
    *at = (here + bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return here;
}

/* Lays the arrays of a device's batches out in one block of memory, and returns its size. With `device` NULL it only
 * computes the size. */
FRUGAL_INTERNAL size_t lay_batches(const frugal *f, host_device *device) {
    uint64_t n = f->desc.max_keys, at = 0;
    unsigned char *memory = device ? device->batch_memory : NULL;
    for (uint32_t i = 0; i <= f->desc.lookahead;
         i++) { /* four arrays of equal size, equally far apart: a device may copy all at once */
        uint64_t rows = take_bytes(&at, (n + 1) * 4), start = take_bytes(&at, (n + 1) * 4);
        uint64_t order = take_bytes(&at, (n + 1) * 4), record_of = take_bytes(&at, (n + 1) * 4);
        uint64_t worth = take_bytes(&at, n);
        if (!device) continue;
        device->batches[i].rows = (uint32_t *)(void *)(memory + rows);
        device->batches[i].record_of = (uint32_t *)(void *)(memory + record_of);
        device->batches[i].order = (uint32_t *)(void *)(memory + order);
        device->batches[i].start = (uint32_t *)(void *)(memory + start);
        device->batches[i].worth = memory + worth;
    }
    return (size_t)at;
}

/* The devices as this process sees them, without the memory that processes share. A process that joins was given the
 * memory of its gates. */
FRUGAL_INTERNAL frugal_status open_device_list(frugal *f) {
    size_t bytes = f->desc.devices * sizeof(host_device);
    if (!f->gates && !(f->gates = frugal_allocate(f, page_unit(), page_unit())))
        return fail_memory("the gates' word", page_unit());
    if (f->ops->owns) frugal_store_relaxed(f->gates, f->desc.first_step); /* relaxed: no other thread yet */
    if (!(f->devices = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("the devices", bytes);
    frugal_store_relaxed(&f->sorting.bad, UINT64_MAX);
    for (uint32_t d = 0; d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        pthread_mutex_init(&device->keeping.lock, NULL);
        pthread_mutex_init(&device->giving, NULL);
        pthread_mutex_init(&device->telling, NULL);
        pthread_mutex_init(&device->waits.worst.lock, NULL);
        frugal_store_relaxed(&device->looked_up, f->desc.first_step); /* relaxed, all: no other thread yet */
        frugal_store_relaxed(&device->updated, f->desc.first_step);
        frugal_store_relaxed(&device->done, f->desc.first_step);
        device->posting.settled = f->desc.first_step;
        frugal_store_relaxed(&device->end, UINT64_MAX);
        frugal_store_relaxed(&device->handed, f->desc.first_step);
        frugal_store_relaxed(&device->told, f->desc.first_step);
    }
    return FRUGAL_OK;
}

/* Bytes of a device's memory for sorting. */
FRUGAL_INTERNAL size_t sort_bytes_of(const frugal *f) {
    size_t digits = f->desc.max_keys >= SORT_LARGE ? SORT_PIECES * sizeof(uint32_t[SORT_DIGITS]) : 0;
    return (size_t)f->desc.max_keys * 2 * sizeof(uint64_t) + digits;
}

/* What a device's own process needs, and no other: memory for sorting, and the list of its batches. */
FRUGAL_INTERNAL frugal_status open_own(frugal *f, host_device *device) {
    size_t bytes = (f->desc.lookahead + 1) * sizeof(host_batch);
    if (!device->batches) { /* else an earlier attempt has failed after this */
        if (!(device->batches = frugal_allocate(f, bytes, CACHE_LINE))) return fail_memory("announced batches", bytes);
        lay_batches(f, device);
    }
    sort_memory *m = &device->sort;
    if (!(m->pairs = frugal_allocate(f, f->sorting.bytes, CACHE_LINE))) return fail_memory("sorting", f->sorting.bytes);
    m->other = m->pairs + f->desc.max_keys;
    m->digits = (uint32_t(*)[SORT_DIGITS])(void *)(m->other + f->desc.max_keys);
    return FRUGAL_OK;
}

static void close_own(frugal *f, host_device *device) {
    frugal_free(f, device->batches, (f->desc.lookahead + 1) * sizeof(host_batch));
    frugal_free(f, device->sort.pairs, f->sorting.bytes);
    free_team(f, device->team);
    pthread_mutex_destroy(&device->keeping.lock);
    pthread_mutex_destroy(&device->giving);
    pthread_mutex_destroy(&device->telling);
    pthread_mutex_destroy(&device->waits.worst.lock);
}

/* Closes devices, and frees what they need alone. */
FRUGAL_INTERNAL void close_devices(frugal *f) {
    for (uint32_t d = 0; f->devices && d < f->desc.devices; d++) {
        host_device *device = &f->devices[d];
        if (is_attached(f, d)) device->ops.close(device->state);
        close_own(f, device);
        close_guests(f, device);
        free_shared(f, device->batch_memory, f->batch_bytes);
        free_shared(f, device->blocks, f->block_bytes);
        unmap_part(device->inbox, inbox_bytes(f));
        free_shared(f, device->counts, count_bytes(f));
    }
}

/* Frees what others may have asked of devices until the table was closed. */
FRUGAL_INTERNAL void close_device_list(frugal *f) {
    for (uint32_t d = 0; f->devices && d < f->desc.devices; d++) unmap_part(f->devices[d].box, sizeof(mailbox));
    frugal_free(f, f->devices, f->desc.devices * sizeof(host_device));
    if (f->ops->owns) frugal_free(f, f->gates, page_unit()); /* else the process was given it */
}

FRUGAL_INTERNAL void close_copies(frugal *f) {
    frugal_free(f, f->saving.changed, changed_bytes(f));
    frugal_free(f, f->tables, f->desc.n_tables * sizeof(frugal_table));
    frugal_free(f, f->first_row, (f->desc.n_tables + 1) * sizeof(uint64_t));
}

FRUGAL_INTERNAL void close_locks(frugal *f) {
    pthread_mutex_destroy(&f->settings.lock);
    pthread_mutex_destroy(&f->finishing.lock);
    pthread_mutex_destroy(&f->polling.lock);
    pthread_mutex_destroy(&f->gates_lock);
    pthread_mutex_destroy(&f->tracing.lock);
    pthread_mutex_destroy(&f->ahead.lock);
    pthread_mutex_destroy(&f->touches.lock);
    pthread_mutex_destroy(&f->notices.lock);
}
