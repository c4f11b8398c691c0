/* sort.h - batches that the GPU sorts itself, keys that lie on the GPU, counts of touches there. */
#ifndef CASES_SORT_H
#define CASES_SORT_H

#include "world.h"

static world sorting(void) { /* one device in place */
    world w = world_of(1);
    w.desc.alone = FRUGAL_ALONE_PLACE;
    return w;
}

#ifdef TEST_CUDA_ON_HOST
#include "tests/cuda/cuda_on_host_hooks.h"

static uint64_t sorts(void) {                            /* that were enqueued */
    return cuda_on_host_count("cudaLaunchHostFunc") / 3; /* the calls of CUB */
}

/* GPUs sort, whoever needs the rows. */
static void test_who_sorts(void **state) {
    (void)state;
    enum { ONE, TWO, STAGED, INCREMENTS, LISTED, COUNTED, FULL, CASES };
    for (int i = 0; i < CASES; i++) {
        world w = sorting();
        uint64_t row = 3, count = 9;
        if (i == TWO) w = world_of(2);
        if (i == STAGED) w.desc.alone = FRUGAL_ALONE_STAGED;
        if (i == INCREMENTS) w.desc.increments = 1;
        if (i == COUNTED) w.places[0].policy = FRUGAL_CACHE_LRU;
        uint64_t before = sorts();
        open_world(&w);
        assert_int_equal(2 * w.desc.devices, sorts() - before); /* kernels are loaded before any step */
        before = sorts();
        frugal_keys keys = {.keys = &row, .n = 1};
        if (i == LISTED) assert_works(frugal_secondaries(w.f, 0, &keys, 0));
        if (i == COUNTED) assert_works(frugal_set_counts(w.f, &keys, &count));
        run(&w, 12);
        assert_true(sorts() - before >= 6 * w.desc.devices); /* some are empty */
        finish(&w, 4);
    }
}

/* A GPU that does not reach the memory of its batches leaves it to the host. */
static void test_batches_out_of_reach(void **state) {
    (void)state;
    int found = 0;
    for (uint64_t n = 1; n < 24 && !found; n++) { /* the piece of pinned memory that is refused */
        world w = sorting();
        open_instance(&w);
        uint64_t before = sorts();
        cuda_on_host_fail_named("cudaHostRegister", n, 801);
        if (attach(&w, 0) != FRUGAL_OK) assert_works(attach(&w, 0));
        found = sorts() == before;
        cuda_on_host_fail_named("cudaHostRegister", 0, 0);
        open_reference(&w);
        run(&w, 12);
        assert_int_equal(found, sorts() == before);
        finish(&w, 4);
    }
    assert_true(found);
}
#endif

/* A key that is too large, on the GPU: lookups of the step say which, of all devices, again and again, and nothing of
 * the step has begun. Cancelled, the step is announced anew. */
static void check_bad_key(uint32_t devices, frugal_alone alone, uint32_t n) {
    world w = world_of(devices);
    w.desc.alone = alone, w.desc.max_keys = 512;
    uint32_t last = devices - 1;
    open_world(&w);
    run(&w, 3);
    cancel_all(&w);
    uint64_t keys[300], step = w.step;
    for (uint32_t i = 0; i < n; i++) keys[i] = i % 7;
    keys[n / 2] = w.table.rows, keys[n - 1] = UINT64_MAX;
    const uint64_t *sent = gpu_keys(w.gpus[last], keys, n * sizeof *keys);
    frugal_keys segments[3] = {{.keys = sent, .n = n / 3}, {.n = 0}, {.keys = sent + n / 3, .n = n - n / 3}};
    const frugal_batch batch = {segments, 3, 0}, good = {segments, 1, 0}, empty = {NULL, 0, 0};
    void *stream = gpu_key_stream(w.gpus[last]);
    assert_works(frugal_cuda_announce(w.f, last, step, &batch, stream));
    for (uint32_t d = 0; d < last; d++) assert_works(frugal_announce(w.f, d, step, &empty));
    char text[120];
    uint32_t bad = n == 1 ? 0 : n / 2;
    snprintf(text, sizeof text, "device %u at step %llu: key %lld at %u of segment 2: table 0 has %llu rows", last,
             (unsigned long long)step, n == 1 ? -1ll : (long long)w.table.rows, bad - n / 3,
             (unsigned long long)w.table.rows);
    for (int i = 0; i < 3; i++)
        for (uint32_t d = 0; d < devices; d++) {
            float *rows = gpu_rows(w.gpus[d]);
            uint64_t s = step + 1;
            for (; s <= step + w.desc.lookahead; s++) assert_works(frugal_cuda_announce(w.f, last, s, &good, stream));
            assert_fails(FRUGAL_ERR_KEY, frugal_lookup(w.f, d, step, rows), text, "frugal_cancel");
            assert_fails(FRUGAL_ERR_KEY, frugal_cuda_announce(w.f, last, s, &good, stream), text, "frugal_cancel");
            assert_fails(FRUGAL_ERR_KEY, frugal_try_announce(w.f, last, s, &empty), text, "frugal_cancel");
            assert_fails(FRUGAL_ERR_KEY, frugal_try_lookup(w.f, d, step, rows), text, "frugal_cancel");
            assert_fails(FRUGAL_ERR_ORDER, frugal_update(w.f, d, step, NULL), "look up", "");
            assert_works(frugal_drain(w.f));
            assert_works(frugal_cancel(w.f, step + 1)); /* it leaves the step as it is */
        }
    assert_works(frugal_cancel(w.f, step));
    finish(&w, 8);
}

