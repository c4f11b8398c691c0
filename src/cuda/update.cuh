/* update.cuh - the kernel of an update: sum gradients by unique row, write the records, step the cached copies and the
 * host rows that are updated in place, and say that the step is done.
 *
 * IN PLACE. A host row that this device alone touches in the step takes its step here, and has no record (frugal_p2f.h,
 * section 5 (f)). If it has a cached copy, that copy is current since the lookup. Then the copy is read and both are
 * written, which saves a read over the link; they have the same bits.
 *
 * KEPT. A device that keeps updates writes the copy alone, and marks it as dirty ((g) there).
 *
 * 16 BITS. Weights are widened, take the step as floats, and are rounded by random bits that depend on step, row and
 * element alone (arithmetic.h), so that host row and copies round alike. State, sums and records are floats. */
#ifndef FRUGAL_CUDA_UPDATE_CUH
#define FRUGAL_CUDA_UPDATE_CUH

#include "directory.cuh"
#include "types.cuh"

namespace frugal_cuda {

/* A gradient of a bag becomes that of a position. */
template <int V>
__device__ static inline void take_apart(const gradient_source &s, uint32_t position, uint32_t bag, pack<V> *g) {
    for (int v = 0; v < V; v++) {
        if (s.weights) g->x[v] = frugal_mul(s.weights[position], g->x[v]);
        if (s.mean) g->x[v] = frugal_div(g->x[v], (float)(s.offsets[bag + 1] - s.offsets[bag]));
    }
}

__device__ static inline uint32_t bag_at(const gradient_source &s, uint32_t position) {
    uint32_t bag = s.bag_of[position];
    return bag < s.n_bags ? bag : s.n_bags - 1; /* if the offsets were invalid */
}

/* The gradient of a position, V elements from `e` on: of any type, as it lies in memory, that of its bag. */
template <int V, element_types T>
__device__ static inline raw_pack<V, T> load_gradient(const gradient_source &s, uint32_t position, uint32_t e) {
    if (!s.bag_of) return load_raw<V, T>(element_at<T>(s.grads, s.as, position * s.stride), s.as, e);
    uint32_t bag = bag_at(s, position);
    raw_pack<V, T> x = load_raw<V, T>(element_at<T>(s.grads, s.as, bag * s.stride), s.as, e);
    if constexpr (T == FLOATS) take_apart<V>(s, position, bag, &x);
    return x;
}

/* What was loaded, as the gradient of the position. */
template <int V, element_types T>
__device__ static inline pack<V> gradient_of(const gradient_source &s, uint32_t position, const raw_pack<V, T> &x) {
    pack<V> g = widened<V, T>(x, s.as);
    if (T == ANY_TYPES && s.bag_of) take_apart<V>(s, position, bag_at(s, position), &g);
    return g;
}

template <int V> struct tile_sum { pack<V> pass[PASSES]; }; /* a tile of a row */

/* Adds n > 0 rows of a tile in order, from the first one. `load(k, e)`: V elements of row k, as they lie in memory;
 * `take(k, x)`: as floats. */
template <int V, element_types T, typename Load, typename Take>
__device__ static inline tile_sum<V> add_rows(uint32_t dim, uint32_t tile, uint32_t n, Load load, Take take) {
    tile_sum<V> sum = {};
    raw_pack<V, T> first[PASSES] = {};
    FRUGAL_ALL_PASSES
    for (uint32_t p = 0; p < PASSES; p++)
        if (tile + 32 * p < dim) first[p] = load(0, tile + 32 * p);
    FRUGAL_ALL_PASSES
    for (uint32_t p = 0; p < PASSES; p++)
        if (tile + 32 * p < dim) sum.pass[p] = take(0, first[p]);
    FRUGAL_SOME_ROWS
    for (uint32_t k = 1; k < n; k++) { /* all passes of a row load together, because loads limit a hot row */
        raw_pack<V, T> raw[PASSES] = {};
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++)
            if (tile + 32 * p < dim) raw[p] = load(k, tile + 32 * p);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++) {
            if (tile + 32 * p >= dim) continue;
            pack<V> x = take(k, raw[p]);
            for (int v = 0; v < V; v++) sum.pass[p].x[v] = frugal_add(sum.pass[p].x[v], x.x[v]);
        }
    }
    return sum;
}

