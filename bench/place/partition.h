/* partition.h - the samples of a trace in parts, one for each device: by frugal_place.h, and by METIS. */
#ifndef FRUGAL_BENCH_PLACE_PARTITION_H
#define FRUGAL_BENCH_PLACE_PARTITION_H

#include "bench/place/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parts at random, as even as can be; BiCut; HET-GMP's Algorithm 1, one, three and five rounds from there, and five
 * where a touch costs ten times as much if sample and row are in different halves of the devices (two machines); the
 * two levels of frugal_place.h; METIS, the program gpmetis. */
typedef enum place_method {
    PLACE_RANDOM,
    PLACE_BICUT,
    PLACE_HET_GMP_1,
    PLACE_HET_GMP_3,
    PLACE_HET_GMP,
    PLACE_HET_GMP_HALVES,
    PLACE_TWO_LEVEL,
    PLACE_METIS,
    PLACE_METHODS
} place_method;
extern const char *const place_methods[PLACE_METHODS + 1]; /* their names, up to a NULL */

typedef struct place_partition {
    const place_trace *trace;
    uint32_t devices;
    uint8_t *parts;      /* parts[n] of the trace's samples */
    frugal_place *place; /* in which these parts are counted */
    uint64_t *ranked;    /* ranked[devices][rows]: of each device by gain, the best first (place_rank); NULL: not yet */
    double *gains;       /* theirs */
    uint64_t n_ranked[FRUGAL_PLACE_MAX_PARTS], ranked_batch; /* rows of any gain; with this batch */
    double seconds;     /* wall time of dividing; with METIS that of the program, reading its file included */
    double cpu_seconds; /* processor time of all threads, of METIS too */
    double refining_seconds, path_seconds; /* of the two levels: as trainers/common/partition.h has them */
} place_partition;

typedef struct place_division {
    place_method method;
    uint32_t devices;
    uint32_t machines; /* that have them, in turn (frugal_place_desc); two levels heed it, the others do not. 0: 1 */
    uint32_t threads;  /* 0: 1; at most 64; the parts do not depend on them */
} place_division;

/* Divides the trace into parts, one for each device. Proposing uses the threads.
 * What does not depend on the method (memory, counting parts for the report) is not in the time. 0, or -1 with *error
 * filled: memory, or METIS; then there is nothing to free. */
int place_divide(place_partition *partition, const place_trace *trace, const place_division *division,
                 program_error *error);
/* Parts that another program has made: a file with a byte a sample. Errors: as place_divide; the file is not there, has
 * another length, or a part that is not below `devices`. */
int place_read_parts(place_partition *partition, const place_trace *trace, const char *path, uint32_t devices,
                     program_error *error);
void place_free_partition(place_partition *partition);

/* pairs[i * devices + j]: touches by the samples of part i of rows whose home is part j. */
void place_count_pairs(const place_partition *partition, uint64_t *pairs);

/* Ranks the rows of all devices, if it has not been done with this batch: once, because it takes long. 0, or -1 with
 * *error filled: no memory. */
int place_rank(place_partition *partition, uint64_t batch, program_error *error);

/* Link rows of a step that all devices read, by the closed form of frugal_place.h, if each keeps the `cache_rows` rows
 * of most gain. The rows are ranked, with the batch of that step. */
double place_predict(const place_partition *partition, uint64_t cache_rows);

/* METIS's parts: parts[n] of the bigraph of samples (of weight 1) and rows (of weight 0), parts at most 5% above the
 * mean. `seconds`: of the program alone. Writes its files to TMPDIR, and removes them. */
int place_metis(const place_trace *trace, uint32_t devices, uint8_t *parts, double *seconds, program_error *error);

#ifdef __cplusplus
}
#endif
#endif
