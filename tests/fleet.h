/* fleet.h - devices of all kinds and their trainers beside the sequential reference, for tests of devices that work on
 * when a call has returned, as a GPU does.
 *
 * Such a device is a thread with a queue, its stream. Lookups and updates are enqueued and done later, in order, with
 * delays; the trainer's computation in between is enqueued, too, so that the trainer need not wait for it. The thread
 * waits for gates if lookup does not, reads the host table, sums gradients into the staging block (rows that are alone
 * it updates in place, or keeps, as frugal_desc.alone says), and counts the steps that it has finished. It does recalls
 * between jobs, and while it waits for a gate. Include after cmocka.h. */
#ifndef FLEET_H
#define FLEET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include "rig.h"
#include "copies.h"

enum { HOST, POLLED, WAITING };        /* kinds: frugal_cpu_attach; lookup waits for the gate; the device does */
enum { LOOKUP, COMPUTE, UPDATE, END }; /* jobs of a stream */
enum { QUEUE = 256, RING = 16, NEVER = 0 };

typedef struct job {
    int kind, brings;
    frugal_step step;
    void *rows;
    const void *grads;
    uint32_t n;
} job;

typedef struct stream {
    frugal *f;
    uint32_t device;
    int kind, linger; /* linger: update returns only when its work is done, or nearly */
    unsigned delay;   /* a job in two is late by up to so many microseconds */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    job queue[QUEUE];
    uint64_t head, tail; /* under the lock */
    uint64_t finished;   /* steps; written by the thread, with release */
    uint64_t lost_at;    /* once this many steps are finished, polls fail, and nothing more is done; or NEVER */
    uint32_t refusals;   /* recalls that are refused before one is not; UINT32_MAX: all */
    copies *copies;      /* NULL: the device keeps no updates */
    /* What `announced` copied, by step; the loader's. */
    uint64_t announced, cancels;
    uint32_t n[RING], rows[RING][RIG_MOST_KEYS];
    int wrong;
} stream;

static uint64_t current_ends[RIG_DEVICES]; /* the step at which a device's data ends; 0: it does not */

static inline int has_no_data(uint32_t device, uint64_t step) {
    return current_ends[device] && step >= current_ends[device];
}

static inline void nap(unsigned microseconds) {
    struct timespec time = {0, 1000 * (long)microseconds};
    nanosleep(&time, NULL);
}

/* 1: trainers have arrays of any type, at times, for rows and for gradients. */
static int current_arrays;

static inline frugal_type array_type(uint32_t device, uint64_t step, int of_grads) {
    static const frugal_type types[] = {FRUGAL_FP32, FRUGAL_BF16, FRUGAL_FP16};
    return current_arrays ? types[test_mix3(41 + (uint64_t)of_grads, device, step) % 3] : FRUGAL_FP32;
}

/* Gradients as rig_lookup makes them, from the stream's rows at that time. The arrays have the types of the step. */
static inline void compute(void *grads, const void *rows, uint64_t step, uint32_t device, uint32_t n, uint32_t dim) {
    int as = (int)array_type(device, step, 0), to = (int)array_type(device, step, 1);
    for (uint32_t i = 0; i < n * dim; i++) {
        float x = 0.01f * reference_load(as, rows, i) + (float)test_unit(test_mix3(step, device, i)) - 0.5f;
        reference_store(to, grads, i, reference_round(to, x, -1));
    }
}

static inline uint64_t finished_steps(const stream *s) {
    return __atomic_load_n(&s->finished, __ATOMIC_ACQUIRE);
}

static inline int is_broken(const stream *s) {
    return s->lost_at != NEVER && finished_steps(s) >= s->lost_at;
}

static inline frugal_status fail_broken(const stream *s) {
    return frugal_fail(FRUGAL_ERR_CUDA, "the test took device %u away", s->device);
}

