/* test_peer_faults.c - faults that users of other embedding libraries have reported, as tests: each case is named after
 * what happened there, and makes the same situation here. What went wrong in their pipelines and caches when threads
 * raced is in test_peer_races.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/fleet.h"

static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};
enum { WAYS = 3 };

/* >>memory that is used again */

/* meta-pytorch/torchrec#4191: the stream that brought the next batch took memory of which a stream that prefetched was
 * still reading, because the allocator did not know of that reader. Here keys are the caller's again when announcing
 * returns, and gradients of host devices when updating does: both are overwritten at once, while loaders run ahead, and
 * while streams are in the middle of earlier batches. */
static void memory_that_another_stream_still_reads(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 3 * WAYS; k++) {
        fleet *w = calloc(1, sizeof *w);
        frugal_desc desc = rig_desc();
        current_generation = 0;
        desc.devices = 3, desc.lookahead = 3, desc.workers = k % 3, desc.alone = ways[k / 3];
        w->ahead = 3;
        w->kinds[1] = POLLED, w->kinds[2] = WAITING;
        w->r.cache.cache_rows = 24;
        if (desc.workers == 0) w->kinds[2] = POLLED; /* nobody would open its gates while all trainers wait for it */
        fleet_open(w, &desc, 60);
        phase(w, 40, (int)(k % 2) + 1);
        assert_int_equal(FRUGAL_OK, frugal_drain(w->r.f));
        rig_compare(&w->r);
        for (uint32_t d = 0; d < 3; d++) assert_int_equal(0, w->s[d].wrong);
        fleet_close(w);
        free(w);
    }
}

/* The 20 rows of table 0 that are the device's own, and in every other step the last 6 of them. */
static void more_than_the_cache_has_room_for(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)r;
    b->n = b->split = step % 2 ? 6 : 20;
    for (uint32_t i = 0; i < b->n; i++) b->keys[i] = 2 * (20 - b->n + i) + device;
}

/* pytorch/FBGEMM#5480: lines were evicted while a lookup was reading them. A cache of 8 places, and batches of 20 rows:
 * each lookup evicts copies that it has read, and such that it has yet to read; with updates that are kept, it writes
 * them back first. */
static void a_line_that_is_evicted_while_it_is_read(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 4 * WAYS; k++) {
        rig r = {.change = more_than_the_cache_has_room_for, .cache = {.cache_rows = 8}};
        r.cache.policy = k % 2 ? FRUGAL_CACHE_LRU : FRUGAL_CACHE_COUNTED;
        frugal_desc d = rig_desc();
        d.workers = k / 2 % 2, d.alone = ways[k / 4];
        rig_open(&r, &d);
        rig_train(&r, 40);
        frugal_stats s;
        frugal_get_stats(r.f, &s);
        assert_true(s.misses > 0 && (r.cache.policy != FRUGAL_CACHE_LRU || s.hits > 0));
        rig_finish(&r, 2);
    }
}

/* pytorch/FBGEMM#5807: pointers into the table were kept over writes that moved it. A view, and the store that devices
 * read, stay where they are, whatever is written, counted, listed, cached or trained, and show what is written. */
static void pointers_that_a_write_invalidates(void **state) {
    (void)state;
    rig r = {.cache = {.cache_rows = 16}};
    frugal_desc d = rig_desc();
    rig_open(&r, &d);
    const void *before, *after;
    uint64_t stride, same, key = 7;
    float row[5] = {1, 2, 3, 4, 5}, zeros[10] = {0};
    assert_int_equal(FRUGAL_OK, frugal_view(r.f, 1, &before, &stride));
    const void *weights = frugal_get_store(r.f)->weights;
    frugal_keys keys = {.table = 1, .keys = &key, .n = 1};
    assert_int_equal(FRUGAL_OK, frugal_write_rows(r.f, &keys, row, zeros));
    assert_memory_equal((const float *)before + 7 * stride, row, sizeof row);
    memcpy(r.ref.weights + (r.desc.tables[0].rows + 7) * 5, row, sizeof row);
    memset(r.ref.state + (r.desc.tables[0].rows + 7) * r.ref.state_floats, 0, 4 * r.ref.state_floats);
    assert_int_equal(FRUGAL_OK, frugal_set_counts(r.f, &keys, &(uint64_t){100}));
    assert_int_equal(FRUGAL_OK, frugal_preload(r.f, 0, &keys));
    assert_int_equal(FRUGAL_OK, frugal_secondaries(r.f, 1, &keys, 0));
    rig_train(&r, 10);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    assert_int_equal(FRUGAL_OK, frugal_view(r.f, 1, &after, &same));
    assert_true(before == after && stride == same && weights == frugal_get_store(r.f)->weights);
    rig_finish(&r, 2);
}

