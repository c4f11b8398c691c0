/* bench_check.h - are the rows right, before anything is timed? A wrong kernel must not print a speed.
 *
 * Some positions of a batch are compared with the host's table, bit by bit. Some rows after an update are compared with
 * what src/arithmetic.h makes of them on the host. Positions are spread over the batch; their number is in the records.
 */
#ifndef FRUGAL_BENCH_CUDA_CHECK_H
#define FRUGAL_BENCH_CUDA_CHECK_H

#include "bench/cuda/bench_table.h"

enum { CHECKED_ROWS = 1024, CHECKED_UPDATES = 64 };

typedef struct checked {
    uint64_t rows, updates; /* compared, and found equal */
} checked;

static void add_checked(record *r, const checked *c) {
    record_add_count(r, "checked_rows", c->rows), record_add_count(r, "checked_updates", c->updates);
}

static __global__ void check_sample_kernel(float *to, const float *from, uint32_t width, uint64_t n, uint32_t samples) {
    uint64_t all = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < (uint64_t)samples * width; i += all)
        to[i] = from[i / width * n / samples * width + i % width];
}

/* The position of the i-th of `samples` samples, computed as the kernel does. */
static uint64_t check_sampled(uint64_t i, uint64_t n, uint64_t samples) {
    return i * n / samples;
}

static uint32_t check_samples_of(uint64_t n, uint32_t most) {
    return (uint32_t)std::min<uint64_t>(n, most);
}

/* Some rows of from[n][width], which lies in the memory of some GPU. */
static std::vector<float> check_take_samples(ladder_machine *m, const float *from, uint32_t width, uint64_t n) {
    uint32_t samples = check_samples_of(n, CHECKED_ROWS);
    cudaPointerAttributes where;
    cudaStream_t stream;
    LADDER_CHECK(cudaPointerGetAttributes(&where, from));
    ladder_on on(where.device);
    LADDER_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    float *some = ladder_device<float>((uint64_t)samples * width);
    LADDER_CHECK(cudaDeviceSynchronize());
    FRUGAL_LAUNCH(check_sample_kernel, ladder_grid<check_sample_kernel>(m, (uint64_t)samples * width, 1), LADDER_BLOCK,
                  stream, some, from, width, n, samples);
    LADDER_CHECK(cudaGetLastError());
    LADDER_CHECK(cudaStreamSynchronize(stream));
    LADDER_CHECK(cudaStreamDestroy(stream));
    std::vector<float> host = ladder_get(some, (uint64_t)samples * width);
    ladder_free(some);
    return host;
}

/* Compares gathered rows with the table's. row_of(position) is the row that belongs there. Counts what was compared. */
template <typename F> static void check_rows(const table *t, const float *gathered, uint64_t n, F row_of, checked *c) {
    std::vector<float> some = check_take_samples(t->machine, gathered, t->dim, n);
    std::vector<float> wanted(t->dim);
    uint32_t samples = check_samples_of(n, CHECKED_ROWS);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t position = check_sampled(i, n, samples), row = row_of(position);
        table_widen(t, row, wanted.data());
        if (memcmp(&some[i * t->dim], wanted.data(), t->dim * sizeof(float)) != 0)
            bench_fail(
                "position %llu of %llu must be row %llu of the host's table, bit by bit, and is not: the kernel is "
                "wrong; nothing is timed",
                (unsigned long long)position, (unsigned long long)n, (unsigned long long)row);
    }
    c->rows += samples;
}

/* >>updates */

typedef struct foretold { /* a row, and what a step's update makes of it */
    uint32_t row;
    std::vector<unsigned char> weights; /* of the table's type */
    std::vector<float> state;
} foretold;

/* A row's optimizer state, or NULL. */
static const float *check_state_of(const frugal_store *store, uint32_t row) {
    return store->state_floats ? store->state + row * store->state_stride : NULL;
}

/* The step's numbers, as frugal_update fixes them. */
static frugal_hyper check_hyper_of(const frugal *f, uint64_t step) {
    const frugal_optimizer *o = &frugal_settings(f)->optimizer;
    double beta1 = 1, beta2 = 1;
    for (uint64_t s = 0; s <= step; s++) beta1 *= (double)o->beta1, beta2 *= (double)o->beta2;
    float size = (float)((double)BENCH_LR * sqrt(1.0 - beta2) / (1.0 - beta1));
    return {BENCH_LR, frugal_is_adam(o->kind) ? size : BENCH_LR, 1, frugal_step_noise(frugal_settings(f)->seed, step)};
}