/* Is there a recall that can be done now? */
static inline int is_asked(const stream *s) {
    return s->copies && !is_broken(s) && copies_asked(s->copies, s->finished);
}

/* Does all such recalls. Returns 0 if there was none. */
static inline int do_recalls(const stream *s) {
    if (!is_asked(s)) return 0;
    uint64_t bits = test_mix2(s->device, frugal_load_relaxed(&s->copies->answered));
    if (s->delay && bits % 2) nap((unsigned)(bits / 2 % s->delay));
    return copies_answer(s->copies, s->finished);
}

/* Waits for the gate; 0 if it was forced open. */
static inline int stream_pass(const stream *s, uint64_t step) {
    const uint64_t *gates = frugal_gates(s->f);
    uint64_t open;
    while ((int64_t)((open = __atomic_load_n(gates, __ATOMIC_ACQUIRE)) - step) <= 0)
        if (!do_recalls(s)) nap(10);
    return (int64_t)(open - step) <= (int64_t)FRUGAL_GATES_FORCED;
}

static inline void stream_gather(stream *s, const job *j) {
    const frugal_store *store = frugal_get_store(s->f);
    const frugal_records *r = &j->step.records;
    uint64_t slot = j->step.step % RING;
    if (s->n[slot] != r->n) s->wrong = 1; /* looked up before `announced` had returned, or with another batch */
    if (s->copies && !copies_refresh(s->copies, &j->step)) s->wrong = 1;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t row = r->rows[r->record_of[i]];
        const void *from = s->copies && s->copies->has[row] ? copies_at(s->copies, row) : frugal_row_at(store, row);
        if (s->rows[slot][i] != row) s->wrong = 1;
        frugal_convert((char *)j->rows + i * j->step.stride * frugal_type_bytes(j->step.as), j->step.as, from,
                       store->rows_as, store->dim);
    }
}

static inline void stream_sum(const stream *s, const job *j) {
    const frugal_store *store = frugal_get_store(s->f);
    if (!j->brings || !j->grads) return;
    if (s->copies)
        copies_update(s->copies, &j->step, j->grads);
    else if (j->step.alone || j->step.as != FRUGAL_FP32)
        frugal_update_rows(store, &j->step, NULL, j->grads, 0, j->step.records.n_unique);
    else
        frugal_sum_gradients(&j->step.records, j->grads, j->step.stride, store->dim);
}

/* The next job, after the recalls that come before it. */
static inline job stream_take(stream *s) {
    for (;; do_recalls(s)) {
        pthread_mutex_lock(&s->lock);
        while (!is_asked(s) && s->head == s->tail) pthread_cond_wait(&s->filled, &s->lock);
        int recalls = is_asked(s);
        job j = {0};
        if (!recalls) j = s->queue[s->head++ % QUEUE];
        pthread_mutex_unlock(&s->lock);
        if (!recalls) return j;
    }
}

static inline void *stream_main(void *argument) {
    stream *s = argument;
    uint32_t dim = frugal_get_store(s->f)->dim;
    int forced = 0;
    for (;;) {
        job j = stream_take(s);
        forced |= is_broken(s);
        uint64_t bits = test_mix3(j.step.step, s->device, s->head);
        if (s->delay && bits % 2) nap((unsigned)(bits / 2 % s->delay));
        switch (j.kind) {
        case LOOKUP:
            if (s->kind == WAITING && !stream_pass(s, j.step.step)) forced = 1;
            if (!forced) stream_gather(s, &j);
            break;
        case COMPUTE:
            if (!forced) compute((void *)(uintptr_t)j.grads, j.rows, j.step.step, s->device, j.n, dim);
            break;
        case UPDATE:
            if (!forced) stream_sum(s, &j);
            if (!is_broken(s)) __atomic_store_n(&s->finished, j.step.step + 1, __ATOMIC_RELEASE);
            break;
        default:
            return NULL;
        }
    }
}

