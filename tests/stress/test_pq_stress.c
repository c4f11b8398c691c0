/* test_pq_stress.c - many threads on one queue of frugal_pq.h: every id is delivered exactly once, to one thread, with
 * what its pusher wrote before; priorities come in order; the window moves under way. Who pops an id owns it and may
 * queue it again, so the records of the ids are plain memory: ThreadSanitizer sees any delivery without an order. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FRUGAL_PQ_IMPLEMENTATION
#include "frugal_pq.h"
#include "tests/stress/stress.h"
#include "tests/support.h"

#if defined(FRUGAL_ATOMICS_OVERRIDE) /* many short runs */
enum { IDS = 500, ROUNDS = 40000, THREADS = 12 };
#elif defined(FRUGAL_SANITIZED)
enum { IDS = 500, ROUNDS = 100000, THREADS = 4 };
#else
enum { IDS = 2000, ROUNDS = 4000000, THREADS = 4 };
#endif

typedef struct record { /* of an id; belongs to who popped it last, or to the queue */
    int queued;
    uint64_t priority, pushed, popped;
} record;

typedef struct arena {
    frugal_pq *q;
    uint64_t seed;
    record records[IDS];
    atomic_uint_fast64_t target;        /* where the window may go next */
    atomic_uint_fast64_t pins[THREADS]; /* a thread uses no priority below its pin; UINT64_MAX: none at all */
    atomic_uint failures, running, delivered;
    atomic_uint_fast64_t advanced, adjusted;
    pthread_barrier_t barrier;
} arena;

typedef struct thread {
    arena *a;
    uint32_t index;
    test_random random;
    frugal_pq_batch batch;
    uint32_t owned[IDS], n_owned;
    uint64_t advanced, adjusted;
} thread;

static void complain(arena *a, const char *what, uint32_t id) {
    if (atomic_fetch_add(&a->failures, 1) < 5) fprintf(stderr, "# FAILED: %s, id %u\n", what, id);
}

static arena *open_arena(uint64_t seed, uint64_t pages, uint64_t base) {
    arena *a = calloc(1, sizeof *a);
    frugal_pq_desc desc = {.ids = IDS, .pages = pages, .base = base};
    a->seed = seed;
    a->q = frugal_pq_init(aligned_alloc(FRUGAL_PQ_ALIGN, frugal_pq_footprint(&desc)), &desc);
    assert_non_null(a->q);
    atomic_store(&a->target, base);
    for (int i = 0; i < THREADS; i++) atomic_store(&a->pins[i], UINT64_MAX);
    atomic_store(&a->running, THREADS);
    assert_int_equal(pthread_barrier_init(&a->barrier, NULL, THREADS), 0);
    return a;
}

static void run_threads(arena *a, void *(*run)(void *)) {
    thread *threads = calloc(THREADS, sizeof *threads);
    pthread_t handles[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i].a = a, threads[i].index = i;
        threads[i].random.seed = test_mix2(a->seed, i);
        for (uint32_t id = i; id < IDS; id += THREADS) threads[i].owned[threads[i].n_owned++] = id;
    }
    for (uint32_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&handles[i], NULL, run, &threads[i]), 0);
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(handles[i], NULL);
    free(threads);
}

static void close_arena(arena *a) {
    pthread_barrier_destroy(&a->barrier);
    free(a->q);
    free(a);
}

/* >>pops */

/* Takes a page; the ids in it are this thread's from here on. Their number. */
static uint32_t pop_page(thread *t, uint64_t *priority) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS], n = frugal_pq_pop(t->a->q, ids, priority);
    for (uint32_t i = 0; i < n; i++) {
        record *r = &t->a->records[ids[i]];
        if (!r->queued) complain(t->a, "delivered though it is not queued", ids[i]);
        r->queued = 0;
        r->popped++;
        t->owned[t->n_owned++] = ids[i];
    }
    return n;
}

/* Queues an owned id. 1 if it went in. */
static int push_owned(thread *t, uint32_t at, uint64_t priority) {
    uint32_t id = t->owned[at];
    record *r = &t->a->records[id];
    r->queued = 1; /* before the push: from then on another thread may have it */
    r->priority = priority;
    r->pushed++;
    frugal_pq_status status = frugal_pq_push(t->a->q, &t->batch, id, priority);
    if (status == FRUGAL_PQ_OK) {
        t->owned[at] = t->owned[--t->n_owned];
        return 1;
    }
    r->queued = 0, r->pushed--;
    if (status != FRUGAL_PQ_WINDOW && status != FRUGAL_PQ_FULL) complain(t->a, frugal_pq_strerror(status), id);
    return 0;
}

/* >>all at once: push, adjust, pop, advance */

