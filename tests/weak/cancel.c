/* A step is cancelled and announced anew while another thread plans: it never plans from half-written rows, nor from
 * the cancelled step.
 * mutants: P13 relaxed; P13 acquire; P13 release; P5 relaxed; P6 relaxed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    p = weak_machine(1, 1);
    weak_first_step(p, 0);
}

static void *cancel(void *unused) {
    assert(frugal_p2f_cancel(p, 0) == FRUGAL_OK);
    weak_announce(p, 0, 0, 1, 1);
    return unused;
}

static void *plan(void *unused) {
    frugal_p2f_plan(p);
    return unused;
}

static void end(void) {
    frugal_p2f_piece piece;
    assert(frugal_p2f_is_planned(p));
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    assert(frugal_p2f_close_begin(p, &piece) == 1 && piece.n == 1 && piece.entries[0].row == 1);
    assert(frugal_p2f_close_end(p, &piece, 0) == 2);
    assert(!frugal_p2f_is_dirty(p, 0) && frugal_p2f_is_dirty(p, 1));
}

int main(void) {
    static weak_thread *const threads[] = {cancel, plan};
    return weak_run("cancel against plan", begin, threads, 2, end);
}
