/* vectors.c - loops over the elements of a row, which compilers vectorize: add, divide, multiply, copy, prefetch.
 *
 * optimizer.c and sums.c build all that computes with the floats of a row from these loops. rows.c compiles them for
 * each instruction set. Every operation is IEEE's and nothing is reassociated, so the bits are the same
 * whatever the width of vectors.
 */
#include "host.h"

/* What is prefetched: the number of rows and of positions ahead, and the floats of each. A longer row is prefetched
 * only at its start, because the processor's own prefetcher sees that it goes on. Measured at dims 8 to 512: 12 to 20
 * rows give the same speed (at 8 floats 20 are best; 8 are too few at any dim), and so do 4 to 32 positions.
 * Prefetching whole rows of up to 512 floats is up to twice as fast. The first 64 floats of a record are enough,
 * because records lie in order. */
#define AHEAD_UPDATES   16u
#define AHEAD_POSITIONS 16u
#define AHEAD_FLOATS    512u
#define AHEAD_START     64u

/* Floats of a row that are summed at a time: a multiple of the 32 lanes, and enough that gcc keeps the loops over them
 * as loops. */
#define CHUNK_FLOATS 512u

/* Inlined into the functions of each instruction set (rows.c), so that it is compiled for these instructions. Without
 * optimization each function exists only once, so that coverage counts a branch once. */
#if defined(__OPTIMIZE__)
#define INLINED __attribute__((always_inline)) static inline
#else
#define INLINED static inline
#endif

/* Put before a loop over elements of a row, so that compilers vectorize the loop and do nothing else to it. Without the
 * pragma gcc unrolls a short loop before it vectorizes, and then cannot vectorize it; clang takes four vectors at a
 * time, and computes a row that is shorter than four vectors element by element. */
#if defined(__clang__)
#define VECTORS _Pragma("clang loop interleave(disable)")
#elif defined(__GNUC__)
#define VECTORS _Pragma("GCC unroll 1")
#else
#define VECTORS
#endif

/* Runs `call` on all elements of a row: on a multiple of 16, then on 8, 4 and single elements. Compilers see that these
 * counts fill vectors, whatever the length of the row. In `call`, `from` is the first element, and `n` the number of
 * elements. `floats` must be a variable. */
#define IN_PIECES(floats, from, n, call)                                                                               \
    do {                                                                                                               \
        uint32_t from = 0, n = floats & ~15u;                                                                          \
        call;                                                                                                          \
        from = n;                                                                                                      \
        n = 8;                                                                                                         \
        if (floats & 8) call, from += n;                                                                               \
        n = 4;                                                                                                         \
        if (floats & 4) call, from += n;                                                                               \
        n = 1;                                                                                                         \
        VECTORS                                                                                                        \
        for (; from < floats; from++) call;                                                                            \
    } while (0)

/* Prefetches all cache lines of a row, or the first ones of a long row, into the second-level cache. That cache
 * has a longer queue of outstanding reads than the first-level cache, so more lines are under way at a time. */
INLINED void prefetch_row(const float *row, uint32_t floats, int write) {
    if (floats > AHEAD_FLOATS) floats = AHEAD_START;
    uintptr_t at = (uintptr_t)row, end = at + floats * sizeof(float);
    for (at -= at % CACHE_LINE; at < end; at += CACHE_LINE) {
        if (write)
            __builtin_prefetch((const void *)at, 1, 2);
        else
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

INLINED void add_elements(float *restrict to, const float *restrict what, uint32_t n) {
    VECTORS
    for (uint32_t i = 0; i < n; i++) to[i] = frugal_add(to[i], what[i]);
}

INLINED void add_row(float *to, const float *what, uint32_t floats) {
    IN_PIECES(floats, i, n, add_elements(to + i, what + i, n));
}

INLINED void divide_elements(float *row, float by, uint32_t n) {
    VECTORS
    for (uint32_t i = 0; i < n; i++) row[i] = frugal_div(row[i], by);
}

INLINED void divide_row(float *row, float by, uint32_t floats) {
    IN_PIECES(floats, i, n, divide_elements(row + i, by, n));
}

INLINED void multiply_elements(float *row, float by, uint32_t n) {
    VECTORS
    for (uint32_t i = 0; i < n; i++) row[i] = frugal_mul(row[i], by);
}

INLINED void multiply_row(float *row, float by, uint32_t floats) {
    IN_PIECES(floats, i, n, multiply_elements(row + i, by, n));
}

/* Copies in pieces, because gcc makes a string instruction of a copy whose length has a small limit, and that
 * instruction is slower to start. */
INLINED void copy_row(float *to, const float *from, uint32_t n) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) memcpy(to + i, from + i, 64);
    if (n & 8) memcpy(to + i, from + i, 32), i += 8;
    if (n & 4) memcpy(to + i, from + i, 16), i += 4;
    VECTORS
    for (; i < n; i++) to[i] = from[i];
}
