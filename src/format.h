/* format.h - what files of Frugal's consist of, byte by byte.
 *
 * Numbers are little-endian, offsets are fixed, padding is zero. Every file begins with the same eight bytes.
 * Private to the library and its tool; standard C alone.
 *
 * Contents: >>kinds >>table
 */
#ifndef FRUGAL_FORMAT_H
#define FRUGAL_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define FORMAT_MAGIC_LETTERS 0x89, 'F', 'R', 'U', 'G', 'A', 'L', '\n'
#define FORMAT_MAGIC_BYTES   8u
#define FORMAT_BLOCK         "FRGB" /* what the ninth byte of a save begins */

/* >>kinds - of files */

#define FORMAT_TABLE 1u

/* >>table - a mapped table (frugal_desc.file): a page; the list of tables, in whole pages; the weights and their state
 * as they lie in memory, in whole pages, to the file's end. A save has other bytes where this has its version. */

#define TABLE_VERSION 1u
#define TABLE_PAGE    4096u /* bytes of the header; what lies behind it begins on such pages */
#define TABLE_CLEAN   1u    /* closed after a drain: the rows are those of `step` */
#define TABLE_IN_USE  2u    /* somebody trains; or, where nobody has its lock: torn, the rows are of several steps */

/* Constant from the making on, except `checksum`, `use`, `step`, `process` and `host`. All of it lies in the first 512
 * bytes, which a disk writes as one: after a power loss it is the old header or the new one. */
typedef struct table_header {
    uint8_t magic[FORMAT_MAGIC_BYTES];
    uint32_t version, kind; /* TABLE_VERSION; FORMAT_TABLE */
    uint32_t checksum;      /* crc32c of the page, this field zero */
    uint32_t use;           /* TABLE_CLEAN or TABLE_IN_USE */
    uint64_t id;            /* random */
    uint64_t step;          /* the rows have the updates of all steps before it; in use: had, when it was opened */
    uint64_t rows;          /* of all tables */
    uint32_t dim;
    uint32_t optimizer; /* frugal_optimizer_kind */
    uint32_t n_tables;
    uint32_t state_floats;                 /* of one row */
    uint64_t weights_stride, state_stride; /* floats from row to row */
    uint64_t weights_at, state_at;         /* bytes from the beginning of the file; state_at 0: there is none */
    uint64_t file_bytes;
    uint32_t list_checksum; /* crc32c of the table_entry list[n_tables], which begins at TABLE_PAGE */
    uint32_t process;       /* who has it, or had it last: its number */
    uint8_t host[64];       /* and its machine's name, with a zero behind */
} table_header;

_Static_assert(offsetof(table_header, checksum) == 16 && offsetof(table_header, step) == 32 &&
                   offsetof(table_header, weights_stride) == 64 && offsetof(table_header, host) == 112 &&
                   sizeof(table_header) == 176,
               "the format is fixed, and has no holes");

typedef struct table_entry { /* a table, with the settings of its optimizer when the file was made */
    uint64_t rows;
    float eps, beta1, beta2, weight_decay, initial_accumulator, lr_scale;
    uint32_t frozen, zero;
} table_entry;

_Static_assert(sizeof(table_entry) == 40, "the format is fixed, and has no holes");

#endif /* FRUGAL_FORMAT_H */
