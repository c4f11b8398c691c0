/* frugal_cuda.cu - a logical device on an NVIDIA GPU: the contract of src/cpu.c, and its bits.
 *
 * The GPU caches hot rows in its memory, reads the others in place in host memory (UVA: no copy, no bounce buffer), sums
 * gradients by unique row and writes the sums straight into the staging block in host memory. It never waits for the host
 * but at the gate, and the host never waits for it but at the next one. Paper: sections 3.1 and 3.2.
 *
 * Contents, searchable by their marks:
 *   >>words       the cache's directory, in which groups of threads claim places
 *   >>lookup      kernels: gather, spread, pool
 *   >>update      kernels: sum, record, cached copy, completion; what tables have of their own
 *   >>gate        kernels: waiting for a gate, and finding the step of a replayed graph
 *   >>device      structs
 *   >>errors      what CUDA says, in our words
 *   >>pinning     host memory that the GPU reaches in place
 *   >>operations  what frugal_flush.c calls
 *   >>graphs      a step in a CUDA graph
 *   >>attach      closing, opening, the self-test, the driver's calls
 *
 * THE STEP. Sorting and removing duplicates is the loader's, on the host, L steps ahead: it has to have the rows there
 * anyway, to announce them; the result is copied to the GPU on a stream of our own. On the caller's stream there are then
 *
 *     lookup   wait for the copy (and for the gate, if the stream does), gather, spread
 *     ...      forward and backward: the caller's
 *     update   sum, record, cached copies; the last block raises `done` in host memory
 *
 * and nothing else; where tables have settings of their own, a few threads fetch the step's numbers before an update.
 * `done` is a word that the GPU writes and a thread of the host polls; who finds it raised commits.
 *
 * GROUPS. A row is worked on by a group of lanes of a warp: 8 lanes with 16 bytes each (V = 4) where rows, copies, records
 * and the caller's arrays lie so that they can, else 32 lanes with 4 bytes (V = 1). Either way 32 floats a pass: a request
 * of 128 bytes, the largest that crosses PCI Express, and lane and element fit the order in which row-wise sums are added.
 * Warp operations are for full warps; so loops are the same for all lanes, and idle groups go along.
 *
 * HOW THE CACHE STAYS EXACT with all rows of a batch looked up at a time. A set has 8 places; beside each is one 64-bit
 * word: whose copy it is, and its last use. A group that finds its row stamps the word with this step; one that does not
 * may take a place over, by the same compare-and-swap, if its stamp is of another step. So within a step a place belongs to
 * one row at most, who won it may read or write the copy, and no lock is held. Where the copies stay is left to chance by
 * this, and to the policy; what is in them is not.
 *
 *  | tag  | site                            | scope, order    | pairs with   | if it were relaxed                       |
 *  |------|---------------------------------|-----------------|--------------|------------------------------------------|
 *  | [C1] | `done` raised by the last block | system, release | [C2]         | committed before its records are there   |
 *  | [C2] | `done` read by who polls        | acquire         | [C1]         | as [C1]                                  |
 *  | [C3] | gates read by a waiting kernel  | system, acquire | [F8] of      | rows read before they are written        |
 *  |      |                                 |                 | frugal_flush.c |                                        |
 *  | [C4] | blocks counted                  | device, acq_rel | itself       | `done` before another block's records    |
 *  | [C5] | chunks counted                  | device, acq_rel | itself       | sums of chunks that are not written      |
 *
 * Words of the directory are claimed relaxed: a place is handed on at the end of a kernel at the earliest.
 *
 * Compile: nvcc -O3 -std=c++17 --fmad=false -arch=sm_75 -c frugal_cuda.cu, CUDA Toolkit 12 or 13, compute capability 7.5
 * and later (without -arch, Toolkit 12 compiles for 5.2, which has no such atomics).
 * With FRUGAL_CUDA_ON_HOST naming a header that stands for CUDA, a C++ compiler compiles it for the host (tests/cuda).
 */
#ifdef FRUGAL_CUDA_ON_HOST
#include FRUGAL_CUDA_ON_HOST
#define FRUGAL_ALL_PASSES
#define FRUGAL_SOME_ROWS
#else
#include <cuda.h>
#include <cuda/atomic>
#include <cuda_runtime.h>
#define FRUGAL_LAUNCH     frugal_priv_launch
#define FRUGAL_ALL_PASSES _Pragma("unroll")   /* what they hold stays in registers */
#define FRUGAL_SOME_ROWS  _Pragma("unroll 2") /* on their way together; more is more code */

template <typename T> struct frugal_priv_same { using type = T; }; /* arguments are converted, not deduced */

/* Not by <<<>>>, whose error is the thread's last one, and that may be the caller's. */
template <typename... P>
static cudaError_t frugal_priv_launch(void (*kernel)(P...), unsigned grid, unsigned block, cudaStream_t stream,
                                      typename frugal_priv_same<P>::type... arguments) {
    void *all[] = {(void *)&arguments...};
    return cudaLaunchKernel((const void *)kernel, dim3(grid), dim3(block), all, 0, stream);
}
#endif
#include "frugal_cuda.h"
#include "src/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <sys/vfs.h>
#endif
#include <pthread.h>
#include <time.h>
#include <unistd.h>

constexpr uint32_t FRUGAL_PRIV_WAYS = 8;
constexpr uint32_t FRUGAL_PRIV_WARP = 32;
constexpr uint32_t FRUGAL_PRIV_THREADS = 256; /* of a block */
constexpr uint32_t FRUGAL_PRIV_CHUNK = 32;    /* positions summed at a time, as everywhere */
constexpr uint32_t FRUGAL_PRIV_TILE = 128;    /* floats of a row in registers at a time: 4 passes of 32 */
constexpr uint32_t FRUGAL_PRIV_PASSES = FRUGAL_PRIV_TILE / 32;
constexpr uint32_t FRUGAL_PRIV_REPLAYS = 64; /* descriptors of replayed steps; at most 16 are under way */
/* Nanoseconds that `done` has not moved when the driver is asked whether the GPU lives. */
constexpr uint64_t FRUGAL_PRIV_SILENCE = 20000000;
constexpr uint32_t FRUGAL_PRIV_TEST_POSITIONS = 3; /* of the self-test */
constexpr uint32_t FRUGAL_PRIV_AHEAD_HOST = 24;    /* rows that the host asks for ahead where it gathers */
#define FRUGAL_PRIV_FULL     0xffffffffu
#define FRUGAL_PRIV_NO_ROW   UINT32_MAX
#define FRUGAL_PRIV_NO_PLACE UINT32_MAX
#define FRUGAL_PRIV_FREE     UINT64_MAX /* a word: nobody's */

typedef struct frugal_priv_chunk { /* up to 32 positions of a row that has more */
    uint32_t unique, first;        /* the row's index; the index of its first chunk: chunk i is its number i - first */
} frugal_priv_chunk;

/* A step, as kernels see it. */
typedef struct frugal_priv_work {
    uint64_t step;
    const uint32_t *rows, *start, *order, *record_of; /* as in frugal_records; in the GPU's memory, as the next two */
    const uint64_t *valid;
    const frugal_priv_chunk *chunks; /* chunks[n_chunks], those of a row one after the other */
    float *block;                    /* of host memory */
    uint32_t n, n_unique, n_chunks, record_stride;
    uint32_t brings, repeated, waits; /* waits: the stream does, for the gate */
    uint32_t replayed;  /* of a graph's kernels: the most that can be; what there is they find in `current` */
    frugal_hyper hyper; /* of the first group of tables */
} frugal_priv_work;

/* In host memory, mapped: what GPU and host tell each other. */
typedef struct frugal_priv_control {
    uint64_t done;                   /* [C1] steps that the device is through with */
    uint64_t bad_bags;               /* step + 1 of bags that were no bags; 0: none */
    uint64_t hits[FRUGAL_P2F_SLOTS]; /* of a step, by step mod 64; written before `done` */
    frugal_priv_work replays[FRUGAL_PRIV_REPLAYS];
} frugal_priv_control;

typedef struct frugal_priv_counters { /* in the GPU's memory */
    unsigned long long hits;          /* of the step's first lookup */
    uint32_t blocks;                  /* of an update that have ended [C4] */
    uint32_t forced;                  /* the gate was forced open, not opened: no records any more */
    unsigned long long replays;       /* begun */
} frugal_priv_counters;

/* What all kernels of a device are given: constant but for the arrays. */
typedef struct frugal_priv_view {
    const float *weights, *state; /* host rows, where the GPU sees them; or the gathered ones, by record */
    uint64_t weights_stride, state_stride;
    uint32_t gathered;
    uint32_t dim, state_floats;
    uint64_t sets;   /* 0: no cache */
    uint64_t *words; /* [sets][WAYS] */
    float *copies;   /* [sets][WAYS][copy_stride]: weights, and at state_at the state */
    uint32_t copy_stride, state_at;
    uint32_t *places; /* places[max_keys]: where the last lookup left the copy of a unique row, or NO_PLACE */
    float *partials;  /* partials[max chunks][partial_stride], and enough for the self-test */
    uint32_t partial_stride;
    uint32_t *arrived; /* arrived[max chunks]: of a row, at its first chunk [C5]; zero between updates */
    float *unique;     /* unique[max_keys][unique_stride]: where pooled rows are looked up; NULL until there are some */
    uint32_t unique_stride;
    uint32_t *bag_of; /* bag_of[max_keys], likewise */
    frugal_priv_counters *counters;
    frugal_priv_control *control;
    frugal_priv_work *current; /* of a replay */
    const uint64_t *gates;
    frugal_optimizer_kind kind;
    frugal_cache_policy policy;
    float divisor;                    /* devices, where their gradients are averaged; else 0 */
    float eps, rest1, rest2, decay;   /* of the first group of tables */
    uint32_t n_groups;                /* of tables; the next three are there if it is above 1 */
    const frugal_table_group *groups; /* groups[n_groups] */
    frugal_hyper *hypers;             /* hypers[n_groups], of the update at hand */
    const frugal_hyper *hypers_sent;  /* ring [64][n_groups] of host memory, by step, from where they come */
} frugal_priv_view;

typedef struct frugal_priv_rule { /* what is the same for all elements of a row */
    float eps, rest1, rest2, decay;
    frugal_hyper hyper;
} frugal_priv_rule;

/* Gradients by position: of the caller's, or of his bags. */
typedef struct frugal_priv_source {
    const float *grads; /* NULL: the records are there already */
    const uint32_t *bag_of, *offsets;
    const float *weights;
    uint32_t n_bags, mean;
} frugal_priv_source;

template <typename T> using frugal_priv_gpu_atomic = cuda::atomic_ref<T, cuda::thread_scope_device>;
template <typename T> using frugal_priv_system_atomic = cuda::atomic_ref<T, cuda::thread_scope_system>;

/* V floats, moved together. */
template <int V> struct alignas(V * sizeof(float)) frugal_priv_pack { float x[V]; };

template <int V> __device__ static inline frugal_priv_pack<V> frugal_priv_load(const float *from) {
    return *(const frugal_priv_pack<V> *)(const void *)from;
}

/* Past the cache of this multiprocessor. */
template <int V> __device__ static inline frugal_priv_pack<V> frugal_priv_load_fresh(const float *from) {
    if constexpr (V == 4) {
        float4 all = __ldcg((const float4 *)(const void *)from);
        return {{all.x, all.y, all.z, all.w}};
    } else {
        return {{__ldcg(from)}};
    }
}

/* Memory of the GPU or of the host: not shared, not local. Said by the intrinsic, because nvcc makes four stores of 4 bytes of
 * a pack that it knows element by element. */
template <int V> __device__ static inline void frugal_priv_store(float *to, const frugal_priv_pack<V> &pack) {
    if constexpr (V == 4)
        __stwb((float4 *)(void *)to, make_float4(pack.x[0], pack.x[1], pack.x[2], pack.x[3]));
    else
        __stwb(to, pack.x[0]);
}

/* A thread's place among the groups of its kernel: a warp works on V items at a time. */
template <int V> struct frugal_priv_group {
    static constexpr uint32_t LANES = FRUGAL_PRIV_WARP / V;
    uint32_t lane;          /* in the group */
    uint32_t leader;        /* lane of the warp that is the group's first */
    uint64_t first, stride; /* the warp's first item, and from one to the next */
    uint32_t of_warp;       /* the group's number in its warp: its item is first + of_warp */
    __device__ frugal_priv_group() {
        lane = threadIdx.x % LANES;
        of_warp = threadIdx.x % FRUGAL_PRIV_WARP / LANES;
        leader = of_warp * LANES;
        uint64_t warps = blockDim.x / FRUGAL_PRIV_WARP;
        first = (blockIdx.x * warps + threadIdx.x / FRUGAL_PRIV_WARP) * V;
        stride = gridDim.x * warps * V;
    }
    /* Of a ballot, the bits of the group's first 8 lanes. */
    __device__ uint32_t bits(uint32_t ballot) const {
        return ballot >> leader & 0xff;
    }
};

/* ---------------------------------------------------------------------------------------------------------
 * >>words - row << 32 | use. LRU: use is the step of the last touch. LFU: touches << 8 | the step's low 8 bits; that a step
 * 256 later looks like this one keeps a place for a step longer, which does no harm. Static: use means nothing.
 * --------------------------------------------------------------------------------------------------------- */

__device__ static inline uint64_t frugal_priv_set_of(uint64_t sets, uint32_t row) {
    return ((row * UINT64_C(0x9E3779B97F4A7C15)) >> 32) * sets >> 32; /* as in src/cpu.c */
}

/* The word when its row is touched at `now`. */
__device__ static inline uint64_t frugal_priv_touched(frugal_cache_policy policy, uint64_t word, uint32_t now) {
    uint64_t row = word & ~UINT64_C(0xffffffff);
    uint32_t touches = (uint32_t)word >> 8;
    if (policy == FRUGAL_CACHE_STATIC) return word;
    if (policy == FRUGAL_CACHE_LRU) return row | now;
    return row | (touches < 0xffffff ? touches + 1 : touches) << 8 | (now & 0xff);
}

