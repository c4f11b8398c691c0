/* mix.h - the operations that P2F needs of its queue, drawn once for all queues, and the check of their results.
 *
 * A step reads `batch` distinct ids and updates them. Its reads are announced `lookahead` steps ahead; an update that
 * is queued then moves to that step, unless it is due earlier. When the step closes, each of its ids is queued at its
 * next announced read, or `staging` steps later if there is none. At the gate of a step nothing is left that is due. So
 * a row that is read is not queued, and no id is ever queued twice.
 */
#ifndef FRUGAL_BENCH_QUEUES_MIX_H
#define FRUGAL_BENCH_QUEUES_MIX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MIX_THREADS = 64 };

typedef struct bench_mix_shape {
    uint64_t ids, steps;
    uint32_t batch, lookahead, staging, threads; /* lookahead + staging < 64 */
    double zipf;
    uint64_t seed;
} bench_mix_shape;

/* When announcing and closing, each thread handles its own ids (id mod threads), as each trainer has its own batch. The
 * part of thread t in step s is [start[s * (threads + 1) + t], start[s * (threads + 1) + t + 1]). */
typedef struct bench_mix {
    bench_mix_shape shape;
    uint32_t *announced;       /* of step s: if these are queued, their priority becomes s + lookahead */
    uint64_t *announced_start; /* [steps][threads + 1] */
    uint32_t *closed;          /* [steps][batch] */
    uint64_t *due;             /* [steps][batch] */
    uint64_t *closed_start;    /* [steps][threads + 1] */
} bench_mix;

bench_mix *bench_mix_draw(const bench_mix_shape *shape); /* NULL: no memory */
void bench_mix_free(bench_mix *mix);

/* What one thread took, in its order. */
typedef struct bench_log {
    uint32_t *ids;
    uint64_t n, room;
    uint64_t *gate_end, *step_end; /* [steps]: n after the gate of a step, and after all of it */
    uint8_t pad[88];               /* `n` changes at every take, so it shares no cache line with another thread's */
} bench_log;

/* Where the updates must be, from step to step. */
typedef struct bench_check {
    const bench_mix *mix;
    uint64_t *due;       /* [ids]: 0: not queued; otherwise due step + 1 */
    uint64_t queued[64]; /* number of updates due at a step, by step mod 64 */
    uint64_t moved;      /* number that announcing found queued, at least */
    char message[200];   /* what was wrong; empty: nothing */
} bench_check;

int bench_check_open(bench_check *c, const bench_mix *mix); /* 0: no memory */
/* 1 if the threads took what was queued, each update once and by the gate of its due step, and a thread that ran alone
 * always from the lowest priority. logs[threads] are of these steps, which follow those checked before. */
int bench_check_steps(bench_check *c, const bench_log *logs, uint64_t from, uint64_t to);
int bench_check_rest(bench_check *c, const uint32_t *ids, uint64_t n); /* checks a queue that was emptied at the end */
void bench_check_close(bench_check *c);

#ifdef __cplusplus
}
#endif
#endif
