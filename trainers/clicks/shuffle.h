/* A pass over a click log in another order than the log's: its samples are cut into blocks of N that follow each other,
 * and each block comes in an order of its own. So samples that lie beside each other in the log (a log sorted by user,
 * or by time) do not come in one step, and no more than two blocks are in memory.
 *
 *     clicks_shuffle_open(&shuffle, &desc, &error)
 *     clicks_shuffle_begin(shuffle, pass, 0, &error)              a pass; or what is left of it behind so many samples
 *     clicks_shuffle_read(shuffle, most, &batch, &error)          until batch.n is 0
 *     clicks_shuffle_end(shuffle)
 *     clicks_shuffle_close(shuffle)
 *
 * The order follows from the seed, the number of the pass and that of the block, and each sample comes once a pass. A
 * pass can begin at any sample: the block that it lies in is read again. While a block is dealt out, the next one is
 * read, a sample for each that is dealt; so reading stops the training only before the first block.
 *
 * Functions return 0, or -1 with *error filled.
 */
#ifndef CLICKS_SHUFFLE_H
#define CLICKS_SHUFFLE_H

#include "trainers/clicks/clicks.h"

typedef struct clicks_shuffle_desc {
    const clicks *log; /* prepared; must outlive the shuffle */
    const char *path;  /* this and the next two as for clicks_reader_open */
    uint64_t first, end;
    uint32_t block; /* samples; 0: the order of the log */
    uint64_t seed;
} clicks_shuffle_desc;

typedef struct clicks_shuffle clicks_shuffle;

/* On failure *out is NULL. */
int clicks_shuffle_open(clicks_shuffle **out, const clicks_shuffle_desc *desc, program_error *error);
/* NULL is accepted. */
void clicks_shuffle_close(clicks_shuffle *shuffle);

/* Opens the log, and reads a block. */
int clicks_shuffle_begin(clicks_shuffle *shuffle, uint64_t pass, uint64_t behind, program_error *error);
/* Has it begun, and not ended? */
int clicks_shuffle_reads(const clicks_shuffle *shuffle);
/* The next samples, `most` at most, without their truth; n = 0: the pass is over. */
int clicks_shuffle_read(clicks_shuffle *shuffle, uint32_t most, clicks_batch *batch, program_error *error);
/* The malformed lines that were met in this pass so far. */
const clicks_malformed *clicks_shuffle_malformed(const clicks_shuffle *shuffle);
void clicks_shuffle_end(clicks_shuffle *shuffle);

/* to[n] = from[n], a byte for each sample of a pass, in the order of this pass. Not in a pass. */
void clicks_shuffle_bytes(clicks_shuffle *shuffle, uint64_t pass, uint64_t n, const uint8_t *from, uint8_t *to);

#endif
