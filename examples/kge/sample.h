/* Batches by number: what a device trains at a step is a function of (seed, device, step). */
#ifndef KGE_SAMPLE_H
#define KGE_SAMPLE_H

#include "examples/kge/model.h"

typedef struct kge_sampler {
    const kge_split *train;
    uint64_t seed;
    uint32_t entities, relations, devices;
} kge_sampler;

/* A batch's arrays in one block of memory: room for the most ids that its shape can need. */
int kge_batch_open(kge_batch *batch, const kge_batch *shape, program_error *error);
void kge_batch_close(kge_batch *batch);

/* Fills the ids of a batch. Every epoch shuffles the training triples anew and deals each out once. */
void kge_sample(const kge_sampler *sampler, uint32_t device, uint64_t step, kge_batch *batch);

/* The rows that a batch reads, by position: entities in keys[*n_entities], then relations. */
void kge_batch_keys(const kge_model *model, const kge_batch *batch, uint64_t *keys, uint32_t *n_entities,
                    uint32_t *n_relations);

#endif
