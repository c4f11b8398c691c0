/* host_gather.h - what a trainer does without UVA: the processor gathers rows into pinned memory, which is then copied
 * to the GPU.
 *
 * It is as fast as we can make it: rows are prefetched as in cpu.c, several threads share the batch, and each chunk
 * is copied while the next one is being gathered.
 */
#ifndef FRUGAL_BENCH_HOST_GATHER_H
#define FRUGAL_BENCH_HOST_GATHER_H

#include "bench/cuda/ladder.h"

#include "bench/processors.h"

#include <atomic>
#include <sched.h>
#include <thread>

typedef struct host_gather {
    uint32_t threads; /* the caller's is one of them */
    /* Of the current turn. The caller writes these before it raises `turn` (release). */
    const float *table;
    uint64_t stride, n;
    uint32_t dim;
    const uint64_t *keys;
    float *pinned, *device; /* [n][dim] each */
    std::atomic<uint64_t> turn;
    std::atomic<uint32_t> left; /* threads that are not done; lowered with release */
    std::atomic<int> ends;
    std::vector<cudaStream_t> streams;
    std::vector<std::thread> others;
} host_gather;

static inline void host_gather_part(host_gather *g, uint32_t number) {
    enum { AHEAD = 24, CHUNK_BYTES = 1 << 18 }; /* CHUNK_BYTES: copying these takes longer than starting a copy */
    uint64_t begin = g->n * number / g->threads, end = g->n * (number + 1) / g->threads, row = g->dim * sizeof(float);
    uint64_t chunk = CHUNK_BYTES / row > 0 ? CHUNK_BYTES / row : 1;
    for (uint64_t from = begin; from < end; from += chunk) {
        uint64_t to = end - from > chunk ? from + chunk : end;
        for (uint64_t i = from; i < to; i++) {
            if (i + AHEAD < end)
                for (uint64_t byte = 0; byte < row && byte < 2048; byte += 64)
                    __builtin_prefetch((const char *)(g->table + g->keys[i + AHEAD] * g->stride) + byte, 0, 2);
            memcpy(g->pinned + i * g->dim, g->table + g->keys[i] * g->stride, row);
        }
        LADDER_CHECK(cudaMemcpyAsync(g->device + from * g->dim, g->pinned + from * g->dim, (to - from) * row,
                                     cudaMemcpyHostToDevice, g->streams[number]));
    }
    LADDER_CHECK(cudaStreamSynchronize(g->streams[number]));
    g->left.fetch_sub(1, std::memory_order_release);
}

static inline void host_gather_work(host_gather *g, uint32_t number) {
    bench_bind(number);
    for (uint64_t seen = 0;; seen++) {
        while (g->turn.load(std::memory_order_acquire) == seen)
            sched_yield(); /* stays awake, because each thread has a processor during measurements */
        if (g->ends.load(std::memory_order_relaxed)) return;
        host_gather_part(g, number);
    }
}

static inline host_gather *host_gather_open(const float *table, uint64_t stride, uint32_t dim, uint64_t most,
                                            uint32_t threads) {
    host_gather *g = new host_gather();
    g->threads = threads, g->table = table, g->stride = stride, g->dim = dim;
    g->pinned = ladder_pinned<float>(most * dim), g->device = ladder_device<float>(most * dim);
    g->streams.resize(threads);
    for (cudaStream_t &stream : g->streams) LADDER_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (uint32_t i = 1; i < threads; i++) g->others.emplace_back(host_gather_work, g, i);
    return g;
}

/* Seconds until table rows keys[n] lie in the GPU's memory. */
static inline double host_gather_seconds(host_gather *g, const uint64_t *keys, uint64_t n) {
    double since = bench_now();
    g->keys = keys, g->n = n;
    g->left.store(g->threads, std::memory_order_relaxed);
    g->turn.fetch_add(1, std::memory_order_release);
    host_gather_part(g, 0);
    while (g->left.load(std::memory_order_acquire) > 0) sched_yield();
    return bench_now() - since;
}

static inline void host_gather_close(host_gather *g) {
    g->ends.store(1, std::memory_order_relaxed);
    g->turn.fetch_add(1, std::memory_order_release);
    for (std::thread &other : g->others) other.join();
    for (cudaStream_t stream : g->streams) LADDER_CHECK(cudaStreamDestroy(stream));
    LADDER_CHECK(cudaFreeHost(g->pinned));
    ladder_free(g->device);
    delete g;
}

#endif
