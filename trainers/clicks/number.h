/* Decimal numbers in text, whatever the locale.
 */
#ifndef CLICKS_NUMBER_H
#define CLICKS_NUMBER_H

#include <stddef.h>

enum { CLICKS_LONGEST_NUMBER = 400 }; /* characters */

/* Reads the whole text as a number: digits, with an optional sign, point and exponent. 0 if it is not a number. With up
 * to 15 digits and an exponent within 22 the value is exactly what the compiler makes of the text; else it is within
 * some units of the last place. */
int clicks_parse_number(const char *text, size_t n, double *number);

#endif
