/* samples.h - workloads whose keys are those of samples that are dealt to the GPUs: of a graph, of a click log, of
 * planted communities. */
#ifndef FRUGAL_BENCH_SIM_SAMPLES_H
#define FRUGAL_BENCH_SIM_SAMPLES_H

#include "bench/sim/sim.h"
#include "trainers/common/homes.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sim_source { /* at most one of `data` and `planted`; neither: keys are drawn */
    const char *data;       /* a graph's folder, or with a schema a click log */
    const char *schema;
    int planted;
    place_planted communities;
    const char *parts; /* a file with a byte a sample: its GPU; NULL: dealt by `dealing` */
} sim_source;

typedef struct sim_samples { /* zeroed before the first call */
    place_trace trace;
    place_partition partition;
    place_deal deal;
    int is_open, method; /* of the deal */
    uint32_t machines;
    uint64_t seed;
    homes homes; /* of the deal, where they are placed; zeros: in turn */
} sim_samples;

/* Reads the samples. Ends the program if it cannot. */
void sim_read_samples(sim_samples *s, const sim_source *source);
/* Deals them to the GPUs of the workload, by `method` or as the file has it, or keeps the last deal if it is the same.
 * Sets the workload's rows, its keys, to whole samples, its deal and its homes. Ends the program if it cannot. */
void sim_deal(sim_samples *s, const sim_source *source, place_method method, sim_workload *w);
void sim_free_samples(sim_samples *s);

#ifdef __cplusplus
}
#endif
#endif
