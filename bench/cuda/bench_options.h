/* bench_options.h - the options of bench_cuda, and the values that each experiment has without them. */
#ifndef FRUGAL_BENCH_CUDA_OPTIONS_H
#define FRUGAL_BENCH_CUDA_OPTIONS_H

#include "bench/choices.h"
#include "bench/cuda/bench_limits.h"
#include "bench/cuda/bench_record.h"
#include "bench/cuda/host_gather.h"

enum {
    GATHER,
    HITS,
    STEPS,
    DYNAMICEMB,
    BAGS,
    GRAPH,
    TIMELINE,
    LINKS,
    SERVE,
    ATTACH,
    EXPERIMENTS
}; /* what matters most comes first */
enum { P2F, SYNC, NOCACHE };
enum { GATE_HOST, GATE_STREAM };
enum { ON_HOST, ON_GPU };
enum { ALONE_STAGED, ALONE_PLACE, ALONE_KEPT }; /* as frugal_alone, from FRUGAL_ALONE_STAGED */
enum { L2_COLD, L2_WARM };
enum { PLAIN, BAG_SUM, BAG_MEAN, BAG_WEIGHTED };
static const char *const experiments[] = {"gather",   "hits",  "steps", "dynamicemb", "bags", "graph",
                                          "timeline", "links", "serve", "attach",     NULL};
static const char *const systems[] = {"p2f", "sync", "nocache", NULL};
static const char *const gates[] = {"host", "stream", NULL};
static const char *const places[] = {"host", "gpu", NULL};
static const char *const alones[] = {"staged", "place", "kept", NULL};
static const char *const l2_states[] = {"cold", "warm", NULL};
static const char *const types[] = {"fp32", "bf16", "fp16", NULL}; /* as frugal_type */
static const char *const poolings[] = {"plain", "sum", "mean", "weighted", NULL};

/* The values that an experiment has for options that were not given. */
typedef struct experiment_defaults {
    options_list rows, dim, keys, devices, gate, loader, optimizer;
} experiment_defaults;

static const experiment_defaults defaults[EXPERIMENTS] = {
    /* gather: the keys are --batch's */
    {{{10e6, 1e6, 50e6}, 3}, {{32, 128, 16, 64}, 4}, {{}, 0}, {{1}, 1}, {{GATE_HOST}, 1}, {{0}, 1}, {{FRUGAL_SGD}, 1}},
    /* hits: half of the rows are cached: more than 1 GB with both dims */
    {{{20e6}, 1},
     {{32, 128}, 2},
     {{26624, 262144, 1048576, 4194304}, 4},
     {{1}, 1},
     {{GATE_HOST}, 1},
     {{0}, 1},
     {{FRUGAL_ROWWISE_ADAGRAD}, 1}},
    /* steps */
    {{{10e6}, 1},
     {{32}, 1},
     {{26624}, 1},
     {{1, 2, 4}, 3},
     {{GATE_HOST, GATE_STREAM}, 2},
     {{0, 1}, 2},
     {{FRUGAL_ROWWISE_ADAGRAD}, 1}},
    /* dynamicemb: as NVIDIA published it; rows per table, keys of all tables and devices */
    {{{26843545}, 1},
     {{128}, 1},
     {{1048570}, 1},
     {{1, 4}, 2},
     {{GATE_HOST}, 1},
     {{1}, 1},
     {{FRUGAL_SGD, FRUGAL_ADAM}, 2}},
    /* bags */
    {{{10e6}, 1},
     {{32}, 1},
     {{26624, 1048576}, 2},
     {{1}, 1},
     {{GATE_HOST}, 1},
     {{0}, 1},
     {{FRUGAL_ROWWISE_ADAGRAD}, 1}},
    /* graph */
    {{{10e6}, 1},
     {{32}, 1},
     {{2048, 26624}, 2},
     {{1}, 1},
     {{GATE_HOST, GATE_STREAM}, 2},
     {{1}, 1},
     {{FRUGAL_ROWWISE_ADAGRAD}, 1}},
    /* timeline */
    {{{10e6}, 1},
     {{32}, 1},
     {{26624}, 1},
     {{1}, 1},
     {{GATE_HOST, GATE_STREAM}, 2},
     {{0}, 1},
     {{FRUGAL_ROWWISE_ADAGRAD}, 1}},
    /* links: rows of memory that is read, not of a table */
    {{{0}, 1}, {{32, 128}, 2}, {{}, 0}, {{1}, 1}, {{GATE_HOST}, 1}, {{0}, 1}, {{FRUGAL_SGD}, 1}},
    /* serve */
    {{{10e6}, 1},
     {{32, 128}, 2},
     {{26624, 262144, 1048576}, 3},
     {{1}, 1},
     {{GATE_HOST}, 1},
     {{0}, 1},
     {{FRUGAL_SGD}, 1}},
    /* attach: 26,624 keys */
    {{{1e6, 10e6, 50e6, 100e6}, 4}, {{32}, 1}, {{}, 0}, {{2}, 1}, {{GATE_HOST}, 1}, {{0}, 1}, {{FRUGAL_SGD}, 1}},
};

