/* test_explore.c - the explorer itself: small programs for which it is known what C11 allows. Forbidden outcomes must
 * never be seen, allowed ones must be found, and a fault must be found and replayed by its seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/explore/explore.h"

typedef struct litmus {
    uint32_t x, y, z; /* atomic */
    uint32_t plain;
    uint32_t r[8]; /* what threads saw; each entry has one writer */
} litmus;
static litmus *w;
static int seen; /* over all schedules: outcomes */

static void set_up(uint64_t variant) {
    (void)variant;
    w = explore_alloc(sizeof *w, 64);
}

enum { SCHEDULES = 4000 };

static explore_totals run(int threads, void (*thread)(int), void (*check)(void)) {
    explore_totals t, again;
    explore_scenario s = {"litmus", "", threads, set_up, thread, check};
    seen = 0;
    explore_random(&s, 1, SCHEDULES, &t);
    if (t.failure[0]) { /* checks that the seed gives the same failure again */
        explore_random(&s, t.failed_seed, 1, &again);
        assert_string_equal(t.failure, again.failure);
    }
    return t;
}

static void expect_clean(explore_totals t) {
    if (t.failure[0]) fail_msg("%s", t.failure);
    assert_int_equal(SCHEDULES, t.schedules);
}

static void expect_failure(explore_totals t, const char *what) {
    if (!strstr(t.failure, what)) fail_msg("expected %s, found '%s'", what, t.failure);
}

/* >>message passing */

static void pass_released(int number) {
    if (number == 0) {
        w->plain = 42;
        frugal_store_release(&w->x, 1);
    } else if (frugal_load_acquire(&w->x)) {
        EXPLORE_EXPECT(w->plain == 42);
        seen = 1;
    }
}

static void pass_relaxed_store(int number) {
    if (number == 0) {
        w->plain = 42;
        frugal_store_relaxed(&w->x, 1);
    } else if (frugal_load_acquire(&w->x)) {
        w->r[0] = w->plain;
    }
}

static void pass_relaxed_load(int number) {
    if (number == 0) {
        w->plain = 42;
        frugal_store_release(&w->x, 1);
    } else if (frugal_load_relaxed(&w->x)) {
        w->r[0] = w->plain;
    }
}

static void a_released_message_arrives(void **state) {
    (void)state;
    expect_clean(run(2, pass_released, NULL));
    assert_int_equal(1, seen);
}

static void relaxed_messages_are_races(void **state) {
    (void)state;
    expect_failure(run(2, pass_relaxed_store, NULL), "data race: a read after a write");
    expect_failure(run(2, pass_relaxed_load, NULL), "data race: a read after a write");
}

/* >>races that are far apart: the schedule at hand need not interleave them */

static void write_both(int number) {
    (void)number;
    w->plain = 1;
}

static void read_then_write(int number) {
    if (number == 0) {
        w->r[0] = w->plain;
        frugal_add_acquire(&w->x, 1); /* releases nothing */
    } else if (frugal_add_acq_rel(&w->x, 1) == 1) {
        w->plain = 1;
    }
}

static void races_are_found_in_any_order(void **state) {
    (void)state;
    expect_failure(run(2, write_both, NULL), "data race: a write after a write");
    expect_failure(run(2, read_then_write, NULL), "data race: a write after a read");
}

/* Accesses of every size are seen, and those of the copying functions. */
static void write_wide(int number) {
    uint64_t *wide = (uint64_t *)(void *)&w->r[4];
    if (number == 0)
        *wide = 1;
    else
        w->r[0] = w->r[5]; /* its other half */
}
static void write_bytes(int number) {
    unsigned char *byte = (unsigned char *)&w->r[6];
    if (number == 0)
        *byte = 1;
    else
        w->r[0] = *byte;
}
static void write_neighbours(int number) { /* no race */
    unsigned char *byte = (unsigned char *)&w->r[6];
    byte[number] = 1;
}
static void copy_over(int number) {
    if (number == 0)
        explore_copy(&w->r[4], &w->plain, 4);
    else
        w->r[0] = w->r[4];
}
static void compare_with(int number) {
    if (number == 0)
        w->r[0] = (uint32_t)explore_compare(&w->r[4], &w->plain, 4);
    else
        w->r[4] = 1;
}

static void accesses_of_every_size_race(void **state) {
    (void)state;
    expect_failure(run(2, write_wide, NULL), "data race");
    expect_failure(run(2, write_bytes, NULL), "data race");
    expect_clean(run(2, write_neighbours, NULL));
    expect_failure(run(2, copy_over, NULL), "data race");
    expect_failure(run(2, compare_with, NULL), "data race");
}

