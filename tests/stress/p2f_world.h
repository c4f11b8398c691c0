/* p2f_world.h - a toy trainer over the state machine of frugal_p2f.h: devices and workers, as threads or as processes,
 * on one block of memory without pointers. A row is a 64-bit number x, a gradient g makes it 3 x + g, so that a lost, a
 * doubled and a swapped update all show. What every device must read in every step is computed sequentially before. */
#ifndef P2F_WORLD_H
#define P2F_WORLD_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FRUGAL_P2F_IMPLEMENTATION_ELSEWHERE
#define FRUGAL_P2F_IMPLEMENTATION
#endif
#define FRUGAL_ATOMICS
#include "frugal_p2f.h"
#include "tests/support.h"

#ifndef WORLD_WAIT
#define WORLD_WAIT() sched_yield() /* nothing to do: let others */
#endif

typedef struct world_desc {
    uint32_t devices, workers, rows, max_rows, steps, lookahead, staging;
    frugal_mode mode;
    int loaders;       /* announcing is done by a thread of its own */
    unsigned in_place; /* percent of the batches that are announced in place; all, if devices keep updates */
    int keeps;         /* devices keep some updates in their copies */
    int taken;         /* devices drop the copies of rows that are taken from them */
    int wordless;      /* one device, whose batches are all in place: rows have no words */
    uint64_t first_step, seed;
} world_desc;

typedef struct world { /* all else lies behind it, at offsets from it */
    world_desc desc;
    uint64_t bytes;
    uint64_t rows_at;                /* uint32 [devices][steps][max_rows] */
    uint64_t counts_at;              /* uint32 [devices][steps] */
    uint64_t kinds_at;               /* uint8  [devices][steps] */
    uint64_t expected_at;            /* uint64 [devices][steps][max_rows]: what a lookup must find */
    uint64_t final_at;               /* uint64 [rows]: the table at the end */
    uint64_t table_at;               /* uint64 [rows]: plain memory, ordered by the state machine alone */
    uint64_t staging_at;             /* uint64 [devices][staging][max_rows]: likewise */
    uint64_t copies_at;              /* copy [devices][rows]: a trainer's, and another one's who does a recall */
    uint64_t state_at;               /* frugal_p2f */
    FRUGAL_ATOMIC(uint32_t) running; /* trainers; relaxed, as all of these: they order nothing */
    FRUGAL_ATOMIC(uint32_t) failures;
    FRUGAL_ATOMIC(uint64_t) hits, flushed;
} world;

enum { BRINGS = 1, READ_ONLY = 2 };

typedef struct copy {
    uint64_t x;
    uint32_t present, kept; /* kept: the table's row lacks updates that x has */
} copy;

/* >>layout */

static inline void *world_at(const world *w, uint64_t offset) {
    return (unsigned char *)(uintptr_t)w + offset;
}
static inline frugal_p2f *world_state(const world *w) {
    return world_at(w, w->state_at);
}
static inline uint64_t world_batch(const world *w, uint32_t device, uint64_t step) { /* step counted from 0 */
    return (uint64_t)device * w->desc.steps + step;
}
static inline uint32_t *world_rows(const world *w, uint32_t device, uint64_t step) {
    return (uint32_t *)world_at(w, w->rows_at) + world_batch(w, device, step) * w->desc.max_rows;
}
static inline uint32_t *world_count(const world *w, uint32_t device, uint64_t step) {
    return (uint32_t *)world_at(w, w->counts_at) + world_batch(w, device, step);
}
static inline uint8_t *world_kind(const world *w, uint32_t device, uint64_t step) {
    return (uint8_t *)world_at(w, w->kinds_at) + world_batch(w, device, step);
}
static inline uint64_t *world_expected(const world *w, uint32_t device, uint64_t step) {
    return (uint64_t *)world_at(w, w->expected_at) + world_batch(w, device, step) * w->desc.max_rows;
}
static inline uint64_t *world_block(const world *w, uint32_t device, uint64_t step) {
    uint64_t ring = (uint64_t)device * w->desc.staging + step % w->desc.staging;
    return (uint64_t *)world_at(w, w->staging_at) + ring * w->desc.max_rows;
}
static inline copy *world_copies(const world *w, uint32_t device) {
    return (copy *)world_at(w, w->copies_at) + (uint64_t)device * w->desc.rows;
}
static inline int world_is_in_place(const world *w, uint32_t device, uint64_t step) { /* step counted from 0 */
    return w->desc.keeps || w->desc.wordless || test_mix3(~w->desc.seed, step, device) % 100 < w->desc.in_place;
}
static inline uint64_t world_gradient(const world *w, uint32_t device, uint64_t step, uint32_t row) {
    return test_mix3(w->desc.seed, step << 8 | device, row);
}

