/* test_processes.c - an instance that several processes train. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "tests/crew.h"

static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};

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
    for (uint32_t i = 0; i < 54; i++) {
        crew c;
        crew_init(&c, i);
        if (i >= 36) c.desc.rows_as = i / 3 % 2 ? FRUGAL_BF16 : FRUGAL_FP16;
        if (i >= 48) c.desc.rounding = FRUGAL_NEAREST;
        c.desc.seed = 5 + i;
        c.desc.devices = 2 + i % 3, c.desc.alone = ways[i % 3],
        c.desc.optimizer.kind = (frugal_optimizer_kind)(i % FRUGAL_OPTIMIZER_KINDS);
        c.desc.lookahead = i % 5, c.desc.workers = 1 + i % 2;
        c.cache =
            (frugal_cpu_desc){.cache_rows = i % 4 ? 24 : 0, .policy = i % 2 ? FRUGAL_CACHE_LRU : FRUGAL_CACHE_COUNTED};
        if (i < 3) c.steps = 80; /* more than rings of 64 steps hold */
        train_world(&c);
    }
}

/* The one device is another process's. Its steps are not closed in pieces if it updates in place, and there are more of
 * them than the rings of 64 hold, with other learning rates in the next round. */
static void test_one_device(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 18; i++) {
        crew c;
        reference ref;
        frugal *f;
        crew_init(&c, 50 + i);
        if (i >= 12) c.desc.rows_as = i % 2 ? FRUGAL_BF16 : FRUGAL_FP16;
        c.desc.devices = 1, c.desc.alone = ways[i % 3],
        c.desc.optimizer.kind = (frugal_optimizer_kind)(i % FRUGAL_OPTIMIZER_KINDS);
        c.cache.cache_rows = i < 6 ? 0 : 24, c.steps = 140;
        pid_t child = crew_fork(&c, 0);
        if (frugal_open(&c.desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
        crew_reference(&c, f, &ref);
        assert_int_equal(CREW_FINE, crew_wait(child));
        if (frugal_drain(f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
        for (uint64_t step = 0; step < c.steps; step++) crew_judge(&c, &ref, step);
        assert_table(f, &ref);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        reference_close(&ref);
    }
}

/* A function of a test in a process of its own. */
static pid_t fork_to(int (*function)(const crew *c), const crew *c) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(function(c));
    return child;
}

static frugal *join_or_exit(const crew *c, uint32_t d) {
    frugal *f;
    if (frugal_join(c->name, 30, &f) != FRUGAL_OK || frugal_cpu_attach(f, d, &c->cache) != FRUGAL_OK) {
        fprintf(stderr, "# %s\n", frugal_message());
        _exit(CREW_WRONG);
    }
    return f;
}

static frugal *open_world(const crew *c) {
    frugal *f;
    if (frugal_open(&c->desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
    assert_int_equal(FRUGAL_OK, frugal_cpu_attach(f, 0, &c->cache));
    return f;
}

static int attached[2]; /* a pipe: device 0 is */

/* What belongs to the process that opened is refused, and changes nothing. */
static int try_all(const crew *c) {
    frugal *f = join_or_exit(c, 1), *other;
    uint64_t key = 0, stride, count;
    const void *view;
    float row[CREW_DIM];
    frugal_keys k = {.table = 0, .keys = &key, .n = 1};
    EXPECT(frugal_settings(f)->dim == CREW_DIM && frugal_settings(f)->devices == 2);
    EXPECT(frugal_settings(f)->rows_as == FRUGAL_FP16 && frugal_settings(f)->rounding == FRUGAL_NEAREST);
    EXPECT(frugal_drain(f) == FRUGAL_ERR_PROCESS && strstr(frugal_message(), "drain"));
    EXPECT(frugal_cancel(f, 0) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_read_rows(f, &k, row, NULL) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_write_rows(f, &k, row, NULL) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_view(f, 0, &view, &stride) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_verify(f) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_release_holders(f) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_secondaries(f, 1, &k, 0) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_set_counts(f, &k, &count) == FRUGAL_ERR_PROCESS);
    EXPECT(frugal_get_counts(f, &k, &count) == FRUGAL_OK);
    EXPECT(frugal_help(f) == 0);
    frugal_stats stats;
    static char text[65536];
    frugal_get_stats(f, &stats);
    EXPECT(stats.steps == 0 && stats.hits == 0);
    EXPECT(frugal_write_metrics(&f, NULL, 1, text, sizeof text) > 0 && strstr(text, "device=\"1\""));
    EXPECT(frugal_trace_start(f, 64) == FRUGAL_OK && frugal_trace_stop(f) == FRUGAL_OK);
    /* devices: one that the other process has, one of this process once more, one that there is not */
    EXPECT(read(attached[0], row, 1) == 1);
    EXPECT(frugal_cpu_attach(f, 0, NULL) == FRUGAL_ERR_DEVICE);
    EXPECT(frugal_cpu_attach(f, 1, NULL) == FRUGAL_ERR_DEVICE);
    EXPECT(frugal_cpu_attach(f, 2, NULL) == FRUGAL_ERR_DEVICE);
    EXPECT(frugal_lookup(f, 0, 0, row) == FRUGAL_ERR_DEVICE);
    /* steps: keys and order are checked here */
    key = 40;
    EXPECT(frugal_announce(f, 1, 0, &(frugal_batch){&k, 1, 0}) == FRUGAL_ERR_KEY);
    key = 3;
    EXPECT(frugal_announce(f, 1, 1, &(frugal_batch){&k, 1, 0}) == FRUGAL_ERR_ORDER);
    EXPECT(frugal_try_lookup(f, 1, 0, row) == FRUGAL_AGAIN);
    EXPECT(frugal_lookup(f, 1, 1, row) == FRUGAL_ERR_ORDER);
    EXPECT(frugal_update(f, 1, 0, NULL) == FRUGAL_ERR_ORDER);
    EXPECT(frugal_preload(f, 1, &k) == FRUGAL_OK);
    EXPECT(frugal_join(c->name, 0, &other) == FRUGAL_OK && frugal_close(other) == FRUGAL_OK); /* twice is possible */
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_refusals(void **state) {
    (void)state;
    crew c;
    crew_init(&c, 1);
    c.cache.cache_rows = 16, c.desc.rows_as = FRUGAL_FP16, c.desc.rounding = FRUGAL_NEAREST;
    assert_int_equal(0, pipe(attached));
    pid_t child = fork_to(try_all, &c);
    frugal *f = open_world(&c), *other;
    assert_int_equal(1, write(attached[1], "", 1));
    assert_int_equal(CREW_FINE, crew_wait(child));
    close(attached[0]), close(attached[1]);
    assert_int_equal(FRUGAL_ERR_PROCESS, frugal_open(&c.desc, &other)); /* the name is taken */
    assert_non_null(strstr(frugal_message(), c.name));
    frugal_close(other);
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

/* Names and settings that make no sense. */
static void test_names(void **state) {
    (void)state;
    crew c;
    frugal *f;
    char name[80];
    float matrix[CREW_ROWS * CREW_DIM];
    crew_init(&c, 1);
    memset(name, 'x', sizeof name);
    name[65] = 0;
    for (int i = 0; i < 4; i++) {
        frugal_desc d = c.desc;
        if (i == 0) d.name = "";
        if (i == 1) d.name = name;
        if (i == 2) d.workers = 0;
        if (i == 3) d.weights = matrix;
        assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_open(&d, &f));
        frugal_close(f);
    }
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_join(NULL, 1, &f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_join("", 1, &f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_join(name, 1, &f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_join("a", -1, &f));
    assert_int_equal(FRUGAL_ERR_ARGUMENT, frugal_join("a", 1, NULL));
    assert_int_equal(FRUGAL_ERR_PROCESS, frugal_join("nobody", 0.01, &f));
    assert_non_null(strstr(frugal_message(), "nobody"));
    frugal_close(f);
    name[64] = 0;
    c.desc.name = name;
    assert_int_equal(FRUGAL_OK, frugal_open(&c.desc, &f));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

/* Devices whose data ends, and processes that leave early: the others train on. */
static void test_ends(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        crew c;
        crew_init(&c, 100 + i);
        c.desc.devices = 3, c.desc.alone = ways[i % 3], c.desc.lookahead = i % 4;
        c.cache = (frugal_cpu_desc){.cache_rows = i % 2 ? 24 : 0, .policy = FRUGAL_CACHE_LRU};
        c.ends[1 + i % 2] = i < 6 ? 9 : 1, c.ends[0] = i % 4 == 3 ? 14 : 0;
        train_world(&c);
    }
}

/* Trains to step 8, and has announced more: steps are cancelled, and announced anew. Then rows are preloaded, counts
 * changed, holders released, by the process that opened. A pipe tells the child when to go on. */
static int pipes[2][2];

static void tell(int i) {
    if (write(pipes[i][1], "", 1) != 1) abort();
}
static void await(int i) {
    char byte;
    if (read(pipes[i][0], &byte, 1) != 1) abort();
}

static int train_in_parts(const crew *c) {
    frugal *f = join_or_exit(c, 1);
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    crew_reference(c, f, &ref);
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, 8, &wrong) == FRUGAL_OK && !wrong);
    for (; announced < 8 + c->desc.lookahead; announced++) EXPECT(crew_announce(c, &ref, f, 1, announced) == FRUGAL_OK);
    tell(0);
    await(1); /* cancelled */
    announced = 8;
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, 16, &wrong) == FRUGAL_OK && !wrong);
    tell(0);
    await(1); /* holders released, rows preloaded */
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, c->steps, &wrong) == FRUGAL_OK && !wrong);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_between_steps(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        crew c;
        reference ref;
        uint64_t step = 0, announced = 0, keys[30], counts[30];
        int wrong = 0;
        crew_init(&c, 200 + i);
        c.desc.alone = ways[i % 3], c.desc.lookahead = 1 + i % 3;
        c.cache = (frugal_cpu_desc){.cache_rows = 32, .policy = i % 2 ? FRUGAL_CACHE_COUNTED : FRUGAL_CACHE_LRU};
        if (pipe(pipes[0]) || pipe(pipes[1])) fail_msg("no pipe");
        pid_t child = fork_to(train_in_parts, &c);
        frugal *f = open_world(&c);
        crew_reference(&c, f, &ref);
        assert_int_equal(FRUGAL_OK, crew_train(&c, f, 0, &ref, &step, &announced, 8, &wrong));
        await(0);
        if (frugal_cancel(f, 8) != FRUGAL_OK) fail_msg("cancel: %s", frugal_message());
        announced = 8;
        tell(1);
        assert_int_equal(FRUGAL_OK, crew_train(&c, f, 0, &ref, &step, &announced, 16, &wrong));
        await(0);
        if (frugal_drain(f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
        assert_table(f, &ref);
        frugal_keys k = {.table = 0, .keys = keys, .n = 30};
        for (uint32_t r = 0; r < 30; r++) keys[r] = counts[r] = r;
        assert_int_equal(FRUGAL_OK, frugal_verify(f));
        assert_int_equal(FRUGAL_OK, frugal_set_counts(f, &k, counts));
        assert_int_equal(FRUGAL_OK, frugal_release_holders(f));
        assert_int_equal(FRUGAL_OK, frugal_preload(f, 1, &k)); /* in the other process's cache */
        assert_int_equal(FRUGAL_OK, frugal_verify(f));
        tell(1);
        assert_int_equal(FRUGAL_OK, crew_train(&c, f, 0, &ref, &step, &announced, c.steps, &wrong));
        assert_false(wrong);
        assert_int_equal(CREW_FINE, crew_wait(child));
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        assert_table(f, &ref);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        reference_close(&ref);
        for (int p = 0; p < 4; p++) close(pipes[p / 2][p % 2]);
    }
}

/* Rows are written between steps: the one device, of the other process, reads its copies of them anew. */
enum { ONE_STEPS = 8, ONE_WRITTEN = 3 };

/* Three of the rows that it has read, and reads in the next step, and one that nobody has read. */
static uint32_t rows_to_write(const crew *c, const reference *ref, uint64_t *keys, uint64_t *hits) {
    int seen[CREW_ROWS] = {0};
    crew_batch b;
    uint32_t n = 0;
    for (uint64_t step = 0; step < ONE_STEPS; step++) {
        crew_batch_of(c, ref, 0, step, &b);
        for (uint32_t i = 0; i < b.n; i++) seen[b.rows[i]] = 1;
    }
    crew_batch_of(c, ref, 0, ONE_STEPS, &b);
    *hits = 0;
    for (uint32_t i = 0; i < b.n; i++) {
        if (seen[b.rows[i]] != 1) continue;
        if (b.rows[i] < 40 && n < ONE_WRITTEN) keys[n++] = b.rows[i];
        ++*hits;
        seen[b.rows[i]] = 2;
    }
    for (uint32_t x = 0; x < 40 && n == ONE_WRITTEN; x++)
        if (!seen[x]) keys[n++] = x;
    return n;
}

static void write_to_reference(reference *ref, const uint64_t *keys, uint32_t n, float *weights) {
    for (uint32_t i = 0; i < n * CREW_DIM; i++) weights[i] = 10 + (float)i;
    for (uint32_t i = 0; i < n; i++)
        memcpy(ref->weights + keys[i] * CREW_DIM, weights + i * CREW_DIM, CREW_DIM * sizeof(float));
}

static int train_around_a_write(const crew *c) {
    frugal *f = join_or_exit(c, 0);
    reference ref;
    uint64_t step = 0, announced = 0, keys[ONE_WRITTEN + 1], hits;
    float weights[(ONE_WRITTEN + 1) * CREW_DIM];
    int wrong = 0;
    crew_reference(c, f, &ref);
    EXPECT(crew_train(c, f, 0, &ref, &step, &announced, ONE_STEPS, &wrong) == FRUGAL_OK && !wrong);
    tell(0);
    await(1); /* rows are written */
    write_to_reference(&ref, keys, rows_to_write(c, &ref, keys, &hits), weights);
    EXPECT(crew_train(c, f, 0, &ref, &step, &announced, ONE_STEPS + 1, &wrong) == FRUGAL_OK && !wrong);
    tell(0);
    await(1); /* the copies are verified, and counted */
    EXPECT(crew_train(c, f, 0, &ref, &step, &announced, c->steps, &wrong) == FRUGAL_OK && !wrong);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_written_between_steps(void **state) {
    (void)state;
    for (uint32_t i = 1; i < 3; i++) { /* not staged, where workers here write rows, after what the pipe orders */
        crew c;
        reference ref;
        uint64_t keys[ONE_WRITTEN + 1], hits;
        float weights[(ONE_WRITTEN + 1) * CREW_DIM];
        frugal_stats before, after;
        frugal *f;
        crew_init(&c, 260 + i);
        c.desc.devices = 1, c.desc.alone = ways[i];
        c.cache = (frugal_cpu_desc){.cache_rows = 1000, .policy = FRUGAL_CACHE_LRU};
        if (pipe(pipes[0]) || pipe(pipes[1])) fail_msg("no pipe");
        pid_t child = fork_to(train_around_a_write, &c);
        close(pipes[0][1]); /* so that the end of the child is noticed here */
        if (frugal_open(&c.desc, &f) != FRUGAL_OK) fail_msg("open: %s", frugal_message());
        crew_reference(&c, f, &ref);
        await(0);
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        for (uint64_t step = 0; step < ONE_STEPS; step++) crew_judge(&c, &ref, step);
        assert_int_equal(ONE_WRITTEN + 1, rows_to_write(&c, &ref, keys, &hits));
        write_to_reference(&ref, keys, ONE_WRITTEN + 1, weights);
        frugal_keys k = {.table = 0, .keys = keys, .n = ONE_WRITTEN + 1};
        if (frugal_write_rows(f, &k, weights, NULL) != FRUGAL_OK) fail_msg("write: %s", frugal_message());
        frugal_get_stats(f, &before);
        tell(1);
        await(0);
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        frugal_get_stats(f, &after);
        assert_int_equal(FRUGAL_OK, frugal_verify(f));
        assert_true(hits > 0);
        assert_int_equal(hits, after.hits - before.hits);
        tell(1);
        assert_int_equal(CREW_FINE, crew_wait(child));
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        for (uint64_t step = ONE_STEPS; step < c.steps; step++) crew_judge(&c, &ref, step);
        assert_table(f, &ref);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        reference_close(&ref);
        close(pipes[0][0]), close(pipes[1][0]), close(pipes[1][1]);
    }
}

/* The process that opened stops, or closes: the other is told, whatever it waits for. */
static int train_until_stopped(const crew *c) {
    frugal *f = join_or_exit(c, 1);
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    crew_reference(c, f, &ref);
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, c->steps, &wrong) == FRUGAL_STOPPED && !wrong);
    EXPECT(crew_announce(c, &ref, f, 1, announced) == FRUGAL_STOPPED);
    frugal_close(f);
    return CREW_FINE;
}

static void test_stop(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        crew c;
        reference ref;
        uint64_t step = 0, announced = 0;
        int wrong = 0;
        crew_init(&c, 300 + i);
        c.desc.alone = ways[i / 2], c.cache.cache_rows = 24;
        pid_t child = fork_to(train_until_stopped, &c);
        frugal *f = open_world(&c);
        crew_reference(&c, f, &ref);
        assert_int_equal(FRUGAL_OK, crew_train(&c, f, 0, &ref, &step, &announced, 3 + i, &wrong));
        if (i % 2) frugal_stop(f);
        if (i % 2) assert_int_equal(CREW_FINE, crew_wait(child));
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        if (i % 2 == 0) assert_int_equal(CREW_FINE, crew_wait(child));
        reference_close(&ref);
    }
}

/* A device fixes a step's learning rate for all processes. */
static int bring_another_rate(const crew *c) {
    frugal *f = join_or_exit(c, 1);
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    float rows[CREW_KEYS * CREW_DIM], grads[CREW_KEYS * CREW_DIM] = {0};
    crew_reference(c, f, &ref);
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, 2, &wrong) == FRUGAL_OK && !wrong);
    EXPECT(crew_announce(c, &ref, f, 1, announced) == FRUGAL_OK);
    EXPECT(frugal_lookup(f, 1, 2, rows) == FRUGAL_OK);
    await(1); /* the other has updated */
    EXPECT(frugal_update(f, 1, 2, &(frugal_gradients){.grads = grads, .lr = 7}) == FRUGAL_ERR_SETTINGS);
    EXPECT(frugal_update(f, 1, 2, &(frugal_gradients){.grads = grads, .lr = 0.5f, .scale = 2}) == FRUGAL_ERR_SETTINGS);
    EXPECT(frugal_update(f, 1, 2, &(frugal_gradients){.grads = grads, .lr = 0.5f}) == FRUGAL_OK);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_settings(void **state) {
    (void)state;
    crew c;
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    float rows[CREW_KEYS * CREW_DIM], grads[CREW_KEYS * CREW_DIM] = {0};
    crew_init(&c, 400);
    if (pipe(pipes[1])) fail_msg("no pipe");
    pid_t child = fork_to(bring_another_rate, &c);
    frugal *f = open_world(&c);
    crew_reference(&c, f, &ref);
    assert_int_equal(FRUGAL_OK, crew_train(&c, f, 0, &ref, &step, &announced, 2, &wrong));
    assert_int_equal(FRUGAL_OK, crew_announce(&c, &ref, f, 0, announced));
    assert_int_equal(FRUGAL_OK, frugal_lookup(f, 0, 2, rows));
    assert_int_equal(FRUGAL_OK, frugal_update(f, 0, 2, &(frugal_gradients){.grads = grads, .lr = 0.5f}));
    tell(1);
    assert_int_equal(CREW_FINE, crew_wait(child));
    assert_int_equal(FRUGAL_OK, frugal_drain(f));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    reference_close(&ref);
    close(pipes[1][0]), close(pipes[1][1]);
}