static void test_bad_keys(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 300; n = n * 7 + 3)
        for (uint32_t devices = 1; devices <= 3; devices++)
            for (int alone = 0; alone < 4; alone++) check_bad_key(devices, (frugal_alone)alone, n);
}

#ifdef TEST_CUDA_ON_HOST
/* Who waits for a batch that its GPU is sorting is told so. */
static void test_explains_sorting(void **state) {
    (void)state;
    for (uint32_t devices = 1; devices <= 2; devices++)
        for (int on_stream = 0; on_stream < 2; on_stream++) {
            world w = on_stream ? gated(devices) : world_of(devices);
            w.desc.alone = FRUGAL_ALONE_PLACE, w.desc.stuck_seconds = 0.2, w.desc.workers = 1;
            open_world(&w);
            run(&w, 3);
            check(&w);
            cancel_all(&w);
            cuda_on_host_delay(gpu_key_stream(w.gpus[0]), 600000);
            uint64_t key = 1;
            for (uint32_t d = 0; d < devices; d++) {
                frugal_keys keys = {.keys = gpu_keys(w.gpus[d], &key, sizeof key), .n = 1};
                void *stream = gpu_key_stream(w.gpus[d]);
                assert_works(frugal_cuda_announce(w.f, d, w.step, &(frugal_batch){&keys, 1, 0}, stream));
            }
            char text[80];
            snprintf(text, sizeof text, "device 0 has not sorted its batch of step %d", (int)w.step);
            assert_fails(FRUGAL_ERR_STUCK, frugal_lookup(w.f, devices - 1, w.step, NULL), text, "");
            cuda_on_host_delay(gpu_key_stream(w.gpus[0]), 0);
            finish(&w, 0);
        }
}

typedef struct stopper {
    frugal *f;
    int ends; /* atomic: the call has returned */
} stopper;

static void *stop_late(void *argument) {
    stopper *s = argument;
    for (int i = 0; i < 3000 && !__atomic_load_n(&s->ends, __ATOMIC_RELAXED); i++) usleep(1000);
    if (!__atomic_load_n(&s->ends, __ATOMIC_RELAXED)) frugal_stop(s->f);
    return NULL;
}

