/* One device without words: its loader announces a step and, once that is closed, the next, into the same places; its
 * trainer updates the row in place; another thread asks what is committed.
 * mutants: P8 relaxed; P9 relaxed; P10 relaxed; P11 relaxed; P14 relaxed; P7 relaxed; P15 relaxed; P16 relaxed */
#include "weak.h"

static frugal_p2f *p;
int keys, row; /* of the batch, which is written anew for each step; the table's */

static void begin(void) {
    frugal_p2f_desc desc = {.rows = 2, .devices = 1, .max_rows = 2, .lookahead = 0, .threads = 2, .without_words = 1};
    p = weak_open(&desc);
    keys = row = 0;
}

static void announce(uint64_t step) {
    static const uint32_t rows[2] = {0, 1};
    const frugal_p2f_batch batch = {.rows = rows, .n = 1, .in_place = 1};
    assert(frugal_p2f_announce(p, 0, step, &batch) == FRUGAL_OK);
}

static void *load(void *unused) {
    keys = 1;
    announce(0);
    if (!frugal_p2f_legal(p, 1)) return unused;
    keys = 2;
    announce(1);
    return unused;
}

static void *train(void *unused) {
    if (!frugal_p2f_gate(p, 0)) return unused;
    assert(keys == 1 && row == 0);
    row = 1;
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    if (frugal_p2f_gate(p, 1)) assert(keys == 2 && row == 1);
    return unused;
}

static void *ask(void *unused) {
    if (frugal_p2f_committed(p, 0) == 1) assert(row == 1);
    if (frugal_p2f_all_committed(p) == 1) assert(row == 1);
    return unused;
}

static void end(void) {
    frugal_p2f_progress now = frugal_p2f_get_progress(p);
    assert(now.closed == now.committed && now.closed == (uint64_t)row && now.alone == now.closed);
    assert(frugal_p2f_cancel(p, now.closed) == FRUGAL_OK);
}

int main(void) {
    static weak_thread *const threads[] = {load, train, ask};
    return weak_run("one device without words", begin, threads, 3, end);
}
