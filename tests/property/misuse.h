/* misuse.h - calls that must be refused, and must change nothing. */
#ifndef MISUSE_H
#define MISUSE_H

#include "run.h"

static inline void misuse_announce(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    uint64_t s = t->first_step + step, bad = t->table_rows[0];
    uint64_t *many = calloc((size_t)t->max_keys + 1, sizeof(uint64_t));
    many[0] = bad;
    frugal_keys bad_key[] = {{.table = 0, .keys = &many[1], .n = t->max_keys - 1}, {.table = 0, .keys = &bad, .n = 1}},
                too_many = {.table = 0, .keys = many + 0, .n = t->max_keys + 1};
    frugal_keys bad_table = {.table = t->n_tables, .keys = many, .n = 1};
    many[0] = 0;
    frugal_batch key = {bad_key, 2, 0}, keys = {&too_many, 1, 0}, table = {&bad_table, 1, 0}, empty = {0};
    if (t->max_keys == 1) key.segments++, key.n_segments--;
    switch (trial_bits(t, 7, d, step) % 6) {
    case 0:
        run_expect(r, frugal_announce(r->f, d, s, &key), FRUGAL_ERR_KEY, "announce (bad key)", d, s);
        break;
    case 1:
        run_expect(r, frugal_announce(r->f, d, s, &keys), FRUGAL_ERR_KEYS, "announce (too many)", d, s);
        break;
    case 2:
        run_expect(r, frugal_announce(r->f, d, s, &table), FRUGAL_ERR_TABLE, "announce (bad table)", d, s);
        break;
    case 3:
        run_expect(r, frugal_announce(r->f, d, s + 1, &empty), FRUGAL_ERR_ORDER, "announce (skips)", d, s);
        break;
    case 4:
        if (s > 0) run_expect(r, frugal_announce(r->f, d, s - 1, &empty), FRUGAL_ERR_ORDER, "announce (again)", d, s);
        break;
    default:
        run_expect(r, frugal_announce(r->f, t->devices, s, &empty), FRUGAL_ERR_DEVICE, "announce", t->devices, s);
    }
    free(many);
}

/* Before the lookup of `step`: none of these may be. */
static inline void misuse_train(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    uint64_t s = t->first_step + step;
    float *rows = r->work[d].rows;
    frugal_gradients g = {.grads = r->work[d].grads, .lr = 0.5f};
    frugal_records records;
    switch (trial_bits(t, 8, d, step) % 6) {
    case 0:
        if (step + 1 < t->ends[d])
            run_expect(r, frugal_lookup(r->f, d, s + 1, rows), FRUGAL_ERR_ORDER, "lookup (ahead)", d, s + 1);
        break;
    case 1:
        if (s > 0) run_expect(r, frugal_try_lookup(r->f, d, s - 1, rows), FRUGAL_ERR_ORDER, "lookup (again)", d, s);
        break;
    case 2:
        run_expect(r, frugal_update(r->f, d, s, &g), FRUGAL_ERR_ORDER, "update (before lookup)", d, s);
        break;
    case 3:
        run_expect(r, frugal_update(r->f, d, s + 1, NULL), FRUGAL_ERR_ORDER, "update (ahead)", d, s + 1);
        break;
    case 4:
        run_expect(r, frugal_get_records(r->f, d, s, &records), FRUGAL_ERR_ORDER, "get_records", d, s);
        break;
    default:
        run_expect(r, frugal_lookup(r->f, t->devices, s, rows), FRUGAL_ERR_DEVICE, "lookup", t->devices, s);
    }
}

#endif /* MISUSE_H */
