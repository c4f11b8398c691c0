/* host.h - the instance: structs, accessors and constants that the parts of frugal_flush.c share.
 *
 * Private. A trainer includes frugal.h; only frugal_flush.c compiles this, with the parts in the order that it lists.
 *
 * These names mean the same in every part. `d` is a device's number. `device` is what the instance knows of it; in the
 * device's own operations it is the state that frugal_attach was given. A slot is a slot of the queue, for rows that
 * are due in one step. A seat is the place of an instance at the workers that serve it. `work` is updates that a thread
 * has taken.
 */
#ifndef FRUGAL_HOST_H
#define FRUGAL_HOST_H

/* Macros that leave parts out (frugal.h, section 4). What other parts call of these has stand-ins in the headers of
 * their rooms; what programs call is refused by left_out.c. */
#if defined(FRUGAL_NO_SAVES) && !defined(FRUGAL_NO_SERVING)
#define FRUGAL_NO_SERVING /* what is served was saved */
#endif
#if defined(FRUGAL_NO_SERVING) || defined(FRUGAL_NO_SEEING) || defined(FRUGAL_NO_SECONDARIES) ||                       \
    defined(FRUGAL_NO_PROCESSES)
#pragma GCC diagnostic ignored "-Wunused-function"  /* what only these parts call */
#pragma GCC diagnostic ignored "-Wunused-parameter" /* stand-ins, refusals */
#define FAIL_LEFT_OUT(call, part, macro)                                                                               \
    frugal_fail(FRUGAL_ERR_ARGUMENT, call ": " part " left out of this library; compile it without " macro)
#endif

/* Of names that cross parts: static in frugal_flush.c, which includes all parts, or all that are wanted. */
#if defined(FRUGAL_FLUSH_C)
#define FRUGAL_INTERNAL      static
#define FRUGAL_INTERNAL_DATA static
#elif defined(FRUGAL_PARTS) /* each part is compiled, to see that it can be (tests/compile/parts) */
#define FRUGAL_INTERNAL      __attribute__((visibility("hidden")))
#define FRUGAL_INTERNAL_DATA extern __attribute__((visibility("hidden")))
#else
#error "this is a part of frugal_flush.c: compile that file, which includes this one"
#endif

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS, MADV_HUGEPAGE */
#endif
#ifndef FRUGAL_ATOMICS
#define FRUGAL_ATOMICS
#endif
#include "../frugal_bindings.h"
#include "../frugal_counts.h"
#include "../frugal_machines.h"
#include "../frugal_p2f.h"
#include "../frugal_save.h"
#include "../frugal_secondaries.h"
#include "../frugal_seeing.h"
#include "../frugal_serve.h"
#include "device.h"
#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#if !defined(__SSE__)
#include <fenv.h>
#endif
#if defined(__linux__) && !defined(FRUGAL_NO_PROCESSES)
#define HAS_PROCESSES 1
#else
#define HAS_PROCESSES 0
#endif

_Static_assert(sizeof(size_t) == 8, "tables are larger than a 32-bit address space");

#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define CACHE_LINE  64u /* bytes that processors move at a time */

typedef struct host_event { /* changed only by event.c */
    FRUGAL_ATOMIC(uint32_t) word;
    uint8_t pad[60];
} host_event;

typedef FRUGAL_ATOMIC(uint8_t) worth_byte;
typedef FRUGAL_ATOMIC(uint32_t) atomic_count;
typedef FRUGAL_ATOMIC(uint64_t) atomic_word;

#include "shared.h"

/* How far a batch has come (announce.c). SORTING: a thread writes it. AWAY: its device sorts it. BAD: it has found a
 * key that is too large. Memory that was never used is of none that is to be sorted. */
enum { BATCH_SORTED, BATCH_HANDED, BATCH_SORTING, BATCH_AWAY, BATCH_BAD };
/* Which of a batch's arrays are in host memory: all, if the host has sorted it; `rows` alone; none. */
enum { ALL_HERE, ROWS_HERE, NONE_HERE };

