/* What both trainers do with --place: a partition of the training samples, made at the start or read from a file; the
 * rows that it puts into the devices' caches beforehand, and on several machines into their memories; and what is said
 * of it.
 *
 *     placing_desc desc = {.settings = &settings, .threads = 2, .rows = rows};
 *     placing_make(&placing, &desc, &source, &error)     does nothing without --place
 *     placing.partition.parts                            parts[samples], for the trainer; NULL: at random
 *     placing.homes.of                                   homes[rows] of several machines (frugal_machines); else NULL
 *     placing_describe(&placing, lines)                  for identity.h: the bits depend on the parts
 *     placing_preload(&placing, frugal, device, ...)     when all devices are attached, before the first announcement
 *     placing_forget(&placing)                           the counts, when all is preloaded
 *     placing_show(&placing), placing_json(&placing, json)
 *     placing_close(&placing)
 *
 * Rows are numbered as Frugal does: those of one table after those of the table before it.
 *
 * Each machine makes the parts itself, from all samples, and all have the same, because they follow from whole numbers.
 * They do not depend on the machines that there are: `auto` deals as for one, `auto:N` as for N, whose devices follow
 * each other. So a training has the same bits on any number of machines. Homes do depend on them, and change no bits.
 */
#ifndef PLACING_H
#define PLACING_H

#include "trainers/common/homes.h"
#include "trainers/common/partition.h"
#include "trainers/common/settings.h"

typedef struct placing {
    const training_settings *settings;
    partition partition;
    frugal_place_report report;
    uint32_t checksum; /* of the parts */
    uint32_t machines;
    homes homes; /* of[rows + twins], of several machines; a twin is where its row is */
} placing;

typedef struct placing_desc {
    const training_settings *settings; /* place, devices; they must stay */
    uint32_t threads;                  /* that refine; the parts do not depend on their number */
    uint64_t rows;                     /* of all tables, that samples touch */
    uint32_t machines;                 /* that train; 0: 1 */
    /* As secondaries_desc has them: each row from `twins_from` on has a twin, `twins` rows behind it, that no sample
     * touches. 0: none has. */
    uint64_t twins_from, twins;
} placing_desc;

/* The file that --place names; NULL: none, or `auto`, or `auto:N`. */
const char *placing_file(const char *place);
/* Reads the source once for a file of parts, six times otherwise; stderr says how far it is. On failure it can be
 * closed. */
int placing_make(placing *p, const placing_desc *desc, const partition_source *source, program_error *error);
/* The line of the settings that bits depend on; none without --place. */
void placing_describe(const placing *p, FILE *lines);

/* Puts the rows that are worth most to the device (frugal_place.h, section 4) into its cache of `cache_rows`; on
 * several machines only rows whose home is its own. Copies do not change bits. Does nothing without --place, without a
 * cache, when the counts are forgotten, or if another file says where rows lie. All ranks call it. */
int placing_preload(const placing *p, frugal *f, uint32_t device, uint64_t cache_rows, program_error *error);
/* Frees the counts, which are the larger part of the memory. */
void placing_forget(placing *p);

/* The end of a line, ", local 78%, balance 1.03, placed in 1.2 s"; nothing without --place. */
void placing_show(const placing *p);
/* Fields of a JSON object that is not closed; NULL is no file. */
void placing_json(const placing *p, FILE *json);
void placing_close(placing *p);

#endif
