/* test_cuda_faults.c - what may befall a training on two GPUs: one of them is lost, the process is killed, the process
 * forks, as a DataLoader does. On a GPU (tests/cuda/run) or on the host (cuda_on_host.h).
 *
 * CUDA does not work in a process whose parent has used it, so each training is in a process of its own. The devices
 * are on the GPUs that FRUGAL_GPUS lists, by turns; else on all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "frugal_cuda.h"
#include "../sanitizers.h"
#include "../support.h"
#include "gpu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES = 2, ROWS = 256, DIM = 8, PAGE = 4096, STEPS = 60, LOOKAHEAD = 3, SECONDS = 60 };
enum { FINE = 0, WRONG = 1 }; /* how a process ends */

typedef struct training {
    frugal *f;
    gpu *g[DEVICES];
    float *weights; /* [ROWS][DIM], 0 at first; each update adds 1 */
    uint64_t announced, updates[STEPS + 1][ROWS];
} training;

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (condition) break;                                                                                          \
        fprintf(stderr, "# line %d: %s: ", __LINE__, #condition);                                                      \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fprintf(stderr, "\n");                                                                                         \
        _exit(WRONG);                                                                                                  \
    } while (0)
#define WORKS(call) EXPECT((call) == FRUGAL_OK, "%s", frugal_message())

static int is_of(uint64_t row, uint32_t device, uint64_t step) { /* rows of one device, and of both */
    return test_mix3(row, device, step) % 3 == 0;
}

static uint32_t keys_of(uint32_t device, uint64_t step, uint64_t keys[ROWS]) {
    uint32_t n = 0;
    for (uint64_t row = 0; row < ROWS; row++)
        if (is_of(row, device, step)) keys[n++] = row;
    return n;
}

static int ordinal_of(uint32_t device) {
    const char *list = getenv("FRUGAL_GPUS");
    for (uint32_t i = 0; list && i < device && strchr(list, ','); i++) list = strchr(list, ',') + 1;
    return list ? atoi(list) : (int)device % gpu_count();
}

static void open_training(training *t, frugal_alone alone) {
    static float ones[ROWS * DIM];
    memset(t, 0, sizeof *t);
    EXPECT(gpu_count() > 0, "no GPU");
    t->weights = aligned_alloc(PAGE, (ROWS * DIM * sizeof(float) + PAGE - 1) / PAGE * PAGE);
    EXPECT(t->weights != NULL, "no memory");
    frugal_table table = {.rows = ROWS, .init = FRUGAL_INIT_ZERO};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = DIM,
                        .devices = DEVICES,
                        .max_keys = ROWS,
                        .lookahead = LOOKAHEAD,
                        .workers = 2,
                        .alone = alone,
                        .weights = t->weights,
                        .weights_stride = DIM,
                        .stuck_seconds = SECONDS / 2};
    WORKS(frugal_open(&desc, &t->f));
    for (uint32_t i = 0; i < ROWS * DIM; i++) ones[i] = -1;
    for (uint32_t d = 0; d < DEVICES; d++) {
        t->g[d] = gpu_open(ordinal_of(d), ROWS * DIM, ROWS * DIM, 0);
        gpu_put(t->g[d], gpu_words(t->g[d]), ones, sizeof ones);
        gpu_keep(t->g[d], 1);
        WORKS(frugal_cuda_attach(t->f, d, ordinal_of(d),
                                 &(frugal_cuda_desc){.cache_rows = 64, .stream = gpu_stream(t->g[d])}));
    }
    for (uint64_t s = 0; s < STEPS; s++)
        for (uint64_t row = 0; row < ROWS; row++)
            t->updates[s + 1][row] = t->updates[s][row] + (uint64_t)(is_of(row, 0, s) + is_of(row, 1, s));
}

/* FRUGAL_OK, or what a call of a device returned: the others are tried, too. */
static frugal_status run_step(training *t, uint64_t step) {
    frugal_status status = FRUGAL_OK;
    for (; t->announced < STEPS && t->announced <= step + LOOKAHEAD && status == FRUGAL_OK; t->announced++)
        for (uint32_t d = 0; d < DEVICES && status == FRUGAL_OK; d++) {
            uint64_t keys[ROWS];
            frugal_keys all = {.table = 0, .keys = keys, .n = keys_of(d, t->announced, keys)};
            status = frugal_announce(t->f, d, t->announced, &(frugal_batch){&all, 1, 0});
        }
    for (uint32_t d = 0; d < DEVICES && status == FRUGAL_OK; d++) {
        frugal_gradients g = {.grads = (const float *)(const void *)gpu_words(t->g[d]), .lr = 1};
        status = frugal_lookup(t->f, d, step, gpu_rows(t->g[d]));
        if (status == FRUGAL_OK && !gpu_try_train(t->g[d], NULL, DIM)) status = FRUGAL_ERR_CUDA; /* the caller's own */
        if (status == FRUGAL_OK) status = frugal_update(t->f, d, step, &g);
    }
    return status;
}

/* The step whose table this is; STEPS + 1: of none. */
static uint64_t step_of(const training *t) {
    for (uint64_t s = 0; s <= STEPS; s++) {
        uint64_t row = 0;
        for (; row < ROWS; row++)
            if (t->weights[row * DIM] != (float)t->updates[s][row] ||
                memcmp(&t->weights[row * DIM], &t->weights[row * DIM + 1], (DIM - 1) * sizeof(float)))
                break;
        if (row == ROWS) return s;
    }
    return STEPS + 1;
}

