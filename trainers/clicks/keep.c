/* Vocabularies as numbers. */
#include "trainers/clicks/keep.h"

#include <inttypes.h>
#include <stdlib.h>
#include "trainers/clicks/log.h"

void clicks_keep_schema(const clicks *log, FILE *stream) {
    clicks_schema_write(&log->schema, stream);
}

uint64_t clicks_vocabulary_numbers(const clicks *log) {
    uint64_t n = 0;
    for (uint32_t k = 0; k < log->schema.n_features && log->vocabularies; k++) n += 1 + log->vocabularies[k].n;
    return n;
}

int clicks_keep_vocabularies(const clicks *log, FILE *stream, program_error *error) {
    for (uint32_t k = 0; k < log->schema.n_features && log->vocabularies; k++) {
        const clicks_vocabulary *v = &log->vocabularies[k];
        uint64_t *hashes = malloc((v->n + 1) * sizeof *hashes);
        if (!hashes) return program_fail(error, "out of memory for a vocabulary of %" PRIu64 " ids", v->n);
        hashes[0] = v->n;
        for (uint64_t i = 0; i < v->room; i++)
            if (v->slots[i].count) hashes[v->slots[i].number] = v->slots[i].hash;
        fwrite(hashes, sizeof *hashes, v->n + 1, stream);
        free(hashes);
    }
    return 0;
}

int clicks_take_vocabularies(clicks *log, const uint64_t *numbers, uint64_t n, program_error *error) {
    uint64_t at = 0;
    for (uint32_t k = 0; k < log->schema.n_features; k++) {
        clicks_vocabulary *v = &log->vocabularies[k];
        uint64_t ids = at < n ? numbers[at++] : UINT64_MAX;
        if (ids > n - at || ids > UINT32_MAX - 1) goto others;
        for (uint64_t end = at + ids; at < end; at++)
            if (clicks_vocabulary_count(v, numbers[at], error)) return -1;
        if (v->n != ids) goto others; /* one came twice, or is no id */
        if (clicks_vocabulary_number(v, 0, error)) return -1;
    }
    log->prepared = at == n;
    if (log->prepared) return 0;
others:
    return program_fail(error,
                        "the vocabularies are not those of a log with %" PRIu32 " features: they are damaged, or of "
                        "another schema",
                        log->schema.n_features);
}
