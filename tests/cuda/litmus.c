/* litmus.c - does a GPU that reads host memory in place ever see what was there before, whoever has written it?
 *
 *     build/cuda/litmus [--steps 100000] [--dim 4,5,8,12] [--gpus 0,1] [--writer host,gpu,both] [--json]
 *
 * A GPU keeps in its caches what it has read from host memory, a sector of 32 bytes at least, and writes no less over
 * the link than it likes. Rows of 4 to 12 floats, packed, share sectors and lines of 128 bytes with their neighbours.
 * Two devices train on them; in every step a device on a GPU looks up rows that the other may have written, or whose
 * neighbours it may be writing.
 *
 *   --writer host   a device on a GPU looks up every second row in one step, and the rows between them in the next; a
 *                   device on the host brings gradients for half of all rows in every step, drawn anew
 *            gpu    the same, and the device that brings gradients is on a GPU, another one if there are several
 *            both   both are on GPUs, and update what they look up: every second row, and the rows between them, so
 *                   that two GPUs write into one sector in the same step; the next step they change places
 *   --alone         who writes rows that one device alone touches: workers, the device in place, or the device when
 *                   another one wants the row that it has kept
 *   --gate kernel   the stream waits by a kernel, as with older drivers
 *   --how graph     steps of GPUs are replayed graphs
 *   --gpus          on which GPUs the two devices are: each of the list with the one after it, in both roles
 *
 * A copy of a sector that outlived its step, or a neighbour that was overwritten, would show as a row of an earlier
 * step. Each row counts its updates, so the expected bits are known without a reference: 2^24 updates are exact. What
 * was looked up is kept on the GPU, and compared some steps later, so that steps follow each other without a pause.
 *
 * On the host (tests/cuda/cuda_on_host.h) there are no such caches: there it shows that the litmus itself is right, and
 * --tamper STEP, which takes one row for what it was before, that it can fail. Exit status 1 where a row was wrong. */
#include "bench/measure.h"
#include "bench/program.h"
#include "frugal_cuda.h"
#include "frugal_seeing.h"
#include "../support.h"
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 512, HALF = ROWS / 2, LOOKAHEAD = 4, KEPT = 8, MOST_DIM = 12, MOST_GPUS = 32 };
enum { PAGE = 4096, SHOWN = 1000 }; /* bytes that rows are aligned to; steps from one progress line to the next */
enum { READER, WRITER };            /* devices; if both write, they are as good as each other */
enum { BY_HOST, BY_GPU, BY_BOTH };  /* who writes */
enum { GATE_HOST, GATE_STREAM, GATE_KERNEL }; /* as frugal_cuda_desc.gate_on_stream */
enum { STAGED, IN_PLACE, IN_CACHE };          /* as frugal_alone, from FRUGAL_ALONE_STAGED */
enum { CALLS, GRAPH };

static options_list dims = {{4, 5, 8, 12}, 4}, gates = {{GATE_HOST, GATE_STREAM, GATE_KERNEL}, 3},
                    writers = {{BY_HOST, BY_GPU, BY_BOTH}, 3}, ways = {{IN_PLACE, IN_CACHE}, 2},
                    hows = {{CALLS, GRAPH}, 2}, gpus;
