/* The speeds of memory. */
#include "bench/step/roofline.h"

#include "bench/measure.h"
#include "bench/processors.h"
#include "bench/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { AHEAD = 24, WHOLE = 512 }; /* keys ahead; floats of a row */
enum { SWEPT = 64 << 20 };        /* bytes that each thread reads to empty the caches */

typedef struct thread {
    roofline *r;
    uint32_t number;
    float *rows, *zeros;                               /* [own][n][dim], arrays of its devices; [dim] */
    float *grads;                                      /* [n][dim], zeros */
    float *blocks;                                     /* [own * staging][rows][dim] */
    uint64_t sink;                                     /* what was read, so that it is read */
    uint64_t (*body)(struct thread *t, uint64_t turn); /* returns the amount of work done, in its own units */
    int swept;                                         /* the caches are swept before each turn */
    double seconds, rate;                              /* seconds: how long to measure; rate: units per second */
} thread;

struct roofline_rows {
    uint32_t batches;
    uint64_t **distinct;  /* [batches]: the rows of a step, rising */
    uint64_t *n_distinct; /* [batches] */
    unsigned char *other; /* [SWEPT], read to empty the caches */
};

struct roofline {
    roofline_desc desc;
    uint32_t own;    /* devices that a thread stands for; 1 if several threads share a device */
    uint64_t n;      /* keys of a batch that a thread handles: all, or a part */
    uint64_t rows;   /* the number of distinct ones among them, about */
    thread *threads; /* [desc.threads] */
    pthread_barrier_t barrier;
};

/* Prefetches all cache lines of a row, as the library does. */
static void prefetch(const float *at, uint32_t floats, int write) {
    const char *end = (const char *)(at + (floats < WHOLE ? floats : WHOLE));
    for (const char *line = (const char *)at - (uintptr_t)at % 64; line < end; line += 64) {
        if (write)
            __builtin_prefetch(line, 1, 2);
        else
            __builtin_prefetch(line, 0, 2);
    }
}

static uint64_t gather(thread *t, uint64_t turn) {
    const roofline_desc *d = &t->r->desc;
    const frugal_store *store = d->store;
    uint64_t n = t->r->n, device = t->number % d->devices, part = t->number / d->devices % (d->n_keys / n);
    if (t->r->own > 1) device = (turn * d->threads + t->number) % d->devices, part = 0;
    const uint64_t *keys = d->keys[device] + turn % d->batches * d->n_keys + part * n;
    float *rows = t->rows + turn % t->r->own * n * store->dim;
    for (uint64_t i = 0; i < n; i++) {
        if (i + AHEAD < n) prefetch(frugal_row_at(store, keys[i + AHEAD]), store->dim, 0);
        memcpy(rows + i * store->dim, (float *)frugal_row_at(store, keys[i]), store->dim * sizeof(float));
    }
    return n;
}

static void add(float *restrict x, const float *restrict zeros, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) x[i] += zeros[i]; /* adds zeros, so the values stay the same */
}

static uint64_t first_at(const uint64_t *rows, uint64_t n, uint64_t row) { /* index of the first element >= `row` */
    uint64_t low = 0;
    for (uint64_t left = n; left > 0;) {
        uint64_t half = left / 2;
        if (rows[low + half] < row)
            low += half + 1, left -= half + 1;
        else
            left = half;
    }
    return low;
}

/* Each thread has a range of the table, so no two threads write the same row, whatever step each is at. Returns the
 * rows of a step that lie in the range, and their number. */
static const uint64_t *own_rows(const thread *t, uint64_t turn, uint64_t *n_out) {
    const roofline_desc *d = &t->r->desc;
    const uint64_t *rows = d->rows->distinct[turn % d->batches];
    uint64_t n = d->rows->n_distinct[turn % d->batches];
    uint64_t begin = first_at(rows, n, d->store->rows * t->number / d->threads);
    *n_out = first_at(rows, n, d->store->rows * (t->number + 1) / d->threads) - begin;
    return rows + begin;
}

static void add_to_state(const thread *t, float *state) {
    const frugal_store *store = t->r->desc.store;
    for (uint32_t from = 0; from < store->state_floats; from += store->dim) {
        uint32_t left = store->state_floats - from;
        add(state + from, t->zeros, left < store->dim ? left : store->dim);
    }
}