/* Two instances of other dims share workers; the other process trains a device of each. */
static crew pair[2];

static int train_pair(const crew *c) {
    (void)c;
    frugal *f[2];
    reference ref[2];
    uint64_t step[2] = {0, 0}, announced[2] = {0, 0};
    int wrong = 0;
    for (int i = 0; i < 2; i++) {
        f[i] = join_or_exit(&pair[i], 1);
        crew_reference(&pair[i], f[i], &ref[i]);
    }
    for (uint64_t to = 1; to <= pair[0].steps; to++)
        for (int i = 0; i < 2; i++)
            EXPECT(crew_train(&pair[i], f[i], 1, &ref[i], &step[i], &announced[i], to, &wrong) == FRUGAL_OK && !wrong);
    for (int i = 0; i < 2; i++) EXPECT(frugal_close(f[i]) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_shared_workers(void **state) {
    (void)state;
    frugal_workers *workers;
    frugal *f[2];
    reference ref[2];
    uint64_t step[2] = {0, 0}, announced[2] = {0, 0};
    int wrong = 0;
    for (uint32_t i = 0; i < 2; i++) {
        crew_init(&pair[i], 500 + i);
        pair[i].desc.tables = pair[i].tables, pair[i].desc.name = pair[i].name;
        pair[i].desc.optimizer.kind = i ? FRUGAL_ADAM : FRUGAL_ROWWISE_ADAGRAD, pair[i].desc.workers = 0;
        pair[i].desc.alone = i ? FRUGAL_ALONE_KEPT : FRUGAL_ALONE_PLACE, pair[i].cache.cache_rows = 24;
    }
    pid_t child = fork_to(train_pair, &pair[0]);
    assert_int_equal(FRUGAL_OK, frugal_workers_open(2, &workers));
    for (int i = 0; i < 2; i++) {
        pair[i].desc.shared_workers = workers;
        f[i] = open_world(&pair[i]);
        crew_reference(&pair[i], f[i], &ref[i]);
    }
    for (uint64_t to = 1; to <= pair[0].steps; to++)
        for (int i = 0; i < 2; i++)
            assert_int_equal(FRUGAL_OK, crew_train(&pair[i], f[i], 0, &ref[i], &step[i], &announced[i], to, &wrong));
    assert_false(wrong);
    assert_int_equal(CREW_FINE, crew_wait(child));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(FRUGAL_OK, frugal_drain(f[i]));
        assert_table(f[i], &ref[i]);
        assert_int_equal(FRUGAL_OK, frugal_close(f[i]));
        reference_close(&ref[i]);
    }
    assert_int_equal(FRUGAL_OK, frugal_workers_close(workers));
}

/* The table in a file: the other process maps the file, and the lock stays with the process that opened. */
static void test_file(void **state) {
    (void)state;
    char path[] = "/tmp/test_processes.XXXXXX";
    crew c;
    frugal *f;
    int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    for (int i = 0; i < 6; i++) {
        const frugal_type type = (frugal_type)(i / 2);
        crew_init(&c, 600);
        unlink(path);
        c.desc.file = path, c.desc.alone = i % 2 ? FRUGAL_ALONE_PLACE : FRUGAL_ALONE_STAGED, c.desc.rows_as = type;
        if (i == 4) c.desc.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD; /* its state lies behind all weights */
        train_world(&c);
        crew_init(&c, 600); /* it is clean: it opens again, with the next step */
        c.desc.file = path, c.desc.first_step = c.steps, c.desc.rows_as = type;
        if (i == 4) c.desc.optimizer.kind = FRUGAL_ROWWISE_ADAGRAD;
        if (frugal_open(&c.desc, &f) != FRUGAL_OK) fail_msg("open again: %s", frugal_message());
        assert_int_equal(FRUGAL_OK, frugal_close(f));
    }
    unlink(path);
}

/* A cancel waits for batches that workers are announcing for others, and drops those that nobody has taken. */
enum { MANY = 60000 };

static frugal_desc many_desc(const crew *c, frugal_table *table) {
    frugal_desc d = c->desc;
    *table = (frugal_table){.rows = MANY};
    d.tables = table, d.n_tables = 1, d.max_keys = MANY;
    return d;
}

static frugal_status announce_many(frugal *f, uint32_t d, uint64_t step) {
    static uint64_t keys[MANY];
    for (uint32_t i = 0; i < MANY; i++) keys[i] = (i * 7919ull + step + d) % MANY;
    frugal_keys k = {.table = 0, .keys = keys, .n = MANY};
    return frugal_announce(f, d, step, &(frugal_batch){&k, 1, 0});
}

static int announce_and_wait(const crew *c) {
    frugal *f = join_or_exit(c, 1);
    for (int i = 0; i < 20; i++) {
        for (uint64_t t = 0; t <= c->desc.lookahead; t++) EXPECT(announce_many(f, 1, t) == FRUGAL_OK);
        tell(0);
        await(1);
    }
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_cancel_many(void **state) {
    (void)state;
    crew c;
    frugal *f;
    frugal_table table;
    crew_init(&c, 800);
    c.desc = many_desc(&c, &table);
    if (pipe(pipes[0]) || pipe(pipes[1])) fail_msg("no pipe");
    pid_t child = fork_to(announce_and_wait, &c);
    f = open_world(&c);
    for (int i = 0; i < 20; i++) {
        if (i % 2) assert_int_equal(FRUGAL_OK, announce_many(f, 0, 0));
        await(0);
        if (frugal_cancel(f, 0) != FRUGAL_OK) fail_msg("cancel: %s", frugal_message());
        assert_int_equal(FRUGAL_OK, frugal_drain(f));
        tell(1);
    }
    assert_int_equal(CREW_FINE, crew_wait(child));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    for (int p = 0; p < 4; p++) close(pipes[p / 2][p % 2]);
}

/* A device is driven by its own process alone. */
static int only_attach(const crew *c) {
    frugal *f = join_or_exit(c, 1);
    tell(0);
    await(1);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_own_devices(void **state) {
    (void)state;
    crew c;
    float row[CREW_DIM];
    double squares;
    frugal_records records;
    crew_init(&c, 810);
    if (pipe(pipes[0]) || pipe(pipes[1])) fail_msg("no pipe");
    pid_t child = fork_to(only_attach, &c);
    frugal *f = open_world(&c);
    await(0);
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_announce(f, 1, 0, &(frugal_batch){.n_segments = 0}));
    assert_non_null(strstr(frugal_message(), "another process"));
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_lookup(f, 1, 0, row));
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_update(f, 1, 0, NULL));
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_get_records(f, 1, 0, &records));
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_sum_squares(f, 1, 0, NULL, &squares));
    assert_int_equal(FRUGAL_ERR_DEVICE, frugal_finish(f, 1));
    tell(1);
    assert_int_equal(CREW_FINE, crew_wait(child));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    for (int p = 0; p < 4; p++) close(pipes[p / 2][p % 2]);
}

