/* explore_runtime.c - frugal_flush.c and frugal_cpu.c, as a trainer uses them, under the explorer: workers, sleeping and
 * waking, staging, caches. Every looked-up row and the table at the end are compared with the sequential
 * reference, bit for bit. See explore.h. */
#include "tests/explore/explore_posix.h"

#include "tests/explore/explore.h"

#define FRUGAL_ATOMICS_OVERRIDE "tests/explore/explore.h"
#define FRUGAL_PRIV_PLAN_RANGE  2u
#define FRUGAL_PRIV_CLOSE_RANGE 2u
#include "frugal_flush.c"

#include "tests/reference.h"
#include "tests/support.h"

enum { DEVICES = 2, KEYS = 3, STEPS = 3, DIM = 2, ROWS = 4 };

static struct { /* constant while schedules run: outside of the arena */
    frugal *f;
    int loaders;
    reference ref;
    uint64_t keys[DEVICES][STEPS][KEYS];
    uint32_t rows[DEVICES][STEPS][KEYS], n[DEVICES][STEPS];
    int brings[DEVICES][STEPS];
    float grads[DEVICES][STEPS][KEYS * DIM], expected[DEVICES][STEPS][KEYS * DIM];
    float after[STEPS][ROWS * DIM]; /* the table after each step */
    uint32_t *done;                 /* atomic: trainers that are through */
    uint32_t *passed;               /* atomic: steps of device 0 */
    uint32_t *read;                 /* atomic: steps after which rows were read */
    uint32_t *reason;               /* plain: why it is stopped */
    int polite;                     /* device 1 commits, and then calls nothing until device 0 has got on */
} w;

static void *allocate(size_t bytes, size_t alignment, void *user) {
    (void)user;
    return explore_alloc(bytes, alignment < 16 ? 16 : alignment);
}

/* >>the sequential run */

static void make_batch(test_random *random, int d, int s) {
    w.n[d][s] = (uint32_t)test_below(random, KEYS + 1);
    w.brings[d][s] = test_chance(random, 80);
    for (uint32_t i = 0; i < w.n[d][s]; i++)
        w.keys[d][s][i] = w.rows[d][s][i] = (uint32_t)test_below(random, w.ref.rows);
    for (uint32_t i = 0; i < w.n[d][s] * DIM; i++) w.grads[d][s][i] = (float)test_unit(test_next(random)) - 0.5f;
}

static void make_reference(test_random *random, const frugal_desc *desc) {
    reference_close(&w.ref);
    w.ref = (reference){.rows = desc->tables[0].rows,
                        .dim = DIM,
                        .devices = desc->devices,
                        .optimizer = (int)desc->optimizer.kind,
                        .eps = w.f->store.optimizer.eps};
    if (!reference_open(&w.ref, 0)) abort();
    for (uint64_t r = 0; r < w.ref.rows; r++) memcpy(w.ref.weights + r * DIM, frugal_priv_weights(w.f, r), DIM * 4);
    for (int s = 0; s < STEPS; s++) {
        reference_batch batches[DEVICES];
        for (int d = 0; d < (int)desc->devices; d++) {
            make_batch(random, d, s);
            for (uint32_t i = 0; i < w.n[d][s]; i++)
                memcpy(w.expected[d][s] + i * DIM, w.ref.weights + w.rows[d][s][i] * DIM, DIM * 4);
            batches[d] = (reference_batch){w.rows[d][s], w.n[d][s], w.brings[d][s] ? w.grads[d][s] : NULL};
        }
        reference_step(&w.ref, (uint64_t)s, 0.5f, batches);
        memcpy(w.after[s], w.ref.weights, w.ref.rows * DIM * sizeof(float));
    }
}

