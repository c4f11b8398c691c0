/* A schema for a log that has none, from its first lines: to be checked by its reader.
 */
#ifndef CLICKS_MAKE_H
#define CLICKS_MAKE_H

#include "trainers/clicks/schema.h"

enum { CLICKS_MAKE_LINES = 10000 }; /* that are looked at */

/* What was made: lines that were looked at, and the label's column; `sure`: its name says that it is one. */
typedef struct clicks_made_schema {
    uint64_t lines;
    uint32_t label;
    int sure;
} clicks_made_schema;

/* The first line names the columns, or if a field of it is a number they are column1, column2, ... The label is the
 * column of such a name, or else of two values, the first before the last before the others; 1 is the upper half of
 * its numbers, or the rarer text. Columns of numbers are numbers, except those whose names say that they are ids and
 * those of few whole ones. A column that counts the lines is skipped. On failure nothing has to be freed. */
int clicks_make_schema(clicks_schema *schema, const char *path, clicks_made_schema *made, program_error *error);

#endif