/* How much rather this place is given up than others; 0: not at all. */
__device__ static inline uint32_t frugal_priv_age(frugal_cache_policy policy, uint64_t word, uint32_t now,
                                                  int preloading) {
    uint32_t use = (uint32_t)word;
    if (word == FRUGAL_PRIV_FREE) return policy == FRUGAL_CACHE_STATIC && !preloading ? 0 : UINT32_MAX;
    if (policy == FRUGAL_CACHE_STATIC || preloading) return 0;
    if (policy == FRUGAL_CACHE_LRU) return now - use < UINT32_MAX ? now - use : UINT32_MAX - 1;
    uint32_t touches = use >> 8 < 0xfffffe ? use >> 8 : 0xfffffe;
    uint32_t since = (now - use) & 0xff; /* the longer ago, the rather */
    return since == 0 ? 0 : (0xfffffe - touches) << 8 | since;
}

/* Under LFU what was hot long ago must be able to leave: others of a set are halved when one goes. In vain where somebody
 * else changes the word meanwhile. */
__device__ static inline void frugal_priv_halve(uint64_t *word) {
    frugal_priv_gpu_atomic<uint64_t> at(*word);
    uint64_t found = at.load(cuda::memory_order_relaxed);
    if (found == FRUGAL_PRIV_FREE) return;
    uint64_t wanted = (found & ~UINT64_C(0xffffffff)) | ((uint32_t)found >> 9 << 8) | (found & 0xff);
    at.compare_exchange_strong(found, wanted, cuda::memory_order_relaxed, cuda::memory_order_relaxed);
}

/* Claims a place for the group's row: its copy's, or one that it takes over. All lanes of the warp call it; `active`: the
 * group has a row. *found: there was a copy, which is the row's now and in this step nobody else's. */
template <int V>
__device__ static uint32_t frugal_priv_claim(const frugal_priv_view &g, const frugal_priv_group<V> &group, uint32_t row,
                                             uint32_t now, int active, int preloading, int *found) {
    uint64_t base = frugal_priv_set_of(g.sets, row) * FRUGAL_PRIV_WAYS;
    uint32_t place = FRUGAL_PRIV_NO_PLACE;
    int looking = active && g.sets > 0;
    *found = 0;
    while (__any_sync(FRUGAL_PRIV_FULL, looking)) {
        int has_way = looking && group.lane < FRUGAL_PRIV_WAYS, won = 0;
        uint64_t *at = g.words + base + (has_way ? group.lane : 0);
        uint64_t word = FRUGAL_PRIV_FREE;
        if (has_way) word = frugal_priv_gpu_atomic<uint64_t>(*at).load(cuda::memory_order_relaxed);
        uint32_t mine = group.bits(__ballot_sync(FRUGAL_PRIV_FULL, has_way && (uint32_t)(word >> 32) == row));
        uint32_t age = has_way ? frugal_priv_age(g.policy, word, now, preloading) : 0, oldest = age;
        for (int half = 4; half > 0; half /= 2) { /* of the 8 lanes that have a way */
            uint32_t other = __shfl_xor_sync(FRUGAL_PRIV_FULL, oldest, half);
            oldest = other > oldest ? other : oldest;
        }
        uint32_t victims = group.bits(__ballot_sync(FRUGAL_PRIV_FULL, has_way && age == oldest && age > 0));
        uint32_t candidates = mine ? mine : victims, turn = row % FRUGAL_PRIV_WAYS; /* not all rows to the same place */
        uint32_t turned = (candidates >> turn | candidates << (FRUGAL_PRIV_WAYS - turn)) & 0xff;
        uint32_t way = candidates ? ((uint32_t)__ffs((int)turned) - 1 + turn) % FRUGAL_PRIV_WAYS : FRUGAL_PRIV_WAYS;
        if (has_way && way == group.lane) {
            uint64_t taken_over = (uint64_t)row << 32; /* whose first touch this is */
            uint64_t wanted = frugal_priv_touched(g.policy, mine ? word : taken_over, now);
            won = wanted == word || frugal_priv_gpu_atomic<uint64_t>(*at).compare_exchange_strong(
                                        word, wanted, cuda::memory_order_relaxed, cuda::memory_order_relaxed);
        }
        uint32_t winners = group.bits(__ballot_sync(FRUGAL_PRIV_FULL, won));
        int evicts = has_way && winners && !mine && oldest < UINT32_MAX;
        if (evicts && g.policy == FRUGAL_CACHE_LFU && way != group.lane) frugal_priv_halve(at);
        if (!looking || (candidates && !winners)) continue; /* somebody was faster: once more */
        looking = 0;
        if (winners) place = (uint32_t)base + way;
        *found = winners && mine;
    }
    return place;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>lookup
 * --------------------------------------------------------------------------------------------------------- */

/* Copies of a whole state of the row, which is a vector like the weights or one float. */
template <int V>
__device__ static inline void frugal_priv_copy_state(const frugal_priv_view &g, const frugal_priv_group<V> &group,
                                                     float *to, const float *from) {
    if (g.state_floats == 1) {
        if (group.lane == 0) to[0] = from[0];
        return;
    }
    for (uint32_t e = group.lane * V; e < g.state_floats; e += 32)
        frugal_priv_store<V>(to + e, frugal_priv_load<V>(from + e));
}

/* A row's elements into its first positions, its record, its copy: from one read. */
template <int V>
__device__ static inline void frugal_priv_gather_row(const frugal_priv_view &g, const frugal_priv_group<V> &group,
                                                     const float *from, float *copy, float *out, uint32_t out_stride,
                                                     const uint32_t *order, uint32_t n) {
    for (uint32_t tile = group.lane * V; tile < g.dim; tile += FRUGAL_PRIV_TILE) {
        frugal_priv_pack<V> pack[FRUGAL_PRIV_PASSES] = {};
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++) /* all on their way before the first is written */
            if (tile + 32 * p < g.dim) pack[p] = frugal_priv_load<V>(from + tile + 32 * p);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++)
            if (copy && tile + 32 * p < g.dim) frugal_priv_store<V>(copy + tile + 32 * p, pack[p]);
        for (uint32_t k = 0; k < n; k++) {
            float *to = out + (uint64_t)(order ? order[k] : 0) * out_stride + tile;
            FRUGAL_ALL_PASSES
            for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++)
                if (tile + 32 * p < g.dim) frugal_priv_store<V>(to + 32 * p, pack[p]);
        }
    }
}

/* Was the gate forced open? Acquires why, so that who polls `done` knows it, too, and does not commit. [C3] pairs with [F8] */
__device__ static inline uint32_t frugal_priv_is_forced(const uint64_t *gates, uint64_t step) {
    frugal_priv_system_atomic<uint64_t> open(*const_cast<uint64_t *>(gates));
    return (int64_t)(open.load(cuda::memory_order_acquire) - step) > (int64_t)FRUGAL_GATES_FORCED;
}

/* One thread of a block asks, because the answer crosses the link. All threads call it. */
__device__ static inline int frugal_priv_block_is_forced(const uint64_t *gates, uint64_t step) {
    return __syncthreads_or(threadIdx.x == 0 && frugal_priv_is_forced(gates, step));
}

/* One pass over the unique rows of a batch: a valid copy, else the host row, which refreshes the copy or is inserted, to
 * the row's first 32 positions. out[n][out_stride] by position, or by record; NULL: into the caches alone (preloading). */
template <int V>
__global__ void __launch_bounds__(FRUGAL_PRIV_THREADS, 4)
    frugal_lookup_kernel(frugal_priv_view g, frugal_priv_work given, float *out, uint32_t out_stride, int by_record,
                         int preloading) {
    const frugal_priv_work w = given.replayed ? *g.current : given;
    frugal_priv_group<V> group;
    uint32_t now = (uint32_t)w.step, hits = 0;
    if (by_record && !out) {
        out = w.block;
        if (w.waits && frugal_priv_block_is_forced(g.gates, w.step)) return; /* blocks may differ: it stays so */
    }
    if (w.waits && blockIdx.x == 0 && threadIdx.x == 0) g.counters->forced = frugal_priv_is_forced(g.gates, w.step);
    for (uint64_t at = group.first; at < w.n_unique; at += group.stride) {
        uint64_t item = at + group.of_warp;
        int active = item < w.n_unique, found;
        uint32_t row = active ? w.rows[item] : 0;
        uint32_t place = frugal_priv_claim<V>(g, group, row, now, active, preloading, &found);
        int valid = found && !preloading && (w.valid[item / 64] >> item % 64 & 1);
        hits += (uint32_t)__popc(__ballot_sync(FRUGAL_PRIV_FULL, valid && group.lane == 0));
        if (!active) continue;
        if (group.lane == 0 && g.sets > 0 && !preloading) g.places[item] = place;
        uint64_t source = g.gathered ? item : row;
        float *copy = place != FRUGAL_PRIV_NO_PLACE ? g.copies + (uint64_t)place * g.copy_stride : NULL;
        const float *row_at = valid ? copy : g.weights + source * g.weights_stride;
        float *refreshed = valid ? NULL : copy;
        if (preloading) {
            frugal_priv_gather_row<V>(g, group, row_at, refreshed, NULL, 0, NULL, 0);
        } else if (by_record) {
            frugal_priv_gather_row<V>(g, group, row_at, refreshed, out + item * out_stride, 0, NULL, 1);
        } else {
            uint32_t k = w.start[item], n = w.start[item + 1] - k;
            frugal_priv_gather_row<V>(g, group, row_at, refreshed, out, out_stride, w.order + k,
                                      n < FRUGAL_PRIV_CHUNK ? n : FRUGAL_PRIV_CHUNK);
        }
        if (refreshed && g.state_floats)
            frugal_priv_copy_state<V>(g, group, refreshed + g.state_at, g.state + source * g.state_stride);
    }
    if (threadIdx.x % FRUGAL_PRIV_WARP == 0 && hits && !w.repeated && !preloading)
        frugal_priv_gpu_atomic<unsigned long long>(g.counters->hits).fetch_add(hits, cuda::memory_order_relaxed);
}

/* The other positions of rows that have more than 32, from the first one, which is written: a group a chunk, so that no
 * group is left alone with a hot row. */
template <int V>
__global__ void __launch_bounds__(FRUGAL_PRIV_THREADS, 4)
    frugal_spread_kernel(frugal_priv_view g, frugal_priv_work given, float *out) {
    const frugal_priv_work w = given.replayed ? *g.current : given;
    frugal_priv_group<V> group;
    for (uint64_t item = group.first + group.of_warp; item < w.n_chunks; item += group.stride) {
        const frugal_priv_chunk chunk = w.chunks[item];
        uint32_t begin = w.start[chunk.unique], end = w.start[chunk.unique + 1];
        uint32_t k = begin + ((uint32_t)item - chunk.first) * FRUGAL_PRIV_CHUNK;
        if (k == begin) continue;
        const float *row = out + (uint64_t)w.order[begin] * g.dim;
        frugal_priv_gather_row<V>(g, group, row, NULL, out, g.dim, w.order + k,
                                  end - k < FRUGAL_PRIV_CHUNK ? end - k : FRUGAL_PRIV_CHUNK);
    }
}

/* pooled[n_bags][dim] of the rows that were looked up by record; a group a bag. Offsets that are none are cut, and said. */
template <int V>
__global__ void __launch_bounds__(FRUGAL_PRIV_THREADS)
    frugal_pool_kernel(frugal_priv_view g, frugal_priv_work w, frugal_bags bags, float *pooled) {
    frugal_priv_group<V> group;
    for (uint64_t bag = group.first + group.of_warp; bag < bags.n_bags; bag += group.stride) {
        uint32_t begin = bags.offsets[bag], end = bags.offsets[bag + 1];
        int bad = begin > end || end > w.n || (bag == 0 && begin != 0) || (bag + 1 == bags.n_bags && end != w.n);
        if (bad && group.lane == 0) /* relaxed: a message */
            frugal_priv_system_atomic<uint64_t>(g.control->bad_bags).store(w.step + 1, cuda::memory_order_relaxed);
        end = end < w.n ? end : w.n;
        for (uint32_t i = begin + group.lane; i < end; i += group.LANES) /* relaxed: bags that are none may overlap */
            frugal_priv_gpu_atomic<uint32_t>(g.bag_of[i]).store((uint32_t)bag, cuda::memory_order_relaxed);
        for (uint32_t e = group.lane * V; e < g.dim; e += 32) {
            frugal_priv_pack<V> sum = {};
            FRUGAL_SOME_ROWS
            for (uint32_t i = begin; i < end; i++) {
                frugal_priv_pack<V> x = frugal_priv_load<V>(g.unique + (uint64_t)w.record_of[i] * g.unique_stride + e);
                float weight = bags.weights ? bags.weights[i] : 1;
                for (int v = 0; v < V; v++) {
                    float product = bags.weights ? frugal_mul(weight, x.x[v]) : x.x[v];
                    float more = bags.weights ? frugal_fma(weight, x.x[v], sum.x[v]) : frugal_add(sum.x[v], x.x[v]);
                    sum.x[v] = i == begin ? product : more;
                }
            }
            for (int v = 0; v < V && bags.pooling == FRUGAL_POOL_MEAN && begin < end; v++)
                sum.x[v] = frugal_div(sum.x[v], (float)(end - begin));
            frugal_priv_store<V>(pooled + bag * g.dim + e, sum);
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * >>update
 * --------------------------------------------------------------------------------------------------------- */

/* The gradient of a position, V elements from `e` on. */
template <int V>
__device__ static inline frugal_priv_pack<V> frugal_priv_gradient(const frugal_priv_source &s, uint32_t dim,
                                                                  uint32_t position, uint32_t e) {
    if (!s.bag_of) return frugal_priv_load<V>(s.grads + (uint64_t)position * dim + e);
    uint32_t bag = s.bag_of[position];
    if (bag >= s.n_bags) bag = s.n_bags - 1; /* of offsets that were none */
    frugal_priv_pack<V> g = frugal_priv_load<V>(s.grads + (uint64_t)bag * dim + e);
    for (int v = 0; v < V; v++) {
        if (s.weights) g.x[v] = frugal_mul(s.weights[position], g.x[v]);
        if (s.mean) g.x[v] = frugal_div(g.x[v], (float)(s.offsets[bag + 1] - s.offsets[bag]));
    }
    return g;
}

template <int V> struct frugal_priv_sum { frugal_priv_pack<V> pass[FRUGAL_PRIV_PASSES]; }; /* a tile of a row */

/* Adds n > 0 rows of a tile in order, from the first one. `load(k, e)`: V elements of row k. */
template <int V, typename Load>
__device__ static inline frugal_priv_sum<V> frugal_priv_add_rows(uint32_t dim, uint32_t tile, uint32_t n, Load load) {
    frugal_priv_sum<V> sum = {};
    FRUGAL_ALL_PASSES
    for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++)
        if (tile + 32 * p < dim) sum.pass[p] = load(0, tile + 32 * p);
    FRUGAL_SOME_ROWS
    for (uint32_t k = 1; k < n; k++) { /* a row's passes are on their way together: a hot row is as slow as its loads */
        frugal_priv_pack<V> x[FRUGAL_PRIV_PASSES] = {};
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++)
            if (tile + 32 * p < dim) x[p] = load(k, tile + 32 * p);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++)
            for (int v = 0; v < V && tile + 32 * p < dim; v++)
                sum.pass[p].x[v] = frugal_add(sum.pass[p].x[v], x[p].x[v]);
    }
    return sum;
}

