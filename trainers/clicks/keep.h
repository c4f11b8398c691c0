/* What a log's columns mean and how its ids become rows, kept beside a model: a later log is then read as that one was.
 *
 * The schema is written as schema.h has it, with the rows of every table. Vocabularies are numbers of 64 bits: of each
 * feature how many ids it has, and their hashes (ids.h) in the order of their rows, from row 1 on.
 */
#ifndef CLICKS_KEEP_H
#define CLICKS_KEEP_H

#include <stdio.h>
#include "trainers/clicks/clicks.h"

void clicks_keep_schema(const clicks *log, FILE *stream);
/* How many numbers there are, and they: nothing without vocabularies. 0, or -1 with *error filled: no memory. */
uint64_t clicks_vocabulary_numbers(const clicks *log);
int clicks_keep_vocabularies(const clicks *log, FILE *stream, program_error *error);
/* Instead of clicks_prepare: numbers[n], as they were written. 0, or -1 with *error filled: they are not of a log with
 * these features. */
int clicks_take_vocabularies(clicks *log, const uint64_t *numbers, uint64_t n, program_error *error);

#endif
