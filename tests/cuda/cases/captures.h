/* captures.h - captures of streams that are not ours: no call spoils them; and the default stream, in all ways of
 * compiling a trainer. */
#ifndef CASES_CAPTURES_H
#define CASES_CAPTURES_H

#include "world.h"

static void attach_all(void *argument) {
    world *w = argument;
    for (uint32_t d = 0; d < w->desc.devices; d++) assert_works(attach(w, d));
}

static void train_beside(void *argument) {
    world *w = argument;
    for (int i = 0; i < 6; i++) {
        announce(w, w->step + 1 + w->desc.lookahead);
        for (uint32_t d = 0; d < w->desc.devices; d++) lookup(w, d), train(w, d);
        for (uint32_t d = 0; d < w->desc.devices; d++) {
            double squares;
            frugal_gradients g = gradients_of(w, d);
            if (g.grads && !w->places[d].gate_on_stream)
                assert_works(frugal_sum_squares(w->f, d, w->step, &g, &squares));
            update(w, d);
        }
        w->step++;
    }
    cancel_all(w);
}

static void look_after(void *argument) { /* all that is called between steps */
    world *w = argument;
    uint64_t keys[] = {1, 5, 7}, counts[] = {9, 8, 7};
    float rows[3 * 8];
    const frugal_keys some = {.table = 0, .keys = keys, .n = 3};
    assert_works(frugal_read_rows(w->f, &some, rows, NULL));
    assert_works(frugal_drain(w->f));
    assert_works(frugal_verify(w->f));
    assert_works(frugal_set_counts(w->f, &some, counts));
    assert_works(frugal_release_holders(w->f));
    for (uint32_t d = 0; d < w->desc.devices; d++) assert_works(frugal_preload(w->f, d, &some));
    assert_works(frugal_secondaries(w->f, 0, &some, 0));
    assert_works(frugal_verify(w->f));
}

static void close_instance(void *argument) {
    world *w = argument;
    frugal_close(w->f);
    w->f = NULL;
}

/* From attaching to closing, beside a capture in the mode that forbids most. */
static void test_captures_of_others(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        world w = world_of(2);
        int blocks = i & 1;
        w.desc.alone = (frugal_alone)(i % 4), w.desc.workers = 1, w.kept = 64;
        w.places[0].gate_on_stream = i & 4;
        w.places[1].policy = i & 2 ? FRUGAL_CACHE_LRU : FRUGAL_CACHE_COUNTED;
        open_instance(&w);
        gpu_capture_beside(w.gpus[0], blocks, attach_all, &w);
        open_reference(&w);
        for (int again = 0; again < 2; again++) {
            gpu_capture_beside(w.gpus[0], blocks, train_beside, &w);
            check(&w);
            gpu_capture_beside(w.gpus[0], blocks, look_after, &w);
        }
        run(&w, 3);
        check(&w);
        gpu_capture_beside(w.gpus[0], blocks, close_instance, &w);
        close_world(&w);
    }
}

/* >>the default stream */

typedef struct default_world {
    world *w;
    uint64_t step;
} default_world;

static const uint64_t one_row = 3;
static const frugal_keys one_key = {.table = 0, .keys = &one_row, .n = 1};

static frugal_status step_on_default(default_world *x) {
    const frugal_batch batch = {.segments = &one_key, .n_segments = 1};
    float *rows = gpu_rows(x->w->gpus[0]);
    frugal_status status = frugal_announce(x->w->f, 0, x->step, &batch);
    if (status == FRUGAL_OK) status = frugal_lookup(x->w->f, 0, x->step, rows);
    if (status == FRUGAL_OK)
        status = frugal_update(x->w->f, 0, x->step, &(frugal_gradients){.grads = rows, .lr = 0.1f});
    if (status == FRUGAL_OK) x->step++;
    return status;
}

static void refused_beside(void *argument) { /* the default stream would wait for what is captured */
    default_world *x = argument;
    float *rows = gpu_rows(x->w->gpus[0]);
    assert_works(frugal_announce(x->w->f, 0, x->step, &(frugal_batch){.segments = &one_key, .n_segments = 1}));
    assert_fails(FRUGAL_ERR_ORDER, frugal_lookup(x->w->f, 0, x->step, rows), "has the default stream",
                 "a stream of its own");
}

static void update_refused(void *argument) {
    default_world *x = argument;
    frugal_gradients g = {.grads = gpu_rows(x->w->gpus[0]), .lr = 0.1f};
    assert_fails(FRUGAL_ERR_ORDER, frugal_update(x->w->f, 0, x->step, &g), "has the default stream", "end the capture");
}

static void attach_refused(void *argument) {
    world *w = argument;
    assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_attach(w->f, 0, 0, NULL), "cuda_attach", "has the default stream");
}

/* NULL is the legacy default stream, however trainer and library are compiled: no call of ours leaves that to how it
 * was compiled. And where it cannot be used, because a stream that blocks is being captured, that is said, and the
 * capture goes on. */
static void test_default_stream(void **state) {
    (void)state;
    world w = world_of(1);
    w.desc.alone = FRUGAL_ALONE_KEPT;
    default_world x = {&w, 0};
    float before[8], after[8];
    open_instance(&w);
    w.places[0].cache_rows = 16;
    frugal_cuda_desc desc = {.cache_rows = 16, .stream = (void *)(uintptr_t)2};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_attach(w.f, 0, 0, &desc), "cudaStreamPerThread", "give NULL");
    gpu_capture_beside(w.gpus[0], 1, attach_refused, &w);
    desc.stream = NULL;
    assert_works(frugal_cuda_attach(w.f, 0, 0, &desc));
    assert_works(frugal_preload(w.f, 0, &one_key));
    assert_works(frugal_read_rows(w.f, &one_key, before, NULL));
    for (int i = 0; i < 3; i++) assert_works(step_on_default(&x));
    gpu_capture_beside(w.gpus[0], 1, refused_beside, &x);
    assert_works(frugal_lookup(w.f, 0, x.step, gpu_rows(w.gpus[0])));
    gpu_capture_beside(w.gpus[0], 1, update_refused, &x);
    assert_works(frugal_update(w.f, 0, x.step, &(frugal_gradients){.grads = gpu_rows(w.gpus[0]), .lr = 0.1f}));
    assert_works(frugal_read_rows(w.f, &one_key, after, NULL));
    assert_memory_not_equal(before, after, sizeof before);
    assert_works(frugal_drain(w.f));
    assert_works(frugal_verify(w.f));
    assert_works(frugal_release_holders(w.f));
    close_instance(&w);
#ifdef TEST_CUDA_ON_HOST
    assert_int_equal(0, (int)cuda_on_host_default_streams());
#endif
    close_world(&w);
}

#endif /* CASES_CAPTURES_H */