static inline void stream_put(stream *s, const job *j) {
    pthread_mutex_lock(&s->lock);
    if (s->tail - s->head == QUEUE) abort();
    s->queue[s->tail++ % QUEUE] = *j;
    pthread_cond_signal(&s->filled);
    pthread_mutex_unlock(&s->lock);
}

static inline frugal_status stream_lookup(void *device, const frugal_step *step, void *rows) {
    const stream *s = device;
    if (step->records.record_of != frugal_record_of(s->f, s->device, step->step))
        abort(); /* it was told of the batch */
    stream_put(device, &(job){.kind = LOOKUP, .step = *step, .rows = rows});
    return FRUGAL_OK;
}

static inline frugal_status stream_update(void *device, const frugal_step *step, const void *grads) {
    stream *s = device;
    stream_put(s, &(job){.kind = UPDATE, .step = *step, .grads = grads, .brings = step->brings});
    for (int i = 0; s->linger && i < 300 && __atomic_load_n(&s->finished, __ATOMIC_RELAXED) <= step->step; i++) nap(10);
    if (s->linger) nap(300);
    return FRUGAL_OK;
}

static inline frugal_status stream_poll(void *device, uint64_t *steps) {
    stream *s = device;
    *steps = finished_steps(s);
    if (s->copies) copies_count(s->copies, s->f, s->device);
    return is_broken(s) ? fail_broken(s) : FRUGAL_OK;
}

static inline uint64_t stream_ask(stream *s, uint64_t step, const uint32_t *rows, uint32_t n) {
    pthread_mutex_lock(&s->lock);
    uint64_t number = copies_ask(s->copies, step, rows, n);
    if (number == 0) abort();
    pthread_cond_signal(&s->filled);
    pthread_mutex_unlock(&s->lock);
    return number;
}

/* Returns 0 if the device is lost before. */
static inline int stream_settle(const stream *s, uint64_t number) {
    while (!copies_are_answered(s->copies, number) && !is_broken(s)) nap(10);
    return !is_broken(s);
}

static inline frugal_status stream_write_back(void *device, const uint32_t *rows, uint32_t n) {
    stream *s = device;
    return stream_settle(s, stream_ask(s, 0, rows, n)) ? FRUGAL_OK : fail_broken(s);
}

static inline frugal_status stream_recall(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n) {
    stream *s = device;
    if (done && finished_steps(s) < step && !has_no_data(s->device, step - 1)) s->wrong = 1;
    if (is_broken(s)) return fail_broken(s);
    if (s->refusals > 0) {
        s->refusals -= s->refusals != UINT32_MAX;
        return frugal_fail(FRUGAL_ERR_MEMORY, "device %u has no memory", s->device);
    }
    if (!done && test_mix2(step, s->device) % 2) return FRUGAL_AGAIN;
    s->copies->asked_for[step % FRUGAL_P2F_SLOTS] = stream_ask(s, done ? 0 : step, rows, n);
    return FRUGAL_OK;
}

static inline int stream_recalled(void *device, uint64_t step) {
    const stream *s = device;
    return copies_are_answered(s->copies, s->copies->asked_for[step % FRUGAL_P2F_SLOTS]);
}

static inline void stream_announced(void *device, const frugal_step *step) {
    stream *s = device;
    const uint32_t *record_of = frugal_record_of(s->f, s->device, step->step);
    uint64_t slot = step->step % RING;
    if (s->announced > step->step + 1) s->announced = step->step; /* cancelled */
    if (s->announced != step->step) s->wrong = 1;
    s->announced = step->step + 1;
    if (s->linger) nap(100);
    s->n[slot] = step->records.n;
    for (uint32_t i = 0; i < step->records.n; i++) s->rows[slot][i] = step->records.rows[record_of[i]];
}

