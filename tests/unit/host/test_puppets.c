/* test_puppets.c - what calls wait for, say and do where a device that works on when a call has returned has not come
 * far enough, refuses a call, is lost, or is stopped in the middle. The devices are those of puppet.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/unit/host/puppet.h"
#include "tests/unit/host/refused.h"

/* Two puppets, of which the first one may wait at gates itself. */
static frugal *open_two(puppet p[2], frugal_alone alone) {
    const frugal_device_ops *ops = alone == FRUGAL_ALONE_KEPT ? &keeping_puppet_ops : &puppet_ops;
    frugal *f = open_for_puppets(alone);
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_attach(f, d, ops, &p[d]));
    return f;
}

static uint64_t steps_of(frugal *f) {
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    return stats.steps;
}

static void announce_row_3(frugal *f, uint32_t d, uint64_t step) {
    const uint64_t key = 3;
    const frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    assert_int_equal(FRUGAL_OK, frugal_announce(f, d, step, &(frugal_batch){&keys, 1, 0}));
}

/* >>what a lookup of a device that waits at gates itself waits for */

/* A device that is not there has not announced the step. */
static void test_not_attached(void **state) {
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        puppet p = {.waits = 1};
        frugal *f = open_for_puppets(keeps ? FRUGAL_ALONE_KEPT : FRUGAL_ALONE_STAGED);
        assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, keeps ? &keeping_puppet_ops : &puppet_ops, &p));
        announce_none(f, 0, 0);
        assert_stuck(frugal_lookup(f, 0, 0, NULL), "device 1 has not announced step 0");
        frugal_close(f);
    }
}

/* The other device shares its queue, perhaps: it must have been given its update first. */
static void test_not_updated(void **state) {
    (void)state;
    puppet p[2] = {{.waits = 1}, {0}};
    frugal *f = open_two(p, FRUGAL_ALONE_STAGED);
    for (uint64_t t = 0; t < 2; t++)
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, t);
    step_of_none(f, 0, 0);
    assert_stuck(frugal_lookup(f, 0, 1, NULL), "device 1 has not updated step 0; update it on every device first");
    step_of_none(f, 1, 0);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 1, NULL));
    frugal_close(f);
}

/* A row that the other device keeps is recalled, and that device must have begun with it. */
static void test_not_begun_to_recall(void **state) {
    (void)state;
    puppet p[2] = {{.waits = 1}, {.asks_again = 1}};
    const float grads[5] = {1, 1, 1, 1, 1};
    frugal *f = open_for_puppets(FRUGAL_ALONE_KEPT);
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &puppet_ops, &p[0])); /* it keeps nothing */
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &keeping_puppet_ops, &p[1]));
    announce_none(f, 0, 0);
    announce_row_3(f, 1, 0);
    step_of_none(f, 0, 0);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 1, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_update(f, 1, 0, &(frugal_gradients){.grads = grads, .lr = 1}));
    announce_row_3(f, 0, 1);
    announce_none(f, 1, 1);
    assert_stuck(frugal_lookup(f, 0, 1, NULL), "device 1 has not begun to write back what is recalled for step 1");
    p[1].asks_again = 0;
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 1, NULL));
    frugal_close(f);
}

/* A device whose data has ended is not waited for: its own batch is what is missing. */
static void test_beside_a_finished_one(void **state) {
    (void)state;
    puppet p[2] = {{0}, {.waits = 1}};
    frugal *f = open_two(p, FRUGAL_ALONE_KEPT);
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
    for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 0);
    assert_int_equal(FRUGAL_OK, frugal_finish(f, 0));
    assert_stuck(frugal_lookup(f, 1, 1, NULL), "device 1 has not announced step 1");
    announce_none(f, 1, 1);
    p[0].done = p[1].done = 1; /* nothing of step 1 is asked of the first one */
    step_of_none(f, 1, 1);
    assert_stuck(frugal_drain(f), "step 1 is not committed: device 1 has not finished it");
    p[1].done = 2;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(2, steps_of(f));
    frugal_close(f);
}

/* The same where the host waits for the gate. */
static void test_at_a_gate_beside_a_finished_one(void **state) {
    (void)state;
    puppet p = {0};
    frugal *f = open_stepped_puppet(&p, 1);
    p.done = 1;
    assert_int_equal(FRUGAL_OK, frugal_finish(f, 0));
    assert_stuck(frugal_lookup(f, 1, 1, NULL), "device 1 has not announced step 1");
    announce_none(f, 1, 1);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 1, 1, NULL));
    frugal_close(f);
}

