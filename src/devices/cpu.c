/* cpu.c - a logical device on host cores, for machines without a GPU. The device on GPUs is compared with it.
 *
 * It does what a GPU does, with the same operations in the same order: a set-associative cache in front of the host
 * table, read under the holder rule, and gradients summed into the staging block. Its cache holds copies of host rows
 * with their optimizer state. Dropping a copy loses nothing. Of the host store it uses only what device.h declares.
 *
 * Contents: >>traffic >>cache >>pieces >>lookup >>update >>operations >>attach
 *
 * The cache. A row can be in one set of WAYS ways, chosen by a hash of its number. Beside each way are the row's
 * number and its use: the time of the last touch (LRU), what the row is worth and the step of the last touch (counted),
 * or nothing (static). Lookup visits the unique rows of the batch in rising order:
 *
 *     in the cache and valid      -> the copy                                (a hit)
 *     in the cache and not valid  -> the host row, and the copy is refreshed (a miss)
 *     not in the cache            -> the host row, and it may be inserted    (a miss)
 *
 * So a copy that is not current is refreshed at the next lookup of its row; the holder rule relies on this
 * (frugal_p2f.h, section 7). "Valid" is the bit of frugal_copy_is_current. If a copy is evicted between lookup and
 * update, update finds no copy of the row, and changes none.
 *
 * With FRUGAL_ALONE_KEPT a copy may be *dirty*: it has an update that the host row lacks (keep.c). Its device is the
 * holder, so it is current at every lookup, until the row is recalled; then it is written back before the lookup. What
 * is dirty is written back before its way is given away. A row of the batch that lost its way to one that was
 * visited before it is read from the host row, which is written by then; one that loses it later is read from the
 * copy, which is overwritten when all rows are read.
 *
 * Secondaries, copies that may lack updates (clocks.c), are beside the cache, as if they were its ways: sets * WAYS + i
 * is that of the i-th one. A lookup finds them by frugal_step.secondaries, and never in the directory.
 *
 * Lookup and update count what crosses between the device and host memory: one host row per miss, one record per unique
 * row whose update is not kept, one row per copy written back.
 */
#if !defined(FRUGAL_FLUSH_C) && !defined(FRUGAL_PARTS)
#error "this is a part of frugal_flush.c: compile that file, which includes this one"
#endif

#ifndef FRUGAL_ATOMICS
#define FRUGAL_ATOMICS
#endif
#include "../../frugal_pq.h"
#include "../../frugal_seeing.h"
#include "../counting.h"
#include "../device.h"

#include <string.h>

_Static_assert(sizeof(size_t) == 8, "caches are larger than a 32-bit address space");

enum { WAYS = 8 };
/* The number of rows that are prefetched ahead, and the bytes of each. Measured at dims 8 to 512: 20 to 40 rows give
 * the same speed; prefetching whole rows of up to 512 floats is up to twice as fast. */
enum { GATHER_AHEAD = 24, GATHER_WHOLE = 2048, GATHER_START = 256 };
enum { PLACED = 256 }; /* rows that are updated in place before their copies are */
enum {
    WORTH_AT = 24,
    STEP_BITS = 0xffffff
}; /* a use, under the policy "counted": worth << 24 | low bits of the step */
#define NO_ROW UINT32_MAX

typedef struct cpu_device {
    frugal *f;
    const frugal_store *store;
    uint32_t d; /* the device's number */
    frugal_cache_policy policy;
    uint64_t sets;             /* 0: no cache */
    uint32_t stride, state_at; /* floats of a copy: all; where the state begins, behind weights of the store's type */
    uint32_t clock;            /* counts touches, for LRU */
    uint32_t step;             /* that was looked up last: the low 24 bits */
    uint64_t fall;             /* what copies lose in a step without a touch (frugal_fall) */
    uint32_t *rows;            /* [sets][WAYS]: row of the copy; NO_ROW: free */
    uint32_t *uses;            /* [sets][WAYS] */
    float *copies;             /* [sets][WAYS][stride] */
    uint8_t *dirty;            /* [sets][WAYS], 1: the host row lacks updates; NULL: the device does not keep any */
    uint64_t *placed;          /* bits [max_keys], and `dirty` behind it: scratch of an update */
    uint64_t n_dirty, written; /* copies that are; and how many were written back in the operation under way */
    uint64_t *found;           /* [max_keys]: of a lookup (found_of); NULL: without copies */
    size_t rows_bytes, copies_bytes, dirty_bytes, found_bytes;
    float *secondaries;                      /* [n_secondaries][stride], and `secondary_rows` behind them */
    uint32_t *secondary_rows, n_secondaries; /* [n_secondaries]: their rows */
    uint32_t *bag_of; /* [max_keys]: position -> bag of the last frugal_lookup_bags; NULL before the first */
    uint64_t counted; /* step + 1 of `last_step`; 0: no step yet. This field and the next three are the trainer's. */
    frugal_traffic last_step, total;
    uint64_t seen_back;           /* of `back`: those that `total` has */
    FRUGAL_ATOMIC(uint64_t) back; /* rows that write_back has written; relaxed: a statistic */
} cpu_device;

/* ---------------------------------------------------------------------------------------------------------
 * >>traffic - what crosses between the device and host memory
 * --------------------------------------------------------------------------------------------------------- */

