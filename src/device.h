/* device.h - what the host store and a logical device know of each other. Read it to write a device: a cache, a lookup
 * and an update on hardware of a new kind. A trainer needs none of it: a trainer includes frugal.h.
 * It may change while the version is 0.x; CHANGELOG.md then says what to do.
 *
 * CONTENTS, searchable by their marks
 *      >>store        the host table, and the settings of its tables
 *      >>step         a device's announced batch
 *      >>operations   what the host store calls
 *      >>attach       attaching; which copies are current
 *      >>pieces       work that several threads do
 *      >>gates        for devices whose own work waits for the gate
 *      >>memory       what a device must reach; the instance's allocator; messages
 *      >>rows         arithmetic of whole rows, on the host
 *
 * WHAT A DEVICE MUST DO
 *      A device is a struct of its own and a table of operations. Its attach call makes the struct and gives both to
 *      frugal_attach; frugal_cpu_attach is the example to read first. The host store decides which rows may be read and
 *      which thread waits. The device moves rows and computes:
 *      - lookup reads each unique row of the batch from the device's cached copy only if the row's bit in `valid` is
 *        set, else from the host table. It refreshes or drops each copy whose bit is not set, because the holder rule
 *        (frugal_p2f.h, section 7) relies on this from the next step on. It reports hits and misses
 *        (frugal_count_hits), unless the lookup is a repeated one.
 *      - update writes a record for each unique row into the staging block: the sum of the row's gradients, in the
 *        order of frugal_sum_positions. Then it does the optimizer's step (frugal_apply) with that record on the cached
 *        copy of the row, if there is one. It does not write to the host table, because flushing does.
 *      - A device with `updates_in_place` does write to the host table, in update: it does the optimizer's step on the
 *        host row, weights and state, of each unique row whose bit in `alone` is set, and nobody flushes that row.
 *      - A device with `write_back` may keep such an update instead, if the instance is FRUGAL_ALONE_KEPT and it has
 *        a current copy of the row: it does the step on the copy alone. Before the copy's way goes to another row, it
 *        writes the copy to the host row, weights and state; and when write_back asks for the row. It never drops such
 *        a copy otherwise.
 *      - A device with `list_secondaries` may have secondaries, which it never evicts. Of a unique row in
 *        `secondaries` it reads the copy listed there if `valid` there says so; else the host row, from which it
 *        refreshes the copy. It does not look for the row in its cache. In update the copy takes the optimizer's step
 *        with the device's own gradient, also if the host row takes the same step in place: it may be another row by
 *        then (clocks.c).
 *      - Weights, of host rows and of copies, are of the type frugal_store.rows_as. A copy has its host row's bits, and
 *        to write one back copies them. A step widens weights of 16 bits, takes place in floats, and rounds to the
 *        nearest, or by random bits that are a function of step, row and element (frugal_hyper.noise, frugal_row_noise,
 *        frugal_pair_noise): so a host row, and copies of it on any device, get the same bits. State, records and sums
 *        are floats. The array that a lookup writes, or an update reads, is of the type frugal_step.as.
 *      - Results are the bits of frugal_apply and of the sums under >>rows. A device that cannot call these does the
 *        same operations in the same order; arithmetic.h names them.
 *      - The cache may drop a copy of which no update is kept at any time: the host row, once the gate is open, is
 *        complete without it.
 *      A device that goes on working after a call has returned, as a GPU does, also has `poll`, and those of the
 *      operations below `poll` that it needs.
 *
 * The declarations are also C++17 and CUDA C++.
 */
#ifndef FRUGAL_DEVICE_H
#define FRUGAL_DEVICE_H

#include "../frugal.h"
#include "arithmetic.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* >>store */

/* Consecutive tables with the same optimizer settings. Most instances have one group. */
typedef struct frugal_table_group {
    uint64_t first_row;         /* a group ends where the next one begins; the last one ends with the last row */
    frugal_optimizer optimizer; /* defaults resolved */
} frugal_table_group;