static void finish_0(void *f) {
    assert_int_equal(FRUGAL_OK, frugal_finish(f, 0));
}

/* The batch that is waited for will not come: by a device that waits at gates itself, or by the host. */
static void test_finished_meanwhile(void **state) {
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        puppet p[2] = {{.waits = waits}, {0}};
        frugal *f = open_two(p, FRUGAL_ALONE_STAGED);
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
        for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 0);
        p[1].in_poll = finish_0, p[1].argument = f; /* while this thread helps */
        assert_fails(FRUGAL_FINISHED, frugal_lookup(f, 0, 1, NULL), "its data has ended before step 1",
                     "frugal_finish");
        frugal_close(f);
    }
}

/* >>draining where devices keep updates: they are asked when they have done what they were given */

/* One device has been given step 0, the other one has not, so the drain does not wait for the step. */
static frugal *open_half(puppet p[2], uint32_t given) {
    frugal *f = open_two(p, FRUGAL_ALONE_KEPT);
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
    step_of_none(f, given, 0);
    return f;
}

static void test_drain_waits(void **state) {
    (void)state;
    for (uint32_t given = 0; given < 2; given++) {
        puppet p[2] = {{0}, {0}};
        frugal *f = open_half(p, given);
        assert_stuck(frugal_drain(f), "drain, step 1: nothing has moved for 0.02 s");
        assert_true(p[0].written == 0 && p[1].written == 0);
        p[given].done = 1;
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_true(p[0].written == 1 && p[1].written == 1);
        assert_int_equal(FRUGAL_OK, frugal_lookup(f, 1 - given, 0, NULL));
        assert_int_equal(FRUGAL_OK, frugal_drain(f)); /* in the middle of its step: its gate is open */
        assert_true(p[0].written == 2 && p[1].written == 2);
        frugal_close(f);
    }
}

static void stop_it(void *f) {
    frugal_stop(f);
}

/* After a stop, before the drain or in the middle of it, they are asked all the same. */
static void test_drain_and_stop(void **state) {
    (void)state;
    for (int before = 0; before < 2; before++) {
        puppet p[2] = {{0}, {0}};
        frugal *f = open_half(p, 1);
        if (before)
            frugal_stop(f);
        else
            p[1].in_poll = stop_it, p[1].argument = f, p[1].polls = 1; /* while its step is waited for */
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_null(p[1].in_poll);
        assert_true(p[0].written == 1 && p[1].written == 1);
        assert_fails(FRUGAL_STOPPED, frugal_lookup(f, 0, 0, NULL), "lookup", "stopped");
        frugal_close(f);
    }
}

static void lose_it(void *device) {
    puppet *p = device;
    p->is_lost = 1;
}
static int verify_unless_lost(void *device) {
    return !((const puppet *)device)->is_lost;
}

/* One is lost in the middle of the drain: the other one is asked. All that is known is drained, but it cannot be
 * compared with the copies of the lost one. */
static void test_drain_and_loss(void **state) {
    (void)state;
    puppet p[2] = {{0}, {0}};
    frugal_device_ops ops = keeping_puppet_ops;
    ops.verify = verify_unless_lost;
    frugal *f = open_for_puppets(FRUGAL_ALONE_KEPT);
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_attach(f, d, &ops, &p[d]));
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
    step_of_none(f, 1, 0);
    p[1].in_poll = lose_it, p[1].argument = &p[1], p[1].polls = 1;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_true(p[1].in_poll == NULL && p[0].written == 1 && p[1].written == 0);
    assert_fails(FRUGAL_ERR_LOST, frugal_verify(f), "verify: device 1 was lost", "the test took the puppet away");
    assert_fails(FRUGAL_ERR_LOST, frugal_lookup(f, 0, 0, NULL), "lookup: device 1 was lost", "");
    frugal_close(f);
}

/* A device that is not attached yet is not asked. */
static void test_drain_without_one(void **state) {
    (void)state;
    puppet p = {0};
    frugal *f = open_for_puppets(FRUGAL_ALONE_KEPT);
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &keeping_puppet_ops, &p));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(1, p.written);
    frugal_close(f);
}

/* Steps that are taken back after a stop do not close gates that were forced open. */
static void test_cancel_after_stop(void **state) {
    (void)state;
    puppet p = {.waits = 1};
    frugal *f = open_puppet(&p, 1);
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
    frugal_stop(f);
    uint64_t forced = *frugal_gates(f);
    assert_true(forced > FRUGAL_GATES_FORCED);
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 0));
    assert_true(*frugal_gates(f) == forced);
    frugal_close(f);
}

