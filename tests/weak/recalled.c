/* A step is planned at which device 1 reads a row of which device 0 keeps an update, while another thread asks whether
 * device 0 has recalls: it reads the list whole, or finds none.
 * mutants: P22 relaxed; P23 relaxed */
#include "weak.h"

static frugal_p2f *p;
static int found; /* of the second thread's; read when it is joined */

static void begin(void) {
    const frugal_p2f_desc desc = {.rows = 2, .devices = 2, .max_rows = 2, .lookahead = 1, .threads = 2, .recalls = 1};
    p = weak_open(&desc);
    weak_announce_in_place(p, 0, 0, 1, 1);
    weak_announce(p, 1, 0, 0, 0);
    assert(frugal_p2f_plan(p) == 2);
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK && frugal_p2f_commit(p, 1, 0, 0, NULL) == FRUGAL_OK);
    assert(frugal_p2f_close(p) == 2);
    weak_announce(p, 0, 1, 0, 0);
    weak_announce(p, 1, 1, 0, 2);
    found = 0;
}

static void *plan(void *unused) {
    assert(frugal_p2f_plan(p) == 2);
    return unused;
}

static void *look(void *unused) {
    const uint32_t *rows;
    uint64_t step;
    if (!frugal_p2f_has_recall(p, 0, &step)) return unused;
    assert(step == 1 && frugal_p2f_recalls(p, 0, 1, &rows) == 1 && rows[0] == 1);
    assert(frugal_p2f_recall_done(p, 0, 1) == 1);
    found = 1;
    return unused;
}

static void end(void) {
    if (!found) look(NULL);
    assert(found && !frugal_p2f_is_recalled(p, 0, 1) && frugal_p2f_gate(p, 1));
}

int main(void) {
    static weak_thread *const threads[] = {plan, look};
    return weak_run("plan, look: recalls", begin, threads, 2, end);
}
