/* fuzz_stop.c - everybody waits, and somebody stops: a loader and a trainer a device, of which one device never updates
 * a step, so that all the others end up in announce and in lookup. Whenever the stop comes, all of them return
 * FRUGAL_STOPPED, the memory comes back, and what was read until then was what it should be: zeros,
 * since the gradients are.
 *
 * The bytes are the settings, who stands still and from which step on, and how long the stop waits. */
#include <pthread.h>
#include "frugal_seeing.h"
#include "fuzz.h"

enum { DEVICES = 3, KEYS = 8, ROWS = 12, DIM = 2 };

typedef struct stand {
    frugal *f;
    uint32_t still; /* this device's trainer... */
    uint64_t from;  /* ... does not update this step */
    uint64_t seed;
    pthread_t loaders[DEVICES], trainers[DEVICES];
} stand;

typedef struct hand {
    stand *s;
    uint32_t device;
    frugal_status status;
} hand;

static void *load(void *argument) {
    hand *h = argument;
    uint64_t keys[KEYS];
    for (uint64_t step = 0; h->status == FRUGAL_OK; step++) {
        frugal_keys segment = {
            .table = 0, .keys = keys, .n = (uint32_t)(test_mix3(h->s->seed, h->device, step) % (KEYS + 1))};
        for (uint32_t i = 0; i < segment.n; i++) keys[i] = test_mix3(step, h->device, i) % ROWS;
        frugal_batch batch = {&segment, 1, 0};
        h->status = frugal_announce(h->s->f, h->device, step, &batch);
    }
    return NULL;
}

/* Whether the device updates or stands still, in the end it waits: for the step that is not updated. */
static void *train(void *argument) {
    hand *h = argument;
    float rows[KEYS * DIM], grads[KEYS * DIM] = {0};
    frugal_gradients g = {.grads = grads, .lr = 1};
    for (uint64_t step = 0; h->status == FRUGAL_OK; step++) {
        for (int i = 0; i < KEYS * DIM; i++) rows[i] = 0;
        h->status = frugal_lookup(h->s->f, h->device, step, rows);
        for (int i = 0; i < KEYS * DIM; i++) assert_true(rows[i] == 0);
        if (h->device == h->s->still && step == h->s->from) return NULL;
        if (h->status == FRUGAL_OK) h->status = frugal_update(h->s->f, h->device, step, &g);
    }
    return NULL;
}

static frugal *open_instance(test_random *r, test_counter *counter) {
    frugal_table table = {.rows = ROWS};
    frugal_desc d = {.tables = &table,
                     .n_tables = 1,
                     .dim = DIM,
                     .devices = 1 + (uint32_t)test_below(r, DEVICES),
                     .max_keys = KEYS,
                     .lookahead = (uint32_t)test_below(r, 5),
                     .workers = (uint32_t)test_below(r, 3),
                     .defer = test_chance(r, 30),
                     .mode = test_chance(r, 30) ? FRUGAL_SYNC : FRUGAL_P2F,
                     .optimizer = {.kind = FRUGAL_ADAGRAD},
                     .stuck_seconds = -1, /* only the stop ends a wait */
                     .init_threads = 1,
                     .allocate = test_allocate,
                     .release = test_release,
                     .user = counter};
    frugal *f = NULL;
    if (frugal_open(&d, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    for (uint32_t i = 0; i < d.devices; i++)
        if (frugal_cpu_attach(f, i, &(frugal_cpu_desc){.cache_rows = 8 * (i % 2)}) != FRUGAL_OK)
            fail_msg("attach: %s", frugal_message());
    return f;
}

/* Lets the others get somewhere: nothing, some, or all that there is to be had before everybody waits. */
static void wait_a_while(frugal *f, test_random *r, uint64_t from) {
    frugal_stats now = {0};
    uint64_t kind = test_below(r, 3), rounds = test_below(r, 256);
    if (kind == 1)
        for (uint64_t i = 0; i < rounds; i++) frugal_help(f);
    while (kind == 2 && now.steps < from) { /* all steps before it are closed: help, for who waits may sleep */
        frugal_help(f);
        frugal_get_stats(f, &now);
    }
}

const unsigned fuzz_inputs = 200;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    test_random r = fuzz_bytes(data, size);
    test_counter counter = {.fail_at = 0};
    stand s = {.f = open_instance(&r, &counter)};
    uint32_t devices = frugal_settings(s.f)->devices;
    hand loaders[DEVICES], trainers[DEVICES];
    s.still = (uint32_t)test_below(&r, devices), s.from = test_below(&r, 20), s.seed = test_below(&r, 256);
    for (uint32_t d = 0; d < devices; d++) {
        loaders[d] = trainers[d] = (hand){&s, d, FRUGAL_OK};
        assert_int_equal(0, pthread_create(&s.loaders[d], NULL, load, &loaders[d]));
        assert_int_equal(0, pthread_create(&s.trainers[d], NULL, train, &trainers[d]));
    }
    wait_a_while(s.f, &r, s.from);
    frugal_stop(s.f);
    for (uint32_t d = 0; d < devices; d++) {
        pthread_join(s.loaders[d], NULL);
        pthread_join(s.trainers[d], NULL);
        assert_int_equal(FRUGAL_STOPPED, loaders[d].status);
        if (d != s.still || trainers[d].status != FRUGAL_OK) assert_int_equal(FRUGAL_STOPPED, trainers[d].status);
    }
    assert_int_equal(0, frugal_help(s.f));
    frugal_close(s.f);
    assert_true(counter.bytes_out == 0 && counter.blocks_out == 0);
    return 0;
}
