/* test_peer_races.c - what went wrong in other embedding libraries, as tests: each case is named after what happened
 * there, says how, and goes through the calls that would show it here. Every looked-up row, and the table
 * and its optimizer state after the drain, are compared bit by bit with sequential training (rig.h).
 *
 * The random counterpart is test_property.c; here the situations are made, not met by chance. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/rig.h"
#include "tests/seed.h"
#define FRUGAL_P2F_IMPLEMENTATION_ELSEWHERE
#include "tests/stress/p2f_world.h"

/* Who applies updates: whoever closes a step, at once; nobody until a gate demands it; one worker; two. */
static const struct {
    uint32_t workers;
    int defer;
} flushers[] = {{0, 0}, {0, 1}, {1, 0}, {2, 0}};
enum { FLUSHERS = 4, LATE = 1 };

/* The rig's settings, flushed by `flusher`; a hang is an error soon. */
static frugal_desc peer_desc(int flusher) {
    frugal_desc d = rig_desc();
    d.workers = flushers[flusher].workers, d.defer = flushers[flusher].defer;
    d.optimizer.kind = rig_optimizers[flusher];
    d.stuck_seconds = 30;
    return d;
}

/* Step `t` on all devices that have not announced it yet. */
static void announce_all(rig *r, uint64_t t) {
    for (uint32_t i = 0; i < r->desc.devices; i++) {
        uint32_t d = (uint32_t)((t + i) % r->desc.devices);
        if (r->announced[d] == t) rig_announce(r, d);
    }
}

/* Trains as the peers' pipelines do: while a batch is in use, between its lookup and its update, the next L batches are
 * announced; looking up again then finds the same. Devices announce and update in another order each step. */
static void train_pipelined(rig *r, int steps) {
    uint32_t devices = r->desc.devices;
    while (steps-- > 0) {
        announce_all(r, r->step);
        for (uint32_t d = 0; d < devices; d++) rig_lookup(r, d);
        for (uint64_t t = r->step + 1; t <= r->step + r->desc.lookahead; t++) announce_all(r, t);
        for (uint32_t d = 0; d < devices; d++) rig_lookup(r, d);
        for (uint32_t i = 0; i < devices; i++) rig_update(r, (uint32_t)((r->step + i) % devices));
        rig_judge(r, 0);
    }
}

/* The same, returning the hits and misses that `steps` took. */
static frugal_stats train_and_count(rig *r, int steps) {
    frugal_stats before, after;
    frugal_get_stats(r->f, &before);
    train_pipelined(r, steps);
    frugal_get_stats(r->f, &after);
    after.hits -= before.hits, after.misses -= before.misses;
    return after;
}

/* A batch of rows of table 0 alone. */
static void only_rows(rig_batch *b, uint32_t n) {
    b->n = b->split = n;
}

/* >>caches */

/* Of 20 rows a device: 12 through a cache of 8 places, and in every other step 6 of those, some of which hit. */
static void more_rows_than_places(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    only_rows(b, step % 2 ? 6 : 12);
    for (uint32_t i = 0; i < b->n; i++) b->keys[i] = (device * 20 + (step / 2 * 3 + (step % 2 ? 6 + i : i)) % 20) % 40;
    if (r->desc.devices > 1 && step % 5 == 0) b->keys[0] = 7; /* met by all devices now and then */
}

/* pytorch/FBGEMM#1201, #1883: rows were brought into the cache for a later batch while an earlier one was between its
 * forward and its backward pass; they took the places of rows in use, so that the forward pass read, and the backward
 * pass updated, other rows' copies. Here the batches ahead are announced at just that moment, and the batch itself has
 * more rows than the cache has places: its own later rows push out earlier ones before it is updated. */
