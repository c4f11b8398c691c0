/* bench_stale.c - secondaries on a knowledge graph: what they save, and what HET-GMP's other bound would do.
 *
 *     build/bench_stale --data FOLDER                          a graph as kge reads it
 *     build/bench_stale --data FOLDER --secondaries 10 --stale 0,1,10
 *
 * A batch is triples drawn at random, and entities drawn uniformly that its chunks share as negatives. The most
 * frequent entities are listed for every device (frugal_secondaries), with each bound in turn. The library looks rows
 * of one float up, and no gradients come. A line for each bound has:
 *
 *   read       host rows read by a device in a step; at 100%, bound 0, this is what the holder rule leaves
 *   stale      rows of a batch that are read from a copy that lacks contributions
 *   fresh      pairs (head, tail) of a triple that fail HET-GMP's bound between rows, if no copy lacked anything
 *   copies     the same, with the copies as they are
 *   again      rows of a batch that are read from a copy of such a pair: this bound would fetch them once more
 *   by clock   pairs that fail if the rows' own clocks are the frequencies: none (src/steps/clocks.c says why)
 *
 * The bound between rows wants |g_i p_j / p_i - g_j| <= s for p_i >= p_j (Miao et al., SIGMOD '22, section 5.3): g are
 * clocks of copies, p frequencies of the data set, here the triples of the training set that have the entity. The
 * program counts what each copy lacks by itself, and fails if the library has read other rows.
 */
#include "bench/keys.h"
#include "bench/program.h"
#include "trainers/kge/data.h"
#include "frugal_secondaries.h"
#include "frugal_seeing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 64 };

static const char *data;
static uint32_t devices = 8, triples = 128, negatives = 64, chunk = 32;
static uint64_t steps = 1000, seed = 1;
static double secondaries = 100;
static options_list stale = {{0, 2, 5, 10, 100}, 5};
static int json;

static const options_entry options[] = {
    {"data", OPTIONS_TEXT, &data, 0, 0, NULL, "a folder with a knowledge graph, as for kge"},
    {"devices", OPTIONS_WHOLE32, &devices, 1, MOST_DEVICES, NULL, "which train"},
    {"batch", OPTIONS_WHOLE32, &triples, 1, 65536, NULL, "triples of a device in a step; a multiple of --chunk"},
    {"chunk", OPTIONS_WHOLE32, &chunk, 1, 65536, NULL, "triples that share negatives"},
    {"negatives", OPTIONS_WHOLE32, &negatives, 0, 65536, NULL, "of a chunk"},
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1e9, NULL, "trained for each bound"},
    {"secondaries", OPTIONS_REAL, &secondaries, 0, 100, NULL, "percent of the entities listed: the most frequent"},
    {"stale", OPTIONS_WHOLES, &stale, 0, 4294967295, NULL, "bounds; 4294967295: none"},
    {"seed", OPTIONS_WHOLE64, &seed, 0, 1e18, NULL, "of batches"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

typedef struct copy { /* of an entity on a device */
    int fetched;
    uint64_t lacks;
} copy;

typedef struct bench {
    frugal *f;
    const kge_split *train;
    uint32_t entities, positions; /* positions: of a batch */
    uint64_t *keys[MOST_DEVICES]; /* [positions]: heads, tails, negatives */
    uint64_t *frequency, *clock;  /* [entities]: triples; contributions before this step */
    uint64_t *order, listed;      /* order[entities]: the most frequent first; of these, `listed` are listed */
    unsigned char *is_listed, *seen;
    copy *copies[MOST_DEVICES]; /* [entities] */
    float *rows;
    uint64_t *touched;      /* [entities]: a bit for each device */
    unsigned char *stopped; /* [entities]: of a failing pair of the batch at hand */
} bench;

typedef struct counts {
    uint64_t read, unique, stale, again, pairs, fresh, copies, by_clock;
} counts;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

static void *allocate(uint64_t n, size_t size) {
    void *memory = calloc(n ? n : 1, size);
    if (!memory) bench_fail("out of memory for %llu entries of %zu bytes", (unsigned long long)n, size);
    return memory;
}

static const uint64_t *compared; /* by qsort */
static int more_frequent(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    if (compared[left] != compared[right]) return compared[left] < compared[right] ? 1 : -1;
    return left < right ? -1 : left > right;
}

static void open_bench(bench *b, const kge_graph *graph) {
    const kge_split *train = b->train = &graph->split[KGE_TRAIN];
    b->entities = graph->entities.n;
    b->positions = 2 * triples + triples / chunk * negatives;
    b->frequency = allocate(b->entities, 8), b->clock = allocate(b->entities, 8);
    b->order = allocate(b->entities, 8), b->touched = allocate(b->entities, 8);
    b->is_listed = allocate(b->entities, 1), b->seen = allocate(b->entities, 1);
    b->stopped = allocate(b->entities, 1);
    b->rows = allocate(b->positions, 4);
    for (uint32_t d = 0; d < devices; d++)
        b->copies[d] = allocate(b->entities, sizeof(copy)), b->keys[d] = allocate(b->positions, 8);
    for (uint64_t i = 0; i < train->n; i++)
        b->frequency[train->triples[i].head]++, b->frequency[train->triples[i].tail]++;
    for (uint32_t e = 0; e < b->entities; e++) b->order[e] = e;
    compared = b->frequency;
    qsort(b->order, b->entities, sizeof *b->order, more_frequent);
    b->listed = (uint64_t)(secondaries / 100 * b->entities);
    for (uint64_t i = 0; i < b->listed; i++) b->is_listed[b->order[i]] = 1;
}

static void open_instance(bench *b, uint32_t bound) {
    frugal_table table = {.rows = b->entities};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = 1, .devices = devices, .max_keys = b->positions};
    frugal_keys listed = {.table = 0, .keys = b->order, .n = (uint32_t)b->listed};
    check(frugal_open(&desc, &b->f));
    for (uint32_t d = 0; d < devices; d++) check(frugal_cpu_attach(b->f, d, NULL));
    for (uint32_t d = 0; d < devices; d++) check(frugal_secondaries(b->f, d, &listed, bound));
    memset(b->clock, 0, b->entities * sizeof *b->clock);
    for (uint32_t d = 0; d < devices; d++) memset(b->copies[d], 0, b->entities * sizeof(copy));
}

