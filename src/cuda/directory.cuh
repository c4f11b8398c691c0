/* directory.cuh - the cache's directory: a word for each place, which says which row has its copy there and when it was
 * used.
 *
 * A word is row << 32 | use. LRU: use is the step of the last touch. LFU: use is touches << 8 | the low 8 bits of the
 * step of the last touch. A step 256 later has the same bits, so a place may be kept one step longer, which does no
 * harm. Static: use means nothing. */
#ifndef FRUGAL_CUDA_DIRECTORY_CUH
#define FRUGAL_CUDA_DIRECTORY_CUH

#include "rows.cuh"

namespace frugal_cuda {

constexpr uint64_t FREE_WORD = UINT64_MAX; /* of a free place */

__device__ static inline uint64_t set_of(uint64_t sets, uint32_t row) {
    return ((row * UINT64_C(0x9E3779B97F4A7C15)) >> 32) * sets >> 32; /* as in src/cpu.c */
}

/* The word after its row was touched at the step `now`. */
__device__ static inline uint64_t touched_word(frugal_cache_policy policy, uint64_t word, uint32_t now) {
    uint64_t row = word & ~UINT64_C(0xffffffff);
    uint32_t touches = (uint32_t)word >> 8;
    if (policy == FRUGAL_CACHE_STATIC) return word;
    if (policy == FRUGAL_CACHE_LRU) return row | now;
    return row | (touches < 0xffffff ? touches + 1 : touches) << 8 | (now & 0xff);
}

/* Eviction priority of a place; 0: never evict. */
__device__ static inline uint32_t eviction_priority(frugal_cache_policy policy, uint64_t word, uint32_t now,
                                                    int preloading) {
    uint32_t use = (uint32_t)word;
    if (word == FREE_WORD) return policy == FRUGAL_CACHE_STATIC && !preloading ? 0 : UINT32_MAX;
    if (policy == FRUGAL_CACHE_STATIC || preloading) return 0;
    if (policy == FRUGAL_CACHE_LRU) return now - use < UINT32_MAX ? now - use : UINT32_MAX - 1;
    uint32_t touches = use >> 8 < 0xfffffe ? use >> 8 : 0xfffffe;
    uint32_t since = (now - use) & 0xff; /* longer ago: higher priority */
    return since == 0 ? 0 : (0xfffffe - touches) << 8 | since;
}

/* Under LFU, rows that were hot long ago must be evictable. So when a row of a set is evicted, the touches of the
 * others are halved. This has no effect if another group changes the word meanwhile. */
__device__ static inline void halve_touches(uint64_t *word) {
    gpu_atomic<uint64_t> at(*word);
    uint64_t found = at.load(cuda::memory_order_relaxed);
    if (found == FREE_WORD) return;
    uint64_t wanted = (found & ~UINT64_C(0xffffffff)) | ((uint32_t)found >> 9 << 8) | (found & 0xff);
    at.compare_exchange_strong(found, wanted, cuda::memory_order_relaxed, cuda::memory_order_relaxed);
}

struct claimed_place {
    uint32_t place; /* NO_PLACE: none */
    int found;      /* 1: the row's copy was there; in this step no other row takes the place */
};

/* Claims a place for the group's row: that of its copy, or one that it takes over. All lanes of the warp call it;
 * `active`: the group has a row. */
template <int V>
__device__ static claimed_place claim_place(const gpu_view &g, const lane_group<V> &group, uint32_t row, uint32_t now,
                                            int active, int preloading) {
    uint64_t base = set_of(g.sets, row) * WAYS;
    claimed_place claimed = {NO_PLACE, 0};
    int looking = active && g.sets > 0;
    while (__any_sync(FULL_WARP, looking)) {
        int has_way = looking && group.lane < WAYS, won = 0;
        uint64_t *at = g.words + base + (has_way ? group.lane : 0);
        uint64_t word = FREE_WORD;
        if (has_way) word = gpu_atomic<uint64_t>(*at).load(cuda::memory_order_relaxed);
        uint32_t mine = group.bits(__ballot_sync(FULL_WARP, has_way && (uint32_t)(word >> 32) == row));
        uint32_t priority = has_way ? eviction_priority(g.policy, word, now, preloading) : 0, highest = priority;
        for (int half = 4; half > 0; half /= 2) { /* of the 8 lanes that have a way */
            uint32_t other = __shfl_xor_sync(FULL_WARP, highest, half);
            highest = other > highest ? other : highest;
        }
        uint32_t victims = group.bits(__ballot_sync(FULL_WARP, has_way && priority == highest && priority > 0));
        uint32_t candidates = mine ? mine : victims, turn = row % WAYS; /* so that not all rows take the same place */
        uint32_t turned = (candidates >> turn | candidates << (WAYS - turn)) & 0xff;
        uint32_t way = candidates ? ((uint32_t)__ffs((int)turned) - 1 + turn) % WAYS : WAYS;
        if (has_way && way == group.lane) {
            uint64_t taken_over = (uint64_t)row << 32; /* this is its first touch */
            uint64_t wanted = touched_word(g.policy, mine ? word : taken_over, now);
            won = wanted == word || gpu_atomic<uint64_t>(*at).compare_exchange_strong(
                                        word, wanted, cuda::memory_order_relaxed, cuda::memory_order_relaxed);
        }
        uint32_t winners = group.bits(__ballot_sync(FULL_WARP, won));
        int evicts = has_way && winners && !mine && highest < UINT32_MAX;
        if (evicts && g.policy == FRUGAL_CACHE_COUNTED && way != group.lane) halve_touches(at);
        if (!looking || (candidates && !winners)) continue; /* another group was faster: once more */
        looking = 0;
        if (winners) claimed.place = (uint32_t)base + way;
        claimed.found = winners && mine;
    }
    return claimed;
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_DIRECTORY_CUH */