static options_list experiment = {{GATHER, HITS, STEPS, DYNAMICEMB, BAGS, GRAPH, TIMELINE, LINKS, SERVE, ATTACH},
                                  EXPERIMENTS},
                    rows, dim, keys, devices, gate, loader, optimizer,
                    batch = {{128, 1024, 8192, 65536, 262144, 1048576}, 6}, threads = {{1, 0}, 2},
                    hits = {{0, 0.5, 0.9, 1}, 4}, l2 = {{L2_COLD}, 1}, zipf = {{0.99}, 1},
                    system_option = {{P2F, SYNC, NOCACHE}, 3}, alone = {{ALONE_PLACE}, 1}, keys_in = {{ON_HOST}, 1},
                    rows_as = {{FRUGAL_FP32}, 1}, workers = {{0}, 1},
                    pooling = {{PLAIN, BAG_SUM, BAG_MEAN, BAG_WEIGHTED}, 4}, footprint = {{0, 0.8, 1}, 3},
                    link_gb = {{0}, 1};
static uint64_t lookahead = 10, bag = 16, tables = 10, iterations = 100, steps = 60, rounds = 5, repeats = 50;
static double cache = 0.05, fraction = 1, case_seconds = 1;
static int hits_given;
static const char *links;

static const options_entry options[] = {
    {"experiment", OPTIONS_CHOICES, &experiment, 0, 0, experiments, "what to measure"},
    {"rows", OPTIONS_WHOLES, &rows, 16, 4294967294, NULL, "rows of the table (dynamicemb: of each table)"},
    {"dim", OPTIONS_WHOLES, &dim, 1, 65536, NULL, "weights a row"},
    {"rows-as", OPTIONS_CHOICES, &rows_as, 0, 0, types,
     "gather, steps: what the table's weights are (those of 16 bits are rounded stochastically); else fp32"},
    {"keys", OPTIONS_WHOLES, &keys, 1, 1 << 24, NULL,
     "all but gather: keys that a device looks up in a step (dynamicemb: all of them)"},
    {"devices", OPTIONS_WHOLES, &devices, 1, 64, NULL,
     "steps, dynamicemb: logical devices, a thread and a stream each"},
    LADDER_GPUS_OPTION(
        "steps, dynamicemb: GPUs that devices are on, by turns (0,1; 0,0: both on one); links: those that "
        "read, if not given all; else the first alone"),
    {"gate", OPTIONS_CHOICES, &gate, 0, 0, gates, "steps, dynamicemb, graph, timeline: who waits at gates"},
    {"loader", OPTIONS_WHOLES, &loader, 0, 1, NULL,
     "steps, dynamicemb, graph: who announces; 0: the trainer, 1: a thread of its own for each trainer"},
    {"keys-in", OPTIONS_CHOICES, &keys_in, 0, 0, places,
     "steps, dynamicemb: memory in which keys lie when they are announced"},
    {"optimizer", OPTIONS_CHOICES, &optimizer, 0, 0, bench_optimizers,
     "optimizer of the rows; a list only for dynamicemb"},
    {"workers", OPTIONS_WHOLES, &workers, 0, 1024, NULL,
     "threads that flush; 0: half of the processors; a list only for steps and dynamicemb"},
    {"lookahead", OPTIONS_WHOLE64, &lookahead, 1, 15, NULL, "steps announced ahead"},
    {"batch", OPTIONS_WHOLES, &batch, 1, 1 << 24, NULL, "gather: rows at a time"},
    {"threads", OPTIONS_WHOLES, &threads, 0, 64, NULL,
     "gather: threads of the processor's gather; 0: half of the processors, 8 at most"},
    {"hits", OPTIONS_REALS, &hits, 0, 1, NULL,
     "hits, serve: share of keys whose rows are cached; serve without it: .8,.9,.95,.98", NULL, NULL, &hits_given},
    {"l2", OPTIONS_CHOICES, &l2, 0, 0, l2_states, "gather, hits, bags: the GPU's L2 cache before what is timed"},
    {"zipf", OPTIONS_REALS, &zipf, 0, 10, NULL, "steps, bags, graph, timeline: skew of the keys; 0: uniform"},
    {"system", OPTIONS_CHOICES, &system_option, 0, 0, systems, "steps: what is run"},
    {"alone", OPTIONS_CHOICES, &alone, 0, 0, alones,
     "steps, dynamicemb, graph, timeline: where rows that one device alone touches are updated; a list only for the "
     "first two (gather, hits, bags and serve measure staged kernels)"},
    {"cache", OPTIONS_REAL, &cache, 0, 1, NULL,
     "steps, bags, graph, timeline: rows cached by each device, as a share of all"},
    {"pooling", OPTIONS_CHOICES, &pooling, 0, 0, poolings, "bags; plain: no bags"},
    {"bag", OPTIONS_WHOLE64, &bag, 1, 65536, NULL, "bags: keys of a bag"},
    {"tables", OPTIONS_WHOLE64, &tables, 1, 1024, NULL, "dynamicemb: tables, which share the keys"},
    {"footprint", OPTIONS_REALS, &footprint, 0, 4, NULL,
     "dynamicemb: cached rows, as a share of the rows that all iterations touch"},
    {"fraction", OPTIONS_REAL, &fraction, 0, 1, NULL,
     "dynamicemb: share of --rows to use at most; less where memory is short"},
    {"iterations", OPTIONS_WHOLE64, &iterations, 1, BENCH_SAMPLES, NULL,
     "dynamicemb: steps that are timed, after untimed ones with the same keys"},
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1e9, NULL, "steps, graph: steps of a round"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL,
     "steps, graph: rounds of which medians are taken, after one more"},
    {"repeats", OPTIONS_WHOLE64, &repeats, 1, BENCH_SAMPLES, NULL,
     "gather, hits, bags, timeline: samples of which medians are taken, after some more"},
    {"case", OPTIONS_REAL, &case_seconds, 0, 3600, NULL,
     "gather, hits, bags: seconds after which 3 repeats are enough"},
    LIMITS_SECONDS_OPTION,
    {"links", OPTIONS_TEXT, &links, 0, 0, NULL,
     "links: file for the bandwidths of the last --dim, for build/peers --machine", "FILE"},
    {"link-gb", OPTIONS_REALS, &link_gb, 0, 4096, NULL,
     "links: GB of host memory that is read, at random; 0: 0.268, as of the GPUs' memory"},
    LADDER_HOLD_OPTION,
    LIMITS_MEMORY_OPTION,
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

/* What was given, or else the experiment's own. */
static const options_list *options_given_or(const options_list *given, const options_list *own) {
    return given->n ? given : own;
}

/* For an experiment that takes only one value. */
static frugal_optimizer_kind options_optimizer_of(uint32_t which) {
    return (frugal_optimizer_kind)options_given_or(&optimizer, &defaults[which].optimizer)->values[0];
}

/* The number of workers that an option's value stands for. */
static uint32_t options_workers_of(double value) {
    uint32_t half = bench_processors() / 2;
    return value > 0 ? (uint32_t)value : half > 0 ? half : 1;
}

#endif
