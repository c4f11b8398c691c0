/* caches.h - which rows a cache keeps, and that its copies are exact */
#ifndef CASES_CACHES_H
#define CASES_CACHES_H

#include "world.h"

static world cached(uint64_t rows, frugal_cache_policy policy) { /* one device, one key a step */
    world w = world_of(1);
    w.table.rows = 400;
    w.places[0].cache_rows = rows, w.places[0].policy = policy;
    return w;
}

static uint64_t hits_of(world *w) {
    frugal_stats stats;
    check(w);
    frugal_get_stats(w->f, &stats);
    return stats.hits;
}

static void steps_modulo(const world *w, uint32_t device, uint64_t step, batch *b) { /* a row a step, in turn */
    (void)device;
    b->n = 1, b->brings = 1, b->read_only = 0;
    b->rows[0] = (uint32_t)(step % w->keys);
}

static uint64_t gpu_bytes_of(const world *like, uint64_t cache_rows) {
    world w = *like;
    frugal_cuda_info info;
    w.places[0].cache_rows = cache_rows;
    open_world(&w);
    assert_works(frugal_cuda_get_info(w.f, 0, &info));
    close_world(&w);
    return info.bytes;
}

/* The GPU's memory by cached row is what frugal_cuda.h says: of 16 bits half of that of floats, beside the state. */
static void test_cached_bytes(void **state) {
    (void)state;
    static const uint32_t some[] = {64, 10, 5};
    for (uint32_t i = 0; i < 12; i++) {
        world w = world_of(1);
        w.desc.dim = some[i % 3], w.desc.rows_as = i / 3 % 2 ? FRUGAL_BF16 : FRUGAL_FP32, w.desc.rounding = 0;
        w.desc.optimizer.kind = i / 6 ? FRUGAL_ADAGRAD : FRUGAL_SGD;
        uint64_t d = (w.desc.dim + 3) / 4 * 4, weights = i / 3 % 2 ? (2 * d + 15) / 16 * 16 : 4 * d;
        uint64_t wanted = 8 + weights + (i / 6 ? 4 * d : 0);
        assert_int_equal((int)(64 * wanted), (int)(gpu_bytes_of(&w, 128) - gpu_bytes_of(&w, 64)));
    }
}

/* One set: 8 rows in turn all stay under LRU, 9 in turn never do. */
static void test_lru(void **state) {
    (void)state;
    for (uint32_t rows = 8; rows <= 9; rows++) {
        world w = cached(8, FRUGAL_CACHE_LRU);
        w.make = steps_modulo, w.keys = rows;
        open_world(&w);
        run(&w, 36);
        assert_int_equal(rows == 8 ? 28 : 0, (int)hits_of(&w));
        close_world(&w);
    }
}

/* One set, full of rows that are worth much but for one: another row comes in only if it is worth more than that. */
static void one_of_nine(const world *w, uint32_t device, uint64_t step, batch *b) { /* 8 rows, or the ninth */
    (void)w, (void)device;
    b->n = step % 3 == 2 ? 1 : 8, b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < b->n; i++) b->rows[i] = step % 3 == 2 ? 8 : i;
}

enum { LATE = 7 * 64 }; /* steps in which each count is halved seven times */

static void set_count(world *w, uint64_t row, uint64_t count) {
    assert_works(frugal_set_counts(w->f, &(frugal_keys){.table = 0, .keys = &row, .n = 1}, &count));
}

static void test_counted(void **state) {
    (void)state;
    world w = cached(8, FRUGAL_CACHE_COUNTED);
    w.make = one_of_nine;
    open_world(&w);
    for (uint64_t i = 0; i < 8; i++) set_count(&w, i, i == 3 ? 30 : 100000);
    run(&w, 12); /* the ninth row is touched four times */
    assert_int_equal(7 * 8, (int)hits_of(&w));
    cancel_all(&w);
    set_count(&w, 8, 1000);
    run(&w, 6); /* 8 hits, because a cancel outdates no copy of one device; 8; 0, and row 8 takes the place of row 3;
                   7; 7; 1 */
    assert_int_equal(7 * 8 + 31, (int)hits_of(&w));
    cancel_all(&w);
    set_count(&w, 8, 3); /* also in the cache, where it was worth 500 until now: row 3 takes the place back */
    set_count(&w, 3, 300);
    run(&w, 2);
    assert_int_equal(7 * 8 + 31 + 7 + 8, (int)hits_of(&w));
    assert_works(frugal_verify(w.f));
    finish(&w, 4);
}

/* Nothing for long, then the ninth row twice, then the eight rows. */
static void late_nine(const world *w, uint32_t device, uint64_t step, batch *b) {
    uint64_t at = step % (LATE + 3);
    (void)w, (void)device;
    b->n = at < LATE ? 0 : at < LATE + 2 ? 1 : 8, b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < b->n; i++) b->rows[i] = b->n == 1 ? 8 : i;
}

