/* trial.h - one random configuration of the property test: its shape, and what is trained in it.
 *
 * Everything is a function of the seed, so that the reference and any number of threads see the same batches and
 * gradients in whatever order they ask for them. A run is cut into phases by boundaries: at a boundary no call is under
 * way, and the test may cancel, drain, read, write. */
#ifndef TRIAL_H
#define TRIAL_H

#include <math.h>
#include "../../frugal_counts.h"
#include "../../frugal_machines.h"
#include "../../frugal_secondaries.h"
#include "../../frugal_seeing.h"
#include "../../src/arithmetic.h"
#include "../reference.h"
#include "../support.h"

enum { TRIAL_DEVICES = 8, TRIAL_DIM = 1100, TRIAL_TABLES = 3, TRIAL_BOUNDARIES = 6, TRIAL_HELPERS = 3 };
enum { TRIAL_UNIFORM, TRIAL_ZIPF, TRIAL_ALL_EQUAL, TRIAL_HOT_SET, TRIAL_OWN_PART, TRIAL_SKEWS };
enum { TRIAL_OWN_MEMORY, TRIAL_MATRIX, TRIAL_MATRIX_AND_STATE, TRIAL_FILE, TRIAL_STORAGES };
/* What is done at a boundary; several may be. */
enum { TRIAL_CANCEL = 1, TRIAL_DRAIN = 2, TRIAL_READ = 4, TRIAL_WRITE = 8, TRIAL_RELEASE = 16, TRIAL_MISUSE = 32 };
enum { TRIAL_REOPEN = 64 };  /* closed, and opened again on the same rows and state */
enum { TRIAL_LIST = 128 };   /* other rows are listed whose copies may be stale */
enum { TRIAL_COUNTS = 256 }; /* counts are set, ranked and aged, which changes no bit */
/* The focus is the seed modulo 16: what the configuration is forced to be, so that a seed alone replays it. */
enum {
    TRIAL_ANY,
    TRIAL_ONE_THREAD,
    TRIAL_THREAD_A_DEVICE,
    TRIAL_LOADERS,
    TRIAL_NO_WORKERS,
    TRIAL_SYNC,
    TRIAL_SGD,
    TRIAL_ADAGRAD,
    TRIAL_ROWWISE,
    TRIAL_ADAM,
    TRIAL_ADAMW,
    TRIAL_FOREIGN_MEMORY,
    TRIAL_WIDE,
    TRIAL_CACHES,
    TRIAL_SHARING, /* its workers, with another trial */
    TRIAL_STALE,   /* secondaries */
    TRIAL_HALVES,  /* weights of 16 bits */
    TRIAL_FOCI
};

typedef struct trial_boundary {
    uint32_t at;          /* before this step (steps are counted from 0 here; first_step is added in calls) */
    uint32_t announce_to; /* steps below are announced when the boundary is reached */
    int ragged;           /* ... by some devices; by the others, one step fewer */
    int actions;
    uint32_t cancel_from;
} trial_boundary;

typedef struct trial {
    uint64_t seed;
    uint32_t n_tables, dim, devices, max_keys, lookahead, staging, workers;
    int shares; /* workers are of frugal_workers_open */
    uint64_t table_rows[TRIAL_TABLES], first_row[TRIAL_TABLES], rows;
    frugal_type rows_as;
    frugal_rounding rounding;
    unsigned arrays; /* percent of a device's batches whose rows, or gradients, are in arrays of 16 bits */
    frugal_mode mode;
    frugal_reduce reduce;
    frugal_optimizer optimizer, own[TRIAL_TABLES];
    int has_own[TRIAL_TABLES]; /* settings of the table's own */
    frugal_cpu_desc caches[TRIAL_DEVICES];
    int preload, storage, counted, defer; /* counted: an allocator of the test's */
    int stale;                            /* rows are listed whose copies may be stale */
    frugal_alone alone;
    uint32_t weights_stride, state_stride, unaligned;
    uint32_t row_stride; /* of the trainer's arrays: of rows, pooled rows and gradients; dim: there is no gap */
    uint64_t first_step;
    uint32_t ends[TRIAL_DEVICES]; /* the step at which a device's data ends; UINT32_MAX: it does not, as that of one */
    uint32_t steps, trainers, loaders, ahead;          /* threads; loaders 0: trainers announce, `ahead` steps ahead */
    int lookups_first, lookups_wait, lr_changes, skew; /* wait: for their batch, if a loader is late */
    uint32_t helpers;                                  /* lend threads through frugal_help that come and go */
    unsigned idle, frozen, read_only, no_gradients, in_place, in_block, repeat, try_first, misuse, bags; /* percent */
    uint32_t n_boundaries;
    trial_boundary boundaries[TRIAL_BOUNDARIES];
    uint32_t machines; /* 0: it is not dealt */
    frugal_deal deal;
} trial;

