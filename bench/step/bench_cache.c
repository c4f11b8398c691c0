/* bench_cache.c - the share of hits by cache policy: in the library, on synthetic keys and on the triples of a graph.
 *
 * One thread drives all devices, step by step, so a run has the same hits every time. Nothing is timed. Keys are drawn
 * from a Zipf distribution, or are heads, relations and tails of a graph's training triples: shuffled every epoch,
 * dealt to the devices at random. Hits are counted in the last half of the steps.
 *
 *   lru, counted       the policies of frugal.h, from an empty cache
 *   scan               a static cache, with the keys that are most frequent in the whole trace
 *   sample             a static cache, with those that are most frequent in a sample of --sampled keys per cached row
 *   earlier            a static cache, with those that an earlier run of the same trace has counted most
 *   counted-scan       counted, beginning with the counts and the copies of `scan`
 */
#include "bench/keys.h"
#include "bench/program.h"
#include "trainers/kge/data.h"
#include "frugal_counts.h"
#include "frugal_seeing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 64 };
enum { LRU, COUNTED, SCAN, SAMPLE, EARLIER, COUNTED_SCAN };
static const char *const policies[] = {"lru", "counted", "scan", "sample", "earlier", "counted-scan", NULL};

typedef struct settings {
    options_list devices, cache, zipf, policy;
    uint64_t rows, keys, steps, sampled, seed, drift;
    const char *graph;
    int json;
} settings;

typedef struct trace { /* keys[steps][devices][n] */
    uint64_t rows, steps, n;
    uint32_t devices;
    uint64_t *keys;
} trace;

typedef struct line { /* of the output */
    const settings *s;
    const trace *t;
    double cache, zipf;
    uint32_t policy;
} line;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

static void *allocate(uint64_t n, size_t size) {
    void *memory = calloc(n ? n : 1, size);
    if (!memory) bench_fail("no memory for %llu values of %zu bytes", (unsigned long long)n, size);
    return memory;
}

static uint64_t draw_below(uint64_t *random, uint64_t n) {
    return bench_random(random) % n;
}

/* The keys of a graph: entities, then relations. Epochs follow each other until all steps have their triples. */
static void draw_graph(const settings *s, const kge_split *split, uint64_t entities, trace *t) {
    uint64_t random = s->seed, triples = t->steps * t->devices * (t->n / 3), at = split->n;
    kge_triple *order = allocate(split->n, sizeof *order);
    memcpy(order, split->triples, split->n * sizeof *order);
    for (uint64_t i = 0; i < triples; i++) {
        if (at == split->n) {
            for (uint64_t k = split->n; k > 1; k--) {
                uint64_t other = draw_below(&random, k);
                kge_triple swap = order[k - 1];
                order[k - 1] = order[other], order[other] = swap;
            }
            at = 0;
        }
        t->keys[3 * i] = order[at].head, t->keys[3 * i + 1] = entities + order[at].relation;
        t->keys[3 * i + 2] = order[at++].tail;
    }
    free(order);
}

static trace open_trace(const settings *s, uint32_t devices, double zipf) {
    trace t = {.rows = s->rows, .steps = s->steps, .n = s->keys, .devices = devices};
    kge_graph graph = {0};
    program_error error;
    if (s->graph) {
        if (kge_graph_read(&graph, s->graph, &error)) bench_fail("%s", error.text);
        t.rows = (uint64_t)graph.entities.n + graph.relations.n;
        t.n -= t.n % 3;
    }
    uint64_t n = t.steps * t.devices * t.n;
    t.keys = allocate(n, sizeof *t.keys);
    if (s->graph)
        draw_graph(s, &graph.split[KGE_TRAIN], graph.entities.n, &t);
    else
        bench_draw_keys(t.keys, n, t.rows, zipf, s->seed);
    for (uint64_t i = 0; i < n && s->drift; i++) /* a third of the way round, so that hot rows become cold ones */
        t.keys[i] = (t.keys[i] + i / (t.devices * t.n) / s->drift * (t.rows / 3 + 1)) % t.rows;
    kge_graph_free(&graph);
    return t;
}

