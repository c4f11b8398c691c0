/* test_orders.c - what the headers promise to order, one edge a test: a thread writes plain memory and makes one call;
 * the other sees by a relaxed flag, which orders nothing, that the call is over, makes its own call and reads. Under
 * ThreadSanitizer such a read is an error unless the two calls order it. These are the edges that stress hardly ever
 * meets alone, because pages that change hands mostly order the same. */
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

#define FRUGAL_P2F_IMPLEMENTATION
#include "frugal_p2f.h"

typedef struct pair {
    frugal_pq *q;
    frugal_p2f *p;
    void (*first)(struct pair *);
    atomic_int flag; /* relaxed, always */
    int written;     /* plain */
    frugal_p2f_piece pieces[2];
} pair;

static void *run_first(void *argument) {
    pair *x = argument;
    x->first(x);
    atomic_store_explicit(&x->flag, 1, memory_order_relaxed);
    return NULL;
}

/* Runs `first` in one thread, then `second` in another that knows no more than that. */
static void run_pair(pair *x, void (*first)(pair *), void *(*second)(void *)) {
    pthread_t a, b;
    void *failed;
    x->first = first;
    assert_int_equal(pthread_create(&b, NULL, second, x), 0);
    assert_int_equal(pthread_create(&a, NULL, run_first, x), 0);
    pthread_join(b, &failed);
    pthread_join(a, NULL);
    assert_null(failed);
}

static void await(pair *x) {
    while (!atomic_load_explicit(&x->flag, memory_order_relaxed)) sched_yield();
}

#define EXPECT(condition)                                                                                              \
    if (!(condition)) return (void *)#condition

/* >>the queue */

/* A queue with id 3 at priority 60, and a stale entry of it at priority 5. */
static frugal_pq *queue_with_stale_entry(void) {
    frugal_pq_desc desc = {.ids = 10, .pages = 70};
    frugal_pq *q = frugal_pq_init(aligned_alloc(FRUGAL_PQ_ALIGN, frugal_pq_footprint(&desc)), &desc);
    frugal_pq_batch b = {0};
    assert_int_equal(frugal_pq_push(q, &b, 3, 5), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_adjust(q, &b, 3, 60), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    return q;
}

static void write_and_adjust(pair *x) {
    static _Thread_local frugal_pq_batch b; /* never committed: the stale entry has become true */
    x->written = 42;
    if (frugal_pq_adjust(x->q, &b, 3, 5) != FRUGAL_PQ_OK) abort();
}

static void *pop_and_read(void *argument) {
    pair *x = argument;
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    await(x);
    EXPECT(frugal_pq_pop(x->q, ids, &priority) == 1);
    EXPECT(ids[0] == 3 && priority == 5);
    EXPECT(x->written == 42);
    return NULL;
}

static void an_adjust_happens_before_the_pop_of_the_id(void **state) {
    (void)state;
    pair x = {.q = queue_with_stale_entry()};
    run_pair(&x, write_and_adjust, pop_and_read);
    free(x.q);
}

static void write_and_push(pair *x) {
    static _Thread_local frugal_pq_batch b;
    x->written = 42;
    if (frugal_pq_push(x->q, &b, 3, 5) != FRUGAL_PQ_OK) abort();
}

static void a_push_happens_before_the_pop_of_the_id(void **state) {
    (void)state;
    pair x = {.q = queue_with_stale_entry()};
    frugal_priv_pq_byte *byte = frugal_priv_pq_byte_at(x.q, 3); /* popped at 60, as if another had done it */
    frugal_store_relaxed(byte, 0);
    run_pair(&x, write_and_push, pop_and_read);
    free(x.q);
}

static void write_and_pop(pair *x) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    x->written = 42;
    if (frugal_pq_pop(x->q, ids, &priority) != 1) abort();
}

static void *push_and_read(void *argument) {
    pair *x = argument;
    frugal_pq_batch b = {0};
    await(x);
    EXPECT(frugal_pq_push(x->q, &b, 3, 7) == FRUGAL_PQ_OK);
    EXPECT(x->written == 42);
    return NULL;
}

static void a_pop_happens_before_the_next_push_of_the_id(void **state) {
    (void)state;
    pair x = {.q = queue_with_stale_entry()};
    run_pair(&x, write_and_pop, push_and_read);
    free(x.q);
}

