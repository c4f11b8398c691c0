/* bench_table.h - rows in memory that is pinned once, instances that share it, and steps of one. */
#ifndef FRUGAL_BENCH_CUDA_TABLE_H
#define FRUGAL_BENCH_CUDA_TABLE_H

#include "bench/cuda/bench_held.h"
#include "bench/cuda/by_processors.h"
#include "frugal_cuda.h"
#include "frugal_seeing.h"
#include "src/device.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct table {
    ladder_machine *machine;
    held *hold;
    ladder_speeds speeds;
    void *weights;                             /* of `rows_as` */
    float *state;                              /* NULL where each instance has its own */
    uint64_t rows, stride, bytes, state_bytes; /* rows: of all `parts`; stride: weights */
    frugal_type rows_as;
    uint32_t dim, parts; /* parts: the number of tables of an instance, of equal size */
} table;

static void table_expect(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

typedef struct setup { /* of an instance */
    uint32_t devices, keys, lookahead, staging, workers;
    frugal_mode mode;
    frugal_optimizer_kind optimizer;
    frugal_alone alone;
} setup;

/* >>rows */

static uint64_t table_row_bytes(const table *t) { /* without what lies between rows */
    return (uint64_t)t->dim * frugal_type_bytes(t->rows_as);
}

static const void *table_row(const table *t, uint64_t row) {
    return (const char *)t->weights + row * t->stride * frugal_type_bytes(t->rows_as);
}

/* As floats: out[dim]. */
static void table_widen(const table *t, uint64_t row, float *out) {
    frugal_convert(out, FRUGAL_FP32, table_row(t, row), t->rows_as, t->dim);
}

/* >>instances */

/* Is the optimizer's state the table's? */
static int table_has_state(const table *t, const setup *s) {
    return t->state && s->optimizer == FRUGAL_ADAM;
}

static frugal *table_open_instance(const table *t, const setup *s) {
    std::vector<frugal_table> parts(t->parts);
    frugal_desc desc = {};
    frugal *f = NULL;
    for (frugal_table &part : parts) part.rows = t->rows / t->parts; /* as they are */
    desc.tables = parts.data(), desc.n_tables = t->parts, desc.dim = t->dim;
    desc.devices = s->devices, desc.max_keys = s->keys, desc.lookahead = s->lookahead, desc.staging = s->staging;
    desc.workers = s->workers, desc.mode = s->mode, desc.optimizer.kind = s->optimizer;
    desc.rows_as = t->rows_as;
    desc.alone = s->alone, desc.weights = t->weights, desc.weights_stride = t->stride;
    if (table_has_state(t, s)) desc.state = t->state;
    table_expect(frugal_open(&desc, &f));
    return f;
}

static uint64_t table_floats_of_state(const table *t, const setup *s) {
    return frugal_state_floats(s->optimizer, t->dim);
}

/* Host memory of an instance without the table: frugal.h, section 9. */
static uint64_t table_instance_bytes(const table *t, const setup *s) {
    uint64_t n = s->devices, k = s->keys, l = s->lookahead, d = (t->dim + 15) / 16 * 16;
    uint64_t staging = s->staging ? s->staging : s->workers == 0 ? 1 : std::min<uint64_t>(l + 2, 4);
    uint64_t by_keys =
        4 * n * staging * k * d + 8 * (n * k + 1) * (staging + l + 1) + n * (l + 1) * (k * 21 + k / 8) + 16 * n * k;
    uint64_t queue = 256 * (n * (l + 1) * k / 62 + staging * (n * k / 62 + (l + 2) * 34) + s->workers + 256);
    return by_keys + queue + t->rows * (8 + (table_has_state(t, s) ? 0 : 4 * table_floats_of_state(t, s)));
}

/* The GPU's memory of a device with this number of cached rows, its rows and gradients included. */
static uint64_t table_device_bytes(const table *t, const setup *s, uint64_t cached, int pools) {
    uint64_t k = s->keys, d = (t->dim + 3) / 4 * 4, copy = 8 + 4 * (d + (table_floats_of_state(t, s) + 3) / 4 * 4);
    uint64_t batches = (s->lookahead + 1) * (16 * (k + 16) + k), sums = 4 * k + k / 8 + (k / 16 + 3) * (4 * d + 4);
    return (cached + 8) * copy + batches + sums + 2 * 4 * k * t->dim + (pools ? k * (4 * d + 4) : 0);
}

/* >>tables */

/* Rows that differ, with numbers from -0.1 to 0.1, each a hash of its place. */
static void table_fill(void *weights, frugal_type as, uint64_t n) {
    enum { AT_A_TIME = 256 };
    by_all_processors(n, [=](uint64_t begin, uint64_t end) {
        float some[AT_A_TIME];
        for (uint64_t at = begin; at < end; at += AT_A_TIME) {
            uint64_t left = end - at < AT_A_TIME ? end - at : (uint64_t)AT_A_TIME;
            for (uint64_t i = 0; i < left; i++) {
                uint32_t hash = (uint32_t)(at + i) * 0x9E3779B9u + (uint32_t)((at + i) >> 32);
                hash = (hash ^ hash >> 15) * 0x85EBCA6Bu;
                some[i] = (float)(int32_t)(hash ^ hash >> 13) * (0.1f * 0x1p-31f);
            }
            frugal_convert((char *)weights + at * frugal_type_bytes(as), as, some, FRUGAL_FP32, left);
        }
    });
}

static float *table_memory(uint64_t bytes) {
    enum { HUGE_PAGE = 2 << 20 };
    float *memory = (float *)aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
#ifdef MADV_HUGEPAGE
    if (memory) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

static int table_pin(void *memory, uint64_t bytes, const char *what) {
    cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess) return 1;
    cudaGetLastError();
    skip("%s: %.2f GB cannot be pinned: %s", what, (double)bytes * 1e-9, cudaGetErrorString(error));
    return 0;
}

static void close_table(table *t) {
    if (t->weights) LADDER_CHECK(cudaHostUnregister(t->weights));
    if (t->state) LADDER_CHECK(cudaHostUnregister(t->state));
    free(t->weights), free(t->state);
    t->weights = NULL, t->state = NULL;
}

static uint64_t opened_bytes; /* of all tables so far, and how long filling and pinning them took */
static double opened_seconds;

static void print_table(const table *t, double fill_s, double pin_s) {
    record r;
    record_add_text(&r, "experiment", "table"), record_add_count(&r, "rows", t->rows),
        record_add_count(&r, "dim", t->dim);
    record_add_text(&r, "rows_as", types[t->rows_as]);
    record_add_count(&r, "tables", t->parts), record_add_count(&r, "bytes", t->bytes + t->state_bytes);
    record_add_real(&r, "fill_s", fill_s, 3), record_add_real(&r, "pin_s", pin_s, 3);
    print_record(&r);
}

/* Makes the weights of a table that is not open yet those of another type. */
static void table_set_type(table *t, frugal_type as) {
    enum { LINE = 32 };
    uint64_t width = frugal_type_bytes(as);
    t->rows_as = as;
    t->stride = (t->dim * width + LINE - 1) / LINE * LINE / width;
    t->bytes = t->rows * t->stride * width;
}

/* The descriptor of `parts` tables of equal size, of floats. */
static table table_of(ladder_machine *m, held *h, const ladder_speeds *speeds, uint64_t n, uint32_t width,
                      uint32_t parts) {
    table t = {};
    t.machine = m, t.hold = h, t.speeds = *speeds, t.rows = n * parts, t.dim = width, t.parts = parts;
    table_set_type(&t, FRUGAL_FP32);
    return t;
}

/* Fills and pins the table, and optimizer state if floats per row are asked for. Returns 0 if memory or time is short,
 * and prints that, and which experiments wanted the table. */
static int open_table(table *t, uint64_t state_floats, const char *who) {
    char what[256];
    double since = bench_now();
    t->state_bytes = t->rows * state_floats * sizeof(float);
    uint64_t all = t->bytes + t->state_bytes;
    snprintf(what, sizeof what, "%s: a table of %llu x %u", who, (unsigned long long)t->rows, t->dim);
    double expected = opened_bytes ? (double)all * opened_seconds / (double)opened_bytes : 0;
    if (!has_time_for(expected, "%s", what) || !limits_fits(all, 0, what)) return 0;
    void *weights = table_memory(t->bytes);
    float *state = state_floats ? table_memory(t->state_bytes) : NULL;
    if (!weights || (state_floats && !state)) {
        skip("%s: the system does not give %.3g GB for it", what, (double)all * 1e-9);
        free(weights), free(state);
        return 0;
    }
    table_fill(weights, t->rows_as, t->rows * t->stride);
    if (state)
        by_all_processors(t->state_bytes,
                          [=](uint64_t begin, uint64_t end) { memset((char *)state + begin, 0, end - begin); });
    double filled = bench_now();
    if (table_pin(weights, t->bytes, what)) t->weights = weights;
    if (t->weights && state && table_pin(state, t->state_bytes, what)) t->state = state;
    if (!t->weights || (state && !t->state)) {
        free(t->weights ? NULL : weights), free(state);
        close_table(t);
        return 0;
    }
    print_table(t, filled - since, bench_now() - filled);
    opened_bytes += all, opened_seconds += bench_now() - since;
    return 1;
}

/* >>steps */

static void table_attach(frugal *f, uint32_t device, cudaStream_t stream, uint64_t cache_rows,
                         frugal_cache_policy policy, int gate_on_stream) {
    frugal_cuda_desc desc = {};
    frugal_cuda_info info;
    desc.cache_rows = cache_rows, desc.policy = policy, desc.stream = stream, desc.gate_on_stream = gate_on_stream;
    table_expect(frugal_cuda_attach(f, device, ladder_gpu(device), &desc));
    table_expect(frugal_cuda_get_info(f, device, &info));
    if (!info.table_is_pinned)
        bench_fail("the table is not pinned: the host would gather, and that is not what is measured here");
}

/* drawn[n]: the same number of keys of each table in turn. They lie in host memory, or, written by the stream `writer`,
 * in the GPU's. */
static void table_announce(const table *t, frugal *f, uint32_t device, uint64_t step, const uint64_t *drawn, uint64_t n,
                           cudaStream_t writer = NULL) {
    std::vector<frugal_keys> segments(t->parts);
    for (uint32_t i = 0; i < t->parts; i++) segments[i] = {i, drawn + n / t->parts * i, (uint32_t)(n / t->parts)};
    frugal_batch one = {segments.data(), t->parts, 0};
    table_expect(writer ? frugal_cuda_announce(f, device, step, &one, writer) : frugal_announce(f, device, step, &one));
}

#define BENCH_LR 1e-6f /* so small that rows change only in their last bits, however many steps there are */

static void table_update(frugal *f, uint32_t device, uint64_t step, const float *grads, int by_bag = 0) {
    frugal_gradients g = {};
    g.grads = grads, g.lr = BENCH_LR, g.by_bag = by_bag;
    table_expect(frugal_update(f, device, step, grads ? &g : NULL));
}

/* Does all pending work, so that a timed call has nothing else to do or to wait for: closes and flushes what was
 * committed, plans and copies what was announced, once the GPU has sorted it. */
static void table_make_quiet(frugal *f) {
    table_expect(frugal_drain(f));
    ladder_synchronize();
    for (int idle = 0; idle < 4; idle++) { /* a worker that polls rests for 1 ms at most, and nobody else polls then */
        while (frugal_help(f)) idle = 0;
        usleep(1000);
    }
    ladder_synchronize();
}

/* The time that calls have waited: 0 for timed calls. */
typedef struct waits {
    double stall_seconds;
    uint64_t gate_waits;
} waits;

template <typename F> static void table_count_waits(frugal *f, waits *w, F calls) {
    frugal_stats before, after;
    frugal_get_stats(f, &before);
    calls();
    frugal_get_stats(f, &after);
    w->stall_seconds += after.stall_seconds - before.stall_seconds;
    w->gate_waits += after.gate_waits - before.gate_waits;
}

/* Records how it was timed, and what shows that the times contain no work of the host. */
static void table_add_proof(record *r, const waits *w, uint32_t dropped, uint64_t l2_state) {
    record_add_text(r, "l2", l2_states[l2_state]);
    record_add_text(r, "timing", ladder_hold ? "held" : "not held");
    record_add_count(r, "dropped", dropped);
    record_add_real(r, "stall_seconds", w->stall_seconds, 9);
    record_add_count(r, "gate_waits", w->gate_waits);
}

#define BENCH_FACTOR 0.001f /* gradient = row * this */

static __global__ void table_gradient_kernel(float *grads, const float *from, uint64_t n) {
    uint64_t all = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += all)
        grads[i] = from[i] * BENCH_FACTOR;
}

