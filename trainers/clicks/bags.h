/* The ids of samples with bags, brought together by feature: as Frugal announces, looks up and pools them.
 *
 * A bag is a feature of a sample; of n samples, sample i's bag of feature k is bag k * n + i. Its ids are in the order
 * of the sample's line, so sums of their rows have one order.
 */
#ifndef CLICKS_BAGS_H
#define CLICKS_BAGS_H

#include "trainers/clicks/clicks.h"

typedef struct clicks_bags {
    uint32_t features, room; /* samples */
    uint64_t *keys;          /* keys[room * most]: rows of the feature's table */
    float *weights;          /* weights[room * most]: rows are multiplied by them; of a mean, over the number of ids */
    /* offsets[features * room + 1]: bag b has the keys offsets[b] to offsets[b + 1] - 1. With fewer samples than
     * `room`, the bags behind theirs are empty. */
    uint32_t *offsets;
} clicks_bags;

/* The log's most ids are known. On failure there is nothing to close, except what `memory` has given. */
int clicks_bags_open(clicks_bags *bags, const clicks *log, uint32_t room, program_error *error);
int clicks_bags_open_in(clicks_bags *bags, const clicks *log, uint32_t room, const clicks_memory *memory,
                        program_error *error);
void clicks_bags_close(clicks_bags *bags);
/* Of samples [first, end) of the batch, `room` at most. */
void clicks_bags_fill(clicks_bags *bags, const clicks *log, const clicks_batch *batch, uint32_t first, uint32_t end);

#endif
