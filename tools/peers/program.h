/* UGache's linear program (Song et al., SOSP '23, section 6.2), for a solver: the least that any plan can take. */
#ifndef PEERS_PROGRAM_H
#define PEERS_PROGRAM_H

#include <stdint.h>
#include <stdio.h>

#include "frugal_place.h"

/* Writes it in CPLEX's LP format, which GLPK (glpsol --lp), HiGHS and others read; the objective is milliseconds.
 * Levels stand for rows, and shares of a level for bits; so its optimum is also a lower bound of UGache's mixed integer
 * program. Any device may keep any share of a level. Of up to 16 devices of which some are not connected, a level's
 * shares must be such as whole rows have. The machine's links, shares of cores, roots and writes are as
 * frugal_place_make_plan takes them. */
void peers_write_program(FILE *file, const frugal_place_machine *m, const frugal_place_level *levels, uint32_t n);

#endif