typedef struct frugal_hyper { /* a group's numbers in a step, fixed when the first device updates */
    float lr;                 /* that of the step, times the group's lr_scale */
    float step_size;          /* Adam, AdamW: lr * sqrt(1 - beta2^t) / (1 - beta1^t), t counted from 1; else lr */
    float scale;              /* of gradients: frugal_gradients.scale, 0 resolved */
    uint64_t noise;           /* frugal_step_noise, of all groups the same; 0 with fp32 */
} frugal_hyper;

typedef struct frugal_store {              /* the host table, as devices read it; constant while the instance is open */
    void *weights;                         /* of rows_as: row r at frugal_row_at(store, r) */
    float *state;                          /* row r at state + r * state_stride; NULL where the optimizer has none */
    uint64_t weights_stride, state_stride; /* weights; floats */
    frugal_type rows_as;
    frugal_rounding rounding;
    uint64_t rows;
    uint32_t dim, state_floats;
    uint32_t devices;
    frugal_reduce reduce;
    frugal_optimizer_kind kind; /* of all groups */
    uint32_t n_groups;
    const frugal_table_group *groups; /* groups[n_groups], by row; frugal_group_of finds a row's */
    uint32_t n_tables;
    const uint64_t *first_row; /* first_row[n_tables + 1]: the first row of each table; the number of rows */
    /* Of a table that is dealt over machines, the ids of its rows: frugal_id_of. Both 0: it is not dealt */
    const uint32_t *ids;
    uint32_t id_times, id_plus;
} frugal_store;

/* Has each element two moments? */
FRUGAL_INLINE int frugal_is_adam(frugal_optimizer_kind kind) {
    return kind == FRUGAL_ADAM || kind == FRUGAL_ADAMW;
}

FRUGAL_INLINE uint32_t frugal_type_bytes(frugal_type type) {
    return type == FRUGAL_FP32 ? 4 : 2;
}
/* Of the weights of a row, without what lies between rows. */
FRUGAL_INLINE uint64_t frugal_row_bytes(const frugal_store *store) {
    return (uint64_t)store->dim * frugal_type_bytes(store->rows_as);
}
/* Bytes from row to row. */
FRUGAL_INLINE uint64_t frugal_row_pitch(const frugal_store *store) {
    return store->weights_stride * frugal_type_bytes(store->rows_as);
}
FRUGAL_INLINE void *frugal_row_at(const frugal_store *store, uint64_t row) {
    return (unsigned char *)store->weights + row * frugal_row_pitch(store);
}
/* What random bits of a row depend on: its number in the whole table, which may be dealt over machines. */
FRUGAL_INLINE uint32_t frugal_id_of(const frugal_store *store, uint32_t row) {
    return store->ids ? store->ids[row] : store->id_times ? row * store->id_times + store->id_plus : row;
}
/* The floats that a copy's weights take, with its state behind them. */
FRUGAL_INLINE uint32_t frugal_state_at(const frugal_store *store) {
    return store->rows_as == FRUGAL_FP32 ? store->dim : (store->dim + 1) / 2;
}

/* The group of a row: the last one that begins at it or before. */
FRUGAL_INLINE uint32_t frugal_group_of(const frugal_table_group *groups, uint32_t n_groups, uint32_t row) {
    uint32_t low = 0;
    for (uint32_t n = n_groups; n > 1;) { /* the group is one of the n from `low` on */
        uint32_t middle = n / 2;
        if (groups[low + middle].first_row <= row) {
            low += middle;
            n -= middle;
        } else {
            n = middle;
        }
    }
    return low;
}

/* The table of a row. */
FRUGAL_INLINE uint32_t frugal_table_of(const frugal_store *store, uint32_t row) {
    uint32_t low = 0;
    for (uint32_t n = store->n_tables; n > 1;) { /* the table is one of the n from `low` on */
        uint32_t middle = n / 2;
        if (store->first_row[low + middle] <= row) {
            low += middle;
            n -= middle;
        } else {
            n = middle;
        }
    }
    return low;
}

/* >>step */

