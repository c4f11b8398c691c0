/* litmus.c - does a GPU that reads host memory in place ever see what was there before?
 *
 *     build/cuda/litmus [--steps 100000] [--dim 4,5,8,12] [--json]
 *
 * A GPU keeps in its caches what it has read from host memory, a sector of 32 bytes at least. Rows of 4 to 12 floats,
 * packed, share sectors and lines of 128 bytes with their neighbours. So a device on the GPU without a cache of ours
 * looks up every second row in one step, and the rows between them in the next; a device on the host brings gradients
 * for half of all rows in every step, drawn anew; workers write them into host memory, also while a kernel reads the
 * neighbours. A copy of a sector that outlived its step would show as a row of an earlier step. Each row counts its
 * updates, so the expected bits are known without a reference: 2^24 updates are exact. What was looked up is kept on
 * the GPU, and compared some steps later, so that steps follow each other without a pause.
 *
 * On the host (tests/cuda/cuda_on_host.h) there are no such caches: there it shows that the litmus itself is right, and
 * --tamper STEP, which takes one row for what it was before, that it can fail. Exit status 1 where a row was wrong. */
#include "bench/measure.h"
#include "bench/program.h"
#include "frugal_cuda.h"
#include "../support.h"
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 512, READ = ROWS / 2, LOOKAHEAD = 4, KEPT = 8, ON_GPU = 0, ON_HOST = 1, MOST_DIM = 12 };
enum { PAGE = 4096, SHOWN = 1000 }; /* bytes that rows are aligned to; steps from one progress line to the next */

static options_list dims = {{4, 5, 8, 12}, 4}, gates = {{0, 1}, 2};
static uint64_t steps = 100000, tamper = UINT64_MAX; /* tamper: never */
static int json;
static const char *const gate_names[] = {"host", "stream", NULL};
static const options_entry options[] = {
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1 << 24, NULL, "of all configurations together"},
    {"dim", OPTIONS_WHOLES, &dims, 1, MOST_DIM, NULL, "floats a row"},
    {"gate", OPTIONS_CHOICES, &gates, 0, 0, gate_names, "who waits there"},
    {"tamper", OPTIONS_WHOLE64, &tamper, 0, 1 << 24, .standard = "",
     .help = "the step in which a row is made wrong: it must be found"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

typedef struct litmus {
    frugal *f;
    gpu *g;
    uint32_t dim, gate_on_stream;
    uint64_t announced, judged, compared, wrong; /* steps, steps; rows, rows */
    uint32_t updates[KEPT + 1][ROWS]; /* that a row has taken in the steps before one; by step mod KEPT + 1 */
    float *weights, grads[ROWS * MOST_DIM], looked_up[READ * MOST_DIM];
} litmus;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

static float first_value(uint32_t row, uint32_t e) {
    return (float)(test_mix2(row, e) % 1024);
}

static int is_updated(uint64_t row, uint64_t step) {
    return (int)(test_mix2(row, step) & 1);
}

static uint32_t read_row(uint64_t step, uint32_t i) {
    return 2 * i + (uint32_t)(step & 1);
}

static void announce(litmus *l, uint64_t step) {
    uint64_t read[READ], written[ROWS];
    frugal_keys of_gpu = {.table = 0, .keys = read, .n = READ}, of_host = {.table = 0, .keys = written, .n = 0};
    for (uint32_t i = 0; i < READ; i++) read[i] = read_row(step, i);
    for (uint64_t row = 0; row < ROWS; row++)
        if (is_updated(row, step)) written[of_host.n++] = row;
    check(frugal_announce(l->f, ON_GPU, step, &(frugal_batch){&of_gpu, 1, 1}));
    check(frugal_announce(l->f, ON_HOST, step, &(frugal_batch){&of_host, 1, 0}));
    l->announced = step + 1;
}

/* The rows that the GPU has read: as many updates as they have taken, to the bit. */
static void compare(litmus *l, uint64_t step) {
    const uint32_t *updates = l->updates[step % (KEPT + 1)];
    gpu_get_kept(l->g, step, l->looked_up, (size_t)READ * l->dim * sizeof(float));
    if (step == tamper) l->looked_up[0] -= 1;
    for (uint32_t i = 0; i < READ; i++) {
        uint32_t row = read_row(step, i), differs = 0;
        float expected[MOST_DIM];
        const float *got = l->looked_up + (uint64_t)i * l->dim;
        for (uint32_t e = 0; e < l->dim; e++) expected[e] = first_value(row, e) + (float)updates[row];
        while (differs < l->dim && !memcmp(&expected[differs], &got[differs], sizeof *got)) differs++;
        l->compared++;
        if (differs == l->dim) continue;
        if (l->wrong++ < 10)
            fprintf(stderr,
                    "litmus: dim %u, gate on the %s, step %llu: row %u, element %u is %.9g, %.9g updates behind\n",
                    l->dim, gate_names[l->gate_on_stream], (unsigned long long)step, row, differs, (double)got[differs],
                    (double)(expected[differs] - got[differs]));
    }
}

static void judge(litmus *l, uint64_t end) {
    for (; l->judged < end; l->judged++) compare(l, l->judged);
}

static void run_step(litmus *l, uint64_t step, uint64_t end) {
    float own[ROWS * MOST_DIM];
    const uint32_t *before = l->updates[step % (KEPT + 1)];
    uint32_t *after = l->updates[(step + 1) % (KEPT + 1)];
    check(frugal_lookup(l->f, ON_GPU, step, gpu_rows(l->g)));
    gpu_train(l->g, NULL, l->dim); /* keeps the rows */
    check(frugal_lookup(l->f, ON_HOST, step, own));
    check(frugal_update(l->f, ON_GPU, step, NULL));
    check(frugal_update(l->f, ON_HOST, step, &(frugal_gradients){.grads = l->grads, .lr = 1}));
    for (uint32_t row = 0; row < ROWS; row++) after[row] = before[row] + (uint32_t)is_updated(row, step);
    if ((step + 1) % KEPT == 0) judge(l, step + 1);
    if (l->announced < end) announce(l, l->announced);
}

static void open_litmus(litmus *l) {
    float source[ROWS * MOST_DIM];
    for (uint32_t i = 0; i < ROWS * l->dim; i++) source[i] = first_value(i / l->dim, i % l->dim);
    for (uint32_t i = 0; i < ROWS * l->dim; i++) l->grads[i] = -1; /* a step of +1 */
    l->weights = aligned_alloc(PAGE, (ROWS * l->dim * sizeof(float) + PAGE - 1) / PAGE * PAGE);
    if (!l->weights) bench_fail("no memory for %u rows of %u floats", ROWS, l->dim);
    frugal_table table = {.rows = ROWS, .init = FRUGAL_INIT_COPY, .source = source};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = l->dim,
                        .devices = 2,
                        .max_keys = ROWS,
                        .lookahead = LOOKAHEAD,
                        .workers = 2,
                        .weights = l->weights,
                        .weights_stride = l->dim};
    check(frugal_open(&desc, &l->f));
    l->g = gpu_open(0, READ * l->dim, 0, 0);
    frugal_cuda_desc cuda = {.stream = gpu_stream(l->g), .gate_on_stream = (int)l->gate_on_stream};
    gpu_keep(l->g, KEPT);
    check(frugal_cuda_attach(l->f, ON_GPU, 0, &cuda));
    check(frugal_cpu_attach(l->f, ON_HOST, NULL));
}

