/* machines.h - one table dealt over several machines: what they say to each other; devices that are away.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_MACHINES_PRIVATE_H
#define FRUGAL_MACHINES_PRIVATE_H

#include "../processes/processes.h"

/* Messages of a device, by kind: its tag is device * MESSAGES + kind. Two others are of the machine. */
enum { MESSAGE_KEYS, MESSAGE_EARLY, MESSAGE_ROWS, MESSAGE_RECORDS, MESSAGES };
enum { TAG_MEET = FRUGAL_MAX_DEVICES * MESSAGES, TAG_LEAVE };
_Static_assert(TAG_LEAVE < FRUGAL_WIRE_TAGS, "tags of all messages");

enum { HEAD_READ_ONLY = 1, HEAD_ENDS = 2, HEAD_BRINGS = 4 };
typedef struct parcel_head { /* begins every message; of machines with the same order of bytes */
    uint64_t step;
    uint32_t n, early; /* rows; of these, those that the message before had, or this one has */
    uint32_t flags;
    float lr, scale;        /* of records */
    uint32_t call, version; /* of a collective call: what is called, by which version of the library */
    uint32_t pad;
    uint64_t bytes; /* of a collective call: what is given */
    uint8_t pads[16];
} parcel_head;
_Static_assert(sizeof(parcel_head) == 64, "as docs/machines.md counts");

/* A device of another machine, in the home of the rows that it reads here (away.c). */
typedef struct away {
    frugal *f;
    uint32_t d, machine, request; /* the first of its requests */
    pthread_mutex_t serving;      /* held by the thread that serves it */
    uint64_t *keys;               /* ring [L + 2][max_keys]: ids, as they come */
    parcel_head *keys_heads;      /* ring [L + 2] */
    unsigned char *rows;          /* ring [2][max_keys] of rows, by step: those that go early, then the others */
    unsigned char *early_heads;   /* ring [2]: parcel_head, then a bit for each row: it goes early */
    parcel_head rows_heads[2], records_head;
    /* Steps. By the communication thread: whose keys, and records, are here; whose rows have left. */
    atomic_word keys_here, records_here, rows_gone;
    uint64_t keys_asked, early_sent, rows_sent, records_asked; /* its own */
    /* By the thread that serves: whose keys are taken; whose rows can leave, early ones, and the others; committed. */
    atomic_word announced, early_ready, rows_ready, committed;
    atomic_word end; /* its data ends before this step; UINT64_MAX: not known; relaxed: finish_device follows */
} away;

/* What a device of this machine and one home say to each other. All are the communication thread's. */
typedef struct visit {
    uint32_t request;
    uint64_t asked, came;       /* steps of which rows were asked for; of which early ones are here */
    atomic_word here;           /* of which all are; relaxed: another thread reads it as a hint */
    parcel_head *keys_heads;    /* ring [L + 1] */
    parcel_head *records_heads; /* ring [S] */
    unsigned char *early_heads; /* ring [2] */
    parcel_head rows_heads[2];
} visit;

typedef struct visitor { /* a device of this machine */
    uint32_t d;
    FRUGAL_ATOMIC(uint32_t) behind;   /* a machine that has not taken what was sent to it; relaxed: a hint */
    int ends;                         /* 1: homes were told that its data has ended */
    uint64_t keys_sent, records_sent; /* steps */
    visit *visits;                    /* [machines]; of machine (me + k) % machines, k > 0 */
} visitor;

/* What is given in a collective call goes in one message up to so many bytes, for which there always is room, also if
 * the machines make different calls; else in a second message, which is asked for when the first is as it should be. */
enum { MEET_SMALL = 4096 };
typedef enum { MEET_OPEN, MEET_DRAIN, MEET_READ, MEET_EXCHANGE, MEET_SAVE, MEET_CALLS } meet_call;

/* A collective call under way. Its memory is the instance's, because a call that is given up leaves the wire at it. */
typedef struct meeting {
    meet_call call;
    uint64_t number;       /* of calls before */
    size_t *out, *in;      /* [machines]: bytes given to each, and wanted of each */
    unsigned char *memory; /* what is given, then what is wanted, by machine */
    size_t memory_bytes;
    FRUGAL_ATOMIC(uint32_t) posted; /* 1: the communication thread is to do it */
    FRUGAL_ATOMIC(uint32_t) done;   /* 1: all have given, and were given; 2: `wrong` says who has given another thing */
    FRUGAL_ATOMIC(uint32_t) missing;   /* a machine that has not; relaxed: a hint */
    int begun;                         /* the communication thread's, as the next */
    uint8_t part[FRUGAL_MAX_MACHINES]; /* of each: 0: the first message is waited for; 1: the second; 2: neither */
    int broken;                        /* 1: a call was given up, so there can be no more; under the lock */
    frugal_status refusal;             /* with `wrong` */
    char wrong[256];
} meeting;

