/* The memory of a step's rows and bits is used again by the next announcement, once the step is closed; until then
 * planning and a device read it.
 * mutants: P8 relaxed; P9 relaxed closed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    p = weak_machine(1, 0);
    weak_announce(p, 0, 0, 0, 1);
}

static void *train(void *unused) {
    assert(frugal_p2f_plan(p) == 2 && frugal_p2f_gate(p, 0));
    assert(frugal_p2f_valid(p, 0, 0)[0] == 1); /* a plain read */
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK && frugal_p2f_close(p) == 2);
    return unused;
}

static void *announce(void *unused) {
    const uint32_t row = 1;
    frugal_status status = frugal_p2f_announce(p, 0, 1, &(frugal_p2f_batch){.rows = &row, .n = 1});
    assert(status == FRUGAL_OK || status == FRUGAL_AGAIN);
    return unused;
}

static void end(void) {
    frugal_p2f_work work;
    assert(frugal_p2f_take_row(p, 0, &work) == 1 && frugal_p2f_contributors(work.entries) == 1);
    if (frugal_p2f_announced(p, 0) == 1) announce(NULL);
    assert(frugal_p2f_announced(p, 0) == 2 && frugal_p2f_plan(p) == 2);
}

int main(void) {
    static weak_thread *const threads[] = {train, announce};
    return weak_run("a ring entry is used again", begin, threads, 2, end);
}
