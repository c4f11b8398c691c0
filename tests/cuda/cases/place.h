/* place.h - rows that GPUs update in place, or keep: step by step beside the reference, with every optimizer and every
 * form of an update; and when they do not */
#ifndef CASES_PLACE_H
#define CASES_PLACE_H

#include "world.h"
#include "bags.h"
#include "graphs.h"

static frugal_alone way = FRUGAL_ALONE_PLACE; /* of the case */

static int set_up_kept(void **state) {
    way = FRUGAL_ALONE_KEPT;
    return set_up(state);
}
static int tear_down_kept(void **state) {
    way = FRUGAL_ALONE_PLACE;
    return tear_down(state);
}

static world in_place(world w) {
    w.desc.alone = way;
    return w;
}

/* Some rows of all devices, some of the device's own, one of these with more than 32 positions. */
static void own_and_shared(const world *w, uint32_t device, uint64_t step, batch *b) {
    uint64_t bits = test_mix3(w->salt + 3, device, step), own = w->table.rows / (w->desc.devices + 1);
    b->n = (uint32_t)(bits % 9 == 0 ? 0 : w->desc.max_keys - bits % 5), b->brings = bits / 9 % 8 != 0;
    b->read_only = bits / 72 % 8 == 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t key = test_mix3(bits, i, 2);
        b->rows[i] = (uint32_t)((device + 1) * own + (i < 40 && bits % 2 ? step % own : key / 4 % own));
        if (key % 4 == 0) b->rows[i] = (uint32_t)(key / 4 % own);
    }
}

/* After each step the table, the copies and the counts are right. */
static void check_steps(world w, int steps) {
    frugal_stats stats;
    w.make = own_and_shared, w.desc.max_keys = 70;
    open_world(&w);
    for (int i = 0; i < steps; i++) {
        enqueue_step(&w, w.desc.lookahead);
        check(&w);
    }
    cancel_all(&w);
    run(&w, 3);
    check(&w);
    frugal_get_stats(w.f, &stats);
    assert_true(stats.in_place > 0 && stats.in_place <= stats.alone && stats.flushed > 0);
    close_world(&w);
}

static void check_optimizer(frugal_optimizer_kind kind) {
    static const uint32_t some[] = {8, 1, 33, 132, 100, 5};
    for (uint32_t i = 0; i < 6; i++) {
        world w = in_place(with_arrays(world_of(1 + (i + 1) % 3)));
        if (w.desc.devices == 1) w = in_place(with_arrays(world_of(2))), w.places[1].ordinal = NOBODY;
        w.desc.optimizer = (frugal_optimizer){.kind = kind, .weight_decay = i % 4 == 1 ? 0.02f : 0};
        w.desc.dim = some[i], w.desc.reduce = i % 2 ? FRUGAL_MEAN : FRUGAL_SUM, w.desc.workers = i % 3;
        w.n_tables = i == 3 || i == 4 ? MOST_TABLES : 0;
        w.places[0].cache_rows = i % 3 == 0 ? 0 : i % 3 == 1 ? 8 : 128; /* none, smaller than a batch, of all rows */
        w.places[0].unaligned = i == 3;
        check_steps(w, test_is_short() ? 4 : 10);
    }
}

#define TEST_PLACE(kind, ...)                                                                                          \
    static void test_place_##kind(void **state) {                                                                      \
        (void)state;                                                                                                   \
        check_optimizer(FRUGAL_##kind);                                                                                \
    }
FRUGAL_OPTIMIZERS(TEST_PLACE)

/* A frozen row does not change in place, whatever its device brings. */
static void test_place_frozen(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        world w = in_place(world_of(2));
        w.desc.optimizer = (frugal_optimizer){.kind = (frugal_optimizer_kind)(i / 2), .weight_decay = 0.1f};
        w.desc.dim = i % 2 ? 5 : 132, w.n_tables = i == 5 ? MOST_TABLES : 1;
        w.places[1].cache_rows = i % 4 == 1 ? 0 : 64;
        w.make = own_and_shared, w.desc.max_keys = 70;
        open_world(&w);
        run(&w, 8);
        finish(&w, 2);
    }
}