/* Judges what is left, and what lies in host memory at the end. */
static void close_litmus(litmus *l, uint64_t done) {
    const uint32_t *updates = l->updates[done % (KEPT + 1)];
    judge(l, done);
    check(frugal_drain(l->f));
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t e = 0; e < l->dim; e++)
            l->wrong += l->weights[row * l->dim + e] != first_value(row, e) + (float)updates[row];
    frugal_close(l->f);
    gpu_close(l->g);
    free(l->weights);
}

static uint64_t run(uint32_t dim, uint32_t gate, uint64_t n) {
    litmus l = {.dim = dim, .gate_on_stream = gate};
    uint64_t done = 0;
    open_litmus(&l);
    double since = bench_now();
    while (l.announced < n && l.announced < LOOKAHEAD) announce(&l, l.announced);
    for (; done < n && !bench_interrupted(); done++) {
        run_step(&l, done, n);
        if (done % SHOWN == 0)
            bench_progress("litmus: dim %u, gate on the %s: step %llu of %llu, %llu rows wrong", dim, gate_names[gate],
                           (unsigned long long)done, (unsigned long long)n, (unsigned long long)l.wrong);
    }
    double seconds = bench_now() - since;
    bench_progress("%s", "");
    frugal_cancel(l.f, done); /* what Ctrl-C has left announced */
    close_litmus(&l, done);
    if (json)
        printf("{\"experiment\": \"litmus\", \"gpu\": \"%s\", \"dim\": %u, \"gate\": \"%s\", \"rows\": %u, \"steps\": "
               "%llu, "
               "\"rows_compared\": %llu, \"wrong\": %llu, \"seconds\": %.2f}\n",
               gpu_name(0), dim, gate_names[gate], ROWS, (unsigned long long)done, (unsigned long long)l.compared,
               (unsigned long long)l.wrong, seconds);
    else
        printf("dim %2u, gate on the %-6s: %llu steps, %llu rows compared, %llu wrong, %.2f s\n", dim, gate_names[gate],
               (unsigned long long)done, (unsigned long long)l.compared, (unsigned long long)l.wrong, seconds);
    fflush(stdout);
    return l.wrong;
}

int main(int argc, char **argv) {
    uint64_t wrong = 0;
    bench_parse("litmus", "Looks for rows that a GPU's caches have kept beyond their step.\n", options, argc, argv);
    if (gpu_count() == 0) bench_fail("no GPU is to be found: see that the driver is loaded (nvidia-smi)");
    uint64_t n = dims.n * gates.n, all = steps;
    for (uint32_t i = 0; i < n && !bench_interrupted(); i++)
        wrong += run((uint32_t)dims.values[i / gates.n], (uint32_t)gates.values[i % gates.n],
                     all * (i + 1) / n - all * i / n);
    return wrong ? 1 : bench_exit_status();
}
