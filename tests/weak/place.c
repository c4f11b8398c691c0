/* Device 0 updates a row that it alone has announced in place and commits, a second thread plans, a third
 * closes it, a fourth, device 1, reads the row behind the gate of the next step. Device 0 finds the plan's bit behind
 * its gate; device 1 finds the update there.
 * mutants: P7 relaxed; P8 relaxed; P9 relaxed; P14 relaxed; P14 release; P14 acquire; P15 relaxed; P16 relaxed */
#include "weak.h"

static frugal_p2f *p;
int row, updated; /* the row in the table; is it updated? */

static void begin(void) {
    p = weak_machine(2, 1);
    weak_announce_in_place(p, 0, 0, 0, 1);
    weak_announce(p, 1, 0, 0, 0);
    weak_announce(p, 0, 1, 0, 0);
    weak_announce(p, 1, 1, 0, 1);
    row = updated = 0;
}

static void *update(void *unused) {
    if (!frugal_p2f_gate(p, 0)) return unused;
    assert(frugal_p2f_alone(p, 0, 0)[0] == 1); /* a plain read of what the planner wrote */
    row = updated = 1;
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    return unused;
}

static void *plan(void *unused) { /* and commits device 1, maybe last */
    assert(frugal_p2f_plan(p) == 2 && frugal_p2f_plan(p) == 2);
    assert(frugal_p2f_gate(p, 0) && frugal_p2f_alone(p, 1, 0) == NULL);
    assert(frugal_p2f_commit(p, 1, 0, 0, NULL) == FRUGAL_OK);
    return unused;
}

static void *close_step(void *unused) {
    frugal_p2f_close(p);
    return unused;
}

static void *read_row(void *unused) {
    if (frugal_p2f_gate(p, 1)) assert(row == 1);
    return unused;
}

static void end(void) {
    if (!updated) update(NULL);
    frugal_p2f_close(p);
    assert(frugal_p2f_gate(p, 1) && row == 1 && !frugal_p2f_is_dirty(p, 0));
    assert(frugal_p2f_get_progress(p).in_place == 1);
}

int main(void) {
    static weak_thread *const threads[] = {update, plan, close_step, read_row};
    return weak_run("plan, update in place, close, read: the row", begin, threads, 4, end);
}