/* What the sum of a group's row is made of, in the order that defines its bits: n positions, or the sums of n chunks,
 * or the record, which exists already. */
enum sum_kind { SUM_POSITIONS, SUM_CHUNKS, SUM_RECORD };

struct sum_terms {
    sum_kind kind;
    uint32_t n;
    const uint32_t *order; /* order[n]: positions */
    const float *rows;     /* rows[n][partial_stride]: of chunks, or the record */
};

template <int V, element_types T>
__device__ static inline tile_sum<V> sum_tile(const gpu_view &g, const gradient_source &s, const sum_terms &terms,
                                              uint32_t tile) {
    if (terms.kind == SUM_POSITIONS)
        return add_rows<V, T>(
            g.dim, tile, terms.n, [&](uint32_t k, uint32_t e) { return load_gradient<V, T>(s, terms.order[k], e); },
            [&](uint32_t k, const raw_pack<V, T> &x) { return gradient_of<V, T>(s, terms.order[k], x); });
    /* Other groups of this same kernel write the chunks, so they are not read from the cache of this multiprocessor. */
    return add_rows<V, FLOATS>(
        g.dim, tile, terms.n,
        [&](uint32_t k, uint32_t e) { return load_pack_fresh<V>(terms.rows + (uint64_t)k * g.partial_stride + e); },
        [](uint32_t, const pack<V> &x) { return x; });
}

struct step_rule { /* what is the same for all elements of a row */
    float eps, rest1, rest2, decay, clip;
    int frozen; /* the row takes no step */
    frugal_hyper hyper;
    float scale;    /* of the gradient: that of the step, and of the row once it is known (clip_scale) */
    float factor;   /* of the step, once it is known (step_factor) */
    uint32_t noise; /* the row's random bits, if weights have 16 bits */
};

/* What a kernel of an update is for. UPDATE_ONE_RULE: records, and copies that all take steps by one rule.
 * UPDATE_RULES: the same with more than one group of tables, or a frozen one. UPDATE_PLACE: also host rows in place,
 * if there are any, with one rule or several. */
enum update_form { UPDATE_ONE_RULE, UPDATE_RULES, UPDATE_PLACE };

/* The rule by which a row takes its step: that of its table's group. */
template <update_form FORM>
__device__ static inline step_rule step_rule_of(const gpu_view &g, const step_fields &step, uint32_t unique) {
    if (FORM == UPDATE_ONE_RULE || (FORM == UPDATE_PLACE && !g.groups))
        return {g.eps, g.rest1, g.rest2, g.decay, g.clip, 0, step.hyper(), step.hyper().scale, 0, 0};
    uint32_t group = frugal_group_of(g.groups, g.n_groups, step.rows()[unique]);
    const frugal_optimizer &o = g.groups[group].optimizer;
    const frugal_hyper &hyper = g.hypers[group];
    return {o.eps,
            frugal_add(1.0f, -o.beta1),
            frugal_add(1.0f, -o.beta2),
            o.weight_decay,
            o.clip_norm,
            o.frozen,
            hyper,
            hyper.scale,
            0,
            0};
}

/* The sum over devices, averaged if asked for. */
__device__ static inline float reduced_gradient(const gpu_view &g, float sum) {
    return g.divisor != 0.0f ? frugal_div(sum, g.divisor) : sum;
}

/* The gradient of an element as the optimizer takes it: reduced, scaled and decayed. A scale of 1 changes no bit. */
__device__ static inline float taken_gradient(const gpu_view &g, const step_rule &rule, float sum, float weight) {
    float scaled = frugal_mul(reduced_gradient(g, sum), rule.scale);
    return g.kind == FRUGAL_ADAMW ? scaled : frugal_decay(scaled, weight, rule.decay);
}

/* A row that takes a step; `weights` NULL: none does. It is the cached copy. */
template <update_form FORM> struct stepped_row { void *weights; };
/* In place, it is the copy or the host row. If it is the copy, and `host_weights` is not NULL, what is written to it is
 * written to the host row as well. */
template <> struct stepped_row<UPDATE_PLACE> {
    void *weights;
    float *state;
    void *host_weights;
    float *host_state;
    uint64_t *word; /* of the directory, if the step is kept in the copy; else NULL */
};

