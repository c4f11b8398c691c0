/* update_list.c - row updates that are applied together, so that one row is prefetched while another is computed.
 *
 * Threads that flush add updates one by one (apply.c). A list holds rows of one table group, because apply_rows takes
 * the settings of one.
 */
#include "host.h"

typedef struct update_list {
    const frugal_store *store;
    uint32_t n, used;
    uint32_t group;
    uint64_t first_row, n_rows; /* of the group; 0 rows before the first row is added */
    row_update rows[128];
    const float *records[128 + FRUGAL_MAX_DEVICES];
} update_list;

static void update_list_begin(update_list *list, const frugal_store *store) {
    list->store = store;
    list->n = list->used = list->group = 0;
    list->first_row = list->n_rows = 0;
}

static void update_list_run(update_list *list) {
    const frugal_store *s = list->store;
    for (uint32_t i = 0; i < LEAST(list->n, AHEAD_UPDATES); i++) prefetch_update(s, &list->rows[i]);
    if (list->n > 0) apply_rows(s, &s->groups[list->group].optimizer, list->rows, list->n);
    list->n = list->used = 0;
}

/* Applies the list, and begins a new one for the group of `row`. This is rare, because rows mostly come in rising
 * order. */
static void update_list_turn(update_list *list, uint32_t row) {
    const frugal_store *s = list->store;
    update_list_run(list);
    list->group = frugal_group_of(s->groups, s->n_groups, row);
    list->first_row = s->groups[list->group].first_row;
    list->n_rows = (list->group + 1 < s->n_groups ? s->groups[list->group + 1].first_row : s->rows) - list->first_row;
}

/* Where the records of the next row are to be written: room for `most`. */
static inline const float **update_list_records(update_list *list, uint32_t row, uint32_t most) {
    if (list->n == 128 || list->used + most > 128 + FRUGAL_MAX_DEVICES) update_list_run(list);
    /* The difference wraps around for a row below the group's first one. */
    if (row - list->first_row >= list->n_rows) update_list_turn(list, row);
    return list->records + list->used;
}

/* Adds the row, whose n > 0 records have been written. hyper[n_groups] are the numbers of the update's step. */
static inline void update_list_add(update_list *list, uint32_t row, uint32_t n, const frugal_hyper *hyper) {
    const frugal_store *s = list->store;
    float *state = s->state ? s->state + row * s->state_stride : NULL;
    list->rows[list->n++] =
        (row_update){s->weights + row * s->weights_stride, state, list->records + list->used, n, hyper + list->group};
    list->used += n;
}
