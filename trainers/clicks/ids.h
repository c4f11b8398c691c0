/* Ids as rows: a hash of their text, and vocabularies that number the frequent ones.
 *
 * The hash, exactly, so that others can have the same rows (Python, `text` of bytes, M = 2**64 - 1):
 *
 *     h = 0xcbf29ce484222325                                      FNV-1a, 64 bits
 *     for byte in text: h = (h ^ byte) * 0x100000001b3 & M
 *     h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9 & M                  the finisher of splitmix64: all bits count
 *     h = (h ^ h >> 27) * 0x94d049bb133111eb & M
 *     h = h ^ h >> 31
 *     row = h % rows
 *
 * A missing id is the empty text.
 */
#ifndef CLICKS_IDS_H
#define CLICKS_IDS_H

#include <stddef.h>
#include <stdint.h>
#include "trainers/common/program.h"
#include "trainers/common/random.h"

static inline uint64_t clicks_hash(const char *text, size_t n) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return random_mix(h);
}

/* The hash of a number's decimal text. */
uint64_t clicks_hash_number(int64_t number);

/* The ids of one feature, by hash. Two ids of the same 64-bit hash are one: with n ids that happens somewhere with
 * probability n^2 / 2^65, which is .0003 for 100 million ids. It costs no more than hashing into a table of 2^64 rows
 * would. */
typedef struct clicks_slot {
    uint64_t hash;
    uint32_t count;  /* 0: free; it stops at 2^32 - 1 */
    uint32_t number; /* while ids are counted: how many ids were new before this one; then its row */
} clicks_slot;

typedef struct clicks_vocabulary {
    clicks_slot *slots; /* slots[room], a power of two; linear probing, at most half full */
    uint64_t room, n;
} clicks_vocabulary; /* of zeros: empty */

/* Counts one id, of at most 2^32 - 2 different ones. The hash of the empty text is not an id. */
int clicks_vocabulary_count(clicks_vocabulary *v, uint64_t hash, program_error *error);
/* Keeps the ids that came `threshold` times and numbers them from 1 in the order in which they first came. */
int clicks_vocabulary_number(clicks_vocabulary *v, uint64_t threshold, program_error *error);
/* The row of an id, once they are numbered; 0: it has none. */
uint64_t clicks_vocabulary_row(const clicks_vocabulary *v, uint64_t hash);
void clicks_vocabulary_free(clicks_vocabulary *v);

#endif
