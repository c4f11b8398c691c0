/* instance.h - the calls: steps, several processes, opening and closing, access, saves, numbers, serving.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_INSTANCE_H
#define FRUGAL_INSTANCE_H

#include "steps.h"

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

FRUGAL_INTERNAL int is_idle(frugal *f);
FRUGAL_INTERNAL void drain_explain(frugal *f, const condition *what, char *text, size_t size);
FRUGAL_INTERNAL frugal_status fail_busy(frugal *f, const char *call, int idle);
FRUGAL_INTERNAL frugal_status write_back(frugal *f, uint32_t d, const uint32_t *rows, uint32_t n, const char *call);
FRUGAL_INTERNAL void tell_undrained(frugal *f);
FRUGAL_INTERNAL void tell_idle_steps(frugal *f);
FRUGAL_INTERNAL void settle_counts(frugal *f);
FRUGAL_INTERNAL void hold_announcing_now(frugal *f);

/* instance.c */

FRUGAL_INTERNAL void open_locks(frugal *f);
FRUGAL_INTERNAL uint32_t bits_of_rows(uint64_t rows);
FRUGAL_INTERNAL uint32_t record_stride_of(uint32_t dim);
FRUGAL_INTERNAL frugal_status open_copies(frugal *f, const frugal_desc *desc);
FRUGAL_INTERNAL uint64_t take_bytes(uint64_t *at, uint64_t bytes);
FRUGAL_INTERNAL size_t lay_batches(const frugal *f, host_device *device);
FRUGAL_INTERNAL frugal_status open_device_list(frugal *f);
FRUGAL_INTERNAL size_t sort_bytes_of(const frugal *f);
FRUGAL_INTERNAL frugal_status open_own(frugal *f, host_device *device);

/* join.c */

FRUGAL_INTERNAL frugal_status map_device(frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status claim_device(frugal *f, uint32_t d);
FRUGAL_INTERNAL frugal_status join_counting(frugal *f);
FRUGAL_INTERNAL void leave_instance(frugal *f);
FRUGAL_INTERNAL void free_controller(frugal *f);

/* attach.c */

typedef struct remote_process { /* for which a device is attached */
    uint32_t process;
    atomic_word *gates; /* its word */
} remote_process;

FRUGAL_INTERNAL frugal_status attach_device(frugal *f, uint32_t d, const frugal_device_ops *ops, void *state,
                                            const remote_process *other);

/* door.c */

FRUGAL_INTERNAL frugal_status open_door(frugal *f);
FRUGAL_INTERNAL frugal_status open_name(frugal *f);
FRUGAL_INTERNAL void open_to_others(frugal *f);
FRUGAL_INTERNAL frugal_status close_door(frugal *f);
FRUGAL_INTERNAL void end_doorman(frugal *f);
FRUGAL_INTERNAL void free_door(frugal *f);

/* access.c */

FRUGAL_INTERNAL uint64_t row_of(const frugal *f, const frugal_keys *keys, uint32_t i);
FRUGAL_INTERNAL frugal_status check_keys(const frugal *f, const frugal_keys *keys, const char *call);

/* counts.c */

FRUGAL_INTERNAL void keep_counts(frugal *f);
FRUGAL_INTERNAL frugal_status give_back_counts(frugal *f, int changed);

/* served.c */

typedef struct served {
    frugal *f;                    /* desc, tables, store, first_row; `changed`: rows that differ from the file below */
    int file;                     /* the memory that versions share, or the table's file; -1: none */
    void *map;                    /* of that file, or memory of its own */
    size_t bytes;                 /* of the mapping */
    int is_private;               /* pages that are written are its own */
    uint64_t step;                /* the next to train */
    saved_chain chain;            /* the last of its saves; id 0: it is a table's file */
    uint64_t in_file;             /* the id of the last save whose rows are in the memory that versions share */
    uint64_t number, file_number; /* of the version, from 1; of the version with which its file came */
    uint64_t own_bytes;
} served;

FRUGAL_INTERNAL void close_served(served *v);
FRUGAL_INTERNAL frugal_status open_served(const frugal_served *from, uint32_t threads, const served *before, served *v,
                                          const char *call);
FRUGAL_INTERNAL uint64_t own_bytes(const served *v);

#endif