/* A unique row of the batch that frugal_secondaries lists for the device: a secondary. */
typedef struct frugal_secondary {
    uint32_t record,
        copy; /* which of the unique rows; where its copy is: the row's number in frugal_device_ops.list_secondaries */
    uint32_t valid; /* 1: the copy is to be read: decided by the clocks, not by the bit of frugal_step.valid */
} frugal_secondary;

typedef struct frugal_step { /* a device's announced batch */
    uint64_t step;
    frugal_records records; /* record_of: NULL if nobody has asked for it yet, and the lookup is not by bag */
    const uint64_t *valid;  /* a bit for each unique row: a cached copy, if there is one, is current */
    /* A number below 128 for each unique row, as of the plan: a copy with a larger one will have more hits, by
     * what was counted (worth.c). NULL: nothing was counted, and all are worth 0. */
    const uint8_t *worth;
    /* outdated[n_outdated], in no order: rows of which the device's copies, if there are any, became outdated in the
     * step before. The cache may drop them. There are none unless touches are counted and L > 0. */
    const uint32_t *outdated;
    uint32_t n_outdated;
    const frugal_hyper *hyper; /* hyper[n_groups]: only for updates with gradients; valid until the step is closed */
    int brings;                /* update only: there are gradients. Without any, only devices with `poll` are called */
    int repeated;              /* lookup only: not the first one of this step */
    const frugal_bags *bags;   /* lookup: pool by them; update: the gradients are by bag; NULL: by position */
    uint64_t stride;           /* elements from row to row of the array that lookup writes, or update reads */
    frugal_type as;            /* of these elements; FRUGAL_FP32 if it is the block */
    /* Update only: a bit for each unique row: the device updates it in place. NULL: the device does not. In
     * `announced` and lookup this is where the bits will be; they lie in FRUGAL_MEMORY_ALONE. */
    const uint64_t *alone;
    const frugal_secondary *secondaries; /* secondaries[n_secondaries], by rising record; NULL: none is listed */
    uint32_t n_secondaries;
    int read_only; /* it was announced so, and brings no gradients */
    /* The unique rows from n_own on are *guests*: their home is another machine (frugal_machines.h). No host row here
     * is theirs, and no bit of `valid` or `alone`; no cache may have them, and their numbers are not below store.rows.
     * In lookup the weights of guest u, dim elements of store.rows_as, are at guests + guest_at[u - n_own] * (bytes of
     * a row), and stay there until the device has done the step; both lie in FRUGAL_MEMORY_GUESTS. In `announced` they
     * are not there yet. Their records are written like others. NULL where there are none. */
    uint32_t n_own;
    const unsigned char *guests;
    const uint32_t *guest_at;
    /* `squares` only: summed[n_summed], the unique rows whose squares are added, in this order, which is the same
     * however the table is dealt. NULL: all but those of frozen tables, in theirs. */
    const uint32_t *summed;
    uint32_t n_summed;
} frugal_step;

/* Is the cached copy of the batch's unique row `u` current, if there is one? Decided by the holder rule (frugal_p2f.h,
 * section 7) when the batch was announced; `valid` is frugal_step.valid. */
FRUGAL_INLINE int frugal_copy_is_current(const uint64_t *valid, uint64_t u) {
    return (int)(valid[u / 64] >> u % 64 & 1);
}

/* Is state of a copy, or fp32 weights, what the host has? Bit for bit, but any two NaN are the same: GPUs compute
 * 0x7fffffff, and processors another one. (Of weights of 16 bits updates make one NaN, so all bits are compared.) */
FRUGAL_INLINE int frugal_are_same(const float *copy, const float *host, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint32_t a, b;
        memcpy(&a, &copy[i], sizeof a), memcpy(&b, &host[i], sizeof b);
        /* In bits, because with -ffinite-math-only compilers assume that there is no NaN. */
        if (a != b && ((a & 0x7fffffffu) <= 0x7f800000u || (b & 0x7fffffffu) <= 0x7f800000u)) return 0;
    }
    return 1;
}

/* Does the device update the batch's unique row `u` in place? `alone` is frugal_step.alone. */
FRUGAL_INLINE int frugal_is_alone(const uint64_t *alone, uint64_t u) {
    return alone && (int)(alone[u / 64] >> u % 64 & 1);
}

