/* update_ladder.cu - the summing of a batch's gradients on a GPU, from a thread an element to the kernel in use, a rung
 * at a time.
 *
 *     build/cuda/update_ladder                    all rungs, uniform and skewed keys, beside what link and memory allow
 *     build/cuda/update_ladder --kernel 4 --dim 128 --optimizer adagrad --json
 *     build/cuda/update_ladder --check            only: are the bits right? (TAP)
 *
 * grads[n][dim] come by position and are summed by unique row: position order[start[u]] first, in blocks of 32
 * positions, the blocks' sums in order. That order is fixed, because a sum of floats depends on it and host and GPU
 * must agree bit by bit. So there is no atomicAdd of floats anywhere. The sum is written to record u of the step's
 * block, in host memory, through the link; and if the device has a copy of the row, the sum updates this copy by one
 * optimizer step.
 *
 * In every version each unique row crosses the link once. A version can be slow because gradients are not read at the
 * speed of memory, or because all threads wait for one hot row. At the end the host must learn that the records are
 * there, because other devices wait for the work that begins then.
 */
#include "bench/cuda/ladder.h"

#include <sched.h>

typedef struct update {
    ladder_batch batch;
    const float *grads; /* grads[n][dim]; dim is a multiple of 4 */
    float *block;       /* the host's: block[n_unique][stride] */
    uint64_t stride;
    uint32_t dim, step;
    frugal_optimizer_kind optimizer; /* SGD or Adagrad */
    float lr, eps;
    ladder_cache cache;       /* of weights[dim], state[dim] */
    float *scratch;           /* from kernel 4 on: scratch[n_parts][dim] */
    uint32_t *arrived;        /* the same: arrived[n_parts][8], zero before the kernel and after it */
    uint32_t *blocks_done;    /* from kernel 5 on: zero before and after */
    unsigned long long *done; /* from kernel 5 on; on the host: the step whose records are written */
} update;

static __host__ __device__ void apply_one(const update *a, float *w, float *s, float g) {
    *w = a->optimizer == FRUGAL_SGD ? frugal_sgd(*w, g, a->lr) : frugal_adagrad(*w, s, g, a->lr, a->eps);
}

