/* Planted samples as lines of the formats that are read: drawn or read back, with CLICKS_GIVEN ids, they are the same.
 *
 * CLICKS_SCHEMA writes plain CSV with a header, label,I1,...,C1,..., and the schema to read it with. Avazu's logs have
 * no numbers and 21 ids beside the hour, which runs over ten days and tells nothing.
 */
#ifndef CLICKS_WRITE_H
#define CLICKS_WRITE_H

#include "trainers/clicks/clicks.h"
#include "trainers/clicks/generate.h"

typedef struct clicks_writer {
    clicks_format format; /* not CLICKS_GENERATED */
    clicks_generator size;
} clicks_writer;

/* Can samples of this size be written in this format? */
int clicks_writer_check(const clicks_writer *writer, program_error *error);
/* The bytes that any of these functions needs. All return how many bytes they wrote, including the line's end; no zero
 * is written. */
size_t clicks_writer_room(const clicks_writer *writer);
size_t clicks_write_header(const clicks_writer *writer, char *text); /* 0: the format has none */
size_t clicks_write_sample(const clicks_writer *writer, uint64_t i, const clicks_drawn *drawn, char *text);
size_t clicks_write_schema(const clicks_writer *writer, char *text);

#endif
