/* Sampling by counters: no generator has a state, so nothing depends on which thread samples when. */
#include "examples/kge/sample.h"

#include <stdlib.h>

/* A permutation of 0 .. n - 1 that needs no memory: a Feistel network over the next power of two, walked on
 * until it lands below n. */
static uint64_t kge_permute(uint64_t stream, uint64_t n, uint64_t x) {
    unsigned bits = 2;
    while (bits < 63 && (uint64_t)1 << bits < n) bits++;
    unsigned low_bits = bits / 2;
    uint64_t low_mask = ((uint64_t)1 << low_bits) - 1, high_mask = ((uint64_t)1 << (bits - low_bits)) - 1;
    do {
        uint64_t low = x & low_mask, high = x >> low_bits;
        for (uint64_t round = 0; round < 3; round++) {
            high ^= kge_random(stream + round, low) >> 32 & high_mask;
            low ^= kge_random(stream - round - 1, high) >> 32 & low_mask;
        }
        x = high << low_bits | low;
    } while (x >= n);
    return x;
}

void kge_sample(const kge_sampler *sampler, uint32_t device, uint64_t step, kge_batch *batch) {
    uint64_t n = sampler->train->n, streams = kge_random(sampler->seed, 0);
    uint64_t first = (step * sampler->devices + device) * batch->triples;
    for (uint32_t i = 0; i < batch->triples; i++) {
        uint64_t epoch = (first + i) / n, stream = kge_random(streams, epoch);
        kge_triple triple = sampler->train->triples[kge_permute(stream, n, (first + i) % n)];
        batch->head[i] = triple.head;
        batch->tail[i] = triple.tail;
        batch->relation[i] = triple.relation;
        batch->inverse[i] = triple.relation + sampler->relations;
    }
    uint64_t stream = kge_random(kge_random(~streams, step), device);
    uint32_t negatives = batch->triples / batch->chunk * batch->negatives;
    for (uint32_t i = 0; i < negatives; i++) batch->negative[i] = kge_below(kge_random(stream, i), sampler->entities);
}

int kge_batch_open(kge_batch *batch, const kge_batch *shape, program_error *error) {
    size_t n = shape->triples, negatives = n / shape->chunk * shape->negatives;
    *batch = *shape;
    batch->head = malloc((4 * n + negatives) * sizeof *batch->head);
    if (!batch->head) return program_fail(error, "out of memory for a batch of %zu triples; use a smaller --batch", n);
    batch->tail = batch->head + n;
    batch->relation = batch->tail + n;
    batch->inverse = batch->relation + n;
    batch->negative = batch->inverse + n;
    return 0;
}

void kge_batch_close(kge_batch *batch) {
    free(batch->head);
    batch->head = NULL;
}

static uint64_t *kge_append(uint64_t *keys, const uint32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) keys[i] = ids[i];
    return keys + n;
}

void kge_batch_keys(const kge_model *model, const kge_batch *batch, uint64_t *keys, uint32_t *n_entities,
                    uint32_t *n_relations) {
    uint64_t *next = kge_append(keys, batch->head, batch->triples);
    next = kge_append(next, batch->tail, batch->triples);
    next = kge_append(next, batch->negative, batch->triples / batch->chunk * batch->negatives);
    *n_entities = (uint32_t)(next - keys);
    if (batch->sides & KGE_TAILS || !model->reciprocal) next = kge_append(next, batch->relation, batch->triples);
    if (batch->sides & KGE_HEADS && model->reciprocal) next = kge_append(next, batch->inverse, batch->triples);
    *n_relations = (uint32_t)(next - keys) - *n_entities;
}
