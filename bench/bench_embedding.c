/* bench_embedding.c - the embedding part of training alone, end to end, beside what memory allows.
 *
 * Each device's thread announces, looks up and updates; the gradient is the row itself (the derivative of |w|^2 /
 * 2), so that nothing but Frugal is measured. Beside it, in the same run and with the same keys and threads, the
 * roofline: gather every key's row, then update every key's row in place, both prefetched, with no
 * synchronization whatever: what a store that does nothing else would reach. Keys are drawn before the clock
 * runs.
 *
 *     build/bench_embedding [--rows 10000000] [--dim 32] [--devices 2] [--keys 26624] [--workers 0]
 *                           [--lookahead 1] [--staging 0] [--zipf 0] [--optimizer sgd|adagrad|rowwise-adagrad|adam]
 *                           [--mode p2f|sync] [--cache RATIO] [--records 0|1] [--steps 300] [--rounds 5] [--json]
 *
 * --records 1: rows are gathered into the staging block, where gradients take their place; 0: by position of the batch.
 */
#include "frugal.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 32, MAX_ROUNDS = 100 }; /* different batches a device; used in turn */

__extension__ typedef unsigned __int128 wide; /* gcc and clang */

typedef struct options {
    uint64_t rows, keys, steps;
    uint32_t dim, devices, workers, lookahead, staging, rounds;
    double zipf, cache;
    frugal_optimizer_kind optimizer;
    frugal_mode mode;
    int records, json;
} options;

typedef struct device {
    const options *o;
    frugal *f;
    uint32_t number;
    uint64_t first_step;
    uint64_t *keys;       /* [BATCHES][o->keys] */
    float *rows;          /* [o->keys][dim] */
    float *table, *state; /* roofline */
    pthread_barrier_t *barrier;
} device;

typedef struct measurements { /* a round each: keys per second; their ratio */
    double ours[MAX_ROUNDS], memory[MAX_ROUNDS], ratio[MAX_ROUNDS];
} measurements;

static double read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double now(void) {
    return read_clock(CLOCK_MONOTONIC);
}

static void check(frugal_status status) {
    if (status == FRUGAL_OK) return;
    fprintf(stderr, "bench_embedding: %s\n", frugal_message());
    exit(1);
}

