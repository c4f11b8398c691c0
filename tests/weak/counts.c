/* A thread that sees a device's count of commits or announcements sees what was counted: whether the device brings
 * gradients; whether it announced in place, although the step is not sealed.
 * mutants: P10 relaxed; P11 relaxed; P10 relaxed announced; P10 relaxed committed */
#include "weak.h"

static frugal_p2f *p;

static void begin(void) {
    p = weak_machine(2, 1);
    weak_announce(p, 0, 0, 0, 1);
    weak_announce(p, 1, 0, 0, 1);
    assert(frugal_p2f_plan(p) == 2);
}

static void *train(void *unused) {
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    weak_announce_in_place(p, 0, 1, 0, 1);
    return unused;
}

static void *look(void *unused) {
    if (frugal_p2f_committed(p, 0) == 1) assert(frugal_p2f_brings(p, 0, 0));
    if (frugal_p2f_announced(p, 0) == 2) assert(frugal_p2f_is_in_place(p, 0, 1));
    return unused;
}

static void end(void) {
    look(NULL);
    assert(frugal_p2f_cancel(p, 1) == FRUGAL_OK && frugal_p2f_announced(p, 0) == 1);
}

int main(void) {
    static weak_thread *const threads[] = {train, look};
    return weak_run("a device's counts", begin, threads, 2, end);
}
