/* test_property.c - random configurations, trained by frugal and by the sequential reference, compared bit by bit.
 *
 *      test_property                all cases, as cmocka tests
 *      test_property -v             the same, a line a configuration
 *      test_property SEED [COUNT]   replays the configuration that a failure named, and COUNT - 1 more of its focus
 *
 * Compiled with TEST_CUDA it is tests/cuda's: devices are GPUs, or some of them, which one the seed decides.
 *
 * FRUGAL_TEST_COUNT sets the configurations a case, FRUGAL_SEED where they begin; FRUGAL_STRESS_SECONDS goes on so long
 * instead, from the clock's seed on (stress.h). */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "../reference.h"
#include "../stress/stress.h"
#include "trial.h"
#ifdef TEST_CUDA
#include "../../frugal_cuda.h"
#include "../cuda/gpu.h"
#endif

#if defined(FRUGAL_SANITIZED) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CASE_COUNT = 8 };
#else
enum { CASE_COUNT = 80 };
#endif
enum { FIRST_SEED = 20261120 };
enum { BOUNDARY_ROWS = 40 };                        /* rows read or written at a boundary, at most */
enum { NO_MUTATION, MUTATE_GRADIENT, MUTATE_SKIP }; /* what the judge must notice */

static int verbose;
static uint64_t base_seed;
static const char *program;

/* >>expectation: what the reference says */

typedef struct expectation {
    reference ref;
    uint64_t *lookups;                     /* [steps][devices] hash of the looked-up rows */
    uint64_t whole[TRIAL_BOUNDARIES];      /* hash of all weights at the boundary */
    uint64_t read[TRIAL_BOUNDARIES];       /* hash of the rows read there */
    uint64_t keys, unique_rows, flushed;   /* of one lookup a batch */
    uint32_t brought_device, brought_step; /* some batch that brings gradients; for the mutations */
    int brought;
} expectation;

/* Distinct keys of one table to read or write at boundary `b`: keys[BOUNDARY_ROWS]. */
static frugal_keys boundary_keys(const trial *t, uint32_t b, uint64_t *keys) {
    test_random r = {.seed = trial_bits(t, 5, 0, b)};
    frugal_keys k = {.table = (uint32_t)test_below(&r, t->n_tables), .keys = keys};
    uint64_t rows = t->table_rows[k.table], stride = 1 + rows / BOUNDARY_ROWS;
    for (uint64_t key = test_below(&r, stride); key < rows && k.n < BOUNDARY_ROWS; key += stride) keys[k.n++] = key;
    return k;
}

/* What boundary `b` writes: weights[n][dim], state[n][state_floats]. */
static void boundary_values(const trial *t, uint32_t b, const reference *ref, uint32_t n, float *weights,
                            float *state) {
    test_random r = {.seed = trial_bits(t, 6, 0, b)};
    for (uint64_t i = 0; i < (uint64_t)n * ref->dim; i++) weights[i] = (float)test_unit(test_next(&r)) - 0.5f;
    for (uint64_t i = 0; i < (uint64_t)n * ref->state_floats; i++) state[i] = (float)test_unit(test_next(&r));
}

static void expect_write(const trial *t, uint32_t b, reference *ref) {
    uint64_t keys[BOUNDARY_ROWS];
    frugal_keys k = boundary_keys(t, b, keys);
    float *weights = malloc(4 * (size_t)k.n * ref->dim), *state = malloc(4 * ((size_t)k.n * ref->state_floats + 1));
    boundary_values(t, b, ref, k.n, weights, state);
    for (uint32_t i = 0; i < k.n; i++) {
        uint64_t row = t->first_row[k.table] + keys[i];
        memcpy(ref->weights + row * ref->dim, weights + (size_t)i * ref->dim, 4 * (size_t)ref->dim);
        memcpy(ref->state + row * ref->state_floats, state + (size_t)i * ref->state_floats,
               4 * (size_t)ref->state_floats);
    }
    free(weights), free(state);
}

static void expect_boundary(const trial *t, uint32_t b, expectation *e) {
    uint64_t keys[BOUNDARY_ROWS], hash = 0;
    const reference *ref = &e->ref;
    if (t->boundaries[b].actions & TRIAL_WRITE) expect_write(t, b, &e->ref);
    e->whole[b] = test_hash(0, ref->weights, ref->rows * ref->dim);
    frugal_keys k = boundary_keys(t, b, keys);
    for (uint32_t i = 0; i < k.n; i++) {
        uint64_t row = t->first_row[k.table] + keys[i];
        hash = test_hash(hash, ref->weights + row * ref->dim, ref->dim);
        hash = test_hash(hash, ref->state + row * ref->state_floats, ref->state_floats);
    }
    e->read[b] = hash;
}

/* Counts distinct rows of a batch with the help of a stamp a row. */
static uint64_t count_new(const uint32_t *rows, uint32_t n, uint64_t *stamps, uint64_t stamp) {
    uint64_t fresh = 0;
    for (uint32_t i = 0; i < n; i++) {
        fresh += stamps[rows[i]] != stamp;
        stamps[rows[i]] = stamp;
    }
    return fresh;
}

typedef struct simulation {
    trial_batch batches[TRIAL_DEVICES];
    float *rows, *pooled, *bag_grads, *grads[TRIAL_DEVICES];
    uint64_t *unique_stamps, *flushed_stamps;
} simulation;

static void simulate_step(const trial *t, uint32_t step, expectation *e, simulation *s) {
    reference_batch brought[TRIAL_DEVICES];
    for (uint32_t d = 0; d < t->devices; d++) {
        trial_batch *b = &s->batches[d];
        trial_make_batch(t, d, step, t->n_boundaries, b);
        for (uint32_t i = 0; i < b->n; i++)
            memcpy(s->rows + (size_t)i * t->dim, e->ref.weights + (size_t)b->rows[i] * t->dim, 4 * (size_t)t->dim);
        if (b->pools) {
            reference_bags bags = {b->bags.n_bags, b->offsets, b->bags.weights, b->bags.pooling == FRUGAL_POOL_MEAN};
            reference_pool(&bags, s->rows, t->dim, s->pooled);
            e->lookups[step * t->devices + d] = test_hash(0, s->pooled, (size_t)bags.n_bags * t->dim);
            trial_gradients(t, d, step, s->pooled, bags.n_bags, s->bag_grads);
            reference_spread(&bags, s->bag_grads, t->dim, s->grads[d]);
        } else {
            e->lookups[step * t->devices + d] = test_hash(0, s->rows, (size_t)b->n * t->dim);
            trial_gradients(t, d, step, s->rows, b->n, s->grads[d]);
        }
        brought[d] = (reference_batch){b->rows, b->n, b->brings ? s->grads[d] : NULL};
        e->keys += b->n;
        e->unique_rows += count_new(b->rows, b->n, s->unique_stamps, (uint64_t)step * t->devices + d + 1);
        if (b->brings) e->flushed += count_new(b->rows, b->n, s->flushed_stamps, step + 1);
        if (b->brings && b->n) e->brought = 1, e->brought_device = d, e->brought_step = step;
    }
    reference_step(&e->ref, t->first_step + step, trial_lr(t, step), brought);
}

