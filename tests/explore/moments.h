/* moments.h - worlds of one moment of training: a device is a few fields, without a stream, and the threads make only
 * the accesses that meet there: how a loss becomes known, and what a poll may believe. Part of explore_runtime.c. */
#ifndef MOMENTS_H
#define MOMENTS_H

typedef struct frail { /* a device that keeps the update of row 0 */
    uint32_t broken;   /* constant */
    uint64_t finished; /* atomic */
    int answers;       /* constant: what is recalled is written back */
} frail;

static frail *frails[DEVICES];

static frugal_status frail_poll(void *device, uint64_t *steps) {
    frail *s = device;
    *steps = frugal_load_acquire(&s->finished);
    return s->broken ? frugal_fail(FRUGAL_ERR_CUDA, "it is broken") : FRUGAL_OK;
}
static frugal_status frail_write_back(void *device, const uint32_t *rows, uint32_t n) {
    (void)rows, (void)n;
    return ((frail *)device)->broken ? frugal_fail(FRUGAL_ERR_CUDA, "broken") : FRUGAL_OK;
}
static frugal_status frail_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    (void)step, (void)done;
    return frail_write_back(device, rows, n);
}
static int frail_recalled(void *device, uint64_t step) {
    (void)step;
    return ((const frail *)device)->answers;
}
static int frail_updates_in_place(void *device) {
    (void)device;
    return frugal_settings(w.f)->alone != FRUGAL_ALONE_STAGED;
}
static void frail_close(void *device) {
    (void)device;
}

/* The device of number `broken` is broken; DEVICES: none is. */
static void set_up_frail(uint64_t variant, uint32_t broken, frugal_alone alone) {
    frugal_table table = {.rows = ROWS, .init = FRUGAL_INIT_UNIFORM, .high = 1};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = DIM,
                        .devices = DEVICES,
                        .max_keys = KEYS,
                        .alone = alone,
                        .lookahead = 2,
                        .seed = variant,
                        .init_threads = 1,
                        .stuck_seconds = -1,
                        .allocate = allocate};
    const frugal_device_ops ops = {.updates_in_place = frail_updates_in_place,
                                   .write_back = frail_write_back,
                                   .recall = frail_recall,
                                   .recalled = frail_recalled,
                                   .poll = frail_poll,
                                   .close = frail_close};
    clear(0);
    if (frugal_open(&desc, &w.f) != FRUGAL_OK) explore_fail("open: %s", frugal_message());
    for (uint32_t d = 0; d < DEVICES; d++) {
        frails[d] = explore_alloc(sizeof *frails[d], 64);
        frails[d]->broken = d == broken, frails[d]->answers = 1;
        if (frugal_attach(w.f, d, &ops, frails[d]) != FRUGAL_OK) explore_fail("attach: %s", frugal_message());
    }
}

static void poll_by(int (*poll)(frugal *f)) {
    lock_polling(w.f);
    poll(w.f);
    pthread_mutex_unlock(&w.f->polling.lock);
}

static void lose(uint32_t d) {
    frugal_fail(FRUGAL_ERR_CUDA, "it is broken");
    lock_polling(w.f);
    lose_device(w.f, d);
    pthread_mutex_unlock(&w.f->polling.lock);
}

/* >>losses */

/* What the device kept is lost with it. A drain asks the devices in their order, and waits for those that are at work.
 * So it matters whether another device comes after the lost one. */
static uint32_t keeper;

static void set_up_keeper(uint64_t variant) {
    keeper = (uint32_t)(variant % DEVICES);
    set_up_frail(variant, keeper, FRUGAL_ALONE_KEPT);
    frugal_count_kept(w.f, keeper, 1, 0, 1);
}

static void find_or_hear(int number) {
    const uint64_t key = 1;
    const frugal_keys one = {.table = 0, .keys = &key, .n = 1};
    float read[DIM];
    if (number == 0) {
        check_device_lost(w.f, keeper);
    } else if (number == 1) {
        EXPLORE_EXPECT(!is_drained(w.f)); /* the row is still kept, or known to be lost */
    } else {
        frugal_status status = number == 2 ? frugal_drain(w.f) : frugal_read_rows(w.f, &one, read, NULL);
        if (number == 2) EXPLORE_EXPECT(status == FRUGAL_ERR_LOST);
        if (status == FRUGAL_ERR_LOST) EXPLORE_EXPECT(strstr(w.f->loss.message, "broken"));
    }
}

static void lose_or_drain(int number) { /* these two alone */
    find_or_hear(2 * number);
}

/* Another device was lost before, with nothing kept: so a drain that finds the loss known has learned nothing of this
 * one. */
static void set_up_second(uint64_t variant) {
    set_up_keeper(variant);
    lose(DEVICES - 1 - keeper);
}

static void lose_second_or_drain(int number) {
    if (number == 0)
        lose(keeper);
    else
        EXPLORE_EXPECT(frugal_drain(w.f) == FRUGAL_ERR_LOST);
}