/* Where a group's row gets its sum from, in the order that makes the bits: n positions, or the sums of n chunks, or the
 * record, which is there. */
typedef enum { FRUGAL_PRIV_POSITIONS, FRUGAL_PRIV_CHUNKS, FRUGAL_PRIV_RECORD } frugal_priv_sum_of;

template <int V>
__device__ static inline frugal_priv_sum<V> frugal_priv_sum_tile(const frugal_priv_view &g, const frugal_priv_source &s,
                                                                 frugal_priv_sum_of what, const uint32_t *order,
                                                                 const float *rows, uint32_t n, uint32_t tile) {
    if (what == FRUGAL_PRIV_POSITIONS)
        return frugal_priv_add_rows<V>(
            g.dim, tile, n, [&](uint32_t k, uint32_t e) { return frugal_priv_gradient<V>(s, g.dim, order[k], e); });
    /* Chunks are other groups' writes of this very kernel: not from the cache of this multiprocessor. */
    return frugal_priv_add_rows<V>(g.dim, tile, n, [&](uint32_t k, uint32_t e) {
        return frugal_priv_load_fresh<V>(rows + (uint64_t)k * g.partial_stride + e);
    });
}

/* By which rule a row takes its step: that of its table's group. SEVERAL: there is more than one. */
template <int SEVERAL>
__device__ static inline frugal_priv_rule frugal_priv_rule_of(const frugal_priv_view &g, const frugal_priv_work &w,
                                                              uint32_t unique) {
    if constexpr (SEVERAL == 0) return {g.eps, g.rest1, g.rest2, g.decay, w.hyper};
    uint32_t group = frugal_group_of(g.groups, g.n_groups, w.rows[unique]);
    const frugal_optimizer &o = g.groups[group].optimizer;
    return {o.eps, frugal_add(1.0f, -o.beta1), frugal_add(1.0f, -o.beta2), o.weight_decay, g.hypers[group]};
}

/* The gradient of an element as the optimizer takes it: averaged over devices, if wished, and decayed. */
__device__ static inline float frugal_priv_taken(const frugal_priv_view &g, const frugal_priv_rule &rule, float sum,
                                                 float weight) {
    return frugal_decay(g.divisor != 0.0f ? frugal_div(sum, g.divisor) : sum, weight, rule.decay);
}

/* One element of the cached copy, as frugal_flush.c does it on the host row. */
__device__ static inline void frugal_priv_apply(const frugal_priv_view &g, const frugal_priv_rule &rule, float factor,
                                                float *w, float *s, float *v, float sum) {
    float x = frugal_priv_taken(g, rule, sum, *w);
    if (g.kind == FRUGAL_ADAGRAD)
        *w = frugal_adagrad(*w, s, x, factor, rule.eps);
    else if (g.kind == FRUGAL_ADAM)
        *w = frugal_adam(*w, s, v, x, factor, rule.rest1, rule.rest2, rule.eps);
    else
        *w = frugal_sgd(*w, x, factor);
}

/* A tile of the copy takes the step. State of an element: at its index; Adam's second moment dim further on. */
template <int V>
__device__ static inline void frugal_priv_apply_tile(const frugal_priv_view &g, const frugal_priv_rule &rule,
                                                     float factor, float *copy, uint32_t tile,
                                                     const frugal_priv_sum<V> &sum) {
    int element_wise = g.kind == FRUGAL_ADAGRAD || g.kind == FRUGAL_ADAM;
    FRUGAL_ALL_PASSES
    for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++) {
        uint32_t e = tile + 32 * p;
        if (e >= g.dim) continue;
        float *state = copy + g.state_at + e;
        frugal_priv_pack<V> w = frugal_priv_load<V>(copy + e), s = {}, second = {};
        if (element_wise) s = frugal_priv_load<V>(state);
        if (g.kind == FRUGAL_ADAM) second = frugal_priv_load<V>(state + g.dim);
        for (int v = 0; v < V; v++)
            frugal_priv_apply(g, rule, factor, &w.x[v], &s.x[v], &second.x[v], sum.pass[p].x[v]);
        frugal_priv_store<V>(copy + e, w);
        if (element_wise) frugal_priv_store<V>(state, s);
        if (g.kind == FRUGAL_ADAM) frugal_priv_store<V>(state + g.dim, second);
    }
}

/* Adds the squares of a tile to the group's 32 lanes, V of which each thread has: element i to lane i mod 32. */
template <int V>
__device__ static inline void frugal_priv_square_tile(const frugal_priv_view &g, const frugal_priv_rule &rule,
                                                      const float *copy, uint32_t tile, const frugal_priv_sum<V> &sum,
                                                      frugal_priv_pack<V> *lanes) {
    FRUGAL_ALL_PASSES
    for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++) {
        if (tile + 32 * p >= g.dim) continue;
        frugal_priv_pack<V> w = frugal_priv_load<V>(copy + tile + 32 * p);
        for (int v = 0; v < V; v++) {
            float x = frugal_priv_taken(g, rule, sum.pass[p].x[v], w.x[v]);
            lanes->x[v] = frugal_fma(x, x, lanes->x[v]);
        }
    }
}

/* The halving tree over the 32 lanes: across threads, then within the first one's. All lanes of the warp call it; the
 * result is the group's first lane's. */
template <int V> __device__ static inline float frugal_priv_fold(frugal_priv_pack<V> lanes) {
    for (int half = 16; half >= V; half /= 2)
        for (int v = 0; v < V; v++)
            lanes.x[v] = frugal_add(lanes.x[v], __shfl_down_sync(FRUGAL_PRIV_FULL, lanes.x[v], half / V));
    for (int half = V / 2; half > 0; half /= 2)
        for (int v = 0; v < half; v++) lanes.x[v] = frugal_add(lanes.x[v], lanes.x[v + half]);
    return lanes.x[0];
}

/* The factor of the step: row-wise Adagrad's needs the whole row first. All lanes of the warp call it. */
template <int V, typename Tile>
__device__ static inline float frugal_priv_factor(const frugal_priv_view &g, const frugal_priv_group<V> &group,
                                                  const frugal_priv_rule &rule, float *copy, Tile tile_of) {
    if (g.kind != FRUGAL_ROWWISE_ADAGRAD) return g.kind == FRUGAL_ADAM ? rule.hyper.step_size : rule.hyper.lr;
    frugal_priv_pack<V> lanes = {};
    float factor = 0;
    for (uint32_t tile = group.lane * V; copy && tile < g.dim; tile += FRUGAL_PRIV_TILE)
        frugal_priv_square_tile<V>(g, rule, copy, tile, tile_of(tile), &lanes);
    float squares = frugal_priv_fold<V>(lanes);
    if (copy && group.lane == 0)
        factor = frugal_rowwise_adagrad(copy + g.state_at, squares, (float)g.dim, rule.hyper.lr, rule.eps);
    return __shfl_sync(FRUGAL_PRIV_FULL, factor, (int)group.leader);
}

/* What an item of an update is: a unique row, or a chunk of one that has more than 32 positions. */
typedef struct frugal_priv_item {
    uint32_t unique, begin, n; /* begin, n: in `order` */
    uint32_t first, chunks;    /* of the row's chunks: index of the first, number; chunks 0: it has none */
    int active;
} frugal_priv_item;

/* Chunks first: who comes last with one has more to do. */
__device__ static inline frugal_priv_item frugal_priv_item_of(const frugal_priv_work &w, uint64_t item) {
    frugal_priv_item it = {};
    int is_chunk = item < w.n_chunks;
    if (item >= (uint64_t)w.n_unique + w.n_chunks) return it;
    it.active = 1;
    it.unique = is_chunk ? w.chunks[item].unique : (uint32_t)(item - w.n_chunks);
    uint32_t begin = w.start[it.unique], end = w.start[it.unique + 1];
    it.begin = begin, it.n = end - begin;
    if (is_chunk) {
        it.first = w.chunks[item].first;
        it.chunks = (it.n + FRUGAL_PRIV_CHUNK - 1) / FRUGAL_PRIV_CHUNK;
        it.begin += ((uint32_t)item - it.first) * FRUGAL_PRIV_CHUNK;
        it.n = end - it.begin < FRUGAL_PRIV_CHUNK ? end - it.begin : FRUGAL_PRIV_CHUNK;
    } else if (it.n > FRUGAL_PRIV_CHUNK)
        it.active = 0; /* its chunks do it */
    return it;
}

/* Writes a chunk's sum. The group that comes last has acquired the others', and adds them all: 1. All lanes of the warp. */
template <int V>
__device__ static inline int frugal_priv_add_chunk(const frugal_priv_view &g, const frugal_priv_group<V> &group,
                                                   const frugal_priv_work &w, const frugal_priv_source &s,
                                                   const frugal_priv_item &it, uint64_t item) {
    int is_chunk = it.active && it.chunks > 0;
    uint32_t arrived = 0;
    if (!__any_sync(FRUGAL_PRIV_FULL, is_chunk)) return 0;
    for (uint32_t tile = group.lane * V; is_chunk && tile < g.dim; tile += FRUGAL_PRIV_TILE) {
        frugal_priv_sum<V> sum =
            frugal_priv_sum_tile<V>(g, s, FRUGAL_PRIV_POSITIONS, w.order + it.begin, NULL, it.n, tile);
        float *to = g.partials + item * g.partial_stride + tile;
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES; p++)
            if (tile + 32 * p < g.dim) frugal_priv_store<V>(to + 32 * p, sum.pass[p]);
    }
    __threadfence();
    __syncwarp();
    if (is_chunk && group.lane == 0) /* [C5] itself */
        arrived = frugal_priv_gpu_atomic<uint32_t>(g.arrived[it.first]).fetch_add(1, cuda::memory_order_acq_rel) + 1;
    arrived = __shfl_sync(FRUGAL_PRIV_FULL, arrived, (int)group.leader);
    __syncwarp();
    int last = is_chunk && arrived == it.chunks;
    if (last && group.lane == 0) /* relaxed: for the next update */
        frugal_priv_gpu_atomic<uint32_t>(g.arrived[it.first]).store(0, cuda::memory_order_relaxed);
    return last;
}

/* The last block to end says that the step is done: what the others wrote has been acquired, and is released. */
__device__ static inline void frugal_priv_complete(const frugal_priv_view &g, const frugal_priv_work &w) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    frugal_priv_gpu_atomic<uint32_t> blocks(g.counters->blocks);
    if (blocks.fetch_add(1, cuda::memory_order_acq_rel) + 1 != gridDim.x) return; /* [C4] itself */
    blocks.store(0, cuda::memory_order_relaxed);
    g.control->hits[w.step % FRUGAL_P2F_SLOTS] = g.counters->hits;
    g.counters->hits = 0;
    __threadfence_system();
    frugal_priv_system_atomic<uint64_t>(g.control->done)
        .store(w.step + 1, cuda::memory_order_release); /* [C1] pairs with [C2] */
}

/* Sums gradients by unique row, in blocks of 32 positions and block sums in order; writes the records into the block in
 * host memory; steps the cached copies; and says that the step is done. */
template <int V, int SEVERAL>
__device__ static inline void frugal_priv_update(const frugal_priv_view &g, const frugal_priv_work &given,
                                                 const frugal_priv_source &s) {
    const frugal_priv_work w = given.replayed ? *g.current : given;
    frugal_priv_group<V> group;
    int brings = w.brings && !(w.waits && g.counters->forced);
    uint64_t items = s.grads ? (uint64_t)w.n_unique + w.n_chunks : g.sets > 0 ? w.n_unique : 0;
    if (!brings) items = 0;
    for (uint64_t at = group.first; at < items; at += group.stride) {
        uint64_t item = at + group.of_warp;
        frugal_priv_item it = frugal_priv_item_of(w, item);
        frugal_priv_sum_of what = FRUGAL_PRIV_POSITIONS;
        if (!s.grads) {
            what = FRUGAL_PRIV_RECORD, it.active = item < w.n_unique, it.unique = (uint32_t)item, it.chunks = 0,
            it.n = 1;
        } else if (frugal_priv_add_chunk<V>(g, group, w, s, it, item)) {
            what = FRUGAL_PRIV_CHUNKS, it.n = it.chunks, it.chunks = 0;
        }
        it.active = it.active && it.chunks == 0; /* a chunk that is not the last to come is done */
        float *record = w.block + (uint64_t)it.unique * w.record_stride;
        const float *rows = what == FRUGAL_PRIV_CHUNKS ? g.partials + (uint64_t)it.first * g.partial_stride : record;
        uint32_t place = it.active && g.sets > 0 ? g.places[it.unique] : FRUGAL_PRIV_NO_PLACE;
        float *copy = place != FRUGAL_PRIV_NO_PLACE ? g.copies + (uint64_t)place * g.copy_stride : NULL;
        auto tile_of = [&](uint32_t tile) {
            return frugal_priv_sum_tile<V>(g, s, what, w.order + it.begin, rows, it.n, tile);
        };
        frugal_priv_rule rule = {};
        if (copy || !SEVERAL) rule = frugal_priv_rule_of<SEVERAL>(g, w, it.unique);
        float factor = g.sets > 0 ? frugal_priv_factor<V>(g, group, rule, copy, tile_of) : 0;
        int needed = it.active && (s.grads || copy); /* records that are there are read for copies alone */
        for (uint32_t tile = group.lane * V; needed && tile < g.dim; tile += FRUGAL_PRIV_TILE) {
            frugal_priv_sum<V> sum = tile_of(tile);
            FRUGAL_ALL_PASSES
            for (uint32_t p = 0; p < FRUGAL_PRIV_PASSES && s.grads; p++)
                if (tile + 32 * p < g.dim) frugal_priv_store<V>(record + tile + 32 * p, sum.pass[p]);
            if (copy) frugal_priv_apply_tile<V>(g, rule, factor, copy, tile, sum);
        }
    }
    frugal_priv_complete(g, w);
}