template <update_form FORM> __device__ static inline float *state_of(const gpu_view &g, const stepped_row<FORM> &row) {
    if constexpr (FORM == UPDATE_PLACE)
        return row.state;
    else
        return (float *)row.weights + g.state_at;
}

/* The row that takes the step of a batch's unique row. With a secondary in place there are two, because the
 * copy may differ from the host row: in pass 0 the copy, in pass 1 the host row. */
template <element_types T, update_form FORM>
__device__ static inline stepped_row<FORM> stepped_row_of(const gpu_view &g, const step_fields &step, uint32_t unique,
                                                          int alone, uint32_t pass) {
    stepped_row<FORM> row = {};
    uint32_t secondary = step.secondaries() ? step.secondaries()[unique] : NO_WAY;
    if (secondary != NO_WAY && pass == 0) {
        float *copy = step.secondary_copies() + (uint64_t)secondary * g.copy_stride;
        row.weights = copy;
        if constexpr (FORM == UPDATE_PLACE) row.state = copy + g.state_at;
        return row;
    }
    if (secondary == NO_WAY && pass == 1) return row;
    uint32_t way = g.sets > 0 && secondary == NO_WAY ? g.ways[unique] : NO_WAY;
    float *copy = g.copies + (uint64_t)way * g.copy_stride;
    if (way != NO_WAY) row.weights = copy;
    if constexpr (FORM == UPDATE_PLACE) {
        if (way != NO_WAY) row.state = copy + g.state_at;
        if (!alone) return row;
        if (g.keeps && way != NO_WAY) {
            row.word = g.words + way;
            return row;
        }
        row.host_weights = host_row<T>(g, step.rows()[unique]);
        if (g.state_floats) row.host_state = g.state + step.rows()[unique] * g.state_stride;
        if (way == NO_WAY) row = {row.host_weights, row.host_state, NULL, NULL, NULL};
    }
    return row;
}

/* Applies the step to one element of a row, as the host does to its own. */
__device__ static inline void apply_element(const gpu_view &g, const step_rule &rule, float *w, float *s, float *v,
                                            float sum) {
    float x = taken_gradient(g, rule, sum, *w);
    if (g.kind == FRUGAL_ADAMW) *w = frugal_shrink(*w, frugal_mul(rule.hyper.lr, rule.decay));
    if (g.kind == FRUGAL_ADAGRAD)
        *w = frugal_adagrad(*w, s, x, rule.factor, rule.eps);
    else if (frugal_is_adam(g.kind))
        *w = frugal_adam(*w, s, v, x, rule.factor, rule.rest1, rule.rest2, rule.eps);
    else
        *w = frugal_sgd(*w, x, rule.factor);
}

template <int V, element_types T> struct stepped_pack {
    raw_pack<V, T> weights;
    pack<V> state, second; /* second: Adam's second moment */
};

template <int V, element_types T, update_form FORM>
__device__ static inline stepped_pack<V, T> load_stepped(const gpu_view &g, const stepped_row<FORM> &row, uint32_t e,
                                                         int element_wise) {
    stepped_pack<V, T> all = {load_raw<V, T>(row.weights, g.rows_as, e), {}, {}};
    if (element_wise) all.state = load_pack<V>(state_of(g, row) + e);
    if (frugal_is_adam(g.kind)) all.second = load_pack<V>(state_of(g, row) + e + g.dim);
    return all;
}

/* Applies the step to a tile of a row. The state of an element is at its index; Adam's second moment is dim floats
 * further on. */
