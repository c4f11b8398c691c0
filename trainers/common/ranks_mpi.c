/* The processes that mpirun has started. */
#include "trainers/common/ranks_wire.h"
#include "frugal_mpi.h"

#include <stdlib.h>
#include <time.h>

static MPI_Comm ranks_comm = MPI_COMM_NULL; /* our own, so that no message of a wire is taken for one of ours */

int ranks_wire_begin(uint32_t *number, uint32_t *all, program_error *error) {
    int level, me, n;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level)) return program_fail(error, "MPI cannot begin");
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_comm);
    if (n > FRUGAL_MAX_MACHINES)
        return program_fail(error, "mpirun has started %d processes; a table is dealt over %d at most", n,
                            FRUGAL_MAX_MACHINES);
    *number = (uint32_t)me, *all = (uint32_t)n;
    return 0;
}

/* MPI's own waits take a core each. */
int ranks_wire_gather(const void *mine, size_t bytes, void *all, double seconds) {
    MPI_Request request;
    double end = program_now() + seconds;
    int done = 0, n = (int)bytes;
    long most = 10000000; /* a hundredth of a second */
    MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, ranks_comm, &request);
    for (long nanoseconds = 1000; !done; nanoseconds = nanoseconds * 2 < most ? nanoseconds * 2 : most) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done) break;
        if (program_now() >= end) return -1;
        nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
    }
    return 0;
}

int ranks_wire_open(frugal_wire *wire, program_error *error) {
    if (!frugal_mpi_wire(ranks_comm, wire)) return 0;
    return program_fail(error, "cannot reach the other machines: %s", frugal_message());
}

void ranks_wire_close(frugal_wire *wire) {
    (void)frugal_mpi_free(wire);
}

void ranks_wire_end(void) {
    if (ranks_comm != MPI_COMM_NULL) MPI_Comm_free(&ranks_comm);
    MPI_Finalize();
}

void ranks_wire_abort(int status) {
    MPI_Abort(MPI_COMM_WORLD, status);
    exit(status);
}
