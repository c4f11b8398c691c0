/* explore_pq.c - small worlds of frugal_pq.h, in every order that a scheduler can choose. See explore.h. */
#include "tests/explore/explore.h"

#define FRUGAL_STATIC
#define FRUGAL_PQ_IMPLEMENTATION
#define FRUGAL_ATOMICS_OVERRIDE "tests/explore/explore.h"
#include "frugal_pq.h"
#include "tests/support.h"

enum { IDS = 4, THREADS = 3 };

typedef struct own { /* of one thread */
    frugal_pq_batch batch;
    uint32_t put, taken, dropped, owned; /* owned: a bit per id */
    uint32_t ids[FRUGAL_PQ_PAGE_IDS];
} own;

static struct world {
    frugal_pq *q;
    uint64_t variant;
    struct shared {
        own of[THREADS];
        uint32_t token[IDS];    /* plain: written by the thread that holds the id */
        uint32_t note[THREADS]; /* plain: written before a call, read after one that it must happen before */
        uint32_t said[THREADS]; /* atomic, relaxed: orders nothing */
    } * s;
} w;

static void make_world(uint64_t variant, const frugal_pq_desc *desc) {
    w.variant = variant;
    w.s = explore_alloc(sizeof *w.s, 64);
    w.q = frugal_pq_init(explore_alloc(frugal_pq_footprint(desc), FRUGAL_PQ_ALIGN), desc);
}

static uint32_t script(int thread, int round, uint32_t n) { /* what the variant makes a thread do: below n */
    return (uint32_t)(test_mix3(w.variant, (uint64_t)thread, (uint64_t)round) >> 8) % n;
}

static void say(int thread) {
    frugal_store_relaxed(&w.s->said[thread], 1);
}
static void await(int thread) {
    while (!frugal_load_relaxed(&w.s->said[thread])) explore_wait();
}

/* >>pages: tokens go round through slots and free pages; a thread that takes one writes to it */

static void set_up_tokens(uint64_t variant) {
    frugal_pq_desc desc = {.pages = IDS + THREADS};
    make_world(variant, &desc);
    frugal_pq_batch batch = {0};
    for (uint32_t id = 0; id < IDS; id++) {
        frugal_pq_put(w.q, &batch, script(0, (int)id, 2), id);
        if (script(1, (int)id, 2)) frugal_pq_commit(w.q, &batch);
    }
    frugal_pq_commit(w.q, &batch);
}

static void pass_tokens_on(int number) {
    own *me = &w.s->of[number];
    for (int round = 0; round < 3; round++) {
        uint32_t slot = script(number, 10 + round, 2), n = frugal_pq_take(w.q, slot, me->ids);
        for (uint32_t i = 0; i < n; i++) {
            EXPLORE_EXPECT(me->ids[i] < IDS);
            w.s->token[me->ids[i]]++;
            int put = frugal_pq_put(w.q, &me->batch, (slot + script(number, 20 + round, 2)) % 2, me->ids[i]);
            EXPLORE_EXPECT(put);
        }
        me->taken += n;
        frugal_pq_commit(w.q, &me->batch);
    }
}

static void all_tokens_are_there(void) {
    uint32_t found = 0, n, ids[FRUGAL_PQ_PAGE_IDS], tokens = 0, taken = 0, pages = 0;
    for (uint32_t slot = 0; slot < 2; slot++)
        while ((n = frugal_pq_take(w.q, slot, ids)) > 0)
            for (uint32_t i = 0; i < n; i++) {
                EXPLORE_EXPECT(!(found >> ids[i] & 1));
                found |= 1u << ids[i];
            }
    EXPLORE_EXPECT(found == (1u << IDS) - 1);
    for (int t = 0; t < THREADS; t++) taken += w.s->of[t].taken;
    for (uint32_t id = 0; id < IDS; id++) tokens += w.s->token[id];
    EXPLORE_EXPECT(tokens == taken);
    for (uint32_t index; frugal_priv_pq_pop_page(w.q, &w.q->free, &index);) pages++;
    EXPLORE_EXPECT(pages == w.q->pages); /* none lost, none twice */
}

/* >>retire: one thread empties a slot that others fill and take from */

static void set_up_retiring(uint64_t variant) {
    frugal_pq_desc desc = {.pages = 5};
    make_world(variant, &desc);
}

