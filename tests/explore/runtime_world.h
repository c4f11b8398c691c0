/* runtime_world.h - the worlds of explore_runtime.c: an instance of the library with random data, its devices, on the
 * host or streams that work on when a call has returned, and what sequential training makes of the data. */
#ifndef RUNTIME_WORLD_H
#define RUNTIME_WORLD_H

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
/* What processes would map is the explorer's, too. */
static int keep_mapped(void *memory, size_t bytes) {
    (void)memory, (void)bytes;
    return 0;
}
/* A message to the process that has joined is read by the thread that sends it (joining.h). */
#include <sys/socket.h>
static ssize_t send_within(int socket, const struct msghdr *head, int flags);
#define sendmsg        send_within
#define posix_memalign place
#define free           leave
#define munmap         keep_mapped

#define FRUGAL_ATOMICS_OVERRIDE "tests/explore/explore.h"
#define FRUGAL_PRIV_PLAN_RANGE  2u
#define FRUGAL_PRIV_CLOSE_RANGE 2u
#define POLL_RESTLESS           (-1.0)
#define EVENT_SHARES            0
#define LEAST_PAGE              4096
#include "frugal_flush.c"
#undef free
#undef munmap

#include "tests/reference_of.h"
#include "tests/reference_stale.h"
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
    struct keeping *keeping;              /* constant; NULL: it keeps no updates (keeping.h) */
} stream;

static struct { /* constant while schedules run: outside of the arena */
    frugal *f;
    frugal *sharing[DEVICES]; /* not NULL: each device has an instance of its own, which shares workers */
    frugal *joined;           /* not NULL: the handle of device 1, which is as if in another process (joining.h) */
    int joins;                /* a world is to have it */
    frugal_workers *workers;
    float last[DEVICES][ROWS * DIM]; /* the tables of those instances in the end */
    uint64_t rows_of[DEVICES];
    int loaders, steps;
    int kinds[DEVICES], late;    /* late: streams are attached by their trainers */
    frugal_alone alone;          /* who updates the rows that one device alone touches */
    int copies;                  /* streams have `announced` */
    int shortens, ends[DEVICES]; /* the step at which a device's data ends; early, that of device `shortens` - 1 */
    uint32_t second[DEVICES];    /* first row of a second table with its own settings; after all rows: there is none */
    stream *streams[DEVICES];
    reference ref;
    uint64_t keys[DEVICES][STEPS][KEYS];
    uint32_t rows[DEVICES][STEPS][KEYS], n[DEVICES][STEPS];
    int brings[DEVICES][STEPS];
    float grads[DEVICES][STEPS][KEYS * DIM], expected[DEVICES][STEPS][KEYS * DIM];
    float after[STEPS][ROWS * DIM]; /* the table after each step */
    uint32_t *done;                 /* atomic: trainers that have finished */
    uint32_t *passed;               /* atomic: steps of device 0; or 1: all of them */
    uint32_t *read;                 /* atomic: steps after which rows were read */
    uint32_t *reason;               /* plain: why it is stopped */
    int polite;                     /* device 1 commits, and then makes no call until device 0 has moved on */
} w;

static frugal *instance_of(uint32_t d) {
    if (d == 1 && w.joined) return w.joined;
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
    w.n[d][s] = s < w.ends[d] ? (uint32_t)test_below(random, KEYS + 1) : 0;
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
        segments[i] = (frugal_keys){.table = w.rows[d][s][i] >= w.second[d], .keys = &w.keys[d][s][i], .n = 1};
    return (frugal_batch){.segments = segments, .n_segments = w.n[d][s]};
}

/* Has the row, in memory of the library's or in a copy, these floats? */
static int is_row(const frugal_store *store, const void *row, const float *floats) {
    int same = 1;
    for (uint32_t i = 0; i < DIM; i++) {
        float weight = reference_load((int)store->rows_as, row, i);
        same &= !memcmp(&weight, &floats[i], sizeof weight);
    }
    return same;
}

