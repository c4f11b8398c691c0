/* explore_runtime.c - frugal_flush.c, as a trainer uses it, under the explorer: workers, sleeping and
 * waking, staging, caches. Every looked-up row and the table at the end are compared with the sequential
 * reference, bit for bit. See explore.h. */
#include "tests/explore/runtime_world.h"

/* >>the threads: trainers, then loaders, then workers */

static void expect_ok(frugal_status status) {
    if (status != FRUGAL_OK) explore_fail("%s", frugal_message());
}

static void announce_at(int d, int s, int step) { /* the batch of step s at another */
    frugal_keys segments[KEYS];
    frugal_batch batch = batch_of(d, s, segments);
    expect_ok(frugal_announce(instance_of((uint32_t)d), number_of((uint32_t)d), (uint64_t)step, &batch));
}

static void announce(int d, int s) {
    if (s < w.ends[d])
        announce_at(d, s, s);
    else
        expect_ok(frugal_finish(instance_of((uint32_t)d), number_of((uint32_t)d))); /* also more than once */
}

static void train(int d, int s) {
    float rows[KEYS * DIM];
    frugal *f = instance_of((uint32_t)d);
    if (s == w.ends[d]) EXPLORE_EXPECT(frugal_lookup(f, number_of((uint32_t)d), (uint64_t)s, rows) == FRUGAL_FINISHED);
    if (s >= w.ends[d]) return;
    expect_ok(frugal_lookup(f, number_of((uint32_t)d), (uint64_t)s, rows));
    if (w.kinds[d] == HOST) EXPLORE_EXPECT(!memcmp(rows, w.expected[d][s], w.n[d][s] * DIM * sizeof(float)));
    frugal_gradients g = {.grads = w.brings[d][s] ? w.grads[d][s] : NULL, .lr = 0.5f};
    expect_ok(frugal_update(f, number_of((uint32_t)d), (uint64_t)s, &g));
}

static void read_table(float rows[ROWS * DIM]) {
    uint64_t keys[ROWS];
    for (uint64_t r = 0; r < w.ref.rows; r++) keys[r] = r;
    for (uint32_t t = 0; t < w.f->desc.n_tables; t++) {
        frugal_keys all = {.table = t, .keys = keys, .n = (uint32_t)w.f->desc.tables[t].rows};
        expect_ok(frugal_read_rows(w.f, &all, rows + w.f->first_row[t] * DIM, NULL));
    }
}

static void finish(void) {
    while (frugal_load_acquire(w.done) < w.f->desc.devices) explore_wait();
    expect_ok(frugal_drain(w.f));
    expect_ok(frugal_verify(w.f));
    expect_table(w.f->store.weights, w.f->store.weights_stride);
    if (w.joined && w.kinds[JOINED] != HOST) stream_close(w.streams[JOINED]);
    frugal_close(w.f); /* ends the workers; the memory stays the explorer's */
}

static void trainer(int d) {
    int ahead = (int)w.f->desc.lookahead;
    for (int s = 0, t = 0; s < w.steps; s++) {
        for (; !w.loaders && t < w.steps && t <= s + ahead; t++) announce(d, t);
        train(d, s);
        if (d == 0) frugal_add_relaxed(w.passed, 1);
        while (w.polite && d == 1 && t > s + 1 && frugal_load_relaxed(w.passed) < (uint32_t)s + 2) explore_wait();
    }
    if (d == JOINED && w.joined && w.kinds[d] != HOST) leave_within();
    frugal_add_acq_rel(w.done, 1);
    if (d == 0) finish();
}

static void play(int number) {
    int devices = (int)w.f->desc.devices, loaders = w.loaders ? devices : 0;
    if (number < devices)
        trainer(number);
    else if (number < devices + loaders)
        for (int s = 0; s < w.steps; s++) announce(number - devices, s);
    else
        explore_run_created(number - devices - loaders);
}

static void set_up_alone(uint64_t variant) {
    set_up(variant, 1, 1, 0);
}
static void set_up_two(uint64_t variant) {
    set_up(variant, 2, 0, 0);
}
static void set_up_worker(uint64_t variant) {
    set_up(variant, 2, 1, 0);
}
/* Of the memory to sort in, one thread has all but one piece, for ever, or not: that one tells who has found none. */
static void make_scarce(uint64_t variant) {
    for (uint32_t d = 1; variant % 2 && d < w.f->desc.devices; d++) take_sort_memory(w.f);
}
static void set_up_loaders(uint64_t variant) {
    set_up(variant / 2, 2, 2, 1);
    make_scarce(variant);
}

static frugal_alone either_way(uint64_t variant) {
    return variant % 2 ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED;
}

/* >>in place: the same, where devices update rows in place */

static void set_up_way(uint64_t variant, frugal_alone alone, int loaders) {
    w.alone = alone;
    set_up_hosts(variant, 2, variant % 2, loaders);
}
static void set_up_in_place(uint64_t variant) {
    set_up_way(variant, FRUGAL_ALONE_PLACE, 0);
}
static void set_up_in_place_loaders(uint64_t variant) {
    set_up_way(variant, FRUGAL_ALONE_PLACE, 1);
}

/* One device alone: rows have no words. */
static void set_up_one_in_place(uint64_t variant) {
    w.alone = variant % 3 ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_KEPT;
    set_up_hosts(variant, 1, 1, 1);
}

/* Kept: what one device has updated stays in its cache, until the other one announces the row, or a read wants it. */
static void set_up_kept(uint64_t variant) {
    set_up_way(variant, FRUGAL_ALONE_KEPT, 0);
}
static void set_up_kept_loaders(uint64_t variant) {
    set_up_way(variant, FRUGAL_ALONE_KEPT, 1);
}