template <int V, element_types T, update_form FORM>
__device__ static inline void apply_tile(const gpu_view &g, const step_rule &rule, const stepped_row<FORM> &row,
                                         uint32_t tile, const tile_sum<V> &sum) {
    /* Passes that are loaded together: all, where the row may lie on the host, so that no load waits for another one to
     * cross the link; elsewhere registers are short. */
    constexpr uint32_t TOGETHER = FORM == UPDATE_PLACE ? PASSES : 1;
    int element_wise = g.kind == FRUGAL_ADAGRAD || frugal_is_adam(g.kind);
    stepped_pack<V, T> all[TOGETHER] = {};
    FRUGAL_ALL_PASSES
    for (uint32_t p = 0; p < PASSES; p++) {
        uint32_t e = tile + 32 * p;
        FRUGAL_ALL_PASSES
        for (uint32_t i = 0; i < TOGETHER && p % TOGETHER == 0; i++)
            if (e + 32 * i < g.dim) all[i] = load_stepped<V, T>(g, row, e + 32 * i, element_wise);
        if (e >= g.dim) continue;
        float *state = element_wise ? state_of(g, row) + e : NULL;
        pack<V> w = widened<V, T>(all[p % TOGETHER].weights, g.rows_as);
        pack<V> &s = all[p % TOGETHER].state, &second = all[p % TOGETHER].second;
        for (int v = 0; v < V; v++) apply_element(g, rule, &w.x[v], &s.x[v], &second.x[v], sum.pass[p].x[v]);
        const raw_pack<V, T> stored = rounded<V, T>(g, w, rule.noise, e);
        store_raw<V, T>(row.weights, g.rows_as, e, stored);
        if (element_wise) store_pack<V>(state, s);
        if (frugal_is_adam(g.kind)) store_pack<V>(state + g.dim, second);
        if constexpr (FORM == UPDATE_PLACE) {
            if (!row.host_weights) continue;
            store_raw<V, T>(row.host_weights, g.rows_as, e, stored);
            if (element_wise) store_pack<V>(row.host_state + e, s);
            if (frugal_is_adam(g.kind)) store_pack<V>(row.host_state + g.dim + e, second);
        }
    }
}

/* Adds the squares of a tile to the group's 32 lanes: element i to lane i mod 32. Each thread has V of the lanes. */
template <int V, element_types T, update_form FORM>
__device__ static inline void square_tile(const gpu_view &g, const step_rule &rule, const stepped_row<FORM> &row,
                                          uint32_t tile, const tile_sum<V> &sum, pack<V> *lanes) {
    FRUGAL_ALL_PASSES
    for (uint32_t p = 0; p < PASSES; p++) {
        if (tile + 32 * p >= g.dim) continue;
        pack<V> w = {};
        if (FORM != UPDATE_PLACE || rule.decay != 0.0f)
            w = widened<V, T>(load_raw<V, T>(row.weights, g.rows_as, tile + 32 * p), g.rows_as); /* maybe by the link */
        for (int v = 0; v < V; v++) {
            float x = taken_gradient(g, rule, sum.pass[p].x[v], w.x[v]);
            lanes->x[v] = frugal_fma(x, x, lanes->x[v]);
        }
    }
}

/* The halving tree over the 32 lanes: across threads, then within the first thread. All lanes of the warp call it; the
 * group's first lane gets the result. */
template <int V> __device__ static inline float fold_lanes(pack<V> lanes) {
    for (int distance = 16; distance >= V; distance /= 2)
        for (int v = 0; v < V; v++)
            lanes.x[v] = frugal_add(lanes.x[v], __shfl_down_sync(FULL_WARP, lanes.x[v], (uint32_t)(distance / V)));
    for (int distance = V / 2; distance > 0; distance /= 2)
        for (int v = 0; v < distance; v++) lanes.x[v] = frugal_add(lanes.x[v], lanes.x[v + distance]);
    return lanes.x[0];
}

/* The step of row-wise Adagrad's state, one float per row; returns the factor. */
template <update_form FORM>
__device__ static inline float step_state(const gpu_view &g, const step_rule &rule, const stepped_row<FORM> &row,
                                          float state, float squares) {
    float factor = frugal_rowwise_adagrad(&state, squares, (float)g.dim, rule.hyper.lr, rule.eps);
    *state_of(g, row) = state;
    if constexpr (FORM == UPDATE_PLACE)
        if (row.host_weights) *row.host_state = state;
    return factor;
}

/* The scale of a row's gradient, whose norm may be limited: this needs the whole row first. All lanes of the warp call
 * it. */