static double seconds;
static uint64_t steps = 100000, tamper = UINT64_MAX; /* tamper: never */
static int json;
static const char *const gate_names[] = {"host", "stream", "kernel", NULL};
static const char *const writer_names[] = {"host", "gpu", "both", NULL};
static const char *const way_names[] = {"staged", "place", "kept", NULL};
static const char *const how_names[] = {"calls", "graph", NULL};
static const options_entry options[] = {
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1 << 24, NULL, "of all configurations together"},
    {"seconds", OPTIONS_REAL, &seconds, 0, 1e6, NULL,
     "in which all configurations have their turn, with fewer steps if need be; 0: no limit"},
    {"dim", OPTIONS_WHOLES, &dims, 1, MOST_DIM, NULL, "floats a row"},
    {"gate", OPTIONS_CHOICES, &gates, 0, 0, gate_names, "who waits there: the host, the stream, a kernel on it"},
    {"writer", OPTIONS_CHOICES, &writers, 0, 0, writer_names, "which of the two devices are on GPUs and write"},
    {"alone", OPTIONS_CHOICES, &ways, 0, 0, way_names, "how rows that one device alone touches are updated"},
    {"how", OPTIONS_CHOICES, &hows, 0, 0, how_names, "how steps of GPUs are enqueued"},
    {"gpus", OPTIONS_WHOLES, &gpus, 0, MOST_GPUS - 1, NULL,
     "GPUs of the two devices: each with the one after it; if not given: all"},
    {"tamper", OPTIONS_WHOLE64, &tamper, 0, 1 << 24, .standard = "",
     .help = "the step in which a row is made wrong: it must be found"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

typedef struct setting {
    uint32_t dim, gate, writer, way, how;
    int on[2]; /* GPUs of the devices; -1: on the host */
} setting;

typedef struct batch {
    uint64_t rows[ROWS];
    uint32_t n;
} batch;

typedef struct litmus {
    setting s;
    frugal *f;
    gpu *g[2];                                   /* NULL: on the host */
    uint64_t announced, judged, compared, wrong; /* steps, steps; rows, rows */
    uint32_t updates[KEPT + 1][ROWS]; /* that a row has taken in the steps before one; by step mod KEPT + 1 */
    float *weights, ones[ROWS * MOST_DIM], looked_up[ROWS * MOST_DIM];
} litmus;

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

static const char *name_of(const setting *s) {
    static char name[160];
    snprintf(name, sizeof name, "dim %2u, %s by %s, %s, gate %s, GPUs %d and %d", s->dim, way_names[s->way],
             writer_names[s->writer], how_names[s->how], gate_names[s->gate], s->on[READER], s->on[WRITER]);
    return name;
}

static float first_value(uint32_t row, uint32_t e) {
    return (float)(test_mix2(row, e) % 1024);
}

static int brings(const setting *s, uint32_t device) {
    return device == WRITER || s->writer == BY_BOTH;
}

/* What a device looks up in a step, and updates if it brings gradients. */
static void make_batch(const setting *s, uint32_t device, uint64_t step, batch *b) {
    b->n = 0;
    for (uint64_t row = 0; row < ROWS; row++) {
        int drawn = (int)(test_mix2(row, step) & 1), mine = (row + step) % 2 == device;
        if (device == READER ? mine : s->writer == BY_BOTH ? mine : drawn) b->rows[b->n++] = row;
    }
}

static void announce(litmus *l, uint64_t step) {
    for (uint32_t d = 0; d < 2; d++) {
        batch b;
        make_batch(&l->s, d, step, &b);
        frugal_keys keys = {.table = 0, .keys = b.rows, .n = b.n};
        check(frugal_announce(l->f, d, step, &(frugal_batch){&keys, 1, !brings(&l->s, d)}));
    }
    l->announced = step + 1;
}

/* The rows that a GPU has looked up: as many updates as they have taken, to the bit. */
static void compare(litmus *l, uint32_t device, uint64_t step) {
    const uint32_t *updates = l->updates[step % (KEPT + 1)], dim = l->s.dim;
    batch b;
    make_batch(&l->s, device, step, &b);
    gpu_get_kept(l->g[device], step, l->looked_up, (size_t)b.n * dim * sizeof(float));
    if (step == tamper && device == READER) l->looked_up[0] -= 1;
    for (uint32_t i = 0; i < b.n; i++) {
        uint32_t row = (uint32_t)b.rows[i], differs = 0;
        float expected[MOST_DIM];
        const float *got = l->looked_up + (uint64_t)i * dim;
        for (uint32_t e = 0; e < dim; e++) expected[e] = first_value(row, e) + (float)updates[row];
        while (differs < dim && !memcmp(&expected[differs], &got[differs], sizeof *got)) differs++;
        l->compared++;
        if (differs == dim) continue;
        if (l->wrong++ < 10)
            fprintf(stderr, "litmus: %s, step %llu, GPU %d: row %u, element %u is %.9g, %.9g updates behind\n",
                    name_of(&l->s), (unsigned long long)step, l->s.on[device], row, differs, (double)got[differs],
                    (double)(expected[differs] - got[differs]));
    }
}

static void judge(litmus *l, uint64_t end) {
    for (; l->judged < end; l->judged++)
        for (uint32_t d = 0; d < 2; d++)
            if (l->g[d]) compare(l, d, l->judged);
}

/* >>steps */

/* A step of +1, of as many rows as there can be; on a GPU where gpu_train does not write. */
static const float *gradients_of(litmus *l, uint32_t device) {
    return l->g[device] ? (const float *)(const void *)gpu_words(l->g[device]) : l->ones;
}

typedef struct capture {
    litmus *l;
    uint32_t device;
} capture;

static void record(void *argument) {
    capture *c = argument;
    gpu *g = c->l->g[c->device];
    check(frugal_cuda_capture_lookup(c->l->f, c->device, gpu_rows(g), NULL));
    gpu_train(g, NULL, c->l->s.dim); /* keeps the rows */
    check(frugal_cuda_capture_update(c->l->f, c->device, gradients_of(c->l, c->device)));
}

static void run_gpu(litmus *l, uint32_t d, uint64_t step) {
    frugal_gradients g = {.lr = 1};
    if (l->s.how == GRAPH) {
        g.records = brings(&l->s, d);
        check(frugal_cuda_replay(l->f, d, step, &g));
        gpu_launch(l->g[d]);
        return;
    }
    g.grads = gradients_of(l, d);
    check(frugal_lookup(l->f, d, step, gpu_rows(l->g[d])));
    gpu_train(l->g[d], NULL, l->s.dim);
    check(frugal_update(l->f, d, step, brings(&l->s, d) ? &g : NULL));
}

static void run_step(litmus *l, uint64_t step, uint64_t end) {
    const uint32_t *before = l->updates[step % (KEPT + 1)];
    uint32_t *after = l->updates[(step + 1) % (KEPT + 1)];
    memcpy(after, before, sizeof l->updates[0]);
    for (uint32_t d = 0; d < 2; d++)
        if (l->g[d]) run_gpu(l, d, step);
    if (!l->g[WRITER]) { /* last, because it waits */
        float own[ROWS * MOST_DIM];
        check(frugal_lookup(l->f, WRITER, step, own));
        check(frugal_update(l->f, WRITER, step, &(frugal_gradients){.grads = l->ones, .lr = 1}));
    }
    for (uint32_t d = 0; d < 2; d++) {
        batch b;
        make_batch(&l->s, d, step, &b);
        for (uint32_t i = 0; i < b.n && brings(&l->s, d); i++) after[b.rows[i]]++;
    }
    if ((step + 1) % KEPT == 0) judge(l, step + 1);
    if (l->announced < end) announce(l, l->announced);
}

/* >>opening */

static void open_device(litmus *l, uint32_t d) {
    int keeps = l->s.way == IN_CACHE && brings(&l->s, d);
    uint64_t cache_rows = keeps ? ROWS : 0; /* else every row is read in host memory */
    if (l->s.on[d] < 0) {
        check(frugal_cpu_attach(l->f, d, &(frugal_cpu_desc){.cache_rows = cache_rows}));
        return;
    }
    l->g[d] = gpu_open(l->s.on[d], (size_t)ROWS * l->s.dim, (size_t)ROWS * l->s.dim, 0);
    gpu_put(l->g[d], gpu_words(l->g[d]), l->ones, ROWS * l->s.dim * sizeof(float));
    gpu_keep(l->g[d], KEPT);
    frugal_cuda_desc cuda = {.cache_rows = cache_rows, .stream = gpu_stream(l->g[d]), .gate_on_stream = (int)l->s.gate};
    check(frugal_cuda_attach(l->f, d, l->s.on[d], &cuda));
}

static void open_litmus(litmus *l) {
    float source[ROWS * MOST_DIM];
    uint32_t dim = l->s.dim;
    for (uint32_t i = 0; i < ROWS * dim; i++) source[i] = first_value(i / dim, i % dim);
    for (uint32_t i = 0; i < ROWS * dim; i++) l->ones[i] = -1;
    l->weights = aligned_alloc(PAGE, (ROWS * dim * sizeof(float) + PAGE - 1) / PAGE * PAGE);
    if (!l->weights) bench_fail("no memory for %u rows of %u floats", ROWS, dim);
    frugal_table table = {.rows = ROWS, .init = FRUGAL_INIT_COPY, .source = source};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = dim,
                        .devices = 2,
                        .max_keys = ROWS,
                        .lookahead = LOOKAHEAD,
                        .workers = 2,
                        .alone = (frugal_alone)(FRUGAL_ALONE_STAGED + l->s.way),
                        .weights = l->weights,
                        .weights_stride = dim};
    check(frugal_open(&desc, &l->f));
    for (uint32_t d = 0; d < 2; d++) open_device(l, d);
    for (uint32_t d = 0; d < 2; d++)
        if (l->g[d] && l->s.how == GRAPH) gpu_capture(l->g[d], record, &(capture){l, d});
}