/* Whatever the first step is, the number of gates that are forced open does not wrap: the step goes on. */
static void test_stop_at_the_last_first_step(void **state) {
    (void)state;
    const uint64_t first = FRUGAL_MAX_FIRST_STEP;
    puppet p = {.waits = 1};
    frugal_desc desc = rig_desc();
    desc.first_step = first;
    frugal *f = open_or_fail(&desc);
    attach_puppet(f, &p, 0);
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, first);
    frugal_stop(f);
    assert_true(*frugal_gates(f) > first && *frugal_gates(f) - first > FRUGAL_GATES_FORCED);
    frugal_close(f);
}

/* >>calls that are refused */

/* An argument that a device refuses says nothing about the device, so it is not asked whether it is lost. */
static void test_refused_argument(void **state) {
    (void)state;
    puppet p = {.refuses = FRUGAL_ERR_ARGUMENT, .is_lost = 1};
    frugal *f = open_puppet(&p, 0);
    for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_lookup(f, 0, 0, NULL), "the puppet does not do that", "");
    p.refuses = FRUGAL_ERR_MEMORY;
    assert_fails(FRUGAL_ERR_LOST, frugal_lookup(f, 0, 0, NULL), "lookup: device 0 was lost", "took the puppet away");
    frugal_close(f);
}

/* Sums of squares: a kind of device that has none; a device that fails; the end of training. */
static void test_sums(void **state) {
    (void)state;
    const float grads[5] = {0};
    const frugal_gradients g = {.grads = grads, .lr = 1};
    for (int stops = 0; stops < 2; stops++) {
        puppet p = {0};
        double squares = 0;
        frugal_records records;
        frugal_device_ops ops = puppet_ops;
        ops.squares = puppet_squares;
        frugal *f = open_for_puppets(FRUGAL_ALONE_STAGED);
        assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, &p));
        assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &puppet_ops, &p));
        for (uint32_t d = 0; d < 2; d++) announce_none(f, d, 0);
        for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_lookup(f, d, 0, NULL));
        assert_fails(FRUGAL_ERR_DEVICE, frugal_sum_squares(f, 1, 0, &g, &squares), "sum_squares: device 1", "no such");
        assert_int_equal(FRUGAL_OK, frugal_sum_squares(f, 0, 0, &g, &squares));
        assert_true(squares == 7);
        p.refuses = FRUGAL_ERR_MEMORY;
        assert_fails(FRUGAL_ERR_MEMORY, frugal_sum_squares(f, 0, 0, &g, &squares), "the puppet does not do that", "");
        frugal_status end = stops ? FRUGAL_STOPPED : FRUGAL_ERR_LOST;
        if (stops) frugal_stop(f);
        p.is_lost = !stops;
        if (!stops) assert_fails(end, frugal_sum_squares(f, 0, 0, &g, &squares), "sum_squares: device 0 was lost", "");
        assert_fails(end, frugal_sum_squares(f, 0, 0, &g, &squares), "sum_squares: ", stops ? "stopped" : "was lost");
        assert_fails(end, frugal_get_records(f, 0, 0, &records), "get_records: ", stops ? "stopped" : "was lost");
        frugal_close(f);
    }
}

/* >>one device, whose rows have no words if it updates in place */

static frugal *open_one(puppet *p, int in_place) {
    frugal_desc desc = rig_desc();
    frugal_device_ops ops = puppet_ops;
    desc.devices = 1, desc.stuck_seconds = 0.02, desc.alone = FRUGAL_ALONE_PLACE;
    if (in_place) ops.updates_in_place = puppet_in_place;
    frugal *f = open_or_fail(&desc);
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, p));
    for (uint64_t t = 0; t < 3; t++) announce_row_3(f, 0, t);
    return f;
}

/* Its gate is the order in which it works, so it is given steps that it has not come to. Records wait until the block
 * is free. After a stop, what it was given is committed when it is done. */
static void test_one_in_order(void **state) {
    (void)state;
    puppet p = {0};
    frugal_records records;
    frugal *f = open_one(&p, 1);
    for (uint64_t t = 0; t < 2; t++) step_of_none(f, 0, t);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 2, NULL));
    assert_stuck(frugal_get_records(f, 0, 2, &records), "device 0");
    assert_int_equal(0, steps_of(f));
    p.done = 1;
    assert_stuck(frugal_get_records(f, 0, 2, &records), "device 0");
    assert_int_equal(1, steps_of(f));
    frugal_stop(f);
    p.done = 2;
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(2, steps_of(f));
    frugal_close(f);
}

