/* A closer applies a row's update itself: a thread that then finds the step closed sees the row written.
 * mutants: P8 relaxed; P9 relaxed */
#include "weak.h"

static frugal_p2f *p;
int row;

static void begin(void) {
    p = weak_machine(1, 1);
    weak_first_step(p, 0);
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    row = 0;
}

static void *close_and_apply(void *unused) {
    frugal_p2f_piece piece;
    assert(frugal_p2f_close_begin(p, &piece) == 1 && piece.n == 1);
    row = 1;
    assert(frugal_p2f_close_end(p, &piece, 1) == 2);
    return unused;
}

static void *look(void *unused) {
    if (frugal_p2f_closed(p) == 1) assert(row == 1);
    return unused;
}

static void end(void) {
    assert(frugal_p2f_gate(p, 1) == 0 && frugal_p2f_is_dirty(p, 0) == 0);
}

int main(void) {
    static weak_thread *const threads[] = {close_and_apply, look};
    return weak_run("an update applied at closing", begin, threads, 2, end);
}
