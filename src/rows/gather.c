/* gather.c - the rows of a batch, copied from the host table: to an array by position, or into the block by record.
 *
 * Rows are read in rising order, each once, and written to their positions. So the table's pages are visited in order,
 * a row with many positions is read once, and what waits for memory is only the array that is written: its lines are
 * prefetched, too, position by position.
 */
#ifndef FRUGAL_GATHER_C
#define FRUGAL_GATHER_C
#include "sums.c"

INLINED void gather_by_position(const frugal_store *store, const frugal_records *r, float *rows, uint64_t stride) {
    uint32_t dim = store->dim;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        if (u + AHEAD_GATHER < r->n_unique)
            prefetch_row(store->weights + r->rows[u + AHEAD_GATHER] * store->weights_stride, dim, 0);
        const float *from = store->weights + r->rows[u] * store->weights_stride;
        for (uint32_t k = r->start[u]; k < r->start[u + 1]; k++) {
            if (k + AHEAD_GATHER < r->n) prefetch_row(rows + r->order[k + AHEAD_GATHER] * stride, dim, 1);
            copy_row(rows + r->order[k] * stride, from, dim);
        }
    }
}

INLINED void gather_by_record(const frugal_store *store, const frugal_records *r) {
    for (uint32_t u = 0; u < r->n_unique; u++) {
        if (u + AHEAD_GATHER < r->n_unique)
            prefetch_row(store->weights + r->rows[u + AHEAD_GATHER] * store->weights_stride, store->dim, 0);
        copy_row(r->block + u * r->stride, store->weights + r->rows[u] * store->weights_stride, store->dim);
    }
}

INLINED void gather_all(const frugal_store *store, const frugal_records *r, float *rows, uint64_t stride) {
    if (rows)
        gather_by_position(store, r, rows, stride);
    else
        gather_by_record(store, r);
}

#endif
