/* test_processes.c - an instance that several processes train. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/crew.h"

static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};
static const frugal_optimizer_kind kinds[] = {FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ROWWISE_ADAGRAD, FRUGAL_ADAM};

static void assert_table(frugal *f, const reference *ref) {
    float weights[CREW_ROWS * CREW_DIM], state[CREW_ROWS * CREW_DIM * 2];
    if (!crew_equals(f, ref, weights, state)) fail_msg("the table differs from the reference");
}

/* Trains device 0 here and the others each in a process of its own. */
static void train_world(crew *c) {
    pid_t children[CREW_DEVICES];
    frugal *f;
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    for (uint32_t d = 1; d < c->desc.devices; d++) children[d] = crew_fork(c, d);
    if (frugal_open(&c->desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    crew_reference(c, f, &ref);
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &c->cache));
    if (crew_train(c, f, 0, &ref, &step, &announced, c->steps, &wrong) != FRUGAL_OK || wrong)
        fail_msg("step %u: %s", (unsigned)step, wrong ? "a row differs" : frugal_message());
    for (uint32_t d = 1; d < c->desc.devices; d++) assert_int_equal(CREW_FINE, crew_wait(children[d]));
    if (frugal_drain(f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
    for (; step < c->steps; step++) crew_judge(c, &ref, step);
    assert_table(f, &ref);
    if (frugal_verify(f) != FRUGAL_OK) fail_msg("verify: %s", frugal_message());
    frugal_stats s;
    frugal_get_stats(f, &s);
    assert_int_equal(c->steps, s.steps);
    assert_int_equal(s.unique_rows, s.hits + s.misses);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    reference_close(&ref);
}

static void test_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 36; i++) {
        crew c;
        crew_init(&c, i);
        c.desc.devices = 2 + i % 3, c.desc.alone = ways[i % 3], c.desc.optimizer.kind = kinds[i % 4];
        c.desc.lookahead = i % 5, c.desc.workers = 1 + i % 2;
        c.cache =
            (frugal_cpu_desc){.cache_rows = i % 4 ? 24 : 0, .policy = i % 2 ? FRUGAL_CACHE_LRU : FRUGAL_CACHE_COUNTED};
        train_world(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