static inline void stream_cancelled(void *device) {
    stream *s = device;
    s->cancels++;
    if (s->copies) stream_settle(s, frugal_load_relaxed(&s->copies->asked)); /* nobody asks now */
    s->announced = frugal_settings(s->f)->first_step;                        /* told again, from where it is */
}

static inline int stream_waits(void *device) {
    return ((stream *)device)->kind == WAITING;
}

static inline frugal_status stream_preload(void *device, const uint32_t *rows, uint32_t n) {
    (void)device, (void)rows, (void)n;
    return FRUGAL_OK;
}

static inline int stream_verify(void *device) {
    const stream *s = device;
    return !s->copies || copies_verify(s->copies, s->f, s->device);
}

static inline void stream_empty(void *device) {
    stream *s = device;
    if (s->copies) memset(s->copies->has, 0, sizeof s->copies->has);
}

static inline void stream_close(void *device) {
    stream *s = device;
    stream_put(s, &(job){.kind = END});
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->filled);
    pthread_mutex_destroy(&s->lock);
    if (s->copies) free(s->copies->rows);
    free(s->copies);
}

static inline int stream_updates_in_place(void *device) {
    return frugal_settings(((stream *)device)->f)->alone != FRUGAL_ALONE_STAGED;
}

/* Of a device with copies; the others have no write_back. */
static const frugal_device_ops stream_ops = {.lookup = stream_lookup,
                                             .update = stream_update,
                                             .preload = stream_preload,
                                             .verify = stream_verify,
                                             .empty = stream_empty,
                                             .close = stream_close,
                                             .updates_in_place = stream_updates_in_place,
                                             .poll = stream_poll,
                                             .announced = stream_announced,
                                             .cancelled = stream_cancelled,
                                             .waits_for_gate = stream_waits,
                                             .write_back = stream_write_back,
                                             .recall = stream_recall,
                                             .recalled = stream_recalled};

/* >>fleet: devices of all kinds, and their trainers */

typedef struct fleet {
    rig r;
    stream s[RIG_DEVICES];
    int kinds[RIG_DEVICES];
    uint32_t ahead;   /* steps that are announced before a lookup, beyond its own */
    int device_major; /* one thread: a device runs as far ahead as it may before the next has its turn */
    uint64_t generation;
    uint64_t from, to; /* steps of a phase */
    float *rows[RIG_DEVICES][RING], *grads[RIG_DEVICES][RING];
    atomic_int ended_by[RIG_DEVICES]; /* the status that ended a trainer */
    char said[RIG_DEVICES][512];
} fleet;

static uint64_t current_generation;

/* Some batches are empty, some bring no gradients; after a cancel the batches differ. */
static inline void vary(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    uint64_t bits = test_mix3(current_generation, device, step);
    for (uint32_t i = 0; i < b->n; i++)
        b->keys[i] = (b->keys[i] + bits % 3) % r->desc.tables[i < b->split ? 0 : 1].rows;
    if (bits / 3 % 8 == 0 || has_no_data(device, step)) b->n = b->split = 0;
    if (bits / 24 % 4 == 0) b->brings = 0;
}

static inline int read_only(uint32_t device, uint64_t step, const rig_batch *b) {
    return !b->brings && test_mix3(77, device, step) % 2;
}

static inline frugal_status announce_once(fleet *w, uint32_t d, int wait) {
    rig *r = &w->r;
    if (has_no_data(d, r->announced[d])) { /* again, if it was cancelled */
        r->announced[d]++;
        return frugal_finish(r->f, d);
    }
    rig_batch b = rig_batch_of(r, d, r->announced[d]);
    frugal_keys segments[2] = {{.table = 0, .keys = b.keys, .n = b.split},
                               {.table = 1, .keys = b.keys + b.split, .n = b.n - b.split}};
    frugal_batch batch = {segments, 2, read_only(d, r->announced[d], &b)};
    frugal_status status = wait ? frugal_announce(r->f, d, r->announced[d], &batch)
                                : frugal_try_announce(r->f, d, r->announced[d], &batch);
    if (status == FRUGAL_OK) r->announced[d]++;
    return status;
}

