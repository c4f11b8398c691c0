/* shared.h - what several processes share of an instance: one file without a name, in parts that each process maps
 * where it has room. It begins with the header below. Offsets take the place of pointers.
 *
 * Private, like host.h. The memory is made in region.c. What each side writes: post.c (a process that has joined),
 * remote.c (the process that opened). One process alone runs the state machine, although this needs no locks and no
 * pointers: a process that is killed in the middle of an announcement would leave rows in the queue that nobody finds
 * (docs/processes.md). A process that has joined maps read-only what it only reads: the header, the state machine, the
 * batches, the lists, the counts of other devices; and table and state, where rows are staged. It maps no mailbox
 * except those of its own devices.
 */
#ifndef FRUGAL_SHARED_H
#define FRUGAL_SHARED_H

#define REGION_MAGIC  UINT64_C(0x4e4f494745524646)
#define REGION_LAYOUT 5u /* raised with every change of a struct in this file, and of messages (processes.h) */

typedef struct memory_part { /* of the region's file; bytes 0: there is none */
    uint64_t at, bytes;
} memory_part;

/* What a device reports of its lookups and of its link; counted in the device's process, read by any thread. */
typedef struct device_counts {
    FRUGAL_ATOMIC(uint64_t) hits, misses;
    FRUGAL_ATOMIC(uint32_t) counts_link;                 /* 1: the device says what crosses its link */
    FRUGAL_ATOMIC(uint64_t) link_rows[3], link_bytes[3]; /* as frugal_traffic */
} device_counts;

typedef struct device_parts {
    memory_part batches, blocks, counts, inbox, mail; /* counts: device_counts, then table_hits[n_tables] */
} device_parts;

/* An announced batch on its way to the process that opened: the head of an entry of the inbox, which has L + 1
 * entries. */
typedef struct posted_batch {
    uint32_t n;
    int32_t read_only;
    uint8_t pad[56];
    uint64_t sorted[]; /* [n]: row << 32 | position */
} posted_batch;

/* What the process that opened knows of a batch when it may be looked up. The batch's arrays are in `batches`. */
typedef struct opened_batch {
    uint32_t n, n_unique, n_outdated;
    int32_t read_only, counted;
} opened_batch;

enum { MAIL_ENDED = 1, MAIL_WRITER = 2 }; /* of mailbox.state: a bit; each writer is counted above it */
enum { CALL_ROWS = 1024 };                /* rows of one call */

/* Between the process of a device, which posts, and the process that opened, which serves. The counts are pairs
 * (announced, taken; wanted, opened; updated, committed): one posted, one served. A device that goes on working after
 * a call has returned, as a GPU does, posts an update when it was given it, and raises `done` when it has done it. */
typedef struct mailbox {
    /* Written by the process of the device. */
    FRUGAL_ATOMIC(uint64_t) announced; /* steps announced; also set by cancel, between steps */
    FRUGAL_ATOMIC(uint64_t) wanted;    /* steps of which a lookup was asked for */
    FRUGAL_ATOMIC(uint64_t) updated;   /* steps updated */
    FRUGAL_ATOMIC(uint64_t) done;      /* of a device with `poll`: steps done, none behind a gate that was forced */
    FRUGAL_ATOMIC(uint64_t) recalled;  /* ... number of the last CALL_RECALL whose rows are written */
    FRUGAL_ATOMIC(uint32_t) finished;  /* 1: its data ends with what was announced */
    int32_t brings;                    /* 1: the last update had gradients */
    float lr, scale;                   /* of the last update */
    FRUGAL_ATOMIC(uint64_t) kept, written_back, kept_now; /* as in device_keeping */
    FRUGAL_ATOMIC(uint64_t) replies;                      /* calls answered */
    int32_t reply;                                        /* of the last one */
    FRUGAL_ATOMIC(uint32_t) broken;                       /* 1: the device was lost in its own process */
    char broken_text[256];
    char reply_text[256];
    /* Writers: what may be writing rows or records: a call of the device's trainer, an update that a device with `poll`
     * has not done. MAIL_ENDED: none may begin any more. Changed by read-modify-write only, so one of the two comes
     * first. */
    FRUGAL_ATOMIC(uint32_t) state;
    /* Written by the process that opened. */
    _Alignas(64) FRUGAL_ATOMIC(uint64_t) taken; /* announcements taken from the inbox */
    FRUGAL_ATOMIC(uint64_t)
    opened;                            /* steps that may be looked up, as `wanted` asked: the gate is open, or, if the
                                       device waits for it itself, the step is sealed (gate.c: given_ready) */
    FRUGAL_ATOMIC(uint64_t) committed; /* updates taken */
    opened_batch batch;                /* of the last of these steps */
    FRUGAL_ATOMIC(uint32_t) failed;    /* the status of a post that was refused; 0: none was */
    char failed_text[256];
    host_event bell;               /* notified of what the process of the device may wait for */
    uint32_t call_rows[CALL_ROWS]; /* of the call under way */
} mailbox;

#define NOT_A_DEVICE UINT32_MAX /* loss.device: the process that opened has ended */
typedef enum { END_NONE, END_STOPPED, END_LOST } region_end;

typedef struct region_header { /* constant once others can join, except `ended` and the fields after it */
    frugal_desc desc;          /* resolved, without pointers */
    frugal_store store;
    uint64_t state_behind; /* bytes from weights to state, if `table` has both */
    uint64_t p2f_bytes, batch_bytes, block_bytes, block_stride;
    memory_part tables, devices, fixed, p2f, table, state, worth; /* shared_table[], device_parts[], fixed_settings */
    uint32_t table_is_file;                                       /* `table` is a part of the table's file */
    FRUGAL_ATOMIC(uint32_t) ended;                                /* region_end; written once */
    uint32_t lost;                                                /* device + 1, if `ended` is END_LOST */
    char ended_text[256];
} region_header;

/* By step mod 64: learning rate and scale that the first update has fixed, in any process; 0: none has. Cleared when
 * the step is closed. */
typedef FRUGAL_ATOMIC(uint64_t) fixed_settings[FRUGAL_P2F_SLOTS];

typedef struct shared_table { /* a frugal_table, and its optimizer's settings */
    frugal_table table;
    frugal_optimizer optimizer;
} shared_table;

#endif /* FRUGAL_SHARED_H */
