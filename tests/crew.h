/* crew.h - devices in several processes beside the sequential reference: each process computes all of it, so it knows
 * what its device must read without asking the others. Processes are forked before any has a thread. Include after
 * cmocka.h. */
#ifndef CREW_H
#define CREW_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../frugal_counts.h"
#include "../frugal_secondaries.h"
#include "../frugal_seeing.h"
#include "reference_of.h"
#include "support.h"

enum { CREW_DEVICES = 4, CREW_KEYS = 24, CREW_ROWS = 60, CREW_DIM = 5 };
enum { CREW_FINE = 0, CREW_WRONG = 1, CREW_ENDED = 2 }; /* how a member's process ends */

/* Tells which line of a member's process failed, and why. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "# line %d: %s: %s\n", __LINE__, #condition, frugal_message());                            \
            return CREW_WRONG;                                                                                         \
        }                                                                                                              \
    } while (0)

struct crew;
typedef struct crew_device { /* a kind of device; NULL: on host cores */
    frugal_status (*attach)(const struct crew *c, frugal *f, uint32_t d);
    frugal_status (*lookup)(frugal *f, uint32_t d, uint64_t step, float *rows);
    frugal_status (*update)(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients);
} crew_device;

typedef struct crew {
    const crew_device *kinds[4]; /* by device */
    char name[48];
    frugal_desc desc;
    frugal_table tables[2];
    float sources[CREW_ROWS * CREW_DIM];
    frugal_cpu_desc cache;
    uint64_t steps;
    uint64_t ends[CREW_DEVICES]; /* the step at which a device's data ends; 0: with the others' */
    _Atomic(int) *attached;      /* becomes 1 when a member has its device; NULL: not wanted */
} crew;

static inline frugal_status crew_attach(const crew *c, frugal *f, uint32_t d) {
    return c->kinds[d] ? c->kinds[d]->attach(c, f, d) : frugal_cpu_attach(f, d, &c->cache);
}

static inline void crew_init(crew *c, uint32_t seed) {
    static unsigned worlds;
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "crew.%ld.%u", (long)getpid(), worlds++);
    for (uint32_t i = 0; i < CREW_ROWS * CREW_DIM; i++) c->sources[i] = (float)test_unit(test_mix3(seed, 77, i)) - 0.5f;
    c->tables[0] = (frugal_table){.rows = 40, .init = FRUGAL_INIT_COPY, .source = c->sources};
    c->tables[1] = (frugal_table){.rows = 20, .init = FRUGAL_INIT_COPY, .source = c->sources + 40 * CREW_DIM};
    c->desc = (frugal_desc){.tables = c->tables,
                            .n_tables = 2,
                            .dim = CREW_DIM,
                            .devices = 2,
                            .max_keys = CREW_KEYS,
                            .lookahead = 3,
                            .workers = 1,
                            .name = c->name,
                            .optimizer = {.kind = FRUGAL_ADAGRAD},
                            .stuck_seconds = 60};
    c->steps = 30;
}

typedef struct crew_batch {
    uint32_t n, split, rows[CREW_KEYS];
    uint64_t keys[CREW_KEYS]; /* keys[split] of table 0, the others of table 1 */
    float grads[CREW_KEYS * CREW_DIM];
} crew_batch;

/* What the device brings to the step, given the table at its beginning. */
static inline void crew_batch_of(const crew *c, const reference *ref, uint32_t device, uint64_t step, crew_batch *b) {
    b->n = c->ends[device] && step >= c->ends[device] ? 0 : CREW_KEYS - (uint32_t)(test_mix3(step, device, 99) % 4);
    b->split = b->n / 2;
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t rows = i < b->split ? 40 : 20, bits = test_mix3(step, device, i);
        b->keys[i] = bits % 3 ? bits / 3 % 6 : bits / 3 % rows; /* a hot set, so that devices meet */
        b->rows[i] = (uint32_t)(b->keys[i] + (i < b->split ? 0 : 40));
        for (uint32_t k = 0; k < CREW_DIM; k++)
            b->grads[i * CREW_DIM + k] = 0.01f * ref->weights[b->rows[i] * CREW_DIM + k] +
                                         (float)test_unit(test_mix3(step, device, i * CREW_DIM + k + 1000)) - 0.5f;
    }
}

static inline float crew_lr(uint64_t step) {
    return 0.125f / (float)(1 + step % 3);
}

/* Moves the reference to the next step. */
static inline void crew_judge(const crew *c, reference *ref, uint64_t step) {
    static crew_batch b[CREW_DEVICES];
    reference_batch batches[CREW_DEVICES];
    for (uint32_t d = 0; d < c->desc.devices; d++) {
        crew_batch_of(c, ref, d, step, &b[d]);
        batches[d] = (reference_batch){b[d].rows, b[d].n, b[d].n ? b[d].grads : NULL};
    }
    reference_step(ref, step, crew_lr(step), batches);
}

