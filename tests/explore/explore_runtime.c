/* explore_runtime.c - frugal_flush.c, as a trainer uses it, under the explorer: workers, sleeping and
 * waking, staging, caches. Every looked-up row and the table at the end are compared with the sequential
 * reference, bit for bit. See explore.h. */
#include "tests/explore/explore_posix.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/explore/explore.h"

/* When the library prints into memory that threads share, that is a write like others. */
__attribute__((format(printf, 3, 4))) static int print(char *to, size_t size, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, size < sizeof text ? size : sizeof text, format, arguments);
    va_end(arguments);
    explore_copy(to, text, (size_t)n < size ? (size_t)n + 1 : size);
    return n;
}
#define snprintf print

/* Memory of workers that are shared; an instance's comes from `allocate`. */
static int place(void **memory, size_t alignment, size_t bytes) {
    *memory = explore_alloc(bytes, alignment);
    return 0;
}
static void leave(void *memory) {
    (void)memory;
}
#define posix_memalign place
#define free           leave

#define FRUGAL_ATOMICS_OVERRIDE "tests/explore/explore.h"
#define FRUGAL_PRIV_PLAN_RANGE  2u
#define FRUGAL_PRIV_CLOSE_RANGE 2u
#define POLL_RESTLESS           (-1.0)
#include "frugal_flush.c"
#undef free

#include "tests/reference_of.h"
#include "tests/support.h"

enum { DEVICES = 2, KEYS = 3, STEPS = 3, DIM = 2, ROWS = 4, JOBS = 4 * STEPS };
enum { HOST, POLLED, WAITING }; /* on the host; a stream, lookup waits for the gate; a stream that waits itself */
enum { LOOKUP, UPDATE, END };   /* what a stream is given */

typedef struct job {
    int kind;
    frugal_step step;
} job;

typedef struct stream { /* a device that works on when a call has returned; its thread is one of the scenario's */
    uint32_t device;
    int waits, breaks, grumbles;  /* constant. breaks: some day polls fail; grumbles: it refuses a call for no reason */
    const struct stream *follows; /* constant: no step ends before that stream has finished all; NULL: none */
    job jobs[JOBS];               /* plain, like all fields without a comment: handed over by `handed` */
    uint32_t handed;              /* atomic; written by the trainer, and by close */
    uint64_t finished;            /* atomic: steps */
    uint32_t through;             /* atomic: jobs */
    uint32_t broken;              /* atomic */
    uint32_t ended;               /* atomic */
    uint64_t forced;              /* 1 + the first step whose gate was forced open; the stream's until it has ended */
    int refused;                  /* the trainer's */
    uint32_t n[STEPS], rows[STEPS][KEYS]; /* what `announced` copied; the loader's until lookup */
} stream;

static struct { /* constant while schedules run: outside of the arena */
    frugal *f;
    frugal *sharing[DEVICES]; /* not NULL: each device has an instance of its own, which shares workers */
    frugal_workers *workers;
    float last[DEVICES][ROWS * DIM]; /* the tables of those instances in the end */
    uint64_t rows_of[DEVICES];
    int loaders, steps;
    int kinds[DEVICES], late; /* late: streams are attached by their trainers */
    int copies;               /* streams have `announced` */
    uint32_t second[DEVICES]; /* first row of a second table with its own settings; after all rows: there is none */
    stream *streams[DEVICES];
    reference ref;
    uint64_t keys[DEVICES][STEPS][KEYS];
    uint32_t rows[DEVICES][STEPS][KEYS], n[DEVICES][STEPS];
    int brings[DEVICES][STEPS];
    float grads[DEVICES][STEPS][KEYS * DIM], expected[DEVICES][STEPS][KEYS * DIM];
    float after[STEPS][ROWS * DIM]; /* the table after each step */
    uint32_t *done;                 /* atomic: trainers that have finished */
    uint32_t *passed;               /* atomic: steps of device 0 */
    uint32_t *read;                 /* atomic: steps after which rows were read */
    uint32_t *reason;               /* plain: why it is stopped */
    int polite;                     /* device 1 commits, and then makes no call until device 0 has moved on */
} w;

