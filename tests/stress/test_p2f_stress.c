/* test_p2f_stress.c - devices, loaders and workers as threads on the state machine of frugal_p2f.h; every read is
 * compared with sequential training, and so is the table at the end. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/stress/p2f_world.h"
#include "tests/stress/stress.h"

#if defined(FRUGAL_SANITIZED) || defined(FRUGAL_ATOMICS_OVERRIDE)
enum { STEPS = 300 };
#else
enum { STEPS = 2000 };
#endif

enum { COMES_AND_GOES = 1 }; /* of workers: threads that end and are followed by others */

typedef struct job {
    world *w;
    uint32_t index;
    enum { DEVICE, LOADER, WORKER, VISITORS } kind;
    uint64_t visit;
} job;

/* A worker that leaves after some pieces of work: between two of them, as a worker has to. */
static void *run_visit(void *argument) {
    const job *j = argument;
    test_random random = {.seed = test_mix3(j->w->desc.seed, j->index, j->visit)};
    for (uint64_t n = test_below(&random, test_chance(&random, 50) ? 4 : 200); n > 0; n--)
        world_help_or_yield(j->w, UINT64_MAX);
    return NULL;
}

/* One worker after the other, each a thread of its own, with nobody there in between. */
static void run_visitors(job *j) {
    test_random random = {.seed = test_mix3(~j->w->desc.seed, j->index, 0)};
    while (atomic_load(&j->w->running) && !atomic_load(&j->w->failures)) {
        pthread_t visitor;
        j->visit++;
        if (pthread_create(&visitor, NULL, run_visit, j))
            world_fail(j->w, "a thread cannot be started", 0, j->index, 0);
        else
            pthread_join(visitor, NULL);
        for (uint64_t n = test_below(&random, 20); n > 0; n--) sched_yield();
    }
}

static void *run_job(void *argument) {
    job *j = argument;
    if (j->kind == DEVICE)
        world_device(j->w, j->index);
    else if (j->kind == LOADER)
        world_loader(j->w, j->index);
    else if (j->kind == WORKER)
        world_worker(j->w);
    else
        run_visitors(j);
    return NULL;
}

static void train_on_threads(world_desc desc, int come_and_go) {
    void *memory = aligned_alloc(FRUGAL_P2F_ALIGN, world_bytes(&desc));
    assert_non_null(memory);
    memset(memory, 0, world_bytes(&desc));
    world *w = world_make(memory, &desc);
    pthread_t threads[64];
    job jobs[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < desc.devices; i++) jobs[n++] = (job){w, i, DEVICE, 0};
    for (uint32_t i = 0; desc.loaders && i < desc.devices; i++) jobs[n++] = (job){w, i, LOADER, 0};
    for (uint32_t i = 0; i < desc.workers; i++)
        jobs[n++] = (job){w, i, come_and_go == COMES_AND_GOES ? VISITORS : WORKER, 0};
    for (uint32_t i = 0; i < n; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    assert_true(world_finish(w));
    free(memory);
}

/* What is not given is drawn. */
static world_desc random_world(world_desc desc, uint64_t seed) {
    test_random random = {.seed = seed};
    desc.seed = seed;
    desc.rows = (uint32_t)test_between(&random, 1, 150);
    desc.max_rows = (uint32_t)test_between(&random, 1, desc.rows);
    desc.lookahead = (uint32_t)test_between(&random, 0, 15);
    desc.staging =
        (uint32_t)test_between(&random, 1, test_chance(&random, 50) ? desc.lookahead + 2 : 63 - desc.lookahead);
    desc.first_step = test_next(&random) >> 24;
    desc.steps = STEPS;
    desc.taken = test_chance(&random, 50);
    if (desc.devices) return desc;
    desc.in_place = test_chance(&random, 50) ? (unsigned)test_below(&random, 101) : 0;
    desc.keeps = test_chance(&random, 30);
    desc.devices = (uint32_t)test_between(&random, 1, 4), desc.workers = (uint32_t)test_between(&random, 1, 8);
    desc.wordless = desc.devices == 1 && test_chance(&random, 70);
    desc.loaders = test_chance(&random, 50), desc.mode = test_chance(&random, 30) ? FRUGAL_SYNC : FRUGAL_P2F;
    return desc;
}

static void train_on_random_worlds(const char *name, world_desc desc, int come_and_go) {
    for (stress s = stress_begin(name, 4); stress_next(&s); s.steps += STEPS)
        train_on_threads(random_world(desc, s.seed), come_and_go);
}

static void one_device_without_workers_equals_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 1}, 0);
}
static void one_device_with_workers_equals_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 1, .workers = 2}, 0);
}
static void one_device_without_words_equals_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 1, .workers = 2, .loaders = 1, .wordless = 1}, 0);
}
static void two_devices_without_workers_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 2}, 0);
}
static void two_devices_with_a_worker_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 2, .workers = 1}, 0);
}
static void three_devices_with_loaders_and_workers_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 3, .workers = 2, .loaders = 1}, 0);
}
static void write_through_equals_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 2, .workers = 2, .mode = FRUGAL_SYNC}, 0);
}
static void devices_in_place_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 3, .workers = 2, .loaders = 1, .in_place = 80}, 0);
}
static void devices_that_keep_updates_equal_sequential_training(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){.devices = 3, .workers = 2, .loaders = 1, .keeps = 1}, 0);
}
static void large_batches_in_several_pieces_equal_sequential_training(void **state) {
    (void)state; /* pieces of plans and of closing are claimed by several threads at a time */
    world_desc desc = {.devices = 2,
                       .workers = 2,
                       .rows = 20000,
                       .max_rows = 12000,
                       .steps = STEPS / 100 + 10,
                       .lookahead = 3,
                       .staging = 5,
                       .taken = 1};
    for (stress s = stress_begin(__func__, 2); stress_next(&s); s.steps += desc.steps) {
        desc.seed = s.seed;
        desc.in_place = s.seed % 2 ? 100 : 0; /* neighbouring pieces set bits in one word */
        train_on_threads(desc, 0);
    }
}
static void workers_that_come_and_go_change_nothing(void **state) {
    (void)state;
    train_on_random_worlds(__func__, (world_desc){0}, COMES_AND_GOES);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_without_workers_equals_sequential_training),
        cmocka_unit_test(one_device_with_workers_equals_sequential_training),
        cmocka_unit_test(one_device_without_words_equals_sequential_training),
        cmocka_unit_test(two_devices_without_workers_equal_sequential_training),
        cmocka_unit_test(two_devices_with_a_worker_equal_sequential_training),
        cmocka_unit_test(three_devices_with_loaders_and_workers_equal_sequential_training),
        cmocka_unit_test(devices_in_place_equal_sequential_training),
        cmocka_unit_test(devices_that_keep_updates_equal_sequential_training),
        cmocka_unit_test(write_through_equals_sequential_training),
        cmocka_unit_test(large_batches_in_several_pieces_equal_sequential_training),
        cmocka_unit_test(workers_that_come_and_go_change_nothing),
    };
    return stress_run_group(argc, argv, "test_p2f_stress", tests);
}
