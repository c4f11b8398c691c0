/* graphs.h - steps in CUDA graphs; captures and streams that are refused; errors that are the caller's */
#ifndef CASES_GRAPHS_H
#define CASES_GRAPHS_H

#include "world.h"

typedef struct capture { /* what record_step enqueues */
    world *w;
    uint32_t device;
} capture;

static void record_step(void *argument) {
    capture *c = argument;
    gpu *g = c->w->gpus[c->device];
    const uint32_t *n = NULL;
    assert_works(frugal_cuda_capture_lookup(c->w->f, c->device, gpu_rows(g), &n));
    gpu_train(g, n, c->w->desc.dim);
    assert_works(frugal_cuda_capture_update(c->w->f, c->device, gpu_grads(g)));
}

static void replay_step(world *w, int plain) { /* bit d of `plain`: device d without its graph */
    announce(w, w->step + 1 + w->desc.lookahead);
    for (int on_host = 0; on_host < 2; on_host++)
        for (uint32_t d = 0; d < w->desc.devices; d++) {
            if ((w->gpus[d] == NULL) != on_host) continue;
            if (!w->gpus[d] || plain >> d & 1) {
                lookup(w, d), train(w, d), update(w, d);
                continue;
            }
            frugal_gradients g = {.records = batch_of(w, d, w->step)->brings, .lr = lr_of(w, w->step)};
            assert_works(frugal_cuda_replay(w->f, d, w->step, &g));
            w->first_trained[d][w->step % MOST_STEPS] = w->trained[d];
            w->trained[d]++;
            gpu_launch(w->gpus[d]);
        }
    w->step++;
}

static void check_graph(int gate_on_stream, uint32_t devices, int mixed, uint32_t groups) {
    for (int i = 0; i < 4; i++) {
        world w = world_of(devices);
        w.desc.max_keys = 70, w.desc.dim = i % 2 ? 8 : 5;
        w.desc.lookahead = (uint32_t)(i == 2 ? 0 : 6), w.desc.workers = (uint32_t)gate_on_stream;
        w.desc.optimizer.kind = (frugal_optimizer_kind)i;
        w.kept = 64, w.n_tables = groups;
        w.make = i == 3 && !groups ? all_equal : NULL;
        for (uint32_t d = 0; d < devices; d++) w.places[d].gate_on_stream = gate_on_stream, w.places[d].unaligned = d;
        if (mixed) w.places[devices - 1] = (place){.ordinal = NOBODY, .cache_rows = 16};
        open_world(&w);
        for (uint32_t d = 0; d < devices; d++) {
            capture c = {&w, d};
            if (w.gpus[d]) gpu_capture(w.gpus[d], record_step, &c);
        }
        run(&w, 3);
        for (int k = 0; k < (test_is_short() ? 10 : 30); k++) replay_step(&w, k % 5 == 3 ? k % 4 : 0);
        check(&w);
        cancel_all(&w);
        int more = test_is_short() && i > 0 ? 8 : 80 / SHORTER; /* 80 is more than there are descriptors */
        for (int k = 0; k < more; k++) {
            replay_step(&w, 0);
            if (k % 50 == 49) judge(&w);
        }
        finish(&w, 3);
    }
}

static void test_graphs(void **state) {
    (void)state;
    check_graph(0, 1, 0, 0);
    check_graph(0, 2, 1, 0);
}

static void test_graphs_of_groups(void **state) {
    (void)state;
    check_graph(0, 1, 0, 5);
    check_graph(1, 2, 0, 3);
}

static void test_graphs_of_frozen_rows(void **state) {
    (void)state;
    check_graph(0, 1, 0, 1);
    check_graph(1, 2, 0, 1);
}

static void test_graphs_gated(void **state) {
    (void)state;
    check_graph(1, 1, 0, 0);
    check_graph(1, 3, 1, 0);
}

static void test_graph_errors(void **state) {
    (void)state;
    world w = world_of(2);
    w.places[1].ordinal = NOBODY;
    w.lr_changes = 0;
    open_world(&w);
    float *rows = rows_at(&w, 0);
    const uint32_t *n;
    frugal_gradients g = {.grads = rows, .lr = 0.1f}, none = {.records = 1, .lr = 0.2f};
    assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_capture_lookup(w.f, 0, rows, &n), "cuda_capture_lookup",
                 "not being captured");
    assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_capture_update(w.f, 0, rows), "cuda_capture_update",
                 "not being captured");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_capture_lookup(w.f, 1, rows, &n), "device 1", "not attached");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_capture_update(w.f, 7, rows), "device 7", "not attached");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_capture_lookup(NULL, 0, rows, &n), "device 0", "not attached");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_replay(w.f, 1, 0, NULL), "device 1", "not attached");
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_replay(NULL, 0, 0, NULL), "device 0", "not attached");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_replay(w.f, 0, 0, &g), "`grads`", "`records`");
    assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_replay(w.f, 0, 1, NULL), "step 1", "0");
    capture c = {&w, 0};
    gpu_capture(w.gpus[0], record_step, &c);
    run(&w, 4);
    judge(&w);
    announce(&w, w.step + 1);
    /* Another rate than the device before has fixed: said, and the step is replayed all the same. */
    lookup(&w, 1), train(&w, 1);
    batch_of(&w, 1, w.step)->brings = batch_of(&w, 0, w.step)->brings = 1;
    update(&w, 1);
    assert_fails(FRUGAL_ERR_SETTINGS, frugal_cuda_replay(w.f, 0, w.step, &none), "learning rate", "0.2");
    none.lr = 0.1f;
    assert_works(frugal_cuda_replay(w.f, 0, w.step, &none));
    w.first_trained[0][w.step % MOST_STEPS] = w.trained[0], w.trained[0]++;
    assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_replay(w.f, 0, w.step, &none), "step", "next");
    gpu_launch(w.gpus[0]);
    w.step++;
    check(&w);
    finish(&w, 3);
}