/* How the rows of all tables are dealt over machines (deal.c). Constant once the instance is open. */
typedef struct dealing {
    frugal_wire wire;
    uint32_t me, machines, here; /* this machine; how many; devices on each */
    frugal_deal deal;
    uint64_t ids, block;                     /* of all tables on all machines; BLOCKS: ids of a machine */
    uint32_t by;                             /* ids are divided by it: the number of machines, or `block` */
    uint64_t reciprocal;                     /* 2^64 / by, rounded up: id / by is the upper half of the product */
    uint32_t homes_sum;                      /* LISTED: CRC-32C of the homes */
    uint64_t *first_id;                      /* [n_tables + 1]: of each table */
    uint32_t *dealt, *ids_of;                /* LISTED: [ids] the dealt number of an id; the id of a dealt number */
    uint64_t start[FRUGAL_MAX_MACHINES + 1]; /* the first dealt number of machine (me + k) % machines */
    int early;                               /* 1: rows are sent before the gate opens if they can be */
    int in_place;                            /* 1: devices that are away update in place */
    FRUGAL_ATOMIC(uint32_t) waiting;         /* trainers that wait in a lookup; relaxed: a hint of what is urgent */
    host_event event;                        /* what the communication thread sleeps on */
} dealing;

typedef struct host_batch { /* an announced batch: handed in by the loader, sorted by any thread, read by the trainer */
    FRUGAL_ATOMIC(uint32_t) stage; /* of the above; once it is sorted, all below is constant, but see record_of */
    uint32_t n, n_unique;
    uint32_t n_own; /* unique rows whose home is this machine; the others, guests, follow (guests.c) */
    int read_only;
    int has_record_of;   /* `record_of` is written: by the first that asks for it (frugal_record_of) */
    int here;            /* of the above */
    uint32_t *rows;      /* [n_unique], rising; of guests the dealt numbers (deal.c) */
    uint32_t *record_of; /* [n]; until the batch is sorted: its rows by position */
    uint32_t *order;     /* [n] */
    uint32_t *start;     /* [n_unique + 1] */
    uint64_t step;
    uint32_t n_outdated; /* in a process that has joined: rows of outdated copies; the process that opened finds them */
    int counted;         /* the instance was counting when it was announced (worth.c) */
    uint8_t *worth;      /* [n_unique], if `counted`: what each row was worth then; written by planners */
} host_batch;

enum { SORT_PIECES = 16, SORT_DIGITS = 4096 };
#ifndef SORT_LARGE /* keys from which on a batch is sorted in pieces. Tests cut smaller batches, too */
#define SORT_LARGE 131072u
#endif

typedef struct sort_memory {         /* for one batch at a time, of any device (announce.c) */
    FRUGAL_ATOMIC(uint64_t) takers;  /* since it was free: the first one sorts here, the others found it taken */
    uint64_t *pairs, *other;         /* [max_keys]: row << 32 | position */
    uint32_t (*digits)[SORT_DIGITS]; /* [SORT_PIECES]; of instances whose batches may be large */
} sort_memory;

typedef struct frugal_jobs { /* work in pieces (team.c) */
    pthread_mutex_t lock;
    pthread_cond_t given, left;   /* a job is there; no other thread is inside a job any longer */
    struct team_job *first;       /* under the lock */
    FRUGAL_ATOMIC(uint32_t) open; /* their number */
} frugal_jobs;

