/* pq_oracle.h - calls of the validated queue of frugal_pq.h, of several batches on one thread, against an oracle of
 * plain arrays that says what every call must answer, to the id.
 *
 * The oracle knows pages, because they decide what is visible and when FULL is: no thread sees a batch's private page
 * until it is full or committed, and a pop takes the newest page of the lowest slot, without its stale ids.
 *
 * Include after the implementation of frugal_pq.h and after cmocka.h or fuzz.h, whose checks it uses. */
#ifndef PQ_ORACLE_H
#define PQ_ORACLE_H

#include "support.h"

enum { MODEL_IDS = 300, MODEL_PAGES = 1000, MODEL_BATCHES = 3 };
#define NOT_QUEUED UINT64_MAX

typedef struct model_page {
    uint32_t n, ids[FRUGAL_PQ_PAGE_IDS];
} model_page;

typedef struct model_batch {
    frugal_pq_batch batch;
    int open[FRUGAL_PQ_SLOTS], delta[FRUGAL_PQ_SLOTS];
    model_page page[FRUGAL_PQ_SLOTS];
} model_batch;

typedef struct model_slot {
    uint32_t pages;
    int live;
    model_page *stack; /* stack[MODEL_PAGES], the newest last */
} model_slot;

typedef struct model {
    frugal_pq *q;
    test_random random;
    uint64_t ids, free; /* ids served; free pages */
    uint64_t base, priority[MODEL_IDS];
    model_batch batches[MODEL_BATCHES];
    model_slot slots[FRUGAL_PQ_SLOTS];
    uint64_t fulls, pops, advances;
} model;

static model *model_open(test_random random, uint64_t ids, uint64_t pages, uint64_t base) {
    model *m = calloc(1, sizeof *m);
    frugal_pq_desc desc = {.ids = ids, .pages = pages, .base = base};
    size_t bytes = frugal_pq_footprint(&desc);
    void *memory = aligned_alloc(FRUGAL_PQ_ALIGN, (bytes / FRUGAL_PQ_ALIGN + 1) * FRUGAL_PQ_ALIGN);
    memset(memory, 0xa5, bytes);
    *m = (model){.q = frugal_pq_init(memory, &desc), .random = random, .ids = ids, .free = pages, .base = base};
    assert_true(m->q != NULL && ids <= MODEL_IDS && pages <= MODEL_PAGES);
    memset(m->priority, 0xff, sizeof m->priority);
    return m;
}

static void model_close(model *m) {
    for (int s = 0; s < FRUGAL_PQ_SLOTS; s++) free(m->slots[s].stack);
    free(m->q);
    free(m);
}

/* >>pages */

static void model_publish(model *m, model_batch *b, uint32_t slot) {
    model_slot *s = &m->slots[slot];
    b->open[slot] = 0;
    if (b->page[slot].n == 0) {
        m->free++;
        return;
    }
    s->stack = realloc(s->stack, (s->pages + 1) * sizeof *s->stack);
    s->stack[s->pages++] = b->page[slot];
}

static void model_append(model *m, model_batch *b, uint32_t slot, uint32_t id) {
    b->page[slot].ids[b->page[slot].n++] = id;
    if (b->page[slot].n == FRUGAL_PQ_PAGE_IDS) model_publish(m, b, slot);
}

static void model_commit(model *m, model_batch *b) {
    frugal_pq_commit(m->q, &b->batch);
    for (uint32_t slot = 0; slot < FRUGAL_PQ_SLOTS; slot++) {
        if (b->open[slot]) model_publish(m, b, slot);
        m->slots[slot].live += b->delta[slot];
        b->delta[slot] = 0;
    }
}

/* The first slot that holds a page, as a priority; NOT_QUEUED: none does. */
static uint64_t model_first(const model *m) {
    for (uint64_t p = m->base; p < m->base + FRUGAL_PQ_SLOTS; p++)
        if (m->slots[p % FRUGAL_PQ_SLOTS].pages) return p;
    return NOT_QUEUED;
}

/* >>calls */

