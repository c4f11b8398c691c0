/* bench_sim.c - training on machines that are not here: 2 to 8 RTX 3090 over PCIe, simulated, by Frugal and by what it is
 * compared with; and a planner for machines to be bought.
 *
 *     build/bench_sim                                  the experiments below, each beside the paper's claim
 *     build/bench_sim --figure 8                       one of them
 *     build/bench_sim --system frugal,sync,sharded,nocache,inplace --gpus 2,4,8 --link pcie4,pcie3 --shared-root
 *     build/bench_sim --plan --gpus 8 --keys 26624     step time, stall, memory, and the fewest workers that do
 *
 * sim.h says what is real in it, and sim_machine.c where each constant comes from.
 */
#include "program.h"
#include "sim.h"
#include "sim_report.h"

#include <stdio.h>
#include <string.h>

enum { FIGURES = 7 };
static const char *const figure_names[FIGURES + 1] = {"8", "9", "13", "14", "15", "17", "links", NULL};
static const char *const link_names[] = {"pcie3", "pcie4", NULL};
static const char *const optimizers[] = {"sgd", "adagrad", "rowwise-adagrad", "adam",
                                         NULL};                       /* as frugal_optimizer_kind */
static const char *const policies[] = {"lru", "lfu", "static", NULL}; /* as frugal_cache_policy */

/* The lists of an experiment; every combination is run, all systems of one before the next. */
typedef struct sweep {
    bench_list system, gpus, link, root, rows, dim, keys, zipf, cache, lookahead, workers;
} sweep;

typedef struct options {
    sweep given; /* what the command line has; empty lists: not given */
    bench_list figure, plan, json, measure, staging, optimizer, policy, warm_up, steps, seed, most_workers, stall;
    bench_list flops, dense_us, dense_bytes, constants[SIM_CONSTANTS];
} options;

typedef struct figure {
    const char *title, *claim;
    sweep axes;
    double gflops, dense_us, dense_mbytes; /* of the dense part */
} figure;

/* Dense parts. TransE: 2000 triples against 200 negatives at dim 400, forward and backward, three operations a float.
 * DLRM: an MLP of 512, 256 and 1 over 26 x 32 + 13 inputs, batch 1024, 6 operations a weight; launches are assumed. */
#define TRANSE .gflops = 2000.0 * 200 * 400 * 9e-9, .dense_us = 200
#define DLRM   .gflops = 1024.0 * 6 * (845 * 512 + 512 * 256 + 256) * 1e-9, .dense_us = 200, .dense_mbytes = 2.26
#define LIST(...)                                                                                                      \
    { {__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double) }
#define ALL_SYSTEMS LIST(SIM_FRUGAL, SIM_SYNC, SIM_INPLACE, SIM_SHARDED, SIM_NOCACHE)

/* The axes are those of the authors' published scripts (RecStore, src/kg/scripts/exp_config.py), thinned; which of the
 * paper's figures has which axes could not be read, so the numbers are the places of the experiments in their order. */
static const figure figures[FIGURES] = {
    {"embedding alone, 8 GPUs, by batch and skew",
     "Frugal 1.5 to 10.2 times no cache, 3.3 to 5.1 times write-through",
     {.system = ALL_SYSTEMS, .gpus = LIST(8), .keys = LIST(512, 2048), .zipf = LIST(0, 0.9, 0.99)},
     0,
     0,
     0},
    {"the gate's stall, 8 GPUs, by batch",
     "stall 34 to 101 times shorter than of write-through",
     {.system = LIST(SIM_FRUGAL, SIM_SYNC), .gpus = LIST(8), .keys = LIST(128, 1024, 2048), .zipf = LIST(0, 0.9)},
     0,
     0,
     0},
    {"knowledge graph, TransE, dim 400, by GPUs",
     "up to 1.5 times DGL-KE on 8 GPUs (no cache, here)",
     {.system = ALL_SYSTEMS,
      .gpus = LIST(2, 4, 8),
      .rows = LIST(500000),
      .dim = LIST(400),
      .keys = LIST(6000),
      .zipf = LIST(0.9)},
     TRANSE,
     0},
    {"recommendation, DLRM, dim 32, batch 1024 x 26, by GPUs",
     "up to 8.7 times HugeCTR on 8 GPUs (sharded, here)",
     {.system = ALL_SYSTEMS, .gpus = LIST(2, 4, 8), .keys = LIST(26624), .zipf = LIST(0.9)},
     DLRM},
    {"flush workers, DLRM on 8 GPUs",
     "its controller runs 8 to 12 flushing threads",
     {.system = LIST(SIM_FRUGAL, SIM_SYNC),
      .gpus = LIST(8),
      .keys = LIST(26624),
      .zipf = LIST(0.9),
      .workers = LIST(2, 4, 8, 12, 16, 32)},
     DLRM},
    {"lookahead, DLRM on 8 GPUs",
     "a lookahead of 10, by default",
     {.system = LIST(SIM_FRUGAL),
      .gpus = LIST(8),
      .keys = LIST(26624),
      .zipf = LIST(0.9),
      .lookahead = LIST(0, 1, 2, 5, 10, 15)},
     DLRM},
    {"links, DLRM on 8 GPUs",
     NULL,
     {.system = ALL_SYSTEMS,
      .gpus = LIST(8),
      .link = LIST(0, 1),
      .root = LIST(0, 1),
      .keys = LIST(26624),
      .zipf = LIST(0.9)},
     DLRM},
};