/* What keeps a gate closed (gate.c), or a step from being legal (step.c), for messages, traces and metrics. */
typedef enum {
    CAUSE_NONE,     /* it is open */
    CAUSE_COMMIT,   /* a device has not updated the step before */
    CAUSE_WORK,     /* a device was given its update, and has not finished it */
    CAUSE_ANNOUNCE, /* a device has not announced the step */
    CAUSE_CLOSE,    /* the step before is being closed */
    CAUSE_RECALL,   /* a device has not written back rows that are recalled */
    CAUSE_PLAN,     /* the step is being planned */
    CAUSE_FLUSH,    /* rows are not flushed */
    CAUSE_MACHINES, /* rows of other machines have not arrived, or what was sent to them has not left */
    CAUSE_AHEAD,    /* of an announcement: it is as far ahead as it may be */
    CAUSES
} cause_kind;

/* Upper bounds of a histogram's buckets: 1 us, and four times as much from one to the next; the last has none. */
enum { WAIT_BUCKETS = 13 };

/* A device's gate waits. The trainer counts; any thread reads. */
typedef struct gate_waits {
    FRUGAL_ATOMIC(uint64_t) buckets[WAIT_BUCKETS], ns; /* waits by their time; their sum */
    FRUGAL_ATOMIC(uint64_t) cause_ns[CAUSES];
    struct { /* of the longest since metrics were written. `ns` is read without the lock, too */
        pthread_mutex_t lock;
        atomic_word ns;
        uint64_t step;
        cause_kind cause; /* what most of it was waited for */
    } worst;
    struct { /* of the worst that is being written: by the writer of metrics */
        uint64_t step;
        cause_kind cause;
    } shown;
} gate_waits;

/* A device's first lookups of a table's rows. The trainer counts; any thread reads. */
typedef struct table_hits {
    FRUGAL_ATOMIC(uint64_t) hits, misses;
    FRUGAL_ATOMIC(uint64_t) worst; /* of a step since metrics were written, with the least share: hits << 32 | rows */
} table_hits;

/* Of a table in a file: the device's batches whose pages are not asked for (read_ahead.c). Under the lock of
 * read_ahead. */
typedef struct ahead_rows {
    uint64_t step, end; /* of the steps from `step` to below `end` */
    uint32_t row;       /* in the first of them: rows before this one are done */
} ahead_rows;

/* Of a device that keeps updates in its cache. `lock` is held during lookup, update, recount and write_back, because
 * other threads have it write rows back; and while its recalls are done, or cancelled. */
typedef struct device_keeping {
    pthread_mutex_t lock;
    /* Bit t mod 64: the device has begun with its recalls for step t, and the state machine has not been told that they
     * are done. Only with `poll`. Set under `lock`, cleared under polling.lock. */
    atomic_word recalling;
    atomic_word now, kept, written_back; /* of frugal_count_kept; written under `lock`, read by any thread */
    int refused;                         /* recalls in a row; under `lock` */
    int is_recalled;                     /* 1: a thread is having it write back for a gate; under `lock` */
} device_keeping;

