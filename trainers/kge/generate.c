/* A small knowledge graph with structure to learn, for runs without a download.
 *
 * Entities are points of a hidden space, in clusters; a relation is a step in that space from one cluster to
 * another. A triple leads from an entity of the first cluster to one of the entities nearest to where the
 * step ends. So relations have types, answers are neither unique nor arbitrary, and held-out triples can be inferred
 * from the others.
 */
#include "trainers/kge/data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the entities of a cluster, so many are looked at; in a large graph, fewer. */
enum { KGE_HIDDEN = 6, KGE_NEAREST = 3, KGE_LOOKS = 1024, KGE_FEW_LOOKS = 64, KGE_LARGE = 1 << 20 };

typedef struct kge_world {
    kge_generator size;
    uint32_t clusters;
    float (*point)[KGE_HIDDEN]; /* of entities, by cluster; entity i belongs to cluster i mod clusters */
    float (*step)[KGE_HIDDEN];  /* of relations; relation r leads from cluster r mod clusters */
    uint32_t *goal;             /* to this cluster */
} kge_world;

/* Roughly normal, from a counter. */
static float kge_bell(uint64_t stream, uint64_t counter) {
    float sum = 0;
    for (uint64_t i = 0; i < 4; i++) sum += (float)(random_at(stream, 4 * counter + i) >> 40) / 16777216.0f - 0.5f;
    return sum * 1.7320508f;
}

/* The point of an entity. Those of a cluster lie side by side, because they are searched. */
static float *kge_point(const kge_world *world, uint32_t entity) {
    uint32_t cluster = entity % world->clusters, more = world->size.entities % world->clusters;
    size_t first = (size_t)(world->size.entities / world->clusters) * cluster + (cluster < more ? cluster : more);
    return world->point[first + entity / world->clusters];
}

static void kge_world_fill(kge_world *world) {
    uint64_t seed = world->size.seed;
    for (uint32_t i = 0; i < world->size.entities; i++)
        for (uint64_t k = 0; k < KGE_HIDDEN; k++)
            kge_point(world, i)[k] = 3.0f * kge_bell(random_at(seed, 1), i % world->clusters * KGE_HIDDEN + k) +
                                     kge_bell(random_at(seed, 2), (uint64_t)i * KGE_HIDDEN + k);
    for (uint32_t r = 0; r < world->size.relations; r++) {
        uint64_t from = r % world->clusters, to = random_below(random_at(random_at(seed, 3), r), world->clusters);
        world->goal[r] = (uint32_t)to;
        for (uint64_t k = 0; k < KGE_HIDDEN; k++)
            world->step[r][k] = 3.0f * (kge_bell(random_at(seed, 1), to * KGE_HIDDEN + k) -
                                        kge_bell(random_at(seed, 1), from * KGE_HIDDEN + k)) +
                                0.5f * kge_bell(random_at(seed, 4), r * KGE_HIDDEN + k);
    }
}

/* How many entities a cluster has. */
static uint32_t kge_members(const kge_world *world, uint32_t cluster) {
    return (world->size.entities - cluster + world->clusters - 1) / world->clusters;
}

/* One of the KGE_NEAREST entities nearest to where `relation` leads from `head`. Of large clusters only a part is
 * searched. */
static uint32_t kge_world_tail(const kge_world *world, uint32_t head, uint32_t relation, uint64_t bits) {
    float best[KGE_NEAREST], goal[KGE_HIDDEN];
    uint32_t nearest[KGE_NEAREST] = {head, head, head}, cluster = world->goal[relation],
             n = kge_members(world, cluster);
    uint32_t most = world->size.entities > KGE_LARGE ? KGE_FEW_LOOKS : KGE_LOOKS;
    uint32_t looks = n < most ? n : most, begin = random_below(random_at(bits, 0), n);
    const float(*first)[KGE_HIDDEN] = (const float(*)[KGE_HIDDEN])kge_point(world, cluster);
    for (int i = 0; i < KGE_NEAREST; i++) best[i] = INFINITY;
    for (int k = 0; k < KGE_HIDDEN; k++) goal[k] = kge_point(world, head)[k] + world->step[relation][k];
    for (uint32_t look = 0; look < looks; look++) {
        uint32_t member = (uint32_t)(((uint64_t)begin + look) % n), entity = cluster + member * world->clusters;
        const float *point = first[member];
        float distance = 0;
        for (int k = 0; k < KGE_HIDDEN; k++) distance += (point[k] - goal[k]) * (point[k] - goal[k]);
        if (entity == head || distance >= best[KGE_NEAREST - 1]) continue;
        int at = KGE_NEAREST - 1;
        for (; at > 0 && distance < best[at - 1]; at--) {
            best[at] = best[at - 1];
            nearest[at] = nearest[at - 1];
        }
        best[at] = distance;
        nearest[at] = entity;
    }
    return nearest[random_below(random_at(bits, 1), KGE_NEAREST)];
}