typedef struct trial_batch {
    frugal_batch batch;
    frugal_keys segments[4];
    int brings, in_place;     /* gradients at all; through frugal_get_records */
    int pools;                /* rows and gradients are by bag */
    frugal_type as, grads_as; /* of the trainer's arrays */
    frugal_bags bags;
    uint32_t *offsets; /* offsets[max_keys + 1] */
    float *weights;    /* weights[max_keys] */
    uint32_t n;
    uint64_t *keys;  /* keys[max_keys] */
    int32_t *keys32; /* keys32[max_keys]: the same, for some segments */
    uint32_t *rows;  /* rows[max_keys], over all tables */
} trial_batch;

/* A number that depends on the trial, a purpose, a device and a step. */
static inline uint64_t trial_bits(const trial *t, uint64_t purpose, uint64_t device, uint64_t step) {
    return test_mix3(t->seed, purpose << 8 | device, step);
}
static inline int trial_chance(const trial *t, uint64_t purpose, uint64_t device, uint64_t step, unsigned percent) {
    return trial_bits(t, purpose, device, step) % 100 < percent;
}

static inline void trial_shape(trial *t, test_random *r, int focus) {
    static const uint32_t dims[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 48, 64, 65, 96, 100, 128, 129, 130};
    t->n_tables = test_chance(r, 50) ? 1 : (uint32_t)test_between(r, 2, TRIAL_TABLES);
    uint64_t most = test_chance(r, 30) ? 12 : test_chance(r, 50) ? 200 : 5000 / t->n_tables;
    for (uint32_t i = 0; i < t->n_tables; i++) {
        t->table_rows[i] = test_between(r, 1, most);
        t->first_row[i] = t->rows;
        t->rows += t->table_rows[i];
    }
    t->dim = test_chance(r, 70) ? dims[test_below(r, sizeof(dims) / sizeof(*dims))] : (uint32_t)test_between(r, 1, 130);
    t->devices = test_chance(r, 25) ? 1 : (uint32_t)test_between(r, 2, TRIAL_DEVICES);
    t->lookahead = (uint32_t)(test_chance(r, 20) ? 0 : test_between(r, 1, 15));
    t->staging = test_chance(r, 50) ? 0 : (uint32_t)test_between(r, 1, 63 - t->lookahead);
    t->workers = (uint32_t)test_below(r, 5);
    t->steps = (uint32_t)test_between(r, 3, test_chance(r, 20) ? 140 : 40);
    uint64_t work = 500000 / ((uint64_t)t->steps * t->devices * t->dim);
    uint64_t keys = test_chance(r, 30) ? 8 : test_chance(r, 50) ? 100 : 1000;
    t->max_keys = (uint32_t)test_between(r, 1, keys < work + 1 ? keys : work + 1);
    if (focus == TRIAL_WIDE) { /* a step of several pieces of planning and of closing */
        t->n_tables = 1, t->table_rows[0] = t->rows = test_between(r, 3000, 5000);
        t->devices = (uint32_t)test_between(r, 2, TRIAL_DEVICES);
        t->dim = (uint32_t)test_between(r, 1, 3), t->steps = (uint32_t)test_between(r, 4, 9);
        t->max_keys = (uint32_t)test_between(r, 2000, 4500);
    }
    if (focus == TRIAL_HALVES && trial_chance(t, 77, 0, 0, 15)) { /* rows of several chunks */
        t->n_tables = 1, t->table_rows[0] = t->rows = test_between(r, 1, 40);
        t->dim = (uint32_t)test_between(r, 500, TRIAL_DIM);
        t->max_keys = (uint32_t)test_between(r, 1, 12);
    }
}

/* Small, so that most rows are clipped; or large, so that only sums of many positions are. */
static inline float trial_clip(const trial *t, uint64_t table) {
    return trial_chance(t, 64, table, 0, 50) ? 0.1f : 0.5f * sqrtf((float)t->dim);
}

