/* test_p2f_stress.c - devices, loaders and workers as threads on the state machine of frugal.h; every read is compared
 * with sequential training, and so is the table at the end. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/seed.h"
#include "tests/stress/p2f_world.h"

#ifdef FRUGAL_SANITIZED
enum { STEPS = 300 };
#else
enum { STEPS = 2000 };
#endif

typedef struct job {
    world *w;
    uint32_t index;
    enum { DEVICE, LOADER, WORKER } kind;
} job;

static void *run_job(void *argument) {
    const job *j = argument;
    if (j->kind == DEVICE)
        world_device(j->w, j->index);
    else if (j->kind == LOADER)
        world_loader(j->w, j->index);
    else
        world_worker(j->w);
    return NULL;
}

static void train_on_threads(world_desc desc) {
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, world_bytes(&desc));
    assert_non_null(memory);
    memset(memory, 0, world_bytes(&desc));
    world *w = world_make(memory, &desc);
    pthread_t threads[64];
    job jobs[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < desc.devices; i++) jobs[n++] = (job){w, i, DEVICE};
    for (uint32_t i = 0; desc.loaders && i < desc.devices; i++) jobs[n++] = (job){w, i, LOADER};
    for (uint32_t i = 0; i < desc.workers; i++) jobs[n++] = (job){w, i, WORKER};
    for (uint32_t i = 0; i < n; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    assert_true(world_finish(w));
    free(memory);
}

static void train_on_random_worlds(const char *name, world_desc desc, int rounds) {
    uint64_t seed = test_seed_from_clock(name);
    for (int i = 0; i < rounds; i++) {
        test_random random = {.seed = seed + (uint64_t)i};
        desc.seed = seed + (uint64_t)i;
        desc.rows = (uint32_t)test_between(&random, 1, 150);
        desc.max_rows = (uint32_t)test_between(&random, 1, desc.rows);
        desc.lookahead = (uint32_t)test_between(&random, 0, 15);
        desc.staging =
            (uint32_t)test_between(&random, 1, test_chance(&random, 50) ? desc.lookahead + 2 : 63 - desc.lookahead);
        desc.first_step = test_next(&random) >> 24;
        desc.steps = STEPS;
        train_on_threads(desc);
    }
}

static void one_device_without_workers_equals_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds("test_p2f_stress 1 + 0", (world_desc){.devices = 1}, 4);
}
static void one_device_with_workers_equals_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds("test_p2f_stress 1 + 2", (world_desc){.devices = 1, .workers = 2}, 4);
}
static void two_devices_without_workers_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds("test_p2f_stress 2 + 0", (world_desc){.devices = 2}, 4);
}
static void two_devices_with_a_worker_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds("test_p2f_stress 2 + 1", (world_desc){.devices = 2, .workers = 1}, 4);
}
static void three_devices_with_loaders_and_workers_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds("test_p2f_stress 3 + 3 + 2", (world_desc){.devices = 3, .workers = 2, .loaders = 1}, 4);
}
static void write_through_equals_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds("test_p2f_stress sync", (world_desc){.devices = 2, .workers = 2, .mode = FRUGAL_SYNC}, 4);
}
static void large_batches_in_several_pieces_equal_sequential_training(void **state) {
    (void)state; /* pieces of plans and of closing are claimed by several threads at a time */
    world_desc desc = {.devices = 2,
                       .workers = 2,
                       .rows = 20000,
                       .max_rows = 12000,
                       .steps = STEPS / 100 + 10,
                       .lookahead = 3,
                       .staging = 5};
    desc.seed = test_seed_from_clock("test_p2f_stress pieces");
    train_on_threads(desc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_without_workers_equals_sequential_training),
        cmocka_unit_test(one_device_with_workers_equals_sequential_training),
        cmocka_unit_test(two_devices_without_workers_equal_sequential_training),
        cmocka_unit_test(two_devices_with_a_worker_equal_sequential_training),
        cmocka_unit_test(three_devices_with_loaders_and_workers_equal_sequential_training),
        cmocka_unit_test(write_through_equals_sequential_training),
        cmocka_unit_test(large_batches_in_several_pieces_equal_sequential_training),
    };
    return cmocka_run_group_tests_name("test_p2f_stress", tests, NULL, NULL);
}