static void a_prefetch_that_evicts_a_row_still_in_use(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS * FRUGAL_OPTIMIZER_KINDS; k++) {
        rig r = {.change = more_rows_than_places,
                 .cache = {.cache_rows = 8, .policy = (frugal_cache_policy)(k / 4 % 2)}};
        frugal_desc d = peer_desc(k % 4);
        d.devices = 1 + (uint32_t)k / 8;
        rig_open(&r, &d);
        frugal_stats s = train_and_count(&r, 60);
        assert_true(s.hits > 0);                        /* copies were read, */
        assert_true(s.misses > 20ull * r.desc.devices); /* and pushed out: a device has 20 rows */
        rig_finish(&r, 7);
    }
}

/* A row that comes once and not again for long, so that its update waits for its staging block to be needed. */
static void rows_that_do_not_come_back(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    only_rows(b, 4);
    for (uint32_t i = 0; i < 4; i++) b->keys[i] = (step * 5 + device * 2 + i) % 40;
}

/* The same fault, in records instead of copies: what a later batch writes must not lie where an earlier one's is still
 * in use. Here that is the staging ring: S steps later its block is written again. */
static void a_later_batch_that_overwrites_records_still_in_use(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS * 6; k++) {
        rig r = {.change = rows_that_do_not_come_back};
        frugal_desc d = peer_desc(k % 4);
        d.lookahead = (uint32_t)k / 4 % 2 * 3, d.staging = 1 + (uint32_t)k / 8 * 2;
        rig_open(&r, &d);
        train_pipelined(&r, 50);
        rig_finish(&r, 0);
    }
}

/* Row 0 in every step; every third step with 16 more, which push it out of the cache within the one lookup. */
static void a_row_pushed_out_by_its_own_batch(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r, (void)device;
    only_rows(b, step % 3 == 0 ? 17 : 1);
    for (uint32_t i = 0; i < b->n; i++) b->keys[i] = i;
}

/* pytorch/FBGEMM#1893: a row that is not in the cache in batch i is updated in host memory; when the lookup of i + 1
 * puts it into the cache before that update has arrived, the copy is the old row, and the update of i is lost to
 * whoever reads the copy. Here: in every third step row 0 is pushed out between lookup and update, the next step
 * inserts it anew (a miss), and the step after reads the copy (a hit). */
static void a_row_missed_in_batch_i_and_cached_in_the_next_that_loses_the_update_of_i(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS * 2; k++) {
        rig r = {.change = a_row_pushed_out_by_its_own_batch, .cache = {.cache_rows = 8, .policy = FRUGAL_CACHE_LRU}};
        frugal_desc d = peer_desc(k % 4);
        d.devices = 1, d.lookahead = (uint32_t)k / 4 * 2;
        rig_open(&r, &d);
        for (int i = 0; i < 20; i++) {
            train_pipelined(&r, 1);
            frugal_stats s = train_and_count(&r, 1);
            assert_true(s.hits == 0 && s.misses == 1);
            s = train_and_count(&r, 1);
            assert_true(s.hits == 1 && s.misses == 0);
        }
        rig_finish(&r, 1);
    }
}

/* Device 0, device 1, device 0, device 0 have row 3, the other nothing. */
static void a_row_that_changes_hands(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    only_rows(b, (step % 4 == 1) == device);
    b->keys[0] = 3;
}

/* The second half of the same: a copy that was right until another device updated the row. It may not be read when the
 * row comes back, nor later, when the row counts as this device's again. */
static void a_copy_that_another_device_made_stale_and_that_counts_again(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS * 2; k++) {
        rig r = {.change = a_row_that_changes_hands, .cache = {.cache_rows = 8}};
        frugal_desc d = peer_desc(k % 4);
        d.lookahead = (uint32_t)k / 4 * 2;
        rig_open(&r, &d);
        for (int i = 0; i < 20; i++) {
            assert_true(train_and_count(&r, 1).hits == (i > 0)); /* device 0 has had it for three steps */
            assert_true(train_and_count(&r, 1).hits == 0);
            assert_true(train_and_count(&r, 1).hits == 0);
            assert_true(train_and_count(&r, 1).hits == 1);
        }
        rig_finish(&r, 3);
    }
}

