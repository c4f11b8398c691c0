/* One process, for programs without MPI. */
#include "trainers/common/ranks_wire.h"

#include <stdlib.h>
#include <string.h>

/* What mpirun, of Open MPI and of MPICH, tells a process. */
static int ranks_started(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *n = getenv(names[i]);
        if (n && atoi(n) > 1) return atoi(n);
    }
    return 1;
}

int ranks_wire_begin(uint32_t *number, uint32_t *all, program_error *error) {
    *number = 0, *all = 1;
    if (ranks_started() == 1) return 0;
    return program_fail(error,
                        "mpirun has started %d processes, and this program has no MPI, so each would train alone; use "
                        "the one in build/mpi (`ninja mpi`)",
                        ranks_started());
}

int ranks_wire_gather(const void *mine, size_t bytes, void *all, double seconds) {
    (void)seconds;
    memcpy(all, mine, bytes);
    return 0;
}

int ranks_wire_open(frugal_wire *wire, program_error *error) {
    *wire = (frugal_wire){.machines = 1};
    (void)error;
    return 0;
}

void ranks_wire_close(frugal_wire *wire) {
    (void)wire;
}

void ranks_wire_end(void) {}

void ranks_wire_abort(int status) {
    exit(status);
}