template <int V>
__global__ void __launch_bounds__(FRUGAL_PRIV_THREADS, 2)
    frugal_update_kernel(frugal_priv_view g, frugal_priv_work given, frugal_priv_source s) {
    frugal_priv_update<V, 0>(g, given, s);
}

/* Where tables have settings of their own: copies take steps by the rule of their table's group. */
template <int V>
__global__ void __launch_bounds__(FRUGAL_PRIV_THREADS, 2)
    frugal_update_groups_kernel(frugal_priv_view g, frugal_priv_work given, frugal_priv_source s) {
    frugal_priv_update<V, 1>(g, given, s);
}

/* The groups' numbers in a step, by all threads of a block. */
__device__ static inline void frugal_priv_fetch_hypers(const frugal_priv_view &g, uint64_t step) {
    for (uint32_t i = threadIdx.x; i < g.n_groups && g.hypers; i += blockDim.x)
        g.hypers[i] = g.hypers_sent[step % FRUGAL_P2F_SLOTS * g.n_groups + i];
}

/* Before the update of a step. One block. */
__global__ void frugal_hyper_kernel(frugal_priv_view g, uint64_t step) {
    frugal_priv_fetch_hypers(g, step);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>gate
 * --------------------------------------------------------------------------------------------------------- */

/* Where the stream itself cannot wait for a word. One warp. */
__global__ void frugal_gate_kernel(const uint64_t *gates, uint64_t step) {
    frugal_priv_system_atomic<uint64_t> open(*const_cast<uint64_t *>(gates));
    if (threadIdx.x != 0) return;
    while ((int64_t)(open.load(cuda::memory_order_acquire) - step) <= 0) __nanosleep(200); /* [C3] pairs with [F8] */
}

/* The beginning of a replayed step, behind its gate: which one it is, and the groups' numbers in it. One warp. */
__global__ void frugal_begin_kernel(frugal_priv_view g) {
    uint64_t replay = g.counters->replays;
    frugal_priv_fetch_hypers(g, g.control->replays[replay % FRUGAL_PRIV_REPLAYS].step);
    __syncwarp();
    if (threadIdx.x != 0) return;
    g.counters->replays = replay + 1;
    *g.current = g.control->replays[replay % FRUGAL_PRIV_REPLAYS];
}

/* ---------------------------------------------------------------------------------------------------------
 * >>device
 * --------------------------------------------------------------------------------------------------------- */

typedef struct frugal_priv_pinned { /* host memory that the GPU reaches */
    frugal_memory memory;
    int ours; /* registered by us: to be given back */
} frugal_priv_pinned;

typedef struct frugal_priv_pins { /* what all devices of an instance share; the last to close gives it back */
    uint32_t users;
    frugal_priv_pinned table, state, gates;
    int table_is_pinned;
} frugal_priv_pins;

typedef struct frugal_priv_ahead { /* an announced batch in the GPU's memory: the loader's until `announced` returns */
    uint32_t *arrays;              /* [4][pitch]: rows, start, order, record_of */
    unsigned char *tail, *tail_sent; /* valid bits, then chunks; the second in host memory, from where it is sent */
    cudaEvent_t copied;
    uint32_t n_chunks;
    int failed, whole; /* to be sent once more; record_of too */
} frugal_priv_ahead;

typedef enum {
    FRUGAL_PRIV_LOOKUP,
    FRUGAL_PRIV_SPREAD,
    FRUGAL_PRIV_POOL,
    FRUGAL_PRIV_UPDATE,
    FRUGAL_PRIV_UPDATE_GROUPS,
    FRUGAL_PRIV_KERNELS
} frugal_priv_kernel;

/* Calls of the driver, found when a device is attached: nothing is linked against it. */
typedef struct frugal_priv_driver {
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*current)(CUcontext *);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUresult (*query)(CUstream);
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned); /* NULL: a kernel waits */
} frugal_priv_driver;

typedef struct frugal_priv_cuda {
    frugal *f;
    const frugal_store *store;
    uint32_t device;
    int ordinal;
    frugal_cuda_desc desc;
    frugal_priv_driver driver;
    CUcontext context;                 /* the GPU's primary one, which the runtime uses, too; NULL: not retained */
    cudaStream_t stream, ahead_stream; /* the caller's; ours, for copies ahead */
    uint32_t resident[FRUGAL_PRIV_KERNELS][2]; /* blocks that the GPU holds at a time, of kernels for 4 and 16 bytes */
    frugal_priv_view view;
    frugal_priv_pins *pins;
    frugal_priv_pinned blocks, batches;
    unsigned char *blocks_seen;                 /* where the GPU sees the first block */
    frugal_priv_control *control;               /* host; the view has where the GPU sees it */
    frugal_hyper *hypers_sent;                  /* behind it; likewise */
    frugal_priv_ahead aheads[FRUGAL_P2F_SLOTS]; /* [L + 1], by announced step */
    uint32_t *arrays_memory;
    unsigned char *tail_memory, *tail_sent_memory;
    uint64_t pitch, tail_bytes, chunks_at; /* pitch in words */
    float *gathered;                       /* [max_keys][weights_stride + state_stride] of the view; NULL: pinned */
    uint64_t bytes;                        /* of the GPU's memory */
    int full;                              /* the cache was to be emptied, and is not */
    int pools; /* bags have been looked up: record_of is sent too. The trainer's; loaders read it */
    uint64_t max_chunks;
    uint64_t
        gathered_for; /* step + 1 of the last lookup that was enqueued: gathered, and its hits are counted by a kernel */
    int replaying;
    uint64_t replays; /* begun on the host */
    int doubt;        /* a call has failed: does the GPU live? Relaxed: asked after it by the thread itself */
    uint64_t
        silent_since; /* ns: `done` has not moved, or the driver has said that the GPU lives; 0: not known; who polls */
    uint64_t counted; /* steps whose hits are counted; likewise */
    uint64_t unique_rows[FRUGAL_P2F_SLOTS]; /* of steps looked up, for the misses */
} frugal_priv_cuda;

/* The calling thread is on the device's GPU, and at the end where it was before, with the CUDA error that it had. By the
 * stack of contexts: cudaSetDevice, called to put the thread back, would make a context on a GPU that it has never used. */
struct frugal_priv_on_gpu {
    const frugal_priv_cuda *c;
    int pending, pushed;
    CUresult result; /* not 0: the thread is elsewhere. Calls that name a stream fail for themselves then */
    explicit frugal_priv_on_gpu(const frugal_priv_cuda *device) : c(device) {
        CUcontext current = NULL;
        pending = cudaPeekAtLastError() != cudaSuccess;
        result = c->driver.current(&current);
        pushed = result == CUDA_SUCCESS && current != c->context;
        if (pushed) result = c->driver.push(c->context);
        pushed = pushed && result == CUDA_SUCCESS;
    }
    ~frugal_priv_on_gpu() {
        CUcontext popped;
        if (pushed) c->driver.pop(&popped);
        if (!pending) cudaGetLastError(); /* ours is reported by a status: not for the caller to find */
    }
    frugal_priv_on_gpu(const frugal_priv_on_gpu &) = delete;
    frugal_priv_on_gpu &operator=(const frugal_priv_on_gpu &) = delete;
};

/* ---------------------------------------------------------------------------------------------------------
 * >>errors
 * --------------------------------------------------------------------------------------------------------- */

/* A status for what a CUDA call, or a launch, returned. */
static frugal_status frugal_priv_check(frugal_priv_cuda *c, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return FRUGAL_OK;
    __atomic_store_n(&c->doubt, 1, __ATOMIC_RELAXED);
    return frugal_fail(error == cudaErrorMemoryAllocation ? FRUGAL_ERR_MEMORY : FRUGAL_ERR_CUDA,
                       "device %u, GPU %d: %s: %s (%s)", c->device, c->ordinal, what, cudaGetErrorString(error),
                       cudaGetErrorName(error));
}

/* ---------------------------------------------------------------------------------------------------------
 * >>pinning
 *
 * The table is pinned where it lies, so that the GPU reads rows in place. What cannot be pinned, as a mapped file whose
 * pages the kernel wants to move, is gathered by the host.
 * --------------------------------------------------------------------------------------------------------- */

#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
/* Pinning touches pages one by one in one thread; so they are made before, by all processors. Errors are pinning's to
 * find. */
typedef struct frugal_priv_populate {
    unsigned char *start;
    size_t bytes;
} frugal_priv_populate;

static void *frugal_priv_populate_part(void *argument) {
    frugal_priv_populate *part = (frugal_priv_populate *)argument;
    madvise(part->start, part->bytes, MADV_POPULATE_WRITE);
    return NULL;
}

static void frugal_priv_populate_all(const frugal *f, const frugal_memory *memory) {
    constexpr uint32_t MOST = 64;
    constexpr size_t HUGE_PAGE = 2 << 20;
    uint32_t n = frugal_settings(f)->init_threads < MOST ? frugal_settings(f)->init_threads : MOST;
    uintptr_t start = (uintptr_t)memory->start / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    uintptr_t end = ((uintptr_t)memory->start + memory->bytes) / HUGE_PAGE * HUGE_PAGE;
    if (end <= start || end - start < HUGE_PAGE * n) return; /* small: not worth threads */
    pthread_t threads[MOST];
    frugal_priv_populate parts[MOST];
    int started[MOST];
    uint64_t units = (end - start) / HUGE_PAGE;
    for (uint32_t i = 0; i < n; i++) {
        parts[i].start = (unsigned char *)(start + units * i / n * HUGE_PAGE);
        parts[i].bytes = (size_t)((units * (i + 1) / n - units * i / n) * HUGE_PAGE);
        started[i] = !pthread_create(&threads[i], NULL, frugal_priv_populate_part, &parts[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (started[i]) pthread_join(threads[i], NULL);
}
#else
static void frugal_priv_populate_all(const frugal *f, const frugal_memory *memory) {
    (void)f, (void)memory;
}
#endif

/* 1: a mapped file of a file system on disk. It is not tried: some kernels read in the whole file before they refuse. */
static int frugal_priv_is_on_disk(const frugal *f) {
    const char *file = frugal_settings(f)->file;
    if (!file) return 0;
#if defined(__linux__)
    struct statfs system;
    if (statfs(file, &system) == 0) {
        unsigned long type = (unsigned long)system.f_type;
        return type != 0x01021994UL && type != 0x958458f6UL; /* tmpfs, hugetlbfs: memory by another name */
    }
#endif
    return 1;
}

/* Registers memory for all GPUs. What the caller has registered himself is taken as it is. Not read-only, though the GPU
 * does not write the table: the driver then asks the kernel for pages to read, gets the one page of zeros for those that
 * nobody has written, and goes on reading zeros when workers have. */
static cudaError_t frugal_priv_pin(frugal_priv_pinned *pinned, frugal_memory memory) {
    cudaPointerAttributes known;
    pinned->memory = memory;
    pinned->ours = 0;
    if (memory.bytes == 0) return cudaSuccess;
    cudaError_t error = cudaPointerGetAttributes(&known, memory.start); /* asked, not tried: trying would leave an error */
    if (error != cudaSuccess || known.type != cudaMemoryTypeHost) {
        error = cudaHostRegister(memory.start, memory.bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
        pinned->ours = error == cudaSuccess;
        if (error != cudaErrorHostMemoryAlreadyRegistered) return error;
    }
    /* By the caller; all of it? */
    unsigned char *last = (unsigned char *)memory.start + memory.bytes - 1;
    void *first_seen = NULL, *last_seen = NULL;
    error = cudaHostGetDevicePointer(&first_seen, memory.start, 0);
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&last_seen, last, 0);
    if (error == cudaSuccess &&
        (unsigned char *)last_seen - (unsigned char *)first_seen != (ptrdiff_t)(memory.bytes - 1))
        error = cudaErrorHostMemoryAlreadyRegistered;
    return error;
}

static void frugal_priv_unpin(frugal_priv_pinned *pinned) {
    if (pinned->ours) cudaHostUnregister(pinned->memory.start);
    pinned->ours = 0;
}

/* Where the GPU sees an address of pinned memory. */
static cudaError_t frugal_priv_seen(const frugal_priv_pinned *pinned, const void *host, void **seen) {
    *seen = NULL;
    cudaError_t error = cudaHostGetDevicePointer(seen, pinned->memory.start, 0);
    if (error == cudaSuccess)
        *seen = (unsigned char *)*seen + ((const unsigned char *)host - (const unsigned char *)pinned->memory.start);
    return error;
}

static const frugal_device_ops *frugal_priv_cuda_ops(void);

static frugal_priv_cuda *frugal_priv_cuda_of(const frugal *f, uint32_t device) {
    return (frugal_priv_cuda *)frugal_get_device(f, device, frugal_priv_cuda_ops());
}

/* The first device of an instance pins table and gates; the others find it. */
static frugal_status frugal_priv_share_pins(frugal_priv_cuda *c) {
    for (uint32_t d = 0; d < c->store->devices && !c->pins; d++) {
        frugal_priv_cuda *other = frugal_priv_cuda_of(c->f, d);
        if (other) c->pins = other->pins;
    }
    if (c->pins) {
        c->pins->users++;
        return FRUGAL_OK;
    }
    frugal_priv_pins *pins = (frugal_priv_pins *)frugal_allocate(c->f, sizeof *pins, 64);
    if (!pins) return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes are not to be had", c->device, sizeof *pins);
    pins->users = 1;
    c->pins = pins;
    cudaError_t error = frugal_priv_pin(&pins->gates, frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_GATES));
    if (error != cudaSuccess) return frugal_priv_check(c, error, "pinning the gates' word");
    if (frugal_priv_is_on_disk(c->f)) return FRUGAL_OK;
    frugal_memory table = frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_TABLE);
    if (!frugal_settings(c->f)->file) frugal_priv_populate_all(c->f, &table);
    pins->table_is_pinned =
        frugal_priv_pin(&pins->table, table) == cudaSuccess &&
        frugal_priv_pin(&pins->state, frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_STATE)) == cudaSuccess;
    if (!pins->table_is_pinned) frugal_priv_unpin(&pins->table);
    return FRUGAL_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>operations
 * --------------------------------------------------------------------------------------------------------- */

/* As many blocks as the items fill, and no more than the GPU holds at a time: each has its share of the items. */
static uint32_t frugal_priv_grid(const frugal_priv_cuda *c, frugal_priv_kernel kernel, uint64_t items, int wide) {
    uint64_t each = FRUGAL_PRIV_THREADS / FRUGAL_PRIV_WARP * (wide ? 4 : 1);
    uint64_t blocks = (items + each - 1) / each, most = c->resident[kernel][wide != 0];
    return (uint32_t)(blocks == 0 ? 1 : blocks < most ? blocks : most);
}

/* A kernel in the form for 16 or for 4 bytes; a cudaError_t. */
#define FRUGAL_PRIV_LAUNCH(wide, kernel, grid, stream, ...)                                                            \
    ((wide) ? FRUGAL_LAUNCH(kernel<4>, grid, FRUGAL_PRIV_THREADS, stream, __VA_ARGS__)                                 \
            : FRUGAL_LAUNCH(kernel<1>, grid, FRUGAL_PRIV_THREADS, stream, __VA_ARGS__))

static int frugal_priv_is_aligned(const void *pointer) {
    return (uintptr_t)pointer % 16 == 0;
}

/* May rows be moved 16 bytes at a time, as far as host rows go? (Copies and records lie so wherever dim is one of fours.) */
static int frugal_priv_is_wide(const frugal_priv_view *g) {
    int state = g->state_floats <= 1 || (frugal_priv_is_aligned(g->state) && g->state_stride % 4 == 0);
    return g->dim % 4 == 0 && frugal_priv_is_aligned(g->weights) && g->weights_stride % 4 == 0 && state;
}

/* A step as kernels are to see it: what the loader has prepared. */
static frugal_priv_work frugal_priv_work_of(const frugal_priv_cuda *c, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_priv_ahead *a = &c->aheads[step->step % (frugal_settings(c->f)->lookahead + 1)];
    unsigned char *first = (unsigned char *)c->blocks.memory.start;
    frugal_priv_work w = {};
    w.step = step->step;
    w.rows = a->arrays, w.start = a->arrays + c->pitch;
    w.order = a->arrays + 2 * c->pitch, w.record_of = a->arrays + 3 * c->pitch;
    w.valid = (const uint64_t *)(const void *)a->tail;
    w.chunks = (const frugal_priv_chunk *)(const void *)(a->tail + c->chunks_at);
    w.block = (float *)(void *)(c->blocks_seen + ((unsigned char *)r->block - first));
    w.n = r->n, w.n_unique = r->n_unique, w.n_chunks = a->n_chunks, w.record_stride = (uint32_t)r->stride;
    /* A lookup that failed half way is repeated, too; not one of a replay that never began. */
    w.repeated = c->gathered_for == step->step + 1, w.waits = (uint32_t)c->desc.gate_on_stream;
    return w;
}

/* Valid bits, and chunks of rows with more than 32 positions, into the memory from which they are sent. */
static void frugal_priv_write_tail(const frugal_priv_cuda *c, frugal_priv_ahead *a, const frugal_step *step) {
    const frugal_records *r = &step->records;
    frugal_priv_chunk *chunks = (frugal_priv_chunk *)(void *)(a->tail_sent + c->chunks_at);
    memcpy(a->tail_sent, step->valid, (r->n_unique + 63) / 64 * sizeof(uint64_t));
    a->n_chunks = 0;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        uint32_t n = r->start[u + 1] - r->start[u], first = a->n_chunks;
        for (uint32_t k = 0; n > FRUGAL_PRIV_CHUNK && k < n; k += FRUGAL_PRIV_CHUNK) {
            chunks[a->n_chunks].unique = u;
            chunks[a->n_chunks++].first = first;
        }
    }
}