/* One that waits for gates itself is given a step, and passes its gate when it has done the step before. What it does
 * after a stop is not committed. */
static void test_one_that_waits(void **state) {
    (void)state;
    puppet p = {.waits = 1};
    frugal *f = open_one(&p, 1);
    const uint64_t *gates = frugal_gates(f);
    step_of_none(f, 0, 0);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 1, NULL));
    while (frugal_help(f)) continue;
    assert_true(*gates == 1);
    p.done = 1;
    frugal_help(f);
    frugal_help(f);
    assert_true(*gates == 2 && steps_of(f) == 1);
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 1, NULL));
    frugal_stop(f);
    p.done = 2;
    assert_int_equal(FRUGAL_STOPPED, frugal_drain(f));
    assert_int_equal(1, steps_of(f));
    frugal_close(f);
}

static uint32_t dropped, emptied; /* rows; times */

static frugal_status count_dropped(void *device, const uint32_t *rows, uint32_t n) {
    assert_true(n > 0 && rows[0] == 3 && rows[n - 1] == 3);
    dropped += n;
    return puppet_answer(device);
}
static void count_emptied(void *device) {
    (void)device;
    emptied++;
}

/* Of rows that a caller writes it drops the copies; or all, if it has no such operation, or that fails. */
static void test_one_that_drops(void **state) {
    (void)state;
    enum { WRITTEN = 2500 };
    uint64_t *keys = malloc(WRITTEN * sizeof *keys);
    float *weights = calloc(WRITTEN, 5 * sizeof *weights);
    for (int i = 0; i < WRITTEN; i++) keys[i] = 3; /* more than one call's */
    for (int i = 0; i < 3; i++) {
        puppet p = {0};
        frugal_desc desc = rig_desc();
        frugal_device_ops ops = puppet_ops;
        const frugal_keys written = {.table = 0, .keys = keys, .n = WRITTEN};
        desc.devices = 1, desc.alone = FRUGAL_ALONE_PLACE;
        ops.updates_in_place = puppet_in_place, ops.empty = count_emptied, ops.refresh = i > 0 ? count_dropped : NULL;
        frugal *f = open_or_fail(&desc);
        assert_int_equal(FRUGAL_OK, frugal_attach(f, 0, &ops, &p));
        p.refuses = i == 2 ? FRUGAL_ERR_CUDA : FRUGAL_OK;
        dropped = emptied = 0;
        assert_int_equal(p.refuses, frugal_write_rows(f, &written, weights, NULL));
        assert_int_equal(i > 0 ? WRITTEN : 0, dropped);
        assert_int_equal(i == 1 ? 0 : 3, emptied);
        frugal_close(f);
    }
    free(keys), free(weights);
}

/* One that does not update in place: rows have words, and its updates are others' to apply. */
static void test_one_that_stages(void **state) {
    (void)state;
    puppet p = {0};
    const float grads[5] = {0};
    frugal_stats stats;
    frugal *f = open_one(&p, 0);
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 0, &(frugal_gradients){.grads = grads, .lr = 1}));
    assert_stuck(frugal_lookup(f, 0, 1, NULL), "step 0 is not closed: device 0 has not finished it");
    p.done = 1;
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 1, NULL));
    frugal_get_stats(f, &stats);
    assert_true(stats.flushed == 1 && stats.in_place == 0 && stats.alone == 1);
    frugal_close(f);
}

/* >>one that sorts its batches: keys 5 and 5, of which it has sorted those of steps below `sorted` */

static struct {
    uint64_t sorted, bad; /* bad: of that step a key is too large */
    uint32_t *found;
} sorter;

static int sorter_sorts(void *device) {
    return device != NULL;
}
static frugal_status sorter_sort(void *device, const frugal_unsorted *batch) {
    (void)device;
    assert_true(batch->n == 2 && batch->rows[0] == 5 && batch->rows[1] == 5 && batch->found);
    sorter.found = batch->found;
    return FRUGAL_OK;
}
static frugal_status sorter_sorted(void *device, uint64_t step, uint32_t *n_unique) {
    (void)device;
    if (step >= sorter.sorted) return FRUGAL_AGAIN;
    if (step == sorter.bad) return frugal_fail(FRUGAL_ERR_KEY, "a key of the puppet is too large");
    sorter.found[0] = 5, *n_unique = 1;
    return FRUGAL_OK;
}
static frugal_status sorter_fetch(void *device, const frugal_step *step, const frugal_records *to) {
    (void)device, (void)step;
    assert_null(to->rows); /* the host has them */
    uint32_t *order = (uint32_t *)(uintptr_t)to->order, *start = (uint32_t *)(uintptr_t)to->start;
    order[0] = 0, order[1] = 1, start[0] = 0, start[1] = 2;
    return FRUGAL_OK;
}

