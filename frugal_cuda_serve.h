/* frugal_cuda_serve.h - tables that are only read, cached on GPUs that may read each other's memory. A program that
 * serves on GPUs includes it beside frugal_serve.h, and compiles frugal_cuda_serve.cu in the same way as
 * frugal_cuda.cu. Trainers need neither. It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 *      frugal_cuda_serve_desc desc = {.server = s, .ordinals = gpus, .gpus = 4,
 *                                     .placement = {.rows = hottest_first, .n_rows = n, .plan = &plan}};
 *      frugal_cuda_server *c;
 *      frugal_cuda_serve_open(&desc, &c);
 *      frugal_cuda_serve_lookup(c, 0, stream, &keys, 1, rows, dim, NULL);  keys and rows in the memory of GPU 0
 *
 * SOURCES. Each GPU has a word for each row, which says where it reads the row: in its own memory, in that of another
 * GPU, or in host memory. A plan (frugal_place.h) says which GPUs keep which rows. Without a plan, each GPU keeps the
 * hottest rows, as many as it has room for. Rows that no GPU keeps are read in place, in the host memory that versions
 * of one base share. A kernel copies each row once, from its source; no GPU waits for the host.
 *
 * VERSIONS. frugal_cuda_serve_refresh takes over the version that the server's lookups use (frugal_serve.h). Rows that
 * an increment has changed are read from host memory until frugal_cuda_serve_place caches rows anew. All rows of a
 * lookup are of one version.
 *
 * WEIGHTS OF 16 BITS are cached and read with 16 bits; lookups return floats.
 *
 * MEMORY of a GPU, in bytes, with R rows and dim D rounded up to 4: 4 R, and 4 D (weights of 16 bits: 2 D) per cached
 * row, and for one row more; 4 R more if touches are counted. Of the host: 4 per row of a placement; 4 D, or 2 D,
 * pinned, per row in which the version differs from the base, and R / 8 if it differs in any; 4 R while the words are
 * made; 4 R if touches are counted, 4 R more during frugal_cuda_serve_adapt. While a version is taken over, the old one
 * exists, too.
 *
 * THREADING. Lookups: any threads, on any streams of the GPU. A lookup returns when its work is enqueued; its stream
 * may then be destroyed. The other calls: any thread, one at a time (others wait), while lookups go on. They work on
 * streams of their own. refresh, place, close, and an adapt that places rows free memory of the GPUs. For this CUDA
 * waits for ALL work on these GPUs, also for work that is enqueued meanwhile. So no work that is enqueued there may
 * wait for the thread that makes the call. Captures of other threads are not disturbed; but while one of them captures
 * a blocking stream, lookups on the NULL stream return ORDER. NULL is the legacy default stream, also in a program
 * compiled with --default-stream per-thread.
 */
#ifndef FRUGAL_CUDA_SERVE_H
#define FRUGAL_CUDA_SERVE_H

#include "frugal_place.h"
#include "frugal_serve.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frugal_cuda_server frugal_cuda_server;

typedef struct frugal_cuda_placement { /* which GPU keeps which rows */
    const uint32_t *rows; /* rows[n_rows], hottest first: numbers of rows in all tables, one table behind the other */
    uint64_t n_rows;
    uint64_t cache_rows;           /* that each GPU has room for; used without a plan */
    const frugal_place_plan *plan; /* for positions in `rows`; NULL: each GPU keeps the first cache_rows of them */
} frugal_cuda_placement;

typedef struct frugal_cuda_serve_desc {
    frugal_server *server; /* the caller's; it stays open until frugal_cuda_serve_close has returned */
    const int *ordinals;   /* ordinals[gpus]; one may occur several times */
    uint32_t gpus;         /* 1 to 64 */
    frugal_cuda_placement placement;
    int count; /* touches of rows are counted, for frugal_cuda_serve_adapt */
} frugal_cuda_serve_desc;

/* Pins the table, fills the caches. *out is NULL on failure. Errors: ARGUMENT, DEVICE (no such GPU; or, by the plan,
 * one reads from another that it cannot reach, or that gives wrong values), CUDA, MEMORY (of GPU or host), KEY (a row
 * that does not exist), LIMIT (sources that do not fit a word), FILE (the server has a table's file). */
FRUGAL_API frugal_status frugal_cuda_serve_open(const frugal_cuda_serve_desc *desc, frugal_cuda_server **out);
/* Waits for all lookups, and frees everything. NULL is accepted. */
FRUGAL_API void frugal_cuda_serve_close(frugal_cuda_server *c);

/* Enqueues on `stream`, a cudaStream_t of GPU number `gpu` (of `ordinals`), copies of the rows of segments[n_segments],
 * one segment after the other, to rows[n][stride]; stride 0: dim. Keys and rows are in memory that the GPU reaches. A
 * key that is out of range gives a row of zeros, and a later lookup on this GPU returns KEY. *step (may be NULL): the
 * step of the version. Errors: ARGUMENT, DEVICE, TABLE, LIMIT (2^32 keys), ORDER (the stream is being captured, or see
 * THREADING), KEY (of an earlier lookup, once), CUDA. */
FRUGAL_API frugal_status frugal_cuda_serve_lookup(frugal_cuda_server *c, uint32_t gpu, void *stream,
                                                  const frugal_keys *segments, uint32_t n_segments, float *rows,
                                                  uint64_t stride, uint64_t *step);
/* The same, pooled as by frugal_serve_bags, to the same bits: pooled[n_bags][dim], bags->stride floats apart. The bags'
 * offsets and weights are in memory that the GPU reaches; wrong offsets are cut, and a later lookup on this GPU returns
 * ARGUMENT. At most 64 segments (LIMIT). */
FRUGAL_API frugal_status frugal_cuda_serve_bags(frugal_cuda_server *c, uint32_t gpu, void *stream,
                                                const frugal_keys *segments, uint32_t n_segments,
                                                const frugal_bags *bags, float *pooled, uint64_t *step);

/* Takes over the server's version; nothing happens if it is served already. Errors: as open; the version served before
 * stays. */
FRUGAL_API frugal_status frugal_cuda_serve_refresh(frugal_cuda_server *c);
/* Caches other rows. Needs room for both placements at the same time. Errors: as open; the rows cached before stay. */
FRUGAL_API frugal_status frugal_cuda_serve_place(frugal_cuda_server *c, const frugal_cuda_placement *placement);

typedef struct frugal_cuda_drift {
    /* Predicted for all that was counted: with the rows cached now; with the planned rows. Only their ratio has a
     * meaning. */
    double seconds, planned_seconds;
    double touches; /* that were counted; each later call halves their weight */
    int placed;     /* 1: rows were placed as planned */
} frugal_cuda_drift;
/* Are the right rows still cached? Plans with the touches that were counted (every 16th key), and, if lookups of the
 * server's version are predicted to take more than 1 + `worse` times as long as planned, takes it over and caches the
 * planned rows. *out (may be NULL): what was found. Call it now and then; each call takes time in proportion to the
 * table, but lookups go on. Errors: as open; ARGUMENT (nothing is counted; a machine with another number of devices, or
 * with bad numbers). Source: UGache (Song et al., SOSP '23, section 7.2). */
FRUGAL_API frugal_status frugal_cuda_serve_adapt(frugal_cuda_server *c, const frugal_place_machine *machine,
                                                 frugal_place_policy policy, double worse, frugal_cuda_drift *out);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_CUDA_SERVE_H */
