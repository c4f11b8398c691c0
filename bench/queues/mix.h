/* mix.h - the operations that P2F asks of its queue, drawn once for all queues, and what must come of them.
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

/* Each thread has ids of its own, id mod threads, in announcing and closing, as each trainer has its own batch. The
 * part of thread t in step s is [start[s * (threads + 1) + t], start[s * (threads + 1) + t + 1]). */
typedef struct bench_mix {
    bench_mix_shape shape;
    uint32_t *announced;       /* of step s, those whose priority it changes where they are queued: to s + lookahead */
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
    uint8_t pad[88];               /* `n` changes at every take: not in the cache line of another thread's */
} bench_log;

/* Where the updates must be, from step to step. */
typedef struct bench_check {
    const bench_mix *mix;
    uint64_t *due;       /* [ids]: 0: not queued; otherwise due step + 1 */
    uint64_t queued[64]; /* that are due at a step mod 64 */
    uint64_t moved;      /* at least so many found by announcing */
    char message[200];   /* what was wrong; empty: nothing */
} bench_check;

int bench_check_open(bench_check *c, const bench_mix *mix); /* 0: no memory */
/* 1 if the threads took what was queued, each update once and by the gate of its due step, and one thread alone always
 * of the lowest. logs[threads] are of these steps, which follow those checked before. */
int bench_check_steps(bench_check *c, const bench_log *logs, uint64_t from, uint64_t to);
int bench_check_rest(bench_check *c, const uint32_t *ids, uint64_t n); /* of a queue that was emptied at last */
void bench_check_close(bench_check *c);

#ifdef __cplusplus
}
#endif
#endif
