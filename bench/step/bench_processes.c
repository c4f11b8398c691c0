/* bench_processes.c - the time of a step where devices are in processes of their own, beside devices on threads of one.
 *
 *     build/bench_processes                      2 devices, 26,624 keys each, a table of 1,000,000 rows
 *     build/cuda/bench_processes                 the same on GPUs, in turn, whose streams wait for gates
 *
 * Both train the same batches with the same settings, in turns: one instance with a thread for each device; one with a
 * process for each, the first of which opened it. Every device announces, looks up, computes a gradient from what it
 * has read (a pass over the rows; on a GPU, enqueued), updates. Times are from the step after the warm-up, which all
 * begin together, until all have updated the last one; processor time is of all processes.
 */
#include "frugal.h"
#include "bench/choices.h"
#include "bench/keys.h"
#include "bench/measure.h"
#include "bench/processors.h"
#include "bench/program.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef BENCH_CUDA
#include "frugal_cuda.h"
#include "tests/cuda/gpu.h"
#endif

enum { MOST_DEVICES = 16, WARM_UP = 10 };

static uint64_t rows = 1000000, dim = 32, devices = 2, keys = 26624, steps = 300, rounds = 5, workers = 1,
                lookahead = 10;
static double skew = 0.99, cache = 0.05;
static options_list alone = {{FRUGAL_ALONE_STAGED, FRUGAL_ALONE_PLACE, FRUGAL_ALONE_KEPT}, 3};
static int bind_threads, json;

static const options_entry options[] = {
    {"rows", OPTIONS_WHOLE64, &rows, 1, 4294967294, NULL, "rows of the table"},
    {"dim", OPTIONS_WHOLE64, &dim, 1, 65536, NULL, "floats a row"},
    {"devices", OPTIONS_WHOLE64, &devices, 1, MOST_DEVICES, NULL, "a thread, or a process, for each"},
    {"keys", OPTIONS_WHOLE64, &keys, 1, 1 << 22, NULL, "of a device in a step"},
    {"zipf", OPTIONS_REAL, &skew, 0, 10, NULL, "skew of the keys; 0: uniform"},
    {"cache", OPTIONS_REAL, &cache, 0, 1, NULL, "rows of a device's cache, as a share of all"},
    {"alone", OPTIONS_CHOICES, &alone, 0, 0, bench_alone, "who updates rows that one device touches"},
    {"workers", OPTIONS_WHOLE64, &workers, 1, 64, NULL, "flush threads"},
    {"lookahead", OPTIONS_WHOLE64, &lookahead, 0, 15, NULL, "steps"},
    {"steps", OPTIONS_WHOLE64, &steps, 1, 1000000, NULL, "that are timed, after 10 more"},
    {"rounds", OPTIONS_WHOLE64, &rounds, 1, BENCH_SAMPLES, NULL, "of both, in turns; medians are shown"},
    {"bind", OPTIONS_FLAG, &bind_threads, 0, 0, NULL, "trainers to a processor each, workers to the last trainer's"},
    {"json", OPTIONS_FLAG, &json, 0, 0, NULL, "one object a line"},
    {0},
};

typedef struct meeting {        /* in memory that all processes share */
    _Atomic(uint32_t) ready;    /* devices that have warmed up */
    _Atomic(uint64_t) begin_ns; /* of the last one to be ready */
    _Atomic(uint64_t) end_ns;   /* the latest end of a device */
    _Atomic(uint64_t) cpu_ns;   /* of processors, in all; without opening, joining and attaching */
} meeting;

typedef struct work { /* a device's */
    frugal *f;
    uint32_t d;
    meeting *meeting;
    pthread_t thread;
    struct gpu *gpu;
} work;

static uint64_t now_ns(void) {
    return (uint64_t)(bench_now() * 1e9);
}

static void check(frugal_status status) {
    if (status != FRUGAL_OK) bench_fail("%s", frugal_message());
}

static void announce(const work *w, uint64_t step, const uint64_t *drawn) {
    frugal_keys batch = {.keys = drawn + step * keys, .n = (uint32_t)keys};
    check(frugal_announce(w->f, w->d, step, &(frugal_batch){.segments = &batch, .n_segments = 1}));
}

#ifdef BENCH_CUDA
static void attach(work *w) {
    int ordinal = (int)w->d % gpu_count();
    w->gpu = gpu_open(ordinal, keys * dim, 1, 0);
    gpu_keep(w->gpu, 1);
    frugal_cuda_desc desc = {
        .cache_rows = (uint64_t)(cache * (double)rows), .stream = gpu_stream(w->gpu), .gate_on_stream = 1};
    check(frugal_cuda_attach(w->f, w->d, ordinal, &desc));
}

