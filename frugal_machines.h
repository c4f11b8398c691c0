/* frugal_machines.h - one table dealt over the memories of several machines. C11, public domain or MIT; see LICENSE.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * Each machine opens an instance with frugal_desc.machines. Its memory holds the rows whose *home* it is. All other
 * calls of frugal.h stay as they are. The drained table has the same bits as that of one machine with as many devices.
 * Messages go over a *wire*: frugal_mpi.h makes one for MPI, the Python package one for TCP under torchrun; for a wire
 * of your own, write the functions below. What a step sends, and when one machine is better: docs/machines.md.
 *
 * CONTENTS
 *      1. Do this      2. What is where      3. The wire      4. Loss
 *   >>wire >>machines >>calls
 *
 * 1. DO THIS
 *      frugal_wire wire;
 *      frugal_mpi_wire(MPI_COMM_WORLD, &wire);                     (frugal_mpi.h)
 *      frugal_machines machines = {.wire = &wire};
 *      frugal_desc desc = {.machines = &machines, .devices = 8, ... as for one machine};
 *      frugal_open(&desc, &f);
 *      for (uint32_t d = wire.machine * 8 / wire.machines, i = 0; i < 8 / wire.machines; i++)
 *          frugal_cpu_attach(f, d + i, NULL);
 *      ... announce, lookup, update of these devices; frugal_drain, frugal_save, frugal_close
 *
 * 2. WHAT IS WHERE
 *      Devices are numbered through all machines: with n on each, machine m has devices m n to m n + n - 1, and
 *      attaches and trains these alone. `devices`, and all other settings that bits depend on, are the same on all
 *      machines: frugal_open compares them, and names a difference with both values. Keys mean the same everywhere,
 *      too.
 *
 *      The rows of all tables, numbered through, are *ids*: R in all, on M machines. An id has one home: id mod M
 *      (CYCLIC), id / ceil(R / M) (BLOCKS), or what `homes` says (LISTED, 8 bytes of memory an id on every machine).
 *      Rows that a batch reads from other homes are its *guests*. A home learns which rows it has to send up to L steps
 *      ahead. It sends a row one step early if the row is final by then (no update is pending, and no device touches it
 *      in the step before), and the others when the gate opens. It receives the sum of each row's gradients where
 *      updates are staged. So a machine waits for two messages per step: rows, and records.
 *
 *      Collective: all machines call open, drain, read_rows, save and the calls below, in the same order, each between
 *      its steps. No machine announces until such a call has returned on all: frugal_exchange of 0 bytes is a barrier.
 *      frugal_view, write_rows, preload, verify, counts and statistics concern rows whose home is this machine, and
 *      frugal_settings has the tables as they are there. A device's cache holds rows of its own machine; guests are
 *      never cached. Devices of other machines stage their updates, so that the loss of a machine leaves no row half
 *      updated; but if `alone` is PLACE or KEPT, the home updates in place the rows that such a device alone touches.
 *      With KEPT no rows are sent early. Not together with `machines`: secondaries, `name`, frugal_cancel (so announce
 *      only steps that will be trained).
 *
 *      Memory, beside that of an instance with as many devices (frugal.h, section 9; K = max_keys, w = bytes of a row's
 *      weights): K (8 (L + 1) + 8 + 2 w) bytes for each device of this machine, K (8 (L + 2) + 2 w) for each device of
 *      the others. `rows` of frugal_records are this machine's own numbers of rows; guests have the numbers after them.
 *      A table in a file is each machine's own. When the files are opened again, each must be on the same machine, the
 *      rows dealt as before, and all files of the same step.
 *
 * 3. THE WIRE
 *      Six functions. One thread of the instance, the *communication thread*, calls all of them, begin first and end
 *      last; none may wait. Requests are numbers below that of `begin`; a number is used again when its request is
 *      done. Messages of one sender with one tag arrive in the order in which they are sent; others in any order. A
 *      message has a head and a body, either of which may have 0 bytes. It may be shorter than the receiver has room
 *      for, but never longer. Receives may be begun before or after their message is sent. The memory of a message is
 *      the wire's until its request is done.
 *
 * 4. LOSS
 *      If `lost` names a machine, or a machine closes its instance before the others have ended, training ends on the
 *      others: calls return LOST, and the message names the machine and the step. If a message never comes, a call
 *      waits for it as for anything else: after 5 s a notice names the machine, the step, and what is missing, and
 *      after stuck_seconds the call returns STUCK. (Without fault tolerance MPI itself ends a job that has lost a
 *      process.)
 */
