/* Two devices announce, a third thread plans, a fourth closes: it finds the plan whole.
 * mutants: P5 relaxed; P6 relaxed; P12 relaxed; P12 acquire; P12 release; P15 relaxed; P16 relaxed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    p = weak_machine(2, 1);
}

static void *announce_0(void *unused) {
    weak_announce(p, 0, 0, 0, 1);
    return unused;
}

static void *announce_1(void *unused) { /* seals or not; and commits for both, who may at once: nothing is pending */
    weak_announce(p, 1, 0, 0, 2);
    if (frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK) assert(frugal_p2f_commit(p, 1, 0, 1, NULL) == FRUGAL_OK);
    return unused;
}

static void *plan(void *unused) {
    frugal_p2f_plan(p);
    return unused;
}

static void *close_step(void *unused) {
    frugal_p2f_piece piece;
    if (!frugal_p2f_close_begin(p, &piece)) return unused;
    assert(piece.step == 0 && piece.n == 3);
    assert(piece.entries[0].row == 0 && piece.entries[0].source == 0);
    assert(piece.entries[1].row == 0 && piece.entries[1].source == 2);
    assert(piece.entries[2].row == 1 && piece.entries[2].source == 3);
    return unused;
}

static void end(void) {
    frugal_p2f_plan(p);
}

int main(void) {
    static weak_thread *const threads[] = {announce_0, announce_1, plan, close_step};
    return weak_run("announce, plan, close: the plan", begin, threads, 4, end);
}