static void put_take_or_retire(int number) {
    own *me = &w.s->of[number];
    for (uint32_t round = 0; round < 2; round++) {
        if (number == 0) {
            me->dropped += (uint32_t)frugal_pq_retire(w.q, 0);
        } else if (number == 1) {
            me->put += (uint32_t)frugal_pq_put(w.q, &me->batch, 0, 2 * round);
            if (script(1, (int)round, 2)) me->put += (uint32_t)frugal_pq_put(w.q, &me->batch, 0, 2 * round + 1);
            frugal_pq_commit(w.q, &me->batch);
            continue;
        } else {
            me->taken += frugal_pq_take(w.q, 0, me->ids);
        }
        me->put += (uint32_t)frugal_pq_put(w.q, &me->batch, 1, IDS); /* pages that were retired are used again */
        frugal_pq_commit(w.q, &me->batch);
    }
}

static void nothing_is_lost_but_by_retiring(void) {
    uint32_t put = 0, gone = 0, n, ids[FRUGAL_PQ_PAGE_IDS];
    for (int t = 0; t < THREADS; t++) put += w.s->of[t].put, gone += w.s->of[t].taken + w.s->of[t].dropped;
    for (uint32_t slot = 0; slot < 2; slot++)
        while ((n = frugal_pq_take(w.q, slot, ids)) > 0) gone += n;
    EXPLORE_EXPECT(put == gone);
}

/* >>queue: each thread pushes the ids that it owns, adjusts and pops; a thread that pops an id owns it and its token */

static void set_up_queue(uint64_t variant) {
    frugal_pq_desc desc = {.ids = IDS, .pages = 30, .base = 100};
    make_world(variant, &desc);
    for (uint32_t id = 0; id < IDS; id++) w.s->of[id % THREADS].owned |= 1u << id;
}

static void own_popped(own *me, const uint32_t *ids, uint32_t n, uint64_t priority) {
    EXPLORE_EXPECT(n == 0 || (priority >= 100 && priority < 103));
    for (uint32_t i = 0; i < n; i++) {
        EXPLORE_EXPECT(ids[i] < IDS && !(me->owned >> ids[i] & 1));
        EXPLORE_EXPECT(w.s->token[ids[i]] == ids[i] + 1); /* what its pusher wrote */
        w.s->token[ids[i]] = 0;
        me->owned |= 1u << ids[i];
    }
}

static void push_adjust_and_pop(int number) {
    own *me = &w.s->of[number];
    for (int round = 0; round < 4; round++) {
        uint32_t id = script(number, 3 * round, IDS), what = script(number, 3 * round + 1, 4);
        uint64_t priority = 100 + script(number, 3 * round + 2, 3);
        if (what == 0 || me->owned == 0) {
            uint32_t n = frugal_pq_pop(w.q, me->ids, &priority);
            own_popped(me, me->ids, n, priority);
        } else if (what == 1 && !(me->owned >> id & 1)) {
            const uint32_t ids[2] = {id, (id + 1) % IDS};
            size_t queued;
            EXPLORE_EXPECT(frugal_pq_adjust_n(w.q, &me->batch, ids, 2, priority, &queued) == FRUGAL_PQ_OK &&
                           queued <= 2);
        } else {
            if (!(me->owned >> id & 1)) id = frugal_priv_lowest(me->owned);
            EXPLORE_EXPECT(w.s->token[id] == 0);
            w.s->token[id] = id + 1;
            EXPLORE_EXPECT(frugal_pq_push(w.q, &me->batch, id, priority) == FRUGAL_PQ_OK);
            me->owned &= ~(1u << id);
        }
        if (script(number, 50 + round, 2)) frugal_pq_commit(w.q, &me->batch);
    }
    frugal_pq_commit(w.q, &me->batch);
}

static void each_id_is_in_one_place(void) {
    uint32_t ids[FRUGAL_PQ_PAGE_IDS], n, all = 0;
    uint64_t priority = 0, before = 0;
    EXPLORE_EXPECT(frugal_pq_min(w.q) == FRUGAL_PQ_EMPTY || frugal_pq_min(w.q) >= 100);
    for (int t = 0; t < THREADS; t++) {
        EXPLORE_EXPECT(!(all & w.s->of[t].owned));
        all |= w.s->of[t].owned;
    }
    uint64_t size = frugal_pq_size(w.q), popped = 0;
    while ((n = frugal_pq_pop(w.q, ids, &priority)) > 0) {
        EXPLORE_EXPECT(priority >= before);
        before = priority;
        for (uint32_t i = 0; i < n; i++) {
            EXPLORE_EXPECT(!(all >> ids[i] & 1));
            all |= 1u << ids[i];
        }
        popped += n;
    }
    EXPLORE_EXPECT(all == (1u << IDS) - 1 && size == popped);
    EXPLORE_EXPECT(frugal_pq_advance(w.q, 110) == FRUGAL_PQ_OK); /* `live` is exact again: nothing is queued */
}

