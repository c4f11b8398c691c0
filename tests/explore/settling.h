/* settling.h - one thread waits until what was announced is planned, and counted; another one helps, and a third
 * announces, or not. */
#ifndef SETTLING_H
#define SETTLING_H

static void set_up_settling(uint64_t variant) {
    w.alone = FRUGAL_ALONE_STAGED;
    w.kinds[0] = w.kinds[1] = HOST;
    w.steps = STEPS, w.late = w.copies = 0;
    set_up_of(variant, 2, 0, 0);
    expect_ok(frugal_set_counts(w.f, &(frugal_keys){0}, NULL));
}

static void try_announce_at(int d, int s) {
    frugal_keys segments[KEYS];
    frugal_batch batch = batch_of(d, s, segments);
    expect_ok(frugal_try_announce(w.f, (uint32_t)d, (uint64_t)s, &batch));
}

static void settle_or_announce(int number) {
    int others = w.f->desc.seed % 2 && w.f->desc.lookahead > 0;
    if (number == 0) {
        while (others && !frugal_load_acquire(w.passed)) explore_wait();
        if (!others) try_announce_at(1, 0);
        try_announce_at(0, 0);
        settle_counts(w.f);
        EXPLORE_EXPECT(frugal_p2f_planned(w.f->p2f) >= 1);
    } else if (number == 1) {
        for (int i = 0; i < 6; i++) frugal_help(w.f);
    } else if (others) {
        try_announce_at(1, 0);
        frugal_store_release(w.passed, 1);
        try_announce_at(1, 1);
    }
}

#endif /* SETTLING_H */
