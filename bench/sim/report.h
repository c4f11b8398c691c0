/* report.h - what bench_sim prints: tables for people, or one JSON object a line. */
#ifndef FRUGAL_BENCH_SIM_REPORT_H
#define FRUGAL_BENCH_SIM_REPORT_H

#include "bench/program.h"
#include "bench/sim/experiments.h"
#include "bench/sim/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Says that all results are simulated, and with which assumptions; gather_cores: as asked for. */
void sim_print_assumptions(const sim_workload *w, const options_list *gather_cores, int json);
/* What a line belongs to; `experiment` is NULL of sweeps and plans. */
typedef struct sim_label {
    const sim_experiment *experiment;
    const char *workload;
    double gpu_price; /* dollars; printed per dollar if the experiment is about prices */
} sim_label;
void sim_print_title(const sim_label *label, int json);
void sim_print_result(const sim_label *label, sim_system system, const sim_workload *w, const sim_result *r, int json);
double sim_keys_per_second(const sim_workload *w, const sim_result *r); /* of all GPUs */
/* The price of a data-centre GPU over this one's, and the throughput at which both give as much per dollar. */
void sim_print_prices(const sim_label *label, double datacenter_price, int json);
int sim_is_enough(const sim_result *r, double most_stall); /* a stall of at most this share of the step, for good */
void sim_print_plan(sim_system system, const sim_workload *w, const sim_result *r, double most_stall, int json);
/* Of several plans that differ in dealing, cache, policy and system: the best of each system (a step of 0: there is
 * none), the system to take, and the plan of the longest step. */
typedef struct sim_choice {
    sim_workload best[SIM_SYSTEMS], longest;
    sim_result of_best[SIM_SYSTEMS], of_longest;
    sim_system way, way_of_longest;
    uint32_t n; /* plans */
} sim_choice;
void sim_print_choice(const sim_choice *choice, int json);

/* How Frugal compares with each other system over the workloads of an experiment. */
typedef struct sim_ratios {
    double least[SIM_SYSTEMS], most[SIM_SYSTEMS]; /* their step over Frugal's; 0: not run */
    double least_stall, most_stall;               /* likewise the gate of write-through */
    double least_flush, most_flush;               /* ... and the gate without the closing in it */
    double least_lookup, most_lookup;             /* no cache's reading of rows over Frugal's */
    double least_sync, most_sync;                 /* sharded's step over write-through's */
} sim_ratios;
/* done[SIM_SYSTEMS]: says which results exist. */
void sim_add_ratios(sim_ratios *ratios, const sim_result *results, const int *done);
void sim_print_ratios(const sim_ratios *ratios, const sim_label *label, int json);

typedef struct sim_scaling {
    double rate[SIM_SYSTEMS][SIM_MAX_GPUS + 1]; /* keys per second, by number of GPUs; 0: not run */
} sim_scaling;
/* Each system's throughput over that with the fewest GPUs; says whether straightforward caching scales negatively. */
void sim_print_scaling(const sim_scaling *scaling, const sim_label *label, int json);

#ifdef __cplusplus
}
#endif
#endif