/* >>keys */

/* 1 to 100 times the same key, and others between; 31, 32, 33, 64, 65 and 96 among the counts. */
static void one_key_many_times(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    uint32_t copies = 1 + (uint32_t)(step + device) % 100;
    (void)r;
    b->n = 0;
    for (uint32_t i = 0; i < copies; i++) {
        if (i % 7 == 5) b->keys[b->n++] = 6 + i % 3;
        b->keys[b->n++] = 5;
    }
    b->split = b->n;
}

/* Gradients of equal keys are lost where each position stores its own, and no two runs agree where threads add them in
 * the order in which they come. pytorch/FBGEMM#1883 had to count a place once a batch, however often its row was
 * named. */
static void duplicates_in_one_batch(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS; k++) {
        rig r = {.change = one_key_many_times, .cache = {.cache_rows = 16}};
        frugal_desc d = peer_desc(k);
        d.max_keys = RIG_MOST_KEYS;
        rig_open(&r, &d);
        train_pipelined(&r, 110);
        frugal_stats s;
        frugal_get_stats(r.f, &s);
        assert_true(s.unique_rows < s.keys / 10);
        rig_finish(&r, 0);
    }
}

static void one_key(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r, (void)device, (void)step;
    only_rows(b, 1);
    b->keys[0] = 11;
}

/* One hot row, updated by every device in every step: the sum must not depend on who comes first, nor take a device's
 * gradient twice or not at all. Devices commit in another order each step; they are summed in one. No copy may be read,
 * except where there is one device. */
static void the_same_key_from_all_devices_at_every_step(void **state) {
    (void)state;
    for (uint32_t devices = 1; devices <= RIG_DEVICES; devices++)
        for (int k = 0; k < FLUSHERS; k++) {
            rig r = {.change = one_key, .cache = {.cache_rows = 8}};
            frugal_desc d = peer_desc(k);
            d.devices = devices;
            if (devices == 3) d.reduce = FRUGAL_MEAN;
            rig_open(&r, &d);
            frugal_stats s = train_and_count(&r, 100);
            assert_true(s.hits == (devices == 1 ? 99 : 0));
            assert_true(s.hits + s.misses == 100ull * devices);
            rig_finish(&r, 0);
        }
}

/* Device 0 trains rows 0, 4, 8, ... 36 of table 0; device 1 reads rows 2, 6, ... 38 and brings no gradients. */
static void a_quarter_of_the_rows(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    only_rows(b, 5);
    for (uint32_t i = 0; i < 5; i++) b->keys[i] = (step * 5 + i) % 10 * 4 + device * 2;
    b->brings = device == 0;
}

/* An update is not sparse where weight decay and momentum reach rows that no batch has named, or row 0 for want of a
 * key. Rows that are never named, rows that are read and get no gradients, and a table that no batch names, keep every
 * bit, state included. */
static void a_table_row_that_is_never_touched(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS * FRUGAL_OPTIMIZER_KINDS; k++) {
        rig r = {.change = a_quarter_of_the_rows, .cache = {.cache_rows = 30}};
        frugal_desc d = peer_desc(k % 4);
        d.optimizer = (frugal_optimizer){.weight_decay = 0.25f, .initial_accumulator = 0.5f};
        d.optimizer.kind = rig_optimizers[k / FLUSHERS];
        rig_open(&r, &d);
        float weights[60 * 5], states[60 * 10 + 1], first[60 * 5], first_states[60 * 10 + 1];
        rig_read(&r, first, first_states);
        train_pipelined(&r, 30);
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        rig_read(&r, weights, states);
        for (size_t row = 0, n = r.ref.state_floats; row < 60; row++) {
            int trained = row < 40 && row % 4 == 0;
            assert_int_equal(trained, memcmp(weights + row * 5, first + row * 5, 20) != 0);
            if (n) assert_int_equal(trained, memcmp(states + row * n, first_states + row * n, 4 * n) != 0);
        }
        rig_finish(&r, 1);
    }
}

