/* A rank that trains random configurations of the property test over MPI, and compares with the sequential reference
 * bit by bit. tests/machines/test_mpi runs it by mpirun:
 *
 *     mpi_trials SEED COUNT
 *
 * Exit status: 0 if all have the reference's bits on all ranks; else the job is ended, and the rank says why. */
#include <stdio.h>
#include "../../frugal_mpi.h"
#include "trials.h"

static void pass_ranks(machine *m) {
    (void)m;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void run_rank(const trial *t, expectation *e, progress *p) {
    static run mine;
    machine m = {.r = &mine, .pass = pass_ranks, .waits = (int)(trial_bits(t, 98, 0, 0) % 2)};
    uint8_t *homes = homes_of(t);
    memset(&mine, 0, sizeof mine);
    if (frugal_mpi_wire(MPI_COMM_WORLD, &m.wire) != FRUGAL_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    m.dealt = (frugal_machines){&m.wire, t->deal, t->deal == FRUGAL_DEAL_LISTED ? homes : NULL};
    uint32_t here = t->devices / t->machines, me = m.wire.machine;
    mine.t = t, mine.e = e, mine.listed = TRIAL_BOUNDARIES, mine.machines = &m.dealt;
    mine.first = me * here, mine.end = (me + 1) * here;
    progress_begin(p, &mine, 1);
    machine_main(&m);
    progress_end(p);
    if (!p->failed && frugal_mpi_free(&m.wire) != FRUGAL_OK) snprintf(p->message, 512, "%s", frugal_message());
    free(homes);
}

int main(int argc, char **argv) {
    static expectation e;
    static progress p;
    int level, rank, ranks;
    uint64_t seed = argc == 3 ? strtoull(argv[1], NULL, 0) : 0, count = argc == 3 ? strtoull(argv[2], NULL, 0) : 0;
    if (count == 0) return fprintf(stderr, "usage: mpi_trials SEED COUNT\n"), 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (uint64_t i = 0; i < count; i++) {
        trial t;
        make_random(&t, seed + i, (uint32_t)ranks);
        memset(&e, 0, sizeof e);
        expect(&t, &e, &p);
        if (!p.failed) run_rank(&t, &e, &p);
        reference_stale_close(&e.stale);
        reference_close(&e.ref);
        free(e.lookups), free(e.by_row);
        if (!p.message[0]) continue;
        describe(&t);
        fprintf(stderr, "rank %d: %s; replay: mpi_trials %llu 1\n", rank, p.message, (unsigned long long)(seed + i));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
