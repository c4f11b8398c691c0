/* run.h - a trial as frugal trains it: what all of its threads see, and how it fails. */
#ifndef RUN_H
#define RUN_H

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include "expectation.h"
#include "workspace.h"

enum { NO_MUTATION, MUTATE_GRADIENT, MUTATE_SKIP, MUTATE_SEED }; /* what the judge must notice */

/* What the machines of a trial have in common; most trials have one. */
typedef struct progress {
    struct run *runs; /* [machines] */
    uint32_t machines;
    pthread_mutex_t lock;            /* of run.f, where there are several */
    atomic_uint next[TRIAL_DEVICES]; /* step to announce next; its loader's */
    atomic_int failed;
    char message[512];
} progress;

typedef struct run {
    const trial *t;
    expectation *e;
    progress *p;
    frugal *f;
    uint32_t first, end;                    /* the devices of this machine */
    const struct frugal_machines *machines; /* NULL: there is one */
    frugal_workers *workers;                /* shared; NULL: its own */
    test_counter counter;
    void *matrix, *matrix_state; /* the caller's table */
    uint64_t matrix_weights, matrix_state_floats;
    char file[64];
    workspace work[TRIAL_DEVICES];
    int on_gpus; /* 1: a device is on a GPU */
    pthread_mutex_t announced_lock;
    pthread_cond_t announced; /* `next` has grown, or the run has failed */
    uint32_t listed;          /* the boundary from which on rows are listed; TRIAL_BOUNDARIES: the beginning */
    uint32_t phase, from, to, announce_to[TRIAL_DEVICES];
    int mutation;
    atomic_int phase_over;
    atomic_uint visits;  /* of lent threads */
    frugal_stats before; /* of the instances that were closed */
} run;

static inline void run_begin(run *r, progress *p) {
    r->p = p;
    pthread_mutex_init(&r->announced_lock, NULL);
    pthread_cond_init(&r->announced, NULL);
}
static inline void run_end(run *r) {
    pthread_cond_destroy(&r->announced);
    pthread_mutex_destroy(&r->announced_lock);
}
static inline void progress_begin(progress *p, run *runs, uint32_t machines) {
    memset(p, 0, sizeof *p);
    p->runs = runs, p->machines = machines;
    pthread_mutex_init(&p->lock, NULL);
    for (uint32_t i = 0; i < machines; i++) run_begin(&runs[i], p);
}
static inline void progress_end(progress *p) {
    for (uint32_t i = 0; i < p->machines; i++) run_end(&p->runs[i]);
    pthread_mutex_destroy(&p->lock);
}

/* The first failure is kept; all threads are woken. */
__attribute__((format(printf, 2, 3))) static inline void run_fail(run *r, const char *format, ...) {
    progress *p = r->p;
    if (atomic_exchange(&p->failed, 1)) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->message, sizeof p->message, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->machines; i++) {
        run *each = &p->runs[i];
        if (each->f) frugal_stop(each->f);
        pthread_mutex_lock(&each->announced_lock);
        pthread_cond_broadcast(&each->announced);
        pthread_mutex_unlock(&each->announced_lock);
    }
    pthread_mutex_unlock(&p->lock);
}

static inline int run_expect(run *r, frugal_status status, frugal_status wanted, const char *call, uint32_t device,
                             uint64_t step) {
    if (status == wanted) return 1;
    run_fail(r, "%s(device %u, step %llu) returned %d, not %d: %s", call, device, (unsigned long long)step, (int)status,
             (int)wanted, status == FRUGAL_OK ? "" : frugal_message());
    return 0;
}

static inline void run_pause(run *r) {
    if (!frugal_help(r->f)) sched_yield();
}

/* The instance that it has from now on; NULL: none. Returns the one before. */
static inline frugal *run_has(run *r, frugal *f) {
    pthread_mutex_lock(&r->p->lock);
    frugal *before = r->f;
    r->f = f;
    pthread_mutex_unlock(&r->p->lock);
    return before;
}

#endif /* RUN_H */
