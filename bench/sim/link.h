/* link.h - a link between a GPU and host memory, such as PCI Express, in simulated time.
 *
 * A step has two transfers: the rows that are read at lookup, and the records that are written at update. Reads and
 * writes do not share bandwidth. A transfer takes `latency` and then the longer of two times: that of its own bytes at
 * the link's bandwidth, and that of the bytes of all GPUs at the rate of what they share: switches, the root complexes
 * of sockets, the links between sockets, memory. No bytes take no time.
 */
#ifndef FRUGAL_BENCH_SIM_LINK_H
#define FRUGAL_BENCH_SIM_LINK_H

#include "frugal_seeing.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_MOST_HEADER = 65535 }; /* 64 bits are enough even for 2^26 rows of 2^16 floats in requests of one byte */

typedef struct sim_link {
    double bandwidth[2];   /* bytes a second on the wire: [0] reads, [1] writes; above 0 */
    double latency;        /* seconds */
    uint32_t line, header; /* a row crosses in requests of up to `line` bytes (0: whole), each with `header` more */
    double shared;         /* bytes a second, each way, of all GPUs together, which are taken to have as many each;
                                 0: they share nothing */
} sim_link;

typedef struct sim_topology {
    uint32_t gpus;
    uint32_t behind_switch;   /* GPUs that share one link to the host, as fast as theirs; 0, 1: each has its own */
    uint32_t sockets;         /* of processors, over which GPUs and rows are spread evenly; 0, 1: one */
    uint32_t root_lanes;      /* of a socket's root complex, for its GPUs, which have links of 16; 0: enough */
    double link, socket_link; /* bytes a second each way: of 16 lanes; between two sockets */
    double memory;            /* of the memory of all sockets; 0: not counted here */
} sim_topology;
/* What all GPUs together get of what they share. */
double sim_shared_bandwidth(const sim_topology *t);

/* Bytes on the wire of `rows` rows of `row_bytes` each, headers included. */
uint64_t sim_wire_bytes(const sim_link *link, uint64_t rows, uint64_t row_bytes);
/* The same for the traffic that the library has counted; `way` 0: read, 1: written. The optimizer state of a row has
 * requests of its own, because it does not lie beside the row. */
uint64_t sim_traffic_wire_bytes(const sim_link *link, const frugal_traffic *traffic, int way, uint64_t row_bytes,
                                uint64_t state_bytes);
/* Seconds of one GPU's transfer, in a step in which all GPUs together transfer `all_wire_bytes`. */
double sim_link_seconds(const sim_link *link, int way, uint64_t wire_bytes, uint64_t all_wire_bytes);

#ifdef __cplusplus
}
#endif
#endif