/* The data of a device ends, and the other one trains on; with loaders a trainer may wait for a batch meanwhile. */
static void set_up_finished(uint64_t variant) {
    w.shortens = 2;
    set_up_way(variant / 6, (frugal_alone)(FRUGAL_ALONE_STAGED + variant % 3), variant / 3 % 2);
    w.shortens = 0;
}

/* Device 1 is as if in another process: it posts, and workers serve it. */
static void set_up_joined(uint64_t variant, uint32_t workers, int loaders) {
    w.joins = 1;
    w.alone = (frugal_alone)(FRUGAL_ALONE_STAGED + variant % 3);
    w.shortens = variant % 5 == 4 ? 2 : 0;
    set_up_hosts(variant / 3, 2, workers, loaders);
    w.joins = w.shortens = 0;
}
static void set_up_process(uint64_t variant) {
    set_up_joined(variant, 1, 0);
}
static void set_up_process_loaders(uint64_t variant) {
    set_up_joined(variant / 2, 2, 1);
    make_scarce(variant);
}

/* The same with streams; that of device 1 is polled, and waits for gates, in its process. */
static void set_up_process_streams(uint64_t variant) {
    uint64_t bits = test_mix2(variant, 29);
    w.joins = 1;
    w.alone = (frugal_alone)(FRUGAL_ALONE_STAGED + variant % 3);
    w.shortens = variant % 5 == 4 ? 1 + (int)(bits / 64 % 2) : 0;
    w.kinds[0] = (int)(bits % 3), w.kinds[1] = bits / 4 % 3 ? WAITING : POLLED;
    w.steps = w.alone == FRUGAL_ALONE_KEPT ? 3 : 2;
    w.late = w.copies = 0;
    set_up_of(variant / 3, 2, 1, 0);
    w.joins = w.shortens = 0;
}

static void play_process_streams(int number) {
    enum {
        POSTER = DEVICES,
        FIRST_STREAM,
        LAST = FIRST_STREAM + DEVICES
    }; /* helpers poll without end, so they come last */
    if (number < DEVICES)
        trainer(number);
    else if (number == POSTER || number == LAST)
        explore_run_created(number == POSTER);
    else if (w.kinds[number - FIRST_STREAM] != HOST)
        run_stream(number - FIRST_STREAM);
}

static void play_in_place(int number) {
    int others = number - 2 * (1 + w.loaders);
    if (others < explore_created()) play(number);
}

/* The table is of two steps while one device has updated and the other has not: calls that read it say so. */
static void expect_middle(uint64_t s) {
    uint64_t key = 0;
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    float row[DIM];
    frugal_status expected = w.brings[0][s] ? FRUGAL_ERR_BUSY : FRUGAL_OK;
    EXPLORE_EXPECT(frugal_read_rows(w.f, &keys, row, NULL) == expected);
    EXPLORE_EXPECT(frugal_drain(w.f) == expected);
}

/* One thread drives both devices, and announces other batches first, which it cancels. */
static void drive_in_place(void) {
    for (int s = 0; s < STEPS; s++) {
        int last = s + (int)w.f->desc.lookahead < STEPS ? s + (int)w.f->desc.lookahead : STEPS - 1;
        for (int t = s; t <= last; t++)
            for (int d = 0; d < (t < last || w.f->desc.seed % 2 ? 2 : 1); d++) announce_at(d, STEPS - 1 - t, t);
        expect_ok(frugal_cancel(w.f, (uint64_t)s));
        announce(0, s), announce(1, s);
        train(0, s);
        expect_middle((uint64_t)s);
        train(1, s);
    }
    frugal_add_acq_rel(w.done, 2);
    finish();
}

/* >>secondaries: the same, with secondaries */

/* What devices read, if these rows are listed with this bound. Gradients do not depend on it, so the table does not. */
static void expect_secondaries(int64_t bounds[DEVICES][ROWS]) {
    reference start = {0};
    reference_stale stale;
    if (!reference_of(&start, w.f) || !reference_stale_open(&stale, &start)) abort();
    for (uint64_t r = 0; r < start.rows; r++)
        frugal_convert(start.weights + r * DIM, FRUGAL_FP32, weights_of(w.f, r), w.f->store.rows_as, DIM);
    for (uint32_t d = 0; d < DEVICES; d++)
        for (uint64_t r = 0; r < start.rows; r++)
            reference_stale_list(&stale, d, r, bounds[d][r] >= 0, (uint32_t)bounds[d][r]);
    for (int s = 0; s < w.steps; s++) {
        reference_batch batches[DEVICES];
        int contributes[DEVICES] = {1, 1};
        for (uint32_t d = 0; d < DEVICES; d++) {
            for (uint32_t i = 0; i < w.n[d][s]; i++)
                memcpy(w.expected[d][s] + i * DIM, reference_stale_read(&stale, d, w.rows[d][s][i]),
                       DIM * sizeof(float));
            batches[d] = (reference_batch){w.rows[d][s], w.n[d][s], w.brings[d][s] ? w.grads[d][s] : NULL};
        }
        reference_stale_step(&stale, (uint64_t)s, 0.5f, batches, contributes);
    }
    reference_stale_close(&stale), reference_close(&start);
}