static frugal_p2f_desc world_p2f_desc(const world_desc *d) {
    return (frugal_p2f_desc){.rows = d->rows,
                             .devices = d->devices,
                             .max_rows = d->max_rows,
                             .lookahead = d->lookahead,
                             .staging = d->staging,
                             .mode = d->mode,
                             .first_step = d->first_step,
                             .recalls = d->keeps,
                             .taken = d->taken,
                             .without_words = d->wordless,
                             .threads = d->workers + 2 * d->devices + 1};
}

static uint64_t world_layout(const world_desc *d, world *w) {
    uint64_t at = sizeof *w, batches = (uint64_t)d->devices * d->steps;
    frugal_p2f_desc p2f = world_p2f_desc(d);
    *w = (world){.desc = *d};
    w->rows_at = at = (at + 63) / 64 * 64, at += batches * d->max_rows * 4;
    w->counts_at = at, at += batches * 4;
    w->kinds_at = at, at += batches;
    w->expected_at = at = (at + 63) / 64 * 64, at += batches * d->max_rows * 8;
    w->final_at = at, at += (uint64_t)d->rows * 8;
    w->table_at = at, at += (uint64_t)d->rows * 8;
    w->staging_at = at, at += (uint64_t)d->devices * d->staging * d->max_rows * 8;
    w->copies_at = at, at += (uint64_t)d->devices * d->rows * sizeof(copy);
    w->state_at = at = (at + FRUGAL_P2F_ALIGN - 1) / FRUGAL_P2F_ALIGN * FRUGAL_P2F_ALIGN;
    at += frugal_p2f_footprint(&p2f);
    return w->bytes = (at + FRUGAL_P2F_ALIGN - 1) / FRUGAL_P2F_ALIGN * FRUGAL_P2F_ALIGN;
}

static uint64_t world_bytes(const world_desc *d) {
    world w;
    return world_layout(d, &w);
}

/* >>the sequential reference */

static void world_make_batch(world *w, test_random *random, uint32_t device, uint64_t step) {
    const world_desc *d = &w->desc;
    uint32_t *rows = world_rows(w, device, step), n = 0;
    uint32_t hot = test_chance(random, 50) ? (d->rows + 7) / 8 : d->rows; /* skew: half of the batches from an eighth */
    unsigned percent = (unsigned)test_below(random, 100);
    for (uint32_t row = 0; row < hot && n < d->max_rows; row++)
        if (test_chance(random, percent)) rows[n++] = row;
    *world_count(w, device, step) = n;
    *world_kind(w, device, step) = (uint8_t)(test_chance(random, 80)   ? BRINGS
                                             : test_chance(random, 50) ? READ_ONLY
                                                                       : 0);
}

/* What step s makes of the table; sum[rows] and brought[rows] are zero, before and after. */
static void world_follow(const world *w, uint64_t s, uint64_t *table, uint64_t *sum, uint8_t *brought) {
    for (uint32_t v = 0; v < w->desc.devices; v++)
        for (uint32_t i = 0; *world_kind(w, v, s) == BRINGS && i < *world_count(w, v, s); i++) {
            uint32_t row = world_rows(w, v, s)[i];
            sum[row] += world_gradient(w, v, s, row);
            brought[row] = 1;
        }
    for (uint32_t row = 0; row < w->desc.rows; row++) {
        if (brought[row]) table[row] = 3 * table[row] + sum[row];
        brought[row] = 0, sum[row] = 0;
    }
}

