/* test_cuda_processes.c - a GPU for each process: the table that processes share is pinned by each for its own, and
 * GPUs run ahead of the host as in one process.
 *
 * CUDA does not work in a process whose parent has used it, so each world begins in a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "frugal_cuda.h"
#include "frugal_seeing.h"
#include "tests/crew.h"
#include "tests/cuda/gpu.h"
#include "tests/seed.h"

enum { RING = 4, FLOATS = CREW_KEYS * CREW_DIM };

static gpu *gpus[CREW_DEVICES]; /* of this process, with RING arrays each */
static int on_stream;           /* streams wait for gates */
static int here[2], there[2];   /* pipes: to the process that opened, to the other one */

static void tell(const int *pipe) {
    if (write(pipe[1], "", 1) != 1) abort();
}

/* 0: the other side has ended before it told. */
static int await(const int *pipe) {
    char byte;
    return read(pipe[0], &byte, 1) == 1;
}

static int ordinal_of(uint32_t d) {
    return (int)d % gpu_count();
}

static frugal_status attach_gpu(const crew *c, frugal *f, uint32_t d) {
    gpus[d] = gpu_open(ordinal_of(d), RING * FLOATS, CREW_KEYS + 1, 0);
    frugal_cuda_desc desc = {.cache_rows = c->cache.cache_rows,
                             .policy = c->cache.policy,
                             .stream = gpu_stream(gpus[d]),
                             .gate_on_stream = on_stream};
    return frugal_cuda_attach(f, d, ordinal_of(d), &desc);
}

static frugal_status lookup_gpu(frugal *f, uint32_t d, uint64_t step, float *rows) {
    frugal_status status = frugal_lookup(f, d, step, gpu_rows(gpus[d]));
    if (status == FRUGAL_OK) gpu_get(gpus[d], rows, gpu_rows(gpus[d]), sizeof(float) * FLOATS);
    return status;
}

static frugal_status update_gpu(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    frugal_gradients there = *gradients;
    if (gradients->grads) {
        gpu_put(gpus[d], gpu_grads(gpus[d]), gradients->grads, sizeof(float) * FLOATS);
        there.grads = gpu_grads(gpus[d]);
    }
    return frugal_update(f, d, step, &there);
}

static const crew_device on_gpu = {attach_gpu, lookup_gpu, update_gpu};
static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};

/* Trains the device of this process. Returns what is wrong; NULL: nothing. */
static const char *train_opener(const crew *c, pid_t child) {
    static float weights[CREW_ROWS * CREW_DIM], state[CREW_ROWS * CREW_DIM * 2];
    reference ref;
    frugal *f;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    if (frugal_open(&c->desc, &f) != FRUGAL_OK) return frugal_message();
    crew_reference(c, f, &ref);
    if (crew_attach(c, f, 0) != FRUGAL_OK) return frugal_message();
    if (crew_train(c, f, 0, &ref, &step, &announced, c->steps, &wrong) != FRUGAL_OK) return frugal_message();
    if (wrong) return "a row differs";
    if (crew_wait(child) != CREW_FINE) return "the other process failed";
    if (frugal_drain(f) != FRUGAL_OK) return frugal_message();
    if (!crew_equals(f, &ref, weights, state)) return "the table differs from the reference";
    if (frugal_verify(f) != FRUGAL_OK) return frugal_message();
    frugal_close(f);
    reference_close(&ref);
    if (gpus[0]) gpu_close(gpus[0]);
    return NULL;
}

/* Bits of `i`: which devices are on GPUs. Returns how the process of the world shall end. */
static int train_world(uint32_t i) {
    crew c;
    crew_init(&c, 700 + i);
    on_stream = i / 2 % 2;
    c.desc.alone = ways[i % 3], c.desc.lookahead = i % 4,
    c.desc.optimizer.kind = (frugal_optimizer_kind)(i / 3 % FRUGAL_OPTIMIZER_KINDS);
    c.desc.rows_as = (frugal_type)(i / 5 % 3);
    c.cache =
        (frugal_cpu_desc){.cache_rows = i % 5 ? 24 : 0, .policy = i % 2 ? FRUGAL_CACHE_LRU : FRUGAL_CACHE_COUNTED};
    for (uint32_t d = 0; d < 2; d++) c.kinds[d] = (i % 3 + 1) >> d & 1 ? &on_gpu : NULL;
    pid_t child = crew_fork(&c, 1);
    const char *wrong = train_opener(&c, child);
    if (wrong) fprintf(stderr, "# world %u: %s\n", (unsigned)i, wrong);
    return wrong ? CREW_WRONG : CREW_FINE;
}

/* Worlds 0 to n - 1, or, in a short run, and where FRUGAL_TEST_COUNT is too few for them, one in five. A GPU takes a
 * second to begin each. */
static uint32_t next_world(uint32_t i, uint32_t n) {
    const char *count = getenv("FRUGAL_TEST_COUNT");
    return i + (test_is_short() || (count && strtoul(count, NULL, 10) < n) ? 5 : 1);
}

