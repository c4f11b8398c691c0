/* A planner's base must not run ahead of the words: a row whose update was due before it, and is written, is not found
 * dirty, because its slot would be decoded a ring too late.
 * mutants: P9 relaxed base */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) { /* row 0 is dirty, and due at step 1; it is announced for step 2, which is not planned */
    frugal_p2f_desc desc = {.rows = 2, .devices = 1, .max_rows = 2, .lookahead = 1, .staging = 1, .threads = 2};
    p = weak_open(&desc);
    weak_first_step(p, 1);
    weak_announce(p, 0, 1, 0, 0);
    assert(frugal_p2f_plan(p) == 2);
    weak_announce(p, 0, 2, 0, 1);
}

static void *flush_and_close(void *unused) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    assert(frugal_p2f_take(p, 1, work, NULL) == 1);
    frugal_p2f_done(p, work, 1);
    assert(frugal_p2f_commit(p, 0, 1, 1, NULL) == FRUGAL_OK);
    assert(frugal_p2f_close(p) == 2);
    return unused;
}

static void *plan(void *unused) {
    assert(frugal_p2f_plan(p) == 2);
    return unused;
}

static void end(void) {
    assert(frugal_p2f_planned(p) == 3 && frugal_p2f_pending(p, 2) == 0 && !frugal_p2f_is_dirty(p, 0));
    assert(frugal_p2f_gate(p, 2));
}

int main(void) {
    static weak_thread *const threads[] = {flush_and_close, plan};
    return weak_run("a base is no later than the words", begin, threads, 2, end);
}