typedef struct host_device {
    FRUGAL_ATOMIC(uint32_t) attached; /* 1: ops, state, in_place, keeps, mail, remote and linked are there; constant */
    frugal_device_ops ops;
    void *state;
    int in_place; /* it updates rows that it alone touches in place */
    int keeps;    /* ... and may keep the updates in its cache */
    device_keeping keeping;
    host_batch *batches; /* ring [L + 1], by announced step */
    void *batch_memory;  /* their arrays */
    float *blocks;       /* ring [S] of [max_keys][record_stride], by step */
    sort_memory sort;
    struct team *team;       /* threads that help its loader and its trainer (team.c); NULL: none */
    pthread_mutex_t giving;  /* held by the thread that gives the state machine its batches, in order (announce.c) */
    pthread_mutex_t telling; /* held by the thread that calls ops.announced */
    int sorts;               /* 1: ops.sort is called for its batches */
    FRUGAL_ATOMIC(uint32_t) away;         /* batches that it sorts */
    ahead_rows ahead;                     /* of a table in a file */
    uint8_t reads_only[FRUGAL_P2F_SLOTS]; /* 1: the step is announced read-only; valid for steps that are handed in */
    uint8_t brings[FRUGAL_P2F_SLOTS];     /* 1: the step has gradients; valid for steps updated, not committed */
    /* How far it has come, in steps. */
    atomic_word handed;    /* announced by the caller: their batches are handed in; set by the loader */
    atomic_word told;      /* for which ops.announced was called; under `telling` */
    atomic_word looked_up; /* set by the trainer, read by cancel, whose caller orders it */
    atomic_word updated;   /* set by the trainer; a commit waits for the device's work */
    atomic_word end;       /* frugal_finish: the first step without it; UINT64_MAX: not known yet */
    /* Steps it has done: after a loss; in a process that has joined, always. UINT64_MAX: lost. Under polling.lock. */
    atomic_word done;
    struct {                       /* in a process that has joined, of a device with `poll`; under polling.lock */
        atomic_word recall_number; /* of the last CALL_RECALL, if it is not done; 0: it is */
        uint64_t recall_step;
        uint64_t settled; /* steps whose updates count as writers no more */
    } posting;
    frugal_bags bags;                          /* of the last lookup; bags.offsets NULL: that lookup was by position */
    atomic_word keys, unique_rows, gate_waits; /* counted by the trainer */
    atomic_word secondary_hits;                /* counted by the trainer */
    atomic_word stall_ns, barrier_ns;          /* counted by the trainer */
    atomic_word announce_ns;                   /* counted by the loader */
    gate_waits waits;
    device_counts *counts; /* by the trainer, or by the polling thread */
    table_hits *by_table;  /* [n_tables], behind `counts`: of devices that count by table */
    mailbox *box;          /* where others can join: its mailbox. NULL: no process but this one can have the device */
    mailbox *mail;         /* `box`, of a device of another process or of one that has joined; else NULL */
    unsigned char *inbox;  /* posted_batch[L + 1], by step; NULL where `mail` is */
    struct remote *remote; /* it is a device of another process (remote.c); else NULL */
    struct device_guests *guests;   /* it may read rows of other machines (guests.c); NULL: there are none */
    uint32_t process;               /* that other process; 0: this one */
    atomic_word *gates;             /* what frugal.gates is in that other process; written here and there */
    FRUGAL_ATOMIC(uint32_t) linked; /* 1: it is one; or, where it is: it may be called from there (join.c) */
    uint8_t pad[64];
} host_device;

typedef struct step_settings { /* of one step, in a ring of 64; guarded by settings.lock */
    uint64_t step;
    int fixed;
    float lr, scale; /* all devices must give these */
} step_settings;

typedef struct beta_powers { /* of a group's betas: beta^t */
    double beta1, beta2;
} beta_powers;

/* The place of an instance at the workers that serve it. */
typedef struct worker_seat {
    /* Open or not, and the number of workers inside; changed by read-modify-write only. No worker enters a closed seat.
     * A worker that is inside may use the instance. It leaves when it visits the seat and finds it closed. */
    FRUGAL_ATOMIC(uint32_t) word;
    int taken; /* under the lock */
    frugal *f; /* constant from before the seat is opened until it is closed and empty */
} worker_seat;

#define SEAT_OPEN   1u
#define SEAT_WORKER 2u

typedef struct saved_chain { /* the save that an instance was last saved to or restored from; id 0: none */
    uint64_t id, base, sequence;
    uint32_t part, parts; /* this instance's number in it; the number of instances */
    frugal_type rows_as;  /* of this instance in it */
} saved_chain;

struct frugal_workers { /* threads, and the instances that they serve: the one that owns them, or all that share them */
    host_event *event;  /* own_event, or in memory that processes share */
    host_event own_event;
    int event_file, event_error;        /* this memory, -1: own_event; why there is none, an errno */
    uint32_t n, started;                /* threads */
    pthread_t *threads;                 /* [n] */
    uint32_t process;                   /* of the threads */
    FRUGAL_ATOMIC(uint32_t) closing;    /* relaxed: workers are told by the event, and joined */
    FRUGAL_ATOMIC(uint32_t) numbered;   /* threads that have taken their number */
    FRUGAL_ATOMIC(uint32_t) seats_used; /* above every seat that was ever taken; relaxed: the event tells of work */
    pthread_mutex_t lock;               /* for taking a seat, and giving it back */
    uint32_t instances;                 /* seats taken; under the lock */
    worker_seat seats[FRUGAL_MAX_INSTANCES];
};