static inline void trial_own_settings(trial *t, uint32_t table) {
    static const float scales[] = {0, 1, 0.5f, 0.7f, 2, 1.3f};
    test_random r = {.seed = trial_bits(t, 40, table, 0)};
    frugal_optimizer *o = &t->own[table];
    t->has_own[table] = trial_chance(t, 41, 0, 0, 60) && test_chance(&r, 60);
    if (test_chance(&r, 40)) *o = t->optimizer; /* perhaps of one group with who has none */
    o->kind = t->optimizer.kind;
    if (test_chance(&r, 40)) o->lr_scale = scales[test_below(&r, 6)];
    if (test_chance(&r, 30)) o->weight_decay = 0.05f;
    if (test_chance(&r, 20)) o->eps = 1e-2f;
    if (test_chance(&r, 30)) o->beta1 = 0.6f;
    if (test_chance(&r, 30)) o->beta2 = 0.9f;
    if (o->kind < FRUGAL_ADAM && test_chance(&r, 30)) o->initial_accumulator = 0.3f;
    if (trial_chance(t, 46, table, 0, 20)) o->frozen = 1;
    if (trial_chance(t, 63, table, 0, 30)) o->clip_norm = trial_clip(t, table);
}

static inline frugal_type trial_type(const trial *t, uint64_t purpose, uint64_t device, uint64_t step,
                                     unsigned percent) {
    if (!trial_chance(t, purpose, device, step, percent)) return FRUGAL_FP32;
    return trial_bits(t, purpose + 1, device, step) % 2 ? FRUGAL_BF16 : FRUGAL_FP16;
}

static inline size_t trial_bytes(frugal_type as) {
    return as == FRUGAL_FP32 ? 4 : 2;
}

/* Not drawn, so that no other choice moves. */
static inline void trial_types(trial *t, int focus) {
    static const unsigned often[] = {0, 0, 10, 50};
    int halves = focus == TRIAL_HALVES;
    t->rows_as = trial_type(t, 69, 0, 0, halves ? 100 : 40);
    if (t->rows_as != FRUGAL_FP32 && trial_chance(t, 71, 0, 0, 30)) t->rounding = FRUGAL_NEAREST;
    t->arrays = halves ? 60 : often[trial_bits(t, 72, 0, 0) % 4];
}

static inline void trial_settings(trial *t, test_random *r, int focus) {
    frugal_optimizer *o = &t->optimizer;
    t->mode = focus == TRIAL_SYNC || test_chance(r, 20) ? FRUGAL_SYNC : FRUGAL_P2F;
    t->reduce = test_chance(r, 40) ? FRUGAL_MEAN : FRUGAL_SUM;
    o->kind = (frugal_optimizer_kind)test_below(r, FRUGAL_OPTIMIZER_KINDS);
    if (focus >= TRIAL_SGD && focus <= TRIAL_ADAMW) o->kind = (frugal_optimizer_kind)(focus - TRIAL_SGD);
    if (test_chance(r, 30)) o->eps = 1e-3f;
    if (test_chance(r, 30)) o->beta1 = 0.7f, o->beta2 = 0.95f;
    if (test_chance(r, 40)) o->weight_decay = 0.02f;
    if (o->kind < FRUGAL_ADAM && test_chance(r, 50)) o->initial_accumulator = 0.1f;
    if (trial_chance(t, 42, 0, 0, 20)) o->lr_scale = 0.9f;
    if (trial_chance(t, 45, 0, 0, 4)) o->frozen = 1;
    if (trial_chance(t, 65, 0, 0, 25)) o->clip_norm = trial_clip(t, 255);
    for (uint32_t i = 0; i < t->n_tables; i++) trial_own_settings(t, i);
    t->lr_changes = test_chance(r, 50);
    t->first_step = test_chance(r, 70) ? 0 : test_between(r, 1, test_chance(r, 50) ? 70 : 3000);
    t->storage = test_chance(r, 75) ? TRIAL_OWN_MEMORY : (int)test_between(r, 1, TRIAL_STORAGES - 1);
    if (focus == TRIAL_FOREIGN_MEMORY) t->storage = (int)test_between(r, 1, TRIAL_STORAGES - 1);
    t->weights_stride = test_chance(r, 30) ? 0 : t->dim + (uint32_t)test_below(r, 20);
    uint32_t floats = frugal_state_floats(o->kind, t->dim);
    t->state_stride = test_chance(r, 30) ? 0 : floats + (uint32_t)test_below(r, 20);
    t->unaligned = (uint32_t)test_below(r, 8);
    t->counted = test_chance(r, 40);
    for (uint32_t d = 0; d < t->devices; d++) {
        unsigned least = focus == TRIAL_CACHES ? 1 : 0;
        uint64_t sizes[] = {0, 1, t->rows / 10 + 1, t->rows / 2 + 1, t->rows, 4 * t->rows};
        t->caches[d].cache_rows = sizes[test_between(r, least, 5)];
        t->caches[d].policy = (frugal_cache_policy)test_below(r, 3);
        t->caches[d].threads = (uint32_t)(trial_bits(t, 90, d, 0) % 4); /* not drawn: no other choice moves */
    }
    t->preload = test_chance(r, 60);
    t->defer = test_chance(r, 50);
    t->alone = (frugal_alone)(trial_bits(t, 47, 0, 0) % 4);
    t->stale = focus == TRIAL_STALE || trial_chance(t, 48, 0, 0, 15);
    trial_types(t, focus);
    t->row_stride = t->dim + (trial_chance(t, 55, 0, 0, 30) ? (uint32_t)(trial_bits(t, 56, 0, 0) % 9) : 0);
}