static const sweep defaults = {.system = ALL_SYSTEMS,
                               .gpus = LIST(2, 4, 8),
                               .link = LIST(1),
                               .root = LIST(0),
                               .rows = LIST(10000000),
                               .dim = LIST(32),
                               .keys = LIST(26624),
                               .zipf = LIST(0.9),
                               .cache = LIST(0.05),
                               .lookahead = LIST(10),
                               .workers = LIST(12)};

/* What the command line gives, else what the experiment has, else the default. */
static sweep merge(const sweep *given, const sweep *axes) {
    sweep result;
    const bench_list *const lists[] = {(const bench_list *)given, (const bench_list *)axes,
                                       (const bench_list *)&defaults};
    for (uint32_t i = 0; i < sizeof(sweep) / sizeof(bench_list); i++) {
        int from = 0;
        while (lists[from][i].n == 0) from++;
        ((bench_list *)&result)[i] = lists[from][i];
    }
    return result;
}

/* The value of a list in combination `at`, which is divided by the list's length: combinations are counted in mixed radix. */
static double pick(const bench_list *list, uint64_t *at) {
    double value = list->values[*at % list->n];
    *at /= list->n;
    return value;
}

static sim_workload workload_of(const options *o, const sweep *s, uint64_t at) {
    sim_workload w = {.warm_up = (uint32_t)o->warm_up.values[0],
                      .steps = (uint32_t)o->steps.values[0],
                      .seed = (uint64_t)o->seed.values[0],
                      .staging = (uint32_t)o->staging.values[0],
                      .optimizer = (frugal_optimizer_kind)o->optimizer.values[0],
                      .policy = (frugal_cache_policy)o->policy.values[0]};
    w.workers = (uint32_t)pick(&s->workers, &at);
    w.lookahead = (uint32_t)pick(&s->lookahead, &at);
    w.pcie = pick(&s->link, &at) > 0 ? 4 : 3;
    w.shared_root = pick(&s->root, &at) > 0;
    w.cache = pick(&s->cache, &at);
    w.keys = (uint32_t)pick(&s->keys, &at);
    w.zipf = pick(&s->zipf, &at);
    w.gpus = (uint32_t)pick(&s->gpus, &at);
    w.dim = (uint32_t)pick(&s->dim, &at);
    w.rows = (uint64_t)pick(&s->rows, &at);
    for (int i = 0; i < SIM_CONSTANTS; i++) w.constants[i] = o->constants[i].values[0];
    return w;
}

static uint64_t combinations(const sweep *s) {
    const bench_list *const lists[] = {&s->workers, &s->lookahead, &s->link, &s->root, &s->cache,
                                       &s->keys,    &s->zipf,      &s->gpus, &s->dim,  &s->rows};
    uint64_t n = 1;
    for (uint32_t i = 0; i < sizeof lists / sizeof *lists; i++) n *= lists[i]->n;
    return n;
}

static void set_dense(sim_workload *w, const options *o, const figure *f) {
    w->flops = (o->flops.n ? o->flops.values[0] : f->gflops) * 1e9;
    w->dense_us = o->dense_us.n ? o->dense_us.values[0] : f->dense_us;
    w->dense_bytes = (o->dense_bytes.n ? o->dense_bytes.values[0] : f->dense_mbytes) * 1e6;
}

