/* format.h - the format of saves and mapped tables, byte by byte, for the library and for tools that read and write the
 * files. All numbers are little-endian, offsets are fixed, padding is zero.
 *
 * A save is eight bytes, then blocks, and nothing behind the last block.
 *
 *     "\x89FRUGAL\n" | FILE | PART of instance 0 | PART of instance 1 | ... | ROWS | ROWS | ... | COUNTS | ... | END
 *
 * A block is a header of 32 bytes and its payload, filled up with zeros to a multiple of 8. Its checksum covers all of
 * this, with the checksum itself taken as zero. Blocks are numbered from 0, so that a block that is missing, doubled or
 * misplaced is noticed. END has a checksum over the checksums of all blocks. A reader may skip a block whose type has
 * SAVED_SKIP if it does not know the type; it refuses any other type that it does not know.
 *
 * The file is a base, with every row of every instance, or an increment, with the rows that changed since its parent.
 * ROWS come in the order of instances, and of rows within an instance. Those of a base have the form SAVED_ALL, and
 * leave no gap.
 *
 * Where weights of all instances are floats, the version is 1, and a PART says nothing of types: older readers read
 * such a file. Else it is 2, which they refuse by its number.
 *
 * COUNTS are what rows have counted (worth.c); a reader without counts skips them. Those of the last file of a
 * chain are all that there are; rows without one have counted nothing.
 *
 * Several machines save a *share* each, which is a save of the rows whose home it is, and a manifest, which says which
 * shares there are and whose rows they have; see >>manifest. Tables of a share may have no rows.
 *
 * A mapped table begins with the same eight bytes, and has a version where a save has its first block; see >>table.
 *
 * Private. It needs only standard C, and a little-endian machine.
 *
 * Contents: >>save >>manifest >>table
 */
#ifndef FRUGAL_FORMAT_H
#define FRUGAL_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* >>save */

#define SAVED_MAGIC                                                                                                    \
    "\x89"                                                                                                             \
    "FRUGAL\n" /* 8 bytes, without the zero behind */
#define SAVED_MAGIC_BYTES 8u
#define SAVED_BLOCK_MAGIC UINT32_C(0x42475246) /* "FRGB" */
#define SAVED_VERSION     2u
#define SAVED_OF_FLOATS   1u /* the version before */
#define SAVED_MOST_PARTS  64u
#define SAVED_MOST_TABLES (UINT32_C(1) << 20) /* of an instance, so that a reader knows how much memory it needs */

enum { SAVED_BASE = 0, SAVED_INCREMENT = 1 };
enum { SAVED_FILE = 1, SAVED_PART = 2, SAVED_ROWS = 3, SAVED_END = 4 };
#define SAVED_SKIP   UINT32_C(0x80000000)
#define SAVED_COUNTS (SAVED_SKIP | 5u)

typedef struct saved_header { /* of a block */
    uint32_t magic, type;
    uint64_t number; /* 0, 1, 2, ... in the file */
    uint64_t bytes;  /* of the payload, without the zeros that fill it up */
    uint32_t sum;    /* CRC-32C */
    uint32_t zero;
} saved_header;

typedef struct saved_file { /* FILE, the first block */
    uint32_t version, kind; /* of SAVED_BASE, SAVED_INCREMENT */
    uint64_t id;            /* random, not 0 */
    uint64_t parent;        /* the id of the file that this one continues; of a base 0 */
    /* A base that is merged with increments has the id, base and sequence of the last one, so that later increments
     * continue it. */
    uint64_t base;     /* the id of the base of its chain; of a base its own id */
    uint64_t sequence; /* 0: the base; its increments 1, 2, ... */
    uint32_t parts;    /* instances, 1 to SAVED_MOST_PARTS */
    uint32_t zero;
} saved_file;

typedef struct saved_part { /* PART: an instance; behind it saved_table[n_tables], at most SAVED_MOST_TABLES */
    uint64_t rows, step;    /* of all tables; the next step to train */
    uint32_t dim, n_tables;
    uint32_t optimizer, state_floats; /* frugal_optimizer_kind; of one row */
    uint32_t reduce, devices;
    /* From version 2 on; in version 1 the tables begin here. */
    uint32_t rows_as, rounding; /* frugal_type, frugal_rounding; the latter is 0 if weights are floats */
    uint64_t seed;              /* of stochastic rounding, where there is any; else 0 */
} saved_part;

typedef struct saved_table { /* rows and settings, resolved, of one table */
    uint64_t rows;
    float eps, beta1, beta2, weight_decay, initial_accumulator, lr_scale;
    uint32_t frozen;
    float clip_norm;
} saved_table;

