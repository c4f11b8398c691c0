/* test_pq.c - frugal_pq.h, one claim a test: every function, every status, the window, the pages, and random
 * operations against the oracle of pq_oracle.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FRUGAL_PQ_IMPLEMENTATION
#include "frugal_pq.h"
#include "tests/pq_oracle.h"
#include "tests/seed.h"

/* >>helpers */

static frugal_pq *open_pq(uint64_t ids, uint64_t pages, uint64_t base) {
    frugal_pq_desc desc = {.ids = ids, .pages = pages, .base = base};
    size_t bytes = frugal_pq_footprint(&desc);
    assert_true(bytes > 0);
    void *memory = aligned_alloc(FRUGAL_PQ_ALIGN, bytes);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes); /* init may not rely on zeros */
    frugal_pq *q = frugal_pq_init(memory, &desc);
    assert_non_null(q);
    return q;
}

/* Pops once and expects exactly one id at a priority. */
static void expect_pop_one(frugal_pq *q, uint32_t id, uint64_t priority) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t found = 0;
    assert_int_equal(frugal_pq_pop(q, ids, &found), 1);
    assert_int_equal(ids[0], id);
    assert_int_equal(found, priority);
}

static void expect_empty(frugal_pq *q) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    assert_int_equal(frugal_pq_pop(q, ids, &priority), 0);
    assert_int_equal(frugal_pq_size(q), 0);
    assert_true(frugal_pq_min(q) == FRUGAL_PQ_EMPTY);
}

static void push_one(frugal_pq *q, frugal_pq_batch *b, uint32_t id, uint64_t priority) {
    assert_int_equal(frugal_pq_push(q, b, id, priority), FRUGAL_PQ_OK);
}

/* >>memory */

static void footprint_is_zero_over_each_limit_and_not_at_it(void **state) {
    (void)state;
    assert_int_equal(frugal_pq_footprint(NULL), 0);
    const frugal_pq_desc over[] = {{.ids = FRUGAL_PQ_MAX_IDS + UINT64_C(1), .pages = 1},
                                   {.ids = UINT64_MAX, .pages = 1},
                                   {.ids = 1, .pages = 0},
                                   {.ids = 1, .pages = UINT32_MAX},
                                   {.ids = 1, .pages = UINT64_MAX},
                                   {.ids = 1, .pages = 1, .base = UINT64_MAX - 63}};
    for (size_t i = 0; i < sizeof over / sizeof over[0]; i++) assert_int_equal(frugal_pq_footprint(&over[i]), 0);
    const frugal_pq_desc at[] = {{.ids = FRUGAL_PQ_MAX_IDS, .pages = 1},
                                 {.ids = 1, .pages = UINT32_MAX - UINT64_C(1)},
                                 {.ids = 0, .pages = 1},
                                 {.ids = 1, .pages = 1, .base = UINT64_MAX - 64}};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        assert_true(frugal_pq_footprint(&at[i]) > 0);
        assert_int_equal(frugal_pq_footprint(&at[i]) % FRUGAL_PQ_ALIGN, 0);
    }
}

static void footprint_grows_by_a_byte_an_id_and_256_bytes_a_page(void **state) {
    (void)state;
    frugal_pq_desc small = {.ids = 1024, .pages = 10}, ids = {.ids = 2048, .pages = 10},
                   pages = {.ids = 1024, .pages = 30};
    assert_int_equal(frugal_pq_footprint(&ids) - frugal_pq_footprint(&small), 1024);
    assert_int_equal(frugal_pq_footprint(&pages) - frugal_pq_footprint(&small), 20 * 256);
    frugal_pq_desc none = {.ids = 0, .pages = 10};
    assert_int_equal(frugal_pq_footprint(&small) - frugal_pq_footprint(&none), 1024);
}