/* Are the weights of a copy, or a part of them, those of the host? */
static inline int frugal_have_same_weights(const frugal_store *store, const void *copy, const void *host) {
    if (store->rows_as != FRUGAL_FP32) return !memcmp(copy, host, frugal_row_bytes(store));
    return frugal_are_same((const float *)copy, (const float *)host, store->dim);
}

/* After frugal_update_rows: the gradient of unique row `u`, that of its one position or its record. Arguments as
 * there. */
FRUGAL_INLINE const float *frugal_gradient_of(const frugal_step *step, const uint32_t *bag_of, const void *grads,
                                              uint32_t u) {
    const frugal_records *r = &step->records;
    int is_one =
        grads && step->as == FRUGAL_FP32 && r->start[u + 1] - r->start[u] == 1 && frugal_is_alone(step->alone, u);
    if (!is_one || (step->bags && (step->bags->weights || step->bags->pooling == FRUGAL_POOL_MEAN)))
        return r->block + u * r->stride;
    uint32_t position = r->order[r->start[u]];
    return (const float *)grads + (step->bags ? bag_of[position] : position) * step->stride;
}

/* A batch whose unique rows a device finds itself (frugal_device_ops.sort). */
typedef struct frugal_unsorted {
    uint64_t step;
    uint32_t n; /* positions, at most max_keys */
    int read_only;
    /* Checked, and in FRUGAL_MEMORY_BATCHES until the batch is sorted or cancelled: the row of each position; or NULL,
     * and the keys lie where the device reaches them, in `batch`, whose tables exist; `stream` is what writes them
     * there. */
    const uint32_t *rows;
    const frugal_batch *batch;
    void *stream;
    uint32_t *found; /* where its unique rows are wanted, in FRUGAL_MEMORY_BATCHES; NULL: they are not */
} frugal_unsorted;

/* >>operations */

/* `device` is the `state` that frugal_attach was given. The device's trainer calls lookup and update. Operations that
 * are called between steps are called by the thread that is in frugal_preload, frugal_verify or a similar call, while
 * no step is under way. */
