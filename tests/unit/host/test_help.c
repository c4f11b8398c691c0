/* test_help.c - the caller's threads do the work of workers, and one thread does it for several instances. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/case.h"
#include "tests/rig.h"

typedef struct helper {
    pthread_t thread;
    frugal *f;
    atomic_int *over;
    uint64_t pieces;
} helper;

static void *help_until_over(void *argument) {
    helper *h = argument;
    while (!atomic_load(h->over))
        if (frugal_help(h->f))
            h->pieces++;
        else
            sched_yield();
    return NULL;
}

/* No workers, and a trainer that never waits: all the work is done by two threads that call frugal_help. */
static void test_help_on_users_threads(void **state) {
    rig r = {0};
    frugal_desc d = rig_desc();
    atomic_int over = 0;
    d.defer = (int)(intptr_t)*state; /* the helpers flush what the closers queue; or closers flush */
    rig_open(&r, &d);
    helper helpers[2] = {{.f = r.f, .over = &over}, {.f = r.f, .over = &over}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, pthread_create(&helpers[i].thread, NULL, help_until_over, &helpers[i]));
    for (int s = 0; s < 50; s++) {
        for (uint32_t i = 0; i < 2; i++) rig_announce(&r, i); /* legal at once: its step is the next */
        for (uint32_t i = 0; i < 2; i++) {
            while (frugal_try_lookup(r.f, i, r.step, r.looked_up[i]) == FRUGAL_AGAIN) sched_yield();
            rig_lookup(&r, i); /* again, now that the gate is open */
        }
        rig_update(&r, 0), rig_update(&r, 1);
        rig_judge(&r, 0);
    }
    frugal_stats s;
    do frugal_get_stats(r.f, &s);
    while (s.steps < 50);
    atomic_store(&over, 1);
    for (int i = 0; i < 2; i++) assert_int_equal(0, pthread_join(helpers[i].thread, NULL));
    assert_true(helpers[0].pieces + helpers[1].pieces >= 50); /* 50 closings; loaders may do all the rest */
    rig_finish(&r, 1);
}

static void test_several_instances(void **state) {
    (void)state;
    enum { N = 5 };
    rig rigs[N] = {{0}};
    for (int i = 0; i < N; i++) {
        frugal_desc d = rig_desc();
        d.optimizer.kind = rig_optimizers[i % FRUGAL_OPTIMIZER_KINDS];
        d.workers = (uint32_t)i % 3, d.seed = (uint64_t)i, d.devices = 1 + (uint32_t)i % 3, d.lookahead = (uint32_t)i;
        d.mode = i == 4 ? FRUGAL_SYNC : FRUGAL_P2F;
        rigs[i].cache.cache_rows = 20 * (uint64_t)i;
        rig_open(&rigs[i], &d);
    }
    for (int s = 0; s < 20; s++)
        for (int i = 0; i < N; i++) rig_train(&rigs[i], 1 + (s + i) % 3);
    for (int i = N; i-- > 0;) rig_finish(&rigs[i], 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("test_help_on_users_threads, flushing as steps are closed", test_help_on_users_threads, 0),
        CASE("test_help_on_users_threads, queued", test_help_on_users_threads, 1),
        cmocka_unit_test(test_several_instances),
    };
    alarm(300);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