/* Promises to use no priority below the result until the pin is taken away. */
static uint64_t pin(thread *t) {
    for (;;) {
        uint64_t target = atomic_load(&t->a->target);
        atomic_store(&t->a->pins[t->index], target);
        if (atomic_load(&t->a->target) == target) return target;
    }
}

static void try_advance(thread *t) {
    uint64_t target = atomic_load(&t->a->target), bound = frugal_pq_min(t->a->q);
    if (bound == FRUGAL_PQ_EMPTY || bound < target) bound = target;
    if (bound == target && test_chance(&t->random, 50)) bound = target + 1 + test_below(&t->random, 3);
    atomic_store(&t->a->target, bound);
    for (int i = 0; i < THREADS; i++)
        if (atomic_load(&t->a->pins[i]) < bound) return; /* later: the target stays where it is */
    uint64_t before = frugal_pq_base(t->a->q);
    frugal_pq_status status = frugal_pq_advance(t->a->q, bound);
    if (status == FRUGAL_PQ_OK)
        t->advanced += frugal_pq_base(t->a->q) - before;
    else if (status != FRUGAL_PQ_LIVE)
        complain(t->a, frugal_pq_strerror(status), 0);
}

static void push_and_adjust(thread *t) {
    uint64_t from = pin(t);
    uint32_t n = (uint32_t)test_below(&t->random, 100);
    for (uint32_t i = 0; i < n && t->n_owned > 0; i++)
        push_owned(t, (uint32_t)test_below(&t->random, t->n_owned), from + test_below(&t->random, 60));
    for (uint32_t i = 0; i < n; i++) { /* anybody's ids */
        uint32_t id = (uint32_t)test_below(&t->random, IDS);
        frugal_pq_status status = frugal_pq_adjust(t->a->q, &t->batch, id, from + test_below(&t->random, 60));
        t->adjusted += status == FRUGAL_PQ_OK;
        if (status == FRUGAL_PQ_ID || status == FRUGAL_PQ_PRESENT) complain(t->a, frugal_pq_strerror(status), id);
    }
    frugal_pq_commit(t->a->q, &t->batch);
    atomic_store(&t->a->pins[t->index], UINT64_MAX);
}

/* Thread 0 goes on until the window has moved and ids have been adjusted: while another thread sleeps with a pin in its
 * hand the window must stay, and that can be as long as a whole run. Pins go when their threads are done. */
static int is_done(const thread *t, uint64_t operations) {
    if (atomic_load(&t->a->failures)) return 1;
    return operations >= ROUNDS / THREADS && (t->index != 0 || (t->advanced > 0 && t->adjusted > 0));
}

static void *mix(void *argument) {
    thread *t = argument;
    uint64_t operations = 0, priority;
    while (!is_done(t, operations)) {
        push_and_adjust(t);
        uint32_t n = (uint32_t)test_below(&t->random, 4);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t base = frugal_pq_base(t->a->q);
            uint32_t got = pop_page(t, &priority);
            if (got && priority < base) complain(t->a, "a priority below the window", 0);
            operations += got;
        }
        operations += 10;
        if (t->index == 0) try_advance(t); /* one thread at a time */
    }
    atomic_fetch_sub(&t->a->running, 1);
    atomic_fetch_add(&t->a->advanced, t->advanced);
    atomic_fetch_add(&t->a->adjusted, t->adjusted);
    return NULL;
}

static void expect_all_delivered(arena *a) {
    thread rest = {.a = a};
    uint64_t priority, last = 0, n = 0, queued = 0;
    for (uint32_t id = 0; id < IDS; id++) queued += (uint64_t)a->records[id].queued;
    assert_true(frugal_pq_size(a->q) == queued);
    while (pop_page(&rest, &priority) > 0) {
        assert_true(priority >= last);
        last = priority;
    }
    n = rest.n_owned;
    assert_true(n == queued);
    assert_int_equal(frugal_pq_size(a->q), 0);
    for (uint32_t id = 0; id < IDS; id++) {
        assert_false(a->records[id].queued);
        assert_true(a->records[id].pushed == a->records[id].popped);
    }
    assert_int_equal(atomic_load(&a->failures), 0);
}

static void concurrent_operations_deliver_each_push_exactly_once(void **state) {
    (void)state;
    for (stress s = stress_begin(__func__, 1); stress_next(&s); s.steps += ROUNDS) {
        arena *a = open_arena(s.seed, 4000, 12345);
        run_threads(a, mix);
        assert_true(atomic_load(&a->advanced) > 0 && atomic_load(&a->adjusted) > 0); /* it did happen */
        expect_all_delivered(a);
        close_arena(a);
    }
}

static void with_few_pages_nothing_is_lost_either(void **state) {
    (void)state; /* pushes and adjusts fail now and then: FULL changes nothing */
    for (stress s = stress_begin(__func__, 1); stress_next(&s); s.steps += ROUNDS) {
        arena *a = open_arena(s.seed, 64 * 3, UINT64_C(1) << 40);
        run_threads(a, mix);
        expect_all_delivered(a);
        close_arena(a);
    }
}

