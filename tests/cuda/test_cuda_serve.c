/* test_cuda_serve.c - frugal_cuda_serve.h: rows of every version from every source, bit by bit; plans with and without
 * peer access; what is refused; every call that may fail. On a GPU (ninja cuda-test) or on the host (cuda_on_host.h);
 * peers and failures need the latter. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#define FRUGAL_PLACE_IMPLEMENTATION
#include "frugal_cuda_serve.h"
#include "tests/cuda/gpu.h"
#include "tests/unit/host/served_world.h"
#ifdef TEST_CUDA_ON_HOST
#include "tests/cuda/cuda_on_host_hooks.h"
#define delay_stream(stream) cuda_on_host_delay(stream, 300)
#else
#define delay_stream(stream) ((void)(stream))
#endif

enum { GPUS = 4, MOST_KEYS = 400, MOST_DIM = 36 };

static world w;
static gpu *gpus[GPUS];
static int ordinals[GPUS];
static uint32_t hottest[ROWS];
static test_random random_;

/* >>world */

static void open_gpus(uint32_t n, size_t unaligned) {
    for (uint32_t g = 0; g < n; g++) {
        ordinals[g] = (int)g % gpu_count();
        gpus[g] = gpu_open(ordinals[g], MOST_KEYS * MOST_DIM, 4 * MOST_KEYS, unaligned);
    }
}

static void close_gpus(uint32_t n) {
    for (uint32_t g = 0; g < n; g++) gpu_close(gpus[g]);
}

/* All rows, in some order: every fifth one first, and so on. */
static void order_rows(void) {
    uint32_t at = 0;
    for (uint32_t first = 0; first < 5; first++)
        for (uint32_t row = first; row < ROWS; row += 5) hottest[at++] = row;
}

static void make_plan(uint32_t n, uint64_t capacity, frugal_place_policy policy, frugal_place_plan *plan) {
    double peer[GPUS * GPUS], host[GPUS];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) peer[i * n + j] = i == j ? 1000 : 100;
    for (uint32_t i = 0; i < n; i++) host[i] = 10;
    const frugal_place_machine machine = {
        .devices = n, .capacity = capacity, .row_bytes = 4 * w.dim, .peer = peer, .host = host};
    const frugal_place_level levels[] = {{8, 300}, {4, 700}, {1, ROWS - 1000}};
    assert_int_equal(FRUGAL_PLACE_OK, frugal_place_make_plan(&machine, levels, 3, policy, plan));
}

static frugal_cuda_server *open_on(frugal_server *s, uint32_t n, const frugal_cuda_placement *placement) {
    frugal_cuda_server *c;
    const frugal_cuda_serve_desc desc = {.server = s, .ordinals = ordinals, .gpus = n, .placement = *placement};
    if (frugal_cuda_serve_open(&desc, &c) != FRUGAL_OK) fail_msg("%s", frugal_message());
    return c;
}

static void close_all(frugal_cuda_server *c, frugal_server *s, uint32_t n) {
    frugal_cuda_serve_close(c);
    frugal_serve_close(s);
    close_gpus(n);
    close_world(&w);
}

/* Looks up random keys of both tables on a GPU; the rows must be those of version v. */
static void expect_rows(frugal_cuda_server *c, uint32_t g, uint32_t v) {
    uint64_t first[MOST_KEYS / 2], step = 0, stride = test_chance(&random_, 50) ? 0 : w.dim + test_below(&random_, 4);
    int32_t second[MOST_KEYS / 2];
    static float rows[MOST_KEYS * MOST_DIM];
    uint32_t n = (uint32_t)test_below(&random_, MOST_KEYS / 2), m = (uint32_t)test_below(&random_, MOST_KEYS / 2);
    if (stride > MOST_DIM) stride = 0;
    for (uint32_t i = 0; i < n; i++) first[i] = test_below(&random_, test_chance(&random_, 50) ? 6 : FIRST_ROWS);
    for (uint32_t i = 0; i < m; i++) second[i] = (int32_t)test_below(&random_, SECOND_ROWS);
    uint64_t *keys = (uint64_t *)(void *)gpu_words(gpus[g]);
    int32_t *keys32 = (int32_t *)(void *)(gpu_words(gpus[g]) + 2 * MOST_KEYS);
    gpu_put(gpus[g], keys, first, n * sizeof *first);
    gpu_put(gpus[g], keys32, second, m * sizeof *second);
    const frugal_keys segments[2] = {{.table = 0, .keys = keys, .n = n}, {.table = 1, .keys32 = keys32, .n = m}};
    assert_int_equal(
        FRUGAL_OK, frugal_cuda_serve_lookup(c, g, gpu_stream(gpus[g]), segments, 2, gpu_rows(gpus[g]), stride, &step));
    assert_true(step == w.steps[v]);
    if (!stride) stride = w.dim;
    gpu_get(gpus[g], rows, gpu_rows(gpus[g]), (n + m) * stride * sizeof *rows);
    for (uint32_t i = 0; i < n + m; i++) {
        uint64_t row = i < n ? first[i] : FIRST_ROWS + (uint64_t)second[i - n];
        assert_memory_equal(w.tables[v] + row * w.dim, rows + i * stride, w.dim * sizeof(float));
    }
}

