/* Rows get words, and the first batch is announced that is not in place, while another thread looks for steps to close:
 * it finds none, because in the steps so far there was nothing to plan and to close.
 * mutants: P24 relaxed; P25 relaxed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    frugal_p2f_desc desc = {.rows = 2, .devices = 1, .max_rows = 2, .lookahead = 1, .threads = 2, .without_words = 1};
    p = weak_open(&desc);
    weak_announce_in_place(p, 0, 0, 0, 0); /* so that who closes it wrongly reads no plan that is not there */
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
}

static void *use(void *unused) {
    assert(frugal_p2f_use_words(p) == FRUGAL_OK);
    weak_announce(p, 0, 1, 0, 1);
    return unused;
}

static void *help(void *unused) {
    assert(frugal_p2f_close(p) == 0);
    return unused;
}

static void end(void) {
    assert(frugal_p2f_plan(p) == 2);
    assert(frugal_p2f_commit(p, 0, 1, 1, NULL) == FRUGAL_OK);
    assert(frugal_p2f_close(p) == 2);
    assert(frugal_p2f_get_progress(p).pending == 1);
}

int main(void) {
    static weak_thread *const threads[] = {use, help};
    return weak_run("rows that get words", begin, threads, 2, end);
}
