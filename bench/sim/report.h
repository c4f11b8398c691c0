/* report.h - what bench_sim prints: tables for people, or one JSON object a line. */
#ifndef FRUGAL_BENCH_SIM_REPORT_H
#define FRUGAL_BENCH_SIM_REPORT_H

#include "bench/program.h"
#include "bench/sim/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* That all of it is simulated, and by which assumptions; gather_cores: as asked for. */
void sim_print_assumptions(const sim_workload *w, const options_list *gather_cores, int json);
/* Of the table whose lines these are. `claim`: the paper's; may be NULL. */
void sim_print_title(const char *experiment, const char *title, const char *claim, int json);
void sim_print_result(const char *experiment, sim_system system, const sim_workload *w, const sim_result *r, int json);
int sim_is_enough(const sim_result *r, double most_stall); /* a stall of at most this share of the step, for good */
void sim_print_plan(const sim_workload *w, const sim_result *r, double most_stall, int json);

/* How Frugal compares with each other system over the workloads of an experiment. */
typedef struct sim_ratios {
    double least[SIM_SYSTEMS], most[SIM_SYSTEMS]; /* their step over Frugal's; 0: not run */
    double least_stall, most_stall;               /* likewise the gate of write-through */
    double least_flush, most_flush;               /* ... and the gate without the closing in it */
} sim_ratios;
/* done[SIM_SYSTEMS]: which of the results there are. */
void sim_add_ratios(sim_ratios *ratios, const sim_result *results, const int *done);
void sim_print_ratios(const sim_ratios *ratios, const char *experiment, const char *claim, int json);

#ifdef __cplusplus
}
#endif
#endif