/* A copy that is preloaded late is as fresh as one that was just touched, and so is one whose count is set. */
static void test_fresh_copies(void **state) {
    (void)state;
    world w = cached(8, FRUGAL_CACHE_COUNTED);
    uint64_t keys[] = {0, 1, 2, 3, 4, 5, 6, 7};
    w.make = late_nine;
    open_world(&w);
    for (int round = 1; round <= 2; round++) {
        run(&w, LATE);
        cancel_all(&w);
        for (uint64_t i = 0; i < 9; i++) set_count(&w, i, i < 8 ? 1000 : 300);
        if (round == 1) assert_works(frugal_preload(w.f, 0, &(frugal_keys){.keys = keys, .n = 8}));
        run(&w, 3);
        cancel_all(&w);
        assert_int_equal(8 * round, (int)hits_of(&w));
    }
    finish(&w, 4);
}

/* Two devices with a cache of one set: row 3 of the first is taken by the second. Its place is given away one step
 * later to a row that is worth less than all others. */
static void one_is_taken(const world *w, uint32_t device, uint64_t step, batch *b) {
    (void)w;
    b->n = 0, b->brings = 1, b->read_only = 0;
    if (device == 0 && step < 2)
        for (uint32_t i = 0; i < 8; i++) b->rows[b->n++] = i;
    if (device == 0 && step >= 2 && step != 4) b->rows[b->n++] = 8;
    if (device == 1 && step == 4) b->rows[b->n++] = 3;
}

static void test_lost(void **state) {
    (void)state;
    world w = world_of(2);
    w.make = one_is_taken;
    w.places[0].cache_rows = 8, w.places[1].cache_rows = 0;
    open_world(&w);
    for (uint64_t i = 0; i < 8; i++) set_count(&w, i, 100000);
    run(&w, 5);
    assert_int_equal(8, (int)hits_of(&w)); /* at step 1; the row that is worth less does not come in */
    run(&w, 1);
    assert_int_equal(8, (int)hits_of(&w));
    run(&w, 1);
    assert_int_equal(9, (int)hits_of(&w));
    assert_works(frugal_verify(w.f));
    finish(&w, 4);
}

static frugal_status try_to_write_some(world *w) {
    uint64_t rows[20];
    float weights[20 * 8], states[20 * 16];
    uint32_t dim = w->ref.dim, floats = w->ref.state_floats;
    for (uint32_t i = 0; i < 20; i++) {
        rows[i] = (w->step + 3 * i) % w->table.rows;
        for (uint32_t e = 0; e < dim; e++)
            w->ref.weights[rows[i] * dim + e] = weights[i * dim + e] = (float)(i + e) * 0.125f;
        for (uint32_t e = 0; e < floats; e++)
            w->ref.state[rows[i] * floats + e] = states[i * floats + e] = (float)(i + e) * 0.5f;
    }
    frugal_keys keys = {.table = 0, .keys = rows, .n = 20};
    return frugal_write_rows(w->f, &keys, weights, states);
}

static void write_some(world *w) {
    assert_works(try_to_write_some(w));
}

/* Preloaded rows stay, others never come. */
static void test_static(void **state) {
    (void)state;
    uint64_t rows[200];
    world w = cached(24, FRUGAL_CACHE_STATIC);
    w.make = steps_modulo, w.keys = 10;
    w.desc.rows_as = FRUGAL_FP32, w.desc.rounding = 0;
    open_world(&w);
    for (int i = 0; i < 200; i++) rows[i] = (uint64_t)(i % 2 ? i / 2 % 5 : 0); /* rows 0 to 4, over and over */
    frugal_keys keys = {.table = 0, .keys = rows, .n = 200};
    assert_works(frugal_preload(w.f, 0, &keys));
    assert_works(frugal_verify(w.f));
    run(&w, 40);
    assert_int_equal(20, (int)hits_of(&w));
    cancel_all(&w);
    for (int i = 0; i < 200; i++) rows[i] = (uint64_t)i + 50; /* far more than fit: what is there stays */
    assert_works(frugal_preload(w.f, 0, &keys));
    assert_works(frugal_preload(w.f, 0, &keys));
    run(&w, 40);
    assert_int_equal(40, (int)hits_of(&w)); /* those in steps that were cancelled, too */
    cancel_all(&w);
    write_some(&w); /* what is there stays, with what was written */
    assert_works(frugal_verify(w.f));
    run(&w, 10);
    assert_int_equal(45, (int)hits_of(&w));
    cancel_all(&w);
    assert_works(frugal_release_holders(w.f)); /* the caches are empty */
    run(&w, 10);
    assert_int_equal(45, (int)hits_of(&w));
    cancel_all(&w);
    keys = (frugal_keys){.table = 0, .keys = NULL, .n = 0};
    assert_works(frugal_preload(w.f, 0, &keys));
    finish(&w, 10);
}

static void preload_some(world *w) {
    uint64_t rows[100];
    for (uint64_t i = 0; i < 100; i++) rows[i] = test_mix2(w->step, i) % w->table.rows;
    frugal_keys keys = {.table = 0, .keys = rows, .n = 100};
    for (uint32_t d = 0; d < w->desc.devices; d++) assert_works(frugal_preload(w->f, d, &keys));
}

