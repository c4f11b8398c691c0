/* vectors.c - loops over the elements of a row, which compilers turn into vectors: add, divide, copy, ask for ahead.
 *
 * Whatever computes with the floats of a row is built from these, by optimizer.c and sums.c; processors.c compiles all
 * three for each instruction set. Every operation is IEEE's and nothing is reassociated: the same bits whatever the
 * vectors' width.
 */
#include "host.h"

/* What is asked for ahead of its use: rows, positions, and floats of each; of a longer row only its start, because the
 * processor's own prefetcher sees that it goes on. Measured at dims 8 to 512: 12 to 20 rows do the same (at 8 floats
 * 20 are best, 8 are too few for any), 4 to 32 positions too; whole rows up to 512 floats are worth up to twice the
 * speed; of records, which lie in order, the first 64 floats do. */
#define AHEAD_UPDATES   16u
#define AHEAD_POSITIONS 16u
#define AHEAD_FLOATS    512u
#define AHEAD_START     64u

/* Floats of a row summed at a time; a multiple of the 32 lanes, and so many that gcc leaves the loops over them
 * loops. */
#define CHUNK_FLOATS 512u

/* Inlined into each clone, to be compiled for its instructions; but where nothing is optimized there is one of each, so
 * that coverage counts a branch once. */
#if defined(__OPTIMIZE__)
#define INLINED __attribute__((always_inline)) static inline
#else
#define INLINED static inline
#endif

/* Before a loop over elements of a row, so that it becomes vectors and nothing else. Without the pragma gcc unrolls a
 * short loop before it looks for vectors, and then finds none; clang takes four vectors at a time, and one by one the
 * elements of a row that is shorter than that. */
#if defined(__clang__)
#define VECTORS _Pragma("clang loop interleave(disable)")
#elif defined(__GNUC__)
#define VECTORS _Pragma("GCC unroll 1")
#else
#define VECTORS
#endif

/* `call` for all elements of a row: for the sixteens, an eight, a four and single elements, which are counts that are
 * seen to fill vectors, whatever the row's length. In `call`, `from` is the first element, and `n` the number of
 * them. `floats` is a variable. */
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

/* All lines of a row, or the first ones of a long row, into the second cache: that waits in a longer queue than the
 * first one's, so that more of them are on their way. */
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

/* In pieces: gcc makes a string instruction of a copy whose length has a small limit, and its start costs more. */
INLINED void copy_row(float *to, const float *from, uint32_t n) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) memcpy(to + i, from + i, 64);
    if (n & 8) memcpy(to + i, from + i, 32), i += 8;
    if (n & 4) memcpy(to + i, from + i, 16), i += 4;
    VECTORS
    for (; i < n; i++) to[i] = from[i];
}
