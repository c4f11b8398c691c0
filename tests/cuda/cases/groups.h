/* groups.h - tables with settings of their own: copies in caches take steps by their table's, or none */
#ifndef CASES_GROUPS_H
#define CASES_GROUPS_H

#include "world.h"

static void check_groups(int gate_on_stream) {
    for (int i = 0; i < 32; i++) {
        if ((i & 4) != 4 * gate_on_stream) continue;
        world w = gate_on_stream ? gated(2) : world_of(2);
        w.desc.optimizer = (frugal_optimizer){.kind = (frugal_optimizer_kind)(i % 4), .weight_decay = i & 8 ? 0 : 0.1f};
        w.desc.dim = i & 8 ? 5 : 132, w.desc.max_keys = 40, w.n_tables = i & 16 ? 2 : 5;
        w.make = i % 3 == 2 ? all_equal : NULL;
        if (i % 5 == 0) w.places[1] = (place){.ordinal = NOBODY, .cache_rows = 16};
        if (i % 5 == 1) w.places[0].cache_rows = 0; /* records alone */
        open_world(&w);
        run(&w, 10);
        check(&w);
        cancel_all(&w);
        finish(&w, 10);
    }
}

static void test_groups(void **state) {
    (void)state;
    check_groups(0);
}

static void test_groups_gated(void **state) {
    (void)state;
    check_groups(1);
}

/* Copies of rows that never change. */
static void check_frozen(int gate_on_stream) {
    for (int i = 0; i < 8; i++) {
        world w = gate_on_stream ? gated(2) : world_of(2);
        w.desc.optimizer = (frugal_optimizer){.kind = (frugal_optimizer_kind)(i % 4), .weight_decay = 0.1f};
        w.desc.dim = i & 4 ? 5 : 132, w.desc.max_keys = 40, w.n_tables = 1;
        open_world(&w);
        run(&w, 10);
        check(&w);
        cancel_all(&w);
        finish(&w, 10);
    }
}

static void test_frozen(void **state) {
    (void)state;
    check_frozen(0);
    check_frozen(1);
}

#endif /* CASES_GROUPS_H */
