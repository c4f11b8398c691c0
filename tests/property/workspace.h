/* workspace.h - the arrays of a device and of its trainer: on the host, or, compiled with TEST_CUDA, on a GPU. */
#ifndef WORKSPACE_H
#define WORKSPACE_H

#ifdef TEST_CUDA
#include <pthread.h>
#include "frugal_cuda.h"
#include "tests/cuda/gpu.h"
#endif
#include "trial.h"

enum { WIDE_BESIDE = 8 }; /* elements before and behind the trainer's array, of which some are left out */

static inline size_t wide_bytes(const trial *t) {
    return 4 * ((size_t)t->max_keys * t->row_stride + WIDE_BESIDE);
}

typedef struct workspace { /* of one device; its trainer's and its loader's part */
    trial_batch trained, announced;
    float *rows, *grads; /* [max_keys][dim] */
    unsigned char *wide; /* rows or gradients, as the library is given them, and elements beside them */
    uint64_t repeated_keys;
    struct gpu *gpu; /* NULL: a device on the host */
} workspace;

#ifdef TEST_CUDA
static inline int gpus(void) {
    static int n = -1;
    if (n < 0) n = gpu_count();
    return n;
}

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER; /* trials that share workers; one at a time */

static inline int attach_gpu_locked(const trial *t, frugal *f, workspace *w, uint32_t d) {
    trial_gpu where = trial_gpu_of(t, d, gpus());
    frugal_cuda_desc desc = {
        .cache_rows = t->caches[d].cache_rows, .policy = t->caches[d].policy, .gate_on_stream = where.gate_on_stream};
    if (where.ordinal < 0) return 0;
    if (!w->gpu)
        w->gpu =
            gpu_open(where.ordinal, (size_t)t->max_keys * t->row_stride, 2 * (size_t)t->max_keys + 1, t->unaligned);
    desc.stream = gpu_stream(w->gpu);
    return frugal_cuda_attach(f, d, where.ordinal, &desc) == FRUGAL_OK ? 1 : -1;
}

static inline int attach_gpu(const trial *t, frugal *f, workspace *w, uint32_t d) {
    pthread_mutex_lock(&attaching);
    int attached = attach_gpu_locked(t, f, w, d);
    pthread_mutex_unlock(&attaching);
    return attached;
}

/* Announces the batch, with keys that lie on the GPU if there is one and `there`. */
static inline frugal_status announce_there(frugal *f, workspace *w, uint32_t d, uint64_t step, uint64_t there) {
    const frugal_batch *batch = &w->announced.batch;
    if (!w->gpu || !there) return frugal_announce(f, d, step, batch);
    frugal_keys *segments = malloc((batch->n_segments + 1) * sizeof *segments);
    size_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) bytes += 8 * (size_t)batch->segments[i].n;
    unsigned char *keys = malloc(bytes + 1);
    for (uint32_t i = 0; i < batch->n_segments; at += 8 * (size_t)batch->segments[i].n, i++) {
        const frugal_keys *s = &batch->segments[i];
        if (s->keys) memcpy(keys + at, s->keys, s->n * sizeof *s->keys);
        if (s->keys32) memcpy(keys + at, s->keys32, s->n * sizeof *s->keys32);
    }
    const unsigned char *sent = gpu_keys(w->gpu, keys, bytes);
    at = 0;
    for (uint32_t i = 0; i < batch->n_segments; at += 8 * (size_t)batch->segments[i].n, i++) {
        segments[i] = batch->segments[i];
        if (segments[i].keys) segments[i].keys = (const uint64_t *)(const void *)(sent + at);
        if (segments[i].keys32) segments[i].keys32 = (const int32_t *)(const void *)(sent + at);
    }
    const frugal_batch copied = {segments, batch->n_segments, batch->read_only};
    frugal_status status = frugal_cuda_announce(f, d, step, &copied, gpu_key_stream(w->gpu));
    free(segments), free(keys);
    return status;
}

/* Where a lookup writes: there is what is in the array `here` now. */
static inline void *rows_of(workspace *w, void *here, size_t bytes) {
    if (w->gpu) gpu_put(w->gpu, gpu_rows(w->gpu), here, bytes);
    return w->gpu ? gpu_rows(w->gpu) : here;
}

/* After a lookup: the rows, or the block, are on the host. */
static inline void fetch_rows(workspace *w, void *here, size_t bytes, int in_block) {
    if (w->gpu && in_block) gpu_wait(w->gpu);
    if (w->gpu && !in_block) gpu_get(w->gpu, here, gpu_rows(w->gpu), bytes);
}

static inline const void *send_grads(workspace *w, const void *here, size_t bytes) {
    if (!w->gpu) return here;
    gpu_put(w->gpu, gpu_grads(w->gpu), here, bytes);
    return gpu_grads(w->gpu);
}

static inline frugal_bags send_bags(workspace *w) {
    frugal_bags bags = w->trained.bags;
    if (!w->gpu) return bags;
    gpu_put(w->gpu, gpu_words(w->gpu), bags.offsets, 4 * ((size_t)bags.n_bags + 1));
    bags.offsets = gpu_words(w->gpu);
    if (!bags.weights) return bags;
    uint32_t *weights = gpu_words(w->gpu) + bags.n_bags + 1;
    gpu_put(w->gpu, weights, bags.weights, 4 * (size_t)w->trained.n);
    bags.weights = (const float *)weights;
    return bags;
}

static inline void close_gpu(workspace *w) {
    gpu_close(w->gpu);
    w->gpu = NULL;
}
#else
static inline int attach_gpu(const trial *t, frugal *f, workspace *w, uint32_t d) {
    (void)t, (void)f, (void)w, (void)d;
    return 0;
}
static inline frugal_status announce_there(frugal *f, workspace *w, uint32_t d, uint64_t step, uint64_t there) {
    (void)there;
    return frugal_announce(f, d, step, &w->announced.batch);
}
static inline void *rows_of(workspace *w, void *here, size_t bytes) {
    (void)w, (void)bytes;
    return here;
}
static inline void fetch_rows(workspace *w, void *here, size_t bytes, int in_block) {
    (void)w, (void)here, (void)bytes, (void)in_block;
}
static inline const void *send_grads(workspace *w, const void *here, size_t bytes) {
    (void)w, (void)bytes;
    return here;
}
static inline frugal_bags send_bags(workspace *w) {
    return w->trained.bags;
}
static inline void close_gpu(workspace *w) {
    (void)w;
}
#endif

#endif /* WORKSPACE_H */
