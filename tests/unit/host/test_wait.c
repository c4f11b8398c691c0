/* test_wait.c - every wait of the runtime: what comes between looking and sleeping is not missed, and a wait that does
 * not end says what it waits for.
 *
 * The library is compiled into this program, so that a test can act between the two looks of a waiter, and can hold a
 * piece of work as a descheduled thread does. Do not link frugal_flush.o. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#define FRUGAL_P2F_IMPLEMENTATION
#define FRUGAL_ATOMICS
#include "frugal_p2f.h"
#include "tests/case.h"
#include "tests/rig.h"

typedef void between(rig *r);
static _Atomic(between *) before_sleep; /* called between the two looks, once */
static rig *sleeper;

static void between_looks(void) {
    between *call = atomic_exchange(&before_sleep, NULL);
    if (call) call(sleeper);
}

#undef frugal_or_acquire
#define frugal_or_acquire(p, v) (between_looks(), atomic_fetch_or_explicit(p, v, memory_order_acquire))

static void (*before_trylock)(void); /* called between looking for what is outstanding and the lock, once */

static int trylock_late(pthread_mutex_t *lock) {
    void (*call)(void) = before_trylock;
    before_trylock = NULL;
    if (call) call();
    return pthread_mutex_trylock(lock);
}
#define pthread_mutex_trylock trylock_late
#include "frugal_flush.c"
#include "tests/hand_in.h"

/* Two devices, four steps announced; step 0 is updated by device 0 alone, which may now wait for device 1. */
static void open_waiting(rig *r, double stuck_seconds) {
    frugal_desc d = rig_desc();
    d.stuck_seconds = stuck_seconds;
    rig_open(r, &d);
    for (int i = 0; i < 3; i++) rig_announce(r, 0), rig_announce(r, 1);
    rig_announce(r, 0);
    rig_lookup(r, 0), rig_lookup(r, 1);
    rig_update(r, 0);
    while (frugal_help(r->f)) {
    }
    sleeper = r;
}

/* >>between looking and sleeping */

static void stop_it(rig *r) {
    frugal_stop(r->f);
}

static void update_of_the_other(rig *r) {
    rig_update(r, 1);
}

/* Something to help with, though not what is waited for; that comes at the next look. */
static void announcement_of_the_other(rig *r) {
    rig_hand_in(r, 1); /* step 3 can be sorted and planned */
    atomic_store(&before_sleep, update_of_the_other);
}

static void test_stopped_between_the_looks(void **state) {
    (void)state;
    rig r = {0};
    open_waiting(&r, -1);
    atomic_store(&before_sleep, stop_it);
    assert_int_equal(FRUGAL_STOPPED, frugal_lookup(r.f, 0, 1, r.looked_up[0]));
    assert_true(!atomic_load(&before_sleep));
    rig_free(&r);
}

static void test_ready_between_the_looks(void **state) {
    rig r = {0};
    open_waiting(&r, -1);
    atomic_store(&before_sleep, *state ? announcement_of_the_other : update_of_the_other);
    assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, 0, 1, r.looked_up[0]));
    assert_true(!atomic_load(&before_sleep));
    assert_true(frugal_p2f_is_planned(r.f->p2f));
    rig_judge(&r, 0);
    rig_finish(&r, 5);
}

static atomic_int asleep;

static void about_to_sleep(rig *r) {
    (void)r;
    atomic_store(&asleep, 1);
}

static void *look_up(void *argument) {
    rig *r = argument;
    return (void *)(intptr_t)frugal_lookup(r->f, 0, 1, r->looked_up[0]);
}

/* Whether the sleeper sleeps by now or is about to: it wakes, also where it would sleep for ever. */
static void test_sleeper_is_woken(void **state) {
    rig r = {0};
    pthread_t thread;
    void *status;
    open_waiting(&r, *(const double *)*state);
    atomic_store(&asleep, 0);
    atomic_store(&before_sleep, about_to_sleep);
    assert_int_equal(0, pthread_create(&thread, NULL, look_up, &r));
    while (!atomic_load(&asleep)) sched_yield();
    rig_update(&r, 1);
    assert_int_equal(0, pthread_join(thread, &status));
    assert_int_equal(FRUGAL_OK, (int)(intptr_t)status);
    rig_judge(&r, 0);
    rig_finish(&r, 5);
}