/* pytorch/FBGEMM#6215: a bounds check let the key through that equals the number of rows. In the last table that read
 * past its end; in any other it was row 0 of the next table, served and trained without a word. */
static void a_key_equal_to_the_number_of_rows_that_reaches_the_next_table(void **state) {
    (void)state;
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t at = 0; at < 3; at++) {
            rig r = {.cache = {.cache_rows = 30}};
            frugal_desc d = peer_desc((int)at);
            rig_open(&r, &d);
            train_pipelined(&r, 5);
            uint64_t keys[3] = {1, 2, 3}, rows = r.desc.tables[t].rows;
            float values[15] = {0};
            keys[at] = rows;
            frugal_keys segments[2] = {{.table = t, .keys = keys, .n = 3},
                                       {.table = 1 - t, .keys = (uint64_t[]){0}, .n = 1}};
            frugal_batch batch = {segments, 2, 0};
            for (uint32_t device = 0; device < 2; device++) {
                uint64_t step = r.announced[device]; /* keys are checked before the step is */
                assert_int_equal(FRUGAL_ERR_KEY, frugal_announce(r.f, device, step, &batch));
                assert_int_equal(FRUGAL_ERR_KEY, frugal_try_announce(r.f, device, step, &batch));
            }
            assert_int_equal(FRUGAL_ERR_KEY, frugal_read_rows(r.f, segments, values, NULL));
            assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, r.step));
            r.announced[0] = r.announced[1] = r.step;
            assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
            assert_int_equal(FRUGAL_ERR_KEY, frugal_write_rows(r.f, segments, values, NULL));
            assert_int_equal(FRUGAL_ERR_KEY, frugal_preload(r.f, 0, segments));
            rig_compare(&r);
            keys[at] = rows - 1; /* the last row is one */
            assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, segments, values, NULL));
            rig_finish(&r, 5);
        }
}

/* >>empty batches */

/* Four steps with keys, then 76 without: more than there are slots, so that updates wait and the rings go round. */
static void nothing_for_long(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r, (void)device;
    if (step % 80 >= 4) only_rows(b, 0);
}

/* A batch without keys is not no batch: its step has to be planned, closed and counted like any other, and what waits
 * from before has to be flushed in time all the same. */
static void zero_keys_in_a_step(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS * 2; k++) {
        rig r = {.change = nothing_for_long, .cache = {.cache_rows = 30}};
        frugal_desc d = peer_desc(k % 4);
        d.lookahead = k < FLUSHERS ? 0 : 15, d.staging = k < FLUSHERS ? 1 : 48;
        rig_open(&r, &d);
        train_pipelined(&r, 170);
        frugal_stats s;
        frugal_get_stats(r.f, &s);
        assert_true(s.keys == 12ull * 2 * RIG_KEYS); /* of twelve steps; the others had none */
        rig_finish(&r, 0);
    }
}

/* One device has keys, for five steps; then the next. */
static void one_at_a_time(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    if (device != step / 5 % r->desc.devices) only_rows(b, 0);
}
static void the_first_alone(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r, (void)step;
    if (device != 0) only_rows(b, 0);
}
static void the_last_alone(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)step;
    if (device + 1 != r->desc.devices) only_rows(b, 0);
}

/* Input is dealt unevenly, or runs out on one device first: the one with keys must not wait for the others' for ever,
 * nor may those without train their last batch once more. */
