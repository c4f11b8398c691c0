/* frugal_mpi.h - several machines over MPI: the wire that frugal_machines.h describes. C11, public domain or MIT; see
 * LICENSE.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * COMPILE (any MPI of version 3; link with mpicc, too)
 *      mpicc -std=c11 -O3 -c frugal_mpi.c
 *
 * RANKS are what frugal_machines.h calls machines: several ranks may run on one computer. A process that has called
 * frugal_mpi_wire must call frugal_mpi_free at the end. If MPI was not initialized before, frugal_mpi_wire initializes
 * it, and frugal_mpi_free calls MPI_Finalize:
 *
 *      frugal_wire wire;
 *      frugal_mpi_wire(MPI_COMM_WORLD, &wire);
 *      ... frugal_open with wire, training, frugal_close
 *      frugal_mpi_free(&wire);
 *
 * THREADS: a thread of the instance calls MPI while the caller's threads may call it, too. So if your program
 * initializes MPI, it must do so by MPI_Init_thread with MPI_THREAD_MULTIPLE. FUNNELED is not enough, because the
 * instance's thread is not the one that initialized MPI; SERIALIZED is not enough, because the instance's thread does
 * not wait for calls of yours. No call waits within MPI, except the two below.
 *
 * MESSAGES are sent by MPI_Isend and received by MPI_Irecv, on a communicator of the wire's own, so its tags cannot be
 * yours. Head and body are one message. Each message is below 2 GiB (frugal_wire.most_bytes).
 *
 * LOSS: if MPI reports an error of a message to or from a machine, and still works after it, that machine is lost. An
 * MPI without fault tolerance ends all processes instead. When the instance is closed, receives that are not done are
 * cancelled, and sends that are not done within a second are given up. MPI may still read the memory of such a send, if
 * a machine that hangs has not received it: end such a job.
 */
#ifndef FRUGAL_MPI_H
#define FRUGAL_MPI_H

#include <mpi.h>

#include "frugal_machines.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills in *wire for the processes of `comm`, whose ranks become numbers of machines. Collective over comm, which is
 * duplicated. A wire is for one instance: make another for the next one. On failure *wire is zeros. Errors: ARGUMENT,
 * LIMIT (FRUGAL_MAX_MACHINES), ORDER (MPI has been finalized, or lacks MPI_THREAD_MULTIPLE), MEMORY, LOST (MPI has
 * failed otherwise; the message holds its text). */
FRUGAL_API frugal_status frugal_mpi_wire(MPI_Comm comm, frugal_wire *wire);
/* After frugal_close. Collective, by the thread that called frugal_mpi_wire. Of several wires, the one that has
 * initialized MPI is the last. The communicator stays until MPI_Finalize, because what an instance has left in it must
 * not reach another one. A wire of zeros is accepted. Errors: LOST. */
FRUGAL_API frugal_status frugal_mpi_free(frugal_wire *wire);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_MPI_H */