static uint64_t next_random(uint64_t *state) { /* splitmix64 (Steele et al. 2014) */
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Zipf-distributed ranks after Gray et al. (SIGMOD 1994), spread over the table by a multiplicative permutation. */
static void draw_keys(const options *o, uint32_t number, uint64_t *keys) {
    uint64_t state = 42 + number, n = BATCHES * o->keys;
    double zeta = 0, theta = o->zipf;
    for (uint64_t i = 1; theta > 0 && i <= o->rows; i++) zeta += pow((double)i, -theta);
    double alpha = 1 / (1 - theta),
           eta = (1 - pow(2.0 / (double)o->rows, 1 - theta)) / (1 - (1 + pow(0.5, theta)) / zeta);
    for (uint64_t i = 0; i < n; i++) {
        double u = (double)(next_random(&state) >> 11) * 0x1p-53, uz = u * zeta;
        double rank = theta == 0                 ? u * (double)o->rows
                      : uz < 1                   ? 0
                      : uz < 1 + pow(0.5, theta) ? 1
                                                 : (double)o->rows * pow(eta * u - eta + 1, alpha);
        uint64_t r = rank < (double)o->rows ? (uint64_t)rank : o->rows - 1;
        keys[i] = theta == 0 ? r : (uint64_t)((wide)(r + 1) * UINT64_C(0x9E3779B97F4A7C15) % o->rows);
    }
}

static void announce(const device *d, uint64_t step) {
    frugal_keys keys = {0, d->keys + step % BATCHES * d->o->keys, (uint32_t)d->o->keys};
    check(frugal_announce(d->f, d->number, step, &(frugal_batch){.segments = &keys, .n_segments = 1}));
}

/* The rows are gathered into the block, and are their own gradients: nothing is left to be written. */
static void step_in_place(const device *d, uint64_t step) {
    check(frugal_lookup(d->f, d->number, step, NULL));
    check(frugal_update(d->f, d->number, step, &(frugal_gradients){.records = 1, .lr = 0.01f}));
}

static void step_by_position(const device *d, uint64_t step) {
    check(frugal_lookup(d->f, d->number, step, d->rows));
    check(frugal_update(d->f, d->number, step, &(frugal_gradients){.grads = d->rows, .lr = 0.01f}));
}

static void *train(void *argument) {
    device *d = argument;
    uint64_t end = d->first_step + d->o->steps;
    pthread_barrier_wait(d->barrier);
    for (uint64_t t = d->first_step; t < end && t < d->first_step + d->o->lookahead; t++) announce(d, t);
    for (uint64_t s = d->first_step; s < end; s++) {
        if (s + d->o->lookahead < end) announce(d, s + d->o->lookahead);
        if (d->o->records)
            step_in_place(d, s);
        else
            step_by_position(d, s);
    }
    pthread_barrier_wait(d->barrier);
    return NULL;
}

static void prefetch(const float *row, uint32_t dim, int write) {
    for (uint32_t i = 0; i < dim && i < 64; i += 16) {
        if (write)
            __builtin_prefetch(row + i, 1);
        else
            __builtin_prefetch(row + i, 0);
    }
}

static void *roofline(void *argument) {
    device *d = argument;
    uint64_t n = d->o->keys;
    uint32_t dim = d->o->dim;
    frugal_store store = *frugal_get_store(d->f);
    frugal_hyper hyper = {0.01f, 0.01f};
    pthread_barrier_wait(d->barrier);
    for (uint64_t s = 0; s < d->o->steps; s++) {
        const uint64_t *keys = d->keys + s % BATCHES * n;
        for (uint64_t i = 0; i < n; i++) {
            if (i + 16 < n) prefetch(d->table + keys[i + 16] * store.weights_stride, dim, 0);
            memcpy(d->rows + i * dim, d->table + keys[i] * store.weights_stride, dim * sizeof(float));
        }
        for (uint64_t i = 0; i < n; i++) {
            if (i + 16 < n) prefetch(d->table + keys[i + 16] * store.weights_stride, dim, 1);
            if (i + 16 < n && store.state_floats)
                prefetch(d->state + keys[i + 16] * store.state_stride, store.state_floats, 1);
            frugal_apply(&store, &hyper, d->table + keys[i] * store.weights_stride,
                         d->state + keys[i] * store.state_stride, d->rows + i * dim);
        }
    }
    pthread_barrier_wait(d->barrier);
    return NULL;
}

/* Runs one thread a device; keys per second. *cpu: processor time a key, ns, of all threads. */
static double measure(device *devices, const options *o, void *(*body)(void *), double *cpu) {
    pthread_t threads[254];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, o->devices + 1);
    for (uint32_t d = 0; d < o->devices; d++) {
        devices[d].barrier = &barrier;
        if (pthread_create(&threads[d], NULL, body, &devices[d])) exit((fprintf(stderr, "no thread\n"), 1));
    }
    pthread_barrier_wait(&barrier);
    double since = now(), cpu_since = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    pthread_barrier_wait(&barrier);
    if (body == train) check(frugal_drain(devices[0].f));
    double seconds = now() - since;
    *cpu = (read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu_since) * 1e9 / (double)(o->devices * o->keys * o->steps);
    for (uint32_t d = 0; d < o->devices; d++) pthread_join(threads[d], NULL);
    pthread_barrier_destroy(&barrier);
    return (double)(o->devices * o->keys * o->steps) / seconds;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void usage(FILE *to) {
    fputs(
        "usage: bench_embedding [--rows N] [--dim N] [--devices N] [--keys N] [--workers N] [--lookahead N]\n"
        "           [--staging N] [--zipf X] [--optimizer sgd|adagrad|rowwise-adagrad|adam] [--mode p2f|sync]\n"
        "           [--cache RATIO] [--records 0|1] [--steps N] [--rounds N] [--json]\n"
        "Keys looked up, updated and flushed a second, beside what memory allows. --records 1: in the staging block.\n",
        to);
}

static double number(const char *name, const char *value, double least, double most) {
    char *end;
    double x = strtod(value, &end);
    if (*value && !*end && x >= least && x <= most) return x;
    fprintf(stderr, "bench_embedding: %s has '%s', must be %.15g to %.15g\n", name, value, least, most);
    exit(2);
}

static uint32_t choice(const char *name, const char *value, const char *const *names, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(value, names[i])) return i;
    fprintf(stderr, "bench_embedding: %s has '%s', must be one of:", name, value);
    for (uint32_t i = 0; i < n; i++) fprintf(stderr, " %s", names[i]);
    fputc('\n', stderr);
    exit(2);
}

