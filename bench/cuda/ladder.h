/* ladder.h - what the ladders share: batches as an announcement makes them, a cache, memory, timing, the machine's
 * speeds.
 *
 * A ladder is one operation as several kernels, from the simplest one to the one in use. Each kernel changes one thing
 * and says why that should be faster. The results of all are compared with those of the same few lines of C, bit for
 * bit, and all are timed.
 *
 * The kernels use little enough of CUDA to run on the host, too: -DFRUGAL_CUDA_ON_HOST='"tests/cuda/cuda_on_host.h"'.
 */
#ifndef FRUGAL_BENCH_LADDER_H
#define FRUGAL_BENCH_LADDER_H

#ifdef FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUDA_ON_HOST
#define LADDER_UNROLLED
#define LADDER_UNROLLED_BY_4
#define LADDER_LARGE (UINT64_C(1) << 18)
#else
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <cuda/atomic>
#ifndef FRUGAL_LAUNCH /* or src/cuda/toolkit.cuh's */
#define FRUGAL_LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif
#define LADDER_UNROLLED      _Pragma("unroll")
#define LADDER_UNROLLED_BY_4 _Pragma("unroll 4")
#define LADDER_LARGE         (UINT64_C(256) << 20) /* bytes: measures bandwidth */
#endif

#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/program.h"
#include "src/arithmetic.h"
#include "frugal.h"

#include <algorithm>
#include <stdio.h>
#include <vector>

#define LADDER_LANES  8u  /* lanes that share a row: 8 times 16 bytes are the 128 bytes of a request over the link */
#define LADDER_PASS   32u /* floats that these lanes move at once */
#define LADDER_PASSES 4u  /* ... and have under way: whole rows to 128 floats */
#define LADDER_WAYS   8u  /* ways in a set of the cache: a lane each */
#define LADDER_BLOCK  256u
#define LADDER_SUM    32u /* positions in a block of a sum: part of the promise of equal bits */
#define LADDER_FULL   0xffffffffu
#define LADDER_NO_ROW 0xffffffffu

/* >>batches */

typedef struct ladder_part { /* up to 32 positions of a row with more than 32 */
    uint32_t record;         /* of the row */
    uint32_t part, parts;    /* the number of this part; the number of parts */
    uint32_t first;          /* index of the row's first part in the list */
} ladder_part;

typedef struct ladder_batch { /* the GPU's copy of what frugal_records has on the host */
    uint32_t n, n_unique, n_parts;
    const uint32_t *rows;      /* rows[n_unique], rising */
    const uint32_t *start;     /* start[n_unique + 1] */
    const uint32_t *order;     /* order[n]: positions of record u at order[start[u]] .. order[start[u + 1] - 1] */
    const uint32_t *record_of; /* record_of[n] */
    const uint64_t *valid;     /* a bit per record: a cached copy is current */
    const ladder_part *parts;  /* parts[n_parts]: rows with more than 32 positions, cut up when announced */
} ladder_batch;

/* A row can be in one set of 8 ways. A way's word is {row, step of the last touch}, all ones where it is free: the
 * group of lanes that changes it to {row, this step} owns the copy until the kernel ends, because no group takes a way
 * that was touched in this step. So one compare-and-swap does what a lock, a clock and a tag would do. */
typedef struct ladder_cache {
    uint64_t sets;             /* 0: no cache */
    unsigned long long *words; /* [sets][8] */
    float *copies;             /* [sets][8][stride] */
    uint32_t stride, inserts;  /* inserts: 0: the cache keeps its rows, and only refreshes copies */
} ladder_cache;

static inline __host__ __device__ uint64_t ladder_set_of(const ladder_cache *c, uint32_t row) {
    return ((row * UINT64_C(0x9E3779B97F4A7C15)) >> 32) * c->sets >> 32; /* multiplicative hashing, no division */
}

static inline __host__ __device__ unsigned long long ladder_word(uint32_t row, uint32_t step) {
    return (unsigned long long)row << 32 | step;
}

typedef cuda::atomic_ref<unsigned long long, cuda::thread_scope_device> ladder_word_ref;

/* Eight lanes look for a row, a way each: the place of its copy, or -1. All lanes of the warp call it; those without a
 * row ask for NO_ROW. One coalesced load and one vote, where one thread would make eight loads in turn. */
