/* waits.h - what a thread waits for, and does meanwhile; workers; the gate of a step.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_WAITS_H
#define FRUGAL_WAITS_H

#include "../steps/steps.h"

/* notice.c */

/* Of the call, its step, the seconds, and why: of STUCK, and of the notice before. */
#define STUCK_FORMAT "%s, step %llu: nothing has moved for %.3g s: %s"

FRUGAL_INTERNAL_DATA _Thread_local int is_worker;
FRUGAL_INTERNAL void open_notices(frugal *f, frugal_notice call, void *user);
FRUGAL_INTERNAL void give_notice(frugal *f, const char *format, ...);
FRUGAL_INTERNAL double notice_seconds(frugal *f);
FRUGAL_INTERNAL double tell_wait(frugal *f, double after, const char *format, ...);
FRUGAL_INTERNAL void tell_found(frugal *f, const char *call, const found_rows *found);
FRUGAL_INTERNAL void explain_announce(const frugal *f, uint32_t d, uint32_t late, uint64_t step, char *text,
                                      size_t size);
FRUGAL_INTERNAL void explain_update(const frugal *f, uint32_t late, uint64_t step, char *text, size_t size);
FRUGAL_INTERNAL void explain_ahead(const frugal *f, uint32_t late, uint64_t closed, char *text, size_t size);

/* help.c */

FRUGAL_INTERNAL int help_sort(frugal *f, double *since);
FRUGAL_INTERNAL int help_plan(frugal *f, double *since);
FRUGAL_INTERNAL int help_gate(frugal *f, double *since);
FRUGAL_INTERNAL int help_ahead(frugal *f, double *since);
FRUGAL_INTERNAL int help_queue(frugal *f, double *since);
FRUGAL_INTERNAL int help_once(frugal *f, double *since);

/* wait.c */

typedef struct condition {
    int (*ready)(frugal *f, const struct condition *what);
    void (*explain)(frugal *f, const struct condition *what, char *text, size_t size);
    uint32_t d; /* the device, if the call has one */
    uint64_t step;
    const char *call; /* the call that waits */
    int devices;      /* 1: it waits for devices, and the loss of one ends it; 2: for their batches, too: a bad key */
} condition;

FRUGAL_INTERNAL frugal_status wait_until(frugal *f, const condition *what);

/* workers.c */

#define MAX_WORKERS 1024u

FRUGAL_INTERNAL_DATA const memory_part event_part;
FRUGAL_INTERNAL frugal_status take_seat(frugal *f, frugal_workers *w);
FRUGAL_INTERNAL void leave_workers(frugal *f);
FRUGAL_INTERNAL void close_workers(frugal *f);
FRUGAL_INTERNAL frugal_status open_workers(frugal *f);

/* gate.c */

/* The wait of a thread, which notes for how long each cause kept the gate closed. */
typedef struct gate_watch {
    condition what; /* first: the condition's functions find the watch by it */
    int (*ready)(frugal *f, const condition *what);
    gate_cause now; /* of kind NONE: not waiting yet, or no longer */
    double since;   /* when it became the cause */
    uint64_t cause_ns[CAUSES];
} gate_watch;

FRUGAL_INTERNAL int committed_ready(frugal *f, const condition *what);
FRUGAL_INTERNAL int own_ready(frugal *f, const condition *what);
FRUGAL_INTERNAL int gate_ready(frugal *f, const condition *what);
FRUGAL_INTERNAL void gate_explain(frugal *f, const condition *what, char *text, size_t size);
FRUGAL_INTERNAL void turn_cause(frugal *f, gate_watch *w, const gate_cause *next);
FRUGAL_INTERNAL int watched_ready(frugal *f, const condition *what);
FRUGAL_INTERNAL void count_wait(host_device *device, uint64_t step, uint64_t ns, const gate_watch *w);
FRUGAL_INTERNAL frugal_status pass_gate(frugal *f, uint32_t d, uint64_t step, int wait);

#endif
