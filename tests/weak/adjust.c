/* An id whose stale entry lies published in slot 5 is moved back there: the entry is valid again, and a thread that
 * pops it sees what the mover wrote before, although no page passes between them.
 * mutants: PQ4 relaxed; PQ5 relaxed; PQ4 acquire; PQ5 release */
#include "weak.h"

static frugal_pq *q;
static frugal_pq_batch uncommitted;
int written;

static void begin(void) {
    frugal_pq_batch b = {0};
    q = weak_queue(1, 3);
    assert(frugal_pq_push(q, &b, 0, 5) == FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    assert(frugal_pq_adjust(q, &b, 0, 6) == FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    uncommitted.open = uncommitted.counted = 0;
    written = 0;
}

static void *adjust(void *unused) {
    written = 1;
    frugal_pq_status status = frugal_pq_adjust(q, &uncommitted, 0, 5);
    assert(status == FRUGAL_PQ_OK || status == FRUGAL_PQ_ABSENT);
    return unused;
}

static void *pop(void *unused) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    if (frugal_pq_pop(q, ids, &priority) == 1 && priority == 5) assert(written == 1);
    return unused;
}

static void end(void) {}

int main(void) {
    static weak_thread *const threads[] = {adjust, pop};
    return weak_run("adjust against pop: what was written before", begin, threads, 2, end);
}