static void run_sweep(const options *o, const char *name, const figure *f, sim_keys *keys) {
    sweep s = merge(&o->given, &f->axes);
    int json = o->json.n > 0;
    sim_ratios ratios = {.least_stall = 0};
    if (!json) printf("\n%s: %s\n", name, f->title), sim_print_header();
    for (uint64_t at = 0; at < combinations(&s) && !bench_interrupted(); at++) {
        sim_workload w = workload_of(o, &s, at);
        sim_result results[SIM_SYSTEMS];
        int done[SIM_SYSTEMS] = {0};
        set_dense(&w, o, f);
        sim_keys_draw(keys, &w);
        for (uint32_t i = 0; i < s.system.n && !bench_interrupted(); i++) {
            sim_system system = (sim_system)s.system.values[i];
            results[system] = sim_run(system, &w, keys);
            if (bench_interrupted()) break; /* half of it */
            done[system] = 1;
            sim_print_result(name, system, &w, &results[system], json);
            fflush(stdout);
        }
        sim_add_ratios(&ratios, results, done);
    }
    sim_print_ratios(&ratios, name, f->claim, json);
}

/* The fewest workers whose stall is at most the limit: doubled until they do, then halved in between. */
static void plan(const options *o, sim_keys *keys) {
    const figure none = {.axes = {.gpus = LIST(8)}};
    sweep s = merge(&o->given, &none.axes);
    double limit = o->stall.values[0] / 100;
    s.workers = (bench_list){{1}, 1};
    for (uint64_t at = 0; at < combinations(&s) && !bench_interrupted(); at++) {
        sim_workload w = workload_of(o, &s, at);
        uint32_t most = (uint32_t)o->most_workers.values[0], too_few = 0;
        sim_result r;
        set_dense(&w, o, &none);
        sim_keys_draw(keys, &w);
        for (w.workers = 1;; w.workers = w.workers * 2 < most ? w.workers * 2 : most) {
            fprintf(stderr, "%u workers\n", w.workers);
            r = sim_run(SIM_FRUGAL, &w, keys);
            if (r.gate <= limit * r.step || w.workers == most || bench_interrupted()) break;
            too_few = w.workers;
        }
        while (r.gate <= limit * r.step && w.workers - too_few > 1 && !bench_interrupted()) {
            sim_workload fewer = w;
            fewer.workers = too_few + (w.workers - too_few) / 2;
            fprintf(stderr, "%u workers\n", fewer.workers);
            sim_result its = sim_run(SIM_FRUGAL, &fewer, keys);
            if (its.gate <= limit * its.step)
                w = fewer, r = its;
            else
                too_few = fewer.workers;
        }
        if (!bench_interrupted()) sim_print_plan(&w, &r, limit, o->json.n > 0);
    }
}

static const char about[] =
    "Training steps on 2 to 8 simulated GPUs over PCIe, by Frugal and by what it is compared with; or, with --plan, "
    "what a\n"
    "machine would do and need. Without --figure, --plan or --system all experiments are run.\n";