static void wait_for_closing(rig *r) {
    atomic_store(&asleep, 1);
    while (!frugal_load_acquire(&r->f->workers->closing)) sched_yield();
}

/* A worker that is about to sleep when the instance is closed does not sleep through it. */
static void test_closed_between_a_workers_looks(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    d.workers = 1;
    sleeper = &r;
    rig_open(&r, &d);
    rig_train(&r, 2);
    assert_int_equal(FRUGAL_OK, frugal_drain(r.f));
    atomic_store(&asleep, 0);
    atomic_store(&before_sleep, wait_for_closing);
    /* The worker looks, and finds nothing. One notification may come in the middle of event_prepare: after the worker
     * has looked for before_sleep, before its bit is set. */
    while (!atomic_load(&asleep)) event_notify(r.f->event), sched_yield();
    rig_free(&r);
}

/* >>waits that do not end */

/* The call is stuck, and says so with both texts. */
static void check_stuck(frugal_status status, const char *text1, const char *text2, int line) {
    const char *message = frugal_message();
    if (status != FRUGAL_ERR_STUCK || !strstr(message, text1) || !strstr(message, text2))
        fail_msg("line %d: status %d, message: %s; not \"%s\" and \"%s\"", line, (int)status, message, text1, text2);
}
#define assert_stuck(call, text1, text2) check_stuck(call, text1, text2, __LINE__)

static frugal_status read_one(rig *r, uint32_t row) {
    uint64_t key = row;
    float weights[5];
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    return frugal_read_rows(r->f, &keys, weights, NULL);
}

static int times_told;

static void count_notice(const char *text, void *user) {
    (void)text, (void)user;
    times_told++;
}

static void test_a_piece_is_being_closed(void **state) {
    (void)state;
    rig r = {0};
    frugal_p2f_piece piece;
    open_waiting(&r, 0.02);
    times_told = 0;
    assert_int_equal(FRUGAL_OK, frugal_on_notice(r.f, count_notice, NULL));
    rig_update(&r, 1);
    assert_int_equal(1, frugal_p2f_close_begin(r.f->p2f, &piece));
    assert_stuck(frugal_lookup(r.f, 0, 1, r.looked_up[0]), "lookup, step 1",
                 "step 0 is being closed by a thread that has not finished");
    assert_stuck(frugal_drain(r.f), "drain", "0 of 1 committed steps are closed");
    assert_stuck(frugal_cancel(r.f, 1), "cancel", "0 of 1 committed steps are closed");
    assert_stuck(read_one(&r, 0), "read_rows", "0 of 1 committed steps are closed");
    assert_int_equal(4, times_told); /* by each of these calls */
    assert_int_equal(2, frugal_p2f_close_end(r.f->p2f, &piece, 0));
    rig_judge(&r, 0);
    rig_finish(&r, 5); /* nothing was changed by all that */
}

