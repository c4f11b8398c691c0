/* What caches of each size save, and how many rows a step has: a partition in closed form, for build/bench_sim --plan,
 * which then needs neither the data nor the parts.
 *
 * Section 4 of frugal_place.h has the rates and the gain: with lambda_i touches of a row by device i in a step, lambda
 * by all, and t = 1 - exp(-lambda_i), a copy on device i is current at
 *     gain = t t exp(-(lambda - lambda_i)) / (1 - exp(-lambda))
 * reads of a step. A counted cache comes to hold the rows of most gain. An LRU cache holds the rows that its device has
 * touched in the last T steps, where T is such that they fill it (Che's approximation). There a copy is current if the
 * last step that touched the row is one of those, and was the device's own and nobody else's. Between two touches in
 * steps k apart lie k steps on average, and up to one more or less, so about the last T - 1/2 steps count:
 *     gain (1 - exp(-lambda (T - 1/2))).
 */
#ifndef PLACE_PROFILE_H
#define PLACE_PROFILE_H

#include "trainers/common/partition.h"

/* Cache sizes of a profile, as shares of all rows, rising. */
enum { PLACE_CACHES = 10 };
extern const double place_caches[PLACE_CACHES];

typedef struct place_profile {                                   /* means of a step, of all devices together */
    double rows;                                                 /* that are touched, each once, whoever does */
    double alone;                                                /* of these, rows that one device alone touches */
    double again;                                                /* of these, rows that the next step touches, too */
    double reads_counted[PLACE_CACHES], reads_lru[PLACE_CACHES]; /* rows read, by cache size */
} place_profile;

/* Of `rows` rows, `devices` parts and steps of `batch` samples a device. Costs O(rows x devices) and 20 KiB a device.
 * 0, or -1 with *error filled: no memory, a signal. */
int place_profile_take(place_profile *profile, const frugal_place *place, uint64_t rows, uint32_t devices,
                       uint64_t batch, program_error *error);

#endif