static void expect_everywhere(frugal_cuda_server *c, uint32_t n, uint32_t v) {
    for (int i = 0; i < 10; i++)
        for (uint32_t g = 0; g < n; g++) expect_rows(c, g, v);
}

/* >>sources and versions */

typedef struct layout {
    uint32_t n, dim;
    size_t unaligned;
    int policy; /* -1: no plan; -2: no cache */
    frugal_type rows_as;
} layout;

static void test_versions(void **state) {
    const layout *l = *state;
    static const uint32_t orders[][6] = {{0, 1, 2, 3, 4, 0}, {1, 3, 0, 2, 4, 1}};
    random_.seed = test_seed("test_versions", 41);
    world_type = l->rows_as;
    open_world(&w, l->dim, FRUGAL_SGD);
    open_gpus(l->n, l->unaligned);
    frugal_place_plan plan;
    frugal_cuda_placement placement = {.rows = hottest, .n_rows = ROWS, .cache_rows = l->policy == -1 ? 500 : 0};
    if (l->policy >= 0) {
        make_plan(l->n, 500, (frugal_place_policy)l->policy, &plan);
        placement.plan = &plan;
    }
    for (int o = 0; o < 2; o++) {
        frugal_served from = saves_of(&w, orders[o][0]);
        frugal_server *s = open_server(&from);
        frugal_cuda_server *c = open_on(s, l->n, &placement);
        expect_everywhere(c, l->n, orders[o][0]);
        for (int i = 1; i < 6; i++) {
            from = saves_of(&w, orders[o][i]);
            refresh(s, &from);
            expect_everywhere(c, l->n, orders[o][i - 1]); /* not before it is taken over */
            assert_int_equal(FRUGAL_OK, frugal_cuda_serve_refresh(c));
            expect_everywhere(c, l->n, orders[o][i]);
            if (i == 3) { /* other rows are cached */
                frugal_cuda_placement other = placement;
                other.rows = hottest + 400, other.n_rows = 1000;
                assert_int_equal(FRUGAL_OK, frugal_cuda_serve_place(c, &other));
                expect_everywhere(c, l->n, orders[o][i]);
            }
            assert_int_equal(FRUGAL_OK, frugal_cuda_serve_refresh(c)); /* nothing to do */
        }
        frugal_cuda_serve_close(c);
        frugal_serve_close(s);
    }
    close_gpus(l->n);
    close_world(&w);
    world_type = FRUGAL_FP32;
}

/* >>drift: lookups of other rows than those that are cached have these cached */

static void look_up_hot(frugal_cuda_server *c, uint32_t n, uint64_t from) {
    uint64_t keys[MOST_KEYS];
    for (int i = 0; i < 64; i++)
        for (uint32_t g = 0; g < n; g++) {
            for (uint32_t k = 0; k < MOST_KEYS; k++) keys[k] = from + test_below(&random_, 100);
            gpu_put(gpus[g], gpu_words(gpus[g]), keys, sizeof keys);
            const frugal_keys segment = {.table = 0, .keys = (uint64_t *)(void *)gpu_words(gpus[g]), .n = MOST_KEYS};
            assert_int_equal(FRUGAL_OK, frugal_cuda_serve_lookup(c, g, gpu_stream(gpus[g]), &segment, 1,
                                                                 gpu_rows(gpus[g]), 0, NULL));
            gpu_wait(gpus[g]);
        }
}

/* 160 rows, all touched alike; 16 in turn, ten of each. */
static void look_up_fields(frugal_cuda_server *c, uint32_t n) {
    uint64_t keys[MOST_KEYS];
    for (int i = 0; i < 64; i++)
        for (uint32_t g = 0; g < n; g++) {
            for (uint32_t k = 0; k < MOST_KEYS; k++) keys[k] = 2000 + k % 16 * 10 + test_below(&random_, 10);
            gpu_put(gpus[g], gpu_words(gpus[g]), keys, sizeof keys);
            const frugal_keys segment = {.table = 0, .keys = (uint64_t *)(void *)gpu_words(gpus[g]), .n = MOST_KEYS};
            assert_int_equal(FRUGAL_OK, frugal_cuda_serve_lookup(c, g, gpu_stream(gpus[g]), &segment, 1,
                                                                 gpu_rows(gpus[g]), 0, NULL));
            gpu_wait(gpus[g]);
        }
}

