/* rows.c - loops over the elements of a row, which compilers turn into vectors: add, divide, copy, ask for ahead.
 *
 * Whatever touches the floats of a row is built from these, by optimizer.c and sums.c; processors.c compiles all three for
 * each instruction set. Every operation is IEEE's and nothing is reassociated: the same bits whatever the vectors' width.
 */
#include "host.h"

/* What is asked for ahead of its use: rows, positions, and floats of each; of a longer row only its start, because the
 * processor's own prefetcher sees that it goes on. Measured at dims 8 to 512: 12 to 20 rows do the same (at 8 floats
 * 20 are best, 8 are too few for any), 4 to 32 positions too; whole rows up to 512 floats are worth up to twice the
 * speed; of records, which lie in order, the first 64 floats do. */
#define FRUGAL_PRIV_AHEAD_APPLY  16u
#define FRUGAL_PRIV_AHEAD_SUM    16u
#define FRUGAL_PRIV_AHEAD_FLOATS 512u
#define FRUGAL_PRIV_AHEAD_START  64u

/* Floats of a row summed at a time; a multiple of the 32 lanes, and so many that gcc leaves the loops over them loops. */
#define FRUGAL_PRIV_STATE_CHUNK 512u

/* Inlined into each clone, to be compiled for its instructions; but where nothing is optimized there is one of each, so
 * that coverage counts a branch once. */
#if defined(__OPTIMIZE__)
#define FRUGAL_PRIV_ALWAYS __attribute__((always_inline)) static inline
#else
#define FRUGAL_PRIV_ALWAYS static inline
#endif

/* Before a loop over elements of a row, so that it becomes vectors and nothing else. Rows go in sixteens, an eight, a
 * four and single elements: counts that are seen to fill vectors, whatever their length. Without the pragma gcc unrolls
 * a short loop before it looks for vectors, and then finds none; clang takes four vectors at a time, and one by one the
 * elements of a row that is shorter than that. */
#if defined(__clang__)
#define FRUGAL_PRIV_VECTORS _Pragma("clang loop interleave(disable)")
#elif defined(__GNUC__)
#define FRUGAL_PRIV_VECTORS _Pragma("GCC unroll 1")
#else
#define FRUGAL_PRIV_VECTORS
#endif

/* All lines of a row, or the first ones of a long row, into the second cache: that waits in a longer queue than the first
 * one's, so that more of them are on their way. */
FRUGAL_PRIV_ALWAYS void frugal_priv_prefetch_row(const float *row, uint32_t floats, int write) {
    if (floats > FRUGAL_PRIV_AHEAD_FLOATS) floats = FRUGAL_PRIV_AHEAD_START;
    uintptr_t at = (uintptr_t)row, end = at + floats * sizeof(float);
    for (at -= at % FRUGAL_PRIV_LINE; at < end; at += FRUGAL_PRIV_LINE) {
        if (write)
            __builtin_prefetch((const void *)at, 1, 2);
        else
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

FRUGAL_PRIV_ALWAYS void frugal_priv_add_elements(float *restrict to, const float *restrict what, uint32_t n) {
    FRUGAL_PRIV_VECTORS
    for (uint32_t i = 0; i < n; i++) to[i] = frugal_add(to[i], what[i]);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_add_row(float *to, const float *what, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_add_elements(to, what, i);
    if (n & 8) frugal_priv_add_elements(to + i, what + i, 8), i += 8;
    if (n & 4) frugal_priv_add_elements(to + i, what + i, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_add_elements(to + i, what + i, 1);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_divide_elements(float *row, float by, uint32_t n) {
    FRUGAL_PRIV_VECTORS
    for (uint32_t i = 0; i < n; i++) row[i] = frugal_div(row[i], by);
}

FRUGAL_PRIV_ALWAYS void frugal_priv_divide_row(float *row, float by, uint32_t n) {
    uint32_t i = n & ~15u;
    frugal_priv_divide_elements(row, by, i);
    if (n & 8) frugal_priv_divide_elements(row + i, by, 8), i += 8;
    if (n & 4) frugal_priv_divide_elements(row + i, by, 4), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) frugal_priv_divide_elements(row + i, by, 1);
}

/* In pieces: gcc makes a string instruction of a copy whose length has a small limit, and its start costs more. */
FRUGAL_PRIV_ALWAYS void frugal_priv_copy_row(float *to, const float *from, uint32_t n) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) memcpy(to + i, from + i, 64);
    if (n & 8) memcpy(to + i, from + i, 32), i += 8;
    if (n & 4) memcpy(to + i, from + i, 16), i += 4;
    FRUGAL_PRIV_VECTORS
    for (; i < n; i++) to[i] = from[i];
}