static frugal *instance_of(uint32_t d) {
    return w.sharing[d] ? w.sharing[d] : w.f;
}
static uint32_t number_of(uint32_t d) { /* in its instance */
    return w.sharing[d] ? 0 : d;
}

static void *allocate(size_t bytes, size_t alignment, void *user) {
    (void)user;
    return explore_alloc(bytes, alignment < 16 ? 16 : alignment);
}

/* A thread that still uses freed memory races with this write. */
static void give_back(void *memory, size_t bytes, void *user) {
    volatile uint32_t *words = memory;
    (void)user;
    for (size_t i = 0; i < bytes / 4 && i < 4096; i++) words[i] = words[i];
}

/* >>the sequential run */

static void make_batch(test_random *random, int d, int s) {
    w.n[d][s] = (uint32_t)test_below(random, KEYS + 1);
    w.brings[d][s] = test_chance(random, 80);
    for (uint32_t i = 0; i < w.n[d][s]; i++) {
        uint32_t row = w.rows[d][s][i] = (uint32_t)test_below(random, w.ref.rows);
        w.keys[d][s][i] = row < w.second[d] ? row : row - w.second[d];
    }
    for (uint32_t i = 0; i < w.n[d][s] * DIM; i++) w.grads[d][s][i] = (float)test_unit(test_next(random)) - 0.5f;
}

/* The batch of a step, a segment a key. */
static frugal_batch batch_of(int d, int s, frugal_keys segments[KEYS]) {
    for (uint32_t i = 0; i < w.n[d][s]; i++)
        segments[i] = (frugal_keys){w.rows[d][s][i] >= w.second[d], &w.keys[d][s][i], 1};
    return (frugal_batch){.segments = segments, .n_segments = w.n[d][s]};
}

static void make_reference(test_random *random, const frugal_desc *desc,
                           uint32_t first) { /* of devices from `first` on */
    frugal *f = instance_of(first);
    reference_close(&w.ref);
    if (!reference_of(&w.ref, f)) abort();
    for (uint64_t r = 0; r < w.ref.rows; r++) memcpy(w.ref.weights + r * DIM, weights_of(f, r), DIM * 4);
    for (int s = 0; s < w.steps; s++) {
        reference_batch batches[DEVICES];
        for (int i = 0; i < (int)desc->devices; i++) {
            int d = (int)first + i;
            make_batch(random, d, s);
            for (uint32_t i = 0; i < w.n[d][s]; i++)
                memcpy(w.expected[d][s] + i * DIM, w.ref.weights + w.rows[d][s][i] * DIM, DIM * 4);
            batches[i] = (reference_batch){w.rows[d][s], w.n[d][s], w.brings[d][s] ? w.grads[d][s] : NULL};
        }
        reference_step(&w.ref, (uint64_t)s, 0.5f, batches);
        memcpy(w.after[s], w.ref.weights, w.ref.rows * DIM * sizeof(float));
    }
}

/* >>streams: devices that work on when a call has returned, as a GPU does */

static void hand_over(stream *s, int kind, const frugal_step *step) {
    uint32_t n = frugal_load_relaxed(&s->handed);
    EXPLORE_EXPECT(n < JOBS);
    s->jobs[n] = (job){kind, *step};
    frugal_store_release(&s->handed, n + 1);
}

/* A call that fails, once; for no reason, or because the stream is broken. */
static int refuses(stream *s) {
    if (frugal_load_relaxed(&s->broken)) return 1;
    if (!s->grumbles || s->refused || explore_choose(4) != 3) return 0;
    s->refused = 1;
    return 1;
}