static void init_refuses_missing_unaligned_and_impossible(void **state) {
    (void)state;
    frugal_pq_desc desc = {.ids = 10, .pages = 4}, bad = {.ids = 10, .pages = 0};
    char *memory = aligned_alloc(FRUGAL_PQ_ALIGN, frugal_pq_footprint(&desc) + FRUGAL_PQ_ALIGN);
    assert_non_null(memory);
    assert_null(frugal_pq_init(NULL, &desc));
    assert_null(frugal_pq_init(memory, NULL));
    assert_null(frugal_pq_init(memory, &bad));
    assert_null(frugal_pq_init(memory + 1, &desc));
    assert_null(frugal_pq_init(memory + 64, &desc));
    assert_non_null(frugal_pq_init(memory + FRUGAL_PQ_ALIGN, &desc));
    free(memory);
}

static void a_queue_stays_within_its_footprint(void **state) {
    (void)state; /* at the end of its block, where the sanitizers and the canary see one byte too many */
    frugal_pq_desc desc = {.ids = 513, .pages = 3};
    size_t bytes = frugal_pq_footprint(&desc);
    unsigned char *memory = aligned_alloc(FRUGAL_PQ_ALIGN, bytes + FRUGAL_PQ_ALIGN);
    assert_non_null(memory);
    memset(memory + bytes, 0x5a, FRUGAL_PQ_ALIGN);
    frugal_pq *q = frugal_pq_init(memory, &desc);
    frugal_pq_batch b = {0};
    push_one(q, &b, 512, 63);
    push_one(q, &b, 0, 0);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 0, 0);
    expect_pop_one(q, 512, 63);
    for (int i = 0; i < FRUGAL_PQ_ALIGN; i++) assert_int_equal(memory[bytes + i], 0x5a);
    free(memory);
}

static void the_memory_holds_no_pointers(void **state) {
    (void)state;
    frugal_pq_desc desc = {.ids = 100, .pages = 70};
    frugal_pq *q = open_pq(desc.ids, desc.pages, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 5, 9);
    push_one(q, &b, 6, 2);
    frugal_pq_commit(q, &b);
    size_t bytes = frugal_pq_footprint(&desc);
    void *elsewhere = aligned_alloc(FRUGAL_PQ_ALIGN, bytes);
    assert_non_null(elsewhere);
    memcpy(elsewhere, q, bytes);
    memset(q, 0xff, bytes);
    free(q);
    expect_pop_one(elsewhere, 6, 2);
    expect_pop_one(elsewhere, 5, 9);
    expect_empty(elsewhere);
    free(elsewhere);
}

/* >>statuses */

static void every_status_has_a_sentence_of_its_own(void **state) {
    (void)state;
    const char *seen[8];
    for (int i = 0; i <= 6; i++) {
        seen[i] = frugal_pq_strerror((frugal_pq_status)-i);
        assert_non_null(seen[i]);
        assert_true(strlen(seen[i]) > 0);
        for (int k = 0; k < i; k++) assert_string_not_equal(seen[i], seen[k]);
    }
    assert_non_null(frugal_pq_strerror((frugal_pq_status)-7));
    for (int i = 0; i <= 6; i++) assert_string_not_equal(frugal_pq_strerror((frugal_pq_status)-7), seen[i]);
}

static void a_new_queue_is_empty(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 4, 77);
    assert_int_equal(frugal_pq_base(q), 77);
    expect_empty(q);
    free(q);
}

static void ids_and_priorities_out_of_range_are_refused(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 100);
    frugal_pq_batch b = {0};
    assert_int_equal(frugal_pq_push(q, &b, 10, 100), FRUGAL_PQ_ID);
    assert_int_equal(frugal_pq_push(q, &b, UINT32_MAX, 100), FRUGAL_PQ_ID);
    assert_int_equal(frugal_pq_adjust(q, &b, 10, 100), FRUGAL_PQ_ID);
    assert_int_equal(frugal_pq_push(q, &b, 1, 99), FRUGAL_PQ_WINDOW);
    assert_int_equal(frugal_pq_push(q, &b, 1, 164), FRUGAL_PQ_WINDOW);
    assert_int_equal(frugal_pq_push(q, &b, 1, 0), FRUGAL_PQ_WINDOW);
    assert_int_equal(frugal_pq_push(q, &b, 1, UINT64_MAX), FRUGAL_PQ_WINDOW);
    assert_int_equal(frugal_pq_adjust(q, &b, 1, 164), FRUGAL_PQ_WINDOW);
    frugal_pq_commit(q, &b);
    expect_empty(q);
    push_one(q, &b, 9, 100);
    push_one(q, &b, 8, 163);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 9, 100);
    expect_pop_one(q, 8, 163);
    free(q);
}