static void draw_batch(bench *b, uint32_t d, uint64_t step) {
    uint64_t state = seed ^ (step * MOST_DEVICES + d) << 20, *keys = b->keys[d];
    for (uint32_t i = 0; i < triples; i++) {
        const kge_triple *triple = &b->train->triples[bench_random(&state) % b->train->n];
        keys[i] = triple->head, keys[triples + i] = triple->tail;
    }
    for (uint32_t i = 2 * triples; i < b->positions; i++) keys[i] = bench_random(&state) % b->entities;
}

/* The library's part of a step, without gradients, which would change no clock. */
static void train_step(bench *b, uint64_t step) {
    for (uint32_t d = 0; d < devices; d++) {
        draw_batch(b, d, step);
        frugal_keys keys = {.table = 0, .keys = b->keys[d], .n = b->positions};
        check(frugal_announce(b->f, d, step, &(frugal_batch){.segments = &keys, .n_segments = 1}));
    }
    for (uint32_t d = 0; d < devices; d++) check(frugal_lookup(b->f, d, step, b->rows));
    for (uint32_t d = 0; d < devices; d++) check(frugal_update(b->f, d, step, NULL));
}

static int fails(double gi, double gj, double pi, double pj, uint32_t bound) {
    if (pi < pj) return fails(gj, gi, pj, pi, bound);
    return pi > 0 && fabs(gi * pj / pi - gj) > bound + 1e-9 * gi;
}

static void count_pairs(bench *b, uint32_t d, uint32_t bound, counts *c) {
    for (uint32_t i = 0; i < triples; i++) {
        uint64_t h = b->keys[d][i], t = b->keys[d][triples + i];
        double ch = (double)b->clock[h], ct = (double)b->clock[t];
        double gh = ch - (b->is_listed[h] ? (double)b->copies[d][h].lacks : 0);
        double gt = ct - (b->is_listed[t] ? (double)b->copies[d][t].lacks : 0);
        double ph = (double)b->frequency[h], pt = (double)b->frequency[t];
        c->pairs++;
        c->fresh += (uint64_t)fails(ch, ct, ph, pt, bound);
        c->by_clock += (uint64_t)fails(gh, gt, ch, ct, bound);
        if (!fails(gh, gt, ph, pt, bound)) continue;
        c->copies++;
        b->stopped[h] = b->stopped[t] = 1;
    }
}

/* What the device reads, by counts of its own. seen[]: 1 from a copy, 2 from the host; zero before and after. */
static void count_reads(bench *b, uint32_t d, uint32_t bound, counts *c) {
    for (uint32_t i = 0; i < b->positions; i++) {
        uint64_t e = b->keys[d][i];
        copy *own = &b->copies[d][e];
        if (b->seen[e]) continue;
        int hit = b->is_listed[e] && own->fetched && (bound == UINT32_MAX || own->lacks <= bound);
        b->seen[e] = hit ? 1 : 2;
        if (!hit) own->fetched = 1, own->lacks = 0;
        c->unique++, c->read += (uint64_t)!hit, c->stale += (uint64_t)(hit && own->lacks > 0);
    }
    count_pairs(b, d, bound, c);
    for (uint32_t i = 0; i < b->positions; i++) {
        uint64_t e = b->keys[d][i];
        c->again += (uint64_t)(b->seen[e] == 1 && b->stopped[e]);
        b->seen[e] = b->stopped[e] = 0;
        b->touched[e] |= UINT64_C(1) << d;
    }
}