static void open_batch(const trial *t, trial_batch *b) {
    b->keys = malloc(8 * (size_t)t->max_keys), b->rows = malloc(4 * (size_t)t->max_keys);
    b->offsets = malloc(4 * ((size_t)t->max_keys + 1)), b->weights = malloc(4 * (size_t)t->max_keys);
}

static void close_batch(trial_batch *b) {
    free(b->keys), free(b->rows), free(b->offsets), free(b->weights);
}

/* Trains the reference, whose table holds the initial values. */
static void simulate(const trial *t, expectation *e) {
    simulation s = {0};
    size_t floats = (size_t)t->max_keys * t->dim;
    e->lookups = calloc((size_t)t->steps * t->devices, sizeof(uint64_t));
    s.rows = malloc(4 * floats), s.pooled = malloc(4 * floats), s.bag_grads = malloc(4 * floats);
    s.unique_stamps = calloc(t->rows, sizeof(uint64_t)), s.flushed_stamps = calloc(t->rows, sizeof(uint64_t));
    for (uint32_t d = 0; d < t->devices; d++) {
        open_batch(t, &s.batches[d]);
        s.grads[d] = malloc(4 * floats);
    }
    uint32_t b = 0;
    for (uint32_t step = 0; step <= t->steps; step++) {
        while (b < t->n_boundaries && t->boundaries[b].at == step) expect_boundary(t, b++, e);
        if (step < t->steps) simulate_step(t, step, e, &s);
    }
    for (uint32_t d = 0; d < t->devices; d++) close_batch(&s.batches[d]), free(s.grads[d]);
    free(s.rows), free(s.pooled), free(s.bag_grads), free(s.unique_stamps), free(s.flushed_stamps);
}

/* >>run: the same with frugal */

typedef struct workspace { /* of one device; its trainer's and its loader's part */
    trial_batch trained, announced;
    float *rows, *grads;
    uint64_t repeated_keys;
    struct gpu *gpu; /* NULL: a device on the host */
} workspace;

/* >>run: where a device's arrays are */

#ifdef TEST_CUDA
enum { FOCUS_COUNT = 4 }; /* for one of the host's */

static int gpus(void) {
    static int n = -1;
    if (n < 0) n = gpu_count();
    return n;
}

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER; /* trials that share workers; one at a time */

static int attach_gpu_locked(const trial *t, frugal *f, workspace *w, uint32_t d) {
    trial_gpu where = trial_gpu_of(t, d, gpus());
    frugal_cuda_desc desc = {.cache_rows = t->caches[d].cache_rows,
                             .policy = t->caches[d].policy,
                             .gate_on_stream = where.gate_on_stream};
    if (where.ordinal < 0) return 0;
    if (!w->gpu) w->gpu = gpu_open(where.ordinal, (size_t)t->max_keys * t->dim, 2 * (size_t)t->max_keys + 1, t->unaligned);
    desc.stream = gpu_stream(w->gpu);
    return frugal_cuda_attach(f, d, where.ordinal, &desc) == FRUGAL_OK ? 1 : -1;
}

static int attach_gpu(const trial *t, frugal *f, workspace *w, uint32_t d) {
    pthread_mutex_lock(&attaching);
    int attached = attach_gpu_locked(t, f, w, d);
    pthread_mutex_unlock(&attaching);
    return attached;
}

static float *rows_of(workspace *w) {
    return w->gpu ? gpu_rows(w->gpu) : w->rows;
}

/* After a lookup: the rows, or the block, are on the host. */
static void fetch_rows(workspace *w, size_t floats, int in_block) {
    if (w->gpu && in_block) gpu_wait(w->gpu);
    if (w->gpu && !in_block) gpu_get(w->gpu, w->rows, gpu_rows(w->gpu), 4 * floats);
}

static const float *send_grads(workspace *w, size_t floats) {
    if (!w->gpu) return w->grads;
    gpu_put(w->gpu, gpu_grads(w->gpu), w->grads, 4 * floats);
    return gpu_grads(w->gpu);
}

static frugal_bags send_bags(workspace *w) {
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

static void close_gpu(workspace *w) {
    gpu_close(w->gpu);
    w->gpu = NULL;
}
#else
enum { FOCUS_COUNT = 1 };

static int attach_gpu(const trial *t, frugal *f, workspace *w, uint32_t d) {
    (void)t, (void)f, (void)w, (void)d;
    return 0;
}
static float *rows_of(workspace *w) {
    return w->rows;
}
static void fetch_rows(workspace *w, size_t floats, int in_block) {
    (void)w, (void)floats, (void)in_block;
}
static const float *send_grads(workspace *w, size_t floats) {
    (void)floats;
    return w->grads;
}
static frugal_bags send_bags(workspace *w) {
    return w->trained.bags;
}
static void close_gpu(workspace *w) {
    (void)w;
}
#endif

typedef struct run {
    const trial *t;
    expectation *e;
    frugal *f;
    frugal_workers *workers; /* shared; NULL: its own */
    test_counter counter;
    float *matrix, *matrix_state; /* the caller's table, and where its rows begin */
    uint64_t matrix_floats, matrix_state_floats;
    char file[64];
    workspace work[TRIAL_DEVICES];
    atomic_uint next[TRIAL_DEVICES]; /* step to announce next; its loader's */
    pthread_mutex_t announced_lock;
    pthread_cond_t announced; /* `next` has grown, or the run has failed */
    uint32_t phase, from, to, announce_to[TRIAL_DEVICES];
    int mutation;
    atomic_int failed, phase_over;
    atomic_uint visits;  /* of lent threads */
    frugal_stats before; /* of the instances that were closed */
    char message[512];
} run;

/* The first failure is kept; all threads are woken. */
__attribute__((format(printf, 2, 3))) static void run_fail(run *r, const char *format, ...) {
    if (atomic_exchange(&r->failed, 1)) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->message, sizeof(r->message), format, arguments);
    va_end(arguments);
    if (r->f) frugal_stop(r->f);
    pthread_mutex_lock(&r->announced_lock);
    pthread_cond_broadcast(&r->announced);
    pthread_mutex_unlock(&r->announced_lock);
}

static int run_expect(run *r, frugal_status status, frugal_status wanted, const char *call, uint32_t device,
                      uint64_t step) {
    if (status == wanted) return 1;
    run_fail(r, "%s(device %u, step %llu) returned %d, not %d: %s", call, device, (unsigned long long)step, (int)status,
             (int)wanted, status == FRUGAL_OK ? "" : frugal_message());
    return 0;
}

static void run_pause(run *r) {
    if (!frugal_help(r->f)) sched_yield();
}

/* >>run: misuse, which must change nothing */

