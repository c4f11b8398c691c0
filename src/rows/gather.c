/* gather.c - the rows of a batch, copied from the host table: to an array by position, or into the block by record.
 *
 * Rows are read in rising order, each once, and written to their positions. So the table's pages are visited in order,
 * a row with many positions is read once, and what waits for memory is only the array that is written: its lines are
 * prefetched, too, position by position.
 */
#ifndef FRUGAL_GATHER_C
#define FRUGAL_GATHER_C
#include "sums.c"

/* Row `order[k]` of the array, `bytes` apart. */
INLINED void *position_at(const frugal_records *r, void *rows, uint64_t bytes, uint32_t k) {
    return (unsigned char *)rows + r->order[k] * bytes;
}

INLINED void gather_by_position(const row_place *p, const frugal_records *r, void *rows, uint64_t stride,
                                frugal_type as) {
    const frugal_store *store = p->store;
    uint32_t dim = store->dim;
    frugal_type from_as = store->rows_as;
    uint64_t apart = stride * frugal_type_bytes(as), bytes = dim * frugal_type_bytes(as);
    uint64_t pitch = frugal_row_pitch(store), row_bytes = frugal_row_bytes(store);
    const unsigned char *table = store->weights;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        if (u + AHEAD_GATHER < r->n_unique) prefetch_bytes(table + r->rows[u + AHEAD_GATHER] * pitch, row_bytes, 0);
        const void *from = table + r->rows[u] * pitch;
        for (uint32_t k = r->start[u]; k < r->start[u + 1]; k++) {
            if (k + AHEAD_GATHER < r->n) prefetch_bytes(position_at(r, rows, apart, k + AHEAD_GATHER), bytes, 1);
            convert_row(p->types, position_at(r, rows, apart, k), as, from, from_as, dim);
        }
    }
}

INLINED void gather_by_record(const row_place *p, const frugal_records *r) {
    const frugal_store *store = p->store;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        if (u + AHEAD_GATHER < r->n_unique)
            prefetch_bytes(frugal_row_at(store, r->rows[u + AHEAD_GATHER]), frugal_row_bytes(store), 0);
        convert_row(p->types, r->block + u * r->stride, FRUGAL_FP32, frugal_row_at(store, r->rows[u]), store->rows_as,
                    store->dim);
    }
}

INLINED void gather_all(const row_place *p, const frugal_records *r, void *rows, uint64_t stride, frugal_type as) {
    if (rows)
        gather_by_position(p, r, rows, stride, as);
    else
        gather_by_record(p, r);
}

#endif
