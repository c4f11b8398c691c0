/* trace.h - samples whose keys are placed: of graphs, of a click log, and planted ones; and the batches that devices
 * get of them.
 *
 * A trace is samples of equally many keys, over rows that are numbered through all tables. It is whole in memory. What
 * can be missing (a folder of data) is an error with a reason; what a benchmark cannot go on without ends the program.
 */
#ifndef FRUGAL_BENCH_PLACE_TRACE_H
#define FRUGAL_BENCH_PLACE_TRACE_H

#include "trainers/clicks/clicks.h"
#include "frugal_place.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct place_trace {
    uint64_t *keys; /* keys[n][width] */
    uint64_t rows, n;
    uint32_t width;
} place_trace;

/* Each sample belongs to one of `communities`, drawn evenly, and row r to community r mod communities. With chance
 * `own` a key is one of its sample's community, else any; the popularity of both is Zipf's. Row numbers are then
 * permuted, so that neither communities nor hot rows lie together. */
typedef struct place_planted {
    uint64_t rows, samples, communities, seed;
    uint32_t width;
    double own, zipf;
} place_planted;

/* All return 0, or -1 with *error filled, and then there is nothing to free. */
/* The training triples of a folder of kge (trainers/kge/data.h): head, tail, relation. */
int place_read_graph(place_trace *trace, const char *folder, program_error *error);
/* A click log whose lines a schema describes (trainers/clicks/schema.h), ids numbered as they are met. */
int place_read_log(place_trace *trace, const char *file, const char *schema, program_error *error);
/* A log with as many ids a feature as a published one; ids are numbered as they are met. */
int place_generate(place_trace *trace, const clicks_generator *generator, program_error *error);
int place_plant(place_trace *trace, const place_planted *planted, program_error *error);
void place_free_trace(place_trace *trace);

/* The rows that are touched most, so many that they have this share of the touches. 0, or -1 with *error filled: no
 * memory. */
int place_rows_of_share(const place_trace *trace, double share, uint64_t *rows, program_error *error);

/* All samples of a trace; `n` of them from `first` on. */
frugal_place_samples place_samples(const place_trace *trace, uint64_t first, uint64_t n);

/* Who gets which samples when. A device takes those of its part in a new random order each time that it is through. */
typedef struct place_deal {
    const place_trace *trace;
    uint32_t devices;
    uint64_t seed, size[FRUGAL_PLACE_MAX_PARTS], first[FRUGAL_PLACE_MAX_PARTS];
    uint32_t *samples; /* samples[n], by part: those of part d from first[d] on */
} place_deal;

/* parts[n] are below `devices`, and each device has a sample. 0, or -1 with *error filled. */
int place_open_deal(place_deal *deal, const place_trace *trace, const uint8_t *parts, uint32_t devices, uint64_t seed,
                    program_error *error);
void place_close_deal(place_deal *deal);
/* keys[batch][width]: the batch of a device in a step. */
void place_batch(const place_deal *deal, uint32_t device, uint64_t step, uint32_t batch, uint64_t *keys);

#ifdef __cplusplus
}
#endif
#endif
