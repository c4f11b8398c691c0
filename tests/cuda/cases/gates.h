/* gates.h - gates on streams */
#ifndef CASES_GATES_H
#define CASES_GATES_H

#include "world.h"

static void check_gated(uint32_t devices, int mixed, int steps) {
    for (int i = 0; i < 4; i++) {
        world w = gated(devices);
        w.desc.optimizer.kind = (frugal_optimizer_kind)i;
        w.desc.mode = i == 3 ? FRUGAL_SYNC : FRUGAL_P2F;
        if (i == 1) w.desc.staging = 1;
        if (mixed) w.places[0].ordinal = NOBODY, w.places[0].gate_on_stream = 0;
        if (mixed && i % 2) w.places[1].gate_on_stream = 0;
        open_world(&w);
        run(&w, steps);
        check(&w);
        cancel_all(&w);
        finish(&w, steps);
    }
}

static void test_gates(void **state) {
    (void)state;
    check_gated(1, 0, 40);
    check_gated(3, 0, 30);
}

static void test_gates_mixed(void **state) {
    (void)state;
    check_gated(2, 1, 30);
    check_gated(3, 1, 30);
}

/* Streams may share a queue of the GPU: nobody waits there before all have been given the step before. */
static void test_in_step(void **state) {
    (void)state;
    world w = gated(2);
    w.desc.stuck_seconds = 0.2;
    open_world(&w);
    run(&w, 5);
    check(&w);
    uint64_t step = w.step;
    lookup(&w, 0), train(&w, 0), update(&w, 0);
    assert_int_equal(FRUGAL_AGAIN, frugal_try_lookup(w.f, 0, step + 1, rows_at(&w, 0)));
    assert_fails(FRUGAL_ERR_STUCK, frugal_lookup(w.f, 0, step + 1, rows_at(&w, 0)), "device 1 has not updated",
                 "on every device first");
    lookup(&w, 1), train(&w, 1), update(&w, 1);
    w.step++;
    run(&w, 5);
    check(&w);
    finish(&w, 2);
}

/* A stream waits at a gate that will not open: a device on the host does not come. */
static void test_stop_at_a_gate(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        world w = gated(2);
        w.places[1].ordinal = NOBODY, w.places[1].gate_on_stream = 0;
        open_world(&w);
        run(&w, 5);
        check(&w);
        /* Of device 0 alone. What is kept is recalled only up to the next gate. */
        for (int i = 0; i < (w.desc.alone == FRUGAL_ALONE_KEPT ? 2 : 4); i++) {
            lookup(&w, 0);
            frugal_gradients g = {.grads = gpu_grads(w.gpus[0]), .lr = 0.1f};
            assert_works(frugal_update(w.f, 0, w.step, batch_of(&w, 0, w.step)->brings ? &g : NULL));
            w.step++;
        }
        w.step = w.judged;
        if (how == 0) {
            frugal_stop(w.f);
            assert_fails(FRUGAL_STOPPED, frugal_lookup(w.f, 1, w.step, rows_at(&w, 1)), "lookup", "stopped");
            gpu_wait(w.gpus[0]); /* the stream is not stuck */
        }
        close_world(&w);
    }
}

/* Another thread frees memory of the GPU, over and over: that waits for all streams, so also for one at a gate, and may
 * let no other call through. The gate opens nevertheless, also when the GPU has been silent for so long that the driver
 * is asked whether it lives. */
static void *free_main(void *ends) {
    while (!__atomic_load_n((int *)ends, __ATOMIC_RELAXED)) {
        gpu *g = gpu_open(0, 64, 8, 0);
        usleep(20000); /* steps are enqueued meanwhile */
        gpu_close(g);
    }
    return NULL;
}

static void test_freed_at_a_gate(void **state) {
    (void)state;
    for (int i = 0; i < (test_is_short() ? 1 : 4); i++) {
        world w = gated(2);
        pthread_t thread;
        int ends = 0;
        open_world(&w);
#ifdef TEST_CUDA_ON_HOST
        cuda_on_host_delay(gpu_stream(w.gpus[1]), 25000);
#endif
        assert_int_equal(0, pthread_create(&thread, NULL, free_main, &ends));
        for (int step = 0; step < 8; step++)
            enqueue_step(&w, 2); /* far less ahead than it may: nothing waits for closing */
        check(&w);
        __atomic_store_n(&ends, 1, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        close_world(&w);
    }
}

#ifdef TEST_CUDA_ON_HOST
/* Closed while batches are told to GPUs. */
static void test_close_while_told(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        world w = world_of(2);
        w.places[1].ordinal = NOBODY, w.desc.alone = FRUGAL_ALONE_PLACE, w.desc.workers = 2, w.desc.lookahead = 10;
        open_world(&w);
        for (int t = 0; t < 8; t++) assert_works(try_announce(&w, 0));
        usleep(5000); /* sorted, and found */
        for (int t = 0; t < 8; t++) assert_works(try_announce(&w, 1));
        close_world(&w);
    }
}

static void *free_all(void *unused) {
    gpu *g = gpu_open(0, 64, 8, 0);
    (void)unused;
    gpu_close(g); /* waits for the whole GPU */
    return NULL;
}

/* A stream waits at a gate that nobody will open, another thread for the whole GPU, and a batch is to be told. */
static void test_close_at_a_gate(void **state) {
    (void)state;
    world w = gated(2);
    w.places[1].ordinal = NOBODY, w.places[1].gate_on_stream = 0, w.desc.alone = FRUGAL_ALONE_PLACE;
    open_world(&w);
    run(&w, 3);
    cancel_all(&w);
    const frugal_batch empty = {NULL, 0, 0};
    for (uint64_t s = w.step; s < w.step + 3; s++)
        for (uint32_t d = 0; d < 2; d++)
            if (d == 0 || s < w.step + 2) assert_works(frugal_announce(w.f, d, s, &empty));
    assert_works(frugal_lookup(w.f, 0, w.step, NULL));
    assert_works(frugal_update(w.f, 0, w.step, NULL));
    assert_works(frugal_lookup(w.f, 0, w.step + 1, NULL));
    pthread_t thread;
    pthread_create(&thread, NULL, free_all, NULL);
    usleep(50000);
    assert_works(frugal_announce(w.f, 1, w.step + 2, &empty)); /* seals it, so device 0 is told */
    usleep(20000);
    close_world(&w);
    pthread_join(thread, NULL);
}
#endif

#endif /* CASES_GATES_H */
