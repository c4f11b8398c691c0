/* Two trainers write a record and commit, a third thread closes the step, a fourth takes the row: it sees both records,
 * and which devices bring one.
 * mutants: P2 relaxed; P3 relaxed; P7 relaxed; P14 relaxed; P14 release; P14 acquire */
#include "weak.h"

static frugal_p2f *p;
int record[2];

static void begin(void) {
    p = weak_machine(2, 1);
    weak_announce(p, 0, 0, 0, 1);
    weak_announce(p, 1, 0, 0, 1);
    assert(frugal_p2f_plan(p) == 2);
    record[0] = record[1] = 0;
}

static void train(uint32_t device) {
    record[device] = 1;
    assert(frugal_p2f_commit(p, device, 0, 1, NULL) == FRUGAL_OK);
}
static void *train_0(void *unused) {
    return train(0), unused;
}
static void *train_1(void *unused) {
    return train(1), unused;
}

static void *close_step(void *unused) {
    frugal_p2f_close(p);
    return unused;
}

static void *take(void *unused) {
    frugal_p2f_work work;
    int taken = frugal_p2f_take_row(p, 0, &work);
    assert(taken == 0 || taken == 1);
    if (taken) {
        assert(work.step == 0 && frugal_p2f_contributors(work.entries) == 2);
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t device, which;
            frugal_p2f_source(p, work.entries[i].source, &device, &which);
            assert(device == i && which == 0 && frugal_p2f_brings(p, device, 0) && record[device]);
        }
        frugal_p2f_done(p, &work, 1);
    }
    return unused;
}

static void end(void) {
    frugal_p2f_close(p);
    take(NULL);
    assert(!frugal_p2f_is_dirty(p, 0) && frugal_p2f_closed(p) == 1 && frugal_p2f_get_progress(p).pending == 0);
}

int main(void) {
    static weak_thread *const threads[] = {train_0, train_1, close_step, take};
    return weak_run("commit, close, take: the records", begin, threads, 4, end);
}
