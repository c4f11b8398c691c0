/* An id is popped, and pushed again by another thread: the second push sees what was written before the pop, although
 * its own page does not come from the popping thread.
 * mutants: PQ4 relaxed; PQ5 relaxed; PQ4 release; PQ5 acquire */
#include "weak.h"

static frugal_pq *q;
static frugal_pq_batch uncommitted;
int written, pushed;

static void begin(void) {
    frugal_pq_batch b = {0};
    q = weak_queue(1, 3);
    assert(frugal_pq_push(q, &b, 0, 5) == FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    uncommitted.open = uncommitted.counted = 0;
    written = pushed = 0;
}

static void *pop(void *unused) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    written = 1;
    assert(frugal_pq_pop(q, ids, &priority) == 1 && ids[0] == 0 && priority == 5);
    return unused;
}

static void *push(void *unused) {
    frugal_pq_status status = frugal_pq_push(q, &uncommitted, 0, 7);
    assert(status == FRUGAL_PQ_OK || status == FRUGAL_PQ_PRESENT);
    pushed = status == FRUGAL_PQ_OK;
    if (pushed) assert(written == 1);
    return unused;
}

static void end(void) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    frugal_pq_commit(q, &uncommitted);
    assert(frugal_pq_size(q) == (uint64_t)pushed);
    assert(frugal_pq_pop(q, ids, &priority) == (uint32_t)pushed);
}

int main(void) {
    static weak_thread *const threads[] = {pop, push};
    return weak_run("pop, then push of the same id", begin, threads, 2, end);
}
