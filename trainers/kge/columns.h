/* Are the columns of a graph's files what they were read as, and is the first line a triple?
 *
 * A file with its columns in another order is a graph, too, and a training on it runs to its end. So it is compared
 * with what else is known: a file of the relations' names beside it, and what graphs have in common. There are fewer
 * relations than entities, and heads and tails are the same kind of thing.
 */
#ifndef KGE_COLUMNS_H
#define KGE_COLUMNS_H

#include "trainers/kge/check.h"

/* Fills what findings say of columns and of the first line. Refuses a folder if a file with the relations' names says
 * that another column has them, and the order was not `given`; and a split that begins with a header. 0, or -1 with
 * *error filled. `findings` are kge_check_graph's. */
int kge_check_columns(kge_findings *findings, const kge_graph *graph, const char *folder, int given,
                      program_error *error);
/* What was found, to stderr. */
void kge_columns_tell(const kge_findings *findings, const kge_graph *graph);

#endif
