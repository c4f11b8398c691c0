/* The time that bytes take over a link. */
#include "bench/sim/link.h"

#include <math.h>

uint64_t sim_wire_bytes(const sim_link *link, uint64_t rows, uint64_t row_bytes) {
    uint64_t requests = link->line ? (row_bytes + link->line - 1) / link->line : 1;
    return rows * (row_bytes + requests * link->header);
}

uint64_t sim_traffic_wire_bytes(const sim_link *link, const frugal_traffic *traffic, int way, uint64_t row_bytes,
                                uint64_t state_bytes) {
    uint64_t rows = traffic->rows[way], of_states = traffic->bytes[way] - rows * row_bytes;
    uint64_t states = state_bytes ? of_states / state_bytes : 0;
    return sim_wire_bytes(link, rows, row_bytes) + sim_wire_bytes(link, states, state_bytes);
}

double sim_link_seconds(const sim_link *link, int way, uint64_t wire_bytes, uint64_t all_wire_bytes) {
    if (wire_bytes == 0) return 0;
    double own = (double)wire_bytes / link->bandwidth[way];
    double all = link->shared > 0 ? (double)all_wire_bytes / link->shared : 0;
    return link->latency + (own > all ? own : all);
}

/* Where `gpus` of all pass at a rate, the fullest place decides. */
double sim_shared_bandwidth(const sim_topology *t) {
    uint32_t sockets = t->sockets > 1 ? t->sockets : 1, of_socket = (t->gpus + sockets - 1) / sockets;
    uint32_t of_switch = t->behind_switch < of_socket ? t->behind_switch : of_socket;
    double all = t->memory > 0 ? t->memory : INFINITY, gpus = t->gpus;
    if (of_switch > 1) all = fmin(all, t->link * gpus / of_switch);
    if (t->root_lanes > 0) all = fmin(all, t->link * t->root_lanes / 16 * gpus / of_socket);
    if (sockets > 1) /* each pair has a link; of the rows of a socket's GPUs, as many lie at each socket */
        all = fmin(all, t->socket_link * gpus / of_socket * sockets);
    return isfinite(all) ? all : 0;
}