static inline void crew_reference(const crew *c, const frugal *f, reference *ref) {
    if (!reference_of(ref, f)) abort();
    for (uint32_t i = 0; i < CREW_ROWS * CREW_DIM; i++)
        ref->weights[i] = reference_round(ref->rows_as, c->sources[i], -1);
}

static inline frugal_status crew_announce(const crew *c, const reference *ref, frugal *f, uint32_t d, uint64_t step) {
    crew_batch b;
    crew_batch_of(c, ref, d, step, &b);
    frugal_keys segments[2] = {{.table = 0, .keys = b.keys, .n = b.split},
                               {.table = 1, .keys = b.keys + b.split, .n = b.n - b.split}};
    return frugal_announce(f, d, step, &(frugal_batch){segments, 2, 0});
}

/* Trains a device to the end, and compares what it reads. Returns OK or the first status that is not; *wrong: a row
 * differs. `ref` is at *step. */
static inline frugal_status crew_train(const crew *c, frugal *f, uint32_t d, reference *ref, uint64_t *step,
                                       uint64_t *announced, uint64_t to, int *wrong) {
    uint64_t last = c->ends[d] && c->ends[d] < to ? c->ends[d] : to;
    float rows[CREW_KEYS * CREW_DIM];
    frugal_status status = FRUGAL_OK;
    for (; *step < last; ++*step) {
        crew_batch b;
        for (; *announced < last && *announced <= *step + c->desc.lookahead; ++*announced)
            if ((status = crew_announce(c, ref, f, d, *announced)) != FRUGAL_OK) return status;
        if (c->ends[d] && *announced == c->ends[d]) frugal_finish(f, d); /* others announce ahead of this device */
        status = c->kinds[d] ? c->kinds[d]->lookup(f, d, *step, rows) : frugal_lookup(f, d, *step, rows);
        if (status != FRUGAL_OK) return status;
        crew_batch_of(c, ref, d, *step, &b);
        for (uint32_t i = 0; i < b.n && !*wrong; i++)
            *wrong = memcmp(rows + i * CREW_DIM, ref->weights + b.rows[i] * CREW_DIM, sizeof(float) * CREW_DIM) != 0;
        frugal_records r;
        if (frugal_get_records(f, d, *step, &r) == FRUGAL_OK) /* else the update fails, too */
            for (uint32_t i = 0; i < b.n && !*wrong; i++) *wrong = r.rows[r.record_of[i]] != b.rows[i];
        if (*wrong) return FRUGAL_OK;
        frugal_gradients g = {.grads = b.n ? b.grads : NULL, .lr = crew_lr(*step)};
        status = c->kinds[d] ? c->kinds[d]->update(f, d, *step, &g) : frugal_update(f, d, *step, &g);
        if (status != FRUGAL_OK) return status;
        crew_judge(c, ref, *step);
    }
    return status;
}

/* A member: joins with one device, trains it, leaves. Returns how its process shall end. */
static inline int crew_member(const crew *c, uint32_t d) {
    frugal *f;
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    frugal_status status = frugal_join(c->name, 30, &f);
    if (status == FRUGAL_OK) {
        crew_reference(c, f, &ref);
        status = crew_attach(c, f, d);
    }
    if (status == FRUGAL_OK && c->attached) *c->attached = 1;
    if (status == FRUGAL_OK) status = crew_train(c, f, d, &ref, &step, &announced, c->steps, &wrong);
    if (wrong) fprintf(stderr, "# device %u, step %u: a row differs\n", d, (unsigned)step);
    if (status != FRUGAL_OK && status != FRUGAL_ERR_LOST && status != FRUGAL_STOPPED)
        fprintf(stderr, "# device %u, step %u: %s\n", d, (unsigned)step, frugal_message());
    if (status != FRUGAL_OK) wrong |= status == FRUGAL_ERR_LOST || status == FRUGAL_STOPPED ? 0 : 1;
    frugal_close(f);
    return wrong ? CREW_WRONG : status == FRUGAL_OK ? CREW_FINE : CREW_ENDED;
}

static inline pid_t crew_fork(const crew *c, uint32_t d) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(crew_member(c, d));
    return child;
}

static inline int crew_wait(pid_t child) { /* its exit status; -1: it was killed */
    int how = 0;
    while (waitpid(child, &how, 0) < 0) continue;
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

/* Does the drained table equal the reference? */
static inline int crew_equals(frugal *f, const reference *ref, float *weights, float *state) {
    for (uint32_t t = 0, first = 0; t < 2; first += 40, t++) {
        uint64_t keys[40];
        for (uint32_t i = 0; i < 40; i++) keys[i] = i;
        frugal_keys k = {.table = t, .keys = keys, .n = t ? 20 : 40};
        if (frugal_read_rows(f, &k, weights + first * CREW_DIM, state + first * ref->state_floats) != FRUGAL_OK)
            return 0;
    }
    return !memcmp(weights, ref->weights, sizeof(float) * CREW_ROWS * CREW_DIM) &&
           !memcmp(state, ref->state, sizeof(float) * CREW_ROWS * ref->state_floats);
}

#endif /* CREW_H */