/* A wait of a cause that is known is told if it takes twice as long, or at half of the time after which it is stuck. */
static void test_which_waits_are_told(void **state) {
    (void)state;
    frugal f = {.desc = {.stuck_seconds = 30}};
    double again;
    open_notices(&f, NULL, NULL);
    assert_true(notice_seconds(&f) == FOREVER); /* nobody is told */
    f.notices.call = count_notice;
    assert_true(notice_seconds(&f) == 5);
    assert_int_equal(1, note_wait(&f, 5, "lookup, step 1: device 0", &again));
    assert_int_equal(0, note_wait(&f, 5, "lookup, step 1: device 0", &again)); /* another thread */
    assert_true(again == FOREVER);
    assert_int_equal(0, note_wait(&f, 5, "lookup, step 2: device 1", &again)); /* another step */
    assert_true(again == 10);
    assert_int_equal(1, note_wait(&f, 5, "announce, step 2: device 1", &again)); /* another cause */
    assert_int_equal(1, note_wait(&f, 10, "lookup, step 3: device 0", &again));
    assert_int_equal(0, note_wait(&f, 10, "lookup, step 4: device 0", &again));
    assert_true(again == 15); /* not 20 */
    assert_int_equal(1, note_wait(&f, 15, "lookup, step 4: device 0", &again));
    for (int i = 0; i < MOST_TOLD; i++) { /* as many causes as are remembered */
        char text[2] = {(char)('a' + i), 0};
        assert_int_equal(1, note_wait(&f, 5, text, &again));
    }
    assert_int_equal(1, note_wait(&f, 5, "lookup, step 4: device 0", &again));
    f.desc.stuck_seconds = 2;
    assert_true(notice_seconds(&f) == 1);
    f.desc.stuck_seconds = -1; /* never stuck: a hang is told nevertheless */
    assert_true(notice_seconds(&f) == 5);
    assert_int_equal(1, note_wait(&f, 5, "drain, step 1", &again));
    assert_int_equal(0, note_wait(&f, 5, "drain, step 2", &again));
    assert_true(again == 10);
    pthread_mutex_destroy(&f.notices.lock);
}

static void test_rows_are_being_applied(void **state) {
    (void)state;
    rig r = {0};
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    char text[96];
    open_waiting(&r, 0.02);
    rig_update(&r, 1);
    assert_int_equal(2, frugal_p2f_close(r.f->p2f));
    uint32_t n = frugal_p2f_take(r.f->p2f, 1, work, NULL);
    assert_in_range(n, 6, FRUGAL_P2F_WORKS); /* of which five are named */
    snprintf(text, sizeof text, "slot 1: %u rows are not flushed: %u (a thread is applying it) ", n, work[0].row);
    assert_stuck(frugal_lookup(r.f, 0, 1, r.looked_up[0]), "lookup, step 1", text);
    int named = 0;
    for (const char *at = frugal_message(); (at = strstr(at, "(a thread")); at++) named++;
    assert_int_equal(5, named);
    snprintf(text, sizeof text, "an update of row %u is being applied by a thread that has not finished", work[0].row);
    assert_stuck(read_one(&r, work[0].row), "read_rows", text);
    assert_stuck(frugal_drain(r.f), "1 of 1 committed steps are closed", "rows are not flushed");
    flush_taken(r.f, work, n);
    assert_int_equal(1, frugal_p2f_done(r.f->p2f, work, n));
    rig_judge(&r, 0);
    rig_finish(&r, 5);
}

/* The histogram's last bucket has no bound. */
static void test_longest_waits(void **state) {
    (void)state;
    rig r = {0};
    gate_watch watch = {0};
    open_waiting(&r, 120);
    host_device *device = &r.f->devices[0];
    uint64_t before = frugal_load_relaxed(&device->waits.buckets[WAIT_BUCKETS - 1]);
    watch.cause_ns[CAUSE_FLUSH] = 5;
    count_wait(device, 9, UINT64_C(4194304000), &watch); /* 4^11 us: the bound of the last but one */
    assert_int_equal(before, frugal_load_relaxed(&device->waits.buckets[WAIT_BUCKETS - 1]));
    count_wait(device, 9, UINT64_C(4194304001), &watch);
    count_wait(device, 8, UINT64_MAX, &watch);
    assert_int_equal(before + 2, frugal_load_relaxed(&device->waits.buckets[WAIT_BUCKETS - 1]));
    assert_true(device->waits.worst.step == 8 && device->waits.worst.cause == CAUSE_FLUSH);
    rig_update(&r, 1);
    rig_judge(&r, 0);
    rig_finish(&r, 5);
}

static frugal_p2f_work held[FRUGAL_P2F_WORKS]; /* taken by a thread that was descheduled, and comes back */
static uint32_t n_held;