static int count_texts(const char *in, const char *what) {
    int n = 0;
    for (; (in = strstr(in, what)); in++) n++;
    return n;
}

/* What a process that has joined does is in a trace of its own. */
static int trace_training(const crew *c) {
    static char text[1 << 16];
    char path[] = "/tmp/frugal_traced_XXXXXX";
    int file = mkstemp(path), wrong = 0;
    frugal *f = join_or_exit(c, 1);
    reference ref;
    uint64_t step = 0, announced = 0;
    crew_reference(c, f, &ref);
    EXPECT(file >= 0 && frugal_trace_start(f, 64) == FRUGAL_OK);
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, c->steps, &wrong) == FRUGAL_OK && !wrong);
    EXPECT(frugal_trace_write(f, path) == FRUGAL_OK);
    close(file), file = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0 && read(file, text, sizeof text - 1) > 0 && !close(file) && !unlink(path));
    EXPECT(count_texts(text, "\"name\":\"announce\"") == (int)c->steps);
    EXPECT(count_texts(text, "\"name\":\"lookup\"") == (int)c->steps);
    EXPECT(count_texts(text, "\"name\":\"update\"") == (int)c->steps);
    EXPECT(count_texts(text, "\"keys\":") == 3 * (int)c->steps);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_traced(void **state) {
    (void)state;
    crew c;
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    crew_init(&c, 815);
    c.steps = 6;
    pid_t child = fork_to(trace_training, &c);
    frugal *f = open_world(&c);
    crew_reference(&c, f, &ref);
    assert_int_equal(FRUGAL_OK, crew_train(&c, f, 0, &ref, &step, &announced, c.steps, &wrong));
    assert_int_equal(CREW_FINE, crew_wait(child));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
    reference_close(&ref);
}

