/* Two threads plan two steps, one after the other, whoever plans which: the second is planned by who has seen the first
 * planned, so the holder changes in the order of the steps, and the places for what pieces find are free again.
 * mutants: P15 relaxed closing; P16 relaxed planned */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    const frugal_p2f_desc desc = {.rows = 2, .devices = 2, .max_rows = 2, .lookahead = 1, .threads = 2, .taken = 1};
    p = weak_open(&desc);
    for (uint64_t t = 0; t < 2; t++) /* device 0, then device 1 */
        for (uint32_t d = 0; d < 2; d++) weak_announce(p, d, t, 0, d == t);
}

static void *plan(void *unused) {
    frugal_p2f_plan(p);
    return unused;
}

static void end(void) {
    const uint32_t *rows;
    plan(NULL);
    assert(frugal_p2f_planned(p) == 2 && frugal_p2f_valid(p, 0, 0)[0] == 1 && frugal_p2f_valid(p, 1, 1)[0] == 0);
    assert(frugal_p2f_taken(p, 0, 1, &rows) == 1 && rows[0] == 0 && frugal_p2f_taken(p, 1, 1, &rows) == 0);
}

int main(void) {
    static weak_thread *const threads[] = {plan, plan};
    return weak_run("steps are planned in order", begin, threads, 2, end);
}
