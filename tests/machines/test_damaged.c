/* test_damaged.c - what comes over a wire may be anything that fits where it is received: training ends with a text,
 * and memory is not harmed (`ninja asan` sees that). By the seed, one message of a training is changed: a byte or a
 * word of its head, of its body, or its length.
 *
 *      test_damaged                all cases, as cmocka tests
 *      test_damaged SEED [COUNT]   replays what a failure named, and COUNT - 1 after it
 *
 * And what a wire refuses, or brings too late. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "../../src/device.h"
#include "../seed.h"
#include "pair.h"

enum { AT_A_TIME = 24, SEEDS = 1200, MESSAGES = 72, LARGE = 5000 };

/* >>wire: the machine's own, which changes what it receives */

typedef struct changer {
    wires_machine *inner;
    void (*change)(struct changer *c, const frugal_parcel *p, size_t *bytes);
    test_random random;
    uint64_t received, at; /* the message that is changed, from 1 */
    size_t of_bytes;       /* the next receive of so many bytes is refused; 0: none */
    int changed;
} changer;

static frugal_status changer_begin(void *self, uint32_t requests) {
    return wires_begin(((changer *)self)->inner, requests);
}
static frugal_status changer_send(void *self, uint32_t request, const frugal_parcel *p) {
    return wires_send(((changer *)self)->inner, request, p);
}
static frugal_status changer_receive(void *self, uint32_t request, const frugal_parcel *p) {
    changer *c = self;
    if (c->of_bytes && p->head_bytes + p->body_bytes == c->of_bytes) {
        c->changed = 1;
        return frugal_fail(FRUGAL_ERR_LOST, "the test refuses");
    }
    return wires_receive(c->inner, request, p);
}
static int changer_done(void *self, uint32_t request, size_t *bytes) {
    changer *c = self;
    const wires_request *r = &c->inner->requests[request];
    int receives = r->state == WIRES_RECEIVES || r->state == WIRES_READY;
    if (!wires_done(c->inner, request, bytes)) return 0;
    if (receives && c->change && (++c->received == c->at || !c->at)) c->change(c, &r->parcel, bytes);
    return 1;
}
static uint32_t changer_lost(void *self, char *text, size_t size) {
    return wires_lost(((changer *)self)->inner, text, size);
}
static void changer_end(void *self) {
    wires_end(((changer *)self)->inner);
}
static void put_between(pair *p, uint32_t me, changer *c) {
    c->inner = &p->w.machines[me];
    p->wire[me].self = c, p->wire[me].begin = changer_begin, p->wire[me].send = changer_send;
    p->wire[me].receive = changer_receive, p->wire[me].done = changer_done;
    p->wire[me].lost = changer_lost, p->wire[me].end = changer_end;
}

/* >>changes */

static uint64_t any_number(test_random *r) {
    static const uint64_t some[] = {0, 1, 2, KEYS, KEYS + 1, 63, 64, UINT32_MAX, UINT64_C(1) << 61, UINT64_MAX};
    uint64_t one = some[test_below(r, sizeof some / sizeof *some)];
    return test_chance(r, 30) ? test_next(r) : one;
}
/* Changes a byte, or a number of 4 or 8 bytes. */
static void change_memory(test_random *r, void *memory, size_t bytes) {
    size_t word = test_chance(r, 50) ? 4 : 8;
    uint64_t number = any_number(r);
    if (test_chance(r, 25) || bytes < word)
        ((unsigned char *)memory)[test_below(r, bytes)] ^= (unsigned char)test_between(r, 1, 255);
    else
        memcpy((unsigned char *)memory + test_below(r, bytes / word) * word, &number, word);
}
static void change_any(changer *c, const frugal_parcel *p, size_t *bytes) {
    size_t head = *bytes < p->head_bytes ? *bytes : p->head_bytes, body = *bytes - head;
    c->changed = 1;
    if (*bytes == 0) return;
    if (test_chance(&c->random, 15))
        *bytes = test_below(&c->random, *bytes);
    else if (head && (!body || test_chance(&c->random, 50)))
        change_memory(&c->random, p->head, head);
    else
        change_memory(&c->random, p->body, body);
}

