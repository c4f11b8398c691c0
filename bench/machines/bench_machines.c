/* bench_machines.c - training on several machines beside one process with as many devices: time, messages, bytes.
 *
 *     mpirun -n 2 build/mpi/bench_machines                           two ranks, four devices
 *     mpirun -n 4 build/mpi/bench_machines --devices 4 --lookahead 0
 *     mpirun -n 2 build/mpi/bench_machines --json >>machines
 *     build/cuda/bench_machines --machines 2 --devices 2 --cache 0.05    devices on GPUs, machines of this process
 *
 * All ranks train, then rank 0 alone trains the same keys in one process, in turn. On one host, where ranks share its
 * processors, the two have the same rows, words and caches of processors to share, so the processor time a key says
 * what the messages cost. Bytes and messages are counted by the library, and computed here from the keys.
 *
 * With BENCH_CUDA devices are on GPUs, in turn, and machines are threads of this process, whose wire is a copy: it is
 * for hosts with a GPU and without MPI, and asks what rows of other machines cost a GPU beside their network.
 */
#include "bench/choices.h"
#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/program.h"
#ifdef BENCH_CUDA
#include "bench/machines/local_wire.h"
#include "frugal_cuda.h"
#include "tests/cuda/gpu.h"
#else
#include "frugal_mpi.h"
#endif

#include <pthread.h>
#include <stdio.h>

static uint64_t rows = 4000000, dim = 32, devices = 4, keys = 26624, lookahead = 10, workers, steps = 40, rounds = 3;
static double zipf = 0.99;
#ifdef BENCH_CUDA
static uint64_t n_machines = 2;
static double cache = 0.05;
#endif
static uint32_t optimizer = FRUGAL_ROWWISE_ADAGRAD, alone;
static int json;

static const options_entry options[] = {
    {"rows", OPTIONS_WHOLE64, &rows, 1, 4294967294, NULL, "rows of the table"},
    {"dim", OPTIONS_WHOLE64, &dim, 1, 65536, NULL, "floats a row"},
    {"devices", OPTIONS_WHOLE64, &devices, 1, 254, NULL, "of all machines, a thread each"},
    {"keys", OPTIONS_WHOLE64, &keys, 1, 1 << 26, NULL, "looked up by a device in a step"},
    {"lookahead", OPTIONS_WHOLE64, &lookahead, 0, 15, NULL, "steps announced ahead"},
    {"workers", OPTIONS_WHOLE64, &workers, 0, 1024, NULL, "threads of each machine that flush"},
    {"zipf", OPTIONS_REAL, &zipf, 0, 10, NULL, "skew of the keys; 0: uniform"},
    {"optimizer", OPTIONS_CHOICE, &optimizer, 0, 0, bench_optimizers, "of the rows"},
    {"alone", OPTIONS_CHOICE, &alone, 0, 0, bench_alone, "where rows are updated that one device touches"},
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1e9, NULL, "of a round"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL, "of which medians are taken, after one more"},
#ifdef BENCH_CUDA
    {"machines", OPTIONS_WHOLE64, &n_machines, 1, LOCAL_MOST, NULL, "threads of this process"},
    {"cache", OPTIONS_REAL, &cache, 0, 1, NULL, "of a device: a share of all rows"},
#endif
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

/* Where rows come to, and what devices do beside calling the library. */
#ifdef BENCH_CUDA
typedef struct gpu values_of;
static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
static values_of *attach(frugal *f, uint32_t d) {
    int ordinal = (int)d % gpu_count();
    pthread_mutex_lock(&attaching); /* each is pinned and tested alone */
    gpu *g = gpu_open(ordinal, keys * dim, 1, 0);
    const frugal_cuda_desc desc = {.cache_rows = (uint64_t)(cache * (double)rows), .stream = gpu_stream(g)};
    check(frugal_cuda_attach(f, d, ordinal, &desc));
    pthread_mutex_unlock(&attaching);
    return g;
}
static float *open_values(values_of *g) {
    return gpu_rows(g);
}
static void end_round(values_of *g, float *values) {
    (void)values;
    gpu_wait(g);
}
static void detach(values_of *g) {
    gpu_close(g);
}
#else
typedef void values_of;
static values_of *attach(frugal *f, uint32_t d) {
    check(frugal_cpu_attach(f, d, &(frugal_cpu_desc){.threads = 1}));
    return NULL;
}
static float *open_values(values_of *none) {
    (void)none;
    float *values = malloc(keys * dim * sizeof *values);
    if (!values) bench_fail("no memory for a batch of rows");
    return values;
}
static void end_round(values_of *none, float *values) {
    (void)none;
    free(values);
}
static void detach(values_of *none) {
    (void)none;
}
#endif