static frugal_status stream_lookup(void *device, const frugal_step *step, float *rows) {
    stream *s = device;
    (void)rows; /* the stream compares */
    if (refuses(s)) return frugal_fail(FRUGAL_ERR_CUDA, "refused");
    if (w.copies) {
        EXPLORE_EXPECT(s->n[step->step] == step->records.n);
        for (uint32_t i = 0; i < step->records.n; i++)
            EXPLORE_EXPECT(s->rows[step->step][i] == step->records.rows[step->records.record_of[i]]);
    }
    hand_over(s, LOOKUP, step);
    return FRUGAL_OK;
}

static frugal_status stream_update(void *device, const frugal_step *step, const float *grads) {
    (void)grads;
    if (refuses(device)) return frugal_fail(FRUGAL_ERR_CUDA, "refused");
    hand_over(device, UPDATE, step);
    return FRUGAL_OK;
}

static frugal_status stream_poll(void *device, uint64_t *steps) {
    stream *s = device;
    *steps = frugal_load_acquire(&s->finished);
    if (!frugal_load_relaxed(&s->broken)) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_CUDA, "the stream of device %u is broken", s->device);
}

static void stream_announced(void *device, const frugal_step *step) {
    stream *s = device;
    s->n[step->step] = step->records.n;
    for (uint32_t i = 0; i < step->records.n; i++)
        s->rows[step->step][i] = step->records.rows[step->records.record_of[i]];
}

static void stream_cancelled(void *device) {
    stream *s = device;
    for (int t = 0; t < STEPS; t++) s->n[t] = UINT32_MAX;
}

static int stream_waits(void *device) {
    return ((stream *)device)->waits;
}

static int stream_verify(void *device) {
    (void)device;
    return 1;
}

static void stream_close(void *device) {
    stream *s = device;
    hand_over(s, END, &(frugal_step){0});
    while (!frugal_load_acquire(&s->ended)) explore_wait();
}

static frugal_status attach_stream(uint32_t d) {
    frugal_device_ops ops = {.lookup = stream_lookup,
                             .update = stream_update,
                             .verify = stream_verify,
                             .close = stream_close,
                             .poll = stream_poll,
                             .announced = w.copies ? stream_announced : NULL,
                             .cancelled = stream_cancelled,
                             .waits_for_gate = stream_waits};
    return frugal_attach(instance_of(d), number_of(d), &ops, w.streams[d]);
}

/* Waits for the gate; 0 if it was forced open. */
static int stream_pass(const stream *s, uint64_t step) {
    const uint64_t *gates = frugal_gates(instance_of(s->device));
    uint64_t open;
    while ((int64_t)((open = frugal_load_acquire(gates)) - step) <= 0) explore_wait();
    return (int64_t)(open - step) <= (int64_t)FRUGAL_GATES_FORCED;
}

/* The rows as the stream finds them in the host table. */
static void stream_read(const stream *s, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_store *store = frugal_get_store(instance_of(s->device));
    for (uint32_t i = 0; i < r->n; i++)
        EXPLORE_EXPECT(!memcmp(store->weights + r->rows[r->record_of[i]] * store->weights_stride,
                               w.expected[s->device][step->step] + (uint64_t)i * DIM, DIM * sizeof(float)));
}

static void run_stream(int d) {
    stream *s = w.streams[d];
    uint32_t breaks_at = s->breaks ? explore_choose(2 * (uint32_t)w.steps) : JOBS;
    for (uint32_t n = 0;; n++) {
        frugal_store_relaxed(&s->through, n);
        while (frugal_load_acquire(&s->handed) <= n) explore_wait();
        if (n == breaks_at) frugal_store_relaxed(&s->broken, 1); /* from now on it does nothing */
        const job *j = &s->jobs[n];
        const frugal_step *step = &j->step;
        if (j->kind == END) break;
        if (n >= breaks_at) continue;
        if (j->kind == LOOKUP) {
            if (!s->forced && s->waits && !stream_pass(s, step->step)) s->forced = step->step + 1;
            if (!s->forced) stream_read(s, step);
        } else {
            while (s->follows && frugal_load_acquire(&s->follows->finished) < (uint64_t)w.steps) explore_wait();
            if (!s->forced && step->brings) frugal_sum_gradients(&step->records, w.grads[d][step->step], DIM);
            frugal_store_release(&s->finished, step->step + 1);
        }
    }
    frugal_store_release(&s->ended, 1);
}

