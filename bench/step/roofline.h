/* roofline.h - what this machine's memory allows: random rows gathered, random rows updated, bytes streamed, and random
 * words changed.
 *
 * Nothing is synchronized and nothing is computed. It uses as many threads as the run that it is compared with keeps
 * busy, the same keys, and a table in memory. Bytes are streamed between arrays of the same size as the run's, so that
 * what stays in caches in the run stays in them here, too.
 */
#ifndef FRUGAL_BENCH_STEP_ROOFLINE_H
#define FRUGAL_BENCH_STEP_ROOFLINE_H

#include "src/device.h"

/* The distinct rows of each step, and memory to empty the caches with; several rooflines may share them. */
typedef struct roofline_rows roofline_rows;

/* keys[devices][batches][n_keys]; what is returned does not point into them. */
roofline_rows *roofline_find_rows(const uint64_t *const *keys, uint32_t devices, uint32_t batches, uint64_t n_keys);
void roofline_free_rows(roofline_rows *rows);

typedef struct roofline_desc {
    const frugal_store *store;   /* its rows are read and written, and keep their values */
    const uint64_t *const *keys; /* keys[devices][batches][n_keys] */
    const roofline_rows *rows;   /* of these keys */
    uint64_t *words;             /* [store->rows], zero; one per row is changed, and may have any value afterwards */
    uint32_t devices, batches, threads, staging; /* staging: blocks of a device that records go to in turn */
    uint64_t n_keys;
} roofline_desc;

typedef struct roofline_speeds { /* all threads together */
    double gathers_per_s;        /* positions of a batch: a row read at random, written to its place in an array */
    double updates_per_s;        /* distinct rows of a step, rising: weights and state read and written */
    double bytes_per_s; /* a batch's array copied to the next block of a ring; read and written bytes both count */
    double words_per_s; /* distinct rows of a step, rising: one read-modify-write of a word each */
    /* As the first two, but before each batch other memory is read until the caches hold nothing of it, as between the
     * steps of a model; the time of that is not counted. Updates also read a gradient for each
     * position of the batch. */
    double swept_gathers_per_s, swept_updates_per_s;
} roofline_speeds;

typedef struct roofline roofline;

roofline *roofline_open(const roofline_desc *desc);
/* Each of the first four speeds takes about `seconds`; each of the others, twice as long. */
roofline_speeds roofline_measure(roofline *r, double seconds);
void roofline_close(roofline *r);

#endif
