/* Two threads pop while a third moves the id: it is delivered exactly once, by either of its two entries.
 * mutants: s/if (ours) ids\[taken++\]/ids[taken++]/ */
#include "weak.h"

static frugal_pq *q;
int popped[2];

static void begin(void) {
    frugal_pq_batch b = {0};
    q = weak_queue(1, 4);
    assert(frugal_pq_push(q, &b, 0, 6) == FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    popped[0] = popped[1] = 0;
}

static void *adjust(void *unused) {
    frugal_pq_batch b = {0};
    if (frugal_pq_adjust(q, &b, 0, 2) == FRUGAL_PQ_OK) frugal_pq_commit(q, &b);
    return unused;
}

static int pop(void) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    uint32_t n = frugal_pq_pop(q, ids, &priority);
    assert(n == 0 || (n == 1 && ids[0] == 0 && (priority == 6 || priority == 2)));
    return (int)n;
}
static void *pop_0(void *unused) {
    return popped[0] = pop(), unused;
}
static void *pop_1(void *unused) {
    return popped[1] = pop(), unused;
}

static void end(void) {
    assert(popped[0] + popped[1] + pop() == 1);
    assert(frugal_pq_size(q) == 0 && frugal_pq_min(q) == FRUGAL_PQ_EMPTY);
}

int main(void) {
    static weak_thread *const threads[] = {adjust, pop_0, pop_1};
    return weak_run("two pops and an adjust: exactly once", begin, threads, 3, end);
}
