/* case.h - a test of cmocka's with a name of its own and an argument, a number, which *state is. */
#ifndef CASE_H
#define CASE_H

#include <stdint.h>

#define CASE(name, test, argument)                                                                                     \
    { name, test, NULL, NULL, (void *)(intptr_t)(argument) }

#endif /* CASE_H */
