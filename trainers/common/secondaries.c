/* Rows are counted or ranked, cut off, and listed table by table. */
#include "trainers/common/secondaries.h"
#include "trainers/common/training.h"
#include "frugal_secondaries.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct secondaries_counted {
    uint64_t row, touches;
} secondaries_counted;

static int secondaries_by_touches(const void *a, const void *b) {
    const secondaries_counted *left = a, *right = b;
    if (left->touches != right->touches) return left->touches < right->touches ? 1 : -1;
    return left->row < right->row ? -1 : left->row > right->row;
}

static int secondaries_by_row(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static int secondaries_count(const secondaries *s, const partition_source *source, secondaries_counted *counted,
                             program_error *error) {
    uint64_t rows = s->desc.rows;
    for (uint64_t row = 0; row < rows; row++) counted[row].row = row;
    if (source->rewind(source->of, error)) return -1;
    for (;;) {
        frugal_place_samples block;
        if (source->read(source->of, &block, error)) return -1;
        if (!block.n) return 0;
        for (uint64_t i = 0; i < block.n * block.width; i++) {
            if (block.keys[i] >= rows)
                return program_fail(error, "a sample has row %" PRIu64 ", and there are %" PRIu64 " rows",
                                    block.keys[i], rows);
            counted[block.keys[i]].touches++;
        }
    }
}

/* The first rows of ranked[ranks], each with its twin, go to keys[s->n]. Returns how many there are. */
static uint64_t secondaries_take(const secondaries *s, const uint64_t *ranked, uint64_t ranks, uint64_t *keys) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < ranks && n < s->n; i++) {
        keys[n++] = ranked[i];
        if (s->desc.twins && ranked[i] >= s->desc.twins_from && n < s->n) keys[n++] = ranked[i] + s->desc.twins;
    }
    return n;
}

static int secondaries_rank(secondaries *s, const partition_source *source, program_error *error) {
    uint64_t rows = s->desc.rows;
    secondaries_counted *counted = calloc(rows, sizeof *counted);
    uint64_t *ranked = malloc(rows * sizeof *ranked);
    s->keys = malloc(s->n * sizeof *s->keys);
    int status =
        counted && ranked && s->keys
            ? secondaries_count(s, source, counted, error)
            : program_fail(error, "out of memory for a ranking of %" PRIu64 " rows, 24 bytes each; use --place", rows);
    if (!status) {
        qsort(counted, rows, sizeof *counted, secondaries_by_touches);
        for (uint64_t i = 0; i < rows; i++) ranked[i] = counted[i].row;
        s->n = secondaries_take(s, ranked, rows, s->keys);
    }
    free(counted);
    free(ranked);
    return status;
}

int secondaries_choose(secondaries *s, const secondaries_desc *desc, const partition_source *source,
                       program_error *error) {
    uint64_t all = desc->rows + (desc->twins ? desc->rows - desc->twins_from : 0);
    *s = (secondaries){.desc = *desc};
    s->n = (uint64_t)(desc->settings->secondaries * (double)all / 100);
    if (desc->settings->secondaries > 0 && !s->n)
        return program_fail(error, "--secondaries %g of %" PRIu64 " rows is none; use a larger share, or leave it out",
                            desc->settings->secondaries, all);
    return s->n && !desc->placing->partition.parts ? secondaries_rank(s, source, error) : 0;
}

/* keys[n] of all tables, in any order. */
static int secondaries_list_rows(const secondaries *s, frugal *f, uint32_t device, uint64_t *keys, uint64_t n,
                                 program_error *error) {
    uint64_t *rows = training_table_rows(f, error);
    if (!rows) return -1;
    frugal_status status = FRUGAL_OK;
    qsort(keys, n, sizeof *keys, secondaries_by_row); /* a call lists rows of one table, and takes back older ones */
    for (uint64_t at = 0; at < n && !status;) {
        frugal_keys stretch = training_stretch(rows, keys + at, n - at);
        status = frugal_secondaries(f, device, &stretch, s->desc.settings->stale);
        at += stretch.n;
    }
    free(rows);
    return status ? training_fail("cannot list secondaries", error) : 0;
}

int secondaries_list(const secondaries *s, frugal *f, program_error *error) {
    const placing *placing = s->desc.placing;
    int status = 0;
    if (!s->n) return 0;
    uint64_t *keys = malloc(s->n * sizeof *keys), *ranked = malloc(s->n * sizeof *ranked);
    double *values = malloc(s->n * sizeof *values);
    if (!keys || !ranked || !values)
        status = program_fail(error, "out of memory for a list of %" PRIu64 " rows; use a smaller --secondaries", s->n);
    for (uint32_t d = 0; !status && d < s->desc.settings->devices; d++) {
        uint64_t n = s->n;
        if (!s->keys)
            n = secondaries_take(s, ranked,
                                 frugal_place_rank(placing->partition.place, d, FRUGAL_PLACE_BY_COUNT,
                                                   s->desc.settings->batch, ranked, values, n),
                                 keys);
        for (uint64_t i = 0; s->keys && i < n; i++) keys[i] = s->keys[i];
        status = secondaries_list_rows(s, f, d, keys, n, error);
    }
    free(keys);
    free(ranked);
    free(values);
    return status;
}

void secondaries_close(secondaries *s) {
    free(s->keys);
    s->keys = NULL, s->n = 0;
}

void secondaries_json(const training_settings *settings, const frugal_stats *stats, uint32_t n, FILE *json) {
    uint64_t read = 0, stale = 0;
    if (!json) return;
    for (uint32_t i = 0; i < n; i++) read += stats[i].misses, stale += stats[i].secondary_hits;
    fprintf(json,
            ", \"secondaries\": %g, \"stale\": %" PRIu32 ", \"rows_read\": %" PRIu64 ", \"secondary_hits\": %" PRIu64,
            settings->secondaries, settings->stale, read, stale);
}