static void test_drift(void **state) {
    (void)state;
    random_.seed = test_seed("test_drift", 45);
    frugal_cuda_server *c;
    frugal_cuda_drift found;
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(2, 0);
    frugal_served from = saves_of(&w, 1);
    frugal_server *s = open_server(&from);
    const double peer[] = {1000, 0, 0, 1000}, host[] = {10, 10};
    const frugal_place_machine machine = {.devices = 2, .capacity = 120, .row_bytes = 20, .peer = peer, .host = host};
    const frugal_cuda_serve_desc desc = {.server = s,
                                         .ordinals = ordinals,
                                         .gpus = 2,
                                         .count = 1,
                                         .placement = {.rows = hottest, .n_rows = ROWS, .cache_rows = 120}};
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_open(&desc, &c));
    found.touches = -1;
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_adapt(c, &machine, FRUGAL_PLACE_PLANNED, .1, &found));
    assert_true(found.touches == 0 && !found.placed); /* nothing was looked up */
    for (uint64_t turn = 0; turn < 3; turn++) {
        look_up_hot(c, 2, 1000 + 100 * turn);
        assert_int_equal(FRUGAL_OK, frugal_cuda_serve_adapt(c, &machine, FRUGAL_PLACE_PLANNED, .1, &found));
        assert_true(found.placed && found.seconds > 1.1 * found.planned_seconds);
        if (turn == 0) assert_true(found.touches == 2 * 64 * MOST_KEYS); /* every 16th, from each place in turn */
        for (int i = 0; i < 4 && found.placed; i++) { /* what was hot before is forgotten by halves */
            look_up_hot(c, 2, 1000 + 100 * turn);
            assert_int_equal(FRUGAL_OK, frugal_cuda_serve_adapt(c, &machine, FRUGAL_PLACE_PLANNED, .1, &found));
        }
        assert_true(!found.placed && found.seconds <= 1.1 * found.planned_seconds);
        expect_everywhere(c, 2, 1);
    }
    /* Every 16th key is counted, from each place of a lookup whose keys repeat after 16. */
    for (int i = 0; i < 8; i++) {
        look_up_fields(c, 2);
        assert_int_equal(FRUGAL_OK, frugal_cuda_serve_adapt(c, &machine, FRUGAL_PLACE_PLANNED, .1, &found));
    }
    assert_true(found.planned_seconds > found.touches / 200); /* a quarter is read from the host: twice that much */
    /* A refresh has changed what is cached: lookups are predicted to read the host. A bad machine ages nothing. */
    for (int i = 0; i < 8; i++) { /* until nothing else counts */
        look_up_hot(c, 2, 0);
        assert_int_equal(FRUGAL_OK, frugal_cuda_serve_adapt(c, &machine, FRUGAL_PLACE_PLANNED, .1, &found));
    }
    assert_false(found.placed);
    double before = found.seconds / found.touches, touches = found.touches;
    frugal_place_machine bad = machine;
    bad.row_bytes = 0;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_adapt(c, &bad, FRUGAL_PLACE_PLANNED, .1, &found),
                 "cuda_serve_adapt", "bandwidths");
    from = saves_of(&w, 3);
    refresh(s, &from);
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_refresh(c));
    look_up_hot(c, 2, 0);
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_adapt(c, &machine, FRUGAL_PLACE_PLANNED, 1e9, &found));
    assert_true(fabs(found.touches - touches / 2 - 2 * 64 * MOST_KEYS) < 1 && !found.placed); /* halves are rounded */
    assert_true(found.seconds / found.touches > 1.5 * before);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_adapt(c, NULL, FRUGAL_PLACE_PLANNED, .1, NULL), "no machine",
                 "");
    frugal_cuda_serve_close(c);
    c = open_on(s, 1, &desc.placement);
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_adapt(c, &machine, FRUGAL_PLACE_PLANNED, .1, NULL),
                 "not counted", "");
    close_all(c, s, 2);
}

/* >>streams: they come and go while lookups are under way; a captured one is refused, and no capture is spoiled */

static void test_streams_that_end(void **state) {
    (void)state;
    random_.seed = test_seed("test_streams_that_end", 46);
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(1, 0);
    frugal_served from = saves_of(&w, 0);
    frugal_server *s = open_server(&from);
    const frugal_cuda_placement placement = {.rows = hottest, .n_rows = ROWS, .cache_rows = 300};
    frugal_cuda_server *c = open_on(s, 1, &placement);
    static float rows[VERSIONS][5];
    for (int i = 0; i < 40 / SHORTER; i++) {
        uint32_t v = (uint32_t)i % VERSIONS;
        uint64_t key = test_below(&random_, FIRST_ROWS), *keys = (uint64_t *)(void *)gpu_words(gpus[0]);
        const frugal_keys segment = {.table = 0, .keys = keys, .n = 1};
        gpu_put(gpus[0], keys, &key, sizeof key);
        for (int other = 0; other < 3; other++) /* none waits for the one before, and the version is freed at once */
            for (int again = 0; again < 3; again++) {
                delay_stream(gpu_stream(gpus[0]));
                assert_int_equal(FRUGAL_OK, frugal_cuda_serve_lookup(c, 0, gpu_stream(gpus[0]), &segment, 1,
                                                                     gpu_rows(gpus[0]) + 5 * other, 0, NULL));
                if (again == 2) gpu_renew_stream(gpus[0]);
            }
        from = saves_of(&w, (v + 1) % VERSIONS);
        refresh(s, &from);
        assert_int_equal(FRUGAL_OK, frugal_cuda_serve_refresh(c)); /* it has waited for them */
        gpu_get(gpus[0], rows, gpu_rows(gpus[0]), 3 * sizeof rows[0]);
        for (int other = 0; other < 3; other++) assert_memory_equal(w.tables[v] + key * 5, rows[other], sizeof rows[0]);
    }
    close_all(c, s, 1);
}