static void table_compute(const ladder_machine *m, cudaStream_t stream, float *grads, const float *from, uint64_t n) {
    FRUGAL_LAUNCH(table_gradient_kernel, ladder_grid<table_gradient_kernel>(m, n, 1), LADDER_BLOCK, stream, grads, from,
                  n);
    LADDER_CHECK(cudaGetLastError());
}

static float table_elapsed_ms(cudaEvent_t from, cudaEvent_t to) {
    float ms;
    LADDER_CHECK(cudaEventElapsedTime(&ms, from, to));
    return ms;
}

/* Does a repeated measurement continue? At least 3 repeats, or one if --seconds are over; then until there are enough
 * repeats or --case is over. */
static int table_goes_on(uint32_t done, double since) {
    if (bench_interrupted() || done >= repeats) return 0;
    if (limits_time_is_over(0)) return done == 0;
    return done < std::min<uint64_t>(3, repeats) || bench_now() - since < case_seconds;
}

/* >>keys
 *
 * Each step has a batch of its own, because keys that come again after a few steps would find their rows in the cache,
 * or in the processor's. Batches come again only if they would have more than 2^24 keys in all; records say how many
 * batches there are. */

static uint64_t table_batches_of(uint64_t n, uint64_t wanted) {
    return std::max<uint64_t>(2, std::min(wanted, (UINT64_C(1) << 24) / n));
}

/* drawn[batches][n], by all processors. */
static std::vector<uint64_t> table_draw_batches(uint64_t n, uint64_t batches, uint64_t all, double skew,
                                                uint64_t seed) {
    std::vector<uint64_t> drawn(batches * n);
    by_all_processors(batches, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; i++) {
            uint64_t own = seed << 32 | i;
            bench_draw_keys(&drawn[i * n], n, all, skew, bench_random(&own));
        }
    });
    return drawn;
}

#endif
