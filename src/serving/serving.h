/* serving.h - versions of a table that is only read.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_SERVING_H
#define FRUGAL_SERVING_H

#include "../seeing/seeing.h"

/* served.c */

typedef struct served {
    frugal *f;                    /* desc, tables, store, first_row; `changed`: rows that differ from the file below */
    int file;                     /* the memory that versions share, or the table's file; -1: none */
    void *map;                    /* of that file, or memory of its own */
    size_t bytes;                 /* of the mapping */
    int is_private;               /* pages that are written are its own */
    uint64_t step;                /* the next to train */
    saved_chain chain;            /* the last of its saves; id 0: it is a table's file */
    uint64_t in_file;             /* the id of the last save whose rows are in the memory that versions share */
    uint64_t number, file_number; /* of the version, from 1; of the version with which its file came */
    uint64_t own_bytes;
} served;

FRUGAL_INTERNAL void close_served(served *v);
FRUGAL_INTERNAL frugal_status open_served(const frugal_served *from, uint32_t threads, const served *before, served *v,
                                          const char *call);
FRUGAL_INTERNAL uint64_t own_bytes(const served *v);

#endif