static inline __device__ int64_t ladder_find(const ladder_cache *c, uint32_t row) {
    if (c->sets == 0) return -1;
    uint32_t lane = threadIdx.x % LADDER_LANES, shift = threadIdx.x % 32 / LADDER_LANES * LADDER_LANES;
    uint64_t set = ladder_set_of(c, row) * LADDER_WAYS;
    unsigned long long word = ladder_word_ref(c->words[set + lane]).load(cuda::memory_order_relaxed);
    int is_it = row != LADDER_NO_ROW && word >> 32 == row;
    uint32_t found = __ballot_sync(LADDER_FULL, is_it) >> shift & 0xff;
    return found ? (int64_t)(set + __ffs((int)found) - 1) : -1;
}

/* >>errors */

static inline void ladder_check(cudaError_t error, const char *what) {
    if (error != cudaSuccess) bench_fail("%s: %s", what, cudaGetErrorString(error));
}
#define LADDER_CHECK(call) ladder_check(call, #call)

/* >>memory: host memory is pinned and mapped, as the table and the staging blocks are, with the same address on the
 * GPU. What is set or copied here is complete on return, because our stream does not wait for the default one. */

template <typename T> static inline T *ladder_pinned(uint64_t n) {
    void *memory, *device;
    LADDER_CHECK(cudaHostAlloc(&memory, (n ? n : 1) * sizeof(T), cudaHostAllocMapped));
    LADDER_CHECK(cudaHostGetDevicePointer(&device, memory, 0));
    if (device != memory)
        bench_fail("this GPU sees host memory at other addresses than the host does; a newer GPU is needed");
    memset(memory, 0, n * sizeof(T));
    return (T *)memory;
}

template <typename T> static inline T *ladder_device(uint64_t n) {
    void *memory;
    LADDER_CHECK(cudaMalloc(&memory, (n ? n : 1) * sizeof(T)));
    LADDER_CHECK(cudaMemset(memory, 0, n * sizeof(T)));
    LADDER_CHECK(cudaDeviceSynchronize());
    return (T *)memory;
}

template <typename T> static inline void ladder_put(T *device, const T *host, uint64_t n) {
    LADDER_CHECK(cudaMemcpy(device, host, n * sizeof(T), cudaMemcpyHostToDevice));
    LADDER_CHECK(cudaDeviceSynchronize());
}

template <typename T> static inline T *ladder_copy_of(const std::vector<T> &host) {
    T *device = ladder_device<T>(host.size());
    if (!host.empty()) ladder_put(device, host.data(), host.size());
    return device;
}

