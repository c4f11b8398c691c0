/* Files that another program makes text of: compressed ones, and Parquet.
 *
 * The program gets the file as its stdin, and its stdout is read in place of the file. A file of Parquet becomes text
 * with commas and a first line of names; columns of lists become bags, with `|` between their values.
 */
#ifndef CLICKS_FILTER_H
#define CLICKS_FILTER_H

#include <sys/types.h>
#include "trainers/common/program.h"

typedef struct clicks_filter {
    pid_t child;         /* 0: none is needed */
    const char *program; /* as messages name it */
} clicks_filter;

/* By the first bytes of the file that *descriptor has open, if it is no pipe: does nothing, or starts what reads it,
 * and *descriptor becomes what is read instead. A file of a kind that nothing here reads is an error, which says the
 * kind and what to do. The descriptor is closed in none of these cases but the second. */
int clicks_filter_open(clicks_filter *filter, int *descriptor, const char *path, program_error *error);
/* All that it wrote is read. Did it end well? */
int clicks_filter_end(clicks_filter *filter, const char *path, program_error *error);
/* Ends it, wherever it is. The descriptor is closed by then. */
void clicks_filter_close(clicks_filter *filter);

#endif
