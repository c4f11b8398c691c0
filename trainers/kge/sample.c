/* Sampling by counters: no generator has a state, so nothing depends on which thread samples when. */
#include "trainers/kge/sample.h"
#include "frugal_place.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- At random ------------------------------------------------------------------------------------------ */

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
            high ^= random_at(stream + round, low) >> 32 & high_mask;
            low ^= random_at(stream - round - 1, high) >> 32 & low_mask;
        }
        x = high << low_bits | low;
    } while (x >= n);
    return x;
}

/* ---- By parts ------------------------------------------------------------------------------------------ */

/* Counts the triples of each part, and lists them by part. */
static int kge_list_parts(kge_sampler *sampler, const uint8_t *parts, program_error *error) {
    uint64_t n = sampler->train->n, devices = sampler->devices, *first = sampler->first;
    for (uint64_t i = 0; i < n; i++) {
        if (parts[i] >= devices)
            return program_fail(error,
                                "triple %" PRIu64 " has part %u, and the parts of %" PRIu64 " devices are 0 to %" PRIu64
                                "; give a partition for %" PRIu64 " parts, or --devices %u",
                                i, parts[i], devices, devices - 1, devices, parts[i] + 1u);
        first[parts[i] + 1]++;
    }
    for (uint32_t d = 0; d < devices; d++) first[d + 1] += first[d];
    for (uint64_t i = 0; i < n; i++) sampler->order[first[parts[i]]++] = (uint32_t)i;
    for (uint64_t d = devices; d > 0; d--) first[d] = first[d - 1]; /* each had moved to its end */
    first[0] = 0;
    return 0;
}

static uint64_t kge_part_size(const kge_sampler *sampler, uint32_t device) {
    return sampler->first[device + 1] - sampler->first[device];
}

int kge_sampler_deal(kge_sampler *sampler, const uint8_t *parts, program_error *error) {
    uint64_t n = sampler->train->n, largest = 0;
    if (n > UINT32_MAX) return program_fail(error, "%" PRIu64 " triples have parts; the limit is 2^32 - 1", n);
    sampler->order = malloc((n + 1) * sizeof *sampler->order);
    sampler->first = calloc(sampler->devices + 1, sizeof *sampler->first);
    if (!sampler->order || !sampler->first) return program_fail(error, "out of memory for the parts of the triples");
    if (kge_list_parts(sampler, parts, error)) return -1;
    for (uint32_t d = 0; d < sampler->devices; d++)
        if (kge_part_size(sampler, d) > largest) largest = kge_part_size(sampler, d);
    sampler->steps = (largest + sampler->batch - 1) / sampler->batch;
    for (uint32_t d = 0; d < sampler->devices; d++)
        if (kge_part_size(sampler, d) < sampler->steps)
            return program_fail(error,
                                "part %u has %" PRIu64
                                " triples, and every step needs one: the largest part has %" PRIu64
                                ", which is %" PRIu64 " steps of --batch %u; use parts of more even size, fewer "
                                "--devices or a larger --batch",
                                d, kge_part_size(sampler, d), largest, sampler->steps, sampler->batch);
    return 0;
}

void kge_sampler_close(kge_sampler *sampler) {
    free(sampler->order);
    free(sampler->first);
    sampler->order = NULL, sampler->first = NULL;
}

/* The triples of all devices in the first `step` steps of an epoch by parts. */
static uint64_t kge_sampled_of_epoch(const kge_sampler *sampler, uint64_t step) {
    uint64_t all = 0, from, end;
    for (uint32_t d = 0; d < sampler->devices; d++, all += from)
        frugal_place_range(kge_part_size(sampler, d), sampler->steps, step, &from, &end);
    return all;
}

uint64_t kge_sampled(const kge_sampler *sampler, uint64_t step) {
    if (!sampler->order) return step * sampler->devices * sampler->batch;
    return step / sampler->steps * sampler->train->n + kge_sampled_of_epoch(sampler, step % sampler->steps);
}

/* ---- A batch ------------------------------------------------------------------------------------------- */