typedef struct table_file table_file; /* defined in table_file.c */
typedef struct clocks clocks;         /* defined in clocks.c */
typedef struct trace trace;           /* defined in trace.c */
typedef struct controller controller; /* defined in post.c: the link of a process that has joined */
struct door;                          /* defined in door.c: what others join by */
struct machines;                      /* defined in machines.h: what they say to each other */

/* A cause of waits that the caller was told of (notice.c). */
typedef struct told_wait {
    uint64_t cause, text; /* hashes of its last text, without numbers and with them */
    double after;         /* seconds that a wait must last to be told again */
} told_wait;

enum { MOST_TOLD = 8 };

typedef struct notices { /* frugal_desc.notice, or what frugal_on_notice has set; all under the lock */
    pthread_mutex_t lock;
    frugal_notice call;
    void *user;
    told_wait told[MOST_TOLD];
    uint32_t n_told; /* since open */
} notices;

/* Pages of announced rows, which are asked for ahead of their lookup (read_ahead.c). Only with a table in a file. */
typedef struct read_ahead {
    pthread_mutex_t lock; /* of the devices' `ahead`, of the lists of rows that these name, and of `pieces` */
    uint64_t pieces;      /* of batches, that threads have come to */
    int file;             /* descriptor; constant */
    size_t page;          /* bytes; constant */
    /* Hints, all relaxed: there may be rows to ask for; the system can do it for this file; pieces in a row without a
     * page to ask for. */
    FRUGAL_ATOMIC(uint32_t) waiting, works, settled;
    FRUGAL_ATOMIC(uint64_t) asked; /* pages */
} read_ahead;

typedef struct announcement { /* what frugal_announce is given */
    uint32_t d, n;            /* keys, which are checked */
    uint64_t step;
    const frugal_batch *batch;
    const frugal_unsorted *there; /* its keys lie where the device reaches them; NULL: in host memory */
    int wait;
} announcement;

/* What calls do in the process that opened an instance, which has the state machine (opener_operations of open.c), and
 * in one that has joined, which posts to that one (joined_operations of join.c). */
typedef struct instance_ops {
    int owns; /* 1: this process has opened it; calls that work on the whole instance are its */
    /* By a device's loader. */
    uint64_t (*next)(const frugal *f, uint32_t d);
    frugal_status (*announce)(frugal *f, const announcement *a);
    void (*finish)(frugal *f, uint32_t d);
    /* By its trainer. As everywhere here, NULL: there is nothing to do. */
    frugal_status (*pass_gate)(frugal *f, uint32_t d, uint64_t step, int wait);
    frugal_status (*begin_writing)(frugal *f, uint32_t d, const char *call);
    void (*end_writing)(frugal *f, uint32_t d, uint64_t writers);
    frugal_status (*await_block)(frugal *f, uint32_t d, uint64_t step, const char *call);
    void (*commit)(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *brought);
    void (*note_kept)(frugal *f, uint32_t d, uint64_t kept, uint64_t written_back, uint64_t now);
    /* By threads that poll: is there work that is not committed, or not posted? The others hold polling.lock. */
    int (*is_outstanding)(const frugal *f);
    int (*poll)(frugal *f);
    void (*note_loss)(frugal *f, uint32_t d, const char *text);
    /* By any thread. */
    void (*stop)(frugal *f);
    frugal_status (*begin_counting)(frugal *f);
    frugal_status (*may_attach)(frugal *f, uint32_t d);
    frugal_status (*attached)(frugal *f, uint32_t d); /* `d` is about to be; if this fails, it is not */
    frugal_status (*leave)(frugal *f);                /* from here on no other process has a part in what is closed */
} instance_ops;