/* >>release sequences */

static void sequence_of_changes(int number) { /* a relaxed read-modify-write in between continues the sequence */
    if (number == 0) {
        w->plain = 42;
        frugal_store_release(&w->x, 1);
    } else if (number == 1) {
        frugal_add_relaxed(&w->x, 2);
    } else if (frugal_load_acquire(&w->x) == 3) {
        seen = 1;
        EXPLORE_EXPECT(w->plain == 42); /* if the addition had been first, the store would have made it 1 */
    }
}

static void sequence_broken_by_a_store(int number) {
    if (number == 0) {
        w->plain = 42;
        frugal_store_release(&w->x, 1);
    } else if (number == 1) {
        if (frugal_load_relaxed(&w->x) == 1) frugal_store_relaxed(&w->x, 3);
    } else if (frugal_load_acquire(&w->x) == 3) {
        w->r[0] = w->plain;
    }
}

static void sequence_of_releases(int number) { /* a read-modify-write that is itself a release continues it, too */
    if (number == 0) {
        w->plain = 42;
        frugal_store_release(&w->x, 1);
    } else if (number == 1) {
        frugal_add_release(&w->x, 2);
    } else if (frugal_load_acquire(&w->x) == 3) {
        seen = 1;
        EXPLORE_EXPECT(w->plain == 42);
    }
}

static void changes_continue_a_release_sequence(void **state) {
    (void)state;
    expect_clean(run(3, sequence_of_releases, NULL));
    assert_int_equal(1, seen);
    expect_failure(run(3, sequence_broken_by_a_store, NULL), "data race");
    expect_clean(run(3, sequence_of_changes, NULL));
    assert_int_equal(1, seen);
}

/* >>old values */

static void store_then_look(int number) { /* store buffering */
    uint32_t *mine = number ? &w->x : &w->y, *other = number ? &w->y : &w->x;
    frugal_store_release(mine, 1);
    w->r[number] = frugal_load_acquire(other);
}
static void both_missed(void) {
    if (!w->r[0] && !w->r[1]) seen = 1;
}

static void read_twice(int number) { /* coherence: never backwards */
    if (number == 0) {
        frugal_store_relaxed(&w->x, 1);
        frugal_store_relaxed(&w->x, 2);
    } else {
        uint32_t first = frugal_load_relaxed(&w->x), second = frugal_load_relaxed(&w->x);
        EXPLORE_EXPECT(first <= second);
        if (first == 1 && second == 1) seen |= 1;
        if (first == 0 && second == 2) seen |= 2;
    }
}

static void independent_readers(int number) { /* two readers may disagree on the order of independent stores */
    uint32_t *objects[2] = {&w->x, &w->y};
    if (number < 2) {
        frugal_store_release(objects[number], 1);
    } else {
        w->r[number * 2 - 4] = frugal_load_acquire(objects[number - 2]);
        w->r[number * 2 - 3] = frugal_load_acquire(objects[3 - number]);
    }
}
static void they_disagreed(void) {
    if (w->r[0] && !w->r[1] && w->r[2] && !w->r[3]) seen = 1;
}

static void cause_and_effect(int number) { /* what happens before is seen, also through a third thread */
    if (number == 0) {
        frugal_store_relaxed(&w->x, 1);
        frugal_store_release(&w->y, 1);
    } else if (number == 1) {
        if (frugal_load_acquire(&w->y)) frugal_store_release(&w->z, 1);
    } else if (frugal_load_acquire(&w->z)) {
        seen = 1;
        EXPLORE_EXPECT(frugal_load_relaxed(&w->x) == 1);
    }
}

static void store_then_load_relaxed(int number) { /* between a store and the load after it, others may go on */
    if (number == 0) {
        frugal_store_release(&w->x, 1);
        if (frugal_load_relaxed(&w->y)) seen = 1;
    } else {
        while (!frugal_load_acquire(&w->x)) explore_wait();
        frugal_store_relaxed(&w->y, 1);
    }
}

static void old_values_are_seen_where_they_may(void **state) {
    (void)state;
    expect_clean(run(2, store_then_load_relaxed, NULL));
    assert_int_equal(1, seen);
    expect_clean(run(2, store_then_look, both_missed));
    assert_int_equal(1, seen);
    expect_clean(run(4, independent_readers, they_disagreed));
    assert_int_equal(1, seen);
}

static void old_values_are_not_seen_where_they_may_not(void **state) {
    (void)state;
    expect_clean(run(2, read_twice, NULL));
    assert_int_equal(3, seen);
    expect_clean(run(3, cause_and_effect, NULL));
    assert_int_equal(1, seen);
}