/* Counts `rows` rows, of which `records` are records, of floats; and the optimizer state of `states` rows. */
static void count_crossing(cpu_device *c, uint64_t step, int way, uint64_t rows, uint64_t records, uint64_t states) {
    uint64_t floats = records * c->store->dim + states * c->store->state_floats;
    uint64_t bytes = (rows - records) * frugal_row_bytes(c->store) + floats * sizeof(float);
    if (c->counted != step + 1) c->last_step = (frugal_traffic){.rows = {0}};
    c->counted = step + 1;
    c->last_step.rows[way] += rows, c->last_step.bytes[way] += bytes;
    c->total.rows[way] += rows, c->total.bytes[way] += bytes;
    frugal_count_link(c->f, c->d, (uint32_t)way, rows, bytes);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>cache - its directory, and the copies
 * --------------------------------------------------------------------------------------------------------- */

static uint64_t set_of(const cpu_device *c, uint32_t row) {
    return ((row * UINT64_C(0x9E3779B97F4A7C15)) >> 32) * c->sets >> 32; /* multiplicative hashing, no division */
}

/* The way of a row's copy, or -1. */
static int64_t find_copy(const cpu_device *c, uint32_t row) {
    if (c->sets == 0) return -1;
    uint64_t base = set_of(c, row) * WAYS;
    for (uint32_t way = 0; way < WAYS; way++)
        if (c->rows[base + way] == row) return (int64_t)(base + way);
    return -1;
}

static float *copy_at(const cpu_device *c, int64_t way) {
    uint64_t at = (uint64_t)way, ways = c->sets * WAYS;
    return at < ways ? c->copies + at * c->stride : c->secondaries + (at - ways) * c->stride;
}

/* Writes a copy to its host row, if that lacks an update. */
static void clean_copy(cpu_device *c, uint64_t way) {
    const frugal_store *s = c->store;
    uint64_t row = c->rows[way];
    if (!c->dirty || !c->dirty[way]) return;
    const float *copy = copy_at(c, (int64_t)way);
    memcpy(frugal_row_at(s, row), copy, frugal_row_bytes(s));
    if (s->state_floats) memcpy(s->state + row * s->state_stride, copy + c->state_at, s->state_floats * sizeof(float));
    c->dirty[way] = 0;
    c->n_dirty--, c->written++;
}

/* At the end of an operation: says what it has kept and written back. Returns the rows written back. */
static uint64_t report_kept(cpu_device *c, uint64_t kept) {
    uint64_t written = c->written;
    if (!c->dirty) return 0;
    frugal_count_kept(c->f, c->d, kept, written, c->n_dirty);
    c->written = 0;
    return written;
}

/* What was written back before the lookup of a step, and in it. */
static void count_back(cpu_device *c, uint64_t step, uint64_t evicted) {
    uint64_t back = frugal_load_relaxed(&c->back), rows = evicted + back - c->seen_back;
    if (c->dirty) count_crossing(c, step, 2, rows, 0, rows);
    c->seen_back = back;
}

/* A touch of a row: when, and what the row is worth. */
typedef struct touch {
    uint32_t row, worth, step; /* of the step the low 24 bits */
} touch;

static touch touch_of(const frugal_step *step, uint32_t u) {
    return (touch){step->records.rows[u], step->worth ? step->worth[u] : 0, (uint32_t)step->step & STEP_BITS};
}

static void touch_copy(cpu_device *c, int64_t way, const touch *now) {
    if (c->policy == FRUGAL_CACHE_LRU)
        c->uses[way] = ++c->clock;
    else if (c->policy == FRUGAL_CACHE_COUNTED)
        c->uses[way] = now->worth << WORTH_AT | now->step;
}

/* How much a way should stay as it is: the way of a set with the least is the victim. Ages are differences, because
 * clock and step wrap around. */
static uint32_t stay_of(const cpu_device *c, uint64_t way, const touch *now) {
    uint32_t use = c->uses[way], since = (now->step - use) & STEP_BITS;
    if (c->policy == FRUGAL_CACHE_LRU) return UINT32_MAX - (c->clock - use);
    return frugal_worth_left(use >> WORTH_AT, since, c->fall) << WORTH_AT | (STEP_BITS - since);
}

/* Was the way touched since the clock was `before`, or in the step? */
static int was_touched(const cpu_device *c, int64_t way, const touch *now, uint32_t before) {
    if (c->policy == FRUGAL_CACHE_LRU) return (int32_t)(c->uses[way] - before) > 0;
    return (c->uses[way] & STEP_BITS) == now->step;
}

/* Finds a way for a row that has none: a free one, else that of the row in its set that is worth least, or was
 * touched longest ago. Returns -1 if the policy is static and the row is not preloaded, if preloading finds no free
 * way, or if counts do not say that the row is worth more than the victim, by the margin. *late: the victim was
 * touched in this lookup, which began when the clock was `before`. */
static int64_t insert_copy(cpu_device *c, const touch *now, int preloading, uint32_t before, int *late) {
    if (c->sets == 0 || (c->policy == FRUGAL_CACHE_STATIC && !preloading)) return -1;
    uint64_t base = set_of(c, now->row) * WAYS, victim = base;
    uint32_t least = UINT32_MAX;
    int is_free = 0;
    for (uint64_t way = base; way < base + WAYS && !is_free; way++) {
        is_free = c->rows[way] == NO_ROW;
        uint32_t stay = is_free ? 0 : stay_of(c, way, now);
        if (is_free || stay < least) victim = way, least = stay;
    }
    if (!is_free && preloading) return -1;
    if (!is_free && c->policy == FRUGAL_CACHE_COUNTED && !frugal_takes_place(now->worth, least >> WORTH_AT)) return -1;
    *late = !is_free && was_touched(c, (int64_t)victim, now, before);
    clean_copy(c, victim);
    c->rows[victim] = now->row;
    touch_copy(c, (int64_t)victim, now);
    return (int64_t)victim;
}

/* The secondaries of a step, as its unique rows are visited in order, from row `from` on. */
typedef struct secondary_cursor {
    const frugal_secondary *at;
    uint32_t left;
} secondary_cursor;

static secondary_cursor first_secondary(const frugal_step *step, uint32_t from) {
    secondary_cursor cursor = {step->secondaries, step->n_secondaries};
    while (cursor.left > 0 && cursor.at->record < from) cursor.at++, cursor.left--;
    return cursor;
}

/* Unique row `u` if it is a secondary, or NULL. */
static const frugal_secondary *take_secondary(secondary_cursor *cursor, uint32_t u) {
    if (cursor->left == 0 || cursor->at->record != u) return NULL;
    cursor->left--;
    return cursor->at++;
}

static int64_t secondary_way(const cpu_device *c, const frugal_secondary *secondary) {
    return (int64_t)(c->sets * WAYS + secondary->copy);
}

static int has_copies(const cpu_device *c) {
    return c->sets > 0 || c->n_secondaries > 0;
}

static const float *host_state(const cpu_device *c, uint32_t row) {
    return c->store->state + (uint64_t)row * c->store->state_stride;
}

static const void *host_row(const cpu_device *c, uint32_t row) {
    return frugal_row_at(c->store, row);
}

static void refresh_copy(const cpu_device *c, int64_t way, uint32_t row) {
    float *copy = copy_at(c, way);
    memcpy(copy, host_row(c, row), frugal_row_bytes(c->store));
    if (c->store->state_floats) memcpy(copy + c->state_at, host_state(c, row), c->store->state_floats * sizeof(float));
}

/* ---------------------------------------------------------------------------------------------------------
 * >>pieces - unique rows that one thread takes, so that a row's sum and update are one thread's
 * --------------------------------------------------------------------------------------------------------- */

typedef struct cpu_job { /* a lookup or an update */
    cpu_device *c;
    const frugal_step *step;
    void *out;         /* of a lookup, of the step's type; NULL: the block */
    const void *grads; /* of an update */
    uint32_t pieces;
    FRUGAL_ATOMIC(uint64_t) kept, dirtied, in_place; /* rows; relaxed: read when all pieces have returned */
} cpu_job;

/* The first unique row of a piece. Pieces have about as many rows and positions each, and begin with a word of bits. */
static uint32_t piece_start(const frugal_records *r, uint32_t piece, uint32_t pieces) {
    uint64_t before = ((uint64_t)r->n + r->n_unique) * piece / pieces;
    uint32_t low = 0;
    if (piece == pieces) return r->n_unique;
    for (uint32_t n = r->n_unique; n > 0;) { /* it is one of the n from `low` on, or the one behind them */
        uint32_t half = n / 2;
        if ((uint64_t)r->start[low + half] + low + half < before)
            low += half + 1, n -= half + 1;
        else
            n = half;
    }
    return low / 64 * 64;
}

/* The batch's unique rows from `from` to `end`, as a batch that has the same positions. */
static frugal_records part_of(const frugal_records *r, uint32_t from, uint32_t end) {
    frugal_records part = *r;
    part.block += from * r->stride, part.start += from, part.rows += from;
    part.n_unique = end - from;
    return part;
}

static void run_job(cpu_job *job, uint32_t phases, void (*work)(void *job, uint32_t phase, uint32_t piece)) {
    const frugal_records *r = &job->step->records;
    uint64_t bytes = ((uint64_t)r->n + r->n_unique) * job->c->store->dim * sizeof(float);
    job->pieces = frugal_pieces(job->c->f, job->c->d, bytes);
    frugal_run_pieces(job->c->f, job->c->d, phases, job->pieces, work, job);
}

/* ---------------------------------------------------------------------------------------------------------
 * >>lookup - rows are read, copies refreshed, bags pooled
 * --------------------------------------------------------------------------------------------------------- */

/* Prefetches all cache lines of a host row, or the first ones of a long row, some rows before it is read. The lines
 * go to the second-level cache, because it has a longer queue of outstanding reads than the first-level cache. */
static void prefetch_host_row(const cpu_device *c, uint32_t row) {
    uintptr_t at = (uintptr_t)host_row(c, row);
    uint64_t bytes = frugal_row_bytes(c->store);
    uintptr_t end = at + (bytes > GATHER_WHOLE ? GATHER_START : bytes);
    for (at -= at % 64; at < end; at += 64) __builtin_prefetch((const void *)at, 0, 2);
}

/* The table that a lookup is in, as its unique rows are visited in order. */
typedef struct table_cursor {
    uint64_t end, hits;    /* the row behind the table; hits before it */
    uint32_t table, first; /* its first unique row in the batch */
} table_cursor;

/* Unique row `u` is the first of another table, or all rows were visited: counts those of the table before. */
static void count_table(cpu_device *c, const frugal_step *step, table_cursor *at, uint32_t u, uint64_t hits) {
    const frugal_records *r = &step->records;
    uint64_t own = hits - at->hits;
    if (u > at->first && !step->repeated) frugal_count_table_hits(c->f, c->d, at->table, own, u - at->first - own);
    if (u == step->n_own) return;
    at->first = u, at->hits = hits;
    at->table = frugal_table_of(c->store, r->rows[u]);
    at->end = c->store->first_row[at->table + 1];
}

/* The first unique row from `u` on that lies in another table than row `u`. */
static uint32_t table_end(const cpu_device *c, const frugal_step *step, uint32_t u) {
    const frugal_records *r = &step->records;
    uint64_t end = c->store->first_row[frugal_table_of(c->store, r->rows[u]) + 1];
    uint32_t low = u + 1;
    for (uint32_t n = step->n_own - low; n > 0;) { /* it is one of the n from `low` on, or the one behind them */
        uint32_t half = n / 2;
        if (r->rows[low + half] < end)
            low += half + 1, n -= half + 1;
        else
            n = half;
    }
    return low;
}

/* Gathers the unique rows from `from` to `end`: own rows from the table, guests from where they have arrived. */
static void gather_part(const cpu_job *job, uint32_t from, uint32_t end) {
    const frugal_step *step = job->step;
    uint32_t own = end < step->n_own ? end : step->n_own;
    if (from < own) {
        frugal_records part = part_of(&step->records, from, own);
        frugal_gather(job->c->store, &part, job->out, step->stride, step->as);
        from = own;
    }
    if (from >= end) return;
    frugal_records part = part_of(&step->records, from, end);
    frugal_store arrived = *job->c->store;
    arrived.weights = (void *)(uintptr_t)step->guests, arrived.weights_stride = arrived.dim;
    part.rows = step->guest_at + (from - step->n_own);
    frugal_gather(&arrived, &part, job->out, step->stride, step->as);
}

static void gather_piece(void *argument, uint32_t phase, uint32_t piece) {
    const cpu_job *job = argument;
    const frugal_records *r = &job->step->records;
    gather_part(job, piece_start(r, piece, job->pieces), piece_start(r, piece + 1, job->pieces));
    (void)phase;
}

/* Without a cache. */
static frugal_status gather_rows(cpu_job *job) {
    cpu_device *c = job->c;
    const frugal_step *step = job->step;
    const frugal_records *r = &step->records;
    run_job(job, 1, gather_piece);
    if (!step->repeated) frugal_count_hits(c->f, c->d, 0, step->n_own);
    table_cursor at = {0};
    for (uint32_t u = 0; u < step->n_own; u = table_end(c, step, u)) count_table(c, step, &at, u, 0);
    count_table(c, step, &at, step->n_own, 0);
    count_crossing(c, step->step, 0, r->n_unique, 0, 0);
    return FRUGAL_OK;
}

/* Frees the ways of copies that other devices have outdated. */
static void drop_lost(cpu_device *c, const frugal_step *step) {
    if (c->sets == 0 || c->policy != FRUGAL_CACHE_COUNTED || step->repeated) return;
    for (uint32_t i = 0; i < step->n_outdated; i++) {
        if (i + GATHER_AHEAD < step->n_outdated)
            __builtin_prefetch(&c->rows[set_of(c, step->outdated[i + GATHER_AHEAD]) * WAYS], 1, 3);
        int64_t way = find_copy(c, step->outdated[i]);
        if (way < 0) continue;
        clean_copy(c, (uint64_t)way);
        c->rows[way] = NO_ROW;
    }
}

/* Where the copy of a unique row is, as the directory was when a lookup came to it; -1: there is none. valid: it is
 * read; else it is refreshed. late: another row of the batch had the way before, and is read first. */
static uint64_t found_of(int64_t way, int valid, int late) {
    return (uint64_t)(way + 1) << 2 | (uint64_t)late << 1 | (uint64_t)valid;
}

static int64_t found_place(uint64_t found) {
    return (int64_t)(found >> 2) - 1;
}

static int found_valid(uint64_t found) {
    return (int)(found & 1);
}

static int found_late(uint64_t found) {
    return (int)(found >> 1 & 1);
}

/* Finds or makes room for the copies of the batch's rows, in rising order. Returns the number that are to be refreshed.
 * Nothing is copied but what is dirty and loses its way. */
static uint64_t find_copies(cpu_device *c, const frugal_step *step, uint64_t *hits) {
    const frugal_records *r = &step->records;
    secondary_cursor cursor = first_secondary(step, 0);
    table_cursor at = {0};
    uint64_t refreshed = 0;
    uint32_t before = c->clock;
    for (uint32_t u = 0; u < step->n_own; u++) {
        uint32_t row = r->rows[u];
        if (row >= at.end) count_table(c, step, &at, u, *hits);
        if (c->sets && u + GATHER_AHEAD < step->n_own)
            __builtin_prefetch(&c->rows[set_of(c, r->rows[u + GATHER_AHEAD]) * WAYS], 1, 3);
        touch now = touch_of(step, u);
        const frugal_secondary *secondary = take_secondary(&cursor, u);
        int64_t way = secondary ? secondary_way(c, secondary) : find_copy(c, row);
        int valid = secondary ? secondary->valid != 0 : way >= 0 && frugal_copy_is_current(step->valid, u), late = 0;
        if (way < 0)
            way = insert_copy(c, &now, 0, before, &late);
        else if (!secondary)
            touch_copy(c, way, &now);
        c->found[u] = found_of(way, valid, late);
        refreshed += way >= 0 && !valid;
        *hits += (uint64_t)valid;
    }
    count_table(c, step, &at, step->n_own, *hits);
    return refreshed;
}

/* `bytes`: of a row. */
static void read_row(const frugal_store *store, void *to, frugal_type as, const void *row, uint64_t bytes) {
    if (as == store->rows_as)
        memcpy(to, row, bytes);
    else
        frugal_convert(to, as, row, store->rows_as, store->dim);
}

/* Reads the rows of a piece. In the second phase copies are refreshed whose ways other rows of the batch had. The
 * last of them has the way. */
static void read_piece(void *argument, uint32_t phase, uint32_t piece) {
    const cpu_job *job = argument;
    const cpu_device *c = job->c;
    const frugal_store *s = c->store;
    const frugal_records *r = &job->step->records;
    uint64_t apart = job->step->stride * frugal_type_bytes(job->step->as), bytes = frugal_row_bytes(s);
    uint32_t from = piece_start(r, piece, job->pieces), end = piece_start(r, piece + 1, job->pieces);
    if (phase == 0 && end > job->step->n_own) gather_part(job, from < job->step->n_own ? job->step->n_own : from, end);
    if (end > job->step->n_own) end = job->step->n_own;
    for (uint32_t u = from; u < end; u++) {
        uint32_t row = r->rows[u];
        int64_t way = found_place(c->found[u]);
        int valid = found_valid(c->found[u]), late = found_late(c->found[u]);
        if (phase == 1) {
            if (late && c->rows[way] == row) refresh_copy(c, way, row);
            continue;
        }
        if (u + GATHER_AHEAD < job->step->n_own) prefetch_host_row(c, r->rows[u + GATHER_AHEAD]);
        if (way >= 0 && !valid && !late) refresh_copy(c, way, row);
        const void *weights = valid ? copy_at(c, way) : host_row(c, row);
        if (!job->out) read_row(s, r->block + u * r->stride, FRUGAL_FP32, weights, bytes);
        for (uint32_t k = r->start[u]; job->out && k < r->start[u + 1]; k++)
            read_row(s, (unsigned char *)job->out + r->order[k] * apart, job->step->as, weights, bytes);
    }
}

static frugal_status read_rows(cpu_device *c, const frugal_step *step, void *out) {
    const frugal_records *r = &step->records;
    cpu_job job = {.c = c, .step = step, .out = out};
    uint64_t hits = 0;
    if (!has_copies(c)) return gather_rows(&job);
    c->step = (uint32_t)step->step & STEP_BITS;
    drop_lost(c, step);
    uint64_t refreshed = find_copies(c, step, &hits);
    run_job(&job, 2, read_piece);
    if (!step->repeated) frugal_count_hits(c->f, c->d, hits, step->n_own - hits);
    count_crossing(c, step->step, 0, r->n_unique - hits, 0, refreshed);
    count_back(c, step->step, report_kept(c, 0));
    return FRUGAL_OK;
}

static frugal_status check_offsets(const frugal_bags *bags, uint32_t n) {
    uint32_t previous = 0;
    for (uint64_t b = 0; b <= bags->n_bags; b++) { /* 64 bits: there may be 2^32 - 1 bags, and one offset more */
        uint32_t offset = bags->offsets[b];
        int is_wrong = offset < previous || (b == 0 && offset != 0) || (b == bags->n_bags && offset != n);
        if (is_wrong || offset > n)
            return frugal_fail(FRUGAL_ERR_ARGUMENT,
                               "lookup_bags: offsets[%llu] of %llu is %u after %u; they rise from 0 to the batch's %u "
                               "keys",
                               (unsigned long long)b, (unsigned long long)bags->n_bags + 1, offset, previous, n);
        previous = offset;
    }
    return FRUGAL_OK;
}

static frugal_status allocate_bag_of(cpu_device *c) {
    size_t bytes = frugal_settings(c->f)->max_keys * sizeof *c->bag_of;
    if (!c->bag_of) c->bag_of = frugal_allocate(c->f, bytes, 64);
    if (!c->bag_of)
        return frugal_fail(FRUGAL_ERR_MEMORY, "lookup_bags: device %u: %zu bytes are not available", c->d, bytes);
    return FRUGAL_OK;
}

/* Pools a part of the bags. */
static void pool_piece(void *argument, uint32_t phase, uint32_t piece) {
    const cpu_job *job = argument;
    frugal_bags part = *job->step->bags;
    uint64_t from = (uint64_t)part.n_bags * piece / job->pieces,
             end = (uint64_t)part.n_bags * (piece + 1) / job->pieces;
    for (uint64_t b = from; b < end; b++)
        for (uint32_t p = part.offsets[b]; p < part.offsets[b + 1]; p++) job->c->bag_of[p] = (uint32_t)b;
    part.offsets += from, part.n_bags = (uint32_t)(end - from);
    void *to = (unsigned char *)job->out + from * job->step->stride * frugal_type_bytes(job->step->as);
    frugal_pool(&job->step->records, &part, job->c->store->dim, to, job->step->stride, job->step->as);
    (void)phase;
}

/* To pool bags, each unique row is first read once into the staging block; the bags are summed from there. */
static frugal_status cpu_lookup(void *device, const frugal_step *step, void *out) {
    cpu_device *c = device;
    cpu_job job = {.c = c, .step = step, .out = out};
    if (!step->bags) return read_rows(c, step, out);
    frugal_status status = check_offsets(step->bags, step->records.n);
    if (status == FRUGAL_OK) status = allocate_bag_of(c);
    if (status == FRUGAL_OK) status = read_rows(c, step, NULL);
    if (status == FRUGAL_OK) run_job(&job, 1, pool_piece);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>update - gradients are summed into the block, and copies take the step
 * --------------------------------------------------------------------------------------------------------- */

/* The device's own copy takes the optimizer's step that the host row will take if only this device touched the row. If
 * others touched it, too, the holder rule keeps the copy from being read; a secondary then lacks their contributions.
 * `way` -1: there is no copy. */
static void update_copy(cpu_device *c, const frugal_step *step, int64_t way, uint32_t row, const float *gradient) {
    if (way < 0) return;
    float *copy = copy_at(c, way);
    frugal_apply(c->store, step->hyper, row, copy, c->store->state_floats ? copy + c->state_at : NULL, gradient);
}

/* The update of the rows from `from` to `end`, of a device that updates rows in place. A cached copy of such a row is
 * current since lookup, so it is copied from the host row, which is in the processor's cache still. A secondary may
 * lack contributions, so it takes the step itself. */
static void update_in_place(cpu_job *job, uint32_t from, uint32_t end) {
    cpu_device *c = job->c;
    const frugal_step *step = job->step;
    const frugal_records *r = &step->records;
    uint64_t alone = 0;
    for (uint32_t u = from; u < end; u += 64) alone += (uint64_t)__builtin_popcountll(step->alone[u / 64]);
    frugal_add_relaxed(&job->in_place, alone);
    secondary_cursor cursor = first_secondary(step, from);
    for (uint32_t at = from, to; at < end; at = to) {
        to = !has_copies(c) || end - at < PLACED ? end : at + PLACED;
        frugal_update_rows(c->store, step, c->bag_of, job->grads, at, to);
        for (uint32_t u = at; has_copies(c) && u < to && u < step->n_own; u++) {
            const frugal_secondary *secondary = take_secondary(&cursor, u);
            int64_t way = secondary ? secondary_way(c, secondary) : find_copy(c, r->rows[u]);
            if (secondary || !frugal_is_alone(step->alone, u))
                update_copy(c, step, way, r->rows[u], frugal_gradient_of(step, c->bag_of, job->grads, u));
            else if (way >= 0)
                refresh_copy(c, way, r->rows[u]);
        }
    }
}

/* Of a device that keeps updates, before any piece of the update: where the copies of the piece's rows are, in
 * c->found; and which of the rows that the device alone touches it updates in place, in c->placed: those without a copy
 * in the cache. Rows of frozen tables are among these, because nobody writes them. */
static void sort_out(cpu_job *job, uint32_t from, uint32_t end) {
    cpu_device *c = job->c;
    const frugal_store *s = c->store;
    secondary_cursor cursor = first_secondary(job->step, from);
    for (uint32_t u = from; u < end; u++) {
        uint32_t row = job->step->records.rows[u];
        const frugal_secondary *secondary = take_secondary(&cursor, u);
        int64_t way = secondary ? secondary_way(c, secondary) : find_copy(c, row);
        uint64_t is_placed = (uint64_t)frugal_is_alone(job->step->alone, u);
        if (!secondary && way >= 0)
            is_placed &= (uint64_t)s->groups[frugal_group_of(s->groups, s->n_groups, row)].optimizer.frozen;
        c->found[u] = found_of(way, 0, 0);
        c->placed[u / 64] = (u % 64 ? c->placed[u / 64] : 0) | is_placed << u % 64;
    }
}

/* The same for a device that keeps updates. A copy of a row that it alone touches takes the step instead of the host
 * row; it is current since lookup. */
static void update_kept(cpu_job *job, uint32_t from, uint32_t end) {
    cpu_device *c = job->c;
    const frugal_step *step = job->step;
    const frugal_records *r = &step->records;
    uint64_t kept = 0, dirtied = 0, in_place = 0;
    frugal_step placed = *step;
    placed.alone = c->placed;
    for (uint32_t at = from, to; at < end; at = to) {
        to = end - at < PLACED ? end : at + PLACED;
        frugal_update_rows(c->store, &placed, c->bag_of, job->grads, at, to);
        for (uint32_t u = at; u < to; u++) {
            int is_placed = frugal_is_alone(c->placed, u), is_kept = !is_placed && frugal_is_alone(step->alone, u);
            int64_t way = found_place(c->found[u]);
            in_place += (uint64_t)is_placed, kept += (uint64_t)is_kept;
            update_copy(c, step, way, r->rows[u], frugal_gradient_of(&placed, c->bag_of, job->grads, u));
            if (!is_kept || c->dirty[way]) continue;
            c->dirty[way] = 1;
            dirtied++;
        }
    }
    frugal_add_relaxed(&job->kept, kept), frugal_add_relaxed(&job->dirtied, dirtied);
    frugal_add_relaxed(&job->in_place, in_place);
}

/* The same for a device that stages its updates. */
static void update_staged(cpu_job *job, uint32_t from, uint32_t end) {
    cpu_device *c = job->c;
    const frugal_step *step = job->step;
    const frugal_records *r = &step->records;
    if (job->grads) frugal_update_rows(c->store, step, c->bag_of, job->grads, from, end);
    secondary_cursor cursor = first_secondary(step, from);
    for (uint32_t u = from; has_copies(c) && u < end && u < step->n_own; u++) {
        const frugal_secondary *secondary = take_secondary(&cursor, u);
        int64_t way = secondary ? secondary_way(c, secondary) : find_copy(c, r->rows[u]);
        update_copy(c, step, way, r->rows[u], r->block + u * r->stride);
    }
}

static void update_piece(void *argument, uint32_t phase, uint32_t piece) {
    cpu_job *job = argument;
    const frugal_records *r = &job->step->records;
    uint32_t from = piece_start(r, piece, job->pieces), end = piece_start(r, piece + 1, job->pieces);
    if (!job->step->alone)
        update_staged(job, from, end);
    else if (!job->c->dirty)
        update_in_place(job, from, end);
    else if (phase == 0)
        sort_out(job, from, end);
    else
        update_kept(job, from, end);
}

static frugal_status cpu_update(void *device, const frugal_step *step, const void *grads) {
    cpu_device *c = device;
    cpu_job job = {.c = c, .step = step, .grads = grads};
    run_job(&job, step->alone && c->dirty ? 2 : 1, update_piece);
    uint64_t kept = frugal_load_relaxed(&job.kept), in_place = frugal_load_relaxed(&job.in_place);
    uint64_t brought = step->records.n_unique - kept;
    count_crossing(c, step->step, 1, brought, brought - in_place, in_place);
    c->n_dirty += frugal_load_relaxed(&job.dirtied);
    if (step->alone) report_kept(c, kept);
    return FRUGAL_OK;
}

/* ---------------------------------------------------------------------------------------------------------
 * >>operations - the other operations, and the table of all that the host store calls
 * --------------------------------------------------------------------------------------------------------- */

static frugal_status cpu_squares(void *device, const frugal_step *step, const void *grads, double *squares) {
    const cpu_device *c = device;
    *squares = frugal_sum_row_squares(c->store, step, c->bag_of, grads);
    return FRUGAL_OK;
}

static frugal_status cpu_preload(void *device, const uint32_t *rows, uint32_t n) {
    cpu_device *c = device;
    int late;
    for (uint32_t i = 0; i < n; i++) {
        touch now = {rows[i], frugal_worth(c->f, rows[i]), c->step};
        int64_t way = find_copy(c, rows[i]);
        if (way < 0) way = insert_copy(c, &now, 1, c->clock, &late);
        if (way >= 0) refresh_copy(c, way, rows[i]); /* if the set is full, the row is read from the host */
    }
    return FRUGAL_OK;
}

static int cpu_verify(void *device) {
    const cpu_device *c = device;
    uint64_t ways = c->sets * WAYS;
    for (uint64_t way = 0; way < ways + c->n_secondaries; way++) {
        uint32_t row = way < ways ? c->rows[way] : c->secondary_rows[way - ways];
        if (row == NO_ROW || !frugal_is_current(c->f, c->d, row)) continue;
        frugal_verified(c->f, row);
        const float *copy = copy_at(c, (int64_t)way);
        if (!frugal_have_same_weights(c->store, copy, host_row(c, row))) return 0;
        if (c->store->state_floats && !frugal_are_same(copy + c->state_at, host_state(c, row), c->store->state_floats))
            return 0;
    }
    return 1;
}

static void cpu_empty(void *device) {
    cpu_device *c = device;
    if (c->sets == 0) return;
    memset(c->rows, 0xff, (size_t)c->sets * WAYS * sizeof *c->rows);
    memset(c->uses, 0, (size_t)c->sets * WAYS * sizeof *c->uses);
}

/* The copies are read anew: a static cache would never get them back. */
static frugal_status cpu_refresh(void *device, const uint32_t *rows, uint32_t n) {
    const cpu_device *c = device;
    for (uint32_t i = 0; i < n; i++) {
        int64_t way = find_copy(c, rows[i]);
        if (way >= 0) refresh_copy(c, way, rows[i]);
    }
    return FRUGAL_OK;
}

static size_t secondaries_bytes(const cpu_device *c, uint32_t n) {
    return (size_t)n * (c->stride * sizeof(float) + sizeof *c->secondary_rows);
}

/* Allocates what lookups of a device with copies need. */
static frugal_status allocate_found(cpu_device *c) {
    c->found_bytes = frugal_settings(c->f)->max_keys * sizeof *c->found;
    if (!c->found) c->found = frugal_allocate(c->f, c->found_bytes, 64);
    if (c->found) return FRUGAL_OK;
    return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes to find copies are not available", c->d,
                       c->found_bytes);
}

static frugal_status cpu_list_secondaries(void *device, const uint32_t *rows, uint32_t n) {
    cpu_device *c = device;
    size_t bytes = secondaries_bytes(c, n);
    frugal_status status = n ? allocate_found(c) : FRUGAL_OK;
    float *memory = n && status == FRUGAL_OK ? frugal_allocate(c->f, bytes, 64) : NULL;
    if (status != FRUGAL_OK) return status;
    if (n && !memory)
        return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes for copies of %u rows are not available", c->d,
                           bytes, n);
    frugal_free(c->f, c->secondaries, secondaries_bytes(c, c->n_secondaries));
    c->secondaries = memory;
    c->secondary_rows = n ? (uint32_t *)(void *)(memory + (uint64_t)n * c->stride) : NULL;
    c->n_secondaries = n;
    if (n) memcpy(c->secondary_rows, rows, n * sizeof *rows);
    cpu_empty(c);
    return FRUGAL_OK;
}

