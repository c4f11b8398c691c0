/* Bytes and seconds of the network, from counts of guests. */
#include "bench/sim/network.h"

const char *const sim_sent_names[SIM_SENT_KINDS + 1] = {"keys", "early", "late", "records", 0};

/* Floats of a record, as src/instance/instance.c: record_stride_of has them. */
static uint64_t stride_of(uint32_t dim) {
    uint64_t stride = 1;
    if (dim >= 16) return ((uint64_t)dim + 15) / 16 * 16;
    while (stride < dim) stride *= 2;
    return stride;
}

uint64_t sim_message_bytes(sim_sent kind, uint64_t guests, uint64_t late, uint32_t dim) {
    uint64_t row = dim * sizeof(float);
    switch (kind) {
    case SIM_SENT_KEYS:
        return SIM_HEAD_BYTES + guests * sizeof(uint64_t);
    case SIM_SENT_EARLY:
        return guests ? SIM_HEAD_BYTES + (guests - late) * row + (guests + 63) / 64 * sizeof(uint64_t) : 0;
    case SIM_SENT_LATE:
        return guests ? SIM_HEAD_BYTES + late * row : 0;
    default:
        return SIM_HEAD_BYTES + guests * stride_of(dim) * sizeof(float);
    }
}

static uint64_t pair_of(const sim_network *net, uint64_t step, uint32_t device, uint32_t home) {
    return (step * net->machines * net->gpus + device) * net->machines + home;
}

uint64_t sim_guests_of(const sim_network *net, uint64_t step, uint32_t device) {
    uint64_t guests = 0;
    for (uint32_t home = 0; home < net->machines; home++) guests += net->guests[pair_of(net, step, device, home)];
    return guests;
}

/* Does the device send messages of the kind? Else its homes do. */
static int is_from_device(sim_sent kind) {
    return kind == SIM_SENT_KEYS || kind == SIM_SENT_RECORDS;
}

sim_crossing sim_crossing_of(const sim_network *net, uint64_t step, uint32_t machine) {
    sim_crossing c = {.late = 0};
    for (uint32_t d = 0; d < net->machines * net->gpus; d++)
        for (uint32_t home = 0; home < net->machines; home++) {
            uint64_t pair = pair_of(net, step, d, home);
            uint32_t of_device = d / net->gpus;
            if (of_device == home || (of_device != machine && home != machine)) continue;
            if (home == machine) c.late += net->late[pair];
            for (int k = 0; k < SIM_SENT_KINDS; k++) {
                uint64_t bytes = sim_message_bytes((sim_sent)k, net->guests[pair], net->late[pair], net->dim);
                if (k == SIM_SENT_EARLY && !net->early) continue;
                int sends = (of_device == machine) == is_from_device((sim_sent)k);
                *(sends ? &c.sent[k] : &c.received[k]) += bytes;
            }
        }
    return c;
}

double sim_network_seconds(const sim_network *net, uint64_t step, unsigned kinds, double bytes_a_second) {
    uint64_t most = 0;
    for (uint32_t m = 0; m < net->machines; m++) {
        sim_crossing c = sim_crossing_of(net, step, m);
        uint64_t sent = 0, received = 0;
        for (int k = 0; k < SIM_SENT_KINDS; k++) {
            if (!(kinds >> k & 1)) continue;
            sent += c.sent[k], received += c.received[k];
        }
        if (sent > most) most = sent;
        if (received > most) most = received;
    }
    return (double)most / bytes_a_second;
}
