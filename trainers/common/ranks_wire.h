/* What is below ranks.h: calls of MPI (ranks_mpi.c), or a single process (ranks_alone.c). */
#ifndef RANKS_WIRE_H
#define RANKS_WIRE_H

#include "trainers/common/ranks.h"

/* Which process this is, of how many. */
int ranks_wire_begin(uint32_t *number, uint32_t *all, program_error *error);
/* Gives `bytes` bytes at `mine` to all; theirs are in all[ranks][bytes]. Sleeps while it waits. -1: not all have come
 * in so many seconds. */
int ranks_wire_gather(const void *mine, size_t bytes, void *all, double seconds);
int ranks_wire_open(frugal_wire *wire, program_error *error);
void ranks_wire_close(frugal_wire *wire);
void ranks_wire_end(void);
/* Ends all processes. */
void ranks_wire_abort(int status);

#endif