/* >>runs: none waits for the other with closing */

static void train_and_call(side *s, frugal *f) {
    uint64_t keys[ROWS];
    float weights[ROWS * DIM], state[ROWS];
    unsigned char mine[LARGE] = {1}, all[2 * LARGE];
    for (uint64_t i = 0; i < ROWS; i++) keys[i] = i;
    const frugal_keys rows = {.table = 1, .keys = keys, .n = s->me ? ROWS : 1};
    if (train(s, f, 0, STEPS) != FRUGAL_OK || keep(s, frugal_drain(f)) != FRUGAL_OK) return;
    if (keep(s, frugal_read_rows(f, &rows, weights, state)) == FRUGAL_OK)
        keep(s, frugal_exchange(f, mine, sizeof mine, all));
}
static void *closing_main(void *of) {
    side *s = of;
    frugal *f = NULL;
    if (keep(s, frugal_open(&s->pair->desc[s->me], &f)) == FRUGAL_OK &&
        keep(s, frugal_cpu_attach(f, s->me, NULL)) == FRUGAL_OK)
        s->pair->run(s, f);
    frugal_close(f);
    return NULL;
}
static void closing_begin(pair *p, void (*run)(side *s, frugal *f)) {
    p->run = run;
    for (uint32_t i = 0; i < 2; i++)
        if (pthread_create(&p->sides[i].thread, NULL, closing_main, &p->sides[i])) abort();
}
static void closing_end(pair *p) {
    for (uint32_t i = 0; i < 2; i++) pthread_join(p->sides[i].thread, NULL);
    wires_destroy(&p->w);
    pthread_barrier_destroy(&p->barrier);
    for (uint32_t i = 0; i < 2; i++) pthread_mutex_destroy(&p->sides[i].lock);
}

/* >>seeds */

typedef struct trial {
    uint64_t seed;
    pair p;
    changer c;
} trial;
static trial trials[AT_A_TIME];

static void trial_begin(trial *t, uint64_t seed) {
    test_random r = {.seed = seed};
    wires_options options = {.seed = seed, .delay = 3, .buffered = 50, .late = 30};
    pair_make(&t->p, options, 1);
    t->seed = seed;
    t->c = (changer){.change = change_any, .at = test_between(&r, 1, MESSAGES), .random = {.seed = test_next(&r)}};
    for (uint32_t i = 0; i < 2; i++) t->p.desc[i].optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
    put_between(&t->p, (uint32_t)test_below(&r, 2), &t->c);
    closing_begin(&t->p, train_and_call);
}
/* Returns how many sides name the other as lost. */
static int trial_end(trial *t) {
    int lost = 0;
    closing_end(&t->p);
    for (uint32_t me = 0; me < 2; me++) {
        const side *s = &t->p.sides[me];
        char name[20], machine[20];
        snprintf(name, sizeof name, "seed %llu", (unsigned long long)t->seed);
        snprintf(machine, sizeof machine, "machine %u", !me);
        if (s->status == FRUGAL_OK) continue;
        if (s->status != FRUGAL_ERR_LOST && s->status != FRUGAL_ERR_STUCK && s->status != FRUGAL_ERR_ARGUMENT &&
            s->status != FRUGAL_ERR_SETTINGS && s->status != FRUGAL_ERR_PROCESS)
            fail_msg("%s: machine %u: status %d: %s", name, me, (int)s->status, s->message);
        if (!s->message[0]) fail_msg("%s: machine %u: status %d without a text", name, me, (int)s->status);
        if (s->status == FRUGAL_ERR_LOST) said(s->message, machine, name, me);
        lost += s->status == FRUGAL_ERR_LOST;
    }
    return lost;
}
static int run_seeds(uint64_t first, uint64_t n, int *changed) {
    int lost = 0;
    for (uint64_t from = 0; from < n; from += AT_A_TIME) {
        uint64_t some = n - from < AT_A_TIME ? n - from : AT_A_TIME;
        for (uint64_t i = 0; i < some; i++) trial_begin(&trials[i], first + from + i);
        for (uint64_t i = 0; i < some; i++) lost += trial_end(&trials[i]), *changed += trials[i].c.changed;
    }
    return lost;
}
static void test_damaged(void **state) {
    (void)state;
    uint64_t n = test_is_short() ? AT_A_TIME : SEEDS;
    int changed = 0, lost = run_seeds(1, n, &changed);
    fprintf(stderr, "# %d of %d trainings had a message changed, %d machines lost the other\n", changed, (int)n, lost);
    assert_true(changed > (int)n / 2);
    assert_true(lost > (int)n / 4);
}