/* Adds the gradients of a row's positions in one device's batch to the sum, which is empty before the first device. */
template <typename F>
static void check_add_device(const frugal_records *r, uint32_t row, uint32_t device, F gradient,
                             std::vector<float> *sum, uint32_t width) {
    const uint32_t *found = std::lower_bound(r->rows, r->rows + r->n_unique, row);
    if (found == r->rows + r->n_unique || *found != row) return;
    uint32_t begin = r->start[found - r->rows], n = r->start[found - r->rows + 1] - begin;
    std::vector<float> grads((uint64_t)n * width), own(width);
    std::vector<uint32_t> order(n);
    for (uint32_t i = 0; i < n; i++) order[i] = i, gradient(device, r->order[begin + i], &grads[(uint64_t)i * width]);
    frugal_sum_positions(own.data(), grads.data(), width, width, order.data(), n);
    for (uint32_t e = 0; e < sum->size(); e++) (*sum)[e] = frugal_add((*sum)[e], own[e]);
    if (sum->empty()) *sum = own;
}

/* Computes what the update of `step` will make of some rows. gradient(device, position, out) gives the gradient that
 * the update will bring. */
template <typename F>
static std::vector<foretold> check_foretell(const table *t, const frugal *f, uint64_t step,
                                            const frugal_records *records, uint32_t n_devices, F gradient) {
    const frugal_store *store = frugal_get_store(f);
    std::vector<foretold> all;
    frugal_hyper hyper = check_hyper_of(f, step);
    uint32_t samples = check_samples_of(records[0].n, CHECKED_UPDATES);
    for (uint64_t i = 0; i < samples; i++) {
        uint32_t row = records[0].rows[records[0].record_of[check_sampled(i, records[0].n, samples)]];
        const unsigned char *weights = (const unsigned char *)table_row(t, row);
        const float *state = check_state_of(store, row);
        foretold one = {row, std::vector<unsigned char>(weights, weights + table_row_bytes(t)), {}};
        if (state) one.state.assign(state, state + store->state_floats);
        std::vector<float> sum;
        for (uint32_t d = 0; d < n_devices; d++) check_add_device(&records[d], row, d, gradient, &sum, t->dim);
        frugal_apply(store, &hyper, row, one.weights.data(), one.state.data(), sum.data());
        all.push_back(one);
    }
    return all;
}

/* Compares the rows of a drained instance with what was foretold. */
static void check_foretold(const table *t, const frugal *f, const std::vector<foretold> &all, checked *c) {
    const frugal_store *store = frugal_get_store(f);
    for (const foretold &one : all) {
        const float *state = check_state_of(store, one.row);
        if (memcmp(one.weights.data(), table_row(t, one.row), table_row_bytes(t)) != 0 ||
            (state && memcmp(one.state.data(), state, store->state_floats * sizeof(float)) != 0))
            bench_fail("row %u after an update must be what the host computes, bit by bit, and is not: the kernel is "
                       "wrong; nothing is timed",
                       one.row);
    }
    c->updates += all.size();
}

typedef struct whole_step { /* a step that is not timed */
    const table *t;
    frugal *f;
    uint64_t number;
    std::vector<const float *> gathered; /* [device]: where its rows are looked up to */
    float factor;                        /* gradients are rows * factor */
} whole_step;

/* Runs the step, from its announcement to the drain. lookup(device) and bring(device) make the calls. */
template <typename L, typename U> static void check_step(const whole_step *step, L lookup, U bring, checked *c) {
    const table *t = step->t;
    uint32_t n = (uint32_t)step->gathered.size();
    std::vector<frugal_records> records(n);
    for (uint32_t d = 0; d < n; d++) lookup(d);
    ladder_synchronize();
    for (uint32_t d = 0; d < n; d++) {
        const frugal_records *r = &records[d];
        table_expect(frugal_get_records(step->f, d, step->number, &records[d]));
        check_rows(
            t, step->gathered[d], r->n, [r](uint64_t position) { return r->rows[r->record_of[position]]; }, c);
    }
    auto gradient = [&](uint32_t d, uint32_t position, float *out) {
        table_widen(t, records[d].rows[records[d].record_of[position]], out);
        for (uint32_t e = 0; e < t->dim; e++) out[e] = frugal_mul(out[e], step->factor);
    };
    std::vector<foretold> all = check_foretell(t, step->f, step->number, records.data(), n, gradient);
    for (uint32_t d = 0; d < n; d++) bring(d);
    table_make_quiet(step->f);
    check_foretold(t, step->f, all, c);
}

#endif
