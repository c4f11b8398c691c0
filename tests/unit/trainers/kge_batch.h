/* The small batch that tests of kge's mathematics fill. */
#ifndef KGE_BATCH_H
#define KGE_BATCH_H

#include "trainers/kge/sample.h"

enum { ENTITIES = 11, RELATIONS = 3, TRIPLES = 6, NEGATIVES = 5 };

static float noise(uint64_t i) {
    return (float)(random_at(12345, i) >> 40) / 16777216.0f - 0.5f;
}

/* A batch over few entities, so that negatives meet answers and rows come twice. */
static void fill_batch(kge_batch *batch) {
    program_error error;
    kge_batch shape = *batch;
    assert_int_equal(kge_batch_open(batch, &shape, &error), 0);
    for (uint32_t i = 0; i < TRIPLES; i++) {
        batch->head[i] = i % ENTITIES;
        batch->tail[i] = (i * 3 + 1) % ENTITIES;
        batch->relation[i] = i % RELATIONS;
        batch->inverse[i] = i % RELATIONS + RELATIONS;
        for (int s = 0; s < 2 && batch->weighted; s++) batch->weight[s][i] = 1 + noise(100 + 2 * (uint64_t)i + s);
    }
    for (uint32_t i = 0; i < kge_batch_negatives(batch); i++) batch->negative[i] = (i * 5 + 2) % ENTITIES;
}

#endif