static const char *const optimizers[] = {"sgd", "adagrad", "rowwise-adagrad", "adam"}; /* as frugal_optimizer_kind */
static const char *const modes[] = {"p2f", "sync"};                                    /* as frugal_mode */

static void parse_one(options *o, const char *name, const char *value) {
    if (!strcmp(name, "--rows"))
        o->rows = (uint64_t)number(name, value, 1, 4294967294);
    else if (!strcmp(name, "--keys"))
        o->keys = (uint64_t)number(name, value, 1, 1 << 26);
    else if (!strcmp(name, "--steps"))
        o->steps = (uint64_t)number(name, value, 1, 1e9);
    else if (!strcmp(name, "--dim"))
        o->dim = (uint32_t)number(name, value, 1, 65536);
    else if (!strcmp(name, "--devices"))
        o->devices = (uint32_t)number(name, value, 1, 254);
    else if (!strcmp(name, "--workers"))
        o->workers = (uint32_t)number(name, value, 0, 1024);
    else if (!strcmp(name, "--lookahead"))
        o->lookahead = (uint32_t)number(name, value, 0, 15);
    else if (!strcmp(name, "--staging"))
        o->staging = (uint32_t)number(name, value, 0, 63);
    else if (!strcmp(name, "--rounds"))
        o->rounds = (uint32_t)number(name, value, 1, MAX_ROUNDS);
    else if (!strcmp(name, "--records"))
        o->records = (int)number(name, value, 0, 1);
    else if (!strcmp(name, "--zipf"))
        o->zipf = number(name, value, 0, 0.9999);
    else if (!strcmp(name, "--cache"))
        o->cache = number(name, value, 0, 1);
    else if (!strcmp(name, "--mode"))
        o->mode = (frugal_mode)choice(name, value, modes, 2);
    else if (!strcmp(name, "--optimizer"))
        o->optimizer = (frugal_optimizer_kind)choice(name, value, optimizers, 4);
    else {
        fprintf(stderr, "bench_embedding: %s is no option; --help shows them\n", name);
        exit(2);
    }
}

static void parse(options *o, int argc, char **argv) {
    *o = (options){.rows = 10000000, .keys = 26624, .steps = 300, .dim = 32, .devices = 2, .lookahead = 1, .rounds = 5};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            usage(stdout);
            exit(0);
        }
        if (!strcmp(argv[i], "--json")) {
            o->json = 1;
            continue;
        }
        parse_one(o, argv[i], i + 1 < argc ? argv[i + 1] : "");
        i++;
    }
}