/* >>adjust: what the pusher and the adjuster did happens before the pop, and what the popper did before the next push.
 * Stale entries lie where the id is going, and batches have their pages beforehand, so only the id's byte orders the
 * accesses. */

enum { FROM = 5, TO = 3, STALE = 9, AGAIN = 7 };

static uint64_t adjusted_to(void) {
    static const uint64_t to[] = {TO, STALE, FROM}; /* FROM: it is there already */
    return to[w.variant % 3];
}

static void set_up_adjusting(uint64_t variant) {
    frugal_pq_desc desc = {.ids = 2, .pages = 12};
    make_world(variant, &desc);
    frugal_pq_batch batch = {0};
    frugal_pq_push(w.q, &batch, 0, TO);
    frugal_pq_commit(w.q, &batch);
    frugal_pq_adjust(w.q, &batch, 0, STALE);
    frugal_pq_commit(w.q, &batch);
    frugal_pq_adjust(w.q, &batch, 0, FROM);
    frugal_pq_commit(w.q, &batch);
    frugal_pq_put(w.q, &w.s->of[0].batch, (uint32_t)adjusted_to(),
                  1); /* as stale as an id can be; but the pages are there */
    frugal_pq_put(w.q, &w.s->of[2].batch, AGAIN, 1);
}

static void push_adjust_pop(int number) {
    own *me = &w.s->of[number];
    uint64_t priority;
    w.s->note[number] = 1;
    if (number == 0) {
        if (frugal_pq_adjust(w.q, &me->batch, 0, adjusted_to()) == FRUGAL_PQ_OK) me->put = 1;
        say(0);
        frugal_pq_commit(w.q, &me->batch); /* before, its stale entry may do */
    } else if (number == 1) {
        if (w.variant / 3 % 2) await(0); /* it only knows that the adjusting is over */
        while (frugal_pq_pop(w.q, me->ids, &priority) == 0) explore_wait();
        me->taken = (uint32_t)priority;
        me->owned = me->ids[0];
        if (w.variant / 3 % 2 || (priority == adjusted_to() && priority != FROM)) EXPLORE_EXPECT(w.s->note[0] == 1);
        say(1);
    } else {
        await(1); /* it only knows that the pop is over, so for a while it may see an old byte, and say PRESENT */
        while (frugal_pq_push(w.q, &me->batch, 0, AGAIN) == FRUGAL_PQ_PRESENT) explore_wait();
        EXPLORE_EXPECT(w.s->note[1] == 1);
    }
}

static void moved_means_moved(void) { /* before the pop, or after the push */
    uint64_t priority = w.s->of[1].taken;
    int found = priority == adjusted_to();
    for (int t = 0; t < THREADS; t++) frugal_pq_commit(w.q, &w.s->of[t].batch);
    while (frugal_pq_pop(w.q, w.s->of[1].ids, &priority)) found |= priority == adjusted_to();
    EXPLORE_EXPECT(found || !w.s->of[0].put);
}

/* >>advance: a slot stands for a later priority once it is empty; earlier writes are seen */

static void set_up_advancing(uint64_t variant) {
    frugal_pq_desc desc = {.ids = 3, .pages = 8};
    make_world(variant, &desc);
    frugal_pq_batch batch = {0};
    frugal_pq_push(w.q, &batch, 0, 0);
    if (variant % 2)
        frugal_pq_push(w.q, &batch, 1, 0), frugal_pq_commit(w.q, &batch), frugal_pq_adjust(w.q, &batch, 1, 1);
    frugal_pq_commit(w.q, &batch);
}