static frugal_status cpu_recount(void *device) {
    cpu_device *c = device;
    for (uint64_t way = 0; c->policy == FRUGAL_CACHE_COUNTED && way < c->sets * WAYS; way++)
        if (c->rows[way] != NO_ROW) c->uses[way] = c->step | (uint32_t)frugal_worth(c->f, c->rows[way]) << WORTH_AT;
    return FRUGAL_OK;
}

static frugal_status cpu_write_back(void *device, const uint32_t *rows, uint32_t n) {
    cpu_device *c = device;
    if (!c->dirty) return FRUGAL_OK;
    for (uint64_t way = 0; !rows && way < c->sets * WAYS; way++) clean_copy(c, way);
    for (uint32_t i = 0; rows && i < n; i++) {
        int64_t way = find_copy(c, rows[i]);
        if (way >= 0) clean_copy(c, (uint64_t)way);
    }
    frugal_add_relaxed(&c->back, report_kept(c, 0)); /* relaxed: a statistic */
    return FRUGAL_OK;
}

static int cpu_updates_in_place(void *device) {
    const cpu_device *c = device;
    return frugal_settings(c->f)->alone != FRUGAL_ALONE_STAGED; /* resolved: a file's table is staged by default */
}

static void cpu_close(void *device) {
    cpu_device *c = device;
    frugal_free(c->f, c->rows, c->rows_bytes);
    frugal_free(c->f, c->copies, c->copies_bytes);
    frugal_free(c->f, c->placed, c->dirty_bytes);
    frugal_free(c->f, c->found, c->found_bytes);
    frugal_free(c->f, c->secondaries, secondaries_bytes(c, c->n_secondaries));
    frugal_free(c->f, c->bag_of, frugal_settings(c->f)->max_keys * sizeof *c->bag_of);
    frugal_free(c->f, c, sizeof *c);
}

