/* frugal_save.h - saving the tables of an instance, or of several, to a file. A trainer includes it beside frugal.h.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 *      frugal_drain(f);
 *      frugal_save(&f, 1, &(frugal_save_desc){.path = "monday"});                     every row: a base
 *      ... training goes on ...
 *      frugal_drain(f);
 *      frugal_save(&f, 1, &(frugal_save_desc){.path = "tuesday", .increment = 1});    rows changed since monday
 *
 * and in a new process, however the old one ended, with the same settings:
 *
 *      const char *files[] = {"monday", "tuesday"};
 *      desc.saved = files, desc.n_saved = 2;
 *      frugal_open(&desc, &f);                       the next step is frugal_settings(f)->first_step
 *
 * The rows, their optimizer state and the number of the next step are then those of tuesday, bit for bit. Training from
 * there gives the same bits, too, with any number of workers, lookahead and caches, and wherever the table lies. An
 * increment needs frugal_desc.increments, and a base or a restore before it.
 *
 * A file gets its name only when all of it is on the disk. A save that fails, or whose process is killed, leaves the
 * old file as it was (frugal_save names one exception). A killed process may also leave a file .NAME.frugal-1a2b3c
 * beside it: the next save of that name removes it, and you may, too. A file that is damaged, truncated or not a save
 * is refused: the message names the file and the place, and nothing is changed. So is an increment that is given twice,
 * or that does not continue the file before it.
 *
 * From a save of several instances, frugal_open reads only the head, the rows of its own instance, and the end, which
 * has the checksums of all blocks. If it read all rows, the whole file would be read once for every instance. So
 * damaged rows of another instance are found only when that instance is opened, or by `frugal_file check`. But where
 * rows are restored over others, in a file or in the caller's matrix, the whole save is read and checked before the
 * first row changes.
 *
 * Counts of touches (frugal_counts.h) are saved, too, also in an increment: one byte a row. An instance that is opened
 * from the save goes on counting from them. (`frugal_file merge` leaves them out.)
 *
 * Weights are saved as they are stored (frugal_desc.rows_as): 16 bits take half as many bytes. Such a save also has
 * `rounding` and, if that is stochastic, `seed`, because the bits of later training depend on them: another setting is
 * refused (SETTINGS) unless frugal_desc.saved_settings_may_differ. An instance may be opened from a save of another
 * type. Weights are then rounded to the nearest, or widened to fp32, which is exact; those beyond the largest of fp16
 * become infinite. Notices report both. Such an instance needs a base before its next increment, because all files of a
 * chain have one type. A save of fp32 weights alone has format 1, which older versions of Frugal read; any other has
 * format 2, which they refuse.
 *
 * An instance that is dealt over machines (frugal_machines.h) is saved by all of them at once: each writes its rows to
 * a file of its own, its *share*, and then machine 0 writes a *manifest* to the path that was given. The same number of
 * machines, with rows dealt in the same way, can be opened from it. For other numbers, `frugal_file merge` and
 * `frugal_file split` make another save of it (docs/durability.md).
 *
 * Not saved: announced keys, and what the trainer keeps beside the tables. Rows that the caller has changed in its own
 * matrix are in a base, but not in an increment, because the library does not know of such changes.
 *
 * The file is the same on every little-endian machine; src/format.h says what is in it.
 */
#ifndef FRUGAL_SAVE_H
#define FRUGAL_SAVE_H

#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows that have NaN or infinity are saved as they are. Their number and the first of them are told by
 * frugal_desc.notice of their instance, and are in its frugal_stats. */
typedef struct frugal_save_desc {
    const char *path; /* of the file that is made; links are followed; its folder must exist */
    int increment;    /* 0: a base, every row. 1: rows changed since the instances' last save, or their restore */
    int replace;      /* 0: a file that exists is refused. 1: it is replaced if it is a save, or empty */
} frugal_save_desc;
/* Saves instances[n], 1 to 64 of at most 2^20 tables, to one file: part i is instances[i]. All must be drained (else
 * BUSY). Their next increment needs the same instances in the same order. The call reads them with threads of its own,
 * as many as the first instance's init_threads; no other call on them may be under way. Each thread takes memory, 4 to
 * 8 MiB or a row, from the first instance's allocator. Of several machines all make the call, with the same instances
 * and the same path; if it fails on one, it fails on all, with the reason. A save that fails has changed nothing; rows
 * stay marked for the next increment. There is one exception: a file was to be replaced, and the folder cannot be
 * synced. Then the new file, which is whole, has replaced the old one, but after a power loss either may have the name;
 * the message says so. The next save may take the same name. If a base failed like this, or because a machine was lost,
 * the next save must be a base (else ARGUMENT). If an increment did, the next increment continues the same save as the
 * failed one. (A new file that was to replace none is removed.) Errors: ARGUMENT, BUSY, FILE, MEMORY; of several
 * machines also LIMIT, STUCK, STOPPED, LOST. */
FRUGAL_API frugal_status frugal_save(frugal *const *instances, uint32_t n, const frugal_save_desc *desc);

typedef struct frugal_saved { /* what a save contains */
    int increment;
    uint64_t id;       /* different for every save */
    uint64_t parent;   /* the id of the save that an increment continues; 0: a base */
    uint64_t base;     /* the id of its base; of a base its own id */
    uint64_t sequence; /* 0: a base; its increments: 1, 2, ...; of merged increments the last one's */
    uint64_t bytes;    /* of the file; of a manifest and its shares */
    uint32_t parts;    /* instances; the fields below are of one of them */
    uint32_t n_tables;
    uint64_t rows, step; /* of all its tables; the next step to train */
    uint32_t dim, devices;
    frugal_optimizer_kind optimizer;
    frugal_reduce reduce;
    frugal_type rows_as;
    frugal_rounding rounding; /* of weights of 16 bits; else 0 */
    uint64_t seed;            /* of stochastic rounding; else 0 */
    uint32_t machines;        /* that saved it: `path` is their manifest, and `rows` are those of all. 0: one alone */
} frugal_saved;
/* Says what the save `path` contains; `part` is the number of the instance. Head and end of the file are checked, but
 * not its rows: frugal_open and `frugal_file check` check them. Of a manifest all is checked, but no share. Any thread.
 * Errors: ARGUMENT, FILE, MEMORY. */
FRUGAL_API frugal_status frugal_read_saved(const char *path, uint32_t part, frugal_saved *out);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_SAVE_H */
