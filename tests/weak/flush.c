/* A worker applies a row's update while a trainer announces the row, plans, and comes to its gate: the trainer passes
 * only after the row is written. If it planned before the worker was done, `pending` tells it; if after, the row's word
 * does, although the worker may not have lowered `pending` yet. A thread that finds the row clean sees it written, too.
 * mutants: P1 relaxed; P3 relaxed; P4 relaxed; P17 relaxed; P18 relaxed */
#include "weak.h"

static frugal_p2f *p;
int row; /* plain: the row's floats */

static void begin(void) {
    p = weak_machine(1, 1);
    weak_first_step(p, 1);
    row = 0;
}

static void *work(void *unused) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    uint32_t n = frugal_p2f_take(p, 63, work, NULL);
    if (n == 1) {
        row++;
        frugal_p2f_done(p, work, n);
    }
    return unused;
}

static void *train(void *unused) {
    weak_announce(p, 0, 1, 0, 1);
    assert(frugal_p2f_plan(p) == 2);
    if (frugal_p2f_gate(p, 1)) assert(row == 1);
    return unused;
}

static void *look(void *unused) {
    if (!frugal_p2f_is_dirty(p, 0)) assert(row == 1);
    return unused;
}

static void end(void) {
    work(NULL);
    assert(row == 1 && frugal_p2f_gate(p, 1) && frugal_p2f_get_progress(p).pending == 0);
}

int main(void) {
    static weak_thread *const threads[] = {work, train, look};
    return weak_run("flush against plan and gate", begin, threads, 3, end);
}