static const frugal_device_ops cpu_operations = {.lookup = cpu_lookup,
                                                 .update = cpu_update,
                                                 .preload = cpu_preload,
                                                 .verify = cpu_verify,
                                                 .empty = cpu_empty,
                                                 .refresh = cpu_refresh,
                                                 .close = cpu_close,
                                                 .updates_in_place = cpu_updates_in_place,
                                                 .list_secondaries = cpu_list_secondaries,
                                                 .write_back = cpu_write_back,
                                                 .recount = cpu_recount,
                                                 .squares = cpu_squares};

/* ---------------------------------------------------------------------------------------------------------
 * >>attach - and the traffic, which a trainer may ask for
 * --------------------------------------------------------------------------------------------------------- */

/* Allocates the cache. Whatever this returns, cpu_close accepts the device. */
static frugal_status cpu_open(cpu_device *c) {
    uint64_t ways = c->sets * WAYS;
    c->rows_bytes = (size_t)(ways * 2 * sizeof(uint32_t));
    c->copies_bytes = (size_t)(ways * c->stride * sizeof(float));
    if (c->sets == 0) return FRUGAL_OK;
    c->rows = frugal_allocate(c->f, c->rows_bytes, 64);
    c->copies = c->rows ? frugal_allocate(c->f, c->copies_bytes, 64) : NULL;
    if (!c->copies)
        return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %llu bytes for a cache of %llu rows are not available", c->d,
                           (unsigned long long)(c->rows_bytes + c->copies_bytes), (unsigned long long)ways);
    if (frugal_settings(c->f)->alone == FRUGAL_ALONE_KEPT) {
        size_t words = (frugal_settings(c->f)->max_keys + 63) / 64;
        c->dirty_bytes = words * sizeof *c->placed + ways;
        if (!(c->placed = frugal_allocate(c->f, c->dirty_bytes, 64)))
            return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes to mark cached rows are not available", c->d,
                               c->dirty_bytes);
        c->dirty = (uint8_t *)(c->placed + words);
    }
    c->uses = c->rows + ways;
    cpu_empty(c);
    return allocate_found(c);
}

