/* Two devices announce, a third thread plans, a fourth commits and closes: it finds the plan whole.
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

static void *announce_1(void *unused) {
    weak_announce(p, 1, 0, 0, 2);
    return unused;
}

static void *plan(void *unused) {
    frugal_p2f_plan(p);
    return unused;
}

static void *close_step(void *unused) {
    frugal_p2f_piece piece;
    if (!frugal_p2f_gate(p, 0)) return unused;
    for (uint32_t d = 0; d < 2; d++) assert(frugal_p2f_commit(p, d, 0, 1, NULL) == FRUGAL_OK);
    assert(frugal_p2f_close_begin(p, &piece) == 1);
    assert(piece.step == 0 && piece.n == 3);
    assert(piece.entries[0].row == 0 && piece.entries[0].source == 0);
    assert(piece.entries[1].row == 0 && piece.entries[1].source == 2);
    assert(piece.entries[2].row == 1 && piece.entries[2].source == 3);
    return unused;
}

static void end(void) {
    plan(NULL);
    if (frugal_p2f_all_committed(p) == 0) close_step(NULL);
    assert(frugal_p2f_all_committed(p) == 1);
}

int main(void) {
    static weak_thread *const threads[] = {announce_0, announce_1, plan, close_step};
    return weak_run("announce, plan, close: the plan", begin, threads, 4, end);
}