typedef struct frugal_device_ops {
    /* Writes rows[n][dim] by position; if there are bags, pooled[n_bags][dim]; of frugal_step.as, frugal_step.stride
     * elements apart. If `rows` is NULL, the block by record. */
    frugal_status (*lookup)(void *device, const frugal_step *step, void *rows);
    /* Sums grads[n][dim], or grads[n_bags][dim] if there are bags, into the block; they are of frugal_step.as,
     * frugal_step.stride elements apart (`grads` NULL: the block is written already). Then does the optimizer's step on
     * the cached copies. */
    frugal_status (*update)(void *device, const frugal_step *step, const void *grads);
    /* Puts rows into the cache, as far as there is room. Between steps. A row may be named twice. */
    frugal_status (*preload)(void *device, const uint32_t *rows, uint32_t n);
    /* 1: every current copy (frugal_is_current) is its host row (frugal_have_same_weights); between steps */
    int (*verify)(void *device);
    void (*empty)(void *device); /* drops all copies; between steps */
    /* Reads the copies of rows[n], if there are any, anew: the caller has written the host rows. Between steps, when no
     * update is kept. Rows may be named in any order, and twice. NULL, or if it fails: `empty` is called. */
    frugal_status (*refresh)(void *device, const uint32_t *rows, uint32_t n);
    void (*close)(void *device); /* frees the device; called once, by frugal_close, when all gates are open */
    /* 1: the device updates rows in place, by frugal_step.alone. The answer is always the same; the attaching thread
     * calls it. NULL: 0. */
    int (*updates_in_place)(void *device);
    /* Makes room for copies of rows[n], which rise: the secondaries, beside the cache. Drops all copies, those of the
     * cache, too. On an error nothing changes. Between steps. NULL: the device keeps none. */
    frugal_status (*list_secondaries)(void *device, const uint32_t *rows, uint32_t n);
    /* The operations below are for devices that go on working after a call has returned; other devices have NULL. */
    /* Sets *steps to the number of steps, counted from step 0, that the device has done: rows read, records written.
     * Any thread calls it, one at a time; it acquires the records. An error says that the device is lost, and why;
     * the steps in *steps are then committed, unless training has ended already, so what was kept in them has been
     * counted; 0: that is not known. It may be called again after that, as may `recalled`. After the loss of another
     * device it is called until the updates in place are done. NULL: a step is done when update returns. */
    frugal_status (*poll)(void *device, uint64_t *steps);
    /* The loader's thread, or one of ours, calls it once the step is planned; the device may copy the batch now. It
     * stays where it is until its step is closed. rows, start, order and record_of (see frugal_record_of) lie in this
     * order, equally far apart. Lookup is called after this has returned. */
    void (*announced)(void *device, const frugal_step *step);
    /* Announced batches are cancelled: no copy of them may be under way when it returns, nor a recall that reads the
     * rows that it was given. Between steps. */
    void (*cancelled)(void *device);
    /* 1: lookup does not wait for the gate on the host; the device's own work waits until the word of frugal_gates says
     * that the gate is open. Lookup is called once all devices have been told of the step, and those with `poll` have
     * been given the step before (they may share a queue). The answer is always the same. Any thread calls it.
     * NULL: 0. */
    int (*waits_for_gate)(void *device);
    /* Rows are worth something else than before: asks frugal_worth for each cached row. Between steps. NULL: the cache
     * does not go by it. */
    frugal_status (*recount)(void *device);
    /* Writes to the host table each of rows[n] of which the device keeps an update; `rows` NULL: all that it keeps. The
     * copies stay. Rows may be named in any order, twice, and without a copy. Any thread, between steps or in the
     * middle of one, but never while lookup, update, recount, recall or another write_back of the device is under way.
     * A device with `poll` is asked only when it has done the steps that it has updated. NULL: the device keeps no
     * updates. */
    frugal_status (*write_back)(void *device, const uint32_t *rows, uint32_t n);
    /* The two below are for devices that have both `poll` and `write_back`. */
    /* Begins to write back rows[n], which others have recalled for `step`; `rows` NULL: all. Called once or several
     * times for a step, before its lookup. `rows` lies in FRUGAL_MEMORY_ALONE, and stays there until the device is
     * done, or until `cancelled`. `done`: the device has done the step before, or all its steps if its data has ended.
     * If not, it has been given it, and either begins when it has done it, whatever others do, or returns AGAIN; then
     * it is asked again once it has. After
     * another error it is asked again, too; if it refuses 100 times in a row, training ends with LOST, and frugal_drain
     * asks for what it keeps. So it is with write_back, of a device without `poll`. */
    frugal_status (*recall)(void *device, uint64_t step, int done, const uint32_t *rows, uint32_t n);
    /* 1: all that `recall` has begun for `step` is done; acquires the rows. Any thread, one at a time. */
    int (*recalled)(void *device, uint64_t step);
    /* The sum of squares of the gradients that `update` would be given, as frugal_sum_row_squares computes it. Between
     * lookup and update. NULL: frugal_sum_squares is refused. */
    frugal_status (*squares)(void *device, const frugal_step *step, const void *grads, double *squares);
    /* The five below are for a device with `poll` that finds the unique rows of its batches itself; other devices have
     * NULL. `sorts`, which the attaching thread calls: 1: it does; 2: it also counts touches (counting.h), of all its
     * batches, instead of the host; 0: neither. It may do so much as frugal_may_sort says. */
    int (*sorts)(void *device);
    /* Begins to find them, for the loader's thread, once the batch is legal. Of the arrays of frugal_step.records only
     * `rows` is there then, or none, if frugal_unsorted.found is NULL; in that case `announced` is not called. An error
     * changes nothing. */
    frugal_status (*sort)(void *device, const frugal_unsorted *batch);
    /* Once it has found them: sets *n_unique, and acquires the rows, if they are wanted. AGAIN: it has not. It reads
     * memory and waits for nothing. Any thread, also again. Errors: KEY. */
    frugal_status (*sorted)(void *device, uint64_t step, uint32_t *n_unique);
    /* Writes order, start, and unless it is NULL, rows into the arrays of `to`, which have room for max_keys. Between
     * lookup and update. */
    frugal_status (*fetch)(void *device, const frugal_step *step, const frugal_records *to);
    /* Copies the counts, a byte for each row, from the device (`store` 0) or to it. One thread at a time; while
     * announcements go on, it may copy those of any step. */
    frugal_status (*move_counts)(void *device, uint8_t *counts, int store);
} frugal_device_ops;

