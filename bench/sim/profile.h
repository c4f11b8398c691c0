/* profile.h - what build/place has found out about a log, read from its report: rows of a step, and reads by cache, in
 * closed form. A plan can be made of it without the data.
 *
 * A report has a JSON object a line, as tools/place/figures.c writes it: random parts, then the parts that were made.
 */
#ifndef FRUGAL_BENCH_SIM_PROFILE_H
#define FRUGAL_BENCH_SIM_PROFILE_H

#include "trainers/common/program.h"
#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_MOST_CACHES = 32, SIM_MOST_PROFILES = 2 };

typedef struct sim_profile { /* of one partition; rows are means of a step, of all devices together */
    char method[16];
    uint32_t devices;
    uint64_t rows, samples, touches;
    uint64_t batch;      /* samples of a device in a step */
    double reads;        /* without a cache: each device its unique rows */
    double rows_in_step; /* each once */
    double rows_alone;   /* of these, those that one device alone touches */
    double rows_again;   /* of these, those that the next step touches, too */
    uint32_t n_caches;
    double caches[SIM_MOST_CACHES]; /* rows that a device caches, as shares of all; rising */
    double reads_counted[SIM_MOST_CACHES], reads_lru[SIM_MOST_CACHES];
} sim_profile;

/* Reads profiles[SIM_MOST_PROFILES], of the same devices, rows and batch; *n of them. 0, or -1 with *error filled: the
 * file is no such report, and which field of which line it lacks. */
int sim_read_profiles(sim_profile *profiles, uint32_t *n, const char *path, program_error *error);
/* Rows that all devices read in a step, if each caches this share of the rows; straight between the report's sizes. A
 * static cache reads what a counted one does. */
double sim_profile_reads(const sim_profile *profile, frugal_cache_policy policy, double cache);

#ifdef __cplusplus
}
#endif
#endif