static void *advance_and_read(void *argument) {
    pair *x = argument;
    await(x);
    EXPECT(frugal_pq_advance(x->q, 61) == FRUGAL_PQ_OK);
    EXPECT(x->written == 42);
    return NULL;
}

static void a_pop_happens_before_the_advance_that_it_allows(void **state) {
    (void)state;
    pair x = {.q = queue_with_stale_entry()};
    run_pair(&x, write_and_pop, advance_and_read);
    free(x.q);
}

/* >>the state machine */

static frugal_p2f *open_machine(frugal_p2f_desc desc) {
    size_t bytes = (frugal_p2f_footprint(&desc) / FRUGAL_P2F_ALIGN + 1) * FRUGAL_P2F_ALIGN;
    frugal_p2f *p;
    assert_int_equal(frugal_p2f_init(aligned_alloc(FRUGAL_P2F_ALIGN, bytes), &desc, &p), FRUGAL_OK);
    return p;
}

static void announce(frugal_p2f *p, uint32_t device, uint64_t step, uint32_t n, int in_place) {
    static const uint32_t row = 3;
    const frugal_p2f_batch batch = {.rows = &row, .n = n, .in_place = in_place};
    if (frugal_p2f_announce(p, device, step, &batch) != FRUGAL_OK) abort();
}

/* A machine in which device 0 has announced row 3 at step 0, planned. */
static frugal_p2f *machine_with_a_step(void) {
    frugal_p2f *p = open_machine((frugal_p2f_desc){.rows = 8, .devices = 1, .max_rows = 2, .lookahead = 1});
    announce(p, 0, 0, 1, 0);
    assert_int_equal(frugal_p2f_plan(p), 2);
    return p;
}

static void write_and_announce(pair *x) {
    x->written = 42; /* the keys of the batch, say */
    announce(x->p, 0, 1, 1, 0);
}

static void *begin_plan_and_read(void *argument) {
    pair *x = argument;
    await(x);
    EXPECT(frugal_p2f_plan_begin(x->p, x->pieces) == 1);
    EXPECT(x->written == 42);
    EXPECT(frugal_p2f_plan_end(x->p, x->pieces) == 2);
    return NULL;
}

static void an_announcement_happens_before_planning(void **state) {
    (void)state;
    pair x = {.p = machine_with_a_step()};
    run_pair(&x, write_and_announce, begin_plan_and_read);
    free(x.p);
}

static void write_and_plan(pair *x) {
    if (frugal_p2f_plan_begin(x->p, x->pieces) != 1) abort();
    x->written = 42;
    if (frugal_p2f_plan_end(x->p, x->pieces) != 2) abort();
}

static void *find_planned_and_read(void *argument) {
    pair *x = argument;
    await(x);
    EXPECT(frugal_p2f_planned(x->p) == 1);
    EXPECT(x->written == 42);
    return NULL;
}

static void *pass_the_gate_and_read(void *argument) {
    pair *x = argument;
    await(x);
    EXPECT(frugal_p2f_gate(x->p, 0));
    EXPECT(x->written == 42);
    return NULL;
}

static void *plan_the_next_and_read(void *argument) {
    pair *x = argument;
    frugal_p2f_piece piece;
    await(x);
    EXPECT(frugal_p2f_plan_begin(x->p, &piece) == 1 && piece.step == 1);
    EXPECT(x->written == 42);
    return NULL;
}

static void planning_happens_before_the_gate_and_planning_the_next_step(void **state) {
    (void)state;
    static void *(*const second[])(void *) = {find_planned_and_read, pass_the_gate_and_read, plan_the_next_and_read};
    for (int i = 0; i < 3; i++) {
        pair x = {.p = open_machine((frugal_p2f_desc){.rows = 8, .devices = 1, .max_rows = 2, .lookahead = 1})};
        for (uint64_t t = 0; t < 2; t++) announce(x.p, 0, t, 1, 0);
        run_pair(&x, write_and_plan, second[i]);
        free(x.p);
    }
}

static void write_and_end_a_piece(pair *x) {
    x->written = 42;
    if (frugal_p2f_plan_end(x->p, &x->pieces[0]) != 1) abort();
}