/* A process that leaves while it has announced more is a loss to the others, but no row of it is lost. */
static int leave_early(const crew *c) {
    frugal *f = join_or_exit(c, 1);
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    crew_reference(c, f, &ref);
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, 6, &wrong) == FRUGAL_OK && !wrong);
    EXPECT(crew_announce(c, &ref, f, 1, announced) == FRUGAL_OK);
    await(1); /* until the other has trained the step */
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_leaves_early(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        crew c;
        reference ref;
        uint64_t step = 0, announced = 0;
        int wrong = 0;
        crew_init(&c, 820 + i);
        c.desc.alone = ways[i], c.cache.cache_rows = 24;
        if (pipe(pipes[1])) fail_msg("no pipe");
        pid_t child = fork_to(leave_early, &c);
        frugal *f = open_world(&c);
        crew_reference(&c, f, &ref);
        assert_int_equal(FRUGAL_OK, crew_train(&c, f, 0, &ref, &step, &announced, 6, &wrong));
        tell(1);
        assert_int_equal(CREW_FINE, crew_wait(child));
        assert_int_equal(FRUGAL_ERR_LOST, crew_train(&c, f, 0, &ref, &step, &announced, c.steps, &wrong));
        assert_non_null(strstr(frugal_message(), "left"));
        if (frugal_drain(f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
        assert_table(f, &ref);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        reference_close(&ref);
        close(pipes[1][0]), close(pipes[1][1]);
    }
}

/* An open that fails because the name is taken leaves no file behind. */
static void test_taken_name_and_file(void **state) {
    (void)state;
    char path[64];
    crew c;
    frugal *f, *other;
    crew_init(&c, 830);
    snprintf(path, sizeof path, "/tmp/test_processes.%ld", (long)getpid());
    f = open_world(&c);
    frugal_desc d = c.desc;
    d.file = path;
    assert_int_equal(FRUGAL_ERR_PROCESS, frugal_open(&d, &other));
    frugal_close(other);
    assert_int_equal(-1, access(path, F_OK));
    assert_int_equal(FRUGAL_OK, frugal_close(f));
}

/* A process that ends while a child that it has forked against the rules still holds its sockets is noticed all the
 * same. The child ends when nobody has the other end of a pipe. */
static void fork_holder(void) {
    char byte;
    close(pipes[1][1]);
    if (fork() != 0) return;
    if (read(pipes[1][0], &byte, 1) != 0) abort();
    _exit(0);
}

static int end_with_a_holder(const crew *c) {
    join_or_exit(c, 1);
    fork_holder();
    return CREW_FINE; /* without closing */
}

static int open_and_end_with_a_holder(const crew *c) {
    frugal *f;
    EXPECT(frugal_open(&c->desc, &f) == FRUGAL_OK);
    await(0); /* the other has its device */
    fork_holder();
    return CREW_FINE;
}

static void test_held_sockets(void **state) {
    (void)state;
    for (int opens = 0; opens < 2; opens++) {
        crew c;
        frugal *f;
        reference ref;
        uint64_t step = 0, announced = 0;
        int wrong = 0;
        crew_init(&c, 860);
        if (pipe(pipes[0]) || pipe(pipes[1])) fail_msg("no pipe");
        pid_t child = fork_to(opens ? open_and_end_with_a_holder : end_with_a_holder, &c);
        if (opens)
            f = join_or_exit(&c, 1), tell(0);
        else
            f = open_world(&c);
        crew_reference(&c, f, &ref);
        assert_int_equal(CREW_FINE, crew_wait(child));
        frugal_status status = crew_train(&c, f, opens ? 1 : 0, &ref, &step, &announced, c.steps, &wrong);
        if (status != FRUGAL_ERR_LOST) fail_msg("opens: %d: %d: %s", opens, (int)status, frugal_message());
        assert_non_null(strstr(frugal_message(), "has ended"));
        assert_true(step == 0 && !wrong);
        close(pipes[1][1]);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        reference_close(&ref);
        for (int p = 0; p < 3; p++) close(pipes[p / 2][p % 2]);
    }
}

/* Of a process that dies after the end of its data nothing is missed: the other trains on. If it has announced nothing,
 * and nothing has ended, it is. */
static int die(const crew *c) {
    frugal *f = join_or_exit(c, 1);
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    crew_reference(c, f, &ref);
    if (c->ends[1]) EXPECT(crew_train(c, f, 1, &ref, &step, &announced, c->ends[1], &wrong) == FRUGAL_OK && !wrong);
    kill(getpid(), SIGKILL);
    return CREW_WRONG;
}

static void test_deaths_between_steps(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        crew c;
        reference ref;
        uint64_t step = 0, announced = 0;
        int wrong = 0;
        crew_init(&c, 870 + i);
        c.desc.alone = i % 2 ? FRUGAL_ALONE_STAGED : FRUGAL_ALONE_PLACE;
        c.ends[1] = i / 2 * 5; /* 0: not there */
        pid_t child = fork_to(die, &c);
        frugal *f = open_world(&c);
        crew_reference(&c, f, &ref);
        frugal_status status = crew_train(&c, f, 0, &ref, &step, &announced, c.steps, &wrong);
        assert_int_equal(-1, crew_wait(child));
        assert_int_equal(c.ends[1] ? FRUGAL_OK : FRUGAL_ERR_LOST, status);
        assert_true(step == (c.ends[1] ? c.steps : 0) && !wrong);
        if (!c.ends[1]) assert_non_null(strstr(frugal_message(), "has ended"));
        if (frugal_drain(f) != FRUGAL_OK) fail_msg("drain: %s", frugal_message());
        assert_table(f, &ref);
        assert_int_equal(FRUGAL_OK, frugal_close(f));
        reference_close(&ref);
    }
}