/* Devices that share a GPU, or not, whose streams wait at gates; steps are enqueued far ahead. */
static void test_place_gates(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        world w = in_place(with_arrays(gated(1 + i % 4)));
        w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 2), w.desc.dim = i % 2 ? 12 : 7;
        w.make = own_and_shared, w.desc.max_keys = 70, w.n_tables = i == 6 ? 3 : 0;
        if (i >= 4 && w.desc.devices > 1) w.places[w.desc.devices - 1] = (place){.ordinal = NOBODY, .cache_rows = 16};
        open_world(&w);
        run(&w, test_is_short() ? 10 : 40);
        check(&w);
        cancel_all(&w);
        finish(&w, 10);
    }
}

/* Replays of a graph find the bits of their step. */
static void test_place_graphs(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        world w = in_place(world_of(1 + i % 3));
        w.desc.lookahead = i % 2 ? 6 : 0, w.desc.workers = i / 4, w.desc.dim = i % 2 ? 8 : 5, w.kept = 64;
        w.desc.optimizer.kind = (frugal_optimizer_kind)(i % 4);
        w.make = own_and_shared, w.desc.max_keys = 70, w.n_tables = i == 3 ? 3 : i == 6 ? 1 : 0;
        for (uint32_t d = 0; d < w.desc.devices; d++)
            w.places[d].gate_on_stream = i >= 4, w.places[d].cache_rows = d + i % 2 ? 32 : 0;
        open_world(&w);
        for (uint32_t d = 0; d < w.desc.devices; d++) {
            capture c = {&w, d};
            gpu_capture(w.gpus[d], record_step, &c);
        }
        run(&w, 2);
        for (int k = 0; k < 20; k++) replay_step(&w, k % 5 == 3 ? k % 4 : 0);
        check(&w);
        cancel_all(&w);
        for (int k = 0; k < 10; k++) replay_step(&w, 0);
        finish(&w, 2);
    }
}

/* Records that the caller has written, of all rows: from those of rows that are alone the library takes the step. */
static void record_update(world *w, uint32_t d) {
    frugal_records r;
    uint32_t dim = w->desc.dim;
    lookup(w, d), train(w, d);
    if (!batch_of(w, d, w->step)->brings) {
        update(w, d);
        return;
    }
    assert_works(frugal_get_records(w->f, d, w->step, &r));
    gpu_get(w->gpus[d], w->grads[d], gpu_grads(w->gpus[d]), 4 * (size_t)r.n * dim);
    frugal_sum_gradients(&r, w->grads[d], dim, dim);
    frugal_gradients g = {.records = 1, .lr = lr_of(w, w->step)};
    assert_works(frugal_update(w->f, d, w->step, &g));
}

static void test_place_records(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        world w = in_place(world_of(2));
        w.desc.dim = i % 2 ? 132 : 7, w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 2);
        w.make = own_and_shared, w.desc.max_keys = 70, w.n_tables = i == 4 ? MOST_TABLES : 0;
        w.places[0].cache_rows = i % 4 == 1 ? 16 : 0; /* without a cache, only rows in place make records be read */
        open_world(&w);
        for (int k = 0; k < 8; k++) {
            announce(&w, w.step + 1 + w.desc.lookahead);
            for (uint32_t d = 0; d < 2; d++) record_update(&w, d);
            w.step++;
            judge(&w);
        }
        finish(&w, 2);
    }
}

static void test_place_bags(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        world w = in_place(world_of(2));
        w.desc.dim = i % 2 ? 132 : 5, w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 2);
        w.make = own_and_shared, w.desc.max_keys = 70, w.n_tables = i == 3 ? MOST_TABLES : 0;
        w.places[1].cache_rows = i % 3 ? 64 : 0;
        open_world(&w);
        for (int k = 0; k < (test_is_short() ? 4 : 9); k++) bag_step(&w, k % 4 == 3);
        finish(&w, 2);
    }
}

/* In the middle of a step the table is of two steps, and the calls that read it say so. */
static void test_place_in_a_step(void **state) {
    (void)state;
    uint64_t row = 1;
    float weights[8];
    frugal_keys keys = {.table = 0, .keys = &row, .n = 1};
    world w = in_place(world_of(2));
    w.make = full_batches;
    open_world(&w);
    run(&w, 3);
    check(&w);
    announce(&w, w.step + 2);
    lookup(&w, 0), train(&w, 0), lookup(&w, 1), train(&w, 1);
    assert_works(frugal_read_rows(w.f, &keys, weights, NULL));
    update(&w, 0);
    assert_fails(FRUGAL_ERR_BUSY, frugal_drain(w.f), "drain", "device 0 has updated rows in place");
    assert_fails(FRUGAL_ERR_BUSY, frugal_read_rows(w.f, &keys, weights, NULL), "read_rows", "the middle of step 3");
    assert_fails(FRUGAL_ERR_BUSY, frugal_verify(w.f), "verify", "FRUGAL_ALONE_STAGED");
    update(&w, 1);
    w.step++;
    check(&w);
    finish(&w, 3);
}

