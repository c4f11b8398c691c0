/* Two producers publish a page each in one slot, a consumer takes one: it sees the ids in it and what was written
 * before they were put, and each id is delivered once.
 * mutants: PQ1 relaxed; PQ2 relaxed; PQ2 relaxed load */
#include "weak.h"

static frugal_pq *q;
int written[2]; /* plain, as `delivered` */
int delivered[2];

static void begin(void) {
    q = weak_queue(0, 2);
    written[0] = written[1] = delivered[0] = delivered[1] = 0;
}

static void produce(uint32_t id) {
    frugal_pq_batch b = {0};
    written[id] = 1;
    assert(frugal_pq_put(q, &b, 5, id));
    frugal_pq_commit(q, &b);
}

static void *produce_0(void *unused) {
    return produce(0), unused;
}
static void *produce_1(void *unused) {
    return produce(1), unused;
}

static void *consume(void *unused) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint32_t n = frugal_pq_take(q, 5, ids);
    assert(n <= 1);
    if (n == 1) {
        assert(written[ids[0]]);
        delivered[ids[0]]++;
    }
    return unused;
}

static void end(void) {
    for (int i = 0; i < 3; i++) consume(NULL);
    assert(delivered[0] == 1 && delivered[1] == 1);
}

int main(void) {
    static weak_thread *const threads[] = {produce_0, produce_1, consume};
    return weak_run("pages: two producers, one consumer", begin, threads, 3, end);
}