typedef struct instance {
    frugal *f;
    uint32_t from, n; /* devices */
    values_of *values[FRUGAL_MAX_DEVICES];
} instance;

typedef struct trainer { /* a device's thread */
    frugal *f;
    values_of *values;
    uint32_t d;
    uint64_t first;        /* step */
    const uint64_t *drawn; /* [steps][keys], the same in each round */
} trainer;

static void announce(const trainer *t, uint64_t step) {
    const frugal_keys segment = {.keys = t->drawn + (step - t->first) * keys, .n = (uint32_t)keys};
    check(frugal_announce(t->f, t->d, step, &(frugal_batch){.segments = &segment, .n_segments = 1}));
}

/* The gradient is the row itself. */
static void *train(void *argument) {
    const trainer *t = argument;
    float *values = open_values(t->values);
    uint64_t ahead = t->first, end = t->first + steps;
    for (uint64_t step = t->first; step < end; step++) {
        for (; ahead < end && ahead <= step + lookahead; ahead++) announce(t, ahead);
        check(frugal_lookup(t->f, t->d, step, values));
        check(frugal_update(t->f, t->d, step, &(frugal_gradients){.grads = values, .lr = 1e-3f}));
    }
    end_round(t->values, values);
    return NULL;
}

static void run(const instance *at, uint64_t first, const uint64_t *drawn) {
    pthread_t threads[FRUGAL_MAX_DEVICES];
    trainer trainers[FRUGAL_MAX_DEVICES];
    for (uint32_t i = 0; i < at->n; i++) {
        uint32_t d = at->from + i;
        trainers[i] = (trainer){at->f, at->values[i], d, first, drawn + (uint64_t)d * steps * keys};
        if (pthread_create(&threads[i], NULL, train, &trainers[i])) bench_fail("a thread cannot be started");
    }
    for (uint32_t i = 0; i < at->n; i++) pthread_join(threads[i], NULL);
    check(frugal_drain(at->f));
}

static instance *open_instance(const frugal_machines *machines, uint32_t from, uint32_t n) {
    const frugal_table table = {.rows = rows, .init = FRUGAL_INIT_UNIFORM, .low = -0.1f, .high = 0.1f};
    const frugal_desc desc = {.tables = &table,
                              .n_tables = 1,
                              .dim = (uint32_t)dim,
                              .devices = (uint32_t)devices,
                              .max_keys = (uint32_t)keys,
                              .lookahead = (uint32_t)lookahead,
                              .workers = (uint32_t)workers,
                              .optimizer = {.kind = (frugal_optimizer_kind)optimizer},
                              .alone = (frugal_alone)alone,
                              .machines = machines};
    instance *opened = calloc(1, sizeof *opened);
    if (!opened) bench_fail("no memory for an instance");
    opened->from = from, opened->n = n;
    check(frugal_open(&desc, &opened->f));
    for (uint32_t i = 0; i < n; i++) opened->values[i] = attach(opened->f, from + i);
    return opened;
}

static void close_instance(instance *opened) {
    if (!opened) return;
    check(frugal_close(opened->f));
    for (uint32_t i = 0; i < opened->n; i++) detach(opened->values[i]);
    free(opened);
}

/* Processor time of a machine: a process, or its share of this one. */
static double processor_seconds(uint32_t machines) {
#ifdef BENCH_CUDA
    return bench_process_seconds() / machines;
#else
    (void)machines;
    return bench_process_seconds();
#endif
}

