/* What the bits of a training depend on, in words, so that only the same training can resume from a checkpoint.
 *
 *     --dim 64
 *     --lr 0.2
 *     data 300 entities, 5 relations, checksum 0a1b2c3d
 *
 * A line each: a name, a blank, the value. The program writes them; a checkpoint has them as a file. What may differ
 * when a run goes on (workers, lookahead, caches, where a table lies) is not among them.
 */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "trainers/common/program.h"

/* The value of the line that begins with name[n] and a blank, and its length; NULL: there is none. */
const char *identity_value(const char *text, const char *name, size_t n, size_t *length);
/* Is it the same training? `made` (of the checkpoint `name`) and `now` are such texts. -1: *error names the first line
 * that differs, with both values. */
int identity_check(const char *name, const char *made, const char *now, program_error *error);
/* Does another machine train the same, of which `mine` tells, as the first one? */
int identity_check_machine(const char *first, const char *mine, program_error *error);

#endif
