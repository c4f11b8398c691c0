/* The cost of finding the lowest occupied slot in frugal_pq.h, with `distance` empty slots before it. */
#define FRUGAL_STATIC
#define FRUGAL_PQ_IMPLEMENTATION
#include "frugal_pq.h"
#include "bench/queues/scan.h"
#include "bench/measure.h"
#include "bench/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOKS = 1000, REPETITIONS = 101 };

typedef struct disturber {
    frugal_pq *q;
    atomic_int started, stop;
} disturber;

/* Changes the cache line of every slot and leaves it as it was: so that it is always in another processor's cache. */
static void *disturb(void *argument) {
    disturber *d = argument;
    while (!atomic_load_explicit(&d->stop, memory_order_relaxed)) {
        for (uint32_t slot = 0; slot < FRUGAL_PQ_SLOTS; slot++)
            frugal_add_relaxed(&d->q->slots[slot].live, 0); /* relaxed: a change of nothing */
        atomic_store_explicit(&d->started, 1, memory_order_relaxed);
    }
    return NULL;
}

/* Nanoseconds a look. */
static double look(const frugal_pq *q, uint32_t distance) {
    bench_samples samples = {.n = 0};
    for (int k = 0; k < REPETITIONS; k++) {
        uint32_t wrong = 0;
        double start = bench_now();
        for (int i = 0; i < LOOKS; i++) wrong += frugal_pq_first(q, 0, FRUGAL_PQ_SLOTS) != distance;
        bench_add(&samples, (bench_now() - start) * 1e9 / LOOKS);
        if (wrong) bench_fail("a look found another slot than the one that is occupied");
    }
    return bench_median(&samples);
}

static void measure(frugal_pq *q, uint32_t distance, int json) {
    static disturber d;
    frugal_pq_batch batch = {0};
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    pthread_t other;
    if (distance < FRUGAL_PQ_SLOTS) frugal_pq_put(q, &batch, distance, 0);
    frugal_pq_commit(q, &batch);
    double alone = look(q, distance);
    d.q = q;
    atomic_store(&d.started, 0);
    atomic_store(&d.stop, 0);
    if (pthread_create(&other, NULL, disturb, &d)) bench_fail("no thread");
    while (!atomic_load(&d.started)) continue;
    double disturbed = look(q, distance);
    atomic_store(&d.stop, 1);
    pthread_join(other, NULL);
    if (distance < FRUGAL_PQ_SLOTS) frugal_pq_take(q, distance, ids);
    const char *row =
        json ? "{\"queue\": \"frugal\", \"op\": \"scan\", \"distance\": %u, \"ns\": %.2f, \"disturbed_ns\": %.2f}\n"
             : "%-10u %10.1f %14.1f\n";
    printf(row, distance, alone, disturbed);
}

void bench_scan(int json) {
    static const uint32_t distances[] = {0, 1, 2, 5, 10, 20, 40, 63, 64};
    frugal_pq_desc desc = {.pages = FRUGAL_PQ_SLOTS};
    frugal_pq *q = frugal_pq_init(aligned_alloc(FRUGAL_PQ_ALIGN, frugal_pq_footprint(&desc)), &desc);
    if (!q) bench_fail("no memory");
    if (!json)
        printf("\nlooking for the lowest slot, ns; a pop looks once and takes up to %d ids\n%-10s %10s %14s\n",
               FRUGAL_PQ_PAGE_IDS, "passes", "alone", "lines changed");
    for (uint32_t i = 0; i < sizeof distances / sizeof *distances && !bench_interrupted(); i++)
        measure(q, distances[i], json);
    free(q);
}
