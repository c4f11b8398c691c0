/* A stable counting sort by feature and sample. */
#include "trainers/clicks/bags.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int clicks_bags_open_in(clicks_bags *bags, const clicks *log, uint32_t room, const clicks_memory *memory,
                        program_error *error) {
    size_t ids = (size_t)room * clicks_most_ids(log), features = clicks_features(log);
    *bags = (clicks_bags){.features = (uint32_t)features, .room = room};
    bags->keys = memory->allocate(memory->user, (ids + 1) * sizeof *bags->keys);
    bags->weights = memory->allocate(memory->user, (ids + 1) * sizeof *bags->weights);
    bags->offsets = memory->allocate(memory->user, (features * room + 2) * sizeof *bags->offsets);
    if (bags->keys && bags->weights && bags->offsets) return 0;
    return program_fail(error,
                        "out of memory for the bags of %" PRIu32 " samples of up to %" PRIu32
                        " ids; use a smaller batch, or fewer --most-ids",
                        room, clicks_most_ids(log));
}

static void *clicks_bags_memory(void *user, size_t bytes) {
    (void)user;
    return calloc(1, bytes);
}

int clicks_bags_open(clicks_bags *bags, const clicks *log, uint32_t room, program_error *error) {
    static const clicks_memory memory = {clicks_bags_memory, NULL};
    int status = clicks_bags_open_in(bags, log, room, &memory, error);
    if (status) clicks_bags_close(bags);
    return status;
}

void clicks_bags_close(clicks_bags *bags) {
    free(bags->keys);
    free(bags->weights);
    free(bags->offsets);
    *bags = (clicks_bags){0};
}

/* The weights of means are divided by the number of ids. */
static void clicks_bags_divide(clicks_bags *bags, const clicks *log, uint32_t n) {
    for (uint32_t k = 0; k < bags->features; k++)
        for (uint32_t i = 0; i < n && clicks_is_mean(log, k); i++) {
            const uint32_t *bag = &bags->offsets[(size_t)k * n + i];
            for (uint32_t at = bag[0]; at < bag[1]; at++) bags->weights[at] /= (float)(bag[1] - bag[0]);
        }
}

void clicks_bags_fill(clicks_bags *bags, const clicks *log, const clicks_batch *batch, uint32_t first, uint32_t end) {
    size_t all = (size_t)bags->features * bags->room, n = end - first, most = batch->most;
    uint32_t *offsets = bags->offsets;
    memset(offsets, 0, (all + 2) * sizeof *offsets);
    /* Counts, two places on; sums, one place on, where a bag begins; these move to where the bag ends. */
    for (size_t i = 0; i < n; i++)
        for (uint32_t at = 0; at < batch->counts[first + i]; at++)
            offsets[batch->features[(first + i) * most + at] * n + i + 2]++;
    for (size_t b = 0; b < all; b++) offsets[b + 2] += offsets[b + 1];
    for (size_t i = 0; i < n; i++)
        for (uint32_t id = 0; id < batch->counts[first + i]; id++) {
            size_t from = (first + i) * most + id;
            uint32_t to = offsets[batch->features[from] * n + i + 1]++;
            bags->keys[to] = batch->ids[from];
            bags->weights[to] = batch->weights[from];
        }
    clicks_bags_divide(bags, log, (uint32_t)n);
}
