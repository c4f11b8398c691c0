/* test_queues.c - the queues that bench_pq compares are queues: each against a plain oracle on one thread, and with
 * many threads at once; and the checks of bench_pq find a queue that loses, doubles or misplaces ids. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bench/queues/mix.h"
#include "bench/queues/queues.h"
#include "tests/seed.h"
#include "tests/support.h"

static const bench_queue *const queues[] = {BENCH_QUEUES(BENCH_QUEUE_LISTED)};
static const char *const names[] = {BENCH_QUEUES(BENCH_QUEUE_NAMED)};
enum { QUEUES = sizeof queues / sizeof *queues, WINDOW = 64 };

/* >>one thread, against an oracle */

enum { IDS = 500, CALLS = 4000, MOST = 80 };
#define NOT_QUEUED UINT64_MAX

typedef struct oracle {
    const bench_queue *queue;
    void *state;
    test_random random;
    uint64_t base, priority[IDS], queued[WINDOW]; /* so many are due at a priority mod 64 */
    uint64_t n;
} oracle;

static void set_priority(oracle *o, uint32_t id, uint64_t priority) {
    if (o->priority[id] != NOT_QUEUED) o->queued[o->priority[id] % WINDOW]--, o->n--;
    if (priority != NOT_QUEUED) o->queued[priority % WINDOW]++, o->n++;
    o->priority[id] = priority;
}

static uint64_t lowest(const oracle *o) {
    for (uint64_t p = o->base; p < o->base + WINDOW; p++)
        if (o->queued[p % WINDOW]) return p;
    return NOT_QUEUED;
}

static void enqueue(oracle *o) {
    uint32_t ids[MOST];
    uint64_t priorities[MOST];
    size_t n = 0, wanted = test_below(&o->random, MOST + 1);
    for (uint64_t tries = 0; n < wanted && tries < 2 * MOST; tries++) {
        uint32_t id = (uint32_t)test_below(&o->random, IDS);
        if (o->priority[id] != NOT_QUEUED) continue;
        ids[n] = id;
        priorities[n] = o->base + test_below(&o->random, WINDOW - 1);
        set_priority(o, id, priorities[n++]);
    }
    o->queue->enqueue(o->state, 0, ids, priorities, n);
}

static void adjust(oracle *o) {
    uint32_t ids[MOST];
    uint64_t priority = o->base + test_below(&o->random, WINDOW - 1);
    size_t n = test_below(&o->random, MOST + 1), queued = 0;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (uint32_t)test_below(&o->random, IDS);
        if (o->priority[ids[i]] == NOT_QUEUED) continue;
        queued++;
        set_priority(o, ids[i], priority);
    }
    assert_int_equal(o->queue->adjust(o->state, 0, ids, n, priority), queued);
}

/* One take: always of the lowest; and when it says that nothing is due, nothing is. */
static int take(oracle *o, uint64_t limit) {
    uint32_t ids[BENCH_TAKE];
    int due = -1;
    size_t n = o->queue->take(o->state, 0, limit, ids, &due);
    assert_true(n <= BENCH_TAKE && (due == 0 || due == 1));
    for (size_t i = 0; i < n; i++) {
        assert_true(ids[i] < IDS);
        assert_true(o->priority[ids[i]] != NOT_QUEUED);
        assert_true(o->priority[ids[i]] == lowest(o));
        set_priority(o, ids[i], NOT_QUEUED);
    }
    if (!due) assert_true(lowest(o) > limit || lowest(o) == NOT_QUEUED);
    return due;
}

/* The window moves by a step, as it does behind a gate. */
static void advance(oracle *o) {
    while (take(o, o->base)) continue;
    o->base++;
    o->queue->advance(o->state, o->base);
}

static void a_queue_agrees_with_the_oracle(const bench_queue *queue, uint64_t seed) {
    bench_queue_shape shape = {.ids = IDS, .entries = CALLS * MOST, .batches = CALLS, .threads = 1};
    oracle *o = calloc(1, sizeof *o);
    *o = (oracle){.queue = queue, .state = queue->open(&shape), .random = {.seed = seed}};
    assert_non_null(o->state);
    memset(o->priority, 0xff, sizeof o->priority);
    for (int i = 0; i < CALLS; i++) {
        uint64_t kind = test_below(&o->random, 100);
        if (kind < 35)
            enqueue(o);
        else if (kind < 60)
            adjust(o);
        else if (kind < 95)
            take(o, test_chance(&o->random, 50) ? UINT64_MAX : o->base + test_below(&o->random, WINDOW));
        else
            advance(o);
    }
    while (take(o, UINT64_MAX)) continue;
    assert_true(o->n == 0);
    queue->close(o->state);
    free(o);
}

static void queues_have_the_names_by_which_they_are_chosen(void **state) {
    (void)state;
    for (int q = 0; q < QUEUES; q++) assert_string_equal(queues[q]->name, names[q]);
}