/* Device 1 sorts, device 0 is of the host. */
static frugal *open_sorter(puppet *p) {
    frugal_device_ops ops = puppet_ops;
    ops.sorts = sorter_sorts, ops.sort = sorter_sort, ops.sorted = sorter_sorted, ops.fetch = sorter_fetch;
    sorter.sorted = 0, sorter.bad = UINT64_MAX;
    frugal *f = open_for_puppets(FRUGAL_ALONE_STAGED);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_attach(f, 1, &ops, p));
    return f;
}

static void announce_to_sort(frugal *f, uint64_t step) {
    const uint64_t keys[2] = {5, 5};
    const frugal_keys segment = {.keys = keys, .n = 2};
    announce_none(f, 0, step);
    assert_int_equal(FRUGAL_OK, frugal_announce(f, 1, step, &(frugal_batch){&segment, 1, 0}));
}

static void test_one_that_sorts(void **state) {
    (void)state;
    puppet p = {0};
    frugal_records r;
    frugal *f = open_sorter(&p);
    announce_to_sort(f, 0);
    assert_stuck(frugal_lookup(f, 0, 0, NULL), "device 1 has not sorted its batch of step 0");
    assert_int_equal(FRUGAL_AGAIN, frugal_try_lookup(f, 1, 0, NULL));
    sorter.sorted = 1;
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_lookup(f, d, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_get_records(f, 1, 0, &r));
    assert_true(r.n == 2 && r.n_unique == 1 && r.rows[0] == 5 && r.record_of[1] == 0);
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(FRUGAL_OK, frugal_update(f, d, 0, NULL));
    p.done = 1;
    announce_to_sort(f, 1), announce_to_sort(f, 2); /* cancelled while it sorts, some of them */
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 2));
    sorter.sorted = 2;
    for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, 1);
    p.done = 2;
    announce_to_sort(f, 2);
    assert_stuck(frugal_lookup(f, 0, 2, NULL), "device 1 has not sorted its batch of step 2");
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 2));
    sorter.bad = 2, sorter.sorted = 5;
    announce_to_sort(f, 2), announce_to_sort(f, 3);
    for (uint32_t d = 0; d < 2; d++) {
        assert_int_equal(FRUGAL_ERR_KEY, frugal_lookup(f, d, 2, NULL));
        assert_int_equal(FRUGAL_ERR_KEY, frugal_try_lookup(f, d, 2, NULL));
    }
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 3)); /* not that step */
    assert_int_equal(FRUGAL_ERR_KEY, frugal_lookup(f, 0, 2, NULL));
    assert_int_equal(FRUGAL_OK, frugal_cancel(f, 2));
    sorter.bad = UINT64_MAX;
    for (uint64_t s = 2; s < 5; s++) {
        announce_to_sort(f, s);
        for (uint32_t d = 0; d < 2; d++) step_of_none(f, d, s);
        p.done = s + 1;
    }
    announce_to_sort(f, 5); /* lost while it sorts */
    p.is_lost = 1;
    assert_int_equal(FRUGAL_ERR_LOST, frugal_lookup(f, 0, 5, NULL));
    frugal_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_sorts),
        cmocka_unit_test(test_one_in_order),
        cmocka_unit_test(test_one_that_waits),
        cmocka_unit_test(test_one_that_drops),
        cmocka_unit_test(test_one_that_stages),
        cmocka_unit_test(test_not_attached),
        cmocka_unit_test(test_not_updated),
        cmocka_unit_test(test_not_begun_to_recall),
        cmocka_unit_test(test_beside_a_finished_one),
        cmocka_unit_test(test_at_a_gate_beside_a_finished_one),
        cmocka_unit_test(test_finished_meanwhile),
        cmocka_unit_test(test_drain_waits),
        cmocka_unit_test(test_drain_and_stop),
        cmocka_unit_test(test_drain_and_loss),
        cmocka_unit_test(test_drain_without_one),
        cmocka_unit_test(test_cancel_after_stop),
        cmocka_unit_test(test_stop_at_the_last_first_step),
        cmocka_unit_test(test_refused_argument),
        cmocka_unit_test(test_sums),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