static void kge_set_triple(const kge_sampler *sampler, kge_batch *batch, uint32_t i, uint64_t triple) {
    kge_triple t = sampler->train->triples[triple];
    batch->head[i] = t.head;
    batch->tail[i] = t.tail;
    batch->relation[i] = t.relation;
    batch->inverse[i] = t.relation + sampler->relations;
    for (int s = 0; batch->weighted && s < 2; s++) batch->weight[s][i] = sampler->weights->of[s][triple];
}

static void kge_sample_at_random(const kge_sampler *sampler, uint32_t device, uint64_t step, kge_batch *batch) {
    uint64_t n = sampler->train->n, streams = random_at(sampler->seed, 0);
    uint64_t first = (step * sampler->devices + device) * batch->triples;
    for (uint32_t i = 0; i < batch->triples; i++) {
        uint64_t epoch = (first + i) / n, stream = random_at(streams, epoch);
        kge_set_triple(sampler, batch, i, kge_permute(stream, n, (first + i) % n));
    }
}

/* Each part and epoch has an order of its own. */
static void kge_sample_part(const kge_sampler *sampler, uint32_t device, uint64_t step, kge_batch *batch) {
    uint64_t epoch = step / sampler->steps, at = step % sampler->steps, from, end,
             size = kge_part_size(sampler, device);
    uint64_t key = random_at(random_at(random_at(sampler->seed, 1), epoch), device);
    frugal_place_range(size, sampler->steps, at, &from, &end);
    batch->triples = (uint32_t)(end - from);
    batch->divisor =
        (float)(kge_sampled_of_epoch(sampler, at + 1) - kge_sampled_of_epoch(sampler, at)) / (float)sampler->devices;
    for (uint32_t i = 0; i < batch->triples; i++)
        kge_set_triple(sampler, batch, i,
                       sampler->order[sampler->first[device] + frugal_place_permute(key, size, from + i)]);
}

void kge_sample(const kge_sampler *sampler, uint32_t device, uint64_t step, kge_batch *batch) {
    if (sampler->order)
        kge_sample_part(sampler, device, step, batch);
    else
        kge_sample_at_random(sampler, device, step, batch);
    uint64_t set = sampler->order ? 0 : device; /* with parts, of all devices */
    uint64_t stream = random_at(random_at(~random_at(sampler->seed, 0), step), set);
    uint32_t negatives = kge_batch_negatives(batch);
    for (uint32_t i = 0; i < negatives; i++) batch->negative[i] = random_below(random_at(stream, i), sampler->entities);
}

int kge_batch_open(kge_batch *batch, const kge_batch *shape, program_error *error) {
    size_t n = shape->triples, negatives = kge_batch_negatives(shape);
    *batch = *shape;
    batch->head = malloc((4 * n + negatives) * sizeof *batch->head);
    if (shape->weighted) batch->weight[0] = calloc(2 * n, sizeof *batch->weight[0]);
    if (!batch->head || (shape->weighted && !batch->weight[0])) {
        kge_batch_close(batch);
        return program_fail(error, "out of memory for a batch of %zu triples; use a smaller --batch", n);
    }
    if (shape->weighted) batch->weight[1] = batch->weight[0] + n;
    batch->tail = batch->head + n;
    batch->relation = batch->tail + n;
    batch->inverse = batch->relation + n;
    batch->negative = batch->inverse + n;
    return 0;
}

void kge_batch_close(kge_batch *batch) {
    free(batch->head);
    free(batch->weight[0]);
    batch->head = NULL;
    batch->weight[0] = batch->weight[1] = NULL;
}

static uint64_t *kge_append(uint64_t *keys, const uint32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) keys[i] = ids[i];
    return keys + n;
}

void kge_batch_keys(const kge_model *model, const kge_batch *batch, uint64_t *keys, uint32_t *n_entities,
                    uint32_t *n_relations) {
    uint64_t *next = keys;
    for (uint32_t i = 0; i < batch->entities; i++) *next++ = i;
    if (!batch->entities) {
        next = kge_append(next, batch->head, batch->triples);
        next = kge_append(next, batch->tail, batch->triples);
        next = kge_append(next, batch->negative, kge_batch_negatives(batch));
    }
    *n_entities = (uint32_t)(next - keys);
    next = kge_append(next, batch->relation, batch->triples);
    if (kge_batch_relations(model, batch) == 2) next = kge_append(next, batch->inverse, batch->triples);
    *n_relations = (uint32_t)(next - keys) - *n_entities;
}