static void call_in_capture(void *argument) {
    frugal_cuda_server *c = argument;
    const frugal_keys segment = {.table = 0, .keys = (uint64_t *)(void *)gpu_words(gpus[0]), .n = 1};
    const frugal_cuda_placement placement = {.rows = hottest, .n_rows = ROWS, .cache_rows = 200};
    void *stream = gpu_stream(gpus[0]);
    assert_fails(FRUGAL_ERR_ORDER, frugal_cuda_serve_lookup(c, 0, stream, &segment, 1, gpu_rows(gpus[0]), 0, NULL),
                 "is being captured", "outside of captures");
    for (int i = 0; i < 9; i++) /* uses are taken again, which asks for their events */
        assert_int_equal(FRUGAL_OK, frugal_cuda_serve_lookup(c, 0, gpu_blocking_stream(gpus[0]), &segment, 1,
                                                             gpu_rows(gpus[0]), 0, NULL));
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_place(c, &placement));
    if (gpu_error() == 0) gpu_make_error(); /* the caller's own, which none of these calls takes away */
    int error = gpu_error();
    for (int i = 0; i < 9; i++)
        assert_int_equal(FRUGAL_OK, frugal_cuda_serve_lookup(c, 0, gpu_blocking_stream(gpus[0]), &segment, 1,
                                                             gpu_rows(gpus[0]), 0, NULL));
    assert_int_equal(error, gpu_error());
    gpu_end_error();
}

static void test_captures(void **state) {
    (void)state;
    uint64_t key = 3;
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(1, 0);
    frugal_served from = saves_of(&w, 0);
    frugal_server *s = open_server(&from);
    frugal_cuda_server *c = open_on(s, 1, &(frugal_cuda_placement){.rows = hottest, .n_rows = ROWS, .cache_rows = 300});
    gpu_put(gpus[0], gpu_words(gpus[0]), &key, sizeof key);
    gpu_capture(gpus[0], call_in_capture, c); /* which fails if it was spoiled */
    gpu_wait_for(gpus[0], gpu_blocking_stream(gpus[0]));
    expect_rows(c, 0, 0);
    close_all(c, s, 1);
}

/* >>pooling */

static void test_bags(void **state) {
    world_type = *(const frugal_type *)*state;
    enum { BAGS = 30 };
    random_.seed = test_seed("test_bags", 42);
    open_world(&w, 8, FRUGAL_SGD);
    open_gpus(1, 0);
    frugal_served from = saves_of(&w, 2);
    frugal_server *s = open_server(&from);
    frugal_cuda_server *c = open_on(s, 1, &(frugal_cuda_placement){.rows = hottest, .n_rows = ROWS, .cache_rows = 700});
    for (int round = 0; round < 12; round++) {
        uint64_t keys[MOST_KEYS];
        float weights[MOST_KEYS], wanted[BAGS * 12] = {0}, found[BAGS * 12] = {0};
        uint32_t offsets[BAGS + 1] = {0}, n = 1 + (uint32_t)test_below(&random_, MOST_KEYS - 1);
        for (uint32_t i = 0; i < n; i++)
            keys[i] = test_below(&random_, FIRST_ROWS), weights[i] = (float)test_below(&random_, 9) - 4;
        for (uint32_t b = 1; b < BAGS; b++)
            offsets[b] = offsets[b - 1] + (uint32_t)test_below(&random_, (n - offsets[b - 1]) / 4 + 1);
        offsets[BAGS] = n;
        frugal_keys segment = {.table = 0, .keys = keys, .n = n};
        frugal_bags bags = {.n_bags = BAGS,
                            .offsets = offsets,
                            .stride = round % 4 == 1   ? 12
                                      : round % 4 == 3 ? 11
                                                       : 0};
        if (round % 3 == 0) bags.pooling = FRUGAL_POOL_MEAN;
        if (round % 3 == 1) bags.weights = weights;
        assert_int_equal(FRUGAL_OK, frugal_serve_bags(s, &segment, 1, &bags, wanted, NULL));
        uint32_t *words = gpu_words(gpus[0]);
        gpu_put(gpus[0], words, keys, n * sizeof *keys);
        gpu_put(gpus[0], words + 2 * MOST_KEYS, offsets, sizeof offsets);
        gpu_put(gpus[0], words + 3 * MOST_KEYS, weights, n * sizeof *weights);
        gpu_put(gpus[0], gpu_rows(gpus[0]), found, sizeof found);
        segment.keys = (uint64_t *)(void *)words, bags.offsets = words + 2 * MOST_KEYS;
        if (bags.weights) bags.weights = (float *)(void *)(words + 3 * MOST_KEYS);
        assert_int_equal(
            FRUGAL_OK, frugal_cuda_serve_bags(c, 0, gpu_stream(gpus[0]), &segment, 1, &bags, gpu_rows(gpus[0]), NULL));
        gpu_get(gpus[0], found, gpu_rows(gpus[0]), sizeof found);
        assert_memory_equal(wanted, found, sizeof found);
    }
    close_all(c, s, 1);
    world_type = FRUGAL_FP32;
}

/* >>what is refused */