static void parse(options *o, int argc, char **argv) {
    *o = (options){.staging = LIST(0),
                   .optimizer = LIST(0),
                   .policy = LIST(0),
                   .warm_up = LIST(14),
                   .steps = LIST(16),
                   .seed = LIST(42),
                   .most_workers = LIST(64),
                   .stall = LIST(1)};
    bench_option table[64] = {
        {"--figure", BENCH_CHOICE, &o->figure, 0, 0, figure_names, "experiments, each beside the paper's claim"},
        {"--plan", BENCH_FLAG, &o->plan, 0, 0, NULL,
         "step time, stall, staging memory, and the fewest flush workers that do"},
        {"--system", BENCH_CHOICE, &o->given.system, 0, 0, sim_system_names, "systems to be simulated"},
        {"--gpus", BENCH_COUNT, &o->given.gpus, 1, SIM_MAX_GPUS, NULL, "GPUs"},
        {"--link", BENCH_CHOICE, &o->given.link, 0, 0, link_names, "x16 links of the GPUs"},
        {"--shared-root", BENCH_FLAG, &o->given.root, 0, 0, NULL, "one x16 link to the host for all GPUs"},
        {"--rows", BENCH_COUNT, &o->given.rows, 1000, 4294967294, NULL, "rows of the table"},
        {"--dim", BENCH_COUNT, &o->given.dim, 1, 4096, NULL, "floats a row"},
        {"--keys", BENCH_COUNT, &o->given.keys, 1, 1 << 21, NULL, "keys a GPU and step"},
        {"--zipf", BENCH_REAL, &o->given.zipf, 0, 5, NULL, "skew of the keys; 0: uniform"},
        {"--cache", BENCH_REAL, &o->given.cache, 0, 1, NULL, "rows that a GPU caches, as a share of the table"},
        {"--policy", BENCH_CHOICE, &o->policy, 0, 0, policies, "the caches'"},
        {"--lookahead", BENCH_COUNT, &o->given.lookahead, 0, 15, NULL, "steps announced ahead"},
        {"--staging", BENCH_COUNT, &o->staging, 0, 63, NULL, "blocks of a staging ring; 0: lookahead + 2"},
        {"--workers", BENCH_COUNT, &o->given.workers, 1, SIM_MAX_WORKERS, NULL, "flush workers"},
        {"--most-workers", BENCH_COUNT, &o->most_workers, 1, SIM_MAX_WORKERS, NULL, "that a plan may have"},
        {"--stall", BENCH_REAL, &o->stall, 0.001, 100, NULL, "that a plan may have, % of the step"},
        {"--optimizer", BENCH_CHOICE, &o->optimizer, 0, 0, optimizers, "whose state is flushed, too"},
        {"--gflops", BENCH_REAL, &o->flops, 0, 1e9, NULL, "of the dense part, a GPU and step"},
        {"--dense-us", BENCH_REAL, &o->dense_us, 0, 1e9, NULL, "of the dense part beside that: launches"},
        {"--dense-mbytes", BENCH_REAL, &o->dense_bytes, 0, 1e6, NULL, "of dense gradients, reduced over all GPUs"},
        {"--steps", BENCH_COUNT, &o->steps, 1, 100000, NULL, "simulated and counted"},
        {"--warm-up", BENCH_COUNT, &o->warm_up, 0, 100000, NULL, "simulated before them"},
        {"--seed", BENCH_COUNT, &o->seed, 0, 1e15, NULL, "of the keys"},
        {"--measure", BENCH_FLAG, &o->measure, 0, 0, NULL,
         "time announcing, planning, closing, flushing, gathering here first"},
        {"--json", BENCH_FLAG, &o->json, 0, 0, NULL, "one object a line"}};
    uint32_t n = 0;
    while (table[n].name) n++;
    for (int i = 0; i < SIM_CONSTANTS; i++) {
        o->constants[i] = (bench_list){{sim_constants[i].value}, 1};
        table[n++] = (bench_option){sim_constants[i].option, BENCH_REAL, &o->constants[i], 0.001, 1e9, NULL,
                                    sim_constants[i].what};
    }
    bench_parse("bench_sim", about, table, n, argc, argv);
}

int main(int argc, char **argv) {
    static options o;
    static sim_keys keys;
    parse(&o, argc, argv);
    sim_workload w = {.rows = 0};
    for (int i = 0; i < SIM_CONSTANTS; i++) w.constants[i] = o.constants[i].values[0];
    if (o.measure.n) sim_measure(&w);
    for (int i = 0; i < SIM_CONSTANTS; i++) o.constants[i].values[0] = w.constants[i];
    sim_print_assumptions(&w, o.json.n > 0);
    if (o.plan.n) plan(&o, &keys);
    for (uint32_t i = 0; i < o.figure.n; i++) {
        uint32_t f = (uint32_t)o.figure.values[i];
        run_sweep(&o, figure_names[f], &figures[f], &keys);
    }
    const figure free_sweep = {.title = "as asked"};
    if (!o.plan.n && !o.figure.n && o.given.system.n) run_sweep(&o, "sweep", &free_sweep, &keys);
    for (uint32_t f = 0; !o.plan.n && !o.figure.n && !o.given.system.n && f < FIGURES; f++)
        run_sweep(&o, figure_names[f], &figures[f], &keys);
    sim_keys_free(&keys);
    sim_free_table();
    return bench_exit_status();
}