static void add_contributions(bench *b) {
    for (uint32_t e = 0; e < b->entities; e++) {
        if (!b->touched[e]) continue;
        uint64_t all = (uint64_t)__builtin_popcountll(b->touched[e]);
        b->clock[e] += all;
        for (uint32_t d = 0; d < devices; d++) b->copies[d][e].lacks += all - (b->touched[e] >> d & 1);
        b->touched[e] = 0;
    }
}

static void print(uint32_t bound, const counts *c, uint64_t done) {
    double each = (double)(done * devices), unique = (double)c->unique, pairs = (double)c->pairs;
    char text[16];
    snprintf(text, sizeof text, "%u", bound);
    if (bound == UINT32_MAX) memcpy(text, "none", 5);
    if (json)
        printf("{\"bench\": \"stale\", \"devices\": %u, \"batch\": %u, \"negatives\": %u, \"secondaries\": %g, "
               "\"steps\": %llu, "
               "\"stale\": %u, \"rows\": %.6g, \"read\": %.6g, \"stale_share\": %.6g, \"fresh_fail\": %.6g, "
               "\"copies_fail\": %.6g, "
               "\"again\": %.6g, \"clock_fail\": %.6g}\n",
               devices, triples, negatives, secondaries, (unsigned long long)done, bound, unique / each,
               (double)c->read / each, (double)c->stale / unique, (double)c->fresh / pairs, (double)c->copies / pairs,
               (double)c->again / each, (double)c->by_clock / pairs);
    else
        printf("%8s %9.1f %8.1f%% %8.1f%% %8.1f%% %9.1f %9.1f%%\n", text, (double)c->read / each,
               100 * (double)c->stale / unique, 100 * (double)c->fresh / pairs, 100 * (double)c->copies / pairs,
               (double)c->again / each, 100 * (double)c->by_clock / pairs);
    fflush(stdout);
}

static void run_bound(bench *b, uint32_t bound) {
    counts c = {0};
    uint64_t done = 0;
    open_instance(b, bound);
    for (; done < steps && !bench_interrupted(); done++) {
        train_step(b, done);
        for (uint32_t d = 0; d < devices; d++) count_reads(b, d, bound, &c);
        add_contributions(b);
        if (done % 100 == 99)
            bench_progress("bound %u: %llu of %llu steps", bound, (unsigned long long)done + 1,
                           (unsigned long long)steps);
    }
    bench_progress("%s", "");
    frugal_stats stats;
    frugal_get_stats(b->f, &stats);
    if (stats.misses != c.read || stats.secondary_hits != c.stale)
        bench_fail("bound %u: the library read %llu host rows and %llu secondaries, not %llu and %llu", bound,
                   (unsigned long long)stats.misses, (unsigned long long)stats.secondary_hits,
                   (unsigned long long)c.read, (unsigned long long)c.stale);
    check(frugal_close(b->f));
    if (done > 0) print(bound, &c, done);
}

int main(int argc, char **argv) {
    static bench b;
    kge_graph graph = {0};
    program_error error;
    bench_parse("bench_stale", "Secondaries on a knowledge graph.", options, argc, argv);
    if (!data) {
        fprintf(stderr, "bench_stale: --data FOLDER is missing: a knowledge graph, as for kge\n");
        return 2;
    }
    if (triples % chunk) {
        fprintf(stderr, "bench_stale: --batch %u must be a multiple of --chunk %u\n", triples, chunk);
        return 2;
    }
    if (kge_graph_read(&graph, data, &error)) bench_fail("%s", error.text);
    open_bench(&b, &graph);
    if (!json)
        printf("%u devices, %u triples each, %u negatives a chunk of %u; %llu of %u entities listed; %llu steps\n\n"
               "%8s %9s %9s %9s %9s %9s %10s\n",
               devices, triples, negatives, chunk, (unsigned long long)b.listed, b.entities, (unsigned long long)steps,
               "bound", "read", "stale", "fresh", "copies", "again", "by clock");
    for (uint32_t i = 0; i < stale.n && !bench_interrupted(); i++) run_bound(&b, (uint32_t)stale.values[i]);
    for (uint32_t d = 0; d < devices; d++) free(b.copies[d]), free(b.keys[d]);
    free(b.frequency), free(b.clock), free(b.order), free(b.touched), free(b.is_listed), free(b.seen);
    free(b.stopped), free(b.rows);
    kge_graph_free(&graph);
    return bench_exit_status();
}
