/* directory.cuh - the cache's directory: a word for each way, which says which row has its copy there and when it was
 * used.
 *
 * A word is row << 32 | dirty << 31 | use. Dirty: the copy has an update that the host row lacks, which must be written
 * back before the way is given away. LRU: use is the step of the last touch. Counted: use is worth << 24 | the low 24
 * bits of the step of the last touch. A step 2^24 later has the same bits, so a way may be kept one step longer,
 * which does no harm. Static: use means nothing.
 *
 * Lookups that may write back run in two kernels. The first one touches the ways of the batch's own rows, before any
 * way is claimed, so that no row of the batch is the victim: its copy would be written to the host row, which another
 * group of lanes may be reading at that time. */
#ifndef FRUGAL_CUDA_DIRECTORY_CUH
#define FRUGAL_CUDA_DIRECTORY_CUH

#include "rows.cuh"
#include "../counting.h"

namespace frugal_cuda {

constexpr uint64_t FREE_WORD = UINT64_MAX; /* of a free way */
constexpr uint32_t WORTH_AT = 24, STEP_BITS = 0xffffff;
constexpr uint32_t DIRTY = UINT32_C(1) << 31, USE_BITS = DIRTY - 1;

__device__ static inline uint64_t set_of(uint64_t sets, uint32_t row) {
    return ((row * UINT64_C(0x9E3779B97F4A7C15)) >> 32) * sets >> 32; /* as in src/devices/cpu.c */
}

struct row_touch {            /* of a step */
    uint32_t row, worth, now; /* now: the low bits of the step */
};

/* The word after its row was touched. */
__device__ static inline uint64_t touched_word(frugal_cache_policy policy, uint64_t word, const row_touch &touch) {
    uint64_t row = word & ~(uint64_t)USE_BITS; /* and whether it is dirty */
    if (policy == FRUGAL_CACHE_STATIC) return word;
    if (policy == FRUGAL_CACHE_LRU) return row | (touch.now & USE_BITS);
    return row | touch.worth << WORTH_AT | (touch.now & STEP_BITS);
}

/* Eviction priority of a way, for the row that is touched; 0: never evict. A counted cache gives a way away
 * only for a row that is worth more, by the margin. */
__device__ static inline uint32_t eviction_priority(const gpu_view &g, uint64_t word, const row_touch &touch,
                                                    int preloading) {
    const frugal_cache_policy policy = g.policy;
    uint32_t now = touch.now;
    uint32_t use = (uint32_t)word & USE_BITS;
    if (word == FREE_WORD) return policy == FRUGAL_CACHE_STATIC && !preloading ? 0 : UINT32_MAX;
    if (policy == FRUGAL_CACHE_STATIC || preloading) return 0;
    if (policy == FRUGAL_CACHE_LRU) return (now - use) & USE_BITS;
    uint32_t since = (now - use) & STEP_BITS;                          /* longer ago: higher priority */
    uint32_t left = frugal_worth_left(use >> WORTH_AT, since, g.fall); /* 255 at most */
    if (since == 0 || !frugal_takes_place(touch.worth, left)) return 0;
    return (255 - left) << WORTH_AT | since;
}

/* Frees the ways of copies that other devices have outdated. A way that was claimed in this step stays: its copy is
 * being refreshed. Relaxed, as claims are: a claim and this change the word by compare-and-swap, and one of them
 * fails. */
__device__ static inline void free_outdated(const gpu_view &g, const uint32_t *outdated, uint32_t n, uint32_t now) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint64_t *set = g.words + set_of(g.sets, outdated[i]) * WAYS;
        for (uint32_t way = 0; way < WAYS; way++) {
            gpu_atomic<uint64_t> at(set[way]);
            uint64_t word = at.load(cuda::memory_order_relaxed);
            if ((uint32_t)(word >> 32) != outdated[i] || ((now - (uint32_t)word) & STEP_BITS) == 0) continue;
            at.compare_exchange_strong(word, FREE_WORD, cuda::memory_order_relaxed, cuda::memory_order_relaxed);
        }
    }
}