/* A row that was written back is read by a thread that finds that nothing is kept. */
static void set_up_kept_row(uint64_t variant) {
    set_up_frail(variant, DEVICES, FRUGAL_ALONE_KEPT);
    frugal_count_kept(w.f, 0, 1, 0, 1);
}

static void write_back_or_read(int number) {
    float *row = weights_of(w.f, 0);
    if (number == 0) {
        row[0] = 3;
        frugal_count_kept(w.f, 0, 0, 1, 0);
    } else if (is_drained(w.f)) {
        EXPLORE_EXPECT(row[0] == 3);
    }
}

/* After the loss of device 0 the other one is still updating a row in place; a thread that reads the table waits for
 * it. */
static void set_up_writing(uint64_t variant) {
    set_up_frail(variant, DEVICES, FRUGAL_ALONE_KEPT);
    w.f->devices[1].updated = 1;
    lose(0);
}

static void write_poll_or_read(int number) {
    float *row = weights_of(w.f, 0);
    if (number == 0) {
        row[0] = 3;
        frugal_store_release(&frails[1]->finished, 1);
    } else if (number == 1) {
        poll_by(poll_writing);
    } else if (!is_writing(w.f)) {
        EXPLORE_EXPECT(row[0] == 3);
    }
}

/* >>polls */

static void announce_row(uint32_t d, uint64_t step, uint64_t row) { /* ROWS: an empty batch */
    const frugal_keys one = {.table = 0, .keys = &row, .n = row < ROWS};
    expect_ok(frugal_announce(w.f, d, step, &(frugal_batch){&one, 1, 0}));
}
static void help_out(void) {
    double since = 0;
    while (help_once(w.f, &since)) continue;
}

/* A device has done a step whose update has not returned, and is polled because of recalls that are under way. */
static void set_up_early(uint64_t variant) {
    set_up_frail(variant, DEVICES, FRUGAL_ALONE_KEPT);
    for (uint32_t d = 0; d < DEVICES; d++) announce_row(d, 0, ROWS);
    help_out();
    frails[0]->answers = 0;
    frugal_store_relaxed(&w.f->devices[0].keeping.recalling, 2);
}

static void return_or_poll(int number) {
    const frugal_gradients g = {.grads = NULL};
    if (number == 0) {
        frugal_store_release(&frails[0]->finished, 1);
        commit_here(w.f, 0, 0, &g);
    } else {
        poll_by(commit_polled);
    }
}

static void expect_brought(void) {
    commit_polled(w.f);
    EXPLORE_EXPECT(frugal_p2f_committed(w.f->p2f, 0) == 1 && frugal_p2f_brings(w.f->p2f, 0, 0));
}

/* The data of device 1 has ended with step 0, and step 2 recalls the row that it had. */
static void set_up_follower(uint64_t variant) {
    set_up_frail(variant, DEVICES, FRUGAL_ALONE_KEPT);
    announce_row(0, 0, 1), announce_row(1, 0, 0);
    for (uint32_t d = 0; d < DEVICES; d++) {
        frails[d]->finished = 1;
        commit_here(w.f, d, 0, NULL);
    }
    help_out();
    expect_ok(frugal_finish(w.f, 1));
    announce_row(0, 1, 1), announce_row(0, 2, 0);
    help_out();
}

static void follow_or_recall(int number) {
    recall r;
    if (number == 0) {
        frails[0]->finished = 2;
        commit_here(w.f, 0, 1, NULL);
        poll_by(commit_polled); /* commits the step for device 1, too */
    } else {
        pthread_mutex_lock(&w.f->devices[1].keeping.lock);
        int any = find_recall(w.f, 1, &r);
        pthread_mutex_unlock(&w.f->devices[1].keeping.lock);
        if (any) EXPLORE_EXPECT(r.step == 2 && r.done);
    }
}

/* Both devices have done step 0, and no thread has polled them; then one of them is lost. A thread that drains finds
 * the step closed and flushed. */
static void set_up_done(uint64_t variant) {
    set_up_frail(variant, (uint32_t)(variant % DEVICES), FRUGAL_ALONE_STAGED);
    for (uint32_t d = 0; d < DEVICES; d++) announce_row(d, 0, 1);
    help_out();
    for (uint32_t d = 0; d < DEVICES; d++) {
        frails[d]->finished = 1;
        commit_here(w.f, d, 0, NULL);
    }
}

static void poll_or_drain(int number) {
    if (number == 0)
        poll_by(commit_polled);
    else
        expect_ok(frugal_drain(w.f));
}

/* Or one of them has refused its last recall, after which training ends. */
static void refuse_or_drain(int number) {
    if (number == 1) {
        expect_ok(frugal_drain(w.f));
        return;
    }
    pthread_mutex_lock(&w.f->devices[0].keeping.lock);
    refuse_recall(w.f, 0, FRUGAL_ERR_STUCK);
    pthread_mutex_unlock(&w.f->devices[0].keeping.lock);
    event_notify(w.f->event); /* as recall_from does */
}

static void expect_closed(void) {
    frugal_p2f_progress now = frugal_p2f_get_progress(w.f->p2f);
    EXPLORE_EXPECT(now.committed == 1 && now.closed == 1);
}

#endif /* MOMENTS_H */