static void misuse_announce(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    uint64_t s = t->first_step + step, bad = t->table_rows[0];
    uint64_t *many = calloc((size_t)t->max_keys + 1, sizeof(uint64_t));
    many[0] = bad;
    frugal_keys bad_key[] = {{0, &many[1], t->max_keys - 1}, {0, &bad, 1}}, too_many = {0, many + 0, t->max_keys + 1};
    frugal_keys bad_table = {t->n_tables, many, 1};
    many[0] = 0;
    frugal_batch key = {bad_key, 2, 0}, keys = {&too_many, 1, 0}, table = {&bad_table, 1, 0}, empty = {0};
    if (t->max_keys == 1) key.segments++, key.n_segments--;
    switch (trial_bits(t, 7, d, step) % 6) {
    case 0:
        run_expect(r, frugal_announce(r->f, d, s, &key), FRUGAL_ERR_KEY, "announce (bad key)", d, s);
        break;
    case 1:
        run_expect(r, frugal_announce(r->f, d, s, &keys), FRUGAL_ERR_KEYS, "announce (too many)", d, s);
        break;
    case 2:
        run_expect(r, frugal_announce(r->f, d, s, &table), FRUGAL_ERR_TABLE, "announce (bad table)", d, s);
        break;
    case 3:
        run_expect(r, frugal_announce(r->f, d, s + 1, &empty), FRUGAL_ERR_ORDER, "announce (skips)", d, s);
        break;
    case 4:
        if (s > 0) run_expect(r, frugal_announce(r->f, d, s - 1, &empty), FRUGAL_ERR_ORDER, "announce (again)", d, s);
        break;
    default:
        run_expect(r, frugal_announce(r->f, t->devices, s, &empty), FRUGAL_ERR_DEVICE, "announce", t->devices, s);
    }
    free(many);
}

/* Before the lookup of `step`: none of these may be. */
static void misuse_train(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    uint64_t s = t->first_step + step;
    float *rows = r->work[d].rows;
    frugal_gradients g = {.grads = r->work[d].grads, .lr = 0.5f};
    frugal_records records;
    switch (trial_bits(t, 8, d, step) % 6) {
    case 0:
        run_expect(r, frugal_lookup(r->f, d, s + 1, rows), FRUGAL_ERR_ORDER, "lookup (ahead)", d, s + 1);
        break;
    case 1:
        if (s > 0) run_expect(r, frugal_try_lookup(r->f, d, s - 1, rows), FRUGAL_ERR_ORDER, "lookup (again)", d, s);
        break;
    case 2:
        run_expect(r, frugal_update(r->f, d, s, &g), FRUGAL_ERR_ORDER, "update (before lookup)", d, s);
        break;
    case 3:
        run_expect(r, frugal_update(r->f, d, s + 1, NULL), FRUGAL_ERR_ORDER, "update (ahead)", d, s + 1);
        break;
    case 4:
        run_expect(r, frugal_get_records(r->f, d, s, &records), FRUGAL_ERR_ORDER, "get_records", d, s);
        break;
    default:
        run_expect(r, frugal_lookup(r->f, t->devices, s, rows), FRUGAL_ERR_DEVICE, "lookup", t->devices, s);
    }
}

/* >>run: announcing */

/* Returns 0 if it may not be announced yet (`wait` 0) or the run has failed. */
static int run_announce(run *r, uint32_t d, uint32_t step, int wait) {
    const trial *t = r->t;
    trial_batch *b = &r->work[d].announced;
    uint64_t s = t->first_step + step;
    if (atomic_load(&r->failed)) return 0;
    if (wait && trial_chance(t, 9, d, step, t->misuse)) misuse_announce(r, d, step);
    trial_make_batch(t, d, step, r->phase, b);
    frugal_status status = FRUGAL_AGAIN;
    if (!wait || trial_chance(t, 10, d, step, t->try_first)) {
        while ((status = frugal_try_announce(r->f, d, s, &b->batch)) == FRUGAL_AGAIN && wait &&
               !atomic_load(&r->failed))
            run_pause(r);
        if (status == FRUGAL_AGAIN) return 0;
    } else {
        status = frugal_announce(r->f, d, s, &b->batch);
    }
    memset(b->keys, 0xff, 8 * (size_t)t->max_keys); /* they were copied */
    if (!run_expect(r, status, FRUGAL_OK, "announce", d, s)) return 0;
    pthread_mutex_lock(&r->announced_lock);
    r->next[d] = step + 1;
    pthread_cond_broadcast(&r->announced);
    pthread_mutex_unlock(&r->announced_lock);
    return 1;
}

/* A trainer whose batches another thread announces may know that it did, or leave the waiting to its lookup. */
static void run_wait_announced(run *r, uint32_t d, uint32_t step) {
    pthread_mutex_lock(&r->announced_lock);
    while (r->next[d] <= step && !atomic_load(&r->failed)) pthread_cond_wait(&r->announced, &r->announced_lock);
    pthread_mutex_unlock(&r->announced_lock);
}

/* Announces for devices first, first + stride, ... all steps below `to`, step by step. */
static void run_announce_to(run *r, uint32_t first, uint32_t stride, uint32_t to) {
    uint32_t step = to, most = 0;
    for (uint32_t d = first; d < r->t->devices; d += stride) {
        if (r->next[d] < step) step = r->next[d];
        if (r->announce_to[d] > most) most = r->announce_to[d];
    }
    if (to > most) to = most;
    for (; step < to && !atomic_load(&r->failed); step++)
        for (uint32_t d = first; d < r->t->devices; d += stride)
            if (r->next[d] == step && step < r->announce_to[d]) run_announce(r, d, step, 1);
}

/* >>run: lookup and update */

static void check_records(run *r, uint32_t d, uint32_t step, const frugal_records *k) {
    const trial_batch *b = &r->work[d].trained;
    uint64_t s = r->t->first_step + step;
    int good = k->n == b->n && k->n_unique <= k->n && k->start[0] == 0 && k->start[k->n_unique] == k->n;
    for (uint32_t i = 0; good && i < k->n; i++)
        good = k->record_of[i] < k->n_unique && k->rows[k->record_of[i]] == b->rows[i];
    for (uint32_t u = 0; good && u < k->n_unique; u++) {
        good = (u == 0 || k->rows[u - 1] < k->rows[u]) && k->start[u] < k->start[u + 1];
        for (uint32_t i = k->start[u]; good && i < k->start[u + 1]; i++)
            good = k->record_of[k->order[i]] == u && (i == k->start[u] || k->order[i - 1] < k->order[i]);
    }
    if (!good) run_fail(r, "get_records(device %u, step %llu): inconsistent", d, (unsigned long long)s);
}

/* Sums equal keys into the staging block, with sums of the test's own. */
static void write_in_place(run *r, uint32_t d, uint32_t step) {
    uint32_t dim = r->t->dim;
    frugal_records k;
    uint64_t s = r->t->first_step + step;
    if (!run_expect(r, frugal_get_records(r->f, d, s, &k), FRUGAL_OK, "get_records", d, s)) return;
    check_records(r, d, step, &k);
    float *block = malloc(4 * (size_t)dim);
    for (uint32_t u = 0; u < k.n_unique && !atomic_load(&r->failed); u++) {
        float *sum = k.block + u * k.stride;
        for (uint32_t i = k.start[u]; i < k.start[u + 1]; i++) {
            uint32_t at = i - k.start[u];
            if (at > 0 && at % 32 == 0) reference_add(sum, block, dim, at == 32);
            reference_add(block, r->work[d].grads + (size_t)k.order[i] * dim, dim, at % 32 == 0);
        }
        reference_add(sum, block, dim, k.start[u + 1] - k.start[u] <= 32);
    }
    free(block);
}