static void set_up_secondaries(uint64_t variant) {
    test_random random = {.seed = test_mix2(variant, 19)};
    int64_t bounds[DEVICES][ROWS];
    w.alone = FRUGAL_ALONE_PLACE;
    set_up_hosts(variant, DEVICES, variant % 2, variant / 2 % 2);
    memset(bounds, 0xff, sizeof bounds);
    for (uint32_t d = 0; d < DEVICES; d++)
        for (uint32_t t = 0; t < w.f->desc.n_tables; t++) {
            uint64_t keys[ROWS];
            frugal_keys listed = {.table = t, .keys = keys};
            uint32_t bound = (uint32_t)test_below(&random, 3);
            for (uint64_t key = 0; key < w.f->desc.tables[t].rows; key++)
                if (test_chance(&random, 75)) keys[listed.n++] = key, bounds[d][w.f->first_row[t] + key] = bound;
            expect_ok(frugal_secondaries(w.f, d, &listed, bound));
        }
    expect_secondaries(bounds);
}
static void set_up_secondaries_anew(uint64_t variant) {
    set_up_secondaries(variant & ~UINT64_C(2)); /* no loaders */
}

static void help_a_few_times(void) {
    for (uint32_t n = explore_choose(12); n > 0; n--)
        if (!frugal_help(w.f)) explore_point();
}

static void drive_or_help(int number) {
    if (number == 0)
        drive_in_place();
    else if (number == 1)
        help_a_few_times();
    else if (number - 2 < explore_created())
        explore_run_created(number - 2);
}

static void set_up_polite(uint64_t variant) {
    set_up(variant, 2, 0, 0);
    w.polite = 1;
}

/* >>lending: a thread helps a few times, and then stops, whatever work is left */

static void train_or_lend(int number) {
    if (number == 0) {
        trainer(0);
        return;
    }
    for (uint32_t n = 1 + explore_choose(12); n > 0; n--)
        if (!frugal_help(w.f)) explore_point();
}

static void set_up_lending(uint64_t variant) { /* in place, the gate waits for the plan, too */
    w.alone = either_way(variant);
    set_up_hosts(variant, 1, 0, 0);
}

/* >>reading: another thread, which knows by a relaxed flag that training is over, reads the table */

static void set_up_reader(uint64_t variant) {
    set_up(variant, 1 + variant % 2, (uint32_t)(variant / 2 % 2), 0);
}

/* What a drained instance has counted is exact. */
static void expect_exact_counts(void) {
    uint64_t keys = 0, updates = 0;
    frugal_stats stats;
    frugal_get_stats(w.f, &stats);
    for (int s = 0; s < STEPS; s++)
        for (uint64_t row = 0; row < w.ref.rows; row++) {
            int updated = 0;
            for (uint32_t d = 0; d < w.f->desc.devices; d++)
                for (uint32_t i = 0; i < w.n[d][s]; i++) updated |= w.brings[d][s] && w.rows[d][s][i] == row;
            updates += (uint64_t)updated;
        }
    for (int s = 0; s < STEPS; s++)
        for (uint32_t d = 0; d < w.f->desc.devices; d++) keys += w.n[d][s];
    EXPLORE_EXPECT(stats.steps == STEPS && stats.keys == keys && stats.flushed + stats.in_place == updates);
    for (int i = 0; i < 64; i++) stats.flushed -= stats.flushed_by_urgency[i];
    EXPLORE_EXPECT(stats.flushed == stats.flushed_at_close);
}

static void read_after_training(void) {
    uint64_t stride;
    frugal_stats stats;
    float rows[ROWS * DIM];
    const void *view;
    while (frugal_load_relaxed(w.done) < w.f->desc.devices) explore_wait();
    do { /* the flag may be seen before other writes, such as the updates */
        frugal_get_stats(w.f, &stats);
        if (stats.steps < STEPS && !frugal_help(w.f)) explore_wait();
    } while (stats.steps < STEPS);
    if (explore_choose(2)) expect_ok(frugal_drain(w.f));
    read_table(rows);
    EXPLORE_EXPECT(!memcmp(rows, w.ref.weights, w.ref.rows * DIM * sizeof(float)));
    expect_ok(frugal_drain(w.f));
    expect_ok(frugal_view(w.f, 0, &view, &stride));
    expect_table(view, stride);
    expect_ok(frugal_verify(w.f));
    expect_exact_counts();
    frugal_close(w.f);
}

static void train_or_read(int number) {
    int devices = (int)w.f->desc.devices;
    if (number < devices) {
        for (int s = 0; s < STEPS; s++) announce(number, s), train(number, s);
        frugal_add_relaxed(w.done, 1);
    } else if (number == devices) {
        read_after_training();
    } else if (number - devices - 1 < explore_created()) {
        explore_run_created(number - devices - 1);
    }
}

/* >>between: rows are read between steps, while the device waits at its next gate */

static void set_up_between(uint64_t variant) {
    w.alone = either_way(variant / 2);
    set_up_hosts(variant, 1, (uint32_t)(variant % 2), 0);
}

static void train_with_a_reader(void) {
    float rows[KEYS * DIM];
    for (int s = 0; s < STEPS; s++) {
        announce(0, s);
        expect_ok(frugal_lookup(w.f, 0, (uint64_t)s, rows));
        while (frugal_load_acquire(w.read) < (uint32_t)s) explore_wait(); /* no update while rows are read */
        train(0, s);
        frugal_add_acq_rel(w.passed, 1);
    }
    while (frugal_load_acquire(w.read) < STEPS) explore_wait();
    frugal_add_acq_rel(w.done, 1);
    finish();
}