#ifndef FRUGAL_MACHINES_H
#define FRUGAL_MACHINES_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>wire */

#define FRUGAL_MAX_MACHINES 254

typedef struct frugal_parcel { /* a message */
    uint32_t peer;             /* the other machine */
    uint32_t tag;              /* below FRUGAL_WIRE_TAGS */
    void *head, *body;
    size_t head_bytes, body_bytes;
} frugal_parcel;
#define FRUGAL_WIRE_TAGS 4096u /* devices x kinds of messages, at most */

typedef struct frugal_wire {
    void *self;
    uint32_t machine, machines; /* this one, from 0; how many there are */
    size_t most_bytes;          /* of a message; 0: no limit */
    /* There will be so many requests. Errors: MEMORY, LOST; its own. */
    frugal_status (*begin)(void *self, uint32_t requests);
    frugal_status (*send)(void *self, uint32_t request, const frugal_parcel *parcel);
    frugal_status (*receive)(void *self, uint32_t request, const frugal_parcel *parcel);
    /* 1: done; of a receive *bytes is the length of the message, head and body. 0: not yet; so stays a request of a
     * machine that is lost. */
    int (*done)(void *self, uint32_t request, size_t *bytes);
    /* A machine that is lost, plus 1, with what is known of it in text[size]; 0: none. */
    uint32_t (*lost)(void *self, char *text, size_t size);
    /* Ends requests that are not done. What was sent, and was done, still arrives. */
    void (*end)(void *self);
} frugal_wire;

/* >>machines */

typedef enum { FRUGAL_DEAL_CYCLIC, FRUGAL_DEAL_BLOCKS, FRUGAL_DEAL_LISTED } frugal_deal;
typedef struct frugal_machines {
    const frugal_wire *wire; /* copied; what `self` points to must outlive the instance */
    frugal_deal deal;
    const uint8_t *homes; /* LISTED: homes[ids], read during open; else NULL */
} frugal_machines;

/* >>calls */

/* The home of a row. Without machines: 0. Any thread. Errors: ARGUMENT, KEY, TABLE. */
FRUGAL_API frugal_status frugal_home(const frugal *f, uint32_t table, uint64_t key, uint32_t *machine);
/* Collective: gives `bytes` bytes at `mine` to every machine, and gets those of each, in turn, in all[machines][bytes].
 * For what a trainer sums or compares itself, such as dense gradients: in the order of machines and devices, sums have
 * the same bits on all. Without machines: a copy. One thread at a time. Errors: ARGUMENT, LIMIT, MEMORY, STUCK,
 * STOPPED, LOST. */
FRUGAL_API frugal_status frugal_exchange(frugal *f, const void *mine, size_t bytes, void *all);

typedef enum {
    FRUGAL_WIRE_KEYS,    /* of announced batches, L steps ahead */
    FRUGAL_WIRE_EARLY,   /* rows a step ahead */
    FRUGAL_WIRE_ROWS,    /* the others, when the gate opens: waited for */
    FRUGAL_WIRE_RECORDS, /* gradients, or that there are none: waited for */
    FRUGAL_WIRE_CALLS,   /* of collective calls */
    FRUGAL_WIRE_KINDS
} frugal_wire_kind;
typedef struct frugal_wire_counts { /* since open; by kind, heads included */
    uint64_t sent[FRUGAL_WIRE_KINDS], sent_bytes[FRUGAL_WIRE_KINDS];
    uint64_t received[FRUGAL_WIRE_KINDS], received_bytes[FRUGAL_WIRE_KINDS];
    uint64_t guests, early; /* rows received; of these, those that came early */
    double asleep_seconds;  /* of the communication thread */
} frugal_wire_counts;
/* Without machines: zeros. Any thread. Errors: ARGUMENT. */
FRUGAL_API frugal_status frugal_get_wire_counts(const frugal *f, frugal_wire_counts *out);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_MACHINES_H */