static void test_refusals(void **state) {
    (void)state;
    frugal_cuda_server *c = NULL;
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(1, 0);
    frugal_served from = saves_of(&w, 1);
    frugal_server *s = open_server(&from);
    frugal_cuda_serve_desc desc = {.server = s, .ordinals = ordinals, .gpus = 1};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_open(&desc, NULL), "`out` is NULL", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_open(NULL, &c), "no settings", "");
    desc.gpus = 65;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_open(&desc, &c), "65 GPUs", "1 to 64");
    desc.gpus = 1, desc.placement.n_rows = 1;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_open(&desc, &c), "`rows` is NULL", "");
    desc.placement.rows = (uint32_t[]){ROWS};
    assert_fails(FRUGAL_ERR_KEY, frugal_cuda_serve_open(&desc, &c), "row 3500 at 0", "3500 rows");
    frugal_place_plan plan;
    make_plan(2, 10, FRUGAL_PLACE_PLANNED, &plan);
    desc.placement = (frugal_cuda_placement){.rows = hottest, .n_rows = ROWS, .plan = &plan};
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_open(&desc, &c), "plan is for 2 devices", "there are 1");
    desc.placement = (frugal_cuda_placement){.rows = hottest, .n_rows = ROWS, .cache_rows = 10};
    desc.ordinals = (int[]){99};
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_serve_open(&desc, &c), "GPU 99", "");
    assert_null(c);
    desc.ordinals = ordinals;
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_open(&desc, &c));
    void *stream = gpu_stream(gpus[0]);
    float *rows = gpu_rows(gpus[0]), found[10];
    uint64_t *keys = (uint64_t *)(void *)gpu_words(gpus[0]), two[2] = {7, FIRST_ROWS};
    const frugal_keys good = {.table = 0, .keys = keys, .n = 2}, other = {.table = 2, .keys = keys, .n = 1},
                      none = {.table = 0, .n = 1};
    gpu_put(gpus[0], keys, two, sizeof two);
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_serve_lookup(c, 1, stream, &good, 1, rows, 0, NULL), "GPU number 1",
                 "");
    assert_fails(FRUGAL_ERR_TABLE, frugal_cuda_serve_lookup(c, 0, stream, &other, 1, rows, 0, NULL), "table 2", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_lookup(c, 0, stream, &none, 1, rows, 0, NULL), "`keys`", "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_lookup(c, 0, stream, &good, 1, rows, 4, NULL), "stride of 4",
                 "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_lookup(c, 0, stream, &good, 1, NULL, 0, NULL), "no array", "");
    assert_int_equal(FRUGAL_OK,
                     frugal_cuda_serve_lookup(c, 0, stream, &good, 1, rows, 0, NULL)); /* the second is bad */
    gpu_get(gpus[0], found, rows, sizeof found);
    assert_memory_equal(w.tables[1] + 7 * 5, found, 5 * sizeof *found);
    for (int i = 5; i < 10; i++) assert_true(found[i] == 0);
    assert_fails(FRUGAL_ERR_KEY, frugal_cuda_serve_lookup(c, 0, stream, &good, 1, rows, 0, NULL), "an earlier lookup",
                 "out of range");
    expect_rows(c, 0, 1); /* once */
    uint32_t *offsets = gpu_words(gpus[0]) + 2 * MOST_KEYS, falls[3] = {0, 5, 2};
    gpu_put(gpus[0], offsets, falls, sizeof falls);
    gpu_put(gpus[0], keys, two, sizeof two);
    frugal_bags bags = {.n_bags = 2, .offsets = offsets};
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_bags(c, 0, stream, &good, 1, &bags, rows, NULL));
    gpu_wait(gpus[0]);
    frugal_status status = frugal_cuda_serve_bags(c, 0, stream, &good, 1, &bags, rows, NULL);
    assert_true(status == FRUGAL_ERR_ARGUMENT || status == FRUGAL_ERR_KEY); /* both are wrong; the last one is told */
    bags.pooling = (frugal_pooling)2;
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_bags(c, 0, stream, &good, 1, &bags, rows, NULL), "pooling 2",
                 "");
    assert_fails(FRUGAL_ERR_ARGUMENT, frugal_cuda_serve_place(c, NULL), "no placement", "");
    const frugal_cuda_placement bad = {.rows = (uint32_t[]){1, ROWS + 1}, .n_rows = 2, .cache_rows = 2};
    assert_fails(FRUGAL_ERR_KEY, frugal_cuda_serve_place(c, &bad), "row 3501 at 1", "");
    expect_rows(c, 0, 1);
    frugal_cuda_serve_close(c);
    frugal_cuda_serve_close(NULL);
    frugal_serve_close(s);
    close_gpus(1);
    close_world(&w);
}

/* >>threads */

typedef struct looker {
    frugal_cuda_server *c;
    uint32_t g;
    const atomic_int *stop;
    atomic_ullong lookups;
    uint64_t wrong;
    pthread_t thread;
} looker;

