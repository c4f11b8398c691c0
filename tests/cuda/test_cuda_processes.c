/* test_cuda_processes.c - a GPU for each process: the table that processes share is pinned by each for its own.
 *
 * CUDA does not work in a process whose parent has used it, so each world begins in a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "frugal_cuda.h"
#include "tests/crew.h"
#include "tests/cuda/gpu.h"

static gpu *gpus[CREW_DEVICES]; /* of this process */

static int ordinal_of(uint32_t d) {
    return (int)d % gpu_count();
}

static frugal_status attach_gpu(const crew *c, frugal *f, uint32_t d) {
    gpus[d] = gpu_open(ordinal_of(d), CREW_KEYS * CREW_DIM, CREW_KEYS + 1, 0);
    frugal_cuda_desc desc = {
        .cache_rows = c->cache.cache_rows, .policy = c->cache.policy, .stream = gpu_stream(gpus[d])};
    return frugal_cuda_attach(f, d, ordinal_of(d), &desc);
}

static frugal_status lookup_gpu(frugal *f, uint32_t d, uint64_t step, float *rows) {
    frugal_status status = frugal_lookup(f, d, step, gpu_rows(gpus[d]));
    if (status == FRUGAL_OK) gpu_get(gpus[d], rows, gpu_rows(gpus[d]), sizeof(float) * CREW_KEYS * CREW_DIM);
    return status;
}

static frugal_status update_gpu(frugal *f, uint32_t d, uint64_t step, const frugal_gradients *gradients) {
    frugal_gradients there = *gradients;
    if (gradients->grads) {
        gpu_put(gpus[d], gpu_grads(gpus[d]), gradients->grads, sizeof(float) * CREW_KEYS * CREW_DIM);
        there.grads = gpu_grads(gpus[d]);
    }
    return frugal_update(f, d, step, &there);
}

static const crew_device on_gpu = {attach_gpu, lookup_gpu, update_gpu};
static const frugal_alone ways[] = {FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT};
static const frugal_optimizer_kind kinds[] = {FRUGAL_SGD, FRUGAL_ADAGRAD, FRUGAL_ROWWISE_ADAGRAD, FRUGAL_ADAM};

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
    c.desc.alone = ways[i % 3], c.desc.lookahead = i % 4, c.desc.optimizer.kind = kinds[i / 3 % 4];
    c.cache =
        (frugal_cpu_desc){.cache_rows = i % 5 ? 24 : 0, .policy = i % 2 ? FRUGAL_CACHE_LRU : FRUGAL_CACHE_COUNTED};
    for (uint32_t d = 0; d < 2; d++) c.kinds[d] = (i % 3 + 1) >> d & 1 ? &on_gpu : NULL;
    pid_t child = crew_fork(&c, 1);
    const char *wrong = train_opener(&c, child);
    if (wrong) fprintf(stderr, "# world %u: %s\n", (unsigned)i, wrong);
    return wrong ? CREW_WRONG : CREW_FINE;
}

static void test_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        fflush(NULL);
        pid_t world = fork();
        if (world == 0) _exit(train_world(i));
        assert_int_equal(CREW_FINE, crew_wait(world));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