static void queues_agree_with_the_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_queues oracle", 20240601);
    for (int q = 0; q < QUEUES; q++)
        for (uint64_t round = 0; round < (SHORTER > 1 ? 2 : 8); round++)
            a_queue_agrees_with_the_oracle(queues[q], seed + round);
}

/* >>many threads */

enum { THREADS = 4, OWN = 100, ROUNDS = 1000 / SHORTER, ALL = THREADS * OWN };

typedef struct crowd {
    const bench_queue *queue;
    void *state;
    uint64_t seed;
    uint64_t payload[ALL]; /* plain: written before an id is queued, read by who takes it */
    atomic_int queued[ALL];
    atomic_uint_fast64_t enqueued, taken, adjusted;
    atomic_uint failures, number;
    pthread_barrier_t barrier;
} crowd;

static void take_some(crowd *c, uint32_t thread, int *due) {
    uint32_t ids[BENCH_TAKE];
    size_t n = c->queue->take(c->state, thread, UINT64_MAX, ids, due);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= ALL || c->payload[ids[i]] != ids[i] + 1) {
            atomic_fetch_add(&c->failures, 1);
            continue;
        }
        c->payload[ids[i]] = 0; /* so that a second delivery is seen */
        if (atomic_exchange(&c->queued[ids[i]], 0) != 1) atomic_fetch_add(&c->failures, 1);
    }
    atomic_fetch_add(&c->taken, n);
}

static void *join_in(void *argument) {
    crowd *c = argument;
    uint32_t thread = atomic_fetch_add(&c->number, 1);
    test_random random = {.seed = test_mix2(c->seed, thread)};
    pthread_barrier_wait(&c->barrier);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t ids[OWN];
        uint64_t priorities[OWN];
        size_t n = 0;
        int due;
        for (uint32_t id = thread * OWN; id < (thread + 1) * OWN; id++) {
            if (atomic_load(&c->queued[id]) || test_chance(&random, 50)) continue;
            c->payload[id] = id + 1;
            atomic_store(&c->queued[id], 1);
            ids[n] = id, priorities[n++] = test_below(&random, WINDOW);
        }
        c->queue->enqueue(c->state, thread, ids, priorities, n);
        atomic_fetch_add(&c->enqueued, n);
        for (n = 0; n < OWN / 2; n++) ids[n] = thread * OWN + (uint32_t)test_below(&random, OWN);
        size_t adjusted = c->queue->adjust(c->state, thread, ids, n, test_below(&random, WINDOW));
        if (adjusted > n) atomic_fetch_add(&c->failures, 1);
        atomic_fetch_add(&c->adjusted, adjusted);
        for (uint64_t takes = test_below(&random, 4); takes > 0; takes--) take_some(c, thread, &due);
    }
    return NULL;
}

static void a_queue_delivers_each_once(const bench_queue *queue, uint64_t seed) {
    enum { CALLED = 2 * THREADS * ROUNDS };
    bench_queue_shape shape = {.ids = ALL, .entries = CALLED * OWN, .batches = CALLED, .threads = THREADS};
    crowd *c = calloc(1, sizeof *c);
    pthread_t handles[THREADS];
    c->queue = queue, c->state = queue->open(&shape), c->seed = seed;
    assert_non_null(c->state);
    assert_int_equal(pthread_barrier_init(&c->barrier, NULL, THREADS), 0);
    for (int t = 0; t < THREADS; t++) assert_int_equal(pthread_create(&handles[t], NULL, join_in, c), 0);
    for (int t = 0; t < THREADS; t++) pthread_join(handles[t], NULL);
    for (int due = 1; due;) take_some(c, 0, &due);
    assert_int_equal(c->failures, 0);
    assert_true(c->taken == c->enqueued);
    assert_true(c->enqueued > ALL && c->adjusted > 0);
    for (uint32_t id = 0; id < ALL; id++) assert_int_equal(c->queued[id], 0);
    pthread_barrier_destroy(&c->barrier);
    queue->close(c->state);
    free(c);
}

static void many_threads_get_each_id_once(void **state) {
    (void)state;
    uint64_t seed = test_seed_from_clock("test_queues threads");
    for (int q = 0; q < QUEUES; q++) a_queue_delivers_each_once(queues[q], seed);
}

/* >>the mix and its check */

static const bench_mix_shape small = {
    .ids = 200, .steps = 60, .batch = 20, .lookahead = 5, .staging = 12, .threads = 2, .seed = 3};