static void the_thread_comes_back(rig *r) {
    flush_taken(r->f, held, n_held);
    frugal_p2f_done(r->f->p2f, held, n_held);
}

/* Whoever reads a row that is being applied waits for it, and reads what it has become. */
static void test_reading_a_row_that_is_being_applied(void **state) {
    (void)state;
    rig r = {0};
    uint64_t key;
    float weights[5];
    frugal_keys keys = {.table = 0, .keys = &key, .n = 1};
    open_waiting(&r, 120);
    rig_update(&r, 1);
    rig_judge(&r, 0);
    assert_int_equal(2, frugal_p2f_close(r.f->p2f));
    n_held = frugal_p2f_take(r.f->p2f, 1, held, NULL);
    assert_true(n_held > 0 && held[0].row < 40); /* of the first table */
    key = held[0].row;
    atomic_store(&before_sleep, the_thread_comes_back);
    assert_int_equal(FRUGAL_OK, frugal_read_rows(r.f, &keys, weights, NULL));
    assert_true(!atomic_load(&before_sleep));
    assert_memory_equal(r.ref.weights + key * 5, weights, sizeof weights);
    rig_finish(&r, 5);
}

/* A thread that has taken a page of the queue and not looked at its rows yet. */
static void test_rows_are_in_a_page_in_other_hands(void **state) {
    (void)state;
    rig r = {0};
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    frugal_pq_batch batch = {0};
    open_waiting(&r, 0.02);
    rig_update(&r, 1);
    assert_int_equal(2, frugal_p2f_close(r.f->p2f));
    frugal_pq *queue = frugal_priv_queue(r.f->p2f);
    uint32_t n = frugal_pq_take(queue, 1, ids);
    assert_true(n > 0);
    assert_stuck(frugal_lookup(r.f, 0, 1, r.looked_up[0]), "rows are not flushed:", " (queued)");
    for (uint32_t i = 0; i < n; i++) assert_int_equal(1, frugal_pq_put(queue, &batch, 1, ids[i]));
    frugal_pq_commit(queue, &batch);
    rig_judge(&r, 0);
    rig_finish(&r, 5);
}

static void test_staging_blocks_are_to_be_reused(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint64_t clean = 39;
    frugal_keys keys = {.table = 0, .keys = &clean, .n = 1};
    frugal_batch batch = {&keys, 1, 1};
    d.staging = 1, d.stuck_seconds = 0.02, d.defer = 1;
    rig_open(&r, &d);
    rig_train(&r, 1);
    while (frugal_p2f_plan(r.f->p2f) || frugal_p2f_close(r.f->p2f)) {
    }
    while (frugal_p2f_is_dirty(r.f->p2f, (uint32_t)clean)) clean--;
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_announce(r.f, i, 1, &batch)), r.announced[i]++;
    uint32_t n = frugal_p2f_take(r.f->p2f, 1, work, NULL);
    assert_true(n > 0);
    assert_stuck(frugal_lookup(r.f, 0, 1, NULL),
                 "rows are not flushed:", "none is of this batch; their staging blocks");
    flush_taken(r.f, work, n);
    assert_int_equal(1, frugal_p2f_done(r.f->p2f, work, n));
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_lookup(r.f, i, 1, NULL));
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(FRUGAL_OK, frugal_update(r.f, i, 1, NULL));
    rig_judge(&r, 3);
    rig_finish(&r, 5);
}

static const char busy_planning[] = "a thread that is sorting or planning has not finished";

