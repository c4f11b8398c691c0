/* The rewriting of a folder of triples, or of a click log: its state, and what the two have in common. */
#ifndef REORDER_WORK_H
#define REORDER_WORK_H

#include "trainers/common/save.h"
#include "tools/place/data.h"

typedef struct reorder_work {
    const clicks_options *options;
    place_data data;
    save_set *set;
    const char *names[8]; /* of the set's files */
    int n_names;
    progress_line line;
    double started;
} reorder_work;

/* Between pieces of work: shows how far it is; -1 if a signal came. */
int reorder_go_on(reorder_work *work, const char *what, uint64_t samples, program_error *error);
/* numbers[n] as one array, a file of the set. */
int reorder_write_map(reorder_work *work, const char *name, const uint32_t *numbers, uint64_t n, program_error *error);

#endif
