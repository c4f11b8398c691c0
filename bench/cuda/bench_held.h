/* bench_held.h - times of the GPU's work alone: on a stream that is held until all is enqueued (ladder.h), and with an
 * L2 cache that holds none of the data.
 *
 * What was read shortly before may lie in L2. So before each sample twice the size of L2 is read. It is not written, so
 * that L2 has nothing to write back during the sample.
 */
#ifndef FRUGAL_BENCH_CUDA_HELD_H
#define FRUGAL_BENCH_CUDA_HELD_H

#include "bench/cuda/bench_options.h"

typedef struct held {
    ladder_machine *m;
    float4 *flush;
    uint64_t flush_n; /* of float4 */
    float *sink;
} held;

static __global__ void held_read_kernel(float *sink, const float4 *from, uint64_t n) {
    uint64_t all = (uint64_t)gridDim.x * blockDim.x;
    float sum = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += all)
        sum += from[i].x + from[i].y + from[i].z + from[i].w;
    if (sum != 0) *sink = sum; /* never true, because all are zeros; without it the compiler would drop the reads */
}

static __global__ void held_empty_kernel(void) {}

static held held_open(ladder_machine *m) {
    held h = {};
    int l2_bytes = 0;
    LADDER_CHECK(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0));
    h.m = m, h.flush_n = 2 * (uint64_t)l2_bytes / sizeof(float4);
    h.flush = ladder_device<float4>(h.flush_n), h.sink = ladder_device<float>(1);
    FRUGAL_LAUNCH(held_empty_kernel, 1, 32, m->stream); /* loads it */
    LADDER_CHECK(cudaGetLastError());
    LADDER_CHECK(cudaStreamSynchronize(m->stream));
    return h;
}

static void held_close(held *h) {
    ladder_free(h->flush), ladder_free(h->sink);
}

static void held_empty_l2(held *h) {
    FRUGAL_LAUNCH(held_read_kernel, ladder_grid<held_read_kernel>(h->m, h->flush_n, 1), LADDER_BLOCK, h->m->stream,
                  h->sink, h->flush, h->flush_n);
    LADDER_CHECK(cudaGetLastError());
}

template <typename F> static double held_seconds(held *h, int cold, F enqueue) {
    if (cold) held_empty_l2(h);
    return ladder_seconds(h->m, enqueue);
}

/* >>how well it measures */

static void held_sleep(double how_long) {
    struct timespec pause = {0, (long)(how_long * 1e9)};
    nanosleep(&pause, NULL);
}

/* The time between two events around a kernel that does nothing and that the host enqueues slowly. Every measured time
 * contains this much. */
static double held_empty_seconds(held *h) {
    bench_samples s = {};
    for (uint32_t i = 0; i < 20; i++) {
        double one = held_seconds(h, 0, [&] {
            held_sleep(100e-6);
            FRUGAL_LAUNCH(held_empty_kernel, 1, 32, h->m->stream);
        });
        if (one >= 0) bench_add(&s, one);
    }
    return bench_median(&s);
}

/* Checks that a sample is dropped if enqueueing takes longer than the stream is held. Tries again with longer pauses,
 * because a GPU that is slow to begin finds the word raised. */
static int held_gives_up(held *h) {
    for (double pause = 20e-3; pause < 0.9; pause *= 3) {
        double one = ladder_held_seconds(h->m, 1000000, [=] { held_sleep(pause); });
        if (ladder_dropped(h->m) == 1 && one < 0) return 1;
    }
    return 0;
}

#endif