/* A caller's error, of whatever call, is still there after ours, and none of ours takes it for its own. */
static void test_callers_error(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        world w = world_of(2);
        w.desc.workers = (uint32_t)(i & 1), w.n_tables = i & 2 ? 3 : 0, w.kept = 64;
        w.places[0].gate_on_stream = i & 1;
        w.places[1].ordinal = i == 3 ? NOBODY : 0;
        gpu_make_error();
        caller_error = gpu_error();
        assert_true(caller_error != 0);
        open_world(&w);
        uint64_t row = 0;
        frugal_keys keys = {.table = 0, .keys = &row, .n = 1};
        assert_works(frugal_preload(w.f, 0, &keys));
        assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_attach(w.f, 0, 0, NULL), "device 0", "attached already");
        run(&w, 10);
        judge(&w);
        capture c = {&w, 0};
        gpu_capture(w.gpus[0], record_step, &c);
        for (int k = 0; k < 5; k++) replay_step(&w, ~1);
        check(&w);
        assert_fails(FRUGAL_ERR_ARGUMENT,
                     frugal_cuda_replay(w.f, 0, w.step, &(frugal_gradients){.grads = rows_at(&w, 0)}), "`grads`",
                     "`records`");
        cancel_all(&w);
        finish(&w, 3);
        gpu_end_error();
        caller_error = 0;
    }
}

/* A gate that waits on a stream with which the default stream waits could keep shut whoever would open it. */
static void test_blocking_streams(void **state) {
    (void)state;
    world w = world_of(1);
    w.desc.workers = 1;
    open_instance(&w);
    frugal_cuda_desc desc = {.gate_on_stream = 1};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_attach(w.f, 0, 0, &desc), "the default stream itself",
                 "cudaStreamNonBlocking");
    desc.stream = gpu_blocking_stream(w.gpus[0]);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_attach(w.f, 0, 0, &desc), "a stream that blocks",
                 "clear gate_on_stream");
    desc.gate_on_stream = 0, desc.cache_rows = 16; /* where the host waits, any stream will do */
    assert_works(frugal_cuda_attach(w.f, 0, 0, &desc));
    uint64_t row = 3;
    frugal_keys keys = {.table = 0, .keys = &row, .n = 1};
    frugal_batch batch = {&keys, 1, 0};
    float looked_up[8], now[8];
    for (uint64_t s = 0; s < 4; s++) {
        assert_works(frugal_announce(w.f, 0, s, &batch));
        assert_works(frugal_read_rows(w.f, &keys, now, NULL));
        assert_works(frugal_lookup(w.f, 0, s, gpu_rows(w.gpus[0])));
        gpu_wait_for(w.gpus[0], desc.stream);
        gpu_get(w.gpus[0], looked_up, gpu_rows(w.gpus[0]), sizeof looked_up);
        assert_memory_equal(now, looked_up, sizeof now);
        assert_works(frugal_update(w.f, 0, s, &(frugal_gradients){.grads = gpu_rows(w.gpus[0]), .lr = 0.1f}));
        assert_works(frugal_drain(w.f));
        assert_works(frugal_verify(w.f));
    }
    close_world(&w);
}

static void record_nothing(void *argument) { /* what must not be given to a graph */
    capture *c = argument;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_capture_lookup(c->w->f, 0, NULL, NULL), "cuda_capture_lookup",
                 "`rows` is NULL");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_capture_update(c->w->f, 0, NULL), "cuda_capture_update",
                 "`grads` is NULL");
    assert_works(frugal_cuda_capture_lookup(c->w->f, 0, gpu_rows(c->w->gpus[0]), NULL));
}

static void test_capture_of_nothing(void **state) {
    (void)state;
    world w = world_of(1);
    open_world(&w);
    capture c = {&w, 0};
    gpu_capture(w.gpus[0], record_nothing, &c);
    finish(&w, 3);
}

#endif /* CASES_GRAPHS_H */