static void world_make_reference(world *w) {
    const world_desc *d = &w->desc;
    uint64_t *table = world_at(w, w->final_at);
    uint64_t *sum = calloc(d->rows, sizeof *sum);
    uint8_t *brought = calloc(d->rows, 1);
    for (uint64_t s = 0; s < d->steps; s++) {
        for (uint32_t v = 0; v < d->devices; v++)
            for (uint32_t i = 0; i < *world_count(w, v, s); i++)
                world_expected(w, v, s)[i] = table[world_rows(w, v, s)[i]];
        world_follow(w, s, table, sum, brought);
    }
    free(sum), free(brought);
}

/* Makes a world in memory[world_bytes], zeroed, page-aligned. */
static world *world_make(void *memory, const world_desc *d) {
    world *w = memory;
    world_layout(d, w);
    test_random random = {.seed = d->seed};
    for (uint64_t s = 0; s < d->steps; s++)
        for (uint32_t v = 0; v < d->devices; v++) world_make_batch(w, &random, v, s);
    world_make_reference(w);
    frugal_p2f_desc p2f = world_p2f_desc(d);
    frugal_p2f *p;
    if (frugal_p2f_init(world_state(w), &p2f, &p) != FRUGAL_OK) abort();
    frugal_store_relaxed(&w->running, d->devices);
    return w;
}

/* >>the trainer */

static void world_fail(world *w, const char *what, uint64_t step, uint32_t device, uint32_t row) {
#ifdef WORLD_FAIL
    WORLD_FAIL("%s at step %llu, device %u, row %u", what, (unsigned long long)step, device, row);
#endif
    if (frugal_add_relaxed(&w->failures, 1) < 5)
        fprintf(stderr, "# FAILED: %s at step %llu, device %u, row %u\n", what, (unsigned long long)step, device, row);
}

/* Applies one row's gradients of a step to the table; returns how many entries they are. */
static uint32_t world_apply(world *w, uint64_t step, const frugal_p2f_entry *entries) {
    frugal_p2f *p = world_state(w);
    uint64_t *x = (uint64_t *)world_at(w, w->table_at) + entries->row, sum = 0;
    uint32_t n = frugal_p2f_contributors(entries), device, record, brought = 0;
    for (uint32_t i = 0; i < n; i++) {
        frugal_p2f_source(p, entries[i].source, &device, &record);
        if (!frugal_p2f_brings(p, device, step)) continue;
        sum += world_block(w, device, step)[record];
        brought++;
    }
    if (brought) *x = 3 * *x + sum;
    return n;
}

/* Closes a piece: every third step is applied by its closers, the others are queued. */
static int world_close(world *w) {
    frugal_p2f_piece piece;
    if (!frugal_p2f_close_begin(world_state(w), &piece)) return 0;
    int applied = piece.step % 3 == 0;
    for (uint32_t at = 0; applied && (at = frugal_p2f_next_closed(world_state(w), &piece, at)) < piece.n;)
        at += world_apply(w, piece.step, piece.entries + at);
    return frugal_p2f_close_end(world_state(w), &piece, applied);
}

static int world_flush(world *w, uint64_t limit) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint32_t n = frugal_p2f_take(world_state(w), limit, work, NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (work[i].entries->row == work[i].row)
            world_apply(w, work[i].step, work[i].entries);
        else
            world_fail(w, "another row's plan entries", work[i].step, 0, work[i].row);
    }
    if (n) frugal_p2f_done(world_state(w), work, n);
    frugal_add_relaxed(&w->flushed, n);
    return n > 0;
}

/* The table gets what the device's copy of the row has more. */
static void world_write_back(world *w, uint32_t device, uint32_t row) {
    copy *c = &world_copies(w, device)[row];
    if (c->kept) ((uint64_t *)world_at(w, w->table_at))[row] = c->x;
    c->kept = 0;
}
static void world_write_back_all(world *w, uint32_t device) {
    for (uint32_t row = 0; row < w->desc.rows; row++) world_write_back(w, device, row);
}

/* Does the device's next recalls, if there are any. One thread does those of a device; the device, if it is another,
 * waits at its gate meanwhile, and what it did is acquired from the state machine alone. */
