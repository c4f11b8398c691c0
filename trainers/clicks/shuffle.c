/* Two blocks: one is dealt out in its order, the other is read. */
#include "trainers/clicks/shuffle.h"
#include "trainers/common/random.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Room beyond a block. Blocks are powers of two as a rule, and a sample's ids lie `room` ids apart: without this they
 * would all compete for the same lines of a cache. */
enum { CLICKS_SHUFFLE_APART = 72 };

struct clicks_shuffle {
    clicks_shuffle_desc desc;
    clicks_reader *reader; /* of the pass; NULL: there is none */
    int ended;             /* the reader has no more samples */
    uint64_t pass, turned; /* turned: the number of the next block to be dealt out */
    clicks_batch block[2];
    uint32_t dealt; /* which of them is dealt out */
    uint32_t at;    /* samples of it that have been */
    uint32_t *order;
};

int clicks_shuffle_open(clicks_shuffle **out, const clicks_shuffle_desc *desc, program_error *error) {
    *out = NULL;
    clicks_shuffle *shuffle = calloc(1, sizeof *shuffle);
    if (!shuffle) return program_fail(error, "out of memory");
    shuffle->desc = *desc;
    if (desc->end - desc->first < desc->block) shuffle->desc.block = (uint32_t)(desc->end - desc->first);
    uint32_t block = shuffle->desc.block;
    int status = 0;
    if (block && !(shuffle->order = malloc(block * sizeof *shuffle->order)))
        status =
            program_fail(error, "out of memory for the order of %" PRIu32 " samples; use a smaller --shuffle", block);
    for (int i = 0; i < 2 && block && !status; i++)
        status = clicks_batch_open(&shuffle->block[i], desc->log, block + CLICKS_SHUFFLE_APART, error);
    if (status)
        clicks_shuffle_close(shuffle);
    else
        *out = shuffle;
    return status;
}

void clicks_shuffle_close(clicks_shuffle *shuffle) {
    if (!shuffle) return;
    clicks_shuffle_end(shuffle);
    for (int i = 0; i < 2; i++) clicks_batch_close(&shuffle->block[i]);
    free(shuffle->order);
    free(shuffle);
}

/* ---- The order ----------------------------------------------------------------------------------------- */

/* order[n] of a block: each of 0 to n - 1 once (Fisher and Yates). */
static void clicks_shuffle_order(clicks_shuffle *shuffle, uint64_t pass, uint64_t number, uint32_t n) {
    uint32_t *order = shuffle->order;
    uint64_t stream = random_mix(random_mix(random_mix(shuffle->desc.seed) + pass) + number);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t random = random_at(stream, i) >> 32;
        uint32_t j = (uint32_t)(random * (i + (uint64_t)1) >> 32); /* 0 to i */
        order[i] = order[j];
        order[j] = i;
    }
}

void clicks_shuffle_bytes(clicks_shuffle *shuffle, uint64_t pass, uint64_t n, const uint8_t *from, uint8_t *to) {
    uint32_t block = shuffle->desc.block;
    if (!block) memcpy(to, from, n);
    for (uint64_t at = 0; block && at < n; at += block) {
        uint32_t these = (uint32_t)(n - at < block ? n - at : block);
        clicks_shuffle_order(shuffle, pass, at / block, these);
        for (uint32_t i = 0; i < these; i++) to[at + i] = from[at + shuffle->order[i]];
    }
}

/* ---- Samples ------------------------------------------------------------------------------------------- */

/* Reads up to `most` samples more of the block that is not dealt out. */
static int clicks_shuffle_fill(clicks_shuffle *shuffle, uint32_t most, program_error *error) {
    clicks_batch *block = &shuffle->block[!shuffle->dealt];
    if (most > shuffle->desc.block - block->n) most = shuffle->desc.block - block->n;
    while (most && !shuffle->ended) {
        clicks_batch rest = clicks_batch_rest(shuffle->desc.log, block, block->n);
        if (clicks_reader_read(shuffle->reader, most, &rest, error)) return -1;
        shuffle->ended = rest.n == 0;
        block->n += rest.n;
        most -= rest.n;
    }
    return 0;
}