/* The index says which of the rows first .. first + span - 1 a block has: all; or a bit for each row, in words of 64,
 * the lowest first; or the offsets of its rows from the first one, rising and below span. In a file that the library
 * writes, the first offset is 0 and the last is span - 1. The index is filled up to a multiple of 8 bytes. */
enum { SAVED_ALL = 0, SAVED_BITS = 1, SAVED_OFFSETS16 = 2, SAVED_OFFSETS32 = 3 };

/* ROWS: this struct, the index (above), weights[n][dim] of saved_part.rows_as, state[n][state_floats]; no gap. */
typedef struct saved_rows {
    uint32_t part, form;
    uint64_t first, span, n;
} saved_rows;

/* COUNTS: saved_rows of the form SAVED_ALL, and a byte for each row, at most this number of them. */
#define SAVED_MOST_COUNTS (UINT64_C(1) << 18)

typedef struct saved_end {  /* END, the last block */
    uint64_t blocks, bytes; /* of the file, this block included */
    uint32_t sums;          /* CRC-32C of the checksums of all blocks before, in order */
    uint32_t zero;
} saved_end;

_Static_assert(sizeof(saved_header) == 32 && sizeof(saved_file) == 48 && sizeof(saved_part) == 56 &&
                   offsetof(saved_part, rows_as) == 40 && sizeof(saved_table) == 40 && sizeof(saved_rows) == 32 &&
                   sizeof(saved_end) == 24,
               "no padding");

/* Bytes of a PART before its tables. */
static inline uint64_t saved_part_bytes(uint32_t version) {
    return version == SAVED_OF_FLOATS ? offsetof(saved_part, rows_as) : sizeof(saved_part);
}
/* Bytes of the weights of a row; of a row. */
static inline uint64_t saved_weight_bytes(const saved_part *part) {
    return (uint64_t)part->dim * (part->rows_as ? 2 : 4);
}
static inline uint64_t saved_row_bytes(const saved_part *part) {
    return saved_weight_bytes(part) + (uint64_t)part->state_floats * 4;
}

/* A block of ROWS has at most this number of bytes of rows, or one row. So a reader knows how much memory it needs. */
#define SAVED_BLOCK_BYTES (UINT64_C(4) << 20)

static inline uint64_t saved_filled(uint64_t bytes) {
    return (bytes + 7) / 8 * 8;
}
static inline uint64_t saved_most_rows(uint64_t row_bytes) {
    return SAVED_BLOCK_BYTES > row_bytes ? SAVED_BLOCK_BYTES / row_bytes : 1;
}
/* Bytes of the index. */
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
/* The largest block of ROWS, header included. The longest index is a list of offsets of 32 bits. */
static inline uint64_t saved_most_bytes(uint64_t row_bytes) {
    uint64_t n = saved_most_rows(row_bytes);
    return sizeof(saved_header) + sizeof(saved_rows) + saved_filled(4 * n) + saved_filled(n * row_bytes);
}
_Static_assert(SAVED_MOST_COUNTS <= SAVED_BLOCK_BYTES / 2,
               "the largest block of ROWS has more bytes of rows than this, so COUNTS fit into its buffer");

/* >>manifest - what several machines have saved. It is written when all shares are on the disk:
 *
 *     header | manifest_share[machines] | manifest_part and its tables, by instance | homes, by instance that is LISTED
 *
 * Share m lies beside the manifest, as STEM.m-of-M-TAG; STEM is the name that the manifest had when it was saved, TAG
 * 16 hexadecimal digits, drawn for each, so that no share takes another one's place. The chain of shares m of a base
 * and its increments is that of their manifests, with ids that follow from theirs: share_id.
 *
 * The homes of an instance are a byte a row, filled up with zeros to a multiple of 8. Those of an increment are its
 * base's: it has their checksum, and not them. */

#define MANIFEST_MAGIC         UINT32_C(0x4d475246) /* "FRGM": where a save has SAVED_BLOCK_MAGIC */
#define MANIFEST_VERSION       1u
#define MANIFEST_MOST_MACHINES 254u
#define MANIFEST_STEM          200u

enum { MANIFEST_CYCLIC = 0, MANIFEST_BLOCKS = 1, MANIFEST_LISTED = 2 }; /* frugal_deal */