/* The bound of a row's copy on a device, from boundary `b` on (TRIAL_BOUNDARIES: from the beginning), or -1 if the row
 * is not listed: some of a table's rows, or none, or all. */
static inline int64_t trial_bound(const trial *t, uint32_t b, uint32_t device, uint32_t table, uint64_t key) {
    static const int64_t bounds[] = {0, 1, 2, 5, 20, 100, UINT32_MAX};
    uint64_t bits = trial_bits(t, 49, device, (uint64_t)b << 8 | table);
    unsigned share = (unsigned[]){0, 20, 60, 100}[bits % 4];
    if (!t->stale || test_mix2(bits, key) % 100 >= share) return -1;
    return bounds[bits / 4 % 7];
}

static inline void trial_habits(trial *t, test_random *r, int focus) {
    unsigned often[] = {0, 0, 10, 50};
    t->trainers = (uint32_t)test_between(r, 1, t->devices);
    t->loaders = test_chance(r, 50) ? 0 : (uint32_t)test_between(r, 1, t->devices);
    if (focus == TRIAL_ONE_THREAD) t->trainers = 1, t->loaders = 0;
    if (focus == TRIAL_THREAD_A_DEVICE) t->trainers = t->devices, t->loaders = 0;
    if (focus == TRIAL_LOADERS) t->trainers = t->devices, t->loaders = t->devices;
    if (focus == TRIAL_NO_WORKERS) t->workers = 0;
    t->ahead = (uint32_t)test_between(r, 0, t->lookahead);
    t->helpers = test_chance(r, 20) ? (uint32_t)test_between(r, 1, TRIAL_HELPERS) : 0;
    t->lookups_first = test_chance(r, 50);
    t->lookups_wait = test_chance(r, 50);
    t->skew = (int)test_below(r, TRIAL_SKEWS);
    if (focus == TRIAL_CACHES) t->skew = test_chance(r, 50) ? TRIAL_OWN_PART : TRIAL_ZIPF;
    unsigned *habits[] = {&t->idle,     &t->frozen, &t->read_only, &t->no_gradients, &t->in_place,
                          &t->in_block, &t->repeat, &t->try_first, &t->misuse};
    for (int i = 0; i < 9; i++) *habits[i] = often[test_below(r, 4)];
    t->bags = often[trial_bits(t, 20, 0, 0) % 4];
}

/* Some devices have less data than others, or none. */
static inline void trial_plan_ends(trial *t) {
    uint32_t last = (uint32_t)(trial_bits(t, 58, 0, 0) % t->devices);
    for (uint32_t d = 0; d < t->devices; d++) {
        t->ends[d] = UINT32_MAX;
        if (d != last && trial_chance(t, 59, 0, 0, 30) && trial_chance(t, 60, d, 0, 60))
            t->ends[d] = (uint32_t)(trial_bits(t, 61, d, 0) % t->steps);
    }
}