typedef struct machines {
    frugal *f;
    pthread_t thread;
    int begun;                     /* 1: the thread is there */
    FRUGAL_ATOMIC(uint32_t) ends;  /* it is to end; relaxed: the event tells of it */
    FRUGAL_ATOMIC(uint32_t) ready; /* 1: the wire has begun; 2: it has failed */
    frugal_status status;          /* of that */
    char failed[256];
    away *aways;       /* [devices], of those that are away */
    visitor *visitors; /* [here] */
    visit *visits;
    void *memory; /* of rings */
    size_t memory_bytes;
    uint32_t requests, meet_request, leave_request;
    uint8_t *busy, *kinds;                 /* [requests]: begun, and not done; bit 1: a receive. frugal_wire_kind */
    size_t *sizes;                         /* [requests] */
    parcel_head *meet_heads, *leave_heads; /* [2][machines] */
    unsigned char *meet_room;              /* [machines][MEET_SMALL]: where what others give arrives, if it is small */
    pthread_mutex_t meeting_lock;          /* held by the thread that meets */
    meeting meeting;
    struct { /* as frugal_wire_counts; relaxed, all */
        atomic_word sent[FRUGAL_WIRE_KINDS], sent_bytes[FRUGAL_WIRE_KINDS];
        atomic_word received[FRUGAL_WIRE_KINDS], received_bytes[FRUGAL_WIRE_KINDS];
        atomic_word guests, early, asleep_ns;
    } counts;
} machines;

/* Rows of any machine that a call reads. */
typedef struct row_reader {
    const frugal_keys *keys;
    float *weights, *state; /* [keys->n] rows of each; NULL: not wanted */
    /* Reads n rows of this machine, weights[n][dim] and, behind them, state[n][state_floats]. */
    frugal_status (*read)(frugal *f, const uint32_t *rows, uint32_t n, float *out);
} row_reader;

/* Heads of early rows, ring [2] by step: parcel_head, then a bit for each row: it goes early. */
static inline uint64_t early_head_bytes(const frugal *f) {
    return sizeof(parcel_head) + early_words(f->desc.max_keys) * sizeof(uint64_t);
}
static inline parcel_head *early_head(const frugal *f, unsigned char *heads, uint64_t step) {
    return (parcel_head *)(void *)(heads + step % 2 * early_head_bytes(f));
}
/* Where the rows that a device which is away reads at the step leave from. */
static inline unsigned char *rows_given(const away *a, uint64_t step) {
    return a->rows + step % 2 * a->f->desc.max_keys * frugal_row_bytes(&a->f->store);
}

/* lost.c */

FRUGAL_INTERNAL void lose_machine(frugal *f, uint32_t machine, const char *text);

/* away.c */

FRUGAL_INTERNAL frugal_status attach_away(frugal *f);
FRUGAL_INTERNAL int serve_away(frugal *f);

/* meet.c */

FRUGAL_INTERNAL const char *call_name(uint32_t call);
FRUGAL_INTERNAL frugal_status open_meeting(frugal *f);
FRUGAL_INTERNAL void close_meeting(frugal *f);
FRUGAL_INTERNAL frugal_status enter_meeting(frugal *f, meet_call call);
FRUGAL_INTERNAL frugal_status meet(frugal *f, meet_call call, const void *const *out, void *const *in);
FRUGAL_INTERNAL frugal_status meet_all(frugal *f, meet_call call, const void *mine, size_t bytes, void *all);
FRUGAL_INTERNAL frugal_status compare_settings(frugal *f);
FRUGAL_INTERNAL frugal_status gather_updates(frugal *f, int reads);
FRUGAL_INTERNAL frugal_status meet_drained(frugal *f);

/* read.c */

FRUGAL_INTERNAL frugal_status read_dealt(frugal *f, const row_reader *reader);

/* talk.c */

FRUGAL_INTERNAL void explain_guests(const frugal *f, uint32_t d, uint64_t step, char *text, size_t size);
FRUGAL_INTERNAL uint64_t away_bytes(const frugal *f);
FRUGAL_INTERNAL frugal_status open_machines(frugal *f);
FRUGAL_INTERNAL frugal_status meet_machines(frugal *f);
FRUGAL_INTERNAL void leave_machines(frugal *f);
FRUGAL_INTERNAL void close_machines(frugal *f);

#endif
