/* Sorting rows by how often they are touched. */
#include "tools/reorder/order.h"

#include <inttypes.h>
#include <stdlib.h>

static int reorder_compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

int reorder_order_make(reorder_order *order, const uint32_t *counts, uint32_t n, program_error *error) {
    uint64_t *sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    *order = (reorder_order){.n = n,
                             .old_row = malloc(((size_t)n + 1) * sizeof *order->old_row),
                             .new_row = malloc(((size_t)n + 1) * sizeof *order->new_row)};
    int status = sorted && order->old_row && order->new_row
                     ? 0
                     : program_fail(error, "out of memory to sort %" PRIu32 " rows", n);
    for (uint32_t row = 0; row < n && !status; row++) sorted[row] = (uint64_t)~counts[row] << 32 | row;
    if (!status) qsort(sorted, n, sizeof *sorted, reorder_compare);
    for (uint32_t row = 0; row < n && !status; row++) {
        order->old_row[row] = (uint32_t)sorted[row];
        order->new_row[order->old_row[row]] = row;
    }
    free(sorted);
    if (status) reorder_order_free(order);
    return status;
}

void reorder_order_free(reorder_order *order) {
    free(order->old_row);
    free(order->new_row);
    *order = (reorder_order){0};
}
