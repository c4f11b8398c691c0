/* bench_held.h - times of the GPU's work alone.
 *
 * An event before and one behind some calls say when the stream came by. If the stream is idle while the host makes the
 * calls, what lies between is the host's time as well: microseconds of launching for each kernel. So the stream is
 * held: a kernel in front of the first event waits for a word in mapped memory, which the host raises when all has been
 * enqueued. That order needs no guess at how long enqueueing takes. The kernel gives up after --hold milliseconds, for
 * a call that waits for the GPU would wait for ever; such a sample is dropped, and counted.
 *
 * What was read shortly before may lie in the GPU's L2 cache. Before each sample twice as much is read as L2 holds. It
 * is read, and not written, so that nothing is left for L2 to write back during the sample.
 */
#ifndef FRUGAL_BENCH_CUDA_HELD_H
#define FRUGAL_BENCH_CUDA_HELD_H

#include "bench_options.h"

typedef struct held_words { /* in mapped memory */
    uint64_t released;      /* the host's: turns that may go on */
    uint64_t gave_up;       /* the kernel's: the last turn that did not wait for that */
} held_words;

typedef struct held {
    ladder_machine *m;
    held_words *words;
    uint64_t turn, flush_n; /* flush_n: of float4 */
    float4 *flush;
    float *sink;
    uint32_t dropped; /* samples, since it was last asked */
} held;

static __device__ inline uint64_t held_nanoseconds(void) {
#ifdef FRUGAL_CUDA_ON_HOST
    return (uint64_t)(bench_now() * 1e9);
#else
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#endif
}

typedef cuda::atomic_ref<uint64_t, cuda::thread_scope_system> held_word_ref;

static __global__ void held_kernel(held_words *words, uint64_t turn, uint64_t limit) {
    if (threadIdx.x != 0) return;
    uint64_t since = held_nanoseconds();
    while (held_word_ref(words->released).load(cuda::memory_order_acquire) < turn) {
        if (held_nanoseconds() - since > limit) {
            held_word_ref(words->gave_up).store(turn, cuda::memory_order_release);
            return;
        }
        __nanosleep(200);
    }
}

static __global__ void held_read_kernel(float *sink, const float4 *from, uint64_t n) {
    uint64_t all = (uint64_t)gridDim.x * blockDim.x;
    float sum = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += all)
        sum += from[i].x + from[i].y + from[i].z + from[i].w;
    if (sum != 0) *sink = sum; /* never: they are zeros; or nothing would be read */
}

static __global__ void held_empty_kernel(void) {}

static held held_open(ladder_machine *m) {
    held h = {};
    int l2_bytes = 0;
    h.m = m, h.words = ladder_pinned<held_words>(1);
    LADDER_CHECK(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0));
    h.flush_n = 2 * (uint64_t)l2_bytes / sizeof(float4);
    h.flush = ladder_device<float4>(h.flush_n), h.sink = ladder_device<float>(1);
    /* Loads the kernels, which may wait for the GPU: not while a stream is held. */
    FRUGAL_LAUNCH(held_kernel, 1, 32, m->stream, h.words, UINT64_C(0), UINT64_C(0));
    FRUGAL_LAUNCH(held_empty_kernel, 1, 32, m->stream);
    LADDER_CHECK(cudaGetLastError());
    LADDER_CHECK(cudaStreamSynchronize(m->stream));
    return h;
}

static void held_close(held *h) {
    LADDER_CHECK(cudaFreeHost(h->words));
    ladder_free(h->flush), ladder_free(h->sink);
}

static void held_empty_l2(held *h) {
    FRUGAL_LAUNCH(held_read_kernel, ladder_grid<held_read_kernel>(h->m, h->flush_n, 1), LADDER_BLOCK, h->m->stream,
                  h->sink, h->flush, h->flush_n);
    LADDER_CHECK(cudaGetLastError());
}

/* Seconds of what `enqueue` puts into the machine's stream, which is idle; below 0: dropped, because that took longer
 * than `limit` nanoseconds. 0: not held. */
template <typename F> static double held_within(held *h, uint64_t limit, int cold, F enqueue) {
    ladder_machine *m = h->m;
    uint64_t turn = ++h->turn;
    if (cold) held_empty_l2(h);
    if (limit) {
        FRUGAL_LAUNCH(held_kernel, 1, 32, m->stream, h->words, turn, limit);
        LADDER_CHECK(cudaGetLastError());
    }
    LADDER_CHECK(cudaEventRecord(m->begin, m->stream));
    enqueue();
    LADDER_CHECK(cudaEventRecord(m->end, m->stream));
    __atomic_store_n(&h->words->released, turn, __ATOMIC_RELEASE);
    LADDER_CHECK(cudaEventSynchronize(m->end));
    if (__atomic_load_n(&h->words->gave_up, __ATOMIC_ACQUIRE) == turn) {
        h->dropped++;
        return -1;
    }
    float ms;
    LADDER_CHECK(cudaEventElapsedTime(&ms, m->begin, m->end));
    return ms * 1e-3;
}

template <typename F> static double held_seconds(held *h, int cold, F enqueue) {
    return held_within(h, count_of(&hold) * 1000000, cold, enqueue);
}

/* Samples that were dropped since the last call. */
static uint32_t held_dropped(held *h) {
    uint32_t dropped = h->dropped;
    h->dropped = 0;
    return dropped;
}

/* >>what it is worth */

static void held_sleep(double how_long) {
    struct timespec pause = {0, (long)(how_long * 1e9)};
    nanosleep(&pause, NULL);
}

/* What two events say of a kernel that does nothing, which the host enqueues slowly: as much is in every time. */
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

/* Is a sample dropped whose enqueueing takes longer than the stream is held? Again with longer pauses: a GPU that is
 * slow to begin finds the word raised. */
static int held_gives_up(held *h) {
    for (double pause = 20e-3; pause < 0.9; pause *= 3) {
        double one = held_within(h, 1000000, 0, [=] { held_sleep(pause); });
        if (held_dropped(h) == 1 && one < 0) return 1;
    }
    return 0;
}

#endif