static void set_up(uint64_t variant, uint32_t devices, uint32_t workers, int loaders) {
    test_random random = {.seed = test_mix3(variant, devices, workers)};
    frugal_table table = {.rows = test_between(&random, 1, ROWS), .init = FRUGAL_INIT_UNIFORM, .a = -1, .b = 1};
    uint32_t lookahead = (uint32_t)test_below(&random, 3);
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = DIM,
                        .devices = devices,
                        .max_keys = KEYS,
                        .lookahead = lookahead,
                        .staging = (uint32_t)test_between(&random, 1, lookahead + 2),
                        .workers = workers,
                        .defer = test_chance(&random, 50),
                        .mode = test_chance(&random, 20) ? FRUGAL_SYNC : FRUGAL_P2F,
                        .optimizer = {.kind = test_chance(&random, 50) ? FRUGAL_SGD : FRUGAL_ADAGRAD},
                        .seed = variant,
                        .init_threads = 1,
                        .stuck_seconds = -1,
                        .allocate = allocate};
    explore_forget_created();
    w.loaders = loaders;
    w.polite = 0;
    w.done = explore_alloc(sizeof *w.done, 64);
    w.passed = explore_alloc(sizeof *w.passed, 64);
    w.reason = explore_alloc(sizeof *w.reason, 64);
    w.read = explore_alloc(sizeof *w.read, 64);
    frugal_cpu_desc cache = {.cache_rows = test_chance(&random, 70) ? 8 : 0, .policy = FRUGAL_LRU};
    if (frugal_open(&desc, &w.f) != FRUGAL_OK) explore_fail("open: %s", frugal_message());
    for (uint32_t d = 0; d < devices; d++)
        if (frugal_cpu_attach(w.f, d, &cache) != FRUGAL_OK) explore_fail("attach: %s", frugal_message());
    make_reference(&random, &desc);
}

/* >>the threads: trainers, then loaders, then workers */

static void expect_ok(frugal_status status) {
    if (status != FRUGAL_OK) explore_fail("%s", frugal_message());
}

static void announce_at(int d, int s, int step) { /* the batch of step s at another */
    frugal_keys keys = {.keys = w.keys[d][s], .n = w.n[d][s]};
    frugal_batch batch = {.segments = &keys, .n_segments = 1};
    expect_ok(frugal_announce(w.f, (uint32_t)d, (uint64_t)step, &batch));
}

static void announce(int d, int s) {
    announce_at(d, s, s);
}

static void train(int d, int s) {
    float rows[KEYS * DIM];
    expect_ok(frugal_lookup(w.f, (uint32_t)d, (uint64_t)s, rows));
    EXPLORE_EXPECT(!memcmp(rows, w.expected[d][s], w.n[d][s] * DIM * sizeof(float)));
    frugal_gradients g = {.grads = w.brings[d][s] ? w.grads[d][s] : NULL, .lr = 0.5f};
    expect_ok(frugal_update(w.f, (uint32_t)d, (uint64_t)s, &g));
}

static void expect_table(const float *weights, uint64_t stride) {
    for (uint64_t r = 0; r < w.ref.rows; r++)
        EXPLORE_EXPECT(!memcmp(weights + r * stride, w.ref.weights + r * DIM, DIM * sizeof(float)));
}

static void finish(void) {
    while (frugal_load_acquire(w.done) < w.f->desc.devices) explore_wait();
    expect_ok(frugal_drain(w.f));
    expect_ok(frugal_verify(w.f));
    expect_table(w.f->store.weights, w.f->store.weights_stride);
    frugal_close(w.f); /* ends the workers; the memory stays the explorer's */
}

static void trainer(int d) {
    int ahead = (int)w.f->desc.lookahead;
    for (int s = 0, t = 0; s < STEPS; s++) {
        for (; !w.loaders && t < STEPS && t <= s + ahead; t++) announce(d, t);
        train(d, s);
        if (d == 0) frugal_add_relaxed(w.passed, 1);
        while (w.polite && d == 1 && t > s + 1 && frugal_load_relaxed(w.passed) < (uint32_t)s + 2) explore_wait();
    }
    frugal_add_acq_rel(w.done, 1);
    if (d == 0) finish();
}

