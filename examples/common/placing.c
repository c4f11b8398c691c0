/* A partition for a trainer: made, said, and used for preloading. */
#include "examples/common/placing.h"
#include "examples/common/crc32.h"
#include "examples/common/training.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint32_t placing_checksum(const partition *partition) {
    uint32_t sum = 0;
    for (uint64_t at = 0, n; at < partition->samples; at += n) {
        n = partition->samples - at < 1u << 30 ? partition->samples - at : 1u << 30;
        sum = crc32_of(sum, partition->parts + at, (size_t)n);
    }
    return sum;
}

const char *placing_file(const char *place) {
    return place && strcmp(place, "auto") ? place : NULL;
}

int placing_make(placing *p, const placing_desc *desc, const partition_source *source, program_error *error) {
    const training_settings *settings = desc->settings;
    progress_line line = progress_begin(-1);
    line.due = line.every; /* a short one is not told of */
    partition_desc of = {.rows = desc->rows, .devices = settings->devices, .threads = desc->threads, .progress = &line};
    *p = (placing){.settings = settings};
    if (!settings->place) return 0;
    int status = placing_file(settings->place) ? partition_load(&p->partition, &of, source, settings->place, error)
                                               : partition_make(&p->partition, &of, source, error);
    if (status) return -1;
    p->report = frugal_place_get_report(p->partition.place, settings->batch);
    p->checksum = placing_checksum(&p->partition);
    fprintf(stderr,
            "placed %" PRIu64 " samples in %.1f s: %.1f%% of the touches are local, the largest part has %.3f "
            "of the mean\n",
            p->partition.samples, p->partition.seconds, 100 * p->report.local_share, p->report.balance);
    return 0;
}

void placing_describe(const placing *p, FILE *lines) {
    if (!p->partition.parts) return;
    fprintf(lines, "--place %" PRIu64 " samples, checksum of their parts %08" PRIx32 "\n", p->partition.samples,
            p->checksum);
}

/* Rows keys[n] of all tables, in their order: a call for each stretch of them that lies in one table. */
static int placing_preload_rows(frugal *f, uint32_t device, uint64_t *keys, uint64_t n, program_error *error) {
    for (uint64_t at = 0; at < n;) {
        frugal_keys stretch = training_stretch(f, keys + at, n - at);
        if (frugal_preload(f, device, &stretch)) return training_fail("cannot preload the caches", error);
        at += stretch.n;
    }
    return 0;
}

int placing_preload(const placing *p, frugal *f, uint32_t device, uint64_t cache_rows, program_error *error) {
    if (!p->partition.place || !cache_rows) return 0;
    uint64_t *keys = malloc(cache_rows * sizeof *keys);
    double *values = malloc(cache_rows * sizeof *values);
    int status =
        keys && values
            ? 0
            : program_fail(error, "out of memory for a list of %" PRIu64 " rows to preload; use a smaller --cache",
                           cache_rows);
    if (!status) {
        uint64_t n = frugal_place_rank(p->partition.place, device, FRUGAL_PLACE_BY_GAIN, p->settings->batch, keys,
                                       values, cache_rows);
        status = placing_preload_rows(f, device, keys, n, error);
    }
    free(keys);
    free(values);
    return status;
}

void placing_forget(placing *p) {
    free(p->partition.place);
    p->partition.place = NULL;
}

void placing_show(const placing *p) {
    if (!p->partition.parts) return;
    printf(", local %.1f%%, balance %.3f, placed in %.1f s", 100 * p->report.local_share, p->report.balance,
           p->partition.seconds);
}

void placing_json(const placing *p, FILE *json) {
    if (!p->partition.parts || !json) return;
    fprintf(json, ", \"local_share\": %.6f, \"balance\": %.6f, \"place_seconds\": %.3f", p->report.local_share,
            p->report.balance, p->partition.seconds);
}

void placing_close(placing *p) {
    partition_free(&p->partition);
}