template <typename T> static inline std::vector<T> ladder_get(const T *device, uint64_t n) {
    std::vector<T> host(n);
    if (n) LADDER_CHECK(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

/* >>making batches */

typedef struct ladder_lists { /* a batch on the host */
    std::vector<uint32_t> rows, start, order, record_of;
    std::vector<uint64_t> valid;
    std::vector<ladder_part> parts;
    ladder_batch on_device;
} ladder_lists;

/* Copies are all valid, or, with `stale`, each one with probability 1/2. */
static inline ladder_lists ladder_announce(const uint64_t *keys, uint32_t n, int stale, uint64_t seed) {
    ladder_lists b;
    b.order.resize(n), b.record_of.resize(n);
    for (uint32_t i = 0; i < n; i++) b.order[i] = i;
    std::stable_sort(b.order.begin(), b.order.end(), [keys](uint32_t x, uint32_t y) { return keys[x] < keys[y]; });
    for (uint32_t k = 0; k < n; k++) {
        uint32_t row = (uint32_t)keys[b.order[k]];
        if (k == 0 || row != b.rows.back()) b.rows.push_back(row), b.start.push_back(k);
        b.record_of[b.order[k]] = (uint32_t)b.rows.size() - 1;
    }
    b.start.push_back(n);
    for (uint32_t u = 0; u < b.rows.size(); u++) {
        uint32_t parts = (b.start[u + 1] - b.start[u] + LADDER_SUM - 1) / LADDER_SUM, first = (uint32_t)b.parts.size();
        for (uint32_t part = 0; parts > 1 && part < parts; part++) b.parts.push_back({u, part, parts, first});
    }
    for (uint64_t i = 0; i < (b.rows.size() + 63) / 64; i++)
        b.valid.push_back(stale ? bench_random(&seed) : ~UINT64_C(0));
    b.on_device = {n,
                   (uint32_t)b.rows.size(),
                   (uint32_t)b.parts.size(),
                   ladder_copy_of(b.rows),
                   ladder_copy_of(b.start),
                   ladder_copy_of(b.order),
                   ladder_copy_of(b.record_of),
                   ladder_copy_of(b.valid),
                   ladder_copy_of(b.parts)};
    return b;
}

static inline int ladder_is_valid(const ladder_lists *b, uint32_t record) {
    return (int)(b->valid[record / 64] >> record % 64 & 1);
}

static inline void ladder_free(const void *device) {
    LADDER_CHECK(cudaFree((void *)(uintptr_t)device));
}

static inline void ladder_forget(const ladder_lists *b) {
    const ladder_batch *d = &b->on_device;
    ladder_free(d->rows), ladder_free(d->start), ladder_free(d->order), ladder_free(d->record_of);
    ladder_free(d->valid), ladder_free(d->parts);
}

/* An empty cache of about `rows` rows. */
static inline ladder_cache ladder_make_cache(uint64_t rows, uint32_t stride, uint32_t inserts) {
    uint64_t sets = (rows + LADDER_WAYS - 1) / LADDER_WAYS, ways = sets * LADDER_WAYS;
    ladder_cache c = {sets, ladder_device<unsigned long long>(ways), ladder_device<float>(ways * stride), stride,
                      inserts};
    if (ways) LADDER_CHECK(cudaMemset(c.words, 0xff, ways * sizeof *c.words));
    LADDER_CHECK(cudaDeviceSynchronize());
    return c;
}

static inline void ladder_free_cache(const ladder_cache *c) {
    ladder_free(c->words), ladder_free(c->copies);
}

/* Real numbers from -1 to 1: float sums of these values have other bits in another order. */
static inline float ladder_value(uint64_t *seed) {
    return (float)((double)(int64_t)bench_random(seed) * 0x1p-63);
}

/* >>the GPU */

typedef struct ladder_words { /* in mapped memory */
    uint64_t released;        /* written by the host: turns that may go on */
    uint64_t gave_up;         /* written by the holding kernel: the last turn that gave up waiting */
} ladder_words;

typedef struct ladder_machine {
    char name[256];
    uint32_t processors; /* streaming multiprocessors */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    ladder_words *words;
    uint64_t turn;
    uint32_t dropped; /* samples, since it was last asked */
} ladder_machine;

/* Times of the GPU's work alone. An event before and one after some calls say when the stream reached them. If the
 * stream is idle while the host makes the calls, the time between the events includes the host's: microseconds for each
 * launch. So the stream is held: a kernel in front of the first event waits for a word in mapped memory, which the host
 * raises when all has been enqueued. So no time for enqueueing has to be guessed. The kernel gives up after --hold
 * milliseconds, because otherwise a call that waits for the GPU would wait for ever; such a sample is dropped, and
 * counted. */
static uint64_t ladder_hold = 200;
#define LADDER_HOLD_OPTION                                                                                             \
    {                                                                                                                  \
        "hold", OPTIONS_WHOLE64, &ladder_hold, 0, 10000, NULL,                                                         \
            "milliseconds for which a timed stream is held at most until all is enqueued; 0: never (profilers)"        \
    }

static __device__ inline uint64_t ladder_nanoseconds(void) {
#ifdef FRUGAL_CUDA_ON_HOST
    return (uint64_t)(bench_now() * 1e9);
#else
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#endif
}

typedef cuda::atomic_ref<uint64_t, cuda::thread_scope_system> ladder_held_ref;

static __global__ void ladder_hold_kernel(ladder_words *words, uint64_t turn, uint64_t limit) {
    if (threadIdx.x != 0) return;
    uint64_t since = ladder_nanoseconds();
    while (ladder_held_ref(words->released).load(cuda::memory_order_acquire) < turn) {
        if (ladder_nanoseconds() - since > limit) {
            ladder_held_ref(words->gave_up).store(turn, cuda::memory_order_release);
            return;
        }
        __nanosleep(200);
    }
}

/* The GPUs to run on: logical devices take turns; what has no devices runs on the first. */
static options_list ladder_gpus = {{0}, 1};
static int ladder_gpus_given;
#define LADDER_GPUS_OPTION(help)                                                                                       \
    { "gpus", OPTIONS_WHOLES, &ladder_gpus, 0, 63, NULL, help, NULL, NULL, &ladder_gpus_given }

static inline int ladder_gpu(uint32_t device) {
    return (int)ladder_gpus.values[device % ladder_gpus.n];
}

/* Puts the thread on a GPU, as long as this lives. */
struct ladder_on {
    int before;
    explicit ladder_on(int gpu) {
        LADDER_CHECK(cudaGetDevice(&before));
        LADDER_CHECK(cudaSetDevice(gpu));
    }
    ~ladder_on() {
        LADDER_CHECK(cudaSetDevice(before));
    }
    ladder_on(const ladder_on &) = delete;
    ladder_on &operator=(const ladder_on &) = delete;
};

static inline void ladder_synchronize(void) { /* all GPUs */
    for (uint32_t i = 0; i < ladder_gpus.n; i++) {
        ladder_on on(ladder_gpu(i));
        LADDER_CHECK(cudaDeviceSynchronize());
    }
}

static inline void ladder_check_gpus(uint32_t most) {
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0)
        bench_fail("no GPU to run on: %s", error != cudaSuccess ? cudaGetErrorString(error) : "none found");
    if (ladder_gpus.n > most) {
        fprintf(stderr, "--gpus has %u, must be one: this runs on one GPU\n", ladder_gpus.n);
        exit(2);
    }
    for (uint32_t i = 0; i < ladder_gpus.n; i++)
        if (ladder_gpu(i) >= n) {
            fprintf(stderr, "--gpus %d: there are %d, from 0\n", ladder_gpu(i), n);
            exit(2);
        }
}

/* `most`: GPUs that --gpus may name. */
static inline ladder_machine ladder_open(uint32_t most) {
    ladder_machine m;
    int processors;
    ladder_check_gpus(most);
    LADDER_CHECK(cudaSetDevice(ladder_gpu(0)));
    cudaDeviceProp properties;
    LADDER_CHECK(cudaGetDeviceProperties(&properties, ladder_gpu(0)));
    snprintf(m.name, sizeof m.name, "%s", properties.name);
    LADDER_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ladder_gpu(0)));
    m.processors = (uint32_t)processors;
    LADDER_CHECK(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking));
    LADDER_CHECK(cudaEventCreate(&m.begin));
    LADDER_CHECK(cudaEventCreate(&m.end));
    m.words = ladder_pinned<ladder_words>(1), m.turn = 0, m.dropped = 0;
    /* Loads the kernel now, because loading may wait for the GPU, and must not happen during a measurement. */
    FRUGAL_LAUNCH(ladder_hold_kernel, 1, 32, m.stream, m.words, UINT64_C(0), UINT64_C(0));
    LADDER_CHECK(cudaGetLastError());
    LADDER_CHECK(cudaStreamSynchronize(m.stream));
    return m;
}

