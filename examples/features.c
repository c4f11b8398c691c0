/* features.c - features of a graph's nodes are served to a graph network: each node reads its own features, and the
 * mean of those of sampled neighbours (GraphSAGE's mean aggregator). The features are only read; only the layer is
 * trained.
 *
 *  build/features [NODES] (or: cc -O3 -DNDEBUG -ffp-contract=off examples/features.c frugal_flush.c -I. -lpthread -lm)
 *
 * The graph is made up: eight groups of nodes, whose links stay mostly inside a group, and lead mostly to few of its
 * nodes. A node's own features hardly tell its group; those of its neighbours together do. The layer is trained once
 * with the node's own features alone, and once with those of its neighbours beside them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "frugal_save.h"
#include "frugal_serve.h"

enum { GROUPS = 8, DIM = 16, DEGREE = 10, FANOUT = 8, BATCH = 256, STEPS = 400 };

static uint64_t nodes = 100000;
static uint32_t (*links)[DEGREE]; /* [nodes] */

static void check(frugal_status status) {
    if (status == FRUGAL_OK) return;
    fprintf(stderr, "features: %s\n", frugal_message());
    exit(1);
}

static uint64_t mix(uint64_t *state) { /* SplitMix64 (Steele, Lea and Flood, 2014) */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static double uniform(uint64_t *state) {
    return (double)(mix(state) >> 11) * 0x1p-53;
}

/* A node is in group node % GROUPS. Nine of ten links lead into its group; low numbers have most of them. */
static void make_graph(void) {
    uint64_t state = 1, each = nodes / GROUPS;
    for (uint64_t node = 0; node < nodes; node++)
        for (int i = 0; i < DEGREE; i++) {
            uint64_t group = uniform(&state) < .9 ? node % GROUPS : mix(&state) % GROUPS;
            double u = uniform(&state);
            links[node][i] = (uint32_t)((uint64_t)((double)each * u * u) * GROUPS + group);
        }
}

/* Saves the features, and serves the save. */
static frugal_server *serve_features(void) {
    char path[64];
    const char *saved = path;
    uint64_t state = 2;
    float *features = malloc(nodes * DIM * sizeof *features);
    frugal_table table = {.rows = nodes, .init = FRUGAL_INIT_COPY, .source = features};
    frugal *f;
    frugal_server *s;
    if (!features) exit(1);
    for (uint64_t i = 0; i < nodes * DIM; i++) /* the group's signs times a half, and noise from -3 to 3 */
        features[i] = (float)((i / DIM % GROUPS >> i % DIM % 3 & 1 ? .5 : -.5) + 3 * (uniform(&state) - .5) * 2);
    snprintf(path, sizeof path, "/tmp/frugal_features.%ld", (long)getpid());
    check(frugal_open(&(frugal_desc){.tables = &table, .n_tables = 1, .dim = DIM, .max_keys = 1}, &f));
    check(frugal_save(&f, 1, &(frugal_save_desc){.path = path}));
    check(frugal_close(f));
    check(frugal_serve_open(&(frugal_serve_desc){.from = {.saved = &saved, .n_saved = 1}}, &s));
    unlink(path);
    free(features);
    return s;
}

/* Gathers what the layer reads for a batch: each node's own features, and the mean of those of FANOUT sampled
 * neighbours. */
static void gather(frugal_server *s, const uint64_t *batch, uint64_t *state, float in[BATCH][2 * DIM]) {
    static uint64_t sampled[BATCH * FANOUT];
    static float own[BATCH][DIM], around[BATCH][DIM];
    uint32_t offsets[BATCH + 1];
    for (uint32_t b = 0; b <= BATCH; b++) offsets[b] = b * FANOUT;
    for (uint32_t i = 0; i < BATCH * FANOUT; i++) sampled[i] = links[batch[i / FANOUT]][mix(state) % DEGREE];
    const frugal_keys self = {.keys = batch, .n = BATCH}, others = {.keys = sampled, .n = BATCH * FANOUT};
    const frugal_bags bags = {.n_bags = BATCH, .offsets = offsets, .pooling = FRUGAL_POOL_MEAN};
    check(frugal_serve_lookup(s, &self, 1, &own[0][0], NULL));
    check(frugal_serve_bags(s, &others, 1, &bags, &around[0][0], NULL));
    for (int b = 0; b < BATCH; b++) memcpy(in[b], own[b], sizeof own[b]), memcpy(in[b] + DIM, around[b], sizeof own[b]);
}

/* Trains a linear layer on the first `width` inputs, and returns the share of nodes of new batches whose group it
 * finds. */
static double train(frugal_server *s, int width) {
    static float in[BATCH][2 * DIM];
    static double layer[GROUPS][2 * DIM];
    uint64_t state = 3, batch[BATCH], right = 0, asked = 0;
    memset(layer, 0, sizeof layer);
    for (int step = 0; step < STEPS + 20; step++) {
        for (int b = 0; b < BATCH; b++) batch[b] = mix(&state) % nodes;
        gather(s, batch, &state, in);
        for (int b = 0; b < BATCH; b++) {
            double scores[GROUPS] = {0}, sum = 0;
            int best = 0, group = (int)(batch[b] % GROUPS);
            for (int g = 0; g < GROUPS; g++) {
                for (int i = 0; i < width; i++) scores[g] += layer[g][i] * (double)in[b][i];
                if (scores[g] > scores[best]) best = g;
            }
            if (step >= STEPS) {
                right += best == group, asked++;
                continue;
            }
            for (int g = 0; g < GROUPS; g++) sum += exp(scores[g] - scores[best]);
            for (int g = 0; g < GROUPS; g++) { /* softmax and cross entropy */
                double slope = exp(scores[g] - scores[best]) / sum - (g == group);
                for (int i = 0; i < width; i++) layer[g][i] -= 1. / BATCH * slope * (double)in[b][i];
            }
        }
    }
    return (double)right / (double)asked;
}

int main(int argc, char **argv) {
    static const char usage[] = "usage: features [NODES]    NODES: 8 to 4000000000 [100000]\n";
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return fputs(usage, stdout) < 0 || fflush(stdout) ? 1 : 0;
    if (argc > 1) nodes = strtoull(argv[1], NULL, 10) / GROUPS * GROUPS;
    if (argc > 2 || nodes < GROUPS || nodes > 4000000000) {
        fputs(usage, stderr);
        return 2;
    }
    if (!(links = malloc(nodes * sizeof *links))) return 1;
    make_graph();
    frugal_server *s = serve_features();
    double alone = train(s, DIM), together = train(s, 2 * DIM);
    printf("%llu nodes: the layer finds the group of %.1f%% by their own features, of %.1f%% with their neighbours'\n",
           (unsigned long long)nodes, 100 * alone, 100 * together);
    frugal_serve_close(s);
    free(links);
    if (fflush(stdout)) return perror("features: cannot write the result"), 1;
    return together > alone + .2 ? 0 : 1;
}
