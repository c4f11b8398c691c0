/* test_p2f_processes.c - the same trainer as in test_p2f_stress.c, with a process for each device and worker: the state
 * machine works between processes, and at different addresses in each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/stress/p2f_world.h"
#include "tests/stress/stress.h"

#if defined(FRUGAL_ATOMICS_OVERRIDE) /* many short runs */
enum { STEPS = 300 };
#elif defined(FRUGAL_SANITIZED)
enum { STEPS = 2000 };
#else
enum { STEPS = 10000 };
#endif

/* What a child does: its role in the world, mapped anew where there is a file to map it from. Its exit status. */
static int run_child(world *w, int file, uint32_t role) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);                       /* whatever ends the test ends its children */
    stress_delays_begin(test_mix2(w->desc.seed, role + 1)); /* not those that all have inherited */
    if (file >= 0) {
        size_t bytes = w->bytes;
        void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED || mapped == (void *)w) return 2; /* the old mapping is there still: it must differ */
        munmap(w, bytes);
        w = mapped;
    }
    if (role < w->desc.devices)
        world_device(w, role);
    else
        world_worker(w);
    return frugal_load_relaxed(&w->failures) ? 1 : 0;
}

static void train_on_processes(void *memory, const world_desc *desc, int file) {
    world *w = world_make(memory, desc);
    uint32_t n = desc->devices + desc->workers, failed = 0;
    for (uint32_t i = 0; i < n; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(run_child(w, file, i));
    }
    for (uint32_t i = 0; i < n; i++) {
        int status = -1;
        assert_true(wait(&status) > 0);
        if (status != 0 && failed++ == 0) world_fail(w, "a process", 0, 0, 0); /* makes the others stop */
    }
    assert_int_equal(failed, 0);
    assert_true(frugal_load_relaxed(&w->hits) > 0);
    assert_true(world_finish(w));
}

static world_desc settings(uint64_t seed) {
    return (world_desc){.devices = 2,
                        .workers = 1,
                        .rows = 120,
                        .max_rows = 60,
                        .steps = STEPS,
                        .lookahead = 4,
                        .staging = 6,
                        .seed = seed};
}

static void in_anonymous_memory(uint64_t seed) {
    world_desc desc = settings(seed);
    size_t bytes = world_bytes(&desc);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    train_on_processes(memory, &desc, -1);
    munmap(memory, bytes);
}

static void in_a_file(uint64_t seed) {
    world_desc desc = settings(seed);
    size_t bytes = world_bytes(&desc);
    int file = memfd_create("frugal", 0);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)bytes), 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(memory != MAP_FAILED);
    train_on_processes(memory, &desc, file);
    munmap(memory, bytes);
    close(file);
}

static void two_processes_as_devices_and_one_as_worker_equal_sequential_training(void **state) {
    (void)state;
    for (stress s = stress_begin(__func__, 1); stress_next(&s); s.steps += STEPS) in_anonymous_memory(s.seed);
}

static void processes_that_map_the_state_at_different_addresses_equal_sequential_training(void **state) {
    (void)state;
    for (stress s = stress_begin(__func__, 1); stress_next(&s); s.steps += STEPS) in_a_file(s.seed);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_as_devices_and_one_as_worker_equal_sequential_training),
        cmocka_unit_test(processes_that_map_the_state_at_different_addresses_equal_sequential_training),
    };
    return stress_run_group(argc, argv, "test_p2f_processes", tests);
}