/* Lookup, computation, update: on a stream, or by this thread. */
static inline frugal_status step_once(fleet *w, uint32_t d, uint64_t step) {
    rig *r = &w->r;
    rig_batch b = rig_batch_of(r, d, step);
    float *rows = w->rows[d][step % RING], *grads = w->grads[d][step % RING];
    uint64_t bits = test_mix3(31, d, step);
    frugal_status status;
    if (has_no_data(d, step)) { /* its loader may not have said so yet */
        if (step > current_ends[d]) return FRUGAL_OK;
        status = frugal_lookup(r->f, d, step, rows);
        return status == FRUGAL_FINISHED ? FRUGAL_OK : status == FRUGAL_OK ? FRUGAL_ERR_ORDER : status;
    }
    const frugal_row_array to = {.rows = rows, .as = array_type(d, step, 0)};
    for (uint64_t repeats = bits % 8 ? 1 : 2; repeats > 0; repeats--)
        if ((status = frugal_lookup_into(r->f, d, step, &to)) != FRUGAL_OK) return status;
    if (w->kinds[d] == HOST)
        compute(grads, rows, step, d, b.n, r->desc.dim);
    else
        stream_put(&w->s[d], &(job){.kind = COMPUTE, .step.step = step, .rows = rows, .grads = grads, .n = b.n});
    frugal_gradients g = {.grads = grads, .lr = r->lr, .as = array_type(d, step, 1)};
    return frugal_update(r->f, d, step, b.brings ? &g : NULL);
}

/* The status of the first of a device's loader and trainer that ends. */
static inline void end(fleet *w, uint32_t d, frugal_status status) {
    int none = 0;
    if (status == FRUGAL_OK || !atomic_compare_exchange_strong(&w->ended_by[d], &none, (int)status)) return;
    snprintf(w->said[d], sizeof w->said[d], "%s", frugal_message());
}

typedef struct hand {
    pthread_t thread;
    fleet *w;
    uint32_t device;
    int loads, trains;
} hand;

/* The loop of one device: its loader, its trainer, or both. */
static inline void *hand_main(void *argument) {
    const hand *h = argument;
    fleet *w = h->w;
    uint32_t d = h->device;
    frugal_status status = FRUGAL_OK;
    for (uint64_t step = w->from; step < w->to && status == FRUGAL_OK; step++) {
        while (h->loads && status == FRUGAL_OK && w->r.announced[d] <= step + w->ahead) status = announce_once(w, d, 1);
        if (h->trains && status == FRUGAL_OK) status = step_once(w, d, step);
    }
    end(w, d, status);
    return NULL;
}

static inline void train_in_threads(fleet *w, int with_loaders) {
    hand hands[2 * RIG_DEVICES];
    uint32_t n = 0;
    for (uint32_t d = 0; d < w->r.desc.devices; d++) {
        hands[n++] = (hand){.w = w, .device = d, .trains = 1, .loads = !with_loaders};
        if (with_loaders) hands[n++] = (hand){.w = w, .device = d, .loads = 1};
    }
    for (uint32_t i = 0; i < n; i++)
        if (pthread_create(&hands[i].thread, NULL, hand_main, &hands[i])) abort();
    for (uint32_t i = 0; i < n; i++) pthread_join(hands[i].thread, NULL);
}