static void read_between(void) {
    float rows[ROWS * DIM];
    for (uint32_t s = 0; s < STEPS; s++) {
        while (frugal_load_acquire(w.passed) <= s) explore_wait();
        read_table(rows);
        EXPLORE_EXPECT(!memcmp(rows, w.after[s], w.ref.rows * DIM * sizeof(float)));
        frugal_add_acq_rel(w.read, 1);
    }
}

static void train_or_read_between(int number) {
    if (number == 0)
        train_with_a_reader();
    else if (number == 1)
        read_between();
    else if (number - 2 < explore_created())
        explore_run_created(number - 2);
}

/* >>taking back: batches announced ahead are cancelled and announced anew, rows are written, while a worker flushes */

static void set_up_taking_back(uint64_t variant) {
    w.alone = (frugal_alone)(FRUGAL_ALONE_STAGED + variant % 3); /* in place and kept: without words */
    set_up_hosts(variant / 3, 1, 1, 0);
}

static void cancel_and_write(void) {
    for (int s = 0; s < STEPS; s++) {
        uint64_t row = (uint64_t)s % w.ref.rows, in_table = row < w.second[0] ? row : row - w.second[0];
        frugal_keys key = {.table = row >= w.second[0], .keys = &in_table, .n = 1};
        for (int t = s; t < STEPS && t <= s + (int)w.f->desc.lookahead; t++)
            announce_at(0, STEPS - 1 - t, t); /* another batch than will be trained */
        expect_ok(frugal_cancel(w.f, (uint64_t)s));
        EXPLORE_EXPECT(frugal_p2f_get_progress(w.f->p2f).pending == 0); /* it has flushed what was committed */
        float kept[DIM], other[DIM] = {7, 7};
        expect_ok(frugal_drain(w.f));
        expect_ok(frugal_read_rows(w.f, &key, kept, NULL));
        expect_ok(frugal_write_rows(w.f, &key, other, NULL)); /* copies are outdated now, */
        expect_ok(frugal_verify(w.f));
        expect_ok(frugal_write_rows(w.f, &key, kept, NULL)); /* and the row is as it was */
        announce(0, s);
        train(0, s);
    }
    frugal_add_acq_rel(w.done, 1);
    finish();
}

static void take_back_or_work(int number) {
    if (number == 0)
        cancel_and_write();
    else
        explore_run_created(number - 1);
}

/* >>stopping: all waiting threads return, whatever they wait for */

static void stopped_or_ok(frugal_status status) {
    if (status == FRUGAL_STOPPED) EXPLORE_EXPECT(*w.reason == 1); /* what was done before stopping is seen */
    if (status != FRUGAL_OK && status != FRUGAL_STOPPED) explore_fail("%s", frugal_message());
}

static void wait_and_be_stopped(int number) {
    frugal_keys segments[KEYS];
    frugal_batch batch = batch_of(0, 0, segments);
    if (number == 0) { /* announces further than is legal: the other device never commits */
        frugal_status status = FRUGAL_OK;
        for (uint64_t t = 0; status == FRUGAL_OK; t++) status = frugal_announce(w.f, 0, t, &batch);
        stopped_or_ok(status);
        frugal_add_acq_rel(w.done, 1);
    } else if (number == 1) {
        stopped_or_ok(frugal_announce(w.f, 1, 0, &batch));
        frugal_status status = frugal_lookup(w.f, 1, 0, NULL);
        stopped_or_ok(status);
        float grads[KEYS * DIM] = {0};
        double squares;
        frugal_gradients g = {.grads = grads};
        if (status == FRUGAL_OK) stopped_or_ok(status = frugal_sum_squares(w.f, 1, 0, &g, &squares));
        if (status == FRUGAL_OK) stopped_or_ok(status = frugal_update(w.f, 1, 0, &(frugal_gradients){.grads = NULL}));
        if (status == FRUGAL_OK) stopped_or_ok(frugal_lookup(w.f, 1, 1, NULL)); /* which is not announced */
        frugal_add_acq_rel(w.done, 1);
    } else if (number == 2) {
        *w.reason = 1;
        frugal_stop(w.f);
        while (frugal_load_acquire(w.done) < 2) explore_wait();
        frugal_close(w.f);
    } else {
        explore_run_created(number - 3);
    }
}

/* >>streams: what they have finished is found by polling, whoever polls, and whoever waits for the gate. Threads:
 * trainers, a loader, a worker, streams, a teller, one more; a world may do without some of them */

enum { LOADER = DEVICES, WORKER, STREAMS, TELLER = STREAMS + DEVICES, STOPPER };

/* Worlds of few steps, whose devices are streams; only the second device may be on the host. */
static void set_up_streams_of(uint64_t variant, uint32_t devices, int loaders, int keep) {
    uint64_t bits = test_mix3(variant, 5, devices);
    w.kinds[0] = bits % 2 ? POLLED : WAITING;
    w.kinds[1] = bits / 2 % 4 == 0 ? HOST : bits / 2 % 4 == 1 ? POLLED : WAITING;
    w.copies = loaders ? bits / 8 % 4 > 0 : bits / 8 % 2;
    w.late = !loaders && !w.copies && bits / 32 % 2;
    w.alone = keep ? FRUGAL_ALONE_KEPT : either_way(bits / 256);
    w.steps = keep ? 3 : 2; /* what is kept in the first is recalled for the second, and kept anew */
    set_up_of(variant, devices, bits / 64 % 4 > 0, loaders);
}

static void set_up_streams(uint64_t variant) {
    set_up_streams_of(variant, 1 + variant % 2, 0, 0);
}
static void set_up_kept_streams(uint64_t variant) {
    set_up_streams_of(variant, 2, 0, 1);
}
static void set_up_finished_streams(uint64_t variant) {
    w.shortens = 1 + (int)(variant / 4 % 2);
    set_up_streams_of(variant / 8, 2, variant / 2 % 2, variant % 2);
    w.shortens = 0;
}
static void set_up_told(uint64_t variant) {
    set_up_streams_of(variant, 1, 1, 0);
}