/* >>order: all push, then all pop */

static void *push_then_pop(void *argument) {
    thread *t = argument;
    for (int round = 0; round < ROUNDS / IDS / 4 && !atomic_load(&t->a->failures); round++) {
        while (t->n_owned > 0)
            if (!push_owned(t, t->n_owned - 1, (uint64_t)round + test_below(&t->random, 64))) {
                complain(t->a, "a push in the window, with pages enough", 0);
                break;
            }
        frugal_pq_commit(t->a->q, &t->batch);
        pthread_barrier_wait(&t->a->barrier);
        uint64_t priority, last = 0;
        for (uint32_t n, from = 0; (n = pop_page(t, &priority)) > 0; from += n) {
            if (priority < last) complain(t->a, "priorities out of order for one thread", t->owned[from]);
            last = priority;
            for (uint32_t i = from; i < from + n; i++)
                if (t->a->records[t->owned[i]].priority != priority)
                    complain(t->a, "another priority than pushed", t->owned[i]);
        }
        atomic_fetch_add(&t->a->delivered, t->n_owned);
        pthread_barrier_wait(&t->a->barrier);
        if (t->index == 0) {
            if (atomic_exchange(&t->a->delivered, 0) != IDS) complain(t->a, "not all were delivered", 0);
            if (frugal_pq_advance(t->a->q, (uint64_t)round + 1) != FRUGAL_PQ_OK)
                complain(t->a, "an advance of an empty queue", 0);
        }
        pthread_barrier_wait(&t->a->barrier);
    }
    return NULL;
}

static void without_pushes_each_thread_pops_priorities_in_order(void **state) {
    (void)state;
    for (stress s = stress_begin(__func__, 1); stress_next(&s); s.steps += ROUNDS) {
        arena *a = open_arena(s.seed, IDS / 62 + 1 + THREADS * 65, 0);
        run_threads(a, push_then_pop);
        assert_int_equal(atomic_load(&a->failures), 0);
        close_arena(a);
    }
}

/* >>pages: put, take, retire */

static void *put_and_take(void *argument) {
    thread *t = argument;
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t put = 0, taken = 0;
    for (int i = 0; i < ROUNDS / THREADS / 40; i++) {
        /* slot 4 is filled and retired by one thread alone, as the contract has it, and taken from by all */
        uint32_t slot = (uint32_t)test_below(&t->random, t->index == 0 ? 5 : 4),
                 n = (uint32_t)test_below(&t->random, 100);
        for (uint32_t k = 0; k < n; k++) put += (uint64_t)frugal_pq_put(t->a->q, &t->batch, slot, t->index << 16 | k);
        frugal_pq_commit(t->a->q, &t->batch);
        uint32_t got = frugal_pq_take(t->a->q, (uint32_t)test_below(&t->random, 5), ids);
        for (uint32_t k = 0; k < got; k++)
            if (ids[k] >> 16 >= THREADS || (ids[k] & 0xffff) >= 100) complain(t->a, "an id nobody has put", ids[k]);
        taken += got;
        if (slot == 4) taken += frugal_pq_retire(t->a->q, 4);
    }
    atomic_fetch_add(&t->a->target, put);
    atomic_fetch_add(&t->a->pins[0], taken);
    return NULL;
}

static void put_take_and_retire_pages(uint64_t seed) {
    arena *a = open_arena(seed, 300, 0);
    atomic_store(&a->pins[0], 0);
    run_threads(a, put_and_take);
    uint64_t left = 0;
    for (uint32_t slot = 0; slot < FRUGAL_PQ_SLOTS; slot++) left += frugal_pq_retire(a->q, slot);
    assert_true(atomic_load(&a->target) == atomic_load(&a->pins[0]) + left);
    frugal_pq_batch b = {0};
    uint64_t room = 0;
    while (frugal_pq_put(a->q, &b, 0, 1)) room++;
    assert_int_equal(room, 300 * FRUGAL_PQ_PAGE_IDS); /* no page was lost, none is there twice */
    assert_int_equal(atomic_load(&a->failures), 0);
    close_arena(a);
}

static void pages_put_taken_and_retired_concurrently_balance(void **state) {
    (void)state;
    for (stress s = stress_begin(__func__, 1); stress_next(&s); s.steps += ROUNDS / 40)
        put_take_and_retire_pages(s.seed);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concurrent_operations_deliver_each_push_exactly_once),
        cmocka_unit_test(with_few_pages_nothing_is_lost_either),
        cmocka_unit_test(without_pushes_each_thread_pops_priorities_in_order),
        cmocka_unit_test(pages_put_taken_and_retired_concurrently_balance),
    };
    return stress_run_group(argc, argv, "test_pq_stress", tests);
}
