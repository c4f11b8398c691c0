/* keys.h - synthetic keys: uniform, or Zipf-distributed over a table. */
#ifndef FRUGAL_BENCH_KEYS_H
#define FRUGAL_BENCH_KEYS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* keys[n], each below `rows`: rank r with probability proportional to (r + 1) ^ -zipf (0: uniform), and ranks spread
 * over the table by a permutation, so that hot rows are not neighbours. The same arguments give the same keys; any
 * thread may call. Ranks by rejection-inversion (Hoermann and Derflinger, ACM TOMACS 6(3), 1996): exact, at a cost that
 * does not grow with rows. */
void bench_draw_keys(uint64_t *keys, uint64_t n, uint64_t rows, double zipf, uint64_t seed);

/* ranks[n]: those ranks themselves, from 0; with zipf 0 any rows. */
void bench_draw_ranks(uint64_t *ranks, uint64_t n, uint64_t rows, double zipf, uint64_t seed);

/* keys[n]: the most frequent ones that bench_draw_keys draws with zipf > 0, the most frequent first. */
void bench_hottest_keys(uint64_t *keys, uint64_t n, uint64_t rows);

/* splitmix64 (Steele et al., OOPSLA 2014). */
static inline uint64_t bench_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

#ifdef __cplusplus
}
#endif
#endif
