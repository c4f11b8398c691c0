/* counting.h - the byte that stands for a row's touches: written once for C and CUDA, so that host and GPU count alike.
 * What it means, and why, is said in worth.c. */
#ifndef FRUGAL_COUNTING_H
#define FRUGAL_COUNTING_H

#include "arithmetic.h"

#include <stdint.h>

enum { WORTH_MOST = 127, WORTH_DOUBLES = 5 }; /* levels: the last one; how many double the count */
enum { STAYED = 1, LEVEL_AT = 1 };            /* of a byte: did the last touch count; the level above it */
enum { PASSING = 20, RETURNING = 2 };         /* levels off what a row is worth whose copy was not current */
enum { WORTH_MARGIN = 2 };                    /* levels: of frugal_takes_place */
enum { HALVING_LEAST = 64, FALL_BITS = 40 };  /* steps; bits behind the point of what copies lose in a step */

/* 2 ^ 31 * 2 ^ (-level / 5): the number of touches, of 2 ^ 31 at this level, that raise it. The last level is never
 * raised. A GPU gets a copy. */
#define FRUGAL_FIVE_CHANCES(n)                                                                                         \
    UINT32_C(2147483648) >> (n), 1869493099 >> (n), 1627488270 >> (n), 1416810830 >> (n), 1233405466 >> (n)
static const uint32_t frugal_chances[WORTH_MOST + 1] = {FRUGAL_FIVE_CHANCES(0),
                                                        FRUGAL_FIVE_CHANCES(1),
                                                        FRUGAL_FIVE_CHANCES(2),
                                                        FRUGAL_FIVE_CHANCES(3),
                                                        FRUGAL_FIVE_CHANCES(4),
                                                        FRUGAL_FIVE_CHANCES(5),
                                                        FRUGAL_FIVE_CHANCES(6),
                                                        FRUGAL_FIVE_CHANCES(7),
                                                        FRUGAL_FIVE_CHANCES(8),
                                                        FRUGAL_FIVE_CHANCES(9),
                                                        FRUGAL_FIVE_CHANCES(10),
                                                        FRUGAL_FIVE_CHANCES(11),
                                                        FRUGAL_FIVE_CHANCES(12),
                                                        FRUGAL_FIVE_CHANCES(13),
                                                        FRUGAL_FIVE_CHANCES(14),
                                                        FRUGAL_FIVE_CHANCES(15),
                                                        FRUGAL_FIVE_CHANCES(16),
                                                        FRUGAL_FIVE_CHANCES(17),
                                                        FRUGAL_FIVE_CHANCES(18),
                                                        FRUGAL_FIVE_CHANCES(19),
                                                        FRUGAL_FIVE_CHANCES(20),
                                                        FRUGAL_FIVE_CHANCES(21),
                                                        FRUGAL_FIVE_CHANCES(22),
                                                        FRUGAL_FIVE_CHANCES(23),
                                                        FRUGAL_FIVE_CHANCES(24),
                                                        64,
                                                        55};
/* 31 bits of a row and a step. */
FRUGAL_INLINE uint32_t frugal_hash_touch(uint32_t row, uint64_t step) {
    uint64_t x = row * UINT64_C(0x9E3779B97F4A7C15) ^ (step + 1) * UINT64_C(0xD1B54A32D192ED03);
    return (uint32_t)(x * UINT64_C(0xBF58476D1CE4E5B9) >> 33);
}

/* The level is raised, or not. `current`: 1: the touch counts; hash: of frugal_hash_touch; chance: of the level. */
FRUGAL_INLINE uint32_t frugal_raised(uint32_t byte, uint32_t current, uint32_t hash, uint32_t chance) {
    return byte + ((current & (hash < chance)) << LEVEL_AT);
}

/* What a copy will be worth to the device that touches the row, by the raised byte. */
FRUGAL_INLINE uint32_t frugal_worth_of(uint32_t byte, uint32_t current) {
    uint32_t level = byte >> LEVEL_AT, off = current ? 0 : byte & STAYED ? PASSING : RETURNING;
    return level > off ? level - off : 0;
}

/* Steps in which each count is halved once, each row in one of them: those in which a device's largest batches have
 * two keys for each row; at least HALVING_LEAST. */
FRUGAL_INLINE uint64_t frugal_halving_steps(uint64_t rows, uint32_t max_keys) {
    uint64_t steps = (2 * rows + max_keys - 1) / max_keys;
    return steps < HALVING_LEAST ? (uint64_t)HALVING_LEAST : steps;
}

/* The rows *first .. *end - 1, whose counts are halved in a step, before its touches are counted. */
FRUGAL_INLINE void frugal_halved_rows(uint64_t rows, uint32_t max_keys, uint64_t step, uint64_t *first, uint64_t *end) {
    uint64_t steps = frugal_halving_steps(rows, max_keys), each = (rows + steps - 1) / steps;
    *first = step % steps * each, *end = *first + each;
    *first = *first < rows ? *first : rows, *end = *end < rows ? *end : rows;
}

/* The byte with half of the count: of the level whose count is nearest to that, or of the next one. */
FRUGAL_INLINE uint32_t frugal_halved(uint32_t byte) {
    uint32_t level = byte >> LEVEL_AT, off = (level + 2) / 3; /* low levels do not double in WORTH_DOUBLES steps */
    if (off >= WORTH_DOUBLES) off = WORTH_DOUBLES - (uint32_t)(level < 19);
    return byte - (off << LEVEL_AT);
}

/* What a copy loses in a step without a touch, in levels, with FALL_BITS bits behind the point: as counts do. */
FRUGAL_INLINE uint64_t frugal_fall(uint64_t rows, uint32_t max_keys) {
    return ((uint64_t)WORTH_DOUBLES << FALL_BITS) / frugal_halving_steps(rows, max_keys);
}

/* What is left of a copy's worth so many steps after its last touch, above -WORTH_MOST: below 256. A copy that nothing
 * touches for long is worth less than no touch, so that each row takes its place. since: below 2^24. */
FRUGAL_INLINE uint32_t frugal_worth_left(uint32_t worth, uint32_t since, uint64_t fall) {
    uint64_t lost = since * fall >> FALL_BITS, most = worth + WORTH_MOST;
    return (uint32_t)(most > lost ? most - lost : 0);
}

/* Does a row take the place of a copy of which so much is left (frugal_worth_left)? It does if it is worth more by more
 * than WORTH_MARGIN, a third of its count: a row that was just touched has counted this touch, others with the same
 * popularity have yet to count theirs. */
FRUGAL_INLINE int frugal_takes_place(uint32_t worth, uint32_t left) {
    return worth + WORTH_MOST > left + WORTH_MARGIN;
}

#endif /* FRUGAL_COUNTING_H */