static void run_world(int (*world)(uint32_t i), uint32_t i, int wanted) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(world(i));
    int how = crew_wait(child);
    if (how != wanted) fail_msg("world %u has ended with %d", (unsigned)i, how);
}

static void test_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 24; i = next_world(i, 24)) run_world(train_world, i, CREW_FINE);
}

/* >>ahead */

/* Joins with device 1, which is on a GPU whose stream waits for gates. */
static int join_on_gpu(const crew *c, frugal **f, reference *ref) {
    EXPECT(frugal_join(c->name, 30, f) == FRUGAL_OK);
    crew_reference(c, *f, ref);
    EXPECT(attach_gpu(c, *f, 1) == FRUGAL_OK);
    return CREW_FINE;
}

static float *rows_at(uint64_t step) {
    return gpu_rows(gpus[1]) + step % RING * FLOATS;
}
static float *grads_at(uint64_t step) {
    return gpu_grads(gpus[1]) + step % RING * FLOATS;
}

/* Steps are given to the GPU before the other process has looked up step 0: all of them, or two if rows are kept,
 * because what is recalled for step 2 is asked for behind the gate of step 1. */
static int run_ahead(const crew *c) {
    frugal *f;
    reference ref, later;
    float rows[FLOATS];
    EXPECT(join_on_gpu(c, &f, &ref) == CREW_FINE);
    crew_reference(c, f, &later);
    for (uint64_t t = 0; t < RING; t++) {
        crew_batch b;
        crew_batch_of(c, &ref, 1, t, &b);
        gpu_put(gpus[1], grads_at(t), b.grads, sizeof b.grads);
        crew_judge(c, &ref, t);
    }
    for (uint64_t t = 0; t < RING; t++) EXPECT(crew_announce(c, &ref, f, 1, t) == FRUGAL_OK);
    for (uint64_t t = 0, ahead = c->desc.alone == FRUGAL_ALONE_KEPT ? 2 : RING; t < RING; t++) {
        if (t == ahead) tell(here);
        EXPECT(frugal_lookup(f, 1, t, rows_at(t)) == FRUGAL_OK);
        EXPECT(frugal_update(f, 1, t, &(frugal_gradients){.grads = grads_at(t), .lr = crew_lr(t)}) == FRUGAL_OK);
    }
    if (c->desc.alone != FRUGAL_ALONE_KEPT) tell(here);
    for (uint64_t t = 0; t < RING; t++) {
        crew_batch b;
        crew_batch_of(c, &later, 1, t, &b);
        gpu_get(gpus[1], rows, rows_at(t), sizeof rows);
        for (uint32_t i = 0; i < b.n; i++)
            EXPECT(!memcmp(rows + i * CREW_DIM, later.weights + b.rows[i] * CREW_DIM, sizeof(float) * CREW_DIM));
        crew_judge(c, &later, t);
    }
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

/* How the other process ends, or training does, while its GPU waits for the gate of step 3. */
typedef enum { STOPPED, STOPS_ITSELF, LEAVES, KILLED, LEFT_ALONE, ENDS } outcome;

static int wait_at_gate(const crew *c, outcome how) {
    frugal *f;
    reference ref;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    float none[FLOATS] = {0};
    EXPECT(join_on_gpu(c, &f, &ref) == CREW_FINE);
    EXPECT(crew_train(c, f, 1, &ref, &step, &announced, 3, &wrong) == FRUGAL_OK && !wrong);
    gpu_put(gpus[1], grads_at(3), none, sizeof none);
    EXPECT(crew_announce(c, &ref, f, 1, 3) == FRUGAL_OK);
    EXPECT(frugal_lookup(f, 1, 3, rows_at(3)) == FRUGAL_OK);
    if (how != LEAVES) EXPECT(frugal_update(f, 1, 3, &(frugal_gradients){.grads = grads_at(3), .lr = 1}) == FRUGAL_OK);
    tell(here);
    if (how == KILLED) pause();
    if (how == STOPS_ITSELF) frugal_stop(f);
    if (how != LEAVES) gpu_wait(gpus[1]); /* which does not last */
    if (how == STOPPED) EXPECT(crew_announce(c, &ref, f, 1, 4) == FRUGAL_STOPPED);
    if (how == LEFT_ALONE) EXPECT(crew_announce(c, &ref, f, 1, 4) == FRUGAL_ERR_LOST);
    if (how == STOPPED) await(there); /* the other side drains */
    EXPECT(frugal_close(f) == FRUGAL_OK);
    if (how == LEFT_ALONE) tell(here);
    return CREW_FINE;
}

static pid_t fork_other(const crew *c, int ahead, outcome how) {
    if (pipe(here) || pipe(there)) abort();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(here[0]), close(there[1]);
        _exit(ahead ? run_ahead(c) : wait_at_gate(c, how));
    }
    close(here[1]), close(there[0]);
    return child;
}