/* After a lookup into the staging block: the batch by position, as an array would have it. */
static void read_block(run *r, uint32_t d, uint32_t step) {
    uint64_t dim = r->t->dim, s = r->t->first_step + step;
    frugal_records k;
    if (!run_expect(r, frugal_get_records(r->f, d, s, &k), FRUGAL_OK, "get_records", d, s)) return;
    check_records(r, d, step, &k);
    for (uint32_t i = 0; i < k.n && !atomic_load(&r->failed); i++)
        memcpy(r->work[d].rows + i * dim, k.block + k.record_of[i] * k.stride, 4 * dim);
}

/* What the trainer has of its batch: rows by position, or bags. */
static uint32_t looked_up(const trial_batch *b) {
    return b->pools ? b->bags.n_bags : b->n;
}

/* The `nth` lookup of the step, by one of the five ways. */
static void lookup_once(run *r, uint32_t d, uint32_t step, uint64_t nth) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    uint64_t s = t->first_step + step;
    int in_block = !w->trained.pools && trial_chance(t, 18 + (nth << 4), d, step, t->in_block);
    float *rows = in_block ? NULL : rows_of(w);
    frugal_status status = FRUGAL_AGAIN;
    memset(w->rows, 0xff, 4 * (size_t)t->max_keys * t->dim);
    if (w->trained.pools) {
        frugal_bags bags = send_bags(w);
        status = frugal_lookup_bags(r->f, d, s, &bags, rows);
    } else if (trial_chance(t, 14, d, step, t->try_first)) {
        while ((status = frugal_try_lookup(r->f, d, s, rows)) == FRUGAL_AGAIN && !atomic_load(&r->failed)) run_pause(r);
    } else {
        status = frugal_lookup(r->f, d, s, rows);
    }
    if (!run_expect(r, status, FRUGAL_OK, "lookup", d, s)) return;
    fetch_rows(w, (size_t)looked_up(&w->trained) * t->dim, in_block);
    if (in_block) read_block(r, d, step);
    if (test_hash(0, w->rows, (size_t)looked_up(&w->trained) * t->dim) != r->e->lookups[step * t->devices + d])
        run_fail(r, "lookup(device %u, step %llu): rows differ from the reference", d, (unsigned long long)s);
}

static void run_lookup(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    if (trial_chance(t, 11, d, step, t->misuse)) misuse_train(r, d, step);
    trial_make_batch(t, d, step, t->n_boundaries, &w->trained);
    uint64_t lookups = 1 + (trial_chance(t, 12, d, step, t->repeat) ? trial_bits(t, 13, d, step) % 3 : 0);
    for (uint64_t i = 0; i < lookups && !atomic_load(&r->failed); i++) lookup_once(r, d, step, i);
    w->repeated_keys += (lookups - 1) * w->trained.n;
}

static void run_update(run *r, uint32_t d, uint32_t step) {
    const trial *t = r->t;
    workspace *w = &r->work[d];
    uint64_t s = t->first_step + step;
    if (atomic_load(&r->failed)) return;
    trial_gradients(t, d, step, w->rows, looked_up(&w->trained), w->grads);
    frugal_gradients g = {.grads = w->grads, .lr = trial_lr(t, step), .by_bag = w->trained.pools};
    int here = d == r->e->brought_device && step == r->e->brought_step;
    if (here && r->mutation == MUTATE_GRADIENT) {
        uint32_t bag = 0; /* the first with a key */
        while (w->trained.pools && w->trained.offsets[bag + 1] == 0) bag++;
        w->grads[(size_t)bag * t->dim] += 0.25f;
    }
    if (w->trained.in_place && w->trained.brings) {
        write_in_place(r, d, step);
        g.grads = NULL, g.records = 1;
    } else if (w->trained.brings) {
        g.grads = send_grads(w, (size_t)looked_up(&w->trained) * t->dim);
    }
    if (atomic_load(&r->failed)) return;
    frugal_gradients none = {.lr = g.lr};
    const frugal_gradients *nothing = trial_bits(t, 15, d, step) % 2 ? NULL : &none;
    int brings = w->trained.brings && !(here && r->mutation == MUTATE_SKIP);
    run_expect(r, frugal_update(r->f, d, s, brings ? &g : nothing), FRUGAL_OK, "update", d, s);
    memset(w->grads, 0xff, 4 * (size_t)t->max_keys * t->dim); /* they may be reused */
}

/* >>run: threads of a phase */

typedef struct hand { /* a thread that drives devices first, first + stride, ... */
    pthread_t thread;
    run *r;
    uint32_t first, stride;
    int trains, loads, helps;
} hand;

static void hand_train(run *r, const hand *h) {
    const trial *t = r->t;
    for (uint32_t step = r->from; step < r->to && !atomic_load(&r->failed); step++) {
        if (h->loads) run_announce_to(r, h->first, h->stride, step + t->ahead + 1);
        for (uint32_t d = h->first; d < t->devices; d += h->stride) {
            if (!t->lookups_wait) run_wait_announced(r, d, step);
            run_lookup(r, d, step);
            if (!t->lookups_first) run_update(r, d, step);
        }
        for (uint32_t d = h->first; t->lookups_first && d < t->devices; d += h->stride) run_update(r, d, step);
        for (uint32_t d = h->first; h->loads && d < t->devices; d += h->stride) /* further ahead, if it may be */
            if (r->next[d] < r->announce_to[d] && trial_chance(t, 16, d, step, 30)) run_announce(r, d, r->next[d], 0);
    }
}

/* One of the threads that a helper lends, for a while. */
static void *visit_main(void *argument) {
    run *r = argument;
    uint64_t pieces = trial_bits(r->t, 19, 0, atomic_fetch_add(&r->visits, 1)) % 300;
    while (pieces-- > 0 && !atomic_load(&r->phase_over)) run_pause(r);
    return NULL;
}

static void hand_help(run *r) {
    while (!atomic_load(&r->phase_over)) {
        pthread_t visitor;
        if (pthread_create(&visitor, NULL, visit_main, r)) abort();
        pthread_join(visitor, NULL);
    }
}

static void *hand_main(void *argument) {
    hand *h = argument;
    run *r = h->r;
    if (h->helps) hand_help(r);
    if (h->trains) hand_train(r, h);
    if (h->loads) run_announce_to(r, h->first, h->stride, UINT32_MAX);
    return NULL;
}

