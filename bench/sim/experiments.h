/* experiments.h - the experiments of the paper (section 4), as bench_sim runs them: the paper's claim for each, and its
 * workloads. */
#ifndef FRUGAL_BENCH_SIM_EXPERIMENTS_H
#define FRUGAL_BENCH_SIM_EXPERIMENTS_H

#include "bench/program.h"
#include "bench/sim/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lists of values; every combination is run, all systems of one before the next. An empty list: not given. */
typedef struct sim_sweep {
    options_list system, gpus, link, behind_switch, sockets, root_lanes, announce, rows, dim, keys, zipf, cache,
        lookahead, workers, gather_cores, policy, dealing, secondaries, stale, machines, network, homes;
} sim_sweep;

#define SIM_LIST(...)                                                                                                  \
    { {__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double) }

typedef struct sim_panel { /* the runs of one data set or model */
    const char *workload;
    sim_sweep axes;
    double flops, dense_us, dense_mbytes; /* of the dense part: flops per key; launches; gradients reduced */
} sim_panel;

enum { SIM_EXPERIMENTS = 10, SIM_PANELS = 3 };

typedef struct sim_experiment {
    int number; /* the paper's */
    const char *title, *claim;
    const char *note;             /* what is assumed, and why the figures differ */
    int scaling, prices;          /* prints throughput by number of GPUs; per dollar */
    sim_panel panels[SIM_PANELS]; /* up to one without a workload */
} sim_experiment;

extern const sim_experiment sim_experiments[SIM_EXPERIMENTS];
extern const char *const sim_experiment_names[SIM_EXPERIMENTS + 1]; /* their numbers, up to a NULL */

#ifdef __cplusplus
}
#endif
#endif