/* >>attach */

/* Is the instance open, in this process? Errors: ARGUMENT; PROCESS (it was forked from the one that has it). */
FRUGAL_API frugal_status frugal_is_usable(const frugal *f, const char *call);
/* May `device` be attached? An attach call asks before it touches the memory of the device. Errors: ARGUMENT,
 * DEVICE, PROCESS. */
FRUGAL_API frugal_status frugal_may_attach(const frugal *f, uint32_t device);
/* Attaches a device made by its own attach call; `ops` is copied. Errors: as frugal_may_attach. */
FRUGAL_API frugal_status frugal_attach(frugal *f, uint32_t device, const frugal_device_ops *ops, void *state);
/* The `state` with which `device` was attached, if all its operations are these; else NULL. Devices of a kind find each
 * other by it. Once the gate of a step has opened for one of them, all have committed the step before. */
FRUGAL_API void *frugal_get_device(const frugal *f, uint32_t device, const frugal_device_ops *ops);
FRUGAL_API const frugal_store *frugal_get_store(const frugal *f); /* NULL: no open instance */
/* Is the device's copy of the row current: by the holder rule, or, of a secondary, by the clocks? The instance must be
 * drained. 0 also if there is no such row, no such device or no open instance. */
FRUGAL_API int frugal_is_current(frugal *f, uint32_t device, uint32_t row);
/* `verify` compares this row now: its weights are looked at on the way, whether they are finite. */
FRUGAL_API void frugal_verified(frugal *f, uint32_t row);
/* Where records.record_of of the device's batch lies. The first call for a batch writes it: to do so for each batch
 * while announcing costs a write at random per key, and only bags and frugal_get_records read it. Within `announced`,
 * or by the device's trainer between lookup and update, or within these. NULL: no such device, or no open instance. */
FRUGAL_API const uint32_t *frugal_record_of(frugal *f, uint32_t device, uint64_t step);
/* Counts the hits and misses of a first lookup. Counts nothing without an open instance, or such a device in it. */
FRUGAL_API void frugal_count_hits(frugal *f, uint32_t device, uint64_t hits, uint64_t misses);
/* Says how many of these lie in one table; called once for each table of the step that the batch has rows of. A device
 * that never calls it has no hits by table in frugal_write_metrics. */
FRUGAL_API void frugal_count_table_hits(frugal *f, uint32_t device, uint32_t table, uint64_t hits, uint64_t misses);
/* Counts what crosses between the device and host memory; `way` as the index of frugal_traffic. A device that never
 * calls it has no link in frugal_write_metrics. */
FRUGAL_API void frugal_count_link(frugal *f, uint32_t device, uint32_t way, uint64_t rows, uint64_t bytes);
/* Counts for the statistics: updates that were kept, and rows that were written back; and says of how many rows the
 * device keeps updates now. Within operations of a device that keeps; if it has `poll`, only within that, before it
 * says that the step is done. */
FRUGAL_API void frugal_count_kept(frugal *f, uint32_t device, uint64_t kept, uint64_t written_back, uint64_t now);
/* From the next announcement on, frugal_step.worth is there. An attach call asks for it if its cache goes by it. Any
 * thread. Errors: ARGUMENT, MEMORY. */
FRUGAL_API frugal_status frugal_begin_counting(frugal *f);
/* What may `sorts` of a device that is to be attached return: 0, in a process that has joined, or with machines; 2, if
 * it is the one device and updates in place; else 1. */