/* Judges what is left, and what lies in host memory at the end. */
static void close_litmus(litmus *l, uint64_t done) {
    const uint32_t *updates = l->updates[done % (KEPT + 1)];
    judge(l, done);
    check(frugal_drain(l->f));
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t e = 0; e < l->s.dim; e++)
            l->wrong += l->weights[row * l->s.dim + e] != first_value(row, e) + (float)updates[row];
    frugal_close(l->f);
    for (uint32_t d = 0; d < 2; d++) gpu_close(l->g[d]);
    free(l->weights);
}

static void print(const litmus *l, uint64_t done, uint64_t in_place, double took) {
    const setting *s = &l->s;
    if (json)
        printf("{\"experiment\": \"litmus\", \"gpu\": \"%s\", \"dim\": %u, \"gate\": \"%s\", \"writer\": \"%s\", "
               "\"alone\": \"%s\", \"how\": \"%s\", \"reader_on\": %d, \"writer_on\": %d, \"rows\": %u, "
               "\"steps\": %llu, \"rows_compared\": %llu, \"in_place\": %llu, \"wrong\": %llu, \"seconds\": %.2f}\n",
               gpu_name(s->on[READER]), s->dim, gate_names[s->gate], writer_names[s->writer], way_names[s->way],
               how_names[s->how], s->on[READER], s->on[WRITER], ROWS, (unsigned long long)done,
               (unsigned long long)l->compared, (unsigned long long)in_place, (unsigned long long)l->wrong, took);
    else
        printf("%s: %llu steps, %llu rows compared, %llu updated in place, %llu wrong, %.2f s\n", name_of(s),
               (unsigned long long)done, (unsigned long long)l->compared, (unsigned long long)in_place,
               (unsigned long long)l->wrong, took);
    fflush(stdout);
}