static void close_training(training *t) {
    frugal_close(t->f);
    for (uint32_t d = 0; d < DEVICES; d++) gpu_close(t->g[d]);
    free(t->weights);
}

/* >>trainings, each in its process */

static training t;

/* Both devices' calls say that one is lost, and why; the table is that of a whole step. */
static int lose_one(uint64_t arm) {
    open_training(&t, FRUGAL_ALONE_STAGED);
    uint64_t s = 0;
    for (; s < 20; s++) WORKS(run_step(&t, s));
    gpu_break(t.g[arm]);
    frugal_status status = FRUGAL_OK;
    while (s < STEPS && (status = run_step(&t, s)) == FRUGAL_OK) s++;
    for (uint32_t i = 0; i < SECONDS * 100 && status == FRUGAL_ERR_CUDA; i++) { /* found by a call; soon known to all */
        usleep(10000);
        status = frugal_lookup(t.f, 1 - (uint32_t)arm, s, gpu_rows(t.g[1 - arm]));
    }
    EXPECT(status == FRUGAL_ERR_LOST, "%d, %s", (int)status, frugal_message());
    for (uint32_t d = 0; d < DEVICES; d++)
        EXPECT(frugal_lookup(t.f, d, s, NULL) == FRUGAL_ERR_LOST, "device %u: %s", d, frugal_message());
    WORKS(frugal_drain(t.f));
    uint64_t step = step_of(&t);
    EXPECT(step >= 10 && step <= s, "the table is that of step %d", (int)step);
    close_training(&t);
    return FINE;
}

/* Trains to the end; rows in place. */
static int train(uint64_t unused) {
    (void)unused;
    open_training(&t, FRUGAL_ALONE_PLACE);
    for (uint64_t s = 0; s < STEPS; s++) WORKS(run_step(&t, s));
    WORKS(frugal_drain(t.f));
    EXPECT(step_of(&t) == STEPS, "the table is that of step %d", (int)step_of(&t));
    close_training(&t);
    return FINE;
}

static int train_until_killed(uint64_t told) {
    open_training(&t, FRUGAL_ALONE_PLACE);
    for (uint64_t s = 0; s < STEPS; s++) {
        WORKS(run_step(&t, s));
        if (s == 10 && write((int)told, "", 1) != 1) return WRONG;
        if (s > 10) usleep(100000); /* killed within a step, or between two */
    }
    return WRONG;
}

/* Children have the parent's memory, read it, write into their own, and use no call of CUDA or of the library. Older
 * kernels give the parent other pages than the GPU has when it writes next. */
static int fork_while_training(uint64_t unused) {
    (void)unused;
    pid_t children[4];
    open_training(&t, FRUGAL_ALONE_PLACE);
    for (uint64_t s = 0; s < STEPS; s++) {
        WORKS(run_step(&t, s));
        if (s % 10 || s / 10 >= 4) continue;
        children[s / 10] = fork();
        if (children[s / 10]) continue;
        char *own = malloc(1 << 20);
        memset(own, 1, 1 << 20);
        usleep(300000);
        _exit(own[5] == 1 && t.weights[0] >= 0 ? FINE : WRONG);
    }
    for (int i = 0; i < 4; i++) {
        int status;
        EXPECT(waitpid(children[i], &status, 0) == children[i] && status == 0, "a child: %d", status);
    }
    WORKS(frugal_drain(t.f));
    EXPECT(step_of(&t) == STEPS, "the table is that of step %d", (int)step_of(&t));
    WORKS(frugal_verify(t.f));
    close_training(&t);
    return FINE;
}

/* >>cases */

static pid_t start(int (*main_of)(uint64_t argument), uint64_t argument) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS); /* whatever hangs */
        _exit(main_of(argument));
    }
    return child;
}

static int end_of(pid_t child) { /* FINE, WRONG, or 128 + a signal */
    int status = 0;
    assert_int_equal(child, waitpid(child, &status, 0));
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_a_lost_gpu(void **state) {
    (void)state;
    for (uint64_t d = 0; d < DEVICES; d++) assert_int_equal(FINE, end_of(start(lose_one, d)));
    assert_int_equal(FINE, end_of(start(train, 0))); /* nothing is left on the GPU */
}

static void test_a_killed_process(void **state) {
    (void)state;
    int ends[2];
    char byte;
    assert_int_equal(0, pipe(ends));
    pid_t child = start(train_until_killed, (uint64_t)ends[1]);
    close(ends[1]);
    assert_int_equal(1, read(ends[0], &byte, 1));
    kill(child, SIGKILL);
    assert_int_equal(128 + SIGKILL, end_of(child));
    close(ends[0]);
    assert_int_equal(FINE, end_of(start(train, 0)));
}

static void test_forks(void **state) {
    (void)state;
#ifdef UNDER_TSAN
    print_message("# SKIPPED: ThreadSanitizer does not follow a fork of a process that has threads\n");
    skip();
#endif
    assert_int_equal(FINE, end_of(start(fork_while_training, 0)));
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_lost_gpu), cmocka_unit_test(test_a_killed_process),
                                       cmocka_unit_test(test_forks)};
    return cmocka_run_group_tests_name("test_cuda_faults", tests, NULL, NULL);
}