/* The CPU's version. copies[u]: of row u, weights then state, or NULL. */
static void update_reference(const update *a, const ladder_lists *batch, const float *grads, float *block,
                             float *const *copies) {
    for (uint32_t u = 0; u < batch->rows.size(); u++)
        for (uint32_t d = 0; d < a->dim; d++) {
            float sum = 0;
            for (uint32_t k = batch->start[u]; k < batch->start[u + 1]; k += LADDER_SUM) {
                float part = grads[(uint64_t)batch->order[k] * a->dim + d];
                for (uint32_t i = k + 1; i < k + LADDER_SUM && i < batch->start[u + 1]; i++)
                    part += grads[(uint64_t)batch->order[i] * a->dim + d];
                sum = k == batch->start[u] ? part : sum + part; /* from its first element: 0 + -0 is 0 */
            }
            block[u * a->stride + d] = sum;
            if (copies[u]) apply_one(a, copies[u] + d, copies[u] + a->dim + d, sum);
        }
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 1: a thread an element of a record. Neighbouring threads have neighbouring elements, so the loads are whole
 * lines already; but each thread divides, reads all of start, order and the cache's words for itself, and has one load
 * under way at a time.
 * --------------------------------------------------------------------------------------------------------- */
static __device__ float sum_one(const update *a, uint32_t begin, uint32_t end, uint32_t d) {
    float sum = a->grads[(uint64_t)a->batch.order[begin] * a->dim + d];
    for (uint32_t k = begin + 1; k < end; k++)
        sum = frugal_add(sum, a->grads[(uint64_t)a->batch.order[k] * a->dim + d]);
    return sum;
}

static __device__ float sum_blocks(const update *a, uint32_t begin, uint32_t end, uint32_t d) {
    float sum = 0;
    for (uint32_t k = begin; k < end; k += LADDER_SUM) {
        float part = sum_one(a, k, end - k > LADDER_SUM ? k + LADDER_SUM : end, d);
        sum = k == begin ? part : frugal_add(sum, part);
    }
    return sum;
}

static __global__ void update_kernel1(update a) {
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, u = i / a.dim;
    uint32_t d = (uint32_t)(i % a.dim);
    if (u >= a.batch.n_unique) return;
    float sum = sum_blocks(&a, a.batch.start[u], a.batch.start[u + 1], d);
    a.block[u * a.stride + d] = sum;
    uint32_t row = a.batch.rows[u];
    uint64_t set = ladder_set_of(&a.cache, row) * LADDER_WAYS;
    for (uint32_t way = 0; way < LADDER_WAYS && a.cache.sets; way++) {
        float *copy = a.cache.copies + (set + way) * a.cache.stride;
        if (a.cache.words[set + way] >> 32 == row) apply_one(&a, copy + d, copy + a.dim + d, sum);
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 2: a warp a row. The lanes read start, order and rows together, by one load; eight lanes at a time look for
 * the copy, by a vote. Records are written in whole requests of 128 bytes.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void update_kernel2(update a) {
    uint64_t u = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / 32;
    if (u >= a.batch.n_unique) return; /* whole warps leave here, so all lanes of the others vote */
    int64_t place = ladder_find(&a.cache, a.batch.rows[u]);
    float *copy = place >= 0 ? a.cache.copies + (uint64_t)place * a.cache.stride : NULL;
    for (uint32_t d = threadIdx.x % 32; d < a.dim; d += 32) {
        float sum = sum_blocks(&a, a.batch.start[u], a.batch.start[u + 1], d);
        a.block[u * a.stride + d] = sum;
        if (copy) apply_one(&a, copy + d, copy + a.dim + d, sum);
    }
}

static __device__ float4 add4(float4 a, float4 b) {
    return make_float4(frugal_add(a.x, b.x), frugal_add(a.y, b.y), frugal_add(a.z, b.z), frugal_add(a.w, b.w));
}

static __device__ float4 gradient(const update *a, uint32_t k, uint32_t d) {
    return *(const float4 *)(a->grads + (uint64_t)a->batch.order[k] * a->dim + d);
}

/* Up to 32 positions: four loads are issued at a time, then added in their order. */
static __device__ float4 sum_part(const update *a, uint32_t begin, uint32_t end, uint32_t d) {
    float4 sum = gradient(a, begin, d);
    uint32_t k = begin + 1;
    for (; k + 4 <= end; k += 4) {
        float4 x0 = gradient(a, k, d), x1 = gradient(a, k + 1, d), x2 = gradient(a, k + 2, d),
               x3 = gradient(a, k + 3, d);
        sum = add4(add4(add4(add4(sum, x0), x1), x2), x3);
    }
    for (; k < end; k++) sum = add4(sum, gradient(a, k, d));
    return sum;
}

/* The sum of record u at d: into the block, and onto the copy. */
static __device__ void finish(const update *a, uint64_t u, uint32_t d, float4 sum, float *copy) {
    *(float4 *)(a->block + u * a->stride + d) = sum;
    if (!copy) return;
    float4 w = *(float4 *)(copy + d), s = *(float4 *)(copy + a->dim + d);
    apply_one(a, &w.x, &s.x, sum.x), apply_one(a, &w.y, &s.y, sum.y);
    apply_one(a, &w.z, &s.z, sum.z), apply_one(a, &w.w, &s.w, sum.w);
    *(float4 *)(copy + d) = w, *(float4 *)(copy + a->dim + d) = s;
}

/* All of a row, by eight lanes. */
static __device__ void sum_row(const update *a, uint64_t u, float *copy) {
    uint32_t begin = a->batch.start[u], end = a->batch.start[u + 1];
    for (uint32_t d = threadIdx.x % LADDER_LANES * 4; d < a->dim; d += LADDER_PASS) {
        float4 sum = make_float4(0, 0, 0, 0);
        for (uint32_t k = begin; k < end; k += LADDER_SUM) {
            float4 part = sum_part(a, k, end - k > LADDER_SUM ? k + LADDER_SUM : end, d);
            sum = k == begin ? part : add4(sum, part);
        }
        finish(a, u, d, sum, copy);
    }
}

/* This thread's group of eight: the row that it starts with, and the distance to its next row. The groups of a warp
 * advance together, so that whole warps vote. */
typedef struct groups {
    uint64_t first, in_warp, all;
} groups;

static __device__ groups my_group(void) {
    uint64_t group = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / LADDER_LANES,
             in_warp = group % (32 / LADDER_LANES);
    return {group - in_warp, in_warp, (uint64_t)gridDim.x * blockDim.x / LADDER_LANES};
}

static __device__ float *copy_of(const update *a, uint32_t row) {
    int64_t place = ladder_find(&a->cache, row);
    return place >= 0 ? a->cache.copies + (uint64_t)place * a->cache.stride : NULL;
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 3: eight lanes a row, 16 bytes each; four rows a warp, a grid that fills the GPU and no more. Adding in order
 * makes a chain of additions (4 cycles each), but the loads (500 cycles each) need not form a chain: four positions are
 * read before the first is added.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void update_kernel3(update a) {
    groups g = my_group();
    for (uint64_t first = g.first; first < a.batch.n_unique; first += g.all) {
        uint64_t u = first + g.in_warp;
        float *copy = copy_of(&a, u < a.batch.n_unique ? a.batch.rows[u] : LADDER_NO_ROW);
        if (u < a.batch.n_unique) sum_row(&a, u, copy);
    }
}

/* A part of a hot row, by eight lanes. Its sum goes to scratch memory; the last part to arrive adds all of them, in
 * order. Each lane counts for itself: it adds what the same lane of other groups wrote, so it waits for no other lane.
 */
static __device__ void sum_hot(const update *a, uint32_t i, float *copy) {
    ladder_part p = a->batch.parts[i];
    uint32_t lane = threadIdx.x % LADDER_LANES, end = a->batch.start[p.record + 1];
    uint32_t begin = a->batch.start[p.record] + p.part * LADDER_SUM;
    if (end - begin > LADDER_SUM) end = begin + LADDER_SUM;
    for (uint32_t d = lane * 4; d < a->dim; d += LADDER_PASS)
        *(float4 *)(a->scratch + (uint64_t)i * a->dim + d) = sum_part(a, begin, end, d);
    /* Releases this part's sum; the last part acquires the sums of all others. */
    cuda::atomic_ref<uint32_t, cuda::thread_scope_device> arrived(a->arrived[(uint64_t)p.first * LADDER_LANES + lane]);
    if (arrived.fetch_add(1, cuda::memory_order_acq_rel) + 1 < p.parts) return;
    arrived.store(0, cuda::memory_order_relaxed); /* for the next step: another kernel */
    const float *parts = a->scratch + (uint64_t)p.first * a->dim;
    for (uint32_t d = lane * 4; d < a->dim; d += LADDER_PASS) {
        float4 sum = *(const float4 *)(parts + d);
        LADDER_UNROLLED_BY_4 /* loads under way, as in sum_part */
            for (uint32_t part = 1; part < p.parts; part++) sum =
                add4(sum, *(const float4 *)(parts + (uint64_t)part * a->dim + d));
        finish(a, p.record, d, sum, copy);
    }
}

/* The parts of hot rows come first, because the last part to arrive has more to do; then the other rows. */
static __device__ void update_all(const update *a) {
    groups g = my_group();
    const ladder_batch *b = &a->batch;
    uint64_t items = (uint64_t)b->n_parts + b->n_unique;
    for (uint64_t first = g.first; first < items; first += g.all) {
        uint64_t i = first + g.in_warp;
        int exists = i < items, is_part = i < b->n_parts;
        uint64_t u = !exists ? 0 : is_part ? b->parts[i].record : i - b->n_parts;
        float *copy = copy_of(a, exists ? b->rows[u] : LADDER_NO_ROW);
        if (is_part)
            sum_hot(a, (uint32_t)i, copy);
        else if (exists && b->start[u + 1] - b->start[u] <= LADDER_SUM)
            sum_row(a, u, copy);
    }
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 4: hot rows in parts. A row with a tenth of 26,624 positions was 83 blocks of 32, one after the other; now 83
 * groups sum them at the same time, and only the 83 sums are added one after the other. The blocks are those that the
 * promise of equal bits prescribes, so the bits are the same.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void update_kernel4(update a) {
    update_all(&a);
}

/* ---------------------------------------------------------------------------------------------------------
 * Kernel 5: tells the host itself that it is done. Up to kernel 4 the host asks an event, or a second kernel writes a
 * word. Both come some microseconds later, on the path that all devices wait for. Now the last block to end writes the
 * word. Each block releases its records to the last one, which releases everything that it has acquired to the host.
 * Causality order is transitive, so only the last store needs the system's scope, and only it waits for the link.
 * --------------------------------------------------------------------------------------------------------- */
static __global__ void update_kernel5(update a) {
    update_all(&a);
    __syncthreads(); /* thread 0 releases what the block wrote */
    if (threadIdx.x > 0) return;
    cuda::atomic_ref<uint32_t, cuda::thread_scope_device> blocks(*a.blocks_done);
    if (blocks.fetch_add(1, cuda::memory_order_acq_rel) + 1 < gridDim.x) return;
    blocks.store(0, cuda::memory_order_relaxed);
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_system>(*a.done).store(a.step, cuda::memory_order_release);
}

enum { KERNELS = 5 };
static const char *const names[KERNELS + 1] = {"",
                                               "1: a thread an element",
                                               "2: a warp a row",
                                               "3: 8 lanes a row, 4 loads under way",
                                               "4: hot rows in parts",
                                               "5: says itself that it is done"};

static void launch(uint32_t kernel, ladder_machine *m, const update *a) {
    uint64_t rows = a->batch.n_unique;
    uint32_t all = (uint32_t)((kernel == 1 ? rows * a->dim : rows * 32) / LADDER_BLOCK + 1);
    uint64_t items = rows + a->batch.n_parts;
    switch (kernel) {
    case 1:
        FRUGAL_LAUNCH(update_kernel1, all, LADDER_BLOCK, m->stream, *a);
        break;
    case 2:
        FRUGAL_LAUNCH(update_kernel2, all, LADDER_BLOCK, m->stream, *a);
        break;
    case 3:
        FRUGAL_LAUNCH(update_kernel3, ladder_grid<update_kernel3>(m, rows, LADDER_LANES), LADDER_BLOCK, m->stream, *a);
        break;
    case 4:
        FRUGAL_LAUNCH(update_kernel4, ladder_grid<update_kernel4>(m, items, LADDER_LANES), LADDER_BLOCK, m->stream, *a);
        break;
    default:
        FRUGAL_LAUNCH(update_kernel5, ladder_grid<update_kernel5>(m, items, LADDER_LANES), LADDER_BLOCK, m->stream, *a);
    }
    LADDER_CHECK(cudaGetLastError());
}

/* Seconds from the launch until the host has seen that the records are there, by the word or by an event. */
static double seconds_until_seen(uint32_t kernel, ladder_machine *m, const update *a) {
    double since = bench_now();
    launch(kernel, m, a);
    if (kernel >= 5)
        while (__atomic_load_n(a->done, __ATOMIC_ACQUIRE) != a->step) sched_yield();
    else {
        cudaError_t error;
        LADDER_CHECK(cudaEventRecord(m->end, m->stream));
        while ((error = cudaEventQuery(m->end)) == cudaErrorNotReady) sched_yield();
        cudaGetLastError(); /* clears "not ready", so that the next check of launches does not find it */
        ladder_check(error, "cudaEventQuery");
    }
    return bench_now() - since;
}

/* >>memory of one workload, large enough for its largest batch */

static update make_update(uint32_t dim, uint32_t keys, uint32_t unique, uint32_t parts,
                          frugal_optimizer_kind optimizer) {
    update a = {};
    std::vector<float> grads((uint64_t)keys * dim);
    uint64_t seed = 11;
    for (float &g : grads) g = ladder_value(&seed);
    a.grads = ladder_copy_of(grads);
    a.dim = dim, a.stride = (dim + 15) / 16 * 16;
    a.block = ladder_pinned<float>(unique * a.stride);
    a.optimizer = optimizer, a.lr = 0.01f, a.eps = 1e-10f;
    a.scratch = ladder_device<float>((uint64_t)parts * dim);
    a.arrived = ladder_device<uint32_t>((uint64_t)parts * LADDER_LANES);
    a.blocks_done = ladder_device<uint32_t>(1);
    a.done = ladder_pinned<unsigned long long>(1);
    return a;
}

static void free_update(const update *a) {
    ladder_free(a->grads), ladder_free(a->scratch), ladder_free(a->arrived), ladder_free(a->blocks_done);
    LADDER_CHECK(cudaFreeHost(a->block));
    LADDER_CHECK(cudaFreeHost(a->done));
}

/* Puts every second row of the batch into the cache while there is room; places[u]: its place, or -1. */
static std::vector<int64_t> fill_cache(const ladder_cache *c, const ladder_lists *b, std::vector<float> *copies) {
    std::vector<unsigned long long> words(c->sets * LADDER_WAYS, ~0ull);
    std::vector<int64_t> places(b->rows.size(), -1);
    uint64_t seed = 3;
    copies->resize(words.size() * c->stride);
    for (float &x : *copies) x = ladder_value(&seed) + 2; /* weights, and state above zero */
    for (uint32_t u = 0; u < b->rows.size() && c->sets; u += 2) {
        uint64_t place = ladder_set_of(c, b->rows[u]) * LADDER_WAYS, end = place + LADDER_WAYS;
        while (place < end && words[place] != ~0ull) place++;
        if (place < end) words[place] = ladder_word(b->rows[u], 0), places[u] = (int64_t)place;
    }
    ladder_put(c->words, words.data(), words.size()), ladder_put(c->copies, copies->data(), copies->size());
    return places;
}

/* >>checking */

typedef struct shape {
    uint64_t rows, cache_rows;
    uint32_t dim, keys;
    double zipf;
    frugal_optimizer_kind optimizer;
} shape;

static const shape shapes[] = {{1, 8, 4, 1, 0, FRUGAL_SGD},           {1, 8, 32, 33, 0, FRUGAL_ADAGRAD},
                               {300, 64, 32, 500, 0.99, FRUGAL_SGD},  {2000, 400, 64, 900, 0, FRUGAL_ADAGRAD},
                               {40, 16, 128, 700, 2, FRUGAL_ADAGRAD}, {500, 100, 160, 300, 1, FRUGAL_SGD},
                               {3, 8, 36, 2000, 0, FRUGAL_ADAGRAD},   {4000, 0, 8, 1500, 0.5, FRUGAL_SGD}};
enum { SHAPES = sizeof shapes / sizeof *shapes, CHECKED_STEPS = 2 }; /* a second step: the counters are back at zero */

static int same(const float *a, const float *b, uint64_t n) {
    return n == 0 || !memcmp(a, b, n * sizeof(float));
}

/* Checks that block and copies equal the reference's after `steps` steps of one batch. */
static int check_kernel(uint32_t kernel, ladder_machine *m, update *a, const ladder_lists *b, uint64_t cache_rows,
                        uint32_t steps) {
    std::vector<float> copies, grads = ladder_get(a->grads, (uint64_t)b->order.size() * a->dim);
    std::vector<float> block(b->rows.size() * a->stride, -1.0f);
    a->cache = ladder_make_cache(cache_rows, 2 * a->dim, 1);
    std::vector<int64_t> places = fill_cache(&a->cache, b, &copies);
    std::vector<float *> rows(b->rows.size(), NULL);
    for (uint32_t u = 0; u < rows.size(); u++)
        if (places[u] >= 0) rows[u] = &copies[(uint64_t)places[u] * a->cache.stride];
    int right = 1;
    for (uint32_t i = 0; i < steps; i++) {
        std::fill(a->block, a->block + block.size(), -1.0f); /* padding stays as it was */
        a->step++;
        seconds_until_seen(kernel, m, a);
        update_reference(a, b, grads.data(), block.data(), rows.data());
        right = right && same(a->block, block.data(), block.size());
        LADDER_CHECK(cudaStreamSynchronize(m->stream));
    }
    right = right && same(ladder_get(a->cache.copies, copies.size()).data(), copies.data(), copies.size());
    ladder_free_cache(&a->cache);
    return right;
}

static void check_shape(ladder_machine *m, const shape *s) {
    std::vector<uint64_t> keys(s->keys);
    bench_draw_keys(keys.data(), s->keys, s->rows, s->zipf, 5);
    ladder_lists b = ladder_announce(keys.data(), s->keys, 0, 0);
    update a = make_update(s->dim, s->keys, b.on_device.n_unique, b.on_device.n_parts, s->optimizer);
    a.batch = b.on_device;
    for (uint32_t kernel = 1; kernel <= KERNELS; kernel++) {
        char what[128];
        snprintf(what, sizeof what, "%llu rows x %u, %u keys, Zipf %g, cache %llu, %s", (unsigned long long)s->rows,
                 s->dim, s->keys, s->zipf, (unsigned long long)s->cache_rows,
                 s->optimizer == FRUGAL_SGD ? "SGD" : "Adagrad");
        ladder_case(check_kernel(kernel, m, &a, &b, s->cache_rows, CHECKED_STEPS), names[kernel], what);
    }
    free_update(&a), ladder_forget(&b);
}

/* >>timing */

static const char *const optimizers[] = {"sgd", "adagrad", NULL}; /* frugal_optimizer_kind */
static options_list dim = {{32}, 1}, keys = {{26624}, 1}, zipf = {{0, 0.99}, 2}, cache = {{0.005}, 1},
                    kernel_option = {{0}, 1};
static uint64_t rows = 10000000, rounds = 50;
static int optimizer = FRUGAL_ADAGRAD, check, json;

static const options_entry options[] = {
    {"rows", OPTIONS_WHOLE64, &rows, 1, 4294967294, NULL, "that keys are drawn from"},
    {"dim", OPTIONS_WHOLES, &dim, 4, 65536, NULL, "floats a row, a multiple of 4"},
    {"keys", OPTIONS_WHOLES, &keys, 1, 1 << 26, NULL, "positions of a batch"},
    {"zipf", OPTIONS_REALS, &zipf, 0, 10, NULL, "skew of the keys; 0: uniform"},
    {"cache", OPTIONS_REALS, &cache, 0, 1, NULL, "rows cached, as a share of all: of the first batch"},
    {"optimizer", OPTIONS_CHOICE, &optimizer, 0, 0, optimizers, "of the cached copies"},
    {"kernel", OPTIONS_WHOLES, &kernel_option, 0, KERNELS, NULL, "0: all"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL, "of which medians are taken"},
    LADDER_GPUS_OPTION("the GPU to run on"),
    LADDER_HOLD_OPTION,
    {"check", OPTIONS_FLAG, &check, 0, 0, NULL, "compares bits on small sizes, and times nothing"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

enum { BATCHES = 16 };

typedef struct run { /* one workload */
    ladder_machine *machine;
    const ladder_speeds *speeds;
    uint32_t dim, keys;
    double zipf, cache;
    ladder_lists batches[BATCHES];
    update work;
} run;

static void report(const run *r, uint32_t kernel, const bench_samples *seconds, const bench_samples *seen,
                   double unique, int right) {
    double median = bench_median(seconds), row = r->dim * sizeof(float), link = unique * row / median;
    double device = r->keys * row / median; /* gradients; the copies' are less than a tenth of it */
    if (json)
        printf("{\"ladder\": \"update\", \"kernel\": %u, \"gpu\": \"%s\", \"dim\": %u, \"keys\": %u, \"zipf\": %g, "
               "\"cache\": %g, \"optimizer\": \"%s\", \"us\": %.2f, \"min_us\": %.2f, \"max_us\": %.2f, "
               "\"seen_us\": %.2f, \"unique\": %.4f, \"link_bytes_per_s\": %.0f, \"link_share\": %.4f, "
               "\"device_share\": %.4f, \"dropped\": %u, \"right\": %d}\n",
               kernel, r->machine->name, r->dim, r->keys, r->zipf, r->cache, optimizers[r->work.optimizer],
               median * 1e6, bench_quantile(seconds, 0) * 1e6, bench_quantile(seconds, 1) * 1e6,
               bench_median(seen) * 1e6, unique / r->keys, link, link / r->speeds->to_host, device / r->speeds->device,
               ladder_dropped(r->machine), right);
    else
        printf("%-38s %9.1f (%9.1f %9.1f) %9.1f %8.1f %8.1f %5.0f%% %5.0f%%  %s\n", names[kernel], median * 1e6,
               bench_quantile(seconds, 0) * 1e6, bench_quantile(seconds, 1) * 1e6, bench_median(seen) * 1e6,
               r->keys / median / 1e6, link / 1e9, link / r->speeds->to_host * 100, device / r->speeds->device * 100,
               right ? "right" : "WRONG");
    fflush(stdout);
}

/* 1: block and copies are right, bit for bit, after a step. Then two kinds of rounds alternate: timed by events, and
 * timed until the host has seen the records. */
static int time_kernel(run *r, uint32_t kernel) {
    update *a = &r->work;
    bench_samples seconds = {}, seen = {};
    std::vector<float> copies;
    double unique = 0;
    uint64_t ways = (uint64_t)(r->cache * rows);
    uint32_t of = (uint32_t)rounds;
    a->batch = r->batches[0].on_device;
    int right = check_kernel(kernel, r->machine, a, &r->batches[0], ways, 1);
    a->cache = ladder_make_cache(ways, 2 * r->dim, 1);
    fill_cache(&a->cache, &r->batches[0], &copies);
    for (uint32_t i = 0; i < BATCHES + of && !bench_interrupted(); i++) { /* the first round of each batch warms up */
        a->batch = r->batches[i % BATCHES].on_device;
        a->step++;
        if (i == BATCHES) ladder_dropped(r->machine);
        double one = ladder_seconds(r->machine, [&] { launch(kernel, r->machine, a); });
        a->step++;
        double until_seen = seconds_until_seen(kernel, r->machine, a);
        if (i >= BATCHES && one >= 0)
            bench_add(&seconds, one), bench_add(&seen, until_seen), unique += a->batch.n_unique;
    }
    LADDER_CHECK(cudaStreamSynchronize(r->machine->stream));
    if (seconds.n)
        report(r, kernel, &seconds, &seen, unique / seconds.n, right);
    else if (!bench_interrupted())
        ladder_skip(names[kernel]);
    ladder_free_cache(&a->cache);
    return right;
}

static int run_workload(run *r) {
    std::vector<uint64_t> drawn(r->keys);
    uint32_t unique = 0, parts = 0;
    for (uint32_t i = 0; i < BATCHES; i++) {
        bench_draw_keys(drawn.data(), r->keys, rows, r->zipf, 42 + i);
        r->batches[i] = ladder_announce(drawn.data(), r->keys, 0, 0);
        unique = std::max(unique, r->batches[i].on_device.n_unique),
        parts = std::max(parts, r->batches[i].on_device.n_parts);
    }
    r->work = make_update(r->dim, r->keys, unique, parts, (frugal_optimizer_kind)optimizer);
    if (!json)
        printf("\n%u keys x %u, Zipf %g, cache %g, %s:\n", r->keys, r->dim, r->zipf, r->cache,
               optimizers[r->work.optimizer]);
    int right = 1;
    for (uint32_t kernel = 1; kernel <= KERNELS && !bench_interrupted(); kernel++)
        for (uint32_t i = 0; i < kernel_option.n; i++)
            if (kernel_option.values[i] == 0 || kernel_option.values[i] == kernel) right &= time_kernel(r, kernel);
    free_update(&r->work);
    for (uint32_t i = 0; i < BATCHES; i++) ladder_forget(&r->batches[i]);
    return right;
}

static int run_all(ladder_machine *m) {
    ladder_speeds speeds = ladder_measure(m, LADDER_LARGE, 10);
    int right = 1;
    if (!json)
        printf(
            "%s: link %.1f GB/s to the GPU, %.1f to the host; its memory %.0f GB/s (read and written)\n"
            "us: median of %llu (least, most); seen: from the launch until the host sees the records. Shares are of\n"
            "the bandwidth of link and memory.\n"
            "%103s%13s\n%-42s us     (least      most)      seen   keys M/s     GB/s  share   share\n",
            m->name, speeds.to_device / 1e9, speeds.to_host / 1e9, speeds.device / 1e9, (unsigned long long)rounds,
            "link", "memory", "kernel");
    for (uint32_t i = 0; i < dim.n * keys.n * zipf.n * cache.n && !bench_interrupted(); i++) {
        run r = {};
        r.machine = m, r.speeds = &speeds;
        r.dim = (uint32_t)dim.values[i / cache.n / zipf.n / keys.n];
        r.keys = (uint32_t)keys.values[i / cache.n / zipf.n % keys.n];
        r.zipf = zipf.values[i / cache.n % zipf.n], r.cache = cache.values[i % cache.n];
        right &= run_workload(&r);
    }
    return right;
}

static void check_all(ladder_machine *m) {
    for (uint32_t i = 0; i < SHAPES; i++) check_shape(m, &shapes[i]);
}

int main(int argc, char **argv) {
    bench_parse("update_ladder",
                "The summing of a batch's gradients as kernels of rising speed, each checked and timed.\n", options,
                argc, argv);
    return ladder_main("update_ladder", &dim, check, check_all, run_all);
}
