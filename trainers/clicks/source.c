/* Passes over a click log; batches, which lie feature by feature, become keys sample by sample. */
#include "trainers/clicks/source.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    CLICKS_SOURCE_BATCH = 1024,
    CLICKS_SOURCE_KEYS = 1 << 22 /* of a block, so that a log of many features does not take much memory */
};

int clicks_source_open(clicks_source *source, const clicks *log, const char *path, uint64_t first, uint64_t end,
                       program_error *error) {
    uint32_t features = clicks_features(log);
    if (clicks_has_bags(log)) {
        *source = (clicks_source){.log = log};
        return program_fail(error,
                            "samples with several ids a feature cannot be dealt by the rows that they touch, nor "
                            "their rows reordered; leave that out");
    }
    uint64_t block = CLICKS_SOURCE_KEYS / features;
    *source = (clicks_source){.log = log, .path = path, .first = first, .end = end};
    source->block = block > PARTITION_BLOCK ? PARTITION_BLOCK : block;
    source->offset = malloc(features * sizeof *source->offset);
    source->keys = malloc(source->block * features * sizeof *source->keys);
    int status =
        source->offset && source->keys
            ? clicks_batch_open(&source->batch, log, CLICKS_SOURCE_BATCH, error)
            : program_fail(error, "out of memory for %" PRIu64 " samples of %" PRIu32 " ids", source->block, features);
    for (uint32_t k = 0; k < features && !status; k++) {
        source->offset[k] = source->rows;
        source->rows += clicks_rows(log, k);
    }
    if (status) clicks_source_close(source);
    return status;
}

void clicks_source_close(clicks_source *source) {
    clicks_reader_close(source->reader);
    clicks_batch_close(&source->batch);
    free(source->offset);
    free(source->keys);
    *source = (clicks_source){0};
}

static int clicks_source_rewind(void *of, program_error *error) {
    clicks_source *source = of;
    clicks_reader_close(source->reader);
    return clicks_reader_open(&source->reader, source->log, source->path, source->first, source->end, error);
}

static int clicks_source_read(void *of, frugal_place_samples *block, program_error *error) {
    clicks_source *source = of;
    const clicks_batch *batch = &source->batch;
    uint32_t features = clicks_features(source->log);
    uint64_t n = 0;
    while (n < source->block) {
        uint64_t most = source->block - n < batch->room ? source->block - n : batch->room;
        if (clicks_reader_read(source->reader, (uint32_t)most, &source->batch, error)) return -1;
        if (batch->n == 0) break;
        for (uint32_t k = 0; k < features; k++)
            for (uint32_t i = 0; i < batch->n; i++)
                source->keys[(n + i) * features + k] = source->offset[k] + batch->ids[(size_t)k * batch->room + i];
        n += batch->n;
    }
    *block = (frugal_place_samples){.keys = source->keys, .n = n, .width = features};
    if (n == 0) source->malformed = *clicks_reader_malformed(source->reader);
    return 0;
}

partition_source clicks_source_of(clicks_source *source) {
    return (partition_source){source, clicks_source_rewind, clicks_source_read};
}
