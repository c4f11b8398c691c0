/* A page is taken, freed and published again in the same slot while another thread is about to take it (ABA): the tag
 * shows it.
 * mutants: s/((found >> 32) + 1) << 32/(found >> 32) << 32/ */
#include "weak.h"

static frugal_pq *q;
int delivered[4];

static void begin(void) {
    q = weak_queue(0, 2);
    frugal_pq_batch b = {0};
    for (uint32_t id = 0; id < 2; id++) { /* slot 5: the page of 1 over that of 0 */
        delivered[id] = delivered[id + 2] = 0;
        assert(frugal_pq_put(q, &b, 5, id));
        frugal_pq_commit(q, &b);
    }
}

static void *take(void *unused) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint32_t n = frugal_pq_take(q, 5, ids);
    assert(n <= 1);
    if (n == 1) delivered[ids[0]]++;
    return unused;
}

static void *take_both_and_put(void *unused) {
    frugal_pq_batch b = {0};
    take(NULL);
    take(NULL);
    /* Where both pages are free: the lower one goes to slot 6, the upper one back to slot 5. */
    if (!frugal_pq_put(q, &b, 6, 2)) delivered[2]++; /* the other thread has a page in its hands */
    if (!frugal_pq_put(q, &b, 5, 3)) delivered[3]++;
    frugal_pq_commit(q, &b);
    return unused;
}

static void end(void) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    for (int i = 0; i < 2; i++) take(NULL);
    while (frugal_pq_take(q, 6, ids)) delivered[ids[0]]++;
    for (int id = 0; id < 4; id++) assert(delivered[id] == 1);
}

int main(void) {
    static weak_thread *const threads[] = {take, take_both_and_put};
    return weak_run("a page used again while it is popped", begin, threads, 2, end);
}