static void pop_advance_or_push_on(int number) {
    own *me = &w.s->of[number];
    uint64_t priority;
    w.s->note[number] = 1;
    if (number == 0) { /* pops all that there will be: ids 0 and 2, and 1 in every other world */
        for (uint32_t left = 2 + (uint32_t)(w.variant % 2), n; left > 0; left -= n) {
            while ((n = frugal_pq_pop(w.q, me->ids, &priority)) == 0) explore_wait();
            for (uint32_t i = 0; i < n; i++) EXPLORE_EXPECT(priority == (me->ids[i] == 2 ? 64 : me->ids[i]));
        }
    } else if (number == 1) {
        frugal_pq_status status;
        while ((status = frugal_pq_advance(w.q, 1)) == FRUGAL_PQ_LIVE) explore_wait();
        EXPLORE_EXPECT(status == FRUGAL_PQ_OK);
        say(1);
    } else {
        while (frugal_pq_push(w.q, &me->batch, 2, 64) == FRUGAL_PQ_WINDOW) explore_wait();
        EXPLORE_EXPECT(w.s->note[1] == 1); /* what was done before advancing */
        frugal_pq_commit(w.q, &me->batch);
    }
}

/* The pop, or the adjusting, happens before the advance that it allows, and the advance before a read of the new base.
 */
static void take_away_then_advance(int number) {
    own *me = &w.s->of[number];
    uint64_t priority;
    w.s->note[number] = 1;
    if (number == 0) {
        if (w.variant / 2 % 2) {
            frugal_pq_adjust(w.q, &me->batch, 0, 30);
            if (w.variant % 2) frugal_pq_adjust(w.q, &me->batch, 1, 31);
            frugal_pq_commit(w.q, &me->batch);
        } else {
            while (frugal_pq_pop(w.q, me->ids, &priority) == 0) explore_wait();
        }
    } else if (number == 1) {
        while (frugal_pq_advance(w.q, 1) == FRUGAL_PQ_LIVE) explore_wait();
        EXPLORE_EXPECT(w.s->note[0] == 1);
    } else {
        while (frugal_pq_base(w.q) == 0) explore_wait();
        EXPLORE_EXPECT(w.s->note[1] == 1);
    }
}

/* >>min: a lower bound of what was committed before the call and is there after it */

static void set_up_bound(uint64_t variant) {
    frugal_pq_desc desc = {.ids = IDS, .pages = 12, .base = 60};
    make_world(variant, &desc);
    frugal_pq_batch batch = {0};
    frugal_pq_push(w.q, &batch, 3, 70);
    frugal_pq_commit(w.q, &batch);
}

static void push_pop_and_bound(int number) {
    own *me = &w.s->of[number];
    if (number < 2) {
        uint32_t id = (uint32_t)number;
        frugal_pq_push(w.q, &me->batch, id, 65 + script(number, 0, 10));
        frugal_pq_adjust(w.q, &me->batch, id, 62 + script(number, 1, 4));
        frugal_pq_commit(w.q, &me->batch);
        frugal_store_release(&w.s->said[number], 1);
    } else {
        for (int round = 0; round < 2; round++) {
            uint64_t lowest = 70;
            for (int t = 0; t < 2; t++)
                if (frugal_load_acquire(&w.s->said[t]) && 62 + script(t, 1, 4) < lowest) lowest = 62 + script(t, 1, 4);
            EXPLORE_EXPECT(frugal_pq_min(w.q) <= lowest);
        }
    }
}

int main(int argc, char **argv) {
    static const explore_scenario scenarios[] = {
        {"tokens", "[PQ1][PQ2]: a page is taken once, and with what was put into it; tags against ABA", THREADS,
         set_up_tokens, pass_tokens_on, all_tokens_are_there},
        {"retire", "[PQ3]: retired pages are walked safely, and used again", THREADS, set_up_retiring,
         put_take_or_retire, nothing_is_lost_but_by_retiring},
        {"queue", "each id is delivered once, whatever is pushed, adjusted and popped at a time", THREADS, set_up_queue,
         push_adjust_and_pop, each_id_is_in_one_place},
        {"adjust", "[PQ4][PQ5]: push and adjust happen before the pop, the pop before the next push", THREADS,
         set_up_adjusting, push_adjust_pop, moved_means_moved},
        {"advance", "[PQ6]-[PQ10]: a slot is used for a later priority only when it is empty", THREADS,
         set_up_advancing, pop_advance_or_push_on, NULL},
        {"leave", "[PQ6]-[PQ10]: what leaves a slot happens before the advance that it allows", THREADS,
         set_up_advancing, take_away_then_advance, NULL},
        {"bound", "min is a lower bound of what was committed before", THREADS, set_up_bound, push_pop_and_bound, NULL},
    };
    return explore_main(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