static frugal_pq_status model_expect(model *m, model_batch *b, uint32_t id, uint64_t priority, int adjust) {
    uint32_t slot = (uint32_t)(priority % FRUGAL_PQ_SLOTS);
    if (id >= m->ids) return FRUGAL_PQ_ID;
    if (priority < m->base || priority - m->base >= FRUGAL_PQ_SLOTS) return FRUGAL_PQ_WINDOW;
    if (!b->open[slot]) { /* a page is needed before it is known whether the id may be added */
        if (m->free == 0) return FRUGAL_PQ_FULL;
        m->free--;
        b->open[slot] = 1, b->page[slot].n = 0;
    }
    if (adjust && m->priority[id] == NOT_QUEUED) return FRUGAL_PQ_ABSENT;
    if (!adjust && m->priority[id] != NOT_QUEUED) return FRUGAL_PQ_PRESENT;
    if (adjust && m->priority[id] == priority) return FRUGAL_PQ_OK;
    if (adjust) b->delta[m->priority[id] % FRUGAL_PQ_SLOTS]--;
    b->delta[slot]++;
    m->priority[id] = priority;
    model_append(m, b, slot, id);
    return FRUGAL_PQ_OK;
}

static void model_push_or_adjust(model *m, model_batch *b) {
    uint32_t id = (uint32_t)test_below(&m->random, m->ids + 1);
    uint64_t priority = m->base + test_below(&m->random, 68) - 2;
    int adjust = test_chance(&m->random, 60);
    frugal_pq_status expected = model_expect(m, b, id, priority, adjust);
    frugal_pq_status status = (adjust ? frugal_pq_adjust : frugal_pq_push)(m->q, &b->batch, id, priority);
    assert_int_equal(status, expected);
    m->fulls += status == FRUGAL_PQ_FULL;
}

static void model_push_n(model *m, model_batch *b) {
    enum { MOST = 100 };
    uint32_t ids[MOST], n = (uint32_t)test_below(&m->random, MOST + 1);
    uint64_t priorities[MOST], first = m->base + test_below(&m->random, FRUGAL_PQ_SLOTS);
    uint32_t from = (uint32_t)test_below(&m->random, m->ids + 1), spread = (uint32_t)test_between(&m->random, 1, 3);
    size_t pushed = SIZE_MAX, expected = 0;
    frugal_pq_status status = FRUGAL_PQ_OK;
    for (uint32_t i = 0; i < n; i++) ids[i] = from + i, priorities[i] = first + i % spread;
    while (expected < n && !(status = model_expect(m, b, ids[expected], priorities[expected], 0))) expected++;
    assert_int_equal(frugal_pq_push_n(m->q, &b->batch, ids, priorities, n, &pushed), status);
    assert_true(pushed == expected);
    m->fulls += status == FRUGAL_PQ_FULL;
}

static void model_adjust_n(model *m, model_batch *b) {
    enum { MOST = 100 };
    uint32_t ids[MOST], n = (uint32_t)test_below(&m->random, MOST + 1);
    uint64_t priority = m->base + test_below(&m->random, 66) - 1;
    uint32_t from = (uint32_t)test_below(&m->random, m->ids + 1);
    size_t queued = SIZE_MAX, expected = 0;
    frugal_pq_status status = FRUGAL_PQ_OK;
    for (uint32_t i = 0; i < n; i++) ids[i] = from + i;
    for (uint32_t i = 0; i < n && status == FRUGAL_PQ_OK; i++) {
        status = model_expect(m, b, ids[i], priority, 1);
        expected += status == FRUGAL_PQ_OK;
        if (status == FRUGAL_PQ_ABSENT) status = FRUGAL_PQ_OK;
    }
    assert_int_equal(frugal_pq_adjust_n(m->q, &b->batch, ids, n, priority, &queued), status);
    assert_true(queued == expected);
    m->fulls += status == FRUGAL_PQ_FULL;
}

