/* vectors.c - loops over the elements of a row, which compilers vectorize: add, divide, multiply, copy, prefetch.
 *
 * optimizer.c and sums.c build all that computes with the floats of a row from these loops. rows.c compiles them for
 * each instruction set. Every operation is IEEE's and nothing is reassociated, so the bits are the same
 * whatever the width of vectors.
 */
#ifndef FRUGAL_VECTORS_C
#define FRUGAL_VECTORS_C
#include "rows.h"

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

#endif