/* Another thread sorts a batch: the gate waits for it, and so does a cancel, which then drops the batch. */
static void test_a_batch_is_in_other_hands(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    claimed_batch claimed;
    d.stuck_seconds = 0.02;
    rig_open(&r, &d);
    rig_announce(&r, 0);
    rig_hand_in(&r, 1);
    assert_int_equal(1, begin_announcing(r.f));
    assert_int_equal(1, claim_batch(r.f, &claimed));
    assert_stuck(frugal_cancel(r.f, 0), "cancel", busy_planning);
    assert_stuck(frugal_lookup(r.f, 0, 0, r.looked_up[0]), "lookup, step 0",
                 "step 0 is being planned by a thread that has not finished");
    sort_memory *m = take_sort_memory(r.f);
    list_batch(r.f, claimed.d, claimed.b, sort_rows(r.f, claimed.d, claimed.b->record_of, claimed.b->n, m));
    give_back_sort_memory(r.f, m);
    end_batch(claimed.b);
    end_announcing(r.f);
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, 0));
    r.announced[0] = r.announced[1] = 0;
    rig_finish(&r, 3);
}

/* All memory to sort in is taken: who finds none is told when some is given back, and nobody else is. */
static void test_memory_is_in_other_hands(void **state) {
    (void)state;
    rig r = {0};
    frugal_desc d = rig_desc();
    sort_memory *taken[2];
    rig_open(&r, &d);
    assert_int_equal(2, d.devices);
    for (int i = 0; i < 2; i++) assert_non_null(taken[i] = take_sort_memory(r.f));
    uint32_t seen = event_prepare(r.f->event);
    give_back_sort_memory(r.f, taken[0]);
    assert_int_equal(seen, frugal_load_relaxed(&r.f->event->word));
    assert_ptr_equal(taken[0], take_sort_memory(r.f));
    for (int i = 0; i < 2; i++) { /* any of them, and only once */
        assert_null(take_sort_memory(r.f));
        seen = event_prepare(r.f->event);
        give_back_sort_memory(r.f, taken[i]);
        assert_int_not_equal(seen, frugal_load_relaxed(&r.f->event->word));
        assert_ptr_equal(taken[i], take_sort_memory(r.f));
    }
    for (int i = 0; i < 2; i++) give_back_sort_memory(r.f, taken[i]);
    rig_finish(&r, 3);
}

/* The same, of a piece of a plan. */
static void test_a_plan_is_in_other_hands(void **state) {
    int in_place = (int)(intptr_t)*state;
    rig r = {0};
    frugal_desc d = rig_desc();
    frugal_p2f_piece piece;
    double since = 0;
    d.stuck_seconds = 0.02;
    if (in_place) d.alone = FRUGAL_ALONE_PLACE;
    rig_open(&r, &d);
    rig_announce(&r, 0);
    rig_hand_in(&r, 1);
    assert_int_equal(1, help_sort(r.f, &since));
    assert_int_equal(1, frugal_p2f_plan_begin(r.f->p2f, &piece));
    assert_stuck(frugal_cancel(r.f, 0), "cancel", busy_planning);
    assert_false(frugal_p2f_gate(r.f->p2f, 0));
    assert_stuck(frugal_lookup(r.f, 0, 0, r.looked_up[0]), "lookup, step 0",
                 "step 0 is being planned by a thread that has not finished");
    assert_int_equal(2, frugal_p2f_plan_end(r.f->p2f, &piece));
    assert_int_equal(FRUGAL_OK, frugal_cancel(r.f, 0));
    r.announced[0] = r.announced[1] = 0;
    rig_finish(&r, 3);
}

/* >>polling a device that is not through with its step */

static struct { /* the device, which is device 0 of one */
    frugal *f;
    uint64_t done;
    int polls;
} polled;

static frugal_status polled_lookup(void *device, const frugal_step *step, void *rows) {
    (void)device, (void)step, (void)rows;
    return FRUGAL_OK;
}
static frugal_status polled_update(void *device, const frugal_step *step, const void *grads) {
    (void)device, (void)step, (void)grads;
    return FRUGAL_OK;
}
static frugal_status polled_poll(void *device, uint64_t *steps) {
    (void)device;
    polled.polls++;
    *steps = polled.done;
    return FRUGAL_OK;
}
static void polled_close(void *device) {
    (void)device;
}

