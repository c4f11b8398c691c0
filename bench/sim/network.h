/* network.h - what machines send each other in a step, counted from the keys, and the time that it takes.
 *
 * A row that a batch reads, and whose home is another machine, is a *guest* there. For the u unique guests of a device
 * from a home, in a step, four messages are sent, each with a head of HEAD bytes:
 *     keys     device to home     8 u                    up to L steps ahead
 *     early    home to device     w (u - late) + u bits  when the gate of the step before has opened; whole words of 64
 *     late     home to device     w late                 when the gate of the step has opened: waited for
 *     records  device to home     4 stride u             when the device has updated: waited for
 * w is the bytes of a row's weights, stride the floats of a record: the dimension, rounded up to 16, and below 16 to a
 * power of two. A guest is late if any device of any machine reads it in the step before, too; the others have then
 * been changed earlier, and this takes them to be flushed when that gate opens. Where there is no guest, no rows are
 * sent, not even a head. tests/machines/test_counted.c compares this with what the library sends.
 */
#ifndef FRUGAL_BENCH_SIM_NETWORK_H
#define FRUGAL_BENCH_SIM_NETWORK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_HEAD_BYTES = 64, SIM_MOST_MACHINES = 64 };

typedef enum sim_sent { SIM_SENT_KEYS, SIM_SENT_EARLY, SIM_SENT_LATE, SIM_SENT_RECORDS, SIM_SENT_KINDS } sim_sent;
extern const char *const sim_sent_names[SIM_SENT_KINDS + 1];

/* The message of a kind, of so many guests, of which some are late. */
uint64_t sim_message_bytes(sim_sent kind, uint64_t guests, uint64_t late, uint32_t dim);

typedef struct sim_network {
    uint32_t machines, gpus; /* of each machine */
    uint64_t steps;
    uint32_t *guests, *late; /* [steps][devices][machines]: rows of a device from a home; 0 from its own */
    uint32_t dim;
    int early; /* 0: all rows are late, because nothing is announced ahead */
} sim_network;

/* What crosses the link of a machine in a step. */
typedef struct sim_crossing {
    uint64_t sent[SIM_SENT_KINDS], received[SIM_SENT_KINDS]; /* bytes */
    uint64_t late;                                           /* rows that the machine sends late */
} sim_crossing;
sim_crossing sim_crossing_of(const sim_network *net, uint64_t step, uint32_t machine);
/* Rows of other machines that the device reads. */
uint64_t sim_guests_of(const sim_network *net, uint64_t step, uint32_t device);

/* Seconds until all machines have sent and received what is of these kinds (bits 1 << kind), which they begin together:
 * the time of the fullest link, one way. Without a message's latency. */
double sim_network_seconds(const sim_network *net, uint64_t step, unsigned kinds, double bytes_a_second);

/* Means of the measured steps. */
typedef struct sim_network_result {
    double sent[SIM_SENT_KINDS], received[SIM_SENT_KINDS]; /* bytes a machine and step */
    double most;                                           /* on the fullest link, one way, of all kinds */
    double guests, late;                                   /* rows a device and step; of these */
    double rows_wait, records_wait;                        /* seconds for late rows, and for records */
    double early_wait;                                     /* ... for early rows and keys that have not come in time */
    double waits;                                          /* their sum */
    double messages;                                       /* that a machine sends in a step */
} sim_network_result;

#ifdef __cplusplus
}
#endif
#endif
