/* A thread that sees a device's count of commits or announcements sees what was counted: whether the device brings
 * gradients, or its rows. The latter matters to cancel, which knows by a relaxed flag that no announcement is running.
 * mutants: P10 relaxed; P11 relaxed; P10 relaxed announced; P10 relaxed committed */
#include "weak.h"

static frugal_p2f *p;
static atomic_int announced; /* relaxed; always */

static void begin(void) {
    p = weak_machine(2, 1);
    weak_announce(p, 0, 0, 0, 1);
    weak_announce(p, 1, 0, 0, 1);
    assert(frugal_p2f_plan(p) == 2);
    frugal_store_relaxed(&announced, 0);
}

static void *train(void *unused) {
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    weak_announce(p, 0, 1, 0, 1);
    frugal_store_relaxed(&announced, 1);
    return unused;
}

static void *cancel(void *unused) {
    if (frugal_p2f_committed(p, 0) == 1) assert(frugal_p2f_brings(p, 0, 0));
    if (frugal_load_relaxed(&announced)) assert(frugal_p2f_cancel(p, 1) == FRUGAL_OK);
    return unused;
}

static void end(void) {
    int read_at_1 = (int)(frugal_priv_reads_from(frugal_load_relaxed(frugal_priv_words(p)), 1) & 1);
    assert(frugal_p2f_announced(p, 0) == (read_at_1 ? 2 : 1));
}

int main(void) {
    static weak_thread *const threads[] = {train, cancel};
    return weak_run("a device's counts", begin, threads, 2, end);
}
