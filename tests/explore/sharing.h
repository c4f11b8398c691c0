/* sharing.h - two instances, each with one device, share one or two workers. Each trainer closes its instance as soon
 * as it has finished, whatever the workers are doing; the second instance joins the workers when it is opened, or only
 * when it begins to train. A stream that waits at gates depends on the workers alone, and may be slow as long as the
 * other instance has work. Part of explore_runtime.c. */
#ifndef SHARING_H
#define SHARING_H

static void set_up_sharing_of(uint64_t variant, uint32_t workers, int polled) {
    test_random random = {.seed = test_mix3(variant, 17, workers)};
    clear(0);
    w.steps = 2, w.late = w.copies = 0;
    w.alone = polled ? either_way(variant / 8) : FRUGAL_ALONE_STAGED; /* staged: the workers have rows to flush */
    if (frugal_workers_open(workers, &w.workers) != FRUGAL_OK) explore_fail("workers: %s", frugal_message());
    for (uint32_t i = 0; i < DEVICES; i++) {
        frugal_desc desc = {.devices = 1, .shared_workers = w.workers, .seed = variant + i, .release = give_back};
        w.kinds[i] = polled ? (int)test_below(&random, 3) : HOST;
        open_instance(&random, &desc, &w.sharing[i], i);
        w.rows_of[i] = w.ref.rows;
        memcpy(w.last[i], w.ref.weights, w.ref.rows * DIM * sizeof(float));
    }
    if (variant / 4 % 2 && w.kinds[0] != HOST && w.kinds[1] != HOST) w.streams[0]->follows = w.streams[1];
    if (variant % 2) give_back_seat(w.sharing[1]);
    *w.read = (uint32_t)(variant % 2); /* joins late */
}

static void set_up_sharing(uint64_t variant) {
    set_up_sharing_of(variant, 1 + variant / 2 % 2, 0);
}
static void set_up_sharing_streams(uint64_t variant) {
    set_up_sharing_of(variant, 1 + variant / 2 % 2, 1);
}

static void train_and_close(int d) {
    frugal *f = w.sharing[d];
    if (d == 1 && *w.read) {
        expect_ok(take_seat(f, w.workers));
        open_seat(f);
    }
    for (int s = 0, t = 0; s < w.steps; s++) {
        for (; t < w.steps && t <= s + (int)f->desc.lookahead; t++) announce(d, t);
        train(d, s);
    }
    while (w.kinds[d] == WAITING && frugal_load_acquire(&w.streams[d]->finished) < (uint64_t)w.steps)
        explore_wait(); /* without helping: the workers have to do it */
    if (explore_choose(2)) {
        expect_ok(frugal_drain(f));
        expect_ok(frugal_verify(f));
        for (uint64_t r = 0; r < w.rows_of[d]; r++)
            EXPLORE_EXPECT(is_row(&f->store, weights_of(f, r), w.last[d] + r * DIM));
    }
    frugal_close(f);
    frugal_add_acq_rel(w.done, 1);
    if (d == 1) return;
    while (frugal_load_acquire(w.done) < DEVICES) explore_wait();
    expect_ok(frugal_workers_close(w.workers));
}

static void share(int number) {
    if (number < DEVICES)
        train_and_close(number);
    else if (number < DEVICES + explore_created())
        explore_run_created(number - DEVICES);
    else if (number >= STREAMS && w.kinds[number - STREAMS] != HOST)
        run_stream(number - STREAMS);
}

#endif /* SHARING_H */
