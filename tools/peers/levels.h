/* How often rows are touched, as levels for the planner of frugal_place.h. */
#ifndef PEERS_LEVELS_H
#define PEERS_LEVELS_H

#include <stdint.h>

#include "trainers/common/program.h"
#include "frugal_place.h"

enum { PEERS_MOST_LEVELS = 4096 };

/* Makes the levels of a Zipf distribution of `rows` rows, of which the r-th is touched in proportion to r ^ -skew,
 * `touches` in all. From level to level the last rank grows by a fixed factor. Returns the number of levels, at most
 * n. */
uint32_t peers_zipf(frugal_place_level *levels, uint32_t n, uint64_t rows, double skew, double touches);
/* Reads levels from a file: lines of "touches rows", in any order; `#` begins a comment. The touches are scaled to
 * `touches` in all. *n is the number of levels, at most PEERS_MOST_LEVELS. */
int peers_read_levels(frugal_place_level *levels, uint32_t *n, const char *path, double touches, program_error *error);

#endif
