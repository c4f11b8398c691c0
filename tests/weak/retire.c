/* A slot is retired while two pages are published in it: what is dropped was published whole, and no page is lost.
 * mutants: PQ1 relaxed; PQ3 relaxed */
#include "weak.h"

static frugal_pq *q;
uint64_t dropped;

static void begin(void) {
    q = weak_queue(0, 2);
    dropped = 0;
}

static void *produce(void *unused) {
    frugal_pq_batch b = {0};
    for (uint32_t id = 0; id < 2; id++) { /* a page each */
        assert(frugal_pq_put(q, &b, 5, id));
        frugal_pq_commit(q, &b);
    }
    return unused;
}

static void *retire(void *unused) {
    dropped = frugal_pq_retire(q, 5);
    return unused;
}

static void end(void) {
    uint32_t page, free_pages = 0;
    dropped += frugal_pq_retire(q, 5);
    assert(dropped == 2);
    while (frugal_priv_pq_pop_page(q, &q->free, &page)) free_pages++;
    assert(free_pages == 2);
}

int main(void) {
    static weak_thread *const threads[] = {produce, retire};
    return weak_run("retire against put", begin, threads, 2, end);
}
