/* place.c - a device's update of its batch: of rows that it alone touches in the host table, in place; of the others
 * the gradients are summed into records.
 *
 * A row that is alone has one contributor, so its update is what apply.c would do with its record: the same sum, the
 * same optimizer step. Where one position brings the row's gradient, not even the record is written. That no other
 * thread reads or writes the row meanwhile is shown in frugal_p2f.h, section 5 (f).
 */
#include "host.h"

/* Rows whose gradients are found before the rows are updated: few enough that the gradients stay in the first-level
 * cache, and enough that the host rows arrive in time. */
#define PLACE_ROWS 32u

void frugal_update_rows(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of, const float *grads,
                        uint32_t from, uint32_t end) {
    const frugal_records *r = &step->records;
    const float *gradients[PLACE_ROWS];
    update_list list;
    update_list_begin(&list, store);
    for (uint32_t at = from, next; at < end; at = next) {
        next = LEAST(at + PLACE_ROWS, end);
        for (uint32_t u = at; u < next; u++) {
            gradients[u - at] = r->block + u * r->stride;
            if (!frugal_is_alone(step->alone, u)) continue;
            prefetch_row(store->weights + r->rows[u] * store->weights_stride, store->dim, 1);
            if (store->state) prefetch_row(store->state + r->rows[u] * store->state_stride, store->state_floats, 1);
        }
        if (grads && step->bags)
            sum_bags_of(r, step->bags, bag_of, grads, store->dim, at, next);
        else if (grads)
            find_gradients(r, step->alone, grads, store->dim, at, next, gradients);
        for (uint32_t u = at; u < next; u++) {
            if (!frugal_is_alone(step->alone, u)) continue;
            *update_list_records(&list, r->rows[u], 1) = gradients[u - at];
            update_list_add(&list, r->rows[u], 1, step->hyper);
        }
        update_list_run(&list);
    }
}
