/* format.h - what a save consists of, byte by byte: for the library, and for tools that read and write the files.
 *
 * Eight bytes, then blocks; nothing behind the last one. All numbers are little-endian.
 *
 *     "\x89FRUGAL\n" | FILE | PART of instance 0 | PART of instance 1 | ... | ROWS | ROWS | ... | END
 *
 * A block is a header of 32 bytes and what it says, filled up with zeros to a multiple of 8. Its checksum covers all of
 * that, the checksum itself taken as zero; blocks are numbered from 0, so that one that is missing, doubled or at
 * another place is seen; END has the checksum of all of them. A block whose type has SAVED_SKIP may be skipped by those
 * who do not know it; any other that is not known is refused.
 *
 * The file is a base, with every row of every instance, or an increment, with the rows that changed since its parent.
 * ROWS come in the order of instances, and of rows in each. Those of a base are of SAVED_ALL, without a gap.
 *
 * Private; needs stdint.h and a machine that is little-endian.
 */
#ifndef FRUGAL_FORMAT_H
#define FRUGAL_FORMAT_H

#include <stdint.h>

#define SAVED_MAGIC                                                                                                    \
    "\x89"                                                                                                             \
    "FRUGAL\n" /* 8 bytes, without the zero behind */
#define SAVED_MAGIC_BYTES 8u
#define SAVED_BLOCK_MAGIC UINT32_C(0x42475246) /* "FRGB" */
#define SAVED_VERSION     1u
#define SAVED_MOST_PARTS  64u

enum { SAVED_BASE = 0, SAVED_INCREMENT = 1 };
enum { SAVED_FILE = 1, SAVED_PART = 2, SAVED_ROWS = 3, SAVED_END = 4 };
#define SAVED_SKIP UINT32_C(0x80000000)

typedef struct saved_header { /* of a block */
    uint32_t magic, type;
    uint64_t number; /* 0, 1, 2, ... in the file */
    uint64_t bytes;  /* behind the header, without what fills up to a multiple of 8 */
    uint32_t sum;    /* CRC-32C */
    uint32_t zero;
} saved_header;

typedef struct saved_file { /* FILE, the first block */
    uint32_t version, kind; /* of SAVED_BASE, SAVED_INCREMENT */
    uint64_t id;            /* random, not 0 */
    uint64_t parent;        /* the id of the file that this one continues; of a base 0 */
    uint64_t base;          /* the id of the base that it belongs to, its own if it is one */
    uint64_t sequence;      /* 0: the base; its increments 1, 2, ... */
    uint32_t parts;         /* instances, 1 to SAVED_MOST_PARTS */
    uint32_t zero;
} saved_file;

typedef struct saved_part { /* PART: an instance; saved_table[n_tables] lies behind it */
    uint64_t rows, step;    /* of all tables; the next step to train */
    uint32_t dim, n_tables;
    uint32_t optimizer, state_floats; /* frugal_optimizer_kind; of one row */
    uint32_t reduce, devices;
} saved_part;

typedef struct saved_table { /* rows and settings, resolved, of one table */
    uint64_t rows;
    float eps, beta1, beta2, weight_decay, initial_accumulator, lr_scale;
    uint32_t frozen, zero;
} saved_table;

/* Which of the rows first .. first + span - 1 are there: all; or a bit each, in words of 64, the lowest first; or the
 * offsets from the first one, rising, which is at 0, as the last is at span - 1. Filled up to a multiple of 8 bytes. */
enum { SAVED_ALL = 0, SAVED_BITS = 1, SAVED_OFFSETS16 = 2, SAVED_OFFSETS32 = 3 };

typedef struct saved_rows { /* ROWS: which, as said above; then weights[n][dim], then state[n][state_floats] */
    uint32_t part, form;
    uint64_t first, span, n;
} saved_rows;

typedef struct saved_end {  /* END, the last block */
    uint64_t blocks, bytes; /* of the file, this block included */
    uint32_t sums;          /* CRC-32C of the checksums of all blocks before, in order */
    uint32_t zero;
} saved_end;

_Static_assert(sizeof(saved_header) == 32 && sizeof(saved_file) == 48 && sizeof(saved_part) == 40 &&
                   sizeof(saved_table) == 40 && sizeof(saved_rows) == 32 && sizeof(saved_end) == 24,
               "no padding");

/* A block of ROWS has at most so many bytes of rows, or one row: who reads knows how much memory it needs. */
#define SAVED_BLOCK_BYTES (UINT64_C(4) << 20)

static inline uint64_t saved_filled(uint64_t bytes) {
    return (bytes + 7) / 8 * 8;
}
static inline uint64_t saved_most_rows(uint64_t row_bytes) {
    return SAVED_BLOCK_BYTES > row_bytes ? SAVED_BLOCK_BYTES / row_bytes : 1;
}
/* Bytes that say which rows are there. */
static inline uint64_t saved_index_bytes(uint32_t form, uint64_t span, uint64_t n) {
    if (form == SAVED_BITS) return (span + 63) / 64 * 8;
    if (form == SAVED_OFFSETS16) return saved_filled(2 * n);
    return form == SAVED_OFFSETS32 ? saved_filled(4 * n) : 0;
}
/* The form that takes the fewest bytes for n rows out of a span. */
static inline uint32_t saved_form_of(uint64_t span, uint64_t n) {
    if (n == span) return SAVED_ALL;
    uint32_t offsets = span <= 65536 ? SAVED_OFFSETS16 : SAVED_OFFSETS32;
    return saved_index_bytes(SAVED_BITS, span, n) < saved_index_bytes(offsets, span, n) ? SAVED_BITS : offsets;
}
/* The largest block of ROWS, header included; a list of offsets of 32 bits is the longest that says which. */
static inline uint64_t saved_most_bytes(uint64_t row_bytes) {
    uint64_t n = saved_most_rows(row_bytes);
    return sizeof(saved_header) + sizeof(saved_rows) + saved_filled(4 * n) + saved_filled(n * row_bytes);
}

#endif /* FRUGAL_FORMAT_H */