FRUGAL_API int frugal_may_sort(const frugal *f);
/* May the attached device be given batches by frugal_announce_there? */
FRUGAL_API int frugal_sorts(frugal *f, uint32_t device);
/* Announces a batch whose keys lie where the device reaches them; it is one that sorts. `stream`: of frugal_unsorted.
 * Errors: as frugal_announce; KEY only of an earlier batch. */
FRUGAL_API frugal_status frugal_announce_there(frugal *f, uint32_t device, uint64_t step, const frugal_batch *batch,
                                               void *stream);
/* What a copy of the row is worth now; 0 also if nothing is counted, without an open instance, or such a row in it. */
FRUGAL_API uint8_t frugal_worth(frugal *f, uint32_t row);

/* >>pieces - work of a device that several threads do */

/* Pieces of the device's work are done by `threads` threads, the calling one among them; 0: as many as there are
 * processors that the attaching thread may use, divided among the devices. An attach call asks for them, before
 * frugal_attach. They are threads of our own, and end with frugal_close. Errors: DEVICE (it is
 * attached), LIMIT, MEMORY. */
FRUGAL_API frugal_status frugal_use_threads(frugal *f, uint32_t device, uint32_t threads);
/* In how many pieces work that moves so many bytes is worth cutting: 1 if the other threads would come too late. */
FRUGAL_API uint32_t frugal_pieces(const frugal *f, uint32_t device, uint64_t bytes);
/* Calls work(argument, phase, piece) for each piece of each phase, on the calling thread and on the device's other
 * threads. All pieces of a phase have returned before one of the next begins, and all of them when this returns. */
FRUGAL_API void frugal_run_pieces(frugal *f, uint32_t device, uint32_t phases, uint32_t pieces,
                                  void (*work)(void *argument, uint32_t phase, uint32_t piece), void *argument);

/* >>gates */

/* A word with the number of gates that are open, counted from step 0. It is compared by distance: the gate of a step is
 * open if (int64_t)(number - step) > 0. Only frugal_cancel lowers it. A thread or a kernel that finds the gate of a
 * step open in this word has acquired what frugal_lookup waits for. NULL: no open instance. */
FRUGAL_API const uint64_t *frugal_gates(const frugal *f);
/* If the word exceeds the step by more than this, gates were forced open, because the instance is stopped or closed, or
 * a device is lost. Work that finds this may read anything. It must write no records from then on, because the block
 * may hold records that are still to be flushed. It goes on and counts its steps, which nobody commits. */
#define FRUGAL_GATES_FORCED (UINT64_C(1) << 61)

/* >>memory */

typedef enum {
    FRUGAL_MEMORY_TABLE,   /* weights, and the state if it lies behind them */
    FRUGAL_MEMORY_STATE,   /* the state, if it lies elsewhere */
    FRUGAL_MEMORY_BLOCKS,  /* a device's staging ring */
    FRUGAL_MEMORY_BATCHES, /* a device's announced batches */
    FRUGAL_MEMORY_ALONE,   /* the bits of frugal_step.alone, and the rows of `recall`, of all devices */
    FRUGAL_MEMORY_GATES,   /* the word of frugal_gates */
    FRUGAL_MEMORY_GUESTS   /* where rows of other machines arrive for a device, and frugal_step.guest_at */
} frugal_memory_kind;
typedef struct frugal_memory {
    void *start;
    size_t bytes;  /* 0: there is none, or no such device, or no open instance */
    int read_only; /* 1: this process has joined, and has mapped it so; its devices do not write there */
} frugal_memory;
/* Memory that a device must reach, and may pin or map. The instance's own memory has whole pages. */
FRUGAL_API frugal_memory frugal_get_memory(const frugal *f, uint32_t device, frugal_memory_kind kind);
/* Memory from the instance's allocator, zeroed; NULL if there is none. Both calls accept `f` NULL, and frugal_free
 * accepts `memory` NULL. */
FRUGAL_API void *frugal_allocate(frugal *f, size_t bytes, size_t alignment);
FRUGAL_API void frugal_free(frugal *f, void *memory, size_t bytes);
/* Moves memory of the instance, in whole pages, to a node of the machine, before the device pins it; `node` -1: not
 * known. 1: it lies there, as far as there is room. 0: the machine has one node, the process has a memory policy of its
 * own, or frugal_desc.allocate gave the memory; or the system refuses, which is told. */