/* >>steps without a backward pass */

/* pytorch/FBGEMM#6120: in training mode each forward pass without a backward pass left memory behind. Lookups that are
 * repeated, updates without gradients and announcements that are cancelled take none, for thousands of steps. */
static void a_leak_a_step_without_a_backward_pass(void **state) {
    (void)state;
    for (uint32_t k = 0; k < WAYS; k++) {
        rig r = {.cache = {.cache_rows = 16}};
        frugal_desc d = rig_desc();
        d.workers = k % 2, d.alone = ways[k];
        rig_open(&r, &d);
        rig_train(&r, 5);
        long long bytes = (long long)r.counter.bytes_out, blocks = (long long)r.counter.blocks_out;
        for (int i = 0; i < 2000; i++) {
            for (uint32_t device = 0; device < 2; device++) rig_announce(&r, device);
            if (i % 5 == 4) {
                assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, r.step));
                r.announced[0] = r.announced[1] = r.step;
                continue;
            }
            for (uint32_t device = 0; device < 2; device++)
                for (int repeats = i % 3; repeats >= 0; repeats--) rig_lookup(&r, device);
            for (uint32_t device = 0; device < 2; device++)
                assert_int_equal(FRUGAL_OK, frugal_update(r.f, device, r.step, NULL));
            rig_judge(&r, 3); /* nobody brought anything */
        }
        assert_true(bytes == (long long)r.counter.bytes_out && blocks == (long long)r.counter.blocks_out);
        rig_finish(&r, 3);
    }
}

static void from_all_rows(const rig *r, uint32_t device, uint64_t step, rig_batch *b) {
    (void)device;
    b->n = RIG_KEYS, b->split = RIG_KEYS / 2, b->brings = 0;
    for (uint32_t i = 0; i < b->n; i++)
        b->keys[i] = (step * 5 + i * 3) % r->desc.tables[i < b->split ? 0 : 1].rows; /* some that were never trained */
}

/* pytorch/FBGEMM#4822, #4764: evaluation wrote rows to the table, those too that had never been trained. Read-only
 * batches, through caches that evict, change nothing: not one byte of the table, and no row is flushed. */
static void evaluation_that_writes_rows(void **state) {
    (void)state;
    for (uint32_t k = 0; k < WAYS; k++) {
        rig r = {.cache = {.cache_rows = 8}};
        frugal_desc d = rig_desc();
        d.workers = k % 2, d.alone = ways[k];
        rig_open(&r, &d);
        rig_train(&r, 20);
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        const frugal_store *s = frugal_get_store(r.f);
        frugal_memory table = frugal_get_memory(r.f, 0, FRUGAL_MEMORY_TABLE);
        void *copy = malloc(table.bytes);
        frugal_stats before, after;
        memcpy(copy, table.start, table.bytes);
        frugal_get_stats(r.f, &before);
        r.change = from_all_rows;
        for (int i = 0; i < 30; i++) {
            for (uint32_t device = 0; device < 2; device++) {
                rig_batch b = rig_batch_of(&r, device, r.step);
                frugal_keys segments[2] = {{.table = 0, .keys = b.keys, .n = b.split},
                                           {.table = 1, .keys = b.keys + b.split, .n = b.n - b.split}};
                frugal_batch batch = {.segments = segments, .n_segments = 2, .read_only = 1};
                assert_int_equal(FRUGAL_OK, frugal_announce(r.f, device, r.step, &batch));
                r.announced[device]++;
            }
            for (uint32_t device = 0; device < 2; device++) rig_lookup(&r, device);
            for (uint32_t device = 0; device < 2; device++)
                assert_int_equal(FRUGAL_OK, frugal_update(r.f, device, r.step, NULL));
            rig_judge(&r, 3);
        }
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        frugal_get_stats(r.f, &after);
        assert_memory_equal(copy, table.start, table.bytes);
        assert_true(after.flushed == before.flushed && after.in_place == before.in_place && after.kept == before.kept);
        assert_int_equal(s->rows, r.ref.rows);
        free(copy);
        r.change = NULL;
        rig_finish(&r, 3);
    }
}

/* >>where numbers lie */

/* NVIDIA/recsys-examples#419, #426: with rows shorter than their place, Adam's second moment was read where the first
 * one still lay, so it took the wrong formula. Here rows and states lie in places that are wider than they are, in the
 * caller's matrices, and dims are no multiple of anything. What lies between rows stays as it was. */