static inline void ladder_close(ladder_machine *m) {
    LADDER_CHECK(cudaEventDestroy(m->begin));
    LADDER_CHECK(cudaEventDestroy(m->end));
    LADDER_CHECK(cudaStreamDestroy(m->stream));
    LADDER_CHECK(cudaFreeHost(m->words));
}

template <auto Kernel> static inline uint32_t ladder_resident(void) { /* blocks on a multiprocessor */
    int blocks;
    LADDER_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Kernel, (int)LADDER_BLOCK, 0));
    return (uint32_t)blocks;
}

/* A grid for this number of items of `lanes` threads, with at most as many blocks of the kernel as the GPU holds at a
 * time. */
template <auto Kernel> static inline uint32_t ladder_grid(const ladder_machine *m, uint64_t items, uint32_t lanes) {
    static const uint32_t resident = ladder_resident<Kernel>(); /* asked once: it must not delay a launch */
    uint64_t blocks = (items * lanes + LADDER_BLOCK - 1) / LADDER_BLOCK, most = (uint64_t)resident * m->processors;
    return (uint32_t)(blocks == 0 ? 1 : blocks > most ? most : blocks);
}

/* Seconds of what `enqueue` puts into the stream, which is held for up to `limit` nanoseconds (0: not) until all is
 * there; below 0: dropped, because that took longer. */