/* Is the table, of the instance's type, the reference's? */
static void expect_table(const void *weights, uint64_t stride) {
    const frugal_store *store = &w.f->store;
    for (uint64_t r = 0; r < w.ref.rows; r++)
        EXPLORE_EXPECT(is_row(store, (const char *)weights + r * stride * frugal_type_bytes(store->rows_as),
                              w.ref.weights + r * DIM));
}

static void make_reference(test_random *random, const frugal_desc *desc,
                           uint32_t first) { /* of devices from `first` on */
    frugal *f = instance_of(first);
    reference_close(&w.ref);
    if (!reference_of(&w.ref, f)) abort();
    for (uint64_t r = 0; r < w.ref.rows; r++)
        frugal_convert(w.ref.weights + r * DIM, FRUGAL_FP32, weights_of(f, r), f->store.rows_as, DIM);
    for (int d = 0; d < DEVICES; d++) w.ends[d] = w.steps;
    if (w.shortens) w.ends[w.shortens - 1] = (int)(desc->seed / 2 % (uint64_t)w.steps);
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

/* The step with record_of, which streams read for every batch. */
static frugal_step whole_step(const stream *s, const frugal_step *step) {
    frugal_step whole = *step;
    whole.records.record_of = frugal_record_of(instance_of(s->device), number_of(s->device), step->step);
    return whole;
}

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

static frugal_status stream_lookup(void *device, const frugal_step *step, void *rows) {
    stream *s = device;
    const frugal_step whole = whole_step(s, step);
    (void)rows; /* the stream compares */
    if (refuses(s)) return frugal_fail(FRUGAL_ERR_CUDA, "refused");
    if (w.copies) {
        EXPLORE_EXPECT(s->n[step->step] == step->records.n);
        for (uint32_t i = 0; i < step->records.n; i++)
            EXPLORE_EXPECT(s->rows[step->step][i] == whole.records.rows[whole.records.record_of[i]]);
    }
    hand_over(s, LOOKUP, &whole);
    return FRUGAL_OK;
}

static frugal_status stream_update(void *device, const frugal_step *step, const void *grads) {
    (void)grads;
    if (refuses(device)) return frugal_fail(FRUGAL_ERR_CUDA, "refused");
    hand_over(device, UPDATE, step);
    return FRUGAL_OK;
}

#include "tests/explore/keeping.h"

static frugal_status stream_poll(void *device, uint64_t *steps) {
    stream *s = device;
    *steps = frugal_load_acquire(&s->finished);
    if (s->keeping) copies_count(&s->keeping->c, instance_of(s->device), number_of(s->device));
    if (!frugal_load_relaxed(&s->broken)) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_CUDA, "the stream of device %u is broken", s->device);
}

static void stream_announced(void *device, const frugal_step *step) {
    stream *s = device;
    const frugal_records r = whole_step(s, step).records;
    s->n[step->step] = r.n;
    for (uint32_t i = 0; i < r.n; i++) s->rows[step->step][i] = r.rows[r.record_of[i]];
}

static void stream_cancelled(void *device) {
    stream *s = device;
    finish_recalls(s);
    for (int t = 0; t < STEPS; t++) s->n[t] = UINT32_MAX;
}

static int stream_waits(void *device) {
    return ((stream *)device)->waits;
}

static int stream_updates_in_place(void *device) {
    return frugal_settings(instance_of(((stream *)device)->device))->alone != FRUGAL_ALONE_STAGED;
}

static int stream_verify(void *device) {
    const stream *s = device;
    return !s->keeping || copies_verify(&s->keeping->c, instance_of(s->device), number_of(s->device));
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
                             .updates_in_place = stream_updates_in_place,
                             .poll = stream_poll,
                             .announced = w.copies ? stream_announced : NULL,
                             .cancelled = stream_cancelled,
                             .waits_for_gate = stream_waits,
                             .write_back = w.alone == FRUGAL_ALONE_KEPT ? stream_write_back : NULL,
                             .recall = stream_recall,
                             .recalled = stream_recalled};
    return frugal_attach(instance_of(d), number_of(d), &ops, w.streams[d]);
}