static void an_id_is_in_the_queue_at_most_once(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 3, 20);
    assert_int_equal(frugal_pq_push(q, &b, 3, 20), FRUGAL_PQ_PRESENT);
    assert_int_equal(frugal_pq_push(q, &b, 3, 5), FRUGAL_PQ_PRESENT);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_push(q, &b, 3, 5), FRUGAL_PQ_PRESENT);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_size(q), 1);
    expect_pop_one(q, 3, 20);
    expect_empty(q);
    free(q);
}

static void adjusting_an_absent_id_is_refused(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    assert_int_equal(frugal_pq_adjust(q, &b, 3, 5), FRUGAL_PQ_ABSENT);
    push_one(q, &b, 3, 5);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 3, 5);
    assert_int_equal(frugal_pq_adjust(q, &b, 3, 6), FRUGAL_PQ_ABSENT);
    frugal_pq_commit(q, &b);
    expect_empty(q);
    free(q);
}

static void without_pages_push_and_adjust_change_nothing(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 1, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 1, 7);
    assert_int_equal(frugal_pq_push(q, &b, 2, 8), FRUGAL_PQ_FULL);
    assert_int_equal(frugal_pq_adjust(q, &b, 1, 8), FRUGAL_PQ_FULL);
    assert_int_equal(frugal_pq_adjust(q, &b, 2, 8), FRUGAL_PQ_FULL);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_push(q, &b, 2, 7), FRUGAL_PQ_FULL); /* the one page is in the slot */
    assert_int_equal(frugal_pq_size(q), 1);
    expect_pop_one(q, 1, 7);
    expect_empty(q);
    push_one(q, &b, 2, 8); /* and id 2 was never half in it */
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 2, 8);
    free(q);
}

static void a_page_opened_for_a_failed_call_is_given_back_by_commit(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 2, 0);
    frugal_pq_batch b = {0}, other = {0};
    push_one(q, &b, 1, 7);
    assert_int_equal(frugal_pq_push(q, &b, 1, 9), FRUGAL_PQ_PRESENT); /* holds the second page now */
    assert_int_equal(frugal_pq_push(q, &other, 2, 3), FRUGAL_PQ_FULL);
    frugal_pq_commit(q, &b);
    push_one(q, &other, 2, 3);
    frugal_pq_commit(q, &other);
    expect_pop_one(q, 2, 3);
    expect_pop_one(q, 1, 7);
    expect_empty(q);
    free(q);
}

static void push_n_stops_at_the_first_error_and_says_where(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    const uint32_t ids[] = {4, 5, 4, 6};
    const uint64_t priorities[] = {1, 2, 3, 4};
    size_t pushed = 99;
    assert_int_equal(frugal_pq_push_n(q, &b, ids, priorities, 4, &pushed), FRUGAL_PQ_PRESENT);
    assert_int_equal(pushed, 2);
    assert_int_equal(frugal_pq_push_n(q, &b, ids, priorities, 0, &pushed), FRUGAL_PQ_OK);
    assert_int_equal(pushed, 0);
    assert_int_equal(frugal_pq_push_n(q, &b, ids + 3, priorities + 3, 1, NULL), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 4, 1);
    expect_pop_one(q, 5, 2);
    expect_pop_one(q, 6, 4);
    expect_empty(q);
    free(q);
}

static void adjust_n_moves_those_that_are_queued(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    const uint32_t ids[] = {9, 4, 0, 5, 4};
    size_t queued = 99;
    push_one(q, &b, 4, 1);
    push_one(q, &b, 5, 30);
    push_one(q, &b, 6, 2);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_adjust_n(q, &b, ids, 5, 7, &queued), FRUGAL_PQ_OK);
    assert_int_equal(queued, 3);
    assert_int_equal(frugal_pq_adjust_n(q, &b, ids, 3, 7, NULL), FRUGAL_PQ_OK); /* up and down and not at all */
    assert_int_equal(frugal_pq_adjust_n(q, &b, ids, 0, 7, &queued), FRUGAL_PQ_OK);
    assert_int_equal(queued, 0);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_size(q), 3);
    expect_pop_one(q, 6, 2);
    uint32_t popped[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    assert_int_equal(frugal_pq_pop(q, popped, &priority), 2);
    assert_true(priority == 7 && popped[0] == 4 && popped[1] == 5);
    expect_empty(q);
    free(q);
}