template <typename F> static inline double ladder_held_seconds(ladder_machine *m, uint64_t limit, F enqueue) {
    float ms;
    uint64_t turn = ++m->turn;
    if (limit) FRUGAL_LAUNCH(ladder_hold_kernel, 1, 32, m->stream, m->words, turn, limit);
    LADDER_CHECK(cudaGetLastError());
    LADDER_CHECK(cudaEventRecord(m->begin, m->stream));
    enqueue();
    LADDER_CHECK(cudaGetLastError());
    LADDER_CHECK(cudaEventRecord(m->end, m->stream));
    __atomic_store_n(&m->words->released, turn, __ATOMIC_RELEASE);
    LADDER_CHECK(cudaEventSynchronize(m->end));
    if (__atomic_load_n(&m->words->gave_up, __ATOMIC_ACQUIRE) == turn) {
        m->dropped++;
        return -1;
    }
    LADDER_CHECK(cudaEventElapsedTime(&ms, m->begin, m->end));
    return ms * 1e-3;
}

/* The same, held for the time of --hold. */
template <typename F> static inline double ladder_seconds(ladder_machine *m, F enqueue) {
    return ladder_held_seconds(m, ladder_hold * 1000000, enqueue);
}

/* Samples that were dropped since the last call. */
static inline uint32_t ladder_dropped(ladder_machine *m) {
    uint32_t dropped = m->dropped;
    m->dropped = 0;
    return dropped;
}

/* Says that all samples of a kernel were dropped. */
static inline void ladder_skip(const char *name) {
    printf("SKIPPED: %s: every time its stream went on before all was enqueued; raise --hold\n", name);
    fflush(stdout);
}

/* >>what the machine allows */

static __global__ void ladder_copy_kernel(float4 *to, const float4 *from, uint64_t n) {
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += threads) to[i] = from[i];
}

typedef struct ladder_speeds { /* bytes a second; medians */
    double to_device, to_host; /* one large copy over the link */
    double device;             /* a kernel that copies; read and written bytes both count */
} ladder_speeds;

static inline ladder_speeds ladder_measure(ladder_machine *m, uint64_t bytes, uint32_t rounds) {
    char *host = ladder_pinned<char>(bytes), *from = ladder_device<char>(bytes), *to = ladder_device<char>(bytes);
    bench_samples in = {}, out = {}, copy = {};
    for (uint32_t i = 0; i <= rounds; i++) { /* the first one warms up; not held: copies take milliseconds */
        double a =
            ladder_held_seconds(m, 0, [&] { cudaMemcpyAsync(from, host, bytes, cudaMemcpyHostToDevice, m->stream); });
        double b =
            ladder_held_seconds(m, 0, [&] { cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, m->stream); });
        double c = ladder_held_seconds(m, 0, [&] {
            FRUGAL_LAUNCH(ladder_copy_kernel, ladder_grid<ladder_copy_kernel>(m, bytes / sizeof(float4), 1),
                          LADDER_BLOCK, m->stream, (float4 *)to, (const float4 *)from, bytes / sizeof(float4));
        });
        if (i > 0) bench_add(&in, a), bench_add(&out, b), bench_add(&copy, c);
    }
    LADDER_CHECK(cudaFreeHost(host));
    ladder_free(from), ladder_free(to);
    return {(double)bytes / bench_median(&in), (double)bytes / bench_median(&out),
            2 * (double)bytes / bench_median(&copy)};
}

/* >>checks, as TAP */

static uint32_t ladder_cases, ladder_failed;

static inline void ladder_case(int right, const char *name, const char *what) {
    if (!right) ladder_failed++;
    printf("%sok %u - %s, %s\n", right ? "" : "not ", ++ladder_cases, name, what);
}

/* What a ladder's main does when its options are read: all checks, or all timings. Its exit status. */
static inline int ladder_main(const char *program, const options_list *dim, int checks,
                              void (*check_all)(ladder_machine *m), int (*run_all)(ladder_machine *m)) {
    for (uint32_t d = 0; d < dim->n; d++)
        if ((uint32_t)dim->values[d] % 4) {
            fprintf(stderr, "%s: --dim %.0f: must be a multiple of 4\n", program, dim->values[d]);
            return 2;
        }
    ladder_machine machine = ladder_open(1);
    int right;
    if (checks) {
        check_all(&machine);
        printf("1..%u\n", ladder_cases);
        right = ladder_failed == 0;
    } else
        right = run_all(&machine);
    ladder_close(&machine);
    return right ? bench_exit_status() : 1;
}

#endif
