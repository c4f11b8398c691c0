/* Two threads plan a step in pieces, and a third passes its gate: it finds the bits that either has set, and the rows
 * that either has found taken, in one list.
 * with: s/PLAN_RANGE  *4096u/PLAN_RANGE 2u/
 * mutants: P16 relaxed plan_left; P16 acquire plan_left; P16 release plan_left; P16 relaxed planned; P15 relaxed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    const frugal_p2f_desc desc = {.rows = 2, .devices = 2, .max_rows = 2, .lookahead = 1, .threads = 2, .taken = 1};
    p = weak_open(&desc);
    for (uint64_t t = 0; t < 2; t++) { /* device 0 holds both rows; then device 1 touches them */
        weak_announce_in_place(p, (uint32_t)t, t, 0, 2);
        weak_announce(p, 1 - (uint32_t)t, t, 0, 0);
    }
    while (frugal_p2f_planned(p) == 0) frugal_p2f_plan(p);
    for (uint32_t d = 0; d < 2; d++) assert(frugal_p2f_commit(p, d, 0, 1, NULL) == FRUGAL_OK);
    while (frugal_p2f_close(p)) continue;
}

static void *plan(void *unused) {
    while (frugal_p2f_plan(p)) continue;
    return unused;
}

static void *look(void *unused) {
    const uint32_t *rows;
    if (!frugal_p2f_gate(p, 1)) return unused;
    assert(frugal_p2f_taken(p, 0, 1, &rows) == 2 && rows[0] == 0 && rows[1] == 1);
    assert(frugal_p2f_taken(p, 1, 1, &rows) == 0);
    assert(frugal_p2f_valid(p, 1, 1)[0] == 0 && frugal_p2f_alone(p, 1, 1)[0] == 3);
    return unused;
}

static void end(void) {
    assert(frugal_p2f_planned(p) == 2 && frugal_p2f_gate(p, 1));
    look(NULL);
}

int main(void) {
    static weak_thread *const threads[] = {plan, plan, look};
    return weak_run("a step planned in pieces", begin, threads, 3, end);
}
