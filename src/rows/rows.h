/* rows.h - arithmetic on rows, in the processor's instructions; threads that help; optimizer settings.
 *
 * What its parts give to other parts, by part; comments on functions stand at their definitions. */
#ifndef FRUGAL_ROWS_H
#define FRUGAL_ROWS_H

#include "../ground/ground.h"

/* vectors.c */

/* What is prefetched: the number of rows and of positions ahead, and the floats of each. A longer row is prefetched
 * only at its start, because the processor's own prefetcher sees that it goes on. Measured at dims 8 to 512: 12 to 20
 * rows give the same speed (at 8 floats 20 are best; 8 are too few at any dim), and so do 4 to 32 positions.
 * Prefetching whole rows of up to 512 floats is up to twice as fast. The first 64 floats of a record are enough,
 * because records lie in order. */
#define AHEAD_UPDATES   16u
#define AHEAD_POSITIONS 16u
#define AHEAD_FLOATS    512u
#define AHEAD_START     64u

/* Floats of a row that are summed at a time: a multiple of the 32 lanes, and enough that gcc keeps the loops over them
 * as loops. */
#define CHUNK_FLOATS 512u

/* Inlined into the functions of each instruction set (rows.c), so that it is compiled for these instructions. Without
 * optimization each function exists only once, so that coverage counts a branch once. */
#if defined(__OPTIMIZE__)
#define INLINED __attribute__((always_inline)) static inline
#else
#define INLINED static inline
#endif

/* Put before a loop over elements of a row, so that compilers vectorize the loop and do nothing else to it. Without the
 * pragma gcc unrolls a short loop before it vectorizes, and then cannot vectorize it; clang takes four vectors at a
 * time, and computes a row that is shorter than four vectors element by element. */
#if defined(__clang__)
#define VECTORS _Pragma("clang loop interleave(disable)")
#elif defined(__GNUC__)
#define VECTORS _Pragma("GCC unroll 1")
#else
#define VECTORS
#endif

/* Prefetches all cache lines of a row, or the first ones of a long row, into the second-level cache. That cache
 * has a longer queue of outstanding reads than the first-level cache, so more lines are under way at a time. */
INLINED void prefetch_bytes(const void *row, uint64_t bytes, int write) {
    if (bytes > AHEAD_FLOATS * sizeof(float)) bytes = AHEAD_START * sizeof(float);
    uintptr_t at = (uintptr_t)row, end = at + bytes;
    for (at -= at % CACHE_LINE; at < end; at += CACHE_LINE) {
        if (write)
            __builtin_prefetch((const void *)at, 1, 2);
        else
            __builtin_prefetch((const void *)at, 0, 2);
    }
}

INLINED void prefetch_row(const float *row, uint32_t floats, int write) {
    prefetch_bytes(row, floats * sizeof(float), write);
}

/* Copies in pieces, because gcc makes a string instruction of a copy whose length has a small limit, and that
 * instruction is slower to start. */
INLINED void copy_row(float *to, const float *from, uint32_t n) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) memcpy(to + i, from + i, 64);
    if (n & 8) memcpy(to + i, from + i, 32), i += 8;
    if (n & 4) memcpy(to + i, from + i, 16), i += 4;
    VECTORS
    for (; i < n; i++) to[i] = from[i];
}

/* types.c */

struct row_place;
struct row_update;
struct row_rule;
typedef struct row_conversions { /* of one instruction set; `as` has 16 bits */
    void (*widen)(float *to, const uint16_t *from, frugal_type as, uint32_t n);
    void (*nearest)(uint16_t *to, const float *from, frugal_type as, uint32_t n);
    /* noise[n]: 16 bits of each element, as draw_noise writes them */
    void (*round)(uint16_t *to, const float *from, const uint16_t *noise, frugal_type as, uint32_t n);
    /* The step of elements [from, from + floats) of a row of 16 bits. */
    void (*apply)(const struct row_place *p, const struct row_update *update, const struct row_rule *rule,
                  uint32_t from, uint32_t floats);
} row_conversions;

typedef struct row_place { /* where rows are updated, or read; the same for all rows of a call */
    const frugal_store *store;
    const row_conversions *types;
} row_place;

/* optimizer.c */

typedef struct row_update { /* one row's update */
    void *weights;          /* of the store's type */
    float *state;
    const float *const *records; /* records[n]: what the devices bring, in device order */
    uint32_t n, row;             /* row: its number */
    const frugal_hyper *hyper;
} row_update;

typedef struct row_rule { /* what is the same for all elements of a row */
    frugal_optimizer_kind kind;
    float decay, scale, factor, eps, rest1, rest2;
    uint32_t noise; /* the row's random bits; of rows of 16 bits */
} row_rule;

/* Prefetches a row, its state and the beginnings of its records. */
INLINED void prefetch_update(const frugal_store *store, const row_update *update) {
    prefetch_bytes(update->weights, frugal_row_bytes(store), 1);
    if (update->state) prefetch_row(update->state, store->state_floats, 1);
    for (uint32_t r = 0; r < update->n; r++) prefetch_row(update->records[r], LEAST(store->dim, AHEAD_START), 0);
}

/* sums.c */

typedef struct strided_rows { /* of an array of the caller */
    const void *at;           /* a chunk of each row, or all of it */
    uint64_t stride;          /* elements from row to row */
    frugal_type as;
    const row_conversions *types; /* to widen what is not floats; each instruction set puts in its own */
} strided_rows;

