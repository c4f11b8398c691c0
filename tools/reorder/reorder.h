/* Rewriting a folder of triples, or a click log. */
#ifndef REORDER_H
#define REORDER_H

#include "tools/reorder/order.h"
#include "tools/reorder/work.h"

/* The names of the files that will be written, into work->names. */
void reorder_triples_names(reorder_work *work);
void reorder_clicks_names(reorder_work *work);
/* Writes them. */
int reorder_triples(reorder_work *work, program_error *error);
int reorder_clicks(reorder_work *work, program_error *error);

#endif