/* The parts that are the same in all worlds of streams. */
static void play_other(int number) {
    int devices = (int)w.f->desc.devices;
    if (number == WORKER && w.f->desc.workers > 0) explore_run_created(0);
    if (number == TELLER && w.copies) explore_run_created((int)w.f->desc.workers);
    if (number >= STREAMS && number - STREAMS < devices && w.kinds[number - STREAMS] != HOST)
        run_stream(number - STREAMS);
}

static void attach_late(int d) {
    if (w.late && w.kinds[d] != HOST) expect_ok(attach_stream((uint32_t)d));
}

static void play_streams(int number) {
    if (number < (int)w.f->desc.devices) {
        if (!w.loaders) attach_late(number);
        trainer(number);
    } else if (number == LOADER && w.loaders) {
        for (int s = 0; s < w.steps; s++)
            for (int d = 0; d < (int)w.f->desc.devices; d++) announce(d, s);
    } else {
        play_other(number);
    }
}

/* One thread drives both devices, and announces other batches first, which it cancels, with recalls under way. */
static void drive_streams(void) {
    attach_late(0), attach_late(1);
    for (int s = 0; s < w.steps; s++) {
        int last = LEAST(s + (int)w.f->desc.lookahead, w.steps - 1);
        for (int t = s; t <= last; t++)
            for (int d = 0; d < (t < last || w.f->desc.seed % 2 ? 2 : 1); d++) announce_at(d, w.steps - 1 - t, t);
        for (uint32_t n = explore_choose(4); n > 0; n--)
            if (!frugal_help(w.f)) explore_point();
        expect_ok(frugal_cancel(w.f, (uint64_t)s));
        announce(0, s), announce(1, s);
        train(0, s), train(1, s);
    }
    frugal_add_acq_rel(w.done, 2);
    finish();
}

static void drive_or_play_other(int number) {
    if (number == 0)
        drive_streams();
    else
        play_other(number);
}

/* >>streams that do not get to the end: stopped, or lost */

static frugal_status announce_somehow(int d, int s) {
    frugal_keys segments[KEYS];
    frugal_batch batch = batch_of(d, s, segments);
    for (uint32_t tries = explore_choose(3); tries > 0; tries--) {
        frugal_status status = frugal_try_announce(w.f, (uint32_t)d, (uint64_t)s, &batch);
        if (status != FRUGAL_AGAIN) return status;
        explore_point(); /* not a wait, because there may be no thread left that polls */
    }
    return frugal_announce(w.f, (uint32_t)d, (uint64_t)s, &batch);
}

static frugal_status train_somehow(int d, int s) {
    float rows[KEYS * DIM];
    frugal_records records;
    frugal_gradients g = {.grads = w.brings[d][s] ? w.grads[d][s] : NULL, .lr = 0.5f};
    frugal_status status;
    double squares;
    while ((status = frugal_lookup(w.f, (uint32_t)d, (uint64_t)s, rows)) == FRUGAL_ERR_CUDA) {
    }
    if (status == FRUGAL_OK && w.kinds[d] == HOST)
        EXPLORE_EXPECT(!memcmp(rows, w.expected[d][s], w.n[d][s] * DIM * sizeof(float)));
    if (status == FRUGAL_OK) status = frugal_get_records(w.f, (uint32_t)d, (uint64_t)s, &records);
    if (status == FRUGAL_OK && w.kinds[d] == HOST && g.grads)
        status = frugal_sum_squares(w.f, (uint32_t)d, (uint64_t)s, &g, &squares);
    if (status != FRUGAL_OK) return status;
    while ((status = frugal_update(w.f, (uint32_t)d, (uint64_t)s, &g)) == FRUGAL_ERR_CUDA) {
    }
    return status;
}

/* Trains until a call says that training cannot go on. */
static void train_while_it_lasts(int d) {
    frugal_status status = FRUGAL_OK;
    attach_late(d);
    for (int s = 0, t = 0; s < w.steps && status == FRUGAL_OK; s++) {
        for (; status == FRUGAL_OK && t < w.steps && t <= s + (int)w.f->desc.lookahead; t++)
            status = announce_somehow(d, t);
        if (status == FRUGAL_OK) status = train_somehow(d, s);
    }
    if (status != FRUGAL_ERR_LOST)
        stopped_or_ok(status);
    else /* a thread that is told of a loss has acquired the reason; threads here share one frugal_message */
        EXPLORE_EXPECT(strstr(w.f->loss.message, "is broken"));
    frugal_add_acq_rel(w.done, 1);
}

/* The number of devices that touch the row at step s. */
static int touching(uint64_t row, uint64_t s) {
    int devices = 0;
    for (uint32_t d = 0; d < w.f->desc.devices; d++) {
        int has = 0;
        for (uint32_t i = 0; i < w.n[d][s]; i++) has |= w.rows[d][s][i] == row;
        devices += has;
    }
    return devices;
}

/* The row is that of the last closed step; or of the next one, which a device has updated in place and not all have
 * finished. */
static void expect_stopped_row(uint64_t row, uint64_t closed) {
    const void *weights = weights_of(w.f, row);
    int is_last = is_row(&w.f->store, weights, w.after[closed - 1] + row * DIM);
    if (is_last || w.alone == FRUGAL_ALONE_STAGED || closed == (uint64_t)w.steps) EXPLORE_EXPECT(is_last);
    if (is_last) return;
    EXPLORE_EXPECT(touching(row, closed) == 1);
    EXPLORE_EXPECT(is_row(&w.f->store, weights, w.after[closed] + row * DIM));
}