static void the_mix_is_what_it_says(void **state) {
    (void)state;
    bench_mix *m = bench_mix_draw(&small);
    uint64_t row = small.threads + 1, n_announced = m->announced_start[small.steps * row - 1];
    uint64_t due[200] = {0}; /* of the last update, + 1 */
    for (uint64_t step = 0; step < small.steps; step++) {
        for (uint64_t i = m->announced_start[step * row]; i < m->announced_start[step * row + row - 1]; i++) {
            uint32_t id = m->announced[i];
            assert_true(due[id] == 0 || due[id] - 1 > step + small.lookahead); /* moves forward only */
            if (due[id]) due[id] = step + small.lookahead + 1;
        }
        for (uint32_t t = 0; t < small.threads; t++)
            for (uint64_t i = m->closed_start[step * row + t]; i < m->closed_start[step * row + t + 1]; i++) {
                assert_int_equal(m->closed[i] % small.threads, t);
                assert_true(m->due[i] > step && m->due[i] <= step + small.staging);
                assert_true(due[m->closed[i]] == 0 || due[m->closed[i]] - 1 <= step); /* read now: it was due */
                due[m->closed[i]] = m->due[i] + 1;
            }
        assert_int_equal(m->closed_start[step * row + row - 1], (step + 1) * small.batch);
    }
    assert_true(n_announced > small.steps && n_announced < small.steps * small.batch);
    bench_mix_free(m);
}

/* Serves the mix from plain arrays, one thread, as bench_pq does: `take` ids a step beyond those due. Breaks one
 * thing. */
typedef enum fault { NONE, DROPPED, TWICE, LATE, DISORDERED } fault;

typedef struct server {
    const bench_mix *mix;
    uint64_t due[200];
    bench_log log;
} server;

static void deliver(server *s, uint64_t lowest_due, uint64_t highest_due, uint64_t most) {
    for (uint64_t due = lowest_due; due <= highest_due; due++)
        for (uint32_t id = 0; id < small.ids && most > 0; id++)
            if (s->due[id] == due + 1) s->log.ids[s->log.n++] = id, s->due[id] = 0, most--;
}

static void serve_step(server *s, uint64_t step, fault broken) {
    const bench_mix *m = s->mix;
    uint64_t row = m->shape.threads + 1, broken_at = 30;
    for (uint64_t i = m->announced_start[step * row]; i < m->announced_start[step * row + row - 1]; i++)
        if (s->due[m->announced[i]]) s->due[m->announced[i]] = step + m->shape.lookahead + 1;
    if (broken != LATE || step < broken_at) deliver(s, step, step, UINT64_MAX);
    if (broken == TWICE && step == broken_at) s->log.ids[s->log.n] = s->log.ids[s->log.n - 1], s->log.n++;
    s->log.gate_end[step] = s->log.n;
    if (broken == DISORDERED && step == broken_at) deliver(s, step + 6, step + 12, 1);
    if (step > 6) deliver(s, step + 1, step + 12, m->shape.batch);
    if (broken == DROPPED && step == broken_at) s->log.n--;
    s->log.step_end[step] = s->log.n;
    for (uint64_t i = step * m->shape.batch; i < (step + 1) * m->shape.batch; i++) s->due[m->closed[i]] = m->due[i] + 1;
}

/* 1 if the check is content. */
static int is_passed(fault broken) {
    bench_mix_shape alone = small;
    alone.threads = 1;
    server s = {.mix = bench_mix_draw(&alone)};
    uint32_t ids[2000];
    uint64_t ends[2][60];
    s.log = (bench_log){.ids = ids, .gate_end = ends[0], .step_end = ends[1]};
    for (uint64_t step = 0; step < alone.steps; step++) serve_step(&s, step, broken);
    uint64_t served = s.log.n;
    deliver(&s, 0, 100, UINT64_MAX);
    bench_check c;
    assert_int_equal(bench_check_open(&c, s.mix), 1);
    int passed = bench_check_steps(&c, &s.log, 0, alone.steps) && bench_check_rest(&c, ids + served, s.log.n - served);
    assert_int_equal(passed, c.message[0] == 0);
    if (passed) assert_true(c.moved > 0);
    bench_check_close(&c);
    bench_mix_free((bench_mix *)(uintptr_t)s.mix);
    return passed;
}

static void the_check_passes_a_queue_and_nothing_else(void **state) {
    (void)state;
    assert_int_equal(is_passed(NONE), 1);
    assert_int_equal(is_passed(DROPPED), 0);
    assert_int_equal(is_passed(TWICE), 0);
    assert_int_equal(is_passed(LATE), 0);
    assert_int_equal(is_passed(DISORDERED), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_have_the_names_by_which_they_are_chosen),
        cmocka_unit_test(queues_agree_with_the_oracle),
        cmocka_unit_test(many_threads_get_each_id_once),
        cmocka_unit_test(the_mix_is_what_it_says),
        cmocka_unit_test(the_check_passes_a_queue_and_nothing_else),
    };
    return cmocka_run_group_tests_name("test_queues", tests, NULL, NULL);
}
