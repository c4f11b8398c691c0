/* Two threads close a step in pieces: when all of it is closed, the gate of the next step sees the rows of both (no
 * thread flushes).
 * with: s/CLOSE_RANGE 1024u/CLOSE_RANGE 1u/
 * mutants: P19 relaxed; P19 acquire; P19 release; P8 relaxed; P9 relaxed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    p = weak_machine(1, 1);
    weak_announce(p, 0, 0, 0, 2);
    weak_announce(p, 0, 1, 0, 1); /* row 0 is due at 1, row 1 at 3 */
    while (frugal_p2f_plan(p)) continue;
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
}

static void *close_pieces(void *unused) {
    while (frugal_p2f_close(p)) continue;
    return unused;
}

static void *gate(void *unused) {
    assert(!frugal_p2f_gate(p, 1));
    return unused;
}

static void end(void) {
    assert(frugal_p2f_closed(p) == 1 && frugal_p2f_pending(p, 1) == 1 && frugal_p2f_pending(p, 3) == 1);
}

int main(void) {
    static weak_thread *const threads[] = {close_pieces, close_pieces, gate};
    return weak_run("a step closed in pieces", begin, threads, 3, end);
}
