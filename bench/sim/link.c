/* The time that bytes take over a link. */
#include "bench/sim/link.h"

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
    double root = link->root_bandwidth[way] > 0 ? (double)all_wire_bytes / link->root_bandwidth[way] : 0;
    return link->latency + (own > root ? own : root);
}