static void adjust_n_stops_at_the_first_error(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 3, 0);
    frugal_pq_batch b = {0};
    const uint32_t ids[] = {1, 2, 10, 3};
    size_t queued = 99;
    for (uint32_t id = 1; id < 4; id++) push_one(q, &b, id, 5);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_adjust_n(q, &b, ids, 4, 64, &queued), FRUGAL_PQ_WINDOW);
    assert_int_equal(queued, 0);
    assert_int_equal(frugal_pq_adjust_n(q, &b, ids, 4, 6, &queued), FRUGAL_PQ_ID);
    assert_int_equal(queued, 2);
    push_one(q, &b, 4, 9); /* the last page */
    assert_int_equal(frugal_pq_adjust_n(q, &b, ids, 2, 10, &queued), FRUGAL_PQ_FULL);
    assert_int_equal(queued, 0);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 3, 5);
    uint32_t popped[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    assert_int_equal(frugal_pq_pop(q, popped, &priority), 2);
    assert_true(priority == 6);
    expect_pop_one(q, 4, 9);
    expect_empty(q);
    free(q);
}

/* >>order and delivery */

static void what_a_batch_holds_is_invisible_until_committed(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    push_one(q, &b, 1, 5);
    assert_int_equal(frugal_pq_pop(q, ids, &priority), 0);
    frugal_pq_commit(q, &b);
    frugal_pq_commit(q, &b); /* an empty batch commits nothing */
    expect_pop_one(q, 1, 5);
    free(q);
}

static void pop_takes_the_lowest_priority_first_around_the_ring(void **state) {
    (void)state;
    frugal_pq *q = open_pq(64, 70, 40); /* slots 40 .. 63, 0 .. 39 */
    frugal_pq_batch b = {0};
    for (uint32_t i = 0; i < 64; i++) push_one(q, &b, i, 40 + (i * 37 + 11) % 64);
    frugal_pq_commit(q, &b);
    for (uint64_t p = 40; p < 104; p++) {
        uint32_t ids[FRUGAL_PQ_PAGE_IDS];
        uint64_t priority;
        assert_int_equal(frugal_pq_min(q), p);
        assert_int_equal(frugal_pq_pop(q, ids, &priority), 1);
        assert_int_equal(priority, p);
        assert_int_equal(40 + (ids[0] * 37 + 11) % 64, p);
    }
    expect_empty(q);
    free(q);
}

static void a_pop_returns_at_most_a_page_and_all_of_one_priority(void **state) {
    (void)state;
    frugal_pq *q = open_pq(200, 10, 0);
    frugal_pq_batch b = {0};
    for (uint32_t i = 0; i < 150; i++) push_one(q, &b, i, 3);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_size(q), 150);
    uint8_t seen[200] = {0};
    uint32_t ids[FRUGAL_PQ_PAGE_IDS], total = 0, n;
    uint64_t priority;
    while ((n = frugal_pq_pop(q, ids, &priority)) > 0) {
        assert_true(n <= FRUGAL_PQ_PAGE_IDS);
        assert_int_equal(priority, 3);
        for (uint32_t i = 0; i < n; i++) assert_int_equal(seen[ids[i]]++, 0);
        total += n;
    }
    assert_int_equal(total, 150);
    expect_empty(q);
    free(q);
}

static void adjust_moves_up_and_down_and_the_old_place_counts_no_longer(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    uint64_t priority;
    push_one(q, &b, 1, 10);
    push_one(q, &b, 2, 20);
    push_one(q, &b, 3, 15);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_adjust(q, &b, 1, 30), FRUGAL_PQ_OK);
    assert_int_equal(frugal_pq_adjust(q, &b, 2, 5), FRUGAL_PQ_OK);
    expect_pop_one(q, 3, 15); /* neither place of 1 and 2 is visible before the commit */
    assert_int_equal(frugal_pq_pop(q, ids, &priority), 0);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_size(q), 2);
    expect_pop_one(q, 2, 5);
    expect_pop_one(q, 1, 30);
    expect_empty(q);
    free(q);
}