static void one_device_with_keys_and_the_others_without(void **state) {
    (void)state;
    void (*const changes[])(const rig *, uint32_t, uint64_t, rig_batch *) = {one_at_a_time, the_first_alone,
                                                                             the_last_alone};
    for (uint32_t devices = 2; devices <= RIG_DEVICES; devices++)
        for (int k = 0; k < FLUSHERS * 3; k++) {
            rig r = {.change = changes[k / 4], .cache = {.cache_rows = 30}};
            frugal_desc d = peer_desc(k % 4);
            d.devices = devices;
            rig_open(&r, &d);
            frugal_stats s = train_and_count(&r, 60);
            assert_true(s.hits > 0); /* nobody else has touched the rows */
            rig_finish(&r, 1);
        }
}

/* >>rows */

/* rapidsai/wholegraph#108: the optimizer's kernel gave a lane an element of the row, and did what nobody has defined
 * where the row was no multiple of 32 floats. Here every dim, in a matrix of the caller's whose rows follow each other
 * without a gap: one float too many is the next row's, or the guard's. */
static void dims_that_are_not_a_multiple_of_32_or_of_4(void **state) {
    (void)state;
    enum { MOST = 130, GUARD = 32 };
    for (uint32_t dim = 1; dim <= MOST; dim += test_rounds(1) ? 1 : 3)
        for (int i = 0; i < FRUGAL_OPTIMIZER_KINDS; i++) {
            uint64_t floats = frugal_state_floats(rig_optimizers[i], dim), guards[] = {60 * dim, 60 * floats};
            float *matrices[2] = {malloc(4 * (60 * dim + GUARD)), malloc(4 * (60 * floats + GUARD))};
            rig r = {.cache = {.cache_rows = 16}};
            frugal_desc d = peer_desc((int)(dim + (uint32_t)i) % FLUSHERS);
            d.dim = dim, d.optimizer.kind = rig_optimizers[i];
            d.weights = matrices[0], d.weights_stride = dim;
            if (floats) d.state = matrices[1], d.state_stride = floats;
            if (dim % 2) d.optimizer.weight_decay = 0.03f, d.reduce = FRUGAL_MEAN;
            for (int m = 0; m < 2; m++) memset(matrices[m], 0, 4 * (guards[m] + GUARD));
            for (int m = 0; m < 2; m++)
                for (uint32_t g = 0; g < GUARD; g++) matrices[m][guards[m] + g] = 77;
            rig_open(&r, &d);
            train_pipelined(&r, 3);
            rig_finish(&r, 0);
            for (int m = 0; m < 2; m++)
                for (uint32_t g = 0; g < GUARD; g++) assert_true(matrices[m][guards[m] + g] == 77);
            free(matrices[0]), free(matrices[1]);
        }
}

/* A schedule changes the learning rate each step: an update that waits is applied with the rate of its own step, not of
 * the day on which it is flushed. */
static void a_learning_rate_that_changes_every_step(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS * FRUGAL_OPTIMIZER_KINDS; k++) {
        rig r = {.change = rows_that_do_not_come_back, .cache = {.cache_rows = 16}};
        frugal_desc d = peer_desc(k % 4);
        uint32_t waiting = 0;
        d.lookahead = 1, d.staging = 40, d.optimizer.kind = rig_optimizers[k / FLUSHERS];
        rig_open(&r, &d);
        for (int s = 0; s < 100; s++) {
            frugal_stats stats;
            r.lr = s % 9 == 8 ? 0 : 1.0f / (float)(s + 1);
            train_pipelined(&r, 1);
            frugal_get_stats(r.f, &stats);
            if (stats.staging_in_use > waiting) waiting = stats.staging_in_use;
        }
        if (k % 4 == LATE) assert_true(waiting >= 7); /* a row comes back after 8 steps: before the block's 40 */
        rig_finish(&r, 0);
    }
}

/* >>loaders */

typedef struct loader { /* a thread that announces the batches of one device */
    pthread_t thread;
    rig *r;
    uint32_t device, steps;
    int late;
    atomic_uint announced;
    atomic_int failed;
} loader;