/* Empties the cache, if it was to be and could not be. Copies that are left there may be called current. */
static frugal_status frugal_priv_empty(frugal_priv_cuda *c) {
    if (!c->full || c->view.sets == 0) return FRUGAL_OK;
    cudaError_t error =
        cudaMemsetAsync(c->view.words, 0xff, c->view.sets * FRUGAL_PRIV_WAYS * sizeof(uint64_t), c->stream);
    c->full = error != cudaSuccess;
    return frugal_priv_check(c, error, "emptying the cache");
}

/* Copies an announced batch to the GPU. */
static cudaError_t frugal_priv_send(frugal_priv_cuda *c, frugal_priv_ahead *a, const frugal_step *step, int whole,
                                    cudaStream_t stream) {
    const frugal_records *r = &step->records;
    size_t row = (r->n + 1) * sizeof(uint32_t), pitch = c->pitch * sizeof(uint32_t);
    size_t tail = a->n_chunks ? c->chunks_at + a->n_chunks * sizeof(frugal_priv_chunk)
                              : (r->n_unique + 63) / 64 * sizeof(uint64_t);
    if (r->n == 0) return cudaSuccess;
    cudaError_t error =
        cudaMemcpy2DAsync(a->arrays, pitch, r->rows, pitch, row, whole ? 4 : 3, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = cudaMemcpyAsync(a->tail, a->tail_sent, tail, cudaMemcpyHostToDevice, stream);
    return error;
}

static int frugal_priv_pools(const frugal_priv_cuda *c) {
    return __atomic_load_n(&c->pools, __ATOMIC_RELAXED); /* a hint: what is not sent ahead is sent later */
}

/* The loader's. What goes wrong is tried once more by lookup, which can say it. */
static void frugal_priv_cuda_announced(void *device, const frugal_step *step) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    frugal_priv_ahead *a = &c->aheads[step->step % (frugal_settings(c->f)->lookahead + 1)];
    frugal_priv_on_gpu on(c);
    a->whole = frugal_priv_pools(c);
    frugal_priv_write_tail(c, a, step);
    cudaError_t error = frugal_priv_send(c, a, step, a->whole, c->ahead_stream);
    if (error == cudaSuccess) error = cudaEventRecord(a->copied, c->ahead_stream);
    a->failed = error != cudaSuccess;
    if (error == cudaSuccess) return;
    cudaStreamSynchronize(c->ahead_stream); /* what was enqueued reads the batch, and writes where lookup will */
}

static void frugal_priv_cuda_cancelled(void *device) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    frugal_priv_on_gpu on(c);
    if (cudaStreamSynchronize(c->ahead_stream) == cudaSuccess) return;
    cudaStreamSynchronize(c->ahead_stream); /* nobody is told: once more, and a lost device copies nothing any more */
}

/* The caller's stream waits for the batch; or copies it, where that was not done ahead. */
static frugal_status frugal_priv_await_batch(frugal_priv_cuda *c, const frugal_step *step) {
    frugal_priv_ahead *a = &c->aheads[step->step % (frugal_settings(c->f)->lookahead + 1)];
    int whole = a->whole || step->bags != NULL;
    cudaError_t error;
    if (a->failed) {
        error = frugal_priv_send(c, a, step, whole, c->stream);
    } else {
        error = cudaStreamWaitEvent(c->stream, a->copied, 0);
        if (error == cudaSuccess && whole && !a->whole)
            error = cudaMemcpyAsync(a->arrays + 3 * c->pitch, step->records.record_of,
                                    step->records.n * sizeof(uint32_t), cudaMemcpyHostToDevice, c->stream);
    }
    if (error == cudaSuccess) a->failed = 0, a->whole = whole;
    return frugal_priv_check(c, error, "copying the batch");
}

/* The host gathers for a GPU that cannot reach the table: the step before is over, so the buffer is free; rows that were
 * gathered for this step already are still the same. */
static void frugal_priv_host_gather(const frugal_priv_cuda *c, const frugal_step *step) {
    const frugal_records *r = &step->records;
    const frugal_store *s = c->store;
    float *state = c->gathered + (uint64_t)frugal_settings(c->f)->max_keys * c->view.weights_stride;
    for (uint32_t u = 0; u < r->n_unique; u++) {
        if (u + FRUGAL_PRIV_AHEAD_HOST < r->n_unique)
            for (uint32_t e = 0; e < s->dim && e < 512; e += 16)
                __builtin_prefetch(s->weights + (uint64_t)r->rows[u + FRUGAL_PRIV_AHEAD_HOST] * s->weights_stride + e);
        memcpy(c->gathered + u * c->view.weights_stride, s->weights + (uint64_t)r->rows[u] * s->weights_stride,
               s->dim * sizeof(float));
        if (s->state_floats && c->view.sets > 0)
            memcpy(state + u * c->view.state_stride, s->state + (uint64_t)r->rows[u] * s->state_stride,
                   s->state_floats * sizeof(float));
    }
}

/* What the kernels found wrong since the last call. */
static frugal_status frugal_priv_late(frugal_priv_cuda *c) {
    uint64_t bad = __atomic_exchange_n(&c->control->bad_bags, 0, __ATOMIC_RELAXED);
    if (bad == 0) return FRUGAL_OK;
    return frugal_fail(
        FRUGAL_ERR_ARGUMENT,
        "device %u: the bags of step %llu had offsets that fall, or do not go from 0 to the number of keys; "
        "their rows are cut short",
        c->device, (unsigned long long)(bad - 1));
}

/* Room for rows by record before they are pooled: at the first bags, which wait for that. */
static frugal_status frugal_priv_open_pool(frugal_priv_cuda *c) {
    uint64_t keys = frugal_settings(c->f)->max_keys;
    uint32_t stride = (c->store->dim + 3) / 4 * 4;
    void *memory = NULL;
    if (c->view.unique) return FRUGAL_OK;
    cudaError_t error = cudaMalloc(&memory, keys * (stride + 1) * sizeof(float));
    if (error != cudaSuccess) return frugal_priv_check(c, error, "memory for bags");
    c->bytes += keys * (stride + 1) * sizeof(float);
    c->view.unique = (float *)memory;
    c->view.unique_stride = stride;
    c->view.bag_of = (uint32_t *)memory + keys * stride;
    __atomic_store_n(&c->pools, 1, __ATOMIC_RELAXED);
    return FRUGAL_OK;
}

/* The stream waits until the gate of the step is open. */
static frugal_status frugal_priv_enqueue_gate(frugal_priv_cuda *c, uint64_t step) {
    if (!c->desc.gate_on_stream) return FRUGAL_OK;
    cudaError_t error;
    if (c->driver.wait_value) /* the driver's errors have the runtime's numbers */
        error = (cudaError_t)c->driver.wait_value((CUstream)c->stream, (CUdeviceptr)(uintptr_t)c->view.gates, step + 1,
                                                  CU_STREAM_WAIT_VALUE_GEQ);
    else
        error = FRUGAL_LAUNCH(frugal_gate_kernel, 1, FRUGAL_PRIV_WARP, c->stream, c->view.gates, step);
    return frugal_priv_check(c, error, "waiting for the gate");
}

static frugal_status frugal_priv_enqueue_lookup(frugal_priv_cuda *c, const frugal_priv_work &w, const frugal_bags *bags,
                                                float *rows) {
    const frugal_priv_view &g = c->view;
    int by_record = bags || !rows, wide = frugal_priv_is_wide(&g) && frugal_priv_is_aligned(rows);
    float *out = bags ? g.unique : rows;
    uint32_t stride = bags ? g.unique_stride : rows ? g.dim : w.record_stride;
    cudaError_t error = cudaSuccess;
    if (w.n_unique > 0) {
        error =
            FRUGAL_PRIV_LAUNCH(wide, frugal_lookup_kernel, frugal_priv_grid(c, FRUGAL_PRIV_LOOKUP, w.n_unique, wide),
                               c->stream, g, w, out, stride, by_record, 0);
        if (error == cudaSuccess && !w.replayed) c->gathered_for = w.step + 1;
    }
    if (error == cudaSuccess && w.n_chunks > 0 && !by_record)
        error = FRUGAL_PRIV_LAUNCH(wide, frugal_spread_kernel,
                                   frugal_priv_grid(c, FRUGAL_PRIV_SPREAD, w.n_chunks, wide), c->stream, g, w, out);
    if (error == cudaSuccess && bags && bags->n_bags > 0)
        error = FRUGAL_PRIV_LAUNCH(wide, frugal_pool_kernel, frugal_priv_grid(c, FRUGAL_PRIV_POOL, bags->n_bags, wide),
                                   c->stream, g, w, *bags, rows);
    return frugal_priv_check(c, error, "lookup");
}

static frugal_status frugal_priv_cuda_lookup(void *device, const frugal_step *step, float *rows) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    frugal_priv_on_gpu on(c);
    frugal_status status = frugal_priv_check(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = frugal_priv_late(c);
    if (status != FRUGAL_OK) return status;
    if (step->bags && step->bags->n_bags == 0 && step->records.n > 0)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "device %u: no bags for the %u keys of step %llu", c->device,
                           step->records.n, (unsigned long long)step->step);
    if (step->bags && (status = frugal_priv_open_pool(c)) != FRUGAL_OK) return status;
    if ((status = frugal_priv_empty(c)) != FRUGAL_OK) return status;
    if ((status = frugal_priv_await_batch(c, step)) != FRUGAL_OK) return status;
    frugal_priv_work w = frugal_priv_work_of(c, step);
    if (c->gathered && !step->repeated && !w.repeated) frugal_priv_host_gather(c, step);
    /* In front of a graph, too, not in it: a kernel that waited there would be ended by a display's watchdog. */
    if ((status = frugal_priv_enqueue_gate(c, step->step)) != FRUGAL_OK) return status;
    if (c->replaying)
        c->control->replays[c->replays % FRUGAL_PRIV_REPLAYS] = w;
    else
        status = frugal_priv_enqueue_lookup(c, w, step->bags, rows);
    if (status == FRUGAL_OK) c->unique_rows[step->step % FRUGAL_P2F_SLOTS] = w.n_unique;
    return status;
}

