/* lookup_ladder.cu - the gather of a batch on a GPU, from one thread per position to the kernel in use, a rung at a
 * time.
 *
 *     build/cuda/lookup_ladder                    all rungs, uniform and skewed keys, beside speeds of link and memory
 *     build/cuda/lookup_ladder --kernel 4 --dim 128 --json
 *     build/cuda/lookup_ladder --check            only: are the bits right? (TAP)
 *
 * The table lies in host memory, pinned and mapped: a kernel reads a row through the link (PCI Express) by loading from
 * it, as from its own memory. A batch has n positions and n_unique rows; rows[n_unique] are rising, and order[start[u]]
 * .. order[start[u + 1] - 1] are the positions of row u. The result is out[n][dim]: the row of each position.
 *
 * The link is what a lookup waits for: 64 GB/s at best, 1 to 2 us there and back, in requests of 32 to 128 bytes, each
 * with some 24 bytes of header; the GPU's own memory gives forty times as much. So, in this order: fetch each row once;
 * in the largest possible requests; keep enough requests under way; do not fetch rows that are in the GPU's memory
 * already; and do not let all threads wait for one hot row.
 *
 * Loads of the table are ordinary ones. The compiler would take the read-only path (ld.global.nc) for a `const
 * __restrict__` pointer, which is wrong for rows that the host may be writing while a kernel that does not read them
 * runs.
 */
#include "bench/cuda/ladder.h"

typedef struct lookup {
    ladder_batch batch;
    const float *table; /* the host's: row r at table + r * stride; rows start on 16 bytes, dim is a multiple of 4 */
    uint64_t stride;
    uint32_t dim, step;
    ladder_cache cache;       /* from kernel 4 on */
    unsigned long long *hits; /* from kernel 4 on; may be NULL */
    float *out;               /* out[n][dim] */
    int64_t *found;           /* found[n_unique], for kernel 6: see there */
    uint32_t *turns;          /* turns[2]: units of missed and of found rows that warps have taken */
    uint32_t link_blocks;
} lookup;

/* The CPU's version, with which all kernels are compared. copies[u]: a host pointer to the copy of row u, or NULL;
 * `copies` may be NULL. */