/* Medians and spread of the rounds, on standard output. */
static void report(const options *o, frugal *f, measurements *m) {
    frugal_stats stats;
    frugal_get_stats(f, &stats);
    qsort(m->ours, o->rounds, sizeof *m->ours, by_value);
    qsort(m->memory, o->rounds, sizeof *m->memory, by_value);
    qsort(m->ratio, o->rounds, sizeof *m->ratio, by_value);
    uint32_t middle = o->rounds / 2;
    double stall = stats.stall_seconds / (double)stats.steps / o->devices * 1e3,
           unique = (double)stats.unique_rows / (double)stats.keys;
    if (o->json)
        printf("{\"rows\": %llu, \"dim\": %u, \"devices\": %u, \"keys\": %llu, \"workers\": %u, \"lookahead\": %u, "
               "\"zipf\": %g, \"optimizer\": \"%s\", \"mode\": \"%s\", \"records\": %d, \"keys_per_s\": %.0f, \"min\": "
               "%.0f, "
               "\"max\": %.0f, \"memory_keys_per_s\": %.0f, \"roofline_share\": %.3f, \"stall_ms\": %.3f}\n",
               (unsigned long long)o->rows, o->dim, o->devices, (unsigned long long)o->keys, o->workers, o->lookahead,
               o->zipf, optimizers[o->optimizer], modes[o->mode], o->records, m->ours[middle], m->ours[0],
               m->ours[o->rounds - 1], m->memory[middle], m->ratio[middle], stall);
    else
        printf("frugal %.1f M keys/s (%.1f to %.1f), memory %.1f, share %.2f; stall %.2f ms a step, %.0f%% unique, "
               "hits %.1f%%, state %u floats\n",
               m->ours[middle] / 1e6, m->ours[0] / 1e6, m->ours[o->rounds - 1] / 1e6, m->memory[middle] / 1e6,
               m->ratio[middle], stall, unique * 100, 100.0 * (double)stats.hits / (double)stats.unique_rows,
               frugal_get_store(f)->state_floats);
}

int main(int argc, char **argv) {
    options o;
    parse(&o, argc, argv);
    frugal_table table = {.rows = o.rows, .init = FRUGAL_INIT_UNIFORM, .a = -0.1f, .b = 0.1f};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = o.dim,
                        .devices = o.devices,
                        .max_keys = (uint32_t)o.keys,
                        .lookahead = o.lookahead,
                        .staging = o.staging,
                        .workers = o.workers,
                        .mode = o.mode,
                        .optimizer = {.kind = o.optimizer}};
    frugal *f;
    double since = now();
    check(frugal_open(&desc, &f));
    fprintf(stderr, "open: %.2f s\n", now() - since);
    device *devices = calloc(o.devices, sizeof *devices);
    frugal_desc plain = {
        .tables = &table, .n_tables = 1, .dim = o.dim, .max_keys = 1, .optimizer = {.kind = o.optimizer}};
    frugal *g; /* the roofline's table: the same memory layout, nothing of Frugal's is called on it */
    check(frugal_open(&plain, &g));
    for (uint32_t d = 0; d < o.devices; d++) {
        check(frugal_cpu_attach(f, d, &(frugal_cpu_desc){.cache_rows = (uint64_t)(o.cache * (double)o.rows)}));
        devices[d] = (device){.o = &o,
                              .f = f,
                              .number = d,
                              .keys = malloc(BATCHES * o.keys * sizeof(uint64_t)),
                              .rows = aligned_alloc(64, (o.keys * o.dim * sizeof(float) + 63) / 64 * 64),
                              .table = frugal_get_store(g)->weights,
                              .state = frugal_get_store(g)->state};
        memset(devices[d].rows, 0, o.keys * o.dim * sizeof(float));
        draw_keys(&o, d, devices[d].keys);
    }
    static measurements m;
    double cpu[2];
    for (uint32_t r = 0; r <= o.rounds; r++) { /* round 0 warms up */
        uint32_t at = r ? r - 1 : 0;
        m.memory[at] = measure(devices, &o, roofline, &cpu[1]);
        m.ours[at] = measure(devices, &o, train, &cpu[0]);
        m.ratio[at] = m.ours[at] / m.memory[at];
        for (uint32_t d = 0; d < o.devices; d++) devices[d].first_step += o.steps;
        fprintf(stderr, "%s%u: frugal %.1f M keys/s (%.0f ns of processor a key), memory %.1f M keys/s (%.0f ns)\n",
                r ? "round " : "warm-up ", r, m.ours[at] / 1e6, cpu[0], m.memory[at] / 1e6, cpu[1]);
    }
    report(&o, f, &m);
    for (uint32_t d = 0; d < o.devices; d++) free(devices[d].keys), free(devices[d].rows);
    free(devices);
    frugal_close(g);
    frugal_close(f);
    return 0;
}