/* Everything that happens to a cache between steps. */
static void test_caches(void **state) {
    (void)state;
    for (int i = 0; i < 24 / (test_is_short() ? 3 : 1); i++) {
        world w = world_of((uint32_t)(1 + i % 3));
        w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 6 % 4);
        w.desc.workers = (uint32_t)(i / 3 % 3);
        w.desc.dim = i % 2 ? 8 : 5;
        w.desc.rows_as = i / 2 % 2 == 0 ? FRUGAL_FP32 : i / 4 % 2 ? FRUGAL_BF16 : FRUGAL_FP16, w.desc.rounding = 0;
        for (uint32_t d = 0; d < w.desc.devices; d++)
            w.places[d] = (place){
                .policy = (frugal_cache_policy)((i + d) % 3), .cache_rows = 8u << (i + d) % 4, .ordinal = (int)(d % 2)};
        if (i % 5 == 4) w.places[0].ordinal = NOBODY;
        open_world(&w);
        preload_some(&w);
        for (int round = 0; round < 5; round++) {
            run(&w, 4 + round);
            check(&w);
            if (round % 2) cancel_all(&w); /* of what is announced, other batches come */
            if (round % 2) write_some(&w);
            if (round == 1) assert_works(frugal_release_holders(w.f));
            if (round == 1) preload_some(&w);
            assert_works(frugal_verify(w.f));
        }
        finish(&w, 6);
    }
}

/* Serving: rows that all devices read stay everybody's, also when such steps are cancelled. */
static void only_read(const world *w, uint32_t device, uint64_t step, batch *b) {
    usual_batch(w, device, step, b);
    b->read_only = w->salt % 2 == 0, b->brings = !b->read_only;
    b->n = w->desc.max_keys;
    for (uint32_t i = 0; i < b->n; i++) b->rows[i] = (i + (uint32_t)w->salt) % 16;
}

static void test_read_only(void **state) {
    (void)state;
    frugal_stats before, after;
    world w = world_of(2);
    w.make = only_read;
    w.places[0].cache_rows = w.places[1].cache_rows = 256; /* no set overflows */
    open_world(&w);
    run(&w, 10);
    check(&w);
    frugal_get_stats(w.f, &after);
    assert_int_equal(2 * 9 * 16, (int)after.hits); /* all but the first step's */
    frugal_gradients g = {.grads = gpu_grads(w.gpus[0]), .lr = 0.1f};
    announce(&w, w.step + 1);
    lookup(&w, 0);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_update(w.f, 0, w.step, &g), "read-only", "device 0");
    train(&w, 0), update(&w, 0), lookup(&w, 1), train(&w, 1), update(&w, 1);
    w.step++;
    judge(&w);
    for (int round = 0; round < 4; round++) { /* cancelled, by turns reading and training */
        announce(&w, w.step + w.desc.lookahead);
        cancel_all(&w);
        run(&w, 3);
        check(&w);
        cancel_all(&w);
    }
    w.salt = 8;
    assert_works(frugal_release_holders(w.f));
    run(&w, 1);
    frugal_get_stats(w.f, &before);
    run(&w, 7);
    check(&w);
    frugal_get_stats(w.f, &after);
    assert_true(after.hits >= before.hits + 2 * 7 * 16);
    finish(&w, 3);
}

/* A lookup that is repeated, and gradients that are written as records, and none. */
static void test_repeated(void **state) {
    (void)state;
    world w = world_of(2);
    w.desc.dim = 12;
    w.places[1].policy = FRUGAL_CACHE_LRU;
    open_world(&w);
    for (int i = 0; i < 12; i++) {
        announce(&w, w.step + 1 + w.desc.lookahead);
        for (uint32_t d = 0; d < 2; d++) {
            frugal_records r;
            float *rows = rows_at(&w, d);
            assert_works(frugal_lookup(w.f, d, w.step, NULL)); /* into the block */
            assert_works(frugal_get_records(w.f, d, w.step, &r));
            gpu_wait(w.gpus[d]);
            float *in_block = malloc(4 * (size_t)r.stride * (r.n_unique + 1));
            memcpy(in_block, r.block, 4 * (size_t)r.stride * r.n_unique);
            lookup(&w, d);
            train(&w, d);
            gpu_get(w.gpus[d], w.looked_up, rows, 4 * (size_t)r.n * 12);
            for (uint32_t k = 0; k < r.n; k++)
                assert_memory_equal(w.looked_up + k * 12, in_block + r.record_of[k] * r.stride, 4 * 12);
            free(in_block);
            if (i % 3 == 0 && batch_of(&w, d, w.step)->brings) { /* sums are ours */
                gpu_get(w.gpus[d], w.grads[d], gpu_grads(w.gpus[d]), 4 * (size_t)r.n * 12);
                frugal_sum_gradients(&r, w.grads[d], 12, 12);
                frugal_gradients g = {.records = 1, .lr = lr_of(&w, w.step)};
                assert_works(frugal_update(w.f, d, w.step, &g));
            } else
                update(&w, d);
        }
        w.step++;
        judge(&w);
    }
    finish(&w, 4);
}

#endif /* CASES_CACHES_H */