static void adjusting_to_the_same_priority_changes_nothing(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 1, 10);
    frugal_pq_commit(q, &b);
    for (int i = 0; i < 1000; i++) assert_int_equal(frugal_pq_adjust(q, &b, 1, 10), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_size(q), 1);
    expect_pop_one(q, 1, 10);
    expect_empty(q);
    free(q);
}

static void a_stale_id_that_becomes_true_again_is_delivered_once(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 5, 3);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_adjust(q, &b, 5, 7), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_adjust(q, &b, 5, 3), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b); /* two entries in slot 3, one in slot 7, one id */
    assert_int_equal(frugal_pq_size(q), 1);
    expect_pop_one(q, 5, 3);
    expect_empty(q);
    push_one(q, &b, 5, 3);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 5, 3);
    expect_empty(q);
    free(q);
}

static void a_stale_id_of_a_popped_and_requeued_id_is_delivered_once(void **state) {
    (void)state;
    frugal_pq *q = open_pq(200, 70, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 5, 9);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_adjust(q, &b, 5, 1), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 5, 1); /* leaves a stale 5 in slot 9 */
    push_one(q, &b, 5, 9);   /* which is as good as the new one from here on */
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 5, 9);
    expect_empty(q);
    free(q);
}

static void min_is_a_lower_bound_and_exact_without_stale_ids(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 1, 10);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_min(q), 10);
    assert_int_equal(frugal_pq_adjust(q, &b, 1, 30), FRUGAL_PQ_OK);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_min(q), 10); /* only a stale id there: too low, as documented */
    expect_pop_one(q, 1, 30);
    assert_true(frugal_pq_min(q) == FRUGAL_PQ_EMPTY);
    free(q);
}

/* >>window */

static void advance_refuses_to_drop_queued_ids(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 0);
    frugal_pq_batch b = {0};
    push_one(q, &b, 1, 10);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_advance(q, 11), FRUGAL_PQ_LIVE);
    assert_int_equal(frugal_pq_advance(q, 1000), FRUGAL_PQ_LIVE);
    assert_int_equal(frugal_pq_base(q), 0);
    assert_int_equal(frugal_pq_advance(q, 10), FRUGAL_PQ_OK);
    assert_int_equal(frugal_pq_base(q), 10);
    expect_pop_one(q, 1, 10);
    assert_int_equal(frugal_pq_advance(q, 1000), FRUGAL_PQ_OK);
    expect_empty(q);
    free(q);
}

static void advance_goes_forward_only_and_up_to_the_limit(void **state) {
    (void)state;
    frugal_pq *q = open_pq(10, 70, 50);
    frugal_pq_batch b = {0};
    assert_int_equal(frugal_pq_advance(q, 49), FRUGAL_PQ_WINDOW);
    assert_int_equal(frugal_pq_advance(q, 50), FRUGAL_PQ_OK);
    assert_int_equal(frugal_pq_advance(q, UINT64_MAX - 63), FRUGAL_PQ_WINDOW);
    assert_int_equal(frugal_pq_base(q), 50);
    assert_int_equal(frugal_pq_advance(q, UINT64_MAX - 64), FRUGAL_PQ_OK);
    push_one(q, &b, 1, UINT64_MAX - 1);
    push_one(q, &b, 2, UINT64_MAX - 64);
    assert_int_equal(frugal_pq_push(q, &b, 3, UINT64_MAX), FRUGAL_PQ_WINDOW);
    frugal_pq_commit(q, &b);
    expect_pop_one(q, 2, UINT64_MAX - 64);
    expect_pop_one(q, 1, UINT64_MAX - 1);
    free(q);
}

