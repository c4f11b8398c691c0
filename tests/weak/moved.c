/* No thread flushes: a gate must not open on a dirty row that planning has just moved to its step, whichever device
 * sealed the step, and whoever planned it.
 * mutants: P12 relaxed; P12 acquire; P12 release; P15 relaxed; P16 relaxed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    p = weak_machine(2, 1);
    weak_announce(p, 0, 0, 0, 1);
    weak_announce(p, 1, 0, 0, 0);
    assert(frugal_p2f_plan(p) == 2);
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    assert(frugal_p2f_commit(p, 1, 0, 1, NULL) == FRUGAL_OK);
    assert(frugal_p2f_close(p) == 2);
}

static void *announce_0(void *unused) {
    weak_announce(p, 0, 1, 0, 1);
    frugal_p2f_plan(p);
    return unused;
}
static void *announce_1(void *unused) {
    weak_announce(p, 1, 1, 0, 0);
    frugal_p2f_plan(p);
    return unused;
}

static void *gate(void *unused) {
    assert(!frugal_p2f_gate(p, 1));
    return unused;
}

static void end(void) {
    gate(NULL);
    assert(frugal_p2f_planned(p) == 2 && frugal_p2f_pending(p, 1) == 1);
}

int main(void) {
    static weak_thread *const threads[] = {announce_0, announce_1, gate};
    return weak_run("a moved row keeps the gate shut", begin, threads, 3, end);
}