static int kge_order_triples(const void *left, const void *right) {
    return memcmp(left, right, sizeof(kge_triple));
}

/* Draws triples, each once, in an order that tells nothing, into the training split. */
static int kge_world_draw(const kge_world *world, kge_split *all, program_error *error) {
    uint64_t n = world->size.triples, distinct = 0;
    kge_triple *triple = all->triples = malloc(n * sizeof *triple);
    if (!triple) return program_fail(error, "out of memory for %" PRIu64 " triples", n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t stream = random_at(random_at(world->size.seed, 5), i);
        uint32_t relation = random_below(random_at(stream, 0), world->size.relations);
        uint32_t cluster = relation % world->clusters;
        uint32_t head = cluster + random_below(random_at(stream, 1), kge_members(world, cluster)) * world->clusters;
        triple[i] = (kge_triple){head, relation, kge_world_tail(world, head, relation, random_at(stream, 2))};
    }
    qsort(triple, n, sizeof *triple, kge_order_triples);
    for (uint64_t i = 0; i < n; i++)
        if (!i || memcmp(&triple[i], &triple[distinct - 1], sizeof *triple)) triple[distinct++] = triple[i];
    for (uint64_t i = distinct; i > 1; i--) {
        uint32_t other = random_below(random_at(random_at(world->size.seed, 6), i), (uint32_t)i);
        kge_triple swap = triple[i - 1];
        triple[i - 1] = triple[other];
        triple[other] = swap;
    }
    all->n = distinct;
    return 0;
}

/* The last tenth of the training triples becomes the other two splits. */
static int kge_hold_out(kge_graph *graph, program_error *error) {
    kge_split *train = &graph->split[KGE_TRAIN];
    uint64_t part = train->n / 20;
    for (int i = KGE_VALID; i <= KGE_TEST; i++) {
        kge_split *split = &graph->split[i];
        split->triples = malloc((part + 1) * sizeof *split->triples);
        if (!split->triples) return program_fail(error, "out of memory for %" PRIu64 " triples", part);
        train->n -= part;
        split->n = part;
        memcpy(split->triples, train->triples + train->n, part * sizeof *split->triples);
    }
    return 0;
}

static int kge_number_names(kge_names *names, uint32_t n, const char *prefix, program_error *error) {
    char name[32];
    for (uint32_t i = 0; i < n; i++) {
        int length = snprintf(name, sizeof name, "%s-%" PRIu32, prefix, i);
        if (kge_names_add(names, name, (size_t)length, error)) return -1;
    }
    return 0;
}

int kge_graph_generate(kge_graph *graph, const kge_generator *generator, program_error *error) {
    *graph = (kge_graph){0};
    kge_world world = {.size = *generator};
    if (!world.size.entities) world.size.entities = 10000;
    if (!world.size.relations) world.size.relations = 40;
    if (!world.size.triples) world.size.triples = 16 * world.size.entities;
    if (world.size.entities < 20 || world.size.triples < 40)
        return program_fail(error, "a generated graph needs at least 20 entities and 40 triples");
    world.clusters = world.size.entities < 400 ? 4 : 16;
    world.point = malloc(world.size.entities * sizeof *world.point);
    world.step = malloc(world.size.relations * sizeof *world.step);
    world.goal = malloc(world.size.relations * sizeof *world.goal);
    int status = world.point && world.step && world.goal
                     ? 0
                     : program_fail(error, "out of memory for the hidden space of the graph");
    if (!status) kge_world_fill(&world);
    if (!status) status = kge_world_draw(&world, &graph->split[KGE_TRAIN], error);
    if (!status) status = kge_hold_out(graph, error);
    if (!status) status = kge_number_names(&graph->entities, world.size.entities, "entity", error);
    if (!status) status = kge_number_names(&graph->relations, world.size.relations, "relation", error);
    free(world.point);
    free(world.step);
    free(world.goal);
    return status;
}