/* It has been given step 0. */
static void open_polled(double stuck_seconds) {
    static const frugal_device_ops ops = {
        .lookup = polled_lookup, .update = polled_update, .poll = polled_poll, .close = polled_close};
    const frugal_batch none = {NULL, 0, 0};
    frugal_desc d = rig_desc();
    d.devices = 1, d.stuck_seconds = stuck_seconds;
    polled.done = 0, polled.f = open_or_fail(&d);
    assert_int_equal(FRUGAL_OK, frugal_attach(polled.f, 0, &ops, NULL));
    assert_int_equal(FRUGAL_OK, frugal_announce(polled.f, 0, 0, &none));
    assert_int_equal(FRUGAL_OK, frugal_lookup(polled.f, 0, 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_update(polled.f, 0, 0, NULL));
    polled.polls = 0;
}

/* A thread that finds that another wants the lock leaves it alone, and waits no longer than it may. */
static void test_rest_while_the_lock_is_wanted(void **state) {
    open_polled(*(const double *)*state);
    frugal_store_relaxed(&polled.f->polling.wanted, 1);
    rest(polled.f, event_prepare(polled.f->event), polled.f->desc.stuck_seconds);
    assert_int_equal(0, polled.polls);
    assert_stuck(frugal_drain(polled.f), "drain", "device 0 has not finished it");
    frugal_store_relaxed(&polled.f->polling.wanted, 0);
    polled.done = 1;
    assert_int_equal(FRUGAL_OK, frugal_drain(polled.f));
    frugal_close(polled.f);
}

static void lose_it(void) {
    frugal_fail(FRUGAL_ERR_CUDA, "the test took it away");
    lose_device(polled.f, 0);
    polled.polls = 0; /* what it has done is asked for before the loss is told */
}

/* Another thread loses the device between this one's look and its lock: it is not polled any more. */
static void test_lost_before_the_lock(void **state) {
    (void)state;
    open_polled(0.02);
    before_trylock = lose_it;
    frugal_help(polled.f);
    assert_null(before_trylock);
    assert_int_equal(0, polled.polls);
    assert_int_equal(FRUGAL_ERR_LOST, frugal_lookup(polled.f, 0, 1, NULL));
    assert_non_null(strstr(frugal_message(), "the test took it away"));
    frugal_close(polled.f);
}

int main(void) {
    static double a_moment = 1e-4, longer = 3e-3; /* beside POLL_OTHERS */
    static double for_ever = -1, two_minutes = 120;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped_between_the_looks),
        CASE("test_ready_between_the_looks", test_ready_between_the_looks, 0),
        CASE("test_ready_between_the_looks, after helping", test_ready_between_the_looks, 1),
        {"test_sleeper_is_woken, who would sleep for ever", test_sleeper_is_woken, NULL, NULL, &for_ever},
        {"test_sleeper_is_woken, who would sleep long", test_sleeper_is_woken, NULL, NULL, &two_minutes},
        cmocka_unit_test(test_closed_between_a_workers_looks),
        cmocka_unit_test(test_which_waits_are_told),
        cmocka_unit_test(test_a_piece_is_being_closed),
        cmocka_unit_test(test_rows_are_being_applied),
        cmocka_unit_test(test_longest_waits),
        cmocka_unit_test(test_reading_a_row_that_is_being_applied),
        cmocka_unit_test(test_rows_are_in_a_page_in_other_hands),
        cmocka_unit_test(test_staging_blocks_are_to_be_reused),
        cmocka_unit_test(test_a_batch_is_in_other_hands),
        cmocka_unit_test(test_memory_is_in_other_hands),
        CASE("a plan is in other hands", test_a_plan_is_in_other_hands, 0),
        CASE("a plan is in other hands (in place)", test_a_plan_is_in_other_hands, 1),
        {"test_rest_while_the_lock_is_wanted, a moment", test_rest_while_the_lock_is_wanted, NULL, NULL, &a_moment},
        {"test_rest_while_the_lock_is_wanted, longer", test_rest_while_the_lock_is_wanted, NULL, NULL, &longer},
        cmocka_unit_test(test_lost_before_the_lock),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