/* Trains up to the boundary, and announces as far as it says; no call is under way when it returns. */
static void run_phase(run *r) {
    const trial *t = r->t;
    hand hands[2 * TRIAL_DEVICES + TRIAL_HELPERS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->trainers; i++)
        hands[n++] = (hand){.r = r, .first = i, .stride = t->trainers, .trains = 1, .loads = t->loaders == 0};
    for (uint32_t i = 0; i < t->loaders; i++) hands[n++] = (hand){.r = r, .first = i, .stride = t->loaders, .loads = 1};
    for (uint32_t i = 0; i < t->helpers; i++) hands[n++] = (hand){.r = r, .first = t->devices, .stride = 1, .helps = 1};
    atomic_store(&r->phase_over, 0);
    for (uint32_t i = 1; i < n; i++)
        if (pthread_create(&hands[i].thread, NULL, hand_main, &hands[i])) abort();
    hand_main(&hands[0]);
    for (uint32_t i = 1; i < n; i++) {
        if (hands[i].helps) atomic_store(&r->phase_over, 1);
        pthread_join(hands[i].thread, NULL);
    }
}

/* >>run: boundaries */

static void check_whole(run *r, uint32_t b) {
    const trial *t = r->t;
    uint64_t hash = 0;
    for (uint32_t i = 0; i < t->n_tables; i++) {
        const float *weights;
        uint64_t stride;
        if (!run_expect(r, frugal_view(r->f, i, &weights, &stride), FRUGAL_OK, "view", i, b)) return;
        for (uint64_t row = 0; row < t->table_rows[i]; row++) hash = test_hash(hash, weights + row * stride, t->dim);
    }
    if (hash != r->e->whole[b])
        run_fail(r, "boundary %u (before step %u): the drained table differs", b, t->boundaries[b].at);
}

static void check_read(run *r, uint32_t b) {
    uint64_t keys[BOUNDARY_ROWS], hash = 0;
    const reference *ref = &r->e->ref;
    frugal_keys k = boundary_keys(r->t, b, keys);
    float *weights = malloc(4 * (size_t)k.n * ref->dim), *state = malloc(4 * ((size_t)k.n * ref->state_floats + 1));
    run_expect(r, frugal_read_rows(r->f, &k, weights, ref->state_floats ? state : NULL), FRUGAL_OK, "read_rows", 0, b);
    for (uint32_t i = 0; i < k.n; i++) {
        hash = test_hash(hash, weights + (size_t)i * ref->dim, ref->dim);
        hash = test_hash(hash, state + (size_t)i * ref->state_floats, ref->state_floats);
    }
    if (hash != r->e->read[b]) run_fail(r, "boundary %u (before step %u): rows read differ", b, r->t->boundaries[b].at);
    free(weights), free(state);
}

static void write_rows(run *r, uint32_t b, frugal_status wanted) {
    uint64_t keys[BOUNDARY_ROWS];
    const reference *ref = &r->e->ref;
    frugal_keys k = boundary_keys(r->t, b, keys);
    float *weights = malloc(4 * (size_t)k.n * ref->dim), *state = malloc(4 * ((size_t)k.n * ref->state_floats + 1));
    boundary_values(r->t, b, ref, k.n, weights, state);
    run_expect(r, frugal_write_rows(r->f, &k, weights, ref->state_floats ? state : NULL), wanted, "write_rows", 0, b);
    free(weights), free(state);
}

static void preload(run *r, uint32_t b) {
    uint64_t keys[BOUNDARY_ROWS];
    for (uint32_t d = 0; d < r->t->devices; d++) {
        frugal_keys k = boundary_keys(r->t, b + d, keys);
        if (r->t->caches[d].cache_rows) run_expect(r, frugal_preload(r->f, d, &k), FRUGAL_OK, "preload", d, b);
    }
}

/* >>run: opening and closing */

static void fill(float *values, uint64_t n, uint64_t seed) {
    for (uint64_t i = 0; i < n; i++) values[i] = (float)test_unit(test_mix2(seed, i)) - 0.25f;
}

/* The caller's memory, where the trial wants it to be the table. */
static void make_matrix(run *r) {
    const trial *t = r->t;
    uint32_t floats = frugal_state_floats(t->optimizer.kind, t->dim);
    r->matrix_floats = t->unaligned + t->rows * (t->weights_stride ? t->weights_stride : t->dim);
    r->matrix = malloc(4 * r->matrix_floats);
    fill(r->matrix, r->matrix_floats, t->seed);
    if (t->storage != TRIAL_MATRIX_AND_STATE || floats == 0) return;
    r->matrix_state_floats = t->unaligned + t->rows * (t->state_stride ? t->state_stride : floats);
    r->matrix_state = malloc(4 * r->matrix_state_floats);
    fill(r->matrix_state, r->matrix_state_floats, ~t->seed);
    for (uint64_t i = 0; i < r->matrix_state_floats; i++)
        r->matrix_state[i] += 0.25f; /* sums of squares are not negative */
}

static frugal_desc make_desc(run *r, frugal_table *tables) {
    const trial *t = r->t;
    frugal_desc desc = {.tables = tables,
                        .n_tables = t->n_tables,
                        .dim = t->dim,
                        .devices = t->devices,
                        .max_keys = t->max_keys,
                        .lookahead = t->lookahead,
                        .staging = t->staging,
                        .workers = r->workers ? 0 : t->workers,
                        .shared_workers = r->workers,
                        .defer = t->defer,
                        .mode = t->mode,
                        .reduce = t->reduce,
                        .optimizer = t->optimizer,
                        .first_step = t->first_step,
                        .seed = t->seed,
                        .init_threads = 1 + (uint32_t)(t->seed / 16 % 3),
                        .stuck_seconds = 60};
    for (uint32_t i = 0; i < t->n_tables; i++) {
        tables[i].rows = t->table_rows[i];
        if (t->has_own[i]) tables[i].optimizer = &t->own[i];
        if (r->matrix) continue; /* as it is */
        tables[i].init = (t->seed / 48 + i) % 2 ? FRUGAL_INIT_NORMAL : FRUGAL_INIT_UNIFORM;
        tables[i].low = tables[i].mean = -0.25f, tables[i].high = tables[i].deviation = 0.5f;
    }
    if (t->counted) desc.allocate = test_allocate, desc.release = test_release, desc.user = &r->counter;
    if (r->matrix) desc.weights = r->matrix + t->unaligned, desc.weights_stride = t->weights_stride;
    if (r->matrix_state) desc.state = r->matrix_state + t->unaligned, desc.state_stride = t->state_stride;
    if (r->file[0]) desc.file = r->file;
    return desc;
}

/* Reads the whole table: weights[rows][dim], state[rows][state_floats]. */
static int read_all(run *r, float *weights, float *state) {
    const trial *t = r->t;
    const reference *ref = &r->e->ref;
    uint64_t *keys = malloc(8 * t->rows);
    for (uint64_t i = 0; i < t->rows; i++) keys[i] = i;
    int good = 1;
    for (uint32_t i = 0; i < t->n_tables; i++) {
        frugal_keys k = {i, keys, (uint32_t)t->table_rows[i]};
        float *s = ref->state_floats ? state + t->first_row[i] * ref->state_floats : NULL;
        good &= run_expect(r, frugal_read_rows(r->f, &k, weights + t->first_row[i] * t->dim, s), FRUGAL_OK, "read_rows",
                           0, 0);
    }
    free(keys);
    return good;
}