/* Records are fetched although a later batch waits for its keys, behind a stream that waits at a gate. */
static void test_records_behind_keys(void **state) {
    (void)state;
    world w = gated(2);
    w.places[1].ordinal = NOBODY, w.places[1].gate_on_stream = 0, w.desc.alone = FRUGAL_ALONE_PLACE;
    open_world(&w);
    run(&w, 3);
    cancel_all(&w);
    frugal_records r;
    uint64_t key = 1;
    frugal_keys keys = {.keys = &key, .n = 1};
    const frugal_batch one = {&keys, 1, 0};
    for (uint64_t s = w.step; s < w.step + 2; s++)
        for (uint32_t d = 0; d < 2; d++) assert_works(frugal_announce(w.f, d, s, &one));
    assert_works(frugal_lookup(w.f, 0, w.step, gpu_rows(w.gpus[0])));
    assert_works(frugal_update(w.f, 0, w.step, NULL));
    assert_works(frugal_lookup(w.f, 0, w.step + 1, gpu_rows(w.gpus[0]))); /* device 1 has not updated the step before */
    keys.keys = gpu_keys(w.gpus[0], &key, sizeof key);
    gpu_wait_for(w.gpus[0], gpu_key_stream(w.gpus[0]));
    assert_works(frugal_cuda_announce(w.f, 0, w.step + 2, &one, gpu_stream(w.gpus[0])));
    pthread_t thread;
    stopper late = {w.f, 0};
    pthread_create(&thread, NULL, stop_late, &late);
    frugal_status status = frugal_get_records(w.f, 0, w.step + 1, &r);
    __atomic_store_n(&late.ends, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(FRUGAL_OK, status);
    assert_true(r.n == 1 && r.rows[0] == 1 && r.start[1] == 1 && r.order[0] == 0);
    frugal_stop(w.f);
    close_world(&w);
}
#endif

/* What announcing there refuses, before anything is enqueued. */
static void test_announce_there(void **state) {
    (void)state;
    for (uint32_t devices = 1; devices <= 2; devices++) {
        world w = world_of(devices);
        w.desc.alone = FRUGAL_ALONE_PLACE;
        open_world(&w);
        uint64_t host = 1;
        void *stream = gpu_key_stream(w.gpus[0]);
        const uint64_t *there = gpu_keys(w.gpus[0], &host, sizeof host);
        frugal_keys key = {.keys = &host, .n = 1};
        frugal_batch batch = {&key, 1, 0};
        assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_announce(NULL, 0, 0, &batch, stream), "not attached", "");
        assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_announce(w.f, devices, 0, &batch, stream), "not attached", "");
        assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_announce(w.f, 0, 0, NULL, stream), "batch is NULL", "");
        assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_announce(w.f, 0, 0, &batch, stream), "segment 0",
                     "frugal_announce");
        key.keys = there, key.table = 7;
        assert_fails(FRUGAL_ERR_TABLE, frugal_cuda_announce(w.f, 0, 0, &batch, stream), "names table 7", "");
        key.table = 0, key.keys32 = (const int32_t *)(const void *)there;
        assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_announce(w.f, 0, 0, &batch, stream), "both", "");
        key.keys32 = NULL, key.n = w.desc.max_keys + 1;
        assert_fails(FRUGAL_ERR_KEYS, frugal_cuda_announce(w.f, 0, 0, &batch, stream), "max_keys", "");
        key.n = 1;
        assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_announce(w.f, 0, 5, &batch, stream), "announce", "");
        finish(&w, 6);
    }
}

/* Keys that a kernel could not read: its fault would end the context. */
static void test_unreadable_keys(void **state) {
    (void)state;
    world w = sorting();
    open_world(&w);
    uint64_t key[2] = {1, 2};
    const uint64_t *there = gpu_keys(w.gpus[0], key, sizeof key);
    frugal_keys keys = {.n = 1};
    const frugal_batch batch = {&keys, 1, 0};
    void *stream = gpu_key_stream(w.gpus[0]);
    keys.keys = (const uint64_t *)(uintptr_t)((uintptr_t)there + 4);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_announce(w.f, 0, w.step, &batch, stream), "segment 0", "aligned");
    keys.keys = NULL, keys.keys32 = (const int32_t *)(uintptr_t)((uintptr_t)there + 2);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_announce(w.f, 0, w.step, &batch, stream), "segment 0", "aligned");
    keys.keys32 = NULL;
    if (gpus() > 1) {
        gpu *other = gpu_open(1, 8, 8, 0);
        keys.keys = gpu_keys(other, key, sizeof key);
        assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_announce(w.f, 0, w.step, &batch, stream), "segment 0", "GPU 1");
        gpu_close(other);
    }
    finish(&w, 4);
}

/* An error that the caller's thread has is neither taken for CUB's own nor ended. */
static void test_sorts_with_an_error(void **state) {
    (void)state;
    world w = sorting();
    gpu_make_error();
    caller_error = gpu_error();
    open_world(&w);
    run(&w, 10);
    judge(&w);
    finish(&w, 4);
    gpu_end_error();
    caller_error = 0;
}

static const uint64_t *key_there;

