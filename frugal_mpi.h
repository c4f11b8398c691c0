/* frugal_mpi.h - several machines over MPI: the wire that frugal_machines.h describes. C11, public domain or MIT; see
 * LICENSE.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * COMPILE (any MPI of version 3; link with mpicc, too)
 *      mpicc -std=c11 -O3 -c frugal_mpi.c
 *
 * RANKS are machines: several processes may share one. A process that has called frugal_mpi_wire ends with
 * frugal_mpi_free. If MPI_Init was not called before, the first does it, and the second calls MPI_Finalize:
 *
 *      frugal_wire wire;
 *      frugal_mpi_wire(MPI_COMM_WORLD, &wire);
 *      ... frugal_open with wire, training, frugal_close
 *      frugal_mpi_free(&wire);
 *
 * THREADS: a thread of the instance calls MPI while the caller's threads may, so MPI must have been initialized by
 * MPI_Init_thread with MPI_THREAD_MULTIPLE. FUNNELED does not do, because the thread is not the one that initialized
 * MPI; SERIALIZED does not, because it excludes no call of yours. No call waits within MPI, except the two below.
 *
 * MESSAGES are MPI_Isend and MPI_Irecv on a communicator of the wire's own, in which all tags are ours. A head with a
 * body is one message. Each is below 2 GiB (frugal_wire.most_bytes).
 *
 * LOSS: an error of MPI in a message to or from a machine is the loss of that machine, if MPI lives on after it; an MPI
 * without fault tolerance ends all processes instead. When the instance is closed, messages that are not done are given
 * up: receives are cancelled, and sends have a second to be done. After that MPI might still read what a machine that
 * stands still has not received: end such a job.
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