/* The settings of a table, defaults resolved. */
static reference_range range_of(const trial *t, uint32_t table) {
    const frugal_optimizer *o = t->has_own[table] ? &t->own[table] : &t->optimizer;
    reference_range range = {.end = t->first_row[table] + t->table_rows[table], .weight_decay = o->weight_decay};
    range.eps = o->eps != 0 ? o->eps : o->kind == FRUGAL_ADAGRAD ? 1e-10f : 1e-8f;
    range.beta1 = o->beta1 != 0 ? o->beta1 : 0.9f, range.beta2 = o->beta2 != 0 ? o->beta2 : 0.999f;
    range.lr_scale = o->lr_scale != 0 ? o->lr_scale : 1;
    range.accumulator = o->initial_accumulator, range.frozen = o->frozen;
    return range;
}

static int open_reference(run *r) {
    const trial *t = r->t;
    reference *ref = &r->e->ref;
    ref->rows = t->rows, ref->dim = t->dim, ref->devices = t->devices;
    ref->optimizer = (int)t->optimizer.kind, ref->mean = t->reduce == FRUGAL_MEAN; /* the same order of names */
    ref->n_ranges = t->n_tables;
    for (uint32_t i = 0; i < t->n_tables; i++) ref->ranges[i] = range_of(t, i);
    if (!reference_open(ref, 0)) abort();
    float *state = malloc(4 * (ref->rows * ref->state_floats + 1));
    int good = read_all(r, ref->weights, state);
    if (r->matrix_state) memcpy(ref->state, state, 4 * ref->rows * ref->state_floats); /* the caller's, as it was */
    if (good && memcmp(ref->state, state, 4 * ref->rows * ref->state_floats)) run_fail(r, "initial state is wrong");
    free(state);
    return good;
}

static int open_instance(run *r, uint64_t first_step) {
    const trial *t = r->t;
    frugal_table tables[TRIAL_TABLES] = {{0}};
    frugal_desc desc = make_desc(r, tables);
    desc.first_step = first_step;
    if (!run_expect(r, frugal_open(&desc, &r->f), FRUGAL_OK, "open", 0, first_step)) return 0;
    memset(tables, 0xff, sizeof(tables)); /* they were copied */
    for (uint32_t d = 0; d < t->devices; d++) {
        int on_gpu = attach_gpu(t, r->f, &r->work[d], d);
        if (on_gpu < 0) run_fail(r, "cuda_attach(device %u): %s", d, frugal_message());
        if (on_gpu < 0) return 0;
        const frugal_cpu_desc *cache = t->caches[d].cache_rows ? &t->caches[d] : NULL;
        if (!on_gpu && !run_expect(r, frugal_cpu_attach(r->f, d, cache), FRUGAL_OK, "attach", d, 0)) return 0;
    }
    return 1;
}

static void run_open(run *r) {
    const trial *t = r->t;
    for (uint32_t d = 0; d < t->devices; d++) {
        workspace *w = &r->work[d];
        open_batch(t, &w->trained), open_batch(t, &w->announced);
        w->rows = malloc(4 * (size_t)t->max_keys * t->dim), w->grads = malloc(4 * (size_t)t->max_keys * t->dim);
    }
    if (t->storage == TRIAL_MATRIX || t->storage == TRIAL_MATRIX_AND_STATE) make_matrix(r);
    if (t->storage == TRIAL_FILE) {
        snprintf(r->file, sizeof(r->file), "/tmp/frugal_property_%d_%llx", (int)getpid(), (unsigned long long)t->seed);
        unlink(r->file);
    }
    if (open_instance(r, t->first_step) && open_reference(r) && t->preload) preload(r, 99);
}

/* What frugal does with memory that is not its own: the rows as in the reference, all else as it was. */
static void check_matrix(run *r, const float *matrix, uint64_t floats, uint64_t stride, uint32_t width,
                         const float *rows, uint64_t seed, float raised) {
    for (uint64_t i = 0; matrix && i < floats; i++) {
        uint64_t at = i - r->t->unaligned, row = at / stride, column = at % stride;
        float expected = (float)test_unit(test_mix2(seed, i)) - 0.25f;
        expected += raised;
        if (i >= r->t->unaligned && column < width) expected = rows[row * width + column];
        if (memcmp(&expected, &matrix[i], 4)) {
            run_fail(r, "the caller's matrix differs at float %llu", (unsigned long long)i);
            return;
        }
    }
}

static void check_tables(run *r, const char *when) {
    const reference *ref = &r->e->ref;
    float *weights = calloc(ref->rows * ref->dim, 4), *state = calloc(ref->rows * ref->state_floats + 1, 4);
    if (read_all(r, weights, state)) {
        if (memcmp(weights, ref->weights, 4 * ref->rows * ref->dim))
            run_fail(r, "%s: weights differ from the reference", when);
        if (memcmp(state, ref->state, 4 * ref->rows * ref->state_floats))
            run_fail(r, "%s: state differs from the reference", when);
    }
    free(weights), free(state);
}

static void run_close(run *r) {
    for (uint32_t d = 0; d < r->t->devices; d++) {
        workspace *w = &r->work[d];
        close_batch(&w->trained), close_batch(&w->announced);
        free(w->rows), free(w->grads);
    }
    frugal_close(r->f);
    r->f = NULL;
    for (uint32_t d = 0; d < r->t->devices; d++) close_gpu(&r->work[d]); /* streams outlive the instance */
    if (atomic_load(&r->counter.bytes_out) || atomic_load(&r->counter.blocks_out))
        run_fail(r, "%llu bytes in %llu blocks leaked", (unsigned long long)r->counter.bytes_out,
                 (unsigned long long)r->counter.blocks_out);
}

/* A file opened again has the rows and the state that were drained into it. */
static void check_reopened(run *r) {
    frugal_table tables[TRIAL_TABLES] = {{0}};
    if (!r->file[0]) return;
    for (uint32_t i = 0; i < r->t->n_tables; i++) tables[i].rows = r->t->table_rows[i];
    frugal_desc desc = {.tables = tables,
                        .n_tables = r->t->n_tables,
                        .dim = r->t->dim,
                        .max_keys = 1,
                        .optimizer = r->t->optimizer,
                        .file = r->file};
    if (!atomic_load(&r->failed) && run_expect(r, frugal_open(&desc, &r->f), FRUGAL_OK, "open again", 0, 0))
        check_tables(r, "the file, opened again");
    frugal_close(r->f);
    r->f = NULL;
    unlink(r->file);
}

/* >>run: statistics */

/* Adds what is counted since open. */
static void add_stats(frugal_stats *sum, const frugal_stats *s) {
    sum->steps += s->steps, sum->keys += s->keys, sum->unique_rows += s->unique_rows;
    sum->hits += s->hits, sum->misses += s->misses;
    sum->flushed += s->flushed, sum->flushed_at_close += s->flushed_at_close;
    for (int i = 0; i < 64; i++) sum->flushed_by_urgency[i] += s->flushed_by_urgency[i];
}