/* Always late: no batch is announced before the trainer waits for it in its lookup. */
static void wait_for_a_waiting_trainer(const loader *l, uint32_t step) {
    frugal_stats s;
    do {
        sched_yield();
        frugal_get_stats(l->r->f, &s);
    } while (s.gate_waits <= step);
}

static void *load(void *argument) {
    loader *l = argument;
    for (uint32_t s = 0; s < l->steps; s++) {
        if (l->late) wait_for_a_waiting_trainer(l, s);
        if (rig_try_announce(l->r, l->device) != FRUGAL_OK) {
            atomic_store(&l->failed, 1);
            frugal_stop(l->r->f); /* the trainer is told */
            return NULL;
        }
        atomic_store(&l->announced, s + 1);
    }
    return NULL;
}

static void start_loaders(rig *r, loader *loaders, uint32_t steps, int late) {
    for (uint32_t d = 0; d < r->desc.devices; d++) {
        loaders[d] = (loader){.r = r, .device = d, .steps = steps, .late = late};
        assert_int_equal(0, pthread_create(&loaders[d].thread, NULL, load, &loaders[d]));
    }
}

/* Waits, helping, until all loaders are L steps ahead of the step at hand, or at the end. */
static void wait_far_ahead(rig *r, loader *loaders, uint32_t steps) {
    uint64_t to = r->step + r->desc.lookahead + 1;
    for (uint32_t d = 0; d < r->desc.devices; d++)
        while (atomic_load(&loaders[d].announced) < (to < steps ? to : steps) && !atomic_load(&loaders[d].failed))
            if (!frugal_help(r->f)) sched_yield();
}

static void train_beside_loaders(int flusher, uint32_t devices, uint32_t lookahead, int late) {
    const uint32_t steps = (uint32_t)test_rounds(300);
    loader loaders[RIG_DEVICES];
    rig r = {.cache = {.cache_rows = 20}};
    frugal_desc d = peer_desc(flusher);
    frugal_stats s;
    d.devices = devices, d.lookahead = lookahead;
    rig_open(&r, &d);
    start_loaders(&r, loaders, steps, late);
    while (r.step < steps) {
        if (!late) wait_far_ahead(&r, loaders, steps);
        for (uint32_t i = 0; i < devices; i++) rig_lookup(&r, i);
        for (uint32_t i = 0; i < devices; i++) rig_update(&r, i);
        rig_judge(&r, 0);
    }
    for (uint32_t i = 0; i < devices; i++) {
        assert_int_equal(0, pthread_join(loaders[i].thread, NULL));
        assert_false(atomic_load(&loaders[i].failed));
    }
    frugal_get_stats(r.f, &s);
    if (late) assert_int_equal(steps, s.gate_waits); /* each step waited for its batch, once */
    rig_finish(&r, 0);
}

/* A loader that may run as far ahead as there is room must not overwrite batches that are not trained yet. */
static void a_loader_far_ahead(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS; k++)
        for (uint32_t lookahead = 1; lookahead <= 15; lookahead += 7)
            train_beside_loaders(k, 1 + lookahead % 3, lookahead, 0);
}

/* A batch that arrives after its step has begun: its rows must not be older than the step before, and it must not be
 * the batch of the step before once more. Here lookup waits for the loader in every step. */
static void a_loader_always_late(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS; k++)
        for (uint32_t lookahead = 0; lookahead <= 15; lookahead += 5)
            train_beside_loaders(k, 1 + lookahead % 3, lookahead, 1);
}

/* >>long runs: counters, rings and pages after many turns */

static void up_to_three_keys(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    only_rows(b, (uint32_t)(test_mix2(step, device) % 4));
}

static void train_long(frugal_desc d, uint32_t steps) {
    rig r = {.change = up_to_three_keys, .cache = {.cache_rows = 8}};
    frugal_stats s;
    d.max_keys = RIG_KEYS; /* of the rig's own; three are used */
    rig_open(&r, &d);
    train_pipelined(&r, (int)steps);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    frugal_get_stats(r.f, &s);
    assert_int_equal(steps, s.steps);
    rig_finish(&r, 0);
}