static inline void trial_plan_boundaries(trial *t, test_random *r) {
    t->n_boundaries = 1 + (uint32_t)test_below(r, TRIAL_BOUNDARIES);
    uint32_t at = 0;
    for (uint32_t i = 0; i < t->n_boundaries; i++) {
        trial_boundary *b = &t->boundaries[i];
        int last = i + 1 == t->n_boundaries;
        at = last ? t->steps : (uint32_t)test_between(r, at, t->steps);
        b->at = at;
        b->announce_to = at + (uint32_t)test_between(r, 0, t->lookahead + 1);
        b->ragged = test_chance(r, 50);
        b->cancel_from = (uint32_t)test_between(r, at, b->announce_to);
        b->actions = (int)test_below(r, 64);
        if (last) b->actions = (b->actions & (TRIAL_READ | TRIAL_MISUSE)) | TRIAL_DRAIN;
        int kept = t->storage == TRIAL_FILE || t->storage == TRIAL_MATRIX_AND_STATE; /* all that there is */
        if (!last && kept && test_chance(r, 30)) b->actions |= TRIAL_REOPEN;
        if (!last && t->stale && trial_chance(t, 50, 0, i, 40)) b->actions |= TRIAL_LIST;
        if (trial_chance(t, 51, at, t->n_boundaries, 30)) b->actions |= TRIAL_COUNTS;
        /* These need a drained instance with nothing announced. */
        if (b->actions & (TRIAL_WRITE | TRIAL_RELEASE | TRIAL_REOPEN | TRIAL_LIST)) {
            b->actions |= TRIAL_CANCEL | TRIAL_DRAIN;
            b->cancel_from = at;
        }
    }
}

/* >>machines */

/* As many devices on each machine, and rows for each. */
static inline void trial_shape_dealt(trial *t, uint32_t machines) {
    uint32_t here = t->devices / machines, most = TRIAL_DEVICES / machines;
    t->machines = machines;
    t->devices = machines * (here < 1 ? 1 : here > most ? most : here);
    t->table_rows[0] += machines;
    t->rows = 0;
    for (uint32_t i = 0; i < t->n_tables; i++) t->first_row[i] = t->rows, t->rows += t->table_rows[i];
    uint64_t block = (t->rows + machines - 1) / machines;
    t->deal = (frugal_deal)(trial_bits(t, 91, 0, 0) % 3);
    if (t->deal == FRUGAL_DEAL_BLOCKS && (machines - 1) * block >= t->rows) t->deal = FRUGAL_DEAL_CYCLIC;
}
/* The home of a row over all tables; of LISTED most rows are at home in one machine, and all machines have some. */
static inline uint32_t trial_home(const trial *t, uint64_t row) {
    uint64_t bits = trial_bits(t, 92, 0, row);
    if (t->deal == FRUGAL_DEAL_CYCLIC) return (uint32_t)(row % t->machines);
    if (t->deal == FRUGAL_DEAL_BLOCKS) return (uint32_t)(row / ((t->rows + t->machines - 1) / t->machines));
    return (uint32_t)(row < t->machines ? row
                      : bits % 2        ? trial_bits(t, 93, 0, 0) % t->machines
                                        : bits / 2 % t->machines);
}
/* What a dealt table has not, or the test does not ask of it. */
static inline void trial_limit_dealt(trial *t) {
    t->storage = TRIAL_OWN_MEMORY, t->stale = 0;
    for (uint32_t i = 0; i < t->n_boundaries; i++) {
        trial_boundary *b = &t->boundaries[i];
        b->actions &= ~(TRIAL_CANCEL | TRIAL_REOPEN | TRIAL_LIST | TRIAL_COUNTS | TRIAL_MISUSE);
        for (uint32_t k = 0; k <= i && b->actions & (TRIAL_WRITE | TRIAL_RELEASE); k++) /* nothing may be announced */
            if (t->boundaries[k].announce_to > b->at) t->boundaries[k].announce_to = b->at;
    }
}

/* On so many machines; 0: not dealt. */
static inline void trial_make_dealt(trial *t, uint64_t seed, uint32_t machines) {
    test_random r = {.seed = seed};
    int focus = (int)(seed % 16);
    memset(t, 0, sizeof(*t));
    t->seed = seed;
    trial_shape(t, &r, focus);
    if (machines) trial_shape_dealt(t, machines);
    trial_settings(t, &r, focus);
    trial_habits(t, &r, focus);
    trial_plan_boundaries(t, &r);
    trial_plan_ends(t);
    if (focus == TRIAL_SHARING && t->workers == 0) t->workers = 1 + (uint32_t)(trial_bits(t, 44, 0, 0) % 3);
    t->shares = t->workers > 0 && (focus == TRIAL_SHARING || trial_chance(t, 43, 0, 0, 25));
    if (machines) trial_limit_dealt(t);
}

