/* weak.h - what the scenarios of this folder share. A scenario is a whole C program: main sets up, a few threads make a
 * few calls each, main joins them and looks at what they left. No thread waits, so it ends however the threads run. A
 * checker of the C11 memory model (tests/weak/run) sees all its executions, including those of weak memory, and reports
 * failed assertions and data races. Compiled as an ordinary program it runs many times.
 *
 * The plain variables that threads write are not static: for static ones gcc's -fipa-reference (-O1 and above) ignores
 * that a function with atomics orders them, and keeps them in a register across its call.
 *
 * In each file, "mutants:" in the comment lists what the scenario must catch: a tag of the headers and the order to
 * which its operations are weakened (if a word follows, only operations with that word in their line), or a sed script
 * for the queue; tests/weak/run makes each mutant and expects an error. "with:" is a sed script for constants of the
 * headers.
 *
 * WEAK_CHECKED is defined for the checker, which gets headers with a ring of 8 slots instead of 64, to have fewer words
 * to look at. It requires that a location is always accessed in one size, so weak_memory is zero from the start, memset
 * leaves it out, and memcpy copies word by word. */
#ifdef NDEBUG /* turns off the library's checks, not those of the scenarios */
#undef NDEBUG
#define FRUGAL_ASSERT(condition) ((void)0)
#endif
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEAK_CHECKED
#define WEAK_ROUNDS 1
#define WEAK_PAGES  6
static void weak_zero(void *memory, size_t bytes);
#define memset(memory, byte, n)       weak_zero(memory, (byte) == 0 ? (n) : 0)
#define __builtin_prefetch(...)       ((void)0)
#define FRUGAL_PRIV_PREFETCH_WRITE(p) ((void)(p))
#else
#define WEAK_ROUNDS 300
#define WEAK_PAGES  8
#endif

/* Orders that no site of the headers uses; mutants do. */
#define frugal_add_acquire(p, v) atomic_fetch_add_explicit(p, v, memory_order_acquire)

#define FRUGAL_STATIC
#define FRUGAL_P2F_IMPLEMENTATION
#include "frugal_p2f.h"

typedef void *weak_thread(void *);

static _Alignas(FRUGAL_P2F_ALIGN) uint64_t weak_memory[WEAK_PAGES * FRUGAL_P2F_ALIGN / 8]; /* zero before `begin` */

#ifdef WEAK_CHECKED
#undef memset

/* Called for copies of structures, too; all of these except one consist of 32-bit fields. */
void *memcpy(void *to, const void *from, size_t bytes) {
    if (bytes == sizeof(frugal_p2f_desc)) {
        frugal_p2f_desc *a = to;
        const frugal_p2f_desc *b = from;
        a->rows = b->rows, a->devices = b->devices, a->max_rows = b->max_rows, a->lookahead = b->lookahead;
        a->staging = b->staging, a->mode = b->mode, a->first_step = b->first_step, a->threads = b->threads;
        a->zeroed = b->zeroed, a->taken = b->taken, a->recalls = b->recalls, a->without_words = b->without_words;
    } else {
        assert(bytes % sizeof(uint32_t) == 0);
        for (size_t i = 0; i < bytes / sizeof(uint32_t); i++) ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
    }
    return to;
}
/* Counts on a stack; weak_memory is zero. */
static void weak_zero(void *memory, size_t bytes) {
    if ((uintptr_t)memory - (uintptr_t)weak_memory < sizeof weak_memory) return;
    for (size_t i = 0; i < bytes / sizeof(int64_t); i++) ((int64_t *)memory)[i] = 0;
}
static void weak_clear(void) {}
static void weak_report(const char *name) {
    (void)name;
}
#else
static void weak_clear(void) {
    memset(weak_memory, 0, sizeof weak_memory);
}
static void weak_report(const char *name) {
    printf("ok 1 - %s, %d times\n1..1\n", name, WEAK_ROUNDS);
}
#endif

/* begin, then the threads[n] in parallel, then end. */
static int weak_run(const char *name, void (*begin)(void), weak_thread *const *threads, int n, void (*end)(void)) {
    pthread_t running[4];
    for (int round = 0; round < WEAK_ROUNDS; round++) {
        weak_clear();
        begin();
        for (int i = 0; i < n; i++)
            if (pthread_create(&running[i], NULL, threads[i], NULL) != 0) abort();
        for (int i = 0; i < n; i++) pthread_join(running[i], NULL);
        end();
    }
    weak_report(name);
    return 0;
}

/* ids = 0: for the page level only. */
static inline frugal_pq *weak_queue(uint64_t ids, uint64_t pages) {
    frugal_pq_desc desc = {.ids = ids, .pages = pages};
    assert(frugal_pq_footprint(&desc) <= sizeof weak_memory);
    frugal_pq *q = frugal_pq_init(weak_memory, &desc);
    assert(q);
    return q;
}

static inline frugal_p2f *weak_open(const frugal_p2f_desc *desc) {
    frugal_p2f *p;
    assert(frugal_p2f_footprint(desc) <= sizeof weak_memory);
    assert(frugal_p2f_init(weak_memory, desc, &p) == FRUGAL_OK);
    return p;
}

/* A machine of 2 rows, staging 3 (an update of step s without announced reads is due at s + 3) where lookahead is 1. */
static inline frugal_p2f *weak_machine(uint32_t devices, uint32_t lookahead) {
    frugal_p2f_desc desc = {.rows = 2, .devices = devices, .max_rows = 2, .lookahead = lookahead, .threads = 2};
    return weak_open(&desc);
}

static inline void weak_announce(frugal_p2f *p, uint32_t device, uint64_t step, uint32_t first, uint32_t n) {
    const uint32_t rows[2] = {first, first + 1};
    assert(frugal_p2f_announce(p, device, step, &(frugal_p2f_batch){.rows = rows, .n = n}) == FRUGAL_OK);
}
static inline void weak_announce_in_place(frugal_p2f *p, uint32_t device, uint64_t step, uint32_t first, uint32_t n) {
    const uint32_t rows[2] = {first, first + 1};
    const frugal_p2f_batch batch = {.rows = rows, .n = n, .in_place = 1};
    assert(frugal_p2f_announce(p, device, step, &batch) == FRUGAL_OK);
}

/* One device's step 0 with row 0, up to `closed`: then the row is dirty. */
static inline void weak_first_step(frugal_p2f *p, int closed) {
    weak_announce(p, 0, 0, 0, 1);
    assert(frugal_p2f_plan(p) == 2);
    if (!closed) return;
    assert(frugal_p2f_commit(p, 0, 0, 1, NULL) == FRUGAL_OK);
    assert(frugal_p2f_close(p) == 2);
}
