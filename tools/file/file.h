/* file.h - what the parts of frugal_file share. They are parts of one source, tools/frugal_file.c, as the library's
 * parts are of frugal_flush.c. The library is compiled into it, so saves are read and written by the library's own
 * code.
 *
 * Rows go from a source to a file in pieces of at most 4 MiB, in order. So a command needs memory for a few pieces
 * (a chain: one a file), whatever the size of the table.
 */
#ifndef FRUGAL_FILE_H
#define FRUGAL_FILE_H

#include "../../frugal_flush.c"

#include <ctype.h>

#include "trainers/common/program.h"
#include "trainers/common/progress.h"

enum { MOST_TABLES = 4096 };

/* Of the command line. */
static struct {
    frugal_optimizer_kind optimizer;
    uint64_t step, rows[MOST_TABLES];
    uint32_t dim, n_rows, machines, n_homes;
    int replace, blocks;
    const char *homes[SAVED_MOST_PARTS]; /* files, one an instance */
} options;

static const frugal_desc own_memory; /* the system's */

typedef struct save_image { /* all of a base except its rows */
    saved_file head;
    saved_part *parts[SAVED_MOST_PARTS]; /* an instance each, its tables behind it */
    size_t part_bytes[SAVED_MOST_PARTS];
} save_image;

/* Where rows come from. `fetch` puts rows first .. first + n - 1 of an instance to weights[n][dim], of the instance's
 * type, and state[n][state_floats]; it is called for all rows of all instances, in order. Behind weights of 16 bits the
 * state need not be aligned. */
typedef struct row_source {
    frugal_status (*fetch)(void *source, uint32_t part, uint64_t first, uint64_t n, void *weights, void *state);
    void *source;
    const save_image *image;
} row_source;

#endif /* FRUGAL_FILE_H */