static frugal_priv_source frugal_priv_source_of(const frugal_priv_cuda *c, const float *grads,
                                                const frugal_bags *bags) {
    frugal_priv_source s = {};
    s.grads = grads;
    if (!bags) return s;
    s.bag_of = c->view.bag_of, s.offsets = bags->offsets, s.weights = bags->weights;
    s.n_bags = bags->n_bags, s.mean = bags->pooling == FRUGAL_POOL_MEAN;
    return s;
}

static frugal_status frugal_priv_enqueue_update(frugal_priv_cuda *c, const frugal_priv_work &w,
                                                const frugal_priv_source &s) {
    int wide = frugal_priv_is_wide(&c->view) && frugal_priv_is_aligned(s.grads);
    int several = c->view.n_groups > 1 && c->view.sets > 0; /* records are the same by any rule */
    uint64_t items = w.brings ? (uint64_t)w.n_unique + w.n_chunks : 0;
    uint32_t grid = frugal_priv_grid(c, several ? FRUGAL_PRIV_UPDATE_GROUPS : FRUGAL_PRIV_UPDATE, items, wide);
    cudaError_t error = cudaSuccess;
    if (!several) {
        error = FRUGAL_PRIV_LAUNCH(wide, frugal_update_kernel, grid, c->stream, c->view, w, s);
        return frugal_priv_check(c, error, "update");
    }
    if (w.brings && !w.replayed) /* a graph's beginning does it */
        error = FRUGAL_LAUNCH(frugal_hyper_kernel, 1, FRUGAL_PRIV_THREADS, c->stream, c->view, w.step);
    if (error == cudaSuccess)
        error = FRUGAL_PRIV_LAUNCH(wide, frugal_update_groups_kernel, grid, c->stream, c->view, w, s);
    return frugal_priv_check(c, error, "update");
}

/* The step's numbers, to where kernels find them. Those of the step 64 before have been fetched: it is committed. */
static void frugal_priv_send_hypers(frugal_priv_cuda *c, frugal_priv_work *w, const frugal_hyper *hyper) {
    uint32_t n = c->view.n_groups;
    if (!hyper) return;
    frugal_hyper *sent = c->hypers_sent + w->step % FRUGAL_P2F_SLOTS * n;
    w->hyper = hyper[0];
    /* A call that failed half way comes again, with the same numbers, and what it has enqueued may be reading them. */
    if (n > 1 && memcmp(sent, hyper, n * sizeof *hyper)) memcpy(sent, hyper, n * sizeof *hyper);
}

static frugal_status frugal_priv_cuda_update(void *device, const frugal_step *step, const float *grads) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    frugal_priv_on_gpu on(c);
    frugal_status status = frugal_priv_check(c, (cudaError_t)on.result, "reaching the GPU");
    if (status == FRUGAL_OK) status = frugal_priv_late(c);
    if (status != FRUGAL_OK) return status;
    frugal_priv_work w = frugal_priv_work_of(c, step);
    w.brings = (uint32_t)step->brings;
    frugal_priv_send_hypers(c, &w, step->hyper);
    if (!c->replaying) return frugal_priv_enqueue_update(c, w, frugal_priv_source_of(c, grads, step->bags));
    frugal_priv_work *replay = &c->control->replays[c->replays % FRUGAL_PRIV_REPLAYS];
    replay->brings = w.brings, replay->hyper = w.hyper;
    return FRUGAL_OK;
}

/* Has `done` not moved for long? By the clock, not by looks, of which there are thousands in a step: asking the driver takes
 * locks that the trainer's launches need, and may wait for who holds them. */
static int frugal_priv_is_silent(frugal_priv_cuda *c) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t now = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    if (c->silent_since != 0 && now - c->silent_since < FRUGAL_PRIV_SILENCE) return 0;
    int silent = c->silent_since != 0;
    c->silent_since = now;
    return silent;
}

/* Counts what the GPU has done. Where `done` has not moved for a while, the driver is asked whether the GPU lives. */
static frugal_status frugal_priv_cuda_poll(void *device, uint64_t *steps) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    *steps = __atomic_load_n(&c->control->done, __ATOMIC_ACQUIRE); /* [C2] pairs with [C1] */
    for (; c->counted < *steps; c->counted++, c->silent_since = 0) {
        uint64_t hits = c->control->hits[c->counted % FRUGAL_P2F_SLOTS];
        uint64_t unique = c->unique_rows[c->counted % FRUGAL_P2F_SLOTS];
        if (hits > unique) hits = unique; /* of a lookup that failed half way and was cancelled */
        frugal_count_hits(c->f, c->device, hits, unique - hits);
    }
    if (!frugal_priv_is_silent(c) && !__atomic_exchange_n(&c->doubt, 0, __ATOMIC_RELAXED)) return FRUGAL_OK;
    frugal_priv_on_gpu on(c);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; /* another thread may be capturing */
    int relaxed = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
    /* The driver: the runtime would note "not ready" as the thread's last error, in place of the caller's. */
    CUresult result = c->driver.query((CUstream)c->ahead_stream);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) /* lost is lost */
        result = c->driver.query((CUstream)c->ahead_stream);
    if (relaxed) cudaThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_ERROR_NOT_READY ? FRUGAL_OK : frugal_priv_check(c, (cudaError_t)result, "at work");
}

static int frugal_priv_cuda_waits(void *device) {
    return ((frugal_priv_cuda *)device)->desc.gate_on_stream;
}

static int frugal_priv_compare_rows(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* Preloads distinct rows. The memory of an announced batch is free: nothing is announced. */
static frugal_status frugal_priv_preload_rows(frugal_priv_cuda *c, const uint32_t *rows, uint32_t n) {
    frugal_priv_work w = {};
    w.rows = c->aheads[0].arrays, w.n_unique = n, w.step = c->counted - 1; /* not touched in the step to come */
    cudaError_t error = cudaMemcpyAsync(c->aheads[0].arrays, rows, n * sizeof *rows, cudaMemcpyHostToDevice, c->stream);
    if (error != cudaSuccess) return frugal_priv_check(c, error, "preload");
    int wide = frugal_priv_is_wide(&c->view);
    uint32_t grid = frugal_priv_grid(c, FRUGAL_PRIV_LOOKUP, n, wide);
    error = FRUGAL_PRIV_LAUNCH(wide, frugal_lookup_kernel, grid, c->stream, c->view, w, (float *)NULL, 0u, 0, 1);
    frugal_status status = frugal_priv_check(c, error, "preload");
    error = cudaStreamSynchronize(c->stream);                   /* `rows` may go */
    if (error != cudaSuccess) cudaStreamSynchronize(c->stream); /* they go in any case */
    return status == FRUGAL_OK ? frugal_priv_check(c, error, "preload") : status;
}

static frugal_status frugal_priv_cuda_preload(void *device, const uint32_t *rows, uint32_t n) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    frugal_priv_on_gpu on(c);
    uint32_t most = frugal_settings(c->f)->max_keys, distinct = 0;
    frugal_status status = frugal_priv_empty(c);
    if (status != FRUGAL_OK || c->view.sets == 0) return status;
    uint32_t *sorted = (uint32_t *)malloc(n * sizeof *sorted);
    if (!sorted) return frugal_fail(FRUGAL_ERR_MEMORY, "preload: %zu bytes are not to be had", n * sizeof *sorted);
    memcpy(sorted, rows, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, frugal_priv_compare_rows);
    for (uint32_t i = 0; i < n; i++) /* two groups with the same row would each make a copy */
        if (i == 0 || sorted[i] != sorted[i - 1]) sorted[distinct++] = sorted[i];
    for (uint32_t at = 0; at < distinct && status == FRUGAL_OK; at += most) {
        frugal_step batch = {};
        batch.records.rows = sorted + at;
        batch.records.n_unique = distinct - at < most ? distinct - at : most;
        if (c->gathered) frugal_priv_host_gather(c, &batch);
        status = frugal_priv_preload_rows(c, batch.records.rows, batch.records.n_unique);
    }
    free(sorted);
    return status;
}

/* Is the copy at a place what the host has? `copy` is in host memory by now. */
static int frugal_priv_is_same(const frugal_priv_cuda *c, uint32_t row, const float *copy) {
    const frugal_store *s = c->store;
    if (memcmp(copy, s->weights + (uint64_t)row * s->weights_stride, s->dim * sizeof(float))) return 0;
    return s->state_floats == 0 || !memcmp(copy + c->view.state_at, s->state + (uint64_t)row * s->state_stride,
                                           s->state_floats * sizeof(float));
}

/* Brings the cache home piece by piece. A GPU that does not answer says 0, too; whether it lives is then asked. */
static int frugal_priv_cuda_verify(void *device) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    frugal_priv_on_gpu on(c);
    uint64_t places = c->view.sets * FRUGAL_PRIV_WAYS, stride = c->view.copy_stride;
    const uint64_t PLACES = places < 1024 ? places + 1 : 1024;
    float *copies = (float *)malloc(PLACES * (stride * sizeof(float) + sizeof(uint64_t)));
    uint64_t *words = (uint64_t *)(void *)(copies + PLACES * stride);
    int same = copies != NULL && frugal_priv_empty(c) == FRUGAL_OK && cudaStreamSynchronize(c->stream) == cudaSuccess;
    for (uint64_t at = 0; at < places && same; at += PLACES) {
        uint64_t n = places - at < PLACES ? places - at : PLACES;
        same = cudaMemcpy(words, c->view.words + at, n * sizeof *words, cudaMemcpyDeviceToHost) == cudaSuccess &&
               cudaMemcpy(copies, c->view.copies + at * stride, n * stride * sizeof(float), cudaMemcpyDeviceToHost) ==
                   cudaSuccess;
        for (uint64_t i = 0; i < n && same; i++) {
            uint32_t row = (uint32_t)(words[i] >> 32);
            if (row == FRUGAL_PRIV_NO_ROW || !frugal_is_current(c->f, c->device, row)) continue;
            same = frugal_priv_is_same(c, row, copies + i * stride);
        }
    }
    free(copies);
    if (!same) __atomic_store_n(&c->doubt, 1, __ATOMIC_RELAXED);
    return same;
}

static void frugal_priv_cuda_empty(void *device) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    frugal_priv_on_gpu on(c);
    c->full = 1;
    frugal_priv_empty(c); /* or by who looks at it next */
}

/* ---------------------------------------------------------------------------------------------------------
 * >>graphs - a step in a CUDA graph: its kernels find what changes from step to step in `current`, which the first of them
 * fills from a descriptor that frugal_cuda_replay has written to host memory
 * --------------------------------------------------------------------------------------------------------- */

static frugal_status frugal_priv_check_capture(const frugal *f, uint32_t device, const char *call,
                                               frugal_priv_cuda **out) {
    frugal_priv_cuda *c = frugal_priv_cuda_of(f, device);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!c) return frugal_fail(FRUGAL_ERR_DEVICE, "%s: device %u is not attached by frugal_cuda_attach", call, device);
    frugal_priv_on_gpu on(c);
    cudaError_t error = cudaStreamIsCapturing(c->stream, &capture);
    if (error != cudaSuccess) return frugal_priv_check(c, error, call);
    if (capture != cudaStreamCaptureStatusActive)
        return frugal_fail(FRUGAL_ERR_ORDER, "%s: the stream of device %u is not being captured", call, device);
    *out = c;
    return FRUGAL_OK;
}

/* The most that a step can bring: the graph's kernels are launched for it, and look at what there is. */
static frugal_priv_work frugal_priv_most(const frugal_priv_cuda *c) {
    frugal_priv_work w = {};
    w.n = w.n_unique = frugal_settings(c->f)->max_keys;
    w.n_chunks = (uint32_t)c->max_chunks;
    w.brings = w.replayed = 1;
    return w;
}

frugal_status frugal_cuda_capture_lookup(frugal *f, uint32_t device, float *rows, const uint32_t **n) {
    frugal_priv_cuda *c = NULL;
    frugal_status status = frugal_priv_check_capture(f, device, "cuda_capture_lookup", &c);
    if (status != FRUGAL_OK) return status;
    if (!rows) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_capture_lookup: `rows` is NULL");
    frugal_priv_on_gpu on(c);
    cudaError_t error = FRUGAL_LAUNCH(frugal_begin_kernel, 1, FRUGAL_PRIV_WARP, c->stream, c->view);
    if ((status = frugal_priv_check(c, error, "cuda_capture_lookup")) != FRUGAL_OK) return status;
    if (n) *n = &c->view.current->n;
    return frugal_priv_enqueue_lookup(c, frugal_priv_most(c), NULL, rows);
}

frugal_status frugal_cuda_capture_update(frugal *f, uint32_t device, const float *grads) {
    frugal_priv_cuda *c = NULL;
    frugal_status status = frugal_priv_check_capture(f, device, "cuda_capture_update", &c);
    if (status != FRUGAL_OK) return status;
    if (!grads) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_capture_update: `grads` is NULL");
    frugal_priv_on_gpu on(c);
    return frugal_priv_enqueue_update(c, frugal_priv_most(c), frugal_priv_source_of(c, grads, NULL));
}

frugal_status frugal_cuda_replay(frugal *f, uint32_t device, uint64_t step, const frugal_gradients *gradients) {
    frugal_priv_cuda *c = f ? frugal_priv_cuda_of(f, device) : NULL;
    if (!c)
        return frugal_fail(FRUGAL_ERR_DEVICE, "cuda_replay: device %u is not attached by frugal_cuda_attach", device);
    if (gradients && gradients->grads)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "cuda_replay: `grads` are the graph's; say in `records` whether there are any");
    c->replaying = 1;
    frugal_status status = frugal_lookup(f, device, step, NULL);
    if (status == FRUGAL_OK) status = frugal_update(f, device, step, gradients);
    c->replaying = 0;
    if (status == FRUGAL_OK) c->replays++;
    return status;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>attach
 * --------------------------------------------------------------------------------------------------------- */