static uint64_t *keys_of(const trace *t, uint64_t step, uint32_t device) {
    return t->keys + (step * t->devices + device) * t->n;
}

static uint64_t cached_rows(const line *l) {
    return (uint64_t)(l->cache * (double)l->t->rows);
}

static frugal *open_instance(const line *l, frugal_cache_policy policy) {
    frugal_table table = {.rows = l->t->rows};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = 1,
                        .devices = l->t->devices,
                        .max_keys = (uint32_t)l->t->n,
                        .lookahead = 1};
    frugal_cpu_desc cache = {.cache_rows = cached_rows(l), .policy = policy};
    frugal *f;
    check(frugal_open(&desc, &f));
    for (uint32_t d = 0; d < l->t->devices; d++) check(frugal_cpu_attach(f, d, &cache));
    return f;
}

/* All steps; returns the share of hits in the last half. */
static double run(frugal *f, const trace *t) {
    frugal_stats half, whole;
    for (uint64_t step = 0; step < t->steps && !bench_interrupted(); step++) {
        if (step == t->steps / 2) frugal_get_stats(f, &half);
        for (uint32_t d = 0; d < t->devices; d++) {
            frugal_keys keys = {.table = 0, .keys = keys_of(t, step, d), .n = (uint32_t)t->n};
            check(frugal_announce(f, d, step, &(frugal_batch){.segments = &keys, .n_segments = 1}));
        }
        for (uint32_t d = 0; d < t->devices; d++) check(frugal_lookup(f, d, step, NULL));
        for (uint32_t d = 0; d < t->devices; d++) /* without gradients: hits are the same */
            check(frugal_update(f, d, step, NULL));
    }
    check(frugal_drain(f));
    frugal_get_stats(f, &whole);
    return (double)(whole.hits - half.hits) / (double)(whole.unique_rows - half.unique_rows);
}

/* counts[rows] of what is known before the run. */
static void count_keys(const line *l, const frugal_keys *all, uint64_t *counts) {
    const trace *t = l->t;
    uint64_t n = t->steps * t->devices * t->n, random = l->s->seed + 1;
    if (l->policy == EARLIER) {
        frugal *f = open_instance(l, FRUGAL_CACHE_COUNTED);
        run(f, t);
        check(frugal_get_counts(f, all, counts));
        check(frugal_close(f));
    } else if (l->policy == SAMPLE) {
        for (uint64_t i = 0; i < l->s->sampled * cached_rows(l); i++) counts[t->keys[draw_below(&random, n)]]++;
    } else {
        for (uint64_t i = 0; i < n; i++) counts[t->keys[i]]++;
    }
}

/* Sets the counts, and loads the cache of each device with the keys that rank first. */
static void load_caches(frugal *f, const line *l) {
    uint64_t rows = l->t->rows, *counts = allocate(rows, sizeof *counts), *keys = allocate(rows, sizeof *keys);
    frugal_keys all = {.table = 0, .keys = keys, .n = (uint32_t)rows};
    for (uint64_t i = 0; i < rows; i++) keys[i] = i;
    count_keys(l, &all, counts);
    check(frugal_set_counts(f, &all, counts));
    all.n = (uint32_t)cached_rows(l);
    check(frugal_rank_keys(f, 0, all.n, keys, NULL));
    for (uint32_t d = 0; d < l->t->devices; d++) check(frugal_preload(f, d, &all));
    free(counts), free(keys);
}