/* Waits for the gate, and does recalls meanwhile; 0 if it was forced open. */
static int stream_pass(stream *s, uint64_t step) {
    const uint64_t *gates = frugal_gates(instance_of(s->device));
    uint64_t open;
    while ((int64_t)((open = frugal_load_acquire(gates)) - step) <= 0)
        if (!do_recalls(s)) explore_wait();
    return (int64_t)(open - step) <= (int64_t)FRUGAL_GATES_FORCED;
}

/* The rows as the stream finds them in the host table, or in its copies. */
static void stream_read(const stream *s, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_store *store = frugal_get_store(instance_of(s->device));
    if (s->keeping) EXPLORE_EXPECT(copies_refresh(&s->keeping->c, step));
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t row = r->rows[r->record_of[i]];
        const void *copy = copy_of(s, row);
        EXPLORE_EXPECT(is_row(store, copy ? copy : frugal_row_at(store, row),
                              w.expected[s->device][step->step] + (uint64_t)i * DIM));
    }
}

/* Writes the records of the batch, and updates the rows that are the stream's alone. */
static void stream_sum(const stream *s, const frugal_step *step) {
    const float *grads = w.grads[s->device][step->step];
    const frugal_store *store = frugal_get_store(instance_of(s->device));
    if (s->keeping)
        copies_update(&s->keeping->c, step, grads);
    else if (step->alone)
        frugal_update_rows(store, step, NULL, grads, 0, step->records.n_unique);
    else
        frugal_sum_gradients(&step->records, grads, step->stride, DIM);
}

static void run_stream(int d) {
    stream *s = w.streams[d];
    uint32_t breaks_at = s->breaks ? explore_choose(2 * (uint32_t)w.steps) : JOBS;
    for (uint32_t n = 0;; n++) {
        frugal_store_relaxed(&s->through, n);
        while (frugal_load_acquire(&s->handed) <= n)
            if (!do_recalls(s)) explore_wait();
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
            if (!s->forced && step->brings) stream_sum(s, step);
            frugal_store_release(&s->finished, step->step + 1);
        }
    }
    frugal_store_release(&s->ended, 1);
}

/* >>worlds */

#include "tests/explore/joining.h"

static void attach(uint32_t d, const frugal_cpu_desc *cache) {
    frugal_cpu_desc cpu = cache ? *cache : (frugal_cpu_desc){0};
    cpu.threads = 1; /* those of an exploration are coroutines; tests/unit/host/test_team.c has real ones */
    if (d == JOINED && w.joins) {
        join_within(&cpu);
        return;
    }
    frugal_status status =
        w.kinds[d] == HOST ? frugal_cpu_attach(instance_of(d), number_of(d), &cpu) : attach_stream(d);
    if (status != FRUGAL_OK) explore_fail("attach: %s", frugal_message());
}

/* What all worlds begin with. */
static void clear(int loaders) {
    explore_forget_created();
    w.loaders = loaders;
    w.polite = 0;
    w.f = NULL, w.joined = NULL, w.workers = NULL;
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
    desc->rows_as = (frugal_type)(desc->seed / 7 % 4 % 3); /* fp32 in a half of the cases */
    desc->alone = w.alone;
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
        if (w.alone == FRUGAL_ALONE_KEPT) w.streams[d]->keeping = make_keeping(frugal_get_store(*f), desc->seed, d);
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

static void set_up_hosts(uint64_t variant, uint32_t devices, uint32_t workers, int loaders) { /* and of w.alone */
    w.kinds[0] = w.kinds[1] = HOST;
    w.steps = STEPS, w.late = w.copies = 0;
    set_up_of(variant, devices, workers, loaders);
}

/* Staged by name, because devices on the host would update rows in place, and leave less to queue and to flush. */
static void set_up(uint64_t variant, uint32_t devices, uint32_t workers, int loaders) {
    w.alone = FRUGAL_ALONE_STAGED;
    set_up_hosts(variant, devices, workers, loaders);
}

#endif /* RUNTIME_WORLD_H */