static void check_stats(run *r) {
    const trial *t = r->t;
    frugal_stats s;
    uint64_t urgencies = 0, queued = 0, repeated = 0, cached = 0;
    frugal_get_stats(r->f, &s);
    add_stats(&s, &r->before);
    for (int i = 0; i < 64; i++) urgencies += s.flushed_by_urgency[i], queued += s.queue_depth[i] != 0;
    for (uint32_t d = 0; d < t->devices; d++) repeated += r->work[d].repeated_keys, cached += t->caches[d].cache_rows;
    const char *wrong = NULL;
    if (s.steps != t->steps) wrong = "steps";
    if (s.keys < r->e->keys || s.keys > r->e->keys + repeated) wrong = "keys";
    if (s.unique_rows < r->e->unique_rows || (!repeated && s.unique_rows != r->e->unique_rows)) wrong = "unique_rows";
    if (s.hits + s.misses < s.unique_rows || (!repeated && s.hits + s.misses != s.unique_rows)) wrong = "hits + misses";
    if (cached == 0 && s.hits) wrong = "hits without a cache";
    if (s.flushed != r->e->flushed) wrong = "flushed";
    if (urgencies + s.flushed_at_close != s.flushed) wrong = "flushed_by_urgency + flushed_at_close";
    if (queued) wrong = "queue_depth after a drain";
    if (s.staging_in_use) wrong = "staging_in_use after a drain";
    uint32_t ring = t->lookahead < 2 ? t->lookahead + 2 : 4, by_default = t->workers || t->defer ? ring : 1;
    if (s.staging_depth != (t->staging ? t->staging : by_default)) wrong = "staging_depth";
    if (s.state_bytes > 9 * t->rows) wrong = "state_bytes";
    if (s.stall_seconds < 0 || s.announce_wait_seconds < 0 || s.worker_busy_seconds < 0) wrong = "seconds";
    if (wrong)
        run_fail(r, "stats: %s; keys %llu/%llu, unique %llu/%llu, hits %llu, misses %llu, flushed %llu/%llu", wrong,
                 (unsigned long long)s.keys, (unsigned long long)r->e->keys, (unsigned long long)s.unique_rows,
                 (unsigned long long)r->e->unique_rows, (unsigned long long)s.hits, (unsigned long long)s.misses,
                 (unsigned long long)s.flushed, (unsigned long long)r->e->flushed);
}

/* >>run: a boundary */

/* The same rows and state in a new instance, whose first step is `step`. */
static void run_reopen(run *r, uint64_t step) {
    frugal_stats s;
    frugal_get_stats(r->f, &s);
    add_stats(&r->before, &s);
    frugal_close(r->f);
    r->f = NULL;
    open_instance(r, step);
}

static void run_boundary(run *r, uint32_t b) {
    const trial *t = r->t;
    const trial_boundary *at = &t->boundaries[b];
    uint64_t s = t->first_step + at->at;
    uint32_t announced = 0;
    for (uint32_t d = 0; d < t->devices; d++) announced = r->next[d] > announced ? r->next[d] : announced;
    if ((at->actions & TRIAL_MISUSE) && announced > at->at) {
        write_rows(r, b, FRUGAL_ERR_BUSY);
        run_expect(r, frugal_release_holders(r->f), FRUGAL_ERR_BUSY, "release_holders", 0, s);
        run_expect(r, frugal_cancel(r->f, t->first_step + announced + 1), FRUGAL_ERR_ORDER, "cancel (ahead)", 0, s);
        if (s > 0) run_expect(r, frugal_cancel(r->f, s - 1), FRUGAL_ERR_ORDER, "cancel (committed)", 0, s);
    }
    if (at->actions & TRIAL_CANCEL && at->cancel_from <= announced) {
        run_expect(r, frugal_cancel(r->f, t->first_step + at->cancel_from), FRUGAL_OK, "cancel", 0,
                   t->first_step + at->cancel_from);
        for (uint32_t d = 0; d < t->devices; d++)
            if (r->next[d] > at->cancel_from) r->next[d] = at->cancel_from;
    }
    if (at->actions & TRIAL_READ && !(at->actions & TRIAL_WRITE)) check_read(r, b); /* not drained, perhaps */
    if (at->actions & TRIAL_DRAIN) run_expect(r, frugal_drain(r->f), FRUGAL_OK, "drain", 0, s);
    if (at->actions & TRIAL_DRAIN) run_expect(r, frugal_verify(r->f), FRUGAL_OK, "verify", 0, s);
    if (at->actions & TRIAL_WRITE) write_rows(r, b, FRUGAL_OK), check_read(r, b);
    if (at->actions & TRIAL_REOPEN) run_reopen(r, s);
    if (atomic_load(&r->failed)) return;
    if (at->actions & TRIAL_DRAIN) check_whole(r, b);
    if (at->actions & TRIAL_RELEASE) {
        run_expect(r, frugal_release_holders(r->f), FRUGAL_OK, "release_holders", 0, s);
        if (t->preload) preload(r, b);
    }
    if (at->actions & TRIAL_DRAIN) run_expect(r, frugal_verify(r->f), FRUGAL_OK, "verify", 0, s);
}

/* >>trials */

static void describe(const trial *t) {
    printf("# seed %llu: rows %llu in %u, dim %u, devices %u, keys %u, L %u, S %u, %sworkers %u, steps %u from %llu, "
           "%s, optimizer %d (tables' own: %d%d%d), storage %d, trainers %u, loaders %u, boundaries %u\n",
           (unsigned long long)t->seed, (unsigned long long)t->rows, t->n_tables, t->dim, t->devices, t->max_keys,
           t->lookahead, t->staging, t->shares ? "shared " : "", t->workers, t->steps,
           (unsigned long long)t->first_step, t->mode == FRUGAL_SYNC ? "sync" : "p2f", (int)t->optimizer.kind,
           t->has_own[0], t->has_own[1], t->has_own[2], t->storage, t->trainers, t->loaders, t->n_boundaries);
    fflush(stdout);
}

static void run_phases(run *r) {
    const trial *t = r->t;
    for (r->phase = 0; r->phase < t->n_boundaries && !atomic_load(&r->failed); r->phase++) {
        const trial_boundary *b = &t->boundaries[r->phase];
        r->to = b->at;
        for (uint32_t d = 0; d < t->devices; d++) {
            int fewer = b->ragged && trial_bits(t, 17, d, r->phase) % 2 && b->announce_to > b->at;
            r->announce_to[d] = b->announce_to - (uint32_t)fewer;
        }
        run_phase(r);
        if (!atomic_load(&r->failed)) run_boundary(r, r->phase);
        r->from = r->to;
    }
}