static void lookup_reference(const ladder_lists *batch, const float *table, uint64_t stride, uint32_t dim,
                             const float *const *copies, float *out) {
    for (uint32_t i = 0; i < batch->order.size(); i++) {
        uint32_t u = batch->record_of[i];
        const float *from =
            copies && copies[u] && ladder_is_valid(batch, u) ? copies[u] : table + batch->rows[u] * stride;
        memcpy(out + (uint64_t)i * dim, from, dim * sizeof(float));
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 1: one thread per position, float by float. The lanes of a warp read 32 rows at a time, 4 bytes of each: a
 * load is 32 requests of 32 bytes, and the rest of the 32 bytes may no longer be in a cache when its turn comes. A row
 * with a thousand positions crosses the link up to a thousand times.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void lookup_kernel1(lookup a) {
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (i >= a.batch.n) return;
    const float *from = a.table + a.batch.rows[a.batch.record_of[i]] * a.stride;
    for (uint32_t d = 0; d < a.dim; d++) a.out[i * a.dim + d] = from[d];
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 2: one warp per unique row. Each row crosses the link once, and is written to all of its positions from
 * registers. The lanes read neighbouring floats, so a load is one request of 128 bytes, used whole.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void lookup_kernel2(lookup a) {
    uint64_t u = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32;
    if (u >= a.batch.n_unique) return;
    const float *from = a.table + a.batch.rows[u] * a.stride;
    for (uint32_t d = threadIdx.x % 32; d < a.dim; d += 32) {
        float x = from[d];
        for (uint32_t k = a.batch.start[u]; k < a.batch.start[u + 1]; k++)
            a.out[(uint64_t)a.batch.order[k] * a.dim + d] = x;
    }
}

/* Up to 128 floats of a row, a lane's share of them: all loads are issued before the first result is needed. */
typedef struct quarter {
    float4 x[LADDER_PASSES];
} quarter;

static __device__ quarter training_load(const float *from, uint32_t left) { /* left: floats of the row from here on */
    quarter q;
    LADDER_UNROLLED
    for (uint32_t p = 0; p < LADDER_PASSES; p++) {
        uint32_t d = p * LADDER_PASS + threadIdx.x % LADDER_LANES * 4;
        if (d < left) q.x[p] = *(const float4 *)(from + d);
    }
    return q;
}

static __device__ void store(float *to, const quarter *q, uint32_t left) {
    LADDER_UNROLLED
    for (uint32_t p = 0; p < LADDER_PASSES; p++) {
        uint32_t d = p * LADDER_PASS + threadIdx.x % LADDER_LANES * 4;
        if (d < left) *(float4 *)(to + d) = q->x[p];
    }
}

/* Eight lanes: copy a row from `from` to positions order[begin] .. order[end - 1] and, if the cache keeps it, to
 * `copy`. */
static __device__ void spread(const lookup *a, const float *from, uint32_t begin, uint32_t end, float *copy) {
    for (uint32_t at = 0; at < a->dim; at += LADDER_PASSES * LADDER_PASS) {
        uint32_t left = a->dim - at;
        quarter q = training_load(from + at, left);
        if (copy) store(copy + at, &q, left);
        for (uint32_t k = begin; k < end; k++) store(a->out + (uint64_t)a->batch.order[k] * a->dim + at, &q, left);
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 3: eight lanes per row, 16 bytes each. A warp has four rows under way instead of one, in requests as large as
 * before and with a quarter of the instructions; a row of 128 floats is four loads at once, where kernel 2 stored
 * before it loaded again (it could not know that `out` is not the table). The grid has as many blocks as the GPU holds
 * at a time, and each group takes one row after another, so that no block is started and ended for a few rows.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void lookup_kernel3(lookup a) {
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / LADDER_LANES;
    uint64_t u = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / LADDER_LANES;
    for (; u < a.batch.n_unique; u += groups)
        spread(&a, a.table + a.batch.rows[u] * a.stride, a.batch.start[u], a.batch.start[u + 1], NULL);
}

/* Is this lane's way the one to evict for the row? That is the way that was not touched for longest, and never one that
 * was touched in this step. Its age is the greatest of eight, found by three exchanges. Among equal ones each row
 * prefers a different one, so that not all rows want the same free way. */
static __device__ int is_victim(unsigned long long word, uint32_t row, uint32_t step) {
    uint32_t age = step - (uint32_t)word;
    if (word >> 32 == LADDER_NO_ROW || age > LADDER_FULL >> 3) age = LADDER_FULL >> 3;
    uint32_t mine = age << 3 | (threadIdx.x + row) % LADDER_LANES, best = mine;
    for (int apart = 4; apart > 0; apart /= 2) {
        uint32_t other = __shfl_xor_sync(LADDER_FULL, best, apart);
        best = other > best ? other : best;
    }
    return best == mine && age > 0;
}

/* Eight lanes look for a row, a way each, and touch it, or take a way for it: the place that they own until the kernel
 * ends, or -1; *found: the row was there. All lanes of the warp call it; those without a row ask for NO_ROW. */
static __device__ int64_t claim(const lookup *a, uint32_t row, int *found) {
    const ladder_cache *c = &a->cache;
    *found = 0;
    if (c->sets == 0) return -1;
    uint32_t lane = threadIdx.x % LADDER_LANES, shift = threadIdx.x % 32 / LADDER_LANES * LADDER_LANES;
    uint64_t set = ladder_set_of(c, row) * LADDER_WAYS;
    ladder_word_ref way(c->words[set + lane]);
    unsigned long long word = way.load(cuda::memory_order_relaxed);
    int exists = row != LADDER_NO_ROW, is_it = exists && word >> 32 == row;
    *found = (__ballot_sync(LADDER_FULL, is_it) >> shift & 0xff) != 0;
    int takes = is_it;
    if (c->inserts) { /* all lanes take the same branch */
        int victim = is_victim(word, row, a->step);
        if (exists && !*found) takes = victim;
    }
    /* Another group may have taken the way since: then the row is read from the host, and not kept. Relaxed, because
     * only the word itself is communicated: the copy is read only by later kernels. */
    int taken = takes && way.compare_exchange_strong(word, ladder_word(row, a->step), cuda::memory_order_relaxed,
                                                     cuda::memory_order_relaxed);
    uint32_t owned = __ballot_sync(LADDER_FULL, taken) >> shift & 0xff;
    return owned ? (int64_t)(set + __ffs((int)owned) - 1) : -1;
}

/* Row u of the batch through the cache, to its first `most` positions; 1 where it hit. u is below n_unique, or the
 * group has no row and only takes part in its warp's votes. */
static __device__ int look_up(const lookup *a, uint64_t u, uint32_t most) {
    const ladder_batch *b = &a->batch;
    int exists = u < b->n_unique, found;
    uint32_t row = exists ? b->rows[u] : LADDER_NO_ROW;
    int64_t place = claim(a, row, &found);
    if (!exists) return 0;
    float *copy = place >= 0 ? a->cache.copies + (uint64_t)place * a->cache.stride : NULL;
    int hit = copy && found && (b->valid[u / 64] >> u % 64 & 1);
    const float *from = hit ? copy : a->table + row * a->stride;
    uint32_t begin = b->start[u], end = b->start[u + 1];
    spread(a, from, begin, end - begin > most ? begin + most : end, hit ? NULL : copy);
    return hit;
}

static __device__ void look_up_all(const lookup *a, uint32_t most) {
    uint64_t thread = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, group = thread / LADDER_LANES;
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / LADDER_LANES, in_warp = group % (32 / LADDER_LANES);
    unsigned long long hits = 0;
    for (uint64_t first = group - in_warp; first < a->batch.n_unique; first += groups) /* equal for a whole warp */
        hits += (unsigned long long)look_up(a, first + in_warp, most);
    if (hits && a->hits && threadIdx.x % LADDER_LANES == 0)
        cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>(*a->hits).fetch_add(hits,
                                                                                            cuda::memory_order_relaxed);
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 4: through a cache in the GPU's memory. Each of the eight lanes looks at one of the eight ways: one coalesced
 * load and one vote find a row. A hit does not touch the link, which makes skewed keys faster; a miss is written to the
 * cache from the same registers. No lock: one compare-and-swap of the way's word, from what was seen to {row, this
 * step}, makes the copy ours (ladder_cache).
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void lookup_kernel4(lookup a) {
    look_up_all(&a, LADDER_NO_ROW);
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 5: hot rows in parts. With Zipf keys one row has a thousandth to a tenth of all positions, and in kernel 4
 * eight lanes write them all, one after the other, long after the rest of the GPU is done. Here a group writes 32 of
 * them; the others are copied by a second kernel, with one group per part, from the first position, which is in the
 * GPU's memory now. The list of parts is made when the batch is announced; where it is empty, as with uniform keys,
 * there is no second kernel.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void lookup_kernel5(lookup a) {
    look_up_all(&a, LADDER_SUM);
}

static __global__ void lookup_kernel5_parts(lookup a) {
    const ladder_batch *b = &a.batch;
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / LADDER_LANES;
    uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / LADDER_LANES;
    for (; i < b->n_parts; i += groups) {
        ladder_part p = b->parts[i];
        uint32_t first = b->start[p.record], begin = first + p.part * LADDER_SUM, end = b->start[p.record + 1];
        if (p.part == 0) continue;
        if (end - begin > LADDER_SUM) end = begin + LADDER_SUM;
        spread(&a, a.out + (uint64_t)b->order[first] * a.dim, begin, end, NULL);
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 6: rows that miss in blocks of their own (factored extraction: UGache, section 5.3). Few requests under way
 * keep a link busy: its bandwidth times its latency. A few blocks have that many. In kernel 5 every warp waits for the
 * link as soon as one of its four rows has missed. Here a first pass claims the rows' places in the cache and notes
 * what it found. Then the first blocks copy only rows that missed, and, when these are done, the others; all other
 * blocks copy rows that were found. Warps take 64 rows at a time from two counts.
 * --------------------------------------------------------------------------------------------------------- */
#define LADDER_UNIT 64u

/* found[u]: twice the way, and 1 if the copy is current; -1: the cache has no way for the row. */
static __global__ void lookup_kernel6_find(lookup a) {
    const ladder_batch *b = &a.batch;
    uint64_t thread = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, group = thread / LADDER_LANES;
    uint64_t groups = (uint64_t)gridDim.x * blockDim.x / LADDER_LANES, in_warp = group % (32 / LADDER_LANES);
    unsigned long long hits = 0;
    if (thread == 0) a.turns[0] = a.turns[1] = 0;
    for (uint64_t first = group - in_warp; first < b->n_unique; first += groups) { /* equal for a whole warp */
        uint64_t u = first + in_warp;
        int is_there;
        int64_t place = claim(&a, u < b->n_unique ? b->rows[u] : LADDER_NO_ROW, &is_there);
        if (u >= b->n_unique) continue;
        int hit = place >= 0 && is_there && (b->valid[u / 64] >> u % 64 & 1);
        if (threadIdx.x % LADDER_LANES == 0) a.found[u] = place < 0 ? -1 : 2 * place + hit, hits += (unsigned)hit;
    }
    if (hits && a.hits)
        cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>(*a.hits).fetch_add(hits,
                                                                                           cuda::memory_order_relaxed);
}

static __global__ void lookup_kernel6(lookup a) {
    const ladder_batch *b = &a.batch;
    uint32_t units = (b->n_unique + LADDER_UNIT - 1) / LADDER_UNIT;
    int hits = blockIdx.x >= a.link_blocks;
    for (;;) {
        uint32_t unit = 0;
        if (threadIdx.x % 32 == 0) /* relaxed: only numbers are given out */
            unit = cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(a.turns[hits])
                       .fetch_add(1, cuda::memory_order_relaxed);
        unit = __shfl_sync(LADDER_FULL, unit, 0);
        if (unit >= units && hits) break;
        if (unit >= units) {
            hits = 1;
            continue;
        }
        for (uint32_t k = threadIdx.x % 32 / LADDER_LANES; k < LADDER_UNIT; k += 32 / LADDER_LANES) {
            uint64_t u = (uint64_t)unit * LADDER_UNIT + k;
            if (u >= b->n_unique) break;
            int64_t found = a.found[u];
            int hit = found >= 0 && (found & 1);
            if (hit != hits) continue;
            float *copy = found >= 0 ? a.cache.copies + (uint64_t)(found / 2) * a.cache.stride : NULL;
            uint32_t begin = b->start[u], end = b->start[u + 1];
            spread(&a, hit ? copy : a.table + b->rows[u] * a.stride, begin,
                   end - begin > LADDER_SUM ? begin + LADDER_SUM : end, hit ? NULL : copy);
        }
    }
}

enum { KERNELS = 6 };
static const char *const names[KERNELS + 1] = {"",
                                               "1: a thread a position",
                                               "2: a warp a row",
                                               "3: 8 lanes a row, 16 bytes each",
                                               "4: through a cache",
                                               "5: hot rows in parts",
                                               "6: misses in blocks of their own"};

static void launch_factored(ladder_machine *m, const lookup *a) {
    uint64_t rows = a->batch.n_unique;
    uint32_t grid = ladder_grid<lookup_kernel6>(m, rows, LADDER_LANES);
    FRUGAL_LAUNCH(lookup_kernel6_find, ladder_grid<lookup_kernel6_find>(m, rows, LADDER_LANES), LADDER_BLOCK, m->stream,
                  *a);
    FRUGAL_LAUNCH(lookup_kernel6, std::max(grid, a->link_blocks + 1), LADDER_BLOCK, m->stream, *a);
}

static void launch(uint32_t kernel, ladder_machine *m, const lookup *a) {
    uint64_t rows = a->batch.n_unique, parts = a->batch.n_parts;
    uint32_t all = (uint32_t)((kernel == 1 ? a->batch.n : rows * 32) + LADDER_BLOCK - 1) / LADDER_BLOCK;
    switch (kernel) {
    case 1:
        FRUGAL_LAUNCH(lookup_kernel1, all, LADDER_BLOCK, m->stream, *a);
        break;
    case 2:
        FRUGAL_LAUNCH(lookup_kernel2, all, LADDER_BLOCK, m->stream, *a);
        break;
    case 3:
        FRUGAL_LAUNCH(lookup_kernel3, ladder_grid<lookup_kernel3>(m, rows, LADDER_LANES), LADDER_BLOCK, m->stream, *a);
        break;
    case 4:
        FRUGAL_LAUNCH(lookup_kernel4, ladder_grid<lookup_kernel4>(m, rows, LADDER_LANES), LADDER_BLOCK, m->stream, *a);
        break;
    default: {
        uint32_t grid = ladder_grid<lookup_kernel5>(m, rows, LADDER_LANES);
        if (kernel == 5)
            FRUGAL_LAUNCH(lookup_kernel5, grid, LADDER_BLOCK, m->stream, *a);
        else
            launch_factored(m, a);
        if (parts)
            FRUGAL_LAUNCH(lookup_kernel5_parts, ladder_grid<lookup_kernel5_parts>(m, parts, LADDER_LANES), LADDER_BLOCK,
                          m->stream, *a);
    }
    }
    LADDER_CHECK(cudaGetLastError());
}

/* >>the table: its rows differ, if there are fewer than 16,777,213 */

static float *make_table(uint64_t rows, uint32_t dim) {
    float *table = ladder_pinned<float>(rows * dim);
    for (uint64_t i = 0; i < rows * dim; i++) table[i] = (float)(i % 16777213) + 0.5f;
    return table;
}

/* >>checking */

typedef struct shape {
    uint64_t rows, cache_rows;
    uint32_t dim, keys;
    double zipf;
} shape;

static const shape shapes[] = {{1, 8, 4, 1, 0},         {50, 8, 32, 7, 0},      {300, 64, 32, 500, 0.99},
                               {2000, 400, 64, 900, 0}, {40, 16, 128, 700, 2},  {500, 100, 160, 300, 1},
                               {3, 8, 36, 2000, 0},     {4000, 0, 8, 1500, 0.5}};
enum { SHAPES = sizeof shapes / sizeof *shapes, CHECKED_STEPS = 4 };

/* Puts copies of some rows that differ from the host's rows into the cache, so that it shows which rows come from
 * there. */
static std::vector<const float *> fill_cache(const ladder_cache *c, const ladder_lists *b, const float *table,
                                             uint32_t dim, std::vector<unsigned long long> *words,
                                             std::vector<float> *copies) {
    std::vector<const float *> from(b->rows.size(), NULL);
    words->assign(c->sets * LADDER_WAYS, ~0ull), copies->assign(c->sets * LADDER_WAYS * dim, 0.0f);
    for (uint32_t u = 0; u < b->rows.size() && c->sets; u += 2) {
        uint64_t place = ladder_set_of(c, b->rows[u]) * LADDER_WAYS, end = place + LADDER_WAYS;
        while (place < end && (*words)[place] != ~0ull) place++;
        if (place == end) continue;
        (*words)[place] = ladder_word(b->rows[u], 0);
        from[u] = &(*copies)[place * dim];
        for (uint32_t d = 0; d < dim; d++) (*copies)[place * dim + d] = -table[(uint64_t)b->rows[u] * dim + d];
    }
    ladder_put(c->words, words->data(), words->size()), ladder_put(c->copies, copies->data(), copies->size());
    return from;
}

/* Checks that the cache has no row twice, and that its copies of the batch's rows equal the host's. */
static int cache_is_right(const ladder_cache *c, const ladder_lists *b, const float *table, uint32_t dim) {
    std::vector<unsigned long long> words = ladder_get(c->words, c->sets * LADDER_WAYS);
    std::vector<float> copies = ladder_get(c->copies, words.size() * dim);
    for (uint64_t i = 0; i < words.size(); i++) {
        uint32_t row = (uint32_t)(words[i] >> 32);
        if (row == LADDER_NO_ROW) continue;
        for (uint64_t k = i / LADDER_WAYS * LADDER_WAYS; k < i; k++)
            if (words[k] >> 32 == row) return 0;
        if (ladder_set_of(c, row) != i / LADDER_WAYS) return 0;
        if (std::binary_search(b->rows.begin(), b->rows.end(), row) &&
            memcmp(&copies[i * dim], table + (uint64_t)row * dim, dim * sizeof(float)))
            return 0;
    }
    return 1;
}

static int same_rows(const lookup *a, const std::vector<float> &expected) {
    std::vector<float> got = ladder_get(a->out, expected.size());
    return expected.empty() || !memcmp(got.data(), expected.data(), got.size() * sizeof(float));
}

static void clear(ladder_machine *m, const lookup *a) {
    LADDER_CHECK(cudaMemsetAsync(a->out, 0xff, (uint64_t)a->batch.n * a->dim * sizeof(float), m->stream));
    LADDER_CHECK(cudaMemsetAsync(a->hits, 0, sizeof *a->hits, m->stream));
}

/* With a cache that keeps what it has, so that it is known which rows hit, and what they should read. */
static int check_hits(uint32_t kernel, ladder_machine *m, const shape *s, lookup a, const ladder_lists *b) {
    std::vector<unsigned long long> words;
    std::vector<float> copies, expected((uint64_t)s->keys * s->dim);
    a.cache = ladder_make_cache(s->cache_rows, s->dim, 0);
    std::vector<const float *> from = fill_cache(&a.cache, b, a.table, s->dim, &words, &copies);
    lookup_reference(b, a.table, a.stride, s->dim, kernel >= 4 ? from.data() : NULL, expected.data());
    unsigned long long hits = 0;
    for (uint32_t u = 0; kernel >= 4 && u < from.size(); u++) hits += from[u] && ladder_is_valid(b, u);
    clear(m, &a), launch(kernel, m, &a);
    LADDER_CHECK(cudaStreamSynchronize(m->stream));
    int right = same_rows(&a, expected) && ladder_get(a.hits, 1)[0] == hits;
    ladder_free_cache(&a.cache);
    return right;
}

/* With a cache that takes rows in, over some steps: whatever it holds, the rows are the host's. */
static int check_steps(uint32_t kernel, ladder_machine *m, const shape *s, lookup a) {
    std::vector<uint64_t> keys(s->keys);
    std::vector<float> expected((uint64_t)s->keys * s->dim);
    unsigned long long hits = 0;
    int right = 1;
    a.cache = ladder_make_cache(s->cache_rows, s->dim, 1);
    for (a.step = 1; a.step <= CHECKED_STEPS; a.step++) {
        bench_draw_keys(keys.data(), s->keys, s->rows, s->zipf, a.step % 2);
        ladder_lists b = ladder_announce(keys.data(), s->keys, a.step % 2, a.step);
        a.batch = b.on_device;
        lookup_reference(&b, a.table, a.stride, s->dim, NULL, expected.data());
        clear(m, &a), launch(kernel, m, &a);
        LADDER_CHECK(cudaStreamSynchronize(m->stream));
        hits += ladder_get(a.hits, 1)[0];
        right = right && same_rows(&a, expected) && cache_is_right(&a.cache, &b, a.table, s->dim);
        ladder_forget(&b);
    }
    if (kernel >= 4 && s->cache_rows >= 2 * s->rows && s->keys > 64) right = right && hits > 0;
    ladder_free_cache(&a.cache);
    return right;
}

static void check_shape(ladder_machine *m, const shape *s) {
    std::vector<uint64_t> keys(s->keys);
    bench_draw_keys(keys.data(), s->keys, s->rows, s->zipf, 5);
    ladder_lists b = ladder_announce(keys.data(), s->keys, 1, 7);
    float *table = make_table(s->rows, s->dim);
    lookup a = {};
    a.batch = b.on_device, a.table = table, a.stride = a.dim = s->dim, a.step = 1;
    a.hits = ladder_device<unsigned long long>(1), a.out = ladder_device<float>((uint64_t)s->keys * s->dim);
    a.found = ladder_device<int64_t>(s->keys), a.turns = ladder_device<uint32_t>(2), a.link_blocks = 1 + s->dim % 3;
    for (uint32_t kernel = 1; kernel <= KERNELS; kernel++) {
        char what[128];
        snprintf(what, sizeof what, "%llu rows x %u, %u keys, Zipf %g, cache %llu", (unsigned long long)s->rows, s->dim,
                 s->keys, s->zipf, (unsigned long long)s->cache_rows);
        ladder_case(check_hits(kernel, m, s, a, &b) && check_steps(kernel, m, s, a), names[kernel], what);
    }
    ladder_free(a.hits), ladder_free(a.out), ladder_free(a.found), ladder_free(a.turns), ladder_forget(&b);
    LADDER_CHECK(cudaFreeHost(table));
}

/* >>timing */

static options_list dim = {{32}, 1}, keys = {{26624}, 1}, zipf = {{0, 0.99}, 2}, cache = {{0.05}, 1},
                    kernel_option = {{0}, 1};
static uint64_t rows = 10000000, rounds = 50, link_blocks = 8;
static int check, json;

static const options_entry options[] = {
    {"rows", OPTIONS_WHOLE64, &rows, 1, 4294967294, NULL, "rows of the table, in pinned memory"},
    {"dim", OPTIONS_WHOLES, &dim, 4, 65536, NULL, "floats a row, a multiple of 4"},
    {"keys", OPTIONS_WHOLES, &keys, 1, 1 << 26, NULL, "positions of a batch"},
    {"zipf", OPTIONS_REALS, &zipf, 0, 10, NULL, "skew of the keys; 0: uniform"},
    {"cache", OPTIONS_REALS, &cache, 0, 1, NULL, "rows cached, as a share of all"},
    {"kernel", OPTIONS_WHOLES, &kernel_option, 0, KERNELS, NULL, "kernels to run; 0: all"},
    {"link-blocks", OPTIONS_WHOLE64, &link_blocks, 1, 65536, NULL, "blocks of kernel 6 for rows that miss"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL, "rounds of which medians are taken"},
    LADDER_GPUS_OPTION("the GPU to run on"),
    LADDER_HOLD_OPTION,
    {"check", OPTIONS_FLAG, &check, 0, 0, NULL, "compares bits on small sizes, and times nothing"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

enum { BATCHES = 16 }; /* used in turn, so that no cache on the way holds their rows */

typedef struct run { /* one workload */
    ladder_machine *machine;
    const ladder_speeds *speeds;
    uint64_t rows;
    uint32_t dim, keys;
    double zipf, cache;
    ladder_lists batches[BATCHES];
    lookup work;
} run;

static void report(const run *r, uint32_t kernel, const bench_samples *seconds, double unique, double hits, int right) {
    double median = bench_median(seconds), row = r->dim * sizeof(float);
    double link = (unique - hits) * row / median;
    double device = (r->keys + unique) * row / median; /* rows out; copies in, or refreshed */
    if (json)
        printf("{\"ladder\": \"lookup\", \"kernel\": %u, \"gpu\": \"%s\", \"rows\": %llu, \"dim\": %u, \"keys\": "
               "%u, \"zipf\": %g, \"cache\": %g, \"us\": %.2f, \"min_us\": %.2f, \"max_us\": %.2f, \"hits\": %.4f, "
               "\"unique\": %.4f, \"link_bytes_per_s\": %.0f, \"link_share\": %.4f, \"device_share\": %.4f, "
               "\"dropped\": %u, \"right\": %d}\n",
               kernel, r->machine->name, (unsigned long long)r->rows, r->dim, r->keys, r->zipf, r->cache, median * 1e6,
               bench_quantile(seconds, 0) * 1e6, bench_quantile(seconds, 1) * 1e6, hits / unique, unique / r->keys,
               link, link / r->speeds->to_device, device / r->speeds->device, ladder_dropped(r->machine), right);
    else
        printf("%-34s %9.1f (%9.1f %9.1f) %8.1f %5.0f%% %8.1f %5.0f%% %6.0f%%  %s\n", names[kernel], median * 1e6,
               bench_quantile(seconds, 0) * 1e6, bench_quantile(seconds, 1) * 1e6, r->keys / median / 1e6,
               hits / unique * 100, link / 1e9, link / r->speeds->to_device * 100, device / r->speeds->device * 100,
               right ? "right" : "WRONG");
    fflush(stdout);
}

/* 1: the rows are right, bit for bit. */
static int time_kernel(run *r, uint32_t kernel) {
    lookup *a = &r->work;
    bench_samples seconds = {};
    double unique = 0;
    uint32_t warm = 2 * BATCHES, of = (uint32_t)rounds, timed = 0;
    a->step = 0;
    a->cache = ladder_make_cache(kernel < 4 ? 0 : (uint64_t)(r->cache * (double)r->rows), r->dim, 1);
    clear(r->machine, a);
    for (uint32_t i = 0; i < warm + of && !bench_interrupted(); i++) {
        a->batch = r->batches[i % BATCHES].on_device, a->step++;
        if (i == warm) LADDER_CHECK(cudaMemsetAsync(a->hits, 0, sizeof *a->hits, r->machine->stream));
        if (i == warm) ladder_dropped(r->machine);
        double one = ladder_seconds(r->machine, [&] { launch(kernel, r->machine, a); });
        if (i >= warm) timed++, unique += a->batch.n_unique;
        if (i >= warm && one >= 0) bench_add(&seconds, one);
    }
    int right = 1;
    if (timed) {
        const ladder_lists *last = &r->batches[(warm + timed - 1) % BATCHES];
        std::vector<float> expected((uint64_t)r->keys * r->dim);
        lookup_reference(last, a->table, a->stride, r->dim, NULL, expected.data());
        right = same_rows(a, expected);
        if (seconds.n)
            report(r, kernel, &seconds, unique / timed, (double)ladder_get(a->hits, 1)[0] / timed, right);
        else
            ladder_skip(names[kernel]);
    }
    ladder_free_cache(&a->cache);
    return right;
}

static int run_workload(run *r, const float *table) {
    std::vector<uint64_t> drawn(r->keys);
    for (uint32_t i = 0; i < BATCHES; i++) {
        bench_draw_keys(drawn.data(), r->keys, r->rows, r->zipf, 42 + i);
        r->batches[i] = ladder_announce(drawn.data(), r->keys, 0, 0);
    }
    r->work = {};
    r->work.table = table, r->work.stride = r->work.dim = r->dim;
    r->work.hits = ladder_device<unsigned long long>(1);
    r->work.out = ladder_device<float>((uint64_t)r->keys * r->dim);
    r->work.found = ladder_device<int64_t>(r->keys), r->work.turns = ladder_device<uint32_t>(2);
    r->work.link_blocks = (uint32_t)link_blocks;
    if (!json) printf("\n%u keys x %u, Zipf %g, cache %g:\n", r->keys, r->dim, r->zipf, r->cache);
    int right = 1;
    for (uint32_t kernel = 1; kernel <= KERNELS && !bench_interrupted(); kernel++)
        for (uint32_t i = 0; i < kernel_option.n; i++)
            if (kernel_option.values[i] == 0 || kernel_option.values[i] == kernel) right &= time_kernel(r, kernel);
    ladder_free(r->work.hits), ladder_free(r->work.out), ladder_free(r->work.found), ladder_free(r->work.turns);
    for (uint32_t i = 0; i < BATCHES; i++) ladder_forget(&r->batches[i]);
    return right;
}

static int run_all(ladder_machine *m) {
    ladder_speeds speeds = ladder_measure(m, LADDER_LARGE, 10);
    int right = 1;
    if (!json)
        printf("%s: link %.1f GB/s to the GPU, %.1f to the host; its memory %.0f GB/s (read and written)\n"
               "%llu rows in host memory. us: median of %llu (least, most). Shares are of the bandwidth of link and "
               "memory.\n"
               "%95s%18s\n%-38s us     (least      most)   keys M/s  hits     GB/s  share   share\n",
               m->name, speeds.to_device / 1e9, speeds.to_host / 1e9, speeds.device / 1e9, (unsigned long long)rows,
               (unsigned long long)rounds, "link", "memory", "kernel");
    for (uint32_t d = 0; d < dim.n && !bench_interrupted(); d++) {
        bench_progress("a table of %llu x %.0f", (unsigned long long)rows, dim.values[d]);
        float *table = make_table(rows, (uint32_t)dim.values[d]);
        bench_progress("%s", "");
        for (uint32_t i = 0; i < keys.n * zipf.n * cache.n && !bench_interrupted(); i++) {
            run r = {};
            r.machine = m, r.speeds = &speeds;
            r.rows = rows, r.dim = (uint32_t)dim.values[d];
            r.keys = (uint32_t)keys.values[i / zipf.n / cache.n];
            r.zipf = zipf.values[i / cache.n % zipf.n], r.cache = cache.values[i % cache.n];
            right &= run_workload(&r, table);
        }
        LADDER_CHECK(cudaFreeHost(table));
    }
    return right;
}

static void check_all(ladder_machine *m) {
    for (uint32_t i = 0; i < SHAPES; i++) check_shape(m, &shapes[i]);
}

int main(int argc, char **argv) {
    bench_parse("lookup_ladder", "The gather of a batch as kernels of rising speed, each checked and timed.\n", options,
                argc, argv);
    return ladder_main("lookup_ladder", &dim, check, check_all, run_all);
}