static int world_recall(world *w, uint32_t device) {
    frugal_p2f *p = world_state(w);
    uint64_t step;
    if (!w->desc.keeps || !frugal_p2f_has_recall(p, device, &step)) return 0;
    const uint32_t *rows = NULL;
    uint32_t n = frugal_p2f_recalls(p, device, step, &rows);
    if (n == UINT32_MAX) world_write_back_all(w, device); /* steps were cancelled */
    for (uint32_t i = 0; n != UINT32_MAX && i < n; i++) world_write_back(w, device, rows[i]);
    frugal_p2f_recall_done(p, device, step);
    return 1;
}

/* One piece of whatever there is to do, most urgent first. */
static int world_help(world *w, uint64_t limit) {
    return frugal_p2f_plan(world_state(w)) || world_close(w) || world_flush(w, limit);
}

static void world_help_or_yield(world *w, uint64_t limit) {
    if (!world_help(w, limit)) WORLD_WAIT();
}

/* Announces the next step of `device` if that is legal now. */
static int world_try_announce(world *w, uint32_t device) {
    frugal_p2f *p = world_state(w);
    uint64_t step = frugal_p2f_announced(p, device), s = step - w->desc.first_step;
    if (s >= w->desc.steps) return 0;
    const frugal_p2f_batch batch = {.rows = world_rows(w, device, s),
                                    .n = *world_count(w, device, s),
                                    .read_only = *world_kind(w, device, s) == READ_ONLY,
                                    .in_place = world_is_in_place(w, device, s)};
    frugal_status status = frugal_p2f_announce(p, device, step, &batch);
    if (status != FRUGAL_OK && status != FRUGAL_AGAIN) world_fail(w, "an announcement", step, device, 0);
    return status == FRUGAL_OK;
}

static inline void world_loader(world *w, uint32_t device) {
    while (frugal_p2f_announced(world_state(w), device) < w->desc.first_step + w->desc.steps &&
           !frugal_load_relaxed(&w->failures))
        if (!world_try_announce(w, device)) WORLD_WAIT();
}

/* Bit i of those that planners set, read as an atomic object, although nobody changes them after the gate: so explored
 * schedules show a gate that opens before they are there. */
static int world_bit(const uint64_t *bits, uint32_t i) {
    return (int)(frugal_load_relaxed((const FRUGAL_ATOMIC(uint64_t) *)(const void *)&bits[i / 64]) >> i % 64 & 1);
}

/* Drops the copies of the rows that are taken from the device at `step`: before it commits, or within the next step. */
static void world_drop_taken(world *w, uint32_t device, uint64_t step) {
    copy *cache = world_copies(w, device);
    const uint32_t *taken;
    uint32_t n = w->desc.taken ? frugal_p2f_taken(world_state(w), device, step, &taken) : 0;
    for (uint32_t i = 0; i < n; i++) {
        int is_read = 0; /* by another device */
        for (uint32_t v = 0; v < w->desc.devices; v++)
            for (uint32_t k = 0; v != device && k < *world_count(w, v, step - w->desc.first_step); k++)
                is_read |= world_rows(w, v, step - w->desc.first_step)[k] == taken[i];
        if (!is_read) world_fail(w, "a row that nobody has taken", step, device, taken[i]);
        if (cache[taken[i]].kept)
            world_fail(w, "a row that is taken has not been written back", step, device, taken[i]);
        cache[taken[i]].present = 0;
    }
}

/* Reads the batch: cached copies where they are valid, the table elsewhere; and checks both. Some copies that keep
 * updates are written back for no reason. */
static void world_look_up(world *w, uint32_t device, uint64_t s) {
    copy *cache = world_copies(w, device);
    uint64_t step = s + w->desc.first_step, hits = 0;
    const uint64_t *valid = frugal_p2f_valid(world_state(w), device, step), *expected = world_expected(w, device, s);
    const uint64_t *table = world_at(w, w->table_at);
    if (s > 0 && w->desc.seed % 2 == 0) world_drop_taken(w, device, step - 1);
    for (uint32_t i = 0; i < *world_count(w, device, s); i++) {
        uint32_t row = world_rows(w, device, s)[i];
        copy *c = &cache[row];
        int is_valid = c->present && world_bit(valid, i);
        if (c->kept && !is_valid) world_fail(w, "a copy that keeps an update is not valid", step, device, row);
        if (c->kept && world_gradient(w, device, ~s, row) % 4 == 0) world_write_back(w, device, row);
        if (!c->kept && table[row] != expected[i])
            world_fail(w, "the table is not what sequential training has", step, device, row);
        if (is_valid) {
            hits++;
            if (c->x != expected[i]) world_fail(w, "a valid copy is not what the table is", step, device, row);
        } else {
            *c = (copy){table[row], 1, 0};
        }
    }
    frugal_add_relaxed(&w->hits, hits);
}