/* What devices keep is written back also after a stop or a loss, and in the middle of a step. Returns 0 if the host
 * table lacks what a lost device kept, which is said. */
static int drain_early(void) {
    if (w.alone != FRUGAL_ALONE_KEPT) return 1;
    frugal_status status = frugal_drain(w.f);
    int lost = 0;
    for (uint32_t d = 0; d < w.f->desc.devices; d++) lost |= frugal_load_acquire(&w.streams[d]->broken) != 0;
    if (status != FRUGAL_ERR_BUSY && !(lost && status == FRUGAL_ERR_LOST)) stopped_or_ok(status);
    EXPLORE_EXPECT(status != FRUGAL_OK || frugal_load_relaxed(&w.f->loss.kept) == 0);
    return !lost || status == FRUGAL_OK;
}

/* Streams finish all their jobs before any thread closes. What a stream did after a gate that was forced open is not
 * committed, and what is committed is right. */
static void close_early(void) {
    double since = 0;
    while (frugal_load_acquire(w.done) < w.f->desc.devices) explore_wait();
    while (help_once(w.f, &since)) {
    }
    for (uint32_t d = 0; d < w.f->desc.devices; d++)
        while (w.kinds[d] != HOST &&
               frugal_load_relaxed(&w.streams[d]->through) < frugal_load_relaxed(&w.streams[d]->handed))
            explore_wait();
    int is_whole = drain_early();
    frugal_close(w.f);
    for (uint32_t d = 0; d < w.f->desc.devices; d++)
        EXPLORE_EXPECT(!w.streams[d]->forced || frugal_p2f_committed(w.f->p2f, d) < w.streams[d]->forced);
    frugal_p2f_progress now = frugal_p2f_get_progress(w.f->p2f);
    for (uint64_t r = 0;
         is_whole && r < w.ref.rows && now.closed > 0 && now.closed == now.committed && now.pending == 0; r++)
        expect_stopped_row(r, now.closed);
}

static void set_up_ended(uint64_t variant) {
    set_up_streams_of(variant, 2, 0, 0);
}

static void set_up_stopped(uint64_t variant) {
    set_up_streams_of(variant / 3, 1 + (variant % 3 > 0), 0, 0);
}

static void play_stopped(int number) {
    if (number < (int)w.f->desc.devices) {
        train_while_it_lasts(number);
    } else if (number == STOPPER) {
        *w.reason = 1;
        frugal_stop(w.f);
        close_early();
    } else {
        play_other(number);
    }
}

static void break_streams(uint64_t variant) {
    w.streams[0]->breaks = variant % 3 > 0, w.streams[1]->breaks = variant % 3 < 2 && w.kinds[1] != HOST;
    w.streams[0]->grumbles = variant % 2, w.streams[1]->grumbles = variant / 2 % 2;
}
static void set_up_lost(uint64_t variant) {
    set_up_ended(variant);
    break_streams(variant);
}
static void set_up_kept_lost(uint64_t variant) {
    set_up_kept_streams(variant);
    break_streams(variant);
}

static void play_lost(int number) {
    if (number < (int)w.f->desc.devices) {
        train_while_it_lasts(number);
        if (number > 0) return;
        while (frugal_load_acquire(w.done) < w.f->desc.devices) explore_wait();
        if (w.alone == FRUGAL_ALONE_KEPT)
            drain_early();
        else
            expect_ok(frugal_drain(w.f)); /* of what was committed before */
        close_early();
    } else {
        play_other(number);
    }
}

/* One step of both devices by one thread. A stream that waits for gates may be given its next lookup before the other
 * device, of the host, has updated this step. */
static frugal_status train_both(int s) {
    float rows[KEYS * DIM];
    frugal_status status = FRUGAL_OK;
    for (int t = s; t < w.steps && t <= s + (int)w.f->desc.lookahead; t++)
        for (uint32_t d = 0; d < 2 && status == FRUGAL_OK; d++)
            if (frugal_load_relaxed(&w.f->devices[d].handed) == (uint64_t)t) status = announce_somehow((int)d, t);
    if (status == FRUGAL_OK) status = train_somehow(0, s);
    int early = w.kinds[0] == WAITING && w.kinds[1] == HOST && explore_choose(2);
    if (status == FRUGAL_OK && early && frugal_load_relaxed(&w.f->devices[1].handed) > (uint64_t)s + 1)
        status = frugal_lookup(w.f, 0, (uint64_t)s + 1, rows);
    if (status == FRUGAL_ERR_CUDA) status = FRUGAL_OK; /* refused: it is looked up again */
    return status == FRUGAL_OK ? train_somehow(1, s) : status;
}

/* One thread trains, and drains between steps while recalls of announced steps may be outstanding; another helps. */
static void play_between(int number) {
    if (number == 0) {
        frugal_status status = FRUGAL_OK;
        for (int d = 0; d < 2; d++) attach_late(d);
        for (int s = 0; s < w.steps && status == FRUGAL_OK; s++) {
            status = train_both(s);
            if (explore_choose(2)) drain_early();
        }
        if (status != FRUGAL_ERR_LOST) stopped_or_ok(status);
        drain_early();
        frugal_store_release(w.passed, 1);
        frugal_add_acq_rel(w.done, 1);
        close_early();
    } else if (number == 1) {
        double since = 0;
        while (!frugal_load_acquire(w.passed))
            if (!help_once(w.f, &since)) explore_wait();
        frugal_add_acq_rel(w.done, 1);
    } else {
        play_other(number);
    }
}

