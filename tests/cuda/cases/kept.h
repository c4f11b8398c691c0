/* kept.h - updates that GPUs keep in their caches: when the host rows are written, and how many */
#ifndef CASES_KEPT_H
#define CASES_KEPT_H

#include "world.h"

static frugal_stats stats_of(world *w) {
    frugal_stats stats;
    frugal_get_stats(w->f, &stats);
    return stats;
}

/* Ten rows of the device's own, the same ten in every second step, and gradients always. */
static void own_rows(const world *w, uint32_t device, uint64_t step, batch *b) {
    (void)w;
    b->n = 10, b->brings = 1, b->read_only = 0;
    for (uint32_t i = 0; i < b->n; i++) b->rows[i] = (uint32_t)(20 * device + 2 * i + step % 2);
}

/* What fits into the cache is written back by nobody but a drain. */
static void test_kept_until_drained(void **state) {
    (void)state;
    enum { FLOATS = 60 * 8 };
    for (int i = 0; i < 4; i++) {
        float *matrix = NULL, before[FLOATS];
        assert_int_equal(0, posix_memalign((void **)&matrix, 4096, 2 * sizeof before));
        for (int e = 0; e < FLOATS; e++) before[e] = matrix[e] = (float)(e % 89) * 0.01f;
        world w = i < 2 ? world_of(1 + (uint32_t)i % 2) : gated(1 + (uint32_t)i % 2);
        w.desc.weights = matrix, w.desc.weights_stride = 8, w.table = (frugal_table){.rows = w.table.rows};
        w.desc.rows_as = FRUGAL_FP32, w.desc.rounding = 0; /* of the matrix */
        w.desc.alone = FRUGAL_ALONE_KEPT, w.desc.optimizer.kind = FRUGAL_SGD, w.make = own_rows;
        for (uint32_t d = 0; d < w.desc.devices; d++)
            w.places[d].cache_rows = 256, w.places[d].policy = FRUGAL_CACHE_LRU;
        open_world(&w);
        run(&w, 6);
        judge(&w); /* the streams have done the lookups */
        for (uint32_t d = 0; d < w.desc.devices; d++) gpu_wait(w.gpus[d]);
        assert_memory_equal(before, matrix, sizeof before);
        assert_works(frugal_drain(w.f));
        frugal_stats stats = stats_of(&w);
        assert_int_equal((int)(60 * w.desc.devices), (int)stats.kept);
        assert_int_equal((int)(20 * w.desc.devices), (int)stats.written_back);
        assert_int_equal(0, (int)stats.kept_now);
        compare(&w);
        run(&w, 3);
        check(&w);
        assert_int_equal((int)(40 * w.desc.devices), (int)stats_of(&w).written_back);
        close_world(&w);
        free(matrix);
    }
}

/* What does not fit is written back when its place is given away. Each step has other rows than the one before, and a
 * set of the cache has room for fewer than come into it. */
static void test_kept_evicted(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        world w = i % 4 == 1 ? gated(2) : world_of(1 + i % 2);
        w.desc.alone = FRUGAL_ALONE_KEPT, w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 2);
        w.desc.dim = i % 3 ? 8 : 33, w.make = own_rows;
        for (uint32_t d = 0; d < w.desc.devices; d++) w.places[d].cache_rows = 8, w.places[d].policy = FRUGAL_CACHE_LRU;
        open_world(&w);
        run(&w, 8);
        judge(&w);
        assert_works(frugal_drain(w.f));
        frugal_stats stats = stats_of(&w);
        /* Of ten rows eight are kept, and give their places away to those of the next step; the last by the drain. */
        assert_int_equal((int)(64 * w.desc.devices), (int)stats.kept);
        assert_int_equal((int)(64 * w.desc.devices), (int)stats.written_back);
        assert_int_equal((int)(80 * w.desc.devices), (int)stats.in_place);
        finish(&w, 4);
    }
}

/* The same rows, a device after the other. */
static void rows_in_turn(const world *w, uint32_t device, uint64_t step, batch *b) {
    own_rows(w, 0, 0, b);
    if ((uint32_t)(step % w->desc.devices) != device) b->n = 0;
}