/* What devices of other processes have posted, in the process that opened (remote.c). */
typedef struct post_ops {
    int (*serve)(frugal *f);
    void (*hold)(frugal *f); /* while steps are cancelled, no other thread serves; those of `step` and later go */
    void (*drop)(frugal *f, uint64_t step);
    void (*release)(frugal *f);
} post_ops;

/* What parts below ask where a table is dealt over machines (src/machines). */
typedef struct machine_ops {
    int (*serve)(frugal *f); /* does a piece of work for devices that are away; 0: there was none */
    /* Says what of a step of the device has not arrived, or not left. */
    void (*explain)(const frugal *f, uint32_t d, uint64_t step, char *text, size_t size);
    /* Begins a drain: all machines have called it, and what devices that are away have updated is here. */
    frugal_status (*gather)(frugal *f, int reads); /* reads: for read_rows; else for a drain */
    frugal_status (*drained)(frugal *f);           /* ... and ends it: all have drained */
} machine_ops;

enum { MOST_NODES = 1024 };
typedef struct memory_nodes { /* of the machine (numa.c) */
    uint32_t n;               /* that have memory; below 2: nothing is placed */
    int error;                /* the errno with which the system has refused; 0: it has not */
    uint64_t bits[MOST_NODES / 64];
} memory_nodes;

/* The parts of an instance, each with the lock that guards it. */

typedef struct instance_memory { /* constant once it is open */
    void *table, *state;         /* ours, or NULL */
    size_t table_bytes, state_bytes;
    memory_nodes nodes; /* over which that is interleaved, with words and counts */
} instance_memory;

typedef struct found_rows { /* rows that were found */
    uint64_t n, first;
} found_rows;

typedef struct instance_saving {
    struct saved_reader *reader; /* [desc.n_saved], while the instance is opened from saves */
    saved_chain chain;
    int overflows; /* 1: weights of a save became infinite, because the table's type has no such large ones */
    /* [(rows + 63) / 64], a bit for each row: changed since `chain`. The thread that changes a row sets it; no other
     * thread changes that row at the time. Cleared while drained. NULL: without frugal_desc.increments. */
    atomic_word *changed;
} instance_saving;

typedef struct instance_touches {
    pthread_mutex_t lock;             /* held while counts are copied, and read */
    worth_byte *worth;                /* [rows], written by worth.c and counts.c; NULL until `counting` */
    FRUGAL_ATOMIC(uint32_t) counting; /* 1: touches are counted. Set under settings.lock, and stays */
    uint32_t counter; /* device + 1 that counts them, and `worth` is what was copied last; 0: the host does. Written
                         under `lock` before its first announcement, and read under it, or by its loader */
} instance_touches;

typedef struct instance_sorting {
    atomic_word threads;              /* that sort or give batches, or plan; and who waits (announce.c) */
    FRUGAL_ATOMIC(uint32_t) unsorted; /* batches handed in that no thread sorts yet */
    /* The first step of which a batch is BAD; UINT64_MAX: none. Written under polling.lock, or by a cancel. */
    atomic_word bad;
    size_t bytes;  /* of a device's memory for sorting; constant */
    uint32_t bits; /* of a row number; constant */
} instance_sorting;

typedef struct instance_settings {
    pthread_mutex_t lock;
    step_settings steps[FRUGAL_P2F_SLOTS]; /* under `lock` */
    beta_powers *power_now;                /* [n_groups]: beta^power_step; under `lock` */
    beta_powers *powers; /* ring [64][n_groups], under `lock`: a device that is ahead may update a later step first */
    uint64_t power_step; /* under `lock` */
    /* Ring [64][n_groups], by step. A step's entries are constant once its settings are fixed. Threads that flush the
     * step read them; the commit of the step orders this. */
    frugal_hyper *hypers;
    void *groups; /* memory of store.groups, hypers, power_now and powers */
} instance_settings;

