/* explore_p2f.c - small worlds of the state machine of frugal.h, in every order that a scheduler can think of. See
 * explore.h. Pieces of plans are of two entries, so that several threads plan and close one step. */
#include "tests/explore/explore.h"

#define FRUGAL_STATIC
#define FRUGAL_ATOMICS_OVERRIDE "tests/explore/explore.h"
#define FRUGAL_PRIV_PLAN_RANGE  2u
#define FRUGAL_PRIV_CLOSE_RANGE 2u
#define WORLD_WAIT()            explore_wait()
#define WORLD_FAIL(...)         explore_fail(__VA_ARGS__)
#include "tests/stress/p2f_world.h"

/* >>training: whole worlds. Threads 0 .. devices - 1 are trainers, then loaders, then workers */

static world *w;

static void set_up_world(uint64_t variant, world_desc desc) {
    test_random random = {.seed = test_mix3(variant, desc.devices, desc.workers)};
    desc.seed = variant + 1;
    desc.rows = (uint32_t)test_between(&random, 1, 4);
    desc.max_rows = (uint32_t)test_between(&random, 1, desc.rows);
    desc.lookahead = (uint32_t)test_between(&random, 0, 2);
    desc.staging = (uint32_t)test_between(&random, 1, desc.lookahead + 2);
    desc.first_step = test_below(&random, 200);
    w = world_make(explore_alloc(world_bytes(&desc), FRUGAL_P2F_ALIGN), &desc);
}

static void play(int number) {
    uint32_t index = (uint32_t)number, trainers = w->desc.devices, loaders = w->desc.loaders ? trainers : 0;
    if (index < trainers)
        world_device(w, index);
    else if (index < trainers + loaders)
        world_loader(w, index - trainers);
    else
        world_worker(w);
}

static void compare(void) {
    EXPLORE_EXPECT(world_finish(w));
}

static void set_up_one_device(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 1, .workers = 1, .steps = 4});
}
static void set_up_two_devices(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .steps = 3});
}
static void set_up_worker(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 1, .steps = 3});
}
static void set_up_loaders(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .loaders = 1, .workers = 2, .steps = 3});
}
static void set_up_write_through(uint64_t variant) {
    set_up_world(variant, (world_desc){.devices = 2, .workers = 1, .steps = 3, .mode = FRUGAL_SYNC});
}

int main(int argc, char **argv) {
    static const explore_scenario scenarios[] = {
        {"one device", "training with a worker is sequential training", 2, set_up_one_device, play, compare},
        {"two devices", "training without workers is sequential training", 2, set_up_two_devices, play, compare},
        {"worker", "training of two devices with a worker is sequential training", 3, set_up_worker, play, compare},
        {"loaders", "announcing from other threads, two workers", 6, set_up_loaders, play, compare},
        {"write-through", "the same, every update due in the next step", 3, set_up_write_through, play, compare},
    };
    return explore_main(argc, argv, scenarios, sizeof scenarios / sizeof *scenarios);
}
