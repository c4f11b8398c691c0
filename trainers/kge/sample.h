/* Batches by number: what a device trains at a step is a function of (seed, device, step).
 *
 * Triples are dealt to the devices at random, or by parts. With parts a device trains those of its own part alone, and
 * an epoch has as many steps as the largest part needs: in each step a device takes its share of its part, so that all
 * parts end together. Its batches then have fewer triples than the shape, except those of the largest part, and differ
 * by one in size.
 *
 * Negatives are drawn from all entities in both cases. The triples of a part are alike: they share relations and
 * entities, which would meet the negatives of one device alone. So with parts all devices draw the same sets in a step:
 * chunk c of each device has set c. A set then meets triples of all parts, as it does without parts.
 */
#ifndef KGE_SAMPLE_H
#define KGE_SAMPLE_H

#include "trainers/kge/damping.h"
#include "trainers/kge/model.h"

typedef struct kge_sampler {
    const kge_split *train;
    uint64_t seed;
    uint32_t entities, relations, devices;
    uint32_t batch; /* triples of a device and step, at most */
    /* With parts: those of device d are triples[order[first[d]]] to triples[order[first[d + 1] - 1]]. NULL: at random.
     */
    uint32_t *order;
    uint64_t *first;
    uint64_t steps;             /* of an epoch */
    const kge_weights *weights; /* of weighted batches */
} kge_sampler;

/* Deals by parts: parts[train->n] has the device of each triple. The rest of *sampler is set; kge_sampler_close frees
 * what this allocates, also after an error: a part is no device, or has fewer triples than an epoch has steps. */
int kge_sampler_deal(kge_sampler *sampler, const uint8_t *parts, program_error *error);
void kge_sampler_close(kge_sampler *sampler);

/* The triples of all devices in steps before `step`. */
uint64_t kge_sampled(const kge_sampler *sampler, uint64_t step);

/* A batch's arrays in one block of memory: room for the most ids that its shape can need. */
int kge_batch_open(kge_batch *batch, const kge_batch *shape, program_error *error);
void kge_batch_close(kge_batch *batch);

/* Fills the ids of a batch, and with parts sets its number of triples and its divisor, so that all triples of a step
 * weigh the same, on whichever device. Every epoch shuffles the training triples anew and deals each out once. */
void kge_sample(const kge_sampler *sampler, uint32_t device, uint64_t step, kge_batch *batch);

/* The rows that a batch reads, by position: entities in keys[*n_entities], then relations. */
void kge_batch_keys(const kge_model *model, const kge_batch *batch, uint64_t *keys, uint32_t *n_entities,
                    uint32_t *n_relations);

#endif