/* A position below n that jumps about as k rises. */
static uint64_t scattered(uint64_t k, uint64_t n) {
    return (k * UINT64_C(0x9E3779B97F4A7C15) >> 32) * n >> 32;
}

static uint64_t update(thread *t, uint64_t turn) {
    const frugal_store *store = t->r->desc.store;
    uint64_t n;
    const uint64_t *rows = own_rows(t, turn, &n);
    for (uint64_t i = 0; i < n; i++) {
        if (i + AHEAD < n) {
            prefetch(frugal_row_at(store, rows[i + AHEAD]), store->dim, 1);
            if (store->state) prefetch(store->state + rows[i + AHEAD] * store->state_stride, store->state_floats, 1);
        }
        add((float *)frugal_row_at(store, rows[i]), t->zeros, store->dim);
        if (store->state) add_to_state(t, store->state + rows[i] * store->state_stride);
    }
    return n;
}

/* As update; each row also adds the gradients of its positions. They are read in an order of their own, because the
 * positions of rising rows are random. */
static uint64_t update_by_position(thread *t, uint64_t turn) {
    const frugal_store *store = t->r->desc.store;
    uint64_t n, all = t->r->own * t->r->n, k = 0;
    const uint64_t *rows = own_rows(t, turn, &n);
    for (uint64_t i = 0; i < n; i++) {
        if (i + AHEAD < n) {
            prefetch(frugal_row_at(store, rows[i + AHEAD]), store->dim, 1);
            if (store->state) prefetch(store->state + rows[i + AHEAD] * store->state_stride, store->state_floats, 1);
        }
        float *weights = (float *)frugal_row_at(store, rows[i]);
        for (; k < (i + 1) * all / n; k++) {
            prefetch(t->grads + scattered(k + AHEAD, t->r->n) * store->dim, store->dim, 0);
            add(weights, t->grads + scattered(k, t->r->n) * store->dim, store->dim);
        }
        if (store->state) add_to_state(t, store->state + rows[i] * store->state_stride);
    }
    return n;
}

static uint64_t copy(thread *t, uint64_t turn) {
    const roofline *r = t->r;
    uint64_t dim = r->desc.store->dim, floats = r->rows * dim;
    memcpy(t->blocks + turn % (r->own * r->desc.staging) * floats, t->rows + turn % r->own * r->n * dim,
           floats * sizeof(float));
    return 2 * floats * sizeof(float);
}

static uint64_t change(thread *t, uint64_t turn) {
    uint64_t *words = t->r->desc.words, n;
    const uint64_t *rows = own_rows(t, turn, &n);
    for (uint64_t i = 0; i < n; i++) {
        if (i + AHEAD < n) __builtin_prefetch(&words[rows[i + AHEAD]], 1, 3);
        atomic_fetch_add_explicit((_Atomic uint64_t *)&words[rows[i]], 1, memory_order_relaxed);
    }
    return n;
}

static void sweep(thread *t) {
    const unsigned char *other = t->r->desc.rows->other;
    for (size_t i = 0; i < SWEPT; i += 64) t->sink += other[i];
}

static void *run(void *argument) {
    thread *t = argument;
    bench_bind(t->number);
    t->body(t, 0);
    pthread_barrier_wait(&t->r->barrier);
    double began = bench_now(), swept = 0, now;
    uint64_t units = 0, turn = 1;
    do {
        if (t->swept) {
            double since = bench_now();
            sweep(t);
            swept += bench_now() - since;
        }
        units += t->body(t, turn++);
    } while ((now = bench_now()) - began < t->seconds);
    t->rate = (double)units / (now - began - swept);
    pthread_barrier_wait(&t->r->barrier); /* up to here all threads kept the memory busy */
    return NULL;
}

static double run_all(roofline *r, uint64_t (*body)(thread *, uint64_t), int swept, double seconds) {
    pthread_t ids[256];
    double rate = 0;
    for (uint32_t i = 0; i < r->desc.threads; i++) {
        r->threads[i].body = body, r->threads[i].swept = swept, r->threads[i].seconds = seconds;
        if (pthread_create(&ids[i], NULL, run, &r->threads[i])) bench_fail("thread %u cannot be started", i);
    }
    for (uint32_t i = 0; i < r->desc.threads; i++) {
        pthread_join(ids[i], NULL);
        rate += r->threads[i].rate;
    }
    return rate;
}

