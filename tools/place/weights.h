/* Communication weights of pairs of devices, for HET-GMP. */
#ifndef PLACE_WEIGHTS_H
#define PLACE_WEIGHTS_H

#include <stdint.h>

#include "trainers/common/program.h"

/* (*weights)[devices][devices], to be freed, from a list of numbers with commas, or from a file of numbers with blanks,
 * line ends or commas between them. */
int place_weights_read(double **weights, const char *text, uint32_t devices, program_error *error);
/* The same from text in memory; `name` is for messages. */
int place_weights_parse(double **weights, const char *name, const char *text, uint32_t devices, program_error *error);

#endif
