/* Decimal numbers in text, whatever the locale.
 */
#ifndef CLICKS_NUMBER_H
#define CLICKS_NUMBER_H

#include <stddef.h>

enum { CLICKS_LONGEST_NUMBER = 400 }; /* characters */

/* The number that the text is, all of it: digits, with sign, point and exponent where wanted. 0 if it is none. Of up to
 * 15 digits and exponents within 22 exactly what the compiler makes of it; else within some units of the last place. */
int clicks_parse_number(const char *text, size_t n, double *number);

#endif