frugal_status frugal_cpu_attach(frugal *f, uint32_t d, const frugal_cpu_desc *desc) {
    const frugal_cpu_desc none = {0};
    if (!desc) desc = &none;
    frugal_status status = frugal_may_attach(f, d);
    if (status != FRUGAL_OK) return status;
    const frugal_store *store = frugal_get_store(f);
    if (desc->policy < FRUGAL_CACHE_COUNTED || desc->policy > FRUGAL_CACHE_STATIC)
        return frugal_fail(FRUGAL_ERR_ARGUMENT,
                           "cpu_attach: cache policy %d; there are 0 (counted), 1 (LRU), 2 (static)",
                           (int)desc->policy);
    if (desc->cache_rows > UINT32_MAX)
        return frugal_fail(FRUGAL_ERR_LIMIT, "cpu_attach: a cache of %llu rows; the limit is 2^32 - 1",
                           (unsigned long long)desc->cache_rows);
    cpu_device *c = frugal_allocate(f, sizeof *c, 64);
    if (!c) return frugal_fail(FRUGAL_ERR_MEMORY, "device %u: %zu bytes are not available", d, sizeof *c);
    *c = (cpu_device){.f = f, .store = store, .d = d, .policy = desc->policy};
    c->sets = (desc->cache_rows + WAYS - 1) / WAYS;
    c->state_at = frugal_state_at(store);
    c->stride = (c->state_at + store->state_floats + 7) / 8 * 8;
    c->step = (uint32_t)(frugal_settings(f)->first_step - 1) & STEP_BITS;
    c->fall = frugal_fall(store->rows, frugal_settings(f)->max_keys);
    status = frugal_use_threads(f, d, desc->threads);
    if (status == FRUGAL_OK) status = cpu_open(c);
    if (status == FRUGAL_OK && c->sets && c->policy == FRUGAL_CACHE_COUNTED) status = frugal_begin_counting(f);
    if (status == FRUGAL_OK) status = frugal_attach(f, d, &cpu_operations, c);
    if (status != FRUGAL_OK) cpu_close(c);
    return status;
}

frugal_status frugal_cpu_get_traffic(const frugal *f, uint32_t d, frugal_traffic *last_step, frugal_traffic *total) {
    const frugal_status status = frugal_is_usable(f, "cpu_get_traffic");
    if (status != FRUGAL_OK) return status;
    const cpu_device *c = frugal_get_device(f, d, &cpu_operations);
    if (!c) return frugal_fail(FRUGAL_ERR_DEVICE, "cpu_get_traffic: device %u is not attached by frugal_cpu_attach", d);
    if (last_step) *last_step = c->last_step;
    if (total) {
        uint64_t rows = frugal_load_relaxed(&c->back) - c->seen_back;
        *total = c->total;
        total->rows[2] += rows;
        total->bytes[2] += rows * (frugal_row_bytes(c->store) + c->store->state_floats * sizeof(float));
    }
    return FRUGAL_OK;
}