template <int V, update_form FORM, typename Tile>
__device__ static inline float clip_scale(const gpu_view &g, const lane_group<V> &group, const step_rule &rule,
                                          const stepped_row<FORM> &row, Tile tile_of) {
    int clips = row.weights && rule.clip > 0.0f;
    if (!g.groups && g.clip == 0.0f) return rule.scale;
    if (!__any_sync(FULL_WARP, clips)) return rule.scale;
    pack<V> lanes = {};
    for (uint32_t tile = group.lane * V; clips && tile < g.dim; tile += TILE) {
        tile_sum<V> sum = tile_of(tile);
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++)
            for (int v = 0; v < V && tile + 32 * p < g.dim; v++) {
                float x = reduced_gradient(g, sum.pass[p].x[v]);
                lanes.x[v] = frugal_fma(x, x, lanes.x[v]);
            }
    }
    float squares = fold_lanes<V>(lanes);
    float scale = clips ? frugal_clip(squares, rule.scale, rule.clip) : rule.scale; /* of the group's first lane */
    return __shfl_sync(FULL_WARP, scale, (int)group.leader);
}

/* The factor of the step: row-wise Adagrad's needs the whole row first. All lanes of the warp call it. */
template <int V, element_types T, update_form FORM, typename Tile>
__device__ static inline float step_factor(const gpu_view &g, const lane_group<V> &group, const step_rule &rule,
                                           const stepped_row<FORM> &row, Tile tile_of) {
    if (g.kind != FRUGAL_ROWWISE_ADAGRAD) return frugal_is_adam(g.kind) ? rule.hyper.step_size : rule.hyper.lr;
    pack<V> lanes = {};
    int steps_state = row.weights && group.lane == 0;
    float factor = 0, state = steps_state ? *state_of(g, row) : 0; /* read before the sums, because it may be far */
    for (uint32_t tile = group.lane * V; row.weights && tile < g.dim; tile += TILE)
        square_tile<V, T>(g, rule, row, tile, tile_of(tile), &lanes);
    float squares = fold_lanes<V>(lanes);
    if (steps_state) factor = step_state(g, rule, row, state, squares);
    return __shfl_sync(FULL_WARP, factor, (int)group.leader);
}

__device__ static inline float *record_at(const step_fields &step, uint32_t unique) {
    return step.block() + (uint64_t)unique * step.record_stride();
}

/* An item of an update: a unique row, or a chunk of a row that has more than 32 positions. */
struct update_item {
    uint32_t unique, begin, n; /* begin, n: in `order` */
    uint32_t first, chunks;    /* of the row's chunks: index of the first, number; chunks 0: it has none */
    int active;
};

/* Chunks come first, because the group that ends the last chunk of a row has more to do. */
__device__ static inline update_item update_item_of(const step_fields &step, uint64_t item) {
    update_item it = {};
    int is_chunk = item < step.n_chunks();
    if (item >= (uint64_t)step.n_unique() + step.n_chunks()) return it;
    it.active = 1;
    it.unique = is_chunk ? step.chunks()[item].unique : (uint32_t)(item - step.n_chunks());
    uint32_t begin = step.start()[it.unique], end = step.start()[it.unique + 1];
    it.begin = begin, it.n = end - begin;
    if (is_chunk) {
        it.first = step.chunks()[item].first;
        it.chunks = (it.n + CHUNK - 1) / CHUNK;
        it.begin += ((uint32_t)item - it.first) * CHUNK;
        it.n = end - it.begin < CHUNK ? end - it.begin : CHUNK;
    } else if (it.n > CHUNK)
        it.active = 0; /* its chunks do it */
    return it;
}

/* Writes a chunk's sum. Returns 1 to the group that comes last: it has acquired the sums of the others, and adds them
 * all. All lanes of the warp call it. */