static void *look_on(void *argument) {
    looker *me = argument;
    test_random r = {.seed = me->g};
    float rows[20 * 5];
    while (!atomic_load(me->stop)) {
        uint64_t some[20], step;
        for (int i = 0; i < 20; i++) some[i] = test_below(&r, 6);
        uint64_t *keys = (uint64_t *)(void *)gpu_words(gpus[me->g]);
        gpu_put(gpus[me->g], keys, some, sizeof some);
        const frugal_keys segment = {.table = 0, .keys = keys, .n = 20};
        frugal_status status = frugal_cuda_serve_lookup(me->c, me->g, gpu_stream(gpus[me->g]), &segment, 1,
                                                        gpu_rows(gpus[me->g]), 0, &step);
        gpu_get(gpus[me->g], rows, gpu_rows(gpus[me->g]), sizeof rows);
        uint32_t v = version_of(&w, step);
        me->wrong += status != FRUGAL_OK || v == VERSIONS;
        for (int i = 0; i < 20 && v < VERSIONS; i++)
            me->wrong += memcmp(w.tables[v] + some[i] * 5, rows + i * 5, sizeof *rows * 5) != 0;
        atomic_fetch_add(&me->lookups, 1);
    }
    return NULL;
}

static void test_refresh_while_threads_look_up(void **state) {
    (void)state;
    enum { LOOKERS = 3 };
    random_.seed = test_seed("test_refresh_while_threads_look_up", 43);
    atomic_int stop = 0;
    looker lookers[LOOKERS];
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(LOOKERS, 0);
    frugal_served from = saves_of(&w, 0);
    frugal_server *s = open_server(&from);
    frugal_cuda_placement placement = {.rows = hottest, .n_rows = ROWS, .cache_rows = 300};
    frugal_cuda_server *c = open_on(s, LOOKERS, &placement);
    for (uint32_t i = 0; i < LOOKERS; i++) {
        lookers[i].c = c, lookers[i].g = i, lookers[i].stop = &stop, lookers[i].wrong = 0;
        atomic_store(&lookers[i].lookups, 0);
        assert_int_equal(0, pthread_create(&lookers[i].thread, NULL, look_on, &lookers[i]));
    }
    for (int i = 0, all = 0; i < 40 / SHORTER || !all; i++) { /* and until all have looked up */
        all = 1;
        for (int l = 0; l < LOOKERS; l++) all &= atomic_load(&lookers[l].lookups) > 0;
        from = saves_of(&w, (uint32_t)test_below(&random_, VERSIONS));
        refresh(s, &from);
        assert_int_equal(FRUGAL_OK, frugal_cuda_serve_refresh(c));
        if (i % 7 == 0) assert_int_equal(FRUGAL_OK, frugal_cuda_serve_place(c, &placement));
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < LOOKERS; i++) {
        pthread_join(lookers[i].thread, NULL);
        assert_int_equal(0, lookers[i].wrong);
    }
    close_all(c, s, LOOKERS);
}

#ifdef TEST_CUDA_ON_HOST

/* >>peers, and failures: on the host */

static void test_peers(void **state) {
    (void)state;
    frugal_place_plan plan;
    frugal_cuda_server *c = NULL;
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(2, 0);
    frugal_served from = saves_of(&w, 1);
    frugal_server *s = open_server(&from);
    make_plan(2, 500, FRUGAL_PLACE_PARTITIONED, &plan);
    const frugal_cuda_placement placement = {.rows = hottest, .n_rows = ROWS, .plan = &plan};
    const frugal_cuda_serve_desc desc = {.server = s, .ordinals = ordinals, .gpus = 2, .placement = placement};
    cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_NONE);
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_serve_open(&desc, &c), "which it cannot reach", "bandwidth of 0");
    cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_FALSE);
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_serve_open(&desc, &c), "GPU 0 reads other values than GPU 1", "");
    assert_null(c);
    close_gpus(2), frugal_serve_close(s), close_world(&w);
}

/* Its source is blamed, and not that of row 0, whatever row it is at which the first peer is read. */
static void test_peers_of_row_0(void **state) {
    (void)state;
    frugal_place_plan plan;
    frugal_cuda_server *c = NULL;
    uint32_t order[ROWS];
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(2, 0);
    frugal_served from = saves_of(&w, 1);
    frugal_server *s = open_server(&from);
    make_plan(2, 500, FRUGAL_PLACE_PARTITIONED, &plan);
    cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_FALSE);
    for (uint32_t at = 0; at < 3; at++) {
        memcpy(order, hottest, sizeof order);
        order[0] = hottest[at], order[at] = hottest[0];
        const frugal_cuda_serve_desc desc = {
            .server = s, .ordinals = ordinals, .gpus = 2, .placement = {.rows = order, .n_rows = ROWS, .plan = &plan}};
        assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_serve_open(&desc, &c), "GPU 0 reads other values than GPU 1", "");
    }
    close_gpus(2), frugal_serve_close(s), close_world(&w);
}

static void *refresh_elsewhere(void *c) {
    return (void *)(intptr_t)frugal_cuda_serve_refresh(c);
}

/* A thread that has used no GPU uses those of the server, and no other. Lookups that wait for a stream make more uses,
 * of which later ones need no more. */
