/* support.h - what several tests need: random numbers, hashes, a counting allocator. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64's finisher: a counter-based generator, so that a value depends on nothing but its arguments. */
static inline uint64_t test_mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
static inline uint64_t test_mix2(uint64_t a, uint64_t b) {
    return test_mix(test_mix(a) ^ b);
}
static inline uint64_t test_mix3(uint64_t a, uint64_t b, uint64_t c) {
    return test_mix2(test_mix2(a, b), c);
}

/* Where choices come from: a seed, or bytes that another program has chosen, such as a fuzzer. */
typedef struct test_random {
    uint64_t seed, at;
    const unsigned char *bytes; /* not NULL: choices are read from these, and are zeros after their end */
    uint64_t n_bytes;
} test_random;

/* A number of `n` bytes, lowest first. */
static inline uint64_t test_next_bytes(test_random *r, int n) {
    uint64_t value = 0;
    for (int i = 0; i < n; i++, r->at++)
        if (r->at < r->n_bytes) value |= (uint64_t)r->bytes[r->at] << 8 * i;
    return value;
}
static inline uint64_t test_next(test_random *r) {
    return r->bytes ? test_next_bytes(r, 8) : test_mix2(r->seed, r->at++);
}
/* From 0 to n - 1; from bytes it uses as few as possible, so that one changed byte changes one choice. */
static inline uint64_t test_below(test_random *r, uint64_t n) {
    int bytes = 1;
    if (!r->bytes) return n ? test_next(r) % n : 0;
    while (bytes < 8 && n > UINT64_C(1) << 8 * bytes) bytes++;
    return n > 1 ? test_next_bytes(r, bytes) % n : 0;
}
/* From low to high, both included. */
static inline uint64_t test_between(test_random *r, uint64_t low, uint64_t high) {
    return low + test_below(r, high - low + 1);
}
static inline int test_chance(test_random *r, unsigned percent) {
    return test_below(r, 100) < percent;
}
/* In [0, 1). */
static inline double test_unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

/* Of the bits, so that -0 and 0, and two NaNs, differ. */
static inline uint64_t test_hash(uint64_t hash, const void *data, size_t floats) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < floats; i++) {
        uint32_t word;
        memcpy(&word, bytes + 4 * i, 4);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* An allocator that counts, and that fails its nth call (0: none). Give &counter as `user`. */
typedef struct test_counter {
    atomic_uint_fast64_t calls, failures, bytes_out, blocks_out;
    uint64_t fail_at;
} test_counter;

static inline void *test_allocate(size_t bytes, size_t alignment, void *user) {
    test_counter *c = user;
    if (atomic_fetch_add(&c->calls, 1) + 1 == c->fail_at) {
        atomic_fetch_add(&c->failures, 1);
        return NULL;
    }
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, bytes ? bytes : 1)) return NULL;
    memset(memory, 0xa5, bytes); /* because the library must not rely on zeros */
    atomic_fetch_add(&c->bytes_out, bytes);
    atomic_fetch_add(&c->blocks_out, 1);
    return memory;
}

static inline void test_release(void *memory, size_t bytes, void *user) {
    test_counter *c = user;
    if (!memory) return;
    atomic_fetch_sub(&c->bytes_out, bytes);
    atomic_fetch_sub(&c->blocks_out, 1);
    free(memory);
}

#endif /* SUPPORT_H */