static void play(int number) {
    int devices = (int)w.f->desc.devices, loaders = w.loaders ? devices : 0;
    if (number < devices)
        trainer(number);
    else if (number < devices + loaders)
        for (int s = 0; s < STEPS; s++) announce(number - devices, s);
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
static void set_up_loaders(uint64_t variant) {
    set_up(variant, 2, 2, 1);
}

static void set_up_polite(uint64_t variant) {
    set_up(variant, 2, 0, 0);
    w.polite = 1;
}

/* >>lending: a thread helps a few times, and leaves whatever there is left to do */

static void train_or_lend(int number) {
    if (number == 0) {
        trainer(0);
        return;
    }
    for (uint32_t n = 1 + explore_choose(12); n > 0; n--)
        if (!frugal_help(w.f)) explore_point();
}

static void set_up_lending(uint64_t variant) {
    set_up(variant, 1, 0, 0);
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
    EXPLORE_EXPECT(stats.steps == STEPS && stats.keys == keys && stats.flushed == updates);
    for (int i = 0; i < 64; i++) updates -= stats.flushed_by_urgency[i];
    EXPLORE_EXPECT(updates == stats.flushed_at_close);
}

static void read_after_training(void) {
    uint64_t keys[ROWS], stride;
    frugal_stats stats;
    float rows[ROWS * DIM];
    const float *view;
    for (uint64_t r = 0; r < w.ref.rows; r++) keys[r] = r;
    frugal_keys all = {.keys = keys, .n = (uint32_t)w.ref.rows};
    while (frugal_load_relaxed(w.done) < w.f->desc.devices) explore_wait();
    do { /* the flag may be ahead of what else is seen, of the updates among others */
        frugal_get_stats(w.f, &stats);
        if (stats.steps < STEPS && !frugal_help(w.f)) explore_wait();
    } while (stats.steps < STEPS);
    if (explore_choose(2)) expect_ok(frugal_drain(w.f));
    expect_ok(frugal_read_rows(w.f, &all, rows, NULL));
    expect_table(rows, DIM);
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
    set_up(variant, 1, (uint32_t)(variant % 2), 0);
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
    uint64_t keys[ROWS];
    float rows[ROWS * DIM];
    for (uint64_t r = 0; r < w.ref.rows; r++) keys[r] = r;
    frugal_keys all = {.keys = keys, .n = (uint32_t)w.ref.rows};
    for (uint32_t s = 0; s < STEPS; s++) {
        while (frugal_load_acquire(w.passed) <= s) explore_wait();
        expect_ok(frugal_read_rows(w.f, &all, rows, NULL));
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
    set_up(variant, 1, 1, 0);
}

static void cancel_and_write(void) {
    for (int s = 0; s < STEPS; s++) {
        uint64_t row = (uint64_t)s % w.ref.rows;
        frugal_keys key = {.keys = &row, .n = 1};
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

/* >>stopping: all who wait return, whatever they wait for */

static void stopped_or_ok(frugal_status status) {
    if (status == FRUGAL_STOPPED) EXPLORE_EXPECT(*w.reason == 1); /* what was done before stopping is seen */
    if (status != FRUGAL_OK && status != FRUGAL_STOPPED) explore_fail("%s", frugal_message());
}

static void wait_and_be_stopped(int number) {
    frugal_keys keys = {.keys = w.keys[0][0], .n = w.n[0][0]};
    frugal_batch batch = {.segments = &keys, .n_segments = 1};
    if (number == 0) { /* announces further than is legal: the other device never commits */
        frugal_status status = FRUGAL_OK;
        for (uint64_t t = 0; status == FRUGAL_OK; t++) status = frugal_announce(w.f, 0, t, &batch);
        stopped_or_ok(status);
        frugal_add_acq_rel(w.done, 1);
    } else if (number == 1) {
        stopped_or_ok(frugal_announce(w.f, 1, 0, &batch));
        frugal_status status = frugal_lookup(w.f, 1, 0, NULL);
        stopped_or_ok(status);
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

int main(int argc, char **argv) {
    static const explore_scenario scenarios[] = {
        {"one-device", "a device and a worker train as one thread does", 2, set_up_alone, play, NULL},
        {"two-devices", "two devices, nobody else, train as one thread does", 2, set_up_two, play, NULL},
        {"worker", "two devices and a worker; sleepers are woken [F1][F2]", 3, set_up_worker, play, NULL},
        {"loaders", "loaders of their own, two workers", 6, set_up_loaders, play, NULL},
        {"polite", "who commits last wakes who can close, and need not close himself", 2, set_up_polite, play, NULL},
        {"lending", "a thread that lends a hand and leaves strands nobody", 2, set_up_lending, train_or_lend, NULL},
        {"reading", "whoever drains or reads has the table, and exact counts", 4, set_up_reader, train_or_read, NULL},
        {"between", "rows read between steps are those of the last committed one; who reads them wakes", 3,
         set_up_between, train_or_read_between, NULL},
        {"taking-back", "cancelling, and writing rows, while a worker flushes", 2, set_up_taking_back,
         take_back_or_work, NULL},
        {"stop", "[F3][F4]: who waits is woken by stop, knows why, and close ends the workers", 4, set_up_worker,
         wait_and_be_stopped, NULL},
    };
    return explore_main(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
