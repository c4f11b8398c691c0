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

typedef struct run {
    const trial *t;
    expectation *e;
    frugal *f;
    frugal_workers *workers; /* shared; NULL: its own */
    test_counter counter;
    void *matrix, *matrix_state; /* the caller's table */
    uint64_t matrix_weights, matrix_state_floats;
    char file[64];
    workspace work[TRIAL_DEVICES];
    int on_gpus;                     /* 1: a device is on a GPU */
    atomic_uint next[TRIAL_DEVICES]; /* step to announce next; its loader's */
    pthread_mutex_t announced_lock;
    pthread_cond_t announced; /* `next` has grown, or the run has failed */
    uint32_t listed;          /* the boundary from which on rows are listed; TRIAL_BOUNDARIES: the beginning */
    uint32_t phase, from, to, announce_to[TRIAL_DEVICES];
    int mutation;
    atomic_int failed, phase_over;
    atomic_uint visits;  /* of lent threads */
    frugal_stats before; /* of the instances that were closed */
    char message[512];
} run;

/* The first failure is kept; all threads are woken. */
__attribute__((format(printf, 2, 3))) static inline void run_fail(run *r, const char *format, ...) {
    if (atomic_exchange(&r->failed, 1)) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->message, sizeof(r->message), format, arguments);
    va_end(arguments);
    if (r->f) frugal_stop(r->f);
    pthread_mutex_lock(&r->announced_lock);
    pthread_cond_broadcast(&r->announced);
    pthread_mutex_unlock(&r->announced_lock);
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

#endif /* RUN_H */