static void announce_on_default(void *argument) {
    world *w = argument;
    frugal_keys keys = {.keys = key_there, .n = 1};
    assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_announce(w->f, 0, w->step, &(frugal_batch){&keys, 1, 0}, NULL),
                 "default stream", "captured");
}

static void run_beside(void *argument) {
    run(argument, 5);
}

/* Sorting beside captures of others. */
static void test_sorts_beside_captures(void **state) {
    (void)state;
    world w = sorting();
    open_world(&w);
    run(&w, 3);
    for (int blocks = 0; blocks < 2; blocks++) gpu_capture_beside(w.gpus[0], blocks, run_beside, &w);
    cancel_all(&w);
    const uint64_t key = 1;
    key_there = gpu_keys(w.gpus[0], &key, sizeof key);
    gpu_capture_beside(w.gpus[0], 1, announce_on_default, &w);
    finish(&w, 4);
}

/* More segments than the GPU is told of: one a key, and empty ones between. */
static void test_many_segments(void **state) {
    (void)state;
    enum { MOST = 1100 };
    for (uint32_t n = 1022; n <= 1025; n++) {
        world w = sorting();
        w.desc.max_keys = MOST, w.desc.lookahead = 0;
        open_world(&w);
        run(&w, 2);
        uint64_t keys[MOST];
        frugal_keys segments[MOST];
        for (uint32_t i = 0; i < n; i++) keys[i] = i * 5 % w.table.rows;
        const uint64_t *sent = gpu_keys(w.gpus[0], keys, sizeof keys);
        for (uint32_t i = 0; i < n; i++) segments[i] = (frugal_keys){.keys = sent + i, .n = i % 3 != 1};
        const frugal_batch batch = {segments, n, 1};
        assert_works(frugal_cuda_announce(w.f, 0, w.step, &batch, gpu_key_stream(w.gpus[0])));
        assert_works(frugal_lookup(w.f, 0, w.step, NULL));
        frugal_records r;
        assert_works(frugal_get_records(w.f, 0, w.step, &r));
        uint32_t position = 0;
        for (uint32_t i = 0; i < n; i++)
            if (i % 3 != 1) assert_int_equal(keys[i], r.rows[r.record_of[position++]]);
        assert_int_equal(position, r.n);
        assert_works(frugal_update(w.f, 0, w.step, NULL));
        assert_works(frugal_drain(w.f));
        close_world(&w);
    }
}

/* The same batches on the GPU and on host cores: the same counts, also after they were set, and as they age. */
static void test_counts_there(void **state) {
    (void)state;
    enum { KEYS = 60 };
    uint64_t keys[KEYS], first[2][KEYS], counts[2][KEYS], ranked[2][KEYS], set[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) keys[i] = i, set[i] = i * i;
    frugal_keys all = {.keys = keys, .n = KEYS};
    for (int on_host = 0; on_host < 2; on_host++) {
        world w = sorting();
        w.places[0].cache_rows = 16;
        if (on_host) w.places[0].ordinal = NOBODY;
        open_world(&w);
        run(&w, 20);
        assert_works(frugal_get_counts(w.f, &all, first[on_host]));
        if (on_host) assert_memory_equal(first[0], first[1], sizeof first[0]);
        cancel_all(&w);
        assert_works(frugal_set_counts(w.f, &all, set));
        assert_works(frugal_preload(w.f, 0, &all));
        run(&w, 150); /* each count is halved twice or more */
        assert_works(frugal_get_counts(w.f, &all, counts[on_host]));
        assert_works(frugal_rank_keys(w.f, 0, KEYS, ranked[on_host], NULL));
        if (on_host) assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
        if (on_host) assert_memory_equal(ranked[0], ranked[1], sizeof ranked[0]);
        assert_in_range(counts[on_host][KEYS - 1], 700, 1100); /* 59 * 59, halved twice, and touches */
        finish(&w, 4);
    }
}

/* A stop while steps are under way: what the device was given is committed all the same. */
static void test_stop_in_order(void **state) {
    (void)state;
    world w = sorting();
    open_world(&w);
    run(&w, 5);
    uint64_t given = w.step;
    frugal_stop(w.f);
    gpu_wait(w.gpus[0]);
    assert_works(frugal_drain(w.f));
    frugal_stats stats;
    frugal_get_stats(w.f, &stats);
    assert_int_equal(given, stats.steps);
    close_world(&w);
}

#endif /* CASES_SORT_H */
