/* The wires of one process (wires.h), which stand for real ones in the tests of machines: they do what any wire must
 * (exchange.h); and they delay, reorder, drop and lose, because a test of nothing would pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../seed.h"
#include "exchange.h"
#include "wires.h"

typedef struct part {
    pthread_t thread;
    exchange e;
    int ok;
} part;
static void *part_main(void *of) {
    part *p = of;
    p->ok = exchange_run(&p->e);
    return NULL;
}
static void exchange_all(wires_options options, uint32_t messages) {
    static part parts[WIRES_MOST];
    wires w;
    wires_init(&w, &options);
    for (uint32_t i = 0; i < options.machines; i++) {
        parts[i] = (part){.e = {.wire = wires_of(&w, i), .seed = options.seed, .messages = messages}};
        if (pthread_create(&parts[i].thread, NULL, part_main, &parts[i])) abort();
    }
    for (uint32_t i = 0; i < options.machines; i++) pthread_join(parts[i].thread, NULL);
    for (uint32_t i = 0; i < options.machines; i++)
        if (!parts[i].ok) fail_msg("seed %llu: %s", (unsigned long long)options.seed, parts[i].e.said);
    assert_int_equal(wires_destroy(&w), 0);
}
static void test_exchange(void **state) {
    (void)state;
    uint64_t seed = test_seed("wires", 1);
    for (uint64_t i = 0; i < test_rounds(40); i++) {
        test_random r = {.seed = test_mix2(seed, i)};
        wires_options options = {.seed = test_next(&r), .machines = (uint32_t)test_between(&r, 2, 4)};
        options.delay = test_chance(&r, 30) ? 0 : (uint32_t)test_below(&r, 200);
        options.buffered = (unsigned)test_below(&r, 101), options.late = (unsigned)test_below(&r, 101);
        exchange_all(options, 8);
    }
}

/* >>alone: two machines, and both ends are this thread's */

typedef struct pair {
    wires w;
    frugal_wire a, b;
    unsigned char out[64], in[64];
} pair;
static void pair_open(pair *p, wires_options options) {
    memset(p, 0, sizeof *p);
    options.machines = 2;
    wires_init(&p->w, &options);
    p->a = wires_of(&p->w, 0), p->b = wires_of(&p->w, 1);
    assert_int_equal(p->a.begin(p->a.self, 8), FRUGAL_OK);
    assert_int_equal(p->b.begin(p->b.self, 8), FRUGAL_OK);
    for (int i = 0; i < 64; i++) p->out[i] = (unsigned char)i;
}
static uint64_t pair_close(pair *p) {
    p->a.end(p->a.self), p->b.end(p->b.self);
    return wires_destroy(&p->w);
}
static void send_a(pair *p, uint32_t request, uint32_t tag, int at, size_t head, size_t body) {
    frugal_parcel parcel = {1, tag, p->out + at, p->out + at + head, head, body};
    assert_int_equal(p->a.send(p->a.self, request, &parcel), FRUGAL_OK);
}
static void receive_b(pair *p, uint32_t request, uint32_t tag, int at, size_t head, size_t body) {
    frugal_parcel parcel = {0, tag, p->in + at, p->in + at + head, head, body};
    assert_int_equal(p->b.receive(p->b.self, request, &parcel), FRUGAL_OK);
}
static int soon(const frugal_wire *wire, uint32_t request, size_t *bytes) { /* within a thousand calls */
    for (int i = 0; i < 1000; i++)
        if (wire->done(wire->self, request, bytes)) return 1;
    return 0;
}

static void test_order(void **state) { /* within a tag; tags overtake each other with some seed */
    (void)state;
    int overtook = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        pair p;
        size_t bytes = 0;
        pair_open(&p, (wires_options){.seed = seed, .delay = 30, .buffered = 50, .late = 50});
        receive_b(&p, 3, 1, 32, 0, 4);
        for (uint32_t i = 0; i < 3; i++) send_a(&p, i, 1, (int)(4 * i), 2, 2);
        send_a(&p, 3, 2, 12, 4, 0);
        for (uint32_t i = 0; i < 2; i++) receive_b(&p, 1 - i, 1, (int)(4 * i), 2, 2);
        receive_b(&p, 2, 2, 8, 3, 9);
        for (int left = 7; left;) { /* the bits of requests 0 to 2 of b */
            for (uint32_t i = 0; i < 3; i++)
                if (left >> i & 1 && p.b.done(p.b.self, i, &bytes)) {
                    assert_int_equal(bytes, 4);
                    overtook |= i == 2 && left == 7;
                    left &= ~(1 << i);
                }
        }
        assert_true(soon(&p.b, 3, &bytes));
        assert_memory_equal(p.in + 32, p.out, 4); /* the first one that was begun has the first message */
        assert_memory_equal(p.in, p.out + 4, 12);
        for (uint32_t i = 0; i < 4; i++) assert_true(soon(&p.a, i, &bytes));
        assert_int_equal(pair_close(&p), 0);
    }
    assert_true(overtook);
}