/* A device refuses a call, is polled, and is well; meanwhile another device is found lost. */
static void set_up_refused(uint64_t variant) {
    w.kinds[0] = POLLED, w.kinds[1] = variant % 2 ? POLLED : WAITING;
    w.steps = 1, w.copies = w.late = 0;
    w.alone = FRUGAL_ALONE_STAGED;
    set_up_of(variant, 2, 0, 0);
    announce(0, 0), announce(1, 0);
    train(1, 0);
    w.streams[0]->grumbles = w.streams[1]->broken = 1;
}

static void refuse_or_lose(int number) {
    if (number == 0) {
        frugal_status status = frugal_lookup(w.f, 0, 0, NULL);
        EXPLORE_EXPECT(status == FRUGAL_OK || status == FRUGAL_ERR_CUDA || status == FRUGAL_ERR_LOST);
    } else
        frugal_help(w.f);
}

/* >>streams, taking back: the loader announces a step anew while its trainer looks it up */

static void cancel_for_loader(void) {
    for (int s = 0; s < w.steps; s++) {
        for (int t = s; t < w.steps && t <= s + (int)w.f->desc.lookahead; t++) announce_at(0, w.steps - 1 - t, t);
        expect_ok(frugal_cancel(w.f, (uint64_t)s));
        frugal_add_acq_rel(w.passed, 1);
        train(0, s);
        while (frugal_load_acquire(w.read) <= (uint32_t)s) explore_wait(); /* until announce has returned, too */
    }
    frugal_add_acq_rel(w.done, 1);
    finish();
}

static void announce_cancelled(void) {
    for (int s = 0; s < w.steps; s++) {
        while (frugal_load_acquire(w.passed) <= (uint32_t)s) explore_wait();
        announce(0, s);
        frugal_add_acq_rel(w.read, 1);
    }
}

static void play_taken_back(int number) {
    if (number == 0)
        cancel_for_loader();
    else if (number == LOADER)
        announce_cancelled();
    else
        play_other(number);
}

#include "tests/explore/moments.h"
#include "tests/explore/elsewhere.h"
#include "tests/explore/serving.h"
#include "tests/explore/settling.h"
#include "tests/explore/sharing.h"
#include "tests/explore/tracing.h"