/* A GPU that cannot write the table stays staged, beside a device on the host that updates in place. */
static void test_place_gathered(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        char path[64];
        frugal_cuda_info info;
        frugal_stats stats;
        snprintf(path, sizeof path, "/var/tmp/test_cuda.%d", (int)getpid());
        unlink(path);
        world w = in_place(world_of(2));
        w.desc.file = path, w.desc.optimizer.kind = (frugal_optimizer_kind)i, w.desc.workers = i / 2;
        w.make = own_and_shared, w.desc.max_keys = 70, w.desc.dim = i % 2 ? 5 : 8;
        if (i % 2) w.places[1] = (place){.ordinal = NOBODY, .cache_rows = 16};
        open_world(&w);
        assert_int_equal(way, w.desc.alone);
        assert_works(frugal_cuda_get_info(w.f, 0, &info));
        assert_int_equal(0, info.table_is_pinned);
        for (int k = 0; k < 6; k++) {
            enqueue_step(&w, w.desc.lookahead);
            check(&w);
        }
        frugal_get_stats(w.f, &stats);
        assert_true(stats.alone > 0 && (stats.in_place > 0) == (i % 2));
        finish(&w, 2);
        unlink(path);
    }
}

/* A stream stands at a gate that is forced open: nothing is written, neither rows in place nor records. */
static void test_place_forced(void **state) {
    (void)state;
#ifdef UNDER_TSAN
    print_message("# SKIPPED under ThreadSanitizer: rows are read through gates that are forced open, by design\n");
    skip();
#endif
    for (int by_record = 0; by_record < 2; by_record++) {
        enum { FLOATS = 60 * 8 };
        float *matrix = NULL, before[FLOATS];
        assert_int_equal(0, posix_memalign((void **)&matrix, 4096, 2 * sizeof before));
        for (int i = 0; i < FLOATS; i++) matrix[i] = (float)(i % 89) * 0.01f;
        world w = in_place(gated(2));
        w.desc.weights = matrix, w.desc.weights_stride = 8, w.table = (frugal_table){.rows = w.table.rows};
        w.desc.rows_as = FRUGAL_FP32, w.desc.rounding = 0; /* of the matrix */
        w.desc.optimizer.kind = FRUGAL_SGD, w.make = own_and_shared, w.salt = 2;
        w.places[1].ordinal = NOBODY, w.places[1].gate_on_stream = 0;
        open_world(&w);
        run(&w, 6);
        check(&w);
        uint64_t first = w.step, begun = 0;
        int brought = 0, brings = 0;
        frugal_records blocks[5];
        for (int i = 0; i < 5; i++) { /* of device 0 alone; the first step's gate is open */
            const batch *b = batch_of(&w, 0, w.step);
            assert_works(frugal_lookup(w.f, 0, w.step, by_record ? NULL : rows_at(&w, 0)));
            if (w.step != first) { /* records of an earlier step may be in the block, still to be flushed */
                frugal_records *r = &blocks[begun++];
                assert_works(frugal_get_records(w.f, 0, w.step, r));
                memset(r->block, 0x5a, (size_t)r->n_unique * r->stride * sizeof(float));
            }
            frugal_gradients g = {.grads = gpu_grads(w.gpus[0]), .lr = 0.1f};
            assert_works(frugal_update(w.f, 0, w.step, b->brings ? &g : NULL));
            if (w.step == first) {
                gpu_wait(w.gpus[0]); /* the update of that step is done */
                brings = b->brings && b->n > 0;
                memcpy(before, matrix, sizeof before);
            } else
                brought |= b->brings && b->n > 0;
            w.step++;
        }
        assert_true(brings && brought);
        w.step = w.judged;
        frugal_stop(w.f);
        gpu_wait(w.gpus[0]); /* the stream is not stuck */
        assert_memory_equal(before, matrix, sizeof before);
        for (uint64_t i = 0; i < begun; i++) {
            const unsigned char *bytes = (const unsigned char *)blocks[i].block;
            for (size_t k = 0; k < (size_t)blocks[i].n_unique * blocks[i].stride * sizeof(float); k++)
                assert_int_equal(0x5a, bytes[k]);
        }
        close_world(&w);
        free(matrix);
    }
}

#endif /* CASES_PLACE_H */