template <int V, element_types T>
__device__ static inline int add_chunk(const gpu_view &g, const lane_group<V> &group, const step_fields &step,
                                       const gradient_source &s, const update_item &it, uint64_t item) {
    int is_chunk = it.active && it.chunks > 0;
    uint32_t arrived = 0;
    if (!__any_sync(FULL_WARP, is_chunk)) return 0;
    for (uint32_t tile = group.lane * V; is_chunk && tile < g.dim; tile += TILE) {
        tile_sum<V> sum = sum_tile<V, T>(g, s, {SUM_POSITIONS, it.n, step.order() + it.begin, NULL}, tile);
        float *to = g.partials + item * g.partial_stride + tile;
        FRUGAL_ALL_PASSES
        for (uint32_t p = 0; p < PASSES; p++)
            if (tile + 32 * p < g.dim) store_pack<V>(to + 32 * p, sum.pass[p]);
    }
    __threadfence();
    __syncwarp();
    if (is_chunk && group.lane == 0) /* [C5] itself */
        arrived = gpu_atomic<uint32_t>(g.arrived[it.first]).fetch_add(1, cuda::memory_order_acq_rel) + 1;
    arrived = __shfl_sync(FULL_WARP, arrived, (int)group.leader);
    __syncwarp();
    int last = is_chunk && arrived == it.chunks;
    if (last && group.lane == 0) /* relaxed: for the next update */
        gpu_atomic<uint32_t>(g.arrived[it.first]).store(0, cuda::memory_order_relaxed);
    return last;
}

/* An item whose whole gradient a group has: what it is the sum of. Not active: nothing, or the group's chunk is not the
 * last one of its row to arrive. */
struct gradient_item {
    uint32_t unique;
    int active;
    sum_terms terms;
};

/* All lanes of the warp call it. */
template <int V, element_types T>
__device__ static inline gradient_item gradient_item_of(const gpu_view &g, const lane_group<V> &group,
                                                        const step_fields &step, const gradient_source &s,
                                                        uint64_t item) {
    update_item it = update_item_of(step, item);
    sum_kind kind = SUM_POSITIONS;
    if (!s.grads) {
        kind = SUM_RECORD;
        it.active = item < step.n_unique(), it.unique = (uint32_t)item, it.chunks = 0, it.n = 1;
    } else if (add_chunk<V, T>(g, group, step, s, it, item)) {
        kind = SUM_CHUNKS, it.n = it.chunks, it.chunks = 0;
    }
    const float *record = record_at(step, it.unique);
    const float *rows = kind == SUM_CHUNKS ? g.partials + (uint64_t)it.first * g.partial_stride : record;
    return {it.unique, it.active && it.chunks == 0, {kind, it.n, step.order() + it.begin, rows}};
}

/* What a thread has kept in copies. */
struct kept_count {
    uint32_t kept, dirtied;
};

/* Marks a copy as dirty. No other thread is at its word. */
__device__ static inline void mark_dirty(uint64_t *word, kept_count *count) {
    count->kept++;
    if (*word & DIRTY) return;
    *word |= DIRTY;
    count->dirtied++;
}

/* Adds up what the threads of a warp have kept. All lanes of the warp call it. */
__device__ static inline void count_kept(const gpu_view &g, kept_count count) {
    for (int distance = 16; distance > 0; distance /= 2) {
        count.kept += __shfl_xor_sync(FULL_WARP, count.kept, distance);
        count.dirtied += __shfl_xor_sync(FULL_WARP, count.dirtied, distance);
    }
    if (threadIdx.x % WARP != 0 || count.kept == 0) return;
    gpu_atomic<unsigned long long>(g.counters->kept).fetch_add(count.kept, cuda::memory_order_relaxed);
    gpu_atomic<unsigned long long>(g.counters->dirtied).fetch_add(count.dirtied, cuda::memory_order_relaxed);
}

/* The last block to end says that the step is done. It has acquired what the others wrote, records and host rows, and
 * releases that. */
__device__ static inline void complete_update(const gpu_view &g, const step_fields &step) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    gpu_atomic<uint32_t> blocks(g.counters->blocks);
    if (blocks.fetch_add(1, cuda::memory_order_acq_rel) + 1 != gridDim.x) return; /* [C4] itself */
    blocks.store(0, cuda::memory_order_relaxed);
    g.control->hits[step.step() % FRUGAL_P2F_SLOTS] = g.counters->hits;
    g.counters->hits = 0;
    /* If the gate was forced open, the step has kept nothing, and a kernel that writes back may be counting. */
    if (g.keeps && !(step.waits() && g.counters->forced)) report_kept(g);
    __threadfence_system();
    uint64_t done = step.step() + 1;
    system_atomic<uint64_t>(g.control->done).store(done, cuda::memory_order_release); /* [C1] pairs with [C2] */
}