/* The next block is dealt out now, which may have no samples. */
static int clicks_shuffle_turn(clicks_shuffle *shuffle, program_error *error) {
    if (clicks_shuffle_fill(shuffle, UINT32_MAX, error)) return -1;
    shuffle->block[shuffle->dealt].n = 0;
    shuffle->dealt = !shuffle->dealt;
    shuffle->at = 0;
    clicks_shuffle_order(shuffle, shuffle->pass, shuffle->turned++, shuffle->block[shuffle->dealt].n);
    return 0;
}

static void clicks_shuffle_copy_bags(const clicks_batch *from, size_t i, const clicks_batch *to, size_t at) {
    uint32_t n = to->counts[at] = from->counts[i];
    memcpy(to->ids + at * to->most, from->ids + i * from->most, n * sizeof *to->ids);
    memcpy(to->features + at * to->most, from->features + i * from->most, n * sizeof *to->features);
    memcpy(to->weights + at * to->most, from->weights + i * from->most, n * sizeof *to->weights);
}

/* Appends the next n samples of the block to the batch. */
static void clicks_shuffle_deal(clicks_shuffle *shuffle, uint32_t n, clicks_batch *batch) {
    const clicks *log = shuffle->desc.log;
    const clicks_batch *block = &shuffle->block[shuffle->dealt];
    const uint32_t *order = shuffle->order + shuffle->at;
    uint32_t numbers = clicks_numbers(log), features = clicks_features(log);
    clicks_batch to = clicks_batch_rest(log, batch, batch->n);
    for (uint32_t i = 0; i < n; i++) {
        to.labels[i] = block->labels[order[i]];
        memcpy(to.numbers + (size_t)i * numbers, block->numbers + (size_t)order[i] * numbers, numbers * sizeof(float));
    }
    for (uint32_t i = 0; i < n && to.most; i++) clicks_shuffle_copy_bags(block, order[i], &to, i);
    for (size_t k = 0; k < features && !to.most; k++)
        for (uint32_t i = 0; i < n; i++) to.ids[k * to.room + i] = block->ids[k * block->room + order[i]];
    shuffle->at += n;
    batch->n += n;
}

int clicks_shuffle_begin(clicks_shuffle *shuffle, uint64_t pass, uint64_t behind, program_error *error) {
    const clicks_shuffle_desc *desc = &shuffle->desc;
    uint64_t blocks = desc->block ? behind / desc->block : 0, from = desc->block ? blocks * desc->block : behind;
    clicks_shuffle_end(shuffle);
    if (clicks_reader_open(&shuffle->reader, desc->log, desc->path, desc->first + from, desc->end, error)) return -1;
    if (!desc->block) return 0;
    shuffle->pass = pass;
    shuffle->turned = blocks;
    shuffle->ended = 0;
    shuffle->block[0].n = shuffle->block[1].n = 0;
    if (clicks_shuffle_turn(shuffle, error)) return -1;
    uint32_t n = shuffle->block[shuffle->dealt].n;
    shuffle->at = behind - from < n ? (uint32_t)(behind - from) : n; /* a log that has become shorter just ends */
    return 0;
}

int clicks_shuffle_reads(const clicks_shuffle *shuffle) {
    return shuffle->reader != NULL;
}

int clicks_shuffle_read(clicks_shuffle *shuffle, uint32_t most, clicks_batch *batch, program_error *error) {
    if (!shuffle->desc.block) return clicks_reader_read(shuffle->reader, most, batch, error);
    for (batch->n = 0; batch->n < most;) {
        if (shuffle->at == shuffle->block[shuffle->dealt].n && clicks_shuffle_turn(shuffle, error)) return -1;
        uint32_t left = shuffle->block[shuffle->dealt].n - shuffle->at, n = most - batch->n;
        if (!left) break;
        clicks_shuffle_deal(shuffle, n < left ? n : left, batch);
    }
    return clicks_shuffle_fill(shuffle, batch->n, error);
}

const clicks_malformed *clicks_shuffle_malformed(const clicks_shuffle *shuffle) {
    return clicks_reader_malformed(shuffle->reader);
}

void clicks_shuffle_end(clicks_shuffle *shuffle) {
    clicks_reader_close(shuffle->reader);
    shuffle->reader = NULL;
}
