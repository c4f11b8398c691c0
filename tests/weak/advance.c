/* The window is advanced past an id that is being popped, and another that is being moved out of its way: if advance
 * succeeds, pop and move are over, and what was written before them is seen. A thread that then pushes to a priority
 * that only the new window has sees it, too.
 * mutants: PQ6 relaxed; PQ7 relaxed; PQ8 relaxed; PQ9 relaxed; PQ10 relaxed */
#include "weak.h"

static frugal_pq *q;
static frugal_pq_batch uncommitted;
int popper_wrote, mover_wrote;

static void begin(void) {
    frugal_pq_batch b = {0};
    q = weak_queue(3, 5);
    assert(frugal_pq_push(q, &b, 0, 0) == FRUGAL_PQ_OK);
    assert(frugal_pq_push(q, &b, 1, 1) == FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    uncommitted.open = uncommitted.counted = 0;
    /* The pusher has its page already, so that no page passes to it: only `base` does. */
    assert(frugal_pq_adjust(q, &uncommitted, 2, 1) == FRUGAL_PQ_ABSENT);
    popper_wrote = mover_wrote = 0;
}

static void *pop(void *unused) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    popper_wrote = 1;
    assert(frugal_pq_pop(q, ids, &priority) == 1 && ids[0] == 0 && priority == 0);
    return unused;
}

static void *move(void *unused) {
    frugal_pq_batch b = {0};
    mover_wrote = 1;
    assert(frugal_pq_adjust(q, &b, 1, 3) == FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    return unused;
}

static void *advance(void *unused) {
    frugal_pq_status status = frugal_pq_advance(q, 2);
    assert(status == FRUGAL_PQ_OK || status == FRUGAL_PQ_LIVE);
    if (status == FRUGAL_PQ_OK) assert(popper_wrote && mover_wrote);
    return unused;
}

static void *push(void *unused) {
    frugal_pq_status status = frugal_pq_push(q, &uncommitted, 2, 1 + FRUGAL_PQ_SLOTS);
    assert(status == FRUGAL_PQ_OK || status == FRUGAL_PQ_WINDOW);
    if (status == FRUGAL_PQ_OK) assert(popper_wrote && mover_wrote);
    return unused;
}

static void end(void) {
    frugal_pq_commit(q, &uncommitted);
    uint64_t left = frugal_pq_size(q);
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    assert(left == 1 || left == 2);
    assert(frugal_pq_pop(q, ids, &priority) == 1 && ids[0] == 1 && priority == 3);
    if (left == 2) assert(frugal_pq_pop(q, ids, &priority) == 1 && ids[0] == 2 && priority == 1 + FRUGAL_PQ_SLOTS);
    assert(frugal_pq_pop(q, ids, &priority) == 0);
}

int main(void) {
    static weak_thread *const threads[] = {pop, move, advance, push};
    return weak_run("advance against pop, move and push", begin, threads, 4, end);
}