static void test_contexts_and_uses(void **state) {
    (void)state;
    pthread_t thread;
    void *status;
    uint64_t key = 7;
    frugal_cuda_server *c;
    open_world(&w, 5, FRUGAL_SGD);
    frugal_served from = saves_of(&w, 1);
    frugal_server *s = open_server(&from);
    const frugal_cuda_serve_desc desc = {.server = s,
                                         .ordinals = (int[]){1},
                                         .gpus = 1,
                                         .placement = {.rows = hottest, .n_rows = ROWS, .cache_rows = 99}};
    assert_int_equal(FRUGAL_OK, frugal_cuda_serve_open(&desc, &c));
    from = saves_of(&w, 2);
    refresh(s, &from);
    assert_int_equal(0, pthread_create(&thread, NULL, refresh_elsewhere, c));
    assert_int_equal(0, pthread_join(thread, &status));
    assert_int_equal(FRUGAL_OK, (intptr_t)status);
    assert_true(cuda_on_host_has_context(1) && !cuda_on_host_has_context(0));
    gpus[0] = gpu_open(1, MOST_KEYS * MOST_DIM, 4 * MOST_KEYS, 0); /* uses GPU 0, too */
    uint64_t alive = 0, *keys = (uint64_t *)(void *)gpu_words(gpus[0]);
    const frugal_keys segment = {.table = 0, .keys = keys, .n = 1};
    gpu_put(gpus[0], keys, &key, sizeof key);
    for (int i = 0; i < 800; i++) { /* 300 at once, then one by one */
        if (i == 0) cuda_on_host_delay(gpu_stream(gpus[0]), 1000);
        assert_int_equal(FRUGAL_OK,
                         frugal_cuda_serve_lookup(c, 0, gpu_stream(gpus[0]), &segment, 1, gpu_rows(gpus[0]), 0, NULL));
        if (i == 300) cuda_on_host_delay(gpu_stream(gpus[0]), 0), alive = cuda_on_host_alive();
        if (i >= 300) gpu_wait(gpus[0]);
    }
    assert_true(cuda_on_host_alive() == alive);
    expect_rows(c, 0, 2);
    close_all(c, s, 1);
}

/* What reads as zeros is found also where the rows are zeros. */
static void test_peers_of_zeros(void **state) {
    (void)state;
    static uint32_t zeros[ROWS];
    static const float zero[5];
    uint32_t n = 0;
    frugal_place_plan plan;
    frugal_cuda_server *c = NULL;
    const frugal_table was = big_tables[0];
    big_tables[0].low = big_tables[0].high = 0;
    open_world(&w, 5, FRUGAL_SGD);
    big_tables[0] = was;
    open_gpus(2, 0);
    for (uint32_t row = 0; row < FIRST_ROWS; row++)
        if (!memcmp(w.tables[0] + row * 5, zero, sizeof zero)) zeros[n++] = row;
    assert_true(n > 1000); /* that were not trained */
    frugal_served from = saves_of(&w, 0);
    frugal_server *s = open_server(&from);
    make_plan(2, 500, FRUGAL_PLACE_PARTITIONED, &plan);
    const frugal_cuda_serve_desc desc = {
        .server = s, .ordinals = ordinals, .gpus = 2, .placement = {.rows = zeros, .n_rows = n, .plan = &plan}};
    cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_FALSE);
    assert_fails(FRUGAL_ERR_DEVICE, frugal_cuda_serve_open(&desc, &c), "GPU 0 reads other values than GPU 1", "");
    assert_null(c);
    close_gpus(2), frugal_serve_close(s), close_world(&w);
}

/* Any call of CUDA fails: opening, refreshing and placing report it and leave what was there. */
static void test_failures(void **state) {
    (void)state;
    random_.seed = test_seed("test_failures", 44);
    frugal_place_plan plan;
    cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_REAL);
    open_world(&w, 5, FRUGAL_SGD);
    open_gpus(2, 0);
    frugal_served from = saves_of(&w, 1);
    frugal_server *s = open_server(&from);
    make_plan(2, 500, FRUGAL_PLACE_PLANNED, &plan);
    const frugal_cuda_placement placement = {.rows = hottest, .n_rows = ROWS, .plan = &plan};
    const frugal_cuda_serve_desc desc = {.server = s, .ordinals = ordinals, .gpus = 2, .placement = placement};
    frugal_cuda_server *c = NULL;
    uint64_t alive = cuda_on_host_alive(), failed = 0;
    cuda_on_host_fail_named("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 1, 209);
    assert_fails(FRUGAL_ERR_CUDA, frugal_cuda_serve_open(&desc, &c), "for which this program has no code",
                 "-arch=sm_90");
    for (uint64_t n = 1;; n++) {
        cuda_on_host_fail_call(n, 999);
        frugal_status status = frugal_cuda_serve_open(&desc, &c);
        int has_failed = cuda_on_host_has_failed();
        cuda_on_host_fail_call(0, 0);
        if (status == FRUGAL_OK && !has_failed) break;
        if (status == FRUGAL_OK) { /* a call whose failure does not matter */
            frugal_cuda_serve_close(c);
            continue;
        }
        failed++;
        assert_true(status == FRUGAL_ERR_CUDA);
        assert_null(c);
        assert_true(cuda_on_host_alive() == alive);
    }
    assert_true(failed > 20);
    expect_everywhere(c, 2, 1);
    alive = cuda_on_host_alive();
    for (uint32_t what = 0, now = 1; what < 2; what++) { /* refresh, place */
        uint32_t next = what == 0 ? 2 : 4;
        from = saves_of(&w, next);
        refresh(s, &from);
        for (uint64_t n = 1;; n++) {
            cuda_on_host_fail_call(n, 999);
            frugal_status status = what ? frugal_cuda_serve_place(c, &placement) : frugal_cuda_serve_refresh(c);
            int has_failed = cuda_on_host_has_failed();
            cuda_on_host_fail_call(0, 0);
            if (status == FRUGAL_OK && !has_failed) break;
            if (status == FRUGAL_OK) { /* a call that freed something: it is left */
                expect_everywhere(c, 2, now = next);
                alive = cuda_on_host_alive();
                continue;
            }
            assert_true(cuda_on_host_alive() == alive);
            expect_rows(c, 0, now);
        }
        expect_everywhere(c, 2, now = next);
        alive = cuda_on_host_alive();
    }
    close_all(c, s, 2);
}