/* Sums gradients by unique row, in blocks of 32 positions and block sums in order; writes the records into the block in
 * host memory; steps the cached copies, and the host rows that are updated in place; and says that the step is done. */
template <int V, element_types T, update_form FORM>
__device__ static inline void update_rows(const gpu_view &g, const gpu_step &given, const gradient_source &s) {
    const step_fields step = {g, given};
    lane_group<V> group;
    int brings = step.brings() && !(step.waits() && g.counters->forced);
    int rows_step = g.sets > 0 || step.secondaries() || FORM == UPDATE_PLACE;
    uint64_t items = s.grads ? (uint64_t)step.n_unique() + step.n_chunks() : rows_step ? step.n_unique() : 0;
    if (!brings) items = 0;
    const uint64_t *bits = FORM == UPDATE_PLACE && step.alone() ? g.alone : NULL; /* of the same batch */
    kept_count count = {};
    for (uint64_t at = group.first; at < items; at += group.stride) {
        uint64_t item = at + group.of_warp;
        gradient_item it = gradient_item_of<V, T>(g, group, step, s, item);
        int alone = it.active && frugal_is_alone(bits, it.unique);
        auto tile_of = [&](uint32_t tile) { return sum_tile<V, T>(g, s, it.terms, tile); };
        for (uint32_t pass = 0; pass < (FORM == UPDATE_PLACE && step.secondaries() ? 2 : 1); pass++) {
            stepped_row<FORM> row = {};
            if (it.active && (pass == 0 || alone)) row = stepped_row_of<T, FORM>(g, step, it.unique, alone, pass);
            step_rule rule = {};
            if (row.weights || FORM == UPDATE_ONE_RULE) rule = step_rule_of<FORM>(g, step, it.unique);
            if (T == ANY_TYPES && row.weights)
                rule.noise = frugal_row_noise(rule.hyper.noise, id_of(g, step, it.unique));
            if (FORM != UPDATE_ONE_RULE && rule.frozen) row = {}; /* it has no part in what follows */
            if (rows_step) rule.scale = clip_scale<V>(g, group, rule, row, tile_of);
            rule.factor = rows_step ? step_factor<V, T>(g, group, rule, row, tile_of) : 0;
            int writes = it.active && s.grads && !alone && pass == 0; /* a record */
            int needed = writes || row.weights; /* records that exist are read only for rows that take a step */
            for (uint32_t tile = group.lane * V; needed && tile < g.dim; tile += TILE) {
                tile_sum<V> sum = tile_of(tile);
                FRUGAL_ALL_PASSES
                for (uint32_t p = 0; p < PASSES && writes; p++)
                    if (tile + 32 * p < g.dim) store_pack<V>(record_at(step, it.unique) + tile + 32 * p, sum.pass[p]);
                if (row.weights) apply_tile<V, T>(g, rule, row, tile, sum);
            }
            if constexpr (FORM == UPDATE_PLACE)
                if (row.word && group.lane == 0) mark_dirty(row.word, &count);
        }
    }
    if (FORM == UPDATE_PLACE && g.keeps) count_kept(g, count);
    complete_update(g, step);
}

template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 2)
    frugal_update_kernel(gpu_view g, gpu_step given, gradient_source s) {
    update_rows<V, FLOATS, UPDATE_ONE_RULE>(g, given, s);
}

/* For tables with settings of their own: copies take steps by the rule of their table's group. */
template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 2)
    frugal_update_groups_kernel(gpu_view g, gpu_step given, gradient_source s) {
    update_rows<V, FLOATS, UPDATE_RULES>(g, given, s);
}

/* For devices that update rows in place. */
template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 2)
    frugal_update_place_kernel(gpu_view g, gpu_step given, gradient_source s) {
    update_rows<V, FLOATS, UPDATE_PLACE>(g, given, s);
}

/* All three, for rows and gradients of any type: the last form can do what the others do. */
template <int V>
__global__ void __launch_bounds__(BLOCK_THREADS, 2)
    frugal_update_typed_kernel(gpu_view g, gpu_step given, gradient_source s) {
    update_rows<V, ANY_TYPES, UPDATE_PLACE>(g, given, s);
}

} /* namespace frugal_cuda */

#endif /* FRUGAL_CUDA_UPDATE_CUH */
