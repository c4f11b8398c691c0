/* types.c - rows of one type as rows of another: weights of 16 bits widened to floats, and floats rounded to 16 bits.
 *
 * The rules of an element are in arithmetic.h, all of integers, so that the loops become vectors of any width with the
 * same bits. An optimizer's step of a row of 16 bits is that of a float row in between: widen, step, round.
 * Most conversions are called through row_conversions, because they would be inlined for each rule.
 */
#ifndef FRUGAL_TYPES_C
#define FRUGAL_TYPES_C
#include "vectors.c"

/* Copies weights of 16 bits, in pieces as copy_row. */
INLINED void copy_halves(uint16_t *to, const uint16_t *from, uint32_t n) {
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32) memcpy(to + i, from + i, 64);
    if (n & 16) memcpy(to + i, from + i, 32), i += 16;
    if (n & 8) memcpy(to + i, from + i, 16), i += 8;
    VECTORS
    for (; i < n; i++) to[i] = from[i];
}

INLINED void widen_elements(float *restrict to, const uint16_t *restrict from, frugal_type as, uint32_t n) {
    if (as == FRUGAL_BF16) {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_widen_bf16(from[i]);
    } else {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_widen_fp16(from[i]);
    }
}

INLINED void widen_row(float *to, const uint16_t *from, frugal_type as, uint32_t floats) {
    IN_PIECES(floats, i, n, widen_elements(to + i, from + i, as, n));
}

INLINED void nearest_elements(uint16_t *restrict to, const float *restrict from, frugal_type as, uint32_t n) {
    if (as == FRUGAL_BF16) {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_nearest_bf16(from[i]);
    } else {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_nearest_fp16(from[i]);
    }
}

INLINED void nearest_row(uint16_t *to, const float *from, frugal_type as, uint32_t floats) {
    IN_PIECES(floats, i, n, nearest_elements(to + i, from + i, as, n));
}

INLINED void round_elements(uint16_t *restrict to, const float *restrict from, const uint16_t *restrict noise,
                            frugal_type as, uint32_t n) {
    if (as == FRUGAL_BF16) {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_round_bf16(from[i], noise[i]);
    } else {
        VECTORS
        for (uint32_t i = 0; i < n; i++) to[i] = frugal_round_fp16(from[i], noise[i]);
    }
}

INLINED void round_row(uint16_t *to, const float *from, const uint16_t *noise, frugal_type as, uint32_t floats) {
    IN_PIECES(floats, i, n, round_elements(to + i, from + i, noise + i, as, n));
}

/* The random bits of elements [at, at + n) of a row. `at` is even; if n is odd, one more is written. */
INLINED void draw_noise(uint16_t *restrict noise, uint32_t row_noise, uint32_t at, uint32_t n) {
    uint32_t pairs = (n + 1) / 2;
    VECTORS
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t pair = frugal_pair_noise(row_noise, at / 2 + i);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        pair = pair << 16 | pair >> 16; /* the lower half is that of the first element */
#endif
        memcpy(noise + 2 * i, &pair, sizeof pair);
    }
}

/* n elements of any type as those of any other, rounded to the nearest. What gathers do most is inlined. */
INLINED void convert_row(const row_conversions *types, void *to, frugal_type to_as, const void *from,
                         frugal_type from_as, uint32_t n) {
    if (to_as == from_as && to_as == FRUGAL_FP32) {
        copy_row(to, from, n);
    } else if (to_as == from_as) {
        copy_halves(to, from, n);
    } else if (to_as == FRUGAL_FP32) {
        widen_row(to, from, from_as, n);
    } else if (from_as == FRUGAL_FP32) {
        types->nearest(to, from, to_as, n);
    } else {
        float wide[CHUNK_FLOATS];
        for (uint32_t i = 0, some; i < n; i += some) {
            some = LEAST(CHUNK_FLOATS, n - i);
            types->widen(wide, (const uint16_t *)from + i, from_as, some);
            types->nearest((uint16_t *)to + i, wide, to_as, some);
        }
    }
}

INLINED const void *element_at(const void *row, frugal_type as, uint64_t i) {
    return (const unsigned char *)row + i * frugal_type_bytes(as);
}

#endif