/* Says what the device keeps. Called by the last block of a kernel, before the block says that the kernel is done.
 * Relaxed: the polling thread acquires the word that is stored after these. */
__device__ static inline void report_kept(const gpu_view &g) {
    const gpu_counters &c = *g.counters;
    system_atomic<uint64_t>(g.control->kept).store(c.kept, cuda::memory_order_relaxed);
    system_atomic<uint64_t>(g.control->dirtied).store(c.dirtied, cuda::memory_order_relaxed);
    system_atomic<uint64_t>(g.control->cleaned).store(c.cleaned, cuda::memory_order_relaxed);
}

/* Is there a copy at a way, and does its host row lack an update? */
__device__ static inline int is_dirty(uint64_t word) {
    return word != FREE_WORD && (word & DIRTY);
}

struct claimed_way {
    uint32_t way;     /* NO_WAY: none */
    int found;        /* 1: the row's copy was there; in this step no other row takes the place */
    uint32_t evicted; /* the row whose dirty copy is still at the way, and must be written back; NO_ROW: none */
};

/* Claims a way for the group's row: that of its copy, or one that it takes over. All lanes of the warp call it;
 * `active`: the group has a row. */
template <int V, bool KEEPS>
__device__ static claimed_way claim_way(const gpu_view &g, const lane_group<V> &group, const row_touch &touch,
                                        int active, int preloading) {
    uint32_t row = touch.row;
    uint64_t base = set_of(g.sets, row) * WAYS;
    claimed_way claimed = {NO_WAY, 0, NO_ROW};
    int looking = active && g.sets > 0;
    while (__any_sync(FULL_WARP, looking)) {
        int has_way = looking && group.lane < WAYS, won = 0;
        uint64_t *at = g.words + base + (has_way ? group.lane : 0);
        uint64_t word = FREE_WORD;
        if (has_way) word = gpu_atomic<uint64_t>(*at).load(cuda::memory_order_relaxed);
        uint32_t mine = group.bits(__ballot_sync(FULL_WARP, has_way && (uint32_t)(word >> 32) == row));
        uint32_t priority = has_way ? eviction_priority(g, word, touch, preloading) : 0, highest = priority;
        for (int distance = 4; distance > 0; distance /= 2) { /* of the 8 lanes that have a way */
            uint32_t other = __shfl_xor_sync(FULL_WARP, highest, distance);
            highest = other > highest ? other : highest;
        }
        uint32_t victims = group.bits(__ballot_sync(FULL_WARP, has_way && priority == highest && priority > 0));
        uint32_t candidates = mine ? mine : victims, turn = row % WAYS; /* so that not all rows take the same way */
        uint32_t turned = (candidates >> turn | candidates << (WAYS - turn)) & 0xff;
        uint32_t way = candidates ? ((uint32_t)__ffs((int)turned) - 1 + turn) % WAYS : WAYS;
        if (has_way && way == group.lane) {
            uint64_t taken_over = (uint64_t)row << 32;
            uint64_t wanted = touched_word(g.policy, mine ? word : taken_over, touch);
            won = wanted == word || gpu_atomic<uint64_t>(*at).compare_exchange_strong(
                                        word, wanted, cuda::memory_order_relaxed, cuda::memory_order_relaxed);
        }
        uint32_t winners = group.bits(__ballot_sync(FULL_WARP, won));
        uint32_t evicted = NO_ROW;
        if (KEEPS) {
            evicted = !mine && is_dirty(word) ? (uint32_t)(word >> 32) : NO_ROW;
            evicted = __shfl_sync(FULL_WARP, evicted, (int)(group.leader + way % WAYS));
        }
        if (!looking || (candidates && !winners)) continue; /* another group was faster: once more */
        looking = 0;
        if (winners) claimed.way = (uint32_t)base + way, claimed.evicted = evicted;
        claimed.found = winners && mine;
    }
    return claimed;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_DIRECTORY_CUH */