typedef struct instance_polling {
    pthread_mutex_t lock; /* held by the one thread that polls, and commits */
    /* The number of devices that have `poll`, and of those that wait for `gates` themselves. Relaxed: raised before the
     * device's first announcement, and a thread that must act for a device has learned of that announcement. */
    FRUGAL_ATOMIC(uint32_t) devices, waiting;
    FRUGAL_ATOMIC(uint32_t) wanted; /* threads that want the lock now; relaxed: the event tells of it */
} instance_polling;

typedef struct instance_finishing {
    pthread_mutex_t lock;            /* the data of a device ends, or another device is followed (finish.c) */
    FRUGAL_ATOMIC(uint32_t) devices; /* whose data has ended; written under `lock` */
} instance_finishing;

typedef struct instance_loss {      /* written under polling.lock */
    FRUGAL_ATOMIC(uint32_t) device; /* + 1; 0: none is lost */
    atomic_word kept;               /* rows of which lost devices kept updates */
    char message[256];              /* constant once `device` is set */
} instance_loss;

typedef struct instance_shared { /* with other processes */
    int file;                    /* memory that processes share; -1: none (region.c) */
    uint64_t used;               /* bytes */
    region_header *region;       /* NULL without `file`, as are `parts` and `fixed` */
    device_parts *parts;         /* [devices] */
    fixed_settings *fixed;
    controller *joined;            /* of a process that has joined; else NULL */
    struct door *door;             /* NULL: nobody can join */
    const post_ops *posts;         /* NULL: nobody can join */
    FRUGAL_ATOMIC(uint32_t) holds; /* threads that cancel steps: no other thread serves posts */
} instance_shared;

typedef struct instance_telling {
    FRUGAL_ATOMIC(uint32_t) is_there; /* 1: `teller` is, and constant */
    struct teller *teller;            /* the thread that tells devices of their batches */
} instance_telling;

typedef struct instance_tracing {
    pthread_mutex_t lock;       /* held by the calls that start, stop and write traces */
    FRUGAL_ATOMIC(uint32_t) on; /* 1: events are recorded */
    trace *rings;               /* constant once `on` was set for the first time; NULL: never */
} instance_tracing;

typedef struct instance_found { /* rows that are not finite, of what the last save or verify has read */
    atomic_word nonfinite, first;
    found_rows *verified; /* while frugal_verify is under way; else NULL (notice.c) */
} instance_found;

typedef struct instance_pages {
    /* What frugal_get_stats found last, and the number of closed steps from which on it looks again. */
    atomic_word resident_bytes, huge_bytes, due;
    FRUGAL_ATOMIC(uint32_t) stay; /* 1: frugal_leave_pages. Relaxed: set by a device that attaches or closes */
} instance_pages;

typedef struct instance_work { /* counted by any thread */
    atomic_word busy_ns, sort_ns, plan_ns, close_ns, flush_ns;
    atomic_word closed_entries, flushed, flushed_at_close, stale_ids, flushed_by_urgency[64];
    atomic_word idle_steps; /* steps with gradients, and step sizes that are all 0 */
} instance_work;