/* Device 0 is on host cores, or on a GPU. */
static void choose_world(crew *c, uint32_t i) {
    crew_init(c, 800 + i);
    on_stream = 1;
    c->desc.alone = ways[i % 3], c->desc.stuck_seconds = 10;
    c->cache = (frugal_cpu_desc){.cache_rows = 24, .policy = FRUGAL_CACHE_LRU};
    c->kinds[0] = i / 3 % 2 ? &on_gpu : NULL, c->kinds[1] = &on_gpu;
}

static int world_ahead(uint32_t i) {
    static float weights[CREW_ROWS * CREW_DIM], state[CREW_ROWS * CREW_DIM * 2];
    crew c;
    reference ref;
    frugal *f;
    uint64_t step = 0, announced = RING;
    int wrong = 0;
    choose_world(&c, i);
    c.desc.lookahead = RING;
    pid_t child = fork_other(&c, 1, ENDS);
    EXPECT(frugal_open(&c.desc, &f) == FRUGAL_OK);
    crew_reference(&c, f, &ref);
    EXPECT(crew_attach(&c, f, 0) == FRUGAL_OK);
    for (uint64_t t = 0; t < RING; t++) EXPECT(crew_announce(&c, &ref, f, 0, t) == FRUGAL_OK);
    EXPECT(await(here));
    EXPECT(crew_train(&c, f, 0, &ref, &step, &announced, RING, &wrong) == FRUGAL_OK && !wrong);
    EXPECT(crew_wait(child) == CREW_FINE);
    EXPECT(frugal_drain(f) == FRUGAL_OK);
    EXPECT(crew_equals(f, &ref, weights, state));
    EXPECT(frugal_verify(f) == FRUGAL_OK);
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

/* Steps 0 and 1 are committed. The rows that the other device touches in step 2 may be those of step 2. */
static int is_drained(const crew *c, frugal *f, const reference *ref) {
    static float weights[CREW_ROWS * CREW_DIM], state[CREW_ROWS * CREW_DIM * 2];
    uint8_t may[CREW_ROWS] = {0};
    frugal_stats stats;
    crew_batch b;
    frugal_get_stats(f, &stats);
    crew_batch_of(c, ref, 1, 2, &b);
    for (uint32_t i = 0; i < b.n && c->desc.alone != FRUGAL_ALONE_STAGED; i++) may[b.rows[i]] = 1;
    crew_equals(f, ref, weights, state); /* reads */
    for (uint32_t row = 0; row < CREW_ROWS; row++)
        if (!may[row] && memcmp(weights + row * CREW_DIM, ref->weights + row * CREW_DIM, sizeof(float) * CREW_DIM))
            return 0;
    return stats.steps == 2;
}

static int world_ends(uint32_t i) {
    outcome how = (outcome)(i / 6);
    crew c;
    reference ref;
    frugal *f;
    uint64_t step = 0, announced = 0;
    int wrong = 0;
    choose_world(&c, i);
    pid_t child = fork_other(&c, 0, how);
    EXPECT(frugal_open(&c.desc, &f) == FRUGAL_OK);
    crew_reference(&c, f, &ref);
    EXPECT(crew_attach(&c, f, 0) == FRUGAL_OK);
    EXPECT(crew_train(&c, f, 0, &ref, &step, &announced, 2, &wrong) == FRUGAL_OK && !wrong);
    for (uint64_t t = 2; t < 4; t++) EXPECT(crew_announce(&c, &ref, f, 0, t) == FRUGAL_OK);
    EXPECT(await(here));
    if (how == LEFT_ALONE) kill(getpid(), SIGKILL);
    if (how == KILLED) kill(child, SIGKILL);
    if (how == STOPPED) frugal_stop(f);
    frugal_status status = FRUGAL_OK;
    while (how != STOPPED && status != FRUGAL_ERR_LOST) { /* it is noticed */
        usleep(1000);
        status = frugal_lookup(f, 0, 2, c.kinds[0] ? gpu_rows(gpus[0]) : (float[FLOATS]){0});
        EXPECT(status == FRUGAL_OK || status == FRUGAL_ERR_LOST);
    }
    status = frugal_drain(f);
    int keeps = c.desc.alone == FRUGAL_ALONE_KEPT && how == KILLED;
    int busy = c.desc.alone != FRUGAL_ALONE_STAGED && how == STOPPED; /* in the middle of step 2, or it is not done */
    EXPECT(status == FRUGAL_OK || (busy && status == FRUGAL_ERR_BUSY) || (keeps && status == FRUGAL_ERR_LOST));
    if (status == FRUGAL_OK) EXPECT(is_drained(&c, f, &ref));
    if (how == STOPPED) tell(there);
    EXPECT(crew_wait(child) == (how == KILLED ? -1 : CREW_FINE));
    EXPECT(frugal_close(f) == FRUGAL_OK);
    return CREW_FINE;
}

static void test_ahead(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) run_world(world_ahead, i, CREW_FINE);
}

static void test_ends(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6 * ENDS; i = next_world(i, 6 * ENDS))
        run_world(world_ends, i, i / 6 == LEFT_ALONE ? -1 : CREW_FINE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_ahead),
                                       cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
