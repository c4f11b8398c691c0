/* pq.c - the example of frugal_pq.h, section 5, as a program. tests/compile/example checks that the two agree. */
#include <stdio.h>
#include <stdlib.h>

#define FRUGAL_PQ_IMPLEMENTATION
#include "frugal_pq.h"

int main(void) {
    frugal_pq_desc desc = {.ids = 1000, .pages = 128};
    void *memory = aligned_alloc(FRUGAL_PQ_ALIGN, frugal_pq_footprint(&desc));
    frugal_pq *q = frugal_pq_init(memory, &desc);
    frugal_pq_batch b = {0};
    frugal_pq_push(q, &b, 7, 12); // id 7 at priority 12
    frugal_pq_push(q, &b, 8, 3);
    frugal_pq_adjust(q, &b, 7, 1); // now at priority 1
    frugal_pq_commit(q, &b);       // visible to all
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    for (uint32_t n; (n = frugal_pq_pop(q, ids, &priority)) > 0;)
        printf("%u id(s) at priority %llu\n", n, (unsigned long long)priority);
    free(memory);
    return 0;
}