/* Runs one configuration, on `workers` if they are shared. As run_trial. */
static int run_beside(const trial *t, frugal_workers *workers, int mutation, char *message) {
    expectation e;
    run r = {.t = t, .e = &e, .workers = workers, .mutation = mutation};
    pthread_mutex_init(&r.announced_lock, NULL);
    pthread_cond_init(&r.announced, NULL);
    memset(&e, 0, sizeof(e));
    if (verbose) describe(t);
    run_open(&r);
    if (!atomic_load(&r.failed)) simulate(t, &e);
    int pointless = mutation != NO_MUTATION && !e.brought;
    if (!atomic_load(&r.failed) && !pointless) run_phases(&r);
    if (!atomic_load(&r.failed) && !pointless) check_tables(&r, "drained"), check_stats(&r);
    uint64_t weights_stride = t->weights_stride ? t->weights_stride : t->dim;
    uint64_t state_stride = t->state_stride ? t->state_stride : e.ref.state_floats;
    if (!atomic_load(&r.failed) && !pointless) {
        check_matrix(&r, r.matrix, r.matrix_floats, weights_stride, t->dim, e.ref.weights, t->seed, 0);
        check_matrix(&r, r.matrix_state, r.matrix_state_floats, state_stride, e.ref.state_floats, e.ref.state, ~t->seed,
                     0.25f);
    }
    run_close(&r);
    if (!pointless) check_reopened(&r);
    if (r.file[0]) unlink(r.file);
    reference_close(&e.ref);
    free(e.lookups), free(r.matrix), free(r.matrix_state);
    pthread_cond_destroy(&r.announced);
    pthread_mutex_destroy(&r.announced_lock);
    strcpy(message, r.message);
    return pointless ? 2 : !r.failed;
}

typedef struct side { /* a trial that shares its workers with another */
    pthread_t thread;
    trial t;
    frugal_workers *workers;
    int result;
    char message[512];
} side;

static void *side_main(void *argument) {
    side *s = argument;
    s->result = run_beside(&s->t, s->workers, NO_MUTATION, s->message);
    return NULL;
}

/* Runs one configuration, or two that share workers. 1 if frugal and the reference agree; else message[512] says where
 * not. 2 if the mutation asked for has nothing to change. */
static int run_trial(const trial *t, int mutation, char *message) {
    side other = {.result = 1};
    int two = t->seed % 16 == TRIAL_SHARING, result = 0;
    stress_enter(t->seed, "%s %llu", program, (unsigned long long)t->seed);
    if (t->shares && frugal_workers_open(t->workers, &other.workers) != FRUGAL_OK) {
        snprintf(message, 512, "%.500s", frugal_message());
    } else {
        if (two) trial_make_other(&other.t, t);
        if (two && pthread_create(&other.thread, NULL, side_main, &other)) abort();
        result = run_beside(t, other.workers, mutation, message);
        if (two) pthread_join(other.thread, NULL);
    }
    if (frugal_workers_close(other.workers) != FRUGAL_OK && result)
        result = 0, snprintf(message, 512, "%.500s", frugal_message());
    if (!other.result && result) result = 0, snprintf(message, 512, "the other trial: %.480s", other.message);
    stress_leave();
    return result;
}

static unsigned case_count(void) {
    const char *text = getenv("FRUGAL_TEST_COUNT");
    return text ? (unsigned)strtoul(text, NULL, 0) : CASE_COUNT / FOCUS_COUNT;
}

/* A cmocka case: configurations of one focus. */
static void test_focus(void **state) {
    uint64_t focus = (uint64_t)(uintptr_t)*state;
    char name[32];
    snprintf(name, sizeof name, "focus %u", (unsigned)focus);
    for (stress s = stress_begin_at(name, case_count(), FIRST_SEED); stress_next(&s);) {
        trial t;
        char message[512];
        trial_make(&t, s.seed * 16 + focus);
        s.steps += t.steps;
        if (run_trial(&t, NO_MUTATION, message)) continue;
        describe(&t);
        fail_msg("%s; replay: %s %llu", message, program, (unsigned long long)t.seed);
    }
}

/* The judge can say no: a gradient changed, or an update left out, is noticed every time. */
static void test_judge(void **state) {
    int mutation = (int)(intptr_t)*state, done = 0;
    for (uint64_t i = 0; done < 8; i++) {
        trial t;
        char message[512];
        trial_make(&t, (base_seed + 1000 + i) * 16 + i % TRIAL_FOCI);
        for (uint32_t b = 0; b < t.n_boundaries; b++) t.boundaries[b].actions &= ~TRIAL_WRITE; /* it might hide it */
        for (uint32_t k = 0; k < TRIAL_TABLES; k++) t.own[k].frozen = 0;                       /* so might this */
        t.optimizer.frozen = 0;
        int result = run_trial(&t, mutation, message);
        if (result == 1) fail_msg("mutation %d went unnoticed; seed %llu", mutation, (unsigned long long)t.seed);
        done += result == 0;
        if (result == 0 && !strstr(message, "differ"))
            fail_msg("not a difference: %s; seed %llu", message, (unsigned long long)t.seed);
    }
}

static int replay(uint64_t seed, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        trial t;
        char message[512];
        trial_make(&t, seed + 16 * i);
        if (!run_trial(&t, NO_MUTATION, message)) {
            printf("seed %llu FAILED: %s\n", (unsigned long long)t.seed, message);
            return 1;
        }
    }
    printf("%llu configurations passed\n", (unsigned long long)count);
    return 0;
}

#define FOCUS(name, focus)                                                                                             \
    { "bitwise equal to the reference: " name, test_focus, NULL, NULL, (void *)(intptr_t)(focus) }
#define JUDGE(name, kind)                                                                                              \
    { "the judge notices: " name, test_judge, NULL, NULL, (void *)(intptr_t)(kind) }

int main(int argc, char **argv) {
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "-v") == 0) verbose = 1, argc--, argv++;
    if (argc > 1) {
        verbose = 1;
        stress_open(1, argv, 1);
        return replay(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
    }
    base_seed = test_seed("test_property", FIRST_SEED);
    const struct CMUnitTest tests[] = {
        JUDGE("a gradient changed", MUTATE_GRADIENT),
        JUDGE("an update left out", MUTATE_SKIP),
        FOCUS("anything", TRIAL_ANY),
        FOCUS("one thread drives all devices", TRIAL_ONE_THREAD),
        FOCUS("a thread a device", TRIAL_THREAD_A_DEVICE),
        FOCUS("loader and trainer threads", TRIAL_LOADERS),
        FOCUS("no workers", TRIAL_NO_WORKERS),
        FOCUS("write-through", TRIAL_SYNC),
        FOCUS("SGD", TRIAL_SGD),
        FOCUS("Adagrad", TRIAL_ADAGRAD),
        FOCUS("row-wise Adagrad", TRIAL_ROWWISE),
        FOCUS("Adam", TRIAL_ADAM),
        FOCUS("the caller's matrix, or a file", TRIAL_FOREIGN_MEMORY),
        FOCUS("steps of several pieces", TRIAL_WIDE),
        FOCUS("caches and locality", TRIAL_CACHES),
        FOCUS("two instances that share workers", TRIAL_SHARING),
    };
    return stress_run_group(1, argv, "test_property", tests);
}