/* >>alone: what was found by thinking */

/* The rows of a home are fewer than were asked for, and it says that more of them came early. */
typedef struct head { /* of a message, as src/machines/machines.h has it */
    uint64_t step;
    uint32_t n, early;
} head;
static void claim_early(changer *c, const frugal_parcel *p, size_t *bytes) {
    head h;
    if (c->changed || p->tag % 4 != 2 || p->tag >= 8 || *bytes != p->head_bytes + p->body_bytes || !p->body_bytes)
        return;
    memcpy(&h, p->head, sizeof h);
    if (h.early == h.n) return;
    h.early++, c->changed = 1, *bytes -= DIM * sizeof(float);
    memcpy(p->head, &h, sizeof h);
}
static void test_fewer_rows(void **state) {
    (void)state;
    static pair p;
    changer c = {.change = claim_early};
    pair_make(&p, (wires_options){.seed = 5}, 2);
    put_between(&p, 0, &c);
    closing_begin(&p, train_and_call);
    closing_end(&p);
    assert_int_equal(c.changed, 1);
    assert_int_equal(p.sides[0].status, FRUGAL_ERR_LOST);
    said(p.sides[0].message, "machine 1", "fewer rows", 0), said(p.sides[0].message, "sent rows", "fewer rows", 0);
}

/* A machine that has been sent what cannot be, and closes, tells the other, which would wait. */
static void take_another_step(changer *c, const frugal_parcel *p, size_t *bytes) {
    uint64_t step = 77;
    if (c->changed || p->tag != 4 || *bytes < sizeof step) return; /* keys of device 1 */
    memcpy(p->head, &step, sizeof step);
    c->changed = 1;
}
static void test_told(void **state) {
    (void)state;
    static pair p;
    changer c = {.change = take_another_step};
    pair_make(&p, (wires_options){.seed = 4}, 60);
    put_between(&p, 0, &c);
    closing_begin(&p, train_and_call);
    closing_end(&p);
    assert_int_equal(p.sides[0].status, FRUGAL_ERR_LOST);
    said(p.sides[0].message, "sent keys of step 77", "told", 0);
    assert_int_equal(p.sides[1].status, FRUGAL_ERR_LOST);
    said(p.sides[1].message, "machine 0", "told", 1), said(p.sides[1].message, "has closed", "told", 1);
}

/* A wire that refuses the second part of an exchange. */
static void exchange_large(side *s, frugal *f) {
    unsigned char mine[LARGE] = {1}, all[2 * LARGE];
    keep(s, frugal_exchange(f, mine, sizeof mine, all));
}
static void test_refused(void **state) {
    (void)state;
    static pair p;
    changer c = {.of_bytes = LARGE};
    pair_make(&p, (wires_options){.seed = 6}, 2);
    put_between(&p, 0, &c);
    closing_begin(&p, exchange_large);
    closing_end(&p);
    assert_int_equal(c.changed, 1);
    assert_int_equal(p.sides[0].status, FRUGAL_ERR_LOST);
    said(p.sides[0].message, "the test refuses", "refused", 0), said(p.sides[0].message, "machine 1", "refused", 0);
}