static int set_up(void **state) {
    cuda_on_host_reset();
    cuda_on_host_set_devices(4);
    cuda_on_host_set_switches(0);
    return saved_setup(state);
}
static int set_up_peers(void **state) {
    int result = set_up(state);
    cuda_on_host_set_peers(CUDA_ON_HOST_PEERS_REAL);
    return result;
}
static int tear_down(void **state) {
    assert_int_equal(0, cuda_on_host_alive());
    return saved_teardown(state);
}
static int tear_down_failures(void **state) { /* calls that free have failed, too */
    return saved_teardown(state);
}
#else
#define set_up       saved_setup
#define set_up_peers saved_setup
#define tear_down    saved_teardown
#endif

int main(void) {
    static layout one = {1, 5, 0, -1, 0}, wide = {1, 36, 0, -1, 0}, none = {1, 32, 0, -2, 0},
                  unaligned = {1, 32, 1, -1, 0}, same = {3, 12, 0, -1, 0}, bf16 = {2, 5, 0, -1, FRUGAL_BF16},
                  fp16 = {1, 36, 0, -1, FRUGAL_FP16}, beside = {1, 32, 1, -1, FRUGAL_FP16};
    static frugal_type floats = FRUGAL_FP32, halves = FRUGAL_BF16;
#ifdef TEST_CUDA_ON_HOST
    static layout planned = {4, 5, 0, FRUGAL_PLACE_PLANNED, 0}, partitioned = {4, 32, 0, FRUGAL_PLACE_PARTITIONED, 0},
                  halved = {4, 8, 0, FRUGAL_PLACE_PARTITIONED, FRUGAL_BF16},
                  tiers = {3, 12, 0, FRUGAL_PLACE_TWO_TIERS, 0}, replicated = {2, 8, 0, FRUGAL_PLACE_REPLICATED, 0};
#endif
    const struct CMUnitTest tests[] = {
        {"test_versions, dim 5", test_versions, set_up, tear_down, &one},
        {"test_versions, dim 36", test_versions, set_up, tear_down, &wide},
        {"test_versions, no cache", test_versions, set_up, tear_down, &none},
        {"test_versions, unaligned", test_versions, set_up, tear_down, &unaligned},
        {"test_versions, three", test_versions, set_up, tear_down, &same},
        {"test_streams_that_end", test_streams_that_end, set_up, tear_down, NULL},
        {"test_captures", test_captures, set_up, tear_down, NULL},
        {"test_versions, bf16", test_versions, set_up, tear_down, &bf16},
        {"test_versions, fp16", test_versions, set_up, tear_down, &fp16},
        {"test_versions, fp16, unaligned", test_versions, set_up, tear_down, &beside},
        {"test_bags", test_bags, set_up, tear_down, &floats},
        {"test_bags, bf16", test_bags, set_up, tear_down, &halves},
        {"test_drift", test_drift, set_up, tear_down, NULL},
        {"test_refusals", test_refusals, set_up, tear_down, NULL},
        {"test_refresh_while_threads_look_up", test_refresh_while_threads_look_up, set_up, tear_down, NULL},
#ifdef TEST_CUDA_ON_HOST
        {"test_versions, planned", test_versions, set_up_peers, tear_down, &planned},
        {"test_versions, partitioned", test_versions, set_up_peers, tear_down, &partitioned},
        {"test_versions, partitioned, bf16", test_versions, set_up_peers, tear_down, &halved},
        {"test_versions, two tiers", test_versions, set_up_peers, tear_down, &tiers},
        {"test_versions, replicated", test_versions, set_up_peers, tear_down, &replicated},
        {"test_peers", test_peers, set_up, tear_down, NULL},
        {"test_peers_of_row_0", test_peers_of_row_0, set_up, tear_down, NULL},
        {"test_contexts_and_uses", test_contexts_and_uses, set_up, tear_down, NULL},
        {"test_peers_of_zeros", test_peers_of_zeros, set_up, tear_down, NULL},
        {"test_failures", test_failures, set_up, tear_down_failures, NULL},
#endif
    };
    order_rows();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