static int by_key(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Distinct rows of other machines that the devices of machine m read in a round. */
static uint64_t count_guests(const uint64_t *drawn, uint32_t m, uint32_t machines) {
    uint64_t *batch = malloc(keys * sizeof *batch), n = 0, here = devices / machines;
    if (!batch) bench_fail("no memory for a batch");
    for (uint64_t at = m * here * steps; at < (m + 1) * here * steps; at++) {
        memcpy(batch, drawn + at * keys, keys * sizeof *batch);
        qsort(batch, keys, sizeof *batch, by_key);
        for (uint64_t i = 0; i < keys; i++) n += (i == 0 || batch[i] != batch[i - 1]) && batch[i] % machines != m;
    }
    free(batch);
    return n;
}

typedef struct round_result { /* of one machine */
    double seconds, processor;
    frugal_wire_counts counts;
} round_result;

static frugal_wire_counts counts_since(const frugal *f, const frugal_wire_counts *before) {
    frugal_wire_counts now;
    check(frugal_get_wire_counts(f, &now));
    for (int k = 0; k < FRUGAL_WIRE_KINDS; k++) {
        now.sent[k] -= before->sent[k], now.sent_bytes[k] -= before->sent_bytes[k];
        now.received[k] -= before->received[k], now.received_bytes[k] -= before->received_bytes[k];
    }
    now.guests -= before->guests, now.early -= before->early;
    return now;
}

typedef struct totals { /* medians over rounds, and what the last one counted, of all machines */
    bench_samples step, key, alone_step, alone_key, ratio;
    double messages, awaited, bytes, early; /* a step; the share of guests that came early */
    double formula;                         /* bytes a step */
} totals;

static void add_round(totals *t, const round_result *all, uint32_t machines, uint64_t guests) {
    double processor = 0, seconds = 0, early = 0, came = 0;
    uint64_t pairs = devices * (machines - 1) * steps, stride = dim >= 16 ? (dim + 15) / 16 * 16 : 1, words = 0;
    while (dim < 16 && stride < dim) stride *= 2;
    t->messages = t->awaited = t->bytes = 0;
    for (uint32_t i = 0; i < machines; i++) {
        const frugal_wire_counts *c = &all[i].counts;
        processor += all[i].processor, seconds = all[i].seconds > seconds ? all[i].seconds : seconds;
        early += (double)c->early, came += (double)c->guests;
        for (int k = 0; k < FRUGAL_WIRE_CALLS; k++)
            t->messages += (double)c->sent[k] / (double)steps, t->bytes += (double)c->sent_bytes[k] / (double)steps;
        t->awaited += (double)(c->sent[FRUGAL_WIRE_ROWS] + c->sent[FRUGAL_WIRE_RECORDS]) / (double)pairs;
    }
    /* Heads of four messages; without lookahead none is early. A bit a row, in whole words: half a word more each. */
    words = lookahead ? guests / 64 + pairs / 2 : 0;
    t->formula = ((double)guests * (8 + 4.0 * (double)dim + 4.0 * (double)stride) + 8.0 * (double)words +
                  64.0 * (lookahead ? 4 : 3) * (double)pairs) /
                 (double)steps;
    t->early = came > 0 ? early / came : 0;
    bench_add(&t->step, seconds / (double)steps);
    bench_add(&t->key, processor / (double)(steps * devices * keys));
}

static void print(const totals *t, uint32_t machines) {
    double ratio = bench_median(&t->ratio);
    if (json) {
        printf(
            "{\"machines\": %u, \"devices\": %llu, \"rows\": %llu, \"dim\": %llu, \"keys\": %llu, \"lookahead\": %llu, "
            "\"workers\": %llu, \"zipf\": %g, \"optimizer\": \"%s\", \"alone\": \"%s\", ",
            machines, (unsigned long long)devices, (unsigned long long)rows, (unsigned long long)dim,
            (unsigned long long)keys, (unsigned long long)lookahead, (unsigned long long)workers, zipf,
            bench_optimizers[optimizer], bench_alone[alone]);
        printf("\"step_ms\": %.4f, \"cpu_ns_key\": %.2f, \"one_step_ms\": %.4f, \"one_cpu_ns_key\": %.2f, "
               "\"cpu_ratio\": %.3f, \"messages_step\": %.1f, \"awaited_pair\": %.3f, \"bytes_step\": %.0f, "
               "\"formula_bytes_step\": %.0f, \"early\": %.3f}\n",
               bench_median(&t->step) * 1e3, bench_median(&t->key) * 1e9, bench_median(&t->alone_step) * 1e3,
               bench_median(&t->alone_key) * 1e9, ratio, t->messages, t->awaited, t->bytes, t->formula, t->early);
        return;
    }
    printf("%u machines, %llu devices, %llu keys each, Zipf %g, lookahead %llu, %s\n", machines,
           (unsigned long long)devices, (unsigned long long)keys, zipf, (unsigned long long)lookahead,
           bench_optimizers[optimizer]);
    printf("  processor time a key     %8.1f ns; in one process %.1f ns; ratio %.2f\n", bench_median(&t->key) * 1e9,
           bench_median(&t->alone_key) * 1e9, ratio);
    printf("  time of a step           %8.2f ms; in one process %.2f ms\n", bench_median(&t->step) * 1e3,
           bench_median(&t->alone_step) * 1e3);
    printf("  messages of a step       %8.1f of all machines; waited for, by device and home: %.2f\n", t->messages,
           t->awaited);
    printf("  bytes of a step          %8.0f of all machines; computed from the keys: %.0f (%+.2f%%)\n", t->bytes,
           t->formula, 100 * (t->bytes / t->formula - 1));
    printf("  rows of other machines that came before their gate opened: %.1f%%\n", 100 * t->early);
}

static void measure(const frugal_wire *wire, const uint64_t *drawn) {
    const frugal_machines machines = {.wire = wire};
    uint32_t m = wire->machine, n = (uint32_t)devices / wire->machines;
    static totals t; /* large */
    uint64_t guests = 0;
    round_result mine, *all = calloc(wire->machines, sizeof *all);
    instance *at = open_instance(&machines, m * n, n), *one = m == 0 ? open_instance(NULL, 0, (uint32_t)devices) : NULL;
    frugal *f = at->f;
    if (!all) bench_fail("no memory for results");
    for (uint32_t i = 0; m == 0 && i < wire->machines; i++) guests += count_guests(drawn, i, wire->machines);
    int interrupted = 0, any = 0;
    for (uint64_t round = 0; round <= rounds && !any; round++) {
        frugal_wire_counts before;
        check(frugal_get_wire_counts(f, &before));
        check(frugal_exchange(f, NULL, 0, NULL)); /* all begin */
        double since = bench_now(), processor = processor_seconds(wire->machines);
        run(at, round * steps, drawn);
        mine = (round_result){bench_now() - since, processor_seconds(wire->machines) - processor,
                              counts_since(f, &before)};
        check(frugal_exchange(f, &mine, sizeof mine, all));
        if (m == 0) {
            bench_progress("round %llu of %llu", (unsigned long long)round, (unsigned long long)rounds);
            since = bench_now(), processor = bench_process_seconds();
            run(one, round * steps, drawn);
            double seconds = bench_now() - since;
            processor = bench_process_seconds() - processor;
            if (round > 0) {
                add_round(&t, all, wire->machines, guests);
                bench_add(&t.alone_step, seconds / (double)steps);
                bench_add(&t.alone_key, processor / (double)(steps * devices * keys));
                bench_add(&t.ratio, t.key.values[t.key.n - 1] / t.alone_key.values[t.alone_key.n - 1]);
            }
        }
        interrupted = bench_interrupted();
        int asked[FRUGAL_MAX_MACHINES];
        check(frugal_exchange(f, &interrupted, sizeof interrupted, asked));
        for (uint32_t i = 0; i < wire->machines; i++) any |= asked[i];
    }
    if (m == 0 && t.step.n) print(&t, wire->machines);
    close_instance(at);
    close_instance(one);
    free(all);
}

#ifdef BENCH_CUDA
typedef struct local_rank {
    pthread_t thread;
    frugal_wire wire;
    const uint64_t *drawn;
} local_rank;

static void *measure_local(void *argument) {
    const local_rank *rank = argument;
    measure(&rank->wire, rank->drawn);
    return NULL;
}

static void measure_all(const uint64_t *drawn) {
    static local_machines all;
    local_rank ranks[LOCAL_MOST];
    local_init(&all, (uint32_t)n_machines);
    for (uint32_t i = 0; i < n_machines; i++) {
        ranks[i].wire = local_wire(&all, i), ranks[i].drawn = drawn;
        if (pthread_create(&ranks[i].thread, NULL, measure_local, &ranks[i])) bench_fail("a thread cannot be started");
    }
    for (uint32_t i = 0; i < n_machines; i++) pthread_join(ranks[i].thread, NULL);
}
#endif

int main(int argc, char **argv) {
    const char *what = "Trains on several machines, the ranks of mpirun, and beside it in one process.\n";
#ifdef BENCH_CUDA
    what = "Trains on GPUs of several machines, threads of this process, and beside it as one machine.\n";
#else
    frugal_wire wire;
    check(frugal_mpi_wire(MPI_COMM_WORLD, &wire));
    uint64_t n_machines = wire.machines;
#endif
    bench_parse("bench_machines", what, options, argc, argv);
    if (devices % n_machines)
        bench_fail("%llu devices of %llu machines: take a multiple", (unsigned long long)devices,
                   (unsigned long long)n_machines);
    uint64_t n = devices * steps * keys, *drawn = malloc(n * sizeof *drawn);
    if (!drawn) bench_fail("no memory for %llu keys", (unsigned long long)n);
    bench_draw_keys(drawn, n, rows, zipf, 1);
#ifdef BENCH_CUDA
    if (gpu_count() == 0) bench_fail("there is no GPU");
    measure_all(drawn);
#else
    measure(&wire, drawn);
    check(frugal_mpi_free(&wire));
#endif
    free(drawn);
    return bench_exit_status();
}