/* Each step's rows are recalled from the device that kept them in the step before. */
static void test_kept_recalled(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        world w = i % 3 == 2 ? gated(2 + i % 2) : world_of(2 + i % 2);
        w.desc.alone = FRUGAL_ALONE_KEPT, w.desc.lookahead = i % 4;
        if (i % 3 != 2) w.desc.workers = i % 2;
        w.desc.optimizer.kind = (frugal_optimizer_kind)(i / 3), w.make = rows_in_turn;
        if (i >= 6) w.places[1] = (place){.ordinal = NOBODY, .cache_rows = 64};
        open_world(&w);
        run(&w, 12);
        judge(&w);
        frugal_stats stats = stats_of(&w);
        assert_true(stats.kept >= 100 && stats.written_back >= stats.kept - 20); /* the last one is not polled yet */
        check(&w);
        assert_int_equal((int)stats_of(&w).kept, (int)stats_of(&w).written_back);
        assert_int_equal(120, (int)stats_of(&w).kept);
        cancel_all(&w); /* what was announced is announced anew, with the rows as before: recalled, as all rows are */
        finish(&w, 5);
    }
}

/* Counts are set while updates are kept, and none is forgotten. */
static void test_kept_recounted(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        world w = world_of(1 + i);
        w.desc.alone = FRUGAL_ALONE_KEPT, w.make = own_rows, w.kept = 64;
        for (uint32_t d = 0; d < w.desc.devices; d++) w.places[d].cache_rows = 256;
        open_world(&w);
        run(&w, 6);
        judge(&w);
        for (uint32_t d = 0; d < w.desc.devices; d++) gpu_wait(w.gpus[d]);
        while (frugal_help(w.f)) {
        }
        uint64_t kept = stats_of(&w).kept_now;
        assert_int_equal((int)(20 * w.desc.devices), (int)kept);
        assert_works(frugal_set_counts(w.f, &(frugal_keys){.table = 0, .keys = NULL, .n = 0}, NULL));
        assert_int_equal((int)kept, (int)stats_of(&w).kept_now);
        check(&w);
        assert_int_equal((int)kept, (int)stats_of(&w).written_back);
        finish(&w, 4);
    }
}

/* A stream stands at a gate that is forced open: nothing is written, and no row loses its way in the cache. */
static void test_kept_forced(void **state) {
    (void)state;
#ifdef UNDER_TSAN
    print_message("# SKIPPED under ThreadSanitizer: rows are read through gates that are forced open, by design\n");
    skip();
#endif
    for (int way = 0; way < 3; way++) { /* rows by key, by record, and in a graph */
        enum { FLOATS = 60 * 8 };
        float *matrix = NULL, before[FLOATS];
        assert_int_equal(0, posix_memalign((void **)&matrix, 4096, 2 * sizeof before));
        for (int e = 0; e < FLOATS; e++) matrix[e] = (float)(e % 89) * 0.01f;
        world w = gated(2);
        w.desc.weights = matrix, w.desc.weights_stride = 8, w.table = (frugal_table){.rows = w.table.rows};
        w.desc.rows_as = FRUGAL_FP32, w.desc.rounding = 0; /* of the matrix */
        w.desc.alone = FRUGAL_ALONE_KEPT, w.desc.optimizer.kind = FRUGAL_SGD, w.make = own_rows;
        w.places[0].cache_rows = 8, w.places[0].policy = FRUGAL_CACHE_LRU;
        w.places[1].ordinal = NOBODY, w.places[1].gate_on_stream = 0;
        open_world(&w);
        capture c = {&w, 0};
        if (way == 2) gpu_capture(w.gpus[0], record_step, &c);
        run(&w, 6);
        check(&w);
        for (int i = 0; i < 2; i++) { /* of device 0 alone; the first step's gate is open, the other has other rows */
            frugal_gradients g = {.grads = way == 2 ? NULL : gpu_grads(w.gpus[0]), .records = way == 2, .lr = 0.1f};
            if (way == 2) {
                assert_works(frugal_cuda_replay(w.f, 0, w.step, &g));
                gpu_launch(w.gpus[0]);
            } else {
                assert_works(frugal_lookup(w.f, 0, w.step, way == 1 ? NULL : rows_at(&w, 0)));
                assert_works(frugal_update(w.f, 0, w.step, &g));
            }
            if (i == 0) gpu_wait(w.gpus[0]), memcpy(before, matrix, sizeof before);
            w.step++;
        }
        w.step = w.judged;
        frugal_stop(w.f);
        gpu_wait(w.gpus[0]); /* the stream is not stuck */
        assert_memory_equal(before, matrix, sizeof before);
        close_world(&w);
        free(matrix);
    }
}

#endif /* CASES_KEPT_H */