/* >>read-modify-writes */

static void add_and_swap(int number) {
    uint32_t found = frugal_load_relaxed(&w->x);
    if (number == 0) {
        frugal_add_relaxed(&w->x, 1);
    } else {
        int failures = 0;
        while (!frugal_cas_release(&w->x, &found, found + 1)) failures++;
        if (failures) seen = 1;
    }
}
static void nothing_is_lost(void) {
    EXPLORE_EXPECT(w->x == 3);
}

static void swap_alone(int number) { /* fails sometimes, and returns the value that is there */
    uint32_t found = 0;
    (void)number;
    if (!frugal_cas_relaxed(&w->x, &found, 1)) seen |= 1 + (found != 0);
}

static void swap_what_is_not_there(int number) { /* a swap that fails is a load: it may tell an old value */
    uint32_t found = 9;
    if (number == 0) {
        frugal_store_relaxed(&w->x, 1);
        frugal_store_relaxed(&w->y, 1);
    } else if (frugal_load_relaxed(&w->y) && !frugal_cas_release(&w->x, &found, 5)) {
        seen |= 1 << found;
    }
}

static void swap_and_read(int number) { /* whose failure acquires */
    uint32_t found = 9;
    if (number == 0) {
        w->plain = 42;
        frugal_store_release(&w->x, 1);
    } else if (!frugal_cas_acq_rel(&w->x, &found, 5) && found == 1) {
        EXPLORE_EXPECT(w->plain == 42);
        seen = 1;
    }
}
static void swap_and_read_relaxed(int number) {
    uint32_t found = 9;
    if (number == 0) {
        w->plain = 42;
        frugal_store_release(&w->x, 1);
    } else if (!frugal_cas_acq_rel_or_relaxed(&w->x, &found, 5) && found == 1) {
        w->r[0] = w->plain;
    }
}

static void swaps_that_fail_are_loads(void **state) {
    (void)state;
    expect_clean(run(1, swap_alone, NULL));
    assert_int_equal(1, seen);
    expect_clean(run(2, swap_what_is_not_there, NULL));
    assert_int_equal(3, seen);
    expect_clean(run(2, swap_and_read, NULL));
    assert_int_equal(1, seen);
    expect_failure(run(2, swap_and_read_relaxed, NULL), "data race");
}

static void load_and_store(int number) {
    (void)number;
    frugal_store_relaxed(&w->x, frugal_load_relaxed(&w->x) + 1);
}
static void two_were_added(void) {
    EXPLORE_EXPECT(w->x == 2);
}

static void changes_are_never_lost(void **state) {
    (void)state;
    expect_clean(run(3, add_and_swap, nothing_is_lost));
    assert_int_equal(1, seen);
    expect_failure(run(2, load_and_store, two_were_added), "w->x == 2");
}

/* >>waiting */

static void wait_for_each_other(int number) {
    uint32_t *mine = number ? &w->x : &w->y, *other = number ? &w->y : &w->x;
    while (!frugal_load_acquire(other)) explore_wait();
    frugal_store_release(mine, 1);
}

static void wait_for_the_other(int number) {
    if (number) frugal_store_release(&w->x, 1);
    while (!number && !frugal_load_relaxed(&w->x)) explore_wait();
}

static void spin(int number) {
    (void)number;
    while (!frugal_load_acquire(&w->x)) seen = 1;
}

static void sleep_until_woken(int number) {
    explore_point();
    if (number == 0) {
        if (!frugal_load_relaxed(&w->x)) explore_sleep(w); /* looks and sleeps in one */
        EXPLORE_EXPECT(w->r[0] == 0);
        w->r[0] = 1;
    } else {
        frugal_store_release(&w->x, 1);
        explore_wake(w, 1);
    }
}
static void it_woke(void) {
    EXPLORE_EXPECT(w->r[0] == 1);
}
static void sleep_after_a_fresh_look(int number) {
    explore_point();
    if (number == 0) {
        if (!frugal_add_acquire(&w->x, 0)) explore_sleep(w); /* a change sees the newest */
        w->r[0] = 1;
    } else {
        frugal_store_release(&w->x, 1);
        explore_wake(w, 1);
    }
}
static void sleep_alone(int number) {
    if (number == 0) explore_sleep(w);
    seen = 1;
}
static void wake_one_of_two(int number) {
    if (number < 2)
        explore_sleep(w);
    else
        for (int i = 0; i < 5; i++) explore_point(), explore_wake(w, i == 4);
}