/* What has been opened on the GPU. The calling thread is on it. */
static void frugal_priv_close_on_gpu(frugal_priv_cuda *c) {
    cudaDeviceSynchronize(); /* the caller's stream may be gone; what it was given is done then */
    void *memory[] = {c->arrays_memory, c->tail_memory, c->view.places, c->view.partials,
                      c->view.counters, c->view.words,  c->view.copies, c->view.unique};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) cudaFree(memory[i]);
    for (uint32_t i = 0; i < FRUGAL_P2F_SLOTS; i++)
        if (c->aheads[i].copied) cudaEventDestroy(c->aheads[i].copied);
    if (c->ahead_stream) cudaStreamDestroy(c->ahead_stream);
    if (c->tail_sent_memory) cudaFreeHost(c->tail_sent_memory);
    if (c->control) cudaFreeHost(c->control);
    if (c->gathered) cudaFreeHost(c->gathered);
    frugal_priv_unpin(&c->blocks);
    frugal_priv_unpin(&c->batches);
    if (c->pins && --c->pins->users == 0) {
        frugal_priv_unpin(&c->pins->table);
        frugal_priv_unpin(&c->pins->state);
        frugal_priv_unpin(&c->pins->gates);
        frugal_free(c->f, c->pins, sizeof *c->pins);
    }
}

/* The context stays retained: the runtime's kernels are loaded into it, and the runtime keeps its own for good, too. */
static void frugal_priv_cuda_close(void *device) {
    frugal_priv_cuda *c = (frugal_priv_cuda *)device;
    if (c->context) {
        frugal_priv_on_gpu on(c);
        frugal_priv_close_on_gpu(c);
    }
    frugal_free(c->f, c, sizeof *c);
}

static const frugal_device_ops *frugal_priv_cuda_ops(void) {
    static const frugal_device_ops ops = {
        frugal_priv_cuda_lookup,    frugal_priv_cuda_update, frugal_priv_cuda_preload, frugal_priv_cuda_verify,
        frugal_priv_cuda_empty,     frugal_priv_cuda_close,  frugal_priv_cuda_poll,    frugal_priv_cuda_announced,
        frugal_priv_cuda_cancelled, frugal_priv_cuda_waits};
    return &ops;
}

/* Memory of the GPU; what it is for is said where there is not enough. */
static frugal_status frugal_priv_gpu_allocate(frugal_priv_cuda *c, uint64_t bytes, const char *what, void **out) {
    size_t left = 0, all = 0;
    cudaError_t error = cudaMalloc(out, (size_t)bytes);
    if (error == cudaSuccess) c->bytes += bytes;
    if (error != cudaErrorMemoryAllocation) return frugal_priv_check(c, error, what);
    cudaGetLastError();
    *out = NULL;
    cudaMemGetInfo(&left, &all);
    return frugal_fail(FRUGAL_ERR_MEMORY, "device %u, GPU %d: %llu bytes for %s are not to be had: %zu of %zu are free",
                       c->device, c->ordinal, (unsigned long long)bytes, what, left, all);
}

/* Batches of the ring: arrays and tails on the GPU, and the memory that tails are sent from. */
static frugal_status frugal_priv_open_aheads(frugal_priv_cuda *c) {
    uint64_t keys = frugal_settings(c->f)->max_keys;
    uint32_t n = frugal_settings(c->f)->lookahead + 1;
    frugal_status status;
    void *arrays = NULL, *tail = NULL;
    c->pitch = (keys + 1 + 15) / 16 * 16;                   /* as in the host's batch: whole lines */
    c->max_chunks = 2 * keys / (FRUGAL_PRIV_CHUNK + 1) + 1; /* a row with 33 positions has two */
    c->chunks_at = (keys + 63) / 64 * 8;
    c->tail_bytes = (c->chunks_at + c->max_chunks * sizeof(frugal_priv_chunk) + 15) / 16 * 16;
    if ((status = frugal_priv_gpu_allocate(c, n * 4 * c->pitch * 4, "batches", &arrays)) != FRUGAL_OK) return status;
    c->arrays_memory = (uint32_t *)arrays;
    if ((status = frugal_priv_gpu_allocate(c, n * c->tail_bytes, "batches", &tail)) != FRUGAL_OK) return status;
    c->tail_memory = (unsigned char *)tail;
    cudaError_t error = cudaHostAlloc((void **)&c->tail_sent_memory, n * c->tail_bytes, cudaHostAllocPortable);
    for (uint32_t i = 0; i < n && error == cudaSuccess; i++) {
        c->aheads[i].arrays = c->arrays_memory + i * 4 * c->pitch;
        c->aheads[i].tail = c->tail_memory + i * c->tail_bytes;
        c->aheads[i].tail_sent = c->tail_sent_memory + i * c->tail_bytes;
        error = cudaEventCreateWithFlags(&c->aheads[i].copied, cudaEventDisableTiming);
    }
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&c->ahead_stream, cudaStreamNonBlocking);
    return frugal_priv_check(c, error, "a stream and events for copies ahead");
}

/* What GPU and host tell each other, and the kernels' scratch. */
static frugal_status frugal_priv_open_scratch(frugal_priv_cuda *c) {
    frugal_priv_view *g = &c->view;
    uint64_t keys = frugal_settings(c->f)->max_keys;
    uint64_t rows = c->max_chunks > FRUGAL_PRIV_TEST_POSITIONS ? c->max_chunks : FRUGAL_PRIV_TEST_POSITIONS;
    uint64_t partials = rows * g->partial_stride, counters = sizeof(frugal_priv_counters);
    uint64_t bytes = partials * 4 + c->max_chunks * 4, groups_at = counters + sizeof(frugal_priv_work);
    uint64_t n_groups = g->n_groups > 1 ? g->n_groups : 0, groups = n_groups * sizeof(frugal_table_group);
    uint64_t hypers = n_groups * sizeof(frugal_hyper);
    void *places = NULL, *scratch = NULL, *small = NULL, *control = NULL, *seen = NULL;
    frugal_status status = frugal_priv_gpu_allocate(c, keys * 4, "places", &places);
    g->places = (uint32_t *)places;
    if (status == FRUGAL_OK) status = frugal_priv_gpu_allocate(c, bytes, "sums of chunks", &scratch);
    g->partials = (float *)scratch;
    g->arrived = (uint32_t *)scratch + partials;
    if (status == FRUGAL_OK) status = frugal_priv_gpu_allocate(c, groups_at + groups + hypers, "counters", &small);
    g->counters = (frugal_priv_counters *)small;
    if (status != FRUGAL_OK) return status;
    g->current = (frugal_priv_work *)(void *)((unsigned char *)small + counters);
    void *table_groups = (unsigned char *)small + groups_at;
    cudaError_t error = cudaMemset(scratch, 0, bytes);
    if (error == cudaSuccess) error = cudaMemset(small, 0, groups_at + groups + hypers);
    if (error == cudaSuccess && n_groups > 0)
        error = cudaMemcpy(table_groups, c->store->groups, groups, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaHostAlloc(&control, sizeof *c->control + FRUGAL_P2F_SLOTS * hypers,
                              cudaHostAllocPortable | cudaHostAllocMapped);
    c->control = (frugal_priv_control *)control;
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&seen, control, 0);
    g->control = (frugal_priv_control *)seen;
    if (error != cudaSuccess) return frugal_priv_check(c, error, "mapped memory for completion");
    memset(c->control, 0, sizeof *c->control + FRUGAL_P2F_SLOTS * hypers);
    if (n_groups > 0) {
        g->groups = (const frugal_table_group *)table_groups;
        g->hypers = (frugal_hyper *)(void *)((unsigned char *)table_groups + groups);
        g->hypers_sent = (const frugal_hyper *)(const void *)(g->control + 1);
        c->hypers_sent = (frugal_hyper *)(void *)(c->control + 1);
    }
    c->control->done = c->counted = frugal_settings(c->f)->first_step;
    return FRUGAL_OK;
}

/* The host table where the GPU sees it, or a buffer that the host gathers into. */
static frugal_status frugal_priv_open_table(frugal_priv_cuda *c) {
    frugal_priv_view *g = &c->view;
    const frugal_store *s = c->store;
    void *seen = NULL;
    cudaError_t error = cudaSuccess;
    g->weights_stride = s->weights_stride, g->state_stride = s->state_stride;
    if (c->pins->table_is_pinned) {
        error = frugal_priv_seen(&c->pins->table, s->weights, &seen);
        g->weights = (const float *)seen;
        const frugal_priv_pinned *state = c->pins->state.memory.bytes ? &c->pins->state : &c->pins->table;
        if (error == cudaSuccess && s->state) error = frugal_priv_seen(state, s->state, &seen);
        g->state = s->state ? (const float *)seen : NULL;
        return frugal_priv_check(c, error, "mapping the table");
    }
    if (c->desc.gate_on_stream)
        return frugal_fail(
            FRUGAL_ERR_ARGUMENT,
            "cuda_attach: the table cannot be pinned (a mapped file?), so the host gathers, and cannot leave "
            "waiting to the stream: clear gate_on_stream");
    g->gathered = 1;
    g->weights_stride = (s->dim + 3) / 4 * 4,
    g->state_stride = s->state_floats > 1 ? (s->state_floats + 3) / 4 * 4 : s->state_floats;
    uint64_t keys = frugal_settings(c->f)->max_keys,
             bytes = keys * (g->weights_stride + g->state_stride) * sizeof(float);
    void *host = NULL;
    error = cudaHostAlloc(&host, (size_t)bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    c->gathered = (float *)host;
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&seen, host, 0);
    g->weights = (const float *)seen;
    g->state = g->weights + keys * g->weights_stride;
    return frugal_priv_check(c, error, "a buffer to gather into");
}

static frugal_status frugal_priv_open_cache(frugal_priv_cuda *c) {
    frugal_priv_view *g = &c->view;
    uint64_t sets = (c->desc.cache_rows + FRUGAL_PRIV_WAYS - 1) / FRUGAL_PRIV_WAYS;
    void *words = NULL, *copies = NULL;
    frugal_status status = FRUGAL_OK;
    for (; sets > 0; sets /= 2) {
        uint64_t places = sets * FRUGAL_PRIV_WAYS, bytes = c->bytes;
        status = frugal_priv_gpu_allocate(c, places * sizeof(uint64_t), "the cache", &words);
        if (status == FRUGAL_OK)
            status = frugal_priv_gpu_allocate(c, places * g->copy_stride * sizeof(float), "the cache", &copies);
        if (status == FRUGAL_OK) break;
        if (words) cudaFree(words);
        words = NULL, c->bytes = bytes;
        if (status != FRUGAL_ERR_MEMORY || !c->desc.shrink_cache) return status;
    }
    g->words = (uint64_t *)words, g->copies = (float *)copies, g->sets = sets;
    return sets ? frugal_priv_check(c, cudaMemset(words, 0xff, sets * FRUGAL_PRIV_WAYS * sizeof(uint64_t)), "the cache")
                : FRUGAL_OK;
}

/* Values where another arithmetic shows: subnormals, sums that round, products that only a fused operation keeps. */
static float frugal_priv_test_value(uint32_t i, uint32_t what) {
    static const float values[] = {1.0f + 0x1p-12f, -1.0f / 3, 0x1p-130f, 0x1.fffffep0f, 3e-7f, -0x1p-126f, 0.7f, 1e6f};
    return values[(i * 5 + what * 3) % 8];
}

/* Loads a kernel, and asks how many of its blocks a multiprocessor holds. */
template <typename Kernel>
static cudaError_t frugal_priv_load_kernel(Kernel kernel, int processors, uint32_t *resident) {
#ifndef FRUGAL_CUDA_ON_HOST
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
#endif
    int blocks = 0;
    cudaError_t counted = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)FRUGAL_PRIV_THREADS, 0);
    if (resident) *resident = (uint32_t)(blocks > 0 ? blocks * processors : processors);
    return counted;
}

/* Loads all kernels. CUDA loads a kernel when it is first launched, and may wait for all that the GPU has to do: for a stream
 * that waits at a gate, which opens when another device on the GPU has updated. And code that a GPU cannot run shows here. */
static frugal_status frugal_priv_load_kernels(frugal_priv_cuda *c, int processors) {
    uint32_t(*resident)[2] = c->resident;
    cudaError_t errors[] = {
        frugal_priv_load_kernel(frugal_lookup_kernel<1>, processors, &resident[FRUGAL_PRIV_LOOKUP][0]),
        frugal_priv_load_kernel(frugal_lookup_kernel<4>, processors, &resident[FRUGAL_PRIV_LOOKUP][1]),
        frugal_priv_load_kernel(frugal_spread_kernel<1>, processors, &resident[FRUGAL_PRIV_SPREAD][0]),
        frugal_priv_load_kernel(frugal_spread_kernel<4>, processors, &resident[FRUGAL_PRIV_SPREAD][1]),
        frugal_priv_load_kernel(frugal_pool_kernel<1>, processors, &resident[FRUGAL_PRIV_POOL][0]),
        frugal_priv_load_kernel(frugal_pool_kernel<4>, processors, &resident[FRUGAL_PRIV_POOL][1]),
        frugal_priv_load_kernel(frugal_update_kernel<1>, processors, &resident[FRUGAL_PRIV_UPDATE][0]),
        frugal_priv_load_kernel(frugal_update_kernel<4>, processors, &resident[FRUGAL_PRIV_UPDATE][1]),
        frugal_priv_load_kernel(frugal_update_groups_kernel<1>, processors, &resident[FRUGAL_PRIV_UPDATE_GROUPS][0]),
        frugal_priv_load_kernel(frugal_update_groups_kernel<4>, processors, &resident[FRUGAL_PRIV_UPDATE_GROUPS][1]),
        frugal_priv_load_kernel(frugal_hyper_kernel, processors, NULL),
        frugal_priv_load_kernel(frugal_gate_kernel, processors, NULL),
        frugal_priv_load_kernel(frugal_begin_kernel, processors, NULL)};
    for (cudaError_t error : errors)
        if (error != cudaSuccess) return frugal_priv_check(c, error, "loading kernels");
    return FRUGAL_OK;
}

/* A step of a group's first row with three positions through the kernel itself: the record, and the copy if there is a
 * cache, must be what the host computes. Memory of batch 0 and block 0 is free; nothing else runs. */