static void advance_gives_the_pages_of_stale_ids_back(void **state) {
    (void)state;
    frugal_pq *q = open_pq(1, 3, 0); /* a page in the old slot, one in the new: only advance makes room */
    frugal_pq_batch b = {0};
    push_one(q, &b, 0, 0);
    frugal_pq_commit(q, &b);
    for (uint64_t p = 1; p < 1000; p++) {
        assert_int_equal(frugal_pq_adjust(q, &b, 0, p), FRUGAL_PQ_OK);
        frugal_pq_commit(q, &b);
        assert_int_equal(frugal_pq_advance(q, p), FRUGAL_PQ_OK);
    }
    expect_pop_one(q, 0, 999);
    free(q);
}

static void wrap_for_thousands_of_steps(uint64_t first) {
    frugal_pq *q = open_pq(64, 130, first);
    frugal_pq_batch b = {0};
    for (uint32_t i = 0; i < 64; i++) push_one(q, &b, i, first + i);
    frugal_pq_commit(q, &b);
    for (uint64_t step = first; step < first + 10000; step++) {
        expect_pop_one(q, (uint32_t)(step - first) % 64, step); /* slot reused every 64 steps, id by id */
        assert_int_equal(frugal_pq_advance(q, step + 1), FRUGAL_PQ_OK);
        push_one(q, &b, (uint32_t)(step - first) % 64, step + 64);
        frugal_pq_commit(q, &b);
        assert_int_equal(frugal_pq_size(q), 64);
    }
    free(q);
}

static void the_window_wraps_for_ten_thousand_steps(void **state) {
    (void)state;
    wrap_for_thousands_of_steps(0);
    wrap_for_thousands_of_steps((UINT64_C(1) << 40) - 5000);
    wrap_for_thousands_of_steps((UINT64_C(1) << 32) - 5000);
}

/* >>page level */

static void the_page_level_works_without_ids(void **state) {
    (void)state;
    frugal_pq *q = open_pq(0, 8, 0);
    frugal_pq_batch b = {0};
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
    assert_int_equal(frugal_pq_push(q, &b, 0, 0), FRUGAL_PQ_ID);
    assert_int_equal(frugal_pq_first(q, 0, 64), FRUGAL_PQ_SLOTS);
    assert_int_equal(frugal_pq_take(q, 9, ids), 0);
    assert_int_equal(frugal_pq_put(q, &b, 9, 4000000000u), 1);
    assert_int_equal(frugal_pq_put(q, &b, 9, 4000000000u), 1); /* nothing is validated */
    assert_int_equal(frugal_pq_first(q, 0, 64), FRUGAL_PQ_SLOTS);
    frugal_pq_commit(q, &b);
    assert_int_equal(frugal_pq_first(q, 0, 64), 9);
    assert_int_equal(frugal_pq_first(q, 0, 9), FRUGAL_PQ_SLOTS);
    assert_int_equal(frugal_pq_first(q, 0, 10), 9);
    assert_int_equal(frugal_pq_first(q, 10, 64), 9); /* around the ring */
    assert_int_equal(frugal_pq_first(q, 10, 63), FRUGAL_PQ_SLOTS);
    assert_int_equal(frugal_pq_first(q, 9, 0), FRUGAL_PQ_SLOTS);
    assert_int_equal(frugal_pq_take(q, 9, ids), 2);
    assert_true(ids[0] == 4000000000u && ids[1] == 4000000000u);
    assert_int_equal(frugal_pq_take(q, 9, ids), 0);
    free(q);
}

static void put_fails_without_pages_and_retire_frees_them_all(void **state) {
    (void)state;
    frugal_pq *q = open_pq(0, 4, 0);
    frugal_pq_batch b = {0};
    for (int round = 0; round < 100; round++) {
        uint32_t n = 0;
        while (frugal_pq_put(q, &b, 5, n)) n++;
        assert_int_equal(n, 4 * FRUGAL_PQ_PAGE_IDS);
        frugal_pq_commit(q, &b);
        assert_int_equal(frugal_pq_put(q, &b, 6, 1), 0);
        assert_int_equal(frugal_pq_retire(q, 5), 4 * FRUGAL_PQ_PAGE_IDS);
        assert_int_equal(frugal_pq_retire(q, 5), 0);
    }
    free(q);
}