static uint64_t run(const setting *s, uint64_t n, double limit) {
    static litmus l;
    uint64_t done = 0;
    frugal_stats stats;
    l = (litmus){.s = *s};
    double end = limit > 0 ? bench_now() + limit : INFINITY;
    open_litmus(&l);
    double since = bench_now();
    while (l.announced < n && l.announced < LOOKAHEAD) announce(&l, l.announced);
    for (; done < n && !bench_interrupted() && (done < KEPT || bench_now() < end); done++) {
        run_step(&l, done, n);
        if (done % SHOWN == 0)
            bench_progress("litmus: %s: step %llu of %llu, %llu rows wrong", name_of(s), (unsigned long long)done,
                           (unsigned long long)n, (unsigned long long)l.wrong);
    }
    double took = bench_now() - since;
    bench_progress("%s", "");
    frugal_cancel(l.f, done); /* what Ctrl-C has left announced */
    frugal_get_stats(l.f, &stats);
    close_litmus(&l, done);
    print(&l, done, stats.in_place, took);
    return l.wrong;
}

static void find_gpus(void) {
    uint32_t n = (uint32_t)gpu_count();
    if (n == 0) bench_fail("no GPU is to be found: see that the driver is loaded (nvidia-smi)");
    for (uint32_t i = 0; i < gpus.n; i++)
        if (gpus.values[i] >= n) {
            fprintf(stderr, "litmus: --gpus %.0f: there are %u, from 0\n", gpus.values[i], n);
            exit(2);
        }
    for (uint32_t i = 0; gpus.n == i && i < n && i < OPTIONS_LIST; i++) gpus.values[gpus.n++] = i;
}

/* The i-th of all combinations; the last option changes fastest. */
static setting setting_of(uint32_t i) {
    setting s = {.dim = (uint32_t)dims.values[i % dims.n]};
    s.gate = (uint32_t)gates.values[i / dims.n % gates.n], i /= dims.n * gates.n;
    s.how = (uint32_t)hows.values[i % hows.n], i /= hows.n;
    s.way = (uint32_t)ways.values[i % ways.n], i /= ways.n;
    s.writer = (uint32_t)writers.values[i % writers.n], i /= writers.n;
    s.on[READER] = (int)gpus.values[i];
    s.on[WRITER] = s.writer == BY_HOST ? -1 : (int)gpus.values[(i + 1) % gpus.n];
    return s;
}

int main(int argc, char **argv) {
    uint64_t wrong = 0;
    bench_parse("litmus", "Looks for rows that a GPU's caches have kept beyond their step.\n", options, argc, argv);
    find_gpus();
    double began = bench_now();
    uint64_t n = dims.n * gates.n * hows.n * ways.n * writers.n * gpus.n, all = steps;
    for (uint64_t i = 0; i < n && !bench_interrupted(); i++) {
        setting s = setting_of((uint32_t)i);
        double limit = seconds > 0 ? fmax((began + seconds - bench_now()) / (double)(n - i), 1e-9) : 0;
        wrong += run(&s, all * (i + 1) / n - all * i / n, limit);
    }
    return wrong ? 1 : bench_exit_status();
}