static void *end_the_last_piece_and_read(void *argument) {
    pair *x = argument;
    await(x);
    EXPECT(frugal_p2f_plan_end(x->p, &x->pieces[1]) == 2);
    EXPECT(x->written == 42);
    return NULL;
}

static void pieces_of_planning_happen_before_the_end_of_the_last(void **state) {
    (void)state;
    enum { N = FRUGAL_PRIV_PLAN_RANGE }; /* two pieces */
    uint32_t rows[N];
    for (uint32_t i = 0; i < N; i++) rows[i] = i;
    pair x = {.p = open_machine((frugal_p2f_desc){.rows = N, .devices = 1, .max_rows = N})};
    assert_int_equal(frugal_p2f_announce(x.p, 0, 0, &(frugal_p2f_batch){.rows = rows, .n = N}), FRUGAL_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(frugal_p2f_plan_begin(x.p, &x.pieces[i]), 1);
    run_pair(&x, write_and_end_a_piece, end_the_last_piece_and_read);
    free(x.p);
}

static void *find_recall_and_read(void *argument) {
    pair *x = argument;
    uint64_t step;
    await(x);
    EXPECT(frugal_p2f_has_recall(x->p, 0, &step) && step == 1);
    EXPECT(x->written == 42);
    return NULL;
}

static void planning_happens_before_finding_recalls(void **state) {
    (void)state;
    pair x = {
        .p = open_machine((frugal_p2f_desc){.rows = 8, .devices = 2, .max_rows = 2, .lookahead = 1, .recalls = 1})};
    for (uint64_t t = 0; t < 2; t++) /* device 0 holds the row, and device 1 reads it */
        for (uint32_t d = 0; d < 2; d++) announce(x.p, d, t, d == t, 1);
    assert_int_equal(frugal_p2f_plan(x.p), 2);
    for (uint32_t d = 0; d < 2; d++) assert_int_equal(frugal_p2f_commit(x.p, d, 0, 1, NULL), FRUGAL_OK);
    run_pair(&x, write_and_plan, find_recall_and_read);
    free(x.p);
}

static void write_commit_and_close(pair *x) {
    x->written = 42; /* a record */
    if (frugal_p2f_commit(x->p, 0, 0, 1, NULL) != FRUGAL_OK || frugal_p2f_close(x->p) != 2) abort();
}

static void *take_row_and_read(void *argument) {
    pair *x = argument;
    frugal_p2f_work work;
    await(x);
    EXPECT(frugal_p2f_take_row(x->p, 3, &work) == 1);
    EXPECT(x->written == 42);
    return NULL;
}

static void *take_and_read(void *argument) {
    pair *x = argument;
    frugal_p2f_work work[FRUGAL_P2F_WORKS];
    await(x);
    EXPECT(frugal_p2f_take(x->p, UINT64_MAX, work, NULL) == 1);
    EXPECT(x->written == 42);
    return NULL;
}

static void a_commit_happens_before_taking_the_row(void **state) {
    (void)state;
    pair x = {.p = machine_with_a_step()};
    run_pair(&x, write_commit_and_close, take_row_and_read);
    free(x.p);
}

static void a_commit_happens_before_taking_the_page(void **state) {
    (void)state;
    pair x = {.p = machine_with_a_step()};
    run_pair(&x, write_commit_and_close, take_and_read);
    free(x.p);
}

static void write_commit_and_close_applied(pair *x) {
    frugal_p2f_piece piece;
    if (frugal_p2f_commit(x->p, 0, 0, 1, NULL) != FRUGAL_OK || frugal_p2f_close_begin(x->p, &piece) != 1) abort();
    x->written = 42; /* the row */
    if (frugal_p2f_close_end(x->p, &piece, 1) != 2) abort();
}

static void take_write_and_finish(pair *x) {
    frugal_p2f_work work;
    write_commit_and_close(x);
    if (frugal_p2f_take_row(x->p, 3, &work) != 1) abort();
    x->written = 43; /* the row */
    frugal_p2f_done(x->p, &work, 1);
}

static void *find_clean_and_read(void *argument) {
    pair *x = argument;
    frugal_p2f_work work;
    await(x);
    EXPECT(frugal_p2f_closed(x->p) == 1);
    EXPECT(frugal_p2f_take_row(x->p, 3, &work) == 0);
    EXPECT(x->written >= 42);
    return NULL;
}

static void *plan_and_read(void *argument) { /* at the gate of the next step, the loader and trainer of which it is */
    pair *x = argument;
    await(x);
    announce(x->p, 0, 1, 1, 0);
    EXPECT(frugal_p2f_plan(x->p) == 2);
    EXPECT(frugal_p2f_gate(x->p, 1));
    EXPECT(x->written >= 42);
    return NULL;
}

static void a_flush_happens_before_finding_the_row_clean(void **state) {
    (void)state;
    pair x = {.p = machine_with_a_step()}, y = {.p = machine_with_a_step()};
    run_pair(&x, take_write_and_finish, find_clean_and_read);
    run_pair(&y, write_commit_and_close_applied, find_clean_and_read);
    free(x.p), free(y.p);
}

static void a_flush_happens_before_the_next_gate_of_the_row(void **state) {
    (void)state;
    pair x = {.p = machine_with_a_step()}, y = {.p = machine_with_a_step()};
    run_pair(&x, take_write_and_finish, plan_and_read);
    run_pair(&y, write_commit_and_close_applied, plan_and_read);
    free(x.p), free(y.p);
}

/* A machine of one device without words, whose step 0 is announced. */
static frugal_p2f *machine_without_words(void) {
    frugal_p2f *p =
        open_machine((frugal_p2f_desc){.rows = 8, .devices = 1, .max_rows = 2, .lookahead = 0, .without_words = 1});
    announce(p, 0, 0, 1, 1);
    return p;
}

static void write_and_commit(pair *x) {
    x->written = 42; /* the row */
    if (frugal_p2f_commit(x->p, 0, 0, 1, NULL) != FRUGAL_OK) abort();
}

static void write_commit_and_use_words(pair *x) {
    write_and_commit(x);
    if (frugal_p2f_use_words(x->p) != FRUGAL_OK) abort();
}

static void *announce_more_and_read(void *argument) { /* into the place of the batch that was read */
    pair *x = argument;
    await(x);
    announce(x->p, 0, 1, 0, 1);
    EXPECT(x->written == 42);
    return NULL;
}

static void *find_words_and_read(void *argument) {
    pair *x = argument;
    await(x);
    EXPECT(frugal_p2f_has_words(x->p));
    EXPECT(x->written == 42);
    EXPECT(frugal_p2f_close(x->p) == 0 && frugal_p2f_plan(x->p) == 0);
    return NULL;
}

static void a_commit_without_words_happens_before_the_announcement_that_it_allows(void **state) {
    (void)state;
    pair x = {.p = machine_without_words()};
    run_pair(&x, write_and_commit, announce_more_and_read);
    free(x.p);
}

static void getting_words_happens_before_finding_them(void **state) {
    (void)state;
    pair x = {.p = machine_without_words()};
    run_pair(&x, write_commit_and_use_words, find_words_and_read);
    free(x.p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_adjust_happens_before_the_pop_of_the_id),
        cmocka_unit_test(a_push_happens_before_the_pop_of_the_id),
        cmocka_unit_test(a_pop_happens_before_the_next_push_of_the_id),
        cmocka_unit_test(a_pop_happens_before_the_advance_that_it_allows),
        cmocka_unit_test(an_announcement_happens_before_planning),
        cmocka_unit_test(planning_happens_before_the_gate_and_planning_the_next_step),
        cmocka_unit_test(pieces_of_planning_happen_before_the_end_of_the_last),
        cmocka_unit_test(planning_happens_before_finding_recalls),
        cmocka_unit_test(a_commit_happens_before_taking_the_row),
        cmocka_unit_test(a_commit_happens_before_taking_the_page),
        cmocka_unit_test(a_flush_happens_before_finding_the_row_clean),
        cmocka_unit_test(a_flush_happens_before_the_next_gate_of_the_row),
        cmocka_unit_test(a_commit_without_words_happens_before_the_announcement_that_it_allows),
        cmocka_unit_test(getting_words_happens_before_finding_them),
    };
    return cmocka_run_group_tests_name("test_orders", tests, NULL, NULL);
}