struct frugal {
    int opened;       /* frugal_open succeeded; set last; all calls except close require it */
    uint32_t process; /* it has opened or joined, and no other may call; 0: a version that is served (served.c) */
    const instance_ops *ops; /* constant from the start */
    frugal_desc desc;        /* resolved */
    frugal_table *tables;    /* copy of desc.tables, without the sources */
    uint64_t *first_row;     /* [n_tables + 1] */
    frugal_store store;
    frugal_p2f *p2f;
    size_t p2f_bytes;
    size_t batch_bytes, block_bytes, block_stride;
    uint32_t record_stride; /* floats */
    instance_memory memory;
    table_file *file; /* the file that memory.table maps, or NULL */
    read_ahead ahead;
    instance_saving saving;
    instance_touches touches;
    host_device *devices;
    clocks *clocks; /* of secondaries; NULL: none */
    instance_sorting sorting;
    frugal_jobs jobs;
    instance_telling telling;
    instance_settings settings;
    instance_polling polling;
    instance_finishing finishing;
    instance_loss loss;
    pthread_mutex_t gates_lock;      /* a gate is tested and published, or steps are cancelled */
    atomic_word *gates;              /* in a page of its own: the number of open gates, counted from step 0 */
    FRUGAL_ATOMIC(uint32_t) stopped; /* finding it set, by an acquire, acquires what was done before stop */
    host_event *event;               /* notified of all that threads may wait for; the workers' event, or own_event */
    host_event own_event;            /* without workers */
    frugal_workers *workers;         /* shared, or its own; NULL: none */
    uint32_t seat;                   /* the number of its seat there */
    int entered;                     /* the seat is open */
    instance_shared shared;
    dealing *dealing;          /* the table is dealt over several machines; NULL: it is not, and so are the next two */
    struct machines *machines; /* constant once it is open */
    const machine_ops *talks;  /* what lower parts ask of `machines` */
    instance_tracing tracing;
    notices notices;
    instance_found found;
    instance_pages pages;
    instance_work work;
};

/* Where a table is dealt: the machine that has the device; and machine k of those in turn, from this one on. */
static inline uint32_t machine_of(const frugal *f, uint32_t d) {
    return d / f->dealing->here;
}
static inline uint32_t home_at(const dealing *g, uint32_t k) {
    return (g->me + k) % g->machines;
}

static inline void tally(atomic_word *counter, uint64_t n) {
    frugal_add_relaxed(counter, n); /* relaxed: statistics order nothing */
}

/* Another process may be about to attach the device. */
static inline int is_attached(const frugal *f, uint32_t d) {
    return frugal_load_acquire(&f->devices[d].attached) != 0; /* [F45] pairs with [F46] */
}
/* As users write it. */
static inline const char *type_word(frugal_type type) {
    return type == FRUGAL_FP32 ? "fp32" : type == FRUGAL_BF16 ? "bf16" : "fp16";
}
static inline void *weights_of(const frugal *f, uint64_t row) {
    return frugal_row_at(&f->store, row);
}
static inline float *state_of(const frugal *f, uint64_t row) {
    return f->store.state ? f->store.state + row * f->store.state_stride : NULL;
}
static inline size_t changed_bytes(const frugal *f) {
    return (size_t)((f->store.rows + 63) / 64 * sizeof(uint64_t));
}
/* Of the rows' words, if they have any. */
static inline uint64_t word_bytes(const frugal *f) {
    return f->store.rows * sizeof(uint64_t);
}
/* Marks a row that this thread changes, so that the next increment has it. */
static inline void mark_changed(frugal *f, uint64_t row) {
    uint64_t bit = UINT64_C(1) << row % 64;
    if (!f->saving.changed) return;
    /* relaxed, both: a thread that saves has drained. No other thread sets this bit meanwhile, so adding sets it. */
    if (!(frugal_load_relaxed(&f->saving.changed[row / 64]) & bit))
        frugal_add_relaxed(&f->saving.changed[row / 64], bit);
}
static inline host_batch *batch_at(const frugal *f, uint32_t d, uint64_t step) {
    return &f->devices[d].batches[step % (f->desc.lookahead + 1)];
}
/* A step's numbers, by group. */
static inline frugal_hyper *hyper_at(const frugal *f, uint64_t step) {
    return f->settings.hypers + step % FRUGAL_P2F_SLOTS * f->store.n_groups;
}
static inline float *block_at(const frugal *f, uint32_t d, uint64_t step) {
    return f->devices[d].blocks + step % f->desc.staging * f->block_stride;
}

#endif /* FRUGAL_HOST_H */
