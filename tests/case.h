/* case.h - a cmocka test with its own name and an argument: a number, passed as *state. */
#ifndef CASE_H
#define CASE_H

#include <stdint.h>

#define CASE(name, test, argument)                                                                                     \
    { name, test, NULL, NULL, (void *)(intptr_t)(argument) }

#endif /* CASE_H */