static void sleepers_are_woken_or_it_is_a_deadlock(void **state) {
    (void)state;
    w = NULL;
    expect_failure(run(2, sleep_alone, NULL), "deadlock");
    expect_failure(run(3, wake_one_of_two, NULL), "deadlock");
    explore_totals t = run(2, sleep_until_woken, it_woke); /* an old value may be seen, and the sleep never end */
    expect_failure(t, "deadlock");
    expect_clean(run(2, sleep_after_a_fresh_look, it_woke));
}

static void take_turns(int number) { /* nine changes of thread in a row */
    for (uint32_t i = 0; i < 5; i++)
        if (frugal_add_relaxed(&w->x, 1) != 2 * i + (uint32_t)number) return;
    w->r[number] = 1;
}
static void both_took_turns(void) {
    if (w->r[0] && w->r[1]) seen = 1;
}

static void schedules_with_many_changes_are_tried(void **state) {
    (void)state;
    expect_clean(run(2, take_turns, both_took_turns));
    assert_int_equal(1, seen);
}

static void waiting_ends_or_is_a_deadlock(void **state) {
    (void)state;
    expect_clean(run(2, wait_for_the_other, NULL));
    expect_failure(run(2, wait_for_each_other, NULL), "deadlock");
    expect_failure(run(2, spin, NULL), "livelock");
}

/* >>progress */

static void take_a_lock(int number) {
    uint32_t free = 0;
    for (; !frugal_cas_acquire(&w->x, &free, 1); free = 0) continue; /* a spin loop that does not say that it waits */
    w->r[number] = 1;
    frugal_store_release(&w->x, 0);
}

static void what_is_not_lock_free_is_a_livelock(void **state) {
    (void)state;
    expect_failure(run(2, take_a_lock, NULL), "livelock");
}

/* >>enumeration */

static void one_operation_each(int number) {
    frugal_add_relaxed(number ? &w->x : &w->y, 1);
    frugal_add_relaxed(number ? &w->x : &w->y, 1);
}

static void fail_late(int number) {
    if (number == 0) {
        frugal_add_relaxed(&w->x, 1);
        frugal_add_relaxed(&w->x, 1);
        EXPLORE_EXPECT(w->y != 1);
    } else {
        frugal_add_relaxed(&w->y, 1);
        frugal_add_relaxed(&w->y, 1);
    }
}

static void all_schedules_are_enumerated(void **state) {
    (void)state;
    explore_totals t;
    explore_scenario s = {"two threads", "", 2, set_up, one_operation_each, NULL};
    explore_bounded(&s, 0, 0, 0, 1000, &t);
    assert_true(t.exhausted);
    assert_int_equal(2, t.schedules); /* who begins */
    explore_bounded(&s, 0, 100, 0, 1000, &t);
    assert_true(t.exhausted);
    assert_int_equal(20,
                     t.schedules); /* 6 choose 3: before each operation, and at the beginning, one may be preempted */
    s.thread = store_then_look, s.check = both_missed; /* and old values */
    seen = 0;
    explore_bounded(&s, 0, 0, 0, 1000, &t);
    assert_true(t.exhausted && !seen);
    explore_bounded(&s, 0, 0, 1, 1000, &t);
    assert_true(t.exhausted && seen);
    s.thread = fail_late, s.check = NULL;
    explore_bounded(&s, 0, 0, 0, 1000, &t);
    assert_true(t.exhausted && !t.failure[0]);
    explore_bounded(&s, 0, 1, 0, 1000, &t);
    assert_non_null(strstr(t.failure, "w->y != 1"));
    uint64_t number = t.failed_seed;
    explore_replay_bounded(&s, 0, 1, 0, number, &t);
    assert_non_null(strstr(t.failure, "w->y != 1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_released_message_arrives),
        cmocka_unit_test(relaxed_messages_are_races),
        cmocka_unit_test(races_are_found_in_any_order),
        cmocka_unit_test(accesses_of_every_size_race),
        cmocka_unit_test(changes_continue_a_release_sequence),
        cmocka_unit_test(old_values_are_seen_where_they_may),
        cmocka_unit_test(old_values_are_not_seen_where_they_may_not),
        cmocka_unit_test(changes_are_never_lost),
        cmocka_unit_test(swaps_that_fail_are_loads),
        cmocka_unit_test(sleepers_are_woken_or_it_is_a_deadlock),
        cmocka_unit_test(schedules_with_many_changes_are_tried),
        cmocka_unit_test(waiting_ends_or_is_a_deadlock),
        cmocka_unit_test(what_is_not_lock_free_is_a_livelock),
        cmocka_unit_test(all_schedules_are_enumerated),
    };
    return cmocka_run_group_tests_name("test_explore", tests, NULL, NULL);
}
