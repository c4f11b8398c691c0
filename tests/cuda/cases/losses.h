/* losses.h - lost devices */
#ifndef CASES_LOSSES_H
#define CASES_LOSSES_H

#include "world.h"

/* A step of all devices; or the status of the first call that failed. */
static frugal_status try_step(world *w) {
    frugal_status status = FRUGAL_OK;
    for (uint32_t d = 0; d < w->desc.devices && status == FRUGAL_OK; d++)
        while (w->announced[d] <= w->step && status == FRUGAL_OK) status = try_announce(w, d);
    for (uint32_t d = 0; d < w->desc.devices && status == FRUGAL_OK; d++)
        status = frugal_lookup(w->f, d, w->step, rows_at(w, d));
    for (uint32_t d = 0; d < w->desc.devices && status == FRUGAL_OK; d++) {
        /* Gradients that the reference has, too: of its own rows, since the device's may be garbage by now. */
        const batch *b = batch_of(w, d, w->step);
        frugal_gradients g = gradients_of(w, d);
        if (!w->gpus[d])
            train(w, d);
        else if (b->brings && !gpu_try_train(w->gpus[d], NULL, w->desc.dim))
            g.grads = gpu_rows(w->gpus[d]);
        status = frugal_update(w->f, d, w->step, &g);
    }
    return status;
}

/* The reference takes the steps that are in the drained table. */
static void follow(world *w, uint64_t steps) {
    for (; w->judged < steps; w->judged++) {
        reference_batch brought[DEVICES];
        for (uint32_t d = 0; d < w->desc.devices; d++) {
            const batch *b = batch_of(w, d, w->judged);
            for (uint32_t i = 0; i < b->n; i++)
                for (uint32_t e = 0; e < w->desc.dim; e++)
                    w->grads[d][i * w->desc.dim + e] =
                        gpu_gradient(w->ref.weights[(uint64_t)b->rows[i] * w->desc.dim + e], i * w->desc.dim + e);
            brought[d] = (reference_batch){b->rows, b->n, b->brings ? w->grads[d] : NULL};
        }
        reference_step(&w->ref, w->judged, lr_of(w, w->judged), brought);
    }
}

/* Trains until a device is lost; then nobody hangs, and what is drained is the reference after some step: that up to
 * which all devices are through, and no step before the last that was seen to be through. */
static void check_loss(int gate_on_stream, uint32_t devices, int on_host, uint64_t n) {
    world w = gated(devices);
    w.desc.lookahead = 4, w.desc.staging = n % 3 ? 0 : 2;
    for (uint32_t d = 0; d < devices; d++) w.places[d].gate_on_stream = gate_on_stream, w.places[d].ordinal = d > 0;
    if (on_host) w.places[devices - 1] = (place){.ordinal = NOBODY, .cache_rows = 16};
    if (on_host) w.desc.workers = gate_on_stream ? 1 : 0;
    open_world(&w);
    run(&w, 2);
    judge(&w);
    uint64_t known = w.step; /* steps that all are through with */
    cuda_on_host_lose_at_launch(0, n);
    int lost = 0;
    for (int i = 0; i < 12 && !lost; i++) {
        frugal_status status = try_step(&w);
        lost = status != FRUGAL_OK;
        if (!lost)
            w.step++;
        else if (status != FRUGAL_ERR_LOST && status != FRUGAL_ERR_CUDA)
            fail_msg("%d: %s", (int)status, frugal_message());
        else if (!strstr(frugal_message(), "cudaErrorLaunchFailure") && !strstr(frugal_message(), "error 719"))
            fail_msg("no reason: %s", frugal_message());
    }
    if (!lost) frugal_drain(w.f);                    /* of 12 steps the last may hang about in streams */
    for (uint32_t d = 0; d < devices && lost; d++) { /* nobody waits for ever, whatever is called again */
        frugal_status status = frugal_lookup(w.f, d, w.step, rows_at(&w, d));
        if (status == FRUGAL_OK || status == FRUGAL_ERR_STUCK)
            fail_msg("device %u: %d, %s", d, (int)status, frugal_message());
    }
    assert_works(frugal_drain(w.f));
    if (lost) assert_int_equal(FRUGAL_ERR_LOST, frugal_verify(w.f)); /* not that a copy differs */
    frugal_stats stats;
    frugal_get_stats(w.f, &stats);
    assert_true(stats.steps >= known && stats.steps <= w.step + 1);
    follow(&w, stats.steps);
    compare(&w);
    close_world(&w);
    cuda_on_host_reset();
    gpu_set_current(caller_gpu);
}

static void test_loss(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 24; n += SHORTER > 1 ? 4 : 1) {
        check_loss(0, 1, 0, n);
        check_loss(0, 2, 0, n);
        check_loss(0, 3, 1, n);
    }
}

static void test_loss_at_gates(void **state) {
    (void)state;
#ifdef UNDER_TSAN
    print_message("# SKIPPED under ThreadSanitizer: rows are read through gates that are forced open, by design\n");
    skip();
#endif
    for (uint64_t n = 1; n <= 24; n += SHORTER > 1 ? 4 : 1) {
        check_loss(1, 2, 0, n);
        check_loss(1, 3, 1, n);
    }
}

#endif /* CASES_LOSSES_H */
