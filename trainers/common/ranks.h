/* Machines that train together: each is a *rank*, a process that mpirun has started, and all run the same program with
 * the same options. Rank 0 speaks for all: what the others write to stdout and stderr goes nowhere, and they write no
 * files of their own.
 *
 *     ranks_open(&error)                                  before any output
 *     ranks_agree(status, &error)                         all come; each learns whether one has failed
 *     ranks_deal(&dealing, "cyclic", &rows, &error)       a wire, and how rows are dealt, for one instance
 *     desc.machines = ranks_machines(&dealing); frugal_open(&desc, &f) ... frugal_close(f)
 *     ranks_deal_close(&dealing)
 *     ranks_end(status, &error), ranks_close()
 *
 * A program without MPI has one rank, and so has one that mpirun did not start, or that has not called ranks_open: then
 * all of this does nothing. ranks_mpi.c and ranks_alone.c define what the two kinds of programs call (ranks_wire.h).
 *
 * Functions that can fail return 0, or -1 with *error filled.
 */
#ifndef RANKS_H
#define RANKS_H

#include "trainers/common/program.h"
#include "frugal_machines.h"

/* Fails if mpirun has started several processes of a program without MPI, each of which would do all the work. */
int ranks_open(program_error *error);
void ranks_close(void);

uint32_t ranks_number(void); /* of this one, from 0 */
uint32_t ranks_all(void);
/* Rank 0 does something by itself, as if it were alone, until it says 0. */
void ranks_be_alone(int alone);
/* The devices of this rank, of so many in all: the first of them, and their number. */
uint32_t ranks_first(uint32_t devices);
uint32_t ranks_devices(uint32_t devices);

/* The ranks wait for each other here, asleep, as long as it takes. If one has come with a status other than 0, -1 on
 * all, with its error, here and in all later calls; it waits only some seconds for the others, which may be busy, and
 * then says what has failed, and ends all processes. A signal that one has got is known to all (program_signalled).
 * Between runs. */
int ranks_agree(int status, program_error *error);
/* The same, where rank 0 has found something: bytes that all get. */
int ranks_share(int status, void *what, size_t bytes, program_error *error);
enum { RANKS_SHARED = 5120 }; /* bytes, at most */
/* As ranks_agree, after a failure that all can get over: later calls are as if there had been none. */
int ranks_try(int status, program_error *error);
/* The last word, when all is closed: the status of all. */
int ranks_end(int status, program_error *error);

/* The signal that this rank has got, or 0. In a run the ranks tell each other of it by themselves. */
int ranks_signal(void);

/* How the rows of an instance are dealt over the ranks. */
typedef struct ranks_dealing {
    frugal_wire wire;
    frugal_machines machines;
    uint8_t *homes;
    int opened;
} ranks_dealing;

typedef struct ranks_rows {
    uint64_t ids,
        twins; /* rows of all tables; of these the last ones, dealt as those before them, if a file lacks them */
    const uint8_t *homes; /* homes[ids], where nothing else is asked for; read during frugal_open. NULL: cyclic */
} ranks_rows;

/* deal: "cyclic", "blocks", or a .npy file with the machine of each row, uint8, as build/place --machines writes it;
 * NULL: not given. All ranks call it. */
int ranks_deal(ranks_dealing *d, const char *deal, const ranks_rows *rows, program_error *error);
/* NULL: there is one rank. */
const frugal_machines *ranks_machines(const ranks_dealing *d);
/* When the instance is closed. All ranks call it; zeros are accepted. */
void ranks_deal_close(ranks_dealing *d);

#endif
