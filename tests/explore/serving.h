/* serving.h - threads that look up in the version that is served, and one that takes over newer versions. Here a
 * version is only its step: no other thread takes part in making and freeing the rest. Part of explore_runtime.c. */
#ifndef SERVING_H
#define SERVING_H

enum { SERVING_READERS = 2, SERVING_LOOKUPS = 2 }; /* of each reader */

static frugal_server *serving;

static void make_version(uint32_t place, uint64_t step) {
    serving->versions[place].step = step;
}

static void set_up_serving(uint64_t variant) {
    (void)variant;
    serving = explore_alloc(sizeof *serving, 64);
    serving->versions[0].file = serving->versions[1].file = -1;
    make_version(0, 1);
}

/* Each reader sees whole versions, none older than the one before. */
static void look_up_or_take_over(int number) {
    uint64_t newest = 1;
    if (number == SERVING_READERS) {
        for (uint32_t i = 1; i <= 3; i++) {
            make_version(i % 2, i + 1);
            take_over(serving, i % 2);
        }
        return;
    }
    for (int i = 0; i < SERVING_LOOKUPS; i++) {
        served *v = begin_serving(serving);
        uint64_t step = v->step;
        explore_point();
        EXPLORE_EXPECT(step >= newest && v->step == step);
        end_serving(serving, v);
        newest = step;
    }
}

#endif /* SERVING_H */
