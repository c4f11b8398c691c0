/* place.c - frugal_place.h for bench_cuda, which is C++. */
#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_place.h"