static inline frugal_status train_in_one(fleet *w) {
    rig *r = &w->r;
    uint32_t polled = 0; /* number of polled devices, of which only one may be ahead of the others */
    for (uint32_t d = 0; d < r->desc.devices; d++) polled += w->kinds[d] != HOST;
    /* Steps of a device before the next has its turn; a device that is to write back what others recall cannot be given
     * more than one whose gate waits for them. */
    uint32_t run = w->device_major && polled < 2 && r->desc.alone != FRUGAL_ALONE_KEPT ? w->ahead + 1 : 1;
    for (uint64_t step = w->from; step < w->to; step += run) {
        uint64_t most = step + run > w->to ? w->to : step + run;
        for (uint64_t t = step; t <= step + w->ahead || t < most; t++)
            for (uint32_t d = 0; d < r->desc.devices; d++)
                if (r->announced[d] == t) {
                    frugal_status status = announce_once(w, d, 1);
                    if (status != FRUGAL_OK) return status;
                }
        for (uint32_t pass = 0; pass < 2; pass++) /* devices that do not wait first */
            for (uint64_t s = step; s < most; s++)
                for (uint32_t d = 0; d < r->desc.devices; d++) {
                    if (run > 1 && (w->kinds[d] == WAITING) == (pass == 1)) continue;
                    if (run == 1 && pass == 1) continue;
                    frugal_status status = step_once(w, d, s);
                    if (status != FRUGAL_OK) return status;
                }
    }
    return FRUGAL_OK;
}

/* The reference's part of the steps up to `to`. */
static inline void judge(fleet *w, uint64_t to) {
    rig *r = &w->r;
    uint32_t dim = r->desc.dim;
    float *rows = malloc(4 * (size_t)RIG_MOST_KEYS * dim), *grads = malloc(4 * (size_t)RIG_MOST_KEYS * dim);
    while (r->step < to) {
        for (uint32_t d = 0; d < r->desc.devices; d++) {
            rig_batch b = rig_batch_of(r, d, r->step);
            r->n[d] = b.n, r->brings[d] = b.brings;
            int as = (int)array_type(d, r->step, 0), to_as = (int)array_type(d, r->step, 1);
            for (uint32_t i = 0; i < b.n; i++) {
                r->rows[d][i] = (uint32_t)((i < b.split ? 0 : r->desc.tables[0].rows) + b.keys[i]);
                for (uint32_t j = 0; j < dim; j++)
                    reference_store(as, rows, i * dim + j,
                                    reference_round(as, r->ref.weights[(uint64_t)r->rows[d][i] * dim + j], -1));
            }
            compute(grads, rows, r->step, d, b.n, dim);
            for (uint32_t i = 0; i < b.n * dim; i++) r->grads[d][i] = reference_load(to_as, grads, i);
        }
        rig_judge(r, 0);
    }
    free(rows), free(grads);
}

/* A row, weights and state together, as `table` has it, and as the reference does. */
static inline int is_row(const rig *r, const float *weights, const float *state, uint64_t row) {
    uint64_t dim = r->desc.dim, floats = r->ref.state_floats;
    return !memcmp(weights + row * dim, r->ref.weights + row * dim, 4 * dim) &&
           !memcmp(state + row * floats, r->ref.state + row * floats, 4 * floats);
}

/* After the loss each row is that of the last step that all devices finished. If rows are updated in place, those that
 * one device alone touches in the next step may have its update. Of `kept` rows at most a lost device had later
 * updates: they are those of an earlier step. */