/* >>worlds */

static void attach(uint32_t d, const frugal_cpu_desc *cache) {
    frugal_status status =
        w.kinds[d] == HOST ? frugal_cpu_attach(instance_of(d), number_of(d), cache) : attach_stream(d);
    if (status != FRUGAL_OK) explore_fail("attach: %s", frugal_message());
}

/* What all worlds begin with. */
static void clear(int loaders) {
    explore_forget_created();
    w.loaders = loaders;
    w.polite = 0;
    w.f = NULL, w.workers = NULL;
    memset(w.sharing, 0, sizeof w.sharing);
    w.done = explore_alloc(sizeof *w.done, 64);
    w.passed = explore_alloc(sizeof *w.passed, 64);
    w.reason = explore_alloc(sizeof *w.reason, 64);
    w.read = explore_alloc(sizeof *w.read, 64);
}

/* Fills in the random part of `desc`, opens it, and attaches its devices: those of the world from `first` on. The seed
 * decides whether there is a second table, with settings of its own. */
static void open_instance(test_random *random, frugal_desc *desc, frugal **f, uint32_t first) {
    uint64_t rows = test_between(random, 1, ROWS), second = desc->seed % 3 && rows > 1 ? rows / 2 : rows;
    frugal_optimizer own = {.weight_decay = 0.25f, .lr_scale = 0.75f, .beta1 = 0.75f, .frozen = desc->seed % 5 == 0};
    frugal_table tables[2] = {{.rows = second, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1},
                              {.rows = rows - second, .init = FRUGAL_INIT_UNIFORM, .high = 1, .optimizer = &own}};
    desc->tables = tables, desc->n_tables = second < rows ? 2 : 1;
    desc->dim = DIM, desc->max_keys = KEYS;
    desc->lookahead = (uint32_t)test_below(random, 3);
    desc->staging = (uint32_t)test_between(random, 1, desc->lookahead + 2);
    desc->defer = test_chance(random, 50);
    desc->mode = test_chance(random, 20) ? FRUGAL_SYNC : FRUGAL_P2F;
    desc->optimizer.kind = test_chance(random, 50) ? FRUGAL_SGD : FRUGAL_ADAGRAD;
    desc->init_threads = 1;
    desc->stuck_seconds = -1;
    desc->allocate = allocate;
    frugal_cpu_desc cache = {.cache_rows = test_chance(random, 70) ? 8 : 0, .policy = FRUGAL_CACHE_LRU};
    if (w.kinds[first] != HOST && test_chance(random, 40)) desc->optimizer.kind = FRUGAL_ADAM;
    own.kind = desc->optimizer.kind;
    if (frugal_open(desc, f) != FRUGAL_OK) explore_fail("open: %s", frugal_message());
    for (uint32_t d = first; d < first + desc->devices; d++) {
        w.second[d] = (uint32_t)second;
        w.streams[d] = explore_alloc(sizeof(stream), 64);
        w.streams[d]->device = d, w.streams[d]->waits = w.kinds[d] == WAITING;
        if (w.kinds[d] == HOST || !w.late) attach(d, &cache);
    }
    make_reference(random, desc, first);
}

static void set_up_of(uint64_t variant, uint32_t devices, uint32_t workers, int loaders) { /* and of w.kinds, w.steps */
    test_random random = {.seed = test_mix3(variant, devices, workers)};
    frugal_desc desc = {.devices = devices, .workers = workers, .seed = variant};
    clear(loaders);
    open_instance(&random, &desc, &w.f, 0);
}

static void set_up(uint64_t variant, uint32_t devices, uint32_t workers, int loaders) {
    w.kinds[0] = w.kinds[1] = HOST;
    w.steps = STEPS, w.late = w.copies = 0;
    set_up_of(variant, devices, workers, loaders);
}

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
    announce_at(d, s, s);
}