static void *need(void *memory) {
    if (!memory) bench_fail("no memory for the roofline");
    return memory;
}

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

roofline_rows *roofline_find_rows(const uint64_t *const *keys, uint32_t devices, uint32_t batches, uint64_t n_keys) {
    roofline_rows *all = need(calloc(1, sizeof *all));
    uint64_t n = devices * n_keys;
    all->batches = batches;
    all->distinct = need(calloc(batches, sizeof *all->distinct));
    all->n_distinct = need(calloc(batches, sizeof *all->n_distinct));
    for (uint32_t b = 0; b < batches; b++) {
        uint64_t *rows = all->distinct[b] = need(malloc(n * sizeof *rows)), distinct = 0;
        for (uint32_t d = 0; d < devices; d++) memcpy(rows + d * n_keys, keys[d] + b * n_keys, n_keys * sizeof *rows);
        qsort(rows, n, sizeof *rows, by_number);
        for (uint64_t i = 0; i < n; i++)
            if (i == 0 || rows[i] != rows[distinct - 1]) rows[distinct++] = rows[i];
        all->n_distinct[b] = distinct;
    }
    all->other = need(malloc(SWEPT));
    memset(all->other, 1, SWEPT); /* pages of its own, not the system's one page of zeros */
    return all;
}

void roofline_free_rows(roofline_rows *rows) {
    if (!rows) return;
    for (uint32_t b = 0; b < rows->batches; b++) free(rows->distinct[b]);
    free(rows->distinct), free(rows->n_distinct), free(rows->other), free(rows);
}

roofline *roofline_open(const roofline_desc *desc) {
    roofline *r = need(calloc(1, sizeof *r));
    r->desc = *desc;
    if (desc->threads > 256) bench_fail("%u threads for a roofline; the limit is 256", desc->threads);
    r->own = (desc->devices + desc->threads - 1) / desc->threads;
    uint32_t sharing = desc->threads > desc->devices ? (desc->threads + desc->devices - 1) / desc->devices : 1;
    r->n = desc->n_keys / sharing > 0 ? desc->n_keys / sharing : 1;
    r->rows = r->n * desc->rows->n_distinct[0] / (desc->devices * desc->n_keys);
    if (r->rows == 0) r->rows = 1;
    r->threads = need(calloc(desc->threads, sizeof *r->threads));
    for (uint32_t i = 0; i < desc->threads; i++) {
        thread *t = &r->threads[i];
        size_t bytes = r->own * r->n * desc->store->dim * sizeof(float);
        size_t blocks = r->own * desc->staging * r->rows * desc->store->dim * sizeof(float);
        *t = (thread){.r = r, .number = i};
        t->zeros = need(calloc(desc->store->dim, sizeof(float)));
        t->rows = need(malloc(bytes)), t->blocks = need(malloc(blocks));
        t->grads = need(calloc(r->n * desc->store->dim, sizeof(float)));
        memset(t->grads, 0, r->n * desc->store->dim * sizeof(float)); /* pages of its own */
        memset(t->rows, 0, bytes), memset(t->blocks, 0, blocks);
    }
    pthread_barrier_init(&r->barrier, NULL, desc->threads);
    return r;
}

roofline_speeds roofline_measure(roofline *r, double seconds) {
    roofline_speeds speeds;
    speeds.gathers_per_s = run_all(r, gather, 0, seconds);
    speeds.updates_per_s = run_all(r, update, 0, seconds);
    speeds.bytes_per_s = run_all(r, copy, 0, seconds);
    speeds.words_per_s = run_all(r, change, 0, seconds);
    speeds.swept_gathers_per_s = run_all(r, gather, 1, 2 * seconds);
    speeds.swept_updates_per_s = run_all(r, update_by_position, 1, 2 * seconds);
    return speeds;
}

void roofline_close(roofline *r) {
    if (!r) return;
    for (uint32_t i = 0; i < r->desc.threads; i++)
        free(r->threads[i].rows), free(r->threads[i].zeros), free(r->threads[i].grads), free(r->threads[i].blocks);
    free(r->threads);
    pthread_barrier_destroy(&r->barrier);
    free(r);
}
