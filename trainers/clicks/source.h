/* The samples of a click log as what partition.h reads: the rows that each touches, over all tables.
 *
 * Tables lie one after the other, as in Frugal: row r of feature k's table is key r + the rows of the tables before it.
 * So a key says the table, too, and a partition's counts, homes and ranks are of the trainer's rows.
 */
#ifndef CLICKS_SOURCE_H
#define CLICKS_SOURCE_H

#include "trainers/clicks/clicks.h"
#include "trainers/common/partition.h"

typedef struct clicks_source {
    const clicks *log;
    const char *path;    /* NULL: generated */
    uint64_t first, end; /* samples [first, end) */
    uint64_t rows;       /* of all tables */
    uint64_t *offset;    /* offset[features]: keys before those of the feature's table */
    clicks_reader *reader;
    clicks_batch batch;
    uint64_t *keys; /* keys[block][features] */
    uint64_t block;
    clicks_malformed malformed; /* of the last pass that was read to its end */
} clicks_source;

/* `log` is prepared, and it and `path` must outlive the source. On failure there is nothing to close. */
int clicks_source_open(clicks_source *source, const clicks *log, const char *path, uint64_t first, uint64_t end,
                       program_error *error);
void clicks_source_close(clicks_source *source);
/* It must not move while this is in use. */
partition_source clicks_source_of(clicks_source *source);

#endif