static inline void compare_lost(fleet *w, uint64_t steps, unsigned long long kept) {
    rig *r = &w->r;
    uint64_t floats = r->ref.rows * r->desc.dim, state_floats = r->ref.rows * r->ref.state_floats;
    float *weights = malloc(4 * floats), *state = malloc(4 * (state_floats + 1));
    uint8_t earlier[COPIES] = {0}, good[COPIES] = {0};
    uint32_t touched[COPIES] = {0}; /* by row: bit d: device d touches it in the unfinished step */
    unsigned long long lost = 0;
    assert_true(r->ref.rows <= COPIES);
    rig_read(r, weights, state);
    for (;; judge(w, r->step + 1)) {
        uint8_t *seen = r->step < steps ? earlier : good;
        for (uint64_t row = 0; row < r->ref.rows; row++) seen[row] |= (uint8_t)is_row(r, weights, state, row);
        if (r->step == steps) break;
    }
    judge(w, steps + 1);
    for (uint32_t d = 0; d < r->desc.devices; d++)
        for (uint32_t i = 0; i < r->n[d]; i++) touched[r->rows[d][i]] |= 1u << d;
    for (uint64_t row = 0; row < r->ref.rows; row++) {
        int alone = touched[row] && (touched[row] & (touched[row] - 1)) == 0;
        if (good[row] || (alone && r->desc.alone != FRUGAL_ALONE_STAGED && is_row(r, weights, state, row))) continue;
        if (!earlier[row]) fail_msg("row %u is of no step", (unsigned)row);
        if (++lost > kept) fail_msg("row %u is of an earlier step, and %llu rows were kept", (unsigned)row, kept);
    }
    free(weights), free(state);
}

static inline copies *make_copies(const frugal_store *store, uint64_t seed) {
    copies *c = calloc(1, sizeof *c);
    assert_true(store->rows <= COPIES);
    c->store = store, c->seed = seed, c->room = 3, c->evicts = (unsigned)(test_mix2(seed, 1) % 4);
    c->rows = calloc(store->rows * copies_floats(store), sizeof(float));
    return c;
}

static inline void fleet_open(fleet *w, const frugal_desc *desc, unsigned delay) {
    rig *r = &w->r;
    frugal_desc d = *desc;
    d.allocate = test_allocate, d.release = test_release, d.user = &r->counter;
    r->change = vary, r->lr = 0.125f;
    r->f = open_or_fail(&d);
    r->desc = *frugal_settings(r->f);
    for (uint32_t i = 0; i < r->desc.devices; i++) {
        stream *s = &w->s[i];
        if (w->kinds[i] == HOST) {
            assert_int_equal(FRUGAL_OK, frugal_cpu_attach(r->f, i, &r->cache));
            continue;
        }
        s->f = r->f, s->device = i, s->kind = w->kinds[i], s->delay = delay;
        s->finished = s->announced = r->desc.first_step;
        frugal_device_ops ops = stream_ops;
        if (r->desc.alone == FRUGAL_ALONE_KEPT)
            s->copies = make_copies(frugal_get_store(r->f), test_mix2(i, delay));
        else
            ops.write_back = NULL;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->filled, NULL);
        if (pthread_create(&s->thread, NULL, stream_main, s)) abort();
        assert_int_equal(FRUGAL_OK, frugal_attach(r->f, i, &ops, s));
    }
    rig_start(r);
    w->from = w->to = r->step;
    for (uint32_t i = 0; i < r->desc.devices; i++)
        for (uint32_t k = 0; k < RING; k++)
            w->rows[i][k] = calloc((size_t)RIG_MOST_KEYS * r->desc.dim, 4),
            w->grads[i][k] = calloc((size_t)RIG_MOST_KEYS * r->desc.dim, 4);
}

static inline void fleet_close(fleet *w) {
    rig_free(&w->r); /* joins the streams */
    for (uint32_t i = 0; i < RIG_DEVICES; i++) {
        if (w->s[i].wrong) fail_msg("device %u was told other things than it was asked", i);
        for (uint32_t k = 0; k < RING; k++) free(w->rows[i][k]), free(w->grads[i][k]);
    }
}

/* Trains on up to `to` in one of the ways, and moves the reference along. */
static inline void phase(fleet *w, uint64_t to, int way) {
    w->from = w->r.step, w->to = to;
    w->device_major = way == 1;
    if (way <= 1)
        end(w, 0, train_in_one(w));
    else
        train_in_threads(w, way == 3);
    for (uint32_t d = 0; d < w->r.desc.devices; d++)
        if (w->ended_by[d]) fail_msg("device %u: %s", d, w->said[d]);
    judge(w, to);
}

#endif /* FLEET_H */