static float *open_values(const work *w) {
    return gpu_rows(w->gpu);
}

static void step_once(const work *w, uint64_t step, float *values) {
    check(frugal_lookup(w->f, w->d, step, values));
    gpu_train(w->gpu, NULL, (uint32_t)dim);
    check(frugal_update(w->f, w->d, step, &(frugal_gradients){.grads = gpu_grads(w->gpu), .lr = 0.01f}));
}

static void finish(const work *w, float *values) {
    (void)values;
    gpu_wait(w->gpu);
}
#else
static void attach(work *w) {
    frugal_cpu_desc desc = {.cache_rows = (uint64_t)(cache * (double)rows)};
    check(frugal_cpu_attach(w->f, w->d, &desc));
}

static float *open_values(const work *w) {
    float *values = malloc(keys * dim * sizeof *values);
    (void)w;
    if (!values) bench_fail("out of memory for %llu rows", (unsigned long long)keys);
    return values;
}

static void step_once(const work *w, uint64_t step, float *values) {
    check(frugal_lookup(w->f, w->d, step, values));
    for (uint64_t i = 0; i < keys * dim; i++) values[i] = 0.01f * values[i] + 1e-4f;
    check(frugal_update(w->f, w->d, step, &(frugal_gradients){.grads = values, .lr = 0.01f}));
}

static void finish(const work *w, float *values) {
    (void)w;
    free(values);
}
#endif

static void *train(void *argument) {
    const work *w = argument;
    if (bind_threads) bench_bind(w->d);
    uint64_t all = WARM_UP + steps, *drawn = malloc(all * keys * sizeof *drawn);
    float *values = open_values(w);
    if (!drawn) bench_fail("out of memory for %llu keys", (unsigned long long)(all * keys));
    bench_draw_keys(drawn, all * keys, rows, skew, w->d + 1);
    for (uint64_t s = 0, t = 0; s < all; s++) {
        if (s == WARM_UP && atomic_fetch_add(&w->meeting->ready, 1) + 1 == devices)
            atomic_store(&w->meeting->begin_ns, now_ns());
        for (; t < all && t <= s + lookahead; t++) announce(w, t, drawn);
        step_once(w, s, values);
    }
    finish(w, values);
    uint64_t end = now_ns(), latest = atomic_load(&w->meeting->end_ns);
    while (latest < end && !atomic_compare_exchange_weak(&w->meeting->end_ns, &latest, end)) continue;
    free(drawn);
    return NULL;
}

/* Of this process. */
static uint64_t processor_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

typedef struct opening {
    frugal_desc desc;
    frugal *f;
} opening;

/* On a thread of its own, because workers inherit its processor, and the main thread keeps all (bench_bind). */
static void *open_bound(void *argument) {
    opening *o = argument;
    bench_bind((uint32_t)devices - 1);
    check(frugal_open(&o->desc, &o->f));
    return NULL;
}

static void open_instance(frugal **f, frugal_alone way, const char *name) {
    frugal_table table = {.rows = rows, .init = FRUGAL_INIT_UNIFORM, .low = -0.1f, .high = 0.1f};
    frugal_desc desc = {.tables = &table,
                        .n_tables = 1,
                        .dim = (uint32_t)dim,
                        .devices = (uint32_t)devices,
                        .max_keys = (uint32_t)keys,
                        .lookahead = (uint32_t)lookahead,
                        .workers = (uint32_t)workers,
                        .alone = way,
                        .name = name,
                        .optimizer = {.kind = FRUGAL_ROWWISE_ADAGRAD}};
    opening o = {.desc = desc};
    pthread_t thread;
    if (!bind_threads) {
        check(frugal_open(&o.desc, f));
        return;
    }
    if (pthread_create(&thread, NULL, open_bound, &o)) bench_fail("no thread to open the instance");
    pthread_join(thread, NULL);
    *f = o.f;
}

static void run_threads(frugal_alone way, meeting *m) {
    work w[MOST_DEVICES];
    frugal *f;
    open_instance(&f, way, NULL);
    for (uint32_t d = 0; d < devices; d++) {
        w[d] = (work){.f = f, .d = d, .meeting = m};
        attach(&w[d]);
    }
    uint64_t before = processor_ns();
    for (uint32_t d = 0; d < devices; d++)
        if (pthread_create(&w[d].thread, NULL, train, &w[d])) bench_fail("no thread for device %u", d);
    for (uint32_t d = 0; d < devices; d++) pthread_join(w[d].thread, NULL);
    check(frugal_drain(f));
    atomic_fetch_add(&m->cpu_ns, processor_ns() - before);
    check(frugal_close(f));
}

