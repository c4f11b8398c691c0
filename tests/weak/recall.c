/* Device 0 keeps the update of a row that it alone has announced for step 0, and commits; device 1 commits, and closes
 * the step; a third thread has the row written back, which is recalled for step 1; a fourth, device 1, reads the row
 * behind the gate of step 1.
 * mutants: P11 relaxed; P20 relaxed; P21 relaxed */
#include "weak.h"

static frugal_p2f *p;
int row, copy, kept; /* the row in the table, and in the device's cache; is the copy newer? */

static void begin(void) {
    const frugal_p2f_desc desc = {.rows = 2, .devices = 2, .max_rows = 2, .lookahead = 1, .threads = 2, .recalls = 1};
    p = weak_open(&desc);
    weak_announce_in_place(p, 0, 0, 0, 1);
    weak_announce(p, 1, 0, 0, 0);
    weak_announce(p, 1, 1, 0, 1);
    weak_announce(p, 0, 1, 0, 0);
    assert(frugal_p2f_plan(p) == 2 && frugal_p2f_plan(p) == 2);
    row = copy = kept = 0;
}

static void *keep(void *unused) {
    assert(frugal_p2f_gate(p, 0));
    copy = kept = 1;
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    return unused;
}

static void *close_step(void *unused) {
    assert(frugal_p2f_commit(p, 1, 0, 0, NULL) == FRUGAL_OK);
    frugal_p2f_close(p);
    return unused;
}

static void *write_back(void *unused) {
    uint64_t step;
    if (!frugal_p2f_has_recall(p, 0, &step)) return unused;
    assert(step == 1);
    if (kept) row = copy, kept = 0;
    frugal_p2f_recall_done(p, 0, 1);
    return unused;
}

static void *read_row(void *unused) {
    if (frugal_p2f_gate(p, 1)) assert(row == 1);
    return unused;
}

static void end(void) {
    frugal_p2f_close(p);
    write_back(NULL);
    assert(frugal_p2f_gate(p, 1) && row == 1 && !kept && !frugal_p2f_is_dirty(p, 0));
}

int main(void) {
    static weak_thread *const threads[] = {keep, close_step, write_back, read_row};
    return weak_run("keep, close, write back, read: the row", begin, threads, 4, end);
}
