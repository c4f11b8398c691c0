/* A machine for the planner of frugal_place.h: how fast its devices read each other's memory and the host's. */
#ifndef PEERS_MACHINE_H
#define PEERS_MACHINE_H

#include <stdint.h>

#include "trainers/common/program.h"
#include "frugal_place.h"

typedef struct peers_machine {
    char name[64];
    frugal_place_machine machine; /* points into the arrays; its capacity and row_bytes are the caller's to set */
    double peer[FRUGAL_PLACE_MAX_DEVICES * FRUGAL_PLACE_MAX_DEVICES];
    double host[FRUGAL_PLACE_MAX_DEVICES], root[FRUGAL_PLACE_MAX_DEVICES];
    uint32_t roots[FRUGAL_PLACE_MAX_DEVICES];
} peers_machine;

/* A line for each device: the GB/s at which it reads from the memory of device 0, 1, ... (its own among them; 0: it
 * cannot), then from host memory; then, if devices share roots of the bus, the number of its root, and the GB/s that
 * this root gives its devices together. `#` begins a comment. bench_cuda --experiment links writes it. */
int peers_read_machine(peers_machine *m, const char *path, program_error *error);
/* The same from text; `name` is for messages. */
int peers_parse_machine(peers_machine *m, const char *name, const char *text, program_error *error);
/* One of peers_likes: machines of UGache's evaluation. */
int peers_make_machine(peers_machine *m, const char *like, program_error *error);
extern const char *const peers_likes[];

#endif