static void test_delay(void **state) { /* memory is all ones before, whatever `late` is */
    (void)state;
    unsigned delays = 0;
    for (unsigned late = 0; late <= 100; late += 100)
        for (uint64_t seed = 0; seed < 20; seed++) {
            pair p;
            size_t bytes = 0;
            unsigned calls = 0;
            pair_open(&p, (wires_options){.seed = seed, .delay = 9, .late = late});
            receive_b(&p, 0, 0, 8, 8, 8);
            send_a(&p, 0, 0, 0, 8, 8);
            for (; !p.b.done(p.b.self, 0, &bytes); calls++)
                assert_int_equal(p.a.done(p.a.self, 0, &bytes), 0); /* not buffered, so it waits for the receiver */
            assert_int_equal(bytes, 16);
            assert_memory_equal(p.in + 8, p.out, 16);
            assert_true(calls <= 9);
            delays |= 1u << calls;
            assert_true(soon(&p.a, 0, &bytes));
            assert_int_equal(pair_close(&p), 0);
        }
    assert_true(delays & (delays - 1)); /* several */
}

#ifndef UNDER_ASAN /* which would end the program */
static void test_poison(void **state) {
    (void)state;
    pair p;
    pair_open(&p, (wires_options){.seed = 1});
    receive_b(&p, 0, 0, 0, 8, 8);
    for (int i = 0; i < 16; i++) assert_int_equal(p.in[i], 0xff);
    assert_int_equal(p.in[16], 0);
    assert_int_equal(pair_close(&p), 0);
}
#endif

static void test_drop(void **state) { /* the message, and what follows it with its tag; others arrive */
    (void)state;
    pair p;
    size_t bytes;
    pair_open(&p, (wires_options){.seed = 2, .delay = 3, .buffered = 100, .drop_tag = 5, .drop_at = 2});
    for (uint32_t i = 0; i < 3; i++) send_a(&p, i, 5, (int)(8 * i), 4, 4), receive_b(&p, i, 5, (int)(8 * i), 4, 4);
    send_a(&p, 3, 6, 24, 4, 4), receive_b(&p, 3, 6, 24, 4, 4);
    assert_true(soon(&p.b, 0, &bytes));
    assert_false(soon(&p.b, 1, &bytes));
    assert_false(soon(&p.b, 2, &bytes));
    assert_true(soon(&p.b, 3, &bytes));
    assert_int_equal(p.w.dropped, 1);
    assert_int_equal(p.a.lost(p.a.self, NULL, 0), 0);
    assert_int_equal(pair_close(&p), 2);
}

static void test_lose(void **state) { /* nothing arrives from then on, and both sides are told */
    (void)state;
    for (uint32_t lose = 0; lose < 2; lose++) {
        pair p;
        size_t bytes;
        char text[64] = "";
        pair_open(&p, (wires_options){.seed = 3, .buffered = 100, .lose = lose, .lose_at = lose ? 1 : 2});
        send_a(&p, 0, 0, 0, 4, 4), receive_b(&p, 0, 0, 0, 4, 4);
        assert_true(soon(&p.b, 0, &bytes));
        assert_int_equal(p.b.lost(p.b.self, text, sizeof text), 0);
        frugal_parcel back = {0, 0, p.out, NULL, 4, 0};
        if (lose) assert_int_equal(p.b.send(p.b.self, 1, &back), FRUGAL_OK);
        send_a(&p, 1, 0, 8, 4, 4), receive_b(&p, 2, 0, 8, 4, 4);
        assert_false(soon(&p.b, 2, &bytes));
        assert_int_equal(p.a.lost(p.a.self, text, sizeof text), 2);
        assert_int_equal(p.b.lost(p.b.self, text, sizeof text), 1);
        assert_non_null(strstr(text, "cut"));
        pair_close(&p);
    }
}

static void test_end(void **state) { /* what was sent, and was done, still arrives; what was not done is gone */
    (void)state;
    pair p;
    size_t bytes;
    pair_open(&p, (wires_options){.seed = 4, .buffered = 100});
    send_a(&p, 0, 0, 0, 4, 4);
    assert_true(soon(&p.a, 0, &bytes));
    p.w.options.buffered = 0;
    send_a(&p, 1, 1, 8, 4, 4);
    p.a.end(p.a.self);
    receive_b(&p, 0, 0, 0, 4, 4), receive_b(&p, 1, 1, 8, 4, 4);
    assert_true(soon(&p.b, 0, &bytes));
    assert_memory_equal(p.in, p.out, 8);
    assert_false(soon(&p.b, 1, &bytes));
    p.b.end(p.b.self);
    assert_int_equal(wires_destroy(&p.w), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange), cmocka_unit_test(test_order), cmocka_unit_test(test_delay),
#ifndef UNDER_ASAN
        cmocka_unit_test(test_poison),
#endif
        cmocka_unit_test(test_drop),     cmocka_unit_test(test_lose),  cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