/* Pops of pages that hold nothing but stale ids are part of the next one that holds more. */
static void model_pop(model *m) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS], expected[FRUGAL_PQ_PAGE_IDS], taken = 0;
    uint64_t priority = NOT_QUEUED, found = NOT_QUEUED;
    assert_true(frugal_pq_min(m->q) == model_first(m));
    while (taken == 0 && (found = model_first(m)) != NOT_QUEUED) {
        model_slot *s = &m->slots[found % FRUGAL_PQ_SLOTS];
        const model_page *page = &s->stack[--s->pages];
        m->free++;
        for (uint32_t i = 0; i < page->n; i++) {
            if (m->priority[page->ids[i]] != found) continue;
            m->priority[page->ids[i]] = NOT_QUEUED;
            expected[taken++] = page->ids[i];
        }
        s->live -= (int)taken;
    }
    assert_int_equal(frugal_pq_pop(m->q, ids, &priority), taken);
    assert_true(priority == found); /* unchanged if there is none */
    for (uint32_t i = 0; i < taken; i++) assert_int_equal(ids[i], expected[i]);
    m->pops += taken > 0;
}

/* As the contract requires: no batch holds ids of a slot that leaves the window. */
static void model_advance(model *m) {
    uint64_t to = m->base + test_below(&m->random, 90) - test_chance(&m->random, 5);
    uint64_t leaving = to < m->base ? 0 : to - m->base < FRUGAL_PQ_SLOTS ? to - m->base : FRUGAL_PQ_SLOTS;
    frugal_pq_status expected = to < m->base || to > UINT64_MAX - FRUGAL_PQ_SLOTS ? FRUGAL_PQ_WINDOW : FRUGAL_PQ_OK;
    if (expected != FRUGAL_PQ_OK) leaving = 0;
    for (uint64_t i = 0; i < leaving; i++)
        for (int b = 0; b < MODEL_BATCHES; b++) {
            uint64_t slot = (m->base + i) % FRUGAL_PQ_SLOTS;
            if (m->batches[b].open[slot] || m->batches[b].delta[slot]) model_commit(m, &m->batches[b]);
        }
    for (uint64_t i = 0; i < leaving; i++)
        if (m->slots[(m->base + i) % FRUGAL_PQ_SLOTS].live) expected = FRUGAL_PQ_LIVE;
    assert_int_equal(frugal_pq_advance(m->q, to), expected);
    for (uint64_t i = 0; expected == FRUGAL_PQ_OK && i < leaving; i++) {
        model_slot *s = &m->slots[(m->base + i) % FRUGAL_PQ_SLOTS];
        m->free += s->pages, s->pages = 0;
    }
    if (expected == FRUGAL_PQ_OK) m->base = to, m->advances++;
    assert_true(frugal_pq_base(m->q) == m->base);
}

static void model_act(model *m) {
    model_batch *b = &m->batches[test_below(&m->random, MODEL_BATCHES)];
    uint64_t dice = test_below(&m->random, 100);
    if (dice < 62)
        model_push_or_adjust(m, b);
    else if (dice < 65)
        model_adjust_n(m, b);
    else if (dice < 68)
        model_push_n(m, b);
    else if (dice < 81)
        model_commit(m, b);
    else if (dice < 97)
        model_pop(m);
    else
        model_advance(m);
}

/* Commits and pops everything: no id is left, and none is lost. */
static void model_finish(model *m) {
    uint64_t queued = 0;
    for (int b = 0; b < MODEL_BATCHES; b++) model_commit(m, &m->batches[b]);
    for (uint64_t i = 0; i < m->ids; i++) queued += m->priority[i] != NOT_QUEUED;
    assert_true(frugal_pq_size(m->q) == queued);
    for (uint64_t before = m->pops; model_first(m) != NOT_QUEUED || before != m->pops;) before = m->pops, model_pop(m);
    for (uint64_t i = 0; i < m->ids; i++) assert_true(m->priority[i] == NOT_QUEUED);
    assert_true(frugal_pq_size(m->q) == 0 && frugal_pq_min(m->q) == FRUGAL_PQ_EMPTY);
}

#endif /* PQ_ORACLE_H */