static void optimizer_state_at_the_wrong_offset(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 3, 5, 12, 33};
    for (uint32_t k = 0; k < 5 * FRUGAL_OPTIMIZER_KINDS; k++) {
        uint32_t dim = dims[k % 5], floats = frugal_state_floats(rig_optimizers[k / 5], dim), rows = 60;
        uint64_t wide = dim + 3, wider = floats + 5;
        float *weights = malloc(4 * rows * wide), *states = malloc(4 * rows * wider);
        for (uint64_t i = 0; i < rows * wide; i++) weights[i] = -77;
        for (uint64_t i = 0; i < rows * wider; i++) states[i] = -77;
        for (uint64_t row = 0; row < rows; row++)
            for (uint32_t j = 0; j < floats; j++) states[row * wider + j] = 0;
        rig r = {.cache = {.cache_rows = 16}};
        frugal_desc d = rig_desc();
        d.dim = dim, d.weights = weights, d.weights_stride = wide, d.workers = k % 2, d.alone = ways[k % WAYS];
        d.optimizer.kind = rig_optimizers[k / 5];
        if (floats) d.state = states, d.state_stride = wider;
        rig_open(&r, &d);
        rig_train(&r, 30);
        assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
        rig_compare(&r);
        for (uint64_t i = 0; i < rows * wide; i++)
            if (i % wide >= dim) assert_true(weights[i] == -77);
        for (uint64_t i = 0; i < rows * wider; i++)
            if (i % wider >= floats) assert_true(states[i] == -77);
        rig_finish(&r, 1);
        free(weights), free(states);
    }
}

/* alibaba/TorchEasyRec#472, benfred/implicit#599: a row's number times dim was computed in 32 bits, which is too few
 * for a table of more than 2^31 floats. The memory of rows that nobody touches is never used. */
static void a_table_of_more_floats_than_32_bits_count(void **state) {
    (void)state;
    enum { DIM = 64 };
    static float rows[4 * DIM], grads[4 * DIM];
    const uint64_t last = UINT64_C(4294967296) / DIM + 9; /* row `last` begins behind 2^32 floats */
    frugal_table table = {.rows = last + 1};
    frugal_desc desc = {.tables = &table, .n_tables = 1, .dim = DIM, .max_keys = 4, .workers = 1};
    desc.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD, desc.optimizer.eps = 1, desc.init_threads = 1;
    for (uint32_t way = 0; way < WAYS; way++) {
        uint64_t keys[4] = {last, last - UINT64_C(67108864), 5, last - UINT64_C(33554432)}; /* 2^32, 2^31 floats less */
        frugal *f;
        desc.alone = ways[way];
        frugal_status status = frugal_open(&desc, &f);
        if (status == FRUGAL_ERR_MEMORY) { /* of 17 GB, a few pages are used; not every system promises that much */
            frugal_close(f);
            print_message("SKIPPED: %s\n", frugal_message());
            skip();
        }
        assert_int_equal(FRUGAL_OK, status);
        assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &(frugal_cpu_desc){.cache_rows = 8}));
        frugal_keys all = {.table = 0, .keys = keys, .n = 4};
        for (int i = 0; i < 4 * DIM; i++) grads[i] = (float)(1 + i / DIM);
        for (uint64_t step = 0; step < 2; step++) {
            frugal_batch batch = {.segments = &all, .n_segments = 1};
            assert_int_equal(FRUGAL_OK, frugal_announce(f, 0, step, &batch));
            assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, step, rows));
            assert_int_equal(FRUGAL_OK, frugal_update(f, 0, step, &(frugal_gradients){.grads = grads, .lr = 1}));
        }
        assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &all, rows, NULL));
        for (uint32_t i = 0; i < 4; i++) { /* each has its own gradient, from zero: s = g^2, then 2 g^2 */
            float g = (float)(i + 1), first = g / (g + 1), second = g / (sqrtf(2 * g * g) + 1);
            assert_float_equal(rows[i * DIM], -(first + second), 1e-6);
            for (uint32_t j = 1; j < DIM; j++) assert_true(rows[i * DIM + j] == rows[i * DIM]);
        }
        uint64_t neighbours[3] = {last - 1, 4, 8};
        frugal_keys others = {.table = 0, .keys = neighbours, .n = 3};
        assert_int_equal(FRUGAL_OK, frugal_read_rows(f, &others, rows, NULL));
        for (uint32_t i = 0; i < 3 * DIM; i++) assert_true(rows[i] == 0);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_another_stream_still_reads),
        cmocka_unit_test(a_line_that_is_evicted_while_it_is_read),
        cmocka_unit_test(pointers_that_a_write_invalidates),
        cmocka_unit_test(a_leak_a_step_without_a_backward_pass),
        cmocka_unit_test(evaluation_that_writes_rows),
        cmocka_unit_test(optimizer_state_at_the_wrong_offset),
        cmocka_unit_test(a_table_of_more_floats_than_32_bits_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