/* Is the row of record i the device's alone, so that it updates the row in place? */
static int world_is_alone(const world *w, uint32_t device, uint64_t step, uint32_t i) {
    const uint64_t *bits = frugal_p2f_alone(world_state(w), device, step);
    return bits && world_bit(bits, i);
}

/* Writes the records of the batch, and of a row that is the device's alone the row of the table itself, or its copy. */
static void world_train(world *w, uint32_t device, uint64_t s) {
    copy *cache = world_copies(w, device);
    uint64_t step = s + w->desc.first_step;
    int brings = *world_kind(w, device, s) == BRINGS;
    uint64_t *block = world_block(w, device, step), *table = world_at(w, w->table_at);
    for (uint32_t i = 0; brings && i < *world_count(w, device, s); i++) {
        uint32_t row = world_rows(w, device, s)[i];
        uint64_t gradient = world_gradient(w, device, s, row);
        cache[row].x = 3 * cache[row].x + gradient;
        if (!world_is_alone(w, device, step, i))
            block[i] = gradient;
        else if (w->desc.keeps && (cache[row].kept || gradient % 4))
            cache[row].kept = 1;
        else
            table[row] = 3 * table[row] + gradient;
    }
    if (w->desc.seed % 2) world_drop_taken(w, device, step);
    if (frugal_p2f_commit(world_state(w), device, step, brings, NULL) != FRUGAL_OK)
        world_fail(w, "a commit", step, device, 0);
}

/* A device: announces ahead (unless a loader does), passes gates, trains. While it waits, it does the recalls of the
 * next device: none is left when it has passed its last gate. */
static void world_device(world *w, uint32_t device) {
    frugal_p2f *p = world_state(w);
    for (uint64_t s = 0; s < w->desc.steps; s++) {
        uint64_t step = s + w->desc.first_step;
        for (;;) {
            while (!w->desc.loaders && world_try_announce(w, device)) {
            }
            if (frugal_load_relaxed(&w->failures)) break;
            if (frugal_p2f_announced(p, device) > step && frugal_p2f_gate(p, step)) break;
            if (!world_recall(w, (device + 1) % w->desc.devices)) world_help_or_yield(w, step);
        }
        if (frugal_load_relaxed(&w->failures)) break;
        world_look_up(w, device, s);
        if (!frugal_p2f_gate(p, step)) world_fail(w, "an open gate has shut", step, device, 0);
        world_train(w, device, s);
    }
    frugal_add_relaxed(&w->running, (uint32_t)-1);
}

static void world_worker(world *w) {
    while (frugal_load_relaxed(&w->running) && !frugal_load_relaxed(&w->failures)) world_help_or_yield(w, UINT64_MAX);
}

/* When nobody else is active any more: flushes the rest and compares the table. 1 if all is as it should be. */
static int world_finish(world *w) {
    const uint64_t *table = world_at(w, w->table_at), *final = world_at(w, w->final_at);
    if (frugal_load_relaxed(&w->failures)) return 0;
    while (world_help(w, UINT64_MAX)) {
    }
    frugal_p2f_progress now = frugal_p2f_get_progress(world_state(w));
    if (now.closed != w->desc.first_step + w->desc.steps) world_fail(w, "a step is not closed", now.closed, 0, 0);
    if (now.pending != 0) world_fail(w, "rows are pending after the end", now.closed, 0, 0);
    for (uint32_t d = 0; d < w->desc.devices; d++) world_write_back_all(w, d);
    for (uint32_t row = 0; row < w->desc.rows; row++)
        if (table[row] != final[row]) world_fail(w, "the table differs at the end", now.closed, 0, row);
    return frugal_load_relaxed(&w->failures) == 0;
}

#endif /* P2F_WORLD_H */