/* Calls that ask each device are made while another process attaches its. */
static int attach_and_wait(const crew *c) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever ends the test */
    frugal *f = join_or_exit(c, 1);
    while (!*c->attached) usleep(1000);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_attaching(void **state) {
    (void)state;
    uint64_t key = 0;
    frugal_keys k = {.table = 0, .keys = &key, .n = 1};
    _Atomic(int) *seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(seen != MAP_FAILED);
    for (uint32_t i = 0; i < 10; i++) {
        crew c;
        crew_init(&c, 840 + i);
        c.cache.cache_rows = 16, c.attached = seen, *seen = 0;
        pid_t child = fork_to(attach_and_wait, &c);
        frugal *f = open_world(&c);
        frugal_status status;
        while ((status = frugal_preload(f, 1, &k)) == FRUGAL_ERR_DEVICE) {
            assert_int_equal(FRUGAL_OK, frugal_verify(f));
            assert_int_equal(FRUGAL_OK, frugal_drain(f));
            assert_int_equal(FRUGAL_OK, frugal_release_holders(f));
            assert_int_equal(FRUGAL_OK, frugal_cancel(f, 0));
            assert_int_equal(FRUGAL_ERR_DEVICE, frugal_try_announce(f, 1, 0, &(frugal_batch){&k, 1, 0}));
            assert_int_equal(0, waitpid(child, NULL, WNOHANG));
        }
        assert_int_equal(FRUGAL_ERR_DEVICE, frugal_try_announce(f, 1, 0, &(frugal_batch){&k, 1, 0}));
        assert_int_equal(FRUGAL_OK, status);
        *seen = 1;
        assert_int_equal(CREW_FINE, crew_wait(child));
        assert_int_equal(FRUGAL_OK, frugal_close(f));
    }
    munmap(seen, sizeof *seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),          cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_ends),
        cmocka_unit_test(test_between_steps), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_one_device),    cmocka_unit_test(test_written_between_steps),
        cmocka_unit_test(test_settings),      cmocka_unit_test(test_shared_workers),
        cmocka_unit_test(test_file),          cmocka_unit_test(test_cancel_many),
        cmocka_unit_test(test_own_devices),   cmocka_unit_test(test_traced),
        cmocka_unit_test(test_leaves_early),  cmocka_unit_test(test_taken_name_and_file),
        cmocka_unit_test(test_held_sockets),  cmocka_unit_test(test_deaths_between_steps),
        cmocka_unit_test(test_attaching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