/* What shows only after many turns: a counter that drifts, a page lost a thousand steps, a tag that comes round. L = 0
 * and S = 1 are the least there is: every step waits for the one before. */
static void a_hundred_thousand_steps_with_the_smallest_rings(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS; k++) {
        frugal_desc d = peer_desc(k);
        d.dim = 1, d.devices = k == LATE ? 2 : 1, d.lookahead = 0, d.staging = 1;
        d.tables = (frugal_table[]){{.rows = 4, .init = FRUGAL_INIT_UNIFORM, .low = -1, .high = 1}}, d.n_tables = 1;
        train_long(d, test_rounds(100000));
    }
}

static void ten_thousand_steps_with_the_largest_rings(void **state) {
    (void)state;
    for (int k = 0; k < FLUSHERS; k++) {
        frugal_desc d = peer_desc(k);
        d.dim = 2, d.lookahead = 15, d.staging = 48;
        train_long(d, test_rounds(10000));
    }
}

static void *run_worker(void *w) {
    world_worker(w);
    return NULL;
}

/* The state machine alone, with a worker thread beside the device or without. */
static void run_world(world_desc desc) {
    pthread_t worker;
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, world_bytes(&desc));
    assert_non_null(memory);
    memset(memory, 0, world_bytes(&desc));
    world *w = world_make(memory, &desc);
    if (desc.workers) assert_int_equal(0, pthread_create(&worker, NULL, run_worker, w));
    world_device(w, 0);
    if (desc.workers) assert_int_equal(0, pthread_join(worker, NULL));
    assert_true(world_finish(w));
    free(memory);
}

static void a_hundred_thousand_steps_of_the_state_machine_alone(void **state) {
    (void)state;
    world_desc smallest = {
        .devices = 1, .rows = 3, .max_rows = 2, .steps = test_rounds(100000), .staging = 1, .seed = 1};
    world_desc largest = {.devices = 1, .rows = 9, .max_rows = 3, .steps = test_rounds(10000), .seed = 2};
    largest.lookahead = 15, largest.staging = 48;
    for (uint32_t workers = 0; workers <= 1; workers++) {
        smallest.workers = largest.workers = workers;
        run_world(smallest);
        run_world(largest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefetch_that_evicts_a_row_still_in_use),
        cmocka_unit_test(a_later_batch_that_overwrites_records_still_in_use),
        cmocka_unit_test(a_row_missed_in_batch_i_and_cached_in_the_next_that_loses_the_update_of_i),
        cmocka_unit_test(a_copy_that_another_device_made_stale_and_that_counts_again),
        cmocka_unit_test(duplicates_in_one_batch),
        cmocka_unit_test(the_same_key_from_all_devices_at_every_step),
        cmocka_unit_test(a_table_row_that_is_never_touched),
        cmocka_unit_test(a_key_equal_to_the_number_of_rows_that_reaches_the_next_table),
        cmocka_unit_test(zero_keys_in_a_step),
        cmocka_unit_test(one_device_with_keys_and_the_others_without),
        cmocka_unit_test(dims_that_are_not_a_multiple_of_32_or_of_4),
        cmocka_unit_test(a_learning_rate_that_changes_every_step),
        cmocka_unit_test(a_loader_far_ahead),
        cmocka_unit_test(a_loader_always_late),
        cmocka_unit_test(a_hundred_thousand_steps_with_the_smallest_rings),
        cmocka_unit_test(ten_thousand_steps_with_the_largest_rings),
        cmocka_unit_test(a_hundred_thousand_steps_of_the_state_machine_alone),
    };
    alarm(500); /* a hang is a failure */
    return cmocka_run_group_tests_name("test_peer_races", tests, NULL, NULL);
}