int main(int argc, char **argv) {
    static const explore_scenario scenarios[] = {
        /* moments, which take no time; from one-device on, training */
        {"polite", "who commits last wakes who can close, and need not close himself", 2, set_up_polite, play, NULL},
        {"lending", "a thread that lends a hand and leaves strands nobody", 2, set_up_lending, train_or_lend, NULL},
        {"refused", "[F10]: who learns of a loss when his device has refused a call learns why", 2, set_up_refused,
         refuse_or_lose, NULL},
        {"losing", "[F17][F18][F22][F23]: who finds nothing kept, or a device lost, knows what was lost", 4,
         set_up_keeper, find_or_hear, NULL},
        {"losing-second", "[F17][F18]: who drains after two losses knows what the second one kept", 2, set_up_second,
         lose_second_or_drain, NULL},
        {"losing-kept", "[F22][F23]: who finds nothing kept has the rows", 2, set_up_kept_row, write_back_or_read,
         NULL},
        {"losing-writing", "[F17][F18]: after a loss the table is read when nobody writes", 3, set_up_writing,
         write_poll_or_read, NULL},
        {"losing-late", "[F9][F10]: who drains closes what was committed just before a loss", 2, set_up_done,
         poll_or_drain, expect_closed},
        {"losing-refused", "the same, where recalls were given up", 2, set_up_done, refuse_or_drain, expect_closed},
        {"losing-drain", "[F17][F18]: who drains knows what was lost meanwhile", 2, set_up_keeper, lose_or_drain, NULL},
        {"elsewhere-lost", "[F32][F33]: of a loss in another process the reason is known", 2, set_up_elsewhere,
         break_or_serve, NULL},
        {"elsewhere-attached", "[F41][F42][F45][F46]: a device of another process is known whole, or not at all", 2,
         set_up_attaching, attach_or_look, NULL},
        {"elsewhere-called", "[F34][F35][F41][F42]: a device in another process answers as soon as it is known", 3,
         set_up_called, claim_answer_or_call, NULL},
        {"elsewhere-posted", "[F34][F35]: a batch is in the mail, or announced", 2, set_up_posted, take_or_look, NULL},
        {"elsewhere-cancelled", "[F43][F44]: a batch is cancelled and posted anew", 2, set_up_posted, cancel_or_serve,
         expect_announced},
        {"elsewhere-refused", "[F34][F35]: a post is refused, and the reason is known", 2, set_up_elsewhere,
         refuse_or_call, NULL},
        {"elsewhere-gate", "[F8][F35]: a stream of another process finds a gate open", 3, set_up_elsewhere,
         open_pass_or_read, NULL},
        {"elsewhere-ended", "[F36][F37][F38]: training ends while another process writes", 3, set_up_ending,
         end_write_or_learn, NULL},
        {"elsewhere-learned", "[F9][F10]: of two threads of a process that has joined one learns from the other", 3,
         set_up_learning, end_learn_or_call, NULL},
        {"elsewhere-stopped", "[F3][F4]: a process that has joined stops, and its threads know why", 2,
         set_up_elsewhere, stop_or_call, NULL},
        {"elsewhere-killed", "[F36][F39][F40]: a process is killed while it writes rows", 3, set_up_killed,
         kill_call_or_read, NULL},
        {"early", "a step is committed when its update has returned, whatever a poll says", 2, set_up_early,
         return_or_poll, expect_brought},
        {"follower", "[F5][F6]: recalls of a device whose data has ended come after its last commit", 2,
         set_up_follower, follow_or_recall, NULL},
        {"traces", "[F28][F29][F30][F31]: an event is read whole or not at all", TRACE_WRITERS + 1, set_up_traces,
         write_or_read_traces, count_traces},
        {"serving", "[F47][F48][F49][F50]: a lookup sees one whole version, which stays until it has returned",
         SERVING_READERS + 1, set_up_serving, look_up_or_take_over, NULL},
        {"settling", "[F53][F55][F59][F61]: when counts are settled, all that was announced is planned", 3,
         set_up_settling, settle_or_announce, NULL},
        {"one-device", "a device and a worker train as one thread does", 2, set_up_alone, play, NULL},
        {"two-devices", "two devices, nobody else, train as one thread does", 2, set_up_two, play, NULL},
        {"worker", "two devices and a worker; sleepers are woken [F1][F2]", 3, set_up_worker, play, NULL},
        {"loaders", "[F57][F58]: loaders of their own, two workers", 6, set_up_loaders, play, NULL},
        {"in-place", "the same, rows that one device has updated in place; with a worker, or none", 3, set_up_in_place,
         play_in_place, NULL},
        {"in-place-loaders", "the same, loaders of their own", 5, set_up_in_place_loaders, play_in_place, NULL},
        {"one-in-place", "one device without words, a loader of its own, a worker", 3, set_up_one_in_place, play, NULL},
        {"in-place-anew", "the same, batches cancelled and announced anew; the middle of a step is told", 3,
         set_up_in_place, drive_or_help, NULL},
        {"kept", "(g) no gate opens before another device has written back what it keeps; [P20][P21]", 3, set_up_kept,
         play_in_place, NULL},
        {"kept-loaders", "the same, loaders of their own", 5, set_up_kept_loaders, play_in_place, NULL},
        {"kept-anew", "the same, batches cancelled and announced anew", 3, set_up_kept, drive_or_help, NULL},
        {"secondaries", "[F21]: secondaries: who announces first does not matter", 5, set_up_secondaries, play_in_place,
         NULL},
        {"secondaries-anew", "the same, batches cancelled and announced anew", 3, set_up_secondaries_anew,
         drive_or_help, NULL},
        {"finish", "the data of one device ends, and the other trains on", 5, set_up_finished, play_in_place, NULL},
        {"finish-streams", "the same with streams, which keep updates or do not", STOPPER, set_up_finished_streams,
         play_streams, NULL},
        {"processes", "[F32][F33][F34][F35]: a device of another process posts, and a worker serves it", 3,
         set_up_process, play, NULL},
        {"processes-loaders", "the same, loaders of their own, two workers", 6, set_up_process_loaders, play, NULL},
        {"processes-streams", "[F5][F6][F8][F17][F18][F32][F33]: streams of two processes run ahead", 6,
         set_up_process_streams, play_process_streams, NULL},
        {"reading", "whoever drains or reads has the table, and exact counts", 4, set_up_reader, train_or_read, NULL},
        {"between", "rows read between steps are those of the last committed one; who reads them wakes", 3,
         set_up_between, train_or_read_between, NULL},
        {"taking-back", "cancelling, and writing rows, while a worker flushes", 2, set_up_taking_back,
         take_back_or_work, NULL},
        {"stop", "[F3][F4]: who waits is woken by stop, knows why, and close ends the workers", 4, set_up_worker,
         wait_and_be_stopped, NULL},
        {"streams", "[F5][F6][F8]: devices that work on train as one thread does; whoever polls", STOPPER,
         set_up_streams, play_streams, NULL},
        {"kept-streams", "[F22][F23][F24][F25]: streams that keep updates, and begin recalls ahead", STOPPER,
         set_up_kept_streams, play_streams, NULL},
        {"kept-streams-anew", "the same, batches cancelled and announced anew", STOPPER, set_up_kept_streams,
         drive_or_play_other, NULL},
        {"kept-streams-stop", "the same, stopped: a drain writes back what is kept", STOPPER + 1, set_up_kept_streams,
         play_stopped, NULL},
        {"kept-streams-lost", "the same, a stream breaks, or refuses: who drains learns whether rows are lost", STOPPER,
         set_up_kept_lost, play_lost, NULL},
        {"kept-streams-between", "the same, one thread trains, and drains while recalls are outstanding", STOPPER,
         set_up_kept_lost, play_between, NULL},
        {"told", "[F11][F12]: lookup comes when the batch is announced, and copied", STOPPER, set_up_told, play_streams,
         NULL},
        {"told-anew", "[F11][F12]: the same after a cancel", STOPPER, set_up_told, play_taken_back, NULL},
        {"streams-stop", "[F4][F7][F8]: what is done behind gates that a stop forces open is not committed",
         STOPPER + 1, set_up_stopped, play_stopped, NULL},
        {"sharing", "[F13][F14][F15][F16]: two instances share workers; one comes late, each is closed in between", 4,
         set_up_sharing, share, NULL},
        {"sharing-streams", "the same with streams: what is outstanding in any instance is looked after", STOPPER,
         set_up_sharing_streams, share, NULL},
        {"streams-lost", "[F9][F10]: all learn of the loss of a device, and why", STOPPER, set_up_lost, play_lost,
         NULL},
    };
    return explore_main(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