static void train(int d, int s) {
    float rows[KEYS * DIM];
    frugal *f = instance_of((uint32_t)d);
    expect_ok(frugal_lookup(f, number_of((uint32_t)d), (uint64_t)s, rows));
    if (w.kinds[d] == HOST) EXPLORE_EXPECT(!memcmp(rows, w.expected[d][s], w.n[d][s] * DIM * sizeof(float)));
    frugal_gradients g = {.grads = w.brings[d][s] ? w.grads[d][s] : NULL, .lr = 0.5f};
    expect_ok(frugal_update(f, number_of((uint32_t)d), (uint64_t)s, &g));
}

static void read_table(float rows[ROWS * DIM]) {
    uint64_t keys[ROWS];
    for (uint64_t r = 0; r < w.ref.rows; r++) keys[r] = r;
    for (uint32_t t = 0; t < w.f->desc.n_tables; t++) {
        frugal_keys all = {t, keys, (uint32_t)w.f->desc.tables[t].rows};
        expect_ok(frugal_read_rows(w.f, &all, rows + w.f->first_row[t] * DIM, NULL));
    }
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
    for (int s = 0, t = 0; s < w.steps; s++) {
        for (; !w.loaders && t < w.steps && t <= s + ahead; t++) announce(d, t);
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
static void set_up_loaders(uint64_t variant) {
    set_up(variant, 2, 2, 1);
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
    uint64_t stride;
    frugal_stats stats;
    float rows[ROWS * DIM];
    const float *view;
    while (frugal_load_relaxed(w.done) < w.f->desc.devices) explore_wait();
    do { /* the flag may be seen before other writes, such as the updates */
        frugal_get_stats(w.f, &stats);
        if (stats.steps < STEPS && !frugal_help(w.f)) explore_wait();
    } while (stats.steps < STEPS);
    if (explore_choose(2)) expect_ok(frugal_drain(w.f));
    read_table(rows);
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
    set_up(variant, 1, 1, 0);
}

static void cancel_and_write(void) {
    for (int s = 0; s < STEPS; s++) {
        uint64_t row = (uint64_t)s % w.ref.rows, in_table = row < w.second[0] ? row : row - w.second[0];
        frugal_keys key = {row >= w.second[0], &in_table, 1};
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
 * trainers, a loader, a worker, streams, one more; a world may do without some of them */

enum { LOADER = DEVICES, WORKER, STREAMS, STOPPER = STREAMS + DEVICES };

/* Worlds of few steps, whose devices are streams; only the second device may be on the host. */
static void set_up_streams_of(uint64_t variant, uint32_t devices, int loaders) {
    uint64_t bits = test_mix3(variant, 5, devices);
    w.kinds[0] = bits % 2 ? POLLED : WAITING;
    w.kinds[1] = bits / 2 % 4 == 0 ? HOST : bits / 2 % 4 == 1 ? POLLED : WAITING;
    w.copies = loaders ? bits / 8 % 4 > 0 : bits / 8 % 2;
    w.late = !loaders && bits / 32 % 2;
    w.steps = 2;
    set_up_of(variant, devices, bits / 64 % 4 > 0, loaders);
}

static void set_up_streams(uint64_t variant) {
    set_up_streams_of(variant, 1 + variant % 2, 0);
}
static void set_up_told(uint64_t variant) {
    set_up_streams_of(variant, 1, 1);
}

/* The parts that are the same in all worlds of streams. */
static void play_other(int number) {
    int devices = (int)w.f->desc.devices;
    if (number == WORKER && explore_created() > 0) explore_run_created(0);
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
        for (int s = 0; s < w.steps; s++) announce(0, s);
    } else {
        play_other(number);
    }
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
    while ((status = frugal_lookup(w.f, (uint32_t)d, (uint64_t)s, rows)) == FRUGAL_ERR_CUDA) {
    }
    if (status == FRUGAL_OK) status = frugal_get_records(w.f, (uint32_t)d, (uint64_t)s, &records);
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
        EXPLORE_EXPECT(strstr(w.f->lost_message, "is broken"));
    frugal_add_acq_rel(w.done, 1);
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
    frugal_close(w.f);
    for (uint32_t d = 0; d < w.f->desc.devices; d++)
        EXPLORE_EXPECT(!w.streams[d]->forced || frugal_p2f_committed(w.f->p2f, d) < w.streams[d]->forced);
    frugal_p2f_progress now = frugal_p2f_get_progress(w.f->p2f);
    for (uint64_t r = 0; r < w.ref.rows && now.closed > 0 && now.closed == now.committed && now.pending == 0; r++)
        EXPLORE_EXPECT(!memcmp(weights_of(w.f, r), w.after[now.closed - 1] + r * DIM, DIM * sizeof(float)));
}

static void set_up_ended(uint64_t variant) {
    set_up_streams_of(variant, 2, 0);
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

static void set_up_lost(uint64_t variant) {
    set_up_streams_of(variant, 2, 0);
    w.streams[0]->breaks = variant % 3 > 0, w.streams[1]->breaks = variant % 3 < 2 && w.kinds[1] != HOST;
    w.streams[0]->grumbles = variant % 2, w.streams[1]->grumbles = variant / 2 % 2;
}

static void play_lost(int number) {
    if (number < (int)w.f->desc.devices) {
        train_while_it_lasts(number);
        if (number > 0) return;
        while (frugal_load_acquire(w.done) < w.f->desc.devices) explore_wait();
        expect_ok(frugal_drain(w.f)); /* of what was committed before */
        close_early();
    } else {
        play_other(number);
    }
}

/* A device refuses a call, is polled, and is well; meanwhile another device is found lost. */
static void set_up_refused(uint64_t variant) {
    w.kinds[0] = POLLED, w.kinds[1] = variant % 2 ? POLLED : WAITING;
    w.steps = 1, w.copies = w.late = 0;
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

/* >>sharing: two instances, each with one device, share one or two workers. Each trainer closes its instance as soon as
 * it has finished, whatever the workers are doing; the second instance may join them only when it begins to train. A
 * stream that waits at gates depends on the workers alone, and may be slow as long as the other instance has work */

static void set_up_sharing_of(uint64_t variant, uint32_t workers, int polled) {
    test_random random = {.seed = test_mix3(variant, 17, workers)};
    clear(0);
    w.steps = 2, w.late = w.copies = 0;
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
            EXPLORE_EXPECT(!memcmp(weights_of(f, r), w.last[d] + r * DIM, DIM * sizeof(float)));
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
        {"streams", "[F5][F6][F8]: devices that work on train as one thread does; whoever polls", STOPPER,
         set_up_streams, play_streams, NULL},
        {"told", "[F11][F12]: lookup comes when the batch is announced, and copied", STOPPER, set_up_told, play_streams,
         NULL},
        {"told-anew", "[F11][F12]: the same after a cancel", STOPPER, set_up_told, play_taken_back, NULL},
        {"streams-stop", "[F4][F7][F8]: what is done behind gates that a stop forces open is not committed",
         STOPPER + 1, set_up_ended, play_stopped, NULL},
        {"refused", "[F10]: who learns of a loss when his device has refused a call learns why", 2, set_up_refused,
         refuse_or_lose, NULL},
        {"sharing", "[F13][F14][F15][F16]: two instances share workers; one comes late, each is closed in between", 4,
         set_up_sharing, share, NULL},
        {"sharing-streams", "the same with streams: what is outstanding in any instance is looked after", STOPPER,
         set_up_sharing_streams, share, NULL},
        {"streams-lost", "[F9][F10]: all learn of the loss of a device, and why", STOPPER, set_up_lost, play_lost,
         NULL},
    };
    return explore_main(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
