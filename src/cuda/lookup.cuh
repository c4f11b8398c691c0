/* lookup.cuh - kernels of a lookup: gather unique rows, spread them to their other positions, pool bags. */
#ifndef FRUGAL_CUDA_LOOKUP_CUH
#define FRUGAL_CUDA_LOOKUP_CUH

#include "directory.cuh"
#include "gate.cuh"
#include "types.cuh"

namespace frugal_cuda {

/* Copies the whole state of a row, which is one float, or vectors like the weights. */
template <int V>
__device__ static inline void copy_state(const gpu_view &g, const lane_group<V> &group, float *to, const float *from) {
    if (g.state_floats == 1) {
        if (group.lane == 0) to[0] = from[0];
        return;
    }
    for (uint32_t e = group.lane * V; e < g.state_floats; e += 32) store_pack<V>(to + e, load_pack<V>(from + e));
}

struct row_source {
    const void *at;
    frugal_type as;
};

struct row_targets { /* where a row is written to */
    void *copy;      /* of the row's type; NULL: nowhere */
    void *out;       /* out[][stride]: row order[k] for k < n; row 0 if order is NULL */
    uint64_t stride; /* elements */
    frugal_type as;  /* of `out` */
    uint32_t n;
    const uint32_t *order;
};

/* Reads a row's elements once, and writes them to its copy, whose bits are the row's, and to its first positions, or
 * its record, in their type. */
template <int V, element_types T>
__device__ static inline void gather_row(const gpu_view &g, const lane_group<V> &group, const row_source &from,
                                         const row_targets &to) {
    for (uint32_t tile = group.lane * V; tile < g.dim; tile += TILE) {
        const void *row = element_at<T>(from.at, from.as, tile);
        raw_pack<V, T> x[PASSES] = {};
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++) /* all are under way before the first is stored */
            if (tile + 32 * p < g.dim) x[p] = load_raw<V, T>(row, from.as, 32 * p);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++)
            if (to.copy && tile + 32 * p < g.dim)
                store_raw<V, T>(element_at<T>(to.copy, from.as, tile), from.as, 32 * p, x[p]);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++)
            if (T == ANY_TYPES && to.n > 0) x[p] = converted<V, T>(x[p], from.as, to.as);
        for (uint32_t k = 0; k < to.n; k++) {
            void *out = element_at<T>(to.out, to.as, (to.order ? to.order[k] : 0) * to.stride + tile);
            FRUGAL_ALL_PASSES
            for (uint32_t p = 0; p < PASSES; p++)
                if (tile + 32 * p < g.dim) store_raw<V, T>(out, to.as, 32 * p, x[p]);
        }
    }
}

/* Reads a row, and writes it to another place of the same type. */
template <int V, element_types T>
__device__ static inline void copy_row(const gpu_view &g, const lane_group<V> &group, void *to, const void *from) {
    gather_row<V, T>(g, group, {from, g.rows_as}, {to, NULL, 0, g.rows_as, 0, NULL});
}

/* Fetches the bits of the rows that the update will update in place. They are set when the gate is open, and the update
 * would read them over the link for each row. Relaxed: the gate was acquired before; behind a gate that was forced open
 * they may be changing, and are not used. */
__device__ static inline void fetch_alone(const gpu_view &g, const step_fields &step) {
    uint32_t words = (step.n_unique() + 63) / 64;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
        g.alone[i] = system_atomic<uint64_t>(const_cast<uint64_t *>(step.alone())[i]).load(cuda::memory_order_relaxed);
}

/* Writes a copy to its host row, with the same bits. The thread that reads an element of the copy is the one that then
 * overwrites it, if the way is given to another row. */
template <int V, element_types T>
__device__ static inline void write_back_copy(const gpu_view &g, const lane_group<V> &group, uint32_t way,
                                              uint32_t row) {
    const float *copy = g.copies + (uint64_t)way * g.copy_stride;
    copy_row<V, T>(g, group, host_row<T>(g, row), copy);
    if (g.state_floats) copy_state<V>(g, group, g.state + row * g.state_stride, copy + g.state_at);
}

/* Touches the ways of the batch's rows, before any way is claimed (directory.cuh). Each row is done by one thread,
 * and no other kernel is at the directory. Relaxed, both: nothing is read through a word here. */
__global__ void frugal_touch_kernel(gpu_view g, gpu_step given) {
    const step_fields step = {g, given};
    uint32_t now = (uint32_t)step.step();
    if (step.waits() && g.counters->forced) return;
    const uint32_t n_own = step.n_unique() - step.n_guests();
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n_own; i += gridDim.x * blockDim.x) {
        const row_touch touch = {step.rows()[i], step.worth() ? step.worth()[i] : 0u, now};
        uint64_t *set = g.words + set_of(g.sets, touch.row) * WAYS;
        for (uint32_t way = 0; way < WAYS; way++) {
            gpu_atomic<uint64_t> at(set[way]);
            uint64_t word = at.load(cuda::memory_order_relaxed);
            if ((uint32_t)(word >> 32) == touch.row)
                at.store(touched_word(g.policy, word, touch), cuda::memory_order_relaxed);
        }
    }
}

