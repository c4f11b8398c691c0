/* Declared stale copies of the most frequent entities and relations. */
#ifndef KGE_SECONDARIES_H
#define KGE_SECONDARIES_H

#include "examples/kge/data.h"
#include "frugal.h"

/* Lists the most frequent `percent` of the rows of each table for every device, with this bound (frugal_secondaries).
 * Frequency is by training triples. table_rows[2]: entities; relations, twice as many where they have inverses. Nothing
 * is announced yet. 0, or -1 with *error filled. */
int kge_list_secondaries(frugal *f, const kge_graph *graph, const uint64_t table_rows[2], double percent,
                         uint32_t bound, program_error *error);

#endif