typedef struct pooled_from { /* what is pooled: the row of position p is rows[row_of[p]] */
    strided_rows rows;
    const uint32_t *row_of; /* row_of[n] */
    uint32_t n;
} pooled_from;

typedef struct pooled_rows { /* where bags are pooled to */
    void *at;
    uint64_t stride;
    frugal_type as;
    uint32_t dim;
} pooled_rows;

typedef struct bag_gradients { /* gradients by bag, from which those by position are computed */
    strided_rows grads;        /* by bag */
    const frugal_bags *bags;
    const uint32_t *bag_of; /* by position */
} bag_gradients;

/* gather.c */

/* The number of rows that are prefetched ahead. Measured at dims 8 to 512: 20 to 40 rows give the same speed. */
#define AHEAD_GATHER 24u

/* alone.c */

typedef void sum_function(float *sum, const strided_rows *grads, uint32_t dim, const uint32_t *order, uint32_t n,
                          uint32_t left);
typedef void sum_bags_function(const frugal_records *r, const bag_gradients *all, uint32_t dim, uint32_t from,
                               uint32_t end);

/* rows.c */

typedef struct row_functions { /* of one instruction set */
    void (*apply)(const frugal_store *store, const frugal_optimizer *optimizer, const row_update *rows, uint32_t n);
    void (*sum_records)(const frugal_records *r, strided_rows grads, uint32_t dim);
    sum_function *sum_positions;
    void (*gather)(const frugal_store *store, const frugal_records *r, void *rows, uint64_t stride, frugal_type as);
    void (*update)(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of, const void *grads,
                   uint32_t from, uint32_t end);
    void (*pool)(const pooled_rows *to, const pooled_from *from, const frugal_bags *bags);
    sum_bags_function *sum_bags;
    double (*squares)(const frugal_store *store, const frugal_step *step, const bag_gradients *g);
    void (*convert)(void *to, frugal_type to_as, const void *from, frugal_type from_as, uint32_t n);
    const row_conversions *types;
} row_functions;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(FRUGAL_ROWS_BASELINE)
#define ROWS_X86
#endif
#if defined(FRUGAL_ROWS_APART)
extern const row_functions frugal_rows_baseline, frugal_rows_avx2, frugal_rows_avx512;
#endif

/* processors.c */

#if defined(__SSE__)
typedef unsigned int float_mode;
#else
typedef fenv_t float_mode;
#endif
FRUGAL_INTERNAL void apply_rows(const frugal_store *store, const frugal_optimizer *optimizer, const row_update *rows,
                                uint32_t n);
FRUGAL_INTERNAL void pool_rows(const pooled_rows *to, const pooled_from *from, const frugal_bags *bags);
FRUGAL_INTERNAL float_mode float_mode_enter(void);
FRUGAL_INTERNAL void float_mode_leave(float_mode saved);

/* team.c */

#define MOST_TEAM 64u
struct team {
    frugal *f;
    uint32_t n;       /* threads, the calling one not counted */
    uint32_t started; /* under the lock of jobs */
    int begun, ends;  /* under the lock of jobs */
#if defined(__linux__)
    cpu_set_t processors; /* of the attaching thread: a trainer may be bound to one */
#endif
    pthread_t threads[MOST_TEAM];
};

FRUGAL_INTERNAL uint32_t piece_begin(uint32_t n, uint32_t piece, uint32_t pieces);
FRUGAL_INTERNAL int help_job(frugal *f);
FRUGAL_INTERNAL void free_team(frugal *f, struct team *c);
FRUGAL_INTERNAL void open_jobs(frugal *f);
FRUGAL_INTERNAL void close_jobs(frugal *f);

/* settings.c */

static const struct { /* as FRUGAL_OPTIMIZERS lists them */
    const char *word, *name;
    uint32_t element_floats, row_floats;
    float eps;
    int has_betas, has_accumulator;
} optimizers[] = {
#define OPTIMIZER_FACTS(kind, ...) [FRUGAL_##kind] = {__VA_ARGS__},
    FRUGAL_OPTIMIZERS(OPTIMIZER_FACTS)};

FRUGAL_INTERNAL int is_finite(float x);
FRUGAL_INTERNAL int is_row_finite(const void *row, frugal_type as, uint32_t n);
FRUGAL_INTERNAL void add_found(found_rows *found, uint64_t row);
FRUGAL_INTERNAL void add_all_found(found_rows *found, const found_rows *more);
FRUGAL_INTERNAL void resolve_optimizer(frugal_optimizer *o);
FRUGAL_INTERNAL const char *unused_setting(const frugal_optimizer *o);
FRUGAL_INTERNAL frugal_status check_optimizers(const frugal_desc *d);
FRUGAL_INTERNAL frugal_optimizer optimizer_of(const frugal *f, uint32_t table);
FRUGAL_INTERNAL int is_same_optimizer(const frugal_optimizer *a, const frugal_optimizer *b);
FRUGAL_INTERNAL size_t group_bytes(uint32_t n);
FRUGAL_INTERNAL frugal_status open_groups(frugal *f);
FRUGAL_INTERNAL void close_groups(frugal *f);
FRUGAL_INTERNAL void open_powers(frugal *f);
FRUGAL_INTERNAL frugal_status check_scale(float scale);
FRUGAL_INTERNAL frugal_status check_lr(const frugal *f, float lr);
FRUGAL_INTERNAL frugal_status fix_settings(frugal *f, uint64_t step, const frugal_gradients *given,
                                           const frugal_hyper **out);

/* self_test.c */

FRUGAL_INTERNAL frugal_status check_arithmetic(void);

#endif
