/* roofline.h - what this machine's memory allows: random rows gathered, random rows updated, and bytes streamed.
 *
 * Nothing is synchronized and nothing is computed. Measured with as many threads as the run that it is compared with keeps
 * busy, with the same keys, on a table in memory. Bytes are streamed from memory to memory, although gradients and records
 * of a small batch may stay in a cache: then a step may take less than what is asked for here.
 */
#ifndef FRUGAL_BENCH_ROOFLINE_H
#define FRUGAL_BENCH_ROOFLINE_H

#include "frugal.h"

typedef struct roofline_desc {
    const frugal_store *store;   /* its rows are read and written, and keep their values */
    const uint64_t *const *keys; /* keys[devices][batches][n_keys] */
    uint32_t devices, batches, threads;
    uint64_t n_keys;
} roofline_desc;

typedef struct roofline_speeds { /* all threads together */
    double gathers_per_s;        /* positions of a batch: a row read at random, written to its place in an array */
    double updates_per_s;        /* distinct rows of a step, rising: weights and state read and written */
    double bytes_per_s;          /* copied from one large array to another; read and written bytes both count */
} roofline_speeds;

typedef struct roofline roofline;

roofline *roofline_open(const roofline_desc *desc);
/* Each of the three speeds takes about `seconds`. */
roofline_speeds roofline_measure(roofline *r, double seconds);
void roofline_close(roofline *r);

#endif
