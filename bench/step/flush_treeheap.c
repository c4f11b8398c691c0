/* flush_treeheap.c - the runtime with TreeHeap in place of its own queue: the paper's Exp #4.
 *
 * frugal_p2f.h asks its queue for few things: a row at the slot of a step (put), the first slot that holds any (first),
 * rows of that slot (take), and that a slot be emptied (retire). Here they are done by one heap for all steps, whose
 * priorities are steps. Rows that are moved are put once more, as into the library's own queue, and the state machine
 * tells which entry is stale.
 */
#define FRUGAL_PQ_IMPLEMENTED /* by this file; what else comes with the implementation stays */
#define FRUGAL_PQ_IMPLEMENTATION
#include "frugal_pq.h"

#include "bench/queues/treeheap.h"

/* The nodes lie behind it, in the caller's memory. */
struct frugal_pq {
    tree entries;
    FRUGAL_ATOMIC(uint64_t) committed; /* step; the next that is to be retired */
};

static _Thread_local struct {
    uint32_t number; /* of this thread, from 1 on */
    uint32_t taken;  /* by first, for take: entries, all of one step */
    tree_node entry;
} own;

static uint64_t entries_of(const frugal_pq_desc *desc) {
    return desc->pages * FRUGAL_PQ_PAGE_IDS;
}

size_t frugal_pq_footprint(const frugal_pq_desc *desc) {
    return desc->pages == 0 || entries_of(desc) >= UINT32_MAX ? 0 : FRUGAL_PQ_ALIGN + tree_bytes(entries_of(desc));
}

frugal_pq *frugal_pq_init(void *memory, const frugal_pq_desc *desc) {
    _Static_assert(sizeof(frugal_pq) <= FRUGAL_PQ_ALIGN, "the nodes begin there");
    frugal_pq *q = memory;
    tree_init(&q->entries, (unsigned char *)memory + FRUGAL_PQ_ALIGN, entries_of(desc));
    frugal_store_relaxed(&q->committed, 0);
    return q;
}

static void insert(frugal_pq *q, uint32_t id, uint64_t step) {
    static FRUGAL_ATOMIC(uint32_t) threads;
    if (!own.number) own.number = 1 + (uint32_t)frugal_add_relaxed(&threads, 1);
    tree_insert(&q->entries, own.number, id, step);
}

/* No row becomes due at a step that is committed, and none more than 63 steps ahead. */
int frugal_pq_put(frugal_pq *q, frugal_pq_batch *b, uint32_t slot, uint32_t id) {
    uint64_t committed = frugal_load_relaxed(&q->committed); /* relaxed: the caller has acquired the commit */
    (void)b;
    insert(q, id, committed + (slot - committed) % FRUGAL_PQ_SLOTS);
    return 1;
}

void frugal_pq_commit(frugal_pq *q, frugal_pq_batch *b) { /* each row is there as soon as it is put */
    (void)q;
    (void)b;
}

/* Takes the lowest entry if its step is at most `limit`. Between the look at the root and the removal another thread
 * may be faster: then the next entry goes back. */
static int take_until(frugal_pq *q, uint64_t limit, tree_node *entry) {
    if (!tree_is_due(&q->entries, limit) || !tree_remove_lowest(&q->entries, entry)) return 0;
    if (entry->priority <= limit) return 1;
    insert(q, entry->id, entry->priority);
    return 0;
}

/* A look at the root would tell a slot whose rows another thread may take before `take` comes: so the first row is
 * taken here. `slot` is that of the first step not closed, which is committed, or is the next to be. */
uint32_t frugal_pq_first(const frugal_pq *constant, uint32_t slot, uint32_t n) {
    frugal_pq *q = (frugal_pq *)(uintptr_t)constant;
    uint64_t committed = frugal_load_relaxed(&q->committed); /* relaxed: a hint where to take from */
    uint64_t closed = committed - (committed - slot) % FRUGAL_PQ_SLOTS;
    own.taken = (uint32_t)take_until(q, closed + n - 1, &own.entry);
    return own.taken ? own.entry.priority % FRUGAL_PQ_SLOTS : FRUGAL_PQ_SLOTS;
}

uint32_t frugal_pq_take(frugal_pq *q, uint32_t slot, uint32_t ids[FRUGAL_PQ_PAGE_IDS]) {
    uint32_t n = 0;
    FRUGAL_ASSERT(own.taken && own.entry.priority % FRUGAL_PQ_SLOTS == slot);
    (void)slot;
    ids[n++] = own.entry.id;
    for (tree_node entry; n < FRUGAL_PQ_PAGE_IDS && take_until(q, own.entry.priority, &entry);) {
        if (entry.priority == own.entry.priority)
            ids[n++] = entry.id;
        else { /* an earlier step's, put meanwhile, or stale */
            insert(q, entry.id, entry.priority);
            break;
        }
    }
    own.taken = 0;
    return n;
}

/* Stale entries of this step and of earlier ones stand at the root, or will. */
uint64_t frugal_pq_retire(frugal_pq *q, uint32_t slot) {
    uint64_t step = frugal_load_relaxed(&q->committed); /* relaxed: commits follow each other, by acquire and release */
    uint64_t dropped = 0;
    step += (slot - step) % FRUGAL_PQ_SLOTS;
    for (tree_node entry; take_until(q, step, &entry);) dropped++;
    frugal_store_relaxed(&q->committed, step + 1); /* relaxed: published by the caller's */
    return dropped;
}

#include "frugal_flush.c"