typedef struct manifest_header {
    uint8_t magic[SAVED_MAGIC_BYTES]; /* SAVED_MAGIC */
    uint32_t block, version;          /* MANIFEST_MAGIC, MANIFEST_VERSION */
    uint32_t checksum;                /* crc32c of the header, this field zero */
    uint32_t list_checksum;           /* ... of shares and instances */
    uint32_t homes_checksum;          /* ... of all homes; of an increment: of its base's. 0: no instance is LISTED */
    uint32_t machines;                /* 1 to MANIFEST_MOST_MACHINES */
    saved_file head;                  /* as of a save */
    uint64_t tag;                     /* of the shares' names */
    uint64_t list_bytes, bytes;       /* of shares and instances; of this file */
    uint8_t stem[MANIFEST_STEM];      /* with zeros behind, at least one */
} manifest_header;

typedef struct manifest_share {
    uint64_t bytes;      /* of the file */
    uint32_t sums, zero; /* saved_end.sums of its end */
} manifest_share;

typedef struct manifest_part { /* an instance; behind it saved_table[part.n_tables] */
    uint32_t deal, zero;       /* MANIFEST_CYCLIC, ... */
    saved_part part;           /* as in a save of one machine, with the rows of all machines */
} manifest_part;

_Static_assert(sizeof(manifest_header) == 304 && offsetof(manifest_header, head) == 32 &&
                   offsetof(manifest_header, stem) == 104 && sizeof(manifest_share) == 16 &&
                   sizeof(manifest_part) == 64,
               "no padding");

/* The id of a machine's share of the save with this id (0: 0): all bits of the three count (splitmix64). */
static inline uint64_t share_id(uint64_t id, uint32_t machine, uint32_t machines) {
    uint64_t x = id + (uint64_t)(machines << 8 | machine) * UINT64_C(0x9e3779b97f4a7c15);
    if (id == 0) return 0;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x ? x : 1;
}

/* >>table - a mapped table (frugal_desc.file): a page with the header; the list of tables, in whole pages; then, to the
 * end of the file, the weights and their state as they lie in memory, in whole pages. Where this file has its version,
 * a save has SAVED_BLOCK_MAGIC. */

#define TABLE_OF_FLOATS 1u /* the version of a file whose weights are floats */
#define TABLE_VERSION   2u /* ... of 16 bits; older readers refuse it by its number */
#define TABLE_KIND      1u
#define TABLE_PAGE      4096u /* bytes of the header; all parts behind it begin on such pages */
#define TABLE_CLEAN     1u    /* closed after a drain: the rows are those of `step` */
#define TABLE_IN_USE    2u /* a process trains; if none has the lock, the table is torn, with rows of several steps */

/* Constant once the file is made, except `checksum`, `use`, `step`, `process` and `host`. All of it lies in the first
 * 512 bytes, which a disk writes as one; so after a power loss it is the old header or the new one. */
typedef struct table_header {
    uint8_t magic[SAVED_MAGIC_BYTES]; /* SAVED_MAGIC */
    uint32_t version, kind;           /* TABLE_VERSION, TABLE_KIND */
    uint32_t checksum;                /* crc32c of the page, this field zero */
    uint32_t use;                     /* TABLE_CLEAN or TABLE_IN_USE */
    uint64_t id;                      /* random */
    uint64_t step;                    /* the rows have (in use: had at opening) the updates of all steps before it */
    uint64_t rows;                    /* of all tables */
    uint32_t dim;
    uint32_t optimizer; /* frugal_optimizer_kind */
    uint32_t n_tables;
    uint32_t state_floats;                 /* of one row */
    uint64_t weights_stride, state_stride; /* weights, and floats, from row to row */
    uint64_t weights_at, state_at;         /* bytes from the beginning of the file; state_at 0: there is none */
    uint64_t file_bytes;
    uint32_t list_checksum; /* crc32c of the list, saved_table[n_tables], which begins at TABLE_PAGE */
    uint32_t process;       /* id of the process that has it, or had it last */
    uint8_t host[64];       /* name of the machine of that process, with a zero behind */
    uint32_t rows_as;       /* frugal_type; 0 in TABLE_OF_FLOATS */
    uint32_t dealt; /* of one of several machines: crc32c of how rows are dealt, and which machine it is; else 0 */
} table_header;

_Static_assert(offsetof(table_header, checksum) == 16 && offsetof(table_header, step) == 32 &&
                   offsetof(table_header, weights_stride) == 64 && offsetof(table_header, host) == 112 &&
                   offsetof(table_header, rows_as) == 176 && sizeof(table_header) == 184,
               "the format is fixed, and has no holes");

#endif /* FRUGAL_FORMAT_H */