static frugal_status frugal_priv_self_test(frugal_priv_cuda *c, uint32_t group, frugal_hyper *hyper) {
    constexpr uint32_t POSITIONS = FRUGAL_PRIV_TEST_POSITIONS;
    const frugal_store *s = c->store;
    frugal_priv_view *g = &c->view;
    uint32_t dim = s->dim,
             n = frugal_settings(c->f)->max_keys < POSITIONS ? frugal_settings(c->f)->max_keys : POSITIONS;
    uint32_t row = (uint32_t)s->groups[group].first_row, place = 0;
    uint32_t arrays[3][POSITIONS + 1] = {{row}, {0, n}, {0, 1, 2}};
    uint64_t floats = (uint64_t)POSITIONS * dim + 2 * g->copy_stride + dim;
    float *host = (float *)calloc(floats, sizeof(float)), *expected = host + POSITIONS * dim,
          *copy = expected + g->copy_stride;
    float *sum = copy + g->copy_stride, *block = (float *)c->blocks.memory.start;
    float *grads = g->partials; /* of no use to a row without chunks; a cache may have left no memory */
    if (!host)
        return frugal_fail(FRUGAL_ERR_MEMORY, "self-test: %zu bytes are not to be had", (size_t)floats * sizeof(float));
    for (uint32_t i = 0; i < POSITIONS * dim; i++) host[i] = frugal_priv_test_value(i, i / dim);
    for (uint32_t i = 0; i < dim; i++) expected[i] = frugal_priv_test_value(i, 7);
    for (uint32_t i = 0; i < s->state_floats; i++) expected[g->state_at + i] = 1.0f + (float)(i % 5) * 0x1p-11f;
    cudaError_t error = cudaMemcpy(grads, host, POSITIONS * dim * sizeof(float), cudaMemcpyHostToDevice);
    for (int a = 0; a < 3 && error == cudaSuccess; a++)
        error = cudaMemcpy(c->aheads[0].arrays + a * c->pitch, arrays[a], sizeof arrays[a], cudaMemcpyHostToDevice);
    if (error == cudaSuccess) error = cudaMemcpy(g->places, &place, sizeof place, cudaMemcpyHostToDevice);
    if (error == cudaSuccess && g->sets > 0)
        error = cudaMemcpy(g->copies, expected, g->copy_stride * sizeof(float), cudaMemcpyHostToDevice);
    frugal_step step = {};
    step.step = c->counted, step.brings = 1, step.records.block = block;
    frugal_priv_work w = frugal_priv_work_of(c, &step);
    w.rows = c->aheads[0].arrays, w.start = w.rows + c->pitch, w.order = w.start + c->pitch;
    w.n = n, w.n_unique = 1, w.n_chunks = 0, w.brings = 1;
    frugal_priv_send_hypers(c, &w, hyper);
    if (error == cudaSuccess) error = cudaDeviceSynchronize(); /* copies were on another stream */
    frugal_status status = frugal_priv_check(c, error, "self-test");
    if (status == FRUGAL_OK) status = frugal_priv_enqueue_update(c, w, frugal_priv_source_of(c, grads, NULL));
    if (status == FRUGAL_OK) error = cudaStreamSynchronize(c->stream);
    if (status == FRUGAL_OK && error == cudaSuccess && g->sets > 0)
        error = cudaMemcpy(copy, g->copies, g->copy_stride * sizeof(float), cudaMemcpyDeviceToHost);
    if (status == FRUGAL_OK) status = frugal_priv_check(c, error, "self-test");
    if (status == FRUGAL_OK) {
        frugal_sum_positions(sum, host, dim, arrays[2], n);
        int right = memcmp(sum, block, dim * sizeof(float)) == 0;
        for (uint32_t i = 0; i < dim && s->reduce == FRUGAL_MEAN; i++) sum[i] = frugal_div(sum[i], (float)s->devices);
        right &= __atomic_load_n(&c->control->done, __ATOMIC_ACQUIRE) == step.step + 1;
        frugal_store one = *s;
        one.reduce = FRUGAL_SUM;
        frugal_apply(&one, hyper, row, expected, expected + g->state_at, sum);
        if (g->sets > 0) right &= memcmp(expected, copy, (g->state_at + s->state_floats) * sizeof(float)) == 0;
        if (!right)
            status = frugal_fail(FRUGAL_ERR_ARITHMETIC, "device %u, GPU %d: %s", c->device, c->ordinal,
                                 frugal_strerror(FRUGAL_ERR_ARITHMETIC));
    }
    __atomic_store_n(&c->control->done, c->counted, __ATOMIC_RELAXED);
    free(host);
    return status;
}

/* By the settings of each group of tables; where there are several, each has its numbers, and another's would show. */
static frugal_status frugal_priv_self_tests(frugal_priv_cuda *c) {
    uint32_t n = c->store->n_groups;
    frugal_hyper *hyper = (frugal_hyper *)malloc(n * sizeof *hyper);
    frugal_status status = FRUGAL_OK;
    if (!hyper) return frugal_fail(FRUGAL_ERR_MEMORY, "self-test: %zu bytes are not to be had", n * sizeof *hyper);
    for (uint32_t i = 0; i < n; i++) hyper[i].lr = 0.1f + (float)i, hyper[i].step_size = 0.07f + (float)i;
    for (uint32_t i = 0; i < n && status == FRUGAL_OK; i++) status = frugal_priv_self_test(c, i, hyper);
    free(hyper);
    return status;
}

/* A call of the driver, without linking against it; NULL: it has none of that name. */
static void *frugal_priv_find_call(const char *name) {
    void *call = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? call : NULL;
}

/* Is there such a GPU, and a driver that we can use? Makes no context but that GPU's. */
static frugal_status frugal_priv_open_context(frugal_priv_cuda *c) {
    frugal_priv_driver *d = &c->driver;
    int gpus = 0;
    cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error != cudaSuccess || gpus == 0)
        return frugal_fail(FRUGAL_ERR_CUDA,
                           "cuda_attach: no GPU: %s; see that the driver is loaded, or use frugal_cpu_attach",
                           error != cudaSuccess ? cudaGetErrorString(error) : "the driver finds none");
    if (c->ordinal < 0 || c->ordinal >= gpus)
        return frugal_fail(FRUGAL_ERR_DEVICE, "cuda_attach: GPU %d; there are %d, from 0", c->ordinal, gpus);
    d->retain = (CUresult(*)(CUcontext *, CUdevice))frugal_priv_find_call("cuDevicePrimaryCtxRetain");
    d->current = (CUresult(*)(CUcontext *))frugal_priv_find_call("cuCtxGetCurrent");
    d->push = (CUresult(*)(CUcontext))frugal_priv_find_call("cuCtxPushCurrent");
    d->pop = (CUresult(*)(CUcontext *))frugal_priv_find_call("cuCtxPopCurrent");
    d->query = (CUresult(*)(CUstream))frugal_priv_find_call("cuStreamQuery");
    if (!d->retain || !d->current || !d->push || !d->pop || !d->query)
        return frugal_fail(FRUGAL_ERR_CUDA,
                           "cuda_attach: the driver lacks calls that Toolkit 12 has: update the driver");
    CUresult result = d->retain(&c->context, (CUdevice)c->ordinal);
    if (result != CUDA_SUCCESS) c->context = NULL;
    return frugal_priv_check(c, (cudaError_t)result, "cuda_attach");
}

/* Can the GPU do what we need? */
static frugal_status frugal_priv_open_gpu(frugal_priv_cuda *c) {
    int major = 0, minor = 0, mapped = 0, processors = 0;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c->ordinal);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, c->ordinal);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&mapped, cudaDevAttrCanMapHostMemory, c->ordinal);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, c->ordinal);
    if (error != cudaSuccess) return frugal_priv_check(c, error, "cuda_attach");
    if (major * 10 + minor < 75 || !mapped)
        return frugal_fail(FRUGAL_ERR_CUDA, "cuda_attach: GPU %d has compute capability %d.%d%s; 7.5 is the least",
                           c->ordinal, major, minor, mapped ? "" : " and cannot map host memory");
    return frugal_priv_load_kernels(c, processors);
}

/* What the default stream does waits for a blocking stream, and that for it: a copy of anybody's, which the gate may need,
 * would then wait for the gate. */
static frugal_status frugal_priv_check_stream(frugal_priv_cuda *c) {
    unsigned flags = 0;
    if (!c->desc.gate_on_stream) return FRUGAL_OK;
    cudaError_t error = cudaStreamGetFlags(c->stream, &flags);
    if (error != cudaSuccess) return frugal_priv_check(c, error, "cuda_attach: the stream");
    if (flags & cudaStreamNonBlocking) return FRUGAL_OK;
    return frugal_fail(
        FRUGAL_ERR_ARGUMENT,
        "cuda_attach: device %u: gate_on_stream, on %s, would hang with the default stream: give it a stream "
        "made with cudaStreamNonBlocking, or clear gate_on_stream",
        c->device, c->stream ? "a stream that blocks" : "the default stream itself");
}

/* Where the driver can do it, a stream waits without a kernel. */
static void frugal_priv_find_wait_value(frugal_priv_cuda *c) {
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned) =
        (CUresult(*)(CUstream, CUdeviceptr, cuuint64_t, unsigned))frugal_priv_find_call("cuStreamWaitValue64");
    uint64_t passed = frugal_settings(c->f)->first_step; /* gates before the first step's */
    if (wait_value && wait_value((CUstream)c->stream, (CUdeviceptr)(uintptr_t)c->view.gates, passed,
                                 CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS)
        c->driver.wait_value = wait_value;
}

static void frugal_priv_describe(frugal_priv_cuda *c) {
    frugal_priv_view *g = &c->view;
    const frugal_store *s = c->store;
    const frugal_optimizer *o = &s->groups[0].optimizer;
    g->dim = s->dim, g->state_floats = s->state_floats;
    g->state_at = (s->dim + 3) / 4 * 4;
    g->copy_stride = (g->state_at + s->state_floats + 3) / 4 * 4;
    g->partial_stride = (s->dim + 3) / 4 * 4;
    g->kind = s->kind, g->policy = c->desc.policy;
    g->n_groups = s->n_groups;
    g->eps = o->eps, g->decay = o->weight_decay;
    g->rest1 = 1.0f - o->beta1, g->rest2 = 1.0f - o->beta2;
    g->divisor = s->reduce == FRUGAL_MEAN ? (float)s->devices : 0.0f;
}

static frugal_status frugal_priv_open(frugal_priv_cuda *c) {
    void *seen = NULL;
    frugal_status status = frugal_priv_open_gpu(c);
    if (status != FRUGAL_OK) return status;
    if ((status = frugal_priv_check_stream(c)) != FRUGAL_OK) return status;
    frugal_priv_describe(c);
    if ((status = frugal_priv_share_pins(c)) != FRUGAL_OK) return status;
    cudaError_t error = frugal_priv_seen(&c->pins->gates, c->pins->gates.memory.start, &seen);
    c->view.gates = (const uint64_t *)seen;
    if (error == cudaSuccess)
        error = frugal_priv_pin(&c->blocks, frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_BLOCKS));
    if (error == cudaSuccess) error = frugal_priv_seen(&c->blocks, c->blocks.memory.start, &seen);
    c->blocks_seen = (unsigned char *)seen;
    if (error != cudaSuccess) return frugal_priv_check(c, error, "pinning the staging ring");
    /* Batches that are not pinned are copied all the same, if not in the background. */
    frugal_priv_pin(&c->batches, frugal_get_memory(c->f, c->device, FRUGAL_MEMORY_BATCHES));
    if ((status = frugal_priv_open_table(c)) != FRUGAL_OK) return status;
    if ((status = frugal_priv_open_aheads(c)) != FRUGAL_OK) return status;
    if ((status = frugal_priv_open_scratch(c)) != FRUGAL_OK) return status;
    if ((status = frugal_priv_open_cache(c)) != FRUGAL_OK) return status;
    if (c->desc.gate_on_stream) frugal_priv_find_wait_value(c);
    return frugal_priv_self_tests(c);
}

frugal_status frugal_cuda_attach(frugal *f, uint32_t device, int ordinal, const frugal_cuda_desc *desc) {
    if (!f) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_attach: no open instance");
    frugal_cuda_desc none = {};
    if (!desc) desc = &none;
    if (desc->policy > FRUGAL_CACHE_STATIC)
        return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_attach: cache policy %d; there are 0 (LRU) to 2 (static)",
                           (int)desc->policy);
    if (desc->cache_rows > UINT32_MAX - FRUGAL_PRIV_WAYS)
        return frugal_fail(FRUGAL_ERR_LIMIT, "cuda_attach: a cache of %llu rows; the limit is 2^32 - 9",
                           (unsigned long long)desc->cache_rows);
    const frugal_store *store = frugal_get_store(f);
    frugal_status status = frugal_may_attach(f, device); /* before the self-test writes into the device's blocks */
    if (status != FRUGAL_OK) return status;
    frugal_priv_cuda *c = (frugal_priv_cuda *)frugal_allocate(f, sizeof *c, 64);
    if (!c) return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes are not to be had", device, sizeof *c);
    c->f = f, c->store = store, c->device = device, c->ordinal = ordinal, c->desc = *desc;
    c->stream = (cudaStream_t)desc->stream;
    int pending = cudaPeekAtLastError() != cudaSuccess; /* the caller's error stays, ours does not */
    status = frugal_priv_open_context(c);
    if (status == FRUGAL_OK) {
        frugal_priv_on_gpu on(c);
        status = frugal_priv_check(c, (cudaError_t)on.result, "reaching the GPU");
        if (status == FRUGAL_OK) status = frugal_priv_open(c);
        if (status == FRUGAL_OK) status = frugal_attach(f, device, frugal_priv_cuda_ops(), c);
    }
    if (status != FRUGAL_OK) frugal_priv_cuda_close(c);
    if (!pending) cudaGetLastError();
    return status;
}

frugal_status frugal_cuda_get_info(const frugal *f, uint32_t device, frugal_cuda_info *out) {
    const frugal_priv_cuda *c = f ? frugal_priv_cuda_of(f, device) : NULL;
    if (!c)
        return frugal_fail(FRUGAL_ERR_DEVICE, "cuda_get_info: device %u is not attached by frugal_cuda_attach", device);
    if (!out) return frugal_fail(FRUGAL_ERR_ARGUMENT, "cuda_get_info: `out` is NULL");
    out->ordinal = c->ordinal;
    out->cache_rows = c->view.sets * FRUGAL_PRIV_WAYS;
    out->table_is_pinned = !c->view.gathered;
    out->bytes = c->bytes;
    return FRUGAL_OK;
}
