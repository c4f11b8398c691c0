/* frugal_save.h - saving the tables of an instance, or of several, to a file. A trainer includes it beside frugal.h.
 *
 *      frugal_drain(f);
 *      frugal_save(&f, 1, &(frugal_save_desc){.path = "monday"});                     every row: a base
 *      ... training goes on ...
 *      frugal_save(&f, 1, &(frugal_save_desc){.path = "tuesday", .increment = 1});    rows changed since monday
 *
 * and after the end of the process, however it came about, with the settings of before:
 *
 *      const char *files[] = {"monday", "tuesday"};
 *      desc.saved = files, desc.n_saved = 2;
 *      frugal_open(&desc, &f);                       the next step is frugal_settings(f)->first_step
 *
 * The rows, their optimizer state and the number of the next step are then those of tuesday, bit for bit, and so is all
 * that is trained from there: with any number of workers, lookahead, caches, and wherever the table lies. Increments
 * want frugal_desc.increments, and a base or a restore before them.
 *
 * A file has its name only when all of it is on the disk: a save that is killed or that fails leaves what was there,
 * and, killed, perhaps a file .NAME.frugal-1a2b3c beside it, which the next save of that name removes, or anybody.
 * A file that is damaged, cut or not a save is refused by name, with the place, and nothing is changed. So is an
 * increment that is missing, doubled or not of this base. Of a save of several instances an open reads what it needs:
 * the head, the rows of its own instance, and the end, which has the checksums of all blocks. Rows of another instance
 * that are damaged are refused when that one is opened, or by `frugal_file check`: reading them here, too, would read
 * the whole file once for every instance. Where rows are restored over others, in a file or a matrix of the caller's,
 * all of the save is read and checked before the first of them changes.
 * Not saved: rows of the caller's matrix that the caller has changed (an increment does not know of them; a base has
 * them), keys announced, what the trainer keeps beside the tables.
 *
 * The file is the same on every machine that is little-endian; src/format.h says what is in it.
 */
#ifndef FRUGAL_SAVE_H
#define FRUGAL_SAVE_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frugal_save_desc {
    const char *path; /* of the file that is made; links are followed; its folder must be there */
    int increment;    /* 0: a base, every row. 1: rows changed since the instances' last save, or their restore */
    int replace;      /* 0: a file that is there is refused. 1: replaced, if it is a save or empty */
} frugal_save_desc;
/* Saves instances[n], 1 to 64 of at most 2^20 tables, to one file: part i is instances[i]. All are drained (BUSY).
 * Their next increment wants the same ones in the same order. Instances are read by threads of its own, as many as the
 * first one's init_threads; no other call on them may be under way. Takes memory for each thread, 4 to 8 MiB or a row,
 * by the first instance's allocator. A save that fails has changed nothing; rows stay marked for the next increment.
 * The exception is a folder that cannot be synced: a file that was to be replaced has been, by the new one, which is
 * whole, but after a power loss one or the other has the name. The message says so. The next save may take the same
 * name; after a base it must be a base (ARGUMENT), and an increment continues what this one did. A new name is taken
 * back.
 * Errors: ARGUMENT, BUSY, FILE, MEMORY. */
FRUGAL_API frugal_status frugal_save(frugal *const *instances, uint32_t n, const frugal_save_desc *desc);

typedef struct frugal_saved { /* what a save is of */
    int increment;
    uint64_t id;       /* another for every save */
    uint64_t parent;   /* the id of the save that an increment continues; 0: a base */
    uint64_t base;     /* the id of its base; its own if it is one */
    uint64_t sequence; /* 0: the base; its increments 1, 2, ...; of a merged one that of the last */
    uint64_t bytes;    /* of the file */
    uint32_t parts;    /* instances; what follows is of one of them */
    uint32_t n_tables;
    uint64_t rows, step; /* of all its tables; the next step to train */
    uint32_t dim, devices;
    frugal_optimizer_kind optimizer;
    frugal_reduce reduce;
} frugal_saved;
/* Reads what the save `path` is of; `part` says of which instance. Its head and its end are checked, not its rows:
 * opening does that, and build/frugal_file. Any thread. Errors: ARGUMENT, FILE, MEMORY. */
FRUGAL_API frugal_status frugal_read_saved(const char *path, uint32_t part, frugal_saved *out);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_SAVE_H */
