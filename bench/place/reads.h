/* reads.h - host rows that the library's devices read and write, with samples dealt and rows preloaded. */
#ifndef FRUGAL_BENCH_PLACE_READS_H
#define FRUGAL_BENCH_PLACE_READS_H

#include "bench/place/partition.h"
#include "frugal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct place_run {
    const place_partition *partition; /* with ranked rows (place_rank) */
    const place_deal *deal;
    uint32_t batch;          /* samples of a device in a step */
    uint64_t warm_up, steps; /* steps that are not counted; that are */
    uint64_t cache_rows;     /* of each device; 0: no cache */
    frugal_alone alone;      /* who updates rows that one device touches */
    frugal_cache_policy
        policy; /* whatever it is, the cache begins with the rows of most gain; COUNTED with counts, too */
} place_run;

typedef struct place_reads { /* means of the counted steps, of all devices together */
    double rows;             /* that they touch, each device its unique ones */
    double read;             /* of these, rows read from host memory */
    double written;          /* records, rows in place, and rows written back */
} place_reads;

/* Puts the rows of most gain into the cache of an attached device; the partition's rows are ranked (place_rank).
 * A cache that counts begins with counts, too: the hits of an epoch. Ends the program if the library fails. */
void place_preload(frugal *f, const place_partition *partition, uint32_t device, uint64_t cache_rows,
                   frugal_cache_policy policy);

/* Trains through an instance of the library, on host devices, and takes the counts of frugal_cpu_get_traffic. Ends the
 * program if the library fails; after Ctrl-C (bench_interrupted) the counts are of fewer steps. */
place_reads place_count_reads(const place_run *run);

#ifdef __cplusplus
}
#endif
#endif
