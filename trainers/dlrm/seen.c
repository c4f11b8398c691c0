/* A bit a row of all tables, one table after the other. */
#include "trainers/dlrm/seen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct dlrm_seen {
    uint32_t features;
    int vocabulary;
    uint64_t *first; /* first[features]: rows of the tables before */
    uint64_t *bits;
    uint64_t *unseen; /* unseen[features]: such ids of held-out samples */
    uint64_t samples;
};

int dlrm_seen_open(dlrm_seen **out, const clicks *log, int vocabulary, program_error *error) {
    uint32_t features = clicks_features(log);
    uint64_t rows = 0;
    dlrm_seen *seen = *out = calloc(1, sizeof *seen);
    if (!seen) return program_fail(error, "out of memory");
    seen->features = features, seen->vocabulary = vocabulary;
    seen->first = malloc((features + 1) * sizeof *seen->first);
    seen->unseen = calloc(features + 1, sizeof *seen->unseen);
    for (uint32_t k = 0; k < features && seen->first; rows += clicks_rows(log, k++)) seen->first[k] = rows;
    seen->bits = calloc(rows / 64 + 1, sizeof *seen->bits);
    if (seen->first && seen->unseen && seen->bits) return 0;
    dlrm_seen_close(seen);
    *out = NULL;
    return program_fail(error, "out of memory for a bit of each of %" PRIu64 " rows; use fewer --rows", rows);
}

void dlrm_seen_close(dlrm_seen *seen) {
    if (!seen) return;
    free(seen->first);
    free(seen->bits);
    free(seen->unseen);
    free(seen);
}

static void dlrm_seen_set(dlrm_seen *seen, uint32_t feature, uint64_t row) {
    uint64_t at = seen->first[feature] + row, bit = UINT64_C(1) << (at & 63);
    if (!(seen->bits[at >> 6] & bit)) seen->bits[at >> 6] |= bit; /* most are set already: nothing is written */
}

static int dlrm_seen_lacks(dlrm_seen *seen, uint32_t feature, uint64_t row) {
    uint64_t at = seen->first[feature] + row;
    int lacks = (seen->vocabulary && !row) || !(seen->bits[at >> 6] >> (at & 63) & 1);
    seen->unseen[feature] += (uint64_t)lacks;
    return lacks;
}

void dlrm_seen_mark(dlrm_seen *seen, const clicks_batch *batch) {
    for (uint32_t i = 0; i < batch->n && batch->most; i++)
        for (size_t at = (size_t)i * batch->most, end = at + batch->counts[i]; at < end; at++)
            dlrm_seen_set(seen, batch->features[at], batch->ids[at]);
    for (uint32_t k = 0; k < seen->features && !batch->most; k++)
        for (uint32_t i = 0; i < batch->n; i++) dlrm_seen_set(seen, k, batch->ids[(size_t)k * batch->room + i]);
}

void dlrm_seen_begin(dlrm_seen *seen) {
    memset(seen->unseen, 0, seen->features * sizeof *seen->unseen);
    seen->samples = 0;
}

void dlrm_seen_count(dlrm_seen *seen, const clicks_batch *batch) {
    for (uint32_t i = 0; i < batch->n; i++) {
        int lacks = 0;
        size_t at = (size_t)i * batch->most, end = batch->most ? at + batch->counts[i] : at;
        for (; at < end; at++) lacks |= dlrm_seen_lacks(seen, batch->features[at], batch->ids[at]);
        for (uint32_t k = 0; k < seen->features && !batch->most; k++)
            lacks |= dlrm_seen_lacks(seen, k, batch->ids[(size_t)k * batch->room + i]);
        seen->samples += (uint64_t)lacks;
    }
}

dlrm_unseen dlrm_seen_unseen(const dlrm_seen *seen) {
    dlrm_unseen all = {.samples = seen->samples};
    for (uint32_t k = 0; k < seen->features; k++) {
        all.ids += seen->unseen[k];
        if (seen->unseen[k] > all.of_feature) all.feature = k, all.of_feature = seen->unseen[k];
    }
    return all;
}
