/* quickstart.cu - examples/quickstart.c on a GPU: the smallest trainer whose rows and gradients never leave it.
 *
 * Matrix factorization: a rating is the dot product of a user's row and an item's row. Two logical devices share GPU 0,
 * each with a stream of its own; the tables stay in host memory.
 *
 *     build/cuda/quickstart        (or: nvcc -O3 -std=c++17 --fmad=false -I. examples/quickstart.cu frugal_cuda.cu
 *                                   frugal_flush.c -Xcompiler -ffp-contract=off,-pthread)
 */
#ifdef FRUGAL_CUDA_ON_HOST /* how the tests run it without a GPU */
#include FRUGAL_CUDA_ON_HOST
#else
#include <cuda_runtime.h>
#define FRUGAL_LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif
#include <stdio.h>
#include <stdlib.h>
#include "frugal_cuda.h"
#include "frugal_seeing.h"

#ifndef STEPS /* as many as it takes on a GPU; the tests take fewer */
#define STEPS 600
#endif
enum { USERS = 2000, ITEMS = 1000, DIM = 16, DEVICES = 2, BATCH = 512, LOOKAHEAD = 10 };

static void check(frugal_status status) { /* a status in words, with the value and the limit */
    if (status == FRUGAL_OK) return;
    fprintf(stderr, "quickstart: %s\n", frugal_message());
    exit(1);
}
static void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "quickstart: CUDA: %s\n", cudaGetErrorString(error));
    exit(1);
}

/* Rating k of the data: user, item and value (a hidden taste of eight kinds of users for eight kinds of items). */
__host__ __device__ static float rating(uint64_t k, uint64_t *user, uint64_t *item) {
    uint64_t hash = k * UINT64_C(0x9E3779B97F4A7C15);
    *user = (hash >> 33) % (USERS / DEVICES) * DEVICES + k / BATCH % DEVICES; /* each device has users of its own */
    *item = (hash >> 13) % ITEMS;
    return (*user % 8) == (*item % 8) ? 1.0f : -0.2f;
}

/* Forward and backward: a thread a rating. rows, grads: BATCH users, then BATCH items. */
__global__ void factorize(uint64_t first, const float *rows, float *grads, float *errors) {
    uint64_t i = blockIdx.x * blockDim.x + threadIdx.x, user, item;
    const float *u = rows + i * DIM, *v = rows + (BATCH + i) * DIM;
    float error = -rating(first + i, &user, &item);
    for (int j = 0; j < DIM; j++) error += u[j] * v[j];
    for (int j = 0; j < DIM; j++) {
        grads[i * DIM + j] = error * v[j];
        grads[(BATCH + i) * DIM + j] = error * u[j];
    }
    errors[i] = error;
}

/* The keys of a device's batch: BATCH users of table 0, then BATCH items of table 1. Keys are the host's. */
static void announce(frugal *f, uint32_t device, uint64_t step) {
    uint64_t users[BATCH], items[BATCH];
    for (uint64_t i = 0; i < BATCH; i++) rating((step * DEVICES + device) * BATCH + i, &users[i], &items[i]);
    frugal_keys segments[] = {{0, users, BATCH, NULL}, {1, items, BATCH, NULL}};
    frugal_batch batch = {segments, 2, 0};
    check(frugal_announce(f, device, step, &batch));
}

static void print_notice(const char *text, void *) { /* such as: why a call waits for so long */
    fprintf(stderr, "quickstart: %s\n", text);
}

int main(void) {
    frugal_table tables[2] = {};
    tables[0].rows = USERS, tables[1].rows = ITEMS;
    for (frugal_table &table : tables) table.init = FRUGAL_INIT_UNIFORM, table.low = -0.3f, table.high = 0.3f;
    frugal_desc desc = {};
    desc.tables = tables, desc.n_tables = 2, desc.dim = DIM, desc.devices = DEVICES, desc.max_keys = 2 * BATCH;
    desc.lookahead = LOOKAHEAD, desc.workers = 1, desc.optimizer.kind = FRUGAL_ADAGRAD;
    desc.notice = print_notice;
    frugal *f;
    check(frugal_open(&desc, &f));

    cudaStream_t stream[DEVICES];
    float *rows[DEVICES], *grads[DEVICES], *errors[DEVICES], error[BATCH];
    for (uint32_t d = 0; d < DEVICES; d++) {
        frugal_cuda_desc cuda = {};
        check(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking));
        cuda.cache_rows = 1500, cuda.stream = stream[d];
        cuda.gate_on_stream = 1; /* the host never waits in lookup: the stream does */
        check(frugal_cuda_attach(f, d, 0, &cuda));
        check(cudaMalloc((void **)&rows[d], 2 * BATCH * DIM * sizeof(float)));
        check(cudaMalloc((void **)&grads[d], 2 * BATCH * DIM * sizeof(float)));
        check(cudaMalloc((void **)&errors[d], BATCH * sizeof(float)));
    }

    uint64_t announced = 0;
    double first = 0, last = 0;
    for (; announced < LOOKAHEAD; announced++) /* run ahead of training */
        for (uint32_t d = 0; d < DEVICES; d++) announce(f, d, announced);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint32_t d = 0; d < DEVICES; d++) { /* all of it is only enqueued, so the host goes on at once */
            frugal_gradients gradients = {};
            gradients.grads = grads[d], gradients.lr = 0.2f;
            check(frugal_lookup(f, d, step, rows[d]));
            FRUGAL_LAUNCH(factorize, BATCH / 128, 128, stream[d], (step * DEVICES + d) * BATCH, rows[d], grads[d],
                          errors[d]);
            check(cudaGetLastError());
            check(frugal_update(f, d, step, &gradients));
        }
        for (uint32_t d = 0; d < DEVICES && announced < STEPS; d++)
            announce(f, d, announced); /* while the GPU is at work */
        announced++;
        if (step % 100 != 0 && step != STEPS - 1) continue;
        last = 0;
        for (uint32_t d = 0; d < DEVICES; d++) { /* now and then: how good is it? */
            check(cudaMemcpyAsync(error, errors[d], sizeof error, cudaMemcpyDeviceToHost, stream[d]));
            check(cudaStreamSynchronize(stream[d]));
            for (int i = 0; i < BATCH; i++) last += (double)error[i] * error[i] / (DEVICES * BATCH);
        }
        if (step == 0) first = last;
        fprintf(stderr, "step %4llu  mean squared error %.4f\n", (unsigned long long)step, last);
    }
    check(frugal_drain(f)); /* every update is in the host table now */
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    printf("%d steps: error %.4f -> %.4f; %llu rows looked up, %.0f%% from cache, %llu row updates flushed\n", STEPS,
           first, last, (unsigned long long)stats.unique_rows, 100.0 * (double)stats.hits / (double)stats.unique_rows,
           (unsigned long long)stats.flushed);
    frugal_close(f); /* before the streams are destroyed, because it ends the work on them */
    return last < first / 4 ? 0 : 1;
}
