/* When a step is closed, the gate of the next step must not open while a row that the closing made due there is pending
 * (no thread flushes).
 * mutants: P8 relaxed; P9 relaxed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    p = weak_machine(1, 1);
    weak_announce(p, 0, 0, 0, 1);
    weak_announce(p, 0, 1, 0, 1);
    assert(frugal_p2f_plan(p) == 2 && frugal_p2f_plan(p) == 2);
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
}

static void *close_step(void *unused) {
    assert(frugal_p2f_close(p) == 2);
    return unused;
}

static void *gate(void *unused) {
    assert(!frugal_p2f_gate(p, 1));
    return unused;
}

static void end(void) {
    assert(frugal_p2f_closed(p) == 1 && frugal_p2f_pending(p, 1) == 1);
}

int main(void) {
    static weak_thread *const threads[] = {close_step, gate};
    return weak_run("a closed step's rows keep the gate shut", begin, threads, 2, end);
}