static inline void trial_make(trial *t, uint64_t seed) {
    trial_make_dealt(t, seed, 0);
}

/* The one that shares workers with `t`. */
static inline void trial_make_other(trial *other, const trial *t) {
    trial_make(other, t->seed ^ UINT64_C(1) << 40);
    other->workers = t->workers;
}

typedef struct trial_gpu { /* where a device is, in trials on GPUs */
    int ordinal;           /* -1: on the host */
    int gate_on_stream;    /* where threads of the library's can open gates, and the table can be pinned */
} trial_gpu;

static inline trial_gpu trial_gpu_of(const trial *t, uint32_t device, int gpus) {
    int all = trial_chance(t, 30, 0, 0, 50), some = trial_chance(t, 31, device, 0, 60);
    trial_gpu where = {all || some ? (int)(trial_bits(t, 32, device, 0) % (uint64_t)gpus) : -1, 0};
    where.gate_on_stream = t->workers > 0 && t->storage != TRIAL_FILE && trial_chance(t, 33, device, 0, 50);
    return where;
}

/* How often the steps from `step` on were cancelled before phase `phase`: each time, other batches are announced. */
static inline uint64_t trial_generation(const trial *t, uint32_t step, uint32_t phase) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < phase && i < t->n_boundaries; i++)
        if ((t->boundaries[i].actions & TRIAL_CANCEL) && t->boundaries[i].cancel_from <= step) n++;
    return n;
}

static inline uint64_t trial_key(const trial *t, uint32_t device, uint32_t table, uint64_t bits) {
    uint64_t rows = t->table_rows[table];
    switch (t->skew) {
    case TRIAL_UNIFORM:
        return bits % rows;
    case TRIAL_ZIPF: { /* exponent 1: the rank's logarithm is uniform */
        uint64_t rank = (uint64_t)pow((double)rows + 1, test_unit(bits));
        return rank - 1 < rows ? rank - 1 : rows - 1;
    }
    case TRIAL_ALL_EQUAL:
        return bits % 50 ? rows / 2 : bits / 50 % rows;
    case TRIAL_HOT_SET:
        return bits % 10 ? bits / 10 % (rows < 8 ? rows : 8) : bits / 10 % rows;
    default: { /* mostly rows of the device's own, so that they stay in its cache */
        uint64_t own = bits / 16 % (rows / t->devices + 1) * t->devices + device;
        return bits % 16 && own < rows ? own : bits / 16 % rows;
    }
    }
}

/* Cuts the batch into bags: some empty, some of one key, some of many; at times one that has all. */
static inline void trial_make_bags(const trial *t, uint32_t device, uint32_t step, trial_batch *b) {
    test_random r = {.seed = trial_bits(t, 21, device, step)};
    int weighted = test_chance(&r, 40);
    frugal_pooling pooling = !weighted && test_chance(&r, 50) ? FRUGAL_POOL_MEAN : FRUGAL_POOL_SUM;
    uint32_t largest = test_chance(&r, 20) ? b->n : (uint32_t)test_between(&r, 1, 8), at = 0;
    b->bags =
        (frugal_bags){.n_bags = 0, .offsets = b->offsets, .weights = weighted ? b->weights : NULL, .pooling = pooling};
    b->offsets[0] = 0;
    while (b->bags.n_bags < t->max_keys && (at < b->n || test_chance(&r, 50))) {
        uint64_t size = test_chance(&r, 20) ? 0 : test_between(&r, 1, largest ? largest : 1);
        at = b->bags.n_bags + 1 == t->max_keys || size > b->n - at ? b->n : at + (uint32_t)size;
        b->offsets[++b->bags.n_bags] = at;
    }
    for (uint32_t i = 0; i < b->n; i++) b->weights[i] = (float)test_unit(test_next(&r)) * 2 - 1;
}