static void take_returns_each_page_whole_and_once(void **state) {
    (void)state;
    frugal_pq *q = open_pq(0, 8, 0);
    frugal_pq_batch b = {0};
    for (uint32_t i = 0; i < 200; i++) assert_int_equal(frugal_pq_put(q, &b, 63, i), 1);
    frugal_pq_commit(q, &b);
    uint8_t seen[200] = {0};
    uint32_t ids[FRUGAL_PQ_PAGE_IDS], n, total = 0;
    while ((n = frugal_pq_take(q, 63, ids)) > 0)
        for (uint32_t i = 0; i < n; i++, total++) assert_int_equal(seen[ids[i]]++, 0);
    assert_int_equal(total, 200);
    free(q);
}

/* >>random operations against the oracle */

static uint64_t run_model(uint64_t seed, uint64_t pages, uint64_t base, int operations) {
    model *m = model_open((test_random){.seed = seed}, MODEL_IDS, pages, base);
    for (int i = 0; i < operations; i++) model_act(m);
    model_finish(m);
    uint64_t fulls = m->fulls;
    model_close(m);
    return fulls;
}

static void random_operations_agree_with_the_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_pq oracle", 20240501);
    for (uint64_t round = 0; round < 40 / SHORTER; round++)
        run_model(seed + round, MODEL_PAGES, round % 2 ? test_mix(seed + round) >> 8 : round, 10000);
}

static void random_operations_with_few_pages_agree_with_the_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed("test_pq oracle, few pages", 20240502), fulls = 0;
    for (uint64_t round = 0; round < 40 / SHORTER; round++)
        fulls += run_model(seed + round, 2 + round % 40, round, 10000);
    assert_true(fulls > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(footprint_is_zero_over_each_limit_and_not_at_it),
        cmocka_unit_test(footprint_grows_by_a_byte_an_id_and_256_bytes_a_page),
        cmocka_unit_test(init_refuses_missing_unaligned_and_impossible),
        cmocka_unit_test(a_queue_stays_within_its_footprint),
        cmocka_unit_test(the_memory_holds_no_pointers),
        cmocka_unit_test(every_status_has_a_sentence_of_its_own),
        cmocka_unit_test(a_new_queue_is_empty),
        cmocka_unit_test(ids_and_priorities_out_of_range_are_refused),
        cmocka_unit_test(an_id_is_in_the_queue_at_most_once),
        cmocka_unit_test(adjusting_an_absent_id_is_refused),
        cmocka_unit_test(without_pages_push_and_adjust_change_nothing),
        cmocka_unit_test(a_page_opened_for_a_failed_call_is_given_back_by_commit),
        cmocka_unit_test(push_n_stops_at_the_first_error_and_says_where),
        cmocka_unit_test(adjust_n_moves_those_that_are_queued),
        cmocka_unit_test(adjust_n_stops_at_the_first_error),
        cmocka_unit_test(what_a_batch_holds_is_invisible_until_committed),
        cmocka_unit_test(pop_takes_the_lowest_priority_first_around_the_ring),
        cmocka_unit_test(a_pop_returns_at_most_a_page_and_all_of_one_priority),
        cmocka_unit_test(adjust_moves_up_and_down_and_the_old_place_counts_no_longer),
        cmocka_unit_test(adjusting_to_the_same_priority_changes_nothing),
        cmocka_unit_test(a_stale_id_that_becomes_true_again_is_delivered_once),
        cmocka_unit_test(a_stale_id_of_a_popped_and_requeued_id_is_delivered_once),
        cmocka_unit_test(min_is_a_lower_bound_and_exact_without_stale_ids),
        cmocka_unit_test(advance_refuses_to_drop_queued_ids),
        cmocka_unit_test(advance_goes_forward_only_and_up_to_the_limit),
        cmocka_unit_test(advance_gives_the_pages_of_stale_ids_back),
        cmocka_unit_test(the_window_wraps_for_ten_thousand_steps),
        cmocka_unit_test(the_page_level_works_without_ids),
        cmocka_unit_test(put_fails_without_pages_and_retire_frees_them_all),
        cmocka_unit_test(take_returns_each_page_whole_and_once),
        cmocka_unit_test(random_operations_agree_with_the_oracle),
        cmocka_unit_test(random_operations_with_few_pages_agree_with_the_oracle),
    };
    return cmocka_run_group_tests_name("test_pq", tests, NULL, NULL);
}