FRUGAL_API int frugal_move_memory(frugal *f, frugal_memory memory, int node);
/* A device could not unpin what it has pinned. From now on the instance gives back no whole pages, nor a block that
 * frugal_desc.allocate gave: if other memory came to lie there, a GPU would reach the pages of before in its place. */
FRUGAL_API void frugal_leave_pages(frugal *f);
/* Sets frugal_message for this thread and returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
FRUGAL_API frugal_status
frugal_fail(frugal_status status, const char *format, ...);
/* Tells the caller what no call fails for (frugal_desc.notice). Not within operations that other threads call. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
FRUGAL_API void
frugal_tell(frugal *f, const char *format, ...);

/* >>rows */

/* Below, `stride` is the number of elements from row to row of the array before it, or from gradient to gradient. An
 * array is of floats, unless its type is said.
 *
 * Copies each unique row of the batch from the host table: to rows[n][dim] of type `as` by position, or, if `rows` is
 * NULL, into the block by record. */
FRUGAL_API void frugal_gather(const frugal_store *store, const frugal_records *records, void *rows, uint64_t stride,
                              frugal_type as);
/* n elements of one type as those of another: to 16 bits they are rounded to the nearest. */
FRUGAL_API void frugal_convert(void *to, frugal_type to_as, const void *from, frugal_type from_as, uint64_t n);
/* One optimizer step on row `row`, or a copy of it: weights[dim] of store->rows_as, state[state_floats], gradient[dim]
 * summed over devices; hyper[n_groups] as in frugal_step. */
FRUGAL_API void frugal_apply(const frugal_store *store, const frugal_hyper *hyper, uint32_t row, void *weights,
                             float *state, const float *gradient);
/* sum[dim] = the sum of the n > 0 rows grads[order[0]], ... grads[order[n - 1]] of dim floats, in blocks of 32. */
FRUGAL_API void frugal_sum_positions(float *sum, const float *grads, uint64_t stride, uint32_t dim,
                                     const uint32_t *order, uint32_t n);
/* The same for every record of a batch: grads[n][dim] by position into records->block. */
FRUGAL_API void frugal_sum_gradients(const frugal_records *records, const float *grads, uint64_t stride, uint32_t dim);
/* The update of the unique rows from `from` to `end` of a batch, by its device. If `grads` is not NULL their gradients,
 * of step->as, step->stride elements apart, are summed: by position, or, if the step has bags, by bag as for
 * frugal_sum_bags; if it is NULL the records are written already. A row whose bit in step->alone is set gets one
 * optimizer step, in host memory, and its record is left undefined if one position brings its gradient; of any other
 * row the record is written. */
FRUGAL_API void frugal_update_rows(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of,
                                   const void *grads, uint32_t from, uint32_t end);
/* The sum of squares of the gradients of all unique rows, rows of frozen tables left out; arguments as above, and
 * nothing is written. Of each row in 32 lanes of floats, as frugal_rowwise_adagrad says; of the rows in double. */
FRUGAL_API double frugal_sum_row_squares(const frugal_store *store, const frugal_step *step, const uint32_t *bag_of,
                                         const void *grads);
/* Pools the rows in records->block, which are by record, into pooled[n_bags][dim] of type `as`. The caller has checked
 * the offsets; bags->stride is not used. */
FRUGAL_API void frugal_pool(const frugal_records *records, const frugal_bags *bags, uint32_t dim, void *pooled,
                            uint64_t stride, frugal_type as);
/* As frugal_sum_gradients, from gradients by bag, grads[n_bags][dim]. bag_of[n]: position -> bag. */
FRUGAL_API void frugal_sum_bags(const frugal_records *records, const frugal_bags *bags, const uint32_t *bag_of,
                                const float *grads, uint64_t stride, uint32_t dim);

#ifdef __cplusplus
}
#endif
#endif /* FRUGAL_DEVICE_H */
