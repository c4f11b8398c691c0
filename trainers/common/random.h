/* Random numbers that are functions of two others: none depends on what was drawn before (splitmix64). */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

/* Every bit of the result depends on every bit of x; one to one. */
static inline uint64_t random_mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t random_at(uint64_t stream, uint64_t counter) {
    return random_mix(stream + (counter + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* A number below n, from 64 random bits. */
static inline uint32_t random_below(uint64_t bits, uint32_t n) {
    return (uint32_t)(((bits >> 32) * n) >> 32);
}

#endif