static void join_and_train(uint32_t d, const char *name, meeting *m) {
    work w = {.d = d, .meeting = m};
    check(frugal_join(name, 60, &w.f));
    attach(&w);
    uint64_t before = processor_ns();
    train(&w);
    check(frugal_close(w.f));
    atomic_fetch_add(&m->cpu_ns, processor_ns() - before);
    _exit(0);
}

static void run_processes(frugal_alone way, meeting *m) {
    char name[64];
    work w = {.meeting = m};
    snprintf(name, sizeof name, "bench.%ld", (long)getpid());
    for (uint32_t d = 1; d < devices; d++) {
        pid_t child = fork(); /* before this process has a thread */
        if (child < 0) bench_fail("no process for device %u", d);
        if (child == 0) join_and_train(d, name, m);
    }
    open_instance(&w.f, way, name);
    attach(&w);
    uint64_t before = processor_ns();
    if (pthread_create(&w.thread, NULL, train, &w)) bench_fail("no thread for device 0");
    pthread_join(w.thread, NULL);
    for (uint32_t d = 1; d < devices; d++) {
        int status = 0;
        if (wait(&status) < 0 || status) bench_fail("a process has ended with status %d", status);
    }
    check(frugal_drain(w.f));
    atomic_fetch_add(&m->cpu_ns, processor_ns() - before);
    check(frugal_close(w.f));
}

/* In a process of its own, because CUDA does not work in a process whose parent has used it. Returns the microseconds
 * of a step; *cpu those of processors, in all. */
static double run(frugal_alone way, int processes, meeting *m, double *cpu) {
    int status = 0;
    *m = (meeting){0};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (processes ? run_processes : run_threads)(way, m);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) bench_fail("a run has ended with status %d", status);
    *cpu = (double)m->cpu_ns * 1e-3 / (double)(WARM_UP + steps);
    return (double)(m->end_ns - m->begin_ns) * 1e-3 / (double)steps;
}

static void measure(frugal_alone way, meeting *m) {
    bench_samples us[2] = {{.n = 0}}, cpu[2] = {{.n = 0}}, ratio = {.n = 0};
    for (uint64_t i = 0; i < rounds && !bench_interrupted(); i++) {
        double took[2], used[2];
        bench_progress("%s: round %llu of %llu", bench_alone[way], (unsigned long long)i + 1,
                       (unsigned long long)rounds);
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t processes = (uint32_t)(i + k) % 2;
            took[processes] = run(way, (int)processes, m, &used[processes]);
            bench_add(&us[processes], took[processes]);
            bench_add(&cpu[processes], used[processes]);
        }
        bench_add(&ratio, took[1] / took[0]);
    }
    bench_progress("%s", "");
    if (json)
        printf("{\"bench\": \"processes\", \"alone\": \"%s\", \"rows\": %llu, \"dim\": %llu, \"devices\": %llu, "
               "\"keys\": %llu, \"zipf\": %g, \"cache\": %g, \"lookahead\": %llu, \"workers\": %llu, \"rounds\": %u, "
               "\"threads_us\": %.1f, \"processes_us\": %.1f, \"ratio\": %.4f, \"threads_cpu_us\": %.1f, "
               "\"processes_cpu_us\": %.1f}\n",
               bench_alone[way], (unsigned long long)rows, (unsigned long long)dim, (unsigned long long)devices,
               (unsigned long long)keys, skew, cache, (unsigned long long)lookahead, (unsigned long long)workers,
               ratio.n, bench_median(&us[0]), bench_median(&us[1]), bench_median(&ratio), bench_median(&cpu[0]),
               bench_median(&cpu[1]));
    else
        printf("%-8s %12.1f %12.1f %8.3f %12.1f %12.1f %8.3f\n", bench_alone[way], bench_median(&us[0]),
               bench_median(&us[1]), bench_median(&ratio), bench_median(&cpu[0]), bench_median(&cpu[1]),
               bench_median(&cpu[1]) / bench_median(&cpu[0]));
    fflush(stdout);
}

int main(int argc, char **argv) {
    bench_parse("bench_processes", "Times a step of devices on threads, and in processes.", options, argc, argv);
    meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) bench_fail("no memory for the processes to meet");
    if (!json) puts("alone    threads, us processes, us   ratio  cpu, us     cpu, us    ratio");
    for (uint32_t i = 0; i < alone.n && !bench_interrupted(); i++) measure((frugal_alone)alone.values[i], m);
    munmap(m, sizeof *m);
    return bench_exit_status();
}
