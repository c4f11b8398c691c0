/* Deals samples that are read block by block to devices: drives frugal_place.h over a source that need not fit in
 * memory. build/place and the trainers share it.
 *
 *     partition_source source = {&folder, folder_rewind, folder_read};
 *     partition_desc desc = {.rows = rows, .devices = 8, .threads = 2, .stop = &program_signalled};
 *     partition p;
 *     partition_make(&p, &desc, &source, &error)                    or partition_load, of another program's bytes
 *     p.parts[sample]                                               the device that the sample is dealt to
 *     frugal_place_rank(p.place, ...)                               the rows that a device should keep
 *     partition_free(&p);
 *
 * In memory are a block, a byte a sample, and the counts of frugal_place.h: partition_bytes. The two-level method reads
 * the source 6 times (count, stream, refine the clusters, refine the parts three times).
 *
 * The result depends on the samples, their order, the source's blocks and the descriptor, and not on the number of
 * threads. The implementation of frugal_place.h is compiled into partition.o: link it, and define no other.
 *
 * Functions return 0, or -1 with *error filled.
 */
#ifndef PARTITION_H
#define PARTITION_H

#include <stdatomic.h>

#include "trainers/common/program.h"
#include "trainers/common/progress.h"
#include "frugal_place.h"

enum {
    PARTITION_BLOCK = 65536, /* samples that a source may give at a time */
    PARTITION_MOST_PASSES = 64,
    PARTITION_MOST_THREADS = 256
};

/* Where samples come from. Both functions return 0, or -1 with *error filled. */
typedef struct partition_source {
    void *of;
    int (*rewind)(void *of, program_error *error); /* to the first sample; called before every pass, the first too */
    /* The next samples, at most PARTITION_BLOCK, the same ones in the same blocks in every pass; block->n = 0 at the
     * end. The arrays stay until the next call. */
    int (*read)(void *of, frugal_place_samples *block, program_error *error);
} partition_source;

typedef enum partition_method {
    PARTITION_TWO_LEVEL,
    PARTITION_HET_GMP, /* from random parts */
    PARTITION_BICUT,   /* not balanced */
    PARTITION_RANDOM
} partition_method;

/* "two-level", ...; ends with NULL. */
extern const char *const partition_methods[];

typedef struct partition_desc {
    uint64_t rows;     /* keys are 0 .. rows - 1 */
    uint32_t devices;  /* parts: 1 to 256 */
    uint32_t machines; /* that have them, in turn: device d is on machine d / (devices / machines); 0: 1 */
    uint32_t clusters; /* two-level: devices to 256; 0: 4 a device, 16 to 256 */
    /* two-level: a part has at most 1 + slack times the mean, rounded up; het-gmp: so much above the mean costs as much
     * as all touches of a sample. 0: .049, so that parts of 1,000 samples or more stay below 1.05. */
    double slack;
    partition_method method;
    uint32_t passes;         /* two-level: over the parts, 0: 3; het-gmp: rounds, 0: 5; at most PARTITION_MOST_PASSES */
    uint32_t threads;        /* that refine; 0: 1 */
    uint64_t seed;           /* of random parts and hashes */
    const char *fits;        /* partition_make: a file of parts, whose size the data must fit; NULL: none */
    const double *weights;   /* het-gmp: [devices][devices], the cost of a touch of a row elsewhere; NULL: 1 */
    const atomic_int *stop;  /* becomes nonzero: give up; NULL: never */
    progress_line *progress; /* told on stderr; NULL: nothing is told */
} partition_desc;

typedef struct partition {
    uint64_t samples;
    uint8_t *parts;      /* parts[samples] */
    frugal_place *place; /* the counts of these parts: for ranks, homes, the report, samples that come later */
    double seconds;      /* that it took, with reading */
    uint32_t passes;     /* passes of moves, and in each of them the samples that moved */
    uint64_t moved[PARTITION_MOST_PASSES + 1];
    double refining_seconds; /* two-level: the wall time of proposing and moving, without reading */
    double path_seconds;     /* ... the processor time of its longest path: of each block the slowest piece, and moving;
                                about the wall time if each thread has a processor to itself */
} partition;

/* Bytes of counts; parts take a byte a sample, too. 0: the descriptor is out of its limits. */
uint64_t partition_bytes(const partition_desc *desc);

/* Makes a partition. Refuses a descriptor out of its limits, a key that is no row, fewer samples than devices, and a
 * source that gives other samples than in the pass before. On failure *out is empty. */
int partition_make(partition *out, const partition_desc *desc, const partition_source *source, program_error *error);
/* Could the file be a partition for so many devices? Reads its first bytes, so that a wrong one is refused before the
 * data is read. */
int partition_look(const char *path, uint32_t devices, program_error *error);
/* Takes the partition that the file has: a byte a sample, each below `devices`; no more of it is read than the data has
 * samples. Method, clusters, passes, threads and seed do not matter. On failure *out is empty. */
int partition_load(partition *out, const partition_desc *desc, const partition_source *source, const char *path,
                   program_error *error);
/* An empty one, of zeros, is accepted. */
void partition_free(partition *p);

#endif