/* The batch of `device` at `step`, as announced in `phase`. Needs the arrays of `b`. */
static inline void trial_make_batch(const trial *t, uint32_t device, uint32_t step, uint32_t phase, trial_batch *b) {
    uint64_t generation = trial_generation(t, step, phase), version = (uint64_t)step << 16 | generation;
    test_random r = {.seed = trial_bits(t, 1, device, version)};
    int frozen = trial_chance(t, 2, 255, version, t->frozen);
    b->n =
        test_chance(&r, t->idle) ? 0 : (uint32_t)(test_chance(&r, 10) ? t->max_keys : test_between(&r, 1, t->max_keys));
    b->batch.n_segments = b->n == 0 ? (uint32_t)test_below(&r, 2) : (uint32_t)test_between(&r, 1, 4);
    b->batch.read_only = test_chance(&r, t->read_only) || frozen;
    b->brings = !test_chance(&r, t->no_gradients) && !b->batch.read_only;
    b->in_place = test_chance(&r, t->in_place);
    b->as = trial_type(t, 73, device, step, t->arrays), b->grads_as = trial_type(t, 75, device, step, t->arrays);
    b->pools = trial_chance(t, 22, device, step, t->bags);
    if (b->pools) trial_make_bags(t, device, step, b), b->in_place = 0;
    uint32_t at = 0;
    if (step >= t->ends[device]) b->n = b->batch.n_segments = 0, b->batch.read_only = 1, b->brings = b->pools = 0;
    for (uint32_t i = 0; i < b->batch.n_segments; i++) {
        frugal_keys *s = &b->segments[i];
        *s = (frugal_keys){.table = (uint32_t)test_below(&r, t->n_tables)};
        s->keys = b->keys + at;
        s->n = i + 1 == b->batch.n_segments ? b->n - at : (uint32_t)test_below(&r, b->n - at + 1);
        if (s->n == 0 && i % 2) s->keys = NULL;
        for (uint32_t end = at + s->n; at < end; at++) {
            b->keys[at] = trial_key(t, device, s->table, test_next(&r));
            b->rows[at] = (uint32_t)(t->first_row[s->table] + b->keys[at]);
            b->keys32[at] = (int32_t)b->keys[at];
        }
        if (s->keys && trial_chance(t, 57, device, (uint64_t)step << 2 | i, 30))
            s->keys32 = b->keys32 + (s->keys - b->keys), s->keys = NULL;
    }
    b->batch.segments = b->batch.n_segments ? b->segments : NULL;
}

/* The number of rows that the trainer has of its batch: by position, or by bag. */
static inline uint32_t trial_rows_of(const trial_batch *b) {
    return b->pools ? b->bags.n_bags : b->n;
}

static inline float trial_lr(const trial *t, uint32_t step) {
    uint64_t bits = trial_bits(t, 3, 0, t->lr_changes ? step : 0);
    return 0.01f + 0.1f * (float)(bits % 1000) / 1000.0f;
}

/* By what the gradients of the step are multiplied; 0: by nothing. */
static inline float trial_scale(const trial *t, uint32_t step) {
    static const float scales[] = {0, 1, 0.5f, 0.3f, 1.7f};
    return trial_chance(t, 66, 0, 0, 30) ? scales[trial_bits(t, 67, 0, step) % 5] : 0;
}

/* The nearest floats that the type has. */
static inline void trial_round(frugal_type as, float *x, uint64_t n) {
    for (uint64_t i = 0; as != FRUGAL_FP32 && i < n; i++) x[i] = reference_round((int)as, x[i], -1);
}

/* Gradients between -1 and 1, of the type of the batch, that change altogether when one bit of a looked-up row does:
 * grads[n][dim]. */
static inline void trial_gradients(const trial *t, uint32_t device, uint32_t step, const trial_batch *b,
                                   const float *rows, float *grads) {
    uint32_t n = trial_rows_of(b);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)trial_bits(t, 4, device, (uint64_t)step << 32 | i);
        for (uint64_t at = (uint64_t)i * t->dim; at < (uint64_t)(i + 1) * t->dim; at++) {
            uint32_t word;
            memcpy(&word, &rows[at], 4);
            word = (word ^ bits) * 0x85ebca6bu;
            word = (word ^ word >> 15) * 0xc2b2ae35u;
            grads[at] = (float)(int32_t)(word ^ word >> 13) * 0x1p-31f;
            bits += 0x9e3779b9u;
        }
    }
    trial_round(b->grads_as, grads, (uint64_t)n * t->dim);
}

#endif /* TRIAL_H */
