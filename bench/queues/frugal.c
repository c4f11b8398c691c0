/* frugal_pq.h as bench_pq uses it. For each further page size that is measured, this file is compiled again, with
 * FRUGAL_PQ_PAGE_IDS set to the size, and under other names. */
#define FRUGAL_STATIC
#define FRUGAL_PQ_IMPLEMENTATION
#include "frugal_pq.h"
#include "bench/queues/queues.h"

#include <stdlib.h>
#include <string.h>

#ifndef BENCH_FRUGAL
#define BENCH_FRUGAL      bench_queue_frugal
#define BENCH_FRUGAL_NAME "frugal"
#endif

typedef struct producer {
    frugal_pq_batch batch;
    uint8_t pad[128];
} producer;

typedef struct frugal_queue {
    frugal_pq *q;
    producer *producers;
} frugal_queue;

static void *open_queue(const bench_queue_shape *shape) {
    frugal_pq_desc desc = {.ids = shape->ids,
                           .pages = shape->entries / FRUGAL_PQ_PAGE_IDS + shape->batches * FRUGAL_PQ_SLOTS +
                                    2 * shape->threads};
    frugal_queue *f = malloc(sizeof *f);
    size_t bytes = frugal_pq_footprint(&desc);
    void *memory = aligned_alloc(FRUGAL_PQ_ALIGN, bytes);
    producer *producers = calloc(shape->threads, sizeof *producers);
    if (!f || !bytes || !memory || !producers) return NULL;
    *f = (frugal_queue){frugal_pq_init(memory, &desc), producers};
    return f;
}

static void enqueue(void *queue, uint32_t thread, const uint32_t *ids, const uint64_t *priorities, size_t n) {
    frugal_queue *f = queue;
    frugal_pq_batch *b = &f->producers[thread].batch;
    if (frugal_pq_push_n(f->q, b, ids, priorities, n, NULL) != FRUGAL_PQ_OK) abort();
    frugal_pq_commit(f->q, b);
}

static size_t adjust(void *queue, uint32_t thread, const uint32_t *ids, size_t n, uint64_t priority) {
    frugal_queue *f = queue;
    frugal_pq_batch *b = &f->producers[thread].batch;
    size_t moved = 0;
    if (frugal_pq_adjust_n(f->q, b, ids, n, priority, &moved) != FRUGAL_PQ_OK) abort();
    frugal_pq_commit(f->q, b);
    return moved;
}

static size_t take(void *queue, uint32_t thread, uint64_t limit, uint32_t *ids, int *due) {
    frugal_queue *f = queue;
    (void)thread;
    uint64_t priority = 0;
    uint32_t n = 0;
    *due = limit == UINT64_MAX || frugal_pq_min(f->q) <= limit;
    if (*due) n = frugal_pq_pop(f->q, ids, &priority);
    *due = n > 0 && priority <= limit;
    return n;
}

static void advance(void *queue, uint64_t base) {
    if (frugal_pq_advance(((frugal_queue *)queue)->q, base) != FRUGAL_PQ_OK) abort();
}

static void close_queue(void *queue) {
    frugal_queue *f = queue;
    free(f->q);
    free(f->producers);
    free(f);
}

const bench_queue BENCH_FRUGAL = {BENCH_FRUGAL_NAME, open_queue, enqueue, adjust, take, advance, close_queue};
