/* Rewriting a folder of triples, or a click log: what the two have in common. */
#ifndef REORDER_H
#define REORDER_H

#include "examples/common/save.h"
#include "tools/place/data.h"
#include "tools/reorder/order.h"

typedef struct reorder_work {
    const clicks_options *options;
    place_data data;
    save_set *set;
    const char *names[8]; /* of the set's files */
    int n_names;
    progress_line line;
    double started;
} reorder_work;

/* The names of the files that will be written, into work->names. */
void reorder_triples_names(reorder_work *work);
void reorder_clicks_names(reorder_work *work);
/* Writes them. */
int reorder_triples(reorder_work *work, program_error *error);
int reorder_clicks(reorder_work *work, program_error *error);

/* Between pieces of work: shows how far it is; -1 if a signal came. */
int reorder_go_on(reorder_work *work, const char *what, uint64_t samples, program_error *error);
/* numbers[n] as one array, a file of the set. */
int reorder_write_map(reorder_work *work, const char *name, const uint32_t *numbers, uint64_t n, program_error *error);

#endif