/* Reads the copies of rows[n] anew from the host rows. No other kernel is at the directory, so words are read relaxed.
 * Groups with the same row write the same. */
template <int V, element_types T>
__device__ static inline void refresh_copies(const gpu_view &g, const uint32_t *rows, uint32_t n) {
    lane_group<V> group;
    for (uint64_t at = group.first; at < n; at += group.stride) {
        uint64_t item = at + group.of_warp;
        int active = item < n, has_way = active && group.lane < WAYS;
        uint32_t row = active ? rows[item] : NO_ROW;
        uint64_t base = set_of(g.sets, row) * WAYS;
        uint64_t word = FREE_WORD;
        if (has_way) word = gpu_atomic<uint64_t>(g.words[base + group.lane]).load(cuda::memory_order_relaxed);
        uint32_t found = group.bits(__ballot_sync(FULL_WARP, has_way && (uint32_t)(word >> 32) == row));
        if (found == 0) continue;
        float *copy = g.copies + (base + (uint32_t)__ffs((int)found) - 1) * g.copy_stride;
        copy_row<V, T>(g, group, copy, host_row<T>(g, row));
        if (g.state_floats) copy_state<V>(g, group, copy + g.state_at, g.state + row * g.state_stride);
    }
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_refresh_kernel(gpu_view g, const uint32_t *rows, uint32_t n) {
    refresh_copies<V, FLOATS>(g, rows, n);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_refresh_typed_kernel(gpu_view g, const uint32_t *rows, uint32_t n) {
    refresh_copies<V, ANY_TYPES>(g, rows, n);
}

/* One pass over the unique rows of a batch. It reads a valid copy, or else the host row, with which the copy is
 * refreshed or inserted, and writes what it read to the row's first 32 positions, or by record. For preloading only the
 * cache is written. */
template <int V, element_types T, bool KEEPS>
__device__ static inline void lookup_rows(const gpu_view &g, const gpu_step &given, const row_output &to,
                                          int preloading) {
    const step_fields step = {g, given};
    lane_group<V> group;
    uint32_t now = (uint32_t)step.step(), hits = 0, cleaned = 0, n_own = step.n_unique() - step.n_guests();
    int keeps = KEEPS && (T == FLOATS || g.keeps); /* a device of any type has one kernel */
    int into_block = to.by_record && !to.rows;
    if (step.waits() && (keeps || into_block)) {
        if (g.counters->forced) return; /* noted before; nothing may be written back or into the block now */
    } else if (step.waits() && !given.replayed && blockIdx.x == 0 && threadIdx.x == 0) {
        note_forced(g, step.step()); /* for the update; in a graph, frugal_begin_kernel has asked */
    }
    void *out = into_block ? step.block() : to.rows;
    if (step.alone()) fetch_alone(g, step);
    if (g.sets > 0 && step.n_outdated() > 0 && !step.repeated())
        free_outdated(g, step.outdated(), step.n_outdated(), now);
    for (uint64_t at = group.first; at < step.n_unique(); at += group.stride) {
        uint64_t item = at + group.of_warp;
        int active = item < step.n_unique(), is_own = item < n_own; /* else it has no copy, and no way */
        uint32_t row = active ? step.rows()[item] : 0;
        uint32_t secondary = active && step.secondaries() ? step.secondaries()[item] : NO_WAY;
        uint32_t worth = active && step.worth() ? step.worth()[item] : 0;
        claimed_way claimed =
            claim_way<V, KEEPS>(g, group, {row, worth, now}, is_own && secondary == NO_WAY, preloading);
        int has_copy = claimed.found || secondary != NO_WAY;
        int valid = has_copy && !preloading && frugal_copy_is_current(step.valid(), item);
        hits += (uint32_t)__popc(__ballot_sync(FULL_WARP, valid && group.lane == 0));
        if (KEEPS) cleaned += (uint32_t)__popc(__ballot_sync(FULL_WARP, claimed.evicted != NO_ROW && group.lane == 0));
        if (!active) continue;
        if (KEEPS && claimed.evicted != NO_ROW) write_back_copy<V, T>(g, group, claimed.way, claimed.evicted);
        if (group.lane == 0 && g.sets > 0 && !preloading) g.ways[item] = claimed.way;
        uint64_t source = g.gathered ? item : row;
        float *copy = claimed.way != NO_WAY ? g.copies + (uint64_t)claimed.way * g.copy_stride : NULL;
        if (secondary != NO_WAY) copy = step.secondary_copies() + (uint64_t)secondary * g.copy_stride;
        const void *at_home = is_own ? host_row<T>(g, source) : guest_row<T>(g, step, item - n_own);
        const row_source row_at = {valid ? copy : at_home, g.rows_as};
        float *refreshed = valid ? NULL : copy;
        row_targets targets = {refreshed, out, to.stride, to.as, 0, NULL};
        if (!preloading && to.by_record) {
            targets.out = element_at<T>(out, to.as, item * to.stride), targets.n = 1;
        } else if (!preloading) {
            uint32_t k = step.start()[item], n = step.start()[item + 1] - k;
            targets.n = n < CHUNK ? n : CHUNK, targets.order = step.order() + k;
        }
        gather_row<V, T>(g, group, row_at, targets);
        if (refreshed && g.state_floats)
            copy_state<V>(g, group, refreshed + g.state_at, g.state + source * g.state_stride);
    }
    if (threadIdx.x % WARP == 0 && hits && !step.repeated() && !preloading)
        gpu_atomic<unsigned long long>(g.counters->hits).fetch_add(hits, cuda::memory_order_relaxed);
    if (KEEPS && threadIdx.x % WARP == 0 && cleaned)
        gpu_atomic<unsigned long long>(g.counters->cleaned).fetch_add(cleaned, cuda::memory_order_relaxed);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_lookup_kernel(gpu_view g, gpu_step given, row_output to, int preloading) {
    lookup_rows<V, FLOATS, false>(g, given, to, preloading);
}

/* For devices that keep updates: a dirty copy is written back before its way is given away. */
template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_lookup_kept_kernel(gpu_view g, gpu_step given, row_output to) {
    lookup_rows<V, FLOATS, true>(g, given, to, 0);
}

/* Both, for rows and arrays of any type. */
template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_lookup_typed_kernel(gpu_view g, gpu_step given, row_output to, int preloading) {
    lookup_rows<V, ANY_TYPES, true>(g, given, to, preloading);
}

/* Writes the other positions of rows that have more than 32, from the first position, which is written already. Each
 * group does a chunk, so that no group is left alone with a hot row. */
template <int V, element_types T>
__device__ static inline void spread_rows(const gpu_view &g, const gpu_step &given, const row_output &to) {
    const step_fields step = {g, given};
    lane_group<V> group;
    for (uint64_t item = group.first + group.of_warp; item < step.n_chunks(); item += group.stride) {
        const row_chunk chunk = step.chunks()[item];
        uint32_t begin = step.start()[chunk.unique], end = step.start()[chunk.unique + 1];
        uint32_t k = begin + ((uint32_t)item - chunk.first) * CHUNK;
        if (k == begin) continue;
        const void *row = element_at<T>(to.rows, to.as, step.order()[begin] * to.stride);
        uint32_t n = end - k < CHUNK ? end - k : CHUNK;
        gather_row<V, T>(g, group, {row, to.as}, {NULL, to.rows, to.stride, to.as, n, step.order() + k});
    }
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4) frugal_spread_kernel(gpu_view g, gpu_step given, row_output to) {
    spread_rows<V, FLOATS>(g, given, to);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 4)
    frugal_spread_typed_kernel(gpu_view g, gpu_step given, row_output to) {
    spread_rows<V, ANY_TYPES>(g, given, to);
}

/* Pools the rows that were looked up by record, as floats, into [n_bags][dim]; each group pools one bag at a time.
 * Invalid offsets are cut and reported. */
template <int V, element_types T>
__device__ static inline void pool_bags(const gpu_view &g, const gpu_step &step, const frugal_bags &bags,
                                        const row_output &to) {
    lane_group<V> group;
    for (uint64_t bag = group.first + group.of_warp; bag < bags.n_bags; bag += group.stride) {
        uint32_t begin = bags.offsets[bag], end = bags.offsets[bag + 1];
        int bad = begin > end || end > step.n || (bag == 0 && begin != 0) || (bag + 1 == bags.n_bags && end != step.n);
        if (bad && group.lane == 0) /* relaxed: a message */
            system_atomic<uint64_t>(g.control->bad_bags).store(step.step + 1, cuda::memory_order_relaxed);
        end = end < step.n ? end : step.n;
        for (uint32_t i = begin + group.lane; i < end; i += group.LANES) /* relaxed: invalid bags may overlap */
            gpu_atomic<uint32_t>(g.bag_of[i]).store((uint32_t)bag, cuda::memory_order_relaxed);
        for (uint32_t e = group.lane * V; e < g.dim; e += 32) {
            pack<V> sum = {};
            FRUGAL_SOME_ROWS
            for (uint32_t i = begin; i < end; i++) {
                pack<V> x = load_pack<V>(g.unique + (uint64_t)step.record_of[i] * g.unique_stride + e);
                pool_row<V>(bags, i, i == begin, x, &sum);
            }
            end_pool<V>(bags, begin < end ? end - begin : 0, &sum);
            void *pooled = element_at<T>(to.rows, to.as, bag * to.stride);
            store_raw<V, T>(pooled, to.as, e, nearest<V, T>(sum, to.as));
        }
    }
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    frugal_pool_kernel(gpu_view g, gpu_step step, frugal_bags bags, row_output to) {
    pool_bags<V, FLOATS>(g, step, bags, to);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS)
    frugal_pool_typed_kernel(gpu_view g, gpu_step step, frugal_bags bags, row_output to) {
    pool_bags<V, ANY_TYPES>(g, step, bags, to);
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_LOOKUP_CUH */
