/* Two whole steps of a row: a trainer commits, announces, plans and looks up, a worker closes and flushes. Each lookup
 * sees the updates of all steps before, each applied once.
 * mutants: P1 relaxed; P4 relaxed; P17 relaxed; P18 relaxed */
#include "weak.h"

static frugal_p2f *p;
int record[2], row;

static void begin(void) {
    p = weak_machine(1, 1);
    weak_first_step(p, 0);
    record[0] = record[1] = row = 0;
}

static void *train(void *unused) {
    assert(frugal_p2f_gate(p, 0) && row == 0);
    record[0] = 1;
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    weak_announce(p, 0, 1, 0, 1);
    assert(frugal_p2f_plan(p) == 2);
    if (!frugal_p2f_gate(p, 1)) return unused;
    assert(row == 1);
    record[1] = 10;
    assert(frugal_p2f_commit(p, 0, 1, 1, NULL) == FRUGAL_OK);
    return unused;
}

static void *work(void *unused) {
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    frugal_p2f_close(p);
    uint32_t n = frugal_p2f_take(p, 63, work, NULL);
    assert(n <= 1);
    if (n) {
        row += record[work[0].step];
        frugal_p2f_done(p, work, n);
    }
    return unused;
}

static void end(void) {
    for (int i = 0; i < 2; i++) work(NULL);
    assert(row == record[0] + record[1]);
}

int main(void) {
    static weak_thread *const threads[] = {train, work};
    return weak_run("two steps with a worker", begin, threads, 2, end);
}
