/* A partition for a trainer: made, said, and used for preloading. */
#include "trainers/common/placing.h"
#include "trainers/common/crc32.h"
#include "trainers/common/training.h"

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
    return training_dealt_for(place) ? NULL : place;
}

/* Homes of the rows, then of their twins. */
static int placing_find_homes(placing *p, const placing_desc *desc, program_error *error) {
    uint64_t twins = desc->twins ? desc->rows - desc->twins_from : 0;
    homes_desc of = {.place = p->partition.place,
                     .rows = desc->rows,
                     .batch = p->settings->batch,
                     .devices = p->settings->devices,
                     .machines = p->machines};
    if (p->machines < 2) return 0;
    if (homes_make(&p->homes, &of, error)) return -1;
    if (!twins) return 0;
    uint8_t *all = realloc(p->homes.of, desc->rows + twins);
    if (!all)
        return program_fail(error, "out of memory: a byte for each of %" PRIu64 " rows, its machine",
                            desc->rows + twins);
    p->homes.of = all;
    for (uint64_t row = desc->twins_from; row < desc->rows; row++) {
        all[row + desc->twins] = all[row];
        p->homes.rows[all[row]]++;
    }
    return 0;
}

static void placing_tell(const placing *p) {
    fprintf(stderr,
            "placed %" PRIu64 " samples in %.1f s: %.1f%% of the touches are local, the largest part has %.3f "
            "of the mean\n",
            p->partition.samples, p->partition.seconds, 100 * p->report.local_share, p->report.balance);
    if (p->machines > 1 && training_dealt_for(p->settings->place) == 1)
        fprintf(stderr,
                "--place auto deals as for one machine; with --place auto:%" PRIu32
                " fewer rows cross the network, and "
                "the bits are others\n",
                p->machines);
}

int placing_make(placing *p, const placing_desc *desc, const partition_source *source, program_error *error) {
    const training_settings *settings = desc->settings;
    progress_line line = progress_begin(-1);
    line.due = line.every; /* a short one is not told of */
    partition_desc of = {.rows = desc->rows,
                         .devices = settings->devices,
                         .machines = training_dealt_for(settings->place),
                         .threads = desc->threads,
                         .progress = &line};
    *p = (placing){.settings = settings, .machines = desc->machines ? desc->machines : 1};
    if (!settings->place) return 0;
    int status = placing_file(settings->place) ? partition_load(&p->partition, &of, source, settings->place, error)
                                               : partition_make(&p->partition, &of, source, error);
    if (status) return -1;
    p->report = frugal_place_get_report(p->partition.place, settings->batch);
    p->checksum = placing_checksum(&p->partition);
    if (placing_find_homes(p, desc, error)) return -1;
    placing_tell(p);
    return 0;
}

void placing_describe(const placing *p, FILE *lines) {
    if (!p->partition.parts) return;
    fprintf(lines, "--place %" PRIu64 " samples, checksum of their parts %08" PRIx32 "\n", p->partition.samples,
            p->checksum);
}

/* Rows keys[n] of all tables, in their order: a call for each stretch of them that lies in one table. */
static int placing_preload_rows(frugal *f, uint32_t device, uint64_t *keys, uint64_t n, program_error *error) {
    uint64_t *rows = training_table_rows(f, error);
    if (!rows) return -1;
    frugal_status status = FRUGAL_OK;
    for (uint64_t at = 0; at < n && !status;) {
        frugal_keys stretch = training_stretch(rows, keys + at, n - at);
        status = frugal_preload(f, device, &stretch);
        at += stretch.n;
    }
    free(rows);
    return status ? training_fail("cannot preload the caches", error) : 0;
}

/* Of ranked keys[n] those at home on the machine of the device, as many as its cache takes. */
static uint64_t placing_keep_own(const placing *p, uint32_t device, uint64_t *keys, uint64_t n, uint64_t cache_rows) {
    uint32_t machine = device / (p->settings->devices / p->machines);
    uint64_t own = 0;
    for (uint64_t i = 0; i < n && own < cache_rows; i++)
        if (!p->homes.of || p->homes.of[keys[i]] == machine) keys[own++] = keys[i];
    return own;
}

int placing_preload(const placing *p, frugal *f, uint32_t device, uint64_t cache_rows, program_error *error) {
    uint64_t ranked = cache_rows * p->machines; /* of which some are at home elsewhere */
    if (!p->partition.place || !cache_rows || (p->machines > 1 && p->settings->deal)) return 0;
    uint64_t *keys = malloc(ranked * sizeof *keys);
    double *values = malloc(ranked * sizeof *values);
    int status =
        keys && values
            ? 0
            : program_fail(error, "out of memory for a list of %" PRIu64 " rows to preload; use a smaller --cache",
                           cache_rows);
    if (!status) {
        uint64_t n = frugal_place_rank(p->partition.place, device, FRUGAL_PLACE_BY_GAIN, p->settings->batch, keys,
                                       values, ranked);
        n = placing_keep_own(p, device, keys, n, cache_rows);
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
    homes_free(&p->homes);
}
