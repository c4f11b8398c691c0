/* calls.h - a step, on devices of this process and of others; stop, drain, cancel.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_CALLS_H
#define FRUGAL_CALLS_H

#include "../waits/waits.h"

/* step.c */

typedef struct row_array {   /* where a lookup writes */
    float *rows;             /* NULL: into the staging block */
    uint64_t stride;         /* 0: dim */
    const frugal_bags *bags; /* NULL: by position */
} row_array;

FRUGAL_INTERNAL frugal_status announce_posted(frugal *f, uint32_t d, uint64_t step, const posted_batch *post);
FRUGAL_INTERNAL frugal_status lookup_step(frugal *f, uint32_t d, uint64_t step, row_array to, int wait);
FRUGAL_INTERNAL frugal_status check_pooling(const char *call, const frugal_bags *bags, const float *pooled);
FRUGAL_INTERNAL frugal_status update_step(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients);

FRUGAL_INTERNAL uint64_t next_handed(const frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status announce_here(frugal *f, const announcement *a);
FRUGAL_INTERNAL frugal_status await_block(frugal *f, uint32_t d, uint64_t step, const char *call);
FRUGAL_INTERNAL void commit_here(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *brought);

/* remote.c */

typedef struct member { /* a process that has joined */
    int socket, watch;
    uint32_t process;
    int welcomed;
    atomic_word *gates; /* its word (stream_gates.c); NULL: it has not been welcomed */
    pthread_mutex_t sending;
    FRUGAL_ATOMIC(uint32_t) gone; /* it has left, has ended, or was dismissed; set once */
    int ended;                    /* it has ended, which its descriptor tells; the doorman's */
} member;

typedef struct remote {
    frugal *f;
    uint32_t d;
    member *member;
    mailbox *mail;
    uint32_t flags;          /* of MESSAGE_ATTACH */
    pthread_mutex_t serving; /* held by the thread that serves its posts, or cancels them */
    pthread_mutex_t calling; /* one call at a time */
    uint64_t calls;
    uint64_t kept, written_back;        /* the part of the mailbox's counts that is counted here */
    uint64_t recalls[FRUGAL_P2F_SLOTS]; /* by step mod 64: number of its last CALL_RECALL */
    uint64_t asked_early;               /* step + 1 of a recall that can only begin when the step before is done */
    int waits;                          /* a lookup waits at its gate; the next three are of that wait */
    double since, met;                  /* when it began; when all had committed, or 0 */
    gate_watch watch;
} remote;

#if defined(__linux__)
FRUGAL_INTERNAL remote *remote_of(const frugal *f, uint32_t d);
FRUGAL_INTERNAL void count_remote_kept(remote *r);
FRUGAL_INTERNAL void remote_close(void *device);
FRUGAL_INTERNAL frugal_device_ops remote_operations_of(uint32_t flags);
FRUGAL_INTERNAL int take_update(remote *r);
FRUGAL_INTERNAL void take_last(remote *r);
FRUGAL_INTERNAL int serve_posts(frugal *f);
#endif
FRUGAL_INTERNAL void hold_posts(frugal *f);
FRUGAL_INTERNAL void drop_posts(frugal *f, uint64_t step);
FRUGAL_INTERNAL void release_posts(frugal *f);

/* drain.c */

FRUGAL_INTERNAL void stop_here(frugal *f);
FRUGAL_INTERNAL int is_idle(frugal *f);
FRUGAL_INTERNAL void drain_explain(frugal *f, const condition *what, char *text, size_t size);
FRUGAL_INTERNAL frugal_status fail_busy(frugal *f, const char *call, int idle);
FRUGAL_INTERNAL frugal_status write_back(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n, const char *call);
FRUGAL_INTERNAL void tell_undrained(frugal *f);
FRUGAL_INTERNAL void tell_idle_steps(frugal *f);
FRUGAL_INTERNAL void settle_counts(frugal *f);
FRUGAL_INTERNAL void hold_announcing_now(frugal *f);

#endif