/* A machine asks for more rows than it may in a round: the numbers are in the body of its message. */
static void ask_too_many(changer *c, const frugal_parcel *p, size_t *bytes) {
    uint64_t many = UINT64_C(1) << 61;
    if (p->tag < 254 * 4 || *bytes != 64 + 254 * sizeof many) return;
    memcpy(p->body, &many, sizeof many); /* of machine 0 */
    c->changed = 1;
}
static void test_too_many(void **state) {
    (void)state;
    static pair p;
    changer c = {.change = ask_too_many};
    pair_make(&p, (wires_options){.seed = 7}, 2);
    put_between(&p, 0, &c);
    closing_begin(&p, train_and_call);
    closing_end(&p);
    assert_int_equal(c.changed, 1);
    assert_int_equal(p.sides[0].status, FRUGAL_ERR_PROCESS);
    said(p.sides[0].message, "machine 1 asks for 2305843009213693952 rows", "too many", 0);
}

/* A call is given up, and another one is made: what then comes for the first has the place of the first. Memory is
 * followed by bytes that nobody may change. */
enum { GUARD = 3 * LARGE };
static void *guarded_allocate(size_t bytes, size_t alignment, void *user) {
    void *memory = NULL;
    (void)user;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes + GUARD)) return NULL;
    memset(memory, 0x5a, bytes + GUARD);
    return memory;
}
static void guarded_release(void *memory, size_t bytes, void *user) {
    atomic_int *harmed = user;
    for (size_t i = 0; memory && i < GUARD; i++)
        if (((unsigned char *)memory)[bytes + i] != 0x5a) atomic_store(harmed, 1);
    free(memory);
}
static void give_up(side *s, frugal *f) {
    enum { MORE = 4000 };
    unsigned char mine[MORE] = {1}, all[2 * MORE];
    frugal_wire_counts counts;
    uint64_t before;
    frugal_get_wire_counts(f, &counts);
    before = counts.received[FRUGAL_WIRE_CALLS];
    if (s->me == 0) {
        s->status = frugal_exchange(f, mine, 8, all);
        if (s->status == FRUGAL_ERR_STUCK) keep(s, frugal_exchange(f, mine, MORE, all));
    }
    pthread_barrier_wait(&s->pair->barrier);
    if (s->me == 1) keep(s, frugal_exchange(f, mine, MORE, all));
    while (counts.received[FRUGAL_WIRE_CALLS] == before) frugal_get_wire_counts(f, &counts); /* what the other gave */
    pthread_barrier_wait(&s->pair->barrier);
}
static void quiet(const char *text, void *user) {
    (void)text, (void)user;
}
static void test_given_up(void **state) {
    (void)state;
    static pair p;
    atomic_int harmed = 0;
    pair_make(&p, (wires_options){.seed = 8}, .3);
    for (uint32_t i = 0; i < 2; i++) {
        p.desc[i].allocate = guarded_allocate, p.desc[i].release = guarded_release;
        p.desc[i].notice = quiet, p.desc[i].user = &harmed;
    }
    closing_begin(&p, give_up);
    closing_end(&p);
    assert_int_equal(p.sides[0].status, FRUGAL_ERR_ARGUMENT);
    said(p.sides[0].message, "was given up", "given up", 0);
    assert_int_equal(p.sides[1].status, FRUGAL_ERR_ARGUMENT);
    said(p.sides[1].message, "with 8 bytes", "given up", 1);
    assert_int_equal(atomic_load(&harmed), 0);
}

int main(int n, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fewer_rows), cmocka_unit_test(test_told),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many),   cmocka_unit_test(test_given_up), cmocka_unit_test(test_damaged),
    };
    if (n > 1) {
        int changed = 0,
            lost = run_seeds(strtoull(arguments[1], NULL, 0), n > 2 ? strtoull(arguments[2], NULL, 0) : 1, &changed);
        for (uint32_t me = 0; me < 2; me++)
            printf("machine %u: %d: %s\n", me, (int)trials[0].p.sides[me].status, trials[0].p.sides[me].message);
        printf("%d changed, %d lost\n", changed, lost);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