static void measure(const line *l) {
    static const frugal_cache_policy policy_of[] = {FRUGAL_CACHE_LRU,    FRUGAL_CACHE_COUNTED, FRUGAL_CACHE_STATIC,
                                                    FRUGAL_CACHE_STATIC, FRUGAL_CACHE_STATIC,  FRUGAL_CACHE_COUNTED};
    const settings *s = l->s;
    frugal *f = open_instance(l, policy_of[l->policy]);
    if (l->policy >= SCAN) load_caches(f, l);
    double hits = run(f, l->t);
    check(frugal_close(f));
    if (bench_interrupted()) return;
    if (s->json && s->graph)
        printf("{\"graph\": \"%s\", ", s->graph);
    else if (s->json)
        printf("{\"zipf\": %g, ", l->zipf);
    if (s->json)
        printf("\"rows\": %llu, \"keys\": %llu, \"steps\": %llu, \"devices\": %u, \"cache\": %g, \"policy\": \"%s\", "
               "\"hits\": %.4f}\n",
               (unsigned long long)l->t->rows, (unsigned long long)l->t->n, (unsigned long long)l->t->steps,
               l->t->devices, l->cache, policies[l->policy], hits);
    else
        printf("%-6.6s %8.2f %8u %7.3f  %-13s %6.1f\n", s->graph ? "graph" : "zipf", l->zipf, l->t->devices, l->cache,
               policies[l->policy], 100 * hits);
    fflush(stdout);
}

static void measure_all(const settings *s) {
    uint32_t zipfs = s->graph ? 1 : s->zipf.n;
    for (uint32_t i = 0; i < s->devices.n * zipfs; i++) {
        double zipf = s->graph ? 0 : s->zipf.values[i % zipfs];
        trace t = open_trace(s, (uint32_t)s->devices.values[i / zipfs], zipf);
        for (uint32_t k = 0; k < s->cache.n * s->policy.n && !bench_interrupted(); k++)
            measure(
                &(line){s, &t, s->cache.values[k / s->policy.n], zipf, (uint32_t)s->policy.values[k % s->policy.n]});
        free(t.keys);
    }
}

int main(int argc, char **argv) {
    settings s = {.devices = {{1, 2, 8}, 3},
                  .cache = {{0.05}, 1},
                  .zipf = {{0.9, 0.95, 0.99}, 3},
                  .policy = {{LRU, COUNTED, SCAN, SAMPLE, EARLIER, COUNTED_SCAN}, 6},
                  .rows = 100000,
                  .keys = 2048,
                  .steps = 1000,
                  .sampled = 25,
                  .seed = 1};
    const options_entry options[] = {
        {"graph", OPTIONS_TEXT, &s.graph, 0, 0, NULL, "folder of a knowledge graph; without it keys are drawn"},
        {"zipf", OPTIONS_REALS, &s.zipf, 0, 2, NULL, "skew of the keys that are drawn"},
        {"rows", OPTIONS_WHOLE64, &s.rows, 1, 1e9, NULL, "of the table, without a graph"},
        {"keys", OPTIONS_WHOLE64, &s.keys, 3, 1e6, NULL, "of a device in a step; three for each triple of a graph"},
        {"devices", OPTIONS_WHOLES, &s.devices, 1, MOST_DEVICES, NULL, ""},
        {"cache", OPTIONS_REALS, &s.cache, 0, 1, NULL, "rows of a device's cache, as a share of all"},
        {"policy", OPTIONS_CHOICES, &s.policy, 0, 0, policies, "of the cache, and how it begins"},
        {"steps", OPTIONS_WHOLE64, &s.steps, 2, 1e6, NULL, "hits are counted in the last half"},
        {"sampled", OPTIONS_WHOLE64, &s.sampled, 1, 1e6, NULL, "keys per cached row, of the policy sample"},
        {"seed", OPTIONS_WHOLE64, &s.seed, 0, 1e9, NULL, "of keys, order of triples, sample"},
        {"drift", OPTIONS_WHOLE64, &s.drift, 0, 1e6, NULL, "steps after which other rows become hot; 0: never"},
        {"json", OPTIONS_FLAG, &s.json, 0, 0, NULL, "one object a line"},
        {0},
    };
    bench_parse("bench_cache", "Share of hits by cache policy.", options, argc, argv);
    if (!s.json) puts("trace      skew  devices   cache  policy          hits %");
    measure_all(&s);
    return bench_exit_status();
}
